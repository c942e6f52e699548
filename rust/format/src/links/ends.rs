//! Ends of links in a leaf: lists of nodes, each of them ascending, packed together.
//!
//! ```text
//! ends      := NULLs, numbers | texts            of all lists, one after the other
//! numbers   := first of each list, gaps          frames of reference; packed gaps or Rice codes
//! texts     := shared, rests, bytes              front coded, each with the one before
//! ```

use std::cmp::Ordering;

use super::MAX_LINK_BYTES;
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType, MAX_KEY_LENGTH};
use crate::leaf::gaps;
use crate::packed::{PackedNumbers, decode_column, encode_column, pack, read_width};

/// Which lists begin with NULL.
mod nulls {
    pub(super) const NONE: u8 = 0;
    pub(super) const SOME: u8 = 1;
}

/// An end of a link as a leaf holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkEnd<'a> {
    /// NULL, below all others.
    Null,
    /// The key of a node of at most 64 bits.
    Number(u64),
    /// The key of any other node.
    Bytes(&'a [u8]),
}

impl LinkEnd<'_> {
    /// The key of the node; none for NULL.
    #[must_use]
    pub fn to_key(self) -> Option<Key> {
        match self {
            Self::Null => None,
            Self::Number(number) => Some(Key::Fixed(number)),
            Self::Bytes(bytes) => Some(Key::Bytes(bytes.to_vec())),
        }
    }
}

impl<'a> From<&'a Key> for LinkEnd<'a> {
    fn from(key: &'a Key) -> Self {
        match key {
            Key::Fixed(number) => Self::Number(*number),
            Key::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

/// An end, and whether a list begins with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedEnd<'a> {
    pub begins: bool,
    pub end: &'a Option<Key>,
}

/// Appends ends of a type.
pub(super) fn encode_ends(ends: &[PlacedEnd<'_>], key_type: &KeyType, out: &mut ByteWriter) -> Result<()> {
    let first_is_null = ends.iter().filter(|placed| placed.begins).map(|placed| u64::from(placed.end.is_none()));
    if first_is_null.clone().all(|is_null| is_null == 0) {
        out.u8(nulls::NONE);
    } else {
        out.u8(nulls::SOME);
        pack(first_is_null, 1, out);
    }
    match key_type.is_fixed() {
        true => encode_numbers(ends, out),
        false => encode_texts(ends, out),
    }
}

fn other_type() -> FormatError {
    FormatError::invalid("an end of a link", "of another type", "the type of its column")
}

fn encode_numbers(ends: &[PlacedEnd<'_>], out: &mut ByteWriter) -> Result<()> {
    let (mut firsts, mut steps) = (Vec::new(), Vec::new());
    let mut before: Option<u64> = None;
    for PlacedEnd { begins, end } in ends {
        if *begins {
            before = None;
        }
        let number = match end {
            Some(Key::Fixed(number)) => *number,
            None if *begins => continue,
            _ => return Err(other_type()),
        };
        match before {
            None => firsts.push(number),
            Some(last) if number > last => steps.push(number - last - 1),
            Some(_) => {
                return Err(FormatError::invalid("an end of a link", "not above the one before", "ascending ends"));
            }
        }
        before = Some(number);
    }
    encode_column(firsts.iter().copied(), out);
    gaps::encode(&steps, out);
    Ok(())
}

fn encode_texts(ends: &[PlacedEnd<'_>], out: &mut ByteWriter) -> Result<()> {
    let (mut shared, mut rests): (Vec<u64>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    let mut before: &[u8] = &[];
    for PlacedEnd { begins, end } in ends {
        let text = match end {
            Some(Key::Bytes(text)) => text.as_slice(),
            None if *begins => continue,
            _ => return Err(other_type()),
        };
        let common = before.iter().zip(text).take_while(|(a, b)| a == b).count();
        shared.push(common as u64);
        rests.push(text.get(common..).unwrap_or_default());
        before = text;
    }
    encode_column(shared.iter().copied(), out);
    encode_column(rests.iter().map(|rest| rest.len() as u64), out);
    rests.iter().for_each(|rest| out.bytes(rest));
    Ok(())
}

/// Ends that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    values: EndValues,
    /// The places of those that are NULL, ascending.
    null_places: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EndValues {
    Numbers(Vec<u64>),
    Texts { bytes: Vec<u8>, ends: Vec<u32> },
}

impl Ends {
    /// Reads lists of so many ends each.
    pub(super) fn decode(input: &mut ByteReader<'_>, key_type: &KeyType, lists: &[u32]) -> Result<Self> {
        let first_is_null = match input.u8()? {
            nulls::NONE => None,
            nulls::SOME => Some(PackedNumbers::read(input, lists.len(), 1)?),
            other => return Err(FormatError::invalid("the form of NULL ends", other, "0 or 1")),
        };
        let is_null = |list: usize| first_is_null.is_some_and(|bits| bits.get(list) == 1);
        let (mut null_places, mut place, mut held) = (Vec::new(), 0u32, Vec::with_capacity(lists.len()));
        for (list, count) in lists.iter().enumerate() {
            if is_null(list) {
                null_places.push(place);
            }
            held.push(HeldList { count: *count as usize, is_null: is_null(list) });
            place = place.saturating_add(*count);
        }
        if first_is_null.is_some() && null_places.is_empty() {
            return Err(FormatError::invalid("the NULL ends of links", "none", "the form 0"));
        }
        let values = match key_type.fixed_bounds() {
            Some(bounds) => decode_numbers(input, &held, bounds.into_inner())?,
            None => decode_texts(input, &held, key_type)?,
        };
        Ok(Self { values, null_places })
    }

    pub(super) fn len(&self) -> usize {
        match &self.values {
            EndValues::Numbers(numbers) => numbers.len(),
            EndValues::Texts { ends, .. } => ends.len(),
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<LinkEnd<'_>> {
        if !self.null_places.is_empty()
            && u32::try_from(place).is_ok_and(|place| self.null_places.binary_search(&place).is_ok())
        {
            return Some(LinkEnd::Null);
        }
        match &self.values {
            EndValues::Numbers(numbers) => numbers.get(place).copied().map(LinkEnd::Number),
            EndValues::Texts { bytes, ends } => {
                let start = match place.checked_sub(1) {
                    Some(before) => *ends.get(before)? as usize,
                    None => 0,
                };
                bytes.get(start..*ends.get(place)? as usize).map(LinkEnd::Bytes)
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            EndValues::Numbers(numbers) => size_of_val(numbers.as_slice()),
            EndValues::Texts { bytes, ends } => bytes.len() + size_of_val(ends.as_slice()),
        };
        values + size_of_val(self.null_places.as_slice())
    }
}

/// How many ends a list has, and whether the first one is NULL.
#[derive(Clone, Copy)]
struct HeldList {
    count: usize,
    is_null: bool,
}

impl HeldList {
    fn valued(self) -> usize {
        self.count - usize::from(self.is_null)
    }
}

fn decode_numbers(input: &mut ByteReader<'_>, lists: &[HeldList], (low, high): (u64, u64)) -> Result<EndValues> {
    let firsts = lists.iter().filter(|list| list.valued() > 0).count();
    let (least, width) = (input.varint()?, read_width(input)?);
    let differences = PackedNumbers::read(input, firsts, width)?;
    let total: usize = lists.iter().map(|list| list.valued()).sum();
    let mut steps = vec![0; total - firsts];
    gaps::decode(input, &mut steps)?;
    let beyond = || FormatError::invalid("an end of a link", "beyond its type", format_args!("{low} to {high}"));
    let fits = |number: Option<u64>| number.filter(|number| (low..=high).contains(number)).ok_or_else(beyond);
    let (mut numbers, mut steps, mut list_with_values) = (Vec::new(), steps.into_iter(), 0);
    for list in lists {
        if list.is_null {
            numbers.push(0);
        }
        if list.valued() == 0 {
            continue;
        }
        let mut number = fits(least.checked_add(differences.get(list_with_values)))?;
        list_with_values += 1;
        numbers.push(number);
        for step in steps.by_ref().take(list.valued() - 1) {
            number = fits(number.checked_add(step).and_then(|number| number.checked_add(1)))?;
            numbers.push(number);
        }
    }
    Ok(EndValues::Numbers(numbers))
}

fn decode_texts(input: &mut ByteReader<'_>, lists: &[HeldList], key_type: &KeyType) -> Result<EndValues> {
    let total: usize = lists.iter().map(|list| list.valued()).sum();
    let shared = decode_column(input, total, "the shared bytes of an end")?;
    let rests = decode_column(input, total, "the bytes of an end beyond those")?;
    let taken: u64 = shared.iter().chain(&rests).copied().map(u64::from).sum();
    if taken > MAX_LINK_BYTES as u64 {
        let limit = MAX_LINK_BYTES as u64;
        return Err(FormatError::TooLong { what: "the bytes of the ends of links", got: taken, limit });
    }
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let mut lengths = shared.into_iter().zip(rests);
    let mut last = 0..0;
    for list in lists {
        if list.is_null {
            ends.push(bytes.len() as u32);
        }
        for place in 0..list.valued() {
            let Some((shared, rest)) = lengths.next() else { break };
            let (shared, rest) = (shared as usize, input.bytes(rest as usize)?);
            let start = bytes.len();
            if shared > last.len() {
                return Err(FormatError::invalid("the shared bytes of an end", shared, last.len()));
            }
            bytes.extend_from_within(last.start..last.start + shared);
            bytes.extend_from_slice(rest);
            let (before, text) = (bytes.get(last.clone()), bytes.get(start..).unwrap_or_default());
            if place > 0 && before.is_none_or(|before| text.cmp(before) != Ordering::Greater) {
                return Err(FormatError::invalid("an end of a link", "not above the one before", "ascending ends"));
            }
            check_text(text, key_type)?;
            last = start..bytes.len();
            ends.push(bytes.len() as u32);
        }
    }
    Ok(EndValues::Texts { bytes, ends })
}

fn check_text(text: &[u8], key_type: &KeyType) -> Result<()> {
    if text.len() > MAX_KEY_LENGTH {
        let (got, limit) = (text.len() as u64, MAX_KEY_LENGTH as u64);
        return Err(FormatError::TooLong { what: "an end of a link", got, limit });
    }
    if *key_type == KeyType::Utf8
        && let Err(error) = std::str::from_utf8(text)
    {
        return Err(FormatError::invalid("an end of a link", error, "UTF-8"));
    }
    match key_type.bytes_length() {
        Some(length) if length != text.len() => Err(FormatError::invalid("the bytes of an end", text.len(), length)),
        _ => Ok(()),
    }
}
