//! A page of the numbers of files by path, as a checkpoint stored it: a piece that may not be read yet.

use std::fmt;
use std::sync::OnceLock;

use super::PAGE_FILES;
use super::piece_id::{PieceId, check_piece, encode_piece, open_piece};
use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContentKind, check_limit};
use crate::error::{FormatError, Result};

/// The hash of a path, and the number of a file that has it.
pub(super) type PathEntry = (u64, u32);

/// The bits of the number of pages for all numbers that there can be.
const MAX_PAGE_BITS: u32 = 22;

/// The place of a page among 2^bits pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagePlace {
    pub bits: u32,
    pub page: u32,
}

impl PagePlace {
    /// The bits of the number of pages for so many files: the least power of two with at most [`PAGE_FILES`] a page.
    pub(super) fn bits_for(files: u64) -> u32 {
        files.div_ceil(PAGE_FILES).next_power_of_two().trailing_zeros()
    }

    /// The page of a hash.
    pub(super) fn of(hash: u64, bits: u32) -> Self {
        Self { bits, page: hash.checked_shr(64 - bits).unwrap_or_default() as u32 }
    }

    pub(super) fn contains(self, hash: u64) -> bool {
        Self::of(hash, self.bits) == self
    }

    /// The first hash of the page.
    fn start(self) -> u64 {
        u64::from(self.page).checked_shl(64 - self.bits).unwrap_or_default()
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let bits = u32::from(input.u8()?);
        check_limit("the bits of the number of pages", bits.into(), MAX_PAGE_BITS.into())?;
        let page = input.varint_u32("the number of a page")?;
        check_limit("the number of a page", page.into(), (1 << bits) - 1)?;
        Ok(Self { bits, page })
    }

    /// Whether the pages have a hash in common.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let (wide, narrow) = if self.bits <= other.bits { (self, other) } else { (other, self) };
        narrow.page >> (narrow.bits - wide.bits) == wide.page
    }
}

impl fmt::Display for PagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of 2^{}", self.page, self.bits)
    }
}

/// A page as a checkpoint stored it.
#[derive(Debug)]
pub(super) struct StoredPaths {
    pub id: PieceId,
    pub place: PagePlace,
    /// How many entries it has.
    pub count: u32,
    /// The entries, ascending, once the piece was read.
    entries: OnceLock<Vec<PathEntry>>,
}

impl StoredPaths {
    /// A page whose piece was not read.
    pub(super) fn new(id: PieceId, place: PagePlace, count: u32) -> Self {
        Self { id, place, count, entries: OnceLock::new() }
    }

    /// A page with these entries, which ascend, and the piece's bytes.
    pub(super) fn of_entries(place: PagePlace, entries: Vec<PathEntry>) -> Result<(Self, Vec<u8>)> {
        let (id, bytes) = encode_entries(place, &entries)?;
        Ok((Self { id, place, count: entries.len() as u32, entries: OnceLock::from(entries) }, bytes))
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.entries.get().is_some()
    }

    pub(super) fn entries(&self) -> Result<&[PathEntry]> {
        self.entries.get().map(Vec::as_slice).ok_or_else(|| FormatError::NotLoaded { piece: self.id.to_string() })
    }

    pub(super) fn supply(&self, bytes: &[u8]) -> Result<()> {
        let read = Self::read(bytes)?;
        check_piece(read.id, self.id)?;
        if (read.place, read.count) != (self.place, self.count) {
            let of = |page: &Self| format_args!("{} of {}", page.count, page.place).to_string();
            return Err(FormatError::invalid("the entries of a page", of(&read), of(self)));
        }
        if let Some(entries) = read.entries.into_inner() {
            // Whoever was faster has read the same bytes.
            let _ = self.entries.set(entries);
        }
        Ok(())
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        encode_entries(self.place, self.entries()?).map(|(_, bytes)| bytes)
    }

    /// Reads a page for itself.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let (id, directory) = open_piece(bytes, ContentKind::PathPage)?;
        let mut input = ByteReader::new("a page of paths", directory);
        let place = PagePlace::decode(&mut input)?;
        let count = input.count("the number of entries of a page", 2)?;
        if count == 0 {
            return Err(FormatError::invalid("the number of entries of a page", count, "at least one"));
        }
        let mut entries: Vec<PathEntry> = Vec::with_capacity(count);
        let mut before = place.start();
        for _ in 0..count {
            let hash = before.checked_add(input.varint()?).filter(|hash| place.contains(*hash));
            let Some(hash) = hash else {
                return Err(FormatError::invalid(
                    "the hash of a path",
                    "behind its page",
                    "one that begins as the page",
                ));
            };
            let entry = (hash, input.varint_u32("the number of a data file")?);
            if entries.last().is_some_and(|last| *last >= entry) {
                return Err(FormatError::invalid("the entries of a page", "out of order or twice", "ascending"));
            }
            entries.push(entry);
            before = hash;
        }
        input.finish()?;
        Ok(Self { id, place, count: entries.len() as u32, entries: OnceLock::from(entries) })
    }
}

/// The name and the file of a page.
fn encode_entries(place: PagePlace, entries: &[PathEntry]) -> Result<(PieceId, Vec<u8>)> {
    let mut out = ByteWriter::new();
    out.u8(place.bits as u8);
    out.varint(u64::from(place.page));
    out.length(entries.len());
    let mut before = place.start();
    for (hash, number) in entries {
        out.varint(hash - before);
        out.varint(u64::from(*number));
        before = *hash;
    }
    encode_piece(ContentKind::PathPage, out.as_slice())
}

/// The numbers of the entries with this hash.
pub(super) fn equal(entries: &[PathEntry], hash: u64) -> impl Iterator<Item = u32> + '_ {
    let start = entries.partition_point(|(have, _)| *have < hash);
    entries.iter().skip(start).take_while(move |(have, _)| *have == hash).map(|(_, number)| *number)
}

/// Numbers of neighbours with one hash, whose files may have one path.
pub(super) fn same_hash(entries: &[PathEntry]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let neighbours = entries.iter().zip(entries.iter().skip(1));
    neighbours.filter(|((a, _), (b, _))| a == b).map(|((_, a), (_, b))| (*a, *b))
}
