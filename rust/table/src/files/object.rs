//! Bytes of a Parquet file in an object store, as the Parquet reader asks for them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
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

/// A file of known length. Readers of one whose footer is known never ask for that.
#[derive(Clone, Debug)]
pub(crate) struct DataObject {
    pub store: Arc<dyn ObjectStore>,
    pub meta: ObjectMeta,
    /// The names that its columns show, where those are others.
    pub names: Option<Arc<ColumnMapping>>,
    /// Columns whose statistics are false.
    pub caught: FalseStatistics,
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for DataObject {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let this = &*self;
        let read = async move { this.store.get_range(&this.meta.location, range).await.map_err(external) };
        of_listed(this.meta.e_tag.as_deref(), read).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let this = &*self;
        let read = async move { this.store.get_ranges(&this.meta.location, &ranges).await.map_err(external) };
        of_listed(this.meta.e_tag.as_deref(), read).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let (size, names, caught) = (self.meta.size, self.names.clone(), Arc::clone(&self.caught));
            let reader =
                ParquetMetaDataReader::new().with_arrow_reader_options(options).with_prefetch_hint(Some(FOOTER_BYTES));
            let footer = guarded_wait(reader.load_and_finish(self, size)).await??;
            let footer = amended_footer(footer, &caught)?;
            Ok(Arc::new(match names {
                Some(names) => names.logical_footer(footer)?,
                None => footer,
            }))
        }
        .boxed()
    }
}
