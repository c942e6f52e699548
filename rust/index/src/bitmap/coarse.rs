//! Runs of bins as bitmaps of the coarse level, two for each run at most.
//!
//! Of the *range* level, bitmap `R_i` holds bins `0..=i`. A run `a..=b` is `R_b` without `R_{a-1}`.
//!
//! Of the *interval* level over `K` bins, bitmap `I_j` holds the `w = floor(K / 2)` bins from `j`, for `j < n = ceil(K / 2)`.
//! These are half as many bitmaps. All cases (Chan and Ioannidis 1999, with the bins that no bitmap begins at the end):
//!
//! ```text
//! 0..=b    b = w - 1               I_0
//!          b < w - 1               I_0 without I_{b+1}
//!          b > w - 1               I_0 or I_{b-w+1}
//! a..=K-1                          the rows with a value that are not in 0..=a-1
//! a..=b    as long as w            I_a
//!          longer                  I_a or I_{b-w+1}
//!          shorter, b < w - 1      I_a without I_{b+1}
//!          shorter, a >= n         I_{b-w+1} without I_{a-w}
//!          shorter, otherwise      I_a and I_{b-w+1}
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use lakemark_format::segment::PostingRef;
use lakemark_format::segment::encoding::CoarseLevel;

use crate::rows::RowSet;

/// A run of bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    /// Rows with a value that are not in the set, instead of those that are.
    opposite: bool,
    set: Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    None,
    One(usize),
    Without(usize, usize),
    Or(usize, usize),
    And(usize, usize),
}

impl Term {
    /// The run of a level of `bins` bins; slices are no bitmaps of runs.
    pub(super) fn new(level: CoarseLevel, bins: usize, run: Range<usize>) -> Self {
        if run.is_empty() {
            return Self { opposite: false, set: Set::None };
        }
        if run.end >= bins {
            return Self { opposite: true, ..Self::new(level, bins, 0..run.start) };
        }
        let (first, last) = (run.start, run.end - 1);
        let set = match level {
            CoarseLevel::Range if first == 0 => Set::One(last),
            CoarseLevel::Range => Set::Without(last, first - 1),
            CoarseLevel::Interval | CoarseLevel::Slices => interval(bins, first, last),
        };
        Self { opposite: false, set }
    }

    /// The bitmaps that it takes.
    pub(super) fn bitmaps(self) -> impl Iterator<Item = usize> {
        let (a, b) = match self.set {
            Set::None => (None, None),
            Set::One(a) => (Some(a), None),
            Set::Without(a, b) | Set::Or(a, b) | Set::And(a, b) => (Some(a), Some(b)),
        };
        a.into_iter().chain(b)
    }

    /// Their bytes.
    pub(super) fn bytes(self, bitmaps: &[PostingRef]) -> u64 {
        self.bitmaps().filter_map(|number| bitmaps.get(number)).map(|bitmap| u64::from(bitmap.length)).sum()
    }

    fn rows(self, sets: &BTreeMap<usize, RowSet>, valued: &RowSet) -> RowSet {
        let empty = RowSet::empty(valued.universe());
        let get = |number: usize| sets.get(&number).unwrap_or(&empty);
        let rows = match self.set {
            Set::None => empty.clone(),
            Set::One(a) => get(a).clone(),
            Set::Without(a, b) => get(a).minus(get(b)),
            Set::Or(a, b) => get(a).or(get(b)),
            Set::And(a, b) => get(a).and(get(b)),
        };
        if self.opposite { valued.minus(&rows) } else { rows }
    }
}

/// A run that does not reach the last bin.
fn interval(bins: usize, first: usize, last: usize) -> Set {
    let (width, count) = (bins / 2, bins.div_ceil(2));
    let length = last - first + 1;
    // The bitmap that ends with the last bin, if one does.
    let ending = (last + 1).checked_sub(width);
    match ending {
        Some(ending) if ending == first => Set::One(first),
        Some(ending) if length > width => Set::Or(first, ending),
        None => Set::Without(first, last + 1),
        Some(ending) if first >= count => Set::Without(ending, first - width),
        Some(ending) => Set::And(first, ending),
    }
}

/// Runs of bins whose rows are requested.
#[derive(Debug, Default)]
pub(super) struct Runs {
    terms: Vec<Term>,
    /// The runs between them are the terms.
    opposite: bool,
}

impl Runs {
    /// The cheaper of the runs and what lies between them; `runs` ascend and do not touch.
    pub(super) fn new(level: CoarseLevel, bins: usize, runs: &[Range<usize>], bitmaps: &[PostingRef]) -> Self {
        let mut between = Vec::with_capacity(runs.len() + 1);
        let mut end = 0;
        for run in runs {
            between.push(end..run.start);
            end = run.end;
        }
        between.push(end..bins);
        between.retain(|run| !run.is_empty());
        let of = |runs: &[Range<usize>], opposite| Self {
            terms: runs.iter().map(|run| Term::new(level, bins, run.clone())).collect(),
            opposite,
        };
        let (direct, other) = (of(runs, false), of(&between, true));
        if other.bytes(bitmaps) < direct.bytes(bitmaps) { other } else { direct }
    }

    /// The bitmaps to read, ascending.
    pub(super) fn bitmaps(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = self.terms.iter().flat_map(|term| term.bitmaps()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn bytes(&self, bitmaps: &[PostingRef]) -> u64 {
        self.bitmaps().into_iter().filter_map(|number| bitmaps.get(number)).map(|bitmap| u64::from(bitmap.length)).sum()
    }

    /// The rows of the runs; `valued` are all rows with a value.
    pub(super) fn rows(&self, sets: &BTreeMap<usize, RowSet>, valued: &RowSet) -> RowSet {
        let mut terms = self.terms.iter().map(|term| term.rows(sets, valued));
        let first = terms.next().unwrap_or_else(|| RowSet::empty(valued.universe()));
        let rows = terms.fold(first, |all, rows| all.or(&rows));
        if self.opposite { valued.minus(&rows) } else { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row a bin: bitmaps by their definition.
    fn sets(level: CoarseLevel, bins: usize) -> BTreeMap<usize, RowSet> {
        let count = level.bitmaps(bins as u64);
        let set = |bitmap| {
            let held = (0..bins as u32).filter(|bin| level.holds(bins as u64, bitmap, u64::from(*bin)));
            RowSet::from_rows(held.collect(), bins as u32)
        };
        (0..count).map(|bitmap| (bitmap as usize, set(bitmap))).collect()
    }

    #[test]
    fn every_run_takes_two_bitmaps_at_most() {
        for level in [CoarseLevel::Range, CoarseLevel::Interval] {
            for bins in 1..=40usize {
                let sets = sets(level, bins);
                let valued = RowSet::full(bins as u32);
                for start in 0..=bins {
                    for end in start..=bins {
                        let term = Term::new(level, bins, start..end);
                        assert!(term.bitmaps().count() <= 2);
                        assert!(term.bitmaps().all(|number| sets.contains_key(&number)), "{level:?} {bins} {term:?}");
                        let expected = RowSet::from_range(start as u32..end as u32, bins as u32);
                        assert_eq!(term.rows(&sets, &valued), expected, "{level:?} {bins} {start}..{end}: {term:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_set_of_bins_is_found() {
        let bitmap = PostingRef { offset: 0, length: 1, rows: 1 };
        for level in [CoarseLevel::Range, CoarseLevel::Interval] {
            for bins in 1..=9usize {
                let sets = sets(level, bins);
                let valued = RowSet::full(bins as u32);
                for chosen in 0u32..1 << bins {
                    let wanted: Vec<u32> = (0..bins as u32).filter(|bin| chosen >> bin & 1 == 1).collect();
                    let runs: Vec<Range<usize>> = wanted
                        .chunk_by(|a, b| a + 1 == *b)
                        .map(|run| run[0] as usize..run[run.len() - 1] as usize + 1)
                        .collect();
                    let runs = Runs::new(level, bins, &runs, &vec![bitmap; sets.len()]);
                    assert_eq!(runs.rows(&sets, &valued), RowSet::from_rows(wanted, bins as u32), "{runs:?}");
                }
            }
        }
    }
}
