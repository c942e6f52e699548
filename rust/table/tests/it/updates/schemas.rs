//! Changes that are buffered while the columns of the table are added in front, moved, renamed or dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use lakemark_table::{MigrateOptions, Operation, Snapshot, Table};

use super::lake::{Lake, PLAIN};
use super::{batch, keyed, make, numbers, row, rows};
use crate::fixture::{open, write};

fn texts(rows: &[(i64, &str)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
    RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
}

fn without_indexes(path: &std::path::Path) {
    let index_files = path.join("_lakemark/indexes");
    if index_files.exists() {
        std::fs::remove_dir_all(index_files).unwrap();
    }
}

/// The rows of a table that is indexed, and of the same without its indexes.
async fn rows_with_and_without_indexes(path: &std::path::Path) -> BTreeMap<i64, super::Row> {
    let with = rows(&*open(path).await).await;
    without_indexes(path);
    assert_eq!(rows(&*open(path).await).await, with, "without indexes");
    with
}

/// Ten rows of which one column of two was updated, in a run.
async fn updated(lake: &mut Lake) -> Arc<Table> {
    let base: Vec<_> = (0..10).map(|k| (k, Some(1), Some("base"))).collect();
    let add = lake.put("f.parquet", &batch(&base));
    lake.commit(&[add]);
    let table = keyed(lake.root()).await;
    make(&table, Operation::Update, numbers(&[(3, Some(111)), (4, Some(112))])).await.unwrap();
    table.flush().await.unwrap();
    table
}

#[tokio::test]
async fn law_1_updates_of_some_columns_outlive_a_column_that_is_added_in_front() {
    let mut lake = Lake::new(&PLAIN, false);
    updated(&mut lake).await;
    lake.alter(&[&[("x", "x", "long")][..], &PLAIN].concat());
    let table = open(lake.root()).await;
    make(&table, Operation::Update, texts(&[(3, "zz")])).await.unwrap();
    let expected = |now: &BTreeMap<i64, super::Row>| {
        assert_eq!((&now[&3], &now[&4], &now[&5]), (&row(111, "zz"), &row(112, "base"), &row(1, "base")));
    };
    expected(&rows(&table).await);
    table.flush().await.unwrap();
    expected(&rows_with_and_without_indexes(lake.root()).await);
    // Somebody writes the file anew, so that the updates are completed from the new one.
    let base: Vec<_> = (0..10).map(|k| (k, Some(2), Some("new"))).collect();
    let actions = [Lake::removes("f.parquet"), lake.put("g.parquet", &batch(&base))];
    lake.commit(&actions);
    let now = rows_with_and_without_indexes(lake.root()).await;
    assert_eq!((&now[&3], &now[&4], &now[&5]), (&row(111, "zz"), &row(112, "new"), &row(2, "new")));
    open(lake.root()).await.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(rows(&*open(lake.root()).await).await, now);
}

#[tokio::test]
async fn updates_follow_columns_that_change_places_and_names() {
    let mapped = [("k", "c1", "long"), ("a", "c2", "integer"), ("s", "c3", "string")];
    let mut lake = Lake::new(&mapped, true);
    let stored = |rows: &RecordBatch| {
        RecordBatch::try_from_iter(["c1", "c2", "c3"].into_iter().zip(rows.columns().iter().cloned())).unwrap()
    };
    let base: Vec<_> = (0..10).map(|k| (k, Some(1), Some("base"))).collect();
    let add = lake.put("f.parquet", &stored(&batch(&base)));
    lake.commit(&[add]);
    let table = keyed(lake.root()).await;
    make(&table, Operation::Update, numbers(&[(3, Some(111))])).await.unwrap();
    table.flush().await.unwrap();
    lake.alter(&[("s", "c3", "string"), ("a", "c2", "integer"), ("k", "c1", "long")]);
    make(&open(lake.root()).await, Operation::Update, texts(&[(3, "zz")])).await.unwrap();
    assert_eq!(buffered(&lake, "a").await, row(111, "zz"));
    // Dropped, and added again: another column, of which nothing is buffered.
    lake.alter(&[("k", "c1", "long"), ("s", "c3", "string"), ("a", "c9", "integer")]);
    assert_eq!(buffered(&lake, "a").await, (None, Some("zz".to_owned())));
    // As it was before, under another name.
    lake.alter(&[("n", "c9", "integer"), ("k", "c1", "long"), ("b", "c2", "integer"), ("s", "c3", "string")]);
    assert_eq!(buffered(&lake, "b").await, row(111, "zz"));
    std::fs::remove_dir_all(lake.root().join("_lakemark/indexes")).unwrap();
    assert_eq!(buffered(&lake, "b").await, row(111, "zz"));
}

/// The one row that is buffered in memory, with this column for `a`.
async fn buffered(lake: &Lake, a: &str) -> super::Row {
    let snapshot = open(lake.root()).await.snapshot().await.unwrap();
    let buffered = snapshot.buffered_rows().unwrap();
    let ([rows], []) = (buffered.batches.as_slice(), buffered.files.as_slice()) else { panic!("{buffered:?}") };
    let column = |name: &str| rows.column_by_name(name).unwrap().clone();
    assert_eq!(column("k").as_primitive::<Int64Type>().values(), &[3]);
    let (a, s) = (column(a), column("s"));
    let a = a.as_primitive::<Int32Type>();
    (a.iter().next().unwrap(), s.as_string::<i32>().iter().next().unwrap().map(str::to_owned))
}

/// The partition column comes last, so that it moves when a file has one more column.
#[tokio::test]
async fn updates_of_a_partition_column_outlive_a_file_with_one_more_column() {
    let folder = tempfile::tempdir().unwrap();
    let columns = |keys: &[i64], wide: bool| {
        let k: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let x: ArrayRef = Arc::new(Int32Array::from(vec![5; keys.len()]));
        let all = [("k", k), ("x", x)];
        RecordBatch::try_from_iter(all.into_iter().take(if wide { 2 } else { 1 })).unwrap()
    };
    write(&folder.path().join("p=1/f.parquet"), &columns(&[1, 2, 3], false));
    let table = keyed(folder.path()).await;
    let p: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let update = RecordBatch::try_from_iter([("k", columns(&[2], false).column(0).clone()), ("p", p)]).unwrap();
    make(&table, Operation::Update, update).await.unwrap();
    table.flush().await.unwrap();
    write(&folder.path().join("p=1/g.parquet"), &columns(&[4], true));
    let table = open(folder.path()).await;
    let x: ArrayRef = Arc::new(Int32Array::from(vec![9]));
    let update = RecordBatch::try_from_iter([("k", columns(&[2], false).column(0).clone()), ("x", x)]).unwrap();
    make(&table, Operation::Update, update).await.unwrap();
    for _ in 0..2 {
        let snapshot = open(folder.path()).await.snapshot().await.unwrap();
        let buffered = snapshot.buffered_rows().unwrap();
        let [rows] = buffered.batches.as_slice() else { panic!("{buffered:?}") };
        let value = |name: &str| rows.column_by_name(name).unwrap().clone();
        assert_eq!(value("k").as_primitive::<Int64Type>().values(), &[2]);
        assert_eq!(value("p").as_primitive::<Int64Type>().values(), &[7]);
        assert_eq!(value("x").as_primitive::<Int32Type>().values(), &[9]);
        without_indexes(folder.path());
    }
}

#[tokio::test]
async fn a_table_whose_key_was_dropped_is_read_while_nothing_is_buffered() {
    for is_buffered in [false, true] {
        let mut lake = Lake::new(&PLAIN, true);
        let add = lake.put("f.parquet", &batch(&[(1, Some(1), Some("base"))]));
        lake.commit(&[add]);
        let table = keyed(lake.root()).await;
        make(&table, Operation::Upsert, batch(&[(2, Some(2), Some("up"))])).await.unwrap();
        if !is_buffered {
            table.migrate(MigrateOptions::default()).await.unwrap();
        }
        lake.alter(&PLAIN[1..]);
        for table in [&table, &open(lake.root()).await] {
            let error = make(table, Operation::Update, numbers(&[(1, Some(2))])).await.unwrap_err();
            assert!(error.to_string().contains("the column k of the key is no longer in the table"), "{error}");
            let snapshot = table.snapshot().await;
            if is_buffered {
                let error = snapshot.unwrap_err();
                assert!(error.to_string().contains("the column k of the key is no longer in the table"), "{error}");
                continue;
            }
            let snapshot = snapshot.unwrap();
            assert_eq!((snapshot.schema().fields().len(), snapshot.files().len()), (2, 2));
            assert_eq!((snapshot.key_columns(), snapshot.buffered_rows().is_some()), (None, false));
            assert_eq!(snapshot.sequence(), Some(1));
            assert!(table.updates_info().await.unwrap().is_none());
        }
        // It is the same column as before.
        lake.alter(&PLAIN);
        make(&table, Operation::Update, numbers(&[(1, Some(7))])).await.unwrap();
        let expected = BTreeMap::from([(1, row(7, "base")), (2, row(2, "up"))]);
        assert_eq!(rows(&*open(lake.root()).await).await, expected);
    }
}

/// Whatever is buffered, the columns of a Delta table are what its log says.
#[tokio::test]
async fn a_partition_of_a_delta_table_that_gets_another_type_is_not_held_as_text() {
    use serde_json::json;
    let columns = |kind: &str| {
        let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
        json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
            "schemaString": json!({"type": "struct", "fields": [field("k", "long"), field("part", kind)]}).to_string(),
            "partitionColumns": ["part"], "configuration": {}, "createdTime": 0}})
    };
    for (part, is_left) in [("x", false), ("7", true)] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let add = |name: &str, part: &str| {
            write(&root.join(name), &super::keys(&[1]));
            let size = std::fs::metadata(root.join(name)).unwrap().len();
            json!({"add": {"path": name, "partitionValues": {"part": part}, "size": size, "modificationTime": 1, "dataChange": true}})
        };
        let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
        crate::delta::commit(root, 0, &[protocol, columns("string"), add("a.parquet", "a")]);
        let table = keyed(root).await;
        let value: ArrayRef = Arc::new(StringArray::from(vec![part]));
        let row = super::keys(&[2]);
        let row = RecordBatch::try_from_iter([("k", Arc::clone(row.column(0))), ("part", value)]).unwrap();
        make(&table, Operation::Upsert, row).await.unwrap();
        let others = [Lake::removes("a.parquet"), columns("long"), add("b.parquet", "1")];
        crate::delta::commit(root, 1, &others);
        let of_part = |snapshot: Arc<Snapshot>| snapshot.schema().field(1).data_type().clone();
        let buffered = table.snapshot().await.map(of_part);
        assert_eq!(buffered.ok(), is_left.then_some(DataType::Int64), "{part}, which is pending");
        let migrated = table.migrate(MigrateOptions::default()).await;
        assert_eq!(migrated.is_ok(), is_left, "{part}: {migrated:?}");
        if is_left {
            let snapshot = table.snapshot().await.unwrap();
            assert_eq!(snapshot.files().len(), 2);
            assert_eq!(of_part(snapshot), DataType::Int64);
        }
    }
}
