//! A table without what is buffered: where the table and its store are, and what is remembered of its data files.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;

use super::open_tables::{OpenTable, TableKey, known};
use super::relocating_store::followed;
use super::table_cache::{HandleStores, TableCache};
use crate::error::{Error, Result};
use crate::files::delta::logged_path::place_of_file;
use crate::metrics::Metrics;
use crate::storage::location::{Location, STORE_FOLDER};
use crate::store::Store;
use crate::table_format::TableFormat;

/// The data files of a table and the store of its indexes.
#[derive(Debug)]
pub(crate) struct BaseTable {
    pub location: Location,
    pub format: TableFormat,
    /// The version that is read, if not the newest state.
    pub version: Option<u64>,
    /// None for a glob or a file without a store: such a table can be read, not indexed.
    pub store: Option<Arc<Store>>,
    /// What this handle did, whatever version it reads.
    pub metrics: Arc<Metrics>,
    /// How long ago readers may have looked which data files there are. Whoever changes something looks anew.
    pub max_staleness: Duration,
    /// What is remembered for the next snapshot.
    pub cache: Arc<TableCache>,
    /// Where handles that are opened later find what this one remembers; none of a handle by itself.
    opened: Option<OpenTable>,
    /// What reads its data files. One for all snapshots: by it readers tell whether two snapshots are read with the same right.
    data_store: Arc<dyn ObjectStore>,
}

impl BaseTable {
    /// A table with nothing remembered of it yet.
    pub(crate) fn new(
        location: Location,
        format: TableFormat,
        version: Option<u64>,
        store: Option<Arc<Store>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let cache = Arc::new(TableCache::new(store.clone()));
        let data_store = match format {
            TableFormat::Parquet => followed(&location, store.as_ref()),
            TableFormat::Delta => Arc::clone(&location.object_store),
        };
        let max_staleness = Duration::ZERO;
        Self { location, format, version, store, metrics, max_staleness, cache, opened: None, data_store }
    }

    /// The same table with what other handles of this process remember of it. From now on it remembers for those that are opened later.
    pub(crate) fn shared_as(mut self, key: TableKey) -> Self {
        if let Some(other) = known(&key) {
            let (location, store, data_store) = (&self.location, self.store.as_ref(), &self.data_store);
            let stores = HandleStores { location, store, data_store };
            match other.for_handle(&stores) {
                Ok(cache) => self.cache = Arc::new(cache),
                Err(error) => tracing::debug!(table = self.location(), %error, "nothing is taken from another handle"),
            }
        }
        self.opened = Some(OpenTable::new(key, &self.cache));
        self
    }

    /// What reads its data files.
    pub(super) fn data_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.data_store)
    }

    /// The same table at a version.
    pub(crate) fn at_version(&self, version: u64) -> Self {
        Self::new(self.location.clone(), self.format, Some(version), self.store.clone(), Arc::clone(&self.metrics))
    }

    /// The location as it was given.
    pub(crate) fn location(&self) -> &str {
        &self.location.text
    }

    /// An error for a table that was opened at a version.
    ///
    /// # Errors
    /// The table was opened at a version (`InvalidInput`): nothing can be changed in the past.
    pub(crate) fn check_open_for_changes(&self) -> Result<()> {
        match self.version {
            None => Ok(()),
            Some(version) => Err(Error::invalid(format!(
                "{} was opened at version {version}, which can only be read; open it without a version to change it or its indexes",
                self.location.text
            ))),
        }
    }

    /// The store, of a table that can be changed and indexed.
    pub(crate) fn writable_store(&self) -> Result<&Arc<Store>> {
        self.check_open_for_changes()?;
        self.store.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "{} is a glob or a single file, so the indexes need a place of their own: give one with --store",
                self.location.text
            ))
        })
    }

    /// The place of a data file of a snapshot by its path: in the table's folder, or in the store.
    pub(crate) fn place_of(&self, path: &str) -> Path {
        let stored = path.strip_prefix(STORE_FOLDER).and_then(|path| path.strip_prefix('/'));
        match (stored, &self.store) {
            (Some(stored), Some(store)) => store.data_path(stored),
            _ if self.format == TableFormat::Delta => place_of_file(&self.location, path),
            _ => self.location.data_file_path(path),
        }
    }
}
