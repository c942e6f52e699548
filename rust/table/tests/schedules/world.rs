//! Small tables, what actors do to them, and what they saw.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use futures::FutureExt;
use lakemark_table::gate::enter;
use lakemark_table::{
    BuildOptions, Change, Error, ErrorKind, IndexKind, IndexSpec, MigrateOptions, Operation, RowSet, Snapshot, Table,
    TableOptions, VacuumOptions, WriteOptions,
};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::scheduler::{Actor, Decider, DiskGate, Doing, Scheduler};
use super::store::{GatedStore, Outside};

/// The texts of each key. No key should have two.
pub type Rows = BTreeMap<i64, Vec<String>>;

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    Write(Operation, i64, i64),
    Flush,
    Migrate(f64),
    Publish,
    /// Two hours pass for everybody else, then what is older than one goes, also the originals of what was published if asked for.
    Vacuum(bool),
    Compact,
    Build,
    CreateIndex,
    DropIndex,
    Read,
    /// Another program adds a file with these keys.
    Append(i64, i64),
    /// A snapshot of the file system is taken and read.
    Backup,
}

/// What is there before the actors begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// Runs, and changes in the log.
    Buffered,
    /// The same after so many commits that the next one writes a checkpoint.
    Due,
    /// The same after a migration that was not published, with new changes.
    Migrated,
    /// A cache that has no room for another run.
    Full,
}

/// What came of a call.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done,
    Written(u64),
    Rows { sequence: Option<u64>, rows: Rows },
    Failed(ErrorKind, String),
    Panicked(String),
}

#[derive(Clone, Debug)]
pub struct Record {
    pub actor: usize,
    pub number: usize,
    pub call: Call,
    /// Steps that were decided when it began and when it ended.
    pub from: usize,
    pub to: usize,
    pub outcome: Outcome,
    /// Whether the actor met a fault before it ended, or was killed.
    pub met_fault: bool,
    pub is_killed: bool,
}

/// A prepared table.
pub struct Template {
    folder: tempfile::TempDir,
    pub is_delta: bool,
    pub rows: Rows,
}

pub fn text(actor: usize, number: usize, key: i64) -> String {
    format!("{actor}.{number} of {key}")
}

pub fn apply(rows: &mut Rows, operation: Operation, keys: std::ops::Range<i64>, text: impl Fn(i64) -> String) {
    for key in keys {
        match operation {
            Operation::Delete => drop(rows.remove(&key)),
            Operation::Update => {
                if let Some(have) = rows.get_mut(&key) {
                    *have = vec![text(key)];
                }
            }
            _ => drop(rows.insert(key, vec![text(key)])),
        }
    }
}

fn batch(keys: std::ops::Range<i64>, text: impl Fn(i64) -> String) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(keys.clone()));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(keys.map(text)));
    RecordBatch::try_from_iter_with_nullable([("k", k, true), ("s", s, true)]).unwrap()
}

fn write_file(path: &Path, rows: &RecordBatch) {
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

fn add_line(name: &str, size: u64) -> String {
    format!(
        "{{\"add\":{{\"path\":\"{name}\",\"partitionValues\":{{}},\"size\":{size},\"modificationTime\":1,\"dataChange\":true}}}}"
    )
}

pub async fn open(folder: &Path) -> Arc<Table> {
    Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

/// One thread builds, so that the steps are always the same.
fn one_thread() -> BuildOptions {
    BuildOptions { threads: Some(1), ..BuildOptions::default() }
}

async fn make(table: &Arc<Table>, rows: &mut Rows, number: usize, (operation, first, end): (Operation, i64, i64)) {
    let text = |key| text(9, number, key);
    let mut changed = batch(first..end, text);
    if operation == Operation::Delete {
        changed = changed.project(&[0]).unwrap();
    }
    table.write(vec![Change { operation, rows: changed }], WriteOptions::default()).await.unwrap();
    apply(rows, operation, first..end, text);
}

impl Template {
    /// Keys 0 to 29 in three files, with an index on `s`; the rest as `start` says.
    pub async fn new(is_delta: bool, start: Start) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, mut rows) = (folder.path(), Rows::new());
        let mut adds = String::new();
        for file in 0..3 {
            let (keys, name) = (file * 10..file * 10 + 10, format!("base-{file}.parquet"));
            write_file(&root.join(&name), &batch(keys.clone(), |key| format!("base {key}")));
            rows.extend(keys.map(|key| (key, vec![format!("base {key}")])));
            adds += &format!("\n{}", add_line(&name, fs::metadata(root.join(&name)).unwrap().len()));
        }
        if is_delta {
            let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"k\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"s\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;
            let log = format!(
                "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}},\"createdTime\":0}}}}{adds}"
            );
            fs::create_dir(root.join("_delta_log")).unwrap();
            fs::write(root.join("_delta_log/00000000000000000000.json"), log).unwrap();
        }
        let table = open(root).await;
        let columns = vec!["s".to_owned()];
        let on_s = IndexSpec { name: Some("on_s".to_owned()), columns, ..IndexSpec::default() };
        table.create_index(on_s, false).await.unwrap();
        table.build(one_thread()).await.unwrap();
        let cache = if start == Start::Full { "8192" } else { "200000" };
        let options = [("page_bytes", "512"), ("cache_bytes", cache)];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        table.declare_key(&["k".to_owned()], &BTreeMap::from(options), one_thread()).await.unwrap();
        make(&table, &mut rows, 0, (Operation::Upsert, 3, 8)).await;
        table.flush().await.unwrap();
        if start != Start::Full {
            make(&table, &mut rows, 1, (Operation::Delete, 6, 12)).await;
            table.flush().await.unwrap();
        }
        if start == Start::Migrated {
            table.migrate(MigrateOptions::default()).await.unwrap();
            make(&table, &mut rows, 2, (Operation::Upsert, 14, 18)).await;
            table.flush().await.unwrap();
        }
        while start == Start::Due && table.snapshot().await.unwrap().manifest_number() < Some(63) {
            let (columns, name) = (vec!["s".to_owned()], Some("due".to_owned()));
            if !table.drop_index("due", true).await.unwrap() {
                table.create_index(IndexSpec { name, columns, ..IndexSpec::default() }, false).await.unwrap();
            }
        }
        make(&table, &mut rows, 3, (Operation::Upsert, 30, 34)).await;
        make(&table, &mut rows, 4, (Operation::Delete, 21, 24)).await;
        Self { folder, is_delta, rows }
    }

    /// A copy of it. Times of files stay what they are.
    pub fn copy(&self) -> tempfile::TempDir {
        let to = tempfile::tempdir().unwrap();
        copy(self.folder.path(), to.path());
        to
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
            continue;
        }
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&target, fs::read(&path).unwrap()).unwrap();
        File::options().write(true).open(&target).unwrap().set_modified(modified).unwrap();
    }
}

/// The rows of a snapshot, read through its own stores.
pub async fn read(snapshot: &Snapshot) -> Result<Rows, object_store::Error> {
    let mut rows = Rows::new();
    let mut add = |batch: &RecordBatch, at: usize| {
        let key = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>().value(at);
        let s = batch.column_by_name("s").unwrap();
        let text = if s.is_valid(at) { s.as_string::<i32>().value(at).to_owned() } else { "NULL".to_owned() };
        rows.entry(key).or_default().push(text);
    };
    let store = snapshot.object_store();
    for file in snapshot.files() {
        let deleted = file.deleted.clone();
        scan(&store, &file.meta.location, &|at| !deleted.as_ref().is_some_and(|rows| rows.contains(at)), &mut add)
            .await?;
    }
    if let (Some(buffered), Some(store)) = (snapshot.buffered_rows(), snapshot.run_store()) {
        for file in &buffered.files {
            let rows: &RowSet = &file.rows;
            scan(&store, &file.meta.location, &|at| rows.contains(at), &mut add).await?;
        }
        for batch in &buffered.batches {
            (0..batch.num_rows()).for_each(|at| add(batch, at));
        }
    }
    rows.values_mut().for_each(|texts| texts.sort());
    Ok(rows)
}

async fn scan(
    store: &Arc<dyn ObjectStore>,
    place: &ObjectPath,
    counts: &(dyn Fn(u32) -> bool + Send + Sync),
    add: &mut (dyn FnMut(&RecordBatch, usize) + Send),
) -> Result<(), object_store::Error> {
    let bytes = store.get(place).await?.bytes().await?;
    let mut first = 0;
    for batch in ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap() {
        let batch = batch.unwrap();
        (0..batch.num_rows()).filter(|at| counts(first + *at as u32)).for_each(|at| add(&batch, at));
        first += batch.num_rows() as u32;
    }
    Ok(())
}

/// The rows as a new process finds them.
pub async fn look(folder: &Path) -> Result<Rows, String> {
    let snapshot = open(folder).await.snapshot().await.map_err(|error| format!("{:?}: {error}", error.kind()))?;
    read(&snapshot).await.map_err(|error| error.to_string())
}

/// One schedule: a table, its actors, and who decides.
pub struct Run<'a> {
    pub folder: &'a Path,
    pub is_delta: bool,
    pub calls: &'a [Vec<Call>],
    pub outside: &'a Outside,
}

struct Playing {
    actor: Actor,
    folder: PathBuf,
    is_delta: bool,
    table: Arc<Table>,
    aged: Arc<Mutex<Vec<ObjectPath>>>,
}

impl Run<'_> {
    /// Lets the actors do what they do. Gives the scheduler, what came of the calls, and whether nobody could go on.
    pub fn play(&self, decider: Box<dyn Decider>) -> (Arc<Scheduler>, Vec<Record>, bool) {
        let scheduler = Scheduler::new(self.calls.len(), decider);
        let mut records = Vec::new();
        let mut is_stuck = false;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, calls) in self.calls.iter().enumerate() {
                let actor = Actor { scheduler: Arc::clone(&scheduler), number };
                threads.push(scope.spawn(move || self.act(actor, calls)));
            }
            is_stuck = scheduler.wait();
            for thread in threads {
                records.extend(thread.join().unwrap());
            }
        });
        records.sort_by_key(|record| (record.to, record.actor));
        (scheduler, records, is_stuck)
    }

    /// What an actor's thread does, with a runtime of its own: all of its threads are the actor's.
    fn act(&self, actor: Actor, calls: &[Call]) -> Vec<Record> {
        let gate = Arc::new(DiskGate { actor: actor.clone(), fails_after: Mutex::default() });
        let (mine, theirs) = (Arc::clone(&gate), gate);
        enter(Some(mine));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .on_thread_start(move || enter(Some(Arc::clone(&theirs) as Arc<_>)))
            .build()
            .unwrap();
        let records = runtime.block_on(self.make(&actor, calls));
        // Locks of a killed actor go with it.
        drop(runtime);
        enter(None);
        actor.scheduler.end(actor.number);
        records
    }

    async fn make(&self, actor: &Actor, calls: &[Call]) -> Vec<Record> {
        let mut records = Vec::new();
        let aged: Arc<Mutex<Vec<ObjectPath>>> = Arc::default();
        let layer = |inner: Arc<dyn ObjectStore>| -> Arc<dyn ObjectStore> {
            let (actor, outside) = (actor.clone(), self.outside.clone());
            Arc::new(GatedStore { inner, actor, outside, aged: Some(Arc::clone(&aged)) })
        };
        let opened = Table::open_layered(self.folder.to_str().unwrap(), TableOptions::default(), &layer).await;
        let table = opened.unwrap();
        let (folder, is_delta) = (self.folder.to_owned(), self.is_delta);
        let playing = Playing { actor: actor.clone(), folder, is_delta, table, aged: Arc::clone(&aged) };
        for (number, call) in calls.iter().enumerate() {
            if actor.pass(Doing::Begin, Path::new("")).is_err() {
                break;
            }
            let from = actor.scheduler.now();
            let made = AssertUnwindSafe(playing.make(number, *call)).catch_unwind().await;
            let outcome = match made {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(error)) => Outcome::Failed(error.kind(), described(&error)),
                Err(panic) => Outcome::Panicked(
                    panic
                        .downcast_ref::<String>()
                        .cloned()
                        .or(panic.downcast_ref::<&str>().map(|text| (*text).into()))
                        .unwrap_or_default(),
                ),
            };
            let (faults, is_killed) = actor.scheduler.met(actor.number);
            let to = actor.scheduler.now();
            let (actor, call, met_fault) = (actor.number, *call, faults > 0);
            records.push(Record { actor, number, call, from, to, outcome, met_fault, is_killed });
            if is_killed {
                break;
            }
        }
        records
    }
}

fn described(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

impl Playing {
    async fn make(&self, number: usize, call: Call) -> Result<Outcome, Error> {
        let table = &self.table;
        match call {
            Call::Write(operation, first, end) => {
                let mut rows = batch(first..end, |key| text(self.actor.number, number, key));
                if operation == Operation::Delete {
                    rows = rows.project(&[0]).unwrap();
                }
                let written = table.write(vec![Change { operation, rows }], WriteOptions::default()).await?;
                return Ok(Outcome::Written(written.sequence));
            }
            Call::Flush => table.flush().await?,
            Call::Migrate(fraction) => {
                table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await.map(drop)?;
            }
            Call::Publish => table.publish().await.map(drop)?,
            Call::Vacuum(originals) => {
                self.age();
                let older_than = Duration::from_secs(60 * 60);
                table.vacuum(VacuumOptions { older_than, originals, ..VacuumOptions::default() }).await.map(drop)?;
            }
            Call::Compact => table.compact(one_thread()).await.map(drop)?,
            Call::Build => table.build(one_thread()).await.map(drop)?,
            Call::CreateIndex => {
                let (name, kind) = (Some("more".to_owned()), Some(IndexKind::Bitmap));
                let spec = IndexSpec { name, columns: vec!["s".to_owned()], kind, ..IndexSpec::default() };
                table.create_index(spec, true).await.map(drop)?;
            }
            Call::DropIndex => table.drop_index("on_s", true).await.map(drop)?,
            Call::Read => return self.read().await,
            Call::Append(first, end) => self.append(number, first, end),
            Call::Backup => return self.back_up().await,
        }
        Ok(Outcome::Done)
    }

    /// Reads all rows. A file of the snapshot may be gone after a publication or a vacuum: then the reader takes a new snapshot.
    async fn read(&self) -> Result<Outcome, Error> {
        let mut left = 4;
        loop {
            let snapshot = self.table.snapshot().await?;
            match read(&snapshot).await {
                Ok(rows) => return Ok(Outcome::Rows { sequence: snapshot.sequence(), rows }),
                Err(object_store::Error::NotFound { .. }) if left > 0 => left -= 1,
                Err(error) => return Err(Error::new(ErrorKind::Io, "reading rows").with_source(error)),
            }
        }
    }

    /// From now on what is in the store is older by two hours, for this actor.
    fn age(&self) {
        let mut files = vec![self.folder.join("_lakemark")];
        let mut aged = self.aged.lock().unwrap();
        while let Some(path) = files.pop() {
            match fs::read_dir(&path) {
                Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
                Err(_) => aged.push(ObjectPath::from_absolute_path(&path).unwrap()),
            }
        }
    }

    /// Another program adds a file at once, as programs do that rename.
    fn append(&self, number: usize, first: i64, end: i64) {
        let name = format!("other-{}-{number}.parquet", self.actor.number);
        let path = self.folder.join(&name);
        let waiting = self.folder.join(format!(".{name}"));
        write_file(&waiting, &batch(first..end, |key| text(self.actor.number, number, key)));
        fs::rename(&waiting, &path).unwrap();
        if self.is_delta {
            let line = add_line(&name, fs::metadata(&path).unwrap().len());
            let folder = self.folder.join("_delta_log");
            let waiting = folder.join(format!(".{name}.json"));
            fs::write(&waiting, line).unwrap();
            let free = |version: &u64| fs::hard_link(&waiting, folder.join(format!("{version:020}.json"))).is_ok();
            (1..).find(free).unwrap();
            fs::remove_file(&waiting).unwrap();
        }
    }

    /// A snapshot of the file system, which is read.
    async fn back_up(&self) -> Result<Outcome, Error> {
        let to = tempfile::tempdir().unwrap();
        copy(&self.folder, to.path());
        let table = open(to.path()).await;
        let snapshot = table.snapshot().await?;
        let rows = read(&snapshot).await;
        let rows = rows.map_err(|error| Error::new(ErrorKind::Corrupt, "the copy").with_source(error))?;
        Ok(Outcome::Rows { sequence: snapshot.sequence(), rows })
    }
}
