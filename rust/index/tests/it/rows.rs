//! Row sets against `BTreeSet`, named after the laws of set algebra.

use std::collections::BTreeSet;

use lakemark_index::{RowSet, RowSetBuilder};
use proptest::prelude::*;

type Model = BTreeSet<u32>;

fn model(set: &RowSet) -> Model {
    set.iter().collect()
}

/// Rows of a universe: sparse, dense, of runs, empty or full.
fn set(universe: u32) -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        prop::collection::vec(0..universe.max(1), 0..20),
        prop::collection::vec(0..universe.max(1), 0..2000),
        (0..universe.max(1), 0..universe.max(1)).prop_map(|(a, b)| (a.min(b)..a.max(b)).collect()),
        Just((0..universe).collect::<Vec<_>>()),
    ]
}

/// A universe and two sets in it.
fn two_sets() -> impl Strategy<Value = (u32, Vec<u32>, Vec<u32>)> {
    (1u32..3000).prop_flat_map(move |universe| (Just(universe), set(universe), set(universe)))
}

/// A universe of several blocks of a count, and sets in it of which some are the same.
fn several_sets() -> impl Strategy<Value = (u32, Vec<Vec<u32>>)> {
    (1u32..100_000).prop_flat_map(|universe| {
        let dense =
            (0..universe, 1u32..8).prop_map(move |(from, step)| (from..universe).step_by(step as usize).collect());
        (Just(universe), prop::collection::vec(prop_oneof![set(universe), dense], 0..6))
    })
}

proptest! {
    #[test]
    fn operations_agree_with_the_model((universe, a, b) in two_sets()) {
        let (sa, sb) = (RowSet::from_rows(a.clone(), universe), RowSet::from_rows(b.clone(), universe));
        let (ma, mb): (Model, Model) = (a.into_iter().filter(|r| *r < universe).collect(), b.into_iter().filter(|r| *r < universe).collect());
        prop_assert_eq!(model(&sa), ma.clone());
        prop_assert_eq!(sa.len() as usize, ma.len());
        prop_assert_eq!(model(&sa.and(&sb)), &ma & &mb);
        prop_assert_eq!(model(&sa.or(&sb)), &ma | &mb);
        prop_assert_eq!(model(&sa.minus(&sb)), &ma - &mb);
        prop_assert_eq!(model(&sa.not()), &(0..universe).collect::<Model>() - &ma);
        prop_assert_eq!(sa.is_subset(&sb), ma.is_subset(&mb));
        prop_assert_eq!(sa == sb, ma == mb);
        for row in 0..universe + 70 {
            prop_assert_eq!(sa.contains(row), ma.contains(&row));
        }
    }

    #[test]
    fn laws_of_set_algebra((universe, a, b) in two_sets()) {
        let (a, b) = (RowSet::from_rows(a, universe), RowSet::from_rows(b, universe));
        prop_assert_eq!(a.and(&b), b.and(&a));
        prop_assert_eq!(a.or(&b), b.or(&a));
        prop_assert_eq!(a.and(&b).not(), a.not().or(&b.not()));
        prop_assert_eq!(a.not().not(), a.clone());
        prop_assert_eq!(a.minus(&b).or(&a.and(&b)), a);
    }

    #[test]
    fn a_common_count_is_the_length_of_the_intersection((universe, sets) in several_sets()) {
        let sets: Vec<RowSet> = sets.into_iter().map(|rows| RowSet::from_rows(rows, universe)).collect();
        let common = sets.iter().fold(RowSet::full(universe), |common, set| common.and(set));
        prop_assert_eq!(RowSet::count_common(&sets.iter().collect::<Vec<_>>(), universe), common.len());
    }

    #[test]
    fn ranges_are_maximal_and_slices_renumber((universe, a, _b) in two_sets(), cut in (0u32..3000, 0u32..3000)) {
        let set = RowSet::from_rows(a, universe);
        let ranges: Vec<_> = set.iter_ranges().collect();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        prop_assert!(ranges.iter().all(|range| !range.is_empty() && range.end <= universe));
        let (start, end) = (cut.0.min(cut.1), cut.0.max(cut.1));
        let expected: Model = model(&set).range(start..end).map(|row| row - start).collect();
        let slice = set.slice(start, end);
        prop_assert_eq!(slice.universe(), end.min(universe) - start.min(universe));
        prop_assert_eq!(set.count_in(start, end) as usize, expected.len());
        prop_assert_eq!(model(&slice), expected);
    }

    #[test]
    fn builders_keep_every_row(universe in 1u32..2000, ranges in prop::collection::vec((0u32..2100, 0u32..300), 0..20), words in prop::collection::vec((0u32..2100, any::<u64>()), 0..6), hint in 0u64..2000) {
        let mut builder = RowSetBuilder::with_capacity(universe, hint);
        let mut expected = Model::new();
        for (start, length) in ranges {
            builder.insert_range(start..start + length);
            expected.extend(start..start + length);
        }
        for (first, bits) in words {
            builder.insert_word(first, bits);
            expected.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
            builder.extend_from_slice(&[first]);
            expected.insert(first);
        }
        expected.retain(|row| *row < universe);
        let set = builder.finish();
        prop_assert_eq!(set.len() as usize, expected.len());
        prop_assert_eq!(model(&set), expected);
    }
}
