//! Counting from segment directories alone, where a predicate is one test and whole segments count.

use std::sync::Arc;

use lakemark_format::{ManifestIndex, ManifestSegment};
use lakemark_index::bitmap::search::Count;
use lakemark_index::{Leaf, Predicate, Test};

use super::Identities;
use crate::segments::{Damage, ReadCounter, Segment};
use crate::snapshot::Snapshot;

/// Fills `counted` for the files of every segment that is fresh as a whole and free of deletion vectors: the count of the
/// segment stands at its first file. Whatever is left open is found out by a full probe.
pub(crate) async fn from_directories(
    snapshot: &Snapshot,
    predicate: &Predicate,
    identities: &Identities,
    counter: &Arc<ReadCounter>,
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
    for index in snapshot.indexes_of(&leaf.column) {
        for segment in manifest.segments.iter().filter(|segment| segment.index_id == index.id) {
            let Some(files) = whole(snapshot, segment, counted) else { continue };
            // Damage is reported by the full probe that follows.
            let Ok(Some(rows)) = count(snapshot, leaf, negated, index, segment, &files, identities, counter).await else {
                continue;
            };
            for (place, file) in files.iter().enumerate() {
                if let Some(slot) = counted.get_mut(*file) {
                    *slot = Some(if place == 0 { rows } else { 0 });
                }
            }
        }
    }
}

/// The files of a segment, if all of them are in the snapshot, uncounted and without deletion vector.
fn whole(snapshot: &Snapshot, segment: &ManifestSegment, counted: &[Option<u64>]) -> Option<Vec<usize>> {
    let mut files = Vec::with_capacity(segment.files.len());
    for (file, mark) in snapshot.marks.iter().enumerate() {
        if mark.ordinal.is_some_and(|ordinal| segment.files.binary_search(&ordinal).is_ok()) {
            let free = snapshot.files().get(file)?.deleted.is_none() && counted.get(file)?.is_none();
            files.push(free.then_some(file)?);
        }
    }
    (files.len() == segment.files.len()).then_some(files)
}

#[expect(clippy::too_many_arguments, reason = "the parts of one question, asked in one place")]
async fn count(
    snapshot: &Snapshot,
    leaf: &Leaf,
    negated: bool,
    index: &ManifestIndex,
    segment: &ManifestSegment,
    files: &[usize],
    identities: &Identities,
    counter: &Arc<ReadCounter>,
) -> Result<Option<u64>, Damage> {
    let Some(store) = &snapshot.store else { return Ok(None) };
    let opened = Segment::open(store, segment, index, counter).await?;
    let directory = &opened.directory;
    if directory.files.len() != files.len() {
        return Ok(None);
    }
    for file in files {
        let path = snapshot.files().get(*file).map(|file| file.path.as_str());
        let Some(entry) = directory.files.iter().find(|entry| Some(entry.path.as_str()) == path) else { return Ok(None) };
        if !identities.holds(snapshot, *file, entry, segment, directory).await {
            return Ok(None);
        }
    }
    let Some(count) = Count::new(directory, &leaf.test) else { return Ok(None) };
    let bytes = opened.read(&count.ranges(), counter).await?;
    let rows = count.finish(&bytes).map_err(Damage::corrupt)?;
    Ok(Some(if negated { directory.rows() - rows.min(directory.rows()) } else { rows }))
}
