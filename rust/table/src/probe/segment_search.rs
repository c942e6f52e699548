//! Searching one segment for a test: which rows of its files pass. The process remembers the rows of earlier searches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use lakemark_format::{ManifestIndex, ManifestSegment};
use lakemark_index::bitmap::{LeafMatches, LeafSearch, LeavesFor, Search, SegmentRows};
use lakemark_index::zones::ZoneSearch;
use lakemark_index::{Leaf, Test};

use super::found_rows::FoundRows;
use crate::snapshot::Snapshot;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::storage::cache::Cache;
use crate::store::Store;
use crate::store::leaf_cache::read_remembered;
use crate::store::parts::{LEAST_BLOCKS_OF_PART, in_parts};
use crate::store::segments::{Damage, ReadCounter, Segment, SegmentKey, segment_key};

/// Bytes of rows found that the process remembers.
const CACHE_BYTES: u64 = 256 << 20;
/// Of a search of more leaves none is remembered: it would take the place of all others.
const REMEMBERED_LEAVES: usize = 2048;

/// A test of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CandidatesKey {
    segment: SegmentKey,
    test: Test,
}

impl CandidatesKey {
    fn of(store: &Store, request: &SegmentRequest) -> Self {
        Self { segment: segment_key(store, &request.segment), test: request.test.clone() }
    }
}

/// The rows of a segment that pass a test. A segment never changes, so they stay true. Whether the data files are still the indexed ones is
/// checked each time.
static FOUND: LazyLock<Cache<CandidatesKey, Arc<FoundRows>>> = LazyLock::new(|| Cache::new(CACHE_BYTES));

/// What was found in a segment, or why it cannot be searched.
type SearchedRows = Result<Arc<FoundRows>, Damage>;

/// What the searches of a probe share.
#[derive(Clone, Debug)]
pub(crate) struct ReadContext {
    pub counter: Arc<ReadCounter>,
    /// Whether the rows that others found are used, and those found here are remembered.
    pub selection_cache: bool,
    /// What this probe has found already, or why a segment cannot be searched.
    searched: Arc<Mutex<HashMap<CandidatesKey, SearchedRows>>>,
}

impl ReadContext {
    /// For a probe that has searched nothing yet.
    pub(super) fn new(counter: Arc<ReadCounter>, selection_cache: bool) -> Self {
        Self { counter, selection_cache, searched: Arc::default() }
    }

    /// Keeps what was found for the rest of this probe.
    pub(super) fn keep(&self, store: &Store, request: &SegmentRequest, found: &Arc<FoundRows>) {
        self.searched().insert(CandidatesKey::of(store, request), Ok(Arc::clone(found)));
    }

    /// Keeps for the rest of this probe that a segment is damaged. Where the store failed, another read may do.
    pub(super) fn keep_damage(&self, store: &Store, request: &SegmentRequest, damage: Damage) {
        if !damage.is_unread {
            self.searched().insert(CandidatesKey::of(store, request), Err(damage));
        }
    }

    fn kept(&self, key: &CandidatesKey) -> Option<Arc<FoundRows>> {
        self.searched().get(key).and_then(|found| found.as_ref().ok()).cloned()
    }

    fn damage(&self, key: &CandidatesKey) -> Option<Damage> {
        self.searched().get(key).and_then(|found| found.as_ref().err()).cloned()
    }

    fn searched(&self) -> MutexGuard<'_, HashMap<CandidatesKey, SearchedRows>> {
        self.searched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A segment to be probed for one leaf.
pub(super) struct SegmentRequest {
    pub leaf: usize,
    pub test: Test,
    pub index: ManifestIndex,
    pub segment: Arc<ManifestSegment>,
    /// Files of the snapshot that the segment may answer for.
    pub files: Vec<usize>,
}

/// The segments of these indexes to probe for the open files: for each file the first one that covers it.
pub(super) fn segment_requests(
    snapshot: &Snapshot,
    place: usize,
    leaf: &Leaf,
    indexes: &[&ManifestIndex],
    is_open: impl Fn(usize) -> bool,
) -> Vec<SegmentRequest> {
    let Some(manifest) = snapshot.manifest.as_ref().filter(|_| !indexes.is_empty()) else { return Vec::new() };
    let mut open = NumberedFiles::of(snapshot, |file, _| is_open(file));
    let mut requests = Vec::new();
    for index in indexes {
        for segment in manifest.segments().filter(|segment| segment.index_id == index.id) {
            let files = open.take(&segment.files);
            if !files.is_empty() {
                let (index, segment) = ((*index).clone(), Arc::clone(segment));
                requests.push(SegmentRequest { leaf: place, test: leaf.test.clone(), index, segment, files });
            }
        }
    }
    requests
}

/// What a segment has for a test.
pub(super) struct SegmentCandidates {
    pub segment: Segment,
    pub found: Arc<FoundRows>,
}

/// What this probe has found in a segment, or what the process remembers of it.
pub(super) fn remembered(
    store: &Arc<Store>,
    request: &SegmentRequest,
    reads: &ReadContext,
) -> Option<SegmentCandidates> {
    let key = CandidatesKey::of(store, request);
    let found = reads.kept(&key).or_else(|| FOUND.get(&key).filter(|_| reads.selection_cache))?;
    Some(SegmentCandidates { segment: Segment::remembered(store, &request.segment)?, found })
}

/// The rows of a segment: one round of reads if it has zones, else two, behind that of inner pages that nobody has read yet. Leaves with
/// columns that ride along are remembered under `leaves_of`: somebody may want the values of the rows next, or search for other keys in the
/// same leaves.
async fn search(
    segment: &Segment,
    test: &Test,
    leaves_of: Option<&SegmentKey>,
    counter: &Arc<ReadCounter>,
) -> Result<SegmentRows, Damage> {
    if segment.directory.encoding.has_zones() {
        let search = ZoneSearch::new(&segment.directory, test);
        let read = segment.read(&search.ranges(), counter).await?;
        return search.finish(&read).map_err(Damage::corrupt);
    }
    let opened = segment.with_leaves_of(test, LeavesFor::Rows, counter).await?;
    let segment = &*opened;
    let mut search = Search::new(&segment.directory, test);
    let leaves = search.split_leaves(LEAST_BLOCKS_OF_PART);
    let ranges = search.first_ranges();
    let remembers = leaves_of.filter(|_| !segment.directory.riding.is_empty());
    let first = match remembers {
        Some(key) => read_remembered(segment, key, &ranges, counter).await?,
        None => segment.read(&ranges, counter).await?,
    };
    let wanted = search.second_ranges(&first).map_err(Damage::corrupt)?;
    if let Some(leaves) = leaves.map(Arc::new) {
        let parts = search_leaves(segment, &leaves, remembers, counter).await?;
        return search.finish_parts(&leaves, &parts).map_err(Damage::corrupt);
    }
    let second = segment.read(&wanted, counter).await?;
    search.finish(&second).map_err(Damage::corrupt)
}

/// The rows of all leaves that a search of a packed tree reads. Leaves are remembered as by [`search`], unless they are too many for it.
async fn search_leaves(
    segment: &Segment,
    leaves: &Arc<LeafSearch>,
    leaves_of: Option<&SegmentKey>,
    counter: &Arc<ReadCounter>,
) -> Result<Vec<LeafMatches>, Damage> {
    let remembers = leaves_of.filter(|_| leaves.leaf_count() <= REMEMBERED_LEAVES);
    let run = |part: Range<usize>| {
        let (segment, leaves, counter) = (segment.clone(), Arc::clone(leaves), Arc::clone(counter));
        let remembers = remembers.cloned();
        async move {
            let directory = &segment.directory;
            let ranges = leaves.ranges(directory, part.clone());
            let bytes = match &remembers {
                Some(key) => read_remembered(&segment, key, &ranges, &counter).await?,
                None => segment.read(&ranges, &counter).await?,
            };
            let mut found = leaves.find(directory, part, &bytes).map_err(Damage::corrupt)?;
            let long = segment.read(&found.long_ranges(), &counter).await?;
            found.take_long(&long, directory.universe).map_err(Damage::corrupt)?;
            Ok(found)
        }
    };
    in_parts(segment, leaves.leaf_count(), run).await
}

/// Opens a segment and searches it, unless this probe knows that it is damaged.
pub(super) async fn probe_segment(
    store: &Arc<Store>,
    request: &SegmentRequest,
    reads: &ReadContext,
) -> Result<SegmentCandidates, Damage> {
    let key = CandidatesKey::of(store, request);
    if let Some(damage) = reads.damage(&key) {
        return Err(damage);
    }
    let segment = Segment::open(store, &request.segment, &request.index, &reads.counter).await?;
    let leaves_of = Some(&key.segment).filter(|_| reads.selection_cache);
    let found = search(&segment, &request.test, leaves_of, &reads.counter).await?;
    let found = Arc::new(FoundRows::of(found, &segment.directory));
    if reads.selection_cache {
        let bytes = (found.memory_bytes() + key.test.memory_bytes() + size_of_val(&key)) as u64;
        FOUND.insert(key, Arc::clone(&found), bytes);
    }
    Ok(SegmentCandidates { segment, found })
}
