//! Builds that go on where others were killed: what these left is taken over by its name, and not built again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{TimeDelta, Utc};
use lakemark_table::{BuildOptions, ErrorKind, IndexKind, IndexSpec, Report, Table, TableOptions, VacuumOptions};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::{
    batch, equals, exact_rows, folder, k_values, open, probe, rows_of, segments, spec, spec_with, write,
};
use crate::in_memory::{in_memory, open_in, segment_puts};
use crate::layer::{Hook, Layer, Log};

const FILES: usize = 6;

/// Six files, each to get a segment of its own.
async fn declared(path: &Path) -> Arc<Table> {
    let table = open(path).await;
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
    table
}

/// Runs so many tasks of a build, which is then killed: nothing of it is committed.
async fn killed_after(table: &Table, tasks: usize) {
    let plan = table.plan_build(&BuildOptions::default(), 1).await.unwrap();
    for task in plan.tasks().iter().take(tasks) {
        table.run_build_task(task, &BuildOptions::default()).await.unwrap();
    }
}

/// The bytes of segments, by their paths.
fn bytes(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    segments(path).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

async fn check(table: &Table) {
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.checked_indexes().await.unwrap()[0].coverage, 1.0);
    let found = probe(&snapshot, &equals("k", 3)).await;
    for file in 0..FILES {
        assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "file {file}");
    }
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn what_a_killed_build_left_is_taken_over_and_the_rest_is_built() {
    for done in 0..=FILES {
        let folder = folder(FILES);
        let table = declared(folder.path()).await;
        killed_after(&table, done).await;
        let left = bytes(folder.path());
        assert_eq!(left.len(), done);
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.taken_over, report.segments), (done as u64, (FILES - done) as u64));
        assert_eq!((report.files, report.rows), (FILES as u64, FILES as u64 * 250));
        let said = report.describe().to_string();
        assert!(said.starts_with("built k_bitmap"), "{said}");
        assert_eq!(said.contains("took over"), done > 0, "{said}");
        let now = bytes(folder.path());
        assert_eq!(now.len(), FILES);
        assert!(left.iter().all(|(path, bytes)| now[path] == *bytes), "{done}");
        check(&table).await;
    }
}

/// The columns of files whose segments are there are not read.
#[tokio::test]
async fn of_files_whose_segments_are_left_the_footers_are_read_and_nothing_else() {
    let folder = folder(FILES);
    killed_after(&*declared(folder.path()).await, FILES).await;
    let reads = async |table: &Table, log: &Log| {
        log.clear();
        table.build(BuildOptions::default()).await.unwrap();
        log.matching(".parquet").iter().filter(|operation| operation.starts_with("get")).count()
    };
    let logged = async || {
        let log = Log::new();
        let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
        let path = folder.path().to_str().unwrap();
        (Table::open_layered(path, TableOptions::default(), &layer).await.unwrap(), Arc::clone(&log))
    };
    let (table, log) = logged().await;
    let taken_over = reads(&table, &log).await;
    table.drop_index("k_bitmap", false).await.unwrap();
    declared(folder.path()).await;
    let (table, log) = logged().await;
    let built = reads(&table, &log).await;
    // Three row groups of each file are read besides.
    assert_eq!(built - taken_over, 3 * FILES, "{built} and {taken_over}");
}

/// A group is built by its indexes: one may be there while another one is not.
#[tokio::test]
async fn of_one_group_some_segments_are_taken_over_and_others_are_built() {
    let folder = folder(FILES);
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    table.create_index(spec("s"), false).await.unwrap();
    killed_after(&table, 1).await;
    let left = segments(folder.path());
    assert_eq!(left.len(), 2);
    fs::remove_file(&left[1]).unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.taken_over, report.segments, report.files), (1, 1, FILES as u64));
    assert_eq!(report.indexes, ["k_bitmap", "s_bitmap"]);
    assert_eq!(segments(folder.path()), left);
    check(&table).await;
}

#[tokio::test]
async fn what_was_left_damaged_is_built_again_with_the_same_bytes() {
    let folder = folder(FILES);
    let table = declared(folder.path()).await;
    killed_after(&table, 3).await;
    let left = bytes(folder.path());
    let paths: Vec<&PathBuf> = left.keys().collect();
    let mut damaged = left[paths[0]].clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(paths[0], damaged).unwrap();
    fs::write(paths[1], &left[paths[1]][..100]).unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.taken_over, report.segments), (1, FILES as u64 - 1));
    let now = bytes(folder.path());
    assert!(left.iter().all(|(path, bytes)| now[path] == *bytes));
    check(&table).await;
}

/// A file that is written again is another one.
#[tokio::test]
async fn what_was_left_of_a_file_that_changed_is_not_taken_over() {
    let folder = folder(FILES);
    let table = declared(folder.path()).await;
    killed_after(&table, FILES).await;
    write(&folder.path().join("f0002.parquet"), &batch(500, 250));
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.taken_over, report.segments), (FILES as u64 - 1, 1));
    assert_eq!(segments(folder.path()).len(), FILES + 1);
    check(&table).await;
}

/// Groups are cut one after the other, so that what was committed changes no other group.
#[tokio::test]
async fn groups_of_several_files_are_found_again_whatever_was_committed() {
    let folder = folder(7);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "files_per_segment", "2"), false).await.unwrap();
    let plan = table.plan_build(&BuildOptions::default(), 1).await.unwrap();
    let mut running = table.begin_build(plan, &BuildOptions::default()).unwrap();
    for (number, task) in running.tasks().to_vec().iter().enumerate() {
        let part = table.run_build_task(task, &BuildOptions::default()).await.unwrap();
        if number == 1 {
            running.add(number, part).await.unwrap();
            running.commit().await.unwrap();
        }
    }
    drop(running);
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.taken_over, report.segments, report.files), (3, 0, 5));
    assert_eq!(segments(folder.path()).len(), 4);
}

/// Memory, threads and what is spilled change nothing that is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_builds_of_the_same_files_write_the_same_bytes() {
    for (kind, least) in [("bitmap", 1), ("key", 1), ("bloom_tree", 1), ("summary", 1 << 20)] {
        let folder = folder(FILES);
        let table = open(folder.path()).await;
        for column in ["k", "s"] {
            let spec = IndexSpec { kind: IndexKind::from_name(kind), ..spec_with(column, "files_per_segment", "4") };
            table.create_index(spec, false).await.unwrap();
        }
        let mut written = Vec::new();
        for (threads, memory_bytes) in [(None, None), (Some(1), Some(least)), (Some(4), Some(least + 20_000))] {
            let options = BuildOptions { threads, memory_bytes, ..BuildOptions::default() };
            // The first one commits. The others find the segments missing, and make them again.
            let _ = fs::remove_dir_all(folder.path().join("_lakemark/indexes"));
            let report = table.build(options).await.unwrap();
            assert_eq!((report.segments, report.taken_over), (4, 0), "{kind}");
            written.push(bytes(folder.path()));
        }
        assert_eq!(written[0].len(), 4);
        assert!(written.iter().all(|bytes| *bytes == written[0]), "{kind}");
        assert!(table.verify().await.unwrap().is_ok());
    }
}

/// The files in memory, with an index whose segments have one file each.
async fn declared_in_memory(log: &Arc<Log>) -> (Arc<dyn ObjectStore>, Arc<Table>) {
    let memory = in_memory(FILES).await;
    let table = open_in(&memory, log).await;
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
    (memory, table)
}

/// There are no locks that keep a vacuum away: what is young is kept, and what is old is written again.
#[tokio::test]
async fn in_an_object_store_an_old_segment_is_made_young_before_it_is_taken_over() {
    // Before they are taken over and before they are committed: the storage goes on to say that they are old.
    // By a clock that goes before ours they are from the future.
    for (hours, written) in [(0, 0), (-1, 0), (5, 2 * FILES)] {
        let log = Log::new();
        let (_, table) = declared_in_memory(&log).await;
        killed_after(&table, FILES).await;
        *log.aged.lock().unwrap() = Some(("/indexes/", TimeDelta::hours(hours)));
        log.clear();
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.taken_over, report.segments), (FILES as u64, 0));
        assert_eq!(segment_puts(&log), written, "{hours} hours");
        check(&table).await;
    }
}

/// Such a bucket takes no file in the place of another one, so that old segments cannot be made young.
#[tokio::test]
async fn in_a_bucket_that_is_written_once_what_is_left_and_old_or_damaged_is_built_under_another_name() {
    for is_damaged in [false, true] {
        let log = Log::new();
        let (memory, table) = declared_in_memory(&log).await;
        killed_after(&table, FILES).await;
        if is_damaged {
            use futures::TryStreamExt;
            let left: Vec<_> = memory.list(Some(&StorePath::from("t/_lakemark/indexes"))).try_collect().await.unwrap();
            for meta in left {
                memory.put(&meta.location, PutPayload::from_static(b"cut off")).await.unwrap();
            }
        } else {
            *log.aged.lock().unwrap() = Some(("/indexes/", TimeDelta::hours(5)));
        }
        *log.written_once.lock().unwrap() = Some("/indexes/");
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.taken_over, report.segments), (0, FILES as u64), "{is_damaged}");
        check(&table).await;
        assert_eq!(table.build(BuildOptions::default()).await.unwrap().segments, 0);
    }
}

/// Whoever could write a file again unseen may have done so.
#[tokio::test]
async fn what_was_left_of_files_that_are_too_young_is_not_taken_over() {
    for (is_young, taken_over) in [(true, 0), (false, FILES as u64)] {
        let log = Log::new();
        log.hide_tags.store(true, Ordering::SeqCst);
        let (_, table) = declared_in_memory(&log).await;
        // By a clock that goes before ours files are young for longer than the test takes.
        let age = if is_young { TimeDelta::minutes(-10) } else { TimeDelta::hours(1) };
        *log.time.lock().unwrap() = Some(Utc::now() - age);
        killed_after(&table, FILES).await;
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.taken_over, report.segments), (taken_over, FILES as u64 - taken_over));
    }
}

/// A vacuum that has listed the segments before they were taken over removes some before they are committed, or just afterwards.
#[tokio::test]
async fn segments_that_a_vacuum_takes_meanwhile_are_an_error_and_cover_nothing_and_the_others_are_committed() {
    for (is_late, most) in [(false, FILES), (false, 1), (true, FILES), (true, 2)] {
        let log = Log::new();
        let (memory, table) = declared_in_memory(&log).await;
        killed_after(&table, FILES).await;
        let (done, seen, removing) = (AtomicBool::new(false), Arc::clone(&log), Arc::clone(&memory));
        let remove = move || {
            let last = seen.operations.lock().unwrap().last().cloned().unwrap_or_default();
            let is_commit = last.starts_with("put ") && last.contains("/manifest/");
            // The commit looks for every segment before its edit is put.
            let is_look = last.starts_with("head ") && last.contains("f0005.parquet") && segment_puts(&seen) == FILES;
            if (if is_late { is_commit } else { is_look }) && !done.swap(true, Ordering::SeqCst) {
                futures::executor::block_on(async {
                    use futures::TryStreamExt;
                    let prefix = StorePath::from("t/_lakemark/indexes");
                    let listed: Vec<_> = removing.list(Some(&prefix)).try_collect().await.unwrap();
                    for meta in listed.into_iter().take(most) {
                        removing.delete(&meta.location).await.unwrap();
                    }
                });
            }
        };
        log.hook.set(Hook(Box::new(remove))).unwrap();
        let error = table.build(BuildOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("vacuum"), "{error}");
        let fresh = open_in(&memory, &Log::new()).await;
        let snapshot = fresh.snapshot().await.unwrap();
        let covered = (FILES - most) as f64 / FILES as f64;
        assert!((snapshot.indexes()[0].coverage - covered).abs() < 1e-9, "{is_late} {most}");
        let report = fresh.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.taken_over, report.segments, report.repaired), (0, most as u64, 0));
        check(&fresh).await;
    }
}

/// Others commit the same segments and drop one of the indexes, so that its segments are gone when this build is about to commit them.
#[tokio::test]
async fn a_build_does_not_miss_segments_of_an_index_that_others_drop_meanwhile() {
    for is_left in [false, true] {
        let log = Log::new();
        let (memory, table) = declared_in_memory(&log).await;
        table.create_index(spec_with("s", "files_per_segment", "1"), false).await.unwrap();
        if is_left {
            killed_after(&table, usize::MAX).await;
        }
        let (done, seen, others) = (AtomicBool::new(false), Arc::downgrade(&log), Arc::clone(&memory));
        let drop_index = move || {
            let seen = seen.upgrade().unwrap();
            let last = seen.operations.lock().unwrap().last().cloned().unwrap_or_default();
            let is_look =
                last.starts_with("head ") && last.contains("f0005.parquet") && segment_puts(&seen) == 2 * FILES;
            if !is_look || done.swap(true, Ordering::SeqCst) {
                return;
            }
            let others = Arc::clone(&others);
            let work = move || {
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let table = open_in(&others, &Log::new()).await;
                    table.build(BuildOptions::default()).await.unwrap();
                    assert!(table.drop_index("s_bitmap", false).await.unwrap());
                });
            };
            std::thread::spawn(work).join().unwrap();
        };
        log.hook.set(Hook(Box::new(drop_index))).unwrap();
        table.build(BuildOptions::default()).await.unwrap();
        let fresh = open_in(&memory, &Log::new()).await;
        assert_eq!(fresh.snapshot().await.unwrap().indexes().len(), 1, "{is_left}");
        check(&fresh).await;
    }
}

/// A vacuum lists what an earlier build left as old. Before it removes that, another build has made it young, and may have named it.
#[tokio::test]
async fn a_vacuum_leaves_what_was_taken_over_since_it_listed_the_segments() {
    for is_committed in [true, false] {
        let log = Log::new();
        let (memory, table) = declared_in_memory(&log).await;
        killed_after(&table, FILES).await;
        *log.aged.lock().unwrap() = Some(("/indexes/", TimeDelta::days(8)));
        let (done, seen, others) = (AtomicBool::new(false), Arc::downgrade(&log), Arc::clone(&memory));
        let take_over = move || {
            let seen = seen.upgrade().unwrap();
            let last = seen.operations.lock().unwrap().last().cloned().unwrap_or_default();
            // The updates are listed after the segments.
            if !last.starts_with("list ") || !last.ends_with("/updates") || done.swap(true, Ordering::SeqCst) {
                return;
            }
            if !is_committed {
                *seen.aged.lock().unwrap() = None;
                return;
            }
            let others = Arc::clone(&others);
            let build = move || {
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let table = open_in(&others, &Log::new()).await;
                    assert_eq!(table.build(BuildOptions::default()).await.unwrap().taken_over, FILES as u64);
                });
            };
            std::thread::spawn(build).join().unwrap();
        };
        log.hook.set(Hook(Box::new(take_over))).unwrap();
        let report = table.vacuum(VacuumOptions::default()).await.unwrap();
        assert_eq!((report.removed.len(), report.bytes, report.segments_kept), (0, 0, FILES as u64), "{report:?}");
        let fresh = open_in(&memory, &Log::new()).await;
        let taken_over = fresh.build(BuildOptions::default()).await.unwrap().taken_over;
        assert_eq!(taken_over, if is_committed { 0 } else { FILES as u64 });
        check(&fresh).await;
    }
}

/// What is old and stays so goes, as on a local disk.
#[tokio::test]
async fn a_vacuum_removes_what_an_object_store_has_left() {
    let log = Log::new();
    let (_, table) = declared_in_memory(&log).await;
    killed_after(&table, FILES).await;
    *log.aged.lock().unwrap() = Some(("/indexes/", TimeDelta::days(8)));
    let report = table.vacuum(VacuumOptions::default()).await.unwrap();
    assert_eq!((report.removed.len(), report.segments_kept), (FILES, 0), "{report:?}");
    assert!(report.bytes > 0);
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().segments, FILES as u64);
    check(&table).await;
}
