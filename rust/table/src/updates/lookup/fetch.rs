//! Rows of Parquet files: those at given positions, and those with given keys.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lakemark_index::{RowSet, key_type_of};
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;

use crate::error::{Error, ErrorKind, Result, kind_of_parquet};
use crate::files::amended_reader::AmendedReader;
use crate::files::column_mapping::ColumnMapping;
use crate::files::columns::selection;
use crate::files::trust::FalseStatistics;
use crate::snapshot::{DataFile, Snapshot};
use crate::storage::damage::Guarded;
use crate::updates::changes::own_columns::OwnColumns;
use crate::updates::changes::phase::MigrationPhase;
use crate::updates::changes::rows::{batch, table_columns};
use crate::updates::key::{KeyColumns, KeySet};
use crate::values::conform::conform;
use crate::values::int96::FileCalendar;
use crate::values::schema::normalize;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// A partition column and its value in a file.
#[derive(Clone, Debug)]
pub(crate) struct PartitionConstant {
    pub field: FieldRef,
    /// An array of length 1.
    pub value: ArrayRef,
}

/// A Parquet file to read rows of: a data file or a run.
#[derive(Clone, Debug)]
pub(crate) struct RowFile {
    pub store: Arc<dyn ObjectStore>,
    pub meta: ObjectMeta,
    /// For people.
    pub name: String,
    /// Partition columns with their values.
    pub constants: Vec<PartitionConstant>,
    pub names: Option<Arc<ColumnMapping>>,
    /// Columns whose statistics are false.
    pub caught: FalseStatistics,
}

impl RowFile {
    /// A data file of a snapshot.
    pub(crate) fn of(snapshot: &Snapshot, file: &DataFile) -> Self {
        let fields = snapshot.partition_columns().iter().cloned().map(Arc::new);
        let constants = fields.zip(file.partition_values.iter().cloned());
        Self {
            store: snapshot.object_store(),
            meta: file.meta.clone(),
            name: file.path.clone(),
            constants: constants.map(|(field, value)| PartitionConstant { field, value }).collect(),
            names: snapshot.column_names().cloned(),
            caught: Arc::clone(&file.false_statistics),
        }
    }

    /// Reads the footer with its page index.
    pub(crate) async fn open(&self) -> Result<OpenFile> {
        let mut input = AmendedReader::of(Arc::clone(&self.store), &self.meta)
            .with_mapping(self.names.clone())
            .with_false_statistics(Arc::clone(&self.caught));
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let footer = input.get_metadata(Some(&options)).await.map_err(|error| self.unreadable(error))?;
        let metadata = ArrowReaderMetadata::try_new(footer, options).map_err(|error| self.unreadable(error))?;
        let row_groups = metadata.metadata().row_groups().iter().map(|group| u32::try_from(group.num_rows()));
        let row_groups = row_groups
            .collect::<Result<Vec<u32>, _>>()
            .map_err(|_| Error::corrupt(format!("{} has a row group of impossible length", self.name)))?;
        Ok(OpenFile { file: self.clone(), input, metadata, row_groups, own: None })
    }

    /// Reads the footer of a run, whose rows say which columns they set. The rows are read as they were written until
    /// [`OpenFile::in_phase`].
    pub(crate) async fn open_run(&self) -> Result<OpenFile> {
        let opened = self.open().await?;
        let own = Some(Arc::new(OwnColumns::of(opened.metadata.schema(), None)));
        Ok(OpenFile { own, ..opened })
    }

    /// The file is not there, its bytes are no Parquet, or the storage fails.
    fn unreadable(&self, error: ParquetError) -> Error {
        let kind = kind_of_parquet(&error);
        let name = &self.name;
        let text = match kind {
            ErrorKind::Conflict => format!("{name} changed while it was read; try again"),
            _ => format!("the rows of {name} cannot be read"),
        };
        Error::new(kind, text).with_source(error)
    }
}

/// A file whose footer was read.
pub(crate) struct OpenFile {
    file: RowFile,
    input: AmendedReader,
    metadata: ArrowReaderMetadata,
    pub row_groups: Vec<u32>,
    /// For a run: the columns that its sets are about.
    own: Option<Arc<OwnColumns>>,
}

impl OpenFile {
    /// A run whose rows are read as they are in a phase.
    pub(crate) fn in_phase(self, phase: MigrationPhase) -> Self {
        let own = self.own.is_some().then(|| Arc::new(OwnColumns::of(self.metadata.schema(), Some(phase))));
        Self { own, ..self }
    }

    /// How many columns of the table a run has.
    pub(crate) fn table_columns(&self) -> usize {
        table_columns(self.metadata.schema())
    }

    pub(crate) fn rows(&self) -> u32 {
        self.row_groups.iter().copied().fold(0, u32::saturating_add)
    }

    /// The value that the footer has under this name.
    pub(crate) fn metadata_value(&self, name: &str) -> Option<&str> {
        let said = self.metadata.metadata().file_metadata().key_value_metadata()?;
        said.iter().find(|entry| entry.key == name)?.value.as_deref()
    }

    /// The columns that the file stores.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// The columns that the file stores, as those of a table. Columns with dates of another calendar are tagged.
    pub(crate) fn schema_with_calendar(&self) -> SchemaRef {
        let file = self.metadata.metadata().file_metadata();
        normalize(self.schema(), FileCalendar::of(file), file.schema_descr())
    }

    pub(crate) fn meta(&self) -> &ObjectMeta {
        &self.file.meta
    }

    /// The rows at these positions as batches of `schema`, in order; all rows without any positions.
    pub(crate) fn read(
        &self,
        schema: &SchemaRef,
        rows: Option<&RowSet>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let stored = self.metadata.schema().fields().iter().enumerate();
        let is_constant = |name: &str| self.file.constants.iter().any(|constant| constant.field.name() == name);
        let wanted = |field: &Field| schema.field_with_name(field.name()).is_ok() && !is_constant(field.name());
        let roots: Vec<usize> = stored.filter(|(_, field)| wanted(field)).map(|(place, _)| place).collect();
        let mut builder = ParquetRecordBatchStreamBuilder::new_with_metadata(self.input.clone(), self.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        if let Some(rows) = rows {
            let selected = selection(&self.row_groups, rows);
            builder = builder.with_row_groups(selected.row_groups).with_row_selection(selected.rows);
        }
        let stream = builder
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map(Guarded::new)
            .map_err(|error| self.file.unreadable(error))?;
        let (file, schema, own) = (self.file.clone(), Arc::clone(schema), self.own.clone());
        let conformed = stream.map(move |batch| {
            let batch = batch.map_err(|error| file.unreadable(error))?;
            let rows = fitted(&batch, &schema, &file)?;
            match &own {
                Some(own) => own.renumbered(rows),
                None => Ok(rows),
            }
        });
        Ok(conformed.boxed())
    }

    /// The rows at these positions in one batch.
    pub(crate) async fn collect(&self, schema: &SchemaRef, rows: Option<&RowSet>) -> Result<RecordBatch> {
        if rows.is_some_and(RowSet::is_empty) {
            return Ok(RecordBatch::new_empty(Arc::clone(schema)));
        }
        let batches: Vec<RecordBatch> = self.read(schema, rows)?.try_collect().await?;
        arrow::compute::concat_batches(schema, &batches)
            .map_err(|error| Error::internal("rows cannot be put together").with_source(error))
    }

    /// The rows whose key is one of `keys`, among `among` or, without it, among all rows. Pages whose bounds have none of the keys are not
    /// read.
    pub(crate) async fn rows_with(&self, key: &KeyColumns, keys: &KeySet, among: Option<&RowSet>) -> Result<RowSet> {
        let universe = self.rows();
        if keys.is_empty() {
            return Ok(RowSet::empty(universe));
        }
        let mut candidates = self.pages_with(key, keys)?;
        if let Some(among) = among {
            candidates = candidates.and(among);
        }
        if candidates.is_empty() {
            return Ok(RowSet::empty(universe));
        }
        let mut batches = self.read(&key.schema(), Some(&candidates))?;
        let (mut positions, mut found) = (candidates.iter(), Vec::new());
        while let Some(batch) = batches.try_next().await? {
            let rows = key.encode(&batch)?;
            found.extend(
                rows.iter().zip(&mut positions).filter(|(row, _)| keys.contains(row.as_ref())).map(|(_, at)| at),
            );
        }
        Ok(RowSet::from_rows(found, universe))
    }

    /// The rows of pages that may have one of the keys, by the bounds of the first key column.
    fn pages_with(&self, key: &KeyColumns, keys: &KeySet) -> Result<RowSet> {
        let universe = self.rows();
        let (Some(name), Some(of)) = (key.names.first(), key.types.first()) else {
            return Ok(RowSet::full(universe));
        };
        if keys.may_begin_with_null() {
            return Ok(RowSet::full(universe));
        }
        if let Some(constant) = self.file.constants.iter().find(|constant| constant.field.name() == name) {
            let bound = key.encode_first(&constant.value)?;
            let meets = bound.iter().next().is_some_and(|bound| keys.meets(bound.as_ref(), bound.as_ref()));
            return Ok(if meets { RowSet::full(universe) } else { RowSet::empty(universe) });
        }
        let Some(bounds) = self.bounds(name, of) else { return Ok(RowSet::full(universe)) };
        let (low, high) = (key.encode_first(&bounds.low)?, key.encode_first(&bounds.high)?);
        let mut chosen = lakemark_index::RowSetBuilder::new(universe);
        for (place, ((rows, low), high)) in bounds.rows.iter().zip(low.iter()).zip(high.iter()).enumerate() {
            let unknown = bounds.low.is_null(place) || bounds.high.is_null(place);
            if unknown || keys.meets(low.as_ref(), high.as_ref()) {
                chosen.insert_range(rows.clone());
            }
        }
        Ok(chosen.finish())
    }

    /// Whether rows that were sorted by the key's types in the file are also in the order of the key's types in the table now.
    pub(crate) fn is_sorted_by(&self, key: &KeyColumns) -> bool {
        let keeps = |(name, of): (&String, &DataType)| {
            self.metadata.schema().field_with_name(name).is_ok_and(|stored| keeps_order(stored.data_type(), of))
        };
        key.names.iter().zip(&key.types).all(keeps)
    }

    /// Bounds of the pages of a column, as values of a type. None if the file has no bounds, or if a bound is no value of that type.
    pub(crate) fn bounds(&self, column: &str, of: &DataType) -> Option<PageBounds> {
        self.bounds_by(column, of, |converter| {
            let metadata = self.metadata.metadata();
            let (columns, offsets) = (metadata.column_index()?, metadata.offset_index()?);
            let leaf = converter.parquet_column_index()?;
            let groups: Vec<usize> = (0..self.row_groups.len()).collect();
            let low = converter.data_page_mins(columns, offsets, &groups).ok()?;
            let high = converter.data_page_maxes(columns, offsets, &groups).ok()?;
            let (mut rows, mut start) = (Vec::new(), 0u32);
            for (group, length) in offsets.iter().zip(&self.row_groups) {
                let locations = group.get(leaf)?.page_locations();
                let firsts: Vec<u32> =
                    locations.iter().map(|page| u32::try_from(page.first_row_index).ok()).collect::<Option<_>>()?;
                let ends = firsts.iter().skip(1).copied().chain(std::iter::once(*length));
                rows.extend(firsts.iter().zip(ends).map(|(first, end)| start + first..start + end));
                start += length;
            }
            Some(PageBounds { rows, low, high })
        })
    }

    /// [`Self::bounds`] of row groups in the place of pages, for files that do not have those of pages.
    pub(crate) fn row_group_bounds(&self, column: &str, of: &DataType) -> Option<PageBounds> {
        self.bounds_by(column, of, |converter| {
            let groups = self.metadata.metadata().row_groups();
            let (low, high) = (converter.row_group_mins(groups).ok()?, converter.row_group_maxes(groups).ok()?);
            let ends = self.row_groups.iter().scan(0u32, |end, rows| {
                *end += rows;
                Some(*end)
            });
            let rows = ends.zip(&self.row_groups).map(|(end, rows)| end - rows..end).collect();
            Some(PageBounds { rows, low, high })
        })
    }

    /// Bounds that `read` finds in the footer, as values of a type.
    fn bounds_by(
        &self,
        column: &str,
        of: &DataType,
        read: impl FnOnce(&StatisticsConverter<'_>) -> Option<PageBounds>,
    ) -> Option<PageBounds> {
        let stored = self.metadata.schema().field_with_name(column).ok()?;
        if !keeps_order(stored.data_type(), of) {
            return None;
        }
        let converter =
            StatisticsConverter::try_new(column, self.metadata.schema(), self.metadata.parquet_schema()).ok()?;
        let PageBounds { rows, low, high } = read(&converter)?;
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        let (low, high) = (cast_with_options(&low, of, &exact).ok()?, cast_with_options(&high, of, &exact).ok()?);
        (rows.len() == low.len() && rows.len() == high.len()).then_some(PageBounds { rows, low, high })
    }
}

/// Whether values keep their order when they become those of another type. As a number 9 comes before 50, and as a text behind it.
fn keeps_order(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Dictionary, Timestamp};
    match (from, to) {
        (Dictionary(_, values), to) => keeps_order(values, to),
        (from, Dictionary(_, values)) => keeps_order(from, values),
        (Timestamp(_, from), Timestamp(_, to)) => from.is_some() == to.is_some(),
        (Date32 | Date64, Date32 | Date64 | Timestamp(_, None)) => true,
        (from, to) if from.is_integer() || from.is_decimal() => to.is_integer() || to.is_decimal(),
        (from, to) => key_type_of(from).is_some_and(|key| key_type_of(to) == Some(key)),
    }
}

/// The rows of pages, and the least and the greatest value of a column in each.
pub(crate) struct PageBounds {
    pub rows: Vec<Range<u32>>,
    pub low: ArrayRef,
    pub high: ArrayRef,
}

/// The rows as rows of `schema`: other representations are cast, columns that the file lacks are NULL.
fn fitted(read: &RecordBatch, schema: &SchemaRef, file: &RowFile) -> Result<RecordBatch> {
    let rows = read.num_rows();
    let column = |field: &FieldRef| -> Result<ArrayRef> {
        if let Some(constant) = file.constants.iter().find(|constant| constant.field.name() == field.name()) {
            let repeated = take(constant.value.as_ref(), &UInt32Array::from(vec![0; rows]), None);
            return repeated.map_err(|error| Error::internal("a constant cannot be repeated").with_source(error));
        }
        match read.column_by_name(field.name()) {
            None => Ok(new_null_array(field.data_type(), rows)),
            Some(stored) => cast_exactly(stored, field, &file.name),
        }
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    batch(schema, columns, rows)
}

fn cast_exactly(stored: &ArrayRef, field: &Field, name: &str) -> Result<ArrayRef> {
    conform(stored, field.data_type()).map_err(|error| {
        let (column, of) = (field.name(), field.data_type());
        Error::new(
            crate::error::ErrorKind::SchemaMismatch,
            format!("the column {column} of {name} cannot be read as {of}: rewrite the file"),
        )
        .with_source(error)
    })
}
