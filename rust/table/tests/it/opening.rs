//! Tables that are opened again in a process: what another handle found serves the new one, as far as it still holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{BuildOptions, Change, DataFile, Operation, Snapshot, Table, TableOptions, WriteOptions};
use object_store::ObjectStoreExt;
use serde_json::json;

use crate::delta::{add, commit, inline_vector, opening};
use crate::fixture::{batch, create_indexes, equals, exact_rows, folder, k_values, probe, rows_of, write};

const HOUR: Duration = Duration::from_secs(3600);

async fn open(root: &Path) -> Arc<Table> {
    open_with(root, TableOptions::default()).await
}

async fn open_with(root: &Path, options: TableOptions) -> Arc<Table> {
    Table::open(root.to_str().unwrap(), options).await.unwrap()
}

/// What was written just now may still be changing, and nothing of it is remembered.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn paths(table: &Table) -> Vec<String> {
    table.snapshot().await.unwrap().files().iter().map(|file| file.path.clone()).collect()
}

/// A folder with indexes, and a handle that has looked.
async fn indexed(files: usize) -> (tempfile::TempDir, Arc<Table>, Arc<Snapshot>) {
    let folder = folder(files);
    settle().await;
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    (folder, table, snapshot)
}

/// Requests of a handle that read files, and those that look at one.
fn requests(table: &Table) -> (u64, u64) {
    let metrics = table.metrics();
    (metrics.get.requests.get(), metrics.head.requests.get())
}

/// A Delta table with these files.
fn delta(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut actions = opening(false, json!({}));
    for (file, name) in names.iter().enumerate() {
        write(&folder.path().join(name), &batch(file * 250, 250));
        actions.push(add(folder.path(), name, None));
    }
    commit(folder.path(), 0, &actions);
    folder
}

#[tokio::test]
async fn a_second_handle_of_a_folder_reads_nothing_that_the_first_one_has_read() {
    let (folder, first, snapshot) = indexed(3).await;
    let second = open(folder.path()).await;
    let again = second.snapshot().await.unwrap();
    assert!(again.files().is_same_list(snapshot.files()) && again.has_indexes());
    assert_eq!(requests(&second), (0, 0));
    assert!(second.metrics().list.requests.get() > 0, "what is there was compared");
    // What the second one reads, it reads and counts itself.
    let of_first = requests(&first);
    let found = probe(&again, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    let heads = requests(&second).1;
    again.object_store().head(&again.files().get(0).unwrap().meta.location).await.unwrap();
    assert_eq!((requests(&first), requests(&second).1), (of_first, heads + 1));
}

#[tokio::test]
async fn a_table_that_nobody_has_open_any_more_is_remembered() {
    let (folder, first, snapshot) = indexed(3).await;
    drop(first);
    let second = open(folder.path()).await;
    assert!(second.snapshot().await.unwrap().files().is_same_list(snapshot.files()));
    assert_eq!(requests(&second), (0, 0));
    // A handle by itself takes nothing of that.
    let alone = Table::open_alone(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    assert!(!alone.snapshot().await.unwrap().files().is_same_list(snapshot.files()));
    assert!(requests(&alone).0 > 0);
}

#[tokio::test]
async fn what_changed_between_is_seen_by_the_handle_that_is_opened_then() {
    let (folder, first, before) = indexed(3).await;
    write(&folder.path().join("f0003.parquet"), &batch(750, 250));
    fs::remove_file(folder.path().join("f0000.parquet")).unwrap();
    write(&folder.path().join("f0001.parquet"), &batch(7, 250));
    let other = Table::open_alone(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    other.build(BuildOptions::default()).await.unwrap();
    let second = open(folder.path()).await;
    let now = second.snapshot().await.unwrap();
    assert_eq!(paths(&second).await, ["f0001.parquet", "f0002.parquet", "f0003.parquet"]);
    let found = probe(&now, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[0]), rows_of(&k_values(7, 250), 3));
    assert_eq!(exact_rows(&found.files[2]), rows_of(&k_values(750, 250), 3));
    assert_eq!(before.files().len(), 3);
    assert_eq!(paths(&first).await, paths(&second).await);
}

#[tokio::test]
async fn a_folder_that_was_made_anew_is_another_table() {
    let (folder, _first, before) = indexed(3).await;
    let root = folder.path();
    fs::remove_dir_all(root).unwrap();
    assert!(Table::open(root.to_str().unwrap(), TableOptions::default()).await.is_err());
    for file in 0..2 {
        write(&root.join(format!("f000{file}.parquet")), &batch(file * 250, 250));
    }
    let second = open(root).await;
    let now = second.snapshot().await.unwrap();
    assert_eq!((now.files().len(), now.has_indexes(), now.manifest_number()), (2, false, None));
    assert!(!now.files().is_same_list(before.files()));
    // A Delta table in its place is read by its log.
    commit(root, 0, &[opening(false, json!({})), vec![add(root, "f0001.parquet", None)]].concat());
    let third = open(root).await;
    assert_eq!(paths(&third).await, ["f0001.parquet"]);
    assert_eq!(third.snapshot().await.unwrap().delta_version(), Some(0));
}

#[tokio::test]
async fn another_store_has_its_own_indexes() {
    let (folder, _first, _) = indexed(2).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let store = Some(elsewhere.path().display().to_string());
    let other = open_with(folder.path(), TableOptions { store, ..TableOptions::default() }).await;
    assert!(!other.snapshot().await.unwrap().has_indexes());
    assert!(open(folder.path()).await.snapshot().await.unwrap().has_indexes());
}

#[tokio::test]
async fn a_second_handle_of_a_log_looks_at_its_last_commit_and_the_next() {
    let folder = delta(&["a.parquet", "b.parquet"]);
    let root = folder.path();
    let first = open(root).await;
    create_indexes(&first).await;
    let snapshot = first.snapshot().await.unwrap();
    let second = open(root).await;
    assert!(second.snapshot().await.unwrap().files().is_same_list(snapshot.files()));
    assert_eq!(requests(&second), (0, 2));
    // Of a log that grew the new commit is read, and that no other one follows.
    write(&root.join("c.parquet"), &batch(500, 250));
    commit(root, 1, &[add(root, "c.parquet", None)]);
    let third = open(root).await;
    let grown = third.snapshot().await.unwrap();
    assert_eq!((grown.delta_version(), grown.files().len(), grown.has_indexes()), (Some(1), 3, true));
    assert!(first.snapshot().await.unwrap().files().len() == 3 && second.snapshot().await.unwrap().files().len() == 3);
    // A table that was made anew with as many commits, later than the clock of the file system counts.
    settle().await;
    fs::remove_dir_all(root.join("_delta_log")).unwrap();
    commit(root, 0, &[opening(false, json!({})), vec![add(root, "a.parquet", None)]].concat());
    commit(root, 1, &[add(root, "b.parquet", None)]);
    assert_eq!(paths(&*open(root).await).await, ["a.parquet", "b.parquet"]);
}

#[tokio::test]
async fn deleted_rows_of_a_log_are_known_to_the_second_handle() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &batch(0, 250));
    let mut with_vector = add(root, "a.parquet", None);
    with_vector["add"]["deletionVector"] = inline_vector(&[3]);
    commit(root, 0, &[opening(true, json!({"delta.enableDeletionVectors": "true"})), vec![with_vector]].concat());
    for table in [open(root).await, open(root).await] {
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!(snapshot.files().get(0).unwrap().deleted.as_ref().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_handle_that_takes_old_answers_begins_with_the_last_look_of_another_one() {
    let (folder, first, _) = indexed(2).await;
    let stale = || open_with(folder.path(), TableOptions { max_staleness: HOUR, ..TableOptions::default() });
    let second = stale().await;
    write(&folder.path().join("f0002.parquet"), &batch(500, 250));
    assert_eq!((paths(&second).await.len(), second.metrics().listings.get()), (2, 0));
    // Who takes none looks. A handle that is open does not follow, and one that is opened then does.
    assert_eq!((paths(&*open(folder.path()).await).await.len(), paths(&first).await.len()), (3, 3));
    assert_eq!((paths(&second).await.len(), paths(&*stale().await).await.len()), (2, 3));
    // Changes of ours are seen at once.
    first.drop_index(&first.snapshot().await.unwrap().indexes()[0].name, false).await.unwrap();
    assert!(!stale().await.snapshot().await.unwrap().has_indexes());
}

#[tokio::test]
async fn the_last_look_of_a_handle_that_is_gone_counts_while_others_are_open() {
    let (folder, first, _) = indexed(2).await;
    write(&folder.path().join("f0002.parquet"), &batch(500, 250));
    assert_eq!(paths(&*open(folder.path()).await).await.len(), 3);
    let stale = async || {
        let table = open_with(folder.path(), TableOptions { max_staleness: HOUR, ..TableOptions::default() }).await;
        paths(&table).await.len()
    };
    assert_eq!(stale().await, 3);
    // What the first one remembers is older.
    drop(first);
    assert_eq!(stale().await, 3);
}

#[tokio::test]
async fn what_is_buffered_is_seen_by_the_handle_that_is_opened_then() {
    let folder = folder(0);
    let keys = |first: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 5));
        RecordBatch::try_from_iter([("k", column)]).unwrap()
    };
    write(&folder.path().join("f.parquet"), &keys(0));
    settle().await;
    let first = open(folder.path()).await;
    first.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    assert_eq!(open(folder.path()).await.snapshot().await.unwrap().rows(), Some(5));
    let change = Change { operation: Operation::Insert, rows: keys(5) };
    first.write(vec![change], WriteOptions::default()).await.unwrap();
    let second = open(folder.path()).await;
    let snapshot = second.snapshot().await.unwrap();
    assert_eq!((snapshot.rows(), snapshot.buffered_rows().unwrap().row_count()), (Some(10), 5));
}

/// A log that has an action of which we know nothing is read by the Delta library.
#[tokio::test]
async fn a_short_log_has_the_files_that_the_delta_library_reads() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let names = ["a.parquet", "b b.parquet", "c%20.parquet", "d.parquet"];
    for (file, name) in names.iter().enumerate() {
        write(&root.join(name), &batch(file * 250, 250));
    }
    let mut begun = opening(true, json!({"delta.enableDeletionVectors": "true"}));
    begun.push(add(root, "a.parquet", Some("2024-01-31")));
    begun.push(add(root, "d.parquet", None));
    commit(root, 0, &begun);
    let mut with_vector = add(root, "a.parquet", Some("2024-01-31"));
    with_vector["add"]["deletionVector"] = inline_vector(&[3, 7]);
    let remove = |path: &str| json!({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": true}});
    commit(root, 1, &[remove("a.parquet"), with_vector, remove("d.parquet")]);
    let mut escaped = add(root, "b b.parquet", Some("2024-02-01"));
    escaped["add"]["path"] = json!("b%20b.parquet");
    let mut percent = add(root, "c%20.parquet", None);
    percent["add"]["path"] = json!("c%2520.parquet");
    commit(root, 2, &[escaped, percent, json!({"txn": {"appId": "x", "version": 1}})]);
    let said = async || {
        let table = Table::open_alone(root.to_str().unwrap(), TableOptions::default()).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        let file = |file: &DataFile| {
            let deleted: Vec<u32> =
                file.deleted.iter().flat_map(|deleted| deleted.iter().collect::<Vec<_>>()).collect();
            (file.path.clone(), file.meta.clone(), format!("{:?}", file.partition_values), deleted)
        };
        snapshot.files().iter().map(file).collect::<Vec<_>>()
    };
    let short = said().await;
    assert_eq!(short.iter().map(|file| file.0.as_str()).collect::<Vec<_>>(), &names[..3]);
    assert_eq!(short[0].3, [3, 7]);
    commit(root, 3, &[json!({"somethingNew": {}})]);
    assert_eq!(said().await, short);
}

#[tokio::test]
async fn a_log_has_the_same_files_whoever_reads_it_as_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let file = |version: u64| {
        json!({"add": {"path": format!("f{version:02}.parquet"), "partitionValues": {"day": null}, "size": version + 1,
            "modificationTime": 1_700_000_000_000u64, "dataChange": true, "stats": "{\"numRecords\":1}"}})
    };
    commit(root, 0, &[opening(false, json!({})), vec![file(0)]].concat());
    for version in 1..36 {
        commit(root, version, &[file(version)]);
        // Up to the version 31 a log is short.
        if version >= 30 {
            let table = Table::open_alone(root.to_str().unwrap(), TableOptions::default()).await.unwrap();
            let snapshot = table.snapshot().await.unwrap();
            let sizes: Vec<u64> = snapshot.files().iter().map(|file| file.meta.size).collect();
            assert_eq!(sizes, (1..=version + 1).collect::<Vec<_>>());
        }
    }
}
