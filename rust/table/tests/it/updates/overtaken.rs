//! A reader that others overtake between any two of its requests: what it has is the table before or after, and never a mixture.

use std::path::Path;
use std::sync::Arc;

use lakemark_table::{MigrateOptions, Operation, Progress, Snapshot, Table, TableOptions};
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::task::JoinHandle;

use super::lake::{Lake, PLAIN};
use super::stops::{Stops, Waiting};
use super::{batch, folder, keyed, keys, make};
use crate::layer::{Hook, Layer, Log};

/// More requests than a snapshot of these tables makes.
const REQUESTS: u64 = 100;
/// Rows that were there, that are pending, and one that is deleted.
const ROWS: u64 = 300 + 2 - 1;

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

async fn counted(snapshot: &Snapshot) -> u64 {
    let mut rows = snapshot.pending().map_or(0, |pending| pending.row_count());
    for file in snapshot.files() {
        // A publication may have moved it.
        let bytes = snapshot.object_store().get(&file.meta.location).await.unwrap().bytes().await.unwrap();
        let all = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().metadata().file_metadata().num_rows();
        rows += all as u64 - file.deleted.as_ref().map_or(0, |deleted| u64::from(deleted.len()));
    }
    rows
}

/// What the reader counts if it is overtaken at a request; none if it makes fewer.
async fn overtaken(root: &Path, has_looked: bool, has_begun: bool, at: u64) -> Option<u64> {
    let table = changed(root).await;
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let reader = Table::open_layered(root.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    if has_looked {
        reader.snapshot().await.unwrap();
    }
    let other = Other::new(&table, has_begun).await;
    let (stops, mut stopped) = Stops::new(Some(at));
    log.hook.set(Hook(Box::new(move || stops.step(false)))).unwrap();
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
