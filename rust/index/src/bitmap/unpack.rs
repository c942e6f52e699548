//! The coarse level taken apart again: the bin of every row, from the bitmaps that hold it.
//!
//! A search never needs this; a verification does, and it believes nothing: bitmaps that no bin explains are an error.

use lakemark_format::error::{FormatError, Result};
use lakemark_format::segment::SegmentDirectory;
use lakemark_format::segment::encoding::CoarseLevel;

/// The bitmaps that hold a row.
#[derive(Clone, Copy, Debug, Default)]
struct HoldingBitmaps {
    /// The first of them; of slices, the bits of the bin.
    first: u32,
    /// How many there are; not counted of slices.
    count: u32,
}

/// Gathers the bitmaps of a segment, by ascending number.
#[derive(Debug)]
pub struct RowBins {
    level: CoarseLevel,
    bins: u64,
    /// For each row.
    rows: Vec<HoldingBitmaps>,
    broken: bool,
}

impl RowBins {
    /// Starts with no bitmap; none without a coarse level.
    #[must_use]
    pub fn new(directory: &SegmentDirectory) -> Option<Self> {
        let level = directory.encoding.coarse_level()?;
        let rows = vec![HoldingBitmaps::default(); directory.universe as usize];
        Some(Self { level, bins: directory.bin_count(), rows, broken: false })
    }

    /// Adds the rows of a bitmap.
    pub fn add(&mut self, number: u32, rows: &[u32]) {
        for row in rows {
            let Some(HoldingBitmaps { first, count }) = self.rows.get_mut(*row as usize) else { continue };
            match self.level {
                CoarseLevel::Slices => *first |= 1u32.checked_shl(number).unwrap_or(0),
                CoarseLevel::Range | CoarseLevel::Interval => {
                    if *count == 0 {
                        *first = number;
                    }
                    self.broken |= *first + *count != number;
                    *count += 1;
                }
            }
        }
    }

    /// The bin of each row of the row space. Rows in no bitmap have the bin that no bitmap holds, also where they have no value.
    ///
    /// # Errors
    /// A row whose bitmaps are those of no bin.
    pub fn finish(self) -> Result<Vec<u32>> {
        let error = || FormatError::invalid("the bitmaps of a row", "of no bin", "those of a bin");
        if self.broken {
            return Err(error());
        }
        let last = self.bins.saturating_sub(1);
        let width = self.bins / 2;
        let bitmaps = self.level.bitmaps(self.bins);
        let bin = |held: HoldingBitmaps| {
            let (first, count) = (u64::from(held.first), u64::from(held.count));
            let bin = match self.level {
                CoarseLevel::Slices => return (first <= last).then_some(first as u32),
                _ if count == 0 => last,
                CoarseLevel::Range => first,
                // The bitmaps of a bin begin with it, or as far below it as they reach.
                CoarseLevel::Interval if first == 0 => count - 1,
                CoarseLevel::Interval => first + width - 1,
            };
            // The bitmaps follow each other, so both ends say all.
            let holds = |bitmap: u64| bitmap < bitmaps && self.level.holds(self.bins, bitmap, bin);
            let ends = count == 0 || (holds(first) && holds(first + count - 1));
            let outside = !holds(first + count) && first.checked_sub(1).is_none_or(|before| !holds(before));
            (bin <= last && ends && outside).then_some(bin as u32)
        };
        self.rows.into_iter().map(bin).collect::<Option<Vec<u32>>>().ok_or_else(error)
    }
}
