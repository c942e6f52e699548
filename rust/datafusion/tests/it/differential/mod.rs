//! Random differential testing: whatever is asked of a marked table, the answer with the marks is the answer without them.
//!
//! A *trial* is one predicate in one statement. A table is made from its seed alone and serves [`TRIALS_PER_TABLE`] trials,
//! and a trial's predicate is made from the table's seed and the trial's number; so the seed and the number that are
//! printed with a difference bring it back. A run over `n` tables uses the seeds `seed..seed + n`: to resume, give the seed
//! that the progress line names.

mod answer;
mod column;
mod query;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::StreamExt;
use lakemark_datafusion::LakemarkSession;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::answer::{Answer, ask, same};
use self::query::{Shape, Tree};
use self::table::RandomTable;

/// Predicates that one random table serves.
pub const TRIALS_PER_TABLE: u64 = 250;

/// What a run found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Trials in which both answers were the same.
    pub passed: u64,
    /// Trials in which they were not.
    pub failed: u64,
    /// Passed trials whose common answer was an error.
    pub errors: u64,
    /// Passed trials whose answer held no row.
    pub empty: u64,
}

/// Runs at least `trials` trials on two tables at a time and prints every difference, cut down, to stdout.
pub async fn run(trials: u64, seed: u64) -> Summary {
    let tables = trials.div_ceil(TRIALS_PER_TABLE);
    let start = Instant::now();
    let done = Arc::new(AtomicU64::new(0));
    let mut results = futures::stream::iter(0..tables)
        .map(|ordinal| {
            let count = TRIALS_PER_TABLE.min(trials - ordinal * TRIALS_PER_TABLE);
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(run_table(seed.wrapping_add(ordinal), count)))
        })
        .buffered(2);
    let mut summary = Summary::default();
    while let Some(result) = results.next().await {
        let found = result.unwrap();
        summary.passed += found.passed;
        summary.failed += found.failed;
        summary.errors += found.errors;
        summary.empty += found.empty;
        let tables_done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if tables_done.is_multiple_of(10) {
            let rate = (summary.passed + summary.failed) as f64 / start.elapsed().as_secs_f64();
            println!(
                "{} trials, {rate:.0} per second; resume with SEED={}",
                summary.passed + summary.failed,
                seed + tables_done
            );
        }
    }
    let rate = (summary.passed + summary.failed) as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} trials per second; {} agreed on an error, {} on no rows", summary.errors, summary.empty);
    summary
}

/// Two sessions over one table: one uses the marks, the other does not.
struct Pair {
    marked: LakemarkSession,
    unmarked: LakemarkSession,
}

impl Pair {
    async fn open(table: &RandomTable, rng: &mut StdRng) -> Self {
        let partitions = *column::pick(rng, &[1, 1, 3]);
        let batch_size = *column::pick(rng, &[7, 64, 8192, 8192]);
        let location = table.location().display();
        let sessions = [true, false].map(|use_index| {
            let location = location.to_string();
            async move {
                let session = LakemarkSession::new();
                for statement in [
                    format!("SET datafusion.execution.target_partitions = {partitions}"),
                    format!("SET datafusion.execution.batch_size = {batch_size}"),
                    format!("SET lakemark.use_index = {use_index}"),
                    format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{location}'"),
                ] {
                    session.sql(&statement).await.unwrap().collect().await.unwrap();
                }
                session
            }
        });
        let [marked, unmarked] = sessions;
        Self { marked: marked.await, unmarked: unmarked.await }
    }

    /// Both answers to one statement.
    async fn ask(&self, shape: &Shape, tree: &Tree) -> (Answer, Answer) {
        let sql = shape.sql(tree);
        (ask(&self.marked, shape, &sql).await, ask(&self.unmarked, shape, &sql).await)
    }

    /// The answer without the marks, if the one with them agrees with it.
    async fn agreed(&self, shape: &Shape, tree: &Tree) -> Option<Answer> {
        let (marked, unmarked) = self.ask(shape, tree).await;
        if !same(shape, &marked, &unmarked) {
            return None;
        }
        // Any rows will do for a LIMIT, but only rows of the predicate, and as many as there are.
        let Shape::Limit(limit) = shape else { return Some(unmarked) };
        let all = ask(&self.unmarked, &Shape::Rows, &Shape::Rows.sql(tree)).await;
        marked.is_part_of(&all, *limit).then_some(unmarked)
    }

    async fn agree(&self, shape: &Shape, tree: &Tree) -> bool {
        self.agreed(shape, tree).await.is_some()
    }
}

async fn run_table(seed: u64, trials: u64) -> Summary {
    let table = RandomTable::create(seed).await;
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    let pair = Pair::open(&table, &mut rng).await;
    let mut summary = Summary::default();
    for trial in 0..trials {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(trial));
        let depth = rng.random_range(0..4);
        let tree = Tree::random(&mut rng, &table.columns, depth);
        let shape = Shape::random(&mut rng, &table.columns);
        match pair.agreed(&shape, &tree).await {
            Some(answer) => {
                summary.passed += 1;
                summary.errors += u64::from(matches!(answer, Answer::Error(_)));
                summary.empty += u64::from(matches!(&answer, Answer::Rows(rows) if rows.is_empty()));
            }
            None => {
                summary.failed += 1;
                report(&pair, &table, seed, trial, &shape, &tree).await;
            }
        }
    }
    summary
}

/// Prints a difference after cutting it down: the smallest statement that still differs.
async fn report(pair: &Pair, table: &RandomTable, seed: u64, trial: u64, shape: &Shape, tree: &Tree) {
    let shape = if pair.agree(&Shape::Ids, tree).await { shape.clone() } else { Shape::Ids };
    let mut smallest = tree.clone();
    'shrink: loop {
        for candidate in smallest.smaller() {
            if !pair.agree(&shape, &candidate).await {
                smallest = candidate;
                continue 'shrink;
            }
        }
        break;
    }
    let (marked, unmarked) = pair.ask(&shape, &smallest).await;
    println!(
        "DIFFERENCE seed {seed} trial {trial}\n  table: {}\n  asked: {}\n  cut down: {}\n  marks on:  {marked}\n  marks off: {unmarked}",
        table.description,
        shape.sql(tree),
        shape.sql(&smallest),
    );
}

#[cfg(test)]
mod tests {
    use super::{Summary, run};

    /// A taste; `make fuzz-queries` runs 10,000 in CI and any number by hand.
    const TRIALS: u64 = 2_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn law_1_random_queries_answer_the_same_with_and_without_marks() {
        let summary: Summary = run(TRIALS, 1).await;
        assert_eq!((summary.passed, summary.failed), (TRIALS, 0));
        // A run in which nearly every answer is an error or empty would prove nothing.
        assert!(summary.errors * 20 < TRIALS, "{} answers are errors", summary.errors);
        assert!(summary.empty * 4 < TRIALS * 3, "{} answers are empty", summary.empty);
    }
}
