//! Going through the values of a segment in their order, each with its rows: for a verification and for merging segments.

mod bins;
mod coarse_rows;

use std::collections::VecDeque;
use std::ops::Range;

use lakemark_format::posting::{self, RowSink};
use lakemark_format::{Encoding, Key, PostingRef, value_block};
use lakemark_index::bitmap::{EntryRows, LeafKey, ValueRows, entries_of_leaf};

use crate::store::segments::{Damage, ReadCounter, Segment};
use bins::SegmentBinCursor;
use coarse_rows::CoarseRows;

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
    let place = |row: u32| {
        let moved = places.get(places.partition_point(|moved| moved.rows.end <= row))?;
        let to = moved.to?;
        // Below the range it is a row of a file that is left out.
        moved.rows.contains(&row).then(|| to + (row - moved.rows.start))
    };
    rows.into_iter().filter_map(place).collect()
}

/// Goes through the values of a segment, a block at a time, and bins of several values one by one.
pub(crate) struct SegmentCursor {
    segment: Segment,
    block: usize,
    bins: Option<SegmentBinCursor>,
    /// The last key that was given.
    last: Option<Key>,
    values: VecDeque<ValueRows>,
    coarse: Option<CoarseRows>,
}

impl SegmentCursor {
    pub(crate) async fn new(segment: &Segment, counter: &ReadCounter) -> Result<Self, Damage> {
        let coarse = CoarseRows::read(segment, counter).await?;
        Ok(Self { segment: segment.clone(), block: 0, bins: None, last: None, values: VecDeque::new(), coarse })
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
            let Some(block) = self.segment.directory.blocks.get(self.block) else {
                if self.last != self.segment.directory.max_key {
                    return Err(Damage::corrupt("the largest key of the directory is not that of the last value"));
                }
                return Ok(None);
            };
            self.block += 1;
            let ranges = [
                block.offset..block.offset + u64::from(block.length),
                block.postings_offset..block.postings_offset + block.postings_length,
            ];
            let mut read = self.segment.read(&ranges, counter).await?.into_iter();
            let (head, postings) = (read.next().unwrap_or_default(), read.next().unwrap_or_default());
            if self.segment.directory.encoding == Encoding::Binned {
                let orders = self.segment.read(&[self.segment.directory.orders_of(self.block - 1)], counter).await?;
                let orders = orders.into_iter().next().unwrap_or_default();
                self.bins =
                    Some(SegmentBinCursor::new(&self.segment.directory, self.block - 1, &head, postings, orders)?);
                continue;
            }
            if self.segment.directory.encoding == Encoding::Packed {
                let leaf = entries_of_leaf(&head, block, &self.segment.directory).map_err(Damage::corrupt)?;
                for LeafKey { key, rows } in leaf {
                    let rows = match rows {
                        EntryRows::Known(rows) => rows,
                        EntryRows::Posting(posting) => {
                            let read = self.segment.read(&[posting.range], counter).await?.pop().unwrap_or_default();
                            decode_rows(&read, posting.rows, &self.segment)?
                        }
                    };
                    self.values.push_back(ValueRows { key, rows });
                }
                continue;
            }
            let values = value_block::decode(&head, &block.first_key, &self.segment.directory.key_type)
                .map_err(Damage::corrupt)?;
            let mut rest = postings.as_ref();
            for value in values {
                let split = rest.split_at_checked(value.posting_length as usize);
                let (posting, later) =
                    split.ok_or_else(|| Damage::corrupt("a value block points behind its postings"))?;
                let fine = self.segment.directory.encoding.has_fine_level();
                let fine = fine.then(|| decode_rows(posting, value.rows, &self.segment)).transpose()?;
                let rows = match &mut self.coarse {
                    Some(coarse) => coarse.next(fine, value.rows)?,
                    None => fine.unwrap_or_default(),
                };
                self.values.push_back(ValueRows { key: value.key, rows });
                rest = later;
            }
        }
        let next = self.values.pop_front();
        self.last = next.as_ref().map(|next| next.key.clone());
        Ok(next)
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
