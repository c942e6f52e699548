//! What a statement that changes a table cannot say is refused with a remedy, and nothing is changed.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use lakemark_datafusion::{ErrorKind, LakemarkSession};
use lakemark_table::BuildOptions;
use tempfile::TempDir;

use crate::fixture::{Opened, batch, folder, open, rows, write};

/// A session with a table of a thousand rows as `t`, other rows as `u`, and views of the table.
async fn session() -> Opened {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = LakemarkSession::new();
    session.register("t", table).await.unwrap();
    for sql in [
        "CREATE TABLE u AS SELECT 1 AS id, 70 AS k",
        // What is called as the key is another column.
        "CREATE VIEW v AS SELECT k AS id, id AS k FROM t",
        "CREATE VIEW whole AS SELECT * FROM t",
    ] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    let shown = session.context().table("t").await.unwrap().into_view();
    session.context().register_table("shown", shown).unwrap();
    Opened { folder, session }
}

async fn state(session: &LakemarkSession) -> Vec<String> {
    rows(session, "SELECT id, k, s FROM t ORDER BY id").await
}

async fn run(session: &LakemarkSession, sql: &str) -> lakemark_datafusion::Result<()> {
    session.sql(sql).await?.collect().await.map_err(lakemark_datafusion::from_engine)?;
    Ok(())
}

async fn speak(session: &LakemarkSession, dialect: &str) {
    run(session, &format!("SET datafusion.sql_parser.dialect = '{dialect}'")).await.unwrap();
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
async fn parts_of_statements_that_the_planner_passes_over_are_refused() {
    let Opened { folder: _folder, session } = session().await;
    let before = state(&session).await;
    for (dialect, sql, says) in [
        (
            "generic",
            "UPDATE t JOIN u ON t.id = u.id SET k = u.k",
            "a join is not supported in an UPDATE of a Lakemark table; use MERGE INTO",
        ),
        (
            "generic",
            "UPDATE t AS z INNER JOIN u ON z.id = u.id SET k = 1 WHERE z.id = 1",
            "a join is not supported in an UPDATE",
        ),
        (
            "generic",
            "UPDATE t SET k = u.k FROM u WHERE t.id = u.id",
            "FROM is not supported in an UPDATE of a Lakemark table; use MERGE",
        ),
        ("generic", "UPDATE t SET k = u.k FROM u, u AS w WHERE t.id = u.id", "FROM is not supported in an UPDATE"),
        ("generic", "UPDATE t SET k = u.k FROM u JOIN u AS w ON u.id = w.id", "FROM is not supported in an UPDATE"),
        ("snowflake", "UPDATE t FROM u SET k = u.k", "FROM is not supported in an UPDATE"),
        (
            "generic",
            "UPDATE t SET (k, s) = (1, 'x')",
            "a tuple of columns is not supported in an UPDATE of a Lakemark table; set the columns one by one",
        ),
        (
            "generic",
            "UPDATE t TABLESAMPLE (10 PERCENT) SET k = 1",
            "TABLESAMPLE is not supported in an UPDATE of a Lakemark table; choose the rows with WHERE",
        ),
        ("mysql", "UPDATE t PARTITION (p0) SET k = 1", "PARTITION (…) behind a table is not supported in an UPDATE"),
        (
            "mysql",
            "UPDATE t USE INDEX (i) SET k = 1",
            "a hint is not supported in an UPDATE of a Lakemark table; leave it out",
        ),
        ("mssql", "UPDATE t WITH (NOLOCK) SET k = 1", "a hint is not supported in an UPDATE"),
        ("generic", "UPDATE t AS z (a) SET k = 1", "a list of columns behind the alias is not supported in an UPDATE"),
        ("mysql", "UPDATE t SET k = 1 ORDER BY id LIMIT 1", "ORDER BY is not supported in an UPDATE"),
        (
            "generic",
            "UPDATE t SET k = 1 LIMIT 1",
            "LIMIT is not supported in an UPDATE of a Lakemark table; choose the rows with WHERE … IN (SELECT … LIMIT …)",
        ),
        (
            "generic",
            "UPDATE t SET k = 1 RETURNING id",
            "RETURNING is not supported in an UPDATE of a Lakemark table; ask for the rows with a SELECT",
        ),
        ("sqlite", "UPDATE OR IGNORE t SET k = 1", "OR is not supported in an UPDATE"),
        (
            "generic",
            "UPDATE t SET k = 1 WHERE id IN (SELECT id FROM u TABLESAMPLE (10 PERCENT))",
            "TABLESAMPLE is not supported in an UPDATE",
        ),
        ("generic", "DELETE FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported in a DELETE"),
        ("generic", "DELETE FROM t AS z TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported in a DELETE"),
        ("generic", "DELETE FROM t PARTITION (p0)", "PARTITION (…) behind a table is not supported in a DELETE"),
        ("mysql", "DELETE FROM t IGNORE INDEX (i)", "a hint is not supported in a DELETE"),
        (
            "generic",
            "DELETE FROM t AS z (k, id) WHERE z.id = 1",
            "a list of columns behind the alias is not supported in a DELETE",
        ),
        (
            "generic",
            "DELETE FROM t USING u WHERE t.id = u.id",
            "another table is not supported in a DELETE of a Lakemark table; use WHERE EXISTS",
        ),
        ("generic", "DELETE FROM t JOIN u ON t.id = u.id", "another table is not supported in a DELETE"),
        ("generic", "DELETE FROM t, u WHERE t.id = u.id", "another table is not supported in a DELETE"),
        ("mysql", "DELETE t FROM t WHERE id = 1", "a name before FROM is not supported in a DELETE"),
        ("generic", "DELETE FROM t ORDER BY id LIMIT 1", "ORDER BY is not supported in a DELETE"),
        ("generic", "DELETE FROM t WHERE id = 1 RETURNING id", "RETURNING is not supported in a DELETE"),
        (
            "generic",
            "DELETE FROM t WHERE id IN (SELECT id FROM u TABLESAMPLE (10 PERCENT))",
            "TABLESAMPLE is not supported in a DELETE",
        ),
        (
            "generic",
            "INSERT INTO t (id) SELECT id + 9000 FROM u TABLESAMPLE (10 PERCENT)",
            "TABLESAMPLE is not supported in an INSERT",
        ),
        (
            "generic",
            "INSERT INTO t (id) SELECT id + 9000 FROM (SELECT id FROM u) TABLESAMPLE (10 PERCENT)",
            "TABLESAMPLE is not supported in an INSERT",
        ),
        (
            "clickhouse",
            "INSERT INTO t (id) SELECT id + 9000 FROM u PREWHERE id > 1",
            "PREWHERE is not supported in an INSERT of a Lakemark table; use WHERE",
        ),
        (
            "snowflake",
            "INSERT INTO t (id) SELECT id + 9000 FROM u START WITH id = 7 CONNECT BY PRIOR id = k",
            "CONNECT BY is not supported in an INSERT",
        ),
        (
            "generic",
            "INSERT INTO t PARTITION (k = 1) SELECT 9000",
            "PARTITION (…) is not supported in an INSERT of a Lakemark table; insert the partition columns like all others",
        ),
        (
            "generic",
            "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO NOTHING",
            "a clause for rows whose key is there already is not supported in an INSERT of a Lakemark table; use REPLACE INTO",
        ),
        (
            "mysql",
            "INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE k = 1",
            "a clause for rows whose key is there already",
        ),
        ("mysql", "INSERT IGNORE INTO t (id) VALUES (9000)", "a clause for rows whose key is there already"),
        ("sqlite", "INSERT OR IGNORE INTO t (id) VALUES (9000)", "a clause for rows whose key is there already"),
        (
            "mysql",
            "INSERT INTO t SET id = 9000",
            "SET is not supported in an INSERT of a Lakemark table; use INSERT INTO t (a, b) VALUES (…)",
        ),
        ("postgresql", "INSERT INTO t AS x (id) VALUES (9000)", "an alias of the table is not supported in an INSERT"),
        ("mysql", "INSERT INTO t (id) VALUES (9000) AS new", "an alias of the rows is not supported in an INSERT"),
        ("generic", "INSERT INTO t (id) VALUES (9000) RETURNING id", "RETURNING is not supported in an INSERT"),
        ("generic", "REPLACE INTO t (id) VALUES (9000) RETURNING id", "RETURNING is not supported in a REPLACE"),
        ("generic", "INSERT INTO t DEFAULT VALUES", "DEFAULT VALUES is not supported in an INSERT"),
        (
            "generic",
            "MERGE INTO t USING u TABLESAMPLE (10 PERCENT) ON t.id = u.id WHEN MATCHED THEN DELETE",
            "TABLESAMPLE is not supported in a MERGE",
        ),
        (
            "generic",
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET k = 1 WHERE u.k > 1",
            "WHERE or DELETE WHERE in a clause is not supported in a MERGE of a Lakemark table; use WHEN MATCHED AND",
        ),
        (
            "generic",
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET (k) = (1)",
            "a tuple of columns is not supported in a MERGE",
        ),
    ] {
        speak(&session, dialect).await;
        let error = run(&session, sql).await.expect_err(sql);
        assert!(error.to_string().contains(says), "{sql}: {error}");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{sql}: {error}");
        assert!(state(&session).await == before, "{sql} has changed something");
    }
}

#[tokio::test]
async fn groups_and_orders_that_the_planner_forgets_are_refused_in_every_query() {
    let Opened { folder, session } = session().await;
    let before = state(&session).await;
    let copy = format!(
        "COPY (SELECT k, count(*) FROM t GROUP BY k WITH ROLLUP) TO '{}'",
        folder.path().join("copy.csv").display()
    );
    let rollup = "WITH ROLLUP is not supported; use GROUP BY ROLLUP (…)";
    let all = "ORDER BY ALL of anything but a plain SELECT is not supported; name the columns: ORDER BY 1, 2";
    for (dialect, sql, says) in [
        ("generic", "SELECT k, count(*) FROM t GROUP BY k WITH ROLLUP", rollup),
        ("generic", "SELECT k, count(*) FROM t GROUP BY ALL WITH ROLLUP", rollup),
        (
            "generic",
            "SELECT k, count(*) FROM t GROUP BY k WITH CUBE",
            "WITH CUBE is not supported; use GROUP BY CUBE (…)",
        ),
        (
            "clickhouse",
            "SELECT k, count(*) FROM t GROUP BY k WITH TOTALS",
            "WITH TOTALS is not supported; use GROUP BY GROUPING SETS ((…), ())",
        ),
        (
            "generic",
            "SELECT k, count(*) FROM t GROUP BY k GROUPING SETS (k, ())",
            "GROUPING SETS behind columns is not supported; use GROUP BY GROUPING SETS (…) without them",
        ),
        ("generic", "EXPLAIN SELECT k, count(*) FROM t GROUP BY k WITH ROLLUP", rollup),
        ("generic", "CREATE VIEW w AS SELECT k FROM t GROUP BY k WITH ROLLUP", rollup),
        ("generic", copy.as_str(), rollup),
        ("generic", "DELETE FROM t WHERE id IN (SELECT max(id) FROM u GROUP BY k WITH ROLLUP)", rollup),
        ("generic", "UPDATE t SET k = (SELECT max(k) FROM u GROUP BY ALL WITH ROLLUP)", rollup),
        ("generic", "INSERT INTO t (id) SELECT id + 9000 FROM u GROUP BY id WITH ROLLUP", rollup),
        ("generic", "INSERT INTO u SELECT id, k FROM u GROUP BY id, k WITH ROLLUP", rollup),
        (
            "generic",
            "MERGE INTO t USING (SELECT id FROM u GROUP BY id WITH ROLLUP) AS n ON t.id = n.id WHEN MATCHED THEN DELETE",
            rollup,
        ),
        ("duckdb", "SELECT k FROM t UNION ALL SELECT k FROM u ORDER BY ALL", all),
        ("clickhouse", "SELECT * FROM (SELECT k FROM t UNION SELECT k FROM u ORDER BY ALL DESC LIMIT 1)", all),
        ("duckdb", "DELETE FROM t WHERE id IN (SELECT id FROM t UNION SELECT id FROM u ORDER BY ALL LIMIT 1)", all),
    ] {
        speak(&session, dialect).await;
        let error = run(&session, sql).await.expect_err(sql);
        assert!(error.to_string().contains(says), "{sql}: {error}");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{sql}: {error}");
        assert!(state(&session).await == before, "{sql} has changed something");
    }
    for (dialect, sql, expected) in [
        ("generic", "SELECT id, count(*) FROM u GROUP BY ROLLUP (id) ORDER BY id", vec!["1|1", "NULL|1"]),
        ("generic", "SELECT id, count(*) FROM u GROUP BY GROUPING SETS ((id), ()) ORDER BY id", vec!["1|1", "NULL|1"]),
        ("generic", "SELECT id, count(*) FROM u GROUP BY ALL", vec!["1|1"]),
        ("duckdb", "SELECT id FROM t WHERE id < 2 ORDER BY ALL DESC", vec!["1", "0"]),
        ("duckdb", "SELECT id FROM t WHERE id < 2 UNION ALL SELECT id FROM u ORDER BY 1 DESC", vec!["1", "1", "0"]),
    ] {
        speak(&session, dialect).await;
        assert_eq!(rows(&session, sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn views_and_queries_are_not_changed() {
    let Opened { folder: _folder, session } = session().await;
    let before = state(&session).await;
    let view = |name: &str| format!("{name} is a view, and only tables are changed; change the table that it shows");
    for (sql, says) in [
        ("DELETE FROM v AS z WHERE z.id = 1", view("v")),
        ("DELETE FROM v WHERE id = 1", view("v")),
        ("DELETE FROM whole AS z WHERE z.id = 1", view("whole")),
        ("DELETE FROM shown AS z WHERE z.id = 1", view("shown")),
        ("DELETE FROM public.shown WHERE id = 1", view("public.shown")),
        ("UPDATE v SET k = 1", view("v")),
        ("UPDATE whole AS z SET k = 1", view("whole")),
        ("INSERT INTO whole (id) VALUES (9000)", view("whole")),
        ("INSERT INTO whole (id) SELECT 9000", view("whole")),
        ("MERGE INTO whole USING u ON whole.id = u.id WHEN MATCHED THEN DELETE", view("whole")),
        (
            "DELETE FROM (SELECT * FROM t) AS z WHERE z.id = 1",
            "DELETE changes a table and no query; name the table".to_owned(),
        ),
        ("UPDATE (SELECT * FROM t) AS z SET k = 1", "UPDATE changes a table and no query".to_owned()),
        (
            "MERGE INTO (SELECT * FROM t) AS z USING u ON z.id = u.id WHEN MATCHED THEN DELETE",
            "MERGE changes a table and no query".to_owned(),
        ),
    ] {
        let error = run(&session, sql).await.expect_err(sql);
        assert!(error.to_string().contains(&says), "{sql}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{sql}: {error}");
        assert!(state(&session).await == before, "{sql} has changed something");
    }
}

#[tokio::test]
async fn only_columns_of_the_target_get_values_and_each_of_them_one() {
    let Opened { folder: _folder, session } = session().await;
    let before = state(&session).await;
    for (sql, says) in [
        (
            "UPDATE t SET other.k = 1",
            "other.k is no column of t: write k or t.k; a field of a struct is set with its whole column",
        ),
        ("UPDATE t AS z SET other.k = 1", "other.k is no column of t: write k or z.k"),
        ("UPDATE t SET t.k.x = 1", "t.k.x is no column of t: write x or t.x"),
        ("UPDATE t SET other.t.k = 1", "other.t.k is no column of t"),
        ("UPDATE t SET a.b.c.d.k = 1", "a.b.c.d.k is no column of t"),
        ("UPDATE t SET k = 1, k = 2", "the column k gets two values; name it once"),
        ("UPDATE t SET k = 1, t.K = 2", "the column k gets two values; name it once"),
        ("INSERT INTO t (other.id) VALUES (9000)", "other.id is no column of t: write id or t.id"),
        ("INSERT INTO t (id, k, K) VALUES (9000, 1, 2)", "the column k gets two values; name it once"),
        ("INSERT INTO t (id, k, k) SELECT 9000, 1, 2", "the column k gets two values; name it once"),
        (
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET u.k = 1",
            "u.k is no column of t: write k or t.k",
        ),
        (
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET other.t.k = 1",
            "other.t.k is no column of t",
        ),
        (
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET k = 1, t.k = 2",
            "the column k gets two values",
        ),
        (
            "MERGE INTO t USING u ON t.id = u.id + 9000 WHEN NOT MATCHED THEN INSERT (id, k, k) VALUES (9000, 1, 2)",
            "the column k gets two values",
        ),
    ] {
        let error = run(&session, sql).await.expect_err(sql);
        assert!(error.to_string().contains(says), "{sql}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{sql}: {error}");
        assert!(state(&session).await == before, "{sql} has changed something");
    }
}

/// The statements name a column that the table does not have.
async fn unknown(session: &LakemarkSession, statements: [&str; 4]) {
    for sql in statements {
        let error = run(session, sql).await.expect_err(sql).to_string();
        assert!(error.contains("No field named") && error.contains("Valid fields are"), "{sql}: {error}");
    }
}

#[tokio::test]
async fn names_of_columns_are_folded_everywhere_or_nowhere() {
    let Opened { folder: _folder, session } = session().await;
    for (sql, check, expected) in [
        ("UPDATE t SET K = 81 WHERE ID = 1", "SELECT k FROM t WHERE id = 1", "81"),
        ("UPDATE t SET T.K = 82 WHERE T.Id = 1", "SELECT k FROM t WHERE id = 1", "82"),
        ("UPDATE t AS Z SET z.K = 83, \"s\" = 'x' WHERE Z.id = 1", "SELECT k, s FROM t WHERE id = 1", "83|x"),
        ("UPDATE public.t SET t.k = 84 WHERE id = 1", "SELECT k FROM t WHERE id = 1", "84"),
        ("UPDATE t SET datafusion.public.t.k = 85 WHERE id = 1", "SELECT k FROM t WHERE id = 1", "85"),
        ("UPDATE t SET \"Mixed Case\" = 86 WHERE id = 1", "SELECT \"Mixed Case\" FROM t WHERE id = 1", "86"),
        (
            "INSERT INTO t (ID, T.K, \"Mixed Case\") VALUES (9000, 1, 2)",
            "SELECT k, \"Mixed Case\" FROM t WHERE id = 9000",
            "1|2",
        ),
        ("INSERT INTO t (ID, K) SELECT 9001, 3", "SELECT k FROM t WHERE id = 9001", "3"),
        (
            "MERGE INTO t USING u ON t.ID = u.ID WHEN MATCHED THEN UPDATE SET T.K = u.K",
            "SELECT k FROM t WHERE id = 1",
            "70",
        ),
        (
            "MERGE INTO t AS z USING u ON z.id = u.id + 9001 WHEN NOT MATCHED THEN INSERT (z.ID, K) VALUES (9002, u.k)",
            "SELECT k FROM t WHERE id = 9002",
            "70",
        ),
        ("DELETE FROM t WHERE ID = 9002", "SELECT count(*) FROM t WHERE id = 9002", "0"),
    ] {
        run(&session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(rows(&session, check).await, [expected], "{sql}");
    }
    let before = state(&session).await;
    let quoted = [
        "UPDATE t SET \"K\" = 1",
        "INSERT INTO t (id, \"K\") VALUES (9009, 1)",
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET \"K\" = 1",
        "DELETE FROM t WHERE \"K\" = 1",
    ];
    unknown(&session, quoted).await;
    run(&session, "SET datafusion.sql_parser.enable_ident_normalization = false").await.unwrap();
    let as_they_are = [
        "UPDATE t SET K = 1",
        "INSERT INTO t (id, K) VALUES (9009, 1)",
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET K = 1",
        "DELETE FROM t WHERE K = 1",
    ];
    unknown(&session, as_they_are).await;
    assert_eq!(state(&session).await, before);
    run(&session, "UPDATE t SET k = 87 WHERE id = 1").await.unwrap();
    assert_eq!(rows(&session, "SELECT k FROM t WHERE id = 1").await, ["87"]);
}

#[tokio::test]
async fn a_column_whose_name_needs_quotes_is_told_from_one_that_is_missing() {
    let place = TempDir::new().unwrap();
    let columns = batch(0).project(&[0, 1]).unwrap().columns().to_vec();
    let named = RecordBatch::try_from_iter(["id", "FlightNum"].into_iter().zip(columns)).unwrap();
    write(&place.path().join("part-0.parquet"), &named);
    let table = open(place.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = LakemarkSession::new();
    session.register("t", table).await.unwrap();
    for sql in [
        "UPDATE t SET FlightNum = 5 WHERE id = 1",
        "INSERT INTO t (id, FlightNum) VALUES (9000, 5)",
        "INSERT INTO t (id, FlightNum) SELECT 9000, 5",
        "MERGE INTO t USING (SELECT 1 AS id) AS n ON t.id = n.id WHEN MATCHED THEN UPDATE SET FlightNum = 5",
        "DELETE FROM t WHERE FlightNum = 5",
    ] {
        let error = run(&session, sql).await.expect_err(sql).to_string();
        assert!(error.contains("You can use double quotes to refer to the"), "{sql}: {error}");
        assert!(error.contains("\"FlightNum\" column"), "{sql}: {error}");
    }
    run(&session, "UPDATE t SET \"FlightNum\" = 5 WHERE id = 1").await.unwrap();
    assert_eq!(rows(&session, "SELECT \"FlightNum\" FROM t WHERE id = 1").await, ["5"]);
}

#[tokio::test]
async fn statements_about_other_tables_stay_as_the_engine_takes_them() {
    let Opened { folder: _folder, session } = session().await;
    run(&session, "CREATE TABLE plain (id BIGINT, \"K\" BIGINT)").await.unwrap();
    run(&session, "INSERT INTO plain SELECT id, k FROM u").await.unwrap();
    run(&session, "UPDATE plain SET K = 5").await.unwrap();
    assert_eq!(rows(&session, "SELECT \"K\" FROM plain").await, ["5"]);
}
