//! Sets of keys, as ranges: the keys of one column that a predicate selects.

use std::ops::Bound;
use std::sync::Arc;

use lakemark_format::key::Key;

/// More keys than these become ranges where they follow each other.
const MOST_POINTS: usize = 1024;
/// So many of them in a range on average.
const KEYS_OF_A_RUN: usize = 4;

/// A set of keys: disjoint, ascending ranges that do not touch. Copies share them: a join may request many thousands of keys,
/// and each segment is probed with a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct KeyRanges(Arc<[KeyRange]>);

/// Keys from `low` to `high`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// Where the range begins.
    pub low: Bound<Key>,
    /// Where it ends.
    pub high: Bound<Key>,
}

impl KeyRange {
    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.begins_at_or_before(key) && !self.ends_before(key)
    }

    /// Whether the range begins at or before `key`.
    #[must_use]
    pub fn begins_at_or_before(&self, key: &Key) -> bool {
        match &self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => low <= key,
            Bound::Excluded(low) => low < key,
        }
    }

    /// Whether every key of the range is less than `key`.
    #[must_use]
    pub fn ends_before(&self, key: &Key) -> bool {
        match &self.high {
            Bound::Unbounded => false,
            Bound::Included(high) => high < key,
            Bound::Excluded(high) => high <= key,
        }
    }

    /// Whether the range has no key below `key`.
    pub(crate) fn begins_behind(&self, key: &Key) -> bool {
        match &self.low {
            Bound::Unbounded => false,
            Bound::Included(low) | Bound::Excluded(low) => low >= key,
        }
    }

    /// Whether it is a single key.
    #[must_use]
    pub fn is_point(&self) -> bool {
        matches!((&self.low, &self.high), (Bound::Included(low), Bound::Included(high)) if low == high)
    }

    fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
        }
    }
}

impl KeyRanges {
    /// Bytes of memory that the ranges take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_key = |bound: &Bound<Key>| match bound {
            Bound::Included(Key::Bytes(bytes)) | Bound::Excluded(Key::Bytes(bytes)) => bytes.capacity(),
            _ => 0,
        };
        let heap: usize = self.0.iter().map(|range| of_key(&range.low) + of_key(&range.high)).sum();
        self.0.len() * size_of::<KeyRange>() + heap
    }

    /// No key.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self(Arc::new([KeyRange { low: Bound::Unbounded, high: Bound::Unbounded }]))
    }

    /// Keys between two bounds.
    #[must_use]
    pub fn between(low: Bound<Key>, high: Bound<Key>) -> Self {
        let range = KeyRange { low, high };
        if range.is_empty() { Self::default() } else { Self(Arc::new([range])) }
    }

    /// One key.
    #[must_use]
    pub fn point(key: Key) -> Self {
        Self::between(Bound::Included(key.clone()), Bound::Included(key))
    }

    /// The listed keys, in any order, repeated or not. Of many number keys those that follow each other become ranges, if that
    /// makes them few.
    #[must_use]
    pub fn points(mut keys: Vec<Key>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        if keys.len() > MOST_POINTS && runs_of(&keys).count() * KEYS_OF_A_RUN <= keys.len() {
            let range = |run: &[Key]| {
                let (low, high) = (run.first()?.clone(), run.last()?.clone());
                Some(KeyRange { low: Bound::Included(low), high: Bound::Included(high) })
            };
            return Self(runs_of(&keys).filter_map(range).collect());
        }
        Self(
            keys.into_iter()
                .map(|key| KeyRange { low: Bound::Included(key.clone()), high: Bound::Included(key) })
                .collect(),
        )
    }

    /// Keys below `key`, with `key` itself if `inclusive`.
    #[must_use]
    pub fn less_than(key: Key, inclusive: bool) -> Self {
        let high = if inclusive { Bound::Included(key) } else { Bound::Excluded(key) };
        Self::between(Bound::Unbounded, high)
    }

    /// Keys above `key`, with `key` itself if `inclusive`.
    #[must_use]
    pub fn greater_than(key: Key, inclusive: bool) -> Self {
        let low = if inclusive { Bound::Included(key) } else { Bound::Excluded(key) };
        Self::between(low, Bound::Unbounded)
    }

    /// Byte keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let high = successor(prefix).map_or(Bound::Unbounded, |after| Bound::Excluded(Key::Bytes(after)));
        Self::between(Bound::Included(Key::Bytes(prefix.to_vec())), high)
    }

    /// Ranges that begin in ascending order; those that overlap or touch become one.
    pub(crate) fn ascending(ranges: impl Iterator<Item = KeyRange>) -> Self {
        let mut joined: Vec<KeyRange> = Vec::new();
        for range in ranges.filter(|range| !range.is_empty()) {
            match joined.last_mut() {
                Some(last) if reaches(&last.high, &range.low) => {
                    if high_order(&last.high, &range.high).is_lt() {
                        last.high = range.high;
                    }
                }
                _ => joined.push(range),
            }
        }
        Self(joined.into())
    }

    /// The ranges, ascending and disjoint.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRange] {
        &self.0
    }

    /// Whether it is single keys, or none.
    #[must_use]
    pub fn are_points(&self) -> bool {
        self.0.iter().all(KeyRange::is_point)
    }

    /// Whether it is one key.
    #[must_use]
    pub fn is_point(&self) -> bool {
        matches!(&*self.0, [only] if only.is_point())
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        let first = self.0.partition_point(|range| range.ends_before(key));
        self.0.get(first).is_some_and(|range| range.contains(key))
    }

    /// Begins to test ascending keys for being in the set.
    #[must_use]
    pub fn cursor(&self) -> RangeCursor<'_> {
        RangeCursor { ranges: &self.0, at: 0, numbers: self.0.first().and_then(numbers_of) }
    }

    /// The same of keys from `least` on.
    #[must_use]
    pub fn cursor_from(&self, least: &Key) -> RangeCursor<'_> {
        let at = self.0.partition_point(|range| range.ends_before(least));
        RangeCursor { ranges: &self.0, at, numbers: self.0.get(at).and_then(numbers_of) }
    }

    /// Whether a key from `low` to `high` may be in the set.
    #[must_use]
    pub fn meets(&self, low: &Key, high: &Key) -> bool {
        let first = self.0.partition_point(|range| range.ends_before(low));
        self.0.get(first).is_some_and(|range| range.begins_at_or_before(high))
    }

    /// The ranges that may hold a key from `low` to `high`.
    pub(crate) fn touching(&self, low: &Key, high: &Key) -> &[KeyRange] {
        let first = self.0.partition_point(|range| range.ends_before(low));
        let end = self.0.partition_point(|range| range.begins_at_or_before(high));
        self.0.get(first..end).unwrap_or_default()
    }

    /// Keys in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let both = KeyRange {
                low: if low_order(&x.low, &y.low).is_lt() { y.low.clone() } else { x.low.clone() },
                high: if high_order(&x.high, &y.high).is_lt() { x.high.clone() } else { y.high.clone() },
            };
            if !both.is_empty() {
                ranges.push(both);
            }
            if high_order(&x.high, &y.high).is_lt() {
                a.next();
            } else {
                b.next();
            }
        }
        Self(ranges.into())
    }

    /// Keys that are not in the set.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.0.len() + 1);
        let mut low = Bound::Unbounded;
        let mut open = true;
        for range in self.0.iter() {
            if let Some(high) = flip(&range.low) {
                let gap = KeyRange { low: low.clone(), high };
                if !gap.is_empty() {
                    ranges.push(gap);
                }
            }
            match flip(&range.high) {
                Some(next) => low = next,
                None => open = false,
            }
        }
        if open {
            ranges.push(KeyRange { low, high: Bound::Unbounded });
        }
        Self(ranges.into())
    }

    /// Keys in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::union_all(vec![self.clone(), other.clone()])
    }

    /// Keys in any of the sets.
    #[must_use]
    pub fn union_all(sets: Vec<Self>) -> Self {
        if let [only] = sets.as_slice() {
            return only.clone();
        }
        let mut ranges: Vec<KeyRange> = sets.iter().flat_map(|set| set.0.iter().cloned()).collect();
        ranges.sort_by(|one, other| low_order(&one.low, &other.low));
        Self::ascending(ranges.into_iter())
    }
}

/// Tests one key after the other, ascending, in the time of one pass over keys and ranges.
#[derive(Clone, Debug)]
pub struct RangeCursor<'a> {
    ranges: &'a [KeyRange],
    at: usize,
    /// The number keys of the range that it is at.
    numbers: Option<NumberRange>,
}

/// Number keys, the greatest one included.
#[derive(Clone, Copy, Debug)]
struct NumberRange {
    least: u64,
    greatest: u64,
}

impl<'a> RangeCursor<'a> {
    /// The ranges that do not end before `key`, which is none of those before the last one.
    #[inline]
    pub fn seek(&mut self, key: &Key) -> &'a [KeyRange] {
        // Most keys are before the end of the range that the last one came to.
        if self.ranges.get(self.at).is_some_and(|range| range.ends_before(key)) {
            self.at = gallop(self.ranges, self.at + 1, |range| range.ends_before(key));
            self.numbers = self.ranges.get(self.at).and_then(numbers_of);
        }
        self.ranges.get(self.at..).unwrap_or_default()
    }

    /// Whether `key`, which is no less than the last one, is in the set.
    #[inline]
    pub fn contains(&mut self, key: &Key) -> bool {
        match (key, self.numbers) {
            (Key::Fixed(key), Some(numbers)) if *key <= numbers.greatest => numbers.least <= *key,
            _ => self.seek(key).first().is_some_and(|range| range.begins_at_or_before(key)),
        }
    }
}

/// The first place from `from` on whose item is not `before`, of items of which those that are before come first. It takes the longer the
/// farther that place is.
pub(crate) fn gallop<T>(items: &[T], from: usize, before: impl Fn(&T) -> bool) -> usize {
    let rest = items.get(from..).unwrap_or_default();
    let mut reach = 1;
    while rest.get(reach - 1).is_some_and(&before) {
        reach *= 2;
    }
    // All of the first half are before.
    let (known, end) = (reach / 2, reach.min(rest.len()));
    from + known + rest.get(known..end).unwrap_or_default().partition_point(before)
}

/// The number keys of a range; none if it has no number, or if its bounds are bytes.
fn numbers_of(range: &KeyRange) -> Option<NumberRange> {
    let least = match &range.low {
        Bound::Unbounded => 0,
        Bound::Included(Key::Fixed(low)) => *low,
        Bound::Excluded(Key::Fixed(low)) => low.checked_add(1)?,
        Bound::Included(Key::Bytes(_)) | Bound::Excluded(Key::Bytes(_)) => return None,
    };
    let greatest = match &range.high {
        Bound::Unbounded => u64::MAX,
        Bound::Included(Key::Fixed(high)) => *high,
        Bound::Excluded(Key::Fixed(high)) => high.checked_sub(1)?,
        Bound::Included(Key::Bytes(_)) | Bound::Excluded(Key::Bytes(_)) => return None,
    };
    (least <= greatest).then_some(NumberRange { least, greatest })
}

/// Number keys that follow each other without a gap; others are alone.
fn runs_of(keys: &[Key]) -> impl Iterator<Item = &[Key]> {
    let follows = |one: &Key, next: &Key| match (one, next) {
        (Key::Fixed(one), Key::Fixed(next)) => one.checked_add(1) == Some(*next),
        _ => false,
    };
    keys.chunk_by(follows)
}

/// Whether no key lies between the end of a range and the beginning of another one, which begins no earlier.
fn reaches(high: &Bound<Key>, low: &Bound<Key>) -> bool {
    match (high, low) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(high), Bound::Excluded(low)) => low < high,
        (Bound::Included(high) | Bound::Excluded(high), Bound::Included(low) | Bound::Excluded(low)) => low <= high,
    }
}

/// The least bytes above all that begin with `prefix`; none if there are none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut after = prefix.to_vec();
    while after.last() == Some(&u8::MAX) {
        after.pop();
    }
    *after.last_mut()? += 1;
    Some(after)
}

/// The bound of the complement; none where the range is open.
fn flip(bound: &Bound<Key>) -> Option<Bound<Key>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(Bound::Excluded(key.clone())),
        Bound::Excluded(key) => Some(Bound::Included(key.clone())),
    }
}

/// Where a bound cuts the keys; ordered as they are.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cut<'a> {
    key: &'a Key,
    /// Behind the key, not before it.
    is_behind: bool,
}

/// Which range begins first: an open beginning is first.
fn low_order(a: &Bound<Key>, b: &Bound<Key>) -> std::cmp::Ordering {
    fn cut(bound: &Bound<Key>) -> Option<Cut<'_>> {
        match bound {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(Cut { key, is_behind: false }),
            Bound::Excluded(key) => Some(Cut { key, is_behind: true }),
        }
    }
    cut(a).cmp(&cut(b))
}

/// Where a range ends; ordered as they are, an open end last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum End<'a> {
    At(Cut<'a>),
    Open,
}

/// Which range ends first: an open end is last.
fn high_order(a: &Bound<Key>, b: &Bound<Key>) -> std::cmp::Ordering {
    fn end(bound: &Bound<Key>) -> End<'_> {
        match bound {
            Bound::Unbounded => End::Open,
            Bound::Excluded(key) => End::At(Cut { key, is_behind: false }),
            Bound::Included(key) => End::At(Cut { key, is_behind: true }),
        }
    }
    end(a).cmp(&end(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Vec<u64>> {
        // Long runs, gaps and repeated keys.
        proptest::collection::vec((0u64..60_000, 1u64..3_000), 0..12)
            .prop_map(|runs| runs.into_iter().flat_map(|(first, length)| first..first + length).collect())
    }

    proptest! {
        #[test]
        fn a_cursor_says_of_ascending_keys_what_the_set_says(listed in keys(), searched in proptest::collection::btree_set(0u64..66_000, 0..400)) {
            let set = KeyRanges::points(listed.iter().copied().map(Key::Fixed).collect());
            let mut cursor = set.cursor();
            for key in searched {
                let is_in = listed.contains(&key);
                let key = Key::Fixed(key);
                let from_here = set.cursor_from(&key).contains(&key);
                prop_assert_eq!((set.contains(&key), cursor.contains(&key), from_here), (is_in, is_in, is_in));
            }
        }

        #[test]
        fn galloping_finds_what_halving_finds(length in 0usize..200, edge in 0usize..220, from in 0usize..220) {
            let items: Vec<usize> = (0..length).collect();
            let expected = edge.min(length);
            prop_assert_eq!(gallop(&items, from.min(expected), |item| *item < edge), expected);
        }
    }

    #[test]
    fn many_numbers_that_follow_each_other_are_ranges() {
        let dense = |count: u64| KeyRanges::points((0..count).map(Key::Fixed).collect());
        assert_eq!((dense(1024).ranges().len(), dense(1025).ranges().len()), (1024, 1));
        let every_other = KeyRanges::points((0..5_000).map(|number| Key::Fixed(number * 2)).collect());
        assert!(every_other.are_points() && every_other.ranges().len() == 5_000);
        let texts = KeyRanges::points((0..2_000u32).map(|text| Key::Bytes(text.to_be_bytes().to_vec())).collect());
        assert!(texts.are_points() && texts.ranges().len() == 2_000);
    }
}
