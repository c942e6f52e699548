//! Bad segments of the encoding `binned`: their directory, bin blocks, orders and ramps.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::bad_segments::{raw, with};
use crate::golden;
use crate::model_bins::Packed;

fn directory(change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    with(&golden::binned(), change)
}

/// The golden bins with other bytes in one of the two blocks.
fn packed(number: usize, change: impl FnOnce(&mut Packed)) -> Vec<u8> {
    let segment = golden::binned();
    let mut blocks = segment.packed();
    change(&mut blocks[number]);
    segment.write_packed(&blocks).0
}

/// The first block with another byte: count 2, gaps, spreads, and columns of a number, a width and packed numbers each.
fn block(at: usize, byte: u8) -> Vec<u8> {
    packed(0, |block| {
        assert_ne!(block.block[at], byte, "{:?}", block.block);
        block.block[at] = byte;
    })
}

/// The order of the first bin with another byte: width, width of the gaps, six ranks of three bits, the gaps.
fn order(at: usize, byte: u8) -> Vec<u8> {
    packed(0, |block| {
        assert_ne!(block.orders[at], byte, "{:?}", block.orders);
        block.orders[at] = byte;
    })
}

/// The ramp of the second block with another byte: key step, entries - 1, both steps, row step.
fn ramp(at: usize, byte: u8) -> Vec<u8> {
    packed(1, |block| {
        assert_ne!(block.postings[at], byte, "{:?}", block.postings);
        block.postings[at] = byte;
    })
}

pub fn bins() -> Vec<Bad> {
    let strings = with(&golden::strings(), |directory| {
        directory.encoding = Encoding::Binned;
        directory.orders = vec![0, 0];
    });
    let missing = raw(|bytes| *bytes.last_mut().unwrap() = 7);
    let mut all = vec![
        bad("orders-missing.lmx", "Truncated", "the encoding is binned and no lengths of orders follow", missing),
        bad("bins-of-strings.lmx", "Invalid", "the encoding is binned and the keys are strings", strings),
        bad(
            "bins-of-too-few-values.lmx",
            "Invalid",
            "there are more bins than values",
            directory(|directory| directory.value_count = 3),
        ),
        bad(
            "bins-of-too-many-values.lmx",
            "Invalid",
            "bins have more values than rows",
            directory(|directory| directory.value_count = 53),
        ),
        bad(
            "orders-overlap.lmx",
            "Invalid",
            "the orders of a block reach into it",
            directory(|directory| directory.orders[0] += 1),
        ),
        bad(
            "orders-overflow.lmx",
            "Invalid",
            "the orders of a block end beyond 64 bits",
            directory(|directory| directory.orders[1] = u64::MAX),
        ),
        bad(
            "orders-shorter.lmx",
            "Invalid",
            "the orders of the bins have more bytes than those of their block",
            directory(|directory| directory.orders[0] -= 1),
        ),
        bad(
            "values-of-bins.lmx",
            "Invalid",
            "the bins hold fewer values than the directory says",
            directory(|directory| directory.value_count += 1),
        ),
    ];
    all.extend(blocks());
    all.extend(orders());
    all.extend(ramps());
    all
}

fn blocks() -> Vec<Bad> {
    vec![
        bad("bin-block-of-no-bin.lmx", "TooLong", "a bin block has no bin", block(0, 0)),
        bad("bin-block-width-65.lmx", "Invalid", "the gaps of bins have 65 bits", block(1, 65)),
        bad(
            "bin-block-cut.lmx",
            "Truncated",
            "a bin block ends before its last column",
            packed(0, |block| block.block.truncate(block.block.len() - 2)),
        ),
        bad("bin-block-longer.lmx", "Invalid", "bytes follow a bin block", packed(0, |block| block.block.push(0))),
        bad(
            "bin-of-one-value-spread.lmx",
            "Invalid",
            "a bin of one value has two ends",
            packed(0, |block| block.block = columns(&[[21, 1], [15, 16], [3, 1], [3, 1], [3, 2], [9, 0]])),
        ),
        bad(
            "bin-beyond-64-bits.lmx",
            "Invalid",
            "a bin ends beyond 64 bits",
            packed(0, |block| block.block = columns(&[[u64::MAX, 0], [16, 0], [3, 1], [3, 1], [3, 2], [9, 0]])),
        ),
        bad(
            "bin-without-posting.lmx",
            "Invalid",
            "a bin has no posting",
            packed(0, |block| block.block = columns(&[[21, 0], [16, 0], [3, 1], [3, 1], [3, 0], [9, 0]])),
        ),
        bad(
            "bin-of-too-many-rows.lmx",
            "Invalid",
            "a bin of several values has more than 2^20 rows",
            packed(0, |block| block.block = columns(&[[21, 0], [16, 0], [3, 1], [1 << 20, 1], [3, 2], [9, 0]])),
        ),
    ]
}

/// A block of two bins: the gap between them and a number beside it, and columns of two numbers.
fn columns(numbers: &[[u64; 2]; 6]) -> Vec<u8> {
    let mut out = codec::ByteWriter::new();
    out.varint(2);
    let [gap, rest @ ..] = numbers;
    out.u8(64);
    out.u64(gap[0]);
    out.u8(64);
    rest[0].iter().for_each(|spread| out.u64(*spread));
    for column in &rest[1..] {
        out.varint(0);
        out.u8(64);
        column.iter().for_each(|number| out.u64(*number));
    }
    out.into_vec()
}

fn orders() -> Vec<Bad> {
    vec![
        bad("order-width-4.lmx", "Invalid", "six ranks have four bits each", order(0, 4)),
        bad("order-key-width-65.lmx", "Invalid", "the keys of an order have gaps of 65 bits", order(1, 65)),
        bad("order-rank-twice.lmx", "Invalid", "two entries of an order have one row", order(2, 0)),
        bad("order-rank-beyond.lmx", "Invalid", "an entry has the seventh of six rows", order(2, 0xfe)),
        bad("order-key-beyond.lmx", "Invalid", "the keys of an order end beyond the bin", order(5, 0xff)),
    ]
}

fn ramps() -> Vec<Bad> {
    vec![
        bad("ramp-of-later-key.lmx", "Invalid", "the first ramp of a bin begins behind its smallest key", ramp(0, 1)),
        bad("ramp-too-long.lmx", "TooLong", "a ramp has more entries than the bin has rows", ramp(1, 40)),
        bad("ramp-too-short.lmx", "Truncated", "a ramp ends and no other follows", ramp(1, 38)),
        bad("ramp-of-other-keys.lmx", "Invalid", "the keys of a ramp do not end with the bin's", ramp(2, 2)),
        bad("ramp-of-one-row.lmx", "Invalid", "all keys of a ramp are in one row", ramp(3, 0)),
        bad("ramp-beyond-row-space.lmx", "Invalid", "the rows of a ramp go on behind the row space", ramp(3, 4)),
        bad("ramp-before-row-0.lmx", "Invalid", "the rows of a ramp go below 0", ramp(3, 1)),
    ]
}
