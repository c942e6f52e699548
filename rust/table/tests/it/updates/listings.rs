//! How often verbs list the data files: once at most, and not at all where none of the files matters to them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Operation, Result, Table};

use super::make;
use crate::fixture::{open, write};

/// Rows with a key and a value.
fn numbers(keys: &[i64]) -> RecordBatch {
    let column = |more: i64| Arc::new(Int64Array::from_iter_values(keys.iter().map(|key| key + more))) as ArrayRef;
    RecordBatch::try_from_iter([("k", column(0)), ("v", column(100))]).unwrap()
}

fn keys(keys: &[i64]) -> RecordBatch {
    numbers(keys).project(&[0]).unwrap()
}

/// Two files, which lie in a folder or in a partition each.
fn table_of_files(root: &Path, is_partitioned: bool) {
    for file in 0..2_i64 {
        let name = if is_partitioned { format!("p={file}/f.parquet") } else { format!("f{file}.parquet") };
        write(&root.join(name), &numbers(&[2 * file, 2 * file + 1]));
    }
}

/// How often the data files are listed for some work.
async fn listings<T>(table: &Table, work: impl Future<Output = Result<T>>) -> u64 {
    let before = table.metrics().listings.get();
    work.await.unwrap();
    table.metrics().listings.get() - before
}

fn spec(name: &str) -> IndexSpec {
    let (name, columns, kind) = (Some(name.to_owned()), vec!["v".to_owned()], Some(IndexKind::Bitmap));
    IndexSpec { name, columns, kind, ..IndexSpec::default() }
}

#[tokio::test]
async fn each_verb_lists_the_data_files_once_at_most() {
    for is_partitioned in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        table_of_files(folder.path(), is_partitioned);
        // What was written just now may still be changing, and is listed each time.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let table = open(folder.path()).await;
        let (key, none) = (["k".to_owned()], BTreeMap::new());
        for is_new in [true, false] {
            let declared = async { table.declare_key(&key, &none, BuildOptions::default()).await };
            assert_eq!(listings(&table, declared).await, 1, "a key that is new: {is_new}");
        }
        // The store came to the folder just now.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(table.snapshot().await.unwrap().index_coverage().uncovered_files, 0);
        assert_eq!(listings(&table, table.snapshot()).await, 1);
        assert_eq!(listings(&table, table.create_index(spec("one"), false)).await, 1);
        assert_eq!(listings(&table, table.drop_index("one", false)).await, 0);
        assert_eq!(listings(&table, table.key()).await, 0);
        assert_eq!(listings(&table, make(&table, Operation::Upsert, numbers(&[1, 10]))).await, 0);
        assert_eq!(listings(&table, make(&table, Operation::Update, numbers(&[2]))).await, 0);
        assert_eq!(listings(&table, make(&table, Operation::Delete, keys(&[3]))).await, 0);
        assert_eq!(listings(&table, make(&table, Operation::Insert, numbers(&[11]))).await, 1);
        assert_eq!(listings(&table, table.flush()).await, 1);
        assert_eq!(table.snapshot().await.unwrap().rows(), Some(5));
        let more = if is_partitioned { "p=0/more.parquet" } else { "more.parquet" };
        write(&folder.path().join(more), &numbers(&[20]));
        assert_eq!(listings(&table, table.snapshot()).await, 1);
        assert_eq!(table.snapshot().await.unwrap().rows(), Some(6));
    }
}

#[tokio::test]
async fn the_key_of_a_table_is_known_before_anything_else_is() {
    let folder = tempfile::tempdir().unwrap();
    table_of_files(folder.path(), true);
    let table = open(folder.path()).await;
    assert_eq!(table.key_columns().await.unwrap(), None);
    table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let opened = open(folder.path()).await;
    assert_eq!(listings(&opened, opened.key()).await, 0);
    assert_eq!(opened.key_columns().await.unwrap(), Some(vec!["k".to_owned()]));
}
