//! Whether marks could tell the values of columns at all, and of how many rows, before anything is searched.

use std::sync::Arc;

use lakemark_index::KeyRanges;
use lakemark_index::bitmap::{Dense, Groups};

use super::CORES;
use super::pairs::{CHEAP_PAIRS, ROWS_PER_PAIR};
use super::sources::Sources;
use super::sums::SLICES_OF_ALL_GROUPS;
use super::tally::{CHEAP_ROWS, ROWS_PER_VALUE};
use crate::segments::ReadCounter;
use crate::snapshot::Snapshot;

/// To look a row of a posting up among the chosen ones (5 to 6 measured), and whatever a value takes: to decode it, to begin with its posting,
/// and to hand it on (some 400).
const TELL_ROW: f64 = 6.0;
const TELL_VALUE: f64 = 400.0;
/// To read a byte of slices and to count its bits among the chosen rows; a segment is the work of one core.
const TELL_BYTE: f64 = 2.0;

/// Values that marks would tell in place of reading them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Telling {
    /// Nanoseconds that it takes, all cores at work.
    pub nanoseconds: f64,
    /// The part of all rows that has to be wanted at least: with fewer, rows are as quickly read as values told.
    pub least_share: f64,
}

impl Telling {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { nanoseconds: self.nanoseconds + other.nanoseconds, least_share: self.least_share.max(other.least_share) }
    }
}

/// What a segment of a column could tell.
#[derive(Clone, Copy)]
struct Limits {
    rows: f64,
    values: f64,
    /// Slices whose bits are counted, where only a sum is asked for, and their bytes.
    slices: Option<(usize, u64)>,
    has_postings: bool,
}

impl Snapshot {
    /// What telling the values of one column, or the pairs of two, by [`Self::tally`] asks for; none if it would be declined for any rows.
    pub async fn telling(&self, columns: &[String], summed: Option<&str>) -> Option<Telling> {
        let mut segments: Vec<Vec<Limits>> = Vec::with_capacity(columns.len());
        let mut nanoseconds = 0.0;
        for column in columns {
            let limits = self.limits(column, summed == Some(column)).await?;
            nanoseconds += limits.iter().map(|segment| segment.cost(limits.len())).sum::<f64>();
            segments.push(limits);
        }
        let shares: Vec<f64> = match segments.as_slice() {
            [one] => one.iter().map(|segment| segment.share()).collect::<Option<_>>()?,
            [first, second] => {
                let pairs = first.iter().flat_map(|one| second.iter().map(|other| one.share_with(*other)));
                pairs.collect::<Option<_>>()?
            }
            _ => return None,
        };
        Some(Telling { nanoseconds, least_share: shares.into_iter().fold(0.0, f64::max) })
    }

    async fn limits(&self, column: &str, is_summed: bool) -> Option<Vec<Limits>> {
        let all = vec![true; self.files().len()];
        let sources = Sources::find(self, column, &all, &Arc::new(ReadCounter::default())).await?;
        let of_segment = |directory| {
            let bytes = |dense: &Dense<'_>| dense.slice_ranges().iter().map(|range| range.end - range.start).sum();
            let slices = Dense::of(directory).filter(|_| is_summed);
            let slices = slices.map(|dense| (dense.slice_ranges().len(), bytes(&dense)));
            let values = Groups::new(directory, KeyRanges::all()).value_limit() as f64;
            Limits { rows: directory.rows() as f64, values, slices, has_postings: directory.encoding.has_postings() }
        };
        Some(sources.covers.iter().map(|cover| of_segment(&cover.segment.directory)).collect())
    }
}

impl Limits {
    /// What it takes to tell the values of one of so many segments.
    fn cost(self, segments: usize) -> f64 {
        let cores = *CORES as f64;
        match self.slices {
            Some((_, bytes)) => bytes as f64 * TELL_BYTE / cores.min(segments as f64),
            None => (self.rows * TELL_ROW + self.values * TELL_VALUE) / cores,
        }
    }

    /// The share of its rows from which its values are told.
    fn share(self) -> Option<f64> {
        let least = if self.slices.is_some() || self.values <= CHEAP_ROWS as f64 {
            0.0
        } else {
            self.values * ROWS_PER_VALUE as f64 / self.rows.max(1.0)
        };
        (least <= 1.0).then_some(least)
    }

    /// The share of its rows from which pairs with the values of another segment are told.
    fn share_with(self, other: Self) -> Option<f64> {
        let by_slices = |(slices, _): (usize, u64), groups: Self| {
            let few = (groups.values + 1.0) * slices as f64 <= SLICES_OF_ALL_GROUPS as f64;
            (few && groups.has_postings).then_some(0.0)
        };
        if let Some(found) = other.slices.and_then(|slices| by_slices(slices, self)) {
            return Some(found);
        }
        if let Some(found) = self.slices.and_then(|slices| by_slices(slices, other)) {
            return Some(found);
        }
        let pairs = (self.values + 1.0) * (other.values + 1.0);
        let least = if pairs <= CHEAP_PAIRS as f64 { 0.0 } else { pairs * ROWS_PER_PAIR as f64 / self.rows.max(1.0) };
        (least <= 1.0 && self.has_postings && other.has_postings).then_some(least)
    }
}
