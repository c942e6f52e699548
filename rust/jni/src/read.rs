//! From an input of a split to record batches, on an executor.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, UInt32Array, make_array,
    new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, SchemaRef};
use lakemark_table::{AmendedReader, ErrorKind};
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection, RowSelector};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, RowGroupMetaData};

use crate::error::{NativeError, Result, reading};
use crate::exact::in_spark_type;
use crate::nested;
use crate::read_ahead::RowGroupReader;
use crate::split::{FileRange, ScanSpec, SplitInput, SplitRange, of_ipc};
use crate::store_cache::store_of;

/// Rows of one batch, the size of Spark's own Parquet batches.
const BATCH_ROWS: usize = 4096;
/// What a page of a column takes at most if its writer said nothing else.
const PAGE_BYTES: usize = 1 << 20;
/// Where rows are that no file has.
pub(crate) const IN_MEMORY: &str = "the buffered rows in memory";

/// The batches of one input.
pub(crate) struct InputReader {
    path: String,
    schema: SchemaRef,
    /// Columns of which no value may be cut.
    exact: Vec<String>,
    constants: HashMap<String, ArrayRef>,
    source: RowSource,
}

enum RowSource {
    /// No column is stored in the file (or none is requested): only the number of rows is of interest.
    RowCount(u64),
    /// Columns of the file.
    Columns(RowGroupReader),
    /// Rows that came with the input.
    Rows(Option<RecordBatch>),
}

impl InputReader {
    /// Opens the file and finds the rows; `attachment` came with the input.
    pub(crate) async fn open(scan: &ScanSpec, input: &SplitInput, attachment: &[u8]) -> Result<Self> {
        match input {
            SplitInput::File(file) => Self::open_file(scan, file, attachment).await,
            SplitInput::Memory => Ok(Self {
                path: IN_MEMORY.to_owned(),
                schema: scan.schema()?,
                // They were cast on the driver.
                exact: Vec::new(),
                constants: HashMap::new(),
                source: RowSource::Rows(of_ipc(attachment)?.batch),
            }),
        }
    }

    async fn open_file(scan: &ScanSpec, file: &FileRange, attachment: &[u8]) -> Result<Self> {
        let schema = scan.schema()?;
        let constants = file.constants()?.into_iter().map(|constant| (constant.name, constant.value));
        let constants: HashMap<_, _> = constants.collect();
        let path = file.location.clone();
        let no_columns = schema.fields().iter().all(|field| constants.contains_key(field.name()));
        let source = match (&file.part, no_columns) {
            (SplitRange::Known { count, .. }, true) => RowSource::RowCount(*count),
            _ => {
                let input = reader_of(scan, file).await?;
                let of_file = FileRows { file, attachment };
                file_source(input, of_file, &schema, &constants, no_columns).await?
            }
        };
        Ok(Self { path, schema, exact: scan.exact.clone(), constants, source })
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Bytes of memory that reading takes at most, roughly.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.source {
            RowSource::RowCount(_) => 0,
            RowSource::Columns(row_groups) => row_groups.memory_bytes(),
            RowSource::Rows(rows) => rows.as_ref().map_or(0, RecordBatch::get_array_memory_size),
        }
    }

    /// The next batch, with Spark's types and without offsets.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.source {
            RowSource::RowCount(0) => Ok(None),
            RowSource::RowCount(left) => {
                let rows = BATCH_ROWS.min(usize::try_from(*left).unwrap_or(BATCH_ROWS));
                *left -= rows as u64;
                self.complete(None, rows).map(Some)
            }
            RowSource::Columns(row_groups) => match row_groups.next(&self.path).await? {
                None => Ok(None),
                Some(batch) => self.complete(Some(&batch), batch.num_rows()).map(Some),
            },
            RowSource::Rows(rows) => {
                let Some(batch) = rows.take() else { return Ok(None) };
                self.complete(Some(&batch), batch.num_rows()).map(Some)
            }
        }
    }

    fn complete(&self, batch: Option<&RecordBatch>, rows: usize) -> Result<RecordBatch> {
        let column = |field: &Arc<Field>| -> Result<ArrayRef> {
            if let Some(value) = self.constants.get(field.name()) {
                return Ok(take(value.as_ref(), &UInt32Array::from(vec![0; rows]), None)?);
            }
            match batch.and_then(|batch| batch.column_by_name(field.name())) {
                None => Ok(new_null_array(field.data_type(), rows)),
                Some(stored) => Ok(without_offset(in_spark_type(stored, field, &self.exact, &self.path)?)?),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema(), columns, &options)?)
    }
}

/// The bytes of an input's file.
async fn reader_of(scan: &ScanSpec, file: &FileRange) -> Result<AmendedReader> {
    let store = store_of(scan, file.home).await?;
    let location =
        Path::parse(&file.location).map_err(|error| NativeError::internal(format!("an input's path: {error}")))?;
    Ok(AmendedReader::new(store, location, file.size, file.tag.clone())
        .with_mapping(scan.mapping.clone().map(Arc::new)))
}

/// Rows of a file, and the bytes that say which.
#[derive(Clone, Copy)]
struct FileRows<'a> {
    file: &'a FileRange,
    attachment: &'a [u8],
}

async fn file_source(
    mut input: AmendedReader,
    wanted: FileRows<'_>,
    schema: &Schema,
    constants: &HashMap<String, ArrayRef>,
    only_count: bool,
) -> Result<RowSource> {
    let fail = |error: parquet::errors::ParquetError| reading(&wanted.file.location, &error);
    // The page index lets a selection skip pages and not only row groups; files without one are read all the same.
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    let footer = input.get_metadata(Some(&options)).await.map_err(fail)?;
    let metadata = ArrowReaderMetadata::try_new(footer, options).map_err(fail)?;
    let ChosenRows { row_groups, selection } = choose(wanted, metadata.metadata())?;
    if only_count {
        return Ok(RowSource::RowCount(selection.row_count() as u64));
    }
    let stored = schema.fields().iter().filter(|field| !constants.contains_key(field.name()));
    let leaves = nested::leaves(metadata.schema().fields(), &Schema::new(stored.cloned().collect::<Vec<_>>()));
    if leaves.is_empty() {
        return Ok(RowSource::RowCount(selection.row_count() as u64));
    }
    let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(input, metadata);
    let mask = ProjectionMask::leaves(builder.parquet_schema(), leaves);
    let memory = memory_bytes(builder.metadata(), &mask, &row_groups, selection.row_count());
    let stream = builder
        .with_projection(mask)
        .with_row_groups(row_groups)
        .with_row_selection(selection)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(fail)?;
    Ok(RowSource::Columns(RowGroupReader::new(stream, memory)))
}

/// The column chunks of two row groups, one that is decoded and one that is read ahead, or a page for each row and column if that is less.
fn memory_bytes(metadata: &ParquetMetaData, mask: &ProjectionMask, row_groups: &[usize], rows: usize) -> usize {
    let stored = |at: &usize| -> Option<usize> {
        let columns = metadata.row_groups().get(*at)?.columns().iter().enumerate();
        let chunks = columns.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, column)| column.byte_range().1);
        usize::try_from(chunks.sum::<u64>()).ok()
    };
    let mut chunks: Vec<usize> = row_groups.iter().filter_map(stored).collect();
    chunks.sort_unstable_by(|one, other| other.cmp(one));
    let leaves = metadata.file_metadata().schema_descr().num_columns();
    let columns = (0..leaves).filter(|leaf| mask.leaf_included(*leaf)).count();
    chunks.iter().take(2).sum::<usize>().min(rows.saturating_mul(columns).saturating_mul(PAGE_BYTES))
}

/// What is read of a file.
struct ChosenRows {
    /// Row groups that have a selected row.
    row_groups: Vec<usize>,
    /// The selected rows, counted through these row groups.
    selection: RowSelection,
}

/// The selected rows of an input.
fn choose(FileRows { file, attachment }: FileRows<'_>, metadata: &ParquetMetaData) -> Result<ChosenRows> {
    match &file.part {
        SplitRange::Known { file_rows, start, length, rows, .. } => {
            let stale = || {
                NativeError::new(
                    ErrorKind::Conflict,
                    format!("{} changed after the query was planned; run the query again", file.location),
                )
            };
            let in_file: u64 = metadata.row_groups().iter().map(rows_of).sum();
            let groups = row_groups_in(metadata, |rows| rows.start >= *start && rows.end <= start + length);
            let covered: u64 = groups.iter().filter_map(|at| metadata.row_groups().get(*at)).map(rows_of).sum();
            if in_file != *file_rows || covered != *length {
                return Err(stale());
            }
            let length = usize::try_from(*length).map_err(|_| stale())?;
            let mut rest = rows.selection(attachment, length)?;
            let (mut wanted, mut selectors) = (Vec::new(), Vec::new());
            for at in groups {
                let of_group = rest.split_off(to_usize(metadata.row_groups().get(at).map_or(0, rows_of))?);
                if of_group.selects_any() {
                    wanted.push(at);
                    selectors.extend(Vec::<RowSelector>::from(of_group));
                }
            }
            Ok(ChosenRows { row_groups: wanted, selection: RowSelection::from(selectors) })
        }
        SplitRange::Unknown { from_byte, to_byte, deleted, deleted_of } => {
            let mut groups = Vec::new();
            let mut ranges = Vec::new();
            let mut first = 0;
            for (at, group) in metadata.row_groups().iter().enumerate() {
                let end = first + rows_of(group);
                if (*from_byte..*to_byte).contains(&first_byte(group)) {
                    groups.push(at);
                    ranges.push(first..end);
                }
                first = end;
            }
            let live = match deleted {
                None => RowSelection::from(vec![RowSelector::select(to_usize(
                    ranges.iter().map(|rows| rows.end - rows.start).sum(),
                )?)]),
                Some(rows) => live_rows(&rows.selection(attachment, to_usize(*deleted_of)?)?, &ranges)?,
            };
            Ok(ChosenRows { row_groups: groups, selection: live })
        }
    }
}

/// What is left of `ranges` without the deleted rows, as a selection over the ranges laid end to end.
fn live_rows(deleted: &RowSelection, ranges: &[Range<u64>]) -> Result<RowSelection> {
    let mut selectors = Vec::new();
    let mut at = 0_u64;
    let mut holes = Vec::new();
    for selector in deleted.iter() {
        let end = at + selector.row_count as u64;
        if !selector.skip {
            holes.push(at..end);
        }
        at = end;
    }
    for range in ranges {
        let mut next = range.start;
        for hole in holes.iter().filter(|hole| hole.end > range.start && hole.start < range.end) {
            let start = hole.start.max(range.start);
            let end = hole.end.min(range.end);
            selectors.push(RowSelector::select(to_usize(start - next)?));
            selectors.push(RowSelector::skip(to_usize(end - start)?));
            next = end;
        }
        selectors.push(RowSelector::select(to_usize(range.end - next)?));
    }
    Ok(RowSelection::from(selectors))
}

fn row_groups_in(metadata: &ParquetMetaData, wanted: impl Fn(&Range<u64>) -> bool) -> Vec<usize> {
    let mut first = 0;
    let mut found = Vec::new();
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let rows = first..first + rows_of(group);
        first = rows.end;
        if wanted(&rows) && !rows.is_empty() {
            found.push(at);
        }
    }
    found
}

fn rows_of(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

fn first_byte(group: &RowGroupMetaData) -> u64 {
    group.columns().iter().map(|column| column.byte_range().0).min().unwrap_or(0)
}

fn to_usize(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| NativeError::internal("a row number does not fit this machine"))
}

/// A copy that begins at its buffers' first element, if it does not already: Java ignores the offset of an array, and
/// reads a slice of booleans wrongly without any sign of it.
fn without_offset(array: ArrayRef) -> Result<ArrayRef> {
    fn has_offset(data: &ArrayData) -> bool {
        data.offset() != 0 || data.child_data().iter().any(has_offset)
    }
    let data = array.to_data();
    if !has_offset(&data) {
        return Ok(array);
    }
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
