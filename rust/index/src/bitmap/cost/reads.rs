//! What a search of an encoding reads, by the shape of the predicate.
//!
//! With `F` the bytes of all postings, `V` those of all value blocks, `b` a bitmap and `K` bins, for a part `p` of the rows:
//!
//! ```text
//!                    one value      ten values        BETWEEN                      one-sided
//! equality           F/C            10 F/C            min(p, 1-p) (F+V)            the same
//! range-equality     F/C            10 F/C            the same, or 2b + (F+V)/2K   the same, or b + (F+V)/4K
//! interval-equality  F/C            10 F/C            the same, or 2b + (F+V)/2K   the same, or 2b + (F+V)/4K
//! range              2b             20 b              2b                           b
//! interval           2b             20 b              2b                           2b
//! binary             all slices     all slices        all slices                   all slices
//! ```
//!
//! Every search reads the NULL list and the value blocks at the ends of its ranges as well. These are equations 1 to 3 of Wu,
//! Madduri and Canon (2010), for postings whose bytes are known instead of bounded.

use std::ops::Bound;

use lakemark_format::segment::encoding::{CoarseLevel, Encoding};

use super::shape::ColumnShape;
use super::{BlockSizes, Sizes, sizes};
use crate::ranges::{KeyRange, KeyRanges};

/// A predicate over the column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryShape {
    /// `= value`.
    Value,
    /// `IN` with so many values.
    In(u32),
    /// A range.
    Range {
        /// The part of the rows that are in it.
        share: f64,
        /// `<` or `>`, not `BETWEEN`.
        one_sided: bool,
    },
}

impl QueryShape {
    /// The shape of a test that this part of the rows passes.
    #[must_use]
    pub fn of(ranges: &KeyRanges, share: f64) -> Self {
        let is_point = |range: &KeyRange| match (&range.low, &range.high) {
            (Bound::Included(low), Bound::Included(high)) => low == high,
            _ => false,
        };
        let ranges = ranges.ranges();
        if ranges.iter().all(is_point) {
            return match ranges.len() {
                1 => Self::Value,
                values => Self::In(u32::try_from(values).unwrap_or(u32::MAX)),
            };
        }
        let is_open = |range: &KeyRange| range.low == Bound::Unbounded || range.high == Bound::Unbounded;
        Self::Range { share, one_sided: ranges.iter().any(is_open) }
    }
}

/// What a search reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reads {
    /// Bytes of the index.
    pub bytes: f64,
    /// Separate reads.
    pub reads: f64,
}

/// A predicate, and how much it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedShape {
    /// The predicate.
    pub shape: QueryShape,
    /// How much it counts beside others.
    pub weight: f64,
}

impl WeightedShape {
    const fn range(share: f64, one_sided: bool, weight: f64) -> Self {
        Self { shape: QueryShape::Range { share, one_sided }, weight }
    }
}

/// The shapes that stand for all queries where none are known.
pub const WEIGHTS: [WeightedShape; 8] = [
    WeightedShape { shape: QueryShape::Value, weight: 4.0 },
    WeightedShape { shape: QueryShape::In(10), weight: 2.0 },
    WeightedShape::range(0.01, false, 1.0),
    WeightedShape::range(0.01, true, 1.0),
    WeightedShape::range(0.1, false, 1.0),
    WeightedShape::range(0.1, true, 1.0),
    WeightedShape::range(0.5, false, 0.5),
    WeightedShape::range(0.5, true, 0.5),
];

/// What a search of a segment reads; none if the encoding cannot have so many values.
#[must_use]
pub fn predicted_reads(encoding: Encoding, shape: &ColumnShape, query: QueryShape) -> Option<Reads> {
    sizes(encoding, shape).map(|sizes| reads_of(encoding, &sizes, query))
}

/// The same from the sizes of the segment's parts.
#[must_use]
pub fn reads_of(encoding: Encoding, sizes: &Sizes, query: QueryShape) -> Reads {
    let BlockSizes { bytes: blocks, count } = sizes.blocks;
    let block = blocks / count.max(1.0);
    let listed = if sizes.nulls > 0.0 { 1.0 } else { 0.0 };
    let plus = |bytes: f64, reads: f64| Reads { bytes: sizes.nulls + bytes, reads: listed + reads };
    let bitmaps = sizes.bitmaps.len() as f64;
    if !encoding.has_fine_level() {
        let edges = if matches!(query, QueryShape::Range { one_sided: false, .. }) { 2.0 } else { 1.0 };
        let (edges, wanted) = match (encoding.coarse_level(), query) {
            (Some(CoarseLevel::Slices), QueryShape::In(values)) => (f64::from(values), bitmaps),
            (Some(CoarseLevel::Slices), _) => (edges, bitmaps),
            (_, QueryShape::In(values)) => (f64::from(values), 2.0 * f64::from(values)),
            (Some(CoarseLevel::Range), QueryShape::Range { one_sided: true, .. }) => (edges, 1.0),
            _ => (edges, 2.0),
        };
        let (edges, wanted) = (edges.min(count), wanted.min(bitmaps));
        return plus(edges * block + wanted * sizes.bitmap(), edges + wanted);
    }
    match query {
        QueryShape::Value => plus(block + sizes.posting, 2.0),
        QueryShape::In(values) => {
            let values = f64::from(values);
            let touched = values.min(count);
            plus(touched * block + (values * sizes.posting).min(sizes.fine), touched + values)
        }
        QueryShape::Range { share, one_sided } => {
            let edges = if one_sided { 1.0 } else { 2.0 };
            let alone = plus(share.min(1.0 - share) * (sizes.fine + blocks) + edges * block, 2.0 + edges);
            let bins = (sizes.bins as f64).max(1.0);
            let ends = match encoding {
                // An interval of half of the bins is a bitmap itself.
                Encoding::IntervalEquality if (share - 0.5).abs() * bins < 0.5 => 1.0,
                Encoding::IntervalEquality => 2.0,
                _ => edges,
            };
            // Of the bin at each edge the side that takes fewer bytes is read, a quarter of it on average.
            let at_edges = edges * (block + (sizes.fine + blocks) / (4.0 * bins));
            let both = plus(ends.min(bitmaps) * sizes.bitmap() + at_edges, ends.min(bitmaps) + 2.0 * edges);
            if bitmaps > 0.0 && share * bins >= 1.0 && both.bytes < alone.bytes { both } else { alone }
        }
    }
}
