//! Our own changes of rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use lakemark_table::{Change, ErrorKind, Operation, Table, WriteOptions, Written};
use rand::Rng;
use rand::seq::SliceRandom;

use super::Trial;
use super::expected::Call;
use super::files_below;
use super::rows::{Column, G, Id, K, Names, P, batch_of, draw_row};

impl Trial {
    pub fn some_keys(&mut self) -> Vec<i64> {
        let count = self.random.random_range(1..20);
        let mut keys: Vec<i64> = (0..count).map(|_| self.random.random_range(0..self.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub fn draw(&mut self, operation: Operation) -> Call {
        let keys = self.some_keys();
        self.draw_for(operation, keys)
    }

    pub fn draw_for(&mut self, operation: Operation, keys: Vec<i64>) -> Call {
        let mut named: Vec<Id> = self.others.columns.iter().map(|column| column.id).filter(|id| *id > G).collect();
        if operation == Operation::Update || self.random.random_bool(0.3) {
            named.shuffle(&mut self.random);
            let count = self.random.random_range(1..named.len() + 1);
            named.truncate(count);
        }
        // Rows of a folder lie in some partition.
        if operation != Operation::Update && self.others.has_column(P) && !named.contains(&P) {
            named.push(P);
        }
        let random = &mut self.random;
        let columns = &self.others.columns;
        let mut draw = || {
            let mut row = draw_row(random, columns);
            row.retain(|id, _| named.contains(id));
            row
        };
        let rows = keys.into_iter().map(|key| (key, draw())).collect();
        Call { operation, rows, named }
    }

    /// One change, sometimes by somebody who has seen the table as it was a while ago.
    pub async fn call(&mut self, operation: Operation) -> &'static str {
        let call = self.draw(operation);
        let read_at = self.random.random_bool(0.1).then(|| {
            let ago = self.random.random_range(0..9);
            self.sequence.saturating_sub(ago).max(self.floor)
        });
        self.make(&[call], read_at, false).await;
        operation.name()
    }

    /// Several changes in one call, made as a whole or not at all.
    pub async fn several(&mut self) -> &'static str {
        let operations = [Operation::Delete, Operation::Insert, Operation::Update, Operation::Upsert];
        let count = self.random.random_range(2..5);
        let drawn: Vec<Operation> = (0..count).map(|_| operations[self.random.random_range(0..4)]).collect();
        let calls: Vec<Call> = drawn.into_iter().map(|operation| self.draw(operation)).collect();
        self.make(&calls, None, false).await;
        "several changes"
    }

    /// Rows that tasks have staged, in some cases more of them than the buffer takes.
    pub async fn staged(&mut self) -> &'static str {
        let mut calls = Vec::new();
        for operation in [Operation::Delete, Operation::Update, Operation::Upsert, Operation::Insert] {
            if self.random.random_bool(0.7) {
                let is_large = operation != Operation::Insert && self.random.random_bool(0.7);
                let keys = if is_large { (0..self.keys).collect() } else { self.some_keys() };
                calls.push(self.draw_for(operation, keys));
            }
        }
        if !calls.is_empty() {
            self.make(&calls, None, true).await;
        }
        "staged"
    }

    async fn make(&mut self, calls: &[Call], read_at: Option<u64>, is_staged: bool) {
        if !self.makes(calls, read_at, is_staged).await {
            self.make_room().await;
        }
    }

    /// Makes a call if the cache has room for it.
    pub async fn make_if_room(&mut self, call: &Call) {
        self.makes(std::slice::from_ref(call), None, false).await;
    }

    /// `false` if the cache is full.
    async fn makes(&mut self, calls: &[Call], read_at: Option<u64>, is_staged: bool) -> bool {
        let mut after = self.expected.clone();
        let is_free = after.make(calls);
        let touched: Vec<i64> = calls.iter().flat_map(|call| call.rows.iter().map(|(key, _)| *key)).collect();
        let newest = touched.iter().filter_map(|key| self.changed.get(key)).max().copied().unwrap_or(0);
        let is_current = read_at.is_none_or(|read_at| newest <= read_at);
        let runs = self.run_files();
        let written = match is_staged {
            true => self.write_staged(calls).await,
            false => write(&self.table(), calls, &self.others.columns, &self.key, read_at).await,
        };
        match written {
            Ok(written) => {
                assert!(is_free && is_current, "made, though free {is_free}, current {is_current}: {calls:?}");
                assert_eq!((written.sequence, written.rows), (self.sequence + 1, touched.len() as u64));
                self.sequence = written.sequence;
                // An update of a row that is not there changes nothing, so that nobody need be told of it.
                let changed: Vec<i64> =
                    touched.into_iter().filter(|key| self.expected.has(*key) || after.has(*key)).collect();
                self.changed.extend(changed.into_iter().map(|key| (key, written.sequence)));
                self.expected = after;
            }
            Err(ErrorKind::AlreadyExists) => assert!(!is_free, "{calls:?}"),
            // What was migrated meanwhile is a conflict too, whichever key it is about.
            Err(ErrorKind::Conflict) => assert!(read_at.is_some_and(|read_at| read_at < self.sequence), "{calls:?}"),
            Err(ErrorKind::CacheFull) => {
                assert!(!self.classes.has("leaks") || self.run_files() == runs, "a call that was refused leaves a run");
                return false;
            }
            Err(other) => panic!("{other:?}: {calls:?}"),
        }
        true
    }

    fn run_files(&self) -> Vec<std::path::PathBuf> {
        let mut files = files_below(&self.root().join("_lakemark/updates"));
        files.retain(|path| path.extension().is_some_and(|extension| extension == "lmr"));
        files.sort_unstable();
        files
    }

    /// Each operation's rows in up to three files, whose keys lie between each other's.
    async fn write_staged(&mut self, calls: &[Call]) -> Result<Written, ErrorKind> {
        let mut staged = Vec::new();
        let table = self.table();
        for call in calls {
            let files = self.random.random_range(1..4);
            for file in 0..files {
                let rows =
                    call.rows.iter().enumerate().filter(|(at, _)| at % files == file).map(|(_, row)| row.clone());
                let part = Call { rows: rows.collect(), ..call.clone() };
                let mut staging = table.stage(call.operation).await.unwrap();
                staging.write(given(&part, &self.others.columns, &self.key)).await.unwrap();
                staged.extend(staging.finish().await.unwrap());
            }
        }
        let written = table.write_staged(&staged, WriteOptions::default()).await;
        if written.is_err() {
            table.discard_staged(&staged).await.unwrap();
        }
        written.map_err(|error| error.kind())
    }

    /// Nothing was made; buffered rows go into the data files.
    async fn make_room(&mut self) {
        self.check().await;
        *self.done.entry("cache full").or_default() += 1;
        self.migrate_part(1.0, None).await;
    }

    pub async fn flush(&mut self) -> &'static str {
        match self.table().flush().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::CacheFull => self.make_room().await,
            Err(error) => panic!("{error}"),
        }
        "flush"
    }
}

pub async fn write(
    table: &Arc<Table>,
    calls: &[Call],
    columns: &[Column],
    key: &[Id],
    read_at: Option<u64>,
) -> Result<Written, ErrorKind> {
    let changes =
        calls.iter().map(|call| Change { operation: call.operation, rows: given(call, columns, key) }).collect();
    let written = table.write(changes, WriteOptions { read_at, ..WriteOptions::default() }).await;
    written.map_err(|error| error.kind())
}

/// The rows of a call, as it is made.
fn given(call: &Call, columns: &[Column], key: &[Id]) -> RecordBatch {
    let is_given = |column: &&Column| match call.operation {
        Operation::Delete => key.contains(&column.id),
        Operation::Update => key.contains(&column.id) || call.named.contains(&column.id),
        Operation::Insert | Operation::Upsert => [K, G].contains(&column.id) || call.named.contains(&column.id),
    };
    let columns: Vec<&Column> = columns.iter().filter(is_given).collect();
    batch_of(&columns, Names::Shown, &call.rows)
}
