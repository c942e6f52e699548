//! Filters of the keys of runs: which runs a change or a check looks into.

use std::sync::Arc;

use lakemark_table::{ErrorKind, Operation, Table, TableOptions};

use super::{batch, folder, keyed, keys, make, row, rows};
use crate::fixture::open;
use crate::layer::{Layer, Log};

/// Runs of 100 new keys each: of 1000 keys apart, every third.
async fn with_runs(table: &Arc<Table>, count: i64) {
    for run in 0..count {
        let changed: Vec<_> = (0..100).map(|at| (1000 * run + at * 3 + 1, Some(7), Some("run"))).collect();
        make(table, Operation::Upsert, batch(&changed)).await.unwrap();
        table.flush().await.unwrap();
    }
}

async fn counted(path: &std::path::Path) -> (Arc<Table>, Arc<Log>) {
    let log = Log::new();
    let layer = |inner| Layer::over(inner, &log);
    let table = Table::open_layered(path.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    (table, log)
}

/// Keys that no run has are settled, flushed and checked without a look into any of them; others read just one.
#[tokio::test]
async fn runs_without_a_key_are_not_read_for_it() {
    let folder = folder();
    let first = keyed(folder.path()).await;
    with_runs(&first, 12).await;
    let (table, log) = counted(folder.path()).await;
    // Opens the runs.
    table.snapshot().await.unwrap();
    let read = |log: &Log| log.matching(".lmr").into_iter().filter(|said| said.starts_with("get")).collect::<Vec<_>>();
    assert!(!read(&log).is_empty());
    log.clear();
    // Between the keys of each run, so that bounds of pages tell nothing.
    let absent: Vec<i64> = (0..12).map(|run| 1000 * run + 141).collect();
    let news: Vec<_> = absent.iter().map(|key| (*key, Some(1), Some("new"))).collect();
    make(&table, Operation::Insert, batch(&news)).await.unwrap();
    assert_eq!(table.snapshot().await.unwrap().buffered_rows().unwrap().row_count(), 12 * 100 + 12);
    assert_eq!(read(&log), Vec::<String>::new());
    make(&table, Operation::Delete, keys(&[141, 1141])).await.unwrap();
    assert_eq!(rows(&table).await.get(&2141), Some(&row(1, "new")));
    assert_eq!(read(&log), Vec::<String>::new());
    let error = make(&table, Operation::Insert, batch(&[(5001, None, None)])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let touched: std::collections::BTreeSet<String> = read(&log).into_iter().collect();
    assert_eq!(touched.len(), 1, "{touched:?}");
}

/// A filter is a part of an index: without it runs are looked into, and the answer is the same.
#[tokio::test]
async fn lost_filters_cost_reads_and_no_rows() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    with_runs(&table, 3).await;
    let expected = rows(&table).await;
    std::fs::remove_dir_all(folder.path().join("_lakemark/indexes")).unwrap();
    let (table, log) = counted(folder.path()).await;
    assert_eq!(rows(&table).await, expected);
    log.clear();
    make(&table, Operation::Insert, batch(&[(141, Some(1), Some("new"))])).await.unwrap();
    assert!(log.matching(".lmr").iter().any(|said| said.starts_with("get")));
    let error = make(&table, Operation::Insert, batch(&[(2001, None, None)])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(rows(&*open(folder.path()).await).await.len(), expected.len() + 1);
}
