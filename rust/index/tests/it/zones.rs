//! The kinds `bloom_tree` and `summary` against a plain scan of the values.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, Float64Array, Int32Array, Int64Array, StringArray};
use bytes::Bytes;
use lakemark_format::key::{Key, key_of_i64};
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::zones::{Filters, slice_bytes};
use lakemark_format::{SegmentDirectory, SegmentFile, open_tail};
use lakemark_index::bitmap::{BuildError, ChunkSource, SegmentMeta, SegmentRows, merge_zones};
use lakemark_index::zones::{LoadedZones, ZoneOptions, ZonePart, ZoneSearch, common_filters};
use lakemark_index::{KeyRanges, LiteralKey, RowSet, Test, encode_literal};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::bitmap::{Segment, build_zoned, key_of};

/// Bytes of filters that a merge reads at a time.
const PIECE_BYTES: u64 = 1000;

const ZONED: [Encoding; 2] = [Encoding::Filtered, Encoding::Sliced];

fn build(files: &[Vec<ArrayRef>], encoding: Encoding, zones: ZoneOptions) -> Segment {
    build_zoned(files, false, encoding, (None, None), zones).unwrap()
}

/// The answer and the bytes of filters that it took.
fn search(segment: &Segment, test: &Test) -> (SegmentRows, u64) {
    let search = ZoneSearch::new(&segment.directory, test);
    let ranges = search.ranges();
    let lists = u64::from(segment.directory.nulls.length) + u64::from(segment.directory.opaque.length);
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    (search.finish(&segment.read(&ranges)).unwrap(), bytes.saturating_sub(lists))
}

/// No row that passes is left out, no row is exact that does not, and NULL always is.
fn check(segment: &Segment, files: &[Vec<ArrayRef>], test: &Test) {
    let (found, _) = search(segment, test);
    let (mut passing, mut nulls, mut opaque) = (Vec::new(), Vec::new(), Vec::new());
    for (file, groups) in segment.directory.files.iter().zip(files) {
        let mut row = file.base;
        for group in groups {
            for index in 0..group.len() {
                match (key_of(group.as_ref(), index), test) {
                    (Some(LiteralKey::Null), Test::IsNull) => passing.push(row),
                    (Some(LiteralKey::Null), Test::Ranges(_)) => nulls.push(row),
                    (None, Test::Ranges(_)) => opaque.push(row),
                    (Some(LiteralKey::Key(key)), Test::Ranges(ranges)) if ranges.contains(&key) => passing.push(row),
                    _ => {}
                }
                row += 1;
            }
        }
    }
    let universe = segment.directory.universe;
    let set = |rows: Vec<u32>| RowSet::from_rows(rows, universe);
    let (passing, opaque) = (set(passing), set(opaque));
    assert_eq!(found.n, set(nulls), "{test:?}");
    assert!(passing.is_subset(&found.t.or(&found.opaque)), "{test:?}: rows are lost");
    assert!(found.t.is_subset(&passing), "{test:?}: rows are exact that do not pass");
    assert!(opaque.is_subset(&found.opaque), "{test:?}");
    for (a, b) in [(&found.t, &found.n), (&found.t, &found.opaque), (&found.n, &found.opaque)] {
        assert!(a.and(b).is_empty(), "{test:?}");
    }
    if *test == Test::IsNull {
        assert_eq!(found.t, passing);
    }
}

fn tests_of(files: &[Vec<ArrayRef>], rng: &mut StdRng) -> Vec<Test> {
    let groups: Vec<&ArrayRef> = files.iter().flatten().filter(|group| !group.is_empty()).collect();
    let mut keys = BTreeSet::new();
    for _ in 0..40 {
        if groups.is_empty() {
            break;
        }
        let group = groups[rng.random_range(0..groups.len())];
        if let Some(LiteralKey::Key(key)) = encode_literal(group.slice(rng.random_range(0..group.len()), 1).as_ref()) {
            keys.insert(key);
        }
    }
    let near = |key: &Key| match key {
        Key::Fixed(key) => Key::Fixed(key.wrapping_add(1)),
        Key::Bytes(bytes) => Key::Bytes([bytes.as_slice(), &[0]].concat()),
    };
    let keys: Vec<Key> = keys.into_iter().collect();
    let mut tests = vec![Test::IsNull, Test::Ranges(KeyRanges::all()), Test::Ranges(KeyRanges::none())];
    for pair in keys.windows(2) {
        tests.push(Test::Ranges(KeyRanges::point(pair[0].clone())));
        tests.push(Test::Ranges(KeyRanges::point(near(&pair[0]))));
        tests.push(Test::Ranges(KeyRanges::point(pair[0].clone()).complement()));
        tests.push(Test::Ranges(KeyRanges::less_than(pair[0].clone(), true)));
        tests.push(Test::Ranges(KeyRanges::greater_than(pair[1].clone(), false)));
        let range = KeyRanges::between(Bound::Excluded(pair[0].clone()), Bound::Included(pair[1].clone()));
        tests.push(Test::Ranges(range));
    }
    tests.push(Test::Ranges(KeyRanges::points(keys.iter().step_by(3).cloned().collect())));
    tests.push(Test::Ranges(KeyRanges::points(keys).complement()));
    tests
}

fn values(kind: u8, rows: usize, rng: &mut StdRng) -> ArrayRef {
    let spread = [3, 50, 100_000][rng.random_range(0..3)];
    let mut numbers: Vec<Option<i64>> =
        (0..rows).map(|_| (!rng.random_ratio(1, 9)).then(|| rng.random_range(0..spread))).collect();
    if rng.random() {
        numbers.sort();
    }
    let text = |number: i64| match number % 7 {
        0 => format!("{}{number}", "long".repeat(40)),
        _ => format!("{number:x}"),
    };
    match kind {
        0 => Arc::new(Int64Array::from(numbers)),
        1 => Arc::new(Int32Array::from_iter(numbers.iter().map(|number| number.map(|number| number as i32 - 25)))),
        2 => Arc::new(Float64Array::from_iter(
            numbers
                .iter()
                .map(|number| number.map(|number| if number % 5 == 4 { f64::NAN } else { number as f64 / 4.0 - 3.0 })),
        )),
        3 => Arc::new(StringArray::from_iter(numbers.iter().map(|number| number.map(text)))),
        _ => Arc::new(BinaryArray::from_iter(
            // Fences that cannot be cut upwards, and values that are too long for a key.
            numbers
                .iter()
                .map(|number| number.map(|number| vec![255; if number == 2 { 5000 } else { number as usize % 90 }])),
        )),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_row_is_lost_and_none_is_exact_in_vain(
        seed: u64,
        kind in 0u8..5,
        fpp in prop::option::of(prop::sample::select(vec![0.9, 0.2, 0.01, 1e-9])),
        zone_rows in prop::option::of(prop::sample::select(vec![1u32, 7, 64, 1000])),
        spill: bool,
    ) {
        let mut rng = StdRng::seed_from_u64(seed);
        let files: Vec<Vec<ArrayRef>> = (0..rng.random_range(1..4))
            .map(|_| {
                let groups = rng.random_range(1..4);
                (0..groups).map(|_| { let rows = [0, 1, 30, 700][rng.random_range(0..4)]; values(kind, rows, &mut rng) }).collect()
            })
            .collect();
        for encoding in ZONED {
            let options = ZoneOptions { zone_rows, fpp, memory_bytes: None };
            let segment = build_zoned(&files, spill, encoding, (None, None), options).unwrap();
            for test in tests_of(&files, &mut rng) {
                check(&segment, &files, &test);
            }
            verify(&segment, &files);
        }
    }
}

/// What a verification does: every key is held by the zone of its row.
fn verify(segment: &Segment, files: &[Vec<ArrayRef>]) {
    let zones = segment.directory.zones.as_ref().unwrap();
    let filters = zones.offset..zones.offset + zones.filter_bytes();
    let read = segment.read(std::slice::from_ref(&filters));
    let held = LoadedZones::new(zones, &read[0]);
    let mut ends = Vec::new();
    for rows in &zones.rows {
        ends.push(ends.last().copied().unwrap_or(0) + *rows as usize);
    }
    let mut row = 0;
    for group in files.iter().flatten() {
        for index in 0..group.len() {
            if let Some(LiteralKey::Key(key)) = key_of(group.as_ref(), index) {
                assert!(held.may_contain(ends.partition_point(|end| *end <= row), &key));
            }
            row += 1;
        }
    }
}

fn alike(segments: &[Segment], zones: ZoneOptions) -> Option<Filters> {
    let directories: Vec<&SegmentDirectory> = segments.iter().map(|segment| segment.directory.as_ref()).collect();
    common_filters(&directories, &zones)
}

/// The zones of some files of segments, one behind the other; none if their filters have nothing in common.
fn merged(segments: &[Segment], zones: ZoneOptions, is_kept: impl Fn(usize, &str) -> bool) -> Option<Segment> {
    alike(segments, zones)?;
    let (mut files, mut rows, mut parts, mut base) = (Vec::new(), Vec::new(), Vec::new(), 0u32);
    for (number, segment) in segments.iter().enumerate() {
        let mut places = Vec::new();
        for file in segment.directory.files.iter().filter(|file| is_kept(number, &file.path)) {
            let end = file.base + file.rows() as u32;
            places.push((file.base..end, base));
            files.push(SegmentFile { base, ..file.clone() });
            base = (base + file.rows() as u32).next_multiple_of(64);
        }
        let moved = |set: &RowSet| -> Vec<u32> {
            let place =
                |row: u32| places.iter().find(|(rows, _)| rows.contains(&row)).map(|(rows, to)| to + row - rows.start);
            set.iter().filter_map(place).collect()
        };
        let none = Test::Ranges(KeyRanges::points(Vec::new()));
        let (nulls, opaque) = (search(segment, &Test::IsNull).0.t, search(segment, &none).0.opaque);
        rows.push(ChunkSource::stream(moved(&nulls), moved(&opaque), Box::new(|| Ok(None))));
        let directory = Arc::clone(&segment.directory);
        let source =
            Segment { bytes: segment.bytes.clone(), directory: Arc::clone(&directory), summary: segment.summary };
        let zones = directory.zones.as_ref().unwrap();
        let most = PIECE_BYTES.max(slice_bytes(zones.rows.len()));
        let read = move |range: std::ops::Range<u64>| {
            assert!(range.end - range.start <= most, "{range:?} is more than is read at a time");
            Ok(source.read(&[range])[0].to_vec())
        };
        parts.push(ZonePart::new(directory, |file| is_kept(number, &file.path), PIECE_BYTES, Box::new(read)));
    }
    let first = &segments[0].directory;
    let meta = SegmentMeta {
        segment_id: [7; 16],
        index_id: [8; 16],
        column: "c".into(),
        key_type: first.key_type.clone(),
        files,
        encoding: first.encoding,
        bins: None,
        precision: None,
        zones,
        riding: Vec::new(),
    };
    let mut bytes = Vec::new();
    let summary = merge_zones(meta, &rows, parts, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    let summary = summary.unwrap();
    let opened = open_tail(&bytes, bytes.len() as u64).unwrap();
    let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer).unwrap();
    Some(Segment { bytes, directory: Arc::new(directory), summary })
}

fn filters_of(segment: &Segment) -> Bytes {
    let zones = segment.directory.zones.as_ref().unwrap();
    segment.read(std::slice::from_ref(&(zones.offset..zones.offset + zones.filter_bytes()))).remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn zones_that_are_put_together_lose_no_row_and_are_those_of_a_build(
        seed: u64,
        kind in 0u8..5,
        fpp in prop::option::of(prop::sample::select(vec![0.9, 0.2, 0.01, 1e-9])),
        zone_rows in prop::option::of(prop::sample::select(vec![1u32, 7, 64, 1000])),
        leaves_out: bool,
    ) {
        let mut rng = StdRng::seed_from_u64(seed);
        let sizes = if rng.random_bool(0.5) { vec![700, 700, 700, 700] } else { vec![0, 1, 30, 700] };
        let segments: Vec<Vec<Vec<ArrayRef>>> = (0..rng.random_range(2..5))
            .map(|_| {
                let mut file = || (0..rng.random_range(1..4)).map(|_| { let rows = sizes[rng.random_range(0..4)]; values(kind, rows, &mut rng) }).collect();
                (0..2).map(|_| file()).collect()
            })
            .collect();
        let is_kept = |segment: usize, path: &str| !leaves_out || segment == 0 || path == "f1.parquet";
        let kept: Vec<Vec<ArrayRef>> = segments.iter().enumerate().flat_map(|(segment, files)| {
            let files = files.iter().enumerate().filter(move |(file, _)| is_kept(segment, &format!("f{file}.parquet")));
            files.map(|(_, file)| file.clone())
        }).collect();
        for encoding in ZONED {
            let options = ZoneOptions { zone_rows, fpp, memory_bytes: None };
            let built: Vec<Segment> = segments.iter().map(|files| build(files, encoding, options)).collect();
            let Some(merged) = merged(&built, options, is_kept) else { continue };
            for test in tests_of(&kept, &mut rng) {
                check(&merged, &kept, &test);
            }
            verify(&merged, &kept);
            let fresh = build(&kept, encoding, options);
            let (zones, expected) = (merged.directory.zones.as_ref().unwrap(), fresh.directory.zones.as_ref().unwrap());
            prop_assert_eq!((&zones.rows, &zones.keys, &zones.fences), (&expected.rows, &expected.keys, &expected.fences));
            // Where a filter is repeated, a build has another one of the same shape.
            let is_same = |segment: &Segment| segment.directory.zones.as_ref().unwrap().filters == expected.filters;
            if built.iter().all(is_same) {
                prop_assert!(filters_of(&merged) == filters_of(&fresh), "the filters of a build are other ones");
            }
        }
    }
}

/// Numbers in no order, in row groups of so many rows.
fn shuffled(seed: u64, groups: usize, rows: usize) -> Vec<Vec<ArrayRef>> {
    let mut numbers: Vec<i64> = (0..(groups * rows) as i64).map(|row| row * 2).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(seed));
    vec![numbers.chunks(rows).map(|rows| Arc::new(Int64Array::from(rows.to_vec())) as ArrayRef).collect()]
}

/// Forty summaries of appended files are, put together, the summary that a build of all files makes: as dense, and as good.
#[test]
fn summaries_of_appended_files_come_to_the_summary_of_all_files() {
    let parts: Vec<Vec<Vec<ArrayRef>>> = (0..40).map(|seed| shuffled(seed, 3, 1000)).collect();
    let built: Vec<Segment> =
        parts.iter().map(|files| build(files, Encoding::Sliced, ZoneOptions::default())).collect();
    let together = merged(&built, ZoneOptions::default(), |_, _| true).unwrap();
    let fresh = build(&parts.concat(), Encoding::Sliced, ZoneOptions::default());
    assert_eq!(together.directory.zones, fresh.directory.zones);
    assert!(filters_of(&together) == filters_of(&fresh));
    assert_eq!(together.summary.zones, 120);
}

/// Zones of half as many keys have filters of half as many bits, of which each is repeated. Other sizes are made from the data.
#[test]
fn filters_of_half_the_bits_join_larger_ones_and_say_what_they_said() {
    let summary = |rows: usize| build(&shuffled(7, 16, rows), Encoding::Sliced, ZoneOptions::default());
    let [large, small, other] = [1000, 500, 600].map(summary);
    assert_eq!((bits_of(&large), bits_of(&small)), (26_624, 13_312));
    let parts = [large, other];
    assert!(alike(&parts, ZoneOptions::default()).is_none());
    let [large, _] = parts;
    let parts = [large, small];
    let together = merged(&parts, ZoneOptions::default(), |_, _| true).unwrap();
    let zones = together.directory.zones.as_ref().unwrap();
    let filters = filters_of(&together);
    let held = LoadedZones::new(zones, &filters);
    let small_filters = filters_of(&parts[1]);
    let alone = LoadedZones::new(parts[1].directory.zones.as_ref().unwrap(), &small_filters);
    for key in (0..10_000).map(|key| Key::Fixed(key_of_i64(key))) {
        for zone in 0..16 {
            assert_eq!(held.may_contain(16 + zone, &key), alone.may_contain(zone, &key), "{key:?} {zone}");
        }
    }
}

/// The bits of the filters of a summary.
fn bits_of(segment: &Segment) -> u64 {
    match segment.directory.zones.as_ref().unwrap().filters {
        Filters::Sliced(shape) => shape.bits(),
        Filters::Each(_) => panic!("no slices"),
    }
}

/// What a merge repeats is not repeated by each further merge: the bits of a summary follow from its keys.
#[test]
fn merges_of_ever_larger_zones_do_not_multiply_the_bits_of_small_ones() {
    let options = ZoneOptions::default();
    // Many zones of few keys, and again and again one of four times as many keys as before, which a build would give half its bits.
    let mut all = shuffled(1, 8000, 16);
    let mut summary = build(&all, Encoding::Sliced, options);
    for (seed, rows) in [(2, 64), (3, 256)] {
        let added = shuffled(seed, 1, rows);
        all.extend(added.clone());
        let fresh = build(&all, Encoding::Sliced, options);
        let parts = [summary, build(&added, Encoding::Sliced, options)];
        // Where they are not put together, the summary is built again.
        let together = merged(&parts, options, |_, _| true).unwrap_or_else(|| build(&all, Encoding::Sliced, options));
        assert!(bits_of(&together) <= 2 * bits_of(&fresh), "{} bits, not {}", bits_of(&together), bits_of(&fresh));
        summary = together;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn generations_of_merges_stay_within_twice_the_bits_of_a_build(
        seed: u64,
        fpp in prop::option::of(prop::sample::select(vec![0.2, 0.01, 1e-6])),
        generations in prop::collection::vec((1usize..5, 0u32..5), 2..7),
    ) {
        let options = ZoneOptions { fpp, ..ZoneOptions::default() };
        let (mut all, mut summary) = (Vec::new(), None);
        for (number, (groups, power)) in (0..).zip(generations) {
            let added = shuffled(seed.wrapping_add(number), groups, 32 << power);
            all.extend(added.clone());
            let fresh = build(&all, Encoding::Sliced, options);
            let part = build(&added, Encoding::Sliced, options);
            let together = match summary.take() {
                None => part,
                Some(before) => merged(&[before, part], options, |_, _| true).unwrap_or_else(|| build(&all, Encoding::Sliced, options)),
            };
            let few = bits_of(&together) <= 128;
            prop_assert!(few || bits_of(&together) <= 2 * bits_of(&fresh), "{} bits, not {}", bits_of(&together), bits_of(&fresh));
            verify(&together, &all);
            summary = Some(together);
        }
    }
}

/// A summary whose probability was named, of few zones: without that name it is no summary as others are.
#[test]
fn summaries_of_fewer_hashes_are_built_again_unless_their_probability_is_named() {
    let named = ZoneOptions { fpp: Some(0.05), ..ZoneOptions::default() };
    let built: Vec<Segment> = (0..3).map(|seed| build(&shuffled(seed, 1, 1000), Encoding::Sliced, named)).collect();
    assert!(alike(&built, named).is_some());
    assert!(alike(&built, ZoneOptions::default()).is_none());
}

/// Trees of keys in order stay as good, whatever comes behind them. Where zones overlap, filters need more bits the more zones there are.
#[test]
fn trees_join_as_long_as_few_fences_are_around_a_key() {
    let in_order = |first: i64| {
        let group = |group: i64| {
            Arc::new(Int64Array::from_iter_values((0..1000).map(|row| first + group * 1000 + row))) as ArrayRef
        };
        build(&[(0..20).map(group).collect()], Encoding::Filtered, ZoneOptions::default())
    };
    assert!(alike(&[in_order(0), in_order(20_000), in_order(90_000)], ZoneOptions::default()).is_some());
    let spread = |seed: u64, zones| build(&shuffled(seed, 20, 1000), Encoding::Filtered, zones);
    let default = ZoneOptions::default();
    assert!(alike(&[spread(1, default), spread(2, default)], default).is_some(), "0.1 zones in vain");
    assert!(alike(&[spread(1, default), spread(2, default), spread(3, default)], default).is_none());
    let named = ZoneOptions { fpp: Some(0.01), ..default };
    assert!(alike(&[spread(1, named), spread(2, named), spread(3, named)], named).is_some());
}

fn point(key: i64) -> Test {
    Test::Ranges(KeyRanges::point(Key::Fixed(key_of_i64(key))))
}

/// Even numbers in order, 1,000 row groups of 1,000 rows.
fn ordered() -> Vec<Vec<ArrayRef>> {
    let group =
        |group: i64| Arc::new(Int64Array::from_iter_values((0..1000).map(|row| (group * 1000 + row) * 2))) as ArrayRef;
    vec![(0..1000).map(group).collect()]
}

/// The same in no order.
fn permuted() -> Vec<Vec<ArrayRef>> {
    let mut numbers: Vec<i64> = (0..1_000_000).map(|row| row * 2).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(7));
    vec![numbers.chunks(1000).map(|rows| Arc::new(Int64Array::from(rows.to_vec())) as ArrayRef).collect()]
}

#[test]
fn in_order_a_key_is_in_one_zone_and_costs_one_block() {
    let files = ordered();
    let segment = build(&files, Encoding::Filtered, ZoneOptions::default());
    assert_eq!(segment.summary.overlap, Some(1.0));
    let zones = segment.directory.zones.as_ref().unwrap();
    // 0.05 expected false zones in one zone: 6.24 bits a key.
    assert_eq!(zones.filters, Filters::Each(lakemark_format::filter::Density::of_fpp(0.05)));
    assert_eq!(segment.bytes.len() / 1000, 791, "bytes: {}", segment.bytes.len());
    for key in [0, 778, 1_999_998] {
        let (found, bytes) = search(&segment, &point(key));
        assert_eq!((found.t.len(), found.opaque.len()), (0, 1000));
        assert!(found.opaque.contains(key as u32 / 2));
        assert_eq!(bytes, u64::from(zones.filters.bytes(&[1000]) as u32));
    }
    let false_zones: u32 = (0..1000).map(|key| search(&segment, &point(key * 2000 + 333)).0.opaque.len() / 1000).sum();
    assert!((30..=70).contains(&false_zones), "{false_zones} of 1000 searches at 0.05");
    assert_eq!(search(&segment, &point(-4)).1, 0, "no zone has the key between its fences");
}

#[test]
fn ranges_take_inner_zones_whole_and_ask_edges_key_by_key() {
    let segment = build(&ordered(), Encoding::Filtered, ZoneOptions { fpp: Some(1e-6), ..ZoneOptions::default() });
    let between = |low: i64, high: i64| {
        let bound = |key: i64| Bound::Included(Key::Fixed(key_of_i64(key)));
        search(&segment, &Test::Ranges(KeyRanges::between(bound(low), bound(high)))).0
    };
    let inner = between(2000, 9999);
    assert_eq!((inner.t.len(), inner.opaque.len()), (4000, 0));
    // 10,000 and 10,020 are in the next zone: 11 keys of which some are there.
    let edge = between(2000, 10_020);
    assert_eq!((edge.t.len(), edge.opaque.len()), (4000, 1000));
    let far = between(2000, 11_000);
    assert_eq!((far.t.len(), far.opaque.len()), (4000, 1000));
    let odd = between(2001, 2001);
    assert_eq!((odd.t.len(), odd.opaque.len()), (0, 0));
}

#[test]
fn in_no_order_a_summary_reads_a_slice_for_each_bit_of_a_key() {
    let files = permuted();
    let tree = build(&files, Encoding::Filtered, ZoneOptions { fpp: Some(0.01), ..ZoneOptions::default() });
    assert!(tree.summary.overlap.unwrap() > 990.0);
    let segment = build(&files, Encoding::Sliced, ZoneOptions::default());
    let zones = segment.directory.zones.as_ref().unwrap();
    let Filters::Sliced(shape) = zones.filters else { panic!("no slices") };
    // 0.05 expected false zones among 13,000, however many there are: 3.8e-6, 26 bits a key.
    assert_eq!(shape.hashes, 18);
    let mut found = 0;
    for probe in 0..1000 {
        let (rows, bytes) = search(&segment, &point(probe * 2 * 997 + 1));
        assert!(bytes <= 18 * 125, "{bytes}");
        assert_eq!(rows.opaque.len() % 1000, 0);
        found += rows.opaque.len() / 1000;
    }
    assert!(found <= 15, "{found} false zones in 1,000 searches of 1,000 zones at 3.8e-6");
    let (rows, _) = search(&segment, &point(424_242));
    assert!((1000..=2000).contains(&rows.opaque.len()));
    assert!((3.3..3.6).contains(&(segment.bytes.len() as f64 / 1e6)), "bytes: {}", segment.bytes.len());
}

#[test]
fn ranges_and_long_lists_leave_a_summary_undecided() {
    let segment = build(&permuted(), Encoding::Sliced, ZoneOptions { fpp: Some(0.01), ..ZoneOptions::default() });
    let wide = Test::Ranges(KeyRanges::less_than(Key::Fixed(key_of_i64(500)), true));
    let (rows, bytes) = search(&segment, &wide);
    assert_eq!((rows.t.len(), rows.opaque.len(), bytes), (0, 1_000_000, 0));
    let many = Test::Ranges(KeyRanges::points((0..200).map(|key| Key::Fixed(key_of_i64(key * 2 + 1))).collect()));
    assert_eq!(search(&segment, &many).1, 0, "200 keys at 0.01 would be found in nearly every zone");
}

#[test]
fn too_much_memory_and_too_many_zones_are_errors_that_say_what_to_do() {
    let refused =
        |options: ZoneOptions, encoding| match build_zoned(&permuted(), false, encoding, (None, None), options) {
            Err(error) => error,
            Ok(_) => panic!("built"),
        };
    let error = refused(ZoneOptions { memory_bytes: Some(1000), ..ZoneOptions::default() }, Encoding::Sliced);
    assert!(matches!(error, BuildError::TooManySlices { memory: 1000, .. }) && error.to_string().contains("--memory"));
    let files = vec![(0..1100).map(|_| Arc::new(Int32Array::from(vec![1; 1000])) as ArrayRef).collect()];
    let error = match build_zoned(
        &files,
        false,
        Encoding::Filtered,
        (None, None),
        ZoneOptions { zone_rows: Some(1), ..ZoneOptions::default() },
    ) {
        Err(error) => error,
        Ok(_) => panic!("built"),
    };
    assert!(
        matches!(error, BuildError::TooManyZones { zones: 1_100_000, .. }) && error.to_string().contains("zone_rows")
    );
}

/// A million keys that are not there, in filters of 20,000 keys and in slices.
#[test]
fn the_measured_probability_is_within_a_fifth_of_the_requested_one() {
    let mut numbers: Vec<i64> = (0..400_000).map(|row| row * 2).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(1));
    let files: Vec<Vec<ArrayRef>> =
        vec![numbers.chunks(20_000).map(|rows| Arc::new(Int64Array::from(rows.to_vec())) as ArrayRef).collect()];
    for encoding in ZONED {
        for fpp in [0.2, 0.01, 0.001] {
            let segment = build(&files, encoding, ZoneOptions { fpp: Some(fpp), ..ZoneOptions::default() });
            let zones = segment.directory.zones.as_ref().unwrap();
            let filters = zones.offset..zones.offset + zones.filter_bytes();
            let read = segment.read(std::slice::from_ref(&filters));
            let held = LoadedZones::new(zones, &read[0]);
            let probes =
                (0..50_000).flat_map(|key| (0..20).map(move |zone| (zone, Key::Fixed(key_of_i64(key * 16 + 1)))));
            let found = probes.filter(|(zone, key)| held.may_contain(*zone, key)).count() as f64 / 1e6;
            assert!((found / fpp - 1.0).abs() < 0.2, "{encoding:?} {fpp}: {found}");
        }
    }
}
