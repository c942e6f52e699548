//! A process that changes a table is killed at random instants and at every named point; whatever it acknowledged is there
//! afterwards, and of what it did not, all or nothing.
//!
//! Each trial starts this program again as the *victim*, which makes changes that follow from the seed alone, tells of each before and
//! after, and dies. Then the table is opened and compared with a map.
#![cfg(test)]
#![cfg(feature = "failpoints")]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

mod counted;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use lakemark_table::{
    BuildOptions, Change, ErrorKind, MigrateOptions, Operation, Snapshot, Table, TableOptions, VacuumOptions,
    WriteOptions,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::counted::for_each_row;

const FOLDER: &str = "LAKEMARK_CRASH_FOLDER";
const SEED: &str = "LAKEMARK_CRASH_SEED";
const FIRST: &str = "LAKEMARK_CRASH_FIRST";
/// A point and how often it is reached before the process stops there, as the library reads it.
const AT: &str = "LAKEMARK_CRASH_AT";
const KEYS: i64 = 300;
/// Changes that a victim makes if nobody kills it.
const CHANGES: u64 = 120;
type Rows = BTreeMap<i64, String>;

/// One step, which follows from seed and number.
enum Step {
    Change(Operation, Vec<(i64, String)>),
    /// Upserts that several files have been staged of, too many for the buffer.
    Staged(Vec<(i64, String)>),
    Flush,
    /// A fraction of what is buffered, in slices that write so many bytes of data files if that is given.
    Migrate(f64, Option<u64>),
    Vacuum,
    Publish,
}

/// Every point at which a process can be stopped, as the source says: those of single writes, syncs, renames, links and removals, and
/// those between the parts of a flush, a merge or a migration.
fn points() -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(path).unwrap();
                let names = text.split("reach(\"").skip(1).filter_map(|rest| rest.split_once('"'));
                found.extend(names.map(|(name, _)| name.to_owned()));
            }
        }
    }
    found.into_iter().collect()
}

/// Of a hundred steps, those that are no change of rows: flushes, migrations, migrations of a part, vacuums and publications. A victim
/// that is to die in a merge, a migration or a publication makes more of what leads there.
fn mix(point: Option<&str>) -> [u32; 5] {
    match point.and_then(|point| point.split_once('-')) {
        Some(("merge" | "run" | "position" | "log", _)) => [50, 0, 1, 1, 0],
        Some(("checkpoint", _)) => [20, 2, 2, 25, 2],
        Some(("migration", _)) => [5, 15, 15, 2, 2],
        Some(("publish", _)) => [5, 15, 10, 2, 20],
        _ => [4, 2, 2, 3, 3],
    }
}

fn step(seed: u64, number: u64, point: Option<&str>) -> Step {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let mut drawn = random.random_range(0..100);
    let slices = number.is_multiple_of(2).then_some(2_000);
    let others = [Step::Flush, Step::Migrate(1.0, slices), Step::Migrate(0.3, None), Step::Vacuum, Step::Publish];
    for (step, share) in others.into_iter().zip(mix(point)) {
        if drawn < share {
            return step;
        }
        drawn -= share;
    }
    let mut keys = BTreeSet::new();
    for _ in 0..random.random_range(1..30) {
        keys.insert(random.random_range(0..KEYS));
    }
    if random.random_bool(0.05) {
        let value = |key| (key, format!("{number} of {key}{:400}", ""));
        return Step::Staged((0..KEYS).map(value).collect());
    }
    let operation = [Operation::Upsert, Operation::Update, Operation::Delete][random.random_range(0..3)];
    Step::Change(operation, keys.into_iter().map(|key| (key, format!("{number} of {key}"))).collect())
}

fn apply(rows: &mut Rows, step: &Step) {
    let (operation, changes) = match step {
        Step::Change(operation, changes) => (operation, changes),
        Step::Staged(changes) => (&Operation::Upsert, changes),
        _ => return,
    };
    for (key, value) in changes {
        match operation {
            Operation::Delete => drop(rows.remove(key)),
            Operation::Update => drop(rows.get_mut(key).map(|have| have.clone_from(value))),
            _ => drop(rows.insert(*key, value.clone())),
        }
    }
}

async fn open(folder: &Path) -> Arc<Table> {
    Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

async fn make(table: &Arc<Table>, step: &Step) {
    match step {
        Step::Flush => table.flush().await.unwrap(),
        Step::Publish => drop(table.publish().await.unwrap()),
        Step::Migrate(fraction, max_bytes) => {
            let options = MigrateOptions { fraction: *fraction, max_bytes: *max_bytes, ..MigrateOptions::default() };
            table.migrate(options).await.unwrap();
        }
        Step::Vacuum => {
            for folder in ["manifest", "checkpoint", "indexes", "updates"] {
                make_old(&folder_of(table).join("_lakemark").join(folder));
            }
            table.vacuum(VacuumOptions::default()).await.unwrap();
        }
        Step::Change(operation, changes) => {
            let mut rows = as_batch(changes);
            if *operation == Operation::Delete {
                rows = rows.project(&[0]).unwrap();
            }
            table.write(vec![Change { operation: *operation, rows }], WriteOptions::default()).await.unwrap();
        }
        Step::Staged(changes) => {
            let mut staged = Vec::new();
            for part in changes.chunks(100) {
                let mut staging = table.stage(Operation::Upsert).await.unwrap();
                staging.write(as_batch(part)).await.unwrap();
                staged.extend(staging.finish().await.unwrap());
            }
            table.write_staged(&staged, WriteOptions::default()).await.unwrap();
        }
    }
}

fn as_batch(rows: &[(i64, String)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(key, _)| *key)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(_, value)| value)));
    RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
}

fn folder_of(table: &Table) -> std::path::PathBuf {
    Path::new(table.location()).to_owned()
}

/// Files that a week has passed since.
fn make_old(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60)).unwrap();
    }
}

/// Sees to it that a point can be reached: a log is cut off where somebody left half a frame, folders are made where there are none.
fn prepare(folder: &Path, point: Option<&str>) {
    match point {
        Some("cut" | "cut-off") => {
            for entry in std::fs::read_dir(folder.join("_lakemark/updates")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "lml") {
                    File::options().append(true).open(path).unwrap().write_all(b"half a frame").unwrap();
                }
            }
        }
        Some("folder-made") => std::fs::remove_dir_all(folder.join("_lakemark/indexes")).unwrap_or_default(),
        _ => {}
    }
}

/// Makes changes until it is killed.
async fn victim() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let folder = std::env::var(FOLDER).unwrap();
    let (seed, first) = (number(SEED), number(FIRST));
    let at_point = std::env::var(AT).ok();
    let point = at_point.as_deref().and_then(|at| at.split_once(':')).map(|(point, _)| point);
    let table = open(Path::new(&folder)).await;
    let mut out = std::io::stdout();
    for at in first..first + CHANGES {
        writeln!(out, "\nbegin {at}").and_then(|()| out.flush()).unwrap();
        make(&table, &step(seed, at, point)).await;
        writeln!(out, "\ndone {at}").and_then(|()| out.flush()).unwrap();
    }
}

/// Starts a victim and lets it die; gives the steps that it began and finished: numbers below these.
fn run_victim(folder: &Path, seed: u64, first: u64, point: Option<&str>, after: Duration) -> (u64, u64) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed_at_any_instant_a_writer_loses_nothing_that_it_acknowledged", "--nocapture"]);
    command.env(FOLDER, folder).env(SEED, seed.to_string()).env(FIRST, first.to_string());
    if let Some(point) = point {
        command.env(AT, point);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let (mut begun, mut done) = (first, first);
        for line in lines.lines().map_while(Result::ok) {
            let number = |word: &str| line.strip_prefix(word).and_then(|rest| rest.trim().parse::<u64>().ok());
            begun = number("begin ").map_or(begun, |at| at + 1);
            done = number("done ").map_or(done, |at| at + 1);
        }
        (begun, done)
    });
    if point.is_none() {
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    child.wait().unwrap();
    reader.join().unwrap()
}

fn read(snapshot: &Snapshot) -> Rows {
    let mut rows = Rows::new();
    for_each_row(snapshot, |batch, at| {
        let key = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>().value(at);
        let s = batch.column_by_name("s").unwrap();
        let text = s.is_valid(at).then(|| s.as_string::<i32>().value(at).to_owned());
        assert_eq!(rows.insert(key, text.unwrap()), None, "the key {key} is there twice");
    });
    rows
}

/// What a reader finds that lists the folder: never a key twice, wherever a publication was stopped.
fn read_plainly(folder: &Path) -> usize {
    let mut keys = BTreeSet::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|end| end != "parquet") {
            continue;
        }
        for batch in ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            let k = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>().clone();
            k.values().iter().for_each(|key| assert!(keys.insert(*key), "the folder has the key {key} twice"));
        }
    }
    keys.len()
}

/// A table with some of the keys, as a folder or a Delta table.
async fn create(folder: &Path, is_delta: bool) -> Rows {
    let rows: Rows = (0..KEYS).step_by(2).map(|key| (key, "base".to_owned())).collect();
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.keys().copied()));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.values()));
    let batch = RecordBatch::try_from_iter_with_nullable([("k", k, true), ("s", s, true)]).unwrap();
    let path = folder.join("base.parquet");
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    if is_delta {
        let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"k\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"s\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;
        let size = std::fs::metadata(&path).unwrap().len();
        let log = format!(
            "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}},\"createdTime\":0}}}}\n{{\"add\":{{\"path\":\"base.parquet\",\"partitionValues\":{{}},\"size\":{size},\"modificationTime\":1,\"dataChange\":true}}}}"
        );
        std::fs::create_dir(folder.join("_delta_log")).unwrap();
        std::fs::write(folder.join("_delta_log/00000000000000000000.json"), log).unwrap();
    }
    let options =
        BTreeMap::from([("page_bytes".to_owned(), "512".to_owned()), ("cache_bytes".to_owned(), "200000".to_owned())]);
    open(folder).await.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    rows
}

/// `LAKEMARK_CRASH_TRIALS` is how many victims there are.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_instant_a_writer_loses_nothing_that_it_acknowledged() {
    if std::env::var(FOLDER).is_ok() {
        return victim().await;
    }
    let trials: u64 = std::env::var("LAKEMARK_CRASH_TRIALS").map_or(60, |text| text.parse().unwrap());
    let mut random = StdRng::seed_from_u64(5);
    let (mut seed, mut first) = (0, 0);
    let mut folder = tempfile::tempdir().unwrap();
    let mut expected = create(folder.path(), false).await;
    let points = points();
    let (mut in_flight, mut died_at, mut tried) = (0, BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
    for trial in 0..trials {
        if trial % 25 == 24 {
            seed += 1;
            first = 0;
            folder = tempfile::tempdir().unwrap();
            expected = create(folder.path(), seed % 2 == 1).await;
        }
        let named = usize::try_from(trial / 2).unwrap();
        let point = (trial % 2 == 0).then(|| points[named % points.len()].as_str());
        // Single writes are many, flushes and migrations few, and some things are done once.
        let most = [1, 4, 40][named / points.len() % 3];
        let at_point = point.map(|point| format!("{point}:{}", random.random_range(1..=most)));
        *tried.entry(point.unwrap_or("any instant")).or_default() += 1;
        let after = Duration::from_millis(random.random_range(1..250));
        prepare(folder.path(), point);
        let (begun, done) = run_victim(folder.path(), seed, first, at_point.as_deref(), after);
        (first..done).for_each(|at| apply(&mut expected, &step(seed, at, point)));
        let snapshot = open(folder.path()).await.snapshot().await.unwrap();
        let found = read(&snapshot);
        if !folder.path().join("_delta_log").exists() {
            assert!(read_plainly(folder.path()) <= KEYS as usize);
        }
        first = done;
        if found != expected {
            assert_eq!(begun, done + 1, "trial {trial}, {at_point:?}: acknowledged changes are lost");
            apply(&mut expected, &step(seed, done, point));
            in_flight += 1;
        }
        // A step in flight may be whole without an answer; it is made again otherwise, which must come to the same.
        assert_eq!(found, expected, "trial {trial}, {at_point:?}, after {done} changes");
        if begun > done {
            *died_at.entry(point.unwrap_or("any instant")).or_default() += 1;
        }
    }
    println!(
        "{trials} victims, {in_flight} of them with a change that was made and not acknowledged; died at {died_at:?}"
    );
    let missed: Vec<_> = tried.iter().filter(|(point, _)| !died_at.contains_key(*point)).collect();
    println!("{} named points; asked for, and not reached: {missed:?}", points.len());
    assert!(died_at.len() as u64 >= trials.min(30) / 6, "{died_at:?}");
    assert!(missed.iter().all(|(_, tried)| **tried < 8), "nothing reaches {missed:?}");
}

/// A key that nobody declared is an error also here: the points do not change what is done.
#[tokio::test]
async fn without_a_key_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let k: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("k", k)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(folder.path().join("a.parquet")).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let change = Change { operation: Operation::Delete, rows: batch };
    let error = open(folder.path()).await.write(vec![change], WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
