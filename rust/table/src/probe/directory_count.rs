//! Counting from segment directories alone, where a predicate is one test and whole segments count.
//!
//! ```text
//! all files of a segment are settled, and none of their rows is deleted    one number, and no file is looked at
//! some are in doubt, and fingerprints show that they are the same          one number, after a look at each file
//! else                                                                     left to a full probe
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::{FileNumbers, Manifest, ManifestIndex, ManifestSegment, SegmentFile};
use lakemark_index::bitmap::{CountSearch, LeavesFor};
use lakemark_index::{Leaf, Predicate, Test};

use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::store::manifests::file_of;
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Segments that are searched at a time.
const CONCURRENT_SEGMENTS: usize = 32;

/// A test whose rows are counted.
#[derive(Clone, Copy)]
struct CountedTest<'a> {
    leaf: &'a Leaf,
    /// Whether the rows that do not pass are counted.
    negated: bool,
}

impl<'a> CountedTest<'a> {
    /// The test that a predicate is, if it is one.
    fn of(predicate: &'a Predicate) -> Option<Self> {
        match predicate {
            Predicate::Leaf(leaf) => Some(Self { leaf, negated: false }),
            Predicate::Not(inner) => match inner.as_ref() {
                Predicate::Leaf(leaf) if leaf.test == Test::IsNull => Some(Self { leaf, negated: true }),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number of rows of a segment. None if its directory does not lead to it.
    async fn rows_of(self, opened: &Segment, counter: &ReadCounter) -> Result<Option<u64>, Damage> {
        let opened = opened.with_leaves_of(&self.leaf.test, LeavesFor::Counts, counter).await?;
        let directory = &opened.directory;
        let Some(mut count) = CountSearch::new(directory, &self.leaf.test) else { return Ok(None) };
        let first = opened.read(&count.first_ranges(), counter).await?;
        let wanted = count.second_ranges(&first).map_err(Damage::corrupt)?;
        let second = opened.read(&wanted, counter).await?;
        let rows = count.finish(&second).map_err(Damage::corrupt)?;
        Ok(Some(if self.negated { directory.rows() - rows.min(directory.rows()) } else { rows }))
    }
}

/// Segments that are counted as a whole. Nobody looks at their files.
#[derive(Default)]
pub(super) struct CountedSegments {
    /// The rows of each segment, by the place of its first file, ascending.
    pub rows: Vec<(usize, u64)>,
    /// The numbers of their files.
    pub files: FileNumbers,
    /// Whether these are rows that the only leaf is true of, and not those that it is not true of.
    pub are_of_leaf: bool,
}

/// Counts the segments whose files are settled and have no deleted row. None if these segments do not have most of the files.
pub(super) async fn whole_segments(
    snapshot: &Snapshot,
    predicate: &Predicate,
    counter: &ReadCounter,
) -> Option<CountedSegments> {
    let (test, manifest) = (CountedTest::of(predicate)?, snapshot.manifest.as_ref()?);
    let indexes = snapshot.exact_indexes_for(test.leaf);
    let mut open = snapshot.intact_numbers();
    let possible = indexes.iter().flat_map(|index| segments_within(manifest, index, &open));
    let possible: FileNumbers = possible.flat_map(|segment| segment.files.ranges().iter().cloned()).collect();
    if possible.is_empty() || possible.len() * 2 < snapshot.files().len() as u64 {
        return None;
    }
    let mut counted = CountedSegments { are_of_leaf: !test.negated, ..CountedSegments::default() };
    for index in indexes {
        let segments = segments_within(manifest, index, &open);
        // By number, since a closure over borrowed items would make the future one that cannot change threads.
        let segments = segments.as_slice();
        let counts: Vec<(usize, u64)> = stream::iter(0..segments.len())
            .map(|number| async move {
                let segment = segments.get(number)?;
                Some((number, rows_of_whole(snapshot, test, index, segment, counter).await?))
            })
            .buffer_unordered(CONCURRENT_SEGMENTS)
            .filter_map(|count| async move { count })
            .collect()
            .await;
        for (number, rows) in counts {
            // Of segments that share a file one counts.
            let segment = segments.get(number).filter(|segment| segment.files.difference(&open).is_empty());
            let Some(segment) = segment else { continue };
            let first = segment.files.iter().next().and_then(|number| file_of(manifest, number));
            let Some(first) = first.and_then(|file| snapshot.place_of(&file.path)) else { continue };
            open = open.difference(&segment.files);
            counted.files = counted.files.union(&segment.files);
            counted.rows.push((first, rows));
        }
    }
    counted.rows.sort_unstable();
    (!counted.rows.is_empty()).then_some(counted)
}

/// The segments of an index that have files of these numbers alone.
fn segments_within<'a>(
    manifest: &'a Manifest,
    index: &ManifestIndex,
    numbers: &FileNumbers,
) -> Vec<&'a ManifestSegment> {
    let own = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
    own.filter(|segment| segment.files.difference(numbers).is_empty()).collect()
}

/// The rows of a segment of settled files, if it says of each what the manifest says. Damage is reported by whoever probes its files.
async fn rows_of_whole(
    snapshot: &Snapshot,
    test: CountedTest<'_>,
    index: &ManifestIndex,
    segment: &ManifestSegment,
    counter: &ReadCounter,
) -> Option<u64> {
    let (store, manifest) = (snapshot.store.as_ref()?, snapshot.manifest.as_ref()?);
    let opened = Segment::open(store, segment, index, counter).await.ok()?;
    let files = opened.directory.files.len() as u64;
    let agreed = snapshot.matched.verdicts.agreed(manifest, segment, &opened).len();
    if agreed != files || segment.files.len() != files {
        return None;
    }
    test.rows_of(&opened, counter).await.ok().flatten()
}

/// Fills `counted` for the files of every segment that is fresh as a whole and free of deletion vectors. The count of the segment stands at
/// its first file. A full probe finds out what is left open.
pub(crate) async fn from_directories(
    snapshot: &Snapshot,
    predicate: &Predicate,
    counter: &ReadCounter,
    counted: &mut [Option<u64>],
) {
    let Some(test) = CountedTest::of(predicate) else { return };
    let Some(manifest) = &snapshot.manifest else { return };
    let is_whole = |file: usize| snapshot.files().get(file).is_some_and(|file| file.deleted.is_none());
    let mut places = NumberedFiles::of(snapshot, |file, _| is_whole(file));
    for index in snapshot.exact_indexes_for(test.leaf) {
        let segments = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
        // Files that another index of the column counted are not in `places` any more.
        let open: Vec<(&ManifestSegment, Vec<usize>)> =
            segments.filter_map(|segment| Some((segment, whole(manifest, segment, &places)?))).collect();
        // By number, since a closure over borrowed items would make the future one that cannot change threads.
        let open = open.as_slice();
        let counts: Vec<(Vec<usize>, u64)> = stream::iter(0..open.len())
            .map(|number| async move {
                let (segment, files) = open.get(number)?;
                let request = DirectoryCount { test, index, segment, files };
                // Damage is reported by the full probe that follows.
                let rows = count(snapshot, &request, counter).await.ok().flatten()?;
                Some((files.clone(), rows))
            })
            .buffer_unordered(CONCURRENT_SEGMENTS)
            .filter_map(|count| async { count })
            .collect()
            .await;
        for (files, rows) in counts {
            for (place, file) in files.into_iter().enumerate() {
                if let Some(slot) = counted.get_mut(file) {
                    *slot = Some(if place == 0 { rows } else { 0 });
                }
            }
        }
        places.retain(|file| counted.get(file).is_some_and(Option::is_none));
    }
}

/// The files of a segment that the manifest has, if all of them are among `places`.
fn whole(manifest: &Manifest, segment: &ManifestSegment, places: &NumberedFiles) -> Option<Vec<usize>> {
    segment.files.iter().filter(|number| manifest.is_live(*number)).map(|number| places.get(number)).collect()
}

/// How many rows of a segment pass.
struct DirectoryCount<'a> {
    test: CountedTest<'a>,
    index: &'a ManifestIndex,
    segment: &'a ManifestSegment,
    files: &'a [usize],
}

async fn count(
    snapshot: &Snapshot,
    request: &DirectoryCount<'_>,
    counter: &ReadCounter,
) -> Result<Option<u64>, Damage> {
    let Some(store) = &snapshot.store else { return Ok(None) };
    let opened = Segment::open(store, request.segment, request.index, counter).await?;
    let directory = &opened.directory;
    if directory.files.len() != request.files.len() {
        return Ok(None);
    }
    let entries: HashMap<&str, &SegmentFile> =
        directory.files.iter().map(|entry| (entry.path.as_str(), entry)).collect();
    for file in request.files {
        let path = snapshot.files().get(*file).map_or("", |file| file.path.as_str());
        let Some(entry) = entries.get(path) else { return Ok(None) };
        if !is_same_data(snapshot, *file, entry, request.segment, directory).await {
            return Ok(None);
        }
    }
    request.test.rows_of(&opened, counter).await
}
