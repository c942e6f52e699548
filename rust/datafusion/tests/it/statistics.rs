//! What the engine is told of scans before they run: what it knows of its own tables, and never anything exact that is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use lakemark_datafusion::{LakemarkScanExec, LakemarkSession, session_context};
use lakemark_table::{BuildOptions, Change, Operation, WriteOptions};

use crate::fixture::{FILE_ROWS, create_indexes, folder, open, rows, scans, session};

fn statistics(plan: &dyn ExecutionPlan) -> Statistics {
    Arc::unwrap_or_clone(StatisticsContext::new().compute(plan, &StatisticsArgs::new()).unwrap())
}

/// Of the scan of a statement, with whatever filters it.
async fn ours(session: &LakemarkSession, sql: &str) -> Statistics {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let found = scans(&plan);
    assert_eq!(found.len(), 1, "{sql}");
    statistics(found[0].as_ref())
}

/// The same of the engine's own table.
async fn theirs(folder: &Path, sql: &str) -> Statistics {
    let config = SessionConfig::new().set_bool("datafusion.execution.parquet.schema_force_view_types", false);
    let context = SessionContext::new_with_config(config.with_target_partitions(1));
    context.register_parquet("t", folder.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    statistics(plan.as_ref())
}

async fn without_index(session: &LakemarkSession) {
    session.sql("SET lakemark.use_index = false").await.unwrap().collect().await.unwrap();
}

/// Bounds of floats leave NaN out, so that ours are never exact.
fn with_estimated_floats(mut statistics: Statistics, plan: &RecordBatch) -> Statistics {
    for (column, field) in statistics.column_statistics.iter_mut().zip(plan.schema().fields()) {
        if field.data_type().is_floating() {
            column.min_value = column.min_value.clone().to_inexact();
            column.max_value = column.max_value.clone().to_inexact();
        }
    }
    statistics
}

#[tokio::test]
async fn what_is_known_of_plain_files_is_what_the_engine_knows() {
    let folder = folder(3);
    let session = session(folder.path()).await;
    without_index(&session).await;
    for columns in ["*", "id", "id, s", "s", "f", "k, f", "f, b", "k, \"Mixed Case\""] {
        for filter in ["", "WHERE k > 5", "WHERE id = 7", "WHERE s = 'ab'", "WHERE id BETWEEN 100 AND 1500 AND b"] {
            let sql = format!("SELECT {columns} FROM t {filter}");
            let schema = session.sql(&format!("{sql} LIMIT 1")).await.unwrap().collect().await.unwrap().remove(0);
            let (ours, theirs) = (ours(&session, &sql).await, theirs(folder.path(), &sql).await);
            let theirs = with_estimated_floats(theirs, &schema);
            // The engine calls some of what a filter leaves exact that is not.
            let theirs = if filter.is_empty() { theirs } else { theirs.to_inexact() };
            assert_eq!(ours, theirs, "{sql}");
        }
    }
}

const COLUMNS: [&str; 6] = ["id", "k", "f", "s", "b", "\"Mixed Case\""];

/// Compares what is called exact with what is so; gives how much is called exact.
async fn check(session: &LakemarkSession, columns: &[&str], filter: &str) -> usize {
    let mut exact = 0;
    for column in columns {
        let given = ours(session, &format!("SELECT {column} FROM t {filter}")).await;
        let context = SessionContext::new();
        let frame = session.sql(&format!("SELECT {column} AS c FROM t {filter}")).await.unwrap();
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let batches = frame.collect().await.unwrap();
        let table = datafusion::datasource::MemTable::try_new(schema, vec![batches]).unwrap();
        context.register_table("seen", Arc::new(table)).unwrap();
        let sql = "SELECT count(*), count(*) - count(c), min(c), max(c), count(DISTINCT c) FROM seen";
        let seen = context.sql(sql).await.unwrap().collect().await.unwrap().remove(0);
        let seen: Vec<ScalarValue> =
            seen.columns().iter().map(|column| ScalarValue::try_from_array(column, 0).unwrap()).collect();
        let number = |given: Precision<usize>| match given {
            Precision::Exact(number) => Some(ScalarValue::Int64(Some(number as i64))),
            _ => None,
        };
        let value = |given: Precision<ScalarValue>| match given {
            Precision::Exact(value) => Some(value),
            _ => None,
        };
        let of = given.column_statistics[0].clone();
        let given = [
            number(given.num_rows),
            number(of.null_count),
            value(of.min_value),
            value(of.max_value),
            number(of.distinct_count),
        ];
        for (place, given) in given.into_iter().enumerate() {
            if let Some(given) = given {
                exact += 1;
                assert_eq!(given, seen[place], "{column} {filter}, place {place}");
            }
        }
    }
    exact
}

const FILTERS: [&str; 9] = [
    "",
    "WHERE k = 4",
    "WHERE k = 4 AND s = 'ab'",
    "WHERE k = 4 AND s = 'none'",
    "WHERE k = 4 AND id < 0",
    "WHERE id < 900",
    "WHERE f > 1",
    "WHERE f > 1e300",
    "WHERE k IS NULL OR b",
];

#[tokio::test]
async fn nothing_exact_is_wrong() {
    let folder = folder(3);
    let files = session(folder.path()).await;
    assert!(check(&files, &COLUMNS, "").await > 20);
    create_indexes(folder.path(), &["k", "s"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    // A file that no index knows.
    crate::fixture::write(&folder.path().join("part-9.parquet"), &crate::fixture::batch(9 * FILE_ROWS));
    // One that remembers what it knew before the changes.
    let kept = session(folder.path()).await;
    for changes in 0..3 {
        let fresh = session(folder.path()).await;
        for (session, use_index) in [(&kept, "true"), (&fresh, "true"), (&kept, "false"), (&fresh, "false")] {
            let set = format!("SET lakemark.use_index = {use_index}");
            session.sql(&set).await.unwrap().collect().await.unwrap();
            for filter in FILTERS {
                check(session, &COLUMNS, filter).await;
            }
        }
        if changes == 0 {
            // The smallest and the largest rows are no more, and others are larger.
            let ids: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 9999, 9998]));
            let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
            table.write(vec![Change { operation: Operation::Delete, rows }], WriteOptions::default()).await.unwrap();
            let ids: ArrayRef = Arc::new(Int64Array::from(vec![-5, 20_000]));
            let k: ArrayRef = Arc::new(Int32Array::from(vec![-50, 50]));
            let s: ArrayRef = Arc::new(StringArray::from(vec!["~", ""]));
            let rows = RecordBatch::try_from_iter([("id", ids), ("k", k), ("s", s)]).unwrap();
            table.write(vec![Change { operation: Operation::Upsert, rows }], WriteOptions::default()).await.unwrap();
        } else {
            table.flush().await.unwrap();
        }
    }
}

/// Those of both sides of a table that is joined with itself.
async fn of_join(session: &LakemarkSession, sql: &str) -> Vec<Statistics> {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    scans(&plan).iter().map(|scan| statistics(scan.as_ref())).collect()
}

#[tokio::test]
async fn the_next_plan_of_the_same_files_gets_the_same() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "id"]).await;
    let session = session(folder.path()).await;
    for use_index in ["true", "false"] {
        session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap().collect().await.unwrap();
        for condition in ["true", "t.k = 4", "t.id < 1500", "abs(t.id) < 1500"] {
            let sql = format!("SELECT t.s, u.f FROM t JOIN t u ON t.id = u.id + 1 WHERE {condition}");
            let (first, second) = (of_join(&session, &sql).await, of_join(&session, &sql).await);
            assert_eq!(first, second, "{sql}");
            // Also where the session forgets what it read of single files.
            let caches = Arc::clone(&session.context().runtime_env().cache_manager);
            caches.get_file_metadata_cache().clear();
            caches.get_file_statistic_cache().unwrap().clear();
            assert_eq!(first, of_join(&session, &sql).await, "{sql}");
        }
    }
    // Other columns than those of the first plans.
    let given = of_join(&session, "SELECT t.b, u.\"Mixed Case\" FROM t JOIN t u ON t.id = u.id + 1").await;
    assert_eq!(given[0].num_rows, Precision::Exact(3 * FILE_ROWS));
    assert!(given.iter().all(|side| side.column_statistics.iter().all(|column| column.min_value != Precision::Absent)));
}

#[tokio::test]
async fn bounds_and_counts_come_from_footers_without_an_index() {
    let folder = folder(2);
    let session = session(folder.path()).await;
    let read = LakemarkSession::with_config(SessionConfig::new().with_collect_statistics(false));
    let create = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.path().display());
    read.sql(&create).await.unwrap();
    for sql in ["SELECT count(*), min(id), max(id), min(k), max(b) FROM t", "SELECT max(f), min(f), max(s) FROM t"] {
        assert_eq!(rows(&session, sql).await, rows(&read, sql).await, "{sql}");
    }
    let plan = session.sql("SELECT min(id), max(id) FROM t").await.unwrap().create_physical_plan().await.unwrap();
    assert!(scans(&plan).is_empty(), "{plan:?}");
    let plan = session.sql("SELECT max(f) FROM t").await.unwrap().create_physical_plan().await.unwrap();
    assert_eq!(scans(&plan).len(), 1);
    assert_eq!(rows(&session, "SELECT max(f) FROM t").await, ["NaN"]);
}

/// A copy of a Parquet file whose row groups come from two files in turn, with what each of them says of its columns.
fn spliced(from: [&Path; 2], to: &Path) {
    use parquet::column::writer::ColumnCloseResult;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::writer::SerializedFileWriter;
    let files = from.map(|path| std::fs::File::open(path).unwrap());
    let footers = [0, 1].map(|one: usize| ParquetMetaDataReader::new().parse_and_finish(&files[one]).unwrap());
    let schema = footers[0].file_metadata().schema_descr().root_schema_ptr();
    let mut writer = SerializedFileWriter::new(std::fs::File::create(to).unwrap(), schema, Arc::default()).unwrap();
    for (file, footer) in files.iter().zip(&footers) {
        let mut group = writer.next_row_group().unwrap();
        let from = footer.row_group(0);
        for column in from.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: from.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            group.append_column(file, close).unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Files as others write them, in folders of partitions.
fn of_others(folder: &Path) {
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    let silent = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).build();
    let put = |name: &str, batch: &RecordBatch| crate::fixture::write(&folder.join(name), batch);
    let rows = crate::fixture::batch;
    put("p=2/first.parquet", &rows(1000));
    put("p=1/empty.parquet", &rows(0).slice(0, 0));
    put("p=__HIVE_DEFAULT_PARTITION__/rest.parquet", &rows(0));
    let nulls = rows(2000);
    let k: ArrayRef = Arc::new(Int32Array::new_null(FILE_ROWS));
    let columns = nulls.columns().iter().enumerate().map(|(place, column)| if place == 1 { &k } else { column });
    put("p=3/nulls.parquet", &RecordBatch::try_new(nulls.schema(), columns.cloned().collect()).unwrap());
    std::fs::create_dir_all(folder.join("p=4")).unwrap();
    let path = folder.join("p=4/silent.parquet");
    let batch = rows(5000);
    let mut writer = ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), Some(silent)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    // Its second row group has larger values than the first one, and says nothing.
    spliced([&folder.join("p=2/first.parquet"), &path], &folder.join("p=2/half.parquet"));
}

#[tokio::test]
async fn nothing_exact_of_the_files_of_others_is_wrong() {
    let folder = tempfile::TempDir::new().unwrap();
    of_others(folder.path());
    let columns: Vec<&str> = COLUMNS.into_iter().chain(["p"]).collect();
    for without in ["", "p=4", "p=2/half.parquet", "p=1", "p=3"] {
        if !without.is_empty() {
            let path = folder.path().join(without);
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        }
        let session = session(folder.path()).await;
        for filter in ["", "WHERE p = 2", "WHERE p IS NULL", "WHERE k = 4", "WHERE id < 900"] {
            check(&session, &columns, filter).await;
        }
        assert!(check(&session, &columns, "").await > 6, "{without}");
        let sql = "SELECT min(k), max(k), count(k), min(id), max(id), count(*), min(p), max(p), count(p) FROM t";
        let (with, without) = crate::fixture::both(&session, sql).await;
        let read = LakemarkSession::with_config(SessionConfig::new().with_collect_statistics(false));
        let create = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.path().display());
        read.sql(&create).await.unwrap();
        let read = rows(&read, sql).await;
        assert_eq!((with, without), (read.clone(), read));
    }
}

#[tokio::test]
async fn an_index_knows_how_many_different_values_there_are() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "id"]).await;
    let session = session(folder.path()).await;
    let distinct = async |sql: &str, column: usize| {
        let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let scan = scans(&plan).remove(0);
        let statistics = StatisticsContext::new().compute(scan.as_ref(), &StatisticsArgs::new()).unwrap();
        statistics.column_statistics[column].distinct_count
    };
    let join = |condition: &str| format!("SELECT t.id, t.k FROM t JOIN t u ON t.id = u.id + 1 WHERE {condition}");
    assert_eq!(distinct(&join("true"), 1).await, Precision::Inexact(10));
    assert_eq!(distinct(&join("t.k > 6 AND t.id < 5"), 0).await.get_value().map(|count| *count <= 5), Some(true));
    // Indexes that are not probed give nothing.
    session.sql("SET lakemark.use_index = false").await.unwrap().collect().await.unwrap();
    assert_eq!(distinct(&join("true"), 1).await, Precision::Absent);
}

#[tokio::test]
async fn a_table_says_how_many_rows_it_has_before_it_is_scanned() {
    let folder = folder(3);
    let given = async || {
        let session = session(folder.path()).await;
        session.context().table_provider("t").await.unwrap().statistics().map(|statistics| statistics.num_rows)
    };
    // The footers give it, which were read for the schema; then the index does.
    assert_eq!(given().await, Some(Precision::Inexact(3 * FILE_ROWS)));
    create_indexes(folder.path(), &["k"]).await;
    assert_eq!(given().await, Some(Precision::Inexact(3 * FILE_ROWS)));
}

/// A scan that claims so many times as many rows as it has.
#[derive(Debug)]
struct Misjudged {
    input: Arc<dyn ExecutionPlan>,
    factor: f64,
}

impl DisplayAs for Misjudged {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Misjudged: {}", self.factor)
    }
}

impl ExecutionPlan for Misjudged {
    fn name(&self) -> &'static str {
        "Misjudged"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { input: Arc::clone(&inputs[0]), factor: self.factor }))
    }

    fn with_new_children(self: Arc<Self>, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut wrong = inputs[0].as_ref().clone().to_inexact();
        wrong.num_rows = wrong.num_rows.with_estimated_selectivity(self.factor);
        wrong.total_byte_size = wrong.total_byte_size.with_estimated_selectivity(self.factor);
        for column in &mut wrong.column_statistics {
            std::mem::swap(&mut column.min_value, &mut column.max_value);
            column.distinct_count = Precision::Inexact(3);
        }
        Ok(Arc::new(wrong))
    }
}

/// Puts one over every scan of a table whose number is odd, in the order in which they stand.
#[derive(Debug)]
struct Misjudge(f64);

impl PhysicalOptimizerRule for Misjudge {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let mut number = 0;
        plan.transform_up(|node| {
            if !node.is::<LakemarkScanExec>() {
                return Ok(Transformed::no(node));
            }
            number += 1;
            let misjudged = |input| Arc::new(Misjudged { input, factor: self.0 }) as Arc<dyn ExecutionPlan>;
            Ok(if number % 2 == 1 { Transformed::yes(misjudged(node)) } else { Transformed::no(node) })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "misjudge"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The lines of a plan that join tables.
fn joins(plan: &str) -> Vec<&str> {
    plan.lines().filter(|line| line.contains("JoinExec")).map(str::trim).collect()
}

#[tokio::test]
async fn a_limit_of_build_sides_that_someone_sets_stays() {
    const SHOWN: &str = "SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.optimizer.hash_join_single_partition_threshold'";
    assert_eq!(rows(&LakemarkSession::new(), SHOWN).await, ["4194304"]);
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().optimizer.hash_join_single_partition_threshold = 2048;
    let session = LakemarkSession::with_config(config);
    assert_eq!(rows(&session, SHOWN).await, ["2048"]);
    session
        .sql("SET datafusion.optimizer.hash_join_single_partition_threshold = 1048576")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    assert_eq!(rows(&session, SHOWN).await, ["1048576"]);
}

#[tokio::test]
async fn statistics_that_are_wrong_change_plans_and_no_rows() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "id"]).await;
    let misjudging = async |factor: Option<f64>| {
        let state = session_context(SessionConfig::new().with_target_partitions(2)).state();
        let mut rules = state.physical_optimizers().to_vec();
        if let Some(factor) = factor {
            rules.insert(0, Arc::new(Misjudge(factor)));
        }
        let state = SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules).build();
        let session = LakemarkSession::from_context(SessionContext::new_with_state(state));
        session.register("t", open(folder.path()).await).await.unwrap();
        session
    };
    let right = misjudging(None).await;
    let wrong = [misjudging(Some(0.0001)).await, misjudging(Some(0.0)).await, misjudging(Some(1e6)).await];
    let mut others = 0;
    for sql in [
        "SELECT a.k, count(*) FROM t a JOIN t b ON a.id = b.id + 1 WHERE b.k = 4 GROUP BY a.k",
        "SELECT a.id, b.s FROM t a LEFT JOIN t b ON a.id = b.k WHERE a.id < 50",
        "SELECT count(*) FROM t a, t b, t c WHERE a.id = b.id AND b.id = c.k AND a.k < 5",
        "SELECT id FROM t WHERE id NOT IN (SELECT id + 10 FROM t WHERE k IS NOT NULL)",
        "SELECT k, min(s), max(id) FROM t WHERE id IN (SELECT id FROM t WHERE k > 7) GROUP BY k",
        "SELECT a.id, b.id FROM t a JOIN t b ON a.id > b.id + 2990 AND a.k = b.k",
        "SELECT a.id FROM t a JOIN t b ON a.id = b.id ORDER BY a.id DESC LIMIT 7",
        "SELECT count(DISTINCT a.k), min(a.id), max(b.id) FROM t a JOIN t b ON a.id = b.id",
    ] {
        let mut expected = rows(&right, sql).await;
        expected.sort();
        let plan = rows(&right, &format!("EXPLAIN {sql}")).await.concat();
        for session in &wrong {
            let mut found = rows(session, sql).await;
            found.sort();
            assert_eq!(found, expected, "{sql}");
            let other = rows(session, &format!("EXPLAIN {sql}")).await.concat();
            others += usize::from(joins(&other) != joins(&plan));
        }
    }
    assert!(others > 0, "no plan is another one");
}
