//! The sorted columns of a group, merged into one segment per index.

use std::io;

use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{Encoding, SegmentFile, column};
use lakemark_index::bitmap::{SegmentMeta, SegmentSummary, coarse_memory_bytes};

use super::BuildContext;
use super::coarse::{Coarse, IndexedColumn};
use super::read_group::{OpenGroupFile, SortedColumn, SortedColumns};
use super::segment::{WrittenSegment, meta_of, write};
use super::spill::SpilledChunk;
use crate::error::{Error, Result};
use crate::files::columns::column_hash;
use crate::storage::ids::new_id;
use crate::store::included::riding_columns;
use crate::store::segment_id::{SegmentContent, SourceFile, segment_id};

/// The column of a tree of Bloom filters is in no order if a search probes more filters than this, and this share of all.
const MANY_FENCES: f64 = 64.0;
const LARGE_SHARE: f64 = 0.1;

/// One segment to write: its files with their fingerprints, and its chunks at their places.
pub(super) struct MergeJob {
    meta: SegmentMeta,
    chunks: Vec<PlacedChunk>,
}

/// A chunk, and where its rows are in the row space of the segment.
struct PlacedChunk {
    first_row: u32,
    chunk: SpilledChunk,
}

pub(super) fn merge_jobs(
    lacking: &[IndexedColumn<'_>],
    encodings: &[Encoding],
    readings: &[OpenGroupFile<'_>],
    kept: &[usize],
    sorted: Vec<SortedColumns>,
    memory: u64,
    has_random_ids: bool,
) -> Result<Vec<MergeJob>> {
    let mut jobs: Vec<MergeJob> = Vec::with_capacity(lacking.len());
    for (column, encoding) in lacking.iter().zip(encodings) {
        let riding = riding_columns(&column.fields.riding);
        let meta = SegmentMeta { riding, ..meta_of(column.index, *encoding, memory)? };
        jobs.push(MergeJob { meta, chunks: Vec::new() });
    }
    let mut sources: Vec<Vec<SourceFile<'_>>> = jobs.iter().map(|_| Vec::with_capacity(kept.len())).collect();
    let mut sorted = sorted.into_iter().peekable();
    let mut base = 0u32;
    for (place, reading) in readings.iter().enumerate() {
        let mut seen: Vec<SeenColumn> = jobs.iter().map(|_| SeenColumn::default()).collect();
        let mut row = base;
        while let Some(part) = sorted.next_if(|part| part.file == place) {
            if !kept.contains(&place) {
                continue;
            }
            for ((job, seen), SortedColumn { chunk, hash, caught }) in jobs.iter_mut().zip(&mut seen).zip(part.columns)
            {
                job.chunks.push(PlacedChunk { first_row: row, chunk });
                seen.hashes.push(hash);
                seen.has_false_statistics |= caught.is_some();
            }
            row += reading.footer.row_groups.get(part.row_group).copied().unwrap_or_default();
        }
        if !kept.contains(&place) {
            continue;
        }
        for ((job, sources), SeenColumn { hashes, has_false_statistics }) in jobs.iter_mut().zip(&mut sources).zip(seen)
        {
            job.meta.files.push(SegmentFile {
                path: reading.file.path.clone(),
                base,
                row_groups: reading.footer.row_groups.clone(),
                footer_hash: reading.footer.hash,
                column_hash: column_hash(hashes),
            });
            sources.push(reading.source(has_false_statistics));
        }
        // The last file may end where the row space ends: nothing follows it.
        base = row.checked_next_multiple_of(BASE_ALIGNMENT).unwrap_or(u32::MAX);
    }
    for ((job, column), sources) in jobs.iter_mut().zip(lacking).zip(sources) {
        job.meta.segment_id = match has_random_ids {
            true => new_id().into_bytes(),
            false => segment_id(column.index, SegmentContent::of(&job.meta), sources),
        };
    }
    Ok(jobs)
}

/// What was seen of a column in one file.
#[derive(Default)]
struct SeenColumn {
    hashes: Vec<u64>,
    has_false_statistics: bool,
}

pub(super) async fn merge_one(context: &BuildContext, job: MergeJob, coarse: &Coarse) -> Result<WrittenSegment> {
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
    Ok(written)
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
