use std::sync::Arc;

use super::*;

/// Four row groups of ten rows.
const ROW_GROUPS: [u32; 4] = [10, 10, 10, 10];

fn file(deleted: Option<RowSet>) -> DataFile {
    DataFile { deleted: deleted.map(Arc::new), ..DataFile::of_test("part.parquet", 1, None) }
}

fn set(rows: impl IntoIterator<Item = u32>) -> RowSet {
    RowSet::from_rows(rows.into_iter().collect(), 40)
}

fn known(exact: RowSet, recheck: RowSet) -> FileProbe {
    FileProbe::Known { row_groups: ROW_GROUPS.to_vec(), exact, recheck }
}

/// Ruled out without a look at rows.
fn nothing() -> FileProbe {
    FileProbe::Known { row_groups: Vec::new(), exact: RowSet::empty(0), recheck: RowSet::empty(0) }
}

#[test]
fn exact_rows_of_the_plan_stay_exact_and_those_of_the_later_filter_make_none_exact() {
    let planned = known(set([1, 2, 3, 11, 21]), set([5, 31]));
    let later = known(set([1]), set([5, 21, 39]));
    // Of the five planned rows of the first row group two are left, and the only one of the third.
    assert_eq!(cut_file(&file(None), &planned, &later), known(set([1, 21]), set([5])));
    assert_eq!(cut_file(&file(None), &FileProbe::Unknown, &later), known(set([]), set([1, 5, 21, 39])));
}

#[test]
fn a_row_group_that_keeps_more_than_half_keeps_all_planned_rows() {
    let planned = known(set(0..6), set(10..20));
    let later = known(set(0..4), set(10..15));
    assert_eq!(cut_file(&file(None), &planned, &later), known(set(0..6), set(10..15)));
    let later = known(set(10..16), set([0]));
    let hidden = set([3, 19]);
    let live = set((10..19).chain([0]));
    assert_eq!(
        cut_file(&file(Some(hidden)), &FileProbe::Unknown, &later),
        known(set([]), live),
        "deleted rows stay so"
    );
}

#[test]
fn whoever_knows_nothing_changes_nothing() {
    let planned = known(set([1, 2]), set([30]));
    assert_eq!(cut_file(&file(None), &planned, &FileProbe::Unknown), planned);
    assert_eq!(cut_file(&file(None), &FileProbe::Unknown, &FileProbe::Unknown), FileProbe::Unknown);
    // Row groups that do not agree are not compared.
    let other = FileProbe::Known { row_groups: vec![40], exact: set([1]), recheck: set([]) };
    assert_eq!(cut_file(&file(None), &planned, &other), planned);
    let short = Some(RowSet::full(7));
    assert_eq!(cut_file(&file(short), &FileProbe::Unknown, &planned), FileProbe::Unknown);
}

#[test]
fn a_file_that_is_ruled_out_is_not_read() {
    let planned = known(set([1, 2]), set([30]));
    assert_eq!(cut_file(&file(None), &planned, &nothing()), known(set([]), set([])));
    assert_eq!(cut_file(&file(None), &FileProbe::Unknown, &nothing()), nothing());
    assert_eq!(cut_file(&file(Some(set([1]))), &FileProbe::Unknown, &nothing()), nothing());
}
