//! Predicates over rows in memory, by the rules by which indexes answer them.

use arrow::array::{Array, ArrayRef, RecordBatch};

use crate::algebra::Candidates;
use crate::elements::visit_elements;
use crate::key::{CellVisitor, KeyCell, visit};
use crate::predicate::{Leaf, Predicate, Test};
use crate::ranges::KeyRanges;
use crate::rows::RowSet;
use lakemark_format::key::Key;

impl Candidates {
    /// The candidates of `predicate` among the rows of a batch. Rows that an index would leave open are open here, too. These are
    /// rows whose value has no key, and all rows for a column that is not in the batch or whose type has no keys.
    #[must_use]
    pub fn among(predicate: &Predicate, rows: &RecordBatch) -> Self {
        let universe = u32::try_from(rows.num_rows()).unwrap_or(u32::MAX);
        Self::of(predicate, universe, &mut |leaf: &Leaf| match rows.column_by_name(&leaf.column) {
            None => Self::unknown(universe),
            Some(column) => tested(&leaf.test, column, universe),
        })
    }
}

fn tested(test: &Test, column: &ArrayRef, universe: u32) -> Candidates {
    match test {
        Test::IsNull => {
            let nulls = column.logical_nulls();
            let is_null = |row: &u32| nulls.as_ref().is_some_and(|nulls| nulls.is_null(*row as usize));
            let null = RowSet::from_rows((0..universe).filter(is_null).collect(), universe);
            Candidates::exact(null, RowSet::empty(universe))
        }
        Test::Ranges(ranges) | Test::Elements(ranges) => {
            let mut found = TestedRows { ranges, t: Vec::new(), n: Vec::new(), opaque: Vec::new() };
            let visited = match test {
                Test::Elements(_) => visit_elements(column.as_ref(), &mut found),
                _ => visit(column.as_ref(), &mut found),
            };
            if visited.is_err() {
                return Candidates::unknown(universe);
            }
            // Several elements of a list may be requested.
            found.t.dedup();
            let set = |rows| RowSet::from_rows(rows, universe);
            Candidates::with_opaque(set(found.t), set(found.n), &set(found.opaque))
        }
    }
}

/// The rows of a column by what a test says of them; of all others it is FALSE.
struct TestedRows<'a> {
    ranges: &'a KeyRanges,
    t: Vec<u32>,
    n: Vec<u32>,
    opaque: Vec<u32>,
}

impl TestedRows<'_> {
    fn add(&mut self, row: usize, cell: KeyCell<Key>) {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        match cell {
            KeyCell::Null => self.n.push(row),
            KeyCell::Opaque => self.opaque.push(row),
            KeyCell::Key(key) if self.ranges.contains(&key) => self.t.push(row),
            KeyCell::Key(_) => {}
        }
    }
}

impl CellVisitor for TestedRows<'_> {
    fn fixed(&mut self, row: usize, cell: KeyCell<u64>) {
        self.add(row, cell.map(Key::Fixed));
    }
    fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>) {
        self.add(row, cell.map(|bytes| Key::Bytes(bytes.to_vec())));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, ListArray, StringArray};
    use arrow::datatypes::Int32Type;
    use lakemark_format::key::{MAX_KEY_LENGTH, key_of_f64, key_of_i64};

    use super::*;
    use crate::predicate::{Reason, Truth};

    fn leaf(column: &str, test: Test) -> Predicate {
        Predicate::Leaf(Leaf { column: column.to_owned(), test, text: String::new() })
    }

    fn rows(set: &RowSet) -> Vec<u32> {
        set.iter().collect()
    }

    /// T, F and N.
    fn found(predicate: &Predicate, batch: &RecordBatch) -> [Vec<u32>; 3] {
        let candidates = Candidates::among(predicate, batch);
        [rows(&candidates.t()), rows(&candidates.f()), rows(&candidates.n())]
    }

    fn batch() -> RecordBatch {
        let k: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None, Some(-1), Some(7)]));
        let long = "x".repeat(MAX_KEY_LENGTH + 1);
        let s: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some(&long), None, Some("")]));
        let x: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, -0.0, 0.0, 1.5]));
        let l: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1)]),
            None,
            Some(vec![]),
            Some(vec![None]),
        ]));
        RecordBatch::try_from_iter([("k", k), ("s", s), ("x", x), ("l", l)]).expect("columns of one length")
    }

    #[test]
    fn numbers_texts_and_nulls_are_exact() {
        let above = leaf("k", Test::Ranges(KeyRanges::greater_than(Key::Fixed(key_of_i64(4)), true)));
        assert_eq!(found(&above, &batch()), [vec![0, 3], vec![2], vec![1]]);
        assert_eq!(found(&Predicate::Not(Box::new(above.clone())), &batch()), [vec![2], vec![0, 3], vec![1]]);
        let null = leaf("k", Test::IsNull);
        assert_eq!(found(&null, &batch()), [vec![1], vec![0, 2, 3], vec![]]);
        assert_eq!(found(&leaf("l", Test::IsNull), &batch()), [vec![1], vec![0, 2, 3], vec![]]);
        let either = Predicate::Or(vec![null, above]);
        assert_eq!(found(&either, &batch()), [vec![0, 1, 3], vec![2], vec![]]);
        let never = Predicate::Const(Truth::Null);
        assert_eq!(found(&never, &batch()), [vec![], vec![], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn values_without_a_key_stay_open() {
        let zero = leaf("x", Test::Ranges(KeyRanges::point(Key::Fixed(key_of_f64(0.0).expect("a number")))));
        assert_eq!(found(&zero, &batch()), [vec![0, 1, 2], vec![0, 3], vec![]]);
        let a = leaf("s", Test::Ranges(KeyRanges::prefix(b"a")));
        assert_eq!(found(&a, &batch()), [vec![0, 1], vec![1, 3], vec![2]]);
        let candidates = Candidates::among(&a, &batch());
        assert_eq!((rows(&candidates.exact_true()), rows(&candidates.recheck_true())), (vec![0], vec![1]));
    }

    #[test]
    fn what_is_unknown_leaves_all_rows_open() {
        let all = vec![0, 1, 2, 3];
        let open = [all.clone(), all.clone(), all];
        let any = Test::Ranges(KeyRanges::point(Key::Fixed(1)));
        assert_eq!(found(&leaf("absent", any.clone()), &batch()), open);
        assert_eq!(found(&leaf("l", any), &batch()), open);
        let text = String::new();
        assert_eq!(found(&Predicate::Unknown { reason: Reason::ExpressionNotSupported, text }, &batch()), open);
    }
}
