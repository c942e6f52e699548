//! Columns by what they are, rows by column, and how both are written and read.
//!
//! A column has an id that it keeps while it is renamed or moved; one that is dropped and added again has another. Nothing here knows
//! columns by place, so that whoever mixes up places is seen.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use lakemark_table::{DataFile, RowSet, Snapshot, of_listed};
use object_store::ObjectStoreExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::ChunkReader;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

pub type Id = u32;
/// The key, and the group that follows from it: part of the key in some trials.
pub const K: Id = 0;
pub const G: Id = 1;
/// The column of partitions, in tables that have some.
pub const P: Id = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Int(i32),
    Long(i64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Long,
    Text,
}

impl Kind {
    /// The name of the type in Delta's logs.
    pub fn in_delta(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Long => "long",
            Self::Text => "string",
        }
    }

    pub fn draw(self, random: &mut StdRng) -> Value {
        match self {
            Self::Int => Value::Int(random.random_range(0..1000)),
            Self::Long => Value::Long(random.random_range(0..3)),
            Self::Text => Value::Text(format!("s{}", random.random_range(0..1000))),
        }
    }
}

/// The values of a row that are not NULL, without those of the key.
pub type Row = BTreeMap<Id, Value>;
pub type Rows = BTreeMap<i64, Row>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub id: Id,
    /// The name that the table shows, and the one that files have.
    pub shown: String,
    pub stored: String,
    pub kind: Kind,
}

/// A row of these columns: sometimes NULL, but for partitions.
pub fn draw_row(random: &mut StdRng, columns: &[Column]) -> Row {
    let mut row = Row::new();
    for column in columns.iter().filter(|column| column.id > G) {
        if column.id == P || random.random_bool(0.8) {
            row.insert(column.id, column.kind.draw(random));
        }
    }
    row
}

pub fn group_of(key: i64) -> String {
    format!("g{}", key % 3)
}

/// Whether rows are to be named as the table shows them or as files store them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Names {
    Shown,
    Stored,
}

/// These columns of rows.
pub fn batch_of(columns: &[&Column], names: Names, rows: &[(i64, Row)]) -> RecordBatch {
    let array = |column: &Column| -> ArrayRef {
        let values = || rows.iter().map(|(_, row)| row.get(&column.id));
        match (column.id, column.kind) {
            (K, _) => Arc::new(Int64Array::from_iter_values(rows.iter().map(|(key, _)| *key))),
            (G, _) => Arc::new(StringArray::from_iter_values(rows.iter().map(|(key, _)| group_of(*key)))),
            (_, Kind::Int) => Arc::new(
                values()
                    .map(|value| if let Some(Value::Int(value)) = value { Some(*value) } else { None })
                    .collect::<Int32Array>(),
            ),
            (_, Kind::Long) => Arc::new(
                values()
                    .map(|value| if let Some(Value::Long(value)) = value { Some(*value) } else { None })
                    .collect::<Int64Array>(),
            ),
            (_, Kind::Text) => Arc::new(
                values()
                    .map(|value| if let Some(Value::Text(value)) = value { Some(value.as_str()) } else { None })
                    .collect::<StringArray>(),
            ),
        }
    };
    let name = |column: &Column| if names == Names::Shown { column.shown.clone() } else { column.stored.clone() };
    RecordBatch::try_from_iter_with_nullable(columns.iter().map(|column| (name(column), array(column), true))).unwrap()
}

/// Adds the rows of a batch whose columns are called like this.
pub fn add_batch(batch: &RecordBatch, called: &HashMap<String, Id>, rows: &mut Vec<(i64, Row)>) {
    let first = rows.len();
    let key = batch.columns().iter().zip(batch.schema_ref().fields());
    let key = key.clone().find(|(_, field)| called.get(field.name()) == Some(&K)).expect("the key is there").0;
    rows.extend(key.as_primitive::<Int64Type>().values().iter().map(|key| (*key, Row::new())));
    for (values, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        let Some(id) = called.get(field.name()).copied().filter(|id| *id != K) else { continue };
        for (at, (key, row)) in rows[first..].iter_mut().enumerate().filter(|(at, _)| values.is_valid(*at)) {
            let value = match values.data_type() {
                DataType::Int32 => Value::Int(values.as_primitive::<Int32Type>().value(at)),
                DataType::Int64 => Value::Long(values.as_primitive::<Int64Type>().value(at)),
                _ => Value::Text(values.as_string::<i32>().value(at).to_owned()),
            };
            if id == G {
                assert_eq!(value, Value::Text(group_of(*key)), "the group of key {key}");
            } else {
                row.insert(id, value);
            }
        }
    }
}

/// All rows of a Parquet file, by the stored names of columns.
pub fn rows_of_file(path: &Path, stored: &HashMap<String, Id>) -> Vec<(i64, Row)> {
    rows_in(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())), stored)
}

fn rows_in<F: ChunkReader + 'static>(file: F, stored: &HashMap<String, Id>) -> Vec<(i64, Row)> {
    let mut rows = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        add_batch(&batch.unwrap(), stored, &mut rows);
    }
    rows
}

/// Size and time of a file, and its rows in their order.
type FileRows = (u64, SystemTime, Arc<Vec<(i64, Row)>>);

/// Reads snapshots without any code of ours but what the snapshot says. A file that is as it was is not read again.
#[derive(Default)]
pub struct Reader(HashMap<PathBuf, FileRows>);

/// Why the rows of a snapshot are no answer.
#[derive(Debug)]
pub enum Unread {
    /// A file is gone.
    Gone(PathBuf),
    /// A key is there more than once.
    Doubled { key: i64 },
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone(path) => write!(f, "the file {} is gone", path.display()),
            Self::Doubled { key } => write!(f, "the key {key} is there twice"),
        }
    }
}

/// The rows of a file that a publication has moved.
fn moved(snapshot: &Snapshot, file: &DataFile, stored: &HashMap<String, Id>) -> Option<Arc<Vec<(i64, Row)>>> {
    let read = of_listed(file.meta.e_tag.as_deref(), async {
        snapshot.object_store().get(&file.meta.location).await.ok()?.bytes().await.ok()
    });
    let bytes = block_in_place(|| Handle::current().block_on(read))?;
    Some(Arc::new(rows_in(bytes, stored)))
}

impl Reader {
    /// Rows by key, each key once. `stored` has every column that there ever was, `columns` are those of the snapshot.
    pub fn rows_of(
        &mut self,
        snapshot: &Snapshot,
        columns: &[Column],
        stored: &HashMap<String, Id>,
    ) -> Result<Rows, Unread> {
        let mut rows = Rows::new();
        let has = |id: &Id| columns.iter().any(|column| column.id == *id);
        let mut add = |of: &[(i64, Row)], partition: Option<Value>, counts: &dyn Fn(u32) -> bool| {
            for ((key, row), _) in of.iter().zip(0..).filter(|(_, position)| counts(*position)) {
                let mut row: Row = row.clone().into_iter().filter(|(id, _)| has(id)).collect();
                if let Some(value) = &partition {
                    row.insert(P, value.clone());
                }
                if rows.insert(*key, row).is_some() {
                    return Err(Unread::Doubled { key: *key });
                }
            }
            Ok(())
        };
        for file in snapshot.files() {
            let hidden = file.deleted.as_deref();
            let partition = file.partition_values.first().filter(|value| value.is_valid(0));
            let partition = partition.map(|value| Value::Long(value.as_primitive::<Int64Type>().value(0)));
            let of =
                self.rows(&file.meta.location, stored).or_else(|gone| moved(snapshot, file, stored).ok_or(gone))?;
            add(&of, partition, &|row| !hidden.is_some_and(|hidden| hidden.contains(row)))?;
        }
        let Some(buffered) = snapshot.buffered_rows() else { return Ok(rows) };
        for file in &buffered.files {
            add(&self.rows(&file.meta.location, stored)?, None, &|row| file.rows.contains(row))?;
        }
        let shown = columns.iter().map(|column| (column.shown.clone(), column.id)).collect();
        for batch in &buffered.batches {
            let mut of = Vec::new();
            add_batch(batch, &shown, &mut of);
            add(&of, None, &|_| true)?;
        }
        let row_count = buffered.row_count();
        let counted: u64 = buffered.files.iter().map(|file| u64::from(RowSet::len(&file.rows))).sum();
        assert!(row_count >= counted && row_count > 0, "{row_count} {counted}");
        Ok(rows)
    }

    fn rows(
        &mut self,
        location: &object_store::path::Path,
        stored: &HashMap<String, Id>,
    ) -> Result<Arc<Vec<(i64, Row)>>, Unread> {
        let path =
            Path::new("/").join(percent_encoding::percent_decode_str(location.as_ref()).decode_utf8_lossy().as_ref());
        let Ok(meta) = std::fs::metadata(&path) else { return Err(Unread::Gone(path)) };
        let (size, modified) = (meta.len(), meta.modified().unwrap());
        if let Some((_, _, rows)) = self.0.get(&path).filter(|have| (have.0, have.1) == (size, modified)) {
            return Ok(Arc::clone(rows));
        }
        let rows = Arc::new(rows_of_file(&path, stored));
        self.0.insert(path, (size, modified, Arc::clone(&rows)));
        Ok(rows)
    }
}
