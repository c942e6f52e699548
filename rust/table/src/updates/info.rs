//! How many updates of a table are buffered, and where.

use std::sync::Arc;

use lakemark_format::log::LOG_START;
use lakemark_format::{ManifestRun, WriteCounters};

use super::parameters::Parameters;
use super::state::newest::pin_newest;
use super::state::updatable::UpdatableTable;
use super::turn::flush_policy::log_limit;
use super::view::context::{ManifestState, UpdateContext, UpdateScope};
use crate::error::Result;
use crate::report::{ChangesBesideFiles, RunInfo, UpdatesInfo};
use crate::snapshot::{BaseTable, DataFile, newest_manifest, retry_if_moved};

/// What programs miss that read the folder's own files.
pub(crate) async fn changes_beside_files(table: &BaseTable) -> Result<ChangesBesideFiles> {
    let (Some(manifest), Some(store)) = (newest_manifest(table).await?, table.store.as_ref()) else {
        return Ok(ChangesBesideFiles::default());
    };
    let Some(updates) = manifest.updates() else { return Ok(ChangesBesideFiles::default()) };
    let migrated = |run: &ManifestRun| run.migrated.iter().map(|rows| rows.end - rows.start).sum::<u32>();
    let in_runs = updates.runs.iter().any(|run| migrated(run) < run.rows);
    // A log that is not there has nothing; a reader that needs the log reports that.
    let in_log = store.length_of(&updates.log.path).await?.is_some_and(|length| length > LOG_START);
    Ok(ChangesBesideFiles {
        buffered: in_runs || in_log,
        unpublished: !updates.replaced.is_empty() || !updates.data.is_empty(),
    })
}

/// The state of the buffered updates; none if the table takes no updates.
pub(crate) async fn info(table: &Arc<UpdatableTable>) -> Result<Option<UpdatesInfo>> {
    if table.base.version.is_some() {
        return Ok(None);
    }
    // Runs and log are read once more after the snapshot was pinned.
    retry_if_moved(|| info_now(table)).await
}

async fn info_now(table: &Arc<UpdatableTable>) -> Result<Option<UpdatesInfo>> {
    let mut snapshot = pin_newest(table).await?;
    let (Some(manifest), Some(store)) = (snapshot.manifest.clone(), table.base.store.as_ref()) else { return Ok(None) };
    let Some(updates) = manifest.updates().filter(|updates| !snapshot.lacks_key(updates)) else {
        return Ok(None);
    };
    let parameters = Parameters::of(&updates.options)?;
    let state = ManifestState { number: manifest.number(), migration_done: snapshot.migration_done() };
    let files = &table.merged_views.files;
    let updated = UpdateContext::of(&mut snapshot, store, files, updates, state, UpdateScope::Log).await?;
    let tail = updated.log_tail(&snapshot, &files.reader).await?;
    files.reader.put(tail.clone());
    let WriteCounters { rows, log_bytes, flushed_bytes, merged_bytes, .. } = updates.written;
    let runs: Vec<RunInfo> = updates
        .runs
        .iter()
        .map(|run| RunInfo {
            passes: run.passes,
            rows: u64::from(run.rows),
            rows_migrated: run.migrated.iter().map(|rows| u64::from(rows.end - rows.start)).sum(),
            bytes: run.length,
        })
        .collect();
    let run_bytes = updates.run_bytes();
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let buffer_bytes = tail.end.saturating_sub(LOG_START);
    let base_rows: u64 = snapshot.files().iter().filter_map(DataFile::row_count).sum();
    Ok(Some(UpdatesInfo {
        key: snapshot.key_columns().unwrap_or_default(),
        sequence: snapshot.sequence().unwrap_or_default(),
        buffer_bytes,
        buffer_limit: log_limit(&updated, &parameters, &snapshot, &files.runs).await?,
        buffer_keys: tail.changes.len() as u64,
        rows_buffered: snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count()),
        rows_deleted: snapshot.deleted_rows(),
        cache_bytes: run_bytes,
        cache_limit: parameters.cache_bytes,
        migration_threshold: parameters.migration_threshold,
        cache_share: share(run_bytes, parameters.cache_bytes),
        runs_limit: parameters.scanned_runs,
        writes_per_update: if flushed_bytes == 0 { 0.0 } else { 1.0 + share(merged_bytes, flushed_bytes) },
        writes_bound: parameters.writes_per_update(),
        rows_written: rows,
        log_bytes: log_bytes + buffer_bytes,
        flushed_bytes,
        merged_bytes,
        base_rows,
        runs,
    }))
}
