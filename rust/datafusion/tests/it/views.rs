//! Texts are views where rows are gathered, and what they were declared as in every result.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, Change, Operation, WriteOptions};

use crate::fixture::{FILE_ROWS, batch, both, create_indexes, folder, open, rows, scans, session, text};

/// Statements that gather texts.
const GATHERING: [&str; 24] = [
    "SELECT s, count(*) FROM t GROUP BY s",
    "SELECT max(s), min(upper(s)), count(DISTINCT s) FROM t",
    "SELECT DISTINCT s FROM t WHERE s LIKE 'ab%'",
    "SELECT s, max(id) FROM t GROUP BY s ORDER BY s NULLS FIRST LIMIT 7",
    "SELECT a.s, b.s FROM t a JOIN t b ON a.s = b.s AND a.id = b.id WHERE a.k = 3",
    "SELECT a.id, b.s FROM t a LEFT JOIN (SELECT * FROM t WHERE k = 2) b ON a.id = b.id AND b.s <> 'ab'",
    "SELECT id FROM t WHERE s IN (SELECT s FROM t WHERE k = 4) AND k < 2",
    "SELECT id FROM t o WHERE EXISTS (SELECT 1 FROM t i WHERE i.id = o.id AND o.s LIKE 'ab%' AND i.s = o.s)",
    "SELECT id, (SELECT max(i.s) FROM t i WHERE i.id = o.id AND i.s = o.s) AS same FROM t o WHERE id < 20",
    "SELECT s FROM t WHERE k = 1 UNION SELECT 'more' UNION ALL SELECT s || 'x' FROM t WHERE k = 2",
    "SELECT id, first_value(s) OVER (PARTITION BY k ORDER BY id) AS f FROM t WHERE k < 3",
    "WITH u AS (SELECT s, k FROM t WHERE s > 'ab0') SELECT u.s, v.s FROM u JOIN u v ON u.k = v.k AND u.s = v.s",
    "SELECT k, s, count(*) FROM t GROUP BY ROLLUP (k, s)",
    "SELECT s FROM t WHERE k = 1 EXCEPT SELECT s FROM t WHERE k = 5",
    "SELECT s FROM t UNION SELECT s FROM t",
    "SELECT CASE WHEN k = 1 THEN 'a' ELSE s END AS c, count(*) FROM t GROUP BY 1",
    "SELECT u.s FROM (SELECT s FROM t WHERE id < 9 UNION ALL SELECT s FROM t WHERE id > 2990) u WHERE EXISTS (SELECT 1 FROM t m WHERE m.s = u.s AND u.s LIKE 'a%')",
    "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id ORDER BY a.k DESC, b.id LIMIT 9",
    "SELECT id, s FROM t WHERE id <> (SELECT max(id) FROM t) ORDER BY k DESC, id LIMIT 9 OFFSET 2",
    "SELECT q.s FROM (SELECT a.s, a.id, b.k FROM t a JOIN t b ON a.s = b.s AND a.id = b.id ORDER BY b.k, a.id LIMIT 30) q ORDER BY q.id LIMIT 5",
    "SELECT s, id FROM t ORDER BY s, id LIMIT 7",
    "SELECT s FROM t WHERE s <> '' AND k > 1 ORDER BY k DESC, id LIMIT 7 OFFSET 3",
    "SELECT upper(s) AS u, s FROM t ORDER BY u DESC NULLS LAST, id LIMIT 5",
    "SELECT substr(s, 2) AS a, starts_with(s, 'gr') AS b, count(*) FROM t WHERE s <> '' GROUP BY 1, 2",
];

/// The types of texts in the scans of a statement.
fn texts(plan: &Arc<dyn ExecutionPlan>) -> Vec<DataType> {
    let schemas: Vec<SchemaRef> = scans(plan).iter().map(|scan| scan.schema()).collect();
    let of = |schema: &SchemaRef| schema.field_with_name("s").ok().map(|field| field.data_type().clone());
    schemas.iter().filter_map(of).collect()
}

async fn in_memory() -> LakemarkSession {
    let session = LakemarkSession::new();
    let all = (0..3).map(|file| batch(file * FILE_ROWS));
    let schema = batch(0).schema();
    let table = MemTable::try_new(schema, vec![all.collect()]).unwrap();
    session.context().register_table("t", Arc::new(table)).unwrap();
    session
}

/// The answer to a statement.
struct Answer {
    /// Its columns as they were announced.
    schema: SchemaRef,
    rows: Vec<String>,
}

async fn answer(session: &LakemarkSession, sql: &str) -> Answer {
    let frame = session.sql(sql).await.unwrap();
    let schema = SchemaRef::new(frame.schema().as_arrow().clone());
    let plan = frame.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), session.context().task_ctx()).await.unwrap();
    for batch in &batches {
        assert_eq!(types(&batch.schema()), types(&schema), "{sql}");
    }
    let mut rows: Vec<String> = batches.iter().flat_map(text).collect();
    rows.sort();
    Answer { schema, rows }
}

/// Names and types of columns, and nothing else of them.
fn types(schema: &SchemaRef) -> Vec<Field> {
    schema.fields().iter().map(|field| Field::new(field.name(), field.data_type().clone(), true)).collect()
}

#[tokio::test]
async fn statements_over_views_give_what_they_give_over_declared_types() {
    let folder = folder(3);
    create_indexes(folder.path(), &["s", "k"]).await;
    let (ours, judge) = (session(folder.path()).await, in_memory().await);
    for sql in GATHERING {
        let (given, right) = (answer(&ours, sql).await, answer(&judge, sql).await);
        assert_eq!(types(&given.schema), types(&right.schema), "{sql}");
        assert_eq!(given.rows, right.rows, "{sql}");
        let (with, without) = both(&ours, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

#[tokio::test]
async fn texts_are_views_where_rows_are_gathered() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    for sql in GATHERING {
        let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        assert!(texts(&plan).iter().all(|text| *text == DataType::Utf8View), "{sql}");
    }
    for sql in [
        "SELECT s FROM t",
        "SELECT s, id FROM t ORDER BY s, id",
        "SELECT s, id FROM t ORDER BY s, id LIMIT 200000",
        "SELECT s, id FROM t ORDER BY lower(s), id LIMIT 7",
        "SELECT * FROM t WHERE s = 'ab' LIMIT 3",
        "SELECT upper(s), s FROM t",
    ] {
        let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        assert_eq!(texts(&plan), [DataType::Utf8], "{sql}");
    }
}

#[tokio::test]
async fn buffered_rows_are_views_as_well() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let rows = batch(3 * FILE_ROWS).slice(2, 5);
    table.write(vec![Change { operation: Operation::Upsert, rows }], WriteOptions::default()).await.unwrap();
    let session = session(folder.path()).await;
    for flushed in [false, true] {
        if flushed {
            table.flush().await.unwrap();
        }
        let (with, without) = both(&session, "SELECT s, count(*), max(id) FROM t GROUP BY s").await;
        assert_eq!(with, without);
        let given = answer(&session, "SELECT max(s), count(s) FROM t WHERE id > 3000").await;
        assert_eq!((given.schema.field(0).data_type(), given.rows), (&DataType::Utf8, vec!["größe 2|4".to_owned()]));
    }
}

#[tokio::test]
async fn recursion_lateral_joins_and_written_rows_keep_their_types() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    for sql in [
        "WITH RECURSIVE r AS (SELECT id, s FROM t WHERE id = 2 UNION ALL SELECT t.id, t.s FROM t JOIN r ON t.id = r.id + 5 WHERE t.id < 30) SELECT s, count(*) FROM r GROUP BY s",
        "SELECT t.id, l.m FROM t, LATERAL (SELECT max(i.s) AS m FROM t i WHERE i.id = t.id) l WHERE t.id < 9 ORDER BY 1",
        "SELECT DISTINCT ON (k) k, s FROM t ORDER BY k NULLS LAST, id",
        "SELECT arrow_cast(s, 'LargeUtf8') AS large, count(*) FROM t GROUP BY 1",
        "CREATE TABLE made AS SELECT s, count(*) AS n FROM t GROUP BY s",
        "SELECT * FROM made ORDER BY s",
        "EXPLAIN SELECT s, count(*) FROM t GROUP BY s",
        "EXPLAIN ANALYZE SELECT s, count(*) FROM t GROUP BY s",
    ] {
        answer(&session, sql).await;
    }
    let made = session.sql("SELECT * FROM made").await.unwrap();
    assert_eq!(made.schema().field(0).data_type(), &DataType::Utf8);
}

#[tokio::test]
async fn rows_that_are_cast_at_the_end_keep_their_order() {
    let folder = folder(30);
    let session = session(folder.path()).await;
    session.sql("SET datafusion.execution.target_partitions = 4").await.unwrap().collect().await.unwrap();
    let sql = "SELECT a.id, a.s, b.s FROM t a JOIN t b ON a.id = b.id ORDER BY a.id DESC";
    let ids: Vec<i64> =
        rows(&session, sql).await.iter().map(|row| row.split('|').next().unwrap().parse().unwrap()).collect();
    assert!(ids.is_sorted_by(|one, next| one > next) && ids.len() == 30 * FILE_ROWS);
    for (limit, rest) in [("LIMIT 20000", 20_000), ("LIMIT 20000 OFFSET 7", 20_000), ("LIMIT 150000", 30 * FILE_ROWS)] {
        let sql = format!("SELECT a.id, a.s FROM t a JOIN t b ON a.id = b.id ORDER BY a.s DESC, a.id {limit}");
        let frame = session.sql(&sql).await.unwrap();
        assert_eq!(frame.schema().field(1).data_type(), &DataType::Utf8);
        let plan = frame.create_physical_plan().await.unwrap();
        assert!(texts(&plan).iter().all(|text| *text == DataType::Utf8View), "{sql}");
        let key = |row: &String| {
            let (id, s) = row.split_once('|').unwrap();
            (std::cmp::Reverse((s == "NULL", s.to_owned())), id.parse::<i64>().unwrap())
        };
        let found: Vec<_> = rows(&session, &sql).await.iter().map(key).collect();
        assert!(found.is_sorted() && found.len() == rest, "{sql}");
    }
    // Orders above that go by what was cast or renamed below.
    for (sql, first) in [
        (
            "SELECT CAST(id AS VARCHAR) AS s FROM (SELECT id FROM t ORDER BY id LIMIT 100) q ORDER BY s LIMIT 3",
            ["0", "1", "10"],
        ),
        (
            "SELECT n FROM (SELECT a.id AS n, a.s FROM t a JOIN t b ON a.id = b.id ORDER BY a.s, a.id LIMIT 40) q ORDER BY n DESC LIMIT 3",
            ["195", "190", "185"],
        ),
        (
            "SELECT s FROM (SELECT a.s, a.id FROM t a JOIN t b ON a.id = b.id ORDER BY a.id LIMIT 5) q ORDER BY s NULLS FIRST LIMIT 3",
            ["NULL", "", "ab"],
        ),
    ] {
        assert_eq!(rows(&session, sql).await, first, "{sql}");
    }
}

#[tokio::test]
async fn the_first_rows_of_a_sort_are_cast_alone() {
    let folder = folder(3);
    let session = session(folder.path()).await;
    let first = "SELECT a.s, b.id FROM t a JOIN t b ON a.id = b.id ORDER BY a.s, b.id";
    for (limit, are_alone) in [("LIMIT 10", true), ("LIMIT 10 OFFSET 3", true), ("", false), ("LIMIT 200000", false)] {
        let plan = session.sql(&format!("{first} {limit}")).await.unwrap().create_physical_plan().await.unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        let (cast, sort) = (shown.find("CAST(").unwrap(), shown.find("SortExec").unwrap());
        assert_eq!(cast < sort, are_alone, "{shown}");
        assert_eq!(shown.contains("LastCastsExec"), are_alone, "{shown}");
        let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {first} {limit}")).await.join("\n");
        assert_eq!(analyzed.contains("LastCastsExec"), are_alone, "{analyzed}");
    }
}

#[tokio::test]
async fn rows_that_are_written_elsewhere_have_their_declared_types() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    for sql in [
        "CREATE TABLE m AS SELECT s FROM t WHERE id < 0",
        "INSERT INTO m SELECT s FROM t UNION SELECT s FROM t",
        "CREATE TABLE n AS SELECT s FROM t UNION SELECT s FROM t",
    ] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    for table in ["m", "n"] {
        let given = answer(&session, &format!("SELECT s FROM {table} WHERE s > 'ab'")).await;
        assert_eq!(
            given.schema.field(0).data_type(),
            session.sql("SELECT s FROM t").await.unwrap().schema().field(0).data_type()
        );
    }
}
