//! Whether the partition columns of a folder keep their types when files come and go: the type of one follows from all of its values.

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
        let mut gone: Vec<usize> = changes.iter().filter(is_gone).map(|change| change.place).collect();
        gone.sort_unstable();
        gone.dedup();
        let comes = changes.iter().any(|change| !change.was_there);
        let mut types = self.partition_columns.iter().map(|column| column.data_type()).enumerate();
        types.all(|(column, of)| PartitionColumn { snapshot: self, column, gone: &gone }.keeps_type(of, comes))
    }
}

/// A partition column of a snapshot that some files leave.
struct PartitionColumn<'a> {
    snapshot: &'a Snapshot,
    column: usize,
    /// The places of these files, ascending.
    gone: &'a [usize],
}

impl PartitionColumn<'_> {
    /// Whether the column keeps its type: integers while all of its values are, else dates, else text. Values that come were made values of
    /// this type.
    fn keeps_type(&self, of: &DataType, comes: bool) -> bool {
        if of.is_string() {
            let mut stretches = self.gone.chunk_by(|one, next| one + 1 == *next);
            return (!comes || self.has_staying_value()) && stretches.all(|stretch| self.has_neighbours(stretch));
        }
        self.gone.iter().all(|place| self.value(*place).is_none()) || self.has_staying_value()
    }

    /// The value of a file; none if it is NULL.
    fn value(&self, place: usize) -> Option<&ArrayRef> {
        self.snapshot.files.get(place)?.partition_values.get(self.column).filter(|value| !value.is_null(0))
    }

    /// Whether some file that stays has a value, and not NULL.
    fn has_staying_value(&self) -> bool {
        let mut gone = self.gone.iter().peekable();
        (0..self.snapshot.files.len()).any(|place| gone.next_if_eq(&&place).is_none() && self.value(place).is_some())
    }

    /// Whether the next file before or behind neighbours that go has the value of each: files of a folder are neighbours.
    fn has_neighbours(&self, stretch: &[usize]) -> bool {
        let before = stretch.first().and_then(|first| self.value(first.checked_sub(1)?));
        let behind = stretch.last().and_then(|last| self.value(last + 1));
        let mut values = stretch.iter().filter_map(|place| self.value(*place));
        values.all(|value| [before, behind].into_iter().flatten().any(|staying| staying == value))
    }
}
