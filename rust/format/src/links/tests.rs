use proptest::prelude::*;

use super::*;
use crate::leaf::KeyRows;

type Triple = (Option<u64>, Option<u64>, Option<u64>);

fn numbers() -> KeyType {
    KeyType::Composite(vec![KeyType::UInt64; 3].into())
}

fn number(value: Option<u64>) -> Option<Key> {
    value.map(Key::Fixed)
}

fn key_of((near, predicate, far): Triple) -> Key {
    let shape = LinkShape::of(&numbers()).unwrap();
    Key::Bytes(shape.key_of(&number(near), Some(&number(predicate)), &number(far)))
}

/// What was built of some links.
struct Built {
    leaves: Vec<LinkLeafBytes>,
    predicates: Vec<Option<Key>>,
}

fn build(key_type: KeyType, keys: impl Iterator<Item = Key>) -> Built {
    let mut builder = LinkLeafBuilder::new(key_type).unwrap();
    let mut leaves = Vec::new();
    for (row, key) in (0..).zip(keys) {
        leaves.extend(builder.push(key, CountedRows { rows: 1, rows_in: KeyRows::Run(row) }).unwrap());
    }
    while let Some(leaf) = builder.finish().unwrap() {
        leaves.push(leaf);
    }
    Built { leaves, predicates: builder.take_predicates() }
}

fn keys_of(built: &Built, key_type: &KeyType) -> Vec<Key> {
    let shape = LinkShape::of(key_type).unwrap();
    let of_leaf = |leaf: &LinkLeafBytes| {
        let read = LinkLeaf::decode(&leaf.bytes, leaf.links, &shape, built.predicates.len()).unwrap();
        let keys = read.keys(&shape, &built.predicates).unwrap();
        assert_eq!(keys[0], leaf.first_key);
        keys
    };
    built.leaves.iter().flat_map(of_leaf).collect()
}

fn round_trip(key_type: &KeyType, keys: &[Key]) -> Built {
    let built = build(key_type.clone(), keys.iter().cloned());
    assert_eq!(keys_of(&built, key_type), keys);
    let mut row = 0;
    for leaf in &built.leaves {
        for rows in decode_link_rows(&leaf.row_bytes, leaf.links, keys.len() as u32).unwrap() {
            assert_eq!(rows, CountedRows { rows: 1, rows_in: KeyRows::Run(row) });
            row += 1;
        }
    }
    assert_eq!(row as usize, keys.len());
    built
}

/// The links of a graph in which every node has a few, as keys.
fn sparse(links: u64) -> Vec<Key> {
    let spread = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 41;
    let triple = |link: u64| (Some(link / 4), Some(1 << 40 | (link % 4)), Some(spread(link)));
    (0..links).map(triple).map(key_of).collect()
}

#[test]
fn leaves_are_nearly_full_pages() {
    let built = round_trip(&numbers(), &sparse(20_000));
    let (last, others) = built.leaves.split_last().unwrap();
    assert!(others.iter().all(|leaf| leaf.bytes.len() <= LEAF_BYTES), "a leaf beyond a page");
    assert!(others.iter().all(|leaf| leaf.bytes.len() > LEAF_BYTES * 9 / 10), "a leaf that is not full");
    assert!(last.bytes.len() <= LEAF_BYTES);
    assert_eq!(built.predicates.len(), 4);
    let bytes: usize = built.leaves.iter().map(|leaf| leaf.bytes.len()).sum();
    assert!(bytes <= 4 * 20_000, "{bytes} bytes of 20,000 links");
}

#[test]
fn a_hub_has_leaves_of_its_own() {
    let is_a = |near: u64, far: u64| key_of((Some(near), Some(7), Some(far * 1000)));
    let before = (0..3).map(|far| is_a(1, far));
    let hub = (0..40_000).map(|far| is_a(2, far * far));
    let after = (0..3).map(|far| is_a(3, far));
    let keys: Vec<Key> = before.chain(hub).chain(after).collect();
    let built = round_trip(&numbers(), &keys);
    let hub: Vec<&LinkLeafBytes> = built.leaves.iter().filter(|leaf| leaf.bytes.len() > LEAF_BYTES).collect();
    assert!(!hub.is_empty() && hub.iter().all(|leaf| leaf.bytes.len() <= HUB_BYTES));
    let shape = LinkShape::of(&numbers()).unwrap();
    for leaf in hub {
        let read = LinkLeaf::decode(&leaf.bytes, leaf.links, &shape, 1).unwrap();
        assert_eq!((read.node_count(), read.groups(0).len()), (1, 1));
    }
}

#[test]
fn dense_links_are_cut_by_their_number() {
    let keys: Vec<Key> = (0..MAX_LEAF_LINKS as u64 + 5).map(|far| key_of((Some(1), Some(1), Some(far)))).collect();
    let built = round_trip(&numbers(), &keys);
    assert_eq!(built.leaves.iter().map(|leaf| leaf.links as usize).max(), Some(MAX_LEAF_LINKS));
}

#[test]
fn links_of_two_columns_have_no_predicate() {
    let key_type = KeyType::Composite(vec![KeyType::Int32; 2].into());
    let shape = LinkShape::of(&key_type).unwrap();
    let key = |near, far| Key::Bytes(shape.key_of(&number(near), None, &number(far)));
    let at = |value: u64| Some((1 << 63) + value);
    let keys = [key(None, None), key(None, at(1)), key(at(1), None), key(at(1), at(1)), key(at(2), at(0))];
    let built = round_trip(&key_type, &keys);
    assert!(built.predicates.is_empty());
    let leaf = LinkLeaf::decode(&built.leaves[0].bytes, 5, &shape, 0).unwrap();
    assert_eq!((leaf.node(0), leaf.find(LinkEnd::Number((1 << 63) + 2))), (Some(LinkEnd::Null), Some(2)));
    assert_eq!(leaf.find(LinkEnd::Number((1 << 63) + 3)), None);
}

#[test]
fn other_columns_are_refused() {
    let composite = |types: &[KeyType]| KeyType::Composite(types.to_vec().into());
    let refused = [
        KeyType::UInt64,
        composite(&[KeyType::UInt64, KeyType::Utf8]),
        composite(&[KeyType::UInt64, KeyType::Utf8, KeyType::Int64]),
        composite(&vec![KeyType::UInt64; 4]),
    ];
    for key_type in refused {
        assert!(LinkShape::of(&key_type).is_err() && LinkLeafBuilder::new(key_type).is_err());
    }
}

#[test]
fn too_many_predicates_are_refused() {
    let mut builder = LinkLeafBuilder::new(numbers()).unwrap();
    let mut push = |predicate: usize| {
        let key = key_of((Some(1), Some(predicate as u64), Some(1)));
        builder.push(key, CountedRows { rows: 1, rows_in: KeyRows::Run(0) }).map(drop)
    };
    (0..MAX_PREDICATES).try_for_each(&mut push).unwrap();
    let error = push(MAX_PREDICATES).unwrap_err();
    assert!(matches!(error, FormatError::TooLong { what: "the predicates of links", .. }), "{error}");
}

#[test]
fn links_out_of_order_are_refused() {
    let mut builder = LinkLeafBuilder::new(numbers()).unwrap();
    let rows = || CountedRows { rows: 1, rows_in: KeyRows::Run(0) };
    builder.push(key_of((Some(2), Some(1), Some(1))), rows()).unwrap();
    assert!(builder.push(key_of((Some(2), Some(1), Some(1))), rows()).is_err());
    assert!(builder.push(key_of((Some(1), Some(1), Some(1))), rows()).is_err());
}

#[test]
fn a_leaf_is_of_so_many_links_and_predicates() {
    let built = build(numbers(), sparse(100).into_iter());
    let (leaf, shape) = (&built.leaves[0], LinkShape::of(&numbers()).unwrap());
    let decode = |links, predicates| LinkLeaf::decode(&leaf.bytes, links, &shape, predicates);
    decode(100, 4).unwrap();
    for (links, predicates) in [(99, 4), (101, 4), (0, 4), (100, 3), (MAX_LEAF_LINKS as u32 + 1, 4)] {
        assert!(decode(links, predicates).is_err(), "{links} links, {predicates} predicates");
    }
}

fn end() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.9, prop_oneof![0..5u64, any::<u64>()])
}

proptest! {
    #[test]
    fn numbers_come_back(triples in prop::collection::btree_set((end(), prop::option::of(0..3u64), end()), 1..400)) {
        let keys: Vec<Key> = triples.into_iter().map(key_of).collect();
        round_trip(&numbers(), &keys);
    }

    #[test]
    fn texts_come_back(
        triples in prop::collection::btree_set(
            (prop::option::of("[a\0]{0,4}"), prop::option::of("[pq]{0,2}"), prop::option::of("[a\0]{0,4}")),
            1..300,
        ),
    ) {
        let key_type = KeyType::Composite(vec![KeyType::Utf8; 3].into());
        let shape = LinkShape::of(&key_type).unwrap();
        let text = |text: Option<String>| text.map(|text| Key::Bytes(text.into_bytes()));
        let keys: Vec<Key> = triples
            .into_iter()
            .map(|(s, p, o)| Key::Bytes(shape.key_of(&text(s), Some(&text(p)), &text(o))))
            .collect();
        round_trip(&key_type, &keys);
    }

    #[test]
    fn arbitrary_bytes_give_a_leaf_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), links in 0..300u32) {
        for end in [KeyType::UInt64, KeyType::Int8, KeyType::Utf8, KeyType::FixedBinary(2)] {
            for predicate in [None, Some(KeyType::Utf8)] {
                let shape = LinkShape { end: end.clone(), predicate };
                if let Ok(leaf) = LinkLeaf::decode(&bytes, links, &shape, 9) {
                    prop_assert_eq!(leaf.link_count(), links as usize);
                    let ends = (0..leaf.node_count()).flat_map(|place| leaf.groups(place)).map(|group| group.links.len());
                    prop_assert_eq!(ends.sum::<usize>(), links as usize);
                }
            }
        }
        let _ = decode_link_rows(&bytes, links, 1000);
    }
}
