//! Migration: buffered rows become rows of data files, all of them or slices of the key range.
//!
//! ```text
//! 1  of slices: flush the buffer, choose the keys at which they end; of each slice, find its rows in the runs
//! 2  of all: flush the buffer; a manifest names the rows of runs that are compacted, under a number   (lock of writers)
//! 3  write new data files                                                                      (changes and queries go on)
//! 4  look at files that others added meanwhile: one with a key of the slices lets 3 begin again
//! 5  Delta: commit with the number as application transaction      folder: a manifest names the new files
//! 6  a manifest forgets the slices
//! ```
//!
//! For a Delta table step 5 is the one point at which the migration takes effect. Whoever reads a version of the log that has the
//! transaction leaves the slices out, whoever reads an older one does not. Step 6 tidies up. The next migration finishes or begins again
//! whatever stopped between two steps. Each slice goes through steps 2 to 6. What stops between two slices leaves the first ones compacted
//! and the others buffered. What is changed meanwhile stays buffered, and deletes or replaces the compacted rows.

use std::sync::Arc;

use super::begin::{Begun, SliceRequest, begin_apart};
use super::commit::Migration;
use super::plan::{MigrationPlan, check_options, plan};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{BuildOptions, MigrateOptions};
use crate::report::MigrateReport;
use crate::storage::clock::Stopwatch;
use crate::storage::failpoint::reach;
use crate::store::Store;
use crate::updates::errors::not_local;
use crate::updates::indexing::build_newest;
use crate::updates::locks::MigrationLock;
use crate::updates::recovery::stopped_migration::{end_migration, tidy_up};
use crate::updates::state::updatable::UpdatableTable;

/// Times that a migration is planned before it gives up.
const PLANS: usize = 5;

/// Compacts buffered rows into the data files.
pub(crate) async fn migrate(table: &Arc<UpdatableTable>, options: &MigrateOptions) -> Result<MigrateReport> {
    let stopwatch = Stopwatch::start();
    check_options(options)?;
    let store = table.base.writable_store()?;
    if !store.is_local() {
        return Err(not_local(store));
    }
    let lock = MigrationLock::take(store).await?;
    tidy_up(&table.base, store).await?;
    let mut work = MigrationWork { table, store, lock: &lock, committed: 0, report: MigrateReport::default() };
    let mut requested = options.clone();
    let mut is_after_runs = false;
    for _ in 0..PLANS {
        let planned = match plan(table, &requested).await.map_err(|error| work.after_slices(error))? {
            Some(plan) => work.migrate_slices(plan, &requested).await.map_err(|error| work.after_slices(error))?,
            None => Slices::Made,
        };
        match planned {
            // A full cache may take no run of the buffer. Such a buffer is compacted once the runs are gone, if the fraction is 1.
            Slices::MadeWithoutBuffer if options.fraction >= 1.0 && !is_after_runs => is_after_runs = true,
            Slices::Made | Slices::MadeWithoutBuffer => {
                work.report.seconds = stopwatch.seconds();
                return Ok(work.report);
            }
            Slices::Outdated => {}
        }
        requested.threshold = None;
    }
    let text =
        "others changed the type of a column of the key again and again while the table was migrated; migrate again";
    Err(work.after_slices(Error::new(ErrorKind::Conflict, text)))
}

/// What came of the slices of a plan.
enum Slices {
    /// All of them were made, or had nothing to compact.
    Made,
    /// The same, and the cache had no room for a run of the buffer, which stays therefore.
    MadeWithoutBuffer,
    /// Those that are left have to be planned again, by the types that the key has now.
    Outdated,
}

/// A migration under way.
struct MigrationWork<'a> {
    table: &'a Arc<UpdatableTable>,
    store: &'a Arc<Store>,
    lock: &'a MigrationLock,
    /// Slices that took effect.
    committed: usize,
    report: MigrateReport,
}

impl MigrationWork<'_> {
    /// Compacts slice by slice.
    async fn migrate_slices(&mut self, plan: MigrationPlan, options: &MigrateOptions) -> Result<Slices> {
        let mut buffer_stays = plan.buffer_stays;
        let (flushes, threshold) = match plan.is_flushed {
            true => (false, None),
            false => (true, options.threshold),
        };
        let slices = plan.ends.len();
        for (place, end) in plan.ends.into_iter().enumerate() {
            let request = SliceRequest { end, flushes, threshold };
            let started = match begin_apart(self.table, request, self.lock).await? {
                Begun::Started(started) => started,
                Begun::Nothing => continue,
                Begun::Outdated => return Ok(Slices::Outdated),
            };
            reach("migration-begun");
            let mut migrated = MigrateReport::default();
            let (table, store, lock, is_last) = (self.table, self.store, self.lock, place + 1 == slices);
            let migration = Migration { table, store, started: &started, is_last, lock };
            let version = migration.write_files(options, &mut migrated).await?;
            self.committed += 1;
            reach("migration-compacted");
            end_migration(self.store, started.number, version).await?;
            reach("migration-ended");
            self.report.add(&migrated);
            buffer_stays |= started.buffer_stays;
            self.index(options).await?;
        }
        Ok(if buffer_stays { Slices::MadeWithoutBuffer } else { Slices::Made })
    }

    /// An error after slices that were made. Its message says so.
    fn after_slices(&self, error: Error) -> Error {
        match self.committed {
            0 => error,
            1 => error.with_note("1 commit of the migration was made before; migrate again to go on"),
            made => {
                error.with_note(&format!("{made} commits of the migration were made before; migrate again to go on"))
            }
        }
    }

    /// Builds the indexes of the new files. The next slice asks them for keys.
    async fn index(&self, options: &MigrateOptions) -> Result<()> {
        let manifest = self.store.newest().await?.manifest;
        if manifest.is_none_or(|manifest| manifest.indexes().len() == 0) {
            return Ok(());
        }
        let options = BuildOptions { progress: options.progress.clone(), ..BuildOptions::default() };
        build_newest(self.table, options).await.map(drop)
    }
}
