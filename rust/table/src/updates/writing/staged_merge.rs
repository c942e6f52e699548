//! Staged rows of all files, in the order of keys, cut into parts: all rows of a key are in one part.
//!
//! ```text
//! file 1 │ 1 3 │ 7 9 │         a batch whose last key is the smallest is taken as a whole: nothing before
//! file 2 │ 2 3 8 │ 9 │         that key is left but in the first batches of the other files
//!            └ a part ends ─▶ 1 3 2 3 │ 7 9 8 9
//! ```

use std::cmp::Reverse;
use std::io::Read;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::row::{OwnedRow, Row, Rows};
use lakemark_format::Operation;

use super::staged_rows::{StagedRows, damaged, open, other_columns};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::updates::changes::change::{Change, keys_of, once};
use crate::updates::key::KeyColumns;

/// In this order a call makes its operations: a row that gets another key is deleted and inserted, and its new key may be one that
/// another row gives up.
const ORDER: [Operation; 4] = [Operation::Delete, Operation::Update, Operation::Upsert, Operation::Insert];

/// So many files are read a batch at a time, since a process may open few files. Where there are more files, the smaller ones are kept in
/// memory as a whole.
const MOST_OPEN: usize = 256;

/// Rows of staged files that were not read yet.
pub(crate) struct SortedRows {
    key: Arc<KeyColumns>,
    files: Vec<StagedSource>,
}

/// Changes with neighbouring keys.
pub(crate) struct SortedChunk {
    /// One of each operation that there is, in the order in which they are made.
    pub changes: Vec<Change>,
    /// The last key, as bytes that sort with keys.
    pub last: OwnedRow,
}

impl SortedRows {
    /// Opens files, all of which are those that were written.
    pub(crate) fn open(store: &Store, staged: &[StagedRows], key: &Arc<KeyColumns>) -> Result<Self> {
        let mut largest_first: Vec<&StagedRows> = staged.iter().collect();
        largest_first.sort_by_key(|file| Reverse(file.bytes));
        let mut files: Vec<StagedSource> = Vec::with_capacity(staged.len());
        for (number, file) in largest_first.into_iter().enumerate() {
            let source = StagedSource::open(store, file, number < MOST_OPEN, key)?;
            let is_other = |before: &StagedSource| {
                before.operation == source.operation && before.schema.fields() != source.schema.fields()
            };
            if files.iter().any(is_other) {
                return Err(other_columns());
            }
            files.push(source);
        }
        Ok(Self { key: Arc::clone(key), files })
    }

    /// Fails if the order is not that of this key.
    pub(crate) fn check_order(&self, key: &KeyColumns) -> Result<()> {
        if self.key.types == key.types { Ok(()) } else { Err(other_order()) }
    }

    /// The next rows, about so many bytes; none when all were read.
    pub(crate) fn next_part(&mut self, bytes: usize) -> Result<Option<SortedChunk>> {
        let mut taken: Vec<Change> = Vec::new();
        let (mut size, mut last) = (0, None);
        while size < bytes {
            let ends = self.files.iter_mut().filter(|file| file.has_rows());
            let Some(first) = ends.min_by(|a, b| a.last().cmp(&b.last())) else { break };
            last = first.last().map(|key| key.owned());
            let rows = first.take(first.left(), &self.key)?;
            size += rows.get_array_memory_size();
            taken.push(Change { operation: first.operation, rows });
        }
        let Some(last) = last else { return Ok(None) };
        for file in &mut self.files {
            loop {
                let (within, left) = (file.until(last.row()), file.left());
                if within == 0 {
                    break;
                }
                taken.push(Change { operation: file.operation, rows: file.take(within, &self.key)? });
                if within < left {
                    break;
                }
            }
        }
        let mut changes = Vec::new();
        for operation in ORDER {
            let of = |taken: &Change| (taken.operation == operation).then(|| taken.rows.clone());
            let Some(rows) = joined(&taken.iter().filter_map(of).collect::<Vec<_>>())? else { continue };
            let rows = if operation == Operation::Delete { once(&rows, &self.key)? } else { rows };
            changes.push(Change { operation, rows });
        }
        Ok(Some(SortedChunk { changes, last }))
    }
}

/// Batches with the same columns as one.
fn joined(batches: &[RecordBatch]) -> Result<Option<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(None) };
    let schema = first.schema();
    let rows = concat_batches(&schema, batches).map_err(|error| {
        Error::unsupported("the staged rows are too large for one call; split them").with_source(error)
    })?;
    Ok(Some(rows))
}

fn other_order() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "the staged rows are not in the order of the table's key, whose type was changed meanwhile; nothing was changed: try again",
    )
}

/// A file that is read from its first row to its last.
struct StagedSource {
    operation: Operation,
    schema: SchemaRef,
    reader: StreamReader<Box<dyn Read + Send>>,
    name: StagedRows,
    batch: RecordBatch,
    /// The keys of the batch; none behind the last one.
    keys: Option<Rows>,
    /// Rows of the batch that were taken.
    row: usize,
    /// Rows of the file that were read.
    read: u64,
    store: String,
}

impl StagedSource {
    fn open(store: &Store, file: &StagedRows, stays_open: bool, key: &KeyColumns) -> Result<Self> {
        let reader = open(store, file, stays_open)?;
        let reader =
            StreamReader::try_new(reader, None).map_err(|error| damaged(store.text(), file).with_source(error))?;
        let schema = reader.schema();
        let batch = RecordBatch::new_empty(Arc::clone(&schema));
        let (name, store) = (file.clone(), store.text().to_owned());
        let mut source =
            Self { operation: file.operation, schema, reader, name, batch, keys: None, row: 0, read: 0, store };
        source.fill(key)?;
        Ok(source)
    }

    /// Reads the next batch.
    fn fill(&mut self, key: &KeyColumns) -> Result<()> {
        let before = self.last().map(|key| key.owned());
        (self.keys, self.row) = (None, 0);
        let broken = |error| damaged(&self.store, &self.name).with_source(error);
        let next = loop {
            match self.reader.next().transpose().map_err(broken)? {
                Some(batch) if batch.num_rows() == 0 => {}
                other => break other,
            }
        };
        let Some(batch) = next else {
            return if self.read == self.name.rows { Ok(()) } else { Err(damaged(&self.store, &self.name)) };
        };
        let keys = keys_of(&batch, key)?;
        self.read += batch.num_rows() as u64;
        let ascend = keys.iter().zip(keys.iter().skip(1)).all(|(one, next)| one <= next);
        let follow = before.is_none_or(|before| keys.iter().next().is_none_or(|first| before.row() <= first));
        if !ascend || !follow {
            return Err(other_order());
        }
        (self.batch, self.keys) = (batch, Some(keys));
        Ok(())
    }

    fn has_rows(&self) -> bool {
        self.left() > 0
    }

    /// Rows of the batch that were not taken.
    fn left(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.num_rows() - self.row)
    }

    /// The last key of the batch.
    fn last(&self) -> Option<Row<'_>> {
        self.keys.as_ref().filter(|keys| keys.num_rows() > 0).map(|keys| keys.row(keys.num_rows() - 1))
    }

    /// How many of the rows that are left in the batch have this key or one before.
    fn until(&self, key: Row<'_>) -> usize {
        let Some(keys) = &self.keys else { return 0 };
        let (mut low, mut high) = (self.row, keys.num_rows());
        while low < high {
            let middle = low.midpoint(high);
            if keys.row(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low - self.row
    }

    /// Takes rows of the batch, and reads on behind the last one.
    fn take(&mut self, rows: usize, key: &KeyColumns) -> Result<RecordBatch> {
        let taken = self.batch.slice(self.row, rows);
        self.row += rows;
        if self.left() == 0 {
            self.fill(key)?;
        }
        Ok(taken)
    }
}
