//! Zones: rows that lie together, with a Bloom filter of their keys.
//!
//! ```text
//! rows      ├── zone 0 ──┼── zone 1 ──┼─ 2 ─┤ row group ├── zone 3 ──┼ …
//! filtered  fences, filter 0 │ fences, filter 1 │ …            a tree of Bloom filters (kind `bloom_tree`)
//! sliced    bit 0 of all filters │ bit 1 of all filters │ …    a partitioned summary (kind `summary`)
//! ```
//!
//! *Fences* are bounds of a zone's keys. The directory holds what is known of each zone, in *leaves* of [`LEAF_ZONES`] whose
//! columns are packed in their shortest form. The stream holds the filters. Filters that are stored one by one have as many
//! bits as their keys need. Filters that are sliced have one shape, and the bit at a position of all of them is one run of bytes.

mod fences;

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::filter::{Density, FilterShape, validate_hashes};
use crate::key::KeyType;
use crate::packed::{encode_column, pack, read_width, unpack, width_of};

/// The most zones of a segment. Part of the format.
pub const MAX_ZONES: usize = 1 << 20;
/// Zones whose columns are packed together. Part of the format.
pub const LEAF_ZONES: usize = 1024;
/// The most bytes of all byte fences of a segment, each counted whole: front coding must not make memory of nothing. Part of the format.
pub const MAX_FENCE_BYTES: usize = 1 << 27;

/// The zones of a segment, in the order of their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Rows of each zone, at least 1; all of one row group.
    pub rows: Vec<u32>,
    /// Distinct keys of each zone.
    pub keys: Vec<u32>,
    /// Bounds of the keys of each zone, if they are kept.
    pub fences: Option<Fences>,
    /// How the filters are stored.
    pub filters: Filters,
    /// Where: their logical offset.
    pub offset: u64,
}

/// The lower and the upper fence of every zone, in order: no key of the zone is below or above. Those of a zone without keys mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fences {
    /// Of number keys.
    Fixed(Vec<FencePair<u64>>),
    /// Of byte keys; they need not be keys themselves.
    Bytes(Vec<ByteFence>),
}

/// The two fences of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FencePair<T> {
    /// The lower one.
    pub low: T,
    /// The upper one.
    pub high: T,
}

/// The two fences of a zone with byte keys.
pub type ByteFence = FencePair<Box<[u8]>>;

/// How filters are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// One after the other, each with the bits for its keys.
    Each(Density),
    /// All with this shape, cut into slices: for each position the bits of all filters, 8 zones a byte.
    Sliced(FilterShape),
}

impl Filters {
    /// Bytes of all filters of zones that have so many keys.
    #[must_use]
    pub fn bytes(&self, keys: &[u32]) -> u64 {
        match self {
            Self::Each(density) => {
                keys.iter().fold(0, |all, keys| u64::saturating_add(all, density.shape(*keys).bytes()))
            }
            Self::Sliced(shape) => shape.bits().saturating_mul(slice_bytes(keys.len())),
        }
    }
}

/// Bytes of a slice of so many zones.
#[must_use]
pub fn slice_bytes(zones: usize) -> u64 {
    (zones as u64).div_ceil(8)
}

impl Zones {
    /// Bytes of all filters.
    #[must_use]
    pub fn filter_bytes(&self) -> u64 {
        self.filters.bytes(&self.keys)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let fences = match &self.fences {
            None => 0,
            Some(Fences::Fixed(fences)) => size_of_val(fences.as_slice()),
            Some(Fences::Bytes(fences)) => {
                let held: usize = fences.iter().map(|fence| fence.low.len() + fence.high.len()).sum();
                held + size_of_val(fences.as_slice())
            }
        };
        (self.rows.len() + self.keys.len()) * size_of::<u32>() + fences
    }

    pub(crate) fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.length(self.rows.len());
        for (leaf, (rows, keys)) in self.rows.chunks(LEAF_ZONES).zip(self.keys.chunks(LEAF_ZONES)).enumerate() {
            encode_column(rows.iter().copied().map(u64::from), out);
            encode_column(keys.iter().copied().map(u64::from), out);
            let (start, zones) = (leaf * LEAF_ZONES, rows.len());
            match &self.fences {
                None => {}
                Some(Fences::Fixed(fences)) => fences::encode_fixed(fences, start, zones, out),
                Some(Fences::Bytes(fences)) => fences::encode_bytes(fences, start, zones, out)?,
            }
        }
        match self.filters {
            Filters::Each(density) => {
                out.varint(density.bits.into());
                out.u8(density.hashes);
            }
            Filters::Sliced(shape) => {
                out.varint(shape.blocks.into());
                out.varint(shape.block_bits.into());
                out.u8(shape.hashes);
            }
        }
        out.varint(self.offset);
        Ok(())
    }

    /// Reads zones; those that are `sliced` have no fences.
    pub(crate) fn decode(input: &mut ByteReader<'_>, key_type: &KeyType, sliced: bool) -> Result<Self> {
        let count = input.varint()?;
        let count = match usize::try_from(count) {
            Ok(fits) if fits <= MAX_ZONES => fits,
            _ => return Err(FormatError::TooLong { what: "the number of zones", got: count, limit: MAX_ZONES as u64 }),
        };
        let (mut rows, mut keys) = (Vec::new(), Vec::new());
        let mut fences = match (sliced, key_type.is_fixed()) {
            (true, _) => None,
            (false, true) => Some(Fences::Fixed(Vec::new())),
            (false, false) => Some(Fences::Bytes(Vec::new())),
        };
        let mut left = MAX_FENCE_BYTES;
        while rows.len() < count {
            let zones = (count - rows.len()).min(LEAF_ZONES);
            decode_column(input, zones, "the rows of a zone", &mut rows)?;
            decode_column(input, zones, "the keys of a zone", &mut keys)?;
            match &mut fences {
                None => {}
                Some(Fences::Fixed(fences)) => fences::decode_fixed(input, zones, fences)?,
                Some(Fences::Bytes(fences)) => fences::decode_bytes(input, zones, &mut left, fences)?,
            }
        }
        let filters = if sliced {
            Filters::Sliced(FilterShape {
                blocks: input.varint_u32("the blocks of a filter")?,
                block_bits: input.varint_u32("the bits of a block")?,
                hashes: input.u8()?,
            })
        } else {
            Filters::Each(Density { bits: input.varint_u32("the bits for a key")?, hashes: input.u8()? })
        };
        Ok(Self { rows, keys, fences, filters, offset: input.varint()? })
    }

    /// Checks zones of files with these row groups.
    pub(crate) fn validate(&self, key_type: &KeyType, row_groups: impl Iterator<Item = u32>) -> Result<()> {
        if self.rows.len() > MAX_ZONES || self.keys.len() != self.rows.len() {
            let got = format!("{} with {} key counts", self.rows.len(), self.keys.len());
            return Err(FormatError::invalid("the zones", got, format_args!("at most {MAX_ZONES}, a count for each")));
        }
        let mut zones = self.rows.iter().zip(&self.keys);
        for group in row_groups {
            let mut left = group;
            while left > 0 {
                left = match zones.next() {
                    Some((rows, keys)) if *rows > 0 && *rows <= left && keys <= rows => left - rows,
                    Some((rows, keys)) => {
                        let got = format!("{rows} rows with {keys} keys");
                        return Err(FormatError::invalid(
                            "a zone",
                            got,
                            format_args!("1 to {left} rows, no more keys"),
                        ));
                    }
                    None => {
                        return Err(FormatError::invalid("the zones", "too few", "every row of the files in one"));
                    }
                };
            }
        }
        if zones.next().is_some() {
            return Err(FormatError::invalid("the zones", "too many", "every row of the files in one"));
        }
        self.validate_fences(key_type)?;
        match self.filters {
            Filters::Each(density) => density.validate(),
            Filters::Sliced(shape) => {
                let fits = shape.block_bits > 0 || shape.blocks == 0;
                if !fits || shape.blocks == 0 && self.keys.iter().any(|keys| *keys > 0) {
                    let got = format!("{} blocks of {} bits", shape.blocks, shape.block_bits);
                    return Err(FormatError::invalid("the shape of the filters", got, "bits for the keys"));
                }
                validate_hashes(shape.hashes)
            }
        }
    }

    fn validate_fences(&self, key_type: &KeyType) -> Result<()> {
        let (count, fit) = match &self.fences {
            None => return Ok(()),
            Some(Fences::Fixed(fences)) => (fences.len(), self.fixed_fences_fit(fences, key_type)),
            Some(Fences::Bytes(fences)) => (fences.len(), !key_type.is_fixed() && fences::bytes_fit(fences)),
        };
        if count != self.rows.len() || !fit {
            let got = format!("{count} fences{}", if fit { "" } else { ", out of order or of another type" });
            return Err(FormatError::invalid("the fences of zones", got, "a lower and an upper one for each zone"));
        }
        Ok(())
    }

    /// Fences are in order, and those of a zone with keys are keys.
    fn fixed_fences_fit(&self, fences: &[FencePair<u64>], key_type: &KeyType) -> bool {
        let Some(bounds) = key_type.fixed_bounds() else { return false };
        let (least, greatest) = bounds.into_inner();
        let mut fences = fences.iter().zip(&self.keys);
        fences.all(|(FencePair { low, high }, keys)| low <= high && (*keys == 0 || least <= *low && *high <= greatest))
    }
}

/// Numbers of up to 64 bits as differences to the least.
fn encode_numbers(numbers: &[u64], out: &mut ByteWriter) {
    let least = numbers.iter().copied().min().unwrap_or(0);
    let width = width_of(numbers.iter().map(|number| number - least));
    out.varint(least);
    out.u8(width);
    pack(numbers.iter().map(|number| number - least), width, out);
}

/// What [`encode_numbers`] wrote. A directory has one encoding: any other form of the same numbers is refused.
fn decode_numbers(input: &mut ByteReader<'_>, count: usize) -> Result<Vec<u64>> {
    let least = input.varint()?;
    let width = read_width(input)?;
    let packed = input.clone().bytes((count * usize::from(width)).div_ceil(8))?;
    let numbers = unpack(input, count, width)?;
    let used = count * usize::from(width) % 8;
    let padded = used > 0 && packed.last().is_some_and(|last| last >> used != 0);
    if padded || width_of(numbers.iter().copied()) != width || numbers.iter().all(|number| *number > 0) {
        return Err(FormatError::invalid("a column of zones", "packed loosely", "its shortest form"));
    }
    let numbers = numbers.into_iter().map(|difference| least.checked_add(difference));
    numbers
        .map(|number| number.ok_or_else(|| FormatError::invalid("a number of zones", "beyond 64 bits", "64 bits")))
        .collect()
}

/// Numbers of 32 bits.
fn decode_column(input: &mut ByteReader<'_>, count: usize, what: &'static str, column: &mut Vec<u32>) -> Result<()> {
    for number in decode_numbers(input, count)? {
        let number = u32::try_from(number);
        column.push(number.map_err(|_| FormatError::invalid(what, "beyond 32 bits", "a 32-bit number"))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(zones: &Zones, key_type: KeyType) -> Result<Zones> {
        let mut out = ByteWriter::new();
        zones.encode(&mut out)?;
        let bytes = out.into_vec();
        let mut input = ByteReader::new("zones", &bytes);
        let sliced = matches!(zones.filters, Filters::Sliced(_));
        let decoded = Zones::decode(&mut input, &key_type, sliced)?;
        input.finish()?;
        Ok(decoded)
    }

    fn length(zones: &Zones) -> usize {
        let mut out = ByteWriter::new();
        zones.encode(&mut out).unwrap();
        out.len()
    }

    #[test]
    fn dense_keys_in_order_cost_no_bits_for_their_fences() {
        let fences = (0..4096u64).map(|zone| FencePair { low: zone * 16, high: zone * 16 + 15 }).collect();
        let zones = Zones {
            rows: vec![16; 4096],
            keys: vec![16; 4096],
            fences: Some(Fences::Fixed(fences)),
            filters: Filters::Each(Density::of_fpp(0.01)),
            offset: 64,
        };
        assert_eq!(decoded(&zones, KeyType::UInt64).unwrap(), zones);
        // The first step is 0 and all others 1, written as 2: two bits each in the first of four leaves.
        assert_eq!(length(&zones), 2 + 4 * 8 + 256 + 2 + 1 + 1);
        assert_eq!(zones.filter_bytes(), 4096 * 20);
    }

    #[test]
    fn zones_are_checked_against_row_groups() {
        let zones = |rows: Vec<u32>, keys: Vec<u32>| Zones {
            rows,
            keys,
            fences: None,
            filters: Filters::Sliced(FilterShape { blocks: 1, block_bits: 64, hashes: 3 }),
            offset: 64,
        };
        let check = |zones: Zones| zones.validate(&KeyType::UInt64, [10, 0, 5].into_iter());
        assert_eq!(check(zones(vec![8, 2, 5], vec![8, 0, 1])), Ok(()));
        for (rows, keys) in [
            (vec![8, 7], vec![1, 1]),
            (vec![8, 2], vec![1, 1]),
            (vec![8, 2, 5, 1], vec![1; 4]),
            (vec![8, 2, 0, 5], vec![1, 1, 0, 1]),
            (vec![8, 2, 5], vec![9, 1, 1]),
            (vec![8, 2, 5], vec![1, 1]),
        ] {
            assert!(check(zones(rows.clone(), keys.clone())).is_err(), "{rows:?} {keys:?}");
        }
    }

    #[test]
    fn fences_are_in_order_and_of_the_type() {
        let fits = |(low, high): (u64, u64), keys: u32, key_type: KeyType| {
            let fences = Some(Fences::Fixed(vec![FencePair { low, high }]));
            let filters = Filters::Each(Density { bits: 9000, hashes: 6 });
            let zones = Zones { rows: vec![3], keys: vec![keys], fences, filters, offset: 64 };
            zones.validate_fences(&key_type).is_ok()
        };
        assert!(fits((3, 255), 1, KeyType::UInt8));
        assert!(!fits((3, 256), 1, KeyType::UInt8) && fits((3, 256), 0, KeyType::UInt8));
        assert!(!fits((4, 3), 1, KeyType::UInt8) && !fits((4, 3), 0, KeyType::UInt8));
        assert!(!fits((3, 255), 1, KeyType::Binary));
    }

    #[test]
    fn loose_columns_are_refused() {
        let decoded = |bytes: &[u8]| decode_numbers(&mut ByteReader::new("zones", bytes), 3);
        assert_eq!(decoded(&[7, 2, 0b10_01_00]).unwrap(), [7, 8, 9]);
        for (bytes, why) in [
            ([7, 2, 0b1_10_01_00], "a bit behind the last number"),
            ([6, 2, 0b11_10_01], "a least number that is none of them"),
            ([7, 2, 0b01_01_00], "a bit too much for each"),
        ] {
            assert!(decoded(&bytes).is_err(), "{why}");
        }
    }

    proptest! {
        #[test]
        fn fixed_fences_round_trip(fences in prop::collection::vec(any::<(u64, u64)>(), 0..2100)) {
            let fences: Vec<FencePair<u64>> =
                fences.into_iter().map(|(a, b)| FencePair { low: a.min(b), high: a.max(b) }).collect();
            let zones = Zones {
                rows: vec![3; fences.len()],
                keys: (0..fences.len() as u32).collect(),
                fences: Some(Fences::Fixed(fences)),
                filters: Filters::Each(Density { bits: 9000, hashes: 6 }),
                offset: 999,
            };
            prop_assert_eq!(decoded(&zones, KeyType::UInt64).unwrap(), zones);
        }

        #[test]
        fn byte_fences_round_trip(fences in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..40)) {
            let fences: Vec<ByteFence> =
                fences.into_iter().map(|(a, b)| ByteFence { low: a.into(), high: b.into() }).collect();
            let zones = Zones {
                rows: vec![3; fences.len()],
                keys: vec![1; fences.len()],
                fences: Some(Fences::Bytes(fences)),
                filters: Filters::Each(Density { bits: 9000, hashes: 6 }),
                offset: 999,
            };
            prop_assert_eq!(decoded(&zones, KeyType::Binary).unwrap(), zones);
        }

        #[test]
        fn arbitrary_bytes_give_zones_of_one_encoding_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), sliced: bool) {
            for key_type in [KeyType::UInt64, KeyType::Binary] {
                let mut input = ByteReader::new("zones", &bytes);
                if let Ok(zones) = Zones::decode(&mut input, &key_type, sliced) {
                    let mut out = ByteWriter::new();
                    zones.encode(&mut out).unwrap();
                    prop_assert_eq!(out.as_slice(), &bytes[..bytes.len() - input.remaining()], "zones have one encoding");
                }
            }
        }
    }
}
