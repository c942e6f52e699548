//! How many of a probe's exact rows have each value of a column, without opening a data file.
//!
//! ```text
//! every row of a segment is selected        value blocks alone
//! the predicate is a test of this column    value blocks alone, the values that pass
//! some rows are selected                    postings, counted against a bitmap of the selected rows;
//!                                           without postings the bitmaps of the coarse level
//! only a sum is requested                   the bits of slices (`sums`)
//! NaN, the zeros of floats, damage          not answered: the caller reads these files
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use lakemark_format::segment::{PostingRef, SegmentDirectory};
use lakemark_format::{Encoding, column, posting};
use lakemark_index::bitmap::{GroupValue, Mask, ValueGroups, bitmap_ranges, posting_ranges};
use lakemark_index::{KeyRanges, Leaf, LiteralKey, Predicate, RowSet, Test, decode_keys, is_ambiguous};

use super::pair_counts::add_pairs;
use super::sources::{ChosenRows, ConstantFile, CoveringSegment, IndexedFile, ValueSources};
use super::sums::add_sums;
use crate::error::{Error, Result};
use crate::snapshot::{FileProbe, Snapshot};
use crate::store::parts::{all_at_once, at_once, in_parts};
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Segments that are counted at a time.
pub(super) const CONCURRENT_COUNTS: usize = 8;
/// More bytes of bitmaps than this are not read to count rows by value: they have to be in memory together.
pub(super) const BITMAP_BYTES: u64 = 256 << 20;
/// Batches of postings of a segment that are counted at a time.
pub(super) const CONCURRENT_BATCHES: usize = 4;
/// Bytes of postings of a batch.
pub(super) const POSTING_BYTES: u64 = 4 << 20;
/// Rows of an index that are always worth decoding.
pub(super) const CHEAP_ROWS: u64 = 1 << 16;
/// Values that are always worth taking from the index, at some 400 ns each.
pub(super) const CHEAP_VALUES: u64 = 1 << 12;
/// With fewer rows than this for each value, rows are as quickly read and grouped as values are taken from the index.
pub(super) const ROWS_PER_VALUE: u64 = 4;
/// The same where rows are only read and added up, at some 20 ns each.
pub(super) const ROWS_PER_SUMMED_VALUE: u64 = 20;
/// Rows that a scan decodes to get at one: about a page.
const PAGE_ROWS: u32 = 8192;

/// A request for the values of columns in the exact rows of a probe.
#[derive(Clone, Copy, Debug)]
pub struct GroupCountRequest<'a> {
    /// One column or two, by their names in the table's schema; more are not answered.
    pub columns: &'a [String],
    /// The predicate of the probe.
    pub predicate: &'a Predicate,
    /// What the probe found of every file.
    pub files: &'a [FileProbe],
    /// One of the columns, if only its sum and the number of its rows with a value are requested. The index may then give other values, as
    /// many and with the same sum in each group. None of these lie further apart than the real ones. Where they come from bit slices, no
    /// row is looked at.
    pub sum_column: Option<&'a str>,
    /// Whether values are requested only where they are few. A query that ends with the first groups finds these as soon in the rows.
    pub only_few_values: bool,
}

/// How many rows have each value.
#[derive(Clone, Debug, Default)]
pub struct GroupCounts {
    /// One entry per file: whether all of its exact rows are in the parts.
    pub answered: Vec<bool>,
    /// Values with their rows; parts may share values.
    pub parts: Vec<ValueCounts>,
    /// Reads of the store.
    pub index_reads: u64,
    /// Bytes of these reads.
    pub index_bytes_read: u64,
}

/// Some values and how many rows have each.
#[derive(Clone, Debug)]
pub struct ValueCounts {
    /// By column in the order of the request, in the column's type in the table: the values, or the halves of pairs; NULL is one.
    pub values: Vec<ArrayRef>,
    /// Rows of each value or pair, at least one.
    pub rows: Vec<u64>,
}

impl Snapshot {
    /// Counts the exact rows of a probe by the values of one column or of two. Files that indexes alone do not suffice for are left out.
    /// Index files that are missing, stale or damaged never fail it.
    pub async fn group_counts(&self, request: &GroupCountRequest<'_>) -> Result<GroupCounts> {
        let counter = Arc::new(ReadCounter::default());
        let mut counts =
            GroupCounts { answered: request.files.iter().map(has_nothing).collect(), ..GroupCounts::default() };
        let summed = request.sum_column.filter(|summed| request.columns.iter().any(|column| column == summed));
        let mut left: Vec<bool> = request.files.iter().map(|file| exact_rows(file).is_some()).collect();
        if let (Some(summed), [_] | [_, _]) = (summed, request.columns) {
            add_sums(self, request, summed, &counter, &mut left, &mut counts).await?;
        }
        match request.columns {
            [column] => add_values(self, request, column, &left, &counter, &mut counts).await?,
            [first, second] => add_pairs(self, request, [first, second], &left, &counter, &mut counts).await?,
            _ => {}
        }
        let totals = counter.totals();
        (counts.index_reads, counts.index_bytes_read) = (totals.reads, totals.bytes);
        Ok(counts)
    }
}

/// Enters the values of one column in the files that are left.
async fn add_values(
    snapshot: &Snapshot,
    request: &GroupCountRequest<'_>,
    column: &str,
    left: &[bool],
    counter: &Arc<ReadCounter>,
    counts: &mut GroupCounts,
) -> Result<()> {
    let Some(sources) = ValueSources::find(snapshot, column, left, counter).await else { return Ok(()) };
    counts.add_constants(&sources, None, request.files)?;
    let ValueSources { covers, data_type, .. } = sources;
    let allowed = AllowedValues::by(&request.predicate.clone().simplify(), column);
    let is_intact =
        |covered: &IndexedFile| snapshot.files().get(covered.file).is_some_and(|file| file.deleted.is_none());
    let jobs = covers.into_iter().filter_map(|cover| {
        let intact = cover.files.iter().all(is_intact);
        let allowed = AllowedValues { sole_condition: allowed.sole_condition && intact, ..allowed.clone() };
        let rows_per_value =
            if request.only_few_values { u64::MAX } else { rows_per_value(request.sum_column == Some(column)) };
        CountJob::new(cover, request.files, allowed, &data_type, rows_per_value)
    });
    let jobs = jobs.map(|job| {
        let counter = Arc::clone(counter);
        async move { job.run(&counter).await }
    });
    counts.gather(jobs.collect(), &column::display(column)).await?;
    Ok(())
}

impl GroupCounts {
    /// Runs the jobs of some segments of `columns`, a few at a time, and enters what they count. Gives the files of which something was
    /// counted.
    pub(super) async fn gather<J>(&mut self, jobs: Vec<J>, columns: &str) -> Result<Vec<usize>>
    where
        J: Future<Output = std::result::Result<Option<SegmentCounts>, Damage>> + Send + 'static,
    {
        let mut files = Vec::new();
        for counted in at_once(jobs.into_iter(), CONCURRENT_COUNTS).await.map_err(|error| Error::task(&error))? {
            match counted {
                Ok(Some(counted)) => {
                    files.extend_from_slice(&counted.files);
                    self.add(counted);
                }
                Ok(None) => {}
                Err(Damage { reason, problem, .. }) => {
                    let reason = reason.code();
                    tracing::warn!(column = %columns, reason, problem, "an index file cannot be used; its files are scanned");
                }
            }
        }
        Ok(files)
    }

    /// Enters the counts of a segment.
    fn add(&mut self, counted: SegmentCounts) {
        for file in counted.files {
            if let Some(answered) = self.answered.get_mut(file) {
                *answered = true;
            }
        }
        if !counted.part.rows.is_empty() {
            self.parts.push(counted.part);
        }
    }

    /// Enters the files in which the columns are constant.
    pub(super) fn add_constants(
        &mut self,
        first: &ValueSources,
        second: Option<&ValueSources>,
        files: &[FileProbe],
    ) -> Result<()> {
        let others: Option<HashMap<usize, &ArrayRef>> =
            second.map(|second| second.constants.iter().map(|other| (other.file, &other.value)).collect());
        let (mut values, mut rows): ([Vec<&dyn Array>; 2], Vec<u64>) = Default::default();
        for ConstantFile { file, value } in &first.constants {
            let other = match &others {
                None => None,
                Some(others) => match others.get(file) {
                    None => continue,
                    other => other,
                },
            };
            let (Some(chosen), Some(answered)) = (files.get(*file).and_then(exact_rows), self.answered.get_mut(*file))
            else {
                continue;
            };
            *answered = true;
            if !chosen.is_empty() {
                let [firsts, seconds] = &mut values;
                firsts.push(value.as_ref());
                seconds.extend(other.map(|other| other.as_ref() as &dyn Array));
                rows.push(u64::from(chosen.len()));
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let columns = values.iter().filter(|values| !values.is_empty()).map(|values| concat(values));
        let values = columns.collect::<std::result::Result<_, _>>();
        let values = values
            .map_err(|error| Error::internal("the values of a partition column differ in type").with_source(error))?;
        self.parts.push(ValueCounts { values, rows });
        Ok(())
    }
}

/// The exact rows of a file, if the probe has them.
pub(super) fn exact_rows(file: &FileProbe) -> Option<&RowSet> {
    match file {
        FileProbe::Known { exact, .. } => Some(exact),
        FileProbe::Counted { .. } | FileProbe::Unknown => None,
    }
}

/// Whether no row of a file is exact, so that nothing is to be counted there.
pub(super) fn has_nothing(file: &FileProbe) -> bool {
    exact_rows(file).is_some_and(RowSet::is_empty)
}

/// What a predicate says of the values that a column has in the selected rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AllowedValues {
    /// The ranges that have the keys of these values.
    pub(super) ranges: KeyRanges,
    /// Whether some rows may be NULL.
    pub(super) nulls: bool,
    /// Whether every row with such a value is selected.
    pub(super) sole_condition: bool,
}

impl AllowedValues {
    pub(super) fn by(predicate: &Predicate, column: &str) -> Self {
        let parts = match predicate {
            Predicate::And(parts) => parts.as_slice(),
            part => std::slice::from_ref(part),
        };
        let own = parts.iter().find_map(|part| Self::by_test(part, column));
        match own {
            Some(own) => Self { sole_condition: parts.len() == 1, ..own },
            None => Self { ranges: KeyRanges::all(), nulls: true, sole_condition: false },
        }
    }

    fn by_test(part: &Predicate, column: &str) -> Option<Self> {
        let test = |part: &Predicate| match part {
            Predicate::Leaf(Leaf { column: tested, test, .. }) if tested == column => Some(test.clone()),
            _ => None,
        };
        match (test(part), part) {
            (Some(Test::Ranges(ranges)), _) => Some(Self { ranges, nulls: false, sole_condition: false }),
            (Some(Test::IsNull), _) => Some(Self { ranges: KeyRanges::none(), nulls: true, sole_condition: false }),
            (None, Predicate::Not(inner)) if test(inner) == Some(Test::IsNull) => {
                Some(Self { ranges: KeyRanges::all(), nulls: false, sole_condition: false })
            }
            _ => None,
        }
    }
}

/// The counts of one segment.
pub(super) struct SegmentCounts {
    pub(super) files: Vec<usize>,
    pub(super) part: ValueCounts,
}

/// Counting one segment.
struct CountJob {
    segment: Segment,
    data_type: DataType,
    allowed: AllowedValues,
    /// Whether the rows with these values are just the selected ones.
    by_value: bool,
    chosen: Vec<ChosenRows>,
    /// How many rows there have to be for each value.
    rows_per_value: u64,
}

impl CountJob {
    fn new(
        cover: CoveringSegment,
        files: &[FileProbe],
        allowed: AllowedValues,
        data_type: &DataType,
        rows_per_value: u64,
    ) -> Option<Self> {
        let CoveringSegment { segment, files: covered } = cover;
        let of_file = |covered: IndexedFile| {
            let rows = files.get(covered.file).and_then(exact_rows)?;
            (rows.universe() == covered.rows).then(|| ChosenRows { covered, rows: rows.clone() })
        };
        let chosen: Vec<ChosenRows> = covered.into_iter().filter_map(of_file).collect();
        let directory = &segment.directory;
        let total = total_of(&chosen);
        let whole = total == directory.rows();
        let alone = allowed.sole_condition && chosen.len() == directory.files.len();
        let by_value = directory.opaque.rows == 0 && (whole || alone);
        let data_type = data_type.clone();
        (total > 0).then_some(Self { segment, data_type, allowed, by_value, chosen, rows_per_value })
    }

    async fn run(mut self, counter: &Arc<ReadCounter>) -> Result<Option<SegmentCounts>, Damage> {
        if self.by_value {
            return self.count_by_values(counter).await;
        }
        // The leaves of a packed tree have no postings by value.
        if self.segment.directory.encoding == Encoding::Packed {
            return Ok(None);
        }
        let lists = [self.segment.directory.nulls, self.segment.directory.opaque];
        let bytes = self.segment.read(&lists.map(list_range), counter).await?;
        let [nulls, opaque] = bytes.as_slice() else { return Err(Damage::corrupt("lists are missing")) };
        drop_opaque(&mut self.chosen, opaque, lists[1], &self.segment.directory)?;
        if self.chosen.is_empty() {
            return Ok(None);
        }
        let mut mask = Mask::new(self.segment.directory.universe);
        for chosen in &self.chosen {
            mask.insert(chosen.covered.base, &chosen.rows);
        }
        let nulls = if self.allowed.nulls { mask.remove(nulls, lists[0]).map_err(Damage::corrupt)? } else { 0 };
        self.count_by_postings(mask, nulls, counter).await
    }

    async fn count_by_values(&self, counter: &Arc<ReadCounter>) -> Result<Option<SegmentCounts>, Damage> {
        let Some(values) = values_of(&self.segment, &self.allowed, &self.chosen, self.rows_per_value, counter).await?
        else {
            return Ok(None);
        };
        let counts: Vec<u64> = values.iter().map(|value| u64::from(value.rows)).collect();
        let nulls = if self.allowed.nulls { u64::from(self.segment.directory.nulls.rows) } else { 0 };
        self.finish(values, counts, nulls)
    }

    async fn count_by_postings(
        &self,
        mask: Mask,
        nulls: u64,
        counter: &Arc<ReadCounter>,
    ) -> Result<Option<SegmentCounts>, Damage> {
        let Some(values) = values_of(&self.segment, &self.allowed, &self.chosen, self.rows_per_value, counter).await?
        else {
            return Ok(None);
        };
        let index_rows: u64 = values.iter().map(|value| u64::from(value.rows)).sum();
        let touched: u64 = self.chosen.iter().map(|chosen| touched_rows(&chosen.rows)).sum();
        if index_rows > touched.saturating_mul(2).max(CHEAP_ROWS) {
            return Ok(None);
        }
        if let Some(bitmaps) = bitmap_ranges(&self.segment.directory) {
            let lengths = bitmaps.iter().map(|range| range.end - range.start);
            if lengths.sum::<u64>() > BITMAP_BYTES {
                return Ok(None);
            }
            return self.count_by_ranks(values, &bitmaps, &mask, nulls, counter).await;
        }
        let ends: Vec<usize> = batches(&values)
            .scan(0, |end, batch| {
                *end += batch.len();
                Some(*end)
            })
            .collect();
        let starts = std::iter::once(0).chain(ends.clone());
        let (mask, values) = (Arc::new(mask), Arc::new(values));
        let jobs = starts.zip(ends).map(|(start, end)| {
            let (segment, counter) = (self.segment.clone(), Arc::clone(counter));
            let (mask, values) = (Arc::clone(&mask), Arc::clone(&values));
            async move {
                let batch = values.get(start..end).unwrap_or_default();
                let bytes = segment.read(&posting_ranges(batch), &counter).await?;
                mask.count_each(batch, &bytes).map_err(Damage::corrupt)
            }
        });
        let counts: Vec<Vec<u64>> = all_at_once(jobs, CONCURRENT_BATCHES).await?;
        self.finish(Arc::unwrap_or_clone(values), counts.concat(), nulls)
    }

    async fn count_by_ranks(
        &self,
        values: Vec<GroupValue>,
        bitmaps: &[Range<u64>],
        mask: &Mask,
        nulls: u64,
        counter: &ReadCounter,
    ) -> Result<Option<SegmentCounts>, Damage> {
        let directory = &self.segment.directory;
        let bytes = self.segment.read(bitmaps, counter).await?;
        let ranks = mask.count_ranks(directory, &bytes).map_err(Damage::corrupt)?;
        let rows_of = |value: &GroupValue| usize::try_from(value.rank).ok().and_then(|rank| ranks.get(rank).copied());
        let counts = values.iter().map(|value| rows_of(value).unwrap_or(0)).collect();
        self.finish(values, counts, nulls)
    }

    /// Every selected row has one value or none: another sum means damage.
    fn finish(&self, values: Vec<GroupValue>, counts: Vec<u64>, nulls: u64) -> Result<Option<SegmentCounts>, Damage> {
        let (found, expected) = (counts.iter().sum::<u64>() + nulls, total_of(&self.chosen));
        if found != expected {
            return Err(Damage::corrupt(format_args!("{found} rows have a value where {expected} do")));
        }
        let key_type = &self.segment.directory.key_type;
        let held = values.into_iter().zip(counts).filter(|(_, rows)| *rows > 0);
        let (mut keys, mut rows): (Vec<LiteralKey>, Vec<u64>) = (Vec::new(), Vec::new());
        for (value, count) in held {
            if is_ambiguous(&value.key, key_type) {
                return Ok(None);
            }
            keys.push(LiteralKey::Key(value.key));
            rows.push(count);
        }
        if nulls > 0 {
            keys.push(LiteralKey::Null);
            rows.push(nulls);
        }
        let values = decode_keys(&keys, &self.data_type).map_err(Damage::corrupt)?;
        let files = self.chosen.iter().map(|chosen| chosen.covered.file).collect();
        Ok(Some(SegmentCounts { files, part: ValueCounts { values: vec![values], rows } }))
    }
}

/// How many rows there have to be for each value from the index. A scan quickly reads rows that it only adds up.
pub(super) fn rows_per_value(is_summed: bool) -> u64 {
    if is_summed { ROWS_PER_SUMMED_VALUE } else { ROWS_PER_VALUE }
}

/// The values that selected rows may have; none if they are so many that reading the rows is no worse.
pub(super) async fn values_of(
    segment: &Segment,
    allowed: &AllowedValues,
    chosen: &[ChosenRows],
    rows_per_value: u64,
    counter: &Arc<ReadCounter>,
) -> Result<Option<Vec<GroupValue>>, Damage> {
    let groups = ValueGroups::new(&segment.directory, allowed.ranges.clone());
    if groups.value_limit() > CHEAP_VALUES.max(total_of(chosen) / rows_per_value) {
        return Ok(None);
    }
    read_values(segment, groups, counter).await.map(Some)
}

/// All values that the groups are about, ascending.
pub(crate) async fn read_values(
    segment: &Segment,
    groups: ValueGroups,
    counter: &Arc<ReadCounter>,
) -> Result<Vec<GroupValue>, Damage> {
    let groups = Arc::new(groups);
    let run = |part: Range<usize>| {
        let (segment, groups, counter) = (segment.clone(), Arc::clone(&groups), Arc::clone(counter));
        async move {
            let bytes = segment.read(&groups.block_ranges(part.clone()), &counter).await?;
            groups.values(part, &bytes).map_err(Damage::corrupt)
        }
    };
    let parts = in_parts(segment, groups.block_count(), run).await?;
    Ok(parts.into_iter().flatten().collect())
}

/// Leaves files out whose selected rows have values that the index does not know; `bytes` is the list of such rows.
pub(super) fn drop_opaque(
    chosen: &mut Vec<ChosenRows>,
    bytes: &[u8],
    list: PostingRef,
    directory: &SegmentDirectory,
) -> Result<(), Damage> {
    if list.rows == 0 {
        return Ok(());
    }
    let mut opaque: Vec<u32> = Vec::new();
    posting::decode(bytes, list.rows, directory.universe, &mut opaque).map_err(Damage::corrupt)?;
    chosen.retain(|ChosenRows { covered, rows }| {
        let first = opaque.partition_point(|row| *row < covered.base);
        let own = opaque.get(first..).unwrap_or_default().iter().map(|row| row - covered.base);
        !own.take_while(|row| *row < covered.rows).any(|row| rows.contains(row))
    });
    Ok(())
}

/// Where a list of rows is.
pub(super) fn list_range(list: PostingRef) -> Range<u64> {
    list.offset..list.offset + u64::from(list.length)
}

pub(super) fn total_of(chosen: &[ChosenRows]) -> u64 {
    chosen.iter().map(|chosen| u64::from(chosen.rows.len())).sum()
}

/// Stretches of values whose postings fit into memory.
pub(super) fn batches(values: &[GroupValue]) -> impl Iterator<Item = &[GroupValue]> {
    let mut taken = 0;
    values.chunk_by(move |value, next| {
        taken += value.posting.end - value.posting.start;
        let fits = taken + (next.posting.end - next.posting.start) <= POSTING_BYTES;
        if !fits {
            taken = 0;
        }
        fits
    })
}

/// About how many rows a scan would decode to get at some of them.
pub(super) fn touched_rows(rows: &RowSet) -> u64 {
    let pages = (0..rows.universe().div_ceil(PAGE_ROWS)).map(|page| page * PAGE_ROWS);
    let touched = pages.filter(|&first| rows.count_in(first, first.saturating_add(PAGE_ROWS)) > 0);
    touched.count() as u64 * u64::from(PAGE_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lakemark_format::key::Key;

    #[test]
    fn batches_hold_every_value_once_and_few_bytes() {
        let lengths = [1, POSTING_BYTES, 5, POSTING_BYTES / 2, POSTING_BYTES / 2, POSTING_BYTES * 3, 7, 7];
        let mut offset = 0;
        let values = lengths.map(|length| {
            offset += length;
            GroupValue { key: Key::Fixed(offset), rank: 0, rows: 1, posting: offset - length..offset }
        });
        let cut: Vec<usize> = batches(&values).map(<[GroupValue]>::len).collect();
        assert_eq!(cut, [1, 1, 2, 1, 1, 2]);
        assert_eq!(batches(&[]).count(), 0);
    }

    #[test]
    fn tests_of_the_column_tell_which_values_are_chosen() {
        let leaf =
            |column: &str, test: Test| Predicate::Leaf(Leaf { column: column.into(), test, text: String::new() });
        let one = KeyRanges::point(Key::Fixed(1));
        let ranges = || leaf("a", Test::Ranges(KeyRanges::point(Key::Fixed(1))));
        let everything = AllowedValues { ranges: KeyRanges::all(), nulls: true, sole_condition: false };
        for (predicate, expected) in [
            (Predicate::And(Vec::new()), everything.clone()),
            (leaf("b", Test::IsNull), everything.clone()),
            (Predicate::Or(vec![ranges(), leaf("b", Test::IsNull)]), everything),
            (ranges(), AllowedValues { ranges: one.clone(), nulls: false, sole_condition: true }),
            (
                Predicate::And(vec![leaf("b", Test::IsNull), ranges()]),
                AllowedValues { ranges: one, nulls: false, sole_condition: false },
            ),
            (leaf("a", Test::IsNull), AllowedValues { ranges: KeyRanges::none(), nulls: true, sole_condition: true }),
            (
                Predicate::Not(Box::new(leaf("a", Test::IsNull))),
                AllowedValues { ranges: KeyRanges::all(), nulls: false, sole_condition: true },
            ),
        ] {
            assert_eq!(AllowedValues::by(&predicate, "a"), expected, "{predicate}");
        }
    }

    #[test]
    fn a_scan_touches_whole_pages() {
        assert_eq!(touched_rows(&RowSet::from_rows(vec![3, 4, 20_000], 100_000)), 2 * u64::from(PAGE_ROWS));
        assert_eq!(touched_rows(&RowSet::empty(100_000)), 0);
    }
}
