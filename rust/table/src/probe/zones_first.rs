//! Kinds compose: where many segments would be probed for single keys, indexes that know zones are probed before those that know rows.
//!
//! ```text
//! x = 42      summary: 1 segment      ─▶ file 7 may have it, all others do not
//!             key: 300 segments       ─▶ the one of file 7 is probed for its rows
//! ```

use std::collections::HashSet;

use futures::{StreamExt, stream};
use lakemark_index::{Leaf, Test};

use super::answers::{FileCandidates, LeafCandidates};
use super::segment_search::{ReadContext, SegmentRequest, probe_segment, remembered, segment_requests};
use crate::index_kind::IndexKind;
use crate::snapshot::Snapshot;

/// So many segments are probed at once: that takes about as long as probing others first.
const FEW_SEGMENTS: usize = 8;
/// Segments that are probed at a time.
const CONCURRENT_SEGMENTS: usize = 32;

/// The requests that are left after the zones of their files were probed. Of a file that cannot have any of the keys everything is
/// known.
pub(super) async fn probe_zones_first(
    answers: &mut LeafCandidates,
    snapshot: &Snapshot,
    leaf: &Leaf,
    requests: Vec<SegmentRequest>,
    reads: &ReadContext,
) -> Vec<SegmentRequest> {
    let (Some(store), Some(place)) = (&snapshot.store, requests.first().map(|request| request.leaf)) else {
        return requests;
    };
    let is_exact = |request: &SegmentRequest| request.index.kind.known().is_some_and(IndexKind::is_exact);
    let exact = requests.iter().filter(|request| is_exact(request)).count();
    let has_zones =
        snapshot.indexes_for(leaf).into_iter().any(|index| !index.kind.known().is_some_and(IndexKind::is_exact));
    let of_points = matches!(&leaf.test, Test::Ranges(ranges) if ranges.are_points());
    if !has_zones || exact <= FEW_SEGMENTS || !of_points {
        return requests;
    }
    let known = |request: &SegmentRequest| remembered(store, request, reads).is_some();
    if requests.iter().all(known) {
        return requests;
    }
    let files = requests.iter().filter(|request| is_exact(request)).flat_map(|request| &request.files);
    let files: HashSet<usize> = files.copied().collect();
    let of_zones = zone_requests(snapshot, place, leaf, &files);
    if of_zones.len() * 2 > exact {
        return requests;
    }
    // By number, since a closure over borrowed items would make the future one that cannot change threads.
    let unprobed = of_zones.as_slice();
    let answered: Vec<_> = stream::iter(0..unprobed.len())
        .map(|number| async move {
            let request = unprobed.get(number)?;
            // A verification reports what is wrong with an index that is not needed.
            probe_segment(store, request, reads).await.ok().map(|found| (number, found))
        })
        .buffer_unordered(CONCURRENT_SEGMENTS)
        .filter_map(|found| async { found })
        .collect()
        .await;
    let mut of_zones: Vec<Option<SegmentRequest>> = of_zones.into_iter().map(Some).collect();
    for (number, found) in answered {
        if let Some(request) = of_zones.get_mut(number).and_then(Option::take) {
            answers.take(snapshot, request, Ok(found)).await;
        }
    }
    let lacks_all = |file: usize| match answers.of_leaf(place, file) {
        Some(FileCandidates::Rows { candidates, .. }) => candidates.t().is_empty(),
        _ => false,
    };
    let mut left = Vec::with_capacity(requests.len());
    for mut request in requests {
        if is_exact(&request) {
            request.files.retain(|file| !lacks_all(*file));
        }
        if !request.files.is_empty() {
            left.push(request);
        }
    }
    left
}

/// Segments with zones that cover these files; for every file the first one.
fn zone_requests(snapshot: &Snapshot, place: usize, leaf: &Leaf, files: &HashSet<usize>) -> Vec<SegmentRequest> {
    let indexes = snapshot.indexes_for(leaf);
    // A summary has the fewest segments for the most files.
    let zoned = indexes.into_iter().rev().filter(|index| !index.kind.known().is_some_and(IndexKind::is_exact));
    segment_requests(snapshot, place, leaf, &zoned.collect::<Vec<_>>(), |file| files.contains(&file))
}
