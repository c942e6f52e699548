//! The first rows in the order of a column.
//!
//! ```text
//! directory     values up to …   12    40    97    230       rows of each block of values, in their order
//!                     rows       100   100   100   100
//! the first 150             └───────┘ values up to 40 have them, if no more than 50 of these rows do not count
//! ```
//!
//! The bound comes from the directories, which are cached, and the rows up to it from one search. A block may have many times the rows of
//! the request: a leaf of a packed tree has tens of thousands of keys. Then the bound is one of its values. The caller sorts the rows.
//! Equal values, further columns of the order and rows that no index knows are left to the engine. All that may be among the first rows is
//! read.

use std::ops::Bound;
use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::key::Key;
use lakemark_format::segment::encoding::Encoding;
use lakemark_index::bitmap::{LeavesFor, ValueGroups};
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};

use crate::aggregate::read_values;
use crate::error::Result;
use crate::options::ProbeOptions;
use crate::report::ProbeReport;
use crate::snapshot::{FileProbe, Probe, Snapshot};
use crate::store::segments::{ReadCounter, Segment};

/// Segments that are opened at a time.
const CONCURRENT_SEGMENTS: usize = 32;
/// If the rows up to a bound are too few, as others do not count, the next bound is for so many times as many.
const GROWTH: u64 = 8;
/// Bounds with more than this share of the rows are not searched.
const MOST: u64 = 4;

/// Which rows come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKRequest {
    /// The column that they are ordered by, whatever comes after it.
    pub column: String,
    /// Whether the largest values come first.
    pub descending: bool,
    /// Whether rows without a value come before all others, and not after them.
    pub nulls_first: bool,
    /// How many rows are requested.
    pub rows: u64,
}

impl TopKRequest {
    /// The rows with a value up to a bound, and those that come before any value; only the latter without a bound.
    fn up_to(&self, bound: Option<Key>) -> Predicate {
        let leaf = |test| {
            let text = format!("{} among the first {}", lakemark_format::column::display(&self.column), self.rows);
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
    /// What is left to read of `planned` when only the first of its rows are requested. None if that saves nothing, or if no index can say.
    /// Rows that are not exact in `planned` are read and do not count. Its searches are made with `options`.
    ///
    /// # Errors
    /// As for [`Snapshot::probe`].
    pub async fn top_k(&self, planned: &Probe, request: &TopKRequest, options: &ProbeOptions) -> Result<Option<Probe>> {
        let ProbeReport { rows_exact, rows_rechecked, files_scanned, .. } = planned.report;
        if rows_exact < request.rows.max(1) {
            return Ok(None);
        }
        if request.nulls_first {
            let first = self.probe(&request.up_to(None), options).await?;
            if common_rows(planned, &first) >= request.rows {
                return Ok(Some(self.with_runtime_filter(planned, &first)));
            }
        }
        let counter = Arc::new(ReadCounter::default());
        let Some(steps) = self.steps(request, &counter).await else { return Ok(None) };
        let all = steps.rows();
        // To search for as many rows as are read anyway saves nothing.
        let read = if files_scanned > 0 { all } else { rows_exact + rows_rechecked };
        let most = (all / MOST).min(read);
        // If the rows of the plan are anywhere, there are enough of them among so many.
        let mut wanted = request.rows.max(1).saturating_mul(all.div_ceil(rows_exact).max(1));
        let mut searched = None;
        while let Some(bound) = steps.bound(wanted, &counter).await.filter(|bound| bound.rows <= most) {
            let bound = bound.key;
            wanted = wanted.saturating_mul(GROWTH);
            if searched.as_ref() == Some(&bound) {
                continue;
            }
            let first = self.probe(&request.up_to(Some(bound.clone())), options).await?;
            if common_rows(planned, &first) >= request.rows {
                let totals = counter.totals();
                let mut cut = self.with_runtime_filter(planned, &first);
                cut.report.index_reads += totals.reads;
                cut.report.index_bytes_read += totals.bytes;
                return Ok(Some(cut));
            }
            searched = Some(bound);
        }
        Ok(None)
    }

    /// The blocks of values in the order of the request; none if a segment cannot be opened.
    async fn steps(&self, request: &TopKRequest, counter: &Arc<ReadCounter>) -> Option<ValueBlocks> {
        let (store, manifest) = (self.store.as_ref()?, self.manifest.as_ref()?);
        let index = self.exact_indexes_of(&request.column).first().copied()?;
        let segments: Vec<_> = manifest.segments().filter(|segment| segment.index_id == index.id).collect();
        let segments = segments.as_slice();
        // By number, since a closure over borrowed items would make the future one that cannot change threads.
        let opened: Vec<Option<Segment>> = stream::iter(0..segments.len())
            .map(|number| async move { Segment::open(store, segments.get(number)?, index, counter).await.ok() })
            .buffer_unordered(CONCURRENT_SEGMENTS)
            .collect()
            .await;
        ValueBlocks::of(opened.into_iter().collect::<Option<_>>()?, request.descending)
    }
}

/// A value, and at least how many rows have it or one before it.
struct RowsUpTo {
    key: Key,
    rows: u64,
}

/// The blocks of values of all segments, in the order of a request.
struct ValueBlocks {
    descending: bool,
    segments: Vec<Segment>,
    blocks: Vec<ValueBlockRows>,
}

/// A block of values.
struct ValueBlockRows {
    /// No row of the block comes after this value.
    last: Key,
    rows: u64,
    segment: usize,
    block: usize,
}

/// Values of a block.
struct Stretch {
    keys: KeyRanges,
    /// Rows of the block that come before them.
    before: u64,
}

impl ValueBlocks {
    /// None if a directory does not say how far a block reaches.
    fn of(segments: Vec<Segment>, descending: bool) -> Option<Self> {
        let mut steps = Vec::new();
        for (number, segment) in segments.iter().enumerate() {
            let blocks = &segment.directory.blocks;
            for (block, found) in blocks.iter().enumerate() {
                let last = match descending {
                    true => &found.first_key,
                    // All values of a block are less than the first of the next.
                    false => {
                        blocks.get(block + 1).map(|next| &next.first_key).or(segment.directory.max_key.as_ref())?
                    }
                };
                steps.push(ValueBlockRows { last: last.clone(), rows: found.rows, segment: number, block });
            }
        }
        steps.sort_by(|one, other| if descending { other.last.cmp(&one.last) } else { one.last.cmp(&other.last) });
        Some(Self { descending, segments, blocks: steps })
    }

    fn rows(&self) -> u64 {
        self.blocks.iter().map(|step| step.rows).sum()
    }

    /// A value up to which there are so many rows at least.
    async fn bound(&self, wanted: u64, counter: &Arc<ReadCounter>) -> Option<RowsUpTo> {
        let (mut before, mut previous) = (0, None);
        for step in &self.blocks {
            let rest = wanted - before;
            if step.rows < rest {
                (before, previous) = (before + step.rows, Some(&step.last));
                continue;
            }
            let is_coarse = step.rows > rest.saturating_mul(GROWTH);
            let value = if is_coarse { self.value(step, rest, counter).await } else { None };
            let RowsUpTo { key, rows } = value.unwrap_or_else(|| RowsUpTo { key: step.last.clone(), rows: step.rows });
            // Blocks of other segments that end before this one may have values behind this value.
            let key = match previous {
                Some(previous) if self.descending => key.min(previous.clone()),
                Some(previous) => key.max(previous.clone()),
                None => key,
            };
            return Some(RowsUpTo { key, rows: before + rows });
        }
        None
    }

    /// Where a value is up to which a block has so many rows: in the block, or in a leaf of an inner page.
    async fn stretch(&self, step: &ValueBlockRows, wanted: u64, counter: &ReadCounter) -> Option<Stretch> {
        let segment = self.segments.get(step.segment)?;
        let blocks = &segment.directory.blocks;
        let block = blocks.get(step.block)?;
        let end = blocks.get(step.block + 1).map_or(Bound::Unbounded, |next| Bound::Excluded(next.first_key.clone()));
        if !block.is_inner {
            return Some(Stretch {
                keys: KeyRanges::between(Bound::Included(block.first_key.clone()), end),
                before: 0,
            });
        }
        let leaves = segment.leaves_of(&[block], counter).await.ok()?.pop()?;
        let mut places: Vec<usize> = (0..leaves.len()).collect();
        if self.descending {
            places.reverse();
        }
        let mut before = 0;
        for place in places {
            let leaf = leaves.get(place)?;
            if before + leaf.rows >= wanted {
                let end = leaves.get(place + 1).map_or(end, |next| Bound::Excluded(next.first_key.clone()));
                let keys = KeyRanges::between(Bound::Included(leaf.first_key.clone()), end);
                return Some(Stretch { keys, before });
            }
            before += leaf.rows;
        }
        None
    }

    /// The value of a block up to which the block has so many rows. None if the block has no single values, or cannot be read.
    async fn value(&self, step: &ValueBlockRows, wanted: u64, counter: &Arc<ReadCounter>) -> Option<RowsUpTo> {
        let Stretch { keys, before } = self.stretch(step, wanted, counter).await?;
        let segment = self.segments.get(step.segment)?.with_leaves(&keys, LeavesFor::Keys, counter).await.ok()?;
        let groups = ValueGroups::new(&segment.directory, keys);
        if segment.directory.encoding != Encoding::Packed && groups.value_limit() == u64::MAX {
            return None;
        }
        let mut values = read_values(&segment, groups, counter).await.ok()?;
        if self.descending {
            values.reverse();
        }
        let mut rows = before;
        values.into_iter().find_map(|value| {
            rows += u64::from(value.rows);
            (rows >= wanted).then_some(RowsUpTo { key: value.key, rows })
        })
    }
}

/// Rows that are exact in both.
fn common_rows(one: &Probe, other: &Probe) -> u64 {
    let common = |(place, one): (usize, &FileProbe)| match (one, other.files.get(place)) {
        (
            FileProbe::Known { row_groups, exact, .. },
            Some(FileProbe::Known { row_groups: same, exact: also_exact, .. }),
        ) if row_groups == same => u64::from(exact.and(also_exact).len()),
        _ => 0,
    };
    one.files.listed().map(common).sum()
}
