//! Whether a store and a Delta table belong together, and how far each of them has come.
//!
//! ```text
//! what the store says                                  what the table's log says
//! id of the table                                  =   id in its metadata       else the table was made anew
//! number of the last migration that was begun      ≥   transaction `lakemark-STORE`            else the store was put back from a backup
//! version that has the last migration              ≤   newest version           else the log was set back
//! ```
//!
//! A store that is behind takes the migrations of the log for done: the transaction `lakemark-STORE-through` says up to which
//! sequence number everything is in the data files. What cannot be told is an error, and [`repair`] asks its caller. Where nothing
//! is pending there is nothing to tell, and the store goes on with the table that it finds.

use std::sync::Arc;

use lakemark_format::{Manifest, ManifestDelta, ManifestUpdates};
use uuid::Uuid;

use super::flush::new_log;
use super::locks::{MigrationLock, WriterLock};
use super::log_file::{Position, path_of, read_on};
use super::write::no_key;
use crate::delta::DeltaState;
use crate::disk;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::table::Table;
use crate::transaction::{Edit, commit};

/// How a store and the pinned state of a table's log go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// They belong together.
    Same {
        /// Whether the log has the migration that the manifest names.
        folded: bool,
    },
    /// The log has this migration, which the store never began; all changes up to a sequence number are in the data files.
    Behind { migrations: u64, through: u64 },
    /// They do not, and why.
    Parted(Arc<str>),
}

impl Default for Lineage {
    fn default() -> Self {
        Self::Same { folded: false }
    }
}

/// What is done with changes of which nobody can tell whether the table has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// They stay pending: they count over whatever the table has of their keys.
    Keep,
    /// They are forgotten.
    Discard,
}

/// The name of a store in the logs of Delta tables. Its version is the number of the last migration.
pub(crate) fn application(store_id: [u8; 16]) -> String {
    format!("lakemark-{}", Uuid::from_bytes(store_id))
}

/// The name under which a log says up to which sequence number all changes are in the data files. Unlike the reason of a commit, a
/// transaction outlives the checkpoint that forgets the commit.
pub(crate) fn application_through(store_id: [u8; 16]) -> String {
    format!("{}-through", application(store_id))
}

impl Lineage {
    pub(crate) async fn of(state: &DeltaState, manifest: Option<&Manifest>) -> Result<Self> {
        let Some((manifest, updates)) = manifest.and_then(|manifest| Some((manifest, manifest.updates.as_ref()?)))
        else {
            return Ok(Self::default());
        };
        let known = updates.delta.clone().unwrap_or_default();
        if known.table_id != state.table_id() {
            return Ok(Self::Parted("the table was made anew since: it has another id".into()));
        }
        if known.version > state.version {
            let (newest, version) = (state.version, known.version);
            let why = format!(
                "its log ends with version {newest}, where the store has seen version {version}: it was set back"
            );
            return Ok(Self::Parted(why.into()));
        }
        let begun = updates.migrations;
        match number_of(state, &application(manifest.store_id)).await? {
            Some(migrations) if migrations > begun => {
                let through = number_of(state, &application_through(manifest.store_id)).await?.unwrap_or(0);
                Ok(Self::Behind { migrations, through })
            }
            Some(logged) if logged < known.migrated => {
                let why = format!(
                    "its log has no migration {}, which the store has seen there: it was set back",
                    known.migrated
                );
                Ok(Self::Parted(why.into()))
            }
            logged => {
                let number = updates.migration.as_ref().map(|migration| migration.number);
                Ok(Self::Same { folded: number.is_some_and(|number| logged.is_some_and(|logged| logged >= number)) })
            }
        }
    }

    /// The next sequence number, where nothing is pending that the table may not have; none where store and table belong together.
    ///
    /// # Errors
    /// Something is pending of which nobody can tell.
    pub(crate) async fn next_of_none(
        &self,
        table: &Table,
        store: &Store,
        updates: &ManifestUpdates,
    ) -> Result<Option<u64>> {
        if matches!(self, Self::Same { .. }) {
            return Ok(None);
        }
        let next = next_sequence(store, updates).await?;
        let is_empty = is_nothing_pending(updates, next);
        match self {
            Self::Behind { through, .. } if is_empty || next <= through + 1 => Ok(Some(next.max(through + 1))),
            Self::Behind { migrations, .. } => Err(parted(
                table,
                store,
                &format!(
                    "its log has the migration {migrations}, of which the store knows nothing: the store was put back from a backup"
                ),
            )),
            Self::Parted(_) if is_empty => Ok(Some(next)),
            Self::Parted(why) => Err(parted(table, store, why)),
            Self::Same { .. } => Ok(None),
        }
    }
}

/// The number of the last change, if none is pending.
pub(crate) async fn last_of_none(store: &Store, updates: &ManifestUpdates) -> Result<Option<u64>> {
    let next = next_sequence(store, updates).await?;
    Ok(is_nothing_pending(updates, next).then(|| next.saturating_sub(1)))
}

/// Whether neither runs nor the log, whose next change has this number, have changes.
fn is_nothing_pending(updates: &ManifestUpdates, next: u64) -> bool {
    updates.runs.is_empty() && next == updates.log.first_sequence
}

async fn number_of(state: &DeltaState, application: &str) -> Result<Option<u64>> {
    Ok(state.application_version(application).await?.and_then(|version| u64::try_from(version).ok()))
}

/// The number behind that of the last change in the log, whatever columns it is about.
async fn next_sequence(store: &Store, updates: &ManifestUpdates) -> Result<u64> {
    let (path, id, start) = (path_of(store, &updates.log)?, updates.log.id, Position::start(&updates.log));
    let read = disk::on_a_thread(move || read_on(&path, &id, start)).await.map_err(|error| Error::task(&error))?;
    let (_, read) = read?;
    Ok(read.commits.last().map_or(start.next, |(sequence, _)| sequence + 1))
}

fn parted(table: &Table, store: &Store, why: &str) -> Error {
    Error::new(
        ErrorKind::StoreMismatch,
        format!(
            "the store {} has pending changes that may not be those of the Delta table {}: {why}. Put the right one back, or decide: \
             `lakemark repair {} --pending keep` lets them count over what the table has, `--pending discard` forgets them",
            store.text(),
            table.location(),
            table.location()
        ),
    )
}

/// What a manifest says of the table from now on.
fn delta_of(base: &Snapshot, migrated: u64) -> Option<ManifestDelta> {
    let version = base.delta_version()?;
    Some(ManifestDelta { table_id: base.table_id()?.to_owned(), migrated, version })
}

/// Takes the table over as it is, where nothing is pending that it may not have; the caller holds the lock of writers. Says whether
/// there was something to do.
pub(crate) async fn take_over_if_empty(table: &Table, base: &Snapshot) -> Result<bool> {
    let store = table.writable_store()?;
    let Some(updates) = base.manifest.as_ref().and_then(|manifest| manifest.updates.as_ref()) else { return Ok(false) };
    let Some(next) = base.lineage.next_of_none(table, store, updates).await? else { return Ok(false) };
    let log = new_log(store, next).await?;
    take_over(store, base, Some(log)).await.map(|()| true)
}

async fn take_over(store: &Store, base: &Snapshot, log: Option<lakemark_format::ManifestLog>) -> Result<()> {
    let migrations = match base.lineage {
        Lineage::Behind { migrations, .. } => migrations,
        Lineage::Same { .. } | Lineage::Parted(_) => 0,
    };
    let edit = Edit::TakeOver { migrations, log, delta: delta_of(base, migrations) };
    commit(store, &edit).await.map(|_| ())
}

/// Lets a store and a table that do not belong together go on, as the caller decides; says whether they did not.
pub(crate) async fn repair(table: &Arc<Table>, pending: Pending) -> Result<bool> {
    table.check_open_for_changes()?;
    let store = table.writable_store()?;
    let _migration = MigrationLock::take(store).await?;
    let _writer = WriterLock::take(store).await?;
    let base = Snapshot::pin_base(table).await?;
    let updates = base.manifest.as_ref().and_then(|manifest| manifest.updates.as_ref()).ok_or_else(|| no_key(table))?;
    if matches!(base.lineage, Lineage::Same { .. }) {
        return Ok(false);
    }
    let log = match pending {
        Pending::Keep => None,
        Pending::Discard => {
            let through = if let Lineage::Behind { through, .. } = base.lineage { through } else { 0 };
            Some(new_log(store, next_sequence(store, updates).await?.max(through + 1)).await?)
        }
    };
    take_over(store, &base, log).await.map(|()| true)
}
