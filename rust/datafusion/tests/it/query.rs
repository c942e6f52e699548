//! Counts, reports and scans without SQL around the predicate.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, RecordBatch, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use lakemark_datafusion::{ErrorKind, QueryOptions, count, explain, scan};

use crate::fixture::{FILE_ROWS, both, create_indexes, folder, open, rows, session, text, write};

const WITHOUT: QueryOptions = QueryOptions { use_index: false, selection_cache: true };

#[tokio::test]
async fn counts_are_the_same_with_and_without_indexes() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "Mixed Case"]).await;
    let table = open(folder.path()).await;
    for (predicate, expected) in [
        (None, 2 * FILE_ROWS as u64),
        (Some("k = 5"), 172),
        (Some("k = 5 AND abs(id) < 100"), 9),
        (Some("`Mixed Case` = 7"), 100),
        (Some("\"Mixed Case\" = 7 AND ID < 705"), 5),
        (Some("false"), 0),
        (Some("k = NULL"), 0),
        (Some("true"), 2 * FILE_ROWS as u64),
        (Some("random() >= 0"), 2 * FILE_ROWS as u64),
    ] {
        for options in [QueryOptions::default(), WITHOUT] {
            let found = count(&table, predicate, &options).await.unwrap();
            assert_eq!(found, expected, "{predicate:?} with {options:?}");
        }
    }
}

#[tokio::test]
async fn a_report_names_the_index_or_the_reason() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let table = open(folder.path()).await;
    let report = explain(&table, Some("k = 5 AND id > 3 AND abs(id) > 1"), &QueryOptions::default()).await.unwrap();
    assert_eq!(report.leaves.len(), 3, "{report}");
    let leaf = |column: &str| report.leaves.iter().find(|leaf| leaf.column.as_deref() == Some(column)).unwrap();
    assert!(leaf("k").index.is_some());
    assert_eq!(leaf("k").rows, Some(172));
    assert_eq!(leaf("id").reason.map(|reason| reason.code()), Some("no_index"));
    let other = report.leaves.iter().find(|leaf| leaf.column.is_none()).unwrap();
    assert_eq!(other.reason.map(|reason| reason.code()), Some("expression_not_supported"));
    assert_eq!((report.rows_exact, report.rows_rechecked), (0, 172));
    let off = explain(&table, Some("k = 5"), &WITHOUT).await.unwrap();
    assert_eq!(off.leaves[0].reason.map(|reason| reason.code()), Some("index_disabled"));
    assert_eq!(off.index_reads, 0);
}

#[tokio::test]
async fn a_report_shows_literals_that_can_be_pasted_back() {
    const HOUR: i64 = 3_600_000_000;
    let folder = tempfile::TempDir::new().unwrap();
    let hours = TimestampMicrosecondArray::from_iter_values((0..48).map(|hour| hour * HOUR));
    let amounts = Decimal128Array::from_iter_values((0..48).map(|row| row * 25)).with_precision_and_scale(10, 2);
    let columns: [(&str, ArrayRef); 7] = [
        ("day", Arc::new(Date32Array::from_iter_values(0..48))),
        ("at", Arc::new(hours.clone())),
        ("zoned", Arc::new(hours.with_timezone("+00:00"))),
        ("clock", Arc::new(Time64MicrosecondArray::from_iter_values((0..48).map(|row| row * HOUR / 4)))),
        ("amount", Arc::new(amounts.unwrap())),
        ("bytes", Arc::new(BinaryArray::from_iter_values((0..48_u8).map(|row| [row])))),
        ("name", Arc::new(StringArray::from_iter_values((0..48).map(|row| format!("it's {row}"))))),
    ];
    write(&folder.path().join("a.parquet"), &RecordBatch::try_from_iter(columns).unwrap());
    let table = open(folder.path()).await;
    let options = QueryOptions::default();
    for (condition, shown, rows) in [
        ("day < '1970-01-03'", "day < '1970-01-03'", 2),
        ("day < DATE '1970-01-03'", "day < '1970-01-03'", 2),
        ("at < '1970-01-02'", "at < '1970-01-02'", 24),
        ("at >= TIMESTAMP '1970-01-01 05:30:00'", "at >= '1970-01-01T05:30:00'", 42),
        ("zoned >= '1970-01-02 02:00:00+02:00'", "zoned >= '1970-01-02T00:00:00Z'", 24),
        ("clock = '00:15:00'", "clock = '00:15:00'", 1),
        ("amount = arrow_cast('1.25', 'Decimal128(10, 2)')", "amount = 1.25", 1),
        ("bytes = X'0a'", "bytes = X'0a'", 1),
        ("name = 'it''s 7'", "name = 'it''s 7'", 1),
        ("NOT name = 'it''s 7'", "name != 'it''s 7'", 47),
    ] {
        for text in [condition, shown] {
            let report = explain(&table, Some(text), &options).await.unwrap();
            assert_eq!(report.leaves.iter().map(|leaf| leaf.text.as_str()).collect::<Vec<_>>(), [shown], "{text}");
            assert_eq!(count(&table, Some(text), &options).await.unwrap(), rows, "{text}");
        }
    }
}

#[tokio::test]
async fn a_scan_gives_the_named_columns() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let table = open(folder.path()).await;
    let columns = ["Mixed Case".to_owned(), "id".to_owned()];
    let frame = scan(&table, Some("k = 5 AND id < 30"), Some(&columns), None, &QueryOptions::default()).await.unwrap();
    let mut found: Vec<String> = frame.collect().await.unwrap().iter().flat_map(text).collect();
    found.sort();
    assert_eq!(found, ["0|15", "0|25", "0|5"]);
    let frame = scan(&table, None, None, Some(3), &QueryOptions::default()).await.unwrap();
    let found: usize = frame.collect().await.unwrap().iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(found, 3);
}

#[tokio::test]
async fn mistakes_are_errors() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let options = QueryOptions::default();
    assert_eq!(count(&table, Some("nothing = 1"), &options).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(count(&table, Some("k = "), &options).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(count(&table, Some("k + 1"), &options).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let missing = ["nothing".to_owned()];
    let error = scan(&table, None, Some(&missing), None, &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("Mixed Case"), "{error}");
}

#[tokio::test]
async fn what_no_single_row_can_answer_is_invalid_input() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let options = QueryOptions::default();
    for (filter, named) in [
        ("sum(id) > 3", "the aggregate sum(id): ask for it in SQL, with HAVING"),
        ("k = 1 OR NOT (max(k) < 3)", "the aggregate max(k)"),
        ("row_number() OVER (ORDER BY id) = 1", "the window function row_number()"),
        ("k = (SELECT 5)", "a subquery: ask for it in SQL, in a WHERE"),
        ("k IN (SELECT 5)", "a subquery"),
        ("EXISTS (SELECT 5)", "a subquery"),
        ("SUM(ID) > 3", "the aggregate sum(id)"),
    ] {
        let counted = count(&table, Some(filter), &options).await.unwrap_err();
        assert_eq!(counted.kind(), ErrorKind::InvalidInput, "{filter}: {counted}");
        assert!(counted.message().contains(named), "{filter}: {counted}");
        let scanned = scan(&table, Some(filter), None, None, &options).await.unwrap_err();
        assert_eq!((scanned.kind(), scanned.message()), (counted.kind(), counted.message()), "{filter}");
        let explained = explain(&table, Some(filter), &options).await.unwrap_err();
        assert_eq!(explained.kind(), ErrorKind::InvalidInput, "{filter}: {explained}");
    }
}

/// Of several bounds the engine keeps one: the wrong one, unless the column stands first.
#[tokio::test]
async fn bounds_with_the_constant_first_hold_as_well() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let five = "CAST(5 AS INT)";
    let least = (0..2 * FILE_ROWS).filter(|row| row % 7 != 3 && row % 10 > 5).count();
    let most = (0..2 * FILE_ROWS).filter(|row| row % 7 != 3 && row % 10 < 5).count();
    for (condition, expected) in [
        (format!("k >= {five} AND {five} < k"), least),
        (format!("{five} < k AND k >= {five}"), least),
        (format!("k BETWEEN {five} AND 9 AND {five} < k"), least),
        (format!("k <= {five} AND {five} > k"), most),
        (format!("{five} > k AND {five} >= k"), most),
    ] {
        let (with, without) = both(&session, &format!("SELECT id FROM t WHERE {condition}")).await;
        assert_eq!((with.len(), with == without), (expected, true), "{condition}");
        let (with, without) = both(&session, &format!("SELECT count(*) FROM t WHERE {condition}")).await;
        assert_eq!((with, without), (vec![expected.to_string()], vec![expected.to_string()]), "{condition}");
        let sql = format!("SELECT count(*) FROM t a JOIN t b ON a.id = b.id WHERE {}", condition.replace("k", "a.k"));
        assert_eq!(rows(&session, &sql).await, [expected.to_string()], "{condition}");
    }
}
