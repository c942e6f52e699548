//! Migrations whose process is gone: ended where they took effect, abandoned where they did not and cannot any more.

use std::sync::Arc;

use lakemark_format::ManifestUpdates;

use crate::error::{Error, Result};
use crate::rewrite::delta::{ApplicationTransaction, keep_out};
use crate::snapshot::{BaseTable, Lineage, Snapshot, application};
use crate::store::Store;
use crate::store::locks::holding;
use crate::store::transaction::{Edit, commit};
use crate::updates::locks::{MigrationLock, WriterLock};

/// Ends a migration that took effect and was stopped before it was ended. Lets go of one that cannot take effect any more. The caller holds
/// the lock of migrations.
pub(crate) async fn tidy_up(table: &BaseTable, store: &Arc<Store>) -> Result<()> {
    let base = Snapshot::pin_base(table).await?;
    let stopped = base.manifest.as_ref().and_then(|manifest| manifest.updates()?.migration.clone());
    match stopped {
        Some(migration) if base.migration_done() => end_migration(store, migration.number, base.delta_version()).await,
        Some(migration) if base.lineage == (Lineage::Same { migrated: false }) => {
            let number = migration.number;
            match is_ruled_out(table, &base, number).await? {
                true => abandon(store, number).await,
                // The migration took effect meanwhile.
                false => Box::pin(tidy_up(table, store)).await,
            }
        }
        _ => Ok(()),
    }
}

/// Ends a migration whose process is gone, or lets go of it where it has not taken effect. Nobody may come to make it again.
pub(crate) async fn end_if_stopped(table: &BaseTable, store: &Arc<Store>, updates: &ManifestUpdates) -> Result<()> {
    let migration = updates.migration.as_ref();
    let Some(number) = migration.map(|migration| migration.number) else { return Ok(()) };
    let Some(_lock) = MigrationLock::try_take(store).await? else { return Ok(()) };
    let base = Snapshot::pin_base(table).await?;
    let updates = base.manifest.as_ref().and_then(|manifest| manifest.updates());
    // A process that began the next migration meanwhile had ended this one first.
    if updates.and_then(|updates| updates.migration.as_ref()).is_none_or(|migration| migration.number != number) {
        return Ok(());
    }
    if base.migration_done() {
        return end_migration(store, number, base.delta_version()).await;
    }
    match is_ruled_out(table, &base, number).await {
        Ok(true) => abandon(store, number).await,
        // The migration took effect meanwhile: the next one that looks ends it.
        Ok(false) => Ok(()),
        Err(error) => {
            tracing::warn!(number, %error, "a migration whose process is gone may still take effect; nobody lets go of it yet");
            Ok(())
        }
    }
}

/// Lets go of a migration that cannot take effect any more. The caller holds the lock of migrations.
///
/// A writer may write a run that has a meaning for the time after the migration. So the migration is abandoned between two turns: before the
/// writer looks, or when the run is there to be told. The commit is a task of its own, so that the lock is held until it is made or not.
async fn abandon(store: &Arc<Store>, number: u64) -> Result<()> {
    let (lock, store) = (WriterLock::take(store).await?, Arc::clone(store));
    holding(lock, async move { commit(&store, &Edit::AbandonMigration { number }).await }).await?.map(|_| ())
}

/// Ends a migration. `version` is one of the Delta table that has the migration; a folder's manifest has forgotten the slices already.
pub(crate) async fn end_migration(store: &Store, number: u64, version: Option<u64>) -> Result<()> {
    let Some(version) = version else { return Ok(()) };
    commit(store, &Edit::EndMigration { number, version }).await.map(|_| ())
}

/// Whether a migration whose process is gone has not taken effect by this state, and cannot any more. The caller holds the lock of
/// migrations.
///
/// # Errors
/// Nobody can know: the migration may yet take effect.
async fn is_ruled_out(table: &BaseTable, base: &Snapshot, migration: u64) -> Result<bool> {
    let (Some(version), Some(manifest)) = (base.delta_version(), base.manifest.as_ref()) else { return Ok(true) };
    if table.location.local.is_some() {
        // A local file system has done every request, or never will.
        return Ok(true);
    }
    let transaction = ApplicationTransaction {
        id: application(manifest.store_id()),
        version: transaction_version(migration)?,
        through: None,
    };
    keep_out(&table.location, version, &transaction).await
}

/// The number of a migration as the version of an application transaction.
pub(crate) fn transaction_version(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| Error::internal("too many migrations"))
}
