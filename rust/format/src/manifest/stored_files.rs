//! The files of a stretch of 1,024 numbers, as a checkpoint stored them: a piece that may not be read yet.

use std::sync::{Arc, OnceLock};

use super::PART_FILES;
use super::file::ManifestFile;
use super::live::Live;
use super::piece_id::{PieceId, check_piece, encode_piece, open_piece};
use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContentKind, check_limit};
use crate::error::{FormatError, Result};

/// The last part that there can be.
const LAST_PART: u32 = u32::MAX / PART_FILES;

/// An entry for each number of a part.
type Slots = Vec<Option<Arc<ManifestFile>>>;

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

impl StoredFiles {
    /// A part whose piece was not read.
    pub(super) fn new(id: PieceId, part: u32, live: Live) -> Self {
        Self { id, part, live, files: OnceLock::new() }
    }

    /// A part with files at these places, which ascend, and the piece's bytes.
    pub(super) fn of_files(part: u32, files: &[(u32, &Arc<ManifestFile>)]) -> Result<(Self, Vec<u8>)> {
        let (mut slots, mut live) = (empty_slots(), Live::default());
        for (slot, file) in files {
            live.set(*slot, true);
            if let Some(place) = slots.get_mut(*slot as usize) {
                *place = Some(Arc::clone(file));
            }
        }
        let (id, bytes) = encode_files(part, &slots)?;
        Ok((Self { id, part, live, files: OnceLock::from(slots) }, bytes))
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.files.get().is_some()
    }

    fn files(&self) -> Result<&Slots> {
        self.files.get().ok_or_else(|| FormatError::NotLoaded { piece: self.id.to_string() })
    }

    pub(super) fn file(&self, slot: u32) -> Result<Option<&Arc<ManifestFile>>> {
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
