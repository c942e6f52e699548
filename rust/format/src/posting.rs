//! Postings: the ascending row positions of one value, in as few bytes as their shape allows.
//!
//! A posting is cut into blocks of [`BLOCK_ROWS`] rows (the last one shorter). Each block is
//! stored in whichever of four forms is smallest; a bitmap may be a little larger than the best,
//! because it is read a word at a time:
//!
//! ```text
//! tag 0  whole   Elias-Fano over the whole row space (no base: few rows, far apart)
//! tag 1  local   base, span, Elias-Fano over base..base+span
//! tag 2  bitmap  base, span, one bit a row
//! tag 3  runs    number of runs, then (gap, length) pairs
//! ```
//!
//! Elias-Fano (Elias 1974, Fano 1971) splits each of `n` positions below `u` into
//! `l = floor(log2(u / n))` low bits, kept side by side, and a high part, kept in unary in a
//! bit vector of `n + (u >> l)` bits: about `log2(u / n) + 2` bits a row.
//!
//! The encoded length and the number of rows are kept by whoever points at the posting.

use crate::codec::{Reader, Writer};
use crate::error::{FormatError, Result};

/// Rows of a full block. Part of the format.
pub const BLOCK_ROWS: usize = 4096;

const TAG_WHOLE: u8 = 0;
const TAG_LOCAL: u8 = 1;
const TAG_BITMAP: u8 = 2;
const TAG_RUNS: u8 = 3;

/// A bitmap is taken up to this many per cent of the smallest form's size, since it needs no decoding.
const BITMAP_TOLERANCE_PERCENT: usize = 120;

/// Receives decoded rows in ascending order.
pub trait RowSink {
    /// Some rows, ascending.
    fn rows(&mut self, rows: &[u32]);
    /// The rows `first + i` for each set bit `i`.
    fn word(&mut self, first: u32, bits: u64);
    /// The rows `first..first + length`.
    fn run(&mut self, first: u32, length: u32);
}

impl RowSink for Vec<u32> {
    fn rows(&mut self, rows: &[u32]) {
        self.extend_from_slice(rows);
    }
    fn word(&mut self, first: u32, bits: u64) {
        let mut rest = bits;
        while rest != 0 {
            self.push(first + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    fn run(&mut self, first: u32, length: u32) {
        self.extend(first..first + length);
    }
}

/// Appends the posting of `rows` (strictly ascending, all below `universe`) to `out`.
pub fn encode(rows: &[u32], universe: u32, out: &mut Vec<u8>) {
    for block in rows.chunks(BLOCK_ROWS) {
        encode_block(block, universe, out);
    }
}

fn encode_block(rows: &[u32], universe: u32, out: &mut Vec<u8>) {
    let (Some(&base), Some(&last)) = (rows.first(), rows.last()) else {
        return;
    };
    let span = last - base + 1;
    let count = rows.len();
    let header = 1 + varint_length(base) + varint_length(span);
    let whole = 1 + EliasFano::new(count, universe).byte_length();
    let local = header + EliasFano::new(count, span).byte_length();
    let bitmap = header + (span as usize).div_ceil(8);
    let runs = 1 + runs_length(rows);
    let best = whole.min(local).min(runs);
    out.push(TAG_WHOLE);
    let tag_at = out.len() - 1;
    let tag = if bitmap * 100 <= best * BITMAP_TOLERANCE_PERCENT {
        encode_bitmap(rows, base, span, out);
        TAG_BITMAP
    } else if runs == best {
        encode_runs(rows, out);
        TAG_RUNS
    } else if whole == best {
        encode_elias_fano(rows, 0, universe, out);
        TAG_WHOLE
    } else {
        put_bounds(base, span, out);
        encode_elias_fano(rows, base, span, out);
        TAG_LOCAL
    };
    if let Some(slot) = out.get_mut(tag_at) {
        *slot = tag;
    }
}

fn varint_length(value: u32) -> usize {
    ((u32::BITS - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

fn put_bounds(base: u32, span: u32, out: &mut Vec<u8>) {
    let mut writer = Writer::new();
    writer.varint(u64::from(base));
    writer.varint(u64::from(span));
    out.extend_from_slice(&writer.into_vec());
}

/// Maximal runs of consecutive rows as (first, length).
fn runs_of(rows: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    rows.chunk_by(|a, b| a + 1 == *b).filter_map(|run| run.first().map(|&first| (first, run.len() as u32)))
}

fn runs_length(rows: &[u32]) -> usize {
    let mut end = 0;
    let mut bytes = 0;
    let mut count = 0;
    for (first, length) in runs_of(rows) {
        bytes += varint_length(first - end) + varint_length(length);
        end = first + length;
        count += 1;
    }
    bytes + varint_length(count)
}

fn encode_runs(rows: &[u32], out: &mut Vec<u8>) {
    let mut writer = Writer::new();
    writer.varint(runs_of(rows).count() as u64);
    let mut end = 0;
    for (first, length) in runs_of(rows) {
        writer.varint(u64::from(first - end));
        writer.varint(u64::from(length));
        end = first + length;
    }
    out.extend_from_slice(&writer.into_vec());
}

fn encode_bitmap(rows: &[u32], base: u32, span: u32, out: &mut Vec<u8>) {
    put_bounds(base, span, out);
    let start = out.len();
    out.resize(start + (span as usize).div_ceil(8), 0);
    for &row in rows {
        let bit = (row - base) as usize;
        if let Some(byte) = out.get_mut(start + bit / 8) {
            *byte |= 1 << (bit % 8);
        }
    }
}

/// Shape of an Elias-Fano block: a function of the row count and the span alone.
#[derive(Clone, Copy)]
struct EliasFano {
    low_bits: u32,
    low_bytes: usize,
    high_bytes: usize,
}

impl EliasFano {
    fn new(count: usize, span: u32) -> Self {
        let low_bits = (u64::from(span) / (count.max(1) as u64)).checked_ilog2().unwrap_or(0);
        let high_bits = count + (span >> low_bits) as usize;
        Self { low_bits, low_bytes: (count * low_bits as usize).div_ceil(8), high_bytes: high_bits.div_ceil(8) }
    }

    fn byte_length(self) -> usize {
        self.low_bytes + self.high_bytes
    }
}

fn encode_elias_fano(rows: &[u32], base: u32, span: u32, out: &mut Vec<u8>) {
    let shape = EliasFano::new(rows.len(), span);
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

/// Decodes a posting of `count` rows below `universe` into `sink`.
///
/// # Errors
/// [`FormatError`] where the bytes are not such a posting: too few or too many of them, rows out of
/// order or beyond the universe. Rows handed to the sink before the error must be thrown away.
pub fn decode(bytes: &[u8], count: u32, universe: u32, sink: &mut impl RowSink) -> Result<()> {
    let mut reader = Reader::new("a posting", bytes);
    let mut left = count as usize;
    let mut next = 0u32;
    let mut scratch = Vec::new();
    while left > 0 {
        let rows = left.min(BLOCK_ROWS);
        let block = Block { rows, from: next, universe };
        next = match reader.u8()? {
            TAG_WHOLE => block.elias_fano(&mut reader, 0, universe, &mut scratch, sink)?,
            TAG_LOCAL => {
                let (base, span) = block.bounds(&mut reader)?;
                block.elias_fano(&mut reader, base, span, &mut scratch, sink)?
            }
            TAG_BITMAP => block.bitmap(&mut reader, sink)?,
            TAG_RUNS => block.runs(&mut reader, sink)?,
            other => {
                return Err(FormatError::invalid("a posting block's tag", other, "0 to 3"));
            }
        };
        left -= rows;
    }
    reader.finish()
}

/// What is known of a block before its bytes are read.
struct Block {
    rows: usize,
    /// No row of the block is below this one.
    from: u32,
    universe: u32,
}

impl Block {
    fn check_count(&self, rows: usize) -> Result<()> {
        if rows == self.rows {
            return Ok(());
        }
        Err(FormatError::invalid("the rows of a posting block", rows, self.rows))
    }

    fn bounds(&self, reader: &mut Reader<'_>) -> Result<(u32, u32)> {
        let base = reader.varint_u32("a posting block's first row")?;
        let span = reader.varint_u32("a posting block's span")?;
        let end = base.checked_add(span);
        if base < self.from || end.is_none_or(|end| end > self.universe) || (span as usize) < self.rows {
            return Err(FormatError::invalid(
                "a posting block",
                format_args!("{span} rows from {base}"),
                format_args!("{} rows within {}..{}", self.rows, self.from, self.universe),
            ));
        }
        Ok((base, span))
    }

    fn runs(&self, reader: &mut Reader<'_>, sink: &mut impl RowSink) -> Result<u32> {
        let runs = reader.varint_u32("the runs of a posting block")?;
        let (mut end, mut rows) = (0u32, 0usize);
        for index in 0..runs {
            let gap = reader.varint_u32("the gap before a run")?;
            let length = reader.varint_u32("a run's length")?;
            let first = end.checked_add(gap);
            let stop = first.and_then(|first| first.checked_add(length));
            let (Some(first), Some(stop)) = (first, stop) else {
                return Err(FormatError::invalid("a posting run", "beyond 32 bits", "rows of 32 bits"));
            };
            rows += length as usize;
            if length == 0 || stop > self.universe || first < self.from || rows > self.rows || (index > 0 && gap == 0) {
                return Err(FormatError::invalid(
                    "a posting run",
                    format_args!("{length} rows from {first}"),
                    format_args!("{} rows within {}..{}", self.rows, self.from, self.universe),
                ));
            }
            sink.run(first, length);
            end = stop;
        }
        self.check_count(rows)?;
        Ok(end)
    }

    fn bitmap(&self, reader: &mut Reader<'_>, sink: &mut impl RowSink) -> Result<u32> {
        let (base, span) = self.bounds(reader)?;
        let bytes = reader.bytes((span as usize).div_ceil(8))?;
        let mut rows = 0;
        let (words, rest) = bytes.as_chunks::<8>();
        let mut tail = [0u8; 8];
        tail.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let last = (!rest.is_empty()).then_some(tail);
        for (index, word) in words.iter().copied().chain(last).enumerate() {
            let bits = u64::from_le_bytes(word);
            let first = index as u32 * u64::BITS;
            if u64::from(first) + u64::from(u64::BITS - bits.leading_zeros()) > u64::from(span) && bits != 0 {
                return Err(FormatError::invalid(
                    "a posting bitmap",
                    "a row beyond its span",
                    format_args!("rows below {span}"),
                ));
            }
            rows += bits.count_ones() as usize;
            sink.word(base + first, bits);
        }
        self.check_count(rows)?;
        Ok(base + span)
    }

    fn elias_fano(
        &self,
        reader: &mut Reader<'_>,
        base: u32,
        span: u32,
        scratch: &mut Vec<u32>,
        sink: &mut impl RowSink,
    ) -> Result<u32> {
        let shape = EliasFano::new(self.rows, span);
        let low = reader.bytes(shape.low_bytes)?;
        let high = reader.bytes(shape.high_bytes)?;
        scratch.clear();
        scratch.resize(self.rows, 0);
        // High parts first: the i-th set bit stands at high part + i.
        let mut slots = scratch.iter_mut();
        let mut index = 0u32;
        let (words, rest) = high.as_chunks::<8>();
        let mut tail = [0u8; 8];
        tail.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        for (number, word) in words.iter().copied().chain((!rest.is_empty()).then_some(tail)).enumerate() {
            let mut bits = u64::from_le_bytes(word);
            let start = number as u32 * u64::BITS;
            while bits != 0 {
                let Some(slot) = slots.next() else {
                    return self.check_count(self.rows + 1).map(|()| 0);
                };
                *slot = (start + bits.trailing_zeros() - index) << shape.low_bits;
                index += 1;
                bits &= bits - 1;
            }
        }
        self.check_count(index as usize)?;
        add_low_bits(scratch, low, shape.low_bits, base);
        check_ascending(scratch, self.from.max(base), u64::from(base) + u64::from(span))?;
        sink.rows(scratch);
        Ok(scratch.last().map_or(self.from, |last| last + 1))
    }
}

/// Adds `base` and the packed low bits to the high parts. Sums wrap: the order check that follows finds them.
fn add_low_bits(rows: &mut [u32], low: &[u8], low_bits: u32, base: u32) {
    let mask = (1u64 << low_bits) - 1;
    let mut bit = 0usize;
    // While eight bytes can be read at once no low part needs a second read.
    let fast = low.len().saturating_sub(8) * 8;
    for row in rows.iter_mut() {
        let first = bit / 8;
        let word = if bit < fast {
            low.get(first..first + 8)
                .and_then(|bytes| bytes.first_chunk::<8>())
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        } else {
            let mut bytes = [0u8; 8];
            bytes.iter_mut().zip(low.iter().skip(first)).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(bytes)
        };
        *row = row.wrapping_add((word >> (bit % 8) & mask) as u32).wrapping_add(base);
        bit += low_bits as usize;
    }
}

fn check_ascending(rows: &[u32], from: u32, end: u64) -> Result<()> {
    let ascending = rows.iter().zip(rows.iter().skip(1)).fold(true, |ok, (a, b)| ok & (a < b));
    let first_fits = rows.first().is_none_or(|&first| first >= from);
    let last_fits = rows.last().is_none_or(|&last| u64::from(last) < end);
    if ascending && first_fits && last_fits {
        Ok(())
    } else {
        Err(FormatError::invalid(
            "a posting's rows",
            "out of order",
            format_args!("ascending rows within {from}..{end}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(rows: &[u32], universe: u32) -> usize {
        let mut bytes = Vec::new();
        encode(rows, universe, &mut bytes);
        let mut decoded = Vec::new();
        decode(&bytes, rows.len() as u32, universe, &mut decoded).unwrap();
        assert_eq!(decoded, rows);
        bytes.len()
    }

    fn every(step: usize, universe: u32) -> Vec<u32> {
        (0..universe).step_by(step).collect()
    }

    #[test]
    fn sizes_follow_the_shape() {
        assert_eq!(round_trip(&[], 10), 0);
        // One run of a full block: tag, run count, gap, length.
        assert_eq!(round_trip(&(100..100 + 4096).collect::<Vec<_>>(), 10_000_000), 1 + 1 + 1 + 2);
        // Every second row: a bitmap of 2 bits a row plus the bounds.
        let half = round_trip(&every(2, 1 << 20), 1 << 20);
        assert!(half <= (1 << 17) + 128 * 6, "{half}");
        // 20 rows among 10 million: 18 low bits, one end bit and 38 steps, in 53 bytes and a tag.
        assert_eq!(round_trip(&every(500_000, 10_000_000), 10_000_000), 1 + 45 + 8);
    }

    #[test]
    fn the_last_row_of_the_largest_universe_is_kept() {
        round_trip(&[0, u32::MAX - 1], u32::MAX);
        round_trip(&[u32::MAX - 1], u32::MAX);
    }

    proptest! {
        // Each case is thousands of rows.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn decode_of_encode_is_the_same(
            gaps in prop::collection::vec(prop_oneof![Just(1u32), 1u32..4, 1u32..100, 1u32..40_000], 0..9_000),
            slack in 1u32..1000,
        ) {
            let mut row = 0u32;
            let rows: Vec<u32> = gaps.iter().map(|gap| { row += gap; row }).collect();
            round_trip(&rows, row + slack);
        }

        #[test]
        fn arbitrary_bytes_give_rows_of_the_universe_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..600), count in 0u32..6000, universe in 0u32..1_000_000,
        ) {
            let mut rows = Vec::new();
            if decode(&bytes, count, universe, &mut rows).is_ok() {
                prop_assert_eq!(rows.len(), count as usize);
                prop_assert!(rows.iter().all(|&row| row < universe));
                prop_assert!(rows.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
