//! When the chain of a page is cheaper than the joins of each query.
//!
//! ```text
//! private    Σ probe · rows
//! shared     lookup · rows of the page · columns + Σ (route + probe) · rows that the chain leaves
//! ```
//!
//! All costs are nanoseconds of one core. A row that finds no match mostly ends at the first join of its query, so that a plan of its own
//! pays one probe for it. What a chain leaves is taken from the pages before.

use crate::share::prediction::{Prediction, Terms};

/// A row through the joins of a plan of its own. `exec/dynamic_filters.rs` has the same, measured with a row that finds no match.
const PROBE: f64 = 10.0;
/// A key in the table of a column: estimated.
const LOOKUP: f64 = 4.0;
/// A row to its query, and out of the page: estimated.
const ROUTE: f64 = 10.0;
/// A key into the table of a column: estimated.
const INSERT: f64 = 10.0;
/// Of what its probes cost a query may pay one part in so many for its keys.
const KEYS_SHARE: f64 = 4.0;

/// What a query wants of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StarRows {
    pub(crate) rows: f64,
    /// The share that chains left of its rows so far.
    pub(crate) share_left: f64,
}

/// What the joins of queries cost for a page of so many rows, whose chain has so many columns.
pub(crate) fn of_page(rows: u32, columns: usize, queries: &[StarRows]) -> Prediction {
    let private = queries.iter().map(|query| PROBE * query.rows).sum();
    let left = queries.iter().map(|query| (ROUTE + PROBE) * query.rows * query.share_left);
    let shared = LOOKUP * f64::from(rows) * columns as f64 + left.sum::<f64>();
    Prediction { private, shared }
}

/// Whether a query that wants so many rows may have so many keys.
pub(crate) fn are_few(keys: usize, rows: u64, terms: Terms) -> bool {
    terms == Terms::Always || INSERT * keys as f64 * KEYS_SHARE <= PROBE * rows as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wins(queries: usize, columns: usize, share_left: f64) -> bool {
        let rows = StarRows { rows: 8_192.0, share_left };
        of_page(8_192, columns, &vec![rows; queries]).wins(Terms::WherePays)
    }

    #[test]
    fn the_fewer_rows_match_the_fewer_queries_are_enough() {
        let least = |share: f64| (1..200).find(|queries| wins(*queries, 3, share));
        assert_eq!(least(0.0), Some(2));
        assert_eq!(least(0.001), Some(2));
        assert_eq!(least(0.3), Some(5));
        assert_eq!(least(0.5), None);
    }

    #[test]
    fn a_lone_query_gains_nothing_from_three_columns_nor_does_a_small_page() {
        assert!(!wins(1, 3, 0.0) && wins(2, 3, 0.0));
        let few = StarRows { rows: 100.0, share_left: 0.0 };
        assert!(!of_page(8_192, 1, &[few, few]).wins(Terms::WherePays));
    }

    #[test]
    fn rows_that_a_query_does_not_want_are_looked_up_for_the_others() {
        let (all, half) = (StarRows { rows: 8_192.0, share_left: 0.0 }, StarRows { rows: 900.0, share_left: 0.0 });
        assert!(of_page(8_192, 1, &[all, half]).wins(Terms::WherePays));
        assert!(!of_page(8_192, 3, &[half, half]).wins(Terms::WherePays));
    }

    #[test]
    fn keys_cost_a_share_of_the_probes() {
        assert!(are_few(250, 1_000, Terms::WherePays) && !are_few(251, 1_000, Terms::WherePays));
        assert!(are_few(251, 1_000, Terms::Always));
    }
}
