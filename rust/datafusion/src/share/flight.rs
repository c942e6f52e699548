//! A plan in flight: the stream of its batches, which whoever lacks the next one polls.
//!
//! ```text
//! consumer lacks a batch ─▶ is the stream here?  yes: take it, poll it, put it back, wake all
//!                                                no:  somebody polls it just now; be woken
//! ```
//!
//! Nothing is held between two polls. So a consumer that is never polled again holds nobody up, and one that goes leaves the stream to
//! the others. The stream wakes all consumers, as any of them may have gone or may look elsewhere.
//!
//! A stream that has rows at once would keep its thread until it ends. So whoever polls it pauses after a batch, for those that were woken and
//! could not come so far, as soon as they are halfway to falling behind.
//!
//! What is in the window ([`super::pages`]) counts to the memory of the host's session. Where that has none left, the window is smaller.
//!
//! Whoever polled a batch also writes to disk what others could not take in time ([`super::backlog`]). Nothing is locked meanwhile: others take
//! that batch and all before it. For the next one they wait, so that there is never more to be written than the window had.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use arrow::array::RecordBatch;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties, execute_stream};
use futures::StreamExt;
use tokio::runtime::{self, Handle};

use self::state::{End, FlightState, Next, Rest, Source, WriteFor};
use super::batch_bytes::bytes_of;
use super::key::PlanKey;
use super::pages::ConsumerId;

pub(crate) use self::state::Taken;

mod state;

/// The plan of a host.
#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// How its output looks to consumers.
    pub(crate) properties: Arc<PlanProperties>,
    /// Whether guests take large outputs. Otherwise they run their own plans as soon as the output is known to be large: rows of a plan
    /// that gives them as it reads cost little to read again, and much to keep for a slow consumer.
    pub(crate) streams: bool,
}

/// A plan in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    key: Arc<PlanKey>,
    /// Its plan runs on this one, whoever polls it and wherever.
    runtime: Handle,
    properties: Arc<PlanProperties>,
    streams: bool,
    state: Mutex<FlightState>,
    /// Whether the stream woke somebody since it was polled.
    woken: AtomicBool,
    waker: OnceLock<Waker>,
    /// Its entry in a registry, which goes with it.
    _entry: Box<dyn Any + Send + Sync>,
}

impl Flight {
    pub(crate) fn new(
        key: Arc<PlanKey>,
        runtime: Handle,
        host: HostPlan,
        context: &Arc<TaskContext>,
        entry: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let HostPlan { plan, properties, streams } = host;
        let state = FlightState::new(plan, Arc::clone(properties.equivalence_properties().schema()), context);
        let (state, woken, waker) = (Mutex::new(state), AtomicBool::new(false), OnceLock::new());
        Self { key, runtime, properties, streams, state, woken, waker, _entry: entry }
    }

    pub(crate) fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// Whether guests take its output however large it becomes.
    pub(crate) fn streams(&self) -> bool {
        self.streams
    }

    /// Whether it runs what a key stands for, on this runtime.
    pub(crate) fn is_for(&self, key: &PlanKey, runtime: runtime::Id) -> bool {
        self.runtime.id() == runtime && *self.key == *key
    }

    /// Whether a consumer may still attach.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_open()
    }

    /// A consumer of all batches; none if the window is closed.
    pub(crate) fn attach(&self, context: &Arc<TaskContext>) -> Option<ConsumerId> {
        self.lock().attach(context)
    }

    /// A consumer goes. With the last one the stream ends.
    pub(crate) fn leave(&self, id: ConsumerId) {
        let mut rest = Rest::default();
        let wakers = self.lock().leave(id, &mut rest);
        wake(wakers);
        let _entered = self.runtime.enter();
        drop(rest);
    }

    /// The next batch of a consumer.
    pub(crate) fn poll_next(self: &Arc<Self>, id: ConsumerId, cx: &mut Context<'_>) -> Poll<Taken> {
        loop {
            // What a waker or a backlog held goes where nothing is locked.
            let mut rest = Rest::default();
            let next = self.lock().next(id, self.streams, cx.waker(), &mut rest);
            match next {
                Next::Take(taken) => return Poll::Ready(taken),
                Next::Read(mut rows) => {
                    let _entered = self.runtime.enter();
                    let read = rows.poll_next_unpin(cx);
                    let taken = self.lock().read(id, rows, read, &mut rest);
                    if let Some(taken) = taken {
                        return taken;
                    }
                }
                Next::Poll { source, counts } => {
                    if matches!(source, Source::Polled) || self.poll_source(id, source, counts, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Polls the stream for a consumer, and puts it back with what came of it. Pending if there is nothing, or if others come first.
    fn poll_source(self: &Arc<Self>, id: ConsumerId, source: Source, counts: bool, cx: &Context<'_>) -> Poll<()> {
        self.woken.store(false, Ordering::SeqCst);
        let _entered = self.runtime.enter();
        let waker = self.waker.get_or_init(|| Waker::from(Arc::new(StreamWaker(Arc::downgrade(self)))));
        let (source, given) = advanced(source, counts, waker);
        let mut rest = Rest::default();
        let mut state = self.lock();
        let is_pending = matches!(given, Given::Nothing);
        // Whoever polled goes on by itself.
        if !is_pending {
            state.goes_on(id, &mut rest);
        }
        match given {
            Given::Nothing => state.put(source),
            Given::Batch { batch, bytes } => {
                let writes = state.push(batch, bytes, self.streams);
                if !writes.is_empty() {
                    state = self.write(state, writes, &mut rest);
                }
                state.put(source);
            }
            Given::End(end) => state.finish(end, source, &mut rest),
        }
        // Whoever came while the stream was polled was not woken by it.
        let is_news = !is_pending || self.woken.load(Ordering::SeqCst);
        let wakers = if is_news { state.wakers() } else { Vec::new() };
        let pauses = !is_pending && state.pauses(id);
        drop(state);
        wake(wakers);
        drop(rest);
        if pauses {
            cx.waker().wake_by_ref();
        }
        if is_pending || pauses { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Writes what others could not take in time, with nothing locked. The stream is not here meanwhile, so that nobody adds to it.
    fn write<'a>(
        &'a self,
        mut state: MutexGuard<'a, FlightState>,
        writes: Vec<WriteFor>,
        rest: &mut Rest,
    ) -> MutexGuard<'a, FlightState> {
        let wakers = state.wakers();
        drop(state);
        wake(wakers);
        let written = writes.into_iter().map(WriteFor::run).collect();
        let mut state = self.lock();
        state.settle(written, rest);
        state
    }

    fn lock(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a poll of the stream gave.
enum Given {
    Nothing,
    Batch { batch: RecordBatch, bytes: usize },
    End(End),
}

/// The stream after a poll, and what that gave. Whoever polls may be another query than the one whose plan it is, and does not panic for it.
fn advanced(source: Source, counts: bool, waker: &Waker) -> (Source, Given) {
    let advanced = catch_unwind(AssertUnwindSafe(|| {
        let (source, polled) = polled(source, waker);
        let given = match polled {
            Poll::Pending => Given::Nothing,
            Poll::Ready(Some(Ok(batch))) => Given::Batch { bytes: if counts { bytes_of(&batch) } else { 0 }, batch },
            Poll::Ready(Some(Err(error))) => Given::End(End::Failed(Arc::new(error))),
            Poll::Ready(None) => Given::End(End::Done),
        };
        (source, given)
    }));
    advanced.unwrap_or_else(|panic| (Source::Gone, Given::End(End::Panicked(Some(panic)))))
}

type Polled = Poll<Option<Result<RecordBatch>>>;

/// Polls the stream, which begins with that.
fn polled(source: Source, waker: &Waker) -> (Source, Polled) {
    let opened = match source {
        Source::Planned(plan, context) => execute_stream(plan, context),
        Source::Running(stream) => Ok(stream),
        Source::Polled | Source::Gone => internal_err!("a plan that queries share ended without an end"),
    };
    match opened {
        Ok(mut stream) => {
            let polled = stream.poll_next_unpin(&mut Context::from_waker(waker));
            (Source::Running(stream), polled)
        }
        Err(error) => (Source::Gone, Poll::Ready(Some(Err(error)))),
    }
}

/// Wakes all consumers of a flight.
struct StreamWaker(Weak<Flight>);

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(flight) = self.0.upgrade() else { return };
        flight.woken.store(true, Ordering::SeqCst);
        let wakers = flight.lock().wakers();
        wake(wakers);
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
