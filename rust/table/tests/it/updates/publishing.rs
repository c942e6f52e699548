//! Publishing: plain readers of the folder see what was migrated, ours see the same before, meanwhile and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use lakemark_table::{ErrorKind, MigrateOptions, Operation, Table, TableOptions, VacuumOptions, VersionOperation};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::reading::Row;
use super::{batch, folder, keyed, keys, make, rows};
use crate::fixture::{equals, open, probe};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn listed(folder: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "_lakemark").collect()
}

/// The keys of every file that a plain reader lists.
fn plain(folder: &Path) -> BTreeSet<i64> {
    let mut keys = BTreeSet::new();
    for name in listed(folder).into_iter().filter(|name| name.ends_with(".parquet") && !name.starts_with('.')) {
        let file = File::open(folder.join(name)).unwrap();
        for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
            let k = batch.unwrap().column_by_name("k").unwrap().as_primitive::<Int64Type>().clone();
            k.values().iter().for_each(|key| assert!(keys.insert(*key), "{key} is there twice"));
        }
    }
    keys
}

async fn at(path: &Path, version: u64) -> lakemark_table::Result<Arc<Table>> {
    let options = TableOptions { version: Some(version), ..TableOptions::default() };
    Table::open_alone(path.to_str().unwrap(), options).await
}

async fn newest(table: &Table) -> u64 {
    table.snapshot().await.unwrap().manifest_number().unwrap()
}

/// A migration that replaces one file, twice published, with the rows of each version.
async fn published(path: &Path) -> (Arc<Table>, BTreeMap<u64, BTreeMap<i64, Row>>) {
    let table = keyed(path).await;
    let mut expected = BTreeMap::from([(newest(&table).await, rows(&table).await)]);
    for (number, key) in [(1, 2), (2, 4)] {
        make(&table, Operation::Upsert, batch(&[(key, Some(number), Some("up")), (1000 + key, None, None)]))
            .await
            .unwrap();
        table.migrate(MigrateOptions::default()).await.unwrap();
        expected.insert(newest(&table).await, rows(&table).await);
        let before = newest(&table).await;
        let report = table.publish().await.unwrap();
        assert_eq!(newest(&table).await, before + 3);
        assert!(report.files_published > 0 && report.bytes_published > 0);
        expected.insert(newest(&table).await, rows(&table).await);
    }
    (table, expected)
}

#[tokio::test]
async fn every_reader_of_the_folder_sees_what_was_published() {
    let folder = folder();
    let root = folder.path();
    let table = keyed(root).await;
    make(&table, Operation::Upsert, batch(&[(2, Some(1), Some("up")), (1001, Some(5), None)])).await.unwrap();
    make(&table, Operation::Delete, keys(&[4])).await.unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    make(&table, Operation::Delete, keys(&[6])).await.unwrap();
    let expected = rows(&table).await;
    assert_eq!(plain(root), (0..300).map(|key| key * 2).collect());
    let report = table.publish().await.unwrap();
    assert_eq!((report.files_published, report.originals_moved), (2, 1));
    // What is buffered is in the store as before.
    let mut keys: BTreeSet<i64> = expected.keys().copied().collect();
    keys.insert(6);
    assert_eq!(plain(root), keys);
    assert!(!root.join("f0.parquet").exists() && root.join("f1.parquet").exists());
    assert_eq!(listed(root).len(), 3);
    for table in [&table, &open(root).await] {
        assert_eq!(rows(table).await, expected);
        let snapshot = table.snapshot().await.unwrap();
        assert!(snapshot.files().iter().all(|file| !file.path.starts_with("_lakemark")));
        // Published files have indexes.
        let found = probe(&snapshot, &equals("k", 2)).await;
        assert_eq!(found.report.files_scanned, 0);
        assert_eq!(snapshot.indexes()[0].coverage, 1.0);
    }
    assert_eq!(table.publish().await.unwrap().files_published, 0);
    // Other programs may do with the files what they like.
    std::fs::remove_file(root.join("f1.parquet")).unwrap();
    assert_eq!(rows(&table).await.len(), expected.len() - 150);
}

/// A reader of the folder's files gets rows that buffered changes delete, and is told that it misses something.
#[tokio::test]
async fn a_snapshot_of_the_files_alone_knows_nothing_of_changes() {
    async fn found(table: &Table, key: i64) -> Option<u64> {
        let snapshot = table.snapshot_of_files().await.unwrap();
        assert!(snapshot.buffered_rows().is_none() && snapshot.deleted_rows() == 0);
        probe(&snapshot, &equals("k", key)).await.exact_rows_of_files()
    }
    async fn missed(table: &Table) -> (bool, bool) {
        let missed = table.changes_beside_files().await.unwrap();
        (missed.buffered, missed.unpublished)
    }
    let folder = folder();
    let table = keyed(folder.path()).await;
    assert_eq!(missed(&table).await, (false, false));
    make(&table, Operation::Delete, keys(&[4])).await.unwrap();
    for _ in 0..2 {
        assert_eq!(missed(&table).await, (true, false));
        assert_eq!((found(&table, 4).await, found(&table, 5).await), (Some(1), Some(0)));
        assert!(!rows(&table).await.contains_key(&4));
        table.flush().await.unwrap();
    }
    table.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(missed(&table).await, (false, true));
    make(&table, Operation::Delete, keys(&[6])).await.unwrap();
    assert_eq!(missed(&table).await, (true, true));
    table.publish().await.unwrap();
    assert_eq!(missed(&table).await, (true, false));
    assert_eq!((found(&table, 4).await, found(&table, 6).await), (Some(0), Some(1)));
    assert_eq!(plain(folder.path()).len(), 299);
}

#[tokio::test]
async fn versions_before_a_publication_are_read_as_they_were() {
    let folder = folder();
    let (table, expected) = published(folder.path()).await;
    assert_eq!(expected.len(), 5);
    for (version, expected) in &expected {
        assert_eq!(rows(&at(folder.path(), *version).await.unwrap()).await, *expected, "version {version}");
    }
    let history = table.history(None).await.unwrap();
    let said: Vec<_> = history.iter().filter(|version| version.operation == VersionOperation::Publish).collect();
    assert_eq!(said.len(), 2);
    assert_eq!((said[1].files_added, said[1].files_removed), (2, 1));
}

fn age(path: &Path, age: Duration) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            self::age(&path, age);
        } else if path.extension().is_some() {
            File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_whose_name_looks_like_a_partition_lies_in_none() {
    let folder = folder();
    let root = folder.path();
    std::fs::rename(root.join("f0.parquet"), root.join("dt=2024.parquet")).unwrap();
    let (table, expected) = published(root).await;
    assert_eq!(table.snapshot().await.unwrap().schema().fields().len(), 3);
    for (version, expected) in expected {
        let table = at(root, version).await.unwrap();
        assert_eq!(table.snapshot().await.unwrap().schema().fields().len(), 3, "{version}");
        assert_eq!(rows(&table).await, expected, "{version}");
    }
}

#[tokio::test]
async fn a_vacuum_removes_what_no_version_needs_and_originals_if_asked_to() {
    let folder = folder();
    let root = folder.path();
    let (table, expected) = published(root).await;
    let versions: Vec<u64> = expected.keys().copied().collect();
    let originals = |root: &Path| std::fs::read_dir(root.join("_lakemark/originals")).map_or(0, Iterator::count);
    let vacuum = |originals, dry_run| VacuumOptions { originals, dry_run, ..VacuumOptions::default() };
    // Everything is young: all versions are within the age.
    assert_eq!(table.vacuum(vacuum(true, false)).await.unwrap().removed, []);
    for (version, expected) in &expected {
        assert_eq!(rows(&at(root, *version).await.unwrap()).await, *expected);
    }
    age(&root.join("_lakemark/manifest"), 8 * DAY);
    age(&root.join("_lakemark/updates"), 8 * DAY);
    let dry = table.vacuum(vacuum(false, true)).await.unwrap();
    assert!(dry.removed.iter().any(|waste| waste.path.starts_with("updates/")), "{dry:?}");
    assert!(dry.removed.iter().all(|waste| !waste.path.starts_with("originals/")), "{dry:?}");
    table.vacuum(vacuum(false, false)).await.unwrap();
    // A folder for each publication.
    assert_eq!(originals(root), 2);
    let last = *versions.last().unwrap();
    assert_eq!(rows(&table).await, expected[&last]);
    for version in &versions[..versions.len() - 1] {
        let error = at(root, *version).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SnapshotExpired);
        assert!(error.to_string().ends_with(&format!("can still be read: {last}")), "{error}");
    }
    let report = table.vacuum(vacuum(true, false)).await.unwrap();
    // The file with both changed rows was replaced twice, and the second migration filled up the new row of the first.
    assert_eq!(report.removed.iter().filter(|waste| waste.path.starts_with("originals/")).count(), 3);
    assert_eq!(rows(&*open(root).await).await, expected[&last]);
    assert_eq!(rows(&at(root, last).await.unwrap()).await, expected[&last]);
}

#[tokio::test]
async fn an_original_that_was_changed_is_a_conflict_and_is_not_moved() {
    let folder = folder();
    let root = folder.path();
    let table = keyed(root).await;
    make(&table, Operation::Upsert, batch(&[(2, Some(1), Some("up"))])).await.unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    crate::fixture::write(&root.join("f0.parquet"), &batch(&[(7777, None, None)]));
    let error = table.publish().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("f0.parquet was changed"), "{error}");
    std::fs::remove_file(root.join("f0.parquet")).unwrap();
    let report = table.publish().await.unwrap();
    assert_eq!((report.files_published, report.originals_moved), (1, 0));
    assert_eq!(plain(root).len(), 300);
    let options = TableOptions { store: Some(root.join("s").to_str().unwrap().to_owned()), ..TableOptions::default() };
    let glob = Table::open_alone(root.join("*.parquet").to_str().unwrap(), options).await.unwrap();
    assert_eq!(glob.publish().await.unwrap_err().kind(), ErrorKind::Unsupported);
}
