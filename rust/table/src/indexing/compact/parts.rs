//! The segments of a merge, opened, and what the merged one is.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{Manifest, ManifestFile, ManifestIndex, ManifestSegment, RidingColumn, SegmentFile};
use lakemark_index::bitmap::SegmentMeta;

use crate::error::{Error, Result};
use crate::index_kind::IndexKind;
use crate::indexing::build::BuildContext;
use crate::indexing::build::coarse::encoding_of;
use crate::indexing::build::segment::{WrittenSegment, meta_of};
use crate::indexing::build::spill::{Budget, Reservation};
use crate::storage::fingerprint::fingerprint_of_name;
use crate::store::manifests::file_of;
use crate::store::segment_cursor::{LEAST_READ_AHEAD_BYTES, MovedRows, READ_AHEAD_BYTES};
use crate::store::segment_id::{SegmentContent, merged_segment_id};
use crate::store::segments::{Damage, ReadCounter, Segment};
use crate::store::transaction::BuiltSegments;

/// Segments that are opened at a time, and of which the first windows are read.
pub(super) const OPENED_AT_ONCE: usize = 16;

/// Segments of an index that become one.
pub(super) struct Merge<'a> {
    pub index: &'a ManifestIndex,
    pub segments: Vec<MergedSegment<'a>>,
}

/// A segment that becomes part of another.
pub(super) struct MergedSegment<'a> {
    pub segment: &'a ManifestSegment,
    /// The numbers of its files that are still there.
    pub files: Vec<u32>,
}

/// The rows of a file in the row space of a segment.
pub(super) fn aligned_rows(file: &ManifestFile) -> u64 {
    file.rows().next_multiple_of(u64::from(BASE_ALIGNMENT))
}

impl Merge<'_> {
    pub(super) fn is_exact(&self) -> bool {
        self.index.kind.known().is_some_and(IndexKind::is_exact)
    }

    /// Whether there are two segments or more, and files.
    pub(super) fn is_worth_it(&self) -> bool {
        self.segments.len() > 1 && self.segments.iter().any(|merged| !merged.files.is_empty())
    }

    pub(super) fn rows(&self, manifest: &Manifest) -> u64 {
        let files = self.segments.iter().flat_map(|merged| &merged.files);
        files.filter_map(|file| file_of(manifest, *file)).map(ManifestFile::rows).sum()
    }

    /// The id of the claim of whoever merges these segments.
    pub(super) fn claim_id(&self) -> [u8; 16] {
        let ids: Vec<u8> = self.segments.iter().flat_map(|merged| merged.segment.id).collect();
        fingerprint_of_name(&ids)
    }

    /// Opens the segments, and lays their files one behind the other.
    pub(super) async fn gather(&self, context: &BuildContext, manifest: &Manifest) -> Result<Gathered> {
        let schemas: Vec<(u32, &Arc<[u8]>)> = manifest.schemas().collect();
        let mut built = BuiltSegments {
            schemas: schemas.iter().map(|(_, schema)| schema.to_vec()).collect(),
            ..BuiltSegments::default()
        };
        let (mut files, mut parts, mut base) = (Vec::new(), Vec::new(), 0u32);
        let left: Vec<&MergedSegment<'_>> = self.segments.iter().filter(|merged| !merged.files.is_empty()).collect();
        let opened = self.open(context, &left).await?;
        for (MergedSegment { segment, files: held }, opened) in left.into_iter().zip(opened) {
            let names: HashMap<&str, u32> =
                held.iter().filter_map(|file| Some((file_of(manifest, *file)?.path.as_str(), *file))).collect();
            let mut places = Vec::new();
            for entry in opened.directory.files.iter() {
                let Some(number) = names.get(entry.path.as_str()) else { continue };
                let Some(known) = file_of(manifest, *number) else { continue };
                // The edit counts its schemas from 0 on.
                let schema = schemas.iter().position(|(schema, _)| *schema == known.schema).unwrap_or(usize::MAX);
                let schema = u32::try_from(schema).map_err(|_| Error::internal("a file without a schema"))?;
                let rows = u32::try_from(entry.rows()).unwrap_or(u32::MAX);
                places.push(MovedRows { rows: entry.base..entry.base.saturating_add(rows), to: Some(base) });
                files.push(SegmentFile { base, ..entry.clone() });
                built.files.push(ManifestFile { schema, ..known.clone() });
                base = base.saturating_add(rows);
                base = base.checked_next_multiple_of(BASE_ALIGNMENT).unwrap_or(u32::MAX);
            }
            parts.push(OpenPart { opened, places, path: segment.path.clone() });
        }
        Ok(Gathered { built, files, parts })
    }

    /// Opens segments, some at a time: each of them is a request.
    async fn open(&self, context: &BuildContext, segments: &[&MergedSegment<'_>]) -> Result<Vec<Segment>> {
        // By number, since a closure over borrowed items would make the future one that cannot change threads.
        let opened = stream::iter(0..segments.len()).map(|place| async move {
            let merged = segments.get(place).ok_or_else(|| Error::internal("a segment out of range"))?;
            let counter = ReadCounter::default();
            let opened = Segment::open_afresh(&context.store, merged.segment, self.index, &counter).await;
            opened.map_err(|damage| damaged(&merged.segment.path, &damage))
        });
        opened.buffered(OPENED_AT_ONCE).try_collect().await
    }

    /// What the merged segment of these files is, which the manifest knows as `known`.
    pub(super) fn meta(
        &self,
        context: &BuildContext,
        files: Vec<SegmentFile>,
        known: &[ManifestFile],
        riding: Vec<RidingColumn>,
    ) -> Result<SegmentMeta> {
        let encoding = encoding_of(self.index)?;
        let content = SegmentContent { encoding, riding: &riding };
        let segment_id = merged_segment_id(self.index, content, known, &self.copied());
        Ok(SegmentMeta { segment_id, files, riding, ..meta_of(self.index, encoding, context.budget.limit())? })
    }

    /// The segments whose bytes the merged one has. Values are the same whatever segments they come from.
    fn copied(&self) -> Vec<[u8; 16]> {
        let parts = self.segments.iter().filter(|merged| !self.is_exact() && !merged.files.is_empty());
        parts.map(|merged| merged.segment.id).collect()
    }
}

/// The segments of a merge, open, with the files of the merged one.
pub(super) struct Gathered {
    /// The files, and no segment yet.
    pub built: BuiltSegments,
    pub files: Vec<SegmentFile>,
    pub parts: Vec<OpenPart>,
}

/// A segment of a merge.
pub(super) struct OpenPart {
    pub opened: Segment,
    /// Where the rows of its files go.
    pub places: Vec<MovedRows>,
    pub path: String,
}

impl Gathered {
    /// The columns that ride along in every part: who has to read the data for some files reads it for all.
    pub(super) fn riding(&self) -> Vec<RidingColumn> {
        let mut parts = self.parts.iter().map(|part| &part.opened.directory.riding);
        let mut common = parts.next().cloned().unwrap_or_default();
        parts.for_each(|others| common.retain(|column| others.contains(column)));
        common
    }
}

impl OpenPart {
    /// Where its files begin of which rows are kept. Another part may have newer rows under the path of a file that is not.
    pub(super) fn kept(&self) -> HashSet<u32> {
        // Files without rows begin where the next one does.
        self.places.iter().filter(|moved| !moved.rows.is_empty()).map(|moved| moved.rows.start).collect()
    }
}

/// What is read ahead of a segment.
pub(super) struct Window {
    /// Memory for it, where there is some left.
    pub memory: Option<Reservation>,
    pub bytes: u64,
}

impl Window {
    /// A window with memory for so many bytes beside it, or a small one where the limit leaves no room.
    pub(super) fn reserve(context: &BuildContext, beside: u64) -> Self {
        let memory = Budget::reserve(&context.budget, READ_AHEAD_BYTES + beside);
        let bytes = if memory.is_some() { READ_AHEAD_BYTES } else { LEAST_READ_AHEAD_BYTES };
        Self { memory, bytes }
    }
}

/// What a merge gave.
pub(super) struct MergeResult {
    /// The merged segment with its files.
    pub built: BuiltSegments,
    /// Whether the segment was there already.
    pub is_taken_over: bool,
}

pub(super) fn with_segment(mut built: BuiltSegments, written: WrittenSegment) -> MergeResult {
    let places = (0..).take(built.files.len()).collect();
    built.segments.push(ManifestSegment { files: places, ..written.segment });
    MergeResult { built, is_taken_over: written.is_taken_over }
}

pub(super) fn damaged(path: &str, damage: &Damage) -> Error {
    match damage.is_unread {
        true => Error::io(format!(
            "the segment {path} cannot be read, so that nothing was merged: {}; mend the store, and try again",
            damage.problem
        )),
        false => Error::corrupt(format!(
            "the segment {path} cannot be merged: {}; `lakemark index build --verify` builds it again",
            damage.problem
        )),
    }
}

/// Damage as the error of a reader.
pub(super) fn unread(damage: Damage) -> io::Error {
    match damage.is_unread {
        true => io::Error::other(damage.problem),
        false => io::Error::new(io::ErrorKind::InvalidData, damage.problem),
    }
}
