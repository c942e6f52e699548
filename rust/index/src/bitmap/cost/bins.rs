//! What bins of a precision will take: those of the sample are made, measured, and thought of with more rows.
//!
//! ```text
//! bytes = fixed + NULLs + rows × ( posting + order ) + bins × block, as in the sample
//!
//! f times the rows in the same bins     posting    as much a row: f times the rows in f times the span
//!                                       order      log2 f bits more for the place of a row in its bin, and as many fewer for the gap to
//!                                                  the key before, until there is none
//! f times the bins (a sorted column)    as much a row
//! ```

use lakemark_format::bin_block::MAX_BIN_ROWS;
use lakemark_format::bin_block::{self, Bin};
use lakemark_format::key::{Key, KeyType};

use super::positions::PostingShape;
use super::{FIXED_BYTES, PAGE_SHARE};
use crate::bitmap::bin_writer::BinWriter;
use crate::chunk::{Chunk, ValueList};
use crate::precision::{Cutter, Precision, PrecisionError};

/// Bytes of a block in the directory, its orders' length included.
const BLOCK_REFERENCE: f64 = 16.0;

/// The bins of a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BinSample {
    rows: f64,
    nulls: Vec<u32>,
    /// Bytes of postings, or of ramps in their place.
    postings: f64,
    orders: Vec<OrderOf>,
    /// Blocks of bins, and what stands of them in the directory.
    blocks: f64,
    /// How much of the column is local, 0 to 1: more rows are more bins.
    local: f64,
}

/// Where the rows of a bin are.
#[derive(Default)]
struct Extent {
    rows: f64,
    ends: Option<RowEnds>,
}

/// The first and the last of some rows.
#[derive(Clone, Copy)]
struct RowEnds {
    first: u32,
    last: u32,
}

impl Extent {
    fn add(&mut self, rows: &[u32]) {
        self.rows += rows.len() as f64;
        for row in rows.first().into_iter().chain(rows.last()) {
            let ends = self.ends.unwrap_or(RowEnds { first: *row, last: *row });
            self.ends = Some(RowEnds { first: ends.first.min(*row), last: ends.last.max(*row) });
        }
    }
}

/// How far the rows of bins lie apart, as a part of how far they would in random order; bins of one row say nothing.
#[derive(Default)]
struct Spread {
    rows: f64,
    spread: f64,
}

impl Spread {
    fn add(&mut self, bin: Extent, universe: f64) {
        if let Some(RowEnds { first, last }) = bin.ends.filter(|_| bin.rows > 1.0) {
            let random = universe * (bin.rows - 1.0) / (bin.rows + 1.0);
            self.rows += bin.rows;
            self.spread += bin.rows * (f64::from(last - first) / random.max(1.0)).min(1.0);
        }
    }

    fn local(&self) -> f64 {
        if self.rows > 0.0 { 1.0 - self.spread / self.rows } else { 1.0 }
    }
}

/// The order of a bin.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OrderOf {
    rows: f64,
    bytes: f64,
    /// Bits of the mean gap between its keys.
    gap_bits: f64,
    /// Its entries are in the order of their rows, so that places take nothing.
    in_order: bool,
}

impl OrderOf {
    fn new(bin: &Bin) -> Self {
        let (rows, bytes) = (f64::from(bin.rows), f64::from(bin.order_length));
        let gap_bits = ((bin.high - bin.low) as f64 / rows).max(1.0).log2();
        // Places alone would take more.
        let in_order = bytes * 8.0 < rows * rows.log2().ceil();
        Self { rows, bytes, gap_bits, in_order }
    }

    /// Bytes with so many times the rows.
    fn scaled_to(self, factor: f64) -> f64 {
        let more = factor.max(1e-9).log2();
        let places = if self.in_order { 0.0 } else { more.min((f64::from(MAX_BIN_ROWS) / self.rows).log2().max(0.0)) };
        let bits = places - more.min(self.gap_bits);
        (self.bytes + self.rows * bits / 8.0).max(0.0) * factor
    }
}

impl BinSample {
    /// Makes the bins of a chunk.
    ///
    /// # Errors
    /// A precision that the column cannot have.
    pub fn new(chunk: &Chunk, precision: Precision, key_type: KeyType) -> Result<Self, PrecisionError> {
        let mut writer = BinWriter::new(Cutter::new(precision, key_type)?, chunk.row_count());
        let mut nulls: Vec<u32> = chunk.nulls().iter().chain(chunk.opaque()).copied().collect();
        nulls.sort_unstable();
        let mut sample = Self { rows: f64::from(chunk.row_count()), nulls, ..Self::default() };
        let (mut bin, mut spread) = (Extent::default(), Spread::default());
        for ValueList { key, rows } in chunk.values() {
            let Key::Fixed(key) = *key else { continue };
            writer.take_rows(rows.iter().copied());
            if let Some(posting) = writer.end_value(key) {
                sample.postings += posting.len() as f64;
                spread.add(std::mem::take(&mut bin), sample.rows);
            }
            bin.add(rows);
            if writer.is_full() {
                sample.take_block(&mut writer);
            }
        }
        sample.postings += writer.finish().map_or(0.0, |posting| posting.len() as f64);
        sample.take_block(&mut writer);
        spread.add(bin, sample.rows);
        sample.local = spread.local();
        Ok(sample)
    }

    fn take_block(&mut self, writer: &mut BinWriter) {
        let bins = writer.take_block().bins;
        self.orders.extend(bins.iter().filter(|bin| bin.order_length > 0).map(OrderOf::new));
        // No block is without bins, and these were made as the format has them.
        self.blocks += bin_block::encode(&bins).map_or(0.0, |bytes| bytes.len() as f64 + BLOCK_REFERENCE);
    }

    /// Bytes of a segment of `rows` rows.
    #[must_use]
    pub fn bytes(&self, rows: u64) -> u64 {
        let factor = if self.rows > 0.0 { rows as f64 / self.rows } else { 0.0 };
        let more_bins = factor.powf(self.local);
        let more_rows = factor / more_bins.max(1e-9);
        let runs = super::sample::runs_of(&self.nulls) * factor;
        let nulls =
            PostingShape::of_runs(self.nulls.len() as f64 * factor, runs, rows as f64).posting_bytes(rows as f64);
        let orders: f64 = self.orders.iter().map(|order| order.scaled_to(more_rows)).sum::<f64>() * more_bins;
        let bytes = FIXED_BYTES + nulls + self.postings * factor + orders + self.blocks * more_bins;
        (bytes * PAGE_SHARE) as u64
    }
}
