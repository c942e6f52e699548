//! The runs that there are now, for whoever decides about them before the lock of writers is taken.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_format::ManifestUpdates;
use lakemark_index::RowSet;

use super::key_range_end::{RangeEnd, rows_in_range};
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::updates::key::KeyColumns;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};

/// The newest runs and what they are about.
pub(super) struct NewestRuns {
    /// The data files, without any buffered change.
    pub base: Snapshot,
    pub updates: Arc<ManifestUpdates>,
    pub key: Arc<KeyColumns>,
    /// The schema of changes.
    pub schema: SchemaRef,
    pub runs: Vec<ActiveRun>,
}

impl NewestRuns {
    /// Reads on; none if the table has no key.
    pub(super) async fn of(table: &UpdatableTable) -> Result<Option<Self>> {
        let mut base = Snapshot::pin_base(&table.base).await?;
        let (Some(manifest), Some(store)) = (base.manifest.clone(), table.base.store.as_ref()) else { return Ok(None) };
        let Some(updates) = manifest.updates().cloned() else { return Ok(None) };
        let state = ManifestState { number: manifest.number(), migration_done: base.migration_done() };
        let files = &table.merged_views.files;
        let updated = UpdateContext::of(&mut base, store, files, &updates, state, UpdateScope::Log).await?;
        let runs = updated.active_runs(&base, files).await?;
        let UpdateContext { key, schema, .. } = updated;
        Ok(Some(Self { base, updates, key, schema, runs }))
    }

    /// The rows of each run that count and are in a range of keys, by the ids of the runs.
    pub(super) async fn rows_in_range(&self, end: &RangeEnd) -> Result<HashMap<[u8; 16], RowSet>> {
        let mut found = HashMap::with_capacity(self.runs.len());
        for of in &self.runs {
            found.insert(of.run.id, rows_in_range(of, &self.key, end).await?);
        }
        Ok(found)
    }
}
