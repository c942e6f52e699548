//! The files of a stretch of 1,024 numbers.
//!
//! A part is what a checkpoint stored of it, and what changed since then. What was stored may not be read yet: a number's file is then
//! unknown, though not whether there is one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::file::ManifestFile;
use super::live::Live;
use super::piece::Piece;
use super::piece_id::NamedPiece;
use super::stored_files::StoredFiles;
use crate::error::{FormatError, Result};

/// A stretch of numbers and their files.
#[derive(Debug, Clone, Default)]
pub(super) struct FilePart {
    /// The numbers that have a file now.
    pub live: Live,
    /// What the last checkpoint stored.
    pub stored: Option<Arc<StoredFiles>>,
    /// Files that came or changed since then, by their places. Those that left again are not among them.
    changed: BTreeMap<u32, Arc<ManifestFile>>,
}

impl FilePart {
    pub(super) fn of_stored(stored: StoredFiles) -> Self {
        Self { live: stored.live, stored: Some(Arc::new(stored)), changed: BTreeMap::new() }
    }

    /// The file at a place; none if there is none.
    pub(super) fn file(&self, slot: u32) -> Result<Option<&Arc<ManifestFile>>> {
        if !self.live.contains(slot) {
            return Ok(None);
        }
        match (self.changed.get(&slot), &self.stored) {
            (Some(file), _) => Ok(Some(file)),
            (None, Some(stored)) => stored.file(slot),
            (None, None) => Ok(None),
        }
    }

    /// Puts a file at a place.
    pub(super) fn put(&mut self, slot: u32, file: Arc<ManifestFile>) {
        self.live.set(slot, true);
        self.changed.insert(slot, file);
    }

    /// Takes the file away from a place.
    pub(super) fn remove(&mut self, slot: u32) {
        self.live.set(slot, false);
        self.changed.remove(&slot);
    }

    /// Whether it is what the last checkpoint stored.
    pub(super) fn is_stored(&self) -> bool {
        let stored = self.stored.as_ref().map_or_else(Live::default, |stored| stored.live);
        self.changed.is_empty() && self.live == stored
    }

    /// The stored piece, if it must be read to tell the files at some places.
    pub(super) fn missing_of(&self, mut slots: Range<u32>) -> Option<Piece> {
        let piece = self.missing()?;
        let is_needed = slots.any(|slot| self.live.contains(slot) && !self.changed.contains_key(&slot));
        is_needed.then_some(piece)
    }

    /// The stored piece, if there is one that was not read.
    pub(super) fn missing(&self) -> Option<Piece> {
        let stored = self.stored.as_ref().filter(|stored| !stored.is_loaded())?;
        Some(Piece::of_files(stored))
    }

    /// What another part has read of the stored piece, if that was not read here.
    pub(super) fn read_by<'a>(&self, other: &'a Self) -> Option<&'a Arc<StoredFiles>> {
        let (own, read) = (self.stored.as_ref()?, other.stored.as_ref()?);
        let is_same = (own.id, own.part, own.live) == (read.id, read.part, read.live);
        (is_same && !own.is_loaded() && read.is_loaded()).then_some(read)
    }

    /// The stored files that left since then.
    pub(super) fn left(&self) -> Result<Vec<(u32, &Arc<ManifestFile>)>> {
        let Some(stored) = &self.stored else { return Ok(Vec::new()) };
        let places = stored.live.without(&self.live);
        let files = places.iter().map(|slot| Ok(stored.file(slot)?.map(|file| (slot, file))));
        files.filter_map(Result::transpose).collect()
    }

    /// The files by their places.
    pub(super) fn files(&self) -> impl Iterator<Item = Result<(u32, &Arc<ManifestFile>)>> {
        self.live.iter().filter_map(|slot| self.file(slot).map(|file| Some((slot, file?))).transpose())
    }

    /// The part as it is now, stored: the piece's bytes if they are not those of the last checkpoint.
    pub(super) fn store(&self, part: u32) -> Result<(Self, Option<NamedPiece>)> {
        if self.live.len() == 0 {
            return Ok((Self::default(), None));
        }
        let files = self.files().collect::<Result<Vec<_>>>()?;
        files.iter().try_for_each(|(slot, file)| self.check_path_kept(*slot, file))?;
        let (stored, bytes) = StoredFiles::of_files(part, &files)?;
        let id = stored.id;
        let is_new = self.stored.as_ref().is_none_or(|stored| stored.id != id);
        Ok((Self::of_stored(stored), is_new.then_some((id, bytes))))
    }

    /// A file that changed has the path that was stored: the pages of paths rely on it.
    fn check_path_kept(&self, slot: u32, file: &ManifestFile) -> Result<()> {
        let Some(stored) = &self.stored else { return Ok(()) };
        match stored.file(slot)? {
            Some(was) if was.path != file.path => {
                let (got, expected) =
                    (format_args!("{:?}", file.path).to_string(), format_args!("{:?}", was.path).to_string());
                Err(FormatError::invalid("the path of a file that changed", got, expected))
            }
            _ => Ok(()),
        }
    }
}
