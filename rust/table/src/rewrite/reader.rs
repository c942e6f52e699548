//! Reading a data file that is written anew, batch by batch.

use std::sync::Arc;

use object_store::ObjectStore;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::{ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::errors::{ParquetError, Result as ParquetResult};

use crate::error::{Error, ErrorKind, Result, kind_of_parquet};
use crate::files::amended_reader::AmendedReader;
use crate::files::footer::Footer;
use crate::snapshot::DataFile;
use crate::storage::damage::{Guarded, damaged};

/// Rows that are read and written at a time.
pub(super) const BATCH_ROWS: usize = 8 * 1024;

/// A data file whose footer was read.
pub(super) struct OpenedFile {
    pub store: Arc<dyn ObjectStore>,
    pub file: DataFile,
    pub footer: Footer,
}

impl OpenedFile {
    /// Reads the footer.
    pub(super) async fn open(store: Arc<dyn ObjectStore>, file: &DataFile) -> Result<Self> {
        let footer = Footer::read(store.as_ref(), &file.meta, &file.path).await?;
        Ok(Self { store, file: file.clone(), footer })
    }

    /// Whether the file has a column that `wanted` names.
    pub(super) fn has_column(&self, wanted: impl Fn(&str) -> bool) -> bool {
        let columns = self.footer.metadata.file_metadata().schema_descr();
        columns.root_schema().get_fields().iter().any(|root| wanted(root.name()))
    }

    /// Reads row groups, or the rows of them that `selection` has, with those of the file's columns that `wanted` names.
    pub(super) fn batches(
        &self,
        row_groups: Vec<usize>,
        selection: Option<RowSelection>,
        wanted: impl Fn(&str) -> bool,
    ) -> ParquetResult<Guarded<ParquetRecordBatchStream<AmendedReader>>> {
        let file = AmendedReader::of(Arc::clone(&self.store), &self.file.meta);
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(&self.footer.metadata), ArrowReaderOptions::new())?;
        let columns = self.footer.metadata.file_metadata().schema_descr();
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

    /// The error of a file that cannot be read on.
    pub(super) fn unreadable(&self, error: ParquetError) -> Error {
        let name = &self.file.path;
        match kind_of_parquet(&error) {
            ErrorKind::Corrupt => damaged(name, error),
            kind => Error::new(kind, format!("the data file {name} cannot be read; try again")).with_source(error),
        }
    }
}
