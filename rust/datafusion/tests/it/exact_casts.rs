//! What a statement writes keeps its digits, or nothing is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use datafusion::common::{ParamValues, ScalarValue};
use lakemark_datafusion::{ErrorKind, LakemarkSession, Result};
use lakemark_table::{BuildOptions, TableOptions};
use tempfile::TempDir;

use crate::fixture::{Opened, open, rows, write};

fn decimal(values: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
}

fn optional(name: &str, column: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new(name, column.data_type().clone(), true))
}

/// Three rows: `id` is 1 to 3, `a` a BIGINT, `e` a DECIMAL(5,2), `d` a DATE, `ts` a TIMESTAMP, `r` a REAL, `txt` a text, `p` a struct with `n`
/// and `e`, `l` a list and `m` a map of BIGINT.
fn batch() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![10, 20, 30]));
    let cents = decimal(vec![100, 200, 300], 5, 2);
    let place = StructArray::new(
        Fields::from(vec![optional("n", &numbers), optional("e", &cents)]),
        vec![Arc::clone(&numbers), Arc::clone(&cents)],
        None,
    );
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>((1..4).map(|row| Some(vec![Some(row)])));
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["k", "k", "k"]));
    let entries = Fields::from(vec![Arc::new(Field::new("key", DataType::Utf8, false)), optional("value", &numbers)]);
    let map = MapArray::new(
        Arc::new(Field::new("entries", DataType::Struct(entries.clone()), false)),
        OffsetBuffer::from_lengths([1, 1, 1]),
        StructArray::new(entries, vec![keys, Arc::clone(&numbers)], None),
        None,
        false,
    );
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef, true),
        ("a", numbers, true),
        ("e", cents, true),
        ("d", Arc::new(Date32Array::from(vec![19_000; 3])) as ArrayRef, true),
        ("ts", Arc::new(TimestampMicrosecondArray::from(vec![0; 3])) as ArrayRef, true),
        ("r", Arc::new(Float32Array::from(vec![0.5; 3])) as ArrayRef, true),
        ("txt", Arc::new(StringArray::from(vec!["x"; 3])) as ArrayRef, true),
        ("p", Arc::new(place) as ArrayRef, true),
        ("l", Arc::new(list) as ArrayRef, true),
        ("m", Arc::new(map) as ArrayRef, true),
    ])
    .unwrap()
}

/// A session with the table as `t`, and rows of other types as `s`.
async fn keyed(key: &[&str]) -> Opened {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("part.parquet"), &batch());
    let table = open(folder.path()).await;
    let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
    table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = LakemarkSession::new();
    session.register("t", table).await.unwrap();
    let s = "CREATE TABLE s AS SELECT 1 AS id, 7.5::DOUBLE AS x, 7.0::DOUBLE AS whole, 1.239::DECIMAL(8, 3) AS c, \
             1.230::DECIMAL(8, 3) AS fits, 0.1::DOUBLE AS tenth, TIMESTAMP '2024-05-05 13:00:00' AS noon, \
             TIMESTAMP '2024-05-05 00:00:00' AS midnight, '1.239' AS word, '7' AS seven";
    session.sql(s).await.unwrap().collect().await.unwrap();
    session.sql("CREATE VIEW v AS SELECT id, c * 1 AS made, c FROM s").await.unwrap();
    Opened { folder, session }
}

async fn run(session: &LakemarkSession, sql: &str) -> Result<()> {
    session.sql(sql).await?.collect().await.map_err(lakemark_datafusion::from_engine)?;
    Ok(())
}

async fn state(session: &LakemarkSession) -> Vec<String> {
    rows(session, "SELECT * FROM t ORDER BY id").await
}

/// The statement is refused, says the text and changes nothing.
async fn refused(session: &LakemarkSession, sql: &str, says: &str) {
    let before = state(session).await;
    let error = run(session, sql).await.expect_err(sql);
    assert_eq!(error.kind(), ErrorKind::SchemaMismatch, "{sql}: {error}");
    assert!(error.to_string().contains(says), "{sql}: {error}");
    assert_eq!(state(session).await, before, "{sql}");
}

const A: &str = "7.5 cannot be written to a, which is BIGINT, without losing a part of it; if that is meant, write CAST(… AS BIGINT)";
const E: &str = "1.239 cannot be written to e, which is DECIMAL(5, 2), without losing a part of it";
const D: &str = "2024-05-05T13:00:00 cannot be written to d, which is DATE, without losing a part of it";
const ID: &str = "0.9 cannot be written to id, which is BIGINT, without losing a part of it";

#[tokio::test]
async fn statements_that_would_drop_digits_are_refused() {
    let Opened { folder: _folder, session } = keyed(&["id"]).await;
    for (sql, says) in [
        // The audit's statements.
        ("REPLACE INTO t (id, a) VALUES (0.9, 0.9)", ID),
        ("INSERT INTO t (id, a) VALUES (200, 7.5)", A),
        ("UPDATE t SET a = 7.5 WHERE id = 1", A),
        ("UPDATE t SET e = 1.239 WHERE id = 1", E),
        ("MERGE INTO t USING (SELECT 1 AS id, 7.5 AS a) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET a = q.a", A),
        ("UPDATE t SET d = TIMESTAMP '2024-05-05 13:00:00' WHERE id = 1", D),
        // One row of several, of another type than the others, and columns in another order.
        ("INSERT INTO t (a, id) VALUES ('7', 200), (NULL, 201), (CAST(7.9 AS BIGINT), 202), (7.5, 203)", A),
        ("INSERT INTO t (a, id) VALUES (9007199254740993, 200), (7.0 + 0.5, 201)", A),
        ("INSERT INTO t (id, e) VALUES (200, 1.23), (201, '1.239')", E),
        ("INSERT INTO t (id, a) VALUES (200, CAST(7.5 AS DOUBLE))", A),
        ("INSERT INTO t (id, a) VALUES (200, CASE WHEN true THEN 7.5 END)", A),
        // Queries.
        ("INSERT INTO t (id, a) SELECT 200, x FROM s", A),
        ("INSERT INTO t (id, e) SELECT 200, c FROM s", E),
        ("INSERT INTO t (id, e) SELECT 200, word FROM s", E),
        ("INSERT INTO t (id, d) SELECT 200, noon FROM s", D),
        ("INSERT INTO t (id, e) SELECT 200, c FROM v", E),
        ("INSERT INTO t (id, e) SELECT 200, max(c) FROM s GROUP BY id", E),
        ("INSERT INTO t (id, e) SELECT id + 199, coalesce(c, 1) FROM s", E),
        ("INSERT INTO t (id, e) WITH q AS (SELECT DISTINCT c FROM s) SELECT 200, c FROM q ORDER BY c LIMIT 1", E),
        ("INSERT INTO t (id, a) SELECT 200, 7 UNION ALL SELECT 201, 7.5", A),
        ("INSERT INTO t (id, a) SELECT y, x FROM (VALUES (7.5, 200)) q(x, y)", A),
        ("REPLACE INTO t (id, a) SELECT 0.9, 1", ID),
        ("UPDATE t SET a = (SELECT x FROM s) WHERE id = 1", A),
        ("UPDATE t SET e = CASE WHEN id = 1 THEN 1.239 ELSE e * 1.1 END", E),
        ("UPDATE t SET e = coalesce(NULL, 1.239, e * 1.1)", E),
        ("UPDATE t SET a = CASE WHEN id > 1 THEN 7 ELSE 7.5 END", A),
        ("UPDATE t SET e = CAST(e * 0 + 1.239 AS DECIMAL(8, 3)) WHERE id = 1", E),
        ("UPDATE t AS z SET a = z.e + 6.5 WHERE z.id = 1", A),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET e = s.c", E),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET d = s.noon", D),
        (
            "MERGE INTO t USING (VALUES (9, 7.5)) q(id, a) ON t.id = q.id WHEN NOT MATCHED THEN INSERT (id, a) VALUES (q.id, q.a)",
            A,
        ),
        ("MERGE INTO t AS z USING s ON z.id = s.id + 8 WHEN NOT MATCHED THEN INSERT (id, a) VALUES (0.9, 1)", ID),
        // Keys are exact, whatever they come from.
        ("UPDATE t SET id = id - 0.1 WHERE id = 1", ID),
        ("INSERT INTO t (id) SELECT whole / 10 + 0.2 FROM s", "cannot be written to id"),
        // Texts with more than the column has, what is no number, and what is too large.
        ("UPDATE t SET d = '2024-05-05 13:00:00' WHERE id = 1", "2024-05-05 13:00:00 cannot be written to d"),
        ("UPDATE t SET ts = '2024-05-05 13:00:00.1234567' WHERE id = 1", "which is TIMESTAMP(6), without losing"),
        ("UPDATE t SET a = 'x' WHERE id = 1", "x cannot be written to a, which is BIGINT; give a value that fits it"),
        ("UPDATE t SET a = '7.5' WHERE id = 1", "7.5 cannot be written to a, which is BIGINT; give a value"),
        ("UPDATE t SET a = 'NaN'::DOUBLE WHERE id = 1", "NaN cannot be written to a"),
        ("UPDATE t SET a = 'inf'::DOUBLE WHERE id = 1", "inf cannot be written to a"),
        ("UPDATE t SET a = 1e19 WHERE id = 1", "cannot be written to a"),
        ("UPDATE t SET e = 1234.5 WHERE id = 1", "1234.5 cannot be written to e"),
        ("UPDATE t SET e = e * 1000 WHERE id = 1", "cannot be written to e, which is DECIMAL(5, 2); give a value"),
        ("UPDATE t SET r = 1e300 WHERE id = 1", "cannot be written to r, which is REAL"),
        ("UPDATE t SET r = '1e300' WHERE id = 1", "1e300 cannot be written to r, which is REAL"),
        // Numbers that stand for times, and a day that begins elsewhere.
        ("UPDATE t SET ts = 7.5 WHERE id = 1", "7.5 cannot be written to ts, which is TIMESTAMP(6), without losing"),
        ("INSERT INTO t (id, ts) SELECT 200, x FROM s", "7.5 cannot be written to ts, which is TIMESTAMP(6)"),
        ("UPDATE t SET ts = 'NaN'::DOUBLE WHERE id = 1", "NaN cannot be written to ts, which is TIMESTAMP(6)"),
        ("UPDATE t SET ts = 'inf'::DOUBLE WHERE id = 1", "inf cannot be written to ts, which is TIMESTAMP(6)"),
        (
            "UPDATE t SET d = arrow_cast(TIMESTAMP '2024-05-05 02:00:00', 'Timestamp(Second, Some(\"+02:00\"))') WHERE id = 1",
            "2024-05-05T02:00:00+02:00 cannot be written to d, which is DATE, without losing",
        ),
        ("UPDATE t SET txt = [1, 2] WHERE id = 1", "cannot be written to txt"),
    ] {
        refused(&session, sql, says).await;
    }
}

#[tokio::test]
async fn digits_inside_of_structs_lists_and_maps_are_kept() {
    let Opened { folder: _folder, session } = keyed(&["id"]).await;
    let n = "1.5 cannot be written to p.n, which is BIGINT, without losing a part of it; if that is meant, write CAST(… AS BIGINT)";
    for (sql, says) in [
        ("UPDATE t SET p = {'n': 1.5, 'e': 1.0} WHERE id = 1", n),
        ("INSERT INTO t (id, p) VALUES (200, named_struct('n', 1.5, 'e', 1.0))", n),
        ("INSERT INTO t (id, p) SELECT 200, named_struct('n', x - 6) FROM s", n),
        (
            "REPLACE INTO t (id, p) SELECT 1, named_struct('e', c) FROM s",
            "1.239 cannot be written to p.e, which is DECIMAL(5, 2)",
        ),
        ("UPDATE t SET p = named_struct('e', e * 1.239) WHERE id = 1", "cannot be written to p.e"),
        ("UPDATE t SET l = [1, 1.5] WHERE id = 1", "1.5 cannot be written to l[], which is BIGINT"),
        ("UPDATE t SET l = 1.5 WHERE id = 1", "1.5 cannot be written to l[], which is BIGINT"),
        ("INSERT INTO t (id, l) SELECT 200, x - 6 FROM s", "1.5 cannot be written to l[], which is BIGINT"),
        ("INSERT INTO t (id, l) SELECT 200, array_agg(x - 6) FROM s", "1.5 cannot be written to l[]"),
        ("UPDATE t SET m = MAP {'k': 1.5} WHERE id = 1", "1.5 cannot be written to m[], which is BIGINT"),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET p = named_struct('n', s.x - 6)", n),
        ("UPDATE t SET p = {'n': 1, 'other': 2} WHERE id = 1", "has the field other for p"),
    ] {
        refused(&session, sql, says).await;
    }
    for (sql, check, expected) in [
        ("UPDATE t SET p = {'n': 2.0, 'e': '1.230'} WHERE id = 1", "SELECT p FROM t WHERE id = 1", "{n: 2, e: 1.23}"),
        ("UPDATE t SET l = [1.0, NULL, 3] WHERE id = 1", "SELECT l FROM t WHERE id = 1", "[1, , 3]"),
        ("UPDATE t SET l = 4.0 WHERE id = 1", "SELECT l FROM t WHERE id = 1", "[4]"),
        (
            "UPDATE t SET d = arrow_cast(TIMESTAMP '2024-05-05 00:00:00', 'Timestamp(Second, Some(\"+02:00\"))') WHERE id = 1",
            "SELECT d FROM t WHERE id = 1",
            "2024-05-05",
        ),
        ("UPDATE t SET m = MAP {'k': 5.0} WHERE id = 1", "SELECT m FROM t WHERE id = 1", "{k: 5}"),
        (
            "INSERT INTO t (id, p) VALUES (4, {'n': CAST(1.5 AS BIGINT), 'e': NULL})",
            "SELECT p FROM t WHERE id = 4",
            "{n: 1, e: }",
        ),
    ] {
        run(&session, sql).await.unwrap();
        assert_eq!(rows(&session, check).await, [expected.replace(" }", " NULL}").replace(", ,", ", NULL,")], "{sql}");
    }
}

#[tokio::test]
async fn what_fits_and_what_is_cast_is_written() {
    let Opened { folder: _folder, session } = keyed(&["id"]).await;
    for (sql, check, expected) in [
        (
            "INSERT INTO t (id, a) VALUES (10, 7.0), (11, '7'), (12, CAST(7.9 AS BIGINT)), (13, 7.9::BIGINT), (14, -7.0), (15, NULL)",
            "SELECT a FROM t WHERE id BETWEEN 10 AND 15 ORDER BY id",
            "7 7 7 7 -7 NULL",
        ),
        (
            "INSERT INTO t (e, id) VALUES (1.230, 20), ('1.230', 21), (CAST(1.239 AS DECIMAL(5, 2)), 22), (1.1 * 1.1, 23), (1, 24)",
            "SELECT e FROM t WHERE id BETWEEN 20 AND 24 ORDER BY id",
            "1.23 1.23 1.24 1.21 1.00",
        ),
        (
            "INSERT INTO t (id, d) VALUES (30, TIMESTAMP '2024-05-05 00:00:00'), (31, '2024-05-05'), (32, CAST(TIMESTAMP '2024-05-05 13:00:00' AS DATE))",
            "SELECT d FROM t WHERE id BETWEEN 30 AND 32 ORDER BY id",
            "2024-05-05 2024-05-05 2024-05-05",
        ),
        (
            "INSERT INTO t (id, r) VALUES (40, 0.1), (41, CAST(1 AS DOUBLE) / 3)",
            "SELECT r FROM t WHERE id BETWEEN 40 AND 41 ORDER BY id",
            "0.1 0.33333334",
        ),
        (
            "INSERT INTO t (id, a, d, e) SELECT 50, whole, midnight, fits FROM s",
            "SELECT a, d, e FROM t WHERE id = 50",
            "7|2024-05-05|1.23",
        ),
        ("INSERT INTO t (id, a) SELECT 51, CAST(x AS BIGINT) FROM s", "SELECT a FROM t WHERE id = 51", "7"),
        ("INSERT INTO t (id, a) SELECT 52, seven FROM s", "SELECT a FROM t WHERE id = 52", "7"),
        ("INSERT INTO t (id, txt) SELECT 53, c FROM s", "SELECT txt FROM t WHERE id = 53", "1.239"),
        // The engine itself gives the first column of these rows the type of the key.
        (
            "INSERT INTO t (id, txt) SELECT y, x FROM (VALUES (7.5, 54)) q(x, y)",
            "SELECT txt FROM t WHERE id = 54",
            "7.5",
        ),
        (
            "INSERT INTO t (id, a) SELECT id, count(*) FROM (VALUES (55, 1, 2), (55, 3, 4)) q(id, x, y) GROUP BY id",
            "SELECT a FROM t WHERE id = 55",
            "2",
        ),
        ("UPDATE t SET a = CAST(7.5 AS BIGINT) WHERE id = 1", "SELECT a FROM t WHERE id = 1", "7"),
        ("UPDATE t SET a = 8.0, e = e WHERE id = 1", "SELECT a, e FROM t WHERE id = 1", "8|1.00"),
        ("UPDATE t SET a = a WHERE id = 1 AND a = 8", "SELECT a FROM t WHERE id = 1", "8"),
        ("UPDATE t SET id = 60.0 WHERE id = 2", "SELECT count(*) FROM t WHERE id = 60", "1"),
        (
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.whole, d = s.midnight, e = s.fits",
            "SELECT a, d, e FROM t WHERE id = 1",
            "7|2024-05-05|1.23",
        ),
        (
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = CAST(s.x AS BIGINT)",
            "SELECT a FROM t WHERE id = 1",
            "7",
        ),
    ] {
        if let Err(error) = run(&session, sql).await {
            // Columns that are set to themselves are another matter.
            assert!(error.to_string().contains("names no column beside the key"), "{sql}: {error}");
        }
        assert_eq!(rows(&session, check).await.join(" "), expected, "{sql}");
    }
}

#[tokio::test]
async fn results_of_arithmetic_are_rounded_to_the_scale_of_a_decimal_column() {
    let Opened { folder: _folder, session } = keyed(&["id"]).await;
    let reset = "UPDATE t SET e = 1.15 WHERE id = 1";
    let price = "SELECT e FROM t WHERE id = 1";
    for (sql, expected) in [
        ("UPDATE t SET e = e * 1.13 WHERE id = 1", "1.30"),
        ("UPDATE t SET e = -(e * 1.13) WHERE id = 1", "-1.30"),
        ("UPDATE t SET e = e * CAST(1.130 AS DECIMAL(4, 3)) WHERE id = 1", "1.30"),
        ("UPDATE t SET e = e / 3 WHERE id = 1", "0.38"),
        ("UPDATE t SET e = coalesce(e * 1.13, 0) WHERE id = 1", "1.30"),
        ("UPDATE t SET e = CASE WHEN id = 1 THEN e * 1.13 ELSE e END", "1.30"),
        ("UPDATE t SET e = (SELECT c * 1 FROM s) WHERE id = 1", "1.24"),
        (
            "REPLACE INTO t (id, e) SELECT 1, made FROM (SELECT c * 1 AS made FROM s) q WHERE made > 0 ORDER BY 2 LIMIT 1",
            "1.24",
        ),
        ("REPLACE INTO t (id, e) SELECT id, made FROM v", "1.24"),
        ("REPLACE INTO t (id, e) SELECT id, avg(c) FROM s GROUP BY id", "1.24"),
        ("REPLACE INTO t (id, e) SELECT id, sum(c * 1) OVER () FROM s", "1.24"),
        ("REPLACE INTO t (id, e) VALUES (1, 1.239 * 1)", "1.24"),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET e = t.e * 1.13", "1.30"),
        (
            "MERGE INTO t USING (SELECT id, c * 1 AS made FROM s) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET e = q.made",
            "1.24",
        ),
    ] {
        run(&session, reset).await.unwrap();
        run(&session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(rows(&session, price).await, [expected], "{sql}");
    }
    // Not in a key.
    let Opened { folder: _folder, session } = keyed(&["id", "e"]).await;
    refused(&session, "UPDATE t SET e = e * 1.125 WHERE id = 1", "1.125 cannot be written to e").await;
    refused(&session, "INSERT INTO t (id, e) SELECT 9, c * 1 FROM s", E).await;
    run(&session, "UPDATE t SET e = e * 1.5 WHERE id = 1").await.unwrap();
    assert_eq!(rows(&session, price).await, ["1.50"]);
}

#[tokio::test]
async fn parameters_keep_their_digits() {
    let Opened { folder: _folder, session } = keyed(&["id"]).await;
    let double = |value: f64| ScalarValue::Float64(Some(value));
    let whole = |value: i64| ScalarValue::Int64(Some(value));
    let cents = ScalarValue::Decimal128(Some(1239), 8, 3);
    let run = async |sql: &str, values: Vec<ScalarValue>| match session.sql_with(sql, ParamValues::from(values)).await {
        Ok(done) => done.collect().await.map(|_| ()).map_err(lakemark_datafusion::from_engine),
        Err(error) => Err(error),
    };
    for (sql, values, says) in [
        ("INSERT INTO t (id, a) VALUES ($1, $2)", vec![whole(200), double(7.5)], A),
        ("INSERT INTO t (id, a) VALUES ($1, 1), ($2, $3)", vec![whole(200), whole(201), double(7.5)], A),
        ("INSERT INTO t (id, a) VALUES ($1, $2 + 0.5)", vec![whole(200), double(7.0)], A),
        ("INSERT INTO t (id, e) VALUES ($1, $2)", vec![whole(200), cents.clone()], E),
        ("REPLACE INTO t (id) VALUES ($1)", vec![double(0.9)], ID),
        ("INSERT INTO t (id, a) SELECT $1, $2", vec![whole(200), double(7.5)], A),
        ("UPDATE t SET a = $1 WHERE id = $2", vec![double(7.5), whole(1)], A),
        ("UPDATE t SET e = $1 WHERE id = $2", vec![cents.clone(), whole(1)], E),
        ("UPDATE t SET id = $1 WHERE id = $2", vec![double(0.9), whole(1)], ID),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = $1", vec![double(7.5)], A),
    ] {
        let before = state(&session).await;
        let error = run(sql, values).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::SchemaMismatch, "{sql}: {error}");
        assert!(error.to_string().contains(says), "{sql}: {error}");
        assert_eq!(state(&session).await, before, "{sql}");
    }
    // Values of a column are not made of one type first: the first one would lose its last digit as a double.
    let values = vec![whole(200), whole(9_007_199_254_740_993), whole(201), double(7.0)];
    run("INSERT INTO t (id, a) VALUES ($1, $2), ($3, $4)", values).await.unwrap();
    run("UPDATE t SET e = $1, a = $2 WHERE id = 1", vec![double(1.25), ScalarValue::from("8")]).await.unwrap();
    run("UPDATE t SET e = e * $1 WHERE id = 2", vec![double(1.119)]).await.unwrap();
    let found = rows(&session, "SELECT a, e FROM t WHERE id IN (1, 2, 200, 201) ORDER BY id").await;
    assert_eq!(found, ["8|1.25", "20|2.24", "9007199254740993|NULL", "7|NULL"]);
}

#[tokio::test]
async fn statements_about_other_tables_are_the_engines() {
    let Opened { folder: _folder, session } = keyed(&["id"]).await;
    session.sql("CREATE TABLE plain (id BIGINT, a BIGINT)").await.unwrap();
    for sql in [
        "INSERT INTO plain VALUES (1, 7.5), (2, CAST(7.5 AS BIGINT))",
        "INSERT INTO plain SELECT 3, 7.5 UNION ALL SELECT 4, abs(-7.5)",
    ] {
        run(&session, sql).await.unwrap();
    }
    assert_eq!(rows(&session, "SELECT a FROM plain ORDER BY id").await, ["7"; 4]);
    // A table without a key says so first.
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("part.parquet"), &batch());
    let table = lakemark_table::Table::open(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    session.register("unkeyed", table).await.unwrap();
    let error = run(&session, "INSERT INTO unkeyed (id, a) SELECT 1, 7").await.unwrap_err();
    assert!(error.to_string().contains("has no key"), "{error}");
}
