//! Migration: buffered rows become rows of data files, all of them or a slice of the key range.
//!
//! ```text
//! 1  of a slice: flush the buffer, choose the key up to which it reaches
//! 2  flush the buffer; a manifest names the slices of runs that are compacted, under a number   (lock of writers)
//! 3  write new data files                                                                      (changes and queries go on)
//! 4  look at files that others added meanwhile: one with a key of the slices lets 3 begin again
//! 5  Delta: commit with the number as application transaction      folder: a manifest names the new files
//! 6  a manifest forgets the slices
//! ```
//!
//! For a Delta table step 5 is the one point at which the migration takes effect. Whoever reads a version of the log that has the
//! transaction leaves the slices out, whoever reads an older one does not. Step 6 tidies up. The next migration finishes or begins again
//! whatever stopped between two steps. What is changed meanwhile stays buffered, and deletes or replaces the compacted rows.

use std::sync::Arc;
use std::time::Instant;

use lakemark_format::{ManifestMigration, ManifestUpdates, RunRange};
use lakemark_index::RowSet;

use super::active_run::ActiveRun;
use super::context::{ManifestState, UpdateContext, UpdateScope};
use super::errors::{no_key, not_local};
use super::flush::flush;
use super::indexing::build_newest;
use super::key_range_end::{RangeEnd, range_end_of, rows_in_range};
use super::locks::MigrationLock;
use super::migration_commit::{Migration, is_ruled_out};
use super::updatable::UpdatableTable;
use super::write_turn::WriteTurn;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{BuildOptions, MigrateOptions};
use crate::report::MigrateReport;
use crate::snapshot::{BaseTable, Lineage, Snapshot};
use crate::storage::failpoint::reach;
use crate::store::Store;
use crate::store::locks::holding;
use crate::store::transaction::{Edit, begin_migration, commit};

/// Compacts buffered rows into the data files.
pub(crate) async fn migrate(table: &Arc<UpdatableTable>, options: &MigrateOptions) -> Result<MigrateReport> {
    let started = Instant::now();
    if !(options.fraction > 0.0 && options.fraction <= 1.0) {
        return Err(Error::invalid(format!("the fraction is {}; give one above 0, up to 1", options.fraction)));
    }
    let store = table.base.writable_store()?;
    if !store.is_local() {
        return Err(not_local(store));
    }
    let lock = MigrationLock::take(store).await?;
    let mut report = MigrateReport::default();
    tidy_up(&table.base, store).await?;
    let mut asked = options.clone();
    let mut is_changed = false;
    // A full cache may take no run of the buffer. Such a buffer is compacted once the runs are gone, if the fraction is 1.
    for _ in 0..2 {
        let Some(begun) = begin_apart(table, &asked, &lock).await? else { break };
        is_changed = true;
        reach("migration-begun");
        let mut folded = MigrateReport::default();
        let migration = Migration { table, store, started: &begun, lock: &lock };
        let version = migration.write_files(options, &mut folded).await?;
        reach("migration-folded");
        end(store, begun.number, version).await?;
        reach("migration-ended");
        report.add(&folded);
        if !begun.buffer_stays || options.fraction < 1.0 {
            break;
        }
        asked.threshold = None;
    }
    if is_changed && !Snapshot::pin_base(&table.base).await?.indexes().is_empty() {
        build_newest(table, BuildOptions { progress: options.progress.clone(), ..BuildOptions::default() }).await?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// [`begin`] as a task of its own: the locks are held until what it commits is committed, also if the caller goes away.
async fn begin_apart(
    table: &Arc<UpdatableTable>,
    options: &MigrateOptions,
    lock: &MigrationLock,
) -> Result<Option<StartedMigration>> {
    let (table, options) = (Arc::clone(table), options.clone());
    holding(lock.clone(), async move { begin(&table, &options).await }).await?
}

/// What a migration compacts.
pub(super) struct StartedMigration {
    pub number: u64,
    pub updates: ManifestUpdates,
    /// All rows of the runs are compacted: all changes below the first one of the log.
    pub is_whole: bool,
    /// Whether the cache had no room for a run of the buffer.
    buffer_stays: bool,
}

/// Ends a migration that took effect and was stopped before it was ended. Lets go of one that cannot take effect any more.
async fn tidy_up(table: &BaseTable, store: &Store) -> Result<()> {
    let base = Snapshot::pin_base(table).await?;
    let pending = base.manifest.as_ref().and_then(|manifest| manifest.updates.as_ref()?.migration.clone());
    match pending {
        Some(migration) if base.migration_done() => end(store, migration.number, base.delta_version()).await,
        Some(migration) if base.lineage == (Lineage::Same { folded: false }) => {
            let number = migration.number;
            match is_ruled_out(table, &base, number).await? {
                true => commit(store, &Edit::AbandonMigration { number }).await.map(|_| ()),
                // The migration took effect meanwhile.
                false => Box::pin(tidy_up(table, store)).await,
            }
        }
        _ => Ok(()),
    }
}

/// Ends a migration. `version` is one of the Delta table that has the migration; a folder's manifest has forgotten the slices already.
pub(super) async fn end(store: &Store, number: u64, version: Option<u64>) -> Result<()> {
    let Some(version) = version else { return Ok(()) };
    commit(store, &Edit::EndMigration { number, version }).await.map(|_| ())
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
    let manifest = newest.manifest?.ok_or_else(|| no_key(&table.base))?;
    let mut updates = manifest.updates.clone().ok_or_else(|| no_key(&table.base))?;
    let (store, state) = (writing.store, ManifestState { number: manifest.number, migration_done: false });
    let files = &table.overlays.files;
    let updated = UpdateContext::of(&mut writing.base, store, files, &updates, state, UpdateScope::Log).await?;
    let levels = updated.active_runs(&writing.base, files).await?;
    let slices = slices(&updated, &levels, border.as_deref()).await?;
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
    let Some(updates) = manifest.updates.as_ref() else { return Ok(None) };
    let state = ManifestState { number: manifest.number, migration_done: base.migration_done() };
    let files = &table.overlays.files;
    let updated = UpdateContext::of(&mut base, store, files, updates, state, UpdateScope::Log).await?;
    let levels = updated.active_runs(&base, files).await?;
    let total: u64 = updates.runs.iter().map(|run| u64::from(run.rows)).sum();
    let wanted = ((total as f64 * options.fraction).ceil() as u64).max(1);
    range_end_of(&levels, &updated.key, wanted).await
}

/// The rows of runs that are compacted: those up to the border, or all.
async fn slices(updated: &UpdateContext<'_>, levels: &[ActiveRun], border: Option<&[u8]>) -> Result<Vec<RunRange>> {
    let mut chosen = Vec::new();
    for (number, of) in (0u32..).zip(levels) {
        let rows: RowSet = match border {
            Some(border) => rows_in_range(of, &updated.key, border).await?,
            None => of.active(),
        };
        chosen.extend(rows.iter_ranges().map(|rows| RunRange { run: number, rows }));
    }
    Ok(chosen)
}
