//! Segments of links, against the rows that they came from.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use lakemark_format::container::open_tail;
use lakemark_format::key::{Key, KeyType, key_of_i64};
use lakemark_format::links::{HUB_BYTES, LinkEnd, MAX_PREDICATES};
use lakemark_format::posting;
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{SegmentDirectory, SegmentFile};
use lakemark_index::bitmap::{
    BuildError, ChunkBuilder, ChunkSource, EntryRows, SegmentMeta, SegmentSummary, entries_of_links, merge,
};
use lakemark_index::links::{FoundLink, keys_of_column, leaves_with, read_leaf, rows_of_links, visit_links};
use lakemark_index::zones::ZoneOptions;
use proptest::prelude::*;

use crate::bitmap::Segment;

/// A row: subject, predicate and object.
type Row = (Option<i64>, Option<i64>, Option<i64>);

fn numbers() -> KeyType {
    KeyType::Composite(vec![KeyType::Int64; 3].into())
}

fn columns(rows: &[Row]) -> [ArrayRef; 3] {
    let column = |of: fn(&Row) -> Option<i64>| Arc::new(rows.iter().map(of).collect::<Int64Array>()) as ArrayRef;
    [column(|row| row.0), column(|row| row.1), column(|row| row.2)]
}

/// A segment of row groups of these columns, in memory or from spill files.
fn build(key_type: &KeyType, groups: &[Vec<ArrayRef>], spill: bool) -> Result<Segment, BuildError> {
    let (mut sources, mut row, mut row_groups) = (Vec::new(), 0, Vec::new());
    for group in groups {
        let mut builder = ChunkBuilder::new(key_type);
        builder.push_rows(group).unwrap();
        let chunk = builder.finish();
        sources.push(match spill {
            false => ChunkSource::memory(row, chunk),
            true => {
                let mut spilled = Vec::new();
                chunk.spill(&mut spilled).unwrap();
                ChunkSource::spilled(row, Box::new(Cursor::new(spilled)), key_type.clone()).unwrap()
            }
        });
        row_groups.push(group[0].len() as u32);
        row += group[0].len() as u32;
    }
    let meta = SegmentMeta {
        segment_id: [7; 16],
        index_id: [8; 16],
        column: "s\u{1}p\u{1}o".into(),
        key_type: key_type.clone(),
        files: vec![SegmentFile { path: "f".into(), base: 0, row_groups, footer_hash: 1, column_hash: 2 }],
        encoding: Encoding::Linked,
        bins: None,
        precision: None,
        zones: ZoneOptions::default(),
        riding: Vec::new(),
    };
    let mut bytes = Vec::new();
    let summary: SegmentSummary = merge(meta, sources, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    let opened = open_tail(&bytes, bytes.len() as u64).unwrap();
    let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer).unwrap();
    Ok(Segment { directory: Arc::new(directory), summary, bytes })
}

fn built(rows: &[Row], group_rows: usize, spill: bool) -> Segment {
    let groups: Vec<Vec<ArrayRef>> = rows.chunks(group_rows).map(|group| columns(group).to_vec()).collect();
    build(&numbers(), &groups, spill).unwrap()
}

/// Every link with its rows.
fn entries(segment: &Segment) -> BTreeMap<Key, Vec<u32>> {
    let directory = &segment.directory;
    let mut found = BTreeMap::new();
    for block in &directory.blocks {
        let leaf = block.offset..block.offset + u64::from(block.length);
        let rows = block.postings_offset..block.postings_offset + block.postings_length;
        let read = segment.read(&[leaf, rows]);
        for entry in entries_of_links(&read[0], &read[1], block, directory).unwrap() {
            let rows = match entry.rows {
                EntryRows::Known(rows) => rows,
                EntryRows::Posting(long) => {
                    let mut rows: Vec<u32> = Vec::new();
                    let bytes = segment.read(std::slice::from_ref(&long.range)).remove(0);
                    posting::decode(&bytes, long.rows, directory.universe, &mut rows).unwrap();
                    rows
                }
            };
            assert_eq!(found.insert(entry.key, rows), None);
        }
    }
    found
}

fn expected(rows: &[Row]) -> BTreeMap<Key, Vec<u32>> {
    let mut expected: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
    for (number, row) in (0..).zip(rows) {
        let mut key = Vec::new();
        for value in [row.0, row.1, row.2] {
            match value {
                Some(value) => {
                    lakemark_format::key::composite::push_fixed(&mut key, &KeyType::Int64, key_of_i64(value));
                }
                None => lakemark_format::key::composite::push_null(&mut key),
            }
        }
        expected.entry(Key::Bytes(key)).or_default().push(number);
    }
    expected
}

/// The far ends of a node by these predicates, and how many leaves were read.
fn walked(segment: &Segment, node: i64, via: Option<&[i64]>) -> (BTreeSet<(u32, Key)>, usize) {
    let directory = &segment.directory;
    let shape = lakemark_format::LinkShape::of(&directory.key_type).unwrap();
    let node = Key::Fixed(key_of_i64(node));
    let places: Option<HashSet<u32>> = via.map(|via| {
        let place = |predicate: &i64| {
            directory.predicates.iter().position(|held| *held == Some(Key::Fixed(key_of_i64(*predicate))))
        };
        via.iter().filter_map(place).map(|place| place as u32).collect()
    });
    let leaves = leaves_with(directory, &shape.prefix(&node, None));
    let count = leaves.len();
    let mut found = BTreeSet::new();
    for leaf in leaves {
        let block = &directory.blocks[leaf];
        let leaf = block.offset..block.offset + u64::from(block.length);
        let bytes = segment.read(std::slice::from_ref(&leaf)).remove(0);
        let leaf = read_leaf(&bytes, block, directory).unwrap();
        let ended = visit_links(&leaf, LinkEnd::from(&node), &places, |FoundLink { predicate, far, .. }| {
            assert!(found.insert((predicate, far.to_key().unwrap())));
            ControlFlow::Continue(())
        });
        assert!(ended.is_continue());
    }
    (found, count)
}

#[test]
fn leaves_are_read_in_pages_and_rows_apart() {
    let rows: Vec<Row> = (0..60_000).map(|row| (Some(row / 3), Some(row % 3), Some(row * 7919 % 20_000))).collect();
    let segment = built(&rows, 20_000, false);
    assert_eq!(segment.summary.values, 60_000);
    for block in &segment.directory.blocks {
        assert!(block.offset % 4092 + u64::from(block.length) <= 4092, "a leaf in two pages");
    }
    assert_eq!(entries(&segment), expected(&rows));
    let (found, leaves) = walked(&segment, 777, None);
    assert!(found.len() == 3 && leaves <= 2, "{leaves} leaves");
    assert_eq!(walked(&segment, 777, Some(&[1])).0.len(), 1);
    assert!(walked(&segment, 777, Some(&[9])).0.is_empty());
    assert!(walked(&segment, 20_000, None).0.is_empty() && walked(&segment, -1, None).0.is_empty());
}

#[test]
fn hubs_and_links_of_many_rows_are_kept() {
    let hub = (0..30_000).map(|far| (Some(5), Some(1), Some(far * far)));
    let others = (0..2000).map(|row| (Some(row % 40), Some(2), Some(7)));
    let rows: Vec<Row> = hub.chain(others).chain([(None, None, None); 3]).collect();
    let segment = built(&rows, 9000, true);
    assert_eq!(entries(&segment), expected(&rows));
    let (found, leaves) = walked(&segment, 5, None);
    assert!(found.len() == 30_001 && leaves > 1, "{} in {leaves} leaves", found.len());
    assert!(segment.directory.blocks.iter().all(|block| block.length as usize <= HUB_BYTES));
    let block = &segment.directory.blocks[0];
    let rows = block.postings_offset..block.postings_offset + block.postings_length;
    let bytes = segment.read(std::slice::from_ref(&rows)).remove(0);
    let known = rows_of_links(&bytes, block, &segment.directory).unwrap();
    assert_eq!(known.len(), block.values as usize);
}

#[test]
fn texts_are_links_too() {
    let text = |rows: &[[Option<&str>; 3]], column: usize| -> ArrayRef {
        Arc::new(rows.iter().map(|row| row[column]).collect::<StringArray>())
    };
    let rows = [
        [Some("b"), Some("is"), Some("a")],
        [Some("a"), Some("is"), Some("")],
        [Some("b"), Some("is"), Some("a")],
        [Some("b"), None, Some("c\0d")],
    ];
    let key_type = KeyType::Composite(vec![KeyType::Utf8; 3].into());
    let group: Vec<ArrayRef> = (0..3).map(|column| text(&rows, column)).collect();
    let segment = build(&key_type, &[group], false).unwrap();
    assert_eq!(entries(&segment).into_values().collect::<Vec<_>>(), [vec![1], vec![3], vec![0, 2]]);
}

#[test]
fn more_predicates_than_there_are_places_are_refused() {
    let rows: Vec<Row> = (0..=MAX_PREDICATES as i64).map(|row| (Some(1), Some(row), Some(2))).collect();
    let error = build(&numbers(), &[columns(&rows).to_vec()], false).err().unwrap();
    assert!(matches!(&error, BuildError::TooManyPredicates { limit: 65_535, .. }), "{error}");
}

#[test]
fn values_that_are_no_nodes_are_errors() {
    let long: ArrayRef = Arc::new(StringArray::from(vec![Some("x".repeat(5000))]));
    assert!(keys_of_column(long.as_ref()).is_err());
    let some: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None]));
    assert_eq!(keys_of_column(some.as_ref()).unwrap(), [Some(Key::Fixed(key_of_i64(3))), None]);
}

fn row() -> impl Strategy<Value = Row> {
    let end = || prop::option::weighted(0.95, prop_oneof![0..6i64, any::<i64>()]);
    (end(), prop::option::weighted(0.95, 0..3i64), end())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn links_come_back_with_their_rows(
        rows in prop::collection::vec(row(), 1..400), group_rows in 1..200usize, spill in any::<bool>(),
    ) {
        let segment = built(&rows, group_rows, spill);
        prop_assert_eq!(entries(&segment), expected(&rows));
        for node in 0..6 {
            let ends: BTreeSet<(Option<i64>, i64)> =
                rows.iter().filter(|row| row.0 == Some(node)).filter_map(|row| Some((row.1, row.2?))).collect();
            prop_assert_eq!(walked(&segment, node, None).0.len(), ends.len());
        }
    }
}
