//! The data files of a folder, glob or single file, with the values of Hive-style folders (`k=v`).

use std::collections::{HashMap, HashSet};
use std::path::Path as FsPath;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{ManifestPublication, ManifestUpdates, MovedFile, ReplacedFile, StoreFile};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, ObjectStoreExt};
use percent_encoding::percent_decode_str;

use crate::error::{Error, ErrorKind, Result, kind_of_storage};
use crate::storage::file_time::modified_ns;
use crate::storage::local::{MOST_LINKED_FOLDERS, too_many};
use crate::storage::location::{FileSet, Location, STORE_FOLDER};
use crate::store::Store;

/// The folder name that stands for NULL.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Folders that are listed at a time.
const CONCURRENT_FOLDERS: usize = 16;

/// A data file that was found.
#[derive(Clone, Debug)]
pub(crate) struct ListedFile {
    pub meta: ObjectMeta,
    /// Path below the root.
    pub path: String,
    /// The `k=v` folders on the way.
    folders: Vec<HiveFolder>,
}

/// A folder that names a partition column and its value.
#[derive(Clone, Debug)]
struct HiveFolder {
    column: String,
    /// The raw value; none for NULL.
    value: Option<String>,
}

/// What a listing found, by path.
#[derive(Debug)]
pub(crate) struct Listing {
    pub files: Vec<ListedFile>,
    pub partition_columns: Vec<Field>,
    /// Per partition column, one value per file.
    columns: Vec<ArrayRef>,
}

/// Lists the data files of `location`, in any order.
#[tracing::instrument(level = "debug", name = "listing", skip_all, fields(table = location.text))]
pub(crate) async fn listed(location: &Location) -> Result<Vec<ListedFile>> {
    match &location.shape {
        FileSet::File(name) => Ok(vec![one_file(location, name).await?]),
        FileSet::Folder | FileSet::Glob(_) => many_files(location).await,
    }
}

impl Listing {
    /// The data files of `location` as they were listed; an error if there are none.
    pub(crate) fn of(location: &Location, files: Vec<ListedFile>) -> Result<Self> {
        if files.is_empty() {
            let text = &location.text;
            return Err(Error::not_found(match &location.shape {
                FileSet::Glob(_) => format!("no file matches {text}; quote the glob and check it"),
                _ => format!("the folder {text} has no .parquet file; write data first, or give a glob or a file"),
            }));
        }
        Self::sorted(files)
    }

    fn sorted(mut files: Vec<ListedFile>) -> Result<Self> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let partitions = partitions(&files)?;
        Ok(Self { files, partition_columns: partitions.fields, columns: partitions.values })
    }

    /// The data files that were listed. Data files of the store take the place of those that migrations replaced. The files count as they
    /// were before these publications.
    pub(crate) async fn migrated(
        mut files: Vec<ListedFile>,
        store: &Store,
        updates: &ManifestUpdates,
        later: &[&ManifestPublication],
    ) -> Result<Self> {
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
            files.push(store_file(store, file).await?);
        }
        for file in moved_of(updates, later) {
            // The file is still there while it is being moved.
            if !files.iter().any(|have| have.path == file.path) {
                files.push(moved_file(store, file).await?);
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
    Ok(ListedFile { meta, path: format!("{STORE_FOLDER}/{}", file.path), folders: folders_of(&file.path) })
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
    Ok(ListedFile { meta, path: file.path.clone(), folders: folders_of(&file.path) })
}

async fn one_file(location: &Location, name: &str) -> Result<ListedFile> {
    let meta = location.object_store.head(&location.prefix.clone().join(name)).await?;
    Ok(ListedFile { meta, path: name.to_owned(), folders: Vec::new() })
}

async fn many_files(location: &Location) -> Result<Vec<ListedFile>> {
    let mut files = Vec::new();
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    for meta in objects(location).await? {
        let Some(parts) = meta.location.prefix_match(&location.prefix) else { continue };
        // Object store paths are percent-encoded where a file's name has unusual characters.
        let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
        if parts.is_empty() || parts.iter().any(|part| is_hidden(part)) {
            continue;
        }
        let path = parts.join("/");
        let wanted = match &location.shape {
            FileSet::Glob(pattern) => pattern.matches_with(&path, options),
            _ => path.to_ascii_lowercase().ends_with(".parquet"),
        };
        if wanted {
            let folders = folders_of(&path);
            files.push(ListedFile { meta, path, folders });
        }
    }
    Ok(files)
}

/// A local folder that is still to be listed.
struct FolderToList {
    path: Path,
    /// Whether a symbolic link is on the way to it.
    is_linked: bool,
}

/// A local folder that was listed.
struct ListedFolder {
    inside: ListResult,
    /// Whether the folder is a symbolic link, or one is on the way to it.
    is_linked: bool,
}

/// What lies below the root. A local folder is walked without the hidden folders, so that listing costs the same however many indexes lie
/// beside the data. An object store lists a thousand objects at a request, whatever folders they are in.
pub(crate) async fn objects(location: &Location) -> Result<Vec<ObjectMeta>> {
    let store = &location.object_store;
    if location.local.is_none() {
        let prefix = (!location.prefix.as_ref().is_empty()).then_some(&location.prefix);
        return Ok(store.list(prefix).try_collect().await?);
    }
    let mut found = Vec::new();
    let mut level = vec![FolderToList { path: location.prefix.clone(), is_linked: false }];
    let mut linked = 0;
    while !level.is_empty() {
        let listed: Vec<ListedFolder> = stream::iter(level)
            .map(|FolderToList { path, is_linked }| async move {
                let is_linked = is_linked || (path != location.prefix && is_link(&path).await);
                Ok::<_, Error>(ListedFolder { inside: store.list_with_delimiter(Some(&path)).await?, is_linked })
            })
            .buffered(CONCURRENT_FOLDERS)
            .try_collect()
            .await?;
        level = Vec::new();
        for ListedFolder { inside, is_linked } in listed {
            found.extend(inside.objects);
            let folders = inside.common_prefixes.into_iter().filter(|path| !path.filename().is_some_and(is_hidden));
            level.extend(folders.map(|path| FolderToList { path, is_linked }));
            linked += usize::from(is_linked);
        }
        // Each of these links may lead somewhere, and all of them together nowhere.
        if let Some(folder) = level.first().filter(|_| linked > MOST_LINKED_FOLDERS) {
            return Err(Error::invalid(too_many(FsPath::new(folder.path.as_ref())).to_string()));
        }
    }
    Ok(found)
}

/// Whether a local folder is a symbolic link to another.
async fn is_link(folder: &Path) -> bool {
    let Ok(path) = LocalFileSystem::new().path_to_filesystem(folder) else { return false };
    tokio::fs::symlink_metadata(path).await.is_ok_and(|metadata| metadata.is_symlink())
}

/// Folders with a leading underscore or dot are hidden, as in Spark, but for those of partition columns.
fn is_hidden(part: &str) -> bool {
    part.starts_with('.') || (part.starts_with('_') && !part.contains('='))
}

/// The partitions that a file lies in: its own name is none, whatever it looks like.
fn folders_of(path: &str) -> Vec<HiveFolder> {
    path.rsplit_once('/').map_or_else(Vec::new, |(folders, _)| folders.split('/').filter_map(hive_folder).collect())
}

fn hive_folder(part: &str) -> Option<HiveFolder> {
    let (column, value) = part.split_once('=')?;
    if column.is_empty() {
        return None;
    }
    let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
    let column = percent_decode_str(column).decode_utf8_lossy().into_owned();
    Some(HiveFolder { column, value: (value != HIVE_NULL).then_some(value) })
}

/// The name of the folder that a partition has: what [`hive_folder`] reads.
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

fn partitions(files: &[ListedFile]) -> Result<PartitionColumns> {
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
