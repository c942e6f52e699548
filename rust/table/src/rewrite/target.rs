//! New data files: where they are, and that they are there and on the disk.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::rewrite::row_ids::RowIds;
use crate::snapshot::DataFile;
use crate::storage::disk::{self, DiskStep, on_a_thread, sync_folder};
use crate::storage::location::place_of;

/// Bytes of a file of new rows.
pub(super) const FILE_BYTES: u64 = 128 * 1024 * 1024;

/// Where new files go, and what they look like.
pub(super) struct FileTarget<'a> {
    pub object_store: Arc<dyn ObjectStore>,
    /// The root that paths of new files are below.
    pub prefix: Path,
    /// The root, if it is on a local file system.
    pub local: Option<PathBuf>,
    /// The columns of a file: those of the table's files in their order, under stored names.
    pub schema: SchemaRef,
    /// A file of new rows is closed when it has about this many bytes.
    pub file_bytes: u64,
    /// Whether nothing but the files says which columns the table has.
    pub columns_are_in_files: bool,
    /// Whether the caller needs to know which columns have NaN.
    pub tracks_nan: bool,
    /// How files keep what their rows are called; none if nobody tracks rows.
    pub row_ids: Option<Arc<RowIds>>,
    /// Where the changes of rows go, with the columns that say what they are; none if nobody keeps a feed of changes.
    pub changes: Option<&'a FileTarget<'a>>,
    /// The schema that Spark wrote into the files, if it has more than Parquet can say.
    pub spark_schema: Option<String>,
    /// Gives the path of a new file.
    pub path: &'a NewPath<'a>,
}

/// The path of a new file below the root, by its number, the file that it replaces, and its partition.
pub(super) type NewPath<'a> = dyn Fn(usize, Option<&DataFile>, &[ArrayRef]) -> Result<String> + Send + Sync + 'a;

/// A file that was written.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    /// Path below the root. The name of the file is in it as it is; [`place_of`] gives its place in the object store.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows per row group.
    pub row_groups: Vec<u32>,
    /// The file of the snapshot that it replaces; none for a file of rows that replace nothing.
    pub replaces: Option<usize>,
    /// One value for each partition column.
    pub partition_values: Vec<ArrayRef>,
    /// The metadata that Parquet has of the file.
    pub metadata: Arc<ParquetMetaData>,
    /// The leaves of floats that have NaN, outside of lists and maps: Parquet's statistics leave NaN out.
    pub with_nan: BTreeSet<usize>,
}

impl WrittenFile {
    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|rows| u64::from(*rows)).sum()
    }
}

impl FileTarget<'_> {
    /// All columns of a file.
    pub(super) fn file_schema(&self) -> &SchemaRef {
        self.row_ids.as_ref().map_or(&self.schema, |row_ids| row_ids.schema())
    }

    /// Removes files that nobody will see. Failing is harmless: the files are only waste.
    pub(super) async fn discard(&self, files: &[WrittenFile]) {
        for file in files {
            let Ok(place) = place_of(&self.prefix, &file.path) else { continue };
            if let Err(error) = self.object_store.delete(&place).await {
                tracing::warn!(file = file.path, %error, "an unused data file could not be deleted");
            }
        }
    }

    /// Checks that files that no log names yet are still there: a vacuum of others takes them from a process that was stopped for long.
    pub(super) async fn check_there(&self, files: &[WrittenFile]) -> Result<()> {
        for file in files {
            let place = place_of(&self.prefix, &file.path)?;
            if !self.object_store.head(&place).await.is_ok_and(|meta| meta.size == file.size) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("the new data file {} was removed before it was committed; run it again", file.path),
                ));
            }
        }
        Ok(())
    }

    /// Begins to sync the bytes of a file while others are still made. A disk that has to take all of them at the end takes as long as all
    /// the rest.
    pub(super) fn begin_sync(&self, file: &WrittenFile) -> Option<JoinHandle<std::io::Result<()>>> {
        let path = self.local.as_ref()?.join(&file.path);
        Some(on_a_thread(move || {
            disk::attempt(DiskStep::Stored(&path))?;
            disk::sync(&File::open(&path)?, &path)
        }))
    }

    /// Sees to it that files survive a crash: first their bytes, whose sync was begun, then their names, up to the root's own.
    pub(super) async fn sync(
        &self,
        files: &[WrittenFile],
        begun: &mut Vec<JoinHandle<std::io::Result<()>>>,
    ) -> Result<()> {
        let mut bytes_synced = Ok(());
        for bytes in begun.drain(..) {
            let synced = bytes.await.map_err(|error| Error::task(&error))?;
            bytes_synced = bytes_synced.and(synced);
        }
        bytes_synced.map_err(unwritable)?;
        let Some(root) = self.local.clone() else { return Ok(()) };
        let paths: Vec<PathBuf> = files.iter().map(|file| root.join(&file.path)).collect();
        let sync = move || {
            let mut folders = BTreeSet::new();
            for path in &paths {
                folders.extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)));
            }
            if !paths.is_empty() {
                folders.extend(root.parent());
            }
            folders.into_iter().rev().try_for_each(sync_folder)
        };
        let synced: std::io::Result<()> = on_a_thread(sync).await.map_err(|error| Error::task(&error))?;
        synced.map_err(unwritable)
    }
}

/// The error of a row group, or a footer, that is not encoded.
pub(super) fn unwritten(error: ParquetError) -> Error {
    unwritable(error)
}

/// The error of new files that cannot be written.
pub(super) fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::io(
        "the new data files cannot be written (disk full, or no permission?); the table is as it was: make room and run it again",
    )
    .with_source(error)
}
