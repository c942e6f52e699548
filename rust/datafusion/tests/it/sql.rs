//! Statements of ours, through the session.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{Error, ErrorKind, LakemarkSession};

use crate::fixture::{FILE_ROWS, batch, folder, rows, session, write};

async fn fails(session: &LakemarkSession, sql: &str) -> Error {
    match session.sql(sql).await {
        Err(error) => error,
        Ok(frame) => lakemark_datafusion::from_engine(frame.collect().await.expect_err(sql)),
    }
}

#[tokio::test]
async fn an_index_is_created_shown_and_dropped() {
    let folder = folder(2);
    let session = session(folder.path()).await;
    let created = session.sql("CREATE INDEX by_k ON t USING bitmap (k)").await.unwrap().collect().await.unwrap();
    assert!(created[0].column_by_name("created").unwrap().as_boolean().value(0));
    assert_eq!(created[0].column_by_name("files").unwrap().as_primitive::<UInt64Type>().value(0), 2);
    assert_eq!(created[0].column_by_name("rows").unwrap().as_primitive::<UInt64Type>().value(0), 2 * FILE_ROWS as u64);
    let shown = session.sql("SHOW INDEXES FROM t").await.unwrap().collect().await.unwrap();
    assert_eq!(shown[0].num_rows(), 1);
    for (column, expected) in
        [("name", "by_k"), ("kind", "bitmap"), ("encoding", "equality"), ("column", "k"), ("data_type", "Int32")]
    {
        assert_eq!(shown[0].column_by_name(column).unwrap().as_string::<i32>().value(0), expected);
    }
    assert_eq!(shown[0].column_by_name("coverage").unwrap().as_primitive::<Float64Type>().value(0), 1.0);
    write(&folder.path().join("part-2.parquet"), &batch(2 * FILE_ROWS));
    let shown = session.sql("SHOW INDEXES FROM t").await.unwrap().collect().await.unwrap();
    assert_eq!(shown[0].column_by_name("files_covered").unwrap().as_primitive::<UInt64Type>().value(0), 2);
    assert_eq!(shown[0].column_by_name("files_total").unwrap().as_primitive::<UInt64Type>().value(0), 3);
    assert_eq!(rows(&session, "CREATE INDEX IF NOT EXISTS by_k ON t (k)").await[0].split('|').next(), Some("false"));
    assert_eq!(rows(&session, "DROP INDEX by_k ON t").await, ["true"]);
    assert_eq!(rows(&session, "DROP INDEX IF EXISTS by_k ON t").await, ["false"]);
    assert!(rows(&session, "SHOW INDEXES FROM t").await.is_empty());
}

#[tokio::test]
async fn every_encoding_is_named_in_sql_and_answers() {
    for encoding in ["equality", "binary", "range", "interval", "interval-equality", "range-equality"] {
        let folder = folder(2);
        let session = session(folder.path()).await;
        let sql = "SELECT count(*) FROM t WHERE k BETWEEN 3 AND 5 OR k > 8";
        let expected = rows(&session, sql).await;
        rows(&session, &format!("CREATE INDEX i ON t (k) WITH (encoding = '{encoding}')")).await;
        let shown = session.sql("SHOW INDEXES FROM t").await.unwrap().collect().await.unwrap();
        assert_eq!(shown[0].column_by_name("encoding").unwrap().as_string::<i32>().value(0), encoding);
        assert_eq!(shown[0].column_by_name("coverage").unwrap().as_primitive::<Float64Type>().value(0), 1.0);
        assert_eq!(rows(&session, sql).await, expected, "{encoding}");
    }
}

/// Values come from the bitmaps where a column has several kinds, and from the data where it has none of them.
#[tokio::test]
async fn indexes_of_every_kind_are_made_in_sql_and_answer_beside_each_other() {
    let folder = folder(2);
    let session = session(folder.path()).await;
    let questions = [
        "SELECT count(*) FROM t WHERE k BETWEEN 3 AND 5 OR k > 8",
        "SELECT k, count(*) FROM t WHERE id >= 300 GROUP BY k ORDER BY k",
        "SELECT count(DISTINCT k), min(k), max(k), sum(k) FROM t",
        "SELECT id FROM t WHERE k = 4 ORDER BY id LIMIT 3",
        "SELECT k, b, count(*) FROM t GROUP BY k, b ORDER BY k, b",
    ];
    let mut expected = Vec::new();
    for sql in questions {
        expected.push(rows(&session, sql).await);
    }
    for sql in [
        "CREATE INDEX keys ON t USING key (k)",
        "CREATE INDEX by_id ON t USING key (id) WITH (files_per_segment = 1)",
        "CREATE INDEX tree ON t USING bloom_tree (k) WITH (fpp = 0.01, zone_rows = 16)",
        "CREATE INDEX slices ON t USING summary (id)",
        "CREATE INDEX bits ON t USING bitmap (k)",
    ] {
        rows(&session, sql).await;
        for (question, expected) in questions.iter().zip(&expected) {
            assert_eq!(rows(&session, question).await, *expected, "{question} after {sql}");
        }
    }
    let shown = session.sql("SHOW INDEXES FROM t").await.unwrap().collect().await.unwrap();
    let cells = |name: &str| -> Vec<String> {
        let column = shown[0].column_by_name(name).unwrap().as_string::<i32>();
        column.iter().map(|cell| cell.unwrap().to_owned()).collect()
    };
    assert_eq!(
        (cells("kind"), cells("encoding")),
        (
            // By name: bits, by_id, keys, slices, tree.
            ["bitmap", "key", "key", "summary", "bloom_tree"].map(str::to_owned).to_vec(),
            ["equality", "packed", "packed", "sliced", "filtered"].map(str::to_owned).to_vec()
        )
    );
}

#[tokio::test]
async fn errors_know_the_place_that_they_are_about() {
    let mut config = SessionConfig::new();
    config.options_mut().sql_parser.collect_spans = true;
    let session = LakemarkSession::with_config(config);
    let place = async |sql: &str| {
        let error = match session.parse(sql) {
            Ok(mut statements) => session.run(statements.remove(0)).await.unwrap_err(),
            Err(error) => error,
        };
        error.place().map(|place| (place.line, place.column))
    };
    assert_eq!(place("SELECT a,\n nosuch FROM (SELECT 1 AS a)").await, Some((2, 2)));
    assert_eq!(place("SELECT 1 AS a FORM t").await, Some((1, 15)));
    assert_eq!(place("SHOW INDEXES OF t").await, Some((1, 14)));
    assert_eq!(place("SELECT 'a").await, Some((1, 8)));
    assert_eq!(place("SELECT 1 +").await, None, "the end");
}

#[tokio::test]
async fn an_index_can_be_declared_without_building_it() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    session.sql("CREATE INDEX i ON t (\"Mixed Case\") WITH (build = false)").await.unwrap();
    let shown = session.sql("SHOW INDEXES FROM t").await.unwrap().collect().await.unwrap();
    assert_eq!(shown[0].column_by_name("column").unwrap().as_string::<i32>().value(0), "Mixed Case");
    assert_eq!(shown[0].column_by_name("coverage").unwrap().as_primitive::<Float64Type>().value(0), 0.0);
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE \"Mixed Case\" = 3").await, ["100"]);
}

#[tokio::test]
async fn mistakes_have_a_kind_and_say_what_to_do() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    session.sql("CREATE INDEX i ON t (k) WITH (build = false)").await.unwrap();
    session.sql("CREATE TABLE plain AS SELECT 1 AS a").await.unwrap().collect().await.unwrap();
    for (sql, kind, part) in [
        ("CREATE INDEX i ON t (k)", ErrorKind::AlreadyExists, "i"),
        ("CREATE INDEX j ON t (nothing)", ErrorKind::NotFound, "nothing"),
        ("CREATE INDEX j ON t USING hash (k)", ErrorKind::InvalidInput, "hash"),
        ("CREATE INDEX j ON t (k) WITH (colour = red)", ErrorKind::InvalidInput, "colour"),
        ("CREATE INDEX j ON t (k) WITH (build = maybe)", ErrorKind::InvalidInput, "build"),
        ("CREATE INDEX j ON missing (k)", ErrorKind::NotFound, "missing"),
        ("CREATE INDEX j ON plain (a)", ErrorKind::InvalidInput, "STORED AS LAKEMARK"),
        ("DROP INDEX j ON t", ErrorKind::NotFound, "j"),
        ("SHOW INDEXES FROM missing", ErrorKind::NotFound, "missing"),
        ("SELECT nothing FROM t", ErrorKind::InvalidInput, "nothing"),
        (
            "CREATE EXTERNAL TABLE u STORED AS LAKEMARK LOCATION '/no/such/folder'",
            ErrorKind::NotFound,
            "/no/such/folder",
        ),
    ] {
        let error = fails(&session, sql).await;
        assert_eq!(error.kind(), kind, "{sql}: {error}");
        assert!(error.to_string().contains(part), "{sql}: {error}");
    }
    let unknown = format!(
        "CREATE EXTERNAL TABLE u STORED AS LAKEMARK LOCATION '{}' OPTIONS ('lakemark.stor' 'x')",
        folder.path().display()
    );
    let error = fails(&session, &unknown).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("lakemark.stor"), "{error}");
}

#[tokio::test]
async fn changing_rows_without_a_key_is_refused_and_says_how_to_declare_one() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    for sql in [
        "DELETE FROM t",
        "DELETE FROM t WHERE k = 5",
        "DELETE FROM t WHERE k IN (SELECT k FROM t WHERE id = 1)",
        "DELETE FROM t WHERE false",
        "UPDATE t SET k = 1 WHERE id = 2",
        "INSERT INTO t SELECT * FROM t",
        "TRUNCATE TABLE t",
    ] {
        let error = fails(&session, sql).await;
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{sql}: {text}");
        for says in
            ["has no key", "CREATE EXTERNAL TABLE", "OPTIONS (key 'COLUMN')", "`lakemark key", "`Table.declare_key`"]
        {
            assert!(text.contains(says), "{sql}: {text}");
        }
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, [FILE_ROWS.to_string()]);
}

#[tokio::test]
async fn a_key_is_declared_where_a_table_is_created() {
    let folder = folder(1);
    let create = |name: &str, options: &str| {
        let location = folder.path().display();
        format!("CREATE EXTERNAL TABLE {name} STORED AS LAKEMARK LOCATION '{location}' OPTIONS ({options})")
    };
    let session = LakemarkSession::new();
    for (options, says) in [
        ("key 'moon'", "there is no column moon"),
        ("alpha '2'", "give 'key' as well"),
        ("key 'id', alpha '3'", "alpha is 3"),
    ] {
        let text = fails(&session, &create("t", options)).await.to_string();
        assert!(text.contains(says), "{options}: {text}");
    }
    session.sql(&create("t", "key 'id'")).await.unwrap();
    session.sql(&create("u", "key 'id'")).await.unwrap();
    assert_eq!(rows(&session, "DELETE FROM t WHERE id < 10").await, ["10"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM u WHERE id < 20").await, ["10"]);
    assert_eq!(rows(&session, "SELECT min(id) FROM t").await, ["10"]);
    let text = fails(&session, &create("v", "key 'k, id'")).await.to_string();
    assert!(text.contains("the key of the table is id already"), "{text}");
    assert_eq!(fails(&session, "TRUNCATE TABLE t").await.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_store_can_be_elsewhere() {
    let (folder, store) = (folder(1), tempfile::TempDir::new().unwrap());
    let session = LakemarkSession::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}' OPTIONS ('lakemark.store' '{}')",
        folder.path().display(),
        store.path().join("store-of-t").display()
    );
    session.sql(&sql).await.unwrap();
    session.sql("CREATE INDEX i ON t (k)").await.unwrap();
    assert!(store.path().join("store-of-t").is_dir());
    assert!(!folder.path().join("_lakemark").exists());
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["86"]);
}

/// Whether a text is longer than three letters, as somebody far away tells.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IsLong(Signature);

impl ScalarUDFImpl for IsLong {
    fn name(&self) -> &'static str {
        "is_long"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        panic!("it has to be awaited")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for IsLong {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = cast(&texts[0], &DataType::Utf8)?;
        let long: BooleanArray = texts.as_string::<i32>().iter().map(|text| text.map(|text| text.len() > 3)).collect();
        Ok(ColumnarValue::Array(Arc::new(long)))
    }
}

#[tokio::test]
async fn a_condition_that_has_to_be_awaited_is_left_to_the_engine() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    let function = IsLong(Signature::any(1, Volatility::Immutable));
    session.context().register_udf(AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf());
    let found = rows(&session, "SELECT count(*) FROM t WHERE is_long(s) AND id < 100").await;
    assert_eq!(found, rows(&session, "SELECT count(*) FROM t WHERE octet_length(s) > 3 AND id < 100").await);
    assert_ne!(found, ["0"]);
}

#[tokio::test]
async fn settings_are_shown_under_their_full_names() {
    let session = LakemarkSession::new();
    assert_eq!(rows(&session, "SHOW lakemark.share").await, ["lakemark.share|plans"]);
    assert_eq!(rows(&session, "SHOW LAKEMARK.slow_query_ms").await, ["lakemark.slow_query_ms|NULL"]);
    session.sql("SET lakemark.share = pages").await.unwrap().collect().await.unwrap();
    let described = rows(&session, "SHOW lakemark.share VERBOSE").await;
    assert!(described[0].starts_with("lakemark.share|pages|What queries share"), "{described:?}");
    let ours =
        "SELECT name, value FROM information_schema.df_settings WHERE name NOT LIKE 'datafusion.%' ORDER BY name";
    assert_eq!(
        rows(&session, ours).await,
        [
            "lakemark.selection_cache|true",
            "lakemark.share|pages",
            "lakemark.slow_query_ms|NULL",
            "lakemark.txn_app_id|NULL",
            "lakemark.txn_version|NULL",
            "lakemark.use_first_rows|true",
            "lakemark.use_index|true",
            "lakemark.use_join_keys|true",
            "lakemark.use_views|true",
        ]
    );
    assert!(rows(&session, "SHOW ALL").await.contains(&"lakemark.use_index|true".to_owned()));
    for unknown in ["SHOW share", "SHOW lakemark.nosuch"] {
        assert!(fails(&session, unknown).await.message().contains("not a variable"), "{unknown}");
    }
}
