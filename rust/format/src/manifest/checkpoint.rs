//! Checkpoints: a state as a root and as pieces that hold files and paths.
//!
//! Root and pieces are [containers](crate::container) whose stream holds just the header and whose directory is the content. The id of
//! a root is the store's, that of a piece its name. The same state has the same bytes, whatever edits led to it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::edit::ascending;
use super::file::path_hash;
use super::file_part::FilePart;
use super::live::Live;
use super::path_page::PathPage;
use super::stored_files::StoredFiles;
use super::stored_paths::{PagePlace, StoredPaths, same_hash};
use super::{
    MAX_SCHEMA_LENGTH, Manifest, ManifestIndex, ManifestSegment, ManifestUpdates, PART_FILES, Piece, PieceId, first_of,
    unique,
};
use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContainerWriter, ContentKind, WholeFile, check_limit, open_whole};
use crate::error::{FormatError, Result};

/// A checkpoint that is to be written: the pieces first, and the root when they are all there.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The bytes of the root.
    pub root: Vec<u8>,
    /// Names and bytes of the pieces that the checkpoint before does not have.
    pub pieces: Vec<(PieceId, Vec<u8>)>,
    /// The same state, with the pieces of this checkpoint.
    pub manifest: Manifest,
}

impl Manifest {
    /// Pieces that must be read before [`Self::to_checkpoint`] can tell the checkpoint. Pieces tell which others are needed, so that
    /// there may be other ones once these were supplied: ask until there is none.
    pub fn missing_of_checkpoint(&self) -> Vec<Piece> {
        let parts = self.parts.iter().filter(|part| !part.is_stored()).filter_map(|part| part.missing());
        let left = self.pages_left().unwrap_or_default();
        let pages = self.changed_pages(&left).flat_map(|(_, page)| page.missing(None));
        let mut missing: BTreeMap<PieceId, Piece> = parts.chain(pages).map(|piece| (piece.id(), piece)).collect();
        for (place, page) in self.changed_pages(&left) {
            let entries = page.entries(place, |number| self.is_live(number)).unwrap_or_default();
            let alike = same_hash(&entries).flat_map(|(a, b)| [a, b]).collect();
            missing.extend(self.missing_of_files(&alike).into_iter().map(|piece| (piece.id(), piece)));
        }
        missing.into_values().collect()
    }

    /// The state as a checkpoint. What could not be told before pieces were read is an error now: a file that changed its path, and two
    /// files with one path.
    pub fn to_checkpoint(&self) -> Result<Checkpoint> {
        let mut pieces = BTreeMap::new();
        let mut manifest = self.clone();
        manifest.checkpoint = self.number;
        for (number, part) in (0u32..).zip(&mut manifest.parts).filter(|(_, part)| !part.is_stored()) {
            self.check_schemas(part)?;
            let (stored, piece) = part.store(number)?;
            pieces.extend(piece);
            *part = Arc::new(stored);
        }
        let left = self.pages_left()?;
        for (place, page) in self.changed_pages(&left) {
            let entries = page.entries(place, |number| self.is_live(number))?;
            same_hash(&entries).try_for_each(|(a, b)| self.check_paths_differ(a, b))?;
            let (stored, piece) = page.store(place, entries)?;
            pieces.extend(piece);
            if let Some(page) = manifest.pages.get_mut(place.page as usize) {
                *page = Arc::new(stored);
            }
        }
        Ok(Checkpoint { root: manifest.encode_root()?, pieces: pieces.into_iter().collect(), manifest })
    }

    /// The state of a checkpoint, from the bytes of its root. Its pieces are not read.
    pub fn from_root(bytes: &[u8]) -> Result<Self> {
        let WholeFile { id, directory } = open_whole(bytes, ContentKind::Checkpoint)?;
        let mut input = ByteReader::new("the root of a checkpoint", directory);
        let mut manifest = Self::new(id);
        (manifest.number, manifest.created_ms) = (input.u64()?, input.i64()?);
        manifest.checkpoint = manifest.number;
        manifest.decode_schemas(&mut input)?;
        manifest.decode_files(&mut input)?;
        manifest.decode_indexes(&mut input)?;
        if input.flag("the presence of updates")? {
            manifest.updates = Some(Arc::new(ManifestUpdates::decode_rest(&mut input)?));
        }
        input.finish()?;
        Ok(manifest)
    }

    fn encode_root(&self) -> Result<Vec<u8>> {
        let mut out = ByteWriter::new();
        out.u64(self.number);
        out.i64(self.created_ms);
        out.varint(u64::from(self.next_schema));
        out.length(self.schemas.len());
        for (number, schema) in &*self.schemas {
            out.varint(u64::from(*number));
            out.blob("the schema of a data file", schema, MAX_SCHEMA_LENGTH)?;
        }
        out.varint(u64::from(self.next_file));
        for (number, part) in (0u32..).zip(&self.parts) {
            part.live.encode(slots_of(number, self.next_file), &mut out);
            part.stored.iter().for_each(|stored| out.bytes(&stored.id.0));
        }
        for page in &self.pages {
            let count: u32 = page.stored().iter().map(|stored| stored.count).sum();
            out.varint(u64::from(count));
            page.stored().iter().for_each(|stored| out.bytes(&stored.id.0));
        }
        out.length(self.indexes.len());
        self.indexes.values().try_for_each(|index| index.encode(&mut out))?;
        out.length(self.segments.len());
        self.segments.values().try_for_each(|segment| segment.encode(&mut out))?;
        out.flag(self.updates.is_some());
        if let Some(updates) = &self.updates {
            updates.encode(&mut out)?;
        }
        ContainerWriter::new(ContentKind::Checkpoint, self.store_id).finish(out.as_slice())
    }

    fn decode_schemas(&mut self, input: &mut ByteReader<'_>) -> Result<()> {
        self.next_schema = input.varint_u32("the number of the next schema")?;
        let count = input.count("the number of schemas", 2)?;
        let mut schemas = Vec::with_capacity(count);
        for _ in 0..count {
            let number = input.varint_u32("the number of a schema")?;
            if number >= self.next_schema {
                let expected = format_args!("below {}", self.next_schema).to_string();
                return Err(FormatError::invalid("the number of a schema", number, expected));
            }
            schemas.push((number, Arc::<[u8]>::from(input.blob("the schema of a data file", MAX_SCHEMA_LENGTH)?)));
        }
        ascending("the numbers of schemas", schemas.iter().map(|(number, _)| number))?;
        let mut seen = HashSet::new();
        schemas.iter().try_for_each(|(_, schema)| unique(&mut seen, "the schema of a data file", &**schema))?;
        self.schemas = Arc::new(schemas.into_iter().collect());
        Ok(())
    }

    fn decode_files(&mut self, input: &mut ByteReader<'_>) -> Result<()> {
        self.next_file = input.varint_u32("the number of the next file")?;
        let count = self.next_file.div_ceil(PART_FILES);
        check_limit("the number of parts", u64::from(count), input.remaining() as u64)?;
        let none = Arc::new(FilePart::default());
        self.parts = Vec::with_capacity(count as usize);
        for part in 0..count {
            let live = Live::decode(slots_of(part, self.next_file), input)?;
            self.file_count += u64::from(live.len());
            self.parts.push(match live.len() {
                0 => Arc::clone(&none),
                _ => Arc::new(FilePart::of_stored(StoredFiles::new(PieceId(input.array()?), part, live))),
            });
        }
        self.decode_pages(input)
    }

    fn decode_pages(&mut self, input: &mut ByteReader<'_>) -> Result<()> {
        let bits = PagePlace::bits_for(self.file_count);
        check_limit("the number of pages", 1 << bits, input.remaining() as u64)?;
        let none = Arc::new(PathPage::default());
        self.pages = Vec::with_capacity(1 << bits);
        let mut entries = 0u64;
        for page in 0..1 << bits {
            let count = input.varint_u32("the number of entries of a page")?;
            entries += u64::from(count);
            let place = PagePlace { bits, page };
            self.pages.push(match count {
                0 => Arc::clone(&none),
                _ => Arc::new(PathPage::of_stored(StoredPaths::new(PieceId(input.array()?), place, count))),
            });
        }
        if entries != self.file_count {
            return Err(FormatError::invalid("the entries of all pages", entries, self.file_count));
        }
        Ok(())
    }

    fn decode_indexes(&mut self, input: &mut ByteReader<'_>) -> Result<()> {
        let count = input.count("the number of indexes", ManifestIndex::MIN_BYTES)?;
        let indexes = (0..count).map(|_| ManifestIndex::decode(input)).collect::<Result<Vec<_>>>()?;
        ascending("the names of indexes", indexes.iter().map(|index| &index.name))?;
        let mut ids = HashSet::with_capacity(count);
        for index in &indexes {
            unique(&mut ids, "the id of an index", &index.id)?;
            index.key_type.validate()?;
        }
        let count = input.count("the number of segments", ManifestSegment::MIN_BYTES)?;
        let segments = (0..count).map(|_| ManifestSegment::decode(input)).collect::<Result<Vec<_>>>()?;
        ascending("the ids of segments", segments.iter().map(|segment| segment.id))?;
        for segment in &segments {
            segment.validate()?;
            if !ids.contains(&segment.index_id) {
                let got = PieceId(segment.index_id);
                return Err(FormatError::invalid("the index of a segment", got, "a declared index"));
            }
            if segment.files.end() > self.next_file {
                let expected = format_args!("below {}", self.next_file).to_string();
                return Err(FormatError::invalid("a file of a segment", segment.files.end() - 1, expected));
            }
        }
        self.segments = Arc::new(segments.into_iter().map(|segment| (segment.id, Arc::new(segment))).collect());
        self.indexes = Arc::new(indexes.into_iter().map(|index| (index.name.clone(), index)).collect());
        Ok(())
    }

    /// The pages that have entries of files which left.
    fn pages_left(&self) -> Result<HashSet<u32>> {
        let mut pages = HashSet::new();
        for part in &self.parts {
            let hashes = part.left()?.into_iter().map(|(_, file)| path_hash(&file.path));
            pages.extend(hashes.map(|hash| PagePlace::of(hash, self.page_bits()).page));
        }
        Ok(pages)
    }

    /// The pages that are to be stored.
    fn changed_pages<'a>(&'a self, left: &'a HashSet<u32>) -> impl Iterator<Item = (PagePlace, &'a Arc<PathPage>)> {
        let bits = self.page_bits();
        let placed = (0..).map(move |page| PagePlace { bits, page }).zip(&self.pages);
        placed.filter(|(place, page)| left.contains(&place.page) || !page.is_stored(*place))
    }

    fn check_paths_differ(&self, a: u32, b: u32) -> Result<()> {
        let (Some(first), Some(second)) = (self.file(a)?, self.file(b)?) else { return Ok(()) };
        if first.path != second.path {
            return Ok(());
        }
        let got = format_args!("{:?}, of the files {a} and {b}", first.path).to_string();
        Err(FormatError::invalid("the path of a data file", got, "unique"))
    }

    fn check_schemas(&self, part: &FilePart) -> Result<()> {
        part.files().try_for_each(|entry| {
            let (_, file) = entry?;
            match self.schemas.get(&file.schema) {
                Some(_) => Ok(()),
                None => Err(FormatError::invalid("the schema of a file", file.schema, "one that is there")),
            }
        })
    }
}

/// How many numbers a part has.
fn slots_of(part: u32, next_file: u32) -> u32 {
    next_file.saturating_sub(first_of(part)).min(PART_FILES)
}
