//! Passes whose decoders give what a test hands them, taken by consumers that a test polls.

use std::future::poll_fn;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::exec_datafusion_err;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt, Stream};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::share::passes::budget::PageBudget;
use crate::share::passes::ranks::TakenRows;

const ROWS: u32 = 1_000;
/// What a page of 10 rows takes.
const PAGE_BYTES: usize = 80;

type Fed = Result<RecordBatch>;

/// A pass of all rows, with what feeds its decoder.
struct FedPass {
    pass: Arc<Pass>,
    feed: UnboundedSender<Fed>,
    memory: Arc<dyn MemoryPool>,
}

fn part(range: std::ops::Range<u32>) -> RowSet {
    RowSet::from_range(range, ROWS)
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("row", DataType::Int64, false)]))
}

fn batch(rows: std::ops::Range<u32>) -> RecordBatch {
    let rows = Int64Array::from_iter_values(rows.map(i64::from));
    RecordBatch::try_new(schema(), vec![Arc::new(rows)]).unwrap()
}

fn pass_of(
    consumers: &[RowSet],
    window: usize,
    decoder: impl Stream<Item = Fed> + Send + 'static,
    memory: &Arc<dyn MemoryPool>,
) -> Arc<Pass> {
    let mut pages = PassPages::new(RowSet::full(ROWS), window);
    for rows in consumers {
        pages.begin(rows);
    }
    let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema(), decoder));
    let opens: OpensDecoder = Box::new(move || Ok(stream));
    let session = MemoryConsumer::new("pages").register(memory);
    Pass::new(pages, opens, PageMemory { session, budget: PageBudget::new(1 << 20).share() })
}

impl FedPass {
    fn new(consumers: &[RowSet], window: usize) -> Self {
        let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let (feed, fed) = unbounded();
        Self { pass: pass_of(consumers, window, fed, &memory), feed, memory }
    }

    fn feed(&self, rows: std::ops::Range<u32>) {
        self.feed.unbounded_send(Ok(batch(rows))).unwrap();
    }
}

fn rows_of(item: &RecordBatch, rows: &TakenRows) -> Vec<u32> {
    let values = item.column(0).as_primitive::<Int64Type>();
    match rows {
        TakenRows::All => values.values().iter().map(|row| *row as u32).collect(),
        TakenRows::Some(ranks) => ranks.iter().map(|rank| values.value(rank as usize) as u32).collect(),
    }
}

/// What a consumer gets if it is polled once.
fn poll_once(pass: &Arc<Pass>, id: ConsumerId) -> Option<Taken<Arc<PassPage>>> {
    poll_fn(|cx| pass.poll_take(id, cx)).now_or_never()
}

/// The rows of the next page, which a consumer that is ahead does not get at once.
fn page(pass: &Arc<Pass>, id: ConsumerId) -> Vec<u32> {
    match (0..100).find_map(|_| poll_once(pass, id)) {
        Some(Taken::Page { item, rows, .. }) => rows_of(&item.batch, &rows),
        other => panic!("{other:?}"),
    }
}

/// What a consumer of a pass that fails reads alone.
fn left(rows: std::ops::Range<u32>) -> Taken<Arc<PassPage>> {
    Taken::Left { rows: part(rows), is_detached: false }
}

fn all(rows: std::ops::Range<u32>) -> Vec<u32> {
    rows.collect()
}

#[tokio::test]
async fn whoever_lacks_a_page_decodes_it_for_all() {
    let fed = FedPass::new(&[part(0..ROWS), part(5..15)], PAGE_BYTES * 4);
    assert_eq!(poll_once(&fed.pass, 0), None);
    fed.feed(0..10);
    assert_eq!(page(&fed.pass, 1), all(5..10));
    assert_eq!(page(&fed.pass, 0), all(0..10));
    fed.feed(10..20);
    assert_eq!(page(&fed.pass, 0), all(10..20));
    assert_eq!(page(&fed.pass, 1), all(10..15));
    assert_eq!(poll_once(&fed.pass, 1), Some(Taken::Done));
    assert_eq!(poll_once(&fed.pass, 0), None);
}

#[tokio::test]
async fn whoever_decodes_is_told_what_it_decoded_for_others() {
    let fed = FedPass::new(&[part(0..ROWS), part(5..15)], PAGE_BYTES * 4);
    (0..2).for_each(|number| fed.feed(number * 10..number * 10 + 10));
    assert_eq!(page(&fed.pass, 1), all(5..10));
    assert_eq!(page(&fed.pass, 0), all(0..10));
    assert_eq!((fed.pass.take_decoded_for_others(0), fed.pass.take_decoded_for_others(1)), (None, Some(5)));
    assert_eq!(page(&fed.pass, 0), all(10..20));
    assert_eq!((fed.pass.take_decoded_for_others(0), fed.pass.take_decoded_for_others(1)), (Some(0), None));
}

#[tokio::test]
async fn one_consumer_decodes_for_nobody_until_another_one_enters() {
    let fed = FedPass::new(&[part(0..ROWS)], PAGE_BYTES * 4);
    (0..4).for_each(|number| fed.feed(number * 10..number * 10 + 10));
    assert_eq!((page(&fed.pass, 0), page(&fed.pass, 0)), (all(0..10), all(10..20)));
    assert_eq!((fed.pass.take_decoded_for_others(0), fed.memory.reserved()), (None, 0));
    assert_eq!(fed.pass.enter(&part(0..30), |_| true), Some((1, part(0..20))));
    assert_eq!((page(&fed.pass, 0), page(&fed.pass, 0)), (all(20..30), all(30..40)));
    assert_eq!((fed.pass.take_decoded_for_others(0), fed.memory.reserved()), (Some(0), PAGE_BYTES));
    assert_eq!((page(&fed.pass, 1), fed.memory.reserved()), (all(20..30), 0));
}

#[tokio::test]
async fn a_consumer_that_waits_is_woken_by_the_page_of_another_one() {
    let fed = FedPass::new(&[part(0..ROWS), part(0..ROWS)], PAGE_BYTES * 4);
    let waits = tokio::spawn({
        let pass = Arc::clone(&fed.pass);
        async move { poll_fn(|cx| pass.poll_take(1, cx)).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(poll_once(&fed.pass, 0), None);
    fed.feed(0..10);
    assert_eq!(page(&fed.pass, 0), all(0..10));
    assert!(matches!(waits.await.unwrap(), Taken::Page { is_shared: true, .. }));
}

#[tokio::test]
async fn whoever_decodes_lets_those_come_that_were_woken() {
    let fed = FedPass::new(&[part(0..ROWS), part(0..ROWS)], PAGE_BYTES * 4);
    let takes = |id: ConsumerId| {
        let pass = Arc::clone(&fed.pass);
        tokio::spawn(async move {
            let mut has = Vec::new();
            while let Taken::Page { item, rows, .. } = poll_fn(|cx| pass.poll_take(id, cx)).await {
                has.extend(rows_of(&item.batch, &rows));
            }
            has
        })
    };
    let (one, other) = (takes(0), takes(1));
    tokio::task::yield_now().await;
    (0..ROWS / 10).for_each(|page| fed.feed(page * 10..page * 10 + 10));
    fed.feed.close_channel();
    // On one thread neither misses a page, though all pages are there from the first poll on.
    assert_eq!((one.await.unwrap(), other.await.unwrap()), (all(0..ROWS), all(0..ROWS)));
}

#[tokio::test]
async fn whoever_is_ahead_pauses_a_few_times_for_one_that_is_late() {
    let fed = FedPass::new(&[part(0..ROWS), part(0..ROWS)], PAGE_BYTES * 4);
    (0..8).for_each(|number| fed.feed(number * 10..number * 10 + 10));
    // How often it pauses before its next page.
    let pauses = || (0..100).take_while(|_| poll_once(&fed.pass, 0).is_none()).count();
    assert_eq!([(); 4].map(|()| pauses()), [0; 4]);
    assert_eq!([pauses(), pauses()], [2 * PAUSES, 0]);
    // The other one misses a page and is there again.
    assert_eq!(poll_once(&fed.pass, 1), Some(Taken::Missed(part(0..10))));
    assert_eq!([pauses(), pauses()], [2 * PAUSES, 0]);
    fed.pass.leave(1);
    fed.feed(80..90);
    assert_eq!(page(&fed.pass, 0), all(80..90));
}

#[tokio::test]
async fn who_polled_last_may_go_and_the_others_go_on() {
    let fed = FedPass::new(&[part(0..ROWS), part(0..ROWS)], PAGE_BYTES * 4);
    let waits = tokio::spawn({
        let pass = Arc::clone(&fed.pass);
        async move { poll_fn(|cx| pass.poll_take(1, cx)).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(poll_once(&fed.pass, 0), None);
    fed.pass.leave(0);
    fed.feed(0..10);
    assert!(matches!(waits.await.unwrap(), Taken::Page { is_shared: false, .. }));
}

#[tokio::test]
async fn a_decoder_that_nobody_needs_is_dropped() {
    let fed = FedPass::new(&[part(0..10), part(0..ROWS)], PAGE_BYTES * 4);
    fed.feed(0..10);
    assert_eq!(page(&fed.pass, 0), all(0..10));
    fed.pass.leave(0);
    assert!(!fed.pass.is_over() && !fed.feed.is_closed());
    fed.pass.leave(1);
    assert!(fed.pass.is_over() && fed.feed.is_closed());
    assert_eq!(fed.pass.enter(&part(0..ROWS), |_| true), None);
    assert_eq!(fed.memory.reserved(), 0);
}

#[tokio::test]
async fn an_error_of_the_decoder_is_nobodys() {
    let fed = FedPass::new(&[part(0..ROWS), part(0..20)], PAGE_BYTES * 4);
    fed.feed(0..10);
    fed.feed.unbounded_send(Err(exec_datafusion_err!("damaged"))).unwrap();
    assert_eq!(page(&fed.pass, 0), all(0..10));
    assert_eq!(poll_once(&fed.pass, 0), Some(left(10..ROWS)));
    assert_eq!(page(&fed.pass, 1), all(0..10));
    assert_eq!(poll_once(&fed.pass, 1), Some(left(10..20)));
}

#[tokio::test]
async fn a_panic_of_the_decoder_leaves_the_others_their_rows() {
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
    let decoder = futures::stream::poll_fn(|_| -> Poll<Option<Fed>> { panic!("a decoder that panics") });
    let pass = pass_of(&[part(0..ROWS), part(0..ROWS)], PAGE_BYTES, decoder, &memory);
    let polled = Arc::clone(&pass);
    assert!(tokio::spawn(async move { poll_once(&polled, 0) }).await.unwrap_err().is_panic());
    assert_eq!(poll_once(&pass, 1), Some(left(0..ROWS)));
}

#[tokio::test]
async fn pages_count_to_the_memory_and_are_fewer_where_it_is_small() {
    let fed = FedPass::new(&[part(0..ROWS), part(0..ROWS)], PAGE_BYTES * 2);
    (0..5).for_each(|number| fed.feed(number * 10..number * 10 + 10));
    (0..3).for_each(|_| drop(page(&fed.pass, 0)));
    assert_eq!(fed.memory.reserved(), PAGE_BYTES * 2);
    assert_eq!(fed.pass.take_away(), [] as [ConsumerId; 0]);
    page(&fed.pass, 0);
    assert_eq!(fed.pass.take_away(), [1]);
    assert_eq!(poll_once(&fed.pass, 1), Some(Taken::Missed(part(0..10))));
    assert_eq!(page(&fed.pass, 1), all(10..20));
    (0..2).for_each(|id| fed.pass.leave(id));
    assert_eq!(fed.memory.reserved(), 0);
}

/// What a consumer of some rows gets in the end, at a pace of its own.
async fn taken_by(pass: Arc<Pass>, id: ConsumerId, mut rng: StdRng) -> Vec<u32> {
    let mut has = Vec::new();
    loop {
        match poll_fn(|cx| pass.poll_take(id, cx)).await {
            Taken::Page { item, rows, .. } => has.extend(rows_of(&item.batch, &rows)),
            Taken::Missed(rows) => has.extend(rows.iter()),
            Taken::Left { rows, .. } => {
                has.extend(rows.iter());
                break;
            }
            Taken::Done => break,
            other => panic!("{other:?}"),
        }
        for _ in 0..rng.random_range(0..4) {
            tokio::task::yield_now().await;
        }
    }
    has.sort_unstable();
    has
}

/// Several threads, with consumers that come late, fall behind and go, and decoders that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consumers_on_several_threads_get_each_of_their_rows_once() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let wanted: Vec<RowSet> = (0..8)
            .map(|_| {
                let (from, to) = (rng.random_range(0..ROWS), rng.random_range(0..ROWS));
                part(from.min(to)..from.max(to))
            })
            .collect();
        let (first, late) = wanted.split_at(5);
        let fed = FedPass::new(first, PAGE_BYTES * 3);
        let fails_at = if rng.random_bool(0.3) { rng.random_range(0..ROWS / 10) } else { ROWS };
        let feed = fed.feed.clone();
        tokio::spawn(async move {
            for page in 0..ROWS / 10 {
                let rows = page * 10..page * 10 + 10;
                let item = if page == fails_at { Err(exec_datafusion_err!("failed")) } else { Ok(batch(rows)) };
                feed.unbounded_send(item).ok();
                tokio::task::yield_now().await;
            }
            feed.close_channel();
        });
        let mut running = Vec::new();
        let entered = late.iter().filter_map(|rows| {
            let (id, left) = fed.pass.enter(rows, |_| true)?;
            Some((id, rows.minus(&left)))
        });
        let begun = first.iter().enumerate().map(|(id, rows)| (id as ConsumerId, rows.clone()));
        for (number, (id, rows)) in begun.chain(entered).enumerate() {
            let own = StdRng::seed_from_u64(seed * 100 + number as u64);
            if rng.random_bool(0.1) {
                fed.pass.leave(id);
                continue;
            }
            running.push((rows, tokio::spawn(taken_by(Arc::clone(&fed.pass), id, own))));
        }
        for (rows, taken) in running {
            assert_eq!(taken.await.unwrap(), rows.iter().collect::<Vec<_>>(), "seed {seed}");
        }
        assert_eq!(fed.memory.reserved(), 0, "seed {seed}");
    }
}
