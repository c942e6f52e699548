//! The option `hashed`: an index of the kind `key` has hashes of values in the place of these.

use std::sync::Arc;

use lakemark_format::{KeyType, ManifestIndex};

use super::included::included;

/// The name of the option.
pub(crate) const HASHED: &str = "hashed";
/// The name of the option that says how many bits a hash has.
pub(crate) const HASH_BITS: &str = "hash_bits";

/// The fewest bits that users can choose.
pub(crate) const LEAST_HASH_BITS: u8 = 8;
/// The most bits of a hash.
pub(crate) const MOST_HASH_BITS: u8 = 64;

/// Bits beyond those that tell as many rows apart as there are: a search finds the rows of other values in one of 2^8 cases.
const SPARE_BITS: u32 = 8;
/// The bits for tables of few rows, which may grow.
const FIRST_HASH_BITS: u32 = 32;
/// The bits for tables of an unknown number of rows.
const DEFAULT_HASH_BITS: u8 = 40;

/// The bits of the hashes of an index; none if it has the values themselves.
pub(crate) fn hash_bits(index: &ManifestIndex) -> Option<u8> {
    let given = index.options.iter().find(|(name, _)| name == HASH_BITS);
    given.and_then(|(_, value)| value.parse().ok()).filter(|bits| (1..=MOST_HASH_BITS).contains(bits))
}

/// The type of the keys in the segments of an index.
pub(crate) fn key_type_of_segments(index: &ManifestIndex) -> KeyType {
    match hash_bits(index) {
        Some(bits) => KeyType::Hashed { bits, of: Arc::new(index.key_type.clone()) },
        None => index.key_type.clone(),
    }
}

/// Whether an index has the values of its key: as keys, or beside their hashes.
pub(crate) fn has_values(index: &ManifestIndex) -> bool {
    hash_bits(index).is_none() || included(index).contains(&index.column)
}

/// The bits of the hashes of an index of a table with so many rows, if that is known.
pub(crate) fn hash_bits_for(rows: Option<u64>) -> u8 {
    let Some(rows) = rows.filter(|rows| *rows > 0) else { return DEFAULT_HASH_BITS };
    let bits = (u64::BITS - (rows - 1).leading_zeros() + SPARE_BITS).max(FIRST_HASH_BITS);
    u8::try_from(bits).unwrap_or(MOST_HASH_BITS).min(MOST_HASH_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_eight_bits_more_than_rows_need() {
        assert_eq!(hash_bits_for(Some(100_000_000)), 27 + 8);
        assert_eq!(hash_bits_for(Some(1 << 30)), 30 + 8);
        assert_eq!((hash_bits_for(Some(1)), hash_bits_for(Some(10_000_000))), (32, 32));
        assert_eq!((hash_bits_for(None), hash_bits_for(Some(0)), hash_bits_for(Some(u64::MAX))), (40, 40, 64));
    }
}
