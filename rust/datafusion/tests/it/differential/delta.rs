//! Random tables that are Delta tables: a log by hand, deletion vectors, and columns that are stored under other names.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow::datatypes::{DataType, Fields, TimeUnit};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::column::pick;

/// What stored names begin with where columns are mapped.
const STORED: &str = "col-";

/// A data file.
pub struct LogFile {
    /// Its place in the folder.
    pub path: String,
    pub rows: usize,
}

/// The log of a random table.
pub struct Log {
    dice: StdRng,
    version: u64,
    /// The deletion vectors of files that have one.
    vectors: BTreeMap<String, Value>,
    /// Whether columns are stored under other names than they show.
    is_mapped: bool,
}

impl Log {
    /// That of a table without files.
    pub fn new(dice: StdRng, is_mapped: bool) -> Self {
        Self { dice, version: 0, vectors: BTreeMap::new(), is_mapped }
    }

    /// The first commit: a table of these files, whose columns are those of the first.
    pub fn begin(&mut self, folder: &Path, files: &[LogFile]) {
        let first = files.first().expect("a table has a file");
        let input = File::open(folder.join(&first.path)).unwrap();
        let schema = ParquetRecordBatchReaderBuilder::try_new(input).unwrap().schema().clone();
        let mapping = |name: &str, id: usize| match name.strip_prefix(STORED).filter(|_| self.is_mapped) {
            Some(shown) => {
                (shown.to_owned(), json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": name}))
            }
            None => (name.to_owned(), json!({})),
        };
        let fields = schema.fields().iter().enumerate().map(|(place, field)| {
            let (name, metadata) = mapping(field.name(), place + 1);
            json!({"name": name, "type": delta_type(field.data_type()).expect("a type of Delta"), "nullable": field.is_nullable(),
                "metadata": metadata})
        });
        let schema = json!({"type": "struct", "fields": fields.collect::<Vec<_>>()}).to_string();
        let (mut configuration, mut features) =
            (json!({"delta.enableDeletionVectors": "true"}), vec!["deletionVectors"]);
        if self.is_mapped {
            features.push("columnMapping");
            configuration["delta.columnMapping.mode"] = json!("name");
            configuration["delta.columnMapping.maxColumnId"] = json!("1000");
        }
        let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
            "writerFeatures": features}});
        let metadata = json!({"metaData": {"id": "5fba94ed-9794-4965-ba6e-6ee3c0d22afa",
            "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": [],
            "configuration": configuration, "createdTime": 0}});
        let added = files.iter().map(|file| self.add(folder, &file.path, file.rows)).collect::<Vec<_>>();
        commit(folder, self.version, &[vec![protocol, metadata], added].concat());
    }

    /// The next commit: files come, others go.
    pub fn change(&mut self, folder: &Path, added: &[LogFile], removed: &[String]) {
        let mut actions: Vec<Value> = removed.iter().map(|path| self.remove(path)).collect();
        actions.extend(added.iter().map(|file| self.add(folder, &file.path, file.rows)).collect::<Vec<_>>());
        self.version += 1;
        commit(folder, self.version, &actions);
    }

    /// A file with some of its rows hidden, in some cases.
    fn add(&mut self, folder: &Path, path: &str, rows: usize) -> Value {
        let size = std::fs::metadata(folder.join(path)).unwrap().len();
        let mut add = json!({"path": path, "partitionValues": {}, "size": size, "modificationTime": 1_700_000_000_000u64,
            "dataChange": true});
        let most = *pick(&mut self.dice, &[0, 0, 2, 20, rows / 2]);
        let mut hidden: Vec<u16> =
            (0..most.min(rows)).map(|_| u16::try_from(self.dice.random_range(0..rows)).unwrap()).collect();
        hidden.sort_unstable();
        hidden.dedup();
        hidden.truncate(hidden.len() / 2 * 2);
        if !hidden.is_empty() {
            let vector = vector(&hidden);
            add["deletionVector"] = vector.clone();
            self.vectors.insert(path.to_owned(), vector);
        }
        json!({"add": add})
    }

    /// A file goes with the vector that it has: without it would be another one.
    fn remove(&mut self, path: &str) -> Value {
        let mut remove = json!({"path": path, "deletionTimestamp": 0, "dataChange": true});
        if let Some(vector) = self.vectors.remove(path) {
            remove["deletionVector"] = vector;
        }
        json!({"remove": remove})
    }

    /// How many rows vectors hide.
    pub fn hidden_rows(&self) -> u64 {
        self.vectors.values().map(|vector| vector["cardinality"].as_u64().unwrap_or(0)).sum()
    }

    /// For the report of a difference.
    pub fn describe(&self) -> String {
        let mapped = if self.is_mapped { ", columns mapped" } else { "" };
        format!("; Delta, {} rows hidden{mapped}", self.hidden_rows())
    }
}

/// The name in the files of a column that is mapped.
pub fn stored(name: &str) -> String {
    format!("{STORED}{name}")
}

/// Writes a commit of a log.
pub fn commit(folder: &Path, version: u64, actions: &[impl ToString]) {
    let log = folder.join("_delta_log");
    std::fs::create_dir_all(&log).unwrap();
    let lines: Vec<String> = actions.iter().map(ToString::to_string).collect();
    std::fs::write(log.join(format!("{version:020}.json")), lines.join("\n")).unwrap();
}

/// A type of columns as a Delta log names it; none if Delta has no such type.
pub fn delta_type(of: &DataType) -> Option<Value> {
    let name = match of {
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 => "short",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 => "string",
        DataType::Binary => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp",
        DataType::Decimal128(precision, scale) => return Some(json!(format!("decimal({precision},{scale})"))),
        DataType::Dictionary(_, values) => return delta_type(values),
        DataType::Struct(fields) => return struct_type(fields),
        DataType::List(element) => {
            return Some(
                json!({"type": "array", "elementType": delta_type(element.data_type())?, "containsNull": true}),
            );
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else { return None };
            let [key, value] = [0, 1].map(|place| delta_type(fields[place].data_type()));
            return Some(json!({"type": "map", "keyType": key?, "valueType": value?, "valueContainsNull": true}));
        }
        _ => return None,
    };
    Some(json!(name))
}

fn struct_type(fields: &Fields) -> Option<Value> {
    let fields: Option<Vec<Value>> = fields
        .iter()
        .map(|field| {
            let of = delta_type(field.data_type())?;
            Some(json!({"name": field.name(), "type": of, "nullable": field.is_nullable(), "metadata": {}}))
        })
        .collect();
    Some(json!({"type": "struct", "fields": fields?}))
}

/// An inline deletion vector over an even number of rows: magic number, one 32-bit Roaring bitmap with one array
/// container, all in Z85.
pub fn vector(deleted: &[u16]) -> Value {
    assert!(deleted.len().is_multiple_of(2) && deleted.is_sorted());
    let mut bytes = 1_681_511_377u32.to_le_bytes().to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(12_346u32.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend(u16::try_from(deleted.len() - 1).unwrap().to_le_bytes());
    bytes.extend(16u32.to_le_bytes());
    deleted.iter().for_each(|row| bytes.extend(row.to_le_bytes()));
    json!({"storageType": "i", "pathOrInlineDv": z85(&bytes), "sizeInBytes": bytes.len(), "cardinality": deleted.len()})
}

fn z85(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut text = String::new();
    for chunk in bytes.chunks_exact(4) {
        let value = u32::from_be_bytes(chunk.try_into().unwrap());
        for power in [85u32.pow(4), 85u32.pow(3), 85 * 85, 85, 1] {
            text.push(char::from(DIGITS[(value / power % 85) as usize]));
        }
    }
    text
}
