//! Delta tables that keep a feed of changes.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use serde_json::{Value, json};

use super::logs::{
    add, buffered, column, commit, committed, contents, data_files, inline_vector, migrated, opening, transaction,
};
use super::{RewriteFixture, expected, old_rows, open, pairs_of, positions, read, rows, with_column, write};
use crate::ErrorKind;
use crate::rewrite::delta;
use crate::rewrite::refill::SmallFile;

/// A table that keeps a feed of changes.
fn begin(root: &Path, partition: &[&str], files: &[Value]) {
    let protocol = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"]});
    let mut columns = vec![column("k", "integer"), column("s", "string")];
    columns.extend(partition.iter().map(|name| column(name, "string")));
    let mut actions = opening(protocol, &columns, partition, json!({"delta.enableChangeDataFeed": "true"}));
    actions.extend(files.iter().cloned());
    commit(root, 0, &actions);
}

/// The change files that a version names.
fn change_files(root: &Path, version: u64) -> Vec<Value> {
    let actions = committed(root, version).into_iter();
    actions.filter_map(|action| action.get("cdc").cloned()).collect()
}

/// The rows of a change file, in its order.
fn changes(root: &Path, file: &Value) -> Vec<(i32, String, String)> {
    changes_of(root, file, ["k", "s"])
}

/// The same, by the names that the file has for its columns.
fn changes_of(root: &Path, file: &Value, columns: [&str; 2]) -> Vec<(i32, String, String)> {
    let path = root.join(file["path"].as_str().unwrap());
    let kinds = read(&path).column_by_name("_change_type").unwrap().as_string::<i32>().clone();
    let rows = pairs_of(&path, columns).into_iter().zip(kinds.iter());
    rows.map(|((k, s), kind)| (k, s.unwrap(), kind.unwrap().to_owned())).collect()
}

/// The names of the columns of a file.
fn names(file: &RecordBatch) -> Vec<String> {
    file.schema().fields().iter().map(|field| field.name().clone()).collect()
}

fn told(rows: &[(i32, &str, &str)]) -> Vec<(i32, String, String)> {
    rows.iter().map(|(k, s, kind)| (*k, (*s).to_owned(), (*kind).to_owned())).collect()
}

/// All files below the folder of change files.
fn files_of_changes(root: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(root) else { return 0 };
    let count = |path: std::path::PathBuf| if path.is_dir() { files_of_changes(&path) } else { 1 };
    entries.map(|entry| count(entry.unwrap().path())).sum()
}

#[tokio::test]
async fn each_row_that_changes_is_in_a_change_file_with_what_became_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 6));
    write(&root.join("b.parquet"), &old_rows(10, 3));
    let mut first = add(root, "a.parquet", json!({}));
    first["add"]["deletionVector"] = inline_vector(&[3]);
    begin(root, &[], &[first, add(root, "b.parquet", json!({}))]);
    let table = open(root).await;
    // Replaces 1, deletes 4, inserts 20.
    let (_, rewritten) = migrated(&table, &buffered(), 1).await;
    let files = change_files(root, 1);
    let [of_file, of_new] = files.as_slice() else { panic!("{files:?}") };
    let want = [(1, "old", "update_preimage"), (4, "old", "delete"), (1, "one", "update_postimage")];
    assert_eq!(changes(root, of_file), told(&want));
    assert_eq!(changes(root, of_new), told(&[(20, "zwanzig", "insert")]));
    for (file, written) in files.iter().zip(&rewritten.changes) {
        assert!(file["path"].as_str().unwrap().starts_with("_change_data/cdc-"), "{file}");
        assert_eq!((&file["dataChange"], &file["size"]), (&json!(false), &json!(written.size)));
        assert_eq!(file["partitionValues"], json!({}));
    }
    assert_eq!(files_of_changes(&root.join("_change_data")), 2);
    let want = [(0, "old"), (1, "one"), (2, "old"), (5, "old"), (10, "old"), (11, "old"), (12, "old"), (20, "zwanzig")];
    assert_eq!(contents(root).await, expected(&want));
}

#[tokio::test]
async fn a_migration_that_inserts_alone_needs_no_change_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    begin(root, &[], &[add(root, "a.parquet", json!({}))]);
    let table = open(root).await;
    migrated(&table, &RewriteFixture::new(vec![None], vec![rows(&[(20, "new")])]), 1).await;
    assert_eq!((change_files(root, 1).len(), root.join("_change_data").exists()), (0, false));
}

#[tokio::test]
async fn a_row_that_moves_to_another_partition_is_an_update_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("p=x/a.parquet"), &old_rows(0, 3));
    begin(root, &["p"], &[add(root, "p=x/a.parquet", json!({"p": "x"}))]);
    let table = open(root).await;
    let new = with_column(&rows(&[(2, "moved"), (7, "new")]), "p", &[Some("y"), Some("y")]);
    migrated(&table, &RewriteFixture::new(vec![positions(&[1, 2], 3)], vec![new]), 1).await;
    let files = change_files(root, 1);
    let [from, to] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((&from["partitionValues"], &to["partitionValues"]), (&json!({"p": "x"}), &json!({"p": "y"})));
    assert!(to["path"].as_str().unwrap().starts_with("_change_data/p=y/cdc-"), "{to}");
    assert_eq!(changes(root, from), told(&[(1, "old", "delete"), (2, "old", "update_preimage")]));
    assert_eq!(changes(root, to), told(&[(2, "moved", "update_postimage"), (7, "new", "insert")]));
}

#[tokio::test]
async fn a_file_of_which_nothing_is_left_has_its_rows_in_the_feed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    let mut file = add(root, "a.parquet", json!({}));
    file["add"]["deletionVector"] = inline_vector(&[1]);
    begin(root, &[], &[file]);
    let table = open(root).await;
    let (_, rewritten) = migrated(&table, &RewriteFixture::new(vec![positions(&[0, 2], 3)], Vec::new()), 1).await;
    assert_eq!((rewritten.files.len(), rewritten.replaced), (0, vec![0]));
    let files = change_files(root, 1);
    let [only] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(changes(root, only), told(&[(0, "old", "delete"), (2, "old", "delete")]));
}

/// Readers of change files find columns as those of data files do. What rows are called is in data files alone.
#[tokio::test]
async fn change_files_have_stored_names_with_ids_and_nothing_of_what_rows_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let [k, s] = [0, 1].map(|column| old_rows(0, 3).column(column).clone());
    write(&root.join("a.parquet"), &RecordBatch::try_from_iter([("c-k", k), ("c-s", s)]).unwrap());
    let column = |id: usize, shown: &str, kind: &str| {
        json!({"name": shown, "type": kind, "nullable": true,
            "metadata": {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("c-{shown}")}})
    };
    let columns = [column(1, "k", "integer"), column(2, "s", "string"), column(3, "p", "string")];
    let protocol = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"],
        "writerFeatures": ["columnMapping", "changeDataFeed", "rowTracking", "domainMetadata"]});
    let configuration = json!({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3",
        "delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version"});
    let mut actions = opening(protocol, &columns, &["p"], configuration);
    let mut file = add(root, "a.parquet", json!({"c-p": "x"}));
    (file["add"]["baseRowId"], file["add"]["defaultRowCommitVersion"]) = (json!(0), json!(0));
    let greatest = json!({"rowIdHighWaterMark": 2}).to_string();
    actions.extend([
        json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration": greatest, "removed": false}}),
        file,
    ]);
    commit(root, 0, &actions);
    let table = open(root).await;
    let new = with_column(&rows(&[(2, "moved"), (1, "one")]), "p", &[Some("y"), Some("x")]);
    let (_, rewritten) = migrated(&table, &RewriteFixture::new(vec![positions(&[1, 2], 3)], vec![new]), 1).await;

    let files = change_files(root, 1);
    let [here, moved] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((&here["partitionValues"], &moved["partitionValues"]), (&json!({"c-p": "x"}), &json!({"c-p": "y"})));
    let want = [(1, "old", "update_preimage"), (2, "old", "update_preimage"), (1, "one", "update_postimage")];
    assert_eq!(changes_of(root, here, ["c-k", "c-s"]), told(&want));
    assert_eq!(changes_of(root, moved, ["c-k", "c-s"]), told(&[(2, "moved", "update_postimage")]));
    for file in &files {
        let file = read(&root.join(file["path"].as_str().unwrap()));
        assert_eq!(names(&file), ["c-k", "c-s", "_change_type"]);
        let schema = file.schema();
        let ids = schema.fields().iter().map(|field| field.metadata().get("PARQUET:field_id").cloned());
        assert_eq!(ids.collect::<Vec<_>>(), [Some("1".to_owned()), Some("2".to_owned()), None]);
    }
    assert_eq!(names(&read(&root.join(&rewritten.files[0].path))), ["c-k", "c-s", "_row-id", "_row-version"]);
}

#[tokio::test]
async fn rows_of_a_small_file_that_is_filled_up_did_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    begin(root, &[], &[add(root, "a.parquet", json!({}))]);
    let table = open(root).await;
    let mut buffered = RewriteFixture::new(vec![None], vec![rows(&[(1_000, "new"), (-1, "new")])]);
    buffered.small = vec![SmallFile { number: 0, rows: Arc::new(old_rows(0, 3)) }];
    migrated(&table, &buffered, 1).await;
    let files = change_files(root, 1);
    let [only] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(changes(root, only), told(&[(-1, "new", "insert"), (1_000, "new", "insert")]));
}

#[tokio::test]
async fn change_files_of_a_commit_that_others_prevent_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    write(&root.join("a.parquet"), &old_rows(0, 6));
    write(&root.join("b.parquet"), &old_rows(10, 3));
    begin(&root, &[], &[add(&root, "a.parquet", json!({})), add(&root, "b.parquet", json!({}))]);
    let table = open(&root).await;
    let snapshot = table.snapshot().await.unwrap();
    let (buffered, ours) = (buffered(), transaction(1));
    let input = buffered.input();
    let theirs = root.clone();
    let outcome = delta::migrate_then(&table.base().location, &snapshot, &input, &ours, || {
        assert_eq!(files_of_changes(&theirs.join("_change_data")), 2);
        let removed = json!({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": true}});
        commit(&theirs, 1, &[removed]);
    });
    assert_eq!(outcome.await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((files_of_changes(&root.join("_change_data")), data_files(&root)), (0, 2));
}
