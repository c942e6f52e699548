//! Rows that are in no data file yet, as a snapshot has them, and which of these rows a predicate may be true of.
//!
//! A run is in the order of keys, so that it has the keys of a predicate in few of its pages.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, Predicate, RowSet, RowSetBuilder, encode_literals};
use object_store::ObjectMeta;

/// Rows that are in no data file yet.
#[derive(Debug, Default)]
pub struct BufferedRows {
    /// Rows of runs.
    pub files: Vec<BufferedRun>,
    /// Rows in memory, with the columns of the table.
    pub batches: Vec<RecordBatch>,
    /// Bytes of runs that a scan may keep in memory.
    pub memory_bytes: u64,
    /// Bytes of a row group of a run, at most.
    pub row_group_bytes: u64,
}

/// Rows of a run.
#[derive(Clone, Debug)]
pub struct BufferedRun {
    /// Place within [`Snapshot::run_store`](super::Snapshot::run_store), and size.
    pub meta: ObjectMeta,
    /// Rows per row group.
    pub row_groups: Vec<u32>,
    /// The rows that count.
    pub rows: RowSet,
    /// Where the run's keys are, if that is known.
    pub(crate) keys: Option<Arc<KeyPages>>,
    /// The run as it was opened.
    pub(crate) run: OpenedRun,
}

impl BufferedRows {
    /// How many rows there are.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        let in_files: u64 = self.files.iter().map(|file| u64::from(file.rows.len())).sum();
        in_files + self.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>()
    }

    /// The rows for which a predicate may be true. Of a run, those in pages that may have the predicate's keys; all rows in memory.
    #[must_use]
    pub fn pruned(self: &Arc<Self>, predicate: &Predicate) -> Arc<Self> {
        if self.files.iter().all(|file| file.keys.is_none()) {
            return Arc::clone(self);
        }
        let predicate = predicate.clone().simplify();
        let columns: BTreeSet<&str> = self.files.iter().filter_map(BufferedRun::key_column).collect();
        let searched = columns.into_iter().map(|column| (column, predicate.keys_of(column)));
        let searched: BTreeMap<&str, KeyRanges> = searched.filter(|(_, keys)| *keys != KeyRanges::all()).collect();
        if searched.is_empty() {
            return Arc::clone(self);
        }
        let keys_of = |file: &BufferedRun| file.key_column().and_then(|column| searched.get(column));
        let files = self.files.iter().map(|file| file.narrowed(keys_of(file)));
        let files = files.filter(|file| !file.rows.is_empty()).collect();
        let Self { batches, memory_bytes, row_group_bytes, .. } = self.as_ref();
        let (memory_bytes, row_group_bytes) = (*memory_bytes, *row_group_bytes);
        Arc::new(Self { files, batches: batches.clone(), memory_bytes, row_group_bytes })
    }
}

impl BufferedRun {
    /// The column of the table whose bounds its pages have.
    fn key_column(&self) -> Option<&str> {
        self.keys.as_ref().map(|pages| pages.column.as_str())
    }

    fn narrowed(&self, keys: Option<&KeyRanges>) -> Self {
        let (Some(keys), Some(pages)) = (keys, &self.keys) else { return self.clone() };
        let rows = self.rows.and(&pages.rows_with(keys, self.rows.universe()));
        Self { rows, ..self.clone() }
    }
}

/// The bounds of a page in the first column of the key.
#[derive(Debug)]
struct KeyPage {
    rows: Range<u32>,
    /// The least key of the rows.
    low: Key,
    /// The greatest one.
    high: Key,
}

/// The bounds of a run's pages in the first column of its key.
#[derive(Debug)]
pub(crate) struct KeyPages {
    column: String,
    pages: Vec<KeyPage>,
    /// Whether neither ever falls, as both may where bounds of texts are cut.
    ascend: bool,
}

impl KeyPages {
    /// The pages of a run by their rows and bounds; none if there are not as many of each.
    pub(crate) fn new(column: &str, rows: Vec<Range<u32>>, low: &dyn Array, high: &dyn Array) -> Option<Self> {
        let (low, high) = (encode_literals(low)?, encode_literals(high)?);
        let is_whole = [low.len(), high.len()] == [rows.len(); 2];
        let ascend = low.is_sorted() && high.is_sorted();
        let pages = rows.into_iter().zip(low).zip(high).map(|((rows, low), high)| KeyPage { rows, low, high });
        is_whole.then(|| Self { column: column.to_owned(), pages: pages.collect(), ascend })
    }

    fn rows_with(&self, keys: &KeyRanges, universe: u32) -> RowSet {
        let mut rows = RowSetBuilder::new(universe);
        let met = self.within(keys).iter().filter(|page| keys.meets(&page.low, &page.high));
        met.for_each(|page| rows.insert_range(page.rows.clone()));
        rows.finish()
    }

    /// The pages from the first to the last that may have keys.
    fn within(&self, keys: &KeyRanges) -> &[KeyPage] {
        let (Some(first), Some(last)) = (keys.ranges().first(), keys.ranges().last()) else { return &[] };
        if !self.ascend {
            return &self.pages;
        }
        let from = self.pages.partition_point(|page| !first.begins_at_or_before(&page.high));
        let to = self.pages.partition_point(|page| !last.ends_before(&page.low));
        self.pages.get(from..to).unwrap_or_default()
    }
}

/// A run as the merged view has opened it. Only the code that opened it knows its type.
#[derive(Clone)]
pub(crate) struct OpenedRun(Arc<dyn Any + Send + Sync>);

impl OpenedRun {
    pub(crate) fn new<T: Any + Send + Sync>(run: Arc<T>) -> Self {
        Self(run)
    }

    /// The run, if it is of this type.
    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

impl fmt::Debug for OpenedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedRun").finish_non_exhaustive()
    }
}
