//! Delta tables with partition columns and deletion vectors, their logs written by hand.

use std::fmt::Write as _;

use tempfile::TempDir;

use crate::differential::{commit, vector};
use crate::fixture::{FILE_ROWS, batch, both, create_indexes, metric, ran, rows, session, write};
use crate::sharing::{sorted, taken};

pub fn add(path: &str, day: &str, size: u64, vector: Option<&str>) -> String {
    let vector = vector.map_or(String::new(), |vector| format!(r#","deletionVector":{vector}"#));
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{"day":"{day}"}},"size":{size},"modificationTime":1700000000000,"dataChange":true{vector}}}}}"#
    )
}

fn metadata() -> String {
    let mut fields = String::new();
    for (name, kind) in [
        ("id", "long"),
        ("k", "integer"),
        ("day", "date"),
        ("f", "double"),
        ("s", "string"),
        ("b", "boolean"),
        ("Mixed Case", "integer"),
    ] {
        let comma = if fields.is_empty() { "" } else { "," };
        write!(fields, r#"{comma}{{\"name\":\"{name}\",\"type\":\"{kind}\",\"nullable\":true,\"metadata\":{{}}}}"#)
            .unwrap();
    }
    format!(
        r#"{{"metaData":{{"id":"5fba94ed-9794-4965-ba6e-6ee3c0d22af9","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{{\"type\":\"struct\",\"fields\":[{fields}]}}","partitionColumns":["day"],"configuration":{{"delta.enableDeletionVectors":"true"}},"createdTime":1700000000000}}}}"#
    )
}

/// Two files of two days; the partition column stands in the middle of the schema.
pub fn table(vectors: bool) -> TempDir {
    let folder = TempDir::new().unwrap();
    let protocol = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}"#;
    let first = write(&folder.path().join("a.parquet"), &batch(0));
    let second = write(&folder.path().join("b.parquet"), &batch(FILE_ROWS));
    let deleted = vector(&[5, 15, 16, 999]).to_string();
    let vector = vectors.then_some(deleted.as_str());
    commit(
        folder.path(),
        0,
        &[
            protocol.to_owned(),
            metadata(),
            add("a.parquet", "2024-01-01", first, vector),
            add("b.parquet", "2024-01-02", second, None),
        ],
    );
    folder
}

#[tokio::test]
async fn law_3_deleted_rows_are_gone_with_and_without_indexes() {
    for columns in [&["k"][..], &[]] {
        let folder = table(true);
        if !columns.is_empty() {
            create_indexes(folder.path(), columns).await;
        }
        let session = session(folder.path()).await;
        assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["1996"]);
        assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["170"]);
        assert_eq!(rows(&session, "SELECT id FROM t WHERE k = 5 AND id < 30").await, ["25"]);
        assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k IS NULL OR k IS NOT NULL").await, ["1996"]);
        for sql in [
            "SELECT * FROM t",
            "SELECT * FROM t WHERE k = 5",
            "SELECT id FROM t WHERE k = 5 OR abs(id) IN (5, 999, 6)",
            "SELECT id, day FROM t WHERE day = '2024-01-01' AND k = 6",
            "SELECT k, count(*), count(k) FROM t GROUP BY k",
            "SELECT min(k), max(k), count(k), min(day), count(*) FROM t",
            "SELECT k, count(*) FROM t WHERE k IN (5, 6) GROUP BY k",
            "SELECT day, count(*) FROM t GROUP BY day",
            "SELECT count(DISTINCT k) FROM t WHERE k < 7",
        ] {
            let (with, without) = both(&session, sql).await;
            assert_eq!(with, without, "{sql}");
            assert!(!with.is_empty(), "{sql}");
        }
    }
}

#[tokio::test]
async fn columns_come_in_the_tables_order() {
    let folder = table(true);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let found = rows(&session, "SELECT * FROM t WHERE id = 1007 AND k = 7").await;
    assert_eq!(found, ["1007|7|2024-01-02|10.07|größe 7|false|10"]);
    let plan = ran(&session, "SELECT day, id FROM t WHERE day = DATE '2024-01-02' AND k = 7").await.plan;
    assert_eq!(metric(&plan, "files_pruned_index"), 1);
}

#[tokio::test]
async fn the_next_statement_sees_the_next_version() {
    let folder = table(false);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["172"]);
    let size = std::fs::metadata(folder.path().join("a.parquet")).unwrap().len();
    let remove = r#"{"remove":{"path":"a.parquet","deletionTimestamp":1700000000001,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{"day":"2024-01-01"},"size":1}}"#;
    commit(
        folder.path(),
        1,
        &[remove.to_owned(), add("a.parquet", "2024-01-01", size, Some(&vector(&[5, 15]).to_string()))],
    );
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["170"]);
    assert_eq!(both(&session, "SELECT id FROM t WHERE k = 5 AND id < 30").await.0, ["25"]);
}

/// Statements in flight take the rows of their own version, though they are equal in words.
#[tokio::test]
async fn law_deletion_vectors_do_not_leak_between_statements_in_flight() {
    let folder = table(false);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let sql = "SELECT id FROM t WHERE k = 5 AND abs(id) < 30";
    let begin = async || session.sql(sql).await.unwrap().execute_stream().await.unwrap();
    let before = [begin().await, begin().await];
    let size = std::fs::metadata(folder.path().join("a.parquet")).unwrap().len();
    let remove = r#"{"remove":{"path":"a.parquet","deletionTimestamp":1700000000001,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{"day":"2024-01-01"},"size":1}}"#;
    let deleted = vector(&[5, 15]).to_string();
    commit(folder.path(), 1, &[remove.to_owned(), add("a.parquet", "2024-01-01", size, Some(&deleted))]);
    let after = [begin().await, begin().await];
    for stream in after {
        assert_eq!(taken(stream).await, ["25"]);
    }
    for stream in before {
        assert_eq!(sorted(taken(stream).await), ["15", "25", "5"]);
    }
}
