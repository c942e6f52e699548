//! A table as it should be: a map of what the data files have, and one of what is pending over it.

use std::collections::BTreeMap;

use lakemark_table::Operation;

use super::Row;

/// Columns that an update sets; none for those that stay.
pub type Named = (Option<Option<i32>>, Option<Option<String>>);

/// What is pending for a key.
#[derive(Clone, Debug)]
enum Pending {
    Row(Row),
    Gone,
    /// Columns that are set in whatever row the data files have.
    Set(Named),
}

/// What a call does.
#[derive(Clone, Debug)]
pub struct Call {
    pub operation: Operation,
    pub rows: Vec<(i64, Row)>,
    /// Whether `a` and `s` are named: of an update.
    pub named: (bool, bool),
}

/// A table as it should be.
#[derive(Clone, Default)]
pub struct Expected {
    /// The rows that the data files have for those who know nothing of what is pending.
    pub base: BTreeMap<i64, Row>,
    pending: BTreeMap<i64, Pending>,
}

impl Expected {
    pub fn rows(&self) -> BTreeMap<i64, Row> {
        let mut rows = self.base.clone();
        for (key, pending) in &self.pending {
            match pending {
                Pending::Row(row) => drop(rows.insert(*key, row.clone())),
                Pending::Gone => drop(rows.remove(key)),
                Pending::Set((a, s)) => {
                    if let Some(row) = rows.get_mut(key) {
                        row.0 = a.unwrap_or(row.0);
                        row.1 = s.clone().unwrap_or_else(|| row.1.clone());
                    }
                }
            }
        }
        rows
    }

    pub fn is_pending(&self, key: i64) -> bool {
        self.pending.contains_key(&key)
    }

    /// Everything that was pending is in the data files.
    pub fn migrated(&mut self) {
        self.base = self.rows();
        self.pending.clear();
    }

    /// Makes the changes of one call; `false`, and nothing is made, if a key that is inserted is there.
    pub fn make(&mut self, calls: &[Call]) -> bool {
        let mut after = self.clone();
        for call in calls {
            let have = after.rows();
            if call.operation == Operation::Insert && call.rows.iter().any(|(key, _)| have.contains_key(key)) {
                return false;
            }
            call.rows.iter().for_each(|(key, row)| after.change(call, *key, row));
        }
        *self = after;
        true
    }

    fn change(&mut self, call: &Call, key: i64, row: &Row) {
        match call.operation {
            Operation::Insert | Operation::Upsert => drop(self.pending.insert(key, Pending::Row(row.clone()))),
            Operation::Delete => drop(self.pending.insert(key, Pending::Gone)),
            Operation::Update => {
                let (a, s) = (call.named.0.then_some(row.0), call.named.1.then(|| row.1.clone()));
                self.update(key, a, s);
            }
        }
    }

    fn update(&mut self, key: i64, a: Option<Option<i32>>, s: Option<Option<String>>) {
        match self.pending.entry(key).or_insert(Pending::Set((None, None))) {
            Pending::Gone => {}
            Pending::Row(row) => {
                row.0 = a.unwrap_or(row.0);
                row.1 = s.unwrap_or_else(|| row.1.clone());
            }
            Pending::Set((have_a, have_s)) => {
                *have_a = a.or(have_a.take());
                *have_s = s.or(have_s.take());
            }
        }
    }
}
