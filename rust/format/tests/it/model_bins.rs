//! Blocks of bins of a segment as plain values.

use std::collections::BTreeMap;
use std::ops::Range;

use lakemark_format::order::{self, BinOrder};
use lakemark_format::ramp::{self, Ramp};
use lakemark_format::*;

/// Values with their rows.
pub type Values = Vec<(Key, Vec<u32>)>;

/// A block of values with their rows, cut into bins of so many values each.
pub struct Block<'a> {
    pub values: &'a [(Key, Vec<u32>)],
    pub sizes: &'a [u32],
    pub universe: u32,
}

/// What a block of bins takes: the bins, their postings and their orders.
pub struct Packed {
    pub bins: Vec<Bin>,
    /// The bins as they are written.
    pub block: Vec<u8>,
    pub postings: Vec<u8>,
    pub orders: Vec<u8>,
}

fn number(key: &Key) -> u64 {
    match key {
        Key::Fixed(key) => *key,
        Key::Bytes(_) => panic!("bins are of numbers"),
    }
}

impl Block<'_> {
    pub fn pack(&self) -> Packed {
        let mut packed = Packed { bins: vec![], block: vec![], postings: vec![], orders: vec![] };
        let mut rest = self.values;
        for size in self.sizes {
            let (values, later) = rest.split_at(*size as usize);
            rest = later;
            let entries = values.iter().flat_map(|(key, rows)| rows.iter().map(|row| (number(key), *row)));
            let (keys, rows): (Vec<u64>, Vec<u32>) = entries.unzip();
            let mut sorted = rows.clone();
            sorted.sort();
            let (mut posting, mut order) = (vec![], vec![]);
            posting::encode(&sorted, self.universe, &mut posting);
            if values.len() > 1 {
                let ranks: Vec<u32> = rows.iter().map(|row| sorted.binary_search(row).unwrap() as u32).collect();
                order = order::encode(&keys, &ranks);
                let ramps = ramp::find(&keys, &rows).map(|ramps| ramp::encode(&ramps, keys[0]));
                if let Some(ramps) = ramps.filter(|ramps| ramps.len() <= posting.len() + order.len()) {
                    (posting, order) = (ramps, vec![]);
                }
            }
            packed.bins.push(Bin {
                low: keys[0],
                high: keys[keys.len() - 1],
                values: *size,
                rows: rows.len() as u32,
                posting_length: posting.len() as u32,
                order_length: order.len() as u32,
            });
            packed.postings.extend(posting);
            packed.orders.extend(order);
        }
        assert!(rest.is_empty());
        packed.block = bin_block::encode(&packed.bins).unwrap();
        packed
    }
}

/// The values of the block `number`, and the values of each of its bins.
pub fn read(
    directory: &SegmentDirectory,
    number: usize,
    read: impl Fn(Range<u64>) -> Result<Vec<u8>>,
) -> Result<(Values, Vec<u32>)> {
    let block = &directory.blocks[number];
    let bytes = read(block.offset..block.offset + u64::from(block.length))?;
    let bins = bin_block::decode(&bytes, &block.first_key, &directory.key_type)?;
    let postings = read(block.postings_offset..block.postings_offset + block.postings_length)?;
    let orders = read(directory.orders_of(number))?;
    let total = |length: fn(&Bin) -> u32| bins.iter().map(|bin| u64::from(length(bin))).sum::<u64>();
    let totals = (bins.len(), total(|bin| bin.rows), total(|bin| bin.posting_length), total(|bin| bin.order_length));
    if totals != (block.values as usize, block.rows, block.postings_length, orders.len() as u64) {
        return Err(FormatError::invalid("a bin block", "of other totals", "the directory's totals"));
    }
    let (mut values, mut postings, mut orders) = (vec![], postings.as_slice(), orders.as_slice());
    for bin in &bins {
        let (posting, later) = postings.split_at(bin.posting_length as usize);
        let (order, later_orders) = orders.split_at(bin.order_length as usize);
        (postings, orders) = (later, later_orders);
        let mut by_key: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for BinEntry { key, row } in entries(bin, posting, order, directory.universe)? {
            by_key.entry(key).or_default().push(row);
        }
        values.extend(by_key.into_iter().map(|(key, rows)| (Key::Fixed(key), rows)));
    }
    Ok((values, bins.iter().map(|bin| bin.values).collect()))
}

fn entries(bin: &Bin, posting: &[u8], order: &[u8], universe: u32) -> Result<Vec<BinEntry>> {
    let entry = |(key, row)| BinEntry { key, row };
    let entries: Vec<BinEntry> = if bin.is_ramps() {
        ramp::decode(posting, bin, universe)?.iter().flat_map(Ramp::iter).collect()
    } else {
        let mut rows = Vec::new();
        posting::decode(posting, bin.rows, universe, &mut rows)?;
        if bin.values == 1 {
            rows.into_iter().map(|row| entry((bin.low, row))).collect()
        } else {
            let order = BinOrder::decode(order, bin)?;
            let rows = order.ranks(0..bin.rows)?.into_iter().map(|rank| rows[rank as usize]);
            order.keys()?.into_iter().zip(rows).map(entry).collect()
        }
    };
    let mut rows: Vec<u32> = entries.iter().map(|entry| entry.row).collect();
    rows.sort();
    rows.dedup();
    if rows.len() != entries.len() || !entries.is_sorted_by(|a, b| a < b) {
        return Err(FormatError::invalid("the entries of a bin", "twice or out of order", "ascending, each row once"));
    }
    Ok(entries)
}
