//! Builds that merge segments of which there are too many, and what a search reads before and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{
    BuildOptions, BuildReport, CancelFlag, ErrorKind, FileProbe, IndexKind, IndexSpec, Merging, Table, TableOptions,
};
use object_store::ObjectStore;

use crate::fixture::{batch, equals, exact_rows, k_values, open, probe, rows_of, write};
use crate::layer::{Hold, Layer, Log};

/// Builds of one file each.
const BUILDS: usize = 40;

fn named(name: &str, kind: &str, column: &str) -> IndexSpec {
    let kind = IndexKind::from_name(kind);
    IndexSpec { name: Some(name.to_owned()), columns: vec![column.to_owned()], kind, ..IndexSpec::default() }
}

/// Adds a file to a table with a `key` index of `k`, and builds.
async fn append(folder: &Path, table: &Table, file: usize, merging: Merging) -> BuildReport {
    write(&folder.join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
    table.build(BuildOptions { merging, ..BuildOptions::default() }).await.unwrap()
}

async fn begun(specs: &[IndexSpec]) -> (tempfile::TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f0000.parquet"), &batch(0, 250));
    let table = open(folder.path()).await;
    for spec in specs {
        table.create_index(spec.clone(), false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    (folder, table)
}

async fn segments_of(table: &Table) -> Vec<u64> {
    table.snapshot().await.unwrap().indexes().iter().map(|index| index.segments).collect()
}

fn edits(folder: &Path) -> usize {
    fs::read_dir(folder.join("_lakemark/manifest")).unwrap().count()
}

async fn check(table: &Table, files: usize) {
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    for file in 0..files {
        assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "file {file}");
    }
    assert!(snapshot.indexes().iter().all(|index| index.coverage == 1.0));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_builds_of_one_file_each_leave_a_handful_of_segments() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    let (mut merged, mut into) = (0, 0);
    for file in 1..BUILDS {
        let report = append(folder.path(), &table, file, Merging::Due).await;
        assert_eq!((report.files, report.segments), (1, 1), "the build counts what it built");
        assert_eq!(report.segments_merged > 0, report.bytes_merged > 0);
        (merged, into) = (merged + report.segments_merged, into + report.merged_into);
        let now = segments_of(&table).await[0];
        assert_eq!(now, 1 + file as u64 + into - merged, "{report:?}");
        // Three, and one for each tier of factor 4: the smallest has 250 rows and the largest 10,000.
        assert!(now <= 6, "{now} segments after {file} builds");
    }
    assert!(into > 5, "{into} merges");
    check(&table, BUILDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_is_told_not_to_merge_leaves_every_segment() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..8 {
        let report = append(folder.path(), &table, file, Merging::Never).await;
        assert_eq!((report.segments_merged, report.merged_into, report.bytes_merged), (0, 0, 0));
    }
    assert_eq!(segments_of(&table).await, [8]);
    // The next build catches up, although it finds nothing to build.
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.segments_merged, report.merged_into), (0, 8, 1));
    assert_eq!(segments_of(&table).await, [1]);
    check(&table, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_several_indexes_are_merged_in_one_commit() {
    let specs = [named("a", "key", "k"), named("b", "bitmap", "k"), named("c", "bitmap", "s")];
    let (folder, table) = begun(&specs).await;
    for file in 1..4 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let before = edits(folder.path());
    let report = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!((report.indexes.len(), report.segments_merged, report.segments_written), (3, 12, 3));
    assert_eq!((edits(folder.path()) - before, segments_of(&table).await), (1, vec![1, 1, 1]));
    check(&table, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn merges_that_take_long_are_committed_one_by_one() {
    let (folder, table) = begun(&[named("a", "key", "k"), named("b", "key", "s")]).await;
    append(folder.path(), &table, 1, Merging::Never).await;
    let before = edits(folder.path());
    let at_once = BuildOptions { commit_every: Some(Duration::ZERO), ..BuildOptions::default() };
    assert_eq!(table.compact(at_once).await.unwrap().segments_written, 2);
    assert_eq!(edits(folder.path()) - before, 2);
}

/// A large segment is not written again for a small one, unless somebody asks for all.
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_far_larger_stays_until_everything_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f0000.parquet"), &batch(0, 100_000));
    let table = open(folder.path()).await;
    table.create_index(named("kept", "key", "k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    for file in 1..3 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let report = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!((report.segments_merged, report.segments_written), (2, 1));
    let again = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!(again.segments_written, 0);
    let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
    let report = table.compact(all).await.unwrap();
    assert_eq!((report.segments_merged, report.segments_written, segments_of(&table).await), (2, 1, vec![1]));
    let never = BuildOptions { merging: Merging::Never, ..BuildOptions::default() };
    assert_eq!(table.compact(never).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A segment whose files fill half of what one may have is never merged by tiers: each file is rewritten a few times at most.
#[tokio::test(flavor = "multi_thread")]
async fn full_segments_are_left_alone() {
    let options = [("files_per_segment".to_owned(), "4".to_owned())].into();
    let (folder, table) = begun(&[IndexSpec { options, ..named("kept", "key", "k") }]).await;
    let mut into = 0;
    for file in 1..24 {
        into += append(folder.path(), &table, file, Merging::Due).await.merged_into;
    }
    let left = segments_of(&table).await[0];
    assert!((6..=12).contains(&left) && into >= 4, "{left} segments, {into} merges");
    check(&table, 24).await;
}

/// A damaged segment is no reason for a build to fail: what it was to build is built, and the others are merged, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_done_where_a_segment_that_is_to_be_merged_is_damaged() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..4 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let path = crate::fixture::segments(folder.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let report = append(folder.path(), &table, 4, Merging::Due).await;
    assert_eq!((report.files, report.segments, report.segments_merged, report.merged_into), (1, 1, 4, 1));
    assert_eq!(segments_of(&table).await, [2]);
    let report = append(folder.path(), &table, 5, Merging::Due).await;
    assert_eq!((report.segments_merged, segments_of(&table).await), (0, vec![3]), "nothing is due");
    let verified = BuildOptions { verify: 1.0, ..BuildOptions::default() };
    assert_eq!(table.build(verified).await.unwrap().repaired, 1);
    check(&table, 6).await;
}

/// The segment that is damaged is named, and all others of both indexes are merged.
#[tokio::test(flavor = "multi_thread")]
async fn damage_of_one_index_keeps_no_other_from_being_merged() {
    let (folder, table) = begun(&[named("damaged", "key", "k")]).await;
    let path = crate::fixture::segments(folder.path()).remove(0);
    table.create_index(named("sound", "key", "s"), false).await.unwrap();
    for file in 1..3 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = table.compact(BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let indexes = table.snapshot().await.unwrap().indexes();
    let mut segments: Vec<(&str, u64)> = indexes.iter().map(|index| (index.name.as_str(), index.segments)).collect();
    segments.sort_unstable();
    assert_eq!(segments, [("damaged", 2), ("sound", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_is_stopped_while_it_merges_keeps_what_it_built() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..5 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let flag = CancelFlag::new();
    flag.cancel();
    // Nothing is to be built, so that the flag is met by the merge.
    let error = table.build(BuildOptions { cancel: Some(flag), ..BuildOptions::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(error.to_string().contains("what was built is committed"), "{error}");
    assert_eq!(segments_of(&table).await, [5]);
    check(&table, 5).await;
}

/// A file of numbers that are in no other one, in no order: those that leave `part` when they are divided by `parts`.
fn numbered(part: i64, parts: i64, rows: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| (row * 7919 % rows) * parts + part)));
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

async fn table_of_numbers(parts: i64, rows: i64, spec: IndexSpec) -> (tempfile::TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f0000.parquet"), &numbered(0, parts, rows));
    let table = open(folder.path()).await;
    table.create_index(spec, false).await.unwrap();
    for part in 0..parts {
        if part > 0 {
            write(&folder.path().join(format!("f{part:04}.parquet")), &numbered(part, parts, rows));
        }
        table.build(BuildOptions { merging: Merging::Never, ..BuildOptions::default() }).await.unwrap();
    }
    (folder, table)
}

/// Requests that read bytes of segments, or of data files.
fn reads_of(log: &Log, ending: &str) -> usize {
    log.matching(ending).iter().filter(|operation| operation.starts_with("get")).count()
}

async fn logged(folder: &Path, log: &Arc<Log>) -> Arc<Table> {
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, log);
    Table::open_layered(folder.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap()
}

/// The end of a segment opens it, and its pages are one request, however many blocks they hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_reads_a_segment_by_two_requests_and_no_data() {
    for kind in ["key", "bitmap", "summary", "bloom_tree"] {
        let options =
            if kind == "bloom_tree" { [("fpp".to_owned(), "0.01".to_owned())].into() } else { BTreeMap::new() };
        let spec = IndexSpec { options, ..named("kept", kind, "id") };
        let (folder, _) = table_of_numbers(3, 20_000, spec.clone()).await;
        let log = Log::new();
        let table = logged(folder.path(), &log).await;
        table.snapshot().await.unwrap();
        log.clear();
        table.snapshot().await.unwrap();
        let footers = reads_of(&log, ".parquet");
        log.clear();
        let report = table.compact(BuildOptions::default()).await.unwrap();
        assert_eq!((report.segments_merged, report.segments_written), (3, 1), "{kind}");
        let operations = log.operations.lock().unwrap().clone();
        assert_eq!(reads_of(&log, ".lmx"), 3 * 2, "{kind}: {operations:?}");
        assert!(reads_of(&log, ".parquet") <= footers, "{kind}: {operations:?}");
        assert!(table.verify().await.unwrap().is_ok(), "{kind}");
        // The merged segment is the one that a build of all files makes, but for ids.
        let bytes = table.snapshot().await.unwrap().indexes()[0].bytes;
        fs::remove_dir_all(folder.path().join("_lakemark")).unwrap();
        let table = open(folder.path()).await;
        table.create_index(spec, false).await.unwrap();
        assert_eq!(table.build(BuildOptions::default()).await.unwrap().bytes_written, bytes, "{kind}");
    }
}

/// No window is given before all are on their way.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_fetches_the_first_windows_of_its_segments_at_once() {
    const SEGMENTS: usize = 5;
    for kind in ["key", "bitmap", "summary"] {
        let (folder, _) = table_of_numbers(SEGMENTS as i64, 20_000, named("kept", kind, "id")).await;
        let log = Log::new();
        let table = logged(folder.path(), &log).await;
        table.snapshot().await.unwrap();
        log.clear();
        let seen = Arc::downgrade(&log);
        let are_all_requested = move || {
            let reads = reads_of(&seen.upgrade().unwrap(), ".lmx");
            reads <= SEGMENTS || reads >= 2 * SEGMENTS
        };
        log.held.set(Hold(".lmx", Box::new(are_all_requested))).unwrap();
        let report = table.compact(BuildOptions::default()).await.unwrap();
        assert_eq!((report.segments_merged, report.segments_written), (SEGMENTS as u64, 1), "{kind}");
        assert!(table.verify().await.unwrap().is_ok(), "{kind}");
    }
}

/// The coarse level has its memory first: windows get what it leaves.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_reads_ahead_no_more_than_its_coarse_level_leaves_memory_for() {
    const ROWS: i64 = 25_600;
    const WINDOW: u64 = 4 << 20;
    let coarse = 3 * ROWS as u64 * 4;
    let reads = async |memory: u64| {
        let options = [("encoding".to_owned(), "interval-equality".to_owned())].into();
        let (folder, _) = table_of_numbers(3, ROWS, IndexSpec { options, ..named("kept", "bitmap", "id") }).await;
        let log = Log::new();
        let table = logged(folder.path(), &log).await;
        table.snapshot().await.unwrap();
        log.clear();
        let options = BuildOptions { memory_bytes: Some(memory), ..BuildOptions::default() };
        assert_eq!(table.compact(options).await.map_err(|error| error.kind())?.segments_written, 1);
        Ok::<usize, ErrorKind>(reads_of(&log, ".lmx"))
    };
    assert_eq!(reads(coarse - 1).await, Err(ErrorKind::Unsupported));
    let fewest = reads(coarse + 3 * WINDOW).await.unwrap();
    let most = reads(coarse).await.unwrap();
    assert_eq!(reads(coarse + WINDOW - 1).await, Ok(most));
    let one = reads(coarse + WINDOW).await.unwrap();
    assert!(fewest < one && one < most, "{fewest}, {one}, {most}");
}

/// A lookup reads each segment whose keys are around the key: many before a merge, and one after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_reads_one_segment_where_it_read_many() {
    const FILES: i64 = 30;
    for (kind, most) in [("key", 2), ("summary", 6)] {
        let (folder, table) = table_of_numbers(FILES, 500, named("kept", kind, "id")).await;
        let reads = async || {
            let found = probe(&open(folder.path()).await.snapshot().await.unwrap(), &equals("id", 7 * FILES + 3)).await;
            (found.report.index_reads, found.report.files_pruned)
        };
        let before = reads().await;
        assert!(before.0 >= FILES as u64, "{kind}: {before:?}");
        assert_eq!(segments_of(&table).await, [FILES as u64]);
        table.compact(BuildOptions::default()).await.unwrap();
        assert_eq!(segments_of(&table).await, [1]);
        let after = reads().await;
        assert!((1..=most).contains(&after.0), "{kind}: {after:?}");
        assert_eq!((before.1, after.1), (FILES as u64 - 1, FILES as u64 - 1), "{kind}");
        assert!(table.verify().await.unwrap().is_ok());
    }
}

/// Readers go on while segments are merged: each snapshot has the old ones or the new one.
#[tokio::test(flavor = "multi_thread")]
async fn readers_find_the_same_rows_while_segments_are_merged() {
    let (folder, table) = table_of_numbers(12, 2000, named("kept", "key", "id")).await;
    let held = table.snapshot().await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (root, stop) = (folder.path().to_owned(), Arc::clone(&is_over));
    let readers = tokio::spawn(async move {
        let mut reads = 0;
        while !stop.load(Ordering::SeqCst) || reads == 0 {
            let snapshot = open(&root).await.snapshot().await.unwrap();
            let found = probe(&snapshot, &equals("id", 1000 * 12 + 5)).await;
            let rows: Vec<usize> = found.files.iter().map(|file| exact_rows(file).len()).collect();
            assert_eq!((rows[5], rows.iter().sum::<usize>()), (1, 1));
            reads += 1;
        }
        reads
    });
    for _ in 0..3 {
        let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
        table.compact(all).await.unwrap();
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(readers.await.unwrap() > 0);
    let found = probe(&held, &equals("id", 1000 * 12 + 5)).await;
    assert_eq!(exact_rows(&found.files[5]).len(), 1);
    assert_eq!(segments_of(&table).await, [1]);
}

/// What a segment has of a file that was rewritten since is left out, although the path is still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_rewritten_is_taken_from_the_segment_of_its_new_rows() {
    for kind in ["summary", "bloom_tree", "key", "bitmap"] {
        let folder = tempfile::tempdir().unwrap();
        for part in 0..2 {
            write(&folder.path().join(format!("f{part:04}.parquet")), &numbered(part, 3, 2000));
        }
        let table = open(folder.path()).await;
        // Trees are merged as they are where their density is named.
        let options =
            if kind == "bloom_tree" { [("fpp".to_owned(), "0.000001".to_owned())].into() } else { BTreeMap::new() };
        table.create_index(IndexSpec { options, ..named("kept", kind, "id") }, false).await.unwrap();
        let never = || BuildOptions { merging: Merging::Never, ..BuildOptions::default() };
        assert_eq!(table.build(never()).await.unwrap().segments, 1, "{kind}");
        write(&folder.path().join("f0000.parquet"), &numbered(2, 3, 2500));
        assert_eq!(table.build(never()).await.unwrap().files, 1, "{kind}");
        assert_eq!(segments_of(&table).await, [2], "{kind}");
        let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
        assert_eq!(table.compact(all).await.unwrap().segments_written, 1, "{kind}");
        assert_eq!(segments_of(&table).await, [1], "{kind}");
        assert!(table.verify().await.unwrap().is_ok(), "{kind}");
        let snapshot = table.snapshot().await.unwrap();
        for (id, file) in [(2400 * 3 + 2, 0), (1500 * 3 + 1, 1)] {
            let found = probe(&snapshot, &equals("id", id)).await;
            assert_eq!(found.report.files_pruned, 1, "{kind}: {id}");
            assert!(!matches!(found.files[file], FileProbe::Unknown), "{kind}: {id}");
        }
        assert_eq!(probe(&snapshot, &equals("id", 1500 * 3)).await.report.files_pruned, 2, "{kind}: an old row");
    }
}

/// Filters that are damaged are made from the data, as those of other shapes.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_filters_are_made_from_the_data() {
    let (folder, table) = table_of_numbers(3, 2000, named("kept", "summary", "id")).await;
    let path = crate::fixture::segments(folder.path()).remove(1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(!table.verify().await.unwrap().is_ok());
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap().segments_written, 1);
    assert!(table.verify().await.unwrap().is_ok());
    assert_eq!(crate::fixture::segments(folder.path()).len(), 4, "of the first try nothing is left");
}

/// A build of the files of one segment finds that one under its name.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_filters_that_are_merged_with_what_is_gone_are_written_anew() {
    let (folder, table) = table_of_numbers(1, 2000, named("kept", "summary", "id")).await;
    let path = crate::fixture::segments(folder.path()).remove(0);
    let gone = folder.path().join("f0001.parquet");
    write(&gone, &numbered(1, 2, 2000));
    table.build(BuildOptions { merging: Merging::Never, ..BuildOptions::default() }).await.unwrap();
    fs::remove_file(gone).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap().segments_written, 1);
    assert_eq!(segments_of(&table).await, [1]);
    assert!(table.verify().await.unwrap().is_ok());
}

/// One build reads the segments that it merges until another one, which finds the same merge to be due, is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_that_another_build_is_making_is_left_to_it() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..5 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let (log, is_free) = (Log::new(), Arc::new(AtomicBool::new(false)));
    let free = Arc::clone(&is_free);
    log.held.set(Hold(".lmx", Box::new(move || free.load(Ordering::SeqCst)))).unwrap();
    let slow = logged(folder.path(), &log).await;
    let first = tokio::spawn(async move { slow.build(BuildOptions::default()).await.unwrap() });
    let claims = folder.path().join("_lakemark/claims");
    while fs::read_dir(&claims).map_or(0, Iterator::count) == 0 {
        assert!(!first.is_finished(), "it does not read the segments that it merges");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((second.segments_merged, segments_of(&table).await), (0, vec![5]));
    is_free.store(true, Ordering::SeqCst);
    let first = first.await.unwrap();
    assert_eq!((first.segments_merged, first.merged_into, segments_of(&table).await), (5, 1, vec![1]));
    assert_eq!(fs::read_dir(&claims).unwrap().count(), 0);
    check(&table, 5).await;
}

/// The same files make the same name, and whoever comes later finds the segment there.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_was_killed_before_its_commit_is_made_again_under_its_name() {
    for kind in ["key", "bitmap", "summary", "bloom_tree"] {
        let options =
            if kind == "bloom_tree" { [("fpp".to_owned(), "0.01".to_owned())].into() } else { BTreeMap::new() };
        let (folder, table) = table_of_numbers(3, 2000, IndexSpec { options, ..named("kept", kind, "id") }).await;
        let before = crate::fixture::segments(folder.path());
        let manifest = folder.path().join("_lakemark/manifest");
        let kept: Vec<_> = fs::read_dir(&manifest).unwrap().map(|entry| entry.unwrap().path()).collect();
        table.compact(BuildOptions::default()).await.unwrap();
        let merged = crate::fixture::segments(folder.path());
        assert_eq!(merged.len(), before.len() + 1, "{kind}");
        // As if the process had been killed before the commit.
        for path in fs::read_dir(&manifest).unwrap().map(|entry| entry.unwrap().path()) {
            if !kept.contains(&path) {
                fs::remove_file(path).unwrap();
            }
        }
        let again = open(folder.path()).await;
        assert_eq!(segments_of(&again).await, [3], "{kind}");
        assert_eq!(again.compact(BuildOptions::default()).await.unwrap().segments_written, 1, "{kind}");
        assert_eq!(crate::fixture::segments(folder.path()), merged, "{kind}");
        assert!(again.verify().await.unwrap().is_ok(), "{kind}");
    }
}

/// Two handles build and merge what the other one has just built and merged.
#[tokio::test(flavor = "multi_thread")]
async fn two_builders_that_merge_at_once_leave_each_file_covered() {
    let (folder, one) = begun(&[named("kept", "key", "k")]).await;
    let other = Table::open_alone(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    for file in 1..16 {
        write(&folder.path().join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
        let (first, second) = tokio::join!(one.build(BuildOptions::default()), other.build(BuildOptions::default()));
        first.unwrap();
        second.unwrap();
    }
    assert!(segments_of(&one).await[0] <= 7);
    check(&one, 16).await;
}
