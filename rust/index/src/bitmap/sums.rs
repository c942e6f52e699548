//! Sums of selected rows by counting the bits of slices (O'Neil and Quass 1997, section 3.1), without a look at any row.
//!
//! Slices hold ranks. Where every value between the least and the greatest occurs, a value is the least one and its rank, so that
//!
//! ```text
//! sum of n selected rows = n · least + Σ 2^j · |slice j ∧ selected|
//! ```
//!
//! A sum becomes values with rows, like every count by value: [`DenseSlices::spread`] finds some that have it.

use std::ops::Range;

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::key::{Key, KeyType};
use lakemark_format::segment::encoding::CoarseLevel;
use lakemark_format::segment::{PostingRef, SegmentDirectory};

use super::groups::Mask;
use super::ranks::bitmap_ranges;

/// A value and how many rows have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueCount {
    /// The value.
    pub key: Key,
    /// Rows that have it.
    pub rows: u64,
}

/// A segment of slices in which every number between the least and the greatest one occurs.
#[derive(Debug)]
pub struct DenseSlices<'a> {
    directory: &'a SegmentDirectory,
    /// The key of the least value, as a number: as far from any other as the values are.
    least: u128,
    /// The rank of the greatest value.
    last: u64,
    ranges: Vec<Range<u64>>,
}

impl<'a> DenseSlices<'a> {
    /// None where slices give no sums: another encoding, values that are no numbers with the same distance everywhere, or gaps.
    #[must_use]
    pub fn of(directory: &'a SegmentDirectory) -> Option<Self> {
        let is_number = match directory.key_type {
            KeyType::Int8 | KeyType::Int16 | KeyType::Int32 | KeyType::Int64 => true,
            KeyType::UInt8 | KeyType::UInt16 | KeyType::UInt32 | KeyType::UInt64 => true,
            KeyType::Decimal { width_bits, .. } => width_bits <= 128,
            _ => false,
        };
        let is_sliced = directory.encoding.coarse_level() == Some(CoarseLevel::Slices);
        if !is_number || !is_sliced || directory.opaque.rows > 0 {
            return None;
        }
        let least = number(&directory.blocks.first()?.first_key)?;
        let last = directory.value_count.checked_sub(1)?;
        let is_dense = number(directory.max_key.as_ref()?)?.checked_sub(least)? == u128::from(last);
        let ranges = bitmap_ranges(directory).filter(|_| is_dense)?;
        Some(Self { directory, least, last, ranges })
    }

    /// Logical ranges of the slices, to be given to [`Self::sum`] in this order.
    #[must_use]
    pub fn slice_ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Bytes of all slices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The sum of the ranks of all rows, which takes no bytes.
    #[must_use]
    pub fn sum_of_all(&self) -> u128 {
        (0..).zip(self.slices()).map(|(number, slice)| u128::from(slice.rows) << number).sum()
    }

    /// The sum of the ranks of selected rows; `bytes` holds the slices. Rows without a value add nothing.
    ///
    /// # Errors
    /// Bytes that are not the slices of this segment.
    pub fn sum(&self, chosen: &Mask, bytes: &[Bytes]) -> Result<u128> {
        if bytes.len() != self.slices().len() {
            return Err(FormatError::invalid("the ranges read", bytes.len(), self.slices().len()));
        }
        let weighed = (0..).zip(self.slices()).zip(bytes).map(|((number, slice), bytes)| {
            let rows = chosen.count(bytes, *slice)?;
            Ok(u128::from(rows) << number)
        });
        weighed.sum()
    }

    /// Values with rows, `rows` in all, whose ranks have the sum `ranks`: as many of the least and of the greatest as can be, and
    /// one between them. Of all rows with this sum these lie furthest apart. So what bounds the size of their values bounds it for
    /// all.
    ///
    /// # Errors
    /// A sum that so many rows cannot have.
    pub fn spread(&self, rows: u64, ranks: u128) -> Result<Vec<ValueCount>> {
        let most = u128::from(self.last) * u128::from(rows);
        if ranks > most {
            return Err(FormatError::invalid("the sum of the ranks of rows", ranks, most));
        }
        let last = u128::from(self.last.max(1));
        let (greatest, rest) = ((ranks / last) as u64, ranks % last);
        let between = u64::from(rest > 0);
        let parts = [(0, rows - greatest - between), (rest, between), (u128::from(self.last), greatest)];
        let parts = parts.into_iter().filter(|(_, rows)| *rows > 0);
        Ok(parts.map(|(rank, rows)| ValueCount { key: self.key(rank), rows }).collect())
    }

    fn slices(&self) -> &[PostingRef] {
        &self.directory.bitmaps
    }

    fn key(&self, rank: u128) -> Key {
        let key = self.least + rank;
        match u64::try_from(key) {
            Ok(key) if self.directory.key_type.is_fixed() => Key::Fixed(key),
            _ => Key::Bytes(key.to_be_bytes().to_vec()),
        }
    }
}

/// A key of at most 128 bits as a number.
fn number(key: &Key) -> Option<u128> {
    match key {
        Key::Fixed(key) => Some(u128::from(*key)),
        Key::Bytes(bytes) => bytes.as_slice().try_into().map(u128::from_be_bytes).ok(),
    }
}
