//! Counts that the index knows are neither planned nor run; everything else that looks like one is.

use datafusion::physical_plan::displayable;

use crate::fixture::{FILE_ROWS, batch, both, folder, mark, ran, rows, session, write};

#[tokio::test]
async fn only_a_count_that_the_index_knows_is_left_out_of_plans() {
    let folder = folder(2);
    mark(folder.path(), &["k", "s", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    session.sql("CREATE TABLE plain AS SELECT 5 AS k").await.unwrap().collect().await.unwrap();
    for (sql, known) in [
        ("SELECT count(*) AS n FROM t WHERE k = 5", true),
        ("SELECT count(*) FROM t WHERE k = '5' AND \"Mixed Case\" IN (1, 2)", true),
        ("SELECT count(1) FROM t AS x WHERE x.k BETWEEN 2 AND 4 OR NOT x.s = 'ab'", true),
        ("SELECT count(*) FROM t WHERE k IS NULL", true),
        ("SELECT count(*) FROM t WHERE k = NULL", true),
        ("SELECT count(*) FROM t WHERE 1 = 2", true),
        ("SELECT count(*) FROM t", true),
        ("SELECT count(*) FROM t WHERE id = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 AND abs(k) = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 AND random() >= 0", false),
        ("SELECT count(*) FROM t WHERE k = (SELECT max(k) FROM plain)", false),
        ("SELECT count(*) FROM t WHERE k IN (SELECT k FROM plain)", false),
        ("SELECT count(*) FROM (SELECT k AS s, s AS k FROM t) WHERE k = 'ab'", false),
        ("SELECT count(*) FROM (SELECT * FROM t LIMIT 3) WHERE k = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 HAVING count(*) > 1000", false),
        ("SELECT count(*) + 1 FROM t WHERE k = 5", false),
        ("SELECT count(*) FILTER (WHERE k = 5) FROM t", false),
        ("SELECT count(s) FROM t WHERE k = 5", false),
        ("SELECT count(NULL) FROM t WHERE k = 5", false),
        ("SELECT count(DISTINCT 1) FROM t WHERE k = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 GROUP BY s", false),
        ("SELECT count(*) FROM t, plain WHERE t.k = 5", false),
        ("SELECT count(*) FROM plain WHERE k = 5", false),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        let plan = displayable(ran(&session, sql).await.0.as_ref()).indent(false).to_string();
        // The number is a row in memory; a planned count is computed, if only by a projection of a literal.
        assert_eq!(plan.starts_with("DataSourceExec") && plan.lines().count() == 1, known, "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_count_is_part_of_a_longer_query() {
    let folder = folder(2);
    mark(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    for sql in ["SELECT count(*) AS n FROM t WHERE k = 5", "SELECT count(*) AS n FROM t WHERE k = 5 AND id < 100"] {
        let expected: i64 = rows(&session, sql).await[0].parse().unwrap();
        let frame = session.sql(sql).await.unwrap();
        assert_eq!(frame.schema().field(0).name(), "n");
        assert_eq!(frame.clone().count().await.unwrap(), 1);
        let doubled = frame.clone().select_exprs(&["n * 2 AS m"]).unwrap().collect().await.unwrap();
        assert_eq!(crate::fixture::text(&doubled[0]), [(expected * 2).to_string()]);
        assert_eq!(frame.limit(0, Some(0)).unwrap().count().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn rows_that_no_mark_covers_are_counted_by_a_plan() {
    let folder = folder(1);
    mark(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let sql = "SELECT count(*) FROM t WHERE k = 5";
    assert_eq!(rows(&session, sql).await, ["86"]);
    write(&folder.path().join("part-1.parquet"), &batch(FILE_ROWS));
    let (with, without) = both(&session, sql).await;
    assert_eq!((with, without), (vec!["172".to_owned()], vec!["172".to_owned()]));
    let shown = rows(&session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(shown.contains("LakemarkScanExec"), "{shown}");
}
