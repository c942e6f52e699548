//! Snapshots of one state of a table are known for that, and those of two states are not taken for each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{BuildOptions, Change, MigrateOptions, Operation, Snapshot, Table, WriteOptions};

use crate::fixture::{batch, folder, open, spec, write};

/// Two snapshots one after the other, which have to be of the same state, as has the next one.
async fn pinned(table: &Arc<Table>) -> Arc<Snapshot> {
    let (one, other) = (table.snapshot().await.unwrap(), table.snapshot().await.unwrap());
    assert!(one.is_same_state(&other) && other.is_same_state(&one));
    one
}

fn ids(ids: Vec<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(ids)) as ArrayRef)]).unwrap()
}

#[tokio::test]
async fn every_change_makes_another_state() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    let mut states = vec![pinned(&table).await];
    write(&folder.path().join("g.parquet"), &batch(750, 250));
    states.push(pinned(&table).await);
    table.create_index(spec("k"), false).await.unwrap();
    states.push(pinned(&table).await);
    table.build(BuildOptions::default()).await.unwrap();
    states.push(pinned(&table).await);
    std::fs::remove_file(folder.path().join("g.parquet")).unwrap();
    states.push(pinned(&table).await);
    for (place, state) in states.iter().enumerate() {
        for other in &states[..place] {
            assert!(!state.is_same_state(other) && !other.is_same_state(state), "{place}");
        }
    }
}

#[tokio::test]
async fn every_update_makes_another_state() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f.parquet"), &ids((0..250).collect()));
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let mut states = vec![pinned(&table).await];
    for id in [1_i64, 1, 9000] {
        let change = Change { operation: Operation::Upsert, rows: ids(vec![id]) };
        table.write(vec![change], WriteOptions::default()).await.unwrap();
        states.push(pinned(&table).await);
    }
    table.migrate(MigrateOptions::default()).await.unwrap();
    states.push(pinned(&table).await);
    for (place, state) in states.iter().enumerate() {
        for other in &states[..place] {
            assert!(!state.is_same_state(other) && !other.is_same_state(state), "{place}");
        }
    }
}

#[tokio::test]
async fn handles_of_a_table_are_not_taken_for_each_other() {
    let folder = folder(1);
    let (one, other) = (pinned(&open(folder.path()).await).await, pinned(&open(folder.path()).await).await);
    assert!(!one.is_same_state(&other));
}

/// By it readers know that they may share what they read of a file.
#[tokio::test]
async fn all_states_of_a_handle_are_read_through_one_store() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let before = pinned(&table).await;
    // More changes than files: the next state is not made of this one.
    for (place, name) in ["g", "h", "i"].into_iter().enumerate() {
        write(&folder.path().join(format!("{name}.parquet")), &batch(250 * (place + 1), 250));
    }
    let after = pinned(&table).await;
    assert!(!after.is_same_state(&before));
    assert!(Arc::ptr_eq(&before.object_store(), &after.object_store()));
    let other = pinned(&open(folder.path()).await).await;
    assert!(!Arc::ptr_eq(&before.object_store(), &other.object_store()));
}
