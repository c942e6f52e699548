//! What a table counts: each handle by itself, and what builds, compactions and failures are.

use std::fs;

use lakemark_table::{BuildOptions, CancelFlag, Table, TableOptions};

use crate::fixture::{batch, create_indexes, equals, folder, open, probe, segments, spec, write};

#[tokio::test]
async fn a_build_counts_its_files_rows_segments_and_commits() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    let report = create_indexes(&table).await;
    let metrics = table.metrics();
    assert_eq!((metrics.indexed_files.get(), metrics.indexed_rows.get()), (3, 750));
    assert_eq!((metrics.segments_written.get(), metrics.segment_bytes_written.get()), (1, report.bytes_written));
    assert_eq!(report.bytes_written, fs::metadata(&segments(folder.path())[0]).unwrap().len());
    // The declaration, and the segment.
    assert_eq!((metrics.commits.get(), metrics.commit_retries.get()), (2, 0));
    assert_eq!((metrics.build.runs.get(), metrics.build.failures.get()), (1, 0));
    assert!(metrics.get.requests.get() > 0 && metrics.get.bytes.get() > 0 && metrics.list.requests.get() > 0);
    assert_eq!(metrics.get.failures.get() + metrics.list.failures.get() + metrics.head.failures.get(), 0);
}

#[tokio::test]
async fn each_handle_counts_by_itself() {
    let folder = folder(1);
    let (one, other) = (open(folder.path()).await, open(folder.path()).await);
    create_indexes(&one).await;
    assert_eq!((one.metrics().build.runs.get(), other.metrics().build.runs.get()), (1, 0));
    let before = one.metrics().get.requests.get();
    probe(&other.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(one.metrics().get.requests.get(), before);
    assert!(other.metrics().get.requests.get() > 0);
}

#[tokio::test]
async fn a_handle_at_a_version_counts_for_the_one_that_it_was_made_of() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let number = table.snapshot().await.unwrap().manifest_number().unwrap();
    let before = table.metrics().list.requests.get();
    table.at_version(number).snapshot().await.unwrap();
    assert!(table.metrics().list.requests.get() > before);
}

#[tokio::test]
async fn a_run_that_fails_is_a_failure_and_one_that_was_stopped_is_none() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    assert!(table.build(BuildOptions::default()).await.is_err(), "nothing is declared");
    table.create_index(spec("k"), false).await.unwrap();
    let cancel = CancelFlag::new();
    cancel.cancel();
    assert!(table.build(BuildOptions { cancel: Some(cancel), ..BuildOptions::default() }).await.is_err());
    let metrics = table.metrics();
    assert_eq!((metrics.build.runs.get(), metrics.build.failures.get()), (2, 1));
}

#[tokio::test]
async fn a_compaction_counts_what_it_writes() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    for file in 1..4 {
        write(&folder.path().join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
        table.build(BuildOptions::default()).await.unwrap();
    }
    let before = table.metrics().segments_written.get();
    let report = table.compact(BuildOptions::default()).await.unwrap();
    let metrics = table.metrics();
    assert_eq!((report.segments_written, metrics.segments_written.get() - before), (1, 1));
    assert_eq!((metrics.compact.runs.get(), metrics.build.runs.get()), (1, 4));
}

#[tokio::test]
async fn the_requests_of_a_store_elsewhere_count_for_its_table() {
    let folder = folder(1);
    let options = TableOptions { store: Some("memory:///indexes".into()), ..TableOptions::default() };
    let table = Table::open(folder.path().to_str().unwrap(), options).await.unwrap();
    let report = create_indexes(&table).await;
    let put = &table.metrics().put;
    // Two manifests, a claim and a segment.
    assert_eq!(put.requests.get(), 4);
    assert!(put.bytes.get() > report.bytes_written);
}
