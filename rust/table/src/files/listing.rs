//! The data files of a folder, glob or single file, with the values of Hive-style folders (`k=v`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, Int64Array, StringArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use lakemark_format::{ManifestPublication, ManifestUpdates};

use super::listed_file::{FileList, HIVE_NULL, ListedFile};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::location::{FileSet, Location};

/// What a listing found, by path.
#[derive(Debug)]
pub(crate) struct Listing {
    pub files: Vec<Arc<ListedFile>>,
    pub partition_columns: Vec<Field>,
    /// Per partition column, one value per file.
    columns: Vec<ArrayRef>,
}

impl Listing {
    /// The data files of `location` as they were listed; an error if there are none.
    pub(crate) fn of(location: &Location, files: &FileList) -> Result<Self> {
        if files.0.is_empty() {
            let text = &location.text;
            return Err(Error::not_found(match &location.shape {
                FileSet::Glob(_) => format!("no file matches {text}; quote the glob and check it"),
                _ => format!("the folder {text} has no .parquet file; write data first, or give a glob or a file"),
            }));
        }
        Self::of_files(files)
    }

    /// These data files, of which there may be none.
    ///
    /// # Errors
    /// They are not all in folders of the same columns.
    pub(crate) fn of_files(files: &FileList) -> Result<Self> {
        let files = files.0.clone();
        let partitions = partitions(&files)?;
        Ok(Self { files, partition_columns: partitions.fields, columns: partitions.values })
    }

    /// The partition values of a file, each an array of length 1.
    pub(crate) fn partition_values(&self, file: usize) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| column.slice(file, 1)).collect()
    }
}

/// The name of the folder that a partition has: what listings read.
pub(crate) fn hive_folder_name(column: &str, value: Option<&str>) -> String {
    format!("{}={}", escaped(column), value.map_or_else(|| HIVE_NULL.to_owned(), escaped))
}

/// Spark escapes the same: only ASCII is escaped.
fn escaped(text: &str) -> String {
    let is_plain = |character: char| {
        !character.is_ascii() || character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | '~')
    };
    let escape = |character: char| {
        if is_plain(character) { character.to_string() } else { format!("%{:02X}", u32::from(character)) }
    };
    text.chars().map(escape).collect()
}

/// The partition columns of some files.
#[derive(Default)]
struct PartitionColumns {
    fields: Vec<Field>,
    /// Per column, one value per file.
    values: Vec<ArrayRef>,
}

fn partitions(files: &[Arc<ListedFile>]) -> Result<PartitionColumns> {
    let Some(first) = files.first() else { return Ok(PartitionColumns::default()) };
    let names: Vec<&str> = first.folders.iter().map(|folder| folder.column.as_str()).collect();
    for file in files {
        let same = file.folders.iter().map(|folder| folder.column.as_str()).eq(names.iter().copied());
        if !same {
            return Err(Error::new(
                ErrorKind::SchemaMismatch,
                format!(
                    "the file {} is not in folders {} as {} is; give each layout as a table of its own",
                    file.path,
                    if names.is_empty() { "without k=v".to_owned() } else { names.join("=…/") + "=…" },
                    first.path
                ),
            ));
        }
    }
    let columns: Vec<ArrayRef> = (0..names.len())
        .map(|column| {
            let values = files.iter().map(|file| file.folders.get(column).and_then(|folder| folder.value.as_deref()));
            infer(&values.collect::<Vec<_>>())
        })
        .collect();
    let fields = names.iter().zip(&columns).map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    Ok(PartitionColumns { fields: fields.collect(), values: columns })
}

/// The value of a partition column of this type, by the text in a folder's name: an array of length 1. None if the text gives the column
/// another type.
pub(crate) fn value_of_type(text: Option<&str>, of: &DataType) -> Option<ArrayRef> {
    match (text, of) {
        (None, of) => Some(new_null_array(of, 1)),
        (Some(text), DataType::Utf8) => Some(Arc::new(StringArray::from(vec![text]))),
        (text, of) => Some(infer(&[text])).filter(|value| value.data_type() == of),
    }
}

/// The type of a partition column with these values in its folders' names.
pub(crate) fn inferred_type(values: &[Option<&str>]) -> DataType {
    infer(values).data_type().clone()
}

/// Integers if all values are, else dates, else text.
fn infer(values: &[Option<&str>]) -> ArrayRef {
    let some = || values.iter().flatten();
    if some().next().is_some() {
        if some().all(|value| is_plain_integer(value)) {
            return Arc::new(
                values.iter().map(|value| value.and_then(|value| value.parse().ok())).collect::<Int64Array>(),
            );
        }
        if some().all(|value| is_plain_date(value)) {
            let text: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
            let dates = cast(&text, &DataType::Date32).ok();
            // A day that no calendar has (2024-02-31) casts to NULL: the column is text then.
            if let Some(dates) = dates.filter(|dates| dates.null_count() == text.null_count()) {
                return Arc::new(Date32Array::from(dates.to_data()));
            }
        }
    }
    Arc::new(StringArray::from(values.to_vec()))
}

/// An integer that prints as it was written: `007` is text.
fn is_plain_integer(value: &str) -> bool {
    value.parse::<i64>().is_ok_and(|number| number.to_string() == value)
}

fn is_plain_date(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { *byte == b'-' } else { byte.is_ascii_digit() })
}

/// The publication that is under way.
pub(crate) fn under_way(updates: &ManifestUpdates) -> Option<&ManifestPublication> {
    updates.publications.last().filter(|publication| publication.manifest == 0)
}
