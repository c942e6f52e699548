//! Folding pending rows into the data files of a table: what a migration does to the table itself.
//!
//! A file with rows that newer ones replace is written anew: a newer row takes the place of the first row that it
//! replaces, the others are left out, and all keep their order. Rows that replace none, or that moved to another
//! partition, go to new files, sorted by key. [`delta`] publishes the result by one commit of the log; [`folder`]
//! leaves that to whoever writes the manifest.

mod bare;
mod conform;
pub(crate) mod delta;
pub(crate) mod folder;
mod log;
mod reader;
mod rows;
mod stats;
#[cfg(test)]
mod tests;
mod writable;
mod writer;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch};
use futures::TryStreamExt;
use lakemark_index::RowSet;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::moments::is_rebased;
use crate::rewrite::bare::bare_files;
use crate::rewrite::conform::{Match, conform_batch};
use crate::rewrite::rows::NewRows;
use crate::rewrite::writer::{FileWriter, NewFile, Target, new_properties, properties_like};
use crate::snapshot::{DataFile, Snapshot};

pub(crate) use crate::rewrite::writer::place_of;

/// Rows that are read and written at a time.
const BATCH_ROWS: usize = 8 * 1024;

/// What is folded into the data files of a snapshot. That is one without pending updates laid over it: what its files
/// have deleted are their deletion vectors and nothing else, since all of that is left out of files that are written
/// anew.
pub(crate) struct Fold<'a> {
    /// For each file of the snapshot the rows that the new rows replace or that were deleted; a file without any stays
    /// as it is.
    pub shadow: &'a [Option<Arc<RowSet>>],
    /// The new rows in the table's schema, in any order. Their keys are unique.
    pub rows: &'a [RecordBatch],
    /// The columns of the key, by the names that they show.
    pub key: &'a [String],
}

/// What folding wrote.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    /// The new files.
    pub files: Vec<NewFile>,
    /// The files of the snapshot that they replace, by number. Nothing may be left of one.
    pub replaced: Vec<usize>,
}

/// Writes the new files and sees to it that they are on the disk. Nobody sees them before they are published.
async fn fold_rows(snapshot: &Snapshot, fold: &Fold<'_>, target: &Target<'_>) -> Result<Folded> {
    if fold.shadow.len() != snapshot.files().len() {
        return Err(Error::internal("the shadow to fold is that of another snapshot"));
    }
    let rows = NewRows::new(snapshot, fold, &target.schema)?;
    let mut folding = Folding { snapshot, target, rows, folded: Folded::default() };
    match folding.run(fold).await {
        Ok(()) => Ok(folding.folded),
        Err(error) => {
            target.discard(&folding.folded.files).await;
            Err(error)
        }
    }
}

struct Folding<'a> {
    snapshot: &'a Snapshot,
    target: &'a Target<'a>,
    rows: NewRows,
    folded: Folded,
}

impl Folding<'_> {
    async fn run(&mut self, fold: &Fold<'_>) -> Result<()> {
        let files = self.snapshot.files().iter().zip(fold.shadow).enumerate();
        for (number, (file, shadow)) in files {
            if let Some(shadow) = shadow.as_ref().filter(|shadow| !shadow.is_empty()) {
                self.rewrite(number, file, shadow).await?;
            }
        }
        self.write_left().await?;
        if self.target.columns_are_in_files {
            self.write_bare().await?;
        }
        self.target.sync(&self.folded.files).await
    }

    /// Writes a file anew, if anything is left of it.
    async fn rewrite(&mut self, number: usize, file: &DataFile, shadow: &RowSet) -> Result<()> {
        let store = self.snapshot.object_store();
        let footer = Footer::read(store.as_ref(), &file.meta, &file.path).await?;
        let rows: u32 = footer.row_groups.iter().sum();
        check_rewritable(file, &footer, shadow, rows)?;
        let hidden = file.deleted.as_ref().map_or_else(|| shadow.clone(), |deleted| shadow.or(deleted));
        let partition = self.rows.partition_of(&file.partition_values)?;
        let properties = properties_like(&footer);
        let unreadable = |error| unreadable(&file.path, error);

        let mut writer = None;
        let mut start = 0;
        let is_wanted = |column: &str| self.target.schema.field_with_name(column).is_ok();
        let mut batches = reader::open(store, &file.meta, &footer, BATCH_ROWS, is_wanted).map_err(unreadable)?;
        while let Some(batch) = batches.try_next().await.map_err(unreadable)? {
            let batch = conform_batch(&batch, &self.target.schema, Match::Name)
                .map_err(|error| unfit(&file.path).with_source(error))?;
            let end = start + batch.num_rows() as u32;
            let left = self.replace(&batch, &shadow.slice(start, end), &hidden.slice(start, end), file, partition)?;
            start = end;
            if left.num_rows() > 0 {
                self.write(&mut writer, &left, Some(file), &file.partition_values, &properties).await?;
            }
        }
        if start != rows {
            return Err(Error::corrupt(format!(
                "the data file {} has other row counts than its footer says; write it again",
                file.path
            )));
        }
        self.finish(writer, Some(number)).await?;
        self.folded.replaced.push(number);
        Ok(())
    }

    /// The batch without its hidden rows, with new rows in the places of those that they replace.
    fn replace(
        &mut self,
        batch: &RecordBatch,
        shadow: &RowSet,
        hidden: &RowSet,
        file: &DataFile,
        partition: Option<u32>,
    ) -> Result<RecordBatch> {
        if hidden.is_empty() {
            return Ok(batch.clone());
        }
        let failed = |error| Error::internal("rows cannot be replaced").with_source(error);
        let shadowed: Vec<u32> = shadow.iter().collect();
        let found = self.rows.take_places(batch, &shadowed, &file.partition_values, partition)?;
        if found.is_empty() {
            let kept: BooleanArray = (0..batch.num_rows() as u32).map(|row| Some(!hidden.contains(row))).collect();
            return filter_record_batch(batch, &kept).map_err(failed);
        }
        let mut sources = vec![batch];
        let mut rows = Vec::with_capacity(batch.num_rows());
        let mut found = found.into_iter().peekable();
        for row in 0..batch.num_rows() {
            if let Some((_, new)) = found.next_if(|(place, _)| *place as usize == row) {
                let (new_batch, new_row) = self.rows.place(new)?;
                let source = sources.iter().position(|have| std::ptr::eq(*have, new_batch));
                let source = source.unwrap_or_else(|| {
                    sources.push(new_batch);
                    sources.len() - 1
                });
                rows.push((source, new_row));
            } else if !hidden.contains(row as u32) {
                rows.push((0, row));
            }
        }
        interleave_record_batch(&sources, &rows).map_err(failed)
    }

    /// Writes the new rows that found no place, partition by partition, in the order of keys.
    async fn write_left(&mut self) -> Result<()> {
        let properties = new_properties();
        for (partition, rows) in self.rows.left() {
            let values = self.rows.partition_values(partition);
            let mut writer = None;
            for chunk in rows.chunks(BATCH_ROWS) {
                let batch = self.rows.gather(chunk)?;
                self.write(&mut writer, &batch, None, &values, &properties).await?;
                if writer.as_ref().is_some_and(|writer| writer.bytes() >= self.target.file_bytes) {
                    self.finish(writer.take(), None).await?;
                }
            }
            self.finish(writer, None).await?;
        }
        Ok(())
    }

    /// Writes files without rows where otherwise columns were lost with the last rows.
    async fn write_bare(&mut self) -> Result<()> {
        for number in bare_files(self.snapshot, &self.folded)? {
            let Some(file) = self.snapshot.files().get(number) else { continue };
            let (place, values) = (self.folded.files.len(), &file.partition_values);
            let writer = FileWriter::start(self.target, place, Some(file), values, &new_properties())?;
            self.finish(Some(writer), Some(number)).await?;
        }
        Ok(())
    }

    /// Adds rows to a file, which is begun with the first ones.
    async fn write(
        &self,
        writer: &mut Option<FileWriter>,
        rows: &RecordBatch,
        replaces: Option<&DataFile>,
        partition: &[ArrayRef],
        properties: &WriterProperties,
    ) -> Result<()> {
        let writer = match writer {
            Some(writer) => writer,
            None => {
                let number = self.folded.files.len();
                writer.insert(FileWriter::start(self.target, number, replaces, partition, properties)?)
            }
        };
        writer.write(rows).await?;
        // Bytes that are in memory never wait, and other tasks want their turn.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn finish(&mut self, writer: Option<FileWriter>, replaces: Option<usize>) -> Result<()> {
        if let Some(writer) = writer {
            self.folded.files.push(writer.finish(replaces).await?);
        }
        Ok(())
    }
}

/// A file whose values would mean something else in a new file, or that is not the one that was resolved against.
fn check_rewritable(file: &DataFile, footer: &Footer, shadow: &RowSet, rows: u32) -> Result<()> {
    if shadow.universe() != rows {
        return Err(Error::internal(format!(
            "{} has {rows} rows, and its shadow is that of a file with {}",
            file.path,
            shadow.universe()
        )));
    }
    match footer.schema.fields().iter().find(|field| is_rebased(field)) {
        None => Ok(()),
        Some(field) => Err(Error::unsupported(format!(
            "the column {} of {} has dates of the calendar that old Spark wrote, which no new file can keep; \
             rewrite the table with a newer Spark first",
            field.name(),
            file.path
        ))),
    }
}

fn unreadable(name: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(error) => Error::io(format!("the data file {name} cannot be read")).with_source(error),
        error => Error::corrupt(format!("the data file {name} cannot be read; write it again")).with_source(error),
    }
}

/// The error of rows that the table's schema cannot take.
fn unfit(name: &str) -> Error {
    Error::new(
        crate::ErrorKind::SchemaMismatch,
        format!("the rows of {name} do not fit the table's columns, by their types or since a column takes no NULL"),
    )
}
