//! Data files that share segments: what is built of them, what that gave, and whether they are still as they were listed.

use std::ops::Range;

use arrow::datatypes::SchemaRef;
use chrono::DateTime;
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{ManifestFile, ManifestIndex, ManifestSegment, column};
use object_store::ObjectMeta;

use super::BuildContext;
use crate::error::{Error, Result};
use crate::files::columns::IndexedFields;
use crate::files::unreadable::{is_about_the_file, newest_meta};
use crate::report::Finding;
use crate::snapshot::{BaseTable, DataFile, Snapshot};
use crate::storage::file_time::modified_ns;
use crate::store::hashed::hash_bits;
use crate::table_format::TableFormat;

/// Files that share segments, and the indexes that lack them.
pub(crate) struct Group {
    pub files: Vec<GroupFile>,
    pub indexes: Vec<ManifestIndex>,
    /// What each index reads, as the table types it.
    pub fields: Vec<IndexedFields>,
    /// Whether its segments get random ids, and none is taken over: a damaged one has the name that they would get.
    pub has_random_ids: bool,
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
        let field = |index: &ManifestIndex| -> Result<IndexedFields> {
            let key = snapshot.physical_field(&index.column).ok_or_else(|| {
                Error::internal(format!("the column {} of an index is gone", column::display(&index.column)))
            })?;
            Ok(IndexedFields { key, riding: snapshot.riding_fields(index), hash_bits: hash_bits(index) })
        };
        let fields = indexes.iter().map(field).collect::<Result<Vec<_>>>()?;
        let files = files.into_iter().map(|file| GroupFile { meta: file.meta.clone(), path: file.path.clone() });
        Ok(Self { files: files.collect(), indexes, fields, has_random_ids: false })
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
    /// The ids of those that others had written.
    pub taken_over: Vec<[u8; 16]>,
    /// Files that changed under the build, or vanished.
    pub changed: Vec<String>,
    /// Files that cannot be read.
    pub failed: Vec<Finding>,
}

/// What is wrong with a file that is not the one that was listed any more.
pub(super) const CHANGED: &str = "it changed or vanished after it was listed; the next build takes it as it is then";

impl GroupResult {
    /// Leaves out a file that gave this error. Where the file is not to blame, the error comes back.
    pub(super) async fn leave_out(&mut self, context: &BuildContext, file: &GroupFile, error: Error) -> Result<()> {
        if !is_about_the_file(error.kind()) {
            return Err(error);
        }
        if is_changed(context, file).await? {
            self.leave_out_changed(file);
        } else {
            tracing::warn!(file = file.path, %error, "the data file cannot be indexed and is left out");
            self.failed.push(Finding { path: file.path.clone(), problem: error.to_string() });
        }
        Ok(())
    }

    pub(super) fn leave_out_changed(&mut self, file: &GroupFile) {
        tracing::warn!(file = file.path, "the data file changed while it was read and is left out");
        self.changed.push(file.path.clone());
    }

    /// Every file that was left out, with the reason.
    pub(super) fn left_out(&self) -> impl Iterator<Item = Finding> {
        let changed = self.changed.iter().map(|path| Finding { path: path.clone(), problem: CHANGED.to_owned() });
        self.failed.iter().cloned().chain(changed)
    }
}

/// Cuts files into groups that fit into a segment's row space: the places of each group in the list.
pub(crate) fn cut(
    snapshot: &Snapshot,
    files: impl IntoIterator<Item = usize>,
    per_segment: usize,
    rows_of: &impl Fn(usize) -> u64,
) -> Result<Vec<Range<usize>>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut space = 0;
    for (place, file) in files.into_iter().enumerate() {
        let rows = rows_of(file).next_multiple_of(u64::from(BASE_ALIGNMENT));
        if rows > u64::from(u32::MAX) {
            let name = snapshot.files().get(file).map_or("", |file| file.path.as_str());
            return Err(Error::unsupported(format!(
                "the data file {name} has more than 2^32 rows; write smaller files"
            )));
        }
        match groups.last_mut() {
            Some(group) if group.len() < per_segment && space + rows <= u64::from(u32::MAX) => {
                group.end = place + 1;
                space += rows;
            }
            _ => {
                groups.push(place..place + 1);
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
    let Some(now) = newest_meta(context.object_store.as_ref(), &file.meta).await? else { return Ok(true) };
    let same_time = match (&file.meta.e_tag, &now.e_tag) {
        (Some(was), Some(is)) => was == is,
        _ => modified_ns(&file.meta) == modified_ns(&now),
    };
    // The Delta log has its own times and no entity tags.
    Ok(now.size != file.meta.size || !(context.format == TableFormat::Delta || same_time))
}
