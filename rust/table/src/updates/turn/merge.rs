//! Merging runs: N neighbours that were written once become one that was written twice (MaSM-M, figure 3.9).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use lakemark_format::{ManifestRun, ManifestUpdates, WriteCounters};
use lakemark_index::RowSet;

use super::merge_policy::to_merge;
use super::write_turn::WriteTurn;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::storage::failpoint::reach;
use crate::store::Store;
use crate::store::transaction::{Edit, bound_by_migration, commit};
use crate::updates::key::KeyColumns;
use crate::updates::parameters::Parameters;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::hits::{RunHits, hits_of};
use crate::updates::runs::known_hits::{FilePositions, HitsOfFile};
use crate::updates::runs::position_map::PositionMapBuilder;
use crate::updates::runs::position_map_file::position_map_of;
use crate::updates::runs::resolve_keys::KeyResolver;
use crate::updates::runs::run_cache::RunCache;
use crate::updates::runs::run_writer::{FinishedRun, RunWriter, SequenceRange, buffered};
use crate::updates::runs::sorted_run::{SortedRun, SortedRunRows};
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};

/// Rows that are written at a time.
const BATCH_ROWS: usize = 4096;
/// A row that is not in the merged run.
const DROPPED: u32 = u32::MAX;

/// What a merge is made with.
pub(super) struct MergeGround<'a> {
    store: &'a Arc<Store>,
    /// The data files, without any buffered change.
    base: &'a Snapshot,
    parameters: &'a Parameters,
    /// What is known of runs.
    known: &'a RunCache,
    updated: UpdateContext<'a>,
    /// All runs, oldest first.
    runs: Vec<ActiveRun>,
}

impl<'a> MergeGround<'a> {
    /// Opens the runs of the manifest of this number. The base gets the types that their changes need.
    pub(super) async fn of(
        table: &'a UpdatableTable,
        store: &'a Arc<Store>,
        base: &'a mut Snapshot,
        updates: &'a ManifestUpdates,
        number: u64,
        parameters: &'a Parameters,
    ) -> Result<Self> {
        let files = &table.merged_views.files;
        let state = ManifestState { number, migration_done: base.migration_done() };
        let updated = UpdateContext::of(base, store, files, updates, state, UpdateScope::Log).await?;
        let runs = updated.active_runs(base, files).await?;
        Ok(Self { store, base, parameters, known: &files.runs, updated, runs })
    }
}

/// Merges runs, in a turn of a writer, until a scan has few enough of them.
pub(super) async fn merge_oldest(writing: &mut WriteTurn<'_>) -> Result<()> {
    loop {
        let Some(manifest) = writing.store.newest().await?.manifest else { return Ok(()) };
        let Some(updates) = manifest.updates().cloned() else { return Ok(()) };
        let Some(chosen) = to_merge(&updates, &writing.parameters, bound_by_migration(&updates)) else {
            writing.table.merged_views.files.runs.retain(&updates.runs);
            return Ok(());
        };
        let (table, store, base) = (writing.table, writing.store, &mut writing.base);
        let ground = MergeGround::of(table, store, base, &updates, manifest.number(), &writing.parameters).await?;
        let merged = merge(&ground, chosen.clone()).await?;
        commit_merged(store, updates.runs.get(chosen).unwrap_or_default(), merged).await?;
    }
}

/// Puts a run in the place of those that it was merged of. Where these are not as they were, or a migration names them, the run is removed.
/// Says whether it took their place. The caller holds the lock of writers.
pub(super) async fn commit_merged(store: &Store, parts: &[ManifestRun], merged: ManifestRun) -> Result<bool> {
    let written = WriteCounters { merged_bytes: merged.length, merged_rows: merged.rows.into(), ..Default::default() };
    let edit = Edit::MergeRuns { parts: parts.to_vec(), run: Box::new(merged.clone()), written };
    let committed = commit(store, &edit).await?;
    if !committed.changed {
        discard(store, &merged).await;
    }
    reach("merge-committed");
    Ok(committed.changed)
}

/// Removes a run that no manifest names.
pub(super) async fn discard(store: &Store, run: &ManifestRun) {
    store.discard(&run.path).await;
    if let Some(position_map) = &run.position_map {
        store.discard(&position_map.path).await;
    }
}

/// Writes a run of some neighbours, which no manifest names yet.
pub(super) async fn merge(ground: &MergeGround<'_>, chosen: std::ops::Range<usize>) -> Result<ManifestRun> {
    let MergeGround { store, base, parameters, known, updated, runs } = ground;
    let merged: &[ActiveRun] = runs.get(chosen.clone()).unwrap_or_default();
    let newer = runs.get(chosen.end..).unwrap_or_default();
    let names = base.column_names().cloned();
    let (schema, key) = (&updated.schema, &updated.key);
    let mut out = RunWriter::new(store, schema, key, names.as_deref(), parameters);
    let mut places: Vec<Vec<u32>> = merged.iter().map(|of| vec![DROPPED; of.run.row_count() as usize]).collect();
    let dead = dead_rows(key, merged, newer).await?;
    let mut cursors = Vec::with_capacity(merged.len());
    for of in merged {
        cursors.push(RunCursor::open(&of.run, &updated.schema, &updated.key).await?);
    }
    let mut heap: BinaryHeap<Reverse<(Vec<u8>, Reverse<usize>)>> = BinaryHeap::new();
    for (number, cursor) in cursors.iter().enumerate() {
        heap.extend(cursor.key().map(|key| Reverse((key, Reverse(number)))));
    }
    let (mut next, mut last): (u32, Option<Vec<u8>>) = (0, None);
    let mut gathered = GatheredRows::default();
    while let Some(Reverse((key, Reverse(number)))) = heap.pop() {
        let Some(cursor) = cursors.get_mut(number) else { continue };
        // Of equal keys the row of the newest run comes first.
        let is_first = last.as_ref() != Some(&key);
        if last.as_ref().is_some_and(|last| *last > key) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a run is not in the order of the table's key, whose type was changed since; runs stay as they are until they are migrated",
            ));
        }
        let row = cursor.position;
        if is_first && dead.get(number).is_some_and(|dead| !dead.contains(row)) {
            gathered.push(number, cursor);
            if let Some(place) = places.get_mut(number).and_then(|places| places.get_mut(row as usize)) {
                *place = next;
            }
            next += 1;
        }
        last = Some(key);
        if gathered.rows.len() >= BATCH_ROWS {
            out.write(&gathered.take()?)?;
        }
        if cursor.advance().await? {
            gathered.forget(number);
        }
        heap.extend(cursor.key().map(|key| Reverse((key, Reverse(number)))));
    }
    out.write(&gathered.take_or(&updated.schema)?)?;
    let has_migrated = merged.iter().any(|of| !of.migrated.is_empty());
    let sequences = sequences_of(updated.updates.runs.get(chosen).unwrap_or_default(), has_migrated);
    let buffered = merged.iter().filter_map(|of| buffered(&of.run)).sum();
    let FinishedRun { mut run, filter } = out.finish(2, sequences, buffered).await?;
    reach("merge-written");
    let ground = KeyResolver { base, key: &updated.key, schema: &updated.schema };
    let newer_hits = hits_of_each(&ground, newer).await?;
    let mut resolved = PositionMapBuilder::in_files(base.files());
    for ((of, dead), places) in merged.iter().zip(&dead).zip(&places) {
        let hits = kept_hits(&ground, of, dead, &newer_hits).await?;
        let place = |row: u32| places.get(row as usize).copied().filter(|place| *place != DROPPED);
        resolved.add(hits, of.run.all_replaced(), place);
    }
    let sorted = resolved.into_run(run.rows);
    for above in newer {
        above.run.set_replaced(run.id, RowSet::empty(run.rows));
    }
    run.position_map = position_map_of(store, &sorted, &run, filter.clone()).await;
    known.put_written(run.id, sorted, filter);
    Ok(run)
}

/// The rows of each run that need not be written again, as they are migrated or a newer run replaces them.
async fn dead_rows(key: &KeyColumns, merged: &[ActiveRun], newer: &[ActiveRun]) -> Result<Vec<RowSet>> {
    let mut dead = Vec::with_capacity(merged.len());
    for of in merged {
        let mut rows = of.migrated.clone();
        for above in newer {
            rows = rows.or(above.replaced_in(&of.run, key).await?.as_ref());
        }
        dead.push(rows);
    }
    Ok(dead)
}

/// What each run hits in the data files, as far as its rows count.
async fn hits_of_each(ground: &KeyResolver<'_>, runs: &[ActiveRun]) -> Result<Vec<RunHits>> {
    let mut all = Vec::with_capacity(runs.len());
    for run in runs {
        all.push(hits_of(ground, run).await?);
    }
    Ok(all)
}

/// What those rows of a run hit in data files that the merged run keeps. `dead` are the other rows: rows that were migrated, and rows that
/// a newer run replaces. That newer run hits their keys as well.
async fn kept_hits(
    ground: &KeyResolver<'_>,
    of: &ActiveRun,
    dead: &RowSet,
    newer: &[RunHits],
) -> Result<Vec<HitsOfFile>> {
    // Files in which the run was not searched yet are searched now: the merged run is resolved in all of them.
    let own = hits_of(ground, of).await?;
    if dead.is_empty() {
        return Ok(of.run.hits_with_rows());
    }
    let mut kept = Vec::with_capacity(own.len());
    for (place, hits) in own {
        let Some(file) = ground.base.files().get(place) else { continue };
        let mut deleted = hits.deleted.as_ref().clone();
        for above in newer.iter().filter_map(|files| files.get(&place)) {
            deleted = deleted.minus(&above.deleted);
        }
        let hits = Arc::new(FilePositions { deleted: Arc::new(deleted), ..hits.as_ref().clone() });
        kept.push(HitsOfFile { file: file.version(), hits });
    }
    Ok(kept)
}

/// The sequence numbers of a merged run. Where the run lacks rows that were migrated, its last number is one too low. The missing number
/// shows that not every change is there any more: see `checks::known_from`.
fn sequences_of(runs: &[ManifestRun], has_migrated: bool) -> SequenceRange {
    let first = runs.first().map_or(0, |run| run.first_sequence);
    let last = runs.last().map_or(first, |run| run.last_sequence);
    SequenceRange { first, last: if has_migrated { last.saturating_sub(1).max(first) } else { last } }
}

/// A run that is read from its first row to its last.
struct RunCursor {
    batches: BoxStream<'static, Result<RecordBatch>>,
    batch: RecordBatch,
    keys: Option<arrow::row::Rows>,
    key_columns: Arc<KeyColumns>,
    row: usize,
    /// Rows that the cursor has passed.
    position: u32,
}

impl RunCursor {
    async fn open(run: &SortedRun, schema: &SchemaRef, key: &Arc<KeyColumns>) -> Result<Self> {
        let SortedRunRows::File(file) = &run.rows else { return Err(Error::internal("a run is not on the disk")) };
        let batch = RecordBatch::new_empty(Arc::clone(schema));
        let batches = file.read(schema, None)?;
        let mut cursor = Self { batches, batch, keys: None, key_columns: Arc::clone(key), row: 0, position: 0 };
        cursor.fill().await?;
        Ok(cursor)
    }

    async fn fill(&mut self) -> Result<()> {
        self.keys = None;
        self.row = 0;
        while let Some(batch) = self.batches.try_next().await? {
            if batch.num_rows() > 0 {
                self.keys = Some(self.key_columns.encode(&batch)?);
                self.batch = batch;
                break;
            }
        }
        Ok(())
    }

    fn key(&self) -> Option<Vec<u8>> {
        self.keys.as_ref().filter(|keys| self.row < keys.num_rows()).map(|keys| keys.row(self.row).as_ref().to_vec())
    }

    /// Goes to the next row; says whether that row is in another batch.
    async fn advance(&mut self) -> Result<bool> {
        self.row += 1;
        self.position += 1;
        if self.row < self.batch.num_rows() {
            return Ok(false);
        }
        self.fill().await?;
        Ok(true)
    }
}

/// Rows of several batches that are put together.
#[derive(Default)]
struct GatheredRows {
    batches: Vec<RecordBatch>,
    /// The place among them of the current batch of each run.
    places: std::collections::HashMap<usize, usize>,
    rows: Vec<(usize, usize)>,
}

impl GatheredRows {
    fn push(&mut self, run: usize, cursor: &RunCursor) {
        let batches = &mut self.batches;
        let place = *self.places.entry(run).or_insert_with(|| {
            batches.push(cursor.batch.clone());
            batches.len() - 1
        });
        self.rows.push((place, cursor.row));
    }

    /// The run goes on with another batch.
    fn forget(&mut self, run: usize) {
        self.places.remove(&run);
    }

    fn take(&mut self) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let rows = interleave_record_batch(&batches, &self.rows)
            .map_err(|error| Error::internal("runs cannot be merged").with_source(error))?;
        *self = Self::default();
        Ok(rows)
    }

    fn take_or(&mut self, schema: &SchemaRef) -> Result<RecordBatch> {
        if self.rows.is_empty() { Ok(RecordBatch::new_empty(Arc::clone(schema))) } else { self.take() }
    }
}
