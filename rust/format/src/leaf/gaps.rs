//! Gaps between keys: packed to the width of the largest, or Rice codes where that is smaller.
//!
//! ```text
//! width     0 to 64: every gap in so many bits; 65 + l: Rice codes with l low bits
//! Rice      low bits packed, then for every gap its high part in unary: as many 0 bits, then a 1
//! ```
//!
//! Gaps of spread keys are geometric: Rice codes take about 1.5 bits more than the mean's logarithm, packing 2.5.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::packed::{PackedNumbers, pack, width_of, word_at};

/// Width codes above 64 are Rice codes with one low bit for each more.
const RICE: u8 = 65;

pub(crate) fn encode(gaps: &[u64], out: &mut ByteWriter) {
    let width = width_of(gaps.iter().copied());
    let packed = (gaps.len() * usize::from(width)).div_ceil(8);
    match best_rice(gaps).filter(|code| code.bytes < packed) {
        None => {
            out.u8(width);
            pack(gaps.iter().copied(), width, out);
        }
        Some(RiceCode { low_bits: low, .. }) => {
            out.u8(RICE + low);
            pack(gaps.iter().map(|gap| gap & ((1 << low) - 1)), low, out);
            let ends = gaps.iter().scan(0u64, |end, gap| {
                *end += (gap >> low) + 1;
                Some(*end - 1)
            });
            let mut unary = Vec::new();
            for end in ends {
                unary.resize(end as usize / 8 + 1, 0u8);
                if let Some(byte) = unary.last_mut() {
                    *byte |= 1 << (end % 8);
                }
            }
            out.bytes(&unary);
        }
    }
}

/// Gaps as Rice codes.
struct RiceCode {
    low_bits: u8,
    /// Bytes of all of them.
    bytes: usize,
}

/// The Rice codes that are smallest.
fn best_rice(gaps: &[u64]) -> Option<RiceCode> {
    if gaps.is_empty() {
        return None;
    }
    let mean = gaps.iter().map(|gap| u128::from(*gap)).sum::<u128>() / gaps.len() as u128;
    let about = (u128::BITS - mean.leading_zeros()).min(63) as u8;
    let bytes = |low: u8| {
        let high: u128 = gaps.iter().map(|gap| u128::from(gap >> low) + 1).sum();
        (gaps.len() * usize::from(low)).div_ceil(8) + usize::try_from(high.div_ceil(8)).unwrap_or(usize::MAX / 2)
    };
    let code = |low_bits: u8| RiceCode { low_bits, bytes: bytes(low_bits) };
    (about.saturating_sub(2)..=about).map(code).min_by_key(|code| code.bytes)
}

/// Steps over so many gaps.
pub(super) fn skip(input: &mut ByteReader<'_>, count: usize) -> Result<()> {
    let packed = |width: u8| (count * usize::from(width)).div_ceil(8);
    let width = input.u8()?;
    if width < RICE {
        return input.bytes(packed(width)).map(drop);
    }
    input.bytes(packed(low_bits(width)?))?;
    let mut left = count;
    while left > 0 {
        left = left.saturating_sub(input.u8()?.count_ones() as usize);
    }
    Ok(())
}

/// The low bits of Rice codes.
fn low_bits(width: u8) -> Result<u8> {
    match width - RICE {
        low @ 0..64 => Ok(low),
        _ => Err(FormatError::invalid("the width of gaps", width, "0 to 128")),
    }
}

/// Reads as many gaps as there is room for.
pub(crate) fn decode(input: &mut ByteReader<'_>, gaps: &mut [u64]) -> Result<()> {
    let width = input.u8()?;
    let low = if width < RICE { width } else { low_bits(width)? };
    let numbers = PackedNumbers::read(input, gaps.len(), low)?;
    gaps.iter_mut().enumerate().for_each(|(place, gap)| *gap = numbers.get(place));
    if width < RICE { Ok(()) } else { add_high(input, low, gaps) }
}

/// Adds the high parts, each as many zeros as its number and a one behind them.
fn add_high(input: &mut ByteReader<'_>, low: u8, gaps: &mut [u64]) -> Result<()> {
    let beyond = || FormatError::invalid("a gap between keys", "beyond 64 bits", "a 64-bit number");
    let bytes = input.rest();
    // The next bit to be looked at, of all and of those of a word that are left.
    let (mut at, mut bits) = (0usize, word_at(bytes, 0));
    let mut left = u64::BITS;
    for gap in gaps {
        let mut high = 0u64;
        while bits == 0 {
            high += u64::from(left);
            at += size_of::<u64>();
            if at >= bytes.len() {
                return Err(FormatError::Truncated { what: "gaps", got: bytes.len() as u64, expected: at as u64 + 1 });
            }
            (bits, left) = (word_at(bytes, at), u64::BITS);
        }
        let zeros = bits.trailing_zeros();
        high += u64::from(zeros);
        left -= zeros + 1;
        // A shift by all bits empties the word.
        bits = bits.checked_shr(zeros + 1).unwrap_or(0);
        *gap |= high.checked_mul(1 << low).ok_or_else(beyond)?;
    }
    // The byte of the last one is the last byte.
    input.bytes(at + ((u64::BITS - left) as usize).div_ceil(8)).map(drop)
}
