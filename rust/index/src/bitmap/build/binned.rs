//! Writing bins as they end, and blocks of bins: postings, orders, then the block.

use lakemark_format::bin_block;
use lakemark_format::key::Key;
use lakemark_format::segment::ValueBlockRef;

use super::{BuildError, SegmentWriter};
use crate::bitmap::bin_writer::{BinBlock, BinWriter};

impl SegmentWriter<'_> {
    /// Writes the bin that ends before the value, if one does.
    pub(super) fn end_binned_value(&mut self, key: Key) -> Result<(), BuildError> {
        if let (Some(bins), Key::Fixed(number)) = (&mut self.bin_writer, &key) {
            let done = bins.end_value(*number);
            self.value_count += 1;
            self.max_key = Some(key);
            self.push_bin(done)?;
        }
        Ok(())
    }

    /// Takes the posting of a finished bin.
    pub(super) fn push_bin(&mut self, posting: Option<Vec<u8>>) -> Result<(), BuildError> {
        let Some(posting) = posting else { return Ok(()) };
        self.container.push(&posting);
        self.drain_if_full()?;
        if self.bin_writer.as_ref().is_some_and(BinWriter::is_full) { self.end_bins() } else { Ok(()) }
    }

    /// Writes the orders of a block of bins and the block.
    pub(super) fn end_bins(&mut self) -> Result<(), BuildError> {
        let Some(block) = self.bin_writer.as_mut().map(BinWriter::take_block) else { return Ok(()) };
        let BinBlock { bins, orders } = block;
        let Some(first) = bins.first() else { return Ok(()) };
        let bytes = bin_block::encode(&bins)?;
        let postings_length = self.container.offset() - self.block_start;
        self.container.push(&orders);
        self.blocks.push(ValueBlockRef {
            first_key: Key::Fixed(first.low),
            offset: self.container.offset(),
            length: bytes.len() as u32,
            values: bins.len() as u32,
            rows: bins.iter().map(|bin| u64::from(bin.rows)).sum(),
            postings_offset: self.block_start,
            postings_length,
            is_inner: false,
        });
        self.orders.push(orders.len() as u64);
        self.container.push(&bytes);
        self.block_start = self.container.offset();
        self.posting_start = self.block_start;
        Ok(())
    }
}
