//! The rows of keys: writing runs, lists or postings, and reading lists.

use std::borrow::Cow;
use std::ops::Range;

use super::{KeyRows, LeafEntry, MAX_LISTED_ROWS, form};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::packed::{Column, encode_column};
use crate::posting;

/// The same as [`encode_rows`] of entries of which some are listed: as lists if that takes the fewest bytes, else as postings.
pub(super) fn encode_listed_or_not(entries: &[&LeafEntry<'_>], universe: u32, out: &mut ByteWriter) -> Result<()> {
    if !entries.iter().any(|entry| matches!(entry.rows_in, KeyRows::Listed(_))) {
        return encode_rows(entries, out);
    }
    let unlisted: Vec<LeafEntry<'_>> = entries.iter().map(|entry| without_list(entry, universe)).collect();
    let mut postings = ByteWriter::new();
    encode_rows(&unlisted.iter().collect::<Vec<_>>(), &mut postings)?;
    let listed = encode_lists(entries).filter(|listed| listed.len() <= postings.len());
    out.bytes(listed.as_ref().unwrap_or(&postings).as_slice());
    Ok(())
}

/// An entry with a posting in the place of a list.
fn without_list<'a>(entry: &'a LeafEntry<'_>, universe: u32) -> LeafEntry<'a> {
    let rows_in = match &entry.rows_in {
        KeyRows::Run(first) => KeyRows::Run(*first),
        KeyRows::Listed(rows) => {
            let mut bytes = Vec::new();
            posting::encode(rows, universe, &mut bytes);
            KeyRows::Inline(Cow::Owned(bytes))
        }
        KeyRows::Inline(bytes) => KeyRows::Inline(Cow::Borrowed(bytes.as_ref())),
        KeyRows::Long { offset, length } => KeyRows::Long { offset: *offset, length: *length },
    };
    LeafEntry { key: entry.key.clone(), rows: entry.rows, rows_in }
}

/// The rows of all keys, one after the other; none if some are in a posting, or are more than a list may have.
fn encode_lists(entries: &[&LeafEntry<'_>]) -> Option<ByteWriter> {
    let mut rows: Vec<u64> = Vec::with_capacity(entries.len());
    for entry in entries {
        match &entry.rows_in {
            KeyRows::Run(first) if entry.rows as usize <= MAX_LISTED_ROWS => {
                rows.extend((0..entry.rows).map(|row| u64::from(*first) + u64::from(row)));
            }
            KeyRows::Listed(listed) if listed.len() == entry.rows as usize => {
                rows.extend(listed.iter().copied().map(u64::from));
            }
            _ => return None,
        }
    }
    let mut out = ByteWriter::new();
    encode_counts(entries, &mut out);
    out.u8(form::LISTED);
    encode_column(rows.into_iter(), &mut out);
    Some(out)
}

/// How many rows each key has.
fn encode_counts(entries: &[&LeafEntry<'_>], out: &mut ByteWriter) {
    encode_column(entries.iter().map(|entry| u64::from(entry.rows).saturating_sub(1)), out);
}

/// How many rows each key has, and which. None of them are listed.
pub(crate) fn encode_rows(entries: &[&LeafEntry<'_>], out: &mut ByteWriter) -> Result<()> {
    encode_counts(entries, out);
    let starts: Option<Vec<u32>> = entries
        .iter()
        .map(|entry| match entry.rows_in {
            KeyRows::Run(first) => Some(first),
            _ => None,
        })
        .collect();
    match starts {
        Some(starts) => encode_runs(entries, &starts, out),
        None => encode_postings(entries, out)?,
    }
    Ok(())
}

fn encode_runs(entries: &[&LeafEntry<'_>], starts: &[u32], out: &mut ByteWriter) {
    let mut next = starts.first().copied().unwrap_or(0);
    let following = entries.iter().zip(starts).all(|(entry, start)| {
        let follows = *start == next;
        next = start.wrapping_add(entry.rows);
        follows
    });
    if following {
        out.u8(form::FOLLOWING);
        out.varint(starts.first().copied().unwrap_or(0).into());
    } else {
        out.u8(form::STARTS);
        encode_column(starts.iter().map(|start| u64::from(*start)), out);
    }
}

/// Runs among postings become postings, too.
fn encode_postings(entries: &[&LeafEntry<'_>], out: &mut ByteWriter) -> Result<()> {
    let mut places: Vec<(u64, Cow<'_, [u8]>)> = Vec::with_capacity(entries.len());
    for entry in entries {
        places.push(match &entry.rows_in {
            KeyRows::Inline(posting) => ((posting.len() as u64) << 1, Cow::Borrowed(posting.as_ref())),
            KeyRows::Long { length, .. } if *length < 1 << 31 => (u64::from(*length) << 1 | 1, Cow::Borrowed(&[])),
            KeyRows::Long { length, .. } => {
                return Err(FormatError::TooLong {
                    what: "the length of a posting",
                    got: u64::from(*length),
                    limit: (1 << 31) - 1,
                });
            }
            KeyRows::Listed(_) => return Err(FormatError::invalid("the rows of a key", "listed", "in a posting")),
            KeyRows::Run(first) => {
                let posting = posting::encode_run(*first, entry.rows);
                ((posting.len() as u64) << 1, Cow::Owned(posting))
            }
        });
    }
    out.u8(form::POSTINGS);
    encode_column(places.iter().map(|(place, _)| *place), out);
    for entry in entries {
        if let KeyRows::Long { offset, .. } = entry.rows_in {
            out.varint(offset);
        }
    }
    places.iter().for_each(|(_, posting)| out.bytes(posting));
    Ok(())
}

/// Rows that are listed, those of each key ascending.
pub(super) struct ListedRows<'a> {
    column: Column<'a>,
    universe: u32,
}

impl<'a> ListedRows<'a> {
    /// Steps over so many rows below `universe`.
    pub(super) fn read(input: &mut ByteReader<'a>, count: u64, universe: u32) -> Result<Self> {
        // Different rows take a bit each at least, or there is one.
        let most = (input.remaining() as u64).saturating_mul(8);
        match usize::try_from(count) {
            Ok(fits) if count <= most => Ok(Self { column: Column::read(input, fits, "the row of a key")?, universe }),
            _ => Err(FormatError::TooLong { what: "the rows of keys", got: count, limit: most }),
        }
    }

    /// The row at a place, which is below their count.
    pub(super) fn row(&self, place: usize) -> Result<u32> {
        match self.column.get(place)? {
            row if row < self.universe => Ok(row),
            row => Err(FormatError::invalid("the row of a key", row, format_args!("below {}", self.universe))),
        }
    }

    /// The rows of a key, by their places.
    pub(super) fn rows(&self, places: Range<usize>) -> Result<Vec<u32>> {
        let rows = places.map(|place| self.row(place)).collect::<Result<Vec<u32>>>()?;
        match rows.is_sorted_by(|one, next| one < next) {
            true => Ok(rows),
            false => Err(FormatError::invalid("the rows of a key", "out of order", "ascending rows")),
        }
    }
}
