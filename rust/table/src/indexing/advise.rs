//! What an index would take and save, by a sample: the encoding that `auto` takes, and which indexes to build.
//!
//! ```text
//! row groups, evenly ─▶ sample ─▶ lakemark_index::bitmap::cost ─┬─▶ choose   at CREATE INDEX: encoding, reason, predicted bytes
//!                                                               └─▶ advice   which columns to index, by queries or without
//! queries ─▶ columns that lookups read ─▶ their leaves, made of the sample ──▶ riding   which columns to include
//! ```
//!
//! What was decided and predicted is kept in the options of the index, under names that users cannot give.

pub(crate) mod advice;
mod gain;
mod kinds;
mod predicates;
mod queries;
mod report;
mod riding;
mod sample;

use lakemark_format::filter::{DENSITY_UNIT, Density};
use lakemark_format::{Encoding, ManifestIndex, NameOf, column};
use lakemark_index::bitmap::cost::reads::WEIGHTS;
use lakemark_index::zones::{FALSE_ZONES, SUMMARY_ZONES, ZoneOptions};

use crate::error::Result;
use crate::index_kind::IndexKind;
use crate::snapshot::{BaseTable, Snapshot};
use crate::store::kind::{files_per_segment_of, precision_of, zones_of};
use crate::store::recorded::{record_prediction, record_reason};
use kinds::{KindChoice, KindReason, SegmentRows};
use sample::Sampler;

pub(crate) use predicates::check_predicates;
pub use queries::{ConditionUse, JoinedKeys, QueryUse};
pub use report::{Advice, LayoutHint, Proposal, QueryGain, QueryProblem};

/// Chooses the encoding of an index that is being declared, if it is `open`, and records the choice and the prediction. Data that cannot be
/// read now are no reason not to declare an index: the build will say what is wrong.
pub(crate) async fn choose_encoding(table: &BaseTable, snapshot: &Snapshot, index: &mut ManifestIndex, open: bool) {
    if index.key_type.is_list() {
        // How many elements a list has, and how they repeat in it, is not sampled.
        if open {
            record_reason(index, "a row of lists has several values, each with the rows that have it".to_owned());
        }
        return;
    }
    let settled = predict(table, snapshot, index, open).await;
    if let Err(error) = settled {
        tracing::debug!(index = index.name, %error, "no sample could be read; nothing is predicted");
        if open {
            record_reason(index, "no sample of the data could be read".to_owned());
        }
    }
}

/// How many rows the table has; none if that cannot be found out.
pub(crate) async fn table_rows(table: &BaseTable, snapshot: &Snapshot) -> Option<u64> {
    match Sampler::new(table, snapshot).await {
        Ok(sampler) => Some(sampler.rows()),
        Err(error) => {
            tracing::debug!(%error, "no footer could be read; the rows of the table are not known");
            None
        }
    }
}

async fn predict(table: &BaseTable, snapshot: &Snapshot, index: &mut ManifestIndex, open: bool) -> Result<()> {
    let sampler = Sampler::new(table, snapshot).await?;
    let column = sampler.binned_column(&index.column, precision_of(&index.options)?).await?;
    let rows = SegmentRows {
        bitmap: sampler.segment_rows(files_per_segment_of(IndexKind::Bitmap, &index.options))?,
        key: sampler.segment_rows(files_per_segment_of(IndexKind::Key, &index.options))?,
    };
    let kinds = KindChoice::new(&sampler, &column, &rows, &WEIGHTS);
    if open {
        let because = if let Some(KindReason { kind, reason }) = kinds.better() {
            index.kind = NameOf::Known(kind);
            index.encoding = NameOf::Known(kind.encoding());
            reason
        } else {
            index.encoding = NameOf::Known(kinds.choice.encoding);
            kinds.choice.reason.clone()
        };
        let reason = match sampler.rows() {
            0 => "the table has no rows yet".to_owned(),
            rows => format!("{} of {rows} rows have about {:.0} values; {because}", kinds.valued(), kinds.distinct),
        };
        record_reason(index, reason);
    }
    let unique = kinds.is_unique();
    let predicted = match index.encoding.known() {
        Some(Encoding::Packed) => kinds.packed,
        Some(Encoding::Binned) => column.binned_bytes(&rows.bitmap),
        // The number of values of a zone is known where every row has its own value.
        Some(encoding) if encoding.has_zones() => {
            let kind = IndexKind::of_encoding(encoding);
            unique.then(|| filter_bytes(&sampler, &column, kinds.valued(), kind, zones_of(index, 0)))
        }
        Some(encoding) => {
            let prediction = kinds.choice.prediction(encoding);
            prediction.map(|prediction| kinds.bitmaps.scaled(prediction.bytes))
        }
        None => None,
    };
    if let Some(bytes) = predicted {
        record_prediction(index, bytes, sampler.rows());
        let (kind, encoding) = (index.kind.known(), index.encoding.known());
        if unique && kind == Some(IndexKind::Bitmap) && encoding != Some(Encoding::Binned) {
            tracing::warn!(
                index = index.name,
                column = %column::display(&index.column),
                predicted_bytes = bytes,
                "nearly every row has a value of its own: the index will take about {:.1} bytes a row; \
                 an index of the kind `key` (--using key) finds single rows with half of the reads",
                bytes as f64 / sampler.rows() as f64
            );
        }
    }
    Ok(())
}

/// Bytes of the filters of a column of unique values, of which there are `keys`.
fn filter_bytes(
    sampler: &Sampler<'_>,
    column: &sample::SampledColumn,
    keys: u64,
    kind: IndexKind,
    zones: ZoneOptions,
) -> u64 {
    let count = zones.zone_rows.map_or(0, |rows| sampler.rows().div_ceil(rows.into())).max(sampler.row_groups()).max(1);
    // A tree probes the zones whose fences are around the key. Slices hold eight zones a byte.
    let (fpp, padded) = match kind {
        IndexKind::Summary => (FALSE_ZONES / SUMMARY_ZONES, count.next_multiple_of(8) as f64 / count as f64),
        _ => (FALSE_ZONES / (count as f64 * column.sample.shuffle()).max(1.0), 1.0),
    };
    let density = Density::of_fpp(zones.fpp.unwrap_or(fpp));
    (keys as f64 * padded * f64::from(density.bits) / (DENSITY_UNIT * 8) as f64) as u64
}
