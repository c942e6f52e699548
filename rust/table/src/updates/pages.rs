//! Which pending rows may have keys that a predicate asks for: a run is in the order of keys, so that it has them in few of its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, Predicate, RowSet, RowSetBuilder, encode_literals};

use super::fetch::OpenFile;
use super::overlay::{PendingFile, PendingRows};

/// The bounds of a run's pages in the first column of its key.
#[derive(Debug)]
pub(crate) struct KeyPages {
    column: String,
    /// Rows of a page, the least and the greatest key among them.
    pages: Vec<(Range<u32>, Key, Key)>,
    /// Whether neither ever falls, as both may where bounds of texts are cut.
    ascend: bool,
}

impl KeyPages {
    /// Those of a run; none if its bounds do not tell all, as those of floats, which leave NaN out.
    pub(crate) fn of(file: &OpenFile, column: &str, of: &DataType) -> Option<Self> {
        if of.is_floating() {
            return None;
        }
        let bounds = file.bounds(column, of)?;
        let (low, high) = (encode_literals(bounds.low.as_ref())?, encode_literals(bounds.high.as_ref())?);
        let is_whole = [low.len(), high.len()] == [bounds.rows.len(); 2];
        let ascend = low.is_sorted() && high.is_sorted();
        let pages = bounds.rows.into_iter().zip(low).zip(high).map(|((rows, low), high)| (rows, low, high));
        is_whole.then(|| Self { column: column.to_owned(), pages: pages.collect(), ascend })
    }

    fn rows_with(&self, keys: &KeyRanges, universe: u32) -> RowSet {
        let mut rows = RowSetBuilder::new(universe);
        let met = self.within(keys).iter().filter(|(_, low, high)| keys.meets(low, high));
        met.for_each(|(page, ..)| rows.insert_range(page.clone()));
        rows.finish()
    }

    /// The pages from the first to the last that may have keys.
    fn within(&self, keys: &KeyRanges) -> &[(Range<u32>, Key, Key)] {
        let (Some(first), Some(last)) = (keys.ranges().first(), keys.ranges().last()) else { return &[] };
        if !self.ascend {
            return &self.pages;
        }
        let from = self.pages.partition_point(|(_, _, high)| !first.begins_at_or_before(high));
        let to = self.pages.partition_point(|(_, low, _)| !last.ends_before(low));
        self.pages.get(from..to).unwrap_or_default()
    }
}

impl PendingRows {
    /// Those for which a predicate may be true: of runs, those in pages that may have its keys. All rows in memory.
    #[must_use]
    pub fn narrowed(self: &Arc<Self>, predicate: &Predicate) -> Arc<Self> {
        if self.files.iter().all(|file| file.keys.is_none()) {
            return Arc::clone(self);
        }
        let predicate = predicate.clone().simplify();
        let columns: BTreeSet<&str> = self.files.iter().filter_map(PendingFile::key_column).collect();
        let asked = columns.into_iter().map(|column| (column, predicate.keys_of(column)));
        let asked: BTreeMap<&str, KeyRanges> = asked.filter(|(_, keys)| *keys != KeyRanges::all()).collect();
        if asked.is_empty() {
            return Arc::clone(self);
        }
        let keys_of = |file: &PendingFile| file.key_column().and_then(|column| asked.get(column));
        let files = self.files.iter().map(|file| file.narrowed(keys_of(file)));
        let files = files.filter(|file| !file.rows.is_empty()).collect();
        let Self { batches, memory_bytes, row_group_bytes, .. } = self.as_ref();
        let (memory_bytes, row_group_bytes) = (*memory_bytes, *row_group_bytes);
        Arc::new(Self { files, batches: batches.clone(), memory_bytes, row_group_bytes })
    }
}

impl PendingFile {
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
