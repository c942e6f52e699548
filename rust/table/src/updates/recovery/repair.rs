//! What becomes of buffered changes where a store and a Delta table may not belong together (see [`Lineage`]).
//!
//! If nobody can know whether they do, it is an error, and the caller decides by [`repair`]. Where nothing is buffered there is nothing to
//! decide, and the store goes on with the table that it finds.

use lakemark_format::{ManifestDelta, ManifestUpdates};

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{BaseTable, Lineage, Snapshot};
use crate::storage::disk;
use crate::store::Store;
use crate::store::transaction::{Edit, commit};
use crate::updates::errors::no_key;
use crate::updates::locks::{MigrationLock, WriterLock};
use crate::updates::log::log_file::{LogPosition, new_log, path_of, read_on};

/// What is done with buffered changes of which nobody knows whether the table has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairAction {
    /// They stay buffered: they count over whatever the table has of their keys.
    Keep,
    /// They are forgotten.
    Discard,
}

impl RepairAction {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Keep, Self::Discard];

    /// The name in options and arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Discard => "discard",
        }
    }

    /// The action of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// The next sequence number, where nothing is buffered that the table may not have; none where store and table belong together.
///
/// # Errors
/// Something is buffered of which nobody knows whether the table has it.
pub(crate) async fn next_of_none(
    lineage: &Lineage,
    table: &BaseTable,
    store: &Store,
    updates: &ManifestUpdates,
) -> Result<Option<u64>> {
    if matches!(lineage, Lineage::Same { .. }) {
        return Ok(None);
    }
    let next = next_sequence(store, updates).await?;
    let is_empty = is_nothing_buffered(updates, next);
    match lineage {
        Lineage::Behind { through, .. } if is_empty || next <= through + 1 => Ok(Some(next.max(through + 1))),
        Lineage::Behind { migrations, .. } => Err(parted(
            table,
            store,
            &format!(
                "its log has the migration {migrations}, of which the store knows nothing: the store was put back from a backup"
            ),
        )),
        Lineage::Parted(_) if is_empty => Ok(Some(next)),
        Lineage::Parted(why) => Err(parted(table, store, why)),
        Lineage::Same { .. } => Ok(None),
    }
}

/// The number of the last change, if no change is buffered.
pub(crate) async fn last_of_none(store: &Store, updates: &ManifestUpdates) -> Result<Option<u64>> {
    let next = next_sequence(store, updates).await?;
    Ok(is_nothing_buffered(updates, next).then(|| next.saturating_sub(1)))
}

/// Whether neither runs nor the log, whose next change has this number, have changes.
fn is_nothing_buffered(updates: &ManifestUpdates, next: u64) -> bool {
    updates.runs.is_empty() && next == updates.log.first_sequence
}

/// The number behind that of the last change in the log, whatever columns it is about.
async fn next_sequence(store: &Store, updates: &ManifestUpdates) -> Result<u64> {
    let (path, id, start) = (path_of(store, &updates.log)?, updates.log.id, LogPosition::start(&updates.log));
    let log = disk::on_a_thread(move || read_on(&path, &id, start)).await.map_err(|error| Error::task(&error))??;
    Ok(log.read.commits.last().map_or(start.next, |last| last.sequence + 1))
}

fn parted(table: &BaseTable, store: &Store, why: &str) -> Error {
    Error::new(
        ErrorKind::StoreMismatch,
        format!(
            "the store {} has buffered changes that may not be those of the Delta table {}: {why}. Put the right one back, or decide: \
             `lakemark repair {} --buffered keep` lets them count over what the table has, `--buffered discard` forgets them",
            store.text(),
            table.location(),
            table.location()
        ),
    )
}

/// What a manifest says of the table from now on.
fn delta_of(base: &Snapshot, migrated: u64) -> Option<ManifestDelta> {
    let version = base.delta_version()?;
    Some(ManifestDelta { table_id: base.table_id()?.to_owned(), last_migration: migrated, version })
}

/// Takes the table over as it is, where nothing is buffered that the table may not have. The caller holds the lock of writers. Says whether
/// there was something to do.
pub(crate) async fn take_over_if_empty(table: &BaseTable, base: &Snapshot) -> Result<bool> {
    let store = table.writable_store()?;
    let Some(updates) = base.manifest.as_ref().and_then(|manifest| manifest.updates()) else { return Ok(false) };
    let Some(next) = next_of_none(&base.lineage, table, store, updates).await? else { return Ok(false) };
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

/// Lets a store and a table that do not belong together go on, as the caller decides. Says whether they did not belong together.
pub(crate) async fn repair(table: &BaseTable, action: RepairAction) -> Result<bool> {
    table.check_open_for_changes()?;
    let store = table.writable_store()?;
    let _migration = MigrationLock::take(store).await?;
    let _writer = WriterLock::take(store).await?;
    let base = Snapshot::pin_base(table).await?;
    let updates = base.manifest.as_ref().and_then(|manifest| manifest.updates()).ok_or_else(|| no_key(table))?;
    if matches!(base.lineage, Lineage::Same { .. }) {
        return Ok(false);
    }
    let log = match action {
        RepairAction::Keep => None,
        RepairAction::Discard => {
            let through = if let Lineage::Behind { through, .. } = base.lineage { through } else { 0 };
            Some(new_log(store, next_sequence(store, updates).await?.max(through + 1)).await?)
        }
    };
    take_over(store, &base, log).await.map(|()| true)
}
