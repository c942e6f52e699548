//! Which edits and checkpoints are there, and from which of them a manifest can be told.
//!
//! ```text
//! edits           …  62 63 64 65 66  …  127 128 129 130
//! checkpoints              ▲                 ▲
//! manifest 130:  the checkpoint 128 and two edits; else the checkpoint 64 and 66 edits; else all edits from 1 on
//! ```
//!
//! Invariant: no start is given from which an edit is missing.

use std::collections::BTreeMap;

use object_store::ObjectMeta;

use super::layout::{MANIFESTS, StoreFileKind, kind_of};

/// Edits and checkpoints of a listing, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub edits: BTreeMap<u64, ObjectMeta>,
    /// Roots of checkpoints.
    pub checkpoints: BTreeMap<u64, ObjectMeta>,
}

impl Chain {
    /// What is listed of the folder of edits; other files are left out.
    pub(crate) fn of(listed: impl IntoIterator<Item = ObjectMeta>) -> Self {
        let mut chain = Self::default();
        for meta in listed {
            match meta.location.filename().and_then(|name| kind_of(MANIFESTS, name)) {
                Some(StoreFileKind::Edit(number)) => chain.edits.insert(number, meta),
                Some(StoreFileKind::Checkpoint(number)) => chain.checkpoints.insert(number, meta),
                _ => None,
            };
        }
        chain
    }

    /// The number of the newest manifest; none of an empty store.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.edits.keys().next_back().max(self.checkpoints.keys().next_back()).copied()
    }

    /// The number of the newest checkpoint; 0 if there is none.
    pub(crate) fn newest_checkpoint(&self) -> u64 {
        self.checkpoints.keys().next_back().copied().unwrap_or(0)
    }

    /// The numbers of manifests that can be told, ascending.
    pub(crate) fn versions(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.edits.keys().chain(self.checkpoints.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        // Before the first edit there is nothing, which needs no telling.
        let mut told = 0;
        numbers.retain(|number| {
            let is_told = self.checkpoints.contains_key(number) || *number == told + 1;
            if is_told {
                told = *number;
            }
            is_told
        });
        numbers
    }

    /// The file that the manifest of a number ends with: its edit, or its checkpoint where a vacuum took the edit.
    pub(crate) fn end(&self, number: u64) -> Option<&ObjectMeta> {
        self.edits.get(&number).or_else(|| self.checkpoints.get(&number))
    }

    /// The checkpoints from which all edits up to a number are there, newest first; 0 is the beginning, before the first edit.
    pub(crate) fn starts(&self, number: u64) -> Vec<u64> {
        let gap = self.gap(number);
        let first = gap.unwrap_or(0);
        let mut starts: Vec<u64> = self.checkpoints.range(first..=number).map(|(start, _)| *start).rev().collect();
        if gap.is_none() && number > 0 {
            starts.push(0);
        }
        starts
    }

    /// The newest edit at or before a number that is not there.
    pub(crate) fn gap(&self, number: u64) -> Option<u64> {
        let mut wanted = number;
        for there in self.edits.range(..=number).rev().map(|(there, _)| *there) {
            if there != wanted {
                break;
            }
            wanted = there.saturating_sub(1);
        }
        Some(wanted).filter(|wanted| *wanted > 0)
    }

    /// Whether every edit after a manifest is there, up to the newest.
    pub(crate) fn is_whole_after(&self, number: u64) -> bool {
        let newest = self.newest().unwrap_or(number);
        let there = self.edits.range(number.saturating_add(1)..).count() as u64;
        there == newest.saturating_sub(number)
    }

    /// Whether both have the same files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.edits.keys().eq(other.edits.keys()) && self.checkpoints.keys().eq(other.checkpoints.keys())
    }
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::*;

    fn chain(names: &[&str]) -> Chain {
        Chain::of(names.iter().map(|name| {
            let (number, suffix) = name.split_once('.').unwrap();
            ObjectMeta {
                location: Path::from(format!("manifest/{number:0>20}.{suffix}")),
                last_modified: chrono::DateTime::UNIX_EPOCH,
                size: 0,
                e_tag: None,
                version: None,
            }
        }))
    }

    #[test]
    fn a_manifest_starts_from_the_newest_checkpoint_that_all_edits_follow() {
        let whole = chain(&["1.lmm", "2.lmm", "2.lmk", "3.lmm", "4.lmm", "4.lmk", "5.lmm"]);
        assert_eq!(whole.starts(5), [4, 2, 0]);
        assert_eq!(whole.starts(3), [2, 0]);
        assert_eq!(whole.starts(1), [0]);
        assert_eq!((whole.newest(), whole.newest_checkpoint()), (Some(5), 4));
        assert_eq!((whole.gap(5), whole.is_whole_after(3)), (None, true));
    }

    #[test]
    fn an_edit_that_is_missing_leaves_the_starts_behind_it() {
        let vacuumed = chain(&["4.lmm", "4.lmk", "5.lmm", "7.lmm", "7.lmk", "8.lmm", "notes.txt"]);
        assert_eq!(vacuumed.starts(8), [7]);
        assert_eq!(vacuumed.starts(6), Vec::<u64>::new());
        assert_eq!(vacuumed.starts(5), [4]);
        assert_eq!((vacuumed.gap(8), vacuumed.gap(6), vacuumed.gap(5)), (Some(6), Some(6), Some(3)));
        assert_eq!(vacuumed.versions(), [4, 5, 7, 8]);
        assert!(!vacuumed.is_whole_after(5));
        assert!(vacuumed.is_whole_after(7));
    }

    #[test]
    fn a_checkpoint_needs_none_of_the_edits_up_to_it() {
        let alone = chain(&["9.lmk"]);
        assert_eq!((alone.newest(), alone.starts(9), alone.gap(9)), (Some(9), vec![9], Some(9)));
        assert_eq!(alone.versions(), [9]);
        assert!(alone.end(9).is_some());
        assert_eq!((Chain::default().newest(), Chain::default().starts(0)), (None, Vec::new()));
    }

    #[test]
    fn a_stray_edit_below_a_checkpoint_starts_nothing() {
        // Somebody who was stopped for hours put it after a vacuum.
        let stray = chain(&["3.lmm", "8.lmm", "8.lmk", "9.lmm"]);
        assert_eq!(stray.starts(9), [8]);
        assert_eq!(stray.starts(3), Vec::<u64>::new());
        assert_eq!(stray.versions(), [8, 9]);
    }
}
