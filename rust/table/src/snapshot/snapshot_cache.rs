//! The last snapshot that was pinned of a table's data files, for whoever pins the next one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_format::Manifest;

use super::Snapshot;
use crate::files::delta::DeltaState;
use crate::files::listed_file::{FileList, ListingChange};

/// The last snapshot of a table without what is buffered, and what the snapshot was made of. While that and the manifest are the same, so
/// is all that follows from them. Where they differ, the next snapshot is made from this one.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Mutex<Option<Arc<CachedSnapshot>>>);

#[derive(Debug)]
pub(super) struct CachedSnapshot {
    pub source: FileListSource,
    pub snapshot: Snapshot,
}

/// What says which data files there are.
pub(super) enum FileListSource {
    Listing(Arc<FileList>),
    Log(Arc<DeltaState>),
}

impl FileListSource {
    /// What changed in the listing since then; none if it was no listing.
    pub(super) fn changes_to(&self, files: &Arc<FileList>) -> Option<Vec<ListingChange>> {
        match self {
            Self::Listing(listed) if Arc::ptr_eq(listed, files) => Some(Vec::new()),
            Self::Listing(listed) => Some(files.changes_since(listed)),
            Self::Log(_) => None,
        }
    }

    pub(super) fn has_read(&self, state: &Arc<DeltaState>) -> bool {
        matches!(self, Self::Log(read) if Arc::ptr_eq(read, state))
    }
}

impl fmt::Debug for FileListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listing(files) => write!(f, "{} listed files", files.0.len()),
            Self::Log(state) => write!(f, "version {} of the log", state.version),
        }
    }
}

impl CachedSnapshot {
    /// Whether it was made with this manifest.
    pub(super) fn has_manifest(&self, manifest: Option<&Arc<Manifest>>) -> bool {
        match (manifest, &self.snapshot.manifest) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        }
    }
}

impl SnapshotCache {
    /// The last snapshot.
    pub(super) fn last(&self) -> Option<Arc<CachedSnapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn insert(&self, source: FileListSource, snapshot: &Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::new(CachedSnapshot { source, snapshot: snapshot.clone() }));
    }
}
