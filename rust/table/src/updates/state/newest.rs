//! The newest state of a table: its data files merged with what is buffered.

use std::time::Duration;

use super::updatable::UpdatableTable;
use crate::error::Result;
use crate::snapshot::{Snapshot, retry_if_moved};
use crate::updates::recovery::repair::{last_of_none, next_of_none};
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};
use crate::updates::view::view_cache::merged_view;

/// Pins the newest state, also of a table that was opened at a version.
pub(crate) async fn pin_newest(table: &UpdatableTable) -> Result<Snapshot> {
    retry_if_moved(|| laid_over(table, Duration::ZERO)).await
}

/// Pins a state whose data files are the newest or were so less than `within` ago. What is buffered is the newest in any case.
pub(crate) async fn pin_recent(table: &UpdatableTable, within: Duration) -> Result<Snapshot> {
    // What was there then may be gone.
    if !within.is_zero()
        && let Ok(snapshot) = laid_over(table, within).await
    {
        return Ok(snapshot);
    }
    pin_newest(table).await
}

async fn laid_over(table: &UpdatableTable, within: Duration) -> Result<Snapshot> {
    let mut snapshot = Snapshot::pin_base_within(&table.base, within).await?;
    let (Some(manifest), Some(store)) = (snapshot.manifest.clone(), table.base.store.as_ref()) else {
        return Ok(snapshot);
    };
    let Some(updates) = manifest.updates() else { return Ok(snapshot) };
    if let Some(next) = next_of_none(&snapshot.lineage, &table.base, store, updates).await? {
        snapshot.set_sequence(next.saturating_sub(1));
        return Ok(snapshot);
    }
    if snapshot.lacks_key(updates)
        && let Some(last) = last_of_none(store, updates).await?
    {
        // Nobody needs the key until something is changed.
        snapshot.set_sequence(last);
        return Ok(snapshot);
    }
    let state = ManifestState { number: manifest.number(), migration_done: snapshot.migration_done() };
    let files = &table.merged_views.files;
    let updated = UpdateContext::of(&mut snapshot, store, files, updates, state, UpdateScope::Log).await?;
    let view = merged_view(&updated, &snapshot, &table.merged_views).await?;
    let laid = table.merged_views.laid(&snapshot, &view);
    snapshot.apply_updates(laid, &view.buffered, view.next);
    Ok(snapshot)
}
