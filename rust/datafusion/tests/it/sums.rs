//! Sums and means from the index alone: the answers are those of a scan, and no data is read for them.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int8Array, Int32Array, Int64Array, RecordBatch, UInt64Array,
};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, IndexKind, IndexSpec};
use tempfile::TempDir;

use crate::fixture::{answering, answering_metric, both, metric, open, ran, rows, session, write};

const ROWS: i64 = 1_000;

/// `id` is the row's number, `tiny` runs from -50 to 49, `small` from 0 to 30 with NULLs, `big` is near the largest number and wraps
/// around when it is summed, `huge` is beyond what a float can tell apart, `price` is a decimal, `f` a float of whole numbers.
fn batch(first: i64) -> RecordBatch {
    let rows = || first..first + ROWS;
    let price: Decimal128Array =
        rows().map(|row| (row % 9 != 0).then_some(i128::from(row % 70) * 125 - 2_000)).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(rows())) as ArrayRef, true),
        ("tiny", Arc::new(Int8Array::from_iter_values(rows().map(|row| (row % 100 - 50) as i8))), true),
        (
            "small",
            Arc::new(rows().map(|row| (row % 7 != 3).then_some((row % 31) as i32)).collect::<Int32Array>()),
            true,
        ),
        ("big", Arc::new(Int64Array::from_iter_values(rows().map(|row| i64::MAX - row % 5))), true),
        ("huge", Arc::new(UInt64Array::from_iter_values(rows().map(|row| (1 << 60) + row as u64 % 3))), true),
        ("price", Arc::new(price.with_precision_and_scale(9, 2).unwrap()), true),
        ("f", Arc::new(Float64Array::from_iter_values(rows().map(|row| (row % 4 + 1) as f64))), true),
    ])
    .unwrap()
}

fn folder(files: i64) -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in 0..files {
        write(&folder.path().join(format!("part-{file}.parquet")), &batch(file * ROWS));
    }
    folder
}

async fn create_indexes(folder: &Path, columns: &[&str], encoding: &str) {
    let table = open(folder).await;
    for column in columns {
        let options = [("encoding".to_owned(), encoding.to_owned())].into();
        let spec =
            IndexSpec { columns: vec![(*column).to_owned()], kind: Some(IndexKind::Bitmap), options, name: None };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
}

async fn check(session: &LakemarkSession, sql: &str, reads_data: bool) {
    let plan = ran(session, sql).await.plan;
    assert_eq!(answering(&plan).len(), 1, "{sql}");
    assert_eq!(metric(&plan, "bytes_scanned") > 0, reads_data, "{sql}");
    let (with, without) = both(session, sql).await;
    assert_eq!(with, without, "{sql}");
}

const FROM_THE_INDEX: &[&str] = &[
    "SELECT sum(tiny), sum(small), sum(big), sum(huge), sum(price) FROM t",
    "SELECT avg(tiny), avg(small), avg(price), count(*), min(small), max(price), count(DISTINCT small) FROM t",
    "SELECT sum(small) + 1, avg(small + 1), sum(small * 2), count(small) FROM t WHERE tiny < 3",
    "SELECT sum(price), avg(price), count(*) FROM t WHERE small IN (3, 4, 5) OR small IS NULL",
    "SELECT sum(small) FROM t WHERE small > 28",
    "SELECT sum(DISTINCT tiny) FROM t",
    "SELECT sum(small), avg(small) FROM t WHERE small IS NULL",
    "SELECT small, sum(tiny), avg(tiny), sum(small) FROM t WHERE tiny > 0 GROUP BY small",
    "SELECT small, sum(price) FROM t GROUP BY small HAVING sum(price) > 100",
    "SELECT sum(CASE WHEN small > 10 THEN 1 ELSE 0 END) FROM t WHERE tiny = 7",
];

#[tokio::test]
async fn sums_and_means_come_from_values_and_their_rows() {
    let folder = folder(3);
    create_indexes(folder.path(), &["tiny", "small", "big", "huge", "price"], "equality").await;
    let session = session(folder.path()).await;
    for sql in FROM_THE_INDEX {
        check(&session, sql, false).await;
    }
    let sums = rows(&session, "SELECT sum(tiny), avg(tiny), sum(small), sum(price) FROM t WHERE tiny < -48").await;
    let expected: i64 = (0..3_000).filter(|row| row % 100 < 2 && row % 7 != 3).map(|row| row % 31).sum();
    let price: i64 = (0..3_000).filter(|row| row % 100 < 2 && row % 9 != 0).map(|row| row % 70 * 125 - 2_000).sum();
    assert_eq!(sums, [format!("-2970|-49.5|{expected}|{}.{:02}", price / 100, price.abs() % 100)]);
    let none = rows(&session, "SELECT sum(tiny), avg(price), count(*) FROM t WHERE tiny = 100").await;
    assert_eq!(none, ["NULL|NULL|0"]);
}

/// Encodings without postings count rows by the bitmaps of their coarse level.
#[tokio::test]
async fn every_encoding_sums_and_groups() {
    for encoding in ["binary", "range", "interval", "interval-equality", "range-equality"] {
        let folder = folder(2);
        create_indexes(folder.path(), &["tiny", "small", "price"], encoding).await;
        let session = session(folder.path()).await;
        for sql in [
            "SELECT sum(tiny), sum(small), sum(price), avg(price) FROM t",
            "SELECT sum(small), avg(small), count(small), count(*) FROM t WHERE tiny BETWEEN -5 AND 20",
            "SELECT small, count(*) FROM t WHERE tiny < 0 GROUP BY small",
            "SELECT price, count(*), sum(price) FROM t WHERE small = 4 OR tiny = 1 GROUP BY price",
        ] {
            check(&session, sql, false).await;
        }
    }
}

/// A group in which every value is NULL has neither sum nor mean, and a decimal's mean of nothing is no division by zero.
#[tokio::test]
async fn groups_without_a_value_have_no_mean() {
    let folder = folder(2);
    create_indexes(folder.path(), &["small", "price", "tiny"], "equality").await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT small, avg(small), sum(small), count(small) FROM t GROUP BY small",
        "SELECT price, avg(price), sum(price) FROM t GROUP BY price",
        "SELECT price IS NULL, avg(price), count(*) FROM t GROUP BY 1",
        "SELECT avg(small), avg(price) FROM t WHERE small IS NULL AND price IS NULL",
    ] {
        check(&session, sql, false).await;
    }
    let null =
        rows(&session, "SELECT avg(price), sum(price), count(*) FROM t WHERE price IS NULL GROUP BY price").await;
    assert_eq!(null, ["NULL|NULL|223"]);
}

#[tokio::test]
async fn what_the_index_cannot_sum_is_read() {
    let folder = folder(2);
    create_indexes(folder.path(), &["tiny", "huge", "f"], "equality").await;
    let session = session(folder.path()).await;
    // The mean of numbers that floats cannot tell apart depends on the order of the additions.
    check(&session, "SELECT avg(huge) FROM t", true).await;
    // Sums of floats and of a column without indexes are not requested of the index at all.
    for sql in ["SELECT sum(f) FROM t", "SELECT avg(f) FROM t WHERE tiny = 3", "SELECT sum(small), sum(tiny) FROM t"] {
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering(&plan).len(), 0, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

/// Files that no index covers are read, and added.
#[tokio::test]
async fn uncovered_files_are_added_to_sums() {
    let folder = folder(2);
    create_indexes(folder.path(), &["tiny", "small", "price"], "equality").await;
    write(&folder.path().join("part-2.parquet"), &batch(2 * ROWS));
    let session = session(folder.path()).await;
    for sql in [
        "SELECT sum(tiny), avg(small), sum(price), count(*) FROM t",
        "SELECT sum(tiny), avg(price) FROM t WHERE small < 9",
        "SELECT small, avg(price) FROM t GROUP BY small",
    ] {
        check(&session, sql, true).await;
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering_metric(&plan, "files_index_only"), 2, "{sql}");
    }
}

/// Sums of slices take no look at values and rows, also where values are too many to be given one by one.
#[tokio::test]
async fn slices_are_summed_by_their_bits() {
    let folder = TempDir::new().unwrap();
    let file = |first: i64| {
        let rows = || first..first + 100_000;
        RecordBatch::try_from_iter_with_nullable([
            ("id", Arc::new(Int64Array::from_iter_values(rows().map(|row| row - 30_000))) as ArrayRef, false),
            (
                "v",
                Arc::new(rows().map(|row| (row % 7 != 3).then_some((row % 31) as i32)).collect::<Int32Array>()),
                true,
            ),
            ("g", Arc::new(rows().map(|row| (row % 5 != 1).then_some((row % 4) as i32)).collect::<Int32Array>()), true),
            ("h", Arc::new(Int32Array::from_iter_values(rows().map(|row| (row % 2) as i32))), true),
            ("price", Arc::new(prices(rows())), true),
        ])
    };
    for number in 0..2 {
        write(&folder.path().join(format!("part-{number}.parquet")), &file(number * 100_000).unwrap());
    }
    create_indexes(folder.path(), &["id", "v", "price"], "binary").await;
    create_indexes(folder.path(), &["g", "h"], "equality").await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT sum(id), avg(id), sum(v), avg(v), count(v), sum(price), avg(price) FROM t",
        "SELECT sum(id), count(id), avg(id), count(*) FROM t WHERE g = 2",
        "SELECT sum(v), avg(price), count(*) FROM t WHERE g <> 2",
        "SELECT sum(id) FROM t WHERE id BETWEEN -5 AND 120000 AND v = 3",
        "SELECT g, sum(id), avg(id), count(*), count(id) FROM t GROUP BY g",
        "SELECT g % 2, sum(price), avg(price) FROM t GROUP BY 1",
        // A scan would find these rows faster than indexes do, which give their sums without reading them.
        "SELECT sum(v), count(*) FROM t WHERE g = 2 AND h = 0",
        "SELECT sum(v), count(v), count(*) FROM t WHERE g = 2 AND h = 1",
    ] {
        check(&session, sql, false).await;
    }
    // What reads more of a value than its sum needs the value; of 200,000 that are different the data is read.
    for sql in [
        "SELECT sum(id), avg(v) FROM t WHERE g = 77",
        "SELECT g, sum(v) + 1, avg(v), count(v), count(*) FROM t WHERE v > 3 OR v IS NULL GROUP BY g",
        "SELECT g, sum(v), count(*) FROM t WHERE g > 0 AND h = 1 GROUP BY g",
        "SELECT sum(id), max(id) FROM t WHERE g = 2",
        "SELECT sum(id % 7) FROM t",
        "SELECT g, sum(CAST(price AS INT)) FROM t GROUP BY g",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    let plan = ran(&session, "SELECT sum(id % 7) FROM t").await.plan;
    assert!(metric(&plan, "bytes_scanned") > 0);
    let plan = ran(&session, "SELECT sum(id), avg(v) FROM t").await.plan;
    assert_eq!(metric(&plan, "index_bytes_read"), 0, "directories have it");
}

/// A partition column has one value in each file, and a file may lack the column that rows are grouped by.
#[tokio::test]
async fn sums_are_grouped_by_what_is_constant_in_a_file() {
    let folder = TempDir::new().unwrap();
    let rows = |first: i32| first..first + 3_000;
    let v = |first: i32| -> ArrayRef {
        Arc::new(rows(first).map(|row| (row % 11 != 4).then_some(row * 13 % 250)).collect::<Int32Array>())
    };
    let g = |first: i32| -> ArrayRef { Arc::new(Int32Array::from_iter_values(rows(first).map(|row| row % 5))) };
    for file in 0..6 {
        let mut columns = vec![("v", v(file * 3_000), true)];
        if file != 4 {
            columns.push(("g", g(file * 3_000), true));
        }
        let path = folder.path().join(format!("p={}", file / 2)).join(format!("f{file}.parquet"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, &RecordBatch::try_from_iter_with_nullable(columns).unwrap());
    }
    create_indexes(folder.path(), &["v"], "binary").await;
    create_indexes(folder.path(), &["g"], "equality").await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT p, sum(v), avg(v), count(v), count(*) FROM t GROUP BY p",
        "SELECT p, sum(v) FROM t WHERE g = 2 GROUP BY p",
        "SELECT g, sum(v), avg(v), count(v), count(*) FROM t GROUP BY g",
        "SELECT g, sum(v), count(*) FROM t WHERE v IS NULL OR v > 100 GROUP BY g",
    ] {
        check(&session, sql, false).await;
    }
}

/// Every hundredth of a unit from -150.00 to 149.99, in no order.
fn prices(rows: std::ops::Range<i64>) -> Decimal128Array {
    let prices: Decimal128Array = rows.map(|row| Some(i128::from(row * 7919 % 30_000) - 15_000)).collect();
    prices.with_precision_and_scale(9, 2).unwrap()
}
