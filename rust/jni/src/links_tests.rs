use std::fs::File;

use arrow::array::{AsArray, UInt64Array};
use arrow::datatypes::{DataType, Int64Type};
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, TableOptions};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::*;
use crate::runtime::block_on;

/// A table with the columns `s`, `p` and `o`, in one file.
async fn table_of(folder: &tempfile::TempDir, columns: [ArrayRef; 3]) -> Arc<Table> {
    let rows = RecordBatch::try_from_iter(["s", "p", "o"].into_iter().zip(columns)).expect("columns");
    let file = File::create(folder.path().join("a.parquet")).expect("a file");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).expect("a writer");
    writer.write(&rows).expect("rows");
    writer.close().expect("a footer");
    Table::open(folder.path().to_str().expect("UTF-8"), TableOptions::default()).await.expect("a table")
}

fn texts(values: [&str; 3]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// Two animals and what they like.
fn animals() -> [ArrayRef; 3] {
    [texts(["cat", "mammal", "cat"]), texts(["is_a", "is_a", "likes"]), texts(["mammal", "animal", "fish"])]
}

async fn declare(table: &Arc<Table>, columns: &[&str]) {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    let spec = IndexSpec { columns, kind: Some(IndexKind::Links), ..IndexSpec::default() };
    table.create_index(spec, false).await.expect("an index");
    table.build(BuildOptions::default()).await.expect("a build");
}

async fn walk(table: &Arc<Table>, request: Value) -> Result<RecordBatch> {
    answer(table, serde_json::from_value(request).expect("a request")).await
}

fn texts_of(rows: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let values = rows.column_by_name(column).expect("a column").as_string::<i32>();
    values.iter().map(|value| value.map(str::to_owned)).collect()
}

#[test]
fn walks_have_the_columns_of_the_table_functions_in_types_of_spark() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let table = table_of(&folder, animals()).await;
        declare(&table, &["s", "p", "o"]).await;
        let cat = json!({"string": ["cat"]});
        let reached = walk(&table, json!({"walk": "reach", "start": cat, "via": {"string": ["is_a"]}})).await;
        let reached = reached.expect("rows");
        assert_eq!(texts_of(&reached, "node"), [Some("mammal".to_owned()), Some("animal".to_owned())]);
        assert_eq!(reached.column_by_name("depth").expect("a depth").as_primitive::<Int64Type>().values(), &[1_i64, 2]);
        let request = json!({"walk": "links", "start": cat, "direction": "out", "limit": 1});
        let near = walk(&table, request).await.expect("rows");
        let names: Vec<String> = near.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!((names, near.num_rows()), (["from", "predicate", "node"].map(str::to_owned).to_vec(), 1));
        let path = walk(&table, json!({"walk": "path", "start": cat, "to": {"string": ["animal"]}})).await;
        let path = path.expect("rows");
        assert_eq!(path.column_by_name("step").expect("a step").as_primitive::<Int64Type>().values(), &[0_i64, 1, 2]);
        assert_eq!(texts_of(&path, "predicate"), [None, Some("is_a".to_owned()), Some("is_a".to_owned())]);
    })
    .expect("threads");
}

#[test]
fn nodes_may_be_numbers_beyond_those_of_java_and_bytes() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let numbers = |values: [u64; 3]| -> ArrayRef { Arc::new(UInt64Array::from(values.to_vec())) };
        let columns = [numbers([u64::MAX, 1, 2]), numbers([1; 3]), numbers([1, 2, u64::MAX])];
        let table = table_of(&folder, columns).await;
        let columns = json!(["S", "p", "O"]);
        let request = json!({"walk": "reach", "start": {"decimal": [u64::MAX.to_string()]}, "via": {"long": [1]}, "columns": columns});
        let reached = walk(&table, request).await.expect("rows");
        assert_eq!((reached.num_rows(), reached.column(0).data_type()), (3, &DataType::Decimal128(20, 0)));
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = |values: [&[u8]; 3]| -> ArrayRef { Arc::new(BinaryArray::from_vec(values.to_vec())) };
        let columns = [bytes([b"\xff", b"\x00", b"a"]), bytes([b"p"; 3]), bytes([b"\x00", b"a", b"b"])];
        let table = table_of(&folder, columns).await;
        let start = json!({"binary": [STANDARD.encode(b"\xff")]});
        let reached = walk(&table, json!({"walk": "reach", "start": start, "columns": ["s", "o"]})).await.expect("rows");
        assert_eq!((reached.num_rows(), reached.column(0).data_type()), (3, &DataType::Binary));
    })
    .expect("threads");
}

#[test]
fn what_makes_no_sense_is_an_error_with_its_kind() {
    block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let table = table_of(&folder, animals()).await;
        let cat = json!({"string": ["cat"]});
        let none = walk(&table, json!({"walk": "reach", "start": cat})).await.expect_err("no index");
        assert_eq!(none.kind, ErrorKind::NotFound);
        assert!(none.message.contains("USING links"), "{none}");
        declare(&table, &["s", "p", "o"]).await;
        for (more, kind) in [
            (json!({"max_depth": 0}), ErrorKind::InvalidInput),
            (json!({"direction": "up"}), ErrorKind::InvalidInput),
            (json!({"start": {"binary": ["/w=="]}}), ErrorKind::InvalidInput),
            (json!({"columns": ["s", "q"]}), ErrorKind::NotFound),
            (json!({"memory": 1}), ErrorKind::Unsupported),
            (json!({"to": {"string": ["fish"]}}), ErrorKind::Internal),
        ] {
            let mut request = json!({"walk": "reach", "start": cat});
            request.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            assert_eq!(walk(&table, request).await.expect_err("an error").kind, kind, "{more}");
        }
        declare(&table, &["s", "o"]).await;
        let several = walk(&table, json!({"walk": "reach", "start": cat})).await.expect_err("two indexes");
        assert_eq!(several.kind, ErrorKind::InvalidInput);
        assert!(several.message.contains("(s, o) and (s, p, o)"), "{several}");
        let named = walk(&table, json!({"walk": "reach", "start": cat, "columns": ["s", "o"]})).await;
        assert_eq!(named.expect("rows").num_rows(), 3);
    })
    .expect("threads");
}
