//! Writing runs: Parquet files of changes in the order of keys.

use std::io::BufWriter;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{partition, sort};
use arrow::datatypes::{Field, Schema, SchemaRef};
use lakemark_format::filter::Density;
use lakemark_format::{KeyFilter, ManifestRun};
use lakemark_index::hash_rows;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::sorted_run::{SortedRun, SortedRunRows};
use crate::error::{Error, Result};
use crate::files::column_mapping::{ColumnMapping, OURS};
use crate::storage::ids::new_id;
use crate::storage::temp_file::TempFile;
use crate::store::Store;
use crate::updates::changes::rows::batch;
use crate::updates::errors::{not_local, unwritable};
use crate::updates::key::KeyColumns;
use crate::updates::parameters::Parameters;

/// Rows of a page of a run: small, so that few are read for few keys.
const PAGE_ROWS: usize = 2048;
/// The most rows of a row group of a run.
const GROUP_ROWS: usize = 128 * 1024;
/// Parts in which a row group is written: its size is looked at between them.
const PARTS_OF_GROUP: usize = 8;
/// Rows that show whether the values of a column repeat.
const SAMPLE_ROWS: usize = 1024;
/// How often the filter of a run has a key that the run has not.
const FILTER_FPP: f64 = 0.01;
/// What the footer of a run calls the bytes that its changes had in a log.
const BUFFERED: &str = "lakemark.buffered";
/// Bytes that are written to a run at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// The sequence numbers of the first and the last change of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceRange {
    pub first: u64,
    pub last: u64,
}

/// A run that was written and that no manifest names yet.
pub(crate) struct FinishedRun {
    /// What the manifest says of the run, but for its position map and the migration during which it was written.
    pub run: ManifestRun,
    /// A filter of its keys, if all of them have hashes.
    pub filter: Option<KeyFilter>,
}

/// Writes the rows of a run, in the order of keys.
pub(crate) struct RunWriter {
    store: Arc<Store>,
    /// Begun with the first rows, which decide how columns are encoded.
    writer: Option<ArrowWriter<BufWriter<TempFile>>>,
    schema: SchemaRef,
    rows: u64,
    key: Arc<KeyColumns>,
    page_bytes: usize,
    /// Bytes of a row group.
    group_bytes: usize,
    /// The hashes of the keys; none if a row has none.
    hashes: Option<Vec<u64>>,
}

impl RunWriter {
    /// A run of changes with a change schema.
    pub(crate) fn new(
        store: &Arc<Store>,
        schema: &SchemaRef,
        key: &Arc<KeyColumns>,
        names: Option<&ColumnMapping>,
        parameters: &Parameters,
    ) -> Self {
        let stored = |field: &Arc<Field>| {
            let name = match names {
                Some(names) if !field.name().starts_with(OURS) => names.physical(field.name()),
                _ => None,
            };
            name.map_or_else(|| Arc::clone(field), |name| Arc::new(field.as_ref().clone().with_name(name)))
        };
        Self {
            store: Arc::clone(store),
            writer: None,
            schema: Arc::new(Schema::new(schema.fields().iter().map(stored).collect::<Vec<_>>())),
            rows: 0,
            key: Arc::clone(key),
            page_bytes: usize::try_from(parameters.page_bytes).unwrap_or(usize::MAX),
            group_bytes: usize::try_from(parameters.row_group_bytes()).unwrap_or(usize::MAX),
            hashes: Some(Vec::new()),
        }
    }

    pub(crate) fn write(&mut self, changes: &RecordBatch) -> Result<()> {
        let stored = batch(&self.schema, changes.columns().to_vec(), changes.num_rows())?;
        self.rows += changes.num_rows() as u64;
        match (&mut self.hashes, hash_rows(&self.key.columns(changes)?)) {
            (Some(hashes), Some(fresh)) => hashes.extend(fresh),
            (hashes, _) => *hashes = None,
        }
        let rows = stored.num_rows();
        let row_bytes = stored.get_array_memory_size().checked_div(rows).unwrap_or(0).max(1);
        let part = (self.group_bytes / PARTS_OF_GROUP / row_bytes).clamp(1, PAGE_ROWS);
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.begin(&stored)?,
        };
        for first in (0..rows).step_by(part) {
            let part = stored.slice(first, part.min(rows - first));
            writer.write(&part).map_err(|error| unwritten(&self.store, error))?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// Begins the file. Each scan decodes all of a run, so that its codec is a fast one. Dictionaries are made only where they are small:
    /// in row groups of a few thousand rows one of different values costs more than the values.
    fn begin(&self, first: &RecordBatch) -> Result<ArrowWriter<BufWriter<TempFile>>> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .set_dictionary_page_size_limit(self.page_bytes)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(self.group_bytes))
            .set_statistics_enabled(EnabledStatistics::Page);
        for (field, column) in self.schema.fields().iter().zip(first.columns()) {
            if !column.data_type().is_nested() {
                let path = ColumnPath::new(vec![field.name().clone()]);
                properties = properties.set_column_dictionary_enabled(path, repeats(column));
            }
        }
        let Some(folder) = self.store.updates_folder() else { return Err(not_local(&self.store)) };
        let file = TempFile::create(&folder).map_err(|error| unwritable(&self.store, error))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let writer = ArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties.build()));
        writer.map_err(|error| unwritten(&self.store, error))
    }

    /// Bytes of the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.bytes_written() as u64)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// A filter of the keys that were written.
    fn filter(&self) -> Option<KeyFilter> {
        Some(KeyFilter::of(self.key.key_types()?, Density::of_fpp(FILTER_FPP), self.hashes.as_ref()?))
    }

    /// Writes the file. Its changes took `buffered` bytes as frames of a log.
    pub(crate) async fn finish(self, passes: u8, sequences: SequenceRange, buffered: u64) -> Result<FinishedRun> {
        let rows = u32::try_from(self.rows).map_err(|_| {
            Error::unsupported("there are more changes at once than a run can hold; commit smaller batches")
        })?;
        let filter = self.filter();
        let store = self.store;
        let mut writer = self.writer.ok_or_else(|| Error::internal("a run has no rows"))?;
        writer.append_key_value_metadata(KeyValue::new(BUFFERED.to_owned(), buffered.to_string()));
        let file = writer.into_inner().map_err(|error| unwritten(&store, error))?;
        let file = file.into_inner().map_err(|error| unwritable(&store, error.into_error()))?;
        let (id, length) = (new_id().into_bytes(), file.length);
        let path = Store::run_path(id);
        store.publish(file, &path).await?;
        let (migrated, position_map, during) = (Vec::new(), None, 0);
        let run = ManifestRun {
            id,
            path,
            length,
            passes,
            rows,
            first_sequence: sequences.first,
            last_sequence: sequences.last,
            migrated,
            position_map,
            during,
        };
        Ok(FinishedRun { run, filter })
    }
}

/// Whether the first values of a column are mostly ones that occur several times.
fn repeats(column: &ArrayRef) -> bool {
    let sample = column.slice(0, column.len().min(SAMPLE_ROWS));
    let different = sort(&sample, None).and_then(|sorted| partition(&[sorted]));
    different.map_or(true, |values| values.len() * 2 <= sample.len())
}

fn unwritten(store: &Store, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) if cause.is::<std::io::Error>() => match cause.downcast() {
            Ok(error) => unwritable(store, *error),
            Err(cause) => Error::internal("a run of changes cannot be written").with_source(cause),
        },
        error => Error::internal("a run of changes cannot be written").with_source(error),
    }
}

/// The bytes that the changes of a run had in a log, if it says so.
pub(crate) fn buffered(run: &SortedRun) -> Option<u64> {
    match &run.rows {
        SortedRunRows::File(file) => file.metadata_value(BUFFERED)?.parse().ok(),
        SortedRunRows::Memory(_) | SortedRunRows::None => None,
    }
}
