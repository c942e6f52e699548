//! A Delta table's log as other writers know it: each version is a set of files and a list of columns, and a commit is what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::rows::{Column, P};
use crate::delta::{commit, inline_vector};

/// A file that a version has, and its rows that a deletion vector hides.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub add: Json,
    pub hidden: BTreeSet<u64>,
}

/// A version of the table.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub files: BTreeMap<String, Logged>,
    pub columns: Vec<Column>,
}

pub struct Log {
    root: PathBuf,
    table_id: String,
    pub with_vectors: bool,
    pub is_mapped: bool,
    is_partitioned: bool,
    /// Every version since the table was made.
    pub states: Vec<State>,
}

impl Log {
    /// A table without rows.
    pub fn new(root: &Path, columns: Vec<Column>, with_vectors: bool, is_mapped: bool, table_id: String) -> Self {
        let is_partitioned = columns.iter().any(|column| column.id == P);
        let mut log =
            Self { root: root.to_owned(), table_id, with_vectors, is_mapped, is_partitioned, states: Vec::new() };
        let mut features = Vec::new();
        if with_vectors {
            features.push("deletionVectors");
        }
        if is_mapped && with_vectors {
            features.push("columnMapping");
        }
        let protocol = match (with_vectors, is_mapped) {
            (true, _) => {
                json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features})
            }
            (false, true) => json!({"minReaderVersion": 2, "minWriterVersion": 5}),
            (false, false) => json!({"minReaderVersion": 1, "minWriterVersion": 2}),
        };
        let metadata = log.metadata(&columns);
        log.put(&[json!({"protocol": protocol}), metadata]);
        log.states.push(State { files: BTreeMap::new(), columns });
        log
    }

    pub fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    pub fn version(&self) -> usize {
        self.states.len() - 1
    }

    /// Commits a version that is like this.
    pub fn commit(&mut self, next: State, data_change: bool) {
        let now = self.now();
        let mut actions = Vec::new();
        if next.columns != now.columns {
            actions.push(self.metadata(&next.columns));
        }
        for (path, file) in now.files.iter().filter(|(path, file)| next.files.get(*path) != Some(file)) {
            let mut remove = json!({"path": path, "deletionTimestamp": 1, "dataChange": data_change});
            if !file.hidden.is_empty() {
                remove["deletionVector"] = vector(&file.hidden);
            }
            actions.push(json!({"remove": remove}));
        }
        for (_, file) in next.files.iter().filter(|(path, file)| now.files.get(*path) != Some(file)) {
            let mut add = file.add.clone();
            add["dataChange"] = json!(data_change);
            if !file.hidden.is_empty() {
                add["deletionVector"] = vector(&file.hidden);
            }
            actions.push(json!({"add": add}));
        }
        self.put(&actions);
        self.states.push(next);
    }

    /// Takes in what Lakemark committed; gives how many versions that are.
    pub fn sync(&mut self) -> usize {
        let before = self.states.len();
        loop {
            let path = self.root.join(format!("_delta_log/{:020}.json", self.states.len()));
            let Ok(text) = fs::read_to_string(path) else { return self.states.len() - before };
            let mut state = self.now().clone();
            let actions: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for remove in actions.iter().filter_map(|action| action.get("remove")) {
                state.files.remove(remove["path"].as_str().unwrap());
            }
            for add in actions.iter().filter_map(|action| action.get("add")) {
                assert!(add.get("deletionVector").is_none_or(Json::is_null), "{add}");
                let logged = Logged { add: add.clone(), hidden: BTreeSet::new() };
                state.files.insert(add["path"].as_str().unwrap().to_owned(), logged);
            }
            assert!(!actions.iter().any(|action| action.get("metaData").is_some()), "{text}");
            self.states.push(state);
        }
    }

    fn put(&self, actions: &[Json]) {
        commit(&self.root, self.states.len() as u64, actions);
    }

    fn metadata(&self, columns: &[Column]) -> Json {
        let field = |column: &Column| {
            let metadata = match self.is_mapped {
                true => {
                    json!({"delta.columnMapping.id": column.id + 1, "delta.columnMapping.physicalName": column.stored})
                }
                false => json!({}),
            };
            json!({"name": column.shown, "type": column.kind.in_delta(), "nullable": true, "metadata": metadata})
        };
        let fields: Vec<Json> = columns.iter().map(field).collect();
        let partitions: Vec<&str> = columns
            .iter()
            .filter(|column| self.is_partitioned && column.id == P)
            .map(|column| column.shown.as_str())
            .collect();
        let mut configuration = json!({});
        if self.with_vectors {
            configuration["delta.enableDeletionVectors"] = json!("true");
        }
        if self.is_mapped {
            configuration["delta.columnMapping.mode"] = json!("name");
            configuration["delta.columnMapping.maxColumnId"] = json!("1000");
        }
        json!({"metaData": {"id": self.table_id, "format": {"provider": "parquet", "options": {}},
            "schemaString": json!({"type": "struct", "fields": fields}).to_string(),
            "partitionColumns": partitions, "configuration": configuration, "createdTime": 0}})
    }
}

fn vector(hidden: &BTreeSet<u64>) -> Json {
    inline_vector(&hidden.iter().copied().collect::<Vec<_>>())
}
