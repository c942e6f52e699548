//! A consumer of a plan in flight, and the stream of a query that has one.

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};

use super::flight::{Flight, Taken};
use super::pages::ConsumerId;
use super::role::{Role, SharedMetrics};

/// Its place in a flight, which it leaves with this.
pub(crate) struct Consumer {
    flight: Arc<Flight>,
    id: ConsumerId,
}

impl Consumer {
    /// A consumer of all batches; none if the window is closed.
    pub(crate) fn attach(flight: &Arc<Flight>, context: &Arc<TaskContext>) -> Option<Self> {
        let id = flight.attach(context)?;
        Some(Self { flight: Arc::clone(flight), id })
    }

    /// What it is for the others.
    pub(crate) fn role(&self) -> Role {
        if self.id == 0 { Role::Host } else { Role::Guest }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.flight.leave(self.id);
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The stream of a plan that is yet to be made or begun.
pub(crate) type Opening = BoxFuture<'static, Result<SendableRecordBatchStream>>;

/// The rows of a query that may share an execution.
pub(crate) struct SharedStream {
    schema: SchemaRef,
    rows: Rows,
    metrics: SharedMetrics,
    /// Begins the query's own plan, if it has to run in the end.
    alone: Option<Box<dyn FnOnce() -> Opening + Send>>,
}

/// Where the rows come from.
enum Rows {
    Shared(Consumer),
    Opening(Opening),
    Own(SendableRecordBatchStream),
    Ended,
}

impl SharedStream {
    /// The rows of a consumer, or those of its own plan if it cannot take the others' any more.
    pub(crate) fn shared(
        schema: SchemaRef,
        consumer: Consumer,
        metrics: SharedMetrics,
        alone: Box<dyn FnOnce() -> Opening + Send>,
    ) -> Self {
        metrics.set_role(consumer.role());
        Self { schema, rows: Rows::Shared(consumer), metrics, alone: Some(alone) }
    }

    /// The rows of a stream that is yet to be opened.
    pub(crate) fn opening(schema: SchemaRef, opening: Opening, metrics: SharedMetrics) -> Self {
        Self { schema, rows: Rows::Opening(opening), metrics, alone: None }
    }

    /// Takes the next batch of the others, or leaves them.
    fn poll_shared(&mut self, taken: Taken) -> Option<Poll<Option<Result<RecordBatch>>>> {
        match taken {
            Taken::Batch { batch, is_shared } => {
                self.metrics.batches_shared.add(usize::from(is_shared));
                self.metrics.output_rows.add(batch.num_rows());
                Some(Poll::Ready(Some(Ok(batch))))
            }
            Taken::End => {
                self.rows = Rows::Ended;
                None
            }
            Taken::Failed(error) => {
                self.rows = Rows::Ended;
                Some(Poll::Ready(Some(Err(error))))
            }
            Taken::Panicked(panic) => {
                self.rows = Rows::Ended;
                resume_unwind(panic)
            }
            Taken::Restart => {
                self.metrics.set_role(Role::Detached);
                self.rows = self.alone.take().map_or(Rows::Ended, |alone| Rows::Opening(alone()));
                None
            }
        }
    }
}

impl Stream for SharedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.rows {
                Rows::Shared(Consumer { flight, id }) => {
                    let taken = ready!(flight.poll_next(*id, cx));
                    if let Some(polled) = self.poll_shared(taken) {
                        return polled;
                    }
                }
                Rows::Opening(opening) => match ready!(opening.poll_unpin(cx)) {
                    Ok(stream) => self.rows = Rows::Own(stream),
                    Err(error) => {
                        self.rows = Rows::Ended;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                Rows::Own(stream) => {
                    let batch = ready!(stream.poll_next_unpin(cx));
                    if !matches!(batch, Some(Ok(_))) {
                        self.rows = Rows::Ended;
                    }
                    return Poll::Ready(batch);
                }
                Rows::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl RecordBatchStream for SharedStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
