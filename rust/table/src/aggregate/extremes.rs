//! The least and the greatest value of columns and the number of their NULLs, from segment directories and lists of NULLs. Those of a range
//! of a column are in the value blocks at its ends.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use bytes::Bytes;
use futures::future::BoxFuture;
use lakemark_format::Encoding;
use lakemark_format::key::Key;
use lakemark_index::bitmap::{GroupValue, LeavesFor, Mask, ValueGroups};
use lakemark_index::{KeyRanges, Leaf, LiteralKey, Test, decode_keys, is_ambiguous};

use super::alone::is_whole;
use super::answered_files::AnsweredFiles;
use super::segment_values::list_range;
use super::selected_rows::has_nothing;
use super::sources::{ConstantFile, CoveringSegment, ValueSources};
use super::wanted_files::WantedFiles;
use crate::error::Result;
use crate::snapshot::{FileProbe, FileProbes, Snapshot};
use crate::store::segments::{Damage, ReadCounter, Segment};

/// A request about a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinMaxRequest {
    /// The column, by its name in the table's schema.
    pub column: String,
    /// Whether its least and greatest value are requested, and not only how many values are NULL.
    pub extremes: bool,
}

/// What is known of columns in the exact rows of a probe.
#[derive(Clone, Debug, Default)]
pub struct MinMax {
    /// The files of which all exact rows are counted, for every column.
    pub answered: AnsweredFiles,
    /// By column in the order of the requests; the parts of a column share no row.
    pub columns: Vec<Vec<ColumnMinMax>>,
    /// Reads of the store.
    pub index_reads: u64,
    /// Bytes of these reads.
    pub index_bytes_read: u64,
}

/// What is known of a column in some files.
#[derive(Clone, Debug)]
pub struct ColumnMinMax {
    files: Vec<usize>,
    /// Rows, NULLs included.
    pub rows: u64,
    /// Rows that are NULL.
    pub nulls: u64,
    /// The least value, in an array of length 1; NULL if no row has a value or extremes were not requested.
    pub least: ArrayRef,
    /// The greatest value, likewise.
    pub greatest: ArrayRef,
}

impl Snapshot {
    /// The bounds of some columns over the exact rows of a probe. Files that directories do not suffice for are left out. Indexes that are
    /// missing, stale or damaged never fail it.
    pub async fn min_max(&self, columns: &[MinMaxRequest], files: &FileProbes) -> Result<MinMax> {
        let counter = Arc::new(ReadCounter::default());
        let known = WantedFiles::known_to(files, self);
        let mut parts: Vec<Vec<ColumnMinMax>> = Vec::with_capacity(columns.len());
        for request in columns {
            let mut found = Vec::new();
            if let Some(sources) = ValueSources::find(self, &request.column, &known, &counter).await {
                found.extend(sources.constants.iter().filter_map(|constant| of_constant(files, constant)));
                for cover in &sources.covers {
                    match of_cover(cover, files, request.extremes, &sources.data_type, &counter).await {
                        Ok(bounds) => found.extend(bounds),
                        Err(damage) => {
                            let (column, reason) = (&request.column, damage.reason.code());
                            tracing::warn!(column, reason, problem = damage.problem, "an index file cannot be used");
                        }
                    }
                }
            }
            parts.push(found);
        }
        let mut answered =
            if files.are_counts() { AnsweredFiles::none_of(files) } else { AnsweredFiles::all_of(files.len()) };
        while keep_common(&mut parts, files, &mut answered) {}
        let totals = counter.totals();
        Ok(MinMax { answered, columns: parts, index_reads: totals.reads, index_bytes_read: totals.bytes })
    }
}

impl Snapshot {
    /// The least and the greatest value of a column in the rows that pass a test of it: those at the ends of one range, however many rows lie
    /// between. None if the index alone does not say that of every file, as where rows are deleted or replaced.
    pub fn range_extremes<'a>(&'a self, leaf: &'a Leaf) -> BoxFuture<'a, Option<MinMax>> {
        Box::pin(range_extremes(self, leaf))
    }
}

async fn range_extremes(snapshot: &Snapshot, leaf: &Leaf) -> Option<MinMax> {
    let Test::Ranges(ranges) = &leaf.test else { return None };
    if ranges.ranges().len() != 1 || snapshot.deleted_rows() > 0 {
        return None;
    }
    let counter = Arc::new(ReadCounter::default());
    let wanted = WantedFiles::all_of(snapshot);
    let ValueSources { data_type, constants, covers } =
        ValueSources::find(snapshot, &leaf.column, &wanted, &counter).await?;
    // A file that lacks the column has no row in a range.
    let covered = covers.iter().map(CoveringSegment::file_count).sum::<u64>() + constants.len() as u64;
    let are_null = constants.iter().all(|constant| constant.value.is_null(0));
    if !are_null || covered != snapshot.files().len() as u64 {
        return None;
    }
    let mut parts: Vec<ColumnMinMax> = Vec::with_capacity(covers.len());
    for cover in &covers {
        match of_range(cover, ranges, &data_type, &counter).await {
            Ok(bounds) => parts.extend(bounds?),
            Err(damage) => {
                let (column, reason) = (&leaf.column, damage.reason.code());
                tracing::warn!(column, reason, problem = damage.problem, "an index file cannot be used");
                return None;
            }
        }
    }
    let totals = counter.totals();
    let answered = AnsweredFiles::all_of(snapshot.files().len());
    let columns = vec![parts];
    Some(MinMax { answered, columns, index_reads: totals.reads, index_bytes_read: totals.bytes })
}

/// The bounds of the values of a segment that are in a range, if there are any. None if the segment has other files than these, rows whose
/// values it does not know, or no list of its values.
async fn of_range(
    cover: &CoveringSegment,
    ranges: &KeyRanges,
    data_type: &DataType,
    counter: &ReadCounter,
) -> Result<Option<Vec<ColumnMinMax>>, Damage> {
    let segment = cover.segment.with_leaves(ranges, LeavesFor::Ends, counter).await?;
    let directory = &segment.directory;
    let groups = ValueGroups::new(directory, ranges.clone());
    let lists_values = directory.encoding == Encoding::Packed || groups.value_limit() < u64::MAX;
    if !lists_values || !is_whole(cover) {
        return Ok(None);
    }
    let blocks = 0..groups.block_count();
    let first = first_values(&segment, &groups, blocks.clone(), counter).await?;
    let last = match blocks.len() {
        0 | 1 => None,
        _ => Some(first_values(&segment, &groups, blocks.rev(), counter).await?),
    };
    let greatest = last.as_ref().unwrap_or(&first).last();
    let (Some(least), Some(greatest)) = (first.first(), greatest) else { return Ok(Some(Vec::new())) };
    if [least, greatest].into_iter().any(|value| is_ambiguous(&value.key, &directory.key_type)) {
        return Ok(None);
    }
    let decoded =
        |value: &GroupValue| decode_keys(&[LiteralKey::Key(value.key.clone())], data_type).map_err(Damage::corrupt);
    let (least, greatest) = (decoded(least)?, decoded(greatest)?);
    Ok(Some(vec![ColumnMinMax { files: Vec::new(), rows: 0, nulls: 0, least, greatest }]))
}

/// The values of the first of these blocks that has some in the ranges. Between the blocks at both ends of a range every block has.
async fn first_values(
    segment: &Segment,
    groups: &ValueGroups,
    blocks: impl Iterator<Item = usize> + Send,
    counter: &ReadCounter,
) -> Result<Vec<GroupValue>, Damage> {
    for block in blocks {
        let part = block..block + 1;
        let bytes = segment.read(&groups.block_ranges(part.clone()), counter).await?;
        let values = groups.values(part, &bytes).map_err(Damage::corrupt)?;
        if !values.is_empty() {
            return Ok(values);
        }
    }
    Ok(Vec::new())
}

/// A row counts only if all columns know the row. Parts that reach into other files are dropped, until none is left that does. Says whether
/// anything was dropped.
fn keep_common(parts: &mut [Vec<ColumnMinMax>], files: &FileProbes, answered: &mut AnsweredFiles) -> bool {
    for column in parts.iter() {
        let known: HashSet<usize> = column.iter().flat_map(|part| &part.files).copied().collect();
        let is_open = |(place, file): &(usize, &FileProbe)| !has_nothing(file) && !known.contains(place);
        answered.leave(files.listed().filter(is_open).map(|(place, _)| place));
    }
    let mut dropped = false;
    for column in parts {
        let before = column.len();
        column.retain(|part| part.files.iter().all(|file| answered.contains(*file)));
        dropped |= column.len() < before;
    }
    dropped
}

fn of_constant(files: &FileProbes, constant: &ConstantFile) -> Option<ColumnMinMax> {
    let ConstantFile { file, value } = constant;
    let rows = u64::from(files.get(*file).and_then(FileProbe::exact_rows)?.len());
    let nulls = if value.is_null(0) { rows } else { 0 };
    (rows > 0).then(|| ColumnMinMax {
        files: vec![*file],
        rows,
        nulls,
        least: Arc::clone(value),
        greatest: Arc::clone(value),
    })
}

/// The bounds of a segment's selected rows. All rows of the segment must be selected, unless only NULLs are requested.
async fn of_cover(
    cover: &CoveringSegment,
    files: &FileProbes,
    extremes: bool,
    data_type: &DataType,
    counter: &ReadCounter,
) -> Result<Option<ColumnMinMax>, Damage> {
    let directory = &cover.segment.directory;
    let chosen = cover.files.iter().filter_map(|covered| {
        let rows = files.get(covered.file).and_then(FileProbe::exact_rows)?;
        (rows.universe() == covered.rows).then_some((covered, rows))
    });
    let chosen: Vec<_> = chosen.collect();
    let rows: u64 = chosen.iter().map(|(_, rows)| u64::from(rows.len())).sum();
    let whole = rows == directory.rows();
    if rows == 0 || extremes && (!whole || directory.opaque.rows > 0) {
        return Ok(None);
    }
    let nulls = if whole {
        u64::from(directory.nulls.rows)
    } else {
        let list = directory.nulls;
        let bytes = cover.segment.read(&[list_range(list)], counter).await?;
        let mut mask = Mask::new(directory.universe);
        chosen.iter().for_each(|(covered, rows)| mask.insert(covered.base, rows));
        mask.count(bytes.first().map_or(&[][..], Bytes::as_ref), list).map_err(Damage::corrupt)?
    };
    let ends = [directory.blocks.first().map(|block| &block.first_key), directory.max_key.as_ref()];
    let unclear = |key: &&Key| is_ambiguous(key, &directory.key_type);
    if extremes && ends.iter().flatten().any(unclear) {
        return Ok(None);
    }
    let [least, greatest] = ends.map(|key| match key.filter(|_| extremes) {
        Some(key) => decode_keys(&[LiteralKey::Key(key.clone())], data_type).map_err(Damage::corrupt),
        None => Ok(new_null_array(data_type, 1)),
    });
    let files = chosen.iter().map(|(covered, _)| covered.file).collect();
    Ok(Some(ColumnMinMax { files, rows, nulls, least: least?, greatest: greatest? }))
}
