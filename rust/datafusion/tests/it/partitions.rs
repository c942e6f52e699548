//! Partition columns whose type changes while changes are buffered, since other programs add and remove folders.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, MigrateOptions, Table, TableOptions};

use crate::fixture::{open, rows, write};

fn put(folder: &Path, part: &str, key: i64) {
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![key]));
    let path = folder.join(format!("part={part}/f{key}.parquet"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(&path, &RecordBatch::try_from_iter([("k", keys)]).unwrap());
}

async fn session(table: &Arc<Table>) -> LakemarkSession {
    let session = LakemarkSession::new();
    session.register("t", Arc::clone(table)).await.unwrap();
    session
}

async fn change(table: &Arc<Table>, sql: &str) {
    session(table).await.sql(sql).await.unwrap().collect().await.unwrap();
}

/// What a table shows.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Keys and partitions.
    rows: Vec<String>,
    /// The type of the partitions.
    types: Vec<String>,
}

async fn seen(table: &Arc<Table>) -> Seen {
    let session = session(table).await;
    let types = rows(&session, "SELECT DISTINCT arrow_typeof(part) FROM t").await;
    Seen { rows: rows(&session, "SELECT k, part FROM t ORDER BY k").await, types }
}

#[tokio::test]
async fn a_buffered_change_keeps_its_partition_when_others_change_the_type_of_the_column() {
    // Folders before and after, the row that is buffered, and what comes of all.
    for (before, after, buffered, all) in [
        ("a", "1", "'007'", ["1|1", "2|007"]),
        ("a", "1", "'x'", ["1|1", "2|x"]),
        ("1", "2024-01-31", "7", ["1|2024-01-31", "2|7"]),
        ("2024-01-31", "1", "DATE '2024-02-29'", ["1|1", "2|2024-02-29"]),
    ] {
        for is_flushed in [false, true] {
            let case = format!("{before} {after} {buffered} {is_flushed}");
            let folder = tempfile::tempdir().unwrap();
            put(folder.path(), before, 1);
            let table = open(folder.path()).await;
            table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
            change(&table, &format!("INSERT INTO t VALUES (2, {buffered})")).await;
            if is_flushed {
                table.flush().await.unwrap();
            }
            std::fs::remove_dir_all(folder.path().join(format!("part={before}"))).unwrap();
            put(folder.path(), after, 1);
            let expected = Seen { rows: all.map(ToOwned::to_owned).to_vec(), types: vec!["Utf8".to_owned()] };
            for table in [&table, &open(folder.path()).await] {
                assert_eq!(seen(table).await, expected, "{case}");
            }
            let version = table.snapshot().await.unwrap().manifest_number().unwrap();
            change(&table, "INSERT INTO t VALUES (3, 'late')").await;
            change(&table, "UPDATE t SET part = '3' WHERE k = 3").await;
            change(&table, "DELETE FROM t WHERE k = 1").await;
            let left = [all[1].to_owned(), "3|3".to_owned()];
            assert_eq!(seen(&table).await.rows, left, "{case}");
            table.migrate(MigrateOptions::default()).await.unwrap();
            assert_eq!(seen(&table).await.rows, left, "{case}");
            let options = TableOptions { version: Some(version), ..TableOptions::default() };
            let then = Table::open(folder.path().to_str().unwrap(), options).await.unwrap();
            let of_runs = if is_flushed { &all[..] } else { &all[..1] };
            assert_eq!(seen(&then).await.rows, of_runs, "{case}");
        }
    }
}

#[tokio::test]
async fn a_key_that_begins_with_a_partition_column_goes_on_when_others_change_its_type() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a", 1);
    put(folder.path(), "1", 1);
    let table = open(folder.path()).await;
    let key = ["part".to_owned(), "k".to_owned()];
    table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    change(&table, "INSERT INTO t (k, part) VALUES (2, '01'), (2, '1')").await;
    change(&table, "DELETE FROM t WHERE k = 1 AND part = '1'").await;
    table.flush().await.unwrap();
    std::fs::remove_dir_all(folder.path().join("part=a")).unwrap();
    assert_eq!(seen(&table).await.rows, ["2|01", "2|1"]);
    change(&table, "DELETE FROM t WHERE part = '01'").await;
    assert_eq!(seen(&table).await.rows, ["2|1"]);
    table.migrate(MigrateOptions::default()).await.unwrap();
    let expected = Seen { rows: vec!["2|1".to_owned()], types: vec!["Int64".to_owned()] };
    assert_eq!(seen(&table).await, expected);
}
