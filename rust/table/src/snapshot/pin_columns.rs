//! How the columns of a table are pinned, for changes by key that look at no data file.
//!
//! A folder has no schema but that of its files, so that every change would have to list all of them. Files come and go by names, and
//! whoever adds, removes or renames one leaves a trace in its folder. While the folders are as they were when they were listed, the columns
//! are those of then. Somebody who writes into a file that is there, with other columns, is seen by the next listing. A change that was
//! made in between counts as one that was made before.

use std::sync::Arc;

use lakemark_format::Manifest;

use super::match_files::MatchedFiles;
use super::pin_base::newest_manifest;
use super::recent::{has_same_moves, updates_of};
use super::{BaseTable, Snapshot};
use crate::error::Result;
use crate::files::parted_list::PartedList;
use crate::table_format::TableFormat;

impl Snapshot {
    /// The newest manifest, with the columns of the data files and without the files where these are known. With the files where they have
    /// to be listed for the columns. The log of a Delta table has its columns.
    pub(crate) async fn pin_columns(table: &BaseTable) -> Result<Self> {
        let known = table.columns.get().filter(|_| table.format == TableFormat::Parquet);
        if let Some(known) = known {
            let manifest = newest_manifest(table).await?;
            let is_known = has_same_moves(updates_of(known.manifest.as_deref()), updates_of(manifest.as_deref()));
            if is_known && table.listing.has_same_names(&known.files).await? {
                return Ok(known.snapshot.without_files(manifest));
            }
        }
        Self::pin_base(table).await
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
            ..self.clone()
        }
    }
}
