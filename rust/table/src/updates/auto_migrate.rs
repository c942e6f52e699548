//! Migrations that writers begin when the cache is as full as the option `migration_threshold` says.
//!
//! They run in the background, one at a time, after the changes of the writer are durable and beside those of others. The log reports a
//! migration that fails: as information if another writer's commit was in the way, else as a warning. It begins again when the next run is
//! made or a change finds no room. No write ever fails for it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

use super::migrate::migrate;
use super::updatable::UpdatableTable;
use crate::error::ErrorKind;
use crate::options::MigrateOptions;

/// The migration that writers of a table began last.
#[derive(Debug, Default)]
pub(crate) struct AutoMigration(Mutex<Option<JoinHandle<()>>>);

/// Begins a migration unless one is running.
pub(super) fn begin(table: &Arc<UpdatableTable>, threshold: f64) {
    let mut last = table.automatic.0.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_ref().is_some_and(|last| !last.is_finished()) {
        return;
    }
    let table = Arc::clone(table);
    *last = Some(tokio::spawn(async move {
        let options = MigrateOptions { threshold: Some(threshold), ..MigrateOptions::default() };
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
    }));
}

/// Waits for the migration that a writer began, if one is running.
pub(crate) async fn wait(table: &UpdatableTable) {
    let last = table.automatic.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(last) = last {
        // A log line has reported what became of it.
        drop(last.await);
    }
}
