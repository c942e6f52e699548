//! Whether changes can be made: rows that fit the table, keys that are not there yet, and nobody who was faster.

use std::sync::Arc;

use arrow::array::RecordBatch;
use lakemark_format::{ManifestUpdates, Operation};
use lakemark_index::RowSet;

use super::conflict_check::{SeenState, changed_since};
use super::write_turn::WriteTurn;
use crate::error::{Error, ErrorKind, Result};
use crate::updates::changes::change::{Change, WriteOptions, fitted};
use crate::updates::changes::rows::ChangeColumns;
use crate::updates::key::KeySet;
use crate::updates::runs::sorted_run::select_rows;

/// A change in the types of the table that can be made.
pub(crate) struct CheckedChange {
    pub operation: Operation,
    /// The rows in the types of the table.
    pub rows: RecordBatch,
}

/// Changes in the types of the table; an error if they cannot be made.
pub(crate) async fn checked(
    writing: &mut WriteTurn<'_>,
    changes: &[Change],
    options: &WriteOptions,
) -> Result<Vec<CheckedChange>> {
    let schema = writing.base.schema();
    let fit = |change: &Change| {
        let rows = fitted(change, &schema, &writing.key)?;
        Ok(CheckedChange { operation: change.operation, rows })
    };
    let fits = changes.iter().map(fit).collect::<Result<Vec<_>>>()?;
    check(writing, &fits, options).await?;
    Ok(fits)
}

/// Whether keys that are inserted are there already, and whether somebody was faster.
async fn check(writing: &mut WriteTurn<'_>, changes: &[CheckedChange], options: &WriteOptions) -> Result<()> {
    let key = Arc::clone(&writing.key);
    // What an earlier operation of the same call did to a key decides over what is there.
    let mut own: Vec<(Operation, KeySet)> = Vec::new();
    for CheckedChange { operation, rows } in changes {
        let keys = KeySet::of(&key, key.columns(rows)?)?;
        if let Some(read_at) = options.read_at {
            check_since(writing, rows, &keys, read_at).await?;
        }
        if let Some(read) = &options.read {
            let view = writing.before().await?;
            let now = SeenState { base: &writing.base, view: &view };
            if let Some(key) = changed_since(read, &now, &key, &keys).await? {
                return Err(conflict(&key));
            }
        }
        if *operation == Operation::Insert {
            // An update brings no row that is not there.
            let decisive = own.iter().rev().filter(|(of, _)| *of != Operation::Update);
            let earlier = |bytes: &[u8]| decisive.clone().find(|(_, keys)| keys.contains(bytes)).map(|(of, _)| *of);
            check_absent(writing, rows, &earlier).await?;
        }
        own.push((*operation, keys));
    }
    Ok(())
}

async fn check_absent(
    writing: &mut WriteTurn<'_>,
    rows: &RecordBatch,
    earlier: &(dyn Fn(&[u8]) -> Option<Operation> + Send + Sync),
) -> Result<()> {
    let key = Arc::clone(&writing.key);
    let mut open = Vec::new();
    for (row, bytes) in key.encode(rows)?.iter().enumerate() {
        let recent = writing.tail.changes.last(bytes.as_ref()).filter(|last| last.sequence >= writing.first);
        match earlier(bytes.as_ref()).or(recent.map(|last| last.operation)) {
            Some(Operation::Delete) => {}
            Some(Operation::Insert | Operation::Upsert) => return Err(exists(&key.display(rows, row))),
            Some(Operation::Update) | None => open.extend(u32::try_from(row)),
        }
    }
    if open.is_empty() {
        return Ok(());
    }
    let universe = u32::try_from(rows.num_rows()).unwrap_or(u32::MAX);
    let open = select_rows(rows, &RowSet::from_rows(open, universe))?;
    let keys = KeySet::of(&key, key.columns(&open)?)?;
    match writing.before().await?.present(&writing.base, &key, &keys).await? {
        Some(row) => Err(exists(&key.display(&open, row as usize))),
        None => Ok(()),
    }
}

/// The sequence number from which on every change is still in a run or in the log. Earlier ones may be in data files by now, which do
/// not say when a row was changed.
fn known_from(updates: &ManifestUpdates) -> u64 {
    let mut from = updates.log.first_sequence;
    for run in updates.runs.iter().rev() {
        if run.last_sequence + 1 != from {
            break;
        }
        from = run.first_sequence;
    }
    from
}

/// A key that was changed after `read_at` is a conflict.
async fn check_since(writing: &WriteTurn<'_>, rows: &RecordBatch, keys: &KeySet, read_at: u64) -> Result<()> {
    if read_at.saturating_add(1) < known_from(&writing.updates) {
        return Err(migrated_since());
    }
    let updated = writing.updated();
    for (row, bytes) in updated.key.encode(rows)?.iter().enumerate() {
        if writing.tail.changes.last(bytes.as_ref()).is_some_and(|last| last.sequence > read_at) {
            return Err(conflict(&updated.key.display(rows, row)));
        }
    }
    let runs = updated.active_runs(&writing.base, &writing.table.merged_views.files).await?;
    for (run, stacked) in writing.updates.runs.iter().zip(runs) {
        if run.last_sequence <= read_at {
            continue;
        }
        let found = stacked.run.rows_with(&updated.key, keys).await?;
        let changed = stacked.run.read(&updated.schema, &found).await?;
        let said = ChangeColumns::of(&changed)?;
        if let Some(row) = (0..changed.num_rows()).find(|row| said.sequence(*row) > read_at) {
            return Err(conflict(&updated.key.display(&changed, row)));
        }
    }
    Ok(())
}

fn exists(key: &str) -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        format!("a row with the key {key} is there already, so that nothing was inserted; use upsert to replace it"),
    )
}

fn migrated_since() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "rows were changed and migrated meanwhile, so that nobody can tell whether these are among them; nothing was written, \
         try again",
    )
}

fn conflict(key: &str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "the row with the key {key} was changed by somebody else meanwhile, so that nothing was written; try again"
        ),
    )
}
