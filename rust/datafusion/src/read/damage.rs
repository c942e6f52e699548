//! Damaged data files: what the Parquet reader says of their bytes, and its panics, become errors that name the file.
//!
//! A scan reads many files, and neither an error nor a panic says in which file it was. But a partition reads and decodes the pages of one
//! file only at a time: the file whose pages were read last is the one that is decoded.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::{Stream, StreamExt};
use lakemark_table::{Error, ErrorKind, damaged, guarded};
use object_store::path::Path;

use crate::error::{kind_of_reading, ours_in, to_engine};

/// The file whose pages were read last.
type LastRead = Arc<Mutex<Option<String>>>;

tokio::task_local! {
    static LAST_READ: LastRead;
}

/// Says that pages of this file are read, where a scan is polled.
pub(crate) fn pages_are_read_of(file: &Path) {
    // Outside of a scan nothing needs to know it.
    let _ = LAST_READ.try_with(|last| *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(file.to_string()));
}

/// The rows of a scan of Parquet files.
pub(crate) struct NamedRows {
    rows: SendableRecordBatchStream,
    last: LastRead,
    has_failed: bool,
}

impl NamedRows {
    pub(crate) fn of(rows: SendableRecordBatchStream) -> Self {
        Self { rows, last: LastRead::default(), has_failed: false }
    }

    fn file(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Stream for NamedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let last = Arc::clone(&self.last);
        let polled = guarded(|| LAST_READ.sync_scope(last, || self.rows.poll_next_unpin(context)));
        match polled {
            Ok(Poll::Ready(Some(Err(error)))) => {
                let error = match self.file() {
                    Some(file) => named(error, &file),
                    None => error,
                };
                Poll::Ready(Some(Err(error)))
            }
            Ok(polled) => polled,
            Err(panic) => {
                // Whatever panicked may be in any state.
                self.has_failed = true;
                let error = match self.file() {
                    Some(file) => damaged(&file, panic),
                    None => Error::new(ErrorKind::Internal, format!("{panic}; this is a defect, please report it")),
                };
                Poll::Ready(Some(Err(to_engine(error))))
            }
        }
    }
}

/// What the reader says where the values of a batch have more bytes than offsets of 32 bits can count.
const TOO_LONG: &str = "index overflow decoding byte array";

/// An error of a scan, with the file's name if its bytes are the cause.
pub(crate) fn named(error: DataFusionError, file: &str) -> DataFusionError {
    if let Some(ours) = ours_in(&error) {
        return to_engine(Error::new(ours.kind(), ours.to_string()));
    }
    let Some(kind) = kind_of_reading(&error) else { return error };
    let text = error.strip_backtrace();
    if text.contains(TOO_LONG) {
        let problem =
            "has rows whose values take 2 GiB in one batch; SET datafusion.execution.batch_size to fewer rows";
        return to_engine(Error::new(ErrorKind::Unsupported, format!("the data file {file} {problem}")));
    }
    to_engine(match kind {
        ErrorKind::Corrupt => damaged(file, text),
        ErrorKind::Conflict => {
            Error::new(kind, format!("the data file {file} changed while it was read; run it again"))
        }
        ErrorKind::NotFound => Error::new(kind, format!("the data file {file} was removed; run it again: {text}")),
        kind => Error::new(kind, format!("the data file {file} cannot be read: {text}")),
    })
}
