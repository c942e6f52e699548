//! The header: the first bytes of the stream.

use super::{ContentKind, MAGIC, VERSION, check_magic, check_version};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};

/// The first 64 bytes of the stream: what a file is when its tail is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the file holds.
    pub kind: ContentKind,
    /// The file's id: of the segment, or of the store for a manifest.
    pub id: [u8; 16],
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ByteWriter::new();
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.u8(self.kind.code());
        out.bytes(&[0; 5]);
        out.bytes(&self.id);
        out.bytes(&[0; 32]);
        out.into_vec()
    }

    /// Reads what [`Header::encode`] wrote; the page's checksum is the caller's to check ([`read_logical`](super::read_logical) does).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = ByteReader::new("the header", bytes);
        check_magic("the header", input.array()?)?;
        check_version(input.u16()?)?;
        let kind = ContentKind::decode(input.u8()?)?;
        let reserved: [u8; 5] = input.array()?;
        let id = input.array()?;
        let rest: [u8; 32] = input.array()?;
        if reserved != [0; 5] || rest != [0; 32] {
            return Err(FormatError::invalid("the header's reserved bytes", "not zero", "0"));
        }
        input.finish()?;
        Ok(Self { kind, id })
    }
}
