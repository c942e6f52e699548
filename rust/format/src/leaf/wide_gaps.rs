//! Numbers of up to 128 bits that are small more often than not: packed to the width of the largest, or Rice codes where that is smaller.
//!
//! ```text
//! width     0 to 128: every number in so many bits; 129 + l: Rice codes with l low bits, 126 at most
//! ```
//!
//! The rest is as in [`super::gaps`].

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::packed::{pack_wide, unpack_wide, width_of_wide};

/// Width codes above 128 are Rice codes with one low bit for each more.
const RICE: u8 = 129;
/// As many as there are codes for.
const MAX_LOW_BITS: u8 = u8::MAX - RICE;

pub(super) fn encode(numbers: &[u128], out: &mut ByteWriter) {
    let width = width_of_wide(numbers.iter().copied());
    let packed = (numbers.len() * usize::from(width)).div_ceil(8);
    let Some(RiceCode { low_bits: low, .. }) = best_rice(numbers).filter(|code| code.bytes < packed) else {
        out.u8(width);
        pack_wide(numbers.iter().copied(), width, out);
        return;
    };
    out.u8(RICE + low);
    pack_wide(numbers.iter().map(|number| number & ((1 << low) - 1)), low, out);
    let (mut unary, mut end) = (Vec::new(), 0usize);
    for number in numbers {
        // Codes that are shorter than packed numbers have short high parts.
        end += (number >> low) as usize;
        unary.resize(end / 8 + 1, 0u8);
        if let Some(byte) = unary.last_mut() {
            *byte |= 1 << (end % 8);
        }
        end += 1;
    }
    out.bytes(&unary);
}

/// Numbers as Rice codes.
struct RiceCode {
    low_bits: u8,
    /// Bytes of all of them.
    bytes: usize,
}

/// The Rice codes that are smallest.
fn best_rice(numbers: &[u128]) -> Option<RiceCode> {
    let count = numbers.len() as u128;
    if count == 0 {
        return None;
    }
    let total = numbers.iter().try_fold(0u128, |total, number| total.checked_add(*number));
    let mean = total.map_or_else(|| numbers.iter().map(|number| number / count).sum(), |total| total / count);
    let about = (u128::BITS - mean.leading_zeros()).min(u32::from(MAX_LOW_BITS)) as u8;
    let bytes = |low: u8| {
        let high = numbers.iter().fold(0u128, |all, number| all.saturating_add(number >> low).saturating_add(1));
        let low = (numbers.len() * usize::from(low)).div_ceil(8);
        low.saturating_add(usize::try_from(high.div_ceil(8)).unwrap_or(usize::MAX))
    };
    let code = |low_bits: u8| RiceCode { low_bits, bytes: bytes(low_bits) };
    (about.saturating_sub(2)..=about).map(code).min_by_key(|code| code.bytes)
}

/// Reads so many numbers.
pub(super) fn decode(input: &mut ByteReader<'_>, count: usize) -> Result<Vec<u128>> {
    let width = input.u8()?;
    let Some(low) = width.checked_sub(RICE) else { return unpack_wide(input, count, width) };
    let mut numbers = unpack_wide(input, count, low)?;
    let bytes = input.rest();
    let mut at = 0;
    for number in &mut numbers {
        let Some(one) = next_one(bytes, at) else {
            return Err(FormatError::Truncated {
                what: "numbers",
                got: bytes.len() as u64,
                expected: bytes.len() as u64 + 1,
            });
        };
        let high = ((one - at) as u128).checked_mul(1 << low);
        let Some(high) = high else {
            return Err(FormatError::invalid("a number", "beyond 128 bits", "a 128-bit number"));
        };
        *number |= high;
        at = one + 1;
    }
    // The byte of the last one is the last byte.
    input.bytes(at.div_ceil(8)).map(drop)?;
    Ok(numbers)
}

/// The place of the first bit from a place on that is set.
fn next_one(bytes: &[u8], from: usize) -> Option<usize> {
    let mut place = from / 8;
    let mut byte = *bytes.get(place)? & (u8::MAX << (from % 8));
    while byte == 0 {
        place += 1;
        byte = *bytes.get(place)?;
    }
    Some(place * 8 + byte.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(numbers: &[u128]) -> usize {
        let mut out = ByteWriter::new();
        encode(numbers, &mut out);
        let bytes = out.into_vec();
        let mut input = ByteReader::new("numbers", &bytes);
        assert_eq!(decode(&mut input, numbers.len()).unwrap(), numbers);
        input.finish().unwrap();
        bytes.len()
    }

    #[test]
    fn numbers_beyond_sums_of_128_bits_are_kept() {
        round_trip(&[]);
        round_trip(&[u128::MAX; 3]);
        round_trip(&[0, u128::MAX, 0, 1]);
        assert_eq!(round_trip(&[0; 100]), 1);
        // One of a hundred is large: codes of the mean take fewer bits than it does.
        assert!(round_trip(&[vec![3u128; 99], vec![1u128 << 100]].concat()) < (100usize * 101).div_ceil(8));
    }

    #[test]
    fn codes_of_a_high_part_that_does_not_fit_are_refused() {
        // 126 low bits, and 4 zeros before the one.
        let bytes = [vec![u8::MAX], vec![0; 16], vec![0b1_0000]].concat();
        assert!(decode(&mut ByteReader::new("numbers", &bytes), 1).is_err());
        let cut = [RICE, 0, 0];
        assert!(decode(&mut ByteReader::new("numbers", &cut), 1).is_err(), "no one");
    }

    proptest! {
        #[test]
        fn wide_numbers_round_trip(numbers in prop::collection::vec(any::<u128>(), 0..128), shift in 0u32..128) {
            round_trip(&numbers.into_iter().map(|number| number >> shift).collect::<Vec<_>>());
        }

        #[test]
        fn arbitrary_bytes_are_numbers_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..90), count in 0usize..64) {
            let mut input = ByteReader::new("numbers", &bytes);
            if let Ok(numbers) = decode(&mut input, count) {
                prop_assert_eq!(numbers.len(), count);
            }
        }
    }
}
