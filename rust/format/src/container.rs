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

use std::ops::Range;

use crate::codec::{Reader, Writer};
use crate::error::{FormatError, Result};

/// The first and the last eight bytes of every file.
pub const MAGIC: [u8; 8] = *b"LAKEMARK";
/// The version that this release writes.
pub const VERSION: u16 = 1;
/// The oldest version that this release reads.
pub const OLDEST_VERSION: u16 = 1;
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

/// Bytes of the trailer that its checksum covers.
const TRAILER_CHECKED: usize = 52;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// A segment of an index (`.lmx`).
    Segment,
    /// A manifest (`.lmm`).
    Manifest,
    /// The index of a run of updates; reserved, no release writes it yet.
    RunIndex,
}

impl ContentKind {
    /// The kind's byte in files.
    pub fn code(self) -> u8 {
        match self {
            Self::Segment => 1,
            Self::Manifest => 2,
            Self::RunIndex => 3,
        }
    }

    fn decode(code: u8) -> Result<Self> {
        match code {
            1 => Ok(Self::Segment),
            2 => Ok(Self::Manifest),
            3 => Ok(Self::RunIndex),
            other => Err(FormatError::invalid("the content kind", other, "1 to 3")),
        }
    }
}

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
        let mut out = Writer::new();
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.u8(self.kind.code());
        out.bytes(&[0; 5]);
        out.bytes(&self.id);
        out.bytes(&[0; 32]);
        out.into_vec()
    }

    /// Reads what [`Header::encode`] wrote; the page's checksum is the caller's to check ([`read_logical`] does).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new("the header", bytes);
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
        let mut out = Writer::new();
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
        let mut end = Reader::new("the trailer", bytes);
        let checked = end.bytes(TRAILER_CHECKED)?;
        let stored = end.u32()?;
        check_magic("the trailer", end.array()?)?;
        let mut input = Reader::new("the trailer", checked);
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
        check_checksum(
            "the trailer of the file of length",
            file_length,
            stored,
            &id,
            TRAILER_PAGE,
            checked,
        )?;
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
            return Err(FormatError::Truncated {
                what: "the stream",
                got: self.stream_length,
                expected: HEADER_BYTES,
            });
        }
        let pages_end = physical_length(self.stream_length);
        if self.directory_offset != pages_end {
            return Err(FormatError::invalid(
                "the directory's offset",
                self.directory_offset,
                pages_end,
            ));
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
        check_checksum(
            "the directory at",
            self.directory_offset,
            stored,
            &self.id,
            DIRECTORY_PAGE,
            bytes,
        )
    }

    /// Reads and compares the header in `page_bytes`, the bytes of `physical_range(0..HEADER_BYTES)`.
    pub fn check_header(&self, page_bytes: &[u8]) -> Result<()> {
        let header = Header::decode(&read_logical(page_bytes, 0..HEADER_BYTES, self)?)?;
        if header.kind != self.kind {
            return Err(FormatError::invalid(
                "the header's content kind",
                header.kind.code(),
                self.kind.code(),
            ));
        }
        if header.id != self.id {
            return Err(FormatError::invalid(
                "the header's id",
                "another",
                "the id in the trailer",
            ));
        }
        Ok(())
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

/// Physical bytes of a stream of `logical` bytes.
pub fn physical_length(logical: u64) -> u64 {
    logical + CHECKSUM_BYTES * logical.div_ceil(PAGE_PAYLOAD)
}

/// The page-aligned physical range that holds the logical bytes `logical`; empty for an empty range.
///
/// The part of `logical` behind the end of the stream has no bytes and is left out; [`read_logical`] refuses it.
pub fn physical_range(logical: Range<u64>, trailer: &Trailer) -> Range<u64> {
    let end = logical.end.min(trailer.stream_length);
    if logical.start >= end {
        return 0..0;
    }
    let first_page = logical.start / PAGE_PAYLOAD;
    let end_page = end.div_ceil(PAGE_PAYLOAD);
    first_page * PAGE_BYTES..(end_page * PAGE_BYTES).min(trailer.directory_offset)
}

/// The logical bytes `logical` from `page_bytes`, the bytes of [`physical_range`] of the same range.
///
/// Checks every page that the range touches.
pub fn read_logical(page_bytes: &[u8], logical: Range<u64>, trailer: &Trailer) -> Result<Vec<u8>> {
    if logical.start > logical.end || logical.end > trailer.stream_length {
        return Err(FormatError::invalid(
            "a range of the stream",
            format_args!("{} to {}", logical.start, logical.end),
            format_args!("inside 0 to {}", trailer.stream_length),
        ));
    }
    let physical = physical_range(logical.clone(), trailer);
    let expected = physical.end - physical.start;
    if page_bytes.len() as u64 != expected {
        return Err(FormatError::Truncated {
            what: "a range of pages",
            got: page_bytes.len() as u64,
            expected,
        });
    }
    let mut out = Vec::with_capacity(page_bytes.len());
    let mut number = logical.start / PAGE_PAYLOAD;
    let skip = (logical.start % PAGE_PAYLOAD) as usize;
    for page in page_bytes.chunks(PAGE_BYTES as usize) {
        let Some((payload, stored)) = page.split_last_chunk::<{ CHECKSUM_BYTES as usize }>() else {
            return Err(FormatError::Truncated {
                what: "a page",
                got: page.len() as u64,
                expected: CHECKSUM_BYTES,
            });
        };
        check_checksum(
            "page",
            number,
            u32::from_le_bytes(*stored),
            &trailer.id,
            number,
            payload,
        )?;
        out.extend_from_slice(payload);
        number += 1;
    }
    out.drain(..skip.min(out.len()));
    out.truncate((logical.end - logical.start) as usize);
    Ok(out)
}

/// Writes a container without doing I/O: bytes go in with [`push`](Self::push), finished pages come out with
/// [`take_output`](Self::take_output), and [`finish`](Self::finish) gives the last bytes.
///
/// ```
/// use lakemark_format::{ContainerWriter, ContentKind, open_tail, physical_range, read_logical};
/// let mut writer = ContainerWriter::new(ContentKind::Segment, [7; 16]);
/// let start = writer.offset();
/// writer.push(b"payload");
/// let end = writer.offset();
/// let mut file = writer.take_output();
/// file.extend(writer.finish(b"directory")?);
///
/// let opened = open_tail(&file, file.len() as u64)?;
/// assert_eq!(opened.directory, Some(b"directory".as_slice()));
/// let pages = physical_range(start..end, &opened.trailer);
/// let pages = &file[pages.start as usize..pages.end as usize];
/// assert_eq!(read_logical(pages, start..end, &opened.trailer)?, b"payload");
/// # Ok::<(), lakemark_format::FormatError>(())
/// ```
#[derive(Debug)]
pub struct ContainerWriter {
    kind: ContentKind,
    id: [u8; 16],
    page: Vec<u8>,
    pages: u64,
    output: Vec<u8>,
}

impl ContainerWriter {
    /// A writer whose stream starts with the header, so that the first [`offset`](Self::offset) is [`HEADER_BYTES`].
    pub fn new(kind: ContentKind, id: [u8; 16]) -> Self {
        let page = Vec::with_capacity(PAGE_BYTES as usize);
        let mut writer = Self {
            kind,
            id,
            page,
            pages: 0,
            output: Vec::new(),
        };
        writer.push(&Header { kind, id }.encode());
        writer
    }

    /// Appends bytes to the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        loop {
            let room = PAGE_PAYLOAD as usize - self.page.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.page.extend_from_slice(now);
            if later.is_empty() {
                return;
            }
            self.close_page();
            bytes = later;
        }
    }

    fn close_page(&mut self) {
        let checksum = page_checksum(&self.id, self.pages, &self.page);
        self.output.extend_from_slice(&self.page);
        self.output.extend_from_slice(&checksum.to_le_bytes());
        self.page.clear();
        self.pages += 1;
    }

    /// The logical offset of the next byte pushed.
    pub fn offset(&self) -> u64 {
        self.pages * PAGE_PAYLOAD + self.page.len() as u64
    }

    /// The bytes that are ready to be written to the file, after those taken before.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Ends the stream; gives the bytes not taken yet, the last page, the directory and the trailer.
    pub fn finish(mut self, directory: &[u8]) -> Result<Vec<u8>> {
        let stream_length = self.offset();
        check_limit("the stream's length", stream_length, MAX_STREAM_BYTES)?;
        check_limit("the directory's length", directory.len() as u64, MAX_DIRECTORY_BYTES)?;
        // The page is never empty: it is only closed when another byte follows.
        self.close_page();
        let directory_offset = physical_length(stream_length);
        let trailer = Trailer {
            kind: self.kind,
            id: self.id,
            stream_length,
            directory_offset,
            directory_length: directory.len() as u32,
            directory_checksum: page_checksum(&self.id, DIRECTORY_PAGE, directory),
            file_length: directory_offset + directory.len() as u64 + TRAILER_BYTES,
        };
        let mut bytes = self.output;
        bytes.extend_from_slice(directory);
        bytes.extend_from_slice(&trailer.encode());
        Ok(bytes)
    }
}

/// CRC32C over the file's id, the page number (8 bytes) and the bytes.
fn page_checksum(id: &[u8; 16], page: u64, bytes: &[u8]) -> u32 {
    let seed = crc32c::crc32c_append(crc32c::crc32c(id), &page.to_le_bytes());
    crc32c::crc32c_append(seed, bytes)
}

fn check_checksum(
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
    Err(FormatError::ChecksumMismatch {
        what,
        position,
        got,
        expected: stored,
    })
}

fn check_magic(what: &'static str, got: [u8; 8]) -> Result<()> {
    if got == MAGIC {
        return Ok(());
    }
    Err(FormatError::BadMagic {
        what,
        got,
        expected: MAGIC,
    })
}

fn check_version(got: u16) -> Result<()> {
    if (OLDEST_VERSION..=VERSION).contains(&got) {
        return Ok(());
    }
    Err(FormatError::UnsupportedVersion {
        got,
        oldest: OLDEST_VERSION,
        newest: VERSION,
    })
}

fn check_limit(what: &'static str, got: u64, limit: u64) -> Result<()> {
    if got <= limit {
        return Ok(());
    }
    Err(FormatError::TooLong { what, got, limit })
}
