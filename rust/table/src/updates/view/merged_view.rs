//! The merged view: what buffered changes do to a snapshot, by position.
//!
//! ```text
//! data files      rows whose key is in a run are deleted, like those of a deletion vector      (law 3: before any filter)
//! runs            rows that no newer run replaces, that are no delete, and that are complete
//! memory          the same of the buffer; updates that had to be completed again
//! ```
//!
//! Since everything is a position, reading needs no merge by key: scans read a run like a data file with deleted rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use lakemark_index::RowSet;

use super::context::UpdateContext;
use super::run_stack::{RunStack, StackedRun};
use super::update_files::UpdateFiles;
use crate::error::Result;
use crate::snapshot::{BufferedRows, BufferedRun, DeletedByFile, OpenedRun, Snapshot};
use crate::updates::changes::rows::as_table;
use crate::updates::key::{KeyColumns, KeySet};
use crate::updates::lookup::fetch::RowFile;
use crate::updates::lookup::key_positions::{FilesToSearch, KeyPositions, positions_of_keys};
use crate::updates::parameters::Parameters;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::resolve_keys::{KeyResolver, memory_rows};
use crate::updates::runs::sorted_run::{SortedRun, SortedRunRows, select_rows};

/// Rows of a run that count.
#[derive(Clone, Debug)]
pub(crate) struct LiveRows {
    pub run: Arc<SortedRun>,
    pub rows: RowSet,
}

/// What buffered changes do to a snapshot.
#[derive(Default)]
pub(crate) struct MergedView {
    /// The next sequence number: changes below it are in.
    pub next: u64,
    /// The rows that are deleted or replaced, by the places of the data files that have some.
    pub deleted: Arc<DeletedByFile>,
    pub buffered: Arc<BufferedRows>,
    /// Rows of each run that count, oldest run first.
    pub live_rows: Vec<LiveRows>,
}

impl MergedView {
    /// What runs come to, merged with the data files. `next` is the sequence number behind their changes.
    pub(crate) async fn of(
        ground: &KeyResolver<'_>,
        runs: &[ActiveRun],
        next: u64,
        parameters: &Parameters,
    ) -> Result<Self> {
        Self::of_stack(ground, RunStack::of(ground, runs).await?, next, parameters).await
    }

    /// What a snapshot sees of the runs of a stack.
    pub(crate) async fn of_stack(
        ground: &KeyResolver<'_>,
        stack: RunStack,
        next: u64,
        parameters: &Parameters,
    ) -> Result<Self> {
        let mut buffered = BufferedRows {
            memory_bytes: parameters.scan_bytes(),
            row_group_bytes: parameters.row_group_bytes(),
            ..BufferedRows::default()
        };
        for stacked in &stack.runs {
            add_rows(ground, stacked, &mut buffered).await?;
        }
        let live = stack.runs.into_iter().map(|laid| LiveRows { run: laid.run, rows: laid.rows }).collect();
        Ok(Self { next, deleted: Arc::new(stack.deleted), buffered: Arc::new(buffered), live_rows: live })
    }

    /// The place of one of the keys that is in the table already, if one is.
    pub(crate) async fn present(&self, base: &Snapshot, key: &Arc<KeyColumns>, keys: &KeySet) -> Result<Option<u32>> {
        let place = |rows: &RecordBatch| -> Result<Option<u32>> {
            let first = key.encode(rows)?;
            Ok(first.iter().next().and_then(|row| keys.position(row.as_ref())))
        };
        let schema = key.schema();
        for LiveRows { run, rows } in &self.live_rows {
            let found = run.rows_with(key, keys).await?.and(rows);
            if !found.is_empty() {
                return place(&run.read(&schema, &first_of(&found)).await?);
            }
        }
        // Rows of updates that were completed again are in these batches only.
        for batch in &self.buffered.batches {
            let found = key.encode(batch)?.iter().find_map(|row| keys.position(row.as_ref()));
            if found.is_some() {
                return Ok(found);
            }
        }
        for KeyPositions { file, rows, .. } in positions_of_keys(base, key, keys, FilesToSearch::All).await? {
            let Some(data_file) = base.files().get(file) else { continue };
            let mut live = rows;
            if let Some(deleted) = &data_file.deleted {
                live = live.minus(deleted);
            }
            if let Some(hidden) = self.deleted.get(&file) {
                live = live.minus(&hidden.rows);
            }
            if !live.is_empty() {
                let opened = RowFile::of(base, data_file).open().await?;
                return place(&opened.collect(&schema, Some(&first_of(&live))).await?);
            }
        }
        Ok(None)
    }
}

/// What the runs come to, without what is in the log.
pub(crate) async fn merged_view_of_runs(
    updated: &UpdateContext<'_>,
    base: &Snapshot,
    files: &UpdateFiles,
) -> Result<MergedView> {
    let runs = updated.active_runs(base, files).await?;
    let ground = KeyResolver { base, key: &updated.key, schema: &updated.schema };
    let parameters = Parameters::of(&updated.updates.options)?;
    MergedView::of(&ground, &runs, updated.updates.log.first_sequence, &parameters).await
}

/// Adds the rows of a run that count. Also adds those of its updates whose row is now in a data file that was not there when they were
/// completed.
async fn add_rows(ground: &KeyResolver<'_>, stacked: &StackedRun, buffered: &mut BufferedRows) -> Result<()> {
    let StackedRun { run, rows, incomplete: open } = stacked;
    let table = ground.base.schema();
    match &run.rows {
        SortedRunRows::Memory(batch) if !rows.is_empty() => {
            for part in parts(batch, rows)? {
                buffered.batches.push(as_table(&part, &table)?);
            }
        }
        SortedRunRows::File(file) if !rows.is_empty() => {
            let (meta, row_groups, rows) = (file.meta().clone(), file.row_groups.clone(), rows.clone());
            let (keys, run) = (run.pages(ground.key), OpenedRun::new(Arc::clone(run)));
            buffered.files.push(BufferedRun { meta, row_groups, rows, keys, run });
        }
        SortedRunRows::Memory(_) | SortedRunRows::File(_) | SortedRunRows::None => {}
    }
    if open.is_empty() || memory_rows(run).is_some() {
        return Ok(());
    }
    let completed = ground.complete(&run.read(ground.schema, open).await?).await?;
    let found: Vec<u32> = completed.sources.into_values().flatten().collect();
    if !found.is_empty() {
        let found = RowSet::from_rows(found, open.len());
        buffered.batches.push(as_table(&select_rows(&completed.rows, &found)?, &table)?);
    }
    Ok(())
}

/// The rows of a batch at these positions, without a copy where they are few ranges.
fn parts(batch: &RecordBatch, rows: &RowSet) -> Result<Vec<RecordBatch>> {
    const MOST: usize = 8;
    let ranges: Vec<_> = rows.iter_ranges().take(MOST + 1).collect();
    if ranges.len() > MOST {
        return Ok(vec![select_rows(batch, rows)?]);
    }
    Ok(ranges.into_iter().map(|range| batch.slice(range.start as usize, (range.end - range.start) as usize)).collect())
}

/// The first row of a set.
fn first_of(rows: &RowSet) -> RowSet {
    RowSet::from_rows(rows.iter().take(1).collect(), rows.universe())
}
