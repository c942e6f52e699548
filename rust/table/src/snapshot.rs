//! A pinned state of a table.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use lakemark_format::{Manifest, ManifestFile, ManifestIndex, ManifestPublication, ManifestUpdates, column};
use lakemark_index::{Predicate, RowSet};
use object_store::{ObjectMeta, ObjectStore};
use url::Url;

use crate::advise::{Recorded, is_chosen_by_auto, is_record};
use crate::delta::DeltaState;
use crate::error::{Error, Result};
use crate::fields::{Presence, field_of, indexed_field, key_type_of_field};
use crate::footer::{FileShape, modified_ns};
use crate::kind::Kind;
use crate::listing::{ListedFile, Listing, listed};
use crate::names::ColumnNames;
use crate::options::ProbeOptions;
use crate::probe;
use crate::report::{IndexInfo, ProbeReport};
use crate::schema;
use crate::store::Store;
use crate::table::{Table, TableFormat};
use crate::updates::{Overlay, PendingRows, Updated, application, under_way};
use crate::versions;

/// Footers that are read at a time.
const CONCURRENT_READS: usize = 32;

/// One data file of a snapshot.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Place within [`Snapshot::object_store`], size and time.
    pub meta: ObjectMeta,
    /// Path below the table's root, `/`-separated.
    pub path: String,
    /// One value (an array of length 1) per partition column.
    pub partition_values: Vec<ArrayRef>,
    /// Rows that a deletion vector hides.
    pub deleted: Option<Arc<RowSet>>,
    /// Rows per row group, where the manifest or a footer that was read tells them.
    pub row_groups: Option<Vec<u32>>,
}

/// What a probe says of every file of the snapshot, in the order of [`Snapshot::files`].
#[derive(Clone, Debug)]
pub struct Probe {
    /// One entry per file.
    pub files: Vec<FileProbe>,
    /// Rows that are in no data file yet, for which the predicate must be evaluated: see [`Snapshot::pending`].
    pub pending_rows: u64,
    /// How it came about and what it cost.
    pub report: ProbeReport,
}

impl Probe {
    /// The number of rows for which the predicate is true, if that is certain for every file and nothing is pending.
    #[must_use]
    pub fn certain_rows(&self) -> Option<u64> {
        self.certain_rows_of_files().filter(|_| self.pending_rows == 0)
    }

    /// The number of rows of data files for which the predicate is true, if that is certain for every file. Pending rows are no rows
    /// of files.
    #[must_use]
    pub fn certain_rows_of_files(&self) -> Option<u64> {
        let rows = self.files.iter().map(|file| match file {
            FileProbe::Counted { rows } => Some(*rows),
            FileProbe::Known { certain, uncertain, .. } if uncertain.is_empty() => Some(u64::from(certain.len())),
            FileProbe::Known { .. } | FileProbe::Unknown => None,
        });
        rows.sum()
    }
}

/// What a probe says of one file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileProbe {
    /// Nothing: scan the file with the predicate (and take out the rows of [`DataFile::deleted`]).
    Unknown,
    /// Which rows count; deleted rows are taken out already.
    Known {
        /// Rows per row group.
        row_groups: Vec<u32>,
        /// Rows for which the predicate is true.
        certain: RowSet,
        /// Rows for which it must be evaluated; none of them is certain.
        uncertain: RowSet,
    },
    /// Only how many rows count, for [`ProbeOptions::count_only`].
    Counted {
        /// Rows for which the predicate is true.
        rows: u64,
    },
}

/// What is known of a data file beyond the listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileMarks {
    /// Its ordinal in the manifest, if a file of its path and size was indexed.
    pub ordinal: Option<u32>,
    /// The modification time or entity tag is another one: fingerprints decide.
    pub doubtful: bool,
    /// A file of its path was indexed, but of another size.
    pub changed: bool,
    /// The columns that it has, by the names that they show, if a footer or the manifest told.
    pub schema: Option<SchemaRef>,
}

/// A pinned state of a table: the list of data files, and the marks that were there.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: SchemaRef,
    file_schema: SchemaRef,
    partition_columns: Vec<Field>,
    /// Shared with other snapshots of the same files.
    files: Arc<Vec<DataFile>>,
    object_store: Arc<dyn ObjectStore>,
    root: Url,
    delta_version: Option<u64>,
    /// The names that columns have in the files, where those are others.
    names: Option<Arc<ColumnNames>>,
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) store: Option<Arc<Store>>,
    /// One entry per file.
    pub(crate) marks: Arc<Vec<FileMarks>>,
    /// Whether the migration that the manifest names is in the data files.
    pub(crate) folded: bool,
    pending: Option<Arc<PendingRows>>,
    sequence: Option<u64>,
}

impl Snapshot {
    /// The newest state: data files with what is pending laid over them.
    pub(crate) async fn pin(table: &Table) -> Result<Self> {
        if let Some(version) = table.version {
            return versions::pin(table, version).await;
        }
        let mut snapshot = Self::pin_base(table).await?;
        let (Some(manifest), Some(store)) = (snapshot.manifest.clone(), table.store.as_ref()) else {
            return Ok(snapshot);
        };
        let Some(updates) = &manifest.updates else { return Ok(snapshot) };
        let updated = Updated::of(&snapshot, store, updates, (manifest.number, snapshot.folded))?;
        let overlay = updated.overlay(&snapshot, &table.overlays).await?;
        snapshot.lay_over(&overlay);
        Ok(snapshot)
    }

    /// Hides what pending changes hide, and adds what they add.
    pub(crate) fn lay_over(&mut self, overlay: &Overlay) {
        let shadows = || overlay.shadow.iter().enumerate().filter_map(|(file, shadow)| Some((file, shadow.as_ref()?)));
        for (place, (row_groups, hidden)) in shadows() {
            let Some(file) = Arc::make_mut(&mut self.files).get_mut(place) else { continue };
            let deleted = file.deleted.as_ref().map(|deleted| Arc::new(deleted.or(hidden)));
            file.deleted = Some(deleted.unwrap_or_else(|| Arc::clone(hidden)));
            file.row_groups.get_or_insert_with(|| row_groups.clone());
        }
        self.pending = Some(Arc::clone(&overlay.pending)).filter(|pending| pending.row_count() > 0);
        self.sequence = Some(overlay.next.saturating_sub(1));
    }

    /// The newest state of the data files, without what is pending.
    pub(crate) async fn pin_base(table: &Table) -> Result<Self> {
        match table.format {
            TableFormat::Parquet => {
                let (manifest, files) = futures::join!(newest_manifest(table), listed(&table.location));
                let (manifest, files) = (manifest?, files?);
                let updates = manifest.as_ref().and_then(|manifest| manifest.updates.as_ref());
                let later: Vec<_> = updates.and_then(under_way).into_iter().collect();
                let is_plain = later.is_empty() && !updates.is_some_and(has_moved);
                if let Some(same) = table.listed.get(&files, manifest.as_ref()).filter(|_| is_plain) {
                    return Ok(same);
                }
                let listed: Vec<ObjectMeta> = files.iter().map(|file| file.meta.clone()).collect();
                let listing = listing_of(table, updates, &later, files).await?;
                let snapshot = Self::pin_listing(table, manifest, listing).await?;
                if is_plain {
                    table.listed.insert(listed, &snapshot);
                }
                Ok(snapshot)
            }
            TableFormat::Delta => {
                let (manifest, state) = newest_delta(table).await?;
                Self::pin_delta(table, manifest, state).await
            }
        }
    }

    pub(crate) async fn pin_listing(table: &Table, manifest: Option<Arc<Manifest>>, listing: Listing) -> Result<Self> {
        let mut files: Vec<DataFile> = listing
            .files
            .iter()
            .enumerate()
            .map(|(place, file)| DataFile {
                meta: file.meta.clone(),
                path: file.path.clone(),
                partition_values: listing.partition_values(place),
                deleted: None,
                row_groups: None,
            })
            .collect();
        let mut marks = match_manifest(&mut files, manifest.as_deref())?;
        let unknown: Vec<usize> =
            (0..files.len()).filter(|file| marks.get(*file).is_none_or(|mark| mark.schema.is_none())).collect();
        for (file, shape) in read_shapes(table, &files, unknown).await? {
            if let (Some(mark), Some(data_file)) = (marks.get_mut(file), files.get_mut(file)) {
                mark.schema = Some(shape.schema);
                data_file.row_groups = Some(shape.row_groups);
            }
        }
        let schemas =
            marks.iter().zip(&files).filter_map(|(mark, file)| Some((mark.schema.as_ref()?, file.path.as_str())));
        let merged = schema::merge(schemas)?;
        // Some writers store partition columns in the files too; the folder's name is what counts.
        let is_partition = |name: &str| listing.partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> = merged.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        let all: Vec<_> =
            stored.iter().cloned().chain(listing.partition_columns.iter().cloned().map(Arc::new)).collect();
        Ok(Self {
            schema: Arc::new(Schema::new(all)),
            file_schema: Arc::new(Schema::new(stored)),
            partition_columns: listing.partition_columns,
            files: Arc::new(files),
            object_store: Arc::clone(&table.location.object_store),
            root: table.location.root.clone(),
            delta_version: None,
            names: None,
            manifest,
            store: table.store.clone(),
            marks: Arc::new(marks),
            folded: false,
            pending: None,
            sequence: None,
        })
    }

    pub(crate) async fn pin_delta(table: &Table, manifest: Option<Arc<Manifest>>, state: DeltaState) -> Result<Self> {
        let folded = is_folded(&state, manifest.as_deref()).await?;
        let mut files: Vec<DataFile> = state
            .files
            .iter()
            .map(|file| DataFile {
                meta: file.meta.clone(),
                path: file.path.clone(),
                partition_values: file.partition_values.clone(),
                deleted: None,
                row_groups: None,
            })
            .collect();
        let mut marks = match_manifest(&mut files, manifest.as_deref())?;
        let shown = |stored: SchemaRef| shown_schema(state.names.as_deref(), &stored);
        for mark in &mut marks {
            mark.schema = mark.schema.take().map(shown);
        }
        // Positions of deleted rows mean nothing without the number of rows.
        let vectors =
            || state.files.iter().enumerate().filter_map(|(file, delta)| Some((file, delta.vector.as_ref()?)));
        let unknown = vectors()
            .map(|(file, _)| file)
            .filter(|file| files.get(*file).is_some_and(|file| file.row_groups.is_none()));
        for (file, shape) in read_shapes(table, &files, unknown.collect()).await? {
            if let (Some(mark), Some(data_file)) = (marks.get_mut(file), files.get_mut(file)) {
                mark.schema = Some(shown(shape.schema));
                data_file.row_groups = Some(shape.row_groups);
            }
        }
        let wanted = vectors().filter_map(|(file, vector)| Some((file, vector, files.get(file)?)));
        let mut reads = Vec::new();
        for (file, vector, data_file) in wanted {
            let rows = data_file.row_groups.iter().flatten().sum();
            reads.push(state.deleted(vector, rows, &data_file.path, &table.vectors).map_ok(move |rows| (file, rows)));
        }
        let deleted: Vec<(usize, Arc<RowSet>)> =
            stream::iter(reads).buffer_unordered(CONCURRENT_READS).try_collect().await?;
        for (file, rows) in deleted {
            if let Some(data_file) = files.get_mut(file) {
                data_file.deleted = Some(rows);
            }
        }
        let is_partition = |name: &str| state.partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> =
            state.schema.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        Ok(Self {
            schema: Arc::clone(&state.schema),
            file_schema: Arc::new(Schema::new(stored)),
            partition_columns: state.partition_columns,
            files: Arc::new(files),
            object_store: Arc::clone(&table.location.object_store),
            root: table.location.root.clone(),
            delta_version: Some(state.version),
            names: state.names,
            manifest,
            store: table.store.clone(),
            marks: Arc::new(marks),
            folded,
            pending: None,
            sequence: None,
        })
    }

    /// Data columns, then partition columns; for Delta the table's own schema.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
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
    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// The store that holds the data files.
    #[must_use]
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.object_store)
    }

    /// Rows that are in no data file yet, if there are any.
    #[must_use]
    pub fn pending(&self) -> Option<&Arc<PendingRows>> {
        self.pending.as_ref()
    }

    /// The store that holds the runs of pending rows.
    #[must_use]
    pub fn pending_store(&self) -> Option<Arc<dyn ObjectStore>> {
        self.store.as_ref().map(|store| Arc::clone(store.object_store()))
    }

    /// The sequence number of the last change that the snapshot has; none if the table takes no updates.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    /// Rows of the data files that are hidden: deleted, or replaced by pending ones.
    #[must_use]
    pub fn hidden_rows(&self) -> u64 {
        self.files.iter().filter_map(|file| file.deleted.as_ref()).map(|hidden| u64::from(hidden.len())).sum()
    }

    /// The columns of the key, if one was declared.
    #[must_use]
    pub fn key_columns(&self) -> Option<Vec<String>> {
        let updates = self.manifest.as_ref()?.updates.as_ref()?;
        updates.key.iter().map(|stored| self.shown_name(stored).map(Cow::into_owned)).collect()
    }

    /// The URL of the table's root folder.
    #[must_use]
    pub fn root_url(&self) -> &Url {
        &self.root
    }

    /// The names that columns have in the files, where those are others than the table shows.
    #[must_use]
    pub fn column_names(&self) -> Option<&Arc<ColumnNames>> {
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
    pub fn shown_text(&self, name: &str) -> String {
        let text = column::shown(name);
        let is_other = column::is_field(name) && self.schema.field_with_name(&text).is_ok();
        if is_other { column::quoted(name) } else { text.into_owned() }
    }

    /// A column of the table, or a field inside of its structs, under its whole name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<FieldRef> {
        field_of(&self.schema, name)
    }

    /// The column or field of the files that has this name there, typed as it is now; none if the table has it no more.
    pub(crate) fn stored_field(&self, stored: &str) -> Option<FieldRef> {
        let field = indexed_field(&self.file_schema, &self.shown_name(stored)?)?;
        Some(Arc::new(field.as_ref().clone().with_name(stored)))
    }

    /// The name that a column or field of the table has in the files.
    pub(crate) fn stored_name<'a>(&self, shown: &'a str) -> Cow<'a, str> {
        self.names.as_ref().and_then(|names| names.stored(shown)).map_or(Cow::Borrowed(shown), Cow::Owned)
    }

    /// The name that a column or field of the files shows; none if the table has it no more.
    pub(crate) fn shown_name<'a>(&self, stored: &'a str) -> Option<Cow<'a, str>> {
        match &self.names {
            Some(names) => names.shown(stored).map(Cow::Owned),
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
        self.manifest.as_ref().map(|manifest| manifest.number)
    }

    /// Whether there are indexes.
    #[must_use]
    pub fn has_indexes(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| !manifest.indexes.is_empty())
    }

    /// The indexes and how much of this snapshot they cover.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        manifest.indexes.iter().map(|index| self.index_info(manifest, index)).collect()
    }

    /// The columns of each index of one of these kinds.
    #[must_use]
    pub fn columns_of_kinds(&self, kinds: &[Kind]) -> Vec<Vec<String>> {
        let indexes = self.manifest.iter().flat_map(|manifest| &manifest.indexes);
        let kept = indexes.filter(|index| Kind::of(index).is_some_and(|kind| kinds.contains(&kind)));
        kept.map(|index| self.shown_columns(index)).collect()
    }

    /// The columns of an index, as the table shows them.
    fn shown_columns(&self, index: &ManifestIndex) -> Vec<String> {
        let shown = self.shown_name(&index.column).unwrap_or(Cow::Borrowed(&index.column));
        column::columns(&shown).map(|column| self.shown_text(column)).collect()
    }

    fn index_info(&self, manifest: &Manifest, index: &ManifestIndex) -> IndexInfo {
        let segments: Vec<_> = manifest.segments.iter().filter(|segment| segment.index_id == index.id).collect();
        let covered: HashSet<u32> = segments.iter().flat_map(|segment| segment.files.iter().copied()).collect();
        let usable = self.is_usable(index);
        let known = self.marks.iter().filter(|mark| usable && !mark.doubtful).filter_map(|mark| mark.ordinal);
        let fresh = known.filter(|ordinal| covered.contains(ordinal));
        let (mut files_covered, mut rows) = (0, 0);
        for ordinal in fresh {
            files_covered += 1;
            rows += manifest.files.get(ordinal as usize).map_or(0, ManifestFile::rows);
        }
        let files_total = self.files.len() as u64;
        let data_type = self.stored_field(&index.column).map(|field| field.data_type().to_string());
        let shown = self.shown_name(&index.column).unwrap_or(Cow::Borrowed(&index.column));
        let recorded = Recorded::of(index);
        IndexInfo {
            name: index.name.clone(),
            kind: index.kind.clone(),
            encoding: index.encoding.clone(),
            column: self.shown_text(&shown),
            columns: self.shown_columns(index),
            data_type: data_type.unwrap_or_else(|| "gone".to_owned()),
            chosen_by: if is_chosen_by_auto(index) { "auto" } else { "user" }.to_owned(),
            predicted_bytes: recorded.bytes_of(rows),
            reason: recorded.reason,
            options: index.options.iter().filter(|(name, _)| !is_record(name)).cloned().collect(),
            files_covered,
            files_total,
            coverage: if files_total == 0 { 1.0 } else { files_covered as f64 / files_total as f64 },
            segments: segments.len() as u64,
            bytes: segments.iter().map(|segment| segment.length).sum(),
            rows,
        }
    }

    /// The indexes that can answer tests of `column`, as it is typed now: first those that know every row, and of the others those
    /// that know the smaller zones.
    pub(crate) fn indexes_of(&self, column: &str) -> Vec<&ManifestIndex> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        let stored = self.stored_name(column);
        let usable = manifest.indexes.iter().filter(|index| index.column == stored && self.is_usable(index));
        let mut found: Vec<&ManifestIndex> = usable.collect();
        found.sort_by_key(|index| match Kind::of(index) {
            Some(kind) if kind.is_exact() => 0,
            Some(Kind::BloomTree) => 1,
            _ => 2,
        });
        found
    }

    /// Whether something may be known of conditions on a column: it is one of the partition columns, or an index is on it.
    #[must_use]
    pub fn is_marked(&self, column: &str) -> bool {
        self.partition_columns.iter().any(|field| field.name() == column)
            || !self.indexes_of(column).is_empty()
            || self.begins_composite(column)
    }

    /// Whether an index over several columns begins with this one: of others alone it knows nothing.
    fn begins_composite(&self, column: &str) -> bool {
        let stored = self.stored_name(column);
        let is_over = |index: &ManifestIndex| {
            column::is_composite(&index.column) && column::columns(&index.column).next() == Some(&stored)
        };
        let mut indexes = self.manifest.iter().flat_map(|manifest| &manifest.indexes);
        indexes.any(|index| is_over(index) && self.is_usable(index))
    }

    /// Whether an index that is made to find single values, of the kind `key`, `bloom_tree` or `summary`, is on a column or begins with it.
    #[must_use]
    pub fn finds_keys(&self, column: &str) -> bool {
        let stored = self.stored_name(column);
        let begins = |index: &ManifestIndex| column::columns(&index.column).next() == Some(stored.as_ref());
        let made_for_it = |index: &ManifestIndex| Kind::of(index) != Some(Kind::Bitmap) && self.is_usable(index);
        let mut indexes = self.manifest.iter().flat_map(|manifest| &manifest.indexes);
        indexes.any(|index| begins(index) && made_for_it(index))
    }

    /// Those of them that know every row.
    pub(crate) fn exact_indexes_of(&self, column: &str) -> Vec<&ManifestIndex> {
        let mut found = self.indexes_of(column);
        found.retain(|index| Kind::of(index).is_some_and(Kind::is_exact));
        found
    }

    /// Whether the index is of a kind that is known and of a column that the table has now, with the type that it has now.
    pub(crate) fn is_usable(&self, index: &ManifestIndex) -> bool {
        Kind::of(index).is_some()
            && self.stored_field(&index.column).and_then(|field| key_type_of_field(&field)).as_ref()
                == Some(&index.key_type)
    }

    /// Finds the rows for which `predicate` is or may be true. Marks that are missing, stale or damaged never fail it.
    pub fn probe<'a>(&'a self, predicate: &'a Predicate, options: &'a ProbeOptions) -> BoxFuture<'a, Result<Probe>> {
        Box::pin(probe::probe(self, predicate, options))
    }
}

/// Whether migrations put data files into the store.
fn has_moved(updates: &ManifestUpdates) -> bool {
    !updates.replaced.is_empty() || !updates.data.is_empty()
}

/// The last snapshot of a table's own files, and what was listed for it. While the listing and the manifest are the same, so is all that follows
/// from them: files are matched with the manifest once.
#[derive(Debug, Default)]
pub(crate) struct ListedSnapshot(Mutex<Option<Arc<Listed>>>);

#[derive(Debug)]
struct Listed {
    /// In the order of the listing.
    files: Vec<ObjectMeta>,
    snapshot: Snapshot,
}

impl ListedSnapshot {
    /// The snapshot of these files, as they were listed, and this manifest.
    fn get(&self, files: &[ListedFile], manifest: Option<&Arc<Manifest>>) -> Option<Snapshot> {
        let last = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?);
        let Listed { files: listed, snapshot } = last.as_ref();
        let same_marks = match (manifest, &snapshot.manifest) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        };
        (same_marks && files.iter().map(|file| &file.meta).eq(listed)).then(|| snapshot.clone())
    }

    fn insert(&self, files: Vec<ObjectMeta>, snapshot: &Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::new(Listed { files, snapshot: snapshot.clone() }));
    }
}

/// The data files of a table of Parquet files, as migrations and publications have left them, but for later publications.
pub(crate) async fn listing_of(
    table: &Table,
    updates: Option<&ManifestUpdates>,
    later: &[&ManifestPublication],
    files: Vec<ListedFile>,
) -> Result<Listing> {
    match (updates, table.store.as_ref()) {
        (Some(updates), Some(store)) if has_moved(updates) || !later.is_empty() => {
            Listing::migrated(files, store, updates, later).await
        }
        _ => Listing::of(&table.location, files),
    }
}

/// The newest manifest and a version of the Delta table that go together: no migration began after the manifest was read, so that the
/// version has nothing that is later than what the manifest and its log say is pending.
async fn newest_delta(table: &Table) -> Result<(Option<Arc<Manifest>>, DeltaState)> {
    let migrations = |manifest: &Option<Arc<Manifest>>| Some(manifest.as_ref()?.updates.as_ref()?.migrations);
    let mut manifest = newest_manifest(table).await?;
    loop {
        let state = DeltaState::read(&table.location).await?;
        if manifest.as_ref().is_none_or(|manifest| manifest.updates.is_none()) {
            return Ok((manifest, state));
        }
        let now = newest_manifest(table).await?;
        if migrations(&now) == migrations(&manifest) {
            return Ok((manifest, state));
        }
        manifest = now;
    }
}

/// Whether the log of a Delta table has the migration that the manifest names.
async fn is_folded(state: &DeltaState, manifest: Option<&Manifest>) -> Result<bool> {
    let Some(manifest) = manifest else { return Ok(false) };
    let migration = manifest.updates.as_ref().and_then(|updates| updates.migration.as_ref());
    let Some(migration) = migration else { return Ok(false) };
    let version = state.application_version(&application(manifest.store_id)).await?;
    Ok(version.and_then(|version| u64::try_from(version).ok()).is_some_and(|version| version >= migration.number))
}

/// The schema of a file by the names that its columns show.
fn shown_schema(names: Option<&ColumnNames>, stored: &SchemaRef) -> SchemaRef {
    names.map_or_else(|| Arc::clone(stored), |names| names.shown_schema(stored))
}

/// Law 5: marks that cannot be read are as good as none. Pending updates are data: without a manifest to tell what they are, nothing is read.
pub(crate) async fn newest_manifest(table: &Table) -> Result<Option<Arc<Manifest>>> {
    let Some(store) = table.store.as_ref() else { return Ok(None) };
    let newest = match store.newest().await {
        Ok(newest) => newest.manifest,
        Err(error) => Err(error),
    };
    let error = match newest {
        Ok(Some(manifest)) => return Ok(Some(manifest)),
        Ok(None) if !store.is_local() || !store.has_updates().await? => return Ok(None),
        Ok(None) => None,
        // Where not even that can be told, reading goes on as it does without a store.
        Err(error) if !store.has_updates().await.unwrap_or(false) => {
            tracing::warn!(reason = "segment_corrupt", store = store.text(), %error, "the marks are not used");
            return Ok(None);
        }
        Err(error) => Some(error),
    };
    let lost = Error::corrupt(format!(
        "the store {} has pending updates and no manifest that can be read to tell what they are: restore its folder `manifest`; \
         without the folder `updates` the table is read as its data files are",
        store.text()
    ));
    Err(match error {
        Some(error) => lost.with_source(error),
        None => lost,
    })
}

/// Finds every data file in the manifest by path and size.
fn match_manifest(files: &mut [DataFile], manifest: Option<&Manifest>) -> Result<Vec<FileMarks>> {
    let Some(manifest) = manifest else { return Ok(vec![FileMarks::default(); files.len()]) };
    let schemas = match manifest.schemas.iter().map(|bytes| schema::from_bytes(bytes)).collect::<Result<Vec<_>>>() {
        Ok(schemas) => schemas,
        Err(error) => {
            tracing::warn!(reason = "segment_corrupt", %error, "the marks are not used");
            return Ok(vec![FileMarks::default(); files.len()]);
        }
    };
    let known: HashMap<&str, (u32, &ManifestFile)> =
        (0..).zip(&manifest.files).map(|(ordinal, file)| (file.path.as_str(), (ordinal, file))).collect();
    let match_file = |file: &mut DataFile| {
        let Some((ordinal, have)) = known.get(file.path.as_str()) else { return FileMarks::default() };
        if have.size != file.meta.size {
            return FileMarks { changed: true, ..FileMarks::default() };
        }
        let same = match (&have.etag, &file.meta.e_tag) {
            (Some(have), Some(now)) => have == now,
            _ => have.modified_ns == modified_ns(&file.meta),
        };
        if !same {
            return FileMarks { ordinal: Some(*ordinal), doubtful: true, ..FileMarks::default() };
        }
        file.row_groups = Some(have.row_groups.clone());
        let schema = schemas.get(have.schema as usize).cloned();
        FileMarks { ordinal: Some(*ordinal), doubtful: false, changed: false, schema }
    };
    Ok(files.iter_mut().map(match_file).collect())
}

/// Reads the footers of the listed files, some at a time.
pub(crate) async fn read_shapes(
    table: &Table,
    files: &[DataFile],
    wanted: Vec<usize>,
) -> Result<Vec<(usize, FileShape)>> {
    let store = &table.location.object_store;
    stream::iter(wanted.into_iter().filter(|&file| file < files.len()))
        .map(|file| async move {
            let Some(data_file) = files.get(file) else { return Err(Error::internal("a file out of range")) };
            let shape = table.footers.shape(store.as_ref(), &data_file.meta, &data_file.path).await?;
            Ok((file, shape))
        })
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await
}
