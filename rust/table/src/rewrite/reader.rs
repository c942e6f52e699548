//! Reading a data file that is written anew, batch by batch.

use std::sync::Arc;

use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::{ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::errors::Result as ParquetResult;

use crate::files::amended_reader::AmendedReader;
use crate::files::footer::Footer;
use crate::storage::damage::Guarded;

/// Rows that are read and written at a time.
pub(super) const BATCH_ROWS: usize = 8 * 1024;

/// Opens row groups of a file, or the rows of them that `selection` has, with those of its columns that `wanted` names.
pub(super) fn open(
    store: Arc<dyn ObjectStore>,
    meta: &ObjectMeta,
    footer: &Footer,
    row_groups: Vec<usize>,
    selection: Option<RowSelection>,
    wanted: impl Fn(&str) -> bool,
) -> ParquetResult<Guarded<ParquetRecordBatchStream<AmendedReader>>> {
    let file = AmendedReader::of(store, meta);
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(&footer.metadata), ArrowReaderOptions::new())?;
    let columns = footer.metadata.file_metadata().schema_descr();
    let roots = columns.root_schema().get_fields().iter().enumerate();
    let wanted = roots.filter(|(_, root)| wanted(root.name())).map(|(place, _)| place);
    let mask = ProjectionMask::roots(columns, wanted);
    let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(file, metadata).with_row_groups(row_groups);
    let builder = match selection {
        Some(selection) => builder.with_row_selection(selection),
        None => builder,
    };
    builder.with_projection(mask).with_batch_size(BATCH_ROWS).build().map(Guarded::new)
}
