//! Commits of migrations that an object store carries out after the process that asked for them is gone.

use std::path::Path;
use std::sync::Arc;

use lakemark_table::{MigrateOptions, Operation, Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::lake::{Lake, PLAIN};
use super::overtaken::counted;
use super::{batch, keys, make};
use crate::layer::{Layer, Log, Lost};

/// A Delta table in an object store, with its indexes and changes in a local store.
struct Remote {
    memory: Arc<dyn ObjectStore>,
    store: tempfile::TempDir,
}

impl Remote {
    async fn new() -> Self {
        let mut lake = Lake::new(&PLAIN, false);
        let base: Vec<_> = (0..10).map(|k| (k, Some(1), Some("base"))).collect();
        let add = lake.put("f.parquet", &batch(&base));
        lake.commit(&[add]);
        let remote = Self { memory: Arc::new(InMemory::new()), store: tempfile::tempdir().unwrap() };
        remote.put(lake.root(), "f.parquet").await;
        for version in 0..2 {
            remote.put(lake.root(), &format!("_delta_log/{version:020}.json")).await;
        }
        remote
    }

    async fn put(&self, root: &Path, name: &str) {
        let bytes = std::fs::read(root.join(name)).unwrap();
        self.memory.put(&ObjectPath::from(format!("t/{name}")), PutPayload::from(bytes)).await.unwrap();
    }

    /// The table as a process has it that knows nothing yet.
    async fn open(&self, log: &Arc<Log>) -> Arc<Table> {
        let layer = |inner: Arc<dyn ObjectStore>| match inner.to_string().contains("InMemory") {
            true => Layer::over(Arc::clone(&self.memory), log),
            false => inner,
        };
        let store = Some(self.store.path().to_str().unwrap().to_owned());
        let options = TableOptions { store, ..TableOptions::default() };
        Table::open_layered("memory:///t", options, &layer).await.unwrap()
    }

    /// Rows that are in data files or buffered, and the newest version.
    async fn counted(&self) -> (u64, u64) {
        let table = self.open(&Log::new()).await;
        let snapshot = table.snapshot().await.unwrap();
        (counted(&snapshot).await, snapshot.delta_version().unwrap())
    }
}

/// A migration whose commit is under way and whose process is gone.
async fn stopped(remote: &Remote) -> Arc<Log> {
    let log = Log::new();
    let table = remote.open(&log).await;
    table.declare_key(&["k".to_owned()], &Default::default(), Default::default()).await.unwrap();
    make(&table, Operation::Upsert, batch(&[(3, Some(2), Some("up")), (20, Some(2), Some("up"))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[4])).await.unwrap();
    *log.lose.lock().unwrap() = Some(("_delta_log/", Lost::Late));
    table.migrate(MigrateOptions::default()).await.unwrap_err();
    log
}

/// Who finds the migration.
#[derive(Clone, Copy, Debug)]
enum Next {
    Writer,
    Migration,
}

#[tokio::test]
async fn law_1_a_migration_that_is_let_go_comes_no_more() {
    for next in [Next::Writer, Next::Migration] {
        for comes_before in [false, true] {
            let case = format!("{next:?} {comes_before}");
            let remote = Remote::new().await;
            let log = stopped(&remote).await;
            let version = remote.counted().await;
            assert_eq!(version, (10, 1), "{case}");
            let mut arrived = 0;
            if comes_before {
                arrived += log.arrive(&remote.memory).await;
            }
            let table = remote.open(&Log::new()).await;
            match next {
                Next::Writer => {
                    make(&table, Operation::Upsert, batch(&[(30, Some(3), None)])).await.unwrap();
                    table.flush().await.unwrap();
                }
                Next::Migration => drop(table.migrate(MigrateOptions::default()).await.unwrap()),
            }
            arrived += log.arrive(&remote.memory).await;
            assert_eq!(arrived, usize::from(comes_before), "{case}");
            let writes = u64::from(matches!(next, Next::Writer));
            assert_eq!(remote.counted().await.0, 10 + writes, "{case}");
            remote.open(&Log::new()).await.migrate(MigrateOptions::default()).await.unwrap();
            assert_eq!(remote.counted().await.0, 10 + writes, "{case}");
        }
    }
}

/// Whoever looks at it again and again lets go of it once.
#[tokio::test]
async fn a_migration_is_let_go_once() {
    let remote = Remote::new().await;
    stopped(&remote).await;
    for _ in 0..2 {
        let options = MigrateOptions { threshold: Some(0.9), ..MigrateOptions::default() };
        remote.open(&Log::new()).await.migrate(options).await.unwrap();
        assert_eq!(remote.counted().await, (10, 2));
    }
}

/// A version that lacks what a feature asks for would break the table for others.
#[tokio::test]
async fn nobody_lets_go_of_a_migration_of_a_table_that_cannot_be_written_any_more() {
    let remote = Remote::new().await;
    stopped(&remote).await;
    let protocol = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors","somethingNew"]}}"#;
    let version = ObjectPath::from(format!("t/_delta_log/{:020}.json", 2));
    remote.memory.put(&version, PutPayload::from(protocol)).await.unwrap();
    let table = remote.open(&Log::new()).await;
    let error = table.migrate(MigrateOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("somethingNew"), "{error}");
    make(&table, Operation::Upsert, batch(&[(30, Some(3), None)])).await.unwrap();
    table.flush().await.unwrap();
    assert_eq!(remote.counted().await, (11, 2));
}
