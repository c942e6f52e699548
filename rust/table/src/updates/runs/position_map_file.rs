//! The position map of a run as a file beside it: written with the run, read when the run is opened.

use std::sync::Arc;

use lakemark_format::{KeyFilter, ManifestPositionMap, ManifestRun, PositionMap, PositionsInFile, PositionsInRun};
use lakemark_index::RowSet;
use object_store::ObjectStoreExt;

use super::known_hits::{FilePositions, HitsOfFile};
use super::sorted_run::{ReplacedInRun, SortedRun};
use crate::error::{Error, Result};
use crate::files::file_version::FileVersion;
use crate::storage::ids::new_id;
use crate::store::Store;

/// Reads the position map of a run.
pub(crate) async fn read_position_map(
    store: &Store,
    of: &ManifestPositionMap,
    run: &ManifestRun,
) -> Result<PositionMap> {
    let bytes = store.object_store().get(&store.object_path(&of.path)).await?.bytes().await?;
    let position_map = PositionMap::decode(&bytes)?;
    if position_map.id != of.id || position_map.run != run.id || position_map.rows != run.rows {
        return Err(Error::corrupt("the file belongs to another run"));
    }
    Ok(position_map)
}

/// Takes a run's position map. Rows that are `changed` since have other columns to be completed.
pub(crate) fn take_position_map(sorted: &SortedRun, position_map: PositionMap, changed: &RowSet) {
    for file in position_map.files {
        let rows = file.row_groups.iter().copied().fold(0, u32::saturating_add);
        let hits = FilePositions {
            row_groups: file.row_groups,
            deleted: Arc::new(RowSet::from_rows(file.deleted, rows)),
            completed: RowSet::from_rows(file.completed, sorted.row_count()).minus(changed),
        };
        let version = FileVersion { path: file.path, size: file.size, modified_ns: file.modified_ns, tag: file.etag };
        sorted.set_hits(version, hits);
    }
    for run in position_map.runs {
        sorted.set_replaced(run.id, RowSet::from_rows(run.replaced, run.rows));
    }
    if let Some(keys) = position_map.keys {
        // The filter is set once, as the run is opened.
        drop(sorted.filter.set(keys));
    }
}

/// Writes the position map of a run. It is an index: without it, the positions are found again.
pub(crate) async fn position_map_of(
    store: &Store,
    sorted: &SortedRun,
    run: &ManifestRun,
    keys: Option<KeyFilter>,
) -> Option<ManifestPositionMap> {
    match write_position_map(store, sorted, run, keys).await {
        Ok(position_map) => Some(position_map),
        Err(error) => {
            tracing::warn!(run = run.path, %error, "the position map of a run could not be written");
            None
        }
    }
}

/// Writes the position map of a run, with a filter of its keys.
async fn write_position_map(
    store: &Store,
    sorted: &SortedRun,
    run: &ManifestRun,
    keys: Option<KeyFilter>,
) -> Result<ManifestPositionMap> {
    let id = new_id().into_bytes();
    let mut files: Vec<PositionsInFile> = sorted
        .all_hits()
        .into_iter()
        .map(|HitsOfFile { file, hits }| PositionsInFile {
            path: file.path,
            size: file.size,
            modified_ns: file.modified_ns,
            etag: file.tag,
            row_groups: hits.row_groups.clone(),
            deleted: hits.deleted.iter().collect(),
            completed: hits.completed.iter().collect(),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let runs = sorted.all_replaced().into_iter().map(|ReplacedInRun { run, rows }| PositionsInRun {
        id: run,
        rows: rows.universe(),
        replaced: rows.iter().collect(),
    });
    let position_map = PositionMap { id, run: run.id, rows: run.rows, files, runs: runs.collect(), keys };
    let bytes = position_map.encode().map_err(|error| {
        Error::unsupported("the table is beyond the limits of a position map's format").with_source(error)
    })?;
    let path = Store::segment_path(id);
    let length = bytes.len() as u64;
    store.write_file(&path, bytes).await?;
    Ok(ManifestPositionMap { id, path, length })
}
