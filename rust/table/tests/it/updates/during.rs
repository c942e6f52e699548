//! Updates that are made while a migration writes older changes of their rows, and what becomes of those rows afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use lakemark_table::{BuildOptions, MigrateOptions, Operation, Progress, StagedRows, Table, WriteOptions};
use tokio::task::JoinHandle;

use super::lake::{Lake, PLAIN};
use super::stops::{Stops, Waiting};
use super::{Row, batch, folder, keys, make, numbers, row, rows};
use crate::fixture::{open, write};

/// Where updates are that come while a migration is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    InTheLog,
    InARun,
    /// In two runs, of which the second updates rows of the first.
    InTwoRuns,
    /// By a call that goes straight to a run.
    Staged,
}

const EACH: [Made; 4] = [Made::InTheLog, Made::InARun, Made::InTwoRuns, Made::Staged];

/// Ten rows in two files, and what is buffered: keys 5 and 30 as whole rows, 6 as deleted, 7 with another number.
async fn lake() -> (Lake, Arc<Table>) {
    let mut lake = Lake::new(&PLAIN, false);
    let base = |keys: std::ops::Range<i64>| keys.map(|k| (k, Some(1), Some("base"))).collect::<Vec<_>>();
    let adds = [lake.put("f.parquet", &batch(&base(0..5))), lake.put("g.parquet", &batch(&base(5..10)))];
    lake.commit(&adds);
    let table = buffered(lake.root()).await;
    (lake, table)
}

async fn buffered(root: &Path) -> Arc<Table> {
    let table = open(root).await;
    let options = [("page_bytes", "512"), ("cache_bytes", "131072")];
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    make(&table, Operation::Upsert, batch(&[(5, Some(2), Some("up")), (30, Some(2), Some("up"))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[6])).await.unwrap();
    make(&table, Operation::Update, numbers(&[(7, Some(7))])).await.unwrap();
    table
}

fn texts(rows: &[(i64, &str)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
    RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap()
}

/// Begins a migration, which waits until it may go on.
async fn begun(table: &Arc<Table>, fraction: f64) -> (JoinHandle<()>, Waiting) {
    let (stops, mut stopped) = Stops::new(Some(0));
    let (table, progress) = (Arc::clone(table), Some(stops as Arc<dyn Progress>));
    let options = MigrateOptions { fraction, progress, ..MigrateOptions::default() };
    let migration = tokio::spawn(async move {
        table.migrate(options).await.unwrap();
    });
    (migration, stopped.recv().await.unwrap())
}

/// Numbers of 5, 6 and 30, the text of 7.
async fn update(table: &Arc<Table>, made: Made) {
    let numbers = numbers(&[(5, Some(50)), (6, Some(60)), (30, Some(300))]);
    if made == Made::Staged {
        make(table, Operation::Update, texts(&[(7, "set")])).await.unwrap();
        let mut staging = table.stage(Operation::Update).await.unwrap();
        staging.write(numbers).await.unwrap();
        let mut staged: Vec<StagedRows> = staging.finish().await.unwrap();
        // More than a buffer of this table holds.
        let mut many = table.stage(Operation::Upsert).await.unwrap();
        let text = "x".repeat(40);
        let rows: Vec<_> = (1000..1400).map(|k| (k, Some(1), Some(text.as_str()))).collect();
        many.write(batch(&rows)).await.unwrap();
        staged.extend(many.finish().await.unwrap());
        table.write_staged(&staged, WriteOptions::default()).await.unwrap();
        return make(table, Operation::Delete, keys(&(1000..1400).collect::<Vec<_>>())).await.map(drop).unwrap();
    }
    if made == Made::InTwoRuns {
        make(table, Operation::Update, texts(&[(7, "soon another")])).await.unwrap();
        make(table, Operation::Update, super::numbers(&[(5, Some(-1)), (6, Some(-1)), (30, Some(-1))])).await.unwrap();
        table.flush().await.unwrap();
    }
    make(table, Operation::Update, numbers).await.unwrap();
    make(table, Operation::Update, texts(&[(7, "set")])).await.unwrap();
    if made != Made::InTheLog {
        table.flush().await.unwrap();
    }
}

/// So many runs that some are merged.
async fn merge(table: &Arc<Table>) {
    for number in 0..30 {
        make(table, Operation::Update, numbers(&[(0, Some(number))])).await.unwrap();
        table.flush().await.unwrap();
    }
    let runs = table.updates_info().await.unwrap().unwrap().runs;
    assert!(runs.iter().any(|run| run.passes == 2), "{runs:?}");
}

/// Rows of the keys that were changed, by whoever has the table open and by others, with indexes and without.
async fn seen(table: &Arc<Table>, root: &Path) -> [Option<Row>; 4] {
    let of = |rows: BTreeMap<i64, Row>| [5, 30, 6, 7].map(|key| rows.get(&key).cloned());
    let first = of(rows(table).await);
    assert_eq!(of(rows(&*open(root).await).await), first, "by another process");
    std::fs::remove_dir_all(root.join("_lakemark/indexes")).ok();
    assert_eq!(of(rows(&*open(root).await).await), first, "without indexes");
    first
}

fn after_updates() -> [Option<Row>; 4] {
    [Some(row(50, "up")), Some(row(300, "up")), None, Some(row(7, "set"))]
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_during_a_migration_set_their_columns_in_rows_that_others_write_afterwards() {
    for made in EACH {
        for fraction in [1.0, 0.99] {
            let (mut lake, table) = lake().await;
            let (migration, go) = begun(&table, fraction).await;
            let other = open(lake.root()).await;
            update(&other, made).await;
            assert_eq!(seen(&other, lake.root()).await, after_updates(), "{made:?} while it is under way");
            go.send(()).unwrap();
            migration.await.unwrap();
            assert_eq!(seen(&table, lake.root()).await, after_updates(), "{made:?} once it is done");
            // Others write 5 and 7 anew, delete 30, and insert 6.
            let mut actions: Vec<_> = lake.files().iter().map(|file| Lake::removes(file)).collect();
            let theirs = [(5, Some(9), Some("other")), (6, Some(9), Some("other")), (7, Some(9), Some("other"))];
            actions.push(lake.put("h.parquet", &batch(&theirs)));
            lake.commit(&actions);
            let merged = [Some(row(50, "other")), None, Some(row(60, "other")), Some(row(9, "set"))];
            assert_eq!(seen(&table, lake.root()).await, merged, "{made:?}");
            table.migrate(MigrateOptions::default()).await.unwrap();
            assert_eq!(seen(&table, lake.root()).await, merged, "{made:?}, migrated");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_during_a_migration_count_over_what_a_restore_brings_back() {
    for (made, merges_meanwhile) in EACH.into_iter().flat_map(|made| [(made, false), (made, true)]) {
        let (mut lake, table) = lake().await;
        let (migration, go) = begun(&table, 1.0).await;
        let other = open(lake.root()).await;
        update(&other, made).await;
        if merges_meanwhile {
            merge(&other).await;
        }
        go.send(()).unwrap();
        migration.await.unwrap();
        lake.restore(&["f.parquet", "g.parquet"]);
        let restored = [Some(row(50, "base")), None, Some(row(60, "base")), Some(row(1, "set"))];
        assert_eq!(seen(&table, lake.root()).await, restored, "{made:?}, merges meanwhile: {merges_meanwhile}");
        merge(&table).await;
        assert_eq!(seen(&table, lake.root()).await, restored, "{made:?}, merged");
        table.migrate(MigrateOptions::default()).await.unwrap();
        assert_eq!(seen(&table, lake.root()).await, restored, "{made:?}, migrated");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_during_a_migration_keep_what_was_buffered_if_it_is_abandoned() {
    for made in EACH {
        for merges in [false, true] {
            let (lake, table) = lake().await;
            let (migration, go) = begun(&table, 1.0).await;
            let other = open(lake.root()).await;
            update(&other, made).await;
            // Whoever made it is gone.
            migration.abort();
            drop(go);
            assert!(migration.await.is_err());
            assert_eq!(seen(&other, lake.root()).await, after_updates(), "{made:?}");
            if merges {
                merge(&other).await;
                assert_eq!(seen(&other, lake.root()).await, after_updates(), "{made:?}, merged");
            }
            other.migrate(MigrateOptions::default()).await.unwrap();
            assert_eq!(seen(&other, lake.root()).await, after_updates(), "{made:?}, migrated");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_during_a_migration_of_a_folder_set_their_columns_in_files_that_others_write_afterwards() {
    for made in EACH {
        let folder = folder();
        let root = folder.path();
        let table = buffered(root).await;
        let (migration, go) = begun(&table, 1.0).await;
        let other = open(root).await;
        update(&other, made).await;
        let meanwhile = seen(&other, root).await;
        go.send(()).unwrap();
        migration.await.unwrap();
        assert_eq!(seen(&table, root).await, meanwhile, "{made:?}");
        assert_eq!(meanwhile[..2], [Some(row(50, "up")), Some(row(300, "up"))]);
        table.publish().await.unwrap();
        assert_eq!(seen(&table, root).await, meanwhile, "{made:?}, published");
        // Others write all files anew, with other rows for these keys.
        for entry in std::fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "parquet") {
                std::fs::remove_file(path).unwrap();
            }
        }
        let theirs = [(5, Some(9), Some("other")), (6, Some(9), Some("other"))];
        write(&root.join("h.parquet"), &batch(&theirs));
        let merged = [Some(row(50, "other")), None, Some(row(60, "other")), None];
        assert_eq!(seen(&table, root).await, merged, "{made:?}");
    }
}
