//! A pinned state of a table: its data files, matched with what the indexes know of them, and the rows that are in no file yet.
//!
//! Uses `files` and the rooms below it; verbs of the rooms above take a snapshot. `pin` and `updates` make one.
//!
//! Invariant: files, manifest and log of a snapshot go together, and a snapshot never changes.

mod advance;
mod base;
mod buffered_rows;
mod column_cache;
mod coverage;
mod data_file;
mod deletion_vectors;
pub(crate) mod digest;
mod file_probes;
pub(crate) mod identity;
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
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use lakemark_format::{Encoding, FileNumbers, Manifest, ManifestIndex, ManifestSegment, ManifestUpdates, column};
use lakemark_index::{Leaf, RowSet, Test};
use object_store::ObjectStore;
use url::Url;

use crate::error::{Error, Result};
use crate::files::column_mapping::ColumnMapping;
use crate::files::parted_list::PartedList;
use crate::index_kind::IndexKind;
use crate::report::{ChosenBy, IndexInfo, ProbeReport};
use crate::store::Store;
use crate::store::hashed::hash_bits;
use crate::store::recorded::{Recorded, is_chosen_by_auto};
use crate::store::segments::missing;
use crate::values::fields::{Presence, field_of, indexed_field, key_type_of_field};

pub(crate) use self::base::BaseTable;
pub use self::buffered_rows::{BufferedRows, BufferedRun};
pub(crate) use self::buffered_rows::{KeyPages, OpenedRun};
use self::coverage::CoveredFiles;
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

    /// The names that columns have in the files, where those differ from what the table shows.
    #[must_use]
    pub fn column_names(&self) -> Option<&Arc<ColumnMapping>> {
        self.names.as_ref()
    }

    /// The column or field that a user's text names: the column of just this name, else the field with dots between the
    /// names on the way to it (in double quotes where a name has dots itself). None if the table has neither.
    #[must_use]
    pub fn resolve(&self, text: &str) -> Option<String> {
        let is_known = |name: &String| field_of(&self.schema, name).is_some();
        Some(text.to_owned()).filter(is_known).or_else(|| column::parse(text).filter(is_known))
    }

    /// The text for a column or field that [`Snapshot::resolve`] takes for just this one.
    #[must_use]
    pub fn display_name(&self, name: &str) -> String {
        let text = column::display(name);
        let is_other = column::is_field(name) && self.schema.field_with_name(&text).is_ok();
        if is_other { column::quoted(name) } else { text.into_owned() }
    }

    /// A column of the table, or a field inside of its structs, under its whole name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<FieldRef> {
        field_of(&self.schema, name)
    }

    /// The column or field of the files that has this name there, typed as it is now; none if the table has it no more.
    pub(crate) fn physical_field(&self, stored: &str) -> Option<FieldRef> {
        let field = indexed_field(&self.file_schema, &self.logical_name(stored)?)?;
        Some(Arc::new(field.as_ref().clone().with_name(stored)))
    }

    /// The name that a column or field of the table has in the files.
    pub(crate) fn physical_name<'a>(&self, shown: &'a str) -> Cow<'a, str> {
        self.names.as_ref().and_then(|names| names.physical(shown)).map_or(Cow::Borrowed(shown), Cow::Owned)
    }

    /// The name that a column or field of the files shows; none if the table has it no more.
    pub(crate) fn logical_name<'a>(&self, stored: &'a str) -> Option<Cow<'a, str>> {
        match &self.names {
            Some(names) => names.logical(stored).map(Cow::Owned),
            None => Some(Cow::Borrowed(stored)),
        }
    }

    /// How a file with this schema, by stored names, has a column or field of the table, by its shown name.
    pub(crate) fn presence(&self, stored: &SchemaRef, shown: &str) -> Presence {
        Presence::of(&shown_schema(self.names.as_deref(), stored), &self.file_schema, shown)
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

    /// Whether there are indexes.
    #[must_use]
    pub fn has_indexes(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.indexes().len() > 0)
    }

    /// Whether an index is on a column, alone or with others.
    #[must_use]
    pub fn is_indexed(&self, column: &str) -> bool {
        let indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.into_iter().any(|index| self.logical_columns(index).iter().any(|own| own == column))
    }

    /// The indexes and how much of this snapshot they cover.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        self.indexes_without(&HashSet::new())
    }

    /// The same, for people: segments that are gone cover nothing. That takes a listing of the store; the next build makes such segments
    /// again.
    pub async fn checked_indexes(&self) -> Result<Vec<IndexInfo>> {
        let (Some(store), Some(manifest)) = (&self.store, &self.manifest) else { return Ok(self.indexes()) };
        let lost = missing(store, manifest, manifest.indexes()).await?;
        Ok(self.indexes_without(&lost.iter().map(|segment| segment.id).collect()))
    }

    fn indexes_without(&self, lost: &HashSet<[u8; 16]>) -> Vec<IndexInfo> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        manifest.indexes().map(|index| self.index_info(manifest, index, lost)).collect()
    }

    /// The columns of each index of one of these kinds.
    #[must_use]
    pub fn columns_of_kinds(&self, kinds: &[IndexKind]) -> Vec<Vec<String>> {
        let indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        let kept = indexes.filter(|index| index.kind.known().is_some_and(|kind| kinds.contains(&kind)));
        kept.map(|index| self.logical_columns(index)).collect()
    }

    /// The columns of an index, as the table shows them.
    fn logical_columns(&self, index: &ManifestIndex) -> Vec<String> {
        let shown = self.logical_name(&index.column).unwrap_or(Cow::Borrowed(&index.column));
        column::columns(&shown).map(|column| self.display_name(column)).collect()
    }

    fn index_info(&self, manifest: &Manifest, index: &ManifestIndex, lost: &HashSet<[u8; 16]>) -> IndexInfo {
        let of_index = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
        let segments: Vec<&ManifestSegment> = of_index.filter(|segment| !lost.contains(&segment.id)).collect();
        let covered = match self.is_usable(index) {
            true => self.covered_by(manifest, segments.iter().copied()),
            false => CoveredFiles::default(),
        };
        let CoveredFiles { files: files_covered, rows } = covered;
        let files_total = self.files.len() as u64;
        let data_type = self.physical_field(&index.column).map(|field| field.data_type().to_string());
        let shown = self.logical_name(&index.column).unwrap_or(Cow::Borrowed(&index.column));
        let recorded = Recorded::of(index);
        IndexInfo {
            name: index.name.clone(),
            kind: index.kind.clone(),
            encoding: index.encoding.clone(),
            column: self.display_name(&shown),
            columns: self.logical_columns(index),
            data_type: data_type.unwrap_or_else(|| "gone".to_owned()),
            chosen_by: if is_chosen_by_auto(index) { ChosenBy::Auto } else { ChosenBy::User },
            predicted_bytes: recorded.bytes_of(rows),
            reason: recorded.reason,
            options: self.shown_options(index),
            files_covered,
            files_total,
            coverage: if files_total == 0 { 1.0 } else { files_covered as f64 / files_total as f64 },
            segments: segments.len() as u64,
            bytes: segments.iter().map(|segment| segment.length).sum(),
            rows,
        }
    }

    /// The indexes that can answer tests of the values of `column`, as it is typed now. First are those that know every row, then those
    /// with hashes, then those that know the smaller zones.
    pub(crate) fn indexes_of(&self, column: &str) -> Vec<&ManifestIndex> {
        let mut found = self.usable_on(column);
        found.retain(|index| !index.key_type.is_list());
        found
    }

    /// The indexes that can answer the test of a leaf, in the same order. Of lists, an index knows the elements and which are NULL.
    pub(crate) fn indexes_for(&self, leaf: &Leaf) -> Vec<&ManifestIndex> {
        let mut found = self.usable_on(&leaf.column);
        found.retain(|index| match &leaf.test {
            Test::IsNull => true,
            // Hashes say nothing of the order of values.
            Test::Ranges(ranges) if hash_bits(index).is_some() => ranges.are_points(),
            Test::Ranges(_) => !index.key_type.is_list(),
            Test::Elements(_) => index.key_type.is_list(),
        });
        found
    }

    fn usable_on(&self, column: &str) -> Vec<&ManifestIndex> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        let stored = self.physical_name(column);
        let usable = manifest.indexes().filter(|index| index.column == stored && self.answers_conditions(index));
        let mut found: Vec<&ManifestIndex> = usable.collect();
        found.sort_by_key(|index| match index.kind.known() {
            Some(kind) if kind.is_exact() && hash_bits(index).is_none() => 0,
            Some(kind) if kind.is_exact() => 1,
            Some(IndexKind::BloomTree) => 2,
            _ => 3,
        });
        found
    }

    /// Whether something may be known of conditions on a column: it is one of the partition columns, or an index is on it.
    #[must_use]
    pub fn is_prunable(&self, column: &str) -> bool {
        self.partition_columns.iter().any(|field| field.name() == column)
            || !self.usable_on(column).is_empty()
            || self.begins_composite(column)
    }

    /// Whether an index over several columns begins with this one: of its other columns alone the index knows nothing.
    fn begins_composite(&self, column: &str) -> bool {
        let stored = self.physical_name(column);
        let is_over = |index: &ManifestIndex| {
            column::is_composite(&index.column) && column::columns(&index.column).next() == Some(&stored)
        };
        let mut indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.any(|index| is_over(index) && self.answers_conditions(index))
    }

    /// Whether an index that is made to find single values, of the kind `key`, `bloom_tree` or `summary`, is on a column or begins with it.
    #[must_use]
    pub fn has_key_index(&self, column: &str) -> bool {
        let stored = self.physical_name(column);
        let begins = |index: &ManifestIndex| column::columns(&index.column).next() == Some(stored.as_ref());
        let made_for_it =
            |index: &ManifestIndex| index.kind.known() != Some(IndexKind::Bitmap) && self.answers_conditions(index);
        let mut indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.any(|index| begins(index) && made_for_it(index))
    }

    /// The indexes of [`Self::indexes_of`] that know every row.
    pub(crate) fn exact_indexes_of(&self, column: &str) -> Vec<&ManifestIndex> {
        exact(self.indexes_of(column))
    }

    /// The indexes of [`Self::indexes_for`] that know every row.
    pub(crate) fn exact_indexes_for(&self, leaf: &Leaf) -> Vec<&ManifestIndex> {
        exact(self.indexes_for(leaf))
    }

    /// The indexes of [`Self::indexes_for`] that know rows: every one, and where keys are hashes those that may have a value.
    pub(crate) fn row_indexes_for(&self, leaf: &Leaf) -> Vec<&ManifestIndex> {
        let mut indexes = self.indexes_for(leaf);
        indexes.retain(|index| index.kind.known().is_some_and(IndexKind::finds_rows));
        indexes
    }

    /// Whether the index is usable, and is of a kind that conditions are asked of.
    fn answers_conditions(&self, index: &ManifestIndex) -> bool {
        index.kind.known().is_some_and(IndexKind::answers_conditions) && self.is_usable(index)
    }

    /// Whether the index is of a kind that is known and of a column that the table has now, with the type that it has now.
    pub(crate) fn is_usable(&self, index: &ManifestIndex) -> bool {
        index.kind.known().is_some()
            && (!index.key_type.is_list() || index.encoding.known() == Some(Encoding::Equality))
            && self.physical_field(&index.column).and_then(|field| key_type_of_field(&field)).as_ref()
                == Some(&index.key_type)
    }
}

/// How many rows of these files are deleted or replaced, and the places of the files that have some.
fn deleted_of(files: &PartedList<DataFile>) -> (u64, Arc<[usize]>) {
    let deleted = || files.iter().enumerate().filter_map(|(place, file)| Some((place, file.deleted.as_ref()?)));
    let rows = deleted().map(|(_, deleted)| u64::from(deleted.len())).sum();
    (rows, deleted().map(|(place, _)| place).collect())
}

/// Of these indexes those that know every row.
fn exact(mut indexes: Vec<&ManifestIndex>) -> Vec<&ManifestIndex> {
    indexes.retain(|index| index.kind.known().is_some_and(IndexKind::finds_rows) && hash_bits(index).is_none());
    indexes
}

/// The schema of a file by the names that its columns show.
fn shown_schema(names: Option<&ColumnMapping>, stored: &SchemaRef) -> SchemaRef {
    names.map_or_else(|| Arc::clone(stored), |names| names.logical_schema(stored))
}
