//! Laws of zones: what is written is read, no key is lost, two implementations agree, and no bytes make a reader panic.

use lakemark_format::filter::{Density, FilterShape};
use lakemark_format::zones::Filters;
use lakemark_format::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::model::files;
use crate::model_zones::{File, Zone, Zoned, may_hold};
use crate::properties::{edit, edits, keys};
use crate::{forge, forge_zones, golden_zones};

fn filters() -> impl Strategy<Value = Filters> {
    let density = (select(vec![1, 700, 1024, 1478, 9824, 40_001, 1 << 20]), 1u8..=64);
    let shape = (1u32..4, 1u32..200, 1u8..=64);
    prop_oneof![
        density.prop_map(|(bits, hashes)| Filters::Each(Density { bits, hashes })),
        shape.prop_map(|(blocks, block_bits, hashes)| Filters::Sliced(FilterShape { blocks, block_bits, hashes })),
    ]
}

/// Fences that hold the keys: the least and the greatest, byte fences possibly shorter and longer.
fn fences(keys: &[Key], before: &Option<(Key, Key)>, key_type: &KeyType, cut: usize) -> Option<(Key, Key)> {
    let none = if key_type.is_fixed() { Key::Fixed(0) } else { Key::Bytes(vec![]) };
    match keys {
        [] => Some(before.as_ref().map_or((none.clone(), none), |(_, high)| (high.clone(), high.clone()))),
        [Key::Bytes(low), ..] if cut > 0 => {
            let Key::Bytes(high) = &keys[keys.len() - 1] else { unreachable!() };
            Some((Key::Bytes(low[..low.len().min(cut)].into()), Key::Bytes([high.as_slice(), &[7]].concat())))
        }
        [low, ..] => Some((low.clone(), keys[keys.len() - 1].clone())),
    }
}

/// A whole segment: each row of its files has one of the keys, NULL, or is opaque; zones are cut anywhere in row groups.
fn zoned() -> impl Strategy<Value = Zoned> {
    let row_groups = vec(vec(0u32..150, 0..4), 0..4);
    (keys(), row_groups, vec(any::<u16>(), 600), vec(1u32..60, 1..9), any::<[u8; 16]>(), 0usize..4, filters()).prop_map(
        |((key_type, keys), row_groups, choices, cuts, id, cut, filters)| {
            let groups: Vec<&[u32]> = row_groups.iter().map(Vec::as_slice).collect();
            let files = files(&groups);
            let mut sizes = cuts.iter().copied().cycle();
            let mut choices = choices.into_iter().cycle();
            let (mut nulls, mut opaque, mut zones) = (vec![], vec![], Vec::<Zone>::new());
            for file in &files {
                let mut row = file.base;
                for group in &file.row_groups {
                    let mut left = *group;
                    while left > 0 {
                        let rows = sizes.next().unwrap().min(left);
                        let mut held = vec![];
                        for row in row..row + rows {
                            match usize::from(choices.next().unwrap()) % (keys.len() + 2) {
                                0 => nulls.push(row),
                                1 => opaque.push(row),
                                key => held.push(keys[key - 2].clone()),
                            }
                        }
                        held.sort();
                        held.dedup();
                        let before = zones.last().and_then(|zone| zone.fences.clone());
                        let fences = fences(&held, &before, &key_type, cut);
                        let fences = fences.filter(|_| matches!(filters, Filters::Each(_)));
                        zones.push(Zone { rows, keys: held, fences });
                        (row, left) = (row + rows, left - rows);
                    }
                }
            }
            Zoned { id, column: "c".into(), key_type, files, nulls, opaque, zones, filters }
        },
    )
}

proptest! {
    #[test]
    fn zones_are_read_as_they_were_written(segment in zoned()) {
        let (bytes, directory) = segment.write();
        let file = File::read(&bytes).unwrap();
        prop_assert_eq!(file.said(), segment.said());
        prop_assert_eq!((&file.nulls, &file.opaque), (&segment.nulls, &segment.opaque));
        prop_assert_eq!(&file.directory, &directory);
        let zones = file.zones();
        let stream = forge::stream(&bytes);
        prop_assert!(stream[zones.offset as usize..] == forge_zones::filters(zones, &segment.keys()));
        let again = forge::container(ContentKind::Segment, segment.id, &stream, &forge::directory(&directory));
        prop_assert!(again == bytes, "the second writer writes the same");
    }

    #[test]
    fn no_key_is_lost_and_two_readers_find_the_same_zones(segment in zoned(), others in vec(any::<u64>(), 20)) {
        let file = File::read(&segment.write().0).unwrap();
        let said = file.said();
        for (number, zone) in segment.zones.iter().enumerate() {
            for key in &zone.keys {
                prop_assert!(may_hold(&said, segment.filters, key).contains(&number), "{:?} in {}", key, number);
            }
        }
        let others = others.into_iter().flat_map(|n| [Key::Fixed(n), Key::Bytes(n.to_le_bytes()[..5].to_vec())]);
        for key in segment.keys().into_iter().flatten().chain(others) {
            prop_assert_eq!(may_hold(&said, segment.filters, &key), file.may_hold(&key));
        }
    }

    #[test]
    fn a_changed_file_is_an_error(number in any::<Index>(), edits in edits()) {
        let (name, segment) = golden_zones::segments().swap_remove(number.index(3));
        let good = segment.write().0;
        let mut bytes = good.clone();
        edit(&mut bytes, &edits);
        prop_assert!(bytes == good || File::read(&bytes).is_err(), "{}", name);
    }

    /// Behind good checksums anything may stand: an error or another value that has this one encoding, never a panic.
    #[test]
    fn changed_zones_never_panic(number in any::<Index>(), edits in edits(), whole: bool) {
        let (_, segment) = golden_zones::segments().swap_remove(number.index(3));
        let (file, directory) = segment.write();
        let mut bytes = forge::directory(&directory);
        // Most of the directory is not about zones: half of the cases change these alone.
        let mut zones = bytes.split_off(if whole { 0 } else { bytes.len() - forge_zones::zones(directory.zones.as_ref().unwrap()).len() });
        edit(&mut zones, &edits);
        bytes.extend(zones);
        let file = forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &bytes);
        let trailer = open_tail(&file, file.len() as u64).unwrap().trailer;
        if let Ok(directory) = SegmentDirectory::decode(&bytes, &trailer) {
            prop_assert!(directory.encode(trailer.stream_length).unwrap() == bytes, "a directory has one encoding");
            prop_assert_eq!(forge::directory(&directory), bytes, "for the second writer, too");
        }
        if let Ok(file) = File::read(&file)
            && file.directory.zones.is_some()
        {
            let said = file.said();
            for key in [Key::Fixed(0), Key::Fixed(77), Key::Bytes(vec![]), Key::Bytes(b"user/001".to_vec())] {
                prop_assert_eq!(may_hold(&said, file.zones().filters, &key), file.may_hold(&key));
            }
        }
    }
}
