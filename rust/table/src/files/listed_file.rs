//! A data file that was found, and the partitions that it lies in by the names of its folders.

use std::cmp::Ordering;
use std::sync::Arc;

use object_store::ObjectMeta;
use object_store::path::Path;
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
    /// The place of the file of a path; where it would be, if it is not among them.
    pub(super) fn place_of(&self, path: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|file| file.path.as_str().cmp(path))
    }

    /// Whether another listing found the same versions of the same files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Arc<ListedFile>, &Arc<ListedFile>)| Arc::ptr_eq(a, b) || a.meta == b.meta;
        std::ptr::eq(self, other) || (self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(is_same))
    }
}

/// A file that one of two listings has, or that differs between them.
#[derive(Debug)]
pub(crate) struct ListingChange {
    /// Its place in the earlier listing, or that of what follows it there.
    pub place: usize,
    /// Whether the earlier listing has it.
    pub was_there: bool,
    /// The file as it is now, if it is there.
    pub now: Option<Arc<ListedFile>>,
}

impl FileList {
    /// What changed since an earlier listing, by place. Files that both share are compared by their addresses alone.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<ListingChange> {
        let (mut old, mut new, mut changes) = (0, 0, Vec::new());
        loop {
            let (was, now) = (before.0.get(old), self.0.get(new));
            let order = match (was, now) {
                (None, None) => return changes,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(was), Some(now)) if Arc::ptr_eq(was, now) => {
                    (old, new) = (old + 1, new + 1);
                    continue;
                }
                (Some(was), Some(now)) => was.path.cmp(&now.path),
            };
            let is_same = order.is_eq() && was.map(|was| &was.meta) == now.map(|now| &now.meta);
            if !is_same {
                let now = now.filter(|_| order.is_ge()).cloned();
                changes.push(ListingChange { place: old, was_there: order.is_le(), now });
            }
            (old, new) = (old + usize::from(order.is_le()), new + usize::from(order.is_ge()));
        }
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
        // Most objects are those of last time, which takes no look at their paths.
        let same = before.next_if(|file| Arc::ptr_eq(&file.meta, &meta)).or_else(|| {
            while before.next_if(|file| file.meta.location < meta.location).is_some() {}
            before.next_if(|file| file.meta == meta)
        });
        match same {
            Some(same) => files.push(Arc::clone(same)),
            None => files.extend(data_file(location, meta, files.last().map(Arc::as_ref)).map(Arc::new)),
        }
    }
    files
}

/// The data file that an object is, if it is one. Files of a folder share what its name says.
fn data_file(location: &Location, meta: Arc<ObjectMeta>, neighbour: Option<&ListedFile>) -> Option<ListedFile> {
    let path = path_below(&location.prefix, &meta.location)?;
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let is_wanted = match &location.shape {
        FileSet::Glob(pattern) => pattern.matches_with(&path, options),
        FileSet::Folder | FileSet::File(_) => is_parquet(&path),
    };
    if !is_wanted {
        return None;
    }
    let is_beside = |file: &&ListedFile| folder_of(&file.path) == folder_of(&path);
    let folders = neighbour.filter(is_beside).map_or_else(|| folders_of(&path), |file| Arc::clone(&file.folders));
    Some(ListedFile { meta, path, folders })
}

/// The path of an object below a root; none for the root itself and for what is hidden. There may be millions, so that each is one allocation.
fn path_below(root: &Path, object: &Path) -> Option<String> {
    let mut path = String::with_capacity(object.as_ref().len().saturating_sub(root.as_ref().len()));
    // Object store paths are percent-encoded where a file's name has unusual characters.
    for part in object.prefix_match(root)? {
        let part = part.as_ref();
        if is_hidden(part) {
            return None;
        }
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(part);
    }
    (!path.is_empty()).then_some(path)
}

/// Whether a file is called as Parquet files are, in letters of any case.
fn is_parquet(path: &str) -> bool {
    const ENDING: &[u8] = b".parquet";
    path.as_bytes().last_chunk::<{ ENDING.len() }>().is_some_and(|end| end.eq_ignore_ascii_case(ENDING))
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

#[cfg(test)]
mod tests {
    use chrono::{TimeZone, Utc};

    use super::*;

    fn file(path: &str, size: u64) -> Arc<ListedFile> {
        let last_modified = Utc.timestamp_opt(1, 0).unwrap();
        let meta = ObjectMeta { location: Path::from(path), last_modified, size, e_tag: None, version: None };
        Arc::new(ListedFile::in_folders_of(path, path.to_owned(), meta))
    }

    #[test]
    fn a_path_is_that_below_the_root_and_nothing_hidden_has_one() {
        let below = |root: &str, object: &str| path_below(&Path::from(root), &Path::from(object));
        for (root, object, path) in [
            ("a/b", "a/b/c.parquet", Some("c.parquet")),
            ("a/b", "a/b/k=1/c.parquet", Some("k=1/c.parquet")),
            ("", "c.parquet", Some("c.parquet")),
            ("a", "a/_k=1/c", Some("_k=1/c")),
            ("a/b", "a/b", None),
            ("a/b", "a/bc/d", None),
            ("a", "a/_hidden/c", None),
            ("a", "a/k=1/.c", None),
        ] {
            assert_eq!(below(root, object).as_deref(), path, "{object}");
        }
        let called = |name: &&str| is_parquet(name);
        assert!(["c.parquet", "c.PARQUET", ".parquet", "ä.Parquet"].iter().all(called));
        assert!(!["parquet", "c.parquet2", "c.parque", ""].iter().any(called));
    }

    #[test]
    fn files_that_came_left_or_differ_are_changes_and_equal_ones_are_not() {
        let shared = file("c", 1);
        let before = FileList(vec![file("a", 1), file("b", 1), Arc::clone(&shared), file("d", 1), file("e", 1)]);
        let now = FileList(vec![file("b", 2), file("bb", 1), shared, file("d", 1), file("f", 1)]);
        let changes = now.changes_since(&before);
        let shown = changes.iter().map(|change| {
            (change.place, change.was_there, change.now.as_ref().map(|file| (file.path.as_str(), file.meta.size)))
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                (0, true, None),
                (1, true, Some(("b", 2))),
                (2, false, Some(("bb", 1))),
                (4, true, None),
                (5, false, Some(("f", 1))),
            ]
        );
        assert!(before.changes_since(&before).is_empty());
    }
}
