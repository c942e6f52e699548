//! Searching the zones of a segment, in one round of reading.
//!
//! ```text
//! filtered   every zone by its fences:  outside │ inside: all its rows │ between: probe its filter for each key, if keys are named
//! sliced     every key by its bits:     AND of their slices, OR over the keys
//! ```
//!
//! Rows found are exact where fences decide, and rows that may pass elsewhere. No row that passes is ever left out.

use std::ops::{Bound, Range};

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::filter::{self, Density, FilterShape};
use lakemark_format::key::Key;
use lakemark_format::segment::{PostingRef, SegmentDirectory};
use lakemark_format::zones::{Fences, Filters, Zones, slice_bytes};

use crate::predicate::Test;
use crate::ranges::{KeyRange, KeyRanges};
use crate::rows::{RowSet, RowSetBuilder};
use crate::segment_rows::{SegmentRows, rows_of_posting};

/// Ranges of at most so many number keys are probed key by key.
const ENUMERATED: u64 = 64;
/// No more keys than this are looked up in one filter, or in all slices.
const MAX_KEYS: usize = 4096;

/// One test of one segment with zones, before its only round of reading.
#[derive(Debug)]
pub struct ZoneSearch<'a> {
    directory: &'a SegmentDirectory,
    test: ZoneTest,
}

#[derive(Debug)]
enum ZoneTest {
    IsNull,
    /// The zones whose rows may pass, ascending.
    Filtered(Vec<JudgedZone>),
    Sliced(SliceTest),
    /// The slices say nothing.
    Everywhere,
}

/// A zone that its fences do not rule out.
#[derive(Debug)]
struct JudgedZone {
    zone: usize,
    verdict: FenceVerdict,
}

/// What filters in slices are probed for.
#[derive(Debug)]
struct SliceTest {
    shape: FilterShape,
    /// Of all requested keys.
    hashes: Vec<u64>,
    /// The slices to read, ascending.
    slices: Vec<u64>,
}

/// A block of a zone's filter.
#[derive(Debug)]
struct FilterBlock {
    number: u32,
    /// Its logical range.
    range: Range<u64>,
}

/// What fences say of a zone.
#[derive(Debug)]
enum FenceVerdict {
    Inside,
    Maybe,
    /// The filter of this shape is probed for these keys.
    Probe {
        shape: FilterShape,
        hashes: Vec<u64>,
        /// In which they are, ascending.
        blocks: Vec<FilterBlock>,
    },
}

impl<'a> ZoneSearch<'a> {
    /// Plans the search of a segment with zones.
    #[must_use]
    pub fn new(directory: &'a SegmentDirectory, test: &Test) -> Self {
        let test = match (test, &directory.zones) {
            (Test::IsNull, _) => ZoneTest::IsNull,
            (Test::Ranges(ranges), Some(zones)) => match (zones.filters, &zones.fences) {
                (Filters::Each(density), Some(fences)) => ZoneTest::Filtered(verdicts(zones, density, fences, ranges)),
                (Filters::Sliced(shape), _) => sliced(shape, ranges),
                _ => ZoneTest::Everywhere,
            },
            _ => ZoneTest::Everywhere,
        };
        Self { directory, test }
    }

    /// Logical ranges to read, to be given to [`Self::finish`] in this order.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> =
            self.lists().map(|list| list.offset..list.offset + u64::from(list.length)).collect();
        match (&self.test, &self.directory.zones) {
            (ZoneTest::Filtered(verdicts), _) => {
                for judged in verdicts {
                    if let FenceVerdict::Probe { blocks, .. } = &judged.verdict {
                        ranges.extend(blocks.iter().map(|block| block.range.clone()));
                    }
                }
            }
            (ZoneTest::Sliced(test), Some(zones)) => {
                let bytes = slice_bytes(zones.rows.len());
                ranges.extend(test.slices.iter().map(|slice| {
                    let start = zones.offset + slice * bytes;
                    start..start + bytes
                }));
            }
            _ => {}
        }
        ranges
    }

    /// The NULL list, and with key tests the opaque one.
    fn lists(&self) -> impl Iterator<Item = PostingRef> + use<> {
        let opaque = (!matches!(self.test, ZoneTest::IsNull)).then_some(self.directory.opaque);
        std::iter::once(self.directory.nulls).chain(opaque)
    }

    /// Takes the bytes and gives the rows.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn finish(self, read: &[Bytes]) -> Result<SegmentRows> {
        let lists: Vec<PostingRef> = self.lists().collect();
        let expected = self.ranges().len();
        if read.len() != expected {
            return Err(FormatError::invalid("the ranges read", read.len(), expected));
        }
        let (list_bytes, filter_bytes) = read.split_at_checked(lists.len()).unwrap_or_default();
        let universe = self.directory.universe;
        let sets = list_bytes.iter().zip(&lists).map(|(bytes, list)| rows_of_posting(bytes, *list, universe));
        let mut sets = sets.collect::<Result<Vec<_>>>()?.into_iter();
        let empty = || RowSet::empty(universe);
        let nulls = sets.next().unwrap_or_else(empty);
        let (exact, possible) = match self.test {
            ZoneTest::IsNull => return Ok(SegmentRows { t: nulls, n: empty(), opaque: empty() }),
            ZoneTest::Filtered(verdicts) => {
                let mut bytes = filter_bytes.iter();
                let found: Vec<ZoneRows> = verdicts.iter().map(|judged| judged.verdict.found(&mut bytes)).collect();
                let rows = |wanted: ZoneRows| {
                    let wanted = verdicts.iter().zip(&found).filter(|(_, found)| **found == wanted);
                    rows_of(self.directory, wanted.map(|(judged, _)| judged.zone))
                };
                (rows(ZoneRows::All), rows(ZoneRows::Some))
            }
            ZoneTest::Sliced(test) => {
                let zones = zones_of_slices(&test, filter_bytes);
                let holds = |zone: usize| zones.get(zone / 8).is_some_and(|byte| byte >> (zone % 8) & 1 == 1);
                (empty(), rows_of(self.directory, (0..zones.len() * 8).filter(|zone| holds(*zone))))
            }
            ZoneTest::Everywhere => (empty(), rows_of(self.directory, 0..)),
        };
        let opaque = sets.next().unwrap_or_else(empty);
        let t = exact.minus(&nulls).minus(&opaque);
        Ok(SegmentRows { t, opaque: possible.minus(&nulls).or(&opaque), n: nulls })
    }
}

/// Which rows of a zone may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneRows {
    No,
    Some,
    All,
}

impl FenceVerdict {
    /// Takes the blocks of the zone's filter.
    fn found<'b>(&self, bytes: &mut impl Iterator<Item = &'b Bytes>) -> ZoneRows {
        match self {
            Self::Inside => ZoneRows::All,
            Self::Maybe => ZoneRows::Some,
            Self::Probe { shape, hashes, blocks } => {
                let read: Vec<&Bytes> = bytes.take(blocks.len()).collect();
                let may_hold = |hash: &u64| {
                    let number = shape.block(*hash);
                    let found = blocks.binary_search_by_key(&number, |block| block.number).ok();
                    found
                        .and_then(|place| read.get(place))
                        .is_none_or(|bytes| filter::may_contain(bytes, *shape, *hash))
                };
                if hashes.iter().any(may_hold) { ZoneRows::Some } else { ZoneRows::No }
            }
        }
    }
}

/// The keys of ranges that hold few enough to be named, or none.
fn keys_of(ranges: &[KeyRange], most: usize) -> Option<Vec<Key>> {
    let mut keys = Vec::new();
    for range in ranges {
        match (&range.low, &range.high) {
            (Bound::Included(low), Bound::Included(high)) if low == high => keys.push(low.clone()),
            (Bound::Included(Key::Fixed(_)) | Bound::Excluded(Key::Fixed(_)), _) => {
                let (first, last) = (first_key(&range.low)?, last_key(&range.high)?);
                if last.saturating_sub(first) >= ENUMERATED {
                    return None;
                }
                keys.extend((first..=last).map(Key::Fixed));
            }
            _ => return None,
        }
        if keys.len() > most {
            return None;
        }
    }
    Some(keys)
}

fn first_key(low: &Bound<Key>) -> Option<u64> {
    match low {
        Bound::Included(Key::Fixed(key)) => Some(*key),
        Bound::Excluded(Key::Fixed(key)) => key.checked_add(1),
        _ => None,
    }
}

fn last_key(high: &Bound<Key>) -> Option<u64> {
    match high {
        Bound::Included(Key::Fixed(key)) => Some(*key),
        Bound::Excluded(Key::Fixed(key)) => key.checked_sub(1),
        _ => None,
    }
}

/// As many keys as a filter can be probed for without one being found by chance.
fn most_keys(fpp: f64) -> usize {
    if fpp * MAX_KEYS as f64 <= 1.0 { MAX_KEYS } else { (1.0 / fpp).ceil() as usize }
}

fn sliced(shape: FilterShape, ranges: &KeyRanges) -> ZoneTest {
    // Slices are as long as they are dense: about half of the bits are set.
    let fpp = 0.5f64.powi(shape.hashes.into());
    let Some(keys) = keys_of(ranges.ranges(), most_keys(fpp)) else { return ZoneTest::Everywhere };
    let hashes: Vec<u64> = keys.iter().map(filter::hash).collect();
    let mut slices: Vec<u64> = hashes.iter().flat_map(|hash| shape.positions(*hash)).collect();
    slices.sort_unstable();
    slices.dedup();
    // A filter without bits holds nothing.
    if shape.bits() == 0 {
        slices.clear();
    }
    ZoneTest::Sliced(SliceTest { shape, hashes, slices })
}

/// The zones that may hold one of the keys, a bit for each.
fn zones_of_slices(test: &SliceTest, bytes: &[Bytes]) -> Vec<u8> {
    let SliceTest { shape, hashes, slices } = test;
    let mut found = vec![0u8; bytes.first().map_or(0, Bytes::len)];
    let slice = |position: u64| slices.binary_search(&position).ok().and_then(|place| bytes.get(place));
    for hash in hashes {
        let mut zones = vec![u8::MAX; found.len()];
        for slice in shape.positions(*hash).filter_map(slice) {
            zones.iter_mut().zip(slice).for_each(|(zones, bits)| *zones &= bits);
        }
        found.iter_mut().zip(zones).for_each(|(found, zones)| *found |= zones);
    }
    found
}

/// The zones whose fences do not rule them out.
fn verdicts(zones: &Zones, density: Density, fences: &Fences, ranges: &KeyRanges) -> Vec<JudgedZone> {
    let most = most_keys(density.fpp());
    let span = span_of(ranges);
    let mut verdicts = Vec::new();
    let (mut low, mut high) = (Key::Bytes(Vec::new()), Key::Bytes(Vec::new()));
    // Most zones have as many keys as the one before.
    let (mut offset, mut last) = (zones.offset, 0);
    let mut shape = density.shape(last);
    for (zone, keys) in zones.keys.iter().enumerate() {
        if *keys != last {
            (last, shape) = (*keys, density.shape(*keys));
        }
        let start = offset;
        offset += shape.bytes();
        // Nearly all zones are ruled out here where keys are in order.
        let far = match (fences, span) {
            (Fences::Fixed(fences), Some(span)) => {
                fences.get(zone).is_none_or(|fence| fence.high < span.first || fence.low > span.last)
            }
            _ => false,
        };
        if *keys > 0 && !far && take_fences(fences, zone, &mut low, &mut high) {
            let verdict = verdict(ranges, &low, &high, shape, start, most);
            verdicts.extend(verdict.map(|verdict| JudgedZone { zone, verdict }));
        }
    }
    verdicts
}

/// Bounds of number keys.
#[derive(Clone, Copy)]
struct KeySpan {
    first: u64,
    last: u64,
}

/// Bounds of all number keys of the ranges.
fn span_of(ranges: &KeyRanges) -> Option<KeySpan> {
    let ranges = ranges.ranges();
    Some(KeySpan { first: first_key(&ranges.first()?.low)?, last: last_key(&ranges.last()?.high)? })
}

/// Puts the fences of a zone into keys that are there already.
fn take_fences(fences: &Fences, zone: usize, low: &mut Key, high: &mut Key) -> bool {
    let take = |key: &mut Key, fence: &[u8]| match key {
        Key::Bytes(bytes) => {
            bytes.clear();
            bytes.extend_from_slice(fence);
        }
        key @ Key::Fixed(_) => *key = Key::Bytes(fence.to_vec()),
    };
    match fences {
        Fences::Fixed(fences) => fences.get(zone).is_some_and(|fence| {
            (*low, *high) = (Key::Fixed(fence.low), Key::Fixed(fence.high));
            true
        }),
        Fences::Bytes(fences) => fences.get(zone).is_some_and(|fence| {
            take(low, &fence.low);
            take(high, &fence.high);
            true
        }),
    }
}

fn verdict(
    ranges: &KeyRanges,
    low: &Key,
    high: &Key,
    shape: FilterShape,
    start: u64,
    most: usize,
) -> Option<FenceVerdict> {
    let ranges = ranges.ranges();
    let first = ranges.partition_point(|range| range.ends_before(low));
    let end = ranges.partition_point(|range| range.begins_at_or_before(high));
    let between = match ranges.get(first..end) {
        Some([]) | None => return None,
        Some(between) => between,
    };
    if between.iter().any(|range| range.begins_at_or_before(low) && range.contains(high)) {
        return Some(FenceVerdict::Inside);
    }
    // Of the ranges at the ends only what the fences leave has to be named.
    let within = KeyRanges::between(Bound::Included(low.clone()), Bound::Included(high.clone()));
    let narrowed: Vec<KeyRange> = between.iter().flat_map(|range| narrow(range, &within)).collect();
    let Some(keys) = keys_of(&narrowed, most) else { return Some(FenceVerdict::Maybe) };
    let hashes: Vec<u64> = keys.iter().map(filter::hash).collect();
    let mut blocks: Vec<u32> = hashes.iter().map(|hash| shape.block(*hash)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let block_bytes = u64::from(shape.block_bits / 8);
    let place = |block: u32| {
        let start = start + u64::from(block) * block_bytes;
        FilterBlock { number: block, range: start..start + block_bytes }
    };
    Some(FenceVerdict::Probe { shape, hashes, blocks: blocks.into_iter().map(place).collect() })
}

fn narrow(range: &KeyRange, within: &KeyRanges) -> Vec<KeyRange> {
    KeyRanges::between(range.low.clone(), range.high.clone()).intersect(within).ranges().to_vec()
}

/// The rows of these zones, whose numbers ascend.
fn rows_of(directory: &SegmentDirectory, wanted: impl Iterator<Item = usize>) -> RowSet {
    let mut rows = RowSetBuilder::new(directory.universe);
    let mut wanted = wanted.peekable();
    let Some(zones) = &directory.zones else { return rows.finish() };
    let mut zone = 0;
    for file in directory.files.iter() {
        let (mut row, end) = (u64::from(file.base), u64::from(file.base) + file.rows());
        while row < end {
            let (Some(length), Some(_)) = (zones.rows.get(zone), wanted.peek()) else { return rows.finish() };
            let next = row + u64::from(*length);
            if wanted.next_if_eq(&zone).is_some() {
                rows.insert_range(row as u32..u32::try_from(next).unwrap_or(u32::MAX));
            }
            (row, zone) = (next, zone + 1);
        }
    }
    rows.finish()
}
