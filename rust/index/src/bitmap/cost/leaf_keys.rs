//! What keys that are bytes take in the leaves of a packed tree, measured on those of a sample.
//!
//! How they are packed depends on what they are: columns of fixed width, UUIDs, texts of few kinds of characters. So leaves of some stretches
//! of keys are made, with rows that take nothing.

use lakemark_format::container::PAGE_PAYLOAD;
use lakemark_format::error::Result;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::leaf::{KeyRows, LeafBuilder, LeafEntry};

use super::riding::stretches;
use crate::chunk::ValueList;

/// Bits of leaves for each of these keys, all that a leaf has beside rows among them. None of keys that are numbers.
pub(super) fn leaf_key_bits(values: &[ValueList<'_>], key_type: &KeyType) -> Option<f64> {
    if !matches!(values.first(), Some(ValueList { key: Key::Bytes(_), .. })) {
        return None;
    }
    let (mut bytes, mut keys) = (0usize, 0usize);
    for stretch in stretches(values) {
        // Keys of another type are those of no sample.
        bytes += bytes_of(stretch, key_type).ok()?;
        keys += stretch.len();
    }
    Some(bytes as f64 * 8.0 / keys.max(1) as f64)
}

/// Bytes of the leaves of some keys, whose rows follow each other.
fn bytes_of(values: &[ValueList<'_>], key_type: &KeyType) -> Result<usize> {
    let room = PAGE_PAYLOAD as usize;
    let mut leaves = LeafBuilder::new(key_type.clone(), values.len() as u32);
    let mut bytes = 0;
    for (row, list) in (0u32..).zip(values) {
        let entry = LeafEntry { key: list.key.clone(), rows: 1, rows_in: KeyRows::Run(row) };
        bytes += leaves.push(entry, room)?.iter().map(|leaf| leaf.bytes.len()).sum::<usize>();
    }
    while let Some(leaf) = leaves.finish(room)? {
        bytes += leaf.bytes.len();
    }
    Ok(bytes)
}
