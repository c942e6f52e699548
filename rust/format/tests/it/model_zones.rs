//! A segment of zones as plain values, and the second reader: which bits the specification says that a zone has.

use std::collections::BTreeSet;
use std::ops::Range;

use lakemark_format::zones::{ByteFence, FencePair, Fences, Filters, Zones, slice_bytes};
use lakemark_format::*;

use crate::forge_zones::Filter;

/// Rows that lie together.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    pub rows: u32,
    /// Distinct keys.
    pub keys: Vec<Key>,
    /// With the encoding `filtered`.
    pub fences: Option<(Key, Key)>,
}

/// A segment of zones.
#[derive(Debug, Clone, PartialEq)]
pub struct Zoned {
    pub id: [u8; 16],
    pub column: String,
    pub key_type: KeyType,
    pub files: Vec<SegmentFile>,
    pub nulls: Vec<u32>,
    pub opaque: Vec<u32>,
    pub zones: Vec<Zone>,
    pub filters: Filters,
}

/// What a file says of a zone: rows, number of keys, fences, and the bits that are set in its filter.
#[derive(Debug, PartialEq)]
pub struct Said {
    pub rows: u32,
    pub keys: u32,
    pub fences: Option<(Key, Key)>,
    pub bits: BTreeSet<u64>,
}

impl Zoned {
    pub fn universe(&self) -> u32 {
        self.files.last().map_or(0, |file| file.base + file.rows() as u32)
    }

    /// The keys of each zone.
    pub fn keys(&self) -> Vec<Vec<Key>> {
        self.zones.iter().map(|zone| zone.keys.clone()).collect()
    }

    /// What its file must say.
    pub fn said(&self) -> Vec<Said> {
        let said = |zone: &Zone| {
            let keys = zone.keys.len() as u32;
            let filter = Filter::of(self.filters, keys);
            let bits = zone.keys.iter().flat_map(|key| filter.bits(key)).collect();
            Said { rows: zone.rows, keys, fences: zone.fences.clone(), bits }
        };
        self.zones.iter().map(said).collect()
    }

    /// The file as the library writes it, and its directory.
    pub fn write(&self) -> (Vec<u8>, SegmentDirectory) {
        let mut writer = ContainerWriter::new(ContentKind::Segment, self.id);
        let mut push = |rows: &[u32]| {
            let mut bytes = Vec::new();
            posting::encode(rows, self.universe(), &mut bytes);
            let offset = writer.offset();
            writer.push(&bytes);
            PostingRef { offset, length: bytes.len() as u32, rows: rows.len() as u32 }
        };
        let (nulls, opaque) = (push(&self.nulls), push(&self.opaque));
        let zones = Zones {
            rows: self.zones.iter().map(|zone| zone.rows).collect(),
            keys: self.zones.iter().map(|zone| zone.keys.len() as u32).collect(),
            fences: self.fences(),
            filters: self.filters,
            offset: writer.offset(),
        };
        writer.push(&self.filter_bytes());
        let sliced = matches!(self.filters, Filters::Sliced(_));
        let directory = SegmentDirectory {
            segment_id: self.id,
            index_id: [6; 16],
            column: self.column.clone(),
            key_type: self.key_type.clone(),
            files: self.files.clone().into(),
            universe: self.universe(),
            nulls,
            opaque,
            value_count: self.zones.iter().map(|zone| zone.keys.len() as u64).sum(),
            max_key: None,
            blocks: vec![],
            encoding: if sliced { Encoding::Sliced } else { Encoding::Filtered },
            bins: vec![],
            bitmaps: vec![],
            orders: vec![],
            riding: vec![],
            predicates: vec![],
            zones: Some(zones),
        };
        let bytes = directory.encode(writer.offset()).unwrap();
        (writer.finish(&bytes).unwrap(), directory)
    }

    fn fences(&self) -> Option<Fences> {
        if matches!(self.filters, Filters::Sliced(_)) {
            return None;
        }
        let fences = self.zones.iter().map(|zone| zone.fences.clone().unwrap());
        if self.key_type.is_fixed() {
            let number = |key| if let Key::Fixed(number) = key { number } else { panic!("{key:?}") };
            let pair = |(low, high)| FencePair { low: number(low), high: number(high) };
            return Some(Fences::Fixed(fences.map(pair).collect()));
        }
        let bytes = |key| if let Key::Bytes(bytes) = key { bytes.into() } else { panic!("{key:?}") };
        Some(Fences::Bytes(fences.map(|(low, high)| ByteFence { low: bytes(low), high: bytes(high) }).collect()))
    }

    /// All filters by the library's functions.
    fn filter_bytes(&self) -> Vec<u8> {
        let hashes = self.zones.iter().map(|zone| zone.keys.iter().map(filter::hash).collect::<Vec<_>>());
        match self.filters {
            Filters::Each(density) => {
                hashes.flat_map(|hashes| filter::encode(density.shape(hashes.len() as u32), &hashes)).collect()
            }
            Filters::Sliced(shape) => {
                let slice = slice_bytes(self.zones.len());
                let mut bytes = vec![0; (shape.bits() * slice) as usize];
                for (zone, hashes) in hashes.enumerate() {
                    for position in hashes.iter().flat_map(|hash| shape.positions(*hash)) {
                        bytes[position as usize * slice as usize + zone / 8] |= 1 << (zone % 8);
                    }
                }
                bytes
            }
        }
    }
}

/// An opened segment of zones.
pub struct File {
    pub directory: SegmentDirectory,
    pub nulls: Vec<u32>,
    pub opaque: Vec<u32>,
    /// All filters.
    filters: Vec<u8>,
}

impl File {
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let opened = open_tail(bytes, bytes.len() as u64)?;
        let trailer = opened.trailer;
        let read = |logical: Range<u64>| {
            let physical = physical_range(logical.clone(), &trailer);
            read_logical(&bytes[physical.start as usize..physical.end as usize], logical, &trailer)
        };
        read(0..trailer.stream_length)?;
        let directory = SegmentDirectory::decode(opened.directory.expect("the whole file was given"), &trailer)?;
        let posting = |list: PostingRef| {
            let mut rows = Vec::new();
            let bytes = read(list.offset..list.offset + u64::from(list.length))?;
            posting::decode(&bytes, list.rows, directory.universe, &mut rows)?;
            Ok(rows)
        };
        let (nulls, opaque) = (posting(directory.nulls)?, posting(directory.opaque)?);
        let filters = match directory.zones.as_ref().map(|zones| (zones.offset, zones.filter_bytes())) {
            Some((offset, length)) if length > 0 => read(offset..offset + length)?.into_owned(),
            _ => vec![],
        };
        Ok(Self { nulls, opaque, filters, directory })
    }

    pub fn zones(&self) -> &Zones {
        self.directory.zones.as_ref().unwrap()
    }

    /// What the file says of its zones, by the specification.
    pub fn said(&self) -> Vec<Said> {
        let zones = self.zones();
        let mut start = 0;
        let said = |(zone, (rows, keys)): (usize, (&u32, &u32))| {
            let filter = Filter::of(zones.filters, *keys);
            let set = |bit: u64| match zones.filters {
                Filters::Each(_) => self.bit(start + bit / 8, bit % 8),
                Filters::Sliced(_) => {
                    self.bit(bit * zones.rows.len().div_ceil(8) as u64 + zone as u64 / 8, zone as u64 % 8)
                }
            };
            let bits = (0..filter.blocks * filter.block_bits).filter(|bit| set(*bit)).collect();
            start += filter.bytes() as u64;
            Said { rows: *rows, keys: *keys, fences: self.fences(zone), bits }
        };
        zones.rows.iter().zip(&zones.keys).enumerate().map(said).collect()
    }

    fn bit(&self, byte: u64, bit: u64) -> bool {
        self.filters[byte as usize] >> bit & 1 == 1
    }

    fn fences(&self, zone: usize) -> Option<(Key, Key)> {
        match self.zones().fences.as_ref()? {
            Fences::Fixed(fences) => Some((Key::Fixed(fences[zone].low), Key::Fixed(fences[zone].high))),
            Fences::Bytes(fences) => {
                let ByteFence { low, high } = &fences[zone];
                Some((Key::Bytes(low.to_vec()), Key::Bytes(high.to_vec())))
            }
        }
    }

    /// The zones whose filters may hold a key, by the library.
    pub fn may_hold(&self, key: &Key) -> Vec<usize> {
        let (zones, hash) = (self.zones(), filter::hash(key));
        let mut start = 0;
        let mut found = Vec::new();
        for (zone, keys) in zones.keys.iter().enumerate() {
            let held = match zones.filters {
                Filters::Each(density) => {
                    let shape = density.shape(*keys);
                    let block = start + (shape.block(hash) * (shape.block_bits / 8)) as usize;
                    start += shape.bytes() as usize;
                    let bytes = self.filters.get(block..block + (shape.block_bits / 8) as usize);
                    filter::may_contain(bytes.unwrap(), shape, hash)
                }
                Filters::Sliced(shape) => {
                    let slice = slice_bytes(zones.rows.len());
                    shape.blocks > 0
                        && shape
                            .positions(hash)
                            .all(|position| self.bit(position * slice + zone as u64 / 8, zone as u64 % 8))
                }
            };
            found.extend(held.then_some(zone));
        }
        found
    }
}

/// The zones that may hold a key, by what the file says of them.
pub fn may_hold(said: &[Said], filters: Filters, key: &Key) -> Vec<usize> {
    let holds = |zone: &Said| {
        let filter = Filter::of(filters, zone.keys);
        filter.blocks > 0 && filter.bits(key).iter().all(|bit| zone.bits.contains(bit))
    };
    (0..).zip(said).filter(|(_, zone)| holds(zone)).map(|(number, _)| number).collect()
}
