//! Limits of sorts above operators that see all rows.

use lakemark_datafusion::LakemarkSession;

use crate::engine::{Statement, datafusion_alone_is_wrong, ours_are_right};
use crate::fixture::rows;

const TABLES: [&str; 1] =
    ["CREATE TABLE u AS SELECT value AS id, value % 7 AS c3, value % 3 AS c1 FROM generate_series(1, 100)"];

/// Statements with their rows, and whether DataFusion alone gives others with two partitions.
const STATEMENTS: [Statement; 14] = [
    Statement::wrong(
        "SELECT id, count(c1) OVER (), row_number() OVER (PARTITION BY c3 ORDER BY id) FROM u ORDER BY c3, id LIMIT 1",
        &["7|100|1"],
    ),
    Statement::wrong(
        "SELECT id, count(c1) OVER (), row_number() OVER (PARTITION BY c3 ORDER BY id) FROM u WHERE c1 = 1 \
         ORDER BY c3 ASC NULLS LAST, c1 DESC, id ASC NULLS LAST LIMIT 1",
        &["7|34|1"],
    ),
    Statement::wrong(
        "SELECT id, sum(id) OVER (), row_number() OVER (PARTITION BY c3 ORDER BY id) AS r FROM u ORDER BY c3, id LIMIT 2 OFFSET 1",
        &["14|5050|2", "21|5050|3"],
    ),
    Statement::wrong(
        "SELECT id, n FROM (SELECT id, c3, count(*) OVER () AS n, row_number() OVER (PARTITION BY c3 ORDER BY id) AS r FROM u) \
         WHERE r = 1 ORDER BY c3, id LIMIT 2",
        &["7|100", "1|100"],
    ),
    Statement::right(
        "SELECT id, last_value(id) OVER (ORDER BY c3, id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), \
         row_number() OVER (PARTITION BY c3 ORDER BY id) FROM u ORDER BY c3, id LIMIT 1",
        &["7|97|1"],
    ),
    Statement::right(
        "SELECT id, lead(id) OVER (ORDER BY c3, id), row_number() OVER (PARTITION BY c3 ORDER BY id) FROM u ORDER BY c3, id LIMIT 1",
        &["7|14|1"],
    ),
    // The limit gets to groups below a window.
    Statement::wrong(
        "SELECT c3, count(*) OVER () FROM (SELECT c3, count(*) AS n FROM u GROUP BY c3) ORDER BY c3 LIMIT 1",
        &["0|7"],
    ),
    Statement::wrong(
        "SELECT c3, row_number() OVER (ORDER BY c3 DESC) FROM (SELECT DISTINCT c3 FROM u) ORDER BY c3 LIMIT 1",
        &["0|7"],
    ),
    // The limit gets between the two halves of DISTINCT (datafusion#24927).
    Statement::wrong(
        "WITH s(x) AS (VALUES (0), (1), (2) ORDER BY 1 LIMIT 3), \
         t AS (SELECT * FROM s UNION ALL SELECT * FROM s UNION ALL SELECT * FROM s) SELECT DISTINCT x FROM t ORDER BY x LIMIT 3",
        &["0", "1", "2"],
    ),
    // Nothing else asks for the order that says which rows are meant.
    Statement::right(
        "SELECT sum(id), count(*) FROM (SELECT id, count(*) OVER () AS n, row_number() OVER (PARTITION BY c3 ORDER BY id) AS r FROM u \
         ORDER BY c3, id LIMIT 3)",
        &["42|3"],
    ),
    Statement::right(
        "SELECT sum(id), count(*) FROM (SELECT id FROM u WHERE c1 > 0 ORDER BY c3, id LIMIT 3)",
        &["49|3"],
    ),
    Statement::right(
        "SELECT id FROM (SELECT * FROM (SELECT * FROM u ORDER BY c3, id LIMIT 20) WHERE c1 = 1) ORDER BY c3, id LIMIT 2 OFFSET 1",
        &["28", "49"],
    ),
    Statement::right(
        "SELECT a.id, b.id FROM u AS a JOIN u AS b ON a.id = b.c3 WHERE b.c1 = 2 ORDER BY a.c3, b.id LIMIT 2",
        &["1|8", "1|29"],
    ),
    Statement::right(
        "SELECT id, row_number() OVER (PARTITION BY c3 ORDER BY id) FROM u ORDER BY c3, id LIMIT 2",
        &["7|1", "14|2"],
    ),
];

#[tokio::test]
async fn a_limit_does_not_pass_what_must_see_all_rows() {
    ours_are_right(&TABLES, &STATEMENTS).await;
}

/// While this holds DataFusion needs our rule, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_hands_limits_to_what_is_below() {
    datafusion_alone_is_wrong(&TABLES, &STATEMENTS, 2).await;
}

/// What the rule takes apart is put together again where a sort stays, and nothing else is taken apart.
#[tokio::test]
async fn sorts_that_stay_keep_their_limits() {
    let session = LakemarkSession::new();
    for sql in ["SET datafusion.execution.target_partitions = 2", TABLES[0]] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    for (sql, sorts) in [
        ("SELECT id FROM u ORDER BY c3, id LIMIT 2", 1),
        ("SELECT id, count(*) OVER () FROM u ORDER BY c3, id LIMIT 2", 1),
        ("SELECT id FROM u WHERE c1 = 1 ORDER BY c3, id LIMIT 2", 1),
        ("SELECT a.id FROM u AS a JOIN u AS b ON a.id = b.c3 ORDER BY a.c3, b.id LIMIT 2", 1),
        ("SELECT c3, count(*) AS n FROM u GROUP BY c3 ORDER BY n, c3 LIMIT 2", 1),
        (
            "SELECT id, count(*) OVER (), row_number() OVER (PARTITION BY c3 ORDER BY id) AS r FROM u ORDER BY r, id LIMIT 2",
            1,
        ),
    ] {
        let plan = rows(&session, &format!("EXPLAIN {sql}")).await.join("\n");
        assert_eq!(plan.matches("TopK(fetch=2)").count(), sorts, "{plan}");
    }
}
