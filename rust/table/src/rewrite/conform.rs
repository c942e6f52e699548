//! Rows in the exact types that new files have.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch,
    RecordBatchOptions, StructArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef};
use arrow::error::ArrowError;

/// How the fields of structs find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// By name; one that is missing is NULL.
    Name,
    /// By place: the names differ.
    Place,
}

/// The columns of `schema` in its types. Columns that the batch lacks are NULL, others that it has are left out.
pub(super) fn conform_batch(batch: &RecordBatch, schema: &SchemaRef, by: Match) -> Result<RecordBatch, ArrowError> {
    let columns = conform_fields(batch.columns(), batch.schema_ref().fields(), schema.fields(), batch.num_rows(), by)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn conform_fields(
    columns: &[ArrayRef],
    fields: &Fields,
    wanted: &Fields,
    rows: usize,
    by: Match,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let conformed = wanted.iter().enumerate().map(|(place, field)| {
        let place = match by {
            Match::Name => fields.iter().position(|have| have.name() == field.name()),
            Match::Place => Some(place),
        };
        match place.and_then(|place| columns.get(place)) {
            Some(column) => conform(column, field.data_type(), by),
            None => Ok(new_null_array(field.data_type(), rows)),
        }
    });
    conformed.collect()
}

fn conform(array: &ArrayRef, wanted: &DataType, by: Match) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == wanted {
        return Ok(Arc::clone(array));
    }
    match (array.data_type(), wanted) {
        (DataType::Struct(_), DataType::Struct(fields)) => conform_struct(array.as_struct(), fields, by),
        (DataType::List(_), DataType::List(item)) => conform_list(array.as_list::<i32>(), item, by),
        (DataType::LargeList(_), DataType::LargeList(item)) => conform_list(array.as_list::<i64>(), item, by),
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, length)) => {
            let list = array.as_fixed_size_list();
            let values = conform(list.values(), item.data_type(), by)?;
            let list = FixedSizeListArray::try_new(Arc::clone(item), *length, values, list.nulls().cloned())?;
            Ok(Arc::new(list))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(ArrowError::SchemaError("a map without entries".to_owned()));
            };
            let map = array.as_map();
            // Keys and values have their places, however they are called.
            let columns = map.entries().columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| conform(column, field.data_type(), by));
            let columns = columns.collect::<Result<_, _>>()?;
            let items = StructArray::try_new(fields.clone(), columns, map.entries().nulls().cloned())?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, items, nulls, *sorted)?))
        }
        _ => cast_with_options(array, wanted, &CastOptions { safe: false, ..CastOptions::default() }),
    }
}

fn conform_struct(array: &StructArray, fields: &Fields, by: Match) -> Result<ArrayRef, ArrowError> {
    let columns = conform_fields(array.columns(), array.fields(), fields, array.len(), by)?;
    let conformed = StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len())?;
    Ok(Arc::new(conformed))
}

fn conform_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    by: Match,
) -> Result<ArrayRef, ArrowError> {
    let values = conform(list.values(), item.data_type(), by)?;
    let list = GenericListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?;
    Ok(Arc::new(list))
}
