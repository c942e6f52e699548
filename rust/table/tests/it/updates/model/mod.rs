//! Random changes in a world of neighbours, judged by a map in memory.
//!
//! ```text
//! expected   base       what the data files have for those who know nothing of Lakemark
//!            buffered    for each key a row, its absence, or columns that are set
//! ours       changes, staged rows, flushes, builds, compactions, migrations, publications, vacuums, held snapshots, lost indexes
//! others     rows       append, overwrite, delete by files and by vectors, merge, optimize
//!            schema     add (first, too), drop, rename, reorder columns
//!            restore    a Delta table goes back to an older version
//!            log        checkpoints, a log that is cleaned up, files that a vacuum of Delta removes
//!            touch      files of a folder are touched, renamed, written anew under their names
//!            backup     the store as it was a while ago is put back
//!            remake     a Delta table is dropped and made anew beside the old store
//!            meanwhile  all of this while a migration writes files
//!            between    publications, migrations, vacuums, flushes between two requests of a reader
//!            processes  another process migrates, publishes, compacts, vacuums, is stopped or killed
//! ```
//!
//! What is right:
//!
//! * Buffered changes win for their keys over whatever the table holds, also over rows that others add later, until they are migrated.
//! * Migrated rows are the table's. A RESTORE to a version before the migration brings back what the table had then, for keys that are
//!   not buffered any more: it undoes the migration like any other commit, with the acknowledged changes that were migrated.
//! * A RESTORE leaves alone what is buffered.
//! * An update of some columns sets these columns in whatever row the table has, until it is migrated. Columns are known by what they
//!   are: by name in folders and Delta tables without mapping, by stored name in mapped ones. What is buffered for a dropped column is
//!   forgotten; one that is added under its name is another column, and NULL.
//! * What others add while a migration runs counts as if it had been there before.
//! * A store that is put back knows what it knew. Of a Delta table, what was migrated since then counts as migrated, as the log says;
//!   what was not told to the log is an error of a kind, and never a wrong answer. Changes that are made afterwards are not lost.
//! * The store of a Delta table that was dropped and made anew is an error of a kind as long as something is buffered in it.
//! * A killed process leaves the rows as they were. Which keys it migrated is not known to the model, so that others leave buffered keys
//!   alone until the next whole migration.
//! * Index files may be lost or damaged at any time.
//! * What an index gives of rows, values that ride along and links, is what the rows have. Half of the trials have such indexes.
//!
//! Rows are compared after one to five operations, after whatever moves or loses something and after each neighbour; by another process,
//! with indexes and without, every 200 operations. Every migration is compared with what the data files then have by the log or the folder.
//! `LAKEMARK_MODEL_NEIGHBOURS` names classes of others, `-name` all but one, `none`, `all`. Two more classes are for what we do and look
//! at: `slices` (of the key range are migrated), `leaks` (a refused call leaves no run).

mod backup;
mod changes;
mod expected;
mod files;
mod indexed;
mod interrupted;
mod log;
mod meanwhile;
mod neighbours;
mod processes;
mod remake;
mod rows;
mod schema;
mod store;
mod touch;
mod upkeep;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lakemark_table::{BuildOptions, Operation, Snapshot, Table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::backup::Backup;
use self::expected::Expected;
use self::files::{Form, Others};
use self::neighbours::Classes;
use self::rows::{Column, G, Id, K, Reader, Rows, draw_row};
use crate::fixture::open;

/// Operations of a trial.
const STEPS: u64 = 250;
/// Handles of the table that know nothing of each other, as those of processes.
const HANDLES: usize = 3;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A snapshot that somebody goes on reading.
struct Held {
    since: SystemTime,
    snapshot: Arc<Snapshot>,
    columns: Vec<Column>,
    rows: Rows,
}

struct Trial {
    seed: u64,
    keys: i64,
    classes: Classes,
    /// Whether a process was killed in a migration, so that the model does not know which keys are buffered: others leave them alone.
    is_uncertain: bool,
    has_lost_indexes: bool,
    random: StdRng,
    folder: tempfile::TempDir,
    tables: Vec<Arc<Table>>,
    /// Which of them makes the next operation.
    at: usize,
    /// The key's columns, and the options that it was declared with.
    key: Vec<Id>,
    /// The columns that ride along with an index on the key.
    riding: Vec<Id>,
    options: BTreeMap<String, String>,
    expected: Expected,
    /// What each version of a Delta table had, as far as it is known.
    bases: Vec<Option<Rows>>,
    /// The oldest version whose files nobody removed.
    oldest: usize,
    /// The call that changed a key last.
    changed: BTreeMap<i64, u64>,
    sequence: u64,
    /// Nobody has read the table before this sequence number.
    floor: u64,
    others: Others,
    backup: Option<Backup>,
    held: Vec<Held>,
    reader: Reader,
    operations: u64,
    next_check: u64,
    done: BTreeMap<&'static str, u64>,
    trace: Vec<String>,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the model test fails with LAKEMARK_MODEL_SEED={} at operation {}", self.seed, self.operations);
            println!("{:?}, key {:?}, {:?}", self.others.form, self.key, self.options);
            let from = self.trace.len().saturating_sub(25);
            println!("the last operations: {}", self.trace[from..].join("; "));
            if std::env::var_os("LAKEMARK_MODEL_KEEP").is_some() {
                println!("the table is left in {}", self.folder.path().display());
                self.folder.disable_cleanup(true);
            }
        }
    }
}

impl Trial {
    async fn new(seed: u64, classes: Classes) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let form = Form {
            is_delta: random.random_bool(0.55),
            with_vectors: random.random_bool(0.6),
            is_mapped: random.random_bool(0.5),
            is_partitioned: random.random_bool(0.35),
        };
        let form = Form {
            with_vectors: form.is_delta && form.with_vectors,
            is_mapped: form.is_delta && form.is_mapped,
            ..form
        };
        let others = Others::new(folder.path(), form, classes.has("schema"), &mut random);
        let keys = *[30, 150, 400].get(random.random_range(0..3)).unwrap();
        let options = parameters(&mut random);
        let key = if random.random_bool(0.4) { vec![G, K] } else { vec![K] };
        let mut trial = Self {
            seed,
            keys,
            classes,
            is_uncertain: false,
            has_lost_indexes: false,
            random,
            folder,
            tables: Vec::new(),
            at: 0,
            key,
            riding: Vec::new(),
            options,
            expected: Expected::default(),
            bases: Vec::new(),
            oldest: 0,
            changed: BTreeMap::new(),
            sequence: 0,
            floor: 0,
            others,
            backup: None,
            held: Vec::new(),
            reader: Reader::default(),
            operations: 0,
            next_check: 0,
            done: BTreeMap::new(),
            trace: Vec::new(),
        };
        trial.fill();
        trial.declare().await;
        trial
    }

    /// The first rows, in some files.
    fn fill(&mut self) {
        let files = self.random.random_range(1..4);
        for file in 0..files {
            let mut rows = Rows::new();
            for key in (0..self.keys).filter(|key| key % 4 == file) {
                if self.random.random_bool(0.8) {
                    rows.insert(key, draw_row(&mut self.random, &self.others.columns));
                }
            }
            if !rows.is_empty() {
                self.others.append(&mut self.random, &rows);
                self.expected.base.extend(rows);
            }
        }
        self.bases.clear();
        self.note_versions();
    }

    /// Declares the key of a table without a store.
    async fn declare(&mut self) {
        self.open_all().await;
        let names: Vec<String> = self.key.iter().map(|id| self.shown(*id)).collect();
        self.table().declare_key(&names, &self.options, one_thread()).await.unwrap();
        if self.random.random_bool(0.3) {
            self.table().drop_index(&format!("{}_key", names.join("_")), false).await.unwrap();
        }
        self.declare_indexes().await;
        self.sequence = 0;
        self.floor = 0;
        self.changed.clear();
    }

    fn shown(&self, id: Id) -> String {
        self.others.columns.iter().find(|column| column.id == id).unwrap().shown.clone()
    }

    /// Opens the table as if nobody had had it open.
    async fn open_all(&mut self) {
        self.tables.clear();
        for handle in 0..HANDLES {
            let table = open(self.folder.path()).await;
            // Small as the table is, lookups by some handles find their files as in a large one.
            if handle > 0 {
                table.narrow_always();
            }
            self.tables.push(table);
        }
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.tables[self.at])
    }

    fn root(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    async fn step(&mut self) {
        self.operations += 1;
        self.at = self.random.random_range(0..HANDLES);
        let what = match self.random.random_range(0..1000) {
            0..200 => self.call(Operation::Upsert).await,
            200..300 => self.call(Operation::Delete).await,
            300..450 => self.call(Operation::Update).await,
            450..520 => self.call(Operation::Insert).await,
            520..545 => self.several().await,
            545..560 => self.staged().await,
            560..610 => self.flush().await,
            610..630 => self.reopen().await,
            630..640 => self.build().await,
            640..655 => self.lose_indexes(),
            655..680 => self.migrate().await,
            680..690 => self.publish().await,
            690..705 => self.vacuum().await,
            705..720 => self.hold().await,
            720..730 => self.compact().await,
            _ => self.neighbour().await,
        };
        *self.done.entry(what).or_default() += 1;
        self.trace.push(format!("{} {what}", self.operations));
        self.note_versions();
        if self.operations.is_multiple_of(50) {
            self.reader = Reader::default();
        }
        let is_call = ["insert", "upsert", "update", "delete", "several changes", "staged", "nothing"].contains(&what);
        if !is_call || self.operations >= self.next_check {
            self.check().await;
            self.next_check = self.operations + self.random.random_range(1..6);
        }
        if self.operations.is_multiple_of(200) {
            self.check_apart().await;
        }
    }

    /// Takes in versions that Lakemark committed. Of those before the last one it is not known what they had.
    fn note_versions(&mut self) {
        let Some(log) = &mut self.others.log else { return };
        log.sync();
        while self.bases.len() < log.states.len() {
            self.bases.push(None);
        }
        *self.bases.last_mut().unwrap() = (!self.is_uncertain).then(|| self.expected.base.clone());
    }

    async fn check(&mut self) {
        let snapshot = self.table().snapshot().await.unwrap();
        self.compare(&snapshot);
        self.check_indexes(&snapshot).await;
    }

    fn compare(&mut self, snapshot: &Snapshot) {
        let rows = self.reader.rows_of(snapshot, &self.others.columns, &self.others.stored);
        let rows = rows.unwrap_or_else(|why| panic!("{why}, after {} operations", self.operations));
        assert_same(&rows, &self.expected.rows(), &format!("after {} operations", self.operations));
        assert_eq!(snapshot.sequence(), Some(self.sequence));
        let mut have: Vec<String> = snapshot.schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut want: Vec<String> = self.others.columns.iter().map(|column| column.shown.clone()).collect();
        if !self.others.form.is_delta {
            have.sort_unstable();
            want.sort_unstable();
        }
        assert_eq!(have, want);
    }
}

/// Fails with the keys that differ, if some do.
fn assert_same(have: &Rows, want: &Rows, at: &str) {
    if have == want {
        return;
    }
    let keys = have.keys().chain(want.keys()).filter(|key| have.get(key) != want.get(key));
    let keys: std::collections::BTreeSet<i64> = keys.copied().collect();
    let lines: Vec<String> = keys
        .iter()
        .take(6)
        .map(|key| format!("key {key}: has {:?}, expected {:?}", have.get(key), want.get(key)))
        .collect();
    panic!("{at}: {} keys differ\n{}", keys.len(), lines.join("\n"));
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

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// `LAKEMARK_MODEL_OPERATIONS` and `LAKEMARK_MODEL_SEED` make more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_agree_with_a_map() {
    if let Ok(order) = std::env::var(processes::ORDER) {
        return processes::obey(&order).await;
    }
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let wanted = number("LAKEMARK_MODEL_OPERATIONS", 1500);
    let first = number("LAKEMARK_MODEL_SEED", 7);
    let classes = Classes::of(&std::env::var("LAKEMARK_MODEL_NEIGHBOURS").unwrap_or_else(|_| "all".to_owned()));
    let (mut seed, mut operations, mut sums) = (first, 0, BTreeMap::<&str, u64>::new());
    let (start, mut reported) = (Instant::now(), Instant::now());
    while operations < wanted {
        let mut trial = Trial::new(seed, classes.clone()).await;
        for _ in 0..STEPS.min(wanted - operations) {
            trial.step().await;
        }
        trial.reader = Reader::default();
        trial.check().await;
        operations += trial.operations;
        trial.done.iter().for_each(|(what, count)| *sums.entry(what).or_default() += count);
        seed += 1;
        if reported.elapsed() > Duration::from_secs(30) || operations >= wanted {
            reported = Instant::now();
            let rate = operations as f64 / start.elapsed().as_secs_f64();
            let others: u64 =
                sums.iter().filter(|(what, _)| what.starts_with("others: ")).map(|(_, count)| count).sum();
            println!(
                "{operations} operations, {others} of them by neighbours, seeds {first} to {}, {rate:.0} a second: {sums:?}",
                seed - 1
            );
        }
    }
    // Several seeds, half of which have indexes that give rows.
    let given = sums.get("rows from an index").copied().unwrap_or_default();
    assert!(given > 0 || operations < 4 * STEPS, "no index gave a row in {operations} operations");
}
