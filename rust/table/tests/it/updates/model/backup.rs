//! The store as it was a while ago is put back beside a table that went on.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use rand::Rng;

use super::expected::Expected;
use super::upkeep::says_what_to_do;
use super::{Trial, store};

/// A copy of a store.
pub struct Backup {
    folder: tempfile::TempDir,
    /// What was buffered; keys that were migrated since then count as migrated in a Delta table, whose log says so.
    pub expected: Expected,
    sequence: u64,
    /// How many migrations its table has had.
    migrations: u64,
    /// Keys that migrations have written since.
    pub migrated: BTreeSet<i64>,
}

impl Trial {
    pub async fn with_backup(&mut self) -> &'static str {
        if self.is_uncertain {
            return "nothing";
        }
        match self.backup.is_some() && self.random.random_bool(0.7) {
            true => self.put_back().await,
            false => self.back_up(),
        }
    }

    fn back_up(&mut self) -> &'static str {
        let folder = tempfile::tempdir().unwrap();
        copy(&self.root().join("_lakemark"), folder.path());
        self.backup = Some(Backup {
            folder,
            expected: Expected { buffered: self.expected.buffered.clone(), ..Expected::default() },
            sequence: self.sequence,
            migrations: store::migrations(&self.root()),
            migrated: BTreeSet::new(),
        });
        "others: store backed up"
    }

    async fn put_back(&mut self) -> &'static str {
        let backup = self.backup.take().unwrap();
        let (root, aside) = (self.root(), tempfile::tempdir().unwrap());
        let is_behind = store::migrations(&root) > backup.migrations;
        let store = root.join("_lakemark");
        copy(&store, aside.path());
        fs::remove_dir_all(&store).unwrap();
        copy(&backup.folder.path().join("_lakemark"), &root);
        let mut buffered = backup.expected.buffered;
        if self.others.form.is_delta {
            buffered.retain(|key, _| !backup.migrated.contains(key));
        } else {
            let Ok(base) = self.others.base() else {
                // Others have added keys that a migration since had deleted: both counts cannot be.
                fs::remove_dir_all(&store).unwrap();
                copy(&aside.path().join("_lakemark"), &root);
                return "nothing";
            };
            self.expected.base = base;
        }
        self.held.clear();
        self.expected.buffered = buffered;
        self.open_all().await;
        match self.table().snapshot().await {
            Ok(snapshot) => {
                let sequence = snapshot.sequence().unwrap();
                assert!(sequence >= backup.sequence, "{sequence} after {}", backup.sequence);
                self.sequence = sequence;
                self.floor = sequence;
                self.changed.clear();
                "others: backup of the store put back"
            }
            Err(error) => {
                assert!(is_behind && self.others.form.is_delta && says_what_to_do(error.kind()), "{error:?}");
                self.discard_store().await;
                "others: backup of the store refused"
            }
        }
    }

    /// The store goes, with what is buffered; the key is declared again.
    pub async fn discard_store(&mut self) {
        fs::remove_dir_all(self.root().join("_lakemark")).unwrap();
        self.expected.buffered.clear();
        self.backup = None;
        self.held.clear();
        self.is_uncertain = false;
        self.declare().await;
    }
}

/// Copies a folder into another one, with the times of its files.
fn copy(from: &Path, into: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(into).status().unwrap().success());
}
