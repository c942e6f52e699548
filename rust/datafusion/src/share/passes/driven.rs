//! Rows that are read on one runtime, whoever polls them and wherever.
//!
//! A stream of a session may be polled on another runtime than it began on. Reads that a pass begins there would end with that runtime, and
//! with them the pass of all others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;

/// The rows of a stream.
pub(crate) struct DrivenRows {
    driver: Handle,
    schema: SchemaRef,
    /// None once it is dropped.
    rows: Option<SendableRecordBatchStream>,
}

impl DrivenRows {
    /// Opens a stream on a runtime, which drives its reads.
    pub(crate) fn open(
        driver: &Handle,
        open: impl FnOnce() -> Result<SendableRecordBatchStream>,
    ) -> Result<SendableRecordBatchStream> {
        let _entered = driver.enter();
        let rows = open()?;
        Ok(Box::pin(Self { driver: driver.clone(), schema: rows.schema(), rows: Some(rows) }))
    }
}

impl Stream for DrivenRows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { driver, rows, .. } = &mut *self;
        let _entered = driver.enter();
        rows.as_mut().map_or(Poll::Ready(None), |rows| rows.poll_next_unpin(cx))
    }
}

impl RecordBatchStream for DrivenRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for DrivenRows {
    fn drop(&mut self) {
        let _entered = self.driver.enter();
        self.rows = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arrow::datatypes::Schema;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use tokio::runtime::{Builder, Id};

    use super::*;

    /// Notes on which runtime it is dropped.
    struct Noted(Arc<Mutex<Vec<Id>>>);

    impl Noted {
        fn note(&self) {
            self.0.lock().unwrap().push(Handle::current().id());
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.note();
        }
    }

    #[test]
    fn rows_are_opened_polled_and_dropped_on_their_runtime() {
        let runtime = || Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (own, other) = (runtime(), runtime());
        let ids = Arc::new(Mutex::new(Vec::new()));
        let noted = Noted(Arc::clone(&ids));
        let opened = DrivenRows::open(own.handle(), move || {
            noted.note();
            let polled = futures::stream::poll_fn(move |_| {
                noted.note();
                Poll::Ready(None::<Result<RecordBatch>>)
            });
            Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::new(Schema::empty()), polled)))
        });
        other.block_on(async move {
            let mut rows = opened.unwrap();
            assert!(rows.next().await.is_none());
        });
        assert_eq!(*ids.lock().unwrap(), [own.handle().id(); 3]);
    }
}
