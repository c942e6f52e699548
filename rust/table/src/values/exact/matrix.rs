//! All pairs of simple types, and what must not go through between them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, DurationMicrosecondArray,
    DurationSecondArray, FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array, Int8Array, Int32Array,
    Int64Array, IntervalDayTimeArray, IntervalMonthDayNanoArray, IntervalYearMonthArray, ListArray, StringArray,
    StructArray, Time32SecondArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Field, Float16Type, Int64Type, IntervalDayTime, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};

use super::*;

const ZONE: &str = "+02:00";
/// Midnight of 1970-01-02 two hours east of Greenwich, in seconds.
const EASTERN_MIDNIGHT: i64 = 22 * 3_600;

fn decimals(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap())
}

fn seconds(values: &[i64], zone: Option<&str>) -> ArrayRef {
    Arc::new(TimestampSecondArray::from(values.to_vec()).with_timezone_opt(zone))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn f16(value: f32) -> <Float16Type as arrow::array::ArrowPrimitiveType>::Native {
    <Float16Type as arrow::array::ArrowPrimitiveType>::Native::from_f32(value)
}

/// Values of every simple type, among them those that other types have no room for.
fn samples() -> Vec<ArrayRef> {
    let (day, hour) = (86_400_000_000_i64, 3_600_000_000_i64);
    let micros = [0, 1, 1_500_000, hour, day, day - 2 * hour, day + hour, -1, i64::MAX, i64::MIN + 1];
    let doubles = [0.0, 1.0, 7.5, -7.5, 300.0, 1e10, 1e30, 1e300, f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0];
    let month_day_nano = |months, days, nanoseconds| IntervalMonthDayNano { months, days, nanoseconds };
    let bytes: Vec<&[u8]> = vec![b"ab", &[0xff, 0x00], &[7, 0]];
    vec![
        Arc::new(BooleanArray::from(vec![true, false])),
        Arc::new(Int8Array::from(vec![0, 1, -1, i8::MAX])),
        Arc::new(Int32Array::from(vec![0, 1, -1, 300, 86_400, i32::MAX])),
        Arc::new(Int64Array::from(vec![0, 1, -1, 300, 9_007_199_254_740_993, i64::MAX, i64::MIN])),
        Arc::new(UInt64Array::from(vec![0, 1, 300, u64::MAX])),
        Arc::new(Float16Array::from(vec![f16(0.0), f16(7.5), f16(300.0), f16(f32::NAN)])),
        Arc::new(Float32Array::from(vec![0.0, 7.5, 16_777_216.0, 1e30, f32::NAN, f32::INFINITY])),
        Arc::new(Float64Array::from(doubles.to_vec())),
        decimals(&[0, 100, 750, 12_345_678], 20, 2),
        decimals(&[0, 7, 900], 20, -2),
        texts(&[
            "7",
            "7.5",
            "x",
            "true",
            "1e400",
            "1970-01-02",
            "1970-01-02 13:00:00.1234567",
            "13:00:00.5",
            "1 month",
        ]),
        Arc::new(BinaryArray::from(bytes.clone())),
        Arc::new(FixedSizeBinaryArray::try_from_iter(bytes.into_iter()).unwrap()),
        Arc::new(Date32Array::from(vec![0, 1, -1, 90_000_000])),
        Arc::new(Date64Array::from(vec![0, 86_400_000, 3_600_000, -1, i64::MAX])),
        Arc::new(Time32SecondArray::from(vec![0, 1, 86_399])),
        Arc::new(Time64MicrosecondArray::from(vec![0, 1, 1_500_000, day - 1])),
        seconds(&[0, 1, 86_400, EASTERN_MIDNIGHT, -1, i64::MAX], None),
        Arc::new(TimestampMicrosecondArray::from(micros.to_vec())),
        Arc::new(TimestampMicrosecondArray::from(micros.to_vec()).with_timezone(ZONE)),
        Arc::new(TimestampNanosecondArray::from(vec![0, 1, 1_500, 86_400_000_000_000])),
        Arc::new(DurationSecondArray::from(vec![0, 1, -1, i64::MAX])),
        Arc::new(DurationMicrosecondArray::from(vec![0, 1, 1_500_000, 9_007_199_254_740_993])),
        Arc::new(IntervalYearMonthArray::from(vec![0, 13])),
        Arc::new(IntervalDayTimeArray::from(vec![IntervalDayTime::new(1, 500)])),
        Arc::new(IntervalMonthDayNanoArray::from(vec![
            month_day_nano(0, 0, 1_500_000_000),
            month_day_nano(0, 0, 1),
            month_day_nano(1, 2, 3),
        ])),
    ]
}

/// Types of targets that have no sample.
fn others() -> Vec<DataType> {
    vec![
        DataType::Decimal128(5, 0),
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::LargeBinary,
        DataType::BinaryView,
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Second, Some(ZONE.into())),
        DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        DataType::Duration(TimeUnit::Nanosecond),
    ]
}

/// Whether a cast back shows nothing. Text has many spellings, floats take the nearest number, and a zone moves an instant. A time or a
/// date of text has tests of its own. A type that another has room for may have no cast back.
fn is_one_way(have: &DataType, wanted: &DataType) -> bool {
    let is_zoned = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    let is_timestamp = |of: &DataType| matches!(of, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64);
    have.is_string()
        || wanted.is_string()
        || (have.is_numeric() && wanted.is_floating())
        || (have.is_floating() && wanted.is_decimal())
        || (is_timestamp(have) && is_zoned(wanted))
        || (is_zoned(have) && matches!(wanted, DataType::Timestamp(_, None)))
        || matches!((have, wanted), (DataType::Interval(_), DataType::Interval(_)))
        || matches!((have, wanted), (DataType::FixedSizeBinary(_), DataType::BinaryView))
        || matches!((have, wanted), (DataType::Timestamp(..), DataType::Time32(_) | DataType::Time64(_)))
}

#[test]
fn what_passes_between_any_two_types_comes_back_the_same() {
    let samples = samples();
    let wanted: Vec<DataType> = samples.iter().map(|sample| sample.data_type().clone()).chain(others()).collect();
    let mut passed = 0;
    for given in &samples {
        for wanted in &wanted {
            for row in 0..given.len() {
                let value = given.slice(row, 1);
                let Ok(fit) = cast_exactly(&value, wanted) else { continue };
                assert_eq!((fit.data_type(), fit.null_count()), (wanted, 0), "{value:?}");
                passed += 1;
                if is_one_way(given.data_type(), wanted) || given.data_type() == wanted {
                    continue;
                }
                let back = cast(&fit, given.data_type()).unwrap_or_else(|error| panic!("{value:?} {wanted}: {error}"));
                assert_eq!(distinct(&value, &back).unwrap().true_count(), 0, "{value:?} became {fit:?}");
            }
        }
    }
    assert!(passed > 500, "{passed}");
}

#[test]
fn times_and_lists_of_what_would_be_cut_are_refused() {
    let us = DataType::Timestamp(TimeUnit::Microsecond, None);
    let numbers = |of: DataType| DataType::List(Arc::new(Field::new("item", of, true)));
    let double = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
    let time = |of| DataType::Time64(of);
    for (given, wanted, value) in [
        (double(7.5), us.clone(), "7.5"),
        (double(f64::NAN), us.clone(), "NaN"),
        (double(f64::INFINITY), us.clone(), "inf"),
        (double(7.5), DataType::Duration(TimeUnit::Second), "7.5"),
        (double(f64::NAN), DataType::Duration(TimeUnit::Second), "NaN"),
        (decimals(&[750], 5, 2), us.clone(), "7.50"),
        (decimals(&[750], 5, 2), DataType::Duration(TimeUnit::Second), "7.50"),
        (double(7.5), numbers(DataType::Int64), "7.5"),
        (texts(&["1.239"]), numbers(DataType::Decimal128(5, 2)), "1.239"),
        (double(7.5), DataType::new_fixed_size_list(DataType::Int64, 1, true), "7.5"),
        (double(7.5), numbers(numbers(DataType::Int64)), "7.5"),
        (seconds(&[86_400], Some(ZONE)), DataType::Date32, "1970-01-02T02:00:00+02:00"),
        (seconds(&[86_400], Some(ZONE)), DataType::Date64, "1970-01-02T02:00:00+02:00"),
        (seconds(&[-7_200 + 86_400], Some(ZONE)), time(TimeUnit::Microsecond), "1970-01-02T00:00:00+02:00"),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![1_500_000])) as ArrayRef,
            DataType::Time32(TimeUnit::Second),
            "1970-01-01T00:00:01.500",
        ),
        (
            Arc::new(DurationMicrosecondArray::from(vec![9_007_199_254_740_993])),
            DataType::Float64,
            "PT9007199254.740993S",
        ),
        (Arc::new(Date64Array::from(vec![i64::MAX / 2])), us, "-"),
        (texts(&["1e400"]), DataType::Float64, "1e400"),
        (texts(&["-1e39"]), DataType::Float32, "-1e39"),
        (texts(&["1 month"]), DataType::Interval(IntervalUnit::DayTime), "1 month"),
    ] {
        let error = cast_exactly(&given, &wanted).expect_err(&format!("{given:?} {wanted}"));
        assert_eq!(error.row, Some(0), "{given:?} {wanted}: {error:?}");
        if value != "-" {
            assert_eq!(error.value.as_deref(), Some(value), "{given:?} {wanted}");
        }
    }
}

#[test]
fn a_day_is_that_of_the_zone() {
    for wanted in [DataType::Date32, DataType::Date64] {
        let fit = cast_exactly(&seconds(&[EASTERN_MIDNIGHT], Some(ZONE)), &wanted).unwrap();
        assert_eq!(array_value_to_string(&cast(&fit, &DataType::Date32).unwrap(), 0).unwrap(), "1970-01-02");
    }
    let time = cast_exactly(&seconds(&[3_600], Some(ZONE)), &DataType::Time32(TimeUnit::Second)).unwrap();
    assert_eq!(array_value_to_string(&time, 0).unwrap(), "03:00:00");
}

#[test]
fn pairs_of_types_that_nobody_knows_are_refused() {
    let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)])]));
    for (given, wanted) in [
        (list, DataType::Utf8),
        (Arc::new(Int32Array::from(vec![7])) as ArrayRef, DataType::Binary),
        (Arc::new(Int64Array::from(vec![7])), DataType::LargeBinary),
    ] {
        // Arrow has such a cast.
        cast_with_options(&given, &wanted, &CastOptions::default()).unwrap();
        let error = cast_exactly(&given, &wanted).unwrap_err();
        assert!(error.value.is_none() && error.source().is_some(), "{error:?}");
    }
}

#[test]
fn a_value_becomes_the_list_of_it_with_its_fields_by_name() {
    let numbers = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
    let given: ArrayRef = Arc::new(Float64Array::from(vec![Some(7.0), None]));
    let fit = cast_exactly(&given, &numbers).unwrap();
    assert_eq!(array_value_to_string(&fit, 0).unwrap(), "[7]");
    assert!(fit.is_null(1), "{fit:?}");

    let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    let column = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
    let given: ArrayRef = Arc::new(StructArray::from(vec![(field("a"), column(1)), (field("b"), column(2))]));
    let wanted = |names: [&str; 2]| {
        let fields = DataType::Struct(names.map(field).to_vec().into());
        DataType::List(Arc::new(Field::new("item", fields, true)))
    };
    let fit = cast_exactly(&given, &wanted(["b", "c"])).unwrap();
    assert_eq!(array_value_to_string(&fit, 0).unwrap(), "[{b: 2, c: }]");
    assert_eq!(crate::values::conform::unknown_field(given.data_type(), &wanted(["b", "c"])), Some("a".to_owned()));
}
