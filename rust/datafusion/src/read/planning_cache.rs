//! What planning knows of the data files of a snapshot and keeps with it: the next scan of the same files looks none of them up by name.
//!
//! Statistics of single files belong to the session, which remembers as many as it has memory for. This module keeps where they are. It
//! keeps the statistics of all files together itself, column by column.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use lakemark_table::Snapshot;
use object_store::ObjectMeta;

use crate::expr::types::TextTypes;
use crate::read::access::{Pages, do_pages_matter};
use crate::read::reader::Footers;

/// The place of a data file in its snapshot, which a planned file carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePlace(pub(crate) usize);

/// What is known of the files of a snapshot, by their places in it.
#[derive(Default)]
pub(crate) struct PlanningCache {
    declared: Mutex<CachedStatistics>,
    views: Mutex<CachedStatistics>,
    pages: Mutex<HashMap<usize, Pages>>,
    /// About how many different values columns have, as far as an index says.
    distinct: Mutex<HashMap<String, Option<u64>>>,
}

/// The statistics of files whose texts have one type.
#[derive(Default)]
struct CachedStatistics {
    /// None for a file that was not looked up in the session yet.
    files: Vec<Option<Weak<Statistics>>>,
    joint: Option<JointStatistics>,
}

/// The statistics of all rows of all files, of the columns for which they were requested: columns of files, and those that folders are
/// named by.
struct JointStatistics {
    rows: Precision<usize>,
    bytes: Precision<usize>,
    columns: HashMap<usize, ColumnStatistics>,
}

impl PlanningCache {
    /// What is known of the files of this snapshot.
    pub(crate) fn of(snapshot: &Snapshot) -> Arc<Self> {
        snapshot.reader_cache()
    }

    fn statistics(&self, types: TextTypes) -> MutexGuard<'_, CachedStatistics> {
        let known = match types {
            TextTypes::Declared => &self.declared,
            TextTypes::Views => &self.views,
        };
        locked(known)
    }

    /// The statistics of these files, where a session still remembers them. The outer option is none for a file that was not looked up in
    /// the session yet.
    pub(crate) fn statistics_of(
        &self,
        types: TextTypes,
        places: impl Iterator<Item = usize>,
    ) -> Vec<Option<Option<Arc<Statistics>>>> {
        let known = self.statistics(types);
        places.map(|place| known.files.get(place)?.as_ref().map(Weak::upgrade)).collect()
    }

    /// Keeps where the statistics of a file are, or that the session has none.
    pub(crate) fn put_statistics(&self, types: TextTypes, place: usize, statistics: Option<&Arc<Statistics>>) {
        let mut known = self.statistics(types);
        if known.files.len() <= place {
            known.files.resize(place + 1, None);
        }
        if let Some(file) = known.files.get_mut(place) {
            *file = Some(statistics.map_or_else(Weak::new, Arc::downgrade));
        }
    }

    /// The statistics of all files together, of these columns; none if one of them was not requested before.
    pub(crate) fn joint(&self, types: TextTypes, columns: &[usize]) -> Option<Statistics> {
        let known = self.statistics(types);
        let joint = known.joint.as_ref()?;
        let found = columns.iter().map(|column| joint.columns.get(column).cloned());
        let column_statistics = found.collect::<Option<_>>()?;
        Some(Statistics { num_rows: joint.rows, total_byte_size: joint.bytes, column_statistics })
    }

    /// Keeps the statistics of all files together, of these columns.
    pub(crate) fn put_joint(&self, types: TextTypes, columns: &[usize], found: &Statistics) {
        let mut known = self.statistics(types);
        let joint = known.joint.get_or_insert_with(|| JointStatistics {
            rows: found.num_rows,
            bytes: found.total_byte_size,
            columns: HashMap::new(),
        });
        joint.columns.extend(columns.iter().copied().zip(found.column_statistics.iter().cloned()));
    }

    /// Whether the pages of a file of these row groups have an index, where that matters. They count as unindexed while the file's footer
    /// was not read.
    pub(crate) fn pages_of(&self, place: usize, meta: &ObjectMeta, row_groups: &[u32], footers: &Footers) -> Pages {
        if !do_pages_matter(row_groups) {
            return Pages::Unindexed;
        }
        let known = locked(&self.pages).get(&place).copied();
        if let Some(pages) = known {
            return pages;
        }
        let Some(pages) = footers.pages_of(meta) else { return Pages::Unindexed };
        self.put_pages(place, pages);
        pages
    }

    /// Whether the footer of a file was read, which says whether its pages have an index.
    pub(crate) fn has_pages(&self, place: usize) -> bool {
        locked(&self.pages).contains_key(&place)
    }

    /// Keeps whether the pages of a file have an index.
    pub(crate) fn put_pages(&self, place: usize, pages: Pages) {
        locked(&self.pages).insert(place, pages);
    }

    /// About how many different values a column has. The outer option is none if that was not looked up before.
    pub(crate) fn distinct_of(&self, column: &str) -> Option<Option<u64>> {
        locked(&self.distinct).get(column).copied()
    }

    /// Keeps about how many different values a column has.
    pub(crate) fn put_distinct(&self, column: &str, values: Option<u64>) {
        locked(&self.distinct).insert(column.to_owned(), values);
    }
}

fn locked<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
