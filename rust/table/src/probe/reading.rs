//! What it costs to read some rows of a file out of others.
//!
//! ```text
//! selected rows    ██   █   ███                                     ██████
//! pages            [ touched ][ touched ][ not touched, skipped ][ touched ]
//!
//! few runs         step over the rows between: these are unpacked, and not decoded
//! many runs        decode all rows of the touched pages, and mask
//! ```
//!
//! Costs are nanoseconds of one core, measured on 2,000,000 rows. A scan with a filter was compared with DataFusion's own row selection,
//! at 0.01% to 75% of the rows in 1 to 8 columns of a type. Two choices go by them: which conditions are worth a search, and which scans
//! are worth sharing.

use lakemark_index::RowSet;

use crate::options::ColumnReadCost;

/// Rows of a page, as Parquet writers cut them by default.
pub(super) const PAGE_ROWS: u32 = 20_000;
/// What a row that is stepped over costs of decoding it, as the page is decompressed for the others: 0.3 where values are from a
/// dictionary, 0.8 where they are plain numbers.
pub(super) const UNPACK_SHARE: f64 = 0.7;
/// To stop before a run of rows and to go on behind it, in each column: 95 to 120, numbers or strings.
pub(super) const STEP: f64 = 110.0;
/// The reader steps unless one in so many rows begins a run in a row group. Half of the row selectors are the unselected stretches between
/// runs, and the reader needs 32 rows a selector.
const STEP_ROWS: f64 = 64.0;
/// Then the reader decodes every row and masks those that are not selected. That is so much for each row of each column, as the batches are
/// large (3 to 9 at 2% of the rows, next to nothing at 30%), and for each run.
const MASK_ROW: f64 = 4.0;
const MASK_RUN: f64 = 35.0;
/// To plan the reading of a run of rows, on one core and before the first row is read. Planning cuts the run by row groups and makes a
/// selector of the reader (45 to 70 measured). A LIMIT saves that of exact rows, which are cut down to it first.
pub(super) const PLAN_RUN: f64 = 50.0;
/// To evaluate a condition for a row.
pub(super) const TEST: f64 = 1.5;

/// Rows that are read out of others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowsToRead {
    /// All rows.
    pub rows: f64,
    /// Rows among them that are read.
    pub selected: f64,
    /// Stretches that these lie in.
    pub runs: f64,
    /// Rows of the pages that have one of them.
    pub touched: f64,
}

impl RowsToRead {
    /// The rows of a set, whose universe is a row group.
    #[must_use]
    pub fn of(rows: &RowSet) -> Self {
        let pages = (0..rows.universe()).step_by(PAGE_ROWS as usize);
        let ends = pages.map(|first| (first, first.saturating_add(PAGE_ROWS).min(rows.universe())));
        let touched = ends.filter(|&(first, end)| rows.count_in(first, end) > 0);
        Self {
            rows: f64::from(rows.universe()),
            selected: f64::from(rows.len()),
            runs: rows.iter_ranges().count() as f64,
            touched: touched.map(|(first, end)| f64::from(end - first)).sum(),
        }
    }

    /// So many rows of a row group, in so many stretches that nobody looked at: each in pages of its own, as far as there are so many.
    #[must_use]
    pub fn spread(rows: u32, selected: u32, runs: f64) -> Self {
        let (rows, selected) = (f64::from(rows), f64::from(selected));
        Self { rows, selected, runs, touched: (runs * f64::from(PAGE_ROWS)).max(selected).min(rows) }
    }

    /// To decode these rows of some columns, by steps or by a mask, whichever the reader takes.
    pub(super) fn decode_cost(&self, columns: ColumnReadCost) -> f64 {
        let between = (self.touched - self.selected).max(0.0);
        if self.runs * STEP_ROWS <= self.touched {
            (self.selected + between * UNPACK_SHARE) * columns.decode + self.runs * columns.count * STEP
        } else {
            let masked = self.touched * columns.count * MASK_ROW + self.runs * MASK_RUN;
            (self.selected + between) * columns.decode + masked
        }
    }

    /// To read these rows of some columns: to plan and to decode them alone, or to decode all rows and to test each.
    #[must_use]
    pub fn cost(&self, columns: ColumnReadCost) -> f64 {
        if self.selected == 0.0 {
            return 0.0;
        }
        let tested = if self.selected < self.rows { TEST } else { 0.0 };
        let all = self.rows * (columns.decode + tested);
        (self.decode_cost(columns) + self.runs * PLAN_RUN).min(all)
    }
}

/// For each of some sets of rows of a row group, the rows of the pages of which no other set has one.
#[must_use]
pub fn pages_alone(sets: &[&RowSet]) -> Vec<f64> {
    let mut alone = vec![0.0; sets.len()];
    let universe = sets.first().map_or(0, |set| set.universe());
    for first in (0..universe).step_by(PAGE_ROWS as usize) {
        let end = first.saturating_add(PAGE_ROWS).min(universe);
        let mut touching = sets.iter().zip(&mut alone).filter(|(set, _)| set.count_in(first, end) > 0);
        if let (Some((_, rows)), None) = (touching.next(), touching.next()) {
            *rows += f64::from(end - first);
        }
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: ColumnReadCost = ColumnReadCost { count: 2.0, decode: 8.0 };

    #[test]
    fn rows_are_counted_with_their_runs_and_pages() {
        let rows = RowSet::from_rows(vec![3, 4, 5, 40_001], 50_000);
        let found = RowsToRead::of(&rows);
        assert_eq!(found, RowsToRead { rows: 50_000.0, selected: 4.0, runs: 2.0, touched: 30_000.0 });
        assert_eq!(RowsToRead::of(&RowSet::empty(50_000)).cost(NUMBERS), 0.0);
    }

    #[test]
    fn rows_that_nobody_looked_at_are_in_pages_of_their_own() {
        let touched = |selected, runs| RowsToRead::spread(50_000, selected, runs).touched;
        assert_eq!((touched(10, 1.0), touched(30_000, 1.0), touched(4, 4.0)), (20_000.0, 30_000.0, 50_000.0));
    }

    #[test]
    fn pages_that_one_set_alone_touches_are_counted() {
        let [one, other] = [vec![1, 20_000], vec![2, 45_000]].map(|rows| RowSet::from_rows(rows, 50_000));
        assert_eq!(pages_alone(&[&one, &other]), [20_000.0, 10_000.0]);
        assert_eq!((pages_alone(&[&one]), pages_alone(&[])), (vec![40_000.0], Vec::new()));
    }

    #[test]
    fn few_runs_are_stepped_to_and_many_are_masked() {
        let few = RowsToRead { rows: 20_000.0, selected: 100.0, runs: 10.0, touched: 20_000.0 };
        assert_eq!(few.decode_cost(NUMBERS), (100.0 + 19_900.0 * 0.7) * 8.0 + 10.0 * 2.0 * 110.0);
        let many = RowsToRead { selected: 10_000.0, runs: 5_000.0, ..few };
        assert_eq!(many.decode_cost(NUMBERS), 20_000.0 * 8.0 + 20_000.0 * 2.0 * 4.0 + 5_000.0 * 35.0);
    }

    #[test]
    fn no_rows_cost_more_than_all_of_them_with_a_test() {
        let all = RowsToRead::of(&RowSet::full(40_000));
        assert_eq!(all.cost(NUMBERS), 40_000.0 * 8.0);
        let every_second = RowsToRead { selected: 20_000.0, runs: 20_000.0, ..all };
        assert_eq!(every_second.cost(NUMBERS), 40_000.0 * (8.0 + 1.5));
    }
}
