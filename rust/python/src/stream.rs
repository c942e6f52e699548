//! Record batches on their way out, through the Arrow C stream interface.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use arrow::error::{ArrowError, Result};
use futures::StreamExt;
use lakemark_datafusion::ReadyQuery;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::ffi::{ArrayIterator, to_stream_pycapsule};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::lost_task_message;
use crate::runtime::forked_from;

/// Batches that are computed ahead of the reader.
const AHEAD: usize = 2;

/// The batches of a running query. Dropping it stops the query.
///
/// Readers call from C, with or without the GIL, and an unwinding panic would end the process there: the query runs on
/// the runtime's threads, and only its results and its death are passed on.
///
/// A forked child has the memory of the query and none of its threads. Whatever would wait for them, or for a lock that one of them held,
/// is an error there, or is left alone.
pub(crate) struct RunningQuery {
    /// None once a child found that it is one.
    query: Option<QueryStream>,
    runtime: &'static Runtime,
    process: u32,
}

struct QueryStream {
    batches: mpsc::Receiver<Result<RecordBatch>>,
    task: Option<JoinHandle<()>>,
}

impl RunningQuery {
    /// Starts a query.
    pub(crate) fn start(runtime: &'static Runtime, query: ReadyQuery) -> Self {
        let (sender, batches) = mpsc::channel(AHEAD);
        let task = runtime.spawn(async move {
            let mut stream = match query.rows().await {
                Ok(stream) => stream,
                Err(error) => {
                    // Sending fails only if the reader is gone.
                    let _ = sender.send(Err(error.into())).await;
                    return;
                }
            };
            while let Some(batch) = stream.next().await {
                if sender.send(batch.map_err(ArrowError::from)).await.is_err() {
                    return;
                }
            }
        });
        let query = Some(QueryStream { batches, task: Some(task) });
        Self { query, runtime, process: std::process::id() }
    }
}

impl QueryStream {
    fn next(&mut self, runtime: &Runtime) -> Option<Result<RecordBatch>> {
        match runtime.block_on(self.batches.recv()) {
            Some(batch) => Some(batch),
            None => self.end(runtime),
        }
    }

    /// The end of the batches: all is well unless the task died.
    fn end(&mut self, runtime: &Runtime) -> Option<Result<RecordBatch>> {
        let lost = runtime.block_on(self.task.take()?).err()?;
        Some(Err(ArrowError::ComputeError(lost_task_message(lost))))
    }
}

impl Iterator for RunningQuery {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(forked) = forked_from(self.process) {
            std::mem::forget(self.query.take());
            // Each time: an end after an error would pass for a whole result.
            return Some(Err(ArrowError::ExternalError(Box::new(forked))));
        }
        self.query.as_mut()?.next(self.runtime)
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        let Some(query) = self.query.take() else { return };
        if forked_from(self.process).is_some() {
            std::mem::forget(query);
        } else if let Some(task) = &query.task {
            task.abort();
        }
    }
}

/// The capsule of a stream of batches.
pub(crate) fn capsule<'py, I>(
    py: Python<'py>,
    schema: &SchemaRef,
    batches: I,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyCapsule>>
where
    I: Iterator<Item = Result<RecordBatch>> + Send + 'static,
{
    let structs = DataType::Struct(schema.fields().clone());
    let field: FieldRef = Arc::new(Field::new("", structs, false).with_metadata(schema.metadata().clone()));
    let arrays = batches.map(|batch| batch.map(|batch| Arc::new(StructArray::from(batch)) as ArrayRef));
    Ok(to_stream_pycapsule(py, Box::new(ArrayIterator::new(arrays, field)), requested_schema)?)
}
