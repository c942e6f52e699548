//! Golden files with zones: fences and filters one by one, and filters in slices.

use lakemark_format::filter::{Density, FilterShape};
use lakemark_format::zones::Filters;
use lakemark_format::*;

use crate::golden::golden;
use crate::model::files;
use crate::model_zones::{File, Zone, Zoned, may_hold};

fn number(value: i64) -> Key {
    Key::Fixed(key_of_i64(value))
}

fn text(text: &str) -> Key {
    Key::Bytes(text.as_bytes().to_vec())
}

/// A zone whose fences are its least and its greatest key.
fn fenced(rows: u32, keys: Vec<Key>) -> Zone {
    let fences = Some((keys[0].clone(), keys[keys.len() - 1].clone()));
    Zone { rows, keys, fences }
}

/// Numbers in two files of three row groups. The first zone has a filter of two blocks, the second no key, the third one key; the
/// last has keys below those of the zones before, at the ends of the type.
pub fn filtered() -> Zoned {
    Zoned {
        id: *b"segment-filtered",
        column: "customer".into(),
        key_type: KeyType::Int32,
        files: files(&[&[640, 12], &[9]]),
        nulls: vec![0, 7, 640, 641, 642, 643, 644, 645, 646, 647, 704],
        opaque: vec![639, 712],
        zones: vec![
            fenced(640, (0..600).map(|key| number(1000 + 3 * key)).collect()),
            Zone { rows: 8, keys: vec![], fences: Some((number(2797), number(2797))) },
            fenced(4, vec![number(5000)]),
            fenced(9, [i32::MIN, -1, 0, 77, i32::MAX].map(|key| number(key.into())).into()),
        ],
        filters: Filters::Each(Density { bits: 65_636, hashes: 17 }),
    }
}

/// Strings. The fences of the second zone are none of its keys, the third zone has no key, the last one has the empty string.
pub fn filtered_strings() -> Zoned {
    Zoned {
        id: *b"segment-fenced-s",
        column: "name".into(),
        key_type: KeyType::Utf8,
        files: files(&[&[6, 3, 2]]),
        nulls: vec![6, 7, 8],
        opaque: vec![],
        zones: vec![
            fenced(3, ["user/001", "user/002", "user/0035"].map(text).into()),
            Zone {
                rows: 3,
                keys: ["user/0041", "user/0048"].map(text).into(),
                fences: Some((text("user/004"), text("user/005"))),
            },
            Zone { rows: 3, keys: vec![], fences: Some((text("user/005"), text("user/005"))) },
            fenced(2, ["", "straße"].map(text).into()),
        ],
        filters: Filters::Each(Density::of_fpp(0.01)),
    }
}

/// Eleven zones, so that a slice has two bytes, with filters of two blocks. The sixth zone has no key.
pub fn sliced() -> Zoned {
    let zone = |zone: i64| {
        let keys = (0..4).map(|key| number(zone * 1_000_003 + key * 17)).filter(|_| zone != 5).collect();
        Zone { rows: 5, keys, fences: None }
    };
    Zoned {
        id: *b"segment-sliced!!",
        column: "order".into(),
        key_type: KeyType::Int64,
        files: files(&[&[15], &[20, 10], &[10]]),
        nulls: (0..5).map(|row| 64 + 10 + row).collect(),
        opaque: vec![128],
        zones: (0..11).map(zone).collect(),
        filters: Filters::Sliced(FilterShape { blocks: 2, block_bits: 36, hashes: 3 }),
    }
}

pub fn segments() -> Vec<(&'static str, Zoned)> {
    vec![("filtered.lmx", filtered()), ("filtered-strings.lmx", filtered_strings()), ("sliced.lmx", sliced())]
}

#[test]
fn golden_zones_are_read_and_written() {
    for (name, segment) in segments() {
        let (encoded, directory) = segment.write();
        let golden = golden(name, &encoded);
        let file = File::read(&golden).unwrap();
        assert_eq!((&file.nulls, &file.opaque), (&segment.nulls, &segment.opaque), "{name}");
        assert_eq!(file.said(), segment.said(), "{name} is read as other zones");
        assert_eq!(file.directory, directory, "{name} is read as another value");
        assert!(golden == encoded, "{name} is written with other bytes");
    }
}

/// As the files are, every key is found in its zone, and no other key of theirs in a zone of a sharp filter.
#[test]
fn golden_zones_hold_their_keys() {
    for (name, segment) in segments() {
        let file = File::read(&golden(name, &segment.write().0)).unwrap();
        let said = file.said();
        for (number, zone) in segment.zones.iter().enumerate() {
            for key in &zone.keys {
                let found = file.may_hold(key);
                assert_eq!(may_hold(&said, segment.filters, key), found, "{name}");
                assert!(found.contains(&number), "{name}: {key:?} in {number}");
                assert!(name != "filtered.lmx" || found == [number], "{name}: {key:?} in {found:?}");
            }
        }
    }
}

#[test]
fn the_filtered_file_holds_a_filter_of_two_blocks_and_one_of_none() {
    let Filters::Each(density) = filtered().filters else { panic!("sliced") };
    let blocks: Vec<_> = filtered().zones.iter().map(|zone| density.shape(zone.keys.len() as u32).blocks).collect();
    assert_eq!(blocks, [2, 0, 1, 1]);
}
