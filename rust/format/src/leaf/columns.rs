//! Keys of bytes that are numbers, column by column: of several columns of fixed width, of bytes of one length, and UUIDs in texts.
//!
//! ```text
//! keys       (17, 20 November) (17, 22 November) (40, 3 November)
//! tree       2 numbers in the first column, with 2 and 1 below them
//! numbers    17, gap 22 │ 20, gap 1, 17 below the first
//! ```
//!
//! Keys that share their first columns share the numbers of these. Gaps of a column are packed by themselves: of a customer and a day the
//! customer takes many bits once, and the day a few for each key.

use super::{gaps, uuid, wide_gaps};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{KeyType, composite};

/// The most bytes of a number.
const NUMBER_BYTES: usize = 16;
/// The most numbers of the keys of a list. Part of the format.
pub const MAX_KEY_LIST_NUMBERS: usize = 1 << 18;

/// How keys are numbers.
enum NumberForm {
    /// Columns, each NULL or a number of so many bytes.
    Columns(Vec<usize>),
    /// One number of so many bytes.
    Whole(usize),
    /// The number of a canonical UUID.
    Uuid,
}

impl NumberForm {
    /// How keys of a type are numbers, if any are.
    fn of(key_type: &KeyType) -> Option<Self> {
        match key_type {
            KeyType::Composite(types) => {
                let bytes = |column: &KeyType| composite::width_of(column)?.checked_sub(1);
                let widths = types.iter().map(|column| bytes(column).filter(|bytes| *bytes <= NUMBER_BYTES));
                widths.collect::<Option<_>>().map(Self::Columns)
            }
            KeyType::Utf8 | KeyType::Binary => Some(Self::Uuid),
            other => other.bytes_length().filter(|bytes| *bytes <= NUMBER_BYTES).map(Self::Whole),
        }
    }

    /// How many numbers a key is.
    fn columns(&self) -> usize {
        match self {
            Self::Columns(widths) => widths.len(),
            Self::Whole(_) | Self::Uuid => 1,
        }
    }

    /// Appends the numbers of a key; none if it has none.
    fn numbers(&self, key: &[u8], numbers: &mut Vec<u128>) -> Option<()> {
        match self {
            Self::Columns(widths) => {
                let mut rest = key;
                for width in widths {
                    let (tag, after) = rest.split_first()?;
                    // NULL is 0, and a value one more than it is.
                    let (number, after) = match tag {
                        0 => (0, after),
                        1 => {
                            let (value, after) = after.split_at_checked(*width)?;
                            (number_of(value).checked_add(1)?, after)
                        }
                        _ => return None,
                    };
                    numbers.push(number);
                    rest = after;
                }
                rest.is_empty().then_some(())
            }
            Self::Whole(width) => (key.len() == *width).then(|| numbers.push(number_of(key))),
            Self::Uuid => uuid::number_of(key).map(|number| numbers.push(number)),
        }
    }

    /// The key of some numbers.
    fn key(&self, numbers: &[u128]) -> Result<Vec<u8>> {
        match self {
            Self::Columns(widths) => {
                let mut key = Vec::with_capacity(widths.iter().map(|width| width + 1).sum());
                for (number, width) in numbers.iter().zip(widths) {
                    match number.checked_sub(1) {
                        None => composite::push_null(&mut key),
                        Some(value) => {
                            composite::push_any_value(&mut key);
                            push_number(&mut key, value, *width)?;
                        }
                    }
                }
                Ok(key)
            }
            Self::Whole(width) => {
                let mut key = Vec::with_capacity(*width);
                push_number(&mut key, numbers.first().copied().unwrap_or_default(), *width)?;
                Ok(key)
            }
            Self::Uuid => Ok(uuid::text_of(numbers.first().copied().unwrap_or_default())),
        }
    }
}

/// The number of some bytes, the highest first.
fn number_of(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Appends a number in so many bytes.
fn push_number(out: &mut Vec<u8>, number: u128, width: usize) -> Result<()> {
    let bytes = number.to_be_bytes();
    let (beyond, bytes) = bytes.split_at_checked(NUMBER_BYTES.saturating_sub(width)).unwrap_or_default();
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(FormatError::invalid("a number of a key", number, format_args!("one of {width} bytes")));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// All keys but the first, which ascend; none if they are no numbers.
pub(super) fn encode(keys: &[&[u8]], key_type: &KeyType) -> Option<ByteWriter> {
    let form = NumberForm::of(key_type)?;
    let columns = form.columns();
    if keys.len().saturating_mul(columns) > MAX_KEY_LIST_NUMBERS {
        return None;
    }
    let mut numbers = Vec::with_capacity(keys.len() * columns);
    for key in keys {
        form.numbers(key, &mut numbers)?;
    }
    let rows: Vec<&[u128]> = numbers.chunks_exact(columns.max(1)).collect();
    let levels = levels(&rows)?;
    let mut out = ByteWriter::new();
    encode_tree(&levels, columns, &mut out);
    for column in 0..columns {
        encode_column(&rows, &levels, column, &mut out)?;
    }
    Some(out)
}

/// For each row but the first the first column in which it is above the one before; none if one is not above it.
fn levels(rows: &[&[u128]]) -> Option<Vec<usize>> {
    let level = |(before, after): (&&[u128], &&[u128])| {
        let level = before.iter().zip(after.iter()).position(|(one, other)| one != other)?;
        (before.get(level)? < after.get(level)?).then_some(level)
    };
    rows.iter().zip(rows.iter().skip(1)).map(level).collect()
}

/// How many numbers the first column has, and for each number of a column how many the next one has below it.
fn encode_tree(levels: &[usize], columns: usize, out: &mut ByteWriter) {
    // Of each column but the last, one less than those below each of its numbers.
    let mut below: Vec<Vec<u64>> = vec![vec![0]; columns.saturating_sub(1)];
    for level in levels {
        if let Some(last) = level.checked_sub(1).and_then(|above| below.get_mut(above)).and_then(|of| of.last_mut()) {
            *last += 1;
        }
        below.iter_mut().skip(*level).for_each(|of| of.push(0));
    }
    if let Some(first) = below.first() {
        out.length(first.len());
    }
    below.iter().for_each(|of| gaps::encode(of, out));
}

/// A number of a column that is to be written.
#[derive(Clone, Copy)]
enum Step {
    /// The first below another number of the column before: itself.
    Begins(u128),
    /// Any other: what lies between it and the one before.
    Gap(u128),
}

fn encode_column(rows: &[&[u128]], levels: &[usize], column: usize, out: &mut ByteWriter) -> Option<()> {
    let number = |row: &&[u128]| row.get(column).copied();
    let mut steps = Vec::with_capacity(levels.len());
    for ((before, row), level) in rows.iter().zip(rows.iter().skip(1)).zip(levels) {
        if *level < column {
            steps.push(Step::Begins(number(row)?));
        } else if *level == column {
            steps.push(Step::Gap(number(row)?.checked_sub(number(before)?)?.checked_sub(1)?));
        }
    }
    let head = rows.first().and_then(number)?;
    let begins = steps.iter().filter_map(|step| if let Step::Begins(number) = step { Some(*number) } else { None });
    let begins: Vec<u128> = begins.collect();
    let base = begins.iter().copied().fold(head, u128::min);
    let together = steps.iter().map(|step| match step {
        Step::Begins(number) => number - base,
        Step::Gap(gap) => *gap,
    });
    let together: Vec<u128> = together.collect();
    if column == 0 {
        wide_gaps::encode(&together, out);
        return Some(());
    }
    let distance = head - base;
    if distance >> (u128::BITS - 1) != 0 {
        return None;
    }
    let mut joined = ByteWriter::new();
    joined.varint_wide(distance << 1);
    wide_gaps::encode(&together, &mut joined);
    let mut apart = ByteWriter::new();
    apart.varint_wide(distance << 1 | 1);
    wide_gaps::encode(&begins.iter().map(|number| number - base).collect::<Vec<_>>(), &mut apart);
    let gaps = steps.iter().filter_map(|step| if let Step::Gap(gap) = step { Some(*gap) } else { None });
    wide_gaps::encode(&gaps.collect::<Vec<_>>(), &mut apart);
    out.bytes(if apart.len() < joined.len() { apart.as_slice() } else { joined.as_slice() });
    Some(())
}

/// So many keys, of which the first is known.
pub(super) fn decode(
    input: &mut ByteReader<'_>,
    first: &[u8],
    count: usize,
    key_type: &KeyType,
) -> Result<Vec<Vec<u8>>> {
    let none = || FormatError::invalid("the keys of a list", "numbers", "keys that are none");
    let form = NumberForm::of(key_type).ok_or_else(none)?;
    let columns = form.columns();
    let numbers = count.saturating_mul(columns);
    if numbers > MAX_KEY_LIST_NUMBERS {
        let (got, limit) = (numbers as u64, MAX_KEY_LIST_NUMBERS as u64);
        return Err(FormatError::TooLong { what: "the numbers of keys", got, limit });
    }
    let mut head = Vec::with_capacity(columns);
    form.numbers(first, &mut head).ok_or_else(none)?;
    let tree = decode_tree(input, count, columns)?;
    let mut held: Vec<Vec<u128>> = Vec::with_capacity(columns);
    for (column, (above, head)) in tree.iter().zip(head).enumerate() {
        held.push(decode_column(input, above, head, column > 0)?);
    }
    let mut row = vec![0; columns];
    let key = |place: usize| {
        let mut place = place;
        for ((slot, above), numbers) in row.iter_mut().zip(&tree).zip(&held).rev() {
            *slot = numbers.get(place).copied().unwrap_or_default();
            place = above.get(place).map_or(0, |above| *above as usize);
        }
        form.key(&row)
    };
    (0..count).map(key).collect()
}

/// For each number of each column the place of the one that it is below, in the column before.
fn decode_tree(input: &mut ByteReader<'_>, count: usize, columns: usize) -> Result<Vec<Vec<u32>>> {
    let mut tree = Vec::with_capacity(columns);
    let wrong = |got: usize| FormatError::invalid("the numbers of a column", got, format_args!("1 to {count}"));
    // They may take less than a byte each.
    let first = if columns > 1 { input.varint()? } else { count as u64 };
    let mut numbers = usize::try_from(first).unwrap_or(usize::MAX);
    if numbers == 0 || numbers > count {
        return Err(wrong(numbers));
    }
    tree.push(vec![0; numbers]);
    for _ in 1..columns {
        let mut below = vec![0; numbers];
        gaps::decode(input, &mut below)?;
        let mut above = Vec::with_capacity(count);
        for (place, more) in (0u32..).zip(below) {
            let end = usize::try_from(more).ok().and_then(|more| more.checked_add(above.len() + 1));
            match end.filter(|end| *end <= count) {
                Some(end) => above.resize(end, place),
                None => return Err(wrong(count.saturating_add(1))),
            }
        }
        numbers = above.len();
        tree.push(above);
    }
    if numbers == count { Ok(tree) } else { Err(wrong(numbers)) }
}

/// The numbers of a column that begins with `head`; `above` says which of them are below the same one.
fn decode_column(input: &mut ByteReader<'_>, above: &[u32], head: u128, is_below: bool) -> Result<Vec<u128>> {
    let beyond = || FormatError::invalid("a number of a key", "beyond 128 bits", "a 128-bit number");
    let begins: Vec<bool> = above.iter().zip(above.iter().skip(1)).map(|(one, next)| one != next).collect();
    let (mut base, mut is_apart) = (head, false);
    if is_below {
        let header = input.varint_wide()?;
        is_apart = header & 1 == 1;
        base = head.checked_sub(header >> 1).ok_or_else(beyond)?;
    }
    let beginning = if is_apart { begins.iter().filter(|begins| **begins).count() } else { 0 };
    let mut apart = if is_apart { wide_gaps::decode(input, beginning)? } else { Vec::new() }.into_iter();
    let mut steps = wide_gaps::decode(input, begins.len() - beginning)?.into_iter();
    let mut numbers = Vec::with_capacity(above.len());
    numbers.push(head);
    let mut last = head;
    for begins in begins {
        let step = if is_apart && begins { apart.next() } else { steps.next() }.unwrap_or_default();
        let number = match begins {
            true => base.checked_add(step),
            false => last.checked_add(step).and_then(|number| number.checked_add(1)),
        };
        last = number.ok_or_else(beyond)?;
        numbers.push(last);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::key::{Key, key_of_i64, key_of_i128};

    fn composite(types: &[KeyType]) -> KeyType {
        KeyType::Composite(types.to_vec().into())
    }

    fn key_of(types: &[KeyType], row: &[Option<i64>]) -> Vec<u8> {
        let mut key = Vec::new();
        for (key_type, value) in types.iter().zip(row) {
            match value {
                Some(value) => composite::push_fixed(&mut key, key_type, key_of_i64(*value)),
                None => composite::push_null(&mut key),
            }
        }
        key
    }

    /// Bytes of all keys but the first.
    fn round_trip(keys: &BTreeSet<Vec<u8>>, key_type: &KeyType) -> usize {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let bytes = encode(&keys, key_type).expect("keys of numbers").into_vec();
        let mut input = ByteReader::new("keys", &bytes);
        assert_eq!(decode(&mut input, keys[0], keys.len(), key_type).unwrap(), keys);
        input.finish().unwrap();
        bytes.len()
    }

    /// Numbers that look random and are the same in every run.
    fn spread(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn a_customer_and_a_day_take_the_bits_of_a_day() {
        let types = [KeyType::Int64, KeyType::Date32];
        let mut rows = BTreeSet::new();
        for customer in 0..10 {
            let number = (spread(customer) >> 32).cast_signed();
            rows.extend((0..12).map(|day| {
                let day = (spread(customer * 100 + day) % 1826).cast_signed();
                key_of(&types, &[Some(number), Some(19_000 + day)])
            }));
        }
        let bytes = round_trip(&rows, &composite(&types));
        // A gap between days is 140 on average: nine bits. A customer is one of 32 bits in ten.
        assert!(bytes * 8 <= rows.len() * 10 + 10 * 32 + 20 * 8, "{bytes} bytes");
    }

    #[test]
    fn null_is_below_all_values_and_largest_values_are_kept() {
        let types = [KeyType::Int64, KeyType::Date32, KeyType::UInt8];
        let values = [None, Some(i64::MIN), Some(-1), Some(i64::MAX)];
        let days = [None, Some(i64::from(i32::MIN)), Some(i64::from(i32::MAX))];
        let mut rows = BTreeSet::new();
        for value in values {
            for day in days {
                let mut key = key_of(&types[..2], &[value, day]);
                composite::push_fixed(&mut key, &types[2], 255);
                rows.insert(key);
                rows.insert([key_of(&types[..2], &[value, day]), vec![0]].concat());
            }
        }
        round_trip(&rows, &composite(&types));
    }

    #[test]
    fn other_keys_of_numbers_are_columns_as_well() {
        let uuids: BTreeSet<Vec<u8>> =
            (0..100).map(|n| uuid::text_of(u128::from(spread(n)) << 64 | u128::from(spread(n + 1000)))).collect();
        // 128 bits, less the logarithm of their number.
        assert!(round_trip(&uuids, &KeyType::Utf8) * 8 <= 100 * (128 - 6 + 2));
        let decimals: BTreeSet<Vec<u8>> = (0..100)
            .map(|n| key_of_i128(i128::from(n) * 3 - 7).to_vec())
            .chain([vec![0xff; 16], vec![0; 16]])
            .collect();
        round_trip(&decimals, &KeyType::Decimal { width_bits: 128, precision: 38, scale: 0 });
        round_trip(&BTreeSet::from([vec![1, 2, 3], vec![1, 2, 4]]), &KeyType::FixedBinary(3));
        round_trip(&BTreeSet::from([vec![]]), &KeyType::FixedBinary(0));
    }

    #[test]
    fn bursts_below_distant_numbers_are_packed_apart() {
        let types = [KeyType::Int32, KeyType::Int64];
        let rows = (0..120).map(|n| {
            let device = n / 12;
            key_of(&types, &[Some(device), Some((spread(device.cast_unsigned()) >> 8).cast_signed() + n % 12 * 5)])
        });
        // Three bits of a gap, and 56 of where a burst begins.
        assert!(round_trip(&rows.collect(), &composite(&types)) * 8 <= 120 * 4 + 10 * 60 + 20 * 8);
    }

    #[test]
    fn keys_that_are_no_numbers_are_no_columns() {
        let no_numbers = |keys: &[&[u8]], key_type: &KeyType| assert!(encode(keys, key_type).is_none());
        let texts = [KeyType::Int32, KeyType::Utf8];
        no_numbers(&[&[0, 0], &[0, 1, b'a', 0, 0]], &composite(&texts));
        no_numbers(&[b"a", b"b"], &KeyType::Utf8);
        no_numbers(&[&[0; 17], &[1; 17]], &KeyType::FixedBinary(17));
        // 2^128 - 1 and one more has no 128 bits.
        let wide = composite(&[KeyType::FixedBinary(16), KeyType::Bool]);
        let largest = |last: &[u8]| [&[1][..], &[255; 16], last].concat();
        no_numbers(&[&largest(&[0]), &largest(&[1, 1])], &wide);
        let numbers = [KeyType::Int32, KeyType::Int32];
        let [seven, six] = [7, 6].map(|number| key_of(&numbers, &[Some(number), None]));
        no_numbers(&[&seven, &six], &composite(&numbers));
    }

    #[test]
    fn numbers_beyond_their_columns_are_refused() {
        let key_type = composite(&[KeyType::Bool, KeyType::Int8]);
        let first = key_of(&[KeyType::Bool], &[None]);
        let first = [first, key_of(&[KeyType::Int8], &[Some(0)])].concat();
        let read = |bytes: &[u8], count: usize| decode(&mut ByteReader::new("keys", bytes), &first, count, &key_type);
        // One number above, one more below; no gap of the first, nothing between head and base, gaps of 8 bits.
        let good = [1, 0b1, 0b1, 0, 0, 8, 3];
        let last = [vec![0], key_of(&[KeyType::Int8], &[Some(4)])].concat();
        assert_eq!(read(&good, 2).unwrap(), [first.clone(), last]);
        assert!(read(&[1, 0b1, 0b1, 0, 0, 8, 200], 2).is_err(), "a number above 255");
        assert!(read(&[0, 0, 0, 0, 0, 0, 0], 2).is_err(), "no number above");
        assert!(read(&[3, 0, 0, 0, 0, 0, 0], 2).is_err(), "more above than there are keys");
        assert!(read(&[1, 2, 3, 0, 0, 8, 3], 2).is_err(), "more below than there are keys");
        assert!(read(&[1, 0, 0, 0, 0, 8, 3], 2).is_err(), "fewer below than there are keys");
        assert!(read(&good, 1 << 18).is_err(), "more numbers than a list has");
        let text = decode(&mut ByteReader::new("keys", &good), b"a", 2, &KeyType::Utf8);
        assert!(text.is_err(), "a text that is no UUID");
    }

    proptest! {
        #[test]
        fn rows_round_trip(
            rows in prop::collection::btree_set((
                prop::option::of(-3i64..3), prop::option::of(prop::sample::select(vec![-9, 0, 1, 77, i64::MAX])), prop::option::of(any::<i32>()),
            ), 1..120),
        ) {
            let types = [KeyType::Int8, KeyType::Int64, KeyType::Int32];
            let keys = rows.into_iter().map(|(one, two, three)| key_of(&types, &[one, two, three.map(i64::from)]));
            round_trip(&keys.collect(), &composite(&types));
        }

        #[test]
        fn arbitrary_bytes_are_ascending_keys_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60), count in 1usize..30) {
            let types = [KeyType::Int16, KeyType::Bool, KeyType::Date32];
            let first = key_of(&[KeyType::Int16, KeyType::Date32, KeyType::Date32], &[Some(3), None, Some(5)]);
            let key_type = composite(&types);
            if let Ok(keys) = decode(&mut ByteReader::new("keys", &bytes), &first, count, &key_type) {
                prop_assert!(keys.len() == count && keys.is_sorted_by(|a, b| a < b));
                prop_assert!(keys.into_iter().all(|key| key.len() <= 11 && Key::Bytes(key) >= Key::Bytes(first.clone())));
            }
        }
    }
}
