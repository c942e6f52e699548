use proptest::prelude::*;

use super::*;
use crate::codec::ByteReader;
use crate::key::{composite, key_of_i64};
use crate::posting::{Decoder, encode};
use crate::riding::{RowValues, push_riding_bytes, push_riding_null, push_riding_number};

const UNIVERSE: u32 = 1 << 24;

fn entry(key: Key, rows: &[u32]) -> LeafEntry<'static> {
    let (first, count) = (rows[0], rows.len() as u32);
    let held = if rows[rows.len() - 1] - first + 1 == count {
        KeyRows::Run(first)
    } else if rows.len() <= MAX_LISTED_ROWS {
        KeyRows::Listed(rows.to_vec())
    } else {
        let mut bytes = Vec::new();
        encode(rows, UNIVERSE, &mut bytes);
        if bytes.len() > MAX_INLINE_POSTING {
            KeyRows::Long { offset: 64 + u64::from(first), length: bytes.len() as u32 }
        } else {
            KeyRows::Inline(Cow::Owned(bytes))
        }
    };
    LeafEntry { key, rows: count, rows_in: held }
}

fn leaves(entries: &[LeafEntry<'static>], key_type: KeyType, room: usize) -> Vec<LeafBytes> {
    let mut builder = LeafBuilder::new(key_type, UNIVERSE);
    let mut leaves = Vec::new();
    for entry in entries {
        leaves.extend(builder.push(entry.clone(), room).unwrap());
    }
    while let Some(leaf) = builder.finish(room).unwrap() {
        leaves.push(leaf);
    }
    leaves
}

/// Rows and postings become the same rows, whichever way they are kept.
fn rows_of(entry: &LeafEntry<'_>) -> (Key, u32, Vec<u32>) {
    let mut rows = Vec::new();
    match &entry.rows_in {
        KeyRows::Run(first) => rows.extend(*first..*first + entry.rows),
        KeyRows::Listed(listed) => rows.extend(listed),
        KeyRows::Inline(bytes) => Decoder::default().decode(bytes, entry.rows, UNIVERSE, &mut rows).unwrap(),
        KeyRows::Long { offset, length } => rows.extend([*offset as u32, *length]),
    }
    (entry.key.clone(), entry.rows, rows)
}

fn counted(entry: LeafEntry<'_>) -> CountedRows<'_> {
    CountedRows { rows: entry.rows, rows_in: entry.rows_in }
}

/// Runs that follow each other as one.
fn joined<'a>(held: Vec<CountedRows<'a>>) -> Vec<CountedRows<'a>> {
    let mut joined: Vec<CountedRows<'a>> = Vec::new();
    for CountedRows { rows, rows_in } in held {
        match (joined.last_mut(), &rows_in) {
            (Some(CountedRows { rows: length, rows_in: KeyRows::Run(start) }), KeyRows::Run(first))
                if *start + *length == *first =>
            {
                *length += rows;
            }
            _ => joined.push(CountedRows { rows, rows_in }),
        }
    }
    joined
}

/// Whether a key is one of those that a search looks for: one in `every`, anywhere.
fn is_chosen(key: &Key, every: u64) -> bool {
    let number = match key {
        Key::Fixed(number) => *number,
        Key::Bytes(bytes) => bytes.iter().fold(7, |all, byte| spread(all ^ u64::from(*byte))),
    };
    spread(number).is_multiple_of(every)
}

fn wanted_rows<'a>(leaf: &PackedLeaf<'a>, number: usize, every: u64) -> Result<Vec<CountedRows<'a>>> {
    let mut found = Vec::new();
    leaf.visit_wanted(
        number,
        |key| is_chosen(key, every),
        |rows| {
            found.push(rows);
            Ok(())
        },
    )?;
    Ok(found)
}

/// The rows of the entries with these keys.
fn chosen<'a>(entries: &[LeafEntry<'a>], every: u64) -> Vec<CountedRows<'a>> {
    entries.iter().filter(|entry| is_chosen(&entry.key, every)).cloned().map(counted).collect()
}

fn round_trip(entries: &[LeafEntry<'static>], key_type: KeyType, room: usize) -> Vec<LeafBytes> {
    let leaves = leaves(entries, key_type.clone(), room);
    let mut found = Vec::new();
    for leaf in &leaves {
        let decoded = PackedLeaf::decode(&leaf.bytes, &leaf.first_key, leaf.keys, &key_type, UNIVERSE).unwrap();
        for number in 0..decoded.heads().len() {
            let part = decoded.segment(number).unwrap();
            assert_eq!(part[0].key, decoded.heads()[number]);
            let rows = part.iter().cloned().map(counted).collect();
            assert_eq!(joined(decoded.rows_of_segment(number).unwrap()), joined(rows));
            for every in [1, 2, 7, 1_000_000] {
                assert_eq!(joined(wanted_rows(&decoded, number, every).unwrap()), joined(chosen(&part, every)));
            }
            let counts = part.iter().map(|entry| KeyCount { key: entry.key.clone(), rows: entry.rows });
            assert!(decoded.counts_of_segment(number).unwrap().eq(counts));
            found.extend(part.iter().map(rows_of));
        }
        assert_eq!(leaf.rows, found.iter().rev().take(leaf.keys as usize).map(|entry| u64::from(entry.1)).sum::<u64>());
    }
    assert_eq!(found, entries.iter().map(rows_of).collect::<Vec<_>>());
    leaves
}

/// Numbers that look random and are the same in every run.
fn spread(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[test]
fn leaves_of_unique_random_keys_are_full_and_an_embedded_segment_is_an_eighth() {
    let mut keys: Vec<u64> = (0..20_000).map(spread).collect();
    keys.sort_unstable();
    let entries: Vec<_> =
        keys.iter().map(|key| entry(Key::Fixed(*key), &[(spread(*key) % u64::from(UNIVERSE)) as u32])).collect();
    let leaves = round_trip(&entries, KeyType::UInt64, 4092);
    let (last, full) = leaves.split_last().unwrap();
    assert!(last.bytes.len() <= 4092);
    for leaf in full {
        assert!(leaf.bytes.len() > 4092 - 20 && leaf.bytes.len() <= 4092, "{} bytes", leaf.bytes.len());
        let decoded = PackedLeaf::decode(&leaf.bytes, &leaf.first_key, leaf.keys, &KeyType::UInt64, UNIVERSE).unwrap();
        let largest = (0..decoded.heads().len()).map(|number| decoded.segment_bytes(number)).max().unwrap();
        assert!(largest <= 640, "{largest} bytes");
    }
    // 2^64 / 20,000 is 50 bits, 24 bits of rows, and what the codes add.
    let bytes: usize = leaves.iter().map(|leaf| leaf.bytes.len()).sum();
    assert!(bytes * 8 <= keys.len() * (50 + 24 + 4), "{} bits a key", bytes as f64 * 8.0 / keys.len() as f64);
}

#[test]
fn keys_in_the_order_of_rows_take_no_bits_of_either() {
    let entries: Vec<_> = (0..100_000u32).map(|row| entry(Key::Fixed(u64::from(row) + 7), &[row])).collect();
    let leaves = round_trip(&entries, KeyType::UInt64, 4092);
    let bytes: usize = leaves.iter().map(|leaf| leaf.bytes.len()).sum();
    assert!(bytes < 100_000 / 4, "{bytes}");
}

#[test]
fn runs_postings_and_long_postings_stand_side_by_side() {
    let scattered: Vec<u32> = (0..12).map(|n| n * 700_001).collect();
    let many: Vec<u32> = (0..4000).map(|n| n * 4001 + n % 3).collect();
    let lists: [&[u32]; 5] = [&[5], &[9, 10, 11], &scattered, &many, &[0, 2]];
    let entries: Vec<_> = (0..1000u64).map(|n| entry(Key::Fixed(n * n), lists[n as usize % 5])).collect();
    assert!(matches!(entries[3].rows_in, KeyRows::Long { .. }));
    round_trip(&entries, KeyType::UInt64, 4092);
}

/// Bytes of all leaves of these keys, each of a row anywhere.
fn bytes_of(keys: Vec<Key>, key_type: KeyType) -> usize {
    let row = |place: u64| (spread(place) % (1 << 20)) as u32;
    let entries: Vec<_> = (0..).zip(keys).map(|(place, key)| entry(key, &[row(place)])).collect();
    let leaves = round_trip(&entries, key_type, 4092);
    leaves.iter().map(|leaf| leaf.bytes.len()).sum()
}

#[test]
fn a_customer_and_a_day_take_half_of_their_bytes_and_less() {
    let types = [KeyType::Int64, KeyType::Date32];
    let mut rows: Vec<(u64, u64)> = (0..1000)
        .flat_map(|customer| (0..12).map(move |day| (spread(customer) >> 32, spread(customer * 100 + day) % 1826)))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    let key = |(customer, day): &(u64, u64)| {
        let mut key = Vec::new();
        composite::push_fixed(&mut key, &types[0], key_of_i64(customer.cast_signed()));
        composite::push_fixed(&mut key, &types[1], key_of_i64(day.cast_signed() + 19_000));
        Key::Bytes(key)
    };
    let bytes = bytes_of(rows.iter().map(key).collect(), KeyType::Composite(types.to_vec().into()));
    // 20 bits of the row, nine of the day, 24 of the customer in twelve, and what the codes add. A key has 14 bytes.
    assert!(bytes * 10 <= rows.len() * 43, "{} bytes a key", bytes as f64 / rows.len() as f64);
}

#[test]
fn texts_of_few_characters_and_uuids_are_packed() {
    let digits = |n: u64| format!("{:016x}{:016x}", spread(n), spread(n + 1_000_000));
    let mut texts: Vec<String> = (0..5000).map(digits).collect();
    texts.sort();
    let keys = |texts: &[String]| texts.iter().map(|text| Key::Bytes(text.clone().into_bytes())).collect();
    let hexadecimal = bytes_of(keys(&texts), KeyType::Utf8);
    // 32 digits in 16 bytes, of which two are shared, 20 bits of the row, and what the parts of a leaf take.
    assert!(hexadecimal <= 5000 * 20, "{} bytes a key", hexadecimal as f64 / 5000.0);
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    let dashed = |text: &String| groups.clone().map(|group| &text[group]).join("-");
    let uuids: Vec<String> = texts.iter().map(dashed).collect();
    let packed = bytes_of(keys(&uuids), KeyType::Utf8);
    assert!(packed <= hexadecimal, "{packed} bytes, and {hexadecimal} of digits alone");
    // The first four digits tell each from the one before, and are all that the directory has.
    let entry_of = |(row, text): (u32, &String)| entry(Key::Bytes(text.clone().into_bytes()), &[row]);
    let entries: Vec<_> = (0..).zip(&uuids).map(entry_of).collect();
    let separators = leaves(&entries, KeyType::Utf8, 4092).into_iter().map(|leaf| plain_bytes(&leaf.first_key) - 1);
    let separators: Vec<usize> = separators.collect();
    assert!(separators[0] == 36 && separators[1..].iter().all(|bytes| *bytes <= 4), "{separators:?}");
    // One that is not canonical costs those beside it.
    let mut mixed = uuids.clone();
    mixed[77].make_ascii_uppercase();
    mixed.sort();
    let mixed = bytes_of(keys(&mixed), KeyType::Utf8);
    assert!(mixed <= packed + 1000, "{mixed} bytes, and {packed} of canonical ones");
}

#[test]
fn few_rows_of_a_key_are_listed_and_take_their_bits() {
    let entries: Vec<_> = (0..6000u64)
        .map(|n| {
            let row = (spread(n) % u64::from(UNIVERSE / 2)) as u32;
            let rows = [row, row + UNIVERSE / 3];
            entry(Key::Fixed(n), &rows[..1 + usize::from(n % 3 == 0)])
        })
        .collect();
    let leaves = round_trip(&entries, KeyType::UInt64, 4092);
    let bits: usize = leaves.iter().map(|leaf| leaf.bytes.len() * 8).sum();
    // 8,000 rows of 24 bits, and for each key a bit that says how many it has.
    assert!(bits <= 8000 * 24 + 6000 * 3, "{bits} bits");
    let has_lists = |leaf: &LeafBytes| {
        let leaf = PackedLeaf::decode(&leaf.bytes, &leaf.first_key, leaf.keys, &KeyType::UInt64, UNIVERSE).unwrap();
        leaf.segment(0).unwrap().iter().any(|entry| matches!(entry.rows_in, KeyRows::Listed(_)))
    };
    assert!(leaves.iter().all(has_lists));
}

#[test]
fn lists_of_more_rows_than_there_are_bits_are_refused() {
    // One key, which has 2^32 - 1 rows, of no bits each.
    let mut leaf = ByteWriter::new();
    leaf.length(1);
    leaf.u8(0);
    let segment = [&[0][..], &[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 3, 0, 0]].concat();
    encode_column(std::iter::once(1), &mut leaf);
    encode_column(std::iter::once(segment.len() as u64), &mut leaf);
    leaf.bytes(&segment);
    let decoded = PackedLeaf::decode(leaf.as_slice(), &Key::Fixed(7), 1, &KeyType::UInt64, UNIVERSE).unwrap();
    let error = decoded.segment(0).unwrap_err();
    assert!(matches!(error, FormatError::TooLong { what: "the rows of keys", .. }), "{error}");
}

#[test]
fn a_key_larger_than_a_leaf_has_one_of_its_own() {
    // Of all values, as bytes of few take less than a byte each.
    let rest: Vec<u8> = (0..4000).map(|place| spread(place) as u8).collect();
    let entries: Vec<_> =
        (0..3u8).map(|n| entry(Key::Bytes([vec![n], rest.clone()].concat()), &[u32::from(n)])).collect();
    let leaves = round_trip(&entries, KeyType::Binary, 1000);
    assert_eq!(leaves.iter().map(|leaf| leaf.keys).collect::<Vec<_>>(), [1, 1, 1]);
}

/// What rides along with a row: a number and a text.
fn rider(row: u32) -> Vec<u8> {
    let mut form = Vec::new();
    push_riding_number(&mut form, u64::from(row) * 3);
    match row % 5 {
        0 => push_riding_null(&mut form),
        _ => push_riding_bytes(&mut form, format!("city {}", row % 40).as_bytes()),
    }
    form
}

#[test]
fn what_rides_stays_with_its_rows_in_leaves_that_are_full() {
    let types = [KeyType::UInt32, KeyType::Utf8];
    let mut builder = LeafBuilder::with_riding(KeyType::UInt64, UNIVERSE, types.to_vec());
    let entries: Vec<_> =
        (0..4000u32).map(|n| entry(Key::Fixed(spread(n.into()) >> 30 | u64::from(n) << 34), &[4000 - n])).collect();
    let mut written = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let mut riding = RidingRows::default();
        riding.push(Some(rider(4000 - number as u32).as_slice()).filter(|_| number % 100 != 7));
        written.extend(builder.push_riding(entry.clone(), riding, 4092).unwrap());
    }
    while let Some(leaf) = builder.finish(4092).unwrap() {
        written.push(leaf);
    }
    let mut place = 0;
    for (number, leaf) in written.iter().enumerate() {
        assert!(leaf.bytes.len() <= 4092 && (leaf.bytes.len() > 4092 - 200 || number + 1 == written.len()));
        let decoded = PackedLeaf::decode(&leaf.bytes, &leaf.first_key, leaf.keys, &KeyType::UInt64, UNIVERSE).unwrap();
        assert!(decoded.segment(0).is_err(), "what rides is no end of an embedded segment");
        let decoded = decoded.with_riding(true);
        for number in 0..decoded.heads().len() {
            let RidingEntries { entries: found, riding } = decoded.riding_segment(number, &types, |_| true).unwrap();
            assert_eq!(decoded.segment(number).unwrap(), found);
            assert_eq!(joined(wanted_rows(&decoded, number, 3).unwrap()), joined(chosen(&found, 3)));
            for (key, entry) in found.iter().enumerate() {
                assert_eq!((entry.key.clone(), rows_of(entry)), (entries[place].key.clone(), rows_of(&entries[place])));
                assert_eq!(riding.rides(key), place % 100 != 7);
                let expected: Vec<_> =
                    RowValues::of(&rider(4000 - place as u32)).map(|value| format!("{value:?}")).collect();
                let values = (0..2).filter_map(|column| riding.value(column, key, 0)).map(|value| format!("{value:?}"));
                assert!(!riding.rides(key) || values.eq(expected));
                place += 1;
            }
        }
    }
    assert_eq!(place, entries.len());
    let many: Vec<u32> = (0..4000).map(|n| n * 4001).collect();
    let mut riding = RidingRows::default();
    riding.push(Some(&rider(1)));
    assert!(
        builder.push_riding(entry(Key::Fixed(u64::MAX), &many), riding, 4092).is_err(),
        "long postings do not ride"
    );
}

#[test]
fn disorder_is_refused() {
    let mut builder = LeafBuilder::new(KeyType::UInt64, UNIVERSE);
    builder.push(entry(Key::Fixed(3), &[1]), 4092).unwrap();
    builder.push(entry(Key::Fixed(3), &[2]), 4092).unwrap();
    assert!(builder.finish(4092).is_err());
}

proptest! {
    #[test]
    fn number_keys_round_trip(
        keys in prop::collection::btree_set(any::<u64>(), 1..400),
        lists in prop::collection::vec(prop::collection::btree_set(0..UNIVERSE, 1..40), 1..9),
        room in 100usize..5000,
    ) {
        let lists: Vec<Vec<u32>> = lists.into_iter().map(|list| list.into_iter().collect()).collect();
        let entries: Vec<_> =
            keys.into_iter().zip(lists.iter().cycle()).map(|(key, rows)| entry(Key::Fixed(key), rows)).collect();
        round_trip(&entries, KeyType::UInt64, room);
    }

    #[test]
    fn byte_keys_round_trip(
        keys in prop::collection::btree_set(prop::collection::vec(0u8..4, 0..30), 1..300),
        room in 100usize..5000,
    ) {
        let entries: Vec<_> =
            keys.into_iter().zip(0..).map(|(key, row)| entry(Key::Bytes(key), &[row * 3, row * 3 + 1])).collect();
        round_trip(&entries, KeyType::Binary, room);
    }

    #[test]
    fn rows_of_columns_round_trip(
        rows in prop::collection::btree_set((prop::option::of(0u8..5), prop::option::of(any::<i32>())), 1..300),
        room in 100usize..5000,
    ) {
        let types = [KeyType::UInt8, KeyType::Int32];
        let entries = rows.into_iter().zip(0..).map(|((one, two), row)| {
            let mut key = Vec::new();
            let numbers = [one.map(u64::from), two.map(|two| key_of_i64(two.into()))];
            for (key_type, number) in types.iter().zip(numbers) {
                match number {
                    Some(number) => composite::push_fixed(&mut key, key_type, number),
                    None => composite::push_null(&mut key),
                }
            }
            entry(Key::Bytes(key), &[row * 5, row * 5 + 1 + row % 3])
        });
        round_trip(&entries.collect::<Vec<_>>(), KeyType::Composite(types.to_vec().into()), room);
    }

    #[test]
    fn gaps_round_trip(gaps in prop::collection::vec(any::<u64>(), 0..128), shift in 0u32..64) {
        let gaps: Vec<u64> = gaps.into_iter().map(|gap| gap >> shift).collect();
        let mut out = ByteWriter::new();
        gaps::encode(&gaps, &mut out);
        let bytes = out.into_vec();
        let mut input = ByteReader::new("gaps", &bytes);
        gaps::skip(&mut input, gaps.len()).unwrap();
        prop_assert!(input.finish().is_ok());
        let mut input = ByteReader::new("gaps", &bytes);
        let mut decoded = vec![0; gaps.len()];
        gaps::decode(&mut input, &mut decoded).unwrap();
        prop_assert_eq!(decoded, gaps);
        prop_assert!(input.finish().is_ok());
    }

    #[test]
    fn what_is_stepped_over_is_what_would_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..90), count in 0usize..64, width in 0u8..140) {
        let bytes = [vec![width], bytes].concat();
        let (mut decoded, mut skipped) = (ByteReader::new("gaps", &bytes), ByteReader::new("gaps", &bytes));
        if gaps::decode(&mut decoded, &mut vec![0; count]).is_ok() {
            gaps::skip(&mut skipped, count).unwrap();
            prop_assert_eq!(decoded.remaining(), skipped.remaining());
        }
    }

    #[test]
    fn rows_are_the_same_without_their_keys_in_damaged_leaves(
        keys in prop::collection::btree_set(0u64..100_000, 20..200),
        start in prop::option::of(0u32..1000),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let rows = |at: usize| start.map_or(at as u32 * 7 % 1000, |start| start + at as u32);
        let entries: Vec<_> = (0..).zip(keys).map(|(at, key)| entry(Key::Fixed(key), &[rows(at)])).collect();
        for leaf in leaves(&entries, KeyType::UInt64, 4092) {
            let mut bytes = leaf.bytes.clone();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let Ok(damaged) = PackedLeaf::decode(&bytes, &leaf.first_key, leaf.keys, &KeyType::UInt64, UNIVERSE) else { continue };
            for number in 0..damaged.heads().len() {
                let without = damaged.rows_of_segment(number);
                for CountedRows { rows, rows_in } in without.iter().flatten() {
                    prop_assert!(!matches!(rows_in, KeyRows::Run(first) if u64::from(*first) + u64::from(*rows) > u64::from(UNIVERSE)));
                }
                let wanted = wanted_rows(&damaged, number, 3);
                for CountedRows { rows, rows_in } in wanted.iter().flatten() {
                    prop_assert!(!matches!(rows_in, KeyRows::Run(first) if u64::from(*first) + u64::from(*rows) > u64::from(UNIVERSE)));
                }
                if let Ok(part) = damaged.segment(number) {
                    prop_assert_eq!(joined(wanted.unwrap()), joined(chosen(&part, 3)));
                    let rows = part.into_iter().map(counted).collect();
                    prop_assert_eq!(joined(without.unwrap()), joined(rows));
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_give_ascending_keys_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), keys in 1u32..99) {
        for (first, key_type) in [(Key::Fixed(3), KeyType::UInt64), (Key::Bytes(vec![1]), KeyType::Binary)] {
            let Ok(leaf) = PackedLeaf::decode(&bytes, &first, keys, &key_type, UNIVERSE) else { continue };
            for number in 0..leaf.heads().len() {
                if let Ok(entries) = leaf.segment(number) {
                    prop_assert!(entries.is_sorted_by(|a, b| a.key < b.key));
                    prop_assert!(entries.iter().all(|entry| entry.rows > 0));
                }
            }
        }
    }
}
