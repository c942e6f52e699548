//! How the requested keys lie to value blocks, and value blocks to bins: all that follows from the directory alone.

use std::ops::{Bound, Range};

use lakemark_format::key::Key;
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};

use crate::ranges::{KeyRange, KeyRanges, gallop};

/// How the values of a block lie to the requested keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockOverlap {
    /// None is requested.
    Outside,
    /// All are.
    Inside,
    /// Some may be.
    Edge,
}

/// How each value block lies to the ranges.
pub(super) fn overlaps(directory: &SegmentDirectory, ranges: &KeyRanges) -> Vec<BlockOverlap> {
    let mut places = vec![BlockOverlap::Outside; directory.blocks.len()];
    let mut from = 0;
    for range in ranges_in_segment(directory, ranges) {
        let found = blocks_of_range(directory, range, from);
        from = from.max(found.start);
        for block in found.clone() {
            // Between the first block and the last one there is nothing else.
            let inner = found.start < block && block + 1 < found.end;
            let inside = inner || is_inside(directory, block, range);
            // A range that begins behind all keys of a block may still seem to touch it.
            if let Some(place) = places.get_mut(block).filter(|place| **place != BlockOverlap::Inside) {
                *place = if inside { BlockOverlap::Inside } else { BlockOverlap::Edge };
            }
        }
    }
    places
}

/// The ranges that may hold a key of a segment.
pub(super) fn ranges_in_segment<'r>(directory: &SegmentDirectory, ranges: &'r KeyRanges) -> &'r [KeyRange] {
    match (directory.blocks.first(), &directory.max_key) {
        (Some(first), Some(last)) => ranges.touching(&first.first_key, last),
        _ => ranges.ranges(),
    }
}

/// Where the ranks of each bin end.
pub(super) struct Bins {
    ends: Vec<u64>,
}

/// A bin that shares ranks with others.
pub(super) struct BinPart {
    /// Its number.
    pub bin: usize,
    /// The ranks that it shares.
    pub ranks: Range<u64>,
}

/// A value block.
pub(super) struct PlacedBlock<'a> {
    pub block: &'a ValueBlockRef,
    pub place: BlockOverlap,
    /// The ranks of its values.
    pub ranks: Range<u64>,
}

/// Goes through values in order and gives the bin of each.
pub(super) struct BinCursor<'a> {
    ends: &'a [u64],
    rank: u64,
    bin: usize,
}

impl BinCursor<'_> {
    /// The bin of the next value.
    pub(super) fn next(&mut self) -> usize {
        while self.ends.get(self.bin).is_some_and(|end| *end <= self.rank) {
            self.bin += 1;
        }
        self.rank += 1;
        self.bin
    }
}

impl Bins {
    /// The listed bins; a segment that lists none is one.
    pub(super) fn new(directory: &SegmentDirectory) -> Self {
        if directory.bins.is_empty() {
            return Self { ends: vec![directory.value_count] };
        }
        let mut end = 0;
        let ends = directory.bins.iter().map(|values| {
            end += u64::from(*values);
            end
        });
        Self { ends: ends.collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Starts at a rank.
    pub(super) fn cursor(&self, rank: u64) -> BinCursor<'_> {
        BinCursor { ends: &self.ends, rank, bin: self.ends.partition_point(|end| *end <= rank) }
    }

    /// The bins that share ranks with `ranks`.
    pub(super) fn of(&self, ranks: &Range<u64>) -> impl Iterator<Item = BinPart> {
        let (start, end) = (ranks.start, ranks.end);
        let first = self.ends.partition_point(|end| *end <= start);
        let ends = self.ends.get(first..).unwrap_or_default();
        (first..).zip(ends).scan(start, move |from, (bin, bin_end)| {
            let part = *from..end.min(*bin_end);
            *from = part.end;
            (!part.is_empty()).then_some(BinPart { bin, ranks: part })
        })
    }
}

/// Each block with its place and its ranks.
pub(super) fn blocks<'a>(
    directory: &'a SegmentDirectory,
    places: &'a [BlockOverlap],
) -> impl Iterator<Item = PlacedBlock<'a>> {
    directory.blocks.iter().zip(places).scan(0, |rank, (block, place)| {
        let first = std::mem::replace(rank, *rank + u64::from(block.values));
        Some(PlacedBlock { block, place: *place, ranks: first..*rank })
    })
}

/// The rank of the first value of each block.
pub(super) fn first_ranks(directory: &SegmentDirectory) -> Vec<u64> {
    let ranks =
        directory.blocks.iter().scan(0, |rank, block| Some(std::mem::replace(rank, *rank + u64::from(block.values))));
    ranks.collect()
}

/// The blocks that may have keys of a range, which are none before `from`.
pub(super) fn blocks_of_range(directory: &SegmentDirectory, range: &KeyRange, from: usize) -> Range<usize> {
    let blocks = &directory.blocks;
    let start = match &range.low {
        Bound::Unbounded => from,
        // The block before the first that begins above the bound may reach over it.
        Bound::Included(low) | Bound::Excluded(low) => {
            if directory.max_key.as_ref().is_some_and(|max| max < low) {
                return from..from;
            }
            gallop(blocks, from, |block| block.first_key <= *low).saturating_sub(1).max(from)
        }
    };
    let end = gallop(blocks, start, |block| !range.ends_before(&block.first_key));
    start..end
}

/// Whether every key of a block is in the range.
pub(super) fn is_inside(directory: &SegmentDirectory, index: usize, range: &KeyRange) -> bool {
    let Some(block) = directory.blocks.get(index) else { return false };
    let last_is_inside = match directory.blocks.get(index + 1) {
        // Every key of the block is below the next block's first one.
        Some(next) => !range.ends_before(&next.first_key) || range_reaches(range, &next.first_key),
        None => directory.max_key.as_ref().is_some_and(|max| !range.ends_before(max)),
    };
    last_is_inside && range.contains(&block.first_key)
}

/// The range goes up to, if not including, `key`.
fn range_reaches(range: &KeyRange, key: &Key) -> bool {
    matches!(&range.high, Bound::Excluded(high) if high >= key)
}
