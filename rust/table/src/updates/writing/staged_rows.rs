//! A file of rows of changes that were written aside. A staged file is an Arrow IPC stream. No manifest names it: whoever makes the call does,
//! with its length and checksum. So no byte of a file that was damaged, or that another process wrote meanwhile, becomes a change.

use std::hash::Hasher;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};

use lakemark_format::Operation;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash64;

use crate::error::{Error, Result};
use crate::storage::local;
use crate::store::Store;
use crate::updates::errors::not_local;

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

/// A name that came from elsewhere may be any path.
pub(crate) fn check_name(file: &StagedRows) -> Result<()> {
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
