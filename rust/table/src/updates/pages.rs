//! Which pending rows may have keys that a predicate asks for: a run is in the order of keys, so that it has them in few of its pages.

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
        let pages = bounds.rows.into_iter().zip(low).zip(high).map(|((rows, low), high)| (rows, low, high));
        is_whole.then(|| Self { column: column.to_owned(), pages: pages.collect() })
    }

    fn rows_with(&self, keys: &KeyRanges, universe: u32) -> RowSet {
        let mut rows = RowSetBuilder::new(universe);
        let (Some(first), Some(last)) = (keys.ranges().first(), keys.ranges().last()) else { return rows.finish() };
        let from = self.pages.partition_point(|(_, _, high)| !first.begins_at_or_before(high));
        let behind = self.pages.iter().skip(from).take_while(|(_, low, _)| !last.ends_before(low));
        for (page, ..) in behind.filter(|(_, low, high)| keys.meets(low, high)) {
            rows.insert_range(page.clone());
        }
        rows.finish()
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
        let all = KeyRanges::all();
        let asked = self.files.iter().map(|file| file.keys.as_ref().map(|pages| predicate.keys_of(&pages.column)));
        let asked: Vec<Option<KeyRanges>> = asked.map(|keys| keys.filter(|keys| *keys != all)).collect();
        if asked.iter().all(Option::is_none) {
            return Arc::clone(self);
        }
        let files = self.files.iter().zip(asked).map(|(file, keys)| file.narrowed(keys.as_ref()));
        let files = files.filter(|file| !file.rows.is_empty()).collect();
        let Self { batches, memory_bytes, row_group_bytes, .. } = self.as_ref();
        let (memory_bytes, row_group_bytes) = (*memory_bytes, *row_group_bytes);
        Arc::new(Self { files, batches: batches.clone(), memory_bytes, row_group_bytes })
    }
}

impl PendingFile {
    fn narrowed(&self, keys: Option<&KeyRanges>) -> Self {
        let (Some(keys), Some(pages)) = (keys, &self.keys) else { return self.clone() };
        let rows = self.rows.and(&pages.rows_with(keys, self.rows.universe()));
        Self { meta: self.meta.clone(), row_groups: self.row_groups.clone(), rows, keys: Some(Arc::clone(pages)) }
    }
}
