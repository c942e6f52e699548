//! The last snapshot that was pinned of a table's data files, kept for as long as it is what would be pinned again.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_format::Manifest;

use super::Snapshot;
use crate::files::delta::DeltaState;
use crate::files::listed_file::FileList;

/// The last snapshot of a table without what is buffered, and what the snapshot was made of. While that and the manifest are the same, so
/// is all that follows from them. Files are matched with the manifest once.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Mutex<Option<Arc<CachedSnapshot>>>);

#[derive(Debug)]
struct CachedSnapshot {
    source: FileListSource,
    snapshot: Snapshot,
}

/// What says which data files there are.
pub(super) enum FileListSource {
    Listing(Arc<FileList>),
    Log(Arc<DeltaState>),
}

impl FileListSource {
    pub(super) fn has_listed(&self, files: &FileList) -> bool {
        matches!(self, Self::Listing(listed) if listed.is_same(files))
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

impl SnapshotCache {
    /// The snapshot of this manifest, if its source is still what there is.
    pub(super) fn get(
        &self,
        manifest: Option<&Arc<Manifest>>,
        is_same: impl FnOnce(&FileListSource) -> bool,
    ) -> Option<Snapshot> {
        let last = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?);
        let same_manifest = match (manifest, &last.snapshot.manifest) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        };
        (same_manifest && is_same(&last.source)).then(|| last.snapshot.clone())
    }

    pub(super) fn insert(&self, source: FileListSource, snapshot: &Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::new(CachedSnapshot { source, snapshot: snapshot.clone() }));
    }
}
