//! New rows, wherever they wait until they are written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, interleave_record_batch, take_record_batch};
use arrow::datatypes::{Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::unfit;
use crate::error::{Error, Result};
use crate::values::conform::{Match, conform_batch};

/// New rows that lie together.
pub(crate) trait RowBlock: Send + Sync {
    /// The number of rows.
    fn row_count(&self) -> usize;

    /// Columns, by the names that the table shows, of the rows with these ascending numbers, or of all.
    fn read<'a>(&'a self, columns: &'a SchemaRef, rows: Option<&'a [u32]>) -> BoxFuture<'a, Result<RecordBatch>>;
}

impl RowBlock for RecordBatch {
    fn row_count(&self) -> usize {
        self.num_rows()
    }

    fn read<'a>(&'a self, columns: &'a SchemaRef, rows: Option<&'a [u32]>) -> BoxFuture<'a, Result<RecordBatch>> {
        let read = move || {
            let places = self.schema_ref().fields().iter().enumerate();
            let wanted = places.filter(|(_, field)| columns.field_with_name(field.name()).is_ok());
            let wanted: Vec<usize> = wanted.map(|(place, _)| place).collect();
            let batch = self.project(&wanted).map_err(incomparable)?;
            match rows {
                None => Ok(batch),
                Some(rows) => take_record_batch(&batch, &UInt32Array::from(rows.to_vec())).map_err(incomparable),
            }
        };
        async move { read() }.boxed()
    }
}

/// All new rows, numbered through their parts, as files will have them.
pub(super) struct NumberedRows {
    parts: Vec<Arc<dyn RowBlock>>,
    /// The number of the first row of each part.
    starts: Vec<u32>,
    /// The columns of files as the table shows them.
    shown: SchemaRef,
    /// The same columns as they are stored.
    pub(super) stored: SchemaRef,
}

/// Where a row is.
struct PlaceInPart {
    part: usize,
    /// The row's number in the part.
    row: u32,
}

impl NumberedRows {
    pub(super) fn new(parts: &[Arc<dyn RowBlock>], shown: &Fields, stored: &SchemaRef) -> Result<Self> {
        let mut starts = Vec::with_capacity(parts.len());
        let mut count = 0usize;
        for part in parts {
            starts.push(u32::try_from(count).map_err(|_| too_many())?);
            count += part.row_count();
        }
        u32::try_from(count).map_err(|_| too_many())?;
        let shown = Arc::new(Schema::new(shown.clone()));
        Ok(Self { parts: parts.to_vec(), starts, shown, stored: Arc::clone(stored) })
    }

    /// The same rows with those of one more part behind them.
    pub(super) fn with(&self, part: Arc<dyn RowBlock>) -> Result<Self> {
        let parts: Vec<_> = self.parts.iter().cloned().chain([part]).collect();
        Self::new(&parts, self.shown.fields(), &self.stored)
    }

    pub(super) fn parts(&self) -> &[Arc<dyn RowBlock>] {
        &self.parts
    }

    /// Reads the rows with these numbers, in this order.
    pub(super) async fn gather(&self, rows: &[u32]) -> Result<RecordBatch> {
        if self.stored.fields().is_empty() {
            return Err(Error::unsupported("a table of partition columns only has no files to compact rows into"));
        }
        let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); self.parts.len()];
        for row in rows {
            let PlaceInPart { part, row } = self.place(*row);
            wanted.get_mut(part).ok_or_else(|| Error::internal("a row out of range"))?.push(row);
        }
        // The batch that has the rows of a part, by its number.
        let (mut batches, mut batch_of) = (Vec::new(), vec![0; self.parts.len()]);
        for ((part, rows), place) in self.parts.iter().zip(&mut wanted).zip(&mut batch_of) {
            rows.sort_unstable();
            if !rows.is_empty() {
                *place = batches.len();
                let read = part.read(&self.shown, Some(rows)).await?;
                batches.push(conformed(&read, self.shown.fields(), &self.stored)?);
            }
        }
        let places = rows.iter().map(|row| {
            let PlaceInPart { part, row } = self.place(*row);
            let at = wanted.get(part).and_then(|rows| rows.binary_search(&row).ok());
            Some((*batch_of.get(part)?, at?))
        });
        let places: Vec<(usize, usize)> =
            places.collect::<Option<_>>().ok_or_else(|| Error::internal("a row out of range"))?;
        if batches.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.stored)));
        }
        interleave_record_batch(&batches.iter().collect::<Vec<_>>(), &places).map_err(incomparable)
    }

    /// Where the row of this number is.
    fn place(&self, row: u32) -> PlaceInPart {
        let part = self.starts.partition_point(|start| *start <= row).saturating_sub(1);
        PlaceInPart { part, row: row - self.starts.get(part).copied().unwrap_or_default() }
    }
}

fn too_many() -> Error {
    Error::unsupported("more than 4,294,967,295 rows cannot be compacted at once; compact a part of them")
}

/// Columns that the table shows as they are stored.
pub(super) fn conformed(batch: &RecordBatch, shown: &Fields, stored: &SchemaRef) -> Result<RecordBatch> {
    let columns = columns_of(batch, shown.iter().map(AsRef::<Field>::as_ref))?;
    if columns.is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        return RecordBatch::try_new_with_options(Arc::clone(stored), columns, &options).map_err(incomparable);
    }
    nullable(&Schema::new(shown.clone()), columns, batch.num_rows())
        .and_then(|batch| conform_batch(&batch, stored, Match::Place))
        .map_err(|error| unfit("the updates").with_source(error))
}

/// The columns of these fields, by name and in their types where those are flat.
pub(super) fn columns_of<'a>(batch: &RecordBatch, fields: impl Iterator<Item = &'a Field>) -> Result<Vec<ArrayRef>> {
    let columns = fields.map(|field| {
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(Error::internal(format!("the rows to compact lack the column {}", field.name())));
        };
        if field.data_type().is_nested() || column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        cast(column, field.data_type()).map_err(incomparable)
    });
    columns.collect()
}

/// The columns under the names of `shown`, whatever types they have inside. Whether a column takes NULL is checked later.
fn nullable(shown: &Schema, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let fields = shown.fields().iter().zip(&columns);
    let fields: Vec<Field> =
        fields.map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// The error of new rows whose columns are not as the table has them.
pub(super) fn incomparable(error: ArrowError) -> Error {
    Error::internal("the rows to compact cannot be compared by key and partition").with_source(error)
}
