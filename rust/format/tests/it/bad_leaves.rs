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

/// Bad leaves, lists of keys in them, hashes, and directories of leaves.
pub fn leaves() -> Vec<Bad> {
    [segments(), lists_of_keys(), hashes(), directories()].into_iter().flatten().collect()
}

/// The first leaf of the golden file has three embedded segments, of 64 keys, of 128 and of 9. Its bytes: 0 the number of embedded segments,
/// 1 the width of the gaps of heads, 2 and 3 the gaps, 4 to 8 the column of keys, 9 to 12 that of lengths; then the first embedded segment:
/// 13 the width of its gaps, 14 to 21 the gaps, 22 and 23 the column of rows, 24 the form, 25 the first row. The third leaf ends with 20
/// listed rows of 10 bits.
fn segments() -> Vec<Bad> {
    let bad_leaf = |name: &str, error, wrong, (at, from, byte)| bad(name, error, wrong, leaf(at, from, byte));
    let many = "a leaf has more embedded segments than bytes";
    let fewer = "the keys of a leaf are fewer than the directory says";
    let wide = "the gaps of an embedded segment are Rice codes of 64 low bits";
    let form = "the form of the rows of an embedded segment is 4";
    let outside = "the rows of a key go on behind the row space";
    let listed = "more rows are listed than there are bits";
    vec![
        bad_leaf("leaf-of-no-segment.lmx", "Invalid", "a leaf has no embedded segment", (0, 3, 0)),
        bad_leaf("leaf-of-many-segments.lmx", "TooLong", many, (0, 3, 0x7f)),
        bad_leaf("leaf-wide-heads.lmx", "Invalid", "the gaps of heads have 65 bits", (1, 8, 65)),
        bad_leaf("leaf-of-fewer-keys.lmx", "Invalid", fewer, (4, 9, 8)),
        bad_leaf("leaf-wide-gaps.lmx", "Invalid", wide, (13, 1, 129)),
        bad_leaf("leaf-rows-outside.lmx", "Invalid", outside, (22, 0, 0x7f)),
        bad_leaf("leaf-form.lmx", "Invalid", form, (24, 0, 4)),
        bad_leaf("leaf-of-too-many-listed-rows.lmx", "TooLong", listed, (24, 0, 3)),
        bad(
            "leaf-listed-rows-descend.lmx",
            "Invalid",
            "the listed rows of a key descend",
            leaf_of_block(2, |length| length - 1, 159, 0),
        ),
    ]
}

/// The second leaf of columns has one embedded segment: 0 to 13 the rest of the first key, of which the directory has a byte, 14 the number of
/// embedded segments, 15 and 16 the column of keys, 17 and 18 that of lengths, 19 the form of the keys, 20 the numbers of the first column.
fn lists_of_keys() -> Vec<Bad> {
    let columns = |at: usize, from, byte| leaf_of(&golden::packed_columns(), 1, |_| at, from, byte);
    let more = "the first column of keys has more numbers than keys";
    vec![
        bad("leaf-key-form.lmx", "Invalid", "the form of the keys of an embedded segment is 2", columns(19, 1, 2)),
        bad("leaf-no-numbers.lmx", "Invalid", "the first column of keys has no number", columns(20, 3, 0)),
        bad("leaf-more-numbers.lmx", "Invalid", more, columns(20, 3, 7)),
        bad("leaf-first-key-beyond-leaf.lmx", "Truncated", "the first key of a leaf is cut", columns(0, 13, 0x7f)),
        bad(
            "leaf-separator-too-long.lmx",
            "TooLong",
            "the separator before a leaf has 4,097 bytes",
            with(&golden::packed_columns(), |directory| directory.blocks[1].first_key = Key::Bytes(vec![1; 4097])),
        ),
        bad(
            "leaf-key-is-no-number.lmx",
            "Invalid",
            "the first of keys that are numbers is none",
            with(&golden::packed_uuids(), |directory| directory.blocks[0].first_key = Key::Bytes(b"!".to_vec())),
        ),
    ]
}

fn hashes() -> Vec<Bad> {
    let hashed = |bits: u8, of: KeyType| {
        with(&golden::packed_hashes(), |directory| directory.key_type = KeyType::Hashed { bits, of: of.into() })
    };
    let lists = KeyType::List(KeyType::Utf8.into());
    vec![
        bad("hash-of-no-bits.lmx", "Invalid", "hashes have 0 bits", hashed(0, KeyType::Utf8)),
        bad("hash-of-numbers.lmx", "Invalid", "hashes are of numbers", hashed(12, KeyType::Int64)),
        bad("hash-of-lists.lmx", "Invalid", "hashes are of lists", hashed(12, lists)),
        bad("hash-beyond-bits.lmx", "Invalid", "hashes of 12 bits are said to have 6", hashed(6, KeyType::Utf8)),
        bad(
            "hash-encoding.lmx",
            "Invalid",
            "hashes are in value blocks",
            with(&golden::empty(), |directory| {
                directory.key_type = KeyType::Hashed { bits: 12, of: KeyType::Utf8.into() };
            }),
        ),
    ]
}

fn directories() -> Vec<Bad> {
    let directory = |change: fn(&mut SegmentDirectory)| with(&golden::packed(), change);
    vec![
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
