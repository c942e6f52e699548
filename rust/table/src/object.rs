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

use crate::moments::with_moments;
use crate::names::ColumnNames;

/// The first read takes so much of a file's end; most footers fit.
const FOOTER_BYTES: usize = 64 << 10;

/// A file of known length. Readers of one whose footer is known never ask for that.
#[derive(Clone, Debug)]
pub(crate) struct DataObject {
    pub store: Arc<dyn ObjectStore>,
    pub meta: ObjectMeta,
    /// The names that its columns show, where those are others.
    pub names: Option<Arc<ColumnNames>>,
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for DataObject {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move { self.store.get_range(&self.meta.location, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move { self.store.get_ranges(&self.meta.location, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let (size, names) = (self.meta.size, self.names.clone());
            let reader =
                ParquetMetaDataReader::new().with_arrow_reader_options(options).with_prefetch_hint(Some(FOOTER_BYTES));
            let footer = with_moments(reader.load_and_finish(self, size).await?)?;
            Ok(Arc::new(match names {
                Some(names) => names.shown_footer(footer)?,
                None => footer,
            }))
        }
        .boxed()
    }
}
