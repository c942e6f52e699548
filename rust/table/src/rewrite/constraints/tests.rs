//! What constraints say of rows, and which of them are refused.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

use super::bind::bind;
use super::evaluate::Rows;

/// Four rows; the columns have NULL in the third or the fourth.
fn rows() -> RecordBatch {
    let prices = Decimal128Array::from(vec![Some(150), Some(-1), None, Some(10_000)]);
    let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(4)]));
    let valid = NullBuffer::from(vec![true, false, true, true]);
    let place = StructArray::new(vec![Field::new("X", DataType::Int32, true)].into(), vec![x], Some(valid));
    let columns: [(&str, ArrayRef); 9] = [
        ("k", Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(4)]))),
        ("n", Arc::new(Int64Array::from(vec![Some(10), Some(-5), Some(0), None]))),
        ("p", Arc::new(prices.with_precision_and_scale(7, 2).unwrap())),
        ("x", Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::NAN), Some(-0.0), None]))),
        ("f", Arc::new(Float32Array::from(vec![Some(0.1), Some(1.0), Some(2.5), None]))),
        ("s", Arc::new(StringArray::from(vec![Some("a"), Some("äöü"), Some(""), None]))),
        ("d", Arc::new(Date32Array::from(vec![Some(19_753), Some(-25_568), None, Some(19_754)]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
        ("place", Arc::new(place)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// The truth of each row: T, F or N.
fn truth(text: &str) -> Result<String, ArrowError> {
    let rows = rows();
    let condition = bind(text, rows.schema_ref()).unwrap_or_else(|error| panic!("{text}: it {error}"));
    let rows = Rows { schema: rows.schema_ref(), columns: rows.columns(), count: rows.num_rows() };
    let letter = |truth: Option<bool>| match truth {
        Some(true) => 'T',
        Some(false) => 'F',
        None => 'N',
    };
    Ok(rows.truth(&condition)?.iter().map(letter).collect())
}

#[test]
fn conditions_are_what_spark_says() {
    for (text, expected) in [
        ("k > 1", "FTNT"),
        ("k > 1 AND n < 0", "FTFN"),
        ("k > 1 OR n < 0", "FTNT"),
        ("NOT k > 1", "TFNF"),
        ("k IS NULL", "FFTF"),
        ("k IS NOT NULL AND (k >= 2 OR s = 'a')", "TTFT"),
        ("k IN (1, 4)", "TFNT"),
        ("k NOT IN (1, NULL)", "FNNN"),
        ("k BETWEEN 2 AND 4", "FTNT"),
        ("k NOT BETWEEN 2 AND 4", "TFNF"),
        ("k <=> NULL", "FFTF"),
        ("k <=> 2", "FTFF"),
        ("k IS DISTINCT FROM 2", "TFTT"),
        ("2 = k", "FTNF"),
        ("-1 < k", "TTNT"),
        ("1 = 1.0", "TTTT"),
        ("'a' = 'b'", "FFFF"),
        ("NULL", "NNNN"),
        ("true", "TTTT"),
        ("k > NULL", "NNNN"),
        ("b", "TFNT"),
        ("NOT b", "FTNF"),
        ("b IS TRUE", "TFFT"),
        ("b IS NOT FALSE", "TFTT"),
        ("b = true", "TFNT"),
        ("(k > 1) = b", "FFNT"),
        ("place.x = 1", "TNNF"),
        ("PLACE.X IS NULL", "FTTF"),
        ("place IS NULL", "FTFF"),
    ] {
        assert_eq!(truth(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn values_are_compared_as_spark_types_them() {
    for (text, expected) in [
        ("p > 0", "TFNT"),
        ("p = 1.5", "TFNF"),
        ("p < 1.505", "TTNF"),
        ("p > k", "TFNT"),
        ("n > 9223372036854775806", "FFFN"),
        ("n < 99999999999999999999", "TTTN"),
        ("x = x", "TTTN"),
        ("x = 0", "FFTN"),
        ("x > 1e300", "FTFN"),
        ("x >= 0", "TTTN"),
        // A decimal beside a number of 32 bits makes both one of 64.
        ("f = 0.1", "FFFN"),
        ("f = 1", "FTFN"),
        ("f > 2.25", "FFTN"),
        ("s = 'a'", "TFFN"),
        ("s LIKE 'ä_ü'", "FTFN"),
        ("s NOT LIKE '%a%'", "FTTN"),
        ("length(s) = 3", "FTFN"),
        ("LENGTH(s) > 0 AND `s` != \"x\"", "TTFN"),
        ("d > '1900-01-01'", "TFNT"),
        ("d >= DATE '2024-02-01'", "FFNT"),
        ("d = CAST('2024-01-31' AS DATE)", "TFNF"),
        ("k + 1 > n", "FTNN"),
        ("n % 2 = 0", "TFTN"),
        ("k * 2 - 1 = 7", "FFNT"),
    ] {
        assert_eq!(truth(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn a_number_that_its_type_does_not_have_is_an_error() {
    for text in ["k + 2147483647 > 0", "n % 0 = 1"] {
        assert!(truth(text).is_err(), "{text}");
    }
}

#[test]
fn what_engines_do_in_ways_of_their_own_is_refused() {
    let deep = format!("{}true", "k > 1 AND ".repeat(100));
    for (text, why) in [
        ("upper(s) = 'A'", "the function `upper(s)`"),
        ("k / 2 > 1", "`/`"),
        ("s > 5", "compares Utf8 with the number 5"),
        ("s = k", "compares Utf8 with Int32"),
        ("d > 'yesterday'", "compares a date with the text 'yesterday'"),
        ("x > p", "compares Float64 with Decimal128(7, 2)"),
        ("missing = 1", "the column `missing`"),
        ("place.y = 1", "the column `place.y`"),
        ("k", "`k` for a condition"),
        ("s LIKE 'a\\%'", "has the literal"),
        ("k > 1; DROP TABLE t", "more than a condition"),
        ("k >", "cannot be read as SQL"),
        (deep.as_str(), "too deep"),
    ] {
        let error = bind(text, rows().schema_ref()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}
