//! Indexes or a plain scan: what a scan chooses, and that its rows do not depend on it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::metrics::MetricValue;
use lakemark_datafusion::{LakemarkScanExec, LakemarkSession, QueryOptions, count, explain};
use lakemark_table::Reason;
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

use crate::fixture::{Opened, Ran, answering_metric, both, create_indexes, metric, open, ran, rows, scans, session};
use crate::sharing::sorted;

const ROWS: usize = 400_000;

/// `spread` and `sorted` hold 0 to 999, each in about four hundred rows, `tens` 0 to 39,999 in ten rows each, `half` holds 0 and 1, and `state` is `bad` in every
/// hundredth row or so. Neighbours have nothing to do with one another, but for `sorted`.
fn write(folder: &Path) {
    let mixed = |row: usize| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 1_000_003;
    let spread: Vec<i32> = (0..ROWS).map(|row| i32::try_from(mixed(row) % 1000).unwrap()).collect();
    let state: Vec<&str> = (0..ROWS).map(|row| if mixed(row) % 100 == 7 { "bad" } else { "good" }).collect();
    let half: Vec<i16> = (0..ROWS).map(|row| i16::from(mixed(row) % 7 < 3)).collect();
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(0..400_000)) as ArrayRef),
        ("spread", Arc::new(Int32Array::from(spread)) as ArrayRef),
        ("sorted", Arc::new(Int32Array::from_iter_values((0..400_000).map(|row| row / 400))) as ArrayRef),
        ("tens", Arc::new(Int32Array::from_iter_values((0..400_000).map(|row| row * 7 % 40_000))) as ArrayRef),
        ("half", Arc::new(Int16Array::from(half)) as ArrayRef),
        ("state", Arc::new(StringArray::from(state)) as ArrayRef),
    ])
    .unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(folder.join("a.parquet")).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

async fn indexed() -> Opened {
    let folder = TempDir::new().unwrap();
    write(folder.path());
    create_indexes(folder.path(), &["spread", "sorted", "half", "state"]).await;
    let session = session(folder.path()).await;
    Opened { folder, session }
}

/// The conditions of a query's scan whose search is left out.
async fn left_out(session: &LakemarkSession, sql: &str) -> Vec<String> {
    let plan = ran(session, sql).await.plan;
    let scan = scans(&plan).remove(0);
    let report = scan.downcast_ref::<LakemarkScanExec>().unwrap().report();
    let left = report.leaves.iter().filter(|leaf| leaf.reason == Some(Reason::ScanIsCheaper));
    left.map(|leaf| leaf.column.clone().unwrap()).collect()
}

#[tokio::test]
async fn a_search_is_left_out_where_a_scan_is_cheaper() {
    let Opened { folder: _folder, session } = indexed().await;
    for (query, expected) in [
        ("SELECT sum(id) FROM t WHERE spread = 5", vec![]),
        ("SELECT sum(id) FROM t WHERE spread < 10", vec![]),
        ("SELECT sum(id) FROM t WHERE spread < 400", vec!["spread"]),
        ("SELECT sum(id) FROM t WHERE spread <> 17", vec![]),
        ("SELECT sum(id) FROM t WHERE sorted < 400", vec![]),
        ("SELECT sum(id) FROM t WHERE sorted >= 1", vec![]),
        ("SELECT sum(id) FROM t WHERE half = 1", vec!["half"]),
        // One value of two, but in few rows: the value block is read to know.
        ("SELECT sum(id) FROM t WHERE state = 'bad'", vec![]),
        ("SELECT sum(id) FROM t WHERE state = 'good'", vec![]),
        ("SELECT sum(id) FROM t WHERE spread < 400 AND sorted = 7", vec!["spread"]),
        ("SELECT sum(id) FROM t WHERE spread < 400 OR sorted = 7", vec!["spread", "sorted"]),
        ("SELECT id FROM t WHERE spread < 400 LIMIT 10", vec!["spread"]),
        ("SELECT id FROM t WHERE spread = 5 LIMIT 10", vec![]),
    ] {
        assert_eq!(left_out(&session, query).await, expected, "{query}");
        if !query.contains("LIMIT") {
            let (with, without) = both(&session, query).await;
            assert_eq!(with, without, "{query}");
        }
    }
    assert_eq!(rows(&session, "SELECT id FROM t WHERE spread < 400 LIMIT 10").await.len(), 10);
}

#[tokio::test]
async fn a_count_is_made_of_the_indexes_whatever_its_share() {
    let Opened { folder, session } = indexed().await;
    let plan = ran(&session, "SELECT count(*) FROM t WHERE spread < 400").await.plan;
    assert!(scans(&plan).is_empty());
    let counted = rows(&session, "SELECT count(*) FROM t WHERE spread < 400 AND half = 1").await;
    let table = open(folder.path()).await;
    let options = QueryOptions::default();
    let filter = Some("spread < 400 AND half = 1");
    assert_eq!(counted, [count(&table, filter, &options).await.unwrap().to_string()]);
    // A report of the index alone says what they know.
    let report = explain(&table, filter, &options).await.unwrap();
    assert!(report.leaves.iter().all(|leaf| leaf.reason.is_none() && leaf.rows.is_some()), "{report}");
}

/// A scan leaves these searches out; index-only values need no reading, so that they are worth it.
#[tokio::test]
async fn groups_and_sums_are_made_of_the_indexes_where_a_scan_would_read() {
    let Opened { folder, session } = indexed().await;
    let by_indexes = [
        "SELECT half, count(*) FROM t WHERE spread < 400 GROUP BY half",
        "SELECT sum(half), avg(half), count(*) FROM t WHERE spread < 400",
        "SELECT min(half), count(DISTINCT state) FROM t WHERE half = 1",
        "SELECT state, count(*) FROM t WHERE half = 0 GROUP BY state",
    ];
    for sql in by_indexes {
        assert!(!left_out(&session, sql).await.is_empty(), "{sql}");
        let plan = ran(&session, sql).await.plan;
        assert_eq!((answering_metric(&plan, "files_index_only"), metric(&plan, "bytes_scanned")), (1, 0), "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    // A thousand values are given by one core more slowly than two of them read the rows, `id` has no index, and the other condition has to be evaluated for each row.
    for sql in [
        "SELECT sum(spread) FROM t WHERE half = 1",
        "SELECT sum(id), sum(spread) FROM t WHERE half = 1",
        "SELECT half, count(*) FROM t WHERE spread < 400 AND abs(spread) % 2 = 0 GROUP BY half",
    ] {
        let plan = ran(&session, sql).await.plan;
        assert!(metric(&plan, "bytes_scanned") > 0, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    // A file that nobody has indexed yet is read beside.
    std::fs::copy(folder.path().join("a.parquet"), folder.path().join("b.parquet")).unwrap();
    for sql in by_indexes {
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering_metric(&plan, "files_index_only"), 1, "{sql}");
        assert!(metric(&plan, "bytes_scanned") > 0, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

/// Adding a row up takes a twentieth of giving a value, and grouping it a quarter.
#[tokio::test]
async fn many_values_are_index_only_for_groups_and_read_for_sums() {
    let folder = TempDir::new().unwrap();
    write(folder.path());
    create_indexes(folder.path(), &["spread", "tens"]).await;
    let session = session(folder.path()).await;
    for (sql, files) in [
        ("SELECT sum(spread), avg(spread) FROM t", 1),
        ("SELECT sum(tens) FROM t", 0),
        ("SELECT avg(tens), count(*) FROM t", 0),
        ("SELECT count(DISTINCT tens) FROM t", 1),
        ("SELECT tens, count(*) FROM t GROUP BY tens", 1),
        ("SELECT tens, sum(tens) FROM t GROUP BY tens", 1),
    ] {
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering_metric(&plan, "files_index_only"), files, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

/// The engine ends with the first groups that it finds; the index gives all of them, if they are few.
#[tokio::test]
async fn the_first_of_many_groups_are_left_to_the_engine() {
    let folder = TempDir::new().unwrap();
    write(folder.path());
    create_indexes(folder.path(), &["half", "tens", "spread"]).await;
    let session = session(folder.path()).await;
    for (sql, is_index_only, count) in [
        ("SELECT DISTINCT half FROM t LIMIT 5", true, 2),
        ("SELECT DISTINCT spread FROM t LIMIT 5", true, 5),
        ("SELECT DISTINCT tens FROM t LIMIT 5", false, 5),
        ("SELECT tens, half FROM t GROUP BY tens, half LIMIT 5", false, 5),
        ("SELECT DISTINCT tens FROM t", true, 40_000),
    ] {
        let Ran { plan, rows: found } = ran(&session, sql).await;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!((metric(&plan, "bytes_scanned") == 0, found), (is_index_only, count), "{sql}: {shown}");
        assert_eq!(shown.contains("lim=[5]"), sql.contains("LIMIT"), "{sql}: {shown}");
    }
    // Rows enough for ten times as many groups are not read.
    let plan = ran(&session, "SELECT DISTINCT tens FROM t LIMIT 5").await.plan;
    assert!(metric(&plan, "output_rows") < ROWS / 4);
}

/// Rows that the reader hands to the filter.
async fn tested(session: &LakemarkSession, sql: &str) -> usize {
    let plan = ran(session, sql).await.plan;
    let metrics = scans(&plan).remove(0).metrics().unwrap();
    let totals = metrics.iter().filter_map(|metric| match metric.value() {
        MetricValue::Ratio { name, ratio_metrics } if name == "selectivity" => Some(ratio_metrics.total()),
        _ => None,
    });
    totals.sum()
}

#[tokio::test]
async fn a_limit_is_satisfied_by_a_small_batch_of_the_rows_that_were_found() {
    let Opened { folder: _folder, session } = indexed().await;
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE spread = 5").await, ["404"]);
    let of = "FROM t WHERE spread = 5 AND abs(id) % 2 = 0";
    assert_eq!(tested(&session, &format!("SELECT sum(id) {of}")).await, 404);
    // A batch of all rows would reach over 8,192 rows, of which eight have been found: 64 are the fewest.
    assert_eq!(tested(&session, &format!("SELECT id {of} LIMIT 3")).await, 64);
    // Rows that lie together are read as they lie.
    let together = "SELECT id FROM t WHERE sorted < 20 AND abs(id) % 2 = 0 LIMIT 3";
    assert_eq!(tested(&session, together).await, 8_000);
    assert_eq!(rows(&session, &format!("SELECT id {of} LIMIT 150")).await.len(), 150);
    assert_eq!(
        sorted(rows(&session, &format!("SELECT id {of} LIMIT 5000")).await),
        sorted(rows(&session, &format!("SELECT id {of}")).await)
    );
}

#[tokio::test]
async fn the_choice_is_in_the_plan() {
    let Opened { folder: _folder, session } = indexed().await;
    let text = rows(&session, "EXPLAIN SELECT id FROM t WHERE spread < 400").await.join("\n");
    assert!(text.contains("scan_is_cheaper=[spread < 400]"), "{text}");
    let text = rows(&session, "EXPLAIN SELECT id FROM t WHERE spread < 4").await.join("\n");
    assert!(!text.contains("scan_is_cheaper"), "{text}");
}

#[tokio::test]
async fn groups_for_which_the_session_has_no_memory_are_left_to_the_engine() {
    const SQL: &str = "SELECT tens % 10 AS digit, count(*) FROM t GROUP BY digit";
    let folder = TempDir::new().unwrap();
    write(folder.path());
    create_indexes(folder.path(), &["tens"]).await;
    for (limit, answered) in [("64M", 1), ("600K", 0)] {
        let session = session(folder.path()).await;
        let set = format!("SET datafusion.runtime.memory_limit = '{limit}'");
        session.sql(&set).await.unwrap().collect().await.unwrap();
        let Ran { plan, rows: count } = ran(&session, SQL).await;
        assert_eq!((answering_metric(&plan, "files_index_only"), count), (answered, 10), "{limit}");
        drop(plan);
        assert_eq!(session.context().runtime_env().memory_pool.reserved(), 0, "{limit}");
    }
}
