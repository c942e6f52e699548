//! Which slices a migration makes, each with a commit of its own.

use std::sync::Arc;

use super::key_range_end::{RangeEnd, range_end_of};
use super::newest_runs::NewestRuns;
use super::slice_ends::slice_ends;
use super::slice_extents::{file_extents, page_extents};
use crate::error::{Error, ErrorKind, Result};
use crate::options::MigrateOptions;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::turn::flush::flush;
use crate::updates::turn::write_turn::WriteTurn;

/// The slices of a migration.
pub(super) struct MigrationPlan {
    /// Where each slice ends, ascending; none for all rows that are left.
    pub ends: Vec<Option<RangeEnd>>,
    /// Whether the buffer was made a run for the plan, so that no slice does.
    pub is_flushed: bool,
    /// Whether the cache had no room for this run.
    pub buffer_stays: bool,
}

/// Plans a migration; none if there is nothing to compact. A migration of everything at once is planned without looking.
pub(super) async fn plan(table: &Arc<UpdatableTable>, options: &MigrateOptions) -> Result<Option<MigrationPlan>> {
    if options.fraction >= 1.0 && options.max_bytes.is_none() {
        return Ok(Some(MigrationPlan { ends: vec![None], is_flushed: false, buffer_stays: false }));
    }
    let buffer_stays = {
        let mut writing = WriteTurn::begin(table).await?;
        if writing.is_below(options.threshold) {
            return Ok(None);
        }
        flush_if_room(&mut writing).await?
    };
    let Some(now) = NewestRuns::of(table).await? else { return Ok(None) };
    let mut ends = Vec::new();
    if let Some(max_bytes) = options.max_bytes {
        let (files, pages) = (file_extents(&now).await?, page_extents(&now)?);
        ends = slice_ends(&files, &pages, max_bytes);
    }
    let last = match options.fraction < 1.0 {
        true => {
            let Some(last) = end_of_fraction(&now, options.fraction).await? else { return Ok(None) };
            ends.retain(|end| *end < last.bytes);
            Some(last)
        }
        false => None,
    };
    let end = |bytes| Some(RangeEnd { bytes, has_key: false, types: now.key.types.clone() });
    let ends = ends.into_iter().map(end).chain([last]).collect();
    Ok(Some(MigrationPlan { ends, is_flushed: true, buffer_stays }))
}

/// The key up to which a fraction of the rows of all runs reaches; none if nothing is left of them.
async fn end_of_fraction(now: &NewestRuns, fraction: f64) -> Result<Option<RangeEnd>> {
    let total: u64 = now.updates.runs.iter().map(|run| u64::from(run.rows)).sum();
    let wanted = ((total as f64 * fraction).ceil() as u64).max(1);
    range_end_of(&now.runs, &now.key, wanted).await
}

/// Makes a run of the buffer, if the cache has room for one; says whether it has not.
pub(super) async fn flush_if_room(writing: &mut WriteTurn<'_>) -> Result<bool> {
    match flush(writing).await {
        // Nothing but a migration makes room: it compacts the runs, and the buffer stays until then.
        Err(error) if error.kind() == ErrorKind::CacheFull => {
            tracing::info!(store = writing.store.text(), %error, "the buffer is migrated later");
            Ok(true)
        }
        flushed => flushed.map(|()| false),
    }
}

/// Fails if the options ask for nothing that can be done.
pub(super) fn check_options(options: &MigrateOptions) -> Result<()> {
    if !(options.fraction > 0.0 && options.fraction <= 1.0) {
        return Err(Error::invalid(format!("the fraction is {}; give one above 0, up to 1", options.fraction)));
    }
    match options.max_bytes {
        Some(0) => Err(Error::invalid("slices of 0 bytes write nothing; give max_bytes above 0, such as 1073741824")),
        _ => Ok(()),
    }
}
