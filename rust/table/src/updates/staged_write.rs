//! Rows of changes that other processes write aside, for one call that takes them all in.
//!
//! ```text
//! task ─▶ updates/….arrows ─┐
//! task ─▶ updates/….arrows ─┼─▶ one call: deletes, updates, upserts, inserts ─▶ log or run
//! task that failed: nobody names its file, so that it has no effect, and a vacuum removes it
//! ```
//!
//! Each file is sorted by key, so that a call of any size is merged of them, a part at a time, into one run. A staged file is an Arrow IPC
//! stream. No manifest names it: whoever makes the call does, with its length and checksum. So no byte of a file that was damaged, or that
//! another process wrote meanwhile, becomes a change.

use std::hash::Hasher;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use lakemark_format::Operation;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash64;

use super::bulk_write::{BulkSize, bulk_write};
use super::change::{WriteOptions, Written};
use super::errors::{no_key, not_local};
use super::keyed_snapshot::KeyedSnapshot;
use super::parameters::Parameters;
use super::staged_merge::SortedRows;
use super::updatable::UpdatableTable;
use super::write::write;
use crate::error::{Error, Result};
use crate::snapshot::BaseTable;
use crate::storage::local;
use crate::store::Store;

/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// Rows that were written aside, to be named to [`Table::write_staged`](crate::Table::write_staged). As JSON they can be sent to another
/// process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedRows {
    /// The operation that is to be made with them.
    #[serde(serialize_with = "operation_to_name", deserialize_with = "operation_of_name")]
    pub operation: Operation,
    /// How many they are.
    pub rows: u64,
    /// Where they are in the store.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) checksum: u64,
}

fn operation_to_name<S: Serializer>(operation: &Operation, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(operation.name())
}

fn operation_of_name<'de, D: Deserializer<'de>>(from: D) -> Result<Operation, D::Error> {
    let name = String::deserialize(from)?;
    Operation::of_name(&name).ok_or_else(|| serde::de::Error::custom(format!("{name} is no operation")))
}

/// Makes the changes that staged rows are, in one call, and removes the files.
pub(crate) async fn write_staged(
    table: &Arc<UpdatableTable>,
    staged: &[StagedRows],
    options: WriteOptions,
) -> Result<Written> {
    table.base.check_open_for_changes()?;
    let store = table.base.writable_store()?;
    let KeyedSnapshot { base, key } = KeyedSnapshot::of(table).await?;
    let updates =
        base.manifest.as_ref().and_then(|manifest| manifest.updates.as_ref()).ok_or_else(|| no_key(&table.base))?;
    let part_bytes = Parameters::of(&updates.options)?.part_bytes();
    let mut sorted = SortedRows::open(store, staged, &key)?;
    let bytes = staged.iter().map(|file| file.bytes).sum();
    let written = if bytes <= part_bytes {
        let part = sorted.next_part(usize::MAX)?;
        write(table, part.map(|part| part.changes).unwrap_or_default(), options).await?
    } else {
        let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        bulk_write(table, sorted, BulkSize { part_bytes, staged_bytes: bytes }, options).await?
    };
    discard_staged(&table.base, staged).await?;
    Ok(written)
}

/// Removes the files of staged rows that no call will name.
pub(crate) async fn discard_staged(table: &BaseTable, staged: &[StagedRows]) -> Result<()> {
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

/// Opens a file that is the one that was written. A file that does not stay open is read as a whole.
pub(crate) fn open(store: &Store, file: &StagedRows, stays_open: bool) -> Result<Box<dyn Read + Send>> {
    check_name(file)?;
    let Some(path) = store.local_path(&file.path) else { return Err(not_local(store)) };
    let unread = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => not_seen(store, file),
        _ => Error::io(format!("the staged rows {} cannot be read; nothing was changed: try again", path.display()))
            .with_source(error),
    };
    let mut opened = BufReader::with_capacity(BUFFER_BYTES, local::open(&path).map_err(unread)?.file);
    let (mut hasher, mut length) = (XxHash64::with_seed(0), 0);
    loop {
        let bytes = opened.fill_buf().map_err(unread)?;
        if bytes.is_empty() {
            break;
        }
        hasher.write(bytes);
        let read = bytes.len();
        length += read as u64;
        opened.consume(read);
    }
    if (length, hasher.finish()) != (file.bytes, file.checksum) {
        return Err(damaged(store.text(), file));
    }
    opened.rewind().map_err(unread)?;
    if stays_open {
        return Ok(Box::new(opened));
    }
    let mut bytes = Vec::new();
    opened.read_to_end(&mut bytes).map_err(unread)?;
    Ok(Box::new(Cursor::new(bytes)))
}

/// Batches with the same columns as one.
pub(crate) fn joined(batches: &[RecordBatch]) -> Result<Option<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(None) };
    let schema = first.schema();
    let rows = concat_batches(&schema, batches).map_err(|error| {
        Error::unsupported("the staged rows are too large for one call; split them").with_source(error)
    })?;
    Ok(Some(rows))
}

pub(crate) fn other_columns() -> Error {
    Error::invalid("rows of one operation were staged with different columns; stage all of them with the same")
}

pub(crate) fn damaged(store: &str, file: &StagedRows) -> Error {
    Error::corrupt(format!(
        "the staged rows {} in {store} are not those that were written; nothing was changed: try again",
        file.path
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
