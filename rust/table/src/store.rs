//! The store of indexes: numbered manifests and segment files, each written once.
//!
//! Reads go through the object store. On a local file system writes do not, since `object_store` never syncs. A commit there is a synced
//! temporary file, a hard link to its final name (which fails if someone was faster) and a synced folder.
//!
//! Uses `storage`; `files`, snapshots and every room above them find manifests and segments here.
//!
//! Invariant: an edit is applied to the newest manifest, and again if someone else was first. No commit names a segment that is not there.

pub(crate) mod kind;
pub(crate) mod locks;
mod manifests;
pub(crate) mod parts;
pub(crate) mod recorded;
pub(crate) mod segment_cursor;
pub(crate) mod segments;
pub(crate) mod transaction;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::Manifest;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Metrics;
use crate::storage::disk::{self, DiskStep, on_a_thread, sync_folder};
use crate::storage::ids::new_id;
use crate::storage::location::{StorePlace, place_of};
use crate::storage::put_if_absent::{PutOutcome, PutTarget};
use crate::storage::retry_listing::retry_if_gone;
use crate::storage::temp_file::{TempFile, UNFINISHED_PREFIX};
use manifests::{CachedManifest, ListedManifest, NewestManifest};

const MANIFESTS: &str = "manifest";
const INDEXES: &str = "indexes";
const UPDATES: &str = "updates";
const DATA: &str = "data";
/// The folder of data files that a publication took out of the table's folder.
pub(crate) const ORIGINALS: &str = "originals";
const MANIFEST_SUFFIX: &str = ".lmm";
const SEGMENT_SUFFIX: &str = ".lmx";
const LOG_SUFFIX: &str = ".lml";
const RUN_SUFFIX: &str = ".lmr";
const STAGED_SUFFIX: &str = ".arrows";
/// Files above this go to remote stores in parts.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// The store of a table.
#[derive(Debug)]
pub(crate) struct Store {
    place: StorePlace,
    /// The counters of the table whose store it is.
    pub(crate) metrics: Arc<Metrics>,
    cache: Mutex<Option<CachedManifest>>,
}

/// What a file of the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFileKind {
    /// The manifest of this number.
    Manifest(u64),
    /// A segment of an index, or the position map of a run.
    Segment,
    /// A log or a run of updates.
    Update,
    /// A data file that a migration wrote.
    Data,
    /// A data file that was the user's, before a publication.
    Original,
    /// A file that is, or was, being written, and rows that were staged for a call.
    Unfinished,
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
        Self { place, metrics, cache: Mutex::default() }
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

    /// Finds and reads the newest manifest: one listing and one read.
    pub(crate) async fn newest(&self) -> Result<NewestManifest> {
        retry_if_gone(self.text(), || async {
            let Some(ListedManifest { number, meta }) = self.newest_listed().await? else {
                return Ok(Some(NewestManifest { number: 0, manifest: Ok(None) }));
            };
            let manifest = self.manifest(number, meta).await.transpose();
            Ok(manifest.map(|manifest| NewestManifest { number, manifest: manifest.map(Some) }))
        })
        .await
    }

    /// The segments that the newest manifest names, by their ids. Nobody may call other segments damaged: whoever took them out of the
    /// manifest may have removed their files, too.
    pub(crate) async fn named_segments(&self) -> Result<HashSet<[u8; 16]>> {
        let manifest = self.newest().await?.manifest?;
        Ok(manifest.iter().flat_map(|manifest| &manifest.segments).map(|segment| segment.id).collect())
    }

    /// The manifests that there are, by their numbers.
    pub(crate) async fn manifests(&self) -> Result<BTreeMap<u64, ObjectMeta>> {
        let listed = self.listed(self.place.object_store.list(Some(&self.object_path(MANIFESTS)))).await?;
        Ok(listed.into_iter().filter_map(|meta| Some((manifest_number(meta.location.filename()?)?, meta))).collect())
    }

    /// The number of the newest manifest; 0 where there is none yet.
    pub(crate) async fn newest_number(&self) -> Result<u64> {
        Ok(self.newest_listed().await?.map_or(0, |newest| newest.number))
    }

    /// The length of a file of the store; none if it is not there.
    pub(crate) async fn length_of(&self, relative: &str) -> Result<Option<u64>> {
        match self.place.object_store.head(&self.object_path(relative)).await {
            Ok(meta) => Ok(Some(meta.size)),
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

    /// The manifest that was read last.
    pub(crate) fn remembered(&self) -> Option<Arc<Manifest>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|cached| Arc::clone(&cached.manifest))
    }

    /// Numbers only grow, so that the listing begins where the last one ended. So a store with many manifests is listed as quickly as a new
    /// one.
    async fn newest_listed(&self) -> Result<Option<ListedManifest>> {
        let folder = self.object_path(MANIFESTS);
        let newest_of = |listed: Vec<ObjectMeta>| {
            let numbered = listed
                .into_iter()
                .filter_map(|meta| Some(ListedManifest { number: manifest_number(meta.location.filename()?)?, meta }));
            numbered.max_by_key(|listed| listed.number)
        };
        let known = self.remembered().map(|known| known.number);
        if let Some(last) = known.and_then(|known| known.checked_sub(1)) {
            let after = folder.clone().join(manifest_name(last));
            let listed = self.listed(self.place.object_store.list_with_offset(Some(&folder), &after)).await?;
            if let Some(newest) = newest_of(listed) {
                return Ok(Some(newest));
            }
            // The store was deleted and begun again.
        }
        Ok(newest_of(self.listed(self.place.object_store.list(Some(&folder))).await?))
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
        for folder in [MANIFESTS, INDEXES, UPDATES] {
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
            match outcome {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => {
                    return Err(Error::io(format!(
                        "old files of the store {} cannot be deleted (no permission?); nothing that is in use was touched, \
                         run it again at any time",
                        self.text()
                    ))
                    .with_source(error));
                }
            }
        }
        let Some(root) = self.place.local.clone() else { return Ok(()) };
        let sync = move || {
            [MANIFESTS, INDEXES, UPDATES]
                .iter()
                .map(|folder| root.join(folder))
                .try_for_each(|folder| if folder.is_dir() { sync_folder(&folder) } else { Ok(()) })
        };
        let synced = on_a_thread(sync).await.map_err(|error| Error::task(&error))?;
        synced.map_err(|error| self.unwritable(error))
    }

    async fn manifest(&self, number: u64, meta: ObjectMeta) -> Result<Option<Arc<Manifest>>> {
        if let Some(cached) = &*self.cache.lock().unwrap_or_else(PoisonError::into_inner)
            && cached.meta == meta
        {
            return Ok(Some(Arc::clone(&cached.manifest)));
        }
        let Some(manifest) = self.read_manifest(number, &meta).await? else { return Ok(None) };
        let manifest = Arc::new(manifest);
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(CachedManifest { meta, manifest: Arc::clone(&manifest) });
        Ok(Some(manifest))
    }

    /// Reads the manifest of this number as it is in the store now; none if a vacuum removed it since it was listed.
    pub(crate) async fn read_manifest(&self, number: u64, meta: &ObjectMeta) -> Result<Option<Manifest>> {
        let bytes = match self.place.object_store.get(&meta.location).await {
            Ok(result) => result.bytes().await.map_err(|error| self.unreadable(error))?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.unreadable(error)),
        };
        let damaged = || {
            Error::corrupt(format!(
                "the manifest {number} in {} is damaged: queries go on without index files; to index again, delete the store folder",
                self.text()
            ))
        };
        let manifest = Manifest::decode(&bytes).map_err(|error| damaged().with_source(error))?;
        if manifest.number != number {
            return Err(damaged());
        }
        Ok(Some(manifest))
    }

    /// The error of a store that does not answer: nothing is said of what is in it.
    pub(crate) fn unreadable(&self, error: object_store::Error) -> Error {
        Error::io(format!("the store {} cannot be read; mend it, or choose another place with --store", self.text()))
            .with_source(error)
    }

    /// Puts a manifest if its number is still free: the commit.
    pub(crate) async fn put_manifest(&self, manifest: &Manifest) -> Result<PutOutcome> {
        let bytes = manifest.encode().map_err(|error| {
            Error::unsupported("the table is beyond the limits of the manifest's format").with_source(error)
        })?;
        let relative = format!("{MANIFESTS}/{}", manifest_name(manifest.number));
        let (path, local) = (self.object_path(&relative), self.local_path(&relative));
        Ok(PutTarget { object_store: &self.place.object_store, path, local }.put(bytes).await)
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
        format!("{UPDATES}/{}{RUN_SUFFIX}", Uuid::from_bytes(id))
    }

    /// A new path in the store for staged rows.
    pub(crate) fn staged_path() -> String {
        format!("{UPDATES}/{}{STAGED_SUFFIX}", new_id())
    }

    /// Whether a path is one that staged rows have.
    pub(crate) fn is_staged(path: &str) -> bool {
        let name = path.strip_prefix(UPDATES).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| {
            name.ends_with(STAGED_SUFFIX) && kind_of(UPDATES, name) == Some(StoreFileKind::Unfinished)
        })
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
        format!("{INDEXES}/{}{SEGMENT_SUFFIX}", Uuid::from_bytes(id))
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
        self.upload(&mut temp, relative).await
    }

    async fn upload(&self, temp: &mut TempFile, relative: &str) -> Result<()> {
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

fn manifest_name(number: u64) -> String {
    format!("{number:020}{MANIFEST_SUFFIX}")
}

fn kind_of(folder: &str, name: &str) -> Option<StoreFileKind> {
    let is_id = |id: &str| Uuid::try_parse(id).is_ok();
    if name.strip_prefix(UNFINISHED_PREFIX).is_some_and(is_id) {
        return Some(StoreFileKind::Unfinished);
    }
    match folder {
        MANIFESTS => manifest_number(name).map(StoreFileKind::Manifest),
        INDEXES => name.strip_suffix(SEGMENT_SUFFIX).is_some_and(is_id).then_some(StoreFileKind::Segment),
        UPDATES if name.strip_suffix(STAGED_SUFFIX).is_some_and(is_id) => Some(StoreFileKind::Unfinished),
        UPDATES => {
            let id = name.strip_suffix(LOG_SUFFIX).or_else(|| name.strip_suffix(RUN_SUFFIX));
            id.is_some_and(is_id).then_some(StoreFileKind::Update)
        }
        _ => None,
    }
}

fn manifest_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(MANIFEST_SUFFIX)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}
