//! Reading single columns of a row group, with the fingerprint of their bytes.

use std::ops::Range;
use std::sync::Arc;

use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use bytes::{Buf, Bytes};
use lakemark_index::bitmap::{Chunk, ChunkBuilder};
use lakemark_index::key_type_of;
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::{Error, Result};
use crate::footer::{Footer, fingerprint, read_range};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 16 * 1024;

/// A column of a row group, sorted by value.
#[derive(Debug)]
pub(crate) struct ColumnChunk {
    pub chunk: Chunk,
    /// Fingerprint of the column chunk's bytes; 0 where the file lacks the column.
    pub hash: u64,
}

/// The leaf column of a flat column; none if the file lacks it.
fn leaf_of(footer: &Footer, column: &str) -> Option<usize> {
    let columns = footer.metadata.file_metadata().schema_descr().columns();
    columns.iter().position(|leaf| matches!(leaf.path().parts(), [name] if name == column))
}

fn chunk_range(footer: &Footer, row_group: usize, leaf: usize, name: &str) -> Result<Range<u64>> {
    let chunk = footer.metadata.row_groups().get(row_group).and_then(|group| group.columns().get(leaf));
    let Some(chunk) = chunk else { return Err(Error::corrupt(format!("the footer of {name} lacks a column chunk"))) };
    let (start, length) = chunk.byte_range();
    Ok(start..start.saturating_add(length))
}

/// Reads columns of one row group, given as fields of the table, and sorts their rows.
pub(crate) async fn read_columns(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    name: &str,
    footer: &Arc<Footer>,
    row_group: usize,
    fields: &[FieldRef],
) -> Result<Vec<ColumnChunk>> {
    let mut parts = Vec::with_capacity(fields.len());
    for field in fields {
        let Some(leaf) = leaf_of(footer, field.name()) else {
            parts.push(None);
            continue;
        };
        let range = chunk_range(footer, row_group, leaf, name)?;
        if range.end > meta.size {
            return Err(Error::corrupt(format!(
                "the footer of {name} points behind the end of the file; write it again"
            )));
        }
        let bytes = read_range(store, meta, range.clone(), name).await?;
        parts.push(Some((leaf, range.start, bytes)));
    }
    let (footer, fields, name, size) = (Arc::clone(footer), fields.to_vec(), name.to_owned(), meta.size);
    let decode = move || {
        let columns = fields.iter().zip(parts);
        columns.map(|(field, part)| decode_column(&footer, row_group, field, part, &name, size)).collect()
    };
    tokio::task::spawn_blocking(decode).await.map_err(|error| Error::task(&error))?
}

/// Fingerprints of the column's bytes in every row group, as one number.
pub(crate) fn column_hash(parts: impl IntoIterator<Item = u64>) -> u64 {
    let bytes: Vec<u8> = parts.into_iter().flat_map(u64::to_le_bytes).collect();
    fingerprint(&bytes)
}

/// [`column_hash`] of a column, reading its bytes without decoding them.
pub(crate) async fn hash_column(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    name: &str,
    footer: &Footer,
    column: &str,
) -> Result<u64> {
    let mut parts = Vec::with_capacity(footer.row_groups.len());
    for row_group in 0..footer.row_groups.len() {
        let Some(leaf) = leaf_of(footer, column) else {
            parts.push(0);
            continue;
        };
        let range = chunk_range(footer, row_group, leaf, name)?;
        if range.end > meta.size {
            return Err(Error::corrupt(format!(
                "the footer of {name} points behind the end of the file; write it again"
            )));
        }
        parts.push(fingerprint(&read_range(store, meta, range, name).await?));
    }
    Ok(column_hash(parts))
}

fn decode_column(
    footer: &Footer,
    row_group: usize,
    field: &FieldRef,
    part: Option<(usize, u64, Bytes)>,
    name: &str,
    size: u64,
) -> Result<ColumnChunk> {
    let Some(key_type) = key_type_of(field.data_type()) else {
        return Err(Error::unsupported(format!("the column {} has a type that no index serves", field.name())));
    };
    let rows = footer.row_groups.get(row_group).copied().unwrap_or_default();
    let mut builder = ChunkBuilder::new(key_type);
    let Some((leaf, offset, bytes)) = part else {
        builder.push_nulls(rows);
        return Ok(ColumnChunk { chunk: builder.finish(), hash: 0 });
    };
    let hash = fingerprint(&bytes);
    let damaged = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::corrupt(format!(
            "the column {} of the data file {name} cannot be read; write the file again",
            field.name()
        ))
        .with_source(error)
    };
    let options = ArrowReaderOptions::new();
    let metadata =
        ArrowReaderMetadata::try_new(Arc::clone(&footer.metadata), options).map_err(|error| damaged(error.into()))?;
    let mask = ProjectionMask::leaves(footer.metadata.file_metadata().schema_descr(), [leaf]);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(Part { offset, bytes, size }, metadata)
        .with_row_groups(vec![row_group])
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| damaged(error.into()))?;
    for batch in reader {
        let batch = batch.map_err(|error| damaged(error.into()))?;
        let Some(array) = batch.columns().first() else { continue };
        let pushed = if key_type_of(array.data_type()) == Some(key_type) {
            builder.push(array.as_ref())
        } else {
            // As the engine does when it reads a file whose type is not the table's.
            cast_to(array, field.data_type()).and_then(|array| builder.push(array.as_ref()))
        };
        pushed.map_err(|error| damaged(error.into()))?;
    }
    let chunk = builder.finish();
    if chunk.row_count() != rows {
        return Err(Error::corrupt(format!(
            "the data file {name} has other row counts than its footer says; write it again"
        )));
    }
    Ok(ColumnChunk { chunk, hash })
}

fn cast_to(
    array: &arrow::array::ArrayRef,
    data_type: &DataType,
) -> Result<arrow::array::ArrayRef, arrow::error::ArrowError> {
    cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() })
}

/// Some bytes of a file, at their place.
struct Part {
    offset: u64,
    bytes: Bytes,
    size: u64,
}

impl Part {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let outside = || ParquetError::General(format!("read at {start}, outside of the column chunk"));
        let at = start.checked_sub(self.offset).and_then(|at| usize::try_from(at).ok()).ok_or_else(outside)?;
        if at > self.bytes.len() {
            return Err(outside());
        }
        Ok(self.bytes.slice(at..))
    }
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Part {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!("{length} bytes wanted at {start}, {} are there", bytes.len())));
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}
