//! The first rows in the order of a column.
//!
//! ```text
//! directory     values up to …   12    40    97    230       rows of each block of values, in their order
//!                     rows       100   100   100   100
//! the first 150             └───────┘ values up to 40 have them, if no more than 50 of these rows do not count
//! ```
//!
//! The bound comes from the directories, which are cached, and the rows up to it from one search. Whoever asked sorts them: equal values,
//! further columns of the order and rows that nobody knows are left to the engine, and all that may be among the first is read.

use futures::{StreamExt, stream};
use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};

use crate::error::Result;
use crate::options::ProbeOptions;
use crate::report::ProbeReport;
use crate::segments::{ReadCounter, Segment};
use crate::snapshot::{FileProbe, Probe, Snapshot};

/// Segments that are opened at a time.
const CONCURRENT_SEGMENTS: usize = 32;
/// If the rows up to a bound are too few, as others do not count, so many times as many are looked for.
const GROWTH: u64 = 8;
/// Up to a bound with more than this share of the rows nothing is looked for.
const MOST: u64 = 4;

/// Which rows come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRequest {
    /// The column that they are ordered by, whatever comes after it.
    pub column: String,
    /// Whether the largest values come first.
    pub descending: bool,
    /// Whether rows without a value come before all others, and not after them.
    pub nulls_first: bool,
    /// How many are wanted.
    pub rows: u64,
}

impl TopRequest {
    /// The rows with a value up to a bound, and those that come before any value; only the latter without a bound.
    fn up_to(&self, bound: Option<Key>) -> Predicate {
        let leaf = |test| {
            let text = format!("{} among the first {}", self.column, self.rows);
            Predicate::Leaf(Leaf { column: self.column.clone(), test, text })
        };
        let ranges = bound.map(|key| match self.descending {
            true => KeyRanges::greater_than(key, true),
            false => KeyRanges::less_than(key, true),
        });
        match (ranges, self.nulls_first) {
            (Some(ranges), true) => Predicate::Or(vec![leaf(Test::IsNull), leaf(Test::Ranges(ranges))]),
            (Some(ranges), false) => leaf(Test::Ranges(ranges)),
            (None, _) => leaf(Test::IsNull),
        }
    }
}

impl Snapshot {
    /// What is left to read of `planned` when only the first of its rows are wanted; none if that saves nothing or nobody knows. Rows
    /// that are not certain of `planned` are read and do not count. Its searches are made with `options`.
    ///
    /// # Errors
    /// As for [`Snapshot::probe`].
    pub async fn cut_to_first(
        &self,
        planned: &Probe,
        request: &TopRequest,
        options: &ProbeOptions,
    ) -> Result<Option<Probe>> {
        let ProbeReport { rows_certain: certain, rows_uncertain, files_unknown, .. } = planned.report;
        if certain < request.rows.max(1) {
            return Ok(None);
        }
        if request.nulls_first {
            let first = self.probe(&request.up_to(None), options).await?;
            if common_rows(planned, &first) >= request.rows {
                return Ok(Some(self.cut_down(planned, &first)));
            }
        }
        let steps = self.steps(request).await;
        let all: u64 = steps.iter().map(|(_, rows)| rows).sum();
        // To look for as many rows as are read anyway saves nothing.
        let read = if files_unknown > 0 { all } else { certain + rows_uncertain };
        let most = (all / MOST).min(read);
        // If the rows of the plan are anywhere, there are enough of them among so many.
        let mut wanted = request.rows.max(1).saturating_mul(all.div_ceil(certain).max(1));
        let mut asked = None;
        while let Some((bound, _)) = bound(&steps, wanted).filter(|(_, rows)| *rows <= most) {
            wanted = wanted.saturating_mul(GROWTH);
            if asked.as_ref() == Some(&bound) {
                continue;
            }
            let first = self.probe(&request.up_to(Some(bound.clone())), options).await?;
            if common_rows(planned, &first) >= request.rows {
                return Ok(Some(self.cut_down(planned, &first)));
            }
            asked = Some(bound);
        }
        Ok(None)
    }

    /// Blocks of values, each with the last of its values and its rows, in the order of the request; none if a segment cannot be opened.
    async fn steps(&self, request: &TopRequest) -> Vec<(Key, u64)> {
        let (Some(store), Some(manifest), Some(index)) =
            (&self.store, &self.manifest, self.exact_indexes_of(&request.column).first().copied())
        else {
            return Vec::new();
        };
        let segments: Vec<_> = manifest.segments.iter().filter(|segment| segment.index_id == index.id).collect();
        let segments = segments.as_slice();
        let counter = ReadCounter::default();
        // By number, since a closure over borrowed items would make the future one that cannot change threads.
        let opened: Vec<Option<Segment>> = stream::iter(0..segments.len())
            .map(|number| {
                let counter = &counter;
                async move { Segment::open(store, segments.get(number)?, index, counter).await.ok() }
            })
            .buffer_unordered(CONCURRENT_SEGMENTS)
            .collect()
            .await;
        let mut steps = Vec::new();
        for segment in opened {
            let Some(segment) = segment else { return Vec::new() };
            let blocks = &segment.directory.blocks;
            for (number, block) in blocks.iter().enumerate() {
                let last = match request.descending {
                    true => Some(&block.first_key),
                    // All values of a block are less than the first of the next.
                    false => blocks.get(number + 1).map(|next| &next.first_key).or(segment.directory.max_key.as_ref()),
                };
                let Some(last) = last else { return Vec::new() };
                steps.push((last.clone(), block.rows));
            }
        }
        steps.sort_by(|(one, _), (other, _)| if request.descending { other.cmp(one) } else { one.cmp(other) });
        steps
    }
}

/// The value up to which there are so many rows, and how many there are.
fn bound(steps: &[(Key, u64)], wanted: u64) -> Option<(Key, u64)> {
    let mut rows = 0;
    steps.iter().find_map(|(last, more)| {
        rows += more;
        (rows >= wanted).then(|| (last.clone(), rows))
    })
}

/// Rows that are certain in both.
fn common_rows(one: &Probe, other: &Probe) -> u64 {
    let common = |(one, other): (&FileProbe, &FileProbe)| match (one, other) {
        (
            FileProbe::Known { row_groups, certain, .. },
            FileProbe::Known { row_groups: same, certain: also_certain, .. },
        ) if row_groups == same => u64::from(certain.and(also_certain).len()),
        _ => 0,
    };
    one.files.iter().zip(&other.files).map(common).sum()
}
