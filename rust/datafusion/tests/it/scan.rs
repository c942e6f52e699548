//! The scan operator: the same rows as without indexes, read with less work.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use crate::fixture::{
    FILE_ROWS, Ran, batch, both, create_indexes, folder, metric, open, ran, rows, scans, session, write,
};

const ALL: [&str; 6] = ["id", "k", "f", "s", "b", "Mixed Case"];

#[tokio::test]
async fn rows_with_indexes_are_the_rows_without() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "f", "s", "b", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    for condition in [
        "k = 5",
        "k <> 5",
        "k IN (1, 3, NULL)",
        "k NOT IN (1, 3)",
        "k IS NULL",
        "k BETWEEN 2 AND 4 AND s LIKE 'ab%'",
        "f = 0.0",
        "f = -0.0",
        "f IN (0.0, 1.25, 7.0, 9.0)",
        "f IN (-0.0, 1.25, 7.0, 9.0)",
        "f NOT IN (0.0, 1.25, 7.0, 9.0)",
        "f < 0.0",
        "f <= 0.0",
        "f > 5",
        "f >= -0.0",
        "f <> 0",
        "f = 'NaN'",
        "f > 1e300",
        "f BETWEEN -1 AND 1",
        "f IS DISTINCT FROM 0.0",
        "s = ''",
        "s > 'ab'",
        "s LIKE 'größe%'",
        "s NOT LIKE 'ab%'",
        "starts_with(s, 'ab')",
        "b",
        "NOT b",
        "b IS NOT TRUE",
        "b IS UNKNOWN OR k = 1",
        "\"Mixed Case\" = 7",
        "\"Mixed Case\" >= 25 OR id < 5",
        "NOT (k = 5 AND f > 2)",
        "k = 5 AND id % 3 = 0",
        "k = 5 OR id % 50 = 0",
        "abs(k) = 4 AND \"Mixed Case\" < 3",
        "k = 99",
        "id = 17",
        "CAST(k AS BIGINT) = 3",
        "k < 3000000000",
        "random() >= 0 AND k = 2",
        "k = (SELECT max(k) FROM t)",
        "id IN (SELECT id FROM t WHERE k = 3)",
        "1 = 1",
    ] {
        let (with, without) = both(&session, &format!("SELECT * FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "{condition}");
        let (with, without) = both(&session, &format!("SELECT count(*) FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "count of {condition}");
        let (with, without) = both(&session, &format!("SELECT s, id FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "projection of {condition}");
    }
}

#[tokio::test]
async fn batches_of_rows_that_pass_are_as_large_as_the_session_says() {
    let folder = folder(2);
    let session = session(folder.path()).await;
    rows(&session, "SET datafusion.execution.target_partitions = 1").await;
    for batch_rows in [50, 400] {
        rows(&session, &format!("SET datafusion.execution.batch_size = {batch_rows}")).await;
        let frame = session.sql("SELECT id, s FROM t WHERE abs(id) % 3 = 1").await.unwrap();
        let largest = frame.collect().await.unwrap().iter().map(RecordBatch::num_rows).max();
        assert_eq!(largest, Some(batch_rows));
    }
}

#[tokio::test]
async fn operators_above_the_scan_see_the_same_rows() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    for pushdown in [false, true] {
        let set = format!("SET datafusion.execution.parquet.pushdown_filters = {pushdown}");
        session.sql(&set).await.unwrap().collect().await.unwrap();
        for sql in [
            "SELECT id FROM t WHERE k = 5 ORDER BY id DESC LIMIT 7",
            "SELECT id, f FROM t WHERE k IS NOT NULL ORDER BY id LIMIT 3",
            "SELECT id FROM t WHERE k = 5 AND abs(id) > 500 ORDER BY id LIMIT 4",
            "SELECT id FROM t ORDER BY id DESC LIMIT 5",
            "SELECT k, count(*), min(id), max(id) FROM t WHERE \"Mixed Case\" < 12 GROUP BY k",
            "SELECT min(id), max(id), count(k) FROM t WHERE k = 4",
            "SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id + 1 WHERE a.k = 5 AND b.\"Mixed Case\" = 3",
            "SELECT count(*) FROM t a JOIN t b ON a.k = b.k WHERE a.id < 20 AND b.\"Mixed Case\" = 1",
            "SELECT a.id FROM t a LEFT JOIN t b ON a.id = b.id AND b.k = 2 WHERE a.\"Mixed Case\" = 2 AND b.id IS NULL",
            "SELECT id FROM t WHERE k = 1 UNION ALL SELECT id FROM t WHERE k = 2",
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r JOIN t ON t.id = r.n WHERE t.k IS NOT NULL AND n < 3) SELECT n FROM r",
        ] {
            let (with, without) = both(&session, sql).await;
            assert_eq!(with, without, "{sql} (pushdown_filters = {pushdown})");
            assert!(!with.is_empty(), "{sql}");
        }
    }
}

#[tokio::test]
async fn a_limit_gives_as_many_rows_of_the_answer() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    for (limit, expected) in [(0, 0), (1, 1), (10, 10), (172, 172), (5000, 172)] {
        let found = rows(&session, &format!("SELECT k FROM t WHERE k = 5 LIMIT {limit}")).await;
        assert_eq!(found.len(), expected, "LIMIT {limit}");
        assert!(found.iter().all(|row| row == "5"));
        let counted =
            rows(&session, &format!("SELECT count(*) FROM (SELECT 1 FROM t WHERE k = 5 LIMIT {limit})")).await;
        assert_eq!(counted, [expected.to_string()], "count of LIMIT {limit}");
    }
    assert_eq!(rows(&session, "SELECT k FROM t WHERE k = 5 LIMIT 10 OFFSET 165").await.len(), 7);
    assert_eq!(rows(&session, "SELECT id FROM t WHERE k = 5 AND abs(id) >= 0 LIMIT 9").await.len(), 9);
}

#[tokio::test]
async fn a_count_needs_no_scan_where_every_row_is_exact() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    for sql in
        ["SELECT count(*) FROM t", "SELECT count(*) FROM t WHERE k = 5", "SELECT count(1) FROM t WHERE k IN (1, 2)"]
    {
        let Ran { plan, rows: count } = ran(&session, sql).await;
        assert_eq!(count, 1, "{sql}");
        assert!(
            scans(&plan).is_empty(),
            "{sql}: {}",
            datafusion::physical_plan::displayable(plan.as_ref()).indent(false)
        );
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, [(2 * FILE_ROWS).to_string()]);
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["172"]);
    let plan = ran(&session, "SELECT count(*) FROM t WHERE k = 5 AND abs(id) > 3").await.plan;
    assert_eq!(scans(&plan).len(), 1);
}

#[tokio::test]
async fn the_metrics_say_what_was_left_out() {
    let folder = folder(4);
    create_indexes(folder.path(), &["Mixed Case", "k"]).await;
    let session = session(folder.path()).await;
    let sql = "SELECT s FROM t WHERE \"Mixed Case\" = 12";
    let Ran { plan, rows: count } = ran(&session, sql).await;
    assert_eq!(count, 100);
    assert_eq!(metric(&plan, "files_total"), 4);
    assert_eq!(metric(&plan, "files_pruned_index"), 3);
    assert_eq!(metric(&plan, "files_scanned"), 0);
    assert_eq!(metric(&plan, "row_groups_total"), 16);
    assert_eq!(metric(&plan, "row_groups_pruned_index"), 14);
    assert_eq!(metric(&plan, "rows_exact"), 100);
    assert_eq!(metric(&plan, "rows_rechecked"), 0);
    assert_eq!(scans(&plan)[0].metrics().unwrap().output_rows(), Some(100));
    assert!(metric(&plan, "index_reads") > 0);
    assert!(metric(&plan, "index_bytes_read") > 0);
    let with = metric(&plan, "bytes_scanned");
    session.sql("SET lakemark.use_index = false").await.unwrap().collect().await.unwrap();
    let Ran { plan, rows: count } = ran(&session, sql).await;
    assert_eq!(count, 100);
    assert_eq!(metric(&plan, "index_reads"), 0);
    assert_eq!(metric(&plan, "files_scanned"), 4);
    let without = metric(&plan, "bytes_scanned");
    assert!(with > 0 && with < without, "{with} bytes with the index, {without} without");
    let text = rows(&session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    for name in ["LakemarkScanExec", "rows_exact", "row_groups_pruned_index", "coverage", "bytes_scanned"] {
        assert!(text.contains(name), "{name} is missing in {text}");
    }
}

#[tokio::test]
async fn rows_to_be_rechecked_are_tested_and_exact_rows_are_not() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k", "f"]).await;
    let session = session(folder.path()).await;
    let Ran { plan, rows: count } = ran(&session, "SELECT id FROM t WHERE k = 5 OR abs(id) = 3").await;
    assert_eq!((count, metric(&plan, "rows_exact")), (87, 86));
    assert_eq!(metric(&plan, "rows_rechecked"), FILE_ROWS - 86);
    let Ran { plan, rows: count } = ran(&session, "SELECT id FROM t WHERE k = 5 AND abs(id) < 100").await;
    assert_eq!((count, metric(&plan, "rows_exact"), metric(&plan, "rows_rechecked")), (9, 0, 86));
}

#[tokio::test]
async fn files_that_came_later_are_scanned() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["86"]);
    write(&folder.path().join("part-1.parquet"), &batch(FILE_ROWS));
    let Ran { plan, rows: count } = ran(&session, "SELECT id FROM t WHERE k = 5").await;
    assert_eq!((count, metric(&plan, "files_scanned"), metric(&plan, "rows_exact")), (172, 1, 86));
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE k = 5").await, ["172"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["2000"]);
    std::fs::remove_file(folder.path().join("part-0.parquet")).unwrap();
    assert_eq!(rows(&session, "SELECT count(*), min(id) FROM t WHERE k = 5").await, ["86|1005"]);
}

#[tokio::test]
async fn index_files_that_are_gone_or_damaged_change_no_row() {
    let folder = folder(2);
    create_indexes(folder.path(), &ALL).await;
    let session = session(folder.path()).await;
    let sql = "SELECT * FROM t WHERE k = 5 OR s = 'ab1'";
    let (expected, without) = both(&session, sql).await;
    assert_eq!(expected, without);
    let index_files = folder.path().join("_lakemark/indexes");
    let mut damaged = 0;
    for entry in std::fs::read_dir(&index_files).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0);
    let fresh = crate::fixture::session(folder.path()).await;
    assert_eq!(both(&fresh, sql).await, (expected.clone(), expected.clone()));
    std::fs::remove_dir_all(&index_files).unwrap();
    assert_eq!(both(&fresh, sql).await, (expected.clone(), expected));
}

#[tokio::test]
async fn hive_partitions_are_columns() {
    let folder = tempfile::TempDir::new().unwrap();
    for (name, first) in [("y=2023/p=a%20b", 0), ("y=2024/p=c", 1), ("y=2024/p=__HIVE_DEFAULT_PARTITION__", 2)] {
        write(&folder.path().join(name).join("f.parquet"), &batch(first * FILE_ROWS));
    }
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT id, y, p FROM t WHERE y = 2024 AND k = 5",
        "SELECT p, id FROM t WHERE p = 'a b' AND k = 5",
        "SELECT id FROM t WHERE p IS NULL AND k > 7",
        "SELECT y, p, count(*) FROM t WHERE k = 1 GROUP BY y, p",
        "SELECT count(*) FROM t WHERE p = 'c'",
        "SELECT p FROM t WHERE k = 5 OR abs(id) = 4",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        assert!(!with.is_empty(), "{sql}");
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE y = 2024").await, ["2000"]);
    let plan = ran(&session, "SELECT id FROM t WHERE p = 'a b' AND k = 5").await.plan;
    assert_eq!(metric(&plan, "files_pruned_index"), 2);
}

#[tokio::test]
async fn a_column_that_a_file_lacks_is_null_there() {
    let folder = folder(1);
    let short =
        RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from_iter_values(5000..5100)) as ArrayRef)]).unwrap();
    write(&folder.path().join("part-9.parquet"), &short);
    create_indexes(folder.path(), &["k", "id"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT id, k, s FROM t WHERE k IS NULL",
        "SELECT id, k FROM t WHERE k = 5 OR id = 5007",
        "SELECT id, s FROM t WHERE s IS NULL AND id > 900",
        "SELECT id, k FROM t WHERE NOT (k = 5)",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        assert!(!with.is_empty(), "{sql}");
    }
    let nulls = FILE_ROWS.div_ceil(7) + 100;
    let counted: usize = rows(&session, "SELECT count(*) FROM t WHERE k IS NULL").await[0].parse().unwrap();
    assert!(counted == nulls || counted == nulls - 1, "{counted}");
}

#[tokio::test]
async fn a_large_row_group_is_shared_where_its_pages_have_an_index() {
    const ROWS: i64 = 200_000;
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row / 20_000 % 2)));
    let v: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let batch = RecordBatch::try_from_iter([("k", k), ("v", v)]).unwrap();
    for is_indexed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let properties = WriterProperties::builder().set_offset_index_disabled(!is_indexed).build();
        let file = std::fs::File::create(folder.path().join("one.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        create_indexes(folder.path(), &["k"]).await;
        let config = datafusion::prelude::SessionConfig::new().with_target_partitions(3);
        let session = lakemark_datafusion::LakemarkSession::with_config(config);
        session.register("t", open(folder.path()).await).await.unwrap();
        let without_index = copied(folder.path());
        session.register("n", open(without_index.path()).await).await.unwrap();
        for (sql, expected) in [
            ("SELECT v FROM t WHERE k = 0", 100_000),
            // The index knows nothing of the row group, or which rows are to be read with the condition.
            ("SELECT v FROM t WHERE v % 2 = 0", 100_000),
            ("SELECT v FROM t WHERE k = 0 AND v % 4 <> 0", 75_000),
            ("SELECT v FROM n", ROWS as usize),
            ("SELECT v FROM n WHERE v % 2 = 0", 100_000),
        ] {
            let (with, without) = both(&session, sql).await;
            assert!(with == without && with.len() == expected, "{sql}");
            for _ in 0..2 {
                // Partitions take pieces from each other as they come: those are counted, and not what each one gives.
                let Ran { plan, rows: count } = ran(&session, sql).await;
                let opened = metric(&plan, "files_opened");
                assert_eq!((count, opened), (expected, if is_indexed { 3 } else { 1 }), "{sql}");
            }
        }
    }
}

/// A folder with the same file, and without an index.
fn copied(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("one.parquet"), copy.path().join("one.parquet")).unwrap();
    copy
}

#[tokio::test]
async fn reads_are_spread_over_the_partitions() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let config = datafusion::prelude::SessionConfig::new().with_target_partitions(3);
    let session = lakemark_datafusion::LakemarkSession::with_config(config);
    session.register("t", open(folder.path()).await).await.unwrap();
    let Ran { plan, rows: count } = ran(&session, "SELECT id, s FROM t WHERE k IS NOT NULL").await;
    let scan = scans(&plan).remove(0);
    assert_eq!(scan.properties().partitioning.partition_count(), 3);
    assert_eq!(count, 1714);
}
