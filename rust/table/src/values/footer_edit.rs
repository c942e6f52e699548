//! A footer with another schema, or that says something else of the whole file. Row groups and indexes of pages stay as they are.

use arrow::datatypes::Schema;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataBuilder};
use parquet::schema::types::SchemaDescPtr;

/// The same footer, from which Arrow readers take this schema for the columns, which may have other names than the file's own.
pub(crate) fn with_schema(metadata: ParquetMetaData, schema: &Schema, columns: SchemaDescPtr) -> ParquetMetaData {
    let file = metadata.file_metadata();
    let others = file.key_value_metadata().into_iter().flatten().filter(|entry| entry.key != ARROW_SCHEMA_META_KEY);
    let mut entries: Vec<KeyValue> = others.cloned().collect();
    entries.push(KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(schema)));
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        Some(entries),
        columns,
        file.column_orders().cloned(),
    );
    with_file_metadata(metadata, file)
}

/// The same footer, which says this of the whole file.
pub(crate) fn with_file_metadata(metadata: ParquetMetaData, file: FileMetaData) -> ParquetMetaData {
    let mut rest = metadata.into_builder();
    ParquetMetaDataBuilder::new(file)
        .set_row_groups(rest.take_row_groups())
        .set_column_index(rest.take_column_index())
        .set_offset_index(rest.take_offset_index())
        .build()
}
