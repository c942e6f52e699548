//! Trees of three levels: indexes whose directories have few leaves, as if their tables had billions of rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use lakemark_format::inner_page;
use lakemark_format::key::{i64_of_key, key_of_i64};
use lakemark_format::{Key, SegmentDirectory, Trailer, ValueBlockRef, open_tail, physical_range, read_logical};
use lakemark_index::{KeyRanges, Leaf, Predicate, Test, Truth};
use lakemark_table::{
    BuildOptions, FileProbe, IndexKind, IndexSpec, Merging, MinMaxRequest, ProbeOptions, Snapshot, Table, TopKRequest,
};

use crate::fixture::{covered_values, exact_rows, int_key, leaf, open, probe, segments, write};

/// Rows of a file.
const ROWS: usize = 6_000;
/// The most leaves of a directory, and of an inner page.
const LEAVES: usize = 3;

/// The id of a row: each once, in no order.
fn id(row: usize) -> i64 {
    (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).cast_signed() / 3
}

fn batch(first: usize) -> RecordBatch {
    let rows = first..first + ROWS;
    let ids: ArrayRef = Arc::new(rows.clone().map(|row| Some(id(row))).collect::<Int64Array>());
    let numbers: ArrayRef = Arc::new(rows.map(|row| Some(row as i32)).collect::<Int32Array>());
    RecordBatch::try_from_iter([("id", ids), ("number", numbers)]).unwrap()
}

fn path(folder: &Path, file: usize) -> PathBuf {
    folder.join(format!("f{file}.parquet"))
}

fn folder(files: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    (0..files).for_each(|file| write(&path(folder.path(), file), &batch(file * ROWS)));
    folder
}

async fn indexed(folder: &Path, include: Option<&str>, most_leaves: usize) -> Arc<Table> {
    let table = open(folder).await;
    table.limit_leaves(most_leaves);
    let options = include.map(|columns| ("include".to_owned(), columns.to_owned()));
    let spec = IndexSpec {
        columns: vec!["id".into()],
        kind: Some(IndexKind::Key),
        options: options.into_iter().collect::<BTreeMap<_, _>>(),
        ..IndexSpec::default()
    };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

/// A segment file.
struct Opened {
    bytes: Vec<u8>,
    trailer: Trailer,
    directory: SegmentDirectory,
}

impl Opened {
    fn of(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let opened = open_tail(&bytes, bytes.len() as u64).unwrap();
        let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer).unwrap();
        Self { trailer: opened.trailer, directory, bytes }
    }

    fn leaves(&self, page: &ValueBlockRef) -> Vec<ValueBlockRef> {
        let range = page.offset..page.offset + u64::from(page.length);
        let pages = physical_range(range.clone(), &self.trailer);
        let pages = &self.bytes[pages.start as usize..pages.end as usize];
        let bytes = read_logical(pages, range, &self.trailer).unwrap();
        inner_page::decode(&bytes, page, &self.directory.key_type).unwrap()
    }
}

fn keys(ids: impl IntoIterator<Item = i64>) -> KeyRanges {
    KeyRanges::points(ids.into_iter().map(int_key).collect())
}

fn is_id(id: i64) -> Predicate {
    leaf("id", keys([id]))
}

/// Ranges of ids, from one to nearly all.
fn requests() -> Vec<KeyRanges> {
    let mut sorted: Vec<i64> = (0..2 * ROWS).map(id).collect();
    sorted.sort_unstable();
    let at = |place: usize| int_key(sorted[place]);
    let between = |low: usize, high: usize| {
        KeyRanges::greater_than(at(low), true).intersect(&KeyRanges::less_than(at(high), false))
    };
    vec![
        keys([id(0)]),
        keys([id(77), id(11_999), 12_345]),
        keys([i64::MIN, i64::MAX]),
        keys((0..2 * ROWS).step_by(97).map(id)),
        between(5_000, 5_020),
        between(300, 9_000),
        between(1_000, 1_001),
        KeyRanges::less_than(at(40), true),
        KeyRanges::greater_than(at(100), false),
        between(6_000, 6_400).complement(),
        KeyRanges::all(),
        KeyRanges::none(),
    ]
}

fn rows_in(file: usize, ranges: &KeyRanges) -> Vec<u32> {
    let is_in = |row: &usize| ranges.contains(&Key::Fixed(key_of_i64(id(*row))));
    (file * ROWS..(file + 1) * ROWS).filter(is_in).map(|row| (row - file * ROWS) as u32).collect()
}

async fn check(snapshot: &Snapshot, ranges: &KeyRanges) {
    let test = leaf("id", ranges.clone());
    let found = probe(snapshot, &test).await;
    let opposite = probe(snapshot, &Predicate::Not(Box::new(test.clone()))).await;
    let mut count = 0;
    for file in 0..found.files.len() {
        let expected = rows_in(file, ranges);
        assert_eq!(exact_rows(found.files.get(file).unwrap()), expected, "{ranges:?}");
        assert_eq!(exact_rows(opposite.files.get(file).unwrap()).len(), ROWS - expected.len(), "{ranges:?}");
        count += expected.len() as u64;
    }
    let options = ProbeOptions { count_only: true, selection_cache: false, ..ProbeOptions::default() };
    let counted = snapshot.probe(&test, &options).await.unwrap();
    assert_eq!(counted.exact_row_count(), Some(count), "{ranges:?}");
}

async fn check_extremes(snapshot: &Snapshot, ranges: &KeyRanges) {
    let test = Leaf { column: "id".into(), test: Test::Ranges(ranges.clone()), text: String::new() };
    let bounds = snapshot.range_extremes(&test).await.expect("one segment");
    let ends = bounds.columns[0].iter().flat_map(|part| [&part.least, &part.greatest]);
    let found: Vec<i64> = ends.map(|value| value.as_primitive::<Int64Type>().value(0)).collect();
    let mut ids: Vec<i64> = (0..2 * ROWS).map(id).filter(|id| ranges.contains(&int_key(*id))).collect();
    ids.sort_unstable();
    let expected: Vec<i64> = ids.first().into_iter().chain(ids.last()).copied().collect();
    assert_eq!(found, expected, "{ranges:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_as_by_a_directory_of_leaves() {
    let folder = folder(2);
    let table = indexed(folder.path(), None, LEAVES).await;
    let segment = Opened::of(&segments(folder.path())[0]);
    assert!(segment.directory.has_inner_pages() && segment.directory.blocks.len() >= 6);
    let snapshot = table.snapshot().await.unwrap();
    for ranges in requests() {
        check(&snapshot, &ranges).await;
        if ranges.ranges().len() == 1 {
            check_extremes(&snapshot, &ranges).await;
        }
    }
    let (mut least, mut greatest) = (i64::MAX, i64::MIN);
    (0..2 * ROWS).map(id).for_each(|id| (least, greatest) = (least.min(id), greatest.max(id)));
    let all = probe(&snapshot, &Predicate::Const(Truth::True)).await;
    let request = MinMaxRequest { column: "id".to_owned(), extremes: true };
    let bounds = snapshot.min_max(&[request], &all.files).await.unwrap();
    let [part] = bounds.columns[0].as_slice() else { panic!("one segment") };
    let ends = [&part.least, &part.greatest].map(|value| value.as_primitive::<Int64Type>().value(0));
    assert_eq!(ends, [least, greatest]);
    let wanted: Vec<i64> = (0..2 * ROWS).step_by(1_999).map(id).collect();
    let test = Test::Ranges(keys(wanted.iter().copied().chain([5])));
    let test = Leaf { column: "id".into(), test, text: String::new() };
    let found = snapshot.group_counts_alone(&test, u64::MAX).await.unwrap().expect("few leaves");
    let mut counted: Vec<(i64, u64)> = Vec::new();
    for part in &found.parts {
        let values = part.values[0].as_primitive::<Int64Type>();
        counted.extend(values.values().iter().copied().zip(part.rows.iter().copied()));
    }
    let mut expected: Vec<(i64, u64)> = wanted.iter().map(|id| (*id, 1)).collect();
    counted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(counted, expected);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_of_an_order_are_found_in_a_leaf_of_an_inner_page() {
    let folder = folder(2);
    let snapshot = indexed(folder.path(), None, 20).await.snapshot().await.unwrap();
    let all = probe(&snapshot, &Predicate::Const(Truth::True)).await;
    let mut sorted: Vec<i64> = (0..2 * ROWS).map(id).collect();
    sorted.sort_unstable();
    // In the leaf at either end, and in the third leaf of a page.
    for (descending, rows) in [(false, 10), (true, 10), (false, 1100)] {
        let request = TopKRequest { column: "id".to_owned(), descending, nulls_first: false, rows };
        let options = ProbeOptions::default();
        let found = snapshot.top_k(&all, &request, &options).await.unwrap().expect("a bound");
        let of_file = |(file, found): (usize, &FileProbe)| {
            exact_rows(found).into_iter().map(|row| id(file * ROWS + row as usize)).collect::<Vec<_>>()
        };
        let mut read: Vec<i64> = found.files.iter().enumerate().flat_map(of_file).collect();
        read.sort_unstable();
        let first = match descending {
            true => &sorted[2 * ROWS - rows as usize..],
            false => &sorted[..rows as usize],
        };
        assert!(first.iter().all(|id| read.binary_search(id).is_ok()), "{request:?}");
        assert!(read.len() < 2 * rows as usize, "{} rows for {request:?}", read.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_reads_one_page_where_its_inner_page_is_known() {
    let folder = folder(2);
    let table = indexed(folder.path(), None, LEAVES).await;
    let snapshot = table.snapshot().await.unwrap();
    let segment = Opened::of(&segments(folder.path())[0]);
    let leaves = segment.leaves(&segment.directory.blocks[2]);
    let of_leaf = |leaf: &ValueBlockRef| match leaf.first_key {
        Key::Fixed(number) => i64_of_key(number),
        Key::Bytes(_) => panic!("a number"),
    };
    let first = probe(&snapshot, &is_id(of_leaf(&leaves[0]))).await.report;
    assert!(first.index_reads <= 3, "the directory, an inner page and a leaf: {first:?}");
    for leaf in [1, 2, 0] {
        let report = probe(&snapshot, &is_id(of_leaf(&leaves[leaf]))).await.report;
        assert_eq!((report.rows_exact, report.index_reads, report.index_bytes_read), (1, 1, 4096));
    }
    // No key of another page is looked for in a leaf, but this page is read.
    let report = probe(&snapshot, &is_id(i64::MIN)).await.report;
    assert_eq!((report.rows_exact, report.index_reads), (0, 0), "below all keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn appended_files_merges_and_included_columns_keep_their_answers() {
    let folder = folder(1);
    let table = indexed(folder.path(), Some("number"), LEAVES).await;
    write(&path(folder.path(), 1), &batch(ROWS));
    table.build(BuildOptions { merging: Merging::Never, ..BuildOptions::default() }).await.unwrap();
    assert_eq!(segments(folder.path()).len(), 2);
    let wanted = [0, 77, ROWS + 5, 2 * ROWS - 1];
    for is_merged in [false, true] {
        if is_merged {
            let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
            let merged = table.compact(all).await.unwrap();
            assert_eq!((merged.segments_merged, merged.segments_written), (2, 1));
        }
        let snapshot = table.snapshot().await.unwrap();
        for ranges in requests() {
            check(&snapshot, &ranges).await;
        }
        let predicate = leaf("id", keys(wanted.map(id)));
        let found = probe(&snapshot, &predicate).await;
        let values = covered_values(&snapshot, &predicate, &found, &["number", "id"]).await.unwrap();
        let [numbers, ids] = values.columns.as_slice() else { panic!("{:?}", values.columns) };
        let numbers = numbers.as_primitive::<Int32Type>().values();
        let mut given: Vec<(i32, i64)> =
            numbers.iter().copied().zip(ids.as_primitive::<Int64Type>().values().iter().copied()).collect();
        given.sort_unstable();
        assert_eq!(given, wanted.map(|row| (row as i32, id(row))));
        assert!(table.verify().await.unwrap().is_ok());
    }
    assert!(segments(folder.path()).iter().any(|path| Opened::of(path).directory.rows() == 2 * ROWS as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn law_5_a_damaged_inner_page_makes_rows_unknown() {
    let folder = folder(2);
    let table = indexed(folder.path(), None, LEAVES).await;
    let path = segments(folder.path()).pop().unwrap();
    let mut segment = Opened::of(&path);
    let good = segment.bytes.clone();
    let page = segment.directory.blocks.last().unwrap();
    let place = physical_range(page.offset..page.offset + u64::from(page.length), &segment.trailer);
    segment.bytes[place.end as usize - 10] ^= 1;
    fs::write(&path, &segment.bytes).unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let greatest = (0..2 * ROWS).map(id).max().unwrap();
    let found = probe(&snapshot, &is_id(greatest)).await;
    assert!(found.files.iter().all(|file| matches!(file, FileProbe::Unknown)));
    let test = Leaf { column: "id".into(), test: Test::Ranges(keys([id(1), greatest])), text: String::new() };
    assert!(snapshot.group_counts_alone(&test, u64::MAX).await.unwrap().is_none());
    assert!(snapshot.range_extremes(&Leaf { test: Test::Ranges(KeyRanges::all()), ..test }).await.is_none());
    let report = table.verify().await.unwrap();
    assert!(!report.is_ok() && report.indexes.iter().any(|index| !index.damaged.is_empty()));
    fs::write(&path, good).unwrap();
    check(&table.snapshot().await.unwrap(), &keys([id(1), greatest])).await;
}
