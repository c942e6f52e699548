//! Leaves of a packed tree: keys with their rows, cut into embedded segments that are decoded one at a time.
//!
//! ```text
//! leaf      := first, count, heads, keys, lengths, embedded-segment*      head: the first key of each embedded segment
//!              ┌───────┬──────────────┬──────────────┬───
//!              │ heads │ keys, rows   │ keys, rows   │ …    a lookup decodes the heads and one embedded segment
//!              └───────┴──────────────┴──────────────┴───
//!                         then the columns that ride along with these rows, one after the other
//! ```
//!
//! After the leaves of the column-aware flash index (CaF, section 3.2: embedded segments, nodes that are full). Gaps of keys are
//! packed or Rice codes (Rice 1979). Byte keys are front coded, or numbers column by column. Rows of a key that are consecutive take
//! their first row alone. Others are listed where each key has few, or are a posting, in the leaf if it is short.

use std::borrow::Cow;

use crate::codec::ByteWriter;
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType, MAX_KEY_LENGTH};
use crate::packed::encode_column;
use crate::riding::{self, RidingRows};
use crate::value_block::{encode_keys, gaps_of};

mod byte_keys;
mod columns;
pub(crate) mod gaps;
mod reader;
mod rows;
pub(crate) mod texts;
mod uuid;
mod wide_gaps;

pub use columns::MAX_KEY_LIST_NUMBERS;
pub use reader::{PackedLeaf, RidingEntries};
pub(crate) use rows::encode_rows;
pub use texts::MAX_KEY_LIST_BYTES;

/// The most keys of an embedded segment. Part of the format.
pub const MAX_SEGMENT_KEYS: usize = 128;
/// A writer closes an embedded segment when it has about so many bytes: an eighth of a leaf.
pub const TARGET_SEGMENT_BYTES: usize = 512;
/// Bytes of a number that is not packed.
const NUMBER_BYTES: usize = 8;
/// An embedded segment of fewer keys says little of how well others are packed.
const LEAST_MEASURED_KEYS: u32 = 16;
/// Postings of more bytes lie outside of the leaf.
pub const MAX_INLINE_POSTING: usize = 256;
/// A writer lists no more rows of a key: a posting of as many takes fewer bits for each.
pub const MAX_LISTED_ROWS: usize = 32;

/// A key, how many rows hold it, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafEntry<'a> {
    /// The key.
    pub key: Key,
    /// Rows that hold it; at least one.
    pub rows: u32,
    /// Which rows.
    pub rows_in: KeyRows<'a>,
}

/// Where the rows of a key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRows<'a> {
    /// Consecutive rows, from this one on.
    Run(u32),
    /// These rows, which ascend.
    Listed(Vec<u32>),
    /// A posting in the leaf.
    Inline(Cow<'a, [u8]>),
    /// A posting elsewhere in the stream.
    Long {
        /// Its logical offset.
        offset: u64,
        /// Its bytes, below 2^31.
        length: u32,
    },
}

/// A key and how many rows hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCount {
    /// The key.
    pub key: Key,
    /// Rows that hold it; at least one.
    pub rows: u32,
}

/// Rows of a key, or of several, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedRows<'a> {
    /// How many there are.
    pub rows: u32,
    /// Which they are.
    pub rows_in: KeyRows<'a>,
}

/// How an embedded segment says which rows its keys have.
pub(crate) mod form {
    /// The rows of each key follow those of the key before.
    pub(crate) const FOLLOWING: u8 = 0;
    /// The first row of each key.
    pub(crate) const STARTS: u8 = 1;
    /// A posting for each key.
    pub(crate) const POSTINGS: u8 = 2;
    /// All rows, key after key.
    pub(crate) const LISTED: u8 = 3;
}

/// Gathers entries with ascending keys into the embedded segments of a leaf.
#[derive(Debug)]
pub struct LeafBuilder {
    key_type: KeyType,
    /// Rows of the row space.
    universe: u32,
    /// The types of the columns that ride along.
    riding: Vec<KeyType>,
    closed: Vec<Closed>,
    /// Bytes of the closed embedded segments.
    bytes: usize,
    open: Vec<OpenEntry>,
    /// What the open entries take, about.
    open_bytes: usize,
    /// The last key of the leaf before.
    before: Option<Key>,
    /// How well the last embedded segment was packed, and before the first not at all.
    packing: Packing,
}

/// How well keys are packed, with their rows where these are packed as well.
#[derive(Clone, Copy, Debug)]
struct Packing {
    /// Bytes in an embedded segment.
    packed: usize,
    /// Bytes of the keys themselves.
    plain: usize,
}

/// An entry of the embedded segment that is gathered.
#[derive(Debug)]
struct OpenEntry {
    entry: LeafEntry<'static>,
    /// What rides along with its rows.
    riding: RidingRows,
}

/// An embedded segment that is encoded.
#[derive(Debug)]
struct Closed {
    head: Key,
    last: Key,
    keys: u32,
    rows: u64,
    bytes: Vec<u8>,
    packing: Packing,
}

/// The bytes of an embedded segment.
struct EncodedSegment {
    bytes: Vec<u8>,
    packing: Packing,
}

/// A finished leaf.
#[derive(Debug, PartialEq, Eq)]
pub struct LeafBytes {
    /// What goes to the directory: its smallest key. If keys are bytes, this is as few of the first bytes of that key as are above the last
    /// key of the leaf before.
    pub first_key: Key,
    /// Its keys.
    pub keys: u32,
    /// Rows of all of them.
    pub rows: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl LeafBuilder {
    /// Starts the leaves of a segment with a row space of so many rows.
    #[must_use]
    pub fn new(key_type: KeyType, universe: u32) -> Self {
        Self::with_riding(key_type, universe, Vec::new())
    }

    /// The same where columns of these types ride along with the rows.
    #[must_use]
    pub fn with_riding(key_type: KeyType, universe: u32, riding: Vec<KeyType>) -> Self {
        let packing = Packing { packed: 1, plain: 1 };
        let (closed, open, before) = (Vec::new(), Vec::new(), None);
        Self { key_type, universe, riding, closed, bytes: 0, open, open_bytes: 0, before, packing }
    }

    /// Adds an entry above all before it; gives leaves of at most `room` bytes when there are keys for more. A single key that
    /// takes more gets a leaf of its own.
    ///
    /// # Errors
    /// Keys out of order, or of another type.
    pub fn push(&mut self, entry: LeafEntry<'static>, room: usize) -> Result<Vec<LeafBytes>> {
        self.push_riding(entry, RidingRows::default(), room)
    }

    /// The same with what rides along with the rows of the key. Rows of a posting outside of the leaf do not ride.
    ///
    /// # Errors
    /// Those of [`Self::push`]; also values of other columns than the leaves have.
    pub fn push_riding(
        &mut self,
        entry: LeafEntry<'static>,
        riding: RidingRows,
        room: usize,
    ) -> Result<Vec<LeafBytes>> {
        if riding.rides() && matches!(entry.rows_in, KeyRows::Long { .. }) {
            return Err(FormatError::invalid("the posting of a key that rides", "outside of the leaf", "inside of it"));
        }
        let entry = OpenEntry { entry, riding };
        self.open_bytes += self.about_bytes(&entry);
        self.open.push(entry);
        let mut leaves = Vec::new();
        while self.open.len() >= MAX_SEGMENT_KEYS || self.open_bytes >= TARGET_SEGMENT_BYTES {
            let whole = self.encode_open(self.open.len())?;
            if self.size_with(&whole) <= room {
                self.close(whole);
            } else {
                leaves.push(self.cut(room)?);
            }
        }
        Ok(leaves)
    }

    /// The last leaves: what was not given yet. To be called until it gives none.
    ///
    /// # Errors
    /// Those of [`Self::push`].
    pub fn finish(&mut self, room: usize) -> Result<Option<LeafBytes>> {
        if self.open.is_empty() {
            return if self.closed.is_empty() { Ok(None) } else { self.leaf().map(Some) };
        }
        let whole = self.encode_open(self.open.len())?;
        if self.size_with(&whole) <= room {
            self.close(whole);
            return self.leaf().map(Some);
        }
        self.cut(room).map(Some)
    }

    /// A leaf of what is closed and of as many open entries as fit.
    fn cut(&mut self, room: usize) -> Result<LeafBytes> {
        let (mut fits, mut best) = (0, None);
        let mut beyond = self.open.len();
        while fits + 1 < beyond {
            let middle = usize::midpoint(fits, beyond);
            let part = self.encode_open(middle)?;
            if self.size_with(&part) <= room {
                (fits, best) = (middle, Some(part));
            } else {
                beyond = middle;
            }
        }
        if best.is_none() && self.closed.is_empty() {
            best = Some(self.encode_open(1)?);
        }
        if let Some(part) = best {
            self.close(part);
        }
        self.leaf()
    }

    /// The first open entries as an embedded segment.
    fn encode_open(&self, keys: usize) -> Result<Closed> {
        let entries = self.open.get(..keys).unwrap_or_default();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Err(FormatError::invalid("the keys of an embedded segment", 0, "at least 1"));
        };
        let (head, last) = (first.entry.key.clone(), last.entry.key.clone());
        let EncodedSegment { bytes, packing } = self.encode_segment(entries)?;
        let rows = entries.iter().map(|open| u64::from(open.entry.rows)).sum();
        Ok(Closed { head, last, keys: keys as u32, rows, bytes, packing })
    }

    fn close(&mut self, part: Closed) {
        self.open.drain(..part.keys as usize);
        if part.keys >= LEAST_MEASURED_KEYS {
            self.packing = part.packing;
        }
        self.open_bytes = self.open.iter().map(|open| self.about_bytes(open)).sum();
        self.bytes += part.bytes.len();
        self.closed.push(part);
    }

    fn encode_segment(&self, open: &[OpenEntry]) -> Result<EncodedSegment> {
        let mut out = ByteWriter::new();
        let entries: Vec<&LeafEntry<'_>> = open.iter().map(|open| &open.entry).collect();
        let keys: Vec<&Key> = entries.iter().map(|entry| &entry.key).collect();
        if self.key_type.is_fixed() {
            gaps::encode(&gaps_of(&keys)?, &mut out);
        } else {
            byte_keys::encode(&keys, &self.key_type, &mut out)?;
        }
        let mut packed = out.len();
        rows::encode_listed_or_not(&entries, self.universe, &mut out)?;
        if entries.iter().all(|entry| matches!(entry.rows_in, KeyRows::Run(_))) {
            packed = out.len();
        }
        if !self.riding.is_empty() {
            let rows: Vec<&RidingRows> = open.iter().map(|open| &open.riding).collect();
            riding::encode(&self.riding, &rows, &mut out)?;
        }
        let packing = Packing { packed, plain: keys.iter().map(|key| plain_bytes(key)).sum() };
        Ok(EncodedSegment { bytes: out.into_vec(), packing })
    }

    /// Bytes that an entry may take.
    fn about_bytes(&self, OpenEntry { entry, riding }: &OpenEntry) -> usize {
        let Packing { packed, plain } = self.packing;
        let key = (plain_bytes(&entry.key) * packed).div_ceil(plain.max(1));
        let rows = match &entry.rows_in {
            KeyRows::Run(_) => 0,
            KeyRows::Listed(rows) => rows.len() * 3,
            KeyRows::Inline(posting) => posting.len() + 2,
            KeyRows::Long { .. } => 8,
        };
        // Packed, what rides takes about half of what it does in row form.
        key + rows + riding.byte_count() / 2
    }

    /// Bytes of the leaf with one more embedded segment.
    fn size_with(&self, part: &Closed) -> usize {
        let mut header = ByteWriter::new();
        let parts = || self.closed.iter().chain(std::iter::once(part));
        let first = self.closed.first().unwrap_or(part);
        // Heads that are out of order are found when the leaf is made.
        let _ = self.begin(&first.head, &mut header).and_then(|_| encode_header(parts, &self.key_type, &mut header));
        header.len() + self.bytes + part.bytes.len()
    }

    /// Begins a leaf with what the directory does not have of its first key, and gives what it has.
    fn begin(&self, first: &Key, out: &mut ByteWriter) -> Result<Key> {
        let Key::Bytes(key) = first else { return Ok(first.clone()) };
        let key = key.as_slice();
        let shared = match &self.before {
            Some(Key::Bytes(before)) => key.iter().zip(before).take_while(|(one, other)| one == other).count(),
            // There is no leaf before the first one.
            _ => key.len(),
        };
        let (separator, rest) = key.split_at_checked(shared + 1).unwrap_or((key, &[]));
        out.blob("the rest of the first key of a leaf", rest, MAX_KEY_LENGTH)?;
        Ok(Key::Bytes(separator.to_vec()))
    }

    fn leaf(&mut self) -> Result<LeafBytes> {
        let parts = std::mem::take(&mut self.closed);
        self.bytes = 0;
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Err(FormatError::invalid("the embedded segments of a leaf", 0, "at least 1"));
        };
        let mut out = ByteWriter::new();
        let first_key = self.begin(&first.head, &mut out)?;
        self.before = Some(last.last.clone());
        encode_header(|| parts.iter(), &self.key_type, &mut out)?;
        parts.iter().for_each(|part| out.bytes(&part.bytes));
        let keys = parts.iter().map(|part| part.keys).sum();
        let rows = parts.iter().map(|part| part.rows).sum();
        Ok(LeafBytes { first_key, keys, rows, bytes: out.into_vec() })
    }
}

/// Bytes of a key by itself.
fn plain_bytes(key: &Key) -> usize {
    match key {
        Key::Fixed(_) => NUMBER_BYTES,
        Key::Bytes(key) => key.len() + 1,
    }
}

fn encode_header<'a, I: Iterator<Item = &'a Closed>>(
    parts: impl Fn() -> I,
    key_type: &KeyType,
    out: &mut ByteWriter,
) -> Result<()> {
    out.length(parts().count());
    let heads: Vec<&Key> = parts().map(|part| &part.head).collect();
    match key_type.is_fixed() {
        true => encode_keys(&heads, key_type, out)?,
        false => byte_keys::encode(&heads, key_type, out)?,
    }
    let keys: Vec<u64> = parts().map(|part| u64::from(part.keys)).collect();
    encode_column(keys.into_iter(), out);
    let lengths: Vec<u64> = parts().map(|part| part.bytes.len() as u64).collect();
    encode_column(lengths.into_iter(), out);
    Ok(())
}

#[cfg(test)]
mod tests;
