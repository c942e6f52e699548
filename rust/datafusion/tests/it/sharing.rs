//! Equal statements at the same time: one execution gives the rows of all, and nobody's answer is another one for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::datasource::MemTable;
use datafusion::error::Result as EngineResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::{ParquetReadOptions, SessionConfig};
use futures::StreamExt;
use lakemark_datafusion::{LakemarkSession, PlanSharing, Principal, SharingCounts};
use lakemark_table::{BuildOptions, Change, ErrorKind, MigrateOptions, Operation, Table, WriteOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{batch, create_indexes, folder, open, rows, text};

/// Statements whose plans are shared.
pub const SHARED: [&str; 12] = [
    "SELECT k, count(*), sum(id) FROM t GROUP BY k",
    "SELECT k, count(*) FROM t WHERE id > 100 GROUP BY k ORDER BY k DESC NULLS LAST",
    "SELECT max(f), min(s), avg(k) FROM t WHERE b",
    "SELECT id, s FROM t WHERE k = 4 AND abs(id) > 30",
    "SELECT * FROM t",
    "SELECT id FROM t ORDER BY s, id LIMIT 7",
    "SELECT DISTINCT s FROM t",
    "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id + 1 WHERE a.k = 3",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) FROM t WHERE id < 300",
    "SELECT id FROM t WHERE k > (SELECT avg(k) FROM t)",
    "SELECT k FROM t WHERE id < 50 UNION ALL SELECT k FROM t WHERE id > 1950",
    "WITH c AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT x.k, y.n FROM c x JOIN c y ON x.k = y.k",
];

/// A session with a registry of its own that knows a table as `t`. It has two partitions, however many cores the machine has, and statements
/// share parts of their plans, however long the machine takes from one to the next.
pub struct Shared {
    pub session: LakemarkSession,
    pub sharing: Arc<PlanSharing>,
}

impl Shared {
    pub async fn of(table: &Arc<Table>) -> Self {
        Self::with(table, SessionConfig::new()).await
    }

    async fn with(table: &Arc<Table>, config: SessionConfig) -> Self {
        let sharing = Arc::new(PlanSharing::sharing_always());
        let config = config.with_information_schema(true).with_target_partitions(2);
        let config = config.with_extension(Arc::clone(&sharing));
        let session = LakemarkSession::with_config(config);
        session.register("t", Arc::clone(table)).await.unwrap();
        Self { session, sharing }
    }

    pub async fn set(&self, name: &str, value: &str) {
        rows(&self.session, &format!("SET {name} = {value}")).await;
    }

    /// A statement that runs as soon as its rows are taken, and that others may join.
    pub async fn begin(&self, sql: &str) -> SendableRecordBatchStream {
        self.session.sql(sql).await.unwrap().execute_stream().await.unwrap()
    }

    pub fn counts(&self) -> SharingCounts {
        self.sharing.counts()
    }
}

pub async fn taken(mut stream: SendableRecordBatchStream) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await {
        found.extend(text(&batch.unwrap()));
    }
    found
}

pub fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

pub fn is_ordered(sql: &str) -> bool {
    sql.contains("ORDER BY") && !sql.contains("OVER")
}

pub async fn keyed(folder: &Path) -> Arc<Table> {
    let table = open(folder).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    table
}

pub async fn upsert(table: &Arc<Table>, id: i64, k: i32) {
    let id: ArrayRef = Arc::new(Int64Array::from(vec![id]));
    let k: ArrayRef = Arc::new(Int32Array::from(vec![k]));
    let rows = RecordBatch::try_from_iter([("id", id), ("k", k)]).unwrap();
    table.write(vec![Change { operation: Operation::Upsert, rows }], WriteOptions::default()).await.unwrap();
}

#[tokio::test]
async fn law_shared_is_as_off_and_equal_statements_run_once() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    for (number, sql) in SHARED.into_iter().enumerate() {
        shared.set("lakemark.share", "off").await;
        let alone = rows(&shared.session, sql).await;
        let before = shared.counts();
        assert_eq!(before.hosts, number as u64);
        shared.set("lakemark.share", "plans").await;
        let [host, guest, late] = [shared.begin(sql).await, shared.begin(sql).await, shared.begin(sql).await];
        let counts = shared.counts();
        assert_eq!((counts.hosts - before.hosts, counts.guests - before.guests), (1, 2), "{sql}");
        // The last one that came takes first.
        for rows in [taken(late).await, taken(guest).await, taken(host).await] {
            if is_ordered(sql) {
                assert_eq!(rows, alone, "{sql}");
            } else {
                assert_eq!(sorted(rows), sorted(alone.clone()), "{sql}");
            }
        }
        assert_eq!(shared.counts().detached, before.detached, "{sql}");
    }
}

#[tokio::test]
async fn statements_one_after_the_other_share_nothing() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    for _ in 0..3 {
        assert_eq!(rows(&shared.session, "SELECT sum(id) FROM t WHERE k = 1").await.len(), 1);
    }
    assert_eq!(shared.counts(), SharingCounts { hosts: 3, guests: 0, detached: 0 });
}

#[tokio::test]
async fn what_may_give_something_else_each_time_is_never_shared() {
    let folder = folder(1);
    let table = keyed(folder.path()).await;
    let shared = Shared::of(&table).await;
    let context = shared.session.context();
    context.register_parquet("plain", folder.path().to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    let memory = MemTable::try_new(batch(0).schema(), vec![vec![batch(0)]]).unwrap();
    context.register_table("held", Arc::new(memory)).unwrap();
    for (name, volatility) in [("changing", Volatility::Volatile), ("steady", Volatility::Stable)] {
        let same = Arc::new(|given: &[ColumnarValue]| Ok(given[0].clone()));
        context.register_udf(create_udf(name, vec![DataType::Int64], DataType::Int64, volatility, same));
    }
    for sql in [
        "SELECT sum(id) FROM t WHERE random() < 2.0",
        "SELECT changing(id) FROM t",
        "SELECT steady(id) FROM t",
        "SELECT sum(id) FROM plain",
        "SELECT sum(id) FROM held",
        "SELECT count(*) FROM t JOIN held ON t.id = held.id WHERE t.k = 3 AND abs(held.k) = 3",
        "SELECT 1 + 1",
        "EXPLAIN SELECT k, count(*) FROM t GROUP BY k",
        "SHOW INDEXES FROM t",
        "CREATE TABLE made AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "WITH RECURSIVE r AS (SELECT min(id) AS n FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "INSERT INTO t SELECT id + 5000, k, f, s, b, \"Mixed Case\" FROM t WHERE id < 10",
        "UPDATE t SET k = 3 WHERE id < 5",
        "DELETE FROM t WHERE id < 3",
    ] {
        let one = shared.begin(sql).await;
        if let Ok(other) = shared.session.sql(sql).await {
            taken(other.execute_stream().await.unwrap()).await;
        }
        taken(one).await;
        assert_eq!(shared.counts(), SharingCounts::default(), "{sql}");
    }
}

#[tokio::test]
async fn statements_that_differ_share_nothing() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let sql = "SELECT k, sum(id) FROM t WHERE id > 10 GROUP BY k";
    let host = shared.begin(sql).await;
    for other in [
        "SELECT k, sum(id) FROM t WHERE id > 11 GROUP BY k",
        "SELECT k, max(id) FROM t WHERE id > 10 GROUP BY k",
        "SELECT k, sum(u.id) FROM t u WHERE id > 10 GROUP BY k",
    ] {
        taken(shared.begin(other).await).await;
    }
    shared.set("datafusion.execution.batch_size", "100").await;
    taken(shared.begin(sql).await).await;
    assert_eq!(shared.counts(), SharingCounts { hosts: 5, guests: 0, detached: 0 });
    // With the settings of the host, the same words are the same statement.
    shared.set("datafusion.execution.batch_size", "8192").await;
    taken(shared.begin(sql).await).await;
    assert_eq!(shared.counts().guests, 1);
    taken(host).await;
}

#[tokio::test]
async fn moments_of_different_zones_are_not_taken_for_each_other() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let in_zone = |zone: &str| {
        let moment = format!("arrow_cast(1704067200, 'Timestamp(Second, Some(\"{zone}\"))')");
        format!("SELECT CAST(CASE WHEN id > 998 THEN {moment} END AS VARCHAR) AS x FROM t WHERE id > 997")
    };
    let zones = ["Europe/Berlin", "America/New_York"].map(in_zone);
    shared.set("lakemark.share", "off").await;
    let alone = [rows(&shared.session, &zones[0]).await, rows(&shared.session, &zones[1]).await];
    assert_ne!(alone[0], alone[1]);
    shared.set("lakemark.share", "plans").await;
    let [one, other] = [shared.begin(&zones[0]).await, shared.begin(&zones[1]).await];
    let (one, other) = tokio::join!(taken(one), taken(other));
    assert_eq!([one, other].map(sorted), alone.map(sorted));
    assert_eq!(shared.counts(), SharingCounts { hosts: 2, guests: 0, detached: 0 });
}

#[tokio::test]
async fn functions_of_one_name_are_not_taken_for_each_other() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let adding = |more: i64| {
        let add = move |given: &[ColumnarValue]| -> EngineResult<ColumnarValue> {
            let values = ColumnarValue::values_to_arrays(given)?;
            let values = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&values[0]);
            Ok(ColumnarValue::Array(Arc::new(values.unary::<_, arrow::datatypes::Int64Type>(|value| value + more))))
        };
        create_udf("more", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, Arc::new(add))
    };
    let sql = "SELECT more(id) FROM t WHERE id = 7 AND abs(k) = 7";
    shared.session.context().register_udf(adding(1));
    let host = shared.begin(sql).await;
    shared.session.context().register_udf(adding(100));
    let other = shared.begin(sql).await;
    assert_eq!((taken(host).await, taken(other).await), (vec!["8".to_owned()], vec!["107".to_owned()]));
    assert_eq!(shared.counts().guests, 0);
}

#[tokio::test]
async fn principals_share_nothing_with_each_other() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let sharing = Arc::new(PlanSharing::new());
    let plain = LakemarkSession::new();
    let runtime = plain.context().runtime_env();
    let session = async |principal: Option<&str>| {
        let mut config = SessionConfig::new().with_target_partitions(2).with_extension(Arc::clone(&sharing));
        if let Some(name) = principal {
            config = config.with_extension(Arc::new(Principal(name.into())));
        }
        let state = lakemark_datafusion::session_context(config).state();
        let state = datafusion::execution::SessionStateBuilder::new_from_existing(state);
        let state = state.with_runtime_env(Arc::clone(&runtime)).build();
        let session = LakemarkSession::from_context(datafusion::prelude::SessionContext::new_with_state(state));
        session.register("t", Arc::clone(&table)).await.unwrap();
        session
    };
    let sql = "SELECT k, sum(id) FROM t GROUP BY k";
    let mut running = Vec::new();
    for (principal, guests) in [(None, 0), (Some("ann"), 0), (Some("bob"), 0), (Some("ann"), 1), (None, 2)] {
        let session = session(principal).await;
        running.push(session.sql(sql).await.unwrap().execute_stream().await.unwrap());
        assert_eq!(sharing.counts().guests, guests, "{principal:?}");
    }
    // A session for somebody has the tables of the one that it was made of, also those that come later.
    let late = session(None).await;
    let ann = late.acting_for(Principal("ann".into()));
    late.register("u", Arc::clone(&table)).await.unwrap();
    for (sql, guests) in [(sql, 3), ("SELECT k, sum(id) FROM u GROUP BY k", 3)] {
        running.push(ann.sql(sql).await.unwrap().execute_stream().await.unwrap());
        assert_eq!(sharing.counts().guests, guests);
    }
    for stream in running {
        assert_eq!(taken(stream).await.len(), 11);
    }
}

#[tokio::test]
async fn law_nothing_stale_is_shared_after_a_change() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let table = keyed(folder.path()).await;
    let shared = Shared::of(&table).await;
    let sql = "SELECT count(*), sum(id) FROM t WHERE k = 77 AND abs(id) < 9000";
    let mut running = Vec::new();
    for changes in 0..4_i64 {
        running.push((changes, shared.begin(sql).await));
        running.push((changes, shared.begin(sql).await));
        assert_eq!(shared.counts().hosts, changes as u64 + 1);
        match changes {
            // Buffered, in a run, in data files.
            0 => upsert(&table, 1, 77).await,
            1 => {
                upsert(&table, 5000, 77).await;
                table.flush().await.unwrap();
            }
            _ => {
                upsert(&table, 5001, 77).await;
                table.migrate(MigrateOptions::default()).await.unwrap();
            }
        }
    }
    let expected = ["0|NULL", "1|1", "2|5001", "3|10002"];
    for (changes, stream) in running.into_iter().rev() {
        assert_eq!(taken(stream).await, [expected[changes as usize]], "after {changes} changes");
    }
    assert_eq!(shared.counts(), SharingCounts { hosts: 4, guests: 4, detached: 0 });
}

#[tokio::test]
async fn the_work_of_a_cancelled_statement_passes_on() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    let sql = "SELECT k, count(*), sum(id) FROM t GROUP BY k";
    let expected = sorted(rows(&shared.session, sql).await);
    let mut host = shared.begin(sql).await;
    let guest = shared.begin(sql).await;
    assert!(host.next().await.unwrap().is_ok());
    drop(host);
    let late = shared.begin(sql).await;
    assert_eq!(sorted(taken(guest).await), expected);
    assert_eq!(sorted(taken(late).await), expected);
    assert_eq!(shared.counts(), SharingCounts { hosts: 2, guests: 2, detached: 0 });
}

#[tokio::test]
async fn law_sharing_adds_no_error_to_a_statement_that_fails() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let sql = "SELECT sum(10 / (id - 500)) FROM t";
    let running = [shared.begin(sql).await, shared.begin(sql).await];
    for mut stream in running {
        let error = stream.next().await.unwrap().unwrap_err();
        assert!(error.to_string().to_lowercase().contains("divide by zero"), "{error}");
        assert!(stream.next().await.is_none());
    }
    assert_eq!(shared.counts(), SharingCounts { hosts: 1, guests: 1, detached: 1 });
}

#[tokio::test]
async fn the_setting_says_what_there_is_to_choose() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    for refused in ["joins", "on", "''"] {
        let set = shared.session.sql(&format!("SET lakemark.share = {refused}")).await;
        let error = match set {
            Ok(frame) => lakemark_datafusion::from_engine(frame.collect().await.unwrap_err()),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains("lakemark.share is off, plans, pages or stars"), "{error}");
    }
    shared.set("lakemark.share", "off").await;
    let sql = "SELECT k, count(*) FROM t GROUP BY k";
    let one = shared.begin(sql).await;
    assert_eq!(sorted(taken(shared.begin(sql).await).await), sorted(taken(one).await));
    assert_eq!(shared.counts(), SharingCounts::default());
}

#[tokio::test]
async fn explain_analyze_runs_its_own_plan_and_others_may_take_its_rows() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let sql = "SELECT k, count(*) FROM t GROUP BY k";
    let host = shared.begin(sql).await;
    let alone = rows(&shared.session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(alone.contains("shared_role=alone") && alone.contains("AggregateExec"), "{alone}");
    assert_eq!(shared.counts().guests, 0);
    drop(host);
    let analyzed = shared.begin(&format!("EXPLAIN ANALYZE {sql}")).await;
    let analyzing = tokio::spawn(taken(analyzed));
    let shown = analyzing.await.unwrap().join("\n");
    assert!(shown.contains("shared_role=host") && shown.contains("batches_shared=0"), "{shown}");
    let plan = rows(&shared.session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(!plan.contains("SharedExec"), "{plan}");
}

/// A statement that runs, and what it has to give.
struct Running {
    sql: &'static str,
    stream: SendableRecordBatchStream,
    given: Vec<String>,
    expected: Vec<String>,
}

/// Statements that come, take, stall and go in any order, with changes of the table between them, each give the rows of their snapshot.
#[tokio::test]
async fn law_shared_is_as_off_under_any_interleaving() {
    for seed in 0..6 {
        let mut rng = StdRng::seed_from_u64(seed);
        let folder = folder(2);
        create_indexes(folder.path(), &["k", "s"]).await;
        let table = keyed(folder.path()).await;
        let shared = Shared::of(&table).await;
        let judge = LakemarkSession::new();
        judge.register("t", Arc::clone(&table)).await.unwrap();
        rows(&judge, "SET lakemark.share = off").await;
        let mut running: Vec<Running> = Vec::new();
        for step in 0..150 {
            let place = rng.random_range(0..8);
            match rng.random_range(0..12) {
                0..4 => {
                    let sql = SHARED[rng.random_range(0..4)];
                    let (stream, expected) = (shared.begin(sql).await, sorted(rows(&judge, sql).await));
                    running.push(Running { sql, stream, given: Vec::new(), expected });
                }
                4 if place < running.len() => drop(running.remove(place)),
                5 if step % 3 == 0 => upsert(&table, rng.random_range(0..3000), rng.random_range(0..12)).await,
                _ => {
                    let Some(own) = running.get_mut(place) else { continue };
                    if let Some(batch) = own.stream.next().await {
                        own.given.extend(text(&batch.unwrap()));
                    }
                }
            }
        }
        for Running { sql, stream, mut given, expected } in running {
            given.extend(taken(stream).await);
            assert_eq!(sorted(given), expected, "seed {seed}: {sql}");
        }
        let counts = shared.counts();
        assert!(counts.guests > 0 && counts.hosts > 1, "seed {seed}: {counts:?}");
    }
}

/// Sixteen clients on threads of their own ask statements in any order, each so often. Of some they take a batch, and go; of all others they
/// get what is expected.
pub async fn clients_get_what_is_expected<S: Send + Sync + 'static>(
    asked: &Arc<S>,
    session: fn(&S) -> &LakemarkSession,
    expected: BTreeMap<&'static str, Vec<String>>,
    times: usize,
) {
    let expected: Arc<Vec<(&str, Vec<String>)>> = Arc::new(expected.into_iter().collect());
    let clients = (0..16).map(|client| {
        let (asked, expected) = (Arc::clone(asked), Arc::clone(&expected));
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(client);
            for _ in 0..times {
                let (sql, expected) = &expected[rng.random_range(0..expected.len())];
                let mut stream = session(&asked).sql(sql).await.unwrap().execute_stream().await.unwrap();
                if rng.random_bool(0.2) {
                    stream.next().await;
                    continue;
                }
                assert_eq!(sorted(taken(stream).await), *expected, "{sql}");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

/// The same on several threads, which neither wait for nor disturb each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn law_shared_is_as_off_on_several_threads() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k"]).await;
    let shared = Arc::new(Shared::of(&open(folder.path()).await).await);
    let mut expected = BTreeMap::new();
    for sql in SHARED {
        expected.insert(sql, sorted(rows(&shared.session, sql).await));
    }
    clients_get_what_is_expected(&shared, |shared| &shared.session, expected, 30).await;
    assert!(shared.counts().guests > 0);
}

/// Different statements with an aggregate in common.
const WITH_AGGREGATE: [&str; 3] = [
    "SELECT k, count(*) AS n, sum(id) AS s FROM t WHERE id > 7 GROUP BY k ORDER BY s",
    "SELECT k, n FROM (SELECT k, count(*) AS n, sum(id) AS s FROM t WHERE id > 7 GROUP BY k) WHERE s > 10",
    "SELECT k, s / n FROM (SELECT k, count(*) AS n, sum(id) AS s FROM t WHERE id > 7 GROUP BY k) WHERE n > 1",
];

#[tokio::test]
async fn different_statements_share_the_aggregates_that_they_have_in_common() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    shared.set("lakemark.share", "off").await;
    let mut alone = Vec::new();
    for sql in WITH_AGGREGATE {
        alone.push(sorted(rows(&shared.session, sql).await));
    }
    shared.set("lakemark.share", "plans").await;
    let [one, two, three] = WITH_AGGREGATE;
    let [one, two, three] = [shared.begin(one).await, shared.begin(two).await, shared.begin(three).await];
    let (one, two, three) = tokio::join!(taken(one), taken(two), taken(three));
    assert_eq!([one, two, three].map(sorted).as_slice(), alone);
    // Nobody had the aggregate when the first statement was planned. The others make it once.
    assert_eq!(shared.counts(), SharingCounts { hosts: 4, guests: 1, detached: 0 });
}

#[tokio::test]
async fn different_statements_share_the_small_inputs_of_their_joins() {
    let (small, large) = (folder(1), folder(9));
    // Whoever builds an index knows how many rows there are.
    create_indexes(small.path(), &["k"]).await;
    create_indexes(large.path(), &["k"]).await;
    let shared = Shared::of(&open(small.path()).await).await;
    shared.session.register("u", open(large.path()).await).await.unwrap();
    // The second statement makes the input for whoever comes, unless it is one that is not shared.
    for (rows, hosts) in [("abs(k) = 3", 3), ("abs(k) = 4 ORDER BY s, id LIMIT 900", 2)] {
        let join = format!("FROM u JOIN (SELECT id FROM t WHERE {rows}) AS x ON u.id = x.id");
        let before = shared.counts().hosts;
        let one = shared.begin(&format!("SELECT max(u.k) {join}")).await;
        let other = shared.begin(&format!("SELECT min(u.k) {join}")).await;
        assert_eq!(taken(one).await, taken(other).await, "{rows}");
        assert_eq!(shared.counts().hosts - before, hosts, "{rows}");
    }
}

#[tokio::test]
async fn different_statements_one_after_the_other_keep_their_plans() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    for sql in WITH_AGGREGATE.into_iter().cycle().take(6) {
        rows(&shared.session, sql).await;
    }
    assert_eq!(shared.counts(), SharingCounts { hosts: 6, guests: 0, detached: 0 });
}
