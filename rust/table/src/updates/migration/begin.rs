//! The first half of a migration: the buffer is flushed, and a manifest names the slices of runs that are compacted.

use std::sync::Arc;

use lakemark_format::{ManifestMigration, ManifestUpdates, RunRange};
use lakemark_index::RowSet;

use super::key_range_end::{RangeEnd, range_end_of, rows_in_range};
use crate::error::{Error, ErrorKind, Result};
use crate::options::MigrateOptions;
use crate::snapshot::Snapshot;
use crate::store::locks::holding;
use crate::store::transaction::{Edit, begin_migration, commit};
use crate::updates::errors::no_key;
use crate::updates::locks::MigrationLock;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::turn::flush::flush;
use crate::updates::turn::write_turn::WriteTurn;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};

/// What a migration compacts.
pub(crate) struct StartedMigration {
    pub number: u64,
    pub updates: ManifestUpdates,
    /// All rows of the runs are compacted: all changes below the first one of the log.
    pub is_whole: bool,
    /// Whether the cache had no room for a run of the buffer.
    pub buffer_stays: bool,
}

/// [`begin`] as a task of its own: the locks are held until what it commits is committed, also if the caller goes away.
pub(crate) async fn begin_apart(
    table: &Arc<UpdatableTable>,
    options: &MigrateOptions,
    lock: &MigrationLock,
) -> Result<Option<StartedMigration>> {
    let (table, options) = (Arc::clone(table), options.clone());
    holding(lock.clone(), async move { begin(&table, &options).await }).await?
}

/// Flushes the buffer and says which slices of which runs are compacted; none if there is nothing to compact.
async fn begin(table: &Arc<UpdatableTable>, options: &MigrateOptions) -> Result<Option<StartedMigration>> {
    let border = match options.fraction < 1.0 {
        true => {
            let Some(border) = border(table, options).await? else { return Ok(None) };
            Some(border)
        }
        false => None,
    };
    let mut writing = WriteTurn::begin(table).await?;
    if writing.is_below(options.threshold) {
        return Ok(None);
    }
    let buffer_stays = flush_if_room(&mut writing).await?;
    let newest = writing.store.newest().await?;
    let manifest = newest.manifest.ok_or_else(|| no_key(&table.base))?;
    let mut updates = manifest.updates().ok_or_else(|| no_key(&table.base))?.as_ref().clone();
    let (store, state) = (writing.store, ManifestState { number: manifest.number(), migration_done: false });
    let files = &table.merged_views.files;
    let updated = UpdateContext::of(&mut writing.base, store, files, &updates, state, UpdateScope::Log).await?;
    let runs = updated.active_runs(&writing.base, files).await?;
    let slices = slices(&updated, &runs, border.as_deref()).await?;
    if slices.is_empty() {
        return Ok(None);
    }
    let number = updates.migrations + 1;
    let migration = ManifestMigration { number, ranges: slices };
    if !commit(writing.store, &Edit::BeginMigration { migration: migration.clone() }).await?.changed {
        return Err(Error::new(ErrorKind::Conflict, "another migration of the table was begun meanwhile; try again"));
    }
    // The migration does not need runs behind those that it names, and writers may merge these meanwhile.
    let named = migration.ranges.iter().map(|range| range.run as usize + 1).max().unwrap_or(0);
    begin_migration(&mut updates, migration);
    updates.runs.truncate(named);
    Ok(Some(StartedMigration { number, updates, is_whole: border.is_none(), buffer_stays }))
}

/// Makes a run of the buffer, if the cache has room for one; says whether it has not.
async fn flush_if_room(writing: &mut WriteTurn<'_>) -> Result<bool> {
    match flush(writing).await {
        // Nothing but a migration makes room: it compacts the runs, and the buffer stays until then.
        Err(error) if error.kind() == ErrorKind::CacheFull => {
            tracing::info!(store = writing.store.text(), %error, "the buffer is migrated later");
            Ok(true)
        }
        flushed => flushed.map(|()| false),
    }
}

/// The key up to which a slice reaches. It is searched when the lock of writers is free again. None if there is nothing to compact.
async fn border(table: &Arc<UpdatableTable>, options: &MigrateOptions) -> Result<Option<RangeEnd>> {
    {
        let mut writing = WriteTurn::begin(table).await?;
        if writing.is_below(options.threshold) {
            return Ok(None);
        }
        flush_if_room(&mut writing).await?;
    }
    let mut base = Snapshot::pin_base(&table.base).await?;
    let (Some(manifest), Some(store)) = (base.manifest.clone(), table.base.store.as_ref()) else { return Ok(None) };
    let Some(updates) = manifest.updates() else { return Ok(None) };
    let state = ManifestState { number: manifest.number(), migration_done: base.migration_done() };
    let files = &table.merged_views.files;
    let updated = UpdateContext::of(&mut base, store, files, updates, state, UpdateScope::Log).await?;
    let runs = updated.active_runs(&base, files).await?;
    let total: u64 = updates.runs.iter().map(|run| u64::from(run.rows)).sum();
    let wanted = ((total as f64 * options.fraction).ceil() as u64).max(1);
    range_end_of(&runs, &updated.key, wanted).await
}

/// The rows of runs that are compacted: those up to the border, or all.
async fn slices(updated: &UpdateContext<'_>, runs: &[ActiveRun], border: Option<&[u8]>) -> Result<Vec<RunRange>> {
    let mut chosen = Vec::new();
    for (number, of) in (0u32..).zip(runs) {
        let rows: RowSet = match border {
            Some(border) => rows_in_range(of, &updated.key, border).await?,
            None => of.active(),
        };
        chosen.extend(rows.iter_ranges().map(|rows| RunRange { run: number, rows }));
    }
    Ok(chosen)
}
