//! Builds in three steps, whose tasks and parts cross to other processes as bytes; and builds at once, which divide the work.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use lakemark_table::{
    BuildOptions, BuildPart, BuildPlan, BuildReport, BuildTask, CancelFlag, ErrorKind, FileProbe, Merging, Table,
    TableOptions, VacuumOptions,
};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::fixture::{batch, equals, exact_rows, folder, k_values, open, probe, rows_of, spec, spec_with, write};
use crate::in_memory::{in_memory, open_in, segment_puts};
use crate::layer::{Hold, Layer, Log};

const WORKERS: usize = 2;

/// A table of four files with an index on `k` whose segments have two files each.
async fn declared(path: &Path) -> Arc<Table> {
    let table = open(path).await;
    table.create_index(spec_with("k", "files_per_segment", "2"), false).await.unwrap();
    table
}

async fn plan(table: &Table) -> BuildPlan {
    table.plan_build(&BuildOptions::default(), WORKERS).await.unwrap()
}

/// Runs a task as another process would: it gets bytes, opens the table and sends bytes.
async fn run(path: &Path, task: &BuildTask) -> lakemark_table::Result<BuildPart> {
    let task = BuildTask::from_bytes(&task.to_bytes().unwrap()).unwrap();
    let part = open(path).await.run_build_task(&task, &BuildOptions::default()).await?;
    let sent = BuildPart::from_bytes(&part.to_bytes().unwrap()).unwrap();
    assert_eq!(sent, part);
    Ok(sent)
}

async fn run_all(path: &Path, plan: &BuildPlan) -> Vec<BuildPart> {
    let mut parts = Vec::new();
    for task in plan.tasks() {
        parts.push(run(path, task).await.unwrap());
    }
    parts
}

/// Hands parts to a build as they come.
async fn finish(table: &Table, plan: BuildPlan, parts: Vec<BuildPart>) -> lakemark_table::Result<BuildReport> {
    let mut running = table.begin_build(plan, &BuildOptions::default())?;
    for (task, part) in parts.into_iter().enumerate() {
        if let Err(error) = running.add(task, part).await {
            return Err(running.stop(error).await);
        }
    }
    running.finish().await
}

fn failed(report: &BuildReport) -> Vec<&str> {
    report.failed.iter().map(|finding| finding.path.as_str()).collect()
}

fn segments(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path.join("_lakemark/indexes")).map(|entries| {
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<String>>()
    });
    entries.unwrap_or_default()
}

async fn coverage(table: &Table) -> f64 {
    table.snapshot().await.unwrap().indexes()[0].coverage
}

#[tokio::test]
async fn tasks_and_parts_cross_as_bytes_and_give_what_a_build_gives() {
    let folder = folder(4);
    let table = declared(folder.path()).await;
    table.create_index(spec("s"), false).await.unwrap();
    let planned = plan(&table).await;
    assert_eq!(planned.rows(), 2 * 4 * 250);
    let tasks: Vec<(Vec<&str>, Vec<&str>)> =
        planned.tasks().iter().map(|task| (task.indexes().collect(), task.files().collect())).collect();
    let files = ["f0000.parquet", "f0001.parquet", "f0002.parquet", "f0003.parquet"];
    // The longest first.
    assert_eq!(
        tasks,
        [
            (vec!["s_bitmap"], files.to_vec()),
            (vec!["k_bitmap"], files[..2].to_vec()),
            (vec!["k_bitmap"], files[2..].to_vec())
        ]
    );
    let parts = run_all(folder.path(), &planned).await;
    assert_eq!(coverage(&table).await, 0.0);
    let report = finish(&table, planned, parts).await.unwrap();
    assert_eq!(
        (report.indexes, report.files, report.rows),
        (vec!["k_bitmap".to_owned(), "s_bitmap".to_owned()], 4, 2000)
    );
    assert_eq!((report.segments, report.failed.len()), (3, 0));
    let snapshot = table.snapshot().await.unwrap();
    for value in 0..10 {
        let found = probe(&snapshot, &equals("k", value)).await;
        for file in 0..4 {
            assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), value as i32));
        }
    }
    assert!(table.verify().await.unwrap().is_ok());
    let again = plan(&table).await;
    assert_eq!((again.tasks().len(), again.rows()), (0, 0));
    assert_eq!(finish(&table, again, Vec::new()).await.unwrap().segments, 0);
}

#[tokio::test]
async fn a_file_that_is_replaced_before_its_task_or_before_the_commit_is_left_out() {
    let folder = folder(4);
    let table = declared(folder.path()).await;
    let planned = plan(&table).await;
    write(&folder.path().join("f0000.parquet"), &batch(3, 120));
    let parts = run_all(folder.path(), &planned).await;
    write(&folder.path().join("f0003.parquet"), &batch(5, 130));
    fs::remove_file(folder.path().join("f0002.parquet")).unwrap();
    let report = finish(&table, planned, parts).await.unwrap();
    assert_eq!(failed(&report), ["f0000.parquet", "f0002.parquet", "f0003.parquet"]);
    assert!(report.failed.iter().all(|finding| finding.problem.contains("changed or vanished")), "{report:?}");
    assert_eq!((report.files, report.rows, report.segments), (1, 250, 1));
    // Of the second task nothing stands. Its segment is left to a vacuum.
    assert_eq!(segments(folder.path()).len(), 2);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(found.files[0], FileProbe::Unknown);
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert_eq!(found.files[2], FileProbe::Unknown);
    let planned = plan(&table).await;
    let parts = run_all(folder.path(), &planned).await;
    assert_eq!(finish(&table, planned, parts).await.unwrap().rows, 250);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_task_that_runs_twice_counts_once() {
    let folder = folder(4);
    let table = declared(folder.path()).await;
    let (first, second) = (plan(&table).await, plan(&table).await);
    let parts = run_all(folder.path(), &first).await;
    let twins = run_all(folder.path(), &first).await;
    assert_eq!(segments(folder.path()).len(), 2);
    let report = finish(&table, first, parts).await.unwrap();
    assert_eq!((report.segments, report.taken_over), (2, 0));
    let committed = table.snapshot().await.unwrap().manifest_number();
    // Somebody else planned the same, and found the segments there.
    let report = finish(&table, second, twins).await.unwrap();
    assert_eq!((report.segments, report.taken_over, report.bytes_written), (0, 2, 0));
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), committed);
    assert_eq!(segments(folder.path()).len(), 2);
    assert_eq!(coverage(&table).await, 1.0);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn parts_that_are_no_answers_are_refused() {
    let folder = folder(4);
    let table = declared(folder.path()).await;
    let parts = run_all(folder.path(), &plan(&table).await).await;
    let [first, second] = parts.as_slice() else { panic!("{parts:?}") };
    let swapped = finish(&table, plan(&table).await, vec![second.clone(), first.clone()]).await.unwrap_err();
    assert_eq!(swapped.kind(), ErrorKind::Corrupt);
    assert!(swapped.to_string().contains("is about other data files"), "{swapped}");
    // Nobody but a vacuum removes a segment: somebody else may be about to name it.
    assert_eq!((segments(folder.path()).len(), coverage(&table).await), (2, 0.0));
    let mut running = table.begin_build(plan(&table).await, &BuildOptions::default()).unwrap();
    running.add(0, first.clone()).await.unwrap();
    assert_eq!(running.add(0, first.clone()).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(running.add(7, second.clone()).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let missing = running.finish().await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidInput);
    assert!(missing.to_string().contains("one part for each of its 2 tasks"), "{missing}");
    assert!(missing.to_string().contains("1 of 2 tasks of the build are committed"), "{missing}");
    assert_eq!((segments(folder.path()).len(), coverage(&table).await), (2, 0.5));

    let bytes = first.to_bytes().unwrap();
    for cut in [0, 7, 8, bytes.len() / 2, bytes.len() - 1] {
        assert_eq!(BuildPart::from_bytes(&bytes[..cut]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(BuildPart::from_bytes(&damaged).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
    let task = plan(&table).await.tasks()[0].to_bytes().unwrap();
    assert_eq!(BuildTask::from_bytes(&task[1..]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_segment_that_the_driver_does_not_see_is_an_error_that_names_the_store() {
    let folder = folder(2);
    let table = declared(folder.path()).await;
    let planned = plan(&table).await;
    let parts = run_all(folder.path(), &planned).await;
    for name in segments(folder.path()) {
        fs::remove_file(folder.path().join("_lakemark/indexes").join(name)).unwrap();
    }
    let error = finish(&table, planned, parts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let store = folder.path().join("_lakemark");
    assert!(error.to_string().contains(&format!("of the store {}", store.display())), "{error}");
    assert_eq!(coverage(&table).await, 0.0);
}

#[tokio::test]
async fn a_task_that_does_not_see_the_store_is_an_error_that_names_it() {
    let folder = folder(2);
    let table = declared(folder.path()).await;
    let planned = plan(&table).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let store = elsewhere.path().join("store");
    let options = TableOptions { store: Some(store.display().to_string()), ..TableOptions::default() };
    let other = Table::open_alone(folder.path().to_str().unwrap(), options).await.unwrap();
    let error = other.run_build_task(&planned.tasks()[0], &BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&format!("the store {} lacks the manifest 1", store.display())), "{error}");
    assert!(!store.exists());
}

#[tokio::test]
async fn a_task_that_is_cancelled_leaves_nothing() {
    let folder = folder(2);
    let table = declared(folder.path()).await;
    let planned = plan(&table).await;
    let flag = CancelFlag::new();
    flag.cancel();
    let options = BuildOptions { cancel: Some(flag), ..BuildOptions::default() };
    let error = table.run_build_task(&planned.tasks()[0], &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(segments(folder.path()).len(), 0);
}

/// Files of the builds at once, each with a segment of its own.
const FILES: usize = 8;

async fn one_each(table: &Table) {
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
}

/// The files in memory, with an index that covers none of them.
async fn declared_in_memory() -> Arc<dyn ObjectStore> {
    let memory = in_memory(FILES).await;
    one_each(&*open_in(&memory, &Log::new()).await).await;
    memory
}

/// Claims that were put, and put again.
fn claims(log: &Log) -> usize {
    log.matching(".claim").iter().filter(|operation| operation.starts_with("put ")).count()
}

async fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is never so");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_builds_at_once_write_no_segment_twice() {
    for commit_every in [Duration::ZERO, Duration::from_secs(3600)] {
        let folder = folder(FILES);
        let (one, other) = (open(folder.path()).await, open(folder.path()).await);
        one_each(&one).await;
        let options = BuildOptions { commit_every: Some(commit_every), threads: Some(1), ..BuildOptions::default() };
        let build = |table: &Arc<Table>| {
            let (table, options) = (Arc::clone(table), options.clone());
            tokio::spawn(async move { table.build(options).await.unwrap() })
        };
        let (first, second) = (build(&one), build(&other));
        let reports = [first.await.unwrap(), second.await.unwrap()];
        let written = one.metrics().segments_written.get() + other.metrics().segments_written.get();
        assert_eq!(written, FILES as u64, "{reports:?}");
        assert_eq!(reports[0].segments + reports[1].segments, FILES as u64, "{reports:?}");
        assert_eq!(segments(folder.path()).len(), FILES);
        assert_eq!(fs::read_dir(folder.path().join("_lakemark/claims")).unwrap().count(), 0);
        assert_eq!(coverage(&one).await, 1.0);
        assert!(one.verify().await.unwrap().is_ok());
    }
}

/// One build reads a file until the other one has nothing else left to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_does_what_others_have_not_claimed_and_then_waits_for_these() {
    let memory = declared_in_memory().await;
    let (slow, quick) = (Log::new(), Log::new());
    let (begun, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(&quick));
    let is_free = {
        let begun = Arc::clone(&begun);
        move || !begun.load(Ordering::SeqCst) || segment_puts(&seen) == FILES - 1
    };
    slow.held.set(Hold("f0000.parquet", Box::new(is_free))).unwrap();
    for log in [&slow, &quick] {
        *log.aged.lock().unwrap() = None;
    }
    let (one, other) = (open_in(&memory, &slow).await, open_in(&memory, &quick).await);
    // What the plan needs of the file is read before.
    one.snapshot().await.unwrap();
    begun.store(true, Ordering::SeqCst);
    let first = tokio::spawn(async move { one.build(BuildOptions::default()).await.unwrap() });
    wait_until(|| claims(&slow) == 1).await;
    let second = other.build(BuildOptions::default()).await.unwrap();
    let first = first.await.unwrap();
    assert_eq!((segment_puts(&slow), segment_puts(&quick)), (1, FILES - 1), "{first:?} {second:?}");
    assert_eq!((first.segments, second.segments), (1, FILES as u64 - 1));
    let table = open_in(&memory, &Log::new()).await;
    assert_eq!(coverage(&table).await, 1.0);
    assert!(table.verify().await.unwrap().is_ok());
}

/// Its claim is left, and nobody renews it. By the time at the storage it is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_of_a_build_that_is_gone_is_taken_once_it_has_expired() {
    let memory = declared_in_memory().await;
    claimed_by_a_dead_build(&memory).await;
    let alive = Log::new();
    *alive.aged.lock().unwrap() = Some((".claim", TimeDelta::seconds(60)));
    let table = open_in(&memory, &alive).await;
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.segments, report.taken_over), (FILES as u64, 0));
    // One of them was put twice: if it was absent, and in the place of the old one.
    assert_eq!(claims(&alive), FILES + 1);
    assert_eq!(coverage(&table).await, 1.0);
    // All of them were released.
    let left = memory.list(Some(&StorePath::from("t/_lakemark/claims")));
    assert_eq!(futures::StreamExt::count(left).await, 0);
}

/// Whoever may not write it again would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_build_that_is_gone_is_done_without_its_claim_where_nobody_can_take_it() {
    let memory = declared_in_memory().await;
    claimed_by_a_dead_build(&memory).await;
    let alive = Log::new();
    *alive.aged.lock().unwrap() = Some((".claim", TimeDelta::seconds(60)));
    alive.fixed.store(true, Ordering::SeqCst);
    let table = open_in(&memory, &alive).await;
    let build = tokio::time::timeout(Duration::from_secs(60), table.build(BuildOptions::default()));
    assert_eq!(build.await.unwrap().unwrap().segments, FILES as u64);
    assert_eq!(coverage(&table).await, 1.0);
}

/// Leaves the claim of a build that was killed while it read the first file.
async fn claimed_by_a_dead_build(memory: &Arc<dyn ObjectStore>) {
    let dead = Log::new();
    let begun = Arc::new(AtomicBool::new(false));
    let is_free = {
        let begun = Arc::clone(&begun);
        move || !begun.load(Ordering::SeqCst)
    };
    dead.held.set(Hold("f0000.parquet", Box::new(is_free))).unwrap();
    let table = open_in(memory, &dead).await;
    table.snapshot().await.unwrap();
    begun.store(true, Ordering::SeqCst);
    let build = tokio::spawn(async move { table.build(BuildOptions::default()).await.map(drop) });
    wait_until(|| claims(&dead) == 1).await;
    build.abort();
    assert!(build.await.unwrap_err().is_cancelled());
}

/// A merge has a claim of its own. Whoever finds it young leaves the merge to who has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_merge_of_a_machine_that_is_gone_is_made_once_its_claim_has_expired() {
    let (folder, memory) = (folder(5), in_memory(1).await);
    let table = open_in(&memory, &Log::new()).await;
    table.create_index(spec("k"), false).await.unwrap();
    for file in 0..5 {
        let name = format!("f{file:04}.parquet");
        let bytes = fs::read(folder.path().join(&name)).unwrap();
        memory.put(&StorePath::from(format!("t/{name}")), bytes.into()).await.unwrap();
        table.build(BuildOptions { merging: Merging::Never, ..BuildOptions::default() }).await.unwrap();
    }
    let dead = Log::new();
    dead.held.set(Hold(".lmx", Box::new(|| false))).unwrap();
    let gone = open_in(&memory, &dead).await;
    let build = tokio::spawn(async move { gone.build(BuildOptions::default()).await.map(drop) });
    wait_until(|| claims(&dead) == 1).await;
    build.abort();
    assert!(build.await.unwrap_err().is_cancelled());
    for (age, merged_into) in [(None, 0), (Some((".claim", TimeDelta::seconds(60))), 1)] {
        let alive = Log::new();
        *alive.aged.lock().unwrap() = age;
        let table = open_in(&memory, &alive).await;
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.files, report.merged_into), (0, merged_into), "{age:?}");
        assert_eq!(table.snapshot().await.unwrap().indexes()[0].segments, 5 - 4 * merged_into, "{age:?}");
    }
    let left = memory.list(Some(&StorePath::from("t/_lakemark/claims")));
    assert_eq!(futures::StreamExt::count(left).await, 0);
    assert!(table.verify().await.unwrap().is_ok());
}

/// On a local disk the operating system takes the claim away with the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_claimed_is_free() {
    let folder = folder(FILES);
    let table = open(folder.path()).await;
    one_each(&table).await;
    let held = Log::new();
    let begun = Arc::new(AtomicBool::new(false));
    let is_free = {
        let begun = Arc::clone(&begun);
        move || !begun.load(Ordering::SeqCst)
    };
    held.held.set(Hold("f0000.parquet", Box::new(is_free))).unwrap();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &held);
    let stopped = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    // What is read of a file within a tick of its change is not remembered.
    tokio::time::sleep(Duration::from_millis(50)).await;
    stopped.snapshot().await.unwrap();
    begun.store(true, Ordering::SeqCst);
    let build = tokio::spawn(async move { stopped.build(BuildOptions::default()).await.map(drop) });
    let claims = folder.path().join("_lakemark/claims");
    let claimed = || fs::read_dir(&claims).map_or(0, |entries| entries.count());
    wait_until(|| claimed() == 1).await;
    build.abort();
    assert!(build.await.unwrap_err().is_cancelled());
    // A process that is killed leaves the file, too.
    fs::write(claims.join("00000000-0000-4000-8000-000000000001.claim"), []).unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!(report.segments, FILES as u64);
    assert_eq!(claimed(), 1);
    let options = VacuumOptions { older_than: Duration::from_secs(3600), ..VacuumOptions::default() };
    assert_eq!(table.vacuum(options).await.unwrap().removed, []);
    let old = std::time::SystemTime::now() - Duration::from_secs(7200);
    let left = fs::File::options().write(true).open(claims.join("00000000-0000-4000-8000-000000000001.claim"));
    left.unwrap().set_modified(old).unwrap();
    table.vacuum(options).await.unwrap();
    assert_eq!(claimed(), 0);
}

/// Claims only save work: where none can be made, everybody builds everything, and every segment is committed once.
#[tokio::test]
async fn a_store_that_takes_no_claims_is_built_all_the_same() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    one_each(&table).await;
    fs::write(folder.path().join("_lakemark/claims"), "a file where the folder of claims should be").unwrap();
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().segments, 2);
    assert_eq!(coverage(&table).await, 1.0);
}
