//! Counting from segment directories alone, where a predicate is one test and whole segments count.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::{Manifest, ManifestIndex, ManifestSegment, SegmentFile};
use lakemark_index::bitmap::CountSearch;
use lakemark_index::{Leaf, Predicate, Test};

use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Segments that are searched at a time.
const CONCURRENT_SEGMENTS: usize = 32;

/// Fills `counted` for the files of every segment that is fresh as a whole and free of deletion vectors. The count of the segment stands at
/// its first file. A full probe finds out what is left open.
pub(crate) async fn from_directories(
    snapshot: &Snapshot,
    predicate: &Predicate,
    counter: &ReadCounter,
    counted: &mut [Option<u64>],
) {
    let (leaf, negated) = match predicate {
        Predicate::Leaf(leaf) => (leaf, false),
        Predicate::Not(inner) => match inner.as_ref() {
            Predicate::Leaf(leaf) if leaf.test == Test::IsNull => (leaf, true),
            _ => return,
        },
        _ => return,
    };
    let Some(manifest) = &snapshot.manifest else { return };
    let is_whole = |file: usize| snapshot.files().get(file).is_some_and(|file| file.deleted.is_none());
    let mut places = NumberedFiles::of(snapshot, |file, _| is_whole(file));
    for index in snapshot.exact_indexes_for(leaf) {
        let segments = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
        // Files that another index of the column counted are not in `places` any more.
        let open: Vec<(&ManifestSegment, Vec<usize>)> =
            segments.filter_map(|segment| Some((segment, whole(manifest, segment, &places)?))).collect();
        // By number, since a closure over borrowed items would make the future one that cannot change threads.
        let open = open.as_slice();
        let counts: Vec<(Vec<usize>, u64)> = stream::iter(0..open.len())
            .map(|number| async move {
                let (segment, files) = open.get(number)?;
                let request = DirectoryCount { leaf, negated, index, segment, files };
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
    leaf: &'a Leaf,
    /// Whether the rows that do not pass are counted.
    negated: bool,
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
    let Some(mut count) = CountSearch::new(directory, &request.leaf.test) else { return Ok(None) };
    let first = opened.read(&count.first_ranges(), counter).await?;
    let wanted = count.second_ranges(&first).map_err(Damage::corrupt)?;
    let second = opened.read(&wanted, counter).await?;
    let rows = count.finish(&second).map_err(Damage::corrupt)?;
    Ok(Some(if request.negated { directory.rows() - rows.min(directory.rows()) } else { rows }))
}
