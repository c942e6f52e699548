//! Rows of changes that other processes write aside, for one call that takes them all in.
//!
//! ```text
//! task ─▶ updates/….arrows ─┐
//! task ─▶ updates/….arrows ─┼─▶ one call: deletes, updates, upserts, inserts ─▶ log or run
//! task that failed: nobody names its file, so that it has no effect, and a vacuum removes it
//! ```
//!
//! A staged file is an Arrow IPC stream. No manifest names it: whoever makes the call does, with its length and checksum, so that no byte of a
//! file that was damaged, or that another process wrote meanwhile, becomes a change.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hasher;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{RowConverter, SortField};
use lakemark_format::Operation;
use object_store::ObjectStoreExt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash64;

use super::change::{Change, WriteOptions, Written};
use super::write::{not_local, unwritable, write};
use crate::error::{Error, Result};
use crate::store::{PendingFile, Store};
use crate::table::Table;

/// In this order a call makes its operations: a row that gets another key is deleted and inserted, and its new key may be one that
/// another row gives up.
const ORDER: [Operation; 4] = [Operation::Delete, Operation::Update, Operation::Upsert, Operation::Insert];
/// What a file is written in.
const BUFFER_BYTES: usize = 256 * 1024;

/// Rows that were written aside, to be named to [`Table::write_staged`]. As JSON they can be sent to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedRows {
    /// What is to be done with them.
    #[serde(serialize_with = "operation_to_name", deserialize_with = "operation_of_name")]
    pub operation: Operation,
    /// How many they are.
    pub rows: u64,
    /// Where they are in the store.
    path: String,
    bytes: u64,
    checksum: u64,
}

fn operation_to_name<S: Serializer>(operation: &Operation, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(operation.name())
}

fn operation_of_name<'de, D: Deserializer<'de>>(from: D) -> Result<Operation, D::Error> {
    let name = String::deserialize(from)?;
    Operation::of_name(&name).ok_or_else(|| serde::de::Error::custom(format!("{name} is no operation")))
}

/// A file of staged rows that is being written; dropped unfinished, it is removed.
pub struct Staging {
    store: Arc<Store>,
    operation: Operation,
    rows: u64,
    /// None until there are rows, which say what the columns are.
    writer: Option<StreamWriter<BufWriter<Sink>>>,
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").field("operation", &self.operation).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Staging {
    /// Begins a file in the store of a table.
    pub(crate) fn begin(table: &Table, operation: Operation) -> Result<Self> {
        let store = Arc::clone(table.writable_store()?);
        let Some(folder) = store.updates_folder() else { return Err(not_local(&store)) };
        // A declared key has its log there. Making the folder anew would hide that this machine sees another disk.
        if !folder.is_dir() {
            return Err(Error::not_found(format!(
                "there is no {} on this machine, so that rows cannot be staged: either the table has no key yet, or the store is on a disk \
                 that only other machines see; let it be in a folder that all of them share",
                folder.display()
            )));
        }
        Ok(Self { store, operation, rows: 0, writer: None })
    }

    /// Adds rows, which have the columns of those before.
    ///
    /// # Errors
    /// Other columns, a full disk.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let store = &self.store;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let Some(folder) = store.updates_folder() else { return Err(not_local(store)) };
                let file = PendingFile::create(&folder).map_err(|error| unwritable(store, error))?;
                let sink = BufWriter::with_capacity(BUFFER_BYTES, Sink { file, hasher: XxHash64::with_seed(0) });
                let begun = StreamWriter::try_new(sink, &rows.schema()).map_err(|error| unstaged(store, error))?;
                none.insert(begun)
            }
        };
        writer.write(rows).map_err(|error| unstaged(store, error))?;
        self.rows += rows.num_rows() as u64;
        Ok(())
    }

    /// Makes the rows durable; gives their name, or none if there are no rows.
    ///
    /// # Errors
    /// A full disk.
    pub async fn finish(self) -> Result<Option<StagedRows>> {
        let Self { store, operation, rows, writer } = self;
        let Some(writer) = writer else { return Ok(None) };
        let buffered = writer.into_inner().map_err(|error| unstaged(&store, error))?;
        let Sink { file, hasher } = buffered.into_inner().map_err(|error| unwritable(&store, error.into_error()))?;
        let (path, bytes) = (Store::staged_path(), file.length);
        store.publish(file, &path).await?;
        Ok(Some(StagedRows { operation, rows, path, bytes, checksum: hasher.finish() }))
    }
}

/// The file, and the checksum of what was written to it.
#[derive(Debug)]
struct Sink {
    file: PendingFile,
    hasher: XxHash64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)?;
        self.hasher.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn unstaged(store: &Store, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::io(format!(
        "rows cannot be staged in {} (disk full, or no permission?); nothing was changed: make room and try again",
        store.text()
    ))
    .with_source(error)
}

/// Makes the changes that staged rows are, in one call, and removes the files.
pub(crate) async fn write_staged(table: &Arc<Table>, staged: &[StagedRows], options: WriteOptions) -> Result<Written> {
    let key = table.key().await?;
    let store = table.writable_store()?;
    let mut changes = Vec::new();
    for operation in ORDER {
        let mut batches = Vec::new();
        for file in staged.iter().filter(|file| file.operation == operation) {
            batches.extend(read(store, file).await?);
        }
        let Some(rows) = joined(&batches)? else { continue };
        let rows = if operation == Operation::Delete { once(&rows, &key)? } else { rows };
        changes.push(Change { operation, rows });
    }
    let written = write(table, changes, options).await?;
    discard_staged(table, staged).await?;
    Ok(written)
}

/// Removes the files of staged rows that no call will name.
pub(crate) async fn discard_staged(table: &Table, staged: &[StagedRows]) -> Result<()> {
    let store = table.writable_store()?;
    for file in staged {
        check_name(file)?;
        store.discard(&file.path).await;
    }
    Ok(())
}

/// A name that came from elsewhere may be any path.
fn check_name(file: &StagedRows) -> Result<()> {
    if Store::is_staged(&file.path) {
        return Ok(());
    }
    Err(Error::invalid(format!("{} is not the name of staged rows; give what staging them gave", file.path)))
}

async fn read(store: &Store, file: &StagedRows) -> Result<Vec<RecordBatch>> {
    check_name(file)?;
    let found = match store.object_store().get(&store.object_path(&file.path)).await {
        Ok(found) if found.meta.size == file.bytes => found,
        Ok(_) => return Err(damaged(store, file)),
        Err(object_store::Error::NotFound { .. }) => return Err(not_seen(store, file)),
        Err(error) => return Err(error.into()),
    };
    let bytes = found.bytes().await?;
    if XxHash64::oneshot(0, &bytes) != file.checksum {
        return Err(damaged(store, file));
    }
    let broken = |error| damaged(store, file).with_source(error);
    let batches: Vec<RecordBatch> =
        StreamReader::try_new(bytes.as_ref(), None).and_then(Iterator::collect).map_err(broken)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows as u64 != file.rows {
        return Err(damaged(store, file));
    }
    Ok(batches)
}

fn joined(batches: &[RecordBatch]) -> Result<Option<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(None) };
    let schema = first.schema();
    if batches.iter().any(|rows| rows.schema().fields() != schema.fields()) {
        return Err(Error::invalid(
            "rows of one operation were staged with different columns; stage all of them with the same",
        ));
    }
    let rows = concat_batches(&schema, batches).map_err(|error| {
        Error::unsupported("the staged rows are too large for one call; split them").with_source(error)
    })?;
    Ok(Some(rows))
}

fn damaged(store: &Store, file: &StagedRows) -> Error {
    Error::corrupt(format!(
        "the staged rows {} in {} are not those that were written; nothing was changed: try again",
        file.path,
        store.text()
    ))
}

fn not_seen(store: &Store, file: &StagedRows) -> Error {
    Error::not_found(format!(
        "the staged rows {} are not in {} as this machine sees it, so that nothing was changed: let the store be in a folder that all machines \
         share, and try again",
        file.path,
        store.text()
    ))
}

/// The first row of each key: a statement may find a row that it deletes more than once.
fn once(rows: &RecordBatch, key: &[String]) -> Result<RecordBatch> {
    let columns: Option<Vec<ArrayRef>> = key.iter().map(|name| rows.column_by_name(name).cloned()).collect();
    // That a column is missing is said where all changes are checked.
    let Some(columns) = columns else { return Ok(rows.clone()) };
    let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let impossible = |error| Error::unsupported("rows cannot be told apart by these columns").with_source(error);
    let bytes = RowConverter::new(fields).and_then(|of| of.convert_columns(&columns)).map_err(impossible)?;
    let mut seen = HashSet::with_capacity(rows.num_rows());
    let is_first: BooleanArray = bytes.iter().map(|key| Some(seen.insert(key.data().to_vec()))).collect();
    filter_record_batch(rows, &is_first).map_err(impossible)
}
