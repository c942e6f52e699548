//! Keys: column values as bytes or numbers whose order is the order of the values.
//!
//! A column has one [`KeyType`]. Types of at most 64 bits give [`Key::Fixed`], everything else [`Key::Bytes`], never a
//! mix within a column. The functions of `numbers` are the only definition of how a value becomes a number.

pub mod composite;
mod numbers;

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};

pub use numbers::{i64_of_key, key_of_f16_bits, key_of_f32, key_of_f64, key_of_i64, key_of_i128, key_of_i256_be};

/// The longest [`Key::Bytes`] in bytes; rows with longer values are opaque to the index.
pub const MAX_KEY_LENGTH: usize = 4096;

/// The most columns of a key.
pub const MAX_KEY_COLUMNS: usize = 64;

/// The code of the type of several columns.
const COMPOSITE: u8 = 22;
/// The code of the type of lists.
const LIST: u8 = 23;
/// The code of the type of hashes.
const HASHED: u8 = 24;

/// The unit of a time or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimeUnit {
    /// Seconds.
    Second,
    /// Milliseconds.
    Millisecond,
    /// Microseconds.
    Microsecond,
    /// Nanoseconds.
    Nanosecond,
}

impl TimeUnit {
    /// The unit's byte in files.
    pub fn code(self) -> u8 {
        match self {
            Self::Second => 0,
            Self::Millisecond => 1,
            Self::Microsecond => 2,
            Self::Nanosecond => 3,
        }
    }

    fn decode(code: u8) -> Result<Self> {
        match code {
            0 => Ok(Self::Second),
            1 => Ok(Self::Millisecond),
            2 => Ok(Self::Microsecond),
            3 => Ok(Self::Nanosecond),
            other => Err(FormatError::invalid("a time unit", other, "0 to 3")),
        }
    }
}

/// The type of an indexed column, which fixes how its values become keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// false is 0, true is 1.
    Bool,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    UInt8,
    /// Unsigned, 16 bits.
    UInt16,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754 half precision.
    Float16,
    /// IEEE 754 single precision.
    Float32,
    /// IEEE 754 double precision.
    Float64,
    /// The unscaled value of a decimal.
    Decimal {
        /// Bits of the unscaled integer: 32, 64, 128 or 256.
        width_bits: u16,
        /// Decimal digits.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// Days since 1970-01-01, 32 bits.
    Date32,
    /// Milliseconds since 1970-01-01, 64 bits.
    Date64,
    /// Time of day, 32 bits.
    Time32 {
        /// Second or millisecond.
        unit: TimeUnit,
    },
    /// Time of day, 64 bits.
    Time64 {
        /// Microsecond or nanosecond.
        unit: TimeUnit,
    },
    /// Time since 1970-01-01 00:00.
    Timestamp {
        /// The unit counted.
        unit: TimeUnit,
        /// Whether the value is an instant (in UTC) rather than a wall clock reading.
        zoned: bool,
    },
    /// Strings, ordered by their UTF-8 bytes.
    Utf8,
    /// Bytes, ordered as unsigned bytes.
    Binary,
    /// Bytes of one length.
    FixedBinary(u32),
    /// Rows of several columns, 2 to [`MAX_KEY_COLUMNS`], none of them of this type: see [`composite`].
    Composite(Arc<[KeyType]>),
    /// Lists, whose keys are those of their elements, of a type above: a row has any number of them.
    List(Arc<KeyType>),
    /// Hashes of values of a type with [`Key::Bytes`]: numbers of so many bits, 1 to 64, which values may share. Their order says nothing.
    Hashed {
        /// How many of the highest bits of a hash are kept.
        bits: u8,
        /// The type of the values.
        of: Arc<KeyType>,
    },
}

impl KeyType {
    /// The type's byte in files. Codes are never reused.
    pub fn code(&self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::Int8 => 2,
            Self::Int16 => 3,
            Self::Int32 => 4,
            Self::Int64 => 5,
            Self::UInt8 => 6,
            Self::UInt16 => 7,
            Self::UInt32 => 8,
            Self::UInt64 => 9,
            Self::Float16 => 10,
            Self::Float32 => 11,
            Self::Float64 => 12,
            Self::Decimal { .. } => 13,
            Self::Date32 => 14,
            Self::Date64 => 15,
            Self::Time32 { .. } => 16,
            Self::Time64 { .. } => 17,
            Self::Timestamp { .. } => 18,
            Self::Utf8 => 19,
            Self::Binary => 20,
            Self::FixedBinary(_) => 21,
            Self::Composite(_) => COMPOSITE,
            Self::List(_) => LIST,
            Self::Hashed { .. } => HASHED,
        }
    }

    /// Appends the code and the type's parameters.
    pub fn encode(&self, out: &mut ByteWriter) {
        out.u8(self.code());
        match self {
            Self::Decimal { width_bits, precision, scale } => {
                out.u16(*width_bits);
                out.u8(*precision);
                out.u8(scale.cast_unsigned());
            }
            Self::Time32 { unit } | Self::Time64 { unit } => out.u8(unit.code()),
            Self::Timestamp { unit, zoned } => {
                out.u8(unit.code());
                out.flag(*zoned);
            }
            Self::FixedBinary(length) => out.u32(*length),
            Self::Composite(columns) => {
                out.length(columns.len());
                columns.iter().for_each(|column| column.encode(out));
            }
            Self::List(element) => element.encode(out),
            Self::Hashed { bits, of } => {
                out.u8(*bits);
                of.encode(out);
            }
            _ => {}
        }
    }

    /// Reads what [`KeyType::encode`] wrote.
    pub fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let code = input.u8()?;
        if code == LIST {
            // Neither is an element a list or of several columns.
            let code = input.u8()?;
            return Self::decode_column(code, input).map(|element| Self::List(Arc::new(element)));
        }
        if code == HASHED {
            let bits = input.u8()?;
            let code = input.u8()?;
            let key_type = Self::Hashed { bits, of: Arc::new(Self::decode_column(code, input)?) };
            return key_type.validate().map(|()| key_type);
        }
        if code != COMPOSITE {
            return Self::decode_column(code, input);
        }
        let count = input.count("the number of columns of a key", 1)?;
        if count > MAX_KEY_COLUMNS {
            return Err(FormatError::TooLong {
                what: "the columns of a key",
                got: count as u64,
                limit: MAX_KEY_COLUMNS as u64,
            });
        }
        // A column is never of several columns itself, so that no bytes can nest without end.
        let columns = (0..count).map(|_| input.u8().and_then(|code| Self::decode_column(code, input)));
        let key_type = Self::Composite(columns.collect::<Result<_>>()?);
        key_type.validate()?;
        Ok(key_type)
    }

    /// The type of one column, whose code was read.
    fn decode_column(code: u8, input: &mut ByteReader<'_>) -> Result<Self> {
        let key_type = match code {
            1 => Self::Bool,
            2 => Self::Int8,
            3 => Self::Int16,
            4 => Self::Int32,
            5 => Self::Int64,
            6 => Self::UInt8,
            7 => Self::UInt16,
            8 => Self::UInt32,
            9 => Self::UInt64,
            10 => Self::Float16,
            11 => Self::Float32,
            12 => Self::Float64,
            13 => Self::Decimal { width_bits: input.u16()?, precision: input.u8()?, scale: input.u8()?.cast_signed() },
            14 => Self::Date32,
            15 => Self::Date64,
            16 => Self::Time32 { unit: TimeUnit::decode(input.u8()?)? },
            17 => Self::Time64 { unit: TimeUnit::decode(input.u8()?)? },
            18 => Self::Timestamp {
                unit: TimeUnit::decode(input.u8()?)?,
                zoned: input.flag("the zoned flag of a timestamp")?,
            },
            19 => Self::Utf8,
            20 => Self::Binary,
            21 => Self::FixedBinary(input.u32()?),
            other => {
                return Err(FormatError::invalid(
                    "a key type",
                    other,
                    "1 to 21, 22 for several columns, 23 for lists, or 24 for hashes",
                ));
            }
        };
        key_type.validate()?;
        Ok(key_type)
    }

    /// Whether the parameters can occur.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Decimal { width_bits, precision, .. } => {
                let digits = match width_bits {
                    32 => 9,
                    64 => 18,
                    128 => 38,
                    256 => 76,
                    other => {
                        return Err(FormatError::invalid("a decimal's width in bits", other, "32, 64, 128 or 256"));
                    }
                };
                if *precision == 0 || *precision > digits {
                    return Err(FormatError::invalid(
                        "a decimal's precision",
                        precision,
                        format_args!("1 to {digits}"),
                    ));
                }
            }
            Self::Time32 { unit } if *unit > TimeUnit::Millisecond => {
                return Err(FormatError::invalid("a 32-bit time's unit", unit.code(), "0 or 1"));
            }
            Self::Time64 { unit } if *unit < TimeUnit::Microsecond => {
                return Err(FormatError::invalid("a 64-bit time's unit", unit.code(), "2 or 3"));
            }
            Self::FixedBinary(length) if *length > i32::MAX.cast_unsigned() => {
                return Err(FormatError::TooLong {
                    what: "a fixed binary's length",
                    got: u64::from(*length),
                    limit: u64::from(i32::MAX.cast_unsigned()),
                });
            }
            Self::Composite(columns) => {
                if !(2..=MAX_KEY_COLUMNS).contains(&columns.len()) {
                    return Err(FormatError::invalid(
                        "the number of columns of a key",
                        columns.len(),
                        format_args!("2 to {MAX_KEY_COLUMNS}"),
                    ));
                }
                for column in columns.iter() {
                    if !column.is_of_values() {
                        return Err(FormatError::invalid(
                            "a column of a key",
                            "several columns, a list or a hash",
                            "one value",
                        ));
                    }
                    column.validate()?;
                }
            }
            Self::List(element) => {
                if !element.is_of_values() {
                    let got = "several columns, a list or a hash";
                    return Err(FormatError::invalid("an element of lists", got, "one value"));
                }
                element.validate()?;
            }
            Self::Hashed { bits, of } => return validate_hash(*bits, of),
            _ => {}
        }
        Ok(())
    }

    /// Whether a row has one value of the type, which is its key.
    pub fn is_of_values(&self) -> bool {
        !matches!(self, Self::Composite(_) | Self::List(_) | Self::Hashed { .. })
    }

    /// The bits of hashes that stand for values; none where keys are the values.
    pub fn hash_bits(&self) -> Option<u8> {
        match self {
            Self::Hashed { bits, .. } => Some(*bits),
            _ => None,
        }
    }

    /// Whether the keys of this type are [`Key::Fixed`].
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Decimal { width_bits, .. } => *width_bits <= 64,
            Self::Utf8 | Self::Binary | Self::FixedBinary(_) | Self::Composite(_) => false,
            Self::List(element) => element.is_fixed(),
            _ => true,
        }
    }

    /// Whether a row may have several keys, or none though it is not NULL.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::List(_))
    }

    /// From the smallest to the largest [`Key::Fixed`] of this type; `None` for types with [`Key::Bytes`].
    pub fn fixed_bounds(&self) -> Option<RangeInclusive<u64>> {
        let signed = |low: i64, high: i64| Some(key_of_i64(low)..=key_of_i64(high));
        match self {
            Self::Bool => Some(0..=1),
            Self::Int8 => signed(i8::MIN.into(), i8::MAX.into()),
            Self::Int16 => signed(i16::MIN.into(), i16::MAX.into()),
            Self::Int32 | Self::Date32 | Self::Time32 { .. } => signed(i32::MIN.into(), i32::MAX.into()),
            Self::Decimal { width_bits: 32, .. } => signed(i32::MIN.into(), i32::MAX.into()),
            Self::UInt8 => Some(0..=u8::MAX.into()),
            Self::UInt16 | Self::Float16 => Some(0..=u16::MAX.into()),
            Self::UInt32 | Self::Float32 => Some(0..=u32::MAX.into()),
            Self::List(element) => element.fixed_bounds(),
            Self::Hashed { bits, .. } => {
                let unused = u64::BITS.saturating_sub(u32::from(*bits));
                Some(0..=u64::MAX.checked_shr(unused).unwrap_or(0))
            }
            _ if self.is_fixed() => Some(0..=u64::MAX),
            _ => None,
        }
    }

    /// Checks that `key` can be a key of this type.
    pub fn check(&self, key: &Key) -> Result<()> {
        match key {
            Key::Fixed(value) => match self.fixed_bounds() {
                Some(bounds) if bounds.contains(value) => Ok(()),
                Some(bounds) => {
                    let (low, high) = bounds.into_inner();
                    Err(FormatError::invalid("a key", value, format_args!("{low} to {high} for {self:?}")))
                }
                None => Err(FormatError::invalid("a key", "a number", format_args!("bytes for {self:?}"))),
            },
            Key::Bytes(_) if self.is_fixed() => {
                Err(FormatError::invalid("a key", "bytes", format_args!("a number for {self:?}")))
            }
            Key::Bytes(bytes) if bytes.len() > MAX_KEY_LENGTH => {
                Err(FormatError::TooLong { what: "a key", got: bytes.len() as u64, limit: MAX_KEY_LENGTH as u64 })
            }
            Key::Bytes(bytes) => match (self, self.bytes_length()) {
                (Self::Composite(columns), _) => composite::check(bytes, columns),
                (_, Some(length)) if length != bytes.len() => {
                    Err(FormatError::invalid("a key's length", bytes.len(), format_args!("{length} for {self:?}")))
                }
                _ => Ok(()),
            },
        }
    }

    /// The length of every [`Key::Bytes`] of this type, where it is one length.
    pub fn bytes_length(&self) -> Option<usize> {
        match self {
            Self::Decimal { width_bits, .. } if *width_bits > 64 => Some(usize::from(*width_bits / 8)),
            Self::FixedBinary(length) => usize::try_from(*length).ok(),
            Self::List(element) => element.bytes_length(),
            _ => None,
        }
    }
}

/// Whether there can be hashes of so many bits of such values.
fn validate_hash(bits: u8, of: &KeyType) -> Result<()> {
    if !(1..=64).contains(&bits) {
        return Err(FormatError::invalid("the bits of a hash", bits, "1 to 64"));
    }
    if !of.is_of_values() || of.is_fixed() {
        return Err(FormatError::invalid("what is hashed", of.code(), "a type of which keys are bytes"));
    }
    of.validate()
}

/// A value of an indexed column; `Ord` is the order of the values.
///
/// ```
/// use lakemark_format::{Key, key_of_i64};
/// assert!(Key::Fixed(key_of_i64(-5)) < Key::Fixed(key_of_i64(3)));
/// assert!(Key::Bytes(b"ab".to_vec()) < Key::Bytes(b"b".to_vec()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A value of at most 64 bits, mapped to an unsigned number that keeps the order.
    Fixed(u64),
    /// Anything longer, mapped to bytes that keep the order.
    Bytes(Vec<u8>),
}

impl Key {
    /// Appends the key: a varint, or length-prefixed bytes. The reader knows which from the key type.
    pub fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        match self {
            Self::Fixed(value) => {
                out.varint(*value);
                Ok(())
            }
            Self::Bytes(bytes) => out.blob("a key", bytes, MAX_KEY_LENGTH),
        }
    }

    /// The number that a key begins with: of two keys of one type the smaller one has no larger number.
    pub fn beginning(&self) -> u64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Bytes(bytes) => {
                let mut first = [0; 8];
                first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                u64::from_be_bytes(first)
            }
        }
    }

    /// Reads a key of `key_type`.
    pub fn decode(input: &mut ByteReader<'_>, key_type: &KeyType) -> Result<Self> {
        let key = if key_type.is_fixed() {
            Self::Fixed(input.varint()?)
        } else {
            Self::Bytes(input.blob("a key", MAX_KEY_LENGTH)?.to_vec())
        };
        key_type.check(&key)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_of_values_with_bytes_and_have_their_bits() {
        let hashed = |bits, of: KeyType| KeyType::Hashed { bits, of: Arc::new(of) };
        for (bits, most) in [(1, 1), (40, (1 << 40) - 1), (64, u64::MAX)] {
            let key_type = hashed(bits, KeyType::Utf8);
            let mut out = ByteWriter::new();
            key_type.encode(&mut out);
            assert_eq!(KeyType::decode(&mut ByteReader::new("a type", out.as_slice())).unwrap(), key_type);
            assert_eq!((key_type.fixed_bounds(), key_type.hash_bits()), (Some(0..=most), Some(bits)));
            assert!(key_type.check(&Key::Fixed(most)).is_ok() && key_type.check(&Key::Bytes(vec![7])).is_err());
        }
        assert!(hashed(40, KeyType::Utf8).check(&Key::Fixed(1 << 40)).is_err());
        assert!(hashed(0, KeyType::Utf8).validate().is_err() && hashed(65, KeyType::Utf8).validate().is_err());
        assert!(hashed(40, KeyType::Int64).validate().is_err());
        assert!(hashed(40, hashed(40, KeyType::Utf8)).validate().is_err());
        assert!(KeyType::List(Arc::new(hashed(40, KeyType::Utf8))).validate().is_err());
        assert!(KeyType::Composite(vec![hashed(40, KeyType::Utf8), KeyType::Int8].into()).validate().is_err());
    }

    #[test]
    fn as_many_columns_as_the_limit_are_read_and_one_more_is_refused() {
        let read = |columns: usize| {
            let mut out = ByteWriter::new();
            KeyType::Composite(vec![KeyType::Int32; columns].into()).encode(&mut out);
            KeyType::decode(&mut ByteReader::new("a type", out.as_slice()))
        };
        assert_eq!(read(MAX_KEY_COLUMNS).unwrap(), KeyType::Composite(vec![KeyType::Int32; MAX_KEY_COLUMNS].into()));
        let error = read(MAX_KEY_COLUMNS + 1).unwrap_err();
        assert!(matches!(error, FormatError::TooLong { got: 65, limit: 64, .. }), "{error}");
    }
}
