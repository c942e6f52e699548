//! Migration: pending rows become rows of data files, all of them or a slice of the key range.
//!
//! ```text
//! 1  flush the buffer; a manifest names the slices of runs that are folded, under a number      (lock of writers)
//! 2  write new data files                                                                      (changes and queries go on)
//! 3  Delta: commit with the number as application transaction      folder: a manifest names the new files
//! 4  a manifest forgets the slices
//! ```
//!
//! For a Delta table step 3 is the one point at which the migration takes effect: whoever reads a version of the log that has
//! the transaction leaves the slices out, whoever reads an older one does not. Step 4 tidies up, and whatever stopped between two
//! steps is finished or begun again by the next migration. What is changed meanwhile stays pending and hides the folded rows.

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use lakemark_format::{ManifestMigration, ManifestUpdates, ReplacedFile, StoreFile};
use lakemark_index::RowSet;
use uuid::Uuid;

use super::flush::flush;
use super::overlay::Updated;
use super::settle::{Ground, Stacked};
use super::slice::Slice;
use super::write::{Writing, no_key, not_local};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::reach;
use crate::footer::modified_ns;
use crate::options::{BuildOptions, MigrateOptions};
use crate::report::MigrateReport;
use crate::rewrite::delta::{ApplicationTransaction, Migrated, migrate as migrate_delta};
use crate::rewrite::{Fold, Folded, folder};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::table::{Table, TableFormat};
use crate::transaction::{Edit, commit};

/// Times that others may be faster before giving up.
const ATTEMPTS: usize = 5;

/// Folds pending rows into the data files.
pub(crate) async fn migrate(table: &Arc<Table>, options: &MigrateOptions) -> Result<MigrateReport> {
    let started = Instant::now();
    if !(options.fraction > 0.0 && options.fraction <= 1.0) {
        return Err(Error::invalid(format!("the fraction is {}; give one above 0, up to 1", options.fraction)));
    }
    let store = table.writable_store()?;
    if !store.is_local() {
        return Err(not_local(store));
    }
    let _lock = MigrationLock::take(store).await?;
    let mut report = MigrateReport::default();
    tidy_up(table, store).await?;
    let mut asked = options.clone();
    let mut is_changed = false;
    // A buffer of which a full cache takes no run is folded once the runs are gone, if everything was asked for.
    for _ in 0..2 {
        let Some(begun) = begin_apart(table, &asked).await? else { break };
        is_changed = true;
        reach("migration-begun");
        let mut folded = MigrateReport::default();
        fold((table, store), &begun, options, &mut folded).await?;
        reach("migration-folded");
        end(store, begun.number).await?;
        reach("migration-ended");
        report.add(&folded);
        if !begun.buffer_stays || options.fraction < 1.0 {
            break;
        }
        asked.threshold = None;
    }
    if is_changed && !Snapshot::pin_base(table).await?.indexes().is_empty() {
        table.build(BuildOptions { progress: options.progress.clone(), ..BuildOptions::default() }).await?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// [`begin`] as a task of its own: the lock of writers is held until what it commits is committed, also if the caller goes away.
async fn begin_apart(table: &Arc<Table>, options: &MigrateOptions) -> Result<Option<Begun>> {
    let (table, options) = (Arc::clone(table), options.clone());
    tokio::spawn(async move { begin(&table, &options).await }).await.map_err(|error| Error::task(&error))?
}

/// Only one migration at a time; dies with its process.
pub(crate) struct MigrationLock(#[expect(dead_code, reason = "the lock goes with the file")] File);

impl MigrationLock {
    pub(super) async fn take(store: &Store) -> Result<Self> {
        let Some(path) = store.local_path("updates/migration.lock") else { return Err(not_local(store)) };
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            file.try_lock().map(|()| file).map_err(std::io::Error::from)
        });
        match locked.await.map_err(|error| Error::task(&error))? {
            Ok(file) => Ok(Self(file)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                Err(Error::new(ErrorKind::Conflict, "another migration of the table is running; let it finish"))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::invalid("the table has no key and so nothing pending: there is nothing to migrate"))
            }
            Err(error) => Err(Error::io("the lock of migrations cannot be taken (no permission?)").with_source(error)),
        }
    }
}

/// Keeps migrations and publications from running, if the table takes updates.
pub(crate) async fn lock_migrations(store: &Store) -> Result<Option<MigrationLock>> {
    let takes_updates = store.newest().await?.manifest?.is_some_and(|manifest| manifest.updates.is_some());
    match takes_updates && store.is_local() {
        true => MigrationLock::take(store).await.map(Some),
        false => Ok(None),
    }
}

/// What a migration folds.
struct Begun {
    number: u64,
    updates: ManifestUpdates,
    /// Whether the cache had no room for a run of the buffer.
    buffer_stays: bool,
}

/// Finishes a migration that took effect and was stopped before it was tidied up.
async fn tidy_up(table: &Arc<Table>, store: &Store) -> Result<()> {
    let base = Snapshot::pin_base(table).await?;
    let pending = base.manifest.as_ref().and_then(|manifest| manifest.updates.as_ref()?.migration.clone());
    match pending {
        Some(migration) if base.folded => end(store, migration.number).await,
        _ => Ok(()),
    }
}

async fn end(store: &Store, number: u64) -> Result<()> {
    commit(store, &Edit::EndMigration { number }).await.map(|_| ())
}

/// Flushes the buffer and says which slices of which runs are folded; none if there is nothing to fold.
async fn begin(table: &Arc<Table>, options: &MigrateOptions) -> Result<Option<Begun>> {
    let mut writing = Writing::begin(table).await?;
    if writing.is_below(options.threshold) {
        return Ok(None);
    }
    let buffer_stays = match flush(&mut writing).await {
        // Nothing but a migration makes room: it folds the runs, and the buffer stays pending until then.
        Err(error) if error.kind() == ErrorKind::CacheFull => {
            tracing::info!(store = writing.store.text(), %error, "the buffer is migrated later");
            true
        }
        flushed => flushed.map(|()| false)?,
    };
    let newest = writing.store.newest().await?;
    let manifest = newest.manifest?.ok_or_else(|| no_key(table))?;
    let updates = manifest.updates.clone().ok_or_else(|| no_key(table))?;
    let updated = Updated::of(&writing.base, writing.store, &updates, (manifest.number, false))?;
    let levels = updated.levels(&writing.base, &table.overlays).await?;
    let slices = slices(&updated, &levels, options.fraction).await?;
    if slices.is_empty() {
        return Ok(None);
    }
    let number = updates.migrations + 1;
    let migration = ManifestMigration { number, slices };
    commit(writing.store, &Edit::BeginMigration { migration: migration.clone() }).await?;
    let updates = ManifestUpdates { migration: Some(migration), migrations: number, ..updates };
    Ok(Some(Begun { number, updates, buffer_stays }))
}

/// The lowest keys of what is pending: so many that they are this fraction of all rows of runs.
async fn slices(updated: &Updated<'_>, levels: &[Stacked], fraction: f64) -> Result<Vec<(u32, u32, u32)>> {
    let active: Vec<RowSet> = levels.iter().map(Stacked::active).collect();
    let whole =
        |number: usize, rows: &RowSet| rows.iter_ranges().map(move |range| (number, range.start, range.end)).collect();
    let mut chosen: Vec<(usize, u32, u32)> = Vec::new();
    if fraction >= 1.0 {
        for (number, rows) in active.iter().enumerate() {
            let ranges: Vec<_> = whole(number, rows);
            chosen.extend(ranges);
        }
    } else {
        let mut keys: Vec<Vec<Box<[u8]>>> = Vec::with_capacity(levels.len());
        for (stacked, rows) in levels.iter().zip(&active) {
            keys.push(stacked.level.keys(&updated.key, rows).await?.sorted());
        }
        let total: u64 = updated.updates.runs.iter().map(|run| u64::from(run.rows)).sum();
        let wanted = ((total as f64 * fraction).ceil() as usize).max(1);
        let mut all: Vec<&[u8]> = keys.iter().flatten().map(AsRef::as_ref).collect();
        all.sort_unstable();
        let Some(last) = all.get(wanted.min(all.len()).wrapping_sub(1)).copied() else { return Ok(Vec::new()) };
        for (number, (rows, keys)) in active.iter().zip(&keys).enumerate() {
            // Rows of a run lie in the order of keys.
            let count = keys.partition_point(|key| key.as_ref() <= last);
            let lowest = RowSet::from_rows(rows.iter().take(count).collect(), rows.universe());
            let ranges: Vec<_> = whole(number, &lowest);
            chosen.extend(ranges);
        }
    }
    Ok(chosen.into_iter().filter_map(|(run, start, end)| Some((u32::try_from(run).ok()?, start, end))).collect())
}

/// Writes and publishes the new data files; others that are faster are let go first.
async fn fold(
    (table, store): (&Arc<Table>, &Arc<Store>),
    begun: &Begun,
    options: &MigrateOptions,
    report: &mut MigrateReport,
) -> Result<()> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let done = fold_once((table, store), begun, options, report).await;
        if let Some(progress) = &options.progress {
            progress.finish();
        }
        match done {
            Err(error) if error.kind() == ErrorKind::Conflict => last = Some(error),
            done => return done,
        }
    }
    Err(last.unwrap_or_else(|| Error::internal("a migration was never tried")))
}

async fn fold_once(
    (table, store): (&Arc<Table>, &Arc<Store>),
    begun: &Begun,
    options: &MigrateOptions,
    report: &mut MigrateReport,
) -> Result<()> {
    let base = Snapshot::pin_base(table).await?;
    if base.folded {
        // An attempt that looked like a failure was none.
        return Ok(());
    }
    let manifest = base.manifest.as_ref().ok_or_else(|| no_key(table))?;
    let updated = Updated::of(&base, store, &begun.updates, (manifest.number, false))?;
    let levels = updated.levels(&base, &table.overlays).await?;
    let ground = Ground { base: &base, key: &updated.key, schema: &updated.schema };
    let overlay = updated.stack(&ground, &levels, 0).await?;
    let slice = Slice::of(&updated, &ground, &levels, &overlay, &begun.updates).await?;
    report.rows = slice.rows.iter().map(|part| part.row_count() as u64).sum();
    report.rows_hidden = slice.shadow.iter().flatten().map(|rows| u64::from(rows.len())).sum();
    let progress = options.progress.clone();
    let to_fold = Fold { shadow: &slice.shadow, rows: &slice.rows, key: &updated.key.names, progress };
    let folded = match table.format {
        TableFormat::Delta => {
            let version = i64::try_from(begun.number).map_err(|_| Error::internal("too many migrations"))?;
            let transaction = ApplicationTransaction { id: application(manifest.store_id), version };
            match migrate_delta(&table.location, &base, &to_fold, &transaction).await? {
                Migrated::Committed { version, folded } => {
                    report.delta_version = Some(version);
                    folded
                }
                Migrated::Already => return Ok(()),
            }
        }
        TableFormat::Parquet => {
            let folded = folder::write(store, &base, &to_fold, Uuid::new_v4()).await?;
            reach("migration-written");
            publish(table, store, &base, &folded, begun.number).await?;
            folded
        }
    };
    report.files_replaced = folded.replaced.len() as u64;
    report.files_written = folded.files.len() as u64;
    report.bytes_written = folded.files.iter().map(|file| file.size).sum();
    Ok(())
}

/// The name of a store in the logs of Delta tables.
pub(crate) fn application(store_id: [u8; 16]) -> String {
    format!("lakemark-{}", Uuid::from_bytes(store_id))
}

/// Lets a manifest name the new files of a folder in the place of those that they replace, if those are still what they were.
async fn publish(table: &Arc<Table>, store: &Store, base: &Snapshot, folded: &Folded, number: u64) -> Result<()> {
    let is_own = |path: &str| path.starts_with(crate::location::STORE_FOLDER);
    let now = Snapshot::pin_base(table).await?;
    let replaced = folded.replaced.iter().filter_map(|file| base.files().get(*file));
    let (mut originals, mut own) = (Vec::new(), Vec::new());
    for file in replaced {
        let identity = super::level::identity(file);
        if !now.files().iter().any(|have| super::level::identity(have) == identity) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("the data file {} was changed by somebody else meanwhile; migrate again", file.path),
            ));
        }
        match is_own(&file.path) {
            true => own.push(file.path.split_once('/').map_or(String::new(), |(_, path)| path.to_owned())),
            false => originals.push(ReplacedFile {
                path: file.path.clone(),
                size: file.meta.size,
                modified_ns: modified_ns(&file.meta),
            }),
        }
    }
    let data = folded.files.iter().map(|file| StoreFile { path: file.path.clone(), size: file.size }).collect();
    let edit = Edit::FoldFolder { number, originals, own, data };
    match commit(store, &edit).await?.changed {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Conflict, "the table was migrated by somebody else meanwhile")),
    }
}
