//! A reader that others overtake between any two of its requests: what it has is the table before or after, and never a mixture.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lakemark_table::{
    BuildOptions, ErrorKind, MigrateOptions, Operation, Progress, Snapshot, Table, TableOptions, VacuumOptions,
};
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::lake::{Lake, PLAIN};
use super::stops::{Stops, Waiting, vacuum_hours_later};
use super::{batch, folder, keyed, keys, make};
use crate::fixture::{open, spec};
use crate::layer::{Hook, Layer, Log};

/// More requests than a snapshot of these tables makes.
const REQUESTS: u64 = 100;
/// Rows that were there, that are buffered, and one that is deleted.
const ROWS: u64 = 300 + 2 - 1;
/// Longer than anything here takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// What overtakes the reader.
enum Other {
    /// A migration that begins and ends meanwhile, and a publication.
    Whole(Arc<Table>),
    /// A migration that has begun before, and ends meanwhile.
    Begun(JoinHandle<()>, Waiting),
}

impl Other {
    async fn new(table: &Arc<Table>, has_begun: bool) -> Self {
        if !has_begun {
            return Self::Whole(Arc::clone(table));
        }
        // Before it reads the first row.
        let (stops, mut stopped) = Stops::new(Some(0));
        let (table, progress) = (Arc::clone(table), Some(stops as Arc<dyn Progress>));
        let migration = tokio::spawn(async move {
            table.migrate(MigrateOptions { progress, ..MigrateOptions::default() }).await.unwrap();
        });
        Self::Begun(migration, stopped.recv().await.unwrap())
    }

    async fn end(self) {
        match self {
            Self::Whole(table) => {
                table.migrate(MigrateOptions::default()).await.unwrap();
                table.publish().await.unwrap();
            }
            Self::Begun(migration, go) => {
                go.send(()).unwrap();
                migration.await.unwrap();
            }
        }
    }
}

async fn changed(root: &Path) -> Arc<Table> {
    let table = keyed(root).await;
    let rows = [(2, Some(1), Some("up")), (1001, Some(1), None), (1003, Some(1), None)];
    make(&table, Operation::Upsert, batch(&rows)).await.unwrap();
    make(&table, Operation::Delete, keys(&[4])).await.unwrap();
    table
}

/// The rows of a snapshot, in files and buffered.
pub async fn counted(snapshot: &Snapshot) -> u64 {
    let mut rows = snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count());
    for file in snapshot.files() {
        // A publication may have moved it.
        let bytes = snapshot.object_store().get(&file.meta.location).await.unwrap().bytes().await.unwrap();
        let all = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().metadata().file_metadata().num_rows();
        rows += all as u64 - file.deleted.as_ref().map_or(0, |deleted| u64::from(deleted.len()));
    }
    rows
}

/// The table as somebody has it open whose requests are seen.
async fn watched(root: &Path) -> (Arc<Table>, Arc<Log>) {
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(root.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    (table, log)
}

/// Tells of the request from now on at which he is stopped.
fn stopped_at(log: &Log, at: u64) -> UnboundedReceiver<Waiting> {
    let (stops, stopped) = Stops::new(Some(at));
    log.hook.set(Hook(Box::new(move || stops.step(false)))).unwrap();
    stopped
}

/// What the reader counts if it is overtaken at a request; none if it makes fewer.
async fn overtaken(root: &Path, has_looked: bool, has_begun: bool, at: u64) -> Option<u64> {
    let table = changed(root).await;
    let (reader, log) = watched(root).await;
    if has_looked {
        reader.snapshot().await.unwrap();
    }
    let other = Other::new(&table, has_begun).await;
    let mut stopped = stopped_at(&log, at);
    let mut reading = tokio::spawn(async move { reader.snapshot().await.unwrap() });
    tokio::select! {
        _ = &mut reading => {
            other.end().await;
            return None;
        }
        Some(go) = stopped.recv() => {
            other.end().await;
            go.send(()).unwrap();
        }
    }
    Some(counted(&reading.await.unwrap()).await)
}

/// Tables that are made anew for each request, until there are no more.
async fn check<T>(make: impl Fn() -> T, root: impl Fn(&T) -> &Path) {
    for (has_looked, has_begun) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut requests = 0;
        for at in 0..REQUESTS {
            let table = make();
            let Some(rows) = overtaken(root(&table), has_looked, has_begun, at).await else { break };
            assert_eq!(rows, ROWS, "overtaken at request {at}: has looked {has_looked}, has begun {has_begun}");
            requests += 1;
        }
        assert!((2..REQUESTS).contains(&requests), "{requests} requests");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_of_a_folder_that_is_overtaken_counts_what_there_is() {
    check(folder, |folder| folder.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_of_a_delta_table_that_is_overtaken_counts_what_there_is() {
    let lake = || {
        let mut lake = Lake::new(&PLAIN, false);
        let rows = |file: i64| {
            let rows: Vec<_> = (0..150).map(|row| (file * 300 + row * 2, Some(row as i32), Some("base"))).collect();
            batch(&rows)
        };
        let files = [lake.put("f0.parquet", &rows(0)), lake.put("f1.parquet", &rows(1))];
        lake.commit(&files);
        lake
    };
    check(lake, |lake| lake.root()).await;
}

/// What somebody does who is overtaken by a vacuum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Read,
    Write,
    Flush,
    Migrate,
    CreateIndex,
    Build,
    Vacuum,
    Verify,
    History,
    Version,
    VersionAt,
}

const CALLS: [Call; 11] = [
    Call::Read,
    Call::Write,
    Call::Flush,
    Call::Migrate,
    Call::CreateIndex,
    Call::Build,
    Call::Vacuum,
    Call::Verify,
    Call::History,
    Call::Version,
    Call::VersionAt,
];

async fn called(table: &Arc<Table>, call: Call, version: u64) -> lakemark_table::Result<()> {
    let hour = Duration::from_secs(60 * 60);
    match call {
        Call::Read => table.snapshot().await.map(drop),
        Call::Write => make(table, Operation::Upsert, batch(&[(8, Some(8), None)])).await.map(drop),
        Call::Flush => table.flush().await,
        Call::Migrate => table.migrate(MigrateOptions::default()).await.map(drop),
        Call::CreateIndex => table.create_index(spec("s"), true).await.map(drop),
        Call::Build => table.build(BuildOptions::default()).await.map(drop),
        Call::Vacuum => table.vacuum(VacuumOptions { older_than: hour, ..VacuumOptions::default() }).await.map(drop),
        Call::Verify => table.verify().await.map(|report| assert!(report.is_ok(), "{report:?}")),
        Call::History => table.history(None).await.map(|versions| assert!(!versions.is_empty())),
        Call::Version => table.at_version(version).snapshot().await.map(drop),
        Call::VersionAt => table.version_at(i64::MAX / 2).await.map(drop),
    }
}

/// Others commit, and a vacuum hours later removes all manifests but the newest.
async fn vacuumed(root: &Path) {
    let table = open(root).await;
    for _ in 0..2 {
        table.create_index(spec("a"), false).await.unwrap();
        table.drop_index("a_bitmap", false).await.unwrap();
    }
    vacuum_hours_later(root).await;
}

/// How the call ends if the vacuum comes at one of its requests; none if it makes fewer.
async fn vacuumed_at(root: &Path, call: Call, at: u64) -> Option<lakemark_table::Result<()>> {
    let table = changed(root).await;
    table.flush().await.unwrap();
    make(&table, Operation::Upsert, batch(&[(6, Some(6), None)])).await.unwrap();
    let (caller, log) = watched(root).await;
    let version = table.snapshot().await.unwrap().manifest_number().unwrap();
    let mut stopped = stopped_at(&log, at);
    let mut calling = tokio::spawn(async move { called(&caller, call, version).await });
    tokio::select! {
        _ = &mut calling => return None,
        Some(go) = stopped.recv() => {
            vacuumed(root).await;
            go.send(()).unwrap();
        }
    }
    Some(calling.await.unwrap())
}

/// Whoever was stopped for hours between listing manifests and reading one finds that it is gone, and others in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_overtaken_by_a_vacuum_goes_on_with_what_there_is() {
    for call in CALLS {
        let mut requests = 0;
        // Manifests are read among the first requests; some of the others are tried.
        for at in (0..10).chain((10..REQUESTS).step_by(7)) {
            let folder = folder();
            let Some(done) = vacuumed_at(folder.path(), call, at).await else { break };
            match done {
                Ok(()) => {}
                Err(error) if call == Call::Version => {
                    assert_eq!(error.kind(), ErrorKind::SnapshotExpired, "{error:?}")
                }
                Err(error) => panic!("{call:?} overtaken at request {at}: {error:?}"),
            }
            requests += 1;
        }
        assert!((1..REQUESTS).contains(&requests), "{requests} requests of {call:?}");
    }
}

/// What a version of a folder counts if a publication comes at one of its requests; none if it makes fewer.
async fn version_overtaken(root: &Path, is_migrated: bool, at: u64) -> Option<u64> {
    let table = changed(root).await;
    table.flush().await.unwrap();
    let before = table.snapshot().await.unwrap().manifest_number().unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    let now = table.snapshot().await.unwrap().manifest_number().unwrap();
    let (reader, log) = watched(root).await;
    let mut stopped = stopped_at(&log, at);
    let version = if is_migrated { now } else { before };
    let mut reading = tokio::spawn(async move { reader.at_version(version).snapshot().await.unwrap() });
    tokio::select! {
        _ = &mut reading => return None,
        Some(go) = stopped.recv() => {
            table.publish().await.unwrap();
            go.send(()).unwrap();
        }
    }
    Some(counted(&reading.await.unwrap()).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_version_of_a_folder_that_is_overtaken_by_a_publication_counts_what_it_had() {
    for is_migrated in [false, true] {
        let mut requests = 0;
        for at in 0..REQUESTS {
            let folder = folder();
            let Some(rows) = version_overtaken(folder.path(), is_migrated, at).await else { break };
            assert_eq!(rows, ROWS, "overtaken at request {at}, migrated {is_migrated}");
            requests += 1;
        }
        assert!((2..REQUESTS).contains(&requests), "{requests} requests");
    }
}

/// What a reader counts of whom another of the same table overtakes at a request, after one more slice; none if it makes fewer.
async fn sliced_meanwhile(root: &Path, at: u64) -> Option<u64> {
    let table = changed(root).await;
    let rows: Vec<_> = (0..600).step_by(10).map(|k| (k, Some(1), Some("up"))).collect();
    make(&table, Operation::Upsert, batch(&rows)).await.unwrap();
    let slice = || MigrateOptions { fraction: 0.3, ..MigrateOptions::default() };
    table.migrate(slice()).await.unwrap();
    let expected = counted(&open(root).await.snapshot().await.unwrap()).await;
    let (reader, log) = watched(root).await;
    let mut stopped = stopped_at(&log, at);
    let same = Arc::clone(&reader);
    let mut reading = tokio::spawn(async move { same.snapshot().await.unwrap() });
    tokio::select! {
        _ = &mut reading => return None,
        Some(go) = stopped.recv() => {
            table.migrate(slice()).await.unwrap();
            assert_eq!(counted(&reader.snapshot().await.unwrap()).await, expected, "the one that overtakes at {at}");
            go.send(()).unwrap();
        }
    }
    let counted = counted(&reading.await.unwrap()).await;
    assert_eq!(counted, expected, "overtaken at request {at}");
    Some(counted)
}

/// Snapshots of before and after a slice share what the runs of one table hit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_of_one_table_that_overtake_each_other_count_what_there_is() {
    for is_delta in [false, true] {
        let mut requests = 0;
        for at in 0..REQUESTS {
            let many = |file: i64| (0..50).map(|row| (file * 100 + row * 2, Some(1), Some("base"))).collect::<Vec<_>>();
            let (folder, mut lake) = (tempfile::tempdir().unwrap(), Lake::new(&PLAIN, false));
            for file in 0..6 {
                crate::fixture::write(&folder.path().join(format!("f{file}.parquet")), &batch(&many(file)));
                let add = lake.put(&format!("f{file}.parquet"), &batch(&many(file)));
                lake.commit(&[add]);
            }
            let root = if is_delta { lake.root() } else { folder.path() };
            if sliced_meanwhile(root, at).await.is_none() {
                break;
            }
            requests += 1;
        }
        assert!((2..REQUESTS).contains(&requests), "{requests} requests");
    }
}

/// Whoever made the migration is gone, and a part of it is still under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_migration_whose_caller_is_gone_lets_no_other_begin_until_it_is_over() {
    let mut left = 0;
    for at in 0..REQUESTS {
        let folder = folder();
        let root = folder.path();
        let other = changed(root).await;
        let (table, log) = watched(root).await;
        let mut stopped = stopped_at(&log, at);
        let mut migration = tokio::spawn(async move { table.migrate(MigrateOptions::default()).await.map(drop) });
        let go = tokio::select! {
            _ = &mut migration => break,
            Some(go) = stopped.recv() => go,
        };
        migration.abort();
        let soon = Duration::from_millis(200);
        // Where it was stopped in work of the caller's own, it is gone once that goes on.
        if tokio::time::timeout(soon, &mut migration).await.is_ok() {
            let second = tokio::time::timeout(PATIENCE, other.migrate(MigrateOptions::default())).await;
            match second.expect("it waits for what is under way") {
                // Files that nobody names are written on.
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
            }
            left += 1;
        }
        go.send(()).unwrap();
        let mut tries = 0;
        while let Err(error) = other.migrate(MigrateOptions::default()).await {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            tries += 1;
            assert!(soon / 4 * tries < PATIENCE, "{error:?}");
            tokio::time::sleep(soon / 4).await;
        }
        assert_eq!(counted(&other.snapshot().await.unwrap()).await, ROWS, "stopped at request {at}");
    }
    assert!(left > 2, "{left} parts that went on");
}
