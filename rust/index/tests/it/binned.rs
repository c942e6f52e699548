//! The encoding `binned`: what it reads, what it takes, and what damage it finds.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal64Array, Float32Array, Float64Array, Int32Array, Int64Array, StringArray,
};
use arrow::array::{TimestampMicrosecondArray, UInt64Array};
use bytes::Bytes;
use lakemark_format::key::Key;
use lakemark_format::{Encoding, bin_block};
use lakemark_index::bitmap::{BuildError, Search, ValueGroups};
use lakemark_index::{KeyRanges, LiteralKey, Precision, Test};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bitmap::{Segment, build_with, check, key_of, ranges_over};

fn binned(files: &[Vec<ArrayRef>], precision: &str) -> Segment {
    build_with(files, false, Encoding::Binned, None, Some(precision.parse().unwrap())).unwrap()
}

fn key(array: &dyn arrow::array::Array) -> Key {
    match key_of(array, 0) {
        Some(LiteralKey::Key(key)) => key,
        other => panic!("{other:?}"),
    }
}

fn int(value: i32) -> Key {
    key(&Int32Array::from(vec![value]))
}

fn between(low: i32, high: i32) -> KeyRanges {
    KeyRanges::greater_than(int(low), true).intersect(&KeyRanges::less_than(int(high), true))
}

/// KSEQ of the Set Query Benchmark: 1, 2, 3, … in row groups.
fn sequence(rows: i32, files: i32) -> Vec<Vec<ArrayRef>> {
    let part = rows / files;
    let file = |number: i32| -> Vec<ArrayRef> {
        let (first, end) = (number * part + 1, (number + 1) * part + 1);
        (first..end)
            .step_by(100_000)
            .map(|start| Arc::new((start..end.min(start + 100_000)).collect::<Int32Array>()) as ArrayRef)
            .collect()
    };
    (0..files).map(file).collect()
}

#[test]
fn a_key_that_counts_the_rows_takes_as_many_bytes_at_any_size() {
    let bytes = |rows: i32| binned(&sequence(rows, 1), "2").summary.length;
    let (small, large) = (bytes(100_000), bytes(1_000_000));
    // 90 numbers of two digits more, of three bins each.
    assert!(large - small < 90 * 3 * 20, "{small}, {large}");
    assert!(large < 30_000, "{large}");
    // Files whose rows do not begin where others end.
    let files = sequence(999_000, 9);
    let segment = binned(&files, "2");
    assert!(segment.summary.length < 30_000, "{}", segment.summary.length);
    assert!(segment.directory.orders.iter().all(|bytes| *bytes == 0));
    for (low, high) in [(400_000, 500_000), (1, 1), (-5, 0), (123_457, 765_431), (990_000, 5_000_000)] {
        check(&segment, &files, &Test::Ranges(between(low, high)));
        check(&segment, &files, &Test::Ranges(between(low, high).complement()));
    }
}

#[test]
fn constants_of_few_digits_are_counted_from_blocks_alone() {
    let mut rng = StdRng::seed_from_u64(21);
    let values: Int32Array = (0..50_000).map(|_| rng.random_range(-3000..2_000_000)).collect();
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(values)]];
    let segment = binned(&files, "2");
    let mut cut = 0;
    for (low, high) in [(400_000, 500_000), (-2900, 1_000_000), (35, 35), (440_000, 1_500_000), (401_000, 500_000)] {
        let test = Test::Ranges(between(low, high));
        check(&segment, &files, &test);
        let (_, bytes) = segment.count_reading(&test).unwrap();
        cut += u32::from(bytes > 0);
        assert_eq!(bytes > 0, low == 401_000, "{low}..={high}: {bytes} bytes");
    }
    assert_eq!(cut, 1);
    // A search reads the postings between, and what it reads of orders are those of the bins cut.
    let (_, round) = segment.search(&Test::Ranges(between(400_000, 500_000)));
    let (_, other) = segment.search(&Test::Ranges(between(401_000, 509_000)));
    let orders: u64 = segment.directory.orders.iter().sum();
    assert!(round < other && other < round + orders / 20, "{round}, {other}, {orders}");
}

#[test]
fn the_smaller_side_is_read() {
    let mut rng = StdRng::seed_from_u64(22);
    let values: Int32Array = (0..30_000).map(|_| rng.random_range(0..1_000_000)).collect();
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(values)]];
    let segment = binned(&files, "2");
    let read = |ranges: KeyRanges| {
        check(&segment, &files, &Test::Ranges(ranges.clone()));
        segment.search(&Test::Ranges(ranges)).1
    };
    let postings: u64 = segment.directory.blocks.iter().map(|block| block.postings_length).sum();
    assert!(read(between(50_000, 1_000_000)) < postings / 8);
    assert!(read(between(50_000, 123_456).complement()) < postings / 4);
    assert_eq!(read(between(0, 1_000_000)), 0);
}

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let mut rng = StdRng::seed_from_u64(23);
    let mut draw = |rows: usize| -> Vec<i64> {
        (0..rows).map(|_| rng.random_range(-20_000i64..20_000) * 10i64.pow(rng.random_range(0..3))).collect()
    };
    let present = |row: usize| row % 11 != 3;
    let optional =
        |values: Vec<i64>| values.into_iter().enumerate().map(move |(row, value)| present(row).then_some(value));
    vec![
        ("2", Arc::new(optional(draw(3000)).map(|v| v.map(|v| v.cast_unsigned())).collect::<UInt64Array>())),
        ("1", Arc::new(optional(draw(3000)).map(|v| v.map(|v| v * 4_000_000_000_000)).collect::<Int64Array>())),
        ("3", Arc::new(optional(draw(2000)).map(|v| v.map(|v| v as f64 / 700.0)).collect::<Float64Array>())),
        ("2", Arc::new(optional(draw(2000)).map(|v| v.map(|v| 1.0 / v as f32)).collect::<Float32Array>())),
        ("2", Arc::new(optional(draw(2000)).collect::<Decimal64Array>().with_precision_and_scale(10, 2).unwrap())),
        ("month", Arc::new(optional(draw(2000)).map(|v| v.map(|v| (v / 100) as i32)).collect::<Date32Array>())),
        (
            "hour",
            Arc::new(optional(draw(2000)).map(|v| v.map(|v| v * 1_000_000)).collect::<TimestampMicrosecondArray>()),
        ),
        (
            "day",
            Arc::new(optional(draw(2000)).map(|v| v.map(|v| v * 1_000_000_000)).collect::<TimestampMicrosecondArray>()),
        ),
    ]
}

#[test]
fn every_type_answers_as_a_scan_does() {
    for (precision, values) in columns() {
        let half = values.len() / 2;
        let files =
            vec![vec![values.slice(0, half), values.slice(half, 100)], vec![values.slice(half + 100, half - 100)]];
        let segment = binned(&files, precision);
        assert!(segment.directory.entry_count() < segment.directory.value_count, "{precision}: bins of several values");
        let mut keys: Vec<Key> = (0..values.len())
            .step_by(97)
            .filter_map(|row| match key_of(values.as_ref(), row) {
                Some(LiteralKey::Key(key)) => Some(key),
                _ => None,
            })
            .collect();
        keys.sort();
        let tests = ranges_over(&keys);
        let many = KeyRanges::points(keys.clone());
        for test in tests.into_iter().chain([Test::Ranges(many.clone()), Test::Ranges(many.complement())]) {
            check(&segment, &files, &test);
        }
    }
}

#[test]
fn values_that_are_many_and_rows_that_are_more_than_a_bin_may_have() {
    // 1,500,000 rows of 11 and as many of 12 share a place; neither fits with the other.
    let values: Int32Array = (0..3_000_010).map(|row| if row < 10 { 14 + row % 2 } else { 11 + row % 2 }).collect();
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(values)]];
    let segment = binned(&files, "1");
    assert_eq!((segment.directory.value_count, segment.directory.entry_count()), (4, 4));
    for test in
        [KeyRanges::point(int(11)), KeyRanges::less_than(int(12), true), KeyRanges::greater_than(int(12), false)]
    {
        check(&segment, &files, &Test::Ranges(test));
    }
}

#[test]
fn values_are_counted_where_each_is_a_bin() {
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new((0..500).map(|row| row % 9).collect::<Int32Array>())]];
    let segment = binned(&files, "1");
    let groups = ValueGroups::new(&segment.directory, KeyRanges::all());
    assert_eq!(groups.value_limit(), 9);
    let all = 0..groups.block_count();
    let values = groups.values(all.clone(), &segment.read(&groups.block_ranges(all))).unwrap();
    assert_eq!(values.iter().map(|value| value.rows).collect::<Vec<_>>(), [56, 56, 56, 56, 56, 55, 55, 55, 55]);
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new((0..500).map(|row| row % 19).collect::<Int32Array>())]];
    assert_eq!(ValueGroups::new(&binned(&files, "1").directory, KeyRanges::all()).value_limit(), u64::MAX);
}

#[test]
fn a_precision_that_a_column_cannot_have_is_an_error() {
    let texts: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(StringArray::from(vec!["a"]))]];
    let built = |files: &[Vec<ArrayRef>], precision| build_with(files, false, Encoding::Binned, None, precision).err();
    assert!(matches!(built(&texts, Some(Precision::Digits(2))), Some(BuildError::Precision(_))));
    let missing = built(&sequence(10, 1), None).unwrap();
    assert!(matches!(missing, BuildError::NoPrecision) && missing.to_string().contains("precision=2"), "{missing}");
}

/// Bytes of a section that are those of another place: an error, or the same answer where they did not matter.
#[test]
fn damaged_bins_are_found_or_did_not_matter() {
    let mut rng = StdRng::seed_from_u64(24);
    let values: Int32Array = (0..4000).map(|_| rng.random_range(0..100_000)).collect();
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(values)]];
    let segment = binned(&files, "1");
    let directory = &segment.directory;
    let test = Test::Ranges(between(31_234, 58_765));
    let expected = segment.search(&test).0;
    let (mut found, mut unnoticed) = (0, 0);
    for _ in 0..2000 {
        let mut search = Search::new(directory, &test);
        let mut first = segment.read(&search.first_ranges());
        let damage = |parts: &mut Vec<Bytes>, rng: &mut StdRng| {
            let part = rng.random_range(0..parts.len());
            if !parts[part].is_empty() {
                let mut bytes = parts[part].to_vec();
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
                parts[part] = bytes.into();
            }
        };
        if rng.random_bool(0.3) {
            damage(&mut first, &mut rng);
        }
        let Ok(second) = search.second_ranges(&first) else {
            found += 1;
            continue;
        };
        let ends = segment.bytes.len() as u64;
        if second.iter().any(|range| range.end > ends) {
            continue;
        }
        let mut second = segment.read(&second);
        damage(&mut second, &mut rng);
        match search.finish(&second) {
            Err(_) => found += 1,
            // Keys of an order may change a little without another sum; pages have checksums for that.
            Ok(answer) => unnoticed += u32::from(answer != expected),
        }
    }
    assert!(found > 300, "{found} found, {unnoticed} not");
}

#[test]
fn spilled_chunks_give_the_same_bytes() {
    for (precision, values) in columns() {
        let files = vec![vec![values.slice(0, 500), values.slice(500, 700)], vec![values.slice(1200, 300)]];
        let precision = Some(precision.parse().unwrap());
        let build = |spill| build_with(&files, spill, Encoding::Binned, None, precision).unwrap();
        assert!(build(true).bytes == build(false).bytes, "{precision:?}");
    }
}

#[test]
fn a_block_says_the_ends_of_its_bins() {
    let values: Int32Array = [41, 47, 44, 45, 52, 450, 449].into_iter().map(Some).collect();
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(values)]];
    let segment = binned(&files, "1");
    let block = &segment.directory.blocks[0];
    let range = block.offset..block.offset + u64::from(block.length);
    let bytes = segment.read(&[range]).remove(0);
    let bins = bin_block::decode(&bytes, &block.first_key, &segment.directory.key_type).unwrap();
    let zero = 1u64 << 63;
    let ends: Vec<_> = bins.iter().map(|bin| (bin.low - zero, bin.high - zero, bin.values, bin.rows)).collect();
    assert_eq!(ends, [(41, 44, 2, 2), (45, 47, 2, 2), (52, 52, 1, 1), (449, 449, 1, 1), (450, 450, 1, 1)]);
    assert_eq!((segment.directory.value_count, segment.directory.max_key.clone()), (7, Some(int(450))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_columns_answer_as_a_scan_does(
        values in prop::collection::vec(prop::option::weighted(0.9, prop_oneof![-150i32..150, -100_000i32..100_000]), 1..600),
        sorted in any::<bool>(),
        cut in 0usize..600,
        digits in 1u8..4,
        bounds in prop::collection::vec((-160i32..160, -100_000i32..100_000), 1..5),
    ) {
        let mut values = values;
        if sorted {
            values.sort();
        }
        let (first, second) = values.split_at(cut.min(values.len()));
        let files: Vec<Vec<ArrayRef>> = [first, second]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| vec![Arc::new(Int32Array::from(part.to_vec())) as ArrayRef])
            .collect();
        let segment = build_with(&files, false, Encoding::Binned, None, Some(Precision::Digits(digits))).unwrap();
        let mut all = KeyRanges::none();
        for (a, b) in bounds {
            all = all.union(&between(a.min(b), a.max(b)));
            check(&segment, &files, &Test::Ranges(all.clone()));
            check(&segment, &files, &Test::Ranges(all.complement()));
            check(&segment, &files, &Test::Ranges(KeyRanges::point(int(a))));
        }
    }
}
