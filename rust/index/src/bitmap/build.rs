//! Merging chunks into a segment, in value order and in one pass, with little memory.
//!
//! Chunks are walked side by side by a heap of their next keys (a k-way merge). The rows of a value are encoded a posting block
//! at a time, so that memory does not grow with the rows of a value. Bytes go to the sink as pages fill. Some encodings keep
//! more in memory. Those with a coarse level keep the rank of every row (see the module `coarse_builder`), `binned` the rows of
//! the current bin (`bin_writer`), and `packed` and `linked` the entries of the current leaf. Encodings with zones are not merged by value but
//! written row group by row group (`zoned`).

mod binned;
mod linked;
mod packed;
mod zoned;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use lakemark_format::container::{ContainerWriter, ContentKind};
use lakemark_format::error::FormatError;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::leaf::LeafBuilder;
use lakemark_format::posting::{self, BLOCK_ROWS};
use lakemark_format::riding::{RidingColumn, RidingRows};
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{PostingRef, SegmentDirectory, SegmentFile, ValueBlockRef};
use lakemark_format::value_block::{self, MAX_BLOCK_VALUES, TARGET_KEY_BYTES, Value};

use self::linked::LinkWriter;
use super::bin_writer::BinWriter;
use super::coarse_builder::Ranks;
use crate::chunk::{ChunkCursor, ChunkSource};
use crate::error::BuildError;
use crate::precision::{Cutter, Precision};
use crate::zones::ZoneOptions;
use crate::zones::build::BuiltZones;

pub use zoned::merge_zones;

/// The most leaves of a packed tree in a directory: about as many as one read opens a segment with. If there are more, they are in inner
/// pages, at most so many in each.
pub const DIRECTORY_LEAVES: usize = 4096;

/// Finished bytes are handed to the sink when this many have gathered.
const SINK_BYTES: u64 = 1 << 20;

/// What is known of a segment before it is built.
#[derive(Clone, Debug)]
pub struct SegmentMeta {
    /// New and unique.
    pub segment_id: [u8; 16],
    /// The index it belongs to.
    pub index_id: [u8; 16],
    /// The column's physical name.
    pub column: String,
    /// The column's key type.
    pub key_type: KeyType,
    /// The data files, with ascending bases that are multiples of 64.
    pub files: Vec<SegmentFile>,
    /// Which levels it gets.
    pub encoding: Encoding,
    /// Bins of a coarse level whose bins hold several values, 256 at most; as many as pay if none is given.
    pub bins: Option<u32>,
    /// Where the encoding `binned` cuts; the other encodings have none.
    pub precision: Option<Precision>,
    /// Zones and their filters, of encodings that have zones.
    pub zones: ZoneOptions,
    /// The columns that ride along, of the encoding `packed`.
    pub riding: Vec<RidingColumn>,
}

/// What was built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentSummary {
    /// Bytes of the segment's file.
    pub length: u64,
    /// Rows that it covers.
    pub rows: u64,
    /// Distinct values.
    pub values: u64,
    /// Zones, of an encoding that has them.
    pub zones: u64,
    /// Of an encoding with fences: how many zones have fences around a key, on average.
    pub overlap: Option<f64>,
}

/// Builds a segment of `chunks`, which are in row order (ascending first rows), writing it to `sink`.
///
/// # Errors
/// [`BuildError`]; what the sink has got is then no segment.
pub fn merge(
    meta: SegmentMeta,
    chunks: Vec<ChunkSource>,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<SegmentSummary, BuildError> {
    merge_in_pages(meta, chunks, DIRECTORY_LEAVES, sink)
}

/// The same with so many leaves of a packed tree at most in a directory, and in each inner page: a test makes inner pages of few rows.
///
/// # Errors
/// Those of [`merge`].
pub fn merge_in_pages(
    meta: SegmentMeta,
    mut chunks: Vec<ChunkSource>,
    most_leaves: usize,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<SegmentSummary, BuildError> {
    let mut writer = SegmentWriter::new(&meta, universe_of(&meta)?, sink)?;
    writer.most_leaves = most_leaves;
    let nulls = writer.posting_of(&chunks, |cursor| &cursor.nulls)?;
    let opaque = writer.posting_of(&chunks, |cursor| &cursor.opaque)?;
    if meta.encoding.has_zones() {
        return writer.write_zones(meta, chunks, nulls, opaque);
    }
    let mut heap = BinaryHeap::with_capacity(chunks.len());
    for (index, chunk) in chunks.iter_mut().enumerate() {
        if let Some(key) = chunk.cursor.advance()? {
            heap.push(Reverse(Next::of(key, index)));
        }
    }
    let mut current: Option<Key> = None;
    while let Some(Reverse(Next { key: first, chunk: index, .. })) = heap.pop() {
        let Some(chunk) = chunks.get_mut(index) else { continue };
        let mut next = Some(first);
        while let Some(key) = next.take() {
            if current.as_ref() != Some(&key)
                && let Some(done) = current.replace(key)
            {
                writer.end_value(done)?;
            }
            // Of equal keys the heap gives the earliest chunk first, so the rows of a value ascend.
            let first_row = chunk.first_row;
            chunk.cursor.take_rows(|rows, riding| writer.take_rows(rows, riding, first_row));
            writer.write_full_blocks()?;
            let Some(key) = chunk.cursor.advance()? else { break };
            // Rows in the order of values are most often: the chunk goes on, and the others wait.
            let waiting = Next::of(key, index);
            match heap.peek() {
                Some(Reverse(other)) if *other < waiting => heap.push(Reverse(waiting)),
                _ => next = Some(waiting.key),
            }
        }
    }
    if let Some(done) = current {
        writer.end_value(done)?;
    }
    writer.finish(meta, nulls, opaque)
}

/// The rows of the row space.
fn universe_of(meta: &SegmentMeta) -> Result<u32, BuildError> {
    let Some(file) = meta.files.last() else { return Ok(0) };
    let rows = u64::from(file.base) + file.rows();
    let limit = u64::from(u32::MAX);
    u32::try_from(rows).map_err(|_| FormatError::TooLong { what: "the rows of a segment", got: rows, limit }.into())
}

/// The next key of a chunk. The beginning of the key decides most comparisons, without a look at bytes that are elsewhere in memory.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    beginning: u64,
    key: Key,
    chunk: usize,
}

impl Next {
    fn of(key: Key, chunk: usize) -> Self {
        Self { beginning: key.beginning(), key, chunk }
    }
}

/// A coarse level that was written.
#[derive(Default)]
struct CoarseParts {
    /// The values of each bin, where these are listed.
    bins: Vec<u32>,
    bitmaps: Vec<PostingRef>,
}

struct SegmentWriter<'a> {
    container: ContainerWriter,
    sink: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
    /// Bytes handed to the sink.
    length: u64,
    /// Logical offset up to which they go, but for the page being filled.
    drained: u64,
    universe: u32,
    key_type: KeyType,
    column: String,
    encoding: Encoding,
    bins: Option<u32>,
    /// Ranks of the rows, for the coarse level.
    ranks: Option<Ranks>,
    /// Rows of the current value that are not encoded yet.
    pending: Vec<u32>,
    encoded: Vec<u8>,
    posting_start: u64,
    posting_rows: u32,
    /// Values of the current block.
    values: Vec<Value>,
    key_bytes: usize,
    block_start: u64,
    blocks: Vec<ValueBlockRef>,
    value_count: u64,
    max_key: Option<Key>,
    /// With the encoding `binned`: the bin that is gathered, and those of the current block.
    bin_writer: Option<BinWriter>,
    orders: Vec<u64>,
    /// With the encoding `packed`: the leaf that is gathered.
    leaf_builder: Option<LeafBuilder>,
    /// The most leaves of the directory, and of an inner page.
    most_leaves: usize,
    /// With the encoding `linked`: the leaf that is gathered, and the rows of leaves that are written.
    link_writer: Option<LinkWriter>,
    /// What rides along with the rows of the current value; none if no column does.
    riding: Option<RidingRows>,
    /// Where the last long posting ends.
    long_end: u64,
    zones: Option<BuiltZones>,
}

impl<'a> SegmentWriter<'a> {
    fn new(
        meta: &SegmentMeta,
        universe: u32,
        sink: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Self, BuildError> {
        let bin_writer = match (meta.encoding, meta.precision) {
            (Encoding::Binned, Some(precision)) => {
                Some(BinWriter::new(Cutter::new(precision, meta.key_type.clone())?, universe))
            }
            (Encoding::Binned, None) => return Err(BuildError::NoPrecision),
            _ => None,
        };
        let container = ContainerWriter::new(ContentKind::Segment, meta.segment_id);
        let start = container.offset();
        Ok(Self {
            container,
            sink,
            length: 0,
            drained: 0,
            universe,
            key_type: meta.key_type.clone(),
            column: meta.column.clone(),
            encoding: meta.encoding,
            bins: meta.bins,
            ranks: Ranks::new(meta.encoding, universe),
            pending: Vec::new(),
            encoded: Vec::new(),
            posting_start: start,
            posting_rows: 0,
            values: Vec::new(),
            key_bytes: 0,
            block_start: start,
            blocks: Vec::new(),
            value_count: 0,
            max_key: None,
            bin_writer,
            orders: Vec::new(),
            leaf_builder: (meta.encoding == Encoding::Packed).then(|| packed::leaves_of(meta, universe)),
            most_leaves: DIRECTORY_LEAVES,
            link_writer: (meta.encoding == Encoding::Linked).then(|| LinkWriter::of(meta)).transpose()?,
            riding: (!meta.riding.is_empty()).then(RidingRows::default),
            long_end: start,
            zones: None,
        })
    }

    /// One posting of the same list of every chunk.
    fn posting_of(
        &mut self,
        chunks: &[ChunkSource],
        list: impl Fn(&ChunkCursor) -> &Vec<u32>,
    ) -> Result<PostingRef, BuildError> {
        for chunk in chunks {
            self.pending.extend(list(&chunk.cursor).iter().map(|row| row + chunk.first_row));
            self.write_full_blocks()?;
        }
        let posting = self.end_posting()?;
        self.block_start = self.container.offset();
        Ok(posting)
    }

    /// More rows of the current value, and what rides along with them.
    fn take_rows(&mut self, rows: &[u32], riding: &RidingRows, first_row: u32) {
        if let Some(held) = &mut self.riding {
            match riding.rides() {
                true => riding.rows().for_each(|row| held.push(Some(row))),
                false => held.push(None),
            }
        }
        let rows = rows.iter().map(|row| row + first_row);
        if let Some(bins) = &mut self.bin_writer {
            return bins.take_rows(rows);
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.set(rows.clone(), self.value_count as u32);
        }
        if self.encoding.has_fine_level() || matches!(self.encoding, Encoding::Packed | Encoding::Linked) {
            self.pending.extend(rows);
        } else {
            self.posting_rows += rows.len() as u32;
        }
    }

    fn write_full_blocks(&mut self) -> Result<(), BuildError> {
        let full = self.pending.len() / BLOCK_ROWS * BLOCK_ROWS;
        self.write_rows(full)
    }

    fn write_rows(&mut self, count: usize) -> Result<(), BuildError> {
        if count == 0 {
            return Ok(());
        }
        self.encoded.clear();
        posting::encode(self.pending.get(..count).unwrap_or_default(), self.universe, &mut self.encoded);
        self.pending.drain(..count);
        self.posting_rows += count as u32;
        self.container.push(&self.encoded);
        self.drain_if_full()?;
        Ok(())
    }

    fn drain_if_full(&mut self) -> io::Result<()> {
        if self.container.offset() - self.drained <= SINK_BYTES {
            return Ok(());
        }
        let bytes = self.container.take_output();
        self.drained = self.container.offset();
        self.length += bytes.len() as u64;
        (self.sink)(&bytes)
    }

    fn end_posting(&mut self) -> Result<PostingRef, BuildError> {
        self.write_rows(self.pending.len())?;
        let length = self.container.offset() - self.posting_start;
        let posting = PostingRef {
            offset: self.posting_start,
            length: u32::try_from(length).map_err(|_| FormatError::TooLong {
                what: "the length of a posting",
                got: length,
                limit: u64::from(u32::MAX),
            })?,
            rows: std::mem::take(&mut self.posting_rows),
        };
        self.posting_start = self.container.offset();
        Ok(posting)
    }

    fn end_value(&mut self, key: Key) -> Result<(), BuildError> {
        if self.bin_writer.is_some() {
            return self.end_binned_value(key);
        }
        if self.leaf_builder.is_some() {
            return self.end_packed_value(key);
        }
        if self.link_writer.is_some() {
            return self.end_link(key);
        }
        let posting = self.end_posting()?;
        if let Key::Bytes(bytes) = &key {
            self.key_bytes += bytes.len();
        }
        self.max_key = Some(key.clone());
        self.value_count += 1;
        if let Some(ranks) = &mut self.ranks {
            if self.encoding.has_bins() {
                ranks.push_share(posting.length.into());
            } else if !ranks.fits(self.value_count) {
                return Err(self.too_many_values());
            }
        }
        self.values.push(Value { key, rows: posting.rows, posting_length: posting.length });
        if self.values.len() == MAX_BLOCK_VALUES || self.key_bytes >= TARGET_KEY_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), BuildError> {
        let Some(first) = self.values.first() else {
            return Ok(());
        };
        let bytes = value_block::encode(&self.values, &self.key_type)?;
        let offset = self.container.offset();
        self.blocks.push(ValueBlockRef {
            first_key: first.key.clone(),
            offset,
            length: bytes.len() as u32,
            values: self.values.len() as u32,
            rows: self.values.iter().map(|value| u64::from(value.rows)).sum(),
            postings_offset: self.block_start,
            postings_length: offset - self.block_start,
            is_inner: false,
        });
        self.container.push(&bytes);
        self.values.clear();
        self.key_bytes = 0;
        self.block_start = self.container.offset();
        self.posting_start = self.block_start;
        Ok(())
    }

    fn too_many_values(&self) -> BuildError {
        let values = self.value_count - 1;
        let bitmaps = self.encoding.coarse_level().map_or(0, |level| level.bitmaps(values));
        BuildError::TooManyValues {
            column: self.column.clone(),
            encoding: self.encoding.name(),
            values,
            bytes: bitmaps * u64::from(self.universe).div_ceil(8),
        }
    }

    /// Writes the coarse level.
    fn write_coarse_level(&mut self) -> Result<CoarseParts, BuildError> {
        let Some(ranks) = self.ranks.take() else { return Ok(CoarseParts::default()) };
        let bins = if self.encoding.has_bins() { ranks.bins(self.bins) } else { Vec::new() };
        let listed = self.encoding.has_bins().then_some(bins.as_slice());
        let mut bitmaps = Vec::new();
        for selection in ranks.selections(self.value_count, listed) {
            self.posting_start = self.container.offset();
            ranks.select(&selection, |rows| {
                self.pending.extend_from_slice(rows);
                self.write_full_blocks()
            })?;
            bitmaps.push(self.end_posting()?);
        }
        Ok(CoarseParts { bins, bitmaps })
    }

    fn finish(
        mut self,
        meta: SegmentMeta,
        nulls: PostingRef,
        opaque: PostingRef,
    ) -> Result<SegmentSummary, BuildError> {
        let last = self.bin_writer.as_mut().and_then(BinWriter::finish);
        self.push_bin(last)?;
        self.end_bins()?;
        self.end_leaves()?;
        self.end_inner_pages()?;
        let predicates = self.end_links()?;
        self.end_block()?;
        let CoarseParts { bins, bitmaps } = self.write_coarse_level()?;
        let (zones, overlap) = self.zones.take().map(|built| (built.zones, built.overlap)).unzip();
        let directory = SegmentDirectory {
            segment_id: meta.segment_id,
            index_id: meta.index_id,
            column: meta.column,
            key_type: meta.key_type,
            files: meta.files.into(),
            universe: self.universe,
            nulls,
            opaque,
            value_count: self.value_count,
            max_key: self.max_key.take(),
            blocks: std::mem::take(&mut self.blocks),
            encoding: self.encoding,
            bins,
            bitmaps,
            orders: std::mem::take(&mut self.orders),
            riding: meta.riding,
            predicates,
            zones,
        };
        let encoded = directory.encode(self.container.offset())?;
        let zones = directory.zones.as_ref().map_or(0, |zones| zones.rows.len() as u64);
        let (rows, values) = (directory.rows(), directory.value_count);
        let SegmentWriter { mut container, sink, mut length, .. } = self;
        for bytes in [container.take_output(), container.finish(&encoded)?] {
            length += bytes.len() as u64;
            sink(&bytes)?;
        }
        Ok(SegmentSummary { length, rows, values, zones, overlap: overlap.flatten() })
    }
}
