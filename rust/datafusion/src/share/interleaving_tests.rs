//! Queries that come, take, stall and go in any order.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// A query that is polled, and what it gave.
struct Watched {
    query: Query,
    given: Vec<i64>,
    ended: bool,
}

/// Whatever the order in which queries come, take, stall and go: each gives all batches once, in order, whoever runs them.
#[tokio::test]
async fn any_interleaving_gives_every_query_all_rows() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let streams = rng.random_bool(0.5);
        let queries = Queries::new(streams);
        let batches = rng.random_range(0..40);
        let is_large = rng.random_bool(0.5);
        let mut watched: Vec<Watched> = Vec::new();
        for _ in 0..rng.random_range(10..200) {
            let place = rng.random_range(0..6);
            match rng.random_range(0..10) {
                0 | 1 => {
                    let query = queries.query();
                    if is_large {
                        query.feed(large(0..batches))
                    } else {
                        query.feed(small(0..batches))
                    }
                    query.feed.close_channel();
                    watched.push(Watched { query, given: Vec::new(), ended: false });
                }
                2 if place < watched.len() => drop(watched.remove(place)),
                _ => poll_once(&mut watched, place),
            }
        }
        for Watched { query, mut given, ended } in watched {
            if !ended {
                given.extend(query.rest().await);
            }
            assert_eq!(given, all(0..batches), "seed {seed}");
        }
        assert_eq!(queries.runtime.memory_pool.reserved(), 0, "seed {seed}");
    }
}

fn poll_once(watched: &mut [Watched], place: usize) {
    let Some(Watched { query, given, ended }) = watched.get_mut(place) else { return };
    match query.rows.next().now_or_never() {
        Some(Some(batch)) => given.push(first(&batch.unwrap())),
        Some(None) => *ended = true,
        None => {}
    }
}

/// The same on several threads, each with a query of its own pace.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queries_on_several_threads_give_all_rows() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let queries = Queries::new(seed % 2 == 0);
        let batches = rng.random_range(1..60);
        let mut running = Vec::new();
        for _ in 0..12 {
            let mut query = queries.query();
            let feed = query.feed.clone();
            let is_large = rng.random_bool(0.3);
            let (steps, leaves) = (rng.random_range(0..20), rng.random_bool(0.3));
            tokio::spawn(async move {
                for value in 0..batches {
                    let fed = if is_large { LARGE[value as usize].clone() } else { batch(value, 10) };
                    feed.unbounded_send(Ok(fed)).ok();
                    tokio::task::yield_now().await;
                }
                feed.close_channel();
            });
            running.push(tokio::spawn(async move {
                let mut given = Vec::new();
                for _ in 0..steps {
                    given.extend(query.next().await);
                    tokio::task::yield_now().await;
                }
                if leaves {
                    return None;
                }
                given.extend(query.rest().await);
                Some(given)
            }));
        }
        for query in running {
            if let Some(given) = query.await.unwrap() {
                assert_eq!(given, all(0..batches), "seed {seed}");
            }
        }
    }
}
