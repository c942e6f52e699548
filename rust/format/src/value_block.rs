//! Value blocks: the packed, sorted values of an index with, for each, its rows and its posting's length.
//!
//! ```text
//! block := count, keys, rows, lengths
//! keys (fixed)  first key is in the directory; the gaps to the next, less one, bit-packed
//! keys (bytes)  front coding: for each key the bytes shared with the one before, then the rest
//! rows, lengths column of numbers: least value, bit width, packed differences to the least
//! ```
//!
//! The packed columns are frames of reference (Goldstein, Ramakrishnan and Shaft 1998). A dense
//! run of integers costs no bits for its keys. Postings of a block lie one after the other from
//! the offset that the directory names, so their lengths are all that is needed to find them.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType, MAX_KEY_LENGTH};
use crate::packed::{decode_column, encode_column, pack, read_width, unpack, width_of};

/// The most values of a block. Part of the format.
pub const MAX_BLOCK_VALUES: usize = 1024;

/// A writer closes a block of byte keys after this many key bytes, so that reading one stays one small read.
pub const TARGET_KEY_BYTES: usize = 4096;

/// One value of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub key: Key,
    /// Rows that hold it; at least one.
    pub rows: u32,
    /// Bytes of its posting.
    pub posting_length: u32,
}

/// Encodes up to [`MAX_BLOCK_VALUES`] values with ascending keys. The first key goes to the directory, not here.
///
/// # Errors
/// None, one or too many values, keys that do not ascend, or keys of another type than `key_type`.
pub fn encode(values: &[Value], key_type: &KeyType) -> Result<Vec<u8>> {
    if values.is_empty() || values.len() > MAX_BLOCK_VALUES {
        return Err(FormatError::invalid(
            "the values of a block",
            values.len(),
            format_args!("1 to {MAX_BLOCK_VALUES}"),
        ));
    }
    let mut out = ByteWriter::new();
    out.length(values.len());
    let keys: Vec<&Key> = values.iter().map(|value| &value.key).collect();
    encode_keys(&keys, key_type, &mut out)?;
    encode_column(values.iter().map(|value| u64::from(value.rows)), &mut out);
    encode_column(values.iter().map(|value| u64::from(value.posting_length)), &mut out);
    Ok(out.into_vec())
}

/// Decodes a block whose first key the directory gave.
///
/// # Errors
/// Bytes that are not a block of `key_type`.
pub fn decode(bytes: &[u8], first_key: &Key, key_type: &KeyType) -> Result<Vec<Value>> {
    let mut input = ByteReader::new("a value block", bytes);
    let count = decode_count(&mut input)?;
    let keys = decode_keys(&mut input, first_key, count, key_type)?;
    let rows = decode_column(&mut input, count, "the rows of a value")?;
    let lengths = decode_column(&mut input, count, "the length of a posting")?;
    input.finish()?;
    if rows.contains(&0) {
        return Err(FormatError::invalid("the rows of a value", 0, "at least 1"));
    }
    let values = keys.into_iter().zip(rows).zip(lengths);
    Ok(values.map(|((key, rows), posting_length)| Value { key, rows, posting_length }).collect())
}

/// The number of values, or of bins, at the beginning of a block.
pub(crate) fn decode_count(input: &mut ByteReader<'_>) -> Result<usize> {
    let count = input.varint()?;
    match usize::try_from(count) {
        Ok(fits) if (1..=MAX_BLOCK_VALUES).contains(&fits) => Ok(fits),
        _ => Err(FormatError::TooLong { what: "the values of a block", got: count, limit: MAX_BLOCK_VALUES as u64 }),
    }
}

/// All keys but the first: packed gaps of numbers, front coded bytes.
pub(crate) fn encode_keys(keys: &[&Key], key_type: &KeyType, out: &mut ByteWriter) -> Result<()> {
    if !key_type.is_fixed() {
        return encode_byte_keys(keys, out);
    }
    let gaps = gaps_of(keys)?;
    let width = width_of(gaps.iter().copied());
    out.u8(width);
    pack(gaps.into_iter(), width, out);
    Ok(())
}

/// What [`encode_keys`] wrote, with the first key.
pub(crate) fn decode_keys(
    input: &mut ByteReader<'_>,
    first_key: &Key,
    count: usize,
    key_type: &KeyType,
) -> Result<Vec<Key>> {
    match first_key {
        Key::Fixed(first) => {
            let width = read_width(input)?;
            keys_of_gaps(*first, &unpack(input, count - 1, width)?, key_type)
        }
        Key::Bytes(first) => decode_byte_keys(input, first, count, key_type),
    }
}

/// Each number key, but for the first, less the one before less 1.
pub(crate) fn gaps_of(keys: &[&Key]) -> Result<Vec<u64>> {
    let mut gaps = Vec::with_capacity(keys.len());
    for (before, after) in keys.iter().zip(keys.iter().skip(1)) {
        let (Key::Fixed(before), Key::Fixed(after)) = (before, after) else {
            return Err(FormatError::invalid("a key", "bytes", "a number"));
        };
        match after.checked_sub(*before) {
            Some(gap) if gap > 0 => gaps.push(gap - 1),
            _ => {
                return Err(FormatError::invalid("a key", after, format_args!("above {before}")));
            }
        }
    }
    Ok(gaps)
}

/// The last of the number keys that begin with `first` and have these gaps between them. As keys ascend, all are of the type if the first
/// and the last one are.
pub(crate) fn last_of_gaps(first: u64, gaps: &[u64], key_type: &KeyType) -> Result<u64> {
    let steps: u128 = gaps.iter().map(|&gap| u128::from(gap) + 1).sum();
    let last = u64::try_from(u128::from(first) + steps);
    let last = last.map_err(|_| FormatError::invalid("a key", "beyond 64 bits", "a 64-bit number"))?;
    key_type.check(&Key::Fixed(first))?;
    key_type.check(&Key::Fixed(last))?;
    Ok(last)
}

/// The number keys that begin with `first` and have these gaps between them.
pub(crate) fn keys_of_gaps(first: u64, gaps: &[u64], key_type: &KeyType) -> Result<Vec<Key>> {
    last_of_gaps(first, gaps, key_type)?;
    let mut keys = Vec::with_capacity(gaps.len() + 1);
    keys.push(Key::Fixed(first));
    let mut key = first;
    keys.extend(gaps.iter().map(|gap| {
        key = key.wrapping_add(*gap).wrapping_add(1);
        Key::Fixed(key)
    }));
    Ok(keys)
}

/// All keys but the first, front coded.
fn encode_byte_keys(keys: &[&Key], out: &mut ByteWriter) -> Result<()> {
    for (before, after) in keys.iter().zip(keys.iter().skip(1)) {
        let (Key::Bytes(before), Key::Bytes(after)) = (before, after) else {
            return Err(FormatError::invalid("a key", "a number", "bytes"));
        };
        if after <= before {
            return Err(FormatError::invalid("a key", "not above the one before", "ascending keys"));
        }
        let shared = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        out.length(shared);
        out.blob("the rest of a key", after.get(shared..).unwrap_or_default(), MAX_KEY_LENGTH)?;
    }
    Ok(())
}

fn decode_byte_keys(input: &mut ByteReader<'_>, first: &[u8], count: usize, key_type: &KeyType) -> Result<Vec<Key>> {
    let first_key = Key::Bytes(first.to_vec());
    key_type.check(&first_key)?;
    let mut keys = Vec::with_capacity(count);
    let mut current = first.to_vec();
    keys.push(first_key);
    for _ in 1..count {
        let shared = input.varint_u32("the shared bytes of a key")? as usize;
        let rest = input.blob("the rest of a key", MAX_KEY_LENGTH)?;
        let ascends = current.get(shared..).is_some_and(|old| rest > old);
        if !ascends {
            return Err(FormatError::invalid("a key", "not above the one before", "ascending keys"));
        }
        current.truncate(shared);
        current.extend_from_slice(rest);
        let key = Key::Bytes(current.clone());
        key_type.check(&key)?;
        keys.push(key);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(keys: Vec<Key>, numbers: &[(u32, u32)]) -> Vec<Value> {
        keys.into_iter()
            .zip(numbers.iter().cycle())
            .map(|(key, &(rows, posting_length))| Value { key, rows, posting_length })
            .collect()
    }

    fn round_trip(values: &[Value], key_type: &KeyType) -> usize {
        let bytes = encode(values, key_type).unwrap();
        assert_eq!(decode(&bytes, &values[0].key, key_type).unwrap(), values);
        bytes.len()
    }

    #[test]
    fn dense_integers_cost_no_key_bits() {
        let dense = values((7..1031).map(Key::Fixed).collect(), &[(20, 53)]);
        // count 2, key width 1, two columns of least 1 and width 1.
        assert_eq!(round_trip(&dense, &KeyType::UInt64), 2 + 1 + 2 + 2);
    }

    #[test]
    fn extreme_keys_and_numbers_are_kept() {
        round_trip(
            &values(vec![Key::Fixed(0), Key::Fixed(u64::MAX)], &[(1, 0), (u32::MAX, u32::MAX)]),
            &KeyType::UInt64,
        );
        round_trip(&values(vec![Key::Bytes(vec![]), Key::Bytes(vec![0])], &[(1, 1)]), &KeyType::Binary);
    }

    #[test]
    fn disorder_is_refused() {
        let twice = values(vec![Key::Fixed(5), Key::Fixed(5)], &[(1, 1)]);
        assert!(encode(&twice, &KeyType::UInt64).is_err());
        assert!(encode(&[], &KeyType::UInt64).is_err());
    }

    #[test]
    fn keys_beyond_their_type_are_refused() {
        let keys = |first, gaps: &[u64]| keys_of_gaps(first, gaps, &KeyType::UInt64);
        assert_eq!(keys(5, &[0, u64::MAX - 7]).unwrap(), [5, 6, u64::MAX].map(Key::Fixed));
        assert!(keys(5, &[0, u64::MAX - 6]).is_err());
        assert!(keys(5, &[u64::MAX, u64::MAX, u64::MAX]).is_err());
    }

    proptest! {
        #[test]
        fn fixed_keys_round_trip(
            keys in prop::collection::btree_set(any::<u64>(), 1..200),
            numbers in prop::collection::vec((1u32.., any::<u32>()), 1..10),
        ) {
            round_trip(&values(keys.into_iter().map(Key::Fixed).collect(), &numbers), &KeyType::UInt64);
        }

        #[test]
        fn byte_keys_round_trip(
            keys in prop::collection::btree_set(prop::collection::vec(0u8..4, 0..9), 1..200),
            numbers in prop::collection::vec((1u32.., any::<u32>()), 1..10),
        ) {
            round_trip(&values(keys.into_iter().map(Key::Bytes).collect(), &numbers), &KeyType::Binary);
        }

        #[test]
        fn arbitrary_bytes_give_ascending_values_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for (first, key_type) in [(Key::Fixed(3), KeyType::UInt64), (Key::Bytes(vec![1]), KeyType::Binary)] {
                if let Ok(values) = decode(&bytes, &first, &key_type) {
                    prop_assert!(values.is_sorted_by(|a, b| a.key < b.key));
                    prop_assert!(values.iter().all(|value| value.rows > 0));
                }
            }
        }
    }
}
