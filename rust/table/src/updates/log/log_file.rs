//! The log of updates on the disk. Its writers lengthen it and change nothing of it, so that whoever has read a part reads on from there.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lakemark_format::log::{LOG_START, LogRead, check_log_header, log_header, read_log};
use lakemark_format::{FormatError, ManifestLog};

use crate::error::{Error, Result};
use crate::storage::disk;
use crate::storage::ids::new_id;
use crate::storage::local;
use crate::store::Store;

/// Up to where a log was read, and the sequence number of the commit that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub end: u64,
    pub next: u64,
}

impl LogPosition {
    /// The position of a log of which nothing was read.
    pub(crate) fn start(log: &ManifestLog) -> Self {
        Self { end: LOG_START, next: log.first_sequence }
    }
}

/// A log that was read on from a position.
pub(crate) struct OpenLog {
    /// The file, to be synced.
    pub file: File,
    /// The commits of the log from that position on.
    pub read: LogRead,
}

/// Where the log of a store is.
pub(crate) fn path_of(store: &Store, log: &ManifestLog) -> Result<PathBuf> {
    store
        .local_path(&log.path)
        .ok_or_else(|| Error::unsupported("a table with buffered changes needs its store on a local file system"))
}

/// A log without commits.
pub(crate) async fn new_log(store: &Store, first_sequence: u64) -> Result<ManifestLog> {
    let id = new_id();
    let bytes = log_header(id.into_bytes());
    let path = store.write_update(&format!("{id}.lml"), bytes).await?;
    Ok(ManifestLog { id: id.into_bytes(), path, first_sequence })
}

/// Reads the commits from a position on. Waits for the disk.
pub(crate) fn read_on(path: &Path, log: &[u8; 16], from: LogPosition) -> Result<OpenLog> {
    let io = |error| unreadable(path, error);
    let corrupt = |error: FormatError| damaged(path).with_source(error);
    disk::attempt(disk::DiskStep::Read(path)).map_err(io)?;
    let local::OpenedFile { mut file, metadata } = local::open(path).map_err(io)?;
    if from.end == LOG_START {
        let mut header = vec![0; usize::try_from(LOG_START.min(metadata.len())).unwrap_or(0)];
        file.read_exact(&mut header).map_err(io)?;
        check_log_header(log, &header).map_err(corrupt)?;
    }
    if metadata.len() < from.end {
        return Err(damaged(path));
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from.end)).and_then(|_| file.read_to_end(&mut bytes)).map_err(io)?;
    let read = read_log(log, from.end, from.next, &bytes).map_err(corrupt)?;
    Ok(OpenLog { file, read })
}

pub(crate) fn unreadable(path: &Path, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    let path = path.display();
    let said = match error.kind() {
        NotFound | UnexpectedEof | InvalidData => Error::corrupt(format!(
            "the log of updates {path} cannot be read; it holds changes that are nowhere else: restore it"
        )),
        _ => Error::io(format!(
            "the log of updates {path} cannot be read now: mend the disk or its permissions, and try again"
        )),
    };
    said.with_source(error)
}

pub(crate) fn damaged(path: &Path) -> Error {
    Error::corrupt(format!(
        "the log of updates {} is damaged; it holds changes that are nowhere else: restore it from a copy",
        path.display()
    ))
}
