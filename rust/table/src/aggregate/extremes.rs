//! The least and the greatest value of columns and the number of their NULLs, from segment directories and lists of NULLs.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use bytes::Bytes;
use lakemark_format::key::Key;
use lakemark_index::bitmap::Mask;
use lakemark_index::{LiteralKey, decode_keys, is_ambiguous};

use super::answered_files::AnsweredFiles;
use super::segment_values::list_range;
use super::selected_rows::has_nothing;
use super::sources::{ConstantFile, CoveringSegment, ValueSources};
use super::wanted_files::WantedFiles;
use crate::error::Result;
use crate::snapshot::{FileProbe, FileProbes, Snapshot};
use crate::store::segments::{Damage, ReadCounter};

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
