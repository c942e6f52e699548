//! The log of updates (`.lml`): a header, then frames, each written and synced at once.
//!
//! ```text
//! | header (64 bytes) + CRC32C | frame | frame | …
//! frame := length u32, sequence u64, CRC32C of payload, CRC32C of these 16 bytes, payload
//! payload := number of commits, then for each: a tag, the number of changes, then for each: operation u8, length, rows
//! ```
//!
//! A frame holds the commits that were synced together; its sequence is that of its first commit. Checksums start from
//! the log's id and the frame's place, so that bytes of another log, or of another place, never pass. Between two frames
//! there was always a sync. So bytes that are no good frame are a *torn tail* or damage. A torn tail is the end of what a
//! writer was writing when it died. No call had returned for it. If the header of another frame stands anywhere behind
//! the bytes, they are damage: that frame was begun, so the one before it had been finished. Damage to the very last frame
//! looks like a torn tail.
//!
//! Updates are data: their errors ([`FormatError::DamagedUpdates`]) never say to delete anything.
//!
//! # Written and read
//!
//! A frame is appended and synced, and whoever committed has an answer after that.
//!
//! ```
//! use lakemark_format::log::{LOG_START, check_log_header, log_frame, log_header, read_log};
//! use lakemark_format::{LogChange, LogCommit, LoggedCommit, Operation};
//!
//! let id = *b"a-random-new-id!";
//! let mut file = log_header(id);
//! let change = LogChange { operation: Operation::Upsert, rows: b"an Arrow IPC stream".to_vec() };
//! let commit = LogCommit { tag: "load 7".into(), changes: vec![change] };
//! file.extend(log_frame(&id, file.len() as u64, 1, &[commit.clone()])?);
//! let torn = log_frame(&id, file.len() as u64, 2, &[commit.clone()])?;
//! let end = file.len() as u64;
//! file.extend(&torn[..torn.len() - 1]);
//!
//! check_log_header(&id, &file)?;
//! let log = read_log(&id, LOG_START, 1, &file[LOG_START as usize..])?;
//! assert_eq!((log.commits, log.end, log.torn), (vec![LoggedCommit { sequence: 1, commit }], end, true));
//! # Ok::<(), lakemark_format::FormatError>(())
//! ```

use crate::codec::{ByteReader, ByteWriter};
use crate::container::{
    CHECKSUM_BYTES, ContentKind, HEADER_BYTES, Header, check_checksum, check_magic, check_version, page_checksum,
};
use crate::error::{FormatError, Result};
use crate::limits::MAX_NAME_LENGTH;

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

    /// The operation of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Insert, Self::Upsert, Self::Update, Self::Delete].into_iter().find(|operation| operation.name() == name)
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

/// A commit as a log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCommit {
    /// Its sequence number.
    pub sequence: u64,
    /// The commit.
    pub commit: LogCommit,
}

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogRead {
    /// Commits with their sequence numbers, in order.
    pub commits: Vec<LoggedCommit>,
    /// Where the last good frame begins; its end if there is none.
    pub last: u64,
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

/// The frame at `offset` that holds these commits, one or more, the first of which is number `sequence`.
///
/// # Errors
/// [`FormatError::TooLarge`] where the commits take more than a frame can hold.
pub fn log_frame(id: &[u8; 16], offset: u64, sequence: u64, commits: &[LogCommit]) -> Result<Vec<u8>> {
    check_sequences(sequence, commits.len())?;
    let mut payload = ByteWriter::new();
    payload.length(commits.len());
    for commit in commits {
        check_size("the tag of a commit", commit.tag.len(), MAX_NAME_LENGTH)?;
        payload.string("the tag of a commit", &commit.tag, MAX_NAME_LENGTH)?;
        payload.length(commit.changes.len());
        for change in &commit.changes {
            payload.u8(change.operation.code());
            check_size("the rows of a change", change.rows.len(), MAX_FRAME_BYTES)?;
            payload.blob("the rows of a change", &change.rows, MAX_FRAME_BYTES)?;
        }
    }
    check_size("a frame of the log", payload.len(), MAX_FRAME_BYTES)?;
    let payload = payload.into_vec();
    let mut out = ByteWriter::new();
    out.u32(payload.len() as u32);
    out.u64(sequence);
    out.u32(page_checksum(id, offset, &payload));
    let checksum = page_checksum(id, offset, out.as_slice());
    out.u32(checksum);
    out.bytes(&payload);
    Ok(out.into_vec())
}

fn check_size(what: &'static str, got: usize, limit: usize) -> Result<()> {
    if got <= limit {
        return Ok(());
    }
    Err(FormatError::TooLarge { what, got: got as u64, limit: limit as u64 })
}

/// Checks that there are commits, and a number for the one after them.
fn check_sequences(first: u64, commits: usize) -> Result<()> {
    if commits == 0 || first.checked_add(commits as u64).is_none() {
        let got = format_args!("{commits} from number {first} on").to_string();
        return Err(FormatError::invalid("the commits of a frame", got, "at least one, and none numbered 2^64 - 1"));
    }
    Ok(())
}

/// Checks the first bytes of a log.
///
/// # Errors
/// [`FormatError::DamagedUpdates`] for bytes that are not the header of the log `id`.
pub fn check_log_header(id: &[u8; 16], bytes: &[u8]) -> Result<()> {
    check_header(id, bytes).map_err(|error| error.of_updates("the log of updates"))
}

fn check_header(id: &[u8; 16], bytes: &[u8]) -> Result<()> {
    let mut input = ByteReader::new("the header", bytes);
    let header = input.bytes(HEADER_BYTES as usize)?;
    let stored = input.u32()?;
    let mut start = ByteReader::new("the header", header);
    check_magic("the header", start.array()?)?;
    check_version(start.u16()?)?;
    check_checksum("the header at", 0, stored, id, 0, header)?;
    let found = Header::decode(header)?;
    if found.kind != ContentKind::Log {
        return Err(FormatError::invalid("the content kind", found.kind.code(), ContentKind::Log.code()));
    }
    if found.id != *id {
        return Err(FormatError::invalid("the header's id", "another", "the id that the manifest names"));
    }
    Ok(())
}

/// Reads the frames in `bytes`, which begin at `offset` of the log and whose first commit is number `sequence`.
///
/// # Errors
/// [`FormatError::DamagedUpdates`] for damage before the last frame, and for commits that are not in order.
pub fn read_log(id: &[u8; 16], offset: u64, sequence: u64, bytes: &[u8]) -> Result<LogRead> {
    let mut read = LogRead { last: offset, end: offset, ..LogRead::default() };
    let (mut rest, mut next) = (bytes, sequence);
    while !rest.is_empty() {
        let at = read.end;
        let damaged = |error: FormatError| error.of_updates(format_args!("the log of updates, from byte {at} on"));
        let Some(LogFrame { header, payload }) = frame(id, at, rest).map_err(damaged)? else {
            if let Some(later) = frame_behind(id, at, next, rest) {
                let expected = format_args!("a good one, as another begins at byte {later}");
                return Err(damaged(FormatError::invalid("a frame", "damaged bytes", expected)));
            }
            read.torn = true;
            break;
        };
        if header.sequence != next {
            return Err(damaged(FormatError::invalid("the sequence of a frame", header.sequence, next)));
        }
        next = take_commits(payload, next, &mut read.commits).map_err(damaged)?;
        rest = rest.get(header.end()..).unwrap_or_default();
        read.last = at;
        read.end = at.saturating_add(header.end() as u64);
    }
    Ok(read)
}

/// A frame whose checksums are good.
struct LogFrame<'a> {
    header: FrameHeader<'a>,
    payload: &'a [u8],
}

/// The frame that `bytes` begin with; `None` where a checksum is wrong or bytes are missing.
fn frame<'a>(id: &[u8; 16], at: u64, bytes: &'a [u8]) -> Result<Option<LogFrame<'a>>> {
    let Some(header) = FrameHeader::read(bytes).filter(|header| header.is_good(id, at)) else {
        return Ok(None);
    };
    if header.length > MAX_FRAME_BYTES {
        let (got, limit) = (header.length as u64, MAX_FRAME_BYTES as u64);
        return Err(FormatError::TooLong { what: "the payload of a frame", got, limit });
    }
    let payload = bytes.get(FRAME_HEADER..header.end());
    let good = payload.filter(|payload| page_checksum(id, at, payload) == header.payload_checksum);
    Ok(good.map(|payload| LogFrame { header, payload }))
}

/// What stands before the payload of a frame.
struct FrameHeader<'a> {
    /// Bytes of the payload.
    length: usize,
    sequence: u64,
    payload_checksum: u32,
    /// The bytes that the header's own checksum is of.
    checked: &'a [u8],
    checksum: u32,
}

impl<'a> FrameHeader<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (checked, stored) = bytes.get(..FRAME_HEADER)?.split_last_chunk()?;
        let mut input = ByteReader::new("a frame", checked);
        Some(Self {
            length: input.u32().ok()? as usize,
            sequence: input.u64().ok()?,
            payload_checksum: input.u32().ok()?,
            checked,
            checksum: u32::from_le_bytes(*stored),
        })
    }

    fn is_good(&self, id: &[u8; 16], at: u64) -> bool {
        page_checksum(id, at, self.checked) == self.checksum
    }

    /// Where the frame ends, from its first byte on.
    fn end(&self) -> usize {
        FRAME_HEADER.saturating_add(self.length)
    }
}

/// Where another frame begins behind the bytes at `at`, which are no good frame and would hold the commit `next`.
///
/// Its header is enough, as nothing but a frame of this log has one. The checksum is good for this place, and no more commits
/// are before it than the bytes before it could hold. Payloads are not read: the time is linear in the bytes.
fn frame_behind(id: &[u8; 16], at: u64, next: u64, bytes: &[u8]) -> Option<u64> {
    // A frame whose header is good was written up to its end or not to its end: what it holds is not searched.
    let first = FrameHeader::read(bytes).filter(|header| header.is_good(id, at)).map_or(1, |header| header.end());
    (first..bytes.len()).find_map(|distance| {
        let header = FrameHeader::read(bytes.get(distance..)?)?;
        let place = at.saturating_add(distance as u64);
        let commits = header.sequence.checked_sub(next)?;
        let fits = commits <= distance as u64 && header.length <= MAX_FRAME_BYTES;
        (fits && header.is_good(id, place)).then_some(place)
    })
}

/// Appends the commits of a frame, the first of which is number `sequence`; gives the number of the commit after them.
fn take_commits(payload: &[u8], sequence: u64, commits: &mut Vec<LoggedCommit>) -> Result<u64> {
    let mut input = ByteReader::new("a frame", payload);
    let count = input.count("the number of commits", 2)?;
    check_sequences(sequence, count)?;
    commits.reserve(count);
    for number in (sequence..).take(count) {
        let tag = input.string("the tag of a commit", MAX_NAME_LENGTH)?;
        let count = input.count("the number of changes", 2)?;
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let operation = Operation::decode(input.u8()?)?;
            changes.push(LogChange { operation, rows: input.blob("the rows of a change", MAX_FRAME_BYTES)?.to_vec() });
        }
        commits.push(LoggedCommit { sequence: number, commit: LogCommit { tag, changes } });
    }
    input.finish()?;
    Ok(sequence.saturating_add(count as u64))
}
