//! Bytes of a Parquet file in an object store, as the Parquet reader requests them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::files::column_mapping::ColumnMapping;
use crate::files::trust::{FalseStatistics, amended_footer};
use crate::storage::damage::guarded_wait;
use crate::storage::local::of_listed;

/// The first read takes so much of a file's end; most footers fit.
const FOOTER_BYTES: usize = 64 << 10;

/// A file of known length, whose footer is the [amended](amended_footer) one. It never requests the length from the store.
#[derive(Clone, Debug)]
pub struct AmendedReader {
    store: Arc<dyn ObjectStore>,
    location: Path,
    size: u64,
    /// The tag that a listing gave the file, if it did. Other bytes at its place are an error.
    tag: Option<String>,
    mapping: Option<Arc<ColumnMapping>>,
    false_statistics: FalseStatistics,
}

impl AmendedReader {
    /// A file of `size` bytes, whose columns show the names that they are stored under.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, location: Path, size: u64, tag: Option<String>) -> Self {
        Self { store, location, size, tag, mapping: None, false_statistics: FalseStatistics::default() }
    }

    /// A file as it was listed.
    pub(crate) fn of(store: Arc<dyn ObjectStore>, listed: &ObjectMeta) -> Self {
        Self::new(store, listed.location.clone(), listed.size, listed.e_tag.clone())
    }

    /// The same with the names that the table shows, where these differ from the stored ones.
    #[must_use]
    pub fn with_mapping(self, mapping: Option<Arc<ColumnMapping>>) -> Self {
        Self { mapping, ..self }
    }

    /// The same without the statistics that are false.
    pub(crate) fn with_false_statistics(self, false_statistics: FalseStatistics) -> Self {
        Self { false_statistics, ..self }
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for AmendedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let this = &*self;
        let read = async move { this.store.get_range(&this.location, range).await.map_err(external) };
        of_listed(this.tag.as_deref(), read).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let this = &*self;
        let read = async move { this.store.get_ranges(&this.location, &ranges).await.map_err(external) };
        of_listed(this.tag.as_deref(), read).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let (size, mapping, caught) = (self.size, self.mapping.clone(), Arc::clone(&self.false_statistics));
            let reader =
                ParquetMetaDataReader::new().with_arrow_reader_options(options).with_prefetch_hint(Some(FOOTER_BYTES));
            let footer = guarded_wait(reader.load_and_finish(self, size)).await??;
            Ok(Arc::new(amended_footer(footer, &caught, mapping.as_deref())?))
        }
        .boxed()
    }
}
