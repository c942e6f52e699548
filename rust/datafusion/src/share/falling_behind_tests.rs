//! Consumers that fall behind, and what they have yet to take on disk.

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;

use bytes::Bytes;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;

use super::*;

/// What is about to be done with a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Create,
    Write,
}

/// What a test does before each step. The step fails if that does.
type BeforeStep = Arc<dyn Fn(Step) -> io::Result<()> + Send + Sync>;

/// A disk that is none.
pub(super) struct TestDisk {
    before: BeforeStep,
}

impl TestDisk {
    /// A runtime with this disk, and with as much memory as this.
    pub(super) fn runtime(
        memory: usize,
        before: impl Fn(Step) -> io::Result<()> + Send + Sync + 'static,
    ) -> RuntimeEnvBuilder {
        let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(Self { before: Arc::new(before) }));
        let pool = Arc::new(GreedyMemoryPool::new(memory));
        RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk)
    }
}

impl TempFileFactory for TestDisk {
    fn create_temp_file(&self, _description: &str) -> Result<Arc<dyn SpillFile>> {
        (self.before)(Step::Create)?;
        Ok(Arc::new(TestFile { bytes: Arc::default(), before: Arc::clone(&self.before) }))
    }
}

#[derive(Clone)]
struct TestFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    before: BeforeStep,
}

impl SpillFile for TestFile {
    fn size(&self) -> Option<u64> {
        None
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let (bytes, mut at) = (Arc::clone(&self.bytes), 0);
        Ok(Box::pin(futures::stream::poll_fn(move |_| {
            let all = bytes.lock().unwrap();
            let next = Bytes::copy_from_slice(&all[at..]);
            at = all.len();
            Poll::Ready((!next.is_empty()).then_some(Ok(next)))
        })))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Write for TestFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.before)(Step::Write)?;
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for TestFile {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A flight that a test looks into.
struct Watched {
    flight: Arc<Flight>,
    feed: UnboundedSender<Fed>,
}

impl Watched {
    fn new(queries: &Queries) -> Self {
        let (feed, fed) = unbounded();
        let plan = FedPlan::of([fed]).leaf();
        let host = HostPlan { properties: Arc::clone(plan.properties()), plan, streams: queries.streams };
        let key = Arc::clone(&queries.key);
        let flight = Flight::new(key, Handle::current(), host, &queries.context(), Box::new(()));
        Self { flight: Arc::new(flight), feed }
    }

    /// The first value of the next batch; none at the end.
    async fn next(&self, id: ConsumerId) -> Option<i64> {
        match poll_fn(|cx| self.flight.poll_next(id, cx)).await {
            Taken::Batch { batch, .. } => Some(first(&batch)),
            Taken::End => None,
            other => panic!("{other:?}"),
        }
    }

    async fn rest(&self, id: ConsumerId) -> Vec<i64> {
        let mut found = Vec::new();
        while let Some(value) = self.next(id).await {
            found.push(value);
        }
        found
    }
}

/// What a consumer can take at once.
fn at_once(flight: &Arc<Flight>, id: ConsumerId) -> Vec<i64> {
    let mut found = Vec::new();
    while let Poll::Ready(Taken::Batch { batch, .. }) = flight.poll_next(id, &mut Context::from_waker(Waker::noop())) {
        found.push(first(&batch));
    }
    found
}

#[tokio::test]
async fn nothing_is_locked_while_rows_are_written_and_others_take_what_is_there() {
    let known: Arc<OnceLock<Weak<Flight>>> = Arc::default();
    let seen: Arc<Mutex<Vec<i64>>> = Arc::default();
    let (flight, found) = (Arc::clone(&known), Arc::clone(&seen));
    let other: ConsumerId = 2;
    let before = move |_| {
        let flight = flight.get().unwrap().upgrade().unwrap();
        assert!(flight.state.try_lock().is_ok());
        found.lock().unwrap().extend(at_once(&flight, other));
        Ok(())
    };
    let queries = Queries::within(true, TestDisk::runtime(2 << 20, before));
    let watched = Watched::new(&queries);
    let flight = &watched.flight;
    known.set(Arc::downgrade(flight)).unwrap();
    let [slow, quick, third] = [(); 3].map(|()| flight.attach(&queries.context()).unwrap());
    assert_eq!(third, other);
    large(0..8).for_each(|batch| watched.feed.unbounded_send(Ok(batch)).unwrap());
    watched.feed.close_channel();
    assert_eq!(watched.next(quick).await, Some(0));
    assert_eq!(watched.next(other).await, Some(0));
    assert_eq!(watched.rest(quick).await, all(1..8));
    // It was there for each write.
    assert_eq!(*seen.lock().unwrap(), all(1..8));
    assert_eq!(watched.rest(other).await, [] as [i64; 0]);
    assert_eq!(watched.rest(slow).await, all(0..8));
    [slow, quick, other].into_iter().for_each(|id| flight.leave(id));
    assert_eq!(queries.runtime.memory_pool.reserved(), 0);
}

/// A runtime with little memory, and with no disk at all.
fn no_disk() -> RuntimeEnvBuilder {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let pool = Arc::new(GreedyMemoryPool::new(2 << 20));
    RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk)
}

#[tokio::test]
async fn a_guest_whose_rows_cannot_be_kept_runs_its_own_plan() {
    let queries = Queries::within(true, no_disk());
    let (host, idle) = (queries.query(), queries.query());
    host.feed(large(0..60));
    host.feed.close_channel();
    assert_eq!(host.rest().await, all(0..60));
    idle.feed(small(0..3));
    idle.feed.close_channel();
    assert_eq!(idle.rest().await, all(0..3));
    assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 1, detached: 1 });
}

#[tokio::test]
async fn a_host_that_gave_no_row_leaves_its_plan_to_the_guests_if_its_rows_cannot_be_kept() {
    let queries = Queries::within(true, no_disk());
    let (host, guest) = (queries.query(), queries.query());
    host.feed(large(0..60));
    host.feed.close_channel();
    assert_eq!(guest.rest().await, all(0..60));
    host.again.unbounded_send(Ok(batch(7, 10))).unwrap();
    host.again.close_channel();
    let (shared, run) = (Arc::clone(&host.shared), Arc::clone(&host.plan));
    assert_eq!(host.rest().await, [7]);
    // The plan that ran for the guest is not run again: another one is.
    assert_eq!(run.runs.load(Ordering::SeqCst), 2);
    assert!(shared.metrics().unwrap().to_string().contains("shared_role=detached"));
    assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 1, detached: 0 });
    assert_eq!(queries.runtime.memory_pool.reserved(), 0);
}

#[tokio::test]
async fn rows_that_cannot_be_kept_are_missed_by_whoever_gave_some_and_by_nobody_else() {
    for slow_is_host in [true, false] {
        let queries = Queries::within(true, no_disk());
        let (host, guest) = (queries.query(), queries.query());
        host.feed(large(0..20));
        host.feed.close_channel();
        let (mut slow, quick) = if slow_is_host { (host, guest) } else { (guest, host) };
        assert_eq!(slow.next().await, Some(0));
        assert_eq!(quick.rest().await, all(0..20));
        let error = slow.rows.next().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("DiskManager is disabled"), "{error}");
        assert!(slow.rows.next().await.is_none());
    }
}

/// Counts how often somebody is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn whoever_waits_for_rows_that_the_disk_refuses_runs_its_own_plan() {
    for slow in [0, 1] {
        let known: Arc<OnceLock<Weak<Flight>>> = Arc::default();
        let (woken, waits): (Arc<Woken>, Arc<AtomicUsize>) = Default::default();
        let (flight, waker, waiting) = (Arc::clone(&known), Waker::from(Arc::clone(&woken)), Arc::clone(&waits));
        let before = move |step| {
            assert_eq!(step, Step::Create);
            let flight = flight.get().unwrap().upgrade().unwrap();
            // It comes while its rows are about to be written.
            let polled = flight.poll_next(slow, &mut Context::from_waker(&waker));
            waiting.fetch_add(usize::from(polled.is_pending()), Ordering::SeqCst);
            Err(io::Error::other("the disk is full"))
        };
        let queries = Queries::within(true, TestDisk::runtime(2 << 20, before));
        let watched = Watched::new(&queries);
        let flight = &watched.flight;
        known.set(Arc::downgrade(flight)).unwrap();
        let [_, _] = [(); 2].map(|()| flight.attach(&queries.context()).unwrap());
        large(0..8).for_each(|batch| watched.feed.unbounded_send(Ok(batch)).unwrap());
        watched.feed.close_channel();
        assert_eq!(watched.rest(1 - slow).await, all(0..8));
        assert_eq!(waits.load(Ordering::SeqCst), 1);
        assert!(woken.0.load(Ordering::SeqCst) > 0);
        let next = poll_fn(|cx| flight.poll_next(slow, cx)).await;
        assert!(matches!(next, Taken::Restart), "{next:?}");
    }
}

#[tokio::test]
async fn rows_on_disk_are_read_wherever_their_query_is_polled() {
    let pool = Arc::new(GreedyMemoryPool::new(2 << 20));
    let queries = Queries::within(true, RuntimeEnvBuilder::new().with_memory_pool(pool));
    let (host, guest) = (queries.query(), queries.query());
    host.feed(large(0..20));
    host.feed.close_channel();
    assert_eq!(host.rest().await, all(0..20));
    let elsewhere = tokio::task::spawn_blocking(move || {
        // This one has no runtime.
        std::thread::spawn(move || futures::executor::block_on(guest.rest())).join().unwrap()
    });
    assert_eq!(elsewhere.await.unwrap(), all(0..20));
}

#[tokio::test]
async fn nothing_is_kept_while_more_than_half_of_the_memory_is_in_use() {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 20));
    let queries = Queries::within(true, RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)));
    let operator = MemoryConsumer::new("operator").register(&pool);
    for (used, guests) in [(33 << 20, 0), (0, 1)] {
        operator.resize(used);
        let mut host = queries.query();
        host.feed(small(0..3));
        for value in 0..3 {
            assert_eq!(host.next().await, Some(value));
        }
        assert_eq!(pool.reserved() > used, guests > 0);
        let late = queries.query();
        assert_eq!(queries.counts().guests, guests);
        late.feed(small(0..3));
        late.feed.close_channel();
        host.feed.close_channel();
        assert_eq!((late.rest().await, host.rest().await), (all(0..3), vec![]));
    }
}

#[tokio::test]
async fn those_who_are_behind_have_one_window_in_memory_however_many_they_are() {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 20));
    let queries = Queries::within(true, RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)));
    let (host, idle) = (queries.query(), [(); 4].map(|()| queries.query()));
    host.feed(large(0..20));
    host.feed.close_channel();
    assert_eq!(host.rest().await, all(0..20));
    // One window of pages, and one of what all of them have for themselves.
    let window = (64 << 20) / (MEMORY_PARTS / 4);
    assert!(pool.reserved() > window && pool.reserved() <= 2 * window, "{}", pool.reserved());
    for idle in idle {
        assert_eq!(idle.rest().await, all(0..20));
    }
    assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 4, detached: 0 });
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test]
async fn bytes_are_counted_as_long_as_somebody_may_come_or_wait() {
    let queries = Queries::new(true);
    let watched = Watched::new(&queries);
    let flight = &watched.flight;
    let counts = |id| {
        let next = flight.lock().next(id, true, Waker::noop(), &mut Rest::default());
        let Next::Poll { source, counts } = next else { panic!("it has a batch") };
        flight.lock().put(source);
        counts
    };
    let [one, other] = [(); 2].map(|()| flight.attach(&queries.context()).unwrap());
    flight.leave(other);
    // Nobody is here but this one, and others may come.
    assert!(counts(one));
    let other = flight.attach(&queries.context()).unwrap();
    large(0..8).for_each(|batch| watched.feed.unbounded_send(Ok(batch)).unwrap());
    for value in 0..4 {
        assert_eq!((watched.next(one).await, watched.next(other).await), (Some(value), Some(value)));
    }
    assert!(!flight.is_open() && counts(one) && counts(other));
    flight.leave(other);
    assert!(!counts(one));
    watched.feed.close_channel();
    assert_eq!(watched.rest(one).await, all(4..8));
}
