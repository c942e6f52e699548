//! Of pending rows a probe names those that a predicate may choose, by the pages of runs in which keys may be.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use arrow::array::{AsArray, StringArray};
use arrow::datatypes::Int64Type;
use lakemark_index::{KeyRanges, Predicate};
use lakemark_table::{BuildOptions, Operation, PendingRows, ProbeOptions};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};

use super::{batch, folder, keyed, make};
use crate::fixture::{int_key, is_null, leaf, open};

/// Rows of a page of a run.
const PAGE: u64 = 2048;

/// The keys of pending rows.
fn keys_of(pending: &PendingRows) -> BTreeSet<i64> {
    let mut keys = BTreeSet::new();
    for file in &pending.files {
        let input = std::fs::File::open(format!("/{}", file.meta.location)).unwrap();
        let selectors: Vec<RowSelector> = (0..file.rows.universe())
            .map(|row| if file.rows.contains(row) { RowSelector::select(1) } else { RowSelector::skip(1) })
            .collect();
        let reader = ParquetRecordBatchReaderBuilder::try_new(input).unwrap();
        for read in reader.with_row_selection(RowSelection::from(selectors)).build().unwrap() {
            keys.extend(read.unwrap().column_by_name("k").unwrap().as_primitive::<Int64Type>().values());
        }
    }
    for rows in &pending.batches {
        keys.extend(rows.column_by_name("k").unwrap().as_primitive::<Int64Type>().values());
    }
    keys
}

fn between(low: i64, high: i64) -> KeyRanges {
    KeyRanges::between(Bound::Included(int_key(low)), Bound::Excluded(int_key(high)))
}

/// Law 2: a row that is left out is none that the predicate chooses; and few pages are left.
#[tokio::test]
async fn law_2_pending_rows_are_narrowed_to_the_pages_that_may_have_the_keys() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    // Two runs over the same keys, a delete among them, and a row in the log.
    for step in [3, 7] {
        let rows: Vec<_> = (0..20_000).map(|row| (row * step, Some(step as i32), None)).collect();
        make(&table, Operation::Upsert, batch(&rows)).await.unwrap();
    }
    make(&table, Operation::Delete, super::keys(&[3 * 700])).await.unwrap();
    table.flush().await.unwrap();
    make(&table, Operation::Upsert, batch(&[(5, Some(1), None)])).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let all = keys_of(snapshot.pending().unwrap());
    assert_eq!(all.len(), 20_000 * 2 - 20_000 / 7 - 1 - 1 + 1);
    let points = [21, 3 * 19_999, 1_000_000].map(int_key).to_vec();
    let not_null = Predicate::Not(Box::new(is_null("k")));
    let wanted = leaf("a", KeyRanges::point(int_key(7)));
    for (predicate, chosen, pages) in [
        (leaf("k", between(2_000, 2_200)), Some(between(2_000, 2_200)), 2),
        // From the last key of a page to the first of the next.
        (leaf("k", between(3 * 2_047, 3 * 2_048 + 1)), Some(between(3 * 2_047, 3 * 2_048 + 1)), 3),
        (leaf("k", KeyRanges::points(points.clone())), Some(KeyRanges::points(points)), 4),
        (Predicate::And(vec![wanted.clone(), leaf("k", between(100, 200))]), Some(between(100, 200)), 2),
        (Predicate::Or(vec![leaf("k", between(0, 1)), leaf("k", between(130_000, 140_000))]), None, 8),
        (
            Predicate::Or(vec![
                Predicate::And(vec![wanted.clone(), leaf("k", between(100, 200))]),
                Predicate::And(vec![not_null.clone(), leaf("k", between(50_000, 50_001))]),
            ]),
            None,
            4,
        ),
        (Predicate::Not(Box::new(leaf("k", between(100, 1_000_000)))), Some(between(0, 100)), 2),
        (leaf("k", between(1_000_000, 2_000_000)), Some(KeyRanges::none()), 0),
        // Nothing is said of the key here.
        (wanted.clone(), None, 20),
        (not_null.clone(), None, 20),
        (Predicate::Or(vec![wanted, leaf("k", between(0, 1))]), None, 20),
    ] {
        let probe = snapshot.probe(&predicate, &ProbeOptions::default()).await.unwrap();
        let pending = probe.pending.as_ref().unwrap();
        let kept = keys_of(pending);
        let chosen = chosen.unwrap_or_else(|| predicate.keys_of("k"));
        let must: BTreeSet<i64> = all.iter().copied().filter(|key| chosen.contains(&int_key(*key))).collect();
        assert!(must.is_subset(&kept) && kept.is_subset(&all), "{predicate}");
        let in_runs = probe.pending_rows() - 1;
        assert!(in_runs <= pages * PAGE, "{predicate}: {in_runs} rows in more than {pages} pages");
        assert_eq!(kept.len() as u64, probe.pending_rows(), "{predicate}");
        // The row in memory is always there, and runs without a row that is left are not.
        assert!(kept.contains(&5) && pending.files.iter().all(|file| !file.rows.is_empty()), "{predicate}");
        let off = ProbeOptions { use_index: false, ..ProbeOptions::default() };
        let unknown = snapshot.probe(&predicate, &off).await.unwrap();
        assert_eq!(unknown.pending_rows(), all.len() as u64, "{predicate}");
    }
}

/// Bounds of long texts are cut: a key that begins like the end of a page may be in the page before or behind.
#[tokio::test]
async fn pages_are_told_by_the_first_column_of_a_key_though_bounds_of_texts_are_cut() {
    let folder = folder();
    let table = open(folder.path()).await;
    let key = ["s".to_owned(), "k".to_owned()];
    table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let text = |row: i64| format!("{}{:03}{}", "a".repeat(62), row / 10, "z".repeat(40));
    let rows: Vec<(i64, String)> = (0..10_000).map(|row| (row, text(row))).collect();
    let texts: StringArray = rows.iter().map(|(_, text)| Some(text.as_str())).collect();
    let all: Vec<_> = rows.iter().map(|(row, text)| (*row, None, Some(text.as_str()))).collect();
    make(&table, Operation::Upsert, batch(&all)).await.unwrap();
    table.flush().await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.pending().unwrap().files.len(), 1);
    for row in [0, 2_047, 2_048, 4_095, 9_999] {
        let wanted = lakemark_index::encode_literal(&texts.slice(row, 1));
        let Some(lakemark_index::LiteralKey::Key(wanted)) = wanted else { panic!("{wanted:?}") };
        let probe = snapshot.probe(&leaf("s", KeyRanges::point(wanted)), &ProbeOptions::default()).await.unwrap();
        let kept = keys_of(probe.pending.as_ref().unwrap());
        let of_text = row as i64 / 10 * 10;
        assert!((of_text..of_text + 10).all(|key| kept.contains(&key)), "{row}");
        assert!(probe.pending_rows() < 10_000, "{row}");
    }
}
