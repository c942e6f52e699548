//! Work on many blocks of a segment, a part at a time: the memory of a part is used again for the next, and all cores have one.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::LazyLock;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use crate::store::segments::{Damage, Segment};

/// Blocks of a part: a leaf of a packed tree has a page.
const BLOCKS_OF_PART: usize = 256;
/// Fewer are not worth a task.
pub(crate) const LEAST_BLOCKS_OF_PART: usize = 64;
/// Parts that the process reads at once from stores that are not on this machine, where a read waits most of its time.
const REMOTE_PARTS: usize = 16;

/// Cores of the machine, found once: the system reads several files for the number.
pub(crate) static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(2, Into::into));

/// Parts that the process has in memory at once, of all segments and queries.
static LOCAL_TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*CORES));
static REMOTE_TURNS: Semaphore = Semaphore::const_new(REMOTE_PARTS);

/// Runs something for each part of so many blocks of a segment, and gives what comes of them in their order.
pub(crate) async fn in_parts<T, F>(
    segment: &Segment,
    blocks: usize,
    run: impl Fn(Range<usize>) -> F,
) -> Result<Vec<T>, Damage>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Damage>> + Send + 'static,
{
    if blocks <= LEAST_BLOCKS_OF_PART {
        return Ok(vec![run(0..blocks).await?]);
    }
    let (turns, most): (&'static Semaphore, usize) =
        if segment.is_local() { (&LOCAL_TURNS, *CORES) } else { (&REMOTE_TURNS, REMOTE_PARTS) };
    let size = blocks.div_ceil(*CORES).clamp(LEAST_BLOCKS_OF_PART, BLOCKS_OF_PART);
    let parts = (0..blocks).step_by(size).map(|start| {
        let work = run(start..blocks.min(start + size));
        async move {
            // Nobody closes it.
            let _turn = turns.acquire().await.ok();
            work.await
        }
    });
    all_at_once(parts, most).await
}

/// Does the same as [`at_once`] with jobs of one segment, of which the first that finds damage is enough.
pub(crate) async fn all_at_once<T, F>(jobs: impl Iterator<Item = F>, most: usize) -> Result<Vec<T>, Damage>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Damage>> + Send + 'static,
{
    match at_once(jobs, most).await {
        Ok(done) => done.into_iter().collect(),
        // Whoever runs the search says that a task failed.
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// Runs jobs as tasks, so many at once, and gives what comes of them in their order. Whoever stops waiting stops them.
pub(crate) async fn at_once<F>(jobs: impl Iterator<Item = F>, most: usize) -> Result<Vec<F::Output>, JoinError>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (mut jobs, mut tasks, mut done) = (jobs.enumerate(), JoinSet::new(), Vec::new());
    loop {
        while tasks.len() < most
            && let Some((number, job)) = jobs.next()
        {
            tasks.spawn(async move { (number, job.await) });
        }
        match tasks.join_next().await {
            Some(finished) => done.push(finished?),
            None => break,
        }
    }
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, output)| output).collect())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn jobs_are_done_in_their_order_and_so_many_at_once() {
        let turns = Arc::new(Semaphore::new(4));
        let jobs = (0..20).map(|number| {
            let turns = Arc::clone(&turns);
            async move {
                let _turn = turns.try_acquire().unwrap();
                tokio::time::sleep(Duration::from_millis(20 - number)).await;
                number
            }
        });
        assert_eq!(at_once(jobs, 4).await.unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn jobs_end_with_whoever_waits_for_them() {
        let held = Arc::new(());
        let jobs = (0..8).map(|_| {
            let held = Arc::clone(&held);
            async move {
                pending::<()>().await;
                drop(held);
            }
        });
        let waits = at_once(jobs.collect::<Vec<_>>().into_iter(), 3);
        assert!(tokio::time::timeout(Duration::from_millis(5), waits).await.is_err());
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
