//! One group of files of a build: what it is about, in a form that other processes can get.

use arrow::datatypes::Schema;
use lakemark_format::{Manifest, ManifestFile};

use super::group::{Group, listed};
use super::manifest_slice::ManifestSlice;
use crate::error::{Error, Result};
use crate::files::columns::IndexedFields;
use crate::snapshot::BaseTable;
use crate::storage::file_time::modified_ns;
use crate::storage::fingerprint::fingerprint_of_name;
use crate::store::hashed::hash_bits;
use crate::store::included::included;
use crate::values::schema;

/// Some data files and the indexes that lack them: what becomes one segment for each of these.
///
/// Its bytes are the id of the build, a byte that says whether its segments get random ids, and those of an edit that adds just these files
/// and indexes, without segments.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildTask {
    /// The build that it is part of: who runs it twice at once does not wait for himself.
    build: [u8; 16],
    has_random_ids: bool,
    /// The one schema has the column of each index as the table types it, in their order, then the columns that ride along. Files have
    /// their identities, and no row groups.
    manifest: ManifestSlice,
}

impl BuildTask {
    pub(super) fn new(table: &BaseTable, build: [u8; 16], of: &Manifest, group: &Group) -> Result<Self> {
        let riding = group.fields.iter().flat_map(|fields| &fields.riding);
        let fields = group.fields.iter().map(|fields| &fields.key).chain(riding);
        let fields = Schema::new(fields.cloned().collect::<Vec<_>>());
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
        Ok(Self { build, has_random_ids: group.has_random_ids, manifest })
    }

    /// The task in bytes.
    ///
    /// # Errors
    /// The table is beyond the limits of the format (`Unsupported`).
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok([self.build.as_slice(), &[self.has_random_ids.into()], &encoded(&self.manifest)?].concat())
    }

    /// Reads what [`BuildTask::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are none of a task (`Corrupt`).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("a task of a build is damaged; build again");
        let (build, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (has_random_ids, manifest) = match rest {
            [said @ (0 | 1), manifest @ ..] => (*said == 1, manifest),
            _ => return Err(damaged()),
        };
        let manifest = ManifestSlice::decode(manifest).map_err(|error| damaged().with_source(error))?;
        Ok(Self { build: *build, has_random_ids, manifest: manifest.ok_or_else(damaged)? })
    }

    /// Paths of its data files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.iter().map(|file| file.path.as_str())
    }

    /// Names of the indexes that it fills.
    pub fn indexes(&self) -> impl Iterator<Item = &str> {
        self.manifest.indexes.iter().map(|index| index.name.as_str())
    }

    /// The id of the claim of whoever runs the task: that of every task of any build about the same files and indexes.
    pub(super) fn claim_id(&self) -> Result<[u8; 16]> {
        // Builds are planned for different manifests.
        Ok(fingerprint_of_name(&encoded(&ManifestSlice { number: 1, ..self.manifest.clone() })?))
    }

    /// The id of the build that it is part of.
    pub(super) fn build(&self) -> [u8; 16] {
        self.build
    }

    pub(super) fn manifest(&self) -> &ManifestSlice {
        &self.manifest
    }

    /// The files and indexes that it is about.
    pub(super) fn group(&self, table: &BaseTable) -> Result<Group> {
        let bytes = self.manifest.schemas.first().ok_or_else(|| Error::corrupt("a task of a build has no columns"))?;
        let mut fields = schema::from_bytes(bytes)?.fields().to_vec();
        if fields.len() < self.manifest.indexes.len() {
            return Err(Error::corrupt("a task of a build has not one column for each of its indexes"));
        }
        let others = fields.split_off(self.manifest.indexes.len());
        let fields = self.manifest.indexes.iter().zip(fields).map(|(index, key)| {
            let names = included(index);
            let riding = names.iter().filter_map(|name| others.iter().find(|field| field.name() == name).cloned());
            IndexedFields { key, riding: riding.collect(), hash_bits: hash_bits(index) }
        });
        let fields = fields.collect();
        let files = self.manifest.files.iter().map(|file| listed(table, file)).collect();
        let (indexes, has_random_ids) = (self.manifest.indexes.clone(), self.has_random_ids);
        Ok(Group { files, indexes, fields, has_random_ids })
    }
}

fn encoded(manifest: &ManifestSlice) -> Result<Vec<u8>> {
    manifest.encode().map_err(|error| {
        Error::unsupported("a task of the build is beyond the limits of the format; use fewer files per segment")
            .with_source(error)
    })
}
