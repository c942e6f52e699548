//! Aggregates that DataFusion answers from statistics that are not exact.

use crate::engine::{Statement, datafusion_alone_is_wrong, ours_are_right};

/// Only files have bounds.
const WRITTEN: &str =
    "COPY (SELECT CAST(value AS INT) AS id, value % 3 AS c1, CAST(value AS VARCHAR) AS s FROM generate_series(1, 100))";

const OF_FILES: [Statement; 7] = [
    Statement::wrong("SELECT min(CAST(id AS VARCHAR)), max(CAST(id AS VARCHAR)) FROM p", &["1|99"]),
    Statement::wrong("SELECT max(x) FROM (SELECT CAST(id AS VARCHAR) AS x, c1 FROM p) ORDER BY 1", &["99"]),
    Statement::right("SELECT max(CAST(s AS INT)) FROM p", &["100"]),
    Statement::right("SELECT max(CAST(id AS BIGINT)), min(CAST(id AS DOUBLE)) FROM p", &["100|1.0"]),
    Statement::right("SELECT min(id), max(id), max(s), count(s) FROM p", &["1|100|99|100"]),
    Statement::wrong("SELECT count(DISTINCT id), count(DISTINCT c1) FROM p WHERE id = 4 AND c1 = 2", &["0|0"]),
    Statement::right("SELECT count(DISTINCT id), count(DISTINCT c1) FROM p WHERE id = 4 AND c1 = 1", &["1|1"]),
];

const TABLES: [&str; 1] = ["CREATE TABLE u AS SELECT value AS id, value % 3 AS c1 FROM generate_series(1, 100)"];

/// Statements with their rows, and whether DataFusion alone gives others.
const STATEMENTS: [Statement; 6] = [
    Statement::wrong("SELECT count(DISTINCT x), count(*) FROM (SELECT CAST(NULL AS VARCHAR) AS x FROM u)", &["0|100"]),
    Statement::wrong(
        "SELECT count(DISTINCT x), count(DISTINCT y) FROM (SELECT CAST(NULL AS INT) AS x, 5 AS y FROM u)",
        &["0|1"],
    ),
    Statement::wrong(
        "SELECT count(DISTINCT a.c1), count(*) FROM (SELECT * FROM u WHERE id < NULL) AS a FULL JOIN u AS c ON a.id = c.id",
        &["0|100"],
    ),
    Statement::right("SELECT count(DISTINCT x), count(*) FROM (SELECT 7 AS x FROM u)", &["1|100"]),
    Statement::right(
        "SELECT count(DISTINCT x), count(x) FROM (SELECT CAST(NULL AS INT) AS x FROM u WHERE id < 0)",
        &["0|0"],
    ),
    Statement::right(
        "SELECT c1, count(DISTINCT x) FROM (SELECT c1, CAST(NULL AS INT) AS x FROM u) GROUP BY c1 ORDER BY 1",
        &["0|0", "1|0", "2|0"],
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

fn files(folder: &std::path::Path) -> [String; 2] {
    let path = folder.join("p.parquet");
    [
        format!("{WRITTEN} TO '{}' STORED AS PARQUET", path.display()),
        format!("CREATE EXTERNAL TABLE p STORED AS PARQUET LOCATION '{}'", path.display()),
    ]
}

#[tokio::test]
async fn bounds_and_counts_of_files_hold_for_what_is_made_of_them() {
    let folder = tempfile::TempDir::new().unwrap();
    ours_are_right(&files(folder.path()).each_ref().map(String::as_str), &OF_FILES).await;
}

/// While this holds DataFusion needs our rule, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_casts_bounds() {
    let folder = tempfile::TempDir::new().unwrap();
    datafusion_alone_is_wrong(&files(folder.path()).each_ref().map(String::as_str), &OF_FILES, 2).await;
}
