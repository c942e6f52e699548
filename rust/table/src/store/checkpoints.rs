//! Writing checkpoints: pieces first, then the root that names them.
//!
//! Everybody writes the same bytes for the same manifest, so that nobody has to be the one who does it, and two may do it at once.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{Checkpoint, Manifest, PieceId};
use object_store::ObjectStoreExt;

use super::Store;
use super::layout::{checkpoint_path, piece_path};
use super::pieces::ManifestNeeds;
use crate::error::{Error, Result};
use crate::storage::clock;
use crate::storage::disk::on_a_thread;
use crate::storage::failpoint::reach;
use crate::storage::put_if_absent::{PutOutcome, PutTarget};

/// Edits after a checkpoint: whoever commits the last of them writes the next checkpoint.
pub(crate) const EDITS_OF_CHECKPOINT: u64 = 64;
/// Pieces that are written at a time.
const CONCURRENT_WRITES: usize = 16;
/// A piece that is younger is not written again. It is well below the least age of a vacuum: a piece that nothing names yet stays until
/// the root does.
const FRESH: Duration = Duration::from_secs(30 * 60);

impl Store {
    /// Writes the checkpoint of a manifest after which so many edits followed another one, and says nothing if it fails: the next commit
    /// tries again.
    pub(super) async fn checkpoint_if_due(&self, manifest: &Manifest, newest_checkpoint: u64) {
        if manifest.number().saturating_sub(newest_checkpoint) < EDITS_OF_CHECKPOINT {
            return;
        }
        let written = match self.write_checkpoint(manifest, newest_checkpoint).await {
            Ok(manifest) => self.remember_newest(manifest).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            let (store, number) = (self.text(), manifest.number());
            tracing::warn!(store, number, %error, "no checkpoint was written; a later commit tries again");
        }
    }

    /// Writes the checkpoint of a manifest; gives that with its pieces.
    pub(super) async fn write_checkpoint(&self, manifest: &Manifest, newest_checkpoint: u64) -> Result<Manifest> {
        let manifest = self.on_newest_checkpoint(manifest, newest_checkpoint).await?;
        self.put_checkpoint(self.to_checkpoint(&manifest).await?).await
    }

    /// The checkpoint of a manifest, which nobody sees yet.
    ///
    /// # Errors
    /// What the checkpoint shares with the one before cannot be read (`Io`, `Corrupt`).
    pub(crate) async fn to_checkpoint(&self, manifest: &Manifest) -> Result<Checkpoint> {
        self.read_pieces(|| manifest.missing_of_checkpoint()).await?;
        let manifest = manifest.clone();
        let made = on_a_thread(move || manifest.to_checkpoint()).await.map_err(|error| Error::task(&error))?;
        Ok(made?)
    }

    /// Writes a checkpoint; gives its manifest with its pieces.
    ///
    /// # Errors
    /// Something cannot be written (`Io`). What was written then is waste.
    pub(crate) async fn put_checkpoint(&self, checkpoint: Checkpoint) -> Result<Manifest> {
        let Checkpoint { root, pieces, manifest } = checkpoint;
        let writes = stream::iter(pieces).map(|(id, bytes)| self.write_piece(id, bytes));
        writes.buffer_unordered(CONCURRENT_WRITES).try_collect::<()>().await?;
        reach("checkpoint-pieces");
        let relative = checkpoint_path(manifest.number());
        let (path, local) = (self.object_path(&relative), self.local_path(&relative));
        let outcome = PutTarget { object_store: self.object_store(), path, local }.put(root).await;
        reach("checkpoint-root");
        match outcome {
            PutOutcome::Made => Ok(manifest),
            PutOutcome::Taken(_) => Err(Error::internal(format!(
                "the checkpoint {} of the store {} is there with other bytes than those of its edits",
                manifest.number(),
                self.text()
            ))),
            PutOutcome::Refused(cause) | PutOutcome::Missing(cause) | PutOutcome::Unknown(cause) => {
                Err(self.unwritable(cause))
            }
        }
    }

    /// The manifest as it follows from the newest checkpoint. The pieces of that one are kept, those of an older one may be gone. Where one
    /// is damaged or gone, the manifest follows from older files, and its checkpoint has all pieces anew.
    async fn on_newest_checkpoint(&self, manifest: &Manifest, newest_checkpoint: u64) -> Result<Manifest> {
        // A vacuum may have put one below what is known, and taken the one that is known with its pieces.
        let listed = self.chain().await?;
        let is_on_newest =
            listed.newest_checkpoint() == newest_checkpoint && manifest.checkpoint() == newest_checkpoint;
        if is_on_newest && self.can_share_pieces(manifest).await? {
            return Ok(manifest.clone());
        }
        let again = self.manifest_with(&listed, manifest.number(), &ManifestNeeds::Everything).await?;
        again.ok_or_else(|| Error::internal("a vacuum took the edits that a checkpoint was to be made of"))
    }

    /// Writes a piece unless it is there. One that nothing may name any more is written again, so that it is young.
    async fn write_piece(&self, id: PieceId, bytes: Vec<u8>) -> Result<()> {
        let path = piece_path(id);
        match self.object_store().head(&self.object_path(&path)).await {
            Ok(have) if have.size == bytes.len() as u64 => {
                let age = clock::utc().signed_duration_since(have.last_modified).to_std();
                if age.is_ok_and(|age| age < FRESH) {
                    return Ok(());
                }
            }
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(self.unreadable(error)),
        }
        self.write_file(&path, bytes).await
    }
}
