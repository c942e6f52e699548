//! A segment as plain values: what the golden files hold. Writing and reading it touches every byte of a file.

use std::ops::Range;

use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::value_block::Value;
use lakemark_format::*;

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
}

impl Segment {
    pub fn universe(&self) -> u32 {
        self.files.last().map_or(0, |file| file.base + file.rows() as u32)
    }

    /// The file, and its directory.
    pub fn write(&self) -> (Vec<u8>, SegmentDirectory) {
        let mut writer = ContainerWriter::new(ContentKind::Segment, self.id);
        let nulls = self.push_posting(&mut writer, &self.nulls);
        let opaque = self.push_posting(&mut writer, &self.opaque);
        let blocks: Vec<_> = self.blocks.iter().map(|values| self.push_block(&mut writer, values)).collect();
        let directory = SegmentDirectory {
            segment_id: self.id,
            index_id: self.index_id,
            column: self.column.clone(),
            key_type: self.key_type,
            files: self.files.clone(),
            universe: self.universe(),
            nulls,
            opaque,
            value_count: self.blocks.iter().map(|block| block.len() as u64).sum(),
            max_key: self.blocks.last().and_then(|block| block.last()).map(|(key, _)| key.clone()),
            blocks,
        };
        let bytes = directory.encode(writer.offset()).unwrap();
        (writer.finish(&bytes).unwrap(), directory)
    }

    fn push_posting(&self, writer: &mut ContainerWriter, rows: &[u32]) -> PostingRef {
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
                let posting = self.push_posting(writer, rows);
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
        }
    }

    /// Reads and checks everything in the bytes of a segment.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let opened = open_tail(bytes, bytes.len() as u64)?;
        let trailer = opened.trailer;
        let pages = |logical: Range<u64>| {
            let physical = physical_range(logical, &trailer);
            &bytes[physical.start as usize..physical.end as usize]
        };
        let read = |logical: Range<u64>| read_logical(pages(logical.clone()), logical, &trailer);
        read(0..trailer.stream_length)?;
        trailer.check_header(pages(0..container::HEADER_BYTES))?;
        let directory = SegmentDirectory::decode(opened.directory.expect("the whole file was given"), &trailer)?;
        let posting = |offset: u64, length: u32, count: u32| {
            let mut rows = Vec::new();
            posting::decode(&read(offset..offset + u64::from(length))?, count, directory.universe, &mut rows)?;
            Ok(rows)
        };
        let mut blocks = Vec::new();
        for block in &directory.blocks {
            let packed = read(block.offset..block.offset + u64::from(block.length))?;
            let packed = value_block::decode(&packed, &block.first_key, &directory.key_type)?;
            let mut offset = block.postings_offset;
            let mut values = Vec::new();
            for value in packed {
                values.push((value.key, posting(offset, value.posting_length, value.rows)?));
                offset += u64::from(value.posting_length);
            }
            let rows: u64 = values.iter().map(|(_, rows)| rows.len() as u64).sum();
            if (values.len(), rows, offset)
                != (block.values as usize, block.rows, block.postings_offset + block.postings_length)
            {
                return Err(FormatError::invalid("a value block", "of other totals", "the directory's totals"));
            }
            blocks.push(values);
        }
        Ok(Self {
            nulls: posting(directory.nulls.offset, directory.nulls.length, directory.nulls.rows)?,
            opaque: posting(directory.opaque.offset, directory.opaque.length, directory.opaque.rows)?,
            id: directory.segment_id,
            index_id: directory.index_id,
            column: directory.column,
            key_type: directory.key_type,
            files: directory.files,
            blocks,
        })
    }
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
