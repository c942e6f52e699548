//! A sorted run of buffered changes: a run on the disk, or the buffer in memory. Each has at most one change for a key, in the order of
//! keys. What a newer run says of a key replaces what older ones say.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::Rows;
use lakemark_format::{KeyFilter, Operation};
use lakemark_index::RowSet;

use super::known_hits::{FilePositions, HitsOfFile, KnownHits};
use crate::error::{Error, Result};
use crate::files::file_version::FileVersion;
use crate::files::parted_list::PartedList;
use crate::snapshot::{DataFile, KeyPages};
use crate::updates::changes::rows::ChangeColumns;
use crate::updates::key::{KeyColumns, KeySet};
use crate::updates::lookup::fetch::OpenFile;

/// Rows of an older run that a newer one replaces.
#[derive(Clone, Debug)]
pub(crate) struct ReplacedInRun {
    /// The id of the older run.
    pub run: [u8; 16],
    /// Its rows.
    pub rows: Arc<RowSet>,
}

/// What the keys of migrated rows hit in a file.
struct MigratedPositions {
    /// The rows of the run.
    migrated: RowSet,
    /// The rows of the file.
    rows: Arc<RowSet>,
}

/// The pages of a run as they were requested last.
struct KnownPages {
    /// The type that the first key column had then.
    data_type: DataType,
    /// Where the keys are; none without bounds of pages.
    pages: Option<Arc<KeyPages>>,
}

/// Where the rows of a run are.
pub(crate) enum SortedRunRows {
    File(Box<OpenFile>),
    Memory(RecordBatch),
    /// Nowhere: only the positions that they were resolved to are of interest.
    None,
}

/// A run of changes, sorted by key.
pub(crate) struct SortedRun {
    /// The id of the run; of the buffer that of its log.
    pub id: [u8; 16],
    pub rows: SortedRunRows,
    /// Rows that are whole rows of the table.
    pub complete: RowSet,
    /// Rows that update some columns.
    pub partial: RowSet,
    /// A filter of its keys, if its run has one.
    pub filter: OnceLock<KeyFilter>,
    /// The keys of rows in memory as bytes, once somebody has read them.
    encoded: OnceLock<Rows>,
    hits: Mutex<KnownHits>,
    /// Of rows of the run that are in data files already: what their keys hit in a file.
    migrated: Mutex<HashMap<FileVersion, MigratedPositions>>,
    /// Where the keys of the run's pages are, by the type that its first key column had then.
    pages: Mutex<Option<KnownPages>>,
    /// Rows of older runs that this one replaces, by the ids of these runs.
    replaced: Mutex<HashMap<[u8; 16], Arc<RowSet>>>,
}

impl std::fmt::Debug for SortedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SortedRun").field("rows", &self.row_count()).finish_non_exhaustive()
    }
}

impl SortedRun {
    /// A run of these rows, of which nothing is resolved.
    pub(crate) fn new(id: [u8; 16], rows: SortedRunRows, whole: RowSet, partial: RowSet) -> Self {
        let (filter, encoded) = (OnceLock::new(), OnceLock::new());
        let (hits, migrated) = (Mutex::default(), Mutex::default());
        let (pages, replaced) = (Mutex::default(), Mutex::default());
        Self { id, rows, complete: whole, partial, filter, encoded, hits, migrated, pages, replaced }
    }

    /// A run in memory.
    pub(crate) fn in_memory(id: [u8; 16], changes: RecordBatch) -> Result<Self> {
        let said = ChangeColumns::of(&changes)?;
        let whole = said.rows_of(&[Operation::Insert, Operation::Upsert]);
        let partial = said.rows_of(&[Operation::Update]);
        Ok(Self::new(id, SortedRunRows::Memory(changes), whole, partial))
    }

    pub(crate) fn row_count(&self) -> u32 {
        self.complete.universe()
    }

    /// Where the keys are in these files, by their places. Files that have none of the keys are left out, and so are those that were not
    /// resolved.
    pub(crate) fn hits_among(&self, files: &PartedList<DataFile>) -> BTreeMap<usize, Arc<FilePositions>> {
        self.known().hits_among(files)
    }

    /// The places of those of these files that were not resolved.
    pub(crate) fn unresolved_among(&self, files: &PartedList<DataFile>) -> Vec<usize> {
        self.known().unresolved_among(files)
    }

    pub(crate) fn set_hits(&self, file: FileVersion, hits: FilePositions) -> Arc<FilePositions> {
        let hits = Arc::new(hits);
        self.known().set(file, Arc::clone(&hits));
        hits
    }

    /// From now on the files of this list are resolved: those of which no hits are known have none of the keys.
    pub(crate) fn set_resolved(&self, files: &PartedList<DataFile>) {
        self.known().set_resolved(files);
    }

    fn known(&self) -> MutexGuard<'_, KnownHits> {
        self.hits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of a file that these rows of the run hit, if the last request was about these rows.
    pub(crate) fn hits_of_migrated(&self, file: &FileVersion, migrated: &RowSet) -> Option<Arc<RowSet>> {
        let known = self.migrated.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(file).filter(|hit| hit.migrated == *migrated).map(|hit| Arc::clone(&hit.rows))
    }

    pub(crate) fn set_hits_of_migrated(&self, file: FileVersion, migrated: &RowSet, rows: RowSet) -> Arc<RowSet> {
        let rows = Arc::new(rows);
        let mut known = self.migrated.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(file, MigratedPositions { migrated: migrated.clone(), rows: Arc::clone(&rows) });
        rows
    }

    /// Where the keys are in all files that were resolved.
    pub(crate) fn all_hits(&self) -> Vec<HitsOfFile> {
        self.known().all(self.row_count())
    }

    /// Where the keys are in the files that have some of them.
    pub(crate) fn hits_with_rows(&self) -> Vec<HitsOfFile> {
        self.known().some()
    }

    /// Takes what another run of the same rows was resolved to. Rows that are `changed` since have other columns to be completed.
    pub(crate) fn take_resolved(&self, from: &Self, changed: &RowSet) {
        for HitsOfFile { file, hits } in from.hits_with_rows() {
            let hits = match changed.is_empty() {
                true => hits,
                false => Arc::new(FilePositions { completed: hits.completed.minus(changed), ..hits.as_ref().clone() }),
            };
            self.known().set(file, hits);
        }
        let resolved = from.known().resolved().cloned();
        resolved.iter().for_each(|files| self.set_resolved(files));
        let replaced = from.replaced.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).extend(replaced);
        if let Some(keys) = from.filter.get() {
            // The filter is set once, as the run is opened.
            drop(self.filter.set(keys.clone()));
        }
    }

    /// Where the keys of a file are, if its pages have bounds.
    pub(crate) fn pages(&self, key: &KeyColumns) -> Option<Arc<KeyPages>> {
        let (SortedRunRows::File(file), Some(name), Some(of)) = (&self.rows, key.names.first(), key.types.first())
        else {
            return None;
        };
        let mut known = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.data_type == *of) {
            return known.pages.clone();
        }
        // Bounds of floats leave NaN out.
        let bounds = if of.is_floating() { None } else { file.bounds(name, of) };
        let pages =
            bounds.and_then(|bounds| KeyPages::new(name, bounds.rows, bounds.low.as_ref(), bounds.high.as_ref()));
        let pages = pages.map(Arc::new);
        *known = Some(KnownPages { data_type: of.clone(), pages: pages.clone() });
        pages
    }

    /// Whether its rows are in the order of the key. Rows of a run are not where the type of the key has another order since.
    pub(crate) fn is_in_order(&self, key: &KeyColumns) -> bool {
        match &self.rows {
            SortedRunRows::File(file) => file.is_sorted_by(key),
            SortedRunRows::Memory(_) | SortedRunRows::None => true,
        }
    }

    /// Rows of an older run that this one replaces, if that was resolved.
    pub(crate) fn replaced(&self, older: &[u8; 16]) -> Option<Arc<RowSet>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).get(older).cloned()
    }

    /// Rows that it replaces in all older runs that it was resolved against.
    pub(crate) fn all_replaced(&self) -> Vec<ReplacedInRun> {
        let replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.iter().map(|(id, rows)| ReplacedInRun { run: *id, rows: Arc::clone(rows) }).collect()
    }

    pub(crate) fn set_replaced(&self, older: [u8; 16], rows: RowSet) -> Arc<RowSet> {
        let rows = Arc::new(rows);
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).insert(older, Arc::clone(&rows));
        rows
    }

    /// The rows at these positions as changes.
    pub(crate) async fn read(&self, schema: &SchemaRef, rows: &RowSet) -> Result<RecordBatch> {
        match &self.rows {
            SortedRunRows::File(file) => file.collect(schema, Some(rows)).await,
            SortedRunRows::Memory(batch) => {
                let rows = select_rows(batch, rows)?;
                let columns = schema.fields().iter().map(|field| rows.column_by_name(field.name()).cloned());
                let columns: Option<Vec<_>> = columns.collect();
                let columns = columns.ok_or_else(|| Error::internal("a run lacks a column"))?;
                crate::updates::changes::rows::batch(schema, columns, rows.num_rows())
            }
            SortedRunRows::None => Err(Error::internal("the rows of a run are nowhere")),
        }
    }

    /// The keys of these rows.
    pub(crate) async fn keys(&self, key: &KeyColumns, rows: &RowSet) -> Result<KeySet> {
        KeySet::of(key, self.read(&key.schema(), rows).await?.columns().to_vec())
    }

    /// The rows whose key is one of `keys`. A run is read only for keys that its filter has.
    pub(crate) async fn rows_with(&self, key: &KeyColumns, keys: &KeySet) -> Result<RowSet> {
        match &self.rows {
            SortedRunRows::File(file) => {
                let within = self.filter.get().and_then(|filter| keys.within(key, filter, self.row_count()));
                file.rows_with(key, within.as_ref().unwrap_or(keys), None).await
            }
            SortedRunRows::Memory(batch) => {
                let rows = match self.encoded.get() {
                    Some(rows) => rows,
                    None => {
                        let rows = key.encode(batch)?;
                        self.encoded.get_or_init(|| rows)
                    }
                };
                Ok(RowSet::from_rows(keys.positions_in(rows), self.row_count()))
            }
            SortedRunRows::None => Err(Error::internal("the rows of a run are nowhere")),
        }
    }
}

/// Some rows of a batch.
pub(crate) fn select_rows(batch: &RecordBatch, rows: &RowSet) -> Result<RecordBatch> {
    if rows.is_full() && rows.universe() as usize == batch.num_rows() {
        return Ok(batch.clone());
    }
    let places = arrow::array::UInt32Array::from_iter_values(rows.iter());
    take_record_batch(batch, &places)
        .map_err(|error| Error::internal("rows cannot be taken out of a batch").with_source(error))
}
