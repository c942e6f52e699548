//! Manifests as they are listed, read and remembered.

use std::sync::Arc;

use lakemark_format::Manifest;
use object_store::ObjectMeta;

use crate::error::Result;

/// The newest manifest.
#[derive(Debug)]
pub(crate) struct NewestManifest {
    /// Its number; 0 where there is none yet.
    pub number: u64,
    /// The manifest, or why it cannot be read; none where there is none yet.
    pub manifest: Result<Option<Arc<Manifest>>>,
}

/// A manifest that was listed.
#[derive(Debug)]
pub(super) struct ListedManifest {
    pub number: u64,
    pub meta: ObjectMeta,
}

/// The manifest that was read last.
#[derive(Debug)]
pub(super) struct CachedManifest {
    /// The listing's entry for it then.
    pub meta: ObjectMeta,
    pub manifest: Arc<Manifest>,
}
