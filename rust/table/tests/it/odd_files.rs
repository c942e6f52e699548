//! What lies in a table's folder or store and is no file, or leads in a circle: nothing waits for it, and nothing is lost by it.

use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lakemark_index::Reason;
use lakemark_table::{Change, ErrorKind, FileProbe, Operation, Result, Snapshot, WriteOptions};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::{age_logs, batch, create_indexes, equals, folder, open, probe, segments, write};

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// What `work` gives. A test that waits for ever would be worse than one that fails.
async fn at_last<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.unwrap_or_else(|_| {
        // A thread that waits for the other end of a FIFO keeps the runtime from ending.
        eprintln!("it waits for somebody who never comes");
        std::process::exit(1);
    })
}

async fn pin(folder: &Path) -> Result<Arc<Snapshot>> {
    at_last(async { open(folder).await.snapshot().await }).await
}

fn paths(snapshot: &Snapshot) -> Vec<&str> {
    let mut paths: Vec<&str> = snapshot.files().iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    paths
}

#[tokio::test]
async fn links_back_to_a_parent_are_left_out_and_others_are_followed() {
    let (folder, elsewhere) = (folder(1), folder(2));
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("sub/deep")).unwrap();
    write(&at("sub/deep/g.parquet"), &batch(0, 10));
    // Two of them made 2^40 folders.
    symlink("..", at("sub/up")).unwrap();
    symlink("..", at("sub/up2")).unwrap();
    symlink("../..", at("sub/deep/top")).unwrap();
    symlink(".", at("loop")).unwrap();
    symlink("/", at("root")).unwrap();
    symlink("round", at("round")).unwrap();
    symlink("nowhere.parquet", at("gone.parquet")).unwrap();
    symlink(elsewhere.path(), at("linked")).unwrap();
    symlink(elsewhere.path().join("f0001.parquet"), at("one.parquet")).unwrap();
    let snapshot = pin(folder.path()).await.unwrap();
    let expected =
        ["f0000.parquet", "linked/f0000.parquet", "linked/f0001.parquet", "one.parquet", "sub/deep/g.parquet"];
    assert_eq!(paths(&snapshot), expected);
    // From one of these folders it looks the same.
    let snapshot = pin(&at("sub")).await.unwrap();
    assert_eq!(paths(&snapshot), ["deep/g.parquet"]);
}

#[tokio::test]
async fn links_that_make_paths_without_end_are_an_error() {
    let folder = folder(1);
    // Each folder has two ways to the next: no circle, and 2^40 paths.
    for level in 0..40 {
        let here = folder.path().join(format!("l{level}"));
        fs::create_dir(&here).unwrap();
        for name in ["a", "b"] {
            symlink(format!("../l{}", level + 1), here.join(name)).unwrap();
        }
    }
    fs::create_dir(folder.path().join("l40")).unwrap();
    let error = pin(folder.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("symbolic links lead to more than 10000 folders"), "{error}");
}

#[tokio::test]
async fn fifos_sockets_and_devices_are_no_data_files() {
    let folder = folder(1);
    make_fifo(&folder.path().join("a.parquet"));
    let _socket = UnixListener::bind(folder.path().join("b.parquet")).unwrap();
    symlink("/dev/zero", folder.path().join("c.parquet")).unwrap();
    assert_eq!(paths(&pin(folder.path()).await.unwrap()), ["f0000.parquet"]);
    // Given by its name, it is an error.
    let error = at_last(async { open(&folder.path().join("a.parquet")).await.snapshot().await }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("a FIFO and not a file"), "{error}");
}

#[tokio::test]
async fn law_1_what_is_no_file_in_the_place_of_a_segment_is_a_damaged_index() {
    let folder = folder(1);
    create_indexes(&*open(folder.path()).await).await;
    let segment = &segments(folder.path())[0];
    let bytes = fs::read(segment).unwrap();
    let others: [&dyn Fn(); 4] = [
        &|| make_fifo(segment),
        &|| drop(UnixListener::bind(segment).unwrap()),
        &|| symlink("/dev/zero", segment).unwrap(),
        &|| symlink(segment.file_name().unwrap(), segment).unwrap(),
    ];
    for make in others {
        fs::remove_file(segment).unwrap();
        make();
        // Under another path, as the process remembers what segments say.
        let copy = tempfile::tempdir().unwrap();
        let way = copy.path().join("table");
        symlink(folder.path(), &way).unwrap();
        let snapshot = pin(&way).await.unwrap();
        let found = at_last(probe(&snapshot, &equals("k", 3))).await;
        assert!(matches!(found.files[0], FileProbe::Unknown), "{:?}", found.files[0]);
        let reasons: Vec<Reason> = found.report.leaves.iter().filter_map(|leaf| leaf.reason).collect();
        assert_eq!(reasons, [Reason::SegmentCorrupt]);
    }
    fs::remove_file(segment).unwrap();
    fs::write(segment, bytes).unwrap();
    let found = at_last(probe(&pin(folder.path()).await.unwrap(), &equals("k", 3))).await;
    assert!(matches!(found.files[0], FileProbe::Known { .. }));
}

#[tokio::test]
async fn law_1_what_is_no_file_in_the_place_of_a_manifest_ends_the_use_of_indexes() {
    let folder = folder(1);
    create_indexes(&*open(folder.path()).await).await;
    let manifests = folder.path().join("_lakemark/manifest");
    let mut all: Vec<_> = fs::read_dir(&manifests).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    let newest = all.pop().unwrap();
    fs::remove_file(&newest).unwrap();
    make_fifo(&newest);
    let snapshot = pin(folder.path()).await.unwrap();
    // Not those of the manifest before.
    assert!(snapshot.indexes().is_empty());
    let error = at_last(async { open(folder.path()).await.create_index(crate::fixture::spec("s"), false).await });
    assert!(error.await.is_err());
}

#[tokio::test]
async fn law_5_what_is_no_file_in_the_place_of_buffered_updates_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f.parquet"), &batch(1, 5));
    let table = open(folder.path()).await;
    let build = lakemark_table::BuildOptions::default();
    table.declare_key(&["s".to_owned()], &std::collections::BTreeMap::new(), build).await.unwrap();
    let change = |row| {
        let rows = vec![Change { operation: Operation::Upsert, rows: batch(row, 1) }];
        table.write(rows, WriteOptions::default())
    };
    change(1).await.unwrap();
    table.flush().await.unwrap();
    age_logs(folder.path());
    change(2).await.unwrap();
    let updates = folder.path().join("_lakemark/updates");
    let named = |suffix: &str| {
        let all = fs::read_dir(&updates).unwrap().map(|entry| entry.unwrap().path());
        // A log that was flushed may still be there.
        let all = all.filter(|path| path.to_string_lossy().ends_with(suffix));
        all.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
    };
    for suffix in [".lmr", ".lml"] {
        let (path, aside) = (named(suffix), folder.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        make_fifo(&path);
        let error = pin(folder.path()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    // A writer does not wait at a lock that is none.
    let lock = updates.join("lock");
    fs::remove_file(&lock).unwrap();
    make_fifo(&lock);
    let error = at_last(async { open(folder.path()).await.flush().await }).await.unwrap_err();
    assert!(error.to_string().contains("lock of writers"), "{error}");
    fs::remove_file(&lock).unwrap();
    assert!(pin(folder.path()).await.is_ok());
}
