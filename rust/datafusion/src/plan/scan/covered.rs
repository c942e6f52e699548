//! Rows of which an index has all values that matter: nobody reads them in their files.
//!
//! ```text
//! exact rows             the columns of the output                       given
//! rows to be rechecked   the columns of the output and of the filter     tested by their values: given, or known to be in no answer
//! only their number      the columns of the filter                       tested by their values, and counted
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::Result;
use lakemark_index::{Predicate, RowSet};
use lakemark_table::{CoverRequest, CoveredFile, CoveredValues, ProbeReport, RowsOfFile};

use super::Planner;
use super::work::{RecheckedFile, ScanWork};
use crate::exec::covered_rows::{CoveredRows, ScanFilter};

/// Of more rows that are to be rechecked under a limit the first ones are read: these may be enough.
const MOST_LIMITED_ROWS: u64 = 1 << 10;

/// What an index gave for a scan.
pub(super) struct CoveredScan {
    /// The rows; none if only their number is wanted, or if none of them passes.
    pub(super) rows: Option<CoveredRows>,
    /// How many rows are given or counted.
    pub(super) count: u64,
    /// Of these the rows that were to be rechecked.
    pub(super) passing: u64,
    /// All rows that were to be rechecked, and were tested by their values.
    pub(super) tested: u64,
    /// The name of the index.
    pub(super) index: String,
    /// Reads of the index, and their bytes.
    pub(super) index_reads: u64,
    pub(super) index_bytes_read: u64,
}

impl CoveredScan {
    /// Enters what was read, and that rows were tested without being read.
    pub(super) fn enter(&self, report: &mut ProbeReport) {
        report.index_reads += self.index_reads;
        report.index_bytes_read += self.index_bytes_read;
        report.rows_rechecked = report.rows_rechecked.saturating_sub(self.tested);
        report.rows_exact += self.passing;
    }
}

/// What the requests of a scan gave until now.
#[derive(Default)]
struct Gathered {
    /// Of the output.
    batches: Vec<RecordBatch>,
    /// The place of the file of each row.
    files: Vec<usize>,
    /// The name of the index that was asked first.
    index: Option<String>,
    index_reads: u64,
    index_bytes_read: u64,
}

impl Gathered {
    fn add(&mut self, found: CoveredValues, rows: PassingRows) {
        self.batches.push(rows.batch);
        self.files.extend(rows.files);
        self.index.get_or_insert(found.index);
        self.index_reads += found.index_reads;
        self.index_bytes_read += found.index_bytes_read;
    }
}

/// Rows that pass, as the output has them.
struct PassingRows {
    batch: RecordBatch,
    /// The place of the file of each row.
    files: Vec<usize>,
}

impl Planner<'_> {
    /// Takes the rows out of the work that need not be read, as an index has their values. Those of keys with many rows or long values stay,
    /// and those of files that it does not cover.
    pub(super) async fn covered(&self, work: &mut ScanWork<'_>) -> Result<Option<CoveredScan>> {
        let Some(predicate) = self.request.predicate.filter(|_| self.request.snapshot.has_covering_index()) else {
            return Ok(None);
        };
        let mut gathered = Gathered::default();
        self.take_exact(predicate, work, &mut gathered).await;
        let exact = gathered.files.len();
        let tested = self.take_tested(predicate, work, &mut gathered).await?;
        let Gathered { batches, files, index, index_reads, index_bytes_read } = gathered;
        let Some(index) = index else { return Ok(None) };
        let count = files.len() as u64;
        let rows = if self.output.fields().is_empty() || files.is_empty() {
            work.counted += count;
            None
        } else {
            work.covered = count;
            let rows = concat_batches(&self.output, &batches)?;
            let rows = CoveredRows::try_new(rows, files.into(), self.state.config().batch_size())?;
            Some(rows.with_exact(exact))
        };
        let passing = count - exact as u64;
        Ok(Some(CoveredScan { rows, count, passing, tested, index, index_reads, index_bytes_read }))
    }

    /// Takes exact rows out of the work, with their values.
    async fn take_exact(&self, predicate: &Predicate, work: &mut ScanWork<'_>, gathered: &mut Gathered) {
        if self.output.fields().is_empty() || work.exact.is_empty() {
            return;
        }
        let wanted: Vec<FieldRef> = self.output.fields().iter().cloned().collect();
        let rows = work.exact.iter().map(|part| RowsOfFile { file: part.file.place, rows: &part.chosen.rows });
        let Some(found) = self.values(predicate, &wanted, rows.collect()).await else { return };
        // Values that are none of the output's are left to be read.
        let Ok(rows) = self.passing(&found, wanted, None) else { return };
        work.leave_out_exact(&found.rows);
        gathered.add(found, rows);
    }

    /// Takes rows to be rechecked out of the work, which are tested by their values. Gives how many were tested.
    async fn take_tested(
        &self,
        predicate: &Predicate,
        work: &mut ScanWork<'_>,
        gathered: &mut Gathered,
    ) -> Result<u64> {
        let chosen = work.recheck.iter().filter_map(|part| Some((part.file.place, part.rows()?)));
        let rows: Vec<RowsOfFile<'_>> = chosen.map(|(file, rows)| RowsOfFile { file, rows }).collect();
        let count: u64 = rows.iter().map(|of_file| u64::from(of_file.rows.len())).sum();
        if count == 0 || self.request.limit.is_some() && count > MOST_LIMITED_ROWS {
            return Ok(0);
        }
        let Some(filter) = self.filter()? else { return Ok(0) };
        let Some(wanted) = filter.beside(&self.output) else { return Ok(0) };
        let Some(found) = self.values(predicate, &wanted, rows).await else { return Ok(0) };
        // Whatever cannot be tested is read, and the reader says what is wrong with it.
        let Ok(rows) = self.passing(&found, wanted, Some(&filter)) else { return Ok(0) };
        let tested = found.rows.iter().map(|of_file| u64::from(of_file.rows.len())).sum();
        work.leave_out_tested(&found.rows);
        gathered.add(found, rows);
        Ok(tested)
    }

    /// The values of some rows in these columns, if an index has them.
    async fn values(
        &self,
        predicate: &Predicate,
        wanted: &[FieldRef],
        rows: Vec<RowsOfFile<'_>>,
    ) -> Option<CoveredValues> {
        let columns = wanted.iter().map(|field| field.name().clone()).collect();
        let request = CoverRequest { predicate, columns, rows };
        self.request.snapshot.covered_rows(&request).await
    }

    /// Of rows with their values in these columns those that pass the filter, as the output has them.
    fn passing(
        &self,
        found: &CoveredValues,
        wanted: Vec<FieldRef>,
        filter: Option<&ScanFilter>,
    ) -> Result<PassingRows> {
        let columns = found.columns.iter().zip(&wanted).map(|(values, field)| cast(values, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut rows = RecordBatch::try_new(Arc::new(Schema::new(wanted)), columns)?;
        let mut files = found.files.clone();
        if let Some(passing) = filter.map(|filter| filter.passing(&rows)).transpose()?.flatten() {
            rows = filter_record_batch(&rows, &passing)?;
            let of_passing = files.into_iter().zip(&passing).filter(|(_, passes)| *passes == Some(true));
            files = of_passing.map(|(file, _)| file).collect();
        }
        let own: Vec<ArrayRef> = rows.columns().iter().take(self.output.fields().len()).cloned().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.output), own, &options)?;
        Ok(PassingRows { batch, files })
    }
}

impl ScanWork<'_> {
    /// Leaves exact rows out that are given already.
    fn leave_out_exact(&mut self, given: &[CoveredFile]) {
        let given = by_file(given);
        for part in &mut self.exact {
            if let Some(rows) = given.get(&part.file.place) {
                part.chosen.rows = part.chosen.rows.minus(rows);
            }
        }
        self.exact.retain(|part| !part.chosen.rows.is_empty());
    }

    /// Leaves rows to be rechecked out that were tested.
    fn leave_out_tested(&mut self, tested: &[CoveredFile]) {
        let tested = by_file(tested);
        for RecheckedFile { file, chosen } in &mut self.recheck {
            if let (Some(rows), Some(chosen)) = (tested.get(&file.place), chosen) {
                chosen.rows = chosen.rows.minus(rows);
            }
        }
        self.recheck.retain(|part| part.rows().is_none_or(|rows| !rows.is_empty()));
    }
}

fn by_file(rows: &[CoveredFile]) -> HashMap<usize, &RowSet> {
    rows.iter().map(|of_file| (of_file.file, &of_file.rows)).collect()
}
