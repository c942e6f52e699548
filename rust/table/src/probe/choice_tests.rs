//! The choice between search and scan, on guesses made by hand.

use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, Reason, Test};

use super::*;
use crate::options::ColumnReadCost;
use crate::options::IndexOnlyCost;
use crate::probe::reading::{STEP, UNPACK_SHARE};

const ROWS: f64 = 10_000_000.0;

fn leaf(column: &str) -> Predicate {
    let test = Test::Ranges(KeyRanges::point(Key::Fixed(1)));
    Predicate::Leaf(Leaf { column: column.into(), test, text: column.into() })
}

fn guess(share: f64, weight: impl Fn(f64) -> Weight) -> Option<LeafEstimate> {
    let nulls = Weight::default();
    Some(LeafEstimate {
        passing: weight(share * ROWS),
        all: weight(ROWS),
        nulls,
        rows: ROWS,
        segments: 8,
        ranges: 1.0,
        packed: false,
        rechecked: false,
    })
}

/// Every row stands apart, with 200 rows a value: a row is a byte and a bit.
fn spread(share: f64) -> Option<LeafEstimate> {
    guess(share, |rows| Weight { rows, bytes: rows * 1.1, postings: rows / 200.0 })
}

/// Every row stands apart, with a value of its own.
fn unique(share: f64) -> Option<LeafEstimate> {
    guess(share, |rows| Weight { rows, bytes: rows * 1.2, postings: rows })
}

/// All rows of a value lie together: a value is five bytes.
fn sorted(share: f64) -> Option<LeafEstimate> {
    guess(share, |rows| Weight { rows, bytes: rows / 1_000.0, postings: rows / 5_000.0 })
}

/// Numbers: so many columns as nanoseconds are four of.
fn columns(output: f64, filter: f64) -> ReadCost {
    let columns = |decode: f64| ColumnReadCost { count: decode / 4.0, decode };
    ReadCost { output: columns(output), filter: columns(filter), limit: None, index_only: None, parent_cost: 0.0 }
}

fn left_out(predicate: &Predicate, guesses: &[Option<LeafEstimate>], reading: &ReadCost) -> Vec<bool> {
    CostModel { predicate, guesses, reading, cores: 2.0, unencoded: &[] }.searches_to_skip()
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
fn stepping_from_row_to_row_is_paid_for_in_each_column() {
    let of = |share: f64, count: f64| left_out(&leaf("a"), &[spread(share)], &columns(4.0 * count, 4.0));
    // Between the rows of a hundredth the reader steps, which takes less than to decode what lies between.
    assert_eq!([of(0.01, 1.0), of(0.01, 4.0), of(0.01, 16.0)], [[false], [false], [false]]);
    // Of three times as many the reader decodes all rows and throws most away, after so many runs were planned for: testing takes less.
    assert_eq!([of(0.03, 1.0), of(0.03, 4.0), of(0.03, 16.0)], [[true], [true], [true]]);
    // 9,990 runs of a row, as each row stands apart; what is planned and found is not read.
    let (share, runs) = (0.001, 9_990.0);
    let read = |count: f64| {
        let (guesses, reading) = ([spread(share)], columns(4.0 * count, 4.0));
        let question =
            CostModel { predicate: &leaf("a"), guesses: &guesses, reading: &reading, cores: 1.0, unencoded: &[] };
        let (parts, found) = (question.parts(), question.guesses[0].unwrap().search_cost(1.0));
        question.cost(&parts, 1, ROWS) - found - runs * PLAN_RUN
    };
    // In one column and in three; the rest of the cost is to decompress pages.
    let (one, three) = (read(1.0), read(3.0));
    assert!((three / one - 3.0).abs() < 1e-9, "{one} {three}");
    assert!(
        (one - (runs * STEP + share * ROWS * 4.0 + (1.0 - share) * ROWS * 4.0 * UNPACK_SHARE)).abs() < 1e-3 * one,
        "{one}"
    );
}

#[test]
fn a_posting_for_each_row_makes_a_search_dear() {
    let of = |guess| left_out(&leaf("a"), &[guess], &columns(4.0, 12.0));
    assert_eq!([of(spread(0.01)), of(unique(0.01))], [[false], [false]]);
    assert_eq!([of(spread(0.05)), of(unique(0.05))], [[false], [true]]);
    let both = Predicate::And(vec![leaf("a"), leaf("b")]);
    let beside = |guess| left_out(&both, &[spread(0.000_1), guess], &columns(4.0, 4.0));
    assert_eq!([beside(spread(0.000_5)), beside(unique(0.3))], [[false, false], [false, true]]);
    let cost = |guess: Option<LeafEstimate>| guess.unwrap().search_cost(2.0);
    let begin = 8.0 * BEGIN_SEGMENT;
    let unique_cost = begin + 100_000.0 * (DECODE_POSTING + DECODE_ROW) + 120_000.0 * READ_BYTE;
    let spread_cost = begin + 500.0 * DECODE_POSTING + 100_000.0 * DECODE_ROW + 110_000.0 * READ_BYTE;
    assert_eq!([cost(unique(0.01)), cost(spread(0.01))], [unique_cost / 2.0, spread_cost / 2.0]);
}

#[test]
fn values_of_one_run_each_follow_each_other() {
    let runs = |guess: Option<LeafEstimate>| guess.unwrap().runs();
    assert_eq!([runs(sorted(0.000_001)), runs(sorted(0.01)), runs(sorted(1.0))], [0.01, 8.0, 0.0]);
    assert_eq!([runs(spread(0.01)), runs(unique(0.01))].map(f64::round), [110_000.0, 120_000.0]);
    // Keys of a packed tree that are in the order of rows are found as one run, and in no order they are cheaper than postings.
    let keys = |bytes: f64| guess(0.1, |rows| Weight { rows, bytes: rows * bytes, postings: rows });
    let keys = |bytes: f64| keys(bytes).map(|guess| LeafEstimate { packed: true, ..guess });
    assert_eq!([runs(keys(0.1)), runs(keys(5.0))], [8.0, 5_000_000.0]);
    assert_eq!(left_out(&leaf("a"), &[keys(0.1)], &columns(4.0, 4.0)), [false]);
    let cost = |guess: Option<LeafEstimate>| guess.unwrap().search_cost(2.0);
    let found = 8.0 * BEGIN_SEGMENT + 1_000_000.0 * DECODE_KEY + 100_000.0 * (DECODE_BYTE + READ_BYTE);
    assert_eq!(cost(keys(0.1)), found / 2.0);
    // Rows that lie together need no second search for the columns that are tested in them.
    let both = Predicate::And(vec![leaf("a"), leaf("b")]);
    assert_eq!(left_out(&both, &[sorted(0.005), spread(0.4)], &columns(4.0, 8.0)), [false, true]);
}

#[test]
fn keys_anywhere_are_as_many_runs_though_keys_are_in_the_order_of_rows() {
    // Four rows a key, in the order of rows: a tenth of the keys is one range, or as many ranges as keys.
    let keys = |ranges: f64| {
        let found = guess(0.1, |rows| Weight { rows, bytes: rows * 0.03, postings: rows / 4.0 });
        found.map(|found| LeafEstimate { packed: true, ranges, ..found })
    };
    let runs = |ranges: f64| keys(ranges).map_or(0.0, |keys| keys.runs());
    assert_eq!([runs(1.0), runs(250_000.0)], [8.0, 250_000.0]);
    let of = |ranges: f64| left_out(&leaf("a"), &[keys(ranges)], &columns(16.0, 0.0));
    assert_eq!([of(1.0), of(250_000.0)], [[false], [true]]);
}

#[test]
fn rows_in_runs_are_stepped_over_in_as_many_steps() {
    // 870 rows a value in runs of twelve, each of four bytes: rows anywhere would take twice as many bytes or more.
    let runs_of = |rows_of_run: f64| {
        let found = guess(0.026, |rows| Weight { rows, bytes: rows / rows_of_run * 4.0, postings: rows / 870.0 });
        found.map_or(0.0, |found| found.runs())
    };
    let rows = 0.026 * ROWS;
    assert!((rows / 16.0..rows / 8.0).contains(&runs_of(12.0)), "{}", runs_of(12.0));
    assert!(runs_of(1.0) >= rows, "{}", runs_of(1.0));
    // Rows of a tenth of the keys in so few runs need no second search, which would step over fewer of them.
    let both = Predicate::And(vec![leaf("a"), leaf("b")]);
    let in_runs = |share: f64| guess(share, |rows| Weight { rows, bytes: rows / 3.0, postings: rows / 870.0 });
    let keys = guess(0.1, |rows| Weight { rows, bytes: rows * 8.0, postings: rows / 28.0 });
    let keys = keys.map(|keys| LeafEstimate { packed: true, all: keys.passing.times(10.0), ..keys });
    assert_eq!(left_out(&both, &[in_runs(0.026), keys], &columns(8.0, 0.0)), [false, true]);
}

#[test]
fn a_search_that_saves_reading_a_wide_filter_column_is_made() {
    assert_eq!(left_out(&leaf("a"), &[spread(0.35)], &columns(4.0, 40.0)), [false]);
}

#[test]
fn a_limit_that_a_few_batches_satisfy_needs_no_search() {
    let of = |share: f64, limit: f64| {
        left_out(&leaf("a"), &[spread(share)], &ReadCost { limit: Some(limit), ..columns(4.0, 4.0) })
    };
    assert_eq!(of(0.1, 10.0), [true]);
    assert_eq!(of(0.000_001, 10.0), [false]);
    // Rows that another condition leaves few of: what is planned for all of them is paid for, read is a fiftieth.
    let both = Predicate::And(vec![leaf("a"), leaf("b")]);
    let few = ReadCost { limit: Some(10.0), ..columns(18.0, 18.0) };
    assert_eq!(left_out(&both, &[spread(0.002_6), unique(0.026)], &few), [true, true]);
    assert_eq!(of(0.001, 1_000_000.0), [false]);
    // Exact rows are cut down to the limit before they are planned for.
    assert_eq!(of(0.001, 1_000.0), [false]);
}

fn bounds_of(least: Option<LeafEstimate>, most: Option<LeafEstimate>) -> Option<EstimateBounds> {
    Some(EstimateBounds { least: least?, most: most? })
}

#[test]
fn bounds_between_which_the_choice_is_the_same_tell_enough() {
    let of = |least: f64, most: f64| {
        let bounds = [bounds_of(spread(least), spread(most))];
        decided(&bounds, |guesses| left_out(&leaf("a"), guesses, &columns(4.0, 4.0)))
    };
    assert_eq!([of(0.0, 0.01), of(0.1, 0.3)], [Some(vec![false]), Some(vec![true])]);
    assert_eq!(of(0.01, 0.2), None);
    // A search finds hardly any rows or hardly any others, but not half of them.
    assert_eq!([of(0.0, 0.0), of(1.0, 1.0), of(0.0, 1.0)], [Some(vec![false]), Some(vec![false]), None]);
    // If `a` is true of few rows, `b` need not be searched. Which of both is true of few may be what the bounds do not show.
    let both = Predicate::And(vec![leaf("a"), leaf("b")]);
    let of = |least: f64, most: f64| {
        let bounds = [bounds_of(sorted(least), sorted(most)), bounds_of(spread(0.0), spread(0.02))];
        decided(&bounds, |guesses| left_out(&both, guesses, &columns(4.0, 8.0)))
    };
    assert_eq!([of(0.0, 1.0), of(0.3, 1.0)], [None, Some(vec![false, false])]);
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
fn small_tables_and_unindexed_columns_are_left_as_they_are() {
    let small = |rows: f64, postings: f64| {
        let weight = |rows: f64| Weight { rows, bytes: rows, postings };
        Some(LeafEstimate { passing: weight(rows / 2.0), all: weight(rows), rows, ..spread(0.5).unwrap() })
    };
    assert_eq!(left_out(&leaf("a"), &[small(1_000.0, 100.0)], &columns(4.0, 4.0)), [false]);
    // But not where thousands of keys would have to be found.
    assert_eq!(left_out(&leaf("a"), &[small(50_000.0, 20_000.0)], &columns(4.0, 4.0)), [true]);
    assert_eq!(left_out(&leaf("a"), &[None], &columns(4.0, 4.0)), [false]);
    let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "f(a)".into() };
    let both = Predicate::And(vec![unknown, leaf("b")]);
    assert_eq!(left_out(&both, &[spread(0.000_1)], &columns(4.0, 4.0)), [false]);
    assert_eq!(left_out(&both, &[spread(0.5)], &columns(4.0, 4.0)), [true]);
}

/// Indexes that give the values, too, make reading needless, if no condition is left for the rows.
#[test]
fn index_only_values_are_worth_a_search_that_reading_is_not() {
    let cost = |milliseconds: f64| {
        let index_only =
            Some(IndexOnlyCost { nanoseconds: milliseconds * 1e6, least_share: 0.1, ..IndexOnlyCost::default() });
        ReadCost { index_only, ..columns(8.0, 4.0) }
    };
    let of = |guess, reading: &ReadCost| left_out(&leaf("a"), &[guess], reading);
    assert_eq!(of(spread(0.09), &cost(1.0)), [true], "too few rows for index-only values");
    for share in [0.11, 0.2, 0.5] {
        assert_eq!(of(spread(share), &columns(8.0, 4.0)), [true], "{share}");
        assert_eq!(of(spread(share), &cost(1.0)), [false], "{share}");
    }
    // A key of its own for each row is dearer to find than to read.
    assert_eq!(of(unique(0.5), &cost(1.0)), [true]);
    assert_eq!(of(spread(0.2), &cost(90.0)), [true], "so much that reading is cheaper");
    let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "f(b)".into() };
    let both = Predicate::And(vec![leaf("a"), unknown]);
    assert_eq!(left_out(&both, &[spread(0.2)], &cost(1.0)), [true], "the rows have to be read for the other condition");
}

#[test]
fn a_search_that_finds_all_values_is_left_out_where_many_rows_have_none() {
    // A twentieth of the rows have no value: to leave them out takes a mask over all others.
    let all = Weight { rows: ROWS * 0.95, bytes: ROWS * 0.95, postings: 12.0 };
    let nulls = Weight { rows: ROWS * 0.05, bytes: ROWS * 0.05, postings: 1.0 };
    let guess = |nulls: Weight| {
        Some(LeafEstimate { passing: all, all, nulls, rows: ROWS, segments: 1, ranges: 1.0, ..LeafEstimate::default() })
    };
    assert_eq!(left_out(&leaf("a"), &[guess(nulls)], &columns(8.0, 0.0)), [true]);
    // In one run they are stepped over.
    assert_eq!(left_out(&leaf("a"), &[guess(Weight { bytes: 8.0, ..nulls })], &columns(8.0, 0.0)), [false]);
}
