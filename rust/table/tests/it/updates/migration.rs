//! What migrations make of data files, and what they leave when something goes wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use lakemark_table::{MigrateOptions, Operation, Snapshot, Table};

use super::{batch, folder, keyed, keys, make, row, rows};
use crate::delta;
use crate::fixture::{open, write};

async fn migrate(table: &Arc<Table>) -> lakemark_table::MigrateReport {
    table.migrate(MigrateOptions::default()).await.unwrap()
}

/// Columns with their types.
fn columns(snapshot: &Snapshot) -> Vec<(String, DataType)> {
    let schema = snapshot.schema();
    schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
}

#[tokio::test]
async fn a_folder_of_which_every_row_is_deleted_keeps_its_columns() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = columns(&table.snapshot().await.unwrap());
    make(&table, Operation::Delete, keys(&(0..300).map(|k| k * 2).collect::<Vec<_>>())).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written, report.rows, report.rows_hidden), (2, 1, 0, 300));
    for _ in 0..2 {
        let table = open(folder.path()).await;
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!((columns(&snapshot), snapshot.files().len()), (before.clone(), 1));
        assert_eq!(rows(&table).await, BTreeMap::new());
        assert_eq!(migrate(&table).await.rows, 0);
        make(&table, Operation::Insert, batch(&[(2, Some(7), Some("again")), (9, None, None)])).await.unwrap();
        let expected = BTreeMap::from([(2, row(7, "again")), (9, (None, None))]);
        assert_eq!(rows(&table).await, expected);
        let report = migrate(&table).await;
        assert_eq!((report.rows, report.files_replaced, report.files_written), (2, 0, 1));
        assert_eq!(rows(&*open(folder.path()).await).await, expected);
        make(&table, Operation::Delete, keys(&[2, 9])).await.unwrap();
        // The file without rows is still there and says the columns.
        let report = migrate(&table).await;
        assert_eq!((report.files_replaced, report.files_written), (1, 0));
    }
}

/// A column that only the files with deleted rows had, and a partition column that would become one of numbers.
#[tokio::test]
async fn columns_and_types_of_partitions_outlive_the_rows_that_had_them() {
    let folder = tempfile::tempdir().unwrap();
    let k = |keys: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(keys.to_vec())) };
    let b: ArrayRef = Arc::new(Int32Array::from(vec![5, 6]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let plain = RecordBatch::try_from_iter([("k", k(&[1, 2])), ("s", s)]).unwrap();
    write(&folder.path().join("p=7/f.parquet"), &plain);
    let wide = RecordBatch::try_from_iter([("k", k(&[3, 4])), ("b", b)]).unwrap();
    write(&folder.path().join("p=x/f.parquet"), &wide);
    write(&folder.path().join("p=x/g.parquet"), &RecordBatch::try_from_iter([("k", k(&[5]))]).unwrap());
    let table = keyed(folder.path()).await;
    let before = columns(&table.snapshot().await.unwrap());
    assert_eq!(before.last().unwrap(), &("p".to_owned(), DataType::Utf8));
    make(&table, Operation::Delete, keys(&[3, 4, 5])).await.unwrap();
    let report = migrate(&table).await;
    // One for the partition x, though two files had it.
    assert_eq!((report.files_replaced, report.files_written), (2, 1));
    let again = open(folder.path()).await.snapshot().await.unwrap();
    let sorted = |mut columns: Vec<(String, DataType)>| {
        columns.sort_by(|a, b| a.0.cmp(&b.0));
        columns
    };
    assert_eq!(sorted(columns(&again)), sorted(before));
    assert_eq!(again.files().len(), 2);
    // What is left of the table shows the same columns: nothing is kept of a file without rows.
    make(&table, Operation::Insert, RecordBatch::try_from_iter([("k", k(&[8]))]).unwrap()).await.unwrap();
    migrate(&table).await;
    make(&table, Operation::Delete, keys(&[8])).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written), (1, 0));
}

#[tokio::test]
async fn a_delta_table_of_which_every_row_is_deleted_keeps_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows_of = |keys: &[i32]| {
        let k: ArrayRef = Arc::new(Int32Array::from(keys.to_vec()));
        let s: ArrayRef = Arc::new(StringArray::from(vec!["x"; keys.len()]));
        RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
    };
    write(&root.join("a.parquet"), &rows_of(&[1, 2, 3]));
    let mut actions = delta::opening(false, serde_json::json!({}));
    actions.push(delta::add(root, "a.parquet", Some("2024-01-31")));
    delta::commit(root, 0, &actions);
    let table = keyed(root).await;
    let before = columns(&table.snapshot().await.unwrap());
    make(&table, Operation::Delete, keys(&[1, 2, 3])).await.unwrap();
    let report = migrate(&table).await;
    assert_eq!((report.files_replaced, report.files_written, report.delta_version), (1, 0, Some(1)));
    let count = |snapshot: &Snapshot| (snapshot.files().len(), snapshot.pending().map_or(0, |rows| rows.row_count()));
    let again = open(root).await;
    let snapshot = again.snapshot().await.unwrap();
    assert_eq!((columns(&snapshot), count(&snapshot)), (before, (0, 0)));
    make(&again, Operation::Insert, rows_of(&[2, 4])).await.unwrap();
    assert_eq!(count(&again.snapshot().await.unwrap()), (0, 2));
    let report = migrate(&again).await;
    assert_eq!((report.rows, report.files_written, report.delta_version), (2, 1, Some(2)));
    assert_eq!(count(&open(root).await.snapshot().await.unwrap()), (1, 0));
}
