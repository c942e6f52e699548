//! Runs merged with the data files and with each other, oldest first.
//!
//! Adding a run only takes rows away from those below it. So what is below is merged once (runs, and most of the buffer), since it changes
//! together. The few changes that came later are merged with the result.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use lakemark_index::RowSet;

use crate::error::Result;
use crate::snapshot::{DeletedByFile, DeletedPositions};
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::hits::hits_of;
use crate::updates::runs::resolve_keys::{KeyResolver, memory_rows};
use crate::updates::runs::sorted_run::SortedRun;

/// A run that was added.
#[derive(Clone)]
pub(crate) struct StackedRun {
    pub run: Arc<SortedRun>,
    /// Its rows that count.
    pub rows: RowSet,
    /// Its updates of some columns that no data file has completed.
    pub incomplete: RowSet,
}

/// Runs merged with data files.
#[derive(Clone, Default)]
pub(crate) struct RunStack {
    /// The rows that are deleted or replaced, by the places of the data files that have some.
    pub deleted: DeletedByFile,
    pub runs: Vec<StackedRun>,
}

impl RunStack {
    /// Data files with these runs above each other, the oldest first.
    pub(crate) async fn of(ground: &KeyResolver<'_>, runs: &[ActiveRun]) -> Result<Self> {
        let mut stack = Self::default();
        for run in runs {
            stack.add(ground, run).await?;
        }
        Ok(stack)
    }

    /// Adds a run above all others.
    pub(crate) async fn add(&mut self, ground: &KeyResolver<'_>, stacked: &ActiveRun) -> Result<()> {
        for below in &mut self.runs {
            let replaced = stacked.replaced_in(&below.run, ground.key).await?;
            if !replaced.is_empty() {
                (below.rows, below.incomplete) = (below.rows.minus(&replaced), below.incomplete.minus(&replaced));
            }
        }
        let ActiveRun { run, migrated } = stacked;
        let mut completed = RowSet::empty(run.row_count());
        // The buffer was completed from these very files; runs were when they were made.
        let is_fresh = memory_rows(run).is_some();
        for (file, hits) in hits_of(ground, stacked).await? {
            // A row that somebody deleted since completes nothing. Updates that this file completed are completed anew, if they still can
            // be.
            let deleted = ground.base.files().get(file).and_then(|file| file.deleted.as_ref());
            if is_fresh || deleted.is_none_or(|deleted| deleted.and(&hits.deleted).is_empty()) {
                completed = completed.or(&hits.completed);
            }
            if hits.deleted.is_empty() {
                continue;
            }
            match self.deleted.entry(file) {
                Entry::Vacant(slot) => {
                    let (row_groups, rows) = (hits.row_groups.clone(), Arc::clone(&hits.deleted));
                    slot.insert(DeletedPositions { row_groups, rows });
                }
                Entry::Occupied(mut slot) => {
                    let hidden = slot.get_mut();
                    hidden.rows = Arc::new(hidden.rows.or(&hits.deleted));
                }
            }
        }
        let rows = run.complete.or(&completed).minus(migrated);
        let open = run.partial.minus(&completed).minus(migrated);
        self.runs.push(StackedRun { run: Arc::clone(run), rows, incomplete: open });
        Ok(())
    }
}
