//! What the newest manifest of a store says, read by the format alone: which rows are still buffered, and which files count no more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use lakemark_format::{Manifest, ManifestUpdates};

use super::rows::{Id, rows_of_file};
use crate::told::manifests;

pub fn manifest(root: &Path) -> Option<Manifest> {
    let told = manifests(&root.join("_lakemark")).unwrap();
    told.into_values().next_back()
}

fn updates(root: &Path) -> Option<Arc<ManifestUpdates>> {
    manifest(root)?.updates().cloned()
}

/// The files of the folder that migrations put others in the place of.
pub fn replaced(root: &Path) -> HashSet<String> {
    updates(root).into_iter().flat_map(|updates| updates.replaced.clone()).map(|file| file.path).collect()
}

/// The data files that migrations wrote into the store, below it.
pub fn data(root: &Path) -> Vec<String> {
    updates(root).into_iter().flat_map(|updates| updates.data.clone()).map(|file| file.path).collect()
}

/// Whether a migration began and did not end.
pub fn is_migrating(root: &Path) -> bool {
    updates(root).is_some_and(|updates| updates.migration.is_some())
}

pub fn migrations(root: &Path) -> u64 {
    updates(root).map_or(0, |updates| updates.migrations)
}

/// The keys of rows of runs that no migration has written.
pub fn keys_of_runs(root: &Path, stored: &HashMap<String, Id>) -> BTreeSet<i64> {
    let mut keys = BTreeSet::new();
    for run in updates(root).into_iter().flat_map(|updates| updates.runs.clone()) {
        let rows = rows_of_file(&root.join("_lakemark").join(&run.path), stored);
        let is_left = |row: u32| !run.migrated.iter().any(|migrated| migrated.contains(&row));
        keys.extend(rows.iter().zip(0..).filter(|(_, row)| is_left(*row)).map(|((key, _), _)| *key));
    }
    keys
}
