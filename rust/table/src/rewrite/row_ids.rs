//! What rows of a Delta table are called that tracks them, and keep when they are written elsewhere.
//!
//! ```text
//! row of an old file                  its id                                   its version
//!   stays                             the one that it had                      the one that it had
//!   another takes its place           goes to the one that takes it            none: the commit's own
//! row of a new file                   the one that the row of its key had      none, unless it comes from a small file
//! ```
//!
//! A row without an id gets one by its place in the new file. So does a row without a version.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::TryStreamExt;
use lakemark_index::RowSet;

use crate::error::{Error, Result};
use crate::files::columns::{ReadSelection, selection};
use crate::files::delta::{DeltaState, RowIdColumns, RowOrigin};
use crate::rewrite::reader::OpenedFile;
use crate::snapshot::{DataFile, Snapshot};

/// How new files keep what rows are called.
pub(super) struct RowIds {
    columns: RowIdColumns,
    /// The columns of new files, those that keep what rows are called among them.
    schema: SchemaRef,
    /// What rows of the table's files are called, by path.
    origins: HashMap<String, RowOrigin>,
}

/// What a row is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowId {
    /// None for a row that was nowhere before.
    pub id: Option<i64>,
    /// None for a row with new values.
    pub version: Option<i64>,
}

/// What new rows are called that replace no row in its place.
pub(super) struct KeptRowIds {
    pub row_ids: Arc<RowIds>,
    /// Those that were elsewhere before, by their numbers.
    pub of_rows: HashMap<u32, RowId>,
}

impl RowIds {
    /// Of a table whose log names these columns for that. New files have the columns of `schema` besides.
    pub(super) fn new(columns: RowIdColumns, state: &DeltaState, schema: &Schema) -> Self {
        let more = [&columns.row_id, &columns.commit_version];
        let more = more.map(|name| Arc::new(Field::new(name, DataType::Int64, true)));
        let schema = Arc::new(Schema::new(schema.fields().iter().cloned().chain(more).collect::<Vec<_>>()));
        let origin = |file: &Arc<crate::files::delta::DeltaFile>| Some((file.path.clone(), **file.origin.as_ref()?));
        let origins = state.files.iter().filter_map(origin).collect();
        Self { columns, schema, origins }
    }

    /// The columns of new files.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether a column of a file keeps what its rows are called.
    pub(super) fn has_column(&self, name: &str) -> bool {
        name == self.columns.row_id || name == self.columns.commit_version
    }

    /// What the rows of a batch of an old file are called, which are those from `start` on or those at these positions.
    ///
    /// # Errors
    /// The log does not say what the rows of the file are called.
    pub(super) fn of_batch(
        &self,
        path: &str,
        batch: &RecordBatch,
        positions: impl Iterator<Item = u32>,
    ) -> Result<Vec<RowId>> {
        let origin = self.origins.get(path).ok_or_else(|| {
            Error::corrupt(format!(
                "the Delta table tracks rows, and its log has no baseRowId of {path}; restore the log, or turn row tracking off"
            ))
        })?;
        let (ids, versions) =
            (self.kept(batch, &self.columns.row_id)?, self.kept(batch, &self.columns.commit_version)?);
        let of = |values: &Option<Int64Array>, row: usize| {
            values.as_ref().filter(|values| values.is_valid(row)).map(|values| values.value(row))
        };
        let row_ids = positions.take(batch.num_rows()).enumerate().map(|(row, position)| {
            let own = origin.base_row_id.saturating_add(i64::from(position));
            let id = Some(of(&ids, row).unwrap_or(own));
            RowId { id, version: Some(of(&versions, row).unwrap_or(origin.commit_version)) }
        });
        Ok(row_ids.collect())
    }

    /// One of the columns of a batch that keep what rows are called; none if its file has none.
    fn kept(&self, batch: &RecordBatch, name: &str) -> Result<Option<Int64Array>> {
        let Some(column) = batch.column_by_name(name) else { return Ok(None) };
        let numbers = cast(column, &DataType::Int64)
            .map_err(|error| Error::corrupt(format!("the column {name} has no ids of rows")).with_source(error))?;
        Ok(numbers.as_primitive_opt::<Int64Type>().cloned())
    }

    /// What some rows of a file are called, in their order.
    pub(super) async fn of_rows(&self, opened: &OpenedFile, rows: &RowSet) -> Result<Vec<RowId>> {
        let unreadable = |error| opened.unreadable(error);
        let ReadSelection { row_groups, rows: chosen } = selection(&opened.footer.row_groups, rows);
        let positions: Vec<u32> = rows.iter().collect();
        let mut row_ids = Vec::with_capacity(positions.len());
        if opened.has_column(|name| self.has_column(name)) {
            let batches = opened.batches(row_groups, Some(chosen), |name| self.has_column(name));
            let mut batches = batches.map_err(unreadable)?;
            while let Some(batch) = batches.try_next().await.map_err(unreadable)? {
                let here = positions.iter().skip(row_ids.len()).copied();
                let of_batch = self.of_batch(&opened.file.path, &batch, here)?;
                row_ids.extend(of_batch);
            }
        } else {
            row_ids = self.of_places(&opened.file.path, positions.iter().copied())?;
        }
        match row_ids.len() == positions.len() {
            true => Ok(row_ids),
            false => Err(Error::corrupt(format!(
                "the data file {} has other row counts than its footer says",
                opened.file.path
            ))),
        }
    }

    /// What rows are called of a file that keeps nothing of them.
    fn of_places(&self, path: &str, positions: impl Iterator<Item = u32>) -> Result<Vec<RowId>> {
        let positions: Vec<u32> = positions.collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(positions.len()));
        let bare = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
        let bare = bare.map_err(|error| Error::internal("rows without columns cannot be").with_source(error))?;
        self.of_batch(path, &bare, positions.into_iter())
    }

    /// What the rows of a small file are called that no vector deletes, in their order.
    pub(super) async fn of_small_file(&self, snapshot: &Snapshot, file: &DataFile) -> Result<Vec<RowId>> {
        let opened = OpenedFile::open(snapshot.object_store(), file).await?;
        let rows = RowSet::full(opened.footer.row_groups.iter().sum());
        let rows = file.deleted.as_ref().map_or_else(|| rows.clone(), |deleted| rows.minus(deleted));
        self.of_rows(&opened, &rows).await
    }

    /// The rows of a batch with what they are called.
    pub(super) fn with_ids(&self, batch: &RecordBatch, row_ids: &[RowId]) -> Result<RecordBatch> {
        let ids: Int64Array = row_ids.iter().map(|row| row.id).collect();
        let versions: Int64Array = row_ids.iter().map(|row| row.version).collect();
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(ids));
        columns.push(Arc::new(versions));
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| Error::internal("rows and their ids do not go together").with_source(error))
    }
}

impl KeptRowIds {
    /// New rows with what they are called.
    pub(super) fn with_ids(&self, batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
        let row_ids = rows.iter().map(|row| self.of_rows.get(row).copied().unwrap_or_default());
        self.row_ids.with_ids(batch, &row_ids.collect::<Vec<_>>())
    }
}

/// What the rows of a batch are called after new rows took places in it: those that are left, without `deleted` ones, and those in the
/// places that were `taken`. Both are numbers of rows in the batch, ascending.
pub(super) fn after_taking(of_batch: &[RowId], deleted: &RowSet, taken: impl Iterator<Item = u32>) -> Vec<RowId> {
    let mut taken = taken.peekable();
    let mut left = Vec::with_capacity(of_batch.len());
    for (row, row_id) in (0u32..).zip(of_batch) {
        if taken.next_if_eq(&row).is_some() {
            left.push(RowId { version: None, ..*row_id });
        } else if !deleted.contains(row) {
            left.push(*row_id);
        }
    }
    left
}
