//! Which values of a column that is not nested a cast would cut.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;

/// Whether values lose digits in another type; none where that type has room for all of them. `fit` gives them in that type, NULL where one
/// has no counterpart.
pub(super) fn lost(
    given: &ArrayRef,
    wanted: &DataType,
    fit: &dyn Fn() -> Result<ArrayRef, ArrowError>,
) -> Result<Option<BooleanArray>, ArrowError> {
    let have = given.data_type();
    if have.is_string() {
        return digits_of_text(wanted).map(|kept| lost_of_text(given, kept)).transpose();
    }
    if let (Some(have), Some(kept)) = (ticks_of(have, wanted), ticks_of(wanted, have)) {
        return (have > kept).then(|| lost_of_ticks(given, have / kept)).transpose();
    }
    match (have, wanted) {
        (DataType::Timestamp(unit, _), DataType::Time32(_) | DataType::Time64(_)) => {
            // The day would be lost.
            let (day, ticks) = (ticks_of_unit(*unit), cast(given, &DataType::Int64)?);
            Ok(Some(BooleanArray::from_unary(ticks.as_primitive::<Int64Type>(), |tick| !(0..day).contains(&tick))))
        }
        _ if have.is_floating() && wanted.is_integer() => {
            let values = cast(given, &DataType::Float64)?;
            Ok(Some(BooleanArray::from_unary(values.as_primitive::<Float64Type>(), |value| value.fract() != 0.0)))
        }
        _ if have.is_floating() && wanted.is_decimal() => {
            let noise = noise_of(have);
            let moved = move |value: f64, fit: f64| (value - fit).abs() > value.abs() * noise;
            Ok(Some(BooleanArray::from_binary(
                cast(given, &DataType::Float64)?.as_primitive::<Float64Type>(),
                cast(&fit()?, &DataType::Float64)?.as_primitive::<Float64Type>(),
                moved,
            )))
        }
        _ if have.is_numeric() && matches!(wanted, DataType::Float16 | DataType::Float32) => {
            Ok(Some(BooleanArray::from_binary(
                cast(given, &DataType::Float64)?.as_primitive::<Float64Type>(),
                cast(&fit()?, &DataType::Float64)?.as_primitive::<Float64Type>(),
                |value: f64, fit: f64| value.is_finite() && fit.is_infinite(),
            )))
        }
        _ if has_less_room(have, wanted) => {
            let back = cast_with_options(&fit()?, have, &CastOptions::default())?;
            distinct(given, &back).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether exact numbers may be cut.
fn has_less_room(have: &DataType, wanted: &DataType) -> bool {
    match (scale_of(have), scale_of(wanted)) {
        (Some(have), Some(wanted)) => wanted < have,
        (Some(_), None) => wanted.is_integer() || *wanted == DataType::Boolean,
        (None, Some(wanted)) => have.is_integer() && wanted < 0,
        (None, None) => have.is_numeric() && *wanted == DataType::Boolean,
    }
}

fn scale_of(of: &DataType) -> Option<i8> {
    match of {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

/// How far a binary fraction may be from the decimal one that it stands for, relative to its size: its own precision and that of the cast.
fn noise_of(floats: &DataType) -> f64 {
    match floats {
        DataType::Float16 => 1e-3,
        DataType::Float32 => 1e-7,
        _ => 1e-15,
    }
}

/// How many steps a day has in a type, of those that are steps in `other`, too.
fn ticks_of(of: &DataType, other: &DataType) -> Option<i64> {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    match (of, other) {
        (Timestamp(unit, _), Timestamp(..) | Date32 | Date64)
        | (Time32(unit) | Time64(unit), Time32(_) | Time64(_))
        | (Duration(unit), Duration(_)) => Some(ticks_of_unit(*unit)),
        // Parquet keeps the day alone; a date that is to be written is not cut by it if it is one.
        (Date64, Date32 | Timestamp(..)) => Some(ticks_of_unit(TimeUnit::Millisecond)),
        (Date32, Date64 | Timestamp(..)) => Some(1),
        _ => None,
    }
}

fn ticks_of_unit(unit: TimeUnit) -> i64 {
    const SECONDS: i64 = 24 * 60 * 60;
    match unit {
        TimeUnit::Second => SECONDS,
        TimeUnit::Millisecond => SECONDS * 1_000,
        TimeUnit::Microsecond => SECONDS * 1_000_000,
        TimeUnit::Nanosecond => SECONDS * 1_000_000_000,
    }
}

/// Those that are no multiple of a step.
fn lost_of_ticks(given: &ArrayRef, step: i64) -> Result<BooleanArray, ArrowError> {
    let ticks = cast(given, &DataType::Int64)?;
    Ok(BooleanArray::from_unary(ticks.as_primitive::<Int64Type>(), |tick| tick % step != 0))
}

/// What a type keeps of a text.
#[derive(Clone, Copy)]
enum Kept {
    /// So many digits of a fraction.
    Fraction(usize),
    /// The date, and no time.
    Date,
}

fn digits_of_text(wanted: &DataType) -> Option<Kept> {
    match wanted {
        DataType::Date32 | DataType::Date64 => Some(Kept::Date),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            Some(Kept::Fraction(match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            }))
        }
        _ => scale_of(wanted).map(|scale| Kept::Fraction(usize::try_from(scale).unwrap_or_default())),
    }
}

fn lost_of_text(given: &ArrayRef, kept: Kept) -> Result<BooleanArray, ArrowError> {
    let texts = cast(given, &DataType::Utf8View)?;
    let is_lost = |text: &str| match kept {
        Kept::Fraction(digits) => {
            let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
            let end = fraction.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(fraction.len());
            fraction.get(..end).unwrap_or_default().trim_end_matches('0').len() > digits
        }
        Kept::Date => {
            let time = text.trim().split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
            time.contains(|sign: char| ('1'..='9').contains(&sign))
        }
    };
    Ok(texts.as_string_view().iter().map(|text| Some(text.is_some_and(is_lost))).collect())
}
