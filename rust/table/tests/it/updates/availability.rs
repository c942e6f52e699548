//! What is refused leaves nothing, what died stops nobody, and what others left can be cleaned up.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use deltalake_core::protocol::checkpoints::create_checkpoint;
use lakemark_table::{BuildOptions, ErrorKind, MigrateOptions, Operation, Table, TableOptions};

use super::reading::rows_of;
use super::restores::lake;
use super::{batch, folder, keyed, make, numbers, row, rows};
use crate::fixture::{open, write};
use crate::layer::{Layer, Log};

fn bytes_of(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

async fn small(path: &Path, cache_bytes: u64) -> Arc<Table> {
    let table = open(path).await;
    let options = [("page_bytes", "512".to_owned()), ("cache_bytes", cache_bytes.to_string())];
    let options: BTreeMap<String, String> = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    table
}

fn long(from: i64, count: i64, text: &str) -> RecordBatch {
    let texts: Vec<String> =
        (from..from + count).map(|key| format!("{text} {key} {:x}", key.wrapping_mul(0x1e37_79b9_7f4a_7c15))).collect();
    batch(&(from..).zip(&texts).map(|(key, text)| (key, Some(1), Some(text.as_str()))).collect::<Vec<_>>())
}

#[tokio::test]
async fn calls_that_are_refused_leave_no_run_behind() {
    let folder = folder();
    let table = small(folder.path(), 16 * 1024).await;
    let mut key = 10_000;
    let refused = loop {
        match make(&table, Operation::Upsert, long(key, 200, "full")).await {
            Ok(_) => key += 200,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::CacheFull);
    let updates = folder.path().join("_lakemark/updates");
    let before = bytes_of(&updates);
    for _ in 0..10 {
        let error = make(&table, Operation::Upsert, long(key, 200, "full")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CacheFull);
    }
    assert_eq!(bytes_of(&updates), before);
}

/// A store that does not answer is neither damaged nor without updates: nobody reads on as if nothing were buffered.
#[tokio::test]
async fn what_is_buffered_is_not_left_out_where_the_store_does_not_answer() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Upsert, batch(&[(2, Some(7), Some("up"))])).await.unwrap();
    table.flush().await.unwrap();
    make(&table, Operation::Upsert, batch(&[(4, Some(7), Some("up"))])).await.unwrap();
    let expected = rows(&table).await;
    let mut errors = 0;
    for failing in [1, 2, 3, 4, 1000] {
        for fails_from in 1.. {
            let operations = Log::new();
            let layer = |store| Layer::over(store, &operations);
            let location = folder.path().to_str().unwrap();
            let reader = Table::open_layered(location, TableOptions::default(), &layer).await.unwrap();
            let first = operations.count() + fails_from;
            operations.fail_until.store(first + failing, Ordering::SeqCst);
            operations.fail_from.store(first, Ordering::SeqCst);
            let snapshot = reader.snapshot().await;
            let is_over = operations.count() < first;
            operations.fail_from.store(u64::MAX, Ordering::SeqCst);
            let at = format!("{failing} from {fails_from} on");
            match snapshot {
                Ok(snapshot) => assert!(rows_of(&snapshot) == expected, "{at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{at}: {error}");
                    errors += 1;
                }
            }
            if is_over {
                break;
            }
        }
    }
    assert!(errors > 3, "{errors}");
}

/// A state that is remembered reads on in the log as it is asked: the commits that it was read from may be gone, and a checkpoint has them.
#[tokio::test]
async fn a_log_that_is_cleaned_up_stops_nobody_who_has_the_table_open() {
    let lake = lake();
    let (open, name) = (open(lake.root()).await, |version: u64| format!("_delta_log/{version:020}.json"));
    assert_eq!(rows(&open).await.len(), 20);
    let url = url::Url::from_directory_path(lake.root()).unwrap();
    create_checkpoint(&deltalake_core::open_table(url).await.unwrap(), None).await.unwrap();
    (0..)
        .map(name)
        .take_while(|next| lake.root().join(next).exists())
        .collect::<Vec<_>>()
        .iter()
        .rev()
        .skip(1)
        .for_each(|older| fs::remove_file(lake.root().join(older)).unwrap());
    open.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    make(&open, Operation::Upsert, batch(&[(3, Some(2), Some("up"))])).await.unwrap();
    open.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(rows(&open).await[&3], row(2, "up"));
}

/// Its intent names runs, which stay as they are while somebody may go on with it.
#[tokio::test]
async fn a_migration_that_died_does_not_stop_the_merging_of_runs() {
    let folder = folder();
    let table = small(folder.path(), 64 * 512).await;
    make(&table, Operation::Upsert, batch(&[(1, Some(0), Some("up"))])).await.unwrap();
    // What is left when the process ends right after the intent: the progress of the real one panics.
    let dies = Arc::clone(&table);
    let died = tokio::spawn(async move {
        let options = MigrateOptions { progress: Some(Arc::new(Dies)), ..MigrateOptions::default() };
        dies.migrate(options).await
    });
    assert!(died.await.unwrap_err().is_panic());
    let table = open(folder.path()).await;
    for a in 1..40 {
        make(&table, Operation::Upsert, batch(&[(1, Some(a), Some("up"))])).await.unwrap();
        table.flush().await.unwrap();
    }
    let runs = table.updates_info().await.unwrap().unwrap().runs;
    assert!(runs.len() < 20 && runs.iter().any(|run| run.passes == 2), "{runs:?}");
    assert_eq!(rows(&table).await[&1], row(39, "up"));
    table.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(rows(&*open(folder.path()).await).await[&1], row(39, "up"));
}

struct Dies;

impl lakemark_table::Progress for Dies {
    fn start(&self, _: u64) {
        panic!("a process that ends");
    }

    fn advance(&self, _: u64) {}

    fn finish(&self) {}
}

/// The lowest keys, also where runs overlap and have many pages, as when all keys are sorted.
#[tokio::test]
async fn a_slice_has_the_lowest_keys_of_all_runs() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    for run in 0..4i64 {
        let keys: Vec<_> = (0..5000).map(|key| (1000 + key * 4 + run, Some(1))).collect();
        make(&table, Operation::Upsert, numbers(&keys)).await.unwrap();
        table.flush().await.unwrap();
    }
    for (fraction, left) in [(0.1, 18_000), (0.25, 13_000), (0.0001, 12_998)] {
        table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!(snapshot.buffered_rows().unwrap().row_count(), left);
    }
    assert_eq!(rows(&*open(folder.path()).await).await.len(), 20_300);
}

#[tokio::test]
async fn keys_that_others_doubled_or_left_null_are_cleaned_up() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    write(&folder.path().join("z.parquet"), &batch(&[(4, Some(9), Some("again"))]));
    let k: ArrayRef = Arc::new(Int64Array::from(vec![None, None]));
    let a: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let nulls = RecordBatch::try_from_iter_with_nullable([("k", Arc::clone(&k), true), ("a", a, true), ("s", s, true)])
        .unwrap();
    write(&folder.path().join("y.parquet"), &nulls);
    let hidden = |snapshot: &lakemark_table::Snapshot| snapshot.deleted_rows();
    // A statement finds the rows of a key, each with its key.
    make(&table, Operation::Delete, RecordBatch::try_from_iter_with_nullable([("k", k, true)]).unwrap()).await.unwrap();
    assert_eq!(hidden(&table.snapshot().await.unwrap()), 2);
    make(&table, Operation::Update, numbers(&[(4, Some(5)), (4, Some(5))])).await.unwrap();
    let now = rows(&table).await;
    assert_eq!((now.len(), now[&4].0), (300, Some(5)));
    let error = make(&table, Operation::Update, numbers(&[(4, Some(5)), (4, Some(6))])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    make(&table, Operation::Delete, super::keys(&[4, 4])).await.unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    fs::remove_dir_all(folder.path().join("_lakemark/indexes")).unwrap();
    let now = rows(&*open(folder.path()).await).await;
    assert_eq!((now.len(), now.get(&4)), (299, None));
}
