//! Links with more predicates than their segments have places for: a sample shows it before anything is built.

use lakemark_format::links::MAX_PREDICATES;
use lakemark_format::{ManifestIndex, column};
use lakemark_index::bitmap::BuildError;

use super::sample::Sampler;
use crate::error::{Error, Result};
use crate::index_kind::IndexKind;
use crate::snapshot::{BaseTable, Snapshot};
use crate::store::kind::files_per_segment_of;

/// Refuses an index of links that could not be built, as far as a sample shows it. Data that cannot be read now are no reason not to declare
/// the index: the build will say what is wrong.
pub(crate) async fn check_predicates(table: &BaseTable, snapshot: &Snapshot, index: &ManifestIndex) -> Result<()> {
    let columns: Vec<&str> = column::columns(&index.column).collect();
    // Links of two columns have no predicate.
    let [_, predicate, _] = columns.as_slice() else { return Ok(()) };
    match are_too_many(table, snapshot, index, predicate).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            let shown = snapshot.logical_name(&index.column).unwrap_or_else(|| index.column.as_str().into());
            let column = column::display(&shown).into_owned();
            let error = BuildError::TooManyPredicates { column, limit: MAX_PREDICATES as u64 };
            Err(Error::unsupported(error.to_string()))
        }
        Err(error) => {
            tracing::debug!(index = index.name, %error, "no sample could be read; predicates are not counted");
            Ok(())
        }
    }
}

/// Whether the sample alone has more predicates than all segments together have places.
async fn are_too_many(table: &BaseTable, snapshot: &Snapshot, index: &ManifestIndex, predicate: &str) -> Result<bool> {
    let sampler = Sampler::new(table, snapshot).await?;
    let segments = sampler.segment_rows(files_per_segment_of(IndexKind::Links, &index.options))?.len().max(1);
    let sample = sampler.column(predicate).await?.sample;
    // NULL has a place as well.
    let found = sample.values() + if sample.valued_share() < 1.0 { 1.0 } else { 0.0 };
    Ok(found > (MAX_PREDICATES * segments) as f64)
}
