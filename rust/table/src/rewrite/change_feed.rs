//! The feed of changes of a Delta table: which rows a migration inserted, deleted and changed, in files of their own.
//!
//! ```text
//! row of a file that is deleted          delete
//! row of a file that a new one replaces  update_preimage     the new row   update_postimage
//! new row without one                    insert
//! ```
//!
//! Rows that stay are in none, also those of small files that are filled up. A migration that replaces no file writes no change file:
//! whoever follows the changes takes the rows of its new files for inserted then.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;
use lakemark_index::RowSet;
use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::files::columns::{ReadSelection, selection};
use crate::files::delta::{DeltaState, WriterFeature};
use crate::rewrite::encode::Encoder;
use crate::rewrite::file::OldFile;
use crate::rewrite::reader::BATCH_ROWS;
use crate::rewrite::row_block::NumberedRows;
use crate::rewrite::rows::RowChange;
use crate::rewrite::target::{FileTarget, WrittenFile};
use crate::rewrite::unfit;
use crate::rewrite::writer::{FileWriter, ROW_GROUP_BYTES, ROW_GROUP_ROWS, StartedFile, new_properties};
use crate::snapshot::DataFile;
use crate::values::conform::{Match, conform_batch};

/// The folder of the table that has change files.
pub(super) const CHANGES: &str = "_change_data";

/// The column that says what became of a row.
const CHANGE_TYPE: &str = "_change_type";

/// Whether a table keeps a feed of changes.
pub(super) fn is_kept(state: &DeltaState) -> bool {
    let is_known =
        matches!(state.writer_version(), 4..=6) || state.writer_features().contains(&WriterFeature::ChangeDataFeed);
    is_known && state.is_on("delta.enableChangeDataFeed")
}

/// The columns of change files of a table whose files have these columns.
pub(super) fn columns(schema: &Schema) -> SchemaRef {
    let more = Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([more]).collect::<Vec<_>>()))
}

/// The change files of a migration.
pub(super) struct ChangeFeed<'a> {
    target: &'a FileTarget<'a>,
    pub files: Vec<WrittenFile>,
    /// Files that are being synced.
    pub syncing: Vec<JoinHandle<std::io::Result<()>>>,
}

impl<'a> ChangeFeed<'a> {
    pub(super) fn new(target: &'a FileTarget<'a>) -> Self {
        Self { target, files: Vec::new(), syncing: Vec::new() }
    }

    /// Writes the rows of a file that are deleted or replaced, and the new rows in their places.
    pub(super) async fn of_file(
        &mut self,
        number: usize,
        file: &DataFile,
        old: &OldFile,
        replaced: &RowSet,
        source: &NumberedRows,
    ) -> Result<()> {
        let replaced = file.deleted.as_ref().map_or_else(|| replaced.clone(), |deleted| replaced.minus(deleted));
        if replaced.is_empty() {
            return Ok(());
        }
        let mut changes = ChangeFile::start(self.target, self.files.len(), &file.partition_values)?;
        let mut updated: Vec<u32> = old.places.iter().chain(&old.elsewhere).map(|place| place.position).collect();
        updated.sort_unstable();
        let change_of = |position: u32| match updated.binary_search(&position) {
            Ok(_) => RowChange::UpdatedFrom,
            Err(_) => RowChange::Deleted,
        };
        let positions: Vec<u32> = replaced.iter().collect();
        let unreadable = |error| old.opened.unreadable(error);
        let ReadSelection { row_groups, rows } = selection(&old.opened.footer.row_groups, &replaced);
        let is_wanted = |column: &str| source.stored.field_with_name(column).is_ok();
        let mut batches = old.opened.batches(row_groups, Some(rows), is_wanted).map_err(unreadable)?;
        let mut count = 0;
        while let Some(batch) = batches.try_next().await.map_err(unreadable)? {
            let batch = conform_batch(&batch, &source.stored, Match::Name)
                .map_err(|error| unfit(&old.opened.file.path).with_source(error))?;
            let here = positions.iter().skip(count).take(batch.num_rows());
            let here: Vec<RowChange> = here.copied().map(change_of).collect();
            count += here.len();
            changes.write(&batch, &here).await?;
        }
        if count != positions.len() {
            return Err(old.has_other_counts());
        }
        let placed: Vec<u32> = old.places.iter().map(|place| place.new_row).collect();
        changes.write_new(&placed, &vec![RowChange::UpdatedTo; placed.len()], source).await?;
        self.finish(changes, Some(number)).await
    }

    /// Writes new rows of a partition that take no place of another.
    pub(super) async fn of_new(
        &mut self,
        partition_values: &[ArrayRef],
        rows: &[(u32, RowChange)],
        source: &NumberedRows,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut changes = ChangeFile::start(self.target, self.files.len(), partition_values)?;
        let (rows, of_rows): (Vec<u32>, Vec<RowChange>) = rows.iter().copied().unzip();
        changes.write_new(&rows, &of_rows, source).await?;
        self.finish(changes, None).await
    }

    async fn finish(&mut self, changes: ChangeFile, of_file: Option<usize>) -> Result<()> {
        let file = changes.finish(of_file).await?;
        self.syncing.extend(self.target.begin_sync(&file));
        self.files.push(file);
        Ok(())
    }
}

/// A change file that is being written.
struct ChangeFile {
    writer: FileWriter,
    factory: Arc<ArrowRowGroupWriterFactory>,
    schema: SchemaRef,
    /// The row group that is being made.
    group: Option<ChangeGroup>,
}

/// A row group of a change file that is being made.
struct ChangeGroup {
    encoder: Encoder,
    rows: usize,
    /// What the rows took in memory.
    bytes: u64,
}

impl ChangeFile {
    fn start(target: &FileTarget<'_>, number: usize, partition_values: &[ArrayRef]) -> Result<Self> {
        let StartedFile { writer, factory } =
            FileWriter::start(target, number, None, partition_values, &new_properties())?;
        Ok(Self { writer, factory, schema: Arc::clone(&target.schema), group: None })
    }

    /// Writes new rows with these numbers.
    async fn write_new(&mut self, rows: &[u32], changes: &[RowChange], source: &NumberedRows) -> Result<()> {
        for (rows, changes) in rows.chunks(BATCH_ROWS).zip(changes.chunks(BATCH_ROWS)) {
            self.write(&source.gather(rows).await?, changes).await?;
        }
        Ok(())
    }

    /// Writes rows with what became of each.
    async fn write(&mut self, batch: &RecordBatch, changes: &[RowChange]) -> Result<()> {
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(changes.iter().map(|change| Some(change.name())).collect::<StringArray>()));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| Error::internal("rows and their changes do not go together").with_source(error))?;
        let mut group = match self.group.take() {
            Some(group) => group,
            None => ChangeGroup { encoder: Encoder::new(&self.factory, &self.schema)?, rows: 0, bytes: 0 },
        };
        group.encoder.write(&batch)?;
        group.rows += batch.num_rows();
        group.bytes += batch.get_array_memory_size() as u64;
        let is_full = group.rows >= ROW_GROUP_ROWS || group.bytes >= ROW_GROUP_BYTES;
        self.group = Some(group);
        if is_full { self.end_group().await } else { Ok(()) }
    }

    async fn end_group(&mut self) -> Result<()> {
        match self.group.take() {
            Some(group) => self.writer.append(group.encoder.finish()?).await,
            None => Ok(()),
        }
    }

    async fn finish(mut self, of_file: Option<usize>) -> Result<WrittenFile> {
        self.end_group().await?;
        self.writer.finish(of_file).await
    }
}
