//! All rows of a snapshot, read without any code of ours but what the snapshot says.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use lakemark_table::{RowSet, Snapshot};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A row without its key.
pub type Row = (Option<i32>, Option<String>);

/// Rows by key, each key once.
pub fn rows_of(snapshot: &Snapshot) -> BTreeMap<i64, Row> {
    let mut rows = BTreeMap::new();
    for file in snapshot.files() {
        let hidden = file.deleted.as_deref();
        read(&file.meta.location, |row| !hidden.is_some_and(|hidden| hidden.contains(row)), &mut rows);
    }
    if let Some(pending) = snapshot.pending() {
        for file in &pending.files {
            read(&file.meta.location, |row| file.rows.contains(row), &mut rows);
        }
        for batch in &pending.batches {
            add(batch, 0, &|_| true, &mut rows);
        }
        let told = pending.row_count();
        let counted: u64 = pending.files.iter().map(|file| u64::from(RowSet::len(&file.rows))).sum();
        assert!(told >= counted && told > 0, "{told} {counted}");
    }
    rows
}

fn read(location: &object_store::path::Path, counts: impl Fn(u32) -> bool, rows: &mut BTreeMap<i64, Row>) {
    let file = File::open(Path::new("/").join(location.as_ref())).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let mut first = 0;
    for batch in reader {
        let batch = batch.unwrap();
        add(&batch, first, &counts, rows);
        first += batch.num_rows() as u32;
    }
}

fn add(batch: &RecordBatch, first: u32, counts: &dyn Fn(u32) -> bool, rows: &mut BTreeMap<i64, Row>) {
    let k = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>();
    let a = batch.column_by_name("a").unwrap().as_primitive::<Int32Type>();
    let s = batch.column_by_name("s").unwrap().as_string::<i32>();
    for row in (0..batch.num_rows()).filter(|row| counts(first + *row as u32)) {
        let values = (a.is_valid(row).then(|| a.value(row)), s.is_valid(row).then(|| s.value(row).to_owned()));
        let before = rows.insert(k.value(row), values);
        assert_eq!(before, None, "the key {} is there twice", k.value(row));
    }
}
