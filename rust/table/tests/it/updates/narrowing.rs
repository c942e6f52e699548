//! Of buffered rows a probe names those that a predicate may choose, by the pages of runs in which keys may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Int32Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, LiteralKey, Predicate, encode_literal};
use lakemark_table::{BufferedRows, BufferedRun, BuildOptions, Operation, ProbeOptions};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::PageIndexPolicy;
use serde_json::json;

use super::{batch, folder, keyed, keys, make};
use crate::delta::commit;
use crate::fixture::{equals, int_key, is_null, leaf, open, probe, write};
use crate::mapping;

/// A run as its file has it: the keys of its rows, and where its pages begin.
struct Run {
    keys: Vec<i64>,
    pages: Vec<usize>,
}

impl Run {
    fn of(file: &BufferedRun) -> Self {
        let input = File::open(format!("/{}", file.meta.location)).unwrap();
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(input, options).unwrap();
        let (mut pages, mut first) = (Vec::new(), 0);
        let metadata = reader.metadata();
        for (group, offsets) in metadata.row_groups().iter().zip(metadata.offset_index().unwrap()) {
            let of_key = offsets[0].page_locations();
            pages.extend(of_key.iter().map(|page| first + page.first_row_index as usize));
            first += group.num_rows() as usize;
        }
        let mut keys = Vec::new();
        for read in reader.build().unwrap() {
            keys.extend(read.unwrap().column_by_name("k").unwrap().as_primitive::<Int64Type>().values());
        }
        Self { keys, pages }
    }

    /// The rows of pages between whose first and last key there is one that `key_test` takes.
    fn rows_of_pages(&self, key_test: &dyn Fn(i64) -> bool) -> BTreeSet<u32> {
        let ends = self.pages.iter().skip(1).copied().chain([self.keys.len()]);
        let pages = self.pages.iter().copied().zip(ends);
        let met = pages.filter(|(first, end)| (self.keys[*first]..=self.keys[end - 1]).any(key_test));
        met.flat_map(|(first, end)| first as u32..end as u32).collect()
    }
}

/// The rows of a run that count.
fn rows_of(buffered: &BufferedRows, of: &BufferedRun) -> BTreeSet<u32> {
    let file = buffered.files.iter().find(|file| file.meta.location == of.meta.location);
    file.map_or_else(BTreeSet::new, |file| file.rows.iter().collect())
}

fn between(low: i64, high: i64) -> KeyRanges {
    KeyRanges::between(Bound::Included(int_key(low)), Bound::Excluded(int_key(high)))
}

/// Law 2: a row that is left out is none that the predicate chooses; and just the pages that may have its keys are left.
#[tokio::test]
async fn law_2_buffered_rows_are_narrowed_to_the_pages_that_may_have_the_keys() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    // Two runs over the same keys, the newer with a delete, and a row in the log.
    // Texts that do not shrink, so that a run has several row groups.
    let mixed = |row: i64| (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let text = |row: i64| format!("{0:016x}{1:016x}{0:016X}{1:016X}", mixed(row), mixed(row + 20_000));
    for step in [3, 7] {
        let rows: Vec<(i64, String)> = (0..20_000).map(|row| (row * step, text(row))).collect();
        let rows: Vec<_> = rows.iter().map(|(k, text)| (*k, Some(step as i32), Some(text.as_str()))).collect();
        make(&table, Operation::Upsert, batch(&rows)).await.unwrap();
        if step == 7 {
            make(&table, Operation::Delete, keys(&[2_100])).await.unwrap();
        }
        table.flush().await.unwrap();
    }
    make(&table, Operation::Upsert, batch(&[(5, Some(1), None)])).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let all = snapshot.buffered_rows().unwrap();
    let runs: Vec<Run> = all.files.iter().map(Run::of).collect();
    assert_eq!(runs.iter().map(|run| run.keys.len()).collect::<Vec<_>>(), [20_000, 20_000]);
    assert!(all.files.iter().all(|file| file.row_groups.len() > 1), "pages of several row groups");
    // Of the keys that both have only those of the newer count.
    assert_eq!(all.row_count(), 20_000 - 2_858 + 20_000 - 1 + 1);
    let edge = runs[0].keys[runs[0].pages[4]];
    let points = [21, 3 * 19_999, 1_000_000];
    let not_null = Predicate::Not(Box::new(is_null("k")));
    let wanted = leaf("a", KeyRanges::point(int_key(7)));
    let two = |first: KeyRanges, second: KeyRanges| {
        Predicate::Or(vec![
            Predicate::And(vec![wanted.clone(), leaf("k", first)]),
            Predicate::And(vec![not_null.clone(), leaf("k", second)]),
        ])
    };
    type KeyTest = Box<dyn Fn(i64) -> bool>;
    let cases: Vec<(Predicate, KeyTest)> = vec![
        (leaf("k", between(2_000, 2_200)), Box::new(|k| (2_000..2_200).contains(&k))),
        (equals("k", edge), Box::new(move |k| k == edge)),
        (leaf("k", between(edge - 3, edge)), Box::new(move |k| (edge - 3..edge).contains(&k))),
        (leaf("k", between(edge - 2, edge)), Box::new(move |k| (edge - 2..edge).contains(&k))),
        (leaf("k", KeyRanges::points(points.map(int_key).to_vec())), Box::new(move |k| points.contains(&k))),
        (Predicate::And(vec![wanted.clone(), leaf("k", between(100, 200))]), Box::new(|k| (100..200).contains(&k))),
        (
            Predicate::Or(vec![leaf("k", between(0, 1)), leaf("k", between(130_000, 140_000))]),
            Box::new(|k| k == 0 || k >= 130_000),
        ),
        (two(between(100, 200), between(50_000, 50_001)), Box::new(|k| (100..200).contains(&k) || k == 50_000)),
        (Predicate::Not(Box::new(leaf("k", between(100, 1_000_000)))), Box::new(|k| k < 100)),
        (leaf("k", between(100_000, 100_100)), Box::new(|k| (100_000..100_100).contains(&k))),
        (leaf("k", between(1_000_000, 2_000_000)), Box::new(|_| false)),
        // Nothing is said of the key here.
        (wanted.clone(), Box::new(|_| true)),
        (not_null.clone(), Box::new(|_| true)),
        (Predicate::Or(vec![wanted.clone(), leaf("k", between(0, 1))]), Box::new(|_| true)),
    ];
    for (predicate, key_test) in cases {
        let found = snapshot.probe(&predicate, &ProbeOptions::default()).await.unwrap();
        let buffered = found.buffered.as_ref().unwrap();
        let mut rows = 1;
        for (run, file) in runs.iter().zip(&all.files) {
            let expected: BTreeSet<u32> = &run.rows_of_pages(&key_test) & &rows_of(all, file);
            assert_eq!(rows_of(buffered, file), expected, "{predicate}");
            rows += expected.len() as u64;
        }
        // The row in memory is always there, and a run of which nothing is left is not.
        assert_eq!((found.buffered_row_count(), buffered.batches.len()), (rows, 1), "{predicate}");
        assert!(buffered.files.iter().all(|file| !file.rows.is_empty()), "{predicate}");
        let off = ProbeOptions { use_index: false, ..ProbeOptions::default() };
        assert_eq!(
            snapshot.probe(&predicate, &off).await.unwrap().buffered_row_count(),
            all.row_count(),
            "{predicate}"
        );
    }
}

/// Bounds of long texts are cut: a key that begins like the end of a page may be in the page before or behind.
#[tokio::test]
async fn pages_are_found_by_the_first_column_of_a_key_though_bounds_of_texts_are_cut() {
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
    let [file] = snapshot.buffered_rows().unwrap().files.as_slice() else { panic!("one run") };
    let run = Run::of(file);
    for row in [0, 2_047, 2_048, 4_095, 9_999] {
        let Some(LiteralKey::Key(wanted)) = encode_literal(&texts.slice(row, 1)) else { panic!("a text has a key") };
        let probe = snapshot.probe(&leaf("s", KeyRanges::point(wanted)), &ProbeOptions::default()).await.unwrap();
        let kept = rows_of(probe.buffered.as_ref().unwrap(), file);
        let kept: BTreeSet<i64> = kept.into_iter().map(|row| run.keys[row as usize]).collect();
        let of_text = row as i64 / 10 * 10;
        assert!((of_text..of_text + 10).all(|key| kept.contains(&key)), "{row}");
        assert!(kept.len() < 10_000, "{row}");
    }
}

/// Rows whose key is a text.
fn texts(rows: &[&str]) -> RecordBatch {
    let k: ArrayRef = Arc::new(StringArray::from(rows.to_vec()));
    let old = batch(&rows.iter().map(|_| (0, Some(2), None)).collect::<Vec<_>>());
    let (a, s) = (old.column(1).clone(), old.column(2).clone());
    RecordBatch::try_from_iter_with_nullable([("k", k, true), ("a", a, true), ("s", s, true)]).unwrap()
}

/// Somebody writes the files of [`folder`] anew: their keys are texts.
fn become_texts(folder: &Path) {
    for file in 0..2 {
        write(&folder.join(format!("f{file}.parquet")), &texts(&[&format!("file {file}")]));
    }
}

/// The keys of buffered rows of runs, as texts.
fn keys_of_runs(buffered: &BufferedRows) -> Vec<String> {
    let mut keys = Vec::new();
    for file in &buffered.files {
        let input = File::open(format!("/{}", file.meta.location)).unwrap();
        let batches: Vec<_> = ParquetRecordBatchReaderBuilder::try_new(input).unwrap().build().unwrap().collect();
        let of =
            |rows: Result<RecordBatch, _>| cast(rows.unwrap().column_by_name("k").unwrap(), &DataType::Utf8).unwrap();
        let all = batches
            .into_iter()
            .flat_map(|rows| of(rows).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>());
        keys.extend(all.enumerate().filter(|(row, _)| file.rows.contains(*row as u32)).map(|(_, key)| key));
    }
    keys
}

/// A merge goes by the order of keys, which runs of numbers do not have as texts: nothing is lost of them, and nothing is there twice.
#[tokio::test]
async fn law_2_runs_of_numbers_that_have_become_texts_are_not_merged() {
    let folder = folder();
    let table = open(folder.path()).await;
    let small =
        [("cache_bytes", 1 << 20), ("page_bytes", 4096)].map(|(name, bytes)| (name.to_owned(), bytes.to_string()));
    table.declare_key(&["k".to_owned()], &small.into(), BuildOptions::default()).await.unwrap();
    // Many keys are in several runs.
    for step in 2..9 {
        let rows: Vec<_> = (0..300).map(|row| (row * step, Some(1), None)).collect();
        make(&table, Operation::Upsert, batch(&rows)).await.unwrap();
        table.flush().await.unwrap();
    }
    become_texts(folder.path());
    let table = open(folder.path()).await;
    for run in 0..6 {
        make(&table, Operation::Upsert, texts(&["9", "10", &format!("run {run}")])).await.unwrap();
        table.flush().await.unwrap();
    }
    let snapshot = table.snapshot().await.unwrap();
    let runs = snapshot.buffered_rows().unwrap();
    assert_eq!(runs.files.len(), 13);
    let numbers = (2..9).flat_map(|step| (0..300).map(move |row| (row * step).to_string()));
    let others = (0..6).map(|run| format!("run {run}"));
    let expected: BTreeSet<String> = numbers.chain(others).chain(["9", "10"].map(str::to_owned)).collect();
    let found = keys_of_runs(runs);
    assert_eq!((found.len(), &found.into_iter().collect::<BTreeSet<_>>()), (expected.len(), &expected));
    for key in expected.iter().step_by(97).map(String::as_str).chain(["9", "10", "run 5"]) {
        let found = probe(&snapshot, &leaf("k", KeyRanges::point(Key::Bytes(key.as_bytes().to_vec())))).await;
        let found = keys_of_runs(found.buffered.as_ref().unwrap());
        assert_eq!(found.iter().filter(|one| *one == key).count(), 1, "{key}");
    }
}

/// 9 comes before 50 before 200 as numbers, which texts do not.
#[tokio::test]
async fn law_2_a_key_that_has_become_a_text_is_looked_for_everywhere() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let rows: Vec<_> = (9..=200).map(|k| (k, Some(1), None)).collect();
    make(&table, Operation::Upsert, batch(&rows)).await.unwrap();
    table.flush().await.unwrap();
    let narrowed = |predicate: Predicate| {
        let path = folder.path().to_owned();
        async move {
            let snapshot = open(&path).await.snapshot().await.unwrap();
            probe(&snapshot, &predicate).await.buffered_row_count()
        }
    };
    assert_eq!((narrowed(equals("k", 50)).await, narrowed(equals("k", 500)).await), (192, 0));
    become_texts(folder.path());
    assert_eq!(narrowed(leaf("k", KeyRanges::point(Key::Bytes(b"50".to_vec())))).await, 192);
}

/// Two columns exchange their names while a table is open: what shows is as before, and what is meant is not.
#[tokio::test]
async fn law_2_names_that_are_exchanged_mean_the_other_column_of_buffered_rows_too() {
    for flushed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let numbers = |numbers: [i32; 2]| -> ArrayRef { Arc::new(Int32Array::from(numbers.to_vec())) };
        let stored = [("p", numbers([1, 2])), ("q", numbers([11, 12]))];
        write(&root.join("a.parquet"), &RecordBatch::try_from_iter(stored).unwrap());
        let shown = |names: [&'static str; 2]| {
            mapping::metadata("name", &[("day", "d", "date"), ("a", names[0], "integer"), ("b", names[1], "integer")])
        };
        let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
        commit(root, 0, &[protocol, shown(["p", "q"]), mapping::add(root, "a.parquet", "d", None)]);
        let table = open(root).await;
        table.declare_key(&["a".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        let day: ArrayRef = Arc::new(Date32Array::from(vec![None, None]));
        let rows = [("day", day, true), ("a", numbers([5, 6]), true), ("b", numbers([15, 16]), true)];
        make(&table, Operation::Upsert, RecordBatch::try_from_iter_with_nullable(rows).unwrap()).await.unwrap();
        if flushed {
            table.flush().await.unwrap();
        }
        let buffered = |column: &'static str, key: i64| {
            let table = &table;
            async move {
                let found = probe(&table.snapshot().await.unwrap(), &equals(column, key)).await;
                let buffered = found.buffered.clone().unwrap();
                let of = |rows: &RecordBatch| rows.column_by_name(column).unwrap().as_primitive::<Int32Type>().clone();
                let values: Vec<i32> = buffered.batches.iter().flat_map(|rows| of(rows).values().to_vec()).collect();
                (found.buffered_row_count(), values)
            }
        };
        let in_memory = |values: [i32; 2]| if flushed { Vec::new() } else { values.to_vec() };
        let none = u64::from(!flushed) * 2;
        assert_eq!(buffered("a", 5).await, (2, in_memory([5, 6])));
        assert_eq!(buffered("a", 15).await, (none, in_memory([5, 6])));
        commit(root, 1, &[shown(["q", "p"])]);
        assert_eq!(buffered("a", 15).await, (2, in_memory([15, 16])));
        assert_eq!(buffered("b", 5).await, (2, in_memory([5, 6])));
        assert_eq!(buffered("b", 15).await, (none, in_memory([5, 6])));
    }
}
