//! Fewer rows to read than a scan planned, by what an index says of filters when the query runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileGroup, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use lakemark_index::RowSet;
use lakemark_table::{FileProbe, GroupCounts, Probe, ProbeReport, Snapshot, ValueCounts};

use super::covering::GivenRows;
use crate::exec::covered_rows::CoveredRows;
use crate::read::access::{FileAccess, ReadFile, selection, share};
use crate::read::planning_cache::{FilePlace, PlanningCache};
use crate::read::reader::Footers;

/// To read a row group with this share of its rows left out, or less, takes longer than to read all of it.
const LEAST_DROPPED: f64 = 1.0 / 64.0;

/// What is left of a file.
#[derive(Clone)]
struct RemainingRows {
    /// Its place in the snapshot.
    place: usize,
    /// Rows of each row group.
    row_groups: Arc<[u32]>,
    /// Rows that may pass.
    rows: Arc<RowSet>,
    /// The index gives the values of the other rows, so that none of these is read.
    is_index_only: bool,
}

/// Rows that may pass, by file.
pub(crate) struct PrunedScan {
    snapshot: Arc<Snapshot>,
    /// What is left of files by their places in the snapshot; none of files of which nothing is known. All others are ruled out.
    listed: HashMap<usize, Option<RemainingRows>>,
    known: Arc<PlanningCache>,
    pub(crate) report: ProbeReport,
    /// Rows and row groups that were planned and are not read.
    pub(crate) rows: u64,
    pub(crate) row_groups: u64,
    /// Index-only values of the only column, each with the number of its rows, in place of rows that are not read.
    pub(crate) index_only: Vec<ValueCounts>,
    /// Rows that an index gives with the values of all columns, in place of reading them.
    pub(crate) covered: Option<CoveredRows>,
}

/// A file of the scan.
struct PlannedFile {
    /// What was planned to be read.
    plan: ParquetAccessPlan,
    /// What is left of it.
    kept: RemainingRows,
}

/// What is left of a file's plan.
struct PrunedPlan {
    /// What is read.
    plan: ParquetAccessPlan,
    /// Rows and row groups that were planned and are not read.
    rows: u64,
    row_groups: u64,
}

/// What is left of a row group's plan.
#[derive(Debug, PartialEq)]
struct PrunedGroup {
    /// What is read.
    access: RowGroupAccess,
    /// Rows that were planned and are not read.
    dropped: u64,
}

impl PrunedScan {
    /// A scan pruned to no row of any file; none if the row groups of some file are not known.
    pub(super) fn to_nothing(snapshot: &Arc<Snapshot>) -> Option<Self> {
        snapshot.has_all_row_groups().then(|| Self::of(snapshot, HashMap::new(), ProbeReport::default(), Vec::new()))
    }

    fn of(
        snapshot: &Arc<Snapshot>,
        listed: HashMap<usize, Option<RemainingRows>>,
        report: ProbeReport,
        index_only: Vec<ValueCounts>,
    ) -> Self {
        let (snapshot, known) = (Arc::clone(snapshot), PlanningCache::of(snapshot));
        Self { snapshot, listed, known, report, rows: 0, row_groups: 0, index_only, covered: None }
    }

    /// A scan pruned to the rows that a probe leaves; none if the probe knows no file. Exact rows whose values are index-only are not read.
    /// Counts say nothing of rows to be rechecked.
    pub(super) fn to(snapshot: &Arc<Snapshot>, probe: Probe, index_only: Option<GroupCounts>) -> Option<Self> {
        let GroupCounts { answered, parts, index_reads, index_bytes_read } = index_only.unwrap_or_default();
        let left = |(place, found): (usize, &FileProbe)| {
            let FileProbe::Known { row_groups, exact, recheck } = found else { return (place, None) };
            let is_index_only = answered.contains(place);
            let rows = if is_index_only { recheck.clone() } else { exact.or(recheck) };
            // A file that is ruled out as a whole has no row groups.
            let ruled_out = row_groups.is_empty().then(|| ruled_out(snapshot, place)).flatten();
            let row_groups = row_groups.as_slice().into();
            let left = RemainingRows { place, row_groups, rows: Arc::new(rows), is_index_only };
            (place, Some(ruled_out.unwrap_or(left)))
        };
        let listed: HashMap<usize, Option<RemainingRows>> = probe.files.listed().map(left).collect();
        let is_known = listed.len() < snapshot.files().len() || listed.values().any(Option::is_some);
        let mut report = probe.report;
        report.index_reads += index_reads;
        report.index_bytes_read += index_bytes_read;
        is_known.then(|| Self::of(snapshot, listed, report, parts))
    }

    /// The same with index-only values in place of rows, and the report of what they took to read.
    pub(super) fn with_index_only(self, index_only: Vec<ValueCounts>, report: ProbeReport) -> Self {
        Self { report, index_only, ..self }
    }

    /// The same without rows that an index gave with their values.
    pub(super) fn with_given(mut self, given: GivenRows) -> Self {
        for (place, rows) in &given.files {
            if let Some(Some(left)) = self.listed.get_mut(place) {
                left.rows = Arc::new(left.rows.minus(rows));
                left.is_index_only = true;
            }
        }
        self.report.index_reads += given.index_reads;
        self.report.index_bytes_read += given.index_bytes_read;
        Self { covered: Some(given.rows), ..self }
    }

    /// The same scan of fewer rows, which as many partitions share evenly.
    pub(crate) fn apply(&mut self, plan: &Arc<dyn ExecutionPlan>, footers: &Footers) -> Result<Arc<dyn ExecutionPlan>> {
        if let [child] = plan.children().as_slice() {
            let below = self.apply(child, footers)?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            return Arc::clone(plan).replace_children(vec![below], options);
        }
        let (config, _) = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>)
            .ok_or_else(|| internal_datafusion_err!("{} is no scan of Parquet files", plan.name()))?;
        let mut pruned = config.clone();
        pruned.file_groups = self.groups(std::mem::take(&mut pruned.file_groups), footers);
        Ok(DataSourceExec::from_data_source(pruned))
    }

    /// What is left of files, in as many groups. Files of which nothing is known stay in theirs.
    fn groups(&mut self, groups: Vec<FileGroup>, footers: &Footers) -> Vec<FileGroup> {
        let partitions = groups.len().max(1);
        let (mut others, mut left, mut ranged) = (Vec::with_capacity(partitions), Vec::new(), HashSet::new());
        for group in groups {
            let mut own = Vec::new();
            for mut file in group.into_inner() {
                let Some(PlannedFile { plan, kept }) = self.planned(&file) else {
                    own.push(file);
                    continue;
                };
                // A file that is cut into byte ranges comes once for each of them, with the same rows.
                if file.range.take().is_none() || ranged.insert(file.object_meta.location.clone()) {
                    let pruned = pruned(plan, &kept);
                    self.rows += pruned.rows;
                    self.row_groups += pruned.row_groups;
                    let pages = self.known.pages_of(kept.place, &file.object_meta, &kept.row_groups, footers);
                    let access = FileAccess { plan: pruned.plan, row_groups: kept.row_groups, pages };
                    left.push(ReadFile { file, access });
                }
            }
            others.push(own);
        }
        let mut shared = share(left, partitions).into_iter();
        let with_share = |own: Vec<PartitionedFile>| {
            let share = shared.next().map(FileGroup::into_inner).unwrap_or_default();
            FileGroup::new(own.into_iter().chain(share).collect())
        };
        others.into_iter().map(with_share).collect()
    }

    /// What was planned to be read of a file, and what is left of it; none if nothing is known of it.
    fn planned(&self, file: &PartitionedFile) -> Option<PlannedFile> {
        let FilePlace(place) = *file.extension::<FilePlace>()?;
        let kept = match self.listed.get(&place) {
            Some(listed) => listed.clone()?,
            None => ruled_out(&self.snapshot, place)?,
        };
        let plan = match file.extension::<ParquetAccessPlan>() {
            Some(plan) => (plan.len() == kept.row_groups.len()).then(|| plan.clone())?,
            None => ParquetAccessPlan::new_all(kept.row_groups.len()),
        };
        Some(PlannedFile { plan, kept })
    }
}

/// What is left of a file that is ruled out: no row. None if its row groups are not known.
fn ruled_out(snapshot: &Snapshot, place: usize) -> Option<RemainingRows> {
    let row_groups: Arc<[u32]> = snapshot.files().get(place)?.row_groups.as_deref()?.into();
    let rows = Arc::new(RowSet::empty(row_groups.iter().copied().fold(0, u32::saturating_add)));
    Some(RemainingRows { place, row_groups, rows, is_index_only: true })
}

/// What is left of a plan by these rows.
fn pruned(planned: ParquetAccessPlan, kept: &RemainingRows) -> PrunedPlan {
    let mut left = Vec::with_capacity(kept.row_groups.len());
    let (mut rows, mut groups, mut start) = (0, 0, 0u32);
    for (access, length) in planned.into_inner().into_iter().zip(kept.row_groups.iter()) {
        let end = start.saturating_add(*length);
        let of_group = kept.rows.slice(start, end);
        // Nobody has to leave these rows out: whoever has the filter does.
        let is_worth = kept.is_index_only || (*length - of_group.len()) as f64 >= f64::from(*length) * LEAST_DROPPED;
        let part = if is_worth { intersect(access, &of_group) } else { PrunedGroup { access, dropped: 0 } };
        rows += part.dropped;
        groups += u64::from(part.access == RowGroupAccess::Skip && part.dropped > 0);
        left.push(part.access);
        start = end;
    }
    PrunedPlan { plan: ParquetAccessPlan::new(left), rows, row_groups: groups }
}

/// What is left of a row group.
fn intersect(access: RowGroupAccess, kept: &RowSet) -> PrunedGroup {
    let (planned, left) = match access {
        RowGroupAccess::Skip => return PrunedGroup { access: RowGroupAccess::Skip, dropped: 0 },
        RowGroupAccess::Scan if kept.is_full() => {
            return PrunedGroup { access: RowGroupAccess::Scan, dropped: 0 };
        }
        RowGroupAccess::Scan => (kept.universe() as usize, selection(kept)),
        RowGroupAccess::Selection(rows) => (rows.row_count(), rows.intersection(&selection(kept))),
    };
    let dropped = (planned - left.row_count()) as u64;
    let access = if left.selects_any() { RowGroupAccess::Selection(left) } else { RowGroupAccess::Skip };
    PrunedGroup { access, dropped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_rows_and_kept_rows_meet() {
        let kept = RowSet::from_rows(vec![1, 2, 8], 10);
        let left = |access, dropped| PrunedGroup { access, dropped };
        let selected = |rows: Vec<u32>| RowGroupAccess::Selection(selection(&RowSet::from_rows(rows, 10)));
        assert_eq!(intersect(selected(vec![2, 3, 4, 8]), &kept), left(selected(vec![2, 8]), 2));
        assert_eq!(intersect(RowGroupAccess::Scan, &kept), left(RowGroupAccess::Selection(selection(&kept)), 7));
        assert_eq!(intersect(RowGroupAccess::Scan, &RowSet::full(10)), left(RowGroupAccess::Scan, 0));
        assert_eq!(intersect(RowGroupAccess::Scan, &RowSet::empty(10)), left(RowGroupAccess::Skip, 10));
        assert_eq!(intersect(RowGroupAccess::Skip, &kept), left(RowGroupAccess::Skip, 0));
    }
}
