//! A sample of the rows of a column, measured, and what it says of more rows than it has.
//!
//! A sample is whole row groups, side by side. Where it has all rows its measures are the column's. Else its halves say which
//! values are *spread* over the rows and which are *local*. Spread values come again in every part, so that more rows are more
//! rows of the same values and some that were not seen. How many were not seen follows from the number of values met once and
//! twice (Chao 1984). Local values, as those of a sorted column, do not come again, so that more rows are more values like these.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;

use lakemark_format::key::{Key, KeyType};
use lakemark_format::value_block::{MAX_BLOCK_VALUES, TARGET_KEY_BYTES};

use super::leaf_keys::leaf_key_bits;
use super::positions::PostingShape;
use super::shape::{BlockExtremes, CELLS, ColumnShape, FrequencyClass, ValueBucket, random_classes};
use crate::chunk::{Chunk, ValueList};
use crate::ranges::{KeyRange, KeyRanges};

/// Values with fewer rows in a sample say little of the rows that they have in all.
const RARE: f64 = 8.0;
/// Rows of the values of a class are at most so far apart.
const CLASS_RATIO: f64 = 1.15;
/// What is below is noise: between the extremes of a block lie so many standard deviations of random draws.
const NOISE: f64 = 8.0;
/// A character of text has about so many bits of information.
const CHARACTER_BITS: f64 = 5.0;
/// No key of bytes takes fewer bits in a leaf.
const LEAST_KEY_BITS: f64 = 4.0;

/// The measures of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSample {
    rows: f64,
    nulls: f64,
    null_runs: f64,
    classes: Vec<FrequencyClass>,
    cells: Vec<ValueBucket>,
    /// The first key of each cell, and the last key.
    borders: Vec<Key>,
    extremes: Vec<BlockExtremes>,
    block_values: f64,
    key_bits: f64,
    leaf_key_bits: Option<f64>,
    fixed_keys: bool,
    shuffle: f64,
    changes: f64,
    /// How much of the column is local, 0 to 1.
    local: f64,
}

impl ColumnSample {
    /// Measures the rows of a chunk, which are so many parts of a column with rows in between that were not read.
    #[must_use]
    pub fn new(chunk: &Chunk, parts: usize) -> Self {
        let mut nulls: Vec<u32> = chunk.nulls().iter().chain(chunk.opaque()).copied().collect();
        nulls.sort_unstable();
        let lists: Vec<ValueList<'_>> = chunk.values().collect();
        let counts: Vec<f64> = lists.iter().map(|list| list.rows.len() as f64).collect();
        let KeyShape { key_bits, block_values } = key_shape(&lists, parts.saturating_sub(1));
        let RowOrder { shuffle, changes } = order_of(chunk, &counts);
        let per_block = block_values.clamp(1.0, MAX_BLOCK_VALUES as f64) as usize;
        Self {
            rows: f64::from(chunk.row_count()),
            nulls: nulls.len() as f64,
            null_runs: runs_of(&nulls),
            classes: classes_of(&lists),
            cells: cells_of(&counts),
            borders: borders_of(&lists),
            extremes: counts.chunks(per_block).map(extremes_of).collect(),
            block_values,
            key_bits,
            leaf_key_bits: None,
            fixed_keys: !matches!(lists.first(), Some(ValueList { key: Key::Bytes(_), .. })),
            shuffle,
            changes,
            local: local_of(chunk, &lists, shuffle),
        }
    }

    /// The same with what keys of this type take in leaves, which is measured where they are bytes. They are those of the chunk.
    #[must_use]
    pub fn with_leaves(self, chunk: &Chunk, key_type: &KeyType) -> Self {
        let lists: Vec<ValueList<'_>> = chunk.values().collect();
        Self { leaf_key_bits: leaf_key_bits(&lists, key_type), ..self }
    }

    /// Rows of the sample.
    #[must_use]
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// Distinct values of the sample.
    #[must_use]
    pub fn values(&self) -> f64 {
        self.classes.iter().map(|class| class.values).sum()
    }

    /// How the order of rows follows that of values: 1 for not at all, 0 for sorted.
    #[must_use]
    pub fn shuffle(&self) -> f64 {
        self.shuffle
    }

    /// The part of the rows that has a value.
    #[must_use]
    pub fn valued_share(&self) -> f64 {
        if self.rows > 0.0 { 1.0 - self.nulls / self.rows } else { 0.0 }
    }

    /// The part of the rows whose key is in the ranges. A cell that lies in part in a range counts half, or as many values as there
    /// are points.
    #[must_use]
    pub fn share(&self, ranges: &KeyRanges) -> f64 {
        let mut rows = 0.0;
        for (place, (cell, keys)) in self.cells.iter().zip(self.borders.windows(2)).enumerate() {
            let [first, next] = keys else { continue };
            let is_last = place + 1 == self.cells.len();
            let owns = |key: &Key| first <= key && (key < next || (is_last && key == next));
            let part = |range: &KeyRange| match (&range.low, &range.high) {
                (Bound::Included(low), Bound::Included(high)) if low == high => {
                    if owns(low) {
                        cell.rows / cell.values.max(1.0)
                    } else {
                        0.0
                    }
                }
                _ if range.ends_before(first) || !range.begins_at_or_before(next) => 0.0,
                _ if cell.values < 1.5 => {
                    if range.contains(first) {
                        cell.rows
                    } else {
                        0.0
                    }
                }
                _ if range.contains(first) && range.contains(next) => cell.rows,
                _ => cell.rows / 2.0,
            };
            rows += ranges.ranges().iter().map(part).sum::<f64>().min(cell.rows);
        }
        if self.rows > 0.0 { rows / self.rows } else { 0.0 }
    }

    /// The shape of a segment of `rows` rows.
    #[must_use]
    pub fn shape(&self, rows: u64) -> ColumnShape {
        let factor = if self.rows > 0.0 { rows as f64 / self.rows } else { 0.0 };
        // Of the factor, what gives more values and what gives more rows of the same ones.
        let more_values = factor.powf(self.local);
        let more_rows = factor / more_values.max(1e-9);
        let universe = rows as f64;
        let mut classes = if factor > 1.0 + 1e-9 { self.grown(more_rows, universe) } else { self.thinned(more_rows) };
        let seen = self.values().max(1.0);
        let spread_growth = classes.iter().map(|class| class.values).sum::<f64>() / seen;
        for class in &mut classes {
            class.values *= more_values;
        }
        let growth = spread_growth * more_values;
        let valued: f64 = classes.iter().map(|class| class.values * class.each.rows).sum();
        // New values in between make gaps smaller; those of a local column come after.
        let closer = spread_growth.max(1.0).log2();
        let key_bits = if self.fixed_keys {
            (self.key_bits - closer).max(0.0)
        } else {
            (self.key_bits - 8.0 * closer / CHARACTER_BITS).max(16.0)
        };
        let held: f64 = self.cells.iter().map(|cell| cell.rows).sum();
        let nulls = (self.nulls * factor).round() as u64;
        ColumnShape {
            rows,
            nulls,
            null_runs: (self.null_runs * factor).min(self.nulls * factor),
            classes,
            cells: (self.cells.iter())
                .map(|cell| ValueBucket { values: cell.values * growth, rows: cell.rows * valued / held.max(1.0) })
                .collect(),
            extremes: self.extremes.iter().map(|extremes| scaled(*extremes, more_rows / spread_growth)).collect(),
            block_values: self.block_values,
            key_bits,
            // Packed, characters have hardly more bits than they have information.
            leaf_key_bits: self.leaf_key_bits.map(|bits| (bits - closer).max(LEAST_KEY_BITS)),
            shuffle: self.shuffle * (1.0 / factor.max(1e-9)).powf(self.local).min(1.0),
            changes: self.changes,
        }
    }

    /// Values of a row space with `factor` times the rows of each, and values that were not seen.
    fn grown(&self, factor: f64, universe: f64) -> Vec<FrequencyClass> {
        if factor <= 1.0 + 1e-9 {
            return self.classes.clone();
        }
        let (mut classes, mut rare) = (Vec::new(), ValueBucket::default());
        let (mut once, mut twice) = (0.0, 0.0);
        for class in &self.classes {
            if class.each.rows < RARE {
                rare.values += class.values;
                rare.rows += class.values * class.each.rows;
                if class.each.rows < 1.5 {
                    once += class.values;
                } else if class.each.rows < 2.5 {
                    twice += class.values;
                }
                continue;
            }
            let PostingShape { rows, runs, span } = class.each;
            let each = PostingShape { rows: rows * factor, runs: runs * factor, span: (span * factor).min(universe) };
            classes.push(FrequencyClass { values: class.values, each });
        }
        // How many values were not seen, and how many of these `factor` times the rows would show.
        let unseen = once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
        let found = if unseen > 0.0 { unseen * (1.0 - (-(factor - 1.0) * once / unseen).exp()) } else { 0.0 };
        let rows = rare.rows * factor;
        classes.extend(random_classes((rare.values + found).min(rows), rows, universe));
        classes
    }

    /// Values of a row space with `factor`, at most 1, times the rows of each; some have no row there.
    fn thinned(&self, factor: f64) -> Vec<FrequencyClass> {
        let thin = |class: &FrequencyClass| {
            let left = class.each.rows * factor;
            let kept = if factor > 1.0 - 1e-9 { 1.0 } else { 1.0 - (-left).exp() };
            let rows = (left / kept.max(1e-9)).max(1.0);
            FrequencyClass { values: class.values * kept, each: class.each.scaled_to(rows) }
        };
        self.classes.iter().map(thin).collect()
    }
}

/// What keys take in value blocks.
struct KeyShape {
    /// Bits of a key.
    key_bits: f64,
    /// Values of a block.
    block_values: f64,
}

/// Measures the keys. The widest gaps may be values that were not read.
fn key_shape(lists: &[ValueList<'_>], unread: usize) -> KeyShape {
    let count = (lists.len() as f64).max(1.0);
    let pairs = || lists.iter().zip(lists.iter().skip(1)).map(|(before, list)| (before.key, list.key));
    if let Some(ValueList { key: Key::Bytes(_), .. }) = lists.first() {
        let (mut bytes, mut whole) = (0usize, 0usize);
        for (before, key) in pairs() {
            let (Key::Bytes(before), Key::Bytes(key)) = (before, key) else { continue };
            let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
            bytes += 2 + key.len() - shared;
            whole += key.len();
        }
        let block_values = TARGET_KEY_BYTES as f64 / (whole as f64 / count).max(1e-9) + 1.0;
        return KeyShape { key_bits: 8.0 * bytes as f64 / count, block_values };
    }
    // The gaps of a block have the width of the widest.
    let mut gaps: Vec<u64> = pairs()
        .map(|pair| match pair {
            (Key::Fixed(before), Key::Fixed(key)) => key.saturating_sub(before + 1),
            _ => 0,
        })
        .collect();
    let unread = unread.min(gaps.len() / 2);
    let mut widest = BinaryHeap::with_capacity(unread + 1);
    for (place, gap) in gaps.iter().enumerate() {
        widest.push(Reverse((*gap, place)));
        if widest.len() > unread {
            widest.pop();
        }
    }
    for Reverse((_, place)) in widest {
        if let Some(gap) = gaps.get_mut(place) {
            *gap = 0;
        }
    }
    let width = |gaps: &[u64]| {
        let widest = gaps.iter().max().copied().unwrap_or(0);
        f64::from(u64::BITS - widest.leading_zeros()) * gaps.len() as f64
    };
    let bits = gaps.chunks(MAX_BLOCK_VALUES).map(width).sum::<f64>();
    KeyShape { key_bits: bits / count, block_values: f64::INFINITY }
}

pub(super) fn runs_of(rows: &[u32]) -> f64 {
    let breaks = rows.iter().zip(rows.iter().skip(1)).filter(|(a, b)| *a + 1 != **b).count();
    if rows.is_empty() { 0.0 } else { breaks as f64 + 1.0 }
}

fn classes_of(lists: &[ValueList<'_>]) -> Vec<FrequencyClass> {
    let mut classes: BTreeMap<u32, FrequencyClass> = BTreeMap::new();
    for ValueList { rows, .. } in lists {
        let count = rows.len() as f64;
        let class = classes.entry((count.ln() / CLASS_RATIO.ln()) as u32).or_default();
        let span = match (rows.first(), rows.last()) {
            (Some(first), Some(last)) => f64::from(last - first) + 1.0,
            _ => 0.0,
        };
        class.values += 1.0;
        class.each.rows += count;
        class.each.runs += runs_of(rows);
        class.each.span += span;
    }
    let mean = |mut class: FrequencyClass| {
        class.each.rows /= class.values;
        class.each.runs /= class.values;
        class.each.span /= class.values;
        class
    };
    classes.into_values().map(mean).collect()
}

fn cells_of(counts: &[f64]) -> Vec<ValueBucket> {
    let per_cell = counts.len().div_ceil(CELLS).max(1);
    counts.chunks(per_cell).map(|cell| ValueBucket { values: cell.len() as f64, rows: cell.iter().sum() }).collect()
}

fn borders_of(lists: &[ValueList<'_>]) -> Vec<Key> {
    let per_cell = lists.len().div_ceil(CELLS).max(1);
    let last = lists.last().map(|list| list.key.clone());
    lists.iter().step_by(per_cell).map(|list| list.key.clone()).chain(last).collect()
}

fn extremes_of(counts: &[f64]) -> BlockExtremes {
    BlockExtremes {
        least: counts.iter().copied().fold(f64::INFINITY, f64::min),
        most: counts.iter().copied().fold(0.0, f64::max),
    }
}

/// Noise grows with the square root of the rows, a real difference with the rows.
fn scaled(extremes: BlockExtremes, factor: f64) -> BlockExtremes {
    let (mean, half) = ((extremes.least + extremes.most) / 2.0, (extremes.most - extremes.least) / 2.0);
    let is_noise = 2.0 * half <= NOISE * mean.sqrt() + 1.0;
    let half = half * if is_noise { factor.max(0.0).sqrt() } else { factor };
    BlockExtremes { least: (mean * factor - half).max(1.0), most: (mean * factor + half).max(1.0) }
}

/// How the order of rows follows that of values, as parts of what random rows would show.
struct RowOrder {
    /// How far ranks of neighbouring rows are apart.
    shuffle: f64,
    /// How often they differ.
    changes: f64,
}

fn order_of(chunk: &Chunk, counts: &[f64]) -> RowOrder {
    const NONE: u32 = u32::MAX;
    let mut ranks = vec![NONE; chunk.row_count() as usize];
    for (rank, list) in (0..).zip(chunk.values()) {
        for row in list.rows {
            if let Some(slot) = ranks.get_mut(*row as usize) {
                *slot = rank;
            }
        }
    }
    let (mut steps, mut distance, mut changes, mut before) = (0.0, 0.0, 0.0, NONE);
    for rank in ranks.into_iter().filter(|rank| *rank != NONE) {
        if before != NONE {
            steps += 1.0;
            distance += f64::from(rank.abs_diff(before));
            changes += f64::from(u8::from(rank != before));
        }
        before = rank;
    }
    let total = counts.iter().sum::<f64>().max(1.0);
    let (mut below, mut random_distance, mut random_changes) = (0.0, 0.0, 1.0);
    for count in counts {
        below += count / total;
        random_distance += 2.0 * below * (1.0 - below);
        random_changes -= (count / total) * (count / total);
    }
    if steps < 1.0 || random_distance <= 1e-9 || random_changes <= 1e-9 {
        return RowOrder { shuffle: 1.0, changes: 1.0 };
    }
    RowOrder {
        shuffle: (distance / steps / random_distance).min(1.0),
        changes: (changes / steps / random_changes).min(1.0),
    }
}

/// How far the halves of the sample have values of their own, beyond those that they would have by chance. Where nearly every
/// value has one run of rows the halves say nothing, and the order of the rows decides.
fn local_of(chunk: &Chunk, lists: &[ValueList<'_>], shuffle: f64) -> f64 {
    let half = chunk.row_count() / 2;
    let (mut found, mut by_chance) = (0.0, 0.0);
    for ValueList { rows, .. } in lists {
        let first = rows.first().is_some_and(|row| *row < half);
        let second = rows.last().is_some_and(|row| *row >= half);
        found += (f64::from(u8::from(first)) + f64::from(u8::from(second))) / 2.0;
        by_chance += 1.0 - 0.5f64.powf(runs_of(rows));
    }
    let least = lists.len() as f64 / 2.0;
    let range = by_chance - least;
    if range < 0.02 * lists.len() as f64 { 1.0 - shuffle } else { ((by_chance - found) / range).clamp(0.0, 1.0) }
}
