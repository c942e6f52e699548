//! What distinguishes one version of a data file from another.

use lakemark_format::ManifestFile;
use object_store::ObjectMeta;

use crate::storage::file_time::modified_ns;

/// A version of a data file. A file that somebody writes again has another size, time or tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    /// Path in the object store, or below the root of the table.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub modified_ns: i64,
    /// The entity tag, where there is one.
    pub tag: Option<String>,
}

impl FileVersion {
    /// The version of a listed file, by its path in the object store.
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self::of_path(meta.location.to_string(), meta)
    }

    /// The version of a listed file, by another path, such as the one below the root of its table.
    pub(crate) fn of_path(path: String, meta: &ObjectMeta) -> Self {
        Self { path, size: meta.size, modified_ns: modified_ns(meta), tag: meta.e_tag.clone() }
    }

    /// The version that a manifest knows of a file.
    pub(crate) fn of_manifest(file: &ManifestFile) -> Self {
        Self { path: file.path.clone(), size: file.size, modified_ns: file.modified_ns, tag: file.etag.clone() }
    }
}
