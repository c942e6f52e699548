//! Runs are merged while writers go on, and are few at any time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lakemark_table::{BuildOptions, MigrateOptions, Operation, Table, VacuumOptions};

use super::{batch, folder, keys, make, row, rows};
use crate::fixture::open;

/// Scans should have 4 runs: α·M − S with 64 pages.
const SCANNED: usize = 4;
/// An eighth more while a merge is under way, and one at least.
const MOST: usize = 5;

async fn small(path: &Path, cache_bytes: &str) -> Arc<Table> {
    let table = open(path).await;
    let options =
        [("page_bytes", "512"), ("cache_bytes", cache_bytes)].map(|(name, value)| (name.into(), value.into()));
    table.declare_key(&["k".to_owned()], &BTreeMap::from(options), BuildOptions::default()).await.unwrap();
    table
}

/// Another process that merges: it has the lock of merges.
fn merging(folder: &Path) -> File {
    let path = folder.join("_lakemark/updates/merge.lock");
    let lock = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    lock.lock().unwrap();
    lock
}

async fn flushed(table: &Arc<Table>, a: i32) -> usize {
    make(table, Operation::Upsert, batch(&[(1, Some(a), Some("up"))])).await.unwrap();
    table.flush().await.unwrap();
    table.updates_info().await.unwrap().unwrap().runs.len()
}

#[tokio::test]
async fn a_call_that_makes_one_run_too_many_merges_some_before_it_returns() {
    let folder = folder();
    let table = small(folder.path(), "32768").await;
    for a in 0..40 {
        assert!(flushed(&table, a).await <= SCANNED, "after {a}");
    }
    let info = table.updates_info().await.unwrap().unwrap();
    assert!(info.runs.iter().any(|run| run.passes == 2), "{info:?}");
    assert_eq!(rows(&*open(folder.path()).await).await[&1], row(39, "up"));
}

#[tokio::test]
async fn runs_stay_few_while_somebody_else_merges_and_is_slow() {
    let folder = folder();
    let table = small(folder.path(), "32768").await;
    let lock = merging(folder.path());
    let mut most = 0;
    for a in 0..40 {
        most = most.max(flushed(&table, a).await);
    }
    assert_eq!(most, MOST);
    assert_eq!(rows(&*open(folder.path()).await).await[&1], row(39, "up"));
    drop(lock);
    assert!(flushed(&table, 40).await <= SCANNED);
    assert_eq!(rows(&*open(folder.path()).await).await[&1], row(40, "up"));
}

/// No manifest names what a merge has just written. It may be older than the age of a vacuum, as a process can be stopped for hours.
#[tokio::test]
async fn a_vacuum_leaves_the_run_of_a_merge_under_way() {
    let folder = folder();
    let table = small(folder.path(), "32768").await;
    flushed(&table, 1).await;
    let run = folder.path().join("_lakemark/updates/4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11.lmr");
    fs::write(&run, "unnamed").unwrap();
    let file = File::options().write(true).open(&run).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(2 * 60 * 60)).unwrap();
    let old = VacuumOptions { older_than: Duration::from_secs(60 * 60), ..VacuumOptions::default() };
    let lock = merging(folder.path());
    table.vacuum(old).await.unwrap();
    assert!(run.exists());
    drop(lock);
    table.vacuum(old).await.unwrap();
    assert!(!run.exists());
}

/// Many writers of one process, whose calls flush and merge beside each other. Scans should have 8 runs here.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_beside_merges_lose_nothing() {
    let folder = folder();
    let table = small(folder.path(), "131072").await;
    let writers = (0..6i64).map(|writer| {
        let table = Arc::clone(&table);
        tokio::spawn(async move {
            let text = "x".repeat(200);
            for round in 0..25 {
                let changed: Vec<_> = (0..8).map(|k| (writer * 100 + k, Some(round), Some(text.as_str()))).collect();
                make(&table, Operation::Upsert, batch(&changed)).await.unwrap();
                table.flush().await.unwrap();
                if round % 10 == 9 {
                    make(&table, Operation::Delete, keys(&[writer * 100])).await.unwrap();
                    drop(table.migrate(MigrateOptions { fraction: 0.5, ..MigrateOptions::default() }).await);
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let now = rows(&*open(folder.path()).await).await;
    for writer in 0..6 {
        for k in 0..8 {
            assert_eq!(now[&(writer * 100 + k)].0, Some(24), "the key {k} of {writer}");
        }
    }
    assert!(table.updates_info().await.unwrap().unwrap().runs.len() <= 9);
}
