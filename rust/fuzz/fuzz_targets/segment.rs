//! Reads every part of a segment from arbitrary bytes: as they are, and with checksums and lengths put right, since
//! random bytes would hardly ever pass those.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;

use lakemark_format::inner_page;
use lakemark_format::leaf::{KeyRows, PackedLeaf, RidingEntries};
use lakemark_format::links::{MAX_LINK_BYTES, decode_link_rows};
use lakemark_format::order::BinOrder;
use lakemark_format::ramp::{self, Ramp};
use lakemark_format::riding::MAX_RIDING_BYTES;
use lakemark_format::zones::{Filters, Zones, slice_bytes};
use lakemark_format::{
    Encoding, Key, KeyType, LinkEnd, LinkLeaf, LinkShape, PostingRef, Result, RidingValue, SegmentDirectory, Trailer,
    ValueBlockRef, bin_block, filter, open_tail, physical_range, posting, read_logical, value_block,
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
    let mut directory = SegmentDirectory::decode(opened.directory.unwrap_or_default(), trailer)?;
    let again = directory.encode(trailer.stream_length)?;
    assert_eq!(Some(again.as_slice()), opened.directory, "a directory has one encoding");
    for list in [directory.nulls, directory.opaque].iter().chain(&directory.bitmaps) {
        rows(bytes, trailer, *list, directory.universe)?;
    }
    if let Some(found) = &directory.zones {
        zones(bytes, trailer, found)?;
    }
    if directory.has_inner_pages() {
        directory = directory.with_blocks(leaves(bytes, trailer, &directory)?);
    }
    for (number, block) in directory.blocks.iter().enumerate() {
        let packed = logical(bytes, trailer, block.offset, block.length.into())?;
        if directory.encoding == Encoding::Binned {
            bins(bytes, trailer, &directory, (number, &packed))?;
            continue;
        }
        if directory.encoding == Encoding::Packed {
            leaf(bytes, trailer, &directory, (number, &packed))?;
            continue;
        }
        if directory.encoding == Encoding::Linked {
            links(bytes, trailer, &directory, (number, &packed))?;
            continue;
        }
        let values = value_block::decode(&packed, &block.first_key, &directory.key_type)?;
        assert!(values.is_sorted_by(|a, b| a.key < b.key));
        let mut offset = block.postings_offset;
        for value in values {
            let list = PostingRef { offset, length: value.posting_length, rows: value.rows };
            if directory.encoding.has_fine_level() {
                rows(bytes, trailer, list, directory.universe)?;
            }
            offset += u64::from(value.posting_length);
        }
    }
    Ok(())
}

/// Probes every zone for some keys: whatever the filters hold, a search stays inside them.
fn zones(bytes: &[u8], trailer: &Trailer, zones: &Zones) -> Result<()> {
    let length = zones.filter_bytes();
    let filters = match length {
        0 => vec![],
        _ => logical(bytes, trailer, zones.offset, length)?,
    };
    let byte = |at: u64| filters.get(at as usize).expect("a byte of the filters");
    let texts = [b"".as_slice(), b"user/001"];
    let keys = texts.into_iter().map(|text| Key::Bytes(text.to_vec()));
    let hashes = keys.chain([Key::Fixed(77)]).map(|key| filter::hash(&key));
    for hash in hashes.chain([0, u64::MAX]) {
        let mut start = 0;
        for (zone, keys) in zones.keys.iter().enumerate() {
            match zones.filters {
                Filters::Each(density) => {
                    let shape = density.shape(*keys);
                    let block = start + u64::from(shape.block(hash)) * u64::from(shape.block_bits / 8);
                    start += shape.bytes();
                    let block = &filters[block as usize..][..(shape.block_bits / 8) as usize];
                    let held = shape
                        .bits_in_block(hash)
                        .all(|bit| *keys > 0 && block[(bit / 8) as usize] >> (bit % 8) & 1 == 1);
                    assert_eq!(filter::may_contain(block, shape, hash), held);
                }
                Filters::Sliced(_) if *keys == 0 => {}
                Filters::Sliced(shape) => {
                    let slice = slice_bytes(zones.keys.len());
                    for position in shape.positions(hash) {
                        assert!(position < shape.bits());
                        byte(position * slice + zone as u64 / 8);
                    }
                }
            }
        }
        assert!(start <= length);
    }
    Ok(())
}

/// The leaves of all inner pages, each of which has a place of its own.
fn leaves(bytes: &[u8], trailer: &Trailer, directory: &SegmentDirectory) -> Result<Vec<ValueBlockRef>> {
    let mut found: Vec<ValueBlockRef> = Vec::new();
    for page in &directory.blocks {
        let packed = logical(bytes, trailer, page.offset, page.length.into())?;
        let leaves = inner_page::decode(&packed, page, &directory.key_type)?;
        assert!(leaves.is_sorted_by(|a, b| a.first_key < b.first_key && a.offset < b.offset));
        assert!(leaves.iter().all(|leaf| !leaf.is_inner && leaf.rows >= u64::from(leaf.values)));
        found.extend(leaves);
    }
    Ok(found)
}

/// Takes a leaf of a packed tree apart.
fn leaf(bytes: &[u8], trailer: &Trailer, directory: &SegmentDirectory, (number, packed): (usize, &[u8])) -> Result<()> {
    let (block, universe) = (&directory.blocks[number], directory.universe);
    let leaf = PackedLeaf::decode(packed, &block.first_key, block.values, &directory.key_type, universe)?;
    let types: Vec<KeyType> = directory.riding.iter().map(|column| column.key_type.clone()).collect();
    let leaf = leaf.with_riding(!types.is_empty());
    assert!(leaf.heads().is_sorted_by(|a, b| a < b));
    for number in 0..leaf.heads().len() {
        let without_keys = leaf.rows_of_segment(number);
        for held in without_keys.iter().flatten() {
            let KeyRows::Run(first) = held.rows_in else { continue };
            assert!(first.checked_add(held.rows).is_some_and(|end| end <= universe));
        }
        // Keys are asked for in their order, and of those that are wanted rows are within the file.
        let (mut before, mut rows_wanted) = (None, 0);
        let wanted = leaf.visit_wanted(
            number,
            |key| {
                assert!(before.replace(key.clone()).is_none_or(|before| before < *key));
                true
            },
            |held| {
                rows_wanted += u64::from(held.rows);
                Ok(())
            },
        );
        let entries = leaf.segment(number)?;
        wanted?;
        if !types.is_empty() {
            riding(&leaf, number, &types)?;
        }
        assert!(entries.is_sorted_by(|a, b| a.key < b.key));
        let count = |rows: u32| u64::from(rows);
        let rows_without: u64 = without_keys?.iter().map(|held| count(held.rows)).sum();
        let rows_of_entries = entries.iter().map(|entry| count(entry.rows)).sum::<u64>();
        assert_eq!((rows_without, rows_wanted), (rows_of_entries, rows_of_entries));
        for entry in entries {
            match entry.rows_in {
                KeyRows::Run(first) => assert!(first.checked_add(entry.rows).is_some_and(|end| end <= universe)),
                KeyRows::Listed(rows) => {
                    assert!(rows.is_sorted_by(|a, b| a < b) && rows.last().is_none_or(|last| *last < universe));
                    assert_eq!(rows.len(), entry.rows as usize);
                }
                KeyRows::Inline(posting) => {
                    let mut rows: Vec<u32> = Vec::new();
                    posting::decode(&posting, entry.rows, universe, &mut rows)?;
                    assert_eq!(rows.len(), entry.rows as usize);
                }
                KeyRows::Long { offset, length } => {
                    rows(bytes, trailer, PostingRef { offset, length, rows: entry.rows }, universe)?;
                }
            }
        }
    }
    Ok(())
}

/// Takes a leaf of links apart: each has a near and a far end, few bytes are no many, and rows are within the files.
fn links(
    bytes: &[u8],
    trailer: &Trailer,
    directory: &SegmentDirectory,
    (number, packed): (usize, &[u8]),
) -> Result<()> {
    let (block, universe) = (&directory.blocks[number], directory.universe);
    let shape = LinkShape::of(&directory.key_type)?;
    let leaf = LinkLeaf::decode(packed, block.values, &shape, directory.predicates.len())?;
    assert_eq!(leaf.link_count(), block.values as usize);
    let (mut link, mut held) = (0, 0);
    for place in 0..leaf.node_count() {
        let node = leaf.node(place).expect("a node");
        assert_eq!(leaf.find(node), Some(place));
        for group in leaf.groups(place) {
            assert!(group.links.start == link && group.links.end > link);
            link = group.links.end;
            for far in group.links.clone() {
                if let LinkEnd::Bytes(text) = leaf.far(far).expect("a far end") {
                    held += text.len();
                }
            }
        }
    }
    assert!(link == leaf.link_count() && held <= MAX_LINK_BYTES);
    let keys = leaf.keys(&shape, &directory.predicates);
    assert!(keys.is_err() || keys.iter().flatten().is_sorted_by(|a, b| a < b));
    let of_links = logical(bytes, trailer, block.postings_offset, block.postings_length)?;
    for of_link in decode_link_rows(&of_links, block.values, universe)? {
        match of_link.rows_in {
            KeyRows::Run(first) => assert!(first.checked_add(of_link.rows).is_some_and(|end| end <= universe)),
            KeyRows::Listed(_) => panic!("rows of links are in no list"),
            KeyRows::Inline(posting) => {
                let mut found: Vec<u32> = Vec::new();
                posting::decode(&posting, of_link.rows, universe, &mut found)?;
                assert_eq!(found.len(), of_link.rows as usize);
            }
            KeyRows::Long { offset, length } => {
                rows(bytes, trailer, PostingRef { offset, length, rows: of_link.rows }, universe)?;
            }
        }
    }
    Ok(())
}

/// Reads what rides along with an embedded segment: every row of a key that rides has a value in each column, and few bytes are no many.
fn riding(leaf: &PackedLeaf<'_>, number: usize, types: &[KeyType]) -> Result<()> {
    let RidingEntries { entries, riding } = leaf.riding_segment(number, types, |_| true)?;
    let mut bytes = 0;
    for (key, entry) in entries.iter().enumerate() {
        for row in 0..entry.rows as usize {
            for column in 0..types.len() {
                let value = riding.value(column, key, row);
                assert_eq!(value.is_some(), riding.rides(key));
                bytes += if let Some(RidingValue::Bytes(text)) = value { text.len() } else { 0 };
            }
            if !riding.rides(key) {
                break;
            }
        }
    }
    assert!(bytes <= MAX_RIDING_BYTES * types.len());
    Ok(())
}

/// Takes a block of bins apart, ramps, postings and orders.
fn bins(bytes: &[u8], trailer: &Trailer, directory: &SegmentDirectory, (number, packed): (usize, &[u8])) -> Result<()> {
    let block = &directory.blocks[number];
    let bins = bin_block::decode(packed, &block.first_key, &directory.key_type)?;
    assert!(bins.is_sorted_by(|a, b| a.high < b.low));
    let (mut offset, mut at) = (block.postings_offset, directory.orders_of(number).start);
    for bin in &bins {
        let (length, universe) = (bin.posting_length, directory.universe);
        if bin.is_ramps() {
            let ramps = logical(bytes, trailer, offset, length.into())?;
            let ramps = ramp::decode(&ramps, bin, universe)?;
            let entries: Vec<_> = ramps.iter().flat_map(Ramp::iter).collect();
            assert!(entries.is_sorted_by(|a, b| a < b) && entries.len() == bin.rows as usize);
        } else {
            let list = PostingRef { offset, length, rows: bin.rows };
            rows(bytes, trailer, list, universe)?;
        }
        if bin.order_length > 0 {
            let order = logical(bytes, trailer, at, bin.order_length.into())?;
            let order = BinOrder::decode(&order, bin)?;
            assert!(order.keys()?.is_sorted());
            assert!(order.ranks(0..bin.rows)?.iter().all(|rank| *rank < bin.rows));
            assert!(order.entries_below(bin.high, false)? < bin.rows);
        }
        (offset, at) = (offset + u64::from(length), at + u64::from(bin.order_length));
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
    read_logical(bytes.get(pages.start as usize..pages.end as usize).unwrap_or_default(), range, trailer)
        .map(Cow::into_owned)
}
