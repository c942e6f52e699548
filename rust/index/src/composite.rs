//! Indexes over several columns: rows become keys ([`lakemark_format::key::composite`]), and conditions on their columns sets of keys.
//!
//! Rows that have the same values in the first columns are neighbours in the order of keys. So an index over `(a, b, c)` answers
//! conditions on `a`, on `a` and `b`, and on all three:
//!
//! ```text
//! a IN (1, 2) AND b < 5    ▶    two ranges: from (1, any value) to below (1, 5), and from (2, any value) to below (2, 5)
//! ```

use std::ops::Bound;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::Fields;
use arrow::error::ArrowError;
use lakemark_format::key::composite::{push_any_value, push_bytes, push_fixed, push_key, push_null};
use lakemark_format::key::{Key, KeyType, MAX_KEY_LENGTH};

use crate::key::{CellVisitor, KeyCell, KeyCollector, key_type_of, visit};
use crate::ranges::{KeyRange, KeyRanges, successor};

/// How rows of these columns become keys; none if a column is of a type that no index serves.
#[must_use]
pub fn composite_type(columns: &Fields) -> Option<KeyType> {
    columns.iter().map(|column| key_type_of(column.data_type())).collect::<Option<_>>().map(KeyType::Composite)
}

/// The keys of rows, a column each; none if a row has no key. A NULL has its place in them.
fn encode_rows(columns: &[ArrayRef]) -> Option<Vec<Key>> {
    let mut keys = KeyCollector::default();
    visit_rows(columns, &mut keys).ok()?;
    keys.exact()
}

/// Hands every row to `visitor`, and gives their number. A row is opaque if one of its values is, or if its key would be too long.
pub(crate) fn visit_rows(columns: &[ArrayRef], visitor: &mut impl CellVisitor) -> Result<usize, ArrowError> {
    let rows = columns.first().map_or(0, Array::len);
    let mut parts = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(key_type) = key_type_of(column.data_type()).filter(|_| column.len() == rows) else {
            let text = format!("{} rows of {} are none of an index of {rows}", column.len(), column.data_type());
            return Err(ArrowError::InvalidArgumentError(text));
        };
        let mut part =
            CompositeColumn { key_type, bytes: Vec::new(), ends: Vec::with_capacity(rows), opaque: Vec::new() };
        visit(column.as_ref(), &mut part)?;
        parts.push(part);
    }
    let mut key = Vec::new();
    for row in 0..rows {
        key.clear();
        let is_opaque = parts.iter().any(|part| part.opaque.binary_search(&row).is_ok());
        parts.iter().for_each(|part| key.extend_from_slice(part.of_row(row)));
        visitor.bytes(row, if is_opaque || key.len() > MAX_KEY_LENGTH { KeyCell::Opaque } else { KeyCell::Key(&key) });
    }
    Ok(rows)
}

/// What one column gives for each row.
struct CompositeColumn {
    key_type: KeyType,
    bytes: Vec<u8>,
    /// Where each row ends in the bytes.
    ends: Vec<usize>,
    /// Rows without a key, ascending.
    opaque: Vec<usize>,
}

impl CompositeColumn {
    fn of_row(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(row).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    fn push<K>(&mut self, row: usize, cell: KeyCell<K>, push: impl FnOnce(&mut Vec<u8>, &KeyType, K)) {
        match cell {
            KeyCell::Null => push_null(&mut self.bytes),
            KeyCell::Opaque => self.opaque.push(row),
            KeyCell::Key(key) => push(&mut self.bytes, &self.key_type, key),
        }
        self.ends.push(self.bytes.len());
    }
}

impl CellVisitor for CompositeColumn {
    fn fixed(&mut self, row: usize, cell: KeyCell<u64>) {
        self.push(row, cell, push_fixed);
    }
    fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>) {
        self.push(row, cell, push_bytes);
    }
}

/// The keys of rows of columns of these types whose first columns have values in these sets, one set for each. All sets but
/// the last are single keys, as a row between two others in the order of keys may have any value in the later columns.
#[must_use]
pub fn composite_ranges(types: &[KeyType], sets: &[&KeyRanges]) -> KeyRanges {
    let Some((last, points)) = sets.split_last() else { return KeyRanges::all() };
    let mut prefixes = vec![Vec::new()];
    for (key_type, set) in types.iter().zip(points) {
        let extended = prefixes.iter().flat_map(|prefix| points_of(set).map(|key| with(prefix, key_type, key)));
        prefixes = extended.collect();
    }
    let Some(key_type) = types.get(points.len()) else { return KeyRanges::none() };
    let is_whole = types.len() == sets.len();
    let of_prefix = |prefix: &Vec<u8>| {
        let range = |range: &KeyRange| range_of(prefix, key_type, range, is_whole);
        last.ranges().iter().map(range).collect::<Vec<_>>()
    };
    KeyRanges::ascending(prefixes.iter().flat_map(of_prefix))
}

/// The keys of rows of columns of these types whose first columns have the values of one of these rows, a column each. None if
/// a row has no key or a column is of another type.
#[must_use]
pub fn composite_points(types: &[KeyType], columns: &[ArrayRef]) -> Option<KeyRanges> {
    let is_typed =
        |(column, key_type): (&ArrayRef, &KeyType)| key_type_of(column.data_type()).as_ref() == Some(key_type);
    if columns.len() > types.len() || !columns.iter().zip(types).all(is_typed) {
        return None;
    }
    let mut keys = encode_rows(columns)?;
    if columns.len() == types.len() {
        return Some(KeyRanges::points(keys));
    }
    keys.sort();
    keys.dedup();
    let behind = keys.iter().filter_map(|key| match key {
        Key::Bytes(prefix) => KeyRanges::prefix(prefix).ranges().first().cloned(),
        Key::Fixed(_) => None,
    });
    Some(KeyRanges::ascending(behind))
}

/// The keys of a set of single keys.
fn points_of(set: &KeyRanges) -> impl Iterator<Item = &Key> {
    set.ranges().iter().filter_map(|range| match &range.low {
        Bound::Included(key) => Some(key),
        _ => None,
    })
}

fn with(prefix: &[u8], key_type: &KeyType, key: &Key) -> Vec<u8> {
    let mut longer = prefix.to_vec();
    push_key(&mut longer, key_type, key);
    longer
}

/// Keys that go on behind `prefix` with a value in the range, and may go on behind it unless that makes them whole.
fn range_of(prefix: &[u8], key_type: &KeyType, range: &KeyRange, is_whole: bool) -> KeyRange {
    let at = |key: &Key| with(prefix, key_type, key);
    let any = || {
        let mut any = prefix.to_vec();
        push_any_value(&mut any);
        any
    };
    if let (true, Bound::Included(low), Bound::Included(high)) = (is_whole, &range.low, &range.high)
        && low == high
    {
        let key = Key::Bytes(at(low));
        return KeyRange { low: Bound::Included(key.clone()), high: Bound::Included(key) };
    }
    let behind = |bytes: Vec<u8>| successor(&bytes).map(Key::Bytes);
    let low = match &range.low {
        Bound::Unbounded => Bound::Included(Key::Bytes(any())),
        Bound::Included(key) => Bound::Included(Key::Bytes(at(key))),
        Bound::Excluded(key) => behind(at(key)).map_or(Bound::Unbounded, Bound::Included),
    };
    let high = match &range.high {
        Bound::Unbounded => behind(any()).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Included(key) => behind(at(key)).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Excluded(key) => Bound::Excluded(Key::Bytes(at(key))),
    };
    KeyRange { low, high }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringArray};
    use lakemark_format::key_of_i64;
    use proptest::prelude::*;

    use super::*;

    type Row = (Option<i32>, Option<String>, Option<i32>);

    const TYPES: [KeyType; 3] = [KeyType::Int32, KeyType::Utf8, KeyType::Int32];

    fn columns(rows: &[Row]) -> [ArrayRef; 3] {
        let first: Int32Array = rows.iter().map(|row| row.0).collect();
        let second: StringArray = rows.iter().map(|row| row.1.clone()).collect();
        let third: Int32Array = rows.iter().map(|row| row.2).collect();
        [Arc::new(first), Arc::new(second), Arc::new(third)]
    }

    fn int(value: i32) -> Key {
        Key::Fixed(key_of_i64(value.into()))
    }

    fn text(value: &str) -> Key {
        Key::Bytes(value.as_bytes().to_vec())
    }

    fn texts() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["", "\0", "a", "a\0", "ab", "b"]).prop_map(str::to_owned)
    }

    fn row() -> impl Strategy<Value = Row> {
        (prop::option::of(-2..3i32), prop::option::of(texts()), prop::option::of(-2..3i32))
    }

    /// A set of keys in any form that conditions have.
    fn set(keys: impl Strategy<Value = Key> + 'static) -> impl Strategy<Value = KeyRanges> {
        let keys = prop::collection::vec(keys, 0..4);
        (keys, 0..6u8).prop_map(|(keys, form)| {
            let first = keys.first().cloned();
            match (form, first) {
                (0, Some(key)) => KeyRanges::less_than(key, true),
                (1, Some(key)) => KeyRanges::greater_than(key, false),
                (2, _) => KeyRanges::points(keys).complement(),
                (3, _) => KeyRanges::all(),
                _ => KeyRanges::points(keys),
            }
        })
    }

    proptest! {
        #[test]
        fn composite_ranges_hold_the_rows_whose_columns_are_in_the_sets(
            rows in prop::collection::vec(row(), 0..30),
            points in (prop::collection::vec((-2..3i32).prop_map(int), 0..4), prop::collection::vec(texts().prop_map(|t| text(&t)), 0..4)),
            ends in (set((-2..3i32).prop_map(int)), set(texts().prop_map(|t| text(&t))), set((-2..3i32).prop_map(int))),
            used in 1..4usize,
        ) {
            let (first, second) = (KeyRanges::points(points.0), KeyRanges::points(points.1));
            let sets = match used {
                1 => vec![&ends.0],
                2 => vec![&first, &ends.1],
                _ => vec![&first, &second, &ends.2],
            };
            let ranges = composite_ranges(&TYPES, &sets);
            let is_ascending = ranges.ranges().windows(2).all(|pair| match (&pair[0].high, &pair[1].low) {
                (Bound::Included(high) | Bound::Excluded(high), Bound::Included(low)) => high < low,
                _ => false,
            });
            prop_assert!(is_ascending, "{:?}", ranges);
            let keys = encode_rows(&columns(&rows)).unwrap();
            for (row, key) in rows.iter().zip(&keys) {
                let values = [row.0.map(int), row.1.as_deref().map(text), row.2.map(int)];
                let is_in = sets.iter().zip(&values).all(|(set, value)| value.as_ref().is_some_and(|value| set.contains(value)));
                prop_assert_eq!(ranges.contains(key), is_in, "{:?} in {:?}", row, sets);
            }
        }
    }

    #[test]
    fn rows_without_a_place_in_the_order_have_no_key() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN]));
        let few: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        assert_eq!(encode_rows(&[Arc::clone(&numbers), Arc::clone(&few)]), None);
        assert_eq!(encode_rows(&[numbers.slice(0, 1), few.slice(0, 1)]).map(|keys| keys.len()), Some(1));
        let half: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(MAX_KEY_LENGTH / 2)]));
        assert_eq!(encode_rows(&[Arc::clone(&half), half]), None);
        let lists =
            arrow::array::ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([Some([Some(1)])]);
        assert_eq!(encode_rows(&[few.slice(0, 1), Arc::new(lists)]), None);
        assert_eq!(encode_rows(&[few.slice(0, 1), few]), None);
    }

    #[test]
    fn keys_of_all_columns_are_points_and_of_the_first_ones_ranges() {
        let rows: Vec<Row> =
            vec![(Some(2), Some("b".into()), Some(1)), (Some(1), Some("a".into()), None), (Some(1), None, Some(3))];
        let all = columns(&rows);
        let keys = encode_rows(&all).unwrap();
        let points = composite_points(&TYPES, &all).unwrap();
        assert!(points.are_points() && points.ranges().len() == 3 && keys.iter().all(|key| points.contains(key)));
        let first = composite_points(&TYPES, &all[..1]).unwrap();
        // 1 and 2 are neighbours, so that their ranges are one.
        assert_eq!(first, KeyRanges::ascending(first.ranges().iter().cloned()));
        assert!(first.ranges().len() == 1 && keys.iter().all(|key| first.contains(key)));
        let other = encode_rows(&columns(&[(Some(3), None, None), (None, Some("a".into()), Some(1))])).unwrap();
        assert!(!other.iter().any(|key| first.contains(key)));
    }

    #[test]
    fn columns_of_other_types_have_no_key() {
        let rows = columns(&[(Some(1), Some("a".into()), Some(2))]);
        let wide: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1]));
        assert!(composite_points(&TYPES, &rows[..2]).is_some());
        assert_eq!(composite_points(&TYPES, &[wide, Arc::clone(&rows[1])]), None);
        assert_eq!(composite_points(&TYPES[..2], &rows), None);
    }

    #[test]
    fn zeros_of_floats_are_one_key() {
        let zeros: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0]));
        let keys = encode_rows(&[Arc::clone(&zeros), zeros]).unwrap();
        assert_eq!(keys[0], keys[1]);
    }
}
