//! Listing a table folder by folder, beside the last listing of the same table.
//!
//! ```text
//! folder ─▶ the folders right in it ─▶ …        hidden ones are not entered: however many indexes lie beside the data costs nothing
//! ```
//!
//! A local folder that is the same is the one of last time ([`KnownFolder`]), and so is a table whose folders all are. An object store
//! gives a thousand objects at a request, whatever folders they are in: where its folders are many, those are listed by one request for all.

use std::collections::{HashMap, HashSet};
use std::path::Path as FsPath;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, ObjectStoreExt};

use super::listed_file::{FileList, ListedFile, files_among, is_hidden};
use crate::error::{Error, Result};
use crate::storage::disk::on_a_thread;
use crate::storage::file_time::{may_change_unseen, now_ns};
use crate::storage::local::{FolderInside, KnownFolder, MOST_LINKED_FOLDERS, Relisted, relisted, too_many};
use crate::storage::location::{FileSet, Location};

/// Local folders that are listed at a time.
const LOCAL_FOLDERS: usize = 16;
/// Folders of an object store that are listed at a time.
const REMOTE_FOLDERS: usize = 32;
/// Folders of an object store that are listed one by one at most, of one level: four rounds of requests. All objects of more folders come
/// with fewer requests, a thousand with each.
const MOST_REMOTE_FOLDERS: usize = 128;
/// Files of a listing that is remembered at most; some 500 bytes are kept of each.
pub(crate) const MOST_REMEMBERED: usize = if cfg!(test) { 4000 } else { 1 << 18 };

/// The last listing of a table.
#[derive(Debug, Default)]
pub(crate) struct ListingCache(Mutex<Option<LastListing>>);

#[derive(Clone, Debug)]
struct LastListing {
    files: Arc<FileList>,
    /// The table's own folder, without anything in it.
    root: Arc<ListedFolder>,
    /// What the next listing is compared with; none of more files than are remembered.
    listing: Option<Arc<CachedListing>>,
    /// When the listing that found it began, in nanoseconds since 1970-01-01 UTC.
    at_ns: i128,
}

/// What a listing found.
#[derive(Debug)]
struct CachedListing {
    folders: HashMap<Path, Arc<ListedFolder>>,
    files: Arc<FileList>,
}

/// A folder that was listed.
#[derive(Debug, Default)]
struct ListedFolder {
    /// All that it has, of a local folder.
    known: Option<Arc<KnownFolder>>,
    /// Its data files, by location.
    files: Vec<Arc<ListedFile>>,
    /// The folders right in it that are not hidden.
    inside: Vec<FolderInside>,
}

/// A folder that is still to be listed.
struct FolderToList {
    path: Path,
    /// Whether a symbolic link is on the way to it.
    is_linked: bool,
    /// Whether it is one itself, where that is known.
    is_link: Option<bool>,
}

/// A folder that was listed, by its path.
struct Found {
    path: Path,
    /// Whether the folder is a symbolic link, or one is on the way to it.
    is_linked: bool,
    folder: Arc<ListedFolder>,
}

impl ListingCache {
    /// Lists the data files of `location`. Gives the last listing where that is what there is.
    #[tracing::instrument(level = "debug", name = "listing", skip_all, fields(table = location.text))]
    pub(crate) async fn list(&self, location: &Location) -> Result<Arc<FileList>> {
        if let FileSet::File(name) = &location.shape {
            let meta = location.object_store.head(&location.prefix.clone().join(name.as_str())).await?;
            return Ok(Arc::new(FileList(vec![Arc::new(ListedFile::in_folders_of(name, name.clone(), meta))])));
        }
        let at_ns = now_ns();
        let last = self.last().and_then(|last| last.listing);
        let found = list_all(location, last.as_deref()).await?;
        let listing = match last {
            Some(last) if last.has_found(&found) => last,
            last => Arc::new(CachedListing::of(found, last.as_deref())),
        };
        let files = Arc::clone(&listing.files);
        let root = Arc::new(listing.folders.get(&location.prefix).map(|root| root.itself()).unwrap_or_default());
        let listing = (files.0.len() <= MOST_REMEMBERED).then_some(listing);
        let last = LastListing { files: Arc::clone(&files), root, listing, at_ns };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        Ok(files)
    }

    /// The same for another handle.
    pub(crate) fn copied(&self) -> Self {
        Self(Mutex::new(self.last()))
    }

    fn last(&self) -> Option<LastListing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no name came to the table's own folder since this listing, and none left it, as far as the folder itself says. That is one
    /// look, however many partitions there are. False where nobody can tell.
    pub(crate) async fn has_same_root(&self, files: &Arc<FileList>) -> Result<bool> {
        let Some(LastListing { root, at_ns, .. }) = self.last_of(files) else { return Ok(false) };
        on_a_thread(move || root.has_same_names(at_ns)).await.map_err(|error| Error::task(&error))
    }

    /// Whether no file came to the folders of this listing since, and none left them, as far as the folders themselves say: a look at each
    /// of them, and none at a file. False where nobody can tell. Who writes into a file that is there leaves no trace in its folder.
    pub(crate) async fn has_same_names(&self, files: &Arc<FileList>) -> Result<bool> {
        let Some(LastListing { listing: Some(listing), at_ns, .. }) = self.last_of(files) else { return Ok(false) };
        on_a_thread(move || listing.folders.values().all(|folder| folder.has_same_names(at_ns)))
            .await
            .map_err(|error| Error::task(&error))
    }

    /// The last listing, if it is the one that found these files.
    fn last_of(&self, files: &Arc<FileList>) -> Option<LastListing> {
        self.last().filter(|last| Arc::ptr_eq(&last.files, files))
    }
}

impl CachedListing {
    /// The files of these folders; those of the last listing if they are the same.
    fn of(found: Vec<Found>, last: Option<&Self>) -> Self {
        let mut files: Vec<Arc<ListedFile>> = found.iter().flat_map(|found| &found.folder.files).cloned().collect();
        // Folder by folder they are in order, which a stable sort finds. Those of one folder are not compared.
        if found.iter().filter(|found| !found.folder.files.is_empty()).nth(1).is_some() {
            files.sort_by(|a, b| a.path.cmp(&b.path));
        }
        let files = FileList(files);
        let same = last.filter(|last| last.files.is_same(&files)).map(|last| Arc::clone(&last.files));
        let folders = found.into_iter().map(|found| (found.path, found.folder)).collect();
        Self { folders, files: same.unwrap_or_else(|| Arc::new(files)) }
    }

    /// Whether these are its folders, all the same.
    fn has_found(&self, found: &[Found]) -> bool {
        let is_known = |now: &Found| self.folders.get(&now.path).is_some_and(|was| Arc::ptr_eq(was, &now.folder));
        found.len() == self.folders.len() && found.iter().all(is_known)
    }
}

impl ListedFolder {
    /// The folder without anything in it.
    fn itself(&self) -> Self {
        Self { known: self.known.as_ref().map(|known| Arc::new(known.itself())), ..Self::default() }
    }

    fn has_same_names(&self, listed_ns: i128) -> bool {
        self.known.as_ref().is_some_and(|known| {
            let was_settled = known.stamp.is_some_and(|stamp| !may_change_unseen(stamp.changed_ns, listed_ns));
            was_settled && known.has_same_stamp()
        })
    }
}

/// The places of the data files that are there, but for those in hidden folders.
pub(crate) async fn locations(location: &Location) -> Result<HashSet<Path>> {
    let found = list_all(location, None).await?;
    let files = found.iter().flat_map(|found| &found.folder.files);
    Ok(files.map(|file| file.meta.location.clone()).collect())
}

/// Lists the root, what is right in it, and so on.
async fn list_all(location: &Location, last: Option<&CachedListing>) -> Result<Vec<Found>> {
    let is_local = location.local.is_some();
    let at_a_time = if is_local { LOCAL_FOLDERS } else { REMOTE_FOLDERS };
    let mut level = vec![FolderToList { path: location.prefix.clone(), is_linked: false, is_link: Some(false) }];
    let mut all = Vec::new();
    let mut linked = 0;
    while !level.is_empty() {
        // Collected first, so that the futures do not borrow the iterator.
        let work: Vec<_> = level.into_iter().map(|folder| list_one(location, folder, last)).collect();
        let listed: Vec<Found> = stream::iter(work).buffered(at_a_time).try_collect().await?;
        level = Vec::new();
        for Found { folder, is_linked, .. } in &listed {
            let below = |FolderInside { path, is_link }: &FolderInside| FolderToList {
                path: path.clone(),
                is_linked: *is_linked,
                is_link: *is_link,
            };
            level.extend(folder.inside.iter().map(below));
            linked += usize::from(*is_linked);
        }
        // Each of these links may lead somewhere, and all of them together nowhere.
        if let Some(folder) = level.first().filter(|_| linked > MOST_LINKED_FOLDERS) {
            return Err(Error::invalid(too_many(FsPath::new(folder.path.as_ref())).to_string()));
        }
        if !is_local && level.len() > MOST_REMOTE_FOLDERS {
            let (branches, leaves): (Vec<Found>, Vec<Found>) =
                listed.into_iter().partition(|found| !found.folder.inside.is_empty());
            all.extend(leaves);
            let work: Vec<_> = branches.into_iter().map(|found| list_below(location, found.path, last)).collect();
            all.extend(stream::iter(work).buffered(at_a_time).try_collect::<Vec<Found>>().await?);
            return Ok(all);
        }
        all.extend(listed);
    }
    Ok(all)
}

/// Lists what is right in a folder.
async fn list_one(location: &Location, folder: FolderToList, last: Option<&CachedListing>) -> Result<Found> {
    let FolderToList { path, is_linked, is_link } = folder;
    let is_linked = is_linked
        || match is_link {
            Some(is_link) => is_link,
            None => location.local.is_some() && leads_elsewhere(&path).await,
        };
    let was = last.and_then(|last| last.folders.get(&path));
    let known = was.and_then(|was| was.known.clone());
    let folder = match relisted(location.object_store.as_ref(), &path, known).await? {
        Relisted::Plain(ListResult { common_prefixes, objects }) => {
            let inside = common_prefixes.into_iter().map(|path| FolderInside { path, is_link: None });
            listed(location, objects, inside.filter(is_visible).collect(), was)
        }
        Relisted::Compared(now) => {
            let is_known = |was: &&Arc<ListedFolder>| was.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &now));
            was.filter(is_known).map_or_else(
                || {
                    let before = was.map_or(&[][..], |was| &was.files);
                    let files = files_among(location, now.objects.iter().cloned(), before);
                    let inside = now.folders.iter().filter(|folder| is_visible(folder)).cloned().collect();
                    Arc::new(ListedFolder { known: Some(Arc::clone(&now)), files, inside })
                },
                Arc::clone,
            )
        }
    };
    Ok(Found { path, is_linked, folder })
}

/// Lists all that is in a folder of an object store, however deep, as one folder.
async fn list_below(location: &Location, path: Path, last: Option<&CachedListing>) -> Result<Found> {
    let prefix = (!path.as_ref().is_empty()).then_some(&path);
    let objects: Vec<ObjectMeta> = location.object_store.list(prefix).try_collect().await?;
    let was = last.and_then(|last| last.folders.get(&path));
    let folder = listed(location, objects, Vec::new(), was);
    Ok(Found { path, is_linked: false, folder })
}

/// A folder of these objects; the one of last time if it is the same.
fn listed(
    location: &Location,
    mut objects: Vec<ObjectMeta>,
    inside: Vec<FolderInside>,
    was: Option<&Arc<ListedFolder>>,
) -> Arc<ListedFolder> {
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    let before = was.map_or(&[][..], |was| &was.files);
    let files = files_among(location, objects.into_iter().map(Arc::new), before);
    let is_same = |was: &&Arc<ListedFolder>| {
        was.inside == inside
            && was.files.len() == files.len()
            && was.files.iter().zip(&files).all(|(was, now)| Arc::ptr_eq(was, now))
    };
    match was.filter(is_same) {
        Some(was) => Arc::clone(was),
        None => Arc::new(ListedFolder { known: None, files, inside }),
    }
}

fn is_visible(folder: &FolderInside) -> bool {
    !folder.path.filename().is_some_and(is_hidden)
}

/// Whether a local folder is a symbolic link to another.
async fn leads_elsewhere(folder: &Path) -> bool {
    let Ok(path) = LocalFileSystem::new().path_to_filesystem(folder) else { return false };
    tokio::fs::symlink_metadata(path).await.is_ok_and(|metadata| metadata.is_symlink())
}
