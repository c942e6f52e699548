//! The collations of texts, which Parquet does not have: Spark writes its own schema into footers beside Parquet's.
//!
//! A text with a collation is compared by Spark alone: to the index it is a text like any other, whose equals it does not know.

use std::sync::{Mutex, PoisonError};

use arrow::datatypes::{DataType, Field};
use lakemark_table::{ErrorKind, Snapshot};

use crate::error::{NativeError, Result};

/// Where Spark's schema stands in the metadata of a schema that goes to Java.
pub(crate) const SPARK_SCHEMA: &str = "lakemark.spark_schema";
/// The entry of a Delta column's metadata that has its collations.
const COLLATIONS: &str = "__COLLATIONS";
/// Tables whose schema is remembered: each query needs it.
const MOST: usize = 64;

/// A data file as it was when it was read.
#[derive(PartialEq, Eq)]
struct FileVersion {
    /// Its place, with that of the table.
    path: String,
    /// Its bytes.
    size: u64,
    /// When it was written, in nanoseconds.
    modified: i64,
    /// The entity tag that its listing gave it, if it did.
    tag: Option<String>,
}

/// What is known of a table's first file.
struct KnownSchema {
    /// The file as it was read.
    file: FileVersion,
    /// Spark's schema, if it has collations.
    schema: Option<String>,
}

static KNOWN: Mutex<Vec<KnownSchema>> = Mutex::new(Vec::new());

/// The schema that Spark wrote into the files of a table, as JSON, if it has collations.
pub(crate) async fn spark_schema(snapshot: &Snapshot) -> Result<Option<String>> {
    let Some(first) = snapshot.files().iter().min_by(|a, b| a.path.cmp(&b.path)) else { return Ok(None) };
    let path = format!("{}{}", snapshot.root_url(), first.meta.location);
    let modified = first.meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
    let file = FileVersion { path, size: first.meta.size, modified, tag: first.meta.e_tag.clone() };
    {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(|known| known.file == file) {
            return Ok(known.schema.clone());
        }
    }
    let schema = snapshot.spark_schema().await?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MOST {
        known.remove(0);
    }
    known.push(KnownSchema { file, schema: schema.clone() });
    Ok(schema)
}

/// Refuses a Delta table with collations: what its log says of them is not handed on.
pub(crate) fn refuse_in_delta(location: &str, snapshot: &Snapshot) -> Result<()> {
    let schema = snapshot.schema();
    let found = schema.fields().iter().find(|field| has_collation(field));
    match found.filter(|_| snapshot.delta_version().is_some()) {
        Some(field) => Err(NativeError::new(
            ErrorKind::Unsupported,
            format!(
                "the column {} of the Delta table {location} has a collation, by which the Spark connector does not compare; use Spark's \
                 own reader of Delta tables",
                field.name()
            ),
        )),
        None => Ok(()),
    }
}

fn has_collation(field: &Field) -> bool {
    let inside = match field.data_type() {
        DataType::Struct(fields) => fields.iter().any(|field| has_collation(field)),
        DataType::List(inner) | DataType::LargeList(inner) | DataType::Map(inner, _) => has_collation(inner),
        _ => false,
    };
    inside || field.metadata().contains_key(COLLATIONS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn collations_are_seen_wherever_they_stand() {
        let collated = |name: &str| {
            let said = HashMap::from([(COLLATIONS.to_owned(), r#"{"x":"spark.UTF8_LCASE"}"#.to_owned())]);
            Arc::new(Field::new(name, DataType::Utf8, true).with_metadata(said))
        };
        let inside = DataType::Struct(vec![collated("x")].into());
        assert!(has_collation(&collated("x")));
        assert!(has_collation(&Field::new("p", inside.clone(), true)));
        assert!(has_collation(&Field::new("l", DataType::List(Arc::new(Field::new("item", inside, true))), true)));
        assert!(!has_collation(&Field::new("s", DataType::Utf8, true)));
    }
}
