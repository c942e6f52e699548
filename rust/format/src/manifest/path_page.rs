//! Finding the number of a file by its path.
//!
//! The hash of a path picks its page by its first bits, and a page has the hashes and numbers of its files. The number of pages is a matter
//! of the number of files alone, so that pages divide as files come and join as files leave.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::PAGE_FILES;
use super::piece::{Piece, PieceId, check_piece, encode_piece, open_piece};
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

    fn contains(self, hash: u64) -> bool {
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
    fn overlaps(self, other: Self) -> bool {
        let (wide, narrow) = if self.bits <= other.bits { (self, other) } else { (other, self) };
        narrow.page >> (narrow.bits - wide.bits) == wide.page
    }
}

impl fmt::Display for PagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of 2^{}", self.page, self.bits)
    }
}

/// A page: what checkpoints stored of it, and what came since then. Entries whose number has no file any longer do not count.
#[derive(Debug, Clone, Default)]
pub(super) struct PathPage {
    /// Stored pages that have hashes of this one: as many as pages joined since, and one otherwise.
    stored: Vec<Arc<StoredPaths>>,
    /// Entries that came since then, ascending.
    added: Vec<PathEntry>,
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

impl PathPage {
    pub(super) fn of_stored(stored: StoredPaths) -> Self {
        Self { stored: vec![Arc::new(stored)], added: Vec::new() }
    }

    /// The stored pages.
    pub(super) fn stored(&self) -> &[Arc<StoredPaths>] {
        &self.stored
    }

    pub(super) fn add(&mut self, entry: PathEntry) {
        let place = self.added.partition_point(|have| *have < entry);
        self.added.insert(place, entry);
    }

    /// The numbers of files that came since the last checkpoint and have this hash, also of those that left again.
    pub(super) fn added(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        equal(&self.added, hash)
    }

    /// All numbers with this hash, also of files that left.
    pub(super) fn candidates(&self, hash: u64) -> Result<Vec<u32>> {
        let mut numbers: Vec<u32> = self.added(hash).collect();
        for stored in self.stored.iter().filter(|stored| stored.place.contains(hash)) {
            numbers.extend(equal(stored.entries()?, hash));
        }
        Ok(numbers)
    }

    /// The stored pages that must be read to tell the entries of this hash, or of all.
    pub(super) fn missing(&self, hash: Option<u64>) -> impl Iterator<Item = Piece> + '_ {
        let of_hash = move |stored: &&Arc<StoredPaths>| hash.is_none_or(|hash| stored.place.contains(hash));
        let missing = self.stored.iter().filter(of_hash).filter(|stored| !stored.is_loaded());
        missing.map(Piece::of_paths)
    }

    /// Whether it is what the last checkpoint stored at this place, as long as no stored file left.
    pub(super) fn is_stored(&self, place: PagePlace) -> bool {
        let is_here = self.stored.iter().all(|stored| stored.place == place);
        self.added.is_empty() && is_here
    }

    /// The pages that this one, of so many bits, divides into or joins with its neighbours.
    pub(super) fn resize(pages: &[Arc<Self>], from: u32, to: u32) -> Vec<Arc<Self>> {
        if to == from {
            return pages.to_vec();
        }
        let place = |page| PagePlace { bits: to, page };
        (0..1u32 << to)
            .map(|page| Arc::new(Self::collect(Self::sources(pages, from, place(page)), place(page))))
            .collect()
    }

    /// The old pages that have hashes of a new one.
    fn sources(pages: &[Arc<Self>], from: u32, place: PagePlace) -> &[Arc<Self>] {
        let range: Range<usize> = match from.checked_sub(place.bits) {
            Some(joined) => {
                let first = (place.page as usize) << joined;
                first..first + (1 << joined)
            }
            None => {
                let only = (place.page >> (place.bits - from)) as usize;
                only..only + 1
            }
        };
        pages.get(range).unwrap_or_default()
    }

    fn collect(sources: &[Arc<Self>], place: PagePlace) -> Self {
        let mut page = Self::default();
        for source in sources {
            let stored = source.stored.iter().filter(|stored| stored.place.overlaps(place));
            for stored in stored {
                if !page.stored.iter().any(|have| Arc::ptr_eq(have, stored)) {
                    page.stored.push(Arc::clone(stored));
                }
            }
            page.added.extend(source.added.iter().filter(|(hash, _)| place.contains(*hash)));
        }
        page
    }

    /// The page as it is now, stored at this place: the piece's bytes if they are not those of the last checkpoint.
    pub(super) fn store(
        &self,
        place: PagePlace,
        is_live: impl Fn(u32) -> bool,
    ) -> Result<(Self, Option<(PieceId, Vec<u8>)>)> {
        let mut entries: Vec<PathEntry> = self.added.clone();
        for stored in &self.stored {
            entries.extend(stored.entries()?.iter().filter(|(hash, _)| place.contains(*hash)));
        }
        entries.retain(|(_, number)| is_live(*number));
        entries.sort_unstable();
        if entries.is_empty() {
            return Ok((Self::default(), None));
        }
        let (id, bytes) = encode_entries(place, &entries)?;
        let is_new = !self.stored.iter().any(|stored| stored.id == id);
        let stored = StoredPaths { id, place, count: entries.len() as u32, entries: OnceLock::from(entries) };
        Ok((Self::of_stored(stored), is_new.then_some((id, bytes))))
    }
}

impl StoredPaths {
    /// A page whose piece was not read.
    pub(super) fn new(id: PieceId, place: PagePlace, count: u32) -> Self {
        Self { id, place, count, entries: OnceLock::new() }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.entries.get().is_some()
    }

    fn entries(&self) -> Result<&[PathEntry]> {
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
fn equal(entries: &[PathEntry], hash: u64) -> impl Iterator<Item = u32> + '_ {
    let start = entries.partition_point(|(have, _)| *have < hash);
    entries.iter().skip(start).take_while(move |(have, _)| *have == hash).map(|(_, number)| *number)
}
