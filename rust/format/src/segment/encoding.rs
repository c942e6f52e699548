//! Encodings: in which bitmaps a segment says which rows hold which value.
//!
//! The distinct values of a segment have *ranks*, 0 for the smallest, and neighbouring ranks form *bins*. The *fine
//! level* has one posting for each value; the *coarse level* has bitmaps over the bins, in one of three ways:
//!
//! ```text
//! K bins        bitmap j holds the rows whose bin is                  bitmaps
//! slices        a number with bit j set                               bits of K - 1
//! range         at most j                                             K - 1
//! interval      j, j + 1, … j + floor(K / 2) - 1                      ceil(K / 2)
//! ```
//!
//! A range of bins is at most two bitmaps of the range or of the interval level (Chan and Ioannidis 1998 and 1999). Of slices it
//! is all of them (O'Neil and Quass 1997). The encoding `binned` has one level, the postings of bins. The bins say themselves
//! where inside them a row belongs ([`crate::bin_block`]). The encoding `packed` has leaves instead of value blocks and postings
//! ([`crate::leaf`]), and `linked` has leaves of links ([`crate::links`]). The encodings `filtered` and `sliced` have Bloom
//! filters of zones and no values ([`crate::zones`]). With every other encoding the value blocks say which values exist, and in how many rows.

use std::fmt;

use crate::error::{FormatError, Result};
use crate::name_of::HasName;

/// The most bitmaps of a coarse level. Part of the format.
pub const MAX_COARSE_BITMAPS: usize = 4096;

/// Which levels a segment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    /// The fine level alone.
    #[default]
    Equality,
    /// Slices, every value its own bin.
    Binary,
    /// The range level, every value its own bin.
    Range,
    /// The interval level, every value its own bin.
    Interval,
    /// The interval level over bins of several values, and the fine level.
    IntervalEquality,
    /// The range level over bins of several values, and the fine level.
    RangeEquality,
    /// A posting for each bin of values, and the order of keys and rows inside.
    Binned,
    /// Leaves of a packed tree, each with its keys and their rows: the kind `key`.
    Packed,
    /// Fences and a Bloom filter for each zone of rows: the kind `bloom_tree`.
    Filtered,
    /// Bloom filters of zones, cut into slices: the kind `summary`.
    Sliced,
    /// Leaves of links, each with a near end, a predicate and a far end: the kind `links`.
    Linked,
}

/// How the bitmaps of a coarse level are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoarseLevel {
    /// Bit slices of the bin's number.
    Slices,
    /// Bins up to one.
    Range,
    /// About half of the bins each, beginning with every bin of the lower half.
    Interval,
}

impl Encoding {
    /// All that an index over one column can have, in the order of their codes. [`Self::Linked`] follows them.
    pub const ALL: [Self; 10] = {
        let [a, b, c, d, e, f, g, h] = Self::EXACT;
        [a, b, c, d, e, f, g, h, Self::Filtered, Self::Sliced]
    };

    /// Those that know which rows hold which value: of the kinds `bitmap` and `key`.
    pub const EXACT: [Self; 8] = {
        let [a, b, c, d, e, f, g] = Self::BITMAP;
        [a, b, c, d, e, f, g, Self::Packed]
    };

    /// Those of the kind `bitmap`.
    pub const BITMAP: [Self; 7] = [
        Self::Equality,
        Self::Binary,
        Self::Range,
        Self::Interval,
        Self::IntervalEquality,
        Self::RangeEquality,
        Self::Binned,
    ];

    /// The name in options and lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equality => "equality",
            Self::Binary => "binary",
            Self::Range => "range",
            Self::Interval => "interval",
            Self::IntervalEquality => "interval-equality",
            Self::RangeEquality => "range-equality",
            Self::Binned => "binned",
            Self::Packed => "packed",
            Self::Filtered => "filtered",
            Self::Sliced => "sliced",
            Self::Linked => "linked",
        }
    }

    /// The encoding of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::each().find(|encoding| encoding.name() == name)
    }

    /// The code in a segment's directory.
    pub fn code(self) -> u8 {
        match self {
            Self::Equality => 1,
            Self::Binary => 2,
            Self::Range => 3,
            Self::Interval => 4,
            Self::IntervalEquality => 5,
            Self::RangeEquality => 6,
            Self::Binned => 7,
            Self::Packed => 8,
            Self::Filtered => 9,
            Self::Sliced => 10,
            Self::Linked => 11,
        }
    }

    /// The encoding of a code.
    pub fn from_code(code: u8) -> Result<Self> {
        let found = Self::each().find(|encoding| encoding.code() == code);
        found.ok_or_else(|| FormatError::invalid("the encoding of a segment", code, "1 to 11"))
    }

    fn each() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain([Self::Linked])
    }

    /// Whether there are zones with filters, and no values.
    pub fn has_zones(self) -> bool {
        matches!(self, Self::Filtered | Self::Sliced)
    }

    /// Whether every value has a posting.
    pub fn has_fine_level(self) -> bool {
        matches!(self, Self::Equality | Self::IntervalEquality | Self::RangeEquality)
    }

    /// Whether blocks point at postings: of values, or of bins; of a leaf these are the long ones, or the rows of its links.
    pub fn has_postings(self) -> bool {
        self.has_fine_level() || matches!(self, Self::Binned | Self::Packed | Self::Linked)
    }

    /// Whether a coarse level is over bins of several values, so that the directory lists them.
    pub fn has_bins(self) -> bool {
        matches!(self, Self::IntervalEquality | Self::RangeEquality)
    }

    /// The coarse level, if there is one.
    pub fn coarse_level(self) -> Option<CoarseLevel> {
        match self {
            Self::Equality | Self::Binned | Self::Packed | Self::Filtered | Self::Sliced | Self::Linked => None,
            Self::Binary => Some(CoarseLevel::Slices),
            Self::Range | Self::RangeEquality => Some(CoarseLevel::Range),
            Self::Interval | Self::IntervalEquality => Some(CoarseLevel::Interval),
        }
    }
}

impl HasName for Encoding {
    fn name(self) -> &'static str {
        Self::name(self)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::from_name(name)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl CoarseLevel {
    /// How many bitmaps `bins` bins take.
    pub fn bitmaps(self, bins: u64) -> u64 {
        match self {
            _ if bins <= 1 => 0,
            Self::Slices => u64::from(u64::BITS - (bins - 1).leading_zeros()),
            Self::Range => bins - 1,
            Self::Interval => bins.div_ceil(2),
        }
    }

    /// Whether the bitmap numbered `bitmap` holds the rows of the bin numbered `bin`, of `bins`.
    pub fn holds(self, bins: u64, bitmap: u64, bin: u64) -> bool {
        match self {
            Self::Slices => bitmap < u64::from(u64::BITS) && bin >> bitmap & 1 == 1,
            Self::Range => bin <= bitmap,
            Self::Interval => bitmap <= bin && bin - bitmap < bins / 2,
        }
    }

    /// How many of the values that `below` counts (those of the bins below its argument) are in a bitmap.
    pub(super) fn values(self, bins: u64, bitmap: u64, below: impl Fn(u64) -> u64) -> u64 {
        match self {
            Self::Slices => {
                // Numbers below `bins` with the bit set: half of every full period, and what is over half of the last one.
                let half = 1u64.checked_shl(u32::try_from(bitmap).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
                let period = half.saturating_mul(2);
                (bins / period).saturating_mul(half) + (bins % period).saturating_sub(half)
            }
            Self::Range => below(bitmap + 1),
            Self::Interval => below(bitmap + bins / 2).saturating_sub(below(bitmap)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_distinct_and_found_again() {
        for (place, encoding) in Encoding::each().enumerate() {
            assert_eq!(Encoding::from_name(encoding.name()), Some(encoding));
            assert_eq!(Encoding::from_code(encoding.code()), Ok(encoding));
            assert_eq!(usize::from(encoding.code()), place + 1);
        }
        assert_eq!(Encoding::from_name("Equality"), None);
        assert!(Encoding::from_code(0).is_err() && Encoding::from_code(12).is_err());
    }

    #[test]
    fn bitmaps_hold_as_many_bins_as_counted() {
        for level in [CoarseLevel::Slices, CoarseLevel::Range, CoarseLevel::Interval] {
            for bins in 0..70u64 {
                for bitmap in 0..level.bitmaps(bins) {
                    let held = (0..bins).filter(|bin| level.holds(bins, bitmap, *bin)).count() as u64;
                    assert_eq!(level.values(bins, bitmap, |bin| bin), held, "{level:?} {bins} {bitmap}");
                    assert!(held > 0 && held < bins, "{level:?} {bins} {bitmap}");
                }
            }
        }
    }

    /// Different bins are in different bitmaps, so that these say the bin of a row.
    #[test]
    fn every_bin_has_its_own_bitmaps() {
        for level in [CoarseLevel::Slices, CoarseLevel::Range, CoarseLevel::Interval] {
            for bins in 1..70u64 {
                let all = level.bitmaps(bins);
                let mut signatures: Vec<Vec<bool>> =
                    (0..bins).map(|bin| (0..all).map(|bitmap| level.holds(bins, bitmap, bin)).collect()).collect();
                signatures.sort();
                signatures.dedup();
                assert_eq!(signatures.len() as u64, bins, "{level:?}");
            }
        }
    }
}
