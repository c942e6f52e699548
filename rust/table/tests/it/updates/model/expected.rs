//! A table as it should be: a map of what the data files have, and one of what is buffered over it.

use std::collections::{BTreeMap, BTreeSet};

use lakemark_table::Operation;

use super::rows::{Column, Id, Row, Rows, Value};

/// What is buffered for a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffered {
    Row(Row),
    Gone,
    /// Columns that are set in whatever row the data files have; without a value they are NULL.
    Set(BTreeMap<Id, Option<Value>>),
}

/// What a call does.
#[derive(Clone, Debug)]
pub struct Call {
    pub operation: Operation,
    pub rows: Vec<(i64, Row)>,
    /// The columns that are given beside the key.
    pub named: Vec<Id>,
}

/// A table as it should be.
#[derive(Clone, Default, Debug)]
pub struct Expected {
    /// The rows that the data files have for those who know nothing of what is buffered.
    pub base: Rows,
    pub buffered: BTreeMap<i64, Buffered>,
}

/// A row with what is buffered for its key.
fn over(base: Option<&Row>, buffered: &Buffered) -> Option<Row> {
    match buffered {
        Buffered::Row(row) => Some(row.clone()),
        Buffered::Gone => None,
        Buffered::Set(set) => {
            let mut row = base?.clone();
            for (id, value) in set {
                match value {
                    Some(value) => drop(row.insert(*id, value.clone())),
                    None => drop(row.remove(id)),
                }
            }
            Some(row)
        }
    }
}

impl Expected {
    pub fn rows(&self) -> Rows {
        let mut rows = self.base.clone();
        for (key, buffered) in &self.buffered {
            match over(self.base.get(key), buffered) {
                Some(row) => drop(rows.insert(*key, row)),
                None => drop(rows.remove(key)),
            }
        }
        rows
    }

    pub fn has(&self, key: i64) -> bool {
        match self.buffered.get(&key) {
            None => self.base.contains_key(&key),
            Some(buffered) => over(self.base.get(&key), buffered).is_some(),
        }
    }

    pub fn is_buffered(&self, key: i64) -> bool {
        self.buffered.contains_key(&key)
    }

    /// What was buffered is in the data files, but for these keys.
    pub fn migrated(&mut self, left: &BTreeSet<i64>) {
        let rows = self.rows();
        let migrated: Vec<i64> = self.buffered.keys().copied().filter(|key| !left.contains(key)).collect();
        for key in migrated {
            self.buffered.remove(&key);
            match rows.get(&key) {
                Some(row) => drop(self.base.insert(key, row.clone())),
                None => drop(self.base.remove(&key)),
            }
        }
    }

    /// A column is gone, with what the data files and buffered changes have of it.
    pub fn drop_column(&mut self, id: Id) {
        self.base.values_mut().for_each(|row| drop(row.remove(&id)));
        for buffered in self.buffered.values_mut() {
            match buffered {
                Buffered::Row(row) => drop(row.remove(&id)),
                Buffered::Gone => {}
                Buffered::Set(set) => drop(set.remove(&id)),
            }
        }
    }

    /// No other columns are left than these.
    pub fn keep_columns(&mut self, columns: &[Column]) {
        let is_there = |id: &Id| columns.iter().any(|column| column.id == *id);
        self.base.values_mut().for_each(|row| row.retain(|id, _| is_there(id)));
        for buffered in self.buffered.values_mut() {
            match buffered {
                Buffered::Row(row) => row.retain(|id, _| is_there(id)),
                Buffered::Gone => {}
                Buffered::Set(set) => set.retain(|id, _| is_there(id)),
            }
        }
    }

    /// Makes the changes of one call; `false`, and nothing is made, if a key that is inserted is there.
    pub fn make(&mut self, calls: &[Call]) -> bool {
        let mut after = self.clone();
        for call in calls {
            if call.operation == Operation::Insert && call.rows.iter().any(|(key, _)| after.has(*key)) {
                return false;
            }
            call.rows.iter().for_each(|(key, row)| after.change(call, *key, row));
        }
        *self = after;
        true
    }

    fn change(&mut self, call: &Call, key: i64, row: &Row) {
        match call.operation {
            Operation::Insert | Operation::Upsert => drop(self.buffered.insert(key, Buffered::Row(row.clone()))),
            Operation::Delete => drop(self.buffered.insert(key, Buffered::Gone)),
            Operation::Update => {
                let set = call.named.iter().map(|id| (*id, row.get(id).cloned())).collect();
                self.update(key, set);
            }
        }
    }

    fn update(&mut self, key: i64, set: BTreeMap<Id, Option<Value>>) {
        match self.buffered.entry(key).or_insert_with(|| Buffered::Set(BTreeMap::new())) {
            Buffered::Gone => {}
            Buffered::Row(row) => {
                for (id, value) in set {
                    match value {
                        Some(value) => drop(row.insert(id, value)),
                        None => drop(row.remove(&id)),
                    }
                }
            }
            Buffered::Set(have) => have.extend(set),
        }
    }
}
