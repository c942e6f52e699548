//! Reads every part of a segment from arbitrary bytes: as they are, and with checksums and lengths put right, since
//! random bytes would hardly ever pass those.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{
    PostingRef, Result, SegmentDirectory, Trailer, open_tail, physical_range, posting,
    read_logical, value_block,
};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| {
    // An error is the expected end; only a panic or an allocation beyond the limit is a finding.
    drop(read(bytes));
    if let Some(bytes) = repair::repair(bytes) {
        drop(read(&bytes));
    }
});

/// Follows every reference in the file, as searches, counts and verification do.
fn read(bytes: &[u8]) -> Result<()> {
    let opened = open_tail(bytes, bytes.len() as u64)?;
    let trailer = &opened.trailer;
    let directory = SegmentDirectory::decode(opened.directory.unwrap_or_default(), trailer)?;
    let again = directory.encode(trailer.stream_length)?;
    assert_eq!(
        Some(again.as_slice()),
        opened.directory,
        "a directory has one encoding"
    );
    for list in [directory.nulls, directory.opaque]
        .iter()
        .chain(&directory.bitmaps)
    {
        rows(bytes, trailer, *list, directory.universe)?;
    }
    for block in &directory.blocks {
        let packed = logical(bytes, trailer, block.offset, block.length.into())?;
        let values = value_block::decode(&packed, &block.first_key, &directory.key_type)?;
        assert!(values.is_sorted_by(|a, b| a.key < b.key));
        let mut offset = block.postings_offset;
        for value in values {
            let list = PostingRef {
                offset,
                length: value.posting_length,
                rows: value.rows,
            };
            if directory.encoding.has_fine_level() {
                rows(bytes, trailer, list, directory.universe)?;
            }
            offset += u64::from(value.posting_length);
        }
    }
    Ok(())
}

fn rows(bytes: &[u8], trailer: &Trailer, list: PostingRef, universe: u32) -> Result<()> {
    let packed = logical(bytes, trailer, list.offset, list.length.into())?;
    let mut rows: Vec<u32> = Vec::new();
    posting::decode(&packed, list.rows, universe, &mut rows)?;
    assert_eq!(rows.len(), list.rows as usize);
    assert!(rows.is_sorted_by(|a, b| a < b) && rows.last().is_none_or(|last| *last < universe));
    Ok(())
}

fn logical(bytes: &[u8], trailer: &Trailer, offset: u64, length: u64) -> Result<Vec<u8>> {
    let range = offset..offset.saturating_add(length);
    let pages = physical_range(range.clone(), trailer);
    read_logical(
        bytes
            .get(pages.start as usize..pages.end as usize)
            .unwrap_or_default(),
        range,
        trailer,
    )
}
