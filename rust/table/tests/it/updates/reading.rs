//! All rows of a snapshot, read without any code of ours but what the snapshot says.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use lakemark_table::{RowSet, Snapshot};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A row without its key.
pub type Row = (Option<i32>, Option<String>);

/// Rows by key, each key once.
pub fn rows_of(snapshot: &Snapshot) -> BTreeMap<i64, Row> {
    Reader::default().rows_of(snapshot)
}

/// Reads snapshots. A file that is as it was is not read again.
#[derive(Default)]
pub struct Reader(HashMap<PathBuf, FileRows>);

/// Size and time of a file, and its rows in their order.
type FileRows = (u64, SystemTime, Arc<Vec<(i64, Row)>>);

impl Reader {
    /// Rows by key, each key once.
    pub fn rows_of(&mut self, snapshot: &Snapshot) -> BTreeMap<i64, Row> {
        let mut rows = BTreeMap::new();
        for file in snapshot.files() {
            let hidden = file.deleted.as_deref();
            let of = self.rows(&file.meta.location);
            add(&of, |row| !hidden.is_some_and(|hidden| hidden.contains(row)), &mut rows);
        }
        if let Some(buffered) = snapshot.buffered_rows() {
            for file in &buffered.files {
                add(&self.rows(&file.meta.location), |row| file.rows.contains(row), &mut rows);
            }
            for batch in &buffered.batches {
                let mut of = Vec::new();
                add_batch(batch, &mut of);
                add(&of, |_| true, &mut rows);
            }
            let row_count = buffered.row_count();
            let counted: u64 = buffered.files.iter().map(|file| u64::from(RowSet::len(&file.rows))).sum();
            assert!(row_count >= counted && row_count > 0, "{row_count} {counted}");
        }
        rows
    }

    fn rows(&mut self, location: &object_store::path::Path) -> Arc<Vec<(i64, Row)>> {
        let path = Path::new("/").join(location.as_ref());
        let meta = std::fs::metadata(&path).unwrap();
        let (size, modified) = (meta.len(), meta.modified().unwrap());
        if let Some((_, _, rows)) = self.0.get(&path).filter(|have| (have.0, have.1) == (size, modified)) {
            return Arc::clone(rows);
        }
        let mut rows = Vec::new();
        add_rows(File::open(&path).unwrap(), &mut rows);
        let rows = Arc::new(rows);
        self.0.insert(path, (size, modified, Arc::clone(&rows)));
        rows
    }
}

/// Adds the rows that count.
fn add(of: &[(i64, Row)], counts: impl Fn(u32) -> bool, rows: &mut BTreeMap<i64, Row>) {
    for ((key, row), _) in of.iter().zip(0..).filter(|(_, position)| counts(*position)) {
        let before = rows.insert(*key, row.clone());
        assert_eq!(before, None, "the key {key} is there twice");
    }
}

/// Adds all rows of a Parquet file.
pub fn add_rows(file: File, rows: &mut Vec<(i64, Row)>) {
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        add_batch(&batch.unwrap(), rows);
    }
}

fn add_batch(batch: &RecordBatch, rows: &mut Vec<(i64, Row)>) {
    let k = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>();
    let a = batch.column_by_name("a").unwrap().as_primitive::<Int32Type>();
    let s = batch.column_by_name("s").unwrap().as_string::<i32>();
    rows.extend((0..batch.num_rows()).map(|row| {
        let values = (a.is_valid(row).then(|| a.value(row)), s.is_valid(row).then(|| s.value(row).to_owned()));
        (k.value(row), values)
    }));
}
