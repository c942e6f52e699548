//! Rows of changes: the columns of the table, and what is done with each row.
//!
//! ```text
//! | columns of the table | __lakemark_operation | __lakemark_sequence | __lakemark_set             |
//! |   2, "x", 7.5        |  upsert              |  17                 |  NULL                      |
//! |   3, NULL, NULL      |  delete              |  17                 |  NULL                      |
//! |   5, "y", 1.5        |  update              |  18                 |  0b010: the second column  |
//! ```
//!
//! The buffer in memory and the runs on the disk have this form. Columns that an update does not name have what was found in the table (the
//! row is *complete*), or NULL until then. A set numbers the columns of the schema that the set stands in, also in a run. Whoever reads a
//! run with another schema numbers its sets anew ([`OwnColumns`](super::own_columns::OwnColumns)).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int8Array, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array,
};
use arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef, UInt64Type};
use lakemark_format::Operation;
use lakemark_index::RowSet;

use crate::error::{Error, Result};

pub(crate) const OPERATION: &str = "__lakemark_operation";
pub(crate) const SEQUENCE: &str = "__lakemark_sequence";
pub(crate) const SET: &str = "__lakemark_set";
/// The columns beside those of the table.
const EXTRA: usize = 3;

/// The schema of changes to a table with this schema.
pub(crate) fn change_schema(table: &Schema) -> SchemaRef {
    let nullable = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_nullable(true));
    let mut fields: Vec<Arc<Field>> = table.fields().iter().map(nullable).collect();
    fields.push(Arc::new(Field::new(OPERATION, DataType::Int8, false)));
    fields.push(Arc::new(Field::new(SEQUENCE, DataType::UInt64, false)));
    fields.push(Arc::new(Field::new(SET, DataType::Binary, true)));
    Arc::new(Schema::new(fields))
}

/// How many of the columns of a change schema are the table's.
pub(crate) fn table_columns(schema: &Schema) -> usize {
    schema.fields().len().saturating_sub(EXTRA)
}

/// Rows of one operation as changes; columns that `rows` lacks are NULL.
pub(crate) fn changes(
    schema: &SchemaRef,
    operation: Operation,
    sequence: u64,
    rows: &RecordBatch,
) -> Result<RecordBatch> {
    let count = rows.num_rows();
    let width = table_columns(schema);
    let own = schema.fields().iter().take(width);
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    let mut set = vec![0u8; width.div_ceil(8)];
    for (place, field) in own.enumerate() {
        match rows.column_by_name(field.name()) {
            Some(column) => {
                if let Some(byte) = set.get_mut(place / 8) {
                    *byte |= 1 << (place % 8);
                }
                columns.push(Arc::clone(column));
            }
            None => columns.push(new_null_array(field.data_type(), count)),
        }
    }
    columns.push(Arc::new(Int8Array::from(vec![operation.code().cast_signed(); count])));
    columns.push(Arc::new(UInt64Array::from(vec![sequence; count])));
    let set = (operation == Operation::Update).then_some(set.as_slice());
    columns.push(Arc::new(BinaryArray::from(vec![set; count])));
    batch(schema, columns, count)
}

/// A batch of this schema.
pub(crate) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::internal("rows of changes do not fit their schema").with_source(error))
}

/// The extra columns of changes, which say what is done with each row.
pub(crate) struct ChangeColumns<'a> {
    operations: &'a Int8Array,
    sequences: &'a UInt64Array,
    sets: &'a BinaryArray,
}

impl<'a> ChangeColumns<'a> {
    pub(crate) fn of(batch: &'a RecordBatch) -> Result<Self> {
        let column = |name: &str| batch.column_by_name(name);
        let operations = column(OPERATION).and_then(|column| column.as_primitive_opt::<Int8Type>());
        let sequences = column(SEQUENCE).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let sets = column(SET).and_then(|column| column.as_binary_opt::<i32>());
        match (operations, sequences, sets) {
            (Some(operations), Some(sequences), Some(sets)) => Ok(Self { operations, sequences, sets }),
            _ => Err(Error::corrupt(
                "rows of changes lack their operation, sequence or set; restore the folder `updates` of the store",
            )),
        }
    }

    pub(crate) fn operation(&self, row: usize) -> Result<Operation> {
        let code = if row < self.operations.len() { self.operations.value(row).cast_unsigned() } else { 0 };
        Operation::decode(code).map_err(|error| {
            Error::corrupt("a change has an unknown operation; restore the folder `updates` of the store")
                .with_source(error)
        })
    }

    pub(crate) fn sequence(&self, row: usize) -> u64 {
        if row < self.sequences.len() { self.sequences.value(row) } else { 0 }
    }

    /// The columns that an update names.
    pub(crate) fn set(&self, row: usize) -> &'a [u8] {
        if row < self.sets.len() && self.sets.is_valid(row) { self.sets.value(row) } else { &[] }
    }

    /// The rows with these operations.
    pub(crate) fn rows_of(&self, wanted: &[Operation]) -> RowSet {
        operation_rows(self.operations, wanted)
    }
}

/// The rows with these operations.
pub(crate) fn operation_rows(operations: &Int8Array, wanted: &[Operation]) -> RowSet {
    let universe = u32::try_from(operations.len()).unwrap_or(u32::MAX);
    let codes: Vec<i8> = wanted.iter().map(|operation| operation.code().cast_signed()).collect();
    let rows = operations.values().iter().zip(0u32..).filter(|(code, _)| codes.contains(code));
    RowSet::from_rows(rows.map(|(_, row)| row).collect(), universe)
}

/// Whether a set has the column at this place.
pub(crate) fn has(set: &[u8], place: usize) -> bool {
    set.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1)
}

/// Several sets together.
pub(crate) fn union<'a>(sets: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut all: Vec<u8> = Vec::new();
    for set in sets {
        all.resize(all.len().max(set.len()), 0);
        all.iter_mut().zip(set).for_each(|(all, byte)| *all |= byte);
    }
    all
}

/// The rows as they stand in the table, without the extra columns.
pub(crate) fn as_table(batch: &RecordBatch, table: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().take(table.fields().len()).cloned().collect();
    self::batch(table, columns, batch.num_rows())
}
