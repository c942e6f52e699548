//! Reading leaves: the heads, then one embedded segment at a time.

use std::borrow::Cow;

use super::rows::ListedRows;
use super::{CountedRows, KeyCount, KeyRows, LeafEntry, MAX_SEGMENT_KEYS, byte_keys, form, gaps};
use crate::codec::ByteReader;
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType, MAX_KEY_LENGTH};
use crate::packed::{Column, decode_column};
use crate::riding::RidingSegment;
use crate::value_block::{decode_keys, keys_of_gaps, last_of_gaps};

const ROWS_OF_KEY: &str = "the rows of a key beyond one";

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

/// An embedded segment whose keys and rows were read.
struct SegmentEntries<'a> {
    entries: Vec<LeafEntry<'a>>,
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
    /// Whether columns ride along behind the rows of each embedded segment.
    has_riding: bool,
}

/// The entries of an embedded segment, and what rides along with their rows.
#[derive(Debug)]
pub struct RidingEntries<'a> {
    /// The entries.
    pub entries: Vec<LeafEntry<'a>>,
    /// The values of the columns that were asked for.
    pub riding: RidingSegment<'a>,
}

impl<'a> PackedLeaf<'a> {
    /// Reads the heads of a leaf of `keys` keys. The directory gave the smallest of them, or the bytes with which it begins.
    ///
    /// # Errors
    /// Bytes that are not a leaf of `key_type`.
    pub fn decode(bytes: &'a [u8], first_key: &Key, keys: u32, key_type: &KeyType, universe: u32) -> Result<Self> {
        let mut input = ByteReader::new("a leaf", bytes);
        let first_key = match first_key {
            Key::Fixed(first) => Key::Fixed(*first),
            Key::Bytes(separator) => {
                let rest = input.blob("the rest of the first key of a leaf", MAX_KEY_LENGTH)?;
                Key::Bytes([separator.as_slice(), rest].concat())
            }
        };
        let count = input.count("the number of embedded segments", 1)?;
        if count == 0 {
            return Err(FormatError::invalid("the number of embedded segments", 0, "at least 1"));
        }
        let heads = match &first_key {
            Key::Fixed(_) => decode_keys(&mut input, &first_key, count, key_type)?,
            Key::Bytes(first) => byte_keys::decode(&mut input, first, count, key_type)?,
        };
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
        Ok(Self { key_type: key_type.clone(), universe, heads, keys: of_segment, ends, body, has_riding: false })
    }

    /// The same leaf of a segment whose directory has columns that ride along.
    #[must_use]
    pub fn with_riding(self, has_riding: bool) -> Self {
        Self { has_riding, ..self }
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
        let SegmentEntries { entries, rest } = self.entries(number)?;
        self.end(rest)?;
        Ok(entries)
    }

    /// The entries of an embedded segment of a leaf with columns of these types that ride along, and those of the columns that are wanted, by
    /// their places.
    ///
    /// # Errors
    /// Those of [`Self::segment`]; also values that are none of the columns.
    pub fn riding_segment(
        &self,
        number: usize,
        types: &[KeyType],
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<RidingEntries<'a>> {
        let SegmentEntries { entries, rest } = self.entries(number)?;
        let rows: Vec<u32> = entries.iter().map(|entry| entry.rows).collect();
        let riding = RidingSegment::decode(rest, types, &rows, is_wanted)?;
        let is_long = |entry: &LeafEntry<'_>| matches!(entry.rows_in, KeyRows::Long { .. });
        if entries.iter().enumerate().any(|(key, entry)| riding.rides(key) && is_long(entry)) {
            return Err(FormatError::invalid("the posting of a key that rides", "outside of the leaf", "inside of it"));
        }
        Ok(RidingEntries { entries, riding })
    }

    /// The entries of an embedded segment, and what follows them.
    fn entries(&self, number: usize) -> Result<SegmentEntries<'a>> {
        let SegmentKeys { keys, mut rest } = self.keys(number)?;
        let mut rows = Vec::with_capacity(keys.len());
        self.visit_rows(&mut rest, keys.len(), KeyPlaces::ALL, Runs::Apart, |of_key| {
            rows.push(of_key);
            Ok(())
        })?;
        let entry = |(key, CountedRows { rows, rows_in })| LeafEntry { key, rows, rows_in };
        Ok(SegmentEntries { entries: keys.into_iter().zip(rows).map(entry).collect(), rest })
    }

    /// Ends an embedded segment behind its rows.
    fn end(&self, rest: ByteReader<'a>) -> Result<()> {
        if self.has_riding { Ok(()) } else { rest.finish() }
    }

    /// Visits the rows of those keys of an embedded segment that are wanted; keys are requested in their order. Runs that follow each other
    /// are one. Of other keys only as much is decoded as it takes to step over them.
    ///
    /// # Errors
    /// Bytes that are not an embedded segment, as far as they are decoded; also keys that reach into the next.
    pub fn visit_wanted(
        &self,
        number: usize,
        is_wanted: impl FnMut(&Key) -> bool,
        visit: impl FnMut(CountedRows<'a>) -> Result<()>,
    ) -> Result<()> {
        let SegmentStart { mut input, head, count } = self.begin(number)?;
        let wanted = match head {
            Key::Fixed(first) => {
                let mut gaps = [0; MAX_SEGMENT_KEYS];
                let gaps = gaps.get_mut(..count - 1).unwrap_or_default();
                gaps::decode(&mut input, gaps)?;
                self.check_last(number, &Key::Fixed(last_of_gaps(*first, gaps, &self.key_type)?))?;
                let keys = gaps.iter().scan(*first, |key, gap| {
                    *key = key.wrapping_add(*gap).wrapping_add(1);
                    Some(*key)
                });
                KeyPlaces::of(std::iter::once(*first).chain(keys).map(Key::Fixed), is_wanted)
            }
            Key::Bytes(_) => {
                let SegmentKeys { keys, rest } = self.keys(number)?;
                input = rest;
                KeyPlaces::of(keys.into_iter(), is_wanted)
            }
        };
        if wanted == KeyPlaces::NONE {
            return Ok(());
        }
        self.visit_rows(&mut input, count, wanted, Runs::Joined, visit)?;
        self.end(input)
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
            Key::Fixed(first) => {
                let mut gaps = vec![0; count - 1];
                gaps::decode(&mut input, &mut gaps)?;
                keys_of_gaps(*first, &gaps, &self.key_type)?
            }
            Key::Bytes(first) => byte_keys::decode(&mut input, first, count, &self.key_type)?,
        };
        keys.last().map_or(Ok(()), |last| self.check_last(number, last))?;
        Ok(SegmentKeys { keys, rest: input })
    }

    /// The last key of an embedded segment is below the first one of the next.
    fn check_last(&self, number: usize, last: &Key) -> Result<()> {
        match self.heads.get(number + 1) {
            Some(next) if last >= next => {
                Err(FormatError::invalid("a key", "not below the next embedded segment", "ascending keys"))
            }
            _ => Ok(()),
        }
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
            Key::Bytes(first) => drop(byte_keys::decode(&mut input, first, count, &self.key_type)?),
        }
        let mut rows = Vec::with_capacity(1);
        self.visit_rows(&mut input, count, KeyPlaces::ALL, Runs::Joined, |of_keys| {
            rows.push(of_keys);
            Ok(())
        })?;
        self.end(input)?;
        Ok(rows)
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

    /// Reads what follows the keys, and visits the rows of those at some places.
    fn visit_rows(
        &self,
        input: &mut ByteReader<'a>,
        count: usize,
        wanted: KeyPlaces,
        runs: Runs,
        mut visit: impl FnMut(CountedRows<'a>) -> Result<()>,
    ) -> Result<()> {
        let surplus = Column::read(input, count, ROWS_OF_KEY)?;
        let rows_of = |place: usize| surplus.get(place).map(rows_of_surplus);
        let mut joined = JoinedRuns { runs, pending: None };
        let mut run =
            |start: u64, rows: u64| joined.add(start, rows).map_or(Ok(()), |run| visit(self.counted_run(run)?));
        match input.u8()? {
            form::FOLLOWING => {
                let mut next = u64::from(input.varint_u32("the first row of a key")?);
                for place in 0..count {
                    let rows = rows_of(place)?;
                    if wanted.has(place) {
                        run(next, rows)?;
                    }
                    next += rows;
                }
            }
            form::STARTS => {
                let starts = Column::read(input, count, "the first row of a key")?;
                for place in wanted.below(count) {
                    run(u64::from(starts.get(place)?), rows_of(place)?)?;
                }
            }
            form::POSTINGS => return visit_postings(input, count, wanted, rows_of, visit),
            form::LISTED => return self.visit_listed(input, count, wanted, rows_of, visit),
            other => return Err(FormatError::invalid("the form of the rows of an embedded segment", other, "0 to 3")),
        }
        joined.pending.map_or(Ok(()), |run| visit(self.counted_run(run)?))
    }

    /// Visits the listed rows of the keys at some places.
    fn visit_listed(
        &self,
        input: &mut ByteReader<'a>,
        count: usize,
        wanted: KeyPlaces,
        rows_of: impl Fn(usize) -> Result<u64>,
        mut visit: impl FnMut(CountedRows<'a>) -> Result<()>,
    ) -> Result<()> {
        let listed = (0..count).map(&rows_of).sum::<Result<u64>>()?;
        let column = ListedRows::read(input, listed, self.universe)?;
        let mut next = 0;
        for place in 0..count {
            let rows = rows_of(place)?;
            if wanted.has(place) {
                let rows_in = match rows {
                    1 => KeyRows::Run(column.row(next)?),
                    _ => KeyRows::Listed(column.rows(next..next + rows as usize)?),
                };
                visit(CountedRows { rows: counted(rows)?, rows_in })?;
            }
            next += rows as usize;
        }
        Ok(())
    }

    fn counted_run(&self, Run { start, rows }: Run) -> Result<CountedRows<'a>> {
        Ok(CountedRows { rows: counted(rows)?, rows_in: self.run(start, start + rows)? })
    }

    fn run(&self, start: u64, end: u64) -> Result<KeyRows<'a>> {
        match u32::try_from(start) {
            Ok(first) if end <= u64::from(self.universe) => Ok(KeyRows::Run(first)),
            _ => Err(FormatError::invalid("the rows of a key", end, format_args!("at most {}", self.universe))),
        }
    }
}

/// Visits the postings of the keys at some places.
fn visit_postings<'a>(
    input: &mut ByteReader<'a>,
    count: usize,
    wanted: KeyPlaces,
    rows_of: impl Fn(usize) -> Result<u64>,
    mut visit: impl FnMut(CountedRows<'a>) -> Result<()>,
) -> Result<()> {
    let places = Column::read(input, count, "the place of a posting")?;
    let is_long = |place: u32| place & 1 == 1;
    let mut offsets = input.clone();
    for place in 0..count {
        if is_long(places.get(place)?) {
            input.varint()?;
        }
    }
    for place in 0..count {
        let at = places.get(place)?;
        let rows_in = match is_long(at) {
            false => KeyRows::Inline(Cow::Borrowed(input.bytes(at as usize >> 1)?)),
            true => KeyRows::Long { offset: offsets.varint()?, length: at >> 1 },
        };
        if wanted.has(place) {
            visit(CountedRows { rows: counted(rows_of(place)?)?, rows_in })?;
        }
    }
    Ok(())
}

/// Places of keys in an embedded segment, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyPlaces(u128);

impl KeyPlaces {
    const NONE: Self = Self(0);
    const ALL: Self = Self(u128::MAX);

    /// The places of the keys that are wanted.
    fn of(keys: impl Iterator<Item = Key>, mut is_wanted: impl FnMut(&Key) -> bool) -> Self {
        Self(keys.enumerate().fold(0, |places, (place, key)| places | u128::from(is_wanted(&key)) << place))
    }

    fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    /// Those below `count`, ascending.
    fn below(self, count: usize) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        let places = std::iter::from_fn(move || {
            let place = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (place < u128::BITS).then_some(place as usize)
        });
        places.take_while(move |place| *place < count)
    }
}

/// Whether runs of rows that follow each other are given as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Apart,
    Joined,
}

/// Rows that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    rows: u64,
}

/// Joins runs, if so wanted.
struct JoinedRuns {
    runs: Runs,
    pending: Option<Run>,
}

impl JoinedRuns {
    /// Adds a run, and gives the one before if it is complete.
    fn add(&mut self, start: u64, rows: u64) -> Option<Run> {
        match &mut self.pending {
            Some(pending) if self.runs == Runs::Joined && pending.start + pending.rows == start => {
                pending.rows += rows;
                None
            }
            pending => pending.replace(Run { start, rows }),
        }
    }
}

/// How many rows each key has.
fn rows_of_keys(input: &mut ByteReader<'_>, count: usize) -> Result<Vec<u32>> {
    let surplus = decode_column(input, count, ROWS_OF_KEY)?;
    surplus.into_iter().map(|surplus| counted(rows_of_surplus(surplus))).collect()
}

/// The rows of a key: each has one at least.
fn rows_of_surplus(surplus: u32) -> u64 {
    u64::from(surplus) + 1
}

/// A number of rows as the reader counts them.
fn counted(rows: u64) -> Result<u32> {
    u32::try_from(rows).map_err(|_| FormatError::invalid(ROWS_OF_KEY, rows, "a 32-bit number"))
}
