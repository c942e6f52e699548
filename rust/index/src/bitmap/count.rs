//! Counting without postings: how many rows pass, from the directory and the value blocks at the edges of the ranges.
//!
//! ```text
//! Count::new(directory, test) ─▶ first_ranges()   blocks at the edges
//!       bytes of those        ─▶ second_ranges()  orders of bins that a bound cuts: none with constants of few digits
//!       bytes of those        ─▶ finish()         the number
//! ```

use std::ops::Range;

use bytes::Bytes;
use lakemark_format::bin_block::Bin;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::segment::SegmentDirectory;
use lakemark_format::segment::encoding::Encoding;

use super::bins::{self, Edge, PlacedBin};
use super::leaves;
use super::overlap::{BlockOverlap, overlaps};
use super::search::decode_block;
use crate::predicate::Test;
use crate::ranges::KeyRanges;

/// One test of one segment, between the reads.
#[derive(Debug)]
pub struct CountSearch<'a> {
    directory: &'a SegmentDirectory,
    ranges: KeyRanges,
    /// Rows of blocks and bins that lie in a range as a whole, or NULL rows.
    known: u64,
    /// Blocks at the edges.
    blocks: Vec<usize>,
    /// Bins at the edges.
    bins: Vec<Bin>,
}

impl<'a> CountSearch<'a> {
    /// Plans the count; none where opaque rows, or rows with several of the keys, leave the number open.
    #[must_use]
    pub fn new(directory: &'a SegmentDirectory, test: &Test) -> Option<Self> {
        let mut count = Self { directory, ranges: KeyRanges::none(), known: 0, blocks: Vec::new(), bins: Vec::new() };
        match test {
            Test::IsNull => {
                count.known = u64::from(directory.nulls.rows);
                return Some(count);
            }
            Test::Ranges(_) | Test::Elements(_) if directory.opaque.rows > 0 => return None,
            // Values may share a hash.
            Test::Ranges(_) | Test::Elements(_) if directory.key_type.hash_bits().is_some() => return None,
            // A row that has several of the keys would count for each of them.
            Test::Elements(ranges) if !ranges.is_point() => return None,
            Test::Ranges(ranges) | Test::Elements(ranges) => count.ranges = ranges.clone(),
        }
        for ((number, block), place) in directory.blocks.iter().enumerate().zip(overlaps(directory, &count.ranges)) {
            match place {
                BlockOverlap::Outside => {}
                BlockOverlap::Inside => count.known += block.rows,
                BlockOverlap::Edge => count.blocks.push(number),
            }
        }
        Some(count)
    }

    /// Logical ranges of the blocks at the edges, to be given to [`Self::second_ranges`] in this order.
    #[must_use]
    pub fn first_ranges(&self) -> Vec<Range<u64>> {
        let blocks = self.blocks.iter().filter_map(|&index| self.directory.blocks.get(index));
        blocks.map(|block| block.offset..block.offset + u64::from(block.length)).collect()
    }

    /// Takes the bytes of these blocks and gives the logical ranges of the orders that are needed besides.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn second_ranges(&mut self, first: &[Bytes]) -> Result<Vec<Range<u64>>> {
        let mut wanted = Vec::new();
        let mut keys = self.ranges.cursor();
        for (bytes, &number) in first.iter().zip(&self.blocks) {
            let Some(block) = self.directory.blocks.get(number) else { continue };
            if self.directory.encoding == Encoding::Packed {
                self.known += leaves::count_rows(bytes, block, self.directory, &mut keys)?;
                continue;
            }
            if self.directory.encoding != Encoding::Binned {
                let values = decode_block(bytes, block, self.directory)?;
                let passing = values.iter().filter(|value| keys.contains(&value.key));
                self.known += passing.map(|value| u64::from(value.rows)).sum::<u64>();
                continue;
            }
            let bins = bins::decode_block(bytes, number, self.directory)?;
            for PlacedBin { bin, posting, order } in bins::locate(self.directory, number, &bins) {
                match bins::bin_overlap(bin, &self.ranges) {
                    BlockOverlap::Outside => {}
                    BlockOverlap::Inside => self.known += u64::from(bin.rows),
                    BlockOverlap::Edge => {
                        wanted.push(if bin.is_ramps() { posting } else { order });
                        self.bins.push(*bin);
                    }
                }
            }
        }
        Ok(wanted)
    }

    /// The number of rows that pass, over all files of the segment.
    ///
    /// # Errors
    /// Bytes that are not what the blocks say.
    pub fn finish(self, second: &[Bytes]) -> Result<u64> {
        if second.len() != self.bins.len() {
            return Err(FormatError::invalid("the ranges read", second.len(), self.bins.len()));
        }
        let mut rows = self.known;
        for (bytes, bin) in second.iter().zip(&self.bins) {
            let (posting, order): (&[u8], &[u8]) = if bin.is_ramps() { (bytes, &[]) } else { (&[], bytes) };
            rows += Edge::decode(bin, posting, order, self.directory.universe, &self.ranges)?.count();
        }
        Ok(rows)
    }
}
