//! The directory of a segment: which data files it covers, where its value blocks are and the first key of each.
//!
//! Rows of all files of a segment share one *row space*. A file's rows start at its `base`, a multiple of 64, so that a file's
//! part of a bitmap starts on a word. The directory is decoded whole and is small. Keys and offsets are stored as differences.
//! Value blocks that directly follow their postings cost one byte for each offset.

pub mod encoding;
mod validate;

use std::ops::Range;
use std::sync::Arc;

use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContentKind, HEADER_BYTES, Trailer};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType, MAX_KEY_LENGTH};
use crate::limits::{MAX_NAME_LENGTH, MAX_PATH_LENGTH};
use crate::links::{decode_predicates, encode_predicates};
use crate::riding::RidingColumn;
use crate::zones::Zones;
use encoding::{Encoding, MAX_COARSE_BITMAPS};

/// The base of every file is a multiple of this.
pub const BASE_ALIGNMENT: u32 = 64;

/// What a segment holds and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentDirectory {
    /// The segment's id, stored in header and trailer.
    pub segment_id: [u8; 16],
    /// The index it belongs to.
    pub index_id: [u8; 16],
    /// The column's physical name.
    pub column: String,
    /// The column's type.
    pub key_type: KeyType,
    /// The covered data files, by ascending base; shared by the directories that [`Self::with_blocks`] makes of this one.
    pub files: Arc<[SegmentFile]>,
    /// Rows of the segment's row space, gaps between files included.
    pub universe: u32,
    /// Rows whose value is NULL.
    pub nulls: PostingRef,
    /// Rows with a value that the index cannot order: NaN, keys that are too long.
    pub opaque: PostingRef,
    /// Distinct values. With the encoding `binned` the blocks count bins, of which there are fewer; with zones, the values of every zone.
    pub value_count: u64,
    /// The largest key; `None` when there is no value.
    pub max_key: Option<Key>,
    /// The value blocks, by ascending first key.
    pub blocks: Vec<ValueBlockRef>,
    /// Which levels there are.
    pub encoding: Encoding,
    /// Values of each bin, for encodings whose bins hold several; empty for the others.
    pub bins: Vec<u32>,
    /// The bitmaps of the coarse level.
    pub bitmaps: Vec<PostingRef>,
    /// For the encoding `binned`: the bytes of the orders of each block's bins, right behind its postings. Empty for the others.
    pub orders: Vec<u64>,
    /// For the encoding `packed`: the columns that ride along with the keys. Empty for the others.
    pub riding: Vec<RidingColumn>,
    /// For the encoding `linked`: the predicates by their places, NULL among them. Empty for the others.
    pub predicates: Vec<Option<Key>>,
    /// For the encodings `filtered` and `sliced`, which have no value blocks: the zones.
    pub zones: Option<Zones>,
}

/// A data file in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// Path relative to the table's root.
    pub path: String,
    /// First row in the segment's row space, a multiple of [`BASE_ALIGNMENT`].
    pub base: u32,
    /// Rows of each row group.
    pub row_groups: Vec<u32>,
    /// Fingerprint of the Parquet footer.
    pub footer_hash: u64,
    /// Fingerprint of the raw column chunks: proves the data when only its modification time changed.
    pub column_hash: u64,
}

/// Where a posting list is in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PostingRef {
    /// Logical offset.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Rows in it.
    pub rows: u32,
}

/// Where a value block and the postings of its values are in the stream. Of an inner page of a packed tree: where the page is, and what the
/// leaves in it have together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueBlockRef {
    /// The smallest key in the block. Of leaves with keys that are bytes, but for the first leaf, the bytes with which it begins: they are
    /// above the last key of the leaf before.
    pub first_key: Key,
    /// Logical offset of the block.
    pub offset: u64,
    /// Bytes of the block.
    pub length: u32,
    /// Values in the block, or bins.
    pub values: u32,
    /// Rows of all its values.
    pub rows: u64,
    /// Logical offset of the block's posting area.
    pub postings_offset: u64,
    /// Bytes of the posting area. Of an inner page it has the leaves as well.
    pub postings_length: u64,
    /// Whether it is an inner page: one of leaves in place of values.
    pub is_inner: bool,
}

impl SegmentFile {
    /// An empty path's length, base, no row groups, two hashes.
    const MIN_BYTES: usize = 1 + 1 + 1 + 8 + 8;

    /// Rows of the file.
    pub fn rows(&self) -> u64 {
        self.row_groups.iter().copied().map(u64::from).sum()
    }
}

impl SegmentDirectory {
    /// The directory's bytes, for a stream that ends at the logical offset `stream_length`.
    pub fn encode(&self, stream_length: u64) -> Result<Vec<u8>> {
        self.validate(stream_length)?;
        let mut out = ByteWriter::new();
        out.bytes(&self.index_id);
        out.string("the column of a segment", &self.column, MAX_NAME_LENGTH)?;
        self.key_type.encode(&mut out);
        out.varint(u64::from(self.universe));
        out.length(self.files.len());
        let mut first_free = 0;
        for file in self.files.iter() {
            file.encode(first_free, &mut out)?;
            first_free = next_base(file);
        }
        self.nulls.encode(&mut out);
        self.opaque.encode(&mut out);
        out.varint(self.value_count);
        out.length(self.blocks.len());
        let (mut previous, mut cursor) = (0, HEADER_BYTES);
        for block in &self.blocks {
            block.encode(&mut previous, &mut cursor, &mut out)?;
        }
        if let Some(max_key) = &self.max_key {
            max_key.encode(&mut out)?;
        }
        out.u8(self.encoding.code());
        if self.encoding.has_bins() {
            out.length(self.bins.len());
            self.bins.iter().for_each(|values| out.varint(u64::from(*values)));
        }
        for bitmap in &self.bitmaps {
            encode_place(bitmap.offset, bitmap.length.into(), &mut cursor, &mut out);
            out.varint(bitmap.rows.into());
        }
        self.orders.iter().for_each(|length| out.varint(*length));
        if self.encoding == Encoding::Packed {
            out.flag(self.has_inner_pages());
            out.length(self.riding.len());
            self.riding.iter().try_for_each(|column| column.encode(&mut out))?;
        }
        if self.encoding == Encoding::Linked {
            encode_predicates(&self.predicates, &mut out)?;
        }
        if let Some(zones) = &self.zones {
            zones.encode(&mut out)?;
        }
        Ok(out.into_vec())
    }

    /// Reads the checked directory of the file that `trailer` ends.
    pub fn decode(bytes: &[u8], trailer: &Trailer) -> Result<Self> {
        if trailer.kind != ContentKind::Segment {
            return Err(FormatError::invalid("the content kind of a segment", trailer.kind.code(), 1));
        }
        let mut input = ByteReader::new("the segment's directory", bytes);
        let index_id = input.array()?;
        let column = input.string("the column of a segment", MAX_NAME_LENGTH)?;
        let key_type = KeyType::decode(&mut input)?;
        let universe = input.varint_u32("the rows of the row space")?;
        let files = decode_files(&mut input)?;
        let nulls = PostingRef::decode(&mut input)?;
        let opaque = PostingRef::decode(&mut input)?;
        let value_count = input.varint()?;
        let count = input.count("the number of value blocks", ValueBlockRef::MIN_BYTES)?;
        let mut blocks = Vec::with_capacity(count);
        let (mut previous, mut cursor) = (0, HEADER_BYTES);
        for _ in 0..count {
            blocks.push(ValueBlockRef::decode(&mut input, &key_type, &mut previous, &mut cursor)?);
        }
        let max_key = match blocks.is_empty() {
            true => None,
            false => Some(Key::decode(&mut input, &key_type)?),
        };
        let encoding = Encoding::from_code(input.u8()?)?;
        let mut bins = Vec::new();
        if encoding.has_bins() {
            let count = input.count("the number of bins", 1)?;
            bins.reserve(count);
            for _ in 0..count {
                bins.push(input.varint_u32("the values of a bin")?);
            }
        }
        let bitmaps = decode_bitmaps(&mut input, encoding, value_count, &bins, &mut cursor)?;
        let orders = (0..blocks.len()).filter(|_| encoding == Encoding::Binned).map(|_| input.varint());
        let orders = orders.collect::<Result<Vec<u64>>>()?;
        let riding = decode_tree(&mut input, encoding, &mut blocks)?;
        let predicates = match encoding {
            Encoding::Linked => decode_predicates(&mut input, &key_type)?,
            _ => Vec::new(),
        };
        let zones = match encoding.has_zones() {
            true => Some(Zones::decode(&mut input, &key_type, encoding == Encoding::Sliced)?),
            false => None,
        };
        input.finish()?;
        let segment_id = trailer.id;
        let directory = Self {
            segment_id,
            index_id,
            column,
            key_type,
            files,
            universe,
            nulls,
            opaque,
            value_count,
            max_key,
            blocks,
            encoding,
            bins,
            bitmaps,
            orders,
            riding,
            predicates,
            zones,
        };
        directory.validate(trailer.stream_length)?;
        Ok(directory)
    }

    /// Whether value blocks are inner pages, of which the leaves are not known.
    pub fn has_inner_pages(&self) -> bool {
        self.blocks.iter().any(|block| block.is_inner)
    }

    /// The same with other value blocks: such as leaves where this one has inner pages.
    #[must_use]
    pub fn with_blocks(&self, blocks: Vec<ValueBlockRef>) -> Self {
        Self {
            segment_id: self.segment_id,
            index_id: self.index_id,
            column: self.column.clone(),
            key_type: self.key_type.clone(),
            files: Arc::clone(&self.files),
            universe: self.universe,
            nulls: self.nulls,
            opaque: self.opaque,
            value_count: self.value_count,
            max_key: self.max_key.clone(),
            blocks,
            encoding: self.encoding,
            bins: self.bins.clone(),
            bitmaps: self.bitmaps.clone(),
            orders: self.orders.clone(),
            riding: self.riding.clone(),
            predicates: self.predicates.clone(),
            zones: self.zones.clone(),
        }
    }

    /// Rows of all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(SegmentFile::rows).sum()
    }

    /// Values or bins of all blocks.
    pub fn entry_count(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.values)).sum()
    }

    /// Where the orders of the bins of a block are.
    pub fn orders_of(&self, block: usize) -> Range<u64> {
        let start =
            self.blocks.get(block).map_or(0, |block| block.postings_offset.saturating_add(block.postings_length));
        start..start.saturating_add(self.orders.get(block).copied().unwrap_or(0))
    }

    /// Bins of the coarse level; without listed bins every value is its own.
    pub fn bin_count(&self) -> u64 {
        if self.encoding.has_bins() { self.bins.len() as u64 } else { self.value_count }
    }
}

/// The data files, by ascending base.
fn decode_files(input: &mut ByteReader<'_>) -> Result<Arc<[SegmentFile]>> {
    let count = input.count("the number of files", SegmentFile::MIN_BYTES)?;
    let mut files = Vec::with_capacity(count);
    let mut first_free = 0;
    for _ in 0..count {
        let file = SegmentFile::decode(input, first_free)?;
        first_free = next_base(&file);
        files.push(file);
    }
    Ok(files.into())
}

/// Of the encoding `packed`, whether blocks are inner pages, and the columns that ride along.
fn decode_tree(
    input: &mut ByteReader<'_>,
    encoding: Encoding,
    blocks: &mut [ValueBlockRef],
) -> Result<Vec<RidingColumn>> {
    if encoding != Encoding::Packed {
        return Ok(Vec::new());
    }
    let are_inner = input.flag("whether the blocks of a tree are inner pages")?;
    if are_inner && blocks.is_empty() {
        return Err(FormatError::invalid("whether the blocks of a tree are inner pages", 1, "0 without blocks"));
    }
    blocks.iter_mut().for_each(|block| block.is_inner = are_inner);
    let count = input.count("the number of columns that ride along", RidingColumn::MIN_BYTES)?;
    (0..count).map(|_| RidingColumn::decode(input)).collect()
}

/// The bitmaps of the coarse level, as many as the encoding has for its bins.
fn decode_bitmaps(
    input: &mut ByteReader<'_>,
    encoding: Encoding,
    value_count: u64,
    bins: &[u32],
    cursor: &mut u64,
) -> Result<Vec<PostingRef>> {
    let Some(level) = encoding.coarse_level() else { return Ok(Vec::new()) };
    let count = level.bitmaps(if encoding.has_bins() { bins.len() as u64 } else { value_count });
    let limit = MAX_COARSE_BITMAPS.min(input.remaining() / PostingRef::MIN_BYTES);
    match usize::try_from(count) {
        Ok(fits) if fits <= limit => {}
        _ => return Err(FormatError::TooLong { what: "the number of bitmaps", got: count, limit: limit as u64 }),
    }
    let mut bitmaps = Vec::with_capacity(limit.min(count as usize));
    for _ in 0..count {
        let Section { offset, length } = decode_place(input, cursor)?;
        let length = u32::try_from(length).map_err(|_| FormatError::TooLong {
            what: "the length of a bitmap",
            got: length,
            limit: u32::MAX.into(),
        })?;
        bitmaps.push(PostingRef { offset, length, rows: input.varint_u32("the rows of a bitmap")? });
    }
    Ok(bitmaps)
}

impl SegmentFile {
    fn encode(&self, first_free: u32, out: &mut ByteWriter) -> Result<()> {
        out.string("the path of a data file", &self.path, MAX_PATH_LENGTH)?;
        // `validate` saw that bases ascend and are aligned.
        out.varint(u64::from(self.base.wrapping_sub(first_free) / BASE_ALIGNMENT));
        out.length(self.row_groups.len());
        for rows in &self.row_groups {
            out.varint(u64::from(*rows));
        }
        out.u64(self.footer_hash);
        out.u64(self.column_hash);
        Ok(())
    }

    fn decode(input: &mut ByteReader<'_>, first_free: u32) -> Result<Self> {
        let path = input.string("the path of a data file", MAX_PATH_LENGTH)?;
        let gap = input.varint_u32("the gap before a file's base")?;
        let base = gap.checked_mul(BASE_ALIGNMENT).and_then(|gap| first_free.checked_add(gap));
        let Some(base) = base else {
            return Err(FormatError::TooLong {
                what: "the gap before a file's base",
                got: gap.into(),
                limit: u64::from((u32::MAX - first_free) / BASE_ALIGNMENT),
            });
        };
        let count = input.count("the number of row groups", 1)?;
        let row_groups = (0..count).map(|_| input.varint_u32("the rows of a row group")).collect::<Result<_>>()?;
        Ok(Self { path, base, row_groups, footer_hash: input.u64()?, column_hash: input.u64()? })
    }
}

/// The first aligned row behind `file`, at most the last aligned row of all: `validate` refuses what does not fit.
fn next_base(file: &SegmentFile) -> u32 {
    let end = u64::from(file.base).saturating_add(file.rows());
    let aligned = end.div_ceil(BASE_ALIGNMENT.into()).saturating_mul(BASE_ALIGNMENT.into());
    u32::try_from(aligned).unwrap_or(u32::MAX - (BASE_ALIGNMENT - 1))
}

impl PostingRef {
    /// A place takes two bytes or more, the rows one.
    const MIN_BYTES: usize = 3;

    fn encode(&self, out: &mut ByteWriter) {
        out.varint(self.offset);
        out.varint(self.length.into());
        out.varint(self.rows.into());
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        Ok(Self {
            offset: input.varint()?,
            length: input.varint_u32("the length of a posting list")?,
            rows: input.varint_u32("the rows of a posting list")?,
        })
    }
}

impl ValueBlockRef {
    /// Every field takes a byte or more.
    const MIN_BYTES: usize = 7;

    /// `previous` is the last fixed key and `cursor` the end of the last section written; both move on.
    fn encode(&self, previous: &mut u64, cursor: &mut u64, out: &mut ByteWriter) -> Result<()> {
        match &self.first_key {
            Key::Fixed(key) => {
                out.varint(key.wrapping_sub(*previous));
                *previous = *key;
            }
            key => key.encode(out)?,
        }
        out.varint(self.values.into());
        out.varint(self.rows.wrapping_sub(self.values.into()));
        encode_place(self.postings_offset, self.postings_length, cursor, out);
        encode_place(self.offset, self.length.into(), cursor, out);
        Ok(())
    }

    fn decode(input: &mut ByteReader<'_>, key_type: &KeyType, previous: &mut u64, cursor: &mut u64) -> Result<Self> {
        let first_key = if key_type.is_fixed() {
            let step = input.varint()?;
            let Some(key) = previous.checked_add(step) else {
                return Err(FormatError::TooLong { what: "the step to a key", got: step, limit: u64::MAX - *previous });
            };
            *previous = key;
            Key::Fixed(key)
        } else {
            // What they have to be follows from the encoding, which comes later.
            Key::Bytes(input.blob("a key", MAX_KEY_LENGTH)?.to_vec())
        };
        let values = input.varint_u32("the values of a block")?;
        let surplus = input.varint()?;
        let rows = surplus.checked_add(values.into()).ok_or(FormatError::TooLong {
            what: "the rows of a block",
            got: surplus,
            limit: u64::MAX - u64::from(values),
        })?;
        let postings = decode_place(input, cursor)?;
        let Section { offset, length } = decode_place(input, cursor)?;
        let length = u32::try_from(length).map_err(|_| FormatError::TooLong {
            what: "the length of a value block",
            got: length,
            limit: u32::MAX.into(),
        })?;
        let (postings_offset, postings_length) = (postings.offset, postings.length);
        Ok(Self { first_key, offset, length, values, rows, postings_offset, postings_length, is_inner: false })
    }
}

/// Writes the distance from the cursor and the length; the cursor moves behind the section.
fn encode_place(offset: u64, length: u64, cursor: &mut u64, out: &mut ByteWriter) {
    out.varint_signed(offset.wrapping_sub(*cursor).cast_signed());
    out.varint(length);
    *cursor = offset.wrapping_add(length);
}

/// Some bytes of the stream.
struct Section {
    offset: u64,
    length: u64,
}

fn decode_place(input: &mut ByteReader<'_>, cursor: &mut u64) -> Result<Section> {
    let distance = input.varint_signed()?;
    let length = input.varint()?;
    let offset = cursor.checked_add_signed(distance);
    match offset.and_then(|offset| offset.checked_add(length).map(|end| (offset, end))) {
        Some((offset, end)) => {
            *cursor = end;
            Ok(Section { offset, length })
        }
        None => Err(FormatError::invalid(
            "a section",
            format_args!("{length} bytes at {distance} from {cursor}"),
            "inside the stream",
        )),
    }
}
