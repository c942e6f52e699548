//! What a consumer that fell behind has yet to take: in memory as far as that has room for it, the rest on the session's disk.
//!
//! A consumer that gave rows cannot begin again, as a second run may give its rows in another order. One that gave none would compute again
//! what is about to be complete. Neither can hold the others up. So what it has not taken becomes its own.
//!
//! ```text
//! falls behind ─▶ in memory, or marked as on disk    while the flight is locked
//!                             └─▶ DiskWrite           is run by whoever polled the stream, where nothing is locked
//! takes        ─▶ from memory, or with DiskRows      which it polls where nothing is locked, and gives back
//! ```
//!
//! A batch is marked as soon as it is to be written. So its consumer waits for the write, and nobody else does.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::spill_pool::{SpillPoolSink, spsc_channel};

use super::kept_memory::KeptMemory;

/// Batches in the order in which they came.
pub(crate) struct Backlog {
    batches: VecDeque<Kept>,
    /// The number of the first of them.
    first: usize,
    /// That of all backlogs of a flight.
    memory: Arc<KeptMemory>,
    /// Bytes of the batches that are in memory.
    memory_bytes: usize,
    disk: Option<Disk>,
}

enum Kept {
    InMemory {
        batch: RecordBatch,
        bytes: usize,
    },
    /// It is on disk, or on its way there.
    OnDisk,
}

/// Rows of a backlog that are on disk, in their order. They wait for those that are on their way there.
pub(crate) type DiskRows = SendableRecordBatchStream;

/// Batches on disk, first in, first out. An end is away while somebody uses it.
pub(crate) struct Disk {
    sink: Option<SpillPoolSink>,
    rows: Option<DiskRows>,
}

impl Disk {
    /// The disk of a consumer's session, with nothing on it. The schema is that of the plan: batches of a union may say less.
    pub(crate) fn new(schema: SchemaRef, context: &TaskContext, metrics: &ExecutionPlanMetricsSet) -> Self {
        let manager = SpillManager::new(context.runtime_env(), SpillMetrics::new(metrics, 0), schema);
        let file_bytes = context.session_config().options().execution.max_spill_file_size_bytes.get();
        let (sink, rows) = spsc_channel(file_bytes, Arc::new(manager));
        Self { sink: Some(sink), rows: Some(rows) }
    }
}

/// The next batch of a backlog.
pub(crate) enum NextKept {
    Batch(RecordBatch),
    /// It is the next one of these, which go back as soon as they were polled. None while they are away.
    OnDisk(Option<DiskRows>),
    /// Nothing is left.
    Nothing,
}

/// A batch that is to be written.
pub(crate) struct NumberedBatch {
    number: usize,
    batch: RecordBatch,
}

impl Backlog {
    /// An empty one.
    pub(crate) fn new(memory: Arc<KeptMemory>) -> Self {
        Self { batches: VecDeque::new(), first: 0, memory, memory_bytes: 0, disk: None }
    }

    /// Keeps a batch. Where the memory has no room for it, it is given back to be written.
    pub(crate) fn push(&mut self, batch: RecordBatch, bytes: usize) -> Option<NumberedBatch> {
        // It says nothing, and the disk keeps none of these.
        if batch.num_rows() == 0 {
            return None;
        }
        let number = self.first + self.batches.len();
        if self.memory.take(bytes) {
            self.memory_bytes += bytes;
            self.batches.push_back(Kept::InMemory { batch, bytes });
            return None;
        }
        self.batches.push_back(Kept::OnDisk);
        Some(NumberedBatch { number, batch })
    }

    /// The end of its disk that is written to, which is made if there is none.
    pub(crate) fn take_sink(&mut self, make: impl FnOnce() -> Disk) -> Option<SpillPoolSink> {
        self.disk.get_or_insert_with(make).sink.take()
    }

    /// Puts that end back.
    pub(crate) fn put_sink(&mut self, sink: SpillPoolSink) {
        if let Some(disk) = &mut self.disk {
            disk.sink = Some(sink);
        }
    }

    /// The next batch, or what has it.
    pub(crate) fn take(&mut self) -> NextKept {
        if matches!(self.batches.front(), Some(Kept::OnDisk)) {
            return NextKept::OnDisk(self.disk.as_mut().and_then(|disk| disk.rows.take()));
        }
        let Some(Kept::InMemory { batch, bytes }) = self.batches.pop_front() else { return NextKept::Nothing };
        self.first += 1;
        self.give_back(bytes);
        NextKept::Batch(batch)
    }

    /// Puts the rows on disk back, of which one batch was read if it was there.
    pub(crate) fn put_rows(&mut self, rows: DiskRows, is_read: bool) {
        if let Some(disk) = &mut self.disk {
            disk.rows = Some(rows);
        }
        if is_read && matches!(self.batches.front(), Some(Kept::OnDisk)) {
            self.batches.pop_front();
            self.first += 1;
        }
    }

    /// Forgets the batches from this one on: it could not be written.
    pub(crate) fn cut(&mut self, number: usize) {
        let left = number.saturating_sub(self.first).min(self.batches.len());
        for kept in self.batches.split_off(left) {
            if let Kept::InMemory { bytes, .. } = kept {
                self.give_back(bytes);
            }
        }
    }

    fn give_back(&mut self, bytes: usize) {
        self.memory_bytes -= bytes;
        self.memory.give_back(bytes);
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.memory.give_back(self.memory_bytes);
    }
}

/// Batches of a backlog on their way to its disk.
pub(crate) struct DiskWrite {
    sink: Option<SpillPoolSink>,
    batches: Vec<NumberedBatch>,
}

/// What came of it.
pub(crate) struct Written {
    pub(crate) sink: Option<SpillPoolSink>,
    /// The number of the first batch that could not be written, and why.
    pub(crate) failed: Option<(usize, DataFusionError)>,
}

impl DiskWrite {
    pub(crate) fn new(sink: Option<SpillPoolSink>) -> Self {
        Self { sink, batches: Vec::new() }
    }

    pub(crate) fn push(&mut self, batch: NumberedBatch) {
        self.batches.push(batch);
    }

    /// Writes, up to the first batch that cannot be written.
    pub(crate) fn run(self) -> Written {
        let Self { sink, batches } = self;
        for NumberedBatch { number, batch } in batches {
            if let Err(error) = written(sink.as_ref(), &batch) {
                return Written { sink, failed: Some((number, error)) };
            }
        }
        Written { sink, failed: None }
    }
}

fn written(sink: Option<&SpillPoolSink>, batch: &RecordBatch) -> Result<()> {
    let Some(sink) = sink else { return internal_err!("somebody else writes the rows of a query to disk") };
    // Whoever writes does it for another query, which is the one that it goes wrong for.
    let done = catch_unwind(AssertUnwindSafe(|| sink.push_batch(batch)));
    done.unwrap_or_else(|_| internal_err!("whatever writes rows to disk panicked"))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn batch(values: &[i64]) -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(values.to_vec())) as ArrayRef)]).unwrap()
    }

    /// A consumer that has nothing but its backlog.
    struct Behind {
        backlog: Backlog,
        context: TaskContext,
        metrics: ExecutionPlanMetricsSet,
    }

    impl Behind {
        fn new(memory_bytes: usize, context: TaskContext) -> Self {
            let backlog = Backlog::new(Arc::new(KeptMemory::new(context.memory_pool(), memory_bytes)));
            Self { backlog, context, metrics: ExecutionPlanMetricsSet::new() }
        }

        /// Keeps a batch; what is to be written, if it is.
        fn keep(&mut self, batch: RecordBatch, bytes: usize) -> Option<DiskWrite> {
            let schema = batch.schema();
            let kept = self.backlog.push(batch, bytes)?;
            let mut write = DiskWrite::new(self.backlog.take_sink(|| Disk::new(schema, &self.context, &self.metrics)));
            write.push(kept);
            Some(write)
        }

        fn write(&mut self, write: Option<DiskWrite>) {
            let Some(Written { sink, failed }) = write.map(DiskWrite::run) else { return };
            assert!(failed.is_none(), "{failed:?}");
            self.backlog.put_sink(sink.unwrap());
        }

        async fn next(&mut self) -> Option<RecordBatch> {
            poll_fn(|cx| match self.backlog.take() {
                NextKept::Batch(batch) => Poll::Ready(Some(batch)),
                NextKept::Nothing => Poll::Ready(None),
                NextKept::OnDisk(rows) => {
                    let mut rows = rows.unwrap();
                    let read = rows.poll_next_unpin(cx);
                    self.backlog.put_rows(rows, read.is_ready());
                    read.map(|batch| Some(batch.unwrap().unwrap()))
                }
            })
            .await
        }

        async fn next_value(&mut self) -> i64 {
            self.next().await.unwrap().column(0).as_primitive::<Int64Type>().value(0)
        }
    }

    #[tokio::test]
    async fn batches_without_rows_are_not_waited_for() {
        let runtime =
            RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(0))).build_arc().unwrap();
        let mut behind = Behind::new(usize::MAX, TaskContext::default().with_runtime(runtime));
        let two = batch(&[7, 8]);
        for kept in [two.clone(), two.slice(0, 0), two.slice(0, 1)] {
            let write = behind.keep(kept, 64);
            behind.write(write);
        }
        let mut rows = Vec::new();
        while let Some(batch) = behind.next().await {
            rows.push(batch.num_rows());
        }
        assert_eq!(rows, [2, 1]);
    }

    #[tokio::test]
    async fn the_disk_has_what_is_more_than_a_window() {
        let mut behind = Behind::new(20, TaskContext::default());
        for n in 0..3 {
            let write = behind.keep(batch(&[n]), 8);
            assert_eq!(write.is_some(), n == 2);
            behind.write(write);
        }
        let mut found = Vec::new();
        for next in 3..9 {
            found.push(behind.next_value().await);
            let write = behind.keep(batch(&[next]), 8);
            behind.write(write);
            assert!(behind.backlog.memory_bytes <= 20 && behind.backlog.disk.is_some());
            assert_eq!(behind.context.memory_pool().reserved(), behind.backlog.memory_bytes);
        }
        assert_eq!(found, [0, 1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn rows_on_their_way_to_the_disk_are_waited_for() {
        let mut behind = Behind::new(0, TaskContext::default());
        let first = behind.keep(batch(&[0]), 8);
        assert!(behind.next().now_or_never().is_none());
        behind.write(first);
        assert_eq!(behind.next_value().await, 0);
    }

    #[tokio::test]
    async fn what_follows_a_batch_that_was_not_written_is_forgotten() {
        let mut behind = Behind::new(8, TaskContext::default());
        let first = behind.keep(batch(&[0]), 16);
        assert!(behind.keep(batch(&[1]), 8).is_none());
        behind.write(first);
        let lost = behind.backlog.push(batch(&[2]), 16).unwrap();
        assert_eq!(behind.next_value().await, 0);
        assert_eq!((lost.number, behind.next_value().await), (2, 1));
        assert!(behind.keep(batch(&[3]), 8).is_none());
        behind.backlog.cut(lost.number);
        assert!(behind.next().await.is_none());
        assert_eq!(behind.context.memory_pool().reserved(), 0);
    }
}
