//! A segment as plain values: what the golden files hold. Writing and reading it touches every byte of a file.

use std::borrow::Cow;
use std::ops::Range;

use lakemark_format::leaf::LeafBuilder;
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::value_block::Value;
use lakemark_format::*;

use crate::model_bins::{self, Block, Packed};
use crate::{golden_inner, golden_links, model_leaves};

/// A segment, decoded completely.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    pub id: [u8; 16],
    pub index_id: [u8; 16],
    pub column: String,
    pub key_type: KeyType,
    pub files: Vec<SegmentFile>,
    pub nulls: Vec<u32>,
    pub opaque: Vec<u32>,
    /// The values of each block with their rows.
    pub blocks: Vec<Vec<(Key, Vec<u32>)>>,
    pub encoding: Encoding,
    /// Values of each bin, where bins hold several. Of `binned`, no bin is in two blocks.
    pub bins: Vec<u32>,
}

impl Segment {
    pub fn universe(&self) -> u32 {
        self.files.last().map_or(0, |file| file.base + file.rows() as u32)
    }

    /// The file, and its directory.
    pub fn write(&self) -> (Vec<u8>, SegmentDirectory) {
        self.write_packed(&if self.encoding == Encoding::Binned { self.packed() } else { vec![] })
    }

    /// The same with these bins.
    pub fn write_packed(&self, packed: &[Packed]) -> (Vec<u8>, SegmentDirectory) {
        let mut writer = ContainerWriter::new(ContentKind::Segment, self.id);
        let nulls = self.push_posting(&mut writer, &self.nulls);
        let opaque = self.push_posting(&mut writer, &self.opaque);
        let (mut blocks, mut orders) = (Vec::new(), Vec::new());
        if self.encoding == Encoding::Binned {
            for packed in packed {
                blocks.push(push_bins(&mut writer, packed));
                orders.push(packed.orders.len() as u64);
            }
        } else if self.encoding == Encoding::Packed {
            let mut builder = LeafBuilder::new(self.key_type.clone(), self.universe());
            let leaf = |values| model_leaves::push(&mut writer, &mut builder, values, self.universe());
            blocks.extend(self.blocks.iter().map(leaf));
        } else {
            blocks.extend(self.blocks.iter().map(|values| self.push_block(&mut writer, values)));
        }
        let bitmaps = self.bitmaps().iter().map(|rows| self.push_posting(&mut writer, rows)).collect();
        let directory = SegmentDirectory {
            segment_id: self.id,
            index_id: self.index_id,
            column: self.column.clone(),
            key_type: self.key_type.clone(),
            files: self.files.clone().into(),
            universe: self.universe(),
            nulls,
            opaque,
            value_count: self.blocks.iter().map(|block| block.len() as u64).sum(),
            max_key: self.blocks.last().and_then(|block| block.last()).map(|(key, _)| key.clone()),
            blocks,
            encoding: self.encoding,
            bins: if self.encoding.has_bins() { self.bins.clone() } else { vec![] },
            bitmaps,
            orders,
            riding: vec![],
            predicates: vec![],
            zones: None,
        };
        let bytes = directory.encode(writer.offset()).unwrap();
        (writer.finish(&bytes).unwrap(), directory)
    }

    /// The bins of each block.
    pub fn packed(&self) -> Vec<Packed> {
        let mut sizes = self.bins.iter().copied();
        let pack = |values: &Vec<(Key, Vec<u32>)>| {
            let mut left = values.len() as u32;
            let mut own = Vec::new();
            while left > 0 {
                own.push(sizes.next().unwrap());
                left -= own[own.len() - 1];
            }
            Block { values, sizes: &own, universe: self.universe() }.pack()
        };
        self.blocks.iter().map(pack).collect()
    }

    /// The rows of each bitmap of the coarse level, by its definition.
    fn bitmaps(&self) -> Vec<Vec<u32>> {
        let Some(level) = self.encoding.coarse_level() else { return vec![] };
        let values: Vec<&Vec<u32>> = self.blocks.iter().flatten().map(|(_, rows)| rows).collect();
        let bins = bins_of_values(self.encoding, &self.bins, values.len());
        let count = bins.last().map_or(0, |last| last + 1);
        let bitmap = |number| {
            let held = values.iter().zip(&bins).filter(|(_, bin)| level.holds(count, number, **bin));
            let mut rows: Vec<u32> = held.flat_map(|(rows, _)| rows.iter().copied()).collect();
            rows.sort();
            rows
        };
        (0..level.bitmaps(count)).map(bitmap).collect()
    }

    pub fn push_posting(&self, writer: &mut ContainerWriter, rows: &[u32]) -> PostingRef {
        let mut bytes = Vec::new();
        posting::encode(rows, self.universe(), &mut bytes);
        let offset = writer.offset();
        writer.push(&bytes);
        PostingRef { offset, length: bytes.len() as u32, rows: rows.len() as u32 }
    }

    fn push_block(&self, writer: &mut ContainerWriter, values: &[(Key, Vec<u32>)]) -> ValueBlockRef {
        let postings_offset = writer.offset();
        let packed: Vec<Value> = values
            .iter()
            .map(|(key, rows)| {
                let posting = if self.encoding.has_fine_level() {
                    self.push_posting(writer, rows)
                } else {
                    PostingRef { rows: rows.len() as u32, ..PostingRef::default() }
                };
                Value { key: key.clone(), rows: posting.rows, posting_length: posting.length }
            })
            .collect();
        let offset = writer.offset();
        let bytes = value_block::encode(&packed, &self.key_type).unwrap();
        writer.push(&bytes);
        ValueBlockRef {
            first_key: values[0].0.clone(),
            offset,
            length: bytes.len() as u32,
            values: values.len() as u32,
            rows: values.iter().map(|(_, rows)| rows.len() as u64).sum(),
            postings_offset,
            postings_length: offset - postings_offset,
            is_inner: false,
        }
    }

    /// Reads and checks everything in the bytes of a segment.
    #[expect(clippy::too_many_lines, reason = "one section after the other")]
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let opened = open_tail(bytes, bytes.len() as u64)?;
        let trailer = opened.trailer;
        let pages = |logical: Range<u64>| {
            let physical = physical_range(logical, &trailer);
            &bytes[physical.start as usize..physical.end as usize]
        };
        let read = |logical: Range<u64>| read_logical(pages(logical.clone()), logical, &trailer).map(Cow::into_owned);
        read(0..trailer.stream_length)?;
        trailer.check_header(pages(0..container::HEADER_BYTES))?;
        let mut directory = SegmentDirectory::decode(opened.directory.expect("the whole file was given"), &trailer)?;
        if directory.has_inner_pages() {
            directory = directory.with_blocks(golden_inner::leaves(&directory, read)?);
        }
        let posting = |offset: u64, length: u32, count: u32| {
            let mut rows = Vec::new();
            posting::decode(&read(offset..offset + u64::from(length))?, count, directory.universe, &mut rows)?;
            Ok(rows)
        };
        let (mut blocks, mut sizes) = (Vec::new(), Vec::new());
        for (number, block) in directory.blocks.iter().enumerate() {
            if directory.encoding == Encoding::Binned {
                let (values, own) = model_bins::read(&directory, number, read)?;
                blocks.push(values);
                sizes.extend(own);
                continue;
            }
            if directory.encoding == Encoding::Packed {
                blocks.push(model_leaves::read(&directory, number, read)?);
                continue;
            }
            if directory.encoding == Encoding::Linked {
                blocks.push(golden_links::read(&directory, number, read)?);
                continue;
            }
            let packed = read(block.offset..block.offset + u64::from(block.length))?;
            let packed = value_block::decode(&packed, &block.first_key, &directory.key_type)?;
            let mut offset = block.postings_offset;
            let mut values = Vec::new();
            let rows: u64 = packed.iter().map(|value| u64::from(value.rows)).sum();
            for value in packed {
                let found = match directory.encoding.has_fine_level() {
                    true => posting(offset, value.posting_length, value.rows)?,
                    // Found among the bitmaps below.
                    false => vec![0; value.rows as usize],
                };
                values.push((value.key, found));
                offset += u64::from(value.posting_length);
            }
            if (values.len(), rows, offset)
                != (block.values as usize, block.rows, block.postings_offset + block.postings_length)
            {
                return Err(FormatError::invalid("a value block", "of other totals", "the directory's totals"));
            }
            blocks.push(values);
        }
        let values: u64 = sizes.iter().copied().map(u64::from).sum();
        if directory.encoding == Encoding::Binned && values != directory.value_count {
            return Err(FormatError::invalid("the values of all bins", values, directory.value_count));
        }
        let list = |list: &PostingRef| posting(list.offset, list.length, list.rows);
        let (nulls, opaque) = (list(&directory.nulls)?, list(&directory.opaque)?);
        let bitmaps = directory.bitmaps.iter().map(list).collect::<Result<Vec<_>>>()?;
        let mut bins = rows_of_bins(&directory, &bitmaps, [&nulls, &opaque])?;
        let of_value = bins_of_values(directory.encoding, &directory.bins, directory.value_count as usize);
        for ((_, rows), bin) in blocks.iter_mut().flatten().zip(of_value) {
            let held = &mut bins[bin as usize];
            let fits = if directory.encoding.has_fine_level() {
                rows.iter().all(|row| held.binary_search(row).is_ok())
            } else {
                let fits = rows.len() == held.len();
                *rows = std::mem::take(held);
                fits
            };
            if !fits {
                return Err(FormatError::invalid("the rows of a bin", "others", "those of its values"));
            }
        }
        Ok(Self {
            nulls,
            opaque,
            id: directory.segment_id,
            index_id: directory.index_id,
            column: directory.column,
            key_type: directory.key_type,
            files: directory.files.to_vec(),
            blocks,
            encoding: directory.encoding,
            bins: if directory.encoding == Encoding::Binned { sizes } else { directory.bins },
        })
    }
}

fn push_bins(writer: &mut ContainerWriter, packed: &Packed) -> ValueBlockRef {
    let postings_offset = writer.offset();
    writer.push(&packed.postings);
    writer.push(&packed.orders);
    let offset = writer.offset();
    writer.push(&packed.block);
    ValueBlockRef {
        first_key: Key::Fixed(packed.bins[0].low),
        offset,
        length: packed.block.len() as u32,
        values: packed.bins.len() as u32,
        rows: packed.bins.iter().map(|bin| u64::from(bin.rows)).sum(),
        postings_offset,
        postings_length: packed.postings.len() as u64,
        is_inner: false,
    }
}

/// The bin of each value; none without a coarse level.
fn bins_of_values(encoding: Encoding, bins: &[u32], values: usize) -> Vec<u64> {
    match encoding.coarse_level() {
        None => vec![],
        Some(_) if !encoding.has_bins() => (0..values as u64).collect(),
        Some(_) => (0..).zip(bins).flat_map(|(bin, values)| std::iter::repeat_n(bin, *values as usize)).collect(),
    }
}

/// The rows of each bin: a row is in the bin whose bitmaps are those that the row is in.
fn rows_of_bins(directory: &SegmentDirectory, bitmaps: &[Vec<u32>], without: [&Vec<u32>; 2]) -> Result<Vec<Vec<u32>>> {
    let Some(level) = directory.encoding.coarse_level() else { return Ok(vec![]) };
    let count = directory.bin_count();
    let signature = |bin| (0..).zip(bitmaps).map(|(number, _)| level.holds(count, number, bin)).collect::<Vec<bool>>();
    let signatures: Vec<_> = (0..count).map(signature).collect();
    let mut bins = vec![Vec::new(); signatures.len()];
    for row in directory.files.iter().flat_map(|file| file.base..file.base + file.rows() as u32) {
        let held: Vec<bool> = bitmaps.iter().map(|rows| rows.binary_search(&row).is_ok()).collect();
        if without.iter().any(|rows| rows.binary_search(&row).is_ok()) {
            if held.contains(&true) {
                return Err(FormatError::invalid("the bitmaps of a row without value", "some", "none"));
            }
            continue;
        }
        match signatures.iter().position(|signature| *signature == held) {
            Some(bin) => bins[bin].push(row),
            None => return Err(FormatError::invalid("the bitmaps of a row", "of no bin", "those of a bin")),
        }
    }
    Ok(bins)
}

/// Files with these rows per row group, at the lowest bases that are allowed.
pub fn files(row_groups: &[&[u32]]) -> Vec<SegmentFile> {
    let mut base = 0u32;
    let mut files = Vec::new();
    for (number, row_groups) in row_groups.iter().enumerate() {
        let file = SegmentFile {
            path: format!("part-{number}.parquet"),
            base,
            row_groups: row_groups.to_vec(),
            footer_hash: 0xf000_0000_0000_0000 + number as u64,
            column_hash: 0xc000_0000_0000_0000 + number as u64,
        };
        base = (base + file.rows() as u32).next_multiple_of(BASE_ALIGNMENT);
        files.push(file);
    }
    files
}
