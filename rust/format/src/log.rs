//! The log of updates (`.lml`): a header, then frames, each written and synced at once.
//!
//! ```text
//! | header (64 bytes) + CRC32C | frame | frame | …
//! frame := length u32, sequence u64, CRC32C of payload, CRC32C of these 16 bytes, payload
//! payload := number of commits, then for each: a tag, the number of changes, then for each: operation u8, length, rows
//! ```
//!
//! A frame holds the commits that were synced together; its sequence is that of its first commit. Checksums start from the
//! log's id and the frame's place, so that bytes of another log, or of another place, never pass. Between two frames there
//! was always a sync. So what is not a good frame is either the end of what a writer that died was writing (a *torn tail*,
//! which nobody was told of), or damage, if a good frame stands anywhere behind it.

use crate::codec::{Reader, Writer};
use crate::container::{CHECKSUM_BYTES, ContentKind, HEADER_BYTES, Header, page_checksum};
use crate::error::{FormatError, Result};
use crate::manifest::MAX_NAME_LENGTH;

/// Where the first frame begins.
pub const LOG_START: u64 = HEADER_BYTES + CHECKSUM_BYTES;
/// Bytes of a frame before its payload.
const FRAME_HEADER: usize = 4 + 8 + 4 + 4;
/// The longest payload of a frame.
pub const MAX_FRAME_BYTES: usize = 1 << 30;

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Adds rows whose keys were not there.
    Insert,
    /// Adds rows, in the place of rows with their keys.
    Upsert,
    /// Sets some columns of the rows with these keys.
    Update,
    /// Removes the rows with these keys.
    Delete,
}

impl Operation {
    /// The operation's byte in files.
    pub fn code(self) -> u8 {
        match self {
            Self::Insert => 1,
            Self::Upsert => 2,
            Self::Update => 3,
            Self::Delete => 4,
        }
    }

    /// The operation of a byte.
    pub fn decode(code: u8) -> Result<Self> {
        match code {
            1 => Ok(Self::Insert),
            2 => Ok(Self::Upsert),
            3 => Ok(Self::Update),
            4 => Ok(Self::Delete),
            other => Err(FormatError::invalid("an operation", other, "1 to 4")),
        }
    }

    /// The name that people know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Upsert => "upsert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Changes that take effect together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogCommit {
    /// What the caller calls it, so that it is not made twice; empty if nothing.
    pub tag: String,
    /// The changes, applied one after the other.
    pub changes: Vec<LogChange>,
}

/// One operation on some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChange {
    /// What is done.
    pub operation: Operation,
    /// The rows, as an Arrow IPC stream; opaque to the format.
    pub rows: Vec<u8>,
}

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogRead {
    /// Commits with their sequence numbers, in order.
    pub commits: Vec<(u64, LogCommit)>,
    /// Where the last good frame ends.
    pub end: u64,
    /// Whether bytes follow it that a writer left behind unfinished.
    pub torn: bool,
}

/// The first bytes of a log.
pub fn log_header(id: [u8; 16]) -> Vec<u8> {
    let mut bytes = Header { kind: ContentKind::Log, id }.encode();
    let checksum = page_checksum(&id, 0, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The frame at `offset` that holds these commits, the first of which is number `sequence`.
pub fn log_frame(id: &[u8; 16], offset: u64, sequence: u64, commits: &[LogCommit]) -> Result<Vec<u8>> {
    let mut payload = Writer::new();
    payload.length(commits.len());
    for commit in commits {
        payload.string("the tag of a commit", &commit.tag, MAX_NAME_LENGTH)?;
        payload.length(commit.changes.len());
        for change in &commit.changes {
            payload.u8(change.operation.code());
            payload.blob("the rows of a change", &change.rows, MAX_FRAME_BYTES)?;
        }
    }
    let payload = payload.into_vec();
    if payload.len() > MAX_FRAME_BYTES {
        let (got, limit) = (payload.len() as u64, MAX_FRAME_BYTES as u64);
        return Err(FormatError::TooLong { what: "a frame of the log", got, limit });
    }
    let mut out = Writer::new();
    out.u32(payload.len() as u32);
    out.u64(sequence);
    out.u32(page_checksum(id, offset, &payload));
    let checksum = page_checksum(id, offset, out.as_slice());
    out.u32(checksum);
    out.bytes(&payload);
    Ok(out.into_vec())
}

/// Checks the first bytes of a log.
///
/// # Errors
/// Bytes that are not the header of the log `id`.
pub fn check_log_header(id: &[u8; 16], bytes: &[u8]) -> Result<()> {
    let mut input = Reader::new("the header of the log", bytes);
    let header = input.bytes(HEADER_BYTES as usize)?;
    let stored = input.u32()?;
    let found = Header::decode(header)?;
    if found.kind != ContentKind::Log {
        return Err(FormatError::invalid("the content kind of a log", found.kind.code(), ContentKind::Log.code()));
    }
    let got = page_checksum(id, 0, header);
    if got != stored || found.id != *id {
        return Err(FormatError::ChecksumMismatch {
            what: "the header of the log",
            position: 0,
            got,
            expected: stored,
        });
    }
    Ok(())
}

/// Reads the frames in `bytes`, which begin at `offset` of the log and whose first commit is number `sequence`.
///
/// # Errors
/// Damage before the last good frame, or commits that are not in order.
pub fn read_log(id: &[u8; 16], offset: u64, sequence: u64, bytes: &[u8]) -> Result<LogRead> {
    let mut read = LogRead { end: offset, ..LogRead::default() };
    let (mut rest, mut next) = (bytes, sequence);
    while !rest.is_empty() {
        let Some(frame) = Frame::at(id, read.end, rest) else {
            if let Some(later) = frame_behind(id, read.end, rest) {
                let got = format_args!("damaged bytes before the frame at {later}").to_string();
                return Err(FormatError::invalid("the log", got, "good frames up to its end"));
            }
            read.torn = true;
            break;
        };
        if frame.sequence != next {
            return Err(FormatError::invalid("the sequence of a frame", frame.sequence, next));
        }
        for commit in commits(frame.payload)? {
            read.commits.push((next, commit));
            next += 1;
        }
        rest = rest.get(frame.length()..).unwrap_or_default();
        read.end += frame.length() as u64;
    }
    Ok(read)
}

/// A frame whose checksums are good.
struct Frame<'a> {
    sequence: u64,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    fn at(id: &[u8; 16], offset: u64, bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(FRAME_HEADER)?;
        let (told, mut stored) =
            (header.get(..FRAME_HEADER - 4)?, Reader::new("a frame", header.get(FRAME_HEADER - 4..)?));
        if stored.u32().ok()? != page_checksum(id, offset, told) {
            return None;
        }
        let mut input = Reader::new("a frame", told);
        let (length, sequence, checksum) = (input.u32().ok()?, input.u64().ok()?, input.u32().ok()?);
        let payload = rest.get(..length as usize)?;
        (page_checksum(id, offset, payload) == checksum).then_some(Self { sequence, payload })
    }

    fn length(&self) -> usize {
        FRAME_HEADER + self.payload.len()
    }
}

/// Where a good frame stands behind bytes that are none.
fn frame_behind(id: &[u8; 16], offset: u64, bytes: &[u8]) -> Option<u64> {
    let places = 1..bytes.len();
    places
        .map(|place| (offset + place as u64, bytes.get(place..).unwrap_or_default()))
        .find(|(offset, rest)| Frame::at(id, *offset, rest).is_some())
        .map(|(offset, _)| offset)
}

fn commits(payload: &[u8]) -> Result<Vec<LogCommit>> {
    let mut input = Reader::new("a frame of the log", payload);
    let count = input.count("the number of commits", 2)?;
    let mut commits = Vec::with_capacity(count);
    for _ in 0..count {
        let tag = input.string("the tag of a commit", MAX_NAME_LENGTH)?;
        let count = input.count("the number of changes", 2)?;
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let operation = Operation::decode(input.u8()?)?;
            changes.push(LogChange { operation, rows: input.blob("the rows of a change", MAX_FRAME_BYTES)?.to_vec() });
        }
        commits.push(LogCommit { tag, changes });
    }
    input.finish()?;
    Ok(commits)
}
