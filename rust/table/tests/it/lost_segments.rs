//! Segments that somebody deleted, cut off or damaged: they cover nothing, and the next build makes them again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lakemark_table::{BuildOptions, ErrorKind, IndexSpec, Merging, Table, TableOptions};
use object_store::ObjectStore;

use crate::fixture::{
    batch, create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, segments, spec, write,
};
use crate::layer::{Hook, Layer, Log};

/// A build that leaves each segment by itself.
fn unmerged() -> BuildOptions {
    BuildOptions { merging: Merging::Never, ..BuildOptions::default() }
}

/// A table of files that came one by one, each with a build, and their segments.
async fn one_by_one(folder: &Path, files: usize) -> (Arc<Table>, Vec<PathBuf>) {
    write(&folder.join("f0000.parquet"), &batch(0, 250));
    let table = open(folder).await;
    table.create_index(spec("k"), false).await.unwrap();
    let mut made: Vec<PathBuf> = Vec::new();
    for file in 0..files {
        if file > 0 {
            write(&folder.join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
        }
        table.build(unmerged()).await.unwrap();
        let fresh = segments(folder).into_iter().find(|path| !made.contains(path)).unwrap();
        made.push(fresh);
    }
    (table, made)
}

async fn coverage(table: &Table) -> f64 {
    table.snapshot().await.unwrap().checked_indexes().await.unwrap()[0].coverage
}

async fn check(table: &Table, files: usize) {
    assert_eq!(coverage(table).await, 1.0);
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    for file in 0..files {
        assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "file {file}");
    }
    assert!(table.verify().await.unwrap().is_ok());
}

fn verified() -> BuildOptions {
    BuildOptions { verify: 1.0, ..BuildOptions::default() }
}

#[tokio::test]
async fn a_segment_that_is_gone_or_cut_off_covers_nothing_and_is_built_again() {
    for is_cut in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (table, made) = one_by_one(folder.path(), 3).await;
        match is_cut {
            false => fs::remove_file(&made[1]).unwrap(),
            true => fs::write(&made[1], &fs::read(&made[1]).unwrap()[..100]).unwrap(),
        }
        assert_eq!(coverage(&table).await, 2.0 / 3.0);
        let info = table.snapshot().await.unwrap().checked_indexes().await.unwrap().remove(0);
        assert_eq!((info.segments, info.files_covered, info.rows), (2, 2, 500));
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.repaired, report.files, report.segments), (1, 1, 1));
        check(&table, 3).await;
        // The same files make the same segment.
        assert!(made[1].exists());
        // Nothing is left to do.
        let number = table.snapshot().await.unwrap().manifest_number();
        let report = table.build(verified()).await.unwrap();
        assert_eq!((report.verified, report.repaired, report.segments), (3, 0, 0));
        assert_eq!(table.snapshot().await.unwrap().manifest_number(), number);
    }
}

/// Same length, other bytes: only who reads them all can see it.
#[tokio::test]
async fn a_damaged_segment_is_built_again_by_a_build_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let (table, made) = one_by_one(folder.path(), 2).await;
    let mut bytes = fs::read(&made[0]).unwrap();
    bytes[90] ^= 1;
    fs::write(&made[0], bytes).unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.repaired, report.segments), (0, 0));
    // A merge says what to do, and that helps.
    let error = table.compact(BuildOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("`lakemark index build --verify`"), "{error}");
    let report = table.build(verified()).await.unwrap();
    assert_eq!((report.repaired, report.files, report.segments), (1, 1, 1));
    check(&table, 2).await;
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap().segments_written, 1);
    check(&table, 2).await;
}

/// Two builds find the same damage, and one has mended it under its name before the other one removes it.
#[tokio::test]
async fn a_segment_that_another_build_has_mended_meanwhile_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (_, made) = one_by_one(folder.path(), 2).await;
    let sound = fs::read(&made[0]).unwrap();
    let mut damaged = sound.clone();
    damaged[90] ^= 1;
    fs::write(&made[0], &damaged).unwrap();
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let (done, seen, mended, bytes) = (AtomicBool::new(false), Arc::downgrade(&log), made[0].clone(), sound.clone());
    let mend = move || {
        let seen = seen.upgrade().unwrap();
        let name = mended.file_name().unwrap().to_str().unwrap();
        let has_read = seen.matching(name).iter().any(|operation| operation.starts_with("get"));
        let last = seen.operations.lock().unwrap().last().cloned().unwrap_or_default();
        // Whoever found damage looks whether the newest manifest names the segment.
        if has_read && last.contains("manifest") && !done.swap(true, Ordering::SeqCst) {
            let temp = mended.with_extension("mended");
            fs::write(&temp, &bytes).unwrap();
            fs::rename(&temp, &mended).unwrap();
        }
    };
    log.hook.set(Hook(Box::new(mend))).unwrap();
    let report = table.build(verified()).await.unwrap();
    assert_eq!((report.verified, report.repaired, report.segments), (2, 0, 0));
    let deletes = log.matching(".lmx").iter().filter(|operation| operation.starts_with("delete")).count();
    assert_eq!(deletes, 0);
    assert_eq!(fs::read(&made[0]).unwrap(), sound);
    check(&table, 2).await;
}

/// A bucket may let nobody delete. The damaged segment keeps its name, as its files would be taken for indexed.
#[tokio::test]
async fn what_a_damaged_segment_covered_is_built_under_another_name_where_it_cannot_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (_, made) = one_by_one(folder.path(), 2).await;
    let mut bytes = fs::read(&made[0]).unwrap();
    bytes[90] ^= 1;
    fs::write(&made[0], &bytes).unwrap();
    let log = Log::new();
    *log.undeletable.lock().unwrap() = Some(".lmx");
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let report = table.build(verified()).await.unwrap();
    assert_eq!((report.repaired, report.files, report.segments, report.taken_over), (1, 1, 1, 0));
    assert_eq!(fs::read(&made[0]).unwrap(), bytes);
    assert_eq!(segments(folder.path()).len(), 3);
    check(&table, 2).await;
}

/// Nobody knows whether it is sound. A build that took it for damaged would remove it because of an outage.
#[tokio::test]
async fn a_segment_that_the_storage_does_not_give_is_not_taken_for_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (_, made) = one_by_one(folder.path(), 2).await;
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    *log.unreadable.lock().unwrap() = Some(".lmx");
    let error = table.build(verified()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert_eq!(table.verify().await.unwrap_err().kind(), ErrorKind::Io);
    *log.unreadable.lock().unwrap() = None;
    assert!(made.iter().all(|path| path.exists()));
    check(&table, 2).await;
}

/// Which segments are in the sample is another matter every day: how many there are is not.
#[tokio::test]
async fn a_sample_of_the_segments_is_compared_and_its_damaged_ones_are_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let (table, made) = one_by_one(folder.path(), 5).await;
    for path in &made {
        let mut bytes = fs::read(path).unwrap();
        bytes[90] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let build = |verify| table.build(BuildOptions { verify, ..unmerged() });
    let report = build(0.3).await.unwrap();
    // They share a segment from now on.
    assert_eq!((report.verified, report.repaired, report.files, report.segments), (2, 2, 2, 1));
    assert!(!table.verify().await.unwrap().is_ok());
    let report = build(1.0).await.unwrap();
    assert_eq!((report.verified, report.repaired, report.files), (4, 3, 3));
    check(&table, 5).await;
    assert_eq!(build(0.01).await.unwrap().verified, 1);
    for wrong in [-0.1, 1.1, f64::NAN] {
        assert_eq!(build(wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
    }
}

#[tokio::test]
async fn all_of_them_are_built_again_where_the_folder_is_gone() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    fs::remove_dir_all(folder.path().join("_lakemark/indexes")).unwrap();
    assert_eq!(coverage(&table).await, 0.0);
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.repaired, report.files, report.segments), (1, 3, 1));
    check(&table, 3).await;
}

/// What no data file is left of is forgotten; another index is left alone.
#[tokio::test]
async fn only_what_was_requested_and_what_is_there_is_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let (table, made) = one_by_one(folder.path(), 2).await;
    table.create_index(IndexSpec { name: Some("other".to_owned()), ..spec("s") }, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    fs::remove_file(&made[0]).unwrap();
    fs::remove_file(folder.path().join("f0000.parquet")).unwrap();
    let other = BuildOptions { index: Some("other".to_owned()), ..BuildOptions::default() };
    assert_eq!(table.build(other).await.unwrap().repaired, 0);
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.repaired, report.files, report.segments), (1, 0, 0));
    assert_eq!(coverage(&table).await, 1.0);
    assert!(table.verify().await.unwrap().is_ok());
}

/// The segment that is left proves that a touched file is the old one; the other index gets what it lost.
#[tokio::test]
async fn a_touched_file_keeps_the_segment_that_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (table, made) = one_by_one(folder.path(), 1).await;
    table.create_index(spec("s"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let path = folder.path().join("f0000.parquet");
    fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    fs::remove_file(&made[0]).unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.adopted, report.repaired, report.segments), (1, 1, 1));
    assert_eq!(report.indexes, ["k_bitmap"]);
    check(&table, 1).await;
}

#[tokio::test]
async fn a_look_for_lost_segments_is_one_listing() {
    let folder = tempfile::tempdir().unwrap();
    drop(one_by_one(folder.path(), 5).await);
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    assert_eq!(table.build(unmerged()).await.unwrap().segments, 0);
    let looks = log.matching("_lakemark/indexes");
    assert!(looks.len() == 1 && looks[0].starts_with("list "), "{looks:?}");
}
