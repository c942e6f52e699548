//! What a handle remembers of a table, for its own next snapshot and for handles that are opened later.
//!
//! What was found is of the table, and requests are of a handle: it counts them, and has its own credentials and layers. So another handle
//! takes what was found, and makes the requests by which it sees whether that still holds.

use std::sync::Arc;

use object_store::ObjectStore;

use super::Snapshot;
use super::column_cache::ColumnCache;
use super::reader_cache::ReaderCache;
use super::recent::Recent;
use super::snapshot_cache::SnapshotCache;
use crate::error::Result;
use crate::files::delta::{DeltaState, NewestState, VectorCache};
use crate::files::footer::FooterCache;
use crate::files::list_folders::ListingCache;
use crate::files::listed_file::FileList;
use crate::storage::clock::Moment;
use crate::storage::location::Location;
use crate::store::Store;

/// About so much is kept of each table: what requests to its storage are made with, its columns and the manifest.
const BYTES_PER_TABLE: u64 = 256 * 1024;
/// About so much is kept of each data file: its names, its entries in listing and manifest, and in a snapshot.
const BYTES_PER_FILE: u64 = 1024;

/// What a handle remembers of a table without what is buffered. All of it is compared with what is there before it counts.
#[derive(Debug, Default)]
pub(crate) struct TableCache {
    /// Remembers the newest manifest.
    store: Option<Arc<Store>>,
    pub listing: ListingCache,
    pub recent_files: Recent<FileList>,
    pub log: NewestState,
    pub recent_log: Recent<DeltaState>,
    pub last: SnapshotCache,
    pub columns: ColumnCache,
    pub footers: Arc<FooterCache>,
    pub vectors: Arc<VectorCache>,
}

/// What a handle makes its requests with.
pub(super) struct HandleStores<'a> {
    pub location: &'a Location,
    pub store: Option<&'a Arc<Store>>,
    /// What reads data files.
    pub data_store: &'a Arc<dyn ObjectStore>,
}

impl TableCache {
    /// Nothing yet.
    pub(super) fn new(store: Option<Arc<Store>>) -> Self {
        Self { store, ..Self::default() }
    }

    /// The same for another handle of the table.
    ///
    /// # Errors
    /// The Delta library does not take the place of the log.
    pub(super) fn for_handle(&self, own: &HandleStores<'_>) -> Result<Self> {
        if let (Some(store), Some(other)) = (own.store, &self.store) {
            store.remember_as(other);
        }
        let mut states = OwnStates { location: own.location, known: Vec::new() };
        Ok(Self {
            store: own.store.cloned(),
            listing: self.listing.copied(),
            recent_files: self.recent_files.copied(|files| Ok(Arc::clone(files)))?,
            log: self.log.copied(|state| states.of(state))?,
            recent_log: self.recent_log.copied(|state| states.of(state))?,
            last: self.last.copied(|snapshot| snapshot.read_through(own), |state| states.of(state))?,
            columns: self.columns.copied(|snapshot| snapshot.read_through(own)),
            footers: Arc::clone(&self.footers),
            vectors: Arc::clone(&self.vectors),
        })
    }

    /// What is worth keeping of a handle that is closed. Footers and deleted rows are those of files that were replaced, too; what is known
    /// of the newest files is in the last snapshot.
    pub(super) fn closed(&self) -> Result<Self> {
        let bare = |snapshot: &Snapshot| Snapshot { attached: ReaderCache::default(), ..snapshot.clone() };
        let same = |state: &Arc<DeltaState>| Ok(Arc::clone(state));
        Ok(Self {
            store: self.store.clone(),
            listing: self.listing.copied(),
            recent_files: self.recent_files.copied(|files| Ok(Arc::clone(files)))?,
            log: self.log.copied(same)?,
            recent_log: self.recent_log.copied(same)?,
            last: self.last.copied(bare, same)?,
            columns: self.columns.copied(bare),
            ..Self::default()
        })
    }

    /// When the last look began at what there is; none before the first one.
    pub(super) fn last_look(&self) -> Option<Moment> {
        self.recent_files.since().max(self.recent_log.since())
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> u64 {
        let listed = self.recent_files.found().map_or(0, |files| files.0.len());
        let logged = self.recent_log.found().map_or(0, |state| state.files.len());
        BYTES_PER_FILE.saturating_mul(listed.max(logged) as u64).saturating_add(BYTES_PER_TABLE)
    }
}

/// The states of a log as a handle reads them. States that were one stay one: whoever has made something of a state looks whether the next
/// one is the same.
struct OwnStates<'a> {
    location: &'a Location,
    known: Vec<(Arc<DeltaState>, Arc<DeltaState>)>,
}

impl OwnStates<'_> {
    fn of(&mut self, state: &Arc<DeltaState>) -> Result<Arc<DeltaState>> {
        if let Some((_, own)) = self.known.iter().find(|(other, _)| Arc::ptr_eq(other, state)) {
            return Ok(Arc::clone(own));
        }
        let own = Arc::new(state.read_through(self.location)?);
        self.known.push((Arc::clone(state), Arc::clone(&own)));
        Ok(own)
    }
}

impl Snapshot {
    /// The same state, as a handle reads it. What readers keep with a snapshot may be of a session that others do not see.
    fn read_through(&self, own: &HandleStores<'_>) -> Self {
        let (object_store, store) = (Arc::clone(own.data_store), own.store.cloned());
        Self { object_store, store, attached: ReaderCache::default(), ..self.clone() }
    }
}
