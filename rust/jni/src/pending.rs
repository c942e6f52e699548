//! Splits of pending rows: rows that are in no data file yet.
//!
//! Runs are Parquet files, read like data files whose rows are known. Rows in memory travel in the splits themselves. The
//! marks know nothing of either, so that all of them are read, and Spark evaluates every filter.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use lakemark_table::PendingRows;

use crate::error::{NativeError, Result};
use crate::plan::{Input, PlannedSplit};
use crate::split::{Home, Split, encode};

/// A split takes about so many bytes of rows in memory, as text: it is sent to an executor with its task.
const BODY_BYTES: usize = 1 << 20;

/// Adds the splits of pending rows; `schema` has the scan's columns with Spark's types.
pub(crate) fn splits(pending: &PendingRows, schema: &SchemaRef, out: &mut Vec<PlannedSplit>) -> Result<()> {
    for file in &pending.files {
        // In runs partition columns stand like all others.
        let input = Input { home: Home::Store, meta: &file.meta, constants: None };
        input.known_splits(&file.row_groups, &file.rows, out)?;
    }
    for batch in &pending.batches {
        memory_splits(&in_spark_types(batch, schema)?, out)?;
    }
    Ok(())
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

/// Halves the rows until each part is small enough, or one row.
fn memory_splits(batch: &RecordBatch, out: &mut Vec<PlannedSplit>) -> Result<()> {
    let rows = batch.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let body = encode(&batch.schema(), Some(batch))?;
    if body.len() > BODY_BYTES && rows > 1 {
        let half = rows / 2;
        memory_splits(&batch.slice(0, half), out)?;
        return memory_splits(&batch.slice(half, rows - half), out);
    }
    let bytes = body.len() as u64;
    out.push(PlannedSplit { body: serde_json::to_string(&Split::Memory(body))?, rows: Some(rows as u64), bytes });
    Ok(())
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
