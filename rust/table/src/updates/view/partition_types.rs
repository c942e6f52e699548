//! The types of the partition columns of a folder while changes are buffered.
//!
//! The names of the folders decide: integers where all of them are, else dates, else text. Other programs add and remove folders, so that
//! the type may change while a change is buffered. The change keeps the value that it was written with. Where the value has another type
//! than the folders, the column is text. Texts have integers and dates as their folders are called.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Field};
use lakemark_format::{ManifestLog, ManifestUpdates};

use super::update_files::UpdateFiles;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::updates::changes::phase::MigrationPhase;
use crate::updates::runs::sorted_run::SortedRunRows;

/// The partition columns of a folder that runs, or the log if it is given, have in other types than the folders, where the folders' types
/// are no text. A Delta table itself says which types its columns have.
pub(crate) async fn changed_types(
    base: &Snapshot,
    store: &Store,
    updates: &ManifestUpdates,
    log: Option<&ManifestLog>,
    files: &UpdateFiles,
) -> Result<BTreeSet<String>> {
    let is_narrow = |of: &DataType| !of.is_string();
    let narrow: Vec<_> = base.partition_columns().iter().filter(|column| is_narrow(column.data_type())).collect();
    let mut others = BTreeSet::new();
    if narrow.is_empty() || base.delta_version().is_some() {
        return Ok(others);
    }
    for run in &updates.runs {
        let phase = MigrationPhase::of(run, updates, base.migration_done());
        let sorted = files.runs.get(store, run, base.column_names(), phase).await?;
        let SortedRunRows::File(file) = &sorted.rows else { continue };
        let is_other = |column: &&&Field| {
            file.schema().field_with_name(column.name()).is_ok_and(|had| had.data_type() != column.data_type())
        };
        others.extend(narrow.iter().filter(is_other).map(|column| column.name().clone()));
    }
    if let Some(log) = log {
        let columns = base.partition_columns().iter().map(|column| column.name().clone()).collect();
        let types = files.types.of_log(store, log, columns).await?;
        let is_other = |column: &&&Field| {
            types.get(column.name()).is_some_and(|types| types.iter().any(|had| had != column.data_type()))
        };
        others.extend(narrow.iter().filter(is_other).map(|column| column.name().clone()));
    }
    Ok(others)
}
