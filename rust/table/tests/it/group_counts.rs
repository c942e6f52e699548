//! Counts by value and bounds from indexes, against a look at every value.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use arrow::util::display::array_value_to_string;
use lakemark_index::{KeyRanges, Predicate};
use lakemark_table::{BuildOptions, GroupCountRequest, GroupCounts, MinMax, MinMaxRequest, Probe, Snapshot};

use crate::fixture::{
    answered, batch, create_indexes, equals, folder, int_key, is_null, leaf, open, probe, spec, spec_with, write,
};

/// Rows by the text of their values.
type Counts = BTreeMap<Vec<String>, u64>;

/// Whether a row with this `k` is chosen.
type Chosen = fn(Option<i32>) -> bool;

async fn group_counts(snapshot: &Snapshot, columns: &[&str], predicate: &Predicate) -> (GroupCounts, Probe) {
    let found = probe(snapshot, predicate).await;
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let request = GroupCountRequest {
        columns: &columns,
        predicate,
        files: &found.files,
        sum_column: None,
        only_few_values: false,
    };
    (snapshot.group_counts(&request).await.unwrap(), found)
}

fn counts(found: &GroupCounts) -> Counts {
    let mut counts = Counts::new();
    for part in &found.parts {
        for (row, rows) in part.rows.iter().enumerate() {
            let values = part.values.iter().map(|values| array_value_to_string(values, row).unwrap());
            *counts.entry(values.collect()).or_default() += rows;
        }
    }
    counts
}

/// What a loop over the rows counts.
fn looked_up(batches: &[RecordBatch], columns: &[&str], chosen: impl Fn(Option<i32>) -> bool) -> Counts {
    let mut counts = Counts::new();
    for batch in batches {
        let k = batch.column_by_name("k").unwrap().as_primitive::<Int32Type>();
        for row in (0..batch.num_rows()).filter(|row| chosen(k.is_valid(*row).then(|| k.value(*row)))) {
            let value = |column: &&str| array_value_to_string(batch.column_by_name(column).unwrap(), row).unwrap();
            *counts.entry(columns.iter().map(value).collect()).or_default() += 1;
        }
    }
    counts
}

fn whole() -> Predicate {
    Predicate::And(Vec::new())
}

#[tokio::test]
async fn values_and_pairs_are_counted_as_a_scan_counts_them() {
    for per_segment in ["1", "2", "16"] {
        let folder = folder(3);
        let table = open(folder.path()).await;
        for column in ["k", "s"] {
            table.create_index(spec_with(column, "files_per_segment", per_segment), false).await.unwrap();
        }
        table.build(BuildOptions::default()).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        let batches: Vec<RecordBatch> = (0..3).map(|file| batch(file * 250, 250)).collect();
        let few = leaf("k", KeyRanges::less_than(int_key(3), false));
        let cases: [(Predicate, Chosen); 4] = [
            (whole(), |_| true),
            (few.clone(), |k| k.is_some_and(|k| k < 3)),
            (Predicate::Or(vec![few, is_null("k")]), |k| k.is_none_or(|k| k < 3)),
            (Predicate::Not(Box::new(is_null("k"))), |k| k.is_some()),
        ];
        for (predicate, chosen) in &cases {
            for columns in [&["k"][..], &["s"], &["k", "s"], &["s", "k"]] {
                let (found, _) = group_counts(&snapshot, columns, predicate).await;
                assert_eq!(answered(&found), [true; 3], "{predicate} by {columns:?}");
                assert_eq!(counts(&found), looked_up(&batches, columns, chosen), "{predicate} by {columns:?}");
            }
        }
    }
}

#[tokio::test]
async fn without_a_choice_of_rows_no_posting_is_read() {
    let folder = folder(4);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let files = probe(&snapshot, &whole()).await.files;
    for reads in [1, 0] {
        let bounds = snapshot.min_max(&[request("k", true)], &files).await.unwrap();
        assert_eq!(bounds.index_reads, reads, "the directory is read once");
    }
    let (all, _) = group_counts(&snapshot, &["k"], &whole()).await;
    assert_eq!(all.index_reads, 1, "one value block");
    let (by_test, _) = group_counts(&snapshot, &["k"], &equals("k", 3)).await;
    assert_eq!(by_test.index_reads, 1, "one value block");
    assert_eq!(counts(&by_test).into_keys().collect::<Vec<_>>(), [["3"]]);
}

fn request(column: &str, extremes: bool) -> MinMaxRequest {
    MinMaxRequest { column: column.to_owned(), extremes }
}

/// Rows, NULLs, least and greatest of a column.
fn summed(bounds: &MinMax, column: usize) -> (u64, u64, Vec<String>, Vec<String>) {
    let parts = &bounds.columns[column];
    let text = |values: &ArrayRef| array_value_to_string(values, 0).unwrap();
    let mut least: Vec<String> = parts.iter().map(|part| text(&part.least)).collect();
    let mut greatest: Vec<String> = parts.iter().map(|part| text(&part.greatest)).collect();
    least.sort();
    greatest.sort();
    let sum = |number: fn(&lakemark_table::ColumnMinMax) -> u64| parts.iter().map(number).sum();
    (sum(|part| part.rows), sum(|part| part.nulls), least, greatest)
}

#[tokio::test]
async fn bounds_take_in_what_every_column_knows() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    write(&folder.path().join("f0002.parquet"), &batch(500, 250));
    table.create_index(spec_with("s", "files_per_segment", "1"), false).await.unwrap();
    table.build(BuildOptions { index: Some("s_bitmap".into()), ..BuildOptions::default() }).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let files = probe(&snapshot, &whole()).await.files;
    let bounds = snapshot.min_max(&[request("s", true)], &files).await.unwrap();
    assert_eq!(bounds.answered.each().collect::<Vec<_>>(), [true; 3]);
    assert_eq!(summed(&bounds, 0), (750, 0, vec!["name0".into(); 3], vec!["name9".into(); 3]));
    let bounds = snapshot.min_max(&[request("k", true), request("s", true)], &files).await.unwrap();
    assert_eq!(bounds.answered.each().collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(summed(&bounds, 0), (500, 72, vec!["0".into(); 2], vec!["9".into(); 2]));
    assert_eq!(summed(&bounds, 1).0, 500);
    // Extremes of chosen rows are in no directory; their NULLs are in a list.
    let files = probe(&snapshot, &Predicate::Or(vec![equals("k", 3), is_null("k")])).await.files;
    let bounds = snapshot.min_max(&[request("k", true)], &files).await.unwrap();
    assert_eq!(bounds.answered.each().collect::<Vec<_>>(), [false; 3]);
    let bounds = snapshot.min_max(&[request("k", false)], &files).await.unwrap();
    assert_eq!(bounds.answered.each().collect::<Vec<_>>(), [true, true, false]);
    let (rows, nulls, ..) = summed(&bounds, 0);
    assert_eq!((rows, nulls), (72 + 43, 72));
}

#[tokio::test]
async fn law_5_values_that_are_damaged_are_not_believed() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let segment = fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap().next().unwrap().unwrap().path();
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &whole()).await;
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let columns = ["k".to_owned()];
    let counted = snapshot
        .group_counts(&GroupCountRequest {
            columns: &columns,
            predicate: &whole(),
            files: &found.files,
            sum_column: None,
            only_few_values: false,
        })
        .await
        .unwrap();
    assert_eq!((answered(&counted), counted.parts.len()), (vec![false, false], 0));
}

#[tokio::test]
async fn columns_without_an_index_have_no_counts() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    table.create_index(spec("s"), false).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert!(
        snapshot.supports_index_only("k") && snapshot.supports_index_only("s") && !snapshot.supports_index_only("x")
    );
    for columns in [&["s"][..], &["x"], &["k", "s"], &["k", "s", "k"], &[]] {
        let (found, _) = group_counts(&snapshot, columns, &whole()).await;
        assert_eq!((answered(&found), found.parts.len()), (vec![false], 0), "{columns:?}");
    }
}

#[tokio::test]
async fn of_too_many_pairs_no_value_is_read() {
    let folder = folder(0);
    let numbers = |step: i32| (0..20_000).map(move |row| row * step % 2_000);
    let k: ArrayRef = Arc::new(numbers(7).collect::<Int32Array>());
    let s: ArrayRef = Arc::new(numbers(3).map(|number| Some(format!("name{number}"))).collect::<StringArray>());
    write(&folder.path().join("f.parquet"), &RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap());
    let table = open(folder.path()).await;
    for column in ["k", "s"] {
        table.create_index(spec(column), false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    for column in ["k", "s"] {
        let (found, _) = group_counts(&snapshot, &[column], &whole()).await;
        assert!(found.answered.are_all() && found.index_reads > 0);
    }
    let (found, _) = group_counts(&snapshot, &["k", "s"], &whole()).await;
    assert_eq!((answered(&found), found.index_reads), (vec![false], 0));
    // One value with all of the other column's are few enough.
    let few = leaf("k", KeyRanges::less_than(int_key(1), false));
    let (found, _) = group_counts(&snapshot, &["k", "s"], &few).await;
    let expected: u64 = numbers(7).filter(|k| *k < 1).count() as u64;
    assert_eq!((found.answered.are_all(), counts(&found).values().sum()), (true, expected));
}
