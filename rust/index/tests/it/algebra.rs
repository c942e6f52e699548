//! The candidate algebra against three-valued logic, row by row.

use std::ops::Bound;

use lakemark_format::key::Key;
use lakemark_index::{Candidates, KeyRanges, Leaf, Predicate, Reason, RowSet, Test, Truth};
use proptest::prelude::*;

/// Two columns of one data file; a cell is NULL, a small number, or a number that the index cannot see.
#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Value(u64),
    Opaque(u64),
}

fn holds(predicate: &Predicate, row: &[Cell; 2]) -> Truth {
    match predicate {
        Predicate::Const(truth) => *truth,
        // The engine knows what we do not: any fixed answer will do, so take one that depends on the row.
        Predicate::Unknown { .. } => match row[0] {
            Cell::Null => Truth::Null,
            Cell::Value(v) | Cell::Opaque(v) if v % 2 == 0 => Truth::True,
            _ => Truth::False,
        },
        Predicate::Leaf(leaf) => {
            let cell = row[usize::from(leaf.column == "b")];
            match (&leaf.test, cell) {
                (Test::IsNull, Cell::Null) => Truth::True,
                (Test::IsNull, _) => Truth::False,
                (Test::Ranges(_) | Test::Elements(_), Cell::Null) => Truth::Null,
                (Test::Ranges(ranges) | Test::Elements(ranges), Cell::Value(v) | Cell::Opaque(v)) => {
                    of_bool(ranges.contains(&Key::Fixed(v)))
                }
            }
        }
        Predicate::Not(inner) => match holds(inner, row) {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            Truth::Null => Truth::Null,
        },
        Predicate::And(parts) => fold(parts, row, Truth::False, Truth::True),
        Predicate::Or(parts) => fold(parts, row, Truth::True, Truth::False),
    }
}

/// AND and OR: one part decides, else NULL if any part is, else the neutral value.
fn fold(parts: &[Predicate], row: &[Cell; 2], decides: Truth, neutral: Truth) -> Truth {
    let truths: Vec<Truth> = parts.iter().map(|part| holds(part, row)).collect();
    if truths.contains(&decides) {
        decides
    } else if truths.contains(&Truth::Null) {
        Truth::Null
    } else {
        neutral
    }
}

fn of_bool(value: bool) -> Truth {
    if value { Truth::True } else { Truth::False }
}

fn leaf_candidates(leaf: &Leaf, rows: &[[Cell; 2]]) -> Candidates {
    let column = usize::from(leaf.column == "b");
    let universe = rows.len() as u32;
    let of = |choose: &dyn Fn(Cell) -> bool| {
        RowSet::from_rows((0..universe).filter(|&r| choose(rows[r as usize][column])).collect(), universe)
    };
    let nulls = of(&|cell| matches!(cell, Cell::Null));
    match &leaf.test {
        Test::IsNull => Candidates::exact(nulls, RowSet::empty(universe)),
        Test::Ranges(ranges) | Test::Elements(ranges) => Candidates::with_opaque(
            of(&|cell| matches!(cell, Cell::Value(v) if ranges.contains(&Key::Fixed(v)))),
            nulls,
            &of(&|cell| matches!(cell, Cell::Opaque(_))),
        ),
    }
}

/// A list has other elements beside the one that is asked for.
#[test]
fn law_2_a_test_of_elements_says_nothing_of_keys() {
    let ranges = KeyRanges::point(Key::Fixed(1));
    let leaf = |test| Predicate::Leaf(Leaf { column: "a".to_owned(), test, text: String::new() });
    assert_eq!(leaf(Test::Ranges(ranges.clone())).keys_of("a"), ranges);
    assert_eq!(leaf(Test::Ranges(ranges.clone())).keys_of("b"), KeyRanges::all());
    assert_eq!(leaf(Test::Elements(ranges)).keys_of("a"), KeyRanges::all());
    assert_eq!(leaf(Test::IsNull).keys_of("a"), KeyRanges::all());
}

fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![1 => Just(Cell::Null), 4 => (0u64..6).prop_map(Cell::Value), 1 => (0u64..6).prop_map(Cell::Opaque)]
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0u64..6).prop_map(|v| Bound::Included(Key::Fixed(v))),
        (0u64..6).prop_map(|v| Bound::Excluded(Key::Fixed(v))),
    ]
}

fn ranges() -> impl Strategy<Value = KeyRanges> {
    prop_oneof![
        (bound(), bound()).prop_map(|(low, high)| KeyRanges::between(low, high)),
        prop::collection::vec(0u64..6, 0..4)
            .prop_map(|keys| KeyRanges::points(keys.into_iter().map(Key::Fixed).collect())),
    ]
}

fn predicate() -> impl Strategy<Value = Predicate> {
    let column = prop_oneof![Just("a".to_owned()), Just("b".to_owned())];
    let leaf = (column, prop_oneof![1 => Just(Test::IsNull), 5 => ranges().prop_map(Test::Ranges)])
        .prop_map(|(column, test)| Predicate::Leaf(Leaf { text: format!("{column} ?"), column, test }));
    let node = prop_oneof![
        8 => leaf,
        1 => prop_oneof![Just(Truth::True), Just(Truth::False), Just(Truth::Null)].prop_map(Predicate::Const),
        1 => Just(Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "f(a)".to_owned() }),
    ];
    node.prop_recursive(4, 20, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::And),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::Or),
            inner.prop_map(|inner| Predicate::Not(Box::new(inner))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Law 2: each truth value stays inside its bound, and exact means true.
    #[test]
    fn law_2_unknown_keeps(predicate in predicate(), rows in prop::collection::vec([cell(), cell()], 1..100)) {
        for predicate in [predicate.clone(), predicate.simplify()] {
            let found = Candidates::of(&predicate, rows.len() as u32, &mut |leaf| leaf_candidates(leaf, &rows));
            let (exact, recheck) = (found.exact_true(), found.recheck_true());
            for (index, row) in rows.iter().enumerate() {
                let index = index as u32;
                let truth = holds(&predicate, row);
                let bounds = [(Truth::True, found.t()), (Truth::False, found.f()), (Truth::Null, found.n())];
                for (value, bound) in &bounds {
                    prop_assert!(truth != *value || bound.contains(index), "{predicate} row {index} {row:?}: {truth:?}");
                }
                prop_assert!(!exact.contains(index) || truth == Truth::True);
                prop_assert!(truth != Truth::True || exact.contains(index) || recheck.contains(index));
            }
            prop_assert!(exact.and(&recheck).is_empty());
            // A count is known just where no row has to be looked at, and is the number of the exact ones.
            let counted = Candidates::count(&predicate, rows.len() as u32, &mut |leaf| leaf_candidates(leaf, &rows));
            match counted {
                Ok(count) => prop_assert_eq!((count, 0), (exact.len(), recheck.len()), "{}", predicate),
                Err(candidates) => {
                    prop_assert!(!recheck.is_empty());
                    prop_assert_eq!(candidates, found);
                }
            }
        }
    }

    #[test]
    fn simplify_keeps_every_truth_value(predicate in predicate(), rows in prop::collection::vec([cell(), cell()], 1..50)) {
        let simple = predicate.clone().simplify();
        for row in &rows {
            prop_assert_eq!(holds(&predicate, row), holds(&simple, row), "{} / {}", predicate, simple);
        }
    }

    /// Law 2: no row is true whose value has another key.
    #[test]
    fn law_2_keys_of_a_column_are_those_of_all_rows_that_are_true(predicate in predicate(), row in [cell(), cell()]) {
        for predicate in [predicate.clone(), predicate.simplify()] {
            for (column, cell) in ["a", "b"].into_iter().zip(row) {
                if let (Truth::True, Cell::Value(v) | Cell::Opaque(v)) = (holds(&predicate, &row), cell) {
                    prop_assert!(predicate.keys_of(column).contains(&Key::Fixed(v)), "{predicate} {row:?}");
                }
            }
        }
    }

    #[test]
    fn key_ranges_are_sets(a in ranges(), b in ranges()) {
        for key in (0..7).map(Key::Fixed) {
            prop_assert_eq!(a.intersect(&b).contains(&key), a.contains(&key) && b.contains(&key));
            prop_assert_eq!(a.union(&b).contains(&key), a.contains(&key) || b.contains(&key));
            prop_assert_eq!(a.complement().contains(&key), !a.contains(&key));
            for high in (0..7).map(Key::Fixed) {
                let both = KeyRanges::between(Bound::Included(key.clone()), Bound::Included(high.clone())).intersect(&a);
                prop_assert!(key > high || a.meets(&key, &high) == (both != KeyRanges::none()), "{:?} {:?}", key, high);
            }
        }
        prop_assert_eq!(a.complement().complement(), a);
    }

    #[test]
    fn the_union_of_many_sets_is_that_of_two_after_the_other(sets in prop::collection::vec(ranges(), 0..6)) {
        // By De Morgan, which knows nothing of how ranges are merged; the same set has the same ranges.
        let by_two = |all: KeyRanges, set: &KeyRanges| all.complement().intersect(&set.complement()).complement();
        let expected = sets.iter().fold(KeyRanges::none(), by_two);
        prop_assert_eq!(KeyRanges::union_all(sets), expected);
    }
}

#[test]
fn conditions_on_one_column_become_one_however_many_there_are() {
    let leaf = |column: &str, number: u64| {
        let (test, text) = (Test::Ranges(KeyRanges::point(Key::Fixed(number))), format!("{column} = {number}"));
        Predicate::Leaf(Leaf { column: column.to_owned(), test, text })
    };
    let many = 20_000;
    let parts = (0..many).flat_map(|number| [leaf("a", number), leaf("b", number % 7)]).collect();
    let Predicate::Or(parts) = Predicate::Or(parts).simplify() else { panic!("two columns are left") };
    let [Predicate::Leaf(a), Predicate::Leaf(b)] = parts.as_slice() else { panic!("{} parts", parts.len()) };
    assert_eq!((a.column.as_str(), b.column.as_str()), ("a", "b"));
    let keys = |leaf: &Leaf| match &leaf.test {
        Test::Ranges(ranges) | Test::Elements(ranges) => ranges.ranges().len() as u64,
        Test::IsNull => 0,
    };
    assert_eq!((keys(a), keys(b)), (many, 7));
    assert!(a.text.starts_with("a = 0 OR a = 1 OR a = 2 OR") && a.text.ends_with(" OR a = 19999"));
}

#[test]
fn merged_conditions_keep_their_meaning_in_text() {
    let leaf = |number: u64| {
        let (test, text) = (Test::Ranges(KeyRanges::point(Key::Fixed(number))), format!("a = {number}"));
        Predicate::Leaf(Leaf { column: "a".to_owned(), test, text })
    };
    let either = || Predicate::Or(vec![leaf(1), leaf(2)]);
    let both = |one, other| Predicate::And(vec![one, other]).simplify().to_string();
    assert_eq!(both(either(), leaf(1)), "(a = 1 OR a = 2) AND a = 1");
    assert_eq!(both(leaf(1), leaf(2)), "a = 1 AND a = 2");
    // Two bounds of one condition are said once.
    assert_eq!(both(leaf(1), leaf(1)), "a = 1");
    assert_eq!(Predicate::Not(Box::new(either())).simplify().to_string(), "NOT (a = 1 OR a = 2)");
}

#[test]
fn a_prefix_is_a_range_of_byte_keys() {
    let key = |text: &[u8]| Key::Bytes(text.to_vec());
    let ab = KeyRanges::prefix(b"ab");
    assert!(ab.contains(&key(b"ab")) && ab.contains(&key(b"ab\xff\xff")));
    assert!(!ab.contains(&key(b"aa\xff")) && !ab.contains(&key(b"ac")));
    assert!(
        KeyRanges::prefix(b"\xff").contains(&key(b"\xff\xff")) && !KeyRanges::prefix(b"\xff").contains(&key(b"\xfe"))
    );
    assert_eq!(KeyRanges::prefix(b""), KeyRanges::between(Bound::Included(key(b"")), Bound::Unbounded));
}
