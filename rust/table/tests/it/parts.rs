//! Searches of thousands of leaves, which are read a part at a time, and counts of values for which no row is found.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};
use lakemark_table::{
    BuildOptions, Change, ColumnReadCost, FileProbe, GroupCounts, IndexKind, IndexSpec, Operation, ReadCost,
    SearchedColumn, Snapshot, Table, WriteOptions,
};
use parquet::arrow::ArrowWriter;

use crate::fixture::{exact_rows, int_key, open, probe, segments};
use crate::updates::lake::Lake;

const ROWS: i64 = 120_000;
/// Rows of each of the few keys that have many.
const HEAVY: i64 = 400;

/// Keys in no order; one row in twenty has a key that others have, too, and one in 1,000 has none.
fn key(row: i64) -> Option<i64> {
    let own = (row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) >> 3) | 1;
    (row % 1_000 != 17).then_some(if row % 20 == 3 { row % (ROWS / HEAVY) * 2 } else { own })
}

/// Keys of which each has 40 rows of a file, so that it is worth reading all leaves to count them.
fn repeated(row: i64) -> Option<i64> {
    key(row % (ROWS / 40) * 20 + 1)
}

/// The keys of rows.
type Keys = fn(i64) -> Option<i64>;

fn rows(first: i64, keys: Keys) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter((first..first + ROWS).map(keys)));
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(first as i32..(first + ROWS) as i32));
    RecordBatch::try_from_iter([("key", keys), ("n", numbers)]).unwrap()
}

/// Writes row groups of a usual size.
fn put(path: &Path, batch: &RecordBatch) {
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Two files, in one segment of each kind.
async fn indexed(folder: &Path, kind: &str, keys: Keys) -> Arc<Table> {
    indexed_in_pages(folder, kind, keys, usize::MAX).await
}

/// The same with at most so many leaves in the directory, and in each inner page.
async fn indexed_in_pages(folder: &Path, kind: &str, keys: Keys, most_leaves: usize) -> Arc<Table> {
    for file in 0..2 {
        put(&folder.join(format!("f{file}.parquet")), &rows(file * ROWS, keys));
    }
    let table = open(folder).await;
    table.limit_leaves(most_leaves);
    let spec = IndexSpec { columns: vec!["key".into()], kind: IndexKind::from_name(kind), ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

fn points(keys: impl Iterator<Item = i64>) -> KeyRanges {
    KeyRanges::points(keys.map(int_key).collect())
}

/// Tests of which some touch nearly all leaves: keys, ranges, and ranges that leave few rows out.
fn tests(keys: Keys) -> Vec<KeyRanges> {
    let all: Vec<i64> = (0..2 * ROWS).filter_map(keys).collect();
    let middle = i64::MAX >> 4;
    vec![
        points(all.iter().copied().step_by(3)),
        points(all.iter().copied().step_by(7).chain(0..200)),
        points(all.iter().map(|key| key.wrapping_add(1)).step_by(5)),
        KeyRanges::greater_than(int_key(middle), true),
        KeyRanges::greater_than(int_key(-middle * 15), false),
        KeyRanges::less_than(int_key(0), true).union(&points(all.into_iter().step_by(2))),
        points(std::iter::empty()),
    ]
}

fn expected(first: i64, ranges: &KeyRanges) -> Vec<u32> {
    let passes = |row: &i64| key(*row).is_some_and(|key| ranges.contains(&int_key(key)));
    (first..first + ROWS).filter(passes).map(|row| (row - first) as u32).collect()
}

fn test_of(ranges: KeyRanges) -> Leaf {
    Leaf { column: "key".into(), test: Test::Ranges(ranges), text: String::new() }
}

async fn alone(snapshot: &Snapshot, ranges: &KeyRanges) -> Option<BTreeMap<i64, u64>> {
    snapshot.group_counts_alone(&test_of(ranges.clone()), u64::MAX).await.unwrap().map(|found| counts(&found))
}

fn counts(found: &GroupCounts) -> BTreeMap<i64, u64> {
    let mut counts = BTreeMap::new();
    for part in &found.parts {
        let [values] = part.values.as_slice() else { panic!("one column") };
        for (value, rows) in values.as_primitive::<Int64Type>().iter().zip(&part.rows) {
            *counts.entry(value.unwrap()).or_default() += rows;
        }
    }
    counts
}

/// What a loop over the keys of some rows counts.
fn counted(rows: impl Iterator<Item = i64>, keys: Keys, ranges: &KeyRanges) -> BTreeMap<i64, u64> {
    let mut counts = BTreeMap::new();
    for key in rows.filter_map(keys).filter(|key| ranges.contains(&int_key(*key))) {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_leaves_give_the_rows_that_a_loop_finds() {
    for most_leaves in [usize::MAX, 20] {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed_in_pages(folder.path(), "key", key, most_leaves).await;
        check_rows(&table.snapshot().await.unwrap()).await;
    }
}

async fn check_rows(snapshot: &Snapshot) {
    for ranges in tests(key) {
        let found = probe(snapshot, &Predicate::Leaf(test_of(ranges.clone()))).await;
        for (first, file) in [0, ROWS].into_iter().zip(&found.files) {
            assert!(exact_rows(file) == expected(first, &ranges));
        }
        let opposite = Predicate::Not(Box::new(Predicate::Leaf(test_of(ranges.clone()))));
        let (found, passing) = (probe(snapshot, &opposite).await, expected(0, &ranges));
        let has_key = |row: &u32| key((*row).into()).is_some() && passing.binary_search(row).is_err();
        assert!(exact_rows(&found.files[0]) == (0..ROWS as u32).filter(has_key).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_5_a_leaf_that_is_damaged_in_any_part_makes_rows_unknown() {
    for keys in [key as Keys, repeated] {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed(folder.path(), "key", keys).await;
        let [segment] = segments(folder.path()).try_into().unwrap();
        let pages = std::fs::metadata(&segment).unwrap().len() / 4096;
        let some = &tests(keys)[0];
        for page in [0, pages / 3, pages / 2, pages - pages / 8] {
            let file = File::options().read(true).write(true).open(&segment).unwrap();
            let (at, mut byte) = (page * 4096 + 99, [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[!byte[0]], at).unwrap();
            let snapshot = table.snapshot().await.unwrap();
            let found = probe(&snapshot, &Predicate::Leaf(test_of(some.clone()))).await;
            assert!(found.files.iter().all(|file| matches!(file, FileProbe::Unknown)), "page {page} of {pages}");
            assert!(alone(&snapshot, some).await.is_none(), "page {page} of {pages}");
            file.write_all_at(&byte, at).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_counted_alone_as_a_loop_counts_them() {
    for (kind, keys, expected) in
        [("key", repeated as Keys, 4), ("bitmap", repeated, 7), ("key", key, 1), ("bitmap", key, 1)]
    {
        let folder = tempfile::tempdir().unwrap();
        let table = indexed(folder.path(), kind, keys).await;
        let snapshot = table.snapshot().await.unwrap();
        let mut answered = 0;
        for ranges in tests(keys) {
            if let Some(found) = alone(&snapshot, &ranges).await {
                assert!(found == counted(0..2 * ROWS, keys, &ranges), "{kind}");
                answered += 1;
            }
        }
        // A tree does not list the keys of a range. Of a column of as many values as rows, rows are as quickly read: but for no value.
        assert_eq!(answered, expected, "{kind}");
    }
}

#[tokio::test]
async fn nothing_is_counted_alone_of_rows_that_are_gone_or_that_no_index_knows() {
    let few = points(0..60);
    // A file that is not indexed.
    let folder = tempfile::tempdir().unwrap();
    let table = indexed(folder.path(), "key", key).await;
    assert!(alone(&table.snapshot().await.unwrap(), &few).await.is_some());
    put(&folder.path().join("f2.parquet"), &rows(2 * ROWS, key));
    assert_eq!(alone(&table.snapshot().await.unwrap(), &few).await, None);
    table.build(BuildOptions::default()).await.unwrap();
    assert!(alone(&table.snapshot().await.unwrap(), &few).await == Some(counted(0..3 * ROWS, key, &few)));
    // A file that is written again, and one that is gone.
    put(&folder.path().join("f1.parquet"), &rows(7 * ROWS, key));
    assert_eq!(alone(&table.snapshot().await.unwrap(), &few).await, None);
    std::fs::remove_file(folder.path().join("f1.parquet")).unwrap();
    assert_eq!(alone(&table.snapshot().await.unwrap(), &few).await, None);

    // A row that is deleted, in the data file still.
    let folder = tempfile::tempdir().unwrap();
    let table = indexed(folder.path(), "key", key).await;
    table.declare_key(&["n".into()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    assert!(alone(&table.snapshot().await.unwrap(), &few).await.is_some());
    let rows = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![43])) as ArrayRef)]).unwrap();
    table.write(vec![Change { operation: Operation::Delete, rows }], WriteOptions::default()).await.unwrap();
    assert_eq!(alone(&table.snapshot().await.unwrap(), &few).await, None);
}

#[tokio::test]
async fn nothing_is_counted_alone_where_a_deletion_vector_hides_a_row() {
    let mut lake = Lake::new(&[("key", "key", "long"), ("n", "n", "integer")], false);
    let files = [0, 1].map(|file| {
        let name = format!("f{file}.parquet");
        put(&lake.root().join(&name), &rows(file * ROWS, key));
        lake.adds(&name)
    });
    lake.commit(&files);
    let table = open(lake.root()).await;
    let spec = IndexSpec { columns: vec!["key".into()], kind: Some(IndexKind::Key), ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let few = points(0..60);
    assert!(alone(&table.snapshot().await.unwrap(), &few).await == Some(counted(0..2 * ROWS, key, &few)));
    lake.commit(&[Lake::removes("f0.parquet"), lake.adds_without("f0.parquet", &[3, 23])]);
    assert_eq!(alone(&table.snapshot().await.unwrap(), &few).await, None);
}

#[tokio::test]
async fn the_number_of_keys_alone_says_whether_a_search_may_be_worth_it() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["key", "bitmap"] {
        let folder = folder.path().join(kind);
        std::fs::create_dir(&folder).unwrap();
        let snapshot = indexed(&folder, kind, key).await.snapshot().await.unwrap();
        let columns = ColumnReadCost { count: 1.0, decode: 4.0 };
        let reading = ReadCost { output: columns, filter: columns, limit: None, index_only: None, parent_cost: 0.0 };
        let values = snapshot.distinct_values("key").await.unwrap().unwrap() as f64;
        for (column, values, expected) in [
            ("key", 5.0, true),
            ("key", values / 10.0, false),
            ("key", values / 2.0, false),
            ("key", values * 3.0, false),
            // No index knows.
            ("n", values / 2.0, true),
        ] {
            let found = snapshot.worth_searching(&[SearchedColumn { column, values }], &reading).await.unwrap()[0];
            assert_eq!(found, expected, "{kind}: {values} values of {column}");
        }
        // Beside few keys many of the same column save nothing more, and each condition is judged by its own number.
        let wanted = [values / 3.0, 5.0].map(|values| SearchedColumn { column: "key", values });
        assert_eq!(snapshot.worth_searching(&wanted, &reading).await.unwrap(), [false, true], "{kind}");
    }
}
