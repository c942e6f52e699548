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

use super::begin::begin_apart;
use super::commit::Migration;
use crate::error::{Error, Result};
use crate::options::{BuildOptions, MigrateOptions};
use crate::report::MigrateReport;
use crate::snapshot::Snapshot;
use crate::storage::clock::Stopwatch;
use crate::storage::failpoint::reach;
use crate::updates::errors::not_local;
use crate::updates::indexing::build_newest;
use crate::updates::locks::MigrationLock;
use crate::updates::recovery::stopped_migration::{end_migration, tidy_up};
use crate::updates::state::updatable::UpdatableTable;

/// Compacts buffered rows into the data files.
pub(crate) async fn migrate(table: &Arc<UpdatableTable>, options: &MigrateOptions) -> Result<MigrateReport> {
    let stopwatch = Stopwatch::start();
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
    let mut requested = options.clone();
    let mut is_changed = false;
    // A full cache may take no run of the buffer. Such a buffer is compacted once the runs are gone, if the fraction is 1.
    for _ in 0..2 {
        let Some(begun) = begin_apart(table, &requested, &lock).await? else { break };
        is_changed = true;
        reach("migration-begun");
        let mut migrated = MigrateReport::default();
        let migration = Migration { table, store, started: &begun, lock: &lock };
        let version = migration.write_files(options, &mut migrated).await?;
        reach("migration-compacted");
        end_migration(store, begun.number, version).await?;
        reach("migration-ended");
        report.add(&migrated);
        if !begun.buffer_stays || options.fraction < 1.0 {
            break;
        }
        requested.threshold = None;
    }
    if is_changed && !Snapshot::pin_base(&table.base).await?.indexes().is_empty() {
        build_newest(table, BuildOptions { progress: options.progress.clone(), ..BuildOptions::default() }).await?;
    }
    report.seconds = stopwatch.seconds();
    Ok(report)
}
