//! Bit-sliced evaluation: rows whose rank lies in ranges, from the slices of the ranks.
//!
//! O'Neil and Quass (1997) go through the slices of one bound from the highest down. Here all bounds are tested together:
//! the ranges are cut along the binary tree of the ranks, and each inner node that they cut is one step on words,
//!
//! ```text
//! rows of node = slice ? rows of its upper half : rows of its lower half
//! ```
//!
//! in which a half that is selected as a whole, or not at all, is a constant. One range takes two steps a slice at most, as in
//! the paper; many share their upper steps. The steps may outnumber the bits of a row by far (a long IN list). Then the ranks of
//! the rows are put together instead and looked up.

use std::ops::Range;

use lakemark_format::error::Result;
use lakemark_format::posting::{self, RowSink};

use crate::rows::{RowSet, RowSetBuilder};

const WORD_ROWS: u32 = u64::BITS;
/// Words that each step works on: they stay in the cache, and the loops over them are unrolled.
const BLOCK_WORDS: usize = 16;
/// A step on a word costs about what this many rows cost to be put together from one slice.
const ROWS_PER_STEP: usize = 64;

type WordBlock = [u64; BLOCK_WORDS];

/// Steps that find the rows of some ranges of ranks.
#[derive(Debug, Default)]
pub(super) struct Program {
    steps: Vec<SliceStep>,
    /// Slices that the steps need, ascending.
    slices: Vec<usize>,
    /// The answer where no step is needed.
    constant: Option<bool>,
    ranges: Vec<Range<u64>>,
    /// The steps are too many: all slices are read, and ranks are looked up in a table of this many.
    looked_up: Option<u64>,
}

/// A step on a stack of words; the number is the slice's place in [`Program::slices`].
#[derive(Debug, Clone, Copy)]
enum SliceStep {
    /// Pushes the slice.
    Push(usize),
    /// Pushes the slice's opposite.
    PushNot(usize),
    /// Upper half of the top: lower half empty.
    And(usize),
    /// Lower half of the top: upper half empty.
    AndNot(usize),
    /// Lower half of the top: upper half full.
    Or(usize),
    /// Upper half of the top: lower half full.
    OrNot(usize),
    /// Upper half of the top, lower half of the one below.
    Choose(usize),
}

/// The rows of a node.
#[derive(Clone, Copy, PartialEq)]
enum SliceNode {
    /// No rank of the node exists.
    Nothing,
    /// All of its rows, or none.
    Constant(bool),
    /// What the steps leave on the stack.
    Steps,
}

impl Program {
    /// Steps for the ranges (ascending, disjoint) of `values` ranks in `slices` slices.
    pub(super) fn new(ranges: Vec<Range<u64>>, values: u64, slices: usize) -> Self {
        let mut program = Self { ranges, ..Self::default() };
        let root = program.node(slices, 0, values);
        match root {
            SliceNode::Steps => {}
            SliceNode::Constant(all) => program.constant = Some(all),
            SliceNode::Nothing => program.constant = Some(false),
        }
        program.number_slices();
        if program.steps.len() > ROWS_PER_STEP * slices {
            program.slices = (0..slices).collect();
            program.looked_up = Some(values);
        }
        program
    }

    /// Steps for the ranks from `base` that differ in the lowest `bits` bits.
    fn node(&mut self, bits: usize, base: u64, values: u64) -> SliceNode {
        let end = base.saturating_add(1u64.checked_shl(bits as u32).unwrap_or(u64::MAX)).min(values);
        if base >= end {
            return SliceNode::Nothing;
        }
        let next = self.ranges.partition_point(|range| range.end <= base);
        match self.ranges.get(next) {
            Some(range) if range.start <= base && end <= range.end => return SliceNode::Constant(true),
            Some(range) if range.start < end => {}
            _ => return SliceNode::Constant(false),
        }
        let Some(slice) = bits.checked_sub(1) else { return SliceNode::Constant(true) };
        let low = self.node(slice, base, values);
        let high = self.node(slice, base + (1 << slice), values);
        let step = match (low, high) {
            (node, SliceNode::Nothing) | (SliceNode::Nothing, node) => return node,
            (SliceNode::Constant(low), SliceNode::Constant(high)) if low == high => return SliceNode::Constant(low),
            (SliceNode::Constant(false), SliceNode::Constant(_)) => SliceStep::Push(slice),
            (SliceNode::Constant(true), SliceNode::Constant(_)) => SliceStep::PushNot(slice),
            (SliceNode::Constant(false), SliceNode::Steps) => SliceStep::And(slice),
            (SliceNode::Constant(true), SliceNode::Steps) => SliceStep::OrNot(slice),
            (SliceNode::Steps, SliceNode::Constant(false)) => SliceStep::AndNot(slice),
            (SliceNode::Steps, SliceNode::Constant(true)) => SliceStep::Or(slice),
            (SliceNode::Steps, SliceNode::Steps) => SliceStep::Choose(slice),
        };
        self.steps.push(step);
        SliceNode::Steps
    }

    /// Slices become places in the list of those that are read.
    fn number_slices(&mut self) {
        self.slices = self.steps.iter().map(|step| step.slice()).collect();
        self.slices.sort_unstable();
        self.slices.dedup();
        let slices = &self.slices;
        for step in &mut self.steps {
            *step.slice_mut() = slices.binary_search(&step.slice()).unwrap_or(0);
        }
    }

    /// The slices to read, ascending.
    pub(super) fn slices(&self) -> &[usize] {
        &self.slices
    }

    /// The rows of the ranges among `valued`; `slices` are the slices to read, `expected` is how many rows there should be.
    pub(super) fn rows(&self, slices: &[BitSlice], valued: &RowSet, expected: u64) -> RowSet {
        match self.constant {
            Some(true) => return valued.clone(),
            Some(false) => return RowSet::empty(valued.universe()),
            None => {}
        }
        let universe = valued.universe();
        let mut found = RowSetBuilder::with_capacity(universe, expected);
        let words = (universe as usize).div_ceil(WORD_ROWS as usize);
        let mut emit = |first: usize, block: &WordBlock| {
            for (word, bits) in (first..words).zip(block) {
                // Rows behind the universe have no bits in any slice, yet may pass a test of what is not set.
                let row = word as u32 * WORD_ROWS;
                let inside = universe - row;
                let bits = if inside < WORD_ROWS { bits & ((1 << inside) - 1) } else { *bits };
                if bits != 0 {
                    found.insert_word(row, bits);
                }
            }
        };
        if let Some(values) = self.looked_up {
            let table = self.table(values);
            for first in (0..words).step_by(BLOCK_WORDS) {
                emit(first, &look_up(&table, slices, first));
            }
        } else {
            let mut stack = Vec::new();
            for first in (0..words).step_by(BLOCK_WORDS) {
                emit(first, &self.run(slices, first, &mut stack));
            }
        }
        found.finish().and(valued)
    }

    fn run(&self, slices: &[BitSlice], first: usize, stack: &mut Vec<WordBlock>) -> WordBlock {
        stack.clear();
        for step in &self.steps {
            let slice = slices.get(step.slice()).map_or(EMPTY, |slice| slice.block(first));
            match step {
                SliceStep::Push(_) => stack.push(slice),
                SliceStep::PushNot(_) => stack.push(slice.map(|word| !word)),
                SliceStep::Choose(_) => {
                    let high = stack.pop().unwrap_or(EMPTY);
                    each(stack, &slice, |low, slice, place| low & !slice | high.get(place).unwrap_or(&0) & slice);
                }
                SliceStep::And(_) => each(stack, &slice, |top, slice, _| top & slice),
                SliceStep::AndNot(_) => each(stack, &slice, |top, slice, _| top & !slice),
                SliceStep::Or(_) => each(stack, &slice, |top, slice, _| top | slice),
                SliceStep::OrNot(_) => each(stack, &slice, |top, slice, _| top | !slice),
            }
        }
        stack.pop().unwrap_or(EMPTY)
    }

    /// A bit for each rank: whether it is in the ranges.
    fn table(&self, values: u64) -> Vec<u64> {
        let mut table = vec![0u64; values.div_ceil(u64::from(WORD_ROWS)) as usize];
        for rank in self.ranges.iter().cloned().flatten() {
            if let Some(word) = table.get_mut((rank / u64::from(WORD_ROWS)) as usize) {
                *word |= 1 << (rank % u64::from(WORD_ROWS));
            }
        }
        table
    }
}

impl SliceStep {
    fn slice(self) -> usize {
        match self {
            Self::Push(slice)
            | Self::PushNot(slice)
            | Self::And(slice)
            | Self::AndNot(slice)
            | Self::Or(slice)
            | Self::OrNot(slice)
            | Self::Choose(slice) => slice,
        }
    }

    fn slice_mut(&mut self) -> &mut usize {
        match self {
            Self::Push(slice)
            | Self::PushNot(slice)
            | Self::And(slice)
            | Self::AndNot(slice)
            | Self::Or(slice)
            | Self::OrNot(slice)
            | Self::Choose(slice) => slice,
        }
    }
}

const EMPTY: WordBlock = [0; BLOCK_WORDS];

fn each(stack: &mut [WordBlock], slice: &WordBlock, step: impl Fn(u64, u64, usize) -> u64) {
    if let Some(top) = stack.last_mut() {
        for (place, (word, slice)) in top.iter_mut().zip(slice).enumerate() {
            *word = step(*word, *slice, place);
        }
    }
}

/// Puts the numbers of a block's rows together and looks each up.
fn look_up(table: &[u64], slices: &[BitSlice], first: usize) -> WordBlock {
    let blocks: Vec<WordBlock> = slices.iter().map(|slice| slice.block(first)).collect();
    let mut found = EMPTY;
    for (place, out) in found.iter_mut().enumerate() {
        for (row, number) in numbers(&blocks, place).iter().enumerate() {
            let word = table.get(*number as usize / 64).copied().unwrap_or(0);
            *out |= (word >> (number % 64) & 1) << row;
        }
    }
    found
}

/// The numbers of the rows of one word of the blocks.
fn numbers(blocks: &[WordBlock], place: usize) -> [u32; WORD_ROWS as usize] {
    let mut numbers = [0u32; WORD_ROWS as usize];
    for (bit, block) in blocks.iter().enumerate() {
        let word = block.get(place).copied().unwrap_or(0);
        for (row, number) in numbers.iter_mut().enumerate() {
            *number |= ((word >> row & 1) as u32) << bit;
        }
    }
    numbers
}

/// How many of the rows in `chosen` (a bitmap) have each number below `values`; none if such a row's number is larger.
pub(super) fn count_numbers(slices: &[BitSlice], chosen: &[u64], values: usize) -> Option<Vec<u64>> {
    let mut counts = vec![0u64; values];
    for (at, words) in chosen.chunks(BLOCK_WORDS).enumerate() {
        if words.iter().all(|word| *word == 0) {
            continue;
        }
        let blocks: Vec<WordBlock> = slices.iter().map(|slice| slice.block(at * BLOCK_WORDS)).collect();
        for (place, &chosen) in words.iter().enumerate().filter(|(_, chosen)| **chosen != 0) {
            let numbers = numbers(&blocks, place);
            let mut left = chosen;
            while left != 0 {
                let number = numbers.get(left.trailing_zeros() as usize)?;
                *counts.get_mut(*number as usize)? += 1;
                left &= left - 1;
            }
        }
    }
    Some(counts)
}

/// A slice as words.
#[derive(Debug)]
pub(super) struct BitSlice(Vec<u64>);

impl BitSlice {
    /// Decodes the posting of a slice.
    pub(super) fn decode(bytes: &[u8], rows: u32, universe: u32) -> Result<Self> {
        let mut slice = Self(vec![0; (universe as usize).div_ceil(WORD_ROWS as usize)]);
        posting::decode(bytes, rows, universe, &mut slice)?;
        Ok(slice)
    }

    /// The bitmap.
    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    fn block(&self, first: usize) -> WordBlock {
        let words = self.0.get(first..).unwrap_or_default();
        if let Some(block) = words.first_chunk::<BLOCK_WORDS>() {
            return *block;
        }
        let mut block = EMPTY;
        block.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
        block
    }

    fn put(&mut self, word: usize, bits: u64) {
        if let Some(slot) = self.0.get_mut(word) {
            *slot |= bits;
        }
    }
}

impl RowSink for BitSlice {
    fn rows(&mut self, rows: &[u32]) {
        for row in rows {
            self.put((row / WORD_ROWS) as usize, 1 << (row % WORD_ROWS));
        }
    }

    fn word(&mut self, first: u32, bits: u64) {
        let (word, shift) = ((first / WORD_ROWS) as usize, first % WORD_ROWS);
        self.put(word, bits << shift);
        if shift != 0 {
            self.put(word + 1, bits >> (WORD_ROWS - shift));
        }
    }

    fn run(&mut self, first: u32, length: u32) {
        let end = first.saturating_add(length);
        let mut row = first;
        while row < end {
            let shift = row % WORD_ROWS;
            let rows = (WORD_ROWS - shift).min(end - row);
            self.put((row / WORD_ROWS) as usize, u64::MAX >> (WORD_ROWS - rows) << shift);
            row += rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(start: u64, end: u64) -> Vec<Range<u64>> {
        std::iter::once(start..end).collect()
    }

    /// Slices of rows with these ranks; a row without rank is in none.
    fn slices_of(ranks: &[Option<u64>], program: &Program) -> Vec<BitSlice> {
        let universe = ranks.len() as u32;
        let slice = |bit: &usize| {
            let rows: Vec<u32> =
                (0..universe).filter(|row| ranks[*row as usize].is_some_and(|rank| rank >> bit & 1 == 1)).collect();
            let mut bytes = Vec::new();
            posting::encode(&rows, universe, &mut bytes);
            BitSlice::decode(&bytes, rows.len() as u32, universe).unwrap()
        };
        program.slices().iter().map(slice).collect()
    }

    fn check(ranks: &[Option<u64>], values: u64, ranges: Vec<Range<u64>>) {
        let bits = (u64::BITS - (values - 1).leading_zeros()) as usize;
        let program = Program::new(ranges.clone(), values, bits);
        let universe = ranks.len() as u32;
        let rows = |wanted: &dyn Fn(u64) -> bool| {
            let rows = (0..universe).filter(|row| ranks[*row as usize].is_some_and(wanted));
            RowSet::from_rows(rows.collect(), universe)
        };
        let expected = rows(&|rank| ranges.iter().any(|range| range.contains(&rank)));
        let found = program.rows(&slices_of(ranks, &program), &rows(&|_| true), expected.len().into());
        assert_eq!(found, expected, "{ranges:?} of {values}");
    }

    #[test]
    fn every_range_of_few_values_is_found() {
        for values in 1..=17u64 {
            let ranks: Vec<Option<u64>> = (0..200).map(|row| (row % 5 != 0).then_some(row * row % values)).collect();
            for start in 0..=values {
                for end in start..=values {
                    check(&ranks, values, one(start, end));
                }
            }
        }
    }

    #[test]
    fn an_aligned_range_reads_the_upper_slices_only() {
        let program = Program::new(one(16, 24), 32, 5);
        assert_eq!(program.slices(), [3, 4]);
        assert_eq!(Program::new(one(7, 8), 32, 5).slices(), [0, 1, 2, 3, 4]);
        assert_eq!(Program::new(one(0, 32), 32, 5).slices(), [0usize; 0]);
        // The highest rank is 16, so its slice alone identifies it.
        assert_eq!(Program::new(one(16, 17), 17, 5).slices(), [4]);
    }

    #[test]
    fn one_range_takes_two_steps_a_slice() {
        let program = Program::new(one(12_345, 87_654), 100_000, 17);
        assert!(program.steps.len() <= 34, "{}", program.steps.len());
    }

    #[test]
    fn many_points_are_looked_up() {
        let ranks: Vec<Option<u64>> = (0..3000).map(|row| (row % 7 != 0).then_some(row * 31 % 2000)).collect();
        let points: Vec<Range<u64>> = (0..1000).map(|point| point * 2 + point % 2..point * 2 + point % 2 + 1).collect();
        let points: Vec<Range<u64>> = points.into_iter().filter(|range| range.end <= 2000).collect();
        let program = Program::new(points.clone(), 2000, 11);
        assert_eq!(program.looked_up, Some(2000));
        check(&ranks, 2000, points);
    }

    proptest! {
        #[test]
        fn ranges_are_found_as_by_comparison(
            values in 1u64..500, cuts in prop::collection::btree_set(0u64..500, 0..40), seed in any::<u64>(), rows in 1usize..1500,
        ) {
            let ranks: Vec<Option<u64>> = (0..rows as u64)
                .map(|row| (row.wrapping_mul(seed | 1) >> 7, row))
                .map(|(mixed, row)| (mixed % 9 != 0).then_some((mixed ^ row) % values))
                .collect();
            let cuts: Vec<u64> = cuts.into_iter().map(|cut| cut.min(values)).collect();
            let ranges = cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).filter(|range| !range.is_empty()).collect();
            check(&ranks, values, ranges);
        }
    }
}
