//! Leaves of a packed tree as plain values.

use std::borrow::Cow;
use std::ops::Range;

use lakemark_format::leaf::{KeyRows, LeafBuilder, LeafEntry, MAX_INLINE_POSTING, MAX_LISTED_ROWS, PackedLeaf};
use lakemark_format::*;

use crate::model_bins::Values;

/// One leaf of all these values, from the builder of those before it.
pub fn push(writer: &mut ContainerWriter, builder: &mut LeafBuilder, values: &Values, universe: u32) -> ValueBlockRef {
    let postings_offset = writer.offset();
    for (key, rows) in values {
        let held = held(writer, rows, universe);
        let entry = LeafEntry { key: key.clone(), rows: rows.len() as u32, rows_in: held };
        assert_eq!(builder.push(entry, usize::MAX), Ok(vec![]));
    }
    let leaf = builder.finish(usize::MAX).unwrap().unwrap();
    assert_eq!(builder.finish(usize::MAX), Ok(None));
    let offset = writer.offset();
    writer.push(&leaf.bytes);
    ValueBlockRef {
        first_key: leaf.first_key,
        offset,
        length: leaf.bytes.len() as u32,
        values: leaf.keys,
        rows: leaf.rows,
        postings_offset,
        postings_length: offset - postings_offset,
        is_inner: false,
    }
}

fn held(writer: &mut ContainerWriter, rows: &[u32], universe: u32) -> KeyRows<'static> {
    if rows[rows.len() - 1] - rows[0] + 1 == rows.len() as u32 {
        return KeyRows::Run(rows[0]);
    }
    if rows.len() <= MAX_LISTED_ROWS {
        return KeyRows::Listed(rows.to_vec());
    }
    let mut bytes = Vec::new();
    posting::encode(rows, universe, &mut bytes);
    if bytes.len() <= MAX_INLINE_POSTING {
        return KeyRows::Inline(Cow::Owned(bytes));
    }
    let (offset, length) = (writer.offset(), bytes.len() as u32);
    writer.push(&bytes);
    KeyRows::Long { offset, length }
}

/// The values of the leaf numbered `number`.
pub fn read(
    directory: &SegmentDirectory,
    number: usize,
    read: impl Fn(Range<u64>) -> Result<Vec<u8>>,
) -> Result<Values> {
    let (block, universe) = (&directory.blocks[number], directory.universe);
    let bytes = read(block.offset..block.offset + u64::from(block.length))?;
    let leaf = PackedLeaf::decode(&bytes, &block.first_key, block.values, &directory.key_type, universe)?;
    let types: Vec<KeyType> = directory.riding.iter().map(|column| column.key_type.clone()).collect();
    let leaf = leaf.with_riding(!types.is_empty());
    let mut values = Vec::new();
    for number in 0..leaf.heads().len() {
        if !types.is_empty() {
            leaf.riding_segment(number, &types, |_| true)?;
        }
        for entry in leaf.segment(number)? {
            let mut rows = Vec::new();
            match entry.rows_in {
                KeyRows::Run(first) => rows.extend(first..first + entry.rows),
                KeyRows::Listed(listed) => rows.extend(listed),
                KeyRows::Inline(bytes) => posting::decode(&bytes, entry.rows, universe, &mut rows)?,
                KeyRows::Long { offset, length } => {
                    let end = offset.saturating_add(length.into());
                    if end > block.offset {
                        return Err(FormatError::invalid("a long posting", end, "before its leaf"));
                    }
                    posting::decode(&read(offset..end)?, entry.rows, universe, &mut rows)?;
                }
            }
            values.push((entry.key, rows));
        }
    }
    let rows: u64 = values.iter().map(|(_, rows)| rows.len() as u64).sum();
    if rows != block.rows {
        return Err(FormatError::invalid("the rows of a leaf", rows, block.rows));
    }
    Ok(values)
}
