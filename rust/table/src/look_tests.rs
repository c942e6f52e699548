//! Lookups, aggregates, changes and commits look at few of a table's files, however many there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_format::Key;
use lakemark_format::key::key_of_i64;
use lakemark_index::{KeyRanges, Leaf, Test};
use parquet::arrow::ArrowWriter;

use super::*;
use crate::files::parted_list::looks;
use crate::{Change, GroupCountRequest, IndexKind, MinMaxRequest, Predicate, ProbeOptions};

/// Files of a table, each with one row whose key is the number of the file.
const FILES: i64 = 3000;
/// Entries of lists of files that a call looks at, or copies, at most: those of a few parts.
const FEW: u64 = 1200;

fn row(key: i64, value: i64) -> RecordBatch {
    let column = |value: i64| Arc::new(Int64Array::from(vec![Some(value)])) as ArrayRef;
    RecordBatch::try_from_iter_with_nullable([("k", column(key), true), ("v", column(value), true)]).unwrap()
}

fn write_file(root: &Path, number: i64) {
    let rows = row(number, 0);
    let file = File::create(root.join(format!("f{number:05}.parquet"))).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

/// A table with an index of its keys.
async fn table_of_files(root: &Path) -> Arc<Table> {
    (0..FILES).for_each(|number| write_file(root, number));
    // What was written just now may still be changing, and is looked at each time.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let table = Table::open_alone(root.to_str().unwrap(), TableOptions::default()).await.unwrap();
    let options = BTreeMap::from([("files_per_segment".to_owned(), "100".to_owned())]);
    let (columns, kind) = (vec!["k".to_owned()], Some(IndexKind::Key));
    table.create_index(IndexSpec { columns, kind, options, ..IndexSpec::default() }, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

fn leaf(ranges: KeyRanges) -> Leaf {
    Leaf { column: "k".to_owned(), test: Test::Ranges(ranges), text: String::new() }
}

fn equals(key: i64) -> Predicate {
    Predicate::Leaf(leaf(KeyRanges::point(Key::Fixed(key_of_i64(key)))))
}

/// The number of rows of a key.
async fn count(snapshot: &Snapshot, key: i64) -> Option<u64> {
    snapshot.probe(&equals(key), &ProbeOptions::default()).await.unwrap().exact_row_count()
}

/// What comes of work, and how many entries of files it looked at.
async fn looked<T>(work: impl Future<Output = T>) -> (T, u64) {
    looks::take();
    let done = work.await;
    (done, looks::take())
}

/// What comes of work that looks at few entries of files.
async fn few<T>(what: &str, work: impl Future<Output = T>) -> T {
    let (done, looks) = looked(work).await;
    assert!(looks <= FEW, "{what} looked at {looks} entries");
    done
}

#[tokio::test]
async fn lookups_aggregates_and_coverage_look_at_few_of_many_files() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_of_files(folder.path()).await;
    assert_eq!(count(&table.snapshot().await.unwrap(), 71).await, Some(1));
    let snapshot = few("a snapshot", table.snapshot()).await.unwrap();
    assert_eq!(few("a lookup", count(&snapshot, 1234)).await, Some(1));
    let predicate = equals(1234);
    let found = snapshot.probe(&predicate, &ProbeOptions::default()).await.unwrap();
    let (columns, files) = (["k".to_owned()], &found.files);
    let request =
        GroupCountRequest { columns: &columns, predicate: &predicate, files, sum_column: None, only_few_values: false };
    let counts = few("a count by value", snapshot.group_counts(&request)).await.unwrap();
    let rows: Vec<u64> = counts.parts.iter().flat_map(|part| part.rows.clone()).collect();
    assert_eq!((rows, counts.answered.are_all()), (vec![1], true));
    let request = [MinMaxRequest { column: "k".to_owned(), extremes: false }];
    let bounds = few("a count of NULLs", snapshot.min_max(&request, files)).await.unwrap();
    assert_eq!((bounds.columns[0][0].rows, bounds.columns[0][0].nulls), (1, 0));
    assert!(bounds.answered.are_all());
    let two = leaf(KeyRanges::points([5, 1234].map(|key| Key::Fixed(key_of_i64(key))).to_vec()));
    let counts = few("values of two files", snapshot.group_counts_alone(&two, u64::MAX)).await.unwrap().unwrap();
    assert_eq!(counts.parts.iter().flat_map(|part| &part.rows).sum::<u64>(), 2);
    let all = leaf(KeyRanges::all());
    let options = ProbeOptions { count_only: true, ..ProbeOptions::default() };
    let all = Predicate::Leaf(all);
    let counted = few("a count of all rows", snapshot.probe(&all, &options)).await.unwrap();
    assert_eq!((counted.exact_row_count(), counted.files.listed().len()), (Some(FILES as u64), FILES as usize / 100));
    let covered = few("coverage", async { snapshot.index_coverage() }).await;
    assert_eq!((covered.uncovered_files, covered.indexes[0].coverage), (0, 1.0));
    write_file(folder.path(), FILES);
    let snapshot = few("a snapshot with one more file", table.snapshot()).await.unwrap();
    let covered = few("coverage of all files but one", async { snapshot.index_coverage() }).await;
    assert_eq!((covered.uncovered_files, covered.oldest_uncovered.is_some()), (1, true));
    assert!(covered.indexes[0].coverage < 1.0);
    assert_eq!(few("a lookup beside a new file", count(&snapshot, 77)).await, None, "the new file has to be read");
}

#[tokio::test]
async fn changes_and_commits_look_at_few_of_many_files() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_of_files(folder.path()).await;
    table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let upsert = async |key| {
        let change = Change { operation: Operation::Upsert, rows: row(key, 7) };
        table.write(vec![change], WriteOptions::default()).await.unwrap()
    };
    // Rows of each hundredth file are replaced.
    for key in (0..FILES).step_by(100) {
        upsert(key).await;
    }
    assert_eq!(table.snapshot().await.unwrap().deleted_rows(), 30);
    for key in [1234, 2345] {
        few("an upsert", upsert(key)).await;
        let snapshot = few("a snapshot after an upsert", table.snapshot()).await.unwrap();
        assert_eq!(few("a lookup after an upsert", count(&snapshot, 1500)).await, None, "the row is in the buffer");
        let again = few("a snapshot after nothing", table.snapshot()).await.unwrap();
        assert!(again.files().is_same_list(snapshot.files()));
    }
    let (flushed, looks) = looked(table.flush()).await;
    flushed.unwrap();
    // The position map of a run has an entry for each file.
    assert!(looks <= FILES as u64 + FEW, "a flush looked at {looks} entries");
    let snapshot = few("a snapshot after a flush", table.snapshot()).await.unwrap();
    assert_eq!((snapshot.deleted_rows(), snapshot.rows()), (32, Some(FILES as u64)));
    few("an upsert after a flush", upsert(77)).await;
    let snapshot = few("a snapshot after that", table.snapshot()).await.unwrap();
    assert_eq!((snapshot.deleted_rows(), snapshot.rows()), (33, Some(FILES as u64)));
}

/// A table of so many files, of which nothing is young any more, with a key.
async fn with_key(root: &Path) -> Arc<Table> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let table = Table::open(root.to_str().unwrap(), TableOptions::default()).await.unwrap();
    table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    table.snapshot().await.unwrap();
    table
}

/// A change of one row that lists nothing and looks at few entries of files.
async fn change(table: &Arc<Table>, operation: Operation, rows: RecordBatch) {
    let before = table.metrics().listings.get();
    let changes = vec![Change { operation, rows }];
    few(operation.name(), table.write(changes, WriteOptions::default())).await.unwrap();
    assert_eq!(table.metrics().listings.get(), before, "{} listed the files", operation.name());
}

#[tokio::test]
async fn changes_by_key_look_at_none_of_many_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let part = |number: i64| folder.path().join(format!("p={number}"));
    for number in 0..FILES {
        std::fs::create_dir(part(number)).unwrap();
        write_file(&part(number), number);
    }
    let table = with_key(folder.path()).await;
    let k = |key: i64| Arc::new(Int64Array::from(vec![key])) as ArrayRef;
    let upserted = |key| RecordBatch::try_from_iter([("k", k(key)), ("v", k(7)), ("p", k(key))]).unwrap();
    change(&table, Operation::Upsert, upserted(77)).await;
    // What others add to a partition shows in that partition alone.
    write_file(&part(5), FILES);
    change(&table, Operation::Upsert, upserted(78)).await;
    change(&table, Operation::Delete, RecordBatch::try_from_iter([("k", k(79))]).unwrap()).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.deleted_rows(), snapshot.rows()), (3, Some(FILES as u64)));
}

#[tokio::test]
async fn changes_by_key_list_nothing_of_more_files_than_are_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let files = crate::files::list_folders::MOST_REMEMBERED as i64 + 1;
    (0..files).for_each(|number| write_file(folder.path(), number));
    let table = with_key(folder.path()).await;
    change(&table, Operation::Upsert, row(77, 7)).await;
    write_file(folder.path(), files);
    let before = table.metrics().listings.get();
    let changes = vec![Change { operation: Operation::Upsert, rows: row(78, 7) }];
    table.write(changes, WriteOptions::default()).await.unwrap();
    assert_eq!(table.metrics().listings.get(), before + 1, "a file came to the folder");
    assert_eq!(table.snapshot().await.unwrap().rows(), Some(files as u64 + 1));
}
