//! Which files a lookup is about, found without a look at each file of the table.
//!
//! ```text
//! id = 42 AND kind = 'a'     the segments of `id` are searched   ─▶ files with a hit                     ┐
//!                            settled files that no segment covers, files in doubt, files not indexed     ┴▶ are probed
//!                            all other files                     ─▶ are ruled out, and nobody looks at them
//! ```
//!
//! Invariant: only settled files are ruled out. A segment that was read has to cover such a file, and to say of it what the manifest says. The
//! condition has to be one that each selected row meets. All other files are candidates (law 2).

use std::sync::Arc;

use lakemark_format::{FileNumbers, Manifest, ManifestIndex, ManifestSegment};
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};
use tokio::task::JoinSet;

use super::conjunct_order::{conjuncts, most_selective};
use super::cost::SearchPlan;
use super::directory_count::{CountedSegments, whole_segments};
use super::segment_search::{ReadContext, SegmentCandidates, SegmentRequest, probe_segment, remembered};
use crate::index_kind::IndexKind;
use crate::options::ProbeOptions;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::store::manifests::file_of;

/// Fewer files are looked at one by one.
const LEAST_FILES: usize = 32;
/// If more than one of so many files is a candidate, all files are looked at.
const LEAST_RULED_OUT: usize = 2;
/// So many segments are searched at once: that takes about as long as searching zones before.
const FEW_SEGMENTS: usize = 8;

/// The files of a snapshot that a predicate may be true of; no other file has a row of it that is not counted.
pub(super) struct CandidateFiles {
    /// By place, ascending.
    pub places: Vec<usize>,
    /// The leaf that was searched for, by its place.
    pub leaf: usize,
    /// How many rows of other files pass the leaf, if that is known.
    pub leaf_rows: Option<u64>,
    /// Rows of other files that pass the predicate, by the place of the first file of each segment, ascending.
    pub counted: Vec<(usize, u64)>,
}

/// A condition that each selected row meets, and the index that it is searched in.
struct NarrowingLeaf<'a> {
    place: usize,
    leaf: &'a Leaf,
    index: &'a ManifestIndex,
}

/// The files that a predicate may be true of. None if all files have to be looked at: no index of a condition finds few files.
pub(super) async fn candidate_files(
    snapshot: &Snapshot,
    predicate: &Predicate,
    options: &ProbeOptions,
    choice: &SearchPlan,
    reads: &ReadContext,
) -> Option<CandidateFiles> {
    let (store, manifest) = (snapshot.store.as_ref()?, snapshot.manifest.as_deref()?);
    if are_few(snapshot, store) {
        return None;
    }
    let NarrowingLeaf { place, leaf, index } = narrowing_leaf(snapshot, predicate, options, choice)?;
    let segments: Vec<_> = manifest.segments().filter(|segment| segment.index_id == index.id).collect();
    let mut candidates = Candidates::new(snapshot, manifest);
    candidates.uncovered_by(segments.iter().flat_map(|segment| segment.files.ranges().iter().cloned()).collect())?;
    let requests = segments.into_iter().map(|segment| request(place, leaf, index, segment)).collect();
    let searched = search_all(store, requests, reads).await;
    searched.iter().for_each(|(request, searched)| reads.keep(store, request, &searched.found));
    let mut covered = Vec::new();
    for (request, SegmentCandidates { segment, found: rows }) in &searched {
        let agreed = snapshot.matched.verdicts.agreed(manifest, &request.segment, segment);
        covered.extend(agreed.ranges().iter().cloned());
        let files = &segment.directory.files;
        candidates.add_paths(rows.hits().filter_map(|hit| files.get(hit)).map(|file| file.path.as_str()))?;
    }
    let places = candidates.with_uncovered(covered.into_iter().collect())?;
    Some(CandidateFiles { places, leaf: place, leaf_rows: Some(0), counted: Vec::new() })
}

/// The files that are not in a segment which directories count as a whole. None if all files have to be looked at.
pub(super) async fn uncounted_files(
    snapshot: &Snapshot,
    predicate: &Predicate,
    options: &ProbeOptions,
    reads: &ReadContext,
) -> Option<CandidateFiles> {
    let (store, manifest) = (snapshot.store.as_ref()?, snapshot.manifest.as_deref()?);
    if !options.count_only || are_few(snapshot, store) {
        return None;
    }
    let counted = whole_segments(snapshot, predicate, &reads.counter).await?;
    let CountedSegments { rows: counted, files, are_of_leaf } = counted;
    let places = Candidates::new(snapshot, manifest).with_uncovered(files)?;
    let leaf_rows = are_of_leaf.then(|| counted.iter().map(|(_, rows)| rows).sum::<u64>());
    Some(CandidateFiles { places, leaf: 0, leaf_rows, counted })
}

/// Whether files are so few that they are looked at one by one.
fn are_few(snapshot: &Snapshot, store: &Store) -> bool {
    snapshot.files().len() < LEAST_FILES && !store.narrows_always()
}

/// Candidates as they are found.
struct Candidates<'a> {
    snapshot: &'a Snapshot,
    manifest: &'a Manifest,
    places: Vec<usize>,
    /// Of more candidates than this nothing is won.
    most: usize,
}

impl<'a> Candidates<'a> {
    fn new(snapshot: &'a Snapshot, manifest: &'a Manifest) -> Self {
        let most = snapshot.files().len() / LEAST_RULED_OUT;
        Self { snapshot, manifest, places: snapshot.matched.digest.unsettled().collect(), most }
    }

    /// The settled files that are not among these; none if they are too many.
    fn uncovered_by(&self, covered: FileNumbers) -> Option<FileNumbers> {
        let open = self.snapshot.matched.digest.numbers().difference(&covered);
        let count = usize::try_from(open.len()).ok()?.checked_add(self.places.len())?;
        (count <= self.most).then_some(open)
    }

    /// Adds the files of these paths that the snapshot has. None once they are too many.
    fn add_paths<'p>(&mut self, paths: impl Iterator<Item = &'p str>) -> Option<()> {
        for path in paths {
            self.places.extend(self.snapshot.place_of(path));
            if self.places.len() > self.most {
                return None;
            }
        }
        Some(())
    }

    /// All candidates, once it is known which files are covered. None if they are too many.
    fn with_uncovered(mut self, covered: FileNumbers) -> Option<Vec<usize>> {
        let manifest = self.manifest;
        let open = self.uncovered_by(covered)?;
        let files = open.iter().filter_map(|number| file_of(manifest, number));
        self.add_paths(files.map(|file| file.path.as_str()))?;
        self.places.sort_unstable();
        self.places.dedup();
        Some(self.places)
    }
}

fn request(place: usize, leaf: &Leaf, index: &ManifestIndex, segment: &Arc<ManifestSegment>) -> SegmentRequest {
    let (test, index, segment) = (leaf.test.clone(), index.clone(), Arc::clone(segment));
    SegmentRequest { leaf: place, test, index, segment, files: Vec::new() }
}

/// Searches these segments. What cannot be read is left out: its files are candidates, and the probe of these reports it.
async fn search_all(
    store: &Arc<Store>,
    requests: Vec<SegmentRequest>,
    reads: &ReadContext,
) -> Vec<(SegmentRequest, SegmentCandidates)> {
    let (mut found, mut tasks) = (Vec::with_capacity(requests.len()), JoinSet::new());
    for request in requests {
        // What is remembered needs no task: to start one would take longer.
        if let Some(known) = remembered(store, &request, reads) {
            found.push((request, known));
            continue;
        }
        let (store, reads) = (Arc::clone(store), reads.clone());
        tasks.spawn(async move {
            match probe_segment(&store, &request, &reads).await {
                Ok(searched) => Some((request, searched)),
                Err(damage) => {
                    reads.keep_damage(&store, &request, damage);
                    None
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        found.extend(done.ok().flatten());
    }
    found
}

/// The condition and the index that files are ruled out by: of those on single keys the most selective, of a sole condition any.
fn narrowing_leaf<'a>(
    snapshot: &'a Snapshot,
    predicate: &'a Predicate,
    options: &ProbeOptions,
    choice: &SearchPlan,
) -> Option<NarrowingLeaf<'a>> {
    let leaves = predicate.leaves();
    // Folders rule files out before anything is read.
    let is_partition = |leaf: &&Leaf| snapshot.partition_columns().iter().any(|field| *field.name() == leaf.column);
    if leaves.iter().any(is_partition) {
        return None;
    }
    let is_sole = matches!(predicate, Predicate::Leaf(_));
    let possible = conjuncts(predicate).into_iter().filter_map(|place| {
        let leaf: &'a Leaf = leaves.get(place).copied()?;
        let Test::Ranges(ranges) = &leaf.test else { return None };
        let is_searched = !choice.skipped.get(place).copied().unwrap_or(false) && (is_sole || ranges.are_points());
        let index = is_searched.then(|| narrowing_index(snapshot, leaf, ranges, options)).flatten()?;
        Some(NarrowingLeaf { place, leaf, index })
    });
    let possible: Vec<NarrowingLeaf<'a>> = possible.collect();
    let places: Vec<usize> = possible.iter().map(|narrowing| narrowing.place).collect();
    let of_place = |place: usize| possible.iter().find(|narrowing| narrowing.place == place);
    let finds_keys = |place| of_place(place).is_some_and(|of| of.index.kind.known() == Some(IndexKind::Key));
    let first = most_selective(&places, &leaves, finds_keys, &choice.shares)?;
    possible.into_iter().find(|narrowing| narrowing.place == first)
}

/// The index that a condition is searched in: one that knows rows, or one that knows zones where it has far fewer segments.
fn narrowing_index<'a>(
    snapshot: &'a Snapshot,
    leaf: &Leaf,
    ranges: &KeyRanges,
    options: &ProbeOptions,
) -> Option<&'a ManifestIndex> {
    let manifest = snapshot.manifest.as_deref()?;
    let segments_of = |index: &ManifestIndex| manifest.segments().filter(|of| of.index_id == index.id).count();
    let indexes = snapshot.indexes_for(leaf);
    let is_exact = |index: &&ManifestIndex| index.kind.known().is_some_and(IndexKind::is_exact);
    let exact = indexes.iter().copied().find(is_exact);
    let zones = indexes.iter().copied().filter(|index| !is_exact(index)).min_by_key(|index| segments_of(index));
    let zones = zones.filter(|_| ranges.are_points());
    let found = match (exact, zones) {
        (Some(exact), Some(zones)) => {
            let (of_exact, of_zones) = (segments_of(exact), segments_of(zones));
            if of_exact > FEW_SEGMENTS && of_zones * 2 <= of_exact { zones } else { exact }
        }
        (exact, zones) => exact.or(zones)?,
    };
    // Directories count the rows of few values without reading any.
    let counts_better = options.count_only && (found.kind.known() == Some(IndexKind::Bitmap) || !ranges.are_points());
    (!counts_better).then_some(found)
}
