//! Settings of a session, under the name `lakemark`.

use datafusion::common::extensions_options;
use datafusion::config::{ConfigExtension, ConfigOptions};
use lakemark_table::{Error, ErrorKind, Result, Transaction};

extensions_options! {
    /// Settings of a session: `SET lakemark.use_index = false`.
    pub struct LakemarkOptions {
        /// Whether scans may use indexes; without them every file is scanned.
        pub use_index: bool, default = true
        /// Whether rows that an index found before may be taken from memory (at most 256 MiB a process).
        pub selection_cache: bool, default = true
        /// Whether texts are views inside of plans that join, group or compare rows, as they are in the engine's own tables.
        pub use_views: bool, default = true
        /// Whether indexes are asked for the keys of a join's build side (at most 1,048,576 rows and 64 MiB).
        pub use_join_keys: bool, default = true
        /// Whether a scan right below `ORDER BY … LIMIT` reads the first rows alone, where an index knows them.
        pub use_first_rows: bool, default = true
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
    /// The options of a session; the defaults for a session that has none.
    pub(crate) fn of(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// The transaction of the next statement that changes a table, if it has one.
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
