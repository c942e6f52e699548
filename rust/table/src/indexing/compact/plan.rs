//! Which segments become one: those that `tiers` takes by their sizes, up to as many files as an index allows a segment.

use std::collections::HashSet;
use std::sync::Arc;

use lakemark_format::zones::MAX_ZONES;
use lakemark_format::{Manifest, ManifestFile, ManifestIndex, ManifestSegment};
use lakemark_index::zones::ZoneOptions;

use super::parts::{Merge, MergedSegment, aligned_rows};
use super::tiers;
use crate::snapshot::Snapshot;
use crate::store::kind::{files_per_segment, zones_of};
use crate::store::manifests::file_of;

/// The most zones of a segment. So many have no more bytes of fences than a segment may have.
const MOST_ZONES: u64 = MAX_ZONES as u64;
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
    /// What it has of its files that are still there.
    extent: Extent,
}

impl Candidate<'_> {
    /// Whether the segment has more than half of what one may have. Only a selection of all takes it: two others always fit together.
    fn is_full(&self, most: usize) -> bool {
        !self.extent.and(self.extent).fits(most)
    }
}

/// What a segment may have only so much of.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    files: usize,
    /// Of the row space.
    rows: u64,
    /// None of an index without filters.
    zones: u64,
}

impl Extent {
    fn of(file: &ManifestFile, zones: Option<ZoneOptions>) -> Self {
        let zones = zones.map_or(0, |zones| zones.count(&file.row_groups));
        Self { files: 1, rows: aligned_rows(file), zones }
    }

    fn and(self, other: Self) -> Self {
        Self { files: self.files + other.files, rows: self.rows + other.rows, zones: self.zones + other.zones }
    }

    /// Whether one segment may have it, and `most` files.
    fn fits(self, most: usize) -> bool {
        self.files <= most && self.rows <= MAX_ROWS && self.zones <= MOST_ZONES
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
            merges.extend(cut(group, most).into_iter().map(|segments| Merge { index, segments }));
        }
    }
    merges.retain(Merge::is_worth_it);
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
    let has_zones = index.kind.known().is_some_and(|kind| !kind.is_exact());
    let zones = has_zones.then(|| zones_of(index, 0));
    let candidate = |segment: &'a ManifestSegment| {
        let files: Vec<u32> = segment.files.iter().filter(|file| left.remove(file)).collect();
        let known = files.iter().filter_map(|file| file_of(manifest, *file));
        let extent = known.map(|file| Extent::of(file, zones)).fold(Extent::default(), Extent::and);
        Candidate { merged: MergedSegment { segment, files }, extent }
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

/// Neighbours, as many as may share a segment.
fn cut(group: Vec<Candidate<'_>>, most: usize) -> Vec<Vec<MergedSegment<'_>>> {
    let mut merges: Vec<Vec<MergedSegment<'_>>> = Vec::new();
    let mut all = Extent::default();
    for Candidate { merged, extent } in group {
        let with = all.and(extent);
        match merges.last_mut() {
            Some(merge) if with.fits(most) => {
                merge.push(merged);
                all = with;
            }
            _ => {
                merges.push(vec![merged]);
                all = extent;
            }
        }
    }
    merges
}

#[cfg(test)]
mod tests {
    use lakemark_format::FileNumbers;

    use super::*;

    fn file(row_groups: Vec<u32>) -> ManifestFile {
        ManifestFile {
            path: "f.parquet".to_owned(),
            size: 1,
            modified_ns: 0,
            etag: None,
            footer_hash: 0,
            schema: 0,
            row_groups,
            false_statistics: Vec::new(),
        }
    }

    /// Segments of one file with so many zones: how many go into each merge, and which of them are full.
    fn cut_of(zones: &[u64]) -> (Vec<usize>, Vec<bool>) {
        let segment = |number: usize| ManifestSegment {
            id: [number as u8; 16],
            index_id: [0; 16],
            path: String::new(),
            length: 1,
            files: FileNumbers::default(),
        };
        let segments: Vec<ManifestSegment> = (0..zones.len()).map(segment).collect();
        let candidate = |(segment, zones): (_, &u64)| Candidate {
            merged: MergedSegment { segment, files: vec![0] },
            extent: Extent { files: 1, rows: 64, zones: *zones },
        };
        let group: Vec<Candidate<'_>> = segments.iter().zip(zones).map(candidate).collect();
        let full = group.iter().map(|each| each.is_full(1024)).collect();
        (cut(group, 1024).iter().map(Vec::len).collect(), full)
    }

    #[test]
    fn segments_whose_zones_are_too_many_for_one_are_not_merged() {
        assert_eq!(cut_of(&[MOST_ZONES / 2, MOST_ZONES / 2, 1]), (vec![2, 1], vec![false; 3]));
        assert_eq!(cut_of(&[MOST_ZONES / 2 + 1, MOST_ZONES / 2]), (vec![1, 1], vec![true, false]));
        assert_eq!(cut_of(&[0; 5]), (vec![5], vec![false; 5]));
    }

    #[test]
    fn a_file_has_zones_by_its_row_groups() {
        let file = file(vec![1000, 0, 1, 65]);
        let zones = |rows| ZoneOptions { zone_rows: rows, ..ZoneOptions::default() };
        assert_eq!(Extent::of(&file, Some(zones(Some(64)))).zones, 16 + 1 + 2);
        assert_eq!(Extent::of(&file, Some(zones(None))).zones, 3);
        assert_eq!((Extent::of(&file, None).zones, Extent::of(&file, None).rows), (0, 1088));
    }
}
