//! The keys of a column that queries accept: a bit for each query.
//!
//! ```text
//! dense     first key ─▶ │ A·C │  ·  │ ·BC │ A·· │       an array from the least key to the greatest
//! sparse    key ─▶ bits                                 a hash map, for keys that are far apart
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// From the least key to the greatest there are at most so many in an array: 8 MiB.
const MOST_DENSE: usize = 1 << 20;
/// Bytes that a key takes in a hash map at most, with room for the next ones.
const SPARSE_BYTES: usize = 40;

/// A query among those of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueryBit(u8);

impl QueryBit {
    /// The queries that a group has at most.
    pub(crate) const MOST: u32 = u64::BITS;

    /// The first bit that is not among these; none if all are.
    pub(crate) fn first_free(taken: u64) -> Option<Self> {
        let place = taken.trailing_ones();
        if place < Self::MOST { u8::try_from(place).ok().map(Self) } else { None }
    }

    /// The bits that are set.
    pub(crate) fn all_of(bits: u64) -> impl Iterator<Item = Self> {
        let mut left = bits;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros();
            // Without the lowest one.
            left &= left.wrapping_sub(1);
            if place < Self::MOST { u8::try_from(place).ok().map(Self) } else { None }
        })
    }

    pub(crate) fn mask(self) -> u64 {
        1 << self.0
    }

    pub(crate) fn place(self) -> usize {
        usize::from(self.0)
    }
}

/// The keys that queries accept in a column.
#[derive(Debug, Default)]
pub(crate) struct Dimension {
    keys: KeyBits,
    /// The queries that have keys here. All others accept every row.
    users: u64,
    /// Rows that were looked up, and how many were left to some query.
    looked_up: AtomicU64,
    left: AtomicU64,
}

#[derive(Debug)]
enum KeyBits {
    /// Bits of this key and of those that follow it.
    Dense {
        first: i64,
        bits: Vec<u64>,
    },
    Sparse(HashMap<i64, u64, BuildHasherDefault<KeyHasher>>),
}

impl Default for KeyBits {
    fn default() -> Self {
        Self::Dense { first: 0, bits: Vec::new() }
    }
}

/// Keys are numbers of rows or days mostly: to spread their bits is enough.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        // Both halves, as keys may differ in their upper bits alone.
        let spread = u128::from(value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (spread >> u64::BITS) as u64 ^ spread as u64;
    }

    fn write_i64(&mut self, value: i64) {
        self.write_u64(value.cast_unsigned());
    }
}

impl Dimension {
    /// A query accepts these keys, and no others.
    pub(crate) fn add(&mut self, keys: &[i64], query: QueryBit) {
        self.users |= query.mask();
        self.keys.cover(keys);
        self.keys.set(keys, query.mask());
    }

    /// A query goes.
    pub(crate) fn remove(&mut self, query: QueryBit) {
        self.users &= !query.mask();
        self.keys.clear(query.mask());
    }

    /// The queries that have keys here.
    pub(crate) fn users(&self) -> u64 {
        self.users
    }

    /// The queries that accept a row with this key, or with none.
    pub(crate) fn accept(&self, key: Option<i64>) -> u64 {
        !self.users | key.map_or(0, |key| self.keys.get(key))
    }

    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.keys {
            KeyBits::Dense { bits, .. } => bits.len() * size_of::<u64>(),
            KeyBits::Sparse(keys) => keys.len() * SPARSE_BYTES,
        }
    }

    /// What it takes at most with these keys as well.
    pub(crate) fn bytes_with(&self, keys: &[i64]) -> usize {
        match &self.keys {
            KeyBits::Dense { first, bits } => match dense_span(*first, bits, keys).map(|span| dense_length(&span)) {
                None => 0,
                Some(Some(length)) => length * size_of::<u64>(),
                Some(None) => (bits.iter().filter(|bits| **bits != 0).count() + keys.len()) * SPARSE_BYTES,
            },
            KeyBits::Sparse(known) => (known.len() + keys.len()) * SPARSE_BYTES,
        }
    }

    /// Counts rows that were looked up, and those that were left.
    pub(crate) fn count(&self, looked_up: usize, left: usize) {
        self.looked_up.fetch_add(looked_up as u64, Ordering::Relaxed);
        self.left.fetch_add(left as u64, Ordering::Relaxed);
    }

    /// The share of rows that it left so far; 0 before there were any.
    pub(crate) fn share_left(&self) -> f64 {
        self.left.load(Ordering::Relaxed) as f64 / (self.looked_up.load(Ordering::Relaxed) as f64).max(1.0)
    }
}

impl KeyBits {
    fn get(&self, key: i64) -> u64 {
        match self {
            // A key before the first one is far behind the last one.
            Self::Dense { first, bits } => usize::try_from(key.wrapping_sub(*first).cast_unsigned())
                .ok()
                .and_then(|place| bits.get(place))
                .copied()
                .unwrap_or_default(),
            Self::Sparse(keys) => keys.get(&key).copied().unwrap_or_default(),
        }
    }

    /// Makes room for keys: in an array while they are near to each other.
    fn cover(&mut self, keys: &[i64]) {
        let Self::Dense { first, bits } = self else { return };
        let Some(span) = dense_span(*first, bits, keys) else { return };
        let known = bits.iter().enumerate().filter(|(_, bits)| **bits != 0);
        let known = known.map(|(place, bits)| (first.wrapping_add_unsigned(place as u64), *bits));
        *self = match dense_length(&span) {
            Some(length) if *first == *span.start() && bits.len() == length => return,
            Some(length) => {
                let mut grown = vec![0; length];
                for (key, bits) in known {
                    if let Some(there) = grown.get_mut(key.wrapping_sub(*span.start()).cast_unsigned() as usize) {
                        *there = bits;
                    }
                }
                Self::Dense { first: *span.start(), bits: grown }
            }
            None => Self::Sparse(known.collect()),
        };
    }

    fn set(&mut self, keys: &[i64], mask: u64) {
        match self {
            Self::Dense { first, bits } => {
                for key in keys {
                    if let Some(bits) = bits.get_mut(key.wrapping_sub(*first).cast_unsigned() as usize) {
                        *bits |= mask;
                    }
                }
            }
            Self::Sparse(known) => keys.iter().for_each(|key| *known.entry(*key).or_default() |= mask),
        }
    }

    fn clear(&mut self, mask: u64) {
        match self {
            Self::Dense { bits, .. } => bits.iter_mut().for_each(|bits| *bits &= !mask),
            Self::Sparse(known) => {
                known.retain(|_, bits| {
                    *bits &= !mask;
                    *bits != 0
                });
                // What it takes is counted by its keys.
                if known.capacity() / 2 > known.len() {
                    known.shrink_to_fit();
                }
            }
        }
    }
}

/// From the least to the greatest of the keys that an array has and of others; none if there are none.
fn dense_span(first: i64, bits: &[u64], keys: &[i64]) -> Option<RangeInclusive<i64>> {
    let last = bits.len().checked_sub(1).map(|place| first.wrapping_add_unsigned(place as u64));
    let ends = last.map(|last| [first, last]);
    let all = || keys.iter().chain(ends.iter().flatten()).copied();
    Some(all().min()?..=all().max()?)
}

/// How long an array from the first to the last of these keys is; none if that is too long.
fn dense_length(span: &RangeInclusive<i64>) -> Option<usize> {
    let steps = usize::try_from(span.end().wrapping_sub(*span.start()).cast_unsigned()).ok()?;
    // Only then, as of the span of all keys there is no such number.
    (steps < MOST_DENSE).then(|| steps + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn bits(count: usize) -> Vec<QueryBit> {
        QueryBit::all_of(u64::MAX).take(count).collect()
    }

    #[test]
    fn a_group_has_64_bits_and_each_is_free_once() {
        let mut taken = 0;
        for place in 0..64 {
            let bit = QueryBit::first_free(taken).unwrap();
            assert_eq!((bit.place(), bit.mask()), (place, 1 << place));
            taken |= bit.mask();
        }
        assert_eq!(QueryBit::first_free(taken), None);
        assert_eq!(QueryBit::first_free(taken & !(1 << 9)).map(QueryBit::place), Some(9));
        assert_eq!(QueryBit::all_of(0b1010_0001).map(QueryBit::place).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(QueryBit::all_of(u64::MAX).count(), 64);
    }

    #[test]
    fn who_has_no_keys_accepts_every_row_and_no_key_is_accepted_by_who_has() {
        let mut dimension = Dimension::default();
        let bits = bits(2);
        dimension.add(&[7, 9], bits[0]);
        assert_eq!(dimension.accept(Some(7)) & 0b11, 0b11);
        assert_eq!(dimension.accept(Some(8)) & 0b11, 0b10);
        assert_eq!(dimension.accept(None) & 0b11, 0b10);
        assert_eq!(dimension.users(), 0b01);
    }

    #[test]
    fn keys_at_the_ends_of_their_type_are_keys_like_others() {
        let mut dimension = Dimension::default();
        let bits = bits(3);
        dimension.add(&[i64::MAX - 1, i64::MAX], bits[0]);
        assert!(matches!(dimension.keys, KeyBits::Dense { .. }));
        dimension.add(&[i64::MIN], bits[1]);
        assert!(matches!(dimension.keys, KeyBits::Sparse(_)));
        let accepted = |key: i64| dimension.accept(Some(key)) & 0b11;
        assert_eq!([i64::MIN, -1, 0, i64::MAX - 1, i64::MAX].map(accepted), [0b10, 0, 0, 0b01, 0b01]);
    }

    #[test]
    fn keys_are_spread_whatever_bits_they_differ_in() {
        for shift in [0, 10, 20, 32, 40, 48] {
            let place = |key: i64| {
                let mut hasher = KeyHasher::default();
                hasher.write_i64(key << shift);
                hasher.finish() % 1_024
            };
            let places: BTreeSet<u64> = (0..1_000).map(place).collect();
            assert!(places.len() > 500, "{} places, shifted by {shift}", places.len());
        }
    }

    #[test]
    fn memory_goes_with_the_keys_that_took_it() {
        let mut dimension = Dimension::default();
        let bits = bits(2);
        let many: Vec<i64> = (0..10_000).map(|key| key * 1_000).collect();
        dimension.add(&many, bits[0]);
        dimension.add(&[7, 8], bits[1]);
        dimension.remove(bits[0]);
        let KeyBits::Sparse(known) = &dimension.keys else { panic!("keys are far apart") };
        assert!(known.len() == 2 && known.capacity() < 10, "{}", known.capacity());
    }

    #[test]
    fn no_keys_take_no_memory() {
        let mut dimension = Dimension::default();
        dimension.add(&[], bits(1)[0]);
        assert_eq!((dimension.bytes(), dimension.bytes_with(&[]), dimension.accept(Some(0)) & 1), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn a_table_has_just_the_keys_of_its_queries(
            steps in proptest::collection::vec((0..6_usize, proptest::collection::vec(-50_i64..50, 0..20), any::<bool>()), 1..40),
            far in prop_oneof![Just(1_i64), Just(100_000)],
        ) {
            let (mut dimension, bits) = (Dimension::default(), bits(6));
            let mut queries: BTreeMap<usize, BTreeSet<i64>> = BTreeMap::new();
            for (query, keys, goes) in steps {
                let keys: Vec<i64> = keys.into_iter().map(|key| key * far).collect();
                if queries.remove(&query).is_some() || goes {
                    dimension.remove(bits[query]);
                } else {
                    let most = dimension.bytes_with(&keys);
                    dimension.add(&keys, bits[query]);
                    prop_assert!(dimension.bytes() <= most);
                    queries.insert(query, keys.into_iter().collect());
                }
                for key in (-60..60).map(|key| key * far) {
                    for (place, bit) in bits.iter().enumerate() {
                        let accepts = dimension.accept(Some(key)) & bit.mask() != 0;
                        prop_assert_eq!(accepts, queries.get(&place).is_none_or(|keys| keys.contains(&key)));
                    }
                }
            }
        }
    }
}
