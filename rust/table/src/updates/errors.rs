//! Errors that several verbs give.

use crate::error::Error;
use crate::snapshot::BaseTable;
use crate::store::Store;

/// The error of a store that is not on a local file system.
pub(crate) fn not_local(store: &Store) -> Error {
    Error::unsupported(format!(
        "updates need a store on a local file system, for their log and lock; {} is not: choose one with --store",
        store.text()
    ))
}

/// The error of a table without a key.
pub(crate) fn no_key(table: &BaseTable) -> Error {
    Error::invalid(format!(
        "the table {} has no key, which tells changed rows apart: declare one first, as in `lakemark key TABLE --on COLUMN`, \
         `OPTIONS (key 'COLUMN')` of CREATE EXTERNAL TABLE, `Table.declare_key`, or in Spark `CALL lm.system.declare_key`",
        table.location()
    ))
}

/// The error of a write to the store that failed.
pub(crate) fn unwritable(store: &Store, error: std::io::Error) -> Error {
    Error::io(format!(
        "changes cannot be written to {} (disk full, or no permission?); these were not made, all before them are safe: \
         make room and make them again",
        store.text()
    ))
    .with_source(error)
}
