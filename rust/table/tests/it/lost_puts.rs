//! Puts of a compaction whose answers are lost, one after the other: its segment, its edit, and the checkpoint that the edit makes due.
//! Nothing is there twice, nothing is lost, and whoever tries again comes to what a storage that answers would have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::TryStreamExt;
use lakemark_table::{BuildOptions, ErrorKind, FileProbe, IndexKind, IndexSpec, Merging, Result, Table};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::{equals, exact_rows, probe, spec, write};
use crate::in_memory::open_in;
use crate::layer::{Log, Lost};

/// The first file is far larger than the others.
const ROWS: [i64; 6] = [12_000, 250, 250, 250, 250, 250];
/// Edits before the compaction: its own is the 64th.
const EDITS: u64 = 63;

/// What merges segments.
#[derive(Clone, Copy, Debug)]
enum Merge {
    /// A compaction of all that is worth it.
    Worthwhile,
    /// One of everything.
    Full,
    /// A build that finds too many segments.
    Due,
}

async fn make(table: &Table, merge: Merge) -> Result<u64> {
    let options = BuildOptions { threads: Some(1), ..BuildOptions::default() };
    Ok(match merge {
        Merge::Worthwhile => table.compact(options).await?.segments_written,
        Merge::Full => table.compact(BuildOptions { merging: Merging::All, ..options }).await?.segments_written,
        Merge::Due => table.build(options).await?.merged_into,
    })
}

async fn quiet(memory: &Arc<dyn ObjectStore>) -> Arc<Table> {
    open_in(memory, &Log::new()).await
}

/// Keys in no order, each of which is there once.
fn key(row: i64) -> i64 {
    row * 7919 % 100_003
}

/// Puts the data file of this number.
async fn put(memory: &Arc<dyn ObjectStore>, file: usize) {
    let first: i64 = ROWS[..file].iter().sum();
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values((first..first + ROWS[file]).map(key)));
    let (folder, name) = (tempfile::tempdir().unwrap(), format!("f{file:04}.parquet"));
    write(&folder.path().join(&name), &RecordBatch::try_from_iter([("k", k)]).unwrap());
    let bytes = std::fs::read(folder.path().join(&name)).unwrap();
    memory.put(&Path::from(format!("t/{name}")), PutPayload::from(bytes)).await.unwrap();
}

/// A table with a segment for each file, and one edit less than make a checkpoint due.
async fn prepared(kind: &str) -> InMemory {
    let inner = Arc::new(InMemory::new());
    let memory: Arc<dyn ObjectStore> = Arc::clone(&inner) as Arc<_>;
    put(&memory, 0).await;
    let table = quiet(&memory).await;
    for file in 0..ROWS.len() {
        if file > 0 {
            put(&memory, file).await;
        } else {
            let (name, kind) = (Some("kept".to_owned()), IndexKind::from_name(kind));
            table.create_index(IndexSpec { name, kind, ..spec("k") }, false).await.unwrap();
        }
        table.build(BuildOptions { merging: Merging::Never, ..BuildOptions::default() }).await.unwrap();
    }
    while table.snapshot().await.unwrap().manifest_number() < Some(EDITS) {
        if !table.drop_index("spare", true).await.unwrap() {
            let spare = IndexSpec { name: Some("spare".to_owned()), ..spec("k") };
            table.create_index(spare, false).await.unwrap();
        }
    }
    inner.fork()
}

/// Names of files of the store that end so.
async fn names(memory: &Arc<dyn ObjectStore>, ending: &str) -> BTreeSet<String> {
    let listed: Vec<_> = memory.list(Some(&Path::from("t/_lakemark"))).try_collect().await.unwrap();
    let names = listed.into_iter().map(|meta| meta.location.to_string());
    names.filter(|name| name.ends_with(ending)).collect()
}

/// What there is in the end.
#[derive(Debug, PartialEq, Eq)]
struct End {
    /// Segments of the index.
    segments: u64,
    /// The files of segments, also of those that were merged. Their names say what they are made of.
    files: BTreeSet<String>,
    edits: usize,
}

/// What there is; all of it is right.
async fn end(memory: &Arc<dyn ObjectStore>, at: &str) -> End {
    let table = quiet(memory).await;
    let snapshot = table.snapshot().await.unwrap();
    let checked = snapshot.checked_indexes().await.unwrap();
    assert_eq!(checked, snapshot.indexes(), "{at}");
    let index = checked.into_iter().find(|index| index.name == "kept").unwrap();
    assert_eq!(index.coverage, 1.0, "{at}");
    // The eighth key of the third file.
    let found = probe(&snapshot, &equals("k", key(ROWS[0] + ROWS[1] + 7))).await;
    if index.kind.as_str() == "key" {
        let rows: Vec<Vec<u32>> = found.files.iter().map(exact_rows).collect();
        assert_eq!(rows, [vec![], vec![], vec![7], vec![], vec![], vec![]], "{at}");
    }
    assert!(!matches!(&found.files[2], FileProbe::Unknown), "{at}");
    let report = table.verify().await.unwrap();
    assert!(report.is_ok(), "{at}: {report:?}");
    End { segments: index.segments, files: names(memory, ".lmx").await, edits: names(memory, ".lmm").await.len() }
}

/// The checkpoint is there, or a later commit writes it, and the store can do without an edit before it.
async fn check_checkpoint(memory: &Arc<dyn ObjectStore>, at: &str) {
    if names(memory, ".lmk").await.is_empty() {
        let later = IndexSpec { name: Some("later".to_owned()), ..spec("k") };
        quiet(memory).await.create_index(later, false).await.unwrap();
    }
    assert_eq!(names(memory, ".lmk").await.len(), 1, "{at}");
    memory.delete(&Path::from(format!("t/_lakemark/manifest/{:020}.lmm", 7))).await.unwrap();
    end(memory, at).await;
}

/// Loses the answer of the put of this number; says which one it was, or none if there are fewer.
async fn lose(
    memory: &Arc<dyn ObjectStore>,
    merge: Merge,
    (number, lost, is_overtaken): (u64, Lost, bool),
    expected: &End,
) -> Option<String> {
    let log = Log::new();
    let table = open_in(memory, &log).await;
    table.snapshot().await.unwrap();
    log.clear();
    *log.lose.lock().unwrap() = Some(("", lost));
    log.answered_before.store(number, Ordering::SeqCst);
    let made = make(&table, merge).await;
    if log.lose.lock().unwrap().is_some() {
        return None;
    }
    let puts = log.matching("put ");
    let put = puts[number as usize].clone();
    let at = format!("{merge:?}, {lost:?}, overtaken {is_overtaken}, {put}");
    match &made {
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Io, "{at}: {error}");
            assert!(put.contains("/indexes/") || matches!(lost, Lost::Silent | Lost::Late), "{at}: {error}");
            assert!(lost != Lost::Repeated, "{at}: {error}");
        }
    }
    // Nothing that is named is missing, whether it is made or not.
    end(memory, &at).await;
    if !is_overtaken {
        log.arrive(memory).await;
        end(memory, &at).await;
    }
    let again = make(&*quiet(memory).await, merge).await.unwrap_or_else(|error| panic!("{at}, again: {error}"));
    // A build goes on without the merge.
    if made.is_ok_and(|made| made > 0) {
        assert_eq!(again, 0, "{at}: it was done");
    }
    log.arrive(memory).await;
    assert_eq!(end(memory, &at).await, *expected, "{at}");
    check_checkpoint(memory, &at).await;
    Some(put)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_whose_nth_answer_is_lost_is_made_once_and_the_next_one_does_the_rest() {
    let cases =
        [("key", Merge::Worthwhile, 2), ("key", Merge::Full, 1), ("key", Merge::Due, 2), ("summary", Merge::Full, 1)];
    for (kind, merge, segments) in cases {
        let template = prepared(kind).await;
        let copy = || -> Arc<dyn ObjectStore> { Arc::new(template.fork()) };
        let memory = copy();
        assert_eq!(make(&*quiet(&memory).await, merge).await.unwrap(), 1, "{kind}, {merge:?}");
        let expected = end(&memory, "answered").await;
        assert_eq!((expected.segments, expected.edits as u64), (segments, EDITS + 1), "{kind}, {merge:?}");
        assert_eq!(names(&memory, ".lmk").await.len(), 1);
        let losses = [Lost::Answered, Lost::Repeated, Lost::Silent, Lost::Late].map(|lost| (lost, false));
        for (lost, is_overtaken) in losses.into_iter().chain([(Lost::Late, true)]) {
            let mut puts = BTreeSet::new();
            for number in 0.. {
                let Some(put) = lose(&copy(), merge, (number, lost, is_overtaken), &expected).await else { break };
                puts.insert(put.rsplit('.').next().unwrap_or_default().to_owned());
            }
            let all: BTreeSet<String> = ["lmx", "lmm", "lmp", "lmk"].map(str::to_owned).into();
            assert!(puts.is_superset(&all), "{kind}, {merge:?}, {lost:?}: {puts:?}");
        }
    }
}
