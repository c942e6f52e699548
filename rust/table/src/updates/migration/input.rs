//! What a migration compacts: selected rows of runs, and the rows of data files that they delete or replace.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_format::ManifestUpdates;
use lakemark_index::RowSet;

use crate::error::{Error, Result};
use crate::rewrite::RowBlock;
use crate::snapshot::DataFile;
use crate::updates::changes::rows::as_table;
use crate::updates::key::KeySet;
use crate::updates::lookup::key_positions::{FilesToSearch, KeyPositions, positions_of_keys};
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::resolve_keys::KeyResolver;
use crate::updates::runs::sorted_run::{SortedRun, SortedRunRows, select_rows};
use crate::updates::view::context::UpdateContext;
use crate::updates::view::merged_view::{LiveRows, MergedView};

/// Runs of together so many bytes are read once and kept in memory. Rows of others are read as they are needed, file by file.
const HELD_BYTES: u64 = 64 << 20;

/// The rows that are compacted, and those that they delete or replace.
pub(super) struct MigrationInput {
    /// Rows of data files that are replaced or deleted.
    pub deleted: Vec<Option<Arc<RowSet>>>,
    /// Rows that get into data files.
    pub rows: Vec<Arc<dyn RowBlock>>,
    /// Rows of runs whose keys are compacted.
    pub keys: Vec<LiveRows>,
}

impl MigrationInput {
    pub(super) async fn of(
        updated: &UpdateContext<'_>,
        ground: &KeyResolver<'_>,
        runs: &[ActiveRun],
        view: &MergedView,
        updates: &ManifestUpdates,
    ) -> Result<Self> {
        let table = ground.base.schema();
        let mut deleted: Vec<Option<RowSet>> = vec![None; ground.base.files().len()];
        let mut rows = Vec::new();
        let slices = updates.migration.iter().flat_map(|migration| &migration.ranges);
        let slices: Vec<_> = slices.collect();
        let (mut is_whole, mut migrated_keys) = (true, Vec::new());
        let mut held = 0;
        for (number, (stacked, live)) in runs.iter().zip(&view.live_rows).enumerate() {
            let mut slice = RowSet::empty(stacked.run.row_count());
            for range in slices.iter().filter(|range| range.run as usize == number) {
                slice = slice.or(&RowSet::from_range(range.rows.clone(), stacked.run.row_count()));
            }
            is_whole &= stacked.active().is_subset(&slice);
            let wanted = live.rows.and(&slice);
            if !wanted.is_empty()
                && let SortedRunRows::File(file) = &stacked.run.rows
            {
                held += file.meta().size;
                rows.push(match held <= HELD_BYTES {
                    true => {
                        let part: Arc<dyn RowBlock> =
                            Arc::new(as_table(&stacked.run.read(&updated.schema, &wanted).await?, &table)?);
                        part
                    }
                    false => Arc::new(RunRemainder { run: Arc::clone(&stacked.run), rows: wanted.iter().collect() }),
                });
            }
            if !slice.is_empty() {
                migrated_keys.push(LiveRows { run: Arc::clone(&stacked.run), rows: slice });
            }
        }
        if is_whole {
            for (file, hidden) in view.deleted.iter() {
                if let Some(slot) = deleted.get_mut(*file) {
                    *slot = Some(hidden.rows.as_ref().clone());
                }
            }
            // Rows of updates that were completed again are in memory only.
            rows.extend(view.buffered.batches.iter().cloned().map(in_memory));
        } else {
            let mut all_keys = Vec::with_capacity(migrated_keys.len());
            for migrated in &migrated_keys {
                let keys = migrated.run.keys(&updated.key, &migrated.rows).await?;
                for KeyPositions { file, rows, .. } in
                    positions_of_keys(ground.base, &updated.key, &keys, FilesToSearch::All).await?
                {
                    if let Some(slot) = deleted.get_mut(file).filter(|_| !rows.is_empty()) {
                        *slot = Some(slot.take().map_or_else(|| rows.clone(), |have| have.or(&rows)));
                    }
                }
                all_keys.push(keys);
            }
            rows.extend(completed_again(updated, &view.buffered.batches, &all_keys)?.into_iter().map(in_memory));
        }
        let left = |(rows, file): (Option<RowSet>, &DataFile)| {
            // A new file leaves out in any case what is deleted already, which is no reason to make one.
            let rows =
                rows.map(|rows| file.deleted.as_ref().map_or_else(|| rows.clone(), |deleted| rows.minus(deleted)));
            rows.filter(|rows| !rows.is_empty()).map(Arc::new)
        };
        let deleted = deleted.into_iter().zip(ground.base.files()).map(left).collect();
        Ok(Self { deleted, rows, keys: migrated_keys })
    }
}

/// The rows in memory with one of the keys.
fn completed_again(updated: &UpdateContext<'_>, batches: &[RecordBatch], keys: &[KeySet]) -> Result<Vec<RecordBatch>> {
    let mut rows = Vec::new();
    for batch in batches {
        let encoded = updated.key.encode(batch)?;
        let is_migrated = |row: &[u8]| keys.iter().any(|keys| keys.contains(row));
        let found = encoded.iter().zip(0u32..).filter(|(row, _)| is_migrated(row.as_ref())).map(|(_, row)| row);
        let found = RowSet::from_rows(found.collect(), u32::try_from(batch.num_rows()).unwrap_or(u32::MAX));
        if !found.is_empty() {
            rows.push(select_rows(batch, &found)?);
        }
    }
    Ok(rows)
}

fn in_memory(rows: RecordBatch) -> Arc<dyn RowBlock> {
    Arc::new(rows)
}

/// Rows of a run that stay there until a file needs them.
struct RunRemainder {
    run: Arc<SortedRun>,
    /// Their places in the run.
    rows: Vec<u32>,
}

impl RowBlock for RunRemainder {
    fn row_count(&self) -> usize {
        self.rows.len()
    }

    fn read<'a>(&'a self, columns: &'a SchemaRef, rows: Option<&'a [u32]>) -> BoxFuture<'a, Result<RecordBatch>> {
        async move {
            let places: Option<Vec<u32>> = match rows {
                None => Some(self.rows.clone()),
                Some(rows) => rows.iter().map(|row| self.rows.get(*row as usize).copied()).collect(),
            };
            let places = places.ok_or_else(|| Error::internal("a row of a run out of range"))?;
            self.run.read(columns, &RowSet::from_rows(places, self.run.row_count())).await
        }
        .boxed()
    }
}
