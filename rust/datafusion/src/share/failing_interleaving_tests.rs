//! Queries that come, take, stall, fail and go in any order, with any memory and any disk.

use std::panic::AssertUnwindSafe;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::falling_behind::TestDisk;
use super::*;

/// How a run of a plan ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Well,
    Failed,
    Panicked,
}

impl Ending {
    fn any(rng: &mut StdRng) -> Self {
        match rng.random_range(0..6) {
            0 => Self::Failed,
            1 => Self::Panicked,
            _ => Self::Well,
        }
    }

    fn feed(self, feed: &UnboundedSender<Fed>) {
        match self {
            Self::Well => {}
            Self::Failed => feed.unbounded_send(Err(failure())).unwrap(),
            Self::Panicked => feed.unbounded_send(Ok(batch(0, 0))).unwrap(),
        }
        feed.close_channel();
    }
}

/// A query whose plan gives so many batches in each run, and what it gave.
struct Asked {
    query: Query,
    ending: Ending,
    given: Vec<i64>,
    ended: Option<Ending>,
}

impl Asked {
    fn new(queries: &Queries, batches: &[RecordBatch], ending: Ending) -> Self {
        let query = queries.query();
        for feed in [&query.feed, &query.again] {
            batches.iter().for_each(|batch| feed.unbounded_send(Ok(batch.clone())).unwrap());
            ending.feed(feed);
        }
        Self { query, ending, given: Vec::new(), ended: None }
    }

    fn note(&mut self, next: std::thread::Result<Option<Fed>>) {
        match next {
            Ok(Some(Ok(batch))) => self.given.push(first(&batch)),
            Ok(Some(Err(_))) => self.ended = Some(Ending::Failed),
            Ok(None) => self.ended = Some(Ending::Well),
            Err(_) => self.ended = Some(Ending::Panicked),
        }
    }

    /// Takes a batch if there is one.
    fn poll_once(&mut self) {
        if self.ended.is_none()
            && let Some(next) = AssertUnwindSafe(self.query.rows.next()).catch_unwind().now_or_never()
        {
            self.note(next);
        }
    }

    async fn finish(&mut self) {
        while self.ended.is_none() {
            let next = AssertUnwindSafe(self.query.rows.next()).catch_unwind().await;
            self.note(next);
        }
    }
}

fn batches(count: i64, are_large: bool) -> Vec<RecordBatch> {
    if are_large { large(0..count).collect() } else { small(0..count).collect() }
}

/// What a round has of memory and disk, and whether it may be too little.
fn runtime(rng: &mut StdRng) -> (RuntimeEnvBuilder, bool) {
    let memory = [usize::MAX, 64 << 20, 2 << 20, 0][rng.random_range(0..4)];
    let steps = [usize::MAX, usize::MAX, 0, rng.random_range(1..20)][rng.random_range(0..4)];
    let left = AtomicUsize::new(steps);
    let before = move |_| {
        let is_left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        is_left.map(drop).map_err(|_| std::io::Error::other("the disk is full"))
    };
    (TestDisk::runtime(memory, before), steps != usize::MAX)
}

/// Whatever comes, goes, stalls, fails, panics or is refused: who gave no row gives what its own plan gives, and nobody gives a row twice, or
/// leaves one out. Nobody waits for ever.
#[tokio::test]
async fn any_interleaving_with_failures_adds_none_to_those_who_gave_no_row() {
    for seed in 0..250 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (runtime, refuses) = runtime(&mut rng);
        let queries = Queries::within(rng.random_bool(0.5), runtime);
        let count = rng.random_range(0..30);
        let batches = batches(count, rng.random_bool(0.5));
        let (mut asked, mut one_fails): (Vec<Asked>, bool) = (Vec::new(), false);
        for _ in 0..rng.random_range(10..150) {
            let place = rng.random_range(0..6);
            match rng.random_range(0..10) {
                0 | 1 => {
                    let ending = Ending::any(&mut rng);
                    one_fails |= ending != Ending::Well;
                    asked.push(Asked::new(&queries, &batches, ending));
                }
                2 if place < asked.len() => drop(asked.remove(place)),
                _ => asked.get_mut(place).into_iter().for_each(Asked::poll_once),
            }
        }
        for mut own in asked {
            own.finish().await;
            let Asked { ending, given, ended, .. } = &own;
            let case = format!("seed {seed}: {ended:?} after {} of {count}, and alone {ending:?}", given.len());
            assert!(all(0..count).starts_with(given), "{case}: {given:?}");
            match ended.unwrap() {
                Ending::Well => assert_eq!(given.len() as i64, count, "{case}"),
                Ending::Failed if *ending == Ending::Failed => {}
                Ending::Failed => assert!(!given.is_empty() && (one_fails || refuses), "{case}"),
                Ending::Panicked => assert_eq!(*ending, Ending::Panicked, "{case}"),
            }
        }
        assert_eq!(queries.runtime.memory_pool.reserved(), 0, "seed {seed}");
    }
}

/// So many times the host or a guest is polled, in each order.
const STEPS: u32 = 5;

#[tokio::test]
async fn a_host_that_goes_after_any_step_leaves_all_of_its_work() {
    for (order, are_large) in (0_u32..1 << STEPS).flat_map(|order| [(order, false), (order, true)]) {
        for goes_after in 0..=STEPS {
            let queries = Queries::within(true, TestDisk::runtime(2 << 20, |_| Ok(())));
            let batches = batches(6, are_large);
            let [mut host, mut guest, mut idle] = [(); 3].map(|()| Asked::new(&queries, &batches, Ending::Well));
            for step in 0..goes_after {
                if (order >> step) & 1 == 0 { host.poll_once() } else { guest.poll_once() }
            }
            drop(host);
            guest.finish().await;
            idle.finish().await;
            let case = format!("order {order:b}, large: {are_large}, goes after {goes_after}");
            assert_eq!((&guest.given, &idle.given), (&all(0..6), &all(0..6)), "{case}");
            assert_eq!((guest.query.runs(), idle.query.runs()), (0, 0), "{case}");
            drop((guest, idle));
            assert_eq!(queries.runtime.memory_pool.reserved(), 0, "{case}");
        }
    }
}

/// On several threads, with less memory than what they are behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queries_on_several_threads_that_fall_behind_give_all_rows() {
    for seed in 0..16 {
        let mut rng = StdRng::seed_from_u64(seed);
        let queries = Queries::within(true, TestDisk::runtime(4 << 20, |_| Ok(())));
        let batches = batches(12, true);
        let mut running = Vec::new();
        for _ in 0..8 {
            let mut own = Asked::new(&queries, &batches, Ending::Well);
            let (pauses, leaves) = (rng.random_range(0..6), rng.random_bool(0.25));
            running.push(tokio::spawn(async move {
                for _ in 0..pauses {
                    own.poll_once();
                    tokio::task::yield_now().await;
                }
                if leaves {
                    return None;
                }
                own.finish().await;
                Some(own.given)
            }));
        }
        for own in running {
            if let Some(given) = own.await.unwrap() {
                assert_eq!(given, all(0..12), "seed {seed}");
            }
        }
        assert_eq!(queries.runtime.memory_pool.reserved(), 0, "seed {seed}");
    }
}
