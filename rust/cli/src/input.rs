//! Rows for changes, from a file or a pipe. Formats without types of their own are read in the types of the table, by the
//! names of their columns.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::{csv, json};
use datafusion::datasource::file_format::options::ArrowReadOptions;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionContext};
use lakemark_table::{Operation, cast_exactly, item_of};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Stands for stdin.
const PIPE: &str = "-";

type Object = Map<String, Value>;

/// All rows of a file as one batch.
pub(crate) async fn rows(file: &str, table: &SchemaRef, operation: Operation) -> Result<RecordBatch, Failure> {
    if file == PIPE {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(|error| unreadable(file, &error))?;
        return csv_rows(&bytes, table).map_err(|error| unreadable(file, &error));
    }
    let ending = Path::new(file).extension().and_then(OsStr::to_str).unwrap_or_default();
    let context = SessionContext::new();
    match ending.to_ascii_lowercase().as_str() {
        "csv" => csv_rows(&bytes_of(file)?, table).map_err(|error| unreadable(file, &error)),
        "json" | "ndjson" | "jsonl" => json_rows(file, &bytes_of(file)?, table, operation),
        "parquet" => {
            is_there(file)?;
            let options = ParquetReadOptions { file_extension: ending, ..ParquetReadOptions::default() };
            all(context.read_parquet(file, options).await?).await
        }
        "arrow" | "ipc" | "feather" => {
            is_there(file)?;
            let options = ArrowReadOptions { file_extension: ending, ..ArrowReadOptions::default() };
            all(context.read_arrow(file, options).await?).await
        }
        _ => Err(Failure::Error(format!(
            "{file} has no ending that says what it is: give a file .parquet, .csv, .json, .ndjson or .arrow, or - for CSV from \
             stdin"
        ))),
    }
}

async fn all(rows: DataFrame) -> Result<RecordBatch, Failure> {
    let schema = Arc::new(rows.schema().as_arrow().clone());
    let batches = rows.collect().await?;
    concat_batches(&schema, &batches).map_err(|error| Failure::from(datafusion::error::DataFusionError::from(error)))
}

fn is_there(file: &str) -> Result<(), Failure> {
    std::fs::metadata(file).map(drop).map_err(|error| unreadable(file, &error))
}

fn bytes_of(file: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &str, error: &dyn std::fmt::Display) -> Failure {
    let file = if file == PIPE { "stdin" } else { file };
    Failure::Error(format!("{file} cannot be read: {error}"))
}

/// CSV with a header. An empty field is NULL.
fn csv_rows(bytes: &[u8], table: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (header, _) = csv::reader::Format::default().with_header(true).infer_schema(bytes, Some(0))?;
    if header.fields().is_empty() {
        return Err(ArrowError::CsvError("it is empty; its first line names the columns".to_owned()));
    }
    let names = header.fields().iter().map(|field| field.name().trim().to_owned());
    let schema = Arc::new(Schema::new(names.map(|name| typed(name, table)).collect::<Vec<_>>()));
    let reader = csv::ReaderBuilder::new(Arc::clone(&schema)).with_header(true).build(bytes)?;
    concat_batches(&schema, &reader.collect::<Result<Vec<_>, _>>()?)
}

/// The column of that name as text can be read: in the table's type, or as text that is cast later.
fn typed(name: String, table: &SchemaRef) -> Field {
    let of = table.field_with_name(&name).map(|field| field.data_type().clone());
    // The reader would cut decimals, and the time that stands behind a date.
    let readable = |of: &DataType| of.is_integer() || of.is_floating() || matches!(of, DataType::Boolean);
    Field::new(name, of.ok().filter(readable).unwrap_or(DataType::Utf8), true)
}

/// JSON: objects one after the other, or an array of them.
fn json_rows(file: &str, bytes: &[u8], table: &SchemaRef, operation: Operation) -> Result<RecordBatch, Failure> {
    let objects = objects(bytes).map_err(|error| unreadable(file, &error))?;
    let names: BTreeSet<&String> = objects.iter().flat_map(Map::keys).collect();
    for (row, object) in objects.iter().enumerate() {
        check_digits(file, row, object, table)?;
        if operation == Operation::Update
            && let Some(lacking) = names.iter().find(|name| !object.contains_key(**name))
        {
            return Err(Failure::Error(format!(
                "row {row} of {file} lacks {lacking}, which others have: write null for NULL, or make two files"
            )));
        }
    }
    let fields = names.into_iter().map(|name| match table.field_with_name(name) {
        Ok(field) => field.clone().with_nullable(true),
        Err(_) => Field::new(name, DataType::Null, true),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    decoded(&objects, schema).map_err(|error| unreadable(file, &error))
}

fn objects(bytes: &[u8]) -> serde_json::Result<Vec<Object>> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        return serde_json::from_slice(bytes);
    }
    serde_json::Deserializer::from_slice(bytes).into_iter().collect()
}

fn decoded(objects: &[Object], schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
    if objects.is_empty() {
        return Ok(RecordBatch::new_empty(schema));
    }
    let mut decoder = json::ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(objects.len()).build_decoder()?;
    decoder.serialize(objects)?;
    Ok(decoder.flush()?.unwrap_or_else(|| RecordBatch::new_empty(schema)))
}

/// The decoder would cut 1.5 to the integer 1, and a timestamp to a date.
fn check_digits(file: &str, row: usize, object: &Object, table: &SchemaRef) -> Result<(), Failure> {
    for (name, value) in object {
        let Ok(field) = table.field_with_name(name) else { continue };
        if let Some((inside, value, of)) = first_cut(value, field.data_type()) {
            let takes = if of.is_integer() { "takes whole numbers".to_owned() } else { format!("is {of}") };
            return Err(Failure::Error(format!("row {row} of {file} has {value} for {name}{inside}, which {takes}")));
        }
    }
    Ok(())
}

/// The first value that would lose digits: the way to it inside of the column, itself, and its type.
fn first_cut<'a>(value: &'a Value, of: &'a DataType) -> Option<(String, &'a Value, &'a DataType)> {
    let within = |name: String, value: &'a Value, of: &'a DataType| {
        first_cut(value, of).map(|(inside, value, of)| (format!("{name}{inside}"), value, of))
    };
    match (of, value) {
        (DataType::Struct(fields), Value::Object(object)) => fields.iter().find_map(|field| {
            object.get(field.name()).and_then(|value| within(format!(".{}", field.name()), value, field.data_type()))
        }),
        (DataType::Map(entries, _), Value::Object(object)) => {
            let DataType::Struct(fields) = entries.data_type() else { return None };
            let of = fields.get(1)?.data_type();
            object.values().find_map(|value| within("[]".to_owned(), value, of))
        }
        (_, Value::Array(values)) => {
            let of = item_of(of)?.data_type();
            values.iter().find_map(|value| within("[]".to_owned(), value, of))
        }
        _ => is_cut(value, of).then(|| (String::new(), value, of)),
    }
}

fn is_cut(value: &Value, of: &DataType) -> bool {
    let given: ArrayRef = match value {
        Value::Number(number) if of.is_integer() => {
            return number.as_f64().is_some_and(|number| number.fract() != 0.0);
        }
        Value::Number(number) if of.is_decimal() => Arc::new(Float64Array::from(vec![number.as_f64()])),
        Value::String(text) if of.is_decimal() || of.is_temporal() => Arc::new(StringArray::from(vec![text.as_str()])),
        _ => return false,
    };
    // What is no value of the type at all is the decoder's to say.
    cast_exactly(&given, of).is_err_and(|misfit| misfit.loses_digits)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    fn table() -> SchemaRef {
        let numbers = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8View, true),
            Field::new("day", DataType::Date32, true),
            Field::new("price", DataType::Decimal128(9, 2), true),
            Field::new("at", DataType::Struct(vec![Field::new("n", numbers, true)].into()), true),
        ]))
    }

    #[test]
    fn csv_is_read_by_name_in_the_types_of_the_table() {
        let text = "\u{feff}day,name, id,price\n2024-01-02,\"a, \"\"b\"\"\",7,1.50\n,,8,\n";
        let rows = csv_rows(text.as_bytes(), &table()).unwrap();
        assert_eq!(rows.column_by_name("id").unwrap().as_primitive::<Int64Type>().values(), &[7, 8]);
        // What the reader would cut is text, for the table to cast.
        assert_eq!(rows.column_by_name("day").unwrap().as_string::<i32>().value(0), "2024-01-02");
        let names = rows.column_by_name("name").unwrap().as_string::<i32>();
        assert_eq!(names.iter().collect::<Vec<_>>(), [Some("a, \"b\""), None]);
        let price = rows.column_by_name("price").unwrap().as_string::<i32>();
        assert_eq!(price.iter().collect::<Vec<_>>(), [Some("1.50"), None]);
        assert_eq!(csv_rows(b"id\n", &table()).unwrap().num_rows(), 0);
        assert!(csv_rows(b"", &table()).unwrap_err().to_string().contains("it is empty"));
        assert!(csv_rows(b"id\nx\n", &table()).unwrap_err().to_string().contains("'x' as type 'Int64'"));
    }

    #[test]
    fn json_is_an_array_or_objects_one_after_the_other() {
        let lines = "{\"id\": 1, \"day\": \"2024-01-02\"}\n{\"id\": 2, \"name\": \"x\"}";
        let array = "[{\"id\": 1, \"day\": \"2024-01-02\"}, {\"id\": 2, \"name\": \"x\"}]";
        for text in [lines, array] {
            let rows = json_rows("f.json", text.as_bytes(), &table(), Operation::Insert).unwrap();
            assert_eq!(
                rows.schema().fields().iter().map(|field| field.name()).collect::<Vec<_>>(),
                ["day", "id", "name"]
            );
            assert_eq!(rows.column_by_name("id").unwrap().as_primitive::<Int64Type>().values(), &[1, 2]);
            let error = json_rows("f.json", text.as_bytes(), &table(), Operation::Update).unwrap_err();
            assert!(error.to_string().contains("row 0 of f.json lacks name"), "{error}");
        }
        assert_eq!(json_rows("f.json", b"", &table(), Operation::Insert).unwrap().num_rows(), 0);
        for (text, says) in [
            ("{\"id\": 1.5}", "row 0 of f.json has 1.5 for id, which takes whole numbers"),
            ("{\"price\": 1.239}", "row 0 of f.json has 1.239 for price, which is Decimal128(9, 2)"),
            ("{\"price\": \"1.239\"}", "row 0 of f.json has \"1.239\" for price"),
            ("{\"day\": \"2024-01-02 13:00:00\"}", "row 0 of f.json has \"2024-01-02 13:00:00\" for day"),
            ("{\"at\": {\"n\": [1, 1.5]}}", "row 0 of f.json has 1.5 for at.n[], which takes whole numbers"),
            ("{\"id\": 1", "f.json cannot be read"),
            ("[1]", "f.json cannot be read"),
            ("{\"id\": \"x\"}", "f.json cannot be read"),
        ] {
            let error = json_rows("f.json", text.as_bytes(), &table(), Operation::Insert).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
