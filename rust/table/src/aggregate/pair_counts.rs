//! How many of a probe's exact rows have each pair of values of two columns, without opening a data file.
//!
//! Segments of the two columns are matched file by file. Where they lay the files out in the same way, the rows of one get the numbers of
//! their values, and the postings of the other count these numbers. A column that is constant in a file (a partition column, or one that
//! the file lacks) has one number for all of its rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use bytes::Bytes;
use lakemark_format::column;
use lakemark_index::bitmap::{Codes, GroupValue, MAX_CODES, Mask, each_posting, posting_ranges};
use lakemark_index::{KeyRanges, LiteralKey, decode_keys, is_ambiguous};

use super::allowed_values::AllowedValues;
use super::segment_values::{CHEAP_ROWS, ROWS_PER_VALUE, batches, list_range, values_of};
use super::selected_rows::{ChosenRows, drop_opaque, total_of, touched_rows};
use super::sources::{CoveringSegment, IndexedFile, ValueSources, shared_files};
use super::value_counts::{GroupCountRequest, GroupCounts, SegmentCounts, ValueCounts};
use super::wanted_files::WantedFiles;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Pairs that are counted for any number of rows.
pub(super) const CHEAP_PAIRS: u64 = 4096;
/// With fewer rows than this for each possible pair, rows are as quickly read as pairs counted.
pub(super) const ROWS_PER_PAIR: u64 = 16;

/// Enters the pairs of two columns in the files that are left.
pub(super) async fn add_pairs(
    snapshot: &Snapshot,
    request: &GroupCountRequest<'_>,
    [first, second]: [&str; 2],
    left: &WantedFiles,
    counter: &Arc<ReadCounter>,
    counts: &mut GroupCounts,
) -> Result<()> {
    let Some(first_sources) = ValueSources::find(snapshot, first, left, counter).await else { return Ok(()) };
    let Some(second_sources) = ValueSources::find(snapshot, second, left, counter).await else { return Ok(()) };
    counts.add_constants(&first_sources, Some(&second_sources), request.files)?;
    let predicate = request.predicate.clone().simplify();
    let sides = [
        PairSide { allowed: AllowedValues::by(&predicate, first), sources: &first_sources },
        PairSide { allowed: AllowedValues::by(&predicate, second), sources: &second_sources },
    ];
    let jobs = jobs(&sides, request).into_iter().map(|job| {
        let counter = Arc::clone(counter);
        async move { job.run(&counter).await }
    });
    counts.gather(jobs.collect(), &format!("{}, {}", column::display(first), column::display(second))).await?;
    Ok(())
}

/// One of the two columns.
struct PairSide<'a> {
    allowed: AllowedValues,
    sources: &'a ValueSources,
}

/// Values of a column in an open segment.
struct SegmentColumn {
    segment: Segment,
    allowed: AllowedValues,
    data_type: DataType,
}

impl SegmentColumn {
    fn of(cover: &CoveringSegment, side: &PairSide<'_>) -> Self {
        let data_type = side.sources.data_type.clone();
        Self { segment: cover.segment.clone(), allowed: side.allowed.clone(), data_type }
    }

    /// How many values there are at least, by the directory alone: all of the segment if the predicate says nothing of them.
    fn least_values(&self) -> u64 {
        if self.allowed.ranges == KeyRanges::all() { self.segment.directory.value_count } else { 0 }
    }
}

/// Where the numbers of the rows come from.
enum Numbered {
    /// One number for each of the selected files.
    Constants(Vec<ArrayRef>),
    /// A number for each value.
    Values(SegmentColumn),
}

/// Counting the pairs of one segment's files.
struct PairJob {
    counted: SegmentColumn,
    numbered: Numbered,
    /// Whether the counted column is the first of the two that were requested.
    counted_first: bool,
    chosen: Vec<ChosenRows>,
}

/// What can be counted: constants of either column with segments of the other, and segments with segments.
fn jobs(sides: &[PairSide<'_>; 2], request: &GroupCountRequest<'_>) -> Vec<PairJob> {
    let [first, second] = sides;
    let rows = |covered: &IndexedFile| ChosenRows::of(covered, request.files);
    let mut jobs = Vec::new();
    for (counted, other, counted_first) in [(second, first, false), (first, second, true)] {
        let constants: HashMap<usize, &ArrayRef> =
            other.sources.constants.iter().map(|constant| (constant.file, &constant.value)).collect();
        for cover in &counted.sources.covers {
            let fixed = cover
                .files
                .iter()
                .filter_map(|covered| Some((rows(covered)?, Arc::clone(constants.get(&covered.file)?))));
            let (chosen, values): (Vec<_>, Vec<ArrayRef>) = fixed.unzip();
            if !chosen.is_empty() {
                let (counted, numbered) = (SegmentColumn::of(cover, counted), Numbered::Constants(values));
                jobs.push(PairJob { counted, numbered, counted_first, chosen });
            }
        }
    }
    for cover in &second.sources.covers {
        for other in &first.sources.covers {
            let chosen = shared_files(cover, other).filter_map(rows).collect::<Vec<_>>();
            if !chosen.is_empty() {
                let (counted, numbered) =
                    (SegmentColumn::of(cover, second), Numbered::Values(SegmentColumn::of(other, first)));
                jobs.push(PairJob { counted, numbered, counted_first: false, chosen });
            }
        }
    }
    jobs
}

/// The selected rows with their numbers, and what the numbers stand for.
struct RowNumbers {
    codes: Codes,
    values: ArrayRef,
    /// Numbers of values that stand for several values of SQL.
    ambiguous: Vec<bool>,
}

impl PairJob {
    async fn run(mut self, counter: &Arc<ReadCounter>) -> Result<Option<SegmentCounts>, Damage> {
        let numbers = match &self.numbered {
            Numbered::Constants(values) => values.len() as u64,
            Numbered::Values(column) => column.least_values() + 1,
        };
        // Nothing is read to find that out.
        if !self.are_few(self.counted.least_values(), numbers) {
            return Ok(None);
        }
        self.leave_opaque(counter).await?;
        let Some(values) =
            values_of(&self.counted.segment, &self.counted.allowed, &self.chosen, ROWS_PER_VALUE, counter).await?
        else {
            return Ok(None);
        };
        let mut mask = Mask::new(self.counted.segment.directory.universe);
        self.chosen.iter().for_each(|chosen| mask.insert(chosen.covered.base, &chosen.rows));
        let Some(numbers) = self.numbers(&mask, &values, counter).await? else { return Ok(None) };
        self.count(&values, &numbers, counter).await
    }

    /// Leaves files to the caller whose selected rows have values that an index does not know.
    async fn leave_opaque(&mut self, counter: &Arc<ReadCounter>) -> Result<(), Damage> {
        let mut segments = vec![self.counted.segment.clone()];
        if let Numbered::Values(column) = &self.numbered {
            segments.push(column.segment.clone());
        }
        // Constants are in the order of their files: they stay only if all files do.
        let before = self.chosen.len();
        for segment in segments {
            let list = segment.directory.opaque;
            if list.rows > 0 {
                let bytes = segment.read(&[list_range(list)], counter).await?;
                drop_opaque(&mut self.chosen, bytes.first().map_or(&[][..], Bytes::as_ref), list, &segment.directory)?;
            }
        }
        if self.chosen.len() < before && matches!(self.numbered, Numbered::Constants(_)) {
            self.chosen.clear();
        }
        Ok(())
    }

    /// Numbers the selected rows; none if counting would cost more than reading them.
    async fn numbers(
        &self,
        mask: &Mask,
        counted: &[GroupValue],
        counter: &Arc<ReadCounter>,
    ) -> Result<Option<RowNumbers>, Damage> {
        let mut codes = Codes::new(self.counted.segment.directory.universe);
        let (values, ambiguous) = match &self.numbered {
            Numbered::Constants(values) => {
                if !self.is_worth_it(values.len(), counted, &[]) {
                    return Ok(None);
                }
                for (ChosenRows { covered, .. }, code) in self.chosen.iter().zip(0..) {
                    codes.assign_range(covered.base..covered.base.saturating_add(covered.rows), code);
                }
                let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
                (concat(&values).map_err(Damage::corrupt)?, vec![false; values.len()])
            }
            Numbered::Values(column) => {
                let values = values_of(&column.segment, &column.allowed, &self.chosen, ROWS_PER_VALUE, counter).await?;
                let Some(values) = values.filter(|values| self.is_worth_it(values.len() + 1, counted, values)) else {
                    return Ok(None);
                };
                column.assign(&values, &mut codes, counter).await?;
                let key_type = &column.segment.directory.key_type;
                let ambiguous = values.iter().map(|value| is_ambiguous(&value.key, key_type)).chain([false]).collect();
                let keys = values.into_iter().map(|value| LiteralKey::Key(value.key)).chain([LiteralKey::Null]);
                (decode_keys(&keys.collect::<Vec<_>>(), &column.data_type).map_err(Damage::corrupt)?, ambiguous)
            }
        };
        codes.keep(mask);
        if codes.rows() != mask.rows() {
            return Err(Damage::corrupt("selected rows have no value"));
        }
        Ok((mask.rows() > 0).then_some(RowNumbers { codes, values, ambiguous }))
    }

    /// Whether so many values and numbers, and NULL among the values, are few enough pairs to count.
    fn are_few(&self, counted: u64, numbers: u64) -> bool {
        let pairs = counted.saturating_add(1).saturating_mul(numbers);
        numbers <= MAX_CODES as u64 && pairs <= CHEAP_PAIRS.max(total_of(&self.chosen) / ROWS_PER_PAIR)
    }

    fn is_worth_it(&self, numbers: usize, counted: &[GroupValue], numbered: &[GroupValue]) -> bool {
        let index_rows: u64 = counted.iter().chain(numbered).map(|value| u64::from(value.rows)).sum();
        let touched: u64 = self.chosen.iter().map(|chosen| touched_rows(&chosen.rows)).sum();
        let has_postings = counted.iter().chain(numbered).all(|value| !value.posting.is_empty());
        self.are_few(counted.len() as u64, numbers as u64)
            && has_postings
            && index_rows <= touched.saturating_mul(4).max(CHEAP_ROWS)
    }

    async fn count(
        &self,
        values: &[GroupValue],
        numbers: &RowNumbers,
        counter: &Arc<ReadCounter>,
    ) -> Result<Option<SegmentCounts>, Damage> {
        let directory = &self.counted.segment.directory;
        let mut pairs = Pairs::default();
        let mut counts = vec![0u64; numbers.values.len()];
        for batch in batches(values) {
            let bytes = self.counted.segment.read(&posting_ranges(batch), counter).await?;
            each_posting(batch, &bytes, |value, posting| {
                numbers.codes.count(posting, value.rows, &mut counts)?;
                pairs.take(&LiteralKey::Key(value.key.clone()), &mut counts);
                Ok(())
            })
            .map_err(Damage::corrupt)?;
        }
        if self.counted.allowed.nulls && directory.nulls.rows > 0 {
            let bytes = self.counted.segment.read(&[list_range(directory.nulls)], counter).await?;
            let bytes = bytes.first().map_or(&[][..], Bytes::as_ref);
            numbers.codes.count(bytes, directory.nulls.rows, &mut counts).map_err(Damage::corrupt)?;
            pairs.take(&LiteralKey::Null, &mut counts);
        }
        let (found, expected) = (pairs.rows.iter().sum::<u64>(), total_of(&self.chosen));
        if found != expected {
            return Err(Damage::corrupt(format_args!("{found} rows have a pair of values where {expected} do")));
        }
        let unclear = |key: &LiteralKey| matches!(key, LiteralKey::Key(key) if is_ambiguous(key, &directory.key_type));
        let unclear_number = |number: &u32| numbers.ambiguous.get(*number as usize).copied().unwrap_or(true);
        if pairs.keys.iter().any(unclear) || pairs.numbers.iter().any(unclear_number) {
            return Ok(None);
        }
        let counted = decode_keys(&pairs.keys, &self.counted.data_type).map_err(Damage::corrupt)?;
        let numbered = take(&numbers.values, &UInt32Array::from(pairs.numbers), None).map_err(Damage::corrupt)?;
        let values = if self.counted_first { vec![counted, numbered] } else { vec![numbered, counted] };
        let files = self.chosen.iter().map(|chosen| chosen.covered.file).collect();
        Ok(Some(SegmentCounts { files, part: ValueCounts { values, rows: pairs.rows } }))
    }
}

impl SegmentColumn {
    /// Gives rows the numbers of their values; NULL has the number behind the last.
    async fn assign(&self, values: &[GroupValue], codes: &mut Codes, counter: &Arc<ReadCounter>) -> Result<(), Damage> {
        let mut number = 0;
        for batch in batches(values) {
            let bytes = self.segment.read(&posting_ranges(batch), counter).await?;
            each_posting(batch, &bytes, |value, posting| {
                codes.assign(posting, value.rows, number)?;
                number += 1;
                Ok(())
            })
            .map_err(Damage::corrupt)?;
        }
        let nulls = self.segment.directory.nulls;
        if self.allowed.nulls && nulls.rows > 0 {
            let bytes = self.segment.read(&[list_range(nulls)], counter).await?;
            codes.assign(bytes.first().map_or(&[][..], Bytes::as_ref), nulls.rows, number).map_err(Damage::corrupt)?;
        }
        Ok(())
    }
}

/// Pairs that occur.
#[derive(Default)]
struct Pairs {
    keys: Vec<LiteralKey>,
    numbers: Vec<u32>,
    rows: Vec<u64>,
}

impl Pairs {
    /// Takes the counts of one value, which are zero again then.
    fn take(&mut self, key: &LiteralKey, counts: &mut [u64]) {
        for (number, count) in (0..).zip(counts) {
            if *count > 0 {
                self.keys.push(key.clone());
                self.numbers.push(number);
                self.rows.push(std::mem::take(count));
            }
        }
    }
}
