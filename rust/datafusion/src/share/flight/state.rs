//! What a flight is made of, behind one lock.
//!
//! Nothing is polled, written, read, woken or dropped while it is locked. What has to be comes out of it, for whoever held the lock.

use std::any::Any;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::spill::spill_pool::SpillPoolSink;

use crate::share::backlog::{Backlog, Disk, DiskRows, DiskWrite, NextKept, Written};
use crate::share::kept_memory::KeptMemory;
use crate::share::pages::{ConsumerId, PageLimits, PageList};

/// Bytes of an output up to which it is kept whole until the plan ends: a query that comes in the meantime takes it from the beginning.
pub(super) const KEEP_BYTES: usize = 1 << 20;
/// Bytes that a consumer may be behind, and those in memory of all who are more than that behind.
const WINDOW_BYTES: usize = 8 << 20;
/// Of a limited memory a flight keeps one part in so many whole, and a window of one part in a quarter of as many. Otherwise a plan might
/// fail for what is kept of its output.
pub(super) const MEMORY_PARTS: usize = 64;

/// The number of the consumer whose plan runs. If it gave no row it may leave its plan to the others, and make another one for itself.
const HOST: ConsumerId = 0;

/// A plan in flight, and who takes part in it.
#[derive(Debug)]
pub(super) struct FlightState {
    schema: SchemaRef,
    source: Source,
    pages: PageList<RecordBatch>,
    consumers: BTreeMap<ConsumerId, ConsumerState>,
    end: Option<End>,
    /// That of the pages.
    memory: KeptMemory,
    /// That of the backlogs.
    backlogs: Arc<KeptMemory>,
}

/// Where the stream is.
pub(super) enum Source {
    /// Nobody has polled it.
    Planned(Arc<dyn ExecutionPlan>, Arc<TaskContext>),
    Running(SendableRecordBatchStream),
    /// Somebody polls it just now, or writes what others could not take in time.
    Polled,
    /// It ended.
    Gone,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Planned(..) => "planned",
            Self::Running(_) => "running",
            Self::Polled => "polled",
            Self::Gone => "gone",
        })
    }
}

#[derive(Debug)]
pub(super) enum End {
    Done,
    Failed(Arc<DataFusionError>),
    /// With what it panicked, until the host takes it: the plan is its own.
    Panicked(Option<Panic>),
}

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

struct ConsumerState {
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    /// Whether it gave a batch to its query.
    given: bool,
    /// Whether it has to run its own plan.
    detached: bool,
    /// Batches that it takes before those of the list.
    backlog: Option<Backlog>,
    /// Why nothing follows its backlog: the next batch could not be kept.
    lost: Option<DataFusionError>,
    waker: Option<Waker>,
    /// Whether it was woken and has not come so far.
    is_woken: bool,
}

impl std::fmt::Debug for ConsumerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { given, detached, backlog, .. } = self;
        write!(f, "given: {given}, detached: {detached}, behind: {}", backlog.is_some())
    }
}

/// What a consumer gets.
#[derive(Debug)]
pub(crate) enum Taken {
    Batch {
        batch: RecordBatch,
        /// Whether others get it as well.
        is_shared: bool,
    },
    End,
    Failed(DataFusionError),
    /// Its plan panicked.
    Panicked(Panic),
    /// The consumer gave no row so far, and has to run its own plan.
    Restart,
}

/// What a consumer has to do next.
pub(super) enum Next {
    Take(Taken),
    /// Its next batch is on its disk: it polls these rows, and gives them back.
    Read(DiskRows),
    /// Nobody has its next batch: it polls the stream if it is here, and puts it back.
    Poll {
        source: Source,
        /// Whether the bytes of a batch matter. Those of a query that is alone, and stays so, do not: it takes a batch as soon as it is there.
        counts: bool,
    },
}

/// A write of what a consumer could not take in time.
pub(super) struct WriteFor {
    id: ConsumerId,
    write: DiskWrite,
}

/// What is dropped where nothing is locked.
#[derive(Default)]
pub(super) struct Rest {
    wakers: Vec<Waker>,
    consumers: Vec<ConsumerState>,
    sources: Vec<Source>,
    backlogs: Vec<Backlog>,
    sinks: Vec<SpillPoolSink>,
    rows: Vec<DiskRows>,
}

impl FlightState {
    pub(super) fn new(plan: Arc<dyn ExecutionPlan>, schema: SchemaRef, context: &Arc<TaskContext>) -> Self {
        let pool = context.memory_pool();
        let limits = limits_in(pool.as_ref());
        Self {
            schema,
            source: Source::Planned(plan, Arc::clone(context)),
            pages: PageList::new(limits),
            consumers: BTreeMap::new(),
            end: None,
            memory: KeptMemory::new(pool, usize::MAX),
            backlogs: Arc::new(KeptMemory::new(pool, limits.window)),
        }
    }

    /// Whether a consumer may still attach.
    pub(super) fn is_open(&self) -> bool {
        self.pages.is_open()
    }

    /// A consumer of all batches; none if the window is closed.
    pub(super) fn attach(&mut self, context: &Arc<TaskContext>) -> Option<ConsumerId> {
        let id = self.pages.attach()?;
        let consumer = ConsumerState {
            context: Arc::clone(context),
            metrics: ExecutionPlanMetricsSet::new(),
            given: false,
            detached: false,
            backlog: None,
            lost: None,
            waker: None,
            is_woken: false,
        };
        self.consumers.insert(id, consumer);
        Some(id)
    }

    /// A consumer goes. With the last one that needs it the stream ends. Gives the others, of whom one may be the first now, which takes
    /// batches as they come.
    pub(super) fn leave(&mut self, id: ConsumerId, rest: &mut Rest) -> Vec<Waker> {
        rest.consumers.extend(self.consumers.remove(&id));
        self.pages.detach(id);
        self.charge();
        if self.consumers.values().all(|consumer| consumer.detached) {
            self.pages.close();
            rest.sources.push(mem::replace(&mut self.source, Source::Gone));
        }
        self.wakers()
    }

    /// What a consumer has to do next, to be woken by this.
    pub(super) fn next(&mut self, id: ConsumerId, streams: bool, waker: &Waker, rest: &mut Rest) -> Next {
        let is_first = self.pages.consumers().next() == Some(id);
        let is_failed = matches!(self.end, Some(End::Failed(_) | End::Panicked(_)));
        let Some(consumer) = self.consumers.get_mut(&id) else { return Next::Take(Taken::End) };
        consumer.is_woken = false;
        if consumer.detached || is_failed && id != HOST && !consumer.given {
            return Next::Take(Taken::Restart);
        }
        if let Some(backlog) = &mut consumer.backlog {
            match backlog.take() {
                NextKept::Batch(batch) => {
                    consumer.given = true;
                    return Next::Take(Taken::Batch { batch, is_shared: true });
                }
                NextKept::OnDisk(Some(rows)) => return Next::Read(rows),
                NextKept::OnDisk(None) => return Next::Take(Taken::Failed(rows_are_gone())),
                NextKept::Nothing => rest.backlogs.extend(consumer.backlog.take()),
            }
        }
        if let Some(error) = consumer.lost.take() {
            return Next::Take(Taken::Failed(error));
        }
        // While the plan may fail and all of its output is here, guests give no row, so that they can run their own plans.
        let gives_early = id == HOST || self.pages.is_large() && (streams || is_first);
        let gives = gives_early || matches!(self.end, Some(End::Done));
        if gives && let Some(page) = self.pages.take(id) {
            consumer.given = true;
            self.charge();
            return Next::Take(Taken::Batch { batch: page.item, is_shared: page.is_shared });
        }
        if let Some(taken) = self.at_the_end(id) {
            return Next::Take(taken);
        }
        if let Some(consumer) = self.consumers.get_mut(&id) {
            rest.wakers.extend(consumer.waker.replace(waker.clone()));
        }
        let counts = self.consumers.len() > 1 || self.pages.is_open() || !self.pages.is_large();
        Next::Poll { source: mem::replace(&mut self.source, Source::Polled), counts }
    }

    /// What a consumer gets behind the last batch, if the stream ended.
    fn at_the_end(&mut self, id: ConsumerId) -> Option<Taken> {
        let error = match self.end.as_mut()? {
            End::Done => return Some(Taken::End),
            End::Failed(error) => Arc::clone(error),
            End::Panicked(panic) => {
                let own = if id == HOST { panic.take() } else { None };
                return Some(own.map_or_else(|| Taken::Failed(panicked()), Taken::Panicked));
            }
        };
        // The last consumer gets the error as it was.
        if self.consumers.len() == 1 {
            self.end = Some(End::Done);
        }
        Some(Taken::Failed(Arc::try_unwrap(error).unwrap_or_else(DataFusionError::Shared)))
    }

    /// What a consumer gets that polled the rows on its disk; none if it has to look again.
    pub(super) fn read(
        &mut self,
        id: ConsumerId,
        rows: DiskRows,
        read: Poll<Option<Result<RecordBatch>>>,
        rest: &mut Rest,
    ) -> Option<Poll<Taken>> {
        let consumer = self.consumers.get_mut(&id).filter(|consumer| !consumer.detached);
        let Some(ConsumerState { backlog: Some(backlog), given, .. }) = consumer else {
            rest.rows.push(rows);
            return None;
        };
        backlog.put_rows(rows, matches!(read, Poll::Ready(Some(Ok(_)))));
        let error = match read {
            Poll::Pending => return Some(Poll::Pending),
            Poll::Ready(Some(Ok(batch))) => {
                *given = true;
                return Some(Poll::Ready(Taken::Batch { batch, is_shared: true }));
            }
            Poll::Ready(Some(Err(error))) => error,
            Poll::Ready(None) => rows_are_gone(),
        };
        if *given {
            return Some(Poll::Ready(Taken::Failed(error)));
        }
        self.detach(id);
        None
    }

    /// Puts the stream back.
    pub(super) fn put(&mut self, source: Source) {
        self.source = source;
    }

    /// Adds a batch. Gives what is to be written of consumers that are too far behind.
    pub(super) fn push(&mut self, batch: RecordBatch, bytes: usize, streams: bool) -> Vec<WriteFor> {
        self.pages.push(batch, bytes);
        if !streams && self.pages.is_large() {
            let guests: Vec<ConsumerId> = self.pages.consumers().skip(1).collect();
            for id in guests {
                self.detach(id);
            }
            // Whoever came now would only wait for the same.
            self.pages.close();
        }
        if !self.charge() {
            self.pages.close();
        }
        let mut writes = BTreeMap::new();
        loop {
            let has_room = self.charge();
            let behind = if has_room { self.pages.laggards() } else { self.pages.last_ones() };
            if behind.is_empty() {
                break;
            }
            self.let_fall_behind(behind, streams, &mut writes);
        }
        writes.into_iter().map(|(id, write)| WriteFor { id, write }).collect()
    }

    /// Consumers keep the first page for themselves. Those that gave no row run their own plans if that costs little.
    fn let_fall_behind(&mut self, ids: Vec<ConsumerId>, streams: bool, writes: &mut BTreeMap<ConsumerId, DiskWrite>) {
        for id in ids {
            let Some(consumer) = self.consumers.get_mut(&id) else {
                self.pages.detach(id);
                continue;
            };
            if !streams && id != HOST && !consumer.given {
                self.detach(id);
                continue;
            }
            let Some(page) = self.pages.take(id) else { continue };
            let ConsumerState { backlog, context, metrics, .. } = consumer;
            let backlog = backlog.get_or_insert_with(|| Backlog::new(Arc::clone(&self.backlogs)));
            let Some(batch) = backlog.push(page.item, page.bytes) else { continue };
            let disk = || Disk::new(Arc::clone(&self.schema), context, metrics);
            writes.entry(id).or_insert_with(|| DiskWrite::new(backlog.take_sink(disk))).push(batch);
        }
    }

    /// Notes what came of writes. Consumers whose batches could not be written run their own plans if they gave no row, and have nothing
    /// beyond these batches otherwise. They are woken as their end of the disk goes that is written to.
    pub(super) fn settle(&mut self, written: Vec<(ConsumerId, Written)>, rest: &mut Rest) {
        for (id, Written { sink, failed }) in written {
            let Some(consumer) = self.consumers.get_mut(&id) else {
                rest.sinks.extend(sink);
                continue;
            };
            let Some((number, error)) = failed else {
                match (&mut consumer.backlog, sink) {
                    (Some(backlog), Some(sink)) => backlog.put_sink(sink),
                    (_, sink) => rest.sinks.extend(sink),
                }
                continue;
            };
            rest.sinks.extend(sink);
            if !consumer.given {
                rest.backlogs.extend(consumer.backlog.take());
                self.detach(id);
                continue;
            }
            if let Some(backlog) = &mut consumer.backlog {
                backlog.cut(number);
            }
            consumer.lost = Some(error);
            self.pages.detach(id);
        }
    }

    /// A consumer that has to run its own plan.
    fn detach(&mut self, id: ConsumerId) {
        self.pages.detach(id);
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.detached = true;
        }
    }

    /// Counts what is kept to the memory of the session; whether that has room for it.
    fn charge(&mut self) -> bool {
        self.memory.resize(self.pages.behind_bytes())
    }

    /// Nobody comes any more, and the stream goes.
    pub(super) fn finish(&mut self, end: End, source: Source, rest: &mut Rest) {
        self.end = Some(end);
        self.source = Source::Gone;
        self.pages.close();
        self.charge();
        rest.sources.push(source);
    }

    /// Whether a consumer that polled a batch lets others come before it takes it. It is woken itself then.
    pub(super) fn pauses(&mut self, id: ConsumerId) -> bool {
        let is_awaited =
            |(other, consumer): (&ConsumerId, &ConsumerState)| *other != id && consumer.is_woken && !consumer.detached;
        let is_halfway = self.pages.behind_bytes() > self.pages.window_bytes() / 2;
        let pauses = is_halfway && self.consumers.iter().any(is_awaited);
        if pauses && let Some(own) = self.consumers.get_mut(&id) {
            own.is_woken = true;
        }
        pauses
    }

    /// A consumer goes on by itself, and is not to be woken.
    pub(super) fn goes_on(&mut self, id: ConsumerId, rest: &mut Rest) {
        rest.wakers.extend(self.consumers.get_mut(&id).and_then(|own| own.waker.take()));
    }

    /// All who wait, to be woken.
    pub(super) fn wakers(&mut self) -> Vec<Waker> {
        let taken = |consumer: &mut ConsumerState| {
            let waker = consumer.waker.take();
            consumer.is_woken |= waker.is_some();
            waker
        };
        self.consumers.values_mut().filter_map(taken).collect()
    }
}

impl WriteFor {
    /// Writes, where nothing is locked.
    pub(super) fn run(self) -> (ConsumerId, Written) {
        (self.id, self.write.run())
    }
}

/// The error of those who gave rows of a plan that panicked for its own query.
fn panicked() -> DataFusionError {
    internal_datafusion_err!("a plan that queries share panicked, of which this one gave rows: run it again")
}

fn rows_are_gone() -> DataFusionError {
    internal_datafusion_err!("rows that wait on disk are gone")
}

/// How much a flight keeps in the memory of a session.
fn limits_in(pool: &dyn MemoryPool) -> PageLimits {
    match pool.memory_limit() {
        MemoryLimit::Finite(limit) => PageLimits {
            keep: KEEP_BYTES.min(limit / MEMORY_PARTS),
            window: WINDOW_BYTES.min(limit / (MEMORY_PARTS / 4)),
        },
        MemoryLimit::Infinite | MemoryLimit::Unknown => PageLimits { keep: KEEP_BYTES, window: WINDOW_BYTES },
    }
}
