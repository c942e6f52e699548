//! The types of the partition columns of a folder while changes are buffered.
//!
//! The names of the folders decide: integers where all of them are, else dates, else text. Other programs add and remove folders, so that
//! the type may change while a change is buffered. The change keeps the value that it was written with. Where the value has another type
//! than the folders, the column is text. Texts have integers and dates as their folders are called.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use arrow::datatypes::{DataType, Field, Schema};
use lakemark_format::{LoggedCommit, ManifestLog, ManifestUpdates};

use super::log_file::{self, LogPosition, OpenLog};
use super::log_tail::schema_of;
use super::merged_view::MergedViewCache;
use super::phase::MigrationPhase;
use super::sorted_run::SortedRunRows;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::disk;
use crate::store::Store;

/// Types by column.
type TypesByColumn = BTreeMap<String, BTreeSet<DataType>>;

/// The types that partition columns have in a log, as far as it was read.
#[derive(Clone, Debug)]
struct SeenTypes {
    log: [u8; 16],
    read: LogPosition,
    columns: BTreeSet<String>,
    types: TypesByColumn,
}

/// What a table remembers of its log.
#[derive(Debug, Default)]
pub(crate) struct LogTypes(Mutex<Option<SeenTypes>>);

/// The partition columns of a folder that runs, or the log if it is given, have in other types than the folders, where the folders' types
/// are no text. A Delta table itself says which types its columns have.
pub(crate) async fn changed_types(
    base: &Snapshot,
    store: &Store,
    updates: &ManifestUpdates,
    log: Option<&ManifestLog>,
    cache: &MergedViewCache,
) -> Result<BTreeSet<String>> {
    let is_narrow = |of: &DataType| !of.is_string();
    let narrow: Vec<_> = base.partition_columns().iter().filter(|column| is_narrow(column.data_type())).collect();
    let mut others = BTreeSet::new();
    if narrow.is_empty() || base.delta_version().is_some() {
        return Ok(others);
    }
    for run in &updates.runs {
        let phase = MigrationPhase::of(run, updates, base.migration_done());
        let level = cache.runs.get(store, run, base.column_names(), phase).await?;
        let SortedRunRows::File(file) = &level.rows else { continue };
        let is_other = |column: &&&Field| {
            file.schema().field_with_name(column.name()).is_ok_and(|had| had.data_type() != column.data_type())
        };
        others.extend(narrow.iter().filter(is_other).map(|column| column.name().clone()));
    }
    if let Some(log) = log {
        let columns = base.partition_columns().iter().map(|column| column.name().clone()).collect();
        let types = of_log(store, log, columns, cache).await?;
        let is_other = |column: &&&Field| {
            types.get(column.name()).is_some_and(|types| types.iter().any(|had| had != column.data_type()))
        };
        others.extend(narrow.iter().filter(is_other).map(|column| column.name().clone()));
    }
    Ok(others)
}

/// The types of a log, read on from where it was read before.
async fn of_log(
    store: &Store,
    log: &ManifestLog,
    columns: BTreeSet<String>,
    cache: &MergedViewCache,
) -> Result<TypesByColumn> {
    let path = log_file::path_of(store, log)?;
    let known = cache.types.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let known = known.filter(|seen| seen.log == log.id && seen.columns == columns);
    let nothing = || SeenTypes { log: log.id, read: LogPosition::start(log), columns, types: TypesByColumn::new() };
    let mut seen = known.unwrap_or_else(nothing);
    let seen =
        disk::on_a_thread(move || seen.read_on(&path).map(|()| seen)).await.map_err(|error| Error::task(&error))??;
    let types = seen.types.clone();
    *cache.types.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    Ok(types)
}

impl SeenTypes {
    fn read_on(&mut self, path: &Path) -> Result<()> {
        let OpenLog { read, .. } = log_file::read_on(path, &self.log, self.read)?;
        for LoggedCommit { sequence, commit } in &read.commits {
            for change in &commit.changes {
                self.add(&*schema_of(&change.rows)?);
            }
            self.read.next = sequence + 1;
        }
        self.read.end = read.end;
        Ok(())
    }

    fn add(&mut self, schema: &Schema) {
        for field in schema.fields().iter().filter(|field| self.columns.contains(field.name())) {
            self.types.entry(field.name().clone()).or_default().insert(field.data_type().clone());
        }
    }
}
