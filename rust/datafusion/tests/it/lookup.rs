//! Rows by key: the same rows as by a condition, from an index of the kind `key`, without one, and with a damaged one.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int8Array, Int64Array, NullArray, StringArray, UInt64Array};
use lakemark_datafusion::{ErrorKind, QueryOptions, explain, lookup};
use lakemark_table::{BuildOptions, IndexSpec, Table};

use crate::fixture::{FILE_ROWS, batch, folder, mark, open, text, write};

const WITHOUT: QueryOptions = QueryOptions { use_index: false, use_cache: true };

async fn mark_keys(folder: &Path, columns: &[&str]) {
    let table = open(folder).await;
    for column in columns {
        let spec = IndexSpec { columns: vec![(*column).to_owned()], kind: "key".to_owned(), ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
}

async fn found(table: &Arc<Table>, keys: impl arrow::array::Array + 'static, on: Option<&str>) -> Vec<String> {
    let keys: ArrayRef = Arc::new(keys);
    let columns = ["id".to_owned()];
    let mut rows = Vec::new();
    for options in [QueryOptions::default(), WITHOUT] {
        let (schema, batches) = lookup(table, &keys, on, Some(&columns), &options).await.unwrap();
        assert_eq!(schema.fields().len(), 1);
        let mut found: Vec<String> = batches.iter().flat_map(text).collect();
        found.sort();
        rows.push(found);
    }
    assert_eq!(rows[0], rows[1], "with and without the index");
    rows.remove(0)
}

#[tokio::test]
async fn keys_are_found_in_whatever_type_they_come() {
    let folder = folder(2);
    mark_keys(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    assert_eq!(
        found(&table, Int64Array::from(vec![Some(1999), None, Some(5), Some(2000), Some(5)]), None).await,
        ["1999", "5"]
    );
    assert_eq!(found(&table, Int8Array::from(vec![7, -1]), None).await, ["7"]);
    assert_eq!(found(&table, UInt64Array::from(vec![8, u64::MAX]), None).await, ["8"]);
    // A number between two integers is no integer.
    assert_eq!(found(&table, Float64Array::from(vec![9.0, 9.5, f64::NAN]), None).await, ["9"]);
    assert_eq!(found(&table, StringArray::from(vec!["10"]), None).await, ["10"]);
    assert!(found(&table, NullArray::new(3), None).await.is_empty());
    assert!(found(&table, Int64Array::from(Vec::<i64>::new()), None).await.is_empty());
}

#[tokio::test]
async fn a_column_of_repeated_values_gives_all_of_its_rows() {
    let folder = folder(2);
    mark_keys(folder.path(), &["k", "s", "f"]).await;
    let table = open(folder.path()).await;
    let expected = (0..2 * FILE_ROWS).filter(|row| row % 10 == 4 && row % 7 != 3).count();
    assert_eq!(found(&table, Int64Array::from(vec![4]), Some("k")).await.len(), expected);
    assert_eq!(found(&table, StringArray::from(vec![""]), Some("s")).await.len(), 2 * FILE_ROWS / 5);
    // Rows of NaN are not certain: they are read and tested.
    let zeros = (0..2 * FILE_ROWS).filter(|row| matches!(row % 6, 1 | 2)).count();
    assert_eq!(found(&table, Float64Array::from(vec![-0.0, 0.0]), Some("f")).await.len(), zeros);
}

#[tokio::test]
async fn a_new_file_is_scanned_and_a_damaged_index_costs_time_only() {
    let folder = folder(1);
    mark_keys(folder.path(), &["id"]).await;
    write(&folder.path().join("part-9.parquet"), &batch(FILE_ROWS));
    let table = open(folder.path()).await;
    assert_eq!(found(&table, Int64Array::from(vec![3, 1500]), None).await, ["1500", "3"]);
    let marks = folder.path().join("_lakemark/marks");
    for entry in fs::read_dir(marks).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[70] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(found(&table, Int64Array::from(vec![4, 1501]), None).await, ["1501", "4"]);
}

#[tokio::test]
async fn a_new_key_takes_one_read_of_a_page() {
    let folder = folder(3);
    mark_keys(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    explain(&table, Some("id = 1"), &QueryOptions::default()).await.unwrap();
    // The directories are open now.
    let report = explain(&table, Some("id = 2345"), &QueryOptions::default()).await.unwrap();
    assert_eq!((report.index_reads, report.rows_certain), (1, 1), "{report}");
    assert!(report.index_bytes <= 4096, "{report}");
}

#[tokio::test]
async fn what_cannot_be_looked_up_says_what_to_do() {
    let folder = folder(1);
    mark(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let error = lookup(&table, &keys, None, None, &WITHOUT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("--using key"), "{error}");
    mark_keys(folder.path(), &["id", "s"]).await;
    let error = lookup(&table, &keys, None, None, &WITHOUT).await.unwrap_err();
    assert!(error.to_string().contains("id, s"), "{error}");
    for (on, keys, text) in [
        ("nothing", Arc::clone(&keys), "no column"),
        ("s", keys, "another kind"),
        ("id", Arc::new(StringArray::from(vec!["seven"])) as ArrayRef, "seven"),
    ] {
        let error = lookup(&table, &keys, Some(on), None, &WITHOUT).await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}
