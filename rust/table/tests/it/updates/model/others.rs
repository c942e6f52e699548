//! What other writers do to the data files meanwhile: they know nothing of what is pending.
//!
//! ```text
//! folder   append a file; before anything was migrated: one file in the place of two
//! Delta    append a file, remove one, delete rows by a deletion vector, write rows anew, one file in the place of two
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::super::reading::add_rows;
use super::{Row, as_batch, row};
use crate::delta::{commit, inline_vector};
use crate::fixture::write;

/// The data files of a table, as other writers see them.
pub struct Others {
    pub root: PathBuf,
    pub is_delta: bool,
    /// Whether deletion vectors may be written.
    pub with_vectors: bool,
    next_file: usize,
    /// Rows that deletion vectors of ours hide, by file.
    vectors: BTreeMap<String, BTreeSet<u64>>,
}

impl Others {
    /// An empty table.
    pub fn new(root: &Path, is_delta: bool, with_vectors: bool) -> Self {
        let others = Self {
            root: root.to_owned(),
            is_delta,
            with_vectors: is_delta && with_vectors,
            next_file: 0,
            vectors: BTreeMap::new(),
        };
        if is_delta {
            let schema = r#"{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}},{"name":"a","type":"integer","nullable":true,"metadata":{}},{"name":"s","type":"string","nullable":true,"metadata":{}},{"name":"g","type":"string","nullable":true,"metadata":{}}]}"#;
            let (protocol, configuration) = match with_vectors {
                true => (
                    json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}),
                    json!({"delta.enableDeletionVectors": "true"}),
                ),
                false => (json!({"minReaderVersion": 1, "minWriterVersion": 2}), json!({})),
            };
            others.log(&[
                json!({"protocol": protocol}),
                json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
                    "schemaString": schema, "partitionColumns": [], "configuration": configuration, "createdTime": 0}}),
            ]);
        }
        others
    }

    /// Adds a file with these rows.
    pub fn append(&mut self, rows: &BTreeMap<i64, Row>) {
        let add = self.put_file(rows);
        if self.is_delta {
            self.log(&[add]);
        }
    }

    /// Removes a file or two and adds one with their rows, or with what is made of them. Nothing happens if `may` forbids one of the keys.
    pub fn rewrite(
        &mut self,
        random: &mut StdRng,
        base: &mut BTreeMap<i64, Row>,
        may: &dyn Fn(i64) -> bool,
        what: Rewrite,
    ) -> bool {
        let mut names = self.names();
        // A folder without any file is no table.
        if what == Rewrite::Remove && !self.is_delta && names.len() < 2 {
            return false;
        }
        while names.len() > if what == Rewrite::Compact { 2 } else { 1 } {
            names.remove(random.random_range(0..names.len()));
        }
        let mut rows: BTreeMap<i64, Row> =
            names.iter().flat_map(|name| self.live(name)).map(|(_, key, row)| (key, row)).collect();
        if what != Rewrite::Compact && !rows.keys().all(|key| may(*key)) {
            return false;
        }
        match what {
            Rewrite::Compact => {}
            Rewrite::Remove => {
                rows.keys().for_each(|key| drop(base.remove(key)));
                rows.clear();
            }
            Rewrite::Change => {
                for (key, have) in &mut rows {
                    if random.random_bool(0.3) {
                        *have = row(random);
                        base.insert(*key, have.clone());
                    }
                }
            }
        }
        let mut actions: Vec<Value> = names.iter().map(|name| self.remove(name, what != Rewrite::Compact)).collect();
        if !rows.is_empty() {
            actions.push(self.put_file(&rows));
        }
        match self.is_delta {
            true => self.log(&actions),
            false => names.iter().for_each(|name| fs::remove_file(self.root.join(name)).unwrap()),
        }
        names.iter().for_each(|name| drop(self.vectors.remove(name)));
        true
    }

    /// Deletes rows of a file by a deletion vector.
    pub fn delete_rows(&mut self, random: &mut StdRng, base: &mut BTreeMap<i64, Row>, may: &dyn Fn(i64) -> bool) {
        let names = self.names();
        if names.is_empty() {
            return;
        }
        let name = names[random.random_range(0..names.len())].clone();
        let mut hidden = self.vectors.get(&name).cloned().unwrap_or_default();
        let before = hidden.len();
        for (position, key, _) in self.live(&name) {
            if may(key) && random.random_bool(0.2) {
                base.remove(&key);
                hidden.insert(position);
            }
        }
        if hidden.len() > before {
            let remove = self.remove(&name, true);
            let mut add = self.active().remove(&name).unwrap();
            add["deletionVector"] = inline_vector(&hidden.iter().copied().collect::<Vec<_>>());
            self.log(&[remove, json!({"add": add})]);
            self.vectors.insert(name, hidden);
        }
    }

    fn put_file(&mut self, rows: &BTreeMap<i64, Row>) -> Value {
        let name = format!("f{}.parquet", self.next_file);
        self.next_file += 1;
        let all: Vec<(i64, Row)> = rows.clone().into_iter().collect();
        write(&self.root.join(&name), &as_batch(&all));
        let size = fs::metadata(self.root.join(&name)).unwrap().len();
        json!({"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": true}})
    }

    fn remove(&self, name: &str, data_change: bool) -> Value {
        let mut remove = json!({"path": name, "deletionTimestamp": 1, "dataChange": data_change});
        if let Some(hidden) = self.vectors.get(name) {
            remove["deletionVector"] = inline_vector(&hidden.iter().copied().collect::<Vec<_>>());
        }
        json!({"remove": remove})
    }

    /// The names of the data files: for a folder those that are not in the store.
    fn names(&self) -> Vec<String> {
        if self.is_delta {
            return self.active().into_keys().collect();
        }
        let files = fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = files.filter(|name| name.ends_with(".parquet")).collect();
        names.sort_unstable();
        names
    }

    /// The files that the log adds and does not remove.
    fn active(&self) -> BTreeMap<String, Value> {
        let mut active = BTreeMap::new();
        for version in 0.. {
            let Ok(text) = fs::read_to_string(self.root.join(format!("_delta_log/{version:020}.json"))) else { break };
            let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for remove in actions.iter().filter_map(|action| action.get("remove")) {
                active.remove(remove["path"].as_str().unwrap());
            }
            for add in actions.iter().filter_map(|action| action.get("add")) {
                active.insert(add["path"].as_str().unwrap().to_owned(), add.clone());
            }
        }
        active
    }

    /// The rows of a file that no deletion vector hides, by position.
    fn live(&self, name: &str) -> Vec<(u64, i64, Row)> {
        let mut rows = Vec::new();
        add_rows(File::open(self.root.join(name)).unwrap(), &mut rows);
        let hidden = self.vectors.get(name);
        let is_live = |(position, _, _): &(u64, i64, Row)| !hidden.is_some_and(|hidden| hidden.contains(position));
        (0..).zip(rows).map(|(position, (key, row))| (position, key, row)).filter(is_live).collect()
    }

    /// Commits to the Delta log.
    fn log(&self, actions: &[Value]) {
        let log = self.root.join("_delta_log");
        let commits = fs::read_dir(&log).map_or(0, |entries| {
            entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".json")).count()
        });
        commit(&self.root, commits as u64, actions);
    }
}

/// How files are written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// One in the place of two.
    Compact,
    /// Rows have other values.
    Change,
    /// A file is gone.
    Remove,
}
