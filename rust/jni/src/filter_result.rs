//! What is known of a filter: rows of data files, and buffered rows.

use arrow::array::RecordBatch;
use lakemark_table::{BufferedRun, Probe, RowSet};

/// What is known of a filter.
#[derive(Debug)]
pub(crate) struct FilterResult {
    /// What the indexes say of the data files.
    pub(crate) files: Probe,
    /// Which buffered rows the filter selects.
    pub(crate) buffered: SelectedBuffer,
}

impl FilterResult {
    /// The number of rows for which the filter is true, if it is known exactly.
    pub(crate) fn exact_row_count(&self) -> Option<u64> {
        Some(self.files.exact_row_count()? + self.buffered.exact_row_count()?)
    }
}

/// The buffered rows that a filter selects, or may select.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelectedBuffer {
    /// Rows of runs.
    pub(crate) files: Vec<BufferedRun>,
    /// Rows in memory, with the columns of the table.
    pub(crate) batches: Vec<RecordBatch>,
    /// Whether the filter is true for each of them.
    pub(crate) is_exact: bool,
}

impl SelectedBuffer {
    /// How many rows are read.
    pub(crate) fn row_count(&self) -> u64 {
        let in_memory: u64 = self.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        in_memory + self.files.iter().map(|file| u64::from(file.rows.len())).sum::<u64>()
    }

    /// How many rows the filter selects, if that is known exactly.
    pub(crate) fn exact_row_count(&self) -> Option<u64> {
        self.is_exact.then(|| self.row_count())
    }
}

/// How many row groups of a file have a row that is read; `row_groups` has the rows of each of them.
pub(crate) fn row_groups_read(row_groups: &[u32], exact: &RowSet, recheck: &RowSet) -> usize {
    let mut start = 0;
    let is_read = |length: &&u32| {
        let from = start;
        start += **length;
        exact.count_in(from, start) + recheck.count_in(from, start) > 0
    };
    row_groups.iter().filter(is_read).count()
}
