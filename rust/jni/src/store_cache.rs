//! The object stores of tables, kept for the tasks that run in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lakemark_table::{Snapshot, Table};
use object_store::ObjectStore;

use crate::error::{NativeError, Result};
use crate::split::{ScanSpec, StoreHome};
use crate::storage::TableStorage;

/// A table as the user named it.
#[derive(PartialEq, Eq, Hash)]
struct TableAddress {
    /// Where its data is.
    location: String,
    /// Where its indexes are, and how its files are reached.
    storage: TableStorage,
}

type StoresByTable = HashMap<TableAddress, Stores>;

static STORES: OnceLock<Mutex<StoresByTable>> = OnceLock::new();

/// The object stores of a table.
#[derive(Clone, Debug)]
struct Stores {
    data: Arc<dyn ObjectStore>,
    /// None if the table has no place for the store.
    runs: Option<Arc<dyn ObjectStore>>,
}

/// Keeps a table's object stores.
pub(crate) fn remember_stores(location: &str, storage: &TableStorage, snapshot: &Snapshot) {
    keep(TableAddress { location: location.to_owned(), storage: storage.clone() }, snapshot);
}

fn keep(table: TableAddress, snapshot: &Snapshot) -> Stores {
    let stores = Stores { data: snapshot.object_store(), runs: snapshot.run_store() };
    known().insert(table, stores.clone());
    stores
}

fn known() -> MutexGuard<'static, StoresByTable> {
    STORES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object store that holds a file of a scan.
pub(crate) async fn store_of(scan: &ScanSpec, home: StoreHome) -> Result<Arc<dyn ObjectStore>> {
    let Stores { data, runs } = stores_of(scan, home).await?;
    match home {
        StoreHome::Table => Ok(data),
        StoreHome::Store => {
            runs.ok_or_else(|| NativeError::internal("a table without a place for a store has buffered rows"))
        }
    }
}

async fn stores_of(scan: &ScanSpec, home: StoreHome) -> Result<Stores> {
    let table = TableAddress { location: scan.location.clone(), storage: scan.storage.clone() };
    let remembered = known().get(&table).cloned();
    // The place for the store may have been made after this process looked for it.
    if let Some(stores) = remembered.filter(|stores| home == StoreHome::Table || stores.runs.is_some()) {
        return Ok(stores);
    }
    let snapshot = Table::open(&scan.location, scan.storage.options()).await?.snapshot().await?;
    Ok(keep(table, &snapshot))
}
