//! Columns that ride along with the keys of a packed tree, so that a lookup gives their values without the data.
//!
//! ```text
//! riding    := form, keys that ride?, column*            of the rows of an embedded segment's keys, key after key
//! column    := NULL rows, numbers | texts                a value for each row that rides
//! numbers   := least, width, differences                 frames of reference
//! texts     := plain | dictionary, places                bytes that all texts begin with are there once
//! ```
//!
//! Until a leaf is written, values are in *row form*: those of one row side by side, as chunks keep, spill and merge them. Numbers
//! are those of keys ([`crate::key`]), and of floats their bits in the same order: no two values become one.

use std::borrow::Cow;

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{KeyType, MAX_KEY_LENGTH};
use crate::limits::MAX_NAME_LENGTH;
use crate::packed::{PackedNumbers, decode_column, encode_column, pack, read_width, width_of};

mod rows;

pub use rows::{MAX_RIDING_KEY_BYTES, RidingRows, RowValues, push_riding_bytes, push_riding_null, push_riding_number};

/// The most columns that ride along. Part of the format.
pub const MAX_RIDING_COLUMNS: usize = 64;
/// The most rows of a key that rides. Part of the format.
pub const MAX_RIDING_ROWS: usize = 1024;
/// The most bytes of the texts of a column in an embedded segment, each counted whole. Part of the format.
pub const MAX_RIDING_BYTES: usize = 1 << 22;

/// Which keys of an embedded segment ride.
mod form {
    pub(super) const NONE: u8 = 0;
    pub(super) const ALL: u8 = 1;
    pub(super) const SOME: u8 = 2;
}

/// Which rows of a column are NULL.
mod nulls {
    pub(super) const NONE: u8 = 0;
    pub(super) const ALL: u8 = 1;
    pub(super) const SOME: u8 = 2;
}

/// How texts are written.
mod texts {
    pub(super) const PLAIN: u8 = 0;
    pub(super) const DICTIONARY: u8 = 1;
}

/// A column that rides along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RidingColumn {
    /// Its physical name.
    pub column: String,
    /// Its type: one value for each row.
    pub key_type: KeyType,
}

impl RidingColumn {
    /// An empty name and a code.
    pub(crate) const MIN_BYTES: usize = 2;

    pub(crate) fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.string("the name of a column that rides along", &self.column, MAX_NAME_LENGTH)?;
        self.key_type.encode(out);
        Ok(())
    }

    pub(crate) fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let column = input.string("the name of a column that rides along", MAX_NAME_LENGTH)?;
        Ok(Self { column, key_type: KeyType::decode(input)? })
    }

    /// Checks the columns of a segment.
    pub(crate) fn validate_all(columns: &[Self]) -> Result<()> {
        if columns.len() > MAX_RIDING_COLUMNS {
            return Err(FormatError::TooLong {
                what: "the columns that ride along",
                got: columns.len() as u64,
                limit: MAX_RIDING_COLUMNS as u64,
            });
        }
        for (place, column) in columns.iter().enumerate() {
            column.key_type.validate()?;
            if !column.key_type.is_of_values() {
                return Err(FormatError::invalid(
                    "a column that rides along",
                    "several columns, a list or a hash",
                    "one value",
                ));
            }
            if columns.iter().take(place).any(|before| before.column == column.column) {
                return Err(FormatError::invalid("a column that rides along", "there twice", "once"));
            }
        }
        Ok(())
    }
}

/// A value that rides along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RidingValue<'a> {
    /// NULL.
    Null,
    /// The number of a value of at most 64 bits.
    Number(u64),
    /// The bytes of any other value, as in a key.
    Bytes(Cow<'a, [u8]>),
}

/// The number of a float of so many bits: -0 and each NaN have numbers of their own.
#[must_use]
pub fn number_of_float(bits: u64, width: u32) -> u64 {
    let top = 1 << (width - 1);
    if bits & top == 0 { bits | top } else { !bits & all_bits(width) }
}

/// The bits of a float of so many bits, by its number.
#[must_use]
pub fn float_of_number(number: u64, width: u32) -> u64 {
    let top = 1 << (width - 1);
    if number & top == 0 { !number & all_bits(width) } else { number & !top }
}

fn all_bits(width: u32) -> u64 {
    u64::MAX >> (u64::BITS - width)
}

/// Appends what rides along with the keys of an embedded segment.
pub(crate) fn encode(types: &[KeyType], keys: &[&RidingRows], out: &mut ByteWriter) -> Result<()> {
    let riding = keys.iter().filter(|rows| rows.rides()).count();
    match riding {
        0 => {
            out.u8(form::NONE);
            return Ok(());
        }
        all if all == keys.len() => out.u8(form::ALL),
        _ => {
            out.u8(form::SOME);
            pack(keys.iter().map(|rows| u64::from(rows.rides())), 1, out);
        }
    }
    let mut columns: Vec<Vec<RidingValue<'_>>> = types.iter().map(|_| Vec::new()).collect();
    for row in keys.iter().flat_map(|rows| rows.rows()) {
        let mut values = RowValues::of(row);
        for column in &mut columns {
            let Some(value) = values.next() else { return Err(other_columns(types.len())) };
            column.push(value);
        }
        if values.next().is_some() {
            return Err(other_columns(types.len()));
        }
    }
    types.iter().zip(&columns).try_for_each(|(key_type, column)| encode_values(key_type, column, out))
}

fn other_columns(expected: usize) -> FormatError {
    FormatError::invalid(
        "the values that ride along with a row",
        "others",
        format_args!("one for each of {expected} columns"),
    )
}

fn encode_values(key_type: &KeyType, values: &[RidingValue<'_>], out: &mut ByteWriter) -> Result<()> {
    let is_null = |value: &RidingValue<'_>| *value == RidingValue::Null;
    match values.iter().filter(|value| is_null(value)).count() {
        0 => out.u8(nulls::NONE),
        all if all == values.len() => {
            out.u8(nulls::ALL);
            return Ok(());
        }
        _ => {
            out.u8(nulls::SOME);
            pack(values.iter().map(|value| u64::from(is_null(value))), 1, out);
        }
    }
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for value in values {
        match value {
            RidingValue::Null => {}
            RidingValue::Number(number) if key_type.is_fixed() => numbers.push(*number),
            RidingValue::Bytes(bytes) if !key_type.is_fixed() => texts.push(bytes.as_ref()),
            _ => return Err(FormatError::invalid("a value that rides along", "of another type", "its column's type")),
        }
    }
    if key_type.is_fixed() {
        encode_column(numbers.iter().copied(), out);
        return Ok(());
    }
    let mut plain = ByteWriter::new();
    plain.u8(texts::PLAIN);
    encode_texts(&texts, &mut plain)?;
    let shorter = dictionary_of(&texts)?.filter(|dictionary| dictionary.len() < plain.len());
    out.bytes(shorter.as_ref().unwrap_or(&plain).as_slice());
    Ok(())
}

/// Texts as a dictionary of the different ones and a place in it for each; none where hardly any are equal.
fn dictionary_of(texts: &[&[u8]]) -> Result<Option<ByteWriter>> {
    let mut different: Vec<&[u8]> = Vec::new();
    let mut places = Vec::with_capacity(texts.len());
    // There are few, mostly: a search of each is no loss.
    for text in texts {
        let place = different.iter().position(|known| known == text).unwrap_or_else(|| {
            different.push(text);
            different.len() - 1
        });
        if different.len() * 2 > texts.len() {
            return Ok(None);
        }
        places.push(place as u64);
    }
    let mut out = ByteWriter::new();
    out.u8(texts::DICTIONARY);
    out.length(different.len());
    encode_texts(&different, &mut out)?;
    pack(places.into_iter(), width_of_places(different.len()), &mut out);
    Ok(Some(out))
}

/// The bits of a place among so many.
fn width_of_places(count: usize) -> u8 {
    width_of(std::iter::once(count.saturating_sub(1) as u64))
}

/// What all begin with, the lengths of what follows, and that.
fn encode_texts(texts: &[&[u8]], out: &mut ByteWriter) -> Result<()> {
    let first = texts.first().copied().unwrap_or_default();
    let shared = texts.iter().fold(first.len(), |shared, text| {
        first.iter().take(shared).zip(text.iter()).take_while(|(a, b)| a == b).count()
    });
    let (prefix, _) = first.split_at_checked(shared).unwrap_or_default();
    out.blob("what texts begin with", prefix, MAX_KEY_LENGTH)?;
    encode_column(texts.iter().map(|text| (text.len() - shared) as u64), out);
    texts.iter().for_each(|text| out.bytes(text.get(shared..).unwrap_or_default()));
    Ok(())
}

/// What rides along with the keys of an embedded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RidingSegment<'a> {
    /// For each key the place of its first row among those that ride; none if its rows do not.
    starts: Vec<Option<usize>>,
    /// For each column that was asked for the values of all rows that ride; nothing for the others.
    columns: Vec<Vec<RidingValue<'a>>>,
}

impl<'a> RidingSegment<'a> {
    /// Reads to the end what rides along with keys of so many rows each. Of columns that are not wanted it gives nothing.
    pub(crate) fn decode(
        mut input: ByteReader<'a>,
        types: &[KeyType],
        rows_of_keys: &[u32],
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<Self> {
        let rides = match input.u8()? {
            form::NONE => vec![false; rows_of_keys.len()],
            form::ALL => vec![true; rows_of_keys.len()],
            form::SOME => read_bits(&mut input, rows_of_keys.len())?,
            other => return Err(FormatError::invalid("the form of what rides along", other, "0 to 2")),
        };
        let (mut starts, mut rows) = (Vec::with_capacity(rides.len()), 0usize);
        for (rides, of_key) in rides.iter().zip(rows_of_keys) {
            if *rides && *of_key as usize > MAX_RIDING_ROWS {
                let (got, limit) = (u64::from(*of_key), MAX_RIDING_ROWS as u64);
                return Err(FormatError::TooLong { what: "the rows of a key that rides", got, limit });
            }
            starts.push(rides.then_some(rows));
            rows += if *rides { *of_key as usize } else { 0 };
        }
        let mut columns = Vec::with_capacity(types.len());
        for (place, key_type) in types.iter().enumerate() {
            // Without rows nothing is written.
            let values =
                if rows == 0 { Vec::new() } else { decode_values(&mut input, key_type, rows, is_wanted(place))? };
            columns.push(values);
        }
        input.finish()?;
        Ok(Self { starts, columns })
    }

    /// Whether the rows of a key ride.
    #[must_use]
    pub fn rides(&self, key: usize) -> bool {
        self.starts.get(key).is_some_and(Option::is_some)
    }

    /// The value of a column in a row of a key, by their places; none if the key's rows do not ride or the column was not asked for.
    #[must_use]
    pub fn value(&self, column: usize, key: usize, row: usize) -> Option<&RidingValue<'a>> {
        let start = (*self.starts.get(key)?)?;
        self.columns.get(column)?.get(start.checked_add(row)?)
    }

    /// What rides along with a key of so many rows, in row form. All columns have to be there.
    #[must_use]
    pub fn rows_of_key(&self, key: usize, rows: usize) -> RidingRows {
        let mut held = RidingRows::default();
        let mut row_form = Vec::new();
        let rows = if self.rides(key) { rows } else { 0 };
        for row in 0..rows {
            row_form.clear();
            for column in 0..self.columns.len() {
                match self.value(column, key, row) {
                    Some(RidingValue::Number(number)) => push_riding_number(&mut row_form, *number),
                    Some(RidingValue::Bytes(bytes)) => push_riding_bytes(&mut row_form, bytes),
                    Some(RidingValue::Null) | None => push_riding_null(&mut row_form),
                }
            }
            held.push(Some(&row_form));
        }
        held
    }
}

/// So many bits; those that fill the last byte are 0.
fn read_bits(input: &mut ByteReader<'_>, count: usize) -> Result<Vec<bool>> {
    let bytes = input.bytes(count.div_ceil(8))?;
    let beyond = count % 8;
    if beyond > 0 && bytes.last().is_some_and(|last| last >> beyond != 0) {
        return Err(FormatError::invalid("the bits that fill a byte", "not zero", "0"));
    }
    Ok((0..count).map(|place| bytes.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1)).collect())
}

fn decode_values<'a>(
    input: &mut ByteReader<'a>,
    key_type: &KeyType,
    rows: usize,
    is_wanted: bool,
) -> Result<Vec<RidingValue<'a>>> {
    let is_null = match input.u8()? {
        nulls::NONE => None,
        nulls::ALL => return Ok(if is_wanted { vec![RidingValue::Null; rows] } else { Vec::new() }),
        nulls::SOME => Some(read_bits(input, rows)?),
        other => return Err(FormatError::invalid("the form of NULL rows", other, "0 to 2")),
    };
    let count = is_null.as_ref().map_or(rows, |bits| bits.iter().filter(|is_null| !**is_null).count());
    if count == 0 {
        return Err(FormatError::invalid("the NULL rows of a column", "all of them", "the form 1"));
    }
    let values = match key_type.fixed_bounds() {
        Some(bounds) => decode_numbers(input, count, bounds.into_inner(), is_wanted)?,
        None => decode_texts(input, count, key_type, is_wanted)?,
    };
    let (Some(is_null), true) = (is_null, is_wanted) else { return Ok(values) };
    let mut values = values.into_iter();
    let mut next = || values.next().unwrap_or(RidingValue::Null);
    Ok(is_null.into_iter().map(|is_null| if is_null { RidingValue::Null } else { next() }).collect())
}

fn decode_numbers<'a>(
    input: &mut ByteReader<'_>,
    count: usize,
    (low, high): (u64, u64),
    is_wanted: bool,
) -> Result<Vec<RidingValue<'a>>> {
    let (least, width) = (input.varint()?, read_width(input)?);
    let differences = PackedNumbers::read(input, count, width)?;
    let number = |place: usize| match least.checked_add(differences.get(place)) {
        Some(number) if (low..=high).contains(&number) => Ok(RidingValue::Number(number)),
        _ => Err(FormatError::invalid("a number that rides along", "beyond its type", format_args!("{low} to {high}"))),
    };
    let wanted = if is_wanted { count } else { 0 };
    (0..wanted).map(number).collect()
}

/// Texts that were written together.
struct Texts<'a> {
    prefix: &'a [u8],
    rests: Vec<&'a [u8]>,
}

impl<'a> Texts<'a> {
    fn read(input: &mut ByteReader<'a>, count: usize, key_type: &KeyType) -> Result<Self> {
        let prefix = input.blob("what texts begin with", MAX_KEY_LENGTH)?;
        let lengths = decode_column(input, count, "the length of a text")?;
        let mut rests = Vec::with_capacity(lengths.len());
        for length in lengths {
            let whole = prefix.len().saturating_add(length as usize);
            let is_long = whole > MAX_KEY_LENGTH;
            if is_long || key_type.bytes_length().is_some_and(|expected| expected != whole) {
                let expected = key_type.bytes_length().unwrap_or(MAX_KEY_LENGTH);
                return Err(FormatError::invalid("the length of a text", whole, expected));
            }
            rests.push(input.bytes(length as usize)?);
        }
        Ok(Self { prefix, rests })
    }

    /// The text at a place, whole.
    fn text(&self, place: usize, key_type: &KeyType) -> Result<Cow<'a, [u8]>> {
        let Some(&rest) = self.rests.get(place) else {
            return Err(FormatError::invalid(
                "a place in a dictionary",
                place,
                format_args!("below {}", self.rests.len()),
            ));
        };
        let whole: Cow<'a, [u8]> = match self.prefix.is_empty() {
            true => Cow::Borrowed(rest),
            false => Cow::Owned([self.prefix, rest].concat()),
        };
        let problem = if *key_type == KeyType::Utf8 { std::str::from_utf8(&whole).err() } else { None };
        problem.map_or(Ok(whole), |error| Err(FormatError::invalid("a text", error, "UTF-8")))
    }

    fn length(&self, place: usize) -> usize {
        self.prefix.len() + self.rests.get(place).map_or(0, |rest| rest.len())
    }
}

fn decode_texts<'a>(
    input: &mut ByteReader<'a>,
    count: usize,
    key_type: &KeyType,
    is_wanted: bool,
) -> Result<Vec<RidingValue<'a>>> {
    let (texts, places) = match input.u8()? {
        texts::PLAIN => (Texts::read(input, count, key_type)?, None),
        texts::DICTIONARY => {
            let different = input.count("the texts of a dictionary", 1)?;
            if different == 0 || different > count {
                return Err(FormatError::invalid("the texts of a dictionary", different, format_args!("1 to {count}")));
            }
            let texts = Texts::read(input, different, key_type)?;
            (texts, Some(PackedNumbers::read(input, count, width_of_places(different))?))
        }
        other => return Err(FormatError::invalid("the form of texts", other, "0 or 1")),
    };
    if !is_wanted {
        return Ok(Vec::new());
    }
    let place = |row: usize| places.map_or(row, |places| usize::try_from(places.get(row)).unwrap_or(usize::MAX));
    // Few bytes may stand for many: what comes out is bounded before any of it is made.
    let bytes: usize = (0..count).map(|row| texts.length(place(row))).sum();
    if bytes > MAX_RIDING_BYTES {
        let (got, limit) = (bytes as u64, MAX_RIDING_BYTES as u64);
        return Err(FormatError::TooLong { what: "the texts that ride along", got, limit });
    }
    (0..count).map(|row| texts.text(place(row), key_type).map(RidingValue::Bytes)).collect()
}

#[cfg(test)]
mod tests;
