//! Asking a segment which rows pass a test, in two rounds of reading.
//!
//! ```text
//! Search::new(directory, test) ─▶ first_ranges()   value blocks, NULL and opaque rows
//!        bytes of those        ─▶ second_ranges()  postings of the values that pass
//!        bytes of those        ─▶ finish()         the rows
//! ```
//!
//! The caller reads (and checks pages); nothing here does I/O. A test that most rows pass is
//! answered by its complement, so that the postings read never hold more than about half of the rows.

use std::ops::{Bound, Range};

use lakemark_format::error::{FormatError, Result};
use lakemark_format::key::Key;
use lakemark_format::posting::{self, RowSink};
use lakemark_format::segment::{PostingRef, SegmentDirectory, ValueBlockRef};
use lakemark_format::value_block::{self, Value};

use crate::algebra::Candidates;
use crate::predicate::Test;
use crate::ranges::{KeyRange, KeyRanges};
use crate::rows::{RowSet, RowSetBuilder};

/// The answer of a segment, over the rows of its row space.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafRows {
    /// Rows that pass.
    pub t: RowSet,
    /// Rows where the test is NULL.
    pub n: RowSet,
    /// Rows that the index cannot decide.
    pub opaque: RowSet,
}

impl LeafRows {
    /// The candidates of the rows `start..end` of the row space: those of one data file.
    #[must_use]
    pub fn candidates(&self, start: u32, end: u32) -> Candidates {
        Candidates::with_opaque(self.t.slice(start, end), self.n.slice(start, end), &self.opaque.slice(start, end))
    }
}

/// One test of one segment, between the reads.
#[derive(Debug)]
pub struct Search<'a> {
    directory: &'a SegmentDirectory,
    question: Question,
    /// Blocks that hold values of the ranges, ascending.
    blocks: Vec<usize>,
    /// After the first round: NULL and opaque rows.
    nulls: RowSet,
    opaque: RowSet,
    /// After the first round: for each range of bytes to read, the values in it.
    wanted: Vec<Vec<Value>>,
}

#[derive(Debug)]
enum Question {
    IsNull,
    /// Rows of these keys, or (`complement`) all valued rows but those.
    Keys {
        ranges: KeyRanges,
        complement: bool,
    },
}

impl<'a> Search<'a> {
    /// Plans the search: which value blocks could hold values that pass.
    #[must_use]
    pub fn new(directory: &'a SegmentDirectory, test: &Test) -> Self {
        let (question, blocks) = match test {
            Test::IsNull => (Question::IsNull, Vec::new()),
            Test::Ranges(ranges) => plan(directory, ranges),
        };
        let empty = RowSet::empty(directory.universe);
        Self { directory, question, blocks, nulls: empty.clone(), opaque: empty, wanted: Vec::new() }
    }

    /// Logical ranges of the first round, to be given to [`Self::second_ranges`] in this order.
    #[must_use]
    pub fn first_ranges(&self) -> Vec<Range<u64>> {
        let lists = self.lists().map(|list| list.offset..list.offset + u64::from(list.length));
        lists.chain(self.block_refs().map(|block| block.offset..block.offset + u64::from(block.length))).collect()
    }

    /// The NULL list, and with key tests the opaque one.
    fn lists(&self) -> impl Iterator<Item = PostingRef> + use<> {
        let opaque = matches!(self.question, Question::Keys { .. }).then_some(self.directory.opaque);
        std::iter::once(self.directory.nulls).chain(opaque)
    }

    fn block_refs(&self) -> impl Iterator<Item = &'a ValueBlockRef> + '_ {
        self.blocks.iter().filter_map(|&index| self.directory.blocks.get(index))
    }

    /// Takes the bytes of the first round and gives the logical ranges of the second.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn second_ranges(&mut self, first: &[Vec<u8>]) -> Result<Vec<Range<u64>>> {
        let lists: Vec<PostingRef> = self.lists().collect();
        if first.len() != lists.len() + self.blocks.len() {
            return Err(FormatError::invalid("the ranges read", first.len(), lists.len() + self.blocks.len()));
        }
        let (list_bytes, block_bytes) = first.split_at_checked(lists.len()).unwrap_or_default();
        let mut sets = list_bytes.iter().zip(&lists).map(|(bytes, list)| self.posting(bytes, *list));
        let nulls = sets.next().transpose()?;
        let opaque = sets.next().transpose()?;
        drop(sets);
        if let Some(nulls) = nulls {
            self.nulls = nulls;
        }
        if let Some(opaque) = opaque {
            self.opaque = opaque;
        }
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (bytes, block) in block_bytes.iter().zip(self.block_refs()) {
            blocks.push((block.postings_offset, decode_block(bytes, block, self.directory)?));
        }
        self.flip_if_cheaper(&blocks);
        Ok(self.want(blocks))
    }

    /// With all blocks at hand the rows are known exactly: the smaller side is the one to read.
    fn flip_if_cheaper(&mut self, blocks: &[(u64, Vec<Value>)]) {
        let Question::Keys { ranges, complement } = &mut self.question else {
            return;
        };
        if blocks.len() < self.directory.blocks.len() {
            return;
        }
        let (mut chosen, mut all) = (0u64, 0u64);
        for value in blocks.iter().flat_map(|(_, values)| values) {
            all += u64::from(value.rows);
            if ranges.contains(&value.key) {
                chosen += u64::from(value.rows);
            }
        }
        if chosen * 2 > all {
            *ranges = ranges.complement();
            *complement = !*complement;
        }
    }

    fn posting(&self, bytes: &[u8], list: PostingRef) -> Result<RowSet> {
        let mut rows = Rows(RowSetBuilder::with_capacity(self.directory.universe, u64::from(list.rows)));
        posting::decode(bytes, list.rows, self.directory.universe, &mut rows)?;
        Ok(rows.0.finish())
    }

    /// The postings of neighbouring values that are in the ranges are one range of bytes.
    fn want(&mut self, blocks: Vec<(u64, Vec<Value>)>) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let Question::Keys { ranges: keys, .. } = &self.question else {
            return ranges;
        };
        for (postings_offset, values) in blocks {
            let mut offset = postings_offset;
            for value in values {
                let end = offset + u64::from(value.posting_length);
                if keys.contains(&value.key) {
                    match (ranges.last_mut(), self.wanted.last_mut()) {
                        (Some(range), Some(run)) if range.end == offset => {
                            range.end = end;
                            run.push(value);
                        }
                        _ => {
                            ranges.push(offset..end);
                            self.wanted.push(vec![value]);
                        }
                    }
                }
                offset = end;
            }
        }
        ranges
    }

    /// Takes the bytes of the second round and gives the rows.
    ///
    /// # Errors
    /// Bytes that are not what the directory says; also a row with two values.
    pub fn finish(self, second: &[Vec<u8>]) -> Result<LeafRows> {
        let universe = self.directory.universe;
        if second.len() != self.wanted.len() {
            return Err(FormatError::invalid("the ranges read", second.len(), self.wanted.len()));
        }
        let Question::Keys { complement, .. } = self.question else {
            let empty = RowSet::empty(universe);
            return Ok(LeafRows { t: self.nulls, n: empty.clone(), opaque: empty });
        };
        let expected: u64 = self.wanted.iter().flatten().map(|value| u64::from(value.rows)).sum();
        let mut rows = Rows(RowSetBuilder::with_capacity(universe, expected));
        for (bytes, values) in second.iter().zip(&self.wanted) {
            let mut rest = bytes.as_slice();
            for value in values {
                let length = value.posting_length as usize;
                let Some((posting, later)) = rest.split_at_checked(length) else {
                    return Err(FormatError::Truncated {
                        what: "a posting",
                        got: rest.len() as u64,
                        expected: length as u64,
                    });
                };
                posting::decode(posting, value.rows, universe, &mut rows)?;
                rest = later;
            }
        }
        let found = rows.0.finish();
        if u64::from(found.len()) != expected {
            return Err(FormatError::invalid("the rows of different values", "shared", "one value for each row"));
        }
        let t = if complement { self.valued_rows().minus(&found) } else { found };
        Ok(LeafRows { t, n: self.nulls, opaque: self.opaque })
    }

    /// Rows of the covered files that are neither NULL nor opaque.
    fn valued_rows(&self) -> RowSet {
        let mut rows = RowSetBuilder::with_capacity(self.directory.universe, self.directory.rows());
        for file in &self.directory.files {
            rows.insert_range(file.base..file.base.saturating_add(file.rows() as u32));
        }
        rows.finish().minus(&self.nulls).minus(&self.opaque)
    }
}

/// Counting without postings: the number of rows that pass comes from the directory and the value
/// blocks at the edges of the ranges.
#[derive(Debug)]
pub struct Count<'a> {
    directory: &'a SegmentDirectory,
    ranges: KeyRanges,
    /// Rows of blocks that lie in a range as a whole, or NULL rows.
    known: u64,
    edges: Vec<usize>,
}

impl<'a> Count<'a> {
    /// Plans the count; none where opaque rows make it uncertain.
    #[must_use]
    pub fn new(directory: &'a SegmentDirectory, test: &Test) -> Option<Self> {
        let ranges = match test {
            Test::IsNull => {
                let known = u64::from(directory.nulls.rows);
                return Some(Self { directory, ranges: KeyRanges::none(), known, edges: Vec::new() });
            }
            Test::Ranges(_) if directory.opaque.rows > 0 => return None,
            Test::Ranges(ranges) => ranges,
        };
        let (mut known, mut edges) = (0, Vec::new());
        for index in blocks_of(directory, ranges) {
            let Some(block) = directory.blocks.get(index) else {
                continue;
            };
            if is_inside(directory, index, ranges) {
                known += block.rows;
            } else {
                edges.push(index);
            }
        }
        Some(Self { directory, ranges: ranges.clone(), known, edges })
    }

    /// Logical ranges of the edge blocks.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let blocks = self.edges.iter().filter_map(|&index| self.directory.blocks.get(index));
        blocks.map(|block| block.offset..block.offset + u64::from(block.length)).collect()
    }

    /// The number of rows that pass, over all files of the segment.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn finish(self, bytes: &[Vec<u8>]) -> Result<u64> {
        let mut rows = self.known;
        for (bytes, &index) in bytes.iter().zip(&self.edges) {
            let Some(block) = self.directory.blocks.get(index) else {
                continue;
            };
            for value in decode_block(bytes, block, self.directory)? {
                if self.ranges.contains(&value.key) {
                    rows += u64::from(value.rows);
                }
            }
        }
        Ok(rows)
    }
}

/// Decodes a value block and checks it against what the directory says of it.
fn decode_block(bytes: &[u8], block: &ValueBlockRef, directory: &SegmentDirectory) -> Result<Vec<Value>> {
    let values = value_block::decode(bytes, &block.first_key, &directory.key_type)?;
    let rows: u64 = values.iter().map(|value| u64::from(value.rows)).sum();
    let postings: u64 = values.iter().map(|value| u64::from(value.posting_length)).sum();
    if values.len() != block.values as usize || rows != block.rows || postings != block.postings_length {
        return Err(FormatError::invalid(
            "a value block",
            format_args!("{} values, {rows} rows, {postings} posting bytes", values.len()),
            format_args!("{} values, {} rows, {} posting bytes", block.values, block.rows, block.postings_length),
        ));
    }
    Ok(values)
}

fn plan(directory: &SegmentDirectory, ranges: &KeyRanges) -> (Question, Vec<usize>) {
    let all: u64 = directory.blocks.iter().map(|block| block.rows).sum();
    let direct = blocks_of(directory, ranges);
    let weight = |blocks: &[usize]| -> u64 {
        blocks.iter().filter_map(|&index| directory.blocks.get(index)).map(|block| block.rows).sum()
    };
    if weight(&direct) * 2 > all {
        let others = ranges.complement();
        let opposite = blocks_of(directory, &others);
        if weight(&opposite) < weight(&direct) {
            return (Question::Keys { ranges: others, complement: true }, opposite);
        }
    }
    (Question::Keys { ranges: ranges.clone(), complement: false }, direct)
}

/// Blocks that may hold a key of the ranges, ascending.
fn blocks_of(directory: &SegmentDirectory, ranges: &KeyRanges) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for range in ranges.ranges() {
        let blocks = blocks_of_range(directory, range);
        let start = blocks.start.max(found.last().map_or(0, |last| last + 1));
        found.extend(start..blocks.end);
    }
    found
}

fn blocks_of_range(directory: &SegmentDirectory, range: &KeyRange) -> Range<usize> {
    let blocks = &directory.blocks;
    let start = match &range.low {
        Bound::Unbounded => 0,
        // The block before the first that begins above the bound may reach over it.
        Bound::Included(low) | Bound::Excluded(low) => {
            if directory.max_key.as_ref().is_some_and(|max| max < low) {
                return 0..0;
            }
            blocks.partition_point(|block| block.first_key <= *low).saturating_sub(1)
        }
    };
    let end = blocks.partition_point(|block| !range.ends_before(&block.first_key));
    start..end.max(start)
}

/// Whether every key of a block is in one of the ranges.
fn is_inside(directory: &SegmentDirectory, index: usize, ranges: &KeyRanges) -> bool {
    let Some(block) = directory.blocks.get(index) else {
        return false;
    };
    let last_is_inside = |range: &KeyRange| match directory.blocks.get(index + 1) {
        // Every key of the block is below the next block's first one.
        Some(next) => !range.ends_before(&next.first_key) || range_reaches(range, &next.first_key),
        None => directory.max_key.as_ref().is_some_and(|max| !range.ends_before(max)),
    };
    ranges.ranges().iter().any(|range| range.contains(&block.first_key) && last_is_inside(range))
}

/// The range goes up to, if not including, `key`.
fn range_reaches(range: &KeyRange, key: &Key) -> bool {
    matches!(&range.high, Bound::Excluded(high) if high >= key)
}

struct Rows(RowSetBuilder);

impl RowSink for Rows {
    fn rows(&mut self, rows: &[u32]) {
        self.0.extend_from_slice(rows);
    }
    fn word(&mut self, first: u32, bits: u64) {
        self.0.insert_word(first, bits);
    }
    fn run(&mut self, first: u32, length: u32) {
        self.0.insert_range(first..first.saturating_add(length));
    }
}
