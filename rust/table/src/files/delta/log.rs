//! Which versions the files of a Delta log lead to.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use object_store::ObjectMeta;

use super::LOG_FOLDER;
use crate::error::Result;
use crate::storage::location::Location;

/// The files of a Delta log, by the versions in their names.
pub(crate) struct DeltaLog {
    pub commits: BTreeMap<u64, ObjectMeta>,
    pub checkpoints: BTreeSet<u64>,
}

impl DeltaLog {
    pub(crate) async fn list(location: &Location) -> Result<Self> {
        let folder = location.prefix.clone().join(LOG_FOLDER);
        let (mut commits, mut checkpoints) = (BTreeMap::new(), BTreeSet::new());
        let mut files = location.object_store.list(Some(&folder));
        while let Some(meta) = files.try_next().await? {
            let name = meta.location.filename().unwrap_or_default();
            let Some((number, rest)) = name.split_once('.') else { continue };
            let Some(number) = number.parse::<u64>().ok().filter(|_| number.len() == 20) else { continue };
            if rest == "json" {
                commits.insert(number, meta);
            } else if rest.starts_with("checkpoint.") {
                checkpoints.insert(number);
            }
        }
        Ok(Self { commits, checkpoints })
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        self.commits.keys().chain(&self.checkpoints).max().copied()
    }

    /// Versions with a checkpoint, and those that commits lead to from one or from the beginning.
    pub(crate) fn readable(&self) -> BTreeSet<u64> {
        let mut readable = self.checkpoints.clone();
        for commit in self.commits.keys() {
            if commit.checked_sub(1).is_none_or(|before| readable.contains(&before)) {
                readable.insert(*commit);
            }
        }
        readable
    }
}
