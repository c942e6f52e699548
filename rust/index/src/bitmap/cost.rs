//! What an encoding will take, predicted before the column is indexed.
//!
//! ```text
//! rows of a sample ─▶ ColumnSample ─▶ ColumnShape of a segment ─┬─▶ sizes      bytes of every part, by encoding
//!                                                               ├─▶ reads      bytes and reads of a search, by its shape
//!                                                               └─▶ choice     the encoding of `auto`
//!                   └─▶ BinSample ─▶ bytes                                     bins of a precision
//!                   └─▶ riding    ─▶ bytes of a row                            columns that ride along with keys
//! ```
//!
//! The formulas are those by which postings and value blocks are written. A shape has what they need. It says how many values
//! have how many rows, in how many runs, over which span, and how frequent values lie among the sorted ones. It also says how
//! much the order of rows has to do with the order of values.

pub mod bins;
pub mod choice;
mod leaf_keys;
mod leaves;
mod positions;
pub mod reads;
mod riding;
pub mod sample;
pub mod shape;

use lakemark_format::segment::encoding::{CoarseLevel, Encoding, MAX_COARSE_BITMAPS};
use lakemark_format::value_block::MAX_BLOCK_VALUES;

pub use bins::BinSample;
pub use choice::{EncodingChoice, EncodingPrediction, choose};
pub use reads::{QueryShape, Reads, WEIGHTS, WeightedShape, predicted_reads};
pub use riding::riding_row_bytes;
pub use sample::ColumnSample;
pub use shape::ColumnShape;

use super::coarse_builder::bins_of_size;
use positions::PostingShape;
use shape::BlockExtremes;

/// Header, trailer, the first fields of the directory with one file.
const FIXED_BYTES: f64 = 64.0 + 64.0 + 90.0;
/// A value block in the directory; its own first fields.
const BLOCK_BYTES: f64 = 12.0 + 8.0;
/// Cuts between more values than these are not listed: they would take much memory and say little.
const MAX_LISTED_BITS: u32 = 20;
/// A bitmap in the directory.
const BITMAP_BYTES: f64 = 8.0;
/// Pages are 4092 bytes and a checksum of four.
const PAGE_SHARE: f64 = 4096.0 / 4092.0;
/// What a build takes a run of rows to cost when it sets the number of bins.
const RUN_BYTES: f64 = 3.0;
/// Rows that are not sorted by value cross a cut at least so often.
const DISTURBED_RUNS: f64 = 4.0;

/// Bytes of the parts of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// All of it.
    pub total: u64,
    /// The postings of all values.
    pub fine: f64,
    /// The posting of a value, on average.
    pub posting: f64,
    /// The value blocks.
    pub blocks: BlockSizes,
    /// The NULL list.
    pub nulls: f64,
    /// Bins of the coarse level.
    pub bins: u64,
    /// Each bitmap of the coarse level.
    pub bitmaps: Vec<f64>,
}

/// The value blocks of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockSizes {
    /// Bytes of all of them.
    pub bytes: f64,
    /// How many there are.
    pub count: f64,
}

impl Sizes {
    /// A bitmap, on average.
    #[must_use]
    pub fn bitmap(&self) -> f64 {
        self.bitmaps.iter().sum::<f64>() / (self.bitmaps.len() as f64).max(1.0)
    }
}

/// Bytes of a segment. None if the encoding cannot have so many values, or if the bytes depend on the values themselves, as those
/// of bins do ([`BinSample`]).
#[must_use]
pub fn predicted_bytes(encoding: Encoding, shape: &ColumnShape) -> Option<u64> {
    if encoding == Encoding::Packed {
        let nulls = PostingShape::of_runs(shape.nulls as f64, shape.null_runs, shape.rows as f64);
        let bytes = FIXED_BYTES + nulls.posting_bytes(shape.rows as f64) + leaves::leaf_bytes(shape);
        return Some((bytes * PAGE_SHARE) as u64);
    }
    sizes(encoding, shape).map(|sizes| sizes.total)
}

/// Bytes of a segment by its parts; none if the encoding cannot have so many values, has bins of a precision, or has leaves.
#[must_use]
pub fn sizes(encoding: Encoding, shape: &ColumnShape) -> Option<Sizes> {
    if matches!(encoding, Encoding::Binned | Encoding::Packed) {
        return None;
    }
    let (rows, values) = (shape.rows as f64, shape.values());
    let fine: f64 = shape.classes.iter().map(|class| class.values * class.each.posting_bytes(rows)).sum();
    let has_fine = encoding.has_fine_level();
    let blocks = (values / shape.block_values.clamp(1.0, MAX_BLOCK_VALUES as f64)).ceil();
    let columns = shape.key_bits + mean(&shape.extremes, |extremes| numbers_bits(shape, extremes, has_fine));
    let mut sizes = Sizes {
        fine: if has_fine { fine } else { 0.0 },
        posting: if has_fine { fine / values.max(1.0) } else { 0.0 },
        blocks: BlockSizes { bytes: values * columns / 8.0 + blocks * BLOCK_BYTES, count: blocks },
        nulls: PostingShape::of_runs(shape.nulls as f64, shape.null_runs, rows).posting_bytes(rows),
        ..Sizes::default()
    };
    if let Some(level) = encoding.coarse_level() {
        let cuts = if encoding.has_bins() {
            sizes.bins = bins_of_size(level, fine as u64, bitmap_estimate(level, shape) as u64, values as u64);
            shape.cuts_of_bytes(sizes.bins)
        } else {
            sizes.bins = values as u64;
            if level.bitmaps(sizes.bins) > MAX_COARSE_BITMAPS as u64 {
                return None;
            }
            shape.cuts_of_values(sizes.bins >> unlisted_slices(sizes.bins))
        };
        let unlisted = if encoding.has_bins() { 0 } else { u64::from(unlisted_slices(sizes.bins)) };
        let bitmaps = 0..level.bitmaps(sizes.bins);
        sizes.bitmaps =
            bitmaps.map(|bitmap| bitmap_bytes(level, shape, &cuts, bitmap.saturating_sub(unlisted))).collect();
    }
    let bitmaps: f64 = sizes.bitmaps.iter().map(|bytes| bytes + BITMAP_BYTES).sum();
    let bytes = FIXED_BYTES + sizes.nulls + sizes.fine + sizes.blocks.bytes + bitmaps;
    sizes.total = (bytes * PAGE_SHARE) as u64;
    Some(sizes)
}

fn mean<T>(items: &[T], of: impl Fn(&T) -> f64) -> f64 {
    items.iter().map(of).sum::<f64>() / (items.len() as f64).max(1.0)
}

/// Bits of a value's number of rows and of the length of its posting, packed beside those of its block.
fn numbers_bits(shape: &ColumnShape, extremes: &BlockExtremes, has_fine: bool) -> f64 {
    let length = |count: f64| {
        let per_row = |class: &shape::FrequencyClass| (class.each.rows.max(1.0).ln() - count.max(1.0).ln()).abs();
        let like = shape.classes.iter().min_by(|a, b| per_row(a).total_cmp(&per_row(b)));
        like.map_or(0.0, |class| class.each.scaled_to(count).posting_bytes(shape.rows as f64))
    };
    let lengths = if has_fine { (length(extremes.most) - length(extremes.least)).abs() } else { 0.0 };
    width(extremes.most - extremes.least) + width(lengths)
}

/// Bits of a number up to `most`.
fn width(most: f64) -> f64 {
    (most + 1.0).log2().ceil().max(0.0)
}

/// What a build takes a bitmap of bins to cost when it sets their number (the module `coarse_builder`).
fn bitmap_estimate(level: CoarseLevel, shape: &ColumnShape) -> f64 {
    let ends = if level == CoarseLevel::Interval { 2.0 } else { 1.0 };
    let runs = ends * (shape.shuffle * shape.rows as f64 / 6.0 + 1.0);
    (shape.rows as f64 / 8.0).min(runs * RUN_BYTES) + BITMAP_BYTES
}

/// Of very many values neighbours are taken together. The lowest slices, which alone distinguish these neighbours, are all
/// taken to be like the lowest that is left.
fn unlisted_slices(values: u64) -> u32 {
    (u64::BITS - values.leading_zeros()).saturating_sub(MAX_LISTED_BITS)
}

/// Bytes of a bitmap. `cuts` are the parts of the valued rows below each bin's end.
///
/// Take a cut with the part `q` of the rows below it. Rows in random order cross it `q (1 - q)` times a row in each direction.
/// Rows in the order of values cross it once. `shuffle` says where between the two a column is. Each run of a bitmap has two
/// ends at cuts. Runs of NULLs break those of values.
fn bitmap_bytes(level: CoarseLevel, shape: &ColumnShape, cuts: &[f64], bitmap: u64) -> f64 {
    let rows = shape.rows as f64;
    let valued = shape.valued();
    let below = |bin: u64| match usize::try_from(bin) {
        Ok(0) => 0.0,
        Ok(bin) => cuts.get(bin - 1).copied().unwrap_or(1.0),
        Err(_) => 1.0,
    };
    let crossings = |share: f64| share * (1.0 - share);
    let bins = cuts.len() as u64;
    // Ends at cuts, weighted by how often rows cross them; where the cuts are few, how many.
    let (share, ends, cut_count) = match level {
        CoarseLevel::Range => (below(bitmap + 1), crossings(below(bitmap + 1)), 1u8),
        CoarseLevel::Interval => {
            let (low, high) = (below(bitmap), below(bitmap + bins / 2));
            (high - low, crossings(low) + crossings(high), 2)
        }
        CoarseLevel::Slices => {
            let half = 1u64 << bitmap.min(62);
            let (mut share, mut ends) = (0.0, 0.0);
            let mut end = half;
            // Every second stretch of `half` bins is in the slice.
            while end < bins {
                let next = (end + half).min(bins);
                share += below(next) - below(end);
                ends += crossings(below(end)) + crossings(below(next));
                end = next + half;
            }
            (share, ends, 0)
        }
    };
    let count = share * valued;
    let density = count / rows.max(1.0);
    // Of the changes that a cut sees in rows that are nearly sorted, every one leads to its other side.
    let ordered = 1.0 - (shape.shuffle / shape.changes.max(1e-9)).min(1.0);
    let random = rows * density * (1.0 - density) * shape.changes * (1.0 + ordered);
    let runs = random.min(shape.shuffle * valued * ends);
    let breaks = 1.0 + shape.null_runs * share;
    // Where sorted rows are disturbed, they are so around the cut, and a zone there is as random rows are.
    let zone = f64::from(cut_count) * shape.shuffle / shape.changes.max(1e-9) * rows;
    if cut_count == 0 || shape.shuffle * valued / 6.0 < DISTURBED_RUNS || zone > 0.9 * rows {
        return PostingShape::of_runs(count, (runs + breaks).min(count), rows).posting_bytes(rows);
    }
    let in_zone = (zone * (0.5 + (density - 0.5) * zone / rows)).min(count);
    PostingShape { rows: in_zone, runs, span: zone }.posting_bytes(rows)
        + PostingShape::of_runs(count - in_zone, breaks, rows).posting_bytes(rows)
}
