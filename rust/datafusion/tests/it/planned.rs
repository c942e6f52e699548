//! Statements that are planned and looked at before they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::datatypes::DataType;
use datafusion::common::ParamValues;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use datafusion::scalar::ScalarValue;
use futures::FutureExt;
use lakemark_datafusion::{LakemarkSession, NO_TRANSACTIONS, PlanningPlace, StatementKind};
use lakemark_table::{Error, ErrorKind};

use crate::fixture::{FILE_ROWS, batch, folder, rows, session, text, write};
use crate::sharing::keyed;

#[tokio::test]
async fn a_statement_says_what_it_does_before_it_does_it() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    let target = folder.path().join("copied.csv");
    let copy = format!("COPY t TO '{}'", target.display());
    for (statement, kind) in [
        ("SELECT * FROM t", StatementKind::Query),
        ("EXPLAIN SELECT * FROM t", StatementKind::Query),
        ("EXPLAIN ANALYZE SELECT * FROM t", StatementKind::Query),
        ("SHOW INDEXES FROM t", StatementKind::Query),
        ("DELETE FROM t", StatementKind::Change),
        ("INSERT INTO t SELECT * FROM t", StatementKind::Change),
        ("CREATE INDEX i ON t (k)", StatementKind::Index),
        ("DROP INDEX i ON t", StatementKind::Index),
        ("CREATE VIEW v AS SELECT 1", StatementKind::Definition),
        ("DROP TABLE t", StatementKind::Definition),
        (copy.as_str(), StatementKind::Export),
        (format!("EXPLAIN ANALYZE {copy}").as_str(), StatementKind::Export),
        ("SET lakemark.use_index = false", StatementKind::Setting),
        ("PREPARE p AS SELECT 1", StatementKind::Prepared),
    ] {
        let planned = session.plan(statement, None).await.unwrap();
        assert_eq!(planned.kind(), kind, "{statement}");
        let has_columns = planned.query_schema().unwrap().is_some();
        assert_eq!(has_columns, kind == StatementKind::Query, "{statement}");
    }
    for transaction in ["BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK", "SAVEPOINT s", "RELEASE SAVEPOINT s"] {
        let error = session.plan(transaction, None).await.err().unwrap();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Unsupported, NO_TRANSACTIONS), "{transaction}");
    }
    // Nothing of that was done.
    assert!(!target.exists() && !folder.path().join("_lakemark").exists());
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, [FILE_ROWS.to_string()]);
}

#[tokio::test]
async fn parameters_and_columns_are_known_before_there_are_values() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    let planned = session.plan("SELECT id, s FROM t WHERE k = ? AND s < ? LIMIT ?", None).await.unwrap();
    let parameters = planned.parameters().unwrap();
    let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["$1", "$2", "$3"]);
    assert_eq!(parameters[0].data_type, Some(DataType::Int32));
    let columns = planned.query_schema().unwrap().unwrap();
    assert_eq!(columns.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["id", "s"]);
    let named = session.plan("SELECT * FROM t WHERE k = $b OR k = $a", None).await.unwrap().parameters().unwrap();
    assert_eq!(named.iter().map(|parameter| parameter.name.as_str()).collect::<Vec<_>>(), ["$a", "$b"]);
    assert!(session.plan("SHOW INDEXES FROM t", None).await.unwrap().parameters().unwrap().is_empty());
}

#[tokio::test]
async fn a_plan_has_the_state_that_it_was_made_over() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    let values = ParamValues::from(vec![ScalarValue::from(-1_i64)]);
    let statement = "SELECT count(id) FROM t WHERE id > ?";
    let planned = session.plan(statement, Some(values.clone())).await.unwrap();
    write(&folder.path().join("part-9.parquet"), &batch(FILE_ROWS));
    let counted = async |frame: datafusion::dataframe::DataFrame| text(&frame.collect().await.unwrap()[0]).concat();
    assert_eq!(counted(session.run_planned(planned).await.unwrap()).await, FILE_ROWS.to_string());
    let newest = session.sql_with(statement, values).await.unwrap();
    assert_eq!(counted(newest).await, (2 * FILE_ROWS).to_string());
}

#[tokio::test]
async fn statements_of_a_session_share_the_memory_of_its_runtime() {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(std::sync::Arc::new(GreedyMemoryPool::new(1 << 20)));
    let session = LakemarkSession::with_runtime(SessionConfig::new(), runtime).unwrap();
    let side = "(SELECT repeat(value::varchar, 100) AS v FROM generate_series(1, 100000))";
    let large = &format!("SELECT count(*) FROM {side} AS a JOIN {side} AS b USING (v)");
    let error = session.sql(large).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("Resources exhausted"), "{error}");
    assert_eq!(rows(&session, "SELECT 1").await, ["1"]);
}

#[tokio::test]
async fn changes_are_planned_where_the_session_says_and_not_made_where_that_refuses() {
    let folder = folder(1);
    let (plans, refuses) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (counted, told) = (Arc::clone(&plans), Arc::clone(&refuses));
    let place = PlanningPlace::new(move |plan| {
        counted.fetch_add(1, Ordering::Relaxed);
        match told.load(Ordering::Relaxed) {
            true => async { Err(Error::new(ErrorKind::Cancelled, "no room for plans")) }.boxed(),
            false => plan,
        }
    });
    let session = LakemarkSession::with_config(SessionConfig::new().with_extension(Arc::new(place)));
    session.register("t", keyed(folder.path()).await).await.unwrap();
    let source = "(SELECT id + 999 AS id FROM t WHERE id < 2)";
    let changes = [
        "INSERT INTO t (id) VALUES (5000)",
        "REPLACE INTO t (id) VALUES (5000)",
        "UPDATE t SET k = 77 WHERE id = 5000",
        "DELETE FROM t WHERE id = 5000",
        &format!(
            "MERGE INTO t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = 88 \
             WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        ),
    ];
    let all = "SELECT count(*), count(*) FILTER (WHERE k = 88) FROM t";
    for change in changes {
        let error = session.sql(change).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Cancelled, "no room for plans"), "{change}");
    }
    assert_eq!(plans.load(Ordering::Relaxed), changes.len());
    assert_eq!(rows(&session, all).await, ["1000|0"]);
    refuses.store(false, Ordering::Relaxed);
    for change in changes {
        let before = plans.load(Ordering::Relaxed);
        session.sql(change).await.unwrap();
        assert!(plans.load(Ordering::Relaxed) > before, "{change}");
    }
    assert_eq!(rows(&session, all).await, ["1001|1"]);
}
