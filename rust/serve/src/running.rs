//! Statements that run: who began them, how far they are, and how they are stopped.
//!
//! Rows are computed as the client takes them. A client that goes away drops its [`QueryStream`], and with it the query and its turn.
//! A client that stays and takes nothing is stalled: its rows are ready, and nobody asks for them. The connection does not ask while its
//! window is full, also where it waited for rows before. Its query lends its turn to others ([`Running::lend_stalled`]), and is stopped in the
//! end ([`Running::stop_stalled`]).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::error::FlightError;
use datafusion::execution::SendableRecordBatchStream;
use futures::task::AtomicWaker;
use futures::{Stream, StreamExt};
use lakemark_table::Stopwatch;
use tonic::Status;

use crate::error::{arrow_status, engine_error};
use crate::handles::{Handle, Owner};
use crate::lending::Lendable;
use crate::wire;

/// What a client hears whose query the server does not bring to its end.
pub(crate) const CUT_OFF: &str =
    "the server ends, and the query did not come to its end in time; run it again elsewhere or later";

/// Letters of a statement that are shown.
const SHOWN_LETTERS: usize = 500;

/// The statements that run in a server.
#[derive(Default)]
pub(crate) struct Running {
    next: AtomicU64,
    statements: Mutex<BTreeMap<u64, Arc<RunningStatement>>>,
    /// Statements that began so far.
    begun: AtomicU64,
}

/// A statement that runs.
pub(crate) struct RunningStatement {
    text: String,
    client: Arc<str>,
    handle: Option<Handle>,
    since: Stopwatch,
    rows: AtomicU64,
    source: Mutex<Source>,
    readiness: Arc<Readiness>,
}

/// Whether rows can be asked for, and who asks for them.
#[derive(Default)]
struct Readiness {
    /// Since when there is something to be taken, and nobody comes for it; none while somebody waits.
    since: Mutex<Option<Stopwatch>>,
    reader: AtomicWaker,
}

impl Readiness {
    fn since(&self) -> MutexGuard<'_, Option<Stopwatch>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Readiness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.since().get_or_insert_with(Stopwatch::start);
        self.reader.wake();
    }
}

/// What is known of a statement that runs.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) client: Arc<str>,
    pub(crate) seconds: f64,
    pub(crate) rows: u64,
}

/// Where the rows come from.
enum Source {
    /// The statement gives none.
    None,
    /// They are computed.
    Open {
        stream: SendableRecordBatchStream,
        /// None where nothing is left to be computed.
        turn: Option<Lendable>,
    },
    /// All of them were sent.
    Ended,
    /// Somebody stopped the statement.
    Stopped(Status),
}

/// A statement in the list as long as it lives.
pub(crate) struct Entry {
    running: Arc<Running>,
    number: u64,
    statement: Arc<RunningStatement>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.statements().remove(&self.number);
    }
}

impl Running {
    fn statements(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<RunningStatement>>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many statements began so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Puts a statement into the list that gives no rows while it runs.
    pub(crate) fn begin(self: &Arc<Self>, text: &str, client: &Arc<str>) -> Entry {
        self.enter(text, client, None, Source::None)
    }

    /// The rows of a query, as the columns that were announced.
    pub(crate) fn query(self: &Arc<Self>, text: &str, client: &Arc<str>, handle: Handle, rows: Rows) -> QueryStream {
        let Rows { stream, schema, turn } = rows;
        let entry = self.enter(text, client, Some(handle), Source::Open { stream, turn });
        let waker = Waker::from(Arc::clone(&entry.statement.readiness));
        QueryStream { entry, schema, waker }
    }

    fn enter(self: &Arc<Self>, text: &str, client: &Arc<str>, handle: Option<Handle>, source: Source) -> Entry {
        let statement = Arc::new(RunningStatement {
            text: shown(text),
            client: Arc::clone(client),
            handle,
            since: Stopwatch::start(),
            rows: AtomicU64::new(0),
            source: Mutex::new(source),
            readiness: Arc::default(),
        });
        self.begun.fetch_add(1, Ordering::Relaxed);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.statements().insert(number, Arc::clone(&statement));
        Entry { running: Arc::clone(self), number, statement }
    }

    /// The statements, the oldest first.
    pub(crate) fn list(&self) -> Vec<Shown> {
        let shown = |statement: &Arc<RunningStatement>| Shown {
            text: statement.text.clone(),
            client: Arc::clone(&statement.client),
            seconds: statement.since.seconds(),
            rows: statement.rows.load(Ordering::Relaxed),
        };
        self.statements().values().filter(|statement| !statement.is_over()).map(shown).collect()
    }

    fn copied(&self) -> Vec<Arc<RunningStatement>> {
        self.statements().values().map(Arc::clone).collect()
    }

    /// Lends the turns of queries whose clients have taken no rows for so long.
    pub(crate) fn lend_stalled(&self, limit: Duration) {
        for statement in self.copied() {
            statement.lend(limit);
        }
    }

    /// Stops queries whose clients have taken no rows for so long.
    pub(crate) fn stop_stalled(&self, limit: Duration) {
        for statement in self.copied() {
            if statement.is_stalled(limit) {
                statement.stop(Status::aborted(format!(
                    "the query was stopped: nobody took its rows for {} s; run it again, and read faster",
                    limit.as_secs()
                )));
            }
        }
    }

    /// Stops the query of a handle, if it is this owner's; says whether there is one. Without owners, whoever has the handle may stop it:
    /// a driver may do so over another connection.
    pub(crate) fn stop(&self, handle: &Handle, owner: &Owner, why: &Status) -> bool {
        let is_meant = |statement: &Arc<RunningStatement>| {
            statement.handle.as_ref() == Some(handle) && owner.as_ref().is_none_or(|owner| *owner == statement.client)
        };
        let found = self.copied().into_iter().find(is_meant);
        if let Some(statement) = &found {
            statement.stop(why.clone());
        }
        found.is_some()
    }

    /// Stops all queries.
    pub(crate) fn stop_all(&self, why: &Status) {
        for statement in self.copied() {
            statement.stop(why.clone());
        }
    }
}

impl RunningStatement {
    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is left to be done, though the client may not know it yet.
    fn is_over(&self) -> bool {
        // Rows of a source that is locked are being computed.
        self.source.try_lock().is_ok_and(|source| matches!(*source, Source::Ended | Source::Stopped(_)))
    }

    fn is_stalled(&self, limit: Duration) -> bool {
        // Rows of a source that is locked are being computed.
        let is_open = self.source.try_lock().is_ok_and(|source| matches!(*source, Source::Open { .. }));
        is_open && self.is_left(limit)
    }

    /// Whether there was something to be taken for so long.
    fn is_left(&self, limit: Duration) -> bool {
        let since = *self.readiness.since();
        since.is_some_and(|since| since.seconds() >= limit.as_secs_f64())
    }

    /// Lends the turn if nobody took the rows for so long. Whoever comes for them meanwhile waits for this.
    fn lend(&self, limit: Duration) {
        let lent = match self.source.try_lock().as_deref_mut() {
            Ok(Source::Open { turn: Some(turn), .. }) if self.is_left(limit) => Some(turn.lend()),
            _ => None,
        };
        // It goes to the next one from here on, and that one is woken.
        drop(lent);
    }

    fn stop(&self, why: Status) {
        let stopped = {
            let mut source = self.source();
            match *source {
                Source::Open { .. } => std::mem::replace(&mut *source, Source::Stopped(why)),
                _ => return,
            }
        };
        drop(stopped);
        self.readiness.reader.wake();
    }
}

/// The rows of a query before they are asked for.
pub(crate) struct Rows {
    pub(crate) stream: SendableRecordBatchStream,
    /// The columns that were announced.
    pub(crate) schema: SchemaRef,
    /// None where nothing is left to be computed.
    pub(crate) turn: Option<Lendable>,
}

/// The rows of a query on their way to a client.
pub(crate) struct QueryStream {
    entry: Entry,
    schema: SchemaRef,
    /// Wakes the client's task, and knows when it did.
    waker: Waker,
}

impl Stream for QueryStream {
    type Item = Result<RecordBatch, FlightError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let statement = &self.entry.statement;
        statement.readiness.reader.register(context.waker());
        let mut source = statement.source();
        let next = match &mut *source {
            Source::Open { stream, turn } => {
                *statement.readiness.since() = None;
                let mut context = Context::from_waker(&self.waker);
                let turn = turn.as_mut().map_or(Poll::Ready(Ok(())), |turn| turn.poll_turn(&mut context));
                let next = match std::task::ready!(turn) {
                    Ok(()) => {
                        std::task::ready!(stream.poll_next_unpin(&mut context)).map(|rows| rows.map_err(engine_error))
                    }
                    Err(_) => Some(Err(FlightError::Tonic(Box::new(Status::unavailable(CUT_OFF))))),
                };
                *statement.readiness.since() = Some(Stopwatch::start());
                next
            }
            Source::None | Source::Ended => return Poll::Ready(None),
            Source::Stopped(why) => {
                let why = why.clone();
                *source = Source::Ended;
                return Poll::Ready(Some(Err(FlightError::Tonic(Box::new(why)))));
            }
        };
        let sent = match next {
            Some(Ok(batch)) => {
                statement.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                let conformed = wire::conform(batch, &self.schema);
                Some(conformed.map_err(|error| FlightError::Tonic(Box::new(arrow_status(error)))))
            }
            Some(Err(error)) => Some(Err(error)),
            None => None,
        };
        if !matches!(sent, Some(Ok(_))) {
            // The turn is for others from here on, however long the client takes for what it has.
            let ended = std::mem::replace(&mut *source, Source::Ended);
            drop(source);
            drop(ended);
        }
        Poll::Ready(sent)
    }
}

/// The beginning of a statement; of a beginning, itself.
pub(crate) fn shown(text: &str) -> String {
    let mut letters = text.trim().chars();
    let mut start: String = letters.by_ref().take(SHOWN_LETTERS).collect();
    if letters.next().is_some() {
        start.push('…');
    }
    start
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    use super::*;
    use crate::turns::Turns;

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1, 2, 3])) as _)]).unwrap()
    }

    async fn query(running: &Arc<Running>, turns: &Arc<Turns>, endless: bool) -> QueryStream {
        let client = Arc::from("ann");
        let schema = batch().schema();
        let rows = futures::stream::iter([Ok(batch()), Ok(batch())]);
        let stream: SendableRecordBatchStream = if endless {
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows.chain(futures::stream::pending())))
        } else {
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows))
        };
        let turn = Some(turn_of(turns, &client).await);
        running.query("SELECT n", &client, [7; 16], Rows { stream, schema, turn })
    }

    async fn turn_of(turns: &Arc<Turns>, client: &Arc<str>) -> Lendable {
        Lendable::new(turns, client, turns.take(client).await.unwrap())
    }

    #[tokio::test]
    async fn a_query_is_in_the_list_and_has_its_turn_until_its_rows_are_taken() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(1, 1, Duration::ZERO));
        let mut stream = query(&running, &turns, false).await;
        assert_eq!(stream.next().await.unwrap().unwrap().num_rows(), 3);
        let shown = running.list().remove(0);
        assert_eq!((shown.text.as_str(), &*shown.client, shown.rows), ("SELECT n", "ann", 3));
        assert_eq!(turns.load().running, 1);
        assert!(stream.next().await.unwrap().is_ok() && stream.next().await.is_none());
        assert_eq!(turns.load().running, 0);
        drop(stream);
        assert!(running.list().is_empty());
    }

    #[tokio::test]
    async fn a_dropped_stream_ends_its_query() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(1, 1, Duration::ZERO));
        let mut stream = query(&running, &turns, true).await;
        assert!(stream.next().await.unwrap().is_ok());
        drop(stream);
        assert_eq!((turns.load().running, running.list().len(), running.begun()), (0, 0, 1));
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_loses_its_query_and_one_that_waits_does_not() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(2, 1, Duration::ZERO));
        let mut idle = query(&running, &turns, true).await;
        assert!(idle.next().await.unwrap().is_ok());
        let mut waits = query(&running, &turns, true).await;
        for _ in 0..2 {
            assert!(waits.next().await.unwrap().is_ok());
        }
        assert!(futures::poll!(waits.next()).is_pending());
        running.stop_stalled(Duration::ZERO);
        assert_eq!(turns.load().running, 1);
        let error = idle.next().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("nobody took its rows"), "{error}");
        assert!(idle.next().await.is_none());
        assert!(futures::poll!(waits.next()).is_pending());
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_lends_its_turn_and_has_one_again_when_it_comes() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(1, 1, Duration::ZERO));
        let load = || (turns.load().running, turns.load().waiting);
        let mut idle = query(&running, &turns, true).await;
        assert!(idle.next().await.unwrap().is_ok());
        running.lend_stalled(Duration::from_secs(600));
        assert_eq!(load(), (1, 0));
        running.lend_stalled(Duration::ZERO);
        assert_eq!(load(), (0, 0));
        assert!(idle.next().await.unwrap().is_ok());
        assert_eq!(load(), (1, 0));
        running.lend_stalled(Duration::ZERO);
        let other = turns.take(&"bob".into()).await.unwrap();
        assert!(futures::poll!(idle.next()).is_pending());
        // Who waits for a turn is not the one who lets others wait.
        running.lend_stalled(Duration::ZERO);
        running.stop_stalled(Duration::ZERO);
        assert_eq!(load(), (1, 1));
        drop(other);
        assert_eq!(load(), (1, 0));
        // Its turn is there, and nobody comes for it.
        running.lend_stalled(Duration::ZERO);
        assert_eq!(load(), (0, 0));
        assert!(futures::poll!(idle.next()).is_pending());
        assert_eq!(load(), (1, 0));
        drop(idle);
        assert_eq!(load(), (0, 0));
    }

    #[tokio::test]
    async fn a_client_that_comes_for_rows_after_the_end_of_the_server_hears_of_it() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(1, 1, Duration::ZERO));
        let mut idle = query(&running, &turns, true).await;
        assert!(idle.next().await.unwrap().is_ok());
        running.lend_stalled(Duration::ZERO);
        turns.close();
        let error = idle.next().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("the server ends"), "{error}");
        assert!(idle.next().await.is_none() && running.list().is_empty());
    }

    #[tokio::test]
    async fn a_client_that_waited_for_rows_and_does_not_come_for_them_loses_its_query() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(1, 1, Duration::ZERO));
        let (mut sender, receiver) = futures::channel::mpsc::channel(1);
        let schema = batch().schema();
        let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), receiver));
        let client = Arc::from("ann");
        let turn = Some(turn_of(&turns, &client).await);
        let mut query = running.query("SELECT n", &client, [7; 16], Rows { stream, schema, turn });
        assert!(futures::poll!(query.next()).is_pending());
        running.stop_stalled(Duration::ZERO);
        assert_eq!(turns.load().running, 1);
        sender.try_send(Ok(batch())).unwrap();
        running.stop_stalled(Duration::from_secs(600));
        assert_eq!(turns.load().running, 1);
        running.stop_stalled(Duration::ZERO);
        assert_eq!(turns.load().running, 0);
        assert!(query.next().await.unwrap().unwrap_err().to_string().contains("nobody took its rows"));
    }

    #[tokio::test]
    async fn a_query_that_waits_for_rows_wakes_up_when_it_is_stopped() {
        let (running, turns) = (Arc::<Running>::default(), Turns::new(1, 1, Duration::ZERO));
        let mut stream = query(&running, &turns, true).await;
        for (handle, owner) in [([8; 16], "ann"), ([7; 16], "bob")] {
            assert!(!running.stop(&handle, &Some(owner.into()), &Status::cancelled("stopped")));
        }
        let reader = tokio::spawn(async move {
            while let Some(next) = stream.next().await {
                if let Err(error) = next {
                    return error.to_string();
                }
            }
            String::new()
        });
        while running.list()[0].rows < 6 {
            tokio::task::yield_now().await;
        }
        assert!(running.stop(&[7; 16], &Some("ann".into()), &Status::cancelled("stopped by its client")));
        assert!(reader.await.unwrap().contains("stopped by its client"));
        assert_eq!(turns.load().running, 0);
    }

    #[test]
    fn long_statements_are_shown_by_their_beginning() {
        assert_eq!(shown("  SELECT 1 "), "SELECT 1");
        let long = shown(&"ü".repeat(600));
        assert!(long.chars().count() == 501 && long.ends_with('…'));
        assert_eq!(shown(&long), long);
    }
}
