//! The trailer: the last bytes of the file, from which everything else is found.

use std::ops::Range;

use super::{
    ContentKind, DIRECTORY_PAGE, HEADER_BYTES, MAGIC, MAX_DIRECTORY_BYTES, MAX_STREAM_BYTES, TRAILER_BYTES,
    TRAILER_PAGE, VERSION, check_checksum, check_limit, check_magic, check_version, page_checksum, physical_length,
};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};

/// Bytes of the trailer that its checksum covers.
const TRAILER_CHECKED: usize = 52;

/// The last 64 bytes of the file: where everything else is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// What the file holds.
    pub kind: ContentKind,
    /// The file's id, the seed of all its checksums.
    pub id: [u8; 16],
    /// Logical bytes of the stream.
    pub stream_length: u64,
    /// Where the directory starts, physically: the end of the last page.
    pub directory_offset: u64,
    /// Bytes of the directory.
    pub directory_length: u32,
    /// The directory's checksum.
    pub directory_checksum: u32,
    /// Bytes of the whole file.
    pub file_length: u64,
}

impl Trailer {
    /// The trailer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ByteWriter::new();
        out.u64(self.stream_length);
        out.u64(self.directory_offset);
        out.u64(self.file_length);
        out.u32(self.directory_length);
        out.u32(self.directory_checksum);
        out.bytes(&self.id);
        out.u8(self.kind.code());
        out.u8(0);
        out.u16(VERSION);
        let checksum = page_checksum(&self.id, TRAILER_PAGE, out.as_slice());
        out.u32(checksum);
        out.bytes(&MAGIC);
        out.into_vec()
    }

    /// Reads the trailer at the end of `tail`, the last bytes of a file of `file_length` bytes.
    pub fn decode(tail: &[u8], file_length: u64) -> Result<Self> {
        let Some((_, bytes)) = tail.split_last_chunk::<{ TRAILER_BYTES as usize }>() else {
            return Err(FormatError::Truncated {
                what: "the trailer",
                got: tail.len() as u64,
                expected: TRAILER_BYTES,
            });
        };
        let mut end = ByteReader::new("the trailer", bytes);
        let checked = end.bytes(TRAILER_CHECKED)?;
        let stored = end.u32()?;
        check_magic("the trailer", end.array()?)?;
        let mut input = ByteReader::new("the trailer", checked);
        let stream_length = input.u64()?;
        let directory_offset = input.u64()?;
        let stored_length = input.u64()?;
        let directory_length = input.u32()?;
        let directory_checksum = input.u32()?;
        let id = input.array()?;
        let (kind, reserved) = (input.u8()?, input.u8()?);
        check_version(input.u16()?)?;
        check_limit("the directory's length", directory_length.into(), MAX_DIRECTORY_BYTES)?;
        check_limit("the stream's length", stream_length, MAX_STREAM_BYTES)?;
        check_checksum("the trailer of the file of length", file_length, stored, &id, TRAILER_PAGE, checked)?;
        if reserved != 0 {
            return Err(FormatError::invalid("the trailer's reserved byte", reserved, 0));
        }
        let trailer = Self {
            kind: ContentKind::decode(kind)?,
            id,
            stream_length,
            directory_offset,
            directory_length,
            directory_checksum,
            file_length: stored_length,
        };
        trailer.validate(file_length)?;
        Ok(trailer)
    }

    fn validate(&self, file_length: u64) -> Result<()> {
        if self.file_length != file_length {
            return Err(FormatError::invalid("the file's length", file_length, self.file_length));
        }
        if self.stream_length < HEADER_BYTES {
            return Err(FormatError::Truncated { what: "the stream", got: self.stream_length, expected: HEADER_BYTES });
        }
        let pages_end = physical_length(self.stream_length);
        if self.directory_offset != pages_end {
            return Err(FormatError::invalid("the directory's offset", self.directory_offset, pages_end));
        }
        let expected = pages_end + u64::from(self.directory_length) + TRAILER_BYTES;
        if expected != file_length {
            return Err(FormatError::invalid("the file's length", file_length, expected));
        }
        Ok(())
    }

    /// Where the directory is in the file.
    pub fn directory_range(&self) -> Range<u64> {
        self.directory_offset..self.directory_offset + u64::from(self.directory_length)
    }

    /// Checks the directory's bytes, read from [`Trailer::directory_range`].
    pub fn check_directory(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 != u64::from(self.directory_length) {
            return Err(FormatError::Truncated {
                what: "the directory",
                got: bytes.len() as u64,
                expected: self.directory_length.into(),
            });
        }
        let stored = self.directory_checksum;
        check_checksum("the directory at", self.directory_offset, stored, &self.id, DIRECTORY_PAGE, bytes)
    }
}

/// A file whose tail was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened<'a> {
    /// Where everything is.
    pub trailer: Trailer,
    /// The checked directory; `None` when the tail did not reach back to its start: read
    /// [`Trailer::directory_range`] and call [`Trailer::check_directory`].
    pub directory: Option<&'a [u8]>,
}

/// Opens a file of `file_length` bytes from its last bytes.
pub fn open_tail(tail: &[u8], file_length: u64) -> Result<Opened<'_>> {
    let trailer = Trailer::decode(tail, file_length)?;
    let from_end = u64::from(trailer.directory_length) + TRAILER_BYTES;
    let directory = usize::try_from(from_end)
        .ok()
        .and_then(|from_end| tail.len().checked_sub(from_end))
        .and_then(|start| tail.get(start..tail.len() - TRAILER_BYTES as usize));
    if let Some(bytes) = directory {
        trailer.check_directory(bytes)?;
    }
    Ok(Opened { trailer, directory })
}
