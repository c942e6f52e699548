//! Others change the columns.

use rand::Rng;
use rand::seq::SliceRandom;

use super::Trial;
use super::rows::{Column, G, Kind, P, Rows, draw_row};

/// The most columns of a table.
const MOST: usize = 9;
/// The names that columns of mapped tables take, one after the other and from each other.
const NAMES: [&str; 6] = ["a", "s", "x", "y", "z", "w"];

impl Trial {
    pub fn evolve(&mut self) -> &'static str {
        if !self.others.form.is_delta {
            return self.add_column_to_folder();
        }
        match self.random.random_range(0..10) {
            0..4 => self.add_column(),
            4..6 => self.reorder(),
            6..8 => self.drop_column(),
            _ => self.rename(),
        }
    }

    /// A column that was never there, though its name may have been, if names do not say what a column is.
    fn new_column(&mut self) -> Option<Column> {
        if self.others.columns.len() >= MOST {
            return None;
        }
        let id = self.others.new_id();
        let kind = if self.random.random_bool(0.5) { Kind::Int } else { Kind::Text };
        let free = self.free_name().filter(|_| self.others.form.is_mapped);
        let name = free.map_or(format!("x{id}"), str::to_owned);
        Some(self.others.column(id, &name, kind))
    }

    fn free_name(&mut self) -> Option<&'static str> {
        let mut names = NAMES;
        names.shuffle(&mut self.random);
        names.into_iter().find(|name| !self.others.columns.iter().any(|column| column.shown == *name))
    }

    fn add_column(&mut self) -> &'static str {
        let Some(column) = self.new_column() else { return "nothing" };
        let mut columns = self.others.columns.clone();
        let at = if self.random.random_bool(0.5) { 0 } else { self.random.random_range(0..columns.len() + 1) };
        columns.insert(at, column);
        self.others.evolve(columns, None);
        "others: add a column"
    }

    fn reorder(&mut self) -> &'static str {
        let mut columns = self.others.columns.clone();
        columns.shuffle(&mut self.random);
        if columns == self.others.columns {
            return "nothing";
        }
        self.others.evolve(columns, None);
        "others: reorder columns"
    }

    /// Drops a column: by the log alone if it is mapped, else all files are written anew.
    fn drop_column(&mut self) -> &'static str {
        let mut columns = self.others.columns.clone();
        let may_go: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].id > P).collect();
        if may_go.len() < 2 {
            return "nothing";
        }
        columns.remove(may_go[self.random.random_range(0..may_go.len())]);
        self.set_columns(columns.clone());
        if self.others.form.is_mapped {
            self.others.evolve(columns, None);
        } else {
            // What they have, and not what the model takes them to have: after a killed migration it does not know.
            let rows =
                self.others.base().unwrap_or_else(|key| panic!("the key {key} is there twice in the data files"));
            let files = self.others.put(&mut self.random, &rows);
            self.others.evolve(columns, Some(files));
        }
        "others: drop a column"
    }

    /// A column has another name, or two have each other's.
    fn rename(&mut self) -> &'static str {
        if !self.others.form.is_mapped {
            return "nothing";
        }
        let mut columns = self.others.columns.clone();
        let at = self.random.random_range(0..columns.len());
        let of_kind: Vec<usize> = (0..columns.len()).filter(|other| *other != at && columns[*other].id > G).collect();
        if columns[at].id > G && !of_kind.is_empty() && self.random.random_bool(0.5) {
            let other = of_kind[self.random.random_range(0..of_kind.len())];
            let name = columns[at].shown.clone();
            columns[at].shown = std::mem::replace(&mut columns[other].shown, name);
        } else if let Some(name) = self.free_name() {
            name.clone_into(&mut columns[at].shown);
        } else {
            return "nothing";
        }
        self.others.evolve(columns, None);
        "others: rename a column"
    }

    /// A folder has the columns of its files: one of them has one more.
    fn add_column_to_folder(&mut self) -> &'static str {
        let keys: Rows = self.free_rows();
        let Some(column) = (!keys.is_empty()).then(|| self.new_column()).flatten() else { return "nothing" };
        let at = self.random.random_range(0..self.others.columns.len() + 1);
        self.others.columns.insert(at, column);
        let columns = self.others.columns.clone();
        let rows: Rows = keys.into_keys().map(|key| (key, draw_row(&mut self.random, &columns))).collect();
        self.others.append(&mut self.random, &rows);
        self.expected.base.extend(rows);
        "others: add a file with one more column"
    }
}
