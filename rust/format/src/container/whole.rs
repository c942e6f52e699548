//! Files of which the directory is everything.

use super::{ContentKind, HEADER_BYTES, open_tail, physical_range};
use crate::codec::ByteReader;
use crate::error::{FormatError, Result};

/// A file whose stream is the header alone.
pub(crate) struct WholeFile<'a> {
    /// The file's id.
    pub id: [u8; 16],
    /// Its checked directory.
    pub directory: &'a [u8],
}

/// Opens a file of this kind that is given whole and whose stream is the header alone.
pub(crate) fn open_whole(bytes: &[u8], kind: ContentKind) -> Result<WholeFile<'_>> {
    let opened = open_tail(bytes, bytes.len() as u64)?;
    let trailer = opened.trailer;
    if trailer.kind != kind {
        return Err(FormatError::invalid("the content kind of the file", trailer.kind.code(), kind.code()));
    }
    if trailer.stream_length != HEADER_BYTES {
        return Err(FormatError::invalid("the stream's length", trailer.stream_length, HEADER_BYTES));
    }
    let header = physical_range(0..HEADER_BYTES, &trailer);
    let header = ByteReader::new("the header page", bytes).bytes((header.end - header.start) as usize)?;
    trailer.check_header(header)?;
    let (got, expected) = (bytes.len() as u64, trailer.file_length);
    let directory = opened.directory.ok_or(FormatError::Truncated { what: "the file", got, expected })?;
    Ok(WholeFile { id: trailer.id, directory })
}
