//! One group of files of a build: what it is about, in a form that other processes can get.

use arrow::datatypes::Schema;
use lakemark_format::{Manifest, ManifestFile};

use super::group::{Group, listed};
use super::manifest_slice::ManifestSlice;
use crate::error::{Error, Result};
use crate::snapshot::BaseTable;
use crate::storage::file_time::modified_ns;
use crate::values::schema;

/// Some data files and the indexes that lack them: what becomes one segment for each of these.
///
/// Its bytes are those of an edit that adds just these files and indexes, without segments.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildTask {
    /// The one schema has the column of each index as the table types it, in their order. Files have their identities, and no
    /// row groups.
    manifest: ManifestSlice,
}

impl BuildTask {
    pub(super) fn new(table: &BaseTable, of: &Manifest, group: &Group) -> Result<Self> {
        let fields = Schema::new(group.fields.clone());
        let mut files = Vec::with_capacity(group.files.len());
        for file in &group.files {
            // The process that runs the task finds the file by its path.
            if table.place_of(&file.path) != file.meta.location {
                return Err(Error::internal(format!("the data file {} is not where its path says", file.path)));
            }
            files.push(ManifestFile {
                path: file.path.clone(),
                size: file.meta.size,
                modified_ns: modified_ns(&file.meta),
                etag: file.meta.e_tag.clone(),
                footer_hash: 0,
                schema: 0,
                row_groups: Vec::new(),
                false_statistics: Vec::new(),
            });
        }
        let manifest = ManifestSlice {
            store_id: of.store_id(),
            number: of.number(),
            schemas: vec![schema::to_bytes(&fields)?],
            files,
            indexes: group.indexes.clone(),
            segments: Vec::new(),
        };
        Ok(Self { manifest })
    }

    /// The task in bytes.
    ///
    /// # Errors
    /// The table is beyond the limits of the format (`Unsupported`).
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.manifest.encode().map_err(|error| {
            Error::unsupported("a task of the build is beyond the limits of the format; use fewer files per segment")
                .with_source(error)
        })
    }

    /// Reads what [`BuildTask::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are none of a task (`Corrupt`).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("a task of a build is damaged; build again");
        let manifest = ManifestSlice::decode(bytes).map_err(|error| damaged().with_source(error))?;
        let manifest = manifest.ok_or_else(damaged)?;
        Ok(Self { manifest })
    }

    /// Paths of its data files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.iter().map(|file| file.path.as_str())
    }

    /// Names of the indexes that it fills.
    pub fn indexes(&self) -> impl Iterator<Item = &str> {
        self.manifest.indexes.iter().map(|index| index.name.as_str())
    }

    pub(super) fn manifest(&self) -> &ManifestSlice {
        &self.manifest
    }

    /// The files and indexes that it is about.
    pub(super) fn group(&self, table: &BaseTable) -> Result<Group> {
        let bytes = self.manifest.schemas.first().ok_or_else(|| Error::corrupt("a task of a build has no columns"))?;
        let fields = schema::from_bytes(bytes)?.fields().to_vec();
        if fields.len() != self.manifest.indexes.len() {
            return Err(Error::corrupt("a task of a build has not one column for each of its indexes"));
        }
        let files = self.manifest.files.iter().map(|file| listed(table, file)).collect();
        Ok(Group { files, indexes: self.manifest.indexes.clone(), fields })
    }
}
