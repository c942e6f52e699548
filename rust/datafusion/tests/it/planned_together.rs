//! Equal statements at the same time are planned once, and none is planned in a state that is older than it is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::{ParamValues, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::scalar::ScalarValue;
use futures::future::join_all;
use lakemark_datafusion::{LakemarkSession, LakemarkTable, PlanningCounts, Principal, SharingCounts, rows_of};
use tokio::sync::Semaphore;

use crate::fixture::{create_indexes, folder, open, rows};
use crate::sharing::{SHARED, Shared, clients_get_what_is_expected, is_ordered, keyed, sorted, taken, upsert};

const SUMS: &str = "SELECT k, count(*), sum(id) FROM t GROUP BY k";

/// How many ask at once.
const CLIENTS: usize = 16;

impl Shared {
    async fn asked(&self, sql: &str) -> DataFrame {
        self.session.sql(sql).await.unwrap()
    }

    fn plannings(&self) -> PlanningCounts {
        self.sharing.planning_counts()
    }

    /// Statements that were planned, and those that took the plan of another one.
    fn planned(&self) -> (u64, u64) {
        let PlanningCounts { planned, taken, .. } = self.plannings();
        (planned, taken)
    }
}

async fn given(query: &DataFrame) -> Vec<String> {
    taken(rows_of(query).await.unwrap()).await
}

#[tokio::test]
async fn law_planned_together_is_as_alone_and_equal_statements_are_planned_once() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    for sql in SHARED {
        let shared = Shared::of(&open(folder.path()).await).await;
        shared.set("lakemark.share", "off").await;
        let alone = rows(&shared.session, sql).await;
        shared.set("lakemark.share", "plans").await;
        let queries = join_all((0..CLIENTS).map(|_| shared.asked(sql))).await;
        let streams = join_all(queries.iter().map(rows_of)).await;
        let others = CLIENTS as u64 - 1;
        assert_eq!(shared.plannings(), PlanningCounts { planned: 1, taken: others, made: 1 }, "{sql}");
        assert_eq!(shared.counts(), SharingCounts { hosts: 1, guests: others, detached: 0 }, "{sql}");
        for rows in join_all(streams.into_iter().map(|stream| taken(stream.unwrap()))).await {
            if is_ordered(sql) {
                assert_eq!(rows, alone, "{sql}");
            } else {
                assert_eq!(sorted(rows), sorted(alone.clone()), "{sql}");
            }
        }
    }
}

#[tokio::test]
async fn a_statement_in_flight_is_not_planned_again_by_who_comes_later() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    let first = shared.asked(SUMS).await;
    let expected = sorted(given(&first).await);
    for later in 1..4 {
        // The one before has its rows, and its plan is there as long as it is.
        assert_eq!(sorted(given(&shared.asked(SUMS).await).await), expected);
        assert_eq!(shared.planned(), (1, later));
    }
    // Nobody has it any more: nothing is kept.
    drop(first);
    assert_eq!(sorted(given(&shared.asked(SUMS).await).await), expected);
    assert_eq!(shared.planned(), (2, 3));
    // Rows that somebody takes keep it in flight.
    let running = rows_of(&shared.asked(SUMS).await).await.unwrap();
    assert_eq!(shared.planned(), (3, 3));
    assert_eq!(sorted(given(&shared.asked(SUMS).await).await), expected);
    assert_eq!(shared.planned(), (3, 4));
    assert_eq!(sorted(taken(running).await), expected);
}

#[tokio::test]
async fn law_no_statement_sees_a_state_from_before_it_began() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let table = keyed(folder.path()).await;
    let shared = Shared::of(&table).await;
    let sql = "SELECT count(*), sum(id) FROM t WHERE k = 77 AND abs(id) < 9000";
    let mut queries = Vec::new();
    for changes in 0..4_i64 {
        for _ in 0..3 {
            queries.push((changes, shared.asked(sql).await));
        }
        assert_eq!(shared.planned(), (changes as u64 + 1, 2 * (changes as u64 + 1)));
        upsert(&table, 5000 + changes, 77).await;
        if changes == 1 {
            table.flush().await.unwrap();
        }
    }
    let expected = ["0|NULL", "1|5000", "2|10001", "3|15003"];
    // Each sees the state that it was planned in, also while others run.
    let streams = join_all(queries.iter().rev().map(|(_, query)| rows_of(query))).await;
    for ((changes, _), stream) in queries.iter().rev().zip(streams) {
        assert_eq!(taken(stream.unwrap()).await, [expected[*changes as usize]], "after {changes} changes");
    }
}

#[tokio::test]
async fn statements_whose_names_mean_something_else_by_now_are_planned_anew() {
    let (one, other) = (folder(1), folder(2));
    let shared = Shared::of(&open(one.path()).await).await;
    let count = "SELECT count(*) FROM t WHERE abs(id) >= 0";
    let before = shared.asked(count).await;
    let context = shared.session.context();
    context.deregister_table("t").unwrap();
    assert!(shared.session.sql(count).await.is_err());
    shared.session.register("t", open(other.path()).await).await.unwrap();
    let after = shared.asked(count).await;
    assert_eq!((given(&before).await, given(&after).await), (vec!["1000".to_owned()], vec!["2000".to_owned()]));
    assert_eq!(shared.planned().1, 0);

    let view = "SELECT sum(n) FROM v";
    rows(&shared.session, "CREATE VIEW v AS SELECT abs(id) AS n FROM t WHERE id < 3").await;
    let [first, same] = [shared.asked(view).await, shared.asked(view).await];
    assert_eq!(shared.planned().1, 1);
    rows(&shared.session, "CREATE OR REPLACE VIEW v AS SELECT abs(id) AS n FROM t WHERE id < 4").await;
    let other = shared.asked(view).await;
    assert_eq!(shared.planned().1, 1);
    assert_eq!([given(&first).await, given(&same).await, given(&other).await], [["3"], ["3"], ["6"]]);
}

#[tokio::test]
async fn statements_of_other_settings_functions_values_or_principals_are_planned_apart() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let _first = shared.asked(SUMS).await;
    shared.set("datafusion.execution.batch_size", "100").await;
    let _second = shared.asked(SUMS).await;
    assert_eq!(shared.planned(), (2, 0));
    let _same = shared.asked(SUMS).await;
    assert_eq!(shared.planned(), (2, 1));

    let same = Arc::new(|given: &[ColumnarValue]| Ok(given[0].clone()));
    let function = create_udf("same", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, same);
    shared.session.context().register_udf(function);
    let _third = shared.asked(SUMS).await;
    assert_eq!(shared.planned(), (3, 1));

    // Each of them has a session of its own.
    let ann = shared.session.acting_for(Principal("ann".into()));
    let bob = shared.session.acting_for(Principal("bob".into()));
    let _of_ann = ann.sql(SUMS).await.unwrap();
    let _of_bob = bob.sql(SUMS).await.unwrap();
    assert_eq!(shared.planned(), (5, 1));
    let _of_ann_again = ann.sql(SUMS).await.unwrap();
    assert_eq!(shared.planned(), (5, 2));

    let above = "SELECT count(*) FROM t WHERE abs(id) > $1";
    let asked = async |value: ScalarValue| {
        let query = shared.session.sql_with(above, ParamValues::from(vec![value])).await.unwrap();
        (given(&query).await, query)
    };
    let (ten, _ten) = asked(ScalarValue::from(10_i64)).await;
    let (eleven, _eleven) = asked(ScalarValue::from(11_i64)).await;
    let (narrow, _narrow) = asked(ScalarValue::from(10_i32)).await;
    assert_eq!([ten, eleven, narrow], [["989"], ["988"], ["989"]]);
    assert_eq!(shared.planned(), (8, 2));
    assert_eq!(asked(ScalarValue::from(11_i64)).await.0, ["988"]);
    assert_eq!(shared.planned(), (8, 3));
}

#[tokio::test]
async fn what_may_be_another_plan_each_time_is_planned_for_each() {
    let folder = folder(1);
    let table = keyed(folder.path()).await;
    let shared = Shared::of(&table).await;
    for sql in [
        "SELECT count(*) FROM t WHERE abs(id) < 100 AND now() > TIMESTAMP '2020-01-01 00:00:00'",
        "SELECT count(*) FROM t WHERE abs(id) < 100 AND random() < 2.0",
        "SELECT count(*) FROM t WHERE abs(id) < 100 AND current_date() > DATE '2020-01-01'",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 100) SELECT count(*) FROM r",
    ] {
        let queries = join_all((0..3).map(|_| shared.asked(sql))).await;
        for query in &queries {
            assert_eq!(given(query).await, ["100"], "{sql}");
        }
        assert_eq!(shared.planned().1, 0, "{sql}");
    }
    let before = shared.planned();
    for sql in [
        "EXPLAIN SELECT k FROM t",
        "EXPLAIN ANALYZE SELECT k FROM t",
        "SHOW INDEXES FROM t",
        "SET datafusion.execution.batch_size = 8192",
        "PREPARE p AS SELECT k FROM t",
        "UPDATE t SET k = 3 WHERE id < 5",
    ] {
        shared.asked(sql).await;
        assert_eq!(shared.planned(), before, "{sql}");
    }
    shared.set("lakemark.share", "off").await;
    join_all((0..3).map(|_| shared.asked(SUMS))).await;
    assert_eq!(shared.planned(), before);
}

#[tokio::test]
async fn law_each_of_those_whose_planning_fails_has_its_own_error() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    for sql in ["SELECT nothing FROM t", "SELECT k FROM nowhere", "SELECT k FROM", "SELECT 1; SELECT 2"] {
        let alone = shared.session.sql(sql).await.unwrap_err();
        let failed = join_all((0..4).map(|_| shared.session.sql(sql))).await;
        for error in failed.into_iter().map(Result::unwrap_err) {
            assert_eq!((error.kind(), error.to_string()), (alone.kind(), alone.to_string()), "{sql}");
        }
    }
    // What fails as it runs fails for each, too.
    let queries = join_all((0..3).map(|_| shared.asked("SELECT sum(10 / (id - 500)) FROM t"))).await;
    for stream in join_all(queries.iter().map(rows_of)).await {
        let mut stream = stream.unwrap();
        let error = futures::StreamExt::next(&mut stream).await.unwrap().unwrap_err();
        assert!(error.to_string().to_lowercase().contains("divide by zero"), "{error}");
    }
}

/// A schema whose one table is found when the gate lets one through.
#[derive(Debug)]
struct Gated {
    table: Arc<dyn TableProvider>,
    gate: Semaphore,
    looks: AtomicUsize,
}

#[async_trait]
impl SchemaProvider for Gated {
    fn table_names(&self) -> Vec<String> {
        vec!["t".to_owned()]
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.acquire().await.unwrap());
        Ok((name == "t").then(|| Arc::clone(&self.table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        name == "t"
    }
}

/// A session whose table `gated.t` is found as soon as the gate is open.
async fn gated(folder: &std::path::Path) -> (Shared, Arc<Gated>) {
    let table = open(folder).await;
    let shared = Shared::of(&table).await;
    let provider = Arc::new(LakemarkTable::new(table).await.unwrap());
    let schema = Arc::new(Gated { table: provider, gate: Semaphore::new(0), looks: AtomicUsize::new(0) });
    let catalog = shared.session.context().catalog("datafusion").unwrap();
    catalog.register_schema("gated", Arc::clone(&schema) as _).unwrap();
    (shared, schema)
}

const BEHIND_THE_GATE: &str = "SELECT count(*) FROM gated.t WHERE abs(id) < 100";

#[tokio::test]
async fn the_planning_of_a_cancelled_statement_passes_on() {
    let folder = folder(1);
    let (shared, schema) = gated(folder.path()).await;
    let mut first = Box::pin(shared.session.sql(BEHIND_THE_GATE));
    let mut second = Box::pin(shared.session.sql(BEHIND_THE_GATE));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    assert_eq!(schema.looks.load(Ordering::SeqCst), 1);
    drop(first);
    schema.gate.add_permits(1);
    let query = second.await.unwrap();
    assert_eq!(given(&query).await, ["100"]);
    assert_eq!(shared.planned(), (1, 1));
}

#[tokio::test]
async fn law_nobody_waits_for_a_statement_that_nobody_polls() {
    let folder = folder(1);
    let (shared, schema) = gated(folder.path()).await;
    let mut first = Box::pin(shared.session.sql(BEHIND_THE_GATE));
    assert!(futures::poll!(&mut first).is_pending());
    schema.gate.add_permits(1);
    let second = shared.asked(BEHIND_THE_GATE).await;
    assert_eq!(given(&second).await, ["100"]);
    assert_eq!(given(&first.await.unwrap()).await, ["100"]);
    assert_eq!(shared.planned(), (1, 1));
}

#[tokio::test]
async fn the_rows_of_a_cancelled_statement_pass_on() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    let queries = join_all((0..3).map(|_| shared.asked(SUMS))).await;
    let expected = sorted(given(&queries[0]).await);
    for _ in 0..3 {
        // It may be anywhere between its plan and its rows.
        let mut gone = Box::pin(rows_of(&queries[0]));
        let _ = futures::poll!(&mut gone);
        let mut other = Box::pin(rows_of(&queries[1]));
        let polled = futures::poll!(&mut other);
        drop(gone);
        let other = match polled {
            std::task::Poll::Ready(stream) => stream,
            std::task::Poll::Pending => other.await,
        };
        assert_eq!(sorted(taken(other.unwrap()).await), expected);
        assert_eq!(sorted(given(&queries[2]).await), expected);
    }
}

#[tokio::test]
async fn rows_of_others_are_there_once_an_equal_query_runs_and_whoever_may_takes_them() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    let ready = async |sql: &str| {
        let planned = shared.session.plan(sql, None).await.unwrap();
        shared.session.query_of(planned).await.unwrap()
    };
    let (one, other) = (ready(SUMS).await, ready(SUMS).await);
    assert!(one.statement().is_some() && one.statement() == other.statement());
    let (mut waits, mut may_not) =
        (Box::pin(other.rows_of_others(Some)), Box::pin(other.rows_of_others(|_| None::<()>)));
    assert!(futures::poll!(&mut waits).is_pending() && futures::poll!(&mut may_not).is_pending());
    let host = one.rows().await.unwrap();
    let (given, rows) = waits.await;
    assert_eq!(Some(given), one.statement());
    assert!(futures::poll!(&mut may_not).is_pending());
    let expected = sorted(taken(host).await);
    assert_eq!(sorted(taken(rows).await), expected);
    assert_eq!(shared.counts(), SharingCounts { hosts: 1, guests: 1, detached: 0 });

    // Nobody waits for a plan that each may have to run for itself, nor does a query that nobody else asks.
    for sql in ["SELECT id FROM t WHERE abs(id) < 9", "SELECT count(*), now() FROM t WHERE abs(id) < 9"] {
        let (one, other) = (ready(sql).await, ready(sql).await);
        let _host = one.rows().await.unwrap();
        assert!(futures::poll!(Box::pin(other.rows_of_others(|_| Some(())))).is_pending(), "{sql}");
    }
}

#[tokio::test]
async fn what_a_program_makes_of_a_query_gives_its_own_rows() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let query = shared.asked("SELECT id FROM t WHERE abs(id) < 9 ORDER BY id").await;
    let running = rows_of(&query).await.unwrap();
    let first = query.clone().limit(0, Some(2)).unwrap();
    assert_eq!(given(&first).await, ["0", "1"]);
    let (mut state, plan) = query.clone().into_parts();
    state.config_mut().options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(3).unwrap();
    let other = DataFrame::new(state, plan);
    assert_eq!(given(&other).await.len(), 9);
    assert_eq!(taken(running).await.len(), 9);
    // Neither was taken for what the statement asks.
    assert_eq!(shared.plannings().made, 1);
    let named = shared.session.context().table(TableReference::bare("t")).await.unwrap();
    assert_eq!(given(&named).await.len(), 1000);
}

/// A schema that has the first statement that asks for its one table planned once more.
struct Asking {
    table: Arc<dyn TableProvider>,
    session: LakemarkSession,
    is_first: AtomicBool,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for Asking {
    fn table_names(&self) -> Vec<String> {
        vec!["t".to_owned()]
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        if self.is_first.swap(false, Ordering::SeqCst) {
            self.session.plan(OF_ASKING, None).await.unwrap();
        }
        Ok((name == "t").then(|| Arc::clone(&self.table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        name == "t"
    }
}

const OF_ASKING: &str = "SELECT count(*) FROM asking.t WHERE abs(id) < 100";

#[tokio::test]
async fn law_no_statement_waits_for_itself() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let shared = Shared::of(&table).await;
    let context = shared.session.context();
    let session = LakemarkSession::from_context(context.clone());
    let table = Arc::new(LakemarkTable::new(table).await.unwrap());
    let schema = Asking { table, session, is_first: AtomicBool::new(true) };
    context.catalog("datafusion").unwrap().register_schema("asking", Arc::new(schema)).unwrap();
    assert_eq!(given(&shared.asked(OF_ASKING).await).await, ["100"]);
    // The one within was planned apart.
    assert_eq!(shared.planned(), (1, 0));
}

/// One writes, others read: whoever begins to read after a change was made sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn law_readers_see_what_was_made_before_they_began() {
    let folder = folder(1);
    let table = keyed(folder.path()).await;
    let shared = Arc::new(Shared::of(&table).await);
    let (made, is_over) = (Arc::new(AtomicI64::new(9999)), Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..6)
        .map(|_| {
            let (shared, made, is_over) = (Arc::clone(&shared), Arc::clone(&made), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut read = 0;
                while read == 0 || !is_over.load(Ordering::SeqCst) {
                    let before = made.load(Ordering::SeqCst);
                    let query = shared.asked("SELECT coalesce(max(id), 0) FROM t WHERE abs(id) > 500").await;
                    let rows = given(&query).await;
                    let newest: i64 = rows[0].parse().unwrap();
                    assert!(newest >= before || before == 9999, "{newest} of {before}");
                    read += 1;
                }
                read
            })
        })
        .collect();
    for id in 10_000..10_060 {
        upsert(&table, id, 1).await;
        made.store(id, Ordering::SeqCst);
    }
    is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    assert!(shared.planned().0 > 0);
}

/// Clients that come and go on several threads have the rows that they would have alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn law_planned_together_is_as_alone_on_several_threads() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let shared = Arc::new(Shared::of(&open(folder.path()).await).await);
    let mut expected = BTreeMap::new();
    for sql in SHARED {
        expected.insert(sql, sorted(rows(&shared.session, sql).await));
    }
    let held = shared.asked(SHARED[0]).await;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (shared, expected) = (Arc::clone(&shared), expected.clone());
            tokio::spawn(async move {
                for turn in 0..20 {
                    let sql = SHARED[(client + turn) % 3];
                    let query = shared.asked(sql).await;
                    let stream = rows_of(&query).await.unwrap();
                    // Some go before they have a row.
                    if (client + turn) % 5 != 0 {
                        assert_eq!(sorted(taken(stream).await), expected[sql], "{sql}");
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    // Some of them came while it was in flight.
    assert!(shared.planned().1 > 0);
    drop(held);
    clients_get_what_is_expected(&shared, |shared| &shared.session, expected, 5).await;
}
