//! What a query reads, with some indexes and without.
//!
//! ```text
//! without   columns of conditions and output × the part of the pages that zone maps leave
//! with      what the searches read + the columns still needed × the part of the pages that the rows found touch
//!           what the search of a key reads + the values that ride along with it, if these are all that is needed
//! ```
//!
//! A query takes whatever is least: conditions are searched in order of selectivity as long as that lowers the sum.

use std::collections::{BTreeMap, BTreeSet};

use lakemark_format::Encoding;
use lakemark_index::bitmap::cost::choice::READ_BYTES;
use lakemark_index::bitmap::cost::reads::{QueryShape, reads_of};
use lakemark_index::bitmap::cost::{Sizes, sizes};

use super::queries::{QueryUse, WeighedCondition};
use super::riding::{Lookup, RidingColumns};
use super::sample::{SampledColumn, SampledSegments};
use crate::index_kind::IndexKind;

/// What is known of a column.
pub(super) struct ColumnProfile {
    pub sampled: SampledColumn,
    /// The segments of bitmaps.
    pub segments: SampledSegments,
    pub keys: KeyIndexCost,
    /// The kind that is better than bitmaps, if one is.
    pub better: Option<BetterKind>,
    /// Rows of a page.
    pub page_rows: f64,
    /// How closely the order of the column follows its values; as if the data were sorted by it, if that is tried.
    pub shuffle: f64,
}

/// What an index of the kind `key` takes.
pub(super) struct KeyIndexCost {
    pub segments: SampledSegments,
    /// Bytes of all segments; none if such an index cannot be on the column.
    pub bytes: Option<u64>,
}

/// A kind of index, not `bitmap`.
#[derive(Clone)]
pub(super) struct BetterKind {
    pub kind: IndexKind,
    pub reason: String,
    /// Bytes of such an index, and the number of its values.
    pub bytes: u64,
    pub values: u64,
}

impl ColumnProfile {
    /// The same column in data that are written in another way.
    pub(super) fn with_layout(&self, shuffle: f64, page_rows: f64) -> Self {
        let none = || SampledSegments { shapes: Vec::new(), each: self.segments.each };
        let (segments, keys) = (none(), KeyIndexCost { segments: none(), bytes: None });
        Self { sampled: self.sampled.clone(), segments, keys, better: None, page_rows, shuffle }
    }

    /// The part of the pages that rows of one value or range touch, if these are this part of all rows.
    fn touched(&self, share: f64) -> f64 {
        let spread = 1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(self.page_rows);
        (self.shuffle * spread + (1.0 - self.shuffle) * share).clamp(0.0, 1.0)
    }

    /// The part of the pages whose least and largest value enclose one of the range.
    fn zone(&self, share: f64, pages: f64) -> f64 {
        (share + 3.0 * self.shuffle + 1.0 / pages.max(1.0)).min(1.0)
    }
}

/// An index that exists, or one that could exist.
pub(super) struct CandidateIndex {
    /// The encoding by which its reads are predicted.
    encoding: Encoding,
    sizes: Vec<Sizes>,
    each: f64,
    /// Bytes of all segments.
    bytes: u64,
    /// Whether counts and groups come from it.
    gives_counts: bool,
    /// The columns that ride along with its keys, if some do.
    pub riding: Option<RidingColumns>,
}

impl CandidateIndex {
    /// None if the encoding cannot be built for the column.
    pub(super) fn new(column: &ColumnProfile, encoding: Encoding) -> Option<Self> {
        if encoding == Encoding::Packed {
            return Self::of_keys(column, column.keys.bytes?);
        }
        let mut index = Self::over(&column.segments, encoding)?;
        index.bytes = (index.sizes.iter().map(|sizes| sizes.total).sum::<u64>() as f64 * index.each) as u64;
        Some(index)
    }

    /// An index that finds single keys. A tree reads no more than the values and postings of bitmaps over the same files would.
    pub(super) fn of_keys(column: &ColumnProfile, bytes: u64) -> Option<Self> {
        Some(Self { bytes, gives_counts: false, ..Self::over(&column.keys.segments, Encoding::Equality)? })
    }

    fn over(segments: &SampledSegments, encoding: Encoding) -> Option<Self> {
        let sizes = segments.shapes.iter().map(|shape| sizes(encoding, shape)).collect::<Option<Vec<_>>>()?;
        Some(Self { encoding, sizes, each: segments.each, bytes: 0, gives_counts: true, riding: None })
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn search(&self, shape: QueryShape) -> f64 {
        let reads = self.sizes.iter().map(|sizes| reads_of(self.encoding, sizes, shape));
        reads.map(|reads| reads.bytes + READ_BYTES * reads.reads).sum::<f64>() * self.each
    }

    /// To read every value with its rows, or, where a condition selects among them, its posting too.
    fn groups(&self, chosen: bool) -> f64 {
        let bytes = |sizes: &Sizes| sizes.blocks.bytes + if chosen { sizes.fine } else { 0.0 } + READ_BYTES;
        self.sizes.iter().map(bytes).sum::<f64>() * self.each
    }
}

/// The columns of a table, and the rows.
pub(super) struct Costs<'a> {
    pub columns: &'a BTreeMap<String, ColumnProfile>,
    /// Bytes in the data files of every column.
    pub parquet: &'a BTreeMap<String, u64>,
    pub rows: f64,
}

impl Costs<'_> {
    fn parquet_bytes<'s>(&self, columns: impl IntoIterator<Item = &'s String>) -> f64 {
        let columns: BTreeSet<&String> = columns.into_iter().collect();
        columns.into_iter().filter_map(|column| self.parquet.get(column)).map(|bytes| *bytes as f64).sum()
    }

    /// What a search of the indexes for a condition reads; none if they cannot answer it.
    fn search(&self, condition: &WeighedCondition, indexes: &BTreeMap<String, CandidateIndex>) -> Option<f64> {
        let searches = condition.searches.as_ref()?;
        searches.iter().map(|search| Some(indexes.get(&search.column)?.search(search.shape))).sum()
    }

    /// Bytes that a query reads without indexes.
    pub(super) fn scan(&self, query: &QueryUse, conditions: &[WeighedCondition]) -> f64 {
        let columns = query.output.iter().chain(conditions.iter().flat_map(|condition| &condition.columns));
        self.parquet_bytes(columns) * self.zones(conditions)
    }

    fn zones(&self, conditions: &[WeighedCondition]) -> f64 {
        let zone = |condition: &WeighedCondition| match condition.searches.as_deref() {
            Some([search]) => {
                let column = self.columns.get(&search.column);
                column.map(|column| column.zone(condition.share, self.rows / column.page_rows))
            }
            _ => None,
        };
        conditions.iter().filter_map(zone).fold(1.0, f64::min)
    }

    /// Bytes that a query reads with these indexes, at least.
    pub(super) fn with(
        &self,
        query: &QueryUse,
        conditions: &[WeighedCondition],
        indexes: &BTreeMap<String, CandidateIndex>,
    ) -> f64 {
        let mut best = self.scan(query, conditions);
        let mut answered: Vec<(&WeighedCondition, f64)> =
            conditions.iter().filter_map(|condition| Some((condition, self.search(condition, indexes)?))).collect();
        answered.sort_by(|(a, _), (b, _)| a.share.total_cmp(&b.share));
        for (condition, search) in &answered {
            let lookup = Lookup::by(condition, query, conditions, self.rows);
            let values = lookup.and_then(|lookup| indexes.get(lookup.column)?.riding.as_ref()?.bytes_of(&lookup));
            best = values.map_or(best, |values| best.min(search + values));
        }
        let is_answered = |condition: &WeighedCondition, count: usize| {
            answered.iter().take(count).any(|(other, _)| std::ptr::eq(*other, condition))
        };
        for count in 0..=answered.len() {
            let found = answered.iter().take(count);
            let search: f64 = found.clone().map(|(_, bytes)| bytes).sum();
            let left = conditions.iter().filter(|condition| !is_answered(condition, count));
            let columns: Vec<&String> =
                query.output.iter().chain(left.clone().flat_map(|condition| &condition.columns)).collect();
            let share: f64 = found.clone().map(|(condition, _)| condition.share).product();
            let of_leaf = |condition: &WeighedCondition| {
                let searches = condition.searches.iter().flatten();
                let columns = searches.filter_map(|search| self.columns.get(&search.column));
                columns.map(|column| column.touched(condition.share)).fold(0.0, f64::max)
            };
            let spread = self.columns.values().next().map_or(1.0, |column| 1.0 - (1.0 - share).powf(column.page_rows));
            let touched =
                found.map(|(condition, _)| of_leaf(condition)).fold(spread, f64::min).min(self.zones(conditions));
            let data =
                self.parquet_bytes(columns.iter().copied()) * if count == 0 { self.zones(conditions) } else { touched };
            best = best.min(search + data);
            let all = left.count() == 0;
            let index_only = || {
                query
                    .output
                    .iter()
                    .map(|column| indexes.get(column).filter(|index| index.gives_counts))
                    .collect::<Option<Vec<_>>>()
            };
            if all
                && query.aggregated
                && let Some(index_only) = index_only()
            {
                best = best.min(search + index_only.iter().map(|index| index.groups(count > 0)).sum::<f64>());
            }
        }
        best
    }
}
