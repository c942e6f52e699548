//! Bin blocks: what stands in the place of value blocks where neighbouring values share a posting.
//!
//! ```text
//! block := count, gaps, spreads, values, surplus, postings, orders
//! gaps      keys between a bin's largest and the next one's smallest
//! spreads   keys between a bin's ends that it does not hold
//! values    distinct keys            surplus   rows beyond one for each
//! postings  bytes of the rows        orders    bytes of the order of keys and rows (see [`crate::order`])
//! ```
//!
//! All are frames of reference. Of a key without gaps or repetitions `values` alone takes bits.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType};
use crate::packed::{decode_column, encode_column, pack, read_width, unpack, width_of};
use crate::value_block::{MAX_BLOCK_VALUES, decode_count};

/// The most rows of a bin of several values. Part of the format.
pub const MAX_BIN_ROWS: u32 = 1 << 20;

/// Neighbouring values and how many rows hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// The smallest key.
    pub low: u64,
    /// The largest key.
    pub high: u64,
    /// Distinct keys.
    pub values: u32,
    /// Rows that hold one of them; at most [`MAX_BIN_ROWS`] if there are several.
    pub rows: u32,
    /// Bytes of its posting. Without an order and with several values these are ramps.
    pub posting_length: u32,
    /// Bytes of its order.
    pub order_length: u32,
}

/// A key of a bin with a row that holds it; ordered by key and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BinEntry {
    /// The key.
    pub key: u64,
    /// The row.
    pub row: u32,
}

impl Bin {
    /// Whether keys and rows stand together, as ramps, where a posting would be.
    #[must_use]
    pub fn is_ramps(&self) -> bool {
        self.values > 1 && self.order_length == 0
    }

    fn check(&self) -> Result<()> {
        let span = self.high.checked_sub(self.low).map(|span| u128::from(span) + 1);
        let keys_fit = span.is_some_and(|span| u128::from(self.values) <= span && (self.values > 1 || span == 1));
        let rows_fit = self.values >= 1 && self.rows >= self.values && (self.values == 1 || self.rows <= MAX_BIN_ROWS);
        let bytes_fit = self.posting_length > 0 && (self.order_length == 0 || self.values > 1);
        if keys_fit && rows_fit && bytes_fit {
            return Ok(());
        }
        Err(FormatError::invalid(
            "a bin",
            format_args!(
                "{} values in {} rows from {} to {}, {} and {} bytes",
                self.values, self.rows, self.low, self.high, self.posting_length, self.order_length
            ),
            format_args!("a row for each value, at most {MAX_BIN_ROWS} for several, and a posting"),
        ))
    }
}

/// Encodes up to [`MAX_BLOCK_VALUES`] bins, ascending and disjoint. The first key goes to the directory, not here.
///
/// # Errors
/// None, one or too many bins, or bins that cannot be.
pub fn encode(bins: &[Bin]) -> Result<Vec<u8>> {
    if bins.is_empty() || bins.len() > MAX_BLOCK_VALUES {
        return Err(FormatError::invalid("the bins of a block", bins.len(), format_args!("1 to {MAX_BLOCK_VALUES}")));
    }
    bins.iter().try_for_each(Bin::check)?;
    let mut gaps = Vec::with_capacity(bins.len());
    for (before, after) in bins.iter().zip(bins.iter().skip(1)) {
        match after.low.checked_sub(before.high) {
            Some(gap) if gap > 0 => gaps.push(gap - 1),
            _ => return Err(FormatError::invalid("a bin", after.low, format_args!("above {}", before.high))),
        }
    }
    let mut out = ByteWriter::new();
    out.length(bins.len());
    encode_numbers(gaps.into_iter(), &mut out);
    encode_numbers(bins.iter().map(|bin| bin.high - bin.low - u64::from(bin.values - 1)), &mut out);
    encode_column(bins.iter().map(|bin| u64::from(bin.values)), &mut out);
    encode_column(bins.iter().map(|bin| u64::from(bin.rows - bin.values)), &mut out);
    encode_column(bins.iter().map(|bin| u64::from(bin.posting_length)), &mut out);
    encode_column(bins.iter().map(|bin| u64::from(bin.order_length)), &mut out);
    Ok(out.into_vec())
}

/// Decodes a block whose first key the directory gave.
///
/// # Errors
/// Bytes that are not a block of bins of `key_type`.
pub fn decode(bytes: &[u8], first_key: &Key, key_type: &KeyType) -> Result<Vec<Bin>> {
    let Key::Fixed(first_key) = *first_key else {
        return Err(FormatError::invalid("the first key of a bin", "bytes", "a number"));
    };
    let mut input = ByteReader::new("a bin block", bytes);
    let count = decode_count(&mut input)?;
    let gaps = decode_numbers(&mut input, count - 1)?;
    let spreads = decode_numbers(&mut input, count)?;
    let values = decode_column(&mut input, count, "the values of a bin")?;
    let surplus = decode_column(&mut input, count, "the rows of a bin beyond one for each value")?;
    let postings = decode_column(&mut input, count, "the length of a posting")?;
    let orders = decode_column(&mut input, count, "the length of an order")?;
    input.finish()?;
    let beyond = || FormatError::invalid("a bin", "beyond the numbers of its fields", "64-bit keys and 32-bit rows");
    let mut bins: Vec<Bin> = Vec::with_capacity(count);
    // Before the first bin there is no gap.
    let steps = std::iter::once(None).chain(gaps.into_iter().map(Some));
    let columns = spreads.into_iter().zip(values).zip(surplus).zip(postings).zip(orders);
    for (gap, ((((spread, values), surplus), posting_length), order_length)) in steps.zip(columns) {
        let low = match (gap, bins.last()) {
            (Some(gap), Some(before)) => before.high.checked_add(gap).and_then(|key| key.checked_add(1)),
            _ => Some(first_key),
        };
        let low = low.ok_or_else(beyond)?;
        let span = spread.checked_add(u64::from(values).saturating_sub(1));
        let high = span.and_then(|span| low.checked_add(span)).ok_or_else(beyond)?;
        let rows = values.checked_add(surplus).ok_or_else(beyond)?;
        let bin = Bin { low, high, values, rows, posting_length, order_length };
        bin.check()?;
        bins.push(bin);
    }
    // Keys ascend: if the ends fit the type, all do.
    key_type.check(&Key::Fixed(first_key))?;
    bins.last().map_or(Ok(()), |last| key_type.check(&Key::Fixed(last.high)))?;
    Ok(bins)
}

fn encode_numbers(numbers: impl Iterator<Item = u64> + Clone, out: &mut ByteWriter) {
    let width = width_of(numbers.clone());
    out.u8(width);
    pack(numbers, width, out);
}

fn decode_numbers(input: &mut ByteReader<'_>, count: usize) -> Result<Vec<u64>> {
    let width = read_width(input)?;
    unpack(input, count, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bin(low: u64, high: u64, values: u32, rows: u32, order_length: u32) -> Bin {
        Bin { low, high, values, rows, posting_length: 3, order_length }
    }

    fn round_trip(bins: &[Bin]) -> usize {
        let bytes = encode(bins).unwrap();
        assert_eq!(decode(&bytes, &Key::Fixed(bins[0].low), &KeyType::UInt64).unwrap(), bins);
        bytes.len()
    }

    #[test]
    fn a_key_without_gaps_takes_bits_for_its_values_alone() {
        let bins: Vec<Bin> = (0..1000).map(|number| bin(number * 8, number * 8 + 7, 8, 8, 0)).collect();
        // The count, two widths, four columns of a number and a width.
        assert_eq!(round_trip(&bins), 2 + 2 + 4 * 2);
    }

    #[test]
    fn extreme_bins_are_kept() {
        round_trip(&[bin(0, 0, 1, u32::MAX, 0), bin(1, u64::MAX, 2, MAX_BIN_ROWS, u32::MAX)]);
        round_trip(&[bin(0, u64::MAX, 2, 2, 0)]);
    }

    #[test]
    fn bins_that_cannot_be_are_refused() {
        for wrong in [
            bin(5, 4, 1, 1, 0),
            bin(5, 6, 1, 1, 0),
            bin(5, 6, 3, 3, 0),
            bin(5, 6, 0, 1, 0),
            bin(5, 6, 2, 1, 0),
            bin(5, 6, 2, MAX_BIN_ROWS + 1, 0),
            bin(5, 5, 1, 1, 1),
            Bin { posting_length: 0, ..bin(5, 5, 1, 1, 0) },
        ] {
            assert!(encode(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(encode(&[bin(5, 9, 2, 2, 0), bin(9, 10, 2, 2, 0)]).is_err());
        assert!(encode(&[]).is_err());
    }

    proptest! {
        #[test]
        fn bins_round_trip(
            keys in prop::collection::btree_set(any::<u64>(), 2..200),
            numbers in prop::collection::vec((1u32..50, 0u32..90, 1u32.., any::<u32>()), 1..10),
        ) {
            let keys: Vec<u64> = keys.into_iter().collect();
            let ends = keys.chunks_exact(2).zip(numbers.iter().cycle());
            let bins: Vec<Bin> = ends.map(|(ends, &(values, surplus, posting_length, order_length))| {
                let (low, high) = (ends[0], ends[1]);
                let values = u64::from(values.max(2)).min((high - low).saturating_add(1)) as u32;
                Bin { low, high, values, rows: values + surplus, posting_length, order_length }
            }).collect();
            round_trip(&bins);
        }

        #[test]
        fn arbitrary_bytes_give_ascending_bins_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(bins) = decode(&bytes, &Key::Fixed(3), &KeyType::UInt64) {
                prop_assert!(bins.is_sorted_by(|a, b| a.high < b.low));
                prop_assert!(bins.iter().all(|bin| bin.check().is_ok()));
            }
        }
    }
}
