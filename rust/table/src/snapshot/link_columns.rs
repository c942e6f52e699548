//! The columns that links are declared over.

use lakemark_format::ManifestIndex;

use super::Snapshot;
use crate::store::link_pair::{is_back_of, is_of_links};

impl Snapshot {
    /// The columns of each index of the kind `links`, from subjects to objects, as the table shows them.
    #[must_use]
    pub fn link_columns(&self) -> Vec<Vec<String>> {
        let indexes: Vec<&ManifestIndex> =
            self.manifest.iter().flat_map(|manifest| manifest.indexes()).filter(|index| is_of_links(index)).collect();
        let walks_back = |index: &ManifestIndex| indexes.iter().any(|other| is_back_of(index, other));
        let forward = indexes.iter().filter(|index| !walks_back(index));
        let mut columns: Vec<Vec<String>> = forward.map(|index| self.logical_columns(index)).collect();
        columns.sort();
        columns.dedup();
        columns
    }
}
