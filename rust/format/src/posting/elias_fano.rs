//! Elias-Fano (Elias 1974, Fano 1971): `n` ascending positions below `u`, each split into `l = floor(log2(u / n))` low
//! bits, kept side by side, and a high part, kept in unary:
//!
//! ```text
//! low    n * l bits          the low bits of position 0, 1, 2, …
//! high   n + (u >> l) bits   bit (high part of position i) + i is set
//! ```
//!
//! That is about `log2(u / n) + 2` bits a position. Decoding goes over each block twice. The first pass unpacks the low bits,
//! eight at a time from one word. The second one goes over the set bits of the high part.

use crate::error::{FormatError, Result};
use crate::packed::{wide_word_at, word_at};

/// Low parts that are taken from one word at a time.
const GROUP: usize = 8;

/// Shape of a block: a function of the row count and the span alone.
#[derive(Clone, Copy)]
pub(super) struct EliasFanoShape {
    low_bits: u32,
    pub(super) low_bytes: usize,
    pub(super) high_bytes: usize,
}

impl EliasFanoShape {
    pub(super) fn new(count: usize, span: u32) -> Self {
        let low_bits = (u64::from(span) / (count.max(1) as u64)).checked_ilog2().unwrap_or(0);
        let high_bits = count + (span >> low_bits) as usize;
        Self { low_bits, low_bytes: (count * low_bits as usize).div_ceil(8), high_bytes: high_bits.div_ceil(8) }
    }

    pub(super) fn byte_length(self) -> usize {
        self.low_bytes + self.high_bytes
    }
}

/// Appends `rows`, all within `base..base + span`.
pub(super) fn encode(rows: &[u32], base: u32, span: u32, out: &mut Vec<u8>) {
    let shape = EliasFanoShape::new(rows.len(), span);
    let start = out.len();
    out.resize(start + shape.byte_length(), 0);
    let Some((low, high)) = out.get_mut(start..).and_then(|bytes| bytes.split_at_mut_checked(shape.low_bytes)) else {
        return;
    };
    let mask = (1u64 << shape.low_bits) - 1;
    for (index, &row) in rows.iter().enumerate() {
        let value = u64::from(row - base);
        let mut bits = (value & mask) << (index * shape.low_bits as usize % 8);
        let first = index * shape.low_bits as usize / 8;
        for byte in low.iter_mut().skip(first).take(8) {
            *byte |= bits as u8;
            bits >>= 8;
        }
        let position = (value >> shape.low_bits) as usize + index;
        if let Some(byte) = high.get_mut(position / 8) {
            *byte |= 1 << (position % 8);
        }
    }
}

/// Decodes the block into `rows`, whose length is the number of rows that it must hold.
///
/// # Errors
/// Another number of set bits than rows, or rows that are not ascending. Whether they lie within a span is for the caller.
pub(super) fn decode(shape: EliasFanoShape, low: &[u8], high: &[u8], base: u32, rows: &mut [u32]) -> Result<()> {
    let (words, rest) = high.as_chunks::<8>();
    let found: usize = words.iter().map(|word| u64::from_le_bytes(*word).count_ones() as usize).sum::<usize>()
        + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    if found != rows.len() {
        return Err(FormatError::invalid("the rows of a posting block", found, rows.len()));
    }
    unpack(low, shape.low_bits, rows);
    add_high(high, shape.low_bits, base, rows);
    let ascending = rows.iter().zip(rows.iter().skip(1)).fold(true, |ok, (a, b)| ok & (a < b));
    if ascending { Ok(()) } else { Err(FormatError::invalid("a posting's rows", "out of order", "ascending rows")) }
}

/// Adds the high parts to the low ones: the i-th set bit stands at high part + i. Sums wrap where the bytes are no block: the
/// order check finds them.
fn add_high(high: &[u8], low_bits: u32, base: u32, mut rows: &mut [u32]) {
    let (words, rest) = high.as_chunks::<8>();
    let mut tail = [0u8; 8];
    tail.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let mut origin = 0u32;
    for word in words.iter().chain(std::iter::once(&tail)) {
        let mut bits = u64::from_le_bytes(*word);
        let Some((now, later)) = rows.split_at_mut_checked(bits.count_ones() as usize) else {
            return;
        };
        rows = later;
        for row in now {
            let high = origin.wrapping_add(bits.trailing_zeros());
            *row = (high << low_bits).wrapping_add(*row).wrapping_add(base);
            origin = origin.wrapping_sub(1);
            bits &= bits.wrapping_sub(1);
        }
        origin = origin.wrapping_add(u64::BITS);
    }
}

/// Unpacks `low_bits` bits for each row.
fn unpack(low: &[u8], low_bits: u32, rows: &mut [u32]) {
    // The width is a constant of each copy of the loop, so that every shift is one too.
    match low_bits {
        0 => rows.fill(0),
        1 => unpack_groups::<1>(low, rows),
        2 => unpack_groups::<2>(low, rows),
        3 => unpack_groups::<3>(low, rows),
        4 => unpack_groups::<4>(low, rows),
        5 => unpack_groups::<5>(low, rows),
        6 => unpack_groups::<6>(low, rows),
        7 => unpack_groups::<7>(low, rows),
        8 => unpack_groups::<8>(low, rows),
        9 => unpack_groups::<9>(low, rows),
        10 => unpack_groups::<10>(low, rows),
        11 => unpack_groups::<11>(low, rows),
        12 => unpack_groups::<12>(low, rows),
        13 => unpack_groups::<13>(low, rows),
        14 => unpack_groups::<14>(low, rows),
        15 => unpack_groups::<15>(low, rows),
        16 => unpack_groups::<16>(low, rows),
        wide => unpack_each(low, wide, 0, rows),
    }
}

/// Eight rows of `BITS` (at most 16) bits are `BITS` bytes: one word of 128 bits.
fn unpack_groups<const BITS: usize>(low: &[u8], rows: &mut [u32]) {
    let mask = (1u32 << BITS) - 1;
    let (groups, rest) = rows.as_chunks_mut::<GROUP>();
    let mut at = 0;
    for group in groups {
        if BITS * GROUP <= 64 {
            let word = word_at(low, at);
            for (place, row) in group.iter_mut().enumerate() {
                *row = (word >> (place * BITS)) as u32 & mask;
            }
        } else {
            let word = wide_word_at(low, at);
            for (place, row) in group.iter_mut().enumerate() {
                *row = (word >> (place * BITS)) as u32 & mask;
            }
        }
        at += BITS;
    }
    unpack_each(low, BITS as u32, at * 8, rest);
}

/// One row at a time, from bit `bit` on.
fn unpack_each(low: &[u8], low_bits: u32, mut bit: usize, rows: &mut [u32]) {
    let mask = (1u64 << low_bits) - 1;
    for row in rows {
        *row = (word_at(low, bit / 8) >> (bit % 8) & mask) as u32;
        bit += low_bits as usize;
    }
}
