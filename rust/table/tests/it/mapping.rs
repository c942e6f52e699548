//! Delta tables whose columns are stored under other names than they show.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::Schema;
use lakemark_index::Reason;
use lakemark_table::{BuildOptions, ErrorKind, FileProbe};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde_json::{Value, json};

use crate::delta::commit;
use crate::fixture::{batch, equals, exact_rows, is_null, k_values, open, probe, rows_of, spec, write};

/// A column of the log: shown name, stored name, type.
pub type Column<'a> = (&'a str, &'a str, &'a str);

const COLUMNS: [Column<'_>; 3] = [("day", "col-day", "date"), ("k", "col-k", "integer"), ("s", "col-s", "string")];

pub fn metadata(mode: &str, columns: &[Column<'_>]) -> Value {
    let field = |(id, (shown, stored, kind)): (usize, &Column<'_>)| {
        json!({"name": shown, "type": kind, "nullable": true,
            "metadata": {"delta.columnMapping.id": id + 1, "delta.columnMapping.physicalName": stored}})
    };
    let fields: Vec<Value> = columns.iter().enumerate().map(field).collect();
    json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
        "schemaString": json!({"type": "struct", "fields": fields}).to_string(), "partitionColumns": ["day"],
        "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}, "createdTime": 0}})
}

pub fn add(root: &Path, path: &str, partition: &str, day: Option<&str>) -> Value {
    let size = std::fs::metadata(root.join(path)).unwrap().len();
    json!({"add": {"path": path, "partitionValues": {partition: day}, "size": size,
        "modificationTime": 1_700_000_000_000u64, "dataChange": true}})
}

/// The rows of [`batch`] under stored names.
fn stored(first: usize, names: [&str; 2]) -> RecordBatch {
    let rows = batch(first, 250);
    RecordBatch::try_from_iter(names.into_iter().zip(rows.columns().iter().cloned())).unwrap()
}

/// A table of two files in two days.
fn table() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &stored(0, ["col-k", "col-s"]));
    write(&root.join("b.parquet"), &stored(250, ["col-k", "col-s"]));
    let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
    let files = [add(root, "a.parquet", "col-day", Some("2024-01-31")), add(root, "b.parquet", "col-day", None)];
    commit(root, 0, &[vec![protocol, metadata("name", &COLUMNS)], files.to_vec()].concat());
    folder
}

#[tokio::test]
async fn columns_are_found_by_their_stored_names_and_show_the_table_s() {
    let folder = table();
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    let names: Vec<_> = snapshot.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["day", "k", "s"]);
    assert!(snapshot.schema().fields().iter().all(|field| field.metadata().is_empty()), "{:?}", snapshot.schema());
    assert_eq!(exact_rows(&probe(&snapshot, &is_null("day")).await.files[0]), [] as [u32; 0]);
    table.create_index(spec("k"), false).await.unwrap();
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().rows, 500);
    let snapshot = table.snapshot().await.unwrap();
    let info = &snapshot.indexes()[0];
    assert_eq!((info.name.as_str(), info.column.as_str(), info.coverage), ("k_bitmap", "k", 1.0));
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert_eq!(found.report.leaves[0].index.as_ref().map(|by| by.name()), Some("k_bitmap"));
    assert!(table.verify().await.unwrap().is_ok());
    assert_eq!(table.create_index(spec("col-k"), false).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_index_follows_its_column_when_that_is_renamed() {
    let folder = table();
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    // `k` becomes `key`, and `s` becomes `k`: names alone would mix them up.
    let renamed = [("day", "col-day", "date"), ("key", "col-k", "integer"), ("k", "col-s", "string")];
    commit(folder.path(), 1, &[metadata("name", &renamed)]);
    let snapshot = table.snapshot().await.unwrap();
    let info = &snapshot.indexes()[0];
    assert_eq!((info.column.as_str(), info.data_type.as_str(), info.coverage), ("key", "Int32", 1.0));
    let found = probe(&snapshot, &equals("key", 3)).await;
    assert_eq!(exact_rows(&found.files[0]), rows_of(&k_values(0, 250), 3));
    let found = probe(&snapshot, &is_null("k")).await;
    assert_eq!((&found.files[0], found.report.leaves[0].reason), (&FileProbe::Unknown, Some(Reason::NoIndex)));
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().segments, 0);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_column_that_is_dropped_and_added_again_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    // Mapped later than it was made: the stored names are the first names.
    write(&root.join("a.parquet"), &stored(0, ["k", "s"]));
    let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
    let first = [("day", "day", "date"), ("k", "k", "integer"), ("s", "s", "string")];
    commit(root, 0, &[protocol, metadata("name", &first), add(root, "a.parquet", "day", None)]);
    let table = open(root).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let again = [("day", "day", "date"), ("s", "s", "string"), ("k", "col-7", "integer")];
    commit(root, 1, &[metadata("name", &again)]);
    let other: ArrayRef = Arc::new(Int32Array::from(vec![3, 4, 3]));
    write(&root.join("b.parquet"), &RecordBatch::try_from_iter([("col-7", other)]).unwrap());
    commit(root, 2, &[add(root, "b.parquet", "day", None)]);

    let snapshot = table.snapshot().await.unwrap();
    let info = &snapshot.indexes()[0];
    assert_eq!((info.data_type.as_str(), info.coverage), ("gone", 0.0));
    // The file of the dropped column has no such column: NULL in every row, which the manifest knows.
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!((exact_rows(&found.files[0]), &found.files[1]), (vec![], &FileProbe::Unknown));
    assert_eq!(exact_rows(&probe(&snapshot, &is_null("k")).await.files[0]).len(), 250);
    let named = lakemark_table::IndexSpec { name: Some("second".to_owned()), ..spec("k") };
    table.create_index(named, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[1])), (vec![], vec![0, 2]));
    assert_eq!(snapshot.indexes()[1].coverage, 1.0);
}

/// The same rows, of which the file says the ids of the columns.
fn numbered(rows: &RecordBatch, ids: [u32; 2]) -> RecordBatch {
    let schema = rows.schema();
    let fields = schema.fields().iter().zip(ids).map(|(field, id)| {
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
        field.as_ref().clone().with_metadata(id)
    });
    let fields: Vec<_> = fields.collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), rows.columns().to_vec()).unwrap()
}

#[tokio::test]
async fn a_table_that_maps_columns_by_id_is_read_where_names_agree_with_ids() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &numbered(&stored(0, ["col-k", "col-s"]), [2, 3]));
    let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
    commit(root, 0, &[protocol, metadata("id", &COLUMNS), add(root, "a.parquet", "col-day", None)]);
    let table = open(root).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[0]), rows_of(&k_values(0, 250), 3));
    // Renamed in the log alone, and a file that comes with the next commit.
    let renamed = [("day", "col-day", "date"), ("key", "col-k", "integer"), ("s", "col-s", "string")];
    write(&root.join("b.parquet"), &numbered(&stored(250, ["col-k", "col-s"]), [2, 3]));
    commit(root, 1, &[metadata("id", &renamed)]);
    commit(root, 2, &[add(root, "b.parquet", "col-day", None)]);
    table.build(BuildOptions::default()).await.unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &equals("key", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_file_whose_names_and_ids_disagree_is_refused_by_its_name() {
    // No ids, as other formats have them, and ids that are those of other columns: names would find wrong values.
    for (ids, wrong) in [(None, "without an id"), (Some([3, 2]), "under the name col-s")] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(&root.join("a.parquet"), &numbered(&stored(0, ["col-k", "col-s"]), [2, 3]));
        let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
        commit(root, 0, &[protocol, metadata("id", &COLUMNS), add(root, "a.parquet", "col-day", None)]);
        let table = open(root).await;
        table.snapshot().await.unwrap();
        let rows = stored(250, ["col-k", "col-s"]);
        write(&root.join("b.parquet"), &ids.map_or(rows.clone(), |ids| numbered(&rows, ids)));
        commit(root, 1, &[add(root, "b.parquet", "col-day", None)]);
        // The table that was open before reads the commit alone, and another one all of the log.
        for table in [&table, &open(root).await] {
            let error = table.snapshot().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("b.parquet") && error.to_string().contains(wrong), "{error}");
        }
    }
}
