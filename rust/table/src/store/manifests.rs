//! Manifests as they are read and remembered: a checkpoint and the edits after it.
//!
//! ```text
//! known            listing of `manifest` from the known one on ─▶ the edits after it, all at once
//! nothing known    listing of `manifest` ─▶ root of the newest checkpoint and the edits after it, all at once
//!                                           damaged? ─▶ the checkpoint before, as long as all edits after that are there
//! ```
//!
//! Invariant: a manifest has the pieces of a checkpoint that somebody asked for (`pieces`), and maybe no other one.

use std::ops::RangeInclusive;
use std::sync::{Arc, Once, PoisonError};

use bytes::Bytes;
use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{FormatError, Manifest, ManifestEdit, ManifestFile};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::Store;
use super::chain::Chain;
use super::layout::{MANIFESTS, checkpoint_path, edit_name, edit_path};
use super::pieces::ManifestNeeds;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::put_if_absent::{PutOutcome, PutTarget};
use crate::storage::retry_listing::retry_if_gone;

/// Edits that are read at a time.
const CONCURRENT_READS: usize = 64;
/// What whoever loses the indexes can do. Buffered changes are lost with the folder.
const TO_INDEX_AGAIN: &str = "to index again, delete the store folder, unless it has the folder `updates`: what is buffered there is nowhere else";

/// The newest manifest.
#[derive(Debug)]
pub(crate) struct NewestManifest {
    /// None where there is none yet.
    pub manifest: Option<Arc<Manifest>>,
    /// Number of the newest checkpoint that is there; 0 if there is none.
    pub checkpoint: u64,
}

/// The manifest that was read last.
#[derive(Clone, Debug)]
pub(super) struct CachedManifest {
    /// The listing's entry for its end then.
    pub end: ObjectMeta,
    pub manifest: Arc<Manifest>,
    /// Number of the newest checkpoint that was listed.
    pub checkpoint: u64,
}

/// Indexes that nobody has dropped.
pub(crate) struct DeclaredIndexes(Option<Arc<Manifest>>);

impl DeclaredIndexes {
    /// Whether the index of this id is among them. Where there is no manifest, nobody dropped it.
    pub(crate) fn contains(&self, index: &[u8; 16]) -> bool {
        self.0.as_ref().is_none_or(|manifest| manifest.indexes().any(|declared| declared.id == *index))
    }
}

/// The segments that a manifest names.
#[derive(Debug)]
pub(crate) struct NamedSegments(Option<Arc<Manifest>>);

impl NamedSegments {
    /// Whether the manifest names the segment of this id.
    pub(crate) fn contains(&self, id: &[u8; 16]) -> bool {
        self.0.as_ref().is_some_and(|manifest| manifest.segment(id).is_some())
    }
}

/// The file of a number; none if the manifest has none. Whoever asks has read the manifest's files, as for each snapshot with files.
pub(crate) fn file_of(manifest: &Manifest, number: u32) -> Option<&ManifestFile> {
    let file = manifest.file(number);
    debug_assert!(file.is_ok(), "{file:?}");
    if let Err(error) = &file {
        warn_of_unread(number, error);
    }
    file.ok().flatten().map(Arc::as_ref)
}

/// Says once that somebody asked for what was not read: a mistake of this program. A query may ask for millions of files.
#[cold]
fn warn_of_unread(number: u32, error: &FormatError) {
    static WARNING: Once = Once::new();
    WARNING.call_once(|| {
        tracing::warn!(number, %error, "a file of the manifest was not read and counts as not indexed; please report this");
    });
}

impl Store {
    /// Finds and reads the newest manifest. Of its pieces those are there that were read before.
    ///
    /// # Errors
    /// Nothing can be read (`Io`); an edit is damaged or missing, and no checkpoint after it can be read (`Corrupt`).
    pub(crate) async fn newest(&self) -> Result<NewestManifest> {
        retry_if_gone(self.text(), || self.look_for_newest()).await
    }

    /// The newest manifest, which tells what it will be asked for.
    ///
    /// # Errors
    /// Those of [`Self::newest`]; a piece is damaged or gone, and older files, too (`Corrupt`).
    pub(crate) async fn newest_with(&self, needs: &ManifestNeeds<'_>) -> Result<NewestManifest> {
        retry_if_gone(self.text(), || async move {
            let NewestManifest { manifest, checkpoint } = self.newest().await?;
            let Some(manifest) = manifest else { return Ok(Some(NewestManifest { manifest: None, checkpoint })) };
            match self.loaded(&manifest, needs).await {
                Ok(manifest) => Ok(Some(NewestManifest { manifest: Some(manifest), checkpoint })),
                // Others committed, and a vacuum took what was the newest. This process was stopped for hours.
                Err(_) if self.chain().await?.end(manifest.number()).is_none() => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The segments that the newest manifest names. Nobody may call other segments damaged: whoever took them out of the manifest may have
    /// removed their files, too.
    pub(crate) async fn named_segments(&self) -> Result<NamedSegments> {
        Ok(NamedSegments(self.newest().await?.manifest))
    }

    /// The indexes that the newest manifest declares. Whoever drops an index removes its segments after that: who misses one asks this then.
    pub(crate) async fn declared_indexes(&self) -> Result<DeclaredIndexes> {
        Ok(DeclaredIndexes(self.newest().await?.manifest))
    }

    /// The number of the newest manifest; 0 where there is none yet.
    pub(crate) async fn newest_number(&self) -> Result<u64> {
        if let Some(known) = self.cached() {
            let listed = self.chain_from(known.manifest.number()).await?;
            if let Some(newest) = listed.newest() {
                return Ok(newest);
            }
            // The store was deleted and begun again.
        }
        Ok(self.chain().await?.newest().unwrap_or(0))
    }

    /// Remembers the manifest that another handle of this store has read last.
    pub(crate) fn remember_as(&self, other: &Self) {
        self.remember(other.cached());
    }

    /// The manifest that was read last.
    pub(crate) fn remembered(&self) -> Option<Arc<Manifest>> {
        self.cached().map(|cached| cached.manifest)
    }

    /// The edits and checkpoints that there are: one listing.
    pub(crate) async fn chain(&self) -> Result<Chain> {
        let folder = self.object_path(MANIFESTS);
        Ok(Chain::of(self.listed(self.object_store().list(Some(&folder))).await?))
    }

    /// Those from a number on. So a store with many edits is listed as quickly as a new one.
    async fn chain_from(&self, number: u64) -> Result<Chain> {
        let Some(last) = number.checked_sub(1).filter(|last| *last > 0) else { return self.chain().await };
        let folder = self.object_path(MANIFESTS);
        let after = folder.clone().join(edit_name(last));
        Ok(Chain::of(self.listed(self.object_store().list_with_offset(Some(&folder), &after)).await?))
    }

    /// The newest manifest; none if a vacuum took some of what was listed.
    async fn look_for_newest(&self) -> Result<Option<NewestManifest>> {
        if let Some(known) = self.cached() {
            let number = known.manifest.number();
            let listed = self.chain_from(number).await?;
            if listed.end(number) == Some(&known.end) && listed.is_whole_after(number) {
                match self.advanced(known, &listed).await {
                    // There may be a checkpoint after the edit that is damaged.
                    Err(error) if error.kind() == ErrorKind::Corrupt => {}
                    advanced => return advanced,
                }
            }
            // Otherwise the store was deleted and begun again, or a vacuum took what was known.
        }
        let listed = self.chain().await?;
        let Some((number, end)) = listed.newest().and_then(|number| Some((number, listed.end(number)?.clone()))) else {
            self.remember(None);
            return Ok(Some(NewestManifest { manifest: None, checkpoint: 0 }));
        };
        let Some(mut manifest) = self.manifest_of(&listed, number).await? else { return Ok(None) };
        if let Some(known) = self.cached() {
            manifest.share_pieces(&known.manifest);
        }
        Ok(Some(self.found(CachedManifest {
            end,
            manifest: Arc::new(manifest),
            checkpoint: listed.newest_checkpoint(),
        })))
    }

    /// The known manifest with the edits that were listed after it.
    async fn advanced(&self, known: CachedManifest, listed: &Chain) -> Result<Option<NewestManifest>> {
        let number = known.manifest.number();
        let newest = listed.newest().unwrap_or(number);
        let checkpoint = known.checkpoint.max(listed.newest_checkpoint());
        let Some(end) = listed.end(newest).cloned() else { return Ok(None) };
        let Some(edits) = self.edits(listed, number + 1..=newest).await? else { return Ok(None) };
        let manifest = match edits.is_empty() {
            true => known.manifest,
            false => Arc::new(self.applied(known.manifest.as_ref().clone(), &edits)?),
        };
        Ok(Some(self.found(CachedManifest { end, manifest, checkpoint })))
    }

    /// Remembers what was found.
    fn found(&self, found: CachedManifest) -> NewestManifest {
        let newest = NewestManifest { manifest: Some(Arc::clone(&found.manifest)), checkpoint: found.checkpoint };
        self.remember(Some(found));
        newest
    }

    /// Remembers a manifest that is the newest, or was until a moment ago.
    pub(super) async fn remember_newest(&self, manifest: Manifest) -> Result<()> {
        let listed = self.chain_from(manifest.number()).await?;
        if let Some(end) = listed.end(manifest.number()).cloned() {
            let checkpoint = manifest.checkpoint();
            self.remember(Some(CachedManifest { end, manifest: Arc::new(manifest), checkpoint }));
        }
        Ok(())
    }

    fn cached(&self) -> Option<CachedManifest> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, cached: Option<CachedManifest>) {
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = cached;
    }

    /// Puts a manifest in the place of another one of the same state, if that is remembered.
    pub(super) fn replace_cached(&self, manifest: &Arc<Manifest>, again: &Arc<Manifest>) {
        let mut cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_mut().filter(|cached| Arc::ptr_eq(&cached.manifest, manifest)) {
            cached.manifest = Arc::clone(again);
        }
    }

    /// The manifest of a number, of what was listed, without any piece; none if a vacuum took some of that since.
    ///
    /// # Errors
    /// Those of [`Self::manifest_with`].
    pub(crate) async fn manifest_of(&self, listed: &Chain, number: u64) -> Result<Option<Manifest>> {
        self.manifest_with(listed, number, &ManifestNeeds::Root).await
    }

    /// The manifest of a number, of what was listed, which tells what it will be asked for; none if a vacuum took some of that since.
    ///
    /// # Errors
    /// An edit is damaged or missing, or a piece that is needed, and no checkpoint after it can be read (`Corrupt`); the store cannot be
    /// read (`Io`).
    pub(crate) async fn manifest_with(
        &self,
        listed: &Chain,
        number: u64,
        needs: &ManifestNeeds<'_>,
    ) -> Result<Option<Manifest>> {
        let mut first: Option<Error> = None;
        for start in listed.starts(number) {
            match self.manifest_from(listed, start, number, needs).await {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(store = self.text(), number, checkpoint = start, %error, "a manifest is told from older files");
                    first.get_or_insert(error);
                }
                read => return read,
            }
        }
        match first {
            Some(error) => Err(error),
            None if !self.chain().await?.is_same(listed) => Ok(None),
            None => Err(self.broken(listed, number)),
        }
    }

    /// The manifest of a number without any piece, from the one before it if that is given; none if a vacuum took some of what was listed.
    ///
    /// # Errors
    /// Those of [`Self::manifest_of`].
    pub(crate) async fn manifest_after(
        &self,
        listed: &Chain,
        before: Option<&Manifest>,
        number: u64,
    ) -> Result<Option<Manifest>> {
        let before = before.filter(|before| before.number() + 1 == number);
        let (Some(before), Some(meta)) = (before, listed.edits.get(&number)) else {
            return self.manifest_of(listed, number).await;
        };
        match self.read_edit(number, &meta.location).await {
            Ok(Some(edit)) => self.applied(before.clone(), &[edit]).map(Some),
            Ok(None) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Corrupt => self.manifest_of(listed, number).await,
            Err(error) => Err(error),
        }
    }

    /// The manifest of a checkpoint, or of the beginning, and all edits from there on.
    async fn manifest_from(
        &self,
        listed: &Chain,
        start: u64,
        number: u64,
        needs: &ManifestNeeds<'_>,
    ) -> Result<Option<Manifest>> {
        let location = listed.checkpoints.get(&start).map(|meta| &meta.location);
        let root = async {
            match location {
                Some(location) => self.root(start, location).await,
                None => Ok(None),
            }
        };
        let (root, edits) = try_join(root, self.edits(listed, start + 1..=number)).await?;
        let Some(edits) = edits else { return Ok(None) };
        let base = match (root, edits.first()) {
            (Some(root), _) => root,
            (None, Some(first)) if start == 0 => Manifest::new(first.store_id),
            _ => return Ok(None),
        };
        let manifest = self.applied(base, &edits)?;
        match (self.load(&manifest, needs).await, location) {
            (Ok(()), _) => Ok(Some(manifest)),
            // A vacuum takes the root first.
            (Err(error), Some(location)) if error.kind() == ErrorKind::Corrupt => {
                match self.bytes_of(location).await? {
                    Some(_) => Err(self.damaged("checkpoint", start).with_source(error)),
                    None => Ok(None),
                }
            }
            (Err(error), _) => Err(error),
        }
    }

    pub(crate) fn applied(&self, base: Manifest, edits: &[ManifestEdit]) -> Result<Manifest> {
        edits.iter().try_fold(base, |manifest, edit| {
            manifest.into_applied(edit).map_err(|error| self.damaged("edit", edit.number).with_source(error))
        })
    }

    /// The manifest of a checkpoint by its root, without any piece; none if the root is gone.
    ///
    /// # Errors
    /// The root is damaged (`Corrupt`); the store cannot be read (`Io`).
    pub(crate) async fn root(&self, number: u64, location: &Path) -> Result<Option<Manifest>> {
        let Some(bytes) = self.bytes_of(location).await? else { return Ok(None) };
        let manifest = Manifest::from_root(&bytes).map_err(|error| self.undecoded("checkpoint", number, error))?;
        if manifest.number() != number {
            return Err(self.damaged("checkpoint", number));
        }
        Ok(Some(manifest))
    }

    /// Edits that were listed, all at once; none if one of them is gone.
    async fn edits(&self, listed: &Chain, numbers: RangeInclusive<u64>) -> Result<Option<Vec<ManifestEdit>>> {
        // A map takes a range that ends before it begins for a mistake.
        if numbers.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let listed = listed.edits.range(numbers).map(|(number, meta)| (*number, meta.location.clone()));
        let reads = stream::iter(listed.collect::<Vec<_>>())
            .map(|(number, location)| async move { self.read_edit(number, &location).await });
        let edits: Vec<Option<ManifestEdit>> = reads.buffered(CONCURRENT_READS).try_collect().await?;
        Ok(edits.into_iter().collect())
    }

    /// Reads the edit of this number as it is in the store now; none if a vacuum removed it since it was listed.
    pub(crate) async fn read_edit(&self, number: u64, location: &Path) -> Result<Option<ManifestEdit>> {
        let Some(bytes) = self.bytes_of(location).await? else { return Ok(None) };
        let edit = ManifestEdit::decode(&bytes).map_err(|error| self.undecoded("edit", number, error))?;
        if edit.number != number {
            return Err(self.damaged("edit", number));
        }
        Ok(Some(edit))
    }

    /// Whether a vacuum took what the manifest of a number ends with, which it leaves of the newest one, before an edit of the number `put`
    /// was put. Then others committed after that manifest, and a number after it was free that had been taken. Nobody who reads at once is
    /// overtaken, but a process that was stopped for hours is. An edit with a checkpoint was read before the vacuum, and counts.
    ///
    /// # Errors
    /// It cannot be told (`Io`), nor whether the edit counts.
    pub(crate) async fn is_overtaken(&self, number: u64, put: u64) -> Result<bool> {
        let is_overtaken = async || -> Result<bool> {
            let is_gone = match number {
                // Where edits went there is a checkpoint.
                0 => !self.chain().await?.checkpoints.is_empty(),
                _ => !self.has(&edit_path(number)).await? && !self.has(&checkpoint_path(number)).await?,
            };
            Ok(is_gone && !self.has(&checkpoint_path(put)).await?)
        };
        is_overtaken().await.map_err(|error| self.unsure(error))
    }

    /// Puts an edit if its number is still free: the commit.
    pub(crate) async fn put_edit(&self, edit: &ManifestEdit) -> Result<PutOutcome> {
        let bytes = edit.encode().map_err(|error| {
            Error::unsupported("the table is beyond the limits of the manifest's format").with_source(error)
        })?;
        let relative = edit_path(edit.number);
        let (path, local) = (self.object_path(&relative), self.local_path(&relative));
        Ok(PutTarget { object_store: self.object_store(), path, local }.put(bytes).await)
    }

    pub(super) async fn bytes_of(&self, location: &Path) -> Result<Option<Bytes>> {
        match self.object_store().get(location).await {
            Ok(result) => result.bytes().await.map(Some).map_err(|error| self.unreadable(error)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    fn undecoded(&self, what: &str, number: u64, error: FormatError) -> Error {
        let error_of_state = match &error {
            FormatError::UnsupportedVersion { .. } => Error::unsupported(format!(
                "the {what} {number} in {} is of another release: no index is used; go on with that release, or, to index again, delete the \
                 store folder, and if it has the folder `updates`, migrate what is buffered before with the release that wrote it",
                self.text()
            )),
            _ => self.damaged(what, number),
        };
        error_of_state.with_source(error)
    }

    fn damaged(&self, what: &str, number: u64) -> Error {
        Error::corrupt(format!("the {what} {number} in {} is damaged: no index is used; {TO_INDEX_AGAIN}", self.text()))
    }

    /// The error of a manifest that nothing leads to.
    fn broken(&self, listed: &Chain, number: u64) -> Error {
        let (text, gap) = (self.text(), listed.gap(number).unwrap_or(number));
        Error::corrupt(format!(
            "the edit {gap} of the store {text} is missing, and so is every checkpoint from it on: what was indexed up to the edit {number} cannot \
             be told, and no index is used; restore the folder `manifest`, or, {TO_INDEX_AGAIN}"
        ))
    }
}
