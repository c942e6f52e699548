//! One group of files of a build: what it is about, in a form that other processes can get, and the work itself.

use std::sync::Arc;

use arrow::datatypes::Schema;
use chrono::DateTime;
use lakemark_format::{Manifest, ManifestFile};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::BuildContext;
use super::group::{Group, GroupFile, GroupResult, build_group};
use super::part::BuildPart;
use crate::error::{Error, ErrorKind, Result};
use crate::options::BuildOptions;
use crate::snapshot::BaseTable;
use crate::storage::file_time::modified_ns;
use crate::store::Store;
use crate::table_format::TableFormat;
use crate::values::schema;

/// Some data files and the indexes that lack them: what becomes one segment for each of these.
///
/// Its bytes are those of a manifest of just these files and indexes, without segments.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildTask {
    /// The manifest's one schema has the column of each index as the table types it, in their order. Files have their identities, and no
    /// row groups.
    manifest: Manifest,
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
        let manifest = Manifest {
            store_id: of.store_id,
            number: of.number,
            created_ms: 0,
            schemas: vec![schema::to_bytes(&fields)?],
            files,
            indexes: group.indexes.clone(),
            segments: Vec::new(),
            updates: None,
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
        let manifest = Manifest::decode(bytes)
            .map_err(|error| Error::corrupt("a task of a build is damaged; build again").with_source(error))?;
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

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn group(&self, table: &BaseTable) -> Result<Group> {
        let bytes = self.manifest.schemas.first().ok_or_else(|| Error::corrupt("a task of a build has no columns"))?;
        let fields = schema::from_bytes(bytes)?.fields().to_vec();
        if fields.len() != self.manifest.indexes.len() {
            return Err(Error::corrupt("a task of a build has not one column for each of its indexes"));
        }
        let files = self.manifest.files.iter().map(|file| listed(table, file)).collect();
        Ok(Group { files, indexes: self.manifest.indexes.clone(), fields })
    }
}

/// The data file as it was listed.
pub(super) fn listed(table: &BaseTable, file: &ManifestFile) -> GroupFile {
    let meta = ObjectMeta {
        location: table.place_of(&file.path),
        last_modified: DateTime::from_timestamp_nanos(file.modified_ns),
        size: file.size,
        e_tag: file.etag.clone(),
        version: None,
    };
    GroupFile { meta, path: file.path.clone() }
}

/// Whether the file is not the one that was listed any more.
pub(super) async fn is_changed(context: &BuildContext, file: &GroupFile) -> Result<bool> {
    let now = match context.object_store.head(&file.meta.location).await {
        Ok(now) => now,
        Err(object_store::Error::NotFound { .. }) => return Ok(true),
        Err(error) => return Err(Error::io(format!("the data file {} cannot be read", file.path)).with_source(error)),
    };
    let same_time = match (&file.meta.e_tag, &now.e_tag) {
        (Some(was), Some(is)) => was == is,
        _ => modified_ns(&file.meta) == modified_ns(&now),
    };
    // The Delta log has its own times and no entity tags.
    Ok(now.size != file.meta.size || !(context.format == TableFormat::Delta || same_time))
}

/// Whether a file that changes while it is read can give such an error.
pub(super) fn is_about_the_file(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Io | ErrorKind::Conflict)
}

/// Writes the segments of a task. After a failure none of them is left.
pub(crate) async fn run(table: &BaseTable, task: &BuildTask, options: &BuildOptions) -> Result<BuildPart> {
    let context = BuildContext::new(table, options)?;
    context.check_cancel()?;
    check_store(&context.store, &task.manifest).await?;
    let group = task.group(table)?;
    let mut result = GroupResult::default();
    let outcome = build_group(&context, &group, &mut result).await.and_then(|()| context.check_cancel());
    let part = outcome.and_then(|()| BuildPart::new(task, &result, context.budget.spilled()));
    if part.is_err() {
        for segment in &result.segments {
            context.store.discard(&segment.path).await;
        }
    }
    part
}

/// Fails where the store is not the one that the plan saw: on another machine the same path may be another disk.
async fn check_store(store: &Arc<Store>, planned: &Manifest) -> Result<()> {
    let newest = store.newest_number().await?;
    if newest >= planned.number {
        return Ok(());
    }
    Err(Error::not_found(format!(
        "the store {} lacks the manifest {} where a task of the build runs (the newest there is {newest}): all processes that build must see \
         the same store; put the table, or its indexes with the option `store`, on storage that all of them reach",
        store.text(),
        planned.number
    )))
}
