//! Delta tables whose logs are written by hand, and migrations of them.

use std::path::Path;

use futures::FutureExt;
use roaring::RoaringTreemap;
use serde_json::{Value, json};

use super::{RewriteFixture, old_rows, open, pairs, positions, rows, write};
use crate::rewrite::delta::{ApplicationTransaction, MigrationOutcome};
use crate::rewrite::{RewriteInput, RewriteOutput, delta};
use crate::{Result, Snapshot, Table};

pub(super) fn commit(root: &Path, version: u64, actions: &[Value]) {
    let log = root.join("_delta_log");
    std::fs::create_dir_all(&log).unwrap();
    let lines: Vec<String> = actions.iter().map(ToString::to_string).collect();
    std::fs::write(log.join(format!("{version:020}.json")), lines.join("\n")).unwrap();
}

/// The actions of a version.
pub(super) fn committed(root: &Path, version: u64) -> Vec<Value> {
    let text = std::fs::read_to_string(root.join(format!("_delta_log/{version:020}.json"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) fn versions(root: &Path) -> usize {
    let names = std::fs::read_dir(root.join("_delta_log")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.collect();
    assert!(names.iter().all(|name| name.to_str().unwrap().ends_with(".json")), "{names:?}");
    names.len()
}

pub(super) fn data_files(root: &Path) -> usize {
    let names = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".parquet")).count()
}

pub(super) fn column(name: &str, kind: &str) -> Value {
    json!({"name": name, "type": kind, "nullable": true, "metadata": {}})
}

/// Protocol and metadata.
pub(super) fn opening(protocol: Value, columns: &[Value], partition: &[&str], configuration: Value) -> Vec<Value> {
    let schema = json!({"type": "struct", "fields": columns}).to_string();
    vec![
        json!({"protocol": protocol}),
        json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": partition, "configuration": configuration, "createdTime": 0}}),
    ]
}

pub(super) fn plain() -> Value {
    json!({"minReaderVersion": 1, "minWriterVersion": 2})
}

pub(super) fn with_vectors() -> Value {
    json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "appendOnly", "invariants"]})
}

pub(super) fn add(root: &Path, path: &str, partition: Value) -> Value {
    let size = std::fs::metadata(root.join(path)).unwrap().len();
    json!({"add": {"path": path, "partitionValues": partition, "size": size, "modificationTime": 1_700_000_000_000u64,
        "dataChange": true}})
}

pub(super) fn inline_vector(rows: &[u64]) -> Value {
    let mut bytes = 1_681_511_377u32.to_le_bytes().to_vec();
    RoaringTreemap::from_iter(rows.iter().copied()).serialize_into(&mut bytes).unwrap();
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({"storageType": "i", "pathOrInlineDv": z85::encode(&bytes), "sizeInBytes": size, "cardinality": rows.len()})
}

/// Two files of `k` from 0 and from 10 on; row 3 of the first is deleted by a vector.
pub(super) fn table() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 6));
    write(&root.join("b.parquet"), &old_rows(10, 3));
    let mut actions = opening(with_vectors(), &[column("k", "integer"), column("s", "string")], &[], json!({}));
    let mut first = add(root, "a.parquet", json!({}));
    first["add"]["deletionVector"] = inline_vector(&[3]);
    actions.extend([first, add(root, "b.parquet", json!({}))]);
    commit(root, 0, &actions);
    folder
}

/// Replaces 1, deletes 4, inserts 20.
pub(super) fn buffered() -> RewriteFixture {
    RewriteFixture::new(vec![positions(&[1, 4], 6), None], vec![rows(&[(20, "zwanzig"), (1, "one")])])
}

pub(super) fn transaction(version: i64) -> ApplicationTransaction {
    ApplicationTransaction { id: "lakemark-test".to_owned(), version, through: None }
}

pub(super) async fn migrate(
    table: &Table,
    snapshot: &Snapshot,
    buffered: &RewriteFixture,
    version: i64,
) -> Result<MigrationOutcome> {
    let input: RewriteInput<'_> = buffered.input();
    // Callers may move the future to other threads.
    delta::migrate(&table.base().location, snapshot, &input, &transaction(version)).boxed().await
}

pub(super) async fn migrated(table: &Table, buffered: &RewriteFixture, version: i64) -> (u64, RewriteOutput) {
    let snapshot = table.snapshot().await.unwrap();
    match migrate(table, &snapshot, buffered, version).await.unwrap() {
        MigrationOutcome::Committed { version, rewritten } => (version, rewritten),
        MigrationOutcome::Already => panic!("nothing was done"),
    }
}

/// The rows of all files of the newest version, by path.
pub(super) async fn contents(root: &Path) -> Vec<(i32, String)> {
    let snapshot = open(root).await.snapshot().await.unwrap();
    let rows = snapshot.files().iter().flat_map(|file| {
        let deleted = file.deleted.clone();
        let is_live = move |row: usize| deleted.as_ref().is_none_or(|deleted| !deleted.contains(row as u32));
        pairs(&root.join(&file.path)).into_iter().enumerate().filter(move |(row, _)| is_live(*row)).map(|(_, row)| row)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}
