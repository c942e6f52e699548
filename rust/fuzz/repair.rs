//! Makes a container of bytes that are nearly one, so that fuzzing gets behind the checksums.

use lakemark_format::container::{CHECKSUM_BYTES, DIRECTORY_PAGE, PAGE_BYTES, TRAILER_BYTES};
use lakemark_format::{ContentKind, Trailer};

/// The bytes with good checksums and a good trailer; `None` where too few are there.
///
/// Id, content kind and the directory's length are taken from where a trailer has them.
pub fn repair(bytes: &[u8]) -> Option<Vec<u8>> {
    let (front, tail) = bytes.split_last_chunk::<{ TRAILER_BYTES as usize }>()?;
    let id: [u8; 16] = *tail[32..].first_chunk()?;
    let directory_length = u32::from_le_bytes(*tail[24..].first_chunk()?);
    let kind = match tail[48] {
        2 => ContentKind::Manifest,
        3 => ContentKind::Resolution,
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

fn crc(id: &[u8; 16], page: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c(&[id.as_slice(), &page.to_le_bytes(), bytes].concat())
}
