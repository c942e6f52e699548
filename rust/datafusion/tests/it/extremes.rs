//! MIN and MAX: no filter on the way to them may leave out a row that another one needs.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use lakemark_datafusion::LakemarkSession;
use tempfile::TempDir;

use crate::fixture::{both, create_indexes, folder, rows, text, write};

/// A session of two partitions that has a folder as `t`, and as `p` the engine's own table of the same files.
async fn session(folder: &Path) -> LakemarkSession {
    let session = LakemarkSession::with_config(SessionConfig::new().with_target_partitions(2));
    for (name, kind) in [("t", "LAKEMARK"), ("p", "PARQUET")] {
        let sql = format!("CREATE EXTERNAL TABLE {name} STORED AS {kind} LOCATION '{}/'", folder.display());
        session.sql(&sql).await.unwrap();
    }
    session
}

const OF_EXPRESSIONS: [(&str, &str); 4] = [
    ("SELECT min(id), max(id + 1) FROM {t}", "0|4000"),
    ("SELECT max(id), min(abs(id) + 1) FROM {t}", "3999|1"),
    ("SELECT min(id), max(id + 1) FROM {t} WHERE abs(id) >= 10", "10|4000"),
    ("SELECT min(k), max(id), max(abs(id)) FROM {t} WHERE abs(id) < 3990", "0|3989|3989"),
];

#[tokio::test]
async fn extremes_of_columns_and_of_expressions_are_found_together() {
    let folder = folder(4);
    for is_indexed in [false, true] {
        if is_indexed {
            create_indexes(folder.path(), &["id"]).await;
        }
        let session = session(folder.path()).await;
        for (sql, expected) in OF_EXPRESSIONS {
            let expected = vec![expected.to_owned()];
            assert_eq!(rows(&session, &sql.replace("{t}", "p")).await, expected, "{sql}");
            assert_eq!(both(&session, &sql.replace("{t}", "t")).await, (expected.clone(), expected), "{sql}");
        }
    }
}

/// While this holds operators that look for extremes hand no filter down, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_loses_extremes() {
    let folder = folder(4);
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    let path = format!("{}/", folder.path().display());
    context.register_parquet("p", &path, ParquetReadOptions::default()).await.unwrap();
    let mut wrong = 0;
    for (sql, expected) in OF_EXPRESSIONS {
        let found = context.sql(&sql.replace("{t}", "p")).await.unwrap().collect().await.unwrap();
        wrong += usize::from(found.iter().flat_map(text).collect::<Vec<_>>() != [expected]);
    }
    assert!(wrong > 0);
}

/// Rows of which only a part has a value of `b`; the others have one of `c`, so that all files are as large.
fn numbers(first: i64, has_b: bool) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 1000));
    let nulls: ArrayRef = Arc::new(Int64Array::new_null(1000));
    let (b, c) = if has_b { (Arc::clone(&values), nulls) } else { (nulls, Arc::clone(&values)) };
    RecordBatch::try_from_iter_with_nullable([("id", values, true), ("b", b, true), ("c", c, true)]).unwrap()
}

#[tokio::test]
async fn an_extreme_that_no_row_had_so_far_is_found_later() {
    let folder = TempDir::new().unwrap();
    for file in 0..4 {
        write(&folder.path().join(format!("a{file}.parquet")), &numbers(file * 1000, file % 2 == 1));
    }
    let session = session(folder.path()).await;
    for (sql, expected) in [
        ("SELECT min(id), max(b) FROM {t} WHERE abs(id) >= 0", "0|3999"),
        ("SELECT min(b), max(b), max(id) FROM {t} WHERE abs(id) >= 0", "1000|3999|3999"),
    ] {
        for table in ["t", "p"] {
            assert_eq!(rows(&session, &sql.replace("{t}", table)).await, [expected], "{sql} {table}");
        }
    }
}

#[tokio::test]
async fn a_round_of_a_recursive_query_begins_without_the_extremes_of_the_one_before() {
    let folder = folder(4);
    let session = session(folder.path()).await;
    let sql = "WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS n UNION ALL SELECT r.n + m.x FROM r CROSS JOIN \
               (SELECT min(id) + 1 AS x FROM {t} WHERE abs(id) >= 0) m WHERE r.n < 3) SELECT n FROM r ORDER BY n";
    for table in ["t", "p"] {
        assert_eq!(rows(&session, &sql.replace("{t}", table)).await, ["0", "1", "2", "3"], "{table}");
    }
}

/// Where clocks are set back across midnight, a later point in time has an earlier date.
#[tokio::test]
async fn the_least_date_of_points_in_time_is_not_the_date_of_the_least() {
    let folder = TempDir::new().unwrap();
    let points = TimestampMicrosecondArray::from(vec![1_257_042_630_000_000, 1_257_043_500_000_000]);
    let points: ArrayRef = Arc::new(points.with_timezone("America/St_Johns"));
    write(&folder.path().join("a.parquet"), &RecordBatch::try_from_iter([("ts", points)]).unwrap());
    let session = session(folder.path()).await;
    for table in ["t", "p"] {
        let sql = format!("SELECT min(CAST(ts AS DATE)), max(CAST(ts AS DATE)) FROM {table}");
        assert_eq!(rows(&session, &sql).await, ["2009-10-31|2009-11-01"], "{table}");
    }
}
