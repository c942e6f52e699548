//! Opening the links of a snapshot: which segments have them, and which rows are read because none does.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lakemark_format::{Encoding, ManifestIndex, ManifestSegment, SegmentFile, column};

use super::columns::LinkColumns;
use super::loading::{LinkSegment, LiveFile};
use super::read_rows::{RowLink, RowReader};
use super::side::Side;
use super::unindexed::UnindexedLinks;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::store::link_pair::is_of_links;
use crate::store::segments::{Damage, FileOfSegment, ReadCounter, Segment, segment_key};

/// The links of a snapshot, by their subjects and by their objects.
#[derive(Debug)]
pub(super) struct OpenLinks {
    pub out: Side,
    pub back: Side,
}

/// What indexes have of one side.
pub(super) struct IndexedSide {
    pub segments: Vec<LinkSegment>,
    /// The files that they cover, by their places.
    pub covered: HashSet<usize>,
    /// Rows per row group of those of which the snapshot does not know them.
    pub row_groups: HashMap<usize, Vec<u32>>,
}

impl OpenLinks {
    /// Opens what is not known to be damaged.
    pub(super) async fn open(
        snapshot: &Snapshot,
        columns: &LinkColumns,
        damaged: &HashSet<[u8; 16]>,
        memory_bytes: u64,
    ) -> Result<Self> {
        let out = indexed(snapshot, columns, false, damaged).await;
        let back = indexed(snapshot, columns, true, damaged).await;
        let shape = columns.shape()?;
        let mut rows = Unindexed { out: Vec::new(), back: Vec::new(), bytes: 0, most: memory_bytes };
        let reader = RowReader::new(snapshot, columns);
        for place in 0..snapshot.files().len() {
            let Some(file) = snapshot.files().get(place) else { continue };
            let lacks = Lacking { out: !out.covered.contains(&place), back: !back.covered.contains(&place) };
            if lacks.out || lacks.back {
                reader.file(file, &mut |link| rows.add(link, lacks)).await?;
            }
        }
        let all = Lacking { out: true, back: true };
        if let Some(buffered) = snapshot.buffered_rows() {
            for run in &buffered.files {
                reader.run(run, &mut |link| rows.add(link, all)).await?;
            }
            for batch in &buffered.batches {
                reader.batch(batch, &mut |link| rows.add(link, all))?;
            }
        }
        let Unindexed { out: of_out, back: of_back, .. } = rows;
        let side = |segments, links| Side { shape: shape.clone(), segments, unindexed: UnindexedLinks::new(links) };
        Ok(Self { out: side(out.segments, of_out), back: side(back.segments, of_back) })
    }

    /// Bytes of the links that no index has.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.out.unindexed.memory_bytes() + self.back.unindexed.memory_bytes()
    }
}

/// Which side of a link no index has.
#[derive(Clone, Copy)]
struct Lacking {
    out: bool,
    back: bool,
}

/// Links that no index has, while they are read.
struct Unindexed {
    out: Vec<RowLink>,
    back: Vec<RowLink>,
    bytes: u64,
    most: u64,
}

impl Unindexed {
    fn add(&mut self, link: RowLink, lacking: Lacking) -> Result<()> {
        self.bytes += link.memory_bytes() * (u64::from(lacking.out) + u64::from(lacking.back));
        if self.bytes > self.most {
            return Err(Error::unsupported(format!(
                "the links that no index has take more than {} bytes of memory: create an index of the kind links over their columns, or \
                 run `lakemark index build` if there is one",
                self.most
            )));
        }
        match (lacking.out, lacking.back) {
            (true, true) => {
                self.out.push(link.clone());
                self.back.push(link.turned());
            }
            (true, false) => self.out.push(link),
            (false, true) => self.back.push(link.turned()),
            (false, false) => {}
        }
        Ok(())
    }
}

/// The segments of one side that hold for the files of the snapshot.
pub(super) async fn indexed(
    snapshot: &Snapshot,
    columns: &LinkColumns,
    is_back: bool,
    damaged: &HashSet<[u8; 16]>,
) -> IndexedSide {
    let mut side = IndexedSide { segments: Vec::new(), covered: HashSet::new(), row_groups: HashMap::new() };
    let Some(manifest) = &snapshot.manifest else { return side };
    let names = column::composite(columns.names(is_back));
    let stored = snapshot.physical_name(&names);
    let mut open = NumberedFiles::of(snapshot, |_, _| true);
    // Collected first, so that the future does not hold the iterators.
    let is_it = |index: &&ManifestIndex| is_of_links(index) && index.column == stored && snapshot.is_usable(index);
    let indexes: Vec<&ManifestIndex> = manifest.indexes().filter(is_it).collect();
    for index in indexes {
        let segments = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
        let segments: Vec<&ManifestSegment> = segments.filter(|segment| !damaged.contains(&segment.id)).collect();
        for segment in segments {
            let places: Vec<usize> = open.within(&segment.files).collect();
            if places.is_empty() {
                continue;
            }
            match open_segment(snapshot, index, segment, &places).await {
                Ok(Some((opened, covered))) => {
                    side.row_groups.extend(covered.iter().filter_map(|place| row_groups_of(snapshot, &opened, *place)));
                    side.segments.push(opened);
                    side.covered.extend(covered.iter().copied());
                    // Another index over the same columns need not give them once more.
                    open.retain(|file| !covered.contains(&file));
                }
                Ok(None) => {}
                Err(damage) => tracing::warn!(
                    index = index.name,
                    segment = segment.path,
                    reason = damage.reason.code(),
                    problem = damage.problem,
                    "an index file of links cannot be used; its rows are read"
                ),
            }
        }
    }
    side
}

/// A segment with the places of the files that it covers; none if it has rows of which it does not know the links.
async fn open_segment(
    snapshot: &Snapshot,
    index: &ManifestIndex,
    segment: &ManifestSegment,
    places: &[usize],
) -> Result<Option<(LinkSegment, Vec<usize>)>, Damage> {
    let Some(store) = &snapshot.store else { return Ok(None) };
    let opened = Segment::open(store, segment, index, &ReadCounter::default()).await?;
    let directory = Arc::clone(&opened.directory);
    if directory.encoding != Encoding::Linked {
        return Err(Damage::corrupt("the segment has other leaves than links"));
    }
    if directory.opaque.rows > 0 {
        return Ok(None);
    }
    let (mut live, mut covered) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
    for place in places {
        let Some(file) = snapshot.files().get(*place) else { continue };
        let Some(FileOfSegment { entry, .. }) = opened.file(&file.path) else { continue };
        if is_same_data(snapshot, *place, entry, segment, &directory).await {
            live.push(LiveFile { rows: rows_of(entry), deleted: file.deleted.clone() });
            covered.push(*place);
        }
    }
    if covered.is_empty() {
        return Ok(None);
    }
    live.sort_by_key(|file| (file.rows.start, file.rows.end));
    let is_whole = live.len() == directory.files.len() && live.iter().all(LiveFile::is_whole);
    let dictionary: HashMap<_, _> = directory.predicates.iter().cloned().zip(0..).collect();
    let has_predicate = !directory.predicates.is_empty();
    let opened = LinkSegment {
        id: segment.id,
        path: segment.path.clone(),
        key: segment_key(store, segment),
        segment: opened,
        live: (!is_whole).then(|| live.into()),
        dictionary,
        has_predicate,
    };
    Ok(Some((opened, covered)))
}

/// Rows per row group of a file that a segment covers, if the snapshot does not know them.
fn row_groups_of(snapshot: &Snapshot, segment: &LinkSegment, place: usize) -> Option<(usize, Vec<u32>)> {
    let file = snapshot.files().get(place).filter(|file| file.row_groups.is_none())?;
    let FileOfSegment { entry, .. } = segment.segment.file(&file.path)?;
    Some((place, entry.row_groups.clone()))
}

fn rows_of(entry: &SegmentFile) -> std::ops::Range<u32> {
    let rows = u32::try_from(entry.rows()).unwrap_or(u32::MAX);
    entry.base..entry.base.saturating_add(rows)
}
