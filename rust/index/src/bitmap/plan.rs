//! Planning an answer: which bitmaps, which postings, whether to add or to take away.
//!
//! For every bin the coarse level says yes to all of its rows, or no. Where it says yes, the postings of the bin's values that are
//! not asked for are taken away; where it says no, those that are asked for are added:
//!
//! ```text
//! bins         │ 0      │ 1      │ 2      │ 3      │
//! asked for    │    ████│████████│████████│█       │
//! coarse level │ yes    │ yes    │ yes    │ no     │      1 bitmap of the range level
//! fine level   │ −−−    │        │        │+       │      few postings
//! ```
//!
//! The bytes of all postings and bitmaps are known before any is read, so the choice is the cheapest one there is: a shortest path
//! over the bins. Without a coarse level there is one bin, and the choice is between the postings asked for and the others.
//! All of this takes two rounds of reading, so the value blocks to read are chosen by an estimate: postings are taken
//! to be spread evenly over the values of their block.

use std::ops::{Bound, Range};

use lakemark_format::key::Key;
use lakemark_format::segment::encoding::CoarseLevel;
use lakemark_format::segment::{PostingRef, SegmentDirectory};
use lakemark_format::value_block::Value;

use super::coarse::{Runs, Term};
use super::slices::Program;
use crate::ranges::{KeyRange, KeyRanges};

/// How the values of a block lie to the keys asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// None is asked for.
    Outside,
    /// All are.
    Inside,
    /// Some may be.
    Edge,
}

/// Too dear for any plan: postings whose value block is not read.
const NEVER: u128 = 1 << 80;
/// Blocks that share a bin with an edge are read with it if they are this few, so that either end of the bin can be reached.
const BLOCKS_OF_SMALL_BIN: usize = 3;

/// What the second round reads and what it means.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Neighbouring postings.
    pub pieces: Vec<Piece>,
    /// The bitmaps that are combined before postings are added and taken away.
    pub base: Base,
    /// Rows of the answer, as the value blocks count them.
    pub rows: u64,
}

/// Postings that lie side by side.
#[derive(Debug)]
pub(super) struct Piece {
    /// Their rows are not in the answer.
    pub removed: bool,
    /// The values, in the order of their postings.
    pub values: Vec<Value>,
}

/// What the coarse level gives.
#[derive(Debug, Default)]
pub(super) enum Base {
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

impl Base {
    /// The bitmaps to read, ascending.
    pub(super) fn bitmaps(&self) -> Vec<usize> {
        match self {
            Self::Nothing | Self::Everything => Vec::new(),
            Self::Runs(runs) => runs.bitmaps(),
            Self::Slices(program) => program.slices().to_vec(),
        }
    }
}

/// How each value block lies to the ranges.
pub(super) fn places(directory: &SegmentDirectory, ranges: &KeyRanges) -> Vec<Place> {
    let mut places = vec![Place::Outside; directory.blocks.len()];
    for range in ranges.ranges() {
        let found = blocks_of_range(directory, range);
        for block in found.clone() {
            // Between the first block and the last one there is nothing else.
            let inner = found.start < block && block + 1 < found.end;
            let inside = inner || is_inside(directory, block, range);
            // A range that begins behind all keys of a block may still seem to touch it.
            if let Some(place) = places.get_mut(block).filter(|place| **place != Place::Inside) {
                *place = if inside { Place::Inside } else { Place::Edge };
            }
        }
    }
    places
}

/// The blocks that the plan may need, ascending.
pub(super) fn first_blocks(directory: &SegmentDirectory, places: &[Place]) -> Vec<usize> {
    let edges = places.iter().map(|place| *place == Place::Edge);
    if !directory.encoding.has_fine_level() {
        return chosen(edges);
    }
    let bins = Bins::new(directory);
    let mut costs = vec![Cost::default(); bins.len()];
    for (block, place, ranks) in blocks(directory, places) {
        let values = u128::from(block.values.max(1));
        for (bin, part) in bins.of(&ranks) {
            let Some(cost) = costs.get_mut(bin) else { continue };
            let share = |bytes: u64| u128::from(bytes) * u128::from(part.end - part.start) / values;
            let (postings, all) =
                (share(block.postings_length), share(block.postings_length + u64::from(block.length)));
            match place {
                Place::Inside => cost.no += all,
                Place::Outside => cost.yes += all,
                Place::Edge => {
                    cost.no += postings / 2;
                    cost.yes += postings / 2;
                }
            }
        }
    }
    let yes = cheapest(directory, &costs);
    let mut wanted: Vec<bool> = edges.collect();
    let mut touched: Vec<Range<usize>> = vec![usize::MAX..0; bins.len()];
    for (number, (_, place, ranks)) in blocks(directory, places).enumerate() {
        for (bin, _) in bins.of(&ranks) {
            let needed = match yes.get(bin) {
                Some(true) => place == Place::Outside,
                _ => place == Place::Inside,
            };
            if let (true, Some(slot)) = (needed, wanted.get_mut(number)) {
                *slot = true;
            }
            if let Some(blocks) = touched.get_mut(bin) {
                *blocks = blocks.start.min(number)..number + 1;
            }
        }
    }
    if bins.len() > 1 {
        for blocks in touched.into_iter().filter(|blocks| blocks.len() <= BLOCKS_OF_SMALL_BIN) {
            if places.get(blocks.clone()).is_some_and(|places| places.contains(&Place::Edge)) {
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
    /// The cheapest plan with the blocks read (by ascending number), and the logical ranges of its postings and bitmaps.
    pub(super) fn new(
        directory: &SegmentDirectory,
        keys: &KeyRanges,
        places: &[Place],
        read: Vec<(usize, Vec<Value>)>,
    ) -> (Self, Vec<Range<u64>>) {
        let mut plan = Self { rows: rows_asked_for(directory, keys, places, &read), ..Self::default() };
        let mut ranges = Vec::new();
        match directory.encoding.coarse_level() {
            Some(level) if !directory.encoding.has_fine_level() => {
                plan.base = single_level(directory, level, ranks_asked_for(directory, keys, places, &read));
            }
            _ => {
                let yes = cheapest(directory, &exact_costs(directory, keys, places, &read));
                plan.base = base_of_bins(directory, &yes);
                plan.take_postings(directory, keys, read, &yes, &mut ranges);
            }
        }
        for number in plan.base.bitmaps() {
            let bitmap = directory.bitmaps.get(number).copied().unwrap_or_default();
            ranges.push(bitmap.offset..bitmap.offset + u64::from(bitmap.length));
        }
        (plan, ranges)
    }

    /// Values that are asked for where the bin says no, and those that are not where it says yes.
    fn take_postings(
        &mut self,
        directory: &SegmentDirectory,
        keys: &KeyRanges,
        read: Vec<(usize, Vec<Value>)>,
        yes: &[bool],
        ranges: &mut Vec<Range<u64>>,
    ) {
        let bins = Bins::new(directory);
        let first_ranks = first_ranks(directory);
        for (number, values) in read {
            let Some(block) = directory.blocks.get(number) else { continue };
            let mut offset = block.postings_offset;
            let mut bin = bins.cursor(first_ranks.get(number).copied().unwrap_or(0));
            for value in values {
                let end = offset + u64::from(value.posting_length);
                let removed = yes.get(bin.next()).copied().unwrap_or(false);
                if keys.contains(&value.key) != removed {
                    match (ranges.last_mut(), self.pieces.last_mut()) {
                        (Some(range), Some(piece)) if range.end == offset && piece.removed == removed => {
                            range.end = end;
                            piece.values.push(value);
                        }
                        _ => {
                            ranges.push(offset..end);
                            self.pieces.push(Piece { removed, values: vec![value] });
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
    /// If the coarse level says no: those asked for.
    no: u128,
    /// If it says yes: the others.
    yes: u128,
}

/// First ranks of the bins, and the number of values.
struct Bins {
    ends: Vec<u64>,
}

/// Goes through values in order and tells the bin of each.
struct BinCursor<'a> {
    ends: &'a [u64],
    rank: u64,
    bin: usize,
}

impl BinCursor<'_> {
    fn next(&mut self) -> usize {
        while self.ends.get(self.bin).is_some_and(|end| *end <= self.rank) {
            self.bin += 1;
        }
        self.rank += 1;
        self.bin
    }
}

impl Bins {
    /// The listed bins; a segment that lists none is one.
    fn new(directory: &SegmentDirectory) -> Self {
        if directory.bins.is_empty() {
            return Self { ends: vec![directory.value_count] };
        }
        let mut end = 0;
        let ends = directory.bins.iter().map(|values| {
            end += u64::from(*values);
            end
        });
        Self { ends: ends.collect() }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn cursor(&self, rank: u64) -> BinCursor<'_> {
        BinCursor { ends: &self.ends, rank, bin: self.ends.partition_point(|end| *end <= rank) }
    }

    /// The bins that share ranks with `ranks`, and which.
    fn of(&self, ranks: &Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let (start, end) = (ranks.start, ranks.end);
        let first = self.ends.partition_point(|end| *end <= start);
        let ends = self.ends.get(first..).unwrap_or_default();
        (first..).zip(ends).scan(start, move |from, (bin, bin_end)| {
            let part = *from..end.min(*bin_end);
            *from = part.end;
            (!part.is_empty()).then_some((bin, part))
        })
    }
}

/// Each block with its place and its ranks.
fn blocks<'a>(
    directory: &'a SegmentDirectory,
    places: &'a [Place],
) -> impl Iterator<Item = (&'a lakemark_format::segment::ValueBlockRef, Place, Range<u64>)> {
    directory.blocks.iter().zip(places).scan(0, |rank, (block, place)| {
        let first = std::mem::replace(rank, *rank + u64::from(block.values));
        Some((block, *place, first..*rank))
    })
}

fn first_ranks(directory: &SegmentDirectory) -> Vec<u64> {
    let ranks =
        directory.blocks.iter().scan(0, |rank, block| Some(std::mem::replace(rank, *rank + u64::from(block.values))));
    ranks.collect()
}

/// What each bin costs, from the values read; postings of blocks that were not read cannot be had.
fn exact_costs(
    directory: &SegmentDirectory,
    keys: &KeyRanges,
    places: &[Place],
    read: &[(usize, Vec<Value>)],
) -> Vec<Cost> {
    let bins = Bins::new(directory);
    let mut costs = vec![Cost::default(); bins.len()];
    let mut read = read.iter().peekable();
    for (number, (_, place, ranks)) in blocks(directory, places).enumerate() {
        if let Some((_, values)) = read.next_if(|(block, _)| *block == number) {
            let mut bin = bins.cursor(ranks.start);
            for value in values {
                let Some(cost) = costs.get_mut(bin.next()) else { continue };
                let side = if keys.contains(&value.key) { &mut cost.no } else { &mut cost.yes };
                *side += u128::from(value.posting_length);
            }
            continue;
        }
        for (bin, _) in bins.of(&ranks) {
            let Some(cost) = costs.get_mut(bin) else { continue };
            match place {
                Place::Inside => cost.no += NEVER,
                Place::Outside => cost.yes += NEVER,
                Place::Edge => {}
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

/// The interval level pays for each run of bins, by where it begins and ends.
fn cheapest_by_runs(level: CoarseLevel, costs: &[Cost], bitmaps: &[PostingRef]) -> Vec<bool> {
    let bins = costs.len();
    let mut yes_before = vec![0u128];
    for cost in costs {
        yes_before.push(yes_before.last().copied().unwrap_or(0) + cost.yes);
    }
    // Cheapest ways to the start of each bin after a no, and after a run with where that began.
    let mut after_no = vec![0u128];
    let mut after_run: Vec<(u128, usize)> = vec![(u128::MAX, 0)];
    for (bin, cost) in costs.iter().enumerate() {
        let end = bin + 1;
        let total = yes_before.get(end).copied().unwrap_or(0);
        let ways = after_no.iter().zip(&yes_before).enumerate().map(|(start, (way, before))| {
            let bitmaps = Term::new(level, bins, start..end).bytes(bitmaps);
            (way + (total - before) + u128::from(bitmaps), start)
        });
        let run = ways.min().unwrap_or((u128::MAX, 0));
        let no = after_no.last().copied().unwrap_or(0).min(after_run.last().map_or(u128::MAX, |run| run.0));
        after_no.push(no.saturating_add(cost.no));
        after_run.push(run);
    }
    let mut answers = vec![false; bins];
    let mut end = bins;
    while end > 0 {
        let run = after_run.get(end).copied().unwrap_or((u128::MAX, 0));
        if run.0 < after_no.get(end).copied().unwrap_or(0) {
            answers.get_mut(run.1..end).unwrap_or_default().fill(true);
            end = run.1;
            // What follows a run backwards is a no, or the beginning.
        }
        end = end.saturating_sub(1);
    }
    answers
}

fn base_of_bins(directory: &SegmentDirectory, yes: &[bool]) -> Base {
    if yes.iter().all(|yes| *yes) {
        return Base::Everything;
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (bin, _) in yes.iter().enumerate().filter(|(_, yes)| **yes) {
        match runs.last_mut() {
            Some(run) if run.end == bin => run.end += 1,
            _ => runs.push(bin..bin + 1),
        }
    }
    match directory.encoding.coarse_level() {
        Some(level) if !runs.is_empty() => Base::Runs(Runs::new(level, yes.len(), &runs, &directory.bitmaps)),
        _ => Base::Nothing,
    }
}

/// Every value its own bin, and no postings.
fn single_level(directory: &SegmentDirectory, level: CoarseLevel, ranks: Vec<Range<u64>>) -> Base {
    if level == CoarseLevel::Slices {
        return Base::Slices(Program::new(ranks, directory.value_count, directory.bitmaps.len()));
    }
    let place = |rank: u64| usize::try_from(rank).unwrap_or(usize::MAX);
    let runs: Vec<Range<usize>> = ranks.iter().map(|run| place(run.start)..place(run.end)).collect();
    if runs.is_empty() {
        return Base::Nothing;
    }
    Base::Runs(Runs::new(level, place(directory.value_count), &runs, &directory.bitmaps))
}

/// The ranks asked for, as ranges that ascend and do not touch.
fn ranks_asked_for(
    directory: &SegmentDirectory,
    keys: &KeyRanges,
    places: &[Place],
    read: &[(usize, Vec<Value>)],
) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut add = |ranks: Range<u64>| match found.last_mut() {
        Some(last) if last.end == ranks.start => last.end = ranks.end,
        _ => found.push(ranks),
    };
    let mut read = read.iter().peekable();
    for (number, (_, place, ranks)) in blocks(directory, places).enumerate() {
        let values = read.next_if(|(block, _)| *block == number);
        match (place, values) {
            (Place::Inside, _) => add(ranks),
            (Place::Edge, Some((_, values))) => {
                for (rank, value) in (ranks.start..).zip(values) {
                    if keys.contains(&value.key) {
                        add(rank..rank + 1);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// How many rows have a key of the ranges.
fn rows_asked_for(
    directory: &SegmentDirectory,
    keys: &KeyRanges,
    places: &[Place],
    read: &[(usize, Vec<Value>)],
) -> u64 {
    let inside: u64 =
        blocks(directory, places).filter(|(_, place, _)| *place == Place::Inside).map(|(block, ..)| block.rows).sum();
    let is_edge = |number: &usize| places.get(*number) == Some(&Place::Edge);
    let edges = read.iter().filter(|(number, _)| is_edge(number)).flat_map(|(_, values)| values);
    inside + edges.filter(|value| keys.contains(&value.key)).map(|value| u64::from(value.rows)).sum::<u64>()
}

fn blocks_of_range(directory: &SegmentDirectory, range: &KeyRange) -> Range<usize> {
    let blocks = &directory.blocks;
    let start = match &range.low {
        Bound::Unbounded => 0,
        // The block before the first that begins above the bound may reach over it.
        Bound::Included(low) | Bound::Excluded(low) => {
            if directory.max_key.as_ref().is_some_and(|max| max < low) {
                return 0..0;
            }
            blocks.partition_point(|block| block.first_key <= *low).saturating_sub(1)
        }
    };
    let end = blocks.partition_point(|block| !range.ends_before(&block.first_key));
    start..end.max(start)
}

/// Whether every key of a block is in the range.
fn is_inside(directory: &SegmentDirectory, index: usize, range: &KeyRange) -> bool {
    let Some(block) = directory.blocks.get(index) else { return false };
    let last_is_inside = match directory.blocks.get(index + 1) {
        // Every key of the block is below the next block's first one.
        Some(next) => !range.ends_before(&next.first_key) || range_reaches(range, &next.first_key),
        None => directory.max_key.as_ref().is_some_and(|max| !range.ends_before(max)),
    };
    last_is_inside && range.contains(&block.first_key)
}

/// The range goes up to, if not including, `key`.
fn range_reaches(range: &KeyRange, key: &Key) -> bool {
    matches!(&range.high, Bound::Excluded(high) if high >= key)
}
