//! Merging the values of segments, each walked in its order.

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{Manifest, RidingColumn};
use lakemark_index::bitmap::{ChunkSource, ValueRows, coarse_memory_bytes};
use tokio::runtime::Handle;

use super::parts::{
    Gathered, Merge, MergeResult, OPENED_AT_ONCE, OpenPart, Window, aligned_rows, damaged, unread, with_segment,
};
use crate::error::{Error, Result};
use crate::indexing::build::BuildContext;
use crate::indexing::build::coarse::encoding_of;
use crate::indexing::build::segment::write;
use crate::indexing::build::spill::{Budget, Reservation, ReservedSource};
use crate::store::manifests::file_of;
use crate::store::segment_cursor::{MovedRows, SegmentCursor, moved_value, remapped};
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Writes the merged segment.
pub(super) async fn write_merged(
    merge: &Merge<'_>,
    context: &BuildContext,
    manifest: &Manifest,
) -> Result<MergeResult> {
    // It gets memory before any window, and keeps it until the segment is written.
    let _coarse = reserve_coarse(merge, context, manifest)?;
    let gathered = merge.gather(context, manifest).await?;
    let riding = gathered.riding();
    let Gathered { built, files, parts } = gathered;
    let opening = parts.into_iter().map(|part| {
        let columns = RidingPlaces::of(&part, &riding);
        open(context, part, columns)
    });
    let opening = stream::iter(opening.collect::<Vec<_>>()).buffered(OPENED_AT_ONCE);
    let sources: Vec<ReservedSource> = opening.try_collect().await?;
    let meta = merge.meta(context, files, &built.files, riding)?;
    let written = write(context, meta, move || Ok(sources)).await?;
    Ok(with_segment(built, written))
}

/// A part as the merge takes it, with its first window.
async fn open(context: &BuildContext, part: OpenPart, columns: RidingPlaces) -> Result<ReservedSource> {
    let OpenPart { opened, places, path } = part;
    let Window { memory, bytes } = Window::reserve(context, 0);
    let source = source(&opened, places, columns, bytes).await.map_err(|damage| damaged(&path, &damage))?;
    Ok(ReservedSource { source, memory })
}

/// Which of the columns that ride along in a part do so in the merged segment.
enum RidingPlaces {
    All,
    /// Those at these places, in this order.
    Chosen(Vec<usize>),
}

impl RidingPlaces {
    fn of(part: &OpenPart, wanted: &[RidingColumn]) -> Self {
        let have = &part.opened.directory.riding;
        if have.as_slice() == wanted {
            return Self::All;
        }
        Self::Chosen(wanted.iter().filter_map(|column| have.iter().position(|other| other == column)).collect())
    }

    fn apply(&self, value: ValueRows) -> ValueRows {
        match self {
            Self::All => value,
            Self::Chosen(places) => ValueRows { riding: value.riding.with_columns(places), ..value },
        }
    }
}

/// Memory for the coarse level of the merged segment.
fn reserve_coarse(merge: &Merge<'_>, context: &BuildContext, manifest: &Manifest) -> Result<Reservation> {
    let files = merge.segments.iter().flat_map(|merged| &merged.files);
    let rows = files.filter_map(|file| file_of(manifest, *file));
    let memory = coarse_memory_bytes(encoding_of(merge.index)?, rows.map(aligned_rows).sum());
    Budget::reserve(&context.budget, memory).ok_or_else(|| {
        Error::unsupported(format!(
            "merging the segments of the index {} takes {memory} bytes of memory, and {} may be used: allow more with --memory, \
             or declare the index with a smaller files_per_segment",
            merge.index.name,
            context.budget.limit()
        ))
    })
}

/// The values of a segment as a chunk of a merge, with their rows where they will be.
async fn source(
    segment: &Segment,
    places: Vec<MovedRows>,
    columns: RidingPlaces,
    window_bytes: u64,
) -> Result<ChunkSource, Damage> {
    let counter = ReadCounter::default();
    let mut walk = SegmentCursor::new(segment, window_bytes, &counter).await?;
    walk.begin(&counter).await?;
    let nulls = remapped(walk.rows(segment.directory.nulls, &counter).await?, &places);
    let opaque = remapped(walk.rows(segment.directory.opaque, &counter).await?, &places);
    let handle = Handle::current();
    // The merge calls this on a thread that may block.
    let next = move || loop {
        match handle.block_on(walk.next(&counter)) {
            Ok(None) => return Ok(None),
            Ok(Some(value)) => {
                if let Some(value) = moved_value(value, &places) {
                    return Ok(Some(columns.apply(value)));
                }
            }
            Err(damage) => return Err(unread(damage)),
        }
    };
    Ok(ChunkSource::stream(nulls, opaque, Box::new(next)))
}
