//! Buffered rows: rows that are in no data file yet.
//!
//! Runs are Parquet files, read like data files whose rows are known. Rows in memory travel with the splits. The indexes know nothing of
//! either. So the driver tests by the rules of the indexes which of the rows a filter selects. It tests rows in memory, and those of runs
//! in pages that may have the keys of the filter, while these are not too many. What is left open Spark evaluates, as it does for data
//! files. Whether a row counts was resolved before: a snapshot shows no buffered row that a newer change replaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use lakemark_index::{Candidates, Predicate, RowSet, Truth};
use lakemark_table::BufferedRun;

use crate::error::{NativeError, Result};
use crate::exact::in_spark_type;
use crate::filter_result::SelectedBuffer;
use crate::handle::Pinned;
use crate::nested::{flattened, roots};
use crate::read::{IN_MEMORY, InputReader};
use crate::rows::EncodedRows;
use crate::split::{FileRange, SplitInput, SplitRange, StoreHome, to_ipc};
use crate::split_packing::{ATTACHED_BYTES, FileInput, FileInputRows, SplitPacker};

/// The driver tests at most so many rows of runs.
const TESTED_ROWS: u64 = 1 << 18;

impl SelectedBuffer {
    /// The buffered rows that a filter selects, or may select.
    pub(crate) async fn of(pinned: &Pinned, predicate: &Predicate) -> Result<Self> {
        let Some(buffered) = pinned.snapshot.buffered_rows() else {
            return Ok(Self { is_exact: true, ..Self::default() });
        };
        if *predicate == Predicate::Const(Truth::True) || !pinned.use_index {
            let is_exact = *predicate == Predicate::Const(Truth::True);
            return Ok(Self { files: buffered.files.clone(), batches: buffered.batches.clone(), is_exact });
        }
        let buffered = buffered.pruned(predicate);
        let mut selected = Self { is_exact: true, ..Self::default() };
        for batch in &buffered.batches {
            let candidates = Candidates::among(predicate, &flattened(batch, &columns_of(predicate))?);
            selected.is_exact &= candidates.recheck_true().is_empty();
            if !candidates.t().is_empty() {
                let rows = UInt32Array::from_iter_values(candidates.t().iter());
                selected.batches.push(take_record_batch(batch, &rows)?);
            }
        }
        let are_few = rows_of_files(&buffered.files) <= TESTED_ROWS;
        for file in &buffered.files {
            let mut file = file.clone();
            if are_few {
                let tested = test_rows(pinned, &file, predicate).await?;
                file.rows = tested.rows;
                selected.is_exact &= tested.is_exact;
            } else {
                selected.is_exact = false;
            }
            if !file.rows.is_empty() {
                selected.files.push(file);
            }
        }
        Ok(selected)
    }

    /// Some columns and fields of the rows, with the table's types; none if they are too many for the driver.
    pub(crate) async fn values(
        &self,
        pinned: &Pinned,
        columns: &BTreeSet<&String>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        if rows_of_files(&self.files) > TESTED_ROWS {
            return Ok(None);
        }
        let mut found = self.batches.iter().map(|batch| flattened(batch, columns)).collect::<Result<Vec<_>>>()?;
        for file in &self.files {
            let mut reader = open(pinned, file, columns).await?;
            while let Some(batch) = reader.next().await? {
                found.push(flattened(&batch, columns)?);
            }
        }
        Ok(Some(found))
    }

    /// The runs, to be read like data files.
    pub(crate) fn files(&self) -> impl Iterator<Item = FileInput<'_>> {
        self.files.iter().map(|file| FileInput {
            home: StoreHome::Store,
            meta: &file.meta,
            // In runs partition columns stand like all others.
            constants: None,
            rows: FileInputRows::Known { row_groups: &file.row_groups, chosen: file.rows.clone() },
        })
    }

    /// Adds the rows in memory; `schema` has the scan's columns with Spark's types, of which those that are `exact` may not be cut.
    pub(crate) fn add_memory(&self, schema: &SchemaRef, exact: &[String], packer: &mut SplitPacker) -> Result<()> {
        let batches = self.batches.iter().map(|batch| in_spark_types(batch, schema, exact, IN_MEMORY));
        let batches = batches.collect::<Result<Vec<_>>>()?;
        match batches.as_slice() {
            [] => Ok(()),
            [batch] => add_rows(batch, packer),
            several => add_rows(&in_one(schema, several)?, packer),
        }
    }
}

fn rows_of_files(files: &[BufferedRun]) -> u64 {
    files.iter().map(|file| u64::from(file.rows.len())).sum()
}

/// What a filter says of the rows of a run.
struct TestedRun {
    /// The rows that the filter selects or may select.
    rows: RowSet,
    /// Whether the filter selects each of them.
    is_exact: bool,
}

/// Tests which rows of a run a filter selects.
async fn test_rows(pinned: &Pinned, file: &BufferedRun, predicate: &Predicate) -> Result<TestedRun> {
    let columns = columns_of(predicate);
    let mut reader = open(pinned, file, &columns).await?;
    let (mut positions, mut found, mut is_exact) = (file.rows.iter(), Vec::new(), true);
    while let Some(batch) = reader.next().await? {
        let candidates = Candidates::among(predicate, &flattened(&batch, &columns)?);
        is_exact &= candidates.recheck_true().is_empty();
        let here: Vec<u32> = positions.by_ref().take(batch.num_rows()).collect();
        found.extend(candidates.t().iter().filter_map(|row| here.get(row as usize).copied()));
    }
    Ok(TestedRun { rows: RowSet::from_rows(found, file.rows.universe()), is_exact })
}

fn columns_of(predicate: &Predicate) -> BTreeSet<&String> {
    predicate.leaves().into_iter().map(|leaf| &leaf.column).collect()
}

/// Reads the columns of a run's rows that these columns and fields are in, with the table's types.
async fn open(pinned: &Pinned, file: &BufferedRun, columns: &BTreeSet<&String>) -> Result<InputReader> {
    let (table, roots) = (pinned.snapshot.schema(), roots(columns));
    let wanted = table.fields().iter().filter(|field| roots.contains(field.name().as_str()));
    let schema = Schema::new(wanted.map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<_>>());
    let scan = pinned.scan_of(&Arc::new(schema))?;
    let file_rows: u64 = file.row_groups.iter().map(|rows| u64::from(*rows)).sum();
    let (rows, count) = (EncodedRows::encode(&file.rows), u64::from(file.rows.len()));
    let range = FileRange {
        home: StoreHome::Store,
        location: file.meta.location.to_string(),
        size: file.meta.size,
        tag: file.meta.e_tag.clone(),
        part: SplitRange::Known { file_rows, start: 0, length: file_rows, rows: rows.form, count },
        constants: None,
    };
    InputReader::open(&scan, &SplitInput::File(range), &rows.bytes).await
}

fn in_one(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    if schema.fields().is_empty() {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        return Ok(RecordBatch::try_new_with_options(schema.clone(), Vec::new(), &options)?);
    }
    Ok(concat_batches(schema, batches)?)
}

/// The columns of a scan of rows that are at `place`, with Spark's types.
pub(crate) fn in_spark_types(
    batch: &RecordBatch,
    schema: &SchemaRef,
    exact: &[String],
    place: &str,
) -> Result<RecordBatch> {
    let column = |name: &String| {
        batch.column_by_name(name).ok_or_else(|| NativeError::internal(format!("{place} have no column '{name}'")))
    };
    let columns = schema.fields().iter().map(|field| in_spark_type(column(field.name())?, field, exact, place));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<_>>()?, &options)?)
}

/// Adds the rows, in equal parts if they are too many for a split.
pub(crate) fn add_rows(batch: &RecordBatch, packer: &mut SplitPacker) -> Result<()> {
    let rows = batch.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let attachment = to_ipc(&batch.schema(), Some(batch))?;
    if attachment.len() > ATTACHED_BYTES && rows > 1 {
        let parts = (attachment.len() / ATTACHED_BYTES + 1).min(rows);
        drop(attachment);
        let cut = |part: usize| part * rows / parts;
        return (0..parts).try_for_each(|part| add_rows(&batch.slice(cut(part), cut(part + 1) - cut(part)), packer));
    }
    packer.add_memory(rows as u64, attachment)
}

#[cfg(test)]
#[path = "buffered_tests.rs"]
pub(crate) mod tests;
