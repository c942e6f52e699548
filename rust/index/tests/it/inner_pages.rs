//! Packed trees of three levels against those of two, whose directories have all leaves themselves.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use lakemark_format::container::open_tail;
use lakemark_format::inner_page;
use lakemark_format::key::{Key, KeyType, key_of_i64};
use lakemark_format::segment::{SegmentDirectory, SegmentFile, ValueBlockRef};
use lakemark_format::{Encoding, MAX_KEY_LENGTH};
use lakemark_index::bitmap::{
    ChunkBuilder, ChunkSource, CountSearch, Estimate, GroupValue, InnerPages, LeavesFor, Search, SegmentMeta,
    ValueGroups, merge_in_pages,
};
use lakemark_index::zones::ZoneOptions;
use lakemark_index::{KeyRanges, Test};

use crate::bitmap::Segment;

const ROWS: usize = 24_000;

/// A segment of one file, with at most so many leaves in its directory and in each inner page.
fn build(values: &ArrayRef, key_type: &KeyType, most_leaves: usize) -> Segment {
    let mut builder = ChunkBuilder::new(key_type);
    builder.push(values.as_ref()).unwrap();
    let row_groups = vec![values.len() as u32];
    let meta = SegmentMeta {
        segment_id: [7; 16],
        index_id: [8; 16],
        column: "c".into(),
        key_type: key_type.clone(),
        files: vec![SegmentFile { path: "f.parquet".into(), base: 0, row_groups, footer_hash: 1, column_hash: 2 }],
        encoding: Encoding::Packed,
        bins: None,
        precision: None,
        zones: ZoneOptions::default(),
        riding: Vec::new(),
    };
    let mut bytes = Vec::new();
    let sources = vec![ChunkSource::memory(0, builder.finish())];
    let summary = merge_in_pages(meta, sources, most_leaves, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    let opened = open_tail(&bytes, bytes.len() as u64).unwrap();
    let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer).unwrap();
    Segment { directory: Arc::new(directory), summary: summary.unwrap(), bytes }
}

/// A segment to search for some keys, and how many inner pages were read for it.
struct Searched {
    segment: Segment,
    pages: usize,
}

fn with_leaves(segment: &Segment, keys: &KeyRanges, leaves_for: LeavesFor) -> Searched {
    let directory = &segment.directory;
    let inner = InnerPages::new(directory, keys, leaves_for);
    let place = |page: &ValueBlockRef| page.offset..page.offset + u64::from(page.length);
    let bytes = segment.read(&inner.pages(directory).map(place).collect::<Vec<_>>());
    let decode = |(page, bytes): (&ValueBlockRef, &bytes::Bytes)| {
        inner_page::decode(bytes, page, &directory.key_type).unwrap().into()
    };
    let leaves: Vec<Arc<[ValueBlockRef]>> = inner.pages(directory).zip(&bytes).map(decode).collect();
    let directory = match inner.is_empty() {
        true => Arc::clone(directory),
        false => Arc::new(inner.replaced(directory, &leaves).unwrap()),
    };
    assert_eq!(directory.entry_count(), segment.directory.entry_count(), "no leaf is lost");
    let segment = Segment { bytes: segment.bytes.clone(), directory, summary: segment.summary };
    Searched { segment, pages: leaves.len() }
}

fn values(segment: &Segment, keys: &KeyRanges) -> Vec<GroupValue> {
    let groups = ValueGroups::new(&segment.directory, keys.clone());
    let all = 0..groups.block_count();
    groups.values(all.clone(), &segment.read(&groups.block_ranges(all))).unwrap()
}

fn count(segment: &Segment, test: &Test) -> Option<u64> {
    let mut count = CountSearch::new(&segment.directory, test)?;
    assert!(count.second_ranges(&segment.read(&count.first_ranges())).unwrap().is_empty());
    Some(count.finish(&[]).unwrap())
}

/// Looks for keys in both trees, and gives how many inner pages were read for rows, for keys and for counts.
fn check(flat: &Segment, inner: &Segment, keys: &KeyRanges) -> [usize; 3] {
    let test = Test::Ranges(keys.clone());
    let rows = with_leaves(inner, keys, LeavesFor::Rows);
    assert_eq!(rows.segment.search(&test).0, flat.search(&test).0, "{keys:?}");
    let of_keys = with_leaves(inner, keys, LeavesFor::Keys);
    assert_eq!(values(&of_keys.segment, keys), values(flat, keys), "{keys:?}");
    let counts = with_leaves(inner, keys, LeavesFor::Counts);
    assert_eq!(count(&counts.segment, &test), count(flat, &test), "{keys:?}");
    let exactly = |segment: &Segment| {
        let estimate = Estimate::new(&segment.directory, &test);
        estimate.exactly(&segment.read(&estimate.edge_ranges())).rows
    };
    assert_eq!(exactly(&counts.segment), exactly(flat), "{keys:?}");
    if keys.ranges().len() == 1 {
        check_ends(flat, inner, keys);
    }
    [rows.pages, of_keys.pages, counts.pages]
}

/// The first and the last key of a range are in leaves of four inner pages.
fn check_ends(flat: &Segment, inner: &Segment, keys: &KeyRanges) {
    let Searched { segment, pages } = with_leaves(inner, keys, LeavesFor::Ends);
    assert!(pages <= 4, "{pages} pages for {keys:?}");
    let groups = ValueGroups::new(&segment.directory, keys.clone());
    let of_block = |block: usize| {
        let part = block..block + 1;
        groups.values(part.clone(), &segment.read(&groups.block_ranges(part))).unwrap()
    };
    let all = values(flat, keys);
    let has_some = |values: &Vec<GroupValue>| !values.is_empty();
    let first = (0..groups.block_count()).map(of_block).find(has_some);
    assert_eq!(first.as_ref().and_then(|values| values.first()), all.first(), "{keys:?}");
    let last = (0..groups.block_count()).rev().map(of_block).find(has_some);
    assert_eq!(last.as_ref().and_then(|values| values.last()), all.last(), "{keys:?}");
}

/// Ranges of keys around these, and some of them.
fn requests(keys: &[Key]) -> Vec<KeyRanges> {
    let mut requests = vec![KeyRanges::all(), KeyRanges::none(), KeyRanges::points(keys.to_vec())];
    for (number, key) in keys.iter().enumerate() {
        requests.push(KeyRanges::points(vec![key.clone()]));
        requests.push(KeyRanges::points(vec![key.clone()]).complement());
        for inclusive in [false, true] {
            requests.push(KeyRanges::less_than(key.clone(), inclusive));
            requests.push(KeyRanges::greater_than(key.clone(), inclusive));
        }
        for other in keys.iter().skip(number + 1).step_by(5) {
            requests.push(KeyRanges::between(Bound::Included(key.clone()), Bound::Excluded(other.clone())));
            let open = KeyRanges::between(Bound::Excluded(key.clone()), Bound::Included(other.clone()));
            requests.push(open.complement());
        }
    }
    requests
}

fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Every 50th row is NULL, every third has a number of few, and all others have numbers of their own.
fn numbers() -> ArrayRef {
    let number = |row: usize| match row {
        row if row % 50 == 3 => None,
        row if row % 3 == 1 => Some(row as i64 % 7 * 1_000_000_007),
        row => Some(spread(row as u64).cast_signed()),
    };
    Arc::new((0..ROWS).map(number).collect::<Int64Array>())
}

#[test]
fn searches_of_numbers_find_the_same_with_inner_pages() {
    let values = numbers();
    let flat = build(&values, &KeyType::Int64, usize::MAX);
    let inner = build(&values, &KeyType::Int64, 3);
    let pages = inner.directory.blocks.len();
    assert!(!flat.directory.has_inner_pages() && inner.directory.has_inner_pages());
    assert!(pages >= 8 && pages == flat.directory.blocks.len().div_ceil(3), "{pages} pages");
    let mut keys: Vec<Key> = flat.directory.blocks.iter().step_by(4).map(|block| block.first_key.clone()).collect();
    keys.extend([0, 1, -5, 3 * 1_000_000_007, i64::MIN, i64::MAX].map(|number| Key::Fixed(key_of_i64(number))));
    keys.extend((0..ROWS as u64).step_by(5000).map(|row| Key::Fixed(key_of_i64(spread(row).cast_signed()))));
    keys.sort();
    keys.dedup();
    for keys in requests(&keys) {
        let [rows, of_keys, counts] = check(&flat, &inner, &keys);
        let ends = keys.ranges().len() * 2;
        assert!(counts <= ends, "{counts} pages for {keys:?}");
        assert!(rows <= of_keys.max(pages - of_keys + ends), "{rows} pages for {keys:?}");
        // A lookup reads one page of each level.
        assert!(!keys.is_point() || [rows, of_keys, counts].iter().all(|read| *read <= 1), "{keys:?}");
    }
    let found = with_leaves(&inner, &KeyRanges::all(), LeavesFor::Rows);
    assert_eq!(found.pages, 0, "that all rows are requested is known without a leaf");
}

#[test]
fn searches_of_texts_find_the_same_with_inner_pages() {
    let text = |row: usize| match row {
        row if row % 50 == 3 => None,
        row if row % 8000 == 4 => Some("long".repeat(MAX_KEY_LENGTH)),
        row => Some(format!("{:016x}/{}", spread(row as u64 / 2), "of an order".repeat(row % 3))),
    };
    let values: ArrayRef = Arc::new((0..ROWS).map(text).collect::<StringArray>());
    let flat = build(&values, &KeyType::Utf8, usize::MAX);
    let inner = build(&values, &KeyType::Utf8, 5);
    assert!(inner.directory.blocks.len() >= 5 && inner.directory.has_inner_pages());
    let mut keys: Vec<Key> = flat.directory.blocks.iter().step_by(4).map(|block| block.first_key.clone()).collect();
    keys.extend((0..ROWS).step_by(4001).filter_map(|row| text(row).map(|text| Key::Bytes(text.into_bytes()))));
    keys.extend(["", "8", "~"].map(|text| Key::Bytes(text.into())));
    keys.retain(|key| matches!(key, Key::Bytes(bytes) if bytes.len() <= MAX_KEY_LENGTH));
    keys.sort();
    keys.dedup();
    for keys in requests(&keys) {
        check(&flat, &inner, &keys);
    }
}

#[test]
fn searches_of_hashes_find_the_same_with_inner_pages() {
    let url = |row: usize| format!("https://example.org/{}", row / 2);
    let values: ArrayRef = Arc::new((0..ROWS).map(|row| Some(url(row))).collect::<StringArray>());
    let key_type = KeyType::Hashed { bits: 40, of: Arc::new(KeyType::Utf8) };
    let flat = build(&values, &key_type, usize::MAX);
    let inner = build(&values, &key_type, 2);
    assert!(inner.directory.blocks.len() >= 6 && inner.directory.has_inner_pages());
    for wanted in [vec![0], vec![4, 5, 9000, 23_999], (0..ROWS).step_by(3).collect()] {
        let keys = KeyRanges::points(wanted.iter().map(|row| Key::Bytes(url(*row).into_bytes())).collect());
        let test = Test::Ranges(keys.clone());
        let searched = with_leaves(&inner, &keys, LeavesFor::Rows);
        let (found, _) = searched.segment.search(&test);
        assert!(wanted.iter().all(|row| found.opaque.contains(*row as u32)));
        assert_eq!(found, flat.search(&test).0);
        assert!(searched.pages <= wanted.len());
    }
    let above = KeyRanges::greater_than(Key::Bytes(b"https".to_vec()), true);
    let searched = with_leaves(&inner, &above, LeavesFor::Rows);
    assert_eq!(searched.pages, 0, "hashes say nothing of ranges");
    let test = Test::Ranges(above);
    assert_eq!(searched.segment.search(&test).0, flat.search(&test).0);
}

#[test]
fn an_inner_page_is_no_leaf_and_pages_are_in_order() {
    let inner = build(&numbers(), &KeyType::Int64, 3);
    let keys = KeyRanges::points(vec![Key::Fixed(key_of_i64(0))]);
    let mut search = Search::new(&inner.directory, &Test::Ranges(keys.clone()));
    assert!(search.second_ranges(&inner.read(&search.first_ranges())).is_err());
    let third = inner.directory.blocks[2].first_key.clone();
    let two = KeyRanges::between(Bound::Included(Key::Fixed(0)), Bound::Excluded(third));
    let pages = InnerPages::new(&inner.directory, &two, LeavesFor::Keys);
    let read = |page: &ValueBlockRef| -> Arc<[ValueBlockRef]> {
        let range = page.offset..page.offset + u64::from(page.length);
        let bytes = inner.read(std::slice::from_ref(&range));
        inner_page::decode(&bytes[0], page, &KeyType::Int64).unwrap().into()
    };
    let mut leaves: Vec<_> = pages.pages(&inner.directory).map(read).collect();
    assert_eq!(leaves.len(), 2);
    assert!(pages.replaced(&inner.directory, &leaves).is_ok());
    assert!(pages.replaced(&inner.directory, &leaves[..1]).is_err());
    leaves.reverse();
    assert!(pages.replaced(&inner.directory, &leaves).is_err());
}
