//! A second reader of logs, made from `docs/format.md`: slow and plain.

use lakemark_format::codec::ByteReader;
use lakemark_format::{LogCommit, LoggedCommit, log};

use crate::samples_updates::{FIRST, LOG};
use crate::{forge, forge_updates};

/// The commits, and whether a torn tail follows; `None` where the log is damaged.
pub fn read(bytes: &[u8]) -> Option<(Vec<LoggedCommit>, bool)> {
    if bytes.get(..68)? != forge_updates::log_header(&LOG, 6, 4, 0) {
        return None;
    }
    let (mut commits, mut at) = (Vec::new(), 68);
    while at < bytes.len() {
        let next = FIRST + commits.len() as u64;
        let begun = header(bytes, at);
        if begun.as_ref().is_some_and(|header| header.length > 1 << 30) {
            return None;
        }
        let Some(payload) = begun.as_ref().and_then(|header| header.payload(bytes, at)) else {
            let behind = begun.map_or(at + 1, |header| at + 20 + header.length);
            let later = (behind..bytes.len()).any(|place| follows(bytes, place, next, (place - at) as u64));
            return (!later).then_some((commits, true));
        };
        if begun?.sequence != next {
            return None;
        }
        let read = (next..).zip(decode(payload).filter(|commits| !commits.is_empty())?);
        commits.extend(read.map(|(sequence, commit)| LoggedCommit { sequence, commit }));
        at += 20 + payload.len();
    }
    Some((commits, false))
}

struct Header {
    length: usize,
    sequence: u64,
    checksum: u32,
}

impl Header {
    fn payload<'a>(&self, bytes: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let payload = bytes.get(at + 20..at + 20 + self.length)?;
        (forge::crc(&LOG, at as u64, payload) == self.checksum).then_some(payload)
    }
}

/// The good header of a frame at this place.
fn header(bytes: &[u8], at: usize) -> Option<Header> {
    let bytes = bytes.get(at..at + 20)?;
    let number = |from: usize| u32::from_le_bytes(*bytes[from..].first_chunk().unwrap());
    let sequence = u64::from(number(4)) | u64::from(number(8)) << 32;
    let good = forge::crc(&LOG, at as u64, &bytes[..16]) == number(16);
    good.then_some(Header { length: number(0) as usize, sequence, checksum: number(12) })
}

/// Whether a frame begins here that comes after the commit `next`, with so many bytes between.
fn follows(bytes: &[u8], at: usize, next: u64, between: u64) -> bool {
    header(bytes, at)
        .is_some_and(|header| header.length <= 1 << 30 && header.sequence >= next && header.sequence - next <= between)
}

fn decode(payload: &[u8]) -> Option<Vec<LogCommit>> {
    let mut input = ByteReader::new("a payload", payload);
    let mut commits = Vec::new();
    for _ in 0..input.varint().ok()? {
        let tag = input.string("a tag", 16_384).ok()?;
        let mut changes = Vec::new();
        for _ in 0..input.varint().ok()? {
            let operation = log::Operation::decode(input.u8().ok()?).ok()?;
            changes.push(log::LogChange { operation, rows: input.blob("rows", 1 << 30).ok()?.to_vec() });
        }
        commits.push(LogCommit { tag, changes });
    }
    input.finish().ok()?;
    Some(commits)
}
