//! Writing the leaves of a packed tree: each fills a page, so that a lookup is one read of it. Inner pages follow where they are many.

use std::borrow::Cow;

use lakemark_format::container;
use lakemark_format::inner_page::InnerPage;
use lakemark_format::key::Key;
use lakemark_format::leaf::{
    CountedRows, KeyRows, LeafBuilder, LeafBytes, LeafEntry, MAX_INLINE_POSTING, MAX_LISTED_ROWS,
};
use lakemark_format::posting;
use lakemark_format::riding::RidingRows;
use lakemark_format::segment::ValueBlockRef;

use super::{BuildError, SegmentMeta, SegmentWriter};

/// Bytes of the stream in a page.
pub(super) const PAGE_PAYLOAD: usize = container::PAGE_PAYLOAD as usize;
/// A leaf goes on in the page that is begun if so much of it is left.
const MIN_ROOM: usize = PAGE_PAYLOAD / 2;

/// The leaves of a segment.
pub(super) fn leaves_of(meta: &SegmentMeta, universe: u32) -> LeafBuilder {
    let types = meta.riding.iter().map(|column| column.key_type.clone()).collect();
    LeafBuilder::with_riding(meta.key_type.clone(), universe, types)
}

impl SegmentWriter<'_> {
    /// Takes the key whose rows are gathered.
    pub(super) fn end_packed_value(&mut self, key: Key) -> Result<(), BuildError> {
        let riding = self.riding.as_mut().map(RidingRows::take).unwrap_or_default();
        let CountedRows { rows, rows_in } = match self.listed() {
            Some(listed) => listed,
            None => self.held(riding.rides())?,
        };
        self.max_key = Some(key.clone());
        self.value_count += 1;
        let room = self.room();
        let Some(builder) = &mut self.leaf_builder else { return Ok(()) };
        let leaves = builder.push_riding(LeafEntry { key, rows, rows_in }, riding, room)?;
        leaves.into_iter().try_for_each(|leaf| self.push_leaf(leaf))
    }

    /// The rows of the current key, if they are few and do not follow each other.
    fn listed(&mut self) -> Option<CountedRows<'static>> {
        let (first, last) = (*self.pending.first()?, *self.pending.last()?);
        let rows = self.pending.len() as u32;
        if self.posting_rows > 0 || self.pending.len() > MAX_LISTED_ROWS || last - first + 1 == rows {
            return None;
        }
        let rows_in = KeyRows::Listed(self.pending.clone());
        self.pending.clear();
        Some(CountedRows { rows, rows_in })
    }

    /// Where the rows of the current key go; long postings are written at once, but for those of a key that rides.
    pub(super) fn held(&mut self, rides: bool) -> Result<CountedRows<'static>, BuildError> {
        if self.posting_rows == 0 {
            let rows = self.pending.len() as u32;
            if let (Some(&first), Some(&last)) = (self.pending.first(), self.pending.last())
                && last - first + 1 == rows
            {
                self.pending.clear();
                return Ok(CountedRows { rows, rows_in: KeyRows::Run(first) });
            }
            self.encoded.clear();
            posting::encode(&self.pending, self.universe, &mut self.encoded);
            if rides || self.encoded.len() <= MAX_INLINE_POSTING {
                self.pending.clear();
                let rows_in = KeyRows::Inline(Cow::Owned(self.encoded.clone()));
                return Ok(CountedRows { rows, rows_in });
            }
        }
        let posting = self.end_posting()?;
        self.long_end = self.container.offset();
        let rows_in = KeyRows::Long { offset: posting.offset, length: posting.length };
        Ok(CountedRows { rows: posting.rows, rows_in })
    }

    /// Bytes that the leaf may have to lie in one page.
    fn room(&self) -> usize {
        let left = self.left_in_page();
        if left >= MIN_ROOM { left } else { PAGE_PAYLOAD }
    }

    pub(super) fn left_in_page(&self) -> usize {
        PAGE_PAYLOAD - (self.container.offset() % PAGE_PAYLOAD as u64) as usize
    }

    fn push_leaf(&mut self, leaf: LeafBytes) -> Result<(), BuildError> {
        let LeafBytes { first_key, keys, rows, bytes } = leaf;
        let left = self.left_in_page();
        let postings_length = self.long_end.saturating_sub(self.block_start);
        if bytes.len() > left && bytes.len() <= PAGE_PAYLOAD {
            self.container.push(&vec![0; left]);
        }
        self.blocks.push(ValueBlockRef {
            first_key,
            offset: self.container.offset(),
            length: bytes.len() as u32,
            values: keys,
            rows,
            postings_offset: self.block_start,
            postings_length,
            is_inner: false,
        });
        self.container.push(&bytes);
        self.block_start = self.container.offset();
        self.posting_start = self.block_start;
        self.long_end = self.block_start;
        self.drain_if_full()?;
        Ok(())
    }

    /// Writes the last leaves.
    pub(super) fn end_leaves(&mut self) -> Result<(), BuildError> {
        loop {
            let room = self.room();
            let Some(leaf) = self.leaf_builder.as_mut().map(|leaves| leaves.finish(room)).transpose()?.flatten() else {
                return Ok(());
            };
            self.push_leaf(leaf)?;
        }
    }

    /// Writes inner pages of the leaves, if these are too many for the directory. Each page of them is one of the file.
    pub(super) fn end_inner_pages(&mut self) -> Result<(), BuildError> {
        if self.leaf_builder.is_none() || self.blocks.len() <= self.most_leaves {
            return Ok(());
        }
        let leaves = std::mem::take(&mut self.blocks);
        let mut rest = leaves.as_slice();
        while !rest.is_empty() {
            let InnerPage { leaves, bytes, block } = InnerPage::of(rest, self.most_leaves, PAGE_PAYLOAD)?;
            let left = self.left_in_page();
            if bytes.len() > left && left < PAGE_PAYLOAD {
                self.container.push(&vec![0; left]);
            }
            self.blocks.push(ValueBlockRef { offset: self.container.offset(), ..block });
            self.container.push(&bytes);
            self.drain_if_full()?;
            rest = rest.get(leaves..).unwrap_or_default();
        }
        self.block_start = self.container.offset();
        self.posting_start = self.block_start;
        Ok(())
    }
}
