//! Bins of several values, taken apart into values with their rows, one bin at a time: a block of them may hold all rows of a segment.

use std::vec::IntoIter;

use lakemark_format::bin_block::Bin;
use lakemark_format::{Key, SegmentDirectory, bin_block};
use lakemark_index::bitmap::entries_of_bin;

use crate::store::segments::Damage;

/// Values with their rows.
type Values = Vec<(Key, Vec<u32>)>;

/// The bins of a block that are still to be taken apart, and the bytes of all of them.
pub(super) struct BinWalk {
    bins: IntoIter<Bin>,
    postings: Vec<u8>,
    orders: Vec<u8>,
    /// Where the next bin's bytes begin in both.
    next: (usize, usize),
    universe: u32,
}

impl BinWalk {
    /// The bins of the block of this number.
    pub(super) fn new(
        directory: &SegmentDirectory,
        number: usize,
        head: &[u8],
        postings: Vec<u8>,
        orders: Vec<u8>,
    ) -> Result<Self, Damage> {
        let bins = match directory.blocks.get(number) {
            Some(block) => bin_block::decode(head, &block.first_key, &directory.key_type).map_err(Damage::corrupt)?,
            None => Vec::new(),
        };
        Ok(Self { bins: bins.into_iter(), postings, orders, next: (0, 0), universe: directory.universe })
    }

    /// The values of the next bin, ascending, with the rows of each; none behind the last bin.
    pub(super) fn next(&mut self) -> Result<Option<Values>, Damage> {
        let Some(bin) = self.bins.next() else { return Ok(None) };
        let (posting, order) = self.next;
        self.next = (posting + bin.posting_length as usize, order + bin.order_length as usize);
        let bytes = self.postings.get(posting..self.next.0).zip(self.orders.get(order..self.next.1));
        let (posting, order) = bytes.ok_or_else(|| Damage::corrupt("a bin block points behind its postings"))?;
        let entries = entries_of_bin(&bin, posting, order, self.universe).map_err(Damage::corrupt)?;
        let values = entries.chunk_by(|a, b| a.0 == b.0).filter_map(|same| {
            let (key, _) = same.first()?;
            Some((Key::Fixed(*key), same.iter().map(|(_, row)| *row).collect()))
        });
        Ok(Some(values.collect()))
    }
}
