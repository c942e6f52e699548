//! Delta tables that track their rows, and those whose commits have a time.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use serde_json::{Value, json};

use super::logs::{add, column, commit, committed, migrated, opening, transaction};
use super::{RewriteFixture, expected, old_rows, open, pairs, positions, read, rows, with_column, write};
use crate::rewrite::delta;
use crate::rewrite::delta::MigrationOutcome;
use crate::rewrite::refill::SmallFile;

/// The columns that keep what rows are called.
const IDS: [&str; 2] = ["_row-id", "_row-version"];

fn protocol(features: &[&str]) -> Value {
    json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features})
}

fn enabled() -> Value {
    json!({
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": IDS[0],
        "delta.rowTracking.materializedRowCommitVersionColumnName": IDS[1],
    })
}

fn greatest(id: i64) -> Value {
    let configuration = json!({"rowIdHighWaterMark": id}).to_string();
    json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": false}})
}

fn tracked(root: &Path, path: &str, partition: Value, base: i64, version: i64) -> Value {
    let mut file = add(root, path, partition);
    file["add"]["baseRowId"] = json!(base);
    file["add"]["defaultRowCommitVersion"] = json!(version);
    file
}

/// A table of these files, whose rows have ids up to 300.
fn begin(root: &Path, partition: &[&str], configuration: Value, files: Vec<Value>) {
    let mut columns = vec![column("k", "integer"), column("s", "string")];
    columns.extend(partition.iter().map(|name| column(name, "string")));
    let mut actions =
        opening(protocol(&["rowTracking", "domainMetadata", "appendOnly"]), &columns, partition, configuration);
    actions.push(greatest(300));
    actions.extend(files);
    commit(root, 0, &actions);
}

/// Ids and versions of the rows of a file.
fn ids(path: &Path) -> (Vec<Option<i64>>, Vec<Option<i64>>) {
    let batch = read(path);
    let [ids, versions] = IDS.map(|name| {
        let numbers = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
        numbers.iter().collect::<Vec<_>>()
    });
    (ids, versions)
}

fn with_ids(batch: &RecordBatch, ids: Vec<Option<i64>>, versions: Vec<Option<i64>>) -> RecordBatch {
    let names = batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let columns = names.into_iter().zip(batch.columns().iter().cloned());
    let more: [(String, ArrayRef); 2] = [
        (IDS[0].to_owned(), Arc::new(Int64Array::from(ids))),
        (IDS[1].to_owned(), Arc::new(Int64Array::from(versions))),
    ];
    let columns = columns.chain(more).map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// The actions of one kind.
fn of_kind<'a>(actions: &'a [Value], kind: &str) -> Vec<&'a Value> {
    actions.iter().filter_map(|action| action.get(kind)).collect()
}

#[tokio::test]
async fn rows_keep_their_ids_when_their_files_are_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 6));
    let moved_before = with_ids(&old_rows(10, 3), vec![Some(7), None, Some(9)], vec![Some(1), Some(2), None]);
    write(&root.join("b.parquet"), &moved_before);
    let files = vec![tracked(root, "a.parquet", json!({}), 100, 3), tracked(root, "b.parquet", json!({}), 200, 4)];
    begin(root, &[], enabled(), files);
    let table = open(root).await;
    let new = rows(&[(20, "new"), (1, "new"), (11, "new")]);
    let buffered = RewriteFixture::new(vec![positions(&[1, 4], 6), positions(&[1], 3)], vec![new]);
    let (_, rewritten) = migrated(&table, &buffered, 1).await;

    let [a, b, added] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    let at = |path: &str| root.join(path);
    assert_eq!(pairs(&at(&a.path)), expected(&[(0, "old"), (1, "new"), (2, "old"), (3, "old"), (5, "old")]));
    let (some, stays) = (|id: i64| Some(id), Some(3));
    assert_eq!(
        ids(&at(&a.path)),
        ([100, 101, 102, 103, 105].map(some).to_vec(), vec![stays, None, stays, stays, stays])
    );
    assert_eq!(ids(&at(&b.path)), ([7, 201, 9].map(some).to_vec(), vec![Some(1), None, Some(4)]));
    assert_eq!(ids(&at(&added.path)), (vec![None], vec![None]));

    let actions = committed(root, 1);
    let numbers = |action: &Value| [&action["baseRowId"], &action["defaultRowCommitVersion"]].map(Value::as_i64);
    let of = |kind: &str| of_kind(&actions, kind).into_iter().map(numbers).collect::<Vec<_>>();
    assert_eq!(of("add"), [[Some(301), Some(1)], [Some(306), Some(1)], [Some(309), Some(1)]]);
    assert_eq!(of("remove"), [[Some(100), Some(3)], [Some(200), Some(4)]]);
    assert_eq!(of_kind(&actions, "domainMetadata"), [&greatest(309)["domainMetadata"]]);
    assert_eq!(actions[0]["commitInfo"]["tags"], json!({"delta.rowTracking.preserved": "true"}));
}

#[tokio::test]
async fn a_row_that_moves_to_another_partition_keeps_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("p=x/a.parquet"), &old_rows(0, 3));
    begin(root, &["p"], enabled(), vec![tracked(root, "p=x/a.parquet", json!({"p": "x"}), 100, 3)]);
    let table = open(root).await;
    let new = with_column(&rows(&[(2, "moved"), (7, "new")]), "p", &[Some("y"), Some("y")]);
    let buffered = RewriteFixture::new(vec![positions(&[2], 3)], vec![new]);
    let (_, rewritten) = migrated(&table, &buffered, 1).await;
    let [left, moved] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    assert_eq!(ids(&root.join(&left.path)), (vec![Some(100), Some(101)], vec![Some(3); 2]));
    assert_eq!(pairs(&root.join(&moved.path)), expected(&[(2, "moved"), (7, "new")]));
    assert_eq!(ids(&root.join(&moved.path)), (vec![Some(102), None], vec![None; 2]));
}

#[tokio::test]
async fn rows_of_a_small_file_that_is_filled_up_keep_ids_and_versions() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    begin(root, &[], enabled(), vec![tracked(root, "a.parquet", json!({}), 100, 3)]);
    let table = open(root).await;
    let mut buffered = RewriteFixture::new(vec![None], vec![rows(&[(1_000, "new"), (-1, "new")])]);
    buffered.small = vec![SmallFile { number: 0, rows: Arc::new(old_rows(0, 3)) }];
    let (_, rewritten) = migrated(&table, &buffered, 1).await;
    let [file] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    let want = [(-1, "new"), (0, "old"), (1, "old"), (2, "old"), (1_000, "new")];
    assert_eq!(pairs(&root.join(&file.path)), expected(&want));
    let (kept, version) = (|id: i64| Some(100 + id), Some(3));
    let (some, none) = ([0, 1, 2].map(kept), None);
    assert_eq!(
        ids(&root.join(&file.path)),
        (vec![none, some[0], some[1], some[2], none], vec![none, version, version, version, none])
    );
}

#[tokio::test]
async fn ids_are_above_those_that_others_gave_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    // Supported and not enabled: rows get ids, and need not keep them.
    begin(&root, &[], json!({}), vec![tracked(&root, "a.parquet", json!({}), 100, 0)]);
    let table = open(&root).await;
    let snapshot = table.snapshot().await.unwrap();
    let buffered = RewriteFixture::new(vec![positions(&[1], 3)], vec![rows(&[(1, "new")])]);
    let (input, ours) = (buffered.input(), transaction(5));
    let theirs = root.clone();
    let outcome = delta::migrate_then(&table.base().location, &snapshot, &input, &ours, || {
        commit(&theirs, 1, &[greatest(400), json!({"txn": {"appId": "other", "version": 9}})]);
    });
    let MigrationOutcome::Committed { version: 2, rewritten } = outcome.await.unwrap() else { panic!("no commit") };
    let [file] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    let names: Vec<_> =
        read(&root.join(&file.path)).schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["k", "s"]);
    let actions = committed(&root, 2);
    let added = of_kind(&actions, "add")[0];
    assert_eq!((&added["baseRowId"], &added["defaultRowCommitVersion"]), (&json!(401), &json!(2)));
    assert_eq!(of_kind(&actions, "domainMetadata"), [&greatest(403)["domainMetadata"]]);
    assert_eq!(actions[0]["commitInfo"]["tags"], json!({"delta.rowTracking.preserved": "false"}));
}

#[tokio::test]
async fn a_file_of_which_the_log_says_no_ids_is_not_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    begin(root, &[], enabled(), vec![add(root, "a.parquet", json!({}))]);
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    let buffered = RewriteFixture::new(vec![positions(&[1], 3)], vec![rows(&[(1, "new")])]);
    let error = super::logs::migrate(&table, &snapshot, &buffered, 1).await.unwrap_err();
    assert!(error.kind() == crate::ErrorKind::Corrupt && error.to_string().contains("baseRowId"), "{error}");
}

#[tokio::test]
async fn a_commit_has_a_time_after_the_one_before_where_the_table_has_times() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    let columns = [column("k", "integer"), column("s", "string")];
    let configuration = json!({"delta.enableInCommitTimestamps": "true"});
    // The clock of whoever made the table was ahead by far.
    let before = 9_000_000_000_000i64;
    let mut actions = vec![json!({"commitInfo": {"operation": "CREATE TABLE", "inCommitTimestamp": before}})];
    actions.extend(opening(protocol(&["inCommitTimestamp"]), &columns, &[], configuration));
    actions.push(add(root, "a.parquet", json!({})));
    commit(root, 0, &actions);
    let table = open(root).await;
    for version in 1..3 {
        let buffered = RewriteFixture::new(vec![None; version], vec![rows(&[(version as i32 + 50, "new")])]);
        migrated(&table, &buffered, version as i64).await;
        let actions = committed(root, version as u64);
        assert_eq!(actions[0]["commitInfo"]["inCommitTimestamp"], json!(before + version as i64), "{version}");
    }
}
