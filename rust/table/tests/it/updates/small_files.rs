//! Migrations of few rows leave few files: they fill up small ones.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use lakemark_table::{MigrateOptions, MigrateReport, Operation, Snapshot, Table};

use super::{batch, damage, folder, keyed, keys, make, row, rows};
use crate::delta;
use crate::fixture::{equals, exact_rows, open, probe, write};

/// Rows that each migration inserts.
const ROWS: i64 = 10;

async fn migrate(table: &Arc<Table>) -> MigrateReport {
    table.migrate(MigrateOptions::default()).await.unwrap()
}

/// Ten new keys, far from each other and between those of other rounds.
fn inserted(round: i64) -> Vec<(i64, Option<i32>, Option<&'static str>)> {
    (0..ROWS).map(|place| (1001 + place * 2000 + round * 2, Some(round as i32), Some("new"))).collect()
}

/// Rows of the files of new rows, fewest first.
fn added(snapshot: &Snapshot) -> Vec<u32> {
    let files = snapshot.files().iter().filter(|file| file.path.rsplit('/').next().unwrap().starts_with("added-"));
    let mut rows: Vec<u32> = files.map(|file| file.row_groups.as_ref().unwrap().iter().sum()).collect();
    rows.sort_unstable();
    rows
}

#[tokio::test]
async fn a_hundred_migrations_of_ten_rows_leave_a_handful_of_files() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let mut expected = rows(&table).await;
    let (mut bytes, mut first, mut most) = (0, 0, 0);
    for round in 0..100 {
        make(&table, Operation::Insert, batch(&inserted(round))).await.unwrap();
        expected.extend(inserted(round).into_iter().map(|(k, a, s)| (k, row(a.unwrap(), s.unwrap()))));
        let report = migrate(&table).await;
        assert_eq!((report.rows, report.rows_replaced, report.files_written), (10, 0, 1), "round {round}");
        bytes += report.bytes_written;
        first = if round == 0 { bytes } else { first };
        most = most.max(added(&table.snapshot().await.unwrap()).len());
    }
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((most, added(&snapshot), snapshot.files().len()), (5, vec![30, 80, 890], 5));
    // 4,830 rows for 1,000: a file of many rows is smaller than many files of ten.
    assert!(bytes <= 483 * first, "{bytes} bytes, where the first migration wrote {first}");
    assert_eq!(rows(&table).await, expected);
    // The key's index covers the new files, and finds a row in the one that has it.
    let found = probe(&snapshot, &equals("k", 1001)).await;
    assert_eq!(found.files.iter().map(|file| exact_rows(file).len()).sum::<usize>(), 1);
}

/// Deletes and replacements make a file smaller or leave it as large, and it stays one that is filled up.
#[tokio::test]
async fn a_small_file_that_was_changed_is_still_filled_up() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Insert, batch(&inserted(0))).await.unwrap();
    migrate(&table).await;
    let changed = inserted(0)[0].0;
    make(&table, Operation::Upsert, batch(&[(changed, Some(7), Some("changed"))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[inserted(0)[1].0])).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written), (1, 1));
    assert_eq!(added(&table.snapshot().await.unwrap()), [9]);
    make(&table, Operation::Insert, batch(&inserted(1))).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.rows, report.files_replaced, report.files_written), (10, 1, 1));
    assert_eq!(added(&table.snapshot().await.unwrap()), [19]);
    let now = rows(&*open(folder.path()).await).await;
    assert_eq!((now.len(), now[&changed].clone()), (319, row(7, "changed")));
}

/// New rows need nothing of the files that are there: a damaged one among them is left as it is.
#[tokio::test]
async fn new_rows_are_migrated_though_a_small_file_is_damaged() {
    for column in 1..3 {
        let folder = folder();
        let table = keyed(folder.path()).await;
        make(&table, Operation::Insert, batch(&inserted(0))).await.unwrap();
        migrate(&table).await;
        let snapshot = table.snapshot().await.unwrap();
        let small = snapshot.files().iter().find(|file| file.path.contains("/added-")).unwrap();
        damage(&folder.path().join(&small.path), column);
        let again = open(folder.path()).await;
        make(&again, Operation::Upsert, batch(&inserted(1))).await.unwrap();
        let report = migrate(&again).await;
        assert_eq!((report.rows, report.files_replaced, report.files_written), (10, 0, 1), "column {column}");
        assert_eq!(added(&again.snapshot().await.unwrap()), [10, 10], "column {column}");
    }
}

/// A change of a row of a small file that comes while the file is filled up counts afterwards as before.
#[tokio::test]
async fn changes_that_stay_buffered_count_over_rows_that_moved() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Insert, batch(&inserted(0))).await.unwrap();
    migrate(&table).await;
    let high = inserted(0)[9].0;
    make(&table, Operation::Upsert, batch(&[(high, Some(9), Some("high"))])).await.unwrap();
    make(&table, Operation::Insert, batch(&inserted(1)[..9])).await.unwrap();
    // The lowest nine of ten: the change of the highest key stays buffered, and its row moves.
    let report = table.migrate(MigrateOptions { fraction: 0.9, ..MigrateOptions::default() }).await.unwrap();
    assert_eq!((report.rows, report.rows_replaced, report.files_replaced), (9, 0, 1));
    for table in [table, open(folder.path()).await] {
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!((added(&snapshot), snapshot.buffered_rows().unwrap().row_count()), (vec![19], 1));
        let now = rows(&table).await;
        assert_eq!((now.len(), now[&high].clone()), (319, row(9, "high")));
    }
}

/// Files that were published are files of the folder, and are filled up there.
#[tokio::test]
async fn published_files_are_filled_up() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    for round in 0..9 {
        make(&table, Operation::Insert, batch(&inserted(round))).await.unwrap();
        migrate(&table).await;
        table.publish().await.unwrap();
    }
    let listed = |path: &Path| {
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("added-")).count()
    };
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!((listed(folder.path()), added(&snapshot)), (2, vec![10, 80]));
    assert_eq!(rows(&*open(folder.path()).await).await.len(), 390);
}

fn of_a_day(first: i32, count: i32) -> RecordBatch {
    let day = |_| Some(19_753);
    let day: ArrayRef = Arc::new((0..count).map(day).collect::<arrow::array::Date32Array>());
    let k: ArrayRef = Arc::new(Int32Array::from((first..first + count).collect::<Vec<_>>()));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["new"; count as usize]));
    RecordBatch::try_from_iter([("day", day), ("k", k), ("s", s)]).unwrap()
}

#[tokio::test]
async fn one_commit_takes_a_small_file_out_of_a_delta_table_and_puts_the_fuller_one_in() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &of_a_day(0, 3).project(&[1, 2]).unwrap());
    let mut actions = delta::opening(false, serde_json::json!({}));
    actions.push(delta::add(root, "a.parquet", Some("2024-01-31")));
    delta::commit(root, 0, &actions);
    let table = keyed(root).await;
    for round in 0..6 {
        make(&table, Operation::Insert, of_a_day(100 + round * 10, 10)).await.unwrap();
        let report = migrate(&table).await;
        assert_eq!((report.rows, report.files_written, report.delta_version), (10, 1, Some(round as u64 + 1)));
    }
    let snapshot = open(root).await.snapshot().await.unwrap();
    // Ten take ten, then twenty; the fourth ten are left beside these thirty, and the fifth take both.
    assert_eq!((added(&snapshot), snapshot.files().len()), (vec![10, 50], 3));
    let text = std::fs::read_to_string(root.join("_delta_log/00000000000000000005.json")).unwrap();
    let count = |action: &str| text.lines().filter(|line| line.starts_with(&format!("{{\"{action}\""))).count();
    assert_eq!((count("remove"), count("add")), (2, 1));
    let rows: u64 = snapshot
        .files()
        .iter()
        .filter_map(|file| file.row_groups.as_ref())
        .flatten()
        .map(|rows| u64::from(*rows))
        .sum();
    assert_eq!((rows, snapshot.buffered_rows().is_none()), (63, true));
}
