//! Commits of a build while it runs: what is finished stays, whatever becomes of the rest, and the next build goes on from there.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lakemark_table::{BuildOptions, CancelFlag, ErrorKind, Progress, Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::{equals, exact_rows, folder, k_values, open, probe, rows_of, segments, spec_with};
use crate::layer::{Hold, Layer, Log};

const FILES: usize = 6;

/// Six files, each with a segment of its own.
async fn declared(path: &Path) -> Arc<Table> {
    let table = open(path).await;
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
    table
}

/// A commit for each group of files that is finished.
fn at_once() -> BuildOptions {
    BuildOptions { commit_every: Some(Duration::ZERO), threads: Some(1), ..BuildOptions::default() }
}

fn manifests(path: &Path) -> usize {
    fs::read_dir(path.join("_lakemark/manifest")).unwrap().count()
}

async fn covered(table: &Table) -> u64 {
    table.snapshot().await.unwrap().checked_indexes().await.unwrap()[0].files_covered
}

async fn check(table: &Table) {
    assert_eq!(covered(table).await, FILES as u64);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    for file in 0..FILES {
        assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "file {file}");
    }
    assert!(table.verify().await.unwrap().is_ok());
}

/// Requests a stop after so many rows.
struct StopsAfter {
    rows: u64,
    seen: AtomicU64,
    flag: CancelFlag,
}

impl Progress for StopsAfter {
    fn start(&self, _total_rows: u64) {}
    fn advance(&self, rows: u64) {
        if self.seen.fetch_add(rows, Ordering::SeqCst) + rows >= self.rows {
            self.flag.cancel();
        }
    }
    fn finish(&self) {}
}

#[tokio::test]
async fn what_is_finished_when_a_build_is_stopped_is_committed() {
    for (commit_every, commits) in [(Some(Duration::ZERO), 2), (None, 1)] {
        let folder = folder(FILES);
        let table = declared(folder.path()).await;
        let flag = CancelFlag::new();
        let stops = StopsAfter { rows: 600, seen: AtomicU64::new(0), flag: flag.clone() };
        let options = BuildOptions {
            commit_every,
            threads: Some(1),
            progress: Some(Arc::new(stops)),
            cancel: Some(flag),
            ..BuildOptions::default()
        };
        let before = manifests(folder.path());
        let error = table.build(options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(error.to_string().contains("2 of 6 tasks of the build are committed"), "{error}");
        assert!(error.to_string().contains("another run goes on"), "{error}");
        assert_eq!((covered(&table).await, manifests(folder.path()) - before), (2, commits));
        assert_eq!(segments(folder.path()).len(), 2, "of the group in hand nothing is left");
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.files, report.segments), (4, 4));
        check(&table).await;
    }
}

#[tokio::test]
async fn commits_are_made_in_time_and_the_report_is_about_all_of_them() {
    let mut reports = Vec::new();
    for (commit_every, commits) in [(Duration::ZERO, FILES), (Duration::from_secs(3600), 1)] {
        let folder = folder(FILES);
        let table = declared(folder.path()).await;
        let before = manifests(folder.path());
        let options = BuildOptions { commit_every: Some(commit_every), ..BuildOptions::default() };
        let mut report = table.build(options).await.unwrap();
        assert_eq!(manifests(folder.path()) - before, commits);
        check(&table).await;
        report.seconds = 0.0;
        reports.push(report);
    }
    assert_eq!((reports[0].files, reports[0].rows, reports[0].segments), (FILES as u64, FILES as u64 * 250, 6));
    assert_eq!(reports[0], reports[1]);
}

/// Does something when a build begins to read.
struct Begins(Box<dyn Fn() + Send + Sync>);

impl Progress for Begins {
    fn start(&self, _total_rows: u64) {
        (self.0)();
    }
    fn advance(&self, _rows: u64) {}
    fn finish(&self) {}
}

/// The second file is read once the manifest names the segment of the first one, and not before.
#[tokio::test]
async fn what_is_finished_is_committed_while_a_long_group_is_read() {
    let folder = folder(FILES);
    declared(folder.path()).await;
    let before = manifests(folder.path());
    let (log, begun, path) = (Log::new(), Arc::new(AtomicBool::new(false)), folder.path().to_owned());
    let is_free = {
        let begun = Arc::clone(&begun);
        move || !begun.load(Ordering::SeqCst) || manifests(&path) > before
    };
    log.held.set(Hold("f0001.parquet", Box::new(is_free))).unwrap();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let location = folder.path().to_str().unwrap();
    let table = Table::open_layered(location, TableOptions::default(), &layer).await.unwrap();
    let options = BuildOptions {
        commit_every: Some(Duration::from_millis(300)),
        progress: Some(Arc::new(Begins(Box::new(move || begun.store(true, Ordering::SeqCst))))),
        ..BuildOptions::default()
    };
    let report = table.build(options).await.unwrap();
    assert_eq!((report.files, report.segments), (FILES as u64, FILES as u64));
    assert!(manifests(folder.path()) - before >= 2);
    check(&*open(folder.path()).await).await;
}

/// Between the plan and the first file somebody else builds two of the files, or all of them.
#[tokio::test]
async fn what_others_commit_meanwhile_is_left_to_them() {
    for (rows, theirs) in [(600, 2), (u64::MAX, FILES)] {
        let folder = folder(FILES);
        let table = declared(folder.path()).await;
        let path = folder.path().to_owned();
        let others = move || {
            let path = path.clone();
            let build = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let flag = CancelFlag::new();
                let stops = Arc::new(StopsAfter { rows, seen: AtomicU64::new(0), flag: flag.clone() });
                let options = BuildOptions { progress: Some(stops), cancel: Some(flag), ..at_once() };
                runtime.block_on(async { open(&path).await.build(options).await.is_ok() })
            };
            assert_eq!(std::thread::spawn(build).join().unwrap(), theirs == FILES);
        };
        let options = BuildOptions { progress: Some(Arc::new(Begins(Box::new(others)))), ..at_once() };
        let report = table.build(options).await.unwrap();
        let ours = (FILES - theirs) as u64;
        assert_eq!((report.files, report.segments, report.failed), (ours, ours, Vec::new()));
        assert_eq!(segments(folder.path()).len(), FILES, "nothing was written twice");
        check(&table).await;
    }
}

#[tokio::test]
async fn two_builds_at_once_cover_every_file_and_leave_no_waste() {
    let folder = folder(FILES);
    let (one, other) = (declared(folder.path()).await, open(folder.path()).await);
    let (built, also) = tokio::join!(one.build(at_once()), other.build(at_once()));
    assert_eq!((built.unwrap().failed, also.unwrap().failed), (Vec::new(), Vec::new()));
    check(&one).await;
    let index = one.snapshot().await.unwrap().checked_indexes().await.unwrap().remove(0);
    assert_eq!((index.segments, segments(folder.path()).len()), (FILES as u64, FILES));
    assert_eq!(one.build(at_once()).await.unwrap().segments, 0);
}

async fn open_in(memory: &Arc<dyn ObjectStore>, log: &Arc<Log>) -> Arc<Table> {
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(memory), log);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
}

/// A store that is gone is no fault of any file: the build stops, and what was committed before stays.
#[tokio::test]
async fn a_storage_that_is_gone_stops_the_build_and_costs_what_was_not_committed() {
    let (folder, quiet) = (folder(FILES), Log::new());
    let mut halves = 0;
    for fail_from in (1..).step_by(3) {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        for file in 0..FILES {
            let name = format!("f{file:04}.parquet");
            let bytes = fs::read(folder.path().join(&name)).unwrap();
            memory.put(&StorePath::from(format!("t/{name}")), PutPayload::from(bytes)).await.unwrap();
        }
        let whole = open_in(&memory, &quiet).await;
        whole.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
        let log = Log::new();
        let table = open_in(&memory, &log).await;
        log.clear();
        log.fail_from.store(fail_from, Ordering::SeqCst);
        let built = table.build(at_once()).await;
        let there = covered(&whole).await;
        if let Ok(report) = built {
            assert_eq!((report.segments, report.failed, there), (FILES as u64, Vec::new(), FILES as u64));
            break;
        }
        let error = built.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "operation {fail_from}: {error}");
        halves += u64::from(there > 0 && there < FILES as u64);
        let report = whole.build(at_once()).await.unwrap();
        assert_eq!(report.files, FILES as u64 - there, "operation {fail_from}");
        check(&whole).await;
    }
    assert!(halves > 3, "{halves}");
}
