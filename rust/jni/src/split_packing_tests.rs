use object_store::path::Path;

use super::*;

const MB: u64 = 1 << 20;

fn sizes(max_mb: u64, min_splits: u64) -> SplitSizes {
    SplitSizes { max_bytes: max_mb * MB, open_bytes: 4 * MB, min_splits }
}

fn meta(name: &str, size: u64) -> ObjectMeta {
    ObjectMeta { location: Path::from(name), last_modified: Default::default(), size, e_tag: None, version: None }
}

/// A file with row groups of 1,000 rows.
#[derive(Clone)]
struct TestFile {
    mb: u64,
    row_groups: usize,
    chosen: RowSet,
}

fn file(mb: u64, row_groups: usize, chosen: RowSet) -> TestFile {
    TestFile { mb, row_groups, chosen }
}

/// An input of a split: rows or bytes of a file.
#[derive(Debug, PartialEq)]
struct Place {
    file: String,
    start: u64,
    /// Its length in rows, or the byte where it ends.
    length: u64,
}

/// The inputs of each split.
fn packed(sizes: SplitSizes, files: &[TestFile]) -> Vec<Vec<Place>> {
    let metas: Vec<_> = (0..).zip(files).map(|(at, file)| meta(&format!("f{at}"), file.mb * MB)).collect();
    let row_groups: Vec<Vec<u32>> = files.iter().map(|file| vec![1000; file.row_groups]).collect();
    let inputs: Vec<_> = metas
        .iter()
        .zip(&row_groups)
        .zip(files)
        .map(|((meta, row_groups), file)| FileInput {
            home: StoreHome::Table,
            meta,
            constants: None,
            rows: FileInputRows::Known { row_groups, chosen: file.chosen.clone() },
        })
        .collect();
    let splits = pack(sizes, &inputs);
    let chosen: u64 = files.iter().map(|file| u64::from(file.chosen.len())).sum();
    assert_eq!(splits.iter().map(|split| split.rows.expect("known")).sum::<u64>(), chosen);
    splits.iter().map(|split| split.inputs.iter().map(place).collect()).collect()
}

fn pack(sizes: SplitSizes, inputs: &[FileInput<'_>]) -> Vec<PlannedSplit> {
    let mut packer = SplitPacker::new(sizes, inputs);
    inputs.iter().try_for_each(|input| packer.add_file(input)).expect("JSON");
    packer.finish()
}

fn range_of(planned: &PlannedInput) -> FileRange {
    match serde_json::from_str(&planned.body).expect("an input") {
        SplitInput::File(range) => range,
        SplitInput::Memory => panic!("rows in memory"),
    }
}

fn place(planned: &PlannedInput) -> Place {
    let range = range_of(planned);
    let (start, length) = match range.part {
        SplitRange::Known { start, length, .. } => (start, length),
        SplitRange::Unknown { from_byte, to_byte, .. } => (from_byte, to_byte),
    };
    Place { file: range.location, start, length }
}

fn all(groups: usize) -> RowSet {
    RowSet::full(1000 * groups as u32)
}

/// Inputs as (number of the file, first row group, row groups).
fn split(inputs: &[(u64, u64, u64)]) -> Vec<Place> {
    let place = |(file, start, length): &(u64, u64, u64)| Place {
        file: format!("f{file}"),
        start: start * 1000,
        length: length * 1000,
    };
    inputs.iter().map(place).collect()
}

#[test]
fn a_small_file_is_one_split_and_nothing_is_none() {
    assert_eq!(packed(sizes(128, 2), &[file(1, 20, all(20))]), [split(&[(0, 0, 20)])]);
    assert!(packed(sizes(128, 2), &[file(1, 20, RowSet::empty(20_000))]).is_empty());
    assert!(packed(sizes(128, 2), &[]).is_empty());
}

#[test]
fn large_files_are_cut_into_splits_of_one_size_across_their_ends() {
    // 3 files of 100 MB and their openings are 312 MB, three times 104: a row group of 10 MB goes where more of it belongs.
    let files = vec![file(100, 10, all(10)); 3];
    assert_eq!(packed(sizes(128, 2), &files), [split(&[(0, 0, 10)]), split(&[(1, 0, 10)]), split(&[(2, 0, 10)])]);
    // Six times 52 MB for six cores.
    assert_eq!(
        packed(sizes(128, 6), &files),
        [
            split(&[(0, 0, 5)]),
            split(&[(0, 5, 5)]),
            split(&[(1, 0, 5)]),
            split(&[(1, 5, 5)]),
            split(&[(2, 0, 5)]),
            split(&[(2, 5, 5)]),
        ]
    );
    // What is left of a file goes with the next ones.
    assert_eq!(
        packed(sizes(128, 2), &[file(100, 10, all(10)), file(20, 2, all(2)), file(30, 3, all(3))]),
        [split(&[(0, 0, 8)]), split(&[(0, 8, 2), (1, 0, 2), (2, 0, 3)])]
    );
}

#[test]
fn a_row_group_is_never_cut() {
    let splits = packed(sizes(8, 16), &[file(300, 3, all(3))]);
    assert_eq!(splits, [split(&[(0, 0, 1)]), split(&[(0, 1, 1)]), split(&[(0, 2, 1)])]);
}

#[test]
fn many_small_files_share_splits_as_they_do_in_sparks_own_scans() {
    // 4 MB for each opening: 100 files of 1 MB are 500 MB, four times 125 or fifty times 10.
    let files = vec![file(1, 1, all(1)); 100];
    let lengths = |max, min| packed(sizes(max, min), &files).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(128, 2), [25; 4]);
    assert_eq!(lengths(10, 2), [2; 50]);
    // No core is idle.
    assert_eq!(lengths(128, 10), [10; 10]);
}

#[test]
fn files_without_a_chosen_row_leave_no_core_idle() {
    let mut files = vec![file(100, 10, RowSet::empty(10_000)); 1000];
    files.push(file(60, 6, all(6)));
    assert_eq!(packed(sizes(128, 2), &files), [split(&[(1000, 0, 3)]), split(&[(1000, 3, 3)])]);
}

#[test]
fn gaps_are_left_out_and_cut_no_split() {
    let chosen = RowSet::from_rows(vec![2500, 2501, 6000, 9999], 12_000);
    let splits = packed(sizes(128, 2), &[file(600, 12, chosen.clone()), file(50, 1, RowSet::from_rows(vec![7], 1000))]);
    assert_eq!(splits, [split(&[(0, 2, 8)]), split(&[(1, 0, 1)])]);
    let (meta, row_groups) = (meta("f", 600 * MB), vec![1000; 12]);
    let rows = FileInputRows::Known { row_groups: &row_groups, chosen };
    let planned = pack(sizes(128, 2), &[FileInput { home: StoreHome::Table, meta: &meta, constants: None, rows }]);
    let SplitRange::Known { file_rows, rows, count, .. } = range_of(&planned[0].inputs[0]).part else {
        panic!("known rows")
    };
    assert_eq!((file_rows, count, planned[0].bytes / MB), (12_000, 4, 0));
    let encoded = EncodedRows { form: rows, bytes: planned[0].inputs[0].attachment.clone() };
    assert_eq!(encoded, EncodedRows::encode(&RowSet::from_rows(vec![500, 501, 4000, 7999], 8000)));
}

#[test]
fn files_that_nobody_knows_are_cut_by_bytes() {
    let metas = [meta("f0", 300 * MB), meta("f1", MB / 2), meta("f2", 90 * MB)];
    let inputs = metas.each_ref().map(|meta| FileInput {
        home: StoreHome::Table,
        meta,
        constants: None,
        rows: FileInputRows::Unknown { deleted: None },
    });
    let splits = pack(sizes(128, 2), &inputs);
    assert!(splits.iter().all(|split| split.rows.is_none()));
    let places: Vec<_> = splits.iter().flat_map(|split| split.inputs.iter().map(place)).collect();
    // Every byte once, from the first to the last.
    for (name, size) in [("f0", 300 * MB), ("f1", MB / 2), ("f2", 90 * MB)] {
        let of_file: Vec<_> = places.iter().filter(|place| place.file == name).collect();
        let mut next = 0;
        for Place { start: from, length: to, .. } in &of_file {
            assert_eq!(*from, next);
            assert!(to > from && (*to == u64::MAX || *to < size), "{name}: {from} to {to}");
            next = *to;
        }
        assert_eq!(next, u64::MAX);
    }
    assert_eq!(splits.len(), 4);
    assert!(splits.iter().all(|split| split.bytes <= 102 * MB), "{splits:?}");
    assert_eq!(splits.iter().map(|split| split.bytes).sum::<u64>(), 390 * MB + MB / 2);
}

#[test]
fn rows_in_memory_go_with_files_as_long_as_a_task_stays_small() {
    let (meta, row_groups) = (meta("f", MB), vec![1000]);
    let rows = FileInputRows::Known { row_groups: &row_groups, chosen: all(1) };
    let mut packer = SplitPacker::new(sizes(128, 2), &[]);
    packer.add_file(&FileInput { home: StoreHome::Table, meta: &meta, constants: None, rows }).expect("JSON");
    for bytes in [1000, ATTACHED_BYTES - 1000, 1] {
        packer.add_memory(5, vec![0; bytes]).expect("JSON");
    }
    let splits = packer.finish();
    let attached: Vec<Vec<usize>> =
        splits.iter().map(|split| split.inputs.iter().map(|input| input.attachment.len()).collect()).collect();
    assert_eq!(attached, [vec![0, 1000, ATTACHED_BYTES - 1000], vec![1]]);
    assert_eq!(splits.iter().map(|split| split.rows).collect::<Vec<_>>(), [Some(1010), Some(5)]);
}
