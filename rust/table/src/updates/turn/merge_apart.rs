//! Merging runs while writers go on.
//!
//! ```text
//! lock of merges  ├──────────────────────────────────────────┤
//! a merged run is written                ├─ lock of writers ─┤
//!                                          the same runs? then a manifest names it in their place
//! ```
//!
//! Runs never change, and a run that comes meanwhile lies above those that are merged. So the merged run is right if its parts are still
//! there with the same migrated rows, and if no migration under way names them. Else it is removed, and the next flush merges what there
//! is then. Writers merge in their own turn where runs come faster than they are merged ([`Parameters::most_runs`]).

use std::sync::Arc;

use lakemark_format::ManifestRun;

use super::merge::{MergeGround, commit_merged, merge};
use super::merge_policy::to_merge;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::store::transaction::bound_by_migration;
use crate::updates::locks::{MergeLock, WriterLock};
use crate::updates::parameters::Parameters;
use crate::updates::recovery::stopped_migration::end_if_stopped;
use crate::updates::state::updatable::UpdatableTable;

/// Merges runs until a scan has few enough of them, unless somebody else does. For tasks that go on when their caller goes away: the caller
/// has no turn, and made its changes before. What fails is reported by the log.
pub(crate) async fn merge_apart(table: &Arc<UpdatableTable>) {
    if let Err(error) = merge_all(table).await {
        tracing::warn!(table = table.base.location(), %error, "runs of buffered changes could not be merged");
    }
}

async fn merge_all(table: &Arc<UpdatableTable>) -> Result<()> {
    let store = table.base.writable_store()?;
    let newest = store.newest().await?.manifest;
    let Some(updates) = newest.as_ref().and_then(|manifest| manifest.updates()) else { return Ok(()) };
    end_if_stopped(&table.base, store, updates).await?;
    let mut lock = None;
    loop {
        let Some(manifest) = store.newest().await?.manifest else { return Ok(()) };
        let Some(updates) = manifest.updates() else { return Ok(()) };
        let parameters = Parameters::of(&updates.options)?;
        if to_merge(updates, &parameters, bound_by_migration(updates)).is_none() {
            table.merged_views.files.runs.retain(&updates.runs);
            return Ok(());
        }
        if lock.is_none() {
            lock = MergeLock::try_take(store).await?;
        }
        if lock.is_none() || !merge_some(table, store, &parameters).await? {
            return Ok(());
        }
    }
}

/// Merges some neighbours. Says whether the merged run took their place.
async fn merge_some(table: &UpdatableTable, store: &Arc<Store>, parameters: &Parameters) -> Result<bool> {
    let mut base = Snapshot::pin_base(&table.base).await?;
    let Some(manifest) = base.manifest.clone() else { return Ok(false) };
    let Some(updates) = manifest.updates() else { return Ok(false) };
    let Some(chosen) = to_merge(updates, parameters, bound_by_migration(updates)) else { return Ok(true) };
    let ground = MergeGround::of(table, store, &mut base, updates, manifest.number(), parameters).await?;
    let merged = merge(&ground, chosen.clone()).await?;
    take_place(store, updates.runs.get(chosen).unwrap_or_default(), merged).await
}

/// Puts a merged run in the place of its parts, if these are as they were. Whoever changes runs, or begins a migration, has the lock of
/// writers; a migration that ends changes the runs that it names, which are none of these.
async fn take_place(store: &Store, parts: &[ManifestRun], merged: ManifestRun) -> Result<bool> {
    let _writer = WriterLock::take(store).await?;
    commit_merged(store, parts, merged).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use lakemark_format::{ManifestMigration, ManifestUpdates, Operation, RunRange};
    use parquet::arrow::ArrowWriter;

    use super::super::flush::NewRun;
    use super::super::write_turn::WriteTurn;
    use super::*;
    use crate::store::transaction::{Edit, commit};
    use crate::updates::{Change, WriteOptions};
    use crate::{BuildOptions, Table, TableOptions};

    /// A row with these numbers.
    fn numbers(columns: &[(&str, i64)]) -> RecordBatch {
        let column = |(name, value): &(&str, i64)| {
            ((*name).to_owned(), Arc::new(Int64Array::from(vec![Some(*value)])) as ArrayRef)
        };
        RecordBatch::try_from_iter_with_nullable(columns.iter().map(column).map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    async fn make(table: &Arc<Table>, operation: Operation, rows: RecordBatch) {
        table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
    }

    async fn newest(store: &Store) -> ManifestUpdates {
        store.newest().await.unwrap().manifest.unwrap().updates().unwrap().as_ref().clone()
    }

    /// The run of a writer has a meaning for each end of the migration. It must hear of the end that came.
    #[tokio::test]
    async fn a_stopped_migration_is_not_abandoned_in_the_turn_of_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let first = numbers(&[("k", 1), ("a", 0), ("b", 0)]);
        let file = std::fs::File::create(folder.path().join("f.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, first.schema(), None).unwrap();
        writer.write(&first).unwrap();
        writer.close().unwrap();
        let table = Table::open_alone(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
        table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        make(&table, Operation::Upsert, numbers(&[("k", 1), ("a", 1), ("b", 1)])).await;
        table.flush().await.unwrap();
        let store = table.base().writable_store().unwrap();
        // Its process is gone.
        let ranges = vec![RunRange { run: 0, rows: 0..1 }];
        commit(store, &Edit::BeginMigration { migration: ManifestMigration { number: 1, ranges } }).await.unwrap();
        make(&table, Operation::Update, numbers(&[("k", 1), ("a", 2)])).await;
        let mut writing = WriteTurn::begin(&table.updates).await.unwrap();
        let mut run = NewRun::begin(&writing).await.unwrap();
        run.add(&writing, writing.tail.changes.finish().unwrap()).await.unwrap();
        let other = Arc::clone(&table);
        let mut other = tokio::spawn(async move { merge_apart(&other.updates).await });
        let waited = tokio::time::timeout(Duration::from_millis(500), &mut other).await;
        assert!(waited.is_err(), "somebody else had a turn");
        run.commit(&mut writing).await.unwrap();
        let now = newest(store).await;
        assert_eq!((now.migration.is_some(), now.runs[1].during), (true, 1));
        drop(writing);
        other.await.unwrap();
        let now = newest(store).await;
        assert_eq!((now.migration.is_some(), now.runs[1].during), (false, 0));
    }
}
