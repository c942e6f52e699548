//! What the rows of a run that count hit in data files.
//!
//! ```text
//! hits of all keys of the run        a fact of run and file: remembered beside the run, true for every version
//! − hits of the migrated rows' keys  what is in the data files by now deletes or replaces nothing any more
//! = hits of the rows that count      what a snapshot takes as deleted
//! ```
//!
//! A table that is restored shows files again that the migrated rows had hit: their keys are the file's then.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lakemark_index::RowSet;

use super::active_run::ActiveRun;
use super::known_hits::FilePositions;
use super::resolve_keys::KeyResolver;
use crate::error::Result;
use crate::updates::lookup::key_positions::{FilesToSearch, KeyPositions, by_file, positions_of_keys};

/// What a run hits in data files, by the places of the files. Files without a hit are left out.
pub(crate) type RunHits = BTreeMap<usize, Arc<FilePositions>>;

/// What migrated rows hit, by the place of the file.
type MigratedByFile = HashMap<usize, Arc<RowSet>>;

/// What the rows of a run that count hit in the data files; nothing for a run of which no row counts.
pub(crate) async fn hits_of(ground: &KeyResolver<'_>, stacked: &ActiveRun) -> Result<RunHits> {
    let ActiveRun { run, .. } = stacked;
    let files = ground.base.files();
    let active = stacked.active();
    if active.is_empty() {
        return Ok(RunHits::new());
    }
    let mut of_migrated = MigratedByFile::new();
    let unresolved = run.unresolved_among(files);
    if !unresolved.is_empty() {
        search(ground, stacked, &active, &unresolved, &mut of_migrated).await?;
    }
    run.set_resolved(files);
    let hits = run.hits_among(files);
    find_migrated(ground, stacked, &hits, &mut of_migrated).await?;
    Ok(hits.into_iter().map(|(place, hits)| (place, counting(hits, of_migrated.get(&place)))).collect())
}

/// Searches files for the keys of a run: those of rows that count, and those of migrated rows.
async fn search(
    ground: &KeyResolver<'_>,
    stacked: &ActiveRun,
    active: &RowSet,
    files: &[usize],
    of_migrated: &mut MigratedByFile,
) -> Result<()> {
    let ActiveRun { run, migrated } = stacked;
    let found = positions_of_rows(ground, stacked, active, files).await?;
    let of_hidden = positions_of_rows(ground, stacked, migrated, files).await?;
    let mut hidden: HashMap<usize, RowSet> = of_hidden.iter().map(|hits| (hits.file, hits.rows.clone())).collect();
    for (place, hits) in by_file(found.into_iter().chain(of_hidden)) {
        if let Some(file) = ground.base.files().get(place).filter(|_| !migrated.is_empty()) {
            let rows = hidden.remove(&place).unwrap_or_else(|| RowSet::empty(hits.rows.universe()));
            of_migrated.insert(place, run.set_hits_of_migrated(file.version(), migrated, rows));
        }
        ground.record(run, hits, RowSet::empty(run.row_count()));
    }
    Ok(())
}

/// Sees to it that the hits of migrated rows are known wherever the run hits something. A run remembers the hits of one set of migrated
/// rows, those of the last request, which may come from another snapshot by now. So the hits of this snapshot are handed on.
async fn find_migrated(
    ground: &KeyResolver<'_>,
    stacked: &ActiveRun,
    known: &RunHits,
    of_migrated: &mut MigratedByFile,
) -> Result<()> {
    let ActiveRun { run, migrated } = stacked;
    if migrated.is_empty() {
        return Ok(());
    }
    let file_at = |place: usize| ground.base.files().get(place);
    let mut open = Vec::new();
    for (place, hits) in known {
        let Some(file) = file_at(*place).filter(|_| !of_migrated.contains_key(place) && !hits.deleted.is_empty())
        else {
            continue;
        };
        match run.hits_of_migrated(&file.version(), migrated) {
            Some(hit) => drop(of_migrated.insert(*place, hit)),
            None => open.push(*place),
        }
    }
    let found = positions_of_rows(ground, stacked, migrated, &open).await?;
    let mut found: HashMap<usize, RowSet> = found.into_iter().map(|found| (found.file, found.rows)).collect();
    for place in open {
        if let (Some(file), Some(hits)) = (file_at(place), known.get(&place)) {
            let rows = found.remove(&place).unwrap_or_else(|| RowSet::empty(hits.deleted.universe()));
            of_migrated.insert(place, run.set_hits_of_migrated(file.version(), migrated, rows));
        }
    }
    Ok(())
}

/// Where the keys of some rows of a run are in some files.
async fn positions_of_rows(
    ground: &KeyResolver<'_>,
    stacked: &ActiveRun,
    rows: &RowSet,
    files: &[usize],
) -> Result<Vec<KeyPositions>> {
    if rows.is_empty() || files.is_empty() {
        return Ok(Vec::new());
    }
    let keys = stacked.run.keys(ground.key, rows).await?;
    positions_of_keys(ground.base, ground.key, &keys, FilesToSearch::These(files)).await
}

/// What is remembered of a file, without what migrated rows hit.
fn counting(hits: Arc<FilePositions>, of_migrated: Option<&Arc<RowSet>>) -> Arc<FilePositions> {
    match of_migrated.filter(|rows| !rows.is_empty()) {
        Some(migrated) if migrated.universe() == hits.deleted.universe() => {
            Arc::new(FilePositions { deleted: Arc::new(hits.deleted.minus(migrated)), ..hits.as_ref().clone() })
        }
        _ => hits,
    }
}
