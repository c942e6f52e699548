//! A data file that was found, and the partitions that it lies in by the names of its folders.

use std::sync::Arc;

use object_store::ObjectMeta;
use percent_encoding::percent_decode_str;

use crate::storage::location::{FileSet, Location};

/// The folder name that stands for NULL.
pub(super) const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A data file that was found.
#[derive(Debug)]
pub(crate) struct ListedFile {
    pub meta: Arc<ObjectMeta>,
    /// Path below the root.
    pub path: String,
    /// The `k=v` folders on the way.
    pub folders: Arc<[HiveFolder]>,
}

/// A folder that names a partition column and its value.
#[derive(Debug)]
pub(crate) struct HiveFolder {
    pub column: String,
    /// The raw value; none for NULL.
    pub value: Option<String>,
}

/// The data files of a table as they were listed, by path. Files that did not change since the listing before are shared with it.
#[derive(Debug, Default)]
pub(crate) struct FileList(pub Vec<Arc<ListedFile>>);

impl FileList {
    /// Whether another listing found the same versions of the same files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Arc<ListedFile>, &Arc<ListedFile>)| Arc::ptr_eq(a, b) || a.meta == b.meta;
        std::ptr::eq(self, other) || (self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(is_same))
    }
}

impl ListedFile {
    /// A file in the partitions of a path, wherever it is now.
    pub(super) fn in_folders_of(folders: &str, path: String, meta: ObjectMeta) -> Self {
        Self { meta: Arc::new(meta), path, folders: folders_of(folders) }
    }
}

/// The data files among these objects, which are in the order of their locations. A file is the one that was found before if that is the
/// same version.
pub(super) fn files_among(
    location: &Location,
    objects: impl Iterator<Item = Arc<ObjectMeta>>,
    before: &[Arc<ListedFile>],
) -> Vec<Arc<ListedFile>> {
    let mut before = before.iter().peekable();
    let mut files: Vec<Arc<ListedFile>> = Vec::with_capacity(before.len());
    for meta in objects {
        while before.next_if(|file| file.meta.location < meta.location).is_some() {}
        match before.next_if(|file| file.meta == meta) {
            Some(same) => files.push(Arc::clone(same)),
            None => files.extend(data_file(location, meta, files.last().map(Arc::as_ref)).map(Arc::new)),
        }
    }
    files
}

/// The data file that an object is, if it is one. Files of a folder share what its name says.
fn data_file(location: &Location, meta: Arc<ObjectMeta>, neighbour: Option<&ListedFile>) -> Option<ListedFile> {
    // Object store paths are percent-encoded where a file's name has unusual characters.
    let parts: Vec<String> =
        meta.location.prefix_match(&location.prefix)?.map(|part| part.as_ref().to_owned()).collect();
    if parts.is_empty() || parts.iter().any(|part| is_hidden(part)) {
        return None;
    }
    let path = parts.join("/");
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let is_wanted = match &location.shape {
        FileSet::Glob(pattern) => pattern.matches_with(&path, options),
        FileSet::Folder | FileSet::File(_) => path.to_ascii_lowercase().ends_with(".parquet"),
    };
    if !is_wanted {
        return None;
    }
    let is_beside = |file: &&ListedFile| folder_of(&file.path) == folder_of(&path);
    let folders = neighbour.filter(is_beside).map_or_else(|| folders_of(&path), |file| Arc::clone(&file.folders));
    Some(ListedFile { meta, path, folders })
}

/// Folders with a leading underscore or dot are hidden, as in Spark, but for those of partition columns.
pub(super) fn is_hidden(part: &str) -> bool {
    part.starts_with('.') || (part.starts_with('_') && !part.contains('='))
}

fn folder_of(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(folder, _)| folder)
}

/// The partitions that a file lies in: its own name is none, whatever it looks like.
fn folders_of(path: &str) -> Arc<[HiveFolder]> {
    folder_of(path).into_iter().flat_map(|folder| folder.split('/')).filter_map(hive_folder).collect()
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
