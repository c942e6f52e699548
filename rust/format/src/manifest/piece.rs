//! The files that a checkpoint is made of besides its root: written once, named by their content, shared by checkpoints.

use std::sync::Arc;

use super::piece_id::PieceId;
use super::stored_files::StoredFiles;
use super::stored_paths::StoredPaths;
use crate::container::{ContentKind, open_tail};
use crate::error::Result;

/// A piece that a manifest refers to. Its bytes are read when they are needed: whoever does the I/O gives them to [`Self::supply`].
#[derive(Debug, Clone)]
pub struct Piece(PieceContent);

/// What is in a piece.
#[derive(Debug, Clone)]
enum PieceContent {
    Files(Arc<StoredFiles>),
    Paths(Arc<StoredPaths>),
}

impl Piece {
    pub(super) fn of_files(files: &Arc<StoredFiles>) -> Self {
        Self(PieceContent::Files(Arc::clone(files)))
    }

    pub(super) fn of_paths(paths: &Arc<StoredPaths>) -> Self {
        Self(PieceContent::Paths(Arc::clone(paths)))
    }

    /// Reads a piece for itself, from its bytes.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        match open_tail(bytes, bytes.len() as u64)?.trailer.kind {
            ContentKind::PathPage => Ok(Self(PieceContent::Paths(Arc::new(StoredPaths::read(bytes)?)))),
            _ => Ok(Self(PieceContent::Files(Arc::new(StoredFiles::read(bytes)?)))),
        }
    }

    /// The piece's bytes, if they were supplied.
    pub fn encode(&self) -> Result<Vec<u8>> {
        match &self.0 {
            PieceContent::Files(files) => files.encode(),
            PieceContent::Paths(paths) => paths.encode(),
        }
    }

    /// The piece's name.
    pub fn id(&self) -> PieceId {
        match &self.0 {
            PieceContent::Files(files) => files.id,
            PieceContent::Paths(paths) => paths.id,
        }
    }

    /// Whether its bytes were supplied.
    pub fn is_loaded(&self) -> bool {
        match &self.0 {
            PieceContent::Files(files) => files.is_loaded(),
            PieceContent::Paths(paths) => paths.is_loaded(),
        }
    }

    /// Reads the piece from its bytes. All manifests that share it have it from then on.
    pub fn supply(&self, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            PieceContent::Files(files) => files.supply(bytes),
            PieceContent::Paths(paths) => paths.supply(bytes),
        }
    }
}
