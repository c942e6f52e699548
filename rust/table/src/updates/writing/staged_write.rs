//! Rows of changes that other processes write aside, for one call that takes them all in.
//!
//! ```text
//! task ─▶ updates/….arrows ─┐
//! task ─▶ updates/….arrows ─┼─▶ one call: deletes, updates, upserts, inserts ─▶ log or run
//! task that failed: nobody names its file, so that it has no effect, and a vacuum removes it
//! ```
//!
//! Each file is sorted by key, so that a call of any size is merged of them, a part at a time, into one run.

use std::sync::Arc;

use super::bulk_write::{BulkSize, bulk_write};
use super::staged_merge::SortedRows;
use super::staged_rows::{StagedRows, check_name};
use super::write::write;
use crate::error::Result;
use crate::snapshot::BaseTable;
use crate::updates::changes::change::{WriteOptions, Written};
use crate::updates::errors::no_key;
use crate::updates::parameters::Parameters;
use crate::updates::state::keyed_snapshot::KeyedSnapshot;
use crate::updates::state::updatable::UpdatableTable;

/// Makes the changes that staged rows are, in one call, and removes the files.
pub(crate) async fn write_staged(
    table: &Arc<UpdatableTable>,
    staged: &[StagedRows],
    options: WriteOptions,
) -> Result<Written> {
    table.base.check_open_for_changes()?;
    let store = table.base.writable_store()?;
    let KeyedSnapshot { base, key } = KeyedSnapshot::of(table).await?;
    let updates = base.manifest.as_ref().and_then(|manifest| manifest.updates()).ok_or_else(|| no_key(&table.base))?;
    let part_bytes = Parameters::of(&updates.options)?.part_bytes();
    let mut sorted = SortedRows::open(store, staged, &key)?;
    let bytes = staged.iter().map(|file| file.bytes).sum();
    let written = if bytes <= part_bytes {
        let part = sorted.next_part(usize::MAX)?;
        write(table, part.map(|part| part.changes).unwrap_or_default(), options).await?
    } else {
        let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        bulk_write(table, sorted, BulkSize { part_bytes, staged_bytes: bytes }, options).await?
    };
    discard_staged(&table.base, staged).await?;
    Ok(written)
}

/// Removes the files of staged rows that no call will name.
pub(crate) async fn discard_staged(table: &BaseTable, staged: &[StagedRows]) -> Result<()> {
    let store = table.writable_store()?;
    for file in staged {
        check_name(file)?;
        store.discard(&file.path).await;
    }
    Ok(())
}
