//! Random statements over several tables: joins, subqueries, set operations, groups, windows, and orders with a limit.
//!
//! Judges of the answer with indexes are the answer without, and that over tables in memory of the same rows: what the engine hands down to
//! a scan it cannot hand down to those, so that a filter of the wrong table is seen even where it is wrong without an index, too. The rows
//! in memory are those of the scan without indexes, which is compared with the scan with indexes first.
//!
//! The statement without indexes is asked where the two others differ, and else of every fourth statement only: it takes as long as they do.
//!
//! Answers agree if their rows do, in order where the statement has one, or if all are errors. Beside an error an answer may stand for two
//! reasons (`docs/limits.md`), and all that are no errors must be the same then:
//!
//! * The statement has an expression that raises an error for a row. An index, a filter that a join learned, and the order of joins, which
//!   follows row counts, leave the row out or do not.
//! * The engine has no plan of the statement over tables in memory, by an error of its own that [`UNPLANNED`] names.

mod condition;
mod source;
mod statement;
#[cfg(not(test))]
mod written;

use std::ops::Range;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::datasource::MemTable;
use lakemark_datafusion::LakemarkSession;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::answer::{Answer, ask_sql};
use super::column::pick;
use super::table::{Manner, RandomTable};
use super::{Summary, alone, run_all};

use self::source::{NamedTable, Tables};
use self::statement::Statement;
#[cfg(not(test))]
pub use self::written::write;

/// Statements that the tables of one seed serve.
pub const STATEMENTS_PER_SEED: u64 = 200;

/// Of so many statements one is asked of all judges in any case.
const STATEMENTS_PER_THOROUGH: u64 = 4;

/// What the number of rows of a table is divided by: joins multiply.
const SMALLER: usize = 4;

/// Runs `statements` statements, as [`super::run`] does with predicates.
pub fn run(statements: u64, seed: u64) -> Summary {
    run_all(statements, STATEMENTS_PER_SEED, seed, |seed, range| alone(run_tables(seed, range)))
}

/// Runs one statement of a seed.
pub fn run_one(seed: u64, statement: u64) -> Summary {
    alone(run_tables(seed, statement..statement + 1))
}

/// The tables of a seed: the second mostly has columns of the first, under the same names, and the third sometimes.
async fn tables(seed: u64, is_common: bool) -> [NamedTable; 3] {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x701);
    let [of_t, of_u, of_v] = [0, 1, 2].map(|place| seed.wrapping_mul(3).wrapping_add(place));
    let is_flat = is_common || rng.random_bool(0.7);
    let manner = Manner { like: &[], smaller: SMALLER, is_flat, is_common, has_links: false };
    let t = RandomTable::create_as(of_t, &manner).await;
    let mut like = |share| if rng.random_bool(share) { t.columns.as_slice() } else { &[] };
    let [like_u, like_v] = [0.8, 0.4].map(&mut like);
    let u = RandomTable::create_as(of_u, &Manner { like: like_u, ..manner }).await;
    let v = RandomTable::create_as(of_v, &Manner { like: like_v, ..manner }).await;
    [("t", t), ("u", u), ("v", v)].map(|(name, table)| NamedTable { name, table })
}

/// Sessions over the same tables: with indexes, without, and with the rows in memory.
struct Judges {
    indexed: LakemarkSession,
    unindexed: LakemarkSession,
    memory: LakemarkSession,
}

/// How the answers to a statement compare.
enum Verdict {
    Agreed(Answer),
    /// Answers stand beside an error, as they may.
    Spared,
    Differ,
}

impl Judges {
    async fn open(tables: &Tables, rng: &mut StdRng) -> Self {
        let settings = Settings::random(rng);
        let indexed = settings.session().await;
        let unindexed = settings.session().await;
        run_sql(&unindexed, "SET lakemark.use_index = false").await;
        let memory = settings.session().await;
        for NamedTable { name, table } in tables {
            for (session, location) in [(&indexed, table.location()), (&unindexed, table.plain_location())] {
                let location = location.display();
                run_sql(session, &format!("CREATE EXTERNAL TABLE {name} STORED AS LAKEMARK LOCATION '{location}'"))
                    .await;
            }
            // Small as the tables are, lookups find their files as in large ones.
            indexed.table(&(*name).into()).await.unwrap().narrow_always();
            let rows = run_sql(&unindexed, &format!("SELECT * FROM {name}")).await;
            let table = in_memory(rng, &indexed, name, rows).await;
            memory.context().register_table(*name, Arc::new(table)).unwrap();
        }
        Self { indexed, unindexed, memory }
    }

    async fn ask(&self, statement: &Statement) -> [Answer; 3] {
        let (sql, ordered) = (statement.sql(), statement.is_ordered());
        [
            ask_sql(&self.indexed, &sql, ordered).await,
            ask_sql(&self.unindexed, &sql, ordered).await,
            ask_sql(&self.memory, &sql, ordered).await,
        ]
    }

    async fn judge(&self, statement: &Statement) -> Verdict {
        verdict(statement.may_raise, self.ask(statement).await)
    }

    /// The same, without the answer without indexes where it is not needed.
    async fn judge_briefly(&self, statement: &Statement) -> Verdict {
        let (sql, ordered) = (statement.sql(), statement.is_ordered());
        let indexed = ask_sql(&self.indexed, &sql, ordered).await;
        let memory = ask_sql(&self.memory, &sql, ordered).await;
        if same(&indexed, &memory) { Verdict::Agreed(indexed) } else { self.judge(statement).await }
    }
}

fn same(one: &Answer, other: &Answer) -> bool {
    match (one, other) {
        (Answer::Rows(one), Answer::Rows(other)) => one == other,
        (Answer::Error(_), Answer::Error(_)) => true,
        _ => false,
    }
}

/// Errors of DataFusion 55 that depend on what it knows of a table beside its rows: a column of one value, or without NULL.
const UNPLANNED: [&str; 2] = ["SanityCheckPlan", "Physical input schema should be the same"];

/// A subquery that DataFusion 55 has no plan for (`docs/limits.md`). Where its optimizer sees that no row can pass, the subquery is gone before
/// it is planned; it sees more of a table in memory, whose filters stay above the scan and whose columns may be without NULL.
const UNPLANNED_SUBQUERY: &str = "Physical plan does not support logical expression ScalarSubquery";

fn is_error(answer: &Answer, texts: &[&str]) -> bool {
    matches!(answer, Answer::Error(text) if texts.iter().any(|error| text.contains(error)))
}

fn verdict(may_raise: bool, answers: [Answer; 3]) -> Verdict {
    let [indexed, unindexed, memory] = &answers;
    if same(indexed, unindexed) && same(unindexed, memory) {
        let [indexed, ..] = answers;
        return Verdict::Agreed(indexed);
    }
    let mut rows = answers.iter().filter(|answer| matches!(answer, Answer::Rows(_)));
    let first = rows.next();
    let rows_agree = rows.all(|other| first.is_some_and(|first| same(first, other)));
    let has_no_rows = matches!(memory, Answer::Rows(rows) if rows.is_empty());
    let has_no_plan = is_error(memory, &UNPLANNED) || has_no_rows && is_error(indexed, &[UNPLANNED_SUBQUERY]);
    let is_legal = may_raise || same(indexed, unindexed) && has_no_plan;
    if rows_agree && is_legal { Verdict::Spared } else { Verdict::Differ }
}

struct Settings(Vec<String>);

impl Settings {
    fn random(rng: &mut StdRng) -> Self {
        let threshold = *pick(rng, &[0, 1 << 20]);
        Self(vec![
            format!("datafusion.execution.target_partitions = {}", pick(rng, &[1, 1, 3])),
            format!("datafusion.execution.batch_size = {}", pick(rng, &[16, 8192, 8192])),
            // Both ways to divide the work of a hash join.
            format!("datafusion.optimizer.hash_join_single_partition_threshold = {threshold}"),
            format!("datafusion.optimizer.hash_join_single_partition_threshold_rows = {threshold}"),
            // Of many joins with fields of structs DataFusion 55 makes no plan with it (`docs/limits.md`).
            "datafusion.optimizer.enable_leaf_expression_pushdown = false".to_owned(),
            // What scans tell and learn.
            format!("datafusion.execution.collect_statistics = {}", rng.random_bool(0.7)),
            format!("lakemark.use_views = {}", rng.random_bool(0.7)),
            format!("lakemark.use_join_keys = {}", rng.random_bool(0.7)),
            format!("lakemark.use_first_rows = {}", rng.random_bool(0.7)),
        ])
    }

    async fn session(&self) -> LakemarkSession {
        let session = LakemarkSession::new();
        for setting in &self.0 {
            run_sql(&session, &format!("SET {setting}")).await;
        }
        session
    }
}

async fn run_sql(session: &LakemarkSession, sql: &str) -> Vec<RecordBatch> {
    session.sql(sql).await.unwrap().collect().await.unwrap()
}

/// The same rows in memory, in one partition or in several.
async fn in_memory(rng: &mut StdRng, session: &LakemarkSession, name: &str, rows: Vec<RecordBatch>) -> MemTable {
    let schema = session.context().table_provider(name).await.unwrap().schema();
    let mut partitions = vec![Vec::new(); *pick(rng, &[1, 2])];
    for (place, batch) in rows.into_iter().enumerate() {
        let batch = RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).unwrap();
        let among = partitions.len();
        partitions[place % among].push(batch);
    }
    MemTable::try_new(schema, partitions).unwrap()
}

async fn run_tables(seed: u64, statements: Range<u64>) -> Summary {
    let tables = tables(seed, false).await;
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    let judges = Judges::open(&tables, &mut rng).await;
    let mut summary = Summary::default();
    for NamedTable { name, table } in &tables {
        let sql = format!("SELECT * FROM {name}");
        let [indexed, unindexed] = [&judges.indexed, &judges.unindexed];
        let (indexed, unindexed) = (ask_sql(indexed, &sql, false).await, ask_sql(unindexed, &sql, false).await);
        if !matches!((&indexed, &unindexed), (Answer::Rows(one), Answer::Rows(other)) if one == other) {
            summary.failed += 1;
            println!(
                "DIFFERENCE seed {seed}: the rows of {name}\n  {}\n  with: {indexed}\n  without: {unindexed}",
                table.description
            );
        }
    }
    for number in statements {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let statement = Statement::random(&mut rng, &tables);
        let verdict = if number.is_multiple_of(STATEMENTS_PER_THOROUGH) {
            judges.judge(&statement).await
        } else {
            judges.judge_briefly(&statement).await
        };
        match verdict {
            Verdict::Agreed(Answer::Rows(rows)) => {
                summary.passed += 1;
                summary.empty += u64::from(rows.is_empty());
            }
            Verdict::Agreed(Answer::Error(text)) => {
                summary.passed += 1;
                summary.errors += 1;
                if std::env::var_os("LAKEMARK_SHOW_ERRORS").is_some() {
                    println!("seed {seed} statement {number}: {text}\n  {}", statement.sql());
                }
            }
            Verdict::Spared => {
                summary.passed += 1;
                summary.spared += 1;
            }
            Verdict::Differ => {
                summary.failed += 1;
                report(&judges, &tables, seed, number, &statement).await;
            }
        }
    }
    summary
}

/// Prints a difference after cutting it down: the smallest statement that still differs.
async fn report(judges: &Judges, tables: &Tables, seed: u64, number: u64, statement: &Statement) {
    let mut smallest = statement.clone();
    'shrink: loop {
        for candidate in smallest.smaller() {
            if matches!(judges.judge(&candidate).await, Verdict::Differ) {
                smallest = candidate;
                continue 'shrink;
            }
        }
        break;
    }
    println!("DIFFERENCE seed {seed} statement {number}");
    for NamedTable { name, table } in tables {
        println!("  {name}: {}", table.description);
    }
    let [indexed, unindexed, memory] = judges.ask(&smallest).await;
    println!(
        "  asked: {}\n  cut down: {}\n  with indexes: {indexed}\n  without:      {unindexed}\n  in memory:    {memory}\n  again: make fuzz NAME=queries SEED={seed} JOIN={number}",
        statement.sql(),
        smallest.sql(),
    );
}

#[cfg(test)]
mod tests {
    use super::source::qualified;
    use super::{Answer, Verdict, verdict};

    #[test]
    fn an_answer_beside_an_error_is_right_only_where_a_row_may_raise_one_or_the_engine_has_no_plan() {
        let rows = |id: &str| Answer::Rows(vec![id.to_owned()]);
        let error = || Answer::Error("divide by zero".to_owned());
        let judged = |may_raise, answers| match verdict(may_raise, answers) {
            Verdict::Agreed(_) => "agreed",
            Verdict::Spared => "spared",
            Verdict::Differ => "differ",
        };
        let unplanned = || Answer::Error("SanityCheckPlan\ncaused by".to_owned());
        let subquery = || Answer::Error(format!("{}(<subquery>)", super::UNPLANNED_SUBQUERY));
        let no_rows = || Answer::Rows(Vec::new());
        for (answers, with_raising, without) in [
            ([rows("1"), rows("1"), rows("1")], "agreed", "agreed"),
            ([error(), error(), error()], "agreed", "agreed"),
            ([rows("1"), error(), error()], "spared", "differ"),
            ([error(), error(), rows("1")], "spared", "differ"),
            ([rows("1"), error(), rows("2")], "differ", "differ"),
            ([rows("1"), rows("2"), error()], "differ", "differ"),
            ([rows("1"), rows("1"), rows("2")], "differ", "differ"),
            ([rows("1"), rows("1"), unplanned()], "spared", "spared"),
            ([rows("1"), rows("2"), unplanned()], "differ", "differ"),
            ([unplanned(), rows("1"), rows("1")], "spared", "differ"),
            ([subquery(), subquery(), no_rows()], "spared", "spared"),
            ([subquery(), subquery(), rows("1")], "spared", "differ"),
            ([subquery(), no_rows(), no_rows()], "spared", "differ"),
            ([error(), error(), no_rows()], "spared", "differ"),
        ] {
            assert_eq!((judged(true, answers.clone()), judged(false, answers)), (with_raising, without));
        }
    }

    #[test]
    fn an_alias_stands_before_columns_and_nowhere_else() {
        for (text, expected) in [
            ("c0 = 'c0' AND id<3", "a.c0 = 'c0' AND a.id<3"),
            ("st['c1'] IS NULL", "a.st['c1'] IS NULL"),
            ("coalesce(c12 = X'0A', false)", "coalesce(a.c12 = X'0A', false)"),
            ("CAST('c0''c1' AS DECIMAL(9, 2)) <= c1", "CAST('c0''c1' AS DECIMAL(9, 2)) <= a.c1"),
        ] {
            assert_eq!(qualified(text, "a"), expected);
        }
    }
}
