//! Trees of hashes against the values that were hashed.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, StringArray};
use arrow::datatypes::DataType;
use lakemark_format::container::open_tail;
use lakemark_format::filter::short_hash;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::segment::{SegmentDirectory, SegmentFile};
use lakemark_format::{Encoding, MAX_KEY_LENGTH, RidingColumn};
use lakemark_index::bitmap::{
    ChunkBuilder, ChunkSource, CountSearch, CoveredColumn, CoveredSearch, Estimate, SegmentMeta, merge,
};
use lakemark_index::zones::ZoneOptions;
use lakemark_index::{KeyRanges, RowSet, Test, decode_riding, riding_type_of};

use crate::bitmap::Segment;

fn riding() -> Vec<RidingColumn> {
    let column = |column: &str, data_type| RidingColumn {
        column: column.to_owned(),
        key_type: riding_type_of(&data_type).unwrap(),
    };
    vec![column("number", DataType::Int32), column("url", DataType::Utf8)]
}

/// A segment of one file with hashes of so many bits of texts in the column `url`, which rides along if so wanted.
fn build(groups: &[StringArray], bits: u8, rides: bool, spill: bool) -> Segment {
    let key_type = KeyType::Hashed { bits, of: Arc::new(KeyType::Utf8) };
    let (mut sources, mut row) = (Vec::new(), 0);
    for group in groups {
        let mut builder = ChunkBuilder::new(&key_type);
        let texts: ArrayRef = Arc::new(group.clone());
        builder.push(&texts).unwrap();
        if rides {
            let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..group.len() as i32));
            builder.push_riding(&[numbers, texts]).unwrap();
        }
        let chunk = builder.finish();
        sources.push(match spill {
            false => ChunkSource::memory(row, chunk),
            true => {
                let mut spilled = Vec::new();
                chunk.spill(&mut spilled).unwrap();
                ChunkSource::spilled(row, Box::new(Cursor::new(spilled)), key_type.clone()).unwrap()
            }
        });
        row += group.len() as u32;
    }
    let row_groups = groups.iter().map(|group| group.len() as u32).collect();
    let meta = SegmentMeta {
        segment_id: [7; 16],
        index_id: [8; 16],
        column: "url".into(),
        key_type,
        files: vec![SegmentFile { path: "f.parquet".into(), base: 0, row_groups, footer_hash: 1, column_hash: 2 }],
        encoding: Encoding::Packed,
        bins: None,
        precision: None,
        zones: ZoneOptions::default(),
        riding: if rides { riding() } else { Vec::new() },
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

/// Every third text is there twice, every seventh is NULL, and some are longer than a key may be.
fn groups() -> Vec<StringArray> {
    let text = |row: usize| match row {
        row if row % 7 == 3 => None,
        row if row % 500 == 11 => Some(format!("{row}{}", "x".repeat(MAX_KEY_LENGTH))),
        row => Some(format!("https://example.org/{}", row / 3 * 2 + usize::from(row % 3 == 2))),
    };
    [0..1200, 1200..1201, 1201..3000].into_iter().map(|rows| rows.map(text).collect()).collect()
}

fn requested(texts: &[String]) -> KeyRanges {
    KeyRanges::points(texts.iter().map(|text| Key::Bytes(text.clone().into_bytes())).collect())
}

fn url(number: usize) -> String {
    format!("https://example.org/{number}")
}

#[test]
fn rows_of_a_hash_are_open_and_no_others() {
    let groups = groups();
    let texts: Vec<Option<&str>> = groups.iter().flat_map(|group| group.iter()).collect();
    for (bits, spill) in [(32, false), (6, true), (1, false)] {
        let segment = build(&groups, bits, false, spill);
        assert_eq!(segment.directory.opaque.rows, 0, "a long text has a hash as any other");
        for wanted in
            [vec![url(0)], vec![url(4), url(1998), "elsewhere".to_owned()], vec!["elsewhere".to_owned()], vec![]]
        {
            let test = Test::Ranges(requested(&wanted));
            let (found, _) = segment.search(&test);
            let hashes: Vec<u64> = wanted.iter().map(|text| short_hash(text.as_bytes(), bits)).collect();
            let with = |is: &dyn Fn(Option<&str>) -> bool| {
                let rows = (0..).zip(&texts).filter(|(_, text)| is(**text)).map(|(row, _)| row);
                RowSet::from_rows(rows.collect(), segment.directory.universe)
            };
            let share =
                |text: Option<&str>| text.is_some_and(|text| hashes.contains(&short_hash(text.as_bytes(), bits)));
            assert_eq!(found.opaque, with(&share), "{bits} bits, {wanted:?}");
            assert!(found.t.is_empty());
            assert_eq!(found.n, with(&|text| text.is_none()));
            assert!(CountSearch::new(&segment.directory, &test).is_none(), "hashes count no values");
            let estimate = Estimate::new(&segment.directory, &test);
            let exactly = estimate.exactly(&segment.read(&estimate.edge_ranges()));
            assert_eq!(exactly.rows, f64::from(found.opaque.len()), "{bits} bits, {wanted:?}");
        }
    }
}

#[test]
fn ranges_of_hashed_values_leave_all_rows_open_and_null_is_known() {
    let segment = build(&groups(), 32, false, false);
    let above = Test::Ranges(KeyRanges::greater_than(Key::Bytes(b"https".to_vec()), true));
    let (found, read) = segment.search(&above);
    let universe = segment.directory.universe;
    assert_eq!((found.t, read), (RowSet::empty(universe), 0));
    assert_eq!(found.opaque, found.n.not(), "rows that are not NULL");
    let (null, _) = segment.search(&Test::IsNull);
    assert_eq!(null.t, found.n);
    let count = CountSearch::new(&segment.directory, &Test::IsNull).unwrap().finish(&[]);
    assert_eq!(count, Ok(u64::from(null.t.len())));
}

#[test]
fn texts_that_ride_along_tell_their_rows_apart() {
    let groups = groups();
    let texts: Vec<Option<&str>> = groups.iter().flat_map(|group| group.iter()).collect();
    for (bits, spill) in [(32, true), (4, false)] {
        let segment = build(&groups, bits, true, spill);
        for wanted in [vec![url(0)], vec![url(4), url(1998), "elsewhere".to_owned()], vec!["elsewhere".to_owned()]] {
            let keys = requested(&wanted);
            let (found, _) = segment.search(&Test::Ranges(keys.clone()));
            let equal = |row: u32| texts[row as usize].is_some_and(|text| wanted.iter().any(|wanted| wanted == text));
            let all = || 0..segment.directory.universe;
            let is_sure = found.t.iter().all(equal)
                && all().filter(|row| equal(*row)).all(|row| found.t.contains(row) || found.opaque.contains(row));
            assert!(is_sure, "{bits} bits, {wanted:?}");
            // With many bits nothing is open: no hash is that of a text that is too long to ride.
            assert!(bits < 32 || found.opaque.is_empty());
            // The values of rows that are sure are there as well.
            let search = CoveredSearch::new(&segment.directory, &keys);
            let bytes = segment.read(&search.ranges(&segment.directory));
            let columns = [CoveredColumn::Riding(1), CoveredColumn::Riding(0)];
            let covered = search.find(&segment.directory, &columns, &bytes, |row| found.t.contains(row)).unwrap();
            let mut rows = covered.rows.clone();
            rows.sort_unstable();
            assert_eq!(rows, found.t.iter().collect::<Vec<_>>());
            let urls = decode_riding(covered.columns.into_iter().next().unwrap(), &DataType::Utf8).unwrap();
            let expected: StringArray = covered.rows.iter().map(|row| texts[*row as usize]).collect();
            assert_eq!(urls.to_data(), expected.to_data());
        }
    }
}

#[test]
fn texts_of_36_bytes_take_the_bits_of_their_rows_and_ten_more() {
    let spread = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut order: Vec<u64> = (0..100_000).collect();
    order.sort_unstable_by_key(|row| spread(*row));
    let texts: StringArray = order.iter().map(|row| Some(format!("session/{:016x}/{row:011}", spread(*row)))).collect();
    // 17 bits of 100,000 rows, and eight more.
    let segment = build(&[texts], 25, false, false);
    let bytes = segment.summary.length as f64 / 100_000.0;
    assert!(bytes <= 3.8, "{bytes} bytes a row");
}
