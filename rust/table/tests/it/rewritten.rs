//! Data files that others write into, link and touch without a trace in their size and time.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use lakemark_table::{BuildOptions, FileProbe, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::fixture::{create_indexes, equals, exact_rows, open, probe, write};
use crate::layer::{Layer, Log};

/// A file of 100 rows of one value; whatever the value, it has the same length.
fn write_value(path: &Path, value: i32) {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![value; 100]));
    write(path, &RecordBatch::try_from_iter([("k", values)]).unwrap());
}

/// Writes other bytes of the same length into a file and sets its time back, as `rsync --inplace -t` and `touch -r` do.
fn write_over(path: &Path, other: &Path) {
    let before = fs::metadata(path).unwrap();
    let bytes = fs::read(other).unwrap();
    assert_eq!(bytes.len() as u64, before.len());
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    drop(file);
    let after = fs::metadata(path).unwrap();
    let identity = |of: &fs::Metadata| (of.ino(), of.len(), of.modified().unwrap());
    assert_eq!(identity(&after), identity(&before));
}

fn table_of(value: i32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_value(&folder.path().join("f.parquet"), value);
    folder
}

#[tokio::test]
async fn law_1_a_file_that_is_written_over_with_its_size_and_time_is_not_taken_for_the_old_one() {
    let (folder, other) = (table_of(1), table_of(5));
    let path = folder.path().join("f.parquet");
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let before = table.snapshot().await.unwrap();
    assert_eq!(exact_rows(&probe(&before, &equals("k", 1)).await.files[0]).len(), 100);
    write_over(&path, &other.path().join("f.parquet"));
    // Whoever has the table open, and whoever opens it anew.
    for table in [Arc::clone(&table), open(folder.path()).await] {
        let snapshot = table.snapshot().await.unwrap();
        let found = probe(&snapshot, &equals("k", 5)).await;
        assert!(matches!(found.files[0], FileProbe::Unknown), "{:?}", found.files[0]);
        assert!(!table.verify().await.unwrap().is_ok() || snapshot.indexes()[0].files_covered == 0);
    }
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 1);
    let after = table.snapshot().await.unwrap();
    assert_eq!(exact_rows(&probe(&after, &equals("k", 5)).await.files[0]).len(), 100);
    assert_eq!(exact_rows(&probe(&after, &equals("k", 1)).await.files[0]).len(), 0);
}

#[tokio::test]
async fn a_file_that_gets_a_link_or_other_permissions_is_taken_over_by_the_next_build() {
    let folder = table_of(1);
    let path = folder.path().join("f.parquet");
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    fs::hard_link(&path, folder.path().join("copy")).unwrap();
    let steps: [&dyn Fn(); 2] = [&|| fs::remove_file(folder.path().join("copy")).unwrap(), &|| {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    }];
    for step in steps {
        // The hashes say that it is the same: it is of use, and not indexed again.
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!(snapshot.indexes()[0].files_covered, 0);
        assert_eq!(exact_rows(&probe(&snapshot, &equals("k", 1)).await.files[0]).len(), 100);
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.adopted, report.files), (1, 0));
        assert_eq!(table.snapshot().await.unwrap().indexes()[0].files_covered, 1);
        step();
    }
}

/// Without tags, as a web server or an old file system has them, only size and time are left.
#[tokio::test]
async fn law_1_without_tags_a_file_that_was_young_when_it_was_indexed_is_compared_first() {
    let (folder, other) = (table_of(1), table_of(5));
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let place = StorePath::from("t/f.parquet");
    let bytes = fs::read(folder.path().join("f.parquet")).unwrap();
    memory.put(&place, bytes.into()).await.unwrap();
    let log = Log::new();
    log.hide_tags.store(true, std::sync::atomic::Ordering::SeqCst);
    // Its clock goes before ours, so that the file stays young however long the test takes.
    *log.time.lock().unwrap() = Some((SystemTime::now() + std::time::Duration::from_secs(3600)).into());
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(&memory), &log);
    let table = lakemark_table::Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap();
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.indexes()[0].files_covered, 0, "it was written a moment ago");
    assert_eq!(exact_rows(&probe(&snapshot, &equals("k", 1)).await.files[0]).len(), 100);
    // Other bytes under the same time, as far as anybody can see.
    let bytes = fs::read(other.path().join("f.parquet")).unwrap();
    memory.put(&place, bytes.into()).await.unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 5)).await;
    assert!(!matches!(&found.files[0], FileProbe::Known { .. }), "{:?}", found.files[0]);
}
