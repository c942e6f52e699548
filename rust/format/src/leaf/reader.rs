//! Reading leaves: the heads, then one embedded segment at a time.

use std::borrow::Cow;

use super::{CountedRows, KeyCount, KeyRows, LeafEntry, MAX_SEGMENT_KEYS, form, gaps};
use crate::codec::ByteReader;
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType};
use crate::value_block::{decode_byte_keys, decode_column, decode_keys, keys_of_gaps};

/// An embedded segment that is about to be read.
struct SegmentStart<'a, 'k> {
    input: ByteReader<'a>,
    /// Its first key.
    head: &'k Key,
    /// How many keys it has.
    count: usize,
}

/// An embedded segment whose keys were read.
struct SegmentKeys<'a> {
    keys: Vec<Key>,
    /// What follows them.
    rest: ByteReader<'a>,
}

/// A leaf whose heads are decoded.
#[derive(Debug)]
pub struct PackedLeaf<'a> {
    key_type: KeyType,
    universe: u32,
    heads: Vec<Key>,
    keys: Vec<u32>,
    ends: Vec<usize>,
    body: &'a [u8],
}

impl<'a> PackedLeaf<'a> {
    /// Reads the heads of a leaf of `keys` keys, whose smallest the directory gave.
    ///
    /// # Errors
    /// Bytes that are not a leaf of `key_type`.
    pub fn decode(bytes: &'a [u8], first_key: &Key, keys: u32, key_type: &KeyType, universe: u32) -> Result<Self> {
        let mut input = ByteReader::new("a leaf", bytes);
        let count = input.count("the number of embedded segments", 1)?;
        if count == 0 {
            return Err(FormatError::invalid("the number of embedded segments", 0, "at least 1"));
        }
        let heads = decode_keys(&mut input, first_key, count, key_type)?;
        let of_segment = decode_column(&mut input, count, "the keys of an embedded segment")?;
        let fits = |keys: &u32| (1..=MAX_SEGMENT_KEYS as u32).contains(keys);
        let total: u64 = of_segment.iter().copied().map(u64::from).sum();
        if !of_segment.iter().all(fits) || total != u64::from(keys) {
            let expected = format!("{keys} in all, 1 to {MAX_SEGMENT_KEYS} in each");
            return Err(FormatError::invalid("the keys of embedded segments", total, expected));
        }
        let lengths = decode_column(&mut input, count, "the length of an embedded segment")?;
        let mut end = 0usize;
        let ends: Vec<usize> = lengths
            .into_iter()
            .map(|length| {
                end = end.saturating_add(length as usize);
                end
            })
            .collect();
        if end != input.remaining() {
            return Err(FormatError::invalid("the length of embedded segments", end, input.remaining()));
        }
        let body = input.bytes(end)?;
        Ok(Self { key_type: key_type.clone(), universe, heads, keys: of_segment, ends, body })
    }

    /// The first key of each embedded segment.
    #[must_use]
    pub fn heads(&self) -> &[Key] {
        &self.heads
    }

    /// Bytes of an embedded segment.
    #[must_use]
    pub fn segment_bytes(&self, number: usize) -> usize {
        self.slice(number).map_or(0, <[u8]>::len)
    }

    fn slice(&self, number: usize) -> Option<&'a [u8]> {
        let start = match number {
            0 => 0,
            _ => *self.ends.get(number - 1)?,
        };
        self.body.get(start..*self.ends.get(number)?)
    }

    /// The entries of an embedded segment.
    ///
    /// # Errors
    /// Bytes that are not one; also keys that reach into the next.
    pub fn segment(&self, number: usize) -> Result<Vec<LeafEntry<'a>>> {
        let SegmentKeys { keys, rest } = self.keys(number)?;
        let held = self.rows(rest, keys.len(), false)?;
        let entry = |(key, CountedRows { rows, rows_in })| LeafEntry { key, rows, rows_in };
        Ok(keys.into_iter().zip(held).map(entry).collect())
    }

    /// The keys of an embedded segment, each with the number of its rows; where these are is not looked at.
    ///
    /// # Errors
    /// Keys that are not those of one; also keys that reach into the next.
    pub fn counts_of_segment(&self, number: usize) -> Result<impl Iterator<Item = KeyCount> + use<>> {
        let SegmentKeys { keys, mut rest } = self.keys(number)?;
        let rows = rows_of_keys(&mut rest, keys.len())?;
        Ok(keys.into_iter().zip(rows).map(|(key, rows)| KeyCount { key, rows }))
    }

    /// The keys of an embedded segment, and what follows them.
    fn keys(&self, number: usize) -> Result<SegmentKeys<'a>> {
        let SegmentStart { mut input, head, count } = self.begin(number)?;
        let keys = match head {
            Key::Fixed(first) => keys_of_gaps(*first, gaps::decode(&mut input, count - 1)?, &self.key_type)?,
            Key::Bytes(first) => decode_byte_keys(&mut input, first, count, &self.key_type)?,
        };
        if let (Some(last), Some(next)) = (keys.last(), self.heads.get(number + 1))
            && last >= next
        {
            return Err(FormatError::invalid("a key", "not below the next embedded segment", "ascending keys"));
        }
        Ok(SegmentKeys { keys, rest: input })
    }

    /// The rows of all keys of an embedded segment, and how many there are. Keys are neither given nor checked: their numbers are
    /// stepped over. Where the rows of all keys follow each other they are one run.
    ///
    /// # Errors
    /// Bytes that are not one.
    pub fn rows_of_segment(&self, number: usize) -> Result<Vec<CountedRows<'a>>> {
        let SegmentStart { mut input, head, count } = self.begin(number)?;
        match head {
            Key::Fixed(_) => gaps::skip(&mut input, count - 1)?,
            Key::Bytes(first) => drop(decode_byte_keys(&mut input, first, count, &self.key_type)?),
        }
        self.rows(input, count, true)
    }

    /// Begins to read an embedded segment.
    fn begin(&self, number: usize) -> Result<SegmentStart<'a, '_>> {
        match (self.slice(number), self.heads.get(number), self.keys.get(number)) {
            (Some(bytes), Some(head), Some(&count)) => {
                let input = ByteReader::new("an embedded segment", bytes);
                Ok(SegmentStart { input, head, count: count as usize })
            }
            _ => {
                let expected = format_args!("below {}", self.heads.len());
                Err(FormatError::invalid("an embedded segment", number, expected))
            }
        }
    }

    /// What follows the keys; `joined` says that runs of keys may be one.
    fn rows(&self, mut input: ByteReader<'a>, count: usize, joined: bool) -> Result<Vec<CountedRows<'a>>> {
        let rows = rows_of_keys(&mut input, count)?;
        let held: Result<Vec<_>> = match input.u8()? {
            form::FOLLOWING => {
                let mut next = u64::from(input.varint_u32("the first row of a key")?);
                let all: u64 = rows.iter().copied().map(u64::from).sum();
                let one = u32::try_from(all).ok().filter(|_| joined).map(|all| vec![all]);
                let runs = one.unwrap_or(rows).into_iter().map(|rows| {
                    let start = next;
                    next += u64::from(rows);
                    Ok(CountedRows { rows, rows_in: self.run(start, next)? })
                });
                runs.collect()
            }
            form::STARTS => {
                let starts = decode_column(&mut input, count, "the first row of a key")?;
                let runs = starts.into_iter().zip(rows);
                let runs = runs.map(|(start, rows)| {
                    let rows_in = self.run(u64::from(start), u64::from(start) + u64::from(rows))?;
                    Ok(CountedRows { rows, rows_in })
                });
                runs.collect()
            }
            form::POSTINGS => {
                let places = decode_column(&mut input, count, "the place of a posting")?;
                let offsets: Vec<u64> =
                    places.iter().filter(|place| *place & 1 == 1).map(|_| input.varint()).collect::<Result<_>>()?;
                let mut offsets = offsets.into_iter();
                let postings = places.into_iter().zip(rows).map(|(place, rows)| {
                    let rows_in = match place & 1 {
                        0 => KeyRows::Inline(Cow::Borrowed(input.bytes(place as usize >> 1)?)),
                        _ => KeyRows::Long { offset: offsets.next().unwrap_or_default(), length: place >> 1 },
                    };
                    Ok(CountedRows { rows, rows_in })
                });
                postings.collect()
            }
            other => Err(FormatError::invalid("the form of the rows of an embedded segment", other, "0 to 2")),
        };
        let held = held?;
        input.finish()?;
        Ok(held)
    }

    fn run(&self, start: u64, end: u64) -> Result<KeyRows<'a>> {
        match u32::try_from(start) {
            Ok(first) if end <= u64::from(self.universe) => Ok(KeyRows::Run(first)),
            _ => Err(FormatError::invalid("the rows of a key", end, format_args!("at most {}", self.universe))),
        }
    }
}

/// How many rows each key has.
fn rows_of_keys(input: &mut ByteReader<'_>, count: usize) -> Result<Vec<u32>> {
    let surplus = decode_column(input, count, "the rows of a key beyond one")?;
    let rows: Option<Vec<u32>> = surplus.into_iter().map(|surplus| surplus.checked_add(1)).collect();
    rows.ok_or_else(|| FormatError::invalid("the rows of a key", "beyond 32 bits", "a 32-bit number"))
}
