//! Random changes, flushes, builds, migrations, vacuums, other writers and held snapshots, judged by a map in memory.
//!
//! All rows are compared after one to five operations, and after whatever moves or loses something; so that a key which went wrong
//! is seen unless another change hits it first. Files are read again for that if they changed, and now and then in any case.

mod expected;
mod others;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use lakemark_table::{
    BuildOptions, Change, ErrorKind, MigrateOptions, Operation, Snapshot, Table, VacuumOptions, WriteOptions, Written,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::expected::{Call, Expected};
use self::others::{Others, Rewrite};
use super::reading::{Reader, Row};
use super::{batch, keys};
use crate::fixture::open;

/// Operations of a trial.
const STEPS: u64 = 250;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A snapshot that somebody goes on reading.
struct Held {
    since: SystemTime,
    snapshot: Arc<Snapshot>,
    rows: BTreeMap<i64, Row>,
}

struct Trial {
    seed: u64,
    keys: i64,
    /// Whether something was migrated: then nobody may rewrite the files of a folder, whose readers could not tell them apart.
    migrated: bool,
    /// Whether a part was migrated, so that the model does not know which keys are still pending: others leave them alone.
    sliced: bool,
    random: StdRng,
    folder: tempfile::TempDir,
    table: Arc<Table>,
    expected: Expected,
    /// The call that changed a key last.
    changed: BTreeMap<i64, u64>,
    sequence: u64,
    others: Others,
    held: Vec<Held>,
    reader: Reader,
    operations: u64,
    next_check: u64,
    done: BTreeMap<&'static str, u64>,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the model test fails with LAKEMARK_MODEL_SEED={} at operation {}", self.seed, self.operations);
        }
    }
}

impl Trial {
    async fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut expected = Expected::default();
        let mut others = Others::new(folder.path(), random.random_bool(0.4), random.random_bool(0.5));
        let keys = *[30, 150, 400].get(random.random_range(0..3)).unwrap();
        for file in 0..random.random_range(1..4) {
            let mut rows = BTreeMap::new();
            for key in (0..keys).filter(|key| key % 4 == file) {
                if random.random_bool(0.8) {
                    rows.insert(key, row(&mut random));
                }
            }
            expected.base.extend(rows.clone());
            others.append(&rows);
        }
        let table = open(folder.path()).await;
        let options = parameters(&mut random);
        let key = if random.random_bool(0.4) { vec!["g".to_owned(), "k".to_owned()] } else { vec!["k".to_owned()] };
        table.declare_key(&key, &options, one_thread()).await.unwrap();
        if random.random_bool(0.3) {
            table.drop_index(&format!("{}_key", key.join("_")), false).await.unwrap();
        }
        Self {
            seed,
            keys,
            migrated: false,
            sliced: false,
            random,
            folder,
            table,
            expected,
            changed: BTreeMap::new(),
            sequence: 0,
            others,
            held: Vec::new(),
            reader: Reader::default(),
            operations: 0,
            next_check: 0,
            done: BTreeMap::new(),
        }
    }

    async fn step(&mut self) {
        self.operations += 1;
        let what = match self.random.random_range(0..1000) {
            0..290 => self.call(Operation::Upsert).await,
            290..430 => self.call(Operation::Delete).await,
            430..620 => self.call(Operation::Update).await,
            620..720 => self.call(Operation::Insert).await,
            720..745 => self.several().await,
            745..760 => self.staged().await,
            760..820 => self.flush().await,
            820..850 => self.reopen().await,
            850..880 => self.append(),
            880..915 => self.rewrite(),
            915..925 => self.build().await,
            925..945 => self.lose_marks(),
            945..965 => self.migrate().await,
            965..980 => self.vacuum().await,
            _ => self.hold().await,
        };
        *self.done.entry(what).or_default() += 1;
        if self.operations.is_multiple_of(50) {
            self.reader = Reader::default();
        }
        let is_call = ["insert", "upsert", "update", "delete", "several changes", "staged"].contains(&what);
        if !is_call || self.operations >= self.next_check {
            self.check().await;
            self.next_check = self.operations + self.random.random_range(1..6);
        }
    }

    async fn check(&mut self) {
        let snapshot = self.table.snapshot().await.unwrap();
        assert_eq!(self.reader.rows_of(&snapshot), self.expected.rows(), "after {} operations", self.operations);
        assert_eq!(snapshot.sequence(), Some(self.sequence));
    }

    fn some_keys(&mut self) -> Vec<i64> {
        let count = self.random.random_range(1..20);
        let mut keys: Vec<i64> = (0..count).map(|_| self.random.random_range(0..self.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn draw(&mut self, operation: Operation) -> Call {
        let rows = self.some_keys().into_iter().map(|key| (key, row(&mut self.random))).collect();
        let named = [(true, false), (false, true), (true, true)][self.random.random_range(0..3)];
        Call { operation, rows, named }
    }

    /// One change, sometimes by somebody who has seen the table as it was a while ago.
    async fn call(&mut self, operation: Operation) -> &'static str {
        let call = self.draw(operation);
        let read_at =
            self.random.random_bool(0.1).then(|| self.sequence.saturating_sub(self.random.random_range(0..9)));
        self.make(&[call], read_at, false).await;
        operation.name()
    }

    /// Several changes in one call, made as a whole or not at all.
    async fn several(&mut self) -> &'static str {
        let operations = [Operation::Delete, Operation::Insert, Operation::Update, Operation::Upsert];
        let count = self.random.random_range(2..5);
        let drawn: Vec<Operation> = (0..count).map(|_| operations[self.random.random_range(0..4)]).collect();
        let calls: Vec<Call> = drawn.into_iter().map(|operation| self.draw(operation)).collect();
        self.make(&calls, None, false).await;
        "several changes"
    }

    /// Rows that tasks have staged, in some cases more of them than the buffer takes.
    async fn staged(&mut self) -> &'static str {
        let mut calls = Vec::new();
        for operation in [Operation::Delete, Operation::Update, Operation::Upsert, Operation::Insert] {
            if self.random.random_bool(0.7) {
                let mut call = self.draw(operation);
                if operation != Operation::Insert && self.random.random_bool(0.7) {
                    call.rows = (0..self.keys).map(|key| (key, row(&mut self.random))).collect();
                }
                calls.push(call);
            }
        }
        if !calls.is_empty() {
            self.make(&calls, None, true).await;
        }
        "staged"
    }

    async fn make(&mut self, calls: &[Call], read_at: Option<u64>, is_staged: bool) {
        let mut after = self.expected.clone();
        let is_free = after.make(calls);
        let touched: Vec<i64> = calls.iter().flat_map(|call| call.rows.iter().map(|(key, _)| *key)).collect();
        let newest = touched.iter().filter_map(|key| self.changed.get(key)).max().copied().unwrap_or(0);
        let is_current = read_at.is_none_or(|read_at| newest <= read_at);
        let written = match is_staged {
            true => self.write_staged(calls).await,
            false => self.write(calls, read_at).await,
        };
        match written {
            Ok(written) => {
                assert!(is_free && is_current, "made, though free {is_free}, current {is_current}: {calls:?}");
                assert_eq!((written.sequence, written.rows), (self.sequence + 1, touched.len() as u64));
                self.sequence = written.sequence;
                // An update of a row that is not there changes nothing, so that nobody need be told of it.
                let (before, now) = (self.expected.rows(), after.rows());
                let changed = touched.into_iter().filter(|key| before.contains_key(key) || now.contains_key(key));
                self.changed.extend(changed.map(|key| (key, written.sequence)));
                self.expected = after;
            }
            Err(ErrorKind::AlreadyExists) => assert!(!is_free, "{calls:?}"),
            // What was migrated meanwhile is a conflict too, whichever key it is about.
            Err(ErrorKind::Conflict) => assert!(read_at.is_some_and(|read_at| read_at < self.sequence), "{calls:?}"),
            Err(ErrorKind::CacheFull) => self.make_room().await,
            Err(other) => panic!("{other:?}: {calls:?}"),
        }
    }

    async fn write(&self, calls: &[Call], read_at: Option<u64>) -> Result<Written, ErrorKind> {
        let changes = calls.iter().map(|call| Change { operation: call.operation, rows: given(call) }).collect();
        let written = self.table.write(changes, WriteOptions { read_at, ..WriteOptions::default() }).await;
        written.map_err(|error| error.kind())
    }

    /// Each operation's rows in up to three files, whose keys lie between each other's.
    async fn write_staged(&mut self, calls: &[Call]) -> Result<Written, ErrorKind> {
        let mut staged = Vec::new();
        for call in calls {
            let files = self.random.random_range(1..4);
            for file in 0..files {
                let rows =
                    call.rows.iter().enumerate().filter(|(at, _)| at % files == file).map(|(_, row)| row.clone());
                let mut staging = self.table.stage(call.operation).await.unwrap();
                staging.write(given(&Call { rows: rows.collect(), ..call.clone() })).await.unwrap();
                staged.extend(staging.finish().await.unwrap());
            }
        }
        let written = self.table.write_staged(&staged, WriteOptions::default()).await;
        if written.is_err() {
            self.table.discard_staged(&staged).await.unwrap();
        }
        written.map_err(|error| error.kind())
    }

    /// Nothing was made; pending rows go into the data files.
    async fn make_room(&mut self) {
        self.check().await;
        *self.done.entry("cache full").or_default() += 1;
        self.migrate_part(1.0).await;
    }

    async fn flush(&mut self) -> &'static str {
        match self.table.flush().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::CacheFull => self.make_room().await,
            Err(error) => panic!("{error}"),
        }
        "flush"
    }

    async fn reopen(&mut self) -> &'static str {
        self.table = open(self.folder.path()).await;
        "reopen"
    }

    /// Another writer adds a file; some of its keys may be pending.
    fn append(&mut self) -> &'static str {
        let wanted = self.some_keys();
        let is_free = |key: &i64| !self.expected.base.contains_key(key) && self.is_known(*key);
        let free: Vec<i64> = wanted.into_iter().filter(is_free).collect();
        let rows: BTreeMap<i64, Row> = free.into_iter().map(|key| (key, row(&mut self.random))).collect();
        if !rows.is_empty() {
            self.expected.base.extend(rows.clone());
            self.others.append(&rows);
        }
        "append by others"
    }

    /// Whether it is known whether the key is pending.
    fn is_known(&self, key: i64) -> bool {
        !(self.sliced && self.expected.is_pending(key))
    }

    /// Another writer compacts, changes or deletes what is in the data files.
    fn rewrite(&mut self) -> &'static str {
        if !self.others.is_delta {
            if self.migrated {
                return "nothing";
            }
            self.held.clear();
        }
        let mut base = std::mem::take(&mut self.expected.base);
        let (sliced, expected) = (self.sliced, &self.expected);
        let may = |key: i64| !(sliced && expected.is_pending(key));
        let what = match self.random.random_range(0..4) {
            0 if self.others.with_vectors => {
                self.others.delete_rows(&mut self.random, &mut base, &may);
                "deletion vector by others"
            }
            1 => {
                self.others.rewrite(&mut self.random, &mut base, &may, Rewrite::Change);
                "rewrite by others"
            }
            2 if base.len() as i64 > self.keys / 2 => {
                self.others.rewrite(&mut self.random, &mut base, &may, Rewrite::Remove);
                "remove by others"
            }
            _ => {
                self.others.rewrite(&mut self.random, &mut base, &may, Rewrite::Compact);
                "compaction by others"
            }
        };
        self.expected.base = base;
        what
    }

    async fn migrate(&mut self) -> &'static str {
        let is_whole = self.random.random_bool(0.6);
        let fraction = if is_whole { 1.0 } else { self.random.random_range(0.05..0.9) };
        self.migrate_part(fraction).await;
        if is_whole { "migrate" } else { "migrate a slice" }
    }

    async fn migrate_part(&mut self, fraction: f64) {
        let report = match self.table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await {
            Ok(report) => report,
            Err(error) => panic!("{error}"),
        };
        assert!(report.delta_version.is_none() || self.others.is_delta);
        self.migrated = true;
        self.sliced |= fraction < 1.0;
        if fraction >= 1.0 {
            self.expected.migrated();
            self.sliced = false;
            let snapshot = self.table.snapshot().await.unwrap();
            assert!(snapshot.pending().is_none());
        }
    }

    async fn build(&mut self) -> &'static str {
        if !self.table.snapshot().await.unwrap().indexes().is_empty() {
            self.table.build(one_thread()).await.unwrap();
        }
        "build"
    }

    /// Segments and resolutions are marks, which may be lost or damaged at any time.
    fn lose_marks(&mut self) -> &'static str {
        let folder = self.folder.path().join("_lakemark/marks");
        if self.random.random_bool(0.3) {
            fs::remove_dir_all(folder).ok();
            return "all marks lost";
        }
        for file in files_below(&folder) {
            match self.random.random_range(0..4) {
                0 => fs::remove_file(file).unwrap(),
                1 => fs::write(file, b"no mark at all").unwrap(),
                _ => {}
            }
        }
        "marks lost or damaged"
    }

    /// A vacuum a week later, as if whatever is held now had been taken just before.
    async fn vacuum(&mut self) -> &'static str {
        if self.random.random_bool(0.5) {
            self.held.clear();
        }
        let oldest = self.held.iter().map(|held| held.since).min().unwrap_or_else(SystemTime::now);
        for folder in ["manifest", "marks", "updates", "data"] {
            for path in files_below(&self.folder.path().join("_lakemark").join(folder)) {
                let file = File::options().write(true).open(path).unwrap();
                let modified = file.metadata().unwrap().modified().unwrap();
                if modified < oldest && folder != "data" {
                    file.set_modified(modified - 8 * DAY).unwrap();
                }
            }
        }
        self.table.vacuum(VacuumOptions::default()).await.unwrap();
        self.check_held();
        "vacuum"
    }

    async fn hold(&mut self) -> &'static str {
        self.check_held();
        if self.held.len() > 3 {
            self.held.remove(0);
        }
        // The clock of files is coarser.
        let since = SystemTime::now() - Duration::from_millis(50);
        let snapshot = self.table.snapshot().await.unwrap();
        self.held.push(Held { since, snapshot, rows: self.expected.rows() });
        "hold"
    }

    fn check_held(&mut self) {
        for held in &self.held {
            assert_eq!(
                Reader::default().rows_of(&held.snapshot),
                held.rows,
                "held, after {} operations",
                self.operations
            );
        }
    }
}

/// Mostly small, so that there are many runs and merges; sometimes so small that the cache is full again and again.
fn parameters(random: &mut StdRng) -> BTreeMap<String, String> {
    let page: u64 = *[512, 1024, 4096].get(random.random_range(0..3)).unwrap();
    let pages = match random.random_range(0..4) {
        0 => random.random_range(16..200),
        1 => random.random_range(200..2000),
        _ => random.random_range(2_000..40_000),
    };
    let least = 2.0 / (pages as f64).sqrt().powf(2.0 / 3.0);
    let alpha = if random.random_bool(0.5) { 1.0 } else { random.random_range(least.min(1.9)..2.0) };
    let options =
        [("page_bytes", page.to_string()), ("cache_bytes", (pages * page).to_string()), ("alpha", alpha.to_string())];
    options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn one_thread() -> BuildOptions {
    BuildOptions { threads: Some(1), ..BuildOptions::default() }
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn row(random: &mut StdRng) -> Row {
    let a = random.random_bool(0.8).then(|| random.random_range(0..1000));
    (a, random.random_bool(0.8).then(|| format!("s{}", random.random_range(0..1000))))
}

fn as_batch(rows: &[(i64, Row)]) -> RecordBatch {
    let rows: Vec<_> = rows.iter().map(|(key, (a, s))| (*key, *a, s.as_deref())).collect();
    grouped(&batch(&rows))
}

/// The rows with the group of each key, which is part of the key in some trials.
fn grouped(rows: &RecordBatch) -> RecordBatch {
    let keys = rows.column_by_name("k").unwrap().as_primitive::<Int64Type>();
    let groups: StringArray = keys.values().iter().map(|key| Some(format!("g{}", key % 3))).collect();
    let own = rows.schema_ref().fields().iter().zip(rows.columns());
    let own = own.map(|(field, values)| (field.name().clone(), Arc::clone(values), field.is_nullable()));
    RecordBatch::try_from_iter_with_nullable(own.chain([("g".to_owned(), Arc::new(groups) as ArrayRef, true)])).unwrap()
}

/// The rows of a call, as it is made.
fn given(call: &Call) -> RecordBatch {
    match call.operation {
        Operation::Delete => grouped(&keys(&call.rows.iter().map(|(key, _)| *key).collect::<Vec<_>>())),
        Operation::Update => {
            let named = [Some(0), call.named.0.then_some(1), call.named.1.then_some(2), Some(3)];
            as_batch(&call.rows).project(&named.into_iter().flatten().collect::<Vec<_>>()).unwrap()
        }
        Operation::Insert | Operation::Upsert => as_batch(&call.rows),
    }
}

/// `LAKEMARK_MODEL_OPERATIONS` and `LAKEMARK_MODEL_SEED` make more of them.
#[tokio::test]
async fn random_changes_agree_with_a_map() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let wanted = number("LAKEMARK_MODEL_OPERATIONS", 900);
    let first = number("LAKEMARK_MODEL_SEED", 7);
    let (mut seed, mut operations, mut sums) = (first, 0, BTreeMap::<&str, u64>::new());
    let (start, mut told) = (Instant::now(), Instant::now());
    while operations < wanted {
        let mut trial = Trial::new(seed).await;
        for _ in 0..STEPS.min(wanted - operations) {
            trial.step().await;
        }
        trial.reader = Reader::default();
        trial.check().await;
        operations += trial.operations;
        trial.done.iter().for_each(|(what, count)| *sums.entry(what).or_default() += count);
        seed += 1;
        if told.elapsed() > Duration::from_secs(30) || operations >= wanted {
            told = Instant::now();
            let rate = operations as f64 / start.elapsed().as_secs_f64();
            println!("{operations} operations, seeds {first} to {}, {rate:.0} a second: {sums:?}", seed - 1);
        }
    }
}
