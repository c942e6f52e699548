//! Laws: decode undoes encode for every value, and no bytes make a reader panic.

use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::*;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::model::{Segment, files};
use crate::{forge, golden};

fn unit() -> impl Strategy<Value = TimeUnit> {
    prop::sample::select(vec![TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond])
}

fn key_type() -> impl Strategy<Value = KeyType> {
    let several = vec(column_type(), 2..5).prop_map(|columns| KeyType::Composite(columns.into()));
    prop_oneof![6 => column_type(), 1 => several]
}

fn column_type() -> impl Strategy<Value = KeyType> {
    use KeyType::*;
    let plain = vec![
        Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64, Date32, Date64,
        Utf8, Binary,
    ];
    let decimal = prop::sample::select(vec![(32u16, 9u8), (64, 18), (128, 38), (256, 76)]).prop_flat_map(
        |(width_bits, digits)| {
            (1u8..=digits, any::<i8>()).prop_map(move |(precision, scale)| Decimal { width_bits, precision, scale })
        },
    );
    prop_oneof![
        4 => prop::sample::select(plain),
        1 => decimal,
        1 => prop::sample::select(vec![TimeUnit::Second, TimeUnit::Millisecond]).prop_map(|unit| Time32 { unit }),
        1 => prop::sample::select(vec![TimeUnit::Microsecond, TimeUnit::Nanosecond]).prop_map(|unit| Time64 { unit }),
        1 => (unit(), any::<bool>()).prop_map(|(unit, zoned)| Timestamp { unit, zoned }),
        1 => (0u32..40).prop_map(FixedBinary),
    ]
}

/// Ascending keys of one type; fewer than asked for where the type has few values.
pub fn keys() -> impl Strategy<Value = (KeyType, Vec<Key>)> {
    key_type().prop_flat_map(|key_type| {
        let keys = match (key_type.fixed_bounds(), key_type.bytes_length()) {
            _ if matches!(key_type, KeyType::Composite(_)) => composites(&key_type).boxed(),
            (Some(bounds), _) => btree_set(bounds.prop_map(Key::Fixed), 0..30).boxed(),
            (None, Some(length)) => btree_set(vec(any::<u8>(), length).prop_map(Key::Bytes), 0..30).boxed(),
            (None, None) => btree_set(vec(any::<u8>(), 0..20).prop_map(Key::Bytes), 0..30).boxed(),
        };
        keys.prop_map(move |keys| (key_type.clone(), keys.into_iter().collect()))
    })
}

/// Keys of several columns.
fn composites(key_type: &KeyType) -> impl Strategy<Value = std::collections::BTreeSet<Key>> + use<> {
    let KeyType::Composite(types) = key_type.clone() else { panic!("{key_type:?} is of one column") };
    let row = vec(prop::option::of(any::<u64>()), types.len());
    let key = move |row: Vec<Option<u64>>| {
        let mut bytes = Vec::new();
        for (key_type, number) in types.iter().zip(row) {
            let Some(number) = number else {
                key::composite::push_null(&mut bytes);
                continue;
            };
            let some = number.to_be_bytes();
            let key = match (key_type.fixed_bounds(), key_type.bytes_length()) {
                (Some(bounds), _) => {
                    let (low, high) = bounds.into_inner();
                    Key::Fixed(low + number % (high - low).saturating_add(1))
                }
                (None, Some(length)) => Key::Bytes(some.into_iter().cycle().take(length).collect()),
                (None, None) => Key::Bytes(some[..(number % 9) as usize].to_vec()),
            };
            key::composite::push_key(&mut bytes, key_type, &key);
        }
        Key::Bytes(bytes)
    };
    btree_set(row, 0..30).prop_map(move |rows| rows.into_iter().map(&key).collect())
}

/// A whole segment: each row of its files has one of the keys, or of lists any of them, NULL, or is opaque.
fn segment() -> impl Strategy<Value = Segment> {
    let row_groups = vec(vec(0u32..150, 0..4), 0..4);
    let encoding = (prop::sample::select(Encoding::EXACT.to_vec()), 1usize..9, any::<bool>());
    (keys(), row_groups, vec(any::<u16>(), 600), any::<[u8; 16]>(), "[a-zäß]{0,9}", 1usize..9, encoding).prop_map(
        |((key_type, keys), row_groups, choices, id, column, block_values, (encoding, bin_values, of_lists))| {
            let groups: Vec<&[u32]> = row_groups.iter().map(Vec::as_slice).collect();
            let files = files(&groups);
            let mut lists = vec![Vec::new(); keys.len() + 2];
            let rows = files.iter().flat_map(|file| file.base..file.base + file.rows() as u32);
            for (row, choice) in rows.zip(choices.iter().cycle()) {
                let list = usize::from(*choice) % lists.len();
                lists[list].push(row);
            }
            let (nulls, opaque) = (lists.pop().unwrap(), lists.pop().unwrap());
            let of_lists = of_lists && encoding == Encoding::Equality && !matches!(key_type, KeyType::Composite(_));
            if of_lists {
                let drawn: Vec<(usize, u32)> =
                    (0..).zip(&lists).flat_map(|(n, rows)| rows.iter().map(move |row| (n, *row))).collect();
                for ((list, row), choice) in drawn.into_iter().zip(choices.iter().rev().cycle()) {
                    match choice % 4 {
                        0 => lists[list].retain(|kept| *kept != row),
                        1 => {}
                        other => {
                            let other = (list + usize::from(other) * 7) % lists.len();
                            lists[other].push(row);
                            lists[other].sort();
                            lists[other].dedup();
                        }
                    }
                }
            }
            let key_type = if of_lists { KeyType::List(key_type.into()) } else { key_type };
            let values: Vec<_> = keys.into_iter().zip(lists).filter(|(_, rows)| !rows.is_empty()).collect();
            let blocks = values.chunks(block_values).map(<[_]>::to_vec).collect();
            // Only numbers have bins of their own.
            let encoding =
                if key_type.is_fixed() || encoding != Encoding::Binned { encoding } else { Encoding::Equality };
            let bins: Vec<u32> = if encoding == Encoding::Binned {
                let bins = values.chunks(block_values).flat_map(|block| block.chunks(bin_values));
                bins.map(|bin| bin.len() as u32).collect()
            } else {
                values.chunks(bin_values).map(|bin| bin.len() as u32).filter(|_| encoding.has_bins()).collect()
            };
            Segment { id, index_id: [7; 16], column, key_type, files, nulls, opaque, blocks, encoding, bins }
        },
    )
}

/// A place in the bytes and what to do there.
pub fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..4)
}

pub fn edit(bytes: &mut Vec<u8>, edits: &[(prop::sample::Index, u8, u8)]) {
    for (place, byte, action) in edits {
        if bytes.is_empty() {
            return;
        }
        let at = place.index(bytes.len());
        match action {
            0 => bytes.insert(at, *byte),
            1 => drop(bytes.remove(at)),
            _ => bytes[at] = *byte,
        }
    }
}

proptest! {
    #[test]
    fn keys_begin_in_their_order((_, keys) in keys()) {
        let beginnings: Vec<u64> = keys.iter().map(Key::beginning).collect();
        prop_assert!(beginnings.is_sorted(), "{keys:?}");
        // Different keys of up to eight bytes, of the same length, differ where they begin.
        let is_short = |key: &&Key| matches!(key, Key::Bytes(bytes) if bytes.len() == 8);
        let short: Vec<u64> = keys.iter().filter(is_short).map(Key::beginning).collect();
        prop_assert!(short.is_sorted_by(|a, b| a < b), "{keys:?}");
    }

    #[test]
    fn a_segment_is_read_as_it_was_written(segment in segment()) {
        let (file, directory) = segment.write();
        prop_assert_eq!(Segment::read(&file), Ok(segment));
        let trailer = open_tail(&file, file.len() as u64).unwrap().trailer;
        let bytes = directory.encode(trailer.stream_length).unwrap();
        prop_assert_eq!(SegmentDirectory::decode(&bytes, &trailer), Ok(directory));
    }

    #[test]
    fn a_container_gives_back_every_range(
        payload in vec(any::<u8>(), 0..20_000),
        parts in vec(1usize..6000, 1..9),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let mut writer = ContainerWriter::new(ContentKind::Segment, [3; 16]);
        let mut file = Vec::new();
        let mut rest = payload.as_slice();
        for part in parts.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*part));
            writer.push(now);
            file.extend(writer.take_output());
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        file.extend(writer.finish(&payload).unwrap());
        let opened = open_tail(&file, file.len() as u64).unwrap();
        prop_assert_eq!(opened.directory, Some(payload.as_slice()));
        let (a, b) = (from.index(payload.len() + 1), to.index(payload.len() + 1));
        let (start, end) = (a.min(b), a.max(b));
        let logical = 64 + start as u64..64 + end as u64;
        let physical = physical_range(logical.clone(), &opened.trailer);
        let pages = &file[physical.start as usize..physical.end as usize];
        prop_assert_eq!(&*read_logical(pages, logical, &opened.trailer).unwrap(), &payload[start..end]);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert!(Segment::read(&bytes).is_err());
    }

    #[test]
    fn a_changed_file_is_an_error(number in 0usize..11, edits in edits()) {
        let (name, segment) = golden::segments().swap_remove(number);
        let good = segment.write().0;
        let mut bytes = good.clone();
        edit(&mut bytes, &edits);
        prop_assert!(bytes == good || Segment::read(&bytes).is_err(), "{}", name);
    }

    /// Behind good checksums anything may stand: an error or another value, never a panic.
    #[test]
    fn a_changed_directory_never_panics(number in 0usize..11, edits in edits()) {
        let (_, segment) = golden::segments().swap_remove(number);
        let (file, directory) = segment.write();
        let mut bytes = forge::directory(&directory);
        edit(&mut bytes, &edits);
        let file = forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &bytes);
        let trailer = open_tail(&file, file.len() as u64).unwrap().trailer;
        if let Ok(directory) = SegmentDirectory::decode(&bytes, &trailer) {
            prop_assert!(directory.encode(trailer.stream_length).unwrap() == bytes, "a directory has one encoding");
        }
        if let Ok(read) = Segment::read(&file) {
            let rows = read.blocks.iter().flatten().map(|(_, rows)| rows.len()).sum::<usize>();
            let universe = read.files.iter().map(|file| file.rows() as usize).sum::<usize>();
            prop_assert_eq!(rows + read.nulls.len() + read.opaque.len(), universe);
            prop_assert!(read.files.iter().all(|file| file.base.is_multiple_of(BASE_ALIGNMENT)));
        }
    }

    #[test]
    fn a_changed_stream_never_panics(number in prop::sample::select(vec![1usize, 2, 3, 5, 6, 7, 8, 9, 10]), edits in edits()) {
        let (_, segment) = golden::segments().swap_remove(number);
        let (file, directory) = segment.write();
        let mut stream = forge::stream(&file);
        edit(&mut stream, &edits);
        stream.resize(forge::stream(&file).len(), 0);
        let file = forge::container(ContentKind::Segment, segment.id, &stream, &forge::directory(&directory));
        if let Ok(read) = Segment::read(&file) {
            prop_assert_eq!(read.blocks.iter().flatten().count() as u64, directory.value_count, "{}", number);
        }
    }
}
