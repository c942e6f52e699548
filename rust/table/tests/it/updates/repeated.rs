//! Calls that an application numbers are made once, wherever their changes are by then.

use std::sync::Arc;

use lakemark_table::{Change, ErrorKind, MigrateOptions, Operation, Result, Table, Transaction, WriteOptions, Written};

use super::{batch, folder, keyed, keys, rows};
use crate::fixture::open;

async fn call(table: &Arc<Table>, application: &str, version: u64, change: (Operation, i64)) -> Result<Written> {
    let transaction = Some(Transaction { application: application.to_owned(), version });
    let rows = match change.0 {
        Operation::Delete => keys(&[change.1]),
        _ => batch(&[(change.1, Some(version as i32), Some(application))]),
    };
    let change = Change { operation: change.0, rows };
    table.write(vec![change], WriteOptions { transaction, ..WriteOptions::default() }).await
}

#[tokio::test]
async fn a_call_is_made_once_over_flush_merge_migration_and_publication() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let first = call(&table, "loads", 7, (Operation::Insert, 1)).await.unwrap();
    assert_eq!((first.sequence, first.rows), (1, 1));
    // Another application has numbers of its own.
    assert_eq!(call(&table, "other loads", 7, (Operation::Insert, 3)).await.unwrap().rows, 1);
    let expected = rows(&table).await;
    for step in 0..5 {
        match step {
            1 => table.flush().await.unwrap(),
            2 => drop(table.migrate(MigrateOptions::default()).await.unwrap()),
            3 => drop(table.publish().await.unwrap()),
            _ => {}
        }
        // From a process that knows nothing of it. An insert that is made twice would be an error, a delete would be seen.
        for table in [&table, &open(folder.path()).await] {
            for (version, change) in
                [(7, (Operation::Insert, 1)), (6, (Operation::Delete, 0)), (0, (Operation::Delete, 2))]
            {
                assert_eq!(call(table, "loads", version, change).await.unwrap(), Written { sequence: 1, rows: 0 });
            }
            assert_eq!(rows(table).await, expected, "after step {step}");
        }
    }
    let next = call(&open(folder.path()).await, "loads", 8, (Operation::Delete, 1)).await.unwrap();
    assert_eq!((next.sequence, next.rows), (3, 1));
    assert_eq!(call(&table, "loads", 8, (Operation::Delete, 0)).await.unwrap(), Written { sequence: 3, rows: 0 });
    assert_eq!(rows(&table).await.len(), expected.len() - 1);
}

#[tokio::test]
async fn a_call_that_failed_was_not_made() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let error = call(&table, "loads", 1, (Operation::Insert, 2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(call(&table, "loads", 1, (Operation::Upsert, 2)).await.unwrap().rows, 1);
    let error = call(&table, "", 1, (Operation::Upsert, 2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("the name of an application has 0 bytes"), "{error}");
}

/// Calls of one number that many callers make at once, in one process and in two.
#[tokio::test(flavor = "multi_thread")]
async fn of_calls_at_once_one_is_made() {
    let folder = folder();
    let tables = [keyed(folder.path()).await, open(folder.path()).await];
    for version in 1..6 {
        let calls = (0..8).map(|caller| {
            let table = Arc::clone(&tables[caller % 2]);
            tokio::spawn(
                async move { call(&table, "loads", version, (Operation::Insert, 1 + 2 * version as i64)).await },
            )
        });
        let mut made = 0;
        for call in calls.collect::<Vec<_>>() {
            made += call.await.unwrap().unwrap().rows;
        }
        assert_eq!(made, 1, "version {version}");
    }
    assert_eq!(rows(&tables[0]).await.len(), 305);
}
