//! A table without what is buffered: where the table and its store are, and what is remembered of its data files.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;

use super::column_cache::ColumnCache;
use super::recent::Recent;
use super::snapshot_cache::SnapshotCache;
use crate::error::{Error, Result};
use crate::files::delta::{DeltaState, NewestState, VectorCache};
use crate::files::footer::FooterCache;
use crate::files::list_folders::ListingCache;
use crate::files::listed_file::FileList;
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
    pub listing: ListingCache,
    pub recent_files: Recent<FileList>,
    pub log: NewestState,
    pub recent_log: Recent<DeltaState>,
    pub last: SnapshotCache,
    pub columns: ColumnCache,
    pub footers: FooterCache,
    pub vectors: VectorCache,
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
        let (footers, vectors) = (FooterCache::default(), VectorCache::default());
        Self {
            location,
            format,
            version,
            store,
            metrics,
            max_staleness: Duration::ZERO,
            listing: ListingCache::default(),
            recent_files: Recent::default(),
            log: NewestState::default(),
            recent_log: Recent::default(),
            last: SnapshotCache::default(),
            columns: ColumnCache::default(),
            footers,
            vectors,
        }
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
            _ => self.location.data_file_path(path),
        }
    }
}
