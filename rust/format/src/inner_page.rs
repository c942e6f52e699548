//! Inner pages of a packed tree: where its leaves are, if these are too many for the directory, which has the inner pages then.
//!
//! ```text
//! directory    page 0 │ page 1 │ …                 of each: the first key, what its leaves have together, where they are
//!                 ▼ one page, which readers remember
//! inner page   leaf 0 │ leaf 1 │ leaf 2 │ …        of each: the first key, how many keys and rows it has, where it is
//!                          ▼ one page
//! leaf         …
//!
//! inner-page := number of leaves, first keys but the first, keys, further rows, lengths of long postings, gaps, lengths
//! ```
//!
//! Leaves lie one behind the other, each behind its long postings, so that lengths and gaps say where they are. Every list is packed: a page
//! has about 400 leaves. So the directory of a billion rows has some thousand pages in place of a million leaves.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType};
use crate::leaf::{gaps, texts};
use crate::packed::{decode_column, encode_column};
use crate::segment::ValueBlockRef;
use crate::value_block::{gaps_of, keys_of_gaps};

/// The most leaves of an inner page. Part of the format.
pub const MAX_INNER_LEAVES: usize = 4096;

/// An inner page that was made.
#[derive(Debug, PartialEq, Eq)]
pub struct InnerPage {
    /// How many leaves it has.
    pub leaves: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the directory says of it, but for its logical offset, which is 0.
    pub block: ValueBlockRef,
}

impl InnerPage {
    /// A page of the first leaves: `most`, or as many as fit into so many bytes. A single leaf may take more.
    ///
    /// # Errors
    /// No leaves; leaves out of order, or not behind each other.
    pub fn of(leaves: &[ValueBlockRef], most: usize, room: usize) -> Result<Self> {
        let (mut fits, mut beyond) = (1, leaves.len().min(most).min(MAX_INNER_LEAVES) + 1);
        let mut bytes = encode(leaves.get(..1).unwrap_or_default())?;
        while fits + 1 < beyond {
            let middle = usize::midpoint(fits, beyond);
            match encode(leaves.get(..middle).unwrap_or_default()) {
                Ok(more) if more.len() <= room => (fits, bytes) = (middle, more),
                // First keys that are too long together are too many.
                Ok(_) | Err(FormatError::TooLong { .. }) => beyond = middle,
                Err(error) => return Err(error),
            }
        }
        let block = reference(leaves.get(..fits).unwrap_or_default(), bytes.len())?;
        Ok(Self { leaves: fits, bytes, block })
    }
}

/// What the directory says of a page of these leaves.
fn reference(leaves: &[ValueBlockRef], length: usize) -> Result<ValueBlockRef> {
    let (Some(first), Some(last)) = (leaves.first(), leaves.last()) else { return Err(no_leaves(0)) };
    let values: u64 = leaves.iter().map(|leaf| u64::from(leaf.values)).sum();
    let values = u32::try_from(values);
    let beyond = |_| FormatError::invalid("the keys of an inner page", "beyond 32 bits", "a 32-bit number");
    Ok(ValueBlockRef {
        first_key: first.first_key.clone(),
        offset: 0,
        length: length as u32,
        values: values.map_err(beyond)?,
        rows: leaves.iter().map(|leaf| leaf.rows).sum(),
        postings_offset: first.postings_offset,
        postings_length: end_of(last).saturating_sub(first.postings_offset),
        is_inner: true,
    })
}

fn no_leaves(count: u64) -> FormatError {
    FormatError::invalid("the leaves of an inner page", count, format_args!("1 to {MAX_INNER_LEAVES}"))
}

/// Where a leaf ends.
fn end_of(leaf: &ValueBlockRef) -> u64 {
    leaf.offset.saturating_add(leaf.length.into())
}

/// The bytes of an inner page.
fn encode(leaves: &[ValueBlockRef]) -> Result<Vec<u8>> {
    let mut out = ByteWriter::new();
    out.length(leaves.len());
    encode_first_keys(leaves, &mut out)?;
    encode_column(leaves.iter().map(|leaf| u64::from(leaf.values)), &mut out);
    let surplus: Vec<u64> = leaves.iter().map(|leaf| leaf.rows.saturating_sub(leaf.values.into())).collect();
    gaps::encode(&surplus, &mut out);
    let postings: Vec<u64> = leaves.iter().map(|leaf| leaf.postings_length).collect();
    gaps::encode(&postings, &mut out);
    encode_column(gaps_before(leaves)?.into_iter(), &mut out);
    encode_column(leaves.iter().map(|leaf| u64::from(leaf.length)), &mut out);
    Ok(out.into_vec())
}

fn encode_first_keys(leaves: &[ValueBlockRef], out: &mut ByteWriter) -> Result<()> {
    if let Some(ValueBlockRef { first_key: Key::Fixed(_), .. }) = leaves.first() {
        let keys: Vec<&Key> = leaves.iter().map(|leaf| &leaf.first_key).collect();
        gaps::encode(&gaps_of(&keys)?, out);
        return Ok(());
    }
    let mut beginnings = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        match &leaf.first_key {
            Key::Bytes(bytes) => beginnings.push(bytes.as_slice()),
            Key::Fixed(_) => return Err(FormatError::invalid("a key", "a number", "bytes")),
        }
    }
    texts::encode(&beginnings, out)
}

/// How many bytes lie unused before each leaf, behind its long postings.
fn gaps_before(leaves: &[ValueBlockRef]) -> Result<Vec<u64>> {
    let mut gaps = Vec::with_capacity(leaves.len());
    let mut cursor = leaves.first().map_or(0, |leaf| leaf.postings_offset);
    for leaf in leaves {
        let postings_end = cursor.saturating_add(leaf.postings_length);
        let gap = leaf.offset.checked_sub(postings_end).filter(|_| leaf.postings_offset == cursor);
        gaps.push(gap.ok_or_else(|| out_of_place(leaf.offset))?);
        cursor = end_of(leaf);
    }
    Ok(gaps)
}

fn out_of_place(offset: u64) -> FormatError {
    FormatError::invalid("the place of a leaf", offset, "behind the leaf before, and inside of what the directory says")
}

/// The leaves of an inner page, of which the directory says `page`.
///
/// # Errors
/// Bytes that are not such a page of `key_type`.
pub fn decode(bytes: &[u8], page: &ValueBlockRef, key_type: &KeyType) -> Result<Vec<ValueBlockRef>> {
    let mut input = ByteReader::new("an inner page", bytes);
    let count = input.varint()?;
    let fits = usize::try_from(count).ok().filter(|fits| (1..=MAX_INNER_LEAVES).contains(fits));
    let count = fits.ok_or_else(|| no_leaves(count))?;
    let keys = decode_first_keys(&mut input, &page.first_key, count, key_type)?;
    let values = decode_column(&mut input, count, "the keys of a leaf")?;
    let (mut surplus, mut postings) = (vec![0; count], vec![0; count]);
    gaps::decode(&mut input, &mut surplus)?;
    gaps::decode(&mut input, &mut postings)?;
    let gaps = decode_column(&mut input, count, "the gap before a leaf")?;
    let lengths = decode_column(&mut input, count, "the length of a leaf")?;
    input.finish()?;
    let mut leaves = Leaves { cursor: page.postings_offset, rows: 0, found: Vec::with_capacity(count) };
    let numbers = values.into_iter().zip(surplus).zip(postings).zip(gaps).zip(lengths);
    for (first_key, ((((values, surplus), postings_length), gap), length)) in keys.into_iter().zip(numbers) {
        leaves.push(Leaf { first_key, values, surplus, postings_length, gap, length })?;
    }
    leaves.finish(page)
}

fn decode_first_keys(input: &mut ByteReader<'_>, first: &Key, count: usize, key_type: &KeyType) -> Result<Vec<Key>> {
    match first {
        Key::Fixed(first) => {
            let mut steps = vec![0; count.saturating_sub(1)];
            gaps::decode(input, &mut steps)?;
            keys_of_gaps(*first, &steps, key_type)
        }
        // These are beginnings of keys.
        Key::Bytes(first) => Ok(texts::decode(input, first, count)?.into_iter().map(Key::Bytes).collect()),
    }
}

/// What a page says of a leaf.
struct Leaf {
    first_key: Key,
    values: u32,
    /// Rows beyond one for each key.
    surplus: u64,
    postings_length: u64,
    /// Unused bytes before it.
    gap: u32,
    length: u32,
}

/// The leaves of a page up to one of them.
struct Leaves {
    /// Where the last one ends.
    cursor: u64,
    rows: u64,
    found: Vec<ValueBlockRef>,
}

impl Leaves {
    fn push(&mut self, leaf: Leaf) -> Result<()> {
        let Leaf { first_key, values, surplus, postings_length, gap, length } = leaf;
        if values == 0 || length == 0 {
            let got = format!("of {values} keys and {length} bytes");
            return Err(FormatError::invalid("a leaf of an inner page", got, "a key or more, and its bytes"));
        }
        let postings_offset = self.cursor;
        let postings_end = postings_offset.checked_add(postings_length);
        let offset = postings_end.and_then(|end| end.checked_add(gap.into()));
        let placed = offset.and_then(|offset| Some((offset, offset.checked_add(length.into())?)));
        let rows = surplus.checked_add(values.into());
        let rows = rows.and_then(|rows| Some((rows, self.rows.checked_add(rows)?)));
        let (Some((offset, end)), Some((rows, all_rows))) = (placed, rows) else {
            return Err(FormatError::invalid("a leaf of an inner page", "beyond 64 bits", "inside of the stream"));
        };
        (self.cursor, self.rows) = (end, all_rows);
        self.found.push(ValueBlockRef {
            first_key,
            offset,
            length,
            values,
            rows,
            postings_offset,
            postings_length,
            is_inner: false,
        });
        Ok(())
    }

    /// All of them, if they are together what the directory says.
    fn finish(self, page: &ValueBlockRef) -> Result<Vec<ValueBlockRef>> {
        let end = page.postings_offset.saturating_add(page.postings_length);
        if self.cursor != end {
            return Err(FormatError::invalid("the end of the leaves of an inner page", self.cursor, end));
        }
        let values: u64 = self.found.iter().map(|leaf| u64::from(leaf.values)).sum();
        if (values, self.rows) != (page.values.into(), page.rows) {
            let got = format!("{values} keys with {} rows", self.rows);
            let expected = format!("{} keys with {} rows", page.values, page.rows);
            return Err(FormatError::invalid("the leaves of an inner page", got, expected));
        }
        Ok(self.found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::container::PAGE_PAYLOAD;

    const ROOM: usize = PAGE_PAYLOAD as usize;

    /// Leaves of these keys, of whom each tenth has long postings, in pages of their own.
    fn leaves(keys: impl Iterator<Item = Key>) -> Vec<ValueBlockRef> {
        let (mut found, mut cursor) = (Vec::new(), 64u64);
        for (number, first_key) in (0u64..).zip(keys) {
            let length = (3900 + number * 37 % 190) as u32;
            let postings_length = if number % 10 == 3 { 70_000 } else { 0 };
            let offset = (cursor + postings_length).next_multiple_of(PAGE_PAYLOAD);
            let values = 150 + (number % 30) as u32;
            let rows = u64::from(values) + number % 4;
            found.push(ValueBlockRef {
                first_key,
                offset,
                length,
                values,
                rows,
                postings_offset: cursor,
                postings_length,
                is_inner: false,
            });
            cursor = offset + u64::from(length);
        }
        found
    }

    fn spread(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn numbers(count: u64) -> Vec<Key> {
        let mut keys: Vec<u64> = (0..count).map(spread).collect();
        keys.sort_unstable();
        keys.into_iter().map(Key::Fixed).collect()
    }

    /// The pages of leaves, and how many these have.
    fn round_trip(leaves: &[ValueBlockRef], most: usize, key_type: &KeyType) -> Vec<usize> {
        let (mut rest, mut found, mut counts) = (leaves, Vec::new(), Vec::new());
        while !rest.is_empty() {
            let page = InnerPage::of(rest, most, ROOM).unwrap();
            assert!(page.bytes.len() <= ROOM || page.leaves == 1);
            assert_eq!((page.block.length as usize, &page.block.first_key), (page.bytes.len(), &rest[0].first_key));
            found.extend(decode(&page.bytes, &page.block, key_type).unwrap());
            counts.push(page.leaves);
            rest = &rest[page.leaves..];
        }
        assert_eq!(found, leaves);
        counts
    }

    #[test]
    fn a_page_has_some_hundred_leaves() {
        let counts = round_trip(&leaves(numbers(1000).into_iter()), usize::MAX, &KeyType::UInt64);
        assert!(counts[0] >= 300 && counts.len() <= 4, "{counts:?}");
        // As many bytes of texts as tell 1,000 leaves apart.
        let texts = numbers(1000).into_iter().map(|key| match key {
            Key::Fixed(number) => Key::Bytes(format!("{number:016x}").into_bytes()[..8].to_vec()),
            key => key,
        });
        let counts = round_trip(&leaves(texts), usize::MAX, &KeyType::Utf8);
        assert!(counts[0] >= 400, "{counts:?}");
        let counts = round_trip(&leaves(numbers(1000).into_iter()), 7, &KeyType::UInt64);
        assert!(counts.len() == 143 && counts[0] == 7);
        // Keys in order are near to each other, and there are no more than so many in a page.
        let near = leaves((0..5000).map(|number| Key::Fixed(number * 100)));
        let near: Vec<ValueBlockRef> =
            near.into_iter().map(|leaf| ValueBlockRef { values: 100, rows: 100, ..leaf }).collect();
        assert!(InnerPage::of(&near, usize::MAX, usize::MAX).unwrap().leaves == MAX_INNER_LEAVES);
    }

    #[test]
    fn leaves_that_are_not_behind_each_other_have_no_page() {
        let good = leaves(numbers(3).into_iter());
        let with = |change: &dyn Fn(&mut Vec<ValueBlockRef>)| {
            let mut leaves = good.clone();
            change(&mut leaves);
            InnerPage::of(&leaves, usize::MAX, ROOM)
        };
        assert!(with(&|_| {}).is_ok());
        assert!(with(&|leaves| leaves[1].postings_offset += 1).is_err());
        assert!(with(&|leaves| leaves[2].offset = 64).is_err());
        assert!(with(&|leaves| leaves[1].first_key = leaves[0].first_key.clone()).is_err());
        assert!(with(&|leaves| leaves.clear()).is_err());
        let long = (0..2000u64).map(|number| Key::Bytes([vec![b'x'; 4000], number.to_be_bytes().to_vec()].concat()));
        // 2,000 keys of 4,008 bytes are more than a list may have, however few they take.
        assert!((900..1100).contains(&InnerPage::of(&leaves(long), usize::MAX, usize::MAX).unwrap().leaves));
    }

    #[test]
    fn a_page_says_what_the_directory_does() {
        let leaves = leaves(numbers(20).into_iter());
        let InnerPage { bytes, block, .. } = InnerPage::of(&leaves, usize::MAX, ROOM).unwrap();
        let with = |change: &dyn Fn(&mut ValueBlockRef)| {
            let mut page = block.clone();
            change(&mut page);
            decode(&bytes, &page, &KeyType::UInt64)
        };
        assert_eq!(with(&|_| {}).as_deref(), Ok(leaves.as_slice()));
        assert!(with(&|page| page.values += 1).is_err());
        assert!(with(&|page| page.rows -= 1).is_err());
        assert!(with(&|page| page.postings_length += 1).is_err());
        assert!(with(&|page| page.first_key = Key::Fixed(u64::MAX)).is_err());
        assert!(with(&|page| page.postings_offset = u64::MAX - 10).is_err());
        assert!(decode(&[&bytes[..], &[0]].concat(), &block, &KeyType::UInt64).is_err());
    }

    proptest! {
        #[test]
        fn pages_round_trip(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..12), 1..80),
            sizes in prop::collection::vec((1u32..9000, 1u32..200, 0u64..400, 0u64..100_000, 0u64..5000), 80),
            most in 1usize..100,
        ) {
            let mut cursor = 64;
            let mut leaves = Vec::new();
            for (key, (length, values, surplus, postings_length, gap)) in keys.into_iter().zip(sizes) {
                let offset = cursor + postings_length + gap;
                leaves.push(ValueBlockRef {
                    first_key: Key::Bytes(key),
                    offset,
                    length,
                    values,
                    rows: u64::from(values) + surplus,
                    postings_offset: cursor,
                    postings_length,
                    is_inner: false,
                });
                cursor = offset + u64::from(length);
            }
            round_trip(&leaves, most, &KeyType::Binary);
        }

        #[test]
        fn arbitrary_bytes_are_leaves_in_order_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            is_text in any::<bool>(),
        ) {
            let (first_key, key_type) =
                if is_text { (Key::Bytes(vec![7]), KeyType::Binary) } else { (Key::Fixed(7), KeyType::UInt64) };
            let InnerPage { block, .. } = InnerPage::of(&leaves(std::iter::once(first_key)), 1, ROOM).unwrap();
            if let Ok(found) = decode(&bytes, &block, &key_type) {
                prop_assert!(found.is_sorted_by(|one, other| one.first_key < other.first_key && one.offset < other.offset));
            }
        }
    }
}
