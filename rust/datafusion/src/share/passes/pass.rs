//! A pass that runs: its pages, and the decoder that whoever lacks the next page polls.
//!
//! ```text
//! consumer lacks a page ─▶ is the decoder here?  yes: take it, poll it, put it back, wake all
//!                                                no:  somebody polls it just now; be woken
//! ```
//!
//! A decoder that has rows at once would keep its thread until it ends. So whoever lacks a page pauses before it decodes one, as soon as
//! others are halfway to falling behind: they may have been woken, or come from elsewhere, and wait for a thread. It does so a few times for
//! each of them, and goes on by itself: one that stalls holds nobody up.
//!
//! Nothing is held between two polls. So a consumer that is never polled again holds nobody up, and one that goes leaves the decoder to the
//! others. While a pass has one consumer, that one takes each page as soon as it is there: nothing is kept, counted or weighed.
//! An error of the decoder is nobody's: each consumer reads the rest of its rows alone, and has the error then or has it not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::{fmt, mem};

use arrow::array::{RecordBatch, UInt32Array};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use lakemark_table::RowSet;

use super::budget::BudgetShare;
use super::page_list::{Entry, PassPages, Taken};
use super::ranks::TakenRows;
use crate::share::batch_bytes::bytes_of;
use crate::share::pages::ConsumerId;
use crate::share::prediction::{ColumnCosts, Terms};
use crate::share::stars::chain::RoutedRows;
use crate::share::stars::group::{StarPage, StarQuery, StarWanted, routed};

/// So often others pause for a consumer that is late, for each consumer that there is. A pause takes a microsecond if no other task waits, and
/// a page that somebody decodes again some hundred.
const PAUSES: usize = 2;

/// Begins to decode.
pub(crate) type OpensDecoder = Box<dyn FnOnce() -> Result<SendableRecordBatchStream> + Send>;

/// Where the pages that are kept count to.
#[derive(Debug)]
pub(crate) struct PageMemory {
    /// The memory of the session that began the pass.
    pub(crate) session: MemoryReservation,
    /// The budget of the process.
    pub(crate) budget: BudgetShare,
}

impl PageMemory {
    /// Counts so many bytes in place of those before; whether there is room for them.
    fn resize(&mut self, bytes: usize) -> bool {
        self.budget.resize(bytes) && self.session.try_resize(bytes).is_ok()
    }
}

/// A page of a pass.
#[derive(Debug)]
pub(crate) struct PassPage {
    pub(crate) batch: RecordBatch,
    /// What a chain of star joins leaves of it, once somebody asked for that.
    routed: OnceLock<RoutedRows>,
}

impl PassPage {
    pub(crate) fn new(batch: RecordBatch) -> Arc<Self> {
        Arc::new(Self { batch, routed: OnceLock::new() })
    }
}

impl PartialEq for PassPage {
    fn eq(&self, other: &Self) -> bool {
        self.batch == other.batch
    }
}

/// A pass that runs.
#[derive(Debug)]
pub(crate) struct Pass {
    state: Mutex<PassState>,
    /// Whether the decoder woke somebody since it was polled.
    woken: AtomicBool,
    waker: OnceLock<Waker>,
}

#[derive(Debug)]
struct PassState {
    pages: PassPages<Arc<PassPage>>,
    decoder: Decoder,
    /// Those of its consumers that are star queries.
    queries: BTreeMap<ConsumerId, Arc<StarQuery>>,
    wakers: BTreeMap<ConsumerId, Waker>,
    /// How often others paused for consumers since these came last.
    pauses: BTreeMap<ConsumerId, usize>,
    memory: PageMemory,
    /// Consumers that fell behind, and that nobody asked for yet.
    away: Vec<ConsumerId>,
    /// Rows that consumers decoded for others since they were asked last.
    for_others: BTreeMap<ConsumerId, u64>,
}

/// Where the decoder is.
enum Decoder {
    /// Nobody has polled it.
    Planned(OpensDecoder),
    Running(SendableRecordBatchStream),
    /// Somebody polls it just now.
    Polled,
    /// It ended, or nobody needs it any more.
    Gone,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Planned(_) => "planned",
            Self::Running(_) => "running",
            Self::Polled => "polled",
            Self::Gone => "gone",
        })
    }
}

impl Pass {
    /// A pass whose first consumers are there.
    #[cfg(test)]
    pub(crate) fn new(pages: PassPages<Arc<PassPage>>, opens: OpensDecoder, memory: PageMemory) -> Arc<Self> {
        Self::with_queries(pages, opens, memory, BTreeMap::new())
    }

    /// A pass whose first consumers are there, some of which are star queries.
    pub(crate) fn with_queries(
        pages: PassPages<Arc<PassPage>>,
        opens: OpensDecoder,
        memory: PageMemory,
        queries: BTreeMap<ConsumerId, Arc<StarQuery>>,
    ) -> Arc<Self> {
        let decoder = Decoder::Planned(opens);
        let (wakers, pauses, away, for_others) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), BTreeMap::new());
        let state = PassState { pages, decoder, queries, wakers, pauses, memory, away, for_others };
        Arc::new(Self { state: Mutex::new(state), woken: AtomicBool::new(false), waker: OnceLock::new() })
    }

    /// As [`PassPages::enter`].
    pub(crate) fn enter(&self, wanted: &RowSet, is_worth: impl FnOnce(&Entry) -> bool) -> Option<(ConsumerId, RowSet)> {
        let mut state = self.lock();
        let entered = state.pages.enter(wanted, is_worth)?;
        state.pages.weigh(|page| bytes_of(&page.batch));
        Some(entered)
    }

    /// A consumer that entered is a star query.
    pub(crate) fn set_query(&self, id: ConsumerId, query: &Arc<StarQuery>) {
        let earlier = self.lock().queries.insert(id, Arc::clone(query));
        drop(earlier);
    }

    /// What a chain leaves of a page to a consumer that is a star query; none if it takes all rows that it wants. The page has these columns.
    pub(crate) fn routed<'p>(
        &self,
        page: &'p PassPage,
        stretch: &Range<u32>,
        columns: &ColumnCosts,
        id: ConsumerId,
        terms: Terms,
    ) -> Option<&'p UInt32Array> {
        let found = page.routed.get_or_init(|| {
            let wanted = self.wanted(stretch);
            let column = |place: usize| {
                let at = columns.keys().position(|column| *column == place)?;
                page.batch.columns().get(at).cloned()
            };
            let rows = u32::try_from(page.batch.num_rows()).unwrap_or(u32::MAX);
            routed(&StarPage { rows, column: &column }, &wanted, terms)
        });
        found.of(id)
    }

    /// The rows of a page that star queries want.
    fn wanted(&self, stretch: &Range<u32>) -> Vec<StarWanted> {
        let state = self.lock();
        let of = |(id, query): (&ConsumerId, &Arc<StarQuery>)| {
            let rows = match state.pages.rows_in(stretch, *id)? {
                TakenRows::All => None,
                TakenRows::Some(rows) => Some(rows),
            };
            Some(StarWanted { taker: *id, query: Arc::clone(query), rows })
        };
        state.queries.iter().filter_map(of).collect()
    }

    /// A consumer goes. If no other one needs more, the decoder goes as well.
    pub(crate) fn leave(&self, id: ConsumerId) {
        let mut state = self.lock();
        let waker = state.wakers.remove(&id);
        let query = state.queries.remove(&id);
        state.pauses.remove(&id);
        state.pages.leave(id);
        state.charge();
        let stopped = state.stop_if_idle();
        // The one that goes may be the one that the decoder woke.
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        drop((waker, query, stopped));
    }

    /// Keeps no page any more but the newest: those who are behind miss them, or read the rest alone.
    pub(crate) fn give_up(&self) {
        let mut state = self.lock();
        let away = state.pages.shed(|_| false);
        state.away.extend(away);
        state.charge();
        let stopped = state.stop_if_idle();
        drop(state);
        drop(stopped);
    }

    /// Whether no page is to be decoded any more.
    pub(crate) fn is_over(&self) -> bool {
        !self.lock().pages.needs_more()
    }

    /// The consumers that fell behind since this was asked last.
    pub(crate) fn take_away(&self) -> Vec<ConsumerId> {
        mem::take(&mut self.lock().away)
    }

    /// How many rows a consumer decoded and does not take, since this was asked last; none if it decoded no page, or if nobody else was
    /// there.
    pub(crate) fn take_decoded_for_others(&self, id: ConsumerId) -> Option<u64> {
        self.lock().for_others.remove(&id)
    }

    /// The next rows of a consumer. It never lacks a page: it decodes it, or is woken with it.
    pub(crate) fn poll_take(self: &Arc<Self>, id: ConsumerId, cx: &mut Context<'_>) -> Poll<Taken<Arc<PassPage>>> {
        loop {
            let (earlier, decoder) = {
                let mut state = self.lock();
                state.pauses.remove(&id);
                let taken = state.pages.take(id);
                if !matches!(taken, Taken::Lacks) {
                    state.charge();
                    let dropped = (state.wakers.remove(&id), state.stop_if_idle());
                    drop(state);
                    drop(dropped);
                    return Poll::Ready(taken);
                }
                if !matches!(state.decoder, Decoder::Polled) && state.lets_others_come() {
                    drop(state);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                (state.wakers.insert(id, cx.waker().clone()), mem::replace(&mut state.decoder, Decoder::Polled))
            };
            // What a waker held goes where nothing is locked.
            drop(earlier);
            if matches!(decoder, Decoder::Polled) || self.decode(id, decoder).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Polls the decoder for a consumer, and puts it back with what came of it.
    fn decode(self: &Arc<Self>, id: ConsumerId, decoder: Decoder) -> Poll<()> {
        self.woken.store(false, Ordering::SeqCst);
        let mut ends_with_panic = EndsWithPanic { pass: self, is_armed: true };
        let waker = self.waker.get_or_init(|| Waker::from(Arc::new(DecoderWaker(Arc::downgrade(self)))));
        let (decoder, polled) = match decoder {
            Decoder::Planned(opens) => match opens() {
                Ok(stream) => poll_stream(stream, waker),
                Err(error) => (Decoder::Gone, Poll::Ready(Some(Err(error)))),
            },
            Decoder::Running(stream) => poll_stream(stream, waker),
            Decoder::Polled | Decoder::Gone => (Decoder::Gone, Poll::Ready(None)),
        };
        ends_with_panic.is_armed = false;
        let is_pending = polled.is_pending();
        let mut state = self.lock();
        state.decoder = decoder;
        match polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(batch))) => state.push(batch, id),
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!(%error, "a shared scan failed, and its queries read alone");
                state.pages.fail();
            }
            Poll::Ready(None) => state.pages.finish(),
        }
        let stopped = state.stop_if_idle();
        // Whoever polled goes on by itself. Whoever came while the decoder was polled was not woken by it.
        let polls_on = if is_pending { None } else { state.wakers.remove(&id) };
        let is_news = !is_pending || self.woken.load(Ordering::SeqCst);
        let wakers = if is_news { state.take_wakers() } else { Vec::new() };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        drop((polls_on, stopped));
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    }

    fn lock(&self) -> MutexGuard<'_, PassState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PassState {
    fn push(&mut self, batch: RecordBatch, decoded_by: ConsumerId) {
        let is_lone = self.pages.is_lone();
        let bytes = if is_lone { 0 } else { bytes_of(&batch) };
        let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
        let from = self.pages.decoded_to();
        self.pages.push(PassPage::new(batch), bytes, rows);
        if !is_lone {
            let for_others = u64::from(self.pages.decoded_for_others(decoded_by, from));
            *self.for_others.entry(decoded_by).or_default() += for_others;
        }
        let memory = &mut self.memory;
        self.away.extend(self.pages.shed(|bytes| memory.resize(bytes)));
    }

    /// Counts what is kept, which was not more before.
    fn charge(&mut self) {
        self.memory.resize(self.pages.behind_bytes());
    }

    /// Gives the decoder back if nobody needs it, to be dropped where nothing is locked. Nobody enters any more.
    fn stop_if_idle(&mut self) -> Option<Decoder> {
        if self.pages.needs_more() {
            return None;
        }
        self.pages.fail();
        Some(mem::replace(&mut self.decoder, Decoder::Gone))
    }

    /// Whether a consumer lets others come before it decodes a page. It is woken itself then.
    fn lets_others_come(&mut self) -> bool {
        if !self.pages.is_halfway() {
            return false;
        }
        let most = PAUSES * self.pages.consumers();
        let mut pauses = false;
        for late in self.pages.late() {
            let paused = self.pauses.entry(late).or_default();
            if *paused < most {
                *paused += 1;
                pauses = true;
            }
        }
        pauses
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        mem::take(&mut self.wakers).into_values().collect()
    }
}

/// Ends a pass whose decoder panics while somebody polls it.
struct EndsWithPanic<'a> {
    pass: &'a Pass,
    is_armed: bool,
}

impl Drop for EndsWithPanic<'_> {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let mut state = self.pass.lock();
        state.pages.fail();
        state.decoder = Decoder::Gone;
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Wakes all consumers of a pass, as the one that polled last may be gone.
struct DecoderWaker(Weak<Pass>);

impl Wake for DecoderWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(pass) = self.0.upgrade() else { return };
        pass.woken.store(true, Ordering::SeqCst);
        let wakers = pass.lock().take_wakers();
        wakers.into_iter().for_each(Waker::wake);
    }
}

type Polled = Poll<Option<Result<RecordBatch>>>;

fn poll_stream(mut stream: SendableRecordBatchStream, waker: &Waker) -> (Decoder, Polled) {
    let polled = stream.poll_next_unpin(&mut Context::from_waker(waker));
    (Decoder::Running(stream), polled)
}

#[cfg(test)]
#[path = "pass_tests.rs"]
mod tests;
