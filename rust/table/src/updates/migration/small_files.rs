//! The small files that a migration may fill up: files of new rows that earlier ones wrote.

use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_index::RowSet;
use tokio::sync::OnceCell;

use crate::error::{Error, Result};
use crate::rewrite::refill::{SmallFile, is_small};
use crate::rewrite::{RowBlock, check_calendar};
use crate::snapshot::{DataFile, Snapshot};
use crate::updates::lookup::fetch::{OpenFile, RowFile};

/// The small files of a snapshot without rows that are `deleted`: files with such rows are written anew in any case.
pub(super) fn small_files(base: &Snapshot, deleted: &[Option<Arc<RowSet>>]) -> Vec<SmallFile> {
    let files = base.files().iter().zip(deleted).enumerate();
    let small = files.filter(|(_, (file, deleted))| deleted.is_none() && is_small(file));
    small
        .filter_map(|(number, (file, _))| Some(SmallFile { number, rows: Arc::new(FileRows::of(base, file)?) }))
        .collect()
}

/// Rows of a data file that stay there until a new file needs them.
struct FileRows {
    file: RowFile,
    opened: OnceCell<OpenFile>,
    rows: RowSet,
    /// The places of the rows in the file, once somebody has asked for some of them.
    places: OnceLock<Vec<u32>>,
}

impl FileRows {
    /// The rows of a file that no deletion vector deletes; none where nobody knows yet how many there are.
    fn of(base: &Snapshot, file: &DataFile) -> Option<Self> {
        let count = u32::try_from(file.row_count()?).ok()?;
        let rows = RowSet::full(count);
        let rows = file.deleted.as_ref().map_or_else(|| rows.clone(), |deleted| rows.minus(deleted));
        Some(Self { file: RowFile::of(base, file), opened: OnceCell::new(), rows, places: OnceLock::new() })
    }

    /// Reads the footer. Refuses a file whose values would mean something else in a new file, or that is not the one of the snapshot.
    async fn open(&self) -> Result<OpenFile> {
        let opened = self.file.open().await?;
        if opened.rows() != self.rows.universe() {
            return Err(self.has_other_counts());
        }
        check_calendar(&self.file.name, &opened.schema_with_calendar())?;
        Ok(opened)
    }

    fn has_other_counts(&self) -> Error {
        Error::corrupt(format!(
            "the data file {} has other row counts than its footer says; write it again",
            self.file.name
        ))
    }

    /// The places in the file of the rows with these numbers.
    fn places_of(&self, rows: &[u32]) -> Option<RowSet> {
        let places = self.places.get_or_init(|| self.rows.iter().collect());
        let places: Option<Vec<u32>> = rows.iter().map(|row| places.get(*row as usize).copied()).collect();
        Some(RowSet::from_rows(places?, self.rows.universe()))
    }
}

impl RowBlock for FileRows {
    fn row_count(&self) -> usize {
        self.rows.len() as usize
    }

    fn read<'a>(&'a self, columns: &'a SchemaRef, rows: Option<&'a [u32]>) -> BoxFuture<'a, Result<RecordBatch>> {
        async move {
            let opened = self.opened.get_or_try_init(|| self.open()).await?;
            let places =
                rows.map(|rows| self.places_of(rows).ok_or_else(|| Error::internal("a row of a file out of range")));
            let places = places.transpose()?;
            let places = places.as_ref().unwrap_or(&self.rows);
            let read = opened.collect(columns, Some(places)).await?;
            match read.num_rows() == places.len() as usize {
                true => Ok(read),
                false => Err(self.has_other_counts()),
            }
        }
        .boxed()
    }
}
