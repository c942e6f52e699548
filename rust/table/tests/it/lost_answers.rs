//! Commits whose answer is lost: made is made, nothing of it is deleted, and whoever cannot tell says so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lakemark_table::{BuildOptions, ErrorKind, IndexInfo, IndexSpec, Result, Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::{equals, exact_rows, folder, k_values, probe, rows_of, spec};
use crate::layer::{Layer, Log, Lost};

const FILES: usize = 3;

/// A commit of each kind that is made in remote stores.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create,
    Drop,
    Build,
    /// A build of files that were touched and not changed.
    Adopt,
    /// A build that finds a segment missing.
    Repair,
    Compact,
}

const ACTS: [Act; 6] = [Act::Create, Act::Drop, Act::Build, Act::Adopt, Act::Repair, Act::Compact];

async fn open_in(memory: &Arc<dyn ObjectStore>, log: &Arc<Log>) -> Arc<Table> {
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(memory), log);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
}

async fn quiet(memory: &Arc<dyn ObjectStore>) -> Arc<Table> {
    open_in(memory, &Log::new()).await
}

/// A table for which there is something to do.
async fn prepared(act: Act) -> Arc<dyn ObjectStore> {
    let folder = folder(FILES);
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let put = async |file: usize| {
        let name = format!("f{file:04}.parquet");
        let bytes = std::fs::read(folder.path().join(&name)).unwrap();
        memory.put(&Path::from(format!("t/{name}")), PutPayload::from(bytes)).await.unwrap();
    };
    put(0).await;
    let table = quiet(&memory).await;
    // Somebody else's index, so that the store is there.
    table.create_index(spec("s"), false).await.unwrap();
    if !matches!(act, Act::Create) {
        table.create_index(spec("k"), false).await.unwrap();
    }
    for file in 1..FILES {
        if matches!(act, Act::Compact) {
            table.build(BuildOptions::default()).await.unwrap();
        }
        put(file).await;
    }
    if matches!(act, Act::Repair) {
        table.drop_index("s_bitmap", false).await.unwrap();
    }
    match act {
        Act::Create | Act::Build => {}
        Act::Drop | Act::Adopt | Act::Repair | Act::Compact => {
            drop(table.build(BuildOptions::default()).await.unwrap())
        }
    }
    if matches!(act, Act::Adopt) {
        for file in 0..FILES {
            put(file).await;
        }
    }
    if matches!(act, Act::Repair) {
        memory.delete(&segments(&memory).await[0]).await.unwrap();
        // With one more file it becomes another segment, which has to be committed.
        let bytes = std::fs::read(folder.path().join("f0000.parquet")).unwrap();
        memory.put(&Path::from("t/g.parquet"), PutPayload::from(bytes)).await.unwrap();
    }
    memory
}

async fn segments(memory: &Arc<dyn ObjectStore>) -> Vec<Path> {
    use futures::TryStreamExt;
    let listed: Vec<_> = memory.list(Some(&Path::from("t/_lakemark/indexes"))).try_collect().await.unwrap();
    listed.into_iter().map(|meta| meta.location).collect()
}

/// Does it; says how much was done.
async fn make(table: &Table, act: Act) -> Result<u64> {
    let options = BuildOptions::default();
    Ok(match act {
        Act::Create => table.create_index(spec("k"), false).await?.into(),
        Act::Drop => table.drop_index("k_bitmap", false).await?.into(),
        Act::Build => {
            let report = table.build(options).await?;
            report.segments + report.taken_over
        }
        Act::Adopt => table.build(options).await?.adopted,
        Act::Repair => table.build(options).await?.repaired,
        Act::Compact => {
            let options = BuildOptions { index: Some("k_bitmap".to_owned()), ..options };
            table.compact(options).await?.segments_written
        }
    })
}

/// How much there is to do.
fn whole(act: Act) -> u64 {
    match act {
        Act::Create | Act::Drop | Act::Repair | Act::Compact => 1,
        Act::Build => 2,
        Act::Adopt => FILES as u64,
    }
}

/// The index, if it is there. Whatever the manifest names is there and says what the data say.
async fn sound(memory: &Arc<dyn ObjectStore>, at: &str) -> Option<IndexInfo> {
    let table = quiet(memory).await;
    let report = table.verify().await.unwrap();
    assert!(report.is_ok(), "{at}: {report:?}");
    let snapshot = table.snapshot().await.unwrap();
    let checked = snapshot.checked_indexes().await.unwrap();
    assert_eq!(checked, snapshot.indexes(), "{at}");
    checked.into_iter().find(|index| index.name == "k_bitmap")
}

/// Whether it was done, and the whole of it.
async fn is_done(memory: &Arc<dyn ObjectStore>, act: Act, at: &str) -> bool {
    let index = sound(memory, at).await;
    match (act, index) {
        (Act::Create, index) => index.is_some(),
        (Act::Drop, index) => index.is_none(),
        (_, None) => panic!("{at}: the index is gone"),
        (Act::Compact, Some(index)) => {
            assert_eq!(index.coverage, 1.0, "{at}");
            index.segments == 1
        }
        (_, Some(index)) if index.coverage < 1.0 => false,
        (_, Some(_)) => {
            let snapshot = quiet(memory).await.snapshot().await.unwrap();
            let found = probe(&snapshot, &equals("k", 3)).await;
            assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3), "{at}");
            true
        }
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_made_once_and_nothing_of_it_is_deleted() {
    for act in ACTS {
        for lost in [Lost::Answered, Lost::Repeated] {
            let at = format!("{act:?}, {lost:?}");
            let memory = prepared(act).await;
            let log = Log::new();
            let table = open_in(&memory, &log).await;
            let before = table.snapshot().await.unwrap().manifest_number().unwrap();
            *log.lose.lock().unwrap() = Some(("/manifest/", lost));
            let done = make(&table, act).await.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(*log.lose.lock().unwrap(), None, "{at}: no answer was lost");
            assert_eq!(done, whole(act), "{at}");
            assert!(is_done(&memory, act, &at).await, "{at}");
            let after = quiet(&memory).await.snapshot().await.unwrap().manifest_number().unwrap();
            assert_eq!(after, before + 1, "{at}");
        }
    }
}

#[tokio::test]
async fn where_it_cannot_be_looked_nothing_is_deleted_and_the_error_says_that_it_may_be_made() {
    for act in ACTS {
        let at = format!("{act:?}");
        let memory = prepared(act).await;
        let log = Log::new();
        let table = open_in(&memory, &log).await;
        *log.lose.lock().unwrap() = Some(("/manifest/", Lost::Silent));
        let error = make(&table, act).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{at}: {error}");
        assert!(error.to_string().contains("whether the change was made cannot be told"), "{at}: {error}");
        assert!(is_done(&memory, act, &at).await, "{at}");
        // Asked again it is found to be made.
        log.fail_from.store(u64::MAX, Ordering::SeqCst);
        match make(&table, act).await {
            Ok(done) => assert_eq!(done, 0, "{at}"),
            Err(error) => {
                assert!([ErrorKind::AlreadyExists, ErrorKind::NotFound].contains(&error.kind()), "{at}: {error}");
            }
        }
        assert!(is_done(&memory, act, &at).await, "{at}");
    }
}

/// A put that fails here may be under way: what it names has to be there when it arrives.
#[tokio::test]
async fn a_commit_that_arrives_late_finds_everything_that_it_names() {
    for act in ACTS {
        for overtaken in [false, true] {
            let at = format!("{act:?}, overtaken {overtaken}");
            let memory = prepared(act).await;
            let log = Log::new();
            let table = open_in(&memory, &log).await;
            *log.lose.lock().unwrap() = Some(("/manifest/", Lost::Late));
            let error = make(&table, act).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{at}: {error}");
            if overtaken {
                // The number is another's: this commit never will be made.
                let other = IndexSpec { name: Some("other".to_owned()), ..spec("s") };
                quiet(&memory).await.create_index(other, false).await.unwrap();
                assert_eq!(log.arrive(&memory).await, 0, "{at}");
                if !matches!(act, Act::Repair) {
                    sound(&memory, &at).await;
                }
                assert_eq!(make(&table, act).await.unwrap(), whole(act) + u64::from(matches!(act, Act::Build)), "{at}");
            } else {
                assert_eq!(log.arrive(&memory).await, 1, "{at}");
            }
            assert!(is_done(&memory, act, &at).await, "{at}");
        }
    }
}

/// Segments are named by what they are made of: one that is there without an answer is there for the next build.
#[tokio::test]
async fn a_segment_whose_answer_is_lost_is_taken_over_by_the_next_build() {
    for lost in [Lost::Answered, Lost::Silent, Lost::Late] {
        let memory = prepared(Act::Build).await;
        let log = Log::new();
        let table = open_in(&memory, &log).await;
        *log.lose.lock().unwrap() = Some(("/indexes/", lost));
        assert_eq!(make(&table, Act::Build).await.unwrap_err().kind(), ErrorKind::Io, "{lost:?}");
        log.fail_from.store(u64::MAX, Ordering::SeqCst);
        log.arrive(&memory).await;
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!(report.segments + report.taken_over, 2, "{lost:?}");
        assert!(report.taken_over >= 1, "{lost:?}: {report:?}");
        assert!(is_done(&memory, Act::Build, &format!("{lost:?}")).await);
    }
}

/// An answer that comes says the truth: who was overtaken goes on from there.
#[tokio::test]
async fn a_lost_race_is_none_of_that() {
    let memory = prepared(Act::Build).await;
    let (one, two) = (quiet(&memory).await, quiet(&memory).await);
    let (built, dropped) =
        tokio::join!(one.build(BuildOptions::default()), async { two.drop_index("s_bitmap", false).await });
    built.unwrap();
    assert!(dropped.unwrap());
    assert_eq!(sound(&memory, "race").await.unwrap().coverage, 1.0);
}
