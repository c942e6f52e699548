//! One state of a table for all of a statement.
//!
//! A statement may come to a table by several ways: by its name, by another name for it, and by views, which are looked up one after
//! the other. All of them see the state that the first one found.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_table::{Result, Snapshot, Table};

/// A table with the state of it that a statement sees.
pub(crate) struct PinnedTable {
    /// The table.
    pub(crate) table: Arc<Table>,
    /// Its state.
    pub(crate) snapshot: Arc<Snapshot>,
}

/// The tables of a statement.
type Pins = Mutex<Vec<PinnedTable>>;

tokio::task_local! {
    static PINS: Pins;
}

/// Plans a statement, within which [`pinned_for_statement`] gives a table one state.
pub(crate) async fn of_one_statement<T>(planning: impl Future<Output = T>) -> T {
    PINS.scope(Pins::default(), planning).await
}

/// The state of a table that the statement sees; outside of statements the newest one.
pub(crate) async fn pinned_for_statement(table: &Arc<Table>) -> Result<Arc<Snapshot>> {
    let found = PINS.try_with(|pins| {
        let pins = pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.iter().find(|pinned| Arc::ptr_eq(&pinned.table, table)).map(|pinned| Arc::clone(&pinned.snapshot))
    });
    if let Ok(Some(snapshot)) = found {
        return Ok(snapshot);
    }
    let snapshot = table.snapshot().await?;
    let pin = |pins: &Pins| {
        let mut pins = pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.push(PinnedTable { table: Arc::clone(table), snapshot: Arc::clone(&snapshot) });
    };
    // A caller that plans outside of a statement pins for itself.
    PINS.try_with(pin).ok();
    Ok(snapshot)
}
