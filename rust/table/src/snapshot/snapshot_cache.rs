//! The last snapshot that was pinned of a table's data files, for whoever pins the next one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_format::Manifest;

use super::Snapshot;
use crate::error::Result;
use crate::files::delta::{DeltaFile, DeltaState};
use crate::files::listed_file::{FileList, ListingChange};
use crate::files::parted_list::ListEdit;

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
    /// The files that counted then; none if a log says which those are.
    pub(super) fn listing(&self) -> Option<&FileList> {
        match self {
            Self::Listing(listed) => Some(listed),
            Self::Log(_) => None,
        }
    }

    /// What changed in the listing since then; none if it was no listing.
    pub(super) fn changes_to(&self, files: &Arc<FileList>) -> Option<Vec<ListingChange>> {
        match self {
            Self::Listing(listed) if Arc::ptr_eq(listed, files) => Some(Vec::new()),
            Self::Listing(listed) => Some(files.changes_since(listed)),
            Self::Log(_) => None,
        }
    }

    /// What changed in the files of a log since then; none if it was no log, or one of which more than files may have changed.
    pub(super) fn changes_of_log(&self, state: &DeltaState) -> Option<Vec<ListEdit<Arc<DeltaFile>>>> {
        match self {
            Self::Log(read) if state.continues(read) => Some(state.changes_since(read)),
            Self::Log(_) | Self::Listing(_) => None,
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

    /// The same as another handle reads it.
    pub(super) fn copied(
        &self,
        of_snapshot: impl FnOnce(&Snapshot) -> Snapshot,
        of_state: impl FnOnce(&Arc<DeltaState>) -> Result<Arc<DeltaState>>,
    ) -> Result<Self> {
        let Some(last) = self.last() else { return Ok(Self::default()) };
        let source = match &last.source {
            FileListSource::Listing(files) => FileListSource::Listing(Arc::clone(files)),
            FileListSource::Log(state) => FileListSource::Log(of_state(state)?),
        };
        Ok(Self(Mutex::new(Some(Arc::new(CachedSnapshot { source, snapshot: of_snapshot(&last.snapshot) })))))
    }

    pub(super) fn insert(&self, source: FileListSource, snapshot: &Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::new(CachedSnapshot { source, snapshot: snapshot.clone() }));
    }
}
