//! A table that stays open looks after a change at what changed alone, and sees what one sees that is opened just then.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use lakemark_index::Predicate;
use lakemark_table::{BuildOptions, Snapshot, Table};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::fixture::{batch, equals, is_null, open, probe, spec, spec_with, write};

const FILES: usize = 40;
const STEPS: usize = 40;
/// After so long no file counts as one that somebody may still be writing.
const SETTLED: Duration = Duration::from_millis(20);

/// A value of a partition column, by its number.
type Partitions = fn(u32) -> String;

/// A folder that is changed at random.
struct Changing {
    root: PathBuf,
    /// The values of the partition column `p`, by number; none where files are in no folders.
    partitions: Option<Partitions>,
    random: StdRng,
    written: usize,
}

impl Changing {
    fn new(root: &Path, partitions: Option<Partitions>, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let mut folder = Self { root: root.to_owned(), partitions, random, written: 0 };
        (0..FILES).for_each(|_| folder.add());
        folder
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.file_name().unwrap().to_str().unwrap().starts_with("p=") {
                files.extend(fs::read_dir(entry).unwrap().map(|entry| entry.unwrap().path()));
            } else if entry.is_file() {
                files.push(entry);
            }
        }
        files.sort();
        files
    }

    /// Adds a file, anywhere among the others.
    fn add(&mut self) {
        let number = self.random.random_range(0..1000);
        let name = format!("f{number:03}-{}.parquet", self.written);
        // Seldom a value that makes a column of integers or dates one of text.
        let part = match (self.random.random_range(0..60), self.partitions) {
            (0, _) => "text".to_owned(),
            (1, _) | (_, None) => "__HIVE_DEFAULT_PARTITION__".to_owned(),
            (part, Some(of)) => of(part % 4),
        };
        let has_partitions = self.partitions.is_some();
        let folder = if has_partitions { self.root.join(format!("p={part}")) } else { self.root.clone() };
        self.written += 1;
        write(&folder.join(name), &self.rows());
    }

    fn rows(&mut self) -> RecordBatch {
        let (first, rows) = (self.random.random_range(0..500), self.random.random_range(1..250));
        let rows = batch(first, rows);
        if self.random.random_range(0..12) > 0 {
            return rows;
        }
        // A column that the others lack.
        let more: ArrayRef = Arc::new(Int32Array::from(vec![7; rows.num_rows()]));
        let named = |place: usize| Arc::clone(rows.column(place));
        RecordBatch::try_from_iter([("k", named(0)), ("s", named(1)), ("more", more)]).unwrap()
    }

    async fn change(&mut self, table: &Table) {
        let files = self.files();
        let file = files.choose(&mut self.random).unwrap();
        match self.random.random_range(0..12) {
            0..3 => self.add(),
            3 | 4 => fs::remove_file(file).unwrap(),
            5 => {
                let rows = self.rows();
                write(file, &rows);
            }
            6 | 7 => fs::write(file, fs::read(file).unwrap()).unwrap(),
            8 => {
                table.create_index(spec_with("k", "files_per_segment", "8"), true).await.unwrap();
            }
            9 => {
                table.create_index(spec("s"), true).await.unwrap();
            }
            10 => {
                for index in table.snapshot().await.unwrap().indexes().iter().take(1) {
                    table.drop_index(&index.name, false).await.unwrap();
                }
            }
            _ => {}
        }
        let has_indexes = table.snapshot().await.unwrap().has_indexes();
        match self.random.random_range(0..8) {
            0..3 if has_indexes => drop(table.build(BuildOptions::default()).await.unwrap()),
            3 if has_indexes => drop(table.compact(BuildOptions::default()).await.unwrap()),
            _ => {}
        }
    }
}

/// All that a snapshot says of its files.
async fn seen(snapshot: &Snapshot) -> Vec<String> {
    let mut seen: Vec<String> = snapshot.files().iter().map(|file| format!("{file:?}")).collect();
    seen.push(format!("{:?} {:?}", snapshot.partition_columns(), snapshot.rows()));
    seen.push(format!("{:?} {:?}", snapshot.indexes(), snapshot.index_coverage()));
    let conditions = [equals("k", 3), equals("k", 77), is_null("k")];
    let all = [Predicate::And(conditions.to_vec()), Predicate::Or(conditions.to_vec())];
    for predicate in conditions.into_iter().chain(all) {
        let mut found = probe(snapshot, &predicate).await;
        (found.report.seconds, found.report.index_reads, found.report.index_bytes_read) = (0.0, 0, 0);
        seen.push(format!("{:?} {:?}", found.files, found.report));
    }
    seen
}

async fn check(partitions: Option<Partitions>, seed: u64) {
    let root = tempfile::tempdir().unwrap();
    let mut folder = Changing::new(root.path(), partitions, seed);
    let table = open(root.path()).await;
    let mut kept: Option<(Arc<Snapshot>, Vec<String>)> = None;
    for step in 0..STEPS {
        folder.change(&table).await;
        // One look before the files are old enough to be remembered, and one after.
        let young = table.snapshot().await.unwrap();
        tokio::time::sleep(SETTLED).await;
        let (settled, afresh) = (table.snapshot().await.unwrap(), open(root.path()).await.snapshot().await.unwrap());
        let expected = seen(&afresh).await;
        for snapshot in [young, Arc::clone(&settled)] {
            assert_eq!(
                (snapshot.schema(), snapshot.file_schema()),
                (afresh.schema(), afresh.file_schema()),
                "seed {seed}, step {step}"
            );
            assert_eq!(seen(&snapshot).await, expected, "seed {seed}, step {step}");
        }
        // A snapshot never changes, whatever later ones share with it.
        if let Some((snapshot, then)) = kept.replace((settled, expected)) {
            let files: Vec<String> = snapshot.files().iter().map(|file| format!("{file:?}")).collect();
            assert_eq!(files[..], then[..files.len()], "seed {seed}, step {step}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_after_a_change_is_what_a_table_that_is_opened_anew_sees() {
    for seed in 0..3 {
        check(None, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_where_folders_are_partitions() {
    for seed in 10..13 {
        check(Some(|part| part.to_string()), seed).await;
    }
    for seed in 20..22 {
        check(Some(|part| format!("2024-02-{:02}", part + 26)), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_column_has_the_type_of_the_values_that_are_left() {
    const NONE: &str = "__HIVE_DEFAULT_PARTITION__";
    let texts = ["2024-01-01", "7", "x", "y", NONE];
    // Folders, and how many of their files go.
    let steps: [&[(&str, usize)]; 4] = [&[("x", 2)], &[("x", 1), ("y", 3)], &[("7", 2), (NONE, 1)], &[("7", 1)]];
    let types = ["Utf8", "Utf8", "Utf8", "Date32"];
    let root = tempfile::tempdir().unwrap();
    for part in texts {
        (0..3).for_each(|file| write(&root.path().join(format!("p={part}/{file}.parquet")), &batch(file * 10, 10)));
    }
    let table = open(root.path()).await;
    table.snapshot().await.unwrap();
    for (step, expected) in steps.into_iter().zip(types) {
        for (part, files) in step {
            let folder = root.path().join(format!("p={part}"));
            let mut there: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            there.sort();
            there.iter().take(*files).for_each(|file| fs::remove_file(file).unwrap());
        }
        let (now, afresh) = (table.snapshot().await.unwrap(), open(root.path()).await.snapshot().await.unwrap());
        assert_eq!(now.schema(), afresh.schema(), "{step:?}");
        assert_eq!(seen(&now).await, seen(&afresh).await, "{step:?}");
        assert_eq!(now.partition_columns()[0].data_type().to_string(), expected, "{step:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_share_what_did_not_change() {
    let root = tempfile::tempdir().unwrap();
    let model = root.path().join("f0000.parquet");
    write(&model, &batch(0, 10));
    for file in 1..1000 {
        fs::copy(&model, root.path().join(format!("f{file:04}.parquet"))).unwrap();
    }
    let table = open(root.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    let before = table.snapshot().await.unwrap();
    let shared = |now: &Snapshot| {
        let pairs = before.files().iter().zip(now.files());
        pairs.filter(|(before, now)| std::ptr::eq(*before, *now)).count()
    };
    // A commit that says nothing new of any file.
    table.create_index(spec("s"), false).await.unwrap();
    assert_eq!(shared(&table.snapshot().await.unwrap()), 1000);
    // A file more, at the end: its part alone is another one.
    fs::copy(&model, root.path().join("g.parquet")).unwrap();
    let more = table.snapshot().await.unwrap();
    assert_eq!(more.files().len(), 1001);
    assert!(shared(&more) >= 700, "{}", shared(&more));
}
