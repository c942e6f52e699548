//! Migrations in slices of the key range: each is a commit of its own, and writes few files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use lakemark_table::{ErrorKind, MigrateOptions, MigrateReport, Operation, Progress, Table, VersionOperation};

use super::lake::{Lake, PLAIN};
use super::{batch, damage, folder, keyed, keys, make, row, rows};
use crate::fixture::{open, write};

/// Files of a table, and rows of each.
const FILES: i64 = 8;
const ROWS: i64 = 1000;

/// Rows whose text no compression makes much smaller.
fn texts(keys: impl Iterator<Item = i64>) -> RecordBatch {
    let rows: Vec<(i64, String)> =
        keys.map(|k| (k, format!("{:016x}", (k + 1).wrapping_mul(0x1e37_79b9_7f4a_7c15)))).collect();
    batch(&rows.iter().map(|(k, s)| (*k, Some(1), Some(s.as_str()))).collect::<Vec<_>>())
}

/// The rows of a file of which the keys come one file after the other.
fn in_order(file: i64) -> RecordBatch {
    texts((file * ROWS..(file + 1) * ROWS).map(|row| row * 2))
}

/// A folder of files in the order of keys; gives the length of the longest.
fn ordered() -> (tempfile::TempDir, u64) {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: i64| {
        let path = folder.path().join(format!("f{file}.parquet"));
        write(&path, &in_order(file));
        fs::metadata(path).unwrap().len()
    };
    let longest = (0..FILES).map(write).max().unwrap();
    (folder, longest)
}

/// Replaces a row in the middle of each file.
async fn replace_one_in_each(table: &Arc<Table>) -> Vec<i64> {
    let replaced: Vec<i64> = (0..FILES).map(|file| (file * ROWS + ROWS / 2) * 2).collect();
    let new: Vec<_> = replaced.iter().map(|k| (*k, Some(2), Some("new"))).collect();
    make(table, Operation::Upsert, batch(&new)).await.unwrap();
    replaced
}

async fn migrate(table: &Arc<Table>, max_bytes: u64) -> MigrateReport {
    table.migrate(MigrateOptions { max_bytes: Some(max_bytes), ..MigrateOptions::default() }).await.unwrap()
}

/// Migrations that took effect.
async fn migrations(table: &Table) -> usize {
    let history = table.history(None).await.unwrap();
    history.iter().filter(|version| matches!(version.operation, VersionOperation::Migrate(_))).count()
}

async fn buffered(path: &Path) -> u64 {
    open(path).await.snapshot().await.unwrap().buffered_rows().map_or(0, |buffered| buffered.row_count())
}

#[tokio::test]
async fn slices_of_files_in_the_order_of_keys_write_each_file_once() {
    let (folder, longest) = ordered();
    let table = keyed(folder.path()).await;
    replace_one_in_each(&table).await;
    let expected = rows(&table).await;
    let report = migrate(&table, longest * 5 / 2).await;
    assert_eq!((report.rows, report.rows_replaced), (8, 8));
    assert_eq!((report.files_replaced, report.files_written), (8, 8));
    assert_eq!(migrations(&table).await, 4);
    assert_eq!((buffered(folder.path()).await, rows(&*open(folder.path()).await).await), (0, expected));
    // Nothing is left for another one.
    assert_eq!(migrate(&table, 1).await.files_written, 0);
}

/// A byte is less than any file: each is a slice.
#[tokio::test]
async fn a_slice_writes_at_least_one_file() {
    let (folder, _) = ordered();
    let table = keyed(folder.path()).await;
    replace_one_in_each(&table).await;
    assert_eq!(migrate(&table, 1).await.files_written, 8);
    assert_eq!(migrations(&table).await, 8);
    let error = table.migrate(MigrateOptions { max_bytes: Some(0), ..MigrateOptions::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("above 0"), "{error}");
}

#[tokio::test]
async fn slices_of_files_in_no_order_write_at_most_twice_what_one_migration_does() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        let keys = (0..ROWS).map(|row| (row * FILES + file) * 2);
        write(&folder.path().join(format!("f{file}.parquet")), &texts(keys));
    }
    let table = keyed(folder.path()).await;
    let new: Vec<i64> = (0..400).map(|number| number * 38).collect();
    make(&table, Operation::Delete, keys(&new)).await.unwrap();
    let expected = rows(&table).await;
    let report = migrate(&table, 1).await;
    assert!(report.files_written <= 2 * FILES as u64, "{report:?}");
    assert_eq!((report.rows_replaced, rows(&*open(folder.path()).await).await), (400, expected));
}

/// New rows hit no file, and their slices go by the pages of runs. The small files that they leave are filled up by the last one.
#[tokio::test]
async fn slices_of_new_rows_leave_few_files() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    // Four runs of three pages each.
    for run in 0..4 {
        make(&table, Operation::Insert, texts((0..6000).map(|k| 1001 + (run * 6000 + k) * 2))).await.unwrap();
        table.flush().await.unwrap();
    }
    let bytes: u64 = table.updates_info().await.unwrap().unwrap().cache_bytes;
    let report = migrate(&table, bytes / 6).await;
    let slices = migrations(&table).await;
    assert!((6..=12).contains(&slices), "{slices} slices");
    assert_eq!((report.rows, report.rows_replaced), (24_000, 0));
    let files = open(folder.path()).await.snapshot().await.unwrap().files().len();
    assert!(files <= 2 + 4, "{files} files");
    assert_eq!(rows(&*open(folder.path()).await).await.len(), 24_300);
}

#[tokio::test]
async fn a_part_is_migrated_in_slices_too() {
    let (folder, longest) = ordered();
    let table = keyed(folder.path()).await;
    let replaced = replace_one_in_each(&table).await;
    let options = MigrateOptions { fraction: 0.5, max_bytes: Some(longest * 5 / 2), ..MigrateOptions::default() };
    let report = table.migrate(options).await.unwrap();
    assert_eq!((report.rows, report.files_written, migrations(&table).await), (4, 4, 2));
    assert_eq!(buffered(folder.path()).await, 4);
    let now = rows(&*open(folder.path()).await).await;
    assert!(replaced.iter().all(|k| now[k] == row(2, "new")));
}

/// Ends its process, as far as a test can, when the given piece of work begins: files are written and then indexed, slice by slice.
struct DiesAt {
    left: AtomicU64,
}

impl Progress for DiesAt {
    fn start(&self, _: u64) {
        assert_ne!(self.left.fetch_sub(1, Ordering::SeqCst), 1, "a process that ends");
    }

    fn advance(&self, _: u64) {}

    fn finish(&self) {}
}

#[tokio::test]
async fn the_next_migration_goes_on_where_slices_were_stopped() {
    for (at, left) in [(1, 8), (3, 6), (5, 4)] {
        let (folder, longest) = ordered();
        let table = keyed(folder.path()).await;
        replace_one_in_each(&table).await;
        let expected = rows(&table).await;
        let progress = Some(Arc::new(DiesAt { left: AtomicU64::new(at) }) as Arc<dyn Progress>);
        let max_bytes = Some(longest * 5 / 2);
        let options = MigrateOptions { max_bytes, progress, ..MigrateOptions::default() };
        let dies = tokio::spawn(async move { table.migrate(options).await });
        assert!(dies.await.unwrap_err().is_panic());
        assert_eq!(buffered(folder.path()).await, left, "stopped at {at}");
        let again = open(folder.path()).await;
        assert_eq!(rows(&again).await, expected, "stopped at {at}");
        let report = migrate(&again, longest * 5 / 2).await;
        assert_eq!((report.files_written, buffered(folder.path()).await), (left, 0), "stopped at {at}");
        assert_eq!(rows(&*open(folder.path()).await).await, expected, "stopped at {at}");
    }
}

/// Each slice but the last writes what it was asked to, and no file of the slices before it.
#[tokio::test]
async fn only_the_last_slice_fills_up_small_files() {
    let mut lake = Lake::new(&PLAIN, false);
    let adds = [lake.put("f.parquet", &in_order(0))];
    let before = lake.commit(&adds);
    let table = keyed(lake.root()).await;
    for run in 0..4 {
        make(&table, Operation::Insert, texts((0..6000).map(|k| 2001 + (run * 6000 + k) * 2))).await.unwrap();
        table.flush().await.unwrap();
    }
    let bytes: u64 = table.updates_info().await.unwrap().unwrap().cache_bytes;
    let report = migrate(&table, bytes / 6).await;
    let last = report.delta_version.unwrap();
    assert!(last >= before + 6, "{} slices", last - before);
    let removed = (before + 1..=last).map(|version| {
        let text = fs::read_to_string(lake.root().join(format!("_delta_log/{version:020}.json"))).unwrap();
        text.contains("\"remove\"")
    });
    let removed: Vec<bool> = removed.collect();
    assert_eq!(removed.iter().position(|is| *is), Some(removed.len() - 1), "{removed:?}");
    assert_eq!(rows(&*open(lake.root()).await).await.len(), 25_000);
}

/// A file of the second slice is damaged: what the first one did stays, and the error says so.
#[tokio::test]
async fn an_error_says_how_much_was_committed_before() {
    let (folder, longest) = ordered();
    let table = keyed(folder.path()).await;
    replace_one_in_each(&table).await;
    damage(&folder.path().join("f3.parquet"), 2);
    let options = MigrateOptions { max_bytes: Some(longest * 5 / 2), ..MigrateOptions::default() };
    let error = table.migrate(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(
        error.to_string().ends_with("1 commit of the migration was made before; migrate again to go on"),
        "{error}"
    );
    assert_eq!((migrations(&table).await, buffered(folder.path()).await), (1, 6));
}

/// Only the last commit says that all changes up to a number are in the table.
#[tokio::test]
async fn each_slice_of_a_delta_table_is_a_version() {
    let mut lake = Lake::new(&PLAIN, false);
    let adds: Vec<_> = (0..FILES).map(|file| lake.put(&format!("f{file}.parquet"), &in_order(file))).collect();
    let before = lake.commit(&adds);
    let table = keyed(lake.root()).await;
    replace_one_in_each(&table).await;
    let expected = rows(&table).await;
    let longest = fs::metadata(lake.root().join("f7.parquet")).unwrap().len();
    let report = migrate(&table, longest * 5 / 2).await;
    assert_eq!((report.files_written, report.delta_version), (8, Some(before + 4)));
    let commits = (before + 1..=before + 4).map(|version| {
        let text = fs::read_to_string(lake.root().join(format!("_delta_log/{version:020}.json"))).unwrap();
        (text.matches("\"add\"").count(), text.contains("-through"))
    });
    assert_eq!(commits.collect::<Vec<_>>(), [(2, false), (2, false), (2, false), (2, true)]);
    assert_eq!(rows(&*open(lake.root()).await).await, expected);
}
