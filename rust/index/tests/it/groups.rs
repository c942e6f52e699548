//! Counts by value against a plain count of the values.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int32Array, StringArray};
use lakemark_format::key::Key;
use lakemark_format::segment::SegmentDirectory;
use lakemark_format::segment::encoding::Encoding;
use lakemark_index::bitmap::{Mask, ValueGroups, bitmap_ranges, posting_ranges};
use lakemark_index::{KeyRanges, LiteralKey, RowSet, encode_literal};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bitmap::{Segment, build, build_as};

/// Rows by value among the chosen ones: what each file holds, and which of its rows count.
fn naive(files: &[Vec<ArrayRef>], chosen: &[RowSet], ranges: &KeyRanges) -> BTreeMap<Key, u64> {
    let mut counts = BTreeMap::new();
    for (groups, chosen) in files.iter().zip(chosen) {
        let values = groups.iter().flat_map(|group| (0..group.len()).map(move |row| group.slice(row, 1)));
        for (row, value) in values.enumerate() {
            if let (Some(LiteralKey::Key(key)), true) = (encode_literal(value.as_ref()), chosen.contains(row as u32))
                && ranges.contains(&key)
            {
                *counts.entry(key).or_default() += 1;
            }
        }
    }
    counts
}

fn found(segment: &Segment, chosen: Option<&[RowSet]>, ranges: &KeyRanges) -> BTreeMap<Key, u64> {
    let groups = ValueGroups::new(&segment.directory, ranges.clone());
    let all = 0..groups.block_count();
    let values = groups.values(all.clone(), &segment.read(&groups.block_ranges(all.clone()))).unwrap();
    let each = all.map(|block| groups.values(block..block + 1, &segment.read(&groups.block_ranges(block..block + 1))));
    assert_eq!(each.collect::<Result<Vec<_>, _>>().unwrap().concat(), values);
    let counts: Vec<u64> = match chosen {
        None => values.iter().map(|value| u64::from(value.rows)).collect(),
        Some(chosen) => {
            let mut mask = Mask::new(segment.directory.universe);
            for (file, rows) in segment.directory.files.iter().zip(chosen) {
                mask.insert(file.base, rows);
            }
            if let Some(bitmaps) = bitmap_ranges(&segment.directory) {
                let counts = mask.count_ranks(&segment.directory, &segment.read(&bitmaps)).unwrap();
                assert_eq!(counts.len() as u64, segment.directory.value_count);
                return held(values.iter().map(|value| (value.key.clone(), counts[value.rank as usize])));
            }
            // Some values at a time, as a caller with little memory does it.
            let batches = values.chunks(7);
            let count = |batch| mask.count_each(batch, &segment.read(&posting_ranges(batch))).unwrap();
            batches.flat_map(count).collect()
        }
    };
    held(values.into_iter().zip(counts).map(|(value, rows)| (value.key, rows)))
}

fn held(counts: impl Iterator<Item = (Key, u64)>) -> BTreeMap<Key, u64> {
    counts.filter(|(_, rows)| *rows > 0).collect()
}

fn check(files: &[Vec<ArrayRef>], rng: &mut StdRng, ranges: &[KeyRanges]) {
    let segment = build(files, false);
    let rows: Vec<u32> = files.iter().map(|groups| groups.iter().map(|group| group.len() as u32).sum()).collect();
    let all: Vec<RowSet> = rows.iter().map(|&rows| RowSet::full(rows)).collect();
    for ranges in ranges {
        assert_eq!(found(&segment, None, ranges), naive(files, &all, ranges));
        for share in [0.0, 0.01, 0.5, 1.0] {
            let chosen = rows
                .iter()
                .map(|&rows| RowSet::from_rows((0..rows).filter(|_| rng.random_bool(share)).collect(), rows));
            let chosen: Vec<RowSet> = chosen.collect();
            assert_eq!(found(&segment, Some(&chosen), ranges), naive(files, &chosen, ranges), "{share}");
        }
    }
}

#[test]
fn counts_by_value_are_those_of_a_scan() {
    let mut rng = StdRng::seed_from_u64(5);
    for values in [1, 5, 300, 40_000] {
        let file = |rng: &mut StdRng, rows: usize| -> Vec<ArrayRef> {
            (0..2)
                .map(|_| {
                    let cells = (0..rows).map(|_| rng.random_bool(0.9).then(|| rng.random_range(0..values)));
                    Arc::new(cells.collect::<Int32Array>()) as ArrayRef
                })
                .collect()
        };
        let files = [file(&mut rng, 1_000), file(&mut rng, 33), file(&mut rng, 2_500)];
        let key = |value: i32| match encode_literal(&Int32Array::from(vec![value])) {
            Some(LiteralKey::Key(key)) => key,
            other => panic!("{other:?}"),
        };
        let some = KeyRanges::between(Bound::Included(key(2)), Bound::Excluded(key(values / 2)));
        check(&files, &mut rng, &[KeyRanges::all(), KeyRanges::none(), some, KeyRanges::points(vec![key(0), key(3)])]);
    }
}

#[test]
fn texts_and_floats_with_nan_are_counted_by_value() {
    let mut rng = StdRng::seed_from_u64(6);
    let texts: StringArray = (0..3_000).map(|row| (row % 4 != 1).then(|| format!("text {}", row % 211))).collect();
    let floats: Float64Array =
        (0..3_000).map(|row| Some(if row % 10 == 0 { f64::NAN } else { f64::from(row % 17) })).collect();
    check(&[vec![Arc::new(texts)]], &mut rng, &[KeyRanges::all()]);
    check(&[vec![Arc::new(floats)]], &mut rng, &[KeyRanges::all()]);
}

#[test]
fn bytes_of_another_question_are_errors() {
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values((0..5_000).map(|row| row % 900)));
    let segment = build(&[vec![values]], false);
    let groups = ValueGroups::new(&segment.directory, KeyRanges::all());
    let all = 0..groups.block_count();
    let blocks = segment.read(&groups.block_ranges(all.clone()));
    let values = groups.values(all.clone(), &blocks).unwrap();
    assert_eq!(values.len(), 900);
    assert!(groups.values(all.clone(), &[]).is_err());
    let mut damaged = blocks.clone();
    damaged[0].truncate(5);
    assert!(groups.values(all.clone(), &damaged).is_err());
    let mask = Mask::new(segment.directory.universe);
    assert!(mask.count_each(&values, &[]).is_err());
    let mut short = segment.read(&posting_ranges(&values));
    assert_eq!(short.len(), all.len(), "the postings of a block lie together");
    short[0] = short[0].slice(1..);
    assert!(mask.count_each(&values, &short).is_err());
}

/// Encodings without postings find rows by rank; rows without a value are not chosen.
#[test]
fn bitmaps_of_the_coarse_level_count_by_value() {
    let mut rng = StdRng::seed_from_u64(7);
    for encoding in [Encoding::Binary, Encoding::Range, Encoding::Interval] {
        for values in [1, 2, 3, 4, 5, 8, 63, 64, 200] {
            let cells: Int32Array =
                (0..3_000).map(|_| rng.random_bool(0.9).then(|| rng.random_range(0..values) * 3)).collect();
            let files: [Vec<ArrayRef>; 2] =
                [vec![Arc::new(cells.slice(0, 1_700))], vec![Arc::new(cells.slice(1_700, 1_300))]];
            let segment = build_as(&files, false, encoding, None).unwrap();
            for share in [0.0, 0.02, 0.6, 1.0] {
                let of_file = |groups: &Vec<ArrayRef>| {
                    let rows = groups[0].len() as u32;
                    let valued = (0..rows).filter(|row| groups[0].is_valid(*row as usize));
                    RowSet::from_rows(valued.filter(|_| rng.random_bool(share)).collect(), rows)
                };
                let chosen: Vec<RowSet> = files.iter().map(of_file).collect();
                for ranges in [KeyRanges::all(), KeyRanges::none()] {
                    let expected = naive(&files, &chosen, &ranges);
                    assert_eq!(
                        found(&segment, Some(&chosen), &ranges),
                        expected,
                        "{} {values} {share}",
                        encoding.name()
                    );
                }
            }
            let mask = Mask::new(segment.directory.universe);
            let bitmaps = segment.read(&bitmap_ranges(&segment.directory).unwrap());
            assert_eq!(mask.count_ranks(&segment.directory, &bitmaps).unwrap().iter().sum::<u64>(), 0);
            if let Some(fewer) = bitmaps.len().checked_sub(1) {
                assert!(mask.count_ranks(&segment.directory, &bitmaps[..fewer]).is_err());
            }
        }
    }
    let with_postings = build(&[vec![Arc::new(Int32Array::from(vec![1, 2]))]], false);
    assert_eq!(bitmap_ranges(&with_postings.directory), None);
    assert!(Mask::new(with_postings.directory.universe).count_ranks(&with_postings.directory, &[]).is_err());
}

#[test]
fn law_5_a_leaf_of_more_rows_than_its_directory_says_is_refused() {
    let keys: ArrayRef = Arc::new(Int32Array::from_iter_values((0..500).map(|row| row / 2)));
    let segment = build_as(&[vec![keys]], false, Encoding::Packed, None).unwrap();
    let ranges = KeyRanges::points((0..250).map(|key| Key::Fixed(lakemark_format::key::key_of_i64(key))).collect());
    let values = |directory: &Arc<SegmentDirectory>| {
        let groups = ValueGroups::new(directory, ranges.clone());
        let all = 0..groups.block_count();
        groups.values(all.clone(), &segment.read(&groups.block_ranges(all)))
    };
    assert_eq!(values(&segment.directory).unwrap().len(), 250);
    let mut fewer = SegmentDirectory::clone(&segment.directory);
    fewer.blocks[0].rows -= 1;
    assert!(values(&Arc::new(fewer)).unwrap_err().to_string().contains("the rows of a leaf"));
}
