//! The span of a scan: what a subscriber of `tracing` sees of one partition, from its first row to its last.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};
use tracing::Span;
use tracing::field::Empty;

use super::ScanParts;

/// The same rows. While they are polled, the span of the scan is entered; without a subscriber there is no span, and nothing in between.
pub(super) fn traced(
    rows: SendableRecordBatchStream,
    parts: &ScanParts,
    partition: usize,
) -> SendableRecordBatchStream {
    let span =
        tracing::debug_span!("scan", scan = parts.summary, partition, files = parts.report.files_scanned, rows = Empty);
    if span.is_disabled() { rows } else { Box::pin(TracedRows { rows, span, given: 0 }) }
}

struct TracedRows {
    rows: SendableRecordBatchStream,
    span: Span,
    /// Rows so far.
    given: u64,
}

impl Stream for TracedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let entered = this.span.enter();
        let polled = this.rows.poll_next_unpin(context);
        drop(entered);
        match &polled {
            Poll::Ready(Some(Ok(batch))) => this.given += batch.num_rows() as u64,
            Poll::Ready(None) => {
                this.span.record("rows", this.given);
            }
            _ => {}
        }
        polled
    }
}

impl RecordBatchStream for TracedRows {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
