//! Opening and reading segments: one read of the tail opens a segment, and searches make coalesced reads.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use lakemark_format::zones::Zones;
use lakemark_format::{
    Manifest, ManifestIndex, ManifestSegment, SegmentDirectory, SegmentFile, Trailer, open_tail, physical_range,
    read_logical,
};
use lakemark_index::Reason;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::{ErrorKind, Result, kind_of_storage};
use crate::storage::cache::Cache;
use crate::store::Store;
use crate::store::hashed::key_type_of_segments;

/// One read of this many bytes opens most segments.
pub(super) const TAIL_BYTES: u64 = 64 * 1024;
/// Ranges that are this close are read at once: the bytes between them cost less than another request.
const GAP_BYTES: u64 = 64 * 1024;
/// The same on a local disk, where a read of a page costs little more than its bytes.
const LOCAL_GAP_BYTES: u64 = 4 * 1024;
/// Bytes of directories that the process remembers.
const CACHE_BYTES: u64 = 256 << 20;

/// Counts reads of the store.
#[derive(Debug, Default)]
pub(crate) struct ReadCounter {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCounter {
    fn add(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What was counted by now.
    pub(crate) fn totals(&self) -> ReadTotals {
        ReadTotals { reads: self.reads.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

/// Reads of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadTotals {
    /// How many there were.
    pub reads: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

/// Why a segment cannot be searched.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub reason: Reason,
    pub problem: String,
    /// Whether the store failed, so that nothing is known of the bytes.
    pub is_unread: bool,
}

impl Damage {
    pub(crate) fn corrupt(problem: impl ToString) -> Self {
        Self { reason: Reason::SegmentCorrupt, problem: problem.to_string(), is_unread: false }
    }

    fn read(error: &object_store::Error) -> Self {
        let missing = matches!(error, object_store::Error::NotFound { .. });
        let reason = if missing { Reason::SegmentMissing } else { Reason::SegmentCorrupt };
        let problem = if missing { "the file is missing".to_owned() } else { error.to_string() };
        Self { reason, problem, is_unread: kind_of_storage(error) == ErrorKind::Io }
    }
}

/// A segment that is open for reading.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    store: Arc<Store>,
    path: String,
    pub directory: Arc<SegmentDirectory>,
    by_path: Arc<OnceLock<Vec<u32>>>,
    trailer: Trailer,
}

#[derive(Clone, Debug)]
struct Opened {
    directory: Arc<SegmentDirectory>,
    /// The places of the directory's files in the order of their paths, once somebody asks for a file.
    by_path: Arc<OnceLock<Vec<u32>>>,
    trailer: Trailer,
}

/// A data file in the directory of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileOfSegment<'a> {
    /// Its place in the directory.
    pub place: usize,
    pub entry: &'a SegmentFile,
}

/// What is read to open a segment.
struct ReadDirectory {
    opened: Opened,
    /// Bytes that it takes in memory, about.
    memory_bytes: u64,
}

/// The key by which the content of a segment is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentKey {
    /// The address of the store.
    store: String,
    /// The id of the segment.
    id: [u8; 16],
    /// Its length in bytes.
    length: u64,
}

impl SegmentKey {
    /// Bytes of memory beside its own.
    pub(crate) fn text_bytes(&self) -> usize {
        self.store.len()
    }
}

static DIRECTORIES: LazyLock<Cache<SegmentKey, Opened>> = LazyLock::new(|| Cache::new(CACHE_BYTES));

/// The key by which a segment is remembered.
pub(crate) fn segment_key(store: &Store, segment: &ManifestSegment) -> SegmentKey {
    SegmentKey { store: store.text().to_owned(), id: segment.id, length: segment.length }
}

impl Segment {
    /// Opens a segment that the manifest names, from memory if the process has opened it before.
    pub(crate) async fn open(
        store: &Arc<Store>,
        segment: &ManifestSegment,
        index: &ManifestIndex,
        counter: &ReadCounter,
    ) -> Result<Self, Damage> {
        if let Some(remembered) = Self::remembered(store, segment) {
            return Ok(remembered);
        }
        let ReadDirectory { opened, memory_bytes } = read_directory(store, segment, index, counter).await?;
        DIRECTORIES.insert(segment_key(store, segment), opened.clone(), memory_bytes);
        Ok(Self::of(store, segment, opened))
    }

    /// A segment that the process has opened before and still remembers.
    pub(crate) fn remembered(store: &Arc<Store>, segment: &ManifestSegment) -> Option<Self> {
        Some(Self::of(store, segment, DIRECTORIES.get(&segment_key(store, segment))?))
    }

    fn of(store: &Arc<Store>, segment: &ManifestSegment, opened: Opened) -> Self {
        let Opened { directory, by_path, trailer } = opened;
        Self { store: Arc::clone(store), path: segment.path.clone(), directory, by_path, trailer }
    }

    /// What the segment has under the path of a data file.
    pub(crate) fn file(&self, path: &str) -> Option<FileOfSegment<'_>> {
        let files = &self.directory.files;
        let path_at = |place: &u32| files.get(*place as usize).map(|entry| entry.path.as_str());
        let by_path = self.by_path.get_or_init(|| {
            let mut places: Vec<u32> = (0..).take(files.len()).collect();
            places.sort_unstable_by(|one, other| path_at(one).cmp(&path_at(other)));
            places
        });
        let at = by_path.binary_search_by(|place| path_at(place).cmp(&Some(path))).ok()?;
        let place = *by_path.get(at)? as usize;
        Some(FileOfSegment { place, entry: files.get(place)? })
    }

    /// Opens a segment as it is on the disk now.
    pub(crate) async fn open_afresh(
        store: &Arc<Store>,
        segment: &ManifestSegment,
        index: &ManifestIndex,
        counter: &ReadCounter,
    ) -> Result<Self, Damage> {
        let read = read_directory(store, segment, index, counter).await?;
        Ok(Self::of(store, segment, read.opened))
    }

    /// The key by which what is read of the segment is remembered.
    pub(super) fn key(&self) -> SegmentKey {
        let store = self.store.text().to_owned();
        SegmentKey { store, id: self.directory.segment_id, length: self.trailer.file_length }
    }

    /// The same segment, of which the directory says other value blocks.
    pub(super) fn with_directory(&self, directory: SegmentDirectory) -> Self {
        Self { directory: Arc::new(directory), ..self.clone() }
    }

    /// Whether the segment is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.store.is_local()
    }

    /// Reads logical ranges, checking every page; neighbours are read at once.
    pub(crate) async fn read(&self, ranges: &[Range<u64>], counter: &ReadCounter) -> Result<Vec<Bytes>, Damage> {
        let physical: Vec<Range<u64>> =
            ranges.iter().map(|range| physical_range(range.clone(), &self.trailer)).collect();
        let gap = if self.is_local() { LOCAL_GAP_BYTES } else { GAP_BYTES };
        let merged = coalesce(&physical, gap);
        let mut parts: Vec<ReadPart> = Vec::with_capacity(merged.len());
        if !merged.is_empty() {
            let path = self.store.object_path(&self.path);
            let read =
                self.store.object_store().get_ranges(&path, &merged).await.map_err(|error| Damage::read(&error))?;
            for (range, bytes) in merged.iter().zip(read) {
                counter.add(bytes.len());
                parts.push(ReadPart { start: range.start, bytes });
            }
        }
        let mut logical = Vec::with_capacity(ranges.len());
        for (range, place) in ranges.iter().zip(&physical) {
            let pages =
                slice_of(&parts, place).ok_or_else(|| Damage::corrupt("the segment is shorter than it should be"))?;
            logical.push(self.logical(pages, range)?);
        }
        Ok(logical)
    }

    /// Where the pages of a logical range are in the file.
    pub(super) fn physical(&self, range: &Range<u64>) -> Range<u64> {
        physical_range(range.clone(), &self.trailer)
    }

    /// Where the pages of the segment end in the file.
    pub(super) fn pages_end(&self) -> u64 {
        self.trailer.directory_offset
    }

    /// Reads pages as they are, in one request.
    pub(super) async fn read_pages(&self, range: Range<u64>, counter: &ReadCounter) -> Result<Bytes, Damage> {
        let path = self.store.object_path(&self.path);
        let bytes = self.store.object_store().get_range(&path, range).await.map_err(|error| Damage::read(&error))?;
        counter.add(bytes.len());
        Ok(bytes)
    }

    /// The bytes of a logical range in its pages, which are checked.
    pub(super) fn logical(&self, pages: Bytes, range: &Range<u64>) -> Result<Bytes, Damage> {
        // Most ranges are within a page, of which they are a part.
        Ok(match read_logical(&pages, range.clone(), &self.trailer).map_err(Damage::corrupt)? {
            Cow::Borrowed(part) => pages.slice_ref(part),
            Cow::Owned(parts) => parts.into(),
        })
    }
}

/// Bytes of a segment from a place on.
struct ReadPart {
    start: u64,
    bytes: Bytes,
}

/// The bytes of `place` among the parts that were read.
fn slice_of(parts: &[ReadPart], place: &Range<u64>) -> Option<Bytes> {
    if place.is_empty() {
        return Some(Bytes::new());
    }
    let part = parts.get(parts.partition_point(|part| part.start <= place.start).checked_sub(1)?)?;
    let from = usize::try_from(place.start - part.start).ok()?;
    let to = usize::try_from(place.end - part.start).ok()?;
    (from <= to && to <= part.bytes.len()).then(|| part.bytes.slice(from..to))
}

/// The ranges in their order; ranges that are within so many bytes of each other become one.
fn coalesce(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

async fn read_directory(
    store: &Arc<Store>,
    segment: &ManifestSegment,
    index: &ManifestIndex,
    counter: &ReadCounter,
) -> Result<ReadDirectory, Damage> {
    let path = store.object_path(&segment.path);
    let start = segment.length.saturating_sub(TAIL_BYTES);
    let read = async |range: Range<u64>| {
        let expected = range.end - range.start;
        let bytes = store.object_store().get_range(&path, range).await.map_err(|error| Damage::read(&error))?;
        counter.add(bytes.len());
        if bytes.len() as u64 == expected { Ok(bytes) } else { Err(Damage::corrupt("the file was cut short")) }
    };
    let tail = read(start..segment.length).await?;
    let opened = open_tail(&tail, segment.length).map_err(Damage::corrupt)?;
    let trailer = opened.trailer;
    let rest;
    let bytes: &[u8] = match opened.directory {
        Some(directory) => directory,
        None => {
            rest = read(trailer.directory_range()).await?;
            trailer.check_directory(&rest).map_err(Damage::corrupt)?;
            &rest
        }
    };
    let directory = SegmentDirectory::decode(bytes, &trailer).map_err(Damage::corrupt)?;
    let same = directory.segment_id == segment.id
        && directory.index_id == segment.index_id
        && directory.key_type == key_type_of_segments(index)
        && directory.column == index.column
        // Zones do not give what values do.
        && index.kind.known().is_some_and(|kind| kind.is_exact() != directory.encoding.has_zones());
    if !same {
        return Err(Damage::corrupt("the file is another segment than the manifest says"));
    }
    // A decoded directory takes about four times its bytes, and zones what they take: packed, they may have no bits.
    let zones = directory.zones.as_ref().map_or(0, Zones::memory_bytes) as u64;
    let memory_bytes = bytes.len() as u64 * 4 + zones;
    let opened = Opened { directory: Arc::new(directory), by_path: Arc::default(), trailer };
    Ok(ReadDirectory { opened, memory_bytes })
}

/// The segments of these indexes that are missing or have another length, by one listing, unless a newer manifest does without them.
pub(crate) async fn missing<'a>(
    store: &Store,
    manifest: &'a Manifest,
    indexes: impl IntoIterator<Item = &ManifestIndex>,
) -> Result<Vec<&'a ManifestSegment>> {
    let wanted: HashSet<[u8; 16]> = indexes.into_iter().map(|index| index.id).collect();
    let mut named: Vec<&ManifestSegment> =
        manifest.segments().map(Arc::as_ref).filter(|segment| wanted.contains(&segment.index_id)).collect();
    if named.is_empty() {
        return Ok(named);
    }
    let lengths: HashMap<String, u64> = store.segment_lengths().await?;
    named.retain(|segment| lengths.get(&segment.path) != Some(&segment.length));
    let mut missing = Vec::new();
    for segment in named {
        // Some stores list late what was written just now.
        if store.length_of(&segment.path).await? != Some(segment.length) {
            missing.push(segment);
        }
    }
    if !missing.is_empty() {
        let still = store.named_segments().await?;
        missing.retain(|segment| still.contains(&segment.id));
    }
    Ok(missing)
}
