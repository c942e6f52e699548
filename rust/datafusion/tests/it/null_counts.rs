//! Numbers of different values of columns that have NULL alone.

use crate::engine::{Statement, datafusion_alone_is_wrong, ours_are_right};

const TABLES: [&str; 1] = ["CREATE TABLE u AS SELECT value AS id, value % 3 AS c1 FROM generate_series(1, 100)"];

/// Statements with their rows, and whether DataFusion alone gives others.
const STATEMENTS: [Statement; 6] = [
    ("SELECT count(DISTINCT x), count(*) FROM (SELECT CAST(NULL AS VARCHAR) AS x FROM u)", &["0|100"], true),
    ("SELECT count(DISTINCT x), count(DISTINCT y) FROM (SELECT CAST(NULL AS INT) AS x, 5 AS y FROM u)", &["0|1"], true),
    (
        "SELECT count(DISTINCT a.c1), count(*) FROM (SELECT * FROM u WHERE id < NULL) AS a FULL JOIN u AS c ON a.id = c.id",
        &["0|100"],
        true,
    ),
    ("SELECT count(DISTINCT x), count(*) FROM (SELECT 7 AS x FROM u)", &["1|100"], false),
    ("SELECT count(DISTINCT x), count(x) FROM (SELECT CAST(NULL AS INT) AS x FROM u WHERE id < 0)", &["0|0"], false),
    (
        "SELECT c1, count(DISTINCT x) FROM (SELECT c1, CAST(NULL AS INT) AS x FROM u) GROUP BY c1 ORDER BY 1",
        &["0|0", "1|0", "2|0"],
        false,
    ),
];

#[tokio::test]
async fn null_is_no_value_that_is_counted() {
    ours_are_right(&TABLES, &STATEMENTS).await;
}

/// While this holds DataFusion needs our rule, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_counts_null() {
    datafusion_alone_is_wrong(&TABLES, &STATEMENTS, 2).await;
}
