//! Arrow values to keys: order, equality, and what has no key.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Int32Type, i256};
use lakemark_format::key::{Key, KeyType, MAX_KEY_LENGTH};
use lakemark_index::{LiteralKey, encode_literal, key_type_of};

/// The keys of the rows, each of which must have one.
fn keys(array: &dyn Array) -> Vec<Key> {
    (0..array.len())
        .map(|row| match encode_literal(array.slice(row, 1).as_ref()) {
            Some(LiteralKey::Key(key)) => key,
            other => panic!("row {row}: {other:?}"),
        })
        .collect()
}

#[test]
fn keys_ascend_with_the_values() {
    let ascending: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![false, true])),
        Arc::new(Int8Array::from(vec![i8::MIN, -1, 0, 1, i8::MAX])),
        Arc::new(Int64Array::from(vec![i64::MIN, -1, 0, 1, i64::MAX])),
        Arc::new(UInt64Array::from(vec![0, 1, u64::MAX])),
        Arc::new(Float32Array::from(vec![
            f32::NEG_INFINITY,
            f32::MIN,
            -1.5,
            0.0,
            f32::MIN_POSITIVE,
            1.5,
            f32::INFINITY,
        ])),
        Arc::new(Float64Array::from(vec![
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            0.0,
            f64::MIN_POSITIVE,
            1.5,
            f64::INFINITY,
        ])),
        Arc::new(Decimal128Array::from(vec![-10i128.pow(37), -1, 0, 1, 10i128.pow(37)])),
        Arc::new(Decimal256Array::from(vec![i256::MIN, i256::MINUS_ONE, i256::ZERO, i256::ONE, i256::MAX])),
        Arc::new(TimestampMicrosecondArray::from(vec![i64::MIN, -1, 0, i64::MAX]).with_timezone("UTC")),
        Arc::new(StringArray::from(vec!["", "\u{0}", "a", "ab", "b", "é", "日本"])),
        Arc::new(StringViewArray::from(vec!["", "a", "a string of more than twelve bytes"])),
        Arc::new(BinaryArray::from(vec![&b""[..], b"\x00", b"\x00\x00", b"\xff"])),
        Arc::new(FixedSizeBinaryArray::try_from_iter([[0u8, 1], [1, 0], [255, 0]].iter()).unwrap()),
    ];
    for array in ascending {
        let found = keys(array.as_ref());
        assert!(found.is_sorted_by(|a, b| a < b), "{}: {found:?}", array.data_type());
        let key_type = key_type_of(array.data_type()).unwrap();
        found.iter().for_each(|key| key_type.check(key).unwrap());
    }
}

#[test]
fn minus_zero_is_zero_and_nan_has_no_key() {
    let doubles = Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN]);
    let zero = keys(&doubles.slice(0, 2));
    assert_eq!(zero[0], zero[1]);
    assert_eq!(encode_literal(&doubles.slice(2, 1)), None);
    assert_eq!(encode_literal(&doubles.slice(3, 1)), None);
    let halves = Float16Array::from(vec![half(0x0000), half(0x8000)]);
    let zero = keys(&halves);
    assert_eq!(zero[0], zero[1]);
}

fn half(bits: u16) -> <arrow::datatypes::Float16Type as arrow::datatypes::ArrowPrimitiveType>::Native {
    <arrow::datatypes::Float16Type as arrow::datatypes::ArrowPrimitiveType>::Native::from_bits(bits)
}

#[test]
fn nulls_long_values_and_lists_have_no_key() {
    assert_eq!(encode_literal(&Int32Array::from(vec![None])), Some(LiteralKey::Null));
    let long = "x".repeat(MAX_KEY_LENGTH + 1);
    assert_eq!(encode_literal(&StringArray::from(vec![long.as_str()])), None);
    assert_eq!(
        encode_literal(&StringArray::from(vec![&long[1..]])),
        Some(LiteralKey::Key(Key::Bytes(long.as_bytes()[1..].to_vec())))
    );
    assert_eq!(key_type_of(&DataType::new_list(DataType::Int32, true)), None);
}

#[test]
fn dictionaries_have_the_keys_of_their_values() {
    let dictionary: DictionaryArray<Int32Type> = vec![Some("b"), None, Some("a"), Some("b")].into_iter().collect();
    assert_eq!(key_type_of(dictionary.data_type()), Some(KeyType::Utf8));
    assert_eq!(keys(&dictionary.slice(2, 1)), [Key::Bytes(b"a".to_vec())]);
    assert_eq!(encode_literal(&dictionary.slice(1, 1)), Some(LiteralKey::Null));
}
