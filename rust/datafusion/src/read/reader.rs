//! How data files are read: always with the page index, and 96-bit timestamps as microseconds of UTC.
//!
//! DataFusion's reader loads the page index only for a scan that prunes pages by a predicate. A scan whose rows an index selected has no
//! predicate, and would read whole column chunks for a handful of rows. Footers are kept in the session's metadata cache, under keys that
//! contain the table's root. A path alone would be ambiguous between object stores.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::{CachedParquetMetaData, DFParquetMetadata};
use datafusion::datasource::physical_plan::parquet::{DefaultParquetFileReaderFactory, ParquetFileReaderFactory};
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use lakemark_table::{ColumnMapping, FalseStatistics, Snapshot, amended_footer, guarded_wait, is_young, of_listed};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use crate::read::access::Pages;
use crate::read::damage::{named, pages_are_read_of};
use crate::read::memory_gauge::MemoryGauge;

/// How many footers are fetched at once.
pub(crate) const CONCURRENT_FOOTERS: usize = 32;

/// Footers of one table's files, through the session's cache.
#[derive(Clone)]
pub(crate) struct Footers {
    store: Arc<dyn ObjectStore>,
    cache: Arc<FileMetadataCache>,
    root: Arc<str>,
    /// The names that columns have in the files, where those are others.
    names: Option<Arc<ColumnMapping>>,
    /// The columns of files whose statistics are false.
    caught: Arc<HashMap<Path, FalseStatistics>>,
    /// Footers that a scan has read, and that the session does not remember.
    read: Arc<HashMap<Path, Arc<ParquetMetaData>>>,
    /// Tracks what is kept in memory of the files, where that is limited.
    memory: Option<MemoryGauge>,
}

impl fmt::Debug for Footers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Footers").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Footers {
    pub(crate) fn new(snapshot: &Snapshot, cache: Arc<FileMetadataCache>) -> Self {
        let names = snapshot.column_names().cloned();
        let caught = snapshot.files_with_false_statistics();
        let caught = caught.map(|file| (file.meta.location.clone(), Arc::clone(&file.false_statistics))).collect();
        let root = snapshot.root_url().as_str().into();
        let (caught, read) = (Arc::new(caught), Arc::default());
        Self { store: snapshot.object_store(), cache, root, names, caught, read, memory: None }
    }

    /// The footers of runs, for which is tracked what is kept in memory.
    pub(crate) fn of_runs(&self, store: Arc<dyn ObjectStore>, memory: MemoryGauge) -> Self {
        Self { store, root: format!("pending of {}", self.root).into(), memory: Some(memory), ..self.clone() }
    }

    /// The same with footers that were read for a scan, by the places of their files. Neither the footers of young files are remembered, nor
    /// those that the session has no room for.
    pub(crate) fn with_read(&self, read: HashMap<Path, Arc<ParquetMetaData>>) -> Self {
        Self { read: Arc::new(read), ..self.clone() }
    }

    /// Where the files are.
    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The name under which caches of the session have what is read of a footer. The caches themselves go by size and time.
    pub(crate) fn key_of(&self, meta: &ObjectMeta) -> Path {
        // A column that is renamed has another name in the same file from then on.
        let names = self.names.as_ref().map_or(0, |names| names.fingerprint());
        let tag = meta.e_tag.as_deref().unwrap_or_default();
        Path::from(format!("{}#{}#{names:x}#{tag}#{:?}", self.root, meta.location, self.caught_of(meta)))
    }

    fn caught_of(&self, meta: &ObjectMeta) -> &[u32] {
        self.caught.get(&meta.location).map_or(&[][..], |caught| caught)
    }

    /// The footer of a file, if nothing has to be read for it.
    pub(crate) fn remembered(&self, meta: &ObjectMeta) -> Option<Arc<ParquetMetaData>> {
        if let Some(read) = self.read.get(&meta.location) {
            return Some(Arc::clone(read));
        }
        let entry = self.cache.get(&self.key_of(meta)).filter(|entry| entry.is_valid_for(meta))?;
        let cached = entry.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()?;
        Some(Arc::clone(cached.parquet_metadata()))
    }

    /// Whether the pages of a file have an index; none if the session does not remember its footer.
    pub(crate) fn pages_of(&self, meta: &ObjectMeta) -> Option<Pages> {
        self.remembered(meta).map(|footer| Pages::of(&footer))
    }

    /// The footer of a file with its page index, if the file has one.
    pub(crate) async fn fetch(&self, meta: &ObjectMeta) -> Result<Arc<ParquetMetaData>> {
        if let Some(remembered) = self.remembered(meta) {
            return Ok(remembered);
        }
        let key = self.key_of(meta);
        let was_young = is_young(meta);
        let footer =
            DFParquetMetadata::new(self.store.as_ref(), meta).with_page_index_policy(Some(PageIndexPolicy::Optional));
        let fetched = guarded_wait(of_listed(meta.e_tag.as_deref(), footer.fetch_metadata())).await?;
        let metadata = fetched.map_err(|error| named(error, meta.location.as_ref()))?;
        let metadata = Arc::unwrap_or_clone(metadata);
        let metadata = Arc::new(amended_footer(metadata, self.caught_of(meta), self.names.as_deref())?);
        if !was_young {
            let entry = CachedParquetMetaData::new(Arc::clone(&metadata));
            self.cache.put(&key, CachedFileMetadataEntry::new(meta.clone(), Arc::new(entry)));
        }
        Ok(metadata)
    }

    /// Rows per row group of a file.
    pub(crate) async fn row_groups(&self, meta: &ObjectMeta) -> Result<Vec<u32>> {
        let metadata = self.fetch(meta).await?;
        metadata
            .row_groups()
            .iter()
            .map(|group| {
                u32::try_from(group.num_rows()).map_err(|_| {
                    datafusion::common::exec_datafusion_err!("{} has a row group of impossible length", meta.location)
                })
            })
            .collect()
    }
}

impl ParquetFileReaderFactory for Footers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let meta = file.object_meta.clone();
        let data = DefaultParquetFileReaderFactory::new(Arc::clone(&self.store))
            .create_reader(partition, file, size_hint, metrics)?;
        Ok(Box::new(FooterAwareReader { data, meta, footers: self.clone() }))
    }
}

struct FooterAwareReader {
    data: Box<dyn AsyncFileReader + Send>,
    meta: ObjectMeta,
    footers: Footers,
}

fn counted(memory: Option<&MemoryGauge>, bytes: Bytes) -> Bytes {
    match memory {
        Some(memory) => memory.track(bytes),
        None => bytes,
    }
}

impl AsyncFileReader for FooterAwareReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let memory = self.footers.memory.clone();
        let read = of_listed(self.meta.e_tag.as_deref(), self.data.get_bytes(range));
        read.map_ok(move |bytes| counted(memory.as_ref(), bytes)).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        pages_are_read_of(&self.meta.location);
        let memory = self.footers.memory.clone();
        let read = of_listed(self.meta.e_tag.as_deref(), self.data.get_byte_ranges(ranges));
        read.map_ok(move |parts| parts.into_iter().map(|bytes| counted(memory.as_ref(), bytes)).collect()).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move { self.footers.fetch(&self.meta).await.map_err(|error| ParquetError::External(Box::new(error))) }
            .boxed()
    }
}
