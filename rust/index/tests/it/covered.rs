//! Columns that ride along with the keys of a packed tree, against the rows that they came from.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int32Array, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field};
use lakemark_format::container::open_tail;
use lakemark_format::key::{Key, key_of_i64};
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{SegmentDirectory, SegmentFile};
use lakemark_format::{MAX_KEY_LENGTH, RidingColumn};
use lakemark_index::bitmap::{
    ChunkBuilder, ChunkSource, CoveredColumn, CoveredSearch, EntryRows, SegmentMeta, ValueRows, entries_of_leaf, merge,
};
use lakemark_index::zones::ZoneOptions;
use lakemark_index::{KeyRanges, Test, composite_type, decode_riding, key_type_of, riding_type_of};
use proptest::prelude::*;

use crate::bitmap::Segment;

/// Rows of a row group: two columns of a key, and two that ride along.
#[derive(Clone, Debug)]
struct Group {
    id: Int32Array,
    name: StringArray,
    price: Float64Array,
    city: StringArray,
}

impl Group {
    fn riding(&self) -> Vec<ArrayRef> {
        vec![Arc::new(self.price.clone()), Arc::new(self.city.clone())]
    }
}

fn riding_columns() -> Vec<RidingColumn> {
    let column = |column: &str, data_type| RidingColumn {
        column: column.to_owned(),
        key_type: riding_type_of(&data_type).unwrap(),
    };
    vec![column("price", DataType::Float64), column("city", DataType::Utf8)]
}

/// A segment of one file. The key is the id, or the id and the name.
fn build(groups: &[Group], is_composite: bool, spill: bool) -> Segment {
    let key_type = match is_composite {
        false => key_type_of(&DataType::Int32).unwrap(),
        true => {
            let fields = vec![Field::new("id", DataType::Int32, true), Field::new("name", DataType::Utf8, true)];
            composite_type(&fields.into()).unwrap()
        }
    };
    let (mut sources, mut row) = (Vec::new(), 0);
    for group in groups {
        let mut builder = ChunkBuilder::new(&key_type);
        let (id, name): (ArrayRef, ArrayRef) = (Arc::new(group.id.clone()), Arc::new(group.name.clone()));
        match is_composite {
            false => builder.push(&id).unwrap(),
            true => builder.push_rows(&[id, name]).unwrap(),
        }
        builder.push_riding(&group.riding()).unwrap();
        let chunk = builder.finish();
        assert_eq!(chunk.riding_count(), Some(group.id.len()));
        assert!(chunk.memory_bytes() > group.id.len() * 12);
        sources.push(match spill {
            false => ChunkSource::memory(row, chunk),
            true => {
                let mut spilled = Vec::new();
                chunk.spill(&mut spilled).unwrap();
                ChunkSource::spilled(row, Box::new(Cursor::new(spilled)), key_type.clone()).unwrap()
            }
        });
        row += group.id.len() as u32;
    }
    let row_groups = groups.iter().map(|group| group.id.len() as u32).collect();
    written(sources, key_type, row_groups)
}

fn written(sources: Vec<ChunkSource>, key_type: lakemark_format::KeyType, row_groups: Vec<u32>) -> Segment {
    let file = SegmentFile { path: "f.parquet".into(), base: 0, row_groups, footer_hash: 1, column_hash: 2 };
    let meta = SegmentMeta {
        segment_id: [7; 16],
        index_id: [8; 16],
        column: "c".into(),
        key_type,
        files: vec![file],
        encoding: Encoding::Packed,
        bins: None,
        precision: None,
        zones: ZoneOptions::default(),
        riding: riding_columns(),
    };
    let mut bytes = Vec::new();
    let summary = merge(meta, sources, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    let opened = open_tail(&bytes, bytes.len() as u64).unwrap();
    let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer).unwrap();
    Segment { directory: Arc::new(directory), summary: summary.unwrap(), bytes }
}

/// The rows of these keys with the values that rode along, as a batch each; by row.
fn covered(segment: &Segment, keys: &KeyRanges, is_chosen: impl Fn(u32) -> bool) -> BTreeMap<u32, Vec<ArrayRef>> {
    let search = CoveredSearch::new(&segment.directory, keys);
    let wanted = [CoveredColumn::Riding(1), CoveredColumn::Key(0), CoveredColumn::Riding(0)];
    let bytes = segment.read(&search.ranges(&segment.directory));
    let read: u64 = bytes.iter().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(read, search.byte_count(&segment.directory));
    let found = search.find(&segment.directory, &wanted, &bytes, is_chosen).unwrap();
    let types = [DataType::Utf8, DataType::Int32, DataType::Float64];
    let columns: Vec<ArrayRef> =
        found.columns.into_iter().zip(&types).map(|(values, of)| decode_riding(values, of).unwrap()).collect();
    let rows: BTreeMap<u32, Vec<ArrayRef>> = (0..found.rows.len())
        .map(|place| (found.rows[place], columns.iter().map(|column| column.slice(place, 1)).collect()))
        .collect();
    assert_eq!(rows.len(), found.rows.len(), "a row is there once");
    rows
}

/// Checks what rides with the ids in a range against the rows themselves.
fn check(groups: &[Group], segment: &Segment, low: i32, high: i32, rides: impl Fn(u32) -> bool) {
    let bound = |value: i32| Key::Fixed(key_of_i64(value.into()));
    let keys = match &segment.directory.key_type {
        lakemark_format::KeyType::Composite(types) => {
            let first = KeyRanges::greater_than(bound(low), true).intersect(&KeyRanges::less_than(bound(high), true));
            lakemark_index::composite_ranges(types, &[&first])
        }
        _ => KeyRanges::greater_than(bound(low), true).intersect(&KeyRanges::less_than(bound(high), true)),
    };
    let found = covered(segment, &keys, |row| row % 5 != 3);
    let mut expected = BTreeMap::new();
    let mut row = 0;
    for group in groups {
        for place in 0..group.id.len() {
            let is_in = group.id.is_valid(place) && (low..=high).contains(&group.id.value(place));
            if is_in && row % 5 != 3 && rides(row) {
                let at = UInt32Array::from(vec![place as u32]);
                let columns: [&dyn Array; 3] = [&group.city, &group.id, &group.price];
                expected.insert(row, columns.map(|column| take(column, &at, None).unwrap()).to_vec());
            }
            row += 1;
        }
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (row, columns) in &found {
        let want = &expected[row];
        assert_eq!((&columns[0], &columns[1]), (&want[0], &want[1]), "row {row}");
        assert_eq!(columns[2].is_null(0), want[2].is_null(0));
        let (have, want) = (columns[2].slice(0, 1), want[2].slice(0, 1));
        assert!(have.is_null(0) || float_bits(&have) == float_bits(&want), "row {row}");
    }
    // A search for rows alone gives the same ones, and more where keys do not ride.
    let (rows, _) = segment.search(&Test::Ranges(keys));
    assert!(found.keys().all(|row| rows.t.contains(*row)));
}

fn float_bits(array: &ArrayRef) -> u64 {
    array.as_any().downcast_ref::<Float64Array>().unwrap().value(0).to_bits()
}

/// Values of a row: id, name, bits of the price, city.
type Row = (Option<i32>, Option<String>, Option<u64>, Option<String>);

fn group(rows: Vec<Row>) -> Group {
    Group {
        id: rows.iter().map(|row| row.0).collect(),
        name: rows.iter().map(|row| row.1.clone()).collect(),
        price: rows.iter().map(|row| row.2.map(f64::from_bits)).collect(),
        city: rows.iter().map(|row| row.3.clone()).collect(),
    }
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    let price = prop_oneof![Just(0u64), Just(1 << 63), Just(0x7ff8_0000_0000_0007), any::<u64>()];
    let row = (
        prop::option::weighted(0.9, -20..20i32),
        prop::option::of("[ab\0]{0,3}"),
        prop::option::weighted(0.8, price),
        prop::option::weighted(0.8, "[A-C]{0,2}"),
    );
    prop::collection::vec(prop::collection::vec(row, 1..90).prop_map(group), 1..4)
}

proptest! {
    #[test]
    fn what_rides_is_what_the_rows_have(
        groups in groups(),
        is_composite in any::<bool>(),
        spill in any::<bool>(),
        low in -21..20i32,
        length in 0..41i32,
    ) {
        let segment = build(&groups, is_composite, spill);
        check(&groups, &segment, low, low + length, |_| true);
        // Memory or a spill file in between makes no difference.
        prop_assert!(segment.bytes == build(&groups, is_composite, !spill).bytes);
    }
}

#[test]
fn keys_of_many_rows_or_long_values_are_left_to_the_data() {
    let long = "x".repeat(MAX_KEY_LENGTH + 1);
    let row = |id: i32, city: &str| (Some(id), None, Some(1), Some(city.to_owned()));
    let mut rows: Vec<_> = (0..2000).map(|_| row(1, "A")).collect();
    rows.extend((0..300).flat_map(|n| [row(2, "B"), row(100 + n, "C")]));
    rows.extend([row(3, &long), row(3, "D"), row(4, "E")]);
    let groups = [group(rows)];
    let segment = build(&groups, false, false);
    // The rows of the key 2 are in its leaf, many as they are.
    check(&groups, &segment, 0, 1000, |row| !(0..2000).contains(&row) && ![2600, 2601].contains(&row));
    let (rows, _) = segment.search(&Test::Ranges(KeyRanges::point(Key::Fixed(key_of_i64(3)))));
    assert_eq!(rows.t.iter().collect::<Vec<_>>(), [2600, 2601]);
}

/// The values of a segment as a chunk of a merge.
fn stream(segment: &Segment) -> ChunkSource {
    let mut values = Vec::new();
    for block in &segment.directory.blocks {
        let range = block.offset..block.offset + u64::from(block.length);
        let bytes = segment.read(&[range]);
        for entry in entries_of_leaf(&bytes[0], block, &segment.directory).unwrap() {
            let EntryRows::Known(rows) = entry.rows else { panic!("a long posting") };
            values.push(ValueRows { key: entry.key, rows, riding: entry.riding });
        }
    }
    let mut values = values.into_iter();
    ChunkSource::stream(Vec::new(), Vec::new(), Box::new(move || Ok(values.next())))
}

#[test]
fn a_merge_keeps_what_rides() {
    let rows = (0..500).map(|n| (Some(n * 7 % 200), None, Some(n as u64), Some(format!("city {}", n % 9))));
    let groups = [group(rows.collect())];
    let segment = build(&groups, false, false);
    let merged = written(vec![stream(&segment)], segment.directory.key_type.clone(), vec![500]);
    assert!(merged.bytes == segment.bytes);
    check(&groups, &merged, 10, 60, |_| true);
}

#[test]
fn law_5_columns_that_are_not_there_are_refused() {
    let groups = [group(vec![(Some(1), None, Some(1), Some("A".to_owned()))])];
    let segment = build(&groups, false, false);
    let search = CoveredSearch::new(&segment.directory, &KeyRanges::all());
    let bytes = segment.read(&search.ranges(&segment.directory));
    let find = |wanted| search.find(&segment.directory, &[wanted], &bytes, |_| true);
    assert!(find(CoveredColumn::Riding(1)).is_ok() && find(CoveredColumn::Key(0)).is_ok());
    assert!(find(CoveredColumn::Riding(2)).is_err() && find(CoveredColumn::Key(1)).is_err());
    assert!(search.find(&segment.directory, &[], &[], |_| true).is_err());
    let mut other = SegmentDirectory::clone(&segment.directory);
    other.riding.pop();
    assert!(search.find(&other, &[CoveredColumn::Riding(0)], &bytes, |_| true).is_err());
}
