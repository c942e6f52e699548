//! Makes a container or a log of bytes that are nearly one, so that fuzzing gets behind the checksums.
#![allow(dead_code, reason = "each target takes one of them")]

use lakemark_format::container::{CHECKSUM_BYTES, DIRECTORY_PAGE, PAGE_BYTES, TRAILER_BYTES};
use lakemark_format::log::{LOG_START, log_header};
use lakemark_format::{ContainerWriter, ContentKind, Trailer};
use twox_hash::XxHash64;

/// Visits the bytes as they are, with checksums and lengths put right, and as the body of a file of this kind.
pub fn each_form(bytes: &[u8], kind: ContentKind, visit: impl Fn(&[u8])) {
    visit(bytes);
    if let Some(bytes) = repair(bytes) {
        visit(&bytes);
    }
    if let Ok(bytes) = ContainerWriter::new(kind, [7; 16]).finish(bytes) {
        visit(&bytes);
    }
}

/// The bytes with good checksums and a good trailer; `None` where too few are there.
///
/// Id, content kind and the directory's length are taken from where a trailer has them.
pub fn repair(bytes: &[u8]) -> Option<Vec<u8>> {
    let (front, tail) = bytes.split_last_chunk::<{ TRAILER_BYTES as usize }>()?;
    let id: [u8; 16] = *tail[32..].first_chunk()?;
    let directory_length = u32::from_le_bytes(*tail[24..].first_chunk()?);
    let kind = match tail[48] {
        2 => ContentKind::Edit,
        3 => ContentKind::PositionMap,
        5 => ContentKind::Checkpoint,
        6 => ContentKind::FilePart,
        7 => ContentKind::PathPage,
        _ => ContentKind::Segment,
    };
    let split = front.len() - (directory_length as usize).min(front.len());
    let mut out = front[..split].to_vec();
    let mut stream_length = 0;
    for (number, page) in out.chunks_mut(PAGE_BYTES as usize).enumerate() {
        let (payload, checksum) = page.split_last_chunk_mut::<{ CHECKSUM_BYTES as usize }>()?;
        *checksum = crc(&id, number as u64, payload).to_le_bytes();
        stream_length += payload.len() as u64;
    }
    let directory = &front[split..];
    out.extend_from_slice(directory);
    let trailer = Trailer {
        kind,
        id,
        stream_length,
        directory_offset: split as u64,
        directory_length: directory.len() as u32,
        directory_checksum: crc(&id, DIRECTORY_PAGE, directory),
        file_length: bytes.len() as u64,
    };
    out.extend_from_slice(&trailer.encode());
    Some(out)
}

/// The piece of a checkpoint with this directory, under its name.
pub fn piece(directory: &[u8], kind: ContentKind) -> Vec<u8> {
    let seed = u64::from(kind.code());
    let hash = |seed| XxHash64::oneshot(seed, directory).to_le_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&hash(seed));
    id[8..].copy_from_slice(&hash(seed + 256));
    ContainerWriter::new(kind, id).finish(directory).expect("an input is shorter than the longest directory")
}

/// The bytes before the trailer that are as long as the trailer says a directory is.
pub fn directory(bytes: &[u8]) -> Option<&[u8]> {
    let (front, tail) = bytes.split_last_chunk::<{ TRAILER_BYTES as usize }>()?;
    let length = u32::from_le_bytes(*tail[24..].first_chunk()?);
    front.get(front.len().checked_sub(length as usize)?..)
}

/// A log with the frames that stand behind the first 68 bytes, as far as their lengths lead, with good checksums.
///
/// Frames have the lengths that are there, up to 4095 bytes. Their sequence numbers are those that they must have if the first
/// byte of a payload is its number of commits. A sequence whose top bit is set is left, and the payload's checksum with it.
pub fn repair_log(id: &[u8; 16], first: u64, bytes: &[u8]) -> Vec<u8> {
    const HEADER: usize = 20;
    let mut out = log_header(*id);
    let (mut rest, mut sequence) = (bytes.get(LOG_START as usize..).unwrap_or_default(), first);
    while let Some((header, behind)) = rest.split_at_checked(HEADER) {
        let length = usize::from(u16::from_le_bytes([header[0], header[1]])) % 4096;
        let (payload, behind) = behind.split_at(length.min(behind.len()));
        let at = out.len() as u64;
        let mut fields = header[..16].to_vec();
        fields[..4].copy_from_slice(&(length as u32).to_le_bytes());
        if header[11] < 0x80 {
            fields[4..12].copy_from_slice(&sequence.to_le_bytes());
            fields[12..].copy_from_slice(&crc(id, at, payload).to_le_bytes());
        }
        out.extend_from_slice(&fields);
        out.extend_from_slice(&crc(id, at, &fields).to_le_bytes());
        out.extend_from_slice(payload);
        sequence = sequence.saturating_add(payload.first().copied().unwrap_or_default().into());
        rest = behind;
    }
    out.extend_from_slice(rest);
    out
}

fn crc(id: &[u8; 16], page: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c(&[id.as_slice(), &page.to_le_bytes(), bytes].concat())
}
