//! Bins of several values, taken apart into values with their rows, one bin at a time: a block of bins may have all rows of a segment.

use std::vec::IntoIter;

use bytes::Bytes;
use lakemark_format::bin_block::Bin;
use lakemark_format::{Key, RidingRows, SegmentDirectory, bin_block};
use lakemark_index::bitmap::{ValueRows, entries_of_bin};

use crate::store::segments::Damage;

/// Where the bytes of a bin begin.
#[derive(Clone, Copy, Default)]
struct BinOffsets {
    posting: usize,
    order: usize,
}

/// The bins of a block that are still to be taken apart, and the bytes of all of them.
pub(super) struct SegmentBinCursor {
    bins: IntoIter<Bin>,
    postings: Bytes,
    orders: Bytes,
    /// Where the next bin begins.
    next: BinOffsets,
    universe: u32,
}

impl SegmentBinCursor {
    /// The bins of the block of this number.
    pub(super) fn new(
        directory: &SegmentDirectory,
        number: usize,
        head: &[u8],
        postings: Bytes,
        orders: Bytes,
    ) -> Result<Self, Damage> {
        let bins = match directory.blocks.get(number) {
            Some(block) => bin_block::decode(head, &block.first_key, &directory.key_type).map_err(Damage::corrupt)?,
            None => Vec::new(),
        };
        Ok(Self { bins: bins.into_iter(), postings, orders, next: BinOffsets::default(), universe: directory.universe })
    }

    /// The values of the next bin, ascending, with the rows of each; none behind the last bin.
    pub(super) fn next(&mut self) -> Result<Option<Vec<ValueRows>>, Damage> {
        let Some(bin) = self.bins.next() else { return Ok(None) };
        let start = self.next;
        let end = BinOffsets {
            posting: start.posting + bin.posting_length as usize,
            order: start.order + bin.order_length as usize,
        };
        self.next = end;
        let bytes = self.postings.get(start.posting..end.posting).zip(self.orders.get(start.order..end.order));
        let (posting, order) = bytes.ok_or_else(|| Damage::corrupt("a bin block points behind its postings"))?;
        let entries = entries_of_bin(&bin, posting, order, self.universe).map_err(Damage::corrupt)?;
        let values = entries.chunk_by(|a, b| a.key == b.key).filter_map(|same| {
            let key = Key::Fixed(same.first()?.key);
            let rows = same.iter().map(|entry| entry.row).collect();
            Some(ValueRows { key, rows, riding: RidingRows::default() })
        });
        Ok(Some(values.collect()))
    }
}
