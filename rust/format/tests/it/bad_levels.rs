//! Bad segments whose coarse level is wrong.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::bad_segments::{raw, with};
use crate::{forge, golden};

/// The numbers with a coarse level and another directory.
fn encoded(encoding: Encoding, change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    with(&golden::encoded(encoding), change)
}

/// The numbers with a coarse level, whose bitmap `number` is that of another list of as many bytes.
fn bitmap(encoding: Encoding, number: usize, bytes: &[u8], rows: u32) -> Vec<u8> {
    let segment = golden::encoded(encoding);
    let (file, mut directory) = segment.write();
    let mut stream = forge::stream(&file);
    directory.bitmaps[number] = PostingRef { offset: stream.len() as u64, length: bytes.len() as u32, rows };
    stream.extend_from_slice(bytes);
    forge::container(ContentKind::Segment, segment.id, &stream, &forge::directory(&directory))
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub fn levels() -> Vec<Bad> {
    use Encoding::{Binary, Interval, IntervalEquality, Range, RangeEquality};
    let last = |code: u8| raw(|bytes| *bytes.last_mut().unwrap() = code);
    let bins = |bins: Vec<u32>| encoded(RangeEquality, move |directory| directory.bins = bins);
    vec![
        bad("encoding-0.lmx", "Invalid", "the encoding is 0", last(0)),
        bad("encoding-12.lmx", "Invalid", "the encoding is 12", last(12)),
        bad("bitmaps-missing.lmx", "TooLong", "the encoding is binary and no slice follows", last(2)),
        bad("bins-missing.lmx", "Truncated", "the encoding is interval-equality and no bins follow", last(5)),
        bad(
            "bins-cut.lmx",
            "TooLong",
            "there are more bins than the directory can hold",
            raw(|bytes| {
                *bytes.last_mut().unwrap() = 6;
                bytes.push(0x7f);
            }),
        ),
        bad("bins-of-fewer-values.lmx", "Invalid", "the bins hold fewer values than there are", bins(vec![1, 2, 1])),
        bad("bins-of-more-values.lmx", "Invalid", "the bins hold more values than there are", bins(vec![1, 2, 3])),
        bad("bin-of-no-value.lmx", "Invalid", "a bin holds no value", bins(vec![3, 0, 2])),
        bad(
            "postings-without-level.lmx",
            "Invalid",
            "the encoding has no fine level and a value has a posting",
            encoded(Range, |directory| {
                let bitmap = directory.bitmaps.last_mut().unwrap();
                bitmap.length -= 1;
                directory.blocks[1].postings_offset = bitmap.offset + u64::from(bitmap.length);
                directory.blocks[1].postings_length = 1;
            }),
        ),
        bad(
            "bitmaps-descending.lmx",
            "Invalid",
            "a bitmap of the range level has fewer rows than the one before",
            encoded(Range, |directory| directory.bitmaps[2].rows = 4),
        ),
        bad(
            "bitmap-of-all-rows.lmx",
            "Invalid",
            "a bitmap leaves no row for the values that it does not hold",
            encoded(Interval, |directory| directory.bitmaps[0].rows = 16),
        ),
        bad(
            "slice-of-no-row.lmx",
            "Invalid",
            "a slice has fewer rows than values with its bit",
            encoded(Binary, |directory| directory.bitmaps[0].rows = 1),
        ),
        bad(
            "bitmap-without-bytes.lmx",
            "Invalid",
            "a bitmap has rows and no bytes",
            encoded(IntervalEquality, |directory| directory.bitmaps[1].length = 0),
        ),
        bad(
            "bitmap-is-another.lmx",
            "Invalid",
            "two slices share their bytes",
            encoded(Binary, |directory| directory.bitmaps[1].offset = directory.bitmaps[0].offset),
        ),
        bad(
            "bitmap-beyond-stream.lmx",
            "Invalid",
            "a bitmap lies behind the stream",
            encoded(RangeEquality, |directory| directory.bitmaps[1].offset += 1 << 40),
        ),
        bad(
            "bitmap-of-fewer-rows-than-named.lmx",
            "Invalid",
            "a bitmap holds fewer rows than the directory says",
            encoded(Range, |directory| directory.bitmaps[1].rows += 1),
        ),
        bad(
            "bitmap-holds-null.lmx",
            "Invalid",
            "the first bitmap of the range level holds a NULL row and not that of the least value",
            bitmap(Range, 0, &[3, 1, 0, 1], 1),
        ),
        bad(
            "bitmap-holds-another-value.lmx",
            "Invalid",
            "a bitmap of the range level holds a row of a value above it",
            bitmap(RangeEquality, 0, &[3, 1, 2, 1], 1),
        ),
    ]
}
