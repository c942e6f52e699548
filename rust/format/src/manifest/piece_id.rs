//! Names of the pieces of checkpoints, and the files of pieces.

use std::fmt;
use std::str::FromStr;

use twox_hash::XxHash64;

use crate::container::{ContainerWriter, ContentKind, WholeFile, open_whole};
use crate::error::{FormatError, Result};

/// The name of a piece: the hash of what is in it, so that equal pieces are one file. Its text has 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId(pub [u8; 16]);

impl PieceId {
    /// The name of the piece of this kind with this directory: two XXH64, whose seeds the kind gives.
    pub(super) fn of(kind: ContentKind, directory: &[u8]) -> Self {
        let seed = u64::from(kind.code());
        let mut id = [0; 16];
        let (first, second) = id.split_at_mut(8);
        first.copy_from_slice(&XxHash64::oneshot(seed, directory).to_le_bytes());
        second.copy_from_slice(&XxHash64::oneshot(seed + 256, directory).to_le_bytes());
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

/// The name and the bytes of a piece that a checkpoint stores.
pub(super) type NamedPiece = (PieceId, Vec<u8>);

/// The name of a piece of this kind with this directory, and its file.
pub(super) fn encode_piece(kind: ContentKind, directory: &[u8]) -> Result<NamedPiece> {
    let id = PieceId::of(kind, directory);
    Ok((id, ContainerWriter::new(kind, id.0).finish(directory)?))
}

/// The name of the piece of this kind that a file is, and its checked directory.
pub(super) fn open_piece(bytes: &[u8], kind: ContentKind) -> Result<(PieceId, &[u8])> {
    let WholeFile { id, directory } = open_whole(bytes, kind)?;
    let (id, content) = (PieceId(id), PieceId::of(kind, directory));
    if id == content { Ok((id, directory)) } else { Err(FormatError::invalid("the id of a piece", id, content)) }
}

/// Checks that a piece is the one that was asked for.
pub(super) fn check_piece(got: PieceId, expected: PieceId) -> Result<()> {
    if got == expected { Ok(()) } else { Err(FormatError::invalid("the piece", got, expected)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_from_its_text_and_from_no_other() {
        let id = PieceId::of(ContentKind::FilePart, b"directory");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(id, PieceId::of(ContentKind::PathPage, b"directory"));
        let text = PieceId([0xab; 16]).to_string();
        for wrong in [text.to_uppercase(), text[1..].to_owned(), format!("+{}", &text[1..]), format!("{text}0")] {
            assert!(wrong.parse::<PieceId>().is_err(), "{wrong}");
        }
    }
}
