//! Values as SQL writes them, by their Arrow type: the one place where reports of every engine take the text of a value from.
//!
//! The text can be pasted back into a condition on a column of the type. A date is `'2001-02-01'` and no number of days: DataFusion and Spark
//! both compare such a text with a date, a time or a timestamp as one.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

const NULL: &str = "NULL";
const MIDNIGHT: &str = "T00:00:00";

/// The value of a row as a literal.
#[must_use]
pub fn literal_text(values: &dyn Array, row: usize) -> String {
    if row >= values.len() || values.is_null(row) {
        return NULL.to_owned();
    }
    written(values, row).unwrap_or_else(|_| shown(values, row).unwrap_or_else(|_| values.data_type().to_string()))
}

/// A text in single quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn written(values: &dyn Array, row: usize) -> Result<String, ArrowError> {
    Ok(match values.data_type() {
        DataType::Null => NULL.to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => quoted(&shown(values, row)?),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            format!("X'{}'", shown(values, row)?)
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => number(&shown(values, row)?),
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            decimal(&shown(values, row)?)
        }
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(_, _) => {
            time(values, row)?
        }
        DataType::Interval(_) => format!("INTERVAL '{}'", shown(values, row)?),
        DataType::Dictionary(_, value) => literal_text(cast(&values.slice(row, 1), value)?.as_ref(), 0),
        DataType::List(_) => list(&values.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&values.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => list(&values.as_fixed_size_list().value(row)),
        _ => shown(values, row)?,
    })
}

/// As Arrow shows it to people.
fn shown(values: &dyn Array, row: usize) -> Result<String, ArrowError> {
    ArrayFormatter::try_new(values, &FormatOptions::default())?.value(row).try_to_string()
}

fn list(elements: &ArrayRef) -> String {
    let texts: Vec<String> = (0..elements.len()).map(|place| literal_text(elements.as_ref(), place)).collect();
    format!("[{}]", texts.join(", "))
}

/// A float. Most are written without a fraction where they have none.
fn number(shown: &str) -> String {
    match shown {
        "NaN" => "CAST('NaN' AS DOUBLE)".to_owned(),
        "inf" => "CAST('Infinity' AS DOUBLE)".to_owned(),
        "-inf" => "CAST('-Infinity' AS DOUBLE)".to_owned(),
        // Without its fraction it would be the integer that has no sign.
        "-0.0" | "-0" => "-0.0".to_owned(),
        _ => shown.strip_suffix(".0").unwrap_or(shown).to_owned(),
    }
}

/// A decimal without the zeros at its end, which come from its type and not from who wrote it.
fn decimal(shown: &str) -> String {
    if shown.contains('.') { shown.trim_end_matches('0').trim_end_matches('.').to_owned() } else { shown.to_owned() }
}

/// A date, a time or a timestamp in quotes. A timestamp without a zone is a date if it is midnight; one with a zone has its offset.
fn time(values: &dyn Array, row: usize) -> Result<String, ArrowError> {
    let text = match values.data_type() {
        DataType::Timestamp(unit, Some(_)) => shown(values, row).or_else(|_| {
            // A zone that nobody here knows: the same instant in another one.
            let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
            shown(&cast(&values.slice(row, 1), &utc)?, 0)
        }),
        _ => shown(values, row).map(|text| text.strip_suffix(MIDNIGHT).map(str::to_owned).unwrap_or(text)),
    };
    match text {
        // Years of more than four digits have a sign, which no engine reads.
        Ok(text) if !text.starts_with(['+', '-']) => Ok(quoted(&text)),
        _ => {
            let steps = match values.data_type() {
                DataType::Date32 | DataType::Time32(_) => DataType::Int32,
                _ => DataType::Int64,
            };
            let steps = shown(&cast(&values.slice(row, 1), &steps)?, 0)?;
            Ok(arrow_cast(&steps, values.data_type()))
        }
    }
}

/// What DataFusion reads as a value of a type.
fn arrow_cast(number: &str, of: &DataType) -> String {
    format!("arrow_cast({number}, {})", quoted(&of.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, DictionaryArray,
        FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, NullArray, StringArray,
        StringViewArray, Time32SecondArray, Time64MicrosecondArray, TimestampMicrosecondArray,
        TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
    };
    use arrow::datatypes::{Int8Type, Int32Type};

    use super::*;

    fn only(value: impl Array + 'static) -> String {
        literal_text(&value, 0)
    }

    #[test]
    fn numbers_are_plain() {
        assert_eq!(only(Int64Array::from(vec![-7])), "-7");
        assert_eq!(only(UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
        assert_eq!(only(BooleanArray::from(vec![true])), "true");
        let decimals = Decimal128Array::from(vec![-125]).with_precision_and_scale(10, 2).unwrap();
        assert_eq!(only(decimals), "-1.25");
        let decimals = Decimal128Array::from(vec![1_250_000, 500_000, 1_000]).with_precision_and_scale(10, 6).unwrap();
        assert_eq!([0, 1, 2].map(|row| literal_text(&decimals, row)), ["1.25", "0.5", "0.001"]);
        let whole = Decimal128Array::from(vec![100, 0]).with_precision_and_scale(10, 0).unwrap();
        assert_eq!([0, 1].map(|row| literal_text(&whole, row)), ["100", "0"]);
        assert_eq!(only(Float64Array::from(vec![15.0])), "15");
        assert_eq!(only(Float32Array::from(vec![0.1])), "0.1");
        assert_eq!(only(Float64Array::from(vec![-0.0])), "-0.0");
        assert_eq!(only(Float64Array::from(vec![1e300])), "1e300");
        assert_eq!(only(Float64Array::from(vec![f64::NAN])), "CAST('NaN' AS DOUBLE)");
        assert_eq!(only(Float64Array::from(vec![f64::NEG_INFINITY])), "CAST('-Infinity' AS DOUBLE)");
    }

    #[test]
    fn texts_and_bytes_are_quoted() {
        assert_eq!(only(StringArray::from(vec!["d'or"])), "'d''or'");
        assert_eq!(only(StringViewArray::from(vec![""])), "''");
        assert_eq!(only(BinaryArray::from_vec(vec![[0_u8, 255].as_slice()])), "X'00ff'");
        assert_eq!(only(BinaryViewArray::from(vec![b"a".as_slice()])), "X'61'");
        let fixed = FixedSizeBinaryArray::try_from_iter([[1_u8, 2]].into_iter()).unwrap();
        assert_eq!(only(fixed), "X'0102'");
        let named: DictionaryArray<Int8Type> = ["UA", "AA"].into_iter().collect();
        assert_eq!((literal_text(&named, 0), literal_text(&named, 1)), ("'UA'".to_owned(), "'AA'".to_owned()));
    }

    #[test]
    fn dates_and_times_are_no_numbers() {
        assert_eq!(only(Date32Array::from(vec![11_354])), "'2001-02-01'");
        assert_eq!(only(Date64Array::from(vec![980_985_600_000])), "'2001-02-01'");
        assert_eq!(only(Time32SecondArray::from(vec![3_661])), "'01:01:01'");
        assert_eq!(only(Time64MicrosecondArray::from(vec![500_000])), "'00:00:00.500'");
        assert_eq!(only(TimestampMicrosecondArray::from(vec![980_985_600_000_000])), "'2001-02-01'");
        assert_eq!(only(TimestampSecondArray::from(vec![980_985_601])), "'2001-02-01T00:00:01'");
        assert_eq!(only(TimestampNanosecondArray::from(vec![1])), "'1970-01-01T00:00:00.000000001'");
        assert_eq!(only(TimestampSecondArray::from(vec![-1])), "'1969-12-31T23:59:59'");
    }

    #[test]
    fn a_timestamp_with_a_zone_has_its_offset() {
        let zoned = |zone: &str| TimestampMillisecondArray::from(vec![980_985_600_002]).with_timezone(zone);
        assert_eq!(only(zoned("+00:00")), "'2001-02-01T00:00:00.002Z'");
        assert_eq!(only(zoned("+02:00")), "'2001-02-01T02:00:00.002+02:00'");
        assert_eq!(only(zoned("Nowhere/Nothing")), "'2001-02-01T00:00:00.002Z'");
        assert_eq!(only(TimestampSecondArray::from(vec![0]).with_timezone("+00:00")), "'1970-01-01T00:00:00Z'");
    }

    #[test]
    fn what_no_calendar_has_is_a_number_of_its_type() {
        assert_eq!(only(Date32Array::from(vec![i32::MAX])), "arrow_cast(2147483647, 'Date32')");
        assert_eq!(only(Date32Array::from(vec![2_932_897])), "arrow_cast(2932897, 'Date32')");
        let far = TimestampMicrosecondArray::from(vec![i64::MAX]);
        assert_eq!(only(far), "arrow_cast(9223372036854775807, 'Timestamp(µs)')");
    }

    #[test]
    fn lists_have_their_elements_and_nothing_is_null() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None]), None]);
        assert_eq!((literal_text(&list, 0), literal_text(&list, 1)), ("[1, NULL]".to_owned(), "NULL".to_owned()));
        assert_eq!(only(NullArray::new(1)), "NULL");
        assert_eq!(literal_text(Arc::new(Int32Array::from(vec![1])).as_ref(), 1), "NULL");
    }
}
