//! What follows the commits of migrations: checkpoints, and the removal of what a log has kept for long enough.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use super::logs::{add, column, commit, contents, migrated, opening, plain};
use super::{RewriteFixture, expected, old_rows, open, read, rows, write};
use crate::files::delta::DeltaState;
use crate::{Table, TableOptions};

/// A table of one file whose log gets a checkpoint after every second version.
fn begin(root: &Path, protocol: Value, more: Value) {
    write(&root.join("a.parquet"), &old_rows(0, 3));
    let mut configuration = json!({"delta.checkpointInterval": "2"});
    let properties = configuration.as_object_mut().unwrap();
    properties.extend(more.as_object().unwrap().clone());
    let columns = [column("k", "integer"), column("s", "string")];
    let mut actions = opening(protocol, &columns, &[], configuration);
    actions.push(add(root, "a.parquet", json!({})));
    commit(root, 0, &actions);
}

/// Inserts a row by each version up to this one.
async fn insert(table: &Table, versions: std::ops::RangeInclusive<u64>) {
    for version in versions {
        let new = rows(&[(100 + version as i32, "new")]);
        let files = table.snapshot().await.unwrap().files().len();
        let (made, _) = migrated(table, &RewriteFixture::new(vec![None; files], vec![new]), version as i64).await;
        assert_eq!(made, version);
    }
}

/// The names of the files of a log.
fn log_files(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("_delta_log")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn sorted(numbers: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut numbers: Vec<i64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

fn last_checkpoint(root: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(root.join("_delta_log/_last_checkpoint")).unwrap()).unwrap()
}

#[tokio::test]
async fn a_checkpoint_has_all_that_the_log_leads_to() {
    let v2 = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"]});
    for protocol in [plain(), v2] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        begin(root, protocol, json!({}));
        let table = open(root).await;
        insert(&table, 1..=1).await;
        assert!(!root.join("_delta_log/_last_checkpoint").exists());
        insert(&table, 2..=3).await;
        let last = last_checkpoint(root);
        let name = format!("{:020}.checkpoint.parquet", 2);
        let size = std::fs::metadata(root.join("_delta_log").join(&name)).unwrap().len();
        assert_eq!(
            (&last["version"], &last["numOfAddFiles"], &last["sizeInBytes"]),
            (&json!(2), &json!(3), &json!(size))
        );
        assert!(log_files(root).iter().all(|name| !name.contains("tmp")), "{:?}", log_files(root));
        // What the checkpoint has need not be there any more.
        for version in 0..2 {
            std::fs::remove_file(root.join(format!("_delta_log/{version:020}.json"))).unwrap();
        }
        let want = [(0, "old"), (1, "old"), (2, "old"), (101, "new"), (102, "new"), (103, "new")];
        assert_eq!(contents(root).await, expected(&want));
        let state = DeltaState::read(&open(root).await.base().location).await.unwrap();
        assert_eq!(state.application_version("lakemark-test").await.unwrap(), Some(3));
        // The next migration goes on from there.
        let table = open(root).await;
        insert(&table, 4..=4).await;
        assert_eq!(last_checkpoint(root)["version"], 4);
        assert_eq!(contents(root).await.len(), 7);
    }
}

#[tokio::test]
async fn a_checkpoint_has_statistics_in_the_forms_that_the_table_wants() {
    for (as_struct, as_json) in [(true, false), (true, true), (false, true)] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let wanted = json!({"delta.checkpoint.writeStatsAsStruct": as_struct.to_string(),
            "delta.checkpoint.writeStatsAsJson": as_json.to_string()});
        begin(root, json!({"minReaderVersion": 1, "minWriterVersion": 3}), wanted);
        let table = open(root).await;
        // The second checkpoint takes the statistics of the first one over.
        for (versions, keys) in [(1..=2, vec![101, 102]), (3..=4, vec![101, 102, 103, 104])] {
            let last = *versions.end();
            insert(&table, versions).await;
            let checkpoint = read(&root.join(format!("_delta_log/{last:020}.checkpoint.parquet")));
            let adds = checkpoint.column_by_name("add").unwrap().as_struct();
            let (parsed, text) = (adds.column_by_name("stats_parsed"), adds.column_by_name("stats"));
            assert_eq!((parsed.is_some(), text.is_some()), (as_struct, as_json));
            // Each form has those of the files that were inserted; nobody logged any of the first file.
            if let Some(parsed) = parsed {
                let lowest = parsed.as_struct().column_by_name("minValues").unwrap();
                let lowest = lowest.as_struct().column_by_name("k").unwrap().as_primitive::<Int32Type>();
                assert_eq!(sorted(lowest.iter().flatten().map(i64::from)), keys);
            }
            if let Some(text) = text {
                let of = |text: &str| serde_json::from_str::<Value>(text).unwrap()["minValues"]["k"].as_i64();
                assert_eq!(sorted(text.as_string::<i32>().iter().flatten().filter_map(of)), keys);
            }
            for version in 0..last {
                let _ = std::fs::remove_file(root.join(format!("_delta_log/{version:020}.json")));
            }
            assert_eq!(contents(root).await.len(), 3 + keys.len());
        }
    }
}

#[tokio::test]
async fn what_a_log_has_kept_for_long_enough_is_removed_with_the_next_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    begin(root, plain(), json!({"delta.logRetentionDuration": "interval 2 days"}));
    let table = open(root).await;
    insert(&table, 1..=3).await;
    // Versions 0 to 2 are a week old.
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for version in 0..=2 {
        let file = File::options().write(true).open(root.join(format!("_delta_log/{version:020}.json"))).unwrap();
        file.set_modified(old).unwrap();
    }
    let table = open(root).await;
    insert(&table, 4..=4).await;
    let named = |version: u64, rest: &str| format!("{version:020}.{rest}");
    let mut want: Vec<String> = (2..=4).map(|version| named(version, "json")).collect();
    want.extend([named(2, "checkpoint.parquet"), named(4, "checkpoint.parquet"), "_last_checkpoint".to_owned()]);
    want.sort();
    assert_eq!(log_files(root), want);
    assert_eq!(contents(root).await.len(), 7);
}

#[tokio::test]
async fn a_log_that_keeps_everything_is_not_cleaned_up() {
    for keeps in [json!({"delta.enableExpiredLogCleanup": "false"}), json!({"delta.logRetentionDuration": "for ever"})]
    {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        begin(root, plain(), keeps);
        let table = open(root).await;
        insert(&table, 1..=3).await;
        for version in 0..=3 {
            let file = File::options().write(true).open(root.join(format!("_delta_log/{version:020}.json"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let table = open(root).await;
        insert(&table, 4..=4).await;
        let commits = log_files(root).iter().filter(|name| name.ends_with(".json")).count();
        assert_eq!((commits, &last_checkpoint(root)["version"]), (5, &json!(4)));
    }
}

#[tokio::test]
async fn logs_on_object_stores_get_checkpoints_as_well() {
    let folder = tempfile::tempdir().unwrap();
    begin(folder.path(), plain(), json!({}));
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for name in ["a.parquet", "_delta_log/00000000000000000000.json"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        store.put(&format!("t/{name}").into(), bytes.into()).await.unwrap();
    }
    let layer = |_: Arc<dyn ObjectStore>| Arc::clone(&store);
    let table = Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap();
    insert(&table, 1..=2).await;
    let bytes = async |name: &str| {
        let place: object_store::path::Path = format!("t/_delta_log/{name}").into();
        store.get(&place).await.unwrap().bytes().await.unwrap()
    };
    let last: Value = serde_json::from_slice(&bytes("_last_checkpoint").await).unwrap();
    let checkpoint = bytes(&format!("{:020}.checkpoint.parquet", 2)).await;
    assert_eq!((&last["version"], &last["sizeInBytes"]), (&json!(2), &json!(checkpoint.len())));
}
