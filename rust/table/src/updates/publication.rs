//! Publishing: the data files that migrations of a folder wrote into the store become files of the folder, for every reader.
//!
//! ```text
//! 1  each new file gets a second name in the folder that no reader lists, each original that it replaces one in the store
//! 2  a manifest says what is going to be published                                          (lock of writers, from here on)
//! 3  the originals leave the folder, then the new files get their names in it
//! 4  a manifest says that files of the folder count again
//! ```
//!
//! Our readers see the same rows at every point: up to step 4 they take the new files from the store and leave out whatever step 3 moves.
//! Other readers list the folder, where several files do not change at once. Between the first and the last name of step 3 they see some of
//! the rows, and never a row twice. Steps 1 and 3 are names only; bytes are copied in step 1 if at all. If a process dies in between, the
//! next writer goes on with step 3.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use lakemark_format::{ManifestPublication, ManifestUpdates, MovedFile, PublishedFile};
use uuid::Uuid;

use super::errors::{no_key, unwritable};
use super::indexing::build_newest;
use super::locks::{MigrationLock, WriterLock};
use super::updatable::UpdatableTable;
use crate::error::{Error, ErrorKind, Result};
use crate::files::listing::under_way;
use crate::options::BuildOptions;
use crate::report::PublishReport;
use crate::snapshot::{BaseTable, Snapshot};
use crate::storage::disk::{link, make_folder, on_a_thread, remove, rename, sync_folder};
use crate::storage::failpoint::reach;
use crate::storage::location::FileSet;
use crate::store::locks::holding;
use crate::store::transaction::{Edit, commit};
use crate::store::{ORIGINALS, Store};
use crate::table_format::TableFormat;

/// How names end that no reader lists.
const UNLISTED: &str = ".lakemark-unpublished";

/// Publishes what migrations wrote; nothing if there is nothing.
pub(crate) async fn publish(table: &Arc<UpdatableTable>) -> Result<PublishReport> {
    let started = Instant::now();
    let store = table.base.writable_store()?;
    if table.base.format == TableFormat::Delta {
        // A migration of a Delta table is a commit, which publishes it.
        return Ok(PublishReport::default());
    }
    let places = Places::of(&table.base, store)?;
    let lock = MigrationLock::take(store).await?;
    // A task of its own: what was begun is ended under the lock, also if the caller goes away.
    let begins = Arc::clone(table);
    let published = holding(lock.clone(), async move { publish_all(&begins, &places).await }).await??;
    if !published.files.is_empty() && !Snapshot::pin_base(&table.base).await?.indexes().is_empty() {
        // Indexes know files by their paths.
        build_newest(table, BuildOptions::default()).await?;
    }
    Ok(PublishReport {
        files_published: published.files.len() as u64,
        originals_moved: published.originals.len() as u64,
        bytes_published: published.files.iter().map(|file| file.size).sum(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

async fn publish_all(table: &Arc<UpdatableTable>, places: &Places) -> Result<ManifestPublication> {
    let store = table.base.writable_store()?;
    {
        let _lock = WriterLock::take(store).await?;
        finish_publication(&table.base, &Snapshot::pin_base(&table.base).await?).await?;
    }
    // Sees to it that no original was changed since.
    let base = Snapshot::pin_base(&table.base).await?;
    let updates =
        base.manifest.as_ref().and_then(|manifest| manifest.updates.clone()).ok_or_else(|| no_key(&table.base))?;
    if updates.data.is_empty() && updates.replaced.is_empty() {
        return Ok(ManifestPublication::default());
    }
    let publication = places.plan(&updates)?;
    let (prepares, planned) = (places.clone(), publication.clone());
    run(store, move || prepares.prepare(&planned)).await?;
    reach("publish-prepared");
    let _lock = WriterLock::take(store).await?;
    if !commit(store, &Edit::BeginPublication { publication: publication.clone() }).await?.changed {
        return Err(Error::new(
            ErrorKind::Conflict,
            "the table was migrated by somebody else meanwhile; publish again",
        ));
    }
    reach("publish-begun");
    end(store, places, &publication).await?;
    Ok(publication)
}

/// Ends the publication that a writer began before it died; the caller holds the lock of writers. Says whether there was one.
pub(crate) async fn finish_publication(table: &BaseTable, base: &Snapshot) -> Result<bool> {
    let updates = base.manifest.as_ref().and_then(|manifest| manifest.updates.as_ref());
    let Some(begun) = updates.and_then(under_way) else { return Ok(false) };
    let store = table.writable_store()?;
    end(store, &Places::of(table, store)?, begun).await.map(|()| true)
}

async fn end(store: &Store, places: &Places, publication: &ManifestPublication) -> Result<()> {
    let (places, begun) = (places.clone(), publication.clone());
    run(store, move || places.switch(&begun)).await?;
    reach("publish-switched");
    commit(store, &Edit::EndPublication).await?;
    reach("publish-ended");
    Ok(())
}

async fn run(store: &Store, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<()> {
    on_a_thread(work).await.map_err(|error| Error::task(&error))?.map_err(|error| unwritable(store, error))
}

/// Where the files are.
#[derive(Clone)]
struct Places {
    folder: PathBuf,
    store: PathBuf,
}

impl Places {
    fn of(table: &BaseTable, store: &Store) -> Result<Self> {
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
    fn plan(&self, updates: &ManifestUpdates) -> Result<ManifestPublication> {
        let mut publication = ManifestPublication::default();
        for file in &updates.data {
            // The first two parts of the path are the folder of data files and that of their migration.
            let Some(path) = file.path.splitn(3, '/').nth(2) else {
                return Err(Error::internal(format!("the data file {} is in no folder of a migration", file.path)));
            };
            let (stored, path) = (file.path.clone(), path.to_owned());
            publication.files.push(PublishedFile { stored, path, size: file.size });
        }
        let number = Uuid::new_v4();
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
    fn prepare(&self, publication: &ManifestPublication) -> io::Result<()> {
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
    fn switch(&self, publication: &ManifestPublication) -> io::Result<()> {
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
