//! The data files of a folder, glob or single file, with the values of Hive-style folders (`k=v`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, Int64Array, StringArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use lakemark_format::{ManifestPublication, ManifestUpdates, MovedFile, ReplacedFile, StoreFile};
use object_store::ObjectStoreExt;

use super::listed_file::{FileList, HIVE_NULL, ListedFile};
use crate::error::{Error, ErrorKind, Result, kind_of_storage};
use crate::storage::file_time::modified_ns;
use crate::storage::location::{FileSet, Location, STORE_FOLDER};
use crate::store::Store;

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
        Self::sorted(files.0.clone())
    }

    fn sorted(mut files: Vec<Arc<ListedFile>>) -> Result<Self> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let partitions = partitions(&files)?;
        Ok(Self { files, partition_columns: partitions.fields, columns: partitions.values })
    }

    /// The data files that were listed. Data files of the store take the place of those that migrations replaced. The files count as they
    /// were before these publications.
    pub(crate) async fn migrated(
        files: &FileList,
        store: &Store,
        updates: &ManifestUpdates,
        later: &[&ManifestPublication],
    ) -> Result<Self> {
        let mut files = files.0.clone();
        let published: HashSet<&str> =
            later.iter().flat_map(|later| &later.files).map(|file| file.path.as_str()).collect();
        files.retain(|file| !published.contains(file.path.as_str()));
        let replaced: HashMap<&str, &ReplacedFile> =
            updates.replaced.iter().map(|file| (file.path.as_str(), file)).collect();
        let mut changed = None;
        files.retain(|file| match replaced.get(file.path.as_str()) {
            None => true,
            Some(was) => {
                if (was.size, was.modified_ns) != (file.meta.size, modified_ns(&file.meta)) {
                    changed = Some(file.path.clone());
                }
                false
            }
        });
        if let Some(path) = changed {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "the data file {path} was changed after its rows were migrated into the store, so that nobody can tell which of \
                     both counts: give the changed rows another file name, or restore the file"
                ),
            ));
        }
        for file in &updates.data {
            files.push(Arc::new(store_file(store, file).await?));
        }
        for file in moved_of(updates, later) {
            // The file is still there while it is being moved.
            if !files.iter().any(|have| have.path == file.path) {
                files.push(Arc::new(moved_file(store, file).await?));
            }
        }
        Self::sorted(files)
    }

    /// The partition values of a file, each an array of length 1.
    pub(crate) fn partition_values(&self, file: usize) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| column.slice(file, 1)).collect()
    }
}

/// A data file of the store. Its top folder is the migration's, those below are of partitions.
async fn store_file(store: &Store, file: &StoreFile) -> Result<ListedFile> {
    let lost = || {
        let path = &file.path;
        Error::corrupt(format!(
            "the data file {path} of the store {} is not what was written: restore it",
            store.text()
        ))
    };
    let meta =
        store.object_store().head(&store.data_path(&file.path)).await.map_err(|error| {
            match kind_of_storage(&error) {
                ErrorKind::NotFound | ErrorKind::Corrupt => lost().with_source(error),
                _ => store.unreadable(error),
            }
        })?;
    if meta.size != file.size {
        return Err(lost());
    }
    Ok(ListedFile::in_folders_of(&file.path, format!("{STORE_FOLDER}/{}", file.path), meta))
}

/// The files that counted before these publications and that they moved into the store.
pub(crate) fn moved_of<'a>(updates: &'a ManifestUpdates, later: &'a [&ManifestPublication]) -> Vec<&'a MovedFile> {
    let came: HashSet<&str> = later.iter().flat_map(|later| &later.files).map(|file| file.path.as_str()).collect();
    let replaced: HashSet<&str> = updates.replaced.iter().map(|file| file.path.as_str()).collect();
    let moved = later.iter().flat_map(|later| &later.originals);
    moved.filter(|file| !came.contains(file.path.as_str()) && !replaced.contains(file.path.as_str())).collect()
}

/// A file of the folder that is in the store now, under the path that it had.
async fn moved_file(store: &Store, file: &MovedFile) -> Result<ListedFile> {
    let meta = store.object_store().head(&store.data_path(&file.stored)).await?;
    // A store that was put back from a copy may have other times.
    if meta.size != file.size {
        return Err(Error::corrupt(format!(
            "the data file {}, which a publication moved to {} of the store {}, is not what was moved: restore it",
            file.path,
            file.stored,
            store.text()
        )));
    }
    Ok(ListedFile::in_folders_of(&file.path, file.path.clone(), meta))
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
