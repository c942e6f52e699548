//! Literals of constraints, as the values of what they are compared with.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Date32Type, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// The most digits of a decimal.
const MOST_DIGITS: usize = 38;

/// A number as an array of length 1, to be compared with values of a type: as Spark types it, and then as what both become.
///
/// # Errors
/// What the constraint does that no engine need do in the same way.
pub(super) fn number(text: &str, beside: &DataType) -> Result<ArrayRef, String> {
    let is_exponential = text.contains(['e', 'E']);
    let is_whole = !is_exponential && !text.contains('.');
    let too_large = || format!("has the number {text}, which is none of a type that is known");
    let double = || text.parse::<f64>().map_err(|_| too_large());
    match beside {
        _ if is_exponential => Ok(Arc::new(Float64Array::from(vec![double()?]))),
        DataType::Float32 if is_whole => {
            Ok(Arc::new(Float32Array::from(vec![text.parse::<i64>().map_err(|_| too_large())? as f32])))
        }
        DataType::Float32 | DataType::Float64 => Ok(Arc::new(Float64Array::from(vec![double()?]))),
        _ if beside.is_integer() || beside.is_decimal() => {
            let whole: Option<ArrayRef> = text.parse::<i64>().ok().filter(|_| is_whole).map(|value| {
                let whole: ArrayRef = Arc::new(Int64Array::from(vec![value]));
                whole
            });
            whole.or_else(|| decimal(text)).ok_or_else(too_large)
        }
        other => Err(format!("compares {other} with the number {text}")),
    }
}

/// A whole number in the narrowest type that Spark gives it: a term of a sum.
pub(super) fn whole_number(text: &str) -> Result<ArrayRef, String> {
    if let Ok(value) = text.parse::<i32>() {
        return Ok(Arc::new(Int32Array::from(vec![value])));
    }
    let value = text.parse::<i64>().map_err(|_| format!("calculates with {text}, which is no whole number"))?;
    Ok(Arc::new(Int64Array::from(vec![value])))
}

/// A number with its own digits.
fn decimal(text: &str) -> Option<ArrayRef> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let scale = i8::try_from(fraction.len()).ok()?;
    let precision = digits.trim_start_matches('0').len().max(fraction.len()).max(1);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) || precision > MOST_DIGITS {
        return None;
    }
    let unscaled = digits.parse::<i128>().ok()?;
    let signed = if unsigned == text { unscaled } else { -unscaled };
    let value = Decimal128Array::from(vec![signed]).with_precision_and_scale(u8::try_from(precision).ok()?, scale);
    Some(Arc::new(value.ok()?))
}

/// A text as an array of length 1, to be compared with values of a type.
///
/// # Errors
/// What the constraint does that no engine need do in the same way.
pub(super) fn text(text: &str, beside: &DataType) -> Result<ArrayRef, String> {
    let unclear = |what: &str| format!("compares {what} with the text '{text}'");
    match beside {
        DataType::Utf8 | DataType::LargeUtf8 => Ok(Arc::new(StringArray::from(vec![text]))),
        DataType::Date32 => date(text).ok_or_else(|| unclear("a date")),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            let micros = local_micros(text).ok_or_else(|| unclear("a timestamp"))?;
            Ok(Arc::new(TimestampMicrosecondArray::from(vec![micros])))
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) => {
            // Without an offset it is a moment of the session's zone.
            let moment = DateTime::parse_from_rfc3339(&text.replacen(' ', "T", 1));
            let moment = moment.map_err(|_| format!("{}, which has no offset from UTC", unclear("a timestamp")))?;
            let micros = TimestampMicrosecondArray::from(vec![moment.timestamp_micros()]);
            Ok(Arc::new(micros.with_timezone(Arc::clone(zone))))
        }
        other => Err(unclear(&other.to_string())),
    }
}

/// A date that is written in full.
pub(super) fn date(text: &str) -> Option<ArrayRef> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| text.len() == "2000-01-01".len())?;
    Some(Arc::new(Date32Array::from(vec![Date32Type::from_naive_date(date)])))
}

/// Microseconds of a wall clock.
fn local_micros(text: &str) -> Option<i64> {
    let day = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
    let moment = NaiveDateTime::parse_from_str(&text.replacen(' ', "T", 1), "%Y-%m-%dT%H:%M:%S%.f").ok();
    moment.or_else(day).map(|moment| moment.and_utc().timestamp_micros())
}
