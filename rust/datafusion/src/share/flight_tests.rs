//! Flights whose plans give what a test hands them, taken by consumers that a test polls.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;

use arrow::array::{Array, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, poll};

use super::state::{KEEP_BYTES, MEMORY_PARTS};
use super::*;
use crate::share::operator::{MakesPlan, SharedExec, SharedParts};
use crate::share::registry::{PlanSharing, SharingCounts};

type Fed = Result<RecordBatch>;

/// A plan whose runs give what a test feeds them.
#[derive(Debug)]
struct FedPlan {
    schema: SchemaRef,
    runs: AtomicUsize,
    feeds: Mutex<VecDeque<UnboundedReceiver<Fed>>>,
}

impl FedPlan {
    fn of(feeds: impl IntoIterator<Item = UnboundedReceiver<Fed>>) -> Arc<Self> {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let feeds = Mutex::new(feeds.into_iter().collect());
        Arc::new(Self { schema, runs: AtomicUsize::new(0), feeds })
    }

    /// The operator that runs it.
    fn leaf(self: &Arc<Self>) -> Arc<dyn ExecutionPlan> {
        let partitions = vec![Arc::clone(self) as Arc<dyn PartitionStream>];
        Arc::new(StreamingTableExec::try_new(Arc::clone(&self.schema), partitions, None, [], false, None).unwrap())
    }
}

impl PartitionStream for FedPlan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        self.runs.fetch_add(1, Ordering::SeqCst);
        assert!(Handle::try_current().is_ok(), "plans run on a runtime");
        let feed = self.feeds.lock().unwrap().pop_front().expect("a run that the test did not expect");
        let has_rows = |fed: &Fed| fed.as_ref().map_or(true, |batch| batch.num_rows() > 0);
        let fed = feed.inspect(move |fed| assert!(has_rows(fed), "a batch without rows is a panic"));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), fed))
    }
}

/// Queries with equal plans.
struct Queries {
    sharing: Arc<PlanSharing>,
    runtime: Arc<RuntimeEnv>,
    key: Arc<PlanKey>,
    streams: bool,
}

/// A query: its rows, its plan, and what feeds a run of it.
struct Query {
    rows: SendableRecordBatchStream,
    plan: Arc<FedPlan>,
    feed: UnboundedSender<Fed>,
    /// Feeds the second run of its plan.
    again: UnboundedSender<Fed>,
    shared: Arc<SharedExec>,
}

impl Queries {
    fn new(streams: bool) -> Self {
        Self::within(streams, RuntimeEnvBuilder::new())
    }

    fn within(streams: bool, runtime: RuntimeEnvBuilder) -> Self {
        let runtime = runtime.build_arc().unwrap();
        let empty = EmptyRelation { produce_one_row: false, schema: Arc::new(DFSchema::empty()) };
        let key = Arc::new(PlanKey::without_tables(LogicalPlan::EmptyRelation(empty), &runtime));
        Self { sharing: Arc::new(PlanSharing::new()), runtime, key, streams }
    }

    /// One more query.
    fn query(&self) -> Query {
        let ((feed, fed), (again, fed_again)) = (unbounded(), unbounded());
        let plan = FedPlan::of([fed, fed_again]);
        let (key, sharing) = (Arc::clone(&self.key), Arc::clone(&self.sharing));
        let anew = Arc::clone(&plan);
        let makes: MakesPlan = Arc::new(move || std::future::ready(Ok(anew.leaf())).boxed());
        let parts = SharedParts { key, sharing, attaches: true, streams: self.streams, makes };
        let shared = Arc::new(SharedExec::planned(parts, plan.leaf()));
        let rows = shared.execute(0, self.context()).unwrap();
        Query { rows, plan, feed, again, shared }
    }

    fn context(&self) -> Arc<TaskContext> {
        Arc::new(TaskContext::default().with_runtime(Arc::clone(&self.runtime)))
    }

    fn counts(&self) -> SharingCounts {
        self.sharing.counts()
    }
}

impl Query {
    fn feed(&self, batches: impl IntoIterator<Item = RecordBatch>) {
        batches.into_iter().for_each(|batch| self.feed.unbounded_send(Ok(batch)).unwrap());
    }

    fn runs(&self) -> usize {
        self.plan.runs.load(Ordering::SeqCst)
    }

    /// The first value of the next batch.
    async fn next(&mut self) -> Option<i64> {
        self.rows.next().await.map(|batch| first(&batch.unwrap()))
    }

    /// The first values of all batches that are left.
    async fn rest(mut self) -> Vec<i64> {
        let mut found = Vec::new();
        while let Some(value) = self.next().await {
            found.push(value);
        }
        found
    }

    fn rows_given(&self) -> Option<usize> {
        self.shared.metrics().unwrap().output_rows()
    }
}

fn first(batch: &RecordBatch) -> i64 {
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn batch(value: i64, rows: usize) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(
        "n",
        Arc::new(Int64Array::from(vec![value; rows])) as Arc<dyn Array>,
        true,
    )])
    .unwrap()
}

fn small(values: Range<i64>) -> impl Iterator<Item = RecordBatch> {
    values.map(|value| batch(value, 10))
}

/// Batches of half of what is kept whole.
static LARGE: LazyLock<Vec<RecordBatch>> =
    LazyLock::new(|| (0..60).map(|value| batch(value, KEEP_BYTES / 16)).collect());

fn large(values: Range<i64>) -> impl Iterator<Item = RecordBatch> {
    values.map(|value| LARGE[value as usize].clone())
}

fn all(values: Range<i64>) -> Vec<i64> {
    values.collect()
}

#[tokio::test]
async fn one_run_serves_all() {
    let queries = Queries::new(true);
    let (host, guest, other) = (queries.query(), queries.query(), queries.query());
    host.feed(small(0..5));
    host.feed.close_channel();
    let metrics = |query: &Query| Arc::clone(&query.shared);
    let shared = [metrics(&host), metrics(&guest)];
    assert_eq!((guest.runs(), other.runs()), (0, 0));
    let (one, two, three) = tokio::join!(host.rest(), guest.rest(), other.rest());
    assert_eq!((one, two, three), (all(0..5), all(0..5), all(0..5)));
    assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 2, detached: 0 });
    let roles = shared.map(|plan| plan.metrics().unwrap().to_string());
    assert!(roles[0].contains("shared_role=host") && roles[1].contains("shared_role=guest"), "{roles:?}");
    assert!(roles.iter().all(|shown| shown.contains("batches_shared=5")), "{roles:?}");
}

#[tokio::test]
async fn nobody_waits_for_a_consumer_that_is_not_polled() {
    let queries = Queries::new(true);
    let (host, guest, idle) = (queries.query(), queries.query(), queries.query());
    host.feed(large(0..40));
    host.feed.close_channel();
    let run = Arc::clone(&host.plan);
    assert_eq!(guest.rest().await, all(0..40));
    assert_eq!(run.runs.load(Ordering::SeqCst), 1);
    // The host's rows are those of its plan, which ran to its end.
    assert_eq!(host.rest().await, all(0..40));
    // Nor does whoever comes late compute again what was complete.
    assert_eq!(idle.rest().await, all(0..40));
    assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 2, detached: 0 });
    assert_eq!(queries.runtime.memory_pool.reserved(), 0);
}

#[tokio::test]
async fn whoever_has_rows_at_once_lets_the_others_come() {
    let queries = Queries::new(true);
    let (mut host, mut guest) = (queries.query(), queries.query());
    assert!(poll!(guest.rows.next()).is_pending());
    host.feed(large(0..60));
    host.feed.close_channel();
    let mut given = Vec::new();
    while let Some(batch) = host.rows.next().now_or_never() {
        given.push(first(&batch.unwrap().unwrap()));
    }
    // More than half a window is behind them, and the guest could not come.
    assert_eq!(given, all(0..9));
    // It takes all that is here, with the batch that the host has yet to take.
    for value in 0..10 {
        assert_eq!(guest.next().await, Some(value));
    }
    let (host, guest) = tokio::join!(host.rest(), guest.rest());
    assert_eq!((host, guest), (all(9..60), all(10..60)));
    assert_eq!(queries.runtime.memory_pool.reserved(), 0);
}

#[tokio::test]
async fn the_work_of_a_cancelled_query_passes_on() {
    let queries = Queries::new(true);
    let (mut host, guest) = (queries.query(), queries.query());
    host.feed(small(0..2));
    assert_eq!(host.next().await, Some(0));
    let (feed, run) = (host.feed.clone(), Arc::clone(&host.plan));
    drop(host);
    feed.unbounded_send(Ok(batch(2, 10))).unwrap();
    feed.close_channel();
    assert_eq!(guest.rest().await, all(0..3));
    assert_eq!(run.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_guest_that_waits_is_woken_when_the_one_that_polled_is_gone() {
    let queries = Queries::new(true);
    let (mut host, guest) = (queries.query(), queries.query());
    let feed = host.feed.clone();
    let waiting = tokio::spawn(guest.rest());
    tokio::task::yield_now().await;
    // The host polls last, so that the stream would wake it alone if it knew of nobody else.
    assert!(poll!(host.rows.next()).is_pending());
    drop(host);
    feed.unbounded_send(Ok(batch(0, 10))).unwrap();
    feed.close_channel();
    assert_eq!(waiting.await.unwrap(), [0]);
}

#[tokio::test]
async fn a_plan_runs_on_its_runtime_whoever_polls_it() {
    let queries = Queries::new(true);
    let (host, guest) = (queries.query(), queries.query());
    host.feed(small(0..3));
    host.feed.close_channel();
    let elsewhere = std::thread::spawn(move || futures::executor::block_on(guest.rest()));
    assert_eq!(elsewhere.join().unwrap(), all(0..3));
    assert_eq!(host.rest().await, all(0..3));
}

#[tokio::test]
async fn a_query_that_nobody_is_left_of_ends() {
    let queries = Queries::new(true);
    let (mut host, guest) = (queries.query(), queries.query());
    host.feed(small(0..1));
    assert_eq!(host.next().await, Some(0));
    let feed = host.feed.clone();
    drop((host, guest));
    assert!(feed.is_closed());
    // The next one finds nothing of it.
    let next = queries.query();
    next.feed(small(7..8));
    next.feed.close_channel();
    assert_eq!(next.rest().await, [7]);
    assert_eq!(queries.counts().hosts, 2);
}

#[tokio::test]
async fn who_comes_late_takes_all_of_a_small_output() {
    let queries = Queries::new(true);
    let mut host = queries.query();
    host.feed(small(0..4));
    assert_eq!((host.next().await, host.next().await), (Some(0), Some(1)));
    let late = queries.query();
    host.feed.close_channel();
    assert_eq!(late.rest().await, all(0..4));
    assert_eq!(host.rest().await, [2, 3]);
}

#[tokio::test]
async fn who_comes_after_a_page_was_dropped_runs_its_own_plan() {
    let queries = Queries::new(true);
    let mut host = queries.query();
    host.feed(large(0..3));
    for value in 0..3 {
        assert_eq!(host.next().await, Some(value));
    }
    let late = queries.query();
    late.feed(small(5..6));
    late.feed.close_channel();
    assert_eq!(late.rest().await, [5]);
    assert_eq!(queries.counts(), SharingCounts { hosts: 2, guests: 0, detached: 0 });
}

#[tokio::test]
async fn a_query_that_comes_after_the_end_runs_its_own_plan() {
    let queries = Queries::new(true);
    for value in 0..2 {
        let query = queries.query();
        query.feed(small(value..value + 1));
        query.feed.close_channel();
        assert_eq!(query.rest().await, [value]);
    }
    assert_eq!(queries.counts(), SharingCounts { hosts: 2, guests: 0, detached: 0 });
}

#[tokio::test]
async fn a_guest_that_fell_behind_keeps_its_rows() {
    // With as much memory as it takes, and with none beside a window.
    for memory in [usize::MAX, 2 << 20] {
        let pool = Arc::new(GreedyMemoryPool::new(memory));
        let queries = Queries::within(true, RuntimeEnvBuilder::new().with_memory_pool(pool));
        let (host, mut guest) = (queries.query(), queries.query());
        host.feed(large(0..3));
        assert_eq!(guest.next().await, Some(0), "{memory}");
        host.feed(large(3..60));
        host.feed.close_channel();
        assert_eq!(host.rest().await, all(0..60), "{memory}");
        assert_eq!(guest.rest().await, all(1..60), "{memory}");
        assert_eq!(queries.runtime.memory_pool.reserved(), 0, "{memory}");
    }
}

#[tokio::test]
async fn guests_of_a_plan_that_gives_rows_as_it_reads_take_small_outputs_alone() {
    let queries = Queries::new(false);
    let (host, mut guest) = (queries.query(), queries.query());
    host.feed(small(0..4));
    // Its output may become a large one.
    assert!(guest.rows.next().now_or_never().is_none());
    host.feed.close_channel();
    assert_eq!(guest.rest().await, all(0..4));
    assert_eq!(host.rest().await, all(0..4));

    let (host, guest, run) = {
        let (host, guest) = (queries.query(), queries.query());
        let run = Arc::clone(&guest.plan);
        (host, guest, run)
    };
    host.feed(large(0..20));
    host.feed.close_channel();
    guest.feed(large(0..20));
    guest.feed.close_channel();
    assert_eq!(guest.rest().await, all(0..20));
    assert_eq!(run.runs.load(Ordering::SeqCst), 1);
    // Nor does anybody wait for the host, which has taken nothing.
    let late = queries.query();
    late.feed(small(7..8));
    late.feed.close_channel();
    assert_eq!(late.rest().await, [7]);
    assert_eq!(host.rest().await, all(0..20));
    assert_eq!(queries.counts(), SharingCounts { hosts: 3, guests: 2, detached: 1 });
}

fn failure() -> DataFusionError {
    DataFusionError::Execution("the disk is gone".to_owned())
}

#[tokio::test]
async fn sharing_adds_no_error() {
    let queries = Queries::new(true);
    let (mut host, guest, mut begun) = (queries.query(), queries.query(), queries.query());
    host.feed(large(0..3));
    assert_eq!((host.next().await, begun.next().await), (Some(0), Some(0)));
    host.feed.unbounded_send(Err(failure())).unwrap();
    // A guest without a row runs its own plan, though there are rows that it could take.
    guest.feed(small(0..3));
    guest.feed.close_channel();
    let role = Arc::clone(&guest.shared);
    assert_eq!((begun.next().await, begun.next().await), (Some(1), Some(2)));
    let error = begun.rows.next().await.unwrap().unwrap_err();
    assert!(matches!(error, DataFusionError::Shared(_)) && error.to_string().contains("the disk is gone"), "{error}");
    assert_eq!(guest.rest().await, all(0..3));
    assert!(role.metrics().unwrap().to_string().contains("shared_role=detached"));
    // The host gets what its plan gave, as it would have alone.
    assert_eq!((host.next().await, host.next().await), (Some(1), Some(2)));
    let error = host.rows.next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert!(host.rows.next().await.is_none() && begun.rows.next().await.is_none());
}

#[tokio::test]
async fn guests_of_a_small_output_give_no_row_before_the_plan_ends_well() {
    let queries = Queries::new(true);
    let (mut host, mut guest) = (queries.query(), queries.query());
    host.feed(small(0..3));
    assert_eq!(host.next().await, Some(0));
    assert!(guest.rows.next().now_or_never().is_none());
    host.feed.unbounded_send(Err(failure())).unwrap();
    guest.feed(small(0..3));
    guest.feed.close_channel();
    assert_eq!(guest.rest().await, all(0..3));
    assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 1, detached: 1 });
}

#[tokio::test]
async fn an_error_that_nobody_shares_comes_as_it_is() {
    let queries = Queries::new(true);
    let mut host = queries.query();
    host.feed.unbounded_send(Err(failure())).unwrap();
    let error = host.rows.next().await.unwrap().unwrap_err();
    assert!(matches!(error, DataFusionError::Execution(_)), "{error:?}");
    assert!(host.rows.next().await.is_none());
}

#[tokio::test]
async fn a_private_run_is_not_tried_again() {
    let queries = Queries::new(true);
    let (host, mut guest) = (queries.query(), queries.query());
    host.feed.unbounded_send(Err(failure())).unwrap();
    guest.feed.unbounded_send(Err(failure())).unwrap();
    guest.feed.close_channel();
    guest.rows.next().await.unwrap().unwrap_err();
    assert_eq!((host.runs(), guest.runs()), (1, 1));
    assert!(guest.rows.next().await.is_none());
}

#[tokio::test]
async fn nothing_is_kept_of_a_query_alone_in_a_small_memory() {
    let pool = Arc::new(GreedyMemoryPool::new(1 << 20));
    let queries = Queries::within(true, RuntimeEnvBuilder::new().with_memory_pool(pool));
    let mut host = queries.query();
    host.feed(large(0..8));
    host.feed.close_channel();
    for value in 0..8 {
        assert_eq!(host.next().await, Some(value));
        assert!(queries.runtime.memory_pool.reserved() <= (1 << 20) / MEMORY_PARTS);
    }
    assert_eq!(host.next().await, None);
    assert_eq!(host.rows_given(), Some(8 * KEEP_BYTES / 16));
}

#[path = "failing_interleaving_tests.rs"]
mod failing_interleaving;
#[path = "falling_behind_tests.rs"]
mod falling_behind;
#[path = "interleaving_tests.rs"]
mod interleaving;
#[path = "panic_tests.rs"]
mod panics;
