//! The kind of index that `auto` takes: `bitmap`, unless single keys are what the column is searched for.
//!
//! ```text
//! nearly every row has its own value ─▶ key, or filters where keys are long
//! few rows a value, in many segments ─▶ key: one of its segments has the files of 64 of a bitmap, and a search reads every segment
//! else                               ─▶ bitmap
//! ```

use lakemark_format::Encoding;
use lakemark_index::bitmap::cost::choice::{EncodingChoice, choose_for};
use lakemark_index::bitmap::cost::predicted_bytes;
use lakemark_index::bitmap::cost::reads::WeightedShape;

use super::sample::{SampledColumn, SampledSegments, Sampler};
use crate::index_kind::IndexKind;

/// From this part of distinct values on, a column is one of unique values.
const UNIQUE: f64 = 0.9;
/// Columns of unique values, and of few rows a value, count from so many rows on: smaller ones take little whatever they are.
const MANY_ROWS: u64 = 100_000;
/// Keys that take more bytes a row than this are long: filters take one to four, and more than most columns of keys take as numbers.
const LONG_KEY_BYTES: f64 = 16.0;
/// The rows are in the order of the values, or nearly so, up to this measure of disorder (1 for none).
const CLUSTERED: f64 = 0.1;
/// Rows of a value up to which it is searched for like a key, more than it is counted or grouped by.
const ROWS_OF_A_KEY: f64 = 64.0;
/// Bytes that a `key` index may take, as a multiple of those of the bitmap.
const SIZE_LIMIT: f64 = 1.25;

/// The facts of a column that decide about its kind.
pub(super) struct KindChoice {
    /// The segments that bitmaps have, and a `key` index.
    pub bitmaps: SampledSegments,
    pub keys: SampledSegments,
    /// The encoding of bitmaps.
    pub choice: EncodingChoice,
    /// Bytes of a `key` index.
    pub packed: Option<u64>,
    /// Distinct values of the table.
    pub distinct: f64,
    /// Rows of the table that have a value.
    rows: u64,
    valued: u64,
    shuffle: f64,
}

/// Rows of the segments that a table's indexes would have.
pub(super) struct SegmentRows {
    /// Rows of the segments of bitmaps.
    pub bitmap: Vec<u64>,
    /// Rows of the segments of an index of the kind `key`.
    pub key: Vec<u64>,
}

/// A kind of index, and why it is taken.
pub(super) struct KindReason {
    pub kind: IndexKind,
    pub reason: String,
}

impl KindChoice {
    /// For segments of so many rows as bitmaps have and as a `key` index has, and for queries of these shapes and weights.
    pub(super) fn new(
        sampler: &Sampler<'_>,
        column: &SampledColumn,
        rows: &SegmentRows,
        queries: &[WeightedShape],
    ) -> Self {
        let (bitmaps, keys) = (column.segments(&rows.bitmap), column.segments(&rows.key));
        let packed = keys.shapes.iter().map(|shape| predicted_bytes(Encoding::Packed, shape)).sum::<Option<u64>>();
        let rows = sampler.rows();
        Self {
            choice: choose_for(&bitmaps.shapes, queries),
            packed: packed.map(|bytes| keys.scaled(bytes)),
            // Distinct values of all rows: a segment has the values of some files only.
            distinct: column.sample.shape(rows).values(),
            rows,
            valued: (rows as f64 * column.sample.valued_share()).round() as u64,
            shuffle: column.sample.shuffle(),
            bitmaps,
            keys,
        }
    }

    /// Rows with a value.
    pub(super) fn valued(&self) -> u64 {
        self.valued
    }

    /// Whether nearly every row of a large table has a value of its own.
    pub(super) fn is_unique(&self) -> bool {
        self.rows >= MANY_ROWS && self.distinct >= UNIQUE * self.valued as f64
    }

    /// The kind that is better than bitmaps, if one is.
    pub(super) fn better(&self) -> Option<KindReason> {
        if self.is_unique() { Some(self.of_unique()) } else { self.of_few_rows() }
    }

    /// Keys, unless they are long. Filters do not grow with the keys.
    fn of_unique(&self) -> KindReason {
        let own = "nearly every row has its own";
        let row_bytes = self.packed.unwrap_or(0) as f64 / self.rows.max(1) as f64;
        if row_bytes <= LONG_KEY_BYTES {
            let reason = format!("{own}, which the kind key finds with one read");
            return KindReason { kind: IndexKind::Key, reason };
        }
        let long = format!("{own}, and keys would take {row_bytes:.0} bytes a row");
        if self.shuffle <= CLUSTERED {
            let reason = format!("{long}, so that filters behind fences are kept of them: the rows are in their order");
            return KindReason { kind: IndexKind::BloomTree, reason };
        }
        let reason = format!("{long}, so that a summary of filters is kept of them: the rows are in no order");
        KindReason { kind: IndexKind::Summary, reason }
    }

    /// Keys of a few rows each, where that means fewer segments to search and not many more bytes.
    fn of_few_rows(&self) -> Option<KindReason> {
        let rows = self.valued as f64 / self.distinct.max(1.0);
        let (many, few) = (self.bitmaps.count(), self.keys.count());
        let bitmap = self.choice.prediction(self.choice.encoding)?;
        let (packed, bitmap) = (self.packed?, self.bitmaps.scaled(bitmap.bytes));
        let is_better = self.rows >= MANY_ROWS
            && rows <= ROWS_OF_A_KEY
            && few < many
            && packed as f64 <= SIZE_LIMIT * bitmap as f64;
        is_better.then(|| {
            let percent = (packed as f64 / bitmap.max(1) as f64 * 100.0).round();
            let segments = if few == 1 { "one segment".to_owned() } else { format!("{few} segments") };
            let reason = format!(
                "a value has about {rows:.0} rows, which the kind key finds in {segments} instead of {many}, with {percent}% of the bytes"
            );
            KindReason { kind: IndexKind::Key, reason }
        })
    }
}
