//! Tables that are restored, made anew or set back, and stores that are put back from a backup.

use std::sync::Arc;

use lakemark_table::{BuildOptions, ErrorKind, MigrateOptions, Operation, RepairAction, Table};

use super::lake::{Lake, PLAIN, copy};
use super::{batch, keyed, keys, make, row, rows};
use crate::fixture::open;

/// Twenty rows in two files.
pub fn lake() -> Lake {
    let mut lake = Lake::new(&PLAIN, false);
    let rows = |from: i64| (from..from + 10).map(|k| (k, Some(1), Some("base"))).collect::<Vec<_>>();
    let adds = [lake.put("f.parquet", &batch(&rows(0))), lake.put("g.parquet", &batch(&rows(10)))];
    lake.commit(&adds);
    lake
}

/// A table of which a scan takes few runs.
async fn small(path: &std::path::Path) -> Arc<Table> {
    let table = open(path).await;
    let options = [("page_bytes", "512"), ("cache_bytes", "131072")];
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    table
}

async fn migrate(table: &Arc<Table>, fraction: f64) {
    table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await.unwrap();
}

fn upserted(from: i64, to: i64, a: i32) -> arrow::array::RecordBatch {
    batch(&(from..to).map(|k| (k, Some(a), Some("up"))).collect::<Vec<_>>())
}

/// What a migration wrote is undone with the version that had it; what is still buffered counts as before.
#[tokio::test]
async fn a_restore_to_before_a_slice_brings_back_the_rows_that_the_slice_had_replaced() {
    for merged in [false, true] {
        let mut lake = lake();
        let table = small(lake.root()).await;
        make(&table, Operation::Upsert, upserted(0, 12, 2)).await.unwrap();
        make(&table, Operation::Delete, keys(&[19])).await.unwrap();
        migrate(&table, 0.5).await;
        if merged {
            // More runs, which are merged with what is left of the first.
            for a in 3..30 {
                make(&table, Operation::Upsert, upserted(11, 12, a)).await.unwrap();
                table.flush().await.unwrap();
            }
            let runs = table.updates_info().await.unwrap().unwrap().runs;
            assert!(runs.iter().any(|run| run.passes == 2), "{runs:?}");
        }
        let last = if merged { 29 } else { 2 };
        lake.restore(&["f.parquet", "g.parquet"]);
        for has_indexes in [true, false] {
            if !has_indexes {
                std::fs::remove_dir_all(lake.root().join("_lakemark/indexes")).unwrap();
            }
            for table in [Arc::clone(&table), open(lake.root()).await] {
                let now = rows(&table).await;
                assert_eq!(now.len(), 19, "{now:?}");
                assert_eq!((&now[&0], &now[&6], &now[&7]), (&row(1, "base"), &row(1, "base"), &row(2, "up")));
                assert_eq!((&now[&11], now.get(&19)), (&row(last, "up"), None));
            }
        }
        let before = rows(&table).await;
        migrate(&open(lake.root()).await, 1.0).await;
        assert_eq!(rows(&*open(lake.root()).await).await, before);
    }
}

#[tokio::test]
async fn law_1_a_restore_over_a_deletion_vector_leaves_buffered_keys_buffered() {
    let mut lake = lake();
    let table = keyed(lake.root()).await;
    let actions = [Lake::removes("f.parquet"), lake.adds_without("f.parquet", &[3, 4])];
    lake.commit(&actions);
    make(&table, Operation::Upsert, upserted(3, 4, 7)).await.unwrap();
    table.flush().await.unwrap();
    assert_eq!(rows(&table).await.len(), 19);
    lake.restore(&["f.parquet", "g.parquet"]);
    for has_indexes in [true, false] {
        if !has_indexes {
            std::fs::remove_dir_all(lake.root().join("_lakemark/indexes")).unwrap();
        }
        for table in [Arc::clone(&table), open(lake.root()).await] {
            let now = rows(&table).await;
            assert_eq!((now.len(), &now[&3], &now[&4]), (20, &row(7, "up"), &row(1, "base")));
        }
    }
}

#[tokio::test]
async fn rows_are_counted_once_that_a_vector_deletes_and_a_change_replaces() {
    let mut lake = lake();
    let table = keyed(lake.root()).await;
    let actions = [Lake::removes("f.parquet"), lake.adds_without("f.parquet", &[3, 4])];
    lake.commit(&actions);
    let mut deleted = 2;
    // A row that is deleted already, one that is not, and one that no file has.
    for (key, replaced) in [(3, 0), (5, 1), (99, 0), (12, 1)] {
        make(&table, Operation::Upsert, upserted(key, key + 1, 7)).await.unwrap();
        deleted += replaced;
        for table in [Arc::clone(&table), open(lake.root()).await] {
            let snapshot = table.snapshot().await.unwrap();
            assert_eq!(snapshot.deleted_rows(), deleted, "after {key}");
            assert_eq!(snapshot.rows(), Some(rows(&table).await.len() as u64), "after {key}");
        }
    }
    assert_eq!(rows(&table).await.len(), 20);
}

#[tokio::test]
async fn changes_after_a_store_was_put_back_from_a_backup_are_not_taken_for_migrated_ones() {
    let lake = lake();
    let table = keyed(lake.root()).await;
    make(&table, Operation::Upsert, upserted(0, 1, 2)).await.unwrap();
    let store = lake.root().join("_lakemark");
    let backup = lake.root().join("_backup");
    copy(&store, &backup);
    make(&table, Operation::Upsert, upserted(1, 3, 3)).await.unwrap();
    migrate(&table, 1.0).await;
    let before = rows(&table).await;
    std::fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    // All that the backup has buffered is in the table by now.
    let table = open(lake.root()).await;
    assert_eq!(rows(&table).await, before);
    for (key, a) in [(5, 8), (6, 9)] {
        make(&table, Operation::Upsert, upserted(key, key + 1, a)).await.unwrap();
        let now = rows(&*open(lake.root()).await).await;
        assert_eq!((now.len(), &now[&key], &now[&1]), (20, &row(a, "up"), &row(3, "up")));
    }
    table.flush().await.unwrap();
    assert_eq!(rows(&table).await[&5], row(8, "up"));
    let before = rows(&table).await;
    migrate(&table, 1.0).await;
    let table = open(lake.root()).await;
    assert_eq!(rows(&table).await, before);
    assert_eq!(table.updates_info().await.unwrap().unwrap().rows_buffered, 0);
}

/// Of a slice nobody can tell which of the buffered changes it had.
#[tokio::test]
async fn a_store_from_before_a_slice_is_an_error_that_names_the_way_on() {
    for buffered in [RepairAction::Keep, RepairAction::Discard] {
        let lake = lake();
        let table = keyed(lake.root()).await;
        make(&table, Operation::Upsert, upserted(0, 10, 2)).await.unwrap();
        let (store, backup) = (lake.root().join("_lakemark"), lake.root().join("_backup"));
        copy(&store, &backup);
        migrate(&table, 0.4).await;
        std::fs::remove_dir_all(&store).unwrap();
        copy(&backup, &store);
        let table = open(lake.root()).await;
        let error = table.snapshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreMismatch);
        assert!(error.to_string().contains("lakemark repair"), "{error}");
        assert_eq!(make(&table, Operation::Delete, keys(&[1])).await.unwrap_err().kind(), ErrorKind::StoreMismatch);
        assert!(table.repair(buffered).await.unwrap());
        assert!(!table.repair(buffered).await.unwrap());
        let now = rows(&*open(lake.root()).await).await;
        let late = if buffered == RepairAction::Keep { row(2, "up") } else { row(1, "base") };
        assert_eq!((now.len(), &now[&0], &now[&9]), (20, &row(2, "up"), &late));
        make(&table, Operation::Upsert, upserted(4, 5, 5)).await.unwrap();
        migrate(&table, 1.0).await;
        assert_eq!(rows(&*open(lake.root()).await).await[&4], row(5, "up"));
    }
}

#[tokio::test]
async fn a_table_that_is_made_anew_takes_no_changes_from_the_old_one_s_store() {
    let mut lake = lake();
    let table = keyed(lake.root()).await;
    make(&table, Operation::Upsert, upserted(0, 2, 2)).await.unwrap();
    lake.remake(&PLAIN);
    let add = lake.put("h.parquet", &batch(&[(0, Some(5), Some("other")), (1, Some(5), Some("other"))]));
    lake.commit(&[add]);
    for table in [Arc::clone(&table), open(lake.root()).await] {
        let error = table.snapshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreMismatch, "{error}");
    }
    assert!(table.repair(RepairAction::Discard).await.unwrap());
    let table = open(lake.root()).await;
    assert_eq!(rows(&table).await[&0], row(5, "other"));
    make(&table, Operation::Upsert, upserted(1, 2, 6)).await.unwrap();
    migrate(&table, 1.0).await;
    let now = rows(&*open(lake.root()).await).await;
    assert_eq!((&now[&0], &now[&1]), (&row(5, "other"), &row(6, "up")));
    // Nothing is buffered: the next one takes the store over without a word.
    lake.remake(&PLAIN);
    let add = lake.put("i.parquet", &batch(&[(0, Some(7), Some("third"))]));
    lake.commit(&[add]);
    let table = open(lake.root()).await;
    assert_eq!(rows(&table).await[&0], row(7, "third"));
    make(&table, Operation::Upsert, upserted(1, 2, 6)).await.unwrap();
    assert_eq!(rows(&*open(lake.root()).await).await.len(), 2);
}

/// What was migrated is in versions that are gone: reading on would lose it without a word.
#[tokio::test]
async fn a_log_that_goes_backwards_is_an_error() {
    let lake = lake();
    let table = keyed(lake.root()).await;
    let log = lake.root().join("_delta_log");
    let backup = lake.root().join("_backup");
    copy(&log, &backup);
    make(&table, Operation::Upsert, upserted(0, 2, 2)).await.unwrap();
    migrate(&table, 1.0).await;
    make(&table, Operation::Upsert, upserted(2, 3, 2)).await.unwrap();
    std::fs::remove_dir_all(&log).unwrap();
    copy(&backup, &log);
    let table = open(lake.root()).await;
    let error = table.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreMismatch, "{error}");
    assert!(error.to_string().contains("set back"), "{error}");
    assert!(table.repair(RepairAction::Keep).await.unwrap());
    let now = rows(&*open(lake.root()).await).await;
    assert_eq!((&now[&0], &now[&2]), (&row(1, "base"), &row(2, "up")));
}
