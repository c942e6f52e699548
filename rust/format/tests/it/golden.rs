//! Golden files: bytes that every later release must still read, and write for the same values.
//!
//! A golden file is never changed and never replaced. `LAKEMARK_GOLDEN=write cargo test -p lakemark-format` writes the files
//! that do not exist yet; a format change gets a new folder beside `v6`.

use std::path::PathBuf;

use lakemark_format::*;

use crate::model::{Segment, files};
use crate::{golden_inner, golden_links, golden_manifests, golden_riding, golden_updates, golden_zones};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/v6");

/// The bytes of a golden file; written first from `encoded` when that is asked for and the file is new.
pub fn golden(name: &str, encoded: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(FOLDER).join(name);
    if std::env::var_os("LAKEMARK_GOLDEN").is_some_and(|mode| mode == "write") && !path.exists() {
        std::fs::create_dir_all(FOLDER).unwrap();
        std::fs::write(&path, encoded).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// No file, no row, no value.
pub fn empty() -> Segment {
    Segment {
        id: [0; 16],
        index_id: [1; 16],
        column: "c".into(),
        key_type: KeyType::Utf8,
        files: vec![],
        nulls: vec![],
        opaque: vec![],
        blocks: vec![],
        encoding: Encoding::Equality,
        bins: vec![],
    }
}

/// Signed numbers in two files of three row groups, with NULL and opaque rows, in two value blocks.
pub fn numbers() -> Segment {
    let key = |value: i64| Key::Fixed(key_of_i64(value));
    Segment {
        id: *b"segment-numbers!",
        index_id: *b"index-of-numbers",
        column: "temperature".into(),
        key_type: KeyType::Int32,
        files: files(&[&[10, 6], &[4]]),
        nulls: vec![0, 15],
        opaque: vec![64],
        blocks: vec![
            vec![(key(i32::MIN.into()), vec![1]), (key(-7), vec![2, 3, 4, 5]), (key(0), vec![6, 8, 10, 12, 14])],
            vec![(key(1), vec![7, 9, 11, 13, 65]), (key(i32::MAX.into()), vec![66, 67])],
        ],
        encoding: Encoding::Equality,
        bins: vec![],
    }
}

/// Strings, one of them empty, in one block with front coding and one block of a single value.
pub fn strings() -> Segment {
    let key = |text: &str| Key::Bytes(text.as_bytes().to_vec());
    Segment {
        id: *b"segment-strings!",
        index_id: *b"index-of-strings",
        column: "straße".into(),
        key_type: KeyType::Utf8,
        files: files(&[&[9]]),
        nulls: vec![],
        opaque: vec![8],
        blocks: vec![
            vec![
                (key(""), vec![0]),
                (key("Berlin"), vec![1, 3]),
                (key("Bern"), vec![2]),
                (key("Berne"), vec![4, 5, 6]),
            ],
            vec![(key("Zürich"), vec![7])],
        ],
        encoding: Encoding::Equality,
        bins: vec![],
    }
}

/// 128-bit decimals, which are keys of 16 bytes.
pub fn decimals() -> Segment {
    let key = |value: i128| Key::Bytes(key_of_i128(value).to_vec());
    let largest = 10i128.pow(38) - 1;
    Segment {
        id: *b"segment-decimals",
        index_id: *b"index-of-decimal",
        column: "price".into(),
        key_type: KeyType::Decimal { width_bits: 128, precision: 38, scale: -2 },
        files: files(&[&[3], &[], &[1]]),
        nulls: vec![],
        opaque: vec![],
        blocks: vec![vec![(key(-largest), vec![2]), (key(-1), vec![1]), (key(0), vec![0]), (key(largest), vec![64])]],
        encoding: Encoding::Equality,
        bins: vec![],
    }
}

/// A stream of several pages with postings of every form and of more than one posting block.
pub fn pages() -> Segment {
    let universe = 3u32 << 16;
    // Rows by pattern: long runs, every second row, scattered rows in one corner, few rows everywhere; the rest is NULL.
    let mut taken = vec![false; universe as usize];
    let mut take = |rows: Vec<u32>| {
        let free: Vec<u32> = rows.into_iter().filter(|row| !taken[*row as usize]).collect();
        free.iter().for_each(|row| taken[*row as usize] = true);
        free
    };
    let few = take((0..5).map(|i| i * 39_000 + 17).collect());
    let corner = take((0..900u32).map(|i| 60_000 + i * 13 + i * i % 11).collect());
    let runs = take((0..30_000).collect());
    let half = take((80_000..100_000).step_by(2).collect());
    let nulls = take((0..universe).collect());
    let values = [few, corner, runs, half].into_iter().enumerate();
    Segment {
        id: *b"segment-of-pages",
        index_id: *b"index-with-pages",
        column: "code".into(),
        key_type: KeyType::UInt16,
        files: files(&[&[1 << 16, 1 << 16], &[1 << 16]]),
        nulls,
        opaque: vec![],
        blocks: vec![values.map(|(key, rows)| (Key::Fixed(key as u64 * 100), rows)).collect()],
        encoding: Encoding::Equality,
        bins: vec![],
    }
}

/// The numbers with a coarse level: as every encoding writes them.
pub fn encoded(encoding: Encoding) -> Segment {
    let bins = if encoding.has_bins() { vec![1, 2, 2] } else { vec![] };
    Segment { encoding, bins, ..numbers() }
}

/// Bins of one value, of values with an order, and of ramps, in two blocks and two files.
pub fn binned() -> Segment {
    let key = |value: i64| Key::Fixed(key_of_i64(value));
    let mixed = [(-90, vec![3, 70]), (-80, vec![1]), (-72, vec![64, 65, 66]), (-50, vec![0, 2])];
    let counted = (0..40).map(|row| (10 + 3 * i64::from(row), vec![4 + row]));
    Segment {
        id: *b"segment-of-bins!",
        index_id: *b"index-of-all-bin",
        column: "amount".into(),
        key_type: KeyType::Int64,
        files: files(&[&[40, 5], &[9]]),
        nulls: vec![44],
        opaque: vec![72],
        blocks: vec![
            mixed.into_iter().map(|(value, rows)| (key(value), rows)).collect(),
            counted.chain([(200, vec![67, 68, 69, 71])]).map(|(value, rows)| (key(value), rows)).collect(),
        ],
        encoding: Encoding::Binned,
        bins: vec![3, 1, 40, 1],
    }
}

/// Leaves of a packed tree: embedded segments of consecutive rows, of single rows, of postings, one of which is long, and of lists.
pub fn packed() -> Segment {
    let key = |value: i64| Key::Fixed(key_of_i64(value));
    let following = (0..192).map(|row| (key(2 * i64::from(row)), vec![row]));
    let scattered = [3u32, 9, 1, 7, 5, 8, 2, 6, 4].map(|place| (key(382 + i64::from(10 - place)), vec![192 + place]));
    let mut single: Vec<_> = scattered.into();
    single.sort();
    let many: Vec<u32> = (0..800).map(|row| 256 + 5 * row + row % 3).collect();
    let others: Vec<u32> = (256..4352).filter(|row| many.binary_search(row).is_err()).collect();
    let (few, mut rest) = (others[..12].to_vec(), others[12..].to_vec());
    let pairs = (0..10).map(|n| (key(2_000_000 + n), vec![rest[n as usize], rest[n as usize + 500]]));
    let pairs: Vec<_> = pairs.collect();
    rest.retain(|row| !pairs.iter().any(|(_, rows)| rows.contains(row)));
    Segment {
        id: *b"segment-of-leafs",
        index_id: *b"index-of-packed!",
        column: "customer".into(),
        key_type: KeyType::Int64,
        files: files(&[&[192, 11], &[4096]]),
        nulls: [vec![192], rest].concat(),
        opaque: vec![202],
        blocks: vec![following.chain(single).collect(), vec![(key(1000), few), (key(1_000_000), many)], pairs],
        encoding: Encoding::Packed,
        bins: vec![],
    }
}

/// Leaves of strings.
pub fn packed_strings() -> Segment {
    let key = |n: u32| Key::Bytes(format!("user/{:03}@example", n * 7).into_bytes());
    Segment {
        id: *b"segment-of-names",
        index_id: *b"index-of-strings",
        column: "name".into(),
        key_type: KeyType::Utf8,
        files: files(&[&[80]]),
        nulls: vec![],
        opaque: vec![],
        blocks: vec![
            (0..50).map(|n| (key(n), vec![49 - n])).collect(),
            (50..65).map(|n| (key(n), vec![n, n + 15])).collect(),
        ],
        encoding: Encoding::Packed,
        bins: vec![],
    }
}

/// Leaves of rows of two columns, of which one may be NULL.
pub fn packed_composite() -> Segment {
    let types = [KeyType::Int16, KeyType::Utf8];
    let key = |number: Option<i64>, text: &[u8]| {
        let mut bytes = Vec::new();
        match number {
            Some(number) => key::composite::push_key(&mut bytes, &types[0], &Key::Fixed(key_of_i64(number))),
            None => key::composite::push_null(&mut bytes),
        }
        key::composite::push_key(&mut bytes, &types[1], &Key::Bytes(text.to_vec()));
        Key::Bytes(bytes)
    };
    Segment {
        id: *b"segment-of-pairs",
        index_id: *b"index-over-pairs",
        column: column::composite(["day", "name"]),
        key_type: KeyType::Composite(types.clone().into()),
        files: files(&[&[5]]),
        nulls: vec![],
        opaque: vec![4],
        blocks: vec![vec![
            (key(None, b"a"), vec![3]),
            (key(Some(-1), b""), vec![1]),
            (key(Some(-1), b"\0"), vec![0]),
            (key(Some(300), b"z"), vec![2]),
        ]],
        encoding: Encoding::Packed,
        bins: vec![],
    }
}

/// Leaves of rows of two columns of fixed width, of which both may be NULL.
pub fn packed_columns() -> Segment {
    let types = [KeyType::Int64, KeyType::Date32];
    let key = |customer: Option<i64>, day: Option<i64>| {
        let mut bytes = Vec::new();
        for (key_type, value) in types.iter().zip([customer, day]) {
            match value {
                Some(value) => key::composite::push_key(&mut bytes, key_type, &Key::Fixed(key_of_i64(value))),
                None => key::composite::push_null(&mut bytes),
            }
        }
        Key::Bytes(bytes)
    };
    Segment {
        id: *b"segment-of-dates",
        index_id: *b"index-over-dates",
        column: column::composite(["customer", "day"]),
        key_type: KeyType::Composite(types.clone().into()),
        files: files(&[&[14]]),
        nulls: vec![],
        opaque: vec![],
        blocks: vec![
            vec![(key(None, None), vec![13]), (key(None, Some(-1)), vec![0]), (key(None, Some(300)), vec![12])],
            vec![
                (key(Some(17), Some(19_000)), vec![5]),
                (key(Some(17), Some(19_002)), vec![1, 11]),
                (key(Some(17), Some(19_010)), vec![2]),
                (key(Some(18), Some(18_990)), vec![4]),
                (key(Some(40), Some(19_000)), vec![3]),
                (key(Some(40), Some(19_001)), vec![10]),
            ],
            vec![
                (key(Some(41), None), vec![6]),
                (key(Some(41), Some(7)), vec![7]),
                (key(Some(i64::MAX), Some(i32::MIN.into())), vec![9]),
                (key(Some(i64::MAX), Some(i32::MAX.into())), vec![8]),
            ],
        ],
        encoding: Encoding::Packed,
        bins: vec![],
    }
}

/// Leaves of UUIDs, and of texts that are no canonical ones.
pub fn packed_uuids() -> Segment {
    let uuid =
        |n: u32| format!("{:08x}-{:04x}-4000-8000-{:012x}", n * 0x1357_9bdf, n * 791, u64::from(n) * 0x1111_2222);
    let key = |text: String| Key::Bytes(text.into_bytes());
    Segment {
        id: *b"segment-of-uuids",
        index_id: *b"index-over-uuids",
        column: "request".into(),
        key_type: KeyType::Utf8,
        files: files(&[&[17]]),
        nulls: vec![16],
        opaque: vec![],
        blocks: vec![
            (0..8).map(|n| (key(uuid(n)), vec![7 - n])).collect(),
            (8..12)
                .map(|n| (key(uuid(n)), vec![2 * n - 8, 2 * n - 7]))
                .map(|(key, rows)| (upper(&key), rows))
                .collect(),
        ],
        encoding: Encoding::Packed,
        bins: vec![],
    }
}

/// Leaves of hashes of 12 bits, one of which two texts share.
pub fn packed_hashes() -> Segment {
    let url = |n: u32| format!("https://example.org/{n}");
    let mut held: Vec<(u64, Vec<u32>)> = Vec::new();
    for row in 0..90 {
        let hash = filter::short_hash(url(row).as_bytes(), 12);
        match held.iter_mut().find(|(of, _)| *of == hash) {
            Some((_, rows)) => rows.push(row),
            None => held.push((hash, vec![row])),
        }
    }
    held.sort();
    Segment {
        id: *b"segment-of-hash!",
        index_id: *b"index-of-hashes!",
        column: "url".into(),
        key_type: KeyType::Hashed { bits: 12, of: KeyType::Utf8.into() },
        files: files(&[&[91]]),
        nulls: vec![90],
        opaque: vec![],
        blocks: vec![held.into_iter().map(|(hash, rows)| (Key::Fixed(hash), rows)).collect()],
        encoding: Encoding::Packed,
        bins: vec![],
    }
}

/// The key of a text in capitals.
fn upper(key: &Key) -> Key {
    match key {
        Key::Bytes(text) => Key::Bytes(text.to_ascii_uppercase()),
        Key::Fixed(number) => Key::Fixed(*number),
    }
}

/// Postings of the elements of lists: a row is in any number of them, and one of two that have none is NULL.
pub fn lists() -> Segment {
    let key = |text: &str| Key::Bytes(text.as_bytes().to_vec());
    Segment {
        id: *b"segment-of-lists",
        index_id: *b"index-over-lists",
        column: "tags".to_owned(),
        key_type: KeyType::List(KeyType::Utf8.into()),
        files: files(&[&[4, 3]]),
        nulls: vec![2],
        opaque: vec![5],
        blocks: vec![
            vec![(key(""), vec![6]), (key("new"), vec![0, 1, 3, 6])],
            vec![(key("old"), vec![0, 1, 3, 6]), (key("red"), vec![1])],
        ],
        encoding: Encoding::Equality,
        bins: vec![],
    }
}

pub fn segments() -> Vec<(&'static str, Segment)> {
    vec![
        ("empty.lmx", empty()),
        ("numbers.lmx", numbers()),
        ("strings.lmx", strings()),
        ("decimals.lmx", decimals()),
        ("pages.lmx", pages()),
        ("binary.lmx", encoded(Encoding::Binary)),
        ("range.lmx", encoded(Encoding::Range)),
        ("interval.lmx", encoded(Encoding::Interval)),
        ("interval-equality.lmx", encoded(Encoding::IntervalEquality)),
        ("range-equality.lmx", encoded(Encoding::RangeEquality)),
        ("binned.lmx", binned()),
        ("packed.lmx", packed()),
        ("packed-strings.lmx", packed_strings()),
        ("packed-composite.lmx", packed_composite()),
        ("packed-columns.lmx", packed_columns()),
        ("packed-uuids.lmx", packed_uuids()),
        ("packed-hashes.lmx", packed_hashes()),
        ("lists.lmx", lists()),
    ]
}

#[test]
fn golden_segments_are_read_and_written() {
    for (name, segment) in segments() {
        let (encoded, _) = segment.write();
        let golden = golden(name, &encoded);
        assert_eq!(Segment::read(&golden).as_ref(), Ok(&segment), "{name} is read as another value");
        assert!(golden == encoded, "{name} is written with other bytes");
    }
}

#[test]
fn every_golden_file_is_tested() {
    let mut found: Vec<_> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    let mut tested: Vec<_> = segments().iter().map(|(name, _)| name.to_string()).collect();
    tested.extend(golden_zones::segments().iter().map(|(name, _)| name.to_string()));
    tested.extend(golden_inner::trees().iter().map(|(name, _)| name.to_string()));
    tested.push(golden_riding::NAME.to_owned());
    tested.extend(golden_links::NAMES.map(String::from));
    tested.extend(golden_updates::NAMES.map(String::from));
    tested.extend(golden_manifests::edits().iter().map(|(name, _)| name.to_string()));
    tested.extend(golden_manifests::checkpoints().iter().map(|(name, _)| name.to_string()));
    found.sort();
    tested.sort();
    assert_eq!(found, tested);
}

#[test]
fn the_pages_file_holds_every_form_of_posting() {
    let segment = pages();
    let universe = segment.universe();
    let mut tags: Vec<u8> = std::iter::once(&segment.nulls)
        .chain(segment.blocks[0].iter().map(|(_, rows)| rows))
        .map(|rows| {
            let mut bytes = Vec::new();
            posting::encode(rows, universe, &mut bytes);
            bytes[0]
        })
        .collect();
    tags.sort();
    tags.dedup();
    assert_eq!(tags, [0, 1, 2, 3]);
}
