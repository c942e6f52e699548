//! The first rows of an order: only rows that may be among them are read.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use lakemark_index::{KeyRanges, Predicate, Reason, Truth};
use lakemark_table::{
    BuildOptions, FileProbe, IndexKind, IndexSpec, Probe, ProbeOptions, Snapshot, Table, TopKRequest,
};

use crate::fixture::{int_key, leaf, open, probe, spec, spec_with, write};

const ALL: Predicate = Predicate::Const(Truth::True);
const ROWS: usize = 20_000;

/// A value in no order; each eleventh row has none.
fn value(row: usize) -> Option<i32> {
    (!row.is_multiple_of(11)).then_some((row * 7_919 % 20_011) as i32)
}

async fn unindexed(folder: &std::path::Path) -> Arc<Table> {
    for file in 0..2 {
        let half = ROWS / 2;
        let k: ArrayRef = Arc::new(Int32Array::from_iter((file * half..(file + 1) * half).map(value)));
        write(&folder.join(format!("f{file}.parquet")), &RecordBatch::try_from_iter([("k", k)]).unwrap());
    }
    open(folder).await
}

async fn table(folder: &std::path::Path, encoding: &str) -> Arc<Table> {
    let table = unindexed(folder).await;
    table.create_index(spec_with("k", "encoding", encoding), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

fn request(descending: bool, nulls_first: bool, rows: u64) -> TopKRequest {
    TopKRequest { column: "k".to_owned(), descending, nulls_first, rows }
}

/// Rows that are read, in the numbers of the whole table.
fn read(probe: &Probe) -> Vec<usize> {
    let of_file = |(file, found): (usize, &FileProbe)| match found {
        FileProbe::Known { exact, recheck, .. } => {
            exact.or(recheck).iter().map(|row| file * ROWS / 2 + row as usize).collect::<Vec<_>>()
        }
        other => panic!("expected known rows, got {other:?}"),
    };
    probe.files.iter().enumerate().flat_map(of_file).collect()
}

/// The rows that an engine that sorts would give, ties and all.
fn first(chosen: impl Fn(Option<i32>) -> bool, request: &TopKRequest) -> Vec<usize> {
    let order = |row: &usize| {
        let value = value(*row).map(i64::from);
        let signed = value.map(|value| if request.descending { -value } else { value });
        (value.is_none() != request.nulls_first, signed)
    };
    let mut rows: Vec<usize> = (0..ROWS).filter(|row| chosen(value(*row))).collect();
    rows.sort_by_key(order);
    rows.truncate(request.rows as usize);
    rows
}

async fn cut(snapshot: &Snapshot, filter: &Predicate, request: &TopKRequest) -> Option<Probe> {
    snapshot.top_k(&probe(snapshot, filter).await, request, &ProbeOptions::default()).await.unwrap()
}

#[tokio::test]
async fn the_first_rows_are_among_those_that_are_read() {
    for encoding in ["equality", "binary", "interval-equality"] {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = table(folder.path(), encoding).await.snapshot().await.unwrap();
        for (descending, nulls_first) in [(false, false), (false, true), (true, false), (true, true)] {
            for rows in [1, 10, 500] {
                let request = request(descending, nulls_first, rows);
                let found = cut(&snapshot, &ALL, &request).await.expect("a bound");
                let read = read(&found);
                assert!(first(|_| true, &request).iter().all(|row| read.contains(row)), "{request:?}");
                // A bound lies between blocks of values, and rows without a value may be many.
                let most = if nulls_first { ROWS / 11 + 1 } else { ROWS / 4 };
                assert!(read.len() <= most, "{} rows for {request:?} by {encoding}", read.len());
            }
        }
    }
}

#[tokio::test]
async fn a_value_within_a_leaf_is_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let table = unindexed(folder.path()).await;
    let spec = IndexSpec { kind: Some(IndexKind::Key), ..spec("k") };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    for descending in [false, true] {
        let request = request(descending, false, 10);
        let found = cut(&snapshot, &ALL, &request).await.expect("a bound");
        let mut read = read(&found);
        let mut expected = first(|_| true, &request);
        read.sort_unstable();
        expected.sort_unstable();
        assert_eq!(read, expected);
        assert!(found.report.index_reads >= 2, "the leaf is read for its values, and for their rows");
    }
}

#[tokio::test]
async fn rows_that_a_filter_leaves_out_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = table(folder.path(), "equality").await.snapshot().await.unwrap();
    let filter = leaf("k", KeyRanges::greater_than(int_key(1_000), true));
    let request = request(false, false, 20);
    let read = read(&cut(&snapshot, &filter, &request).await.expect("a bound"));
    let expected = first(|value| value.is_some_and(|value| value >= 1_000), &request);
    assert!(expected.iter().all(|row| read.contains(row)));
    assert!(read.iter().all(|row| value(*row).is_some_and(|value| value >= 1_000)));
    assert!(read.len() < ROWS / 4, "{} rows", read.len());
}

#[tokio::test]
async fn where_nothing_is_known_or_saved_the_plan_stays() {
    let folder = tempfile::tempdir().unwrap();
    let indexed = table(folder.path(), "equality").await;
    let snapshot = indexed.snapshot().await.unwrap();
    assert!(cut(&snapshot, &ALL, &request(false, false, ROWS as u64)).await.is_none());
    let none = TopKRequest { column: "absent".to_owned(), ..request(false, false, 1) };
    assert!(cut(&snapshot, &ALL, &none).await.is_none());
    // Nobody knows of a file that came later: it is read whole.
    write(
        &folder.path().join("later.parquet"),
        &RecordBatch::try_from_iter([("k", Arc::new(Int32Array::from(vec![-5; 300])) as ArrayRef)]).unwrap(),
    );
    let snapshot = indexed.snapshot().await.unwrap();
    let found = cut(&snapshot, &ALL, &request(false, false, 5)).await.expect("a bound");
    let later = snapshot.files().iter().position(|file| file.path == "later.parquet").unwrap();
    match &found.files[later] {
        FileProbe::Known { exact, .. } => assert!(exact.is_full()),
        other => panic!("expected all rows, got {other:?}"),
    }
}

#[tokio::test]
async fn a_filter_that_leaves_few_rows_is_not_outdone_by_a_search() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = table(folder.path(), "equality").await.snapshot().await.unwrap();
    let few = |most: i64| leaf("k", KeyRanges::less_than(int_key(most), false));
    // Fewer rows than are wanted, and just as many as would be looked for.
    assert!(cut(&snapshot, &few(5), &request(true, false, 10)).await.is_none());
    assert!(cut(&snapshot, &few(200), &request(true, false, 10)).await.is_none());
    // Nobody knows which rows a filter leaves that no index can answer.
    let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "f(k)".to_owned() };
    assert!(cut(&snapshot, &unknown, &request(false, false, 10)).await.is_none());
}
