//! Bad containers: what is wrong is seen before a field of the directory is used.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::model::Segment;
use crate::{forge, golden};

/// `bytes` with one byte changed.
fn changed(bytes: &[u8], at: usize, to: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    assert_ne!(bytes[at], to);
    bytes[at] = to;
    bytes
}

pub fn containers() -> Vec<Bad> {
    let (good, _) = golden::numbers().write();
    [ends(&good), trailers(&good), headers(&good), checksums(&good)].into_iter().flatten().collect()
}

fn ends(good: &[u8]) -> Vec<Bad> {
    let end = good.len();
    let longer = [good, &[0]].concat();
    vec![
        bad("empty-file.lmx", "Truncated", "there is no byte", vec![]),
        bad("short-file.lmx", "Truncated", "63 bytes, a trailer has 64", good[end - 63..].to_vec()),
        bad("cut-last-byte.lmx", "BadMagic", "the last byte is missing", good[..end - 1].to_vec()),
        bad("cut-first-byte.lmx", "Invalid", "the first byte is missing", good[1..].to_vec()),
        bad("cut-in-half.lmx", "BadMagic", "the second half is missing", good[..end / 2].to_vec()),
        bad("byte-appended.lmx", "BadMagic", "a byte follows the trailer", longer),
        bad("zeros.lmx", "BadMagic", "all bytes are zero, as after a power failure", vec![0; end]),
        bad("parquet-magic.lmx", "BadMagic", "the file ends as a Parquet file", [&good[..end - 4], b"PAR1"].concat()),
        bad("tail-only.lmx", "Invalid", "only the directory and the trailer are there", good[end - 200..].to_vec()),
    ]
}

/// The good file with another trailer, whose checksum is good.
fn with_trailer(good: &[u8], change: impl FnOnce(&mut Trailer)) -> Vec<u8> {
    let mut trailer = open_tail(good, good.len() as u64).unwrap().trailer;
    change(&mut trailer);
    [&good[..good.len() - 64], &trailer.encode()].concat()
}

fn trailers(good: &[u8]) -> Vec<Bad> {
    let version = good.len() - 14;
    let sealed = |at: usize, to: u8| {
        let mut bytes = changed(good, at, to);
        let start = bytes.len() - 64;
        let checksum = forge::crc(&golden::numbers().id, u64::MAX - 1, &bytes[start..start + 52]);
        bytes[start + 52..start + 56].copy_from_slice(&checksum.to_le_bytes());
        bytes
    };
    vec![
        bad("version-0.lmx", "UnsupportedVersion", "the trailer's version is 0", changed(good, version, 0)),
        bad("version-1.lmx", "UnsupportedVersion", "the trailer's version is 1", changed(good, version, 1)),
        bad("version-5.lmx", "UnsupportedVersion", "the trailer's version is 5", changed(good, version, 5)),
        bad("version-7.lmx", "UnsupportedVersion", "the trailer's version is 7", changed(good, version, 7)),
        bad("version-262.lmx", "UnsupportedVersion", "the trailer's version is 262", changed(good, version + 1, 1)),
        bad("trailer-kind-0.lmx", "Invalid", "the trailer's content kind is 0", sealed(good.len() - 16, 0)),
        bad("trailer-kind-9.lmx", "Invalid", "the trailer's content kind is 9", sealed(good.len() - 16, 9)),
        bad("trailer-reserved.lmx", "Invalid", "the trailer's reserved byte is 1", sealed(good.len() - 15, 1)),
        bad(
            "directory-4-gib.lmx",
            "TooLong",
            "the directory has 4 GiB according to the trailer",
            with_trailer(good, |trailer| trailer.directory_length = u32::MAX),
        ),
        bad(
            "directory-beyond-file.lmx",
            "Invalid",
            "the directory is longer than the file",
            with_trailer(good, |trailer| trailer.directory_length = 1 << 20),
        ),
        bad(
            "directory-at-0.lmx",
            "Invalid",
            "the directory starts at the header",
            with_trailer(good, |trailer| trailer.directory_offset = 0),
        ),
        bad(
            "stream-too-long.lmx",
            "TooLong",
            "the stream has 2^64 - 1 bytes according to the trailer",
            with_trailer(good, |trailer| trailer.stream_length = u64::MAX),
        ),
        bad(
            "stream-beyond-file.lmx",
            "Invalid",
            "the stream is longer than the file",
            with_trailer(good, |trailer| trailer.stream_length = 1 << 40),
        ),
        bad(
            "stream-shorter.lmx",
            "Invalid",
            "the stream ends before the directory starts",
            with_trailer(good, |trailer| trailer.stream_length -= 1),
        ),
        bad(
            "file-length.lmx",
            "Invalid",
            "the file has one byte more according to the trailer",
            with_trailer(good, |trailer| trailer.file_length += 1),
        ),
        bad(
            "stream-of-no-page.lmx",
            "Truncated",
            "there is no header",
            forge::container(ContentKind::Segment, [3; 16], &[], b"directory"),
        ),
    ]
}

fn headers(good: &[u8]) -> Vec<Bad> {
    let id = golden::numbers().id;
    let opened = open_tail(good, good.len() as u64).unwrap();
    let directory = opened.directory.unwrap();
    let stream = forge::stream(good);
    let with = |at: usize, to: u8| forge::container(ContentKind::Segment, id, &changed(&stream, at, to), directory);
    vec![
        bad("header-magic.lmx", "BadMagic", "the header's magic is another", with(0, b'l')),
        bad("header-version.lmx", "UnsupportedVersion", "the header's version is 7", with(8, 7)),
        bad("header-kind.lmx", "Invalid", "the header is a manifest's, the trailer a segment's", with(10, 2)),
        bad("header-kind-9.lmx", "Invalid", "the header's content kind is 9", with(10, 9)),
        bad(
            "run-index.lmx",
            "Invalid",
            "header and trailer are those of a run's index",
            forge::container(ContentKind::PositionMap, id, &forge::header(3, &id), directory),
        ),
        bad("header-id.lmx", "Invalid", "header and trailer have different ids", with(16, 0)),
        bad("header-reserved-11.lmx", "Invalid", "a reserved byte of the header is 1", with(11, 1)),
        bad("header-reserved-63.lmx", "Invalid", "the last reserved byte of the header is 1", with(63, 1)),
    ]
}

fn checksums(good: &[u8]) -> Vec<Bad> {
    let trailer = open_tail(good, good.len() as u64).unwrap().trailer;
    let page_end = trailer.directory_offset as usize;
    let other = Segment { id: *b"another-segment!", ..golden::numbers() }.write().0;
    vec![
        bad("page-damaged.lmx", "ChecksumMismatch", "a byte of a page changed", changed(good, 70, good[70] ^ 0x10)),
        bad(
            "page-checksum-damaged.lmx",
            "ChecksumMismatch",
            "the checksum of a page changed",
            changed(good, page_end - 1, good[page_end - 1] ^ 1),
        ),
        bad(
            "directory-damaged.lmx",
            "ChecksumMismatch",
            "a byte of the directory changed",
            changed(good, page_end + 40, good[page_end + 40] ^ 1),
        ),
        bad(
            "trailer-damaged.lmx",
            "ChecksumMismatch",
            "a byte of the trailer changed",
            changed(good, good.len() - 64, good[good.len() - 64] ^ 1),
        ),
        bad(
            "page-of-another-file.lmx",
            "ChecksumMismatch",
            "a good page of another segment",
            [&other[..page_end], &good[page_end..]].concat(),
        ),
        bad(
            "trailer-of-another-file.lmx",
            "ChecksumMismatch",
            "the trailer of another segment with the same directory",
            [&good[..good.len() - 64], &other[other.len() - 64..]].concat(),
        ),
        bad("page-twice.lmx", "ChecksumMismatch", "the first page stands also in the second's place", page_twice()),
    ]
}

fn page_twice() -> Vec<u8> {
    let mut stream = forge::header(1, &[8; 16]);
    stream.resize(2 * 4092, 7);
    let mut bytes = forge::container(ContentKind::Segment, [8; 16], &stream, b"");
    bytes.copy_within(0..4096, 4096);
    bytes
}
