//! What differs between the files of two states of a store.

use std::sync::Arc;

use super::{FileNumbers, FilePart, Manifest, ManifestFile, PART_FILES, first_of};
use crate::error::Result;

impl Manifest {
    /// The numbers whose files are not the same in another state of this store: those of files that came, left or changed in between.
    /// Stretches of numbers that both states share are not looked at, so that it takes as long as there are changes.
    ///
    /// # Errors
    /// A piece that has one of these files was not read.
    pub fn changed_files(&self, other: &Self) -> Result<FileNumbers> {
        let mut changed = Vec::new();
        for place in 0..self.parts.len().max(other.parts.len()) {
            let (own, others) = (self.parts.get(place), other.parts.get(place));
            let slots = match (own, others) {
                (Some(own), Some(others)) if Arc::ptr_eq(own, others) => continue,
                (Some(own), Some(others)) => changed_slots(own, others)?,
                (Some(part), None) | (None, Some(part)) => part.live.iter().collect(),
                (None, None) => continue,
            };
            let first = first_of(u32::try_from(place).unwrap_or(u32::MAX));
            changed.extend(slots.into_iter().map(|slot| first.saturating_add(slot)));
        }
        Ok(FileNumbers::from_sorted(changed))
    }
}

fn changed_slots(own: &FilePart, others: &FilePart) -> Result<Vec<u32>> {
    let mut changed = Vec::new();
    for slot in 0..PART_FILES {
        if !is_same(own.file(slot)?, others.file(slot)?) {
            changed.push(slot);
        }
    }
    Ok(changed)
}

fn is_same(one: Option<&Arc<ManifestFile>>, other: Option<&Arc<ManifestFile>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AddedFiles, AddedSchemas, ManifestChanges, ManifestEdit};
    use super::*;

    fn file(path: &str) -> ManifestFile {
        ManifestFile {
            path: path.to_owned(),
            size: 7,
            modified_ns: 1,
            etag: None,
            footer_hash: 3,
            schema: 0,
            row_groups: vec![5],
            false_statistics: Vec::new(),
        }
    }

    fn after(state: &Manifest, changes: ManifestChanges) -> Manifest {
        let (store_id, number) = (state.store_id(), state.number() + 1);
        state.apply(&ManifestEdit { store_id, number, created_ms: 0, checkpoint: 0, changes }).unwrap()
    }

    /// A state with so many files.
    fn state(files: u32) -> Manifest {
        let files = (0..files).map(|number| file(&format!("{number}.parquet"))).collect();
        let schemas_added = AddedSchemas { first: 0, schemas: vec![vec![1]] };
        let files_added = AddedFiles { first: 0, files };
        after(&Manifest::new([1; 16]), ManifestChanges { schemas_added, files_added, ..ManifestChanges::default() })
    }

    #[test]
    fn files_that_came_left_or_changed_differ() {
        let before = state(3000);
        let touched = ManifestFile { modified_ns: 2, ..file("1500.parquet") };
        let changes = ManifestChanges {
            files_removed: FileNumbers::from_sorted([7, 8]),
            files_changed: vec![(1500, touched)],
            files_added: AddedFiles { first: 3000, files: vec![file("new.parquet")] },
            ..ManifestChanges::default()
        };
        let now = after(&before, changes);
        let changed = FileNumbers::from_sorted([7, 8, 1500, 3000]);
        assert_eq!(now.changed_files(&before), Ok(changed.clone()));
        assert_eq!(before.changed_files(&now), Ok(changed));
    }

    #[test]
    fn a_checkpoint_and_the_state_that_it_stores_have_the_same_files() {
        let state = state(1500);
        let stored = state.to_checkpoint().unwrap().manifest;
        assert_eq!(stored.changed_files(&state), Ok(FileNumbers::default()));
        let touched = ManifestFile { modified_ns: 2, ..file("3.parquet") };
        let changes = ManifestChanges { files_changed: vec![(3, touched)], ..ManifestChanges::default() };
        assert_eq!(after(&stored, changes).changed_files(&state), Ok(FileNumbers::of_range(3..4)));
    }
}
