//! Touched files: the same bytes under another time keep their indexes.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lakemark_table::{BuildOptions, BuildReport, Table, TableOptions};
use object_store::ObjectStore;

use crate::fixture::{create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, segments, spec};
use crate::layer::{Layer, Log};

fn touch(path: &Path) {
    let later = SystemTime::now() + Duration::from_secs(10);
    File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
}

async fn build(table: &Table) -> BuildReport {
    table.build(BuildOptions::default()).await.unwrap()
}

/// Reads of data files that opening a table afresh and probing it take.
async fn data_reads(folder: &Path) -> usize {
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert_eq!(found.report.coverage, 1.0);
    log.matching(".parquet").len()
}

async fn coverage(table: &Table) -> Vec<(u64, f64, u64)> {
    let indexes = table.snapshot().await.unwrap().indexes();
    indexes.iter().map(|index| (index.files_covered, index.coverage, index.rows)).collect()
}

#[tokio::test]
async fn a_touched_file_is_taken_over_without_indexing_it_again() {
    let folder = folder(4);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let before = segments(folder.path());
    assert_eq!(data_reads(folder.path()).await, 0);
    touch(&folder.path().join("f0001.parquet"));
    // It is of use all the same, but only after its bytes were read.
    assert_eq!(coverage(&table).await, [(3, 0.75, 750)]);
    assert!(data_reads(folder.path()).await > 0);
    let report = build(&table).await;
    assert_eq!((report.adopted, report.files, report.segments, report.bytes_written), (1, 0, 0, 0));
    assert_eq!(segments(folder.path()), before);
    assert_eq!(coverage(&table).await, [(4, 1.0, 1000)]);
    assert_eq!(data_reads(folder.path()).await, 0);
    let number = table.snapshot().await.unwrap().manifest_number();
    assert_eq!(build(&table).await.adopted, 0);
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), number);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn every_file_of_a_copy_without_times_is_taken_over() {
    let folder = folder(20);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    for file in 0..20 {
        touch(&folder.path().join(format!("f{file:04}.parquet")));
    }
    assert_eq!(coverage(&table).await, [(0, 0.0, 0)]);
    let report = table.build(BuildOptions { threads: Some(3), ..BuildOptions::default() }).await.unwrap();
    assert_eq!((report.adopted, report.segments), (20, 0));
    assert_eq!(coverage(&table).await, [(20, 1.0, 5000)]);
}

#[tokio::test]
async fn a_touched_file_that_a_new_index_lacks_is_taken_over_and_read_for_that_index() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let first = segments(folder.path());
    touch(&folder.path().join("f0002.parquet"));
    table.create_index(spec("s"), false).await.unwrap();
    let report = build(&table).await;
    assert_eq!((report.adopted, report.files, report.indexes), (1, 3, vec!["s_bitmap".to_owned()]));
    assert!(segments(folder.path()).contains(&first[0]));
    assert_eq!(coverage(&table).await, [(3, 1.0, 750), (3, 1.0, 750)]);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn other_bytes_of_the_same_length_are_indexed_again() {
    let folder = folder(2);
    let path = folder.path().join("f0001.parquet");
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    // The magic number at the beginning is read by nobody, so that the file still can be; its bytes are not in any hash.
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] = b'Q';
    fs::write(&path, &bytes).unwrap();
    touch(&path);
    assert_eq!(build(&table).await.adopted, 1);
    // A bit of the column's first page is in the hash of the column.
    bytes[10] ^= 1;
    fs::write(&path, &bytes).unwrap();
    touch(&path);
    let built = table.build(BuildOptions::default()).await;
    assert!(built.is_err() || built.unwrap().adopted == 0);
}

#[tokio::test]
async fn a_touched_file_whose_segment_is_gone_is_indexed_again() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let before = segments(folder.path());
    fs::remove_file(&before[0]).unwrap();
    touch(&folder.path().join("f0000.parquet"));
    touch(&folder.path().join("f0001.parquet"));
    // Another process: this one remembers the directory of the segment.
    let copy = tempfile::tempdir().unwrap();
    crate::probing::copy_tree(folder.path(), copy.path());
    let table = open(copy.path()).await;
    let report = build(&table).await;
    assert_eq!((report.adopted, report.files, report.segments), (0, 2, 1));
    assert_eq!(coverage(&table).await, [(2, 1.0, 500)]);
}

#[tokio::test]
async fn an_index_of_a_column_with_another_type_covers_nothing() {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    assert_eq!(coverage(&table).await, [(1, 1.0, 250)]);
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("k", other)]).unwrap();
    crate::fixture::write(&folder.path().join("f0000.parquet"), &batch);
    assert_eq!(coverage(&table).await, [(0, 0.0, 0)]);
}
