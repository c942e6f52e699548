//! A data file as a snapshot knows it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use lakemark_index::RowSet;
use object_store::ObjectMeta;

use crate::files::trust::FalseStatistics;

/// One data file of a snapshot.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Place within [`Snapshot::object_store`](super::Snapshot::object_store), size and time.
    pub meta: ObjectMeta,
    /// Path below the table's root, `/`-separated.
    pub path: String,
    /// One value (an array of length 1) per partition column.
    pub partition_values: Vec<ArrayRef>,
    /// Rows that a deletion vector deletes, and rows that buffered changes delete or replace.
    pub deleted: Option<Arc<RowSet>>,
    /// Rows per row group, where the manifest or a footer that was read has them.
    pub row_groups: Option<Vec<u32>>,
    /// Columns whose statistics in the footer are false, as the manifest knows.
    pub false_statistics: FalseStatistics,
}

impl DataFile {
    /// How many of its rows are deleted or replaced.
    pub(crate) fn deleted_row_count(&self) -> u64 {
        self.deleted.as_ref().map_or(0, |deleted| u64::from(deleted.len()))
    }

    /// Rows of the file, also deleted ones; none where nobody knows yet how many there are.
    pub(crate) fn row_count(&self) -> Option<u64> {
        Some(self.row_groups.as_ref()?.iter().copied().map(u64::from).sum())
    }
}

#[cfg(test)]
impl DataFile {
    /// A file of so many bytes, of which nothing else is known but its row groups.
    pub(crate) fn of_test(path: &str, size: u64, row_groups: Option<Vec<u32>>) -> Self {
        Self {
            meta: ObjectMeta {
                location: path.into(),
                last_modified: chrono::DateTime::UNIX_EPOCH,
                size,
                e_tag: None,
                version: None,
            },
            path: path.to_owned(),
            partition_values: Vec::new(),
            deleted: None,
            row_groups,
            false_statistics: FalseStatistics::default(),
        }
    }
}
