//! A segment of links, as plain values.

use std::borrow::Cow;
use std::ops::Range;

use lakemark_format::leaf::{CountedRows, KeyRows};
use lakemark_format::links::{LinkLeafBuilder, LinkLeafBytes, decode_link_rows};
use lakemark_format::*;

use crate::golden::golden;
use crate::model::{Segment, files};
use crate::model_bins::Values;

/// The golden files: links of texts with predicates, and links of numbers without.
pub const NAMES: [&str; 2] = ["links.lmx", "links-numbers.lmx"];

/// A segment of links, each with its rows. All are in one leaf, unless the builder makes more.
#[derive(Debug, PartialEq)]
pub struct Links(pub Segment);

impl Links {
    /// The file, and its directory.
    pub fn write(&self) -> (Vec<u8>, SegmentDirectory) {
        let Segment { id, index_id, column, key_type, files, blocks, .. } = &self.0;
        let universe = self.0.universe();
        let mut writer = ContainerWriter::new(ContentKind::Segment, *id);
        let nulls = self.0.push_posting(&mut writer, &self.0.nulls);
        let opaque = self.0.push_posting(&mut writer, &self.0.opaque);
        let mut builder = LinkLeafBuilder::new(key_type.clone()).unwrap();
        let mut leaves = Vec::new();
        for (key, rows) in blocks.iter().flatten() {
            leaves.extend(builder.push(key.clone(), counted(rows, universe)).unwrap());
        }
        while let Some(leaf) = builder.finish().unwrap() {
            leaves.push(leaf);
        }
        let mut refs = Vec::new();
        for leaf in &leaves {
            refs.push(push(&mut writer, leaf));
        }
        let directory = SegmentDirectory {
            segment_id: *id,
            index_id: *index_id,
            column: column.clone(),
            key_type: key_type.clone(),
            files: files.clone().into(),
            universe,
            nulls,
            opaque,
            value_count: blocks.iter().map(|block| block.len() as u64).sum(),
            max_key: blocks.last().and_then(|block| block.last()).map(|(key, _)| key.clone()),
            blocks: refs,
            encoding: Encoding::Linked,
            bins: vec![],
            bitmaps: vec![],
            orders: vec![],
            riding: vec![],
            predicates: builder.take_predicates(),
            zones: None,
        };
        let bytes = directory.encode(writer.offset()).unwrap();
        (writer.finish(&bytes).unwrap(), directory)
    }
}

/// The rows of a link as a writer has them.
fn counted(rows: &[u32], universe: u32) -> CountedRows<'static> {
    let count = rows.len() as u32;
    if rows[rows.len() - 1] - rows[0] + 1 == count {
        return CountedRows { rows: count, rows_in: KeyRows::Run(rows[0]) };
    }
    let mut bytes = Vec::new();
    posting::encode(rows, universe, &mut bytes);
    CountedRows { rows: count, rows_in: KeyRows::Inline(Cow::Owned(bytes)) }
}

fn push(writer: &mut ContainerWriter, leaf: &LinkLeafBytes) -> ValueBlockRef {
    let postings_offset = writer.offset();
    writer.push(&leaf.row_bytes);
    let offset = writer.offset();
    writer.push(&leaf.bytes);
    ValueBlockRef {
        first_key: leaf.first_key.clone(),
        offset,
        length: leaf.bytes.len() as u32,
        values: leaf.links,
        rows: leaf.rows,
        postings_offset,
        postings_length: leaf.row_bytes.len() as u64,
        is_inner: false,
    }
}

/// The links of the leaf numbered `number`, with their rows.
pub fn read(
    directory: &SegmentDirectory,
    number: usize,
    read: impl Fn(Range<u64>) -> Result<Vec<u8>>,
) -> Result<Values> {
    let (block, universe) = (&directory.blocks[number], directory.universe);
    let shape = LinkShape::of(&directory.key_type)?;
    let leaf = read(block.offset..block.offset + u64::from(block.length))?;
    let leaf = LinkLeaf::decode(&leaf, block.values, &shape, directory.predicates.len())?;
    let keys = leaf.keys(&shape, &directory.predicates)?;
    let held = read(block.postings_offset..block.postings_offset + block.postings_length)?;
    let mut links = Vec::new();
    for (key, CountedRows { rows: count, rows_in }) in
        keys.into_iter().zip(decode_link_rows(&held, block.values, universe)?)
    {
        let mut rows = Vec::new();
        match rows_in {
            KeyRows::Run(first) => rows.extend(first..first + count),
            KeyRows::Listed(listed) => rows.extend(listed),
            KeyRows::Inline(bytes) => posting::decode(&bytes, count, universe, &mut rows)?,
            KeyRows::Long { offset, length } => {
                posting::decode(&read(offset..offset + u64::from(length))?, count, universe, &mut rows)?;
            }
        }
        links.push((key, rows));
    }
    let rows: u64 = links.iter().map(|(_, rows)| rows.len() as u64).sum();
    if rows != block.rows || links.first().is_none_or(|(key, _)| *key != block.first_key) {
        return Err(FormatError::invalid("a leaf of links", "another", "the one of the directory"));
    }
    Ok(links)
}

fn text(text: &str) -> Option<Key> {
    Some(Key::Bytes(text.as_bytes().to_vec()))
}

/// Terms, what they are to each other, and a row without an object. One link is in three rows, and one in two that are apart.
pub fn terms() -> Links {
    let key_type = KeyType::Composite(vec![KeyType::Utf8; 3].into());
    let shape = LinkShape::of(&key_type).unwrap();
    let link = |s: &str, p: Option<Key>, o: Option<Key>| Key::Bytes(shape.key_of(&text(s), Some(&p), &o));
    let links = vec![
        (link("GO:0001", text("is_a"), text("GO:0003")), vec![0]),
        (link("GO:0001", text("part_of"), text("GO:0003")), vec![1, 2, 3]),
        (link("GO:0001", text("part_of"), text("GO:0004")), vec![4]),
        (link("GO:0002", None, text("GO:0002")), vec![5]),
        (link("GO:0002", text("is_a"), None), vec![7]),
        (link("GO:0002", text("is_a"), text("GO:0001")), vec![6, 64]),
    ];
    Links(segment(*b"segment-of-links", "s\u{1}p\u{1}o", key_type, &[&[4, 4], &[1]], links))
}

/// Nodes by numbers, linked with each other, without predicates: a row without a near end, a circle, a node that is linked with itself.
pub fn nodes() -> Links {
    let key_type = KeyType::Composite(vec![KeyType::Int64; 2].into());
    let shape = LinkShape::of(&key_type).unwrap();
    let number = |number: Option<i64>| number.map(|number| Key::Fixed(key_of_i64(number)));
    let link = |near, far| Key::Bytes(shape.key_of(&number(near), None, &number(far)));
    let ends =
        [(None, Some(1)), (Some(-5), Some(7)), (Some(1), Some(1)), (Some(1), Some(1 << 40)), (Some(7), Some(-5))];
    let links = ends.into_iter().zip(0..).map(|((near, far), row)| (link(near, far), vec![row])).collect();
    Links(segment(*b"segment-of-nodes", "near\u{1}far", key_type, &[&[5]], links))
}

fn segment(
    id: [u8; 16],
    column: &str,
    key_type: KeyType,
    row_groups: &[&[u32]],
    links: Vec<(Key, Vec<u32>)>,
) -> Segment {
    Segment {
        id,
        index_id: *b"index-over-edges",
        column: column.into(),
        key_type,
        files: files(row_groups),
        nulls: vec![],
        opaque: vec![],
        blocks: vec![links],
        encoding: Encoding::Linked,
        bins: vec![],
    }
}

pub fn all() -> [(&'static str, Links); 2] {
    let [terms_name, nodes_name] = NAMES;
    [(terms_name, terms()), (nodes_name, nodes())]
}

#[test]
fn the_golden_segments_of_links_are_read_and_written() {
    for (name, links) in all() {
        let (encoded, _) = links.write();
        let golden = golden(name, &encoded);
        assert_eq!(Segment::read(&golden).as_ref(), Ok(&links.0), "{name} is read as another value");
        assert!(golden == encoded, "{name} is written with other bytes");
    }
}
