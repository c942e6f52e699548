//! Counting rows by value: how many rows hold each value, of all rows or of selected ones.
//!
//! ```text
//! Groups::new(directory, ranges) ─▶ block_ranges()    value blocks, a part of them at a time
//!          bytes of those        ─▶ values()          each value with its rows: the answer, if all rows are selected
//!
//! values, some at a time ─▶ posting_ranges()           their postings, neighbours in one range
//!   bytes of those       ─▶ Mask::count_each()         how many rows of each are selected
//!
//! without postings       ─▶ bitmap_ranges()            the bitmaps of the coarse level
//!   bytes of those       ─▶ Mask::count_ranks()        how many rows of each rank are selected
//!
//! sums of slices         ─▶ Dense::slice_ranges()      the slices, if no value is missing between the least and the greatest
//!   bytes of those       ─▶ Dense::sum()               the sum of the selected rows' ranks
//! ```
//!
//! A posting is decoded once and never becomes a row set: its rows are looked up in a bitmap of the selected ones.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::key::Key;
use lakemark_format::leaf::KeyCount;
use lakemark_format::posting::{self, RowSink};
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{PostingRef, SegmentDirectory, ValueBlockRef};

use super::bins::{self, PlacedBin};
use super::leaves;
use super::overlap::{BlockOverlap, overlaps, ranges_in_segment};
use super::search::decode_block;
use super::slices::BitSlice;
use crate::ranges::{KeyRange, KeyRanges};
use crate::rows::RowSet;

const WORD_BITS: u32 = u64::BITS;

/// One value of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupValue {
    /// The value.
    pub key: Key,
    /// How many values of the segment are smaller; 0 of a packed tree, which does not say.
    pub rank: u64,
    /// Rows of the segment that hold it.
    pub rows: u32,
    /// Logical range of its posting; empty in a packed tree.
    pub posting: Range<u64>,
}

/// The values of one segment, or those in some ranges of keys. Value blocks are taken a part at a time, and parts by as many threads as
/// there are.
#[derive(Debug)]
pub struct ValueGroups {
    directory: Arc<SegmentDirectory>,
    ranges: KeyRanges,
    blocks: Vec<Block>,
}

/// A value block to read.
#[derive(Debug)]
struct Block {
    number: usize,
    /// How many values of the segment are in earlier blocks.
    before: u64,
}

impl ValueGroups {
    /// Plans which value blocks to read.
    #[must_use]
    pub fn new(directory: &Arc<SegmentDirectory>, ranges: KeyRanges) -> Self {
        let places = overlaps(directory, &ranges);
        let before = directory.blocks.iter().scan(0, |end, block| {
            let before = *end;
            *end += u64::from(block.values);
            Some(before)
        });
        let all = (0..).zip(before).map(|(number, before)| Block { number, before });
        let blocks =
            all.zip(&places).filter(|(_, place)| **place != BlockOverlap::Outside).map(|(block, _)| block).collect();
        Self { directory: Arc::clone(directory), ranges, blocks }
    }

    /// How many value blocks are read.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Rows of all value blocks that are read: no more have a value in the ranges.
    #[must_use]
    pub fn row_limit(&self) -> u64 {
        self.block_refs(0..self.blocks.len()).map(|block| block.rows).sum()
    }

    /// Logical ranges of some of the value blocks, by their numbers among those that are read: to be given to [`Self::values`] in
    /// this order.
    #[must_use]
    pub fn block_ranges(&self, part: Range<usize>) -> Vec<Range<u64>> {
        self.block_refs(part).map(|block| block.offset..block.offset + u64::from(block.length)).collect()
    }

    fn block_refs(&self, part: Range<usize>) -> impl Iterator<Item = &ValueBlockRef> {
        let blocks = self.blocks.get(part).unwrap_or_default().iter();
        blocks.filter_map(|block| self.directory.blocks.get(block.number))
    }

    /// At most so many values are in the ranges. It is more than any number where the directory bounds no values. That is so where
    /// values share a posting, and for leaves of a packed tree, which are listed for single keys alone.
    #[must_use]
    pub fn value_limit(&self) -> u64 {
        if self.directory.encoding == Encoding::Packed {
            let in_segment = ranges_in_segment(&self.directory, &self.ranges);
            return if in_segment.iter().all(KeyRange::is_point) { in_segment.len() as u64 } else { u64::MAX };
        }
        if self.directory.value_count > self.directory.entry_count() {
            return u64::MAX;
        }
        self.block_refs(0..self.blocks.len()).map(|block| u64::from(block.values)).sum()
    }

    /// The values of a part of the value blocks, ascending.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn values(&self, part: Range<usize>, bytes: &[Bytes]) -> Result<Vec<GroupValue>> {
        let blocks = self.blocks.get(part.clone()).unwrap_or_default();
        if bytes.len() != blocks.len() || bytes.len() != part.len() {
            return Err(FormatError::invalid("the ranges read", bytes.len(), part.len()));
        }
        let mut found = Vec::new();
        let mut keys = None;
        for (bytes, Block { number, before }) in bytes.iter().zip(blocks) {
            let Some(block) = self.directory.blocks.get(*number) else { continue };
            if self.directory.encoding == Encoding::Binned {
                self.take_bins(bytes, *number, *before, &mut found)?;
                continue;
            }
            let keys = keys.get_or_insert_with(|| self.ranges.cursor_from(&block.first_key));
            if self.directory.encoding == Encoding::Packed {
                let counts = leaves::counts(bytes, block, &self.directory, keys)?.into_iter();
                let value = |KeyCount { key, rows }| GroupValue { key, rank: 0, rows, posting: 0..0 };
                found.extend(counts.map(value));
                continue;
            }
            let mut offset = block.postings_offset;
            for (rank, value) in (*before..).zip(decode_block(bytes, block, &self.directory)?) {
                let posting = offset..offset + u64::from(value.posting_length);
                offset = posting.end;
                if keys.contains(&value.key) {
                    found.push(GroupValue { key: value.key, rank, rows: value.rows, posting });
                }
            }
        }
        Ok(found)
    }

    /// Bins of one value each.
    fn take_bins(&self, bytes: &[u8], number: usize, before: u64, found: &mut Vec<GroupValue>) -> Result<()> {
        let bins = bins::decode_block(bytes, number, &self.directory)?;
        let placed = bins::locate(&self.directory, number, &bins);
        for (rank, PlacedBin { bin, posting, .. }) in (before..).zip(placed) {
            if bin.values > 1 {
                return Err(FormatError::invalid("the values of a bin", bin.values, 1));
            }
            let key = Key::Fixed(bin.low);
            if self.ranges.contains(&key) {
                found.push(GroupValue { key, rank, rows: bin.rows, posting });
            }
        }
        Ok(())
    }
}

/// Logical ranges of the postings of neighbouring values, to be given to [`Mask::count_each`] in this order.
#[must_use]
pub fn posting_ranges(values: &[GroupValue]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for value in values {
        match ranges.last_mut() {
            Some(last) if last.end == value.posting.start => last.end = value.posting.end,
            _ => ranges.push(value.posting.clone()),
        }
    }
    ranges
}

/// Hands every value its posting; `bytes` holds the bytes of [`posting_ranges`].
///
/// # Errors
/// Bytes that are too few, and whatever `take` gives.
pub fn each_posting(
    values: &[GroupValue],
    bytes: &[Bytes],
    mut take: impl FnMut(&GroupValue, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut parts = bytes.iter().map(Bytes::as_ref);
    let mut rest: &[u8] = &[];
    let mut end = None;
    for value in values {
        if end != Some(value.posting.start) {
            rest = parts.next().unwrap_or_default();
        }
        end = Some(value.posting.end);
        let length = value.posting.end - value.posting.start;
        let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let Some((posting, later)) = split else {
            return Err(FormatError::Truncated { what: "a posting", got: rest.len() as u64, expected: length });
        };
        rest = later;
        take(value, posting)?;
    }
    Ok(())
}

/// Selected rows of a segment's row space, as a bitmap that postings are counted against.
#[derive(Clone, Debug)]
pub struct Mask {
    universe: u32,
    words: Vec<u64>,
    rows: u64,
}

impl Mask {
    /// No row of `universe` rows.
    #[must_use]
    pub fn new(universe: u32) -> Self {
        Self { universe, words: vec![0; universe.div_ceil(WORD_BITS) as usize], rows: 0 }
    }

    /// Adds the rows of a data file whose first row is `base`. Files share no row.
    pub fn insert(&mut self, base: u32, rows: &RowSet) {
        let (first, shift) = ((base / WORD_BITS) as usize, base % WORD_BITS);
        rows.for_each_word(|word, bits| {
            self.put(first + word, bits << shift);
            if shift != 0 {
                self.put(first + word + 1, bits >> (WORD_BITS - shift));
            }
        });
    }

    fn put(&mut self, word: usize, bits: u64) {
        let Some(slot) = self.words.get_mut(word) else { return };
        // Rows behind the universe are none.
        let inside = self.universe - word as u32 * WORD_BITS;
        let bits = if inside < WORD_BITS { bits & ((1 << inside) - 1) } else { bits };
        self.rows += u64::from((bits & !*slot).count_ones());
        *slot |= bits;
    }

    /// Takes the rows of a posting list away; gives how many of them were selected.
    ///
    /// # Errors
    /// Bytes that are no posting list of so many rows.
    pub fn remove(&mut self, bytes: &[u8], list: PostingRef) -> Result<u64> {
        let mut rows: Vec<u32> = Vec::new();
        posting::decode(bytes, list.rows, self.universe, &mut rows)?;
        let before = self.rows;
        for row in rows.into_iter().filter(|row| *row < self.universe) {
            if let Some(word) = self.words.get_mut((row / WORD_BITS) as usize) {
                self.rows -= *word >> (row % WORD_BITS) & 1;
                *word &= !(1 << (row % WORD_BITS));
            }
        }
        Ok(before - self.rows)
    }

    /// The selected rows that a posting of `rows` rows has.
    ///
    /// # Errors
    /// Bytes that are no posting of so many rows.
    pub fn among(&self, bytes: &[u8], rows: u32) -> Result<Self> {
        Ok(self.and(BitSlice::decode(bytes, rows, self.universe)?.words()))
    }

    /// The rows that both masks select.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        self.and(&other.words)
    }

    fn and(&self, words: &[u64]) -> Self {
        let words: Vec<u64> = self.words.iter().zip(words).map(|(chosen, bits)| chosen & bits).collect();
        let rows = words.iter().map(|word| u64::from(word.count_ones())).sum();
        Self { universe: self.universe, words, rows }
    }

    /// How many rows are selected.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether a row is selected.
    #[must_use]
    pub fn contains(&self, row: u32) -> bool {
        self.words.get((row / WORD_BITS) as usize).is_some_and(|word| word >> (row % WORD_BITS) & 1 == 1)
    }

    /// How many rows of a posting list are selected.
    ///
    /// # Errors
    /// Bytes that are no posting list of so many rows.
    pub fn count(&self, bytes: &[u8], list: PostingRef) -> Result<u64> {
        self.count_posting(bytes, list.rows)
    }

    /// How many rows of each value are selected; `bytes` holds the bytes of [`posting_ranges`].
    ///
    /// # Errors
    /// Bytes that are not the postings of these values.
    pub fn count_each(&self, values: &[GroupValue], bytes: &[Bytes]) -> Result<Vec<u64>> {
        let mut counts = Vec::with_capacity(values.len());
        each_posting(values, bytes, |value, posting| {
            counts.push(self.count_posting(posting, value.rows)?);
            Ok(())
        })?;
        Ok(counts)
    }

    /// The bitmap.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    fn count_posting(&self, bytes: &[u8], rows: u32) -> Result<u64> {
        let mut counter = Counter { words: &self.words, rows: 0 };
        posting::decode(bytes, rows, self.universe, &mut counter)?;
        Ok(counter.rows)
    }
}

/// A word of a bitmap that a range of rows touches.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TouchedWord {
    /// Its number.
    word: usize,
    /// The bits of the range in it.
    bits: u64,
}

/// The words of a bitmap that a range of rows touches.
fn words_of(start: u32, end: u32) -> impl Iterator<Item = TouchedWord> {
    let last = end.div_ceil(WORD_BITS);
    (start / WORD_BITS..last).filter(move |_| start < end).map(move |word| {
        let first = word * WORD_BITS;
        let from = start.saturating_sub(first);
        let to = (end - first).min(WORD_BITS);
        let below = if to == WORD_BITS { u64::MAX } else { (1 << to) - 1 };
        TouchedWord { word: word as usize, bits: below & (u64::MAX << from) }
    })
}

/// Counts the rows of a posting that are in a bitmap.
struct Counter<'a> {
    words: &'a [u64],
    rows: u64,
}

impl Counter<'_> {
    fn get(&self, word: usize) -> u64 {
        self.words.get(word).copied().unwrap_or(0)
    }
}

impl RowSink for Counter<'_> {
    fn rows(&mut self, rows: &[u32]) {
        let chosen = |row: &u32| self.get((row / WORD_BITS) as usize) >> (row % WORD_BITS) & 1;
        self.rows += rows.iter().map(chosen).sum::<u64>();
    }

    fn word(&mut self, first: u32, bits: u64) {
        let (word, shift) = ((first / WORD_BITS) as usize, first % WORD_BITS);
        let mut chosen = self.get(word) >> shift;
        if shift != 0 {
            chosen |= self.get(word + 1) << (WORD_BITS - shift);
        }
        self.rows += u64::from((chosen & bits).count_ones());
    }

    fn run(&mut self, first: u32, length: u32) {
        let words = words_of(first, first.saturating_add(length));
        let chosen = |touched: TouchedWord| u64::from((self.get(touched.word) & touched.bits).count_ones());
        self.rows += words.map(chosen).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_its_words() {
        let words = |start: u32, end: u32| -> Vec<(usize, u64)> {
            words_of(start, end).map(|touched| (touched.word, touched.bits)).collect()
        };
        assert_eq!(words(3, 3), []);
        assert_eq!(words(0, 64), [(0, u64::MAX)]);
        assert_eq!(words(62, 66), [(0, 3 << 62), (1, 3)]);
        assert_eq!(words(70, 71), [(1, 1 << 6)]);
        assert_eq!(words(64, 192), [(1, u64::MAX), (2, u64::MAX)]);
    }

    #[test]
    fn every_form_of_a_posting_is_counted() {
        let universe = 10_000;
        let chosen: Vec<u32> = (0..universe).filter(|row| row % 3 == 0 || (500..900).contains(row)).collect();
        let mut mask = Mask::new(universe);
        mask.insert(0, &RowSet::from_rows(chosen.clone(), universe));
        assert_eq!(mask.rows(), chosen.len() as u64);
        let postings: [Vec<u32>; 5] = [
            vec![7, 600, 9_999],
            (0..universe).collect(),
            (100..700).chain(8_000..8_100).collect(),
            (0..universe).filter(|row| row * row % 7 < 3).collect(),
            (1..universe).step_by(97).collect(),
        ];
        for rows in postings {
            let mut bytes = Vec::new();
            posting::encode(&rows, universe, &mut bytes);
            let expected = rows.iter().filter(|row| chosen.contains(row)).count() as u64;
            let list = PostingRef { offset: 0, length: bytes.len() as u32, rows: rows.len() as u32 };
            assert_eq!(mask.count(&bytes, list).unwrap(), expected, "{} rows", rows.len());
            assert!(mask.count(&bytes[..bytes.len() - 1], list).is_err());
        }
    }

    #[test]
    fn files_stand_at_their_base() {
        let mut mask = Mask::new(300);
        mask.insert(0, &RowSet::from_rows(vec![1, 63], 64));
        mask.insert(128, &RowSet::full(100));
        assert_eq!(mask.rows(), 102);
        let mut bytes = Vec::new();
        let rows = [0, 1, 63, 64, 127, 128, 227, 228, 299];
        posting::encode(&rows, 300, &mut bytes);
        let list = PostingRef { offset: 0, length: bytes.len() as u32, rows: rows.len() as u32 };
        assert_eq!(mask.count(&bytes, list).unwrap(), 4);
        assert_eq!((mask.remove(&bytes, list).unwrap(), mask.rows()), (4, 98));
        assert_eq!(mask.count(&bytes, list).unwrap(), 0);
        assert!(mask.contains(129) && !mask.contains(128));
    }

    #[test]
    fn rows_are_chosen_from_any_base_and_none_behind_the_universe() {
        for form in [vec![0, 5, 63, 64, 99], (0..100).collect(), (0..100).filter(|row| row % 3 != 1).collect()] {
            let rows = RowSet::from_rows(form.clone(), 100);
            for base in [0, 1, 63, 64, 130, 250, 290, 299, 300, 1000] {
                let mut mask = Mask::new(300);
                mask.insert(base, &rows);
                let expected: Vec<u32> = form.iter().map(|row| row + base).filter(|row| *row < 300).collect();
                let chosen: Vec<u32> = (0..400).filter(|row| mask.contains(*row)).collect();
                assert_eq!((chosen, mask.rows()), (expected.clone(), expected.len() as u64), "{base}");
                mask.insert(base, &rows);
                assert_eq!(mask.rows(), expected.len() as u64, "a row counts once");
            }
        }
    }
}
