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

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use lakemark_format::{Encoding, column};
use lakemark_index::bitmap::{GroupValue, Mask, bitmap_ranges, posting_ranges};
use lakemark_index::{LiteralKey, decode_keys, is_ambiguous};

use super::allowed_values::AllowedValues;
use super::answered_files::AnsweredFiles;
use super::pair_counts::add_pairs;
use super::segment_values::{
    BITMAP_BYTES, CHEAP_ROWS, CONCURRENT_BATCHES, batches, list_range, rows_per_value, values_of,
};
use super::selected_rows::{ChosenRows, drop_opaque, total_of, touched_rows};
use super::sources::{CoveringSegment, IndexedFile, ValueSources};
use super::sums::add_sums;
use super::value_counts::{GroupCountRequest, GroupCounts, SegmentCounts, ValueCounts};
use super::wanted_files::WantedFiles;
use crate::error::Result;
use crate::snapshot::{FileProbes, Snapshot};
use crate::store::parts::all_at_once;
use crate::store::segments::{Damage, ReadCounter, Segment};

impl Snapshot {
    /// Counts the exact rows of a probe by the values of one column or of two. Files that indexes alone do not suffice for are left out.
    /// Index files that are missing, stale or damaged never fail it.
    pub async fn group_counts(&self, request: &GroupCountRequest<'_>) -> Result<GroupCounts> {
        let counter = Arc::new(ReadCounter::default());
        let mut counts = GroupCounts { answered: AnsweredFiles::none_of(request.files), ..GroupCounts::default() };
        let summed = request.sum_column.filter(|summed| request.columns.iter().any(|column| column == summed));
        let mut left = WantedFiles::known_to(request.files, self);
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
    left: &WantedFiles,
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
        files: &FileProbes,
        allowed: AllowedValues,
        data_type: &DataType,
        rows_per_value: u64,
    ) -> Option<Self> {
        let CoveringSegment { segment, files: covered, rest } = cover;
        let of_file = |covered| ChosenRows::even_if_none(covered, files);
        let chosen: Vec<ChosenRows> = covered.into_iter().filter_map(of_file).collect();
        let directory = &segment.directory;
        let total = total_of(&chosen);
        let whole = total == directory.rows();
        // Files that were ruled out have none of these values.
        let known = chosen.len() as u64 + rest.len();
        let alone = allowed.sole_condition && known == directory.files.len() as u64;
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
