//! Where the files of a publication are, in the store and in the folder, and how they move.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lakemark_format::{ManifestPublication, ManifestUpdates, MovedFile, PublishedFile};

use crate::error::{Error, Result};
use crate::snapshot::BaseTable;
use crate::storage::disk::{link, make_folder, remove, rename, sync_folder};
use crate::storage::failpoint::reach;
use crate::storage::ids::new_id;
use crate::storage::location::FileSet;
use crate::store::Store;
use crate::store::layout::ORIGINALS;

/// How names end that no reader lists.
const UNLISTED: &str = ".lakemark-unpublished";

/// Where the files are.
#[derive(Clone)]
pub(crate) struct Places {
    folder: PathBuf,
    store: PathBuf,
}

impl Places {
    pub(crate) fn of(table: &BaseTable, store: &Store) -> Result<Self> {
        let (Some(folder), Some(of_store)) = (&table.location.local, &store.place().local) else {
            return Err(Error::unsupported(
                "publishing needs table and store on a local file system; migrate keeps the new files in the store",
            ));
        };
        match table.location.shape {
            FileSet::Folder => Ok(Self { folder: folder.clone(), store: of_store.clone() }),
            FileSet::Glob(_) | FileSet::File(_) => Err(Error::unsupported(format!(
                "{} is a glob or a single file, which new files are no part of; publishing is for folders",
                table.location()
            ))),
        }
    }

    /// Which file goes where. Originals that somebody removed need not be moved.
    pub(crate) fn plan(&self, updates: &ManifestUpdates) -> Result<ManifestPublication> {
        let mut publication = ManifestPublication::default();
        for file in &updates.data {
            // The first two parts of the path are the folder of data files and that of their migration.
            let Some(path) = file.path.splitn(3, '/').nth(2) else {
                return Err(Error::internal(format!("the data file {} is in no folder of a migration", file.path)));
            };
            let (stored, path) = (file.path.clone(), path.to_owned());
            publication.files.push(PublishedFile { stored, path, size: file.size });
        }
        let number = new_id();
        for file in &updates.replaced {
            if !self.folder.join(&file.path).exists() {
                // Nobody knows which of the new files has its rows, nor which rows came with changes.
                tracing::warn!(
                    path = file.path,
                    "the data file was removed from the folder after its rows were migrated: they are published all the same; delete them \
                     with DELETE if they are to go"
                );
            } else {
                let stored = format!("{ORIGINALS}/{number}/{}", file.path);
                let (path, size, modified_ns) = (file.path.clone(), file.size, file.modified_ns);
                publication.originals.push(MovedFile { path, stored, size, modified_ns });
            }
        }
        Ok(publication)
    }

    /// Gives every file its second name.
    pub(crate) fn prepare(&self, publication: &ManifestPublication) -> io::Result<()> {
        let mut folders = BTreeSet::new();
        for file in &publication.originals {
            second_name(&self.folder.join(&file.path), &self.store.join(&file.stored), &mut folders)?;
        }
        for file in &publication.files {
            second_name(&self.store.join(&file.stored), &unlisted(&self.folder.join(&file.path)), &mut folders)?;
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    /// Takes the originals out of the folder and lets the new files in. What was done before is not done again.
    pub(crate) fn switch(&self, publication: &ManifestPublication) -> io::Result<()> {
        let mut folders = BTreeSet::new();
        for file in &publication.originals {
            let path = self.folder.join(&file.path);
            // A file that somebody wrote in its place meanwhile is a file of its own.
            if is_unchanged(&path, file)? {
                remove(&path)?;
                folders.extend(path.parent().map(Path::to_owned));
                reach("publish-original-gone");
            }
        }
        for file in &publication.files {
            let path = self.folder.join(&file.path);
            let waiting = unlisted(&path);
            if !path.exists() {
                if !waiting.exists() {
                    second_name(&self.store.join(&file.stored), &waiting, &mut folders)?;
                }
                rename(&waiting, &path)?;
                reach("publish-file-there");
            }
            folders.extend(path.parent().map(Path::to_owned));
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }
}

/// The name that a file has in the folder before it is listed.
fn unlisted(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{UNLISTED}"))
}

fn is_unchanged(path: &Path, file: &MovedFile) -> io::Result<bool> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let modified: chrono::DateTime<chrono::Utc> = metadata.modified()?.into();
    Ok((metadata.len(), modified.timestamp_nanos_opt().unwrap_or_default()) == (file.size, file.modified_ns))
}

/// Whether both names are of one file. A link may be made and answered with an error, and to copy a file onto itself is to empty it.
#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    of(one).is_some_and(|file| of(other) == Some(file))
}

#[cfg(not(unix))]
fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}

/// Gives a file another name; on another file system a copy with the same time. `folders` are those to sync.
fn second_name(from: &Path, to: &Path, folders: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
        folders.insert(folder.to_owned());
    }
    match remove(to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if link(from, to).is_ok() || is_same_file(from, to) {
        return Ok(());
    }
    fs::copy(from, to)?;
    let copy = File::options().write(true).open(to)?;
    copy.set_modified(fs::metadata(from)?.modified()?)?;
    copy.sync_all()
}
