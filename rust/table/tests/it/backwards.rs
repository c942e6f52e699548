//! A clock that goes backwards: what was written before is from the future. Builds, merges, checkpoints and watches go on, and versions
//! follow each other by their numbers.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{TimeDelta, Utc};
use lakemark_format::ManifestEdit;
use lakemark_table::watch::Watch;
use lakemark_table::{BuildOptions, IndexSpec, Merging, Table, VacuumOptions};

use crate::fixture::{
    batch, create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, spec, spec_with, write,
};
use crate::in_memory::{in_memory, open_in};
use crate::layer::Log;
use crate::told::{compare_checkpoints, numbered};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const EVERY: Duration = Duration::from_secs(30);

/// All files below are from tomorrow, and so say the edits. Of data files that is not done: their times are what they are known by.
fn from_tomorrow(store: &Path) {
    for path in numbered(store, "lmm").values() {
        let mut edit = ManifestEdit::decode(&fs::read(path).unwrap()).unwrap();
        edit.created_ms += i64::try_from(DAY.as_millis()).unwrap();
        fs::write(path, edit.encode().unwrap()).unwrap();
    }
    set_times(store, SystemTime::now() + DAY);
}

fn set_times(folder: &Path, time: SystemTime) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => set_times(&path, time),
            false => File::options().write(true).open(path).unwrap().set_modified(time).unwrap(),
        }
    }
}

async fn check(table: &Table, files: usize, at: &str) {
    let snapshot = table.snapshot().await.unwrap();
    let of_k = snapshot.indexes().into_iter().find(|index| index.name == "k_bitmap").unwrap();
    assert_eq!(of_k.coverage, 1.0, "{at}");
    let found = probe(&snapshot, &equals("k", 3)).await;
    for file in 0..files {
        assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "{at}, file {file}");
    }
    assert!(table.verify().await.unwrap().is_ok(), "{at}");
}

/// Commits that declare and drop an index, up to so many edits.
async fn commit_until(table: &Table, edits: u64) {
    while table.snapshot().await.unwrap().manifest_number() < Some(edits) {
        let spare = IndexSpec { name: Some("spare".to_owned()), ..spec("s") };
        if !table.drop_index("spare", true).await.unwrap() {
            table.create_index(spare, false).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_from_tomorrow_is_built_merged_and_checkpointed_today() {
    let folder = folder(2);
    let store = folder.path().join("_lakemark");
    create_indexes(&*open(folder.path()).await).await;
    from_tomorrow(&store);
    let table = open(folder.path()).await;
    check(&table, 2, "tomorrow's store").await;
    let late = folder.path().join("f0002.parquet");
    write(&late, &batch(500, 250));
    // This data file, too, was written before the clock was set.
    File::options().write(true).open(&late).unwrap().set_modified(SystemTime::now() + DAY).unwrap();
    let mut watch = Watch::new(Arc::clone(&table), BuildOptions::default(), EVERY);
    let look = watch.look().await.unwrap();
    assert_eq!((look.coverage.share(), look.report.unwrap().files), (1.0, 1));
    assert!(watch.look().await.unwrap().report.is_none(), "there is nothing new");
    write(&folder.path().join("f0003.parquet"), &batch(750, 250));
    assert_eq!(watch.look().await.unwrap().coverage.share(), 1.0);
    check(&table, 4, "built").await;
    let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
    assert_eq!(table.compact(all).await.unwrap().segments_written, 1);
    check(&table, 4, "merged").await;
    commit_until(&table, 65).await;
    assert_eq!(compare_checkpoints(&store), Ok(1));
    check(&*open(folder.path()).await, 4, "with a checkpoint").await;
}

/// By the time of day the second version is older than the first one.
#[tokio::test]
async fn versions_that_were_made_by_a_clock_that_went_back_are_found_by_number_and_by_time() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    from_tomorrow(&folder.path().join("_lakemark"));
    let table = open(folder.path()).await;
    table.create_index(IndexSpec { name: Some("today".to_owned()), ..spec("s") }, false).await.unwrap();
    let history = table.history(None).await.unwrap();
    assert!(history.iter().map(|version| version.version).eq([3, 2, 1]));
    assert!(history[0].time_ms < history[1].time_ms);
    assert_eq!(table.version_at(Utc::now().timestamp_micros()).await.unwrap(), 3);
    let tomorrow = Utc::now() + TimeDelta::days(2);
    assert_eq!(table.version_at(tomorrow.timestamp_micros()).await.unwrap(), 3);
    for version in 1..=3 {
        assert_eq!(table.at_version(version).snapshot().await.unwrap().manifest_number(), Some(version));
    }
}

/// Manifests that look old follow one that looks young: only those before the first young one go.
#[tokio::test]
async fn a_vacuum_of_a_store_whose_clock_went_back_leaves_no_gap() {
    let folder = folder(2);
    let store = folder.path().join("_lakemark");
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    commit_until(&table, 8).await;
    set_times(&store, SystemTime::now() - 10 * DAY);
    // The clock was ahead, for one commit.
    File::options()
        .write(true)
        .open(&numbered(&store, "lmm")[&4])
        .unwrap()
        .set_modified(SystemTime::now() + DAY)
        .unwrap();
    let report = table.vacuum(VacuumOptions::default()).await.unwrap();
    assert_eq!(report.manifests_kept, 6);
    assert!(numbered(&store, "lmm").into_keys().eq(3..=8));
    let table = open(folder.path()).await;
    check(&table, 2, "after the vacuum").await;
    for version in 3..=8 {
        assert_eq!(table.at_version(version).snapshot().await.unwrap().manifest_number(), Some(version));
    }
}

/// The clock of a storage is a day ahead of ours, or a day behind.
#[tokio::test]
async fn a_storage_with_another_time_is_built_once_and_checkpointed() {
    for days in [-1, 1] {
        let at = format!("{days} days");
        let log = Log::new();
        *log.time.lock().unwrap() = Some(Utc::now() + TimeDelta::days(days));
        let memory = in_memory(3).await;
        let table = open_in(&memory, &log).await;
        table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
        assert_eq!(table.build(BuildOptions::default()).await.unwrap().segments, 3, "{at}");
        assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 0, "{at}");
        commit_until(&table, 65).await;
        assert_eq!(log.matching(".lmk").iter().filter(|operation| operation.starts_with("put ")).count(), 1, "{at}");
        check(&*open_in(&memory, &log).await, 3, &at).await;
    }
}
