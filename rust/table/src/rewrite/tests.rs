//! Small tables, what is merged into them, and what their files have then.

mod change_feed;
mod checkpoints;
mod clones;
mod constraints;
mod delta;
mod folder;
mod logs;
mod random;
mod refill;
mod repeating;
mod row_tracking;
mod stats;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int32Type};
use lakemark_index::RowSet;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;

use crate::rewrite::refill::SmallFile;
use crate::rewrite::{RewriteInput, RowBlock};
use crate::{Table, TableOptions};

/// Rows of `k` and `s`.
fn rows(values: &[(i32, &str)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(values.iter().map(|(k, _)| Some(*k)).collect::<Int32Array>());
    let s: ArrayRef = Arc::new(values.iter().map(|(_, s)| Some(*s)).collect::<StringArray>());
    RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
}

/// `k` from `first` on, with `old` for `s`.
fn old_rows(first: i32, count: i32) -> RecordBatch {
    rows(&(first..first + count).map(|k| (k, "old")).collect::<Vec<_>>())
}

/// The same rows with a column of text.
fn with_column(batch: &RecordBatch, name: &str, values: &[Option<&str>]) -> RecordBatch {
    let text: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
    let columns = batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let columns = columns.into_iter().zip(batch.columns().iter().cloned());
    RecordBatch::try_from_iter(columns.chain([(name.to_owned(), text)])).unwrap()
}

fn write_with(path: &Path, batch: &RecordBatch, properties: WriterProperties) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn write(path: &Path, batch: &RecordBatch) {
    write_with(path, batch, WriterProperties::builder().set_max_row_group_row_count(Some(4)).build());
}

/// The rows of a file, as its own footer types them.
fn read(path: &Path) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let schema = Arc::clone(reader.schema());
    concat_batches(&schema, &reader.build().unwrap().map(Result::unwrap).collect::<Vec<_>>()).unwrap()
}

/// Two columns of a file, the first of numbers and the second of text.
fn pairs_of(path: &Path, columns: [&str; 2]) -> Vec<(i32, Option<String>)> {
    let batch = read(path);
    let [k, s] = columns.map(|name| batch.column_by_name(name).unwrap());
    let text = cast(s, &DataType::Utf8).unwrap();
    let texts = text.as_string::<i32>().iter().map(|text| text.map(str::to_owned));
    k.as_primitive::<Int32Type>().values().iter().copied().zip(texts).collect()
}

fn pairs(path: &Path) -> Vec<(i32, String)> {
    pairs_of(path, ["k", "s"]).into_iter().map(|(k, s)| (k, s.unwrap())).collect()
}

fn expected(values: &[(i32, &str)]) -> Vec<(i32, String)> {
    values.iter().map(|(k, s)| (*k, (*s).to_owned())).collect()
}

/// Positions of a file that newer rows delete.
fn positions(rows: &[u32], universe: u32) -> Option<Arc<RowSet>> {
    Some(Arc::new(RowSet::from_rows(rows.to_vec(), universe)))
}

async fn open(path: &Path) -> Arc<Table> {
    Table::open_alone(path.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

/// What is merged, with `k` as the key.
struct RewriteFixture {
    deleted: Vec<Option<Arc<RowSet>>>,
    rows: Vec<Arc<dyn RowBlock>>,
    small: Vec<SmallFile>,
    key: Vec<String>,
}

impl RewriteFixture {
    fn new(deleted: Vec<Option<Arc<RowSet>>>, rows: Vec<RecordBatch>) -> Self {
        let rows = rows.into_iter().map(|batch| -> Arc<dyn RowBlock> { Arc::new(batch) }).collect();
        Self { deleted, rows, small: Vec::new(), key: vec!["k".to_owned()] }
    }

    fn input(&self) -> RewriteInput<'_> {
        RewriteInput {
            deleted: &self.deleted,
            rows: &self.rows,
            small: &self.small,
            key: &self.key,
            keys: None,
            progress: None,
            lock: None,
        }
    }
}
