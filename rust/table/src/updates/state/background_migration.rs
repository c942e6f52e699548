//! The migration that a writer began in the background.

use std::sync::{Mutex, PoisonError};

use tokio::task::JoinHandle;

/// The migration that writers of a table began last.
#[derive(Debug, Default)]
pub(crate) struct BackgroundMigration(Mutex<Option<JoinHandle<()>>>);

impl BackgroundMigration {
    /// Begins a migration unless one is running.
    pub(crate) fn begin(&self, migration: impl Future<Output = ()> + Send + 'static) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(JoinHandle::is_finished) {
            *last = Some(tokio::spawn(migration));
        }
    }

    /// Waits for the migration that a writer began, if one is running.
    pub(crate) async fn wait(&self) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(last) = last {
            // A log line has reported what became of it.
            drop(last.await);
        }
    }
}
