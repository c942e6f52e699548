//! The data files of a folder whose migrations are not published: files of the store took the place of some.
//!
//! ```text
//! listed          a  b  c        replaced: b       data files of the store: m
//! what counts     m  a  c
//! ```
//!
//! Each of these files of the store is looked at for each list, as those of the folder are when that is listed. What is as it was in a list
//! before is shared with it, so that the next snapshot matches changed files alone.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{ManifestPublication, ManifestUpdates, MovedFile, StoreFile};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::listed_file::{FileList, ListedFile};
use crate::error::{Error, ErrorKind, Result, kind_of_storage};
use crate::storage::file_time::modified_ns;
use crate::storage::location::STORE_FOLDER;
use crate::store::Store;

/// Files of the store that are looked at at a time.
const CONCURRENT_LOOKS: usize = 32;

/// What migrations and publications made of a folder.
#[derive(Clone, Copy)]
pub(crate) struct MigratedFolder<'a> {
    pub store: &'a Store,
    /// What a manifest says of migrations.
    pub updates: &'a ManifestUpdates,
    /// Publications that do not count yet.
    pub later: &'a [&'a ManifestPublication],
}

impl MigratedFolder<'_> {
    /// The data files that were listed. Data files of the store take the place of those that migrations replaced. The files count as they
    /// were before the later publications.
    ///
    /// # Errors
    /// A replaced file was changed since (`Conflict`), or a file of the store is not what was written.
    pub(crate) async fn files(self, listed: &FileList, before: Option<&FileList>) -> Result<FileList> {
        let gone = self.gone(listed)?;
        let mut data = Vec::with_capacity(self.updates.data.len());
        for file in &self.updates.data {
            data.push(store_file(self.store, file, before));
        }
        let mut came: Vec<Arc<ListedFile>> = stream::iter(data).buffered(CONCURRENT_LOOKS).try_collect().await?;
        for file in moved_of(self.updates, self.later) {
            // The file is still there while it is being moved.
            let is_known = listed.place_of(&file.path).is_ok() || came.iter().any(|have| have.path == file.path);
            if !is_known {
                came.push(moved_file(self.store, file, before).await?);
            }
        }
        came.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(merged(listed, &gone, came))
    }

    /// The places of listed files that do not count: those that were replaced, and those that were published later.
    fn gone(self, listed: &FileList) -> Result<Vec<usize>> {
        let published = self.later.iter().flat_map(|later| &later.files).map(|file| file.path.as_str());
        let published: HashSet<&str> = published.collect();
        let mut gone: Vec<usize> = published.iter().filter_map(|path| listed.place_of(path).ok()).collect();
        for was in self.updates.replaced.iter().filter(|file| !published.contains(file.path.as_str())) {
            let Ok(place) = listed.place_of(&was.path) else { continue };
            let now = listed.0.get(place).map(|file| (file.meta.size, modified_ns(&file.meta)));
            if now != Some((was.size, was.modified_ns)) {
                let path = &was.path;
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "the data file {path} was changed after its rows were migrated into the store, so that nobody can tell which of \
                         both counts: give the changed rows another file name, or restore the file"
                    ),
                ));
            }
            gone.push(place);
        }
        gone.sort_unstable();
        Ok(gone)
    }
}

/// A list without the files at these places, which ascend, and with others, which are in the order of their paths.
fn merged(listed: &FileList, gone: &[usize], came: Vec<Arc<ListedFile>>) -> FileList {
    let comes = came.into_iter().map(|file| (listed.place_of(&file.path).unwrap_or_else(|place| place), Some(file)));
    let mut edits: Vec<(usize, Option<Arc<ListedFile>>)> =
        comes.chain(gone.iter().map(|place| (*place, None))).collect();
    // At one place what comes is before what goes.
    edits.sort_by_key(|(place, comes)| (*place, comes.is_none()));
    let mut files = Vec::with_capacity(listed.0.len() + edits.len());
    let mut next = 0;
    for (place, comes) in edits {
        files.extend_from_slice(listed.0.get(next..place).unwrap_or_default());
        next = next.max(place + usize::from(comes.is_none()));
        files.extend(comes);
    }
    files.extend_from_slice(listed.0.get(next..).unwrap_or_default());
    FileList(files)
}

/// The files that counted before these publications and that they moved into the store.
pub(crate) fn moved_of<'a>(updates: &'a ManifestUpdates, later: &'a [&ManifestPublication]) -> Vec<&'a MovedFile> {
    let came: HashSet<&str> = later.iter().flat_map(|later| &later.files).map(|file| file.path.as_str()).collect();
    let replaced: HashSet<&str> = updates.replaced.iter().map(|file| file.path.as_str()).collect();
    let moved = later.iter().flat_map(|later| &later.originals);
    moved.filter(|file| !came.contains(file.path.as_str()) && !replaced.contains(file.path.as_str())).collect()
}

/// A data file of the store. Its top folder is the migration's, those below are of partitions.
async fn store_file(store: &Store, file: &StoreFile, before: Option<&FileList>) -> Result<Arc<ListedFile>> {
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
    Ok(listed(&file.path, format!("{STORE_FOLDER}/{}", file.path), meta, before))
}

/// A file of the folder that is in the store now, under the path that it had.
async fn moved_file(store: &Store, file: &MovedFile, before: Option<&FileList>) -> Result<Arc<ListedFile>> {
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
    Ok(listed(&file.path, file.path.clone(), meta, before))
}

/// A file in the partitions of a path. If it is as it was in a list before, it is the same one.
fn listed(folders: &str, path: String, meta: ObjectMeta, before: Option<&FileList>) -> Arc<ListedFile> {
    let had = before.and_then(|before| before.0.get(before.place_of(&path).ok()?));
    match had.filter(|had| *had.meta == meta) {
        Some(same) => Arc::clone(same),
        None => Arc::new(ListedFile::in_folders_of(folders, path, meta)),
    }
}

#[cfg(test)]
mod tests {
    use chrono::{TimeZone, Utc};
    use object_store::path::Path;

    use super::*;

    fn file(path: &str) -> Arc<ListedFile> {
        let last_modified = Utc.timestamp_opt(1, 0).unwrap();
        let meta = ObjectMeta { location: Path::from(path), last_modified, size: 1, e_tag: None, version: None };
        listed(path, path.to_owned(), meta, None)
    }

    fn list(paths: &[&str]) -> FileList {
        FileList(paths.iter().map(|path| file(path)).collect())
    }

    #[test]
    fn files_that_come_are_in_the_order_of_paths_and_others_are_shared() {
        let before = list(&["b", "d", "f", "h"]);
        let cases: [(&[usize], &[&str], &[&str]); 5] = [
            (&[], &[], &["b", "d", "f", "h"]),
            (&[0, 3], &[], &["d", "f"]),
            (&[1], &["a", "c", "c2", "i"], &["a", "b", "c", "c2", "f", "h", "i"]),
            (&[0, 1, 2, 3], &["e"], &["e"]),
            (&[2], &["e", "g"], &["b", "d", "e", "g", "h"]),
        ];
        for (gone, came, expected) in cases {
            let after = merged(&before, gone, list(came).0);
            assert_eq!(after.0.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), expected);
            let shared = after.0.iter().filter(|file| before.0.iter().any(|had| Arc::ptr_eq(had, file))).count();
            assert_eq!(shared, before.0.len() - gone.len());
        }
    }

    #[test]
    fn a_file_is_the_one_of_the_list_before_while_it_is_the_same_version() {
        let before = list(&["b", "d"]);
        let had = Arc::clone(&before.0[1]);
        let meta = had.meta.as_ref().clone();
        let other = ObjectMeta { size: 2, ..meta.clone() };
        assert!(Arc::ptr_eq(&listed("d", "d".into(), meta, Some(&before)), &had));
        assert_eq!(listed("d", "d".into(), other, Some(&before)).meta.size, 2);
    }
}
