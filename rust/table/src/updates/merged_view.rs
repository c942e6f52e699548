//! The merged view: what buffered changes do to a snapshot, by position.
//!
//! ```text
//! data files      rows whose key is in a run are deleted, like those of a deletion vector      (law 3: before any filter)
//! runs            rows that no newer run replaces, that are no delete, and that are complete
//! memory          the same of the buffer; updates that had to be completed again
//! ```
//!
//! Since everything is a position, reading needs no merge by key: scans read a run like a data file with deleted rows.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use lakemark_format::{ManifestMigration, ManifestUpdates};
use lakemark_index::{RowSet, RowSetBuilder};

use super::active_run::ActiveRun;
use super::errors::no_key;
use super::fetch::RowFile;
use super::key::{KeyColumns, KeySet};
use super::key_positions::{KeyPositions, positions_of_keys};
use super::log_file;
use super::log_tail::{LogTail, LogTailSlot};
use super::parameters::Parameters;
use super::partition_types::{LogTypes, changed_types};
use super::phase::MigrationPhase;
use super::resolve_keys::{KeyResolver, ResolvedBuffer, memory_rows};
use super::rows::{as_table, change_schema};
use super::run_cache::RunCache;
use super::run_stack::{RunStack, StackedRun};
use super::sorted_run::{SortedRun, SortedRunRows, select_rows};
use super::updatable::UpdatableTable;
use crate::error::{Error, Result};
use crate::files::file_version::FileVersion;
use crate::snapshot::{BufferedRows, BufferedRun, DataFile, DeletedPositions, OpenedRun, Snapshot};
use crate::storage::disk;
use crate::store::Store;

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
    /// For each data file the rows that are deleted or replaced, if any are.
    pub deleted: Vec<Option<DeletedPositions>>,
    pub buffered: Arc<BufferedRows>,
    /// Rows of each run that count, oldest run first.
    pub live_rows: Vec<LiveRows>,
}

/// What a merged view was made of.
#[derive(Clone, PartialEq)]
struct ViewKey {
    manifest: u64,
    log: [u8; 16],
    end: u64,
    folded: bool,
    schema: SchemaRef,
    /// The fingerprint of the names that the schema's columns have in files and runs.
    names: u64,
    files: Vec<ViewedFile>,
}

/// A data file that a merged view was made for.
#[derive(Clone, PartialEq)]
struct ViewedFile {
    version: FileVersion,
    /// Rows that its deletion vector deletes.
    deleted: Option<Arc<RowSet>>,
}

/// A merged view that is remembered.
struct KnownView {
    /// What the view was made of.
    of: ViewKey,
    view: Arc<MergedView>,
}

/// What a table remembers of its buffered changes.
#[derive(Default)]
pub(crate) struct MergedViewCache {
    pub(super) runs: RunCache,
    /// What readers read of the log.
    pub(super) reader: LogTailSlot,
    /// What the writer knows of the log. It is not shared, so that adding changes copies nothing.
    pub(super) writer: LogTailSlot,
    /// Which types partition columns had when the changes of the log were made.
    pub(super) types: LogTypes,
    last: Mutex<Option<KnownView>>,
    lower: Mutex<Option<Arc<BaseView>>>,
}

/// The least number of keys with which a buffer is resolved as a whole again.
const FRESH_KEYS: usize = 256;

/// The runs, and the buffer as it was. Changes that come later are merged with them.
struct BaseView {
    /// What the base was made of, but for the log's end.
    of: ViewKey,
    /// The sequence number of the first change that is not in.
    next: u64,
    /// Keys of the buffer.
    buffered: usize,
    levels: Vec<ActiveRun>,
    stack: RunStack,
    /// The changes that came since.
    fresh: Mutex<Option<FreshChanges>>,
}

/// Changes that were resolved above the others.
#[derive(Clone)]
struct FreshChanges {
    /// The sequence number of the first change that is not in.
    next: u64,
    buffer: ResolvedBuffer,
}

impl BaseView {
    /// Whether the tail has the changes since then apart, and they are few beside those that are in. The buffer is resolved as a whole each
    /// time that it has grown by a part. So all of that costs a few times what it costs once.
    fn takes(&self, tail: &LogTail) -> bool {
        tail.since(self.next).is_some_and(|fresh| fresh.len() <= FRESH_KEYS.max(self.buffered / 4))
    }
}

impl std::fmt::Debug for MergedViewCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayCache").finish_non_exhaustive()
    }
}

/// The part of a table that its buffered changes are about.
pub(crate) struct UpdateContext<'a> {
    pub store: &'a Store,
    pub updates: &'a ManifestUpdates,
    pub manifest: u64,
    /// Whether the migration that the manifest names is done.
    pub migration_done: bool,
    pub key: Arc<KeyColumns>,
    /// The schema of changes.
    pub schema: SchemaRef,
}

/// Which manifest is looked at, and how far its migration is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManifestState {
    /// The number of the manifest.
    pub number: u64,
    /// Whether the migration that the manifest names is done.
    pub migration_done: bool,
}

/// The data files of a table, and its key by the columns that they show.
pub(crate) struct KeyedSnapshot {
    pub base: Snapshot,
    pub key: Arc<KeyColumns>,
}

/// How many of the buffered changes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateScope {
    /// The runs alone: nobody keeps the log for whoever reads them.
    Runs,
    /// The log as well.
    Log,
}

/// The fingerprint of the names that columns have in files and logs, where these differ from the schema's names.
fn names_of(base: &Snapshot) -> u64 {
    base.column_names().map_or(0, |names| names.fingerprint())
}

impl<'a> UpdateContext<'a> {
    /// Gives the base the types that buffered changes need: changes of `runs`, and of the log if the log is read as well.
    pub(crate) async fn of(
        base: &mut Snapshot,
        store: &'a Store,
        cache: &MergedViewCache,
        updates: &'a ManifestUpdates,
        state: ManifestState,
        reach: UpdateScope,
    ) -> Result<Self> {
        let log = (reach == UpdateScope::Log).then_some(&updates.log);
        let others = changed_types(base, store, updates, log, cache).await?;
        base.read_as_text(&others)?;
        let table = base.schema();
        let shown = |stored: &String| {
            base.logical_name(stored).map(std::borrow::Cow::into_owned).ok_or_else(|| {
                Error::not_found(format!("the column {stored} of the key is no longer in the table; add it again"))
            })
        };
        let names = updates.key.iter().map(shown).collect::<Result<Vec<_>>>()?;
        let key = KeyColumns::new(&table, &names)?;
        let ManifestState { number: manifest, migration_done } = state;
        Ok(Self { store, updates, manifest, migration_done, key, schema: change_schema(&table) })
    }

    /// The key of a table as writers have it.
    pub(crate) async fn key_of(table: &UpdatableTable) -> Result<KeyedSnapshot> {
        let store = table.base.writable_store()?;
        let mut base = Snapshot::pin_base(&table.base).await?;
        let manifest = base.manifest.clone().ok_or_else(|| no_key(&table.base))?;
        let updates = manifest.updates.as_ref().ok_or_else(|| no_key(&table.base))?;
        let state = ManifestState { number: manifest.number, migration_done: base.migration_done() };
        let context = UpdateContext::of(&mut base, store, &table.overlays, updates, state, UpdateScope::Log);
        let key = context.await?.key;
        Ok(KeyedSnapshot { base, key })
    }

    /// The log, read up to its end: on from what the slot has. The slot is empty then.
    pub(crate) async fn log_tail(&self, base: &Snapshot, slot: &LogTailSlot) -> Result<LogTail> {
        let known = slot.take();
        let log = &self.updates.log;
        let names = names_of(base);
        let is_same =
            |tail: &LogTail| tail.log == log.id && tail.names == names && *tail.changes.schema() == self.schema;
        let mut tail = known.filter(is_same).unwrap_or_else(|| LogTail::new(log, names, &self.schema, &self.key));
        let path = log_file::path_of(self.store, log)?;
        let (schema, names) = (Arc::clone(&self.schema), base.column_names().cloned());
        disk::on_a_thread(move || {
            tail.read_on(&path, &schema, names.as_deref())?;
            Ok::<_, Error>(tail)
        })
        .await
        .map_err(|error| Error::task(&error))?
    }

    /// The runs, oldest first.
    pub(crate) async fn active_runs(&self, base: &Snapshot, cache: &MergedViewCache) -> Result<Vec<ActiveRun>> {
        let mut levels = Vec::with_capacity(self.updates.runs.len());
        for (place, run) in self.updates.runs.iter().enumerate() {
            let phase = MigrationPhase::of(run, self.updates, self.migration_done);
            let level = cache.runs.get(self.store, run, base.column_names(), phase).await?;
            let mut migrated = RowSetBuilder::new(run.rows);
            for rows in &run.migrated {
                migrated.insert_range(rows.clone());
            }
            let mut migrated = migrated.finish();
            if self.migration_done {
                migrated = migrated.or(&slices_of(self.updates.migration.as_ref(), place, run.rows));
            }
            levels.push(ActiveRun { level, migrated });
        }
        Ok(levels)
    }

    /// What the buffered changes come to, for these data files.
    pub(crate) async fn merged_view(&self, base: &Snapshot, cache: &MergedViewCache) -> Result<Arc<MergedView>> {
        let tail = self.log_tail(base, &cache.reader).await?;
        cache.reader.put(tail.clone());
        let made = ViewKey {
            manifest: self.manifest,
            log: tail.log,
            end: tail.end,
            folded: self.migration_done,
            schema: Arc::clone(&self.schema),
            names: names_of(base),
            files: base.files().iter().map(viewed).collect(),
        };
        if let Some(known) = &*cache.last.lock().unwrap_or_else(PoisonError::into_inner)
            && known.of == made
        {
            return Ok(Arc::clone(&known.view));
        }
        cache.runs.retain(&self.updates.runs);
        let ground = KeyResolver { base, key: &self.key, schema: &self.schema };
        let lower = self.lower(&ground, cache, &made, &tail).await?;
        let stack = self.upper(&ground, &lower, &tail).await?;
        let overlay = Arc::new(self.finish_view(&ground, stack, tail.next).await?);
        let known = KnownView { of: made, view: Arc::clone(&overlay) };
        *cache.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(overlay)
    }

    /// What the runs come to, without what is in the log.
    pub(crate) async fn merged_view_of_runs(&self, base: &Snapshot, cache: &MergedViewCache) -> Result<MergedView> {
        let levels = self.active_runs(base, cache).await?;
        let ground = KeyResolver { base, key: &self.key, schema: &self.schema };
        self.view_of(&ground, &levels, self.updates.log.first_sequence).await
    }

    /// The runs and most of the buffer, merged once for a manifest, the files and that part of the log.
    async fn lower(
        &self,
        ground: &KeyResolver<'_>,
        cache: &MergedViewCache,
        made: &ViewKey,
        tail: &LogTail,
    ) -> Result<Arc<BaseView>> {
        let of = ViewKey { end: 0, ..made.clone() };
        let known = cache.lower.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.of == of && known.takes(tail)) {
            return Ok(known);
        }
        let mut levels = self.active_runs(ground.base, cache).await?;
        let mut buffered = 0;
        if tail.changes.len() > 0 {
            let level = Arc::new(ground.resolve_keys(tail.log, tail.changes.finish()?, &levels).await?);
            buffered = tail.changes.len();
            levels.push(ActiveRun { migrated: RowSet::empty(level.row_count()), level });
        }
        let stack = self.stack_runs(ground, &levels).await?;
        let lower = Arc::new(BaseView { of, next: tail.next, buffered, levels, stack, fresh: Mutex::default() });
        *cache.lower.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&lower));
        cache.reader.split(tail);
        Ok(lower)
    }

    /// The changes that came since, merged with the others.
    async fn upper(&self, ground: &KeyResolver<'_>, lower: &BaseView, tail: &LogTail) -> Result<RunStack> {
        let mut stack = lower.stack.clone();
        let Some(fresh) = tail.since(lower.next).filter(|fresh| fresh.len() > 0) else { return Ok(stack) };
        // A run of its own, since the one below has the id of the log.
        let id = tail.log.map(|byte| !byte);
        let before = lower.fresh.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Other readers may have read further.
        let level = match before.filter(|before| before.next <= tail.next) {
            Some(FreshChanges { buffer, .. }) => {
                ground.resolve_incrementally(&buffer, id, fresh.finish()?, &lower.levels).await?
            }
            None => ground.resolve_keys(id, fresh.finish()?, &lower.levels).await?,
        };
        let settled = ResolvedBuffer::new(Arc::new(level), &self.key)?;
        let migrated = RowSet::empty(settled.level.row_count());
        stack.add(ground, &ActiveRun { level: Arc::clone(&settled.level), migrated }).await?;
        let settled = FreshChanges { next: tail.next, buffer: settled };
        *lower.fresh.lock().unwrap_or_else(PoisonError::into_inner) = Some(settled);
        Ok(stack)
    }

    /// Merges runs with the data files.
    pub(crate) async fn view_of(
        &self,
        ground: &KeyResolver<'_>,
        levels: &[ActiveRun],
        next: u64,
    ) -> Result<MergedView> {
        let stack = self.stack_runs(ground, levels).await?;
        self.finish_view(ground, stack, next).await
    }

    async fn stack_runs(&self, ground: &KeyResolver<'_>, levels: &[ActiveRun]) -> Result<RunStack> {
        let mut stack = RunStack::new(ground);
        for level in levels {
            stack.add(ground, level).await?;
        }
        Ok(stack)
    }

    /// What a snapshot sees of the runs.
    async fn finish_view(&self, ground: &KeyResolver<'_>, stack: RunStack, next: u64) -> Result<MergedView> {
        let parameters = Parameters::of(&self.updates.options)?;
        let mut pending = BufferedRows {
            memory_bytes: parameters.scan_bytes(),
            row_group_bytes: parameters.row_group_bytes(),
            ..BufferedRows::default()
        };
        for stacked in &stack.levels {
            self.add_rows(ground, stacked, &mut pending).await?;
        }
        let live = stack.levels.into_iter().map(|laid| LiveRows { run: laid.level, rows: laid.rows }).collect();
        Ok(MergedView { next, deleted: stack.shadow, buffered: Arc::new(pending), live_rows: live })
    }

    /// Adds the rows of a run that count. Also adds those of its updates whose row is now in a data file that was not there when they were
    /// completed.
    async fn add_rows(&self, ground: &KeyResolver<'_>, stacked: &StackedRun, pending: &mut BufferedRows) -> Result<()> {
        let StackedRun { level, rows, incomplete: open } = stacked;
        let table = ground.base.schema();
        match &level.rows {
            SortedRunRows::Memory(batch) if !rows.is_empty() => {
                for part in parts(batch, rows)? {
                    pending.batches.push(as_table(&part, &table)?);
                }
            }
            SortedRunRows::File(file) if !rows.is_empty() => {
                let (meta, row_groups, rows) = (file.meta().clone(), file.row_groups.clone(), rows.clone());
                let (keys, run) = (level.pages(&self.key), OpenedRun::new(Arc::clone(level)));
                pending.files.push(BufferedRun { meta, row_groups, rows, keys, run });
            }
            SortedRunRows::Memory(_) | SortedRunRows::File(_) | SortedRunRows::None => {}
        }
        if open.is_empty() || memory_rows(level).is_some() {
            return Ok(());
        }
        let completed = ground.complete(&level.read(&self.schema, open).await?).await?;
        let found: Vec<u32> = completed.sources.into_values().flatten().collect();
        if !found.is_empty() {
            let found = RowSet::from_rows(found, open.len());
            pending.batches.push(as_table(&select_rows(&completed.rows, &found)?, &table)?);
        }
        Ok(())
    }
}

impl MergedView {
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
        let files: Vec<usize> = (0..base.files().len()).collect();
        for KeyPositions { file, rows, .. } in positions_of_keys(base, key, keys, &files).await? {
            let Some(data_file) = base.files().get(file) else { continue };
            let mut live = rows;
            if let Some(deleted) = &data_file.deleted {
                live = live.minus(deleted);
            }
            if let Some(Some(hidden)) = self.deleted.get(file) {
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

/// A data file as a merged view was made for it.
fn viewed(file: &DataFile) -> ViewedFile {
    ViewedFile { version: file.version(), deleted: file.deleted.clone() }
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

/// The rows of a run that a migration compacts.
fn slices_of(migration: Option<&ManifestMigration>, run: usize, rows: u32) -> RowSet {
    let mut folded = RowSet::empty(rows);
    for range in migration.iter().flat_map(|migration| &migration.ranges) {
        if range.run as usize == run {
            folded = folded.or(&RowSet::from_range(range.rows.clone(), rows));
        }
    }
    folded
}
