use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Date64Array, Decimal128Array, DictionaryArray, FixedSizeListArray, Float32Array,
    Float64Array, Int64Array, ListArray, MapArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int8Type, TimeUnit};

use super::*;

fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn decimals(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap())
}

fn moments(values: &[i64], zone: Option<&str>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(values.to_vec()).with_timezone_opt(zone))
}

fn optional(name: &str, of: DataType) -> Arc<Field> {
    Arc::new(Field::new(name, of, true))
}

/// The value that does not fit, where it is, and whether it only loses digits.
fn misfit(given: &ArrayRef, wanted: &DataType) -> Option<(usize, String, String, bool)> {
    let found = cast_exactly(given, wanted).err()?;
    Some((found.row.unwrap(), found.value.unwrap(), found.inside, found.loses_digits))
}

const DAY: i64 = 86_400_000_000;

#[test]
fn digits_that_would_be_lost_are_found() {
    let cents = DataType::Decimal128(5, 2);
    let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
    let dates64: ArrayRef = Arc::new(Date64Array::from(vec![0, 3_600_000]));
    let dictionary: DictionaryArray<Int8Type> = vec!["1.25", "1.239"].into_iter().collect();
    for (given, wanted, row, value) in [
        (floats(&[7.0, 7.5]), DataType::Int64, 1, "7.5"),
        (floats(&[1.5, 1.239]), cents.clone(), 1, "1.239"),
        (Arc::new(Float32Array::from(vec![1.5, 1.239])), cents.clone(), 1, "1.239"),
        (decimals(&[1200, 1239], 8, 3), cents.clone(), 1, "1.239"),
        (decimals(&[1200, 1239], 8, 2), DataType::Int32, 1, "12.39"),
        (texts(&["1.230", "1.239"]), cents.clone(), 1, "1.239"),
        (Arc::new(dictionary), cents.clone(), 1, "1.239"),
        (texts(&["2024-05-05", "2024-05-05 13:00:00"]), DataType::Date32, 1, "2024-05-05 13:00:00"),
        (texts(&["2024-05-05", "2024-05-05T00:00:00+02:00"]), DataType::Date32, 1, "2024-05-05T00:00:00+02:00"),
        (
            texts(&["2024-05-05 13:00:00.5", "2024-05-05 13:00:00.1234Z"]),
            milliseconds.clone(),
            1,
            "2024-05-05 13:00:00.1234Z",
        ),
        (moments(&[DAY, DAY + 1], None), DataType::Date32, 1, "1970-01-02T00:00:00.000001"),
        (moments(&[DAY, DAY + 1], Some("UTC")), DataType::Date64, 1, "1970-01-02T00:00:00.000001Z"),
        (moments(&[1_000, 1_001], Some("UTC")), milliseconds, 1, "1970-01-01T00:00:00.001001Z"),
        (moments(&[1_000, DAY], None), DataType::Time64(TimeUnit::Microsecond), 1, "1970-01-02T00:00:00"),
        (dates64, DataType::Date32, 1, "1970-01-01T01:00:00"),
        (floats(&[1.0, 1e300]), DataType::Float32, 1, "1e300"),
        (floats(&[1.0, 0.5]), DataType::Boolean, 1, "0.5"),
    ] {
        assert_eq!(misfit(&given, &wanted), Some((row, value.to_owned(), String::new(), true)), "{given:?} {wanted}");
    }
}

#[test]
fn values_that_have_no_counterpart_are_named_too() {
    for (given, wanted, value) in [
        (floats(&[1.0, f64::NAN]), DataType::Int64, "NaN"),
        (floats(&[1.0, f64::INFINITY]), DataType::Int64, "inf"),
        (floats(&[1.0, 3e9]), DataType::Int32, "3000000000.0"),
        (decimals(&[100, 123_456], 8, 2), DataType::Decimal128(5, 2), "1234.56"),
        (texts(&["7", "7.5"]), DataType::Int64, "7.5"),
        (texts(&["7", "x"]), DataType::Int64, "x"),
    ] {
        assert_eq!(misfit(&given, &wanted), Some((1, value.to_owned(), String::new(), false)), "{given:?} {wanted}");
    }
    let error = cast_exactly(&floats(&[1.0]), &DataType::Binary).unwrap_err();
    assert!(error.row.is_none() && error.source().is_some(), "{error:?}");
}

#[test]
fn what_fits_is_cast() {
    let zoned = |unit| DataType::Timestamp(unit, Some("UTC".into()));
    let days: ArrayRef = Arc::new(Date32Array::from(vec![19_000]));
    for (given, wanted) in [
        (floats(&[7.0, -0.0, 9_007_199_254_740_992.0]), DataType::Int64),
        (floats(&[1.1, 1.25, 0.1 + 0.2, -2.5, 123.45]), DataType::Decimal128(5, 2)),
        (floats(&[1e15 + 0.5, 123_456_789_012.34]), DataType::Decimal128(38, 4)),
        (Arc::new(Float32Array::from(vec![1.1, 999.99])), DataType::Decimal128(5, 2)),
        (floats(&[0.1, f64::NAN, f64::INFINITY]), DataType::Float32),
        (decimals(&[1230, 7000], 8, 3), DataType::Decimal128(5, 2)),
        (decimals(&[7000], 8, 3), DataType::Int16),
        (texts(&["7", "-3"]), DataType::Int64),
        (texts(&["1.230", "-1.2", ".5"]), DataType::Decimal128(5, 2)),
        (texts(&["2024-05-05", "2024-05-05 00:00:00", "2024-05-05T00:00:00.000Z"]), DataType::Date32),
        (texts(&["2024-05-05 13:00:00.120"]), DataType::Timestamp(TimeUnit::Millisecond, None)),
        (moments(&[DAY, -DAY], None), DataType::Date32),
        (moments(&[5_000], None), zoned(TimeUnit::Millisecond)),
        (moments(&[5_001], None), zoned(TimeUnit::Nanosecond)),
        (days, DataType::Timestamp(TimeUnit::Second, None)),
        (Arc::new(Int64Array::from(vec![i64::MAX])), DataType::Float64),
        (Arc::new(Int64Array::from(vec![1, 0])), DataType::Boolean),
    ] {
        let fit = cast_exactly(&given, &wanted).unwrap_or_else(|misfit| panic!("{given:?}: {misfit}"));
        assert_eq!((fit.data_type(), fit.null_count()), (&wanted, 0));
    }
}

#[test]
fn values_inside_of_others_are_looked_at_where_they_can_be_seen() {
    // Of three rows the second is NULL, and has a value that would not fit.
    let fields = Fields::from(vec![optional("a", DataType::Float64), optional("b", DataType::Float64)]);
    let structs = |last: f64| -> ArrayRef {
        let columns = vec![floats(&[1.0, 1.5, last]), floats(&[0.5, 0.5, 0.5])];
        Arc::new(StructArray::new(fields.clone(), columns, Some(NullBuffer::from(vec![true, false, true]))))
    };
    let wanted = DataType::Struct(vec![optional("a", DataType::Int64), optional("b", DataType::Float64)].into());
    assert_eq!(misfit(&structs(2.0), &wanted), None);
    assert_eq!(misfit(&structs(2.5), &wanted), Some((2, "2.5".to_owned(), ".a".to_owned(), true)));

    // Rows of two items each; of the second, which is NULL, nothing counts.
    let item = optional("item", DataType::Float64);
    let offsets = OffsetBuffer::from_lengths([2, 2, 2]);
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let lists = |last: f64| -> ArrayRef {
        let values = floats(&[1.0, 2.0, 3.5, 4.0, 5.0, last]);
        Arc::new(ListArray::new(Arc::clone(&item), offsets.clone(), values, nulls.clone()))
    };
    let wanted = DataType::List(optional("element", DataType::Int64));
    assert_eq!(misfit(&lists(6.0), &wanted), None);
    let found = Some((2, "6.5".to_owned(), "[]".to_owned(), true));
    assert_eq!(misfit(&lists(6.5), &wanted), found);
    assert_eq!(misfit(&lists(6.5), &DataType::LargeList(optional("element", DataType::Int64))), found);
    let fixed: ArrayRef =
        Arc::new(FixedSizeListArray::new(Arc::clone(&item), 2, floats(&[1.0, 2.0, 3.5, 4.0, 5.0, 6.5]), nulls.clone()));
    assert_eq!(misfit(&fixed, &wanted), found);

    let entries = Fields::from(vec![
        Arc::new(Field::new("key", DataType::Utf8, false)),
        optional("value", DataType::Struct(fields.clone())),
    ]);
    let keys = texts(&["a", "b", "c"]);
    let inner: ArrayRef = structs(2.5);
    let map: ArrayRef = Arc::new(MapArray::new(
        Arc::new(Field::new("entries", DataType::Struct(entries.clone()), false)),
        OffsetBuffer::from_lengths([1, 2]),
        StructArray::new(entries, vec![keys, inner], None),
        None,
        false,
    ));
    let wanted = |of: DataType| {
        let value = DataType::Struct(vec![optional("a", of), optional("b", DataType::Float64)].into());
        let key = Arc::new(Field::new("key", DataType::Utf8, false));
        let entries = DataType::Struct(vec![key, optional("value", value)].into());
        DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
    };
    assert_eq!(misfit(&map, &wanted(DataType::Float32)), None);
    assert_eq!(misfit(&map, &wanted(DataType::Int64)), Some((1, "2.5".to_owned(), "[].a".to_owned(), true)));
}
