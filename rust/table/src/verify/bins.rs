//! Bins of several values, taken apart into values with their rows.

use lakemark_format::{Key, SegmentDirectory, bin_block};
use lakemark_index::bitmap::entries_of_bin;

use crate::segments::Damage;

/// The values of a block of bins, ascending, with the rows of each.
pub(super) fn values_of_bins(
    directory: &SegmentDirectory,
    number: usize,
    head: &[u8],
    postings: &[u8],
    orders: &[u8],
) -> Result<Vec<(Key, Vec<u32>)>, Damage> {
    let Some(block) = directory.blocks.get(number) else { return Ok(Vec::new()) };
    let bins = bin_block::decode(head, &block.first_key, &directory.key_type).map_err(Damage::corrupt)?;
    let (mut postings, mut orders) = (postings, orders);
    let mut values: Vec<(Key, Vec<u32>)> = Vec::new();
    for bin in &bins {
        let split = postings.split_at_checked(bin.posting_length as usize);
        let split = split.zip(orders.split_at_checked(bin.order_length as usize));
        let Some(((posting, later), (order, later_orders))) = split else {
            return Err(Damage::corrupt("a bin block points behind its postings"));
        };
        (postings, orders) = (later, later_orders);
        let entries = entries_of_bin(bin, posting, order, directory.universe).map_err(Damage::corrupt)?;
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let key = same.first().map_or(0, |(key, _)| *key);
            values.push((Key::Fixed(key), same.iter().map(|(_, row)| *row).collect()));
        }
    }
    Ok(values)
}
