//! Segments that the manifest names and that are of no use any more: the files that they covered are indexed again.

use std::collections::HashSet;
use std::sync::Arc;

use lakemark_format::{ManifestIndex, ManifestSegment};

use crate::error::{Error, ErrorKind, Result};
use crate::files::unreadable::is_about_the_file;
use crate::indexing::verify::Verified;
use crate::report::{Finding, IndexVerdict};
use crate::snapshot::Snapshot;
use crate::storage::clock;
use crate::storage::fingerprint::fingerprint;
use crate::store::Store;
use crate::store::manifests::file_of;
use crate::store::segments::missing;

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// How often a segment is compared that somebody writes again meanwhile.
const COMPARISONS: u32 = 3;

/// What became of the segments that there were.
#[derive(Default)]
pub(super) struct LookedAt {
    /// The segments that are of no use: missing ones, and those that differ from the data.
    pub lost: Vec<[u8; 16]>,
    /// How many were compared with the data.
    pub verified: u64,
    /// Files of damaged segments that cannot be removed: what is built of them must not get the same names.
    pub held: HashSet<String>,
    /// Segments that cannot be compared, as a data file of theirs cannot be read.
    pub failed: Vec<Finding>,
}

/// Looks for the segments of these indexes, and compares so large a share of them with the data.
pub(super) async fn look_at(
    store: &Arc<Store>,
    snapshot: &Snapshot,
    indexes: &[ManifestIndex],
    share: f64,
) -> Result<LookedAt> {
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::invalid(format!("verify is {share}; give the share of segments to compare, 0 to 1")));
    }
    let Some(manifest) = &snapshot.manifest else { return Ok(LookedAt::default()) };
    let mut lost: HashSet<[u8; 16]> = HashSet::new();
    for segment in missing(store, manifest, indexes).await? {
        tracing::warn!(segment = segment.path, "a segment is missing or cut off; its files are indexed again");
        lost.insert(segment.id);
    }
    let mut seen = LookedAt::default();
    let day = clock::utc().timestamp().div_euclid(DAY_SECONDS);
    let named = manifest.segments().map(Arc::as_ref);
    for (index, segment) in sample(named, indexes, &lost, share, day) {
        let verified = Verified { snapshot, store, manifest, index };
        let Compared { outcome, damaged, is_there } = compared(store, verified, segment).await?;
        match outcome {
            Ok(()) => seen.verified += 1,
            Err(error) if error.kind() != ErrorKind::Io && is_about_the_file(error.kind()) => {
                tracing::warn!(segment = segment.path, %error, "a segment cannot be compared with the data");
                let problem = format!("it cannot be compared with the data: {error}");
                seen.failed.push(Finding { path: segment.path.clone(), problem });
            }
            Err(error) => return Err(error),
        }
        for Finding { path, problem } in damaged {
            tracing::warn!(segment = path, problem, "a segment is damaged; its files are indexed again");
            lost.insert(segment.id);
        }
        if is_there && lost.contains(&segment.id) && !is_removed(store, segment).await? {
            let files = segment.files.iter().filter_map(|number| file_of(manifest, number));
            seen.held.extend(files.map(|file| file.path.clone()));
        }
    }
    seen.lost = lost.into_iter().collect();
    Ok(seen)
}

/// What a comparison with the data gave.
struct Compared {
    outcome: Result<()>,
    damaged: Vec<Finding>,
    /// Whether there is a file that is the one which was compared.
    is_there: bool,
}

/// Compares a segment with the data, and once more if another file is in its place then: another build may have mended it meanwhile. One
/// that others write again and again counts as sound.
async fn compared(store: &Store, verified: Verified<'_>, segment: &ManifestSegment) -> Result<Compared> {
    for _ in 0..COMPARISONS {
        let before = store.meta_of(&segment.path).await?;
        let mut verdict = IndexVerdict::default();
        let outcome = verified.verify_segment(segment, &mut verdict).await;
        if verdict.damaged.is_empty() || store.meta_of(&segment.path).await? == before {
            return Ok(Compared { outcome, damaged: verdict.damaged, is_there: before.is_some() });
        }
        tracing::debug!(segment = segment.path, "the segment was written again while it was compared");
    }
    Ok(Compared { outcome: Ok(()), damaged: Vec::new(), is_there: false })
}

/// Removes a damaged segment; says whether it is gone. A build of the same files writes the same name, and would take it for one that
/// somebody left.
async fn is_removed(store: &Store, segment: &ManifestSegment) -> Result<bool> {
    store.discard(&segment.path).await;
    let is_there = store.has(&segment.path).await?;
    if is_there {
        tracing::warn!(
            segment = segment.path,
            store = store.text(),
            "the damaged segment cannot be removed (no permission?); its files get segments with random names"
        );
    }
    Ok(!is_there)
}

/// So large a share of the segments that are there, and at least one of them. Which ones depends on the day, so that a build that is run
/// every day comes to all of them.
fn sample<'a>(
    segments: impl Iterator<Item = &'a ManifestSegment>,
    indexes: &'a [ManifestIndex],
    lost: &HashSet<[u8; 16]>,
    share: f64,
    day: i64,
) -> Vec<(&'a ManifestIndex, &'a ManifestSegment)> {
    let mut all: Vec<(&ManifestIndex, &ManifestSegment)> = segments
        .filter(|segment| !lost.contains(&segment.id))
        .filter_map(|segment| Some((indexes.iter().find(|index| index.id == segment.index_id)?, segment)))
        .collect();
    let count = (all.len() as f64 * share).ceil() as usize;
    if count < all.len() {
        all.sort_by_cached_key(|(_, segment)| fingerprint(&[day.to_le_bytes().as_slice(), &segment.id].concat()));
        all.truncate(count);
    }
    all
}

#[cfg(test)]
mod tests {
    use lakemark_format::FileNumbers;

    use super::*;
    use crate::store::transaction::tests::index;

    fn segments(count: u8) -> Vec<ManifestSegment> {
        let segment = |number: u8| ManifestSegment {
            id: [number; 16],
            index_id: [1; 16],
            path: format!("indexes/{number}"),
            length: 1,
            files: FileNumbers::default(),
        };
        (0..count).map(segment).collect()
    }

    fn sampled(segments: &[ManifestSegment], share: f64, day: i64) -> Vec<u8> {
        let lost = HashSet::from([[0; 16]]);
        sample(segments.iter(), &[index(1)], &lost, share, day).iter().map(|(_, segment)| segment.id[0]).collect()
    }

    #[test]
    fn a_sample_is_the_same_all_day_and_has_at_least_one_segment() {
        let segments = segments(101);
        assert_eq!(sampled(&segments, 1.0, 7), (1..101).collect::<Vec<_>>());
        assert_eq!(sampled(&segments, 0.0, 7), [0; 0]);
        assert_eq!(sampled(&segments, 1e-9, 7).len(), 1);
        assert_eq!(sampled(&segments, 0.2, 7).len(), 20);
        assert_eq!(sampled(&segments, 0.2, 7), sampled(&segments, 0.2, 7));
    }

    #[test]
    fn samples_of_many_days_come_to_every_segment() {
        let segments = segments(101);
        let met: HashSet<u8> = (0..60).flat_map(|day| sampled(&segments, 0.2, day)).collect();
        assert_eq!(met.len(), 100);
    }

    #[test]
    fn another_index_is_left_alone() {
        let segments = segments(9);
        assert_eq!(sample(segments.iter(), &[], &HashSet::new(), 1.0, 0).len(), 0);
    }
}
