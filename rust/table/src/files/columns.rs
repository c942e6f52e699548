//! Reading single columns and fields of a row group, with the fingerprint of their bytes.

mod sampled;
mod together;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use bytes::{Buf, Bytes};
use lakemark_format::{KeyType, column};
use lakemark_index::bitmap::{Chunk, ChunkBuilder};
use lakemark_index::{RowSet, element_of};
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::{Error, Result};
use crate::files::footer::{Footer, read_range};
use crate::files::statistics_check::StatisticsCheck;
use crate::storage::damage::{Guarded, guarded};
use crate::storage::disk::on_a_thread;
use crate::storage::fingerprint::fingerprint;
use crate::values::fields::{columns_of, field_of, key_type_in, key_type_of_field, leaf_values, map_of};
pub(crate) use sampled::{SampledChunk, read_sample};
use together::each_batch;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 16 * 1024;

/// Bytes of the offset index for a page, about: three numbers, their tags and an end.
const OFFSET_BYTES: f64 = 12.0;

/// What an index reads of a file, as the table types it.
#[derive(Clone, Debug)]
pub(crate) struct IndexedFields {
    /// The column that is sorted: one, or several together.
    pub key: FieldRef,
    /// The columns that ride along.
    pub riding: Vec<FieldRef>,
    /// The bits of the hashes that are sorted in the place of the column's values.
    pub hash_bits: Option<u8>,
}

/// A column of a row group, sorted by value.
#[derive(Debug)]
pub(crate) struct ColumnChunk {
    pub chunk: Chunk,
    /// Fingerprint of the column chunk's bytes, and those of columns that ride along; 0 where the file lacks the column.
    pub hash: u64,
    /// The leaf of the column, if its statistics in the footer are false.
    pub caught: Option<u32>,
}

/// The leaf of a flat column or of a field in structs, the leaf of a list's elements, or the leaves of keys and values of a map. None if
/// the file lacks the column.
fn leaves_of(footer: &Footer, name: &str) -> Vec<usize> {
    let schema = &footer.schema;
    let field = field_of(schema, name);
    let is_list = field.as_ref().is_some_and(|field| element_of(field.data_type()).is_some());
    // Names on the way to a list's or a map's leaves could be those of fields, too.
    if column::is_field(name) && field.is_none_or(|field| field.data_type().is_nested() && !is_list) {
        return Vec::new();
    }
    let map = map_of(schema, name).map(|(map, _)| map);
    let names: Vec<&str> = column::names(map.unwrap_or(name)).collect();
    let is_inside = |way: &[String]| way.len() > names.len() && names.iter().zip(way).all(|(name, part)| name == part);
    let is_own = |way: &[String]| match (map.is_some(), is_list) {
        (true, _) => is_inside(way),
        // Old writers repeat the column itself.
        (false, true) => is_inside(way) || names.iter().eq(way),
        (false, false) => names.iter().eq(way),
    };
    let leaves = footer.metadata.file_metadata().schema_descr().columns();
    let own = leaves.iter().enumerate().filter(|(_, leaf)| is_own(leaf.path().parts())).map(|(place, _)| place);
    own.take(if map.is_some() { 2 } else { 1 }).collect()
}

/// The most that one element of a list takes while a row group is sorted: its key, its row, both once more, and its place.
const ELEMENT_BYTES: u64 = 32;

/// Memory that the elements of lists take while a row group is read. The number of rows does not bound it. As many bytes as 64 bits can say
/// if the footer makes no sense.
pub(crate) fn list_bytes(footer: &Footer, row_group: usize, fields: &[IndexedFields]) -> u64 {
    let columns = footer.metadata.row_groups().get(row_group).map(|group| group.columns()).unwrap_or_default();
    let lists = fields.iter().map(|fields| &fields.key).filter(|field| element_of(field.data_type()).is_some());
    let leaves = lists.flat_map(|field| leaves_of(footer, field.name()));
    let elements =
        leaves.filter_map(|leaf| columns.get(leaf)).map(|chunk| u64::try_from(chunk.num_values()).unwrap_or(u64::MAX));
    elements.fold(0, |bytes, elements| elements.saturating_mul(ELEMENT_BYTES).saturating_add(bytes))
}

fn chunk_range(footer: &Footer, row_group: usize, leaf: usize, name: &str) -> Result<Range<u64>> {
    let chunk = footer.metadata.row_groups().get(row_group).and_then(|group| group.columns().get(leaf));
    let Some(chunk) = chunk else { return Err(Error::corrupt(format!("the footer of {name} lacks a column chunk"))) };
    let (start, length) = chunk.byte_range();
    Ok(start..start.saturating_add(length))
}

/// Reads columns of one row group, given as fields of the table, and sorts their rows, with those that ride along.
pub(crate) async fn read_columns(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    name: &str,
    footer: &Arc<Footer>,
    row_group: usize,
    fields: &[IndexedFields],
) -> Result<Vec<ColumnChunk>> {
    let mut parts = Vec::with_capacity(fields.len());
    for fields in fields {
        parts.push(fetch_fields(store, meta, name, footer, row_group, fields).await?);
    }
    let (footer, fields, name, size) = (Arc::clone(footer), fields.to_vec(), name.to_owned(), meta.size);
    let decode = move || {
        let columns = fields.iter().zip(parts);
        let from = RowGroupOfFile { footer: &footer, row_group, name: &name, size };
        columns.map(|(field, part)| decode_column(from, field, part)).collect()
    };
    on_a_thread(decode).await.map_err(|error| Error::task(&error))?
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
        parts.push(hash_of(fetch_each(store, meta, name, footer, row_group, column).await?.iter()));
    }
    Ok(column_hash(parts))
}

/// The chunks of the columns of an index, and of those that ride along.
struct FetchedFields {
    key: Vec<Option<FetchedChunks>>,
    riding: Vec<Option<FetchedChunks>>,
}

/// A row group that is decoded, of a file by its name in errors and its size.
#[derive(Clone, Copy)]
struct RowGroupOfFile<'a> {
    footer: &'a Footer,
    row_group: usize,
    name: &'a str,
    size: u64,
}

impl RowGroupOfFile<'_> {
    fn rows(self) -> u32 {
        self.footer.row_groups.get(self.row_group).copied().unwrap_or_default()
    }
}

fn decode_column(from: RowGroupOfFile<'_>, fields: &IndexedFields, parts: FetchedFields) -> Result<ColumnChunk> {
    let IndexedFields { key: field, riding, hash_bits } = fields;
    let FetchedFields { key: parts, riding: of_riding } = parts;
    let of_values = key_type(field)?;
    let mut builder = ChunkBuilder::new(&match *hash_bits {
        Some(bits) => KeyType::Hashed { bits, of: Arc::new(of_values) },
        None => of_values,
    });
    let rows = from.rows();
    builder.reserve(rows as usize);
    let hash = hash_of(parts.iter().chain(&of_riding));
    let leaf = match parts.as_slice() {
        [Some(FetchedChunks { leaves, .. })] => leaves.first().copied(),
        _ => None,
    };
    let mut claims = leaf.and_then(|leaf| StatisticsCheck::of(from.footer, from.row_group, field.name(), leaf));
    push_rows(&mut builder, from, field, parts, claims.as_mut(), None)?;
    let caught = leaf.filter(|_| claims.is_some_and(|claims| claims.are_false()));
    let caught = caught.and_then(|leaf| u32::try_from(leaf).ok());
    push_riding(&mut builder, from, riding, of_riding, None)?;
    let chunk = builder.finish();
    if chunk.row_count() != rows || chunk.riding_count().is_some_and(|riding| riding != rows as usize) {
        return Err(Error::corrupt(format!(
            "the data file {} has other row counts than its footer says; write it again",
            from.name
        )));
    }
    Ok(ColumnChunk { chunk, hash, caught })
}

fn key_type(field: &FieldRef) -> Result<KeyType> {
    key_type_of_field(field).ok_or_else(|| {
        Error::unsupported(format!("the column {} has a type that no index serves", column::display(field.name())))
    })
}

/// Bytes of a column, nested or not, or of a field, in the row groups of a footer, compressed.
pub(crate) fn column_bytes(footer: &Footer, name: &str) -> u64 {
    footer.metadata.row_groups().iter().map(|group| bytes_of_column(group.columns(), name)).sum()
}

fn bytes_of_column(chunks: &[ColumnChunkMetaData], name: &str) -> u64 {
    let names: Vec<&str> = column::names(name).collect();
    let is_inside = |way: &[String]| way.len() >= names.len() && names.iter().zip(way).all(|(name, part)| name == part);
    let of_column = chunks.iter().filter(|chunk| is_inside(chunk.column_path().parts()));
    of_column.map(|chunk| chunk.byte_range().1).sum()
}

/// Rows of a data page of a column, on average, where the file has an offset index.
pub(crate) fn page_rows(footer: &Footer, column: &str) -> Option<f64> {
    let leaf = leaves_of(footer, column).first().copied()?;
    let (mut rows, mut pages) = (0.0, 0.0);
    for group in footer.metadata.row_groups() {
        let index_bytes = group.columns().get(leaf).and_then(|chunk| chunk.offset_index_length())?;
        pages += (f64::from(index_bytes) / OFFSET_BYTES).round().max(1.0);
        rows += group.num_rows() as f64;
    }
    (pages > 0.0).then_some(rows / pages)
}

/// The chunks of a column's leaves.
struct FetchedChunks {
    leaves: Vec<usize>,
    chunks: Vec<PlacedBytes>,
}

/// Bytes of a file from a place on.
struct PlacedBytes {
    start: u64,
    bytes: Bytes,
}

impl FetchedChunks {
    /// The fingerprint of a chunk, or that of the fingerprints of several.
    fn hash(&self) -> u64 {
        match self.chunks.as_slice() {
            [chunk] => fingerprint(&chunk.bytes),
            chunks => column_hash(chunks.iter().map(|chunk| fingerprint(&chunk.bytes))),
        }
    }
}

/// The chunks of a column; none if the file lacks it.
async fn fetch(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    name: &str,
    footer: &Footer,
    row_group: usize,
    column: &str,
) -> Result<Option<FetchedChunks>> {
    let leaves = leaves_of(footer, column);
    let mut chunks = Vec::with_capacity(leaves.len());
    for leaf in &leaves {
        let range = chunk_range(footer, row_group, *leaf, name)?;
        if range.end > meta.size {
            return Err(Error::corrupt(format!(
                "the footer of {name} points behind the end of the file; write it again"
            )));
        }
        chunks.push(PlacedBytes { start: range.start, bytes: read_range(store, meta, range, name).await? });
    }
    Ok((!leaves.is_empty()).then_some(FetchedChunks { leaves, chunks }))
}

/// The chunks of each column of a composite, or of the only one.
async fn fetch_each(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    name: &str,
    footer: &Footer,
    row_group: usize,
    composite: &str,
) -> Result<Vec<Option<FetchedChunks>>> {
    let mut parts = Vec::new();
    for column in column::columns(composite) {
        parts.push(fetch(store, meta, name, footer, row_group, column).await?);
    }
    Ok(parts)
}

/// The chunks of the columns of an index, and of those that ride along.
async fn fetch_fields(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    name: &str,
    footer: &Footer,
    row_group: usize,
    IndexedFields { key, riding, .. }: &IndexedFields,
) -> Result<FetchedFields> {
    let of_key = fetch_each(store, meta, name, footer, row_group, key.name()).await?;
    let mut of_riding = Vec::with_capacity(riding.len());
    for field in riding {
        of_riding.push(fetch(store, meta, name, footer, row_group, field.name()).await?);
    }
    Ok(FetchedFields { key: of_key, riding: of_riding })
}

/// The fingerprint of a column, or that of the fingerprints of several; 0 for one that the file lacks.
fn hash_of<'a>(parts: impl Iterator<Item = &'a Option<FetchedChunks>>) -> u64 {
    let hashes: Vec<u64> = parts.map(|part| part.as_ref().map_or(0, FetchedChunks::hash)).collect();
    match hashes.as_slice() {
        [hash] => *hash,
        hashes => column_hash(hashes.iter().copied()),
    }
}

/// Adds the rows of a column or composite, or the first `limit` of them.
fn push_rows(
    builder: &mut ChunkBuilder,
    from: RowGroupOfFile<'_>,
    field: &FieldRef,
    parts: Vec<Option<FetchedChunks>>,
    mut claims: Option<&mut StatisticsCheck>,
    limit: Option<usize>,
) -> Result<()> {
    let rows = from.rows() as usize;
    let rows = rows.min(limit.unwrap_or(rows));
    if !column::is_composite(field.name()) {
        let Some(part) = parts.into_iter().next().flatten() else {
            builder.push_nulls(u32::try_from(rows).unwrap_or(u32::MAX));
            return Ok(());
        };
        for array in arrays_of(from, field, part, limit)? {
            let array = array?;
            if let Some(claims) = &mut claims {
                claims.see(&array);
            }
            builder.push(&array).map_err(|error| unreadable(field, from.name, error))?;
        }
        return Ok(());
    }
    each_batch(from, field, &columns_of(field), parts, limit, |arrays| builder.push_rows(arrays))
}

/// Adds what rides along with the rows of a row group, or with the first `limit` of them.
fn push_riding(
    builder: &mut ChunkBuilder,
    from: RowGroupOfFile<'_>,
    riding: &[FieldRef],
    parts: Vec<Option<FetchedChunks>>,
    limit: Option<usize>,
) -> Result<()> {
    let Some(first) = riding.first() else { return Ok(()) };
    each_batch(from, first, riding, parts, limit, |arrays| builder.push_riding(arrays))
}

fn unreadable(field: &FieldRef, file: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let shown = column::display(field.name());
    Error::corrupt(format!("the column {shown} of the data file {file} cannot be read; write the file again"))
        .with_source(error)
}

/// The rows of a column chunk, or the first `limit` of them, as the table types them.
fn arrays_of<'a>(
    RowGroupOfFile { footer, row_group, name, size }: RowGroupOfFile<'a>,
    field: &'a FieldRef,
    FetchedChunks { leaves, chunks }: FetchedChunks,
    limit: Option<usize>,
) -> Result<impl Iterator<Item = Result<ArrayRef>> + use<'a>> {
    let damaged = move |error: Box<dyn std::error::Error + Send + Sync>| unreadable(field, name, error);
    let options = ArrowReaderOptions::new();
    let metadata =
        ArrowReaderMetadata::try_new(Arc::clone(&footer.metadata), options).map_err(|error| damaged(error.into()))?;
    let mask = ProjectionMask::leaves(footer.metadata.file_metadata().schema_descr(), leaves);
    let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(BufferedBytes { chunks, size }, metadata)
        .with_row_groups(vec![row_group])
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS);
    if let Some(limit) = limit {
        reader = reader.with_limit(limit);
    }
    let key_type = key_type(field)?;
    let key = map_of(&footer.schema, field.name()).map(|(_, key)| key.to_owned());
    let typed = move |batch: RecordBatch| {
        let array = leaf_values(batch.columns().first()?, key.as_deref());
        Some(array.and_then(|array| match key_type_in(array.data_type()).as_ref() == Some(&key_type) {
            true => Ok(array),
            // The engine does the same when it reads a file whose type is not the table's.
            false => cast_to(&array, field.data_type()),
        }))
    };
    let batches = guarded(|| reader.build()).and_then(|reader| reader).map_err(|error| damaged(error.into()))?;
    let batches = Guarded::new(batches);
    let arrays = batches.filter_map(move |batch| batch.map(&typed).transpose());
    Ok(arrays.map(move |array| array.and_then(|array| array).map_err(|error| damaged(error.into()))))
}

fn cast_to(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() })
}

/// Some bytes of a file, at their places.
struct BufferedBytes {
    chunks: Vec<PlacedBytes>,
    size: u64,
}

impl BufferedBytes {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let found = self.chunks.iter().find_map(|chunk| {
            let at = usize::try_from(start.checked_sub(chunk.start)?).ok()?;
            (at < chunk.bytes.len()).then(|| chunk.bytes.slice(at..))
        });
        found.ok_or_else(|| ParquetError::General(format!("read at {start}, outside of the column chunks")))
    }
}

impl Length for BufferedBytes {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for BufferedBytes {
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

/// Rows to read of a file.
pub(crate) struct ReadSelection {
    /// Row groups with a selected row.
    pub row_groups: Vec<usize>,
    /// The rows to take of these row groups.
    pub rows: RowSelection,
}

/// What to read of a file with these row groups for its selected rows.
pub(crate) fn selection(row_groups: &[u32], rows: &RowSet) -> ReadSelection {
    let (mut groups, mut selectors) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (place, length) in row_groups.iter().enumerate() {
        let end = start + length;
        if rows.count_in(start, end) > 0 {
            groups.push(place);
            let inside = rows.slice(start, end);
            let mut next = 0;
            for range in inside.iter_ranges() {
                if range.start > next {
                    selectors.push(RowSelector::skip((range.start - next) as usize));
                }
                selectors.push(RowSelector::select((range.end - range.start) as usize));
                next = range.end;
            }
            if next < *length {
                selectors.push(RowSelector::skip((length - next) as usize));
            }
        }
        start = end;
    }
    ReadSelection { row_groups: groups, rows: RowSelection::from(selectors) }
}
