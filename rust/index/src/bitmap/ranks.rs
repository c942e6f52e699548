//! Counting selected rows by value where no value has a posting: from the bitmaps of the coarse level, every value being its
//! own bin.
//!
//! ```text
//! slices       the number of every selected row is put together from them
//! range        |bitmap j| - |bitmap j - 1| selected rows have rank j
//! interval     bitmap j without bitmap j + 1 is rank j, bitmap j + 1 without bitmap j is rank j + floor(K / 2)
//! ```

use std::ops::Range;

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::segment::encoding::CoarseLevel;
use lakemark_format::segment::{PostingRef, SegmentDirectory};

use super::groups::Mask;
use super::slices::{BitSlice, count_numbers};

/// Logical ranges of the bitmaps by which [`Mask::count_ranks`] counts rows by value; none if values have postings.
#[must_use]
pub fn bitmap_ranges(directory: &SegmentDirectory) -> Option<Vec<Range<u64>>> {
    let range = |bitmap: &PostingRef| bitmap.offset..bitmap.offset + u64::from(bitmap.length);
    (!directory.encoding.has_postings()).then(|| directory.bitmaps.iter().map(range).collect())
}

/// A bitmap of the coarse level that was read.
struct ReadBitmap<'a> {
    list: PostingRef,
    bytes: &'a [u8],
}

impl ReadBitmap<'_> {
    fn decode(&self, universe: u32) -> Result<BitSlice> {
        BitSlice::decode(self.bytes, self.list.rows, universe)
    }
}

impl Mask {
    /// How many selected rows have each rank, one number for each value of the segment; `bytes` holds the bytes of
    /// [`bitmap_ranges`]. Rows that have no value must not be selected, or are counted with any rank.
    ///
    /// # Errors
    /// Bytes that are not the bitmaps of this directory; an encoding with postings.
    pub fn count_ranks(&self, directory: &SegmentDirectory, bytes: &[Bytes]) -> Result<Vec<u64>> {
        let wanted = directory.bitmaps.len();
        if bytes.len() != wanted {
            return Err(FormatError::invalid("the ranges read", bytes.len(), wanted));
        }
        let values = usize::try_from(directory.value_count)
            .map_err(|_| FormatError::invalid("the values of a segment", directory.value_count, usize::MAX))?;
        let bitmaps = directory.bitmaps.iter().zip(bytes).map(|(list, bytes)| ReadBitmap { list: *list, bytes });
        match (directory.encoding.has_fine_level(), directory.encoding.coarse_level()) {
            (false, Some(CoarseLevel::Slices)) => {
                let slices = bitmaps.map(|read| read.decode(directory.universe)).collect::<Result<Vec<_>>>()?;
                count_numbers(&slices, self.words(), values)
                    .ok_or_else(|| FormatError::invalid("the rank of a row", "too large", values))
            }
            (false, Some(CoarseLevel::Range)) => {
                let up_to = bitmaps.map(|read| self.count(read.bytes, read.list)).chain([Ok(self.rows())]);
                steps(&up_to.take(values).collect::<Result<Vec<_>>>()?)
            }
            (false, Some(CoarseLevel::Interval)) => self.count_intervals(bitmaps, values, directory.universe),
            _ => Err(FormatError::invalid(
                "the encoding of a segment",
                directory.encoding.name(),
                "one without postings",
            )),
        }
    }

    fn count_intervals<'a>(
        &self,
        bitmaps: impl Iterator<Item = ReadBitmap<'a>>,
        values: usize,
        universe: u32,
    ) -> Result<Vec<u64>> {
        let mut counts = vec![0; values];
        let mut set = |rank: usize, rows: u64| {
            if let Some(slot) = counts.get_mut(rank) {
                *slot = rows;
            }
        };
        let width = values / 2;
        let mut last: Option<(usize, BitSlice)> = None;
        for (number, read) in bitmaps.enumerate() {
            let bitmap = read.decode(universe)?;
            if let Some((before, earlier)) = &last {
                set(*before, self.without(earlier, &bitmap));
                set(before + width, self.without(&bitmap, earlier));
            }
            last = Some((number, bitmap));
        }
        // If the ranks are even in number, the first rank of the last bitmap is still open, and the last rank is in no bitmap.
        if let Some((number, bitmap)) = last.filter(|_| values.is_multiple_of(2)) {
            let all =
                self.words().iter().zip(bitmap.words()).map(|(chosen, bits)| u64::from((chosen & bits).count_ones()));
            let known: u64 = counts.iter().skip(number + 1).take(width.saturating_sub(1)).sum();
            let left = all.sum::<u64>().checked_sub(known);
            if let (Some(slot), Some(left)) = (counts.get_mut(number), left) {
                *slot = left;
            }
        }
        let known: u64 = counts.iter().sum();
        let left = self.rows().checked_sub(known);
        match (counts.last_mut(), left) {
            (Some(slot), Some(left)) => *slot = left,
            (None, Some(_)) => {}
            (_, None) => return Err(FormatError::invalid("the rows of all ranks", known, self.rows())),
        }
        Ok(counts)
    }

    /// Selected rows that are in one bitmap and not in the other.
    fn without(&self, one: &BitSlice, other: &BitSlice) -> u64 {
        let words = self.words().iter().zip(one.words()).zip(other.words());
        words.map(|((chosen, one), other)| u64::from((chosen & one & !other).count_ones())).sum()
    }
}

/// What each number adds to the one before.
fn steps(numbers: &[u64]) -> Result<Vec<u64>> {
    let before = std::iter::once(&0).chain(numbers);
    let step = |(number, before): (&u64, &u64)| {
        let step = number.checked_sub(*before);
        step.ok_or_else(|| FormatError::invalid("the rows of a bitmap", number, "those of the one before, and more"))
    };
    numbers.iter().zip(before).map(step).collect()
}
