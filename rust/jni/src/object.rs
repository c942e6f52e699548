//! Bytes of a data file, as the Parquet reader asks for them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_table::{amended_footer, guarded_wait, of_listed};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

/// The first read takes so much of a file's end; most footers fit.
const FOOTER_BYTES: usize = 64 << 10;

/// A data file of known length in an object store.
#[derive(Clone, Debug)]
pub(crate) struct DataObject {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    /// The tag that its listing gave it, if it did.
    tag: Option<String>,
}

impl DataObject {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, path: Path, size: u64, tag: Option<String>) -> Self {
        Self { store, path, size, tag }
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for DataObject {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let this = &*self;
        let read = async move { this.store.get_range(&this.path, range).await.map_err(external) };
        of_listed(this.tag.as_deref(), read).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let this = &*self;
        let read = async move { this.store.get_ranges(&this.path, &ranges).await.map_err(external) };
        of_listed(this.tag.as_deref(), read).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let size = self.size;
            let reader =
                ParquetMetaDataReader::new().with_arrow_reader_options(options).with_prefetch_hint(Some(FOOTER_BYTES));
            amended_footer(guarded_wait(reader.load_and_finish(self, size)).await??, &[]).map(Arc::new)
        }
        .boxed()
    }
}
