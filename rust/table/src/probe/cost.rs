//! Which conditions are worth a search. Before any posting is read, directories of segments give an estimate of what the search would find
//! and cost. The estimate is weighed against reading the rows.
//!
//! ```text
//! p1 AND p2 AND p3, ordered by selectivity: search none | p1 | p1, p2 | all of them
//!
//! search   rows and bytes of postings to decode, and runs of rows to plan for
//! read     share of pages touched × columns to decode, and in each column the runs of rows to step over
//! test     rows that remain to be rechecked × (columns that only the filter needs, and the test itself)
//! parent   rows that are handed on × what a join does with each
//! values   in place of reading, if all are searched and indexes give the values (`aggregate::cost`)
//! ```
//!
//! Costs are nanoseconds. What reading costs, `reading` says. Searches were measured on 2,000,000 rows for 0.1% to 50% of the rows, of
//! columns with 200 rows a value and with one. The constants need to be right within a factor of two: between a search that pays and one
//! that does not, there is mostly more than that. `benchmarks/never_worse.py` shows it.

use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::container::PAGE_BYTES;
use lakemark_format::{Encoding, ManifestIndex, ManifestSegment};
use lakemark_index::bitmap::{Estimate, LeavesFor, Weight, WeightBounds};
use lakemark_index::{KeyRanges, Leaf, Predicate, Test, Truth};

use super::CORES;
use super::reading::{PAGE_ROWS, PLAN_RUN, RowsToRead, TEST};
use crate::error::Result;
use crate::options::ReadCost;
use crate::snapshot::Snapshot;
use crate::store::parts::LEAST_BLOCKS_OF_PART;
use crate::store::segments::{ReadCounter, Segment};

/// Tables with fewer rows are read in about a millisecond, whatever the choice.
const MIN_ROWS: f64 = 65_536.0;
const MIN_NANOSECONDS: f64 = 1_000_000.0;
/// Bounds on a share that are this near to one another are near enough.
const NEAR: f64 = 0.01;
/// Between the bounds of shares the choice is made so many times. Where it is the same each time, the bounds are near enough as well.
const BETWEEN: u32 = 4;
/// Of more open conditions than these the blocks at the edges are read at once. To try what each would change takes too long.
const MOST_OPEN: usize = 8;
/// Segments that are opened at a time.
const CONCURRENT_SEGMENTS: usize = 32;

/// To decode the row of a posting and to put it into a set.
const DECODE_ROW: f64 = 4.0;
/// The same for a byte of a posting that is a bitmap or runs: it stands for many rows, or for none.
const DECODE_BYTE: f64 = 5.0;
/// To read a byte of postings and to check it.
const READ_BYTE: f64 = 1.0;
/// To find a posting, whatever it has: to decode its value and length, and to begin with it. That took 90 to 170 in a column in which
/// nearly every row has a value of its own.
const DECODE_POSTING: f64 = 120.0;
/// To begin with a segment, whatever is found.
const BEGIN_SEGMENT: f64 = 2_000.0;
/// To find the rows of a key of a packed tree, whose leaves are decoded as a whole and mostly without their keys.
const DECODE_KEY: f64 = 30.0;
/// The leaves of so many bytes, a page for each, are searched by all cores: twice those of a part.
const MANY_LEAVES: f64 = 2.0 * LEAST_BLOCKS_OF_PART as f64 * PAGE_BYTES as f64;
/// Postings of at least so many rows and no more bytes than this are runs. Values that are one run each are in the order of the
/// rows, so that the runs of neighbouring values are one.
const RUN_POSTING: f64 = 8.0;
/// Postings of fewer bytes than this share of what rows anywhere would take are mostly runs.
const RUNS_SHARE: f64 = 0.6;
/// What a row costs that a set of many rows has or has not. Such sets are bitmaps, which are cut by files and row groups and made
/// selectors. That took 15 ms of 100,000,000 rows.
const SET_ROW: f64 = 0.15;
/// From this share of the rows on a set is a bitmap.
const BITMAP_SHARE: f64 = 1.0 / 32.0;
/// To sort a value that is searched, to encode it, and to make a range of it.
const ENCODE_VALUE: f64 = 200.0;
/// How many rows a batch of the reader spans, also one of rows that were found, if these are enough: a LIMIT ends after a whole one.
const BATCH_ROWS: f64 = 8_192.0;
/// A search is left out only if that saves this share of the cost and this time: estimates are rough.
const WORTH_SHARE: f64 = 0.05;
const WORTH_NANOSECONDS: f64 = 300_000.0;

/// What is known of a leaf before the search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LeafEstimate {
    /// Rows that pass.
    pub passing: Weight,
    /// Rows with a value.
    pub all: Weight,
    /// Rows without one.
    pub nulls: Weight,
    /// Rows of the segments.
    pub rows: f64,
    /// Segments that would be searched.
    pub segments: usize,
    /// Ranges of keys that are requested, in all segments.
    pub ranges: f64,
    /// Whether all of the segments are packed trees.
    pub packed: bool,
    /// Whether rows that are found are to be tested: they share a hash with a value.
    pub rechecked: bool,
}

/// What is known of a leaf if the fewest rows pass that may, and if the most do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EstimateBounds {
    pub least: LeafEstimate,
    pub most: LeafEstimate,
}

impl EstimateBounds {
    /// Between the least and the most that may pass.
    fn between(&self, part: f64) -> LeafEstimate {
        let (least, most) = (self.least.passing, self.most.passing);
        let mix = |least: f64, most: f64| least + (most - least) * part;
        let passing = Weight {
            rows: mix(least.rows, most.rows),
            bytes: mix(least.bytes, most.bytes),
            postings: mix(least.postings, most.postings),
        };
        LeafEstimate { passing, ..self.most }
    }

    /// Whether the bounds on the share are too far apart.
    fn are_apart(&self) -> bool {
        self.most.share() - self.least.share() > NEAR
    }
}

impl LeafEstimate {
    fn share(&self) -> f64 {
        if self.rows > 0.0 { (self.passing.rows / self.rows).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Of the rows that pass and those that do not, a search decodes the fewer. Says whether these are the rows that do not pass.
    fn is_opposite(&self) -> bool {
        self.passing.rows * 2.0 > self.all.rows
    }

    fn decoded(&self) -> Weight {
        if !self.is_opposite() {
            return self.passing;
        }
        Weight {
            rows: (self.all.rows - self.passing.rows).max(0.0),
            bytes: (self.all.bytes - self.passing.bytes).max(0.0),
            postings: (self.all.postings - self.passing.postings).max(0.0),
        }
    }

    /// Runs of consecutive rows, no more than bytes. Where most rows pass, the rows without a value lie between the runs, too.
    fn runs(&self) -> f64 {
        let Weight { rows, bytes, postings } = self.decoded();
        let gaps = if self.is_opposite() { self.nulls.bytes.min(self.nulls.rows) } else { 0.0 };
        // Keys in the order of rows take a bit or two each, rows anywhere a byte at least.
        let in_order = self.packed && bytes * 4.0 < rows;
        if in_order || rows >= postings * RUN_POSTING && bytes <= postings * RUN_POSTING {
            // Rows of a range follow each other, and those of another one are elsewhere.
            return gaps + self.ranges.max(self.segments as f64).min(bytes.max(postings));
        }
        // Any row of a leaf counts with all of its bytes.
        let own = if self.packed { bytes.min(self.all.bytes * rows / self.all.rows.max(1.0)) } else { bytes };
        let rows_of_segment = self.rows / self.segments.max(1) as f64;
        // Rows anywhere take as many bits each (Elias and Fano).
        let apart = (rows_of_segment * postings / rows.max(1.0)).max(1.0).log2() + 2.0;
        // A posting of one row is no run of several.
        if rows < postings * 2.0 || own * 8.0 > rows * apart * RUNS_SHARE {
            return gaps + bytes;
        }
        // A run takes a byte for its length, and for the gap before it as many as a number of that size.
        let gap = (rows_of_segment * postings / (own / 3.0).max(1.0)).max(2.0);
        gaps + own / (1.0 + (gap.log2() / 7.0).ceil())
    }

    /// A segment is searched by one core, and the leaves of a packed tree by all.
    fn search_cost(&self, cores: f64) -> f64 {
        // Rows without a value are taken away as well.
        let decoded = if self.is_opposite() { self.decoded().plus(self.nulls) } else { self.decoded() };
        let decode = (decoded.rows * DECODE_ROW).min(decoded.bytes * DECODE_BYTE);
        let find = decoded.postings * if self.packed { DECODE_KEY } else { DECODE_POSTING };
        let begin = self.segments as f64 * BEGIN_SEGMENT;
        let shared_by = if self.packed && decoded.bytes > MANY_LEAVES { cores } else { self.segments.max(1) as f64 };
        (begin + find + decode + decoded.bytes * READ_BYTE) / cores.min(shared_by)
    }
}

/// What was estimated of the leaves of a predicate, and what follows for each.
#[derive(Debug, Default)]
pub(crate) struct SearchPlan {
    /// Whether the search for the leaf is left out, as reading is cheaper.
    pub skipped: Vec<bool>,
    /// The share of rows that the leaf is true of, or the most that the share may be; none of a leaf that no index answers for every row.
    pub shares: Vec<Option<f64>>,
    /// The likely share that all conditions left out are true of, among the rows that the other searches find.
    pub share_left: Option<f64>,
}

impl Snapshot {
    /// For each of several conditions of an AND whether a search for its values is worth what it costs to sort and to encode them as well,
    /// whichever the values are. Each value counts as if it was there and had as many rows as the others. So nothing is known of values
    /// that no row has. True where no index knows the column.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub async fn worth_searching(&self, wanted: &[SearchedColumn<'_>], reading: &ReadCost) -> Result<Vec<bool>> {
        let (mut leaves, mut guesses) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
        for SearchedColumn { column, values } in wanted {
            let test = Test::Ranges(KeyRanges::none());
            let leaf = Leaf { column: (*column).to_owned(), test, text: String::new() };
            let bounds = guess(self, &searched(self, &leaf), &ReadCounter::default(), false).await;
            let known = self.distinct_values(column).await?;
            guesses.push(bounds.zip(known).map(|(EstimateBounds { least: none, .. }, known)| {
                let share = (values / (known as f64).max(1.0)).min(1.0);
                LeafEstimate { passing: none.all.times(share), ranges: *values, ..none }
            }));
            leaves.push(Predicate::Leaf(leaf));
        }
        let unencoded: Vec<f64> = wanted.iter().map(|wanted| wanted.values).collect();
        let predicate = Predicate::And(leaves);
        let model = CostModel {
            predicate: &predicate,
            guesses: &guesses,
            reading,
            cores: *CORES as f64,
            unencoded: &unencoded,
        };
        let skipped = model.searches_to_skip().into_iter().zip(&guesses);
        Ok(skipped.map(|(skipped, guess)| !skipped || guess.is_none()).collect())
    }
}

/// A column, and how many different values of it are searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchedColumn<'a> {
    /// The column.
    pub column: &'a str,
    /// About how many values.
    pub values: f64,
}

/// Weighs the searches of a predicate's leaves.
pub(super) async fn choose(
    snapshot: &Snapshot,
    predicate: &Predicate,
    reading: &ReadCost,
    counter: &ReadCounter,
) -> SearchPlan {
    let leaves = predicate.leaves();
    let searched: Vec<Vec<SegmentToSearch>> = leaves.iter().map(|leaf| searched(snapshot, leaf)).collect();
    if searched.iter().all(Vec::is_empty) {
        return SearchPlan::default();
    }
    let mut bounds = Vec::with_capacity(leaves.len());
    for (leaf, segments) in leaves.iter().zip(&searched) {
        // A partition column has one value in a file: that costs nothing and is exact.
        let partition = snapshot.partition_columns().iter().any(|field| *field.name() == leaf.column);
        let known = if partition { Some(EstimateBounds::default()) } else { None };
        bounds.push(known.or(guess(snapshot, segments, counter, false).await));
    }
    let cores = *CORES as f64;
    let left_out = |guesses: &[Option<LeafEstimate>]| {
        CostModel { predicate, guesses, reading, cores, unencoded: &[] }.searches_to_skip()
    };
    let choice = |left_out: Vec<bool>, shares: Vec<Option<f64>>, guesses: &[Option<LeafEstimate>]| {
        let share_left = CostModel { predicate, guesses, reading, cores, unencoded: &[] }.share_left(&left_out);
        SearchPlan { skipped: left_out, shares, share_left }
    };
    if let Some(left_out) = decided(&bounds, left_out) {
        let most = bounds.iter().map(|bounds| bounds.map(|bounds| bounds.most.share()));
        let half: Vec<_> = bounds.iter().map(|bounds| bounds.map(|bounds| bounds.between(0.5))).collect();
        return choice(left_out, most.collect(), &half);
    }
    let mut guesses = Vec::with_capacity(leaves.len());
    for (segments, bounds) in searched.iter().zip(bounds) {
        guesses.push(match bounds {
            // The blocks at the edges of the ranges have so many rows that they are read.
            Some(bounds) if bounds.are_apart() && bounds.most.rows >= MIN_ROWS => {
                let exactly = guess(snapshot, segments, counter, true).await;
                Some(exactly.map_or(bounds.most, |exactly| exactly.least))
            }
            other => other.map(|bounds| bounds.most),
        });
    }
    let shares = guesses.iter().map(|guess| guess.as_ref().map(LeafEstimate::share)).collect();
    choice(left_out(&guesses), shares, &guesses)
}

/// The searches that are left out, if that is the same everywhere between the bounds. It is tried where all conditions are true of more and
/// more rows. It is also tried where each is true of as few rows as may be while the others are of as many, and the other way round.
fn decided(
    bounds: &[Option<EstimateBounds>],
    left_out: impl Fn(&[Option<LeafEstimate>]) -> Vec<bool>,
) -> Option<Vec<bool>> {
    let at = |part: &dyn Fn(usize) -> f64| {
        let guesses = bounds.iter().enumerate();
        let guesses: Vec<_> = guesses.map(|(leaf, of)| of.map(|of| of.between(part(leaf)))).collect();
        left_out(&guesses)
    };
    let most = at(&|_| 1.0);
    let is_open = |bounds: &Option<EstimateBounds>| bounds.is_some_and(|bounds| bounds.are_apart());
    let open: Vec<usize> = (0..).zip(bounds).filter(|(_, bounds)| is_open(bounds)).map(|(leaf, _)| leaf).collect();
    // There are as many corners as conditions, and each corner costs as much as there are conditions.
    if open.len() > MOST_OPEN {
        return None;
    }
    let corners = if open.len() > 1 { open.as_slice() } else { &[] };
    let is_same = (0..BETWEEN).all(|part| at(&|_| f64::from(part) / f64::from(BETWEEN)) == most)
        && corners.iter().all(|one| {
            at(&|leaf| f64::from(u8::from(leaf != *one))) == most
                && at(&|leaf| f64::from(u8::from(leaf == *one))) == most
        });
    is_same.then_some(most)
}

/// A segment that a leaf would search.
struct SegmentToSearch<'a> {
    leaf: &'a Leaf,
    index: &'a ManifestIndex,
    segment: &'a ManifestSegment,
}

/// The segments of the first index on the column of a leaf that knows rows. Zones cost few reads, and are always searched.
fn searched<'a>(snapshot: &'a Snapshot, leaf: &'a Leaf) -> Vec<SegmentToSearch<'a>> {
    let (Some(manifest), Some(index)) = (&snapshot.manifest, snapshot.row_indexes_for(leaf).first().copied()) else {
        return Vec::new();
    };
    let segments = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
    segments.map(|segment| SegmentToSearch { leaf, index, segment }).collect()
}

/// The least and the most that the segments may have, or (`exactly`) twice what they have. None without a segment that can be opened. What
/// is wrong with a segment the search will report.
async fn guess(
    snapshot: &Snapshot,
    segments: &[SegmentToSearch<'_>],
    counter: &ReadCounter,
    exactly: bool,
) -> Option<EstimateBounds> {
    let store = snapshot.store.as_ref()?;
    // By number, since a closure over borrowed items would make the future one that cannot change threads.
    let found: Vec<EstimateBounds> = stream::iter(0..segments.len())
        .map(|number| async move {
            let SegmentToSearch { leaf, index, segment } = segments.get(number)?;
            let opened = Segment::open(store, segment, index, counter).await.ok()?;
            let opened = opened.with_leaves_of(&leaf.test, LeavesFor::Counts, counter).await.ok()?;
            let estimate = Estimate::new(&opened.directory, &leaf.test);
            let WeightBounds { least, most } = if exactly {
                let edges = opened.read(&estimate.edge_ranges(), counter).await.ok()?;
                let passing = estimate.exactly(&edges);
                WeightBounds { least: passing, most: passing }
            } else {
                estimate.bounds()
            };
            let packed = opened.directory.encoding == Encoding::Packed;
            let (all, nulls, rows) = (estimate.all(), estimate.nulls(), estimate.rows());
            let ranges = estimate.ranges() as f64;
            let rechecked = opened.directory.key_type.hash_bits().is_some();
            let guess = |passing| LeafEstimate { passing, all, nulls, rows, segments: 1, ranges, packed, rechecked };
            Some(EstimateBounds { least: guess(least), most: guess(most) })
        })
        .buffer_unordered(CONCURRENT_SEGMENTS)
        .filter_map(|found| async move { found })
        .collect()
        .await;
    let sum = |one: LeafEstimate, other: LeafEstimate| LeafEstimate {
        passing: one.passing.plus(other.passing),
        all: one.all.plus(other.all),
        nulls: one.nulls.plus(other.nulls),
        rows: one.rows + other.rows,
        segments: one.segments + other.segments,
        ranges: one.ranges + other.ranges,
        packed: one.packed && other.packed,
        rechecked: one.rechecked || other.rechecked,
    };
    found
        .into_iter()
        .reduce(|one, other| EstimateBounds { least: sum(one.least, other.least), most: sum(one.most, other.most) })
}

/// What has to be decided, with a guess for each leaf that an index could answer.
pub(super) struct CostModel<'a> {
    pub predicate: &'a Predicate,
    pub guesses: &'a [Option<LeafEstimate>],
    pub reading: &'a ReadCost,
    pub cores: f64,
    /// For each leaf the number of values that have still to be sorted and encoded; nothing where all are.
    pub unencoded: &'a [f64],
}

/// A conjunct with its leaves.
struct ConjunctCost {
    leaves: std::ops::Range<usize>,
    share: f64,
    search_cost: f64,
    runs: f64,
    /// Whether an index decides it for every row, so that no row has to be tested.
    certain: bool,
}

impl CostModel<'_> {
    /// For each leaf whether its search is left out.
    pub(super) fn searches_to_skip(&self) -> Vec<bool> {
        let mut skip = vec![false; self.guesses.len()];
        let rows = self.guesses.iter().flatten().map(|guess| guess.rows).fold(0.0, f64::max);
        if rows < MIN_ROWS {
            // A search for thousands of keys takes longer than reading so few rows.
            let is_long = |(leaf, guess): (usize, &Option<LeafEstimate>)| {
                guess.is_some_and(|guess| guess.search_cost(1.0) + self.encode_cost(leaf) > MIN_NANOSECONDS)
            };
            return self.guesses.iter().enumerate().map(is_long).collect();
        }
        let mut parts = self.parts();
        parts.sort_by(|one, other| one.share.total_cmp(&other.share));
        let all = self.cost(&parts, parts.len(), rows);
        let cheapest = (0..parts.len())
            .map(|searched| (searched, self.cost(&parts, searched, rows)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some((searched, cost)) = cheapest
            && all - cost > (all * WORTH_SHARE).max(WORTH_NANOSECONDS)
        {
            for part in parts.iter().skip(searched).filter(|part| part.search_cost > 0.0) {
                part.leaves.clone().for_each(|leaf| skip.iter_mut().skip(leaf).take(1).for_each(|skip| *skip = true));
            }
        }
        skip
    }

    /// What it takes to sort and to encode the values of a leaf, on one core.
    fn encode_cost(&self, leaf: usize) -> f64 {
        self.unencoded.get(leaf).map_or(0.0, |values| values * ENCODE_VALUE)
    }

    /// The share of rows that the conjuncts left out are true of; none if nothing is left out, or if the share of a conjunct is unknown.
    fn share_left(&self, left_out: &[bool]) -> Option<f64> {
        let is_left = |part: &ConjunctCost| left_out.get(part.leaves.clone()).unwrap_or_default().contains(&true);
        let parts = self.parts();
        let is_known = left_out.contains(&true) && parts.iter().all(|part| part.certain);
        is_known.then(|| parts.iter().filter(|part| is_left(part)).map(|part| part.share).product())
    }

    /// The conjuncts, with what their searches find and cost.
    fn parts(&self) -> Vec<ConjunctCost> {
        let conjuncts = match self.predicate {
            Predicate::And(conjuncts) => conjuncts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let decides = |guess: &Option<LeafEstimate>| guess.is_some_and(|guess| !guess.rechecked);
        let mut next = 0;
        let part = |conjunct: &Predicate| {
            let leaves = next..next + conjunct.leaves().len();
            next = leaves.end;
            let guesses: Vec<Option<LeafEstimate>> =
                leaves.clone().map(|leaf| self.guesses.get(leaf).copied().flatten()).collect();
            let known = guesses.iter().flatten();
            ConjunctCost {
                share: share(conjunct, &mut guesses.iter()),
                search_cost: known.clone().map(|guess| guess.search_cost(self.cores)).sum::<f64>()
                    + leaves.clone().map(|leaf| self.encode_cost(leaf)).sum::<f64>(),
                runs: known.map(LeafEstimate::runs).sum(),
                certain: conjunct.unknowns().is_empty() && guesses.iter().all(decides),
                leaves,
            }
        };
        conjuncts.iter().map(part).collect()
    }

    /// The cost of searching the first parts and testing the others.
    fn cost(&self, parts: &[ConjunctCost], searched: usize, rows: f64) -> f64 {
        let (first, others) = parts.split_at_checked(searched).unwrap_or((parts, &[]));
        let product = |parts: &[ConjunctCost]| parts.iter().map(|part| part.share).product::<f64>();
        let (found, answer) = (product(first), product(parts));
        let certain = others.is_empty() && first.iter().all(|part| part.certain);
        let searches: f64 = first.iter().map(|part| part.search_cost).sum();
        if let Some(index_only) = self.reading.index_only.filter(|values| certain && answer >= values.least_share) {
            return searches + index_only.nanoseconds;
        }
        // A LIMIT ends the reading when it has its rows.
        let taken = match self.reading.limit {
            Some(limit) if certain => (limit / (answer * rows).max(1.0)).min(1.0),
            Some(limit) => {
                let least = (ReadCost::LEAST_BATCH_ROWS as f64).max(limit).min(BATCH_ROWS);
                let batch = BATCH_ROWS.max(least / found.max(1.0 / rows));
                ((limit / answer.max(1.0 / rows) + batch * self.cores) / rows).min(1.0)
            }
            None => 1.0,
        };
        let most_runs: f64 = first.iter().map(|part| part.runs).sum();
        let runs = if first.is_empty() { 0.0 } else { (found * (1.0 - found) * rows).min(most_runs) };
        let page_rows = f64::from(PAGE_ROWS);
        let scattered = 1.0 - (1.0 - found).powf(page_rows);
        let touched = scattered.min(found + runs * page_rows / rows);
        let columns = if certain { self.reading.output } else { self.reading.output.plus(self.reading.filter) };
        let tested = if certain { 0.0 } else { found * rows * TEST * parts.len() as f64 };
        let wanted = RowsToRead { rows, selected: found * rows, runs, touched: rows * touched };
        let read = wanted.decode_cost(columns) + tested + found * rows * self.reading.parent_cost;
        let planned = if certain { taken * runs } else { runs };
        let sets = if !first.is_empty() && found > BITMAP_SHARE { rows * SET_ROW } else { 0.0 };
        searches + sets + planned * PLAN_RUN + taken * read / self.cores
    }
}

/// The share of rows for which a predicate is true, as if conditions had nothing to do with one another.
fn share<'a>(predicate: &Predicate, guesses: &mut impl Iterator<Item = &'a Option<LeafEstimate>>) -> f64 {
    match predicate {
        Predicate::Const(Truth::True) | Predicate::Unknown { .. } => 1.0,
        Predicate::Const(Truth::False | Truth::Null) => 0.0,
        Predicate::Leaf(_) => guesses.next().copied().flatten().map_or(1.0, |guess| guess.share()),
        // What cannot be true of more rows cannot be false of fewer; unknown parts may be either.
        Predicate::Not(inner) if inner.unknowns().is_empty() => 1.0 - share(inner, guesses),
        Predicate::Not(inner) => {
            share(inner, guesses);
            1.0
        }
        Predicate::And(parts) => parts.iter().map(|part| share(part, guesses)).product(),
        Predicate::Or(parts) => 1.0 - parts.iter().map(|part| 1.0 - share(part, guesses)).product::<f64>(),
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
