//! Settings of a session, under the name `lakemark`.

use datafusion::common::extensions_options;
use datafusion::config::ConfigExtension;
use lakemark_table::{Error, ErrorKind, Result, Transaction};

extensions_options! {
    /// Settings of a session: `SET lakemark.use_index = false`.
    pub struct LakemarkOptions {
        /// Whether scans may use indexes; without them every file is scanned.
        pub use_index: bool, default = true
        /// Whether rows that an index found before may be taken from memory (at most 256 MiB a process).
        pub use_cache: bool, default = true
        /// The application that makes the next statement which changes a table, so that it is made once; with `txn_version`.
        pub txn_app_id: Option<String>, default = None
        /// The number that the application gives to the next statement which changes a table. Both are unset when it was made.
        pub txn_version: Option<u64>, default = None
    }
}

impl ConfigExtension for LakemarkOptions {
    const PREFIX: &'static str = "lakemark";
}

impl LakemarkOptions {
    /// What the next statement that changes a table is called.
    pub(crate) fn transaction(&self) -> Result<Option<Transaction>> {
        match (&self.txn_app_id, self.txn_version) {
            (Some(application), Some(version)) => Ok(Some(Transaction { application: application.clone(), version })),
            (None, None) => Ok(None),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "lakemark.txn_app_id and lakemark.txn_version go together, and are unset by each statement that changes a table; \
                 set both or none",
            )),
        }
    }
}
