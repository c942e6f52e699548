//! Making zones and their filters from sorted chunks, one row group after the other.
//!
//! ```text
//! chunk (a row group, sorted) ─▶ zones: fences, hashes of keys ─▶ filtered: a filter for each, written at once
//!                                                              └▶ sliced: 8 filters at a time, turned by 90° into slices
//! ```
//!
//! How many bits a filter gets depends on what the zones are like. So the first zones wait, until all are there or their hashes
//! take 128 MiB (`WAITING_HASHES`). How many bits a key of a summary gets depends on nothing: summaries are merged slice by slice
//! (`merge`), and a merge has as many zones as its parts together.

use std::io;

use lakemark_format::filter::{Density, FilterShape, encode, hash};
use lakemark_format::key::{Key, KeyType};
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::zones::{ByteFence, FencePair, Fences, Filters, MAX_ZONES, Zones, slice_bytes};

use crate::chunk::ChunkSource;
use crate::error::BuildError;

/// Hashes that wait for the number of bits: 128 MiB.
const WAITING_HASHES: usize = 1 << 24;
/// Zones that are read in vain by a search for one key that is not there, unless the probability is named.
pub const FALSE_ZONES: f64 = 0.05;
/// Zones that a summary is made for, unless the probability is named: at so many a search reads [`FALSE_ZONES`] in vain, at fewer less. A key
/// takes 26 bits and sets 18 of them.
pub const SUMMARY_ZONES: f64 = 13_000.0;
/// Zones of which a key is looked up to measure how the fences overlap.
pub(super) const OVERLAP_SAMPLE: usize = 128;
/// Fences of longer byte keys are cut to so many bytes.
const FENCE_BYTES: usize = 64;
/// The least bits of a block of a large filter; it has less than twice as many. The slices of a block of 64 zones lie in 64 KiB, and are read at
/// once.
const BLOCK_BITS: u64 = 1 << 12;
/// Sizes of filters from one power of two to the next: few, so that summaries of zones that are much alike have filters of one shape.
const STEPS: u64 = 8;
/// The same where the probability is named, and is to be met.
const FINE_STEPS: u64 = 64;

/// The settings of zones and filters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZoneOptions {
    /// The most rows of a zone; a zone for each row group if none are given.
    pub zone_rows: Option<u32>,
    /// The probability of a false positive in one filter. If none is given, it is that of [`SUMMARY_ZONES`] for a summary, and follows from the
    /// number of zones that a search for one key would probe for a tree.
    pub fpp: Option<f64>,
    /// Bytes that the slices of a summary may take in memory.
    pub memory_bytes: Option<u64>,
}

impl ZoneOptions {
    /// The zones of row groups of so many rows.
    #[must_use]
    pub fn count(self, row_groups: &[u32]) -> u64 {
        let zones = |rows: u32| self.zone_rows.map_or(u32::from(rows > 0), |most| rows.div_ceil(most.max(1)));
        row_groups.iter().map(|rows| u64::from(zones(*rows))).sum()
    }
}

/// What was built, and how many zones have fences around a key that occurs, on average: 1 for keys in order.
pub(crate) struct BuiltZones {
    pub zones: Zones,
    pub overlap: Option<f64>,
}

/// Makes the zones of row groups of so many rows, and hands the filters over from the logical offset `offset` on.
pub(crate) fn write(
    encoding: Encoding,
    options: ZoneOptions,
    key_type: KeyType,
    row_groups: &[u32],
    chunks: Vec<ChunkSource>,
    offset: u64,
    push: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<BuiltZones, BuildError> {
    let count = options.count(row_groups);
    if count > MAX_ZONES as u64 {
        return Err(BuildError::TooManyZones { zones: count, limit: MAX_ZONES as u64 });
    }
    let mut writer = ZoneWriter {
        sliced: encoding == Encoding::Sliced,
        options,
        count: count as usize,
        push,
        rows: Vec::new(),
        keys: Vec::new(),
        fences: if key_type.is_fixed() { Fences::Fixed(Vec::new()) } else { Fences::Bytes(Vec::new()) },
        sample: Vec::new(),
        waiting: Vec::new(),
        waiting_hashes: 0,
        filters: None,
        slices: None,
    };
    for (chunk, rows) in chunks.into_iter().zip(row_groups) {
        for zone in gather(chunk, *rows, options.zone_rows)? {
            writer.take(zone)?;
        }
    }
    writer.finish(offset)
}

/// A zone while it is made.
struct Zone {
    rows: u32,
    fences: Option<FencePair<Key>>,
    /// A key between them.
    inner: Option<Key>,
    /// Of the distinct keys.
    hashes: Vec<u64>,
}

/// The zones of a row group.
fn gather(mut chunk: ChunkSource, rows: u32, zone_rows: Option<u32>) -> io::Result<Vec<Zone>> {
    let most = zone_rows.unwrap_or(u32::MAX).max(1);
    let mut zones = Vec::new();
    let mut left = rows;
    while left > 0 {
        zones.push(Zone { rows: left.min(most), fences: None, inner: None, hashes: Vec::new() });
        left -= left.min(most);
    }
    // For each zone the number of the last key that was met in it.
    let mut met = vec![0u32; zones.len()];
    let mut touched = Vec::new();
    let mut number = 0u32;
    while let Some(key) = chunk.cursor.advance()? {
        number += 1;
        chunk.cursor.take_rows(|rows, _| {
            for row in rows {
                let zone = (row / most) as usize;
                if let Some(last) = met.get_mut(zone)
                    && *last != number
                {
                    *last = number;
                    touched.push(zone);
                }
            }
        });
        let hash = hash(&key);
        for zone in touched.drain(..) {
            let Some(zone) = zones.get_mut(zone) else { continue };
            zone.hashes.push(hash);
            // The last of these is in the upper half of the keys, and the middle one if they are just more than a power of two.
            if zone.hashes.len().is_power_of_two() {
                zone.inner = Some(key.clone());
            }
            match &mut zone.fences {
                Some(fences) => replace(&mut fences.high, &key),
                None => zone.fences = Some(FencePair { low: key.clone(), high: key.clone() }),
            }
        }
    }
    Ok(zones)
}

/// A copy into memory that is there already.
fn replace(old: &mut Key, new: &Key) {
    match (old, new) {
        (Key::Bytes(old), Key::Bytes(new)) => old.clone_from(new),
        (old, new) => *old = new.clone(),
    }
}

struct ZoneWriter<P> {
    sliced: bool,
    options: ZoneOptions,
    /// Zones of the segment.
    count: usize,
    push: P,
    rows: Vec<u32>,
    keys: Vec<u32>,
    fences: Fences,
    /// Keys of some zones.
    sample: Vec<Key>,
    /// Zones whose filters are not made yet, since it is not known how.
    waiting: Vec<Vec<u64>>,
    waiting_hashes: usize,
    filters: Option<Filters>,
    slices: Option<FilterSlices>,
}

impl<P: FnMut(&[u8]) -> io::Result<()>> ZoneWriter<P> {
    fn take(&mut self, zone: Zone) -> Result<(), BuildError> {
        if self.rows.len().is_multiple_of(self.count.div_ceil(OVERLAP_SAMPLE).max(1)) {
            self.sample.extend(zone.inner);
        }
        self.rows.push(zone.rows);
        self.keys.push(zone.hashes.len() as u32);
        self.take_fences(zone.fences);
        if self.filters.is_some() {
            return self.write_filter(&zone.hashes);
        }
        self.waiting_hashes += zone.hashes.len();
        self.waiting.push(zone.hashes);
        if self.waiting_hashes >= WAITING_HASHES { self.start() } else { Ok(()) }
    }

    fn take_fences(&mut self, fences: Option<FencePair<Key>>) {
        match &mut self.fences {
            Fences::Fixed(all) => all.push(match fences {
                Some(FencePair { low: Key::Fixed(low), high: Key::Fixed(high) }) => FencePair { low, high },
                _ => fences_of_no_key(all),
            }),
            Fences::Bytes(all) => all.push(match fences {
                Some(FencePair { low: Key::Bytes(low), high: Key::Bytes(high) }) => cut_fences(low, high),
                _ => ByteFence::default(),
            }),
        }
    }

    /// Chooses the filters by the zones that wait, and writes these.
    fn start(&mut self) -> Result<(), BuildError> {
        let filters = if self.sliced {
            let steps = if self.options.fpp.is_some() { FINE_STEPS } else { STEPS };
            let shape = common_shape(summary_density(&self.options), steps, &self.keys);
            let slices = FilterSlices::new(shape, self.count, self.options.memory_bytes.unwrap_or(u64::MAX))?;
            self.slices = Some(slices);
            Filters::Sliced(shape)
        } else {
            let fpp = self.options.fpp.unwrap_or_else(|| FALSE_ZONES / self.overlap().max(1.0));
            Filters::Each(Density::of_fpp(fpp))
        };
        self.filters = Some(filters);
        for hashes in std::mem::take(&mut self.waiting) {
            self.write_filter(&hashes)?;
        }
        Ok(())
    }

    /// How many zones have fences around a key, on average over the keys of some zones.
    fn overlap(&self) -> f64 {
        let around = |key: &Key| match key {
            Key::Fixed(key) => around_number(&self.fences, &self.keys, *key),
            Key::Bytes(key) => around_bytes(&self.fences, &self.keys, key),
        };
        self.sample.iter().map(around).sum::<usize>() as f64 / self.sample.len().max(1) as f64
    }

    fn write_filter(&mut self, hashes: &[u64]) -> Result<(), BuildError> {
        match (self.filters, &mut self.slices) {
            (Some(Filters::Sliced(_)), Some(slices)) => slices.take(hashes),
            (Some(Filters::Each(density)), _) => (self.push)(&encode(density.shape(hashes.len() as u32), hashes))?,
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self, offset: u64) -> Result<BuiltZones, BuildError> {
        if self.filters.is_none() {
            self.start()?;
        }
        if let Some(slices) = self.slices.take() {
            (self.push)(&slices.finish())?;
        }
        let overlap = (!self.sliced).then(|| self.overlap());
        let filters = self.filters.unwrap_or(Filters::Each(Density::of_fpp(FALSE_ZONES)));
        let fences = (!self.sliced).then_some(self.fences);
        let zones = Zones { rows: self.rows, keys: self.keys, fences, filters, offset };
        Ok(BuiltZones { zones, overlap })
    }
}

/// The fences of a zone without keys, which mean nothing: the upper fence before costs no bits.
pub(super) fn fences_of_no_key(before: &[FencePair<u64>]) -> FencePair<u64> {
    before.last().map(|last| FencePair { low: last.high, high: last.high }).unwrap_or_default()
}

/// Fences of keys that may be long: the lower one is cut, the upper one is cut and made larger.
fn cut_fences(mut low: Vec<u8>, mut high: Vec<u8>) -> ByteFence {
    low.truncate(FENCE_BYTES);
    if high.len() > FENCE_BYTES {
        let mut cut = high.get(..FENCE_BYTES).unwrap_or_default().to_vec();
        while cut.last() == Some(&u8::MAX) {
            cut.pop();
        }
        if let Some(last) = cut.last_mut() {
            *last += 1;
            high = cut;
        }
    }
    ByteFence { low: low.into(), high: high.into() }
}

/// How many zones with keys have fences around a number.
pub(super) fn around_number(fences: &Fences, keys: &[u32], key: u64) -> usize {
    match fences {
        Fences::Fixed(fences) => around(fences, keys, |low, high| *low <= key && key <= *high),
        Fences::Bytes(_) => 0,
    }
}

/// How many zones with keys have fences around these bytes.
pub(super) fn around_bytes(fences: &Fences, keys: &[u32], key: &[u8]) -> usize {
    match fences {
        Fences::Bytes(fences) => around(fences, keys, |low, high| **low <= *key && *key <= **high),
        Fences::Fixed(_) => 0,
    }
}

/// How many zones with keys have fences for which `wanted` is true.
fn around<T>(fences: &[FencePair<T>], keys: &[u32], wanted: impl Fn(&T, &T) -> bool) -> usize {
    fences.iter().zip(keys).filter(|(fence, keys)| **keys > 0 && wanted(&fence.low, &fence.high)).count()
}

/// The smallest shape of so many steps with which filters of so many keys have the probability of the density on average.
fn common_shape(density: Density, steps: u64, keys: &[u32]) -> FilterShape {
    let most = keys.iter().copied().max().unwrap_or(0);
    let average = |bits: f64| false_share(density.hashes, bits, keys.iter().copied());
    let (mut low, mut high) = (0.0, density.shape(most).bits() as f64);
    while high - low > 8.0 {
        let middle = f64::midpoint(low, high);
        if average(middle) <= density.fpp() { high = middle } else { low = middle }
    }
    stepped(high.ceil() as u64, steps, density.hashes)
}

/// The probability that a filter of so many bits is taken to have a key that it lacks, on average over filters of so many keys.
pub(super) fn false_share(hashes: u8, bits: f64, keys: impl Iterator<Item = u32>) -> f64 {
    let hashes = f64::from(hashes);
    let of_zone = |keys: u32| (-(-hashes * f64::from(keys) / bits).exp_m1()).powf(hashes);
    let (zones, sum) = keys.fold((0u64, 0.0), |(zones, sum), keys| (zones + 1, sum + of_zone(keys)));
    sum / zones.max(1) as f64
}

/// The density of the filters of summaries.
pub(super) fn summary_density(options: &ZoneOptions) -> Density {
    Density::of_fpp(options.fpp.unwrap_or(FALSE_ZONES / SUMMARY_ZONES))
}

/// The shape of a filter of at least so many bits. Two shapes of the same step are as many times as large as each other in blocks and in bits of a
/// block, so that a filter of the one is a filter of the other with each bit repeated.
fn stepped(bits: u64, steps: u64, hashes: u8) -> FilterShape {
    let Some(power) = bits.checked_ilog2() else { return FilterShape { blocks: 0, block_bits: 0, hashes } };
    // A multiple of 8, so that eight positions are a byte of a filter.
    let step = ((1u64 << power) / steps).max(8);
    let (mut blocks, mut block_bits) = (1u32, bits.next_multiple_of(step));
    while block_bits >= 2 * BLOCK_BITS {
        (blocks, block_bits) = (blocks * 2, block_bits / 2);
    }
    FilterShape { blocks, block_bits: block_bits as u32, hashes }
}

/// Filters of one shape, by position.
struct FilterSlices {
    shape: FilterShape,
    slice_bytes: usize,
    bytes: Vec<u8>,
    /// Filters of up to 8 zones: a byte of each slice.
    eight: Vec<Vec<u8>>,
    /// Zones taken, in eights.
    taken: usize,
}

impl FilterSlices {
    fn new(shape: FilterShape, zones: usize, memory: u64) -> Result<Self, BuildError> {
        let slice_bytes = slice_bytes(zones);
        let bytes = shape.bits().saturating_mul(slice_bytes);
        match usize::try_from(bytes) {
            Ok(fits) if bytes <= memory => Ok(Self {
                shape,
                slice_bytes: slice_bytes as usize,
                bytes: vec![0; fits],
                eight: Vec::with_capacity(8),
                taken: 0,
            }),
            _ => Err(BuildError::TooManySlices { bytes, memory }),
        }
    }

    fn take(&mut self, hashes: &[u64]) {
        self.eight.push(encode(self.shape, hashes));
        if self.eight.len() == 8 {
            self.turn();
        }
    }

    /// The bits at the same position of eight filters become a byte of that position's slice.
    fn turn(&mut self) {
        let filter_bytes = (self.shape.bits() / 8) as usize;
        for byte in 0..filter_bytes {
            let mut square = [0u8; 8];
            for (slot, filter) in square.iter_mut().zip(&self.eight) {
                *slot = filter.get(byte).copied().unwrap_or(0);
            }
            if square == [0; 8] {
                continue;
            }
            for (bit, turned) in transposed(square).into_iter().enumerate() {
                if let Some(slot) = self.bytes.get_mut((byte * 8 + bit) * self.slice_bytes + self.taken) {
                    *slot = turned;
                }
            }
        }
        self.taken += 1;
        self.eight.clear();
    }

    fn finish(mut self) -> Vec<u8> {
        if !self.eight.is_empty() {
            self.turn();
        }
        self.bytes
    }
}

/// Bit i of byte j becomes bit j of byte i, in three steps of swaps (Warren, Hacker's Delight, section 7-3).
fn transposed(square: [u8; 8]) -> [u8; 8] {
    let mut word = u64::from_le_bytes(square);
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aau64), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swapped = (word ^ (word >> shift)) & mask;
        word ^= swapped ^ (swapped << shift);
    }
    word.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_bits_are_transposed() {
        let square = [0b1, 0b11, 0b100, 0, 0x80, 0xff, 0, 0b10];
        let turned = transposed(square);
        for (i, byte) in square.iter().enumerate() {
            for (j, other) in turned.iter().enumerate() {
                assert_eq!(byte >> j & 1, other >> i & 1, "{i} {j}");
            }
        }
    }

    #[test]
    fn long_fences_are_cut_outwards() {
        let fences = |low: Vec<u8>, high: Vec<u8>| ByteFence { low: low.into(), high: high.into() };
        let cut = [vec![2; 63], vec![3]].concat();
        assert_eq!(cut_fences(vec![1; 70], vec![2; 70]), fences(vec![1; 64], cut));
        assert_eq!(cut_fences(vec![1], vec![255; 70]), fences(vec![1], vec![255; 70]));
        let high = [vec![7], vec![255; 69]].concat();
        assert_eq!(cut_fences(vec![1], high), fences(vec![1], vec![8]));
    }

    #[test]
    fn a_common_shape_has_the_probability_on_average() {
        let keys: Vec<u32> = (0..1000).map(|zone| if zone % 10 == 0 { 100 } else { 1000 }).collect();
        let shape = common_shape(Density::of_fpp(1e-3), FINE_STEPS, &keys);
        let of_zone = |keys: &u32| {
            let hashes = f64::from(shape.hashes);
            (1.0 - (-hashes * f64::from(*keys) / shape.bits() as f64).exp()).powf(hashes)
        };
        let average = keys.iter().map(of_zone).sum::<f64>() / 1000.0;
        assert!((0.88e-3..=1.0e-3).contains(&average), "{average}");
        assert_eq!((shape.blocks, shape.block_bits % 8), (2, 0));
        let few = common_shape(Density::of_fpp(1e-3), FINE_STEPS, &[100_000; 64]);
        assert!(few.block_bits < 8192 && few.blocks == 256, "{few:?}");
    }

    #[test]
    fn a_key_of_a_summary_has_26_bits_and_sets_18_whatever_the_number_of_zones() {
        let density = Density::of_fpp(FALSE_ZONES / SUMMARY_ZONES);
        assert_eq!((density.bits.div_ceil(1024), density.hashes), (26, 18));
        let one = common_shape(density, STEPS, &[65_536]);
        assert_eq!(common_shape(density, STEPS, &[65_536; 5000]), one);
        // A shorter last zone changes nothing.
        assert_eq!(common_shape(density, STEPS, &[65_536, 65_536, 65_536, 700]), one);
        assert!((26..=29).contains(&(one.bits() / 65_536)), "{one:?}");
    }

    #[test]
    fn shapes_have_few_sizes_that_are_multiples_of_each_other() {
        assert_eq!(stepped(0, 8, 5), FilterShape { blocks: 0, block_bits: 0, hashes: 5 });
        for (bits, blocks, block_bits) in [
            (1, 1, 8),
            (64, 1, 64),
            (65, 1, 72),
            (4096, 1, 4096),
            (8191, 2, 4096),
            (8192, 2, 4096),
            (8193, 2, 4608),
            (16_385, 4, 4608),
            (1 << 40, 1 << 28, 4096),
        ] {
            let shape = stepped(bits, 8, 5);
            assert_eq!((shape.blocks, shape.block_bits), (blocks, block_bits), "{bits}");
            assert!(shape.bits() >= bits && shape.block_bits.is_multiple_of(8));
        }
    }
}
