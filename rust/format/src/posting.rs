//! Postings: the ascending row positions of one value, in as few bytes as their shape allows.
//!
//! A posting is cut into blocks of [`BLOCK_ROWS`] rows (the last one shorter). Each block is stored in whichever of four forms is
//! smallest. A bitmap may be a little larger than the best, because it is read a word at a time:
//!
//! ```text
//! tag 0  whole   Elias-Fano over the whole row space (no base: few rows, far apart)
//! tag 1  local   base, span, Elias-Fano over base..base+span
//! tag 2  bitmap  base, span, one bit a row
//! tag 3  runs    number of runs, then (gap, length) pairs
//! ```
//!
//! The encoded length and the number of rows are kept by whoever points at the posting.

mod elias_fano;

use self::elias_fano::EliasFanoShape;
use crate::codec::{ByteReader, ByteWriter};
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
    let whole = 1 + EliasFanoShape::new(count, universe).byte_length();
    let local = header + EliasFanoShape::new(count, span).byte_length();
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
        elias_fano::encode(rows, 0, universe, out);
        TAG_WHOLE
    } else {
        put_bounds(base, span, out);
        elias_fano::encode(rows, base, span, out);
        TAG_LOCAL
    };
    if let Some(slot) = out.get_mut(tag_at) {
        *slot = tag;
    }
}

/// The posting of consecutive rows: runs, block by block.
pub(crate) fn encode_run(first: u32, rows: u32) -> Vec<u8> {
    let mut out = ByteWriter::new();
    let (mut start, mut left) = (first, rows);
    while left > 0 {
        let length = left.min(BLOCK_ROWS as u32);
        out.u8(TAG_RUNS);
        out.varint(1);
        out.varint(start.into());
        out.varint(length.into());
        start = start.wrapping_add(length);
        left -= length;
    }
    out.into_vec()
}

fn varint_length(value: u32) -> usize {
    ((u32::BITS - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

fn put_bounds(base: u32, span: u32, out: &mut Vec<u8>) {
    let mut writer = ByteWriter::new();
    writer.varint(u64::from(base));
    writer.varint(u64::from(span));
    out.extend_from_slice(&writer.into_vec());
}

/// Consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRun {
    /// The first of them.
    pub first: u32,
    /// How many there are.
    pub length: u32,
}

/// Maximal runs of consecutive rows.
fn runs_of(rows: &[u32]) -> impl Iterator<Item = RowRun> + '_ {
    rows.chunk_by(|a, b| a + 1 == *b)
        .filter_map(|run| run.first().map(|&first| RowRun { first, length: run.len() as u32 }))
}

fn runs_length(rows: &[u32]) -> usize {
    let mut end = 0;
    let mut bytes = 0;
    let mut count = 0;
    for RowRun { first, length } in runs_of(rows) {
        bytes += varint_length(first - end) + varint_length(length);
        end = first + length;
        count += 1;
    }
    bytes + varint_length(count)
}

fn encode_runs(rows: &[u32], out: &mut Vec<u8>) {
    let mut writer = ByteWriter::new();
    writer.varint(runs_of(rows).count() as u64);
    let mut end = 0;
    for RowRun { first, length } in runs_of(rows) {
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

/// Decodes a posting of `count` rows below `universe` into `sink`.
///
/// # Errors
/// [`FormatError`] where the bytes are not such a posting: too few or too many of them, rows out of
/// order or beyond the universe. Rows handed to the sink before the error must be thrown away.
pub fn decode(bytes: &[u8], count: u32, universe: u32, sink: &mut impl RowSink) -> Result<()> {
    Decoder::default().decode(bytes, count, universe, sink)
}

/// Decodes one posting after another with the same working memory (16 KiB).
#[derive(Debug, Default)]
pub struct Decoder {
    scratch: Vec<u32>,
}

impl Decoder {
    /// As [`decode`].
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode(&mut self, bytes: &[u8], count: u32, universe: u32, sink: &mut impl RowSink) -> Result<()> {
        let mut reader = ByteReader::new("a posting", bytes);
        let mut left = count as usize;
        let mut next = 0u32;
        while left > 0 {
            let rows = left.min(BLOCK_ROWS);
            let block = PostingBlock { rows, from: next, universe };
            next = match reader.u8()? {
                TAG_WHOLE => {
                    let whole = BlockBounds { base: 0, span: universe };
                    block.elias_fano(&mut reader, whole, &mut self.scratch, sink)?
                }
                TAG_LOCAL => {
                    let bounds = block.bounds(&mut reader)?;
                    block.elias_fano(&mut reader, bounds, &mut self.scratch, sink)?
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
}

/// The rows between which those of a block lie.
#[derive(Clone, Copy)]
struct BlockBounds {
    /// The first of them.
    base: u32,
    /// How many there are.
    span: u32,
}

/// What is known of a block before its bytes are read.
struct PostingBlock {
    rows: usize,
    /// No row of the block is below this one.
    from: u32,
    universe: u32,
}

impl PostingBlock {
    fn check_count(&self, rows: usize) -> Result<()> {
        if rows == self.rows {
            return Ok(());
        }
        Err(FormatError::invalid("the rows of a posting block", rows, self.rows))
    }

    fn bounds(&self, reader: &mut ByteReader<'_>) -> Result<BlockBounds> {
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
        Ok(BlockBounds { base, span })
    }

    fn runs(&self, reader: &mut ByteReader<'_>, sink: &mut impl RowSink) -> Result<u32> {
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

    fn bitmap(&self, reader: &mut ByteReader<'_>, sink: &mut impl RowSink) -> Result<u32> {
        let BlockBounds { base, span } = self.bounds(reader)?;
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
        reader: &mut ByteReader<'_>,
        bounds: BlockBounds,
        scratch: &mut Vec<u32>,
        sink: &mut impl RowSink,
    ) -> Result<u32> {
        let BlockBounds { base, span } = bounds;
        let shape = EliasFanoShape::new(self.rows, span);
        let low = reader.bytes(shape.low_bytes)?;
        let high = reader.bytes(shape.high_bytes)?;
        scratch.resize(self.rows, 0);
        elias_fano::decode(shape, low, high, base, scratch)?;
        let end = u64::from(base) + u64::from(span);
        let (first, last) = (scratch.first().copied(), scratch.last().copied());
        if first.is_some_and(|first| first < self.from.max(base)) || last.is_some_and(|last| u64::from(last) >= end) {
            return Err(FormatError::invalid(
                "a posting's rows",
                format_args!("{first:?} to {last:?}"),
                format_args!("rows within {}..{end}", self.from.max(base)),
            ));
        }
        sink.rows(scratch);
        Ok(last.map_or(self.from, |last| last + 1))
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
