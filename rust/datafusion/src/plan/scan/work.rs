//! What has to be done with the files of a snapshot, by what the probe says of each: counted, read as they are, or read with the predicate.

use datafusion::common::{Result, exec_datafusion_err};
use futures::{StreamExt, TryStreamExt};
use lakemark_index::RowSet;
use lakemark_table::{BufferedRows, DataFile, FileProbe, FileProbes};
use object_store::ObjectMeta;

use super::Planner;
use crate::read::access::first_rows;
use crate::read::reader::CONCURRENT_FOOTERS;
use crate::read::statistics::SnapshotFile;

/// Rows of a file that are read.
pub(super) struct SelectedRows {
    /// Rows per row group of the file.
    pub(super) row_groups: Vec<u32>,
    /// Those to be read.
    pub(super) rows: RowSet,
}

impl SelectedRows {
    /// How many are read.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.rows.len())
    }
}

/// Rows to be read as they are.
pub(super) struct ExactRows<'a> {
    /// Where they are.
    pub(super) file: SnapshotFile<'a>,
    /// Which ones.
    pub(super) chosen: SelectedRows,
}

/// A file to be read with the predicate.
pub(super) struct RecheckedFile<'a> {
    /// The file.
    pub(super) file: SnapshotFile<'a>,
    /// The rows to read; all where none are given.
    pub(super) chosen: Option<SelectedRows>,
}

impl RecheckedFile<'_> {
    /// The rows to be read; none if that is all of them.
    pub(super) fn rows(&self) -> Option<&RowSet> {
        self.chosen.as_ref().map(|chosen| &chosen.rows)
    }
}

/// The files of a snapshot, by what has to be done with them.
#[derive(Default)]
pub(super) struct ScanWork<'a> {
    /// Rows of which only the number matters.
    pub(super) counted: u64,
    /// Rows that an index gave with their values.
    pub(super) covered: u64,
    /// Rows to be read as they are.
    pub(super) exact: Vec<ExactRows<'a>>,
    /// Files to be read with the predicate.
    pub(super) recheck: Vec<RecheckedFile<'a>>,
    /// Buffered rows, to be read with the predicate.
    pub(super) buffered: Option<&'a BufferedRows>,
}

impl ScanWork<'_> {
    /// The number of rows of data files that are in the answer for sure.
    pub(super) fn exact_rows(&self) -> u64 {
        self.counted + self.covered + self.exact.iter().map(|rows| rows.chosen.count()).sum::<u64>()
    }

    /// The most rows that are in the answer: all that a test of the predicate may pass. None if a file is read whose rows are not counted.
    pub(super) fn most_rows(&self) -> Option<u64> {
        let of_file = |part: &RecheckedFile<'_>| Some(part.chosen.as_ref()?.count());
        let rechecked = self.recheck.iter().map(of_file).sum::<Option<u64>>()?;
        Some(self.exact_rows() + rechecked + self.buffered.map_or(0, BufferedRows::row_count))
    }

    /// Any `limit` rows are an answer. Exact rows come first, and the rest of the table is left alone if they suffice.
    pub(super) fn cut(&mut self, limit: u64) {
        self.counted = self.counted.min(limit);
        let mut left = (limit - self.counted).saturating_sub(self.covered);
        for ExactRows { chosen, .. } in &mut self.exact {
            chosen.rows = first_rows(&chosen.rows, left);
            left -= chosen.count();
        }
        self.exact.retain(|rows| !rows.chosen.rows.is_empty());
        if left == 0 {
            self.recheck.clear();
            self.buffered = None;
        }
    }
}

impl<'a> Planner<'a> {
    /// Sorts the files out by what the probe says of each.
    pub(super) async fn sort_out<'p>(
        &self,
        probes: FileProbes,
        buffered: Option<&'p BufferedRows>,
    ) -> Result<ScanWork<'p>>
    where
        'a: 'p,
    {
        let count_only = self.output.fields().is_empty();
        let mut work = ScanWork { buffered, ..ScanWork::default() };
        let mut unknown = Vec::new();
        // Of files that are not listed no row is selected.
        for (place, probe) in probes.into_listed() {
            let Some(file) = self.request.snapshot.files().get(place) else { continue };
            let file = SnapshotFile { place, file };
            match probe {
                FileProbe::Counted { rows } if count_only => work.counted += rows,
                // Counts were not requested, so that there are none; if there were, they would be of no use.
                FileProbe::Counted { .. } | FileProbe::Unknown => unknown.push(file),
                FileProbe::Known { row_groups, exact, recheck } => {
                    if !recheck.is_empty() {
                        let chosen = Some(SelectedRows { row_groups: row_groups.clone(), rows: recheck });
                        work.recheck.push(RecheckedFile { file, chosen });
                    }
                    if count_only {
                        work.counted += u64::from(exact.len());
                    } else if !exact.is_empty() {
                        work.exact.push(ExactRows { file, chosen: SelectedRows { row_groups, rows: exact } });
                    }
                }
            }
        }
        let count_whole = count_only && self.predicate.is_none();
        let footers = self.footers_of(&unknown, count_whole).await?;
        for (file, row_groups) in unknown.into_iter().zip(footers) {
            let Some(row_groups) = row_groups else {
                work.recheck.push(RecheckedFile { file, chosen: None });
                continue;
            };
            let live = live_rows(&file, &row_groups)?;
            if count_whole {
                work.counted += u64::from(live.len());
            } else if !live.is_empty() {
                work.recheck.push(RecheckedFile { file, chosen: Some(SelectedRows { row_groups, rows: live }) });
            }
        }
        Ok(work)
    }

    /// Row groups of files about which nothing is known, where they are needed: to take deleted
    /// rows out, or to count.
    async fn footers_of(&self, files: &[SnapshotFile<'_>], all: bool) -> Result<Vec<Option<Vec<u32>>>> {
        let wanted: Vec<Option<ObjectMeta>> =
            files.iter().map(|file| (all || file.deleted.is_some()).then(|| file.meta.clone())).collect();
        futures::stream::iter(wanted.into_iter().map(|meta| async move {
            match meta {
                None => Ok(None),
                Some(meta) => self.footers.row_groups(&meta).await.map(Some),
            }
        }))
        .buffered(CONCURRENT_FOOTERS)
        .try_collect()
        .await
    }
}

/// Every row that is not deleted.
pub(super) fn live_rows(file: &DataFile, row_groups: &[u32]) -> Result<RowSet> {
    let rows = row_groups
        .iter()
        .try_fold(0u32, |sum, &rows| sum.checked_add(rows))
        .ok_or_else(|| exec_datafusion_err!("{} has more than {} rows", file.path, u32::MAX))?;
    let all = RowSet::full(rows);
    match &file.deleted {
        None => Ok(all),
        Some(deleted) if deleted.universe() == rows => Ok(all.minus(deleted)),
        // A vector over fewer or more rows than the file has: the rows beyond are not deleted.
        Some(deleted) => Ok(all.minus(&RowSet::from_rows(deleted.iter().collect(), rows))),
    }
}
