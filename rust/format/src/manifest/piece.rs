//! The files that a checkpoint is made of besides its root: written once, named by their content, shared by checkpoints.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use twox_hash::XxHash64;

use super::file_part::StoredFiles;
use super::path_page::StoredPaths;
use crate::container::{ContainerWriter, ContentKind, WholeFile, open_whole};
use crate::error::{FormatError, Result};

/// The name of a piece: the hash of what is in it, so that equal pieces are one file. Its text has 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId(pub [u8; 16]);

impl PieceId {
    /// The name of the piece with this directory: its XXH64 with the seed 0 and with the seed 1.
    pub(super) fn of(directory: &[u8]) -> Self {
        let mut id = [0; 16];
        let (first, second) = id.split_at_mut(8);
        first.copy_from_slice(&XxHash64::oneshot(0, directory).to_le_bytes());
        second.copy_from_slice(&XxHash64::oneshot(1, directory).to_le_bytes());
        Self(id)
    }
}

impl fmt::Display for PieceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PieceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PieceId({self})")
    }
}

impl FromStr for PieceId {
    type Err = FormatError;

    /// Reads the text of a name, as a file of the store has it.
    fn from_str(text: &str) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match u128::from_str_radix(text, 16) {
            Ok(number) if text.len() == 32 && text.bytes().all(is_plain) => Ok(Self(number.to_be_bytes())),
            _ => Err(FormatError::invalid("the name of a piece", format_args!("{text:?}"), "32 hexadecimal digits")),
        }
    }
}

/// A piece that a manifest refers to. Its bytes are read when they are needed: whoever does the I/O gives them to [`Self::supply`].
#[derive(Debug, Clone)]
pub struct Piece(pub(super) PieceContent);

/// What is in a piece.
#[derive(Debug, Clone)]
pub(super) enum PieceContent {
    Files(Arc<StoredFiles>),
    Paths(Arc<StoredPaths>),
}

impl Piece {
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

/// The name and the file of a piece with this directory.
pub(super) fn encode_piece(kind: ContentKind, directory: &[u8]) -> Result<(PieceId, Vec<u8>)> {
    let id = PieceId::of(directory);
    Ok((id, ContainerWriter::new(kind, id.0).finish(directory)?))
}

/// The checked directory of the piece of this name.
pub(super) fn open_piece(bytes: &[u8], kind: ContentKind, id: PieceId) -> Result<&[u8]> {
    let WholeFile { id: found, directory } = open_whole(bytes, kind)?;
    if found != id.0 {
        return Err(FormatError::invalid("the id of a piece", PieceId(found), id));
    }
    let hash = PieceId::of(directory);
    if hash == id { Ok(directory) } else { Err(FormatError::invalid("the content of a piece", hash, id)) }
}
