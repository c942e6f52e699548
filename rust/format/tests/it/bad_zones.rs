//! Bad segments of zones.

use lakemark_format::filter::{Density, FilterShape};
use lakemark_format::zones::{ByteFence, FencePair, Fences, Filters, MAX_ZONES, Zones};
use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::bad_segments::raw;
use crate::forge_zones::column;
use crate::model_zones::Zoned;
use crate::{forge, forge_zones, golden_zones};

/// `segment` with another directory.
fn with(segment: &Zoned, change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    let (file, mut directory) = segment.write();
    change(&mut directory);
    forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &forge::directory(&directory))
}

fn zones(segment: &Zoned, change: impl FnOnce(&mut Zones)) -> Vec<u8> {
    with(segment, |directory| change(directory.zones.as_mut().unwrap()))
}

/// The strings, whose filters lie one by one, with other zones.
fn filtered(change: impl FnOnce(&mut Zones)) -> Vec<u8> {
    zones(&golden_zones::filtered_strings(), change)
}

fn density(bits: u32, hashes: u8) -> Vec<u8> {
    filtered(|zones| zones.filters = Filters::Each(Density { bits, hashes }))
}

fn shape(blocks: u32, block_bits: u32, hashes: u8) -> Vec<u8> {
    zones(&golden_zones::sliced(), |zones| zones.filters = Filters::Sliced(FilterShape { blocks, block_bits, hashes }))
}

/// `segment` whose zones have other bytes in the directory: `from` at `at` becomes `to`.
fn bytes(segment: &Zoned, at: usize, from: &[u8], to: &[u8]) -> Vec<u8> {
    let (file, directory) = segment.write();
    let mut bytes = forge::directory(&directory);
    let start = bytes.len() - forge_zones::zones(directory.zones.as_ref().unwrap()).len() + at;
    assert_eq!(&bytes[start..start + from.len()], from, "the bytes at {at} of the zones");
    bytes.splice(start..start + from.len(), to.iter().copied());
    forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &bytes)
}

/// The strings with another fence: the first is at byte 7 of the zones, behind their number and two columns of three bytes, the second
/// at 17, and the lower one of the second zone at 21.
fn fence(at: usize, from: &[u8], to: &[u8]) -> Vec<u8> {
    bytes(&golden_zones::filtered_strings(), at, from, to)
}

pub fn all() -> Vec<Bad> {
    [places(), columns(), fences(), filters()].into_iter().flatten().collect()
}

/// Zones in row groups, and their totals.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn places() -> Vec<Bad> {
    let varint = |number: u64| {
        let mut out = codec::ByteWriter::new();
        out.varint(number);
        out.into_vec()
    };
    let count = |count: usize| bytes(&golden_zones::filtered_strings(), 0, &[4], &varint(count as u64));
    let last = |code: u8| raw(|bytes| *bytes.last_mut().unwrap() = code);
    vec![
        bad("zones-missing.lmx", "Truncated", "the encoding is filtered and no zones follow", last(9)),
        bad("zones-of-values.lmx", "Invalid", "the encoding is filtered and there are value blocks", {
            with(&golden_zones::filtered_strings(), |directory| {
                let first_key = Key::Bytes(vec![7]);
                directory.max_key = Some(first_key.clone());
                directory.blocks.push(ValueBlockRef {
                    first_key,
                    offset: 64,
                    length: 1,
                    values: 1,
                    rows: 1,
                    postings_offset: 64,
                    postings_length: 0,
                    is_inner: false,
                });
            })
        }),
        bad("zones-too-many.lmx", "TooLong", "there are 2^20 + 1 zones", count(MAX_ZONES + 1)),
        bad("zones-huge.lmx", "TooLong", "there are 2^63 zones", count(1 << 63)),
        bad("zones-cut.lmx", "Truncated", "there are more zones than the directory can hold", count(MAX_ZONES)),
        bad(
            "zones-of-fewer-rows.lmx",
            "Invalid",
            "the last rows are in no zone",
            with(&golden_zones::sliced(), |directory| {
                directory.value_count -= 4;
                let zones = directory.zones.as_mut().unwrap();
                zones.rows.pop();
                zones.keys.pop();
            }),
        ),
        bad(
            "zones-of-no-row-group.lmx",
            "Invalid",
            "a zone follows the last row group",
            zones(&golden_zones::sliced(), |zones| {
                zones.rows.push(1);
                zones.keys.push(0);
            }),
        ),
        bad("zone-of-no-row.lmx", "Invalid", "a zone has no row", filtered(|zones| zones.rows[2] = 0)),
        bad(
            "zone-across-row-groups.lmx",
            "Invalid",
            "a zone goes on in the next row group",
            filtered(|zones| {
                zones.rows[1] += 1;
                zones.rows[2] -= 1;
            }),
        ),
        bad(
            "zone-of-more-keys-than-rows.lmx",
            "Invalid",
            "a zone has more keys than rows",
            with(&golden_zones::sliced(), |directory| {
                directory.value_count += 2;
                directory.zones.as_mut().unwrap().keys[0] += 2;
            }),
        ),
        bad(
            "zones-of-another-value-count.lmx",
            "Invalid",
            "the number of values is not that of the keys of all zones",
            with(&golden_zones::filtered_strings(), |directory| directory.value_count -= 1),
        ),
        bad(
            "zones-of-too-many-nulls.lmx",
            "Invalid",
            "there are more NULL rows than rows",
            with(&golden_zones::sliced(), |directory| directory.nulls.rows = 56),
        ),
    ]
}

/// Columns of numbers.
fn columns() -> Vec<Bad> {
    let strings = golden_zones::filtered_strings();
    let rows = column([3, 3, 3, 2]);
    let change = |to: &[u8]| bytes(&strings, 1, &rows, to);
    let sliced = golden_zones::sliced();
    let same = column([5; 11]);
    let mut padded = rows.clone();
    *padded.last_mut().unwrap() |= 0x80;
    vec![
        bad("zone-column-width-65.lmx", "Invalid", "the rows of zones have 65 bits", change(&[2, 65])),
        bad(
            "zone-column-beyond-32-bits.lmx",
            "Invalid",
            "a zone has 2^32 rows",
            bytes(&sliced, 1, &same, &[0x80, 0x80, 0x80, 0x80, 0x10, 0]),
        ),
        bad("zone-column-wide.lmx", "Invalid", "a column has a bit too much for each number", {
            bytes(&sliced, 1, &same, &[5, 1, 0, 0])
        }),
        bad("zone-column-low.lmx", "Invalid", "the least number of a column is none of them", {
            bytes(&sliced, 1, &same, &[4, 1, 0xff, 0x07])
        }),
        bad("zone-column-padding.lmx", "Invalid", "a bit is set behind the last number of a column", change(&padded)),
    ]
}

fn fences() -> Vec<Bad> {
    let numbers = golden_zones::filtered();
    let number = |place: usize, (low, high): (u64, u64)| {
        zones(&numbers, move |zones| match &mut zones.fences {
            Some(Fences::Fixed(fences)) => fences[place] = FencePair { low, high },
            other => panic!("{other:?}"),
        })
    };
    let text = |place: usize, low: &[u8], high: &[u8]| {
        filtered(|zones| match &mut zones.fences {
            Some(Fences::Bytes(fences)) => fences[place] = ByteFence { low: low.into(), high: high.into() },
            other => panic!("{other:?}"),
        })
    };
    vec![
        bad(
            "fence-beyond-64-bits.lmx",
            "Invalid",
            "an upper fence is below the lower one, 2^64 above it",
            number(0, (key_of_i64(2797), key_of_i64(1000))),
        ),
        bad("fence-steps-beyond-64-bits.lmx", "Invalid", "the steps to fences have more than 64 bits", {
            // The steps lie behind the count, the rows and the keys.
            let at = 1 + column([640, 8, 4, 9]).len() + column([600, 0, 1, 5]).len();
            let (_, directory) = golden_zones::filtered().write();
            let zones = forge_zones::zones(directory.zones.as_ref().unwrap());
            let zero = zones[at..at + 1].to_vec();
            let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
            bytes(&golden_zones::filtered(), at, &zero, &most)
        }),
        bad(
            "fence-outside-type.lmx",
            "Invalid",
            "the upper fence of a zone of 32-bit integers is 2^31",
            number(3, (key_of_i64(i32::MIN.into()), key_of_i64(1 << 31))),
        ),
        bad(
            "fences-out-of-order.lmx",
            "Invalid",
            "an upper fence is below the lower one",
            text(0, b"user/0035", b"user/001"),
        ),
        bad(
            "fences-of-no-key-out-of-order.lmx",
            "Invalid",
            "an upper fence of a zone without keys is below the lower one",
            text(2, b"b", b"a"),
        ),
        bad("fence-shares-too-much.lmx", "Invalid", "the first fence shares a byte with none", {
            fence(7, &[0, 8], &[1, 8])
        }),
        bad("fence-shares-too-little.lmx", "Invalid", "a fence repeats a byte of the one before", {
            fence(21, &[7, 1, b'4'], &[6, 2, b'0', b'4'])
        }),
        bad("fence-huge.lmx", "TooLong", "a fence has 4097 bytes", text(3, b"", &[b'z'; 4097])),
        bad("fence-too-long.lmx", "TooLong", "a fence has 4097 bytes, most of them those of the one before", {
            text(3, &[b'z'; 4096], &[b'z'; 4097])
        }),
    ]
}

fn filters() -> Vec<Bad> {
    let offset = |offset: u64| filtered(|zones| zones.offset = offset);
    let behind = with(&golden_zones::sliced(), |directory| {
        let zones = directory.zones.as_mut().unwrap();
        zones.offset += 1;
    });
    vec![
        bad("density-0.lmx", "Invalid", "a key has no bits in a filter", density(0, 7)),
        bad("density-huge.lmx", "Invalid", "a key has more than 1024 bits in a filter", density((1 << 20) + 1, 7)),
        bad("density-33-bits.lmx", "TooLong", "a key has 2^32 parts of a bit in a filter", {
            let segment = golden_zones::filtered_strings();
            let (_, directory) = segment.write();
            let end = forge_zones::zones(directory.zones.as_ref().unwrap()).len();
            // Two bytes of density, one of the number of hashes, one of offset.
            bytes(&segment, end - 4, &[0xe0, 0x4c, 7, 67], &[0x80, 0x80, 0x80, 0x80, 0x10, 7, 67])
        }),
        bad("density-larger.lmx", "Invalid", "filters of a key's bits go on behind the stream", density(16_384, 7)),
        bad("filter-of-0-hashes.lmx", "Invalid", "a key sets no bit", density(9824, 0)),
        bad("filter-of-65-hashes.lmx", "Invalid", "a key sets 65 bits", density(9824, 65)),
        bad("slices-of-0-hashes.lmx", "Invalid", "a key sets no bit of slices", shape(2, 36, 0)),
        bad("slices-of-65-hashes.lmx", "Invalid", "a key sets 65 bits of slices", shape(2, 36, 65)),
        bad("slices-without-bits.lmx", "Invalid", "the blocks of slices have no bits", shape(2, 0, 3)),
        bad("slices-without-blocks.lmx", "Invalid", "slices have no blocks, and zones keys", shape(0, 36, 3)),
        bad("slices-of-many-bits.lmx", "Invalid", "slices go on behind the stream", shape(2, 37, 3)),
        bad("slices-huge.lmx", "Invalid", "slices have 2^64 bits", shape(u32::MAX, u32::MAX, 3)),
        bad("slices-behind-stream.lmx", "Invalid", "slices end behind the stream", behind),
        bad("filters-in-header.lmx", "Invalid", "filters begin in the header", offset(63)),
        bad("filters-overlap-nulls.lmx", "Invalid", "filters begin in a posting", {
            filtered(|zones| zones.offset -= 1)
        }),
        bad("filters-end-overflows.lmx", "Invalid", "filters end at 2^64", offset(u64::MAX)),
    ]
}
