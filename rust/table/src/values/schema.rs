//! One schema for many files: union by name, with an error where types disagree.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use arrow::ipc::writer::StreamWriter;
use parquet::schema::types::SchemaDescriptor;

use crate::error::{Error, ErrorKind, Result};
use crate::values::int96::{FileCalendar, without_calendar};

/// The schema that a table takes from one file: dictionaries are an encoding, metadata of the
/// file as a whole is of no use to a table, and any column may be missing elsewhere. Columns of another calendar are tagged.
pub(crate) fn normalize(schema: &Schema, calendar: FileCalendar, columns: &SchemaDescriptor) -> SchemaRef {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| {
            let data_type = match field.data_type() {
                DataType::Dictionary(_, value) => value.as_ref().clone(),
                other => other.clone(),
            };
            Field::new(field.name(), data_type, true).with_metadata(field.metadata().clone())
        })
        .collect();
    Arc::new(Schema::new(calendar.tag_fields(fields, columns)))
}

/// The schema of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSchema<'a> {
    /// The name of the file, for errors.
    pub file: &'a str,
    pub schema: &'a SchemaRef,
}

/// Merges the schemas of files.
pub(crate) fn merge<'a>(schemas: impl IntoIterator<Item = FileSchema<'a>>) -> Result<SchemaRef> {
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut places: HashMap<String, (usize, &'a str)> = HashMap::new();
    let mut last: Option<&SchemaRef> = None;
    for FileSchema { file, schema } in schemas {
        // Neighbours mostly share their schema: a table of 100,000 files is merged in no time.
        if last.is_some_and(|last| Arc::ptr_eq(last, schema)) {
            continue;
        }
        last = Some(schema);
        for field in schema.fields() {
            let Some((place, first_file)) = places.get(field.name()) else {
                places.insert(field.name().clone(), (fields.len(), file));
                fields.push(without_calendar(field));
                continue;
            };
            let Some(have) = fields.get_mut(*place) else { continue };
            match common_type(have.data_type(), field.data_type()) {
                Some(data_type) if data_type == *have.data_type() => {}
                Some(data_type) => *have = Arc::new(have.as_ref().clone().with_data_type(data_type)),
                None => {
                    return Err(Error::new(
                        ErrorKind::SchemaMismatch,
                        format!(
                            "the column {} is {} in the file {file} but {} in {first_file}; \
                             rewrite one of them, or give each set of files as a table of its own",
                            field.name(),
                            field.data_type(),
                            have.data_type()
                        ),
                    ));
                }
            }
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// The type that two files' column has in the table. Only representations of the same values are brought together: a silently widened
/// integer would conceal that writers disagree.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b {
        return Some(a.clone());
    }
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let binary = |t: &DataType| matches!(t, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
    match (a, b) {
        (a, b) if text(a) && text(b) => Some(DataType::LargeUtf8),
        (a, b) if binary(a) && binary(b) => Some(DataType::LargeBinary),
        (a, b) if a.is_nested() && a.equals_datatype(b) && has_same_fields(a, b) => Some(a.clone()),
        _ => None,
    }
}

/// Whether structs inside of types that are the same otherwise call their fields the same. Writers have names of their own for what is in
/// lists and maps.
fn has_same_fields(a: &DataType, b: &DataType) -> bool {
    let inside = |a: &FieldRef, b: &FieldRef| has_same_fields(a.data_type(), b.data_type());
    match (a, b) {
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.iter().zip(b.iter()).all(|(a, b)| a.name() == b.name() && inside(a, b))
        }
        (DataType::Map(a, _), DataType::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (DataType::Struct(a), DataType::Struct(b)) => a.iter().zip(b.iter()).all(|(a, b)| inside(a, b)),
            _ => true,
        },
        (DataType::List(a), DataType::List(b))
        | (DataType::LargeList(a), DataType::LargeList(b))
        | (DataType::FixedSizeList(a, _), DataType::FixedSizeList(b, _)) => inside(a, b),
        _ => true,
    }
}

/// The bytes of a schema for the manifest: the opening of an Arrow IPC stream.
pub(crate) fn to_bytes(schema: &Schema) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, schema)
        .map_err(|error| Error::internal("the schema cannot be encoded").with_source(error))?;
    Ok(bytes)
}

/// Reads what [`to_bytes`] wrote.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<SchemaRef> {
    let schema = try_schema_from_ipc_buffer(bytes)
        .map_err(|error| Error::corrupt("the manifest has a schema that cannot be read").with_source(error))?;
    Ok(Arc::new(schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_fields(names: [&str; 2]) -> DataType {
        DataType::Struct(names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect())
    }

    fn list(item: &str, of: DataType) -> DataType {
        DataType::List(Arc::new(Field::new(item, of, true)))
    }

    #[test]
    fn fields_of_structs_have_one_name_and_items_of_lists_any() {
        let common = |a: &DataType, b: &DataType| common_type(a, b).is_some();
        assert!(common(&of_fields(["x", "y"]), &of_fields(["x", "y"])));
        assert!(!common(&of_fields(["x", "y"]), &of_fields(["X", "y"])));
        assert!(common(&list("item", of_fields(["x", "y"])), &list("element", of_fields(["x", "y"]))));
        assert!(!common(&list("item", of_fields(["x", "y"])), &list("item", of_fields(["y", "x"]))));
    }
}
