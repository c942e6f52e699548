//! Sums by slices in place of values: as many rows with the same sum in each group, and hardly a byte read for them.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow::util::display::array_value_to_string;
use lakemark_index::{KeyRanges, Predicate, RowSet};
use lakemark_table::{BuildOptions, FileProbe, FileProbes, GroupCountRequest, GroupCounts, IndexSpec, Snapshot, Table};
use tempfile::TempDir;

use crate::fixture::{answered, equals, int_key, is_null, leaf, open, probe, segments, write};

const ROWS: i64 = 2_000;

/// Rows with NULLs and without, and their sum, by the text of the group.
type Sums = BTreeMap<String, (u64, u64, i64)>;

/// `k` from 0 to 9 with NULLs, `v` every number from -300 to 299 with NULLs, `gaps` even numbers, `s` a text for each `k`.
fn batch(file: i64) -> RecordBatch {
    let rows = || file * ROWS..(file + 1) * ROWS;
    let k: Int32Array = rows().map(|row| (row % 11 != 10).then_some((row % 10) as i32)).collect();
    let v: Int64Array = rows().map(|row| (row % 13 != 7).then_some(row * 7 % 600 - 300)).collect();
    let gaps: Int64Array = rows().map(|row| Some(row % 50 * 2)).collect();
    let s: StringArray = rows().map(|row| Some(format!("s{}", row % 6))).collect();
    let columns: [(&str, ArrayRef); 4] =
        [("k", Arc::new(k)), ("v", Arc::new(v)), ("gaps", Arc::new(gaps)), ("s", Arc::new(s))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

async fn indexed(files: i64, per_segment: &str) -> (TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..files {
        write(&folder.path().join(format!("f{file}.parquet")), &batch(file));
    }
    let table = open(folder.path()).await;
    for (column, encoding) in [("k", "equality"), ("s", "equality"), ("v", "binary"), ("gaps", "binary")] {
        let options = [("encoding", encoding), ("files_per_segment", per_segment)];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let spec = IndexSpec { columns: vec![column.to_owned()], options, ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    (folder, table)
}

async fn group_counts(
    snapshot: &Snapshot,
    columns: &[&str],
    summed: Option<&str>,
    predicate: &Predicate,
) -> GroupCounts {
    let files = probe(snapshot, predicate).await.files;
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    snapshot
        .group_counts(&GroupCountRequest {
            columns: &columns,
            predicate,
            files: &files,
            sum_column: summed,
            only_few_values: false,
        })
        .await
        .unwrap()
}

fn sums(found: &GroupCounts, columns: &[&str], summed: &str) -> Sums {
    let mut sums = Sums::new();
    for part in &found.parts {
        let place = columns.iter().position(|column| *column == summed).unwrap();
        let values = part.values[place].as_primitive::<Int64Type>();
        for (row, rows) in part.rows.iter().enumerate() {
            let group = (0..columns.len()).find(|other| *other != place);
            let group =
                group.map_or_else(String::new, |group| array_value_to_string(&part.values[group], row).unwrap());
            let sum = sums.entry(group).or_default();
            if values.is_null(row) {
                sum.1 += rows;
            } else {
                sum.0 += rows;
                sum.2 += values.value(row) * *rows as i64;
            }
        }
    }
    sums
}

fn expected(
    batches: &[RecordBatch],
    group: Option<&str>,
    summed: &str,
    chosen: fn(&RecordBatch, usize) -> bool,
) -> Sums {
    let mut sums = Sums::new();
    for batch in batches {
        let values = batch.column_by_name(summed).unwrap().as_primitive::<Int64Type>();
        for row in (0..batch.num_rows()).filter(|row| chosen(batch, *row)) {
            let text = |group: &str| array_value_to_string(batch.column_by_name(group).unwrap(), row).unwrap();
            let sum = sums.entry(group.map_or_else(String::new, text)).or_default();
            if values.is_null(row) {
                sum.1 += 1;
            } else {
                sum.0 += 1;
                sum.2 += values.value(row);
            }
        }
    }
    sums
}

fn number(batch: &RecordBatch, column: &str, row: usize) -> Option<i64> {
    array_value_to_string(batch.column_by_name(column).unwrap(), row).unwrap().parse().ok()
}

fn whole() -> Predicate {
    Predicate::And(Vec::new())
}

fn least_v(least: i64) -> Predicate {
    leaf("v", KeyRanges::greater_than(int_key(least), true))
}

type Chosen = fn(&RecordBatch, usize) -> bool;

#[tokio::test]
async fn sums_are_those_of_the_rows_in_every_group() {
    let cases: [(Predicate, Chosen); 5] = [
        (whole(), |_, _| true),
        (equals("k", 3), |batch, row| number(batch, "k", row) == Some(3)),
        (is_null("v"), |batch, row| number(batch, "v", row).is_none()),
        (least_v(100), |batch, row| number(batch, "v", row).is_some_and(|v| v >= 100)),
        (Predicate::Or(vec![least_v(250), is_null("k")]), |batch, row| {
            number(batch, "v", row).is_some_and(|v| v >= 250) || number(batch, "k", row).is_none()
        }),
    ];
    for per_segment in ["1", "16"] {
        let (_folder, table) = indexed(3, per_segment).await;
        let snapshot = table.snapshot().await.unwrap();
        let batches: Vec<RecordBatch> = (0..3).map(batch).collect();
        for (predicate, chosen) in &cases {
            for columns in [&["v"][..], &["gaps"], &["k", "v"], &["v", "k"], &["s", "v"], &["gaps", "k"]] {
                let summed = *columns.iter().find(|column| ["v", "gaps"].contains(column)).unwrap();
                let group = columns.iter().find(|column| **column != summed).copied();
                let found = group_counts(&snapshot, columns, Some(summed), predicate).await;
                // Pairs are counted by postings, of which slices have none.
                let is_answered = summed == "v" || group.is_none();
                assert_eq!(answered(&found), [is_answered; 3], "{predicate} by {columns:?}");
                if is_answered {
                    let expected = expected(&batches, group, summed, *chosen);
                    assert_eq!(sums(&found, columns, summed), expected, "{predicate} by {columns:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_sum_of_all_rows_is_in_the_directory() {
    let (_folder, table) = indexed(2, "16").await;
    let snapshot = table.snapshot().await.unwrap();
    // The first question reads the directory.
    for reads in [1, 0] {
        assert_eq!(group_counts(&snapshot, &["v"], Some("v"), &whole()).await.index_reads, reads);
    }
    let sum = group_counts(&snapshot, &["v"], Some("v"), &whole()).await;
    let values: usize = sum.parts.iter().map(|part| part.rows.len()).sum();
    assert!(values <= 4, "the least, one between, the greatest and NULL in place of {values}");
    // What asks for the values gets them.
    let all = group_counts(&snapshot, &["v"], None, &whole()).await;
    assert_eq!(all.parts.iter().map(|part| part.rows.len()).sum::<usize>(), 601);
    // Where values are missing between others they are read, and counted by rank.
    let gaps = group_counts(&snapshot, &["gaps"], Some("gaps"), &whole()).await;
    assert_eq!(gaps.parts.iter().map(|part| part.rows.len()).sum::<usize>(), 50);
}

#[tokio::test]
async fn law_5_slices_that_are_damaged_are_not_summed() {
    let (folder, table) = indexed(1, "16").await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(answered(&group_counts(&snapshot, &["v"], Some("v"), &equals("k", 3)).await), [true]);
    // Of every segment the first half, so that slices and postings are hit and the directories at the end are not.
    for path in segments(folder.path()) {
        let mut bytes = fs::read(&path).unwrap();
        let half = bytes.len() / 2;
        bytes.iter_mut().take(half).skip(64).step_by(100).for_each(|byte| *byte ^= 0x55);
        fs::write(&path, bytes).unwrap();
    }
    let files = probe(&snapshot, &whole()).await.files;
    let columns = ["v".to_owned()];
    let some = FileProbe::Known {
        row_groups: vec![100; 20],
        exact: RowSet::from_rows((0..ROWS as u32).step_by(3).collect(), ROWS as u32),
        recheck: RowSet::empty(ROWS as u32),
    };
    assert!(matches!(&files[0], FileProbe::Known { exact, .. } if exact.is_full()));
    let request = GroupCountRequest {
        columns: &columns,
        predicate: &whole(),
        files: &FileProbes::from(vec![some]),
        sum_column: Some("v"),
        only_few_values: false,
    };
    let damaged = snapshot.group_counts(&request).await.unwrap();
    assert_eq!((answered(&damaged), damaged.parts.len()), (vec![false], 0));
}
