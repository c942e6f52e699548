//! Rows that are written aside by several processes and become changes in one call.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lakemark_table::{Result, StagedRows, Transaction, VacuumOptions};

use super::*;

async fn stage(table: &Table, operation: Operation, batches: &[RecordBatch]) -> Result<StagedRows> {
    let mut staging = table.stage(operation)?;
    for rows in batches {
        staging.write(rows)?;
    }
    Ok(staging.finish().await?.unwrap())
}

async fn take(table: &Arc<Table>, staged: &[StagedRows]) -> Result<Written> {
    table.write_staged(staged, WriteOptions::default()).await
}

/// The staged files, also unfinished ones.
fn files(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder.join("_lakemark/updates")).unwrap().map(|entry| entry.unwrap().path());
    let is_staged = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".arrows") || name.starts_with(".tmp-")
    };
    names.filter(is_staged).collect()
}

/// As if another process had told of them.
fn sent(staged: &StagedRows) -> StagedRows {
    serde_json::from_str(&serde_json::to_string(staged).unwrap()).unwrap()
}

#[tokio::test]
async fn all_that_was_staged_is_one_call() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = table.snapshot().await.unwrap();
    // Another process has opened the table itself.
    let elsewhere = open(folder.path()).await;
    let two = [batch(&[(2, Some(-2), Some("new"))]), batch(&[]), batch(&[(4, Some(-4), None)])];
    let staged = [
        stage(&elsewhere, Operation::Insert, &[batch(&[(6, Some(-6), Some("moved")), (1, Some(-1), None)])]).await,
        stage(&elsewhere, Operation::Upsert, &two).await,
        stage(&table, Operation::Upsert, &[batch(&[(1001, Some(7), Some("added"))])]).await,
        stage(&elsewhere, Operation::Update, &[numbers(&[(10, Some(-10)), (11, Some(-11))])]).await,
        // A row may be found twice by what deletes it.
        stage(&elsewhere, Operation::Delete, &[keys(&[6, 8, 6])]).await,
        stage(&table, Operation::Delete, &[keys(&[8, 3])]).await,
    ];
    let staged: Vec<StagedRows> = staged.into_iter().map(|staged| sent(&staged.unwrap())).collect();
    assert_eq!(staged.iter().map(|staged| staged.rows).collect::<Vec<_>>(), [2, 2, 1, 2, 3, 2]);
    assert_eq!(files(folder.path()).len(), 6);
    assert_eq!(rows(&table).await.len(), 300);
    let written = take(&table, &staged).await.unwrap();
    assert_eq!(written, Written { sequence: before.sequence().unwrap() + 1, rows: 10 });
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    let mut expected = rows_of(&before);
    expected.remove(&8);
    expected.extend([(6, row(-6, "moved")), (1, (Some(-1), None)), (2, row(-2, "new")), (4, (Some(-4), None))]);
    expected.extend([(1001, row(7, "added")), (10, row(-10, "base"))]);
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
    // What was taken in is not there to be taken again.
    assert_eq!(take(&table, &staged).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(rows(&table).await, expected);
}

#[tokio::test]
async fn a_call_that_cannot_be_made_changes_nothing_and_keeps_the_rows() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let read_at = table.snapshot().await.unwrap().sequence();
    make(&table, Operation::Upsert, batch(&[(2, Some(9), None)])).await.unwrap();
    let before = rows(&table).await;
    let there = stage(&table, Operation::Insert, &[batch(&[(4, None, None)])]).await.unwrap();
    let twice = [
        stage(&table, Operation::Upsert, &[batch(&[(7, None, None)])]).await.unwrap(),
        stage(&table, Operation::Upsert, &[batch(&[(7, None, None)])]).await.unwrap(),
    ];
    let changed = stage(&table, Operation::Delete, &[keys(&[2])]).await.unwrap();
    let widths = [
        stage(&table, Operation::Upsert, &[batch(&[(9, None, None)])]).await.unwrap(),
        stage(&table, Operation::Upsert, &[keys(&[11])]).await.unwrap(),
    ];
    let since = WriteOptions { read_at, ..WriteOptions::default() };
    for (staged, options, kind, says) in [
        (vec![there], WriteOptions::default(), ErrorKind::AlreadyExists, "the key k = 4 is there already"),
        (twice.to_vec(), WriteOptions::default(), ErrorKind::InvalidInput, "k = 7 stands in rows 0 and 1"),
        (vec![changed], since, ErrorKind::Conflict, "k = 2 was changed by somebody else"),
        (widths.to_vec(), WriteOptions::default(), ErrorKind::InvalidInput, "staged with different columns"),
    ] {
        let left = files(folder.path()).len();
        let error = table.write_staged(&staged, options).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!((rows(&table).await, files(folder.path()).len()), (before.clone(), left));
        table.discard_staged(&staged).await.unwrap();
        assert_eq!(files(folder.path()).len(), left - staged.len());
    }
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn law_5_damaged_and_foreign_rows_change_nothing() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = rows(&table).await;
    let good = stage(&table, Operation::Upsert, &[batch(&[(2, Some(1), Some("a text"))])]).await.unwrap();
    let staged = stage(&table, Operation::Upsert, &[batch(&[(4, Some(1), Some("a text"))])]).await.unwrap();
    let place = |staged: &StagedRows| {
        let said = serde_json::to_value(staged).unwrap();
        folder.path().join("_lakemark").join(said["path"].as_str().unwrap())
    };
    let path = place(&staged);
    let bytes = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..bytes.len()).step_by(7).map(|at| flipped(&bytes, at)).collect();
    damaged.extend([Vec::new(), bytes[..bytes.len() - 1].to_vec(), [bytes.as_slice(), b"x"].concat()]);
    // Whole, and another one's.
    damaged.push(fs::read(place(&good)).unwrap());
    for bytes in damaged {
        fs::write(&path, bytes).unwrap();
        let error = take(&table, &[good.clone(), staged.clone()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("are not those that were written; nothing was changed"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let error = take(&table, &[good.clone(), staged]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("a folder that all machines share"), "{error}");
    // A name can be any path.
    for path in ["updates/../../f0.parquet", "f0.parquet", "updates/lock", "updates/.arrows", ""] {
        let mut said = serde_json::to_value(&good).unwrap();
        said["path"] = path.into();
        let named: [StagedRows; 1] = [serde_json::from_value(said).unwrap()];
        for outcome in [take(&table, &named).await.map(|_| ()), table.discard_staged(&named).await] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidInput, "{path}");
        }
    }
    assert_eq!(rows(&table).await, before);
    assert!(folder.path().join("f0.parquet").is_file());
    take(&table, &[good]).await.unwrap();
    assert_eq!(rows(&table).await[&2], row(1, "a text"));
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

#[tokio::test]
async fn rows_that_nobody_names_have_no_effect_and_go_by_age() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = rows(&table).await;
    let mut unfinished = table.stage(Operation::Upsert).unwrap();
    unfinished.write(&batch(&[(2, None, None)])).unwrap();
    assert_eq!(files(folder.path()).len(), 1);
    drop(unfinished);
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(table.stage(Operation::Upsert).unwrap().finish().await.unwrap(), None);
    stage(&table, Operation::Upsert, &[batch(&[(2, None, None)])]).await.unwrap();
    stage(&table, Operation::Upsert, &[batch(&[(4, None, None)])]).await.unwrap();
    let [old, young] = <[PathBuf; 2]>::try_from(files(folder.path())).unwrap();
    let eight_days = SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
    File::options().write(true).open(&old).unwrap().set_modified(eight_days).unwrap();
    let report = table.vacuum(VacuumOptions::default()).await.unwrap();
    let removed: Vec<String> = report.removed.into_iter().map(|waste| waste.path).collect();
    assert_eq!(removed, [format!("updates/{}", old.file_name().unwrap().to_str().unwrap())]);
    assert_eq!(files(folder.path()), [young]);
    assert_eq!(rows(&table).await, before);
}

#[tokio::test]
async fn a_staged_call_with_a_name_is_made_once() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let named = |version| WriteOptions {
        transaction: Some(Transaction { application: "stream".to_owned(), version }),
        ..WriteOptions::default()
    };
    for (version, value, made) in [(0, 1, 1), (0, 2, 0), (1, 3, 1)] {
        let staged = stage(&table, Operation::Upsert, &[batch(&[(2, Some(value), None)])]).await.unwrap();
        let written = table.write_staged(&[staged], named(version)).await.unwrap();
        assert_eq!(written.rows, made, "{version} {value}");
        assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    }
    assert_eq!(rows(&table).await[&2], (Some(3), None));
}

#[tokio::test]
async fn tables_that_take_no_changes_say_so() {
    let folder = folder();
    let table = open(folder.path()).await;
    let error = table.stage(Operation::Upsert).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("either the table has no key yet, or"), "{error}");
    assert!(!folder.path().join("_lakemark/updates").exists());
    let error = table.key().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("has no key, which tells changed rows apart"), "{error}");
    let keyed = keyed(folder.path()).await;
    assert_eq!(keyed.key().await.unwrap(), ["k"]);
    let options = TableOptions { version: Some(1), ..TableOptions::default() };
    let old = Table::open(folder.path().to_str().unwrap(), options).await.unwrap();
    let error = old.key().await.unwrap_err();
    assert!(error.to_string().contains("was opened at version 1"), "{error}");
    assert_eq!(old.stage(Operation::Delete).unwrap_err().kind(), ErrorKind::InvalidInput);
}
