//! Merging segments: the same rows from fewer, under every failure the old segments or the new one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lakemark_format::Encoding;
use lakemark_index::{KeyRanges, Predicate};
use lakemark_table::{
    BuildOptions, ErrorKind, FileProbe, IndexKind, IndexSpec, Merging, Snapshot, Table, TableOptions,
};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tempfile::TempDir;

use crate::encodings::spec_as;
use crate::fixture::{self, batch, equals, int_key, is_null, leaf, open, probe, write};
use crate::layer::{Hook, Layer, Log};

/// Files of 250 rows that came one by one, each with a build.
async fn appended(files: usize, spec: impl Fn() -> IndexSpec) -> (TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    write(&path(folder.path(), 0), &batch(0, 250));
    let table = open(folder.path()).await;
    table.create_index(spec(), false).await.unwrap();
    let only = BuildOptions { merging: Merging::Never, ..BuildOptions::default() };
    table.build(only.clone()).await.unwrap();
    for file in 1..files {
        write(&path(folder.path(), file), &batch(file * 250, 250));
        table.build(only.clone()).await.unwrap();
    }
    (folder, table)
}

fn path(folder: &Path, file: usize) -> std::path::PathBuf {
    folder.join(format!("f{file:04}.parquet"))
}

fn segments(folder: &Path) -> BTreeSet<std::path::PathBuf> {
    fixture::segments(folder).into_iter().collect()
}

fn questions() -> Vec<Predicate> {
    let between = KeyRanges::greater_than(int_key(2), true).intersect(&KeyRanges::less_than(int_key(6), true));
    vec![equals("k", 3), equals("k", 99), is_null("k"), leaf("k", between.clone()), leaf("k", between.complement())]
}

async fn answers(snapshot: &Snapshot) -> Vec<Vec<FileProbe>> {
    let mut found = Vec::new();
    for question in questions() {
        found.push(probe(snapshot, &question).await.files.to_vec());
    }
    found
}

/// Rows of a file that is gone lie before those of one that is there, in the same segment.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_file_that_is_gone_are_left_out_of_the_merged_segment() {
    let folder = fixture::folder(2);
    let table = open(folder.path()).await;
    fixture::create_indexes(&table).await;
    write(&path(folder.path(), 2), &batch(500, 250));
    table.build(BuildOptions::default()).await.unwrap();
    fs::remove_file(path(folder.path(), 0)).unwrap();
    let before = answers(&table.snapshot().await.unwrap()).await;
    let report = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!((report.segments_merged, report.segments_written), (2, 1));
    assert_eq!(answers(&table.snapshot().await.unwrap()).await, before);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_encoding_answers_the_same_from_one_segment() {
    for encoding in Encoding::ALL {
        let (folder, table) = appended(4, || spec_as("k", encoding)).await;
        fs::remove_file(path(folder.path(), 1)).unwrap();
        let pinned = table.snapshot().await.unwrap();
        let (before, old) = (answers(&pinned).await, segments(folder.path()));
        assert_eq!((pinned.indexes()[0].segments, old.len()), (4, 4));
        let report = table.compact(BuildOptions::default()).await.unwrap();
        assert_eq!((report.segments_merged, report.segments_written), (4, 1), "{encoding:?}");
        assert_eq!(report.indexes, [pinned.indexes()[0].name.clone()]);
        let after = table.snapshot().await.unwrap();
        let info = &after.indexes()[0];
        assert_eq!((info.segments, info.bytes, info.coverage), (1, report.bytes_written, 1.0), "{encoding:?}");
        assert_eq!(answers(&after).await, before, "{encoding:?}");
        assert!(table.verify().await.unwrap().is_ok(), "{encoding:?}");
        // Whoever pinned the older state still has its segments.
        assert_eq!(segments(folder.path()).intersection(&old).count(), 4, "{encoding:?}");
        assert_eq!(answers(&pinned).await, before, "{encoding:?}");
        let again = table.compact(BuildOptions::default()).await.unwrap();
        assert_eq!((again.segments_merged, again.segments_written), (0, 0), "{encoding:?}");
    }
}

/// A merge has the bytes that a build of all files at once would have, but for ids.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_as_small_as_a_build_of_all_files() {
    for encoding in Encoding::ALL {
        let (folder, table) = appended(3, || spec_as("k", encoding)).await;
        let merged = table.compact(BuildOptions::default()).await.unwrap().bytes_written;
        fs::remove_dir_all(folder.path().join("_lakemark")).unwrap();
        let table = open(folder.path()).await;
        table.create_index(spec_as("k", encoding), false).await.unwrap();
        assert_eq!(table.build(BuildOptions::default()).await.unwrap().bytes_written, merged, "{encoding:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_grow_to_as_many_files_as_the_option_allows() {
    let spec = || IndexSpec {
        kind: Some(IndexKind::Key),
        columns: vec!["k".to_owned()],
        options: [("files_per_segment".to_owned(), "2".to_owned())].into(),
        ..IndexSpec::default()
    };
    let (_folder, table) = appended(5, spec).await;
    let report = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!((report.segments_merged, report.segments_written), (4, 2));
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].segments, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_segment_is_named_and_nothing_is_lost() {
    let (folder, table) = appended(3, || spec_as("k", Encoding::Packed)).await;
    let before = answers(&table.snapshot().await.unwrap()).await;
    let path = segments(folder.path()).pop_first().unwrap();
    let good = fs::read(&path).unwrap();
    let mut bytes = good.clone();
    bytes[90] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = table.compact(BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("lakemark index build"), "{error}");
    fs::write(&path, good).unwrap();
    // The other two were merged; they stay until a vacuum.
    assert_eq!(segments(folder.path()).len(), 4);
    assert_eq!(answers(&open(folder.path()).await.snapshot().await.unwrap()).await, before);
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap().segments_written, 1);
}

/// A table with three segments of an index and one of another, which is dropped before an operation of this number.
async fn dropping(at: u64) -> (TempDir, Arc<Table>, Arc<Log>) {
    let (folder, table) = appended(3, || spec_as("k", Encoding::Packed)).await;
    table.create_index(IndexSpec { name: Some("other".to_owned()), ..fixture::spec("s") }, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let (log, count, handle) = (Log::new(), AtomicU64::new(0), tokio::runtime::Handle::current());
    let drop_key = move || {
        if count.fetch_add(1, Ordering::SeqCst) + 1 == at {
            // Another thread knows nothing of the file that this one reads.
            let dropped = std::thread::scope(|scope| {
                scope.spawn(|| handle.block_on(table.drop_index("k_key", false))).join().unwrap()
            });
            dropped.unwrap();
        }
    };
    let drop_key = move || tokio::task::block_in_place(&drop_key);
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    log.clear();
    log.hook.set(Hook(Box::new(drop_key))).unwrap();
    (folder, table, log)
}

/// The files of a dropped index go at once. Whoever looks at them meanwhile leaves the index out, and speaks of no damage. What a
/// compaction replaced before the index was dropped stays for readers, until a vacuum takes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_dropped_meanwhile_is_left_out_and_not_damaged() {
    for call in ["compact", "verify", "build", "list"] {
        for at in 1.. {
            let (folder, table, log) = dropping(at).await;
            let verified = BuildOptions { verify: 1.0, threads: Some(1), ..BuildOptions::default() };
            let mut replaced = 0;
            match call {
                "compact" => {
                    let report = table.compact(verified).await.unwrap_or_else(|error| panic!("{at}: {error}"));
                    replaced = report.segments_merged;
                }
                "verify" => assert!(table.verify().await.unwrap().is_ok(), "{at}"),
                "build" => assert_eq!(table.build(verified).await.unwrap().repaired, 0, "{at}"),
                _ => {
                    let indexes = table.snapshot().await.unwrap().checked_indexes().await.unwrap();
                    assert!(indexes.iter().all(|index| index.coverage == 1.0), "{call} {at}");
                }
            }
            if log.count() < at {
                assert!(at > 4, "{call} {at}");
                break;
            }
            let left = segments(folder.path()).len() as u64;
            assert_eq!(left, 1 + replaced, "{call} {at}: nothing is left of the dropped index");
            assert!(open(folder.path()).await.verify().await.unwrap().is_ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_was_removed_before_it_is_named_is_an_error_and_the_old_ones_stay() {
    let (folder, table) = appended(3, || spec_as("k", Encoding::Packed)).await;
    let before = segments(folder.path());
    let expected = answers(&table.snapshot().await.unwrap()).await;
    let log = Log::new();
    let (old, root) = (before.clone(), folder.path().to_owned());
    // What a vacuum does to a segment that is older than its age and that nobody has named.
    let is_named = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "lmx");
    let remove = move || {
        segments(&root).difference(&old).filter(is_named).for_each(|new| fs::remove_file(new).unwrap());
    };
    log.hook.set(Hook(Box::new(remove))).unwrap();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let path = folder.path().to_str().unwrap();
    let slow = Table::open_layered(path, TableOptions::default(), &layer).await.unwrap();
    let error = slow.compact(BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("a vacuum has removed them: try again"), "{error}");
    assert_eq!(segments(folder.path()), before);
    let table = open(folder.path()).await;
    assert_eq!(answers(&table.snapshot().await.unwrap()).await, expected);
    assert!(table.verify().await.unwrap().is_ok());
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap().segments_written, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_index_and_no_index_are_errors() {
    let (_folder, table) = appended(1, || spec_as("k", Encoding::Equality)).await;
    let options = BuildOptions { index: Some("other".to_owned()), ..BuildOptions::default() };
    assert_eq!(table.compact(options).await.unwrap_err().kind(), ErrorKind::NotFound);
    table.drop_index("k_bitmap", false).await.unwrap();
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Law 4 in the middle of a compaction: whatever operation fails, there are the old segments or the new one.
#[tokio::test(flavor = "multi_thread")]
async fn law_4_a_storage_that_fails_in_a_compaction_leaves_the_old_or_the_new_segments() {
    for encoding in [Encoding::Packed, Encoding::Sliced] {
        let (folder, _) = appended(3, || spec_as("k", encoding)).await;
        let quiet = Log::new();
        let (mut failures, mut expected) = (0, None);
        for fail_from in 1.. {
            let memory = copied(folder.path()).await;
            // The copies have another time, which a build takes over.
            open_in(&memory, &quiet).await.build(BuildOptions::default()).await.unwrap();
            let log = Log::new();
            let table = open_in(&memory, &log).await;
            log.clear();
            log.fail_from.store(fail_from, Ordering::SeqCst);
            let outcome = table.compact(BuildOptions { threads: Some(1), ..BuildOptions::default() }).await;
            let after = open_in(&memory, &quiet).await;
            let snapshot = after.snapshot().await.unwrap();
            let found = answers(&snapshot).await;
            assert_eq!(*expected.get_or_insert_with(|| found.clone()), found, "{encoding:?} {fail_from}");
            assert!(after.verify().await.unwrap().is_ok());
            let segments = snapshot.indexes()[0].segments;
            match outcome {
                Ok(report) => {
                    assert_eq!((report.segments_written, segments), (1, 1), "{encoding:?}");
                    break;
                }
                Err(error) => {
                    failures += 1;
                    assert!([ErrorKind::Io, ErrorKind::Corrupt].contains(&error.kind()), "{fail_from}: {error}");
                    // A commit may be made where the look whether it counts had no answer.
                    let is_unsure = error.to_string().contains("whether the change was made cannot be told");
                    assert!(
                        segments == 3 || is_unsure && segments == 1,
                        "{encoding:?} {fail_from}: {segments}, {error}"
                    );
                }
            }
        }
        assert!(failures >= 8, "{failures}");
    }
}

/// The folder in a storage of its own.
async fn copied(folder: &Path) -> Arc<dyn ObjectStore> {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = format!("t/{}", path.strip_prefix(folder).unwrap().to_str().unwrap());
            let bytes = PutPayload::from(fs::read(&path).unwrap());
            memory.put(&object_store::path::Path::from(name), bytes).await.unwrap();
        }
    }
    memory
}

async fn open_in(memory: &Arc<dyn ObjectStore>, log: &Arc<Log>) -> Arc<Table> {
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(memory), log);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
}
