//! Which segments become one: neighbours, up to as many files as an index allows a segment.

use std::collections::HashSet;
use std::sync::Arc;

use lakemark_format::{Manifest, ManifestIndex, ManifestSegment};

use super::parts::{Merge, MergedSegment, aligned_rows};
use super::tiers;
use crate::snapshot::Snapshot;
use crate::store::kind::files_per_segment;
use crate::store::manifests::file_of;

/// The most rows of a segment, with those that its files are padded by.
const MAX_ROWS: u64 = u32::MAX as u64;

/// Which segments of an index are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// Those that make too many.
    Due,
    /// All but those that are far larger than the rest.
    Worthwhile,
    /// All that fit together.
    All,
}

/// A segment of an index with what is left of it.
struct Candidate<'a> {
    merged: MergedSegment<'a>,
    /// Rows of its files that are still there.
    rows: u64,
}

impl Candidate<'_> {
    /// Whether the segment has more than half of what one may have. Only a selection of all takes it: two others always fit together.
    fn is_full(&self, most: usize) -> bool {
        self.merged.files.len() * 2 > most || self.rows * 2 > MAX_ROWS
    }
}

/// Merges of segments that the selection takes, each of two or more.
pub(super) fn merges<'a>(
    snapshot: &Snapshot,
    manifest: &'a Manifest,
    indexes: &'a [ManifestIndex],
    selection: Selection,
) -> Vec<Merge<'a>> {
    let live: HashSet<u32> = snapshot.index_states.iter().filter_map(|state| state.number).collect();
    let mut merges: Vec<Merge<'a>> = Vec::new();
    for index in indexes.iter().filter(|index| snapshot.is_usable(index)) {
        let most = files_per_segment(index);
        for group in selected(candidates(manifest, index, &live), most, selection) {
            merges.extend(cut(index, group, most));
        }
    }
    merges.retain(|merge| merge.segments.len() > 1 && merge.segments.iter().any(|merged| !merged.files.is_empty()));
    merges
}

/// Whether segments of a manifest are to be merged, if all files of theirs are still there.
pub(super) fn is_due(manifest: &Manifest, only: Option<&str>) -> bool {
    sizes(manifest, only).any(|sizes| !tiers::due(&sizes).is_empty())
}

/// How many segments that can still grow the index has that has most of them.
pub(super) fn most_segments(manifest: &Manifest, only: Option<&str>) -> usize {
    sizes(manifest, only).map(|sizes| sizes.len()).max().unwrap_or(0)
}

/// The bytes of the segments of each index that can still grow.
fn sizes<'a>(manifest: &'a Manifest, only: Option<&'a str>) -> impl Iterator<Item = Vec<u64>> + 'a {
    let is_meant = move |index: &&ManifestIndex| only.is_none_or(|name| index.name == name);
    manifest.indexes().filter(is_meant).map(|index| {
        let most = files_per_segment(index) as u64;
        let open = segments_of(manifest, index).into_iter().filter(|segment| segment.files.len() * 2 <= most);
        open.map(|segment| segment.length).collect()
    })
}

/// The segments of an index. Neighbours cover files that entered one after the other.
fn segments_of<'a>(manifest: &'a Manifest, index: &ManifestIndex) -> Vec<&'a ManifestSegment> {
    let of_index = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
    let mut segments: Vec<&ManifestSegment> = of_index.collect();
    segments.sort_by_key(|segment| segment.files.ranges().first().map(|range| range.start));
    segments
}

fn candidates<'a>(manifest: &'a Manifest, index: &ManifestIndex, live: &HashSet<u32>) -> Vec<Candidate<'a>> {
    // A file that two segments cover is taken from one of them.
    let mut left = live.clone();
    let candidate = |segment: &'a ManifestSegment| {
        let files: Vec<u32> = segment.files.iter().filter(|file| left.remove(file)).collect();
        let rows = files.iter().filter_map(|file| file_of(manifest, *file)).map(aligned_rows).sum();
        Candidate { merged: MergedSegment { segment, files }, rows }
    };
    segments_of(manifest, index).into_iter().map(candidate).collect()
}

/// The candidates that are merged with each other, in their order. Segments of which nothing is left go with the first of them.
fn selected(candidates: Vec<Candidate<'_>>, most: usize, selection: Selection) -> Vec<Vec<Candidate<'_>>> {
    if selection == Selection::All {
        return vec![candidates];
    }
    let (empty, left): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|each| each.merged.files.is_empty());
    let open: Vec<Candidate<'_>> = left.into_iter().filter(|each| !each.is_full(most)).collect();
    let sizes: Vec<u64> = open.iter().map(|each| each.merged.segment.length).collect();
    let groups = match selection {
        Selection::Due => tiers::due(&sizes),
        // One that stands alone takes the place of those of which nothing is left.
        _ if open.len() == 1 && !empty.is_empty() => vec![vec![0]],
        _ => vec![tiers::worthwhile(&sizes)],
    };
    let mut open: Vec<Option<Candidate<'_>>> = open.into_iter().map(Some).collect();
    let mut empty = Some(empty);
    let take_group = |mut places: Vec<usize>| {
        places.sort_unstable();
        let mut group: Vec<Candidate<'_>> =
            places.into_iter().filter_map(|place| open.get_mut(place).and_then(Option::take)).collect();
        group.extend(empty.take().unwrap_or_default());
        group
    };
    groups.into_iter().filter(|places| !places.is_empty()).map(take_group).collect()
}

/// Neighbours, as many as their files may share a segment.
fn cut<'a>(index: &'a ManifestIndex, group: Vec<Candidate<'a>>, most: usize) -> Vec<Merge<'a>> {
    let mut merges: Vec<Merge<'a>> = Vec::new();
    let (mut files, mut space) = (0, 0u64);
    for Candidate { merged, rows } in group {
        let fits = files + merged.files.len() <= most && space + rows <= MAX_ROWS;
        if !fits || merges.is_empty() {
            merges.push(Merge { index, segments: Vec::new() });
            (files, space) = (0, 0);
        }
        files += merged.files.len();
        space += rows;
        if let Some(merge) = merges.last_mut() {
            merge.segments.push(merged);
        }
    }
    merges
}
