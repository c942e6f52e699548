//! What the leaves of a packed tree will take.

use lakemark_format::container::PAGE_PAYLOAD;
use lakemark_format::leaf::{MAX_INLINE_POSTING, MAX_LISTED_ROWS, MAX_SEGMENT_KEYS, TARGET_SEGMENT_BYTES};

use super::shape::{ColumnShape, FrequencyClass};

/// Bits by which the largest of the gaps of a value block exceeds what a Rice code takes.
const PACKED_BEYOND_RICE: f64 = 1.9;
/// Bits of an embedded segment beside its keys and rows: widths and forms, and its length in the header of the leaf.
const SEGMENT_BITS: f64 = 8.0 * 8.0;
/// Runs of rows that are as good as one.
const ONE_RUN: f64 = 1.02;
/// Rows in the order of values are one apart, where rows in random order are a third of all rows apart.
const IN_ORDER: f64 = 4.0;
/// Bits of the number of rows and of the place of a posting.
const POSTING_BITS: f64 = 11.0;
/// Bits of the number of rows of a key whose rows are listed.
const LIST_BITS: f64 = 3.0;
/// Bytes of a leaf that no key fits into.
const UNUSED_BYTES: f64 = 12.0;
/// The length of a separator, its last byte, and as much again for texts that say little in a byte.
const SEPARATOR_BYTES: f64 = 4.0;
/// A leaf in the directory without its first key.
const REFERENCE_BYTES: f64 = 8.0;

/// Bytes of all leaves, their long postings and their part of the directory.
pub(super) fn leaf_bytes(shape: &ColumnShape) -> f64 {
    let values = shape.values();
    if values <= 0.0 {
        return 0.0;
    }
    let (mut inside, mut outside) = (0.0, 0.0);
    for class in &shape.classes {
        let bits = row_bits(shape, class);
        inside += class.values * bits.inside;
        outside += class.values * bits.outside / 8.0;
    }
    if let Some(bits) = shape.leaf_key_bits {
        let leaves = (values * (bits + inside / values) / 8.0 / PAGE_PAYLOAD as f64).ceil();
        // As many of the first bytes as tell a leaf from the one before.
        let separator = leaves.max(2.0).log2() / 8.0 + SEPARATOR_BYTES;
        return leaves * (PAGE_PAYLOAD as f64 + REFERENCE_BYTES + separator) + outside;
    }
    let key_bits = if shape.key_bits > 4.0 { shape.key_bits - PACKED_BEYOND_RICE } else { shape.key_bits };
    let bits = key_bits + inside / values;
    let per_segment = (TARGET_SEGMENT_BYTES as f64 * 8.0 / bits.max(1.0)).clamp(1.0, MAX_SEGMENT_KEYS as f64);
    let bits = bits + (SEGMENT_BITS + key_bits) / per_segment;
    let leaves = (values * bits / 8.0 / (PAGE_PAYLOAD as f64 - UNUSED_BYTES)).ceil();
    let first_key = (key_bits + (values / leaves).log2()).max(7.0) / 7.0;
    leaves * (PAGE_PAYLOAD as f64 + REFERENCE_BYTES + first_key) + outside
}

/// Bits of the rows of a value.
struct RowBits {
    /// In its leaf.
    inside: f64,
    /// Elsewhere.
    outside: f64,
}

/// Bits of the rows of a value of a class.
fn row_bits(shape: &ColumnShape, class: &FrequencyClass) -> RowBits {
    if class.each.runs <= ONE_RUN {
        // The first rows of neighbouring values are packed to the range in which they lie; in order they take nothing.
        let range = shape.rows as f64 * shape.shuffle;
        let inside = if range < IN_ORDER { 0.0 } else { range.log2().ceil() };
        return RowBits { inside, outside: 0.0 };
    }
    let posting = class.each.posting_bytes(shape.rows as f64);
    if posting > MAX_INLINE_POSTING as f64 {
        return RowBits { inside: POSTING_BITS + 40.0, outside: posting * 8.0 };
    }
    let inside = POSTING_BITS + posting * 8.0;
    if class.each.rows > MAX_LISTED_ROWS as f64 {
        return RowBits { inside, outside: 0.0 };
    }
    // Those of an embedded segment are packed to the range in which they lie.
    let range = (shape.rows as f64 * shape.shuffle).max(class.each.rows * MAX_SEGMENT_KEYS as f64);
    let listed = LIST_BITS + class.each.rows * range.log2().ceil();
    RowBits { inside: inside.min(listed), outside: 0.0 }
}
