//! Where keys lie: those of the files that a migration writes anew, and those of the rows that it compacts. Its slices are chosen by that.
//!
//! The bounds of pages say so, in files and in runs, so that no key is read. Of files without them those of row groups do.

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_index::RowSet;

use super::key_range_end::{encoded, pages_of};
use super::newest_runs::NewestRuns;
use super::slice_ends::KeyExtent;
use crate::error::Result;
use crate::snapshot::DataFile;
use crate::updates::lookup::fetch::RowFile;
use crate::updates::runs::resolve_keys::KeyResolver;
use crate::updates::runs::sorted_run::SortedRunRows;
use crate::updates::view::run_stack::RunStack;

/// Footers that are read at a time.
const CONCURRENT_FILES: usize = 16;

/// The files with rows that the runs delete or replace: each with its whole length, and the keys of the pages that have these rows.
pub(super) async fn file_extents(now: &NewestRuns) -> Result<Vec<KeyExtent>> {
    let ground = KeyResolver { base: &now.base, key: &now.key, schema: &now.schema };
    let stack = RunStack::of(&ground, &now.runs).await?;
    let files = now.base.files();
    let hit = stack.deleted.iter();
    let hit = hit.filter_map(|(&number, deleted)| Some(extent_of(now, files.get(number)?, &deleted.rows)));
    // Collected first, so that the futures do not borrow the iterator.
    let hit: Vec<_> = hit.collect();
    stream::iter(hit).buffered(CONCURRENT_FILES).try_collect().await
}

async fn extent_of(now: &NewestRuns, file: &DataFile, rows: &RowSet) -> Result<KeyExtent> {
    let unknown = KeyExtent { low: None, high: None, bytes: file.meta.size };
    let (Some(name), Some(of)) = (now.key.names.first(), now.key.types.first()) else { return Ok(unknown) };
    let row_file = RowFile::of(&now.base, file);
    if let Some(constant) = row_file.constants.iter().find(|constant| constant.field.name() == name) {
        let value = encoded(&now.key, &constant.value)?.into_iter().next().flatten();
        return Ok(KeyExtent { low: value.clone(), high: value, ..unknown });
    }
    let opened = row_file.open().await?;
    let bounds = opened.bounds(name, of).or_else(|| opened.row_group_bounds(name, of));
    let Some(bounds) = bounds else { return Ok(unknown) };
    let (lows, highs) = (encoded(&now.key, &bounds.low)?, encoded(&now.key, &bounds.high)?);
    let mut extent = unknown.clone();
    for ((page, low), high) in bounds.rows.iter().zip(lows).zip(highs) {
        if rows.count_in(page.start, page.end) == 0 {
            continue;
        }
        let (Some(low), Some(high)) = (low, high) else { return Ok(unknown) };
        extent.low = Some(extent.low.map_or_else(|| low.clone(), |least| least.min(low.clone())));
        extent.high = Some(extent.high.map_or_else(|| high.clone(), |most| most.max(high.clone())));
    }
    Ok(extent)
}

/// The pages of runs, each with its share of the run's bytes.
pub(super) fn page_extents(now: &NewestRuns) -> Result<Vec<KeyExtent>> {
    let mut pages = Vec::new();
    for of in &now.runs {
        let SortedRunRows::File(file) = &of.run.rows else { continue };
        let (length, rows) = (file.meta().size, u64::from(of.run.row_count()).max(1));
        for page in pages_of(of, &now.key)? {
            let bytes = (u128::from(length) * u128::from(page.count()) / u128::from(rows)) as u64;
            pages.push(KeyExtent { low: page.low, high: page.high, bytes });
        }
    }
    Ok(pages)
}
