//! Casts that keep every digit of a value, or name the first value that would lose one.
//!
//! Arrow's cast makes 7.5 the integer 7 and a timestamp a date, and reports nothing. Values that are written must not change that way.
//! Doubles are rounded to narrower floats all the same, as that is what floats are.

mod kept;
mod leaf;

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, BooleanBufferBuilder, StructArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;

pub(crate) use self::kept::is_kept;
use crate::values::conform::{cast_leaf, conform, item_of};

/// A value that another type has no room for.
#[derive(Debug)]
pub struct LossyCast {
    /// The row that has it.
    pub row: Option<usize>,
    /// The value, where one was found.
    pub value: Option<String>,
    /// The way to the value inside of the column: `.field` of a struct, `[]` of a list or a map.
    pub inside: String,
    /// The type that the value should get.
    pub target: DataType,
    /// Whether it would lose digits; else it is out of range, or cannot be read at all.
    pub loses_digits: bool,
    source: Option<Box<ArrowError>>,
}

impl fmt::Display for LossyCast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no {}", self.value.as_deref().unwrap_or("a value"), self.target)
    }
}

impl StdError for LossyCast {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

/// The same values in another type, also inside of structs, lists and maps. Fields of structs find each other by name.
///
/// # Errors
/// A value does not fit: it would lose digits or is out of range, or there is no such cast.
pub fn cast_exactly(given: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, LossyCast> {
    if given.data_type() == wanted {
        return Ok(given.clone());
    }
    let fit = cast_rounded(given, wanted)?;
    match first_misfit(given, wanted, None, Look::ForLostDigits).map_err(|error| unfit(wanted, error))? {
        None => Ok(fit),
        Some(found) => Err(found),
    }
}

/// The same values in another type as near as that has them, for callers that round: decimals are rounded.
///
/// # Errors
/// A value is out of range, or there is no such cast.
pub fn cast_rounded(given: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, LossyCast> {
    conform(given, wanted).map_err(|error| match first_misfit(given, wanted, None, Look::ForAnything) {
        Ok(Some(found)) => LossyCast { source: Some(Box::new(error)), ..found },
        _ => unfit(wanted, error),
    })
}

fn unfit(wanted: &DataType, source: ArrowError) -> LossyCast {
    let (row, value, inside) = (None, None, String::new());
    LossyCast { row, value, inside, target: wanted.clone(), loses_digits: false, source: Some(Box::new(source)) }
}

/// What is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    ForLostDigits,
    /// Also for values that have no counterpart at all.
    ForAnything,
}

/// The first value that does not fit, of those that count: what stands where a struct or a list is NULL does not.
fn first_misfit(
    given: &ArrayRef,
    wanted: &DataType,
    seen: Option<&NullBuffer>,
    look: Look,
) -> Result<Option<LossyCast>, ArrowError> {
    match (given.data_type(), wanted) {
        (have, wanted) if have == wanted => Ok(None),
        (DataType::Dictionary(_, values), _) => first_misfit(&cast(given, values)?, wanted, seen, look),
        (DataType::RunEndEncoded(_, values), _) => first_misfit(&cast(given, values.data_type())?, wanted, seen, look),
        (_, DataType::Dictionary(_, values)) => first_misfit(given, values, seen, look),
        (_, DataType::RunEndEncoded(_, values)) => first_misfit(given, values.data_type(), seen, look),
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let rows = given.as_struct();
            let pairs = fields.iter().filter_map(|field| Some((field, rows.column_by_name(field.name())?)));
            let columns = pairs.map(|(field, values)| StructColumn {
                name: format!(".{}", field.name()),
                values,
                wanted: field.data_type(),
            });
            first_of_struct(rows, columns, seen, look)
        }
        (DataType::Map(..), DataType::Map(entries, _)) => {
            let DataType::Struct(fields) = entries.data_type() else { return Ok(None) };
            let map = given.as_map();
            let of_row = |row: usize| range(map.value_offsets().get(row), map.value_offsets().get(row + 1));
            let seen = values_seen(given, seen, map.entries().len(), &of_row);
            // Keys and values have their places, however they are called.
            let pairs = map.entries().columns().iter().zip(fields);
            let columns =
                pairs.map(|(values, field)| StructColumn { name: "[]".to_owned(), values, wanted: field.data_type() });
            Ok(of_list(first_of_struct(map.entries(), columns, Some(&seen), look)?, given.len(), &of_row))
        }
        (have, _) => match (item_of(have), item_of(wanted)) {
            (Some(_), Some(item)) => first_of_list(given, item.data_type(), seen, look),
            // A value becomes a list of itself alone.
            (None, Some(item)) => {
                let found = first_misfit(given, item.data_type(), seen, look)?;
                Ok(found.map(|found| LossyCast { inside: format!("[]{}", found.inside), ..found }))
            }
            _ => first_of_leaf(given, wanted, seen, look),
        },
    }
}

/// A column of a struct, and the type that it is to have.
struct StructColumn<'a> {
    /// What names it in the way to a value.
    name: String,
    values: &'a ArrayRef,
    wanted: &'a DataType,
}

fn first_of_struct<'a>(
    rows: &StructArray,
    columns: impl Iterator<Item = StructColumn<'a>>,
    seen: Option<&NullBuffer>,
    look: Look,
) -> Result<Option<LossyCast>, ArrowError> {
    let seen = NullBuffer::union(rows.nulls(), seen);
    for column in columns {
        if let Some(found) = first_misfit(column.values, column.wanted, seen.as_ref(), look)? {
            return Ok(Some(LossyCast { inside: format!("{}{}", column.name, found.inside), ..found }));
        }
    }
    Ok(None)
}

fn first_of_list(
    given: &ArrayRef,
    item: &DataType,
    seen: Option<&NullBuffer>,
    look: Look,
) -> Result<Option<LossyCast>, ArrowError> {
    let search = |values: &ArrayRef, of_row: &dyn Fn(usize) -> Range<usize>| {
        let seen = values_seen(given, seen, values.len(), of_row);
        let found = first_misfit(values, item, Some(&seen), look)?;
        let found = found.map(|found| LossyCast { inside: format!("[]{}", found.inside), ..found });
        Ok(of_list(found, given.len(), of_row))
    };
    match given.data_type() {
        DataType::List(_) => {
            let list = given.as_list::<i32>();
            search(list.values(), &|row| range(list.offsets().get(row), list.offsets().get(row + 1)))
        }
        DataType::LargeList(_) => {
            let list = given.as_list::<i64>();
            search(list.values(), &|row| range(list.offsets().get(row), list.offsets().get(row + 1)))
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or_default();
            search(given.as_fixed_size_list().values(), &|row| row * length..(row + 1) * length)
        }
        DataType::ListView(inner) => first_of_list(&cast(given, &DataType::List(inner.clone()))?, item, seen, look),
        DataType::LargeListView(inner) => {
            first_of_list(&cast(given, &DataType::LargeList(inner.clone()))?, item, seen, look)
        }
        _ => Ok(None),
    }
}

/// From one offset to the next.
fn range<T: Copy + TryInto<usize>>(from: Option<&T>, to: Option<&T>) -> Range<usize> {
    let place = |offset: Option<&T>| offset.and_then(|offset| (*offset).try_into().ok()).unwrap_or_default();
    place(from)..place(to)
}

/// Which of the values of lists belong to a list that counts.
fn values_seen(
    lists: &ArrayRef,
    seen: Option<&NullBuffer>,
    values: usize,
    of_row: &dyn Fn(usize) -> Range<usize>,
) -> NullBuffer {
    let mut mask = BooleanBufferBuilder::new(values);
    mask.append_n(values, false);
    for row in 0..lists.len() {
        if lists.is_valid(row) && seen.is_none_or(|seen| seen.is_valid(row)) {
            of_row(row).filter(|place| *place < values).for_each(|place| mask.set_bit(place, true));
        }
    }
    NullBuffer::new(mask.finish())
}

/// What was found among the values of lists, with the row of its list.
fn of_list(found: Option<LossyCast>, rows: usize, of_row: &dyn Fn(usize) -> Range<usize>) -> Option<LossyCast> {
    let found = found?;
    let row = found.row.and_then(|value| (0..rows).find(|row| of_row(*row).contains(&value)));
    Some(LossyCast { row, ..found })
}

fn first_of_leaf(
    given: &ArrayRef,
    wanted: &DataType,
    seen: Option<&NullBuffer>,
    look: Look,
) -> Result<Option<LossyCast>, ArrowError> {
    let is_open = |row: &usize| given.is_valid(*row) && seen.is_none_or(|seen| seen.is_valid(*row));
    let misfit = |row: usize, loses_digits| LossyCast {
        row: Some(row),
        value: array_value_to_string(given, row).ok(),
        inside: String::new(),
        target: wanted.clone(),
        loses_digits,
        source: None,
    };
    let fit = || cast_leaf(given, wanted, &CastOptions::default());
    if look == Look::ForAnything {
        let fit = fit()?;
        if let Some(row) = (0..given.len()).filter(is_open).find(|row| fit.is_null(*row)) {
            return Ok(Some(misfit(row, false)));
        }
    }
    let Some(lost) = leaf::lost(given, wanted, &fit)? else { return Ok(None) };
    Ok((0..given.len()).filter(is_open).find(|row| lost.value(*row)).map(|row| misfit(row, true)))
}

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;
