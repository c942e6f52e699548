//! Arrow types as Spark reads them, by the rules of Spark's own Parquet reader.
//!
//! Spark's vectors know neither unsigned integers nor views, dictionaries, fixed-size binaries or timestamps of other units
//! than microseconds. What has an exact counterpart is cast to it; what has none is an error that names the column.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, TimeUnit};
use lakemark_table::ErrorKind;

use crate::error::{NativeError, Result};

/// The type that a column has in Spark; `column` is for the message.
pub(crate) fn spark_type(column: &str, data_type: &DataType) -> Result<DataType> {
    let item = |field: &FieldRef| -> Result<FieldRef> {
        let inner = spark_type(column, field.data_type())?;
        Ok(Arc::new(Field::new(field.name(), inner, true)))
    };
    Ok(match data_type {
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Utf8
        | DataType::Binary => data_type.clone(),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *precision <= 38 && *scale >= 0 =>
        {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Timestamp(_, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.as_ref().map(|_| Arc::from("UTC")))
        }
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Dictionary(_, value) => spark_type(column, value)?,
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            DataType::List(item(field)?)
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect::<Result<_>>()?),
        DataType::Map(entries, _) => DataType::Map(map_entries(column, entries)?, false),
        other => {
            return Err(NativeError::new(
                ErrorKind::Unsupported,
                format!(
                    "column '{column}' has type {other}, for which Spark has no counterpart; convert it in the data"
                ),
            ));
        }
    })
}

/// The entries of a map: Spark wants non-null keys and names of its own.
fn map_entries(column: &str, entries: &FieldRef) -> Result<FieldRef> {
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(NativeError::internal(format!("column '{column}' is a map without entries")));
    };
    let [key, value] = fields.as_ref() else {
        return Err(NativeError::internal(format!("column '{column}' is a map without key and value")));
    };
    let fields = vec![
        Field::new("key", spark_type(column, key.data_type())?, false),
        Field::new("value", spark_type(column, value.data_type())?, true),
    ];
    Ok(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)))
}

/// A schema as Spark sees it: its types, no metadata, everything nullable but the columns of the key. Spark changes rows of tables only
/// by columns that are never NULL.
pub(crate) fn spark_schema(schema: &Schema, key: &[String]) -> Result<Schema> {
    let field = |field: &FieldRef| -> Result<Field> {
        let is_nullable = !key.contains(field.name());
        Ok(Field::new(field.name(), spark_type(field.name(), field.data_type())?, is_nullable))
    };
    Ok(Schema::new(schema.fields().iter().map(field).collect::<Result<Vec<_>>>()?))
}
