//! The manifest: a table's data files, indexes and segments, and what it has buffered, after a number of edits.
//!
//! A store keeps it as numbered [edits](ManifestEdit) and, from time to time, as a [checkpoint](Manifest::to_checkpoint): a root and
//! [pieces](Piece) that checkpoints share. The manifest of a root refers to pieces that were not read. It answers what it can, and says
//! which piece it lacks where it cannot ([`FormatError::NotLoaded`]). Methods `missing_…` say so beforehand.
//!
//! Files have numbers in the order in which they entered, and no number is used again. A clone shares all that it has in common with the
//! original, so that a state costs what changed.

mod apply;
mod checkpoint;
mod difference;
mod edit;
mod extras;
mod file;
mod file_part;
mod index;
mod live;
mod path_page;
mod piece;
mod piece_id;
mod segment;
mod stored_files;
mod stored_paths;
mod updates;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use crate::error::{FormatError, Result};
use crate::file_numbers::FileNumbers;
use crate::path::check_path;

pub use checkpoint::Checkpoint;
pub use edit::{AddedFiles, AddedSchemas, ManifestChanges, ManifestEdit};
pub use extras::{ManifestDelta, ManifestPublication, ManifestTransaction, MovedFile, PublishedFile};
pub use file::ManifestFile;
use file::path_hash;
use file_part::FilePart;
pub use index::ManifestIndex;
use path_page::PathPage;
pub use piece::Piece;
pub use piece_id::PieceId;
pub use segment::ManifestSegment;
use stored_paths::{PagePlace, StoredPaths};
pub use updates::{
    ManifestLog, ManifestMigration, ManifestPositionMap, ManifestRun, ManifestUpdates, ReplacedFile, RunRange,
    StoreFile, WriteCounters,
};

/// The longest schema of a data file, in bytes.
pub const MAX_SCHEMA_LENGTH: usize = 16 * 1024 * 1024;
/// Numbers of data files in a part of a checkpoint.
pub const PART_FILES: u32 = 1024;
/// The most data files for each page of paths of a checkpoint.
pub const PAGE_FILES: u64 = 1024;

/// The state of a table's store after an edit.
#[derive(Debug, Clone)]
pub struct Manifest {
    store_id: [u8; 16],
    number: u64,
    created_ms: i64,
    /// The checkpoint whose pieces it refers to; 0 if it refers to none.
    checkpoint: u64,
    next_schema: u32,
    schemas: Arc<BTreeMap<u32, Arc<[u8]>>>,
    /// By name.
    indexes: Arc<BTreeMap<String, ManifestIndex>>,
    segments: Arc<BTreeMap<[u8; 16], Arc<ManifestSegment>>>,
    updates: Option<Arc<ManifestUpdates>>,
    next_file: u32,
    file_count: u64,
    /// The files, in stretches of [`PART_FILES`] numbers.
    parts: Vec<Arc<FilePart>>,
    /// The numbers by path: as many pages as the number of files asks for.
    pages: Vec<Arc<PathPage>>,
}

impl Manifest {
    /// The state of a new store before its first edit: nothing.
    pub fn new(store_id: [u8; 16]) -> Self {
        Self {
            store_id,
            number: 0,
            created_ms: 0,
            checkpoint: 0,
            next_schema: 0,
            schemas: Arc::default(),
            indexes: Arc::default(),
            segments: Arc::default(),
            updates: None,
            next_file: 0,
            file_count: 0,
            parts: Vec::new(),
            pages: vec![Arc::default()],
        }
    }

    /// The store's id, which never changes.
    pub fn store_id(&self) -> [u8; 16] {
        self.store_id
    }

    /// Number of the last edit that was applied; 0 before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When that edit was written, in milliseconds since 1970-01-01 UTC.
    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    /// Number of the checkpoint whose pieces the manifest refers to; 0 if there is none.
    pub fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    /// The number that the next schema gets.
    pub fn next_schema(&self) -> u32 {
        self.next_schema
    }

    /// The schema of a number: an Arrow IPC schema message, opaque to the format.
    pub fn schema(&self, number: u32) -> Option<&Arc<[u8]>> {
        self.schemas.get(&number)
    }

    /// The schemas by their numbers, ascending.
    pub fn schemas(&self) -> impl ExactSizeIterator<Item = (u32, &Arc<[u8]>)> {
        self.schemas.iter().map(|(number, schema)| (*number, schema))
    }

    /// The declared indexes, by name.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = &ManifestIndex> {
        self.indexes.values()
    }

    /// The index of a name.
    pub fn index(&self, name: &str) -> Option<&ManifestIndex> {
        self.indexes.get(name)
    }

    /// The sidecar files, by id.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &Arc<ManifestSegment>> {
        self.segments.values()
    }

    /// The sidecar file of an id.
    pub fn segment(&self, id: &[u8; 16]) -> Option<&Arc<ManifestSegment>> {
        self.segments.get(id)
    }

    /// What is buffered, if the table takes updates.
    pub fn updates(&self) -> Option<&Arc<ManifestUpdates>> {
        self.updates.as_ref()
    }

    /// The number that the next data file gets.
    pub fn next_file(&self) -> u32 {
        self.next_file
    }

    /// How many data files there are.
    pub fn file_count(&self) -> u64 {
        self.file_count
    }

    /// Whether there is a data file of this number. No piece is needed to tell.
    pub fn is_live(&self, number: u32) -> bool {
        self.part(number).is_some_and(|part| part.live.contains(number % PART_FILES))
    }

    /// The numbers of all data files. No piece is needed to tell.
    pub fn live_files(&self) -> FileNumbers {
        let parts = (0u32..).zip(&self.parts);
        FileNumbers::from_sorted(
            parts.flat_map(|(place, part)| part.live.iter().map(move |slot| first_of(place) + slot)),
        )
    }

    /// The data file of a number; none if there is none.
    pub fn file(&self, number: u32) -> Result<Option<&Arc<ManifestFile>>> {
        self.part(number).map_or(Ok(None), |part| part.file(number % PART_FILES))
    }

    /// All data files by their numbers, ascending.
    pub fn files(&self) -> impl Iterator<Item = Result<(u32, &Arc<ManifestFile>)>> {
        let parts = (0u32..).zip(&self.parts);
        parts.flat_map(|(place, part)| {
            part.files().map(move |file| file.map(|(slot, file)| (first_of(place) + slot, file)))
        })
    }

    /// The number of the data file of a path; none if there is none.
    pub fn number_of(&self, path: &str) -> Result<Option<u32>> {
        let hash = path_hash(path);
        let Some(page) = self.page(hash) else { return Ok(None) };
        if let Some(number) = self.number_since(page, hash, path) {
            return Ok(Some(number));
        }
        for number in page.candidates(hash)? {
            if self.file(number)?.is_some_and(|file| file.path == path) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Pieces that must be read before [`Self::file`] tells these files.
    pub fn missing_of_files(&self, numbers: &FileNumbers) -> Vec<Piece> {
        let mut missing = Vec::new();
        let mut last = None;
        for range in numbers.ranges() {
            let end = range.end.min(self.next_file);
            for place in range.start / PART_FILES..end.div_ceil(PART_FILES) {
                let first = first_of(place);
                let slots = range.start.max(first) - first..end.min(first.saturating_add(PART_FILES)) - first;
                let part = self.parts.get(place as usize).filter(|_| last != Some(place));
                if let Some(piece) = part.and_then(|part| part.missing_of(slots)) {
                    missing.push(piece);
                    last = Some(place);
                }
            }
        }
        missing
    }

    /// Pieces that must be read before [`Self::files`] tells all files.
    pub fn missing_of_all_files(&self) -> Vec<Piece> {
        self.parts.iter().filter_map(|part| part.missing_of(0..PART_FILES)).collect()
    }

    /// Pieces that must be read before the manifest tells everything: all that were not read.
    pub fn missing_of_all(&self) -> Vec<Piece> {
        let files = self.parts.iter().filter_map(|part| part.missing());
        let paths = self.pages.iter().flat_map(|page| page.missing(None));
        let missing: BTreeMap<PieceId, Piece> = files.chain(paths).map(|piece| (piece.id(), piece)).collect();
        missing.into_values().collect()
    }

    /// Pieces that must be read before [`Self::number_of`] tells these paths. Pages tell which files may have a path, so that there may be
    /// other pieces once these were supplied: ask until there is none.
    pub fn missing_of_paths<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Vec<Piece> {
        let mut missing: BTreeMap<PieceId, Piece> = BTreeMap::new();
        for (path, hash) in paths.into_iter().map(|path| (path, path_hash(path))) {
            let Some(page) = self.page(hash) else { continue };
            if self.number_since(page, hash, path).is_some() {
                continue;
            }
            missing.extend(page.missing(Some(hash)).map(|piece| (piece.id(), piece)));
            let files = FileNumbers::from_iter(page.candidates(hash).unwrap_or_default());
            missing.extend(self.missing_of_files(&files).into_iter().map(|piece| (piece.id(), piece)));
        }
        missing.into_values().collect()
    }

    /// Takes over what another state has read of the pieces that both refer to: a state that was told from another root needs not read them
    /// again.
    pub fn share_pieces(&mut self, other: &Self) {
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            if let Some(read) = part.read_by(other) {
                Arc::make_mut(part).stored = Some(Arc::clone(read));
            }
        }
        let read = other.pages.iter().flat_map(|page| page.stored()).filter(|stored| stored.is_loaded());
        let read: HashMap<PieceId, &Arc<StoredPaths>> = read.map(|stored| (stored.id, stored)).collect();
        for page in self.pages.iter_mut().filter(|page| page.missing(None).any(|piece| read.contains_key(&piece.id())))
        {
            Arc::make_mut(page).share(&read);
        }
    }

    /// An older version of the table as the indexes of now see it: number, time and updates of `version`, and all else of this manifest.
    #[must_use]
    pub fn at_version(&self, version: &Self) -> Self {
        let (number, created_ms, updates) = (version.number, version.created_ms, version.updates.clone());
        Self { number, created_ms, updates, ..self.clone() }
    }

    /// Names of all pieces that the manifest refers to: of a checkpoint as it was read, those that a vacuum keeps with its root.
    pub fn pieces(&self) -> HashSet<PieceId> {
        let files = self.parts.iter().filter_map(|part| part.stored.as_ref()).map(|stored| stored.id);
        let paths = self.pages.iter().flat_map(|page| page.stored()).map(|stored| stored.id);
        files.chain(paths).collect()
    }

    /// The number of a path whose file came since the last checkpoint. No other file has the path, and no piece is needed to tell.
    fn number_since(&self, page: &PathPage, hash: u64, path: &str) -> Option<u32> {
        page.added(hash).find(|number| matches!(self.file(*number), Ok(Some(file)) if file.path == path))
    }

    fn part(&self, number: u32) -> Option<&Arc<FilePart>> {
        self.parts.get((number / PART_FILES) as usize)
    }

    /// The bits of the number of pages.
    fn page_bits(&self) -> u32 {
        self.pages.len().trailing_zeros()
    }

    fn page(&self, hash: u64) -> Option<&Arc<PathPage>> {
        self.pages.get(PagePlace::of(hash, self.page_bits()).page as usize)
    }
}

/// The first number of a part.
fn first_of(part: u32) -> u32 {
    part.saturating_mul(PART_FILES)
}

/// Checks that paths are unique and lead nowhere else.
fn check_paths<'a>(what: &'static str, paths: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for path in paths {
        check_path(what, path)?;
        unique(&mut seen, what, path)?;
    }
    Ok(())
}

/// Refuses a value that was seen before.
pub(crate) fn unique<'a, T: Hash + Eq + Debug + ?Sized>(
    seen: &mut HashSet<&'a T>,
    what: &'static str,
    value: &'a T,
) -> Result<()> {
    if seen.insert(value) {
        return Ok(());
    }
    Err(FormatError::invalid(what, format_args!("{value:02x?} for the second time"), "unique"))
}
