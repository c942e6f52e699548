//! The choice between search and scan, on guesses made by hand.

use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, Reason, Test};

use super::*;

const ROWS: f64 = 10_000_000.0;

fn leaf(column: &str) -> Predicate {
    let test = Test::Ranges(KeyRanges::point(Key::Fixed(1)));
    Predicate::Leaf(Leaf { column: column.into(), test, text: column.into() })
}

/// Every row on its own: a row is a byte and a bit.
fn spread(share: f64) -> Option<Guess> {
    let weight = |rows: f64| Weight { rows, bytes: rows * 1.1 };
    Some(Guess { passing: weight(share * ROWS), all: weight(ROWS), rows: ROWS, segments: 8 })
}

/// All rows of a value lie together.
fn sorted(share: f64) -> Option<Guess> {
    let weight = |rows: f64| Weight { rows, bytes: rows / 1_000.0 };
    Some(Guess { passing: weight(share * ROWS), all: weight(ROWS), rows: ROWS, segments: 8 })
}

fn columns(output: f64, filter: f64) -> Reading {
    Reading { output, filter, limit: None }
}

fn left_out(predicate: &Predicate, guesses: &[Option<Guess>], reading: &Reading) -> Vec<bool> {
    Question { predicate, guesses, reading, cores: 2.0 }.leave_out()
}

#[test]
fn few_rows_are_searched_for_and_many_scattered_ones_are_scanned() {
    let of = |share: f64| left_out(&leaf("a"), &[spread(share)], &columns(4.0, 4.0));
    assert_eq!([of(0.000_01), of(0.000_1)], [[false], [false]]);
    assert_eq!([of(0.01), of(0.1)], [[false], [true]]);
    assert_eq!([of(0.35), of(0.5)], [[true], [true]]);
}

#[test]
fn rows_that_lie_together_are_searched_for_however_many_they_are() {
    for share in [0.001, 0.1, 0.5, 0.9, 1.0] {
        assert_eq!(left_out(&leaf("a"), &[sorted(share)], &columns(4.0, 4.0)), [false], "{share}");
    }
}

#[test]
fn nearly_all_rows_are_found_by_the_few_that_are_not() {
    assert_eq!(left_out(&leaf("a"), &[spread(0.999)], &columns(4.0, 4.0)), [false]);
}

#[test]
fn a_search_that_saves_reading_a_wide_filter_column_is_made() {
    assert_eq!(left_out(&leaf("a"), &[spread(0.35)], &columns(4.0, 40.0)), [false]);
}

#[test]
fn a_limit_that_a_few_batches_satisfy_needs_no_search() {
    let of = |share: f64, limit: f64| {
        left_out(&leaf("a"), &[spread(share)], &Reading { limit: Some(limit), ..columns(4.0, 4.0) })
    };
    assert_eq!(of(0.1, 10.0), [true]);
    assert_eq!(of(0.000_001, 10.0), [false]);
    assert_eq!(of(0.001, 1_000_000.0), [false]);
}

#[test]
fn beside_a_selective_conjunct_an_unselective_one_is_tested() {
    let both = Predicate::And(vec![leaf("a"), leaf("b")]);
    assert_eq!(left_out(&both, &[spread(0.3), spread(0.000_001)], &columns(4.0, 4.0)), [true, false]);
    assert_eq!(left_out(&both, &[spread(0.000_001), sorted(0.3)], &columns(4.0, 4.0)), [false, false]);
    let either = Predicate::Or(vec![leaf("a"), leaf("b")]);
    assert_eq!(left_out(&either, &[spread(0.3), spread(0.000_1)], &columns(4.0, 4.0)), [true, true]);
}

#[test]
fn small_tables_and_unmarked_columns_are_left_as_they_are() {
    let small = Guess { rows: 1_000.0, ..spread(0.5).unwrap() };
    assert_eq!(left_out(&leaf("a"), &[Some(small)], &columns(4.0, 4.0)), [false]);
    assert_eq!(left_out(&leaf("a"), &[None], &columns(4.0, 4.0)), [false]);
    let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "f(a)".into() };
    let both = Predicate::And(vec![unknown, leaf("b")]);
    assert_eq!(left_out(&both, &[spread(0.000_1)], &columns(4.0, 4.0)), [false]);
    assert_eq!(left_out(&both, &[spread(0.5)], &columns(4.0, 4.0)), [true]);
}
