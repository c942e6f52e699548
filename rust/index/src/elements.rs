//! Lists: a row has the keys of its elements.
//!
//! ```text
//! row 0  [a, b, a]     keys a and b
//! row 1  []            no key
//! row 2  NULL          NULL
//! row 3  [a, NULL]     opaque: engines differ in whether it lacks b
//! row 4  [NaN]         opaque, as an element has no key
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use lakemark_format::key::KeyType;

use crate::key::{CellVisitor, KeyCell, key_type_of, visit};

/// The elements of lists that an index can serve; none if `data_type` is no list.
#[must_use]
pub fn element_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => Some(element),
        _ => None,
    }
}

/// How the elements of lists become keys; none for other types, and for elements that no index serves.
#[must_use]
pub fn list_type_of(data_type: &DataType) -> Option<KeyType> {
    key_type_of(element_of(data_type)?.data_type()).map(|element| KeyType::List(Arc::new(element)))
}

/// Hands the elements of every list to `visitor`: a cell for each element of a row, in order, with repeats. A row that is NULL or
/// opaque gets one cell, an empty list none. NULL and opaque rows come first.
///
/// # Errors
/// A type that is no list, or whose elements have no keys.
pub(crate) fn visit_elements(lists: &dyn Array, visitor: &mut impl CellVisitor) -> Result<(), ArrowError> {
    let ElementLists { elements, row_of } = ElementLists::of(lists)?;
    let is_fixed = key_type_of(elements.data_type()).is_some_and(|element| element.is_fixed());
    let mut opaque = Opaque { row_of: &row_of, rows: vec![false; lists.len()] };
    visit(elements.as_ref(), &mut opaque)?;
    let opaque = opaque.rows;
    for (row, is_opaque) in opaque.iter().enumerate() {
        let cell: KeyCell<Infallible> = match (lists.is_null(row), is_opaque) {
            (true, _) => KeyCell::Null,
            (false, true) => KeyCell::Opaque,
            (false, false) => continue,
        };
        match is_fixed {
            true => visitor.fixed(row, cell.map(|never| match never {})),
            false => visitor.bytes(row, cell.map(|never| match never {})),
        }
    }
    let is_open = |row: usize| lists.is_valid(row) && !opaque.get(row).copied().unwrap_or(true);
    visit(elements.as_ref(), &mut Elements { row_of: &row_of, is_open, visitor })
}

/// The elements of some lists, one after the other.
struct ElementLists {
    elements: ArrayRef,
    /// The row of each.
    row_of: Vec<u32>,
}

impl ElementLists {
    fn of(lists: &dyn Array) -> Result<Self, ArrowError> {
        let ListParts { values, ends } = match lists.data_type() {
            DataType::List(_) => ListParts::of(lists.as_list::<i32>()),
            DataType::LargeList(_) => ListParts::of(lists.as_list::<i64>()),
            DataType::FixedSizeList(_, length) => {
                let length = usize::try_from(*length).unwrap_or(0);
                let ends = (0..=lists.len()).map(|row| row * length).collect();
                ListParts { values: lists.as_fixed_size_list().values(), ends }
            }
            other => return Err(ArrowError::SchemaError(format!("{other} is no list"))),
        };
        let (first, last) = (ends.first().copied().unwrap_or(0), ends.last().copied().unwrap_or(0));
        let mut row_of = Vec::with_capacity(last - first);
        for (row, ends) in (0u32..).zip(ends.windows(2)) {
            if let [start, end] = ends {
                row_of.resize(row_of.len() + (end - start), row);
            }
        }
        Ok(Self { elements: values.slice(first, last - first), row_of })
    }
}

/// What an array of lists is made of.
struct ListParts<'a> {
    /// All elements.
    values: &'a ArrayRef,
    /// Where those of the first row begin and those of each row end.
    ends: Vec<usize>,
}

impl<'a> ListParts<'a> {
    fn of<O: OffsetSizeTrait>(lists: &'a GenericListArray<O>) -> Self {
        Self { values: lists.values(), ends: lists.offsets().iter().map(|end| end.as_usize()).collect() }
    }
}

/// Finds the rows of which an element has no key.
struct Opaque<'a> {
    row_of: &'a [u32],
    rows: Vec<bool>,
}

impl Opaque<'_> {
    fn see<K>(&mut self, element: usize, cell: &KeyCell<K>) {
        let row = self.row_of.get(element).and_then(|row| self.rows.get_mut(*row as usize));
        if let (Some(row), KeyCell::Null | KeyCell::Opaque) = (row, cell) {
            *row = true;
        }
    }
}

impl CellVisitor for Opaque<'_> {
    fn fixed(&mut self, element: usize, cell: KeyCell<u64>) {
        self.see(element, &cell);
    }
    fn bytes(&mut self, element: usize, cell: KeyCell<&[u8]>) {
        self.see(element, &cell);
    }
}

/// Hands the elements of open rows on, under the numbers of their rows.
struct Elements<'a, F, V> {
    row_of: &'a [u32],
    is_open: F,
    visitor: &'a mut V,
}

impl<F: Fn(usize) -> bool, V> Elements<'_, F, V> {
    fn row(&self, element: usize) -> Option<usize> {
        self.row_of.get(element).map(|row| *row as usize).filter(|row| (self.is_open)(*row))
    }
}

impl<F: Fn(usize) -> bool, V: CellVisitor> CellVisitor for Elements<'_, F, V> {
    fn fixed(&mut self, element: usize, cell: KeyCell<u64>) {
        if let Some(row) = self.row(element) {
            self.visitor.fixed(row, cell);
        }
    }
    fn bytes(&mut self, element: usize, cell: KeyCell<&[u8]>) {
        if let Some(row) = self.row(element) {
            self.visitor.bytes(row, cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{FixedSizeListArray, Float64Array, LargeListArray, ListArray, StringArray};
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::{Field, Float64Type, Int32Type};
    use lakemark_format::key::{Key, key_of_i64};

    use super::*;

    /// What a visitor is handed.
    #[derive(Default)]
    struct Seen(Vec<(usize, KeyCell<Key>)>);

    impl CellVisitor for Seen {
        fn fixed(&mut self, row: usize, cell: KeyCell<u64>) {
            self.0.push((row, cell.map(Key::Fixed)));
        }
        fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>) {
            self.0.push((row, cell.map(|bytes| Key::Bytes(bytes.to_vec()))));
        }
    }

    fn seen(lists: &dyn Array) -> Vec<(usize, KeyCell<Key>)> {
        let mut seen = Seen::default();
        visit_elements(lists, &mut seen).unwrap();
        seen.0
    }

    fn number(row: usize, number: i64) -> (usize, KeyCell<Key>) {
        (row, KeyCell::Key(Key::Fixed(key_of_i64(number))))
    }

    #[test]
    fn a_row_has_the_keys_of_its_elements() {
        let rows = || {
            [Some(vec![Some(7), Some(1), Some(7)]), Some(vec![]), None, Some(vec![Some(7), None]), Some(vec![Some(-2)])]
        };
        let expected =
            [(2, KeyCell::Null), (3, KeyCell::Opaque), number(0, 7), number(0, 1), number(0, 7), number(4, -2)];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows());
        assert_eq!(seen(&lists), expected);
        assert_eq!(seen(&LargeListArray::from_iter_primitive::<Int32Type, _, _>(rows())), expected);
        // Rows of a slice are counted from its beginning, and elements outside of it are not seen.
        assert_eq!(seen(&lists.slice(1, 2)), [(1, KeyCell::Null)]);
        assert_eq!(seen(&lists.slice(3, 2)), [(0, KeyCell::Opaque), number(1, -2)]);
        let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(3), Some(3)])],
            2,
        );
        let expected = [(1, KeyCell::Null), number(0, 1), number(0, 2), number(2, 3), number(2, 3)];
        assert_eq!(seen(&pairs), expected);
        assert_eq!(seen(&pairs.slice(2, 1)), [number(0, 3), number(0, 3)]);
    }

    #[test]
    fn elements_behind_a_null_list_are_not_seen() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let element = Arc::new(Field::new("item", DataType::Utf8, true));
        let valid = NullBuffer::from(vec![true, false]);
        let lists = ListArray::new(element, OffsetBuffer::from_lengths([1, 2]), texts, Some(valid));
        assert_eq!(seen(&lists), [(1, KeyCell::Null), (0, KeyCell::Key(Key::Bytes(b"a".to_vec())))]);
    }

    #[test]
    fn an_element_without_a_key_makes_its_row_opaque() {
        let rows = [Some(vec![Some(1.0), Some(f64::NAN)]), Some(vec![Some(-0.0)])];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(rows);
        let zero = lakemark_format::key::key_of_f64(0.0).unwrap();
        assert_eq!(seen(&lists), [(0, KeyCell::Opaque), (1, KeyCell::Key(Key::Fixed(zero)))]);
    }

    #[test]
    fn only_lists_of_flat_values_have_keys() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
        assert_eq!(list_type_of(lists.data_type()), Some(KeyType::List(Arc::new(KeyType::Int32))));
        let nested = DataType::new_list(lists.data_type().clone(), true);
        assert_eq!((list_type_of(&nested), list_type_of(&DataType::Int32)), (None, None));
        assert!(visit_elements(&Float64Array::from(vec![1.0]), &mut Seen::default()).is_err());
    }
}
