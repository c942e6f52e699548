//! What is left of a merge where some of its segments are damaged.

use lakemark_format::ManifestIndex;

use super::parts::{Merge, MergedSegment, Window, damaged};
use crate::error::Result;
use crate::indexing::build::BuildContext;
use crate::store::segment_cursor::SegmentCursor;
use crate::store::segments::{Damage, ReadCounter, Segment};

impl<'a> Merge<'a> {
    /// The merge without the segments whose values cannot be walked to the end; none if all can be, or what is left is no merge.
    pub(super) async fn without_damaged(self, context: &BuildContext) -> Result<Option<Merge<'a>>> {
        let Self { index, segments } = self;
        let all = segments.len();
        let mut sound = Merge { index, segments: Vec::with_capacity(all) };
        for merged in segments {
            context.check_cancel()?;
            match walk(context, index, &merged).await {
                Ok(()) => sound.segments.push(merged),
                Err(damage) if damage.is_unread => return Err(damaged(&merged.segment.path, &damage)),
                Err(damage) => {
                    let (index, segment) = (&index.name, &merged.segment.path);
                    tracing::warn!(index, segment, problem = damage.problem, "a damaged segment is not merged");
                }
            }
        }
        Ok((sound.segments.len() < all && sound.is_worth_it()).then_some(sound))
    }
}

/// Goes through the values of a segment. Of one that has no files any more nothing is read.
async fn walk(context: &BuildContext, index: &ManifestIndex, merged: &MergedSegment<'_>) -> Result<(), Damage> {
    if merged.files.is_empty() {
        return Ok(());
    }
    let counter = ReadCounter::default();
    let opened = Segment::open_afresh(&context.store, merged.segment, index, &counter).await?;
    let Window { memory: _memory, bytes } = Window::reserve(context, 0);
    let mut values = SegmentCursor::new(&opened, bytes, &counter).await?;
    values.rows(opened.directory.nulls, &counter).await?;
    values.rows(opened.directory.opaque, &counter).await?;
    while values.next(&counter).await?.is_some() {}
    Ok(())
}
