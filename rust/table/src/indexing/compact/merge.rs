//! Merging some segments of an index into one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{Manifest, ManifestFile, ManifestIndex, ManifestSegment, SegmentFile};
use lakemark_index::bitmap::{ChunkSource, SegmentMeta, ValueRows, coarse_memory_bytes};
use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::index_kind::IndexKind;
use crate::indexing::build::build_group::{build_group, encoding_of};
use crate::indexing::build::group::{Group, GroupResult};
use crate::indexing::build::segment::write;
use crate::indexing::build::spill::ReservedSource;
use crate::indexing::build::{BuildContext, built_of};
use crate::report::Finding;
use crate::snapshot::Snapshot;
use crate::storage::ids::new_id;
use crate::store::Store;
use crate::store::kind::{precision_of, zones_of};
use crate::store::manifests::file_of;
use crate::store::segment_cursor::{MovedRows, SegmentCursor, read_rows, remapped};
use crate::store::segments::{Damage, ReadCounter, Segment};
use crate::store::transaction::BuiltSegments;

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

    /// Whether the newest manifest does without some of the segments: the index was dropped, or others merged or repaired it.
    pub(super) async fn is_outdated(&self, store: &Store) -> bool {
        let named = store.named_segments().await;
        named.is_ok_and(|named| self.segments.iter().any(|merged| !named.contains(&merged.segment.id)))
    }

    pub(super) fn rows(&self, manifest: &Manifest) -> u64 {
        let files = self.segments.iter().flat_map(|merged| &merged.files);
        files.filter_map(|file| file_of(manifest, *file)).map(ManifestFile::rows).sum()
    }

    /// Writes the segment; none if it cannot be made now.
    pub(super) async fn run(
        &self,
        context: &BuildContext,
        snapshot: &Snapshot,
        manifest: &Manifest,
    ) -> Result<Option<BuiltSegments>> {
        match self.is_exact() {
            true => self.merge(context, manifest).await.map(Some),
            false => self.build_again(context, snapshot).await,
        }
    }

    /// Filters say nothing of the keys in them: they are made from the column, once for all files.
    async fn build_again(&self, context: &BuildContext, snapshot: &Snapshot) -> Result<Option<BuiltSegments>> {
        let wanted: HashSet<u32> = self.segments.iter().flat_map(|merged| merged.files.iter().copied()).collect();
        let with_states = snapshot.files().iter().zip(snapshot.index_states.iter());
        let files = with_states.filter(|(_, state)| state.number.is_some_and(|number| wanted.contains(&number)));
        let group = Group::of(snapshot, files.map(|(file, _)| file), vec![self.index.clone()])?;
        let mut result = GroupResult::default();
        let outcome = build_group(context, &group, &mut result).await;
        let whole = result.files.len() == wanted.len();
        match outcome {
            Ok(()) if whole => built_of(&result).map(Some),
            outcome => {
                for segment in &result.segments {
                    context.store.discard(&segment.path).await;
                }
                outcome?;
                match result.failed.first() {
                    // A file changed meanwhile: the next build will index it again.
                    None => Ok(None),
                    Some(Finding { path, problem }) => Err(Error::corrupt(format!(
                        "segments of the index {} are not merged, as the data file {path} cannot be read: {problem}",
                        self.index.name
                    ))),
                }
            }
        }
    }

    /// Merges the values of the segments.
    async fn merge(&self, context: &BuildContext, manifest: &Manifest) -> Result<BuiltSegments> {
        let encoding = encoding_of(self.index)?;
        let files = self.segments.iter().flat_map(|merged| &merged.files);
        let rows = files.filter_map(|file| file_of(manifest, *file));
        let memory = coarse_memory_bytes(encoding, rows.map(aligned_rows).sum());
        if memory > context.budget.limit() {
            return Err(Error::unsupported(format!(
                "merging the segments of the index {} takes {memory} bytes of memory, and {} may be used: allow more with --memory, \
                 or declare the index with a smaller files_per_segment",
                self.index.name,
                context.budget.limit()
            )));
        }
        let schemas: Vec<(u32, &Arc<[u8]>)> = manifest.schemas().collect();
        let mut built = BuiltSegments {
            schemas: schemas.iter().map(|(_, schema)| schema.to_vec()).collect(),
            ..BuiltSegments::default()
        };
        let (mut files, mut sources, mut base) = (Vec::new(), Vec::new(), 0u32);
        for MergedSegment { segment, files: held } in self.segments.iter().filter(|merged| !merged.files.is_empty()) {
            let damaged = |damage: Damage| match damage.is_unread {
                true => Error::io(format!(
                    "the segment {} cannot be read, so that nothing was merged: {}; mend the store, and try again",
                    segment.path, damage.problem
                )),
                false => Error::corrupt(format!(
                    "the segment {} cannot be merged: {}; `lakemark index build --verify` builds it again",
                    segment.path, damage.problem
                )),
            };
            let counter = ReadCounter::default();
            let opened = Segment::open_afresh(&context.store, segment, self.index, &counter).await.map_err(damaged)?;
            let names: HashMap<&str, u32> =
                held.iter().filter_map(|file| Some((file_of(manifest, *file)?.path.as_str(), *file))).collect();
            let mut places = Vec::new();
            for entry in &opened.directory.files {
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
            let source = source(&opened, places).await.map_err(damaged)?;
            sources.push(ReservedSource { source, memory: None });
        }
        let id = new_id().into_bytes();
        let meta = SegmentMeta {
            segment_id: id,
            index_id: self.index.id,
            column: self.index.column.clone(),
            key_type: self.index.key_type.clone(),
            files,
            encoding,
            bins: None,
            precision: precision_of(&self.index.options)?,
            zones: zones_of(self.index, context.budget.limit()),
        };
        let written = write(context, meta, move || Ok(sources)).await?;
        let places = (0..).take(built.files.len()).collect();
        built.segments.push(ManifestSegment { files: places, ..written.segment });
        Ok(built)
    }
}

/// The values of a segment as a chunk of a merge, with their rows where they will be.
async fn source(segment: &Segment, places: Vec<MovedRows>) -> Result<ChunkSource, Damage> {
    let counter = ReadCounter::default();
    let nulls = remapped(read_rows(segment, segment.directory.nulls, &counter).await?, &places);
    let opaque = remapped(read_rows(segment, segment.directory.opaque, &counter).await?, &places);
    let mut walk = SegmentCursor::new(segment, &counter).await?;
    let handle = Handle::current();
    // The merge calls this on a thread that may block.
    let next = move || loop {
        match handle.block_on(walk.next(&counter)) {
            Ok(None) => return Ok(None),
            Ok(Some(ValueRows { key, rows })) => {
                let rows = remapped(rows, &places);
                if !rows.is_empty() {
                    return Ok(Some(ValueRows { key, rows }));
                }
            }
            Err(Damage { is_unread: true, problem, .. }) => return Err(io::Error::other(problem)),
            Err(damage) => return Err(io::Error::new(io::ErrorKind::InvalidData, damage.problem)),
        }
    };
    Ok(ChunkSource::stream(nulls, opaque, Box::new(next)))
}
