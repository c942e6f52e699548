//! Elements of lists against a plain look at every list.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int32Type};
use lakemark_format::container::{ContainerWriter, ContentKind};
use lakemark_format::key::Key;
use lakemark_format::segment::SegmentDirectory;
use lakemark_format::segment::encoding::Encoding;
use lakemark_format::{KeyType, key_of_i64, posting};
use lakemark_index::bitmap::{CountSearch, Search, SegmentRows};
use lakemark_index::{Candidates, KeyRanges, Leaf, Predicate, RowSet, Test};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bitmap::{Segment, build, build_as};

type List = Option<Vec<Option<i32>>>;

fn key(value: i32) -> Key {
    Key::Fixed(key_of_i64(value.into()))
}

fn array(lists: &[List]) -> ArrayRef {
    Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists.iter().cloned()))
}

/// What a test says of a list: TRUE, NULL, or that the list is opaque; none if it is FALSE.
fn outcome(list: &List, test: &Test) -> Option<&'static str> {
    match (list, test) {
        (None, Test::IsNull) => Some("true"),
        (None, _) => Some("null"),
        (Some(_), Test::IsNull) => None,
        (Some(elements), _) if elements.contains(&None) => Some("opaque"),
        (Some(elements), Test::Ranges(ranges) | Test::Elements(ranges)) => {
            elements.iter().flatten().any(|element| ranges.contains(&key(*element))).then_some("true")
        }
    }
}

/// By the rows of the segment's row space.
fn expected(segment: &Segment, files: &[Vec<Vec<List>>], test: &Test) -> SegmentRows {
    let rows_of = |wanted: &str| {
        let mut rows = Vec::new();
        for (file, groups) in segment.directory.files.iter().zip(files) {
            let lists = (file.base..).zip(groups.iter().flatten());
            rows.extend(lists.filter(|(_, list)| outcome(list, test) == Some(wanted)).map(|(row, _)| row));
        }
        RowSet::from_rows(rows, segment.directory.universe)
    };
    SegmentRows { t: rows_of("true"), n: rows_of("null"), opaque: rows_of("opaque") }
}

fn check(files: &[Vec<Vec<List>>], spill: bool, tests: &[Test]) -> Segment {
    let arrays: Vec<Vec<ArrayRef>> = files.iter().map(|file| file.iter().map(|group| array(group)).collect()).collect();
    let segment = build(&arrays, spill);
    assert_eq!(segment.directory.key_type, KeyType::List(Arc::new(KeyType::Int32)));
    for test in tests {
        let expected = expected(&segment, files, test);
        assert_eq!(segment.search(test).0, expected, "{test:?} over {files:?}");
        let counted = segment.count_reading(test).map(|(rows, _)| rows);
        let countable = match test {
            Test::IsNull => true,
            Test::Ranges(ranges) | Test::Elements(ranges) => ranges.is_point() && segment.directory.opaque.rows == 0,
        };
        assert_eq!(counted, countable.then_some(u64::from(expected.t.len())), "{test:?} over {files:?}");
        for group in files.iter().flatten() {
            among(group, test);
        }
    }
    segment
}

/// The same of the rows in memory.
fn among(lists: &[List], test: &Test) {
    let batch = RecordBatch::try_from_iter_with_nullable([("l", array(lists), true)]).unwrap();
    let leaf = Leaf { column: "l".to_owned(), test: test.clone(), text: String::new() };
    let found = Candidates::among(&Predicate::Leaf(leaf), &batch);
    let rows_of = |wanted: &str| {
        let rows = (0..).zip(lists).filter(|(_, list)| outcome(list, test) == Some(wanted)).map(|(row, _)| row);
        RowSet::from_rows(rows.collect(), lists.len() as u32)
    };
    assert_eq!((found.exact_true(), found.recheck_true()), (rows_of("true"), rows_of("opaque")), "{test:?}");
}

fn tests() -> Vec<Test> {
    let points = (0..8).map(|chosen| (0..3).filter(|value| chosen >> value & 1 == 1).map(key).collect());
    let mut ranges: Vec<KeyRanges> = points.map(KeyRanges::points).collect();
    ranges.extend([KeyRanges::all(), KeyRanges::less_than(key(1), true), KeyRanges::greater_than(key(1), true)]);
    ranges.extend([KeyRanges::point(key(0)).complement(), KeyRanges::point(key(-7))]);
    std::iter::once(Test::IsNull).chain(ranges.into_iter().map(Test::Elements)).collect()
}

/// All columns of up to four lists of up to two of the elements 0, 1, 2 and NULL, or NULL lists.
#[test]
fn small_world_of_lists() {
    let elements = [Some(0), Some(1), Some(2), None];
    let mut world: Vec<List> = vec![None, Some(vec![])];
    world.extend(elements.iter().map(|element| Some(vec![*element])));
    for first in elements {
        world.extend(elements.iter().map(|second| Some(vec![first, *second])));
    }
    assert_eq!(world.len(), 22);
    let tests = tests();
    for number in 0..22usize.pow(3) {
        let list = |place: u32| world[number / 22usize.pow(place) % 22].clone();
        let lists: Vec<List> = (0..3).map(list).collect();
        let files = match number % 3 {
            0 => vec![vec![lists]],
            1 => vec![vec![lists[..1].to_vec(), lists[1..].to_vec()]],
            _ => vec![vec![lists[..2].to_vec()], vec![lists[2..].to_vec()]],
        };
        check(&files, false, &tests);
    }
}

#[test]
fn long_lists_of_many_values() {
    let mut random = StdRng::seed_from_u64(5);
    for (values, longest) in [(3, 2), (50, 9), (3000, 40)] {
        let mut group = |rows: usize| -> Vec<List> {
            let list = |random: &mut StdRng| {
                let length = random.random_range(0..=longest);
                let element = |_| (!random.random_bool(0.001)).then(|| random.random_range(0..values));
                (0..length).map(element).collect::<Vec<_>>()
            };
            (0..rows).map(|_| (!random.random_bool(0.05)).then(|| list(&mut random))).collect()
        };
        let files = [vec![group(5000), group(70)], vec![group(900)]];
        let mut tests = tests();
        let middle = key(values / 2);
        tests.extend(
            [KeyRanges::less_than(middle.clone(), false), KeyRanges::greater_than(middle.clone(), false)]
                .map(Test::Elements),
        );
        tests.push(Test::Elements(KeyRanges::points((0..values).step_by(7).map(key).collect())));
        tests.push(Test::Elements(KeyRanges::point(middle)));
        let memory = check(&files, false, &tests);
        assert_eq!(check(&files, true, &[]).bytes, memory.bytes);
    }
}

#[test]
fn elements_without_a_key_leave_their_rows_open() {
    let rows = [Some(vec![Some(1.0), Some(f64::NAN)]), Some(vec![Some(1.0)]), Some(vec![Some(-0.0)]), None];
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows));
    let segment = build(&[vec![lists]], false);
    let of = |value: f64| Test::Elements(KeyRanges::point(Key::Fixed(lakemark_format::key_of_f64(value).unwrap())));
    let rows = |set: &RowSet| set.iter().collect::<Vec<_>>();
    let (one, _) = segment.search(&of(1.0));
    assert_eq!((rows(&one.t), rows(&one.n), rows(&one.opaque)), (vec![1], vec![3], vec![0]));
    assert_eq!(rows(&segment.search(&of(0.0)).0.t), [2]);
    assert!(CountSearch::new(&segment.directory, &of(1.0)).is_none());
}

#[test]
fn lists_have_no_other_encoding() {
    let lists = array(&[Some(vec![Some(1), Some(2)]), Some(vec![Some(1)])]);
    for encoding in Encoding::EXACT.into_iter().filter(|encoding| *encoding != Encoding::Equality) {
        let built = build_as(&[vec![lists.clone()]], false, encoding, Some(2));
        assert!(built.is_err(), "{}", encoding.name());
    }
    assert!(lists.as_list::<i32>().values().as_any().is::<Int32Array>());
}

/// A segment that says of a row that it is NULL and has a key is damaged.
#[test]
fn rows_that_are_null_and_have_keys_are_an_error() {
    let segment = build(&[vec![array(&[Some(vec![Some(1)]), None, Some(vec![Some(1), Some(2)])])]], false);
    let mut directory = SegmentDirectory::clone(&segment.directory);
    let mut writer = ContainerWriter::new(ContentKind::Segment, [7; 16]);
    let mut bytes = Vec::new();
    posting::encode(&[2], directory.universe, &mut bytes);
    writer.push(&bytes);
    directory.nulls.length = bytes.len() as u32;
    let test = Test::Elements(KeyRanges::point(key(2)));
    let mut search = Search::new(&directory, &test);
    let mut first = segment.read(&Search::new(&segment.directory, &test).first_ranges());
    first[0] = bytes.into();
    let second = search.second_ranges(&first).unwrap();
    assert!(search.finish(&segment.read(&second)).is_err());
}
