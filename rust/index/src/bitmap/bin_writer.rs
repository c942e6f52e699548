//! Bins while a segment is built: values are gathered until the next one lies behind the end of the bin.

use lakemark_format::bin_block::{Bin, MAX_BIN_ROWS};
use lakemark_format::order;
use lakemark_format::value_block::MAX_BLOCK_VALUES;
use lakemark_format::{posting, ramp};

use crate::precision::Cutter;

/// A block is closed when the orders of its bins have so many bytes: they are kept until then.
const TARGET_ORDER_BYTES: usize = 1 << 20;

/// Bytes of memory that a merge takes for each row of the largest bin: keys, rows, both sorted by row, ranks, and their bytes.
const BYTES_PER_BIN_ROW: u64 = 48;

/// Bytes of memory that a merge takes for bins: the rows of one value, and all that is known of a bin of several.
pub(super) fn memory_bytes(rows: u64) -> u64 {
    rows * size_of::<u32>() as u64 + rows.min(MAX_BIN_ROWS.into()) * BYTES_PER_BIN_ROW
}

/// A value of the bin that is gathered.
struct BinValue {
    key: u64,
    /// How many rows it has.
    rows: u32,
}

/// What a bin is written as.
struct EncodedBin {
    /// The posting, or ramps in its place.
    posting: Vec<u8>,
    order: Vec<u8>,
}

/// The bins of a block that is closed.
pub(super) struct BinBlock {
    pub bins: Vec<Bin>,
    /// Their orders.
    pub orders: Vec<u8>,
}

pub(super) struct BinWriter {
    cutter: Cutter,
    universe: u32,
    /// Values of the current bin.
    values: Vec<BinValue>,
    /// The rows of these, and behind them those of the value that is being read.
    rows: Vec<u32>,
    /// How many rows these values have.
    held: usize,
    /// The largest key that still belongs to the bin.
    last: u64,
    /// Bins of the current block, and their orders.
    bins: Vec<Bin>,
    orders: Vec<u8>,
}

impl BinWriter {
    pub(super) fn new(cutter: Cutter, universe: u32) -> Self {
        let (values, rows, bins, orders) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { cutter, universe, values, rows, held: 0, last: 0, bins, orders }
    }

    /// More rows of the value that is being read.
    pub(super) fn take_rows(&mut self, rows: impl Iterator<Item = u32>) {
        self.rows.extend(rows);
    }

    /// All rows of a value are here. Gives the posting of the bin before, if the value begins another.
    pub(super) fn end_value(&mut self, key: u64) -> Option<Vec<u8>> {
        let rows = self.rows.len() - self.held;
        let fits = self.held + rows <= MAX_BIN_ROWS as usize;
        let done = if key > self.last || !fits { self.finish() } else { None };
        if self.values.is_empty() {
            self.last = self.cutter.last_of_bin(key);
        }
        self.values.push(BinValue { key, rows: rows as u32 });
        self.held += rows;
        done
    }

    /// Ends the bin, if there is one, and gives its posting.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        let (low, high) = (self.values.first()?.key, self.values.last()?.key);
        let values = std::mem::take(&mut self.values);
        let rows: Vec<u32> = self.rows.drain(..std::mem::take(&mut self.held)).collect();
        let EncodedBin { posting, order } = if values.len() == 1 {
            let mut posting = Vec::new();
            posting::encode(&rows, self.universe, &mut posting);
            EncodedBin { posting, order: Vec::new() }
        } else {
            let keys = values.iter().flat_map(|value| std::iter::repeat_n(value.key, value.rows as usize));
            let keys: Vec<u64> = keys.collect();
            self.encode(&keys, &rows)
        };
        self.bins.push(Bin {
            low,
            high,
            values: values.len() as u32,
            rows: rows.len() as u32,
            posting_length: posting.len() as u32,
            order_length: order.len() as u32,
        });
        self.orders.extend_from_slice(&order);
        Some(posting)
    }

    /// Posting and order of entries, or their ramps if these are smaller.
    fn encode(&self, keys: &[u64], rows: &[u32]) -> EncodedBin {
        let mut by_row: Vec<(u32, u32)> = rows.iter().copied().zip(0..).collect();
        by_row.sort_unstable();
        let sorted: Vec<u32> = by_row.iter().map(|(row, _)| *row).collect();
        let mut ranks = vec![0u32; rows.len()];
        for (rank, (_, entry)) in (0..).zip(&by_row) {
            if let Some(slot) = ranks.get_mut(*entry as usize) {
                *slot = rank;
            }
        }
        let mut posting = Vec::new();
        posting::encode(&sorted, self.universe, &mut posting);
        let order = order::encode(keys, &ranks);
        let low = keys.first().copied().unwrap_or(0);
        match ramp::find(keys, rows).map(|ramps| ramp::encode(&ramps, low)) {
            Some(ramps) if ramps.len() <= posting.len() + order.len() => {
                EncodedBin { posting: ramps, order: Vec::new() }
            }
            _ => EncodedBin { posting, order },
        }
    }

    /// Whether the block is to be closed.
    pub(super) fn is_full(&self) -> bool {
        self.bins.len() == MAX_BLOCK_VALUES || self.orders.len() >= TARGET_ORDER_BYTES
    }

    /// Closes the block.
    pub(super) fn take_block(&mut self) -> BinBlock {
        BinBlock { bins: std::mem::take(&mut self.bins), orders: std::mem::take(&mut self.orders) }
    }
}
