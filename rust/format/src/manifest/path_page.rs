//! Finding the number of a file by its path.
//!
//! The hash of a path picks its page by its first bits, and a page has the hashes and numbers of its files. The number of pages is a matter
//! of the number of files alone, so that pages divide as files come and join as files leave.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::piece::Piece;
use super::piece_id::{NamedPiece, PieceId};
use super::stored_paths::{PagePlace, PathEntry, StoredPaths, equal};
use crate::error::Result;

/// A page: what checkpoints stored of it, and what came since then. Entries whose number has no file any longer do not count.
#[derive(Debug, Clone, Default)]
pub(super) struct PathPage {
    /// Stored pages that have hashes of this one: as many as pages joined since, and one otherwise.
    stored: Vec<Arc<StoredPaths>>,
    /// Entries that came since then, ascending.
    added: Vec<PathEntry>,
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

    /// Takes stored pages that were read in the place of those that were not.
    pub(super) fn share(&mut self, read: &HashMap<PieceId, &Arc<StoredPaths>>) {
        for stored in self.stored.iter_mut().filter(|stored| !stored.is_loaded()) {
            let same = read.get(&stored.id).filter(|read| (read.place, read.count) == (stored.place, stored.count));
            if let Some(same) = same {
                *stored = Arc::clone(same);
            }
        }
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

    /// The entries of the page at this place, ascending.
    pub(super) fn entries(&self, place: PagePlace, is_live: impl Fn(u32) -> bool) -> Result<Vec<PathEntry>> {
        let mut entries: Vec<PathEntry> = self.added.clone();
        for stored in &self.stored {
            entries.extend(stored.entries()?.iter().filter(|(hash, _)| place.contains(*hash)));
        }
        entries.retain(|(_, number)| is_live(*number));
        entries.sort_unstable();
        Ok(entries)
    }

    /// The page with these entries, stored at this place: the piece's bytes if they are not those of the last checkpoint.
    pub(super) fn store(&self, place: PagePlace, entries: Vec<PathEntry>) -> Result<(Self, Option<NamedPiece>)> {
        if entries.is_empty() {
            return Ok((Self::default(), None));
        }
        let (stored, bytes) = StoredPaths::of_entries(place, entries)?;
        let id = stored.id;
        let is_new = !self.stored.iter().any(|stored| stored.id == id);
        Ok((Self::of_stored(stored), is_new.then_some((id, bytes))))
    }
}
