//! One state of a table for all of a statement.
//!
//! A statement may come to a table by several ways: by its name, by another name for it, and by views, which are looked up one after
//! the other. All of them see the state that the first one found.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use lakemark_table::{Result, Snapshot, Table};

use crate::share::bound_query::{FoundTable, PinnedTable, StatementTables};

/// The tables of a statement.
type Pins = Arc<Mutex<StatementTables>>;

tokio::task_local! {
    static PINS: Pins;
}

/// What is planned of a statement, and what was looked up for it.
pub(crate) struct OfStatement<T> {
    pub(crate) planned: T,
    pub(crate) tables: StatementTables,
}

/// Plans a statement, within which [`pinned_for_statement`] gives a table one state.
pub(crate) async fn of_one_statement<T>(planning: impl Future<Output = T>) -> OfStatement<T> {
    let pins = Pins::default();
    let planned = PINS.scope(Arc::clone(&pins), planning).await;
    let tables = std::mem::take(&mut *pins.lock().unwrap_or_else(PoisonError::into_inner));
    OfStatement { planned, tables }
}

/// Whether a statement is being planned, and something of a program's asks for another one meanwhile.
pub(crate) fn is_within_statement() -> bool {
    PINS.try_with(|_| ()).is_ok()
}

/// Notes the names that a statement has.
pub(crate) fn note_names(names: &[TableReference]) {
    note(|tables| tables.names.extend_from_slice(names));
}

/// Notes what a schema has under a name.
pub(crate) fn note_found(schema: &Arc<dyn SchemaProvider>, name: &str, provider: &Arc<dyn TableProvider>) {
    let (schema, provider) = (Arc::clone(schema), Arc::clone(provider));
    note(|tables| tables.found.push(FoundTable { schema, name: name.to_owned(), provider }));
}

/// Notes something of a statement. A caller that plans outside of one needs no notes.
fn note(add: impl FnOnce(&mut StatementTables)) {
    PINS.try_with(|pins| add(&mut pins.lock().unwrap_or_else(PoisonError::into_inner))).ok();
}

/// The state of a table that the statement sees; outside of statements the newest one.
pub(crate) async fn pinned_for_statement(table: &Arc<Table>) -> Result<Arc<Snapshot>> {
    let found = PINS.try_with(|pins| {
        let tables = pins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pinned = tables.pinned.iter();
        pinned.find(|pinned| Arc::ptr_eq(&pinned.table, table)).map(|pinned| Arc::clone(&pinned.snapshot))
    });
    if let Ok(Some(snapshot)) = found {
        return Ok(snapshot);
    }
    let snapshot = table.snapshot().await?;
    let pinned = PinnedTable { table: Arc::clone(table), snapshot: Arc::clone(&snapshot) };
    note(|tables| tables.pinned.push(pinned));
    Ok(snapshot)
}
