//! The state of a Delta table after commits that add and remove files, made from the state before.
//!
//! ```text
//! files before   [ a b c d ] [ e f g h ]        commits: − b, + bb, f with another vector
//! files now      [ a bb c d ] [ e f' g h ]      a part is copied where something in it changed
//! ```
//!
//! The result is what reading the whole log gives. A log knows a file by the text of its path and by its vector. So a removal means nothing
//! to a file with another vector, and one path could have two files. That no writer of Delta does, and such a log is read as a whole.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use super::commits::LogChanges;
use super::logged_path::snapshot_path;
use super::{DeltaFile, DeltaState, data_file};
use crate::files::parted_list::ListEdit;

/// The property of tables that forget old transactions.
const FORGETS_TRANSACTIONS: &str = "delta.setTransactionRetentionDuration";

/// What becomes of a path.
#[derive(Default)]
struct ChangedPath {
    /// Whether the file that the path has is removed, or added once more.
    replaces: bool,
    now: Option<Arc<DeltaFile>>,
}

impl DeltaState {
    /// The state of a later version, which these changes lead to. None if they do not tell it.
    pub(super) fn after(&self, version: u64, changes: LogChanges) -> Option<Self> {
        let known = self.known_transactions().clone();
        let transactions = Mutex::new(self.transactions_after(known, &changes.transactions));
        let files = self.files.edited(self.edits(changes)?);
        Some(Self { version, files, transactions, ..self.copied() })
    }

    /// Whether this state and another one have all but files and transactions in common: one was made from the other.
    pub(crate) fn continues(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.schema, &other.schema) && Arc::ptr_eq(&self.logged, &other.logged)
    }

    /// What differs from the files of another state, by their places there.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<ListEdit<Arc<DeltaFile>>> {
        let order = |one: &Arc<DeltaFile>, other: &Arc<DeltaFile>| one.path.cmp(&other.path);
        self.files.edits_since(&before.files, order, Arc::ptr_eq)
    }

    /// The file of a path.
    pub(crate) fn file(&self, path: &str) -> Option<&Arc<DeltaFile>> {
        let place = self.files.partition_point(|file| file.path.as_str() < path);
        self.files.get(place).filter(|file| file.path == path)
    }

    /// Transactions that are known after a commit, of those that were known before and those that came.
    fn transactions_after(
        &self,
        mut known: HashMap<String, Option<i64>>,
        came: &HashMap<String, i64>,
    ) -> HashMap<String, Option<i64>> {
        if self.properties().contains_key(FORGETS_TRANSACTIONS) {
            return HashMap::new();
        }
        known.extend(came.iter().map(|(application, version)| (application.clone(), Some(*version))));
        known
    }

    /// The changes of the list of files. None if a path has two files, before or then, or a file is not described as it should be.
    fn edits(&self, changes: LogChanges) -> Option<Vec<ListEdit<Arc<DeltaFile>>>> {
        let mut paths: BTreeMap<String, ChangedPath> = BTreeMap::new();
        for (key, file) in changes.files {
            let path = snapshot_path(&self.location, &key.path).ok()?;
            let is_listed = self.file(&path).is_some_and(|listed| listed.key() == key);
            let changed = paths.entry(path).or_default();
            changed.replaces |= is_listed;
            if let Some(file) = file {
                let file = data_file(&self.location, file, &self.partition_columns, self.names.as_deref()).ok()?;
                if changed.now.replace(Arc::new(file)).is_some() {
                    return None;
                }
            }
        }
        let mut edits = Vec::with_capacity(paths.len());
        for (path, ChangedPath { replaces, now }) in paths {
            let place = self.files.partition_point(|file| file.path < path);
            let own = |place: usize| self.files.get(place).is_some_and(|file| file.path == path);
            let stays = own(place) && !replaces;
            if own(place + 1) || (stays && now.is_some()) {
                return None;
            }
            if replaces || now.is_some() {
                edits.push(ListEdit { place, removes: replaces, item: now });
            }
        }
        Some(edits)
    }
}
