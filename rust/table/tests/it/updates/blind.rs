//! Upserts, updates and deletes by key need the columns of the table and none of its files. They list nothing, and keep what is promised
//! of them whatever others did to the files meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use lakemark_table::{BuildOptions, Change, ErrorKind, MigrateOptions, Operation, Table, TableOptions, WriteOptions};
use object_store::ObjectStore;

use super::{batch, folder, keyed, keys, make, numbers, row, rows};
use crate::fixture::{open, write};
use crate::layer::{Layer, Log};

/// The table as somebody has it open who has looked at it, later than the clock of the file system counts.
async fn looked_at(root: &Path) -> (Arc<Table>, Arc<Log>) {
    looked_at_with(root, TableOptions::default()).await
}

async fn looked_at_with(root: &Path, options: TableOptions) -> (Arc<Table>, Arc<Log>) {
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(root.to_str().unwrap(), options, &layer).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    table.snapshot().await.unwrap();
    log.clear();
    (table, log)
}

/// How often folders of data were listed since the last time.
fn looks(log: &Log) -> usize {
    let listings = log.matching("list_with_delimiter");
    log.clear();
    listings.iter().filter(|listing| !listing.contains("/_lakemark")).count()
}

/// Rows with one more column.
fn wider(rows: &[(i64, i32)]) -> RecordBatch {
    let narrow: Vec<_> = rows.iter().map(|(k, _)| (*k, Some(0), Some("wide"))).collect();
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let batch = batch(&narrow);
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        columns.push((field.name().clone(), Arc::clone(column)));
    }
    columns.push(("z".into(), Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)))));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn has_run(root: &Path) -> bool {
    let mut files = std::fs::read_dir(root.join("_lakemark/updates")).unwrap();
    files.any(|file| file.unwrap().path().extension().is_some_and(|extension| extension == "lmr"))
}

#[tokio::test]
async fn changes_by_key_list_nothing() {
    let folder = folder();
    keyed(folder.path()).await;
    let (table, log) = looked_at(folder.path()).await;
    for round in 0..3 {
        make(&table, Operation::Upsert, batch(&[(2, Some(round), Some("up")), (1001, Some(1), None)])).await.unwrap();
        make(&table, Operation::Update, numbers(&[(4, Some(round))])).await.unwrap();
        make(&table, Operation::Delete, keys(&[6, 1003])).await.unwrap();
    }
    let moved = vec![
        Change { operation: Operation::Delete, rows: keys(&[8]) },
        Change { operation: Operation::Upsert, rows: batch(&[(9, None, None)]) },
    ];
    table.write(moved, WriteOptions::default()).await.unwrap();
    let read_at = Some(10);
    let after = WriteOptions { read_at, ..WriteOptions::default() };
    table.write(vec![Change { operation: Operation::Delete, rows: keys(&[10]) }], after).await.unwrap();
    assert_eq!(looks(&log), 0);
    // An insert asks whether its keys are there.
    make(&table, Operation::Insert, batch(&[(11, None, None)])).await.unwrap();
    assert_eq!(looks(&log), 1);
    let error = make(&table, Operation::Insert, batch(&[(12, None, None)])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let now = rows(&*open(folder.path()).await).await;
    assert_eq!((now.len(), &now[&2], &now[&4], now.get(&6)), (300, &row(2, "up"), &row(2, "base"), None));
    assert_eq!((now.get(&8), now.get(&9), now.get(&10)), (None, Some(&(None, None)), None));
}

#[tokio::test]
async fn partitions_are_not_listed_either() {
    for max_staleness in [Duration::ZERO, Duration::from_secs(3600)] {
        partitions_are_not_listed(TableOptions { max_staleness, ..TableOptions::default() }).await;
    }
}

/// Whoever changes something goes by the columns that are there, however old the files may be that queries go by.
async fn partitions_are_not_listed(options: TableOptions) {
    let folder = tempfile::tempdir().unwrap();
    let path = |part: &str| folder.path().join(format!("p={part}/f.parquet"));
    for part in ["1", "2"] {
        write(&path(part), &keys(&[1, 2]));
    }
    let table = open(folder.path()).await;
    table.declare_key(&["p".to_owned(), "k".to_owned()], &Default::default(), BuildOptions::default()).await.unwrap();
    let (table, log) = looked_at_with(folder.path(), options).await;
    let change = |part: &str| {
        let part: ArrayRef = Arc::new(StringArray::from(vec![part]));
        let k: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        RecordBatch::try_from_iter([("p", part), ("k", k)]).unwrap()
    };
    make(&table, Operation::Upsert, change("1")).await.unwrap();
    assert_eq!(looks(&log), 0);
    // A folder makes the column text, so that 007 is not 7 any more.
    write(&path("x"), &keys(&[1]));
    make(&table, Operation::Upsert, change("007")).await.unwrap();
    assert!(looks(&log) > 0);
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.schema().field_with_name("p").unwrap().data_type(), &DataType::Utf8);
    let buffered = snapshot.buffered_rows().unwrap();
    let parts = buffered.batches.iter().flat_map(|rows| rows.column_by_name("p").unwrap().as_string::<i32>().iter());
    let mut parts: Vec<&str> = parts.flatten().collect();
    parts.sort_unstable();
    assert_eq!(parts, ["007", "1"]);
}

/// Rows of one key in a partition of a partition.
fn nested(part: ArrayRef) -> RecordBatch {
    let number = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    RecordBatch::try_from_iter([("p", number(1)), ("q", part), ("k", number(7))]).unwrap()
}

#[tokio::test]
async fn partitions_are_looked_at_only_for_values_that_a_cast_would_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = |part: &str| folder.path().join(format!("p=1/q={part}/f.parquet"));
    for part in ["1", "2"] {
        write(&path(part), &keys(&[1, 2]));
    }
    let key = ["p", "q", "k"].map(str::to_owned);
    open(folder.path()).await.declare_key(&key, &Default::default(), BuildOptions::default()).await.unwrap();
    let (table, log) = looked_at(folder.path()).await;
    // The table's own folder is as it was, and the column is text by now.
    write(&path("x"), &keys(&[1]));
    make(&table, Operation::Upsert, nested(Arc::new(Int64Array::from(vec![8])))).await.unwrap();
    assert_eq!(looks(&log), 0, "an integer is written in a text as it is given");
    make(&table, Operation::Upsert, nested(Arc::new(StringArray::from(vec!["007"])))).await.unwrap();
    assert!(looks(&log) > 0, "a text may not be written as the integer that it is read as");
    for table in [table, open(folder.path()).await] {
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!(snapshot.schema().field_with_name("q").unwrap().data_type(), &DataType::Utf8);
        let buffered = snapshot.buffered_rows().unwrap();
        let parts = buffered.batches.iter().map(|rows| rows.column_by_name("q").unwrap().as_string::<i32>());
        let mut parts: Vec<&str> = parts.flat_map(|parts| parts.iter().flatten()).collect();
        parts.sort_unstable();
        assert_eq!((parts, snapshot.rows()), (vec!["007", "8"], Some(7)));
    }
}

#[tokio::test]
async fn columns_that_others_add_to_a_partition_are_known_to_the_change_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("p=1/f.parquet"), &batch(&[(1, Some(1), None)]));
    write(&path("p=2/f.parquet"), &batch(&[(2, Some(2), None)]));
    keyed(folder.path()).await;
    let (table, log) = looked_at(folder.path()).await;
    write(&path("p=2/g.parquet"), &wider(&[(3, 1)]));
    make(&table, Operation::Upsert, batch(&[(4, Some(4), None)])).await.unwrap();
    assert_eq!(looks(&log), 0);
    make(&table, Operation::Upsert, wider(&[(5, 7)])).await.unwrap();
    assert!(looks(&log) > 0);
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let values = |batch: &RecordBatch| {
        let number = |name: &str| batch.column_by_name(name).unwrap().clone();
        let (k, z) = (number("k"), number("z"));
        let z = z.as_primitive::<arrow::datatypes::Int32Type>().iter().collect::<Vec<_>>();
        k.as_primitive::<arrow::datatypes::Int64Type>().values().iter().copied().zip(z).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = snapshot.buffered_rows().unwrap().batches.iter().flat_map(values).collect();
    rows.sort_unstable();
    assert_eq!((rows, snapshot.rows()), (vec![(4, None), (5, Some(7))], Some(5)));
}

#[tokio::test]
async fn columns_that_others_add_are_known_to_the_next_change() {
    for in_place in [false, true] {
        let folder = folder();
        keyed(folder.path()).await;
        let (table, _) = looked_at(folder.path()).await;
        // Whoever writes into a file that is there leaves no trace in the folder; the change does not fit then, and the files are looked at.
        let name = if in_place { "f0.parquet" } else { "f2.parquet" };
        write(&folder.path().join(name), &wider(&[(2000, 1)]));
        make(&table, Operation::Upsert, wider(&[(2001, 7)])).await.unwrap();
        let error = make(&table, Operation::Upsert, numbers(&[(1, None)]).project(&[1]).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("lack a column of the key"), "{error}");
        let snapshot = open(folder.path()).await.snapshot().await.unwrap();
        let buffered = &snapshot.buffered_rows().unwrap().batches[0];
        assert_eq!(buffered.column_by_name("z").unwrap().as_primitive::<arrow::datatypes::Int32Type>().value(0), 7);
    }
}

#[tokio::test]
async fn a_run_is_made_of_the_files_that_are_there_and_of_their_columns() {
    for in_place in [false, true] {
        let folder = folder();
        let table = open(folder.path()).await;
        let options =
            [("cache_bytes", "65536"), ("page_bytes", "512")].map(|(name, value)| (name.into(), value.into()));
        table.declare_key(&["k".to_owned()], &options.into(), BuildOptions::default()).await.unwrap();
        let (table, log) = looked_at(folder.path()).await;
        if in_place {
            write(&folder.path().join("f0.parquet"), &wider(&[(0, 1), (2, 1), (50_001, 1)]));
        } else {
            write(&folder.path().join("f9.parquet"), &batch(&[(50_001, Some(1), None)]));
        }
        let mut expected = rows(&*open(folder.path()).await).await;
        let mut first = 0;
        while !has_run(folder.path()) {
            let changed: Vec<_> = (first..first + 20).map(|key| (key, Some(1), Some("changed"))).collect();
            make(&table, Operation::Upsert, batch(&changed)).await.unwrap();
            expected.extend(changed.iter().map(|(key, ..)| (*key, row(1, "changed"))));
            first += 20;
            assert!(first < 100_000, "no run was made");
        }
        assert!(looks(&log) > 0);
        make(&table, Operation::Delete, keys(&[50_001])).await.unwrap();
        assert!(expected.remove(&50_001).is_some());
        assert_eq!(rows(&table).await, expected);
        assert_eq!(rows(&*open(folder.path()).await).await, expected);
    }
}

#[tokio::test]
async fn what_we_move_ourselves_is_looked_at_once() {
    let folder = folder();
    let other = keyed(folder.path()).await;
    make(&other, Operation::Upsert, batch(&[(1001, Some(1), None)])).await.unwrap();
    let (table, log) = looked_at(folder.path()).await;
    for step in 0..2 {
        match step {
            0 => other.migrate(MigrateOptions::default()).await.map(|_| ()).unwrap(),
            _ => other.publish().await.map(|_| ()).unwrap(),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        for expected in [1, 0, 0] {
            make(&table, Operation::Delete, keys(&[2])).await.unwrap();
            assert_eq!(looks(&log), expected, "{step}");
        }
    }
    assert_eq!(rows(&table).await.len(), 300);
}
