//! Lists with NULL in them, with columns that may be NULL, or with zeros, also beside other lists about the same column.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::SessionContext;
use lakemark_datafusion::{LakemarkSession, QueryOptions, count};
use lakemark_table::{Table, TableOptions};
use tempfile::TempDir;

use crate::fixture::{create_indexes, rows, text, write};

/// A condition with the rows for which it is true.
struct Condition {
    sql: &'static str,
    rows: &'static [&'static str],
    /// Whether DataFusion alone finds others.
    is_wrong: bool,
}

impl Condition {
    /// One whose rows DataFusion alone finds, too.
    const fn right(sql: &'static str, rows: &'static [&'static str]) -> Self {
        Self { sql, rows, is_wrong: false }
    }

    /// One for which DataFusion alone finds other rows.
    const fn wrong(sql: &'static str, rows: &'static [&'static str]) -> Self {
        Self { sql, rows, is_wrong: true }
    }
}

const CONDITIONS: [Condition; 26] = [
    Condition::wrong("x NOT IN ('a', NULL) AND x IN ('a', 'b')", &[]),
    Condition::wrong("x IN ('a', 'b') AND NOT (x IN ('a', NULL))", &[]),
    Condition::wrong("x NOT IN ('a', 'p', 'q', 'r', NULL) AND x IN ('a', 'b', 'c', 'd')", &[]),
    Condition::wrong("x NOT IN ('a', 'p', 'q', 'r', NULL) OR x NOT IN ('a', 'c', 'd', 'e')", &["2"]),
    Condition::wrong("NOT (x IN ('a', 'p', 'q', 'r', NULL) AND x IN ('a', 'c', 'd', 'e'))", &["2"]),
    Condition::wrong("x NOT IN ('a', y) AND x IN ('a', 'b', 'c')", &["3"]),
    Condition::wrong("x NOT IN ('a', CAST(NULL AS VARCHAR)) AND x IN ('a', 'b')", &[]),
    Condition::right("x IN ('a', NULL) AND x IN ('a', 'b')", &["1"]),
    Condition::right("x IN ('a', NULL)", &["1"]),
    Condition::right("x NOT IN ('a', NULL)", &[]),
    Condition::right("(x IN ('a', NULL)) IS NULL", &["2", "3", "4"]),
    Condition::right("x IN (NULL)", &[]),
    // Of the numbers the first is 0.0 and the second -0.0.
    Condition::right("f = 0.0", &["1", "2"]),
    Condition::right("f IN (0.0)", &["1", "2"]),
    Condition::wrong("f IN (0.0, 1.0, 2.0, 3.0, 4.0)", &["1", "2", "3"]),
    Condition::wrong("f IN (-0.0, 1.0, 2.0, 3.0, 4.0)", &["1", "2", "3"]),
    Condition::wrong("f NOT IN (0.0, 2.0, 3.0, 4.0)", &["3"]),
    Condition::wrong("f IN (0.0, 1.0) AND f IN (CAST('-0.0' AS DOUBLE), 1.0, 2.0)", &["1", "2", "3"]),
    Condition::right("f IN (0.0, 2.0) AND f = -0.0", &["1", "2"]),
    Condition::wrong("(f = 0.0 OR f = 2.0) AND (f = -0.0 OR f = 3.0)", &["1", "2"]),
    Condition::wrong("f = -0.0 OR f = 1.0 OR f = 2.0 OR f = 3.0 OR f = 4.0", &["1", "2", "3"]),
    Condition::wrong("f IN (1 - 1, 2, 3, 4, 5)", &["1", "2"]),
    Condition::right("f NOT IN (0.0, NULL)", &[]),
    Condition::wrong("f IN (0.0, NULL) AND f IN (-0.0, 5.0, 6.0, 7.0)", &["1", "2"]),
    Condition::right("f <> -0.0 AND f <> 2.0 AND f <> 3.0 AND f <> 4.0", &["3"]),
    Condition::wrong("f IN (0, 1) AND f NOT IN (-0.0, 5.0)", &["3"]),
];

fn batch() -> RecordBatch {
    let id = Int64Array::from_iter_values(1..=4);
    let x = StringArray::from(vec![Some("a"), Some("b"), Some("c"), None]);
    let y = StringArray::from(vec![Some("b"), None, Some("b"), Some("b")]);
    let f = Float64Array::from(vec![Some(0.0), Some(-0.0), Some(1.0), None]);
    let columns: [(&str, ArrayRef); 4] =
        [("id", Arc::new(id)), ("x", Arc::new(x)), ("y", Arc::new(y)), ("f", Arc::new(f))];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[tokio::test]
async fn what_is_in_a_list_is_not_lost() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("t");
    write(&place.join("part.parquet"), &batch());
    let location = place.display().to_string();
    for is_marked in [false, true] {
        if is_marked {
            create_indexes(&place, &["x", "f"]).await;
        }
        let session = LakemarkSession::new();
        let sql = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{location}'");
        session.sql(&sql).await.unwrap();
        let table = Table::open(&location, TableOptions::default()).await.unwrap();
        for Condition { sql: condition, rows: expected, .. } in CONDITIONS {
            let found = rows(&session, &format!("SELECT id FROM t WHERE {condition} ORDER BY id")).await;
            assert_eq!(found, expected, "{condition}");
            let found = rows(&session, &format!("SELECT count(*) FROM t WHERE {condition}")).await;
            assert_eq!(found, [expected.len().to_string()], "{condition}");
            let counted = count(&table, Some(condition), &QueryOptions::default()).await.unwrap();
            assert_eq!(counted, expected.len() as u64, "{condition}");
        }
    }
}

/// While this holds DataFusion needs our rule, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_loses_what_is_in_a_list() {
    let plain = SessionContext::new();
    plain.register_batch("t", batch()).unwrap();
    for Condition { sql: condition, rows: expected, is_wrong } in CONDITIONS {
        let sql = format!("SELECT id FROM t WHERE {condition} ORDER BY id");
        let found = plain.sql(&sql).await.unwrap().collect().await.unwrap();
        let found: Vec<String> = found.iter().flat_map(text).collect();
        assert_eq!(
            found != expected,
            is_wrong,
            "{found:?} for {condition}; if DataFusion has mended this, see whether docs/limits.md and the rule can go"
        );
    }
}
