//! Several processes change and read a table at once: money moves between accounts, none comes and none goes.
//!
//! ```text
//! each process   2 writers    read two accounts from a snapshot, write both, unless somebody changed one of them meanwhile
//!                1 reader     the sum of a snapshot is always the same; nothing that was seen or acknowledged is ever gone;
//!                             what an index says of a file is what the file has; values that ride along with keys and links are
//!                             those of the accounts
//!                1 keeper     flushes and migrates (every other process)
//!                1 builder    builds the indexes of what migrations wrote, and compacts them
//!                1 committer  declares and drops an index, so that checkpoints are due all the time (the first process)
//! at the end     every transfer that was acknowledged is counted in both of its accounts: none is lost, none was made twice
//!                every checkpoint says what the edits up to it say, and the segments of the newest manifest are there
//! ```
//!
//! The test starts this program again for each process. `LAKEMARK_PROCESSES_SECONDS` is how long it takes, or longer where a process has not
//! done its part by then.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

mod counted;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use lakemark_format::Key;
use lakemark_format::key::key_of_i64;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};
use lakemark_table::{
    BuildOptions, Change, CoverRequest, Error, ErrorKind, FileProbe, IndexKind, IndexSpec, LinkDirection,
    LinkMemoryLimit, Links, MigrateOptions, Operation, ProbeOptions, RowSet, RowsOfFile, Snapshot, Table, TableOptions,
    WalkOptions, WriteOptions,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::counted::for_each_row;
use self::told::{compare_checkpoints, manifests};

const FOLDER: &str = "LAKEMARK_PROCESSES_FOLDER";
const NUMBER: &str = "LAKEMARK_PROCESSES_NUMBER";
const SECONDS: &str = "LAKEMARK_PROCESSES_SECONDS";
const ACCOUNTS: i64 = 300;
const FILES: i64 = 3;
/// What everybody has at first.
const AMOUNT: i64 = 1000;
/// The owner of an account that nobody changed.
const NOBODY: i64 = -1;
const WRITERS: u64 = 2;
/// Edits at first: the 64th is not far.
const EDITS: u64 = 60;
const EDITS_TO_CHECKPOINT: u64 = 64 - EDITS;
/// Of so many snapshots one is asked for links.
const SNAPSHOTS_PER_WALK: u64 = 8;
/// More than any of these walks takes.
const MEMORY: u64 = 64 << 20;
/// Longer than any process needs for its part on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Amount, transfers, the process that wrote the row last.
type Account = (i64, i64, i64);
type Accounts = BTreeMap<i64, Account>;

/// What the tasks of a process share.
struct Process {
    number: i64,
    table: Arc<Table>,
    /// The highest sequence number that was seen or acknowledged.
    sequence: AtomicU64,
    /// The most transfers of each account that were seen or acknowledged.
    counters: Vec<AtomicI64>,
    until: Instant,
    counts: Counts,
}

/// What a process did, in the order in which it reports it.
#[derive(Default)]
struct Counts([AtomicU64; COUNTED.len()]);

const COUNTED: [&str; 12] = [
    "transfers",
    "conflicts",
    "snapshots",
    "flushes",
    "migrations",
    "caches full",
    "segments",
    "compactions",
    "files from an index",
    "declarations",
    "checkpoints",
    "accounts from an index",
];
const TRANSFERS: usize = 0;
const CONFLICTS: usize = 1;
const SNAPSHOTS: usize = 2;
const FLUSHES: usize = 3;
const MIGRATIONS: usize = 4;
const FULL: usize = 5;
const SEGMENTS: usize = 6;
const COMPACTIONS: usize = 7;
const FROM_INDEX: usize = 8;
const DECLARATIONS: usize = 9;
/// Counted at the end, by nobody of them.
const CHECKPOINTS: usize = 10;
const VALUES: usize = 11;

impl Counts {
    fn count(&self, what: usize) {
        self.add(what, 1);
    }

    fn add(&self, what: usize, number: u64) {
        self.0[what].fetch_add(number, Ordering::Relaxed);
    }

    fn get(&self, what: usize) -> u64 {
        self.0[what].load(Ordering::Relaxed)
    }

    fn line(&self) -> String {
        self.0.iter().map(|count| count.load(Ordering::Relaxed).to_string()).collect::<Vec<_>>().join(" ")
    }
}

async fn open(folder: &Path) -> Arc<Table> {
    Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

impl Process {
    /// Whether the time is over and the process has done its part. Who shares a busy machine with others may need longer for that.
    fn is_over(&self) -> bool {
        let now = Instant::now();
        now >= self.until && (self.has_done_its_part() || now >= self.until + PATIENCE)
    }

    fn has_done_its_part(&self) -> bool {
        // The first process makes a checkpoint due.
        let declarations = if self.number == 0 { EDITS_TO_CHECKPOINT } else { 0 };
        let least = [(TRANSFERS, 1), (SNAPSHOTS, 1), (FROM_INDEX, 1), (VALUES, 1), (DECLARATIONS, declarations)];
        least.into_iter().all(|(what, least)| self.counts.get(what) >= least)
    }

    /// All accounts of a snapshot, which has everything that this process knew of before, and no money too much or too little.
    async fn look(&self, table: &Table) -> (Accounts, u64) {
        let sequence_before = self.sequence.load(Ordering::SeqCst);
        let counters_before: Vec<i64> = self.counters.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let snapshot = table.snapshot().await.unwrap();
        let sequence = snapshot.sequence().unwrap();
        assert!(sequence >= sequence_before, "{sequence} after {sequence_before}");
        let accounts = read(&snapshot);
        check_sum(&accounts, &format!("at {sequence}, manifest {:?}", snapshot.manifest_number()));
        for ((key, (_, counter, _)), before) in accounts.iter().zip(counters_before) {
            assert!(*counter >= before, "account {key} has {counter} transfers after {before}, at {sequence}");
            self.counters[*key as usize].fetch_max(*counter, Ordering::SeqCst);
        }
        self.sequence.fetch_max(sequence, Ordering::SeqCst);
        self.counts.count(SNAPSHOTS);
        self.ask_index(&snapshot, sequence as i64 % 4).await;
        self.ask_values(&snapshot, &accounts).await;
        if self.counts.get(SNAPSHOTS).is_multiple_of(SNAPSHOTS_PER_WALK) {
            ask_links(&snapshot, &accounts).await;
        }
        (accounts, sequence)
    }

    async fn write(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.is_over() {
            let (accounts, sequence) = self.look(&self.table).await;
            let from = random.random_range(0..ACCOUNTS);
            let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
            let sum = random.random_range(1..50);
            let moved = [(from, -sum), (to, sum)].map(|(key, sum)| {
                let (amount, counter, _) = accounts[&key];
                (key, (amount + sum, counter + 1, self.number))
            });
            let change = match random.random_bool(0.5) {
                true => Change { operation: Operation::Upsert, rows: rows_of(&moved) },
                // The owner stays who it was.
                false => Change { operation: Operation::Update, rows: rows_of(&moved).project(&[0, 1, 2]).unwrap() },
            };
            match self
                .table
                .write(vec![change], WriteOptions { read_at: Some(sequence), ..WriteOptions::default() })
                .await
            {
                Ok(written) => {
                    assert!(written.sequence > sequence, "{} after {sequence}", written.sequence);
                    self.sequence.fetch_max(written.sequence, Ordering::SeqCst);
                    for (key, (_, counter, _)) in moved {
                        self.counters[key as usize].fetch_max(counter, Ordering::SeqCst);
                    }
                    self.counts.count(TRANSFERS);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => self.counts.count(CONFLICTS),
                Err(error) if error.kind() == ErrorKind::CacheFull => {
                    self.counts.count(FULL);
                    self.migrate(1.0).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Every tenth snapshot is that of somebody who just came.
    async fn read(&self, folder: &Path) {
        for number in 0.. {
            if self.is_over() {
                return;
            }
            match number % 10 {
                9 => self.look(open(folder).await.as_ref()).await,
                _ => self.look(&self.table).await,
            };
        }
    }

    async fn keep(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.is_over() {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
            match random.random_range(0..5) {
                0..2 => match self.table.flush().await {
                    Ok(()) => self.counts.count(FLUSHES),
                    // Others commit all the time.
                    Err(error) if error.kind() == ErrorKind::Conflict => self.counts.count(CONFLICTS),
                    Err(error) => panic!("{error:?}"),
                },
                2..4 => self.migrate(0.3).await,
                _ => self.migrate(1.0).await,
            }
        }
    }

    /// Builds at any time, also while others build or compact. A file that leaves meanwhile is left out.
    async fn build(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.is_over() {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
            let options = BuildOptions { threads: Some(1), ..BuildOptions::default() };
            let done = match random.random_range(0..4) {
                0 => self.table.compact(options).await.map(|report| (COMPACTIONS, report.segments_written)),
                _ => self.table.build(options).await.map(|report| (SEGMENTS, report.segments)),
            };
            match done {
                Ok((what, number)) => self.counts.add(what, number),
                Err(error) if error.kind() == ErrorKind::Conflict => self.counts.count(CONFLICTS),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Declares and drops an index at any time, also while others build it.
    async fn declare(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.is_over() {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..10))).await;
            match spare(&self.table).await {
                Ok(()) => self.counts.count(DECLARATIONS),
                Err(error) if error.kind() == ErrorKind::Conflict => self.counts.count(CONFLICTS),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// The accounts of one owner: what the index says of the rows of a file is what the file has.
    async fn ask_index(&self, snapshot: &Snapshot, owner: i64) {
        let test = Test::Ranges(KeyRanges::point(Key::Fixed(key_of_i64(owner))));
        let leaf = Predicate::Leaf(Leaf { column: "owner".to_owned(), test, text: format!("owner = {owner}") });
        let options = ProbeOptions { selection_cache: false, ..ProbeOptions::default() };
        let found = snapshot.probe(&leaf, &options).await.unwrap();
        for (file, found) in snapshot.files().iter().zip(&found.files) {
            let FileProbe::Known { exact, recheck, .. } = found else { continue };
            let rows = rows_of_owner(Path::new("/").join(file.meta.location.as_ref()).as_path(), owner);
            let counts = |row: &u32| !file.deleted.as_ref().is_some_and(|deleted| deleted.contains(*row));
            let rows: Vec<u32> = rows.into_iter().filter(counts).collect();
            assert!(exact.iter().all(|row| rows.contains(&row)), "{} of {owner}: {exact:?}, not {rows:?}", file.path);
            assert!(rows.iter().all(|&row| exact.contains(row) || recheck.contains(row)), "{} of {owner}", file.path);
            self.counts.count(FROM_INDEX);
        }
    }

    /// The accounts that the index on their keys gives with their values are those that there are.
    async fn ask_values(&self, snapshot: &Snapshot, accounts: &Accounts) {
        let keys = (0..ACCOUNTS).map(|key| Key::Fixed(key_of_i64(key))).collect();
        let test = Test::Ranges(KeyRanges::points(keys));
        let predicate = Predicate::Leaf(Leaf { column: "key".to_owned(), test, text: "key IN (…)".to_owned() });
        let options = ProbeOptions { selection_cache: false, ..ProbeOptions::default() };
        let found = snapshot.probe(&predicate, &options).await.unwrap();
        let exact = found.files.listed().filter_map(|(file, found)| match found {
            FileProbe::Known { exact, .. } if !exact.is_empty() => Some((file, exact.clone())),
            _ => None,
        });
        let exact: Vec<(usize, RowSet)> = exact.collect();
        let rows = exact.iter().map(|(file, rows)| RowsOfFile { file: *file, rows }).collect();
        let columns = ["key", "amount", "counter", "owner"].map(String::from).to_vec();
        let request = CoverRequest { predicate: &predicate, columns, rows };
        let Some(values) = snapshot.covered_rows(&request).await else { return };
        let value = |column: usize, row: usize| values.columns[column].as_primitive::<Int64Type>().value(row);
        for row in 0..values.files.len() {
            let (key, account) = (value(0, row), (value(1, row), value(2, row), value(3, row)));
            assert_eq!(accounts.get(&key), Some(&account), "account {key}, at {:?}", snapshot.sequence());
            self.counts.count(VALUES);
        }
    }

    /// A migration, unless somebody else is at it.
    async fn migrate(&self, fraction: f64) {
        match self.table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await {
            Ok(_) => self.counts.count(MIGRATIONS),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The links of accounts with their owners, both ways, are those that there are.
async fn ask_links(snapshot: &Arc<Snapshot>, accounts: &Accounts) {
    let walks = Links::of(Arc::clone(snapshot), &["key", "owner"].map(String::from), MEMORY).await.unwrap();
    let links: BTreeSet<(i64, i64)> = accounts.iter().map(|(key, (_, _, owner))| (*key, *owner)).collect();
    let turned: BTreeSet<(i64, i64)> = links.iter().map(|(key, owner)| (*owner, *key)).collect();
    for (direction, expected) in [(LinkDirection::Out, links), (LinkDirection::In, turned)] {
        let nodes: BTreeSet<i64> = expected.iter().map(|(near, _)| *near).collect();
        let nodes: ArrayRef = Arc::new(Int64Array::from_iter_values(nodes));
        let options = WalkOptions { direction, ..WalkOptions::default() };
        let found = walks.neighbours(&nodes, &options, &LinkMemoryLimit::new(MEMORY)).await.unwrap();
        let column = |name: &str| found.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
        let found: BTreeSet<(i64, i64)> = column("from").into_iter().zip(column("node")).collect();
        assert_eq!(found, expected, "{direction:?}, at {:?}", snapshot.sequence());
    }
}

/// Drops an index, or declares it if it is not there.
async fn spare(table: &Table) -> Result<(), Error> {
    if !table.drop_index("spare", true).await? {
        let (name, columns) = (Some("spare".to_owned()), vec!["counter".to_owned()]);
        let spec = IndexSpec { name, columns, kind: IndexKind::from_name("bitmap"), ..IndexSpec::default() };
        table.create_index(spec, false).await?;
    }
    Ok(())
}

fn check_sum(accounts: &Accounts, at: &str) {
    let sum: i64 = accounts.values().map(|(amount, _, _)| amount).sum();
    assert_eq!((accounts.len() as i64, sum), (ACCOUNTS, ACCOUNTS * AMOUNT), "{at}");
}

fn rows_of(accounts: &[(i64, Account)]) -> RecordBatch {
    let column = |value: &dyn Fn(&(i64, Account)) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(accounts.iter().map(value)))
    };
    let columns = [
        ("key", column(&|row| row.0), true),
        ("amount", column(&|row| row.1.0), true),
        ("counter", column(&|row| row.1.1), true),
        ("owner", column(&|row| row.1.2), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// The rows of a data file that are of one owner.
fn rows_of_owner(file: &Path, owner: i64) -> Vec<u32> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let owners = batches
        .iter()
        .flat_map(|batch| batch.column_by_name("owner").unwrap().as_primitive::<Int64Type>().values().iter().copied());
    (0..).zip(owners).filter(|&(_, other)| other == owner).map(|(row, _)| row).collect()
}

/// All accounts, each of which is there once.
fn read(snapshot: &Snapshot) -> Accounts {
    let mut accounts = Accounts::new();
    for_each_row(snapshot, |batch, at| {
        let value = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(at);
        let (key, account) = (value("key"), (value("amount"), value("counter"), value("owner")));
        assert_eq!(accounts.insert(key, account), None, "the account {key} is there twice");
    });
    accounts
}

/// The accounts in some files: a folder of them, or a Delta table.
async fn create(folder: &Path, is_delta: bool) {
    let mut adds = String::new();
    for file in 0..FILES {
        let each = ACCOUNTS / FILES;
        let rows: Vec<_> = (file * each..(file + 1) * each).map(|key| (key, (AMOUNT, 0, NOBODY))).collect();
        let (name, rows) = (format!("accounts-{file}.parquet"), rows_of(&rows));
        let out = File::create(folder.join(&name)).unwrap();
        let mut writer = ArrowWriter::try_new(out, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let size = std::fs::metadata(folder.join(&name)).unwrap().len();
        adds += &format!(
            "\n{{\"add\":{{\"path\":\"{name}\",\"partitionValues\":{{}},\"size\":{size},\"modificationTime\":1,\"dataChange\":true}}}}"
        );
    }
    if is_delta {
        let fields = ["key", "amount", "counter", "owner"]
            .map(|name| format!(r#"{{\"name\":\"{name}\",\"type\":\"long\",\"nullable\":true,\"metadata\":{{}}}}"#));
        let schema = format!(r#"{{\"type\":\"struct\",\"fields\":[{}]}}"#, fields.join(","));
        let log = format!(
            "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}},\"createdTime\":0}}}}{adds}"
        );
        std::fs::create_dir(folder.join("_delta_log")).unwrap();
        std::fs::write(folder.join("_delta_log/00000000000000000000.json"), log).unwrap();
    }
    // Small, so that there are runs and merges all the time.
    let options = [("page_bytes", "512"), ("cache_bytes", "100000")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let table = open(folder).await;
    table.declare_key(&["key".to_owned()], &BTreeMap::from(options), BuildOptions::default()).await.unwrap();
    for (column, kind) in [("owner", "bitmap"), ("amount", "key")] {
        let columns = vec![column.to_owned()];
        let spec = IndexSpec { columns, kind: IndexKind::from_name(kind), ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    let options = BTreeMap::from([("include".to_owned(), "amount,counter,owner".to_owned())]);
    let (name, columns) = (Some("rides".to_owned()), vec!["key".to_owned()]);
    let rides = IndexSpec { name, columns, kind: Some(IndexKind::Key), options };
    let columns = ["key", "owner"].map(String::from).to_vec();
    let walks = IndexSpec { columns, kind: Some(IndexKind::Links), ..IndexSpec::default() };
    for spec in [rides, walks] {
        table.create_index(spec, false).await.unwrap();
    }
    while table.snapshot().await.unwrap().manifest_number() < Some(EDITS) {
        spare(&table).await.unwrap();
    }
}

/// One of the processes: works until its time is over, then tells what it did.
async fn process(folder: &Path) {
    let number: i64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let seconds: f64 = std::env::var(SECONDS).unwrap().parse().unwrap();
    let process = Arc::new(Process {
        number,
        table: open(folder).await,
        sequence: AtomicU64::new(0),
        counters: (0..ACCOUNTS).map(|_| AtomicI64::new(0)).collect(),
        until: Instant::now() + Duration::from_secs_f64(seconds),
        counts: Counts::default(),
    });
    let seed = number as u64 * 100;
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let process = Arc::clone(&process);
        tasks.spawn(async move { process.write(seed + writer).await });
    }
    let (reader, of) = (Arc::clone(&process), folder.to_owned());
    tasks.spawn(async move { reader.read(&of).await });
    if number % 2 == 0 {
        let keeper = Arc::clone(&process);
        tasks.spawn(async move { keeper.keep(seed + WRITERS).await });
    }
    if number == 0 {
        let committer = Arc::clone(&process);
        tasks.spawn(async move { committer.declare(seed + WRITERS + 2).await });
    }
    let builder = Arc::clone(&process);
    tasks.spawn(async move { builder.build(seed + WRITERS + 1).await });
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    println!("\ndone {}", process.counts.line());
}

fn start(folder: &Path, number: u64, seconds: f64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes_that_write_at_once_lose_nothing_and_see_whole_changes_only", "--nocapture"]);
    command.env(FOLDER, folder).env(NUMBER, number.to_string()).env(SECONDS, seconds.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Lets processes work; gives how often they did what, in sum.
async fn run(processes: u64, is_delta: bool, seconds: f64) -> [u64; COUNTED.len()] {
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), is_delta).await;
    let started: Vec<Child> = (0..processes).map(|number| start(folder.path(), number, seconds)).collect();
    let mut sums = [0; COUNTED.len()];
    let outputs: Vec<_> = started.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for (number, output) in outputs.iter().enumerate() {
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "process {number} of {processes}, delta {is_delta}:\n{printed}\n{said}");
        let counts = printed.lines().find_map(|line| line.strip_prefix("done ")).unwrap();
        for (sum, count) in sums.iter_mut().zip(counts.split(' ')) {
            *sum += count.parse::<u64>().unwrap();
        }
    }
    let accounts = read(&open(folder.path()).await.snapshot().await.unwrap());
    check_sum(&accounts, "at the end");
    let counters: i64 = accounts.values().map(|(_, counter, _)| counter).sum();
    assert_eq!(counters as u64, 2 * sums[TRANSFERS], "transfers were lost or made twice");
    let store = folder.path().join("_lakemark");
    let (number, newest) = manifests(&store).unwrap().pop_last().unwrap();
    let missing = newest.segments().find(|segment| !store.join(&segment.path).exists());
    assert_eq!(missing.map(|segment| &segment.path), None, "the manifest {number} names a segment that is not there");
    sums[CHECKPOINTS] = compare_checkpoints(&store).unwrap() as u64;
    sums
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_write_at_once_lose_nothing_and_see_whole_changes_only() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return process(Path::new(&folder)).await;
    }
    let seconds: f64 = std::env::var(SECONDS).map_or(6.0, |text| text.parse().unwrap());
    for (processes, is_delta) in [(2, false), (2, true), (4, false), (4, true)] {
        let sums = run(processes, is_delta, seconds / 4.0).await;
        let rates = COUNTED.iter().zip(sums).map(|(what, sum)| format!("{:.1} {what}", sum as f64 / (seconds / 4.0)));
        let format = if is_delta { "Delta" } else { "folder" };
        let totals = COUNTED.iter().zip(sums).map(|(what, sum)| format!("{sum} {what}"));
        println!(
            "{processes} processes, {format}, {:.0} s: {}; per second {}",
            seconds / 4.0,
            totals.collect::<Vec<_>>().join(", "),
            rates.collect::<Vec<_>>().join(", ")
        );
        assert!(
            [TRANSFERS, SNAPSHOTS, SEGMENTS, FROM_INDEX, VALUES, CHECKPOINTS].iter().all(|&what| sums[what] > 0),
            "{sums:?}"
        );
    }
}
