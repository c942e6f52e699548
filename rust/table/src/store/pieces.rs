//! Pieces of checkpoints, which are read once somebody asks a manifest for something that they have.
//!
//! ```text
//! a manifest and what it will be asked for ─▶ the pieces that it lacks for that, all at once
//!                                              damaged or gone? ─▶ the same manifest, told from older files
//! ```
//!
//! Invariant: what was read for one manifest is there for all that share the piece.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{Manifest, Piece, PieceId};

use super::Store;
use super::layout::{PIECES, StoreFileKind, kind_of, piece_path};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::disk::on_a_thread;

/// Pieces that are read at a time.
const CONCURRENT_READS: usize = 64;

/// What somebody is going to ask a manifest for.
#[derive(Clone, Debug)]
pub(crate) enum ManifestNeeds<'a> {
    /// Nothing that is in pieces: indexes, segments, what is buffered, which numbers have a file.
    Root,
    /// The numbers of these paths, and their files.
    Paths(Vec<&'a str>),
    /// Every file by its number, and the numbers of these paths.
    Files(Vec<&'a str>),
    /// All that there is.
    Everything,
}

impl ManifestNeeds<'_> {
    /// The pieces that are to be read next. There may be others once these were read.
    fn missing_of(&self, manifest: &Manifest) -> Vec<Piece> {
        match self {
            Self::Root => Vec::new(),
            Self::Paths(paths) => manifest.missing_of_paths(paths.iter().copied()),
            Self::Files(paths) => {
                [manifest.missing_of_all_files(), manifest.missing_of_paths(paths.iter().copied())].concat()
            }
            Self::Everything => manifest.missing_of_all(),
        }
    }
}

impl Store {
    /// The manifest, which tells what it will be asked for. Where a piece is damaged or gone it is another one of the same state, told from
    /// older files.
    ///
    /// # Errors
    /// A piece is damaged or gone, and the older files are, too (`Corrupt`); the store cannot be read (`Io`).
    pub(crate) async fn loaded(&self, manifest: &Arc<Manifest>, needs: &ManifestNeeds<'_>) -> Result<Arc<Manifest>> {
        let error = match self.load(manifest, needs).await {
            Ok(()) => return Ok(Arc::clone(manifest)),
            Err(error) if error.kind() == ErrorKind::Corrupt => error,
            Err(error) => return Err(error),
        };
        let listed = self.chain().await?;
        let Some(again) = self.manifest_with(&listed, manifest.number(), needs).await? else { return Err(error) };
        // The store was deleted and begun again: another one has come to the same number.
        if again.store_id() != manifest.store_id() {
            return Err(error);
        }
        let again = Arc::new(again);
        self.replace_cached(manifest, &again);
        Ok(again)
    }

    /// Reads what a manifest lacks of what it will be asked for.
    ///
    /// # Errors
    /// A piece is damaged or not there (`Corrupt`); the store cannot be read (`Io`).
    pub(crate) async fn load(&self, manifest: &Manifest, needs: &ManifestNeeds<'_>) -> Result<()> {
        self.read_pieces(|| needs.missing_of(manifest)).await
    }

    /// Reads pieces, all that are missing at once, until none is.
    ///
    /// # Errors
    /// A piece is damaged or not there (`Corrupt`); the store cannot be read (`Io`).
    pub(super) async fn read_pieces(&self, missing: impl Fn() -> Vec<Piece>) -> Result<()> {
        loop {
            // A piece may be missing for several reasons.
            let pieces: HashMap<PieceId, Piece> = missing().into_iter().map(|piece| (piece.id(), piece)).collect();
            if pieces.is_empty() {
                return Ok(());
            }
            let reads = stream::iter(pieces.into_values()).map(|piece| self.read_piece(piece));
            reads.buffer_unordered(CONCURRENT_READS).try_collect::<()>().await?;
        }
    }

    /// Reads a piece. It is decoded on another thread: a large table has thousands.
    async fn read_piece(&self, piece: Piece) -> Result<()> {
        let path = piece_path(piece.id());
        let bytes = self.bytes_of(&self.object_path(&path)).await?;
        let bytes = bytes.ok_or_else(|| Error::corrupt(format!("its piece {path} is missing")))?;
        let supplied = on_a_thread(move || piece.supply(&bytes)).await.map_err(|error| Error::task(&error))?;
        supplied.map_err(|error| Error::corrupt(format!("its piece {path} is damaged")).with_source(error))
    }

    /// Whether the next checkpoint can have the pieces of this one that did not change: they are there, and others can be read. A piece
    /// that nobody reads for it may be damaged all the same.
    ///
    /// # Errors
    /// The store cannot be read (`Io`).
    pub(super) async fn can_share_pieces(&self, manifest: &Manifest) -> Result<bool> {
        match self.read_pieces(|| manifest.missing_of_checkpoint()).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
            read => read?,
        }
        let pieces = manifest.pieces();
        if pieces.is_empty() {
            return Ok(true);
        }
        let listed = self.listed(self.object_store().list(Some(&self.object_path(PIECES)))).await?;
        let there: HashSet<PieceId> = listed
            .iter()
            .filter_map(|meta| match kind_of(PIECES, meta.location.filename()?) {
                Some(StoreFileKind::Piece(id)) => Some(id),
                _ => None,
            })
            .collect();
        Ok(pieces.is_subset(&there))
    }
}

#[cfg(test)]
mod tests;
