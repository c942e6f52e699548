//! Where a range of the stream is in the file, and reading the stream, its header first, back out of checked pages.

use std::borrow::Cow;
use std::ops::Range;

use super::{CHECKSUM_BYTES, HEADER_BYTES, Header, PAGE_BYTES, PAGE_PAYLOAD, Trailer, check_checksum};
use crate::error::{FormatError, Result};

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
/// Checks every page that the range touches. Bytes of one page are not copied.
pub fn read_logical<'a>(page_bytes: &'a [u8], logical: Range<u64>, trailer: &Trailer) -> Result<Cow<'a, [u8]>> {
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
        return Err(FormatError::Truncated { what: "a range of pages", got: page_bytes.len() as u64, expected });
    }
    let first = logical.start / PAGE_PAYLOAD;
    let skip = (logical.start % PAGE_PAYLOAD) as usize;
    let length = (logical.end - logical.start) as usize;
    let mut pages = (first..).zip(page_bytes.chunks(PAGE_BYTES as usize));
    if page_bytes.len() as u64 <= PAGE_BYTES {
        let payload = pages.next().map_or(Ok(&[][..]), |page| payload_of(page, trailer))?;
        return Ok(Cow::Borrowed(payload.get(skip..).and_then(|rest| rest.get(..length)).unwrap_or_default()));
    }
    let mut out = Vec::with_capacity(page_bytes.len());
    for page in pages {
        out.extend_from_slice(payload_of(page, trailer)?);
    }
    out.drain(..skip.min(out.len()));
    out.truncate(length);
    Ok(Cow::Owned(out))
}

impl Trailer {
    /// Reads and compares the header in `page_bytes`, the bytes of `physical_range(0..HEADER_BYTES)`.
    pub fn check_header(&self, page_bytes: &[u8]) -> Result<()> {
        let header = Header::decode(&read_logical(page_bytes, 0..HEADER_BYTES, self)?)?;
        if header.kind != self.kind {
            return Err(FormatError::invalid("the header's content kind", header.kind.code(), self.kind.code()));
        }
        if header.id != self.id {
            return Err(FormatError::invalid("the header's id", "another", "the id in the trailer"));
        }
        Ok(())
    }
}

/// The bytes of a page, checked.
fn payload_of<'a>((number, page): (u64, &'a [u8]), trailer: &Trailer) -> Result<&'a [u8]> {
    let Some((payload, stored)) = page.split_last_chunk::<{ CHECKSUM_BYTES as usize }>() else {
        return Err(FormatError::Truncated { what: "a page", got: page.len() as u64, expected: CHECKSUM_BYTES });
    };
    check_checksum("page", number, u32::from_le_bytes(*stored), &trailer.id, number, payload)?;
    Ok(payload)
}
