//! What an encoding will take, told before the column is indexed.
//!
//! From the numbers of rows, NULLs and distinct values, for rows that are spread evenly: where equal values lie together, or some are far
//! more frequent than others, postings are shorter, and the prediction is an upper bound. The formulas are those by which
//! postings and value blocks are written; what differs from value to value is taken at its mean.

use lakemark_format::posting::BLOCK_ROWS;
use lakemark_format::segment::encoding::{CoarseLevel, Encoding, MAX_COARSE_BITMAPS};
use lakemark_format::value_block::MAX_BLOCK_VALUES;

use super::levels::bins_of_size;

/// What is known of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnShape {
    /// Rows of a segment.
    pub rows: u64,
    /// Rows among them that are NULL.
    pub nulls: u64,
    /// Distinct values.
    pub values: u64,
    /// Bits that a value takes beside the one before it: 0 for integers without gaps.
    pub key_bits: f64,
}

/// Header, trailer, the first fields of the directory with one file.
const FIXED_BYTES: f64 = 64.0 + 64.0 + 90.0;
/// A value block in the directory; its own first fields.
const BLOCK_BYTES: f64 = 12.0 + 8.0;
/// A bitmap in the directory.
const BITMAP_BYTES: f64 = 8.0;
/// Pages are 4092 bytes and a checksum of four.
const PAGE_SHARE: f64 = 4096.0 / 4092.0;
/// Between the least and the largest of some hundred draws lie about as many standard deviations.
const SPREAD: f64 = 6.5;
/// A bitmap is taken up to this part above the smallest form.
const BITMAP_TOLERANCE: f64 = 1.2;

/// Bytes of a segment; none if the encoding cannot have so many values.
#[must_use]
pub fn predicted_bytes(encoding: Encoding, shape: &ColumnShape) -> Option<u64> {
    let rows = shape.rows as f64;
    let valued = shape.rows.saturating_sub(shape.nulls) as f64;
    let values = (shape.values as f64).max(1.0);
    let per_value = valued / values;
    let posting = spread_posting(per_value, rows);
    let mut bytes = FIXED_BYTES + posting_bytes(shape.nulls as f64, rows);
    let fine = encoding.has_fine_level();
    if fine {
        bytes += values * posting;
    }
    let lengths = if fine { per_value.sqrt() * posting / per_value.max(1.0) } else { 0.0 };
    let columns = shape.key_bits + width(SPREAD * per_value.sqrt()) + width(SPREAD * lengths);
    bytes += values * columns / 8.0 + (values / MAX_BLOCK_VALUES as f64).ceil() * BLOCK_BYTES;
    if let Some(level) = encoding.coarse_level() {
        let bins = if encoding.has_bins() {
            bins_of_size(level, (values * posting) as u64, shape.rows / 8 + BITMAP_BYTES as u64, shape.values)
        } else {
            shape.values
        };
        let bitmaps = level.bitmaps(bins);
        if bitmaps > MAX_COARSE_BITMAPS as u64 {
            return None;
        }
        bytes += (0..bitmaps)
            .map(|bitmap| BITMAP_BYTES + posting_bytes(share(level, bins, bitmap) * valued, rows))
            .sum::<f64>();
    }
    Some((bytes * PAGE_SHARE) as u64)
}

/// The part of the rows that a bitmap holds.
fn share(level: CoarseLevel, bins: u64, bitmap: u64) -> f64 {
    match level {
        CoarseLevel::Slices => {
            let (half, bins) = (1u64 << bitmap.min(62), bins.max(1));
            let held = bins / (2 * half) * half + (bins % (2 * half)).saturating_sub(half);
            held as f64 / bins as f64
        }
        CoarseLevel::Range => (bitmap + 1) as f64 / bins as f64,
        CoarseLevel::Interval => (bins / 2) as f64 / bins as f64,
    }
}

/// Bits of a number up to `most`.
fn width(most: f64) -> f64 {
    (most + 1.0).log2().ceil()
}

/// The mean over values that have about so many rows each.
fn spread_posting(rows: f64, universe: f64) -> f64 {
    let step = rows.sqrt();
    let at = |rows: f64| posting_bytes(rows.max(1.0), universe);
    at(rows - step) / 4.0 + at(rows) / 2.0 + at(rows + step) / 4.0
}

/// Bytes of the posting of `rows` rows spread over `universe` rows.
fn posting_bytes(rows: f64, universe: f64) -> f64 {
    if rows < 1.0 || universe < 1.0 {
        return 0.0;
    }
    let full = (rows / BLOCK_ROWS as f64).floor();
    let rest = rows - full * BLOCK_ROWS as f64;
    full * block_bytes(BLOCK_ROWS as f64, rows, universe) + block_bytes(rest, rows, universe)
}

/// A posting block of `count` of the rows.
fn block_bytes(count: f64, rows: f64, universe: f64) -> f64 {
    if count < 1.0 {
        return 0.0;
    }
    let density = (rows / universe).min(1.0);
    let span = (count / density).min(universe);
    // The form, the first row and the span.
    let bounds = 1.0 + varint(universe) + varint(span);
    let runs =
        1.0 + varint(count) + (count * (1.0 - density) + 1.0) * (2.0 + varint(1.0 / (1.0 - density).max(1e-9)) - 1.0);
    let best = (1.0 + elias_fano(count, universe)).min(bounds + elias_fano(count, span)).min(runs);
    let bitmap = bounds + span / 8.0 + 0.5;
    if bitmap <= best * BITMAP_TOLERANCE { bitmap } else { best }
}

/// Low bits, a bit for each row, and the steps; two lists that end with half a byte.
fn elias_fano(count: f64, span: f64) -> f64 {
    let low = (span / count).max(1.0).log2().floor();
    (count * (low + 1.0) + span / low.exp2()) / 8.0 + 0.9
}

fn varint(number: f64) -> f64 {
    ((number + 1.0).log2() / 7.0).ceil().max(1.0)
}
