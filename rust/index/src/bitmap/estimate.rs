//! What a search would find and cost, predicted before any posting is read.
//!
//! The directory has the rows and the posting bytes of every value block. Blocks that lie in the ranges as a whole count as
//! they are. A block at an edge gives bounds; its bytes, if they are read, give the number. Nothing here is an answer.

use std::ops::Range;

use bytes::Bytes;
use lakemark_format::bin_block::Bin;
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};
use lakemark_format::value_block;

use super::bins;
use super::leaves;
use super::overlap::{BlockOverlap, blocks_of_range, is_inside, ranges_in_segment};

use crate::predicate::Test;
use crate::ranges::{KeyRange, KeyRanges};

/// With more ranges than this in a segment, the directory alone says what passes.
const MANY_KEYS: usize = 1024;

/// An estimate of one test of one segment.
#[derive(Debug)]
pub struct Estimate<'a> {
    directory: &'a SegmentDirectory,
    ranges: KeyRanges,
    /// How many of the ranges may hold a key of the segment.
    range_count: usize,
    /// Of blocks that are in the ranges as a whole.
    inside: Weight,
    /// The last of these blocks.
    last_inside: Option<usize>,
    /// Blocks of which some values may be in the ranges, ascending.
    edges: Vec<EdgeBlock>,
}

/// A block of which some values may be requested.
#[derive(Debug)]
struct EdgeBlock {
    number: usize,
    /// How many single keys are requested, if nothing else is.
    points: Option<u32>,
}

/// Rows, and bytes and number of their postings. Rows that lie together take few bytes, however many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// Rows.
    pub rows: f64,
    /// Bytes.
    pub bytes: f64,
    /// Postings, one for each value or bin of values. None where bitmaps of many values are read in their place.
    pub postings: f64,
}

impl Weight {
    fn of(block: &ValueBlockRef, encoding: Encoding) -> Self {
        // The rows of a packed tree are in its leaves.
        let leaf = if encoding == Encoding::Packed { f64::from(block.length) } else { 0.0 };
        // Blocks that lie in a range as a whole are in bitmaps of the coarse level, if there is one.
        let postings = if encoding.coarse_level().is_none() { f64::from(block.values) } else { 0.0 };
        Self::new(block.rows as f64, block.postings_length as f64 + leaf, postings)
    }

    /// Values without postings are in bitmaps of many values: a bit for each row, about.
    fn new(rows: f64, bytes: f64, postings: f64) -> Self {
        if bytes > 0.0 { Self { rows, bytes, postings } } else { Self { rows, bytes: rows / 8.0, postings: 0.0 } }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { rows: self.rows + other.rows, bytes: self.bytes + other.bytes, postings: self.postings + other.postings }
    }

    /// A share of it.
    #[must_use]
    pub fn times(self, share: f64) -> Self {
        Self { rows: self.rows * share, bytes: self.bytes * share, postings: self.postings * share }
    }
}

/// At least and at most what passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightBounds {
    /// At least this.
    pub least: Weight,
    /// No more than this.
    pub most: Weight,
}

impl<'a> Estimate<'a> {
    /// What a test would find in the segment of a directory.
    #[must_use]
    pub fn new(directory: &'a SegmentDirectory, test: &Test) -> Self {
        let mut estimate = Self {
            directory,
            ranges: KeyRanges::none(),
            range_count: 0,
            inside: Weight::default(),
            last_inside: None,
            edges: Vec::new(),
        };
        match test {
            Test::IsNull => {
                estimate.inside = estimate.nulls();
            }
            Test::Ranges(ranges) | Test::Elements(ranges) => {
                let ranges = leaves::keys_around(directory, ranges);
                estimate.ranges = ranges.clone();
                let in_segment = ranges_in_segment(directory, &ranges);
                estimate.range_count = in_segment.len();
                in_segment.iter().fold(0, |from, range| estimate.add(range, from));
            }
        }
        estimate
    }

    /// Adds a range that touches no block before `from`, and gives the first that the next range may touch.
    fn add(&mut self, range: &KeyRange, from: usize) -> usize {
        let blocks = &self.directory.blocks;
        let touched = blocks_of_range(self.directory, range, from);
        for (index, block) in blocks.iter().enumerate().take(touched.end).skip(touched.start) {
            if is_inside(self.directory, index, range) {
                self.inside = self.inside.plus(Weight::of(block, self.directory.encoding));
                self.last_inside = Some(index);
            } else if self.last_inside != Some(index) {
                self.add_edge(index, range.is_point());
            }
        }
        touched.start
    }

    fn add_edge(&mut self, number: usize, is_point: bool) {
        match self.edges.last_mut().filter(|edge| edge.number == number) {
            Some(edge) => edge.points = edge.points.filter(|_| is_point).map(|points| points.saturating_add(1)),
            None => self.edges.push(EdgeBlock { number, points: is_point.then_some(1) }),
        }
    }

    /// How many of the requested ranges may hold a key of the segment.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.range_count
    }

    /// Rows of the segment.
    #[must_use]
    pub fn rows(&self) -> f64 {
        self.directory.rows() as f64
    }

    /// All rows without a value.
    #[must_use]
    pub fn nulls(&self) -> Weight {
        let nulls = self.directory.nulls;
        Weight::new(f64::from(nulls.rows), f64::from(nulls.length), 1.0)
    }

    /// All rows with a value. For lists the weight is endless: rows of other elements may be requested rows, too, so that no posting is
    /// ever taken away.
    #[must_use]
    pub fn all(&self) -> Weight {
        if self.directory.key_type.is_list() {
            return Weight { rows: f64::INFINITY, bytes: f64::INFINITY, postings: f64::INFINITY };
        }
        let weight = |block| Weight::of(block, self.directory.encoding);
        self.directory.blocks.iter().map(weight).fold(Weight::default(), Weight::plus)
    }

    /// At least these rows pass, and no more than those. Of very many keys both are what would pass if each key were there and had
    /// as many rows as others of its block. To look for all of them would take as long as the search.
    #[must_use]
    pub fn bounds(&self) -> WeightBounds {
        if self.range_count > MANY_KEYS {
            let likely = self.edges.iter().map(|edge| self.likely(edge)).fold(self.inside, Weight::plus);
            return WeightBounds { least: likely, most: likely };
        }
        let edges = self.edges.iter().map(|edge| self.whole(edge.number)).fold(Weight::default(), Weight::plus);
        WeightBounds { least: self.inside, most: self.inside.plus(edges) }
    }

    /// What likely passes of a block.
    fn likely(&self, edge: &EdgeBlock) -> Weight {
        let whole = self.whole(edge.number);
        let values = self.directory.blocks.get(edge.number).map_or(1, |block| block.values.max(1));
        let share = edge.points.map_or(1.0, |points| (f64::from(points) / f64::from(values)).min(1.0));
        // Any key of a leaf needs all of its bytes.
        let bytes = if self.directory.encoding == Encoding::Packed { whole.bytes } else { whole.bytes * share };
        Weight { rows: whole.rows * share, bytes, postings: whole.postings * share }
    }

    /// Logical ranges of the edge blocks, to be given to [`Self::exactly`] in this order.
    #[must_use]
    pub fn edge_ranges(&self) -> Vec<Range<u64>> {
        self.edge_blocks().map(|block| block.offset..block.offset + u64::from(block.length)).collect()
    }

    /// All of a block, with the orders of its bins.
    fn whole(&self, number: usize) -> Weight {
        let orders = self.directory.orders_of(number);
        let weight = |block| Weight::of(block, self.directory.encoding);
        let mut weight = self.directory.blocks.get(number).map_or_else(Weight::default, weight);
        weight.bytes += (orders.end - orders.start) as f64;
        weight
    }

    /// What passes of the bins of a block: of a bin that a bound cuts about half, and all its bytes.
    fn bins_passing(&self, bins: &[Bin]) -> Weight {
        let of_bin = |bin: &Bin| {
            let (rows, posting) = (f64::from(bin.rows), f64::from(bin.posting_length));
            match bins::bin_overlap(bin, &self.ranges) {
                BlockOverlap::Outside => Weight::default(),
                BlockOverlap::Inside => Weight { rows, bytes: posting, postings: 1.0 },
                BlockOverlap::Edge => {
                    Weight { rows: rows / 2.0, bytes: posting + f64::from(bin.order_length), postings: 1.0 }
                }
            }
        };
        bins.iter().map(of_bin).fold(Weight::default(), Weight::plus)
    }

    fn edge_blocks(&self) -> impl Iterator<Item = &'a ValueBlockRef> + '_ {
        self.edges.iter().filter_map(|edge| self.directory.blocks.get(edge.number))
    }

    /// What passes, by the bytes of the edge blocks; a block that cannot be decoded counts as a whole.
    #[must_use]
    pub fn exactly(&self, bytes: &[Bytes]) -> Weight {
        let mut found = self.inside;
        let mut keys = self.ranges.cursor();
        for ((bytes, block), edge) in bytes.iter().zip(self.edge_blocks()).zip(&self.edges) {
            let number = edge.number;
            if self.directory.encoding == Encoding::Binned {
                let bins = bins::decode_block(bytes, number, self.directory);
                found = found.plus(bins.map_or_else(|_| self.whole(number), |bins| self.bins_passing(&bins)));
                continue;
            }
            if self.directory.encoding == Encoding::Packed {
                let rows = leaves::count_rows(bytes, block, self.directory, &mut keys);
                let rows = rows.map_or_else(|_| block.rows as f64, |rows| rows as f64);
                // The whole leaf is read for any of its rows, and the requested keys are decoded.
                let leaf = Weight::of(block, Encoding::Packed);
                found = found.plus(Weight { rows, postings: leaf.postings * rows / leaf.rows.max(1.0), ..leaf });
                continue;
            }
            let Ok(values) = value_block::decode(bytes, &block.first_key, &self.directory.key_type) else {
                found = found.plus(Weight::of(block, self.directory.encoding));
                continue;
            };
            for value in values.iter().filter(|value| keys.contains(&value.key)) {
                found = found.plus(Weight::new(f64::from(value.rows), f64::from(value.posting_length), 1.0));
            }
        }
        found
    }
}
