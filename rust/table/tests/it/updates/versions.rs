//! Time travel: a version has what it had, or it is expired; it never has less without a word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lakemark_table::{
    BuildOptions, ErrorKind, IndexSpec, MigrateOptions, Operation, Result, Table, TableOptions, VacuumOptions,
    VersionOperation,
};

use super::reading::Row;
use super::{batch, folder, keyed, keys, make, numbers, rows};
use crate::delta;
use crate::fixture::{create_indexes, equals, open, probe, write};

async fn at(path: &Path, version: u64) -> Result<Arc<Table>> {
    let options = TableOptions { version: Some(version), ..TableOptions::default() };
    Table::open_alone(path.to_str().unwrap(), options).await
}

async fn newest(table: &Table) -> u64 {
    table.snapshot().await.unwrap().manifest_number().unwrap()
}

/// A table with a version for each step, with the rows that each had.
async fn stepped(path: &Path) -> (Arc<Table>, BTreeMap<u64, BTreeMap<i64, Row>>) {
    let table = keyed(path).await;
    let mut expected = BTreeMap::from([(newest(&table).await, rows(&table).await)]);
    make(&table, Operation::Upsert, batch(&[(1, Some(1), Some("new")), (2, Some(2), Some("up"))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[4, 6])).await.unwrap();
    table.flush().await.unwrap();
    expected.insert(newest(&table).await, rows(&table).await);
    make(&table, Operation::Update, numbers(&[(1, Some(11)), (8, Some(88))])).await.unwrap();
    table.flush().await.unwrap();
    expected.insert(newest(&table).await, rows(&table).await);
    table.migrate(MigrateOptions { fraction: 0.4, ..MigrateOptions::default() }).await.unwrap();
    expected.insert(newest(&table).await, rows(&table).await);
    make(&table, Operation::Upsert, batch(&[(1, Some(111), None)])).await.unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    expected.insert(newest(&table).await, rows(&table).await);
    (table, expected)
}

#[tokio::test]
async fn a_version_of_a_folder_has_the_changes_of_its_runs() {
    let folder = folder();
    let (table, expected) = stepped(folder.path()).await;
    // What is still in the log belongs to the next version.
    make(&table, Operation::Delete, keys(&[10, 12])).await.unwrap();
    assert_eq!(expected.len(), 5);
    for (version, expected) in &expected {
        let old = at(folder.path(), *version).await.unwrap();
        assert_eq!(old.version(), Some(*version));
        assert_eq!(rows(&old).await, *expected, "version {version}");
        let snapshot = old.snapshot().await.unwrap();
        assert_eq!(snapshot.manifest_number(), Some(*version));
    }
    // Without any index it is the same.
    std::fs::remove_dir_all(folder.path().join("_lakemark/indexes")).unwrap();
    for (version, expected) in &expected {
        assert_eq!(rows(&at(folder.path(), *version).await.unwrap()).await, *expected, "version {version}");
    }
    assert_eq!(rows(&table).await.len(), expected.values().last().unwrap().len() - 2);
}

#[tokio::test]
async fn the_history_says_what_made_each_version() {
    let folder = folder();
    let (table, expected) = stepped(folder.path()).await;
    let history = table.history(None).await.unwrap();
    let versions: Vec<u64> = history.iter().map(|version| version.version).collect();
    assert_eq!(versions, (1..=newest(&table).await).rev().collect::<Vec<_>>());
    assert!(expected.keys().all(|version| versions.contains(version)));
    let steps: Vec<_> = history.iter().rev().map(|version| (version.operation.to_string(), version)).collect();
    let said: Vec<(&str, u64, u64, Option<u64>)> = steps
        .iter()
        .map(|(operation, version)| (operation.as_str(), version.files_added, version.files_removed, version.rows))
        .collect();
    assert_eq!(said[0], ("declare key (k)", 0, 0, None));
    assert_eq!(said[1], ("create index k_key", 0, 0, None));
    assert_eq!(said[2], ("build indexes", 0, 0, None));
    assert_eq!(said[3], ("flush changes", 1, 0, Some(4)));
    assert_eq!(said[4], ("flush changes", 1, 0, Some(2)));
    assert_eq!(said[5], ("begin migration 1", 0, 0, None));
    assert_eq!(said[6].0, "migrate 1");
    assert_eq!(said[6].3, Some(3));
    assert!(said.iter().any(|step| step.0 == "migrate 2"), "{said:?}");
    assert!(history.iter().all(|version| version.time_ms.unwrap() > 1_700_000_000_000));
    assert_eq!(table.history(Some(2)).await.unwrap(), history[..2]);
}

#[tokio::test]
async fn a_table_at_a_version_is_only_read() {
    let folder = folder();
    let (table, expected) = stepped(folder.path()).await;
    let version = *expected.keys().next().unwrap();
    let old = at(folder.path(), version).await.unwrap();
    let before = newest(&table).await;
    let errors = [
        make(&old, Operation::Delete, keys(&[2])).await.unwrap_err(),
        old.migrate(MigrateOptions::default()).await.unwrap_err(),
        old.flush().await.unwrap_err(),
        old.build(BuildOptions::default()).await.unwrap_err(),
        old.compact(BuildOptions::default()).await.unwrap_err(),
        old.create_index(IndexSpec { columns: vec!["a".to_owned()], ..IndexSpec::default() }, false).await.unwrap_err(),
        old.drop_index("k_key", false).await.unwrap_err(),
        old.vacuum(VacuumOptions::default()).await.unwrap_err(),
        old.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(&format!("opened at version {version}")) && text.contains("without a version"), "{text}");
    }
    assert_eq!((newest(&table).await, old.updates_info().await.unwrap()), (before, None));
}

fn named(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder.join("_lakemark/updates")).unwrap().map(|entry| entry.unwrap().path());
    found.filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
}

#[tokio::test]
async fn a_version_that_lost_its_runs_is_expired() {
    let folder = folder();
    let (table, expected) = stepped(folder.path()).await;
    let newest = newest(&table).await;
    let error = at(folder.path(), newest + 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&format!("the newest is {newest}")), "{error}");
    assert_eq!(at(folder.path(), 0).await.unwrap_err().kind(), ErrorKind::NotFound);
    for run in named(folder.path(), ".lmr") {
        std::fs::remove_file(run).unwrap();
    }
    let versions: Vec<u64> = expected.keys().copied().collect();
    for (place, version) in versions.iter().enumerate() {
        let read = at(folder.path(), *version).await;
        if place == 0 || place == versions.len() - 1 {
            assert_eq!(rows(&read.unwrap()).await, expected[version]);
            continue;
        }
        let error = read.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SnapshotExpired);
        let text = error.to_string();
        assert!(text.contains("the run updates/") && text.contains("can still be read: 1 to 3, "), "{text}");
    }
}

/// A version of a Delta table is what every reader of Delta calls so: what is buffered is no part of it.
#[tokio::test]
async fn a_version_of_a_delta_table_is_deltas() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (file, first) in [("a.parquet", 0), ("b.parquet", 250), ("c.parquet", 500)] {
        write(&root.join(file), &crate::fixture::batch(first, 250));
    }
    let mut actions = delta::opening(false, serde_json::json!({}));
    actions.push(serde_json::json!({"commitInfo": {"timestamp": 1_700_000_000_000i64, "operation": "WRITE"}}));
    actions.push(delta::add(root, "a.parquet", Some("2024-01-31")));
    delta::commit(root, 0, &actions);
    let mut add = delta::add(root, "b.parquet", None);
    add["add"]["stats"] = "{\"numRecords\": 250}".into();
    delta::commit(root, 1, &[add]);
    let remove = serde_json::json!({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": true}});
    delta::commit(root, 2, &[remove, delta::add(root, "c.parquet", None)]);
    let table = open(root).await;
    create_indexes(&table).await;
    for (version, files) in
        [(0, vec!["a.parquet"]), (1, vec!["a.parquet", "b.parquet"]), (2, vec!["b.parquet", "c.parquet"])]
    {
        let snapshot = at(root, version).await.unwrap().snapshot().await.unwrap();
        assert_eq!(snapshot.delta_version(), Some(version));
        assert_eq!(snapshot.files().iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), files);
        let found = probe(&snapshot, &equals("k", 3)).await;
        // Indexes are used for the files that they cover: a.parquet was gone when they were built.
        let unknown = u64::from(version < 2);
        assert_eq!(found.report.files_scanned, unknown, "version {version}");
    }
    let said: Vec<_> = table.history(None).await.unwrap();
    let said: Vec<_> =
        said.iter().map(|of| (of.version, &of.operation, of.files_added, of.files_removed, of.rows)).collect();
    let (unknown, write) = (VersionOperation::Unknown, VersionOperation::Other("WRITE".to_owned()));
    assert_eq!(said, [(2, &unknown, 1, 1, None), (1, &unknown, 1, 0, Some(250)), (0, &write, 1, 0, None)]);
    // Commits that do not say when they were made are as old as their files.
    let times: Vec<i64> = table.history(None).await.unwrap().iter().map(|of| of.time_ms.unwrap()).collect();
    assert!(times[2] == 1_700_000_000_000 && times[1] > times[2] && times[0] >= times[1], "{times:?}");
    for (ms, version) in [(times[0], 2), (times[0] + 1000, 2), (times[2], 0), (times[2] + 1, 0)] {
        assert_eq!(table.version_at(ms * 1000).await.unwrap(), version);
    }
    let error = table.version_at(times[2] * 1000 - 1).await.unwrap_err();
    assert_eq!(error.kind(), lakemark_table::ErrorKind::SnapshotExpired);
    assert!(error.to_string().contains("the oldest that can be read is 0 of 2023-11-14"), "{error}");
    let error = at(root, 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("the newest is 2"), "{error}");
    std::fs::remove_file(root.join("a.parquet")).unwrap();
    let error = at(root, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotExpired);
    let text = error.to_string();
    assert!(text.contains("the data file a.parquet") && text.ends_with("can still be read: 2"), "{text}");
    std::fs::remove_file(root.join("_delta_log/00000000000000000001.json")).unwrap();
    let error = at(root, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotExpired, "{error}");
    assert!(error.to_string().contains("the Delta log of it is gone"), "{error}");
}
