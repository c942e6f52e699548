//! Keys back to Arrow values: the inverse of [`encode_literal`](crate::encode_literal).
//!
//! Every key stands for one value, but for one: -0.0 and 0.0 share a key ([`is_ambiguous`]), which becomes 0.0 here.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::error::ArrowError;
use lakemark_format::key::{Key, KeyType, i64_of_key, key_of_f16_bits, key_of_f32, key_of_f64};

use crate::key::LiteralKey;

/// Whether the key stands for two values that SQL can distinguish: the zeros of floats.
#[must_use]
pub fn is_ambiguous(key: &Key, key_type: &KeyType) -> bool {
    let zero = match key_type {
        KeyType::Float16 => key_of_f16_bits(0),
        KeyType::Float32 => key_of_f32(0.0),
        KeyType::Float64 => key_of_f64(0.0),
        _ => None,
    };
    matches!((key, zero), (Key::Fixed(key), Some(zero)) if *key == zero)
}

/// The values of keys, as an array of `data_type`.
///
/// # Errors
/// A type without keys, or a key that no value of the type has.
pub fn decode_keys(keys: &[LiteralKey], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    match data_type {
        DataType::Dictionary(_, value) => cast(&decode_keys(keys, value)?, data_type),
        DataType::Boolean => {
            let values = fixed(keys, data_type, |key| match key {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            })?;
            Ok(Arc::new(BooleanArray::from(values)))
        }
        DataType::Float16 => primitive::<Float16Type>(keys, data_type, |key| {
            let ordered = u16::try_from(key).ok()?;
            let bits = if ordered >> 15 == 1 { ordered & 0x7fff } else { !ordered };
            key_of_f16_bits(bits).map(|_| <Float16Type as ArrowPrimitiveType>::Native::from_bits(bits))
        }),
        DataType::Float32 => primitive::<Float32Type>(keys, data_type, |key| {
            let ordered = u32::try_from(key).ok()?;
            let bits = if ordered >> 31 == 1 { ordered & (u32::MAX >> 1) } else { !ordered };
            Some(f32::from_bits(bits)).filter(|value| !value.is_nan())
        }),
        DataType::Float64 => primitive::<Float64Type>(keys, data_type, |key| {
            let bits = if key >> 63 == 1 { key & (u64::MAX >> 1) } else { !key };
            Some(f64::from_bits(bits)).filter(|value| !value.is_nan())
        }),
        DataType::UInt8 => unsigned::<UInt8Type>(keys, data_type),
        DataType::UInt16 => unsigned::<UInt16Type>(keys, data_type),
        DataType::UInt32 => unsigned::<UInt32Type>(keys, data_type),
        DataType::UInt64 => unsigned::<UInt64Type>(keys, data_type),
        _ if is_bytes(data_type) => bytes(keys, data_type),
        _ => integers(keys, data_type),
    }
}

/// Integers and all that is stored as one: dates, times, timestamps, small decimals.
fn integers(keys: &[LiteralKey], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    match data_type {
        DataType::Int8 => signed::<Int8Type>(keys, data_type),
        DataType::Int16 => signed::<Int16Type>(keys, data_type),
        DataType::Int32 => signed::<Int32Type>(keys, data_type),
        DataType::Int64 => signed::<Int64Type>(keys, data_type),
        DataType::Date32 => signed::<Date32Type>(keys, data_type),
        DataType::Date64 => signed::<Date64Type>(keys, data_type),
        DataType::Decimal32(..) => signed::<Decimal32Type>(keys, data_type),
        DataType::Decimal64(..) => signed::<Decimal64Type>(keys, data_type),
        DataType::Time32(TimeUnit::Second) => signed::<Time32SecondType>(keys, data_type),
        DataType::Time32(_) => signed::<Time32MillisecondType>(keys, data_type),
        DataType::Time64(TimeUnit::Microsecond) => signed::<Time64MicrosecondType>(keys, data_type),
        DataType::Time64(_) => signed::<Time64NanosecondType>(keys, data_type),
        DataType::Timestamp(TimeUnit::Second, _) => signed::<TimestampSecondType>(keys, data_type),
        DataType::Timestamp(TimeUnit::Millisecond, _) => signed::<TimestampMillisecondType>(keys, data_type),
        DataType::Timestamp(TimeUnit::Microsecond, _) => signed::<TimestampMicrosecondType>(keys, data_type),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => signed::<TimestampNanosecondType>(keys, data_type),
        other => Err(ArrowError::NotYetImplemented(format!("no index serves the type {other}"))),
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal128(..)
            | DataType::Decimal256(..)
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

fn bytes(keys: &[LiteralKey], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let slices = keys.iter().map(|key| match key {
        LiteralKey::Null => Ok(None),
        LiteralKey::Key(Key::Bytes(bytes)) => Ok(Some(bytes.as_slice())),
        LiteralKey::Key(Key::Fixed(key)) => Err(no_value(key, data_type)),
    });
    let slices: Vec<Option<&[u8]>> = slices.collect::<Result<_, _>>()?;
    let texts = || -> Result<Vec<Option<&str>>, ArrowError> {
        let decoded: Result<_, _> = slices.iter().map(|bytes| bytes.map(std::str::from_utf8).transpose()).collect();
        decoded.map_err(|error| ArrowError::InvalidArgumentError(format!("a key of {data_type} is not UTF-8: {error}")))
    };
    Ok(match data_type {
        DataType::Utf8 => Arc::new(StringArray::from(texts()?)),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(texts()?)),
        DataType::Utf8View => Arc::new(StringViewArray::from(texts()?)),
        DataType::Binary => Arc::new(BinaryArray::from(slices)),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from(slices)),
        DataType::BinaryView => Arc::new(BinaryViewArray::from(slices)),
        DataType::FixedSizeBinary(length) => {
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(slices.into_iter(), *length)?)
        }
        DataType::Decimal128(..) => {
            let values = wide(&slices, data_type, |key: [u8; 16]| i128::from_be_bytes(flip_sign(key)))?;
            Arc::new(PrimitiveArray::<Decimal128Type>::from_iter(values).with_data_type(data_type.clone()))
        }
        _ => {
            let values = wide(&slices, data_type, |key: [u8; 32]| i256::from_be_bytes(flip_sign(key)))?;
            Arc::new(PrimitiveArray::<Decimal256Type>::from_iter(values).with_data_type(data_type.clone()))
        }
    })
}

/// Keys have the sign bit flipped, which puts negative numbers first.
fn flip_sign<const N: usize>(mut key: [u8; N]) -> [u8; N] {
    if let Some(first) = key.first_mut() {
        *first ^= 0x80;
    }
    key
}

fn wide<const N: usize, V>(
    slices: &[Option<&[u8]>],
    data_type: &DataType,
    value: impl Fn([u8; N]) -> V,
) -> Result<Vec<Option<V>>, ArrowError> {
    let whole = |bytes: &[u8]| <[u8; N]>::try_from(bytes).map_err(|_| no_value(&bytes.len(), data_type));
    slices.iter().map(|bytes| bytes.map(|bytes| whole(bytes).map(&value)).transpose()).collect()
}

fn signed<T: ArrowPrimitiveType<Native: TryFrom<i64>>>(
    keys: &[LiteralKey],
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    primitive::<T>(keys, data_type, |key| T::Native::try_from(i64_of_key(key)).ok())
}

fn unsigned<T: ArrowPrimitiveType<Native: TryFrom<u64>>>(
    keys: &[LiteralKey],
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    primitive::<T>(keys, data_type, |key| T::Native::try_from(key).ok())
}

fn primitive<T: ArrowPrimitiveType>(
    keys: &[LiteralKey],
    data_type: &DataType,
    value: impl Fn(u64) -> Option<T::Native>,
) -> Result<ArrayRef, ArrowError> {
    let values = fixed(keys, data_type, value)?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(values).with_data_type(data_type.clone())))
}

fn fixed<V>(
    keys: &[LiteralKey],
    data_type: &DataType,
    value: impl Fn(u64) -> Option<V>,
) -> Result<Vec<Option<V>>, ArrowError> {
    let one = |key: &LiteralKey| match key {
        LiteralKey::Null => Ok(None),
        LiteralKey::Key(Key::Fixed(key)) => value(*key).map(Some).ok_or_else(|| no_value(key, data_type)),
        LiteralKey::Key(Key::Bytes(bytes)) => Err(no_value(&bytes.len(), data_type)),
    };
    keys.iter().map(one).collect()
}

fn no_value(key: &dyn std::fmt::Display, data_type: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("no value of {data_type} has the key {key}"))
}
