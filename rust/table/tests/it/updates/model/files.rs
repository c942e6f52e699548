//! The data files of a table as other writers see them, and as Lakemark should: they know nothing of what is buffered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::json;

use super::files_below;
use super::log::{Log, Logged, State};
use super::rows::{Column, G, Id, K, Kind, Names, P, Row, Rows, Value, batch_of, rows_of_file};
use super::store;
use crate::fixture::write;

/// What kind of table a trial has.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub is_delta: bool,
    pub with_vectors: bool,
    pub is_mapped: bool,
    pub is_partitioned: bool,
}

/// A table without what is buffered.
pub struct Others {
    pub root: PathBuf,
    pub form: Form,
    /// The columns that there are now, in the order of the table if it is a Delta table.
    pub columns: Vec<Column>,
    /// Every column that there ever was, by the name that files have.
    pub stored: HashMap<String, Id>,
    pub log: Option<Log>,
    /// Whether files have their columns in any order, which is that of a folder's columns.
    pub shuffles: bool,
    next_file: u64,
    next_id: Id,
}

impl Others {
    /// A table without rows.
    pub fn new(root: &Path, form: Form, shuffles: bool, random: &mut StdRng) -> Self {
        let mut others = Self {
            root: root.to_owned(),
            form,
            columns: Vec::new(),
            stored: HashMap::new(),
            log: None,
            shuffles,
            next_file: 0,
            next_id: P + 1,
        };
        others.begin(random);
        others
    }

    /// Makes the table, for the first time or again.
    pub fn begin(&mut self, random: &mut StdRng) {
        let mut columns = vec![self.column(K, "k", Kind::Long), self.column(G, "g", Kind::Text)];
        if self.form.is_partitioned {
            columns.push(self.column(P, "p", Kind::Long));
        }
        for (name, kind) in [("a", Kind::Int), ("s", Kind::Text)] {
            let id = self.new_id();
            columns.push(self.column(id, name, kind));
        }
        columns.shuffle(random);
        self.columns = columns;
        if self.form.is_delta {
            let id = format!("4f1c9e53-6ba7-4c1f-9a3e-{:012x}", random.random::<u32>());
            self.log =
                Some(Log::new(&self.root, self.columns.clone(), self.form.with_vectors, self.form.is_mapped, id));
        }
    }

    pub fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    /// The name of a file that there never was.
    pub fn new_name(&mut self) -> String {
        self.next_file += 1;
        format!("n{}.parquet", self.next_file - 1)
    }

    /// A column of this id, which is noted.
    pub fn column(&mut self, id: Id, shown: &str, kind: Kind) -> Column {
        let stored = if self.form.is_mapped { format!("col-{id}") } else { shown.to_owned() };
        self.stored.insert(stored.clone(), id);
        Column { id, shown: shown.to_owned(), stored, kind }
    }

    pub fn has_column(&self, id: Id) -> bool {
        self.columns.iter().any(|column| column.id == id)
    }

    /// The files that others may change: those of the log, or of the folder as long as no migration put others in their place.
    pub fn files(&self) -> Vec<String> {
        if let Some(log) = &self.log {
            return log.now().files.keys().cloned().collect();
        }
        let replaced = store::replaced(&self.root);
        let mut files: Vec<String> = files_below(&self.root)
            .into_iter()
            .map(|path| path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned())
            .filter(|path| path.ends_with(".parquet") && !path.starts_with("_lakemark") && !replaced.contains(path))
            .filter(|path| !Path::new(path).file_name().unwrap().to_str().unwrap().starts_with('.'))
            .collect();
        files.sort_unstable();
        files
    }

    /// The rows of a file that no deletion vector hides, by position.
    pub fn live(&self, path: &str) -> Vec<(u64, i64, Row)> {
        let state = self.log.as_ref().map(Log::now);
        let logged = state.map(|state| &state.files[path]);
        self.rows_of(&self.root.join(path), path, logged)
    }

    fn rows_of(&self, place: &Path, path: &str, logged: Option<&Logged>) -> Vec<(u64, i64, Row)> {
        let partition: Option<i64> = match logged {
            Some(logged) if self.form.is_partitioned => {
                let stored = &self.columns.iter().find(|column| column.id == P).unwrap().stored;
                logged.add["partitionValues"][stored].as_str().map(|text| text.parse().unwrap())
            }
            Some(_) => None,
            None => path.split('/').find_map(|part| part.strip_prefix("p=")).and_then(|text| text.parse().ok()),
        };
        let rows = rows_of_file(place, &self.stored);
        let counts = |position: &u64| !logged.is_some_and(|logged| logged.hidden.contains(position));
        let counted = (0..).zip(rows).filter(|(position, _)| counts(position));
        counted
            .map(|(position, (key, row))| {
                let mut row: Row = row.into_iter().filter(|(id, _)| self.has_column(*id)).collect();
                if let Some(partition) = partition {
                    row.insert(P, Value::Long(partition));
                }
                (position, key, row)
            })
            .collect()
    }

    /// What the table has for those who know nothing of what is buffered, but all that was migrated; or a key that is there twice.
    pub fn base(&self) -> Result<Rows, i64> {
        let mut all = Vec::new();
        for path in self.files() {
            all.extend(self.live(&path));
        }
        if self.log.is_none() {
            for path in store::data(&self.root) {
                all.extend(self.rows_of(&self.root.join("_lakemark").join(&path), &path, None));
            }
        }
        let mut rows = Rows::new();
        for (_, key, row) in all {
            if rows.insert(key, row).is_some() {
                return Err(key);
            }
        }
        Ok(rows)
    }

    /// Writes files with these rows, one for each partition.
    pub fn put(&mut self, random: &mut StdRng, rows: &Rows) -> Vec<(String, Logged)> {
        let mut parts: BTreeMap<Option<i64>, Vec<(i64, Row)>> = BTreeMap::new();
        for (key, row) in rows {
            let part = match row.get(&P) {
                Some(Value::Long(part)) if self.form.is_partitioned => Some(*part),
                _ => None,
            };
            parts.entry(part).or_default().push((*key, row.clone()));
        }
        parts.into_iter().map(|(part, rows)| self.put_one(random, part, &rows)).collect()
    }

    fn put_one(&mut self, random: &mut StdRng, part: Option<i64>, rows: &[(i64, Row)]) -> (String, Logged) {
        // The order of a folder's columns follows from that of its files.
        let first = char::from(b'a' + random.random_range(0..26));
        let folder = part.map_or(String::new(), |part| format!("p={part}/"));
        let path = format!("{folder}{first}{}", self.new_name());
        self.write(random, &path, rows);
        let size = fs::metadata(self.root.join(&path)).unwrap().len();
        let mut partition_values = json!({});
        if let Some(column) = self.columns.iter().find(|column| column.id == P && self.form.is_partitioned) {
            partition_values[&column.stored] = part.map_or(json!(null), |part| json!(part.to_string()));
        }
        let add = json!({"path": path, "partitionValues": partition_values, "size": size, "modificationTime": 1, "dataChange": true});
        (path, Logged { add, hidden: BTreeSet::new() })
    }

    /// Writes a file, whose columns are in any order. A log says which columns there are, so that a file need not have those that are NULL.
    pub fn write(&self, random: &mut StdRng, path: &str, rows: &[(i64, Row)]) {
        let is_null = |id: Id| rows.iter().all(|(_, row)| !row.contains_key(&id));
        let mut columns: Vec<&Column> =
            self.columns.iter().filter(|column| !(column.id == P && self.form.is_partitioned)).collect();
        if self.form.is_delta && random.random_bool(0.5) {
            columns.retain(|column| column.id <= G || !is_null(column.id));
        }
        if self.shuffles {
            columns.shuffle(random);
        }
        write(&self.root.join(path), &batch_of(&columns, Names::Stored, rows));
    }

    /// Adds files with these rows.
    pub fn append(&mut self, random: &mut StdRng, rows: &Rows) {
        let files = self.put(random, rows);
        if let Some(log) = &mut self.log {
            let mut next = log.now().clone();
            next.files.extend(files);
            log.commit(next, true);
        }
    }

    /// Puts files with these rows in the place of others; `false`, and nothing is done, if a folder would lose a column or all its files.
    pub fn replace(&mut self, random: &mut StdRng, gone: &[String], rows: &Rows, data_change: bool) -> bool {
        if self.log.is_none() && rows.is_empty() && !self.keeps_columns(gone) {
            return false;
        }
        let files = self.put(random, rows);
        match &mut self.log {
            Some(log) => {
                let mut next = log.now().clone();
                next.files.retain(|path, _| !gone.contains(path));
                next.files.extend(files);
                log.commit(next, data_change);
            }
            None => gone.iter().for_each(|path| fs::remove_file(self.root.join(path)).unwrap()),
        }
        true
    }

    /// Whether what is left of a folder has all of its columns.
    fn keeps_columns(&self, gone: &[String]) -> bool {
        let mut columns = BTreeSet::new();
        for path in self.files().iter().filter(|path| !gone.contains(path)) {
            let file = ParquetRecordBatchReaderBuilder::try_new(File::open(self.root.join(path)).unwrap()).unwrap();
            columns.extend(file.schema().fields().iter().map(|field| self.stored[field.name()]));
        }
        self.columns.iter().all(|column| column.id == P || columns.contains(&column.id))
    }

    /// Lets the log have these columns, and files in the place of others if some are given.
    pub fn evolve(&mut self, columns: Vec<Column>, files: Option<Vec<(String, Logged)>>) {
        self.columns.clone_from(&columns);
        let log = self.log.as_mut().unwrap();
        let mut next = State { columns, ..log.now().clone() };
        if let Some(files) = files {
            next.files = files.into_iter().collect();
        }
        log.commit(next, true);
    }
}
