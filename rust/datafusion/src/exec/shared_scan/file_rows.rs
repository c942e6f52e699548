//! The rows that a scan planned to read of a file: as its partitions read them, and as sets once another scan wants some of them.

use std::sync::{Arc, LazyLock, OnceLock};

use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use lakemark_index::{RowSet, RowSetBuilder};
use lakemark_table::guarded;
use object_store::ObjectMeta;
use parquet::arrow::arrow_reader::RowSelector;

use super::zone_maps::LazyZoneMaps;
use crate::read::access::{rows_of, selection};
use crate::read::reader::Footers;

/// What a scan planned to read of a file.
pub(super) struct FilePlan {
    pub(super) meta: ObjectMeta,
    /// What each partition reads.
    pub(super) accesses: Vec<ParquetAccessPlan>,
    /// Rows of each row group.
    pub(super) lengths: Vec<u32>,
}

/// The rows that a scan reads of a file.
pub(super) struct FileRows {
    plan: FilePlan,
    footers: Footers,
    zone_maps: Arc<LazyZoneMaps>,
    /// The rows of each row group that zone maps do not rule out, once somebody asked for those of one.
    needed: OnceLock<Vec<RowSet>>,
}

impl FileRows {
    /// None if a plan is for another file.
    pub(super) fn of(plan: FilePlan, footers: &Footers, zone_maps: &Arc<LazyZoneMaps>) -> Option<Self> {
        let fits = |(access, length): (&RowGroupAccess, &u32)| match access {
            RowGroupAccess::Skip | RowGroupAccess::Scan => true,
            RowGroupAccess::Selection(rows) => rows.row_count() + rows.skipped_row_count() <= *length as usize,
        };
        let is_whole = plan
            .accesses
            .iter()
            .all(|access| access.len() == plan.lengths.len() && access.inner().iter().zip(&plan.lengths).all(fits));
        let (footers, zone_maps) = (footers.clone(), Arc::clone(zone_maps));
        is_whole.then(|| Self { plan, footers, zone_maps, needed: OnceLock::new() })
    }

    /// How many row groups the file has.
    pub(super) fn row_groups(&self) -> usize {
        self.plan.lengths.len()
    }

    /// The row groups of which rows are read, and at most how many.
    pub(super) fn planned(&self) -> impl Iterator<Item = (usize, u32)> {
        let lengths = self.plan.lengths.iter().enumerate();
        let planned = lengths.map(move |(row_group, &length)| {
            let rows: u64 = self.parts(row_group).map(|access| rows_of(access, length)).sum();
            // Partitions that read parts of a file by its bytes read all of it.
            (row_group, u32::try_from(rows).unwrap_or(u32::MAX).min(length))
        });
        planned.filter(|(_, rows)| *rows > 0)
    }

    /// In how many runs the rows lie that are read of a row group.
    pub(super) fn runs(&self, row_group: usize) -> usize {
        let runs = |access: &RowGroupAccess| match access {
            RowGroupAccess::Skip => 0,
            RowGroupAccess::Scan => 1,
            RowGroupAccess::Selection(rows) => rows.iter().filter(|selector| !selector.skip).count(),
        };
        self.parts(row_group).map(runs).sum()
    }

    /// How a row group is read, as it was planned.
    pub(super) fn access(&self, row_group: usize) -> RowGroupAccess {
        let mut parts = self.parts(row_group);
        match (parts.next(), parts.next()) {
            (None, _) => RowGroupAccess::Skip,
            (Some(only), None) => only.clone(),
            (Some(_), Some(_)) => access_of(&self.union(row_group)),
        }
    }

    /// The rows of a row group that zone maps do not rule out. No row where the reader panics at zone maps: whoever reads the row group alone
    /// has its error.
    pub(super) fn needed(&self, row_group: usize) -> RowSet {
        let needed = self.needed.get_or_init(|| guarded(|| self.pruned()).unwrap_or_default());
        needed.get(row_group).cloned().unwrap_or_else(|| RowSet::empty(self.length(row_group)))
    }

    fn pruned(&self) -> Vec<RowSet> {
        let planned: Vec<RowSet> = (0..self.row_groups()).map(|row_group| self.union(row_group)).collect();
        let (Some(zone_maps), Some(footer)) =
            (LazyLock::force(&self.zone_maps), self.footers.remembered(&self.plan.meta))
        else {
            return planned;
        };
        let plan = ParquetAccessPlan::new(planned.iter().map(access_of).collect());
        let pruned = zone_maps.pruned(plan, &footer, self.plan.meta.location.as_ref()).into_inner();
        let pruned = pruned.iter().zip(&self.plan.lengths).map(|(access, &length)| rows_of_access(access, length));
        pruned.collect::<Option<_>>().unwrap_or(planned)
    }

    /// The rows that all partitions together read of a row group.
    fn union(&self, row_group: usize) -> RowSet {
        let length = self.length(row_group);
        let parts = self.parts(row_group).filter_map(|access| rows_of_access(access, length));
        parts.fold(RowSet::empty(length), |all, part| if all.is_empty() { part } else { all.or(&part) })
    }

    /// What partitions read of a row group.
    fn parts(&self, row_group: usize) -> impl Iterator<Item = &RowGroupAccess> {
        let parts = self.plan.accesses.iter().filter_map(move |access| access.inner().get(row_group));
        parts.filter(|access| access.should_scan())
    }

    pub(super) fn length(&self, row_group: usize) -> u32 {
        self.plan.lengths.get(row_group).copied().unwrap_or_default()
    }
}

/// The rows that are read of a row group of so many; none if the access is not for this one.
fn rows_of_access(access: &RowGroupAccess, length: u32) -> Option<RowSet> {
    let selectors: Vec<RowSelector> = match access {
        RowGroupAccess::Skip => return Some(RowSet::empty(length)),
        RowGroupAccess::Scan => return Some(RowSet::full(length)),
        RowGroupAccess::Selection(rows) => rows.clone().into(),
    };
    let (mut rows, mut at) = (RowSetBuilder::new(length), 0u32);
    for selector in selectors {
        let end = u32::try_from(selector.row_count).ok().and_then(|count| at.checked_add(count))?;
        if end > length {
            return None;
        }
        if !selector.skip {
            rows.insert_range(at..end);
        }
        at = end;
    }
    Some(rows.finish())
}

/// How rows of a row group are read.
pub(super) fn access_of(rows: &RowSet) -> RowGroupAccess {
    if rows.is_empty() {
        RowGroupAccess::Skip
    } else if rows.is_full() {
        RowGroupAccess::Scan
    } else {
        RowGroupAccess::Selection(selection(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_accesses_are_the_same() {
        for rows in [vec![], (0..10).collect(), vec![0, 1, 5, 9], vec![3]] {
            let rows = RowSet::from_rows(rows, 10);
            assert_eq!(rows_of_access(&access_of(&rows), 10), Some(rows));
        }
        let all = RowSet::from_rows((0..9).collect(), 12);
        assert_eq!(rows_of_access(&access_of(&all), 10), None);
    }
}
