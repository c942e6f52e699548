//! Drawn tables and changes, against what rows in memory become.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use super::{RewriteFixture, open, pairs, positions, rows, with_column, write};
use crate::rewrite::folder::write as write_files;

/// Key and value.
type Row = (i32, String);

/// A data file: its partition, and its rows.
struct Drawn {
    partition: &'static str,
    rows: Vec<Row>,
}

const PARTITIONS: [&str; 3] = ["a", "b", "c"];

fn draw_files(random: &mut StdRng) -> Vec<Drawn> {
    let mut keys: Vec<i32> = (0..60).collect();
    keys.shuffle(random);
    let mut files = Vec::new();
    for number in 0..random.random_range(1..6) {
        let count = random.random_range(1..12);
        let keys = keys.split_off(keys.len() - count);
        let rows = keys.into_iter().map(|k| (k, format!("{number}")));
        files.push(Drawn { partition: PARTITIONS[number % 2], rows: rows.collect() });
    }
    files
}

#[expect(clippy::too_many_lines, reason = "one step after the other")]
async fn check(seed: u64) {
    let random = &mut StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let files = draw_files(random);
    for (number, file) in files.iter().enumerate() {
        let values: Vec<_> = file.rows.iter().map(|(k, s)| (*k, s.as_str())).collect();
        write(&folder.path().join(format!("p={}/{number}.parquet", file.partition)), &rows(&values));
    }
    // Some keys are deleted, some get a new row, maybe in another partition, and some are new.
    let mut new: BTreeMap<i32, (&str, String)> = BTreeMap::new();
    let mut gone: BTreeSet<i32> = BTreeSet::new();
    for k in 0..60 {
        match random.random_range(0..6) {
            0 => drop(gone.insert(k)),
            1 | 2 => {
                let partition = PARTITIONS[random.random_range(0..PARTITIONS.len())];
                new.insert(k, (partition, format!("new{k}")));
            }
            _ => {}
        }
    }
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    let file_of = |path: &str| -> usize { path[4..].trim_end_matches(".parquet").parse().unwrap() };
    let (mut deleted, mut want_files) = (Vec::new(), Vec::new());
    let mut left = new.clone();
    for file in snapshot.files() {
        let drawn = &files[file_of(&file.path)];
        let is_deleted = |k: &i32| gone.contains(k) || new.contains_key(k);
        let hidden: Vec<u32> = (0..).zip(&drawn.rows).filter(|(_, (k, _))| is_deleted(k)).map(|(row, _)| row).collect();
        deleted.push(
            positions(&hidden, drawn.rows.len() as u32).filter(|_| random.random_bool(0.9) || !hidden.is_empty()),
        );
        if hidden.is_empty() {
            continue;
        }
        let mut rows = Vec::new();
        for (k, s) in &drawn.rows {
            match left.get(k) {
                Some((partition, s)) if *partition == drawn.partition => {
                    rows.push((*k, s.clone()));
                    left.remove(k);
                }
                _ if is_deleted(k) => {}
                _ => rows.push((*k, s.clone())),
            }
        }
        if !rows.is_empty() {
            want_files.push((drawn.partition.to_owned(), rows));
        }
    }
    let mut want_left: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for (k, (partition, s)) in left {
        want_left.entry(partition.to_owned()).or_default().push((k, s));
    }

    let mut shuffled: Vec<_> = new.iter().collect();
    shuffled.shuffle(random);
    let batches = shuffled.chunks(random.random_range(1..20)).map(|chunk| {
        let values: Vec<_> = chunk.iter().map(|(k, (_, s))| (**k, s.as_str())).collect();
        let partitions: Vec<_> = chunk.iter().map(|(_, (partition, _))| Some(*partition)).collect();
        with_column(&rows(&values), "p", &partitions)
    });
    let buffered = RewriteFixture::new(deleted, batches.collect());
    let store = table.base().store.as_ref().unwrap();
    let rewritten = write_files(store, &snapshot, &buffered.input(), Uuid::from_u128(1)).await.unwrap();
    let root = Path::new(table.store_location().unwrap());
    let partition = |path: &str| path.split('/').nth(2).unwrap().trim_start_matches("p=").to_owned();
    let made = rewritten.files.iter().map(|file| (file.replaces, partition(&file.path), pairs(&root.join(&file.path))));
    let (again, added): (Vec<_>, Vec<_>) = made.partition(|(replaces, ..)| replaces.is_some());
    let again: Vec<_> = again.into_iter().map(|(_, partition, rows)| (partition, rows)).collect();
    assert_eq!(again, want_files, "seed {seed}");
    let added: BTreeMap<_, _> = added.into_iter().map(|(_, partition, rows)| (partition, rows)).collect();
    assert_eq!(added, want_left, "seed {seed}");
}

#[tokio::test]
async fn drawn_changes_become_the_rows_that_they_should() {
    for seed in 0..60 {
        check(seed).await;
    }
}
