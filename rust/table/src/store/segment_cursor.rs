//! Going through the values of a segment in their order, each with its rows: for a verification and for merging segments.

mod bins;
mod coarse_rows;
mod read_ahead;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use lakemark_format::posting::{self, RowSink};
use lakemark_format::{Encoding, Key, PostingRef, RidingRows, SegmentDirectory, ValueBlockRef, value_block};
use lakemark_index::bitmap::{EntryRows, LeafKey, ValueRows, entries_of_leaf, entries_of_links};

use crate::store::segments::{Damage, ReadCounter, Segment};
use bins::SegmentBinCursor;
use coarse_rows::CoarseRows;
pub(crate) use read_ahead::ReadAhead;

/// Bytes that a cursor reads at once, where memory allows for it.
pub(crate) const READ_AHEAD_BYTES: u64 = 4 << 20;
/// Bytes that a cursor reads at once where it does not.
pub(crate) const LEAST_READ_AHEAD_BYTES: u64 = 64 << 10;

pub(crate) async fn read_rows(segment: &Segment, list: PostingRef, counter: &ReadCounter) -> Result<Vec<u32>, Damage> {
    let range = list.offset..list.offset + u64::from(list.length);
    let bytes = segment.read(&[range], counter).await?.pop().unwrap_or_default();
    decode_rows(&bytes, list.rows, segment)
}

fn decode_rows(bytes: &[u8], count: u32, segment: &Segment) -> Result<Vec<u32>, Damage> {
    let mut rows = RowCollector(Vec::with_capacity((count as usize).min(segment.directory.universe as usize)));
    posting::decode(bytes, count, segment.directory.universe, &mut rows).map_err(Damage::corrupt)?;
    Ok(rows.0)
}

/// The rows of a file in a segment, and where they are in another one.
#[derive(Clone, Debug)]
pub(crate) struct MovedRows {
    pub rows: Range<u32>,
    /// The first of these rows in the other segment; none if that segment does without the file.
    pub to: Option<u32>,
}

/// Rows of a segment by their numbers in another one; rows of files that the other one lacks are left out. `places` has the rows of files,
/// ascending.
pub(crate) fn remapped(rows: Vec<u32>, places: &[MovedRows]) -> Vec<u32> {
    rows.into_iter().filter_map(|row| moved_row(row, places)).collect()
}

/// A row by its number in another segment; none if that segment lacks it.
fn moved_row(row: u32, places: &[MovedRows]) -> Option<u32> {
    let moved = places.get(places.partition_point(|moved| moved.rows.end <= row))?;
    let to = moved.to?;
    // Below the range it is a row of a file that is left out.
    moved.rows.contains(&row).then(|| to + (row - moved.rows.start))
}

/// A value by the numbers that its rows have in another segment, with what rides along with these. None if that segment lacks all of them.
pub(crate) fn moved_value(value: ValueRows, places: &[MovedRows]) -> Option<ValueRows> {
    let ValueRows { key, rows, riding } = value;
    if !riding.rides() {
        let rows = remapped(rows, places);
        return (!rows.is_empty()).then_some(ValueRows { key, rows, riding });
    }
    let (mut moved, mut kept) = (Vec::with_capacity(rows.len()), RidingRows::default());
    for (row, form) in rows.into_iter().zip(riding.rows()) {
        if let Some(to) = moved_row(row, places) {
            moved.push(to);
            kept.push(Some(form));
        }
    }
    (!moved.is_empty()).then_some(ValueRows { key, rows: moved, riding: kept })
}

/// Goes through the values of a segment, a block at a time, and bins of several values one by one.
pub(crate) struct SegmentCursor {
    ahead: ReadAhead,
    directory: Arc<SegmentDirectory>,
    block: usize,
    /// Leaves of the last inner page that are still to come.
    leaves: VecDeque<ValueBlockRef>,
    bins: Option<SegmentBinCursor>,
    /// The last key that was given.
    last: Option<Key>,
    values: VecDeque<ValueRows>,
    coarse: Option<CoarseRows>,
}

impl SegmentCursor {
    /// A cursor before the first value, which reads so many bytes at once.
    pub(crate) async fn new(segment: &Segment, window_bytes: u64, counter: &ReadCounter) -> Result<Self, Damage> {
        let directory = Arc::clone(&segment.directory);
        let mut ahead = ReadAhead::new(segment, window_bytes);
        let coarse = CoarseRows::read(&mut ahead, counter).await?;
        let (leaves, values) = (VecDeque::new(), VecDeque::new());
        Ok(Self { ahead, directory, block: 0, leaves, bins: None, last: None, values, coarse })
    }

    /// Reads the first window, if there is none yet.
    pub(crate) async fn begin(&mut self, counter: &ReadCounter) -> Result<(), Damage> {
        self.ahead.begin(counter).await
    }

    /// The rows of one of the lists at the beginning of the segment: of NULL, or of values without a key.
    pub(crate) async fn rows(&mut self, list: PostingRef, counter: &ReadCounter) -> Result<Vec<u32>, Damage> {
        self.ahead.rows(list, counter).await
    }

    /// The next value.
    pub(crate) async fn next(&mut self, counter: &ReadCounter) -> Result<Option<ValueRows>, Damage> {
        while self.values.is_empty() {
            if let Some(bins) = &mut self.bins {
                match bins.next()? {
                    Some(values) => self.values.extend(values),
                    None => self.bins = None,
                }
                continue;
            }
            if let Some(leaf) = self.leaves.pop_front() {
                self.read_leaf(&leaf, counter).await?;
                continue;
            }
            if self.block == self.directory.blocks.len() {
                if self.last != self.directory.max_key {
                    return Err(Damage::corrupt("the largest key of the directory is not that of the last value"));
                }
                return Ok(None);
            }
            self.read_block(counter).await?;
            self.block += 1;
        }
        let next = self.values.pop_front();
        self.last = next.as_ref().map(|next| next.key.clone());
        Ok(next)
    }

    /// The values of the next block, or the leaves of the next inner page.
    async fn read_block(&mut self, counter: &ReadCounter) -> Result<(), Damage> {
        let directory = Arc::clone(&self.directory);
        let Some(block) = directory.blocks.get(self.block) else { return Ok(()) };
        if block.is_inner {
            // Inner pages lie behind all leaves, where a window would be in vain.
            self.leaves = self.ahead.segment().read_leaves(block, counter).await?.into();
            return Ok(());
        }
        if directory.encoding == Encoding::Packed {
            return self.read_leaf(block, counter).await;
        }
        let postings = block.postings_offset..block.postings_offset + block.postings_length;
        let head = block.offset..block.offset + u64::from(block.length);
        let mut read = self.ahead.read(&[head, postings], counter).await?.into_iter();
        let (head, postings) = (read.next().unwrap_or_default(), read.next().unwrap_or_default());
        match directory.encoding {
            Encoding::Binned => {
                let orders = self.ahead.read(&[directory.orders_of(self.block)], counter).await?;
                let orders = orders.into_iter().next().unwrap_or_default();
                self.bins = Some(SegmentBinCursor::new(&directory, self.block, &head, postings, orders)?);
                Ok(())
            }
            Encoding::Linked => {
                let leaf = entries_of_links(&head, &postings, block, &directory).map_err(Damage::corrupt)?;
                self.take_keys(leaf, counter).await
            }
            _ => self.take_values(&head, &postings, block),
        }
    }

    /// The keys of a leaf of a packed tree.
    async fn read_leaf(&mut self, leaf: &ValueBlockRef, counter: &ReadCounter) -> Result<(), Damage> {
        let postings = leaf.postings_offset..leaf.postings_offset + leaf.postings_length;
        let place = leaf.offset..leaf.offset + u64::from(leaf.length);
        let bytes = self.ahead.read(&[place, postings], counter).await?.into_iter().next().unwrap_or_default();
        let keys = entries_of_leaf(&bytes, leaf, &self.directory).map_err(Damage::corrupt)?;
        self.take_keys(keys, counter).await
    }

    async fn take_keys(&mut self, leaf: Vec<LeafKey>, counter: &ReadCounter) -> Result<(), Damage> {
        for LeafKey { key, rows, riding } in leaf {
            let rows = match rows {
                EntryRows::Known(rows) => rows,
                EntryRows::Posting(posting) => {
                    let read = self.ahead.read(&[posting.range], counter).await?.pop().unwrap_or_default();
                    decode_rows(&read, posting.rows, self.ahead.segment())?
                }
            };
            self.values.push_back(ValueRows { key, rows, riding });
        }
        Ok(())
    }

    fn take_values(&mut self, head: &[u8], postings: &[u8], block: &ValueBlockRef) -> Result<(), Damage> {
        let values = value_block::decode(head, &block.first_key, &self.directory.key_type).map_err(Damage::corrupt)?;
        let fine = self.directory.encoding.has_fine_level();
        let mut rest = postings;
        for value in values {
            let split = rest.split_at_checked(value.posting_length as usize);
            let (posting, later) = split.ok_or_else(|| Damage::corrupt("a value block points behind its postings"))?;
            let fine = fine.then(|| decode_rows(posting, value.rows, self.ahead.segment())).transpose()?;
            let rows = match &mut self.coarse {
                Some(coarse) => coarse.next(fine, value.rows)?,
                None => fine.unwrap_or_default(),
            };
            self.values.push_back(ValueRows { key: value.key, rows, riding: RidingRows::default() });
            rest = later;
        }
        Ok(())
    }
}

struct RowCollector(Vec<u32>);

impl RowSink for RowCollector {
    fn rows(&mut self, rows: &[u32]) {
        self.0.extend_from_slice(rows);
    }
    fn word(&mut self, first: u32, bits: u64) {
        self.0.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    fn run(&mut self, first: u32, length: u32) {
        self.0.extend(first..first.saturating_add(length));
    }
}
