//! Writing leaves of links: some of them behind each other, so that each has a page of its own, then the rows of these.

use lakemark_format::column;
use lakemark_format::error::FormatError;
use lakemark_format::key::Key;
use lakemark_format::leaf::CountedRows;
use lakemark_format::links::{LinkLeafBuilder, LinkLeafBytes};
use lakemark_format::segment::ValueBlockRef;

use super::packed::PAGE_PAYLOAD;
use super::{BuildError, SegmentMeta, SegmentWriter};

/// The rows of leaves are written when so many bytes of them have gathered.
const ROW_BYTES: usize = 1 << 18;

/// The leaves of a segment of links.
pub(super) struct LinkWriter {
    leaves: LinkLeafBuilder,
    /// Rows of leaves that are written, in the order of these.
    rows: Vec<Vec<u8>>,
    row_bytes: usize,
}

impl LinkWriter {
    pub(super) fn of(meta: &SegmentMeta) -> Result<Self, BuildError> {
        Ok(Self { leaves: LinkLeafBuilder::new(meta.key_type.clone())?, rows: Vec::new(), row_bytes: 0 })
    }
}

impl SegmentWriter<'_> {
    /// Takes the link whose rows are gathered.
    pub(super) fn end_link(&mut self, key: Key) -> Result<(), BuildError> {
        let CountedRows { rows, rows_in } = self.held(false)?;
        self.max_key = Some(key.clone());
        self.value_count += 1;
        let Some(writer) = &mut self.link_writer else { return Ok(()) };
        let leaves = writer.leaves.push(key, CountedRows { rows, rows_in });
        leaves.map_err(|error| self.link_error(error))?.into_iter().try_for_each(|leaf| self.push_links(leaf))
    }

    fn push_links(&mut self, leaf: LinkLeafBytes) -> Result<(), BuildError> {
        let LinkLeafBytes { first_key, links, rows, bytes, row_bytes } = leaf;
        let left = self.left_in_page();
        // A leaf of several pages begins with one, too.
        if bytes.len() > left && left < PAGE_PAYLOAD {
            self.container.push(&vec![0; left]);
        }
        self.blocks.push(ValueBlockRef {
            first_key,
            offset: self.container.offset(),
            length: bytes.len() as u32,
            values: links,
            rows,
            // Known when the rows are written.
            postings_offset: 0,
            postings_length: 0,
            is_inner: false,
        });
        self.container.push(&bytes);
        self.posting_start = self.container.offset();
        self.drain_if_full()?;
        let Some(writer) = &mut self.link_writer else { return Ok(()) };
        writer.row_bytes += row_bytes.len();
        writer.rows.push(row_bytes);
        if writer.row_bytes >= ROW_BYTES { self.push_link_rows() } else { Ok(()) }
    }

    /// Writes the rows of the last leaves.
    fn push_link_rows(&mut self) -> Result<(), BuildError> {
        let Some(writer) = &mut self.link_writer else { return Ok(()) };
        let rows = std::mem::take(&mut writer.rows);
        writer.row_bytes = 0;
        let first = self.blocks.len().saturating_sub(rows.len());
        for (block, rows) in self.blocks.iter_mut().skip(first).zip(rows) {
            block.postings_offset = self.container.offset();
            block.postings_length = rows.len() as u64;
            self.container.push(&rows);
        }
        self.posting_start = self.container.offset();
        self.drain_if_full()?;
        Ok(())
    }

    /// Writes the last leaves and their rows; gives the predicates.
    pub(super) fn end_links(&mut self) -> Result<Vec<Option<Key>>, BuildError> {
        loop {
            let Some(writer) = &mut self.link_writer else { return Ok(Vec::new()) };
            match writer.leaves.finish()? {
                Some(leaf) => self.push_links(leaf)?,
                None => break,
            }
        }
        self.push_link_rows()?;
        self.block_start = self.container.offset();
        Ok(self.link_writer.as_mut().map(|writer| writer.leaves.take_predicates()).unwrap_or_default())
    }

    /// Says which columns have too many predicates.
    fn link_error(&self, error: FormatError) -> BuildError {
        match error {
            FormatError::TooLong { what: "the predicates of links", limit, .. } => {
                BuildError::TooManyPredicates { column: column::display(&self.column).into_owned(), limit }
            }
            error => error.into(),
        }
    }
}
