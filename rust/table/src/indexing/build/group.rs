//! Data files that share segments: what is built of them, what that gave, and whether they are still as they were listed.

use arrow::datatypes::{FieldRef, SchemaRef};
use chrono::DateTime;
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{ManifestFile, ManifestIndex, ManifestSegment, column};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::BuildContext;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{BaseTable, DataFile, Snapshot};
use crate::storage::file_time::modified_ns;
use crate::table_format::TableFormat;

/// Files that share segments, and the indexes that lack them.
pub(crate) struct Group {
    pub files: Vec<GroupFile>,
    pub indexes: Vec<ManifestIndex>,
    /// The column of each index, as the table types it.
    pub fields: Vec<FieldRef>,
}

/// A data file as it was listed.
pub(crate) struct GroupFile {
    /// Place in the table's object store, size and time.
    pub meta: ObjectMeta,
    /// Path below the table's root.
    pub path: String,
}

impl Group {
    /// Files of a snapshot.
    pub(crate) fn of<'a>(
        snapshot: &Snapshot,
        files: impl IntoIterator<Item = &'a DataFile>,
        indexes: Vec<ManifestIndex>,
    ) -> Result<Self> {
        let field = |index: &ManifestIndex| {
            let found = snapshot.physical_field(&index.column);
            found.ok_or_else(|| {
                Error::internal(format!("the column {} of an index is gone", column::display(&index.column)))
            })
        };
        let fields = indexes.iter().map(field).collect::<Result<_>>()?;
        let files = files.into_iter().map(|file| GroupFile { meta: file.meta.clone(), path: file.path.clone() });
        Ok(Self { files: files.collect(), indexes, fields })
    }
}

/// A data file that was read.
pub(crate) struct BuiltFile {
    /// What a manifest says of the file, without the number of its schema.
    pub file: ManifestFile,
    pub schema: SchemaRef,
}

/// What a group gave.
#[derive(Default)]
pub(crate) struct GroupResult {
    pub files: Vec<BuiltFile>,
    /// The segments; their `files` count in the list above.
    pub segments: Vec<ManifestSegment>,
    /// Files that changed under the build.
    pub skipped: Vec<String>,
}

/// Cuts files into groups that fit into a segment's row space.
pub(crate) fn cut(
    snapshot: &Snapshot,
    files: &[usize],
    per_segment: usize,
    rows_of: &impl Fn(usize) -> u64,
) -> Result<Vec<Vec<usize>>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut space = 0;
    for file in files {
        let rows = rows_of(*file).next_multiple_of(u64::from(BASE_ALIGNMENT));
        if rows > u64::from(u32::MAX) {
            let name = snapshot.files().get(*file).map_or("", |file| file.path.as_str());
            return Err(Error::unsupported(format!(
                "the data file {name} has more than 2^32 rows; write smaller files"
            )));
        }
        match groups.last_mut() {
            Some(group) if group.len() < per_segment && space + rows <= u64::from(u32::MAX) => {
                group.push(*file);
                space += rows;
            }
            _ => {
                groups.push(vec![*file]);
                space = rows;
            }
        }
    }
    Ok(groups)
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
