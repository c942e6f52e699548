//! Migrations that writers begin when the cache is as full as the option `migration_threshold` says.
//!
//! They run in the background, one at a time, after the changes of the writer are durable and beside those of others. The log reports a
//! migration that fails: as information if another writer's commit was in the way, else as a warning. It begins again when the next run is
//! made or a change finds no room. No write ever fails for it.

use std::sync::Arc;

use super::migrate::migrate;
use crate::error::ErrorKind;
use crate::options::MigrateOptions;
use crate::updates::state::updatable::UpdatableTable;

/// Begins a migration where the table's option says so and the cache is full enough, unless one is running.
pub(crate) fn begin(table: &Arc<UpdatableTable>, threshold: Option<f64>) {
    if threshold.is_some() {
        table.automatic.begin(migrate_at(Arc::clone(table), threshold));
    }
}

/// Migrates where the cache is full enough; the log reports what becomes of it.
async fn migrate_at(table: Arc<UpdatableTable>, threshold: Option<f64>) {
    let options = MigrateOptions { threshold, ..MigrateOptions::default() };
    match migrate(&table, &options).await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Conflict => {
            tracing::info!(table = table.base.location(), %error, "buffered changes are not migrated now");
        }
        Err(error) => {
            tracing::warn!(
                table = table.base.location(), %error,
                "buffered changes could not be migrated by themselves; changes go on until the cache is full"
            );
        }
    }
}
