//! Zones: rows that lie together, with a Bloom filter of their keys.
//!
//! ```text
//! rows      ├── zone 0 ──┼── zone 1 ──┼─ 2 ─┤ row group ├── zone 3 ──┼ …
//! filtered  fences, filter 0 │ fences, filter 1 │ …            a tree of Bloom filters (kind `bloom_tree`)
//! sliced    bit 0 of all filters │ bit 1 of all filters │ …    a partitioned summary (kind `summary`)
//! ```
//!
//! *Fences* are bounds of a zone's keys. The directory holds what is known of each zone, in *leaves* of [`LEAF_ZONES`] whose columns are
//! packed; the stream holds the filters. Filters that are stored one by one have as many bits as their keys need. Filters that are
//! sliced have one shape, and the bit at a position of all of them is one run of bytes.

use crate::codec::{Reader, Writer};
use crate::error::{FormatError, Result};
use crate::filter::{Density, Shape, validate_hashes};
use crate::key::{KeyType, MAX_KEY_LENGTH};
use crate::value_block::{decode_column, encode_column, pack, read_width, unpack, width_of};

/// The most zones of a segment. Part of the format.
pub const MAX_ZONES: usize = 1 << 20;
/// Zones whose columns are packed together. Part of the format.
pub const LEAF_ZONES: usize = 1024;

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

/// The lower and the upper fence of every zone: no key of the zone is below or above. Fences of a zone without keys mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fences {
    /// Of number keys.
    Fixed(Vec<(u64, u64)>),
    /// Of byte keys; they need not be keys themselves.
    Bytes(Vec<ByteFence>),
}

/// The lower and the upper fence of a zone with byte keys.
pub type ByteFence = (Box<[u8]>, Box<[u8]>);

/// How filters are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// One after the other, each with the bits for its keys.
    Each(Density),
    /// All with this shape, cut into slices: for each position the bits of all filters, 8 zones a byte.
    Sliced(Shape),
}

impl Filters {
    /// Bytes of all filters of zones that have so many keys.
    #[must_use]
    pub fn bytes(&self, keys: &[u32]) -> u64 {
        match self {
            Self::Each(density) => keys.iter().map(|keys| density.shape(*keys).bytes()).sum(),
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
                let held: usize = fences.iter().map(|(low, high)| low.len() + high.len()).sum();
                held + size_of_val(fences.as_slice())
            }
        };
        (self.rows.len() + self.keys.len()) * size_of::<u32>() + fences
    }

    pub(crate) fn encode(&self, out: &mut Writer) -> Result<()> {
        out.length(self.rows.len());
        let mut previous = Previous::default();
        for (leaf, (rows, keys)) in self.rows.chunks(LEAF_ZONES).zip(self.keys.chunks(LEAF_ZONES)).enumerate() {
            encode_column(rows.iter().copied().map(u64::from), out);
            encode_column(keys.iter().copied().map(u64::from), out);
            let place = leaf * LEAF_ZONES..leaf * LEAF_ZONES + rows.len();
            match &self.fences {
                None => {}
                Some(Fences::Fixed(fences)) => {
                    encode_fixed_fences(fences.get(place).unwrap_or_default(), &mut previous.key, out);
                }
                Some(Fences::Bytes(fences)) => {
                    encode_byte_fences(fences.get(place).unwrap_or_default(), &mut previous.bytes, out)?;
                }
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
    pub(crate) fn decode(input: &mut Reader<'_>, key_type: &KeyType, sliced: bool) -> Result<Self> {
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
        let mut previous = Previous::default();
        while rows.len() < count {
            let zones = (count - rows.len()).min(LEAF_ZONES);
            rows.extend(decode_column(input, zones, "the rows of a zone")?);
            keys.extend(decode_column(input, zones, "the keys of a zone")?);
            match &mut fences {
                None => {}
                Some(Fences::Fixed(fences)) => decode_fixed_fences(input, zones, &mut previous.key, fences)?,
                Some(Fences::Bytes(fences)) => decode_byte_fences(input, zones, &mut previous.bytes, fences)?,
            }
        }
        let filters = if sliced {
            Filters::Sliced(Shape {
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
        let (count, ascend) = match &self.fences {
            None => return Ok(()),
            Some(Fences::Fixed(fences)) => {
                let (low, high) = key_type.fixed_bounds().unwrap_or((1, 0));
                let mut held = fences.iter().zip(&self.keys).filter(|(_, keys)| **keys > 0);
                (fences.len(), held.all(|(fence, _)| low <= fence.0 && fence.0 <= fence.1 && fence.1 <= high))
            }
            Some(Fences::Bytes(fences)) => {
                let fits = |fence: &[u8]| fence.len() <= MAX_KEY_LENGTH;
                let mut held = fences.iter().zip(&self.keys).filter(|(_, keys)| **keys > 0);
                let ascend = held.all(|((low, high), _)| fits(low) && fits(high) && low <= high);
                (fences.len(), ascend && !key_type.is_fixed())
            }
        };
        if count != self.rows.len() || !ascend {
            let got = format!("{count} fences{}", if ascend { "" } else { ", out of order" });
            return Err(FormatError::invalid("the fences of zones", got, "a lower and an upper one for each zone"));
        }
        Ok(())
    }
}

/// The upper fence before.
#[derive(Default)]
struct Previous {
    key: u64,
    bytes: Box<[u8]>,
}

/// The step from the upper fence before to the lower fence, up or down; then what lies between the two fences.
fn encode_fixed_fences(fences: &[(u64, u64)], previous: &mut u64, out: &mut Writer) {
    let mut before = *previous;
    let steps: Vec<u64> =
        fences.iter().map(|(low, high)| zigzag(low.wrapping_sub(std::mem::replace(&mut before, *high)))).collect();
    *previous = before;
    encode_numbers(&steps, out);
    let spans: Vec<u64> = fences.iter().map(|(low, high)| high.wrapping_sub(*low)).collect();
    encode_numbers(&spans, out);
}

fn decode_fixed_fences(
    input: &mut Reader<'_>,
    zones: usize,
    previous: &mut u64,
    fences: &mut Vec<(u64, u64)>,
) -> Result<()> {
    let steps = decode_numbers(input, zones)?;
    let spans = decode_numbers(input, zones)?;
    for (step, span) in steps.into_iter().zip(spans) {
        let low = previous.wrapping_add(unzigzag(step));
        let Some(high) = low.checked_add(span) else {
            return Err(FormatError::invalid("an upper fence", "beyond 64 bits", "a 64-bit number"));
        };
        fences.push((low, high));
        *previous = high;
    }
    Ok(())
}

/// Steps count in 64 bits around the circle: a small one down is as short as one up.
fn zigzag(step: u64) -> u64 {
    (step << 1) ^ ((step.cast_signed() >> 63).cast_unsigned())
}

fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// Numbers of up to 64 bits as differences to the least.
fn encode_numbers(numbers: &[u64], out: &mut Writer) {
    let least = numbers.iter().copied().min().unwrap_or(0);
    let width = width_of(numbers.iter().map(|number| number - least));
    out.varint(least);
    out.u8(width);
    pack(numbers.iter().map(|number| number - least), width, out);
}

fn decode_numbers(input: &mut Reader<'_>, count: usize) -> Result<Vec<u64>> {
    let least = input.varint()?;
    let width = read_width(input)?;
    let numbers = unpack(input, count, width)?.into_iter().map(|difference| least.checked_add(difference));
    numbers
        .map(|number| number.ok_or_else(|| FormatError::invalid("a fence", "beyond 64 bits", "a 64-bit number")))
        .collect()
}

/// Each fence without the bytes that it shares with the one before: lower, upper, lower, …
fn encode_byte_fences(fences: &[ByteFence], previous: &mut Box<[u8]>, out: &mut Writer) -> Result<()> {
    let mut before: &[u8] = previous;
    for fence in fences.iter().flat_map(|(low, high)| [low, high]) {
        let shared = before.iter().zip(fence).take_while(|(a, b)| a == b).count();
        out.length(shared);
        out.blob("a fence", fence.get(shared..).unwrap_or_default(), MAX_KEY_LENGTH)?;
        before = fence;
    }
    *previous = before.into();
    Ok(())
}

fn decode_byte_fences(
    input: &mut Reader<'_>,
    zones: usize,
    previous: &mut Box<[u8]>,
    fences: &mut Vec<ByteFence>,
) -> Result<()> {
    for _ in 0..zones {
        let low = decode_byte_fence(input, previous)?;
        let high = decode_byte_fence(input, &low)?;
        previous.clone_from(&high);
        fences.push((low, high));
    }
    Ok(())
}

fn decode_byte_fence(input: &mut Reader<'_>, before: &[u8]) -> Result<Box<[u8]>> {
    let shared = input.varint_u32("the shared bytes of a fence")? as usize;
    let rest = input.blob("a fence", MAX_KEY_LENGTH)?;
    match before.get(..shared) {
        Some(kept) if shared + rest.len() <= MAX_KEY_LENGTH => Ok([kept, rest].concat().into()),
        _ => Err(FormatError::invalid(
            "the shared bytes of a fence",
            shared,
            format_args!("at most {}, and no more than {MAX_KEY_LENGTH} together", before.len()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(zones: &Zones, key_type: KeyType) -> Result<Zones> {
        let mut out = Writer::new();
        zones.encode(&mut out)?;
        let bytes = out.into_vec();
        let mut input = Reader::new("zones", &bytes);
        let sliced = matches!(zones.filters, Filters::Sliced(_));
        let decoded = Zones::decode(&mut input, &key_type, sliced)?;
        input.finish()?;
        Ok(decoded)
    }

    fn length(zones: &Zones) -> usize {
        let mut out = Writer::new();
        zones.encode(&mut out).unwrap();
        out.len()
    }

    #[test]
    fn dense_keys_in_order_cost_no_bits_for_their_fences() {
        let fences = (0..4096u64).map(|zone| (zone * 16, zone * 16 + 15)).collect();
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
    fn steps_go_up_and_down() {
        for step in [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1] {
            assert_eq!(unzigzag(zigzag(step)), step);
        }
        assert_eq!((zigzag(1), zigzag(u64::MAX)), (2, 1));
    }

    #[test]
    fn zones_are_checked_against_row_groups() {
        let zones = |rows: Vec<u32>, keys: Vec<u32>| Zones {
            rows,
            keys,
            fences: None,
            filters: Filters::Sliced(Shape { blocks: 1, block_bits: 64, hashes: 3 }),
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

    proptest! {
        #[test]
        fn fixed_fences_round_trip(fences in prop::collection::vec(any::<(u64, u64)>(), 0..2100)) {
            let fences: Vec<(u64, u64)> = fences.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
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
            let fences: Vec<ByteFence> = fences.into_iter().map(|(a, b)| (a.into(), b.into())).collect();
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
        fn arbitrary_bytes_give_zones_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), sliced: bool) {
            for key_type in [KeyType::UInt64, KeyType::Binary] {
                let _ = Zones::decode(&mut Reader::new("zones", &bytes), &key_type, sliced);
            }
        }
    }
}
