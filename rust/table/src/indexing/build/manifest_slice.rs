//! The part of a manifest that a task of a build is about, and what the task adds to it. It crosses between processes as the bytes of an
//! edit, so that the one decoder of untrusted bytes reads it.

use lakemark_format::{
    AddedFiles, AddedSchemas, FormatError, ManifestChanges, ManifestEdit, ManifestFile, ManifestIndex, ManifestSegment,
};

/// Some files, indexes and segments, apart from a store: `ManifestFile::schema` is a place in `schemas`, and the numbers in
/// `ManifestSegment::files` are places in `files`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManifestSlice {
    pub store_id: [u8; 16],
    /// Number of the manifest that the build was planned for, 1 or more.
    pub number: u64,
    /// Distinct schemas.
    pub schemas: Vec<Vec<u8>>,
    pub files: Vec<ManifestFile>,
    /// The indexes, by name.
    pub indexes: Vec<ManifestIndex>,
    /// The segments, by id.
    pub segments: Vec<ManifestSegment>,
}

impl ManifestSlice {
    /// The bytes of an edit that adds all of it.
    pub(super) fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let changes = ManifestChanges {
            schemas_added: AddedSchemas { first: 0, schemas: self.schemas.clone() },
            files_added: AddedFiles { first: 0, files: self.files.clone() },
            indexes_added: self.indexes.clone(),
            segments_added: self.segments.clone(),
            ..ManifestChanges::default()
        };
        ManifestEdit { store_id: self.store_id, number: self.number, created_ms: 0, checkpoint: 0, changes }.encode()
    }

    /// Reads what [`Self::encode`] wrote; none if the bytes are those of an edit that does more.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        let ManifestEdit { store_id, number, changes, .. } = ManifestEdit::decode(bytes)?;
        let ManifestChanges { schemas_added, files_added, indexes_added, segments_added, .. } = changes.clone();
        let slice = Self {
            store_id,
            number,
            schemas: schemas_added.schemas,
            files: files_added.files,
            indexes: indexes_added,
            segments: segments_added,
        };
        let is_plain = changes.files_removed.is_empty()
            && changes.schemas_removed.is_empty()
            && changes.files_changed.is_empty()
            && changes.segments_removed.is_empty()
            && changes.indexes_removed.is_empty()
            && changes.updates.is_none();
        Ok(is_plain.then_some(slice))
    }
}
