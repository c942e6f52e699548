//! Scans whose partitions have uneven shares, below operators that work on their rows.

use datafusion::physical_plan::displayable;
use lakemark_datafusion::LakemarkSession;

use crate::fixture::{FILE_ROWS, GROUP_ROWS, create_indexes, folder, rows, session};

async fn set(session: &LakemarkSession, setting: &str) {
    session.sql(&format!("SET {setting}")).await.unwrap().collect().await.unwrap();
}

/// How often the plan of a statement deals out the batches of a scan.
async fn dealt(session: &LakemarkSession, sql: &str) -> usize {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let text = displayable(plan.as_ref()).indent(false).to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let deals = |pair: &[&str]| pair[0].contains("RoundRobinBatch") && pair[1].starts_with("LakemarkScanExec");
    lines.windows(2).filter(|pair| deals(pair)).count()
}

#[tokio::test]
async fn batches_are_dealt_out_where_one_partition_reads_more_row_groups() {
    // Four row groups, of which one of three partitions has two.
    let folder = folder(1);
    assert_eq!(FILE_ROWS / GROUP_ROWS, 4);
    create_indexes(folder.path(), &["id"]).await;
    let session = session(folder.path()).await;
    set(&session, "datafusion.execution.batch_size = 16").await;
    let join = "SELECT count(a.s) FROM t a JOIN t b ON a.id = b.id + 1";
    let statements = [
        ("SELECT k, count(s) FROM t GROUP BY k ORDER BY k", 1),
        ("SELECT k, count(s) FROM t WHERE abs(id) >= 0 GROUP BY k ORDER BY k", 1),
        (join, 1),
        // Nothing works on these rows, or few are read.
        ("SELECT id FROM t ORDER BY id LIMIT 3", 0),
        ("SELECT k, count(s) FROM t WHERE id < 100 GROUP BY k ORDER BY k", 0),
    ];
    for (sql, expected) in statements {
        set(&session, "datafusion.execution.target_partitions = 3").await;
        assert_eq!(dealt(&session, sql).await, expected, "{sql}");
        let with = rows(&session, sql).await;
        set(&session, "datafusion.optimizer.enable_round_robin_repartition = false").await;
        assert_eq!((dealt(&session, sql).await, rows(&session, sql).await), (0, with.clone()), "{sql}");
        set(&session, "datafusion.optimizer.enable_round_robin_repartition = true").await;
        // Two row groups for each.
        set(&session, "datafusion.execution.target_partitions = 2").await;
        assert_eq!((dealt(&session, sql).await, rows(&session, sql).await), (0, with), "{sql}");
    }
    set(&session, "datafusion.execution.target_partitions = 3").await;
    set(&session, "datafusion.execution.batch_size = 8192").await;
    assert_eq!(dealt(&session, join).await, 0);
}
