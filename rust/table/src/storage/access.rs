//! How files of a place are reached: options of its object store, and who gives credentials.

use std::sync::Arc;

use crate::storage::credentials::CredentialSource;
use crate::storage::secret::StorageOptions;

/// How files of a place are reached. Of local files it says nothing.
#[derive(Clone, Debug, Default)]
pub struct StorageAccess {
    /// Options of the object store, which count over the environment.
    pub options: StorageOptions,
    /// Gives credentials, in the place of those that options and the environment have.
    pub credentials: Option<Arc<dyn CredentialSource>>,
}

impl StorageAccess {
    /// By options alone.
    #[must_use]
    pub fn of(options: StorageOptions) -> Self {
        Self { options, credentials: None }
    }
}
