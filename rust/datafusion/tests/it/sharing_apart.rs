//! Statements that look alike, at the same time, and whose rows are others: none takes those of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, ColumnarValue, ScalarUDF, Volatility, create_udaf, create_udf,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use datafusion::variable::{VarProvider, VarType};
use lakemark_datafusion::LakemarkSession;

use crate::delta;
use crate::differential::{commit, vector};
use crate::fixture::{create_indexes, folder, open, rows};
use crate::sharing::{Shared, sorted, taken};

/// Statements that differ in as little as a word, a sign or a flag.
const PAIRS: [[&str; 2]; 19] = [
    [
        "SELECT id * CAST(1.10 AS DECIMAL(10, 2)) FROM t WHERE id < 9",
        "SELECT id * CAST(1.10 AS DECIMAL(10, 3)) FROM t WHERE id < 9",
    ],
    [
        "SELECT CASE WHEN id >= 0 THEN CAST('0.0' AS DOUBLE) END FROM t WHERE id < 5",
        "SELECT CASE WHEN id >= 0 THEN CAST('-0.0' AS DOUBLE) END FROM t WHERE id < 5",
    ],
    ["SELECT id FROM t WHERE regexp_like(s, 'AB')", "SELECT id FROM t WHERE regexp_like(s, 'AB', 'i')"],
    ["SELECT id FROM t WHERE s LIKE 'AB%'", "SELECT id FROM t WHERE s ILIKE 'AB%'"],
    ["SELECT k, count(b) FROM t GROUP BY k", "SELECT k, count(DISTINCT b) FROM t GROUP BY k"],
    ["SELECT sum(id) FILTER (WHERE b) FROM t", "SELECT sum(id) FILTER (WHERE NOT b) FROM t"],
    [
        "SELECT id, sum(k) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT id, sum(k) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
    ],
    [
        "SELECT id, first_value(k) IGNORE NULLS OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT id, first_value(k) RESPECT NULLS OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
    ],
    [
        "SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id + 990",
        "SELECT a.id, b.id FROM t a LEFT JOIN t b ON a.id = b.id + 990",
    ],
    [
        "SELECT id FROM t WHERE k IN (SELECT k FROM t WHERE id < 3)",
        "SELECT id FROM t WHERE k NOT IN (SELECT k FROM t WHERE id < 3)",
    ],
    ["SELECT k FROM t UNION SELECT k FROM t", "SELECT k FROM t UNION ALL SELECT k FROM t"],
    ["SELECT id FROM t ORDER BY id LIMIT 5", "SELECT id FROM t ORDER BY id DESC LIMIT 5"],
    ["SELECT id FROM t ORDER BY id LIMIT 5 OFFSET 1", "SELECT id FROM t ORDER BY id LIMIT 5 OFFSET 2"],
    ["SELECT id FROM t ORDER BY k NULLS FIRST, id LIMIT 3", "SELECT id FROM t ORDER BY k NULLS LAST, id LIMIT 3"],
    ["SELECT b, k, count(*) FROM t GROUP BY ROLLUP (b, k)", "SELECT b, k, count(*) FROM t GROUP BY CUBE (b, k)"],
    [
        "WITH c AS (SELECT id FROM t WHERE k = 1) SELECT max(id), count(*) FROM c",
        "WITH c AS (SELECT id FROM t WHERE k = 2) SELECT max(id), count(*) FROM c",
    ],
    [
        "SELECT a.id FROM t a WHERE a.id < 50 AND a.k < (SELECT max(b.k) FROM t b WHERE b.id = a.id + 1)",
        "SELECT a.id FROM t a WHERE a.id < 50 AND a.k < (SELECT max(b.k) FROM t b WHERE b.id = a.id + 2)",
    ],
    [
        "SELECT id FROM t WHERE k > (SELECT avg(k) FROM t WHERE id < 10)",
        "SELECT id FROM t WHERE k > (SELECT avg(k) FROM t WHERE id < 3)",
    ],
    ["SELECT TRY_CAST(s AS INT), id FROM t", "SELECT CAST(length(s) AS INT), id FROM t"],
];

/// Runs statements alone and then at the same time: each gives the rows that it gave alone.
async fn stay_apart(shared: &Shared, asked: &[&str]) {
    let (mut alone, mut running) = (Vec::new(), Vec::new());
    for sql in asked {
        let found = sorted(rows(&shared.session, sql).await);
        assert!(!alone.contains(&found), "two of them cannot be told apart: {asked:?}");
        alone.push(found);
    }
    for sql in asked {
        running.push(shared.begin(sql).await);
    }
    for ((stream, alone), sql) in running.into_iter().zip(alone).zip(asked) {
        assert_eq!(sorted(taken(stream).await), alone, "{sql}");
    }
}

#[tokio::test]
async fn law_statements_that_differ_in_a_word_give_their_own_rows() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    for pair in PAIRS {
        stay_apart(&shared, &pair).await;
    }
}

#[tokio::test]
async fn moments_in_lists_are_told_apart_by_their_zones() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let in_zone = |zone: &str| {
        let moments = format!("make_array(arrow_cast(1704067200, 'Timestamp(Second, Some(\"{zone}\"))'))");
        let first = format!("array_element(CASE WHEN id > 998 THEN {moments} END, 1)");
        format!("SELECT CAST({first} AS VARCHAR) AS x FROM t WHERE id > 997")
    };
    let zones = ["Europe/Berlin", "America/New_York"].map(in_zone);
    stay_apart(&shared, &zones.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn lambdas_are_told_apart_by_what_they_do() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    shared.set("datafusion.sql_parser.dialect", "databricks").await;
    let adding = |what: &str| format!("SELECT array_transform(make_array(id), x -> x + {what}) FROM t WHERE id < 9");
    let [one, two, random] = ["1", "2", "CAST(random() AS BIGINT)"].map(adding);
    stay_apart(&shared, &[&one, &two]).await;
    let before = shared.counts();
    let running = [shared.begin(&random).await, shared.begin(&random).await];
    for stream in running {
        assert_eq!(taken(stream).await.len(), 9);
    }
    assert_eq!(shared.counts(), before);
}

#[tokio::test]
async fn a_view_that_is_defined_anew_is_another_one() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let mut running = Vec::new();
    for k in 0..4 {
        let defined = format!("CREATE OR REPLACE VIEW v AS SELECT id, k FROM t WHERE k = {k} AND abs(id) < 500");
        rows(&shared.session, &defined).await;
        running.push((k, shared.begin("SELECT min(k), max(k) FROM v").await));
    }
    for (k, stream) in running {
        assert_eq!(taken(stream).await, [format!("{k}|{k}")]);
    }
}

#[tokio::test]
async fn versions_of_a_table_are_told_apart() {
    let folder = delta::table(false);
    let size = std::fs::metadata(folder.path().join("a.parquet")).unwrap().len();
    let remove = r#"{"remove":{"path":"a.parquet","deletionTimestamp":1700000000001,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{"day":"2024-01-01"},"size":1}}"#;
    let deleted = vector(&[5, 15, 16, 999]).to_string();
    let shared = Shared::of(&open(folder.path()).await).await;
    let newest = "SELECT sum(id), count(id) FROM t WHERE abs(k) = 5";
    let before = shared.begin(newest).await;
    commit(folder.path(), 1, &[remove.to_owned(), delta::add("a.parquet", "2024-01-01", size, Some(&deleted))]);
    let [first, second] = [0, 1].map(|version| newest.replace("FROM t", &format!("FROM t VERSION AS OF {version}")));
    stay_apart(&shared, &[&first, &second]).await;
    let (old, new) = (rows(&shared.session, &first).await, rows(&shared.session, &second).await);
    let after = shared.begin(newest).await;
    assert_eq!((taken(before).await, taken(after).await), (old, new));
}

#[tokio::test]
async fn parameters_are_told_apart_by_their_values() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let mut running = Vec::new();
    for k in 0..4_i32 {
        let frame =
            shared.session.sql_with("SELECT min(k), max(k) FROM t WHERE k = $1", vec![ScalarValue::from(k)].into());
        running.push((k, frame.await.unwrap().execute_stream().await.unwrap()));
    }
    rows(&shared.session, "PREPARE p(INT) AS SELECT min(k), max(k) FROM t WHERE k = $1").await;
    for k in 0..4 {
        running.push((k, shared.begin(&format!("EXECUTE p({k})")).await));
    }
    for (k, stream) in running {
        assert_eq!(taken(stream).await, [format!("{k}|{k}")]);
    }
}

/// A value that is another one each time.
#[derive(Debug, Default)]
struct Moving(AtomicI64);

impl VarProvider for Moving {
    fn get_value(&self, _names: Vec<String>) -> Result<ScalarValue> {
        Ok(ScalarValue::from(self.0.fetch_add(1, Ordering::SeqCst)))
    }

    fn get_type(&self, _names: &[String]) -> Option<DataType> {
        Some(DataType::Int64)
    }
}

#[tokio::test]
async fn what_is_another_value_for_each_statement_is_never_shared() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    shared.session.context().register_variable(VarType::UserDefined, Arc::new(Moving::default()));
    for sql in [
        "SELECT id + @moving FROM t WHERE id = 3",
        "SELECT id, uuid() FROM t WHERE id = 3",
        "SELECT id, now() FROM t WHERE id = 3",
        "SELECT id FROM t WHERE k = 3 AND random() < 2.0 AND id > (SELECT min(id) FROM t)",
        "SELECT id FROM t WHERE id > (SELECT min(id) FROM t WHERE random() < 2.0)",
        "SELECT sum(id) FILTER (WHERE random() < 2.0) FROM t",
        "SELECT id FROM t ORDER BY random()",
        "SELECT id, row_number() OVER (ORDER BY random()) FROM t",
    ] {
        let [one, other] = [shared.begin(sql).await, shared.begin(sql).await];
        let (one, other) = tokio::join!(taken(one), taken(other));
        assert!(!one.is_empty() && one.len() == other.len(), "{sql}");
        assert_eq!(shared.counts().guests, 0, "{sql}");
        if sql.contains('@') || sql.contains("uuid") || sql.contains("now") {
            assert_ne!(one, other, "{sql}");
        }
    }
}

/// A rule that leaves out all rows of a statement but one, as one might that shows nobody more than that.
#[derive(Debug)]
struct OneRow;

impl PhysicalOptimizerRule for OneRow {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(GlobalLimitExec::new(Arc::new(CoalescePartitionsExec::new(plan)), 0, Some(1))))
    }

    fn name(&self) -> &str {
        "one_row"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A function that adds so much.
fn adding(more: i64) -> ScalarUDF {
    let add = move |given: &[ColumnarValue]| -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(given)?;
        let values = values[0].as_primitive::<Int64Type>();
        Ok(ColumnarValue::Array(Arc::new(values.unary::<_, Int64Type>(|value| value + more))))
    };
    create_udf("more", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, Arc::new(add))
}

/// Rows that count so much each.
#[derive(Debug)]
struct Weighed {
    rows: i64,
    each: i64,
}

impl Accumulator for Weighed {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows += values[0].len() as i64;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::from(self.rows * self.each))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::from(self.rows)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.rows += states[0].as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        Ok(())
    }
}

fn weighing(each: i64) -> AggregateUDF {
    let number = || Arc::new(DataType::Int64);
    let counts = move |_: AccumulatorArgs<'_>| Ok(Box::new(Weighed { rows: 0, each }) as Box<dyn Accumulator>);
    create_udaf(
        "weighed",
        vec![DataType::Int64],
        number(),
        Volatility::Immutable,
        Arc::new(counts),
        Arc::new(vec![DataType::Int64]),
    )
}

#[tokio::test]
async fn sessions_that_do_something_else_with_a_plan_share_none() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let state = shared.session.context().state();
    let session = |rule: Option<Arc<dyn PhysicalOptimizerRule + Send + Sync>>| {
        let builder = SessionStateBuilder::new_from_existing(state.clone());
        let builder = match rule {
            Some(rule) => builder.with_physical_optimizer_rule(rule),
            None => builder,
        };
        LakemarkSession::from_context(SessionContext::new_with_state(builder.build()))
    };
    let (plain, same, cut) = (session(None), session(None), session(Some(Arc::new(OneRow))));
    let begin =
        async |session: &LakemarkSession, sql: &str| session.sql(sql).await.unwrap().execute_stream().await.unwrap();
    let sql = "SELECT id FROM t WHERE k = 4 AND abs(id) > 30";
    let host = begin(&plain, sql).await;
    assert_eq!(taken(begin(&cut, sql).await).await.len(), 1);
    assert_eq!(shared.counts().guests, 0);
    // Sessions that say the same share a plan.
    let guest = begin(&same, sql).await;
    assert_eq!(shared.counts().guests, 1);
    let (host, guest) = tokio::join!(taken(host), taken(guest));
    assert!(host.len() > 1 && host == guest);
    // So they do until they know functions of one name that do something else.
    for (session, more) in [(&plain, 1), (&same, 100)] {
        session.context().register_udf(adding(more));
        session.context().register_udaf(weighing(more));
    }
    let sql = "SELECT more(id) FROM t WHERE id = 7 AND abs(k) = 7";
    let (one, other) = (begin(&plain, sql).await, begin(&same, sql).await);
    assert_eq!((taken(one).await, taken(other).await), (vec!["8".to_owned()], vec!["107".to_owned()]));
    let sql = "SELECT weighed(id) FROM t WHERE abs(id) < 10";
    let (one, other) = (begin(&plain, sql).await, begin(&same, sql).await);
    assert_eq!((taken(one).await, taken(other).await), (vec!["10".to_owned()], vec!["1000".to_owned()]));
    assert_eq!(shared.counts().guests, 1);
}

#[tokio::test]
async fn handles_of_a_table_and_settings_that_change_no_row_keep_statements_apart() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    let sql = "SELECT k, sum(id) FROM t WHERE k > 2 GROUP BY k";
    let mut running = vec![shared.begin(sql).await];
    for (name, value) in [
        ("lakemark.use_index", "false"),
        ("lakemark.selection_cache", "false"),
        ("lakemark.use_views", "false"),
        ("datafusion.execution.time_zone", "'+05:00'"),
        ("datafusion.execution.target_partitions", "3"),
        ("datafusion.execution.batch_size", "100"),
        ("datafusion.optimizer.prefer_hash_join", "false"),
    ] {
        shared.set(name, value).await;
        running.push(shared.begin(sql).await);
    }
    // Another handle may have other credentials.
    shared.session.context().deregister_table("t").unwrap();
    shared.session.register("t", open(folder.path()).await).await.unwrap();
    running.push(shared.begin(sql).await);
    assert_eq!((shared.counts().hosts, shared.counts().guests), (running.len() as u64, 0));
    let mut found = Vec::new();
    for stream in running {
        found.push(sorted(taken(stream).await));
    }
    assert!(found.iter().all(|rows| *rows == found[0] && rows.len() > 5));
}
