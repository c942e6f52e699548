//! The files of a stretch of 1,024 numbers.
//!
//! A part is what a checkpoint stored of it, and what changed since then. What was stored may not be read yet: a number's file is then
//! unknown, though not whether there is one.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::PART_FILES;
use super::file::ManifestFile;
use super::live::Live;
use super::piece::{Piece, PieceId, check_piece, encode_piece, open_piece};
use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContentKind, check_limit};
use crate::error::{FormatError, Result};

/// The last part that there can be.
const LAST_PART: u32 = u32::MAX / PART_FILES;

/// An entry for each number of a part.
type Slots = Vec<Option<Arc<ManifestFile>>>;

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

/// A part as a checkpoint stored it.
#[derive(Debug)]
pub(super) struct StoredFiles {
    pub id: PieceId,
    /// Which part it is: its first number, divided by 1,024.
    pub part: u32,
    /// The numbers that have a file in it.
    pub live: Live,
    /// One entry for each number, once the piece was read.
    files: OnceLock<Slots>,
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

    /// The stored piece, if it must be read to tell the file at a place.
    pub(super) fn missing_of(&self, slot: u32) -> Option<Piece> {
        let is_needed = self.live.contains(slot) && !self.changed.contains_key(&slot);
        self.missing().filter(|_| is_needed)
    }

    /// The stored piece, if there is one that was not read.
    pub(super) fn missing(&self) -> Option<Piece> {
        let stored = self.stored.as_ref().filter(|stored| !stored.is_loaded())?;
        Some(Piece::of_files(stored))
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
    pub(super) fn store(&self, part: u32) -> Result<(Self, Option<(PieceId, Vec<u8>)>)> {
        if self.live.len() == 0 {
            return Ok((Self::default(), None));
        }
        let mut files = empty_slots();
        for entry in self.files() {
            let (slot, file) = entry?;
            self.check_path_kept(slot, file)?;
            if let Some(place) = files.get_mut(slot as usize) {
                *place = Some(Arc::clone(file));
            }
        }
        let (id, bytes) = encode_files(part, &files)?;
        let stored = StoredFiles { id, part, live: self.live, files: OnceLock::from(files) };
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

impl StoredFiles {
    /// A part whose piece was not read.
    pub(super) fn new(id: PieceId, part: u32, live: Live) -> Self {
        Self { id, part, live, files: OnceLock::new() }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.files.get().is_some()
    }

    fn files(&self) -> Result<&Slots> {
        self.files.get().ok_or_else(|| FormatError::NotLoaded { piece: self.id.to_string() })
    }

    fn file(&self, slot: u32) -> Result<Option<&Arc<ManifestFile>>> {
        Ok(self.files()?.get(slot as usize).and_then(Option::as_ref))
    }

    pub(super) fn supply(&self, bytes: &[u8]) -> Result<()> {
        let read = Self::read(bytes)?;
        check_piece(read.id, self.id)?;
        if (read.part, read.live) != (self.part, self.live) {
            let expected = format_args!("part {}", self.part).to_string();
            return Err(FormatError::invalid("the numbers of a part", "others", expected));
        }
        if let Some(files) = read.files.into_inner() {
            // Whoever was faster has read the same bytes.
            let _ = self.files.set(files);
        }
        Ok(())
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        encode_files(self.part, self.files()?).map(|(_, bytes)| bytes)
    }

    /// Reads a part for itself.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let (id, directory) = open_piece(bytes, ContentKind::FilePart)?;
        let mut input = ByteReader::new("a part of a checkpoint", directory);
        let part = input.varint_u32("the number of a part")?;
        check_limit("the number of a part", part.into(), LAST_PART.into())?;
        let count = input.count("the number of files of a part", 1 + ManifestFile::MIN_BYTES)?;
        if count == 0 {
            return Err(FormatError::invalid("the number of files of a part", count, "at least one"));
        }
        let mut files = empty_slots();
        let (mut live, mut before, mut next) = (Live::default(), String::new(), 0u64);
        for _ in 0..count {
            let slot = next.saturating_add(input.varint()?);
            check_limit("the place of a file in its part", slot, u64::from(PART_FILES) - 1)?;
            let file = ManifestFile::decode(&before, &mut input)?;
            file.validate()?;
            before.clone_from(&file.path);
            live.set(slot as u32, true);
            next = slot + 1;
            if let Some(place) = files.get_mut(slot as usize) {
                *place = Some(Arc::new(file));
            }
        }
        input.finish()?;
        Ok(Self { id, part, live, files: OnceLock::from(files) })
    }
}

fn empty_slots() -> Slots {
    vec![None; PART_FILES as usize]
}

/// The name and the file of a part.
fn encode_files(part: u32, files: &Slots) -> Result<(PieceId, Vec<u8>)> {
    let there = || (0u64..).zip(files).filter_map(|(slot, file)| Some((slot, file.as_ref()?)));
    let mut out = ByteWriter::new();
    out.varint(u64::from(part));
    out.length(there().count());
    let (mut before, mut next) = ("", 0);
    for (slot, file) in there() {
        out.varint(slot - next);
        file.encode(before, &mut out)?;
        (before, next) = (file.path.as_str(), slot + 1);
    }
    encode_piece(ContentKind::FilePart, out.as_slice())
}
