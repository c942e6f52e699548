//! Orders: which row of a bin holds which key, so that a bound inside a bin is answered without the data.
//!
//! The *entries* of a bin are its (key, row) pairs, ascending. Where keys and rows both go on by constant steps they are
//! [ramps](crate::ramp), and these are all there is. Else the rows are a posting, and the order gives the key of each entry and
//! the *rank* of its row. The rank is the place of the row in the posting:
//!
//! ```text
//! order      := rank-width, (first-key-step, gap-width)*, ranks, gaps*      a block of keys is 1024 entries
//! ranks         of all entries, packed; of width 0: the entries are in the order of their rows
//! gaps          of the keys of a block, each less the one before, packed
//! ```
//!
//! A bound is found by the first keys of the blocks and by the gaps of one block. The ranks of the entries on its side give the
//! rows.

use std::ops::Range;

use crate::bin_block::{Bin, MAX_BIN_ROWS};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::packed::{pack, read_width, unpack, width_of};

/// Entries of a block of keys, but for the last one. Part of the format.
pub const ORDER_BLOCK_ENTRIES: usize = 1024;

/// A decoded head of an order. A caller unpacks the keys and ranks that it needs.
#[derive(Clone, Debug)]
pub struct BinOrder<'a> {
    bin: Bin,
    rank_width: u8,
    ranks: &'a [u8],
    blocks: Vec<KeyBlock<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct KeyBlock<'a> {
    first: u64,
    width: u8,
    gaps: &'a [u8],
    entries: usize,
}

/// Encodes the order of entries: their keys, and the rank of each one's row.
#[must_use]
pub fn encode(keys: &[u64], ranks: &[u32]) -> Vec<u8> {
    let mut out = ByteWriter::new();
    let sorted = ranks.iter().copied().eq(0..ranks.len() as u32);
    let rank_width = if sorted { 0 } else { width_of(ranks.iter().map(|rank| u64::from(*rank))) };
    out.u8(rank_width);
    let blocks: Vec<KeyGaps> = keys.chunks(ORDER_BLOCK_ENTRIES).map(gaps_of).collect();
    let mut before = None;
    for KeyGaps { first, gaps } in &blocks {
        if let Some(before) = before.replace(*first) {
            out.varint(first.wrapping_sub(before));
        }
        out.u8(width_of(gaps.iter().copied()));
    }
    pack(ranks.iter().map(|rank| u64::from(*rank)).filter(|_| rank_width > 0), rank_width, &mut out);
    for KeyGaps { gaps, .. } in blocks {
        let width = width_of(gaps.iter().copied());
        pack(gaps.into_iter(), width, &mut out);
    }
    out.into_vec()
}

/// The keys of a block, as they are encoded.
struct KeyGaps {
    first: u64,
    /// Of the other keys, each less the one before.
    gaps: Vec<u64>,
}

fn gaps_of(keys: &[u64]) -> KeyGaps {
    let gaps = keys.iter().zip(keys.iter().skip(1)).map(|(before, after)| after.wrapping_sub(*before));
    KeyGaps { first: keys.first().copied().unwrap_or(0), gaps: gaps.collect() }
}

impl<'a> BinOrder<'a> {
    /// Reads the head of the order of a bin.
    ///
    /// # Errors
    /// Bytes that are no order of so many entries.
    pub fn decode(bytes: &'a [u8], bin: &Bin) -> Result<Self> {
        let mut input = ByteReader::new("the order of a bin", bytes);
        let rows = bin.rows as usize;
        let rank_width = read_width(&mut input)?;
        let full = width_of(std::iter::once(u64::from(bin.rows.saturating_sub(1))));
        if rank_width != 0 && rank_width != full || bin.rows > MAX_BIN_ROWS {
            return Err(FormatError::invalid("the width of a rank", rank_width, format_args!("0 or {full}")));
        }
        let mut blocks = Vec::with_capacity(rows.div_ceil(ORDER_BLOCK_ENTRIES));
        let mut first = bin.low;
        for start in (0..rows).step_by(ORDER_BLOCK_ENTRIES) {
            if start > 0 {
                let step = input.varint()?;
                first = first.checked_add(step).filter(|key| *key <= bin.high).ok_or_else(|| beyond(bin))?;
            }
            let width = read_width(&mut input)?;
            blocks.push(KeyBlock { first, width, gaps: &[], entries: (rows - start).min(ORDER_BLOCK_ENTRIES) });
        }
        let ranks = input.bytes((rows * usize::from(rank_width)).div_ceil(8))?;
        for block in &mut blocks {
            block.gaps = input.bytes(((block.entries - 1) * usize::from(block.width)).div_ceil(8))?;
        }
        input.finish()?;
        Ok(Self { bin: *bin, rank_width, ranks, blocks })
    }

    /// How many entries have a key below `key`, or up to it if `inclusive`.
    ///
    /// # Errors
    /// Keys that are not those of the bin.
    pub fn entries_below(&self, key: u64, inclusive: bool) -> Result<u32> {
        let below = |other: u64| other < key || inclusive && other == key;
        let begun = self.blocks.partition_point(|block| below(block.first));
        let Some(last) = begun.checked_sub(1) else { return Ok(0) };
        let found = self.block_keys(last)?.partition_point(|other| below(*other));
        Ok((last * ORDER_BLOCK_ENTRIES + found) as u32)
    }

    /// The ranks of some entries.
    ///
    /// # Errors
    /// A rank that no row of the bin has.
    pub fn ranks(&self, entries: Range<u32>) -> Result<Vec<u32>> {
        let entries = entries.start.min(self.bin.rows)..entries.end.min(self.bin.rows);
        if self.rank_width == 0 {
            return Ok(entries.collect());
        }
        // Eight ranks end with a byte.
        let first = entries.start / 8 * 8;
        let width = usize::from(self.rank_width);
        let mut input = ByteReader::new("the ranks of a bin", self.ranks);
        input.bytes(first as usize * width / 8)?;
        let skipped = (entries.start - first) as usize;
        let ranks = unpack(&mut input, entries.len() + skipped, self.rank_width)?;
        let ranks = ranks.into_iter().skip(skipped).map(|rank| match u32::try_from(rank) {
            Ok(rank) if rank < self.bin.rows => Ok(rank),
            _ => Err(FormatError::invalid("the rank of a row", rank, format_args!("below {}", self.bin.rows))),
        });
        ranks.collect()
    }

    /// The keys of all entries, ascending.
    ///
    /// # Errors
    /// Keys that are not those of the bin.
    pub fn keys(&self) -> Result<Vec<u64>> {
        let mut keys = Vec::with_capacity(self.bin.rows as usize);
        for number in 0..self.blocks.len() {
            keys.extend(self.block_keys(number)?);
        }
        let distinct = keys.chunk_by(|a, b| a == b).count();
        if distinct != self.bin.values as usize {
            return Err(FormatError::invalid("the values of a bin", distinct, self.bin.values));
        }
        Ok(keys)
    }

    fn block_keys(&self, number: usize) -> Result<Vec<u64>> {
        let Some(block) = self.blocks.get(number) else { return Ok(Vec::new()) };
        let next = self.blocks.get(number + 1).map(|next| next.first);
        let mut input = ByteReader::new("the keys of a bin", block.gaps);
        let mut key = block.first;
        let mut keys = Vec::with_capacity(block.entries);
        keys.push(key);
        for gap in unpack(&mut input, block.entries - 1, block.width)? {
            key = key.checked_add(gap).ok_or_else(|| beyond(&self.bin))?;
            keys.push(key);
        }
        // The last block ends with the largest key, another one no later than the next begins.
        let fits = next.map_or(key == self.bin.high, |next| key <= next);
        if fits { Ok(keys) } else { Err(beyond(&self.bin)) }
    }
}

fn beyond(bin: &Bin) -> FormatError {
    FormatError::invalid("the keys of a bin", "others", format_args!("ascending from {} to {}", bin.low, bin.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bin(keys: &[u64], order_length: usize) -> Bin {
        Bin {
            low: keys[0],
            high: keys[keys.len() - 1],
            values: keys.chunk_by(|a, b| a == b).count() as u32,
            rows: keys.len() as u32,
            posting_length: 1,
            order_length: order_length as u32,
        }
    }

    fn check(keys: &[u64], ranks: &[u32], bounds: &[u64]) -> usize {
        let bytes = encode(keys, ranks);
        let bin = bin(keys, bytes.len());
        let order = BinOrder::decode(&bytes, &bin).unwrap();
        assert_eq!(order.keys().unwrap(), keys);
        for start in [0, keys.len() as u32 / 3, keys.len() as u32] {
            assert_eq!(order.ranks(start..bin.rows).unwrap(), &ranks[start as usize..]);
        }
        for &bound in bounds.iter().chain([&bin.low, &bin.high, &0, &u64::MAX]) {
            let below = |inclusive| keys.iter().filter(|key| **key < bound || inclusive && **key == bound).count();
            for inclusive in [false, true] {
                assert_eq!(order.entries_below(bound, inclusive).unwrap() as usize, below(inclusive), "{bound}");
            }
        }
        assert!(BinOrder::decode(&bytes[..bytes.len() - 1], &bin).is_err());
        bytes.len()
    }

    #[test]
    fn a_sorted_column_takes_no_ranks() {
        let keys: Vec<u64> = (0..3000).map(|entry| 500 + entry / 3).collect();
        let ranks: Vec<u32> = (0..3000).collect();
        // A bit for each gap; three blocks.
        let length = check(&keys, &ranks, &[500, 501, 1100]);
        assert!(length < 3000 / 8 + 20, "{length}");
    }

    #[test]
    fn equal_keys_across_blocks_are_found() {
        let keys: Vec<u64> = (0..5000)
            .map(|entry| {
                if entry < 100 {
                    1
                } else if entry < 4900 {
                    7
                } else {
                    9
                }
            })
            .collect();
        let ranks: Vec<u32> = (0..5000).rev().collect();
        check(&keys, &ranks, &[0, 1, 2, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn ranks_and_keys_of_another_bin_are_found() {
        let (keys, ranks) = ([3u64, 4, 9], [2u32, 0, 1]);
        let bytes = encode(&keys, &ranks);
        let good = bin(&keys, bytes.len());
        let high = Bin { high: 10, ..good };
        assert!(BinOrder::decode(&bytes, &high).unwrap().keys().is_err());
        let values = Bin { values: 2, ..good };
        assert!(BinOrder::decode(&bytes, &values).unwrap().keys().is_err());
        let rank = encode(&keys, &[3, 0, 1]);
        assert!(BinOrder::decode(&rank, &good).unwrap().ranks(0..3).is_err());
        let mut width = bytes.clone();
        width[0] = 3;
        assert!(BinOrder::decode(&width, &good).is_err());
    }

    proptest! {
        #[test]
        fn orders_round_trip(
            mut keys in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..50], 2..2500),
            seed in any::<u32>(),
            bounds in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..50], 0..6),
        ) {
            keys.sort_unstable();
            let mut ranks: Vec<u32> = (0..keys.len() as u32).collect();
            ranks.sort_by_key(|rank| rank.wrapping_mul(seed | 1));
            check(&keys, &ranks, &bounds);
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), rows in 2u32..2000, low in any::<u64>(), span in any::<u64>(),
        ) {
            let high = low.saturating_add(span);
            let bin = Bin { low, high, values: 2, rows, posting_length: 1, order_length: bytes.len() as u32 };
            if let Ok(order) = BinOrder::decode(&bytes, &bin) {
                if let Ok(keys) = order.keys() {
                    prop_assert!(keys.is_sorted() && keys.len() == rows as usize);
                }
                if let Ok(below) = order.entries_below(low.saturating_add(span / 2), true) {
                    prop_assert!(below <= rows);
                }
                if let Ok(ranks) = order.ranks(1..rows) {
                    prop_assert!(ranks.iter().all(|rank| *rank < rows));
                }
            }
        }
    }
}
