//! Numbers of as many bits each, side by side, and columns of them: the least number, the width, and packed differences to the least (frames
//! of reference: Goldstein, Ramakrishnan and Shaft 1998).
//!
//! A number is found by its place alone, so that whoever needs few of many unpacks these.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};

/// Appends a column.
pub(crate) fn encode_column(numbers: impl Iterator<Item = u64> + Clone, out: &mut ByteWriter) {
    let least = numbers.clone().min().unwrap_or(0);
    let width = width_of(numbers.clone().map(|number| number - least));
    out.varint(least);
    out.u8(width);
    pack(numbers.map(|number| number - least), width, out);
}

/// All numbers of a column.
pub(crate) fn decode_column(input: &mut ByteReader<'_>, count: usize, what: &'static str) -> Result<Vec<u32>> {
    let Column { least, differences, .. } = Column::read(input, count, what)?;
    // Judged once for all of them: a test of each takes longer than the rest.
    let mut largest = 0;
    let numbers = (0..count).map(|place| {
        let difference = differences.get(place);
        largest = difference.max(largest);
        least.wrapping_add(difference as u32)
    });
    let column = numbers.collect();
    match largest <= u64::from(u32::MAX - least) {
        true => Ok(column),
        false => Err(FormatError::invalid(what, "beyond 32 bits", "a 32-bit number")),
    }
}

/// A column whose numbers are unpacked where they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    /// What the numbers are.
    what: &'static str,
    least: u32,
    differences: PackedNumbers<'a>,
}

impl<'a> Column<'a> {
    /// Steps over a column of so many numbers.
    pub(crate) fn read(input: &mut ByteReader<'a>, count: usize, what: &'static str) -> Result<Self> {
        let least = input.varint_u32(what)?;
        let width = read_width(input)?;
        Ok(Self { what, least, differences: PackedNumbers::read(input, count, width)? })
    }

    /// The number at a place, which is below their count.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Result<u32> {
        let difference = u32::try_from(self.differences.get(place)).ok();
        let number = difference.and_then(|difference| self.least.checked_add(difference));
        number.ok_or_else(|| FormatError::invalid(self.what, "beyond 32 bits", "a 32-bit number"))
    }
}

/// The numbers that [`pack`] wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedNumbers<'a> {
    bytes: &'a [u8],
    width: usize,
    mask: u64,
}

impl<'a> PackedNumbers<'a> {
    /// Steps over so many numbers of `width` bits each.
    pub(crate) fn read(input: &mut ByteReader<'a>, count: usize, width: u8) -> Result<Self> {
        let width = usize::from(width);
        let bytes = input.bytes((count * width).div_ceil(8))?;
        let unused = 64usize.saturating_sub(width) as u32;
        Ok(Self { bytes, width, mask: u64::MAX.checked_shr(unused).unwrap_or(0) })
    }

    /// The number at a place, which is below their count.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> u64 {
        let (byte, shift) = (place * self.width / 8, place * self.width % 8);
        let low = word_at(self.bytes, byte) >> shift;
        // The rest of a wide number is in a ninth byte.
        let is_wide = shift + self.width > 64;
        let high = if is_wide { self.bytes.get(byte + 8).copied().unwrap_or(0) } else { 0 };
        (low | u64::from(high).wrapping_shl(64 - shift as u32)) & self.mask
    }
}

/// How many bits the largest of the numbers needs.
pub(crate) fn width_of(numbers: impl Iterator<Item = u64>) -> u8 {
    (u64::BITS - numbers.fold(0, |all, number| all | number).leading_zeros()) as u8
}

pub(crate) fn read_width(input: &mut ByteReader<'_>) -> Result<u8> {
    match input.u8()? {
        width if u32::from(width) <= u64::BITS => Ok(width),
        other => Err(FormatError::invalid("a bit width", other, "0 to 64")),
    }
}

/// Appends numbers of `width` bits each, low bits first, padded with zeros to a byte.
pub(crate) fn pack(numbers: impl Iterator<Item = u64>, width: u8, out: &mut ByteWriter) {
    let mut bits = BitWriter::new(out);
    numbers.for_each(|number| bits.push(number, width));
    bits.end();
}

/// Writes numbers bit by bit, low bits first.
struct BitWriter<'a> {
    out: &'a mut ByteWriter,
    pending: u128,
    /// How many bits are pending.
    bits: u32,
}

impl<'a> BitWriter<'a> {
    fn new(out: &'a mut ByteWriter) -> Self {
        Self { out, pending: 0, bits: 0 }
    }

    fn push(&mut self, number: u64, width: u8) {
        self.pending |= u128::from(number) << self.bits;
        self.bits += u32::from(width);
        while self.bits >= 8 {
            self.out.u8(self.pending as u8);
            self.pending >>= 8;
            self.bits -= 8;
        }
    }

    /// Pads the last byte with zeros.
    fn end(self) {
        if self.bits > 0 {
            self.out.u8(self.pending as u8);
        }
    }
}

/// All numbers that [`pack`] wrote.
pub(crate) fn unpack(input: &mut ByteReader<'_>, count: usize, width: u8) -> Result<Vec<u64>> {
    let numbers = PackedNumbers::read(input, count, width)?;
    Ok((0..count).map(|place| numbers.get(place)).collect())
}

/// How many bits the largest of numbers of up to 128 bits needs.
pub(crate) fn width_of_wide(numbers: impl Iterator<Item = u128>) -> u8 {
    (u128::BITS - numbers.fold(0, |all, number| all | number).leading_zeros()) as u8
}

/// Appends numbers of `width` bits each, 128 at most, as [`pack`] does narrower ones.
pub(crate) fn pack_wide(numbers: impl Iterator<Item = u128>, width: u8, out: &mut ByteWriter) {
    let halves = [width.min(HALF_BITS), width.saturating_sub(HALF_BITS)];
    let mut bits = BitWriter::new(out);
    for number in numbers {
        for (half, width) in [number as u64, (number >> HALF_BITS) as u64].into_iter().zip(halves) {
            bits.push(half, width);
        }
    }
    bits.end();
}

/// All numbers that [`pack_wide`] wrote, of at most 128 bits each.
pub(crate) fn unpack_wide(input: &mut ByteReader<'_>, count: usize, width: u8) -> Result<Vec<u128>> {
    let width = usize::from(width);
    let bytes = input.bytes((count * width).div_ceil(8))?;
    let half = usize::from(HALF_BITS);
    let number = |place: usize| {
        let at = place * width;
        let high = bits_at(bytes, at + half, width.saturating_sub(half));
        u128::from(bits_at(bytes, at, width.min(half))) | u128::from(high) << HALF_BITS
    };
    Ok((0..count).map(number).collect())
}

/// Bits of half of a wide number.
const HALF_BITS: u8 = 64;

/// So many bits, 64 at most, from a place on.
fn bits_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    let unused = usize::from(HALF_BITS).saturating_sub(width) as u32;
    let mask = u64::MAX.checked_shr(unused).unwrap_or(0);
    (wide_word_at(bytes, at / 8) >> (at % 8)) as u64 & mask
}

/// Eight bytes from a place on; behind the last one are zeros.
#[inline]
pub(crate) fn word_at(bytes: &[u8], place: usize) -> u64 {
    match bytes.get(place..).and_then(|bytes| bytes.first_chunk()) {
        Some(word) => u64::from_le_bytes(*word),
        None => u64::from_le_bytes(last_bytes(bytes, place)),
    }
}

/// Sixteen bytes from a place on; behind the last one are zeros.
#[inline]
pub(crate) fn wide_word_at(bytes: &[u8], place: usize) -> u128 {
    match bytes.get(place..).and_then(|bytes| bytes.first_chunk()) {
        Some(word) => u128::from_le_bytes(*word),
        None => u128::from_le_bytes(last_bytes(bytes, place)),
    }
}

#[cold]
fn last_bytes<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    let mut word = [0; N];
    word.iter_mut().zip(bytes.iter().skip(place)).for_each(|(to, from)| *to = *from);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_their_type_are_refused() {
        let column = |least: u32, differences: &[u64]| {
            let mut out = ByteWriter::new();
            out.varint(u64::from(least));
            let width = width_of(differences.iter().copied());
            out.u8(width);
            pack(differences.iter().copied(), width, &mut out);
            let bytes = out.into_vec();
            let lazy = Column::read(&mut ByteReader::new("numbers", &bytes), differences.len(), "a number").unwrap();
            let one_by_one: Result<Vec<u32>> = (0..differences.len()).map(|place| lazy.get(place)).collect();
            let all = decode_column(&mut ByteReader::new("numbers", &bytes), differences.len(), "a number");
            assert_eq!(one_by_one.is_ok(), all.is_ok());
            assert!(all.is_err() || all.as_ref().ok() == one_by_one.as_ref().ok());
            all
        };
        assert_eq!(column(7, &[0, u64::from(u32::MAX) - 7]).unwrap(), [7, u32::MAX]);
        assert!(column(7, &[u64::from(u32::MAX) - 6, 0]).is_err());
        assert!(column(0, &[1, 1 << 40, 2]).is_err());
    }

    #[test]
    fn wide_numbers_of_every_width_come_back() {
        for width in 0..=128u8 {
            let mask = u128::MAX.checked_shr(128 - u32::from(width)).unwrap_or(0);
            for count in [1, 2, 7, 8, 9, 64] {
                let spread = |number: u128| number.wrapping_mul(0x9E37_79B9_7F4A_7C15_BF58_476D_1CE4_E5B9) & mask;
                let numbers: Vec<u128> = (1..=count).map(|number| spread(number as u128)).chain([mask]).collect();
                assert!(width_of_wide(numbers.iter().copied()) == width, "{width} bits");
                let mut out = ByteWriter::new();
                pack_wide(numbers.iter().copied(), width, &mut out);
                let bytes = out.into_vec();
                assert_eq!(bytes.len(), (numbers.len() * usize::from(width)).div_ceil(8));
                let mut input = ByteReader::new("numbers", &bytes);
                assert_eq!(unpack_wide(&mut input, numbers.len(), width).unwrap(), numbers, "{count} of {width} bits");
                input.finish().unwrap();
            }
        }
    }

    #[test]
    fn wide_varints_have_one_form() {
        let read = |bytes: &[u8]| ByteReader::new("a number", bytes).varint_wide();
        for number in [0, 1, 127, 128, u128::from(u64::MAX), u128::MAX >> 1, u128::MAX] {
            let mut out = ByteWriter::new();
            out.varint_wide(number);
            assert_eq!(read(out.as_slice()).unwrap(), number);
            assert!(read(&out.as_slice()[..out.len() - 1]).is_err());
        }
        assert!(read(&[0x80, 0]).is_err(), "padded with zeros");
        assert!(read(&[vec![0xff; 18], vec![4]].concat()).is_err(), "129 bits");
        assert!(read(&[0xff; 19]).is_err(), "without an end");
    }

    #[test]
    fn numbers_of_every_width_come_back() {
        for width in 0..=64u8 {
            let mask = u64::MAX.checked_shr(64 - u32::from(width)).unwrap_or(0);
            for count in [1, 2, 7, 8, 9, 64] {
                let numbers: Vec<u64> =
                    (1..=count as u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask).collect();
                let mut out = ByteWriter::new();
                pack(numbers.iter().copied(), width, &mut out);
                let bytes = out.into_vec();
                let mut input = ByteReader::new("numbers", &bytes);
                assert_eq!(unpack(&mut input, count, width).unwrap(), numbers, "{count} of {width} bits");
                input.finish().unwrap();
            }
        }
    }
}
