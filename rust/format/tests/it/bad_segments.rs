//! Bad segments whose checksums are all good: what a faulty or hostile writer could make.

use std::sync::Arc;

use lakemark_format::value_block::Value;
use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::model::Segment;
use crate::{forge, golden, samples};

/// `segment` with another directory.
pub fn with(segment: &Segment, change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    let (file, mut directory) = segment.write();
    change(&mut directory);
    forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &forge::directory(&directory))
}

fn numbers(change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    with(&golden::numbers(), change)
}

/// The numbers with other bytes in the directory.
pub fn raw(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (file, directory) = golden::numbers().write();
    let mut bytes = forge::directory(&directory);
    change(&mut bytes);
    forge::container(ContentKind::Segment, golden::numbers().id, &forge::stream(&file), &bytes)
}

/// The numbers with other bytes in the stream, from the start of a section on.
fn stream(at: impl FnOnce(&SegmentDirectory) -> u64, bytes: &[u8]) -> Vec<u8> {
    let (file, directory) = golden::numbers().write();
    let mut stream = forge::stream(&file);
    let start = at(&directory) as usize;
    assert_ne!(stream[start..start + bytes.len()], *bytes);
    stream[start..start + bytes.len()].copy_from_slice(bytes);
    forge::container(ContentKind::Segment, golden::numbers().id, &stream, &forge::directory(&directory))
}

pub fn segments() -> Vec<Bad> {
    [bytes(), files(), keys(), lists(), totals(), sections(), value_blocks(), postings()]
        .into_iter()
        .flatten()
        .collect()
}

/// In the directory of the numbers: 16 bytes of id, the column's length (11) and name, the key type, the universe.
const COLUMN: usize = 16;
const KEY_TYPE: usize = COLUMN + 12;
const UNIVERSE: usize = KEY_TYPE + 1;
const FILE_COUNT: usize = UNIVERSE + 1;

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn bytes() -> Vec<Bad> {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let replace = |at: usize, with: &[u8]| {
        raw(|bytes| {
            bytes.splice(at..at + 1, with.iter().copied());
        })
    };
    vec![
        bad("directory-empty.lmx", "Truncated", "the directory has no bytes", raw(Vec::clear)),
        bad(
            "directory-cut.lmx",
            "Truncated",
            "the directory ends in its last field",
            raw(|bytes| bytes.truncate(bytes.len() - 1)),
        ),
        bad("directory-longer.lmx", "Invalid", "a byte follows the directory's last field", raw(|bytes| bytes.push(0))),
        bad("string-huge.lmx", "TooLong", "the column's name has 2^63 - 1 bytes", replace(COLUMN, &huge)),
        bad(
            "string-past-end.lmx",
            "Truncated",
            "the column's name is longer than the directory",
            replace(COLUMN, &[0x80, 0x7d]),
        ),
        bad("string-not-utf8.lmx", "Invalid", "the column's name is not UTF-8", replace(COLUMN + 1, &[0xff])),
        bad("varint-padded.lmx", "Invalid", "a varint has a needless byte", replace(COLUMN, &[0x8b, 0x00])),
        bad(
            "varint-65-bits.lmx",
            "Invalid",
            "a varint has 65 bits",
            replace(COLUMN, &[[0xff; 9].as_slice(), &[3]].concat()),
        ),
        bad(
            "varint-endless.lmx",
            "Invalid",
            "a varint has eleven bytes",
            replace(COLUMN, &[[0x80; 10].as_slice(), &[1]].concat()),
        ),
        bad("key-type-0.lmx", "Invalid", "the key type is 0", replace(KEY_TYPE, &[0])),
        bad("key-type-23.lmx", "Invalid", "the key type is 23", replace(KEY_TYPE, &[23])),
        bad(
            "composite-of-one.lmx",
            "Invalid",
            "a key of one column is called composite",
            replace(KEY_TYPE, &[22, 1, 5]),
        ),
        bad(
            "composite-of-composites.lmx",
            "Invalid",
            "a column of a composite key is a composite",
            replace(KEY_TYPE, &[22, 2, 5, 22]),
        ),
        bad(
            "composite-of-65.lmx",
            "TooLong",
            "a key has 65 columns",
            replace(KEY_TYPE, &[[22, 65].as_slice(), &[5; 65]].concat()),
        ),
        bad("list-of-lists.lmx", "Invalid", "the elements of lists are lists", replace(KEY_TYPE, &[23, 23, 5])),
        bad(
            "list-of-composites.lmx",
            "Invalid",
            "the elements of lists are composites",
            replace(KEY_TYPE, &[23, 22, 2, 5, 5]),
        ),
        bad(
            "composite-of-lists.lmx",
            "Invalid",
            "a column of a composite key is a list",
            replace(KEY_TYPE, &[22, 2, 5, 23]),
        ),
        bad("decimal-width.lmx", "Invalid", "a decimal has 48 bits", replace(KEY_TYPE, &[13, 48, 0, 9, 0])),
        bad(
            "decimal-precision.lmx",
            "Invalid",
            "a decimal of 32 bits has 10 digits",
            replace(KEY_TYPE, &[13, 32, 0, 10, 0]),
        ),
        bad("time-unit-4.lmx", "Invalid", "a timestamp's unit is 4", replace(KEY_TYPE, &[18, 4, 0])),
        bad("time32-of-nanoseconds.lmx", "Invalid", "a 32-bit time counts nanoseconds", replace(KEY_TYPE, &[16, 3])),
        bad("timestamp-zoned-2.lmx", "Invalid", "a timestamp's zoned flag is 2", replace(KEY_TYPE, &[18, 2, 2])),
        bad(
            "fixed-binary-huge.lmx",
            "TooLong",
            "a fixed binary has 2^32 - 1 bytes",
            replace(KEY_TYPE, &[21, 255, 255, 255, 255]),
        ),
        bad(
            "universe-33-bits.lmx",
            "TooLong",
            "the row space has 2^33 rows",
            replace(UNIVERSE, &[0x80, 0x80, 0x80, 0x80, 0x20]),
        ),
        bad("file-count-huge.lmx", "TooLong", "there are 2^63 - 1 files", replace(FILE_COUNT, &huge)),
        bad(
            "file-count-past-end.lmx",
            "TooLong",
            "there are more files than the directory can hold",
            replace(FILE_COUNT, &[0x7f]),
        ),
    ]
}

/// A file of a directory, to be changed.
pub fn file(directory: &mut SegmentDirectory, number: usize) -> &mut SegmentFile {
    &mut Arc::make_mut(&mut directory.files)[number]
}

fn files() -> Vec<Bad> {
    let path = |path: &str| numbers(|directory| file(directory, 1).path = path.into());
    vec![
        bad("path-absolute.lmx", "Invalid", "a data file's path starts with a slash", path("/etc/passwd")),
        bad("path-escapes.lmx", "Invalid", "a data file's path leads out of the table", path("a/../../b")),
        bad("path-empty.lmx", "Invalid", "a data file's path is empty", path("")),
        bad("path-nul.lmx", "Invalid", "a data file's path holds a NUL", path("a\0b")),
        bad(
            "base-beyond-32-bits.lmx",
            "TooLong",
            "a file's base is beyond 32 bits",
            // The gap before the second file wraps below zero.
            numbers(|directory| file(directory, 1).base = 0),
        ),
        bad(
            "universe-too-small.lmx",
            "Invalid",
            "the row space ends before the last file",
            numbers(|directory| directory.universe -= 1),
        ),
        bad(
            "file-of-too-many-rows.lmx",
            "TooLong",
            "a file has more than 2^32 - 1 rows",
            with(&golden::strings(), |directory| file(directory, 0).row_groups = vec![u32::MAX, 1]),
        ),
    ]
}

fn keys() -> Vec<Bad> {
    let strings = |change: fn(&mut SegmentDirectory)| with(&golden::strings(), change);
    vec![
        bad(
            "keys-equal.lmx",
            "Invalid",
            "two blocks have the same first key",
            numbers(|directory| directory.blocks[1].first_key = directory.blocks[0].first_key.clone()),
        ),
        bad(
            "keys-descending.lmx",
            "TooLong",
            "the step to a block's first key wraps around",
            numbers(|directory| directory.blocks[1].first_key = Key::Fixed(1)),
        ),
        bad(
            "string-keys-descending.lmx",
            "Invalid",
            "a block's first string is below the one before",
            strings(|directory| {
                directory.blocks[0].first_key = Key::Bytes(b"b".to_vec());
                directory.blocks[1].first_key = Key::Bytes(b"a".to_vec());
            }),
        ),
        bad(
            "key-outside-type.lmx",
            "Invalid",
            "a key of a 32-bit column has more bits",
            numbers(|directory| directory.max_key = Some(Key::Fixed(u64::MAX))),
        ),
        bad(
            "key-too-long.lmx",
            "TooLong",
            "a key has 4097 bytes",
            strings(|directory| directory.max_key = Some(Key::Bytes(vec![0xff; 4097]))),
        ),
        bad(
            "decimal-key-length.lmx",
            "Invalid",
            "a key of a 128-bit decimal has 15 bytes",
            with(&golden::decimals(), |directory| directory.max_key = Some(Key::Bytes(vec![0xff; 15]))),
        ),
        bad(
            "max-key-low.lmx",
            "Invalid",
            "the largest key is below the last block's first",
            numbers(|directory| directory.max_key = Some(Key::Fixed(key_of_i64(0)))),
        ),
        bad(
            "max-key-of-single-value.lmx",
            "Invalid",
            "the last block has one value and the largest key is another",
            strings(|directory| directory.max_key = Some(Key::Bytes(b"\xff".to_vec()))),
        ),
    ]
}

/// Rows of lists are in several postings or in none, but only so far.
fn lists() -> Vec<Bad> {
    let lists = |change: fn(&mut SegmentDirectory)| with(&golden::lists(), change);
    vec![
        bad(
            "list-rows-too-many.lmx",
            "Invalid",
            "the values of a block have more rows than there are with lists",
            lists(|directory| directory.blocks[1].rows = 11),
        ),
        bad(
            "list-null-and-opaque.lmx",
            "Invalid",
            "there are more NULL and opaque rows than rows",
            lists(|directory| directory.nulls.rows = 7),
        ),
        bad(
            "list-packed.lmx",
            "Invalid",
            "lists have the encoding packed",
            lists(|directory| directory.encoding = Encoding::Packed),
        ),
    ]
}

fn totals() -> Vec<Bad> {
    vec![
        bad(
            "value-count.lmx",
            "Invalid",
            "the blocks have fewer values than the segment",
            numbers(|directory| directory.value_count += 1),
        ),
        bad(
            "block-without-values.lmx",
            "Invalid",
            "a block has no value",
            numbers(|directory| directory.blocks[0].values = 0),
        ),
        bad(
            "values-without-rows.lmx",
            "TooLong",
            "a block has fewer rows than values",
            numbers(|directory| directory.blocks[0].rows = 2),
        ),
        bad(
            "rows-missing.lmx",
            "Invalid",
            "a row has neither value nor NULL",
            numbers(|directory| directory.nulls.rows -= 1),
        ),
        bad(
            "rows-too-many.lmx",
            "Invalid",
            "there are 2^63 rows with values",
            numbers(|directory| directory.blocks[0].rows = 1 << 63),
        ),
        bad(
            "rows-moved.lmx",
            "Invalid",
            "a block's values have other rows than the directory says",
            numbers(|directory| {
                directory.blocks[0].rows -= 1;
                directory.blocks[1].rows += 1;
            }),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn sections() -> Vec<Bad> {
    vec![
        bad(
            "block-in-header.lmx",
            "Invalid",
            "a value block starts in the header",
            numbers(|directory| directory.blocks[0].offset = 0),
        ),
        bad(
            "block-beyond-stream.lmx",
            "Invalid",
            "a value block ends behind the stream",
            numbers(|directory| directory.blocks[1].length += 1),
        ),
        bad(
            "postings-beyond-stream.lmx",
            "Invalid",
            "a block's postings lie behind the stream",
            numbers(|directory| directory.blocks[1].postings_offset += 1 << 40),
        ),
        bad(
            "section-end-overflows.lmx",
            "Invalid",
            "a section's end is beyond 64 bits",
            numbers(|directory| directory.blocks[1].postings_length = u64::MAX),
        ),
        bad(
            "posting-offset-overflows.lmx",
            "Invalid",
            "the NULL rows' offset is 2^64 - 1",
            numbers(|directory| directory.nulls.offset = u64::MAX),
        ),
        bad(
            "block-in-its-postings.lmx",
            "Invalid",
            "a value block overlaps its own postings: reading one leads to the other",
            numbers(|directory| directory.blocks[0].postings_length += 1),
        ),
        bad(
            "block-is-its-postings.lmx",
            "Invalid",
            "a value block names itself as its postings",
            numbers(|directory| {
                directory.blocks[0].postings_offset = directory.blocks[0].offset;
                directory.blocks[0].postings_length = directory.blocks[0].length.into();
            }),
        ),
        bad(
            "blocks-name-each-other.lmx",
            "Invalid",
            "two value blocks name each other as postings",
            numbers(|directory| {
                let [first, second] = &mut directory.blocks[..] else { panic!("two blocks") };
                (first.postings_offset, first.postings_length) = (second.offset, second.length.into());
                (second.postings_offset, second.postings_length) = (first.offset, first.length.into());
            }),
        ),
        bad(
            "nulls-are-opaque.lmx",
            "Invalid",
            "NULL and opaque rows share their bytes",
            numbers(|directory| directory.opaque.offset = directory.nulls.offset),
        ),
        bad(
            "nulls-without-bytes.lmx",
            "Invalid",
            "there are NULL rows and no bytes for them",
            numbers(|directory| directory.nulls.length = 0),
        ),
        bad(
            "block-without-bytes.lmx",
            "Invalid",
            "a value block has no bytes",
            numbers(|directory| directory.blocks[0].length = 0),
        ),
    ]
}

/// The numbers with another first value block of the same length.
fn first_block(values: &[(i64, u32, u32)]) -> Vec<u8> {
    let value = |&(key, rows, posting_length): &(i64, u32, u32)| Value {
        key: Key::Fixed(key_of_i64(key)),
        rows,
        posting_length,
    };
    let values: Vec<_> = values.iter().map(value).collect();
    stream(|directory| directory.blocks[0].offset, &value_block::encode(&values, &KeyType::Int32).unwrap())
}

fn value_blocks() -> Vec<Bad> {
    let block = |bytes: &[u8]| stream(|directory| directory.blocks[0].offset, bytes);
    let lowest = i64::from(i32::MIN);
    vec![
        bad("block-of-0-values.lmx", "TooLong", "a value block has no value", block(&[0])),
        bad(
            "block-of-2000-values.lmx",
            "TooLong",
            "a value block has more values than one may have",
            block(&[0xd0, 0x0f]),
        ),
        bad("block-of-4-values.lmx", "Truncated", "a value block holds fewer values than it says", block(&[100])),
        bad("block-of-1-value.lmx", "Invalid", "bytes follow the values of a block", block(&[1, 0])),
        bad("key-width-65.lmx", "Invalid", "a key gap has 65 bits", block(&[3, 65])),
        bad(
            "block-key-outside-type.lmx",
            "Invalid",
            "a value block's last key does not fit the column's type",
            first_block(&[(lowest, 1, 2), (-7, 4, 4), (1 << 31, 5, 4)]),
        ),
    ]
}

/// A segment of `rows` NULL rows among 100 whose posting is `bytes`.
fn nulls(rows: u32, bytes: &[u8]) -> Vec<u8> {
    let (_, mut directory) = golden::empty().write();
    directory.files = vec![samples::file("a.parquet", 0, vec![rows])].into();
    directory.universe = rows.max(100);
    directory.nulls = PostingRef { offset: 64, length: bytes.len() as u32, rows };
    let id = golden::empty().id;
    let stream = [forge::header(1, &id).as_slice(), bytes].concat();
    forge::container(ContentKind::Segment, id, &stream, &forge::directory(&directory))
}

fn postings() -> Vec<Bad> {
    vec![
        bad("posting-form-4.lmx", "Invalid", "a posting block's form is 4", nulls(1, &[4, 0, 0])),
        bad("posting-form-255.lmx", "Invalid", "a posting block's form is 255", nulls(1, &[255])),
        bad("posting-cut.lmx", "Truncated", "a posting ends before its last run's length", nulls(3, &[3, 1, 5])),
        bad("posting-longer.lmx", "Invalid", "a byte follows a posting", nulls(1, &[3, 1, 5, 1, 0])),
        bad(
            "posting-of-4-gi-rows.lmx",
            "Invalid",
            "one row is stored, the directory says 2^32 - 2",
            nulls(u32::MAX - 1, &[3, 1, 0, 1]),
        ),
        bad("runs-too-short.lmx", "Invalid", "runs hold fewer rows than the directory says", nulls(3, &[3, 1, 5, 1])),
        bad("runs-too-long.lmx", "Invalid", "runs hold more rows than the directory says", nulls(3, &[3, 1, 5, 9])),
        bad("run-empty.lmx", "Invalid", "a run has no row", nulls(1, &[3, 2, 5, 0, 5, 1])),
        bad("runs-touch.lmx", "Invalid", "two runs are one", nulls(2, &[3, 2, 5, 1, 0, 1])),
        bad("run-beyond-row-space.lmx", "Invalid", "a run lies behind the row space", nulls(1, &[3, 1, 100, 1])),
        bad(
            "run-beyond-32-bits.lmx",
            "TooLong",
            "a run starts beyond 32 bits",
            nulls(1, &[3, 1, 128, 128, 128, 128, 16, 1]),
        ),
        bad("bitmap-beyond-span.lmx", "Invalid", "a bitmap's padding is set", nulls(1, &[2, 0, 3, 0b1000])),
        bad(
            "bitmap-of-fewer-rows.lmx",
            "Invalid",
            "a bitmap has fewer bits set than rows",
            nulls(2, &[2, 0, 3, 0b001]),
        ),
        bad("bitmap-beyond-row-space.lmx", "Invalid", "a bitmap ends behind the row space", nulls(1, &[2, 99, 2, 1])),
        bad("elias-fano-equal-rows.lmx", "Invalid", "a row stands twice", nulls(2, &[0, 0x21, 0, 0b11])),
        bad(
            "elias-fano-of-fewer-rows.lmx",
            "Invalid",
            "the high part has one row of two",
            nulls(2, &[0, 0x21, 0, 0b1]),
        ),
        bad("elias-fano-cut.lmx", "Truncated", "the high part is missing", nulls(2, &[0, 0x21, 0])),
    ]
}
