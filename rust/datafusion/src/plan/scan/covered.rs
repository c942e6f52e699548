//! Exact rows that an index has with the values of all columns of the output: they are given at once, and their files are not read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use datafusion::common::Result;
use lakemark_index::RowSet;
use lakemark_table::{CoverRequest, CoveredFile, CoveredValues, RowsOfFile};

use super::Planner;
use super::work::ScanWork;
use crate::exec::covered_rows::CoveredRows;

/// What an index gave for a scan.
pub(super) struct CoveredScan {
    pub(super) rows: CoveredRows,
    /// The name of the index.
    pub(super) index: String,
    /// Reads of the index, and their bytes.
    pub(super) index_reads: u64,
    pub(super) index_bytes_read: u64,
}

impl Planner<'_> {
    /// Takes the exact rows out of the work whose values an index has. Those of keys with many rows or long values stay, and those of files
    /// that it does not cover.
    pub(super) async fn covered(&self, work: &mut ScanWork<'_>) -> Result<Option<CoveredScan>> {
        let (Some(predicate), snapshot) = (self.request.predicate, self.request.snapshot) else { return Ok(None) };
        if self.output.fields().is_empty() || work.exact.is_empty() || !snapshot.has_covering_index() {
            return Ok(None);
        }
        let columns = self.output.fields().iter().map(|field| field.name().clone()).collect();
        let rows = work.exact.iter().map(|part| RowsOfFile { file: part.file.place, rows: &part.chosen.rows });
        let request = CoverRequest { predicate, columns, rows: rows.collect() };
        let found = snapshot.covered_rows(&request).await;
        drop(request);
        let Some(found) = found else { return Ok(None) };
        let CoveredValues { index, columns, files, rows, index_reads, index_bytes_read } = found;
        let types = self.output.fields().iter().map(|field| field.data_type());
        let columns = columns.iter().zip(types).map(|(values, of)| cast(values, of)).collect::<Result<Vec<_>, _>>();
        // Values that are none of the output's are left to be read.
        let Some(batch) = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.output), columns)).ok()
        else {
            return Ok(None);
        };
        let held = CoveredRows::try_new(batch, files.into(), self.state.config().batch_size())?;
        work.leave_out(rows);
        work.covered = held.count();
        Ok(Some(CoveredScan { rows: held, index, index_reads, index_bytes_read }))
    }
}

impl ScanWork<'_> {
    /// Leaves exact rows out that are given already.
    fn leave_out(&mut self, given: Vec<CoveredFile>) {
        let given: HashMap<usize, RowSet> = given.into_iter().map(|of_file| (of_file.file, of_file.rows)).collect();
        for part in &mut self.exact {
            if let Some(rows) = given.get(&part.file.place) {
                part.chosen.rows = part.chosen.rows.minus(rows);
            }
        }
        self.exact.retain(|part| !part.chosen.rows.is_empty());
    }
}
