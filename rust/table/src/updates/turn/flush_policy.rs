//! When the buffer becomes a run. The run that the buffer becomes is measured, since the theorems on MaSM count its pages. Runs are
//! compressed and logs are not, so that more of a log fits a run of S pages than S pages.

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::updates::changes::phase::MigrationPhase;
use crate::updates::parameters::Parameters;
use crate::updates::runs::run_cache::RunCache;
use crate::updates::runs::run_writer::buffered;
use crate::updates::view::context::UpdateContext;

/// The most bytes of a log for a byte of a run: whoever opens the table reads the log.
const MOST_LOG: f64 = 8.0;

/// Whether a log of so many bytes becomes a run now.
pub(crate) async fn is_full(
    updated: &UpdateContext<'_>,
    log_bytes: u64,
    parameters: &Parameters,
    base: &Snapshot,
    runs: &RunCache,
) -> Result<bool> {
    // A run is not larger than its log, so that nothing needs to be looked up before.
    let is_large = log_bytes >= parameters.buffer_bytes(updated.updates.runs.len());
    Ok(is_large && log_bytes >= log_limit(updated, parameters, base, runs).await?)
}

/// The bytes of a log that becomes a run. The newest run shows how much smaller a run is than its log. Without any run it counts as
/// equally large.
pub(crate) async fn log_limit(
    updated: &UpdateContext<'_>,
    parameters: &Parameters,
    base: &Snapshot,
    runs: &RunCache,
) -> Result<u64> {
    let limit = parameters.buffer_bytes(updated.updates.runs.len());
    let Some(newest) = updated.updates.runs.last() else { return Ok(limit) };
    let phase = MigrationPhase::of(newest, updated.updates, updated.migration_done);
    let run = runs.get(updated.store, newest, base.column_names(), phase).await?;
    let log_bytes = buffered(&run).unwrap_or(newest.length);
    let shrinks = log_bytes as f64 / newest.length.max(1) as f64;
    Ok((limit as f64 * shrinks.clamp(1.0, MOST_LOG)) as u64)
}
