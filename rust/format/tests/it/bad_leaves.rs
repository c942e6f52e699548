//! Bad leaves of a packed tree.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::bad_segments::with;
use crate::model::Segment;
use crate::{forge, golden};

/// The golden leaf with another byte.
fn leaf(at: usize, from: u8, byte: u8) -> Vec<u8> {
    leaf_of_block(0, |_| at, from, byte)
}

/// The leaf of a block with another byte, at a place that its length leads to.
fn leaf_of_block(number: usize, at: impl Fn(usize) -> usize, from: u8, byte: u8) -> Vec<u8> {
    leaf_of(&golden::packed(), number, at, from, byte)
}

/// The same of any golden file.
fn leaf_of(segment: &Segment, number: usize, at: impl Fn(usize) -> usize, from: u8, byte: u8) -> Vec<u8> {
    let (file, directory) = segment.write();
    let mut stream = forge::stream(&file);
    let block = &directory.blocks[number];
    let at = at(block.length as usize);
    let slot = &mut stream[block.offset as usize + at];
    assert_eq!(*slot, from, "the byte {at} of the leaf");
    *slot = byte;
    forge::container(ContentKind::Segment, segment.id, &stream, &forge::directory(&directory))
}

/// The first leaf of the golden file has two embedded segments, of 128 keys and of 9. Its bytes: 0 the number of embedded segments,
/// 1 the width of the gap of heads, 2 the gap, 3 to 6 the column of keys, 7 to 9 that of lengths; then the first embedded segment: 10 the
/// width of its gaps, 11 to 26 the gaps, 27 and 28 the column of rows, 29 the form, 30 the first row. The third leaf ends with 20 listed rows
/// of 10 bits.
///
/// The second leaf of columns has one embedded segment: 0 to 13 the rest of the first key, of which the directory has a byte, 14 the number of
/// embedded segments, 15 and 16 the column of keys, 17 and 18 that of lengths, 19 the form of the keys, 20 the numbers of the first column.
pub fn leaves() -> Vec<Bad> {
    let columns = |at: usize, from, byte| leaf_of(&golden::packed_columns(), 1, |_| at, from, byte);
    let directory = |change: fn(&mut SegmentDirectory)| with(&golden::packed(), change);
    let hashed = |key_type: KeyType| with(&golden::packed_hashes(), |directory| directory.key_type = key_type);
    vec![
        bad("leaf-of-no-segment.lmx", "Invalid", "a leaf has no embedded segment", leaf(0, 2, 0)),
        bad("leaf-of-many-segments.lmx", "TooLong", "a leaf has more embedded segments than bytes", leaf(0, 2, 0x7f)),
        bad("leaf-wide-heads.lmx", "Invalid", "the gaps of heads have 65 bits", leaf(1, 8, 65)),
        bad("leaf-of-fewer-keys.lmx", "Invalid", "the keys of a leaf are fewer than the directory says", leaf(3, 9, 8)),
        bad("leaf-form.lmx", "Invalid", "the form of the rows of an embedded segment is 4", leaf(29, 0, 4)),
        bad(
            "leaf-listed-rows-descend.lmx",
            "Invalid",
            "the listed rows of a key descend",
            leaf_of_block(2, |length| length - 1, 159, 0),
        ),
        bad("leaf-of-too-many-listed-rows.lmx", "TooLong", "more rows are listed than there are bits", leaf(29, 0, 3)),
        bad("leaf-key-form.lmx", "Invalid", "the form of the keys of an embedded segment is 2", columns(19, 1, 2)),
        bad("leaf-no-numbers.lmx", "Invalid", "the first column of keys has no number", columns(20, 3, 0)),
        bad(
            "leaf-more-numbers.lmx",
            "Invalid",
            "the first column of keys has more numbers than keys",
            columns(20, 3, 7),
        ),
        bad("leaf-first-key-beyond-leaf.lmx", "Truncated", "the first key of a leaf is cut", columns(0, 13, 0x7f)),
        bad(
            "leaf-separator-too-long.lmx",
            "TooLong",
            "the separator before a leaf has 4,097 bytes",
            with(&golden::packed_columns(), |directory| directory.blocks[1].first_key = Key::Bytes(vec![1; 4097])),
        ),
        bad(
            "hash-of-no-bits.lmx",
            "Invalid",
            "hashes have 0 bits",
            hashed(KeyType::Hashed { bits: 0, of: KeyType::Utf8.into() }),
        ),
        bad(
            "hash-of-numbers.lmx",
            "Invalid",
            "hashes are of numbers",
            hashed(KeyType::Hashed { bits: 12, of: KeyType::Int64.into() }),
        ),
        bad(
            "hash-of-lists.lmx",
            "Invalid",
            "hashes are of lists",
            hashed(KeyType::Hashed { bits: 12, of: KeyType::List(KeyType::Utf8.into()).into() }),
        ),
        bad(
            "hash-beyond-bits.lmx",
            "Invalid",
            "hashes of 12 bits are said to have 6",
            hashed(KeyType::Hashed { bits: 6, of: KeyType::Utf8.into() }),
        ),
        bad(
            "leaf-key-is-no-number.lmx",
            "Invalid",
            "the first of keys that are numbers is none",
            with(&golden::packed_uuids(), |directory| directory.blocks[0].first_key = Key::Bytes(b"!".to_vec())),
        ),
        bad(
            "leaf-wide-gaps.lmx",
            "Invalid",
            "the gaps of an embedded segment are Rice codes of 64 low bits",
            leaf(10, 1, 129),
        ),
        bad("leaf-rows-outside.lmx", "Invalid", "the rows of a key go on behind the row space", leaf(27, 0, 0x7f)),
        bad(
            "leaf-of-more-rows.lmx",
            "Invalid",
            "the directory says another number of rows than the leaf has",
            directory(|directory| {
                directory.blocks[0].rows += 1;
                directory.blocks[1].rows -= 1;
            }),
        ),
        bad(
            "leaf-behind-max-key.lmx",
            "Invalid",
            "the largest key is below the first key of the last leaf",
            directory(|directory| directory.max_key = Some(Key::Fixed(0))),
        ),
    ]
}
