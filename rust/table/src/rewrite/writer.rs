//! Writing a new data file, row group by row group, and the properties that it is written with.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::ArrayRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;

use crate::error::{Error, Result};
use crate::files::footer::Footer;
use crate::rewrite::encode::{RowGroup, RowGroupColumns};
use crate::rewrite::output::Output;
use crate::rewrite::target::{FileTarget, WrittenFile, unwritten};
use crate::snapshot::DataFile;
use crate::snapshot::spark::SPARK_SCHEMA;

/// The most that a row group of new rows has.
pub(super) const ROW_GROUP_ROWS: usize = 1024 * 1024;
pub(super) const ROW_GROUP_BYTES: u64 = 128 * 1024 * 1024;

/// Rows of a data page.
const PAGE_ROWS: usize = 20_000;

/// A file that is being written. A file that is not finished leaves nothing behind.
pub(super) struct FileWriter {
    path: String,
    partition_values: Vec<ArrayRef>,
    parquet: SerializedFileWriter<EncodedBytes>,
    /// Bytes on their way from `parquet` to `output`.
    waiting: EncodedBytes,
    output: Output,
    bytes: u64,
    with_nan: BTreeSet<usize>,
}

/// A file that was begun.
pub(super) struct StartedFile {
    pub writer: FileWriter,
    /// What encodes its row groups.
    pub factory: Arc<ArrowRowGroupWriterFactory>,
}

impl FileWriter {
    /// Begins a file.
    pub(super) fn start(
        target: &FileTarget<'_>,
        number: usize,
        replaces: Option<&DataFile>,
        partition_values: &[ArrayRef],
        properties: &WriterProperties,
    ) -> Result<StartedFile> {
        let path = (target.path)(number, replaces, partition_values)?;
        let output = Output::new(target, &path)?;
        let waiting = EncodedBytes::default();
        let parquet = ArrowWriter::try_new(waiting.clone(), Arc::clone(target.file_schema()), Some(properties.clone()));
        let (mut parquet, factory) = parquet
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(|error| Error::unsupported("Parquet cannot have the table's columns").with_source(error))?;
        if let Some(schema) = &target.spark_schema {
            parquet.append_key_value_metadata(KeyValue::new(SPARK_SCHEMA.to_owned(), schema.clone()));
        }
        let partition_values = partition_values.to_vec();
        let with_nan = BTreeSet::new();
        let writer = Self { path, partition_values, parquet, waiting, output, bytes: 0, with_nan };
        Ok(StartedFile { writer, factory: Arc::new(factory) })
    }

    /// Adds a row group.
    pub(super) async fn append(&mut self, group: RowGroup) -> Result<()> {
        let mut writer = self.parquet.next_row_group().map_err(unwritten)?;
        match group.columns {
            RowGroupColumns::Encoded(columns) => {
                for column in columns {
                    column.append_to_row_group(&mut writer).map_err(unwritten)?;
                    self.bytes += self.waiting.put_into(&mut self.output).await?;
                }
            }
            RowGroupColumns::Copied(columns) => {
                for column in columns {
                    writer.append_column(&column.bytes, column.close).map_err(unwritten)?;
                    self.bytes += self.waiting.put_into(&mut self.output).await?;
                }
            }
        }
        writer.close().map_err(unwritten)?;
        self.with_nan.extend(group.with_nan);
        Ok(())
    }

    /// Bytes that the file has by now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) async fn finish(mut self, replaces: Option<usize>) -> Result<WrittenFile> {
        let metadata = self.parquet.finish().map_err(unwritten)?;
        self.bytes += self.waiting.put_into(&mut self.output).await?;
        self.output.finish().await?;
        let row_groups = metadata.row_groups().iter().map(|group| u32::try_from(group.num_rows()));
        let row_groups = row_groups
            .collect::<Result<_, _>>()
            .map_err(|_| Error::unsupported("a row group has more than 4,294,967,295 rows"))?;
        Ok(WrittenFile {
            path: self.path,
            size: self.bytes,
            row_groups,
            replaces,
            partition_values: self.partition_values,
            metadata: Arc::new(metadata),
            with_nan: self.with_nan,
        })
    }
}

/// Bytes that a Parquet writer made and that nobody took yet.
#[derive(Clone, Default)]
struct EncodedBytes(Arc<Mutex<Vec<u8>>>);

impl EncodedBytes {
    /// Hands the bytes over and gives their number.
    async fn put_into(&self, output: &mut Output) -> Result<u64> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let count = bytes.len() as u64;
        if count > 0 {
            let mut bytes = output.put(bytes).await?;
            bytes.clear();
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        }
        Ok(count)
    }
}

impl Write for EncodedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether all values of a column chunk are in its dictionary. A writer that gave its dictionary up would do so again, after it has hashed
/// most of the values.
fn dictionary_paid(chunk: &ColumnChunkMetaData) -> bool {
    let is_dictionary = |encoding| matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
    match chunk.page_encoding_stats_mask() {
        Some(pages) => pages.encodings().all(is_dictionary),
        None => chunk.encodings().any(is_dictionary),
    }
}

/// How files of new rows are written.
pub(super) fn new_properties() -> WriterProperties {
    usual().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build()
}

fn usual() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
}

/// The properties by which the file with this footer was written: the size of its row groups, and of each column the compression and
/// whether a dictionary paid.
pub(super) fn properties_like(footer: &Footer) -> WriterProperties {
    let rows = footer.row_groups.iter().max().map_or(ROW_GROUP_ROWS, |rows| (*rows as usize).max(1));
    let mut properties = usual().set_max_row_group_row_count(Some(rows));
    let chunks = footer.metadata.row_groups().first().map(|group| group.columns()).unwrap_or_default();
    let mut compressions = BTreeMap::new();
    for chunk in chunks {
        let compression = match chunk.compression() {
            // Nobody should write these two any more.
            Compression::LZ4 => Compression::LZ4_RAW,
            Compression::LZO => Compression::ZSTD(ZstdLevel::default()),
            other => other,
        };
        compressions.entry(format!("{compression:?}")).or_insert((0, compression)).0 += 1;
        properties = properties
            .set_column_compression(chunk.column_path().clone(), compression)
            .set_column_dictionary_enabled(chunk.column_path().clone(), dictionary_paid(chunk));
    }
    // Columns that the file lacks are compressed as most of it.
    if let Some((_, compression)) = compressions.into_values().max_by_key(|(columns, _)| *columns) {
        properties = properties.set_compression(compression);
    }
    properties.build()
}
