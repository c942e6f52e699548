//! Putting the zones of segments one behind the other, without the data that they were made of.
//!
//! ```text
//! sliced     slice 0: zones of a │ zones of b │ zones of c     slice 1: …      bit by bit, one slice of each at a time
//! filtered   filters of a │ filters of b │ filters of c                        as they are
//! ```
//!
//! Filters of slices have one shape. A smaller filter becomes a larger one whose blocks, and whose bits of a block, are a multiple of its own.
//! The place of a key in the larger filter, divided, is its place in the smaller one. So each bit is repeated, and the filter says of every key
//! what it said before. Filters that are stored one by one need one density already. Unless their probability is named, that density has to be
//! enough for the zones of all segments as well. The more fences are around a key, the more bits it needs.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use lakemark_format::filter::FilterShape;
use lakemark_format::segment::{SegmentDirectory, SegmentFile};
use lakemark_format::zones::{Fences, Filters, MAX_ZONES, Zones, slice_bytes};

use super::build::{
    FALSE_ZONES, OVERLAP_SAMPLE, ZoneOptions, around_bytes, around_number, false_share, fences_of_no_key,
    summary_density,
};
use crate::error::BuildError;

/// A merge makes a filter larger by at most so much. Beyond that its zones are better made from the data, among zones that are like them.
const MOST_REPEATED: u64 = 4;
/// A merged tree may read so many times the zones in vain that a built one does; beyond that its filters need more bits.
const MOST_FALSE: f64 = 2.0;
/// Filters of so few bits are put together whatever a build would make: their steps are too large to compare.
const FEW_BITS: u64 = 128;

/// Reads a logical range of a segment.
pub type ReadRange = Box<dyn FnMut(Range<u64>) -> io::Result<Vec<u8>> + Send>;

/// A segment whose zones become part of another one.
pub struct ZonePart {
    directory: Arc<SegmentDirectory>,
    /// The zones that are kept, ascending and apart.
    kept: Vec<Range<usize>>,
    filters: FilterReader,
}

impl std::fmt::Debug for ZonePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZonePart").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl ZonePart {
    /// The zones of some files of a segment, whose filters are read in pieces of `read_bytes` bytes, unless a slice is larger.
    #[must_use]
    pub fn new(
        directory: Arc<SegmentDirectory>,
        is_kept: impl Fn(&SegmentFile) -> bool,
        read_bytes: u64,
        read: ReadRange,
    ) -> Self {
        let kept = zones_of_files(&directory, is_kept);
        let end = directory.zones.as_ref().map_or(0, |zones| zones.offset.saturating_add(zones.filter_bytes()));
        Self { directory, kept, filters: FilterReader { read, read_bytes, end, start: 0, window: Vec::new() } }
    }
}

/// Reads the filters of a segment, of which a slice may have a byte or two, a large part at a time.
struct FilterReader {
    read: ReadRange,
    /// Bytes of a part.
    read_bytes: u64,
    /// Where the filters end.
    end: u64,
    /// Where the part that was read last begins.
    start: u64,
    window: Vec<u8>,
}

impl FilterReader {
    fn bytes(&mut self, range: Range<u64>) -> io::Result<&[u8]> {
        if range.start < self.start || range.end > self.start + self.window.len() as u64 {
            let end = self.end.min(range.start.saturating_add(self.read_bytes)).max(range.end);
            self.window = (self.read)(range.start..end)?;
            self.start = range.start;
        }
        let (from, to) = ((range.start - self.start) as usize, (range.end - self.start) as usize);
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "fewer bytes of the filters were read than they have");
        self.window.get(from..to).ok_or_else(cut)
    }
}

/// The zones of these files, as ranges that do not touch each other.
fn zones_of_files(directory: &SegmentDirectory, is_kept: impl Fn(&SegmentFile) -> bool) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    let mut lengths =
        directory.zones.iter().flat_map(|zones| &zones.rows).map(|rows| u64::from(*rows)).enumerate().peekable();
    for file in directory.files.iter() {
        let mut left = file.rows();
        let first = lengths.peek().map_or(0, |(zone, _)| *zone);
        let mut end = first;
        while left > 0 {
            let Some((zone, rows)) = lengths.next() else { break };
            (end, left) = (zone + 1, left.saturating_sub(rows));
        }
        match kept.last_mut() {
            _ if end == first || !is_kept(file) => {}
            Some(last) if last.end == first => last.end = end,
            _ => kept.push(first..end),
        }
    }
    kept
}

/// The filters that zones of all these segments can have, of an index with these options; none if they have to be made from the data.
#[must_use]
pub fn common_filters(segments: &[&SegmentDirectory], options: &ZoneOptions) -> Option<Filters> {
    let zones: Vec<&Zones> = segments.iter().map(|segment| segment.zones.as_ref()).collect::<Option<_>>()?;
    let largest = zones.iter().map(|zones| zones.filters).max_by_key(|filters| match filters {
        Filters::Sliced(shape) => shape.bits(),
        Filters::Each(density) => density.bits.into(),
    })?;
    let fits = |zones: &&Zones| match (zones.filters, largest) {
        (Filters::Each(density), Filters::Each(common)) => density == common,
        (Filters::Sliced(shape), Filters::Sliced(common)) => repeats(shape, common).is_some(),
        _ => false,
    };
    let is_dense = match largest {
        Filters::Sliced(common) => is_needed(common, &zones, options),
        // What is named holds for one filter, whatever the others are.
        Filters::Each(_) if options.fpp.is_some() => true,
        Filters::Each(density) => density.fpp() * overlap(&zones) <= FALSE_ZONES * MOST_FALSE,
    };
    (is_dense && zones.iter().all(fits)).then_some(largest)
}

/// Whether a merge may make filters of this shape: those of a summary with these options, of less than twice the bits of a build's.
fn is_needed(common: FilterShape, all: &[&Zones], options: &ZoneOptions) -> bool {
    let density = summary_density(options);
    // Of fewer hashes than a summary has unless its probability is named, many zones would be read in vain.
    if options.fpp.is_none() && common.hashes != density.hashes {
        return false;
    }
    let keys = all.iter().flat_map(|zones| &zones.keys).copied();
    common.bits() <= FEW_BITS || false_share(common.hashes, common.bits() as f64 / 2.0, keys) > density.fpp()
}

/// How many of all zones have fences around a key, about: that of the middle of some zones.
fn overlap(all: &[&Zones]) -> f64 {
    let count: usize = all.iter().map(|zones| zones.rows.len()).sum();
    let every = count.div_ceil(OVERLAP_SAMPLE).max(1);
    let (mut sampled, mut found) = (0usize, 0usize);
    for (zones, zone) in
        all.iter().flat_map(|zones| (0..zones.rows.len()).map(move |zone| (zones, zone))).step_by(every)
    {
        if zones.keys.get(zone).is_none_or(|keys| *keys == 0) {
            continue;
        }
        sampled += 1;
        let with_fences = all.iter().filter_map(|other| Some((other.fences.as_ref()?, other.keys.as_slice())));
        found += match &zones.fences {
            Some(Fences::Fixed(fences)) => fences.get(zone).map_or(0, |fence| {
                let middle = fence.low + (fence.high - fence.low) / 2;
                with_fences.map(|(fences, keys)| around_number(fences, keys, middle)).sum()
            }),
            Some(Fences::Bytes(fences)) => fences
                .get(zone)
                .map_or(0, |fence| with_fences.map(|(fences, keys)| around_bytes(fences, keys, &fence.low)).sum()),
            None => 0,
        };
    }
    found as f64 / sampled.max(1) as f64
}

/// How often blocks and bits of a block are repeated where a filter becomes one of another shape.
#[derive(Clone, Copy)]
struct Repeats {
    blocks: u32,
    bits: u32,
}

fn repeats(shape: FilterShape, larger: FilterShape) -> Option<Repeats> {
    if shape.hashes != larger.hashes {
        return None;
    }
    // A filter of no keys has no bits, and is empty in any shape.
    if shape.blocks == 0 {
        return Some(Repeats { blocks: 1, bits: 1 });
    }
    let is_multiple = larger.blocks.is_multiple_of(shape.blocks) && larger.block_bits.is_multiple_of(shape.block_bits);
    let is_near = larger.bits() <= shape.bits().saturating_mul(MOST_REPEATED);
    let repeats = Repeats { blocks: larger.blocks / shape.blocks, bits: larger.block_bits / shape.block_bits };
    (is_multiple && is_near).then_some(repeats)
}

/// Zones of all parts, one behind the other, whose filters are handed over from the logical offset `offset` on.
pub(crate) fn write(
    parts: Vec<ZonePart>,
    options: &ZoneOptions,
    offset: u64,
    mut push: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Zones, BuildError> {
    let directories: Vec<&SegmentDirectory> = parts.iter().map(|part| part.directory.as_ref()).collect();
    let filters = common_filters(&directories, options);
    let filters = filters.ok_or_else(|| io::Error::other("the filters of the segments have different shapes"))?;
    let mut zones = Zones { rows: Vec::new(), keys: Vec::new(), fences: None, filters, offset };
    for part in &parts {
        take_zones(&mut zones, part);
    }
    if zones.rows.len() > MAX_ZONES {
        return Err(BuildError::TooManyZones { zones: zones.rows.len() as u64, limit: MAX_ZONES as u64 });
    }
    match filters {
        Filters::Sliced(shape) => write_slices(parts, shape, &mut push)?,
        Filters::Each(_) => {
            for part in parts {
                copy_filters(part, &mut push)?;
            }
        }
    }
    Ok(zones)
}

/// Adds what the directory of a part knows of its zones.
fn take_zones(all: &mut Zones, part: &ZonePart) {
    let Some(zones) = &part.directory.zones else { return };
    let empty = match &zones.fences {
        None => None,
        Some(Fences::Fixed(_)) => Some(Fences::Fixed(Vec::new())),
        Some(Fences::Bytes(_)) => Some(Fences::Bytes(Vec::new())),
    };
    all.fences = all.fences.take().or(empty);
    for zone in part.kept.iter().cloned().flatten() {
        let (Some(rows), Some(keys)) = (zones.rows.get(zone), zones.keys.get(zone)) else { continue };
        all.rows.push(*rows);
        all.keys.push(*keys);
        match (&mut all.fences, &zones.fences) {
            (Some(Fences::Fixed(all)), Some(Fences::Fixed(fences))) => {
                let own = fences.get(zone).filter(|_| *keys > 0).copied();
                all.push(own.unwrap_or_else(|| fences_of_no_key(all)));
            }
            (Some(Fences::Bytes(all)), Some(Fences::Bytes(fences))) => {
                all.extend(fences.get(zone).cloned());
            }
            _ => {}
        }
    }
}

/// A part whose slices become pieces of the common ones.
struct SlicedPart {
    /// Where its slices begin in the segment.
    offset: u64,
    /// The shape of its own filters.
    own: FilterShape,
    /// How often each block and each bit of its own is repeated in the common shape.
    repeats: Repeats,
    /// Bytes of a slice of its own.
    slice_bytes: u64,
    kept: Vec<Range<usize>>,
    filters: FilterReader,
}

impl SlicedPart {
    /// None for a part that has nothing in the common shape.
    fn of(part: ZonePart, shape: FilterShape) -> Option<Self> {
        let zones = part.directory.zones.as_ref()?;
        let Filters::Sliced(own) = zones.filters else { return None };
        let (offset, slice_bytes) = (zones.offset, slice_bytes(zones.rows.len()));
        let repeats = repeats(own, shape)?;
        Some(Self { offset, own, repeats, slice_bytes, kept: part.kept, filters: part.filters })
    }

    /// Adds what the part has of one slice of the common shape.
    fn add_to(&mut self, slice: &mut BitWriter, block: u32, bit: u32) -> io::Result<()> {
        if self.own.blocks == 0 {
            self.kept.iter().for_each(|kept| slice.push_zeros(kept.len()));
            return Ok(());
        }
        let position = u64::from(block / self.repeats.blocks) * u64::from(self.own.block_bits)
            + u64::from(bit / self.repeats.bits);
        let start = self.offset + position * self.slice_bytes;
        let read = self.filters.bytes(start..start + self.slice_bytes)?;
        self.kept.iter().for_each(|kept| slice.push(read, kept.clone()));
        Ok(())
    }
}

/// Each slice of the common shape, put together from a slice of each part.
fn write_slices(
    parts: Vec<ZonePart>,
    shape: FilterShape,
    push: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut parts: Vec<SlicedPart> = parts.into_iter().filter_map(|part| SlicedPart::of(part, shape)).collect();
    for block in 0..shape.blocks {
        for bit in 0..shape.block_bits {
            let mut slice = BitWriter::default();
            parts.iter_mut().try_for_each(|part| part.add_to(&mut slice, block, bit))?;
            push(&slice.bytes)?;
        }
    }
    Ok(())
}

/// The filters of the zones of a part, as they are.
fn copy_filters(mut part: ZonePart, push: &mut impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let Some(zones) = &part.directory.zones else { return Ok(()) };
    for kept in &part.kept {
        let bytes_of = |zones_of: Range<usize>| zones.filters.bytes(zones.keys.get(zones_of).unwrap_or_default());
        let mut start = zones.offset + bytes_of(0..kept.start);
        let end = start + bytes_of(kept.clone());
        while start < end {
            let next = end.min(start + part.filters.read_bytes.max(1));
            push(part.filters.bytes(start..next)?)?;
            start = next;
        }
    }
    Ok(())
}

/// Bits one behind the other, the first one the lowest of a byte.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    /// Bits of the last byte that are free, 0 to 7.
    free: u32,
}

impl BitWriter {
    fn push(&mut self, bits: &[u8], range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            // Up to eight bits from any place on.
            let (byte, shift) = (at / 8, at % 8);
            let low = bits.get(byte).copied().unwrap_or(0);
            let high = bits.get(byte + 1).copied().unwrap_or(0);
            let word = (u16::from_le_bytes([low, high]) >> shift) as u8;
            let count = (range.end - at).min(8);
            self.push_bits(word, count as u32);
            at += count;
        }
    }

    fn push_zeros(&mut self, mut count: usize) {
        while count > 0 {
            let some = count.min(8);
            self.push_bits(0, some as u32);
            count -= some;
        }
    }

    /// The lowest bits of a byte, 1 to 8 of them.
    fn push_bits(&mut self, byte: u8, count: u32) {
        let byte = if count < 8 { byte & ((1 << count) - 1) } else { byte };
        let word = u16::from(byte) << ((8 - self.free) % 8);
        let [first, second] = word.to_le_bytes();
        let had = self.free;
        match self.bytes.last_mut() {
            Some(last) if had > 0 => *last |= first,
            _ => self.bytes.push(first),
        }
        let room = if had == 0 { 8 } else { had };
        if count > room {
            self.bytes.push(second);
            self.free = 8 - (count - room);
        } else {
            self.free = room - count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits_of(bytes: &[u8], range: Range<usize>) -> Vec<bool> {
        range.map(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1).collect()
    }

    proptest! {
        #[test]
        fn bits_are_put_one_behind_the_other(parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..9), any::<(u8, u8)>()), 0..12)) {
            let (mut writer, mut expected) = (BitWriter::default(), Vec::new());
            for (bytes, (a, b)) in &parts {
                let (a, b) = (usize::from(*a) % (bytes.len() * 8 + 1), usize::from(*b) % (bytes.len() * 8 + 1));
                let range = a.min(b)..a.max(b);
                writer.push(bytes, range.clone());
                expected.extend(bits_of(bytes, range));
                writer.push_zeros(a % 11);
                expected.extend(vec![false; a % 11]);
            }
            prop_assert_eq!(writer.bytes.len(), expected.len().div_ceil(8));
            prop_assert_eq!(bits_of(&writer.bytes, 0..expected.len()), expected.clone());
            // The last byte is padded with zeros.
            prop_assert!(bits_of(&writer.bytes, expected.len()..writer.bytes.len() * 8).iter().all(|bit| !bit));
        }

        /// The place of a key in a larger filter, divided, is its place in the smaller one.
        #[test]
        fn a_filter_that_is_repeated_says_of_every_key_what_it_said(
            hash: u64,
            blocks in 1u32..9,
            block_bits in (1u32..64).prop_map(|bytes| bytes * 8),
            times in (1u32..5, 1u32..5),
        ) {
            let small = FilterShape { blocks, block_bits, hashes: 18 };
            let large = FilterShape { blocks: blocks * times.0, block_bits: block_bits * times.1, hashes: 18 };
            let moved = large.positions(hash).map(|position| {
                let (block, bit) = (position / u64::from(large.block_bits), position % u64::from(large.block_bits));
                block / u64::from(times.0) * u64::from(block_bits) + bit / u64::from(times.1)
            });
            prop_assert_eq!(moved.collect::<Vec<_>>(), small.positions(hash).collect::<Vec<_>>());
        }
    }

    #[test]
    fn filters_are_made_a_few_times_as_large_and_not_more() {
        let shape = |blocks, block_bits| FilterShape { blocks, block_bits, hashes: 18 };
        assert!(repeats(shape(1, 64), shape(2, 128)).is_some());
        assert!(repeats(shape(1, 64), shape(4, 128)).is_none(), "eight times as large");
        assert!(repeats(shape(1, 64), shape(1, 72)).is_none(), "no multiple");
        assert!(repeats(shape(3, 64), shape(4, 64)).is_none(), "no multiple");
        assert!(repeats(shape(0, 0), shape(4, 64)).is_some(), "no keys");
        assert!(repeats(FilterShape { hashes: 7, ..shape(1, 64) }, shape(1, 64)).is_none(), "other hashes");
    }
}
