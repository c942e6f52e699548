//! Putting the filters of segments one behind the other, without the data.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::SegmentDirectory;
use lakemark_index::bitmap::{ChunkSource, merge_zones};
use lakemark_index::zones::{ZonePart, common_filters};
use tokio::runtime::Handle;

use super::parts::{Gathered, Merge, MergeResult, OPENED_AT_ONCE, OpenPart, Window, damaged, unread, with_segment};
use crate::error::Result;
use crate::indexing::build::BuildContext;
use crate::indexing::build::segment::write_by;
use crate::store::kind::zones_of;
use crate::store::segment_cursor::{READ_AHEAD_BYTES, ReadAhead, remapped};
use crate::store::segments::{Damage, ReadCounter};

/// Filters are copied out of a window in pieces of this share of it.
const PIECES: u64 = 4;

/// Whether the filters of all parts can be put together as they are.
pub(super) fn are_alike(merge: &Merge<'_>, context: &BuildContext, gathered: &Gathered) -> bool {
    let directories: Vec<&SegmentDirectory> =
        gathered.parts.iter().map(|part| part.opened.directory.as_ref()).collect();
    common_filters(&directories, &zones_of(merge.index, context.budget.limit())).is_some()
}

/// Writes the segment.
pub(super) async fn write(merge: &Merge<'_>, context: &BuildContext, gathered: Gathered) -> Result<MergeResult> {
    let Gathered { built, files, parts } = gathered;
    let opening = stream::iter(parts).map(|part| open(context, part)).buffered(OPENED_AT_ONCE);
    let opened: Vec<PartToMerge> = opening.try_collect().await?;
    let (rows, zones): (Vec<ChunkSource>, Vec<ZonePart>) =
        opened.into_iter().map(|part| (part.rows, part.zones)).unzip();
    let make = move |meta, sink: &mut dyn FnMut(&[u8]) -> std::io::Result<()>| merge_zones(meta, &rows, zones, sink);
    let meta = merge.meta(context, files, &built.files, Vec::new())?;
    let written = write_by(context, meta, make).await?;
    Ok(with_segment(built, written))
}

/// A part as the merge takes it.
struct PartToMerge {
    /// Its NULL and opaque rows, where they will be.
    rows: ChunkSource,
    zones: ZonePart,
}

async fn open(context: &BuildContext, part: OpenPart) -> Result<PartToMerge> {
    let path = part.path.clone();
    begin(context, part).await.map_err(|damage| damaged(&path, &damage))
}

/// Reads the first window of a part, with the rows that stand before the filters.
async fn begin(context: &BuildContext, part: OpenPart) -> Result<PartToMerge, Damage> {
    let kept = part.kept();
    let OpenPart { opened, places, .. } = part;
    let directory: Arc<SegmentDirectory> = Arc::clone(&opened.directory);
    let Window { memory, bytes } = Window::reserve(context, READ_AHEAD_BYTES / PIECES);
    let counter = ReadCounter::default();
    let mut ahead = ReadAhead::new(&opened, bytes);
    ahead.begin(&counter).await?;
    let nulls = remapped(ahead.rows(directory.nulls, &counter).await?, &places);
    let opaque = remapped(ahead.rows(directory.opaque, &counter).await?, &places);
    let handle = Handle::current();
    // The merge calls this on a thread that may block.
    let read = move |range| {
        let _memory = &memory;
        let read = handle.block_on(ahead.read(&[range], &counter)).map_err(unread)?;
        Ok(read.first().map(|bytes| bytes.to_vec()).unwrap_or_default())
    };
    let zones = ZonePart::new(directory, |file| kept.contains(&file.base), bytes / PIECES, Box::new(read));
    Ok(PartToMerge { rows: ChunkSource::stream(nulls, opaque, Box::new(|| Ok(None))), zones })
}
