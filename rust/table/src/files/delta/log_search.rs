//! What a log says beside its files and columns: the transactions of applications, and the domains of features. Each is searched for when
//! somebody asks.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use buoyant_kernel::{DeltaResult as KernelResult, Engine, SnapshotRef};
use deltalake_core::kernel::Snapshot as LogSnapshot;
use deltalake_core::logstore::LogStoreRef;
use deltalake_core::{DeltaResult, DeltaTableError};

use super::{DeltaState, delta_error};
use crate::error::Result;

impl DeltaState {
    /// The last transaction that an application committed. The log is read for that. Where it was cleaned up since the state was read, it
    /// is read from the checkpoint that has what is gone.
    pub(crate) async fn application_version(&self, application: &str) -> Result<Option<i64>> {
        if let Some(version) = self.known_transactions().get(application) {
            return Ok(*version);
        }
        let version = match self.read_application_version(application).await {
            Ok(version) => version,
            Err(_) => self.read_again().await?.read_application_version(application).await?,
        };
        self.known_transactions().insert(application.to_owned(), version);
        Ok(version)
    }

    /// What a feature wrote down for itself under the name of a domain; none if it wrote nothing. The log is read as for a transaction.
    pub(crate) async fn domain(&self, name: &str) -> Result<Option<String>> {
        match self.read_domain(name).await {
            Ok(domain) => Ok(domain),
            Err(_) => self.read_again().await?.read_domain(name).await,
        }
    }

    pub(super) fn known_transactions(&self) -> MutexGuard<'_, HashMap<String, Option<i64>>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_application_version(&self, application: &str) -> Result<Option<i64>> {
        let application = application.to_owned();
        self.search(move |logged, engine| logged.get_app_id_version(&application, engine)).await
    }

    async fn read_domain(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.search(move |logged, engine| logged.get_domain_metadata_internal(&name, engine)).await
    }

    /// What the kernel finds in the log at this version.
    async fn search<T: Send + 'static>(
        &self,
        find: impl FnOnce(&SnapshotRef, &dyn Engine) -> KernelResult<T> + Send + 'static,
    ) -> Result<T> {
        let logged = self.logged_here().await?;
        let found = search_in(&logged, &self.log_store, find).await;
        found.map_err(|error| delta_error(&self.location, error))
    }
}

/// What the kernel finds in a log.
pub(super) async fn search_in<T: Send + 'static>(
    logged: &LogSnapshot,
    log_store: &LogStoreRef,
    find: impl FnOnce(&SnapshotRef, &dyn Engine) -> KernelResult<T> + Send + 'static,
) -> DeltaResult<T> {
    let logged = Arc::clone(logged.scan_builder().build()?.snapshot());
    let engine = log_store.engine(None);
    // The kernel's storage handler blocks.
    let found = tokio::task::spawn_blocking(move || find(&logged, engine.as_ref()));
    Ok(found.await.map_err(|error| DeltaTableError::GenericError { source: error.into() })??)
}
