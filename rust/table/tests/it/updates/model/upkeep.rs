//! What we do to a table beside changing rows: none of it changes an answer.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lakemark_table::{ErrorKind, MigrateOptions, Progress, VacuumOptions};
use rand::Rng;

use super::rows::Reader;
use super::{DAY, HANDLES, Held, Trial, assert_same, files_below, one_thread, store};
use crate::fixture::open;

impl Trial {
    pub async fn reopen(&mut self) -> &'static str {
        self.tables[self.at] = open(self.folder.path()).await;
        "reopen"
    }

    pub async fn migrate(&mut self) -> &'static str {
        let is_whole = self.random.random_bool(0.5) || !self.classes.has("slices");
        let fraction = if is_whole { 1.0 } else { self.random.random_range(0.05..0.9) };
        // With the class of slices, half of the whole migrations make several commits.
        let max_bytes = (is_whole && self.classes.has("slices") && self.random.random_bool(0.5))
            .then(|| self.random.random_range(1..20_000));
        self.migrate_with(MigrateOptions { fraction, max_bytes, ..MigrateOptions::default() }).await;
        match (is_whole, max_bytes) {
            (true, None) => "migrate",
            (true, Some(_)) => "migrate slice by slice",
            (false, _) => "migrate a slice",
        }
    }

    /// Migrates; whoever is told of the progress may do something meanwhile.
    pub async fn migrate_part(&mut self, fraction: f64, progress: Option<Arc<dyn Progress>>) {
        self.migrate_with(MigrateOptions { fraction, progress, ..MigrateOptions::default() }).await;
    }

    async fn migrate_with(&mut self, options: MigrateOptions) {
        let fraction = options.fraction;
        match self.table().migrate(options).await {
            Ok(report) => assert!(report.delta_version.is_none() || self.others.form.is_delta),
            Err(error) => panic!("{error:?}"),
        }
        if fraction < 1.0 {
            self.sliced().await;
        } else {
            self.all_migrated().await;
        }
    }

    /// Nothing is buffered any more.
    pub async fn all_migrated(&mut self) {
        self.migrated(&BTreeSet::new());
        self.is_uncertain = false;
        assert!(self.table().snapshot().await.unwrap().buffered_rows().is_none());
        self.check_base();
    }

    /// Some of the keys are not buffered any more: runs say which.
    pub async fn sliced(&mut self) {
        if self.is_uncertain || !self.knows_what_was_migrated().await {
            self.table().migrate(MigrateOptions::default()).await.unwrap();
            return self.all_migrated().await;
        }
        self.migrated(&store::keys_of_runs(&self.root(), &self.others.stored));
        self.check_base();
    }

    /// Whether runs tell which keys a slice has left: a full cache may have kept the buffer where it was, so that a key was migrated as it
    /// is in a run and is buffered as it is in the buffer.
    pub async fn knows_what_was_migrated(&self) -> bool {
        self.table().updates_info().await.unwrap().unwrap().buffer_keys == 0
    }

    fn migrated(&mut self, left: &BTreeSet<i64>) {
        if let Some(backup) = &mut self.backup {
            backup.migrated.extend(self.expected.buffered.keys().filter(|key| !left.contains(key)));
        }
        self.expected.migrated(left);
    }

    /// The data files have what they should have for those who know nothing of what is buffered.
    pub fn check_base(&mut self) {
        if let Some(log) = &mut self.others.log {
            log.sync();
        }
        let base = self.others.base().unwrap_or_else(|key| panic!("the key {key} is there twice in the data files"));
        assert_same(&base, &self.expected.base, "in the data files");
    }

    pub async fn publish(&mut self) -> &'static str {
        if self.others.form.is_delta {
            return "nothing";
        }
        // Whoever has a snapshot of before may miss the files that leave the folder, and a backup of the store.
        self.held.clear();
        self.backup = None;
        self.table().publish().await.unwrap();
        if !self.is_uncertain {
            self.check_base();
        }
        "publish"
    }

    pub async fn build(&mut self) -> &'static str {
        if !self.table().snapshot().await.unwrap().indexes().is_empty() {
            self.table().build(one_thread()).await.unwrap();
        }
        "build"
    }

    pub async fn compact(&mut self) -> &'static str {
        match self.table().compact(one_thread()).await {
            Ok(_) => {}
            // There is no index.
            Err(error) if error.kind() == ErrorKind::NotFound => return "nothing",
            // What is lost cannot be merged.
            Err(error) => assert!(error.kind() == ErrorKind::Corrupt && self.has_lost_indexes, "{error:?}"),
        }
        "compact"
    }

    /// Segments and position maps are index files, which may be lost or damaged at any time.
    pub fn lose_indexes(&mut self) -> &'static str {
        let folder = self.root().join("_lakemark/indexes");
        self.has_lost_indexes = true;
        if self.random.random_bool(0.3) {
            fs::remove_dir_all(folder).ok();
            return "all indexes lost";
        }
        for file in files_below(&folder) {
            match self.random.random_range(0..4) {
                0 => fs::remove_file(file).unwrap(),
                1 => fs::write(file, b"no index at all").unwrap(),
                _ => {}
            }
        }
        "index files lost or damaged"
    }

    /// A vacuum some time later, as if whatever is held now had been taken just before.
    pub async fn vacuum(&mut self) -> &'static str {
        if self.random.random_bool(0.5) {
            self.held.clear();
        }
        let older_than = self.age();
        let oldest = self.held.iter().map(|held| held.since).min().unwrap_or_else(SystemTime::now);
        set_back(&self.root(), oldest, older_than + Duration::from_secs(60));
        let options = VacuumOptions { older_than, originals: self.random.random_bool(0.3), ..VacuumOptions::default() };
        self.table().vacuum(options).await.unwrap();
        self.check_held();
        "vacuum"
    }

    /// An age that somebody gives a vacuum.
    pub fn age(&mut self) -> Duration {
        [Duration::from_secs(60 * 60), DAY, 7 * DAY][self.random.random_range(0..3)]
    }

    pub async fn hold(&mut self) -> &'static str {
        self.check_held();
        if self.held.len() > HANDLES {
            self.held.remove(0);
        }
        // The clock of files is coarser.
        let since = SystemTime::now() - Duration::from_millis(50);
        let snapshot = self.table().snapshot().await.unwrap();
        let columns = self.others.columns.clone();
        self.held.push(Held { since, snapshot, columns, rows: self.expected.rows() });
        "hold"
    }

    pub fn check_held(&mut self) {
        for held in &self.held {
            let rows = Reader::default().rows_of(&held.snapshot, &held.columns, &self.others.stored);
            assert_same(&rows.unwrap(), &held.rows, &format!("held, after {} operations", self.operations));
        }
    }

    /// Rows as others see them who share nothing with us, with indexes and without.
    pub async fn check_apart(&mut self) {
        self.reader = Reader::default();
        let snapshot = open(self.folder.path()).await.snapshot().await.unwrap();
        self.compare(&snapshot);
        let (index_files, aside) = (self.root().join("_lakemark/indexes"), self.root().join("_lakemark/indexes-aside"));
        let are_there = index_files.exists();
        if are_there {
            fs::rename(&index_files, &aside).unwrap();
        }
        let snapshot = open(self.folder.path()).await.snapshot().await.unwrap();
        self.compare(&snapshot);
        self.check_in_process();
        if are_there {
            fs::remove_dir_all(&index_files).ok();
            fs::rename(&aside, &index_files).unwrap();
        }
    }
}

/// Files of the store are so much older than they were, but for data files and what is younger than `oldest`.
fn set_back(root: &Path, oldest: SystemTime, by: Duration) {
    let folders = ["manifest", "checkpoint", "indexes", "updates"];
    let files = folders.map(|folder| files_below(&root.join("_lakemark").join(folder)));
    for path in files.into_iter().flatten() {
        let file = File::options().write(true).open(path).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        if modified < oldest {
            file.set_modified(modified - by).unwrap();
        }
    }
}

/// The kinds of errors that say what to do, in a state that somebody else has brought about.
pub fn says_what_to_do(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Internal | ErrorKind::Io | ErrorKind::Cancelled | ErrorKind::AlreadyExists)
}
