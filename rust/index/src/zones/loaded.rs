//! All filters of a segment in memory: a verification probes them, zone by zone and key by key.

use lakemark_format::filter::{self, FilterShape};
use lakemark_format::key::Key;
use lakemark_format::zones::{Fences, Filters, Zones, slice_bytes};

/// The zones of a segment with the bytes of all their filters.
#[derive(Debug)]
pub struct LoadedZones<'a> {
    zones: &'a Zones,
    bytes: &'a [u8],
    /// Where each filter begins, if they are stored one by one.
    starts: Vec<u64>,
}

impl<'a> LoadedZones<'a> {
    /// The zones, with the bytes from their offset on.
    #[must_use]
    pub fn new(zones: &'a Zones, bytes: &'a [u8]) -> Self {
        let mut starts = Vec::new();
        if let Filters::Each(density) = zones.filters {
            let mut start = 0;
            for keys in &zones.keys {
                starts.push(start);
                start += density.shape(*keys).bytes();
            }
        }
        Self { zones, bytes, starts }
    }

    /// Whether a search for the key would come to the zone.
    #[must_use]
    pub fn may_contain(&self, zone: usize, key: &Key) -> bool {
        let (Some(keys), true) = (self.zones.keys.get(zone), self.is_fenced(zone, key)) else { return false };
        let hash = filter::hash(key);
        match self.zones.filters {
            Filters::Each(density) => {
                let shape = density.shape(*keys);
                shape.blocks > 0
                    && self.block(zone, shape, hash).is_some_and(|block| filter::may_contain(block, shape, hash))
            }
            Filters::Sliced(shape) => {
                let slice = slice_bytes(self.zones.rows.len());
                let byte = |position: u64| self.bytes.get((position * slice) as usize + zone / 8);
                shape.positions(hash).all(|position| byte(position).is_some_and(|byte| byte >> (zone % 8) & 1 == 1))
            }
        }
    }

    fn is_fenced(&self, zone: usize, key: &Key) -> bool {
        match (&self.zones.fences, key) {
            (None, _) => true,
            (Some(Fences::Fixed(fences)), Key::Fixed(key)) => {
                fences.get(zone).is_some_and(|fence| fence.low <= *key && *key <= fence.high)
            }
            (Some(Fences::Bytes(fences)), Key::Bytes(key)) => {
                fences.get(zone).is_some_and(|fence| *fence.low <= **key && **key <= *fence.high)
            }
            _ => false,
        }
    }

    fn block(&self, zone: usize, shape: FilterShape, hash: u64) -> Option<&[u8]> {
        let bytes = u64::from(shape.block_bits / 8);
        let start = self.starts.get(zone)? + u64::from(shape.block(hash)) * bytes;
        self.bytes.get(start as usize..(start + bytes) as usize)
    }
}
