//! Searching a segment for the rows that pass a test, in two rounds of reading.
//!
//! ```text
//! Search::new(directory, test) ─▶ first_ranges()   value blocks, NULL and opaque rows
//!        bytes of those        ─▶ second_ranges()  postings and bitmaps that give the answer (see the module `plan`)
//!        bytes of those        ─▶ finish()         the rows
//! ```
//!
//! With bins the second round reads postings and orders (see the module `bins`). With a packed tree the first round reads leaves
//! and the second one long postings (`leaves`). Many leaves may be read apart from the rounds, a part at a time
//! ([`Search::split_leaves`], [`Search::finish_parts`]). The caller reads (and checks pages); nothing here does I/O. Whatever
//! was read, the rows found must be as many as the value blocks count.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::posting::Decoder;
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{PostingRef, SegmentDirectory, ValueBlockRef};
use lakemark_format::value_block::{self, Value};

use super::bins::{self, BinPlan};
use super::leaves::{LeafMatches, LeafSearch, RowsOfLeaves, SearchedKeys};
use super::overlap::{BlockOverlap, overlaps};
use super::plan::{CoarseBase, Plan, first_blocks};
use super::rounds::{DecodedBlock, Planned};
use super::slices::BitSlice;
use crate::predicate::Test;
use crate::ranges::KeyRanges;
use crate::rows::{RowSet, RowSetBuilder};
use crate::segment_rows::{PostingCollector, SegmentRows, rows_of_posting};

/// One test of one segment, between the reads.
#[derive(Debug)]
pub struct Search<'a> {
    directory: &'a SegmentDirectory,
    test: SearchTest,
    /// Value blocks to read, ascending.
    blocks: Vec<usize>,
    /// After the first round: NULL and opaque rows, and what the second round is for.
    nulls: RowSet,
    opaque: RowSet,
    plan: Plan,
    /// In its place for bins.
    bins: Option<BinPlan>,
    /// In its place for the leaves of a packed tree, and what was found in them.
    leaves: Option<LeafSearch>,
    matches: Vec<LeafMatches>,
}

#[derive(Debug)]
enum SearchTest {
    IsNull,
    /// Rows of these keys, and how the value blocks lie to them.
    Keys(KeyRanges, Vec<BlockOverlap>),
    /// Rows of keys of which the segment says nothing.
    Open,
}

impl<'a> Search<'a> {
    /// Plans the search: which value blocks say what is to be read.
    #[must_use]
    pub fn new(directory: &'a SegmentDirectory, test: &Test) -> Self {
        let mut leaves = None;
        let (test, blocks) = match test {
            Test::IsNull => (SearchTest::IsNull, Vec::new()),
            Test::Ranges(ranges) | Test::Elements(ranges) => {
                let (keys, check) = match SearchedKeys::of(directory, ranges) {
                    SearchedKeys::Values(keys) => (Some(keys), None),
                    SearchedKeys::Hashes(keys, check) => (Some(keys), Some(check)),
                    SearchedKeys::Open => (None, None),
                };
                let placed = keys.map(|keys| (overlaps(directory, &keys), keys));
                match placed {
                    None => (SearchTest::Open, Vec::new()),
                    Some((places, keys)) if directory.encoding == Encoding::Packed => {
                        leaves = Some(LeafSearch::new(directory, &keys, &places, check));
                        (SearchTest::Keys(keys, places), Vec::new())
                    }
                    Some((places, keys)) => {
                        let blocks = first_blocks(directory, &places);
                        (SearchTest::Keys(keys, places), blocks)
                    }
                }
            }
        };
        let empty = RowSet::empty(directory.universe);
        let (nulls, opaque) = (empty.clone(), empty);
        let (plan, matches) = (Plan::default(), Vec::new());
        Self { directory, test, blocks, nulls, opaque, plan, bins: None, leaves, matches }
    }

    /// Takes the leaves of a packed tree out of both rounds if there are more than `most`. The caller hands what it found in each
    /// part of them to [`Self::finish_parts`].
    pub fn split_leaves(&mut self, most: usize) -> Option<LeafSearch> {
        self.leaves.take_if(|leaves| leaves.leaf_count() > most)
    }

    /// Logical ranges of the first round, to be given to [`Self::second_ranges`] in this order.
    #[must_use]
    pub fn first_ranges(&self) -> Vec<Range<u64>> {
        let lists = self.lists().map(|list| list.offset..list.offset + u64::from(list.length));
        let blocks = self.block_refs().map(|block| block.offset..block.offset + u64::from(block.length));
        let leaves = self.leaves.iter().flat_map(|leaves| leaves.ranges(self.directory, 0..leaves.leaf_count()));
        lists.chain(blocks).chain(leaves).collect()
    }

    /// The NULL list, and with key tests the opaque one.
    fn lists(&self) -> impl Iterator<Item = PostingRef> + use<> {
        let opaque = (!matches!(self.test, SearchTest::IsNull)).then_some(self.directory.opaque);
        std::iter::once(self.directory.nulls).chain(opaque)
    }

    fn block_refs(&self) -> impl Iterator<Item = &'a ValueBlockRef> + '_ {
        self.blocks.iter().filter_map(|&index| self.directory.blocks.get(index))
    }

    /// Takes the bytes of the first round and gives the logical ranges of the second.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn second_ranges(&mut self, first: &[Bytes]) -> Result<Vec<Range<u64>>> {
        let lists: Vec<PostingRef> = self.lists().collect();
        let wanted = lists.len() + self.blocks.len() + self.leaves.as_ref().map_or(0, LeafSearch::leaf_count);
        if first.len() != wanted {
            return Err(FormatError::invalid("the ranges read", first.len(), wanted));
        }
        let (list_bytes, block_bytes) = first.split_at_checked(lists.len()).unwrap_or_default();
        let universe = self.directory.universe;
        let mut sets = list_bytes.iter().zip(&lists).map(|(bytes, list)| rows_of_posting(bytes, *list, universe));
        let nulls = sets.next().transpose()?;
        let opaque = sets.next().transpose()?;
        drop(sets);
        if let Some(nulls) = nulls {
            self.nulls = nulls;
        }
        if let Some(opaque) = opaque {
            self.opaque = opaque;
        }
        if let Some(leaves) = &self.leaves {
            let found = leaves.find(self.directory, 0..leaves.leaf_count(), block_bytes)?;
            let long = found.long_ranges();
            self.matches = vec![found];
            return Ok(long);
        }
        if self.directory.encoding == Encoding::Packed {
            return Ok(Vec::new());
        }
        if let (Encoding::Binned, SearchTest::Keys(keys, places)) = (self.directory.encoding, &self.test) {
            let read = block_bytes.iter().zip(&self.blocks);
            let read = read.map(|(bytes, number)| {
                let entries = bins::decode_block(bytes, *number, self.directory)?;
                Ok(DecodedBlock { number: *number, entries })
            });
            let Planned { plan, ranges } =
                BinPlan::new(self.directory, keys, places, &read.collect::<Result<Vec<_>>>()?);
            self.bins = Some(plan);
            return Ok(ranges);
        }
        let mut read = Vec::with_capacity(self.blocks.len());
        for (bytes, &number) in block_bytes.iter().zip(&self.blocks) {
            let Some(block) = self.directory.blocks.get(number) else { continue };
            read.push(DecodedBlock { number, entries: decode_block(bytes, block, self.directory)? });
        }
        let SearchTest::Keys(keys, places) = &self.test else { return Ok(Vec::new()) };
        let Planned { plan, ranges } = Plan::new(self.directory, keys, places, read);
        self.plan = plan;
        Ok(ranges)
    }

    /// Takes the bytes of the second round and gives the rows.
    ///
    /// # Errors
    /// Bytes that are not what the directory says; also a row with two values, or bitmaps that hold more or fewer rows of the
    /// answer than the value blocks count.
    pub fn finish(mut self, second: &[Bytes]) -> Result<SegmentRows> {
        if matches!(self.test, SearchTest::Open) {
            let opaque = self.valued_rows().or(&self.opaque);
            return Ok(SegmentRows { t: RowSet::empty(self.directory.universe), n: self.nulls, opaque });
        }
        if let Some(plan) = &self.bins {
            let t = plan.rows(second, || self.valued_rows(), self.directory.universe)?;
            return Ok(SegmentRows { t, n: self.nulls, opaque: self.opaque });
        }
        if let Some(leaves) = self.leaves.take() {
            let mut matches = std::mem::take(&mut self.matches);
            matches.iter_mut().try_for_each(|found| found.take_long(second, self.directory.universe))?;
            return self.finish_parts(&leaves, &matches);
        }
        if self.directory.encoding == Encoding::Packed && matches!(self.test, SearchTest::Keys(..)) {
            return Err(FormatError::invalid("a search in parts", "finished without them", "finish_parts"));
        }
        let bitmaps = self.plan.base.bitmaps();
        let expected = self.plan.postings.len() + bitmaps.len();
        if second.len() != expected {
            return Err(FormatError::invalid("the ranges read", second.len(), expected));
        }
        if matches!(self.test, SearchTest::IsNull) {
            let empty = RowSet::empty(self.directory.universe);
            return Ok(SegmentRows { t: self.nulls, n: empty.clone(), opaque: empty });
        }
        let (postings, bitmap_bytes) = second.split_at_checked(self.plan.postings.len()).unwrap_or_default();
        let added = self.postings(postings, false)?;
        let t = match self.base(&bitmaps, bitmap_bytes)? {
            None => added,
            Some(base) => base.minus(&self.postings(postings, true)?).or(&added),
        };
        if self.directory.key_type.is_list() {
            let without = u64::from(self.nulls.len()) + u64::from(self.opaque.len());
            if u64::from(self.nulls.or(&self.opaque).or(&t).len()) != without + u64::from(t.len()) {
                return Err(FormatError::invalid("the rows of elements", "NULL or opaque as well", "rows with keys"));
            }
        } else if u64::from(t.len()) != self.plan.rows {
            return Err(FormatError::invalid("the rows of an answer", t.len(), self.plan.rows));
        }
        Ok(SegmentRows { t, n: self.nulls, opaque: self.opaque })
    }

    /// The rows, from what was found in all parts of the leaves that [`Self::split_leaves`] gave, behind the first round.
    ///
    /// # Errors
    /// Those of [`Self::finish`].
    pub fn finish_parts(self, leaves: &LeafSearch, parts: &[LeafMatches]) -> Result<SegmentRows> {
        let RowsOfLeaves { t, open } = leaves.rows(parts, || self.valued_rows(), self.directory.universe)?;
        let opaque = if open.is_empty() { self.opaque } else { self.opaque.or(&open) };
        Ok(SegmentRows { t, n: self.nulls, opaque })
    }

    /// The rows of the postings that are added, or of those that are taken away.
    fn postings(&self, bytes: &[Bytes], removed: bool) -> Result<RowSet> {
        let pieces = || self.plan.postings.iter().zip(bytes).filter(|(piece, _)| piece.removed == removed);
        let expected: u64 = pieces().flat_map(|(piece, _)| &piece.values).map(|value| u64::from(value.rows)).sum();
        let universe = self.directory.universe;
        let mut rows = PostingCollector(RowSetBuilder::with_capacity(universe, expected));
        let mut decoder = Decoder::default();
        for (piece, bytes) in pieces() {
            let mut rest = bytes.as_ref();
            for value in &piece.values {
                let length = value.posting_length as usize;
                let Some((posting, later)) = rest.split_at_checked(length) else {
                    return Err(FormatError::Truncated {
                        what: "a posting",
                        got: rest.len() as u64,
                        expected: length as u64,
                    });
                };
                decoder.decode(posting, value.rows, universe, &mut rows)?;
                rest = later;
            }
        }
        let found = rows.0.finish();
        if u64::from(found.len()) != expected && !self.directory.key_type.is_list() {
            return Err(FormatError::invalid("the rows of different values", "shared", "one value for each row"));
        }
        Ok(found)
    }

    /// What the coarse level gives; none where it has no part in the answer.
    fn base(&self, numbers: &[usize], bytes: &[Bytes]) -> Result<Option<RowSet>> {
        let bitmaps = numbers.iter().zip(bytes).map(|(number, bytes)| {
            let bitmap = self.directory.bitmaps.get(*number).copied().unwrap_or_default();
            (*number, bitmap, bytes)
        });
        match &self.plan.base {
            CoarseBase::Nothing => Ok(None),
            CoarseBase::Everything => Ok(Some(self.valued_rows())),
            CoarseBase::Runs(runs) => {
                let sets = bitmaps.map(|(number, bitmap, bytes)| {
                    Ok((number, rows_of_posting(bytes, bitmap, self.directory.universe)?))
                });
                let sets: BTreeMap<usize, RowSet> = sets.collect::<Result<_>>()?;
                Ok(Some(runs.rows(&sets, &self.valued_rows())))
            }
            CoarseBase::Slices(program) => {
                let universe = self.directory.universe;
                let slices = bitmaps.map(|(_, bitmap, bytes)| BitSlice::decode(bytes, bitmap.rows, universe));
                let slices: Vec<BitSlice> = slices.collect::<Result<_>>()?;
                Ok(Some(program.rows(&slices, &self.valued_rows(), self.plan.rows)))
            }
        }
    }

    /// Rows of the covered files that are neither NULL nor opaque.
    fn valued_rows(&self) -> RowSet {
        let mut rows = RowSetBuilder::with_capacity(self.directory.universe, self.directory.rows());
        for file in self.directory.files.iter() {
            rows.insert_range(file.base..file.base.saturating_add(file.rows() as u32));
        }
        rows.finish().minus(&self.nulls).minus(&self.opaque)
    }
}

/// Decodes a value block and checks it against what the directory says of it.
pub(super) fn decode_block(bytes: &[u8], block: &ValueBlockRef, directory: &SegmentDirectory) -> Result<Vec<Value>> {
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
