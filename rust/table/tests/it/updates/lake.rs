//! A Delta table whose log other writers write by hand: columns, files, deletion vectors, restores.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::RecordBatch;
use serde_json::{Value, json};

use crate::delta::{commit, inline_vector};
use crate::fixture::write;

/// A column: name, stored name, type.
pub type Column<'a> = (&'a str, &'a str, &'a str);

/// The columns of [`super::batch`].
pub const PLAIN: [Column<'_>; 3] = [("k", "k", "long"), ("a", "a", "integer"), ("s", "s", "string")];

/// A table and the number of its next version.
pub struct Lake {
    pub folder: tempfile::TempDir,
    next: u64,
    is_mapped: bool,
}

impl Lake {
    /// An empty table that takes deletion vectors; with `is_mapped` its columns are stored under other names.
    pub fn new(columns: &[Column<'_>], is_mapped: bool) -> Self {
        let mut lake = Self { folder: tempfile::tempdir().unwrap(), next: 0, is_mapped };
        lake.begin("4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", columns);
        lake
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    fn begin(&mut self, id: &str, columns: &[Column<'_>]) {
        let features = if self.is_mapped { vec!["deletionVectors", "columnMapping"] } else { vec!["deletionVectors"] };
        let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": features, "writerFeatures": features}});
        let metadata = self.metadata(id, columns);
        self.commit(&[protocol, metadata]);
    }

    fn metadata(&self, id: &str, columns: &[Column<'_>]) -> Value {
        let field = |(place, (name, stored, kind)): (usize, &Column<'_>)| {
            let mapping = json!({"delta.columnMapping.id": place + 1, "delta.columnMapping.physicalName": stored});
            let metadata = if self.is_mapped { mapping } else { json!({}) };
            json!({"name": name, "type": kind, "nullable": true, "metadata": metadata})
        };
        let fields: Vec<Value> = columns.iter().enumerate().map(field).collect();
        let mut configuration = json!({"delta.enableDeletionVectors": "true"});
        if self.is_mapped {
            configuration["delta.columnMapping.mode"] = "name".into();
            configuration["delta.columnMapping.maxColumnId"] = "99".into();
        }
        json!({"metaData": {"id": id, "format": {"provider": "parquet", "options": {}},
            "schemaString": json!({"type": "struct", "fields": fields}).to_string(), "partitionColumns": [],
            "configuration": configuration, "createdTime": 0}})
    }

    /// Commits as the next version.
    pub fn commit(&mut self, actions: &[Value]) -> u64 {
        let log = self.root().join("_delta_log");
        while log.join(format!("{:020}.json", self.next)).exists() {
            self.next += 1;
        }
        commit(self.root(), self.next, actions);
        self.next
    }

    /// Other columns from now on.
    pub fn alter(&mut self, columns: &[Column<'_>]) {
        let metadata = self.metadata("4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", columns);
        self.commit(&[metadata]);
    }

    /// The table is dropped and made anew, with the same columns and another id; our store stays.
    pub fn remake(&mut self, columns: &[Column<'_>]) {
        std::fs::remove_dir_all(self.root().join("_delta_log")).unwrap();
        for entry in std::fs::read_dir(self.root()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "parquet") {
                std::fs::remove_file(path).unwrap();
            }
        }
        self.next = 0;
        self.begin("00000000-6ba7-4c1f-9a3e-7a7f6b2f8b11", columns);
    }

    /// Writes a file and gives what adds it.
    pub fn put(&self, name: &str, rows: &RecordBatch) -> Value {
        write(&self.root().join(name), rows);
        self.adds(name)
    }

    /// What adds a file that is there.
    pub fn adds(&self, name: &str) -> Value {
        let size = std::fs::metadata(self.root().join(name)).unwrap().len();
        json!({"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": true}})
    }

    /// What adds a file of which rows are deleted.
    pub fn adds_without(&self, name: &str, rows: &[u64]) -> Value {
        let mut add = self.adds(name);
        add["add"]["deletionVector"] = inline_vector(rows);
        add
    }

    /// What removes a file of which nothing is deleted.
    pub fn removes(name: &str) -> Value {
        json!({"remove": {"path": name, "deletionTimestamp": 1, "dataChange": true}})
    }

    /// The files that the log has now, each with what added it.
    fn adds_of_log(&self) -> BTreeMap<String, Value> {
        let mut files = BTreeMap::new();
        for version in 0.. {
            let path = self.root().join(format!("_delta_log/{version:020}.json"));
            let Ok(text) = std::fs::read_to_string(path) else { break };
            let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for path in actions.iter().filter_map(|action| action["remove"]["path"].as_str()) {
                files.remove(path);
            }
            for add in actions.iter().filter(|action| action["add"].is_object()) {
                files.insert(add["add"]["path"].as_str().unwrap().to_owned(), add.clone());
            }
        }
        files
    }

    /// The files that the log has now.
    pub fn files(&self) -> Vec<String> {
        self.adds_of_log().into_keys().collect()
    }

    /// What `RESTORE` commits: these files, with all of their rows, in the place of those that there are.
    pub fn restore(&mut self, files: &[&str]) {
        let now = self.adds_of_log();
        let is_whole = |add: &Value| add["add"]["deletionVector"].is_null();
        let mut actions = Vec::new();
        for (name, add) in now.iter().filter(|(name, add)| !files.contains(&name.as_str()) || !is_whole(add)) {
            let mut remove = Self::removes(name);
            remove["remove"]["deletionVector"] = add["add"]["deletionVector"].clone();
            actions.push(remove);
        }
        let missing = files.iter().filter(|name| !now.get(**name).is_some_and(is_whole));
        actions.extend(missing.map(|name| self.adds(name)));
        self.commit(&actions);
    }
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, &target).unwrap()),
        }
    }
}
