//! The first half of a slice of a migration: a manifest names the rows of runs that are compacted.

use std::collections::HashMap;
use std::sync::Arc;

use lakemark_format::{ManifestMigration, ManifestUpdates, RunRange};
use lakemark_index::RowSet;

use super::key_range_end::{RangeEnd, rows_in_range};
use super::newest_runs::NewestRuns;
use super::plan::flush_if_room;
use crate::error::{Error, ErrorKind, Result};
use crate::store::locks::holding;
use crate::store::transaction::{Edit, begin_migration, commit};
use crate::updates::errors::no_key;
use crate::updates::locks::MigrationLock;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::turn::write_turn::WriteTurn;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};

/// What a migration compacts.
pub(crate) struct StartedMigration {
    pub number: u64,
    pub updates: ManifestUpdates,
    /// All rows of the runs are compacted: all changes below the first one of the log.
    pub is_whole: bool,
    /// Whether the cache had no room for a run of the buffer.
    pub buffer_stays: bool,
}

/// What came of the wish to begin a slice.
pub(super) enum Begun {
    Started(Box<StartedMigration>),
    /// There is nothing to compact.
    Nothing,
    /// The key has other types than those that the end of the slice goes by.
    Outdated,
}

/// Which rows are compacted.
#[derive(Clone, Debug)]
pub(super) struct SliceRequest {
    /// Where the slice ends; none for all rows.
    pub end: Option<RangeEnd>,
    /// Whether the buffer becomes a run before, where it fits the cache.
    pub flushes: bool,
    /// Nothing is compacted while less of the cache than this is full.
    pub threshold: Option<f64>,
}

/// [`begin`] as a task of its own: the locks are held until what it commits is committed, also if the caller goes away.
pub(super) async fn begin_apart(
    table: &Arc<UpdatableTable>,
    request: SliceRequest,
    lock: &MigrationLock,
) -> Result<Begun> {
    let table = Arc::clone(table);
    holding(lock.clone(), async move { begin(&table, &request).await }).await?
}

/// Says which rows of which runs are compacted.
async fn begin(table: &Arc<UpdatableTable>, request: &SliceRequest) -> Result<Begun> {
    // What takes reading is done before writers have to wait.
    let (end, mut found) = (request.end.as_ref(), HashMap::new());
    if let Some(end) = end {
        let Some(now) = NewestRuns::of(table).await? else { return Ok(Begun::Nothing) };
        if !end.is_of(&now.key) {
            return Ok(Begun::Outdated);
        }
        found = now.rows_in_range(end).await?;
    }
    let mut writing = WriteTurn::begin(table).await?;
    if writing.is_below(request.threshold) {
        return Ok(Begun::Nothing);
    }
    let buffer_stays = request.flushes && flush_if_room(&mut writing).await?;
    let newest = writing.store.newest().await?;
    let manifest = newest.manifest.ok_or_else(|| no_key(&table.base))?;
    let mut updates = manifest.updates().ok_or_else(|| no_key(&table.base))?.as_ref().clone();
    let (store, state) = (writing.store, ManifestState { number: manifest.number(), migration_done: false });
    let files = &table.merged_views.files;
    let updated = UpdateContext::of(&mut writing.base, store, files, &updates, state, UpdateScope::Log).await?;
    // Neither the end nor what was found up to it says anything of keys of other types.
    if end.is_some_and(|end| !end.is_of(&updated.key)) {
        return Ok(Begun::Outdated);
    }
    let runs = updated.active_runs(&writing.base, files).await?;
    let slices = slices(&updated, &runs, end, &found).await?;
    if slices.is_empty() {
        return Ok(Begun::Nothing);
    }
    let number = updates.migrations + 1;
    let migration = ManifestMigration { number, ranges: slices };
    if !commit(writing.store, &Edit::BeginMigration { migration: migration.clone() }).await?.changed {
        return Err(Error::new(ErrorKind::Conflict, "another migration of the table was begun meanwhile; try again"));
    }
    // The migration does not need runs behind those that it names, and writers may merge these meanwhile.
    let named = migration.ranges.iter().map(|range| range.run as usize + 1).max().unwrap_or(0);
    begin_migration(&mut updates, migration);
    updates.runs.truncate(named);
    Ok(Begun::Started(Box::new(StartedMigration { number, updates, is_whole: end.is_none(), buffer_stays })))
}

/// The rows of runs that are compacted: those in the range, or all. `found` has what is known of runs that were there before; only runs
/// that writers made since are searched.
async fn slices(
    updated: &UpdateContext<'_>,
    runs: &[ActiveRun],
    end: Option<&RangeEnd>,
    found: &HashMap<[u8; 16], RowSet>,
) -> Result<Vec<RunRange>> {
    let mut chosen = Vec::new();
    for (number, of) in (0u32..).zip(runs) {
        let rows = match (end, found.get(&of.run.id)) {
            (None, _) => of.active(),
            (Some(_), Some(rows)) => rows.and(&of.active()),
            (Some(end), None) => rows_in_range(of, &updated.key, end).await?,
        };
        chosen.extend(rows.iter_ranges().map(|rows| RunRange { run: number, rows }));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::DataType;
    use lakemark_format::Operation;
    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::updates::{Change, WriteOptions};
    use crate::{BuildOptions, Table, TableOptions};

    /// Others may widen a type of the key between two slices: its keys are other bytes then.
    #[tokio::test]
    async fn a_slice_that_was_planned_by_other_types_of_the_key_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let k: ArrayRef = Arc::new((0..50).map(Some).collect::<Int64Array>());
        let rows = RecordBatch::try_from_iter([("k", Arc::clone(&k)), ("v", k)]).unwrap();
        let file = std::fs::File::create(folder.path().join("f.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let table = Table::open_alone(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
        table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        table.write(vec![Change { operation: Operation::Upsert, rows }], WriteOptions::default()).await.unwrap();
        table.flush().await.unwrap();
        let lock = MigrationLock::take(table.base().writable_store().unwrap()).await.unwrap();
        // Greater than any key of four bytes, or of eight.
        let bytes: Box<[u8]> = Box::from([u8::MAX; 9]);
        let of = |key: DataType| {
            let end = Some(RangeEnd { bytes: bytes.clone(), has_key: false, types: vec![key] });
            SliceRequest { end, flushes: false, threshold: None }
        };
        let begun = begin_apart(&table.updates, of(DataType::Int32), &lock).await.unwrap();
        assert!(matches!(begun, Begun::Outdated));
        let begun = begin_apart(&table.updates, of(DataType::Int64), &lock).await.unwrap();
        let Begun::Started(begun) = begun else { panic!("nothing was begun") };
        assert_eq!(begun.updates.migration.unwrap().ranges[0].rows, 0..50);
    }
}
