//! What the readers of passes tell of themselves, such as bytes scanned. A scan may begin a pass for each of many thousand row groups, and
//! each reader has some thirty metrics: those of readers that have ended are added up.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use futures::{Stream, StreamExt};

/// So many readers end before their metrics are added up: to do that for each takes a share of the time that a small row group takes.
const ENDED_AT_ONCE: usize = 16;

/// The metrics of the readers of all passes that a scan began.
#[derive(Debug, Default)]
pub(super) struct ReaderMetrics(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// Of readers that have ended, by name but for the last ones.
    ended: MetricsSet,
    /// Of how many readers there are metrics that are not added up.
    last_ones: usize,
    running: BTreeMap<u64, ExecutionPlanMetricsSet>,
    next_reader: u64,
}

impl ReaderMetrics {
    /// The rows of a reader with these metrics.
    pub(super) fn counted(
        self: &Arc<Self>,
        rows: SendableRecordBatchStream,
        metrics: ExecutionPlanMetricsSet,
    ) -> SendableRecordBatchStream {
        let mut told = self.lock();
        let reader = told.next_reader;
        told.next_reader += 1;
        told.running.insert(reader, metrics);
        Box::pin(CountedRows { rows, reader, told: Arc::clone(self) })
    }

    /// All of them.
    pub(super) fn all(&self) -> MetricsSet {
        let told = self.lock();
        let mut all = told.ended.aggregate_by_name();
        all.extend(told.running.values().flat_map(ExecutionPlanMetricsSet::clone_inner));
        all
    }

    fn end(&self, reader: u64) {
        let mut told = self.lock();
        let Some(metrics) = told.running.remove(&reader) else { return };
        told.ended.extend(metrics.clone_inner());
        told.last_ones += 1;
        if told.last_ones == ENDED_AT_ONCE {
            told.last_ones = 0;
            told.ended = told.ended.aggregate_by_name();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rows of a reader.
struct CountedRows {
    rows: SendableRecordBatchStream,
    reader: u64,
    told: Arc<ReaderMetrics>,
}

impl Stream for CountedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.poll_next_unpin(cx)
    }
}

impl RecordBatchStream for CountedRows {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

impl Drop for CountedRows {
    fn drop(&mut self) {
        self.told.end(self.reader);
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::EmptyRecordBatchStream;
    use datafusion::physical_plan::metrics::MetricBuilder;

    use super::*;

    #[test]
    fn readers_that_have_ended_are_added_up() {
        let told = Arc::new(ReaderMetrics::default());
        let mut running = Vec::new();
        for reader in 0..100 {
            let metrics = ExecutionPlanMetricsSet::new();
            MetricBuilder::new(&metrics).with_new_label("filename", reader.to_string()).counter("bytes", 0).add(reader);
            MetricBuilder::new(&metrics).counter("rows", 0).add(1);
            let rows = told.counted(Box::pin(EmptyRecordBatchStream::new(Arc::new(Schema::empty()))), metrics);
            if reader >= 98 {
                running.push(rows);
            }
        }
        let sums = |all: &MetricsSet| ["bytes", "rows"].map(|name| all.sum_by_name(name).map(|sum| sum.as_usize()));
        assert_eq!((told.all().iter().count(), sums(&told.all())), (6, [Some(4950), Some(100)]));
        drop(running);
        assert_eq!((told.all().iter().count(), sums(&told.all())), (2, [Some(4950), Some(100)]));
    }
}
