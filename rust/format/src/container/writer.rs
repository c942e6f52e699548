//! Writing a container, page by page.

use super::{
    ContentKind, DIRECTORY_PAGE, Header, MAX_DIRECTORY_BYTES, MAX_STREAM_BYTES, PAGE_BYTES, PAGE_PAYLOAD,
    TRAILER_BYTES, Trailer, check_limit, page_checksum, physical_length,
};
use crate::error::Result;

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
/// assert_eq!(&*read_logical(pages, start..end, &opened.trailer)?, b"payload");
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
    /// A writer whose stream starts with the header, so that the first [`offset`](Self::offset) is [`HEADER_BYTES`](super::HEADER_BYTES).
    pub fn new(kind: ContentKind, id: [u8; 16]) -> Self {
        let page = Vec::with_capacity(PAGE_BYTES as usize);
        let mut writer = Self { kind, id, page, pages: 0, output: Vec::new() };
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
