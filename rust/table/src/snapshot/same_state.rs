//! Whether two snapshots give the same rows, for whoever shares the work of queries.

use std::sync::Arc;

use crate::snapshot::{DataFile, Snapshot};

impl Snapshot {
    /// Whether another snapshot is surely of the same state of the same table, read with the same right to its storage. Then every query
    /// gives the same rows of both.
    ///
    /// Snapshots of several handles of a table are taken for different: the credentials of the handles may differ.
    #[must_use]
    pub fn is_same_state(&self, other: &Self) -> bool {
        self.root == other.root
            && self.is_of_same_handle(other)
            && is_same(self.manifest.as_ref(), other.manifest.as_ref())
            && is_same(self.names.as_ref(), other.names.as_ref())
            && self.delta_version == other.delta_version
            && self.table_id == other.table_id
            && self.sequence == other.sequence
            && self.lineage == other.lineage
            && self.deleted_rows == other.deleted_rows
            && self.buffered.as_ref().map(|rows| rows.row_count())
                == other.buffered.as_ref().map(|rows| rows.row_count())
            && self.schema == other.schema
            && self.files.eq_by(&other.files, has_same_rows)
    }

    /// Whether one handle of the table made both. Each handle has a store of its own, or else an object store.
    fn is_of_same_handle(&self, other: &Self) -> bool {
        match (&self.store, &other.store) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => Arc::ptr_eq(&self.object_store, &other.object_store),
            _ => false,
        }
    }
}

/// Whether both are the same object in memory, or neither is there.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Whether a reader takes the same rows of both.
fn has_same_rows(one: &DataFile, other: &DataFile) -> bool {
    let deleted = match (&one.deleted, &other.deleted) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        (one, other) => one.is_none() && other.is_none(),
    };
    deleted && one.is_same_version(other) && one.partition_values == other.partition_values
}
