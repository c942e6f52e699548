//! `auto`: the encoding of an index, chosen by what its searches would read and what it would take.
//!
//! Scored is every encoding that keeps a posting for each value, as grouping and counting selected rows by value need these:
//!
//! ```text
//! score = ( Π over the query shapes s   cost(s) ^ weight(s)  ×  size ^ 5 ) ^ (1 / 16)        cost = bytes + 16 KiB × reads
//! ```
//!
//! The mean is geometric, so that halving a search of a kilobyte counts as much as halving one of a megabyte. The size of the
//! index is one more shape. The smallest score wins. Another encoding than `equality` must be 15% below it, and may be half as
//! large again.

use lakemark_format::segment::encoding::Encoding;

use super::reads::{WEIGHTS, WeightedShape, reads_of};
use super::shape::ColumnShape;
use super::sizes;

/// What a read costs beside its bytes, as bytes.
pub const READ_BYTES: f64 = 16.0 * 1024.0;
/// How much the size of the index counts, beside the weights of the query shapes.
pub const SIZE_WEIGHT: f64 = 5.0;
/// The largest size, as a multiple of that of `equality`.
pub const SIZE_LIMIT: f64 = 1.5;
/// Another encoding must have a score below this part of that of `equality`.
const GAIN: f64 = 0.85;

/// What an encoding would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncodingPrediction {
    /// The encoding.
    pub encoding: Encoding,
    /// Bytes of the index.
    pub bytes: u64,
    /// The weighted geometric mean of what the query shapes cost, in bytes.
    pub search: f64,
}

/// An encoding, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodingChoice {
    /// What was chosen.
    pub encoding: Encoding,
    /// Why, for people.
    pub reason: String,
    /// Every encoding of the kind `bitmap` that could be built, in the order of [`Encoding::BITMAP`].
    pub predictions: Vec<EncodingPrediction>,
}

impl EncodingChoice {
    /// The prediction of an encoding.
    #[must_use]
    pub fn prediction(&self, encoding: Encoding) -> Option<&EncodingPrediction> {
        self.predictions.iter().find(|prediction| prediction.encoding == encoding)
    }
}

/// Predicts every encoding for an index of these segments, for queries of these shapes and weights.
#[must_use]
pub fn predict(segments: &[ColumnShape], queries: &[WeightedShape]) -> Vec<EncodingPrediction> {
    Encoding::BITMAP.into_iter().filter_map(|encoding| prediction(encoding, segments, queries)).collect()
}

fn prediction(encoding: Encoding, segments: &[ColumnShape], queries: &[WeightedShape]) -> Option<EncodingPrediction> {
    let sizes: Vec<_> = segments.iter().map(|shape| sizes(encoding, shape)).collect::<Option<_>>()?;
    let weights: f64 = queries.iter().map(|query| query.weight).sum();
    let mut logarithms = 0.0;
    for query in queries {
        let cost: f64 = sizes
            .iter()
            .map(|sizes| reads_of(encoding, sizes, query.shape))
            .map(|reads| reads.bytes + READ_BYTES * reads.reads)
            .sum();
        logarithms += query.weight * cost.max(1.0).ln();
    }
    let bytes = sizes.iter().map(|sizes| sizes.total).sum();
    Some(EncodingPrediction { encoding, bytes, search: (logarithms / weights.max(1e-9)).exp() })
}

/// Chooses for queries of the shapes [`WEIGHTS`].
#[must_use]
pub fn choose(segments: &[ColumnShape]) -> EncodingChoice {
    choose_for(segments, &WEIGHTS)
}

/// Chooses for queries of these shapes and weights.
#[must_use]
pub fn choose_for(segments: &[ColumnShape], queries: &[WeightedShape]) -> EncodingChoice {
    let predictions = predict(segments, queries);
    let weights: f64 = queries.iter().map(|query| query.weight).sum();
    let Some(equality) = predictions.iter().find(|prediction| prediction.encoding == Encoding::Equality).copied()
    else {
        return EncodingChoice {
            encoding: Encoding::Equality,
            reason: "nothing is known of the column".to_owned(),
            predictions,
        };
    };
    let score = |prediction: &EncodingPrediction| {
        let all = weights + SIZE_WEIGHT;
        let size = (prediction.bytes as f64 + READ_BYTES).ln();
        ((weights * prediction.search.ln() + SIZE_WEIGHT * size) / all).exp()
    };
    let mut others: Vec<&EncodingPrediction> = predictions
        .iter()
        .filter(|other| other.encoding != Encoding::Equality && other.encoding.has_fine_level())
        .filter(|other| other.bytes as f64 <= equality.bytes as f64 * SIZE_LIMIT)
        .collect();
    others.sort_by(|a, b| score(a).total_cmp(&score(b)));
    let best = others.first().filter(|other| score(other) < GAIN * score(&equality));
    let percent = |part: f64| (part * 100.0).round() as i64;
    let against_equality = |other: &EncodingPrediction| Comparison {
        encoding: other.encoding,
        saved_percent: percent(1.0 - other.search / equality.search),
        more_percent: percent(other.bytes as f64 / equality.bytes as f64 - 1.0),
    };
    let (encoding, reason) = match best {
        Some(best) => {
            let Comparison { encoding, saved_percent: saved, more_percent: more } = against_equality(best);
            let costs = if more >= 0 { format!("{more}% more") } else { format!("{}% fewer", -more) };
            (encoding, format!("searches cost {saved}% less than with equality, for {costs} bytes kept"))
        }
        None => (Encoding::Equality, equality_reason(others.first().copied().map(against_equality))),
    };
    EncodingChoice { encoding, reason, predictions }
}

/// An encoding beside `equality`.
struct Comparison {
    encoding: Encoding,
    /// By how many percent searches are cheaper.
    saved_percent: i64,
    /// By how many percent the index is larger.
    more_percent: i64,
}

/// Why it is `equality`, where `next` is the best of the others.
fn equality_reason(next: Option<Comparison>) -> String {
    match next {
        Some(Comparison { encoding, saved_percent: saved, more_percent: more }) if saved > 0 => format!(
            "a second level does not pay: {} would make searches {saved}% cheaper and the index {more}% larger",
            encoding.name()
        ),
        _ => "no other encoding makes searches cheaper".to_owned(),
    }
}
