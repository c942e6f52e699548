//! Values in the types of another schema, also inside of structs, lists and maps.
//!
//! Arrow's own cast takes the fields of structs by place where a field is missing. So a file without a field would give the values of the
//! next one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch,
    RecordBatchOptions, StructArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options, is_null, nullif};
use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

/// How the fields of structs find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// By name; a field that is missing is NULL.
    Name,
    /// By place: the names differ.
    Place,
}

/// The columns of `schema` in its types. Columns that the batch lacks are NULL, others that it has are left out.
pub(crate) fn conform_batch(batch: &RecordBatch, schema: &SchemaRef, by: Match) -> Result<RecordBatch, ArrowError> {
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
            Some(column) => conform_by(column, field.data_type(), by),
            None => Ok(new_null_array(field.data_type(), rows)),
        }
    });
    conformed.collect()
}

/// The same values in another type. Fields of structs find each other by name. Fields that only `wanted` has are NULL, fields that it lacks
/// are left out.
///
/// # Errors
///
/// A value does not fit the type, or a field that takes no NULL is missing.
pub fn conform(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    conform_by(array, wanted, Match::Name)
}

/// The way to the first field of a struct that `wanted` does not have, with dots between the names.
#[must_use]
pub fn unknown_field(given: &DataType, wanted: &DataType) -> Option<String> {
    match (given, wanted) {
        (DataType::Struct(given), DataType::Struct(wanted)) => {
            given.iter().find_map(|field| match wanted.iter().find(|wanted| wanted.name() == field.name()) {
                None => Some(field.name().clone()),
                Some(wanted) => unknown_field(field.data_type(), wanted.data_type())
                    .map(|inside| format!("{}.{inside}", field.name())),
            })
        }
        (DataType::Map(given, _), DataType::Map(wanted, _)) => {
            let (DataType::Struct(given), DataType::Struct(wanted)) = (given.data_type(), wanted.data_type()) else {
                return None;
            };
            given.iter().zip(wanted).find_map(|(given, wanted)| unknown_field(given.data_type(), wanted.data_type()))
        }
        // A value may become a list of itself alone.
        _ => unknown_field(item_of(given).map_or(given, |item| item.data_type()), item_of(wanted)?.data_type()),
    }
}

/// The items of a list of any kind; none if the type is no list.
#[must_use]
pub fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item),
        _ => None,
    }
}

/// A list of the same kind with other items.
fn with_items(list: &DataType, item: &FieldRef) -> Option<DataType> {
    let item = Arc::clone(item);
    Some(match list {
        DataType::List(_) => DataType::List(item),
        DataType::LargeList(_) => DataType::LargeList(item),
        DataType::FixedSizeList(_, length) => DataType::FixedSizeList(item, *length),
        _ => return None,
    })
}

fn conform_by(array: &ArrayRef, wanted: &DataType, by: Match) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == wanted {
        return Ok(Arc::clone(array));
    }
    let cast =
        |array: &ArrayRef, to: &DataType| cast_leaf(array, to, &CastOptions { safe: false, ..CastOptions::default() });
    match (array.data_type(), wanted) {
        (DataType::Struct(_), DataType::Struct(fields)) => conform_struct(array.as_struct(), fields, by),
        (DataType::List(_), DataType::List(item)) => conform_list(array.as_list::<i32>(), item, by),
        (DataType::LargeList(_), DataType::LargeList(item)) => conform_list(array.as_list::<i64>(), item, by),
        (DataType::FixedSizeList(_, have), DataType::FixedSizeList(item, length)) if have == length => {
            let list = array.as_fixed_size_list();
            let values = conform_by(list.values(), item.data_type(), by)?;
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
            let columns = columns.map(|(column, field)| conform_by(column, field.data_type(), by));
            let columns = columns.collect::<Result<_, _>>()?;
            let items = StructArray::try_new(fields.clone(), columns, map.entries().nulls().cloned())?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, items, nulls, *sorted)?))
        }
        (have, _) if item_of(have).is_none() && *have != DataType::Null && item_of(wanted).is_some() => {
            let item = item_of(wanted).map_or(wanted, |item| item.data_type());
            let lists = cast(&conform_by(array, item, by)?, wanted)?;
            // A value that is NULL becomes NULL, and no list of NULL.
            nullif(&lists, &is_null(array)?)
        }
        (have, _) => match item_of(have).and_then(|item| with_items(wanted, item)) {
            // A list of another kind, with the same items first.
            Some(same_items) if same_items != *have && same_items != *wanted => {
                conform_by(&cast(array, &same_items)?, wanted, by)
            }
            _ => cast(array, wanted),
        },
    }
}

/// Arrow's cast, where it is right: else by a type in between.
pub(crate) fn cast_leaf(array: &ArrayRef, to: &DataType, options: &CastOptions) -> Result<ArrayRef, ArrowError> {
    let by = match (array.data_type(), to) {
        // The date is the day of the zone: the cast takes that of UTC.
        (DataType::Timestamp(_, Some(_)), DataType::Date64) => DataType::Date32,
        // A date that is too far away has no timestamp: Arrow's own cast overflows.
        (DataType::Date64, DataType::Timestamp(..)) => DataType::Timestamp(TimeUnit::Millisecond, None),
        _ => return cast_with_options(array, to, options),
    };
    cast_with_options(&cast_with_options(array, &by, options)?, to, options)
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
    let values = conform_by(list.values(), item.data_type(), by)?;
    let list = GenericListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?;
    Ok(Arc::new(list))
}

#[cfg(test)]
mod tests;
