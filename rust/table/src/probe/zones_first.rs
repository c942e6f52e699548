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
    questions: Vec<SegmentRequest>,
    reads: &ReadContext,
) -> Vec<SegmentRequest> {
    let (Some(store), Some(place)) = (&snapshot.store, questions.first().map(|question| question.leaf)) else {
        return questions;
    };
    let is_exact = |question: &SegmentRequest| question.index.kind.known().is_some_and(IndexKind::is_exact);
    let exact = questions.iter().filter(|question| is_exact(question)).count();
    let has_zones =
        snapshot.indexes_for(leaf).into_iter().any(|index| !index.kind.known().is_some_and(IndexKind::is_exact));
    let of_points = matches!(&leaf.test, Test::Ranges(ranges) if ranges.are_points());
    if !has_zones || exact <= FEW_SEGMENTS || !of_points {
        return questions;
    }
    let known = |question: &SegmentRequest| reads.selection_cache && remembered(store, question).is_some();
    if questions.iter().all(known) {
        return questions;
    }
    let files = questions.iter().filter(|question| is_exact(question)).flat_map(|question| &question.files);
    let files: HashSet<usize> = files.copied().collect();
    let of_zones = zone_requests(snapshot, place, leaf, &files);
    if of_zones.len() * 2 > exact {
        return questions;
    }
    // By number, since a closure over borrowed items would make the future one that cannot change threads.
    let asked = of_zones.as_slice();
    let asked: Vec<_> = stream::iter(0..asked.len())
        .map(|number| async move {
            let question = asked.get(number)?;
            // A verification reports what is wrong with an index that is not needed.
            probe_segment(store, question, reads).await.ok().map(|found| (number, found))
        })
        .buffer_unordered(CONCURRENT_SEGMENTS)
        .filter_map(|found| async { found })
        .collect()
        .await;
    let mut of_zones: Vec<Option<SegmentRequest>> = of_zones.into_iter().map(Some).collect();
    for (number, found) in asked {
        if let Some(question) = of_zones.get_mut(number).and_then(Option::take) {
            answers.take(snapshot, question, Ok(found)).await;
        }
    }
    let lacks_all = |file: usize| match answers.of_leaf(place, file) {
        Some(FileCandidates::Rows { candidates, .. }) => candidates.t().is_empty(),
        _ => false,
    };
    let mut left = Vec::with_capacity(questions.len());
    for mut question in questions {
        if is_exact(&question) {
            question.files.retain(|file| !lacks_all(*file));
        }
        if !question.files.is_empty() {
            left.push(question);
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
