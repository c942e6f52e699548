//! How the pieces of a scan are read: alone as they were planned, or by a pass for all who want the row group.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, ParquetFileReaderFactory};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use lakemark_index::RowSet;
use object_store::path::Path;

use super::file_rows::access_of;
use super::pieces::{OutputColumn, ScanColumns, SharedFile};
use super::reader_metrics::ReaderMetrics;
use crate::read::damage::NamedRows;
use crate::read::reader::Footers;
use crate::read::row_filter::row_numbered;
use crate::share::passes::unit::UnitKey;
use crate::share::prediction::Piece;

/// Reads pieces of a scan.
pub(super) struct PieceReader {
    /// The scan as it was planned, without its files.
    own: FileScanConfig,
    schema: SchemaRef,
    /// Columns of files, without partition columns.
    plain: TableSchema,
    /// The same with the number of each row behind all columns; none if the table has a column of that name.
    numbered: Option<TableSchema>,
    options: TableParquetOptions,
    factory: Arc<dyn ParquetFileReaderFactory>,
    metrics: Arc<ReaderMetrics>,
    /// The files by their names.
    files: HashMap<Path, SharedFile>,
    output: Vec<OutputColumn>,
}

impl PieceReader {
    pub(super) fn new(
        config: &FileScanConfig,
        source: &ParquetSource,
        files: Vec<SharedFile>,
        columns: ScanColumns,
        footers: Footers,
    ) -> Result<Self> {
        let in_files = source.table_schema().file_schema();
        let factory: Arc<dyn ParquetFileReaderFactory> = Arc::new(footers);
        let mut own = config.clone();
        // Each turn of the scan has files of its own.
        own.file_groups = Vec::new();
        own.file_source = Arc::new(source.clone().with_parquet_file_reader_factory(Arc::clone(&factory)));
        Ok(Self {
            schema: config.projected_schema()?,
            own,
            plain: TableSchema::from(Arc::clone(in_files)),
            numbered: row_numbered(in_files),
            options: source.table_parquet_options().clone(),
            factory,
            metrics: Arc::default(),
            files: files.into_iter().map(|file| (file.unit.meta.location.clone(), file)).collect(),
            output: columns.output,
        })
    }

    /// What the scan gives.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What the readers of passes tell that the scan began.
    pub(super) fn pass_metrics(&self) -> MetricsSet {
        self.metrics.all()
    }

    /// Rows of a row group for a pass, with the columns at these places of files.
    pub(super) fn decoded(
        &self,
        unit: &UnitKey,
        rows: &RowSet,
        places: Vec<usize>,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let in_files = self.plain.file_schema().fields().len();
        let schema = if places.iter().any(|&place| place >= in_files) { self.numbered.as_ref() } else { None };
        let mut plan = ParquetAccessPlan::new_none(self.file(unit)?.rows.row_groups());
        plan.set(unit.row_group, access_of(rows));
        let file = PartitionedFile::new_from_meta(unit.file.meta.clone()).with_extension(plan);
        let source = ParquetSource::new(schema.unwrap_or(&self.plain).clone())
            .with_table_parquet_options(self.options.clone())
            .with_parquet_file_reader_factory(Arc::clone(&self.factory));
        let metrics = source.metrics().clone();
        let config = FileScanConfigBuilder::new(self.own.object_store_url.clone(), Arc::new(source))
            .with_file_groups(vec![FileGroup::new(vec![file])])
            .with_batch_size(Some(unit.file.reading.batch_rows))
            .with_projection_indices(Some(places))?
            .build();
        let scan = DataSourceExec::from_data_source(config);
        // Whoever polls a pass whose decoder panics would have the panic.
        let named = NamedRows::of(scan.execute(0, Arc::clone(context))?);
        Ok(self.metrics.counted(Box::pin(RecordBatchStreamAdapter::new(scan.schema(), named)), metrics))
    }

    /// Pieces that the scan reads alone, as one stream.
    pub(super) fn alone(
        &self,
        pieces: &[(UnitKey, Piece)],
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut read: Vec<(&SharedFile, ParquetAccessPlan)> = Vec::new();
        for (unit, piece) in pieces {
            let file = self.file(unit)?;
            let access = piece.other_rows().map_or_else(|| file.rows.access(unit.row_group), access_of);
            match read.last_mut() {
                Some((last, plan)) if std::ptr::eq(*last, file) => plan.set(unit.row_group, access),
                _ => {
                    let mut plan = ParquetAccessPlan::new_none(file.rows.row_groups());
                    plan.set(unit.row_group, access);
                    read.push((file, plan));
                }
            }
        }
        let files = read.into_iter().map(|(file, plan)| file.file.clone().with_extension(plan)).collect();
        let mut config = self.own.clone();
        config.file_groups = vec![FileGroup::new(files)];
        DataSourceExec::from_data_source(config).execute(0, Arc::clone(context))
    }

    /// What the scan gives for rows of a page, with the columns that it reads.
    pub(super) fn output(&self, unit: &UnitKey, page: &RecordBatch) -> Result<RecordBatch> {
        let values = &self.file(unit)?.file.partition_values;
        let column = |(column, field): (&OutputColumn, &FieldRef)| -> Result<ArrayRef> {
            let found = match *column {
                OutputColumn::Read(place) => page.columns().get(place).cloned(),
                OutputColumn::Constant(place) => {
                    let value = values.get(place).map(|value| value.cast_to(field.data_type())).transpose()?;
                    value.map(|value| value.to_array_of_size(page.num_rows())).transpose()?
                }
            };
            found.ok_or_else(|| internal_datafusion_err!("a page has no column {}", field.name()))
        };
        let columns = self.output.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(page.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn file(&self, unit: &UnitKey) -> Result<&SharedFile> {
        let name = &unit.file.meta.location;
        self.files.get(name).ok_or_else(|| internal_datafusion_err!("{name} is no file of the scan"))
    }
}
