//! 96-bit timestamps, which Spark writes by default: moments, to be read as microseconds of UTC.
//!
//! Arrow takes them for local times in nanoseconds. As such they would come to Spark with another type than from its own
//! reader, and dates beyond 2262 would overflow.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use lakemark_table::Snapshot;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::basic::Type as PhysicalType;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::ParquetMetaData;

use crate::error::{Result, reading};
use crate::object::DataObject;

fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn is_candidate(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, None))
}

/// Names of the top-level columns that are stored in 96 bits.
fn int96_columns(footer: &ParquetMetaData) -> BTreeSet<&str> {
    let columns = footer.file_metadata().schema_descr().columns().iter();
    let found = columns.filter_map(|column| match column.path().parts() {
        [name] if column.physical_type() == PhysicalType::INT96 => Some(name.as_str()),
        _ => None,
    });
    found.collect()
}

fn with_moments(schema: &Schema, int96: &BTreeSet<&str>) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        if int96.contains(field.name().as_str()) && is_candidate(field) {
            Arc::new(field.as_ref().clone().with_data_type(moment()))
        } else {
            Arc::clone(field)
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The snapshot's schema with moments for columns of 96 bits. Reads footers only for columns that may be such.
pub(crate) async fn schema_with_moments(snapshot: &Snapshot) -> Result<SchemaRef> {
    let mut schema = snapshot.schema();
    let stored = snapshot.file_schema();
    let mut open: BTreeSet<&str> =
        stored.fields().iter().filter(|field| is_candidate(field)).map(|field| field.name().as_str()).collect();
    for file in snapshot.files() {
        if open.is_empty() {
            break;
        }
        let mut object = DataObject::new(snapshot.object_store(), file.meta.location.clone(), file.meta.size);
        let footer = object.get_metadata(None).await.map_err(|error| reading(&file.path, &error))?;
        schema = with_moments(&schema, &int96_columns(&footer));
        let present = footer.file_metadata().schema_descr();
        for column in present.root_schema().get_fields() {
            open.remove(column.name());
        }
    }
    Ok(schema)
}

/// The reader's view of a file, with moments for columns of 96 bits.
pub(crate) fn with_microseconds(
    footer: Arc<ParquetMetaData>,
    options: ArrowReaderOptions,
) -> ParquetResult<ArrowReaderMetadata> {
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(&footer), options.clone())?;
    let int96 = int96_columns(&footer);
    if int96.is_empty() {
        return Ok(metadata);
    }
    let schema = with_moments(metadata.schema(), &int96);
    ArrowReaderMetadata::try_new(footer, options.with_schema(schema))
}
