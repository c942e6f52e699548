//! The types that partition columns had when the changes of a log were made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use arrow::datatypes::{DataType, Schema};
use lakemark_format::{LoggedCommit, ManifestLog};

use super::log_file::{self, LogPosition, OpenLog};
use super::log_tail::schema_of;
use crate::error::{Error, Result};
use crate::storage::disk;
use crate::store::Store;

/// Types by column.
pub(crate) type TypesByColumn = BTreeMap<String, BTreeSet<DataType>>;

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

impl LogTypes {
    /// The types of a log, read on from where it was read before.
    pub(crate) async fn of_log(
        &self,
        store: &Store,
        log: &ManifestLog,
        columns: BTreeSet<String>,
    ) -> Result<TypesByColumn> {
        let path = log_file::path_of(store, log)?;
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = known.filter(|seen| seen.log == log.id && seen.columns == columns);
        let nothing = || SeenTypes { log: log.id, read: LogPosition::start(log), columns, types: TypesByColumn::new() };
        let mut seen = known.unwrap_or_else(nothing);
        let seen = disk::on_a_thread(move || seen.read_on(&path).map(|()| seen))
            .await
            .map_err(|error| Error::task(&error))??;
        let types = seen.types.clone();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        Ok(types)
    }
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
