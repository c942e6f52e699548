//! The container of every Lakemark file: a stream of checksummed pages, a directory and a trailer.
//!
//! ```text
//! | page 0 | page 1 | … | last page | directory | trailer (64 bytes) |
//! page = 4092 bytes of the stream (the last one may have fewer) + CRC32C (4 bytes)
//! ```
//!
//! *Logical* offsets count the bytes of the stream without checksums, *physical* offsets count bytes of the file. The first
//! 64 logical bytes are the [`Header`]. One read of the file's tail opens it; every later read is a known page range.
//! Nothing here does I/O: [`ContainerWriter`] gives out bytes to write, the reading half takes bytes that were read.
//!
//! Every checksum starts from the file's id and the page's number, so that a page of another file, or of another place in
//! this file, never passes. What is checked, in this order: magic, version, lengths, checksum, fields.

mod header;
mod pages;
mod trailer;
mod whole;
mod writer;

use crate::error::{FormatError, Result};

pub use header::Header;
pub use pages::{physical_range, read_logical};
pub use trailer::{Opened, Trailer, open_tail};
pub(crate) use whole::{WholeFile, open_whole};
pub use writer::ContainerWriter;

/// The first and the last eight bytes of every file.
pub const MAGIC: [u8; 8] = *b"LAKEMARK";
/// The version that this release writes.
pub const VERSION: u16 = 6;
/// The oldest version that this release reads.
pub const OLDEST_VERSION: u16 = 6;
/// Bytes of a full page in the file.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the stream in a full page.
pub const PAGE_PAYLOAD: u64 = 4092;
/// Bytes of a checksum.
pub const CHECKSUM_BYTES: u64 = 4;
/// Bytes of the header, at the start of the stream.
pub const HEADER_BYTES: u64 = 64;
/// Bytes of the trailer, at the end of the file.
pub const TRAILER_BYTES: u64 = 64;
/// The largest directory.
pub const MAX_DIRECTORY_BYTES: u64 = 1 << 30;
/// The longest stream, in logical bytes.
pub const MAX_STREAM_BYTES: u64 = 1 << 46;
/// The page number that stands for the directory in its checksum.
pub const DIRECTORY_PAGE: u64 = u64::MAX;
/// The page number that stands for the trailer in its checksum.
pub const TRAILER_PAGE: u64 = u64::MAX - 1;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// A segment of an index (`.lmx`).
    Segment,
    /// An edit of a manifest (`.lmm`).
    Edit,
    /// The position map of a run of updates (`.lmx`).
    PositionMap,
    /// A log of updates (`.lml`), which has the header in common with the other files and no pages.
    Log,
    /// The root of a checkpoint (`.lmk`).
    Checkpoint,
    /// The files of a stretch of numbers, a piece of checkpoints (`.lmp`).
    FilePart,
    /// Numbers of files by the hashes of their paths, a piece of checkpoints (`.lmp`).
    PathPage,
}

impl ContentKind {
    /// The kind's byte in files.
    pub fn code(self) -> u8 {
        match self {
            Self::Segment => 1,
            Self::Edit => 2,
            Self::PositionMap => 3,
            Self::Log => 4,
            Self::Checkpoint => 5,
            Self::FilePart => 6,
            Self::PathPage => 7,
        }
    }

    fn decode(code: u8) -> Result<Self> {
        match code {
            1 => Ok(Self::Segment),
            2 => Ok(Self::Edit),
            3 => Ok(Self::PositionMap),
            4 => Ok(Self::Log),
            5 => Ok(Self::Checkpoint),
            6 => Ok(Self::FilePart),
            7 => Ok(Self::PathPage),
            other => Err(FormatError::invalid("the content kind", other, "1 to 7")),
        }
    }
}

/// Physical bytes of a stream of `logical` bytes.
pub fn physical_length(logical: u64) -> u64 {
    logical + CHECKSUM_BYTES * logical.div_ceil(PAGE_PAYLOAD)
}

/// CRC32C over the file's id, the page number (8 bytes) and the bytes.
pub(crate) fn page_checksum(id: &[u8; 16], page: u64, bytes: &[u8]) -> u32 {
    let seed = crc32c::crc32c_append(crc32c::crc32c(id), &page.to_le_bytes());
    crc32c::crc32c_append(seed, bytes)
}

pub(crate) fn check_checksum(
    what: &'static str,
    position: u64,
    stored: u32,
    id: &[u8; 16],
    page: u64,
    bytes: &[u8],
) -> Result<()> {
    let got = page_checksum(id, page, bytes);
    if got == stored {
        return Ok(());
    }
    Err(FormatError::ChecksumMismatch { what, position, got, expected: stored })
}

pub(crate) fn check_magic(what: &'static str, got: [u8; 8]) -> Result<()> {
    if got == MAGIC {
        return Ok(());
    }
    Err(FormatError::BadMagic { what, got, expected: MAGIC })
}

pub(crate) fn check_version(got: u16) -> Result<()> {
    if (OLDEST_VERSION..=VERSION).contains(&got) {
        return Ok(());
    }
    Err(FormatError::UnsupportedVersion { got, oldest: OLDEST_VERSION, newest: VERSION })
}

pub(crate) fn check_limit(what: &'static str, got: u64, limit: u64) -> Result<()> {
    if got <= limit {
        return Ok(());
    }
    Err(FormatError::TooLong { what, got, limit })
}
