//! Planning an answer: which bitmaps, which postings, whether to add or to take away.
//!
//! For every bin the coarse level says yes to all of its rows, or no. Where it says yes, the postings of the bin's values that
//! are not requested are taken away. Where it says no, the postings of the requested values are added:
//!
//! ```text
//! bins         │ 0      │ 1      │ 2      │ 3      │
//! requested    │    ████│████████│████████│█       │
//! coarse level │ yes    │ yes    │ yes    │ no     │      1 bitmap of the range level
//! fine level   │ −−−    │        │        │+       │      few postings
//! ```
//!
//! The bytes of all postings and bitmaps are known before any is read. So the choice is the cheapest one there is: a shortest
//! path over the bins. Without a coarse level there is one bin, and the choice is between the requested postings and the others.
//! All of this takes two rounds of reading, so an estimate chooses the value blocks to read. It takes postings to be spread
//! evenly over the values of their block.

use std::ops::Range;

use lakemark_format::segment::encoding::CoarseLevel;
use lakemark_format::segment::{PostingRef, SegmentDirectory};
use lakemark_format::value_block::Value;

use super::coarse::{Runs, Term};
use super::overlap::{BinPart, Bins, BlockOverlap, PlacedBlock, blocks, first_ranks};
use super::rounds::{DecodedBlock, Planned};
use super::slices::Program;
use crate::ranges::KeyRanges;

/// A value of a block that was read.
struct RequestedValue<'a> {
    value: &'a Value,
    is_requested: bool,
}

/// The values of a block that was read, each with whether it is requested.
struct ReadBlock {
    number: usize,
    values: Vec<Value>,
    requested: Vec<bool>,
}

impl ReadBlock {
    fn all(read: Vec<DecodedBlock<Value>>, keys: &KeyRanges) -> Vec<Self> {
        let mut keys = keys.cursor();
        let of_block = |block: DecodedBlock<Value>| {
            let requested = block.entries.iter().map(|value| keys.contains(&value.key)).collect();
            Self { number: block.number, values: block.entries, requested }
        };
        read.into_iter().map(of_block).collect()
    }

    fn values(&self) -> impl Iterator<Item = RequestedValue<'_>> {
        self.values
            .iter()
            .zip(&self.requested)
            .map(|(value, is_requested)| RequestedValue { value, is_requested: *is_requested })
    }
}

/// Too dear for any plan: postings whose value block is not read.
const NEVER: u128 = 1 << 80;
/// Blocks that share a bin with an edge are read with it if they are this few, so that either end of the bin can be reached.
const BLOCKS_OF_SMALL_BIN: usize = 3;

/// What the second round reads and what it means.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Neighbouring postings.
    pub postings: Vec<PostingRange>,
    /// The bitmaps that are combined before postings are added and taken away.
    pub base: CoarseBase,
    /// Rows of the answer, as the value blocks count them; of lists they do not.
    pub rows: u64,
}

/// Postings that lie side by side.
#[derive(Debug)]
pub(super) struct PostingRange {
    /// Their rows are not in the answer.
    pub removed: bool,
    /// The values, in the order of their postings.
    pub values: Vec<Value>,
}

/// What the coarse level gives.
#[derive(Debug, Default)]
pub(super) enum CoarseBase {
    /// No row.
    #[default]
    Nothing,
    /// Every row with a value.
    Everything,
    /// The rows of some runs of bins.
    Runs(Runs),
    /// The rows of some ranges of ranks.
    Slices(Program),
}

impl CoarseBase {
    /// The bitmaps to read, ascending.
    pub(super) fn bitmaps(&self) -> Vec<usize> {
        match self {
            Self::Nothing | Self::Everything => Vec::new(),
            Self::Runs(runs) => runs.bitmaps(),
            Self::Slices(program) => program.slices().to_vec(),
        }
    }
}

/// The blocks that the plan may need, ascending.
pub(super) fn first_blocks(directory: &SegmentDirectory, places: &[BlockOverlap]) -> Vec<usize> {
    if directory.key_type.is_list() {
        return chosen(places.iter().map(|place| *place != BlockOverlap::Outside));
    }
    let edges = places.iter().map(|place| *place == BlockOverlap::Edge);
    if !directory.encoding.has_postings() {
        return chosen(edges);
    }
    let bins = Bins::new(directory);
    let mut costs = vec![Cost::default(); bins.len()];
    for PlacedBlock { block, place, ranks } in blocks(directory, places) {
        let values = u128::from(block.values.max(1));
        for BinPart { bin, ranks: part } in bins.of(&ranks) {
            let Some(cost) = costs.get_mut(bin) else { continue };
            let share = |bytes: u64| u128::from(bytes) * u128::from(part.end - part.start) / values;
            let (postings, all) =
                (share(block.postings_length), share(block.postings_length + u64::from(block.length)));
            match place {
                BlockOverlap::Inside => cost.no += all,
                BlockOverlap::Outside => cost.yes += all,
                BlockOverlap::Edge => {
                    cost.no += postings / 2;
                    cost.yes += postings / 2;
                }
            }
        }
    }
    let yes = cheapest(directory, &costs);
    let mut wanted: Vec<bool> = edges.collect();
    // The blocks of each bin.
    let mut touched: Vec<Option<Range<usize>>> = vec![None; bins.len()];
    for (number, PlacedBlock { place, ranks, .. }) in blocks(directory, places).enumerate() {
        for BinPart { bin, .. } in bins.of(&ranks) {
            let needed = match yes.get(bin) {
                Some(true) => place == BlockOverlap::Outside,
                _ => place == BlockOverlap::Inside,
            };
            if let (true, Some(slot)) = (needed, wanted.get_mut(number)) {
                *slot = true;
            }
            if let Some(blocks) = touched.get_mut(bin) {
                *blocks = Some(blocks.as_ref().map_or(number, |blocks| blocks.start)..number + 1);
            }
        }
    }
    if bins.len() > 1 {
        for blocks in touched.into_iter().flatten().filter(|blocks| blocks.len() <= BLOCKS_OF_SMALL_BIN) {
            if places.get(blocks.clone()).is_some_and(|places| places.contains(&BlockOverlap::Edge)) {
                wanted.get_mut(blocks).unwrap_or_default().fill(true);
            }
        }
    }
    chosen(wanted.into_iter())
}

fn chosen(wanted: impl Iterator<Item = bool>) -> Vec<usize> {
    wanted.enumerate().filter(|(_, wanted)| *wanted).map(|(number, _)| number).collect()
}

impl Plan {
    /// The cheapest plan with the blocks read, by ascending number. It reads its postings and then its bitmaps.
    pub(super) fn new(
        directory: &SegmentDirectory,
        keys: &KeyRanges,
        places: &[BlockOverlap],
        read: Vec<DecodedBlock<Value>>,
    ) -> Planned<Self> {
        let read = ReadBlock::all(read, keys);
        let rows = match directory.key_type.is_list() {
            // A row may have several of the keys.
            true => 0,
            false => requested_rows(directory, places, &read),
        };
        let mut plan = Self { rows, ..Self::default() };
        let mut ranges = Vec::new();
        match directory.encoding.coarse_level() {
            Some(level) if !directory.encoding.has_fine_level() => {
                plan.base = single_level(directory, level, requested_ranks(directory, places, &read));
            }
            _ => {
                let yes = match directory.key_type.is_list() {
                    // Rows of other elements may be requested rows, too: no posting can be taken away.
                    true => vec![false],
                    false => cheapest(directory, &exact_costs(directory, places, &read)),
                };
                plan.base = base_of_bins(directory, &yes);
                plan.take_postings(directory, read, &yes, &mut ranges);
            }
        }
        for number in plan.base.bitmaps() {
            let bitmap = directory.bitmaps.get(number).copied().unwrap_or_default();
            ranges.push(bitmap.offset..bitmap.offset + u64::from(bitmap.length));
        }
        Planned { plan, ranges }
    }

    /// Takes requested values where the bin says no, and the other values where it says yes.
    fn take_postings(
        &mut self,
        directory: &SegmentDirectory,
        read: Vec<ReadBlock>,
        yes: &[bool],
        ranges: &mut Vec<Range<u64>>,
    ) {
        let bins = Bins::new(directory);
        let first_ranks = first_ranks(directory);
        for ReadBlock { number, values, requested } in read {
            let Some(block) = directory.blocks.get(number) else { continue };
            let mut offset = block.postings_offset;
            let mut bin = bins.cursor(first_ranks.get(number).copied().unwrap_or(0));
            for (value, is_requested) in values.into_iter().zip(requested) {
                let end = offset + u64::from(value.posting_length);
                let removed = yes.get(bin.next()).copied().unwrap_or(false);
                if is_requested != removed {
                    match (ranges.last_mut(), self.postings.last_mut()) {
                        (Some(range), Some(piece)) if range.end == offset && piece.removed == removed => {
                            range.end = end;
                            piece.values.push(value);
                        }
                        _ => {
                            ranges.push(offset..end);
                            self.postings.push(PostingRange { removed, values: vec![value] });
                        }
                    }
                }
                offset = end;
            }
        }
    }
}

/// Bytes of the postings that a bin takes.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// If the coarse level says no: the requested ones.
    no: u128,
    /// If it says yes: the others.
    yes: u128,
}

/// What each bin costs, from the values read; postings of blocks that were not read cannot be had.
fn exact_costs(directory: &SegmentDirectory, places: &[BlockOverlap], read: &[ReadBlock]) -> Vec<Cost> {
    let bins = Bins::new(directory);
    let mut costs = vec![Cost::default(); bins.len()];
    let mut read = read.iter().peekable();
    for (number, PlacedBlock { place, ranks, .. }) in blocks(directory, places).enumerate() {
        if let Some(block) = read.next_if(|block| block.number == number) {
            let mut bin = bins.cursor(ranks.start);
            for RequestedValue { value, is_requested } in block.values() {
                let Some(cost) = costs.get_mut(bin.next()) else { continue };
                let side = if is_requested { &mut cost.no } else { &mut cost.yes };
                *side += u128::from(value.posting_length);
            }
            continue;
        }
        for BinPart { bin, .. } in bins.of(&ranks) {
            let Some(cost) = costs.get_mut(bin) else { continue };
            match place {
                BlockOverlap::Inside => cost.no += NEVER,
                BlockOverlap::Outside => cost.yes += NEVER,
                BlockOverlap::Edge => {}
            }
        }
    }
    costs
}

/// For each bin, whether the coarse level says yes in the cheapest plan.
fn cheapest(directory: &SegmentDirectory, costs: &[Cost]) -> Vec<bool> {
    match directory.encoding.coarse_level() {
        Some(CoarseLevel::Range) => cheapest_by_changes(costs, &directory.bitmaps),
        Some(level) => cheapest_by_runs(level, costs, &directory.bitmaps),
        None => costs.iter().map(|cost| cost.yes < cost.no).collect(),
    }
}

/// The range level pays for every change from bin to bin: the bitmap between the two.
fn cheapest_by_changes(costs: &[Cost], bitmaps: &[PostingRef]) -> Vec<bool> {
    let mut totals = [0u128; 2];
    // For each bin and answer, the answer of the bin before on the cheapest way there.
    let mut ways: Vec<[bool; 2]> = Vec::with_capacity(costs.len());
    for (bin, cost) in costs.iter().enumerate() {
        let bitmap = bin.checked_sub(1).and_then(|number| bitmaps.get(number));
        let change = bitmap.map_or(0, |bitmap| u128::from(bitmap.length));
        let [no, yes] = totals;
        ways.push([yes + change < no, yes <= no + change]);
        totals = [no.min(yes + change) + cost.no, yes.min(no + change) + cost.yes];
    }
    let [no, yes] = totals;
    let mut answer = yes < no;
    let mut answers = vec![false; costs.len()];
    for (slot, [no, yes]) in answers.iter_mut().zip(&ways).rev() {
        *slot = answer;
        answer = if answer { *yes } else { *no };
    }
    answers
}

/// A way to the start of a bin, of which the bins before it are a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RunWay {
    cost: u128,
    /// Where the run begins.
    start: usize,
}

impl RunWay {
    /// There is no such way.
    const NONE: Self = Self { cost: u128::MAX, start: 0 };
}

/// The interval level pays for each run of bins, by where it begins and ends.
fn cheapest_by_runs(level: CoarseLevel, costs: &[Cost], bitmaps: &[PostingRef]) -> Vec<bool> {
    let bins = costs.len();
    let mut yes_before = vec![0u128];
    for cost in costs {
        yes_before.push(yes_before.last().copied().unwrap_or(0) + cost.yes);
    }
    // Cheapest ways to the start of each bin after a no, and after a run.
    let mut after_no = vec![0u128];
    let mut after_run = vec![RunWay::NONE];
    for (bin, cost) in costs.iter().enumerate() {
        let end = bin + 1;
        let total = yes_before.get(end).copied().unwrap_or(0);
        let ways = after_no.iter().zip(&yes_before).enumerate().map(|(start, (way, before))| {
            let bitmaps = Term::new(level, bins, start..end).bytes(bitmaps);
            RunWay { cost: way + (total - before) + u128::from(bitmaps), start }
        });
        let run = ways.min().unwrap_or(RunWay::NONE);
        let no = after_no.last().copied().unwrap_or(0).min(after_run.last().map_or(u128::MAX, |run| run.cost));
        after_no.push(no.saturating_add(cost.no));
        after_run.push(run);
    }
    let mut answers = vec![false; bins];
    let mut end = bins;
    while end > 0 {
        let run = after_run.get(end).copied().unwrap_or(RunWay::NONE);
        if run.cost < after_no.get(end).copied().unwrap_or(0) {
            answers.get_mut(run.start..end).unwrap_or_default().fill(true);
            end = run.start;
            // What follows a run backwards is a no, or the beginning.
        }
        end = end.saturating_sub(1);
    }
    answers
}

fn base_of_bins(directory: &SegmentDirectory, yes: &[bool]) -> CoarseBase {
    if yes.iter().all(|yes| *yes) {
        return CoarseBase::Everything;
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (bin, _) in yes.iter().enumerate().filter(|(_, yes)| **yes) {
        match runs.last_mut() {
            Some(run) if run.end == bin => run.end += 1,
            _ => runs.push(bin..bin + 1),
        }
    }
    match directory.encoding.coarse_level() {
        Some(level) if !runs.is_empty() => CoarseBase::Runs(Runs::new(level, yes.len(), &runs, &directory.bitmaps)),
        _ => CoarseBase::Nothing,
    }
}

/// Every value its own bin, and no postings.
fn single_level(directory: &SegmentDirectory, level: CoarseLevel, ranks: Vec<Range<u64>>) -> CoarseBase {
    if level == CoarseLevel::Slices {
        return CoarseBase::Slices(Program::new(ranks, directory.value_count, directory.bitmaps.len()));
    }
    let place = |rank: u64| usize::try_from(rank).unwrap_or(usize::MAX);
    let runs: Vec<Range<usize>> = ranks.iter().map(|run| place(run.start)..place(run.end)).collect();
    if runs.is_empty() {
        return CoarseBase::Nothing;
    }
    CoarseBase::Runs(Runs::new(level, place(directory.value_count), &runs, &directory.bitmaps))
}

/// The requested ranks, as ranges that ascend and do not touch.
fn requested_ranks(directory: &SegmentDirectory, places: &[BlockOverlap], read: &[ReadBlock]) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut add = |ranks: Range<u64>| match found.last_mut() {
        Some(last) if last.end == ranks.start => last.end = ranks.end,
        _ => found.push(ranks),
    };
    let mut read = read.iter().peekable();
    for (number, PlacedBlock { place, ranks, .. }) in blocks(directory, places).enumerate() {
        match (place, read.next_if(|block| block.number == number)) {
            (BlockOverlap::Inside, _) => add(ranks),
            (BlockOverlap::Edge, Some(block)) => {
                let requested = (ranks.start..).zip(&block.requested).filter(|(_, is_requested)| **is_requested);
                requested.for_each(|(rank, _)| add(rank..rank + 1));
            }
            _ => {}
        }
    }
    found
}

/// How many rows have a key of the ranges.
fn requested_rows(directory: &SegmentDirectory, places: &[BlockOverlap], read: &[ReadBlock]) -> u64 {
    let inside: u64 = blocks(directory, places)
        .filter(|placed| placed.place == BlockOverlap::Inside)
        .map(|placed| placed.block.rows)
        .sum();
    let edges =
        read.iter().filter(|block| places.get(block.number) == Some(&BlockOverlap::Edge)).flat_map(ReadBlock::values);
    inside
        + edges.filter(|requested| requested.is_requested).map(|requested| u64::from(requested.value.rows)).sum::<u64>()
}
