//! The columns and the key of a table, for whoever writes to it.

use std::sync::Arc;

use super::updatable::UpdatableTable;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::updates::errors::no_key;
use crate::updates::key::KeyColumns;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};

/// The key of a table by the columns that its data files show, with the manifest that has it.
pub(crate) struct KeyedSnapshot {
    /// The data files that have the columns.
    pub base: Snapshot,
    pub key: Arc<KeyColumns>,
}

impl KeyedSnapshot {
    /// The key of a table as writers have it.
    pub(crate) async fn of(table: &UpdatableTable) -> Result<Self> {
        let store = table.base.writable_store()?;
        let mut base = Snapshot::pin_base(&table.base).await?;
        let manifest = base.manifest.clone().ok_or_else(|| no_key(&table.base))?;
        let updates = manifest.updates().ok_or_else(|| no_key(&table.base))?;
        let state = ManifestState { number: manifest.number(), migration_done: base.migration_done() };
        let files = &table.merged_views.files;
        let key = UpdateContext::of(&mut base, store, files, updates, state, UpdateScope::Log).await?.key;
        Ok(Self { base, key })
    }
}
