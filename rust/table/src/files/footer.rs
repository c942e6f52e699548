//! The footer of a Parquet file: its metadata, schema and fingerprint.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::error::{Error, ErrorKind, Result, kind_of_storage};
use crate::files::file_version::FileVersion;
use crate::files::trust::amended_footer;
use crate::storage::damage::guarded;
use crate::storage::file_time::is_young;
use crate::storage::fingerprint::fingerprint;
use crate::storage::local::of_listed;
use crate::values::fields::hollow;
use crate::values::int96::FileCalendar;
use crate::values::schema::normalize;

/// One read of this many bytes gets the whole footer of most files.
const TAIL_BYTES: u64 = 64 * 1024;
/// Length of the metadata and magic, at the very end.
const SUFFIX_BYTES: usize = 8;
/// Footers that a table remembers.
const CACHE_ENTRIES: usize = 100_000;

/// What the end of a Parquet file says.
#[derive(Clone, Debug)]
pub(crate) struct Footer {
    pub metadata: Arc<ParquetMetaData>,
    /// Schema of the file as the table sees it.
    pub schema: SchemaRef,
    /// Fingerprint of the metadata's bytes.
    pub hash: u64,
    /// Rows per row group.
    pub row_groups: Vec<u32>,
    /// Fields that have values where their struct is NULL, see [`hollow`].
    pub hollow: Arc<[String]>,
}

impl Footer {
    /// Reads the footer of the file `meta`, called `name` in errors.
    pub(crate) async fn read(store: &dyn ObjectStore, meta: &ObjectMeta, name: &str) -> Result<Self> {
        let size = meta.size;
        let tail_start = size.saturating_sub(TAIL_BYTES);
        let tail = read_range(store, meta, tail_start..size, name).await?;
        let damaged = |what: &str| {
            Error::corrupt(format!(
                "the data file {name} {what}; it may be cut short or still be written: write it again or remove it"
            ))
        };
        let Some((_, suffix)) = tail.split_last_chunk::<SUFFIX_BYTES>() else {
            return Err(damaged("is too short for Parquet"));
        };
        let [a, b, c, d, magic @ ..] = *suffix;
        if &magic == b"PARE" {
            return Err(Error::unsupported(format!(
                "the data file {name} is encrypted; Lakemark reads plain Parquet only"
            )));
        }
        if &magic != b"PAR1" {
            return Err(damaged("does not end as Parquet does"));
        }
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let end = size - SUFFIX_BYTES as u64;
        let Some(start) = end.checked_sub(length) else {
            return Err(damaged("has a footer longer than itself"));
        };
        let bytes = if start >= tail_start {
            let from = usize::try_from(start - tail_start).unwrap_or(usize::MAX);
            tail.slice(from.min(tail.len())..tail.len() - SUFFIX_BYTES)
        } else {
            read_range(store, meta, start..end, name).await?
        };
        let metadata = guarded(|| ParquetMetaDataReader::decode_metadata(&bytes))
            .and_then(|decoded| decoded)
            .map_err(|error| damaged("has a footer that cannot be read").with_source(error))?;
        let no_arrow =
            |error| Error::unsupported(format!("the schema of {name} cannot be read as Arrow")).with_source(error);
        let metadata = amended_footer(metadata, &[], None).map_err(no_arrow)?;
        let file = metadata.file_metadata();
        let columns = file.schema_descr();
        // Damaged types are a panic of the converter.
        let schema = guarded(|| parquet_to_arrow_schema(columns, file.key_value_metadata()))
            .and_then(|schema| schema)
            .map_err(no_arrow)?;
        let schema = normalize(&schema, FileCalendar::of(file), columns);
        let row_groups = metadata.row_groups().iter().map(|group| u32::try_from(group.num_rows()));
        let row_groups =
            row_groups.collect::<Result<Vec<u32>, _>>().map_err(|_| damaged("has an impossible number of rows"))?;
        let hollow = hollow(columns).into();
        Ok(Self { schema, hash: fingerprint(&bytes), row_groups, hollow, metadata: Arc::new(metadata) })
    }
}

/// Reads part of a data file; a short read means that the file is not what the listing said.
pub(crate) async fn read_range(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    range: std::ops::Range<u64>,
    name: &str,
) -> Result<bytes::Bytes> {
    if range.is_empty() {
        return Ok(bytes::Bytes::new());
    }
    let expected = range.end - range.start;
    let read = of_listed(meta.e_tag.as_deref(), store.get_range(&meta.location, range));
    let bytes = read.await.map_err(|error| {
        let kind = kind_of_storage(&error);
        let text = match kind {
            ErrorKind::NotFound => format!("the data file {name} vanished while it was read; try again"),
            ErrorKind::Conflict => format!("the data file {name} changed while it was read; try again"),
            _ => format!("the data file {name} cannot be read"),
        };
        Error::new(kind, text).with_source(error)
    })?;
    if bytes.len() as u64 != expected {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("the data file {name} was cut short while it was read; write it again or remove it"),
        ));
    }
    Ok(bytes)
}

/// What a snapshot needs of a footer.
#[derive(Clone, Debug)]
pub(crate) struct FileSummary {
    pub schema: SchemaRef,
    pub row_groups: Vec<u32>,
    /// Fields that have values where their struct is NULL.
    pub hollow: Arc<[String]>,
}

/// Schemas of files that were opened before.
#[derive(Debug, Default)]
pub(crate) struct FooterCache(Mutex<HashMap<FileVersion, FileSummary>>);

impl FooterCache {
    /// The shape of a file, from memory if it was read before.
    pub(crate) async fn shape(&self, store: &dyn ObjectStore, meta: &ObjectMeta, name: &str) -> Result<FileSummary> {
        let key = FileVersion::of(meta);
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.clone());
        }
        let was_young = is_young(meta);
        let footer = Footer::read(store, meta, name).await?;
        let shape = FileSummary { schema: footer.schema, row_groups: footer.row_groups, hollow: footer.hollow };
        if was_young {
            return Ok(shape);
        }
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_ENTRIES {
            cache.clear();
        }
        cache.insert(key, shape.clone());
        Ok(shape)
    }
}
