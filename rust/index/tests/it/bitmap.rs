//! The bitmap kind against a plain scan of the values.

use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int32Array, StringArray};
use bytes::Bytes;
use lakemark_format::container::{open_tail, physical_range, read_logical};
use lakemark_format::key::Key;
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::segment::{SegmentDirectory, SegmentFile};
use lakemark_index::bitmap::{
    BuildError, ChunkBuilder, ChunkSource, CountSearch, Estimate, Search, SegmentMeta, SegmentRows, SegmentSummary,
    WeightBounds, merge,
};
use lakemark_index::zones::ZoneOptions;
use lakemark_index::{KeyRanges, LiteralKey, Precision, RowSet, Test, encode_literal, key_type_of, list_type_of};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub struct Segment {
    pub bytes: Vec<u8>,
    pub directory: Arc<SegmentDirectory>,
    pub summary: SegmentSummary,
}

/// Builds a segment of files, each a list of row groups.
pub fn build(files: &[Vec<ArrayRef>], spill: bool) -> Segment {
    build_as(files, spill, Encoding::Equality, None).unwrap()
}

/// The same with any encoding; what `bins` says of a coarse level are the digits of the encoding `binned`.
pub fn build_as(
    files: &[Vec<ArrayRef>],
    spill: bool,
    encoding: Encoding,
    bins: Option<u32>,
) -> Result<Segment, BuildError> {
    let digits = Precision::Digits(bins.unwrap_or(1).min(15) as u8);
    build_with(files, spill, encoding, bins, (encoding == Encoding::Binned).then_some(digits))
}

/// The same with any precision.
pub fn build_with(
    files: &[Vec<ArrayRef>],
    spill: bool,
    encoding: Encoding,
    bins: Option<u32>,
    precision: Option<Precision>,
) -> Result<Segment, BuildError> {
    build_zoned(files, spill, encoding, (bins, precision), ZoneOptions::default())
}

/// The same with any zones.
pub fn build_zoned(
    files: &[Vec<ArrayRef>],
    spill: bool,
    encoding: Encoding,
    (bins, precision): (Option<u32>, Option<Precision>),
    zones: ZoneOptions,
) -> Result<Segment, BuildError> {
    let data_type = files[0][0].data_type();
    let key_type = key_type_of(data_type).or_else(|| list_type_of(data_type)).unwrap();
    let (mut segment_files, mut chunks, mut base) = (Vec::new(), Vec::new(), 0u32);
    for (number, groups) in files.iter().enumerate() {
        let mut row = base;
        for group in groups {
            let mut builder = ChunkBuilder::new(&key_type);
            let half = group.len() / 2;
            builder.push(group.slice(0, half).as_ref()).unwrap();
            builder.push(group.slice(half, group.len() - half).as_ref()).unwrap();
            let chunk = builder.finish();
            assert_eq!(chunk.row_count() as usize, group.len());
            chunks.push(if spill {
                let mut spilled = Vec::new();
                chunk.spill(&mut spilled).unwrap();
                ChunkSource::spilled(row, Box::new(Cursor::new(spilled)), key_type.clone()).unwrap()
            } else {
                ChunkSource::memory(row, chunk)
            });
            row += group.len() as u32;
        }
        let row_groups = groups.iter().map(|group| group.len() as u32).collect();
        segment_files.push(SegmentFile {
            path: format!("f{number}.parquet"),
            base,
            row_groups,
            footer_hash: 1,
            column_hash: 2,
        });
        base = row.next_multiple_of(64);
    }
    let meta = SegmentMeta {
        segment_id: [7; 16],
        index_id: [8; 16],
        column: "c".into(),
        key_type: key_type.clone(),
        files: segment_files,
        encoding,
        bins,
        precision,
        zones,
        riding: Vec::new(),
    };
    let mut bytes = Vec::new();
    let summary = merge(meta, chunks, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    let opened = open_tail(&bytes, bytes.len() as u64).unwrap();
    let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer).unwrap();
    assert_eq!(summary.length, bytes.len() as u64);
    Ok(Segment { bytes, directory: Arc::new(directory), summary })
}

impl Segment {
    pub fn read(&self, ranges: &[Range<u64>]) -> Vec<Bytes> {
        let trailer = open_tail(&self.bytes, self.bytes.len() as u64).unwrap().trailer;
        ranges
            .iter()
            .map(|range| {
                let pages = physical_range(range.clone(), &trailer);
                let pages = &self.bytes[pages.start as usize..pages.end as usize];
                read_logical(pages, range.clone(), &trailer).unwrap().into_owned().into()
            })
            .collect()
    }

    /// The answer, and how many bytes of postings it took.
    pub fn search(&self, test: &Test) -> (SegmentRows, u64) {
        let mut search = Search::new(&self.directory, test);
        let first = self.read(&search.first_ranges());
        let second = search.second_ranges(&first).unwrap();
        let read = second.iter().map(|range| range.end - range.start).sum();
        let found = search.finish(&self.read(&second)).unwrap();
        if let Some(in_parts) = self.search_in_parts(test, 2) {
            assert_eq!(in_parts, found, "{test:?}");
        }
        (found, read)
    }

    /// The answer from parts of the leaves of a packed tree, the last part first.
    fn search_in_parts(&self, test: &Test, leaves_of_part: usize) -> Option<SegmentRows> {
        let mut search = Search::new(&self.directory, test);
        let leaves = search.split_leaves(0)?;
        assert!(search.second_ranges(&self.read(&search.first_ranges())).unwrap().is_empty());
        let parts = (0..leaves.leaf_count()).step_by(leaves_of_part).rev().map(|start| {
            let part = start..(start + leaves_of_part).min(leaves.leaf_count());
            let bytes = self.read(&leaves.ranges(&self.directory, part.clone()));
            let mut found = leaves.find(&self.directory, part, &bytes).unwrap();
            found.take_long(&self.read(&found.long_ranges()), self.directory.universe).unwrap();
            found
        });
        Some(search.finish_parts(&leaves, &parts.collect::<Vec<_>>()).unwrap())
    }

    /// Bounds hold, and with the edge blocks at hand the estimate is the number itself.
    fn check_estimate(&self, test: &Test, passing: usize) {
        let estimate = Estimate::new(&self.directory, test);
        let WeightBounds { least, most } = estimate.bounds();
        let exactly = estimate.exactly(&self.read(&estimate.edge_ranges()));
        // Of a bin that a bound cuts, half is taken to pass.
        if self.directory.encoding == Encoding::Binned {
            assert!(least.rows <= passing as f64 && passing as f64 <= most.rows, "{test:?}");
        } else {
            assert_eq!(exactly.rows, passing as f64, "{test:?}");
        }
        assert!(least.rows <= exactly.rows && exactly.rows <= most.rows, "{test:?}: {least:?}, {most:?}");
        assert!(least.bytes <= exactly.bytes && exactly.bytes <= most.bytes, "{test:?}: {least:?}, {most:?}");
    }

    fn count(&self, test: &Test) -> Option<u64> {
        Some(self.count_reading(test)?.0)
    }

    /// The number of rows, and how many bytes it took beside those of blocks.
    pub fn count_reading(&self, test: &Test) -> Option<(u64, u64)> {
        let mut count = CountSearch::new(&self.directory, test)?;
        let second = count.second_ranges(&self.read(&count.first_ranges())).unwrap();
        let read = second.iter().map(|range| range.end - range.start).sum();
        Some((count.finish(&self.read(&second)).unwrap(), read))
    }
}

pub fn key_of(array: &dyn Array, row: usize) -> Option<LiteralKey> {
    encode_literal(array.slice(row, 1).as_ref())
}

/// Checks a test against a scan of the values.
pub fn check(segment: &Segment, files: &[Vec<ArrayRef>], test: &Test) {
    let (found, _) = segment.search(test);
    let (mut t, mut n, mut opaque) = (Vec::new(), Vec::new(), Vec::new());
    for (file, groups) in segment.directory.files.iter().zip(files) {
        let mut row = file.base;
        for group in groups {
            for index in 0..group.len() {
                match (key_of(group.as_ref(), index), test) {
                    (Some(LiteralKey::Null), Test::IsNull) => t.push(row),
                    (Some(LiteralKey::Null), Test::Ranges(_)) => n.push(row),
                    (None, Test::Ranges(_)) => opaque.push(row),
                    (Some(LiteralKey::Key(key)), Test::Ranges(ranges)) if ranges.contains(&key) => t.push(row),
                    _ => {}
                }
                row += 1;
            }
        }
    }
    segment.check_estimate(test, t.len());
    let universe = segment.directory.universe;
    let expected_count = (opaque.is_empty() || *test == Test::IsNull).then_some(t.len() as u64);
    assert_eq!(found.t, RowSet::from_rows(t, universe), "{test:?}");
    assert_eq!(found.n, RowSet::from_rows(n, universe));
    assert_eq!(found.opaque, RowSet::from_rows(opaque, universe));
    // Where a file has NaN only in some rows, IS NULL is still exact.
    assert_eq!(segment.count(test), expected_count, "{test:?}");
}

pub fn ranges_over(keys: &[Key]) -> Vec<Test> {
    let mut tests = vec![Test::IsNull, Test::Ranges(KeyRanges::all()), Test::Ranges(KeyRanges::none())];
    for (index, key) in keys.iter().enumerate().step_by(keys.len() / 7 + 1) {
        let other = keys[keys.len() - 1 - index].clone();
        tests.extend(
            [
                KeyRanges::point(key.clone()),
                KeyRanges::point(key.clone()).complement(),
                KeyRanges::less_than(key.clone(), index % 2 == 0),
                KeyRanges::greater_than(key.clone(), index % 2 == 1),
                KeyRanges::greater_than(key.clone(), true).intersect(&KeyRanges::less_than(other.clone(), false)),
                KeyRanges::points(vec![key.clone(), other]),
            ]
            .map(Test::Ranges),
        );
    }
    tests
}

pub fn ints(rng: &mut StdRng, rows: usize, cardinality: i32, null_rate: f64) -> ArrayRef {
    Arc::new(
        (0..rows)
            .map(|_| (!rng.random_bool(null_rate)).then(|| rng.random_range(0..cardinality)))
            .collect::<Int32Array>(),
    )
}

#[test]
fn every_cardinality_answers_as_a_scan_does() {
    let mut rng = StdRng::seed_from_u64(1);
    for cardinality in [1, 2, 5, 25, 1000, 5000] {
        for null_rate in [0.0, 0.3] {
            let files: Vec<Vec<ArrayRef>> = [[900, 70], [1000, 1]]
                .iter()
                .map(|rows| rows.iter().map(|&n| ints(&mut rng, n, cardinality, null_rate)).collect())
                .collect();
            let segment = build(&files, false);
            let keys: Vec<Key> = [-1, 0, 1, cardinality / 2, cardinality - 1, cardinality]
                .iter()
                .map(|&v| match key_of(&Int32Array::from(vec![v]), 0) {
                    Some(LiteralKey::Key(key)) => key,
                    other => panic!("{other:?}"),
                })
                .collect();
            for test in ranges_over(&keys) {
                check(&segment, &files, &test);
            }
        }
    }
}

#[test]
fn spilled_chunks_give_the_same_bytes() {
    let mut rng = StdRng::seed_from_u64(2);
    let numbers: Vec<Vec<ArrayRef>> = vec![vec![ints(&mut rng, 3000, 700, 0.1), ints(&mut rng, 10, 700, 1.0)]];
    assert_eq!(build(&numbers, true).bytes, build(&numbers, false).bytes);
    let texts: Vec<ArrayRef> = vec![Arc::new(
        (0..3000).map(|i| (i % 9 != 0).then(|| format!("k{}", i * 7919 % 1500))).collect::<StringArray>(),
    )];
    assert_eq!(build(std::slice::from_ref(&texts), true).bytes, build(&[texts], false).bytes);
}

#[test]
fn nan_rows_are_opaque_and_nothing_else_is() {
    let values = Float64Array::from(vec![Some(1.0), None, Some(f64::NAN), Some(-0.0), Some(f64::INFINITY), Some(0.0)]);
    let files: Vec<Vec<ArrayRef>> = vec![vec![Arc::new(values)]];
    let segment = build(&files, false);
    let zero = match key_of(&Float64Array::from(vec![0.0]), 0) {
        Some(LiteralKey::Key(key)) => key,
        other => panic!("{other:?}"),
    };
    let (found, _) = segment.search(&Test::Ranges(KeyRanges::point(zero.clone())));
    assert_eq!(found.t.iter().collect::<Vec<_>>(), [3, 5]);
    assert_eq!(found.opaque.iter().collect::<Vec<_>>(), [2]);
    check(&segment, &files, &Test::Ranges(KeyRanges::less_than(zero, true)));
    check(&segment, &files, &Test::IsNull);
}

/// The complement is read where it is shorter: `!= 0` over 2 values in 100 rows each costs one posting.
#[test]
fn at_most_half_of_the_rows_are_read() {
    let mut rng = StdRng::seed_from_u64(3);
    let files = vec![vec![ints(&mut rng, 100_000, 100, 0.0)]];
    let segment = build(&files, false);
    let all: u64 = segment.directory.blocks.iter().map(|block| block.postings_length).sum();
    let Some(LiteralKey::Key(key)) = key_of(&Int32Array::from(vec![90]), 0) else { panic!("no key") };
    let (_, below) = segment.search(&Test::Ranges(KeyRanges::less_than(key.clone(), false)));
    let (_, above) = segment.search(&Test::Ranges(KeyRanges::greater_than(key, true)));
    assert_eq!(below, above);
    assert!(below * 8 < all, "{below} of {all}");
}

#[test]
fn sizes_stay_within_the_promise() {
    // 100,000 rows of 1,000 values: Elias-Fano costs at most log2(1000) + 3 bits a row, the directory little.
    let mut rng = StdRng::seed_from_u64(4);
    let segment = build(&[vec![ints(&mut rng, 100_000, 1000, 0.0)]], false);
    assert_eq!((segment.summary.rows, segment.summary.values), (100_000, 1000));
    assert!(segment.summary.length < 100_000 * 13 / 8, "{}", segment.summary.length);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn texts_answer_as_a_scan_does(values in prop::collection::vec(prop::option::weighted(0.8, "[ab]{0,6}"), 1..400), split in 0usize..400, prefix in "[ab]{0,2}") {
        let split = split.min(values.len());
        let groups: Vec<ArrayRef> = [&values[..split], &values[split..]].iter().filter(|part| !part.is_empty())
            .map(|part| Arc::new(part.iter().cloned().collect::<StringArray>()) as ArrayRef).collect();
        let files = vec![groups];
        let segment = build(&files, false);
        check(&segment, &files, &Test::Ranges(KeyRanges::prefix(prefix.as_bytes())));
        for test in ranges_over(&[Key::Bytes(prefix.into_bytes()), Key::Bytes(b"abb".to_vec())]) {
            check(&segment, &files, &test);
        }
    }
}
