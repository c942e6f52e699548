//! Random changes, flushes, builds, other writers and held snapshots, judged by a map in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use lakemark_table::{BuildOptions, MigrateOptions, Operation, Snapshot, Table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::reading::{Row, rows_of};
use super::{batch, keys, make};
use crate::delta::commit;
use crate::fixture::{open, write};

const KEYS: i64 = 400;

/// What is pending for a key.
#[derive(Clone, Debug)]
enum Pending {
    Row(Row),
    Gone,
    /// Columns that are set in whatever row the data files have.
    Set(Option<Option<i32>>, Option<Option<String>>),
}

/// A table as it should be.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, BTreeMap<i64, Row>>,
    pending: BTreeMap<i64, Pending>,
}

impl Model {
    fn base(&self) -> BTreeMap<i64, Row> {
        self.files.values().flat_map(|rows| rows.iter().map(|(key, row)| (*key, row.clone()))).collect()
    }

    fn rows(&self) -> BTreeMap<i64, Row> {
        let mut rows = self.base();
        for (key, pending) in &self.pending {
            match pending {
                Pending::Row(row) => drop(rows.insert(*key, row.clone())),
                Pending::Gone => drop(rows.remove(key)),
                Pending::Set(a, s) => {
                    if let Some(row) = rows.get_mut(key) {
                        if let Some(a) = a {
                            row.0 = *a;
                        }
                        if let Some(s) = s {
                            row.1.clone_from(s);
                        }
                    }
                }
            }
        }
        rows
    }

    fn update(&mut self, key: i64, a: Option<Option<i32>>, s: Option<Option<String>>) {
        match self.pending.entry(key).or_insert(Pending::Set(None, None)) {
            Pending::Gone => {}
            Pending::Row(row) => {
                row.0 = a.unwrap_or(row.0);
                row.1 = s.unwrap_or_else(|| row.1.clone());
            }
            Pending::Set(have_a, have_s) => {
                *have_a = a.or(have_a.take());
                *have_s = s.or(have_s.take());
            }
        }
    }
}

struct Trial {
    is_delta: bool,
    /// Whether something was migrated: other writers do not rewrite files then, which a folder's readers could not tell apart.
    migrated: bool,
    /// Whether a part was migrated, so that the model does not know which keys are still pending.
    sliced: bool,
    random: StdRng,
    folder: tempfile::TempDir,
    table: Arc<Table>,
    model: Model,
    held: Vec<(Arc<Snapshot>, BTreeMap<i64, Row>)>,
    next_file: usize,
    operations: u64,
}

impl Trial {
    async fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut model = Model::default();
        let is_delta = random.random_bool(0.5);
        if is_delta {
            let schema = r#"{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}},{"name":"a","type":"integer","nullable":true,"metadata":{}},{"name":"s","type":"string","nullable":true,"metadata":{}}]}"#;
            log(
                &folder,
                &[
                    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
                    json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
                    "schemaString": schema, "partitionColumns": [], "configuration": {}, "createdTime": 0}}),
                ],
            );
        }
        for file in 0..random.random_range(1..4) {
            let mut rows = BTreeMap::new();
            for key in (0..KEYS).filter(|key| key % 4 == file) {
                if random.random_bool(0.8) {
                    rows.insert(key, row(&mut random));
                }
            }
            put_file(&folder, &mut model, &format!("f{file}.parquet"), rows);
        }
        let table = open(folder.path()).await;
        // Pages are small, so that there are many runs and merges.
        let pages = random.random_range(16..200);
        let options = BTreeMap::from([
            ("page_bytes".to_owned(), "512".to_owned()),
            ("cache_bytes".to_owned(), (pages * 512u64 * 1000).to_string()),
        ]);
        let options = if random.random_bool(0.5) { options } else { small_cache(&options) };
        table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
        if random.random_bool(0.3) {
            table.drop_index("k_key", false).await.unwrap();
        }
        let (held, migrated, sliced) = (Vec::new(), false, false);
        Self { is_delta, migrated, sliced, random, folder, table, model, held, next_file: 9, operations: 0 }
    }

    fn some_keys(&mut self) -> Vec<i64> {
        let count = self.random.random_range(1..20);
        let mut keys: Vec<i64> = (0..count).map(|_| self.random.random_range(0..KEYS)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    async fn step(&mut self) {
        self.operations += 1;
        match self.random.random_range(0..100) {
            0..30 => self.upsert().await,
            30..45 => self.delete().await,
            45..65 => self.update().await,
            65..75 => self.insert().await,
            75..82 => self.table.flush().await.unwrap(),
            82..86 => self.table = open(self.folder.path()).await,
            86..89 => self.append(),
            89..91 => self.compact(),
            91..93 => self.build().await,
            93..95 => self.lose_marks(),
            95..97 => self.migrate().await,
            _ => self.hold().await,
        }
        if self.operations.is_multiple_of(3) {
            self.check().await;
        }
    }

    async fn check(&mut self) {
        let snapshot = self.table.snapshot().await.unwrap();
        assert_eq!(rows_of(&snapshot), self.model.rows(), "after {} operations", self.operations);
    }

    async fn upsert(&mut self) {
        let rows: Vec<(i64, Row)> = self.some_keys().into_iter().map(|key| (key, row(&mut self.random))).collect();
        make(&self.table, Operation::Upsert, as_batch(&rows)).await.unwrap();
        self.model.pending.extend(rows.into_iter().map(|(key, row)| (key, Pending::Row(row))));
    }

    async fn insert(&mut self) {
        let rows: Vec<(i64, Row)> = self.some_keys().into_iter().map(|key| (key, row(&mut self.random))).collect();
        let have = self.model.rows();
        let done = make(&self.table, Operation::Insert, as_batch(&rows)).await;
        if rows.iter().any(|(key, _)| have.contains_key(key)) {
            assert_eq!(done.unwrap_err().kind(), lakemark_table::ErrorKind::AlreadyExists);
        } else {
            done.unwrap();
            self.model.pending.extend(rows.into_iter().map(|(key, row)| (key, Pending::Row(row))));
        }
    }

    async fn delete(&mut self) {
        let gone = self.some_keys();
        make(&self.table, Operation::Delete, keys(&gone)).await.unwrap();
        self.model.pending.extend(gone.into_iter().map(|key| (key, Pending::Gone)));
    }

    async fn update(&mut self) {
        let rows: Vec<(i64, Row)> = self.some_keys().into_iter().map(|key| (key, row(&mut self.random))).collect();
        let (with_a, with_s) = [(true, false), (false, true), (true, true)][self.random.random_range(0..3)];
        let whole = as_batch(&rows);
        let wanted: Vec<usize> = [Some(0), with_a.then_some(1), with_s.then_some(2)].into_iter().flatten().collect();
        make(&self.table, Operation::Update, whole.project(&wanted).unwrap()).await.unwrap();
        for (key, (a, s)) in rows {
            self.model.update(key, with_a.then_some(a), with_s.then_some(s));
        }
    }

    /// Another writer adds a file; some of its keys may be pending.
    fn append(&mut self) {
        let base = self.model.base();
        let wanted = self.some_keys();
        let rows: BTreeMap<i64, Row> = wanted
            .into_iter()
            .filter(|key| !(base.contains_key(key) || self.sliced && self.model.pending.contains_key(key)))
            .map(|key| (key, row(&mut self.random)))
            .collect();
        if !rows.is_empty() {
            let name = format!("f{}.parquet", self.next_file);
            self.next_file += 1;
            put_file(&self.folder, &mut self.model, &name, rows);
        }
    }

    /// Another writer puts one file in the place of two.
    fn compact(&mut self) {
        if self.migrated {
            return;
        }
        let names: Vec<String> = self.model.files.keys().take(2).cloned().collect();
        let mut rows = BTreeMap::new();
        for name in &names {
            rows.extend(self.model.files.remove(name).unwrap());
        }
        let name = format!("f{}.parquet", self.next_file);
        self.next_file += 1;
        put_file(&self.folder, &mut self.model, &name, rows);
        if self.is_delta {
            let remove = |name: &String| json!({"remove": {"path": name, "deletionTimestamp": 1, "dataChange": false}});
            log(&self.folder, &names.iter().map(remove).collect::<Vec<_>>());
        } else {
            self.held.clear();
            names.iter().for_each(|name| std::fs::remove_file(self.folder.path().join(name)).unwrap());
        }
    }

    async fn migrate(&mut self) {
        let fraction = if self.random.random_bool(0.6) { 1.0 } else { self.random.random_range(0.05..0.9) };
        let report = self.table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await.unwrap();
        assert!(report.delta_version.is_none() || self.is_delta);
        self.migrated = true;
        self.sliced |= fraction < 1.0;
        if fraction >= 1.0 {
            let rows = self.model.rows();
            self.model.files = BTreeMap::from([("migrated".to_owned(), rows)]);
            self.model.pending.clear();
            self.sliced = false;
            let snapshot = self.table.snapshot().await.unwrap();
            assert_eq!((snapshot.pending().is_none(), snapshot.hidden_rows()), (true, 0));
        }
    }

    async fn build(&mut self) {
        if !self.table.snapshot().await.unwrap().indexes().is_empty() {
            self.table.build(BuildOptions::default()).await.unwrap();
        }
    }

    /// Segments and resolutions are marks, which may be lost at any time.
    fn lose_marks(&mut self) {
        std::fs::remove_dir_all(self.folder.path().join("_lakemark/marks")).ok();
    }

    async fn hold(&mut self) {
        for (snapshot, rows) in &self.held {
            assert_eq!(rows_of(snapshot), *rows, "held, after {} operations", self.operations);
        }
        if self.held.len() > 3 {
            self.held.remove(0);
        }
        self.held.push((self.table.snapshot().await.unwrap(), self.model.rows()));
    }
}

fn small_cache(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut options = options.clone();
    options.insert("page_bytes".to_owned(), "1024".to_owned());
    options
}

fn row(random: &mut StdRng) -> Row {
    let a = random.random_bool(0.8).then(|| random.random_range(0..1000));
    (a, random.random_bool(0.8).then(|| format!("s{}", random.random_range(0..1000))))
}

fn as_batch(rows: &[(i64, Row)]) -> arrow::array::RecordBatch {
    let rows: Vec<_> = rows.iter().map(|(key, (a, s))| (*key, *a, s.as_deref())).collect();
    batch(&rows)
}

fn put_file(folder: &tempfile::TempDir, model: &mut Model, name: &str, rows: BTreeMap<i64, Row>) {
    let all: Vec<(i64, Row)> = rows.clone().into_iter().collect();
    write(&folder.path().join(name), &as_batch(&all));
    model.files.insert(name.to_owned(), rows);
    if folder.path().join("_delta_log").is_dir() {
        let size = std::fs::metadata(folder.path().join(name)).unwrap().len();
        log(
            folder,
            &[
                json!({"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": true}}),
            ],
        );
    }
}

/// Commits to the Delta log.
fn log(folder: &tempfile::TempDir, actions: &[serde_json::Value]) {
    let log = folder.path().join("_delta_log");
    let commits = std::fs::read_dir(&log).map_or(0, |entries| {
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".json")).count()
    });
    commit(folder.path(), commits as u64, actions);
}

/// `LAKEMARK_MODEL_OPERATIONS` and `LAKEMARK_MODEL_SEED` make more of them.
#[tokio::test]
async fn random_changes_agree_with_a_map() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let wanted = number("LAKEMARK_MODEL_OPERATIONS", 900);
    let (mut seed, mut done) = (number("LAKEMARK_MODEL_SEED", 7), 0);
    while done < wanted {
        let mut trial = Trial::new(seed).await;
        for _ in 0..150 {
            trial.step().await;
        }
        trial.check().await;
        done += trial.operations;
        seed += 1;
    }
}
