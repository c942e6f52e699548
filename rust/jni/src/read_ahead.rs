//! The row groups of a file one by one: while one is decoded, the bytes of the next are read.

use arrow::array::RecordBatch;
use lakemark_table::{AmendedReader, Guarded, guarded_wait};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::errors::ParquetError;
use tokio::task::JoinSet;

use crate::error::{NativeError, Result, reading};

/// A row group whose bytes were read.
struct FetchedRowGroup {
    /// What is left of the file.
    rest: Box<ParquetRecordBatchStream<AmendedReader>>,
    /// The row group after the one that was requested last; none at the end of the file.
    next: Result<Option<ParquetRecordBatchReader>, ParquetError>,
}

/// The batches of a file's selected rows.
pub(crate) struct RowGroupReader {
    /// The row group that is decoded, whose bytes are there.
    current: Option<Guarded<ParquetRecordBatchReader>>,
    /// Batches that it gave.
    given: usize,
    rest: Rest,
    memory_bytes: usize,
}

enum Rest {
    /// Nothing of it is being read.
    Waiting(Box<ParquetRecordBatchStream<AmendedReader>>),
    /// The next row group is being read; a set of one task, which ends when this is dropped.
    Fetching(JoinSet<FetchedRowGroup>),
    /// There is none, or it cannot be read.
    Ended,
}

impl RowGroupReader {
    /// `memory_bytes` is what reading takes of memory at most, roughly.
    pub(crate) fn new(stream: ParquetRecordBatchStream<AmendedReader>, memory_bytes: usize) -> Self {
        Self { current: None, given: 0, rest: Rest::Waiting(Box::new(stream)), memory_bytes }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The next batch of the file at `path`, which is what errors call it.
    pub(crate) async fn next(&mut self, path: &str) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(reader) = &mut self.current {
                let batch = reader.next().transpose().map_err(|error| reading(path, &error.into()))?;
                if batch.is_some() {
                    // A caller of one batch may be content with it (LIMIT); a caller of two is likely to read on.
                    if self.given > 0 {
                        self.fetch_ahead();
                    }
                    self.given += 1;
                    return Ok(batch);
                }
            }
            (self.current, self.given) = (self.following(path).await?.map(Guarded::new), 0);
            if self.current.is_none() {
                return Ok(None);
            }
        }
    }

    fn fetch_ahead(&mut self) {
        self.rest = match std::mem::replace(&mut self.rest, Rest::Ended) {
            Rest::Waiting(stream) => {
                let mut task = JoinSet::new();
                task.spawn(fetched(stream));
                Rest::Fetching(task)
            }
            other => other,
        };
    }

    /// The row group after the current one.
    async fn following(&mut self, path: &str) -> Result<Option<ParquetRecordBatchReader>> {
        let FetchedRowGroup { rest, next } = match std::mem::replace(&mut self.rest, Rest::Ended) {
            Rest::Waiting(stream) => fetched(stream).await,
            Rest::Fetching(mut task) => match task.join_next().await {
                Some(joined) => joined.map_err(|error| NativeError::internal(format!("reading ahead: {error}")))?,
                None => return Ok(None),
            },
            Rest::Ended => return Ok(None),
        };
        let next = next.map_err(|error| reading(path, &error))?;
        if next.is_some() {
            self.rest = Rest::Waiting(rest);
        }
        Ok(next)
    }
}

async fn fetched(mut rest: Box<ParquetRecordBatchStream<AmendedReader>>) -> FetchedRowGroup {
    let next = guarded_wait(rest.next_row_group()).await.and_then(|next| next);
    FetchedRowGroup { rest, next }
}
