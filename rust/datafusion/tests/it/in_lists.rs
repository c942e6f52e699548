//! Lists with NULL in them, with columns that may be NULL, or with zeros, also beside other lists about the same column.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::SessionContext;
use lakemark_datafusion::{LakemarkSession, QueryOptions, count};
use lakemark_table::{Table, TableOptions};
use tempfile::TempDir;

use crate::fixture::{mark, rows, text, write};

/// Conditions with the rows for which they are true, and whether DataFusion alone finds others.
const CONDITIONS: [(&str, &[&str], bool); 26] = [
    ("x NOT IN ('a', NULL) AND x IN ('a', 'b')", &[], true),
    ("x IN ('a', 'b') AND NOT (x IN ('a', NULL))", &[], true),
    ("x NOT IN ('a', 'p', 'q', 'r', NULL) AND x IN ('a', 'b', 'c', 'd')", &[], true),
    ("x NOT IN ('a', 'p', 'q', 'r', NULL) OR x NOT IN ('a', 'c', 'd', 'e')", &["2"], true),
    ("NOT (x IN ('a', 'p', 'q', 'r', NULL) AND x IN ('a', 'c', 'd', 'e'))", &["2"], true),
    ("x NOT IN ('a', y) AND x IN ('a', 'b', 'c')", &["3"], true),
    ("x NOT IN ('a', CAST(NULL AS VARCHAR)) AND x IN ('a', 'b')", &[], true),
    ("x IN ('a', NULL) AND x IN ('a', 'b')", &["1"], false),
    ("x IN ('a', NULL)", &["1"], false),
    ("x NOT IN ('a', NULL)", &[], false),
    ("(x IN ('a', NULL)) IS NULL", &["2", "3", "4"], false),
    ("x IN (NULL)", &[], false),
    // Of the numbers the first is 0.0 and the second -0.0.
    ("f = 0.0", &["1", "2"], false),
    ("f IN (0.0)", &["1", "2"], false),
    ("f IN (0.0, 1.0, 2.0, 3.0, 4.0)", &["1", "2", "3"], true),
    ("f IN (-0.0, 1.0, 2.0, 3.0, 4.0)", &["1", "2", "3"], true),
    ("f NOT IN (0.0, 2.0, 3.0, 4.0)", &["3"], true),
    ("f IN (0.0, 1.0) AND f IN (CAST('-0.0' AS DOUBLE), 1.0, 2.0)", &["1", "2", "3"], true),
    ("f IN (0.0, 2.0) AND f = -0.0", &["1", "2"], false),
    ("(f = 0.0 OR f = 2.0) AND (f = -0.0 OR f = 3.0)", &["1", "2"], true),
    ("f = -0.0 OR f = 1.0 OR f = 2.0 OR f = 3.0 OR f = 4.0", &["1", "2", "3"], true),
    ("f IN (1 - 1, 2, 3, 4, 5)", &["1", "2"], true),
    ("f NOT IN (0.0, NULL)", &[], false),
    ("f IN (0.0, NULL) AND f IN (-0.0, 5.0, 6.0, 7.0)", &["1", "2"], true),
    ("f <> -0.0 AND f <> 2.0 AND f <> 3.0 AND f <> 4.0", &["3"], false),
    ("f IN (0, 1) AND f NOT IN (-0.0, 5.0)", &["3"], true),
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
            mark(&place, &["x", "f"]).await;
        }
        let session = LakemarkSession::new();
        let sql = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{location}'");
        session.sql(&sql).await.unwrap();
        let table = Table::open(&location, TableOptions::default()).await.unwrap();
        for (condition, expected, _) in CONDITIONS {
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
    for (condition, expected, is_wrong) in CONDITIONS {
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
