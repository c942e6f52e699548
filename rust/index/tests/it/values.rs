//! Keys back to values: whatever becomes a key comes back as it was, but for -0.0.

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Float16Type, Int32Type, TimeUnit, i256};
use lakemark_format::key::{Key, KeyType};
use lakemark_index::{LiteralKey, decode_keys, encode_literal, is_ambiguous, key_type_of};
use proptest::prelude::*;

fn keys(array: &dyn Array) -> Vec<LiteralKey> {
    (0..array.len()).map(|row| encode_literal(array.slice(row, 1).as_ref()).unwrap()).collect()
}

fn round_trip(array: &dyn Array) {
    let back = decode_keys(&keys(array), array.data_type()).unwrap();
    assert_eq!(back.data_type(), array.data_type());
    assert_eq!(back.as_ref(), array);
}

/// Every type that is stored as an integer of at most 64 bits.
fn integer_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Date32, Date64];
    types.extend([Time32(TimeUnit::Second), Time32(TimeUnit::Millisecond)]);
    types.extend([Time64(TimeUnit::Microsecond), Time64(TimeUnit::Nanosecond)]);
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        types.extend([Timestamp(unit, None), Timestamp(unit, Some("Europe/Zurich".into()))]);
    }
    types
}

proptest! {
    #[test]
    fn integers_dates_and_times_come_back(numbers in prop::collection::vec(prop::option::of(any::<i64>()), 0..20)) {
        for data_type in integer_types() {
            // Numbers that the type cannot hold become NULL, which has to come back, too.
            let half = match data_type {
                DataType::Date32 | DataType::Time32(_) => DataType::Int32,
                _ => DataType::Int64,
            };
            let array = cast(&cast(&Int64Array::from(numbers.clone()), &half).unwrap(), &data_type).unwrap();
            round_trip(array.as_ref());
        }
    }

    #[test]
    fn extreme_numbers_come_back(signed in any::<i64>(), unsigned in any::<u64>(), wide in any::<i128>()) {
        round_trip(&Int64Array::from(vec![i64::MIN, -1, 0, 1, i64::MAX, signed]));
        round_trip(&UInt64Array::from(vec![0, 1, u64::MAX, unsigned]));
        round_trip(&Decimal32Array::from(vec![Some(i32::MIN), None, Some(signed as i32)]).with_data_type(DataType::Decimal32(9, 3)));
        round_trip(&Decimal64Array::from(vec![Some(i64::MIN), None, Some(signed)]).with_data_type(DataType::Decimal64(18, -2)));
        round_trip(&Decimal128Array::from(vec![Some(i128::MIN), Some(i128::MAX), None, Some(wide)]).with_data_type(DataType::Decimal128(38, 10)));
        let widest = [i256::MIN, i256::MAX, i256::ZERO, i256::MINUS_ONE, i256::from_i128(wide)];
        round_trip(&Decimal256Array::from_iter(widest.map(Some)).with_data_type(DataType::Decimal256(76, 0)));
    }

    #[test]
    fn floats_come_back_but_for_the_sign_of_zero(bits in prop::collection::vec(any::<u64>(), 1..50)) {
        let doubles: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits)).filter(|value| !value.is_nan()).collect();
        let singles: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits as u32)).filter(|value| !value.is_nan()).collect();
        let halves = bits.iter().map(|bits| <Float16Type as arrow::array::ArrowPrimitiveType>::Native::from_bits(*bits as u16));
        let halves: Vec<_> = halves.filter(|value| !value.is_nan() && value.to_bits() != 0x8000).collect();
        round_trip(&Float64Array::from_iter_values(doubles.into_iter().map(|value| value + 0.0)));
        round_trip(&Float32Array::from_iter_values(singles.into_iter().map(|value| value + 0.0)));
        round_trip(&Float16Array::from_iter_values(halves));
    }

    #[test]
    fn texts_and_bytes_come_back(
        texts in prop::collection::vec(prop::option::of(any::<String>()), 0..20),
        blobs in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        fixed in prop::collection::vec(any::<[u8; 5]>(), 1..20),
    ) {
        let plain = StringArray::from(texts);
        for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
            round_trip(cast(&plain, &data_type).unwrap().as_ref());
        }
        let plain = BinaryArray::from_iter(blobs);
        for data_type in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView] {
            round_trip(cast(&plain, &data_type).unwrap().as_ref());
        }
        round_trip(&FixedSizeBinaryArray::try_from_iter(fixed.iter()).unwrap());
    }
}

#[test]
fn nulls_of_every_type_come_back() {
    let mut types = integer_types();
    types.extend([DataType::Float16, DataType::Float32, DataType::Float64, DataType::Decimal128(9, 2)]);
    types.extend([DataType::Utf8, DataType::BinaryView, DataType::FixedSizeBinary(3)]);
    for data_type in types {
        round_trip(new_null_array(&data_type, 3).as_ref());
        assert_eq!(decode_keys(&[], &data_type).unwrap().data_type(), &data_type);
    }
}

#[test]
fn a_dictionary_comes_back_as_one() {
    let array: DictionaryArray<Int32Type> = [Some("b"), None, Some("a"), Some("b")].into_iter().collect();
    let back = decode_keys(&keys(&array), array.data_type()).unwrap();
    assert_eq!(back.data_type(), array.data_type());
    assert_eq!(cast(&back, &DataType::Utf8).unwrap().as_ref(), cast(&array, &DataType::Utf8).unwrap().as_ref());
}

#[test]
fn only_the_zero_of_floats_is_ambiguous() {
    for (array, ambiguous) in [
        (Arc::new(Float64Array::from(vec![-0.0, 0.0])) as ArrayRef, true),
        (Arc::new(Float32Array::from(vec![-0.0, 0.0])), true),
        (cast(&Float32Array::from(vec![-0.0, 0.0]), &DataType::Float16).unwrap(), true),
        (Arc::new(Float64Array::from(vec![f64::MIN_POSITIVE, -1.0, f64::INFINITY])), false),
        (Arc::new(Int64Array::from(vec![0, i64::MIN])), false),
        (Arc::new(BooleanArray::from(vec![false])), false),
    ] {
        let key_type = key_type_of(array.data_type()).unwrap();
        for key in keys(array.as_ref()) {
            let LiteralKey::Key(key) = key else { panic!("no key") };
            assert_eq!(is_ambiguous(&key, &key_type), ambiguous, "{key:?} of {key_type:?}");
        }
    }
    let zeros = Float64Array::from(vec![-0.0, 0.0]);
    let back = decode_keys(&keys(&zeros), &DataType::Float64).unwrap();
    let signs: Vec<bool> = back
        .as_primitive::<arrow::datatypes::Float64Type>()
        .values()
        .iter()
        .map(|zero| zero.is_sign_negative())
        .collect();
    assert_eq!(signs, [false, false]);
    assert!(!is_ambiguous(&Key::Bytes(vec![0]), &KeyType::Utf8));
}

#[test]
fn keys_that_no_value_has_are_errors() {
    let key = |key: u64| [LiteralKey::Key(Key::Fixed(key))];
    assert!(decode_keys(&key(2), &DataType::Boolean).is_err());
    assert!(decode_keys(&key(300), &DataType::UInt8).is_err());
    assert!(decode_keys(&key(0), &DataType::Int32).is_err());
    assert!(decode_keys(&key(u64::MAX), &DataType::Float64).is_err(), "NaN has no key");
    assert!(decode_keys(&key(1), &DataType::Utf8).is_err());
    let bytes = [LiteralKey::Key(Key::Bytes(vec![0xff]))];
    assert!(decode_keys(&bytes, &DataType::Utf8).is_err());
    assert!(decode_keys(&bytes, &DataType::Decimal128(9, 2)).is_err());
    assert!(decode_keys(&bytes, &DataType::Int64).is_err());
    assert_eq!(concat(&[decode_keys(&bytes, &DataType::Binary).unwrap().as_ref()]).unwrap().len(), 1);
}
