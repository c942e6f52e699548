//! Whether indexes could give the values of columns at all, of how many rows, and what that takes, before anything is searched.

use std::sync::Arc;

use lakemark_format::segment::encoding::Encoding;
use lakemark_index::Predicate;
use lakemark_index::bitmap::{DenseSlices, MAX_CODES, ValueGroups};

use super::allowed_values::AllowedValues;
use super::pair_counts::{CHEAP_PAIRS, ROWS_PER_PAIR};
use super::segment_values::{CHEAP_VALUES, CONCURRENT_BATCHES, POSTING_BYTES, rows_per_value};
use super::sources::{CoveringSegment, ValueSources, shared_files};
use super::sums::SLICES_OF_ALL_GROUPS;
use super::wanted_files::WantedFiles;
use crate::options::IndexOnlyCost;
use crate::snapshot::Snapshot;
use crate::store::parts::CORES;
use crate::store::segments::ReadCounter;

/// To look a row of a posting up among the selected ones (5 to 6 measured). And what each value takes: to decode it, to begin with its
/// posting, and to hand it on (some 400).
const COUNT_ROW: f64 = 6.0;
const READ_VALUE: f64 = 400.0;
/// To read a byte of a posting that is a bitmap or runs, which stands for many rows.
const READ_POSTING_BYTE: f64 = 5.0;
/// To read a byte of slices and to count its bits among the selected rows.
const READ_SLICE_BYTE: f64 = 2.0;

/// What a segment of a column, or two over the same rows, could give.
#[derive(Clone, Copy)]
struct SegmentCost {
    files: u64,
    /// The least share of its rows that must be selected.
    least_share: f64,
    /// Nanoseconds of one core.
    work: f64,
    /// Cores that share the work.
    cores: f64,
}

impl Snapshot {
    /// What the values of one column, or the pairs of two, take from the index by [`Self::group_counts`]. None if the index would decline
    /// for more than half of the files, whichever rows are selected.
    pub async fn index_only_cost(
        &self,
        columns: &[String],
        summed: Option<&str>,
        predicate: &Predicate,
    ) -> Option<IndexOnlyCost> {
        let counter = Arc::new(ReadCounter::default());
        // Pairs are of files that two segments have at the same place.
        let all = if columns.len() == 1 { WantedFiles::all_of(self) } else { WantedFiles::each_of(self) };
        let predicate = predicate.clone().simplify();
        let mut sides = Vec::with_capacity(columns.len());
        for column in columns {
            let sources = ValueSources::find(self, column, &all, &counter).await?;
            let allowed = AllowedValues::by(&predicate, column);
            let limits = |cover: &CoveringSegment| Limits::of(cover, &allowed, summed == Some(column.as_str()));
            sides.push(sources.covers.iter().map(|cover| (cover.clone(), limits(cover))).collect::<Vec<_>>());
        }
        let parts: Vec<SegmentCost> = match sides.as_slice() {
            [one] => one.iter().filter_map(|(cover, limits)| limits.alone(cover.file_count())).collect(),
            [first, second] => first
                .iter()
                .flat_map(|(one, limits)| second.iter().map(move |(other, others)| (one, limits, other, others)))
                .filter_map(|(one, limits, other, others)| match shared_files(one, other).count() {
                    0 => None,
                    files => limits.beside(*others, files as u64),
                })
                .collect(),
            _ => return None,
        };
        if parts.iter().map(|part| part.files).sum::<u64>() * 2 < self.files().len() as u64 {
            return None;
        }
        let cores = parts.iter().map(|part| part.cores).sum::<f64>().min(*CORES as f64);
        let totals = counter.totals();
        Some(IndexOnlyCost {
            nanoseconds: parts.iter().map(|part| part.work).sum::<f64>() / cores.max(1.0),
            least_share: parts.iter().map(|part| part.least_share).fold(0.0, f64::max),
            index_reads: totals.reads,
            index_bytes_read: totals.bytes,
        })
    }
}

/// What is known of the slices of a segment.
#[derive(Clone, Copy)]
struct SliceLimits {
    count: usize,
    bytes: u64,
}

/// What is known of the values of a segment.
#[derive(Clone, Copy)]
struct Limits {
    rows: f64,
    values: f64,
    posting_bytes: u64,
    /// How many rows there have to be for each value.
    rows_per_value: f64,
    /// Slices whose bits are counted, where only a sum is requested.
    slices: Option<SliceLimits>,
    has_postings: bool,
}

impl Limits {
    fn of(cover: &CoveringSegment, allowed: &AllowedValues, is_summed: bool) -> Self {
        let directory = &cover.segment.directory;
        let slices = DenseSlices::of(directory).filter(|_| is_summed);
        // Leaves of a packed tree have no postings by value, so that no other condition may select among their rows.
        let is_known = allowed.sole_condition || directory.encoding != Encoding::Packed;
        // The bytes below an inner page are those of leaves.
        let blocks = directory.blocks.iter().filter(|block| !block.is_inner);
        let values =
            if is_known { ValueGroups::new(directory, allowed.ranges.clone()).value_limit() } else { u64::MAX };
        Self {
            rows: directory.rows() as f64,
            values: values as f64,
            posting_bytes: blocks.map(|block| block.postings_length).sum(),
            rows_per_value: rows_per_value(is_summed) as f64,
            slices: slices.map(|dense| SliceLimits { count: dense.slice_ranges().len(), bytes: dense.bytes() }),
            has_postings: directory.encoding.has_postings(),
        }
    }

    /// The cost of the values of so many files.
    fn alone(self, files: u64) -> Option<SegmentCost> {
        if let Some(slices) = self.slices {
            return Some(SegmentCost {
                files,
                least_share: 0.0,
                work: slices.bytes as f64 * READ_SLICE_BYTE,
                cores: 1.0,
            });
        }
        let is_cheap = self.values <= CHEAP_VALUES as f64;
        let least_share = if is_cheap { 0.0 } else { self.values * self.rows_per_value / self.rows.max(1.0) };
        let batches = if self.has_postings { self.posting_bytes.div_ceil(POSTING_BYTES) as f64 } else { 1.0 };
        let cores = batches.clamp(1.0, CONCURRENT_BATCHES as f64);
        (least_share <= 1.0).then_some(SegmentCost { files, least_share, work: self.work(), cores })
    }

    /// The cost of pairs of these values and others.
    fn beside(self, other: Self, files: u64) -> Option<SegmentCost> {
        let by_slices = |slices: Option<SliceLimits>, groups: Self| {
            let SliceLimits { count, bytes } = slices.filter(|_| groups.has_postings)?;
            let few = (groups.values + 1.0) * count as f64 <= SLICES_OF_ALL_GROUPS as f64;
            let work = groups.work() + (groups.values + 1.0) * bytes as f64 * READ_SLICE_BYTE;
            few.then_some(SegmentCost { files, least_share: 0.0, work, cores: 1.0 })
        };
        if let Some(part) = by_slices(self.slices, other).or_else(|| by_slices(other.slices, self)) {
            return Some(part);
        }
        let pairs = (self.values + 1.0) * (other.values + 1.0);
        let is_cheap = pairs <= CHEAP_PAIRS as f64;
        let least_share = if is_cheap { 0.0 } else { pairs * ROWS_PER_PAIR as f64 / self.rows.max(1.0) };
        let are_countable = self.has_postings && other.has_postings && self.values < MAX_CODES as f64;
        let work = self.work() + other.work();
        (are_countable && least_share <= 1.0).then_some(SegmentCost { files, least_share, work, cores: 1.0 })
    }

    fn work(self) -> f64 {
        let by_rows = self.rows * COUNT_ROW;
        let rows = if self.has_postings { by_rows.min(self.posting_bytes as f64 * READ_POSTING_BYTE) } else { by_rows };
        rows + self.values * READ_VALUE
    }
}
