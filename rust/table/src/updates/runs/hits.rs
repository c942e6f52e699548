//! What the rows of a run that count hit in data files.
//!
//! ```text
//! hits of all keys of the run        a fact of run and file: remembered beside the run, true for every version
//! − hits of the migrated rows' keys  what is in the data files by now deletes or replaces nothing any more
//! = hits of the rows that count      what a snapshot takes as deleted
//! ```
//!
//! A table that is restored shows files again that the migrated rows had hit: their keys are the file's then.

use std::collections::HashMap;
use std::sync::Arc;

use lakemark_index::RowSet;

use super::active_run::ActiveRun;
use super::resolve_keys::KeyResolver;
use super::sorted_run::FilePositions;
use crate::error::Result;
use crate::files::file_version::FileVersion;
use crate::snapshot::DataFile;
use crate::updates::lookup::key_positions::{KeyPositions, positions_of_keys};

/// What a run hits, as far as that is remembered, by the places of the files.
struct KnownPositions<'a> {
    files: &'a [FileVersion],
    /// One for each file; none of a file that was not searched.
    hits: &'a [Option<Arc<FilePositions>>],
}

/// What migrated rows hit, by the place of the file.
type MigratedByFile = HashMap<usize, Arc<RowSet>>;

/// What the rows of a run that count hit in each data file; none of a run of which no row counts.
pub(crate) async fn hits_of(ground: &KeyResolver<'_>, stacked: &ActiveRun) -> Result<Vec<Option<Arc<FilePositions>>>> {
    let ActiveRun { run, migrated } = stacked;
    let files: Vec<FileVersion> = ground.base.files().iter().map(DataFile::version).collect();
    let active = stacked.active();
    if active.is_empty() {
        return Ok(vec![None; files.len()]);
    }
    let is_unknown = |file: &usize| files.get(*file).is_some_and(|file| run.hits(file).is_none());
    let unknown: Vec<usize> = (0..files.len()).filter(is_unknown).collect();
    let mut found = positions_of_rows(ground, stacked, &active, &unknown).await?;
    let mut of_migrated = MigratedByFile::new();
    for (hidden, hits) in positions_of_rows(ground, stacked, migrated, &unknown).await?.into_iter().zip(&mut found) {
        if let Some(file) = files.get(hidden.file) {
            hits.rows = hits.rows.or(&hidden.rows);
            of_migrated.insert(hidden.file, run.set_hits_of_migrated(file.clone(), migrated, hidden.rows));
        }
    }
    for hits in found {
        ground.record(run, hits, RowSet::empty(run.row_count()));
    }
    let hits: Vec<Option<Arc<FilePositions>>> = files.iter().map(|file| run.hits(file)).collect();
    let known = KnownPositions { files: &files, hits: &hits };
    find_migrated(ground, stacked, &known, &mut of_migrated).await?;
    let counting = |(place, hits): (usize, Option<Arc<FilePositions>>)| Some(counting(hits?, of_migrated.get(&place)));
    Ok(hits.into_iter().enumerate().map(counting).collect())
}

/// Sees to it that the hits of migrated rows are known wherever the run hits something. A run remembers the hits of one set of migrated
/// rows, those of the last request, which may come from another snapshot by now. So the hits of this snapshot are handed on.
async fn find_migrated(
    ground: &KeyResolver<'_>,
    stacked: &ActiveRun,
    known: &KnownPositions<'_>,
    of_migrated: &mut MigratedByFile,
) -> Result<()> {
    let ActiveRun { run, migrated } = stacked;
    if migrated.is_empty() {
        return Ok(());
    }
    let mut open = Vec::new();
    for (place, (file, hits)) in known.files.iter().zip(known.hits).enumerate() {
        if of_migrated.contains_key(&place) || hits.as_ref().is_none_or(|hits| hits.deleted.is_empty()) {
            continue;
        }
        match run.hits_of_migrated(file, migrated) {
            Some(hit) => drop(of_migrated.insert(place, hit)),
            None => open.push(place),
        }
    }
    for hits in positions_of_rows(ground, stacked, migrated, &open).await? {
        if let Some(file) = known.files.get(hits.file) {
            of_migrated.insert(hits.file, run.set_hits_of_migrated(file.clone(), migrated, hits.rows));
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
    positions_of_keys(ground.base, ground.key, &keys, files).await
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
