//! New data files: where they are, how they are written, and that they are on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::AsyncArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use tokio::task::spawn_blocking;

use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::snapshot::DataFile;
use crate::store::sync_folder;

/// Bytes of a file of new rows.
pub(super) const FILE_BYTES: usize = 128 * 1024 * 1024;

/// The most that a row group of new rows has.
const ROW_GROUP_ROWS: usize = 1024 * 1024;
const ROW_GROUP_BYTES: usize = 128 * 1024 * 1024;

/// Rows of a data page.
const PAGE_ROWS: usize = 20_000;

/// Where new files go, and what they look like.
pub(super) struct Target<'a> {
    pub object_store: Arc<dyn ObjectStore>,
    /// The root that paths of new files are below.
    pub prefix: Path,
    /// The root, if it is on a local file system.
    pub local: Option<PathBuf>,
    /// The columns of a file: those of the table's files in their order, under stored names.
    pub schema: SchemaRef,
    /// A file of new rows is closed when it has about this many bytes.
    pub file_bytes: usize,
    /// Whether nothing but the files says which columns the table has.
    pub columns_are_in_files: bool,
    /// Says the path of a new file.
    pub path: &'a NewPath<'a>,
}

/// The path of a new file below the root, by its number, the file that it replaces, and its partition.
pub(super) type NewPath<'a> = dyn Fn(usize, Option<&DataFile>, &[ArrayRef]) -> Result<String> + Send + Sync + 'a;

/// A file that was written.
#[derive(Debug)]
pub(crate) struct NewFile {
    /// Path below the root. What stands in it is the name of the file as it is; [`place_of`] tells its place in the
    /// object store.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows per row group.
    pub row_groups: Vec<u32>,
    /// The file of the snapshot that it replaces; none for a file of rows that replace nothing.
    pub replaces: Option<usize>,
    /// One value for each partition column.
    pub partition_values: Vec<ArrayRef>,
    /// What Parquet says of it.
    pub metadata: Arc<ParquetMetaData>,
    /// The columns of floats that have NaN, by place: Parquet's statistics leave NaN out.
    pub with_nan: BTreeSet<usize>,
}

impl NewFile {
    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|rows| u64::from(*rows)).sum()
    }
}

/// The place of a file by its path below a root. Other than with [`Path::join`], a percent sign in the path is one in
/// the name.
pub(crate) fn place_of(prefix: &Path, path: &str) -> Result<Path> {
    let full = if prefix.as_ref().is_empty() { path.to_owned() } else { format!("{prefix}/{path}") };
    Path::parse(&full).map_err(|error| Error::internal(format!("{path} cannot be a path")).with_source(error))
}

impl Target<'_> {
    /// Removes files that nobody will see. Failing is harmless: they are only waste.
    pub(super) async fn discard(&self, files: &[NewFile]) {
        for file in files {
            let Ok(place) = place_of(&self.prefix, &file.path) else { continue };
            if let Err(error) = self.object_store.delete(&place).await {
                tracing::warn!(file = file.path, %error, "an unused data file could not be deleted");
            }
        }
    }

    /// Sees to it that files survive a crash: first their bytes, then their names, up to the root's own.
    pub(super) async fn sync(&self, files: &[NewFile]) -> Result<()> {
        let Some(root) = self.local.clone() else { return Ok(()) };
        let paths: Vec<PathBuf> = files.iter().map(|file| root.join(&file.path)).collect();
        let sync = move || {
            let mut folders = BTreeSet::new();
            for path in &paths {
                File::open(path)?.sync_all()?;
                folders.extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)));
            }
            if !paths.is_empty() {
                folders.extend(root.parent());
            }
            folders.into_iter().rev().try_for_each(sync_folder)
        };
        let synced: std::io::Result<()> = spawn_blocking(sync).await.map_err(|error| Error::task(&error))?;
        synced.map_err(unwritable)
    }
}

/// A file that is being written. What is not finished leaves nothing behind.
pub(super) struct FileWriter {
    path: String,
    partition_values: Vec<ArrayRef>,
    writer: AsyncArrowWriter<BufWriter>,
    with_nan: BTreeSet<usize>,
}

impl FileWriter {
    pub(super) fn start(
        target: &Target<'_>,
        number: usize,
        replaces: Option<&DataFile>,
        partition_values: &[ArrayRef],
        properties: &WriterProperties,
    ) -> Result<Self> {
        let path = (target.path)(number, replaces, partition_values)?;
        let object = BufWriter::new(Arc::clone(&target.object_store), place_of(&target.prefix, &path)?);
        let writer = AsyncArrowWriter::try_new(object, Arc::clone(&target.schema), Some(properties.clone()))
            .map_err(|error| Error::unsupported("Parquet cannot have the table's columns").with_source(error))?;
        Ok(Self { path, partition_values: partition_values.to_vec(), writer, with_nan: BTreeSet::new() })
    }

    pub(super) async fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.with_nan.extend(rows.columns().iter().enumerate().filter(|(_, column)| has_nan(column)).map(|(at, _)| at));
        self.writer.write(rows).await.map_err(unwritten)
    }

    /// Bytes that the file has by now, about.
    pub(super) fn bytes(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }

    pub(super) async fn finish(mut self, replaces: Option<usize>) -> Result<NewFile> {
        let metadata = self.writer.finish().await.map_err(unwritten)?;
        let row_groups = metadata.row_groups().iter().map(|group| u32::try_from(group.num_rows()));
        let row_groups = row_groups
            .collect::<Result<_, _>>()
            .map_err(|_| Error::unsupported("a row group has more than 4,294,967,295 rows"))?;
        Ok(NewFile {
            path: self.path,
            size: self.writer.bytes_written() as u64,
            row_groups,
            replaces,
            partition_values: self.partition_values,
            metadata: Arc::new(metadata),
            with_nan: self.with_nan,
        })
    }
}

fn has_nan(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Float32 => column.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => column.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    }
}

fn unwritten(error: ParquetError) -> Error {
    unwritable(error)
}

fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::io(
        "the new data files cannot be written (disk full, or no permission?); the table is as it was: make room and run it again",
    )
    .with_source(error)
}

/// How files of new rows are written.
pub(super) fn new_properties() -> WriterProperties {
    usual().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).set_max_row_group_bytes(Some(ROW_GROUP_BYTES)).build()
}

fn usual() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
}

/// As the file with this footer was written: the size of its row groups, and the compression of each column.
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
        properties = properties.set_column_compression(chunk.column_path().clone(), compression);
    }
    // Columns that the file lacks are compressed as most of it.
    if let Some((_, compression)) = compressions.into_values().max_by_key(|(columns, _)| *columns) {
        properties = properties.set_compression(compression);
    }
    properties.build()
}
