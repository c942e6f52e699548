//! Gathering rows into a set.

use std::ops::Range;

use super::words::{set_bit, set_range, trim, word_count};
use super::{RowSet, WORD_BITS, prefers_list};

/// Gathers rows in any order: a list while few, a bitmap from then on.
#[derive(Debug)]
pub struct RowSetBuilder {
    universe: u32,
    list: Vec<u32>,
    words: Vec<u64>,
}

impl RowSetBuilder {
    /// Starts with no row.
    #[must_use]
    pub fn new(universe: u32) -> Self {
        Self { universe, list: Vec::new(), words: Vec::new() }
    }

    /// Starts with room for `rows` rows; many rows start as a bitmap at once.
    #[must_use]
    pub fn with_capacity(universe: u32, rows: u64) -> Self {
        let mut builder = Self::new(universe);
        if !prefers_list(rows, universe) {
            builder.widen();
        }
        builder
    }

    /// Makes the list a bitmap unless it is one: sinks that write whole words need one.
    fn widen(&mut self) {
        if self.words.is_empty() {
            self.words = vec![0; word_count(self.universe)];
            for row in self.list.drain(..) {
                set_bit(&mut self.words, row);
            }
        }
    }

    /// Adds ascending or unordered rows. Rows outside the universe are ignored.
    pub fn extend_from_slice(&mut self, rows: &[u32]) {
        if self.words.is_empty() {
            self.list.extend_from_slice(rows);
            if !prefers_list(self.list.len() as u64, self.universe) {
                let universe = self.universe;
                self.list.retain(|&row| row < universe);
                self.widen();
            }
        } else {
            rows.iter().for_each(|&row| set_bit(&mut self.words, row));
            trim(&mut self.words, self.universe);
        }
    }

    /// Adds the rows of a range (cut to the universe).
    pub fn insert_range(&mut self, range: Range<u32>) {
        let range = range.start..range.end.min(self.universe);
        if range.is_empty() {
            return;
        }
        let len = u64::from(range.end - range.start);
        if self.words.is_empty() && prefers_list(self.list.len() as u64 + len, self.universe) {
            self.list.extend(range);
            return;
        }
        self.widen();
        set_range(&mut self.words, range);
    }

    /// Adds 64 rows at once: bit `i` of `bits` stands for row `first + i`.
    pub fn insert_word(&mut self, first: u32, bits: u64) {
        if self.words.is_empty() {
            let mut rest = bits;
            while rest != 0 {
                self.list.push(first.saturating_add(rest.trailing_zeros()));
                rest &= rest - 1;
            }
            if !prefers_list(self.list.len() as u64, self.universe) {
                let universe = self.universe;
                self.list.retain(|&row| row < universe);
                self.widen();
            }
            return;
        }
        let (word, shift) = (first as usize / WORD_BITS, first % u64::BITS);
        if let Some(slot) = self.words.get_mut(word) {
            *slot |= bits << shift;
        }
        if shift != 0
            && let Some(slot) = self.words.get_mut(word + 1)
        {
            *slot |= bits >> (u64::BITS - shift);
        }
    }

    /// The set.
    #[must_use]
    pub fn finish(mut self) -> RowSet {
        if self.words.is_empty() {
            return RowSet::from_rows(self.list, self.universe);
        }
        trim(&mut self.words, self.universe);
        RowSet::from_words(self.words, self.universe)
    }
}
