//! Snapshots of folders whose migrations are not published, compared with those of a table that is opened just then.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::{assert_same, open};
use crate::snapshot::{Snapshot, newest_manifest};
use crate::{BuildOptions, Change, IndexSpec, MigrateOptions, Operation, Table, WriteOptions};

const FILES: i64 = 24;
const ROWS: i64 = 20;
const STEPS: usize = 24;
/// After so long no file counts as one that somebody may still be writing.
const SETTLED: Duration = Duration::from_millis(20);

fn rows(keys: impl Iterator<Item = i64>, text: &str) -> RecordBatch {
    let keys: Int64Array = keys.collect();
    let texts: StringArray = (0..keys.len()).map(|_| Some(text)).collect();
    RecordBatch::try_from_iter([("k", Arc::new(keys) as ArrayRef), ("s", Arc::new(texts) as ArrayRef)]).unwrap()
}

/// A folder that takes updates and is changed at random.
struct Changing {
    root: PathBuf,
    random: StdRng,
    is_partitioned: bool,
    /// Files that were written so far. Each has keys of its own.
    written: i64,
}

impl Changing {
    fn add(&mut self) {
        let first = self.written * 100;
        let name = format!("f{:03}-{}.parquet", self.random.random_range(0..1000), self.written);
        let part = self.part(self.written);
        let folder = part.map_or_else(|| self.root.clone(), |part| self.root.join(format!("p={part}")));
        fs::create_dir_all(&folder).unwrap();
        let batch = rows(first..first + ROWS, "base");
        let mut writer = ArrowWriter::try_new(File::create(folder.join(name)).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        self.written += 1;
    }

    /// The partition of the rows of a file.
    fn part(&self, file: i64) -> Option<i64> {
        self.is_partitioned.then_some(file % 3)
    }

    /// Data files of the folder that no migration replaced.
    fn unmoved(&self, replaced: &HashSet<String>) -> Vec<PathBuf> {
        let mut folders = vec![self.root.clone()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let name = path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() && name.starts_with("p=") {
                    folders.push(path);
                } else if path.is_file() && !replaced.contains(&name) {
                    files.push(path);
                }
            }
        }
        files.sort();
        files
    }

    /// Changes some keys of some files, and makes a few.
    async fn upsert(&mut self, table: &Arc<Table>) {
        let file = self.random.random_range(0..self.written);
        let first = file * 100 + self.random.random_range(0..ROWS + 5);
        let mut batch = rows(first..first + 3, "new");
        if let Some(part) = self.part(file) {
            let part: ArrayRef = Arc::new(Int64Array::from(vec![part; batch.num_rows()]));
            let columns = [("k", Arc::clone(batch.column(0))), ("s", Arc::clone(batch.column(1))), ("p", part)];
            batch = RecordBatch::try_from_iter(columns).unwrap();
        }
        let change = Change { operation: Operation::Upsert, rows: batch };
        table.write(vec![change], WriteOptions::default()).await.unwrap();
    }

    async fn change(&mut self, table: &Arc<Table>) {
        let manifest = newest_manifest(table.base()).await.unwrap().unwrap();
        let replaced = manifest.updates().unwrap().replaced.iter().map(|file| file.path.clone()).collect();
        let unmoved = self.unmoved(&replaced);
        let file = unmoved.choose(&mut self.random);
        match (self.random.random_range(0..12), file) {
            (0..5, _) => {
                for _ in 0..self.random.random_range(1..3) {
                    self.upsert(table).await;
                }
                table.migrate(MigrateOptions::default()).await.unwrap();
            }
            (5, _) => drop(table.publish().await.unwrap()),
            (6, Some(file)) => fs::remove_file(file).unwrap(),
            (7, Some(file)) => fs::write(file, fs::read(file).unwrap()).unwrap(),
            (8, _) => drop(table.build(BuildOptions::default()).await.unwrap()),
            (9, _) => {
                let spec = IndexSpec { columns: vec!["s".into()], ..IndexSpec::default() };
                table.create_index(spec, true).await.unwrap();
            }
            _ => (0..self.random.random_range(1..3)).for_each(|_| self.add()),
        }
    }
}

/// Whether a snapshot has decoded schemas of the other one. What is matched as a whole decodes all of them.
fn is_made_from(now: &Snapshot, before: &Snapshot) -> bool {
    let known = |snapshot: &Snapshot| -> Vec<_> {
        let known = snapshot.index_states.iter().filter(|state| state.number.is_some() && !state.unverified);
        known.filter_map(|state| state.schema.clone()).collect()
    };
    let before = known(before);
    known(now).iter().any(|schema| before.iter().any(|had| Arc::ptr_eq(had, schema)))
}

/// Says how many snapshots with files of the store were made from the one before.
async fn check(root: &Path, is_partitioned: bool, seed: u64) -> usize {
    let random = StdRng::seed_from_u64(seed);
    let mut changing = Changing { root: root.to_owned(), random, is_partitioned, written: 0 };
    (0..FILES).for_each(|_| changing.add());
    let table = open(root).await;
    table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    let mut before = Snapshot::pin_base(table.base()).await.unwrap();
    let mut advances = 0;
    for step in 0..STEPS {
        let at = format!("seed {seed}, step {step}");
        changing.change(&table).await;
        // One look before the files are old enough to be remembered, and one after.
        let young = Snapshot::pin_base(table.base()).await.unwrap();
        tokio::time::sleep(SETTLED).await;
        let settled = Snapshot::pin_base(table.base()).await.unwrap();
        let afresh = Snapshot::pin_base(open(root).await.base()).await.unwrap();
        assert_same(&young, &afresh, &at);
        assert_same(&settled, &afresh, &at);
        let has_moved = settled.files.iter().any(|file| file.path.starts_with('_'));
        advances += usize::from(has_moved && is_made_from(&young, &before));
        before = settled;
    }
    advances
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_migrated_folder_is_what_a_table_that_is_opened_anew_sees() {
    for (seed, is_partitioned) in [(0, false), (1, false), (2, true), (3, true)] {
        let root = tempfile::tempdir().unwrap();
        let advances = check(root.path(), is_partitioned, seed).await;
        assert!(advances >= STEPS / 5, "seed {seed}: {advances}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_file_of_the_store_that_is_not_what_was_written_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let random = StdRng::seed_from_u64(7);
    let mut changing = Changing { root: root.path().to_owned(), random, is_partitioned: false, written: 0 };
    (0..4).for_each(|_| changing.add());
    let table = open(root.path()).await;
    table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    changing.upsert(&table).await;
    table.migrate(MigrateOptions::default()).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    let snapshot = Snapshot::pin_base(table.base()).await.unwrap();
    assert!(Snapshot::pin_base(table.base()).await.unwrap().files.is_same_list(&snapshot.files));
    let moved = snapshot.files.iter().find(|file| file.path.starts_with('_')).unwrap();
    let path = root.path().join(&moved.path);
    // The same bytes at another time: whether it is the same data is to be found out.
    fs::write(&path, fs::read(&path).unwrap()).unwrap();
    let again = Snapshot::pin_base(table.base()).await.unwrap();
    let place = again.place_of(&moved.path).unwrap();
    assert!(again.index_states.get(place).unwrap().unverified && again.files.get(place).unwrap().meta != moved.meta);
    fs::write(&path, "less").unwrap();
    let error = Snapshot::pin_base(table.base()).await.unwrap_err();
    assert!(error.to_string().contains("is not what was written"), "{error}");
}
