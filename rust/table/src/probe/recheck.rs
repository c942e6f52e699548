//! What a filter that is known only after a scan was planned leaves of the plan.
//!
//! Whoever brings the filter goes on applying it, such as a join that has read the keys of its other side. So any superset of the filter's
//! rows will do, and no row is exact because of the filter.

use lakemark_index::{RowSet, RowSetBuilder};

use super::{add_file, add_ruled_out};
use crate::report::ProbeReport;
use crate::snapshot::{DataFile, FileProbe, Probe, Snapshot};

impl Snapshot {
    /// What is left to read of `planned` when the rows of `later` are enough; both are probes of this snapshot. A row group that keeps more
    /// than half of its planned rows keeps all of them. Single rows cost more to step over than they save.
    #[must_use]
    pub fn with_runtime_filter(&self, planned: &Probe, later: &Probe) -> Probe {
        // A file that was ruled out stays so.
        let files = planned.files.map(|place, planned| match (self.files().get(place), later.files.get(place)) {
            (Some(file), Some(later)) => cut_file(file, planned, later),
            _ => planned.clone(),
        });
        let (before, after) = (&planned.report, &later.report);
        let mut report = ProbeReport {
            leaves: [before.leaves.as_slice(), &after.leaves].concat(),
            coverage: before.coverage.max(after.coverage),
            files_total: before.files_total,
            index_reads: before.index_reads + after.index_reads,
            index_bytes_read: before.index_bytes_read + after.index_bytes_read,
            seconds: before.seconds + after.seconds,
            ..ProbeReport::default()
        };
        add_ruled_out(&mut report, self, files.listed().map(|(place, _)| place));
        for (_, file) in files.listed() {
            let row_groups = match file {
                FileProbe::Known { row_groups, .. } => Some(row_groups.as_slice()),
                FileProbe::Unknown | FileProbe::Counted { .. } => None,
            };
            add_file(&mut report, file, row_groups);
        }
        Probe {
            files,
            buffered: planned.buffered.clone(),
            searches_skipped: planned.searches_skipped,
            skipped_selectivity: planned.skipped_selectivity,
            report,
        }
    }
}

fn cut_file(file: &DataFile, planned: &FileProbe, later: &FileProbe) -> FileProbe {
    let FileProbe::Known { row_groups, exact, recheck } = later else { return planned.clone() };
    let (kept, none) = (exact.or(recheck), RowSet::empty(exact.universe()));
    match planned {
        FileProbe::Counted { .. } => planned.clone(),
        FileProbe::Unknown if kept.is_empty() => {
            FileProbe::Known { row_groups: row_groups.clone(), exact: none.clone(), recheck: none }
        }
        FileProbe::Unknown => {
            let live = match &file.deleted {
                None => RowSet::full(kept.universe()),
                Some(deleted) if deleted.universe() == kept.universe() => deleted.not(),
                Some(_) => return FileProbe::Unknown,
            };
            FileProbe::Known { row_groups: row_groups.clone(), exact: none, recheck: left(row_groups, &live, &kept) }
        }
        FileProbe::Known { row_groups: of_plan, exact, recheck } => {
            let kept = match row_groups == of_plan {
                true => left(of_plan, &exact.or(recheck), &kept),
                // A file that is ruled out as a whole has no row groups.
                false if kept.is_empty() => RowSet::empty(exact.universe()),
                false => return planned.clone(),
            };
            let (exact, recheck) = (exact.and(&kept), recheck.and(&kept));
            FileProbe::Known { row_groups: of_plan.clone(), exact, recheck }
        }
    }
}

/// The planned rows that are kept, and all planned rows of row groups that keep most of them.
fn left(row_groups: &[u32], planned: &RowSet, kept: &RowSet) -> RowSet {
    let kept = planned.and(kept);
    let mut rows = RowSetBuilder::new(planned.universe());
    let mut start = 0;
    for length in row_groups {
        let end = start + length;
        let are_most = kept.count_in(start, end) > planned.count_in(start, end) / 2;
        let source = if are_most { planned } else { &kept };
        for range in source.slice(start, end).iter_ranges() {
            rows.insert_range(start + range.start..start + range.end);
        }
        start = end;
    }
    rows.finish()
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
