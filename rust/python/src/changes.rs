//! Changes on their way in.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema};
use lakemark_datafusion::from_engine;
use lakemark_table::{Change, Error, ErrorKind, Operation, Result, Table, Transaction, WriteOptions, Written};
use pyo3::prelude::*;
use pyo3_arrow::input::AnyArray;

use crate::error;

/// Rows as they were given: columns with names, or values without one, which are keys.
pub(crate) struct ChangeRows {
    values: ArrayRef,
}

impl ChangeRows {
    /// Reads all rows without the GIL; a stream that runs Python code takes it when it needs it.
    pub(crate) fn read(py: Python<'_>, rows: AnyArray) -> PyResult<Self> {
        let reader = rows.into_reader()?;
        let of = reader.field().data_type().clone();
        let values = py.detach(|| {
            let chunks = reader.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
            let chunks: Vec<_> = chunks.iter().map(AsRef::as_ref).collect();
            if chunks.is_empty() { Ok(arrow::array::new_empty_array(&of)) } else { concat(&chunks) }
        });
        let values = values.map_err(|cause| error::to_python(py, &from_engine(cause.into())))?;
        Ok(Self { values })
    }

    /// One batch with the table's names.
    async fn batch(self, table: &Table, operation: Operation) -> Result<RecordBatch> {
        if !matches!(self.values.data_type(), DataType::Struct(_)) {
            if operation == Operation::Delete {
                return keys(table, self.values).await;
            }
            return Err(invalid(format!("{} takes rows with columns, and not values alone", operation.name())));
        }
        let rows = StructArray::from(self.values.to_data());
        let (fields, columns, nulls) = rows.into_parts();
        if nulls.is_some_and(|nulls| nulls.null_count() > 0) {
            return Err(invalid("the rows have some that are NULL as a whole; leave them out"));
        }
        batch(Schema::new(fields), columns, self.values.len())
    }
}

/// The operation that a caller names.
pub(crate) fn operation_of(name: &str) -> Result<Operation> {
    Operation::of_name(name).ok_or_else(|| invalid(format!("there is no operation {name}")))
}

/// Writes a change.
pub(crate) async fn write(
    table: Arc<Table>,
    operation: Operation,
    rows: ChangeRows,
    transaction: Option<Transaction>,
) -> Result<Written> {
    let rows = rows.batch(&table, operation).await?;
    table.write(vec![Change { operation, rows }], WriteOptions { transaction, ..WriteOptions::default() }).await
}

/// Values as the column of a key that has one.
async fn keys(table: &Table, values: ArrayRef) -> Result<RecordBatch> {
    // Without a key the table says so itself.
    let key = table.key_columns().await?.unwrap_or_else(|| vec!["key".to_owned()]);
    let [name] = key.as_slice() else {
        return Err(invalid(format!(
            "values alone are keys where the key has one column; this one has {}: give rows with the columns ({})",
            key.len(),
            key.join(", ")
        )));
    };
    let rows = values.len();
    batch(Schema::new(vec![Field::new(name, values.data_type().clone(), true)]), vec![values], rows)
}

fn batch(schema: Schema, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map_err(|cause| from_engine(cause.into()))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
