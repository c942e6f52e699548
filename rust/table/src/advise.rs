//! What an index would take and save, told from a sample: the encoding that `auto` takes, and which marks to build.
//!
//! ```text
//! row groups, evenly ─▶ sample ─▶ lakemark_index::bitmap::cost ─┬─▶ settle   at CREATE INDEX: encoding, reason, predicted bytes
//!                                                               └─▶ advice   which columns to index, by queries or without
//! ```
//!
//! What was decided and predicted is kept in the options of the index, under names that users cannot give.

pub(crate) mod advice;
mod gain;
mod queries;
mod report;
mod sample;

use lakemark_format::filter::{DENSITY_UNIT, Density};
use lakemark_format::{Encoding, ManifestIndex, column};
use lakemark_index::bitmap::cost::choice::choose;
use lakemark_index::bitmap::cost::predicted_bytes;
use lakemark_index::zones::FALSE_ZONES;

use crate::error::Result;
use crate::kind::{Kind, files_per_segment, precision_of, zones_of};
use crate::snapshot::Snapshot;
use crate::table::Table;
use sample::Sampler;

pub use queries::{ConditionUse, QueryUse};
pub use report::{Advice, LayoutHint, Proposal, QueryGain, QueryProblem};

/// Why `auto` chose the encoding.
const REASON: &str = "auto";
/// Bytes that the index was predicted to take.
const PREDICTED_BYTES: &str = "predicted_bytes";
/// Rows that the prediction was for.
const PREDICTED_ROWS: &str = "predicted_rows";
/// From this part of distinct values on, a column is one of unique values.
const UNIQUE: f64 = 0.9;
/// Columns of unique values are told of from so many rows on: smaller ones take little whatever they are.
const MANY_ROWS: u64 = 100_000;

/// Keys that take more bytes a row than this are long: filters take about two, and more than most columns of keys take as numbers.
const LONG_KEY_BYTES: f64 = 16.0;
/// The rows are in the order of the values, or nearly so, up to this measure of disorder (1 for none).
const CLUSTERED: f64 = 0.1;

/// Whether `auto` chose the encoding of an index.
pub(crate) fn is_chosen_by_auto(index: &ManifestIndex) -> bool {
    index.options.iter().any(|(name, _)| name == REASON)
}

/// Whether an option is one of our records, and none of the user's.
pub(crate) fn is_record(name: &str) -> bool {
    [REASON, PREDICTED_BYTES, PREDICTED_ROWS].contains(&name)
}

/// What was recorded when an index was declared.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Why `auto` chose the encoding.
    pub reason: Option<String>,
    bytes: Option<u64>,
    rows: Option<u64>,
}

impl Recorded {
    pub(crate) fn of(index: &ManifestIndex) -> Self {
        let option = |wanted: &str| index.options.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let number = |wanted: &str| option(wanted).and_then(|value| value.parse().ok());
        Self { reason: option(REASON).cloned(), bytes: number(PREDICTED_BYTES), rows: number(PREDICTED_ROWS) }
    }

    /// The prediction for so many rows; for those that it was made for if there are none.
    pub(crate) fn bytes_of(&self, rows: u64) -> Option<u64> {
        let (bytes, predicted) = (self.bytes?, self.rows?);
        let part = if rows == 0 || predicted == 0 { 1.0 } else { rows as f64 / predicted as f64 };
        Some((bytes as f64 * part).round() as u64)
    }
}

/// Chooses the encoding of an index that is being declared, if it is `open`, and records the choice and the prediction. Data that
/// cannot be read now is no reason not to declare an index: the build will say what is wrong.
pub(crate) async fn settle(table: &Table, snapshot: &Snapshot, index: &mut ManifestIndex, open: bool) {
    if index.key_type.is_list() {
        // How many elements a list has and how they repeat in it is not sampled.
        if open {
            index.options.push((
                REASON.to_owned(),
                "a row of lists has several values, each with the rows that have it".to_owned(),
            ));
        }
        return;
    }
    let settled = predict(table, snapshot, index, open).await;
    if let Err(error) = settled {
        tracing::debug!(index = index.name, %error, "no sample could be read; nothing is predicted");
        if open {
            index.options.push((REASON.to_owned(), "no sample of the data could be read".to_owned()));
        }
    }
}

async fn predict(table: &Table, snapshot: &Snapshot, index: &mut ManifestIndex, open: bool) -> Result<()> {
    let sampler = Sampler::new(table, snapshot).await?;
    let column = sampler.binned_column(&index.column, precision_of(&index.options)?).await?;
    let segment_rows = sampler.segment_rows(files_per_segment(index))?;
    let segments = column.segments(&segment_rows);
    let choice = choose(&segments.shapes);
    let distinct = segments.values();
    let unique = is_unique(&sampler, &column, distinct);
    let packed = segments.shapes.iter().map(|shape| predicted_bytes(Encoding::Packed, shape)).sum::<Option<u64>>();
    let packed = packed.map(|bytes| segments.scaled(bytes));
    if open {
        let because = if unique {
            let row_bytes = packed.unwrap_or(0) as f64 / sampler.rows().max(1) as f64;
            let (kind, because) = kind_of_unique(row_bytes, column.sample.shuffle());
            kind.name().clone_into(&mut index.kind);
            kind.encoding().name().clone_into(&mut index.encoding);
            because
        } else {
            index.encoding = choice.encoding.name().to_owned();
            choice.reason.clone()
        };
        let reason = match sampler.rows() {
            0 => "the table has no rows yet".to_owned(),
            rows => {
                format!("{} of {rows} rows have about {distinct:.0} values; {because}", valued(rows, &column))
            }
        };
        index.options.push((REASON.to_owned(), reason));
    }
    let predicted = match Encoding::from_name(&index.encoding) {
        Some(Encoding::Packed) => packed,
        Some(Encoding::Binned) => column.binned_bytes(&segment_rows),
        // How many values a zone has is known where every row has its own.
        Some(encoding) if encoding.has_zones() => unique.then(|| filter_bytes(&sampler, &column, index)),
        Some(encoding) => choice.prediction(encoding).map(|prediction| segments.scaled(prediction.bytes)),
        None => None,
    };
    if let Some(bytes) = predicted {
        index.options.push((PREDICTED_BYTES.to_owned(), bytes.to_string()));
        index.options.push((PREDICTED_ROWS.to_owned(), sampler.rows().to_string()));
        if unique && index.kind == Kind::Bitmap.name() && index.encoding != Encoding::Binned.name() {
            tracing::warn!(
                index = index.name,
                column = %column::shown(&index.column),
                predicted_bytes = bytes,
                "nearly every row has a value of its own: the index will take about {:.1} bytes a row; \
                 an index of the kind `key` (--using key) finds single rows with half of the reads",
                bytes as f64 / sampler.rows() as f64
            );
        }
    }
    Ok(())
}

/// The kind of index for a column in which nearly every row has its own value, and why: keys, unless they are long. Filters do not grow
/// with the keys.
fn kind_of_unique(row_bytes: f64, shuffle: f64) -> (Kind, String) {
    let own = "nearly every row has its own";
    if row_bytes <= LONG_KEY_BYTES {
        return (Kind::Key, format!("{own}, which the kind key finds with one read"));
    }
    let long = format!("{own}, and keys would take {row_bytes:.0} bytes a row");
    if shuffle <= CLUSTERED {
        return (
            Kind::BloomTree,
            format!("{long}, so that filters behind fences are kept of them: the rows are in their order"),
        );
    }
    (Kind::Summary, format!("{long}, so that a summary of filters is kept of them: the rows are in no order"))
}

/// Bytes of the filters of a column of unique values.
fn filter_bytes(sampler: &Sampler<'_>, column: &sample::SampledColumn, index: &ManifestIndex) -> u64 {
    let (keys, zones) = (valued(sampler.rows(), column), zones_of(index, 0));
    let count = zones.zone_rows.map_or(0, |rows| sampler.rows().div_ceil(rows.into())).max(sampler.row_groups()).max(1);
    // A summary probes all zones, a tree those whose fences are around the key; slices hold eight zones a byte.
    let (probed, padded) = match Kind::of(index) {
        Some(Kind::Summary) => (count as f64, count.next_multiple_of(8) as f64 / count as f64),
        _ => (count as f64 * column.sample.shuffle(), 1.0),
    };
    let density = Density::of_fpp(zones.fpp.unwrap_or(FALSE_ZONES / probed.max(1.0)));
    (keys as f64 * padded * f64::from(density.bits) / (DENSITY_UNIT * 8) as f64) as u64
}

/// Whether nearly every row of a large table has a value of its own.
fn is_unique(sampler: &Sampler<'_>, column: &sample::SampledColumn, distinct: f64) -> bool {
    sampler.rows() >= MANY_ROWS && distinct >= UNIQUE * valued(sampler.rows(), column) as f64
}

/// Rows with a value among all rows.
fn valued(rows: u64, column: &sample::SampledColumn) -> u64 {
    (rows as f64 * column.sample.valued_share()).round() as u64
}
