//! `max_staleness`: for so long a reader goes by the data files that it found before. What is buffered, and whatever we move ourselves, it
//! sees at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{
    BuildOptions, Change, ErrorKind, MigrateOptions, Operation, Snapshot, Table, TableOptions, WriteOptions,
};
use object_store::ObjectStore;
use serde_json::json;

use crate::delta::{add, commit, opening};
use crate::fixture::{batch, create_indexes, folder, open, write};
use crate::layer::{Layer, Log};
use crate::updates::overtaken::counted;

const HOUR: Duration = Duration::from_secs(3600);

async fn watched(root: &Path, options: TableOptions) -> (Arc<Table>, Arc<Log>) {
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(root.to_str().unwrap(), options, &layer).await.unwrap();
    (table, log)
}

async fn stale(root: &Path) -> (Arc<Table>, Arc<Log>) {
    watched(root, TableOptions { max_staleness: HOUR, ..TableOptions::default() }).await
}

/// How often the table's folder was listed since the last time.
fn looks(log: &Log) -> usize {
    let listings = log.matching("list_with_delimiter");
    log.clear();
    listings.iter().filter(|listing| !listing.contains("/_lakemark")).count()
}

fn numbers(values: &[i64]) -> RecordBatch {
    let [k, a]: [ArrayRef; 2] = [0, 1000]
        .map(|more| Arc::new(Int64Array::from_iter_values(values.iter().map(|value| value + more))) as ArrayRef);
    RecordBatch::try_from_iter([("k", k), ("a", a)]).unwrap()
}

/// Keys 0 to 9 and 10 to 19 in two files.
async fn keyed() -> (tempfile::TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..2 {
        let keys: Vec<i64> = (file * 10..file * 10 + 10).collect();
        write(&folder.path().join(format!("f{file}.parquet")), &numbers(&keys));
    }
    let table = open(folder.path()).await;
    table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    (folder, table)
}

fn change(operation: Operation, keys: &[i64]) -> Change {
    let rows = numbers(keys);
    let rows = if operation == Operation::Delete { rows.project(&[0]).unwrap() } else { rows };
    Change { operation, rows }
}

async fn make(table: &Arc<Table>, operation: Operation, keys: &[i64]) {
    table.write(vec![change(operation, keys)], WriteOptions::default()).await.unwrap();
}

fn files(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.files().iter().map(|file| file.path.as_str()).collect()
}

#[tokio::test]
async fn a_listing_is_used_again_as_long_as_the_option_says() {
    let folder = folder(2);
    let (table, log) = stale(folder.path()).await;
    let (fresh, fresh_log) = watched(folder.path(), TableOptions::default()).await;
    assert_eq!((table.snapshot().await.unwrap().files().len(), looks(&log)), (2, 1));
    write(&folder.path().join("g.parquet"), &batch(0, 10));
    for _ in 0..3 {
        assert_eq!((table.snapshot().await.unwrap().files().len(), looks(&log)), (2, 0));
        assert_eq!((fresh.snapshot().await.unwrap().files().len(), looks(&fresh_log)), (3, 1));
    }
    assert_eq!((table.snapshot_of_files().await.unwrap().files().len(), looks(&log)), (2, 0));
    // Indexes are in the store, whose newest manifest is read each time.
    create_indexes(&fresh).await;
    let indexed = table.snapshot().await.unwrap();
    assert_eq!((indexed.indexes().len(), indexed.files().len()), (1, 2));
    // A build looks: it is about the files that are there.
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 0);
    assert_eq!(table.snapshot().await.unwrap().files().len(), 3);
}

#[tokio::test]
async fn buffered_changes_of_anybody_are_seen_at_once() {
    let (folder, writer) = keyed().await;
    let (reader, log) = stale(folder.path()).await;
    assert_eq!(counted(&reader.snapshot().await.unwrap()).await, 20);
    make(&writer, Operation::Upsert, &[100, 101]).await;
    make(&reader, Operation::Delete, &[0]).await;
    assert_eq!(counted(&reader.snapshot().await.unwrap()).await, 21);
    writer.flush().await.unwrap();
    make(&reader, Operation::Delete, &[100]).await;
    looks(&log);
    assert_eq!((counted(&reader.snapshot().await.unwrap()).await, looks(&log)), (20, 0));
}

#[tokio::test]
async fn migrations_and_publications_of_anybody_are_seen_at_once() {
    for is_own in [true, false] {
        let (folder, other) = keyed().await;
        let (reader, log) = stale(folder.path()).await;
        let writer = if is_own { &reader } else { &other };
        reader.snapshot().await.unwrap();
        make(writer, Operation::Upsert, &[5, 100]).await;
        make(writer, Operation::Delete, &[15]).await;
        for step in 0..3 {
            match step {
                0 => writer.migrate(MigrateOptions::default()).await.map(|_| ()).unwrap(),
                1 => writer.publish().await.map(|_| ()).unwrap(),
                _ => make(writer, Operation::Delete, &[16]).await,
            }
            let snapshot = reader.snapshot().await.unwrap();
            assert_eq!(counted(&snapshot).await, if step < 2 { 20 } else { 19 }, "{step} {:?}", files(&snapshot));
            looks(&log);
            reader.snapshot().await.unwrap();
            assert_eq!(looks(&log), 0, "{step}");
        }
    }
}

#[tokio::test]
async fn where_a_file_of_then_is_gone_and_needed_the_newest_state_is_read() {
    let (folder, writer) = keyed().await;
    let (reader, _) = stale(folder.path()).await;
    assert_eq!(files(&reader.snapshot().await.unwrap()), ["f0.parquet", "f1.parquet"]);
    fs::remove_file(folder.path().join("f1.parquet")).unwrap();
    // The rest of the row would come from that file.
    make(&writer, Operation::Update, &[13]).await;
    let snapshot = reader.snapshot().await.unwrap();
    assert_eq!((files(&snapshot), counted(&snapshot).await), (vec!["f0.parquet"], 10));
}

#[tokio::test]
async fn checks_of_changes_look_at_the_files_that_are_there() {
    let (folder, _) = keyed().await;
    let (table, _) = stale(folder.path()).await;
    let read = table.snapshot().await.unwrap();
    write(&folder.path().join("f2.parquet"), &numbers(&[30]));
    let error = table.write(vec![change(Operation::Insert, &[30])], WriteOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("k = 30 is there already"), "{error}");
    let delete = vec![change(Operation::Delete, &[30])];
    let options = WriteOptions { read: Some(read), ..WriteOptions::default() };
    assert_eq!(table.write(delete.clone(), options).await.unwrap_err().kind(), ErrorKind::Conflict);
    // What the check found is what is read from now on, so that it can be tried again.
    let options = WriteOptions { read: Some(table.snapshot().await.unwrap()), ..WriteOptions::default() };
    table.write(delete, options).await.unwrap();
    assert_eq!(counted(&table.snapshot().await.unwrap()).await, 20);
}

#[tokio::test]
async fn versions_are_what_they_are() {
    let (folder, writer) = keyed().await;
    let (table, log) = stale(folder.path()).await;
    let version = table.history(Some(1)).await.unwrap()[0].version;
    table.snapshot().await.unwrap();
    make(&writer, Operation::Delete, &[1, 2, 3]).await;
    writer.migrate(MigrateOptions::default()).await.unwrap();
    let options = TableOptions { max_staleness: HOUR, version: Some(version), ..TableOptions::default() };
    for (at, log) in [(table.at_version(version), log), watched(folder.path(), options).await] {
        for _ in 0..2 {
            looks(&log);
            assert_eq!(counted(&at.snapshot().await.unwrap()).await, 20);
            assert!(looks(&log) > 0, "each look at a version lists the folder");
        }
    }
}

#[tokio::test]
async fn a_delta_log_is_looked_at_as_late_as_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &batch(0, 250));
    commit(root, 0, &[opening(false, json!({})), vec![add(root, "a.parquet", None)]].concat());
    let (table, log) = stale(root).await;
    table.snapshot().await.unwrap();
    write(&root.join("b.parquet"), &batch(250, 250));
    commit(root, 1, &[add(root, "b.parquet", None)]);
    log.clear();
    assert_eq!(table.snapshot().await.unwrap().delta_version(), Some(0));
    assert_eq!(log.matching("_delta_log"), Vec::<String>::new());
    // Who builds looks, and readers of the same table see what was found.
    create_indexes(&table).await;
    assert_eq!(table.snapshot().await.unwrap().delta_version(), Some(1));
}
