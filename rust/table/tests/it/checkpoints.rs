//! Stores of many commits: checkpoints say the same as the edits up to them, whoever writes them and whatever is lost of either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lakemark_format::{ContentKind, ManifestEdit, open_tail};
use lakemark_table::{BuildOptions, ErrorKind, IndexSpec, Table, TableOptions, VacuumOptions, VersionOperation};
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::{batch, create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, spec, write};
use crate::layer::{Hook, Layer, Log, Lost};
use crate::told::{compare_checkpoints, numbered};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// After so long no file counts as one that somebody may still be writing.
const SETTLED: Duration = Duration::from_millis(20);
/// Edits after a checkpoint.
const EDITS: u64 = 64;

fn store(folder: &Path) -> PathBuf {
    folder.join("_lakemark")
}

fn named(name: &str) -> IndexSpec {
    IndexSpec { name: Some(name.to_owned()), ..spec("s") }
}

/// So many commits, of which each second one drops what the one before declared.
async fn commit(table: &Table, name: &str, commits: u64) {
    for number in 0..commits {
        match number % 2 {
            0 => drop(table.create_index(named(name), false).await.unwrap()),
            _ => drop(table.drop_index(name, false).await.unwrap()),
        }
    }
}

/// A table of which two commits index `k`, and the others until there are so many declare and drop another index.
async fn committed(files: usize, commits: u64) -> tempfile::TempDir {
    let folder = folder(files);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    commit(&table, "other", commits - 2).await;
    folder
}

fn edits(folder: &Path) -> Vec<ManifestEdit> {
    numbered(&store(folder), "lmm")
        .values()
        .map(|path| ManifestEdit::decode(&fs::read(path).unwrap()).unwrap())
        .collect()
}

fn checkpoints(folder: &Path) -> Vec<u64> {
    numbered(&store(folder), "lmk").into_keys().collect()
}

fn pieces(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(store(folder).join("checkpoint")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
}

/// The files of pieces of a kind.
fn pieces_of(folder: &Path, kind: ContentKind) -> Vec<PathBuf> {
    let is_kind = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        open_tail(&bytes, bytes.len() as u64).unwrap().trailer.kind == kind
    };
    let found: Vec<PathBuf> =
        pieces(folder).iter().map(|name| store(folder).join("checkpoint").join(name)).filter(is_kind).collect();
    assert!(!found.is_empty(), "{kind:?}");
    found
}

fn age_all(folder: &Path) {
    for inside in ["manifest", "checkpoint", "indexes"] {
        for entry in fs::read_dir(store(folder).join(inside)).into_iter().flatten() {
            let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - 8 * DAY).unwrap();
        }
    }
}

/// Every checkpoint has the bytes of one that is made of all edits from the first on.
fn check_replay(folder: &Path) {
    assert_eq!(compare_checkpoints(&store(folder)), Ok(checkpoints(folder).len()));
}

/// The rows of the index on `k`, of a table that is opened anew.
async fn check_rows(folder: &Path, number: u64) {
    let snapshot = open(folder).await.snapshot().await.unwrap();
    assert_eq!(snapshot.manifest_number(), Some(number));
    assert_eq!(snapshot.indexes().iter().find(|index| index.name == "k_bitmap").unwrap().coverage, 1.0);
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn the_64th_commit_writes_a_checkpoint_which_is_the_replay_of_all_edits() {
    let folder = committed(2, EDITS - 1).await;
    assert_eq!(checkpoints(folder.path()), Vec::<u64>::new());
    let table = open(folder.path()).await;
    table.create_index(named("last"), false).await.unwrap();
    assert_eq!(checkpoints(folder.path()), [EDITS]);
    assert_eq!(pieces(folder.path()).len(), 2, "a part of files and a page of paths");
    // Edits name the newest checkpoint that their writers knew.
    table.drop_index("last", false).await.unwrap();
    assert_eq!(edits(folder.path()).last().unwrap().checkpoint, EDITS);
    // Another process, which read the checkpoint and made none of the edits, writes the next one.
    let other = open(folder.path()).await;
    commit(&other, "more", 2 * EDITS).await;
    assert_eq!(checkpoints(folder.path()), [EDITS, 2 * EDITS, 3 * EDITS]);
    assert_eq!(pieces(folder.path()).len(), 2, "files and paths are those of the first checkpoint");
    check_replay(folder.path());
    check_rows(folder.path(), 3 * EDITS + 1).await;
}

#[tokio::test]
async fn a_new_reader_reads_the_newest_checkpoint_and_the_edits_after_it() {
    let folder = committed(2, 2 * EDITS + 3).await;
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.manifest_number(), snapshot.indexes()[0].coverage), (Some(2 * EDITS + 3), 1.0));
    let read = log.matching("_lakemark");
    // The listing, the root, the files, and three edits. All files are matched, for which no page of paths is read.
    assert_eq!(read.len(), 6, "{read:?}");
    assert_eq!(log.matching(".lmk").len(), 1, "{read:?}");
    assert_eq!(log.matching(".lmm").len(), 3, "{read:?}");
}

#[tokio::test]
async fn a_file_that_comes_takes_the_page_of_its_path() {
    let folder = committed(8, EDITS + 1).await;
    tokio::time::sleep(SETTLED).await;
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].coverage, 1.0);
    assert_eq!(log.matching(".lmp").len(), 1, "the files");
    for (name, pages) in [("more", 1), ("other", 0)] {
        write(&folder.path().join(format!("{name}.parquet")), &batch(1, 5));
        tokio::time::sleep(SETTLED).await;
        log.clear();
        assert!(table.snapshot().await.unwrap().indexes()[0].coverage < 1.0);
        assert_eq!(log.matching(".lmp").len(), pages, "{:?}", log.matching("_lakemark"));
    }
}

#[tokio::test]
async fn whoever_knows_a_manifest_reads_the_root_alone_that_a_vacuum_leaves_of_it() {
    let folder = committed(2, EDITS + 10).await;
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let held = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    held.snapshot().await.unwrap();
    age_all(folder.path());
    open(folder.path()).await.vacuum(VacuumOptions::default()).await.unwrap();
    assert_eq!(checkpoints(folder.path()), [EDITS + 10]);
    log.clear();
    let snapshot = held.snapshot().await.unwrap();
    assert_eq!((snapshot.manifest_number(), snapshot.indexes()[0].coverage), (Some(EDITS + 10), 1.0));
    let read = log.matching("_lakemark");
    assert_eq!((log.matching(".lmk").len(), log.matching(".lmp").len()), (1, 0), "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_writers_at_once_write_the_same_checkpoints() {
    let folder = folder(2);
    create_indexes(&*open(folder.path()).await).await;
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..2 {
        let table = open(folder.path()).await;
        tasks.spawn(async move { commit(&table, &format!("other{writer}"), 50).await });
    }
    tasks.join_all().await;
    assert_eq!(edits(folder.path()).len(), 102);
    assert!(checkpoints(folder.path()).first().is_some_and(|first| (EDITS..EDITS + 20).contains(first)));
    check_replay(folder.path());
    check_rows(folder.path(), 102).await;
}

#[tokio::test]
async fn law_1_a_checkpoint_that_is_damaged_or_gone_costs_reads_and_no_index() {
    let folder = committed(2, 2 * EDITS + 1).await;
    let roots = numbered(&store(folder.path()), "lmk");
    flip(&roots[&(2 * EDITS)]);
    check_rows(folder.path(), 2 * EDITS + 1).await;
    fs::remove_file(&roots[&(2 * EDITS)]).unwrap();
    check_rows(folder.path(), 2 * EDITS + 1).await;
    for piece in pieces(folder.path()) {
        fs::remove_file(store(folder.path()).join("checkpoint").join(piece)).unwrap();
    }
    check_rows(folder.path(), 2 * EDITS + 1).await;
    // All edits are there. The next checkpoint has all of its pieces.
    let table = open(folder.path()).await;
    commit(&table, "more", 2).await;
    assert_eq!(checkpoints(folder.path()), [EDITS, 2 * EDITS + 2]);
    check_replay(folder.path());
}

#[tokio::test]
async fn law_1_files_that_no_piece_tells_are_as_without_indexes_and_paths_are_not_asked_for() {
    let folder = committed(2, EDITS + 1).await;
    // Nothing tells the state but the checkpoint.
    fs::remove_file(&numbered(&store(folder.path()), "lmm")[&1]).unwrap();
    for page in pieces_of(folder.path(), ContentKind::PathPage) {
        fs::remove_file(page).unwrap();
    }
    check_rows(folder.path(), EDITS + 1).await;
    for part in pieces_of(folder.path(), ContentKind::FilePart) {
        flip(&part);
    }
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.manifest_number(), snapshot.indexes().len(), snapshot.files().len()), (None, 0, 2));
    // So are older versions.
    let version = table.at_version(EDITS).snapshot().await.unwrap();
    assert_eq!((version.indexes().len(), version.files().len()), (0, 2));
    for error in [table.build(BuildOptions::default()).await.unwrap_err(), table.verify().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("the checkpoint {EDITS} in ")), "{error}");
        assert!(error.to_string().contains("its piece checkpoint/"), "{error}");
    }
}

#[tokio::test]
async fn law_5_files_that_no_piece_tells_of_a_table_with_updates_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f.parquet"), &batch(1, 5));
    let table = open(folder.path()).await;
    table.declare_key(&["s".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    commit(&table, "other", EDITS).await;
    assert_eq!(checkpoints(folder.path()), [EDITS]);
    fs::remove_file(&numbered(&store(folder.path()), "lmm")[&1]).unwrap();
    for part in pieces_of(folder.path(), ContentKind::FilePart) {
        fs::remove_file(part).unwrap();
    }
    let error = open(folder.path()).await.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("buffered updates") && error.to_string().contains("is missing"), "{error}");
    // A vacuum removes nothing that could still tell the state.
    age_all(folder.path());
    let before = (edits(folder.path()).len(), checkpoints(folder.path()));
    let error = open(folder.path()).await.vacuum(VacuumOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!((edits(folder.path()).len(), checkpoints(folder.path())), before);
}

#[tokio::test]
async fn whoever_knows_a_manifest_passes_a_damaged_edit_by_a_checkpoint_after_it() {
    let folder = committed(2, EDITS - 4).await;
    let held = open(folder.path()).await;
    assert_eq!(held.snapshot().await.unwrap().manifest_number(), Some(EDITS - 4));
    commit(&*open(folder.path()).await, "more", 6).await;
    flip(&numbered(&store(folder.path()), "lmm")[&(EDITS - 2)]);
    assert_eq!(checkpoints(folder.path()), [EDITS]);
    assert_eq!(held.snapshot().await.unwrap().manifest_number(), Some(EDITS + 2));
    check_rows(folder.path(), EDITS + 2).await;
}

#[tokio::test]
async fn checkpoints_of_many_files_share_the_pieces_that_did_not_change() {
    const FILES: usize = 1100;
    let folder = tempfile::tempdir().unwrap();
    let path = |file: usize| folder.path().join(format!("f{file:04}.parquet"));
    write(&path(0), &batch(0, 10));
    for file in 1..FILES {
        fs::copy(path(0), path(file)).unwrap();
    }
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    commit(&table, "other", EDITS - 2).await;
    let first = pieces(folder.path());
    assert_eq!(first.len(), 4, "two parts of 1,024 numbers, and two pages of 1,024 paths");
    commit(&table, "other", EDITS).await;
    assert_eq!((checkpoints(folder.path()), pieces(folder.path())), (vec![EDITS, 2 * EDITS], first));
    fs::copy(path(0), path(FILES)).unwrap();
    let other = open(folder.path()).await;
    other.build(BuildOptions::default()).await.unwrap();
    commit(&other, "other", EDITS - 1).await;
    assert_eq!(checkpoints(folder.path()).len(), 3);
    check_replay(folder.path());
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!((snapshot.files().len(), snapshot.indexes()[0].coverage), (FILES + 1, 1.0));
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert!(found.files.iter().all(|file| exact_rows(file) == [3]));
    // Pieces go that the newest checkpoint has not.
    age_all(folder.path());
    table.vacuum(VacuumOptions::default()).await.unwrap();
    assert_eq!(pieces(folder.path()).len(), 4);
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!((snapshot.files().len(), snapshot.indexes()[0].coverage), (FILES + 1, 1.0));
}

#[tokio::test]
async fn an_edit_that_is_missing_ends_the_use_of_indexes_until_a_checkpoint_after_it() {
    let folder = committed(2, EDITS + 5).await;
    let all = numbered(&store(folder.path()), "lmm");
    let bytes = fs::read(&all[&(EDITS + 3)]).unwrap();
    // Before the checkpoint nobody needs it.
    fs::remove_file(&all[&7]).unwrap();
    check_rows(folder.path(), EDITS + 5).await;
    fs::remove_file(&all[&(EDITS + 3)]).unwrap();
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.manifest_number(), snapshot.indexes().len()), (None, 0));
    for error in [
        table.build(BuildOptions::default()).await.unwrap_err(),
        table.create_index(named("x"), false).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("the edit {} of the store", EDITS + 3)), "{error}");
        assert!(error.to_string().contains("restore the folder `manifest`"), "{error}");
        assert!(error.to_string().contains("unless it has the folder `updates`"), "{error}");
    }
    fs::write(&all[&(EDITS + 3)], bytes).unwrap();
    check_rows(folder.path(), EDITS + 5).await;
}

#[tokio::test]
async fn law_5_an_edit_that_is_missing_of_a_table_with_updates_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f.parquet"), &batch(1, 5));
    let table = open(folder.path()).await;
    table.declare_key(&["s".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    commit(&table, "other", 4).await;
    let all = numbered(&store(folder.path()), "lmm");
    fs::remove_file(&all[&(*all.keys().next_back().unwrap() - 1)]).unwrap();
    let error = open(folder.path()).await.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("buffered updates") && error.to_string().contains("is missing"), "{error}");
}

#[tokio::test]
async fn versions_and_history_go_on_across_checkpoints() {
    let folder = committed(1, 2 * EDITS + 2).await;
    let table = open(folder.path()).await;
    for version in [1, 2, 3, EDITS - 1, EDITS, EDITS + 1, 2 * EDITS + 1] {
        let snapshot = table.at_version(version).snapshot().await.unwrap();
        assert_eq!(snapshot.manifest_number(), Some(version));
    }
    let history = table.history(None).await.unwrap();
    assert_eq!(history.len() as u64, 2 * EDITS + 2);
    assert!(history.iter().map(|version| version.version).eq((1..=2 * EDITS + 2).rev()));
    assert_eq!(history[0].operation, VersionOperation::DropIndex("other".to_owned()));
    assert_eq!(history[1].operation, VersionOperation::CreateIndex("other".to_owned()));
    let oldest: Vec<_> = history.iter().rev().take(2).map(|version| version.operation.clone()).collect();
    assert_eq!(oldest, [VersionOperation::CreateIndex("k_bitmap".to_owned()), VersionOperation::BuildIndexes]);
    // The first of those that are shown follows one that is not.
    let newest = table.history(Some(1)).await.unwrap();
    assert_eq!(newest[0].operation, VersionOperation::DropIndex("other".to_owned()));
}

#[tokio::test]
async fn a_vacuum_leaves_the_newest_manifest_as_a_checkpoint() {
    let folder = committed(2, 2 * EDITS + 10).await;
    let newest = 2 * EDITS + 10;
    age_all(folder.path());
    let held = open(folder.path()).await;
    let before = held.snapshot().await.unwrap();
    let table = open(folder.path()).await;
    let dry = table.vacuum(VacuumOptions { dry_run: true, ..VacuumOptions::default() }).await.unwrap();
    assert_eq!(checkpoints(folder.path()), [EDITS, 2 * EDITS]);
    let report = table.vacuum(VacuumOptions::default()).await.unwrap();
    assert_eq!((&dry.removed, report.manifests_kept), (&report.removed, 1));
    assert_eq!((checkpoints(folder.path()), edits(folder.path()).len()), (vec![newest], 1));
    assert_eq!(pieces(folder.path()).len(), 2, "the pieces of the first checkpoint are those of the newest");
    // Roots go first, so that nobody finds one whose pieces are gone.
    let roots = report.removed.iter().take_while(|waste| waste.path.ends_with(".lmk")).count();
    assert_eq!(roots, 2);
    check_rows(folder.path(), newest).await;
    // Whoever had the manifest before goes on.
    assert_eq!(before.manifest_number(), Some(newest));
    assert_eq!(held.snapshot().await.unwrap().manifest_number(), Some(newest));
    commit(&held, "more", 2).await;
    check_rows(folder.path(), newest + 2).await;
    let history = held.history(None).await.unwrap();
    assert_eq!(history.iter().map(|version| version.version).collect::<Vec<_>>(), [newest + 2, newest + 1, newest]);
    let error = held.at_version(newest - 1).snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotExpired, "{error}");
    held.at_version(newest).snapshot().await.unwrap();
}

#[tokio::test]
async fn a_vacuum_keeps_the_checkpoint_below_a_young_manifest_and_its_pieces() {
    let folder = committed(2, EDITS + 10).await;
    age_all(folder.path());
    let table = open(folder.path()).await;
    commit(&table, "young", 3).await;
    table.vacuum(VacuumOptions::default()).await.unwrap();
    // The manifest before the first young edit was in use until that came.
    assert_eq!(checkpoints(folder.path()), [EDITS + 10]);
    assert_eq!(edits(folder.path()).iter().map(|edit| edit.number).collect::<Vec<_>>(), [74, 75, 76, 77]);
    for version in 74..=77 {
        assert_eq!(table.at_version(version).snapshot().await.unwrap().manifest_number(), Some(version));
    }
    check_rows(folder.path(), EDITS + 13).await;
    assert_eq!(table.vacuum(VacuumOptions::default()).await.unwrap().removed, []);
}

async fn in_memory(memory: &Arc<dyn ObjectStore>, log: &Arc<Log>) -> Arc<Table> {
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(memory), log);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
}

async fn listed(memory: &Arc<dyn ObjectStore>, ending: &str) -> usize {
    use futures::TryStreamExt;
    let listed: Vec<_> = memory.list(Some(&StorePath::from("t/_lakemark"))).try_collect().await.unwrap();
    listed.iter().filter(|meta| meta.location.as_ref().ends_with(ending)).count()
}

#[tokio::test]
async fn a_checkpoint_that_fails_or_whose_answer_is_lost_fails_no_commit() {
    for (path, lost, at_once) in [
        ("/checkpoint/", Lost::Late, false),
        (".lmk", Lost::Late, false),
        (".lmk", Lost::Answered, true),
        (".lmk", Lost::Repeated, true),
    ] {
        let folder = folder(1);
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let bytes = fs::read(folder.path().join("f0000.parquet")).unwrap();
        memory.put(&StorePath::from("t/f0000.parquet"), PutPayload::from(bytes)).await.unwrap();
        let log = Log::new();
        let table = in_memory(&memory, &log).await;
        create_indexes(&table).await;
        commit(&table, "other", EDITS - 3).await;
        *log.lose.lock().unwrap() = Some((path, lost));
        // It is the last commit before a checkpoint.
        table.drop_index("other", true).await.unwrap();
        assert_eq!(*log.lose.lock().unwrap(), None, "{path}, {lost:?}: no answer was lost");
        assert_eq!((listed(&memory, ".lmm").await as u64, listed(&memory, ".lmk").await), (EDITS, at_once.into()));
        // A later commit tries again.
        commit(&table, "more", 1).await;
        assert_eq!(listed(&memory, ".lmk").await, 1, "{path}, {lost:?}");
        let snapshot = in_memory(&memory, &Log::new()).await.snapshot().await.unwrap();
        assert_eq!((snapshot.manifest_number(), snapshot.indexes().len()), (Some(EDITS + 1), 2));
    }
}

/// Whoever is stopped before he puts an edit finds the number free again after a vacuum. Others would never see the edit there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_waits_for_hours_is_made_of_the_newest_manifest() {
    let folder = folder(1);
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let bytes = fs::read(folder.path().join("f0000.parquet")).unwrap();
    memory.put(&StorePath::from("t/f0000.parquet"), PutPayload::from(bytes)).await.unwrap();
    let log = Log::new();
    let slow = in_memory(&memory, &log).await;
    create_indexes(&slow).await;
    let (reached, stopped) = std::sync::mpsc::channel();
    let (go, went) = std::sync::mpsc::channel::<()>();
    let (noted, once) = (Arc::clone(&log), Mutex::new(Some((reached, went))));
    let stop = move || {
        let is_put = |operation: &String| operation.starts_with("put ") && operation.ends_with(".lmm");
        let is_here = noted.operations.lock().unwrap().last().is_some_and(is_put);
        let waiting = is_here.then(|| once.lock().unwrap().take()).flatten();
        if let Some((reached, went)) = waiting {
            reached.send(()).unwrap();
            tokio::task::block_in_place(|| went.recv()).unwrap();
        }
    };
    log.hook.set(Hook(Box::new(stop))).unwrap();
    let late = Arc::clone(&slow);
    let declaring = tokio::spawn(async move { late.create_index(named("late"), false).await });
    tokio::task::block_in_place(|| stopped.recv()).unwrap();
    commit(&*in_memory(&memory, &Log::new()).await, "other", 2).await;
    let hours_later = Log::new();
    *hours_later.time.lock().unwrap() = Some((SystemTime::now() - 2 * HOUR).into());
    let options = VacuumOptions { older_than: HOUR, ..VacuumOptions::default() };
    let report = in_memory(&memory, &hours_later).await.vacuum(options).await.unwrap();
    assert_eq!((report.removed.len(), report.manifests_kept), (3, 1));
    go.send(()).unwrap();
    assert!(declaring.await.unwrap().unwrap());
    let snapshot = in_memory(&memory, &Log::new()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.manifest_number(), Some(5));
    assert!(snapshot.indexes().iter().any(|index| index.name == "late"));
    assert_eq!(listed(&memory, ".lmm").await, 2, "the edits 4 and 5");
}

#[tokio::test]
async fn a_commit_writes_what_it_changes_and_not_what_there_is() {
    let folder = folder(40);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let built = fs::metadata(&numbered(&store(folder.path()), "lmm")[&2]).unwrap().len();
    commit(&table, "other", 10).await;
    let lengths: Vec<u64> =
        numbered(&store(folder.path()), "lmm").values().map(|path| fs::metadata(path).unwrap().len()).collect();
    assert_eq!(lengths.len(), 12);
    assert!(built > 1500, "40 files are in the edit of {built} bytes");
    // Neither the files nor their segments are in any edit after that.
    assert!(lengths[2..].iter().all(|length| *length < 500), "{lengths:?}");
}
