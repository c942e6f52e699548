//! Builds in three steps, whose tasks and parts cross to other processes as bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lakemark_table::{
    BuildOptions, BuildPart, BuildPlan, BuildReport, BuildTask, CancelFlag, ErrorKind, FileProbe, Table, TableOptions,
};

use crate::fixture::{batch, equals, exact_rows, folder, k_values, open, probe, rows_of, spec, spec_with, write};

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
    let other = Table::open(folder.path().to_str().unwrap(), options).await.unwrap();
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
