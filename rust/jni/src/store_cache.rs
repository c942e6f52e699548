//! The object stores of tables, kept for the tasks that run in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lakemark_table::{Snapshot, Table};
use object_store::ObjectStore;

use crate::error::{NativeError, Result};
use crate::split::{ScanSpec, StoreHome};
use crate::storage::TableStorage;

/// The object stores of so many tables are kept. Credentials are part of a table's address, so that an application whose credentials change
/// comes by new addresses as long as it runs.
const MOST: usize = 256;

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
    insert(&mut known(), table, stores.clone());
    stores
}

/// Whoever needs what is forgotten here opens its table again.
fn insert<T>(known: &mut HashMap<TableAddress, T>, table: TableAddress, stores: T) {
    if known.len() >= MOST && !known.contains_key(&table) {
        known.clear();
    }
    known.insert(table, stores);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(number: usize) -> TableAddress {
        TableAddress { location: format!("s3a://lake/{number}"), storage: TableStorage::default() }
    }

    #[test]
    fn no_more_is_kept_than_a_process_needs() {
        let mut known = HashMap::new();
        for number in 0..MOST {
            insert(&mut known, table(number), number);
        }
        insert(&mut known, table(7), 8);
        assert_eq!((known.len(), known.get(&table(7))), (MOST, Some(&8)));
        insert(&mut known, table(MOST), 9);
        assert_eq!((known.len(), known.get(&table(MOST))), (1, Some(&9)));
    }
}
