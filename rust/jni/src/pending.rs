//! Splits of pending rows: rows that are in no data file yet.
//!
//! Runs are Parquet files, read like data files whose rows are known. Rows in memory travel with the splits. The
//! marks know nothing of either, so that all of them are read, and Spark evaluates every filter.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::SchemaRef;
use lakemark_table::PendingRows;

use crate::error::{NativeError, Result};
use crate::plan::{Input, PlannedSplit};
use crate::split::{Home, Split, to_ipc};

/// A split takes at most so many bytes of rows in memory: they are sent to an executor with its task, and Spark warns of tasks of more
/// than 1,000 KiB.
const ATTACHED_BYTES: usize = 960 << 10;

/// Adds the splits of pending rows; `schema` has the scan's columns with Spark's types.
pub(crate) fn splits(pending: &PendingRows, schema: &SchemaRef, out: &mut Vec<PlannedSplit>) -> Result<()> {
    for file in &pending.files {
        // In runs partition columns stand like all others.
        let input = Input { home: Home::Store, meta: &file.meta, constants: None };
        input.known_splits(&file.row_groups, &file.rows, out)?;
    }
    // Each split is a task, so that a few rows here and there go together.
    let batches = pending.batches.iter().map(|batch| in_spark_types(batch, schema)).collect::<Result<Vec<_>>>()?;
    match batches.as_slice() {
        [] => Ok(()),
        [batch] => memory_splits(batch, out),
        several => memory_splits(&in_one(schema, several)?, out),
    }
}

fn in_one(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    if schema.fields().is_empty() {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        return Ok(RecordBatch::try_new_with_options(schema.clone(), Vec::new(), &options)?);
    }
    Ok(concat_batches(schema, batches)?)
}

fn in_spark_types(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |name: &String| {
        batch.column_by_name(name).ok_or_else(|| NativeError::internal(format!("pending rows have no column '{name}'")))
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = schema.fields().iter().map(|field| {
        let cast = cast_with_options(column(field.name())?, field.data_type(), &options);
        cast.map_err(NativeError::from)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns.collect::<Result<_>>()?, &options)?)
}

/// Cuts the rows into equal parts until each is small enough, or one row.
fn memory_splits(batch: &RecordBatch, out: &mut Vec<PlannedSplit>) -> Result<()> {
    let rows = batch.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let attachment = to_ipc(&batch.schema(), Some(batch))?;
    if attachment.len() > ATTACHED_BYTES && rows > 1 {
        let parts = (attachment.len() / ATTACHED_BYTES + 1).min(rows);
        drop(attachment);
        let cut = |part: usize| part * rows / parts;
        return (0..parts).try_for_each(|part| memory_splits(&batch.slice(cut(part), cut(part + 1) - cut(part)), out));
    }
    let bytes = attachment.len() as u64;
    let body = serde_json::to_string(&Split::Memory)?;
    out.push(PlannedSplit { body, rows: Some(rows as u64), bytes, attachment });
    Ok(())
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
