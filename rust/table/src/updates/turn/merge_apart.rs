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

use super::flush::discard;
use super::merge::{MergeGround, bound_by_migration, commit_merged, merge};
use super::merge_policy::to_merge;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::updates::locks::{MergeLock, WriterLock};
use crate::updates::parameters::Parameters;
use crate::updates::recovery::stopped_migration::end_if_stopped;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};

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
    let files = &table.merged_views.files;
    let state = ManifestState { number: manifest.number(), migration_done: base.migration_done() };
    let updated = UpdateContext::of(&mut base, store, files, updates, state, UpdateScope::Log).await?;
    let runs = updated.active_runs(&base, files).await?;
    let ground = MergeGround { store, base: &base, parameters };
    let merged = merge(&ground, &updated, &runs, chosen.clone()).await?;
    take_place(store, updates.runs.get(chosen).unwrap_or_default(), merged).await
}

/// Puts a merged run in the place of its parts, if these are as they were. Whoever changes runs, or begins a migration, has the lock of
/// writers; a migration that ends changes the runs that it names, which are none of these.
async fn take_place(store: &Store, parts: &[ManifestRun], merged: ManifestRun) -> Result<bool> {
    let _writer = WriterLock::take(store).await?;
    let newest = store.newest().await?.manifest;
    let updates = newest.as_ref().and_then(|manifest| manifest.updates());
    let is_same = updates.is_some_and(|updates| {
        let place = updates.runs.windows(parts.len().max(1)).position(|runs| runs == parts);
        place.is_some_and(|place| place >= bound_by_migration(updates))
    });
    if is_same {
        return commit_merged(store, parts, merged).await;
    }
    discard(store, &merged).await;
    Ok(false)
}
