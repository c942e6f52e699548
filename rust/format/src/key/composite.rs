//! Keys of rows of several columns: bytes whose order is the order of the rows, column by column, NULL before all values.
//!
//! ```text
//! (Int32 -5, Utf8 "ab", Int32 NULL)
//!   01 7f ff ff fb          a value follows; the number as its type is wide, high bytes first
//!   01 61 62 00 00          a value follows; its bytes, 00 among them written as 00 ff; the end
//!   00                      NULL
//! ```
//!
//! The bytes of one value of a column never begin those of another. So the first columns of a row are a prefix of its key, and
//! rows that agree in them are neighbours.

use super::{Key, KeyType};
use crate::error::{FormatError, Result};

/// Before a column that is NULL.
const NULL: u8 = 0;
/// Before the value of a column.
const VALUE: u8 = 1;
/// Follows the byte 0 inside of bytes of any length.
const ESCAPE: u8 = 0xff;
/// Follows the byte 0 that ends them.
const END: u8 = 0;

/// Appends a column that is NULL.
pub fn push_null(out: &mut Vec<u8>) {
    out.push(NULL);
}

/// Appends what all values of a column begin with.
pub fn push_any_value(out: &mut Vec<u8>) {
    out.push(VALUE);
}

/// Appends a column that holds a number of `key_type`.
pub fn push_fixed(out: &mut Vec<u8>, key_type: &KeyType, key: u64) {
    let NumberForm { least, width } = number_form(key_type);
    out.push(VALUE);
    let bytes = key.wrapping_sub(least).to_be_bytes();
    out.extend_from_slice(bytes.get(bytes.len() - width..).unwrap_or_default());
}

/// Appends a column that holds bytes of `key_type`.
pub fn push_bytes(out: &mut Vec<u8>, key_type: &KeyType, key: &[u8]) {
    out.push(VALUE);
    if key_type.bytes_length().is_some() {
        out.extend_from_slice(key);
        return;
    }
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(ESCAPE);
        }
    }
    out.extend_from_slice(&[0, END]);
}

/// Appends a column that holds this key of `key_type`.
pub fn push_key(out: &mut Vec<u8>, key_type: &KeyType, key: &Key) {
    match key {
        Key::Fixed(key) => push_fixed(out, key_type, *key),
        Key::Bytes(key) => push_bytes(out, key_type, key),
    }
}

/// Bytes of a column with a value, where they are the same for all values of its type.
#[must_use]
pub fn width_of(key_type: &KeyType) -> Option<usize> {
    match key_type.is_fixed() {
        true => Some(1 + number_form(key_type).width),
        false => key_type.bytes_length().map(|length| 1 + length),
    }
}

/// Checks that the bytes are a key of these columns.
///
/// # Errors
/// They end early or late, or a column is none of its type.
pub fn check(bytes: &[u8], columns: &[KeyType]) -> Result<()> {
    let ends = || FormatError::invalid("a key of several columns", "bytes that end early", "one part for each column");
    let mut rest = bytes;
    for key_type in columns {
        let (tag, after) = rest.split_first().ok_or_else(ends)?;
        rest = match *tag {
            NULL => after,
            VALUE => skip_value(after, key_type)?.ok_or_else(ends)?,
            other => {
                return Err(FormatError::invalid("the first byte of a column in a key", other, "0 for NULL, or 1"));
            }
        };
    }
    match rest {
        [] => Ok(()),
        more => {
            Err(FormatError::invalid("a key of several columns", format_args!("{} bytes too many", more.len()), "none"))
        }
    }
}

/// The key of each of these columns; none where a column is NULL.
///
/// # Errors
/// Those of [`check`].
pub fn split(bytes: &[u8], columns: &[KeyType]) -> Result<Vec<Option<Key>>> {
    check(bytes, columns)?;
    let (mut parts, mut rest) = (Vec::with_capacity(columns.len()), bytes);
    for key_type in columns {
        let Some((tag, after)) = rest.split_first() else { break };
        if *tag == NULL {
            parts.push(None);
            rest = after;
            continue;
        }
        rest = skip_value(after, key_type)?.unwrap_or_default();
        let value = after.get(..after.len() - rest.len()).unwrap_or_default();
        parts.push(Some(key_of_value(value, key_type)));
    }
    Ok(parts)
}

/// The key of a value as it stands in a key of several columns.
fn key_of_value(value: &[u8], key_type: &KeyType) -> Key {
    if key_type.is_fixed() {
        let number = value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        return Key::Fixed(number.wrapping_add(number_form(key_type).least));
    }
    if key_type.bytes_length().is_some() {
        return Key::Bytes(value.to_vec());
    }
    // Two bytes end it, and a byte follows each 0 in it.
    let inner = value.get(..value.len().saturating_sub(2)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(inner.len());
    let mut is_escape = false;
    for byte in inner {
        if !is_escape {
            bytes.push(*byte);
        }
        is_escape = !is_escape && *byte == 0;
    }
    Key::Bytes(bytes)
}

/// What follows a value; none if the bytes end in it.
fn skip_value<'a>(bytes: &'a [u8], key_type: &KeyType) -> Result<Option<&'a [u8]>> {
    if key_type.is_fixed() {
        let NumberForm { least, width } = number_form(key_type);
        let Some((value, rest)) = bytes.split_at_checked(width) else { return Ok(None) };
        let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        key_type.check(&Key::Fixed(value.wrapping_add(least)))?;
        return Ok(Some(rest));
    }
    if let Some(length) = key_type.bytes_length() {
        return Ok(bytes.get(length..));
    }
    let mut rest = bytes;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        let Some((next, after)) = rest.get(zero + 1..).and_then(<[u8]>::split_first) else { return Ok(None) };
        rest = after;
        match *next {
            END => return Ok(Some(rest)),
            ESCAPE => {}
            other => return Err(FormatError::invalid("the byte behind 0 in a key", other, "0 or 255")),
        }
    }
    Ok(None)
}

/// How the numbers of a type are written.
struct NumberForm {
    /// The smallest number of the type.
    least: u64,
    /// The bytes that the distance of any other from it takes.
    width: usize,
}

fn number_form(key_type: &KeyType) -> NumberForm {
    let (least, most) = key_type.fixed_bounds().unwrap_or(0..=u64::MAX).into_inner();
    let bits = u64::BITS - most.wrapping_sub(least).leading_zeros();
    NumberForm { least, width: bits.div_ceil(u8::BITS) as usize }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{TimeUnit, key_of_i64};

    fn key(columns: &[(KeyType, Option<Key>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (key_type, key) in columns {
            match key {
                Some(key) => push_key(&mut out, key_type, key),
                None => push_null(&mut out),
            }
        }
        out
    }

    fn int(value: i32) -> (KeyType, Option<Key>) {
        (KeyType::Int32, Some(Key::Fixed(key_of_i64(value.into()))))
    }

    fn text(value: &[u8]) -> (KeyType, Option<Key>) {
        (KeyType::Utf8, Some(Key::Bytes(value.to_vec())))
    }

    #[test]
    fn columns_are_written_as_wide_as_their_types() {
        let row = key(&[int(-5), text(b"a\0b"), (KeyType::Int32, None)]);
        assert_eq!(row, [1, 0x7f, 0xff, 0xff, 0xfb, 1, b'a', 0, 0xff, b'b', 0, 0, 0]);
        assert_eq!(key(&[(KeyType::Bool, Some(Key::Fixed(1)))]), [1, 1]);
        assert_eq!(key(&[(KeyType::UInt16, Some(Key::Fixed(258)))]), [1, 1, 2]);
        assert_eq!(key(&[(KeyType::FixedBinary(2), Some(Key::Bytes(vec![0, 9])))]), [1, 0, 9]);
        let micros = KeyType::Timestamp { unit: TimeUnit::Microsecond, zoned: true };
        assert_eq!(key(&[(micros, Some(Key::Fixed(key_of_i64(1))))]), [1, 0x80, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn only_keys_of_the_columns_pass() {
        let types = [KeyType::Int32, KeyType::Utf8, KeyType::FixedBinary(2), KeyType::Bool];
        let good = key(&[
            int(7),
            text(b"x\0"),
            (KeyType::FixedBinary(2), Some(Key::Bytes(vec![1, 2]))),
            (KeyType::Bool, Some(Key::Fixed(0))),
        ]);
        check(&good, &types).unwrap();
        check(&[0, 0, 0, 0], &types).unwrap();
        assert_eq!(split(&[0, 0, 0, 0], &types).unwrap(), [None, None, None, None]);
        assert_eq!(split(&good, &types).unwrap()[2], Some(Key::Bytes(vec![1, 2])));
        assert!(split(&good[1..], &types).is_err());
        for end in 0..good.len() {
            assert!(check(&good[..end], &types).is_err(), "{end}");
        }
        let with = |place: usize, byte: u8| {
            let mut bad = good.clone();
            bad[place] = byte;
            check(&bad, &types).unwrap_err().to_string()
        };
        assert!(with(0, 2).contains("first byte of a column"));
        assert!(with(8, 7).contains("behind 0"), "{}", with(8, 7));
        assert!(with(good.len() - 1, 2).contains("a key"), "{}", with(good.len() - 1, 2));
        assert!(check(&[&good[..], &[0]].concat(), &types).unwrap_err().to_string().contains("too many"));
    }

    fn rows() -> impl Strategy<Value = (Option<i32>, Option<Vec<u8>>, Option<u8>)> {
        let bytes = prop::collection::vec(prop_oneof![Just(0u8), Just(255), Just(1), any::<u8>()], 0..4);
        (prop::option::of(-3..3i32), prop::option::of(bytes), prop::option::of(0..3u8))
    }

    proptest! {
        #[test]
        fn the_order_of_keys_is_that_of_rows(one in rows(), other in rows()) {
            let of = |(a, b, c): &(Option<i32>, Option<Vec<u8>>, Option<u8>)| key(&[
                (KeyType::Int32, a.map(|a| Key::Fixed(key_of_i64(a.into())))),
                (KeyType::Binary, b.clone().map(Key::Bytes)),
                (KeyType::UInt8, c.map(|c| Key::Fixed(c.into()))),
            ]);
            prop_assert_eq!(of(&one).cmp(&of(&other)), one.cmp(&other));
            let types = [KeyType::Int32, KeyType::Binary, KeyType::UInt8];
            prop_assert!(check(&of(&one), &types).is_ok());
            let parts = [
                one.0.map(|a| Key::Fixed(key_of_i64(a.into()))),
                one.1.clone().map(Key::Bytes),
                one.2.map(|c| Key::Fixed(c.into())),
            ];
            prop_assert_eq!(split(&of(&one), &types).unwrap(), parts);
        }
    }
}
