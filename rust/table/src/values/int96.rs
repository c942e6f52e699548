//! 96-bit timestamps, and dates of a calendar that is not ours.
//!
//! A 96-bit timestamp is a point in time: a Julian day and nanoseconds, in UTC. Arrow takes it for a local time in nanoseconds, which
//! overflows from the year 2262 on, or for whatever type the writer had in memory. Here it is microseconds of UTC, everywhere:
//! [`with_int96_timestamps`] puts that type into the footer's own Arrow schema, where every reader looks for it.
//!
//! Old Spark wrote dates and times of the hybrid Julian and Gregorian calendar, and says so in the footer. Readers differ in whether they
//! convert such values, so that no index can answer for all of them: [`FileCalendar`] says which columns these are.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::Type as PhysicalType;
use parquet::errors::Result;
use parquet::file::metadata::{FileMetaData, ParquetMetaData};
use parquet::schema::types::SchemaDescriptor;

use crate::values::footer_edit::with_schema;

/// The type of a 96-bit timestamp.
fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// The same footer, from which Arrow readers take 96-bit timestamps for microseconds of UTC.
///
/// # Errors
/// A schema that Arrow does not have.
pub(crate) fn with_int96_timestamps(metadata: ParquetMetaData) -> Result<ParquetMetaData> {
    let file = metadata.file_metadata();
    let columns = file.schema_descr();
    if !(0..columns.num_columns()).any(|leaf| is_int96(columns, leaf)) {
        return Ok(metadata);
    }
    let schema = parquet_to_arrow_schema(columns, file.key_value_metadata())?;
    let mut leaf = 0;
    let fields: Fields = schema.fields().iter().map(|field| retyped(field, columns, &mut leaf)).collect();
    let columns = file.schema_descr_ptr();
    Ok(with_schema(metadata, &Schema::new(fields), columns))
}

fn is_int96(columns: &SchemaDescriptor, leaf: usize) -> bool {
    columns.columns().get(leaf).is_some_and(|column| column.physical_type() == PhysicalType::INT96)
}

/// The field with timestamps for its leaves of 96 bits. Arrow's leaves come in the order of Parquet's columns.
fn retyped(field: &FieldRef, columns: &SchemaDescriptor, leaf: &mut usize) -> FieldRef {
    let mut inner = |field: &FieldRef| retyped(field, columns, leaf);
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::ListView(item) => DataType::ListView(inner(item)),
        DataType::LargeListView(item) => DataType::LargeListView(inner(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item), *length),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        other => {
            let data_type = if is_int96(columns, *leaf) { moment() } else { other.clone() };
            *leaf += 1;
            data_type
        }
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Tags the fields of a file whose values are of the hybrid calendar; its value is [`REBASED`].
const CALENDAR_KEY: &str = "lakemark:calendar";
const REBASED: &str = "rebased";

/// Whether the field of a file's schema has values of another calendar than the Gregorian; of what is nested, whether something in it may.
pub(crate) fn is_rebased(field: &Field) -> bool {
    field.metadata().get(CALENDAR_KEY).is_some_and(|calendar| calendar == REBASED)
}

/// The field as it is in a table's schema: calendars are a matter of single files.
pub(crate) fn without_calendar(field: &FieldRef) -> FieldRef {
    if !field.metadata().contains_key(CALENDAR_KEY) {
        return Arc::clone(field);
    }
    let mut metadata = field.metadata().clone();
    metadata.remove(CALENDAR_KEY);
    Arc::new(field.as_ref().clone().with_metadata(metadata))
}

/// Which columns of a file have values of the hybrid calendar, by the rules of Spark's own reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileCalendar {
    /// Dates, and timestamps of 64 bits.
    dates: bool,
    /// Timestamps of 96 bits.
    int96: bool,
}

impl FileCalendar {
    /// What the footer says. Files that Spark did not write follow the Gregorian calendar.
    pub(crate) fn of(file: &FileMetaData) -> Self {
        let value = |name: &str| {
            let mut entries = file.key_value_metadata().into_iter().flatten();
            entries.find(|entry| entry.key == name).map(|entry| entry.value.as_deref().unwrap_or_default())
        };
        let Some(version) = value("org.apache.spark.version") else { return Self::default() };
        let version = major_and_minor(version);
        Self {
            dates: version < (3, 0) || value("org.apache.spark.legacyDateTime").is_some(),
            int96: version < (3, 1) || value("org.apache.spark.legacyINT96").is_some(),
        }
    }

    /// Tags the top-level fields that are not of the Gregorian calendar. Structs, lists and maps are tagged as a whole, whatever is in
    /// them.
    pub(crate) fn tag_fields(self, fields: Vec<Field>, columns: &SchemaDescriptor) -> Vec<Field> {
        if self == Self::default() {
            return fields;
        }
        let is_wide = |name: &str| {
            let mut named = columns.columns().iter();
            named.any(|leaf| {
                leaf.physical_type() == PhysicalType::INT96
                    && leaf.path().parts().first().is_some_and(|root| root == name)
            })
        };
        let tag = |field: Field| {
            let rebased = match field.data_type() {
                DataType::Timestamp(..) if is_wide(field.name()) => self.int96,
                DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => self.dates,
                nested if nested.is_nested() => self.dates || self.int96 && is_wide(field.name()),
                _ => false,
            };
            if !rebased {
                return field;
            }
            let mut metadata = field.metadata().clone();
            metadata.insert(CALENDAR_KEY.to_owned(), REBASED.to_owned());
            field.with_metadata(metadata)
        };
        fields.into_iter().map(tag).collect()
    }
}

/// `3.1` of `3.1.2-SNAPSHOT`; a version that cannot be read is old.
fn major_and_minor(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::KeyValue;

    use super::*;

    fn calendar(entries: &[(&str, &str)]) -> FileCalendar {
        let entries =
            entries.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
        let root = parquet::schema::parser::parse_message_type("message m { required int32 x; }").unwrap();
        let columns = Arc::new(SchemaDescriptor::new(Arc::new(root)));
        FileCalendar::of(&FileMetaData::new(1, 0, None, Some(entries), columns, None))
    }

    #[test]
    fn the_calendar_is_what_spark_s_reader_takes_it_for() {
        let neither = FileCalendar::default();
        let both = FileCalendar { dates: true, int96: true };
        assert_eq!(calendar(&[("org.apache.spark.legacyINT96", "")]), neither, "not written by Spark");
        assert_eq!(calendar(&[("org.apache.spark.version", "2.4.8")]), both);
        assert_eq!(calendar(&[("org.apache.spark.version", "3.0.3")]), FileCalendar { dates: false, int96: true });
        assert_eq!(calendar(&[("org.apache.spark.version", "3.1.0")]), neither);
        assert_eq!(calendar(&[("org.apache.spark.version", "10.0.0")]), neither);
        assert_eq!(
            calendar(&[("org.apache.spark.version", "4.1.0"), ("org.apache.spark.legacyDateTime", "")]),
            FileCalendar { dates: true, int96: false }
        );
        assert_eq!(
            calendar(&[("org.apache.spark.version", "3.5.1"), ("org.apache.spark.legacyINT96", "")]),
            FileCalendar { dates: false, int96: true }
        );
    }
}
