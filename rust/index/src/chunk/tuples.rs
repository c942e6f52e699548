//! Rows of several columns whose keys all have one width: sorted by their bytes, a byte at a time from the last to the first (radix sort).
//!
//! Rows of links come in no order, and hardly two of them are alike. To look each up among those before costs more than the passes over
//! the few bytes that differ.

use lakemark_format::key::composite;
use lakemark_format::key::{Key, KeyType};

use super::SortedRows;

/// Wider rows are not sorted so.
const MOST_BYTES: usize = 64;
/// The values of a byte.
const BUCKETS: usize = 256;

/// Keys of rows, each with so many bytes. A column that is NULL is filled with zeros, behind the zero that says so.
#[derive(Debug)]
pub(super) struct Tuples {
    /// Bytes of each column.
    columns: Vec<usize>,
    /// Bytes of a row.
    width: usize,
    bytes: Vec<u8>,
    rows: Vec<u32>,
}

impl Tuples {
    /// Gathers keys of a type, if all of them have one width.
    pub(super) fn of(key_type: &KeyType) -> Option<Self> {
        let KeyType::Composite(types) = key_type else { return None };
        let columns: Vec<usize> = types.iter().map(composite::width_of).collect::<Option<_>>()?;
        let width = columns.iter().sum();
        (width <= MOST_BYTES).then(|| Self { columns, width, bytes: Vec::new(), rows: Vec::new() })
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn push(&mut self, row: u32, key: &[u8]) {
        let end = self.bytes.len() + self.width;
        let mut rest = key;
        for width in &self.columns {
            // NULL is a zero alone.
            let taken = if rest.first() == Some(&0) { 1 } else { *width };
            let (part, after) = rest.split_at_checked(taken).unwrap_or((rest, Default::default()));
            let filled = self.bytes.len() + width;
            self.bytes.extend_from_slice(part);
            self.bytes.resize(filled, 0);
            rest = after;
        }
        self.bytes.resize(end, 0);
        self.rows.push(row);
    }

    pub(super) fn sort(&self) -> SortedRows {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        let mut sorted = order.clone();
        for byte in (0..self.width).rev() {
            let mut starts = [0u32; BUCKETS + 1];
            for key in self.bytes.chunks_exact(self.width) {
                let bucket = usize::from(key.get(byte).copied().unwrap_or_default());
                starts.get_mut(bucket + 1).into_iter().for_each(|count| *count += 1);
            }
            // A byte that all rows have in common sorts nothing.
            if starts.iter().any(|count| *count as usize == order.len()) {
                continue;
            }
            let mut before = 0;
            for start in &mut starts {
                before += *start;
                *start = before;
            }
            for place in &order {
                let bucket = usize::from(self.key(*place).get(byte).copied().unwrap_or_default());
                if let Some(slot) = starts.get_mut(bucket) {
                    if let Some(to) = sorted.get_mut(*slot as usize) {
                        *to = *place;
                    }
                    *slot += 1;
                }
            }
            std::mem::swap(&mut order, &mut sorted);
        }
        self.grouped(&order)
    }

    fn key(&self, place: u32) -> &[u8] {
        let start = place as usize * self.width;
        self.bytes.get(start..start + self.width).unwrap_or_default()
    }

    /// The rows by key, from their order. The passes keep the order of rows with one key.
    fn grouped(&self, order: &[u32]) -> SortedRows {
        let (mut keys, mut ends, mut rows) = (Vec::new(), Vec::new(), Vec::with_capacity(order.len()));
        for group in order.chunk_by(|one, other| self.key(*one) == self.key(*other)) {
            let Some(first) = group.first() else { continue };
            keys.push(self.packed(self.key(*first)));
            rows.extend(group.iter().filter_map(|place| self.rows.get(*place as usize)));
            ends.push(rows.len() as u32);
        }
        SortedRows { keys, ends, rows }
    }

    /// A key without what fills it.
    fn packed(&self, tuple: &[u8]) -> Key {
        let (mut key, mut rest) = (Vec::with_capacity(self.width), tuple);
        for width in &self.columns {
            let (part, after) = rest.split_at_checked(*width).unwrap_or((rest, Default::default()));
            let is_null = part.first() == Some(&0);
            key.extend_from_slice(if is_null { part.get(..1).unwrap_or_default() } else { part });
            rest = after;
        }
        Key::Bytes(key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lakemark_format::key_of_i64;
    use proptest::prelude::*;

    use super::*;

    fn key_of(row: (Option<i32>, Option<u8>, Option<i64>)) -> Vec<u8> {
        let mut key = Vec::new();
        let mut push = |key_type: &KeyType, value: Option<u64>| match value {
            Some(value) => composite::push_fixed(&mut key, key_type, value),
            None => composite::push_null(&mut key),
        };
        push(&KeyType::Int32, row.0.map(|value| key_of_i64(value.into())));
        push(&KeyType::UInt8, row.1.map(u64::from));
        push(&KeyType::Int64, row.2.map(key_of_i64));
        key
    }

    #[test]
    fn only_keys_of_one_width_are_tuples() {
        let composite = |types: &[KeyType]| KeyType::Composite(types.to_vec().into());
        assert!(Tuples::of(&KeyType::Int64).is_none());
        assert!(Tuples::of(&composite(&[KeyType::Int64, KeyType::Utf8])).is_none());
        assert!(Tuples::of(&composite(&[KeyType::FixedBinary(40), KeyType::FixedBinary(40)])).is_none());
        assert_eq!(Tuples::of(&composite(&[KeyType::FixedBinary(16), KeyType::Bool])).unwrap().width, 19);
    }

    proptest! {
        #[test]
        fn rows_are_sorted_by_their_keys(
            held in prop::collection::vec((prop::option::of(-3..3i32), prop::option::of(0..3u8), prop::option::of(any::<i64>())), 0..300),
        ) {
            let key_type = KeyType::Composite(vec![KeyType::Int32, KeyType::UInt8, KeyType::Int64].into());
            let mut tuples = Tuples::of(&key_type).unwrap();
            let mut expected: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
            for (row, held) in (0..).zip(held) {
                let key = key_of(held);
                tuples.push(row, &key);
                expected.entry(key).or_default().push(row);
            }
            let sorted = tuples.sort();
            let keys: Vec<Key> = expected.keys().cloned().map(Key::Bytes).collect();
            prop_assert_eq!(sorted.keys, keys);
            prop_assert_eq!(sorted.rows, expected.values().flatten().copied().collect::<Vec<_>>());
            let ends = expected.values().scan(0, |end, rows| {
                *end += rows.len() as u32;
                Some(*end)
            });
            prop_assert_eq!(sorted.ends, ends.collect::<Vec<_>>());
        }
    }
}
