//! Rows with their values from the index alone: a `key` index whose option `include` names the columns that are wanted beside its own.
//!
//! ```text
//! rows that a probe selected, file by file ─┬─ their keys ride: key and included columns, from the leaf that was searched
//!                                           └─ all others: left to be read in the data files
//! ```
//!
//! Uses `snapshot` and the rooms below it. Engines call it as [`Snapshot::covered_rows`] once a probe has said which rows are exact, and which
//! are to be rechecked: these an engine tests by their values.
//!
//! Invariant: which rows are selected is settled by the probe, deleted and replaced ones left out. Here a row only gets its values, or does
//! not. Whatever goes wrong with an index leaves its rows to be read.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use futures::future::BoxFuture;
use lakemark_format::{KeyType, ManifestIndex, ManifestSegment, RidingColumn, SegmentDirectory, column};
use lakemark_index::bitmap::{CoveredColumn, CoveredRows, CoveredSearch, LeavesFor};
use lakemark_index::{
    KeyRange, KeyRanges, Leaf, Predicate, RowSet, Test, decode_riding, is_key_the_value, riding_type_of,
};

use crate::index_kind::IndexKind;
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::store::hashed::{has_values, hash_bits};
use crate::store::included::included;
use crate::store::leaf_cache::read_remembered;
use crate::store::segments::{Damage, FileOfSegment, ReadCounter, Segment, segment_key};

/// A request of more rows has no answer, as these are no lookup. A file with more rows is left out of a request.
pub const MOST_COVERED_ROWS: u64 = 1 << 14;
/// Leaves of more bytes are not read for values.
const MOST_BYTES: u64 = 8 << 20;
/// Bytes of leaves that are read for each row: a page, as in a lookup of single keys.
const ROW_BYTES: u64 = 4096;
/// Bytes of leaves that are always worth reading.
const CHEAP_BYTES: u64 = 64 << 10;

/// The values of some rows that are wanted.
#[derive(Debug)]
pub struct CoverRequest<'a> {
    /// What the rows were found by.
    pub predicate: &'a Predicate,
    /// The columns that are wanted, by the names that the table shows.
    pub columns: Vec<String>,
    /// The rows, of each file at most once: exact ones, or such as are to be rechecked.
    pub rows: Vec<RowsOfFile<'a>>,
}

/// Rows of a data file.
#[derive(Clone, Copy, Debug)]
pub struct RowsOfFile<'a> {
    /// The place of the file in the snapshot.
    pub file: usize,
    /// Which rows of it.
    pub rows: &'a RowSet,
}

/// What a covering index gave.
#[derive(Debug)]
pub struct CoveredValues {
    /// The name of the index.
    pub index: String,
    /// For each wanted column the values of all rows that are covered.
    pub columns: Vec<ArrayRef>,
    /// The place of the file of each of these rows.
    pub files: Vec<usize>,
    /// The rows that are covered, of each file that has some.
    pub rows: Vec<CoveredFile>,
    /// Reads of index files, and their bytes.
    pub index_reads: u64,
    /// The bytes of these reads.
    pub index_bytes_read: u64,
}

/// Rows of a data file that an index gave.
#[derive(Clone, Debug)]
pub struct CoveredFile {
    /// The place of the file in the snapshot.
    pub file: usize,
    /// The rows.
    pub rows: RowSet,
}

impl Snapshot {
    /// Whether columns ride along with some index, so that [`Self::covered_rows`] may give something.
    #[must_use]
    pub fn has_covering_index(&self) -> bool {
        let mut indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.any(|index| covers_any(index) && self.is_usable(index))
    }

    /// Whether some index has these columns of the rows that a predicate is true of. It may lack the values of some rows all the same.
    #[must_use]
    pub fn is_covered(&self, predicate: &Predicate, columns: &[String]) -> bool {
        let request = CoverRequest { predicate, columns: columns.to_vec(), rows: Vec::new() };
        self.has_covering_index() && covering_index(self, &request).is_some()
    }

    /// The values of rows that a probe selected, from the index alone. None if no index has the columns and a condition of the predicate on
    /// its key, if the rows are too many for that, or if nothing is gained. Rows that are not given are to be read.
    pub fn covered_rows<'a>(&'a self, request: &'a CoverRequest<'a>) -> BoxFuture<'a, Option<CoveredValues>> {
        Box::pin(covered_rows(self, request))
    }
}

fn covers_any(index: &ManifestIndex) -> bool {
    index.kind.known() == Some(IndexKind::Key) && !included(index).is_empty() && has_values(index)
}

async fn covered_rows(snapshot: &Snapshot, request: &CoverRequest<'_>) -> Option<CoveredValues> {
    let are_few = |of_file: &&RowsOfFile<'_>| u64::from(of_file.rows.len()) <= MOST_COVERED_ROWS;
    let wanted: Vec<RowsOfFile<'_>> = request.rows.iter().filter(are_few).copied().collect();
    let count: u64 = wanted.iter().map(|of_file| u64::from(of_file.rows.len())).sum();
    if count == 0 || count > MOST_COVERED_ROWS || request.columns.is_empty() || !snapshot.has_covering_index() {
        return None;
    }
    let types = request.columns.iter().map(|name| Some(snapshot.field(name)?.data_type().clone()));
    let types: Vec<DataType> = types.collect::<Option<_>>()?;
    let (index, keys) = covering_index(snapshot, request)?;
    let counter = ReadCounter::default();
    let mut found = Covered::default();
    for (segment, files) in segments_of(snapshot, index, &wanted) {
        let cover = SegmentCover { snapshot, index, segment, request, types: &types };
        match cover.read(&keys, &files, &counter).await {
            Ok(Some(part)) => found.add(part),
            Ok(None) => {}
            Err(damage) => {
                let (index, path, reason) = (&index.name, &segment.path, damage.reason.code());
                tracing::warn!(
                    index,
                    segment = path,
                    reason,
                    problem = damage.problem,
                    "an index file cannot be used; its rows are read in the data files"
                );
            }
        }
    }
    let columns = found.columns(&types)?;
    let totals = counter.totals();
    Some(CoveredValues {
        index: index.name.clone(),
        columns,
        files: found.files,
        rows: found.rows,
        index_reads: totals.reads,
        index_bytes_read: totals.bytes,
    })
}

/// An index that has all of the columns, and the keys of the rows by a condition that each of them meets.
fn covering_index<'a>(snapshot: &'a Snapshot, request: &CoverRequest<'_>) -> Option<(&'a ManifestIndex, KeyRanges)> {
    let simple = request.predicate.clone().simplify();
    // Conditions may be put together for an index that does not have the columns, and be apart for one that does.
    let composed = snapshot.with_composites(request.predicate);
    let leaves = conjuncts(&composed).into_iter().chain(conjuncts(&simple));
    leaves.into_iter().find_map(|leaf| {
        let Test::Ranges(keys) = &leaf.test else { return None };
        if !are_few(keys) {
            return None;
        }
        let mut indexes = snapshot.row_indexes_for(leaf).into_iter();
        let index = indexes.find(|index| covers_any(index) && has_all(snapshot, index, &request.columns))?;
        Some((index, keys.clone()))
    })
}

/// Whether the keys are single ones or have an end on both sides.
fn are_few(keys: &KeyRanges) -> bool {
    let has_ends = |range: &KeyRange| range.low != Bound::Unbounded && range.high != Bound::Unbounded;
    keys.ranges().iter().all(has_ends)
}

/// The conditions that each selected row meets.
pub(crate) fn conjuncts(predicate: &Predicate) -> Vec<&Leaf> {
    match predicate {
        Predicate::Leaf(leaf) => vec![leaf],
        Predicate::And(parts) => parts.iter().flat_map(conjuncts).collect(),
        _ => Vec::new(),
    }
}

/// Whether an index is declared with all of these columns, in its key or beside it.
fn has_all(snapshot: &Snapshot, index: &ManifestIndex, columns: &[String]) -> bool {
    let included = included(index);
    columns.iter().all(|name| {
        let stored = snapshot.physical_name(name);
        key_column(index, &stored).is_some() || included.iter().any(|own| *own == *stored)
    })
}

/// The place of a column in the key of an index, if the key has its values bit for bit.
fn key_column(index: &ManifestIndex, stored: &str) -> Option<usize> {
    let place = column::columns(&index.column).position(|own| own == stored)?;
    if hash_bits(index).is_some() {
        return None;
    }
    let key_type = match &index.key_type {
        KeyType::Composite(types) => types.get(place)?,
        key_type => key_type,
    };
    is_key_the_value(key_type).then_some(place)
}

/// The segments of an index that cover some of the files, each with these.
fn segments_of<'a>(
    snapshot: &'a Snapshot,
    index: &ManifestIndex,
    rows: &[RowsOfFile<'a>],
) -> Vec<(&'a ManifestSegment, Vec<RowsOfFile<'a>>)> {
    let places: Vec<usize> = rows.iter().map(|of_file| of_file.file).collect();
    let mut open = NumberedFiles::at(snapshot, &places);
    let segments = snapshot.manifest.iter().flat_map(|manifest| manifest.segments().map(Arc::as_ref));
    let mut found = Vec::new();
    for segment in segments.filter(|segment| segment.index_id == index.id) {
        let taken: HashSet<usize> = open.take(&segment.files).into_iter().collect();
        let files: Vec<RowsOfFile<'a>> = rows.iter().filter(|of_file| taken.contains(&of_file.file)).copied().collect();
        if !files.is_empty() {
            found.push((segment, files));
        }
    }
    found
}

/// A file of a segment, with the rows of it that are wanted.
struct WantedFile<'a> {
    file: usize,
    /// Its first row in the segment's row space.
    base: u32,
    rows: &'a RowSet,
}

/// A segment that values are read of.
struct SegmentCover<'a> {
    snapshot: &'a Snapshot,
    index: &'a ManifestIndex,
    segment: &'a ManifestSegment,
    request: &'a CoverRequest<'a>,
    types: &'a [DataType],
}

/// What a segment gave.
struct CoveredPart {
    columns: Vec<ArrayRef>,
    files: Vec<usize>,
    rows: Vec<CoveredFile>,
}

impl SegmentCover<'_> {
    /// The values of the rows of these files; none if the segment has not all columns, or if they are not worth what would be read.
    async fn read(
        &self,
        keys: &KeyRanges,
        files: &[RowsOfFile<'_>],
        counter: &ReadCounter,
    ) -> Result<Option<CoveredPart>, Damage> {
        let Some(store) = &self.snapshot.store else { return Ok(None) };
        let opened = Segment::open(store, self.segment, self.index, counter).await?;
        let directory = &opened.directory;
        let Some(wanted) = self.wanted(directory) else { return Ok(None) };
        let mut held = Vec::with_capacity(files.len());
        for RowsOfFile { file, rows } in files {
            let found = self.snapshot.files().get(*file).and_then(|of_file| opened.file(&of_file.path));
            let Some(FileOfSegment { entry, .. }) = found else { continue };
            let is_same = is_same_data(self.snapshot, *file, entry, self.segment, directory).await;
            if is_same && entry.rows() == u64::from(rows.universe()) {
                held.push(WantedFile { file: *file, base: entry.base, rows });
            }
        }
        held.sort_unstable_by_key(|held| held.base);
        let count: u64 = held.iter().map(|held| u64::from(held.rows.len())).sum();
        if count == 0 {
            return Ok(None);
        }
        let worth = CHEAP_BYTES.saturating_add(count.saturating_mul(ROW_BYTES)).min(MOST_BYTES);
        // How many bytes there are is known from the ends of ranges, before the leaves between these are.
        let ends = opened.with_leaves(keys, LeavesFor::Counts, counter).await?;
        if CoveredSearch::new(&ends.directory, keys).byte_count(&ends.directory) > worth {
            return Ok(None);
        }
        let opened = opened.with_leaves(keys, LeavesFor::Keys, counter).await?;
        let directory = &opened.directory;
        let search = CoveredSearch::new(directory, keys);
        let key = segment_key(store, self.segment);
        let bytes = read_remembered(&opened, &key, &search.ranges(directory), counter).await?;
        let is_chosen = |row: u32| wanted_row(&held, row).is_some();
        let found = search.find(directory, &wanted, &bytes, is_chosen).map_err(Damage::corrupt)?;
        self.part(found, &held)
    }

    /// Where the segment has the columns, typed as they are now; none if it lacks one.
    fn wanted(&self, directory: &SegmentDirectory) -> Option<Vec<CoveredColumn>> {
        // Without any, nothing says which keys ride.
        if directory.riding.is_empty() {
            return None;
        }
        let place = |(name, data_type): (&String, &DataType)| {
            let stored = self.snapshot.physical_name(name);
            if let Some(place) = key_column(self.index, &stored) {
                return Some(CoveredColumn::Key(place));
            }
            let now = riding_type_of(data_type)?;
            let is_it = |own: &RidingColumn| own.column == *stored && own.key_type == now;
            directory.riding.iter().position(is_it).map(CoveredColumn::Riding)
        };
        self.request.columns.iter().zip(self.types).map(place).collect()
    }

    /// What was found, as arrays. None if it is no array of its type: keys of a dictionary may be too few for the values of all rows.
    fn part(&self, found: CoveredRows, held: &[WantedFile<'_>]) -> Result<Option<CoveredPart>, Damage> {
        let CoveredRows { rows, columns } = found;
        let decoded = columns.into_iter().zip(self.types).map(|(values, of)| decode_riding(values, of));
        let columns = match decoded.collect::<Result<Vec<_>, _>>() {
            Ok(columns) => columns,
            Err(ArrowError::DictionaryKeyOverflowError) => return Ok(None),
            Err(problem) => return Err(Damage::corrupt(problem)),
        };
        let mut files = Vec::with_capacity(rows.len());
        let mut by_file: Vec<Vec<u32>> = held.iter().map(|_| Vec::new()).collect();
        for row in rows {
            let Some(place) = wanted_row(held, row) else { continue };
            let (Some(wanted), Some(own)) = (held.get(place), by_file.get_mut(place)) else { continue };
            files.push(wanted.file);
            own.push(row - wanted.base);
        }
        let mut covered = Vec::new();
        for (wanted, mut own) in held.iter().zip(by_file) {
            own.sort_unstable();
            if own.windows(2).any(|pair| pair.first() == pair.last()) {
                return Err(Damage::corrupt("a row has two keys"));
            }
            if !own.is_empty() {
                covered.push(CoveredFile { file: wanted.file, rows: RowSet::from_rows(own, wanted.rows.universe()) });
            }
        }
        Ok(Some(CoveredPart { columns, files, rows: covered }))
    }
}

/// The place of the file that has a row of the segment, if that row is wanted. Files are by ascending base.
fn wanted_row(files: &[WantedFile<'_>], row: u32) -> Option<usize> {
    let place = files.partition_point(|held| held.base <= row).checked_sub(1)?;
    let held = files.get(place)?;
    let own = row - held.base;
    (own < held.rows.universe() && held.rows.contains(own)).then_some(place)
}

/// What all segments gave.
#[derive(Default)]
struct Covered {
    /// The columns of each segment.
    parts: Vec<Vec<ArrayRef>>,
    files: Vec<usize>,
    rows: Vec<CoveredFile>,
}

impl Covered {
    fn add(&mut self, part: CoveredPart) {
        let CoveredPart { columns, files, rows } = part;
        if !files.is_empty() {
            self.parts.push(columns);
            self.files.extend(files);
            self.rows.extend(rows);
        }
    }

    /// The columns of all rows; none if there are no rows.
    fn columns(&self, types: &[DataType]) -> Option<Vec<ArrayRef>> {
        if self.files.is_empty() {
            return None;
        }
        let of_column = |place: usize| {
            let parts: Vec<&dyn Array> =
                self.parts.iter().filter_map(|part| part.get(place)).map(|values| values.as_ref()).collect();
            concat(&parts).ok().filter(|values| values.len() == self.files.len())
        };
        (0..types.len()).map(of_column).collect()
    }
}
