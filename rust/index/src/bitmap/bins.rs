//! Searching bins. Bins that lie in the ranges as a whole are exact. Bins that a bound cuts say themselves which of their
//! rows pass.
//!
//! ```text
//! bins         │ 0   │ 1        │2│ 3      │ 4    │
//! requested    │     │    ██████│█│████████│██    │
//! read         │     │ posting, │ postings │ posting, order     or, if these are fewer bytes, 0, 1 and 4 for the opposite
//!              │     │ order    │          │
//! ```

use std::ops::{Bound, Range};

use bytes::Bytes;
use lakemark_format::bin_block::{self, Bin, BinEntry};
use lakemark_format::error::{FormatError, Result};
use lakemark_format::key::Key;
use lakemark_format::order::BinOrder;
use lakemark_format::posting::{Decoder, RowSink};
use lakemark_format::ramp::{self, Ramp};
use lakemark_format::segment::SegmentDirectory;

use super::overlap::BlockOverlap;
use super::rounds::{DecodedBlock, Planned};
use crate::ranges::{KeyRange, KeyRanges};
use crate::rows::{RowSet, RowSetBuilder};

/// With more ranges in a bin than this all its keys are decoded at once.
const FEW_RANGES: usize = 8;

/// Decodes a bin block and checks it against what the directory says of it.
pub(super) fn decode_block(bytes: &[u8], number: usize, directory: &SegmentDirectory) -> Result<Vec<Bin>> {
    let Some(block) = directory.blocks.get(number) else {
        return Err(FormatError::invalid("a bin block", number, format_args!("below {}", directory.blocks.len())));
    };
    let bins = bin_block::decode(bytes, &block.first_key, &directory.key_type)?;
    let total = |length: fn(&Bin) -> u32| bins.iter().map(|bin| u64::from(length(bin))).sum::<u64>();
    let (rows, postings) = (total(|bin| bin.rows), total(|bin| bin.posting_length));
    let (orders, expected) = (total(|bin| bin.order_length), directory.orders_of(number));
    let expected = expected.end - expected.start;
    let high = bins.last().map_or(0, |bin| bin.high);
    let fits = match directory.blocks.get(number + 1).map(|next| &next.first_key).or(directory.max_key.as_ref()) {
        Some(Key::Fixed(next)) if number + 1 < directory.blocks.len() => high < *next,
        Some(Key::Fixed(most)) => high == *most,
        _ => false,
    };
    if !fits
        || (bins.len(), rows, postings, orders) != (block.values as usize, block.rows, block.postings_length, expected)
    {
        return Err(FormatError::invalid(
            "a bin block",
            format_args!("{} bins up to {high}, {rows} rows, {postings} and {orders} bytes", bins.len()),
            format_args!(
                "{} bins before the next block, {} rows, {} and {expected} bytes",
                block.values, block.rows, block.postings_length
            ),
        ));
    }
    Ok(bins)
}

/// How the keys of a bin lie to the requested keys.
pub(super) fn bin_overlap(bin: &Bin, ranges: &KeyRanges) -> BlockOverlap {
    let (low, high) = (Key::Fixed(bin.low), Key::Fixed(bin.high));
    let first = ranges.ranges().partition_point(|range| range.ends_before(&low));
    match ranges.ranges().get(first) {
        Some(range) if range.contains(&low) && range.contains(&high) => BlockOverlap::Inside,
        Some(range) if range.begins_at_or_before(&high) => BlockOverlap::Edge,
        _ => BlockOverlap::Outside,
    }
}

/// A bin, and the logical ranges of its bytes.
pub(super) struct PlacedBin<'a> {
    pub bin: &'a Bin,
    /// Of its posting.
    pub posting: Range<u64>,
    /// Of its order.
    pub order: Range<u64>,
}

/// A block's bins, each with its place.
pub(super) fn locate<'a>(
    directory: &SegmentDirectory,
    number: usize,
    bins: &'a [Bin],
) -> impl Iterator<Item = PlacedBin<'a>> {
    let mut posting = directory.blocks.get(number).map_or(0, |block| block.postings_offset);
    let mut order = directory.orders_of(number).start;
    bins.iter().map(move |bin| {
        let at = (posting, order);
        (posting, order) = (posting + u64::from(bin.posting_length), order + u64::from(bin.order_length));
        PlacedBin { bin, posting: at.0..posting, order: at.1..order }
    })
}

/// What the second round reads.
#[derive(Debug)]
pub(super) struct BinPlan {
    /// The rows of these keys are found: the requested keys, or all others.
    found: KeyRanges,
    opposite: bool,
    reads: Vec<BinRead>,
}

#[derive(Debug)]
enum BinRead {
    /// Postings that lie side by side, all of whose rows are found.
    Whole(Vec<Bin>),
    /// A bin of which some rows are.
    Edge(Bin),
}

impl BinPlan {
    /// The cheaper of two plans with the blocks read, by ascending number.
    pub(super) fn new(
        directory: &SegmentDirectory,
        keys: &KeyRanges,
        places: &[BlockOverlap],
        read: &[DecodedBlock<Bin>],
    ) -> Planned<Self> {
        let (mut inside, mut outside) = (0u64, 0u64);
        for bin in read.iter().flat_map(|block| &block.entries) {
            match bin_overlap(bin, keys) {
                BlockOverlap::Inside => inside += u64::from(bin.posting_length),
                BlockOverlap::Outside => outside += u64::from(bin.posting_length),
                BlockOverlap::Edge => {}
            }
        }
        let missing = |wanted: BlockOverlap| {
            let unread = |number: usize| read.binary_search_by_key(&number, |block| block.number).is_err();
            places.iter().enumerate().any(|(number, place)| *place == wanted && unread(number))
        };
        let opposite = missing(BlockOverlap::Inside) || outside < inside && !missing(BlockOverlap::Outside);
        let found = if opposite { keys.complement() } else { keys.clone() };
        let mut plan = Self { found, opposite, reads: Vec::new() };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for DecodedBlock { number, entries } in read {
            for PlacedBin { bin, posting, order } in locate(directory, *number, entries) {
                match (bin_overlap(bin, &plan.found), ranges.last_mut(), plan.reads.last_mut()) {
                    (BlockOverlap::Outside, ..) => {}
                    (BlockOverlap::Inside, Some(range), Some(BinRead::Whole(bins))) if range.end == posting.start => {
                        range.end = posting.end;
                        bins.push(*bin);
                    }
                    (BlockOverlap::Inside, ..) => {
                        ranges.push(posting);
                        plan.reads.push(BinRead::Whole(vec![*bin]));
                    }
                    (BlockOverlap::Edge, ..) => {
                        ranges.push(posting);
                        if !order.is_empty() {
                            ranges.push(order);
                        }
                        plan.reads.push(BinRead::Edge(*bin));
                    }
                }
            }
        }
        Planned { plan, ranges }
    }

    /// The requested rows, from the bytes of the ranges; `valued` are all rows with a value.
    ///
    /// # Errors
    /// Bytes that are not what the bins say; also a row that stands in two bins.
    pub(super) fn rows(&self, bytes: &[Bytes], valued: impl FnOnce() -> RowSet, universe: u32) -> Result<RowSet> {
        let whole = self.reads.iter().map(|part| match part {
            BinRead::Whole(bins) => bins.iter().map(|bin| u64::from(bin.rows)).sum(),
            BinRead::Edge(_) => 0u64,
        });
        let mut rows = DisjointRows::new(universe, whole.sum());
        let mut bytes = bytes.iter().map(Bytes::as_ref);
        let mut next = || bytes.next().ok_or_else(|| FormatError::invalid("the ranges read", "too few", "all"));
        let mut decoder = Decoder::default();
        for part in &self.reads {
            match part {
                BinRead::Whole(bins) => {
                    let mut rest = next()?;
                    for bin in bins {
                        let (posting, later) = split(rest, bin.posting_length)?;
                        rest = later;
                        if bin.is_ramps() {
                            let ramps = ramp::decode(posting, bin, universe)?;
                            ramps.iter().for_each(|ramp| ramp.rows(0..ramp.entries, &mut rows));
                        } else {
                            decoder.decode(posting, bin.rows, universe, &mut rows)?;
                        }
                    }
                }
                BinRead::Edge(bin) => {
                    let (posting, _) = split(next()?, bin.posting_length)?;
                    let order = if bin.is_ramps() { &[] } else { split(next()?, bin.order_length)?.0 };
                    Edge::decode(bin, posting, order, universe, &self.found)?.rows(&mut rows)?;
                }
            }
        }
        let found = rows.finish()?;
        Ok(if self.opposite { valued().minus(&found) } else { found })
    }
}

fn split(bytes: &[u8], length: u32) -> Result<(&[u8], &[u8])> {
    bytes.split_at_checked(length as usize).ok_or(FormatError::Truncated {
        what: "a bin",
        got: bytes.len() as u64,
        expected: length.into(),
    })
}

/// A bin that a bound cuts: which of its entries are in the ranges.
pub(super) struct Edge<'a> {
    bin: Bin,
    entries: Vec<Range<u32>>,
    body: Body<'a>,
    universe: u32,
}

/// A ramp of a bin.
struct PlacedRamp {
    /// Entries of the bin before it.
    before: u32,
    ramp: Ramp,
}

enum Body<'a> {
    Ramps(Vec<PlacedRamp>),
    Order { order: BinOrder<'a>, posting: &'a [u8] },
}

impl<'a> Edge<'a> {
    /// `posting` may be empty where rows are only counted and the bin has an order.
    pub(super) fn decode(
        bin: &Bin,
        posting: &'a [u8],
        order: &'a [u8],
        universe: u32,
        ranges: &KeyRanges,
    ) -> Result<Self> {
        let body = if bin.is_ramps() {
            let mut before = 0;
            let numbered = ramp::decode(posting, bin, universe)?.into_iter().map(|ramp| {
                let first = before;
                before += ramp.entries;
                PlacedRamp { before: first, ramp }
            });
            Body::Ramps(numbered.collect())
        } else {
            Body::Order { order: BinOrder::decode(order, bin)?, posting }
        };
        let (low, high) = (Key::Fixed(bin.low), Key::Fixed(bin.high));
        let first = ranges.ranges().partition_point(|range| range.ends_before(&low));
        let ranges = ranges.ranges().get(first..).unwrap_or_default();
        let end = ranges.partition_point(|range| range.begins_at_or_before(&high));
        let ranges = ranges.get(..end).unwrap_or_default();
        let keys = match &body {
            Body::Order { order, .. } if ranges.len() > FEW_RANGES => Some(order.keys()?),
            _ => None,
        };
        let below = |key: &Key, inclusive: bool| match (key, &keys, &body) {
            (Key::Bytes(_), ..) => Err(FormatError::invalid("a key", "bytes", "a number")),
            (Key::Fixed(key), Some(keys), _) => {
                Ok(keys.partition_point(|other| other < key || inclusive && other == key) as u32)
            }
            (Key::Fixed(key), None, Body::Order { order, .. }) => order.entries_below(*key, inclusive),
            (Key::Fixed(key), None, Body::Ramps(ramps)) => {
                // Keys ascend from ramp to ramp: of those that begin below the bound all but the last end below it.
                let begins_below = |first: u64| first < *key || inclusive && first == *key;
                let after = ramps.partition_point(|placed| begins_below(placed.ramp.first_key));
                let last = after.checked_sub(1).and_then(|last| ramps.get(last));
                Ok(last.map_or(0, |last| last.before + last.ramp.entries_below(*key, inclusive)))
            }
        };
        let of_range = |range: &KeyRange| -> Result<Range<u32>> {
            let start = match &range.low {
                Bound::Unbounded => 0,
                Bound::Included(key) => below(key, false)?,
                Bound::Excluded(key) => below(key, true)?,
            };
            let end = match &range.high {
                Bound::Unbounded => bin.rows,
                Bound::Included(key) => below(key, true)?,
                Bound::Excluded(key) => below(key, false)?,
            };
            Ok(start..end.max(start))
        };
        let entries = ranges.iter().map(of_range).collect::<Result<_>>()?;
        Ok(Self { bin: *bin, entries, body, universe })
    }

    /// How many rows are in the ranges.
    pub(super) fn count(&self) -> u64 {
        self.entries.iter().map(|entries| entries.len() as u64).sum()
    }

    fn rows(&self, sink: &mut DisjointRows) -> Result<()> {
        match &self.body {
            Body::Ramps(ramps) => {
                let mut next = 0;
                for PlacedRamp { before: first, ramp } in ramps {
                    // Both ascend: ranges that end before a ramp have nothing of later ones either.
                    next += self.entries.iter().skip(next).take_while(|entries| entries.end <= *first).count();
                    let end = first + ramp.entries;
                    for entries in self.entries.iter().skip(next).take_while(|entries| entries.start < end) {
                        let start = entries.start.saturating_sub(*first);
                        ramp.rows(start..(entries.end - first).min(ramp.entries), sink);
                    }
                }
            }
            Body::Order { order, posting } => {
                let mut held: Vec<u32> = Vec::with_capacity(self.bin.rows as usize);
                Decoder::default().decode(posting, self.bin.rows, self.universe, &mut held)?;
                for entries in &self.entries {
                    let ranks = order.ranks(entries.clone())?;
                    let rows: Vec<u32> =
                        ranks.into_iter().filter_map(|rank| held.get(rank as usize).copied()).collect();
                    sink.rows(&rows);
                }
            }
        }
        Ok(())
    }
}

/// Gathers rows, of which none may stand twice.
pub(super) struct DisjointRows {
    rows: RowSetBuilder,
    count: u64,
}

impl DisjointRows {
    pub(super) fn new(universe: u32, expected: u64) -> Self {
        Self { rows: RowSetBuilder::with_capacity(universe, expected), count: 0 }
    }

    pub(super) fn finish(self) -> Result<RowSet> {
        let found = self.rows.finish();
        if u64::from(found.len()) != self.count {
            return Err(FormatError::invalid("the rows of different bins", "shared", "one bin for each row"));
        }
        Ok(found)
    }
}

impl RowSink for DisjointRows {
    fn rows(&mut self, rows: &[u32]) {
        self.count += rows.len() as u64;
        self.rows.extend_from_slice(rows);
    }
    fn word(&mut self, first: u32, bits: u64) {
        self.count += u64::from(bits.count_ones());
        self.rows.insert_word(first, bits);
    }
    fn run(&mut self, first: u32, length: u32) {
        self.count += u64::from(length);
        self.rows.insert_range(first..first.saturating_add(length));
    }
}

/// The entries of a bin, its keys with their rows: what a verification compares.
///
/// # Errors
/// Bytes that are no such bin.
pub fn entries_of_bin(bin: &Bin, posting: &[u8], order: &[u8], universe: u32) -> Result<Vec<BinEntry>> {
    if bin.is_ramps() {
        return Ok(ramp::decode(posting, bin, universe)?.iter().flat_map(Ramp::iter).collect());
    }
    let mut held: Vec<u32> = Vec::new();
    Decoder::default().decode(posting, bin.rows, universe, &mut held)?;
    if bin.values == 1 {
        return Ok(held.into_iter().map(|row| BinEntry { key: bin.low, row }).collect());
    }
    let order = BinOrder::decode(order, bin)?;
    let rows = order.ranks(0..bin.rows)?.into_iter().filter_map(|rank| held.get(rank as usize).copied());
    let entries = order.keys()?.into_iter().zip(rows);
    let entries: Vec<BinEntry> = entries.map(|(key, row)| BinEntry { key, row }).collect();
    if entries.is_sorted_by(|a, b| a < b) {
        return Ok(entries);
    }
    Err(FormatError::invalid("the entries of a bin", "out of order", "ascending by key and row"))
}
