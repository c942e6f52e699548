//! Those who change the table too, and which of them a run has; what they do to rows and to the log.

use std::collections::BTreeSet;
use std::fs;

use deltalake_core::protocol::checkpoints::create_checkpoint;
use rand::Rng;
use rand::seq::IndexedRandom;

use super::log::State;
use super::rows::{Column, Rows, draw_row};
use super::{Trial, files_below};

/// All classes of neighbours, and how often there is one of a class.
const WEIGHTS: [(&str, u32); 10] = [
    ("rows", 28),
    ("schema", 14),
    ("restore", 8),
    ("log", 6),
    ("touch", 8),
    ("backup", 5),
    ("remake", 2),
    ("meanwhile", 14),
    ("between", 10),
    ("processes", 5),
];
/// What we do and look at only for the sake of neighbours: migrate slices, see that a refused call leaves no run.
const OURS: [&str; 2] = ["slices", "leaks"];

/// Which neighbours there are.
#[derive(Clone, Debug)]
pub struct Classes(BTreeSet<&'static str>);

impl Classes {
    /// `all`, `none`, names, or `-name` for all but that, with commas between.
    pub fn of(text: &str) -> Self {
        let mut classes = BTreeSet::new();
        let all = || WEIGHTS.map(|(name, _)| name).into_iter().chain(OURS);
        if text.split(',').all(|name| name.starts_with('-')) {
            classes.extend(all());
        }
        for name in text.split(',') {
            let known = |name: &str| all().find(|known| *known == name).unwrap_or_else(|| panic!("no class {name}"));
            match name.strip_prefix('-') {
                Some(without) => drop(classes.remove(known(without))),
                None if name == "all" => classes.extend(all()),
                None if name == "none" => classes.clear(),
                None => drop(classes.insert(known(name))),
            }
        }
        Self(classes)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl Trial {
    /// Somebody else does something.
    pub async fn neighbour(&mut self) -> &'static str {
        let is_possible = |name: &str| match name {
            "restore" | "log" | "remake" => self.others.form.is_delta,
            "touch" => !self.others.form.is_delta,
            _ => true,
        };
        let there: Vec<_> = WEIGHTS.iter().filter(|(name, _)| self.classes.has(name) && is_possible(name)).collect();
        let Ok((class, _)) = there.choose_weighted(&mut self.random, |(_, weight)| *weight) else { return "nothing" };
        match *class {
            "backup" => self.with_backup().await,
            "remake" => self.remake().await,
            "meanwhile" => self.meanwhile().await,
            "between" => self.between().await,
            "processes" => self.process().await,
            plain => self.plain(plain).await,
        }
    }

    /// Somebody else changes the table without Lakemark.
    pub async fn plain(&mut self, class: &str) -> &'static str {
        let what = match class {
            "rows" => self.change_rows(),
            "schema" => self.evolve(),
            "restore" => self.restore(),
            "log" => self.keep_log().await,
            _ => self.touch().await,
        };
        if !self.is_uncertain && what != "nothing" {
            self.check_base();
        }
        what
    }

    /// Whether others may change what the table has for a key.
    fn may(&self, key: i64) -> bool {
        !(self.is_uncertain && self.expected.is_buffered(key))
    }

    /// Rows whose keys no data file has; they may be buffered.
    pub fn free_rows(&mut self) -> Rows {
        let keys = self.some_keys();
        let free = keys.into_iter().filter(|key| !self.expected.base.contains_key(key) && self.may(*key));
        let free: Vec<i64> = free.collect();
        free.into_iter().map(|key| (key, draw_row(&mut self.random, &self.others.columns))).collect()
    }

    fn change_rows(&mut self) -> &'static str {
        match self.random.random_range(0..20) {
            0..6 => self.append(),
            6 => self.overwrite(),
            7..9 => self.delete_file(),
            9..13 if self.others.form.with_vectors => self.delete_rows(),
            9..17 => self.merge(),
            _ => self.optimize(),
        }
    }

    fn append(&mut self) -> &'static str {
        let rows = self.free_rows();
        if rows.is_empty() {
            return "nothing";
        }
        self.others.append(&mut self.random, &rows);
        self.expected.base.extend(rows);
        "others: append"
    }

    /// Files with the rows of these files in them, unless one of their keys is to be left alone.
    fn rows_in(&self, files: &[String]) -> Option<Rows> {
        let rows: Rows = files.iter().flat_map(|path| self.others.live(path)).map(|(_, key, row)| (key, row)).collect();
        rows.keys().all(|key| self.may(*key)).then_some(rows)
    }

    /// Files with other rows in the place of these; `false` if that cannot be.
    fn replace(&mut self, files: &[String], before: &Rows, after: Rows, data_change: bool) -> bool {
        // Readers of a folder that have it open may miss a file.
        if !self.others.form.is_delta {
            self.held.clear();
        }
        if files.is_empty() || !self.others.replace(&mut self.random, files, &after, data_change) {
            return false;
        }
        before.keys().for_each(|key| drop(self.expected.base.remove(key)));
        self.expected.base.extend(after);
        true
    }

    fn overwrite(&mut self) -> &'static str {
        let files = self.others.files();
        let Some(before) = self.rows_in(&files) else { return "nothing" };
        let mut after = Rows::new();
        for key in 0..self.keys {
            let is_taken = self.expected.base.contains_key(&key) && !before.contains_key(&key);
            if !is_taken && self.may(key) && self.random.random_bool(0.6) {
                after.insert(key, draw_row(&mut self.random, &self.others.columns));
            }
        }
        let is_done = self.replace(&files, &before, after, true);
        if is_done { "others: overwrite" } else { "nothing" }
    }

    fn one_file(&mut self) -> Vec<String> {
        self.others.files().choose(&mut self.random).cloned().into_iter().collect()
    }

    fn delete_file(&mut self) -> &'static str {
        let files = self.one_file();
        let is_enough = self.expected.base.len() as i64 > self.keys / 3;
        match self.rows_in(&files).filter(|_| is_enough) {
            Some(before) if self.replace(&files, &before, Rows::new(), true) => "others: delete a file",
            _ => "nothing",
        }
    }

    /// One file anew: rows changed, deleted and inserted.
    fn merge(&mut self) -> &'static str {
        let files = self.one_file();
        let Some(before) = self.rows_in(&files) else { return "nothing" };
        let mut after = before.clone();
        after.retain(|_, _| self.random.random_bool(0.9));
        for row in after.values_mut() {
            if self.random.random_bool(0.3) {
                *row = draw_row(&mut self.random, &self.others.columns);
            }
        }
        after.extend(self.free_rows());
        let is_done = self.replace(&files, &before, after, true);
        if is_done { "others: merge" } else { "nothing" }
    }

    /// One file in the place of two, without the rows that vectors hid.
    fn optimize(&mut self) -> &'static str {
        let files: Vec<String> = self.others.files().choose_multiple(&mut self.random, 2).cloned().collect();
        let rows = files.iter().flat_map(|path| self.others.live(path)).map(|(_, key, row)| (key, row));
        let rows: Rows = rows.collect();
        let is_done = !rows.is_empty() && self.replace(&files, &rows, rows.clone(), false);
        if is_done { "others: optimize" } else { "nothing" }
    }

    /// Rows of a file are deleted by a deletion vector, or come back as a smaller one takes its place.
    fn delete_rows(&mut self) -> &'static str {
        let Some(path) = self.one_file().pop() else { return "nothing" };
        let mut gone = BTreeSet::new();
        for (position, key, _) in self.others.live(&path) {
            if self.may(key) && self.random.random_bool(0.2) {
                self.expected.base.remove(&key);
                gone.insert(position);
            }
        }
        if gone.is_empty() {
            return "nothing";
        }
        let log = self.others.log.as_mut().unwrap();
        let mut next = log.now().clone();
        next.files.get_mut(&path).unwrap().hidden.extend(gone);
        log.commit(next, true);
        "others: deletion vector"
    }

    /// The table goes back to an older version. Columns that were dropped since stay dropped.
    fn restore(&mut self) -> &'static str {
        let Some(log) = &self.others.log else { return "nothing" };
        let is_known = |version: &usize| self.bases.get(*version).is_some_and(Option::is_some);
        let versions: Vec<usize> = (self.oldest..log.version()).filter(is_known).collect();
        // Those of late have what was not there yet when they were made.
        let some = versions.iter().rev().take(12).copied().collect::<Vec<_>>();
        let Some(version) = some.choose(&mut self.random).filter(|_| !self.is_uncertain) else { return "nothing" };
        let State { files, columns } = log.states[*version].clone();
        let base = self.bases[*version].clone().unwrap();
        let is_whole = columns.iter().all(|column| self.others.has_column(column.id));
        if is_whole {
            self.set_columns(columns);
        }
        let columns = self.others.columns.clone();
        let log = self.others.log.as_mut().unwrap();
        log.commit(State { files, columns }, true);
        self.expected.base = base;
        self.expected
            .base
            .values_mut()
            .for_each(|row| row.retain(|id, _| self.others.columns.iter().any(|column| column.id == *id)));
        "others: restore"
    }

    /// The table has these columns from now on; what is buffered for others is forgotten.
    pub fn set_columns(&mut self, columns: Vec<Column>) {
        let before = std::mem::replace(&mut self.others.columns, columns);
        for gone in before.iter().filter(|column| !self.others.has_column(column.id)) {
            self.expected.drop_column(gone.id);
            if let Some(backup) = &mut self.backup {
                backup.expected.drop_column(gone.id);
            }
        }
    }

    /// Somebody keeps log and folder of a Delta table small.
    async fn keep_log(&mut self) -> &'static str {
        let Some(log) = &self.others.log else { return "nothing" };
        let root = self.root();
        match self.random.random_range(0..5) {
            0..2 => {
                self.checkpoint().await;
                "others: checkpoint"
            }
            2..4 => {
                self.checkpoint().await;
                let version = self.others.log.as_ref().unwrap().version();
                for old in 0..version {
                    fs::remove_file(root.join(format!("_delta_log/{old:020}.json"))).ok();
                }
                "others: log cleaned up"
            }
            _ => {
                let now = log.now();
                for path in files_below(&root) {
                    let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                    if name.ends_with(".parquet") && !name.starts_with('_') && !now.files.contains_key(name) {
                        fs::remove_file(&path).unwrap();
                    }
                }
                self.oldest = log.version();
                self.held.clear();
                "others: vacuum of the table"
            }
        }
    }

    async fn checkpoint(&self) {
        let url = url::Url::from_directory_path(self.folder.path()).unwrap();
        let table = deltalake_core::open_table(url).await.unwrap();
        create_checkpoint(&table, None).await.unwrap();
    }
}
