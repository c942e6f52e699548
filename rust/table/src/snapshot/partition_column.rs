//! Whether the partition columns of a folder keep their types when files come and go: the type of one follows from all of its values.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use super::Snapshot;
use crate::files::listed_file::ListingChange;

impl Snapshot {
    /// Whether the partition columns keep their types, as far as these changes go.
    pub(super) fn keeps_partition_types(&self, changes: &[ListingChange]) -> bool {
        if self.partition_columns.is_empty() {
            return true;
        }
        let is_gone = |change: &&ListingChange| change.was_there && change.now.is_none();
        let gone: HashSet<usize> = changes.iter().filter(is_gone).map(|change| change.place).collect();
        let comes = changes.iter().any(|change| !change.was_there);
        let mut types = self.partition_columns.iter().map(|column| column.data_type()).enumerate();
        types.all(|(column, of)| PartitionColumn { snapshot: self, column, gone: &gone }.keeps_type(of, comes))
    }
}

/// A partition column of a snapshot that some files leave.
struct PartitionColumn<'a> {
    snapshot: &'a Snapshot,
    column: usize,
    gone: &'a HashSet<usize>,
}

impl PartitionColumn<'_> {
    /// Whether the column keeps its type: integers while all of its values are, else dates, else text. Values that come were made values of
    /// this type.
    fn keeps_type(&self, of: &DataType, comes: bool) -> bool {
        let is_text = of.is_string();
        if is_text && comes && !self.has_staying_value() {
            return false;
        }
        self.gone.iter().all(|place| match self.value(*place) {
            Some(value) if !value.is_null(0) && is_text => self.has_neighbour(*place, value),
            Some(value) if !value.is_null(0) => self.has_staying_value(),
            _ => true,
        })
    }

    fn value(&self, place: usize) -> Option<&ArrayRef> {
        self.snapshot.files.get(place)?.partition_values.get(self.column)
    }

    /// Whether some file that stays has a value, and not NULL.
    fn has_staying_value(&self) -> bool {
        let mut files = self.snapshot.files.iter().enumerate();
        files.any(|(place, file)| {
            let value = file.partition_values.get(self.column);
            value.is_some_and(|value| !value.is_null(0)) && !self.gone.contains(&place)
        })
    }

    /// Whether the next file before or behind a place that stays has the same value: files of a folder are neighbours.
    fn has_neighbour(&self, place: usize, value: &ArrayRef) -> bool {
        let stays = |place: &usize| !self.gone.contains(place);
        let before = (0..place).rev().find(stays);
        let behind = (place + 1..self.snapshot.files.len()).find(stays);
        [before, behind].into_iter().flatten().any(|place| self.value(place) == Some(value))
    }
}
