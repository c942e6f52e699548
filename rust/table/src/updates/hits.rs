//! What the rows of a level that count hit in data files.
//!
//! ```text
//! hits of all keys of the run        a fact of run and file: remembered beside the run, true for every version
//! − hits of the migrated rows' keys  what is in the data files by now hides nothing any more
//! = hits of the rows that count      what a snapshot hides
//! ```
//!
//! A table that is restored shows files again that the migrated rows had hit: their keys are the file's then.

use std::collections::HashMap;
use std::sync::Arc;

use lakemark_index::RowSet;

use super::level::{FileIdentity, Hits, identity};
use super::overlay::Updated;
use super::resolve::positions;
use super::settle::{Ground, Stacked};
use crate::error::Result;

/// What migrated rows hit, by the place of the file.
type OfMigrated = HashMap<usize, Arc<RowSet>>;

impl Updated<'_> {
    /// What the rows of a level that count are in each data file; none of a level of which no row counts.
    pub(crate) async fn hits(&self, ground: &Ground<'_>, stacked: &Stacked) -> Result<Vec<Option<Arc<Hits>>>> {
        let Stacked { level, migrated } = stacked;
        let files: Vec<FileIdentity> = ground.base.files().iter().map(identity).collect();
        let active = stacked.active();
        if active.is_empty() {
            return Ok(vec![None; files.len()]);
        }
        let is_unknown = |file: &usize| files.get(*file).is_some_and(|file| level.hits(file).is_none());
        let unknown: Vec<usize> = (0..files.len()).filter(is_unknown).collect();
        let mut found = self.found(ground, stacked, &active, &unknown).await?;
        let mut of_migrated = OfMigrated::new();
        for (hidden, hits) in self.found(ground, stacked, migrated, &unknown).await?.into_iter().zip(&mut found) {
            if let Some(file) = files.get(hidden.file) {
                hits.rows = hits.rows.or(&hidden.rows);
                of_migrated.insert(hidden.file, level.set_hits_of_migrated(file.clone(), migrated, hidden.rows));
            }
        }
        for hits in found {
            ground.note(level, hits, RowSet::empty(level.row_count()));
        }
        let hits: Vec<Option<Arc<Hits>>> = files.iter().map(|file| level.hits(file)).collect();
        self.find_migrated(ground, stacked, (&files, &hits), &mut of_migrated).await?;
        let counting = |(place, hits): (usize, Option<Arc<Hits>>)| Some(counting(hits?, of_migrated.get(&place)));
        Ok(hits.into_iter().enumerate().map(counting).collect())
    }

    /// Sees to it that what migrated rows hit is known wherever the level hits something. A level remembers the answer for the migrated rows that
    /// were asked for last, which may be those of another snapshot by now: what this one goes by is handed on.
    async fn find_migrated(
        &self,
        ground: &Ground<'_>,
        stacked: &Stacked,
        (files, hits): (&[FileIdentity], &[Option<Arc<Hits>>]),
        of_migrated: &mut OfMigrated,
    ) -> Result<()> {
        let Stacked { level, migrated } = stacked;
        if migrated.is_empty() {
            return Ok(());
        }
        let mut open = Vec::new();
        for (place, (file, hits)) in files.iter().zip(hits).enumerate() {
            if of_migrated.contains_key(&place) || hits.as_ref().is_none_or(|hits| hits.shadowed.is_empty()) {
                continue;
            }
            match level.hits_of_migrated(file, migrated) {
                Some(known) => drop(of_migrated.insert(place, known)),
                None => open.push(place),
            }
        }
        for hits in self.found(ground, stacked, migrated, &open).await? {
            if let Some(file) = files.get(hits.file) {
                of_migrated.insert(hits.file, level.set_hits_of_migrated(file.clone(), migrated, hits.rows));
            }
        }
        Ok(())
    }

    /// Where the keys of some rows of a level are in some files.
    async fn found(
        &self,
        ground: &Ground<'_>,
        stacked: &Stacked,
        rows: &RowSet,
        files: &[usize],
    ) -> Result<Vec<super::resolve::Positions>> {
        if rows.is_empty() || files.is_empty() {
            return Ok(Vec::new());
        }
        let keys = stacked.level.keys(&self.key, rows).await?;
        positions(ground.base, &self.key, &keys, files).await
    }
}

/// What is remembered of a file, without what migrated rows hit.
fn counting(hits: Arc<Hits>, of_migrated: Option<&Arc<RowSet>>) -> Arc<Hits> {
    match of_migrated.filter(|rows| !rows.is_empty()) {
        Some(migrated) if migrated.universe() == hits.shadowed.universe() => {
            Arc::new(Hits { shadowed: Arc::new(hits.shadowed.minus(migrated)), ..hits.as_ref().clone() })
        }
        _ => hits,
    }
}
