//! One group of data files: the segments that are there are taken over, the others are built.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{FileNumbers, ManifestSegment};

use super::BuildContext;
use super::coarse::{IndexedColumn, reserve};
use super::group::{Group, GroupResult, is_changed};
use super::left_segments::{ExpectedFile, take_over};
use super::merge_group::{merge_jobs, merge_one};
use super::read_group::{OpenGroupFile, ReadGroup, caught_in, open, read};
use super::segment::WrittenSegment;
use super::spill::Spill;
use crate::error::Result;
use crate::files::columns::IndexedFields;
use crate::storage::file_time::BuildStart;
use crate::store::included::riding_columns;
use crate::store::segment_id::{SegmentContent, segment_id};
use crate::table_format::TableFormat;

/// Builds the segments of a group, but for those that are there. What is written before a failure stays for whoever builds the same.
pub(crate) async fn build_group(context: &BuildContext, group: &Group, result: &mut GroupResult) -> Result<()> {
    let has_random_ids = group.has_random_ids || has_young(context, group).await;
    let readings = open(context, group, result).await?;
    let left = match has_random_ids {
        true => vec![None; group.indexes.len()],
        false => take_over_all(context, group, &readings).await,
    };
    let (mut taken_over, mut lacking): (Vec<ManifestSegment>, Vec<IndexedColumn<'_>>) = (Vec::new(), Vec::new());
    for ((index, fields), left) in group.indexes.iter().zip(&group.fields).zip(left) {
        match left {
            Some(segment) => taken_over.push(segment),
            None => lacking.push(IndexedColumn { index, fields }),
        }
    }
    let built = match lacking.is_empty() {
        true => {
            if let Some(progress) = &context.progress {
                progress.advance(readings.iter().map(OpenGroupFile::rows).sum());
            }
            result.files.extend(readings.iter().map(|reading| reading.built(Vec::new())));
            Vec::new()
        }
        false => build_lacking(context, &lacking, &readings, has_random_ids, result).await?,
    };
    let places: FileNumbers = (0..).take(result.files.len()).collect();
    if places.is_empty() {
        return Ok(());
    }
    result.taken_over = taken_over.iter().map(|segment| segment.id).collect();
    let built = built.into_iter().map(|written| {
        if written.is_taken_over {
            result.taken_over.push(written.segment.id);
        }
        written.segment
    });
    let segments: Vec<ManifestSegment> = taken_over.into_iter().chain(built).collect();
    result.segments.extend(segments.into_iter().map(|segment| ManifestSegment { files: places.clone(), ..segment }));
    Ok(())
}

/// Whether somebody may write a file of the group again unseen once it was read: two builds may read different bytes of it. A Delta table
/// never writes a file again.
async fn has_young(context: &BuildContext, group: &Group) -> bool {
    if context.format == TableFormat::Delta {
        return false;
    }
    let begun = BuildStart::after(group.files.iter().map(|file| &file.meta)).await;
    group.files.iter().any(|file| begun.has_young(&file.meta))
}

/// For each index of a group the segment over all of its files, if it is there.
async fn take_over_all(
    context: &BuildContext,
    group: &Group,
    readings: &[OpenGroupFile<'_>],
) -> Vec<Option<ManifestSegment>> {
    let expected: Vec<ExpectedFile<'_>> =
        readings.iter().map(|reading| ExpectedFile { path: &reading.file.path, footer: &reading.footer }).collect();
    let mut left = Vec::with_capacity(group.indexes.len());
    for (index, fields) in group.indexes.iter().zip(&group.fields) {
        let Some(encoding) = index.encoding.known().filter(|_| !expected.is_empty()) else {
            left.push(None);
            continue;
        };
        let content = SegmentContent { encoding, riding: &riding_columns(&fields.riding) };
        let id = segment_id(index, content, readings.iter().map(|reading| reading.source(false)));
        left.push(take_over(&context.store, index, encoding, id, &expected).await);
    }
    left
}

/// Reads the files and writes a segment for each of these indexes. Files that count are added to the result.
async fn build_lacking(
    context: &BuildContext,
    lacking: &[IndexedColumn<'_>],
    readings: &[OpenGroupFile<'_>],
    has_random_ids: bool,
    result: &mut GroupResult,
) -> Result<Vec<WrittenSegment>> {
    // The coarse levels get memory before any chunk: what does not fit beside them is spilled.
    let coarse = reserve(context, lacking, readings)?;
    let spill = Arc::new(Spill::new(Arc::clone(&context.budget), context.store.temp_folder()));
    let fields: Vec<IndexedFields> = lacking.iter().map(|column| column.fields.clone()).collect();
    let ReadGroup { sorted, left_out } = read(context, readings, &fields, &spill, result).await?;
    let mut kept: Vec<usize> = Vec::new();
    for (place, reading) in readings.iter().enumerate() {
        if left_out.contains(&place) {
            continue;
        }
        if is_changed(context, reading.file).await? {
            result.leave_out_changed(reading.file);
        } else {
            kept.push(place);
        }
    }
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    for place in &kept {
        let Some(reading) = readings.get(*place) else { continue };
        let false_statistics = caught_in(&sorted, *place);
        if !false_statistics.is_empty() {
            tracing::warn!(
                file = reading.file.path,
                "the footer has statistics that its values contradict; they are not used from now on"
            );
        }
        result.files.push(reading.built(false_statistics));
    }
    let memory = context.budget.limit();
    let jobs = merge_jobs(lacking, &coarse.encodings, readings, &kept, sorted, memory, has_random_ids)?;
    let mut merges: Vec<BoxFuture<'_, Result<WrittenSegment>>> = Vec::new();
    for job in jobs {
        merges.push(Box::pin(merge_one(context, job, &coarse)));
    }
    stream::iter(merges).buffer_unordered(context.threads).try_collect().await
}
