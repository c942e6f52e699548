//! How many rows have each of the values that pass a test, where the index alone says so and no row is found for it.
//!
//! A join that needs nothing of a table but keys gets them from here. Each leaf of the index is read once, for its keys, and never for
//! their rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use futures::future::BoxFuture;
use lakemark_format::{Encoding, column};
use lakemark_index::bitmap::{LeavesFor, ValueGroups};
use lakemark_index::{KeyRanges, Leaf, LiteralKey, Test, decode_keys, is_ambiguous};

use super::answered_files::AnsweredFiles;
use super::segment_values::{CHEAP_VALUES, ROWS_PER_VALUE, read_values};
use super::sources::{CoveringSegment, ValueSources};
use super::value_counts::{CONCURRENT_COUNTS, GroupCounts, ValueCounts, unless_damaged};
use super::wanted_files::WantedFiles;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::parts::{CORES, at_once};
use crate::store::segments::{Damage, ReadCounter, Segment};

/// More values are not kept in memory for a join: they take about 100 bytes each while they are read. Of texts each may have 4,096 bytes.
const MOST_VALUES: u64 = 1 << 22;
const MOST_TEXTS: u64 = 1 << 18;
/// Bytes of memory that a value takes.
const VALUE_BYTES: u64 = 100;
/// Nanoseconds to read and decode a leaf of a packed tree, to give one of its keys, and to read a row of one column and look it up in the
/// hash table of a join. Measured with 100,000,000 rows.
const LEAF: u64 = 8_000;
const KEY: u64 = 100;
const ROW: u64 = 15;
/// Leaves that are always worth reading.
const CHEAP_LEAVES: usize = 16;

impl Snapshot {
    /// Counts the rows that pass a test of one column by their values, if the index alone has these counts of every file. None of the rows
    /// may be deleted or replaced, and none may have a value that the index does not know. The values must not be so many that rows are as
    /// quickly read. They must not take more than `most_bytes` of memory.
    ///
    /// # Errors
    /// A task failed. What is wrong with a segment is logged, and there are no counts then.
    pub fn group_counts_alone<'a>(
        &'a self,
        leaf: &'a Leaf,
        most_bytes: u64,
    ) -> BoxFuture<'a, Result<Option<GroupCounts>>> {
        Box::pin(group_counts_alone(self, leaf, most_bytes))
    }
}

async fn group_counts_alone(snapshot: &Snapshot, leaf: &Leaf, most_bytes: u64) -> Result<Option<GroupCounts>> {
    let Test::Ranges(ranges) = &leaf.test else { return Ok(None) };
    if snapshot.deleted_rows() > 0 {
        return Ok(None);
    }
    let counter = Arc::new(ReadCounter::default());
    let wanted = WantedFiles::all_of(snapshot);
    let Some(sources) = ValueSources::find(snapshot, &leaf.column, &wanted, &counter).await else { return Ok(None) };
    let ValueSources { data_type, constants, covers } = sources;
    let (covered, files): (u64, _) = (covers.iter().map(CoveringSegment::file_count).sum(), snapshot.files().len());
    if !constants.is_empty() || covered != files as u64 || !covers.iter().all(is_whole) {
        return Ok(None);
    }
    let is_text = !data_type.is_primitive();
    let most_values = (most_bytes / VALUE_BYTES).min(if is_text { MOST_TEXTS } else { MOST_VALUES });
    let columns = column::display(&leaf.column);
    let Some(planned) = planned(covers, ranges, most_values, &columns, &counter).await? else { return Ok(None) };
    let jobs = planned.into_iter().map(|PlannedCount { cover, groups }| {
        let (data_type, counter) = (data_type.clone(), Arc::clone(&counter));
        async move { count(&cover.segment, groups, &data_type, &counter).await }
    });
    let jobs: Vec<_> = jobs.collect();
    let counted = at_once(jobs.into_iter(), CONCURRENT_COUNTS).await.map_err(|error| Error::task(&error))?;
    let parts = counted.into_iter().map(|counted| unless_damaged(counted, &columns)).collect::<Option<Vec<_>>>();
    let totals = counter.totals();
    Ok(parts.map(|parts| GroupCounts {
        answered: AnsweredFiles::all_of(files),
        parts: parts.into_iter().filter(|part| !part.rows.is_empty()).collect(),
        index_reads: totals.reads,
        index_bytes_read: totals.bytes,
    }))
}

/// Whether a segment is about just these files, and knows all values in them.
pub(super) fn is_whole(cover: &CoveringSegment) -> bool {
    let directory = &cover.segment.directory;
    cover.file_count() == directory.files.len() as u64 && directory.opaque.rows == 0
}

/// What is to be read of a segment.
struct PlannedCount {
    cover: CoveringSegment,
    groups: ValueGroups,
}

/// What is to be read of each segment. None if reading rows is no worse, if the values would take too much memory, or if a segment is damaged.
async fn planned(
    covers: Vec<CoveringSegment>,
    ranges: &KeyRanges,
    most_values: u64,
    columns: &str,
    counter: &Arc<ReadCounter>,
) -> Result<Option<Vec<PlannedCount>>> {
    let jobs = covers.into_iter().map(|cover| {
        let (ranges, counter) = (ranges.clone(), Arc::clone(counter));
        async move { plan(cover, ranges, most_values, &counter).await }
    });
    let planned = at_once(jobs, CONCURRENT_COUNTS.max(*CORES)).await.map_err(|error| Error::task(&error))?;
    let planned = planned.into_iter().map(|planned| unless_damaged(planned, columns)).collect::<Option<Vec<_>>>();
    let Some(planned) = planned else { return Ok(None) };
    let mut values = 0u64;
    let is_worth = planned.iter().all(|PlannedCount { cover, groups }| {
        values = values.saturating_add(groups.value_limit());
        values <= most_values && is_worth_reading(cover, groups)
    });
    Ok(is_worth.then_some(planned))
}

/// What is to be read of a segment; nothing if its values are more than these.
async fn plan(
    cover: CoveringSegment,
    ranges: KeyRanges,
    most_values: u64,
    counter: &ReadCounter,
) -> std::result::Result<Option<PlannedCount>, Damage> {
    let groups = ValueGroups::new(&cover.segment.directory, ranges.clone());
    if groups.value_limit() > most_values {
        return Ok(None);
    }
    if !cover.segment.directory.has_inner_pages() {
        return Ok(Some(PlannedCount { cover, groups }));
    }
    let segment = cover.segment.with_leaves(&ranges, LeavesFor::Keys, counter).await?.into_owned();
    let groups = ValueGroups::new(&segment.directory, ranges);
    Ok(Some(PlannedCount { cover: CoveringSegment { segment, ..cover }, groups }))
}

/// Whether the index gives the values sooner than rows are read.
fn is_worth_reading(cover: &CoveringSegment, groups: &ValueGroups) -> bool {
    let directory = &cover.segment.directory;
    if directory.encoding != Encoding::Packed {
        return groups.value_limit() <= CHEAP_VALUES.max(groups.row_limit() / ROWS_PER_VALUE);
    }
    let leaves = groups.block_count();
    leaves <= CHEAP_LEAVES || leaves as u64 * LEAF + groups.value_limit().saturating_mul(KEY) <= directory.rows() * ROW
}

async fn count(
    segment: &Segment,
    groups: ValueGroups,
    data_type: &DataType,
    counter: &Arc<ReadCounter>,
) -> std::result::Result<Option<ValueCounts>, Damage> {
    let values = read_values(segment, groups, counter).await?;
    let directory = &segment.directory;
    if values.iter().any(|value| is_ambiguous(&value.key, &directory.key_type)) {
        return Ok(None);
    }
    let rows: Vec<u64> = values.iter().map(|value| u64::from(value.rows)).collect();
    let (counted, held) = (rows.iter().sum::<u64>(), directory.rows().saturating_sub(directory.nulls.rows.into()));
    if counted > held {
        return Err(Damage::corrupt(format_args!("{counted} rows have a value where {held} do")));
    }
    let keys: Vec<LiteralKey> = values.into_iter().map(|value| LiteralKey::Key(value.key)).collect();
    let values = decode_keys(&keys, data_type).map_err(Damage::corrupt)?;
    Ok(Some(ValueCounts { values: vec![values], rows }))
}
