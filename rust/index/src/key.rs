//! Arrow values to keys: which types an index serves, and how a value becomes an ordered [`Key`].
//!
//! Values that have no place in the order of keys are *opaque*: NaN (engines order it
//! differently) and values longer than [`MAX_KEY_LENGTH`]. -0.0 and 0.0 are equal in SQL and so
//! have one key.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, TimeUnit as ArrowTimeUnit};
use arrow::error::ArrowError;
use lakemark_format::filter;
use lakemark_format::key::{
    Key, KeyType, MAX_KEY_LENGTH, TimeUnit, key_of_f16_bits, key_of_f32, key_of_f64, key_of_i64, key_of_i128,
    key_of_i256_be,
};

/// A literal of a predicate in the order of a column's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiteralKey {
    /// SQL's NULL.
    Null,
    /// A value.
    Key(Key),
}

/// What one row holds, for an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyCell<K> {
    /// NULL.
    Null,
    /// A value without a place in the order.
    Opaque,
    /// A value.
    Key(K),
}

impl<K> KeyCell<K> {
    pub(crate) fn map<L>(self, key: impl FnOnce(K) -> L) -> KeyCell<L> {
        match self {
            Self::Null => KeyCell::Null,
            Self::Opaque => KeyCell::Opaque,
            Self::Key(value) => KeyCell::Key(key(value)),
        }
    }
}

/// How values of `data_type` become keys; none for types that no index serves.
#[must_use]
pub fn key_type_of(data_type: &DataType) -> Option<KeyType> {
    let decimal = |width_bits, precision: u8, scale: i8| KeyType::Decimal { width_bits, precision, scale };
    Some(match data_type {
        DataType::Boolean => KeyType::Bool,
        DataType::Int8 => KeyType::Int8,
        DataType::Int16 => KeyType::Int16,
        DataType::Int32 => KeyType::Int32,
        DataType::Int64 => KeyType::Int64,
        DataType::UInt8 => KeyType::UInt8,
        DataType::UInt16 => KeyType::UInt16,
        DataType::UInt32 => KeyType::UInt32,
        DataType::UInt64 => KeyType::UInt64,
        DataType::Float16 => KeyType::Float16,
        DataType::Float32 => KeyType::Float32,
        DataType::Float64 => KeyType::Float64,
        DataType::Decimal32(precision, scale) => decimal(32, *precision, *scale),
        DataType::Decimal64(precision, scale) => decimal(64, *precision, *scale),
        DataType::Decimal128(precision, scale) => decimal(128, *precision, *scale),
        DataType::Decimal256(precision, scale) => decimal(256, *precision, *scale),
        DataType::Date32 => KeyType::Date32,
        DataType::Date64 => KeyType::Date64,
        DataType::Time32(unit) => KeyType::Time32 { unit: time_unit(*unit) },
        DataType::Time64(unit) => KeyType::Time64 { unit: time_unit(*unit) },
        DataType::Timestamp(unit, zone) => KeyType::Timestamp { unit: time_unit(*unit), zoned: zone.is_some() },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => KeyType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => KeyType::Binary,
        DataType::FixedSizeBinary(length) => KeyType::FixedBinary(u32::try_from(*length).ok()?),
        DataType::Dictionary(_, value) => return key_type_of(value),
        _ => return None,
    })
}

fn time_unit(unit: ArrowTimeUnit) -> TimeUnit {
    match unit {
        ArrowTimeUnit::Second => TimeUnit::Second,
        ArrowTimeUnit::Millisecond => TimeUnit::Millisecond,
        ArrowTimeUnit::Microsecond => TimeUnit::Microsecond,
        ArrowTimeUnit::Nanosecond => TimeUnit::Nanosecond,
    }
}

/// The key of a one-element array whose type is the column's.
///
/// `None` where no exact key exists (NaN, over-long values, a type without keys): the caller then
/// keeps every row.
#[must_use]
pub fn encode_literal(literal: &dyn Array) -> Option<LiteralKey> {
    if literal.len() != 1 {
        return None;
    }
    let mut only = OnlyCell(None);
    visit(literal, &mut only).ok()?;
    match only.0? {
        KeyCell::Null => Some(LiteralKey::Null),
        KeyCell::Opaque => None,
        KeyCell::Key(key) => Some(LiteralKey::Key(key)),
    }
}

/// The keys of an array whose type is the column's, NULLs left out; none if a value has no exact key.
#[must_use]
pub fn encode_literals(literals: &dyn Array) -> Option<Vec<Key>> {
    let mut keys = KeyCollector { keys: Vec::with_capacity(literals.len()), ..KeyCollector::default() };
    visit(literals, &mut keys).ok()?;
    keys.exact()
}

/// Gathers keys; NULLs are left out.
#[derive(Default)]
pub(crate) struct KeyCollector {
    keys: Vec<Key>,
    /// Whether a value had no key.
    lacks_some: bool,
}

impl KeyCollector {
    /// The keys, if every value had one.
    pub(crate) fn exact(self) -> Option<Vec<Key>> {
        (!self.lacks_some).then_some(self.keys)
    }

    fn add(&mut self, cell: KeyCell<Key>) {
        match cell {
            KeyCell::Null => {}
            KeyCell::Opaque => self.lacks_some = true,
            KeyCell::Key(key) => self.keys.push(key),
        }
    }
}

impl CellVisitor for KeyCollector {
    fn fixed(&mut self, _row: usize, cell: KeyCell<u64>) {
        self.add(cell.map(Key::Fixed));
    }
    fn bytes(&mut self, _row: usize, cell: KeyCell<&[u8]>) {
        self.add(cell.map(|bytes| Key::Bytes(bytes.to_vec())));
    }
}

/// The hash of each row's key in these columns, as filters of several columns have it; none if a row has no key.
#[must_use]
pub fn hash_rows(columns: &[ArrayRef]) -> Option<Vec<u64>> {
    let mut rows = RowHashes { hashes: vec![0; columns.first()?.len()], is_known: true };
    for column in columns {
        visit(column.as_ref(), &mut rows).ok()?;
    }
    rows.is_known.then_some(rows.hashes)
}

struct RowHashes {
    hashes: Vec<u64>,
    /// Whether every row has a key so far.
    is_known: bool,
}

impl RowHashes {
    fn add(&mut self, row: usize, cell: KeyCell<Key>) {
        match (self.hashes.get_mut(row), cell) {
            (Some(hash), KeyCell::Key(key)) => *hash = filter::hash_after(*hash, &key),
            _ => self.is_known = false,
        }
    }
}

impl CellVisitor for RowHashes {
    fn fixed(&mut self, row: usize, cell: KeyCell<u64>) {
        self.add(row, cell.map(Key::Fixed));
    }
    fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>) {
        self.add(row, cell.map(|bytes| Key::Bytes(bytes.to_vec())));
    }
}

struct OnlyCell(Option<KeyCell<Key>>);

impl CellVisitor for OnlyCell {
    fn fixed(&mut self, _row: usize, cell: KeyCell<u64>) {
        self.0 = Some(cell.map(Key::Fixed));
    }
    fn bytes(&mut self, _row: usize, cell: KeyCell<&[u8]>) {
        self.0 = Some(cell.map(|bytes| Key::Bytes(bytes.to_vec())));
    }
}

/// Receives the cells of an array in row order: numbers or bytes, by the array's key type.
pub(crate) trait CellVisitor {
    /// A cell of a type whose keys are numbers.
    fn fixed(&mut self, row: usize, cell: KeyCell<u64>);
    /// A cell of a type whose keys are bytes.
    fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>);
    /// A value that is longer than a key may be.
    fn long_bytes(&mut self, row: usize, _value: &[u8]) {
        self.bytes(row, KeyCell::Opaque);
    }
}

/// Hands every row of `array` to `visitor`.
///
/// # Errors
/// A type without keys.
pub(crate) fn visit(array: &dyn Array, visitor: &mut impl CellVisitor) -> Result<(), ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, value) => {
            let plain = cast(array, value)?;
            return visit(plain.as_ref(), visitor);
        }
        DataType::Boolean => {
            let values = array.as_boolean();
            return fixed(array, visitor, |row| Some(u64::from(values.value(row))));
        }
        DataType::Float16 => {
            let values = array.as_primitive::<arrow::datatypes::Float16Type>();
            return fixed(array, visitor, |row| {
                let bits = values.value(row).to_bits();
                key_of_f16_bits(if bits == 0x8000 { 0 } else { bits })
            });
        }
        DataType::Float32 => {
            let values = array.as_primitive::<arrow::datatypes::Float32Type>();
            // Adding 0.0 turns -0.0 into 0.0 and leaves every other value as it is.
            return fixed(array, visitor, |row| key_of_f32(values.value(row) + 0.0));
        }
        DataType::Float64 => {
            let values = array.as_primitive::<arrow::datatypes::Float64Type>();
            return fixed(array, visitor, |row| key_of_f64(values.value(row) + 0.0));
        }
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>();
            return bytes(array, visitor, |row| key_of_i128(values.value(row)));
        }
        DataType::Decimal256(..) => {
            let values = array.as_primitive::<Decimal256Type>();
            return bytes(array, visitor, |row| key_of_i256_be(values.value(row).to_be_bytes()));
        }
        DataType::Utf8 => return bytes(array, visitor, |row| array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => {
            return bytes(array, visitor, |row| array.as_string::<i64>().value(row));
        }
        DataType::Utf8View => {
            return bytes(array, visitor, |row| array.as_string_view().value(row));
        }
        DataType::Binary => {
            return bytes(array, visitor, |row| array.as_binary::<i32>().value(row));
        }
        DataType::LargeBinary => {
            return bytes(array, visitor, |row| array.as_binary::<i64>().value(row));
        }
        DataType::BinaryView => {
            return bytes(array, visitor, |row| array.as_binary_view().value(row));
        }
        DataType::FixedSizeBinary(_) => {
            return bytes(array, visitor, |row| array.as_fixed_size_binary().value(row));
        }
        _ => {}
    }
    integers(array, visitor)
}

/// Integers and all that is stored as one: dates, times, timestamps, small decimals.
fn integers(array: &dyn Array, visitor: &mut impl CellVisitor) -> Result<(), ArrowError> {
    use arrow::datatypes::{
        Date32Type, Date64Type, Decimal32Type, Decimal64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
        UInt64Type,
    };
    match array.data_type() {
        DataType::Int8 => signed::<Int8Type>(array, visitor),
        DataType::Int16 => signed::<Int16Type>(array, visitor),
        DataType::Int32 => signed::<Int32Type>(array, visitor),
        DataType::Int64 => signed::<Int64Type>(array, visitor),
        DataType::Date32 => signed::<Date32Type>(array, visitor),
        DataType::Date64 => signed::<Date64Type>(array, visitor),
        DataType::Decimal32(..) => signed::<Decimal32Type>(array, visitor),
        DataType::Decimal64(..) => signed::<Decimal64Type>(array, visitor),
        DataType::Time32(ArrowTimeUnit::Second) => signed::<Time32SecondType>(array, visitor),
        DataType::Time32(_) => signed::<Time32MillisecondType>(array, visitor),
        DataType::Time64(ArrowTimeUnit::Microsecond) => signed::<Time64MicrosecondType>(array, visitor),
        DataType::Time64(_) => signed::<Time64NanosecondType>(array, visitor),
        DataType::Timestamp(ArrowTimeUnit::Second, _) => signed::<TimestampSecondType>(array, visitor),
        DataType::Timestamp(ArrowTimeUnit::Millisecond, _) => signed::<TimestampMillisecondType>(array, visitor),
        DataType::Timestamp(ArrowTimeUnit::Microsecond, _) => signed::<TimestampMicrosecondType>(array, visitor),
        DataType::Timestamp(ArrowTimeUnit::Nanosecond, _) => signed::<TimestampNanosecondType>(array, visitor),
        DataType::UInt8 => unsigned::<UInt8Type>(array, visitor),
        DataType::UInt16 => unsigned::<UInt16Type>(array, visitor),
        DataType::UInt32 => unsigned::<UInt32Type>(array, visitor),
        DataType::UInt64 => unsigned::<UInt64Type>(array, visitor),
        other => Err(ArrowError::NotYetImplemented(format!("no index serves the type {other}"))),
    }
}

fn signed<T: ArrowPrimitiveType<Native: Into<i64>>>(
    array: &dyn Array,
    visitor: &mut impl CellVisitor,
) -> Result<(), ArrowError> {
    let values = array.as_primitive::<T>().values();
    fixed(array, visitor, |row| values.get(row).map(|&value| key_of_i64(value.into())))
}

fn unsigned<T: ArrowPrimitiveType<Native: Into<u64>>>(
    array: &dyn Array,
    visitor: &mut impl CellVisitor,
) -> Result<(), ArrowError> {
    let values = array.as_primitive::<T>().values();
    fixed(array, visitor, |row| values.get(row).map(|&value| value.into()))
}

/// Rows without a key are opaque.
fn fixed(
    array: &dyn Array,
    visitor: &mut impl CellVisitor,
    key: impl Fn(usize) -> Option<u64>,
) -> Result<(), ArrowError> {
    for row in 0..array.len() {
        let cell = match array.is_valid(row) {
            false => KeyCell::Null,
            true => key(row).map_or(KeyCell::Opaque, KeyCell::Key),
        };
        visitor.fixed(row, cell);
    }
    Ok(())
}

fn bytes<B: AsRef<[u8]>>(
    array: &dyn Array,
    visitor: &mut impl CellVisitor,
    key: impl Fn(usize) -> B,
) -> Result<(), ArrowError> {
    for row in 0..array.len() {
        if array.is_null(row) {
            visitor.bytes(row, KeyCell::Null);
            continue;
        }
        let value = key(row);
        let value = value.as_ref();
        match value.len() > MAX_KEY_LENGTH {
            true => visitor.long_bytes(row, value),
            false => visitor.bytes(row, KeyCell::Key(value)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringArray};

    use super::*;

    #[test]
    fn keys_of_a_list_are_all_exact_or_none_is() {
        let numbers = Int32Array::from(vec![Some(7), None, Some(-1), Some(7)]);
        let keys = [7, -1, 7].map(|number| Key::Fixed(key_of_i64(number)));
        assert_eq!(encode_literals(&numbers), Some(keys.to_vec()));
        let texts = StringArray::from(vec!["a".to_owned(), "x".repeat(MAX_KEY_LENGTH + 1)]);
        assert_eq!(encode_literals(&texts), None);
        assert_eq!(encode_literals(&Float64Array::from(vec![1.0, f64::NAN])), None);
        assert_eq!(encode_literals(&arrow::array::NullArray::new(1)), None);
    }

    #[test]
    fn rows_of_several_columns_have_one_hash() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7, -1]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", ""]));
        let first = [7, -1].map(|number| filter::hash(&Key::Fixed(key_of_i64(number))));
        assert_eq!(hash_rows(std::slice::from_ref(&numbers)), Some(first.to_vec()));
        let both = [(first[0], "a"), (first[1], "")]
            .map(|(hash, text)| filter::hash_after(hash, &Key::Bytes(text.as_bytes().to_vec())));
        assert_eq!(hash_rows(&[numbers, texts.clone()]), Some(both.to_vec()));
        let null: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
        let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(MAX_KEY_LENGTH + 1), String::new()]));
        assert_eq!((hash_rows(&[texts, null]), hash_rows(&[long]), hash_rows(&[])), (None, None, None));
    }
}
