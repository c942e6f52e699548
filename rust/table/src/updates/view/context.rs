//! What the verbs know of the buffered changes of a table: the runs and the log of a manifest, the key, and the schema of changes.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_format::{ManifestMigration, ManifestUpdates};
use lakemark_index::{RowSet, RowSetBuilder};

use super::partition_types::changed_types;
use super::update_files::UpdateFiles;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::disk;
use crate::store::Store;
use crate::updates::changes::phase::MigrationPhase;
use crate::updates::changes::rows::change_schema;
use crate::updates::key::KeyColumns;
use crate::updates::log::log_file;
use crate::updates::log::log_tail::{LogTail, LogTailSlot};
use crate::updates::runs::active_run::ActiveRun;

/// The part of a table that its buffered changes are about.
pub(crate) struct UpdateContext<'a> {
    pub store: &'a Store,
    pub updates: &'a ManifestUpdates,
    pub manifest: u64,
    /// Whether the migration that the manifest names is done.
    pub migration_done: bool,
    pub key: Arc<KeyColumns>,
    /// The schema of changes.
    pub schema: SchemaRef,
}

/// Which manifest is looked at, and how far its migration is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManifestState {
    /// The number of the manifest.
    pub number: u64,
    /// Whether the migration that the manifest names is done.
    pub migration_done: bool,
}

/// How many of the buffered changes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateScope {
    /// The runs alone: nobody keeps the log for whoever reads them.
    Runs,
    /// The log as well.
    Log,
}

/// The fingerprint of the names that columns have in files and logs, where these differ from the schema's names.
pub(crate) fn stored_names(base: &Snapshot) -> u64 {
    base.column_names().map_or(0, |names| names.fingerprint())
}

impl<'a> UpdateContext<'a> {
    /// Gives the base the types that buffered changes need: changes of `runs`, and of the log if the log is read as well.
    pub(crate) async fn of(
        base: &mut Snapshot,
        store: &'a Store,
        files: &UpdateFiles,
        updates: &'a ManifestUpdates,
        state: ManifestState,
        reach: UpdateScope,
    ) -> Result<Self> {
        let log = (reach == UpdateScope::Log).then_some(&updates.log);
        let others = changed_types(base, store, updates, log, files).await?;
        base.read_as_text(&others)?;
        let table = base.schema();
        let shown = |stored: &String| {
            base.logical_name(stored).map(std::borrow::Cow::into_owned).ok_or_else(|| {
                Error::not_found(format!("the column {stored} of the key is no longer in the table; add it again"))
            })
        };
        let names = updates.key.iter().map(shown).collect::<Result<Vec<_>>>()?;
        let key = KeyColumns::new(&table, &names)?;
        let ManifestState { number: manifest, migration_done } = state;
        Ok(Self { store, updates, manifest, migration_done, key, schema: change_schema(&table) })
    }

    /// The log, read up to its end: on from what the slot has. The slot is empty then.
    pub(crate) async fn log_tail(&self, base: &Snapshot, slot: &LogTailSlot) -> Result<LogTail> {
        let known = slot.take();
        let log = &self.updates.log;
        let names = stored_names(base);
        let is_same =
            |tail: &LogTail| tail.log == log.id && tail.names == names && *tail.changes.schema() == self.schema;
        let mut tail = known.filter(is_same).unwrap_or_else(|| LogTail::new(log, names, &self.schema, &self.key));
        let path = log_file::path_of(self.store, log)?;
        let (schema, names) = (Arc::clone(&self.schema), base.column_names().cloned());
        disk::on_a_thread(move || {
            tail.read_on(&path, &schema, names.as_deref())?;
            Ok::<_, Error>(tail)
        })
        .await
        .map_err(|error| Error::task(&error))?
    }

    /// The runs, oldest first.
    pub(crate) async fn active_runs(&self, base: &Snapshot, files: &UpdateFiles) -> Result<Vec<ActiveRun>> {
        let mut active = Vec::with_capacity(self.updates.runs.len());
        for (place, run) in self.updates.runs.iter().enumerate() {
            let phase = MigrationPhase::of(run, self.updates, self.migration_done);
            let sorted = files.runs.get(self.store, run, base.column_names(), phase).await?;
            let mut migrated = RowSetBuilder::new(run.rows);
            for rows in &run.migrated {
                migrated.insert_range(rows.clone());
            }
            let mut migrated = migrated.finish();
            if self.migration_done {
                migrated = migrated.or(&slices_of(self.updates.migration.as_ref(), place, run.rows));
            }
            active.push(ActiveRun { run: sorted, migrated });
        }
        Ok(active)
    }
}

/// The rows of a run that a migration compacts.
fn slices_of(migration: Option<&ManifestMigration>, run: usize, rows: u32) -> RowSet {
    let mut slices = RowSet::empty(rows);
    for range in migration.iter().flat_map(|migration| &migration.ranges) {
        if range.run as usize == run {
            slices = slices.or(&RowSet::from_range(range.rows.clone(), rows));
        }
    }
    slices
}
