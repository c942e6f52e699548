//! Sets of the numbers of data files, as ranges.
//!
//! Files that are indexed together enter the store together, so that their numbers follow each other: a set of thousands of files is a
//! range or two.

use std::ops::Range;

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};

/// A set of numbers of data files below 2^32 - 1: ranges in order that do not touch each other and are not empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FileNumbers {
    ranges: Vec<Range<u32>>,
}

impl FileNumbers {
    /// The numbers of a range.
    pub fn of_range(range: Range<u32>) -> Self {
        let mut numbers = Self::default();
        numbers.push(range);
        numbers
    }

    /// The numbers of an iterator that gives them in ascending order. Numbers that are given twice count once.
    pub fn from_sorted(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.push(number..number.saturating_add(1));
        }
        set
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(Clone::clone)
    }

    /// How many numbers there are.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The least number that is above all of them; 0 of none.
    pub fn end(&self) -> u32 {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// Whether the number is one of them.
    pub fn contains(&self, number: u32) -> bool {
        let place = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(place).is_some_and(|range| range.start <= number)
    }

    /// Whether some number is in both.
    pub fn intersects(&self, other: &Self) -> bool {
        let mut is_met = false;
        self.each_overlap(other, |_| is_met = true);
        is_met
    }

    /// The numbers that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        self.each_overlap(other, |overlap| both.push(overlap));
        both
    }

    /// The numbers that are in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.ranges.iter().chain(&other.ranges).cloned().collect()
    }

    /// The numbers that are not in the other set.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut without = Self::default();
        let mut taken = other.ranges.iter().peekable();
        for range in &self.ranges {
            let mut start = range.start;
            while let Some(hole) = taken.peek() {
                if hole.end <= start {
                    taken.next();
                    continue;
                }
                if hole.start >= range.end {
                    break;
                }
                without.push(start..hole.start.max(start));
                start = hole.end;
                if hole.end > range.end {
                    break;
                }
                taken.next();
            }
            without.push(start..range.end);
        }
        without
    }

    /// Visits the ranges that both have, in order.
    fn each_overlap(&self, other: &Self, mut visit: impl FnMut(Range<u32>)) {
        let (mut own, mut others) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start < end {
                visit(start..end);
            }
            if a.end <= b.end {
                own.next();
            } else {
                others.next();
            }
        }
    }

    /// Adds a range that begins nowhere before the last one does.
    fn push(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.ranges.push(range),
        }
    }

    /// A count, and for each range the gap before it and its length: both less what they are at least.
    pub(crate) fn encode(&self, out: &mut ByteWriter) {
        out.length(self.ranges.len());
        let mut least = 0;
        for range in &self.ranges {
            out.varint(u64::from(range.start - least));
            out.varint(u64::from(range.end - range.start - 1));
            least = range.end.saturating_add(1);
        }
    }

    /// Reads a set whose numbers are below `limit`.
    pub(crate) fn decode(what: &'static str, limit: u32, input: &mut ByteReader<'_>) -> Result<Self> {
        let count = input.count(what, 2)?;
        let mut ranges = Vec::with_capacity(count);
        let mut least = 0u64;
        for _ in 0..count {
            let start = least.saturating_add(input.varint()?);
            let end = start.saturating_add(input.varint()?).saturating_add(1);
            if end > u64::from(limit) {
                return Err(FormatError::TooLong { what, got: end, limit: u64::from(limit) });
            }
            ranges.push(start as u32..end as u32);
            least = end + 1;
        }
        Ok(Self { ranges })
    }
}

impl FromIterator<u32> for FileNumbers {
    /// The numbers in any order.
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        Self::from_sorted(numbers)
    }
}

impl FromIterator<Range<u32>> for FileNumbers {
    /// The numbers of ranges in any order.
    fn from_iter<I: IntoIterator<Item = Range<u32>>>(ranges: I) -> Self {
        let mut ranges: Vec<Range<u32>> = ranges.into_iter().collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.push(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8], limit: u32) -> Result<FileNumbers> {
        let mut input = ByteReader::new("numbers", bytes);
        let numbers = FileNumbers::decode("numbers", limit, &mut input)?;
        input.finish().map(|()| numbers)
    }

    #[test]
    fn files_that_entered_together_are_one_range_of_three_bytes() {
        let numbers = FileNumbers::from_sorted(100..116);
        let mut out = ByteWriter::new();
        numbers.encode(&mut out);
        assert_eq!(out.as_slice(), [1, 100, 15]);
        assert_eq!((numbers.len(), numbers.end(), numbers.ranges().len()), (16, 116, 1));
    }

    #[test]
    fn a_set_beyond_its_limit_is_refused_and_one_up_to_it_is_read() {
        assert_eq!(decode(&[1, 3, 4], 8), Ok(FileNumbers::of_range(3..8)));
        for bytes in [[1, 3, 5], [1, 8, 0]] {
            assert!(matches!(decode(&bytes, 8), Err(FormatError::TooLong { .. })), "{bytes:?}");
        }
        let huge = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 9];
        assert!(matches!(decode(&huge, u32::MAX), Err(FormatError::TooLong { .. })));
        assert!(matches!(decode(&[200, 1, 0, 0], u32::MAX), Err(FormatError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_sets_of_numbers(
            a in prop::collection::btree_set(0u32..60, 0..40), b in prop::collection::btree_set(0u32..60, 0..40)
        ) {
            let of = |numbers: &BTreeSet<u32>| FileNumbers::from_sorted(numbers.iter().copied());
            let (left, right) = (of(&a), of(&b));
            prop_assert!(left.iter().eq(a.iter().copied()));
            prop_assert_eq!(&left, &a.iter().rev().copied().collect());
            prop_assert_eq!((left.len(), left.is_empty()), (a.len() as u64, a.is_empty()));
            prop_assert!((0..61).all(|number| left.contains(number) == a.contains(&number)));
            prop_assert_eq!(left.intersects(&right), !a.is_disjoint(&b));
            prop_assert_eq!(left.intersection(&right), of(&(&a & &b)));
            prop_assert_eq!(left.union(&right), of(&(&a | &b)));
            prop_assert_eq!(left.difference(&right), of(&(&a - &b)));
            let mut out = ByteWriter::new();
            left.encode(&mut out);
            prop_assert_eq!(decode(out.as_slice(), u32::MAX), Ok(left));
        }
    }
}
