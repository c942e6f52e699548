//! One group of data files: read, sorted, merged into one segment per index.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::FieldRef;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{Encoding, FileNumbers, ManifestFile, ManifestIndex, ManifestSegment, SegmentFile, column};
use lakemark_index::bitmap::{SegmentMeta, SegmentSummary, coarse_memory_bytes};
use tokio::sync::Semaphore;

use super::BuildContext;
use super::group::{BuiltFile, Group, GroupFile, GroupResult, is_changed};
use super::segment::{disk_error, write};
use super::spill::{Budget, Reservation, Spill, SpilledChunk};
use crate::error::{Error, Result};
use crate::files::columns::{ColumnChunk, column_hash, list_bytes, read_columns};
use crate::files::footer::Footer;
use crate::storage::disk::on_a_thread;
use crate::storage::file_time::modified_ns;
use crate::storage::ids::new_id;
use crate::store::kind::{precision_of, zones_of};
use crate::store::recorded::is_chosen_by_auto;

/// If a search of a tree of Bloom filters probes more than so many filters, and this share of all, its column is in no order.
const MANY_FENCES: f64 = 64.0;
const LARGE_SHARE: f64 = 0.1;

/// A file of the group while it is read.
struct OpenGroupFile<'a> {
    file: &'a GroupFile,
    footer: Arc<Footer>,
}

/// What reading one row group gave.
struct RowGroupRead {
    /// The place of its file in the group.
    file: usize,
    row_group: usize,
    columns: Result<Vec<SortedColumn>, ReadFailure>,
}

/// Why a row group was not read.
enum ReadFailure {
    /// Its file gave this error.
    File(Error),
    /// Another row group of its file did.
    LeftOut,
    /// What was read cannot be kept, or the build is stopped: no other file would fare better.
    Build(Error),
}

/// The sorted columns of one row group.
struct SortedColumns {
    /// The place of its file in the group.
    file: usize,
    row_group: usize,
    columns: Vec<SortedColumn>,
}

/// A column of a row group, sorted.
struct SortedColumn {
    chunk: SpilledChunk,
    /// Fingerprint of its bytes.
    hash: u64,
    /// The leaf of the column, if its statistics in the footer are false.
    caught: Option<u32>,
}

/// Builds the segments of a group; what was written is in `result` even after a failure.
pub(crate) async fn build_group(context: &BuildContext, group: &Group, result: &mut GroupResult) -> Result<()> {
    let readings = open(context, group, result).await?;
    // The coarse levels get memory before any chunk: what does not fit beside them is spilled.
    let coarse = reserve(context, group, &readings)?;
    let spill = Arc::new(Spill::new(Arc::clone(&context.budget), context.store.temp_folder()));
    let ReadGroup { sorted, left_out } = read(context, &readings, &group.fields, &spill, result).await?;
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
        return Ok(());
    }
    for place in &kept {
        let Some(reading) = readings.get(*place) else { continue };
        let file = ManifestFile { false_statistics: caught_in(&sorted, *place), ..manifest_file(reading) };
        if !file.false_statistics.is_empty() {
            tracing::warn!(
                file = file.path,
                "the footer has statistics that its values contradict; they are not used from now on"
            );
        }
        result.files.push(BuiltFile { file, schema: Arc::clone(&reading.footer.schema) });
    }
    let jobs = merge_jobs(group, &coarse.encodings, &readings, &kept, sorted, context.budget.limit())?;
    let places: FileNumbers = (0..).take(kept.len()).collect();
    let mut merges: Vec<BoxFuture<'_, Result<ManifestSegment>>> = Vec::new();
    for job in jobs {
        merges.push(Box::pin(merge_one(context, job, &coarse)));
    }
    let mut merged = stream::iter(merges).buffer_unordered(context.threads);
    while let Some(segment) = merged.try_next().await? {
        result.segments.push(ManifestSegment { files: places.clone(), ..segment });
    }
    Ok(())
}

/// The leaves of a file whose statistics are false, by its place in the group.
fn caught_in(sorted: &[SortedColumns], place: usize) -> Vec<u32> {
    let columns = sorted.iter().filter(|sorted| sorted.file == place).flat_map(|sorted| &sorted.columns);
    let leaves: BTreeSet<u32> = columns.filter_map(|column| column.caught).collect();
    leaves.into_iter().collect()
}

async fn open<'a>(
    context: &BuildContext,
    group: &'a Group,
    result: &mut GroupResult,
) -> Result<Vec<OpenGroupFile<'a>>> {
    let mut readings = Vec::with_capacity(group.files.len());
    for file in &group.files {
        match Footer::read(context.object_store.as_ref(), &file.meta, &file.path).await {
            Ok(footer) => readings.push(OpenGroupFile { file, footer: Arc::new(footer) }),
            Err(error) => result.leave_out(context, file, error).await?,
        }
    }
    Ok(readings)
}

/// Memory for the coarse levels of a group, and how many of its merges may have one at the same time.
struct Coarse {
    turns: Semaphore,
    /// The encoding of each index of the group.
    encodings: Vec<Encoding>,
    _memory: Vec<Reservation>,
}

/// Takes memory for as many coarse levels as merges run at once, or for fewer, but for one at least.
fn reserve(context: &BuildContext, group: &Group, readings: &[OpenGroupFile<'_>]) -> Result<Coarse> {
    let aligned = |reading: &OpenGroupFile<'_>| -> u64 {
        let rows: u64 = reading.footer.row_groups.iter().copied().map(u64::from).sum();
        rows.next_multiple_of(u64::from(BASE_ALIGNMENT))
    };
    let rows = readings.iter().map(aligned).sum();
    let mut encodings = group.indexes.iter().map(encoding_of).collect::<Result<Vec<_>>>()?;
    let bytes = |encoding: &Encoding| coarse_memory_bytes(*encoding, rows);
    // The largest come first: a merge that has a turn has the memory for any of them.
    let mut needs: Vec<(u64, usize)> = encodings.iter().map(bytes).zip(0..).filter(|(bytes, _)| *bytes > 0).collect();
    needs.sort_unstable_by(|a, b| b.cmp(a));
    let mut memory: Vec<Reservation> = Vec::new();
    for (bytes, place) in needs {
        if memory.len() == context.threads {
            break;
        }
        let taken = Budget::reserve(&context.budget, bytes);
        let is_first = memory.is_empty();
        match (taken, group.indexes.get(place), encodings.get_mut(place)) {
            (Some(taken), ..) => {
                memory.push(taken);
                continue;
            }
            (None, Some(index), Some(encoding)) if is_first => {
                if !is_chosen_by_auto(index) {
                    return Err(Error::unsupported(format!(
                        "the encoding {} of the index {} takes {bytes} bytes of memory for the {rows} rows of a segment, and the build \
                     may use {}: allow more with --memory, or declare the index with a smaller files_per_segment",
                        index.encoding,
                        index.name,
                        context.budget.limit()
                    )));
                }
                tracing::warn!(
                    index = index.name,
                    bytes,
                    limit = context.budget.limit(),
                    "the memory limit does not allow for the encoding that auto chose; segments get the encoding equality instead"
                );
                *encoding = Encoding::Equality;
            }
            _ => break,
        }
    }
    // Files without rows need no memory, and a turn all the same.
    Ok(Coarse { turns: Semaphore::new(memory.len().max(1)), encodings, _memory: memory })
}

/// The encoding that an index was declared with.
pub(crate) fn encoding_of(index: &ManifestIndex) -> Result<Encoding> {
    index.encoding.known().ok_or_else(|| {
        Error::unsupported(format!(
            "the index {} has the encoding {}, which this release does not build: upgrade lakemark, or drop the index",
            index.name, index.encoding
        ))
    })
}

/// What was read of a group.
struct ReadGroup {
    /// The sorted columns, in the order of rows.
    sorted: Vec<SortedColumns>,
    /// The places of files that cannot be read, or changed meanwhile.
    left_out: HashSet<usize>,
}

/// Reads all row groups, some at a time. Of a file that cannot be read nothing is kept.
async fn read(
    context: &BuildContext,
    readings: &[OpenGroupFile<'_>],
    fields: &[FieldRef],
    spill: &Arc<Spill>,
    result: &mut GroupResult,
) -> Result<ReadGroup> {
    let alone = Semaphore::new(1);
    let alone = &alone;
    let left_out: Mutex<HashSet<usize>> = Mutex::default();
    let is_left_out = |file: usize| left_out.lock().unwrap_or_else(PoisonError::into_inner).contains(&file);
    let is_left_out = &is_left_out;
    let mut tasks: Vec<BoxFuture<'_, RowGroupRead>> = Vec::new();
    for (place, reading) in readings.iter().enumerate() {
        for row_group in 0..reading.footer.row_groups.len() {
            tasks.push(Box::pin(async move {
                let columns = match is_left_out(place) {
                    true => Err(ReadFailure::LeftOut),
                    false => read_row_group(context, reading, row_group, fields, spill, alone).await,
                };
                RowGroupRead { file: place, row_group, columns }
            }));
        }
    }
    let mut done = stream::iter(tasks).buffer_unordered(context.threads);
    let mut sorted: Vec<SortedColumns> = Vec::new();
    while let Some(RowGroupRead { file, row_group, columns }) = done.next().await {
        match columns {
            Ok(columns) if !is_left_out(file) => sorted.push(SortedColumns { file, row_group, columns }),
            Ok(_) | Err(ReadFailure::LeftOut) => {}
            Err(ReadFailure::File(_)) if is_left_out(file) => {}
            Err(ReadFailure::File(error)) => {
                let Some(reading) = readings.get(file) else { return Err(error) };
                left_out.lock().unwrap_or_else(PoisonError::into_inner).insert(file);
                sorted.retain(|sorted| sorted.file != file);
                result.leave_out(context, reading.file, error).await?;
            }
            Err(ReadFailure::Build(error)) => return Err(error),
        }
    }
    drop(done);
    sorted.sort_by_key(|sorted| (sorted.file, sorted.row_group));
    Ok(ReadGroup { sorted, left_out: left_out.into_inner().unwrap_or_else(PoisonError::into_inner) })
}

async fn read_row_group(
    context: &BuildContext,
    reading: &OpenGroupFile<'_>,
    row_group: usize,
    fields: &[FieldRef],
    spill: &Arc<Spill>,
    alone: &Semaphore,
) -> Result<Vec<SortedColumn>, ReadFailure> {
    context.check_cancel().map_err(ReadFailure::Build)?;
    let (store, file) = (context.object_store.as_ref(), reading.file);
    let bytes = list_bytes(&reading.footer, row_group, fields);
    if bytes > context.budget.limit() {
        return Err(ReadFailure::File(Error::unsupported(format!(
            "the lists of row group {row_group} of the data file {} have so many elements that sorting them takes {bytes} bytes of memory, \
             and the build may use {}: allow more with --memory, or write the file with smaller row groups",
            file.path,
            context.budget.limit()
        ))));
    }
    // Where there is no room for several columns, they are sorted one at a time.
    let room = Budget::reserve(&context.budget, bytes);
    let _turn = match &room {
        None if bytes > 0 => {
            let ended = |_| ReadFailure::Build(Error::internal("the turns of row groups have ended"));
            Some(alone.acquire().await.map_err(ended)?)
        }
        _ => None,
    };
    let columns = read_columns(store, &file.meta, &file.path, &reading.footer, row_group, fields).await;
    let columns = columns.map_err(ReadFailure::File)?;
    // From here on only what is kept takes memory.
    drop(room);
    let spill = Arc::clone(spill);
    let keep = move || -> io::Result<Vec<SortedColumn>> {
        let sorted = columns
            .into_iter()
            .map(|ColumnChunk { chunk, hash, caught }| Ok(SortedColumn { chunk: spill.push(chunk)?, hash, caught }));
        sorted.collect()
    };
    let kept = on_a_thread(keep).await.map_err(|error| ReadFailure::Build(Error::task(&error)))?;
    let kept = kept.map_err(|error| ReadFailure::Build(disk_error(context, error)))?;
    if let Some(progress) = &context.progress {
        progress.advance(reading.footer.row_groups.get(row_group).copied().unwrap_or_default().into());
    }
    Ok(kept)
}

fn manifest_file(reading: &OpenGroupFile<'_>) -> ManifestFile {
    ManifestFile {
        path: reading.file.path.clone(),
        size: reading.file.meta.size,
        modified_ns: modified_ns(&reading.file.meta),
        etag: reading.file.meta.e_tag.clone(),
        footer_hash: reading.footer.hash,
        schema: 0,
        row_groups: reading.footer.row_groups.clone(),
        false_statistics: Vec::new(),
    }
}

/// One segment to write: its files with their fingerprints, and its chunks at their places.
struct MergeJob {
    meta: SegmentMeta,
    chunks: Vec<PlacedChunk>,
}

/// A chunk, and where its rows are in the row space of the segment.
struct PlacedChunk {
    first_row: u32,
    chunk: SpilledChunk,
}

fn merge_jobs(
    group: &Group,
    encodings: &[Encoding],
    readings: &[OpenGroupFile<'_>],
    kept: &[usize],
    sorted: Vec<SortedColumns>,
    memory: u64,
) -> Result<Vec<MergeJob>> {
    let mut jobs: Vec<MergeJob> = Vec::with_capacity(group.indexes.len());
    for (index, encoding) in group.indexes.iter().zip(encodings) {
        let meta = SegmentMeta {
            segment_id: new_id().into_bytes(),
            index_id: index.id,
            column: index.column.clone(),
            key_type: index.key_type.clone(),
            files: Vec::with_capacity(kept.len()),
            encoding: *encoding,
            bins: None,
            precision: precision_of(&index.options)?,
            zones: zones_of(index, memory),
        };
        jobs.push(MergeJob { meta, chunks: Vec::new() });
    }
    let mut sorted = sorted.into_iter().peekable();
    let mut base = 0u32;
    for (place, reading) in readings.iter().enumerate() {
        let mut hashes: Vec<Vec<u64>> = vec![Vec::new(); jobs.len()];
        let mut row = base;
        while let Some(part) = sorted.next_if(|part| part.file == place) {
            if !kept.contains(&place) {
                continue;
            }
            for ((job, hashes), SortedColumn { chunk, hash, .. }) in jobs.iter_mut().zip(&mut hashes).zip(part.columns)
            {
                job.chunks.push(PlacedChunk { first_row: row, chunk });
                hashes.push(hash);
            }
            row += reading.footer.row_groups.get(part.row_group).copied().unwrap_or_default();
        }
        if !kept.contains(&place) {
            continue;
        }
        for (job, hashes) in jobs.iter_mut().zip(hashes) {
            job.meta.files.push(SegmentFile {
                path: reading.file.path.clone(),
                base,
                row_groups: reading.footer.row_groups.clone(),
                footer_hash: reading.footer.hash,
                column_hash: column_hash(hashes),
            });
        }
        // The last file may end where the row space ends: nothing follows it.
        base = row.checked_next_multiple_of(BASE_ALIGNMENT).unwrap_or(u32::MAX);
    }
    Ok(jobs)
}

async fn merge_one(context: &BuildContext, job: MergeJob, coarse: &Coarse) -> Result<ManifestSegment> {
    // The turn is given back when the merge has ended.
    let _turn = match coarse_memory_bytes(job.meta.encoding, 1) {
        0 => None,
        _ => Some(coarse.turns.acquire().await.map_err(|_| Error::internal("a merge's turn was taken away"))?),
    };
    let MergeJob { meta, chunks } = job;
    let (column, key_type) = (meta.column.clone(), meta.key_type.clone());
    let sources = move || {
        let waiting = chunks.into_iter().map(|placed| placed.chunk.into_source(placed.first_row, key_type.clone()));
        waiting.collect::<io::Result<Vec<_>>>()
    };
    let written = write(context, meta, sources).await?;
    warn_of_overlap(&column, &written.summary);
    Ok(written.segment)
}

/// Fences help where few of them are around a key.
fn warn_of_overlap(column: &str, summary: &SegmentSummary) {
    let Some(overlap) = summary.overlap else { return };
    if overlap > MANY_FENCES && overlap > summary.zones as f64 * LARGE_SHARE {
        tracing::warn!(
            column = %column::display(column),
            zones = summary.zones,
            around_a_key = overlap.round(),
            "the column is neither ordered nor clustered: a search probes the filters of many zones; an index of the kind key or summary \
             (--using key) reads less"
        );
    }
}
