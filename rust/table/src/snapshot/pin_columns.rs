//! How the columns of a table are pinned, for changes by key that look at no data file.
//!
//! A folder has no schema but that of its files, so that every change would have to list all of them, or look at each partition at least.
//! Such a change takes the columns that were pinned last. What others did to the files since shows in three places:
//!
//! - A file or partition that comes to the table's own folder, or leaves it, gives that folder another time: the files are listed.
//! - A change that does not fit the columns is made by those of a new listing.
//! - A change that would lose something in their types, such as the text `007` as an integer, is made by them while each folder is the one
//!   that was listed ([`PinnedColumns::files`]).
//!
//! Any other change says the same by the columns of then as by those of now. It counts as one that was made before the files changed.

use std::sync::Arc;

use lakemark_format::Manifest;

use super::match_files::MatchedFiles;
use super::pin_base::newest_manifest;
use super::recent::{has_same_moves, updates_of};
use super::{BaseTable, Snapshot};
use crate::error::Result;
use crate::files::listed_file::FileList;
use crate::files::parted_list::PartedList;
use crate::table_format::TableFormat;

/// The columns of a folder, as they were pinned last.
pub(crate) struct PinnedColumns {
    /// The newest manifest with these columns, and without any file.
    pub snapshot: Snapshot,
    /// The listing that the columns are of.
    pub files: Arc<FileList>,
}

impl Snapshot {
    /// The newest manifest with the columns of a folder that were pinned last. None where the files have to be looked at for the columns:
    /// they were moved by a process of ours, or the table's own folder is another one. The log of a Delta table has its columns.
    pub(crate) async fn pin_columns(table: &BaseTable) -> Result<Option<PinnedColumns>> {
        let known = table.cache.columns.get().filter(|_| table.format == TableFormat::Parquet);
        let Some(known) = known else { return Ok(None) };
        let manifest = newest_manifest(table).await?;
        let is_known = has_same_moves(updates_of(known.manifest.as_deref()), updates_of(manifest.as_deref()));
        if !is_known || !table.cache.listing.has_same_root(&known.files).await? {
            return Ok(None);
        }
        let snapshot = known.snapshot.without_files(manifest);
        Ok(Some(PinnedColumns { snapshot, files: Arc::clone(&known.files) }))
    }

    /// The same columns with another manifest and without any file.
    pub(super) fn without_files(&self, manifest: Option<Arc<Manifest>>) -> Self {
        let matched = MatchedFiles::default();
        Self {
            manifest,
            files: PartedList::default(),
            index_states: PartedList::default(),
            matched,
            deleted_rows: 0,
            deleted_in: Arc::default(),
            hidden: Arc::default(),
            ..self.clone()
        }
    }
}
