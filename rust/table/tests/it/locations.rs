//! Where tables are: folders, globs, files and URLs, partitions by folders, and columns that some files lack.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use lakemark_index::Predicate;
use lakemark_table::{ErrorKind, FileProbe, Table, TableFormat, TableOptions};

use crate::fixture::{
    batch, create_indexes, equals, exact_rows, folder, is_null, k_values, open, probe, rows_of, spec, write,
};

fn paths(snapshot: &lakemark_table::Snapshot) -> Vec<&str> {
    snapshot.files().iter().map(|file| file.path.as_str()).collect()
}

#[tokio::test]
async fn a_folder_lists_its_parquet_files_and_nothing_hidden() {
    let folder = folder(2);
    let root = folder.path();
    write(&root.join("deeper/x.parquet"), &batch(0, 5));
    write(&root.join("_temporary/x.parquet"), &batch(0, 5));
    write(&root.join(".hidden.parquet"), &batch(0, 5));
    std::fs::write(root.join("_SUCCESS"), "").unwrap();
    std::fs::write(root.join("readme.txt"), "").unwrap();
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(table.format(), TableFormat::Parquet);
    assert_eq!(paths(&snapshot), ["deeper/x.parquet", "f0000.parquet", "f0001.parquet"]);
    assert_eq!(snapshot.schema().field(0).data_type(), &DataType::Int32);
    assert_eq!(snapshot.files().get(1).unwrap().row_groups, Some(vec![100, 100, 50]));
}

#[tokio::test]
async fn urls_globs_and_single_files_name_the_same_data() {
    let folder = folder(3);
    let root = folder.path().to_str().unwrap();
    let by = async |location: String| {
        let table = Table::open(&location, TableOptions::default()).await.unwrap();
        table.snapshot().await.unwrap().files().len()
    };
    assert_eq!(by(format!("file://{root}")).await, 3);
    assert_eq!(by(format!("{root}/f000[12].parquet")).await, 2);
    assert_eq!(by(format!("{root}/*.parquet")).await, 3);
    assert_eq!(by(format!("{root}/f0001.parquet")).await, 1);
}

#[tokio::test]
async fn a_glob_is_indexed_in_a_store_of_its_own_and_says_so_without_one() {
    let folder = folder(2);
    let glob = format!("{}/*.parquet", folder.path().display());
    let table = Table::open(&glob, TableOptions::default()).await.unwrap();
    let error = table.create_index(spec("k"), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("--store"), "{error}");
    let store = tempfile::tempdir().unwrap();
    let options = TableOptions { store: Some(store.path().display().to_string()), ..TableOptions::default() };
    let table = Table::open(&glob, options).await.unwrap();
    assert_eq!(create_indexes(&table).await.files, 2);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert!(!folder.path().join("_lakemark").exists());
}

#[tokio::test]
async fn hive_folders_become_typed_constants() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("year=2024/day=2024-02-01/city=a%20b/x.parquet"), &batch(0, 5));
    write(&root.join("year=2025/day=2024-03-01/city=__HIVE_DEFAULT_PARTITION__/x.parquet"), &batch(0, 5));
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    let types: Vec<_> =
        snapshot.partition_columns().iter().map(|field| (field.name().as_str(), field.data_type().clone())).collect();
    assert_eq!(types, [("year", DataType::Int64), ("day", DataType::Date32), ("city", DataType::Utf8)]);
    let values = &snapshot.files().get(0).unwrap().partition_values;
    assert_eq!(values[0].as_primitive::<Int64Type>().value(0), 2024);
    assert_eq!(values[2].as_string::<i32>().value(0), "a b");
    assert!(snapshot.files().get(1).unwrap().partition_values[2].is_null(0));
    assert_eq!(snapshot.schema().fields().len(), 5);
    assert_eq!(snapshot.file_schema().fields().len(), 2);

    let found = probe(&snapshot, &equals("year", 2025)).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[1]).len()), (vec![], 5));
    assert_eq!(found.report.leaves[0].index.as_ref().map(|by| by.name()), Some("partition"));
    let found = probe(&snapshot, &Predicate::Not(Box::new(is_null("city")))).await;
    assert_eq!((exact_rows(&found.files[0]).len(), exact_rows(&found.files[1])), (5, vec![]));

    let error = table.create_index(spec("year"), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn numbers_with_leading_zeros_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("zip=01234/x.parquet"), &batch(0, 5));
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.partition_columns()[0].data_type(), &DataType::Utf8);
    assert_eq!(snapshot.files().get(0).unwrap().partition_values[0].as_string::<i32>().value(0), "01234");
}

#[tokio::test]
async fn columns_may_be_missing_in_some_files_and_are_null_there() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &batch(0, 5));
    let only: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    write(&folder.path().join("b.parquet"), &RecordBatch::try_from_iter([("extra", only)]).unwrap());
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let schema = snapshot.schema();
    assert_eq!(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["k", "s", "extra"]);
    let found = probe(&snapshot, &is_null("k")).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[1])), (vec![0], vec![0, 1, 2]));
    // No index on `s` is needed to know that a file without it has only NULLs.
    let found = probe(&snapshot, &is_null("s")).await;
    assert_eq!(found.files[0], FileProbe::Unknown);
    assert_eq!(exact_rows(&found.files[1]), [0, 1, 2]);
}

#[tokio::test]
async fn incompatible_types_are_an_error_that_names_file_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    write(&folder.path().join("a.parquet"), &RecordBatch::try_from_iter([("k", narrow)]).unwrap());
    write(&folder.path().join("b.parquet"), &RecordBatch::try_from_iter([("k", wide)]).unwrap());
    let error = open(folder.path()).await.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SchemaMismatch);
    let text = error.to_string();
    assert!(text.contains("column k") && text.contains("b.parquet") && text.contains("a.parquet"), "{text}");
}

#[tokio::test]
async fn nothing_to_read_is_a_clear_error() {
    let empty = tempfile::tempdir().unwrap();
    let error = open(empty.path()).await.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no .parquet file"), "{error}");
    let error = Table::open("/nowhere/at/all", TableOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = Table::open("", TableOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = Table::open("gopher://x/y", TableOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_data_file_cut_short_is_named() {
    let folder = folder(2);
    let path = folder.path().join("f0001.parquet");
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 3, 7, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let error = open(folder.path()).await.snapshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{length}");
        assert!(error.to_string().contains("f0001.parquet"), "{error}");
    }
}

#[tokio::test]
async fn dictionaries_are_an_encoding_and_not_a_type() {
    let folder = tempfile::tempdir().unwrap();
    let plain: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let dictionary =
        arrow::compute::cast(&plain, &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)))
            .unwrap();
    write(&folder.path().join("a.parquet"), &RecordBatch::try_from_iter([("s", plain)]).unwrap());
    write(&folder.path().join("b.parquet"), &RecordBatch::try_from_iter([("s", dictionary)]).unwrap());
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.schema().field(0).data_type(), &DataType::Utf8);
}
