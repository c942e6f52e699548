//! Storage that fails: afterwards there is the old snapshot or the new one, never a mix.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use lakemark_table::{BuildOptions, ErrorKind, FileProbe, Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::{create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, spec};
use crate::layer::{Layer, Log};

/// A table in memory behind a layer; the data come from a local folder.
async fn in_memory(files: usize) -> Arc<dyn ObjectStore> {
    let folder = folder(files);
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for file in 0..files {
        let name = format!("f{file:04}.parquet");
        let bytes = std::fs::read(folder.path().join(&name)).unwrap();
        memory.put(&Path::from(format!("t/{name}")), PutPayload::from(bytes)).await.unwrap();
    }
    memory
}

async fn open_in(memory: &Arc<dyn ObjectStore>, log: &Arc<Log>) -> lakemark_table::Result<Arc<Table>> {
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(memory), log);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await
}

#[tokio::test]
async fn a_remote_table_is_indexed_and_probed() {
    let memory = in_memory(2).await;
    let table = open_in(&memory, &Log::new()).await.unwrap();
    create_indexes(&table).await;
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_storage_that_fails_at_any_operation_leaves_the_old_or_the_new_snapshot() {
    let quiet = Log::new();
    let mut failures = 0;
    for fail_from in 1.. {
        let memory = in_memory(2).await;
        let table = open_in(&memory, &quiet).await.unwrap();
        table.create_index(spec("k"), false).await.unwrap();
        let log = Log::new();
        let table = open_in(&memory, &log).await.unwrap();
        log.clear();
        log.fail_from.store(fail_from, Ordering::SeqCst);
        let built = table.build(BuildOptions::default()).await;
        let after = open_in(&memory, &quiet).await.unwrap().snapshot().await.unwrap();
        let found = probe(&after, &equals("k", 3)).await;
        match built {
            Ok(report) => {
                assert_eq!(report.segments, 1);
                assert_eq!(after.indexes()[0].coverage, 1.0);
                break;
            }
            Err(error) => {
                failures += 1;
                assert_eq!(error.kind(), ErrorKind::Io, "operation {fail_from}: {error}");
                // The commit may be made where the look whether it counts had no answer.
                if after.indexes()[0].coverage > 0.0 {
                    assert!(error.to_string().contains("whether the change was made cannot be told"), "{error}");
                    assert_eq!(after.indexes()[0].coverage, 1.0);
                    continue;
                }
                assert_eq!(after.indexes()[0].coverage, 0.0);
                assert_eq!(found.files[..], [FileProbe::Unknown, FileProbe::Unknown]);
            }
        }
        // What was begun is finished by the next build.
        let report = open_in(&memory, &quiet).await.unwrap().build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.files, report.segments + report.taken_over), (2, 1));
    }
    assert!(failures >= 8, "{failures}");
}

#[tokio::test]
async fn a_full_disk_says_that_nothing_is_lost() {
    let memory = in_memory(1).await;
    let log = Log::new();
    let table = open_in(&memory, &log).await.unwrap();
    create_indexes(&table).await;
    // Before each of the two commits somebody else makes one, so that both take the same operations.
    let declare_s = async || {
        open_in(&memory, &Log::new()).await.unwrap().create_index(spec("s"), false).await.unwrap();
        log.clear();
    };
    declare_s().await;
    table.drop_index("s_bitmap", false).await.unwrap();
    let operations = log.operations.lock().unwrap().clone();
    let put = operations.iter().position(|operation| operation.starts_with("put")).unwrap() as u64;
    declare_s().await;
    // A disk that is full can still be read.
    log.fail_at.store(put + 1, Ordering::SeqCst);
    let error = table.drop_index("k_bitmap", false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("the last snapshot is untouched"), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    log.fail_from.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].coverage, 1.0);
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_a_clear_error() {
    let folder = folder(1);
    std::fs::write(folder.path().join("_lakemark"), "a file where the store should be").unwrap();
    let table = open(folder.path()).await;
    let error = table.create_index(spec("k"), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("--store"), "{error}");
    assert_eq!(table.snapshot().await.unwrap().files().len(), 1);
    std::fs::remove_file(folder.path().join("_lakemark")).unwrap();
    table.create_index(spec("k"), false).await.unwrap();
    std::fs::write(folder.path().join("_lakemark/indexes"), "a file where the folder of segments should be").unwrap();
    let error = table.build(BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("the last snapshot is untouched"), "{error}");
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].coverage, 0.0);
}

/// Set in the process that is to run out of disk; its value is the table.
const FULL_DISK: &str = "LAKEMARK_TEST_FULL_DISK";

#[tokio::test]
async fn a_disk_that_fills_up_in_the_middle_of_a_build_loses_nothing() {
    if let Ok(root) = std::env::var(FULL_DISK) {
        let table = open(std::path::Path::new(&root)).await;
        for memory_bytes in [None, Some(1)] {
            let error = table.build(BuildOptions { memory_bytes, ..BuildOptions::default() }).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("the last snapshot is untouched"), "{error}");
        }
        return;
    }
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let distinct: Int32Array = (0..30_000).map(|row| Some(row * 7)).collect();
    let batch = RecordBatch::try_from_iter([("k", Arc::new(distinct) as ArrayRef)]).unwrap();
    crate::fixture::write(&folder.path().join("f0001.parquet"), &batch);
    // Files of this process and its children may have 16 KiB.
    let test = "faults::a_disk_that_fills_up_in_the_middle_of_a_build_loses_nothing";
    let script = format!("trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact {test}");
    let program = std::env::current_exe().unwrap();
    let done = std::process::Command::new("bash")
        .args(["-c", &script])
        .arg(program)
        .env(FULL_DISK, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    let index_files = std::fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap();
    assert_eq!(index_files.count(), 1, "temporary files are removed");
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[0]), rows_of(&k_values(0, 250), 3));
    assert_eq!(found.files[1], FileProbe::Unknown);
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().rows, 30_000);
}
