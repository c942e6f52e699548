//! Conditions are probed one after the other where that saves requests: a file that has no row to find is not probed again.
//!
//! ```text
//! part = 7 AND id = 42 AND kind = 'a'    300 segments know `id`, as many `kind`
//!   part    is a constant of each file:   280 files are ruled out
//!   id      is probed first, in 20 segments: one file is left
//!   kind    is probed in the segment of this file
//! ```
//!
//! Segments are searched at once otherwise: to wait for one answer before the next request takes longer than a few searches.

use lakemark_index::{Leaf, Predicate, Test, Truth};

use super::answers::{FileCandidates, LeafCandidates};
use super::segment_search::SegmentRequest;
use crate::index_kind::IndexKind;

/// To probe so many segments takes no longer than to wait for others first.
const FEW_SEGMENTS: usize = 8;

/// Which truth values a predicate may have in some row of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PossibleTruths {
    be_true: bool,
    be_false: bool,
    be_null: bool,
}

impl PossibleTruths {
    const ANYTHING: Self = Self { be_true: true, be_false: true, be_null: true };

    fn constant(truth: Truth) -> Self {
        Self { be_true: truth == Truth::True, be_false: truth == Truth::False, be_null: truth == Truth::Null }
    }

    fn of(answer: Option<&FileCandidates>) -> Self {
        match answer {
            Some(FileCandidates::Constant(truth)) => Self::constant(*truth),
            Some(FileCandidates::Rows { candidates, .. }) => Self {
                be_true: candidates.may_be(Truth::True),
                be_false: candidates.may_be(Truth::False),
                be_null: candidates.may_be(Truth::Null),
            },
            _ => Self::ANYTHING,
        }
    }

    fn not(self) -> Self {
        Self { be_true: self.be_false, be_false: self.be_true, ..self }
    }

    fn and(self, other: Self) -> Self {
        let either_null = self.be_null && (other.be_true || other.be_null) || self.be_true && other.be_null;
        Self { be_true: self.be_true && other.be_true, be_false: self.be_false || other.be_false, be_null: either_null }
    }

    /// `next` gives the possible truths of the leaves in their order.
    fn be(predicate: &Predicate, next: &mut impl FnMut() -> Self) -> Self {
        match predicate {
            Predicate::Const(truth) => Self::constant(*truth),
            Predicate::Leaf(_) => next(),
            Predicate::Unknown { .. } => Self::ANYTHING,
            Predicate::Not(inner) => Self::be(inner, next).not(),
            Predicate::And(parts) => {
                parts.iter().fold(Self::constant(Truth::True), |all, part| all.and(Self::be(part, next)))
            }
            Predicate::Or(parts) => {
                let none =
                    parts.iter().fold(Self::constant(Truth::True), |all, part| all.and(Self::be(part, next).not()));
                none.not()
            }
        }
    }
}

/// For each of so many files whether no row of it can be selected, by what is known up to now.
pub(super) fn ruled_out(answers: &LeafCandidates, predicate: &Predicate, files: usize) -> Vec<bool> {
    let is_ruled_out = |file| {
        let mut leaf = 0;
        let mut next = || {
            leaf += 1;
            PossibleTruths::of(answers.of_leaf(leaf - 1, file))
        };
        !PossibleTruths::be(predicate, &mut next).be_true
    };
    (0..files).map(is_ruled_out).collect()
}

/// The leaf to probe before all others, if that may save many requests: a condition that every selected row meets, and likely few rows do.
/// Where reading was weighed against searching, that is a single key of an index that finds single keys. Else it is the leaf with the least
/// estimate (`shares` of the rows, for each leaf). Where nothing was estimated, a test of few values counts as true of few rows.
pub(super) fn first_probed(
    predicate: &Predicate,
    leaves: &[&Leaf],
    requests: &[Vec<SegmentRequest>],
    shares: &[Option<f64>],
) -> Option<usize> {
    let request_count = |place: usize| requests.get(place).map_or(0, Vec::len);
    let conjuncts: Vec<usize> = conjuncts(predicate).into_iter().filter(|place| request_count(*place) > 0).collect();
    let finds_keys = |place: usize| {
        let has_keys = |request: &SegmentRequest| request.index.kind.known() == Some(IndexKind::Key);
        requests.get(place).is_some_and(|requests| requests.iter().any(has_keys))
    };
    let first = most_selective(&conjuncts, leaves, finds_keys, shares)?;
    let others: usize = requests.iter().map(Vec::len).sum::<usize>() - request_count(first);
    (others > FEW_SEGMENTS).then_some(first)
}

/// Which of these conditions is likely true of the fewest rows, as [`first_probed`] says it; `finds_keys` tells whether an index that finds
/// single keys is probed for a leaf.
pub(super) fn most_selective(
    places: &[usize],
    leaves: &[&Leaf],
    finds_keys: impl Fn(usize) -> bool,
    shares: &[Option<f64>],
) -> Option<usize> {
    let share = |place: &usize| shares.get(*place).copied().flatten();
    let is_estimated = places.iter().any(|place| share(place).is_some());
    let by_test = |place: &usize| RankByTest {
        width: leaves.get(*place).map(|leaf| TestWidth::of(&leaf.test)),
        lacks_keys: !finds_keys(*place),
    };
    let by_estimate = |place: &usize| {
        // A single key is in few rows, however many rows its leaf of the tree has.
        let is_key = by_test(place) == RankByTest { width: Some(TestWidth::SINGLE_KEY), lacks_keys: false };
        match is_estimated {
            true => RankByEstimate { is_no_key: !is_key, share: share(place).unwrap_or(1.0) },
            false => RankByEstimate { is_no_key: false, share: 1.0 },
        }
    };
    let order = |one: &&usize, other: &&usize| {
        let (rank, other_rank) = (by_estimate(one), by_estimate(other));
        let by_key = rank.is_no_key.cmp(&other_rank.is_no_key);
        let by_estimate = by_key.then(rank.share.total_cmp(&other_rank.share));
        by_estimate.then_with(|| by_test(one).cmp(&by_test(other)))
    };
    places.iter().min_by(order).copied()
}

/// How wide a test is: the wider, the more rows it is likely true of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TestWidth {
    /// Whether it is of more than single keys.
    is_wide: bool,
    ranges: usize,
}

impl TestWidth {
    const SINGLE_KEY: Self = Self { is_wide: false, ranges: 1 };

    fn of(test: &Test) -> Self {
        test.ranges().map_or(Self { is_wide: true, ranges: 1 }, |ranges| Self {
            is_wide: !ranges.are_points(),
            ranges: ranges.ranges().len(),
        })
    }
}

/// How soon a leaf is probed by its test: the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankByTest {
    width: Option<TestWidth>,
    /// Whether no index that finds single keys would be probed.
    lacks_keys: bool,
}

/// How soon a leaf is probed by what was estimated: the least first.
#[derive(Clone, Copy, Debug)]
struct RankByEstimate {
    is_no_key: bool,
    /// The share of the rows that it is true of.
    share: f64,
}

/// The leaves that must be true of each selected row, by their places.
pub(super) fn conjuncts(predicate: &Predicate) -> Vec<usize> {
    let parts = match predicate {
        Predicate::And(parts) => parts.as_slice(),
        other => std::slice::from_ref(other),
    };
    let (mut found, mut place) = (Vec::new(), 0);
    for part in parts {
        if matches!(part, Predicate::Leaf(_)) {
            found.push(place);
        }
        place += part.leaves().len();
    }
    found
}

#[cfg(test)]
mod tests {
    use lakemark_index::{Candidates, KeyRanges, Reason, RowSet};

    use super::*;

    fn leaf() -> Predicate {
        Predicate::Leaf(Leaf { column: "c".to_owned(), test: Test::IsNull, text: String::new() })
    }

    fn unknown() -> Predicate {
        Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: String::new() }
    }

    /// The truths that a predicate may have over one row, by trying all that its leaves may have.
    fn by_trying(predicate: &Predicate, known: &[PossibleTruths]) -> PossibleTruths {
        let truths = [Truth::True, Truth::False, Truth::Null];
        let allowed = |may: &PossibleTruths, truth: &Truth| match truth {
            Truth::True => may.be_true,
            Truth::False => may.be_false,
            Truth::Null => may.be_null,
        };
        let mut found = PossibleTruths { be_true: false, be_false: false, be_null: false };
        for number in 0..3_usize.pow(u32::try_from(known.len()).unwrap()) {
            let chosen: Vec<Truth> =
                (0..known.len()).map(|place| truths[number / 3_usize.pow(u32::try_from(place).unwrap()) % 3]).collect();
            if !known.iter().zip(&chosen).all(|(may, truth)| allowed(may, truth)) {
                continue;
            }
            let mut each = chosen.iter();
            let one = Candidates::of(predicate, 1, &mut |_| Candidates::constant(*each.next().unwrap(), 1));
            found.be_true |= one.may_be(Truth::True);
            found.be_false |= one.may_be(Truth::False);
            found.be_null |= one.may_be(Truth::Null);
        }
        found
    }

    #[test]
    fn what_may_be_is_what_some_row_could_be() {
        let not = |inner| Predicate::Not(Box::new(inner));
        let predicates = [
            Predicate::And(vec![leaf(), leaf()]),
            Predicate::Or(vec![leaf(), leaf()]),
            Predicate::And(vec![leaf(), not(Predicate::Or(vec![leaf(), Predicate::Const(Truth::Null)]))]),
            Predicate::Or(vec![not(leaf()), Predicate::And(vec![leaf(), unknown()])]),
            not(Predicate::And(vec![not(leaf()), leaf()])),
        ];
        let all: Vec<PossibleTruths> = (1..8)
            .map(|bits| PossibleTruths { be_true: bits & 1 > 0, be_false: bits & 2 > 0, be_null: bits & 4 > 0 })
            .collect();
        for predicate in &predicates {
            for one in &all {
                for other in &all {
                    let known = [*one, *other];
                    let mut each = known.iter();
                    let may = PossibleTruths::be(predicate, &mut || *each.next().unwrap());
                    let tried = by_trying(predicate, &known);
                    // Bounds: never less than what can be.
                    assert!(may.be_true || !tried.be_true, "{predicate:?} {known:?}");
                    assert!(may.be_false || !tried.be_false, "{predicate:?} {known:?}");
                    assert!(may.be_null || !tried.be_null, "{predicate:?} {known:?}");
                    if !format!("{predicate:?}").contains("Unknown") {
                        assert_eq!(may, tried, "{predicate:?} {known:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_tell_what_a_file_may_be() {
        let rows = |t: &[u32], n: &[u32]| FileCandidates::Rows {
            candidates: Candidates::exact(RowSet::from_rows(t.to_vec(), 4), RowSet::from_rows(n.to_vec(), 4)),
            row_groups: vec![4],
        };
        let may = |be_true, be_false, be_null| PossibleTruths { be_true, be_false, be_null };
        assert_eq!(PossibleTruths::of(Some(&rows(&[0, 1], &[2]))), may(true, true, true));
        assert_eq!(PossibleTruths::of(Some(&rows(&[0, 1], &[2, 3]))), may(true, false, true));
        assert_eq!(PossibleTruths::of(Some(&rows(&[], &[]))), may(false, true, false));
        assert_eq!(PossibleTruths::of(None), PossibleTruths::ANYTHING);
    }

    #[test]
    fn conditions_that_every_row_must_meet_are_the_parts_of_a_conjunction() {
        assert_eq!(conjuncts(&leaf()), [0]);
        assert_eq!(conjuncts(&Predicate::Or(vec![leaf(), leaf()])), [] as [usize; 0]);
        let both = Predicate::Or(vec![leaf(), leaf()]);
        assert_eq!(conjuncts(&Predicate::And(vec![leaf(), both, unknown(), leaf()])), [0, 3]);
        let point = Test::Ranges(KeyRanges::point(lakemark_format::key::Key::Fixed(7)));
        assert!(TestWidth::of(&point) < TestWidth::of(&Test::IsNull));
    }

    #[test]
    fn a_key_goes_before_estimates_and_these_before_the_number_of_keys() {
        let of = |keys: &[u64]| {
            let points = keys.iter().map(|key| lakemark_format::key::Key::Fixed(*key)).collect();
            Leaf { column: "c".to_owned(), test: Test::Ranges(KeyRanges::points(points)), text: String::new() }
        };
        let (one, also_one, three) = (of(&[7]), of(&[8]), of(&[1, 2, 3]));
        let leaves = [&one, &also_one, &three];
        let first = |key: Option<usize>, shares: [Option<f64>; 3]| {
            most_selective(&[0, 1, 2], &leaves, |place| Some(place) == key, &shares)
        };
        assert_eq!(first(Some(1), [None; 3]), Some(1), "of two keys the one that an index of keys finds");
        assert_eq!(first(Some(1), [Some(0.1), Some(0.9), Some(0.01)]), Some(1));
        assert_eq!(first(Some(2), [Some(0.5), None, Some(0.01)]), Some(2), "three keys that are estimated to be rare");
        assert_eq!(first(None, [None; 3]), Some(0));
        assert_eq!(most_selective(&[], &leaves, |_| true, &[]), None);
    }
}
