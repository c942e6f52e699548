//! Builds: progress, memory, cancelling, files that change meanwhile; declarations, and what a verification finds.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lakemark_index::KeyRanges;
use lakemark_table::{BuildOptions, CancelFlag, ErrorKind, FileProbe, Progress};

use crate::fixture::{
    batch, create_indexes, equals, exact_rows, folder, k_values, leaf, open, probe, rows_of, spec, spec_with, write,
};

#[derive(Default)]
struct Counter {
    total: AtomicU64,
    seen: AtomicU64,
    finished: AtomicU64,
    cancel_at: Option<(u64, CancelFlag)>,
    /// Replaced by other data as soon as rows were read.
    replace: Option<std::path::PathBuf>,
}

impl Progress for Counter {
    fn start(&self, total_rows: u64) {
        self.total.store(total_rows, Ordering::SeqCst);
    }
    fn advance(&self, rows: u64) {
        let seen = self.seen.fetch_add(rows, Ordering::SeqCst) + rows;
        if let Some((at, flag)) = &self.cancel_at
            && seen >= *at
        {
            flag.cancel();
        }
        if let Some(path) = self.replace.as_ref().filter(|_| seen == rows) {
            write(path, &batch(3, 120));
        }
    }
    fn finish(&self) {
        self.finished.fetch_add(1, Ordering::SeqCst);
    }
}

fn temporary_files(folder: &std::path::Path) -> usize {
    let names =
        fs::read_dir(folder.join("_lakemark/indexes")).map(|entries| entries.map(|entry| entry.unwrap().file_name()));
    names.map_or(0, |names| names.filter(|name| name.to_string_lossy().starts_with(".tmp")).count())
}

#[tokio::test]
async fn progress_adds_up_and_a_second_build_has_nothing_to_do() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.create_index(spec("s"), false).await.unwrap();
    let counter = Arc::new(Counter::default());
    let options = BuildOptions { progress: Some(counter.clone()), ..BuildOptions::default() };
    let report = table.build(options.clone()).await.unwrap();
    assert_eq!(
        (report.indexes, report.files, report.rows, report.segments),
        (vec!["k_bitmap".to_owned(), "s_bitmap".to_owned()], 3, 750, 2)
    );
    assert_eq!(counter.total.load(Ordering::SeqCst), 750);
    assert_eq!(counter.seen.load(Ordering::SeqCst), 750);
    assert_eq!(counter.finished.load(Ordering::SeqCst), 1);
    let number = table.snapshot().await.unwrap().manifest_number();
    let report = table.build(options).await.unwrap();
    assert_eq!((report.files, report.segments, report.bytes_written), (0, 0, 0));
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), number);
}

#[tokio::test]
async fn a_tiny_memory_budget_spills_and_gives_the_same_segment() {
    let folder = folder(4);
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.create_index(spec("s"), false).await.unwrap();
    let report = table.build(BuildOptions { memory_bytes: Some(1), ..BuildOptions::default() }).await.unwrap();
    assert_eq!(report.spilled, 2 * 4 * 3);
    assert_eq!(temporary_files(folder.path()), 0);
    let snapshot = table.snapshot().await.unwrap();
    for value in 0..10 {
        let found = probe(&snapshot, &equals("k", value)).await;
        for file in 0..4 {
            assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), value as i32));
        }
    }
    let found = probe(&snapshot, &leaf("s", KeyRanges::prefix(b"name12"))).await;
    assert_eq!(exact_rows(&found.files[0]), (0..250).filter(|row| row % 13 == 12).collect::<Vec<u32>>());
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn cancelling_in_the_middle_leaves_the_last_snapshot() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let before = table.snapshot().await.unwrap().manifest_number();
    for file in 2..6 {
        write(&folder.path().join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
    }
    let flag = CancelFlag::new();
    let counter = Arc::new(Counter { cancel_at: Some((300, flag.clone())), ..Counter::default() });
    let options = BuildOptions {
        progress: Some(counter),
        cancel: Some(flag),
        memory_bytes: Some(1),
        threads: Some(1),
        ..BuildOptions::default()
    };
    let error = table.build(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(temporary_files(folder.path()), 0);
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.manifest_number(), before);
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert_eq!(found.files[5], FileProbe::Unknown);
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 4);
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_left_out() {
    let folder = folder(3);
    let path = folder.path().join("f0001.parquet");
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    let counter = Arc::new(Counter { replace: Some(path), ..Counter::default() });
    let options = BuildOptions { progress: Some(counter), threads: Some(1), ..BuildOptions::default() };
    let report = table.build(options).await.unwrap();
    assert_eq!(report.failed.iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(), ["f0001.parquet"]);
    assert!(report.failed[0].problem.contains("changed"), "{:?}", report.failed);
    assert_eq!((report.files, report.rows), (2, 500));
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(found.files[1], FileProbe::Unknown);
    assert_eq!(exact_rows(&found.files[2]), rows_of(&k_values(500, 250), 3));
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().rows, 120);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(3, 120), 3));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn declarations_are_checked() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let kind = async |spec| table.create_index(spec, false).await.map_err(|error| error.kind());
    assert_eq!(kind(spec("nothing")).await, Err(ErrorKind::NotFound));
    assert_eq!(kind(spec_with("k", "colour", "red")).await, Err(ErrorKind::InvalidInput));
    assert_eq!(kind(spec_with("k", "files_per_segment", "0")).await, Err(ErrorKind::InvalidInput));
    assert_eq!(kind(spec_with("k", "encoding", "unary")).await, Err(ErrorKind::InvalidInput));
    let unknown = lakemark_table::kind_or_auto("tree");
    assert_eq!(unknown.map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    assert_eq!(kind(lakemark_table::IndexSpec::default()).await, Err(ErrorKind::InvalidInput));
    assert_eq!(table.build(BuildOptions::default()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(kind(spec("k")).await, Ok(true));
    assert_eq!(kind(spec("k")).await, Err(ErrorKind::AlreadyExists));
    assert!(!table.create_index(spec("k"), true).await.unwrap());
    assert_eq!(table.drop_index("x", false).await.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert!(!table.drop_index("x", true).await.unwrap());
    let info = table.snapshot().await.unwrap().indexes();
    assert_eq!(
        (info[0].name.as_str(), info[0].kind.as_str(), info[0].encoding.as_str()),
        ("k_bitmap", "bitmap", "equality")
    );
    assert_eq!((info[0].files_covered, info[0].coverage), (0, 0.0));
    assert!(table.drop_index("k_bitmap", false).await.unwrap());
    assert!(table.snapshot().await.unwrap().indexes().is_empty());
}

#[tokio::test]
async fn dropping_an_index_removes_its_segments() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    assert_eq!(fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap().count(), 1);
    table.drop_index("k_bitmap", false).await.unwrap();
    assert_eq!(fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap().count(), 0);
}

#[tokio::test]
async fn verification_tells_ok_damaged_and_stale_apart() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
    table.create_index(spec("s"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let report = table.verify().await.unwrap();
    assert_eq!(report.indexes.iter().map(|index| index.files_ok).collect::<Vec<_>>(), [3, 3]);
    assert!(report.is_ok());

    write(&folder.path().join("f0002.parquet"), &batch(1, 90));
    let report = table.verify().await.unwrap();
    assert!(report.is_ok());
    for index in &report.indexes {
        assert_eq!((index.files_ok, index.stale.len()), (2, 1), "{index:?}");
        assert_eq!(index.stale[0].path, "f0002.parquet");
    }

    let mut segments: Vec<_> =
        fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    for segment in &segments {
        let mut bytes = fs::read(segment).unwrap();
        bytes[70] ^= 1;
        fs::write(segment, bytes).unwrap();
    }
    fs::remove_file(&segments[0]).unwrap();
    let report = table.verify().await.unwrap();
    assert!(!report.is_ok());
    assert_eq!(report.indexes.iter().map(|index| index.damaged.len()).sum::<usize>(), 4);
    let problems: Vec<&str> =
        report.indexes.iter().flat_map(|index| &index.damaged).map(|finding| finding.problem.as_str()).collect();
    assert_eq!(problems.iter().filter(|problem| problem.contains("missing")).count(), 1);
}
