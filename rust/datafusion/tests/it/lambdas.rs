//! Lambdas: their variables go by the columns that stood around them when they were planned, and keep the types that they were written with.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Int64Type};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, Change, Operation, WriteOptions};
use tempfile::TempDir;

use crate::fixture::{both, create_indexes, open, rows, session, write};

const ROWS: i64 = 3000;

/// `id`; `l`, a list of up to four numbers; `s` with the numbers `a` and `b`; `name`, one of nine texts.
fn batch() -> RecordBatch {
    let list =
        |row: i64| (row % 10 != 0).then(|| (0..row % 5).map(move |place| Some((row + place) % 7)).collect::<Vec<_>>());
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>((0..ROWS).map(list));
    let number = |by: i64| Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row % by - 2))) as ArrayRef;
    let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    let structs = StructArray::from(vec![(field("a"), number(11)), (field("b"), number(13))]);
    let names: StringArray = (0..ROWS).map(|row| Some(format!("name {}", row % 9))).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS)) as ArrayRef, true),
        ("l", Arc::new(lists) as ArrayRef, true),
        ("s", Arc::new(structs) as ArrayRef, true),
        ("name", Arc::new(names) as ArrayRef, true),
    ])
    .unwrap()
}

/// A session that knows the table, and the same rows in memory as `e`.
async fn with_rows_in_memory(folder: &Path) -> LakemarkSession {
    let session = session(folder).await;
    for sql in ["CREATE TABLE e AS SELECT * FROM t", "SET datafusion.sql_parser.dialect = 'databricks'"] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    session
}

async fn check(session: &LakemarkSession, sql: &str) {
    let mut expected = rows(session, &sql.replace("FROM t", "FROM e").replace("JOIN t", "JOIN e")).await;
    expected.sort();
    assert!(!expected.is_empty(), "{sql}");
    let (with, without) = both(session, sql).await;
    assert_eq!((&with, &without), (&expected, &expected), "{sql}");
}

/// Statements with lambdas, and with keys of maps, whose types are as fixed.
const STATEMENTS: [&str; 10] = [
    "SELECT id FROM t WHERE array_any_match(l, x -> x > 5)",
    "SELECT l FROM t WHERE array_any_match(l, x -> x > 3) AND s['a'] > 0 AND s['b'] > 0",
    "SELECT array_transform(l, x -> x + 1), s['a'], s['b'] FROM t",
    "SELECT array_transform(l, x -> x + id), s['a'] FROM t WHERE s['b'] = 3",
    "SELECT * FROM t WHERE array_any_match(l, x -> x > 2)",
    "SELECT l, s['a'] FROM (SELECT l, s FROM t ORDER BY id LIMIT 50) q WHERE array_any_match(l, x -> x > 2)",
    "SELECT s['a'], array_transform(array_agg(name ORDER BY id), x -> upper(x)) FROM t GROUP BY s['a']",
    "SELECT map(make_array(a.name), make_array(a.id))['name 3'] FROM t a JOIN t b ON a.id = b.id",
    "SELECT s['a'], map(make_array(max(name)), make_array(max(id)))['name 8'] FROM t GROUP BY s['a']",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id AND array_any_match(a.l, x -> x > b.s['a']) WHERE b.name > 'name 4'",
];

#[tokio::test]
async fn lambdas_over_files_are_what_they_are_in_memory() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("part-0.parquet"), &batch());
    // The table of two columns alone is narrower than what a scan may read of it.
    let narrow = TempDir::new().unwrap();
    write(&narrow.path().join("part-0.parquet"), &batch().project(&[1, 2]).unwrap());
    create_indexes(folder.path(), &["id", "name"]).await;
    for pushes_fields in [true, false] {
        let setting = format!("SET datafusion.optimizer.enable_leaf_expression_pushdown = {pushes_fields}");
        let sessions = [with_rows_in_memory(folder.path()).await, with_rows_in_memory(narrow.path()).await];
        for session in &sessions {
            session.sql(&setting).await.unwrap().collect().await.unwrap();
        }
        for sql in STATEMENTS {
            check(&sessions[0], sql).await;
        }
        for sql in STATEMENTS.iter().filter(|sql| !sql.contains("id") && !sql.contains("name")) {
            check(&sessions[1], sql).await;
        }
    }
}

#[tokio::test]
async fn lambdas_over_rows_with_gaps_are_what_they_are_in_memory() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("part-0.parquet"), &batch());
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let every_third: Vec<u32> = (0..ROWS as u32).filter(|row| row % 3 == 0).collect();
    let rows = take_record_batch(&batch().project(&[0]).unwrap(), &UInt32Array::from(every_third)).unwrap();
    table.write(vec![Change { operation: Operation::Delete, rows }], WriteOptions::default()).await.unwrap();
    let session = with_rows_in_memory(folder.path()).await;
    for sql in STATEMENTS {
        check(&session, sql).await;
    }
}
