//! Reading a data file that is written anew, batch by batch.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ParquetMetaData;

use crate::footer::Footer;

/// Opens a file with those of its columns that `wanted` names.
pub(super) fn open(
    store: Arc<dyn ObjectStore>,
    meta: &ObjectMeta,
    footer: &Footer,
    batch_rows: usize,
    wanted: impl Fn(&str) -> bool,
) -> ParquetResult<ParquetRecordBatchStream<DataObject>> {
    let object = DataObject { store, meta: meta.clone(), footer: Arc::clone(&footer.metadata) };
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(&footer.metadata), ArrowReaderOptions::new())?;
    let columns = footer.metadata.file_metadata().schema_descr();
    let roots = columns.root_schema().get_fields().iter().enumerate();
    let wanted = roots.filter(|(_, root)| wanted(root.name())).map(|(place, _)| place);
    let mask = ProjectionMask::roots(columns, wanted);
    let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(object, metadata);
    builder.with_projection(mask).with_batch_size(batch_rows).build()
}

/// A data file whose footer is known.
pub(super) struct DataObject {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    footer: Arc<ParquetMetaData>,
}

impl AsyncFileReader for DataObject {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        async move { self.store.get_range(&self.meta.location, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move { self.store.get_ranges(&self.meta.location, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let footer = Arc::clone(&self.footer);
        async move { Ok(footer) }.boxed()
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}
