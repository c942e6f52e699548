//! Row groups that get into a new file as they are: their bytes, statistics, page indexes and Bloom filters.

use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetOffsetIndex, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::Result;
use crate::files::amended_reader::AmendedReader;
use crate::rewrite::leaves::has_floats;
use crate::rewrite::reader::OpenedFile;
use crate::rewrite::target::FileTarget;
use crate::storage::local::of_listed;

/// The metadata of a file whose row groups can be copied.
pub(super) struct Copying {
    metadata: Arc<ParquetMetaData>,
}

/// A column of a row group, encoded, with its statistics and indexes.
pub(super) struct CopiedColumn {
    pub bytes: CopiedBytes,
    pub close: ColumnCloseResult,
}

impl Copying {
    /// None if the file's columns are not exactly those that new files have, or new files keep what their rows are called.
    pub(super) async fn of(old: &OpenedFile, target: &FileTarget<'_>) -> Result<Option<Self>> {
        if target.row_ids.is_some() {
            // Rows get to know what they are called.
            return Ok(None);
        }
        let have = old.footer.metadata.file_metadata().schema_descr();
        let Ok(wanted) = ArrowSchemaConverter::new().convert(&target.schema) else { return Ok(None) };
        // What a log says of floats depends on whether there is a NaN, which bytes do not show.
        let is_open = target.tracks_nan && target.schema.fields().iter().any(|field| has_floats(field.data_type()));
        if is_open || have.columns() != wanted.columns() {
            return Ok(None);
        }
        let mut object = reader_of(old);
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = object.get_metadata(Some(&options)).await.map_err(|error| old.unreadable(error))?;
        Ok(Some(Self { metadata }))
    }

    /// The columns of a row group; none if it lies in the file in another way than it would in a new one.
    pub(super) async fn read(&self, old: &OpenedFile, row_group: usize) -> Result<Option<Vec<CopiedColumn>>> {
        let Some(group) = self.metadata.row_groups().get(row_group) else { return Ok(None) };
        if group.columns().iter().any(|chunk| start_of(chunk) != Some(chunk.byte_range().0)) {
            return Ok(None);
        }
        // Parquet's writer gives up a file of which some row groups have the places of their pages and others do not; new ones have them.
        let has_pages = |all: &ParquetOffsetIndex| all.get(row_group).is_some_and(|of| of.len() == group.num_columns());
        if !self.metadata.offset_index().is_some_and(has_pages) {
            return Ok(None);
        }
        let ranges: Vec<_> = group.columns().iter().map(|chunk| chunk.byte_range()).collect();
        let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start.saturating_add(length)).collect();
        let read = old.store.get_ranges(&old.file.meta.location, &ranges);
        let parts = of_listed(old.file.meta.e_tag.as_deref(), read)
            .await
            .map_err(|error| old.unreadable(ParquetError::External(Box::new(error))))?;
        let mut filters = self.filters(old, row_group, group).await?.into_iter();
        let mut columns = Vec::with_capacity(parts.len());
        for (place, ((chunk, range), bytes)) in group.columns().iter().zip(&ranges).zip(parts).enumerate() {
            let close = ColumnCloseResult {
                bytes_written: bytes.len() as u64,
                rows_written: u64::try_from(group.num_rows()).unwrap_or_default(),
                metadata: chunk.clone(),
                bloom_filter: filters.next().flatten(),
                column_index: self.column_index(row_group, place),
                offset_index: self.metadata.offset_index().and_then(|all| all.get(row_group)?.get(place).cloned()),
            };
            columns.push(CopiedColumn { bytes: CopiedBytes { start: range.start, bytes }, close });
        }
        Ok(Some(columns))
    }

    fn column_index(&self, row_group: usize, column: usize) -> Option<ColumnIndexMetaData> {
        let index = self.metadata.column_index()?.get(row_group)?.get(column)?;
        (!matches!(index, ColumnIndexMetaData::NONE)).then(|| index.clone())
    }

    async fn filters(
        &self,
        old: &OpenedFile,
        row_group: usize,
        group: &RowGroupMetaData,
    ) -> Result<Vec<Option<parquet::bloom_filter::Sbbf>>> {
        if group.columns().iter().all(|chunk| chunk.bloom_filter_offset().is_none()) {
            return Ok(Vec::new());
        }
        let unreadable = |error| old.unreadable(error);
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(&self.metadata), ArrowReaderOptions::new());
        let metadata = metadata.map_err(unreadable)?;
        let mut reader = ParquetRecordBatchStreamBuilder::new_with_metadata(reader_of(old), metadata);
        let mut filters = Vec::with_capacity(group.num_columns());
        for column in 0..group.num_columns() {
            filters.push(reader.get_row_group_column_bloom_filter(row_group, column).await.map_err(unreadable)?);
        }
        Ok(filters)
    }
}

fn reader_of(old: &OpenedFile) -> AmendedReader {
    let caught = Arc::clone(&old.file.false_statistics);
    AmendedReader::of(Arc::clone(&old.store), &old.file.meta).with_false_statistics(caught)
}

/// Where the first page of a column is.
fn start_of(chunk: &ColumnChunkMetaData) -> Option<u64> {
    u64::try_from(chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset())).ok()
}

/// Bytes of a file from a place on, which a reader requests by their places in the file.
pub(super) struct CopiedBytes {
    start: u64,
    bytes: Bytes,
}

impl Length for CopiedBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl CopiedBytes {
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at <= self.bytes.len());
        at.map(|at| self.bytes.slice(at..)).ok_or_else(|| ParquetError::EOF("outside of the column".to_owned()))
    }
}

impl ChunkReader for CopiedBytes {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        self.from(start).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.from(start)?;
        match length <= bytes.len() {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF("outside of the column".to_owned())),
        }
    }
}
