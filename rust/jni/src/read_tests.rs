use arrow::array::{BooleanArray, StringArray, StructArray};
use arrow::datatypes::DataType;

use super::*;

fn selected(selection: &RowSelection) -> Vec<usize> {
    let mut rows = Vec::new();
    let mut at = 0;
    for selector in selection.iter() {
        if !selector.skip {
            rows.extend(at..at + selector.row_count);
        }
        at += selector.row_count;
    }
    rows
}

#[test]
fn deleted_rows_leave_holes_also_across_row_groups() {
    // Rows 3, 4, 5 and 9 are deleted; the split has rows 0..5 and 8..12.
    let deleted = RowSelection::from_consecutive_ranges([3..6, 9..10].into_iter(), 12);
    let live = live_rows(&deleted, &[0..5, 8..12]).expect("small");
    assert_eq!(selected(&live), [0, 1, 2, 5, 7, 8]);
    assert_eq!(live.iter().map(|selector| selector.row_count).sum::<usize>(), 9);
}

#[test]
fn every_slice_of_booleans_loses_its_offset_and_keeps_its_values() {
    let all: BooleanArray = (0..70).map(|at| (at % 5 != 0).then_some(at % 3 == 0)).collect();
    for start in 0..40 {
        let slice = all.slice(start, 30);
        let compact = without_offset(Arc::new(slice.clone())).expect("small");
        assert_eq!(compact.to_data().offset(), 0, "slice from {start}");
        assert_eq!(compact.as_ref(), &slice as &dyn Array, "slice from {start}");
    }
}

#[test]
fn booleans_inside_structs_lose_their_offset_too() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, true, false]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e"]));
    let both = StructArray::from(vec![
        (Arc::new(Field::new("flag", DataType::Boolean, true)), flags),
        (Arc::new(Field::new("name", DataType::Utf8, true)), names),
    ]);
    let slice: ArrayRef = Arc::new(both.slice(2, 3));
    let compact = without_offset(Arc::clone(&slice)).expect("small");
    assert!(compact.to_data().child_data().iter().all(|child| child.offset() == 0));
    assert_eq!(&compact, &slice);
}
