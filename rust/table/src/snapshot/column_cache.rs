//! The columns of a folder as they were pinned last, for changes that look at no data file.

use std::sync::{Arc, Mutex, PoisonError};

use lakemark_format::Manifest;

use super::Snapshot;
use crate::files::listed_file::FileList;

/// The columns of a folder as they were pinned last.
#[derive(Debug, Default)]
pub(crate) struct ColumnCache(Mutex<Option<Arc<KnownColumns>>>);

/// What was pinned, and what it was made of.
#[derive(Debug)]
pub(super) struct KnownColumns {
    pub files: Arc<FileList>,
    pub manifest: Option<Arc<Manifest>>,
    /// A snapshot without any file.
    pub snapshot: Snapshot,
}

impl ColumnCache {
    pub(super) fn get(&self) -> Option<Arc<KnownColumns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same as another handle reads it.
    pub(super) fn copied(&self, of_snapshot: impl FnOnce(&Snapshot) -> Snapshot) -> Self {
        let copied = |known: Arc<KnownColumns>| {
            let (files, manifest) = (Arc::clone(&known.files), known.manifest.clone());
            Arc::new(KnownColumns { files, manifest, snapshot: of_snapshot(&known.snapshot) })
        };
        Self(Mutex::new(self.get().map(copied)))
    }

    pub(super) fn insert(&self, files: &Arc<FileList>, snapshot: &Snapshot) {
        let manifest = snapshot.manifest.clone();
        let snapshot = snapshot.without_files(manifest.clone());
        let known = KnownColumns { files: Arc::clone(files), manifest, snapshot };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(known));
    }
}
