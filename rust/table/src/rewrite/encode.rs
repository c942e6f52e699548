//! Row groups as they are encoded in memory, each on a core of its own, before a file gets them in their order.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch};
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;

use crate::error::{Error, Result};
use crate::rewrite::copy::CopiedColumn;
use crate::rewrite::file::{OldFile, RowGroupSpan};
use crate::rewrite::leaves::leaves_with_nan;
use crate::rewrite::reader::BATCH_ROWS;
use crate::rewrite::row_block::NumberedRows;
use crate::rewrite::row_ids::{KeptRowIds, after_taking};
use crate::rewrite::rows::TakenPlace;
use crate::rewrite::target::unwritten;
use crate::rewrite::unfit;
use crate::values::conform::{Match, conform_batch};

/// A row group without a file.
pub(super) struct RowGroup {
    pub columns: RowGroupColumns,
    /// The leaves of floats that have NaN.
    pub with_nan: BTreeSet<usize>,
}

pub(super) enum RowGroupColumns {
    Encoded(Vec<ArrowColumnChunk>),
    Copied(Vec<CopiedColumn>),
}

/// Makes a row group of a piece of an old file.
pub(super) async fn rewrite(
    old: &OldFile,
    piece: &RowGroupSpan,
    source: &NumberedRows,
    factory: &ArrowRowGroupWriterFactory,
) -> Result<RowGroup> {
    if let Some(copying) = old.copying.as_ref().filter(|_| piece.is_whole)
        && let Some(columns) = copying.read(&old.opened, piece.row_groups.start).await?
    {
        return Ok(RowGroup { columns: RowGroupColumns::Copied(columns), with_nan: BTreeSet::new() });
    }
    let schema = &source.stored;
    let mut places = old.positions_in(&piece.rows);
    let numbers: Vec<u32> = places.iter().map(|place| place.new_row).collect();
    let new = source.gather(&numbers).await?;
    let mut taken = 0;
    let row_ids = old.row_ids.as_deref();
    let mut encoder = Encoder::new(factory, row_ids.map_or(schema, |row_ids| row_ids.schema()))?;
    let unreadable = |error| old.opened.unreadable(error);
    let keeps = |column: &str| row_ids.is_some_and(|row_ids| row_ids.has_column(column));
    let is_wanted = |column: &str| schema.field_with_name(column).is_ok() || keeps(column);
    let row_groups = piece.row_groups.clone().collect();
    let mut batches = old.opened.batches(row_groups, None, is_wanted).map_err(unreadable)?;
    let mut start = piece.rows.start;
    while let Some(read) = batches.try_next().await.map_err(unreadable)? {
        let batch = conform_batch(&read, schema, Match::Name)
            .map_err(|error| unfit(&old.opened.file.path).with_source(error))?;
        let rows = start..start + batch.num_rows() as u32;
        start = rows.end;
        let (here, later) = places.split_at(places.partition_point(|place| place.position < rows.end));
        places = later;
        let left = replaced(&batch, &rows, old, here, &new, taken)?;
        encoder.write(&with_row_ids(left, &read, &rows, old, here)?)?;
        taken += here.len();
    }
    if start != piece.rows.end {
        return Err(old.has_other_counts());
    }
    encoder.finish()
}

/// What is left of the rows of a batch that was `read`, with what they are called where the table tracks them.
fn with_row_ids(
    left: RecordBatch,
    read: &RecordBatch,
    rows: &Range<u32>,
    old: &OldFile,
    places: &[TakenPlace],
) -> Result<RecordBatch> {
    let Some(row_ids) = &old.row_ids else { return Ok(left) };
    let of_batch = row_ids.of_batch(&old.opened.file.path, read, rows.clone())?;
    let deleted = old.deleted.slice(rows.start, rows.end);
    let taken = places.iter().map(|place| place.position - rows.start);
    row_ids.with_ids(&left, &after_taking(&of_batch, &deleted, taken))
}

/// A batch without its deleted rows, with new rows in the places that they take: those of `new` from the row `next` on.
fn replaced(
    batch: &RecordBatch,
    rows: &Range<u32>,
    old: &OldFile,
    places: &[TakenPlace],
    new: &RecordBatch,
    mut next: usize,
) -> Result<RecordBatch> {
    if old.deleted.count_in(rows.start, rows.end) == 0 {
        return Ok(batch.clone());
    }
    let hidden = old.deleted.slice(rows.start, rows.end);
    let failed = |error| Error::internal("rows cannot be replaced").with_source(error);
    if places.is_empty() {
        let kept: BooleanArray = (0..batch.num_rows() as u32).map(|row| Some(!hidden.contains(row))).collect();
        return filter_record_batch(batch, &kept).map_err(failed);
    }
    let mut chosen = Vec::with_capacity(batch.num_rows());
    let mut hidden = hidden.iter().peekable();
    let mut places = places.iter().map(|place| place.position - rows.start).peekable();
    for row in 0..batch.num_rows() as u32 {
        let is_hidden = hidden.next_if_eq(&row).is_some();
        if places.next_if_eq(&row).is_some() {
            chosen.push((1, next));
            next += 1;
        } else if !is_hidden {
            chosen.push((0, row as usize));
        }
    }
    interleave_record_batch(&[batch, new], &chosen).map_err(failed)
}

/// Makes a row group of new rows that replace no row in its place.
pub(super) async fn encode_new(
    rows: &[u32],
    source: &NumberedRows,
    factory: &ArrowRowGroupWriterFactory,
    kept: Option<&KeptRowIds>,
) -> Result<RowGroup> {
    let mut encoder = Encoder::new(factory, kept.map_or(&source.stored, |kept| kept.row_ids.schema()))?;
    for chunk in rows.chunks(BATCH_ROWS) {
        let batch = source.gather(chunk).await?;
        match kept {
            Some(kept) => encoder.write(&kept.with_ids(&batch, chunk)?)?,
            None => encoder.write(&batch)?,
        }
    }
    encoder.finish()
}

/// A row group that is being encoded.
pub(super) struct Encoder {
    schema: SchemaRef,
    columns: Vec<ArrowColumnWriter>,
    with_nan: BTreeSet<usize>,
}

impl Encoder {
    /// A row group of a file with these columns.
    pub(super) fn new(factory: &ArrowRowGroupWriterFactory, schema: &SchemaRef) -> Result<Self> {
        // The number of a row group matters to encrypted files only.
        let columns = factory.create_column_writers(0).map_err(unwritten)?;
        Ok(Self { schema: Arc::clone(schema), columns, with_nan: BTreeSet::new() })
    }

    /// Adds rows.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.encode(batch).map_err(unwritten)?;
        self.with_nan.extend(leaves_with_nan(batch.columns()));
        Ok(())
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        let mut writers = self.columns.iter_mut();
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, column)? {
                let writer = writers.next().ok_or_else(|| ParquetError::General("too many columns".to_owned()))?;
                writer.write(&leaf)?;
            }
        }
        Ok(())
    }

    /// The row group with all rows that were added.
    pub(super) fn finish(self) -> Result<RowGroup> {
        let chunks = self.columns.into_iter().map(ArrowColumnWriter::close).collect::<Result<Vec<_>, _>>();
        let columns = RowGroupColumns::Encoded(chunks.map_err(unwritten)?);
        Ok(RowGroup { columns, with_nan: self.with_nan })
    }
}
