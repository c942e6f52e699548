//! Joins of tables that have columns of the same names: which column of which table a filter is about that an operator hands on.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark_datafusion::{LakemarkScanExec, LakemarkSession};
use parquet::arrow::ArrowWriter;
use parquet::file::statistics::Statistics;
use tempfile::TempDir;

use crate::fixture::{Ran, create_indexes, ran, rows, scans, with_footer, write};

/// Names of the tables, rows of each, and where its columns `x` and `y` begin.
const TABLES: [(&str, i64, i64, i64); 4] =
    [("a", 3_000, 0, 9_000), ("b", 1_000, 10_000, 2_000), ("c", 40, 20_000, 500), ("d", 1_000, 30_000, 20_000)];

/// `k` counts up, `y` and `j` count down, and the ranges of `x` and of `y` overlap in no two tables. `n` is `k`, and NULL in the second half.
fn batch(rows: i64, x: i64, y: i64) -> RecordBatch {
    let column = |of: &dyn Fn(i64) -> i64| Arc::new(Int64Array::from_iter_values((0..rows).map(of))) as ArrayRef;
    let n: Int64Array = (0..rows).map(|row| (row < rows / 2).then_some(row)).collect();
    RecordBatch::try_from_iter([
        ("k", column(&|row| row)),
        ("x", column(&|row| x + row % 500)),
        ("y", column(&|row| y - row)),
        ("j", column(&|row| rows - 1 - row)),
        ("n", Arc::new(n)),
    ])
    .unwrap()
}

fn files() -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, rows, x, y) in TABLES {
        write(&folder.path().join(name).join("part.parquet"), &batch(rows, x, y));
    }
    folder
}

/// A session with the tables as ours, as DataFusion's own (`a_parquet`), and in memory (`a_memory`).
async fn session(folder: &Path) -> LakemarkSession {
    let session = LakemarkSession::new();
    for (name, rows, x, y) in TABLES {
        let location = folder.join(name).display().to_string();
        for (format, called) in [("LAKEMARK", name.to_owned()), ("PARQUET", format!("{name}_parquet"))] {
            let sql = format!("CREATE EXTERNAL TABLE {called} STORED AS {format} LOCATION '{location}'");
            session.sql(&sql).await.unwrap();
        }
        let batch = batch(rows, x, y);
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        session.context().register_table(format!("{name}_memory"), Arc::new(table)).unwrap();
    }
    session
}

/// What the statements say of a table `a` they say of another that has its rows.
fn of(sql: &str, kind: &str) -> String {
    let mut sql = sql.to_owned();
    for (name, ..) in TABLES {
        sql = sql.replace(&format!("{{{name}}}"), &format!("{name}{kind} AS {name}"));
    }
    sql
}

/// The condition on `a.x` becomes one on `b.x`, as the join is turned round.
const OUTER: &str = "SELECT a.k, b.k FROM {a} RIGHT JOIN {b} ON a.k = b.k AND b.x > 10001 WHERE a.x IS NULL OR a.x < 2";

/// The bound of `b.y` becomes one of `a.y`.
const TOP: &str = "SELECT a.y, b.y FROM {a} JOIN {b} ON a.k = b.k JOIN {d} ON b.k = d.k ORDER BY b.y LIMIT 2";

/// The keys that the join with `c` looks for in `a.k`, which equals `b.j`, are looked for in `b.k`.
const SEMI: &str = "SELECT s.k FROM {c} JOIN (SELECT a.k FROM {a} WHERE EXISTS \
                    (SELECT 1 FROM {b} WHERE b.j = a.k AND b.k <> a.y)) s ON s.k = c.k";

/// A NULL in the list says that nothing is known to be outside: the join has to meet it, though no key of its own is NULL.
const NOT_IN: &str = "SELECT k FROM {a} WHERE k NOT IN (SELECT n FROM {b})";

const STATEMENTS: [(&str, usize); 11] = [
    (NOT_IN, 0),
    (OUTER, 4),
    (TOP, 2),
    (SEMI, 40),
    ("SELECT a.k, b.k FROM {b} LEFT JOIN {a} ON a.k = b.k AND b.x > 10001 WHERE a.x IS NULL OR a.x < 2", 4),
    ("SELECT * FROM {c} JOIN (SELECT a.x, b.x AS bx, b.k FROM {a} JOIN {b} ON a.k = b.k) s ON s.bx = c.x - 10000", 80),
    (
        "SELECT c.k, s.* FROM {c} JOIN (SELECT a.k, b.x FROM {a} LEFT JOIN {b} ON a.j = b.k WHERE a.y > 0) s ON s.k = c.k",
        40,
    ),
    (
        "SELECT c.k, s.n FROM {c} JOIN (SELECT a.x, b.x AS n, count(*) FROM {a} JOIN {b} ON a.k = b.k GROUP BY a.x, b.x) s ON c.x = s.n + 10000",
        40,
    ),
    (
        "SELECT s.k FROM {c} JOIN (SELECT a.k, a.y FROM {a} WHERE a.k NOT IN (SELECT b.j FROM {b} WHERE b.k > 990)) s ON s.k = c.k",
        31,
    ),
    ("SELECT c.k, s.k FROM {c} JOIN (SELECT k, x FROM {a} UNION ALL SELECT j, y FROM {b}) s ON s.k = c.k", 80),
    (
        "SELECT s.k, s.m FROM {c} JOIN (SELECT k, max(x) OVER (PARTITION BY x) AS m FROM {a}) s ON s.k = c.k ORDER BY s.m LIMIT 5",
        5,
    ),
];

#[tokio::test]
async fn a_filter_is_about_the_column_that_the_statement_names() {
    let folder = files();
    for (name, ..) in TABLES {
        create_indexes(&folder.path().join(name), &["k", "x", "y", "j"]).await;
    }
    let session = session(folder.path()).await;
    let mut lost = Vec::new();
    for partitions in [1, 3] {
        for threshold in [0, 1 << 20] {
            for setting in [
                format!("execution.target_partitions = {partitions}"),
                format!("optimizer.hash_join_single_partition_threshold = {threshold}"),
                format!("optimizer.hash_join_single_partition_threshold_rows = {threshold}"),
            ] {
                session.sql(&format!("SET datafusion.{setting}")).await.unwrap().collect().await.unwrap();
            }
            for (sql, count) in STATEMENTS {
                let mut expected = rows(&session, &of(sql, "_memory")).await;
                expected.sort();
                assert_eq!(expected.len(), count, "{sql}");
                for kind in ["", "_parquet"] {
                    let mut found = rows(&session, &of(sql, kind)).await;
                    found.sort();
                    if found != expected {
                        lost.push(format!("{} of {count} rows of {}", found.len(), of(sql, kind)));
                    }
                }
            }
        }
    }
    assert!(lost.is_empty(), "{} answers are wrong:\n{}", lost.len(), lost.join("\n"));
}

/// A session without our rule gives our scan no filter that could be another table's.
#[tokio::test]
async fn a_scan_takes_no_filter_from_an_optimizer_that_goes_by_names() {
    let folder = files();
    let ours = session(folder.path()).await;
    let plain = SessionContext::new();
    for (name, ..) in TABLES {
        let table = ours.context().table_provider(name).await.unwrap();
        plain.register_table(name, table).unwrap();
    }
    for (sql, count) in STATEMENTS {
        let found = plain.sql(&of(sql, "")).await.unwrap().collect().await.unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), count, "{sql}");
    }
}

/// Filters that are about the column they name arrive, whatever it is called.
#[tokio::test]
async fn a_join_of_columns_of_one_name_narrows_the_scan_of_the_right_table() {
    let folder = files();
    create_indexes(&folder.path().join("a"), &["k", "x"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT a.y FROM {c} JOIN {a} ON a.k = c.k",
        "SELECT a.k, c.k FROM {c} JOIN (SELECT a.k, b.k AS o FROM {b} JOIN {a} ON a.k = b.k) a ON a.k = c.k",
        "SELECT s.k FROM {c} JOIN (SELECT a.k, avg(a.y) FROM {a} GROUP BY a.j, a.k) s ON s.k = c.k",
    ] {
        let found = pruned_scans(&session, &of(sql, "")).await;
        assert_eq!(found, PrunedScans { left_out: vec![Some(2_960)], rows: 40 }, "{sql}");
    }
}

/// What is known of the rows below the join ends there, and what the join finds out goes on.
#[tokio::test]
async fn what_an_outer_join_finds_out_passes_a_barrier() {
    let folder = files();
    create_indexes(&folder.path().join("a"), &["k"]).await;
    let session = session(folder.path()).await;
    session.sql("SET datafusion.optimizer.join_reordering = false").await.unwrap().collect().await.unwrap();
    let sql = of("SELECT c.k, s.one FROM {c} LEFT JOIN (SELECT k, 1 AS one FROM {a}) s ON s.k = c.k", "");
    let plan = session.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("BarrierExec"), "{text}");
    assert_eq!(pruned_scans(&session, &sql).await, PrunedScans { left_out: vec![Some(2_960)], rows: 40 });
}

/// A statement whose joins found something out.
#[derive(Debug, PartialEq)]
struct PrunedScans {
    /// For each scan of `a` how many of its rows were left out for that.
    left_out: Vec<Option<usize>>,
    /// How many rows the statement has.
    rows: usize,
}

async fn pruned_scans(session: &LakemarkSession, sql: &str) -> PrunedScans {
    let Ran { plan, rows: count } = ran(session, sql).await;
    let of_a = |scan: &LakemarkScanExec| scan.report().row_groups_total == 12;
    let metric = |plan: &Arc<dyn ExecutionPlan>, name| Some(plan.metrics()?.sum_by_name(name)?.as_usize());
    // Rows whose values are index-only pass, though they are not read.
    let pruned = |plan: &Arc<dyn ExecutionPlan>| {
        Some(metric(plan, "rows_pruned_dynamic_filter")? - metric(plan, "rows_index_only").unwrap_or(0))
    };
    let scans = scans(&plan);
    let scans = scans.iter().filter(|plan| plan.downcast_ref::<LakemarkScanExec>().is_some_and(of_a));
    PrunedScans { left_out: scans.map(pruned).collect(), rows: count }
}

/// While this holds DataFusion needs our rule, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_takes_the_filter_of_another_table() {
    let folder = files();
    let plain = SessionContext::new();
    for (name, ..) in TABLES {
        let location = folder.path().join(name).display().to_string();
        plain.register_parquet(name, location.as_str(), Default::default()).await.unwrap();
    }
    for (sql, (right, wrong)) in [(OUTER, (4, 0)), (SEMI, (40, 0))] {
        let found = plain.sql(&of(sql, "")).await.unwrap().collect().await.unwrap();
        let found = found.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_ne!(
            found, right,
            "{sql}: DataFusion has mended this; see whether docs/limits.md and `PositionalPushdown` can go"
        );
        assert_eq!(found, wrong, "{sql}");
    }
}

/// A footer may say nothing of NULLs; the engine takes that for none.
#[tokio::test]
async fn a_footer_that_counts_no_nulls_is_no_promise_that_there_are_none() {
    let folder = TempDir::new().unwrap();
    let of = |keys: Vec<Option<i64>>| {
        RecordBatch::try_from_iter_with_nullable([("k", Arc::new(Int64Array::from(keys)) as ArrayRef, true)])
    };
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    write(&a.join("f.parquet"), &of((0..2000).map(Some).collect()).unwrap());
    write(&b.join("f.parquet"), &of((0..20).map(Some).chain([None]).collect()).unwrap());
    with_footer(&b.join("f.parquet"), |metadata| {
        let said = Statistics::int64(Some(0), Some(19), None, None, false);
        let group = metadata.row_group(0).clone();
        let chunk = group.column(0).clone().into_builder().set_statistics(said).build().unwrap();
        let group = group.into_builder().set_column_metadata(vec![chunk]).build().unwrap();
        metadata.into_builder().set_row_groups(vec![group]).set_column_index(None).build()
    });
    let session = LakemarkSession::new();
    for (name, folder, kind) in
        [("a", &a, "LAKEMARK"), ("b", &b, "LAKEMARK"), ("pa", &a, "PARQUET"), ("pb", &b, "PARQUET")]
    {
        let sql = format!("CREATE EXTERNAL TABLE {name} STORED AS {kind} LOCATION '{}/'", folder.display());
        session.sql(&sql).await.unwrap();
    }
    for a in ["a", "pa"] {
        for b in ["b", "pb"] {
            let sql = format!("SELECT k FROM {a} WHERE k NOT IN (SELECT k FROM {b})");
            assert_eq!(rows(&session, &sql).await, Vec::<String>::new(), "{sql}");
        }
    }
}

#[tokio::test]
async fn an_outer_join_cuts_a_build_side_that_it_keeps_and_the_engine_would_not_gather() {
    let folder = TempDir::new().unwrap();
    // Of 8 bytes a row: 0.6 and 1.6 MiB, beside DataFusion's limit of 1 and ours of 4.
    for (name, rows) in [("small", 80_000), ("medium", 200_000), ("large", 900_000)] {
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("k", k)]).unwrap();
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let file = std::fs::File::create(folder.path().join(name).join("part.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    let gathered = [PartitionMode::CollectLeft];
    let cut = [PartitionMode::Partitioned];
    for (sql, limit, expected, rows) in [
        ("SELECT * FROM small s LEFT JOIN large l ON s.k = l.k", None, gathered, 80_000),
        ("SELECT * FROM medium m LEFT JOIN large l ON m.k = l.k", None, cut, 200_000),
        ("SELECT * FROM medium m FULL JOIN large l ON m.k = l.k", None, cut, 900_000),
        ("SELECT * FROM large l RIGHT JOIN medium m ON m.k = l.k", None, cut, 200_000),
        ("SELECT * FROM large l LEFT JOIN medium m ON m.k = l.k", None, gathered, 900_000),
        ("SELECT * FROM medium m JOIN large l ON m.k = l.k", None, gathered, 200_000),
        ("SELECT * FROM medium m LEFT JOIN large l ON m.k = l.k", Some(5 << 20), gathered, 200_000),
    ] {
        assert_eq!(joined(folder.path(), limit, sql).await, (expected.to_vec(), rows), "{sql}");
    }
}

/// The modes of the joins of a statement over three tables, and how many rows it gives.
async fn joined(folder: &Path, limit: Option<u32>, sql: &str) -> (Vec<PartitionMode>, usize) {
    let session = LakemarkSession::with_config(SessionConfig::new().with_target_partitions(2));
    for name in ["small", "medium", "large"] {
        let location = folder.join(name).display().to_string();
        session.sql(&format!("CREATE EXTERNAL TABLE {name} STORED AS LAKEMARK LOCATION '{location}'")).await.unwrap();
    }
    if let Some(limit) = limit {
        let limit = format!("SET datafusion.optimizer.hash_join_single_partition_threshold = {limit}");
        session.sql(&limit).await.unwrap().collect().await.unwrap();
    }
    let Ran { plan, rows } = ran(&session, sql).await;
    (modes_of(&plan), rows)
}

/// The modes of the joins of a plan.
fn modes_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<PartitionMode> {
    let own = plan.downcast_ref::<HashJoinExec>().map(|join| *join.partition_mode());
    own.into_iter().chain(plan.children().into_iter().flat_map(modes_of)).collect()
}
