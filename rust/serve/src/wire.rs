//! What goes to clients: columns of types that every driver knows, and batches of exactly these.
//!
//! Clients compare the columns that were announced with those that come. So the types are decided once, and batches are made of them.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::{IpcMessage, SchemaAsIpc};
use bytes::Bytes;

/// The columns as clients see them: texts and bytes that are no views, and values in the place of dictionaries.
pub(crate) fn schema(of: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = of.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, of.metadata().clone()))
}

fn field(of: &FieldRef) -> FieldRef {
    let plain = data_type(of.data_type());
    if plain == *of.data_type() { Arc::clone(of) } else { Arc::new(Field::clone(of).with_data_type(plain)) }
}

/// A type as clients see it.
pub(crate) fn data_type(of: &DataType) -> DataType {
    match of {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => data_type(values),
        DataType::RunEndEncoded(_, values) => data_type(values.data_type()),
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::ListView(item) => DataType::List(field(item)),
        DataType::LargeListView(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        other => other.clone(),
    }
}

/// Rows as the columns that were announced.
pub(crate) fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows = batch.num_rows();
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| match column.data_type() {
        same if same == field.data_type() => Ok(Arc::clone(column)),
        _ => cast(column, field.data_type()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Columns as bytes, as prepared statements have them.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes, ArrowError> {
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn views_and_dictionaries_become_what_every_driver_knows() {
        let texts: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("n", Arc::new(Int64Array::from(vec![1, 2, 3]))),
            ("v", Arc::new(StringViewArray::from(vec!["x", "a text of more than twelve letters", "z"]))),
            ("d", Arc::new(texts)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let announced = schema(&batch.schema());
        let types: Vec<&DataType> = announced.fields().iter().map(|field| field.data_type()).collect();
        assert_eq!(types, [&DataType::Int64, &DataType::Utf8, &DataType::Utf8]);
        let sent = conform(batch, &announced).unwrap();
        assert_eq!(sent.schema(), announced);
        assert_eq!(sent.column(1).as_string::<i32>().value(1), "a text of more than twelve letters");
        assert_eq!(sent.column(2).as_string::<i32>().iter().flatten().collect::<String>(), "aba");
        assert_eq!(sent.column(0).len(), 3);
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let options = RecordBatchOptions::new().with_row_count(Some(5));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).unwrap();
        assert_eq!(conform(batch, &Arc::new(Schema::empty())).unwrap().num_rows(), 5);
    }

    #[test]
    fn types_inside_of_others_are_made_plain_too() {
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let nested = Schema::new(vec![Field::new("a", DataType::ListView(item), true)]);
        let plain = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
        assert_eq!(*schema(&nested).field(0).data_type(), plain);
    }
}
