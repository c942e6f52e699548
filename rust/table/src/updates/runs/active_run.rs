//! Runs of which some rows count no more.

use std::sync::Arc;

use lakemark_index::RowSet;

use super::sorted_run::SortedRun;
use crate::error::Result;
use crate::updates::key::KeyColumns;

/// A run and those of its rows that are in data files already.
#[derive(Clone)]
pub(crate) struct ActiveRun {
    pub run: Arc<SortedRun>,
    pub migrated: RowSet,
}

impl ActiveRun {
    /// The rows that count.
    pub(crate) fn active(&self) -> RowSet {
        self.migrated.not()
    }

    /// Rows of an older run that this one replaces.
    pub(crate) async fn replaced_in(&self, older: &SortedRun, key: &KeyColumns) -> Result<Arc<RowSet>> {
        if let Some(known) = self.run.replaced(&older.id) {
            return Ok(known);
        }
        // All keys of the newer run, those of migrated rows, too: what is remembered must hold for every manifest.
        let all = RowSet::full(self.run.row_count());
        let keys = self.run.keys(key, &all).await?;
        Ok(self.run.set_replaced(older.id, older.rows_with(key, &keys).await?))
    }
}
