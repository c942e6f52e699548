//! Random differential testing: whatever is asked of an indexed table, the answer with the indexes is the answer without them. Where
//! changes are buffered, the answer without is that of a table whose data files have them.
//!
//! A *trial* is one predicate in one statement. A table is made from its seed alone and serves [`TRIALS_PER_TABLE`] trials,
//! and a trial's predicate is made from the table's seed and the trial's number; so the seed and the number that are
//! printed with a difference bring it back, however many threads there were. A run over `n` tables uses the seeds
//! `seed..seed + n`: to resume, give the seed that the progress line names.

mod aggregate;
mod aim;
mod answer;
mod buffered;
mod column;
mod delta;
pub mod joins;
mod keeping;
#[cfg(test)]
mod pages;
mod query;
mod table;
mod walks;

#[cfg(test)]
pub use delta::{commit, vector};
#[cfg(test)]
pub use table::precisions_of;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use lakemark_datafusion::LakemarkSession;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::aim::Aim;
use self::answer::{Answer, ask, same};
use self::keeping::Keeper;
use self::query::{Shape, Tree};
use self::table::RandomTable;

/// Predicates that one random table serves.
pub const TRIALS_PER_TABLE: u64 = 250;
/// Tables between two lines that say how far the run is.
const TABLES_PER_LINE: u64 = 10;

/// What a run found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Trials in which both answers were the same.
    pub passed: u64,
    /// Trials in which they were not.
    pub failed: u64,
    /// Passed trials whose common answer was an error.
    pub errors: u64,
    /// Passed trials whose answer is about no row of the table.
    pub empty: u64,
    /// Passed trials whose answer is about every row of the table.
    pub whole: u64,
    /// Trials that were lookups, which the session with the indexes hardly plans.
    pub lookups: u64,
    /// Passed trials with an answer beside an error, which is right for reasons that [`joins`] has.
    pub spared: u64,
    /// Walks over links that were right. Others count as failed trials.
    pub walks: u64,
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.errors += other.errors;
        self.empty += other.empty;
        self.whole += other.whole;
        self.lookups += other.lookups;
        self.spared += other.spared;
        self.walks += other.walks;
    }

    fn trials(&self) -> u64 {
        self.passed + self.failed
    }

    /// What part of the trials had a right answer that a wrong program could give, too.
    fn shares(&self) -> String {
        let percent = |part: u64| 100.0 * part as f64 / self.trials().max(1) as f64;
        format!(
            "{:.1}% of the answers are empty, {:.1}% are all rows, {:.1}% are errors, {:.1}% of the trials are lookups, \
             {:.2}% stand beside a legal error; {} walks over links",
            percent(self.empty),
            percent(self.whole),
            percent(self.errors),
            percent(self.lookups),
            percent(self.spared),
            self.walks
        )
    }
}

/// Runs `trials` trials, and prints every difference, cut down.
pub fn run(trials: u64, seed: u64) -> Summary {
    run_all(trials, TRIALS_PER_TABLE, seed, |seed, range| alone(run_table(seed, range)))
}

/// Runs trials, so many per seed, a thread for each core with a seed of its own at a time.
fn run_all(trials: u64, per_seed: u64, seed: u64, run: impl Fn(u64, Range<u64>) -> Summary + Sync) -> Summary {
    let tables = trials.div_ceil(per_seed);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, start) = (AtomicU64::new(0), Instant::now());
    let (sender, results) = mpsc::channel();
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let ordinal = next.fetch_add(1, Ordering::Relaxed);
                    if ordinal >= tables {
                        return;
                    }
                    let count = per_seed.min(trials - ordinal * per_seed);
                    let found = run(seed.wrapping_add(ordinal), 0..count);
                    sender.send((ordinal, found)).unwrap();
                }
            });
        }
        drop(sender);
        let mut done = vec![false; usize::try_from(tables).unwrap()];
        let mut lines = 0;
        for (ordinal, found) in results {
            summary.add(&found);
            done[usize::try_from(ordinal).unwrap()] = true;
            // Tables end in any order: a run resumes at the first that has not.
            let complete = done.iter().take_while(|done| **done).count() as u64;
            if complete / TABLES_PER_LINE > lines {
                lines = complete / TABLES_PER_LINE;
                let rate = summary.trials() as f64 / start.elapsed().as_secs_f64();
                let resume = seed.wrapping_add(complete);
                println!("{} trials, {rate:.0} per second; resume with SEED={resume}", summary.trials());
            }
        }
    });
    let rate = summary.trials() as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} trials per second on {threads} threads; {}", summary.shares());
    summary
}

/// Runs one trial of the table of a seed.
pub fn run_one(seed: u64, trial: u64) -> Summary {
    alone(run_table(seed, trial..trial + 1))
}

/// Runs a future on this thread: what it does depends on no other thread.
fn alone<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Two sessions over one table: one uses the indexes, the other does not.
struct Pair {
    indexed: LakemarkSession,
    unindexed: LakemarkSession,
}

impl Pair {
    async fn open(table: &RandomTable, rng: &mut StdRng) -> Self {
        let partitions = *column::pick(rng, &[1, 1, 3]);
        let batch_size = *column::pick(rng, &[7, 64, 8192, 8192]);
        let sessions = [true, false].map(|use_index| {
            let location = if use_index { table.location() } else { table.plain_location() };
            let location = location.display().to_string();
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
                // Small as the tables are, lookups in most of them find their files as in large ones.
                if batch_size > 7 {
                    session.table(&"t".into()).await.unwrap().narrow_always();
                }
                session
            }
        });
        let [indexed, unindexed] = sessions;
        Self { indexed: indexed.await, unindexed: unindexed.await }
    }

    /// Both answers to one statement.
    async fn ask(&self, shape: &Shape, tree: &Tree) -> (Answer, Answer) {
        let sql = shape.sql(tree);
        (ask(&self.indexed, shape, &sql).await, ask(&self.unindexed, shape, &sql).await)
    }

    /// The answer without the indexes, if the one with them agrees with it.
    async fn agreed(&self, shape: &Shape, tree: &Tree) -> Option<Answer> {
        let (indexed, unindexed) = self.ask(shape, tree).await;
        if !same(shape, &indexed, &unindexed) {
            return None;
        }
        // Any rows will do for a LIMIT, but only rows of the predicate, and as many as there are.
        let Shape::Limit(limit) = shape else { return Some(unindexed) };
        let all = ask(&self.unindexed, &Shape::Rows, &Shape::Rows.sql(tree)).await;
        indexed.is_part_of(&all, *limit).then_some(unindexed)
    }

    /// Whether the session with the indexes takes a statement for a lookup: its condition is in no plan then.
    async fn looks_up(&self, shape: &Shape, tree: &Tree) -> bool {
        let Ok(frame) = self.indexed.sql(&shape.sql(tree)).await else { return false };
        !matches!(shape, Shape::Count) && !frame.logical_plan().display_indent().to_string().contains("Filter")
    }

    async fn agree(&self, shape: &Shape, tree: &Tree) -> bool {
        self.agreed(shape, tree).await.is_some()
    }
}

async fn run_table(seed: u64, trials: Range<u64>) -> Summary {
    let table = RandomTable::create(seed).await;
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    let pair = Pair::open(&table, &mut rng).await;
    let mut summary = Summary::default();
    let keeper = match table.changed_rows() {
        Some(rows) => Some(Keeper::new(table.location(), rows.clone(), seed).await),
        None => None,
    };
    if let Some(keeper) = &keeper {
        for trial in 0..trials.start {
            keeper.before(trial).await.await;
        }
    }
    let is_whole_run = trials.start == 0;
    for trial in trials {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(trial));
        let depth = rng.random_range(0..4);
        let aim = Aim::random(&mut rng, &table);
        let tree = Tree::random(&mut rng, aim, depth);
        let shape = Shape::random(&mut rng, &table.columns);
        let agreed = match &keeper {
            Some(keeper) => {
                let beside = keeper.before(trial).await;
                tokio::join!(pair.agreed(&shape, &tree), beside).0
            }
            None => pair.agreed(&shape, &tree).await,
        };
        summary.lookups += u64::from(pair.looks_up(&shape, &tree).await);
        match agreed {
            Some(answer) => {
                let rows = answer.table_rows(&shape);
                summary.passed += 1;
                summary.errors += u64::from(rows.is_none());
                summary.empty += u64::from(rows == Some(0));
                summary.whole += u64::from(rows == Some(table.rows));
            }
            None => {
                summary.failed += 1;
                report(&pair, &table, seed, trial, &shape, &tree).await;
            }
        }
    }
    // Behind all that was done to the table in between.
    if is_whole_run {
        summary.add(&walks::run(&pair, &table, seed).await);
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
    let (indexed, unindexed) = pair.ask(&shape, &smallest).await;
    println!(
        "DIFFERENCE seed {seed} trial {trial}\n  table: {}\n  asked: {}\n  cut down: {}\n  indexes on:  {indexed}\n  indexes off: {unindexed}\n  again: make fuzz NAME=queries SEED={seed} TRIAL={trial}",
        table.description,
        shape.sql(tree),
        shape.sql(&smallest),
    );
}

#[cfg(test)]
mod tests {
    use super::{RandomTable, Summary, alone, joins, pages, run, run_all, run_one, run_table};

    /// A taste; `make fuzz NAME=queries` runs 10,000 in CI and any number by hand.
    const TRIALS: u64 = 500;
    const TABLES: u64 = 40;
    const STATEMENTS: u64 = 150;

    #[test]
    fn law_1_random_queries_answer_the_same_with_and_without_indexes() {
        let summary: Summary = run(TRIALS, 1);
        assert_eq!((summary.passed, summary.failed), (TRIALS, 0));
        // A run in which many answers are an error, empty or all rows would prove little.
        assert!(summary.errors * 20 < TRIALS, "{} answers are errors", summary.errors);
        assert!(summary.empty * 5 < TRIALS, "{} answers are empty", summary.empty);
        assert!(summary.whole * 5 < TRIALS, "{} answers are all rows", summary.whole);
        assert!(summary.lookups * 50 > TRIALS, "{} trials are lookups", summary.lookups);
    }

    #[test]
    fn law_1_random_walks_are_those_of_the_rows() {
        let summary: Summary = run_all(TABLES, 1, 1, |seed, range| alone(run_table(seed, range)));
        assert_eq!((summary.passed, summary.failed), (TABLES, 0));
        assert!(summary.walks > 200, "{} walks", summary.walks);
    }

    #[test]
    fn law_1_random_joins_answer_the_same_with_and_without_indexes_and_in_memory() {
        let summary: Summary = joins::run(STATEMENTS, 1);
        assert_eq!((summary.passed, summary.failed), (STATEMENTS, 0));
        assert!(summary.errors * 20 < STATEMENTS, "{} answers are errors", summary.errors);
        assert!(summary.empty * 2 < STATEMENTS, "{} answers are empty", summary.empty);
        assert!(summary.spared * 50 < STATEMENTS, "{} answers stand beside an error", summary.spared);
    }

    #[test]
    fn law_random_queries_at_once_that_share_pages_answer_as_alone() {
        let found = alone(pages::run(1..13, 12));
        assert_eq!((found.failed, found.asked > 500), (0, true), "{found:?}");
        assert!(found.pages_shared > 100 && found.errors * 20 < found.asked, "{found:?}");
    }

    #[test]
    fn one_statement_of_a_seed_is_the_same_alone_as_in_a_run() {
        assert_eq!((joins::run_one(3, 7).passed, joins::run_one(3, 7)), (1, joins::run_one(3, 7)));
    }

    /// Delta tables among them, with mapped columns, deleted rows and buffered changes.
    #[test]
    fn random_tables_are_of_every_kind() {
        let described = |seed| alone(async move { RandomTable::create(seed).await.description });
        let tables: Vec<String> = (1..=TABLES).map(described).collect();
        let with = |parts: &[&str]| tables.iter().filter(|table| parts.iter().all(|part| table.contains(part))).count();
        assert!(with(&["files:"]) == tables.len() && with(&["changes:"]) > 5 && with(&["Delta"]) > 5);
        for kind in ["rows hidden", "columns mapped", "columns mapped; changes:", "Whole on", "Half on", "Stale on"] {
            assert!(with(&["Delta", kind]) > 0, "no Delta table of {TABLES} is {kind}");
        }
        assert!(with(&["Delta", " 0 rows hidden"]) < with(&["Delta"]));
    }

    #[test]
    fn one_trial_of_a_table_is_the_same_alone_as_in_a_run() {
        let together = alone(run_table(3, 0..8));
        let mut alone = Summary::default();
        for trial in 0..8 {
            alone.add(&run_one(3, trial));
        }
        assert_eq!((alone, alone.passed), (together, 8));
    }
}
