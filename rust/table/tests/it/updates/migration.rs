//! What migrations make of data files, and what they leave when something goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use lakemark_table::{BuildOptions, ErrorKind, MigrateOptions, Operation, Progress, Snapshot, Table};

use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::{batch, folder, keyed, keys, make, row, rows};
use crate::delta;
use crate::fixture::{open, write};

async fn migrate(table: &Arc<Table>) -> lakemark_table::MigrateReport {
    table.migrate(MigrateOptions::default()).await.unwrap()
}

/// Columns with their types.
fn columns(snapshot: &Snapshot) -> Vec<(String, DataType)> {
    let schema = snapshot.schema();
    schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
}

#[tokio::test]
async fn a_folder_of_which_every_row_is_deleted_keeps_its_columns() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = columns(&table.snapshot().await.unwrap());
    make(&table, Operation::Delete, keys(&(0..300).map(|k| k * 2).collect::<Vec<_>>())).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written, report.rows, report.rows_replaced), (2, 1, 0, 300));
    for _ in 0..2 {
        let table = open(folder.path()).await;
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!((columns(&snapshot), snapshot.files().len()), (before.clone(), 1));
        assert_eq!(rows(&table).await, BTreeMap::new());
        assert_eq!(migrate(&table).await.rows, 0);
        make(&table, Operation::Insert, batch(&[(2, Some(7), Some("again")), (9, None, None)])).await.unwrap();
        let expected = BTreeMap::from([(2, row(7, "again")), (9, (None, None))]);
        assert_eq!(rows(&table).await, expected);
        let report = migrate(&table).await;
        assert_eq!((report.rows, report.files_replaced, report.files_written), (2, 0, 1));
        assert_eq!(rows(&*open(folder.path()).await).await, expected);
        make(&table, Operation::Delete, keys(&[2, 9])).await.unwrap();
        // The file without rows is still there and says the columns.
        let report = migrate(&table).await;
        assert_eq!((report.files_replaced, report.files_written), (1, 0));
    }
}

/// Parquet's writers need not say where pages are; ours does.
#[tokio::test]
async fn files_without_a_page_index_are_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    let all: Vec<_> = (0..50).map(|k| (k, Some(1), Some("old"))).collect();
    let rows_before = batch(&all);
    let file = File::create(folder.path().join("f.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows_before.schema(), Some(properties.build())).unwrap();
    writer.write(&rows_before).unwrap();
    assert_eq!(writer.close().unwrap().row_group(0).column(0).offset_index_offset(), None);
    let table = keyed(folder.path()).await;
    make(&table, Operation::Upsert, batch(&[(25, Some(2), Some("new")), (99, None, None)])).await.unwrap();
    make(&table, Operation::Delete, keys(&[44])).await.unwrap();
    let before = rows(&table).await;
    assert_eq!((before.len(), before[&25].clone(), before.contains_key(&44)), (50, row(2, "new"), false));
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.rows_replaced), (1, 2));
    assert_eq!(rows(&*open(folder.path()).await).await, before);
}

/// A column that only the files with deleted rows had, and a partition column that would become one of numbers.
#[tokio::test]
async fn columns_and_types_of_partitions_outlive_the_rows_that_had_them() {
    let folder = tempfile::tempdir().unwrap();
    let k = |keys: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(keys.to_vec())) };
    let b: ArrayRef = Arc::new(Int32Array::from(vec![5, 6]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let plain = RecordBatch::try_from_iter([("k", k(&[1, 2])), ("s", s)]).unwrap();
    write(&folder.path().join("p=7/f.parquet"), &plain);
    let wide = RecordBatch::try_from_iter([("k", k(&[3, 4])), ("b", b)]).unwrap();
    write(&folder.path().join("p=x/f.parquet"), &wide);
    write(&folder.path().join("p=x/g.parquet"), &RecordBatch::try_from_iter([("k", k(&[5]))]).unwrap());
    let table = keyed(folder.path()).await;
    let before = columns(&table.snapshot().await.unwrap());
    assert_eq!(before.last().unwrap(), &("p".to_owned(), DataType::Utf8));
    make(&table, Operation::Delete, keys(&[3, 4, 5])).await.unwrap();
    let report = migrate(&table).await;
    // One for the partition x, though two files had it.
    assert_eq!((report.files_replaced, report.files_written), (2, 1));
    let again = open(folder.path()).await.snapshot().await.unwrap();
    let sorted = |mut columns: Vec<(String, DataType)>| {
        columns.sort_by(|a, b| a.0.cmp(&b.0));
        columns
    };
    assert_eq!(sorted(columns(&again)), sorted(before));
    assert_eq!(again.files().len(), 2);
    // What is left of the table shows the same columns: nothing is kept of a file without rows.
    make(&table, Operation::Insert, RecordBatch::try_from_iter([("k", k(&[8]))]).unwrap()).await.unwrap();
    migrate(&table).await;
    make(&table, Operation::Delete, keys(&[8])).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written), (1, 0));
}

#[tokio::test]
async fn a_delta_table_of_which_every_row_is_deleted_keeps_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows_of = |keys: &[i32]| {
        let k: ArrayRef = Arc::new(Int32Array::from(keys.to_vec()));
        let s: ArrayRef = Arc::new(StringArray::from(vec!["x"; keys.len()]));
        RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
    };
    write(&root.join("a.parquet"), &rows_of(&[1, 2, 3]));
    let mut actions = delta::opening(false, serde_json::json!({}));
    actions.push(delta::add(root, "a.parquet", Some("2024-01-31")));
    delta::commit(root, 0, &actions);
    let table = keyed(root).await;
    let before = columns(&table.snapshot().await.unwrap());
    make(&table, Operation::Delete, keys(&[1, 2, 3])).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written, report.delta_version), (1, 0, Some(1)));
    let count =
        |snapshot: &Snapshot| (snapshot.files().len(), snapshot.buffered_rows().map_or(0, |rows| rows.row_count()));
    let again = open(root).await;
    let snapshot = again.snapshot().await.unwrap();
    assert_eq!((columns(&snapshot), count(&snapshot)), (before, (0, 0)));
    make(&again, Operation::Insert, rows_of(&[2, 4])).await.unwrap();
    assert_eq!(count(&again.snapshot().await.unwrap()), (0, 2));
    let report = migrate(&again).await;
    assert_eq!((report.rows, report.files_written, report.delta_version), (2, 1, Some(2)));
    assert_eq!(count(&open(root).await.snapshot().await.unwrap()), (1, 0));
}

/// The progress that was reported: for each start the total and what was done of it then.
#[derive(Default)]
struct Reported(Mutex<Vec<(u64, u64)>>);

impl Progress for Reported {
    fn start(&self, total_rows: u64) {
        self.0.lock().unwrap().push((total_rows, 0));
    }

    fn advance(&self, rows: u64) {
        self.0.lock().unwrap().last_mut().unwrap().1 += rows;
    }

    fn finish(&self) {}
}

#[tokio::test]
async fn progress_counts_rows_that_are_rewritten_and_then_those_that_are_indexed() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Upsert, batch(&[(1, None, None), (2, None, None), (900, None, None)])).await.unwrap();
    make(&table, Operation::Delete, keys(&[4])).await.unwrap();
    let reported = Arc::new(Reported::default());
    let options = MigrateOptions { progress: Some(reported.clone()), ..MigrateOptions::default() };
    table.migrate(options).await.unwrap();
    // One file of 150 rows and three new rows; then its 149 rows that are left and a file of two.
    assert_eq!(*reported.0.lock().unwrap(), [(153, 153), (151, 151)]);
}

/// Another writer of a Delta table that is faster, as often as it is told to be: it appends a file and writes the metadata anew whenever
/// a migration begins to write.
struct Intruder {
    root: PathBuf,
    left: AtomicU64,
    version: AtomicU64,
}

impl Progress for Intruder {
    fn start(&self, _: u64) {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return;
        }
        let version = self.version.fetch_add(1, Ordering::SeqCst);
        let path = format!("theirs-{version}.parquet");
        write(&self.root.join(&path), &two_columns(&[100 + version as i32], "theirs"));
        // Metadata, which are a conflict also where the file has no key that is buffered.
        let metadata = delta::opening(false, serde_json::json!({})).remove(1);
        delta::commit(&self.root, version, &[metadata, delta::add(&self.root, &path, Some("2024-01-31"))]);
    }

    fn advance(&self, _: u64) {}

    fn finish(&self) {}
}

fn two_columns(keys: &[i32], text: &str) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int32Array::from(keys.to_vec()));
    let s: ArrayRef = Arc::new(StringArray::from(vec![text; keys.len()]));
    RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
}

/// Physical rows that count, and buffered ones.
async fn counts(root: &std::path::Path) -> (u64, u64, u64) {
    let snapshot = open(root).await.snapshot().await.unwrap();
    let rows = snapshot.files().iter().map(|file| {
        let groups = file.row_groups.clone();
        let reader = || {
            let file = std::fs::File::open(PathBuf::from("/").join(file.meta.location.as_ref())).unwrap();
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap()
        };
        groups.map_or_else(
            || reader().metadata().file_metadata().num_rows() as u64,
            |groups| groups.iter().map(|rows| u64::from(*rows)).sum(),
        )
    });
    let buffered = snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count());
    (rows.sum::<u64>() - snapshot.deleted_rows(), buffered, snapshot.delta_version().unwrap())
}

#[tokio::test]
async fn migrating_while_another_delta_writer_commits_is_tried_again_and_then_a_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &two_columns(&[1, 2, 3], "base"));
    let mut actions = delta::opening(false, serde_json::json!({}));
    actions.push(delta::add(root, "a.parquet", Some("2024-01-31")));
    delta::commit(root, 0, &actions);
    let table = keyed(root).await;
    make(&table, Operation::Upsert, two_columns(&[2, 7], "ours")).await.unwrap();
    make(&table, Operation::Delete, keys(&[3])).await.unwrap();
    assert_eq!(counts(root).await, (1, 2, 0));
    let against = |times: u64, version: u64| {
        let (left, version) = (AtomicU64::new(times), AtomicU64::new(version));
        let intruder = Intruder { root: root.to_owned(), left, version };
        table.migrate(MigrateOptions { progress: Some(Arc::new(intruder)), ..MigrateOptions::default() })
    };
    // As often as a migration is tried: others win, and nothing of it is seen.
    let error = against(5, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(counts(root).await, (1 + 5, 2, 5));
    let data = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let files = data.filter(|path| path.extension().is_some_and(|end| end == "parquet")).count();
    assert_eq!(files, 6, "files of attempts that failed are removed");
    // Twice others win, then it takes effect on what they wrote: versions 6 and 7 are theirs.
    let report = against(2, 6).await.unwrap();
    assert_eq!((report.rows, report.rows_replaced, report.delta_version), (2, 2, Some(8)));
    assert_eq!(counts(root).await, (3 + 5 + 2, 0, 8));
    assert_eq!(table.migrate(MigrateOptions::default()).await.unwrap().delta_version, None);
}

const SMALL: [(&str, &str); 3] = [("cache_bytes", "65536"), ("page_bytes", "1024"), ("migration_threshold", "50%")];

async fn small(folder: &std::path::Path) -> Arc<Table> {
    let table = open(folder).await;
    let options = SMALL.map(|(name, value)| (name.to_owned(), value.to_owned()));
    table.declare_key(&["k".to_owned()], &BTreeMap::from(options), BuildOptions::default()).await.unwrap();
    table
}

/// Rows whose text no compression makes much smaller.
fn round(number: i64) -> RecordBatch {
    let texts: Vec<String> = (0..20)
        .map(|row| format!("{:x}", (number * 20 + row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15u64 as i64)))
        .collect();
    let rows: Vec<_> =
        (0..20).map(|row| (number * 20 + row, Some(number as i32), Some(texts[row as usize].as_str()))).collect();
    batch(&rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_fills_the_cache_beyond_the_threshold_begins_a_migration() {
    let folder = folder();
    let table = small(folder.path()).await;
    let mut expected = rows(&table).await;
    for number in 0..200 {
        make(&table, Operation::Upsert, round(number)).await.unwrap();
        let texts = round(number);
        let s = texts.column(2).as_any().downcast_ref::<StringArray>().unwrap();
        expected.extend((0..20).map(|at| (number * 20 + at, row(number as i32, s.value(at as usize)))));
    }
    table.wait_for_migration().await;
    let info = table.updates_info().await.unwrap().unwrap();
    assert_eq!(info.migration_threshold, Some(0.5));
    let migrations = open(folder.path()).await.snapshot().await.unwrap().files().len();
    assert!(migrations > 0 && folder.path().join("_lakemark/data").is_dir());
    assert!(info.cache_share < 1.0, "{}", info.cache_share);
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
    assert_eq!(expected.len(), 4_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_cache_with_migration_failing_refuses_changes_and_loses_nothing() {
    let folder = folder();
    let table = small(folder.path()).await;
    // Nothing can be written where new data files would go.
    let obstacle = folder.path().join("_lakemark/data");
    std::fs::write(&obstacle, "in the way").unwrap();
    let mut expected = rows(&table).await;
    let (mut number, mut refused) = (0, 0);
    // A change that is refused begins a migration, which fails, and may make room in the log before: it is refused for good then.
    while refused < 3 {
        assert!(number < 500, "the cache is never full");
        match make(&table, Operation::Upsert, round(number)).await {
            Ok(_) => {
                let texts = round(number);
                let s = texts.column(2).as_any().downcast_ref::<StringArray>().unwrap();
                expected.extend((0..20).map(|at| (number * 20 + at, row(number as i32, s.value(at as usize)))));
                (number, refused) = (number + 1, 0);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::CacheFull, "{error}");
                assert!(error.to_string().contains("lakemark migrate"), "{error}");
                table.wait_for_migration().await;
                refused += 1;
            }
        }
    }
    // A migration that is asked for says what is wrong.
    let error = table.migrate(MigrateOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(make(&table, Operation::Upsert, round(number)).await.unwrap_err().kind(), ErrorKind::CacheFull);
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
    table.wait_for_migration().await;
    // Once there is room, the next change that is refused begins a migration, and then changes are taken again.
    std::fs::remove_file(&obstacle).unwrap();
    assert_eq!(make(&table, Operation::Upsert, round(number)).await.unwrap_err().kind(), ErrorKind::CacheFull);
    table.wait_for_migration().await;
    assert_eq!(rows(&table).await, expected);
    make(&table, Operation::Delete, keys(&[0])).await.unwrap();
    expected.remove(&0);
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
}

/// A full cache takes no run of what is in the buffer; it is migrated all the same, once the runs are.
#[tokio::test]
async fn a_migration_leaves_nothing_buffered_also_if_the_cache_is_full() {
    let folder = folder();
    let table = open(folder.path()).await;
    let options = [("page_bytes", "512"), ("cache_bytes", "20480")].map(|(name, value)| (name.into(), value.into()));
    table.declare_key(&["k".to_owned()], &BTreeMap::from(options), BuildOptions::default()).await.unwrap();
    let (mut made, mut is_full) = (0, false);
    let mut expected: BTreeSet<i64> = rows(&table).await.into_keys().collect();
    for number in 0..1_000 {
        let count = 1 + number % 20;
        match make(&table, Operation::Upsert, round(number).slice(0, count as usize)).await {
            Ok(_) => {
                expected.extend(number * 20..number * 20 + count);
                made += count as u64;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::CacheFull, "{error}"),
        }
        let info = table.updates_info().await.unwrap().unwrap();
        if info.cache_share > 0.8 && table.flush().await.is_err() {
            assert!(info.buffer_keys > 0 && !info.runs.is_empty(), "{info:?}");
            is_full = true;
            break;
        }
    }
    assert!(is_full, "the cache takes every run");
    assert_eq!(migrate(&table).await.rows, made);
    assert_eq!(table.snapshot().await.unwrap().buffered_rows().map_or(0, |buffered| buffered.row_count()), 0);
    assert_eq!(rows(&table).await.into_keys().collect::<BTreeSet<i64>>(), expected);
    make(&table, Operation::Upsert, round(1_000)).await.unwrap();
}
