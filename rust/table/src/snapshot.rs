//! A pinned state of a table: its data files, matched with what the indexes know of them, and the rows that are in no file yet.
//!
//! Uses `files` and the rooms below it; verbs of the rooms above take a snapshot. `pin` and `updates` make one.
//!
//! Invariant: files, manifest and log of a snapshot go together, and a snapshot never changes.

mod advance;
mod base;
mod buffered_rows;
mod column_cache;
mod column_names;
mod coverage;
mod data_file;
mod deletion_vectors;
pub(crate) mod digest;
mod file_probes;
pub(crate) mod identity;
mod indexes;
mod laid_files;
mod lineage;
mod link_columns;
mod match_files;
pub(crate) mod numbered_files;
mod open_tables;
mod partition_column;
mod pin_base;
mod pin_columns;
mod reader_cache;
mod recent;
mod relocating_store;
mod riding_fields;
mod same_state;
pub(crate) mod segment_verdicts;
mod shapes;
mod snapshot_cache;
pub(crate) mod spark;
mod table_cache;
mod table_columns;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use lakemark_format::{FileNumbers, Manifest, ManifestUpdates};
use lakemark_index::RowSet;
use object_store::ObjectStore;
use url::Url;

use crate::error::{Error, Result};
use crate::files::column_mapping::ColumnMapping;
use crate::files::parted_list::PartedList;
use crate::report::ProbeReport;
use crate::store::Store;

pub(crate) use self::base::BaseTable;
pub use self::buffered_rows::{BufferedRows, BufferedRun};
pub(crate) use self::buffered_rows::{KeyPages, OpenedRun};
pub use self::data_file::DataFile;
pub(crate) use self::file_probes::ProbedFile;
pub use self::file_probes::{FileProbes, FileProbesIter};
pub(crate) use self::laid_files::{DeletedByFile, DeletedPositions, LaidFiles};
pub(crate) use self::lineage::{Lineage, application, application_through};
use self::match_files::MatchedFiles;
pub(crate) use self::open_tables::TableKey;
pub(crate) use self::pin_base::{
    ManifestAndListing, ReadableSnapshot, listing_of, newest_listing, newest_manifest, retry_if_moved, with_files,
};
pub(crate) use self::pin_columns::PinnedColumns;
use self::reader_cache::ReaderCache;
pub(crate) use self::shapes::{ReadableShapes, SummaryOfFile, UnreadableFile, read_shapes, readable_shapes};

/// What a probe found of every file of the snapshot, in the order of [`Snapshot::files`].
#[derive(Clone, Debug)]
pub struct Probe {
    /// One entry per file; only those that are not ruled out are listed.
    pub files: FileProbes,
    /// Rows that are in no data file yet, for which the predicate must be evaluated: the rows of [`Snapshot::buffered_rows`] for which it
    /// may be true.
    pub buffered: Option<Arc<BufferedRows>>,
    /// Whether searches were left out as reading is cheaper.
    pub searches_skipped: bool,
    /// The likely share that the conditions left out are true of, among the rows found; none if it is unknown.
    pub skipped_selectivity: Option<f64>,
    /// How the probe came about and what it cost.
    pub report: ProbeReport,
}

impl Probe {
    /// The number of rows for which the predicate is true, if every file has exact rows alone and nothing is buffered.
    #[must_use]
    pub fn exact_row_count(&self) -> Option<u64> {
        self.exact_rows_of_files().filter(|_| self.buffered_row_count() == 0)
    }

    /// How many rows of [`Self::buffered`] there are.
    #[must_use]
    pub fn buffered_row_count(&self) -> u64 {
        self.buffered.as_ref().map_or(0, |buffered| buffered.row_count())
    }

    /// The number of rows of data files for which the predicate is true, if every file has exact rows alone. Buffered rows are no rows of
    /// files.
    #[must_use]
    pub fn exact_rows_of_files(&self) -> Option<u64> {
        let rows = self.files.listed().map(|(_, file)| match file {
            FileProbe::Counted { rows } => Some(*rows),
            FileProbe::Known { exact, recheck, .. } if recheck.is_empty() => Some(u64::from(exact.len())),
            FileProbe::Known { .. } | FileProbe::Unknown => None,
        });
        rows.sum()
    }
}

/// What a probe found of one file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileProbe {
    /// Nothing: scan the file with the predicate (and take out the rows of [`DataFile::deleted`]).
    Unknown,
    /// Which rows count; deleted rows are taken out already.
    Known {
        /// Rows per row group.
        row_groups: Vec<u32>,
        /// Rows for which the predicate is true.
        exact: RowSet,
        /// Rows to be rechecked: the predicate must be evaluated for them. None of them is exact.
        recheck: RowSet,
    },
    /// Only how many rows count, for [`ProbeOptions::count_only`](crate::ProbeOptions::count_only).
    Counted {
        /// Rows for which the predicate is true.
        rows: u64,
    },
}

impl FileProbe {
    /// The exact rows, if the probe has them.
    pub(crate) fn exact_rows(&self) -> Option<&RowSet> {
        match self {
            Self::Known { exact, .. } => Some(exact),
            Self::Counted { .. } | Self::Unknown => None,
        }
    }
}

/// What is known of a data file beyond the listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileIndexState {
    /// The file's number in the manifest, if a file of its path and size was indexed.
    pub number: Option<u32>,
    /// The modification time or entity tag is another one: fingerprints decide.
    pub unverified: bool,
    /// A file of its path was indexed, but of another size.
    pub size_changed: bool,
    /// The file's columns, by the names that the table shows, if a footer or the manifest has them.
    pub schema: Option<SchemaRef>,
}

/// A pinned state of a table: the list of data files, and the indexes that were there.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: SchemaRef,
    file_schema: SchemaRef,
    partition_columns: Vec<Field>,
    /// Shared with other snapshots, as far as these have the same files.
    files: PartedList<DataFile>,
    attached: ReaderCache,
    object_store: Arc<dyn ObjectStore>,
    root: Url,
    delta_version: Option<u64>,
    /// The names that columns have in the files, where those differ from the table's.
    names: Option<Arc<ColumnMapping>>,
    /// With all of its files, where the snapshot has files.
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) store: Option<Arc<Store>>,
    /// One entry per file.
    pub(crate) index_states: PartedList<FileIndexState>,
    pub(crate) matched: MatchedFiles,
    /// The id of a Delta table.
    table_id: Option<Arc<str>>,
    /// How the store goes together with the log of a Delta table.
    pub(crate) lineage: Lineage,
    /// Rows of the data files that are deleted or replaced.
    deleted_rows: u64,
    /// The places of the data files of which a deletion vector deletes some, ascending.
    deleted_in: Arc<[usize]>,
    /// The rows that buffered changes delete or replace.
    hidden: Arc<DeletedByFile>,
    buffered: Option<Arc<BufferedRows>>,
    sequence: Option<u64>,
}

impl Snapshot {
    /// Data columns, then partition columns; for Delta the table's own schema.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The id of a Delta table.
    pub(crate) fn table_id(&self) -> Option<&str> {
        self.table_id.as_deref()
    }

    /// Whether the migration that the manifest names is in the data files.
    pub(crate) fn migration_done(&self) -> bool {
        self.lineage == Lineage::Same { migrated: true }
    }

    /// Columns that are stored in the files.
    #[must_use]
    pub fn file_schema(&self) -> SchemaRef {
        Arc::clone(&self.file_schema)
    }

    /// Columns whose values are constant per file.
    #[must_use]
    pub fn partition_columns(&self) -> &[Field] {
        &self.partition_columns
    }

    /// The data files, by path.
    #[must_use]
    pub fn files(&self) -> &PartedList<DataFile> {
        &self.files
    }

    /// What a reader found out of the data files and keeps with them, by their places in [`Snapshot::files`]. It must not depend on which
    /// rows are deleted, replaced or buffered by now. Snapshots of the same files share it.
    #[must_use]
    pub fn reader_cache<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        self.attached.get()
    }

    /// The same state with these files alone, by their places.
    pub(crate) fn of_files(&self, places: &[usize]) -> Self {
        let files: PartedList<DataFile> = places.iter().filter_map(|place| self.files.get(*place)).cloned().collect();
        let (deleted_rows, deleted_in) = deleted_of(&files);
        let index_states = places.iter().filter_map(|place| self.index_states.get(*place)).cloned().collect();
        let matched = self.matched.of_files(&files, &index_states);
        let attached = ReaderCache::default();
        let hidden = Arc::default();
        Self { files, index_states, matched, deleted_rows, deleted_in, hidden, attached, ..self.clone() }
    }

    /// The place of the data file of a path.
    pub(crate) fn place_of(&self, path: &str) -> Option<usize> {
        let place = self.files.partition_point(|file| file.path.as_str() < path);
        self.files.get(place).filter(|file| file.path == path).map(|_| place)
    }

    /// The store that the data files are in.
    #[must_use]
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.object_store)
    }

    /// Rows that are in no data file yet, if there are any.
    #[must_use]
    pub fn buffered_rows(&self) -> Option<&Arc<BufferedRows>> {
        self.buffered.as_ref()
    }

    /// The store that has the runs of buffered rows.
    #[must_use]
    pub fn run_store(&self) -> Option<Arc<dyn ObjectStore>> {
        self.store.as_ref().map(|store| Arc::clone(store.object_store()))
    }

    /// The sequence number of the last change that the snapshot has; none if the table takes no updates.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    /// Rows of the data files that are deleted, or replaced by buffered ones.
    #[must_use]
    pub fn deleted_rows(&self) -> u64 {
        self.deleted_rows
    }

    /// The numbers of the settled data files of which no row is deleted or replaced.
    pub(crate) fn intact_numbers(&self) -> FileNumbers {
        let number = |place: &usize| self.index_states.get(*place)?.number;
        let deleted: FileNumbers = self.deleted_in.iter().chain(self.hidden.keys()).filter_map(number).collect();
        self.matched.digest.numbers().difference(&deleted)
    }

    /// Rows that a reader sees; none while the number of rows of a data file is unknown.
    #[must_use]
    pub fn rows(&self) -> Option<u64> {
        let of_file = |place: usize| self.files.get(place)?.row_count();
        let digest = &self.matched.digest;
        let stored = digest.settled().rows + digest.unsettled().map(of_file).sum::<Option<u64>>()?;
        let buffered = self.buffered.as_ref().map_or(0, |buffered| buffered.row_count());
        Some(stored.saturating_sub(self.deleted_rows()).saturating_add(buffered))
    }

    /// Whether the rows per row group of every data file are known.
    #[must_use]
    pub fn has_all_row_groups(&self) -> bool {
        let has_them = |place: usize| self.files.get(place).is_some_and(|file| file.row_groups.is_some());
        // Those of a settled file are.
        self.matched.digest.unsettled().all(has_them)
    }

    /// The data files of which some statistics in the footer are false, as the manifest knows.
    pub fn files_with_false_statistics(&self) -> impl Iterator<Item = &DataFile> {
        self.matched.digest.caught().filter_map(|place| self.files.get(place))
    }

    /// The columns of the key, if one was declared.
    #[must_use]
    pub fn key_columns(&self) -> Option<Vec<String>> {
        let updates = self.manifest.as_ref()?.updates()?;
        updates.key.iter().map(|stored| self.logical_name(stored).map(Cow::into_owned)).collect()
    }

    /// Whether the table lost a column of the key.
    pub(crate) fn lacks_key(&self, updates: &ManifestUpdates) -> bool {
        let is_there = |stored: &String| self.logical_name(stored).is_some_and(|name| self.field(&name).is_some());
        !updates.key.iter().all(is_there)
    }

    /// Makes these partition columns text: texts have the values as the folders are called.
    pub(crate) fn read_as_text(&mut self, columns: &BTreeSet<String>) -> Result<()> {
        for (place, column) in self.partition_columns.iter_mut().enumerate() {
            if column.data_type().is_string() || !columns.contains(column.name()) {
                continue;
            }
            *column = column.clone().with_data_type(DataType::Utf8);
            let text = Arc::new(column.clone());
            let typed =
                self.schema.fields().iter().map(|field| if field.name() == text.name() { &text } else { field });
            self.schema =
                Arc::new(Schema::new_with_metadata(typed.cloned().collect::<Fields>(), self.schema.metadata.clone()));
            for file in 0..self.files.len() {
                let file = self.files.get_mut(file);
                let Some(value) = file.and_then(|file| file.partition_values.get_mut(place)) else { continue };
                let text = cast(value, &DataType::Utf8);
                *value = text.map_err(|error| Error::internal("a partition has no text").with_source(error))?;
            }
            self.attached = ReaderCache::default();
        }
        Ok(())
    }

    /// The URL of the table's root folder.
    #[must_use]
    pub fn root_url(&self) -> &Url {
        &self.root
    }

    /// The version of the Delta table, if it is one.
    #[must_use]
    pub fn delta_version(&self) -> Option<u64> {
        self.delta_version
    }

    /// The number of the manifest, if there is one.
    #[must_use]
    pub fn manifest_number(&self) -> Option<u64> {
        self.manifest.as_ref().map(|manifest| manifest.number())
    }
}

/// How many rows of these files are deleted or replaced, and the places of the files that have some.
fn deleted_of(files: &PartedList<DataFile>) -> (u64, Arc<[usize]>) {
    let deleted = || files.iter().enumerate().filter_map(|(place, file)| Some((place, file.deleted.as_ref()?)));
    let rows = deleted().map(|(_, deleted)| u64::from(deleted.len())).sum();
    (rows, deleted().map(|(place, _)| place).collect())
}
