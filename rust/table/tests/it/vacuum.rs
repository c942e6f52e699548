//! A vacuum removes what is old and unused, and nothing else.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use lakemark_format::{ManifestChanges, ManifestEdit, PieceId};
use lakemark_table::{BuildOptions, ErrorKind, Table, TableOptions, VacuumOptions, VacuumReport};
use object_store::ObjectStore;

use crate::fixture::{create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, spec};
use crate::layer::{Layer, Log};
use crate::told::manifests;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const ORPHAN: &str = "indexes/00000000-0000-4000-8000-000000000001.lmx";
const UNFINISHED: &str = "manifest/.tmp-00000000-0000-4000-8000-000000000002";

fn store(folder: &Path) -> PathBuf {
    folder.join("_lakemark")
}

fn edit(number: u64) -> String {
    format!("manifest/{number:020}.lmm")
}

fn checkpoint(number: u64) -> String {
    format!("manifest/{number:020}.lmk")
}

fn age(folder: &Path, relative: &str, age: Duration) {
    let file = File::options().write(true).open(store(folder).join(relative)).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn files(folder: &Path) -> BTreeSet<String> {
    let list = |name: &str| {
        let entries = fs::read_dir(store(folder).join(name)).unwrap();
        entries.map(|entry| format!("{name}/{}", entry.unwrap().file_name().to_str().unwrap())).collect::<Vec<_>>()
    };
    [list("manifest"), list("indexes")].concat().into_iter().collect()
}

/// Edits 1 to 5 of one index after another. `s` was dropped by the last, its segment came back as if deleting it had
/// failed. Everything is 8 days old but the edits from `young` on.
async fn used_store(young: u64) -> (tempfile::TempDir, String) {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let first = files(folder.path());
    table.create_index(spec("s"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let second = files(folder.path());
    let dropped = second.difference(&first).find(|path| path.starts_with("indexes/")).unwrap().clone();
    let bytes = fs::read(store(folder.path()).join(&dropped)).unwrap();
    table.drop_index("s_bitmap", false).await.unwrap();
    fs::write(store(folder.path()).join(&dropped), bytes).unwrap();
    for path in [ORPHAN, UNFINISHED, "indexes/notes.txt", "manifest/1.lmm"] {
        fs::write(store(folder.path()).join(path), b"left behind").unwrap();
    }
    for path in files(folder.path()) {
        if !(young..=5).any(|number| path == edit(number)) {
            age(folder.path(), &path, 8 * DAY);
        }
    }
    (folder, dropped)
}

async fn vacuum(table: &Table, dry_run: bool) -> VacuumReport {
    table.vacuum(VacuumOptions { dry_run, ..VacuumOptions::default() }).await.unwrap()
}

fn removed(report: &VacuumReport) -> BTreeSet<String> {
    report.removed.iter().map(|waste| waste.path.clone()).collect()
}

#[tokio::test]
async fn what_is_old_and_unused_goes_and_a_dry_run_says_so_first() {
    let (folder, dropped) = used_store(6).await;
    let table = open(folder.path()).await;
    let before = files(folder.path());
    let dry = vacuum(&table, true).await;
    assert_eq!(files(folder.path()), before);
    let report = vacuum(&table, false).await;
    assert_eq!((dry.dry_run, report.dry_run), (true, false));
    assert_eq!((&dry.removed, dry.bytes), (&report.removed, report.bytes));
    let mut expected: BTreeSet<String> = (1..=4).map(edit).collect();
    expected.extend([ORPHAN.to_owned(), UNFINISHED.to_owned(), dropped]);
    assert_eq!(removed(&report), expected);
    assert_eq!(report.removed[0].path, edit(1));
    assert_eq!((report.manifests_kept, report.segments_kept), (1, 1));
    assert!(report.bytes > 22, "{}", report.bytes);
    // What is not ours stays, as does what is in use.
    assert_eq!(files(folder.path()), &(&before - &expected) | &BTreeSet::from([checkpoint(5)]));
    let found = probe(&open(folder.path()).await.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert!(table.verify().await.unwrap().is_ok());
    // Numbers go on from the newest.
    table.create_index(spec("s"), false).await.unwrap();
    assert!(files(folder.path()).contains(&edit(6)));
    assert_eq!(vacuum(&table, false).await.removed, []);
}

#[tokio::test]
async fn a_manifest_that_was_in_use_within_the_age_stays_with_its_segments() {
    // Manifest 5 is young: until then readers pinned manifest 4, which names the segment of `s`.
    let (folder, dropped) = used_store(5).await;
    let table = open(folder.path()).await;
    let report = vacuum(&table, false).await;
    let mut expected: BTreeSet<String> = (1..=3).map(edit).collect();
    expected.extend([ORPHAN.to_owned(), UNFINISHED.to_owned()]);
    assert_eq!(removed(&report), expected);
    assert!(files(folder.path()).contains(&dropped));
    assert_eq!((report.manifests_kept, report.segments_kept), (2, 2));
    // Everything is younger than a month.
    let (folder, _) = used_store(5).await;
    let options = VacuumOptions { older_than: 30 * DAY, dry_run: false, originals: false };
    assert_eq!(open(folder.path()).await.vacuum(options).await.unwrap().removed, []);
    let options = VacuumOptions { older_than: Duration::MAX, dry_run: false, originals: false };
    assert_eq!(open(folder.path()).await.vacuum(options).await.unwrap().removed, []);
}

#[tokio::test]
async fn a_vacuum_that_is_stopped_anywhere_leaves_every_manifest_with_its_segments() {
    let mut stopped = 0;
    for fail_from in 1.. {
        let (folder, _) = used_store(6).await;
        let log = Log::new();
        let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
        let path = folder.path().to_str().unwrap();
        let table = Table::open_layered(path, TableOptions::default(), &layer).await.unwrap();
        log.clear();
        log.fail_from.store(fail_from, Ordering::SeqCst);
        let outcome = table.vacuum(VacuumOptions::default()).await;
        let left = files(folder.path());
        let mut numbers = 0;
        for (number, manifest) in manifests(&store(folder.path())).unwrap() {
            let named = manifest.segments().all(|segment| left.contains(&segment.path));
            let pieces = manifest.pieces();
            let has_piece = |piece: &PieceId| store(folder.path()).join(format!("checkpoint/{piece}.lmp")).exists();
            assert!(named && pieces.iter().all(has_piece), "{number} after {fail_from}");
            numbers += 1;
        }
        let snapshot = open(folder.path()).await.snapshot().await.unwrap();
        assert_eq!((snapshot.manifest_number(), snapshot.indexes()[0].coverage), (Some(5), 1.0));
        let found = probe(&snapshot, &equals("k", 3)).await;
        assert_eq!(exact_rows(&found.files[0]), rows_of(&k_values(0, 250), 3));
        if outcome.is_ok() {
            assert_eq!(numbers, 1);
            break;
        }
        stopped += 1;
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Io, "operation {fail_from}");
        // The next one removes the rest.
        let table = open(folder.path()).await;
        vacuum(&table, false).await;
        assert_eq!(vacuum(&table, true).await.removed, []);
        assert_eq!(files(folder.path()).len(), 5);
    }
    // Listings, edits to read, and seven files to delete.
    assert!(stopped >= 10, "{stopped}");
}

#[tokio::test]
async fn what_cannot_be_told_apart_is_not_removed() {
    let (folder, _) = used_store(5).await;
    let before = files(folder.path());
    let table = open(folder.path()).await;
    let soon = VacuumOptions { older_than: Duration::from_secs(59 * 60), dry_run: false, originals: false };
    assert_eq!(table.vacuum(soon).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    // Manifest 4 stays because of its age; nobody knows which segments it names.
    let path = store(folder.path()).join(edit(4));
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = table.vacuum(VacuumOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(files(folder.path()), before);
}

#[tokio::test]
async fn a_table_without_a_store_has_nothing_to_vacuum() {
    let folder = folder(1);
    let report = open(folder.path()).await.vacuum(VacuumOptions::default()).await.unwrap();
    assert_eq!((report.removed.len(), report.manifests_kept), (0, 0));
    let glob = format!("{}/*.parquet", folder.path().display());
    let error = Table::open_alone(&glob, TableOptions::default()).await.unwrap().vacuum(VacuumOptions::default()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn whoever_knows_a_manifest_lists_and_reads_what_came_after_it() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let store_id = manifests(&store(folder.path())).unwrap()[&2].store_id();
    let commit = |number: u64| {
        let changes = ManifestChanges::default();
        let made = ManifestEdit { store_id, number, created_ms: 0, checkpoint: 0, changes };
        fs::write(store(folder.path()).join(edit(number)), made.encode().unwrap()).unwrap();
    };
    (3..=40).for_each(commit);
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let path = folder.path().to_str().unwrap();
    let table = Table::open_layered(path, TableOptions::default(), &layer).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.manifest_number(), snapshot.indexes()[0].coverage), (Some(40), 1.0));
    assert_eq!(log.matching("_lakemark").len(), 41, "{:?}", log.matching("_lakemark"));
    // Known already: the listing begins at the newest, and nothing is read.
    log.clear();
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), Some(40));
    assert_eq!(log.matching("_lakemark").len(), 1, "{:?}", log.matching("_lakemark"));
    commit(41);
    log.clear();
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), Some(41));
    assert_eq!(log.matching("_lakemark").len(), 2, "{:?}", log.matching("_lakemark"));
    // A store that is deleted and begun again counts from one again.
    fs::remove_dir_all(store(folder.path())).unwrap();
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), None);
    table.create_index(spec("k"), false).await.unwrap();
    assert_eq!(table.snapshot().await.unwrap().manifest_number(), Some(1));
}
