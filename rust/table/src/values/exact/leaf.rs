//! Which values of a column that is not nested a cast would cut.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast, or};
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int64Type, IntervalUnit, TimeUnit};
use arrow::error::ArrowError;

use crate::values::conform::cast_leaf;

/// Whether values lose digits in another type; none where that type has room for all of them. `fit` gives them in that type, NULL where a
/// value has no counterpart.
///
/// A value is kept if casting it back gives the same value. Pairs of types of which a cast back shows nothing have a rule of their own
/// before that.
///
/// # Errors
/// There is no cast back and no rule: nobody knows what such a cast drops.
pub(super) fn lost(
    given: &ArrayRef,
    wanted: &DataType,
    fit: &dyn Fn() -> Result<ArrayRef, ArrowError>,
) -> Result<Option<BooleanArray>, ArrowError> {
    let have = given.data_type();
    if is_exact(have, wanted) {
        return Ok(None);
    }
    if have.is_string() {
        return lost_of_text(given, wanted, fit).map(Some);
    }
    match (have, wanted) {
        (DataType::Timestamp(..), DataType::Date32 | DataType::Date64) => {
            // The day is that of the zone, and only its midnight is a day.
            lost_on_the_way(given, &DataType::Date32).map(Some)
        }
        (DataType::Timestamp(unit, _), DataType::Time32(kept) | DataType::Time64(kept)) => {
            // The day would be lost.
            let days = cast(given, &DataType::Date32)?;
            let is_late = BooleanArray::from_unary(days.as_primitive::<Date32Type>(), |day| day != 0);
            or(&is_late, &lost_of_ticks(given, *unit, *kept)?).map(Some)
        }
        (DataType::Timestamp(unit, _), DataType::Timestamp(kept, _)) => lost_of_ticks(given, *unit, *kept).map(Some),
        // A zone moves the instant, and the same wall clock comes back without one.
        (DataType::Date64, DataType::Timestamp(unit, Some(_))) => {
            lost_on_the_way(given, &DataType::Timestamp(*unit, None)).map(Some)
        }
        _ if have.is_floating() && (wanted.is_integer() || is_ticks(wanted)) => {
            let values = cast(given, &DataType::Float64)?;
            Ok(Some(BooleanArray::from_unary(values.as_primitive::<Float64Type>(), |value| value.fract() != 0.0)))
        }
        _ if have.is_floating() && wanted.is_decimal() => {
            let noise = noise_of(have);
            let moved = move |value: f64, fit: f64| (value - fit).abs() > value.abs() * noise;
            lost_of_floats(given, &fit()?, moved).map(Some)
        }
        // Floats take the nearest number.
        _ if have.is_numeric() && wanted.is_floating() => {
            lost_of_floats(given, &fit()?, |value, fit| value.is_finite() && fit.is_infinite()).map(Some)
        }
        _ => lost_on_the_way(given, wanted).map(Some),
    }
}

/// Whether a type says all that another one can say, or fails where it has no such value.
fn is_exact(have: &DataType, wanted: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Interval, Null, Timestamp};
    match (have, wanted) {
        (Null, _) | (Date32, Date64 | Timestamp(..)) => true,
        (Boolean, _) => wanted.is_numeric() || wanted.is_string(),
        (Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime), Interval(IntervalUnit::MonthDayNano)) => true,
        // A text is read as a whole, or not at all.
        _ if have.is_string() => wanted.is_string() || is_binary(wanted) || wanted.is_integer() || *wanted == Boolean,
        _ if wanted.is_string() => have.is_primitive() || is_binary(have),
        _ if is_binary(wanted) => is_binary(have),
        _ => have.is_integer() && (wanted.is_integer() || scale_of(wanted).is_some_and(|scale| scale >= 0)),
    }
}

fn is_binary(of: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(of, Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

/// Whether a type counts whole steps of time, which a number is taken for.
fn is_ticks(of: &DataType) -> bool {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    matches!(of, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_))
}

/// Values that are others after a cast to a type and back.
pub(super) fn lost_on_the_way(given: &ArrayRef, to: &DataType) -> Result<BooleanArray, ArrowError> {
    let (have, safe) = (given.data_type(), CastOptions::default());
    distinct(given, &cast_leaf(&cast_leaf(given, to, &safe)?, have, &safe)?)
}

fn lost_of_floats(
    given: &ArrayRef,
    fit: &ArrayRef,
    is_lost: impl Fn(f64, f64) -> bool,
) -> Result<BooleanArray, ArrowError> {
    Ok(BooleanArray::from_binary(
        cast(given, &DataType::Float64)?.as_primitive::<Float64Type>(),
        cast(fit, &DataType::Float64)?.as_primitive::<Float64Type>(),
        is_lost,
    ))
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

/// How many steps a second has.
fn ticks_of(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Timestamps that are no multiple of the steps that are kept. Zones are apart by whole seconds.
fn lost_of_ticks(given: &ArrayRef, unit: TimeUnit, kept: TimeUnit) -> Result<BooleanArray, ArrowError> {
    let step = (ticks_of(unit) / ticks_of(kept)).max(1);
    let ticks = cast(given, &DataType::Int64)?;
    Ok(BooleanArray::from_unary(ticks.as_primitive::<Int64Type>(), |tick| tick % step != 0))
}

/// What a type keeps of a text.
#[derive(Clone, Copy)]
enum TextPrecision {
    /// So many digits of a fraction.
    Fraction(usize),
    /// The date, and no time.
    Date,
}

/// None for a type in which no text loses a part.
fn kept_of_text(wanted: &DataType) -> Option<TextPrecision> {
    match wanted {
        DataType::Date32 | DataType::Date64 => Some(TextPrecision::Date),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            Some(TextPrecision::Fraction(match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            }))
        }
        _ => scale_of(wanted).map(|scale| TextPrecision::Fraction(usize::try_from(scale).unwrap_or_default())),
    }
}

fn lost_of_text(
    given: &ArrayRef,
    wanted: &DataType,
    fit: &dyn Fn() -> Result<ArrayRef, ArrowError>,
) -> Result<BooleanArray, ArrowError> {
    let texts = cast(given, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    if wanted.is_floating() {
        let fit = cast(&fit()?, &DataType::Float64)?;
        let values = fit.as_primitive::<Float64Type>().iter();
        let says_infinite = |text: &str| text.to_ascii_lowercase().contains("inf");
        let pairs = texts.iter().zip(values);
        let lost =
            pairs.map(|(text, value)| Some(value.is_some_and(f64::is_infinite) && !text.is_some_and(says_infinite)));
        return Ok(lost.collect());
    }
    if let DataType::Interval(_) = wanted {
        // The type without months takes a month for thirty days, say.
        let whole = DataType::Interval(IntervalUnit::MonthDayNano);
        return distinct(&cast(given, &whole)?, &cast(&fit()?, &whole)?);
    }
    let Some(kept) = kept_of_text(wanted) else {
        let (have, text) = (given.data_type(), "nobody knows what is lost");
        return Err(ArrowError::CastError(format!("{text} if {have} becomes {wanted}")));
    };
    let is_lost = |text: &str| match kept {
        TextPrecision::Fraction(digits) => {
            let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
            let end = fraction.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(fraction.len());
            fraction.get(..end).unwrap_or_default().trim_end_matches('0').len() > digits
        }
        TextPrecision::Date => {
            let time = text.trim().split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
            time.contains(|sign: char| ('1'..='9').contains(&sign))
        }
    };
    Ok(texts.iter().map(|text| Some(text.is_some_and(is_lost))).collect())
}
