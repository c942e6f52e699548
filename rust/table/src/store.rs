//! The store of indexes: numbered edits, checkpoints and segment files, each written once.
//!
//! Reads go through the object store. On a local file system writes do not, since `object_store` never syncs. A commit there is a synced
//! temporary file, a hard link to its final name (which fails if someone was faster) and a synced folder.
//!
//! Uses `storage`; `files`, snapshots and every room above them find manifests and segments here.
//!
//! Invariant: an edit is made for the newest manifest, and again if someone else was first. No commit names a segment that is not there.

pub(crate) mod chain;
mod checkpoints;
pub(crate) mod claims;
pub(crate) mod hashed;
pub(crate) mod included;
pub(crate) mod inner_pages;
pub(crate) mod kind;
pub(crate) mod layout;
pub(crate) mod leaf_cache;
pub(crate) mod link_pair;
pub(crate) mod locks;
pub(crate) mod manifests;
pub(crate) mod parts;
pub(crate) mod pieces;
pub(crate) mod recorded;
pub(crate) mod segment_cursor;
pub(crate) mod segment_files;
pub(crate) mod segment_id;
pub(crate) mod segments;
mod storage_time;
pub(crate) mod transaction;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_index::bitmap::DIRECTORY_LEAVES;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};

use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Metrics;
use crate::storage::disk::{self, DiskStep, on_a_thread, sync_folder};
use crate::storage::ids::new_id;
use crate::storage::location::{StorePlace, place_of};
use crate::storage::temp_file::TempFile;
use layout::{CLAIMS, DATA, INDEXES, MANIFESTS, ORIGINALS, PIECES, StoreFileKind, UPDATES, kind_of};
use manifests::CachedManifest;

/// The folders whose files have names of ours.
const FOLDERS: [&str; 5] = [MANIFESTS, PIECES, INDEXES, UPDATES, CLAIMS];
/// Files above this go to remote stores in parts.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// The store of a table.
#[derive(Debug)]
pub(crate) struct Store {
    place: StorePlace,
    /// The counters of the table whose store it is.
    pub(crate) metrics: Arc<Metrics>,
    cache: Mutex<Option<CachedManifest>>,
    /// Whether lookups rule files out before they look at each, however few files the table has.
    narrows_always: AtomicBool,
    /// The most leaves of packed trees in the directories of segments that are built.
    most_leaves: AtomicUsize,
}

/// A file of the store.
#[derive(Clone, Debug)]
pub(crate) struct ListedStoreFile {
    /// Path in the store.
    pub path: String,
    pub kind: StoreFileKind,
    pub meta: ObjectMeta,
}

impl Store {
    pub(crate) fn new(place: StorePlace, metrics: Arc<Metrics>) -> Self {
        let most_leaves = AtomicUsize::new(DIRECTORY_LEAVES);
        Self { place, metrics, cache: Mutex::default(), narrows_always: AtomicBool::new(false), most_leaves }
    }

    /// From now on segments of packed trees that are built have so many leaves in their directories, and more in inner pages.
    pub(crate) fn limit_leaves(&self, most: usize) {
        self.most_leaves.store(most, Ordering::Relaxed);
    }

    pub(crate) fn most_leaves(&self) -> usize {
        self.most_leaves.load(Ordering::Relaxed)
    }

    /// From now on lookups rule files out before they look at each, however few files the table has.
    pub(crate) fn narrow_always(&self) {
        self.narrows_always.store(true, Ordering::Relaxed);
    }

    pub(crate) fn narrows_always(&self) -> bool {
        self.narrows_always.load(Ordering::Relaxed)
    }

    /// Path or URL, for people.
    pub(crate) fn text(&self) -> &str {
        &self.place.text
    }

    /// Where the store is.
    pub(crate) fn place(&self) -> &StorePlace {
        &self.place
    }

    pub(crate) fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.place.object_store
    }

    /// The place of a file of the store, by its path in the store.
    pub(crate) fn object_path(&self, relative: &str) -> Path {
        relative.split('/').fold(self.place.prefix.clone(), |path, part| path.join(part))
    }

    /// The place of a data file of the store. A percent sign in the path is one in the name.
    pub(crate) fn data_path(&self, relative: &str) -> Path {
        place_of(&self.place.prefix, relative).unwrap_or_else(|_| self.object_path(relative))
    }

    /// Whether the store is on a local file system.
    pub(crate) fn is_local(&self) -> bool {
        self.place.local.is_some()
    }

    /// The path of a file of the store, if that is on a local file system.
    pub(crate) fn local_path(&self, relative: &str) -> Option<PathBuf> {
        self.place.local.as_ref().map(|folder| folder.join(relative))
    }

    /// Whether there are buffered updates, or were. They are data: none of them may be lost without a word.
    pub(crate) async fn has_updates(&self) -> Result<bool> {
        let listed = self.listed(self.place.object_store.list(Some(&self.object_path(UPDATES)))).await?;
        let is_data = |meta: &ObjectMeta| {
            meta.location
                .filename()
                .and_then(|name| kind_of(UPDATES, name))
                .is_some_and(|kind| kind == StoreFileKind::Update)
        };
        Ok(listed.iter().any(is_data))
    }

    /// The length of a file of the store; none if it is not there.
    pub(crate) async fn length_of(&self, relative: &str) -> Result<Option<u64>> {
        Ok(self.meta_of(relative).await?.map(|meta| meta.size))
    }

    /// What the storage says of a file of the store; none if it is not there.
    pub(crate) async fn meta_of(&self, relative: &str) -> Result<Option<ObjectMeta>> {
        match self.place.object_store.head(&self.object_path(relative)).await {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    /// The lengths of all segments that there are, by their paths in the store: one listing.
    pub(crate) async fn segment_lengths(&self) -> Result<HashMap<String, u64>> {
        let listed = self.listed(self.place.object_store.list(Some(&self.object_path(INDEXES)))).await?;
        let lengths = listed.into_iter().filter_map(|meta| {
            let name = meta.location.filename()?;
            (kind_of(INDEXES, name) == Some(StoreFileKind::Segment)).then(|| (format!("{INDEXES}/{name}"), meta.size))
        });
        Ok(lengths.collect())
    }

    /// Whether a file of the store is there.
    pub(crate) async fn has(&self, relative: &str) -> Result<bool> {
        match self.place.object_store.head(&self.data_path(relative)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    /// All of a listing; nothing for a folder that is not there.
    async fn listed(&self, listing: BoxStream<'static, object_store::Result<ObjectMeta>>) -> Result<Vec<ObjectMeta>> {
        match listing.try_collect().await {
            Ok(listed) => Ok(listed),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    /// Every file of ours in the store; others are none of our business.
    pub(crate) async fn files(&self) -> Result<Vec<ListedStoreFile>> {
        let mut files = Vec::new();
        for folder in FOLDERS {
            for meta in self.listed(self.place.object_store.list(Some(&self.object_path(folder)))).await? {
                let Some(name) = meta.location.filename() else { continue };
                let path = format!("{folder}/{name}");
                if self.object_path(&path) == meta.location
                    && let Some(kind) = kind_of(folder, name)
                {
                    files.push(ListedStoreFile { path, kind, meta });
                }
            }
        }
        for (folder, kind) in [(DATA, StoreFileKind::Data), (ORIGINALS, StoreFileKind::Original)] {
            for meta in self.listed(self.place.object_store.list(Some(&self.object_path(folder)))).await? {
                let Some(parts) = meta.location.prefix_match(&self.place.prefix) else { continue };
                let path = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
                files.push(ListedStoreFile { path, kind, meta });
            }
        }
        Ok(files)
    }

    /// Deletes files for good: when it returns, no crash brings them back. What somebody else deleted is deleted.
    pub(crate) async fn remove(&self, files: &[&ListedStoreFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        self.attempt_removal(files.iter().map(|file| &file.meta.location))?;
        let paths: Vec<object_store::Result<Path>> = files.iter().map(|file| Ok(file.meta.location.clone())).collect();
        let mut deleted = self.place.object_store.delete_stream(stream::iter(paths).boxed());
        while let Some(outcome) = deleted.next().await {
            self.deleted(outcome.map(drop))?;
        }
        self.sync_folders().await
    }

    /// The same, each when the one before it is gone: stores delete many in any order.
    pub(crate) async fn remove_one_by_one(&self, files: &[&ListedStoreFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        for file in files {
            self.attempt_removal(std::iter::once(&file.meta.location))?;
            self.deleted(self.place.object_store.delete(&file.meta.location).await)?;
        }
        self.sync_folders().await
    }

    fn deleted(&self, outcome: object_store::Result<()>) -> Result<()> {
        match outcome {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::io(format!(
                "old files of the store {} cannot be deleted (no permission?); nothing that is in use was touched, \
                 run it again at any time",
                self.text()
            ))
            .with_source(error)),
        }
    }

    async fn sync_folders(&self) -> Result<()> {
        let Some(root) = self.place.local.clone() else { return Ok(()) };
        let sync = move || {
            FOLDERS
                .iter()
                .map(|folder| root.join(folder))
                .try_for_each(|folder| if folder.is_dir() { sync_folder(&folder) } else { Ok(()) })
        };
        let synced = on_a_thread(sync).await.map_err(|error| Error::task(&error))?;
        synced.map_err(|error| self.unwritable(error))
    }

    /// The error of a store that does not answer: nothing is said of what is in it.
    pub(crate) fn unreadable(&self, error: object_store::Error) -> Error {
        Error::io(format!("the store {} cannot be read; mend it, or choose another place with --store", self.text()))
            .with_source(error)
    }

    /// The error of a commit of which nobody knows whether it was made.
    pub(crate) fn unsure(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::io(format!(
            "the store {} answered with an error, and whether the change was made cannot be told: it is there as a whole or not at all. \
             Look once the store answers (`lakemark info`), and run it again where it is missing",
            self.text()
        ))
        .with_source(error)
    }

    /// The error of a store that took nothing.
    pub(crate) fn unwritable(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::new(
            ErrorKind::Io,
            format!(
                "the store {} cannot be written (disk full, or no permission?); the last snapshot is untouched: \
                 make room, or choose another place with --store, and run it again",
                self.text()
            ),
        )
        .with_source(error)
    }

    /// Starts a file whose bytes become a segment when it is published.
    pub(crate) async fn start_file(&self) -> Result<TempFile> {
        let folder = self.temp_folder();
        let file = on_a_thread(move || TempFile::create(&folder)).await.map_err(|error| Error::task(&error))?;
        file.map_err(|error| self.unwritable(error))
    }

    /// Writes a log, whole and synced; gives its path. Nobody sees it before a manifest names it.
    pub(crate) async fn write_update(&self, name: &str, bytes: Vec<u8>) -> Result<String> {
        let path = format!("{UPDATES}/{name}");
        self.write_file(&path, bytes).await?;
        Ok(path)
    }

    /// Writes a file of the store, whole and synced.
    pub(crate) async fn write_file(&self, relative: &str, bytes: Vec<u8>) -> Result<()> {
        let Some(root) = self.place.local.clone() else {
            let put = self.place.object_store.put(&self.object_path(relative), PutPayload::from(bytes)).await;
            return put.map(|_| ()).map_err(|error| self.unwritable(error));
        };
        let target = root.join(relative);
        let write = move || {
            let Some(folder) = target.parent() else { return Err(std::io::ErrorKind::InvalidInput.into()) };
            let mut temp = TempFile::create(folder)?;
            temp.write_all(&bytes)?;
            temp.rename(&target)
        };
        let written = on_a_thread(write).await.map_err(|error| Error::task(&error))?;
        written.map_err(|error| self.unwritable(error))
    }

    /// Where updates are, if that is on a local file system.
    pub(crate) fn updates_folder(&self) -> Option<PathBuf> {
        self.local_path(UPDATES)
    }

    /// The path that the run of this id has in the store.
    pub(crate) fn run_path(id: [u8; 16]) -> String {
        layout::run_path(id)
    }

    /// A new path in the store for staged rows.
    pub(crate) fn staged_path() -> String {
        layout::staged_path(new_id())
    }

    /// Whether a path is one that staged rows have.
    pub(crate) fn is_staged(path: &str) -> bool {
        layout::is_staged(path)
    }

    /// Where unfinished files are.
    pub(crate) fn temp_folder(&self) -> PathBuf {
        match &self.place.local {
            Some(folder) => folder.join(INDEXES),
            None => std::env::temp_dir(),
        }
    }

    /// The path that the segment of this id has in the store.
    pub(crate) fn segment_path(id: [u8; 16]) -> String {
        layout::segment_path(id)
    }

    /// Makes a finished file the segment at `relative`. Nobody sees it before a manifest names it.
    pub(crate) async fn publish(&self, mut temp: TempFile, relative: &str) -> Result<()> {
        if let Some(folder) = &self.place.local {
            let target = folder.join(relative);
            return on_a_thread(move || temp.rename(&target))
                .await
                .map_err(|error| Error::task(&error))?
                .map_err(|error| self.unwritable(error));
        }
        self.upload(&temp, relative).await
    }

    /// Writes a finished file to an object store, and keeps it here.
    async fn upload(&self, temp: &TempFile, relative: &str) -> Result<()> {
        let path = self.object_path(relative);
        let bytes = tokio::fs::read(temp.path()).await.map_err(|error| self.unwritable(error))?;
        if bytes.len() <= PART_BYTES {
            let put = self.place.object_store.put(&path, PutPayload::from(bytes)).await;
            return put.map(|_| ()).map_err(|error| self.unwritable(error));
        }
        let upload = self.place.object_store.put_multipart(&path).await.map_err(|error| self.unwritable(error))?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        for part in bytes.chunks(PART_BYTES) {
            writer.wait_for_capacity(4).await.map_err(|error| self.unwritable(error))?;
            writer.write(part);
        }
        writer.finish().await.map(|_| ()).map_err(|error| self.unwritable(error))
    }

    /// Tells tests of local files that are about to be removed.
    fn attempt_removal<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        if !self.is_local() {
            return Ok(());
        }
        let mut paths = paths.into_iter().map(|path| FsPath::new("/").join(path.as_ref()));
        paths.try_for_each(|path| disk::attempt(DiskStep::Remove(&path))).map_err(|error| self.unwritable(error))
    }

    /// Removes a file that nothing names any more. Failing is harmless: the file is only waste.
    pub(crate) async fn discard(&self, relative: &str) {
        let path = self.object_path(relative);
        if self.attempt_removal([&path]).is_ok()
            && let Err(error) = self.place.object_store.delete(&path).await
            && !matches!(error, object_store::Error::NotFound { .. })
        {
            tracing::warn!(file = relative, %error, "an unused file could not be deleted");
        }
    }
}
