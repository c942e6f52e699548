//! Buffered updates in SQL: scans, counts, aggregates and lookups of a table that changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::physical_plan::displayable;
use lakemark_datafusion::{LakemarkSession, QueryOptions};
use lakemark_table::{BuildOptions, Change, Operation, Table, WriteOptions};

use crate::fixture::{create_indexes, folder, open, ran};

async fn session(table: &Arc<Table>) -> LakemarkSession {
    let session = LakemarkSession::new();
    session.register("t", Arc::clone(table)).await.unwrap();
    session
}

async fn ask(session: &LakemarkSession, sql: &str) -> String {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let rows: Vec<String> = arrow::util::pretty::pretty_format_batches(&batches)
        .unwrap()
        .to_string()
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join(","))
        .collect();
    rows.join(" ")
}

fn rows(rows: &[(i64, i32, &str)]) -> RecordBatch {
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let k: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2)));
    RecordBatch::try_from_iter([("id", id), ("k", k), ("s", s)]).unwrap()
}

async fn make(table: &Arc<Table>, operation: Operation, rows: RecordBatch) {
    table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
}

#[tokio::test]
async fn every_way_of_asking_sees_what_is_buffered() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(&table).await;
    assert_eq!(ask(&session, "SELECT count(*) FROM t WHERE k = 4").await, "171");
    make(&table, Operation::Upsert, rows(&[(4, 77, "new"), (5000, 4, "new"), (5001, 77, "ab")])).await;
    make(&table, Operation::Delete, rows(&[(14, 0, "")]).project(&[0]).unwrap()).await;
    make(&table, Operation::Update, rows(&[(11, 77, "")]).project(&[0, 1]).unwrap()).await;
    for _ in 0..2 {
        for (sql, expected) in [
            // 171 rows without those of the ids 4 and 14, with the one of 5000.
            ("SELECT count(*) FROM t WHERE k = 4", "170"),
            ("SELECT count(*) FROM t", "2001"),
            ("SELECT id, s FROM t WHERE k = 77 ORDER BY id", "4,new 11, 5001,ab"),
            ("SELECT max(k), min(id), max(id), count(k) FROM t", "77,0,5001,1715"),
            ("SELECT k, count(*) FROM t WHERE k > 8 GROUP BY k ORDER BY k", "9,172 77,3"),
            ("SELECT sum(k), count(DISTINCT s) FROM t WHERE id > 1990", "117,7"),
            ("SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.k = 77 AND b.s = 'new'", "4"),
            ("SELECT id FROM t WHERE id IN (4, 14, 5000) ORDER BY id", "4 5000"),
            ("SELECT count(*) FROM (SELECT * FROM t LIMIT 2000)", "2000"),
        ] {
            assert_eq!(ask(&session, sql).await, expected, "{sql}");
        }
        let options = QueryOptions::default();
        assert_eq!(lakemark_datafusion::count(&table, Some("k = 77"), &options).await.unwrap(), 3);
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![4, 14, 5001]));
        let found = lakemark_datafusion::lookup(&table, &keys, &[], None, &options).await.unwrap().batches;
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
        table.flush().await.unwrap();
    }
    let plan = ask(&session, "EXPLAIN SELECT id FROM t WHERE k = 77").await;
    assert!(plan.contains("rows_buffered=4"), "{plan}");
}

#[tokio::test]
async fn counts_that_the_indexes_know_look_at_buffered_rows_alone() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(&table).await;
    make(&table, Operation::Upsert, rows(&[(4, 77, "new"), (5000, 4, "new"), (5001, 77, "ab")])).await;
    make(&table, Operation::Delete, rows(&[(14, 0, "")]).project(&[0]).unwrap()).await;
    make(&table, Operation::Update, rows(&[(11, 77, "")]).project(&[0, 1]).unwrap()).await;
    for _ in 0..2 {
        for (filter, expected, known) in [
            ("true", 2001, true),
            ("1 = 2", 0, true),
            ("k = NULL", 0, true),
            ("k = 4", 170, true),
            ("k = '77'", 3, true),
            ("k = 77 AND s = 'new'", 1, true),
            ("k = 77 OR s = 'new'", 4, true),
            ("NOT (x.k <= 9 OR x.k IS NULL)", 3, true),
            ("k = 77 AND abs(k) = 77", 3, false),
            ("id = 5001", 1, true),
        ] {
            let sql = format!("SELECT count(*) FROM t AS x WHERE {filter}");
            assert_eq!(ask(&session, &sql).await, expected.to_string(), "{sql}");
            let plan = displayable(ran(&session, &sql).await.plan.as_ref()).indent(false).to_string();
            assert_eq!(plan.starts_with("DataSourceExec") && plan.lines().count() == 1, known, "{sql}\n{plan}");
            let filter = filter.replace("x.", "");
            let options = QueryOptions::default();
            assert_eq!(
                lakemark_datafusion::count(&table, Some(&filter), &options).await.unwrap(),
                expected,
                "{filter}"
            );
        }
        assert_eq!(lakemark_datafusion::count(&table, None, &QueryOptions::default()).await.unwrap(), 2001);
        table.flush().await.unwrap();
    }
}

#[tokio::test]
async fn statements_change_just_the_rows_of_their_condition() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(&table).await;
    for (sql, count, check, expected) in [
        ("DELETE FROM t WHERE false", "0", "SELECT count(*) FROM t", "2000"),
        (
            "DELETE FROM t WHERE id IN (SELECT id + 1 FROM t WHERE id < 10)",
            "10",
            "SELECT min(id), count(*) FROM t",
            "0,1990",
        ),
        ("DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM t u WHERE u.id = t.id)", "0", "SELECT count(*) FROM t", "1990"),
        ("UPDATE t SET k = k WHERE id BETWEEN 1990 AND 1992", "3", "SELECT count(*) FROM t", "1990"),
        ("UPDATE t AS z SET k = z.k, id = id WHERE z.id < 20", "10", "SELECT min(id), count(*) FROM t", "0,1990"),
        (
            "UPDATE t SET k = id % 3, s = 'x' WHERE id >= 1998",
            "2",
            "SELECT id, k, s FROM t WHERE s = 'x' ORDER BY id",
            "1998,0,x 1999,1,x",
        ),
        ("UPDATE t SET id = id + 10000 WHERE id = 1999", "1", "SELECT id, k, s FROM t WHERE id > 1998", "11999,1,x"),
        (
            "INSERT INTO t (id, k) VALUES (1999, 5), (3000, 6)",
            "2",
            "SELECT id, k, s FROM t WHERE id IN (1999, 3000) ORDER BY id",
            "1999,5, 3000,6,",
        ),
        (
            "INSERT INTO t SELECT id + 100000, k, f, s, b, \"Mixed Case\" FROM t WHERE id < 100",
            "90",
            "SELECT count(*) FROM t",
            "2082",
        ),
        ("REPLACE INTO t (id, k) VALUES (1999, 7)", "1", "SELECT k FROM t WHERE id = 1999", "7"),
        (
            "MERGE INTO t USING (VALUES (1999, 70), (3000, 0), (4000, 40), (4001, 0)) AS n(id, k) ON t.id = n.id \
             WHEN MATCHED AND n.k = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET k = n.k + t.k \
             WHEN NOT MATCHED AND n.k > 0 THEN INSERT (id, k) VALUES (n.id, n.k)",
            "3",
            "SELECT id, k FROM t WHERE id IN (1999, 3000, 4000, 4001) ORDER BY id",
            "1999,77 4000,40",
        ),
        ("DELETE FROM t AS z WHERE z.id > 7 AND z.id < 10", "0", "SELECT count(*) FROM t", "2082"),
        (
            "DELETE FROM t z WHERE id < 1002 AND EXISTS (SELECT 1 FROM t u WHERE u.id = z.id + 1 AND z.id > 1000)",
            "1",
            "SELECT min(id) FROM t WHERE id > 1000",
            "1002",
        ),
        ("DELETE FROM t AS Z WHERE z.id > 1100 LIMIT 2", "2", "SELECT count(*) FROM t", "2079"),
        ("DELETE FROM t AS z", "2079", "SELECT count(*) FROM t", "0"),
    ] {
        assert_eq!(ask(&session, sql).await, count, "{sql}");
        assert_eq!(ask(&session, check).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn statements_that_cannot_be_made_change_nothing() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let unkeyed = session(&table).await;
    let error = unkeyed.sql("DELETE FROM t WHERE id = 1").await.unwrap_err();
    assert!(error.to_string().contains("has no key"), "{error}");
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(&table).await;
    for (sql, says) in [
        ("INSERT INTO t (id) VALUES (1)", "the key id = 1 is there already"),
        ("INSERT INTO t (id) VALUES (7000), (7000)", "stands in rows 0 and 1"),
        ("UPDATE t SET id = 5 WHERE id < 3", "stands in rows 0 and 1"),
        ("UPDATE t SET id = 5 WHERE id = 3", "the key id = 5 is there already"),
        ("MERGE INTO t USING (VALUES (1), (1)) AS n(id) ON t.id = n.id WHEN MATCHED THEN DELETE", "more than once"),
        ("INSERT OVERWRITE t SELECT * FROM t", "not supported"),
        ("TRUNCATE TABLE t", "not supported"),
    ] {
        let error = session.sql(sql).await.unwrap_err();
        assert!(error.to_string().contains(says), "{sql}: {error}");
    }
    assert_eq!(ask(&session, "SELECT count(*), sum(id) FROM t").await, "1000,499500");
    // DataFusion's own sessions hand no condition on that has a subquery.
    let plain = datafusion::prelude::SessionContext::new();
    let provider = lakemark_datafusion::LakemarkTable::new(Arc::clone(&table)).await.unwrap();
    plain.register_table("t", Arc::new(provider)).unwrap();
    let refused = plain.sql("DELETE FROM t WHERE id IN (SELECT id FROM t)").await.unwrap().collect().await.unwrap_err();
    assert!(refused.to_string().contains("needs a session of Lakemark"), "{refused}");
}

#[tokio::test]
async fn statements_with_a_number_are_made_once() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(&table).await;
    let name = |version: u64| {
        let session = &session;
        async move {
            for sql in [format!("SET lakemark.txn_version = {version}"), "SET lakemark.txn_app_id = 'job'".to_owned()] {
                session.sql(&sql).await.unwrap().collect().await.unwrap();
            }
        }
    };
    let merge = "MERGE INTO t USING (VALUES (3, 9), (4000, 9)) AS n(id, k) ON t.id = n.id \
                 WHEN MATCHED THEN UPDATE SET k = t.k + n.k WHEN NOT MATCHED THEN INSERT (id, k) VALUES (n.id, n.k)";
    let statements = [
        ("INSERT INTO t (id, k) VALUES (5000, 1)", "1"),
        ("UPDATE t SET k = k + 10 WHERE id IN (1, 2)", "2"),
        ("UPDATE t SET id = id + 6000 WHERE id IN (7, 8, 9)", "3"),
        ("DELETE FROM t WHERE k IS NULL OR id = 5000", "144"),
        (merge, "2"),
    ];
    let check = "SELECT count(*), sum(id), sum(k) FROM t";
    for (version, (sql, count)) in (1..).zip(statements) {
        name(version).await;
        assert_eq!(ask(&session, sql).await, count, "{sql}");
        let expected = ask(&session, check).await;
        for again in [version, version - 1, version] {
            name(again).await;
            assert_eq!(ask(&session, sql).await, "0", "{sql}");
            assert_eq!(ask(&session, check).await, expected, "{sql}");
        }
    }
    // Each statement has unset both, so that the next one is another one.
    assert_eq!(ask(&session, "UPDATE t SET k = 0 WHERE id = 1").await, "1");
    assert_eq!(ask(&session, "UPDATE t SET k = 1 WHERE id = 1").await, "1");
    session.sql("SET lakemark.txn_version = 9").await.unwrap().collect().await.unwrap();
    let error = session.sql("DELETE FROM t").await.unwrap_err();
    assert!(error.to_string().contains("go together"), "{error}");
    // A statement that fails keeps them, to be made again.
    session.sql("SET lakemark.txn_app_id = 'job'").await.unwrap().collect().await.unwrap();
    session.sql("INSERT INTO t (id) VALUES (1)").await.unwrap_err();
    assert_eq!(ask(&session, "INSERT INTO t (id) VALUES (7000)").await, "1");
    name(9).await;
    assert_eq!(ask(&session, "INSERT INTO t (id) VALUES (7001)").await, "0");
    assert_eq!(ask(&session, "SELECT count(*) FROM t WHERE id >= 7000").await, "1");
}

/// A table with a key at two versions.
struct TwoVersions {
    folder: tempfile::TempDir,
    session: LakemarkSession,
    /// The version before the ids below 10 were deleted.
    before: u64,
}

async fn two_versions() -> TwoVersions {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let before = table.history(Some(1)).await.unwrap()[0].version;
    let ids: Vec<(i64, i32, &str)> = (0..10).map(|id| (id, 0, "")).collect();
    make(&table, Operation::Delete, rows(&ids).project(&[0]).unwrap()).await;
    table.flush().await.unwrap();
    TwoVersions { folder, session: session(&table).await, before }
}

#[tokio::test]
async fn a_statement_reads_each_table_at_the_version_that_it_says() {
    let TwoVersions { folder, session, before } = two_versions().await;
    let at = format!("VERSION AS OF {before}");
    for (sql, expected) in [
        (format!("SELECT count(*) FROM t {at}"), "2000"),
        ("SELECT count(*) FROM t".to_owned(), "1990"),
        (format!("SELECT count(*) FROM t {at} WHERE id < 12"), "12"),
        (format!("SELECT t.id FROM t {at} WHERE t.id = 3"), "3"),
        (
            format!(
                "SELECT x.id FROM public.t {at} AS x LEFT JOIN t ON x.id = t.id WHERE t.id IS NULL AND x.id > 7 ORDER BY 1"
            ),
            "8 9",
        ),
        (format!("WITH t AS (SELECT 1) SELECT count(*) FROM t {at} y"), "2000"),
        (
            format!(
                "SELECT count(*) FROM t WHERE id + 1 NOT IN (SELECT id FROM t FOR SYSTEM_VERSION AS OF '{before}')"
            ),
            "1",
        ),
    ] {
        assert_eq!(ask(&session, &sql).await, expected, "{sql}");
    }
    let explained = ask(&session, &format!("EXPLAIN SELECT id FROM t {at} WHERE k = 1")).await;
    assert!(explained.contains(&format!("t VERSION AS OF {before}")), "{explained}");
    // A view over an older version stays one, and so does a prepared statement.
    session.sql(&format!("CREATE VIEW was AS SELECT id FROM t {at}")).await.unwrap();
    session.sql(&format!("PREPARE p AS SELECT count(*) FROM t {at} WHERE id < $1")).await.unwrap();
    session.sql("DELETE FROM t WHERE id = 15").await.unwrap();
    assert_eq!(ask(&session, "SELECT count(*) FROM was WHERE id < 16").await, "16");
    assert_eq!(ask(&session, "EXECUTE p(16)").await, "16");
    assert_eq!(ask(&session, "SELECT count(*) FROM t WHERE id < 16").await, "5");
    let copy = folder.path().with_extension("copy.csv");
    session.sql(&format!("COPY t {at} TO '{}' STORED AS CSV", copy.display())).await.unwrap().collect().await.unwrap();
    assert_eq!(std::fs::read_to_string(&copy).unwrap().lines().count(), 2001);
    std::fs::remove_file(copy).unwrap();
}

#[tokio::test]
async fn nothing_is_changed_at_a_version_and_what_has_none_says_so() {
    let TwoVersions { folder: _folder, session, before } = two_versions().await;
    session.sql("CREATE TABLE other AS SELECT 1 AS id").await.unwrap();
    let at = format!("VERSION AS OF {before}");
    for (sql, problem) in [
        (format!("CREATE INDEX i ON t {at} (k)"), "before its alias"),
        (format!("INSERT INTO t {at} SELECT * FROM t"), "before its alias"),
        (format!("SELECT count(*) FROM t x {at}"), "before its alias"),
        (format!("DELETE FROM t x {at} WHERE id = 20"), "before its alias"),
        (format!("DELETE FROM t {at} WHERE id = 20"), "can only be read"),
        ("SELECT * FROM t VERSION AS OF 99".to_owned(), "has no version 99: the newest is"),
        ("SELECT * FROM other VERSION AS OF 1".to_owned(), "other is not a Lakemark table"),
        ("SELECT * FROM nowhere VERSION AS OF 1".to_owned(), "not found"),
        ("SELECT * FROM t VERSION AS OF 'x'".to_owned(), "give the number of a version"),
    ] {
        let error = match session.sql(&sql).await {
            Ok(_) => panic!("{sql} is done"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(problem), "{sql}: {error}");
    }
    for sql in [format!("DELETE FROM t {at} WHERE id = 20"), format!("UPDATE t {at} SET k = 1 WHERE id = 20")] {
        assert!(session.sql(&sql).await.is_err(), "{sql}");
    }
    assert_eq!(ask(&session, "SELECT count(*) FROM t").await, "1990");
}

#[tokio::test]
async fn the_first_rows_of_an_order_are_those_of_now() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(&table).await;
    // The first and the last rows are gone, others became first, and one is new.
    let gone: Vec<(i64, i32, &str)> = [0, 1, 2, 1998, 1999].map(|id| (id, 0, "")).to_vec();
    make(&table, Operation::Delete, rows(&gone).project(&[0]).unwrap()).await;
    make(&table, Operation::Upsert, rows(&[(-5, 3, "new"), (4, -1, "least"), (900, 12, "most")])).await;
    for (sql, expected) in [
        ("SELECT id FROM t ORDER BY id LIMIT 4", "-5 3 4 5"),
        ("SELECT id FROM t ORDER BY id DESC LIMIT 2", "1997 1996"),
        ("SELECT k, id FROM t ORDER BY k, id LIMIT 3", "-1,4 0,20 0,30"),
        ("SELECT k, id FROM t ORDER BY k DESC NULLS LAST, id LIMIT 2", "12,900 9,9"),
        ("SELECT id FROM t WHERE k = 9 ORDER BY id LIMIT 1 OFFSET 1", "19"),
    ] {
        let plan = ran(&session, sql).await.plan;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert!(shown.contains("first_rows="), "{shown}");
        let found = ask(&session, sql).await;
        session.sql("SET lakemark.use_index = false").await.unwrap().collect().await.unwrap();
        assert_eq!(found, ask(&session, sql).await, "{sql}");
        session.sql("SET lakemark.use_index = true").await.unwrap().collect().await.unwrap();
        assert_eq!(found, expected, "{sql}");
    }
}
