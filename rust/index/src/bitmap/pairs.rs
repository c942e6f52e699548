//! Counting rows by the values of two columns: the rows of one get codes, the postings of the other count them.
//!
//! ```text
//! column a   postings ─▶ code of each selected row   2 2 . 0 1 . 0 2     (. is not selected)
//! column b   posting of one value ─▶ its rows ─▶ how many rows of each code
//! ```
//!
//! Each posting is decoded once, whatever the number of pairs.

use std::ops::Range;

use lakemark_format::error::Result;
use lakemark_format::posting::{self, RowSink};

use super::groups::Mask;

/// A row without a code: it does not count.
const NONE: u16 = u16::MAX;

/// The most codes that there may be.
pub const MAX_CODES: usize = NONE as usize;

/// What each row of a segment's row space holds in one column, by the number of the value.
#[derive(Clone, Debug)]
pub struct Codes {
    universe: u32,
    codes: Vec<u16>,
}

impl Codes {
    /// No row has a code.
    #[must_use]
    pub fn new(universe: u32) -> Self {
        Self { universe, codes: vec![NONE; universe as usize] }
    }

    /// Gives a range of rows a code.
    pub fn assign_range(&mut self, rows: Range<u32>, code: u16) {
        if let Some(slots) = self.codes.get_mut(rows.start as usize..rows.end as usize) {
            slots.fill(code);
        }
    }

    /// Gives the rows of a posting a code.
    ///
    /// # Errors
    /// Bytes that are no posting of so many rows.
    pub fn assign(&mut self, bytes: &[u8], rows: u32, code: u16) -> Result<()> {
        posting::decode(bytes, rows, self.universe, &mut Assign { codes: &mut self.codes, code })
    }

    /// Takes the codes away from rows that are not selected.
    pub fn keep(&mut self, mask: &Mask) {
        for (row, code) in (0..).zip(&mut self.codes) {
            if !mask.contains(row) {
                *code = NONE;
            }
        }
    }

    /// How many rows have a code.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.codes.iter().filter(|code| **code != NONE).count() as u64
    }

    /// Adds the rows of a posting to the counts of their codes.
    ///
    /// # Errors
    /// Bytes that are no posting of so many rows.
    pub fn count(&self, bytes: &[u8], rows: u32, counts: &mut [u64]) -> Result<()> {
        posting::decode(bytes, rows, self.universe, &mut PairCounter { codes: &self.codes, counts })
    }
}

struct Assign<'a> {
    codes: &'a mut [u16],
    code: u16,
}

impl RowSink for Assign<'_> {
    fn rows(&mut self, rows: &[u32]) {
        for row in rows {
            if let Some(slot) = self.codes.get_mut(*row as usize) {
                *slot = self.code;
            }
        }
    }

    fn word(&mut self, first: u32, bits: u64) {
        for_each_bit(first, bits, |row| self.rows(&[row]));
    }

    fn run(&mut self, first: u32, length: u32) {
        let slots = self.codes.get_mut(first as usize..first.saturating_add(length) as usize);
        if let Some(slots) = slots {
            slots.fill(self.code);
        }
    }
}

struct PairCounter<'a> {
    codes: &'a [u16],
    counts: &'a mut [u64],
}

impl PairCounter<'_> {
    fn add(&mut self, code: u16) {
        // Rows without a code have one beyond every count.
        if let Some(count) = self.counts.get_mut(usize::from(code)) {
            *count += 1;
        }
    }
}

impl RowSink for PairCounter<'_> {
    fn rows(&mut self, rows: &[u32]) {
        for row in rows {
            if let Some(code) = self.codes.get(*row as usize) {
                self.add(*code);
            }
        }
    }

    fn word(&mut self, first: u32, bits: u64) {
        for_each_bit(first, bits, |row| self.rows(&[row]));
    }

    fn run(&mut self, first: u32, length: u32) {
        let codes = self.codes;
        for code in codes.get(first as usize..first.saturating_add(length) as usize).unwrap_or_default() {
            self.add(*code);
        }
    }
}

fn for_each_bit(first: u32, bits: u64, mut take: impl FnMut(u32)) {
    let mut rest = bits;
    while rest != 0 {
        take(first.saturating_add(rest.trailing_zeros()));
        rest &= rest - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::RowSet;

    fn posting(rows: &[u32], universe: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        posting::encode(rows, universe, &mut bytes);
        bytes
    }

    #[test]
    fn pairs_are_counted_as_a_loop_over_the_rows_does() {
        let universe = 9_000;
        let a = |row: u32| match row {
            2_000..3_000 => 0,
            _ => row * row % 3,
        };
        let b = |row: u32| row % 11 * (row / 4_000);
        let chosen = |row: u32| !row.is_multiple_of(5);
        let mut codes = Codes::new(universe);
        for code in 0..3u16 {
            let rows: Vec<u32> = (0..universe).filter(|row| a(*row) == u32::from(code)).collect();
            codes.assign(&posting(&rows, universe), rows.len() as u32, code).unwrap();
        }
        assert_eq!(codes.rows(), u64::from(universe));
        let mut mask = Mask::new(universe);
        mask.insert(0, &RowSet::from_rows((0..universe).filter(|row| chosen(*row)).collect(), universe));
        codes.keep(&mask);
        assert_eq!(codes.rows(), mask.rows());
        for value in 0..23 {
            let rows: Vec<u32> = (0..universe).filter(|row| b(*row) == value).collect();
            let mut counts = [0; 3];
            codes.count(&posting(&rows, universe), rows.len() as u32, &mut counts).unwrap();
            let pairs = |code: u32| rows.iter().filter(|row| a(**row) == code && chosen(**row)).count() as u64;
            assert_eq!(counts, [pairs(0), pairs(1), pairs(2)], "value {value}");
        }
    }

    #[test]
    fn ranges_have_codes_and_gaps_have_none() {
        let mut codes = Codes::new(200);
        codes.assign_range(0..70, 1);
        codes.assign_range(128..200, 0);
        codes.assign_range(190..300, 3);
        assert_eq!(codes.rows(), 142, "a range beyond the end is no range");
        let rows: Vec<u32> = (60..140).collect();
        let mut counts = [0; 2];
        codes.count(&posting(&rows, 200), 80, &mut counts).unwrap();
        assert_eq!(counts, [12, 10]);
        assert!(codes.count(&[255], 80, &mut counts).is_err());
    }
}
