//! Random changes of a random table, and a twin: a table whose data files have the rows as they should be then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, interleave, take_record_batch};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, Change, Operation, Table, TableOptions, WriteOptions};
use parquet::arrow::ArrowWriter;
use rand::Rng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use super::column::pick;

/// A table whose rows are those of the changed one.
pub struct Twin {
    pub folder: TempDir,
    pub rows: RecordBatch,
    /// What was done.
    pub description: String,
}

/// Changes the table in `folder` at random.
pub async fn change(rng: &mut StdRng, folder: &Path) -> Twin {
    let mut rows = read(folder).await;
    let table = Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap();
    let options = BTreeMap::from([("page_bytes".to_owned(), "512".to_owned())]);
    let build = BuildOptions { threads: Some(1), ..BuildOptions::default() };
    table.declare_key(&["id".to_owned()], &options, build).await.unwrap();
    if rng.random_bool(0.5) {
        table.drop_index("id_key", false).await.unwrap();
    }
    let mut done = Vec::new();
    for _ in 0..rng.random_range(1..8) {
        if rng.random_bool(0.3) {
            table.flush().await.unwrap();
            done.push("flush".to_owned());
        }
        let change = random_change(rng, &rows);
        done.push(format!("{} {} rows", change.operation.name(), change.rows.num_rows()));
        rows = changed(&rows, change.operation, &change.rows);
        table.write(vec![change], WriteOptions::default()).await.unwrap();
    }
    let twin = tempfile::tempdir().unwrap();
    let file = File::create(twin.path().join("twin.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    Twin { folder: twin, rows, description: done.join(", ") }
}

async fn read(folder: &Path) -> RecordBatch {
    let session = LakemarkSession::new();
    let location = folder.display();
    for statement in [
        "SET lakemark.use_index = false".to_owned(),
        format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{location}'"),
    ] {
        session.sql(&statement).await.unwrap().collect().await.unwrap();
    }
    let frame = session.sql("SELECT * FROM t ORDER BY id").await.unwrap();
    let schema = Arc::new(frame.schema().as_arrow().clone());
    concat_batches(&schema, &frame.collect().await.unwrap()).unwrap()
}

fn ids(rows: &RecordBatch) -> &Int64Array {
    rows.column_by_name("id").unwrap().as_primitive::<Int64Type>()
}

/// Rows like those of the table under other ids, some of which are new.
fn random_change(rng: &mut StdRng, rows: &RecordBatch) -> Change {
    let last = ids(rows).iter().flatten().max().unwrap_or(0);
    let count = *pick(rng, &[1, 5, 40, 200]);
    let chosen: BTreeSet<i64> = (0..count).map(|_| rng.random_range(0..=last + last / 4 + 3)).collect();
    let operations = [Operation::Upsert, Operation::Upsert, Operation::Update, Operation::Update, Operation::Delete];
    let operation = *pick(rng, &operations);
    if operation == Operation::Delete || rows.num_rows() == 0 {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(chosen));
        return Change { operation: Operation::Delete, rows: RecordBatch::try_from_iter([("id", ids)]).unwrap() };
    }
    let sources = UInt32Array::from_iter_values(chosen.iter().map(|_| rng.random_range(0..rows.num_rows()) as u32));
    let like = take_record_batch(rows, &sources).unwrap();
    let mut columns = like.columns().to_vec();
    columns[like.schema().index_of("id").unwrap()] = Arc::new(Int64Array::from_iter_values(chosen));
    let given = RecordBatch::try_new(like.schema(), columns).unwrap();
    if operation == Operation::Upsert {
        return Change { operation, rows: given };
    }
    let mut named: Vec<usize> = (1..given.num_columns()).filter(|_| rng.random_bool(0.5)).collect();
    if named.is_empty() {
        named.push(1);
    }
    named.insert(0, 0);
    Change { operation, rows: given.project(&named).unwrap() }
}

/// The rows after a change.
fn changed(rows: &RecordBatch, operation: Operation, given: &RecordBatch) -> RecordBatch {
    let places: HashMap<i64, usize> = ids(given).iter().flatten().zip(0..).collect();
    if operation == Operation::Update {
        let source = |row: usize, named: Option<usize>| match (named, places.get(&ids(rows).value(row))) {
            (Some(_), Some(place)) => (1, *place),
            _ => (0, row),
        };
        let schema = rows.schema();
        let columns = schema.fields().iter().zip(rows.columns()).map(|(field, column)| {
            let named = given.schema().index_of(field.name()).ok();
            let other = named.map_or(column, |named| given.column(named));
            let from: Vec<(usize, usize)> = (0..rows.num_rows()).map(|row| source(row, named)).collect();
            interleave(&[column.as_ref(), other.as_ref()], &from).unwrap()
        });
        return RecordBatch::try_new(rows.schema(), columns.collect()).unwrap();
    }
    let kept: BooleanArray = ids(rows).iter().flatten().map(|id| Some(!places.contains_key(&id))).collect();
    let kept = filter_record_batch(rows, &kept).unwrap();
    match operation {
        Operation::Delete => kept,
        _ => concat_batches(&rows.schema(), [&kept, given]).unwrap(),
    }
}
