//! Rows for changes, from a file or a pipe. Formats without types of their own are read in the types of the table, by the
//! names of their columns.

mod json;
mod typed;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::{csv, json as arrow_json};
use datafusion::datasource::file_format::options::ArrowReadOptions;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionContext};
use lakemark_table::Operation;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Stands for stdin.
const PIPE: &str = "-";

/// How the rows of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputFormat {
    Csv,
    Json,
    Parquet,
    Arrow,
}

impl InputFormat {
    /// The format that the ending of a file's name says.
    fn of_ending(ending: &str) -> Option<Self> {
        match ending.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "json" | "ndjson" | "jsonl" => Some(Self::Json),
            "parquet" => Some(Self::Parquet),
            "arrow" | "ipc" | "feather" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// All rows of a file as one batch.
pub(crate) async fn rows(file: &str, table: &SchemaRef, operation: Operation) -> Result<RecordBatch, Failure> {
    if file == PIPE {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(|error| unreadable(file, &error))?;
        return csv_rows(&bytes, table).map_err(|error| unreadable(file, &error));
    }
    let ending = Path::new(file).extension().and_then(OsStr::to_str).unwrap_or_default();
    let context = SessionContext::new();
    match InputFormat::of_ending(ending) {
        Some(InputFormat::Csv) => csv_rows(&bytes_of(file)?, table).map_err(|error| unreadable(file, &error)),
        Some(InputFormat::Json) => json_rows(file, &bytes_of(file)?, table, operation),
        Some(InputFormat::Parquet) => {
            is_there(file)?;
            let options = ParquetReadOptions { file_extension: ending, ..ParquetReadOptions::default() };
            all(context.read_parquet(file, options).await?).await
        }
        Some(InputFormat::Arrow) => {
            is_there(file)?;
            let options = ArrowReadOptions { file_extension: ending, ..ArrowReadOptions::default() };
            all(context.read_arrow(file, options).await?).await
        }
        None => Err(Failure::Error(format!(
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
    let schema = Arc::new(Schema::new(names.map(|name| csv_field(name, table)).collect::<Vec<_>>()));
    let reader = csv::ReaderBuilder::new(Arc::clone(&schema)).with_header(true).build(bytes)?;
    concat_batches(&schema, &reader.collect::<Result<Vec<_>, _>>()?)
}

/// The column of that name as text can be read: in the table's type, or as text that is cast later.
fn csv_field(name: String, table: &SchemaRef) -> Field {
    let of = table.field_with_name(&name).map(|field| field.data_type().clone());
    // The reader would cut decimals and the time that stands behind a date, and take large numbers for infinite ones.
    let readable = |of: &DataType| of.is_integer() || matches!(of, DataType::Boolean);
    Field::new(name, of.ok().filter(readable).unwrap_or(DataType::Utf8), true)
}

/// JSON: objects one after the other, or an array of them.
fn json_rows(file: &str, bytes: &[u8], table: &SchemaRef, operation: Operation) -> Result<RecordBatch, Failure> {
    let objects = json::objects(bytes).map_err(|error| unreadable(file, &error))?;
    let fitted = objects.into_iter().enumerate().map(|(row, object)| {
        typed::row(&object, table)
            .map_err(|misfit| Failure::Error(format!("row {row} of {file} has {}", misfit.text())))
    });
    let rows = fitted.collect::<Result<Vec<_>, _>>()?;
    let names: BTreeSet<&String> = rows.iter().flat_map(Map::keys).collect();
    for (row, object) in rows.iter().enumerate() {
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
    decoded(&rows, schema).map_err(|error| unreadable(file, &error))
}

fn decoded(rows: &[Map<String, Value>], schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
    if rows.is_empty() {
        return Ok(RecordBatch::new_empty(schema));
    }
    let mut decoder =
        arrow_json::ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(rows.len()).build_decoder()?;
    decoder.serialize(rows)?;
    Ok(decoder.flush()?.unwrap_or_else(|| RecordBatch::new_empty(schema)))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Int64Type, TimeUnit};
    use arrow::util::display::array_value_to_string;

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
        let large = csv_rows(b"c\n1e400\n", &column(DataType::Float64)).unwrap();
        assert_eq!(large.column(0).as_string::<i32>().value(0), "1e400");
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
    /// A table of one column.
    fn column(of: DataType) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("c", of, true)]))
    }

    fn map_of(keys: DataType, values: DataType) -> DataType {
        let fields = vec![Field::new("keys", keys, false), Field::new("values", values, true)];
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)), false)
    }

    #[test]
    fn json_keeps_every_digit_of_a_number() {
        let cents = || DataType::Decimal128(30, 2);
        for (text, of, expected) in [
            ("1234567890123456789012345.67", cents(), "1234567890123456789012345.67"),
            ("\"12e2\"", cents(), "1200.00"),
            ("\"-1.5E-1\"", cents(), "-0.15"),
            ("12e2", cents(), "1200.00"),
            ("1.230", cents(), "1.23"),
            ("1.5e-7", DataType::Decimal128(9, 8), "0.00000015"),
            // Doubles that stand for 0.3 and 1.1.
            ("0.30000000000000004", cents(), "0.30"),
            ("1.0999999999999999", cents(), "1.10"),
            ("9007199254740993.0", DataType::Int64, "9007199254740993"),
            ("9007199254740993e0", DataType::Int64, "9007199254740993"),
            ("18446744073709551615", DataType::UInt64, "18446744073709551615"),
            ("1e2", DataType::Int8, "100"),
            ("0.1", DataType::Float32, "0.1"),
            ("9007199254740993", DataType::Float64, "9007199254740992.0"),
            ("1700000000123456", DataType::Timestamp(TimeUnit::Microsecond, None), "2023-11-14T22:13:20.123456"),
            ("{\"1.50\": 1e1}", map_of(cents(), DataType::Int64), "{1.50: 10}"),
        ] {
            let table = column(of);
            let text = format!("{{\"c\": {text}}}");
            let rows = json_rows("f.json", text.as_bytes(), &table, Operation::Insert).unwrap();
            assert_eq!(array_value_to_string(rows.column(0), 0).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_json_would_lose_is_an_error() {
        let cents = || DataType::Decimal128(30, 2);
        let seconds = || DataType::Timestamp(TimeUnit::Second, None);
        let place = || DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into());
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        for (text, of, says) in [
            ("1234567890123456.789", cents(), "has 1234567890123456.789 for c, which is Decimal128(30, 2)"),
            ("12345678901234567890123456789", cents(), "has 12345678901234567890123456789 for c"),
            ("\"1.5e-7\"", cents(), "has \"1.5e-7\" for c, which is Decimal128(30, 2)"),
            ("\"a lot\"", cents(), "has \"a lot\" for c"),
            ("1e300", DataType::Float32, "has 1e300 for c, which is Float32"),
            ("\"1e999\"", DataType::Float64, "has \"1e999\" for c, which is Float64"),
            ("1e-1", DataType::Int64, "has 1e-1 for c, which takes whole numbers"),
            ("1.5", seconds(), "has 1.5 for c, which is Timestamp(s)"),
            ("1e30", seconds(), "has 1e30 for c, which is Timestamp(s)"),
            ("\"2024-01-02T03:04:05.6\"", seconds(), "has \"2024-01-02T03:04:05.6\" for c"),
            ("1.5", DataType::Date32, "has 1.5 for c, which is Date32"),
            ("{\"x\": 1, \"moon\": {}}", place(), "has the field c.moon, which the table lacks; leave it out"),
            ("[{\"x\": 1}, {\"X\": 1}]", list(place()), "has the field c[].X, which the table lacks"),
            ("{\"x\": 1, \"x\": 2}", place(), "has the field c.x twice; give it once"),
            ("1, \"c\": 2", DataType::Int64, "has the field c twice; give it once"),
            ("{\"1\": 7, \"1.0\": 8}", map_of(cents(), DataType::Int64), "has the field c.1.0 twice"),
            (
                "{\"2024-01-02T03:00:00\": 7}",
                map_of(DataType::Date32, DataType::Int64),
                "has \"2024-01-02T03:00:00\" for c[], which is Date32",
            ),
            ("{\"k\": {\"y\": 7}}", map_of(DataType::Utf8, place()), "has the field c[].y, which the table lacks"),
        ] {
            let text = format!("{{\"c\": {text}}}");
            let error = json_rows("f.json", text.as_bytes(), &column(of), Operation::Insert).unwrap_err();
            assert!(error.to_string().contains(&format!("row 0 of f.json {says}")), "{error}");
        }
    }
}
