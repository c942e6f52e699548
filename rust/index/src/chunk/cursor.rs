//! Chunks as they are walked: from memory, from a spill file, or as values of another segment.

use std::io::{self, Read};

use lakemark_format::key::{Key, KeyType, MAX_KEY_LENGTH};
use lakemark_format::riding::{MAX_RIDING_KEY_BYTES, MAX_RIDING_ROWS, RidingRows};

use crate::riding::RowForms;

/// A value with its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRows {
    /// The value.
    pub key: Key,
    /// Its rows, ascending.
    pub rows: Vec<u32>,
    /// What rides along with them; nothing if they do not ride.
    pub riding: RidingRows,
}

/// Gives values in their order.
pub type NextValue = Box<dyn FnMut() -> io::Result<Option<ValueRows>> + Send>;

/// Walks a chunk in key order, from memory or from a spill file.
pub(crate) struct ChunkCursor {
    pub(crate) nulls: Vec<u32>,
    pub(crate) opaque: Vec<u32>,
    pub(super) entries: Entries,
}

/// Where the keys come from.
pub(super) enum Entries {
    Memory {
        keys: std::vec::IntoIter<Key>,
        ends: std::vec::IntoIter<u32>,
        rows: Vec<u32>,
        riding: Option<RowForms>,
        start: u32,
    },
    Spilled {
        input: Box<dyn Read + Send>,
        key_type: KeyType,
        has_riding: bool,
        left: u64,
        held: HeldRows,
    },
    Stream {
        next: NextValue,
        held: HeldRows,
    },
}

/// The rows of the key that was read last.
#[derive(Default)]
pub(super) struct HeldRows {
    rows: Vec<u32>,
    riding: RidingRows,
}

impl ChunkCursor {
    pub(crate) fn spilled(mut input: Box<dyn Read + Send>, key_type: KeyType) -> io::Result<Self> {
        let (mut nulls, mut opaque) = (Vec::new(), Vec::new());
        read_rows(&mut input, &mut nulls)?;
        read_rows(&mut input, &mut opaque)?;
        let [has_riding] = read_array(&mut input)?;
        let (has_riding, left) = (has_riding == 1, u64::from_le_bytes(read_array(&mut input)?));
        let entries = Entries::Spilled { input, key_type, has_riding, left, held: HeldRows::default() };
        Ok(Self { nulls, opaque, entries })
    }

    pub(crate) fn stream(nulls: Vec<u32>, opaque: Vec<u32>, next: NextValue) -> Self {
        Self { nulls, opaque, entries: Entries::Stream { next, held: HeldRows::default() } }
    }

    /// The next key; [`Self::take_rows`] then hands over its rows.
    pub(crate) fn advance(&mut self) -> io::Result<Option<Key>> {
        match &mut self.entries {
            Entries::Memory { keys, .. } => Ok(keys.next()),
            Entries::Stream { next, held } => {
                let Some(ValueRows { key, rows, riding }) = next()? else { return Ok(None) };
                *held = HeldRows { rows, riding };
                Ok(Some(key))
            }
            Entries::Spilled { input, key_type, has_riding, left, held } => {
                if *left == 0 {
                    return Ok(None);
                }
                *left -= 1;
                let key = if key_type.is_fixed() {
                    Key::Fixed(u64::from_le_bytes(read_array(input)?))
                } else {
                    let length = u32::from_le_bytes(read_array(input)?) as usize;
                    if length > MAX_KEY_LENGTH {
                        return Err(changed_while_merged());
                    }
                    let mut bytes = vec![0; length];
                    input.read_exact(&mut bytes)?;
                    Key::Bytes(bytes)
                };
                read_rows(input, &mut held.rows)?;
                if *has_riding {
                    held.riding = read_riding(input)?;
                }
                Ok(Some(key))
            }
        }
    }

    /// Hands over the rows of the key that `advance` gave, and what rides along with them. To be called once for each key.
    pub(crate) fn take_rows(&mut self, take: impl FnOnce(&[u32], &RidingRows)) {
        match &mut self.entries {
            Entries::Memory { ends, rows, riding, start, .. } => {
                let end = ends.next().unwrap_or(*start);
                let rows = rows.get(*start as usize..end as usize).unwrap_or_default();
                take(rows, &riding.as_ref().map(|riding| riding.of_rows(rows)).unwrap_or_default());
                *start = end;
            }
            Entries::Spilled { held, .. } | Entries::Stream { held, .. } => take(&held.rows, &held.riding),
        }
    }
}

fn changed_while_merged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a spill file was changed while it was merged")
}

fn read_riding(input: &mut impl Read) -> io::Result<RidingRows> {
    let count = u32::from_le_bytes(read_array(input)?) as usize;
    if count > MAX_RIDING_ROWS {
        return Err(changed_while_merged());
    }
    let (mut riding, mut row) = (RidingRows::default(), Vec::new());
    for _ in 0..count {
        let length = u32::from_le_bytes(read_array(input)?) as usize;
        if length > MAX_RIDING_KEY_BYTES {
            return Err(changed_while_merged());
        }
        row.resize(length, 0);
        input.read_exact(&mut row)?;
        riding.push(Some(&row));
    }
    Ok(riding)
}

fn read_array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_rows(input: &mut impl Read, rows: &mut Vec<u32>) -> io::Result<()> {
    let count = u32::from_le_bytes(read_array(input)?);
    rows.clear();
    for _ in 0..count {
        rows.push(u32::from_le_bytes(read_array(input)?));
    }
    Ok(())
}
