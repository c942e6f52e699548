//! Tables that stay open between queries.
//!
//! A query opens its table when Spark asks for the columns and again when it plans the scan. An open table remembers footers, deletion
//! vectors, and above all buffered changes: the log as it was read, and the rows of data files that these changes delete or replace. So the
//! next snapshot is a listing and a look at the end of the log. A snapshot is pinned anew each time, so that nothing here can be stale, but
//! for a listing of the age that the reader takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lakemark_table::{Table, TableOptions};

use crate::error::Result;
use crate::storage::TableStorage;

/// So many tables stay open; each may keep its buffered rows in memory.
const MOST: usize = 64;

/// The least recently used first.
static TABLES: Mutex<Vec<OpenTable>> = Mutex::new(Vec::new());

/// A table that stays open.
struct OpenTable {
    /// How the user named it.
    named: TableRef,
    /// The table; what it remembers serves the next query.
    table: Arc<Table>,
}

/// A table as the user named it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableRef {
    pub(crate) location: String,
    /// Where its indexes are, and how its files are reached.
    pub(crate) storage: TableStorage,
    /// The version that is read; the newest state if none is given.
    pub(crate) version: Option<u64>,
    /// How long a query may go by the data files that an earlier one found.
    pub(crate) max_staleness: Duration,
}

impl TableRef {
    /// The table: the one that was opened before, if what is there now would be opened as it was.
    pub(crate) async fn open(&self) -> Result<Arc<Table>> {
        let max_staleness = self.max_staleness;
        let newest = TableOptions { max_staleness, ..self.storage.options() };
        let now = Table::open(&self.location, newest.clone()).await?;
        if let Some(known) = taken(self)
            && (known.format(), known.store_location()) == (now.format(), now.store_location())
        {
            return Ok(self.keep(known));
        }
        let table = match self.version {
            None => now,
            version @ Some(_) => Table::open(&self.location, TableOptions { version, ..newest }).await?,
        };
        Ok(self.keep(table))
    }

    fn keep(&self, table: Arc<Table>) -> Arc<Table> {
        let mut tables = tables();
        // Another query may have opened the table meanwhile; what the first one knows is worth more.
        let table = match tables.iter().position(|open| open.named == *self) {
            Some(place) => tables.remove(place).table,
            None => table,
        };
        if tables.len() >= MOST {
            tables.remove(0);
        }
        tables.push(OpenTable { named: self.clone(), table: Arc::clone(&table) });
        table
    }
}

/// The table that was opened under this name, which is forgotten.
fn taken(named: &TableRef) -> Option<Arc<Table>> {
    let mut tables = tables();
    let place = tables.iter().position(|open| open.named == *named)?;
    Some(tables.remove(place).table)
}

fn tables() -> MutexGuard<'static, Vec<OpenTable>> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}
