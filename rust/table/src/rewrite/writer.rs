//! New data files: where they are, how they are written, and that they are on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::files::footer::Footer;
use crate::rewrite::encode::{RowGroup, RowGroupColumns};
use crate::rewrite::output::Output;
use crate::snapshot::DataFile;
use crate::snapshot::spark::SPARK_SCHEMA;
use crate::storage::disk::{self, DiskStep, on_a_thread, sync_folder};
use crate::storage::location::place_of;

/// Bytes of a file of new rows.
pub(super) const FILE_BYTES: u64 = 128 * 1024 * 1024;

/// The most that a row group of new rows has.
pub(super) const ROW_GROUP_ROWS: usize = 1024 * 1024;
pub(super) const ROW_GROUP_BYTES: u64 = 128 * 1024 * 1024;

/// Rows of a data page.
const PAGE_ROWS: usize = 20_000;

/// Where new files go, and what they look like.
pub(super) struct FileTarget<'a> {
    pub object_store: Arc<dyn ObjectStore>,
    /// The root that paths of new files are below.
    pub prefix: Path,
    /// The root, if it is on a local file system.
    pub local: Option<PathBuf>,
    /// The columns of a file: those of the table's files in their order, under stored names.
    pub schema: SchemaRef,
    /// A file of new rows is closed when it has about this many bytes.
    pub file_bytes: u64,
    /// Whether nothing but the files says which columns the table has.
    pub columns_are_in_files: bool,
    /// Whether the caller needs to know which columns have NaN.
    pub tracks_nan: bool,
    /// The schema that Spark wrote into the files, if it has more than Parquet can say.
    pub spark_schema: Option<String>,
    /// Gives the path of a new file.
    pub path: &'a NewPath<'a>,
}

/// The path of a new file below the root, by its number, the file that it replaces, and its partition.
pub(super) type NewPath<'a> = dyn Fn(usize, Option<&DataFile>, &[ArrayRef]) -> Result<String> + Send + Sync + 'a;

/// A file that was written.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    /// Path below the root. The name of the file is in it as it is; [`place_of`] gives its place in the object store.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows per row group.
    pub row_groups: Vec<u32>,
    /// The file of the snapshot that it replaces; none for a file of rows that replace nothing.
    pub replaces: Option<usize>,
    /// One value for each partition column.
    pub partition_values: Vec<ArrayRef>,
    /// The metadata that Parquet has of the file.
    pub metadata: Arc<ParquetMetaData>,
    /// The columns of floats that have NaN, by place: Parquet's statistics leave NaN out.
    pub with_nan: BTreeSet<usize>,
}

impl WrittenFile {
    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|rows| u64::from(*rows)).sum()
    }
}

impl FileTarget<'_> {
    /// Removes files that nobody will see. Failing is harmless: the files are only waste.
    pub(super) async fn discard(&self, files: &[WrittenFile]) {
        for file in files {
            let Ok(place) = place_of(&self.prefix, &file.path) else { continue };
            if let Err(error) = self.object_store.delete(&place).await {
                tracing::warn!(file = file.path, %error, "an unused data file could not be deleted");
            }
        }
    }

    /// Checks that files that no log names yet are still there: a vacuum of others takes them from a process that was stopped for long.
    pub(super) async fn check_there(&self, files: &[WrittenFile]) -> Result<()> {
        for file in files {
            let place = place_of(&self.prefix, &file.path)?;
            if !self.object_store.head(&place).await.is_ok_and(|meta| meta.size == file.size) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("the new data file {} was removed before it was committed; run it again", file.path),
                ));
            }
        }
        Ok(())
    }

    /// Begins to sync the bytes of a file while others are still made. A disk that has to take all of them at the end takes as long as all
    /// the rest.
    pub(super) fn begin_sync(&self, file: &WrittenFile) -> Option<JoinHandle<std::io::Result<()>>> {
        let path = self.local.as_ref()?.join(&file.path);
        Some(on_a_thread(move || {
            disk::attempt(DiskStep::Stored(&path))?;
            disk::sync(&File::open(&path)?, &path)
        }))
    }

    /// Sees to it that files survive a crash: first their bytes, whose sync was begun, then their names, up to the root's own.
    pub(super) async fn sync(
        &self,
        files: &[WrittenFile],
        begun: &mut Vec<JoinHandle<std::io::Result<()>>>,
    ) -> Result<()> {
        let mut bytes_synced = Ok(());
        for bytes in begun.drain(..) {
            let synced = bytes.await.map_err(|error| Error::task(&error))?;
            bytes_synced = bytes_synced.and(synced);
        }
        bytes_synced.map_err(unwritable)?;
        let Some(root) = self.local.clone() else { return Ok(()) };
        let paths: Vec<PathBuf> = files.iter().map(|file| root.join(&file.path)).collect();
        let sync = move || {
            let mut folders = BTreeSet::new();
            for path in &paths {
                folders.extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)));
            }
            if !paths.is_empty() {
                folders.extend(root.parent());
            }
            folders.into_iter().rev().try_for_each(sync_folder)
        };
        let synced: std::io::Result<()> = on_a_thread(sync).await.map_err(|error| Error::task(&error))?;
        synced.map_err(unwritable)
    }
}

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
        let parquet = ArrowWriter::try_new(waiting.clone(), Arc::clone(&target.schema), Some(properties.clone()));
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

pub(super) fn unwritten(error: ParquetError) -> Error {
    unwritable(error)
}

pub(super) fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::io(
        "the new data files cannot be written (disk full, or no permission?); the table is as it was: make room and run it again",
    )
    .with_source(error)
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
