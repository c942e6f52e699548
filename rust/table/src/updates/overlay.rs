//! The overlay: what pending changes do to a snapshot, by position.
//!
//! ```text
//! data files      rows whose key is in a level are hidden, like those of a deletion vector     (law 3: before any filter)
//! runs            rows that no newer level replaces, that are no delete, and that are complete
//! memory          the same of the buffer; updates that had to be completed again
//! ```
//!
//! Since everything is a position, reading needs no merge by key: scans read a run like a data file with deleted rows.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use lakemark_format::{ManifestMigration, ManifestUpdates};
use lakemark_index::{RowSet, RowSetBuilder};

use super::fetch::RowFile;
use super::key::{KeyColumns, Keys};
use super::level::{FileIdentity, Level, LevelRows, chosen, identity};
use super::log_file;
use super::parameters::Parameters;
use super::partitions::{LogTypes, typed_otherwise};
use super::phase::Phase;
use super::resolve::{Positions, positions};
use super::rows::{as_table, change_schema};
use super::runs::RunCache;
use super::settle::{Ground, Settled, Stacked, memory_rows};
use super::stack::{Laid, Stack};
use super::tail::Tail;
use super::updatable::UpdatableTable;
use super::write::no_key;
use crate::error::{Error, Result};
use crate::snapshot::{OpenedRun, PendingFile, PendingRows, Snapshot};
use crate::storage::disk;
use crate::store::Store;

/// What pending changes do to a snapshot.
#[derive(Default)]
pub(crate) struct Overlay {
    /// The next sequence number: changes below it are in.
    pub next: u64,
    /// For each data file its row groups and the rows that are hidden, if any are.
    pub shadow: Vec<Option<(Vec<u32>, Arc<RowSet>)>>,
    pub pending: Arc<PendingRows>,
    /// Rows of each level that count, oldest first.
    pub live: Vec<(Arc<Level>, RowSet)>,
}

/// What an overlay was made of.
#[derive(Clone, PartialEq)]
struct Made {
    manifest: u64,
    log: [u8; 16],
    end: u64,
    folded: bool,
    schema: SchemaRef,
    /// Which columns of files and runs those of the schema are.
    names: u64,
    files: Vec<(FileIdentity, Option<Arc<RowSet>>)>,
}

/// What a table remembers of its pending changes.
#[derive(Default)]
pub(crate) struct OverlayCache {
    pub(super) runs: RunCache,
    /// What readers read of the log.
    pub(super) reader: TailSlot,
    /// What the writer knows of it; not shared, so that taking changes in copies nothing.
    pub(super) writer: TailSlot,
    /// What partition columns were when the changes of the log were made.
    pub(super) types: LogTypes,
    last: Mutex<Option<(Made, Arc<Overlay>)>>,
    lower: Mutex<Option<Arc<Lower>>>,
}

/// The least number of keys with which a buffer is settled as a whole again.
const FRESH_KEYS: usize = 256;

/// The runs, and the buffer as it was: what changes that come later are laid over.
struct Lower {
    /// What it was made of, but for the log's end.
    of: Made,
    /// The sequence number of the first change that is not in.
    next: u64,
    /// Keys of the buffer.
    buffered: usize,
    levels: Vec<Stacked>,
    stack: Stack,
    /// The changes that came since, settled, and the sequence number of the first that is not in.
    fresh: Mutex<Option<(u64, Settled)>>,
}

impl Lower {
    /// Whether what came since is apart in the tail, and little beside what is in: the buffer is settled again each time that it
    /// has grown by a part, so that all of it costs a few times what it costs once.
    fn takes(&self, tail: &Tail) -> bool {
        tail.since(self.next).is_some_and(|fresh| fresh.len() <= FRESH_KEYS.max(self.buffered / 4))
    }
}

impl std::fmt::Debug for OverlayCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayCache").finish_non_exhaustive()
    }
}

/// What was read of a log, kept for the next one to read on.
#[derive(Default)]
pub(crate) struct TailSlot(Mutex<Option<Tail>>);

impl TailSlot {
    fn take(&self) -> Option<Tail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Folds what comes after this apart, unless somebody read on meanwhile.
    fn split(&self, tail: &Tail) {
        if let Some(known) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)
            && (known.log, known.next) == (tail.log, tail.next)
        {
            known.split();
        }
    }

    pub(crate) fn put(&self, tail: Tail) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tail);
    }
}

/// The part of a table that its pending changes are about.
pub(crate) struct Updated<'a> {
    pub store: &'a Store,
    pub updates: &'a ManifestUpdates,
    pub manifest: u64,
    /// Whether the migration that the manifest names is done.
    pub folded: bool,
    pub key: Arc<KeyColumns>,
    /// The schema of changes.
    pub schema: SchemaRef,
}

/// How much of what is pending is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The runs alone: nobody keeps the log for whoever reads them.
    Runs,
    /// The log as well.
    Log,
}

/// The fingerprint of the names that columns have in files and logs, where those are others.
fn names_of(base: &Snapshot) -> u64 {
    base.column_names().map_or(0, |names| names.fingerprint())
}

impl<'a> Updated<'a> {
    /// Gives the base the types that pending changes need: those of `runs`, and of the log if it is read as well.
    pub(crate) async fn of(
        base: &mut Snapshot,
        (store, cache): (&'a Store, &OverlayCache),
        updates: &'a ManifestUpdates,
        (manifest, folded): (u64, bool),
        reach: Reach,
    ) -> Result<Self> {
        let log = (reach == Reach::Log).then_some(&updates.log);
        let others = typed_otherwise(base, store, (updates, log), cache).await?;
        base.hold_as_text(&others)?;
        let table = base.schema();
        let shown = |stored: &String| {
            base.shown_name(stored).map(std::borrow::Cow::into_owned).ok_or_else(|| {
                Error::not_found(format!("the column {stored} of the key is no longer in the table; add it again"))
            })
        };
        let names = updates.key.iter().map(shown).collect::<Result<Vec<_>>>()?;
        let key = KeyColumns::new(&table, &names)?;
        Ok(Self { store, updates, manifest, folded, key, schema: change_schema(&table) })
    }

    /// The key of a table as writers have it.
    pub(crate) async fn key_of(table: &UpdatableTable) -> Result<(Snapshot, Arc<KeyColumns>)> {
        let store = table.base.writable_store()?;
        let mut base = Snapshot::pin_base(&table.base).await?;
        let manifest = base.manifest.clone().ok_or_else(|| no_key(&table.base))?;
        let updates = manifest.updates.as_ref().ok_or_else(|| no_key(&table.base))?;
        let pinned = (manifest.number, base.folded());
        let key = Updated::of(&mut base, (store, &table.overlays), updates, pinned, Reach::Log).await?.key;
        Ok((base, key))
    }

    /// The log, read up to its end: on from what the slot has, which is empty then.
    pub(crate) async fn tail(&self, base: &Snapshot, slot: &TailSlot) -> Result<Tail> {
        let known = slot.take();
        let log = &self.updates.log;
        let names = names_of(base);
        let is_same = |tail: &Tail| tail.log == log.id && tail.names == names && *tail.fold.schema() == self.schema;
        let mut tail = known.filter(is_same).unwrap_or_else(|| Tail::new(log, names, &self.schema, &self.key));
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
    pub(crate) async fn levels(&self, base: &Snapshot, cache: &OverlayCache) -> Result<Vec<Stacked>> {
        let mut levels = Vec::with_capacity(self.updates.runs.len());
        for (place, run) in self.updates.runs.iter().enumerate() {
            let phase = Phase::of(run, self.updates, self.folded);
            let level = cache.runs.level(self.store, run, base.column_names(), phase).await?;
            let mut migrated = RowSetBuilder::new(run.rows);
            for (start, end) in &run.migrated {
                migrated.insert_range(*start..*end);
            }
            let mut migrated = migrated.finish();
            if self.folded {
                migrated = migrated.or(&slices_of(self.updates.migration.as_ref(), place, run.rows));
            }
            levels.push(Stacked { level, migrated });
        }
        Ok(levels)
    }

    /// What the pending changes come to, for these data files.
    pub(crate) async fn overlay(&self, base: &Snapshot, cache: &OverlayCache) -> Result<Arc<Overlay>> {
        let tail = self.tail(base, &cache.reader).await?;
        cache.reader.put(tail.clone());
        let made = Made {
            manifest: self.manifest,
            log: tail.log,
            end: tail.end,
            folded: self.folded,
            schema: Arc::clone(&self.schema),
            names: names_of(base),
            files: base.files().iter().map(|file| (identity(file), file.deleted.clone())).collect(),
        };
        if let Some((of, overlay)) = &*cache.last.lock().unwrap_or_else(PoisonError::into_inner)
            && *of == made
        {
            return Ok(Arc::clone(overlay));
        }
        cache.runs.keep(&self.updates.runs);
        let ground = Ground { base, key: &self.key, schema: &self.schema };
        let lower = self.lower(&ground, cache, &made, &tail).await?;
        let stack = self.upper(&ground, &lower, &tail).await?;
        let overlay = Arc::new(self.seen(&ground, stack, tail.next).await?);
        *cache.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((made, Arc::clone(&overlay)));
        Ok(overlay)
    }

    /// What the runs come to, without what is in the log.
    pub(crate) async fn overlay_of_runs(&self, base: &Snapshot, cache: &OverlayCache) -> Result<Overlay> {
        let levels = self.levels(base, cache).await?;
        let ground = Ground { base, key: &self.key, schema: &self.schema };
        self.stack(&ground, &levels, self.updates.log.first_sequence).await
    }

    /// The runs and most of the buffer, laid once for a manifest, the files and that part of the log.
    async fn lower(&self, ground: &Ground<'_>, cache: &OverlayCache, made: &Made, tail: &Tail) -> Result<Arc<Lower>> {
        let of = Made { end: 0, ..made.clone() };
        let known = cache.lower.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.of == of && known.takes(tail)) {
            return Ok(known);
        }
        let mut levels = self.levels(ground.base, cache).await?;
        let mut buffered = 0;
        if tail.fold.len() > 0 {
            let level = Arc::new(ground.settle(tail.log, tail.fold.finish()?, &levels).await?);
            buffered = tail.fold.len();
            levels.push(Stacked { migrated: RowSet::empty(level.row_count()), level });
        }
        let stack = self.laid(ground, &levels).await?;
        let lower = Arc::new(Lower { of, next: tail.next, buffered, levels, stack, fresh: Mutex::default() });
        *cache.lower.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&lower));
        cache.reader.split(tail);
        Ok(lower)
    }

    /// The changes that came since, laid over the others.
    async fn upper(&self, ground: &Ground<'_>, lower: &Lower, tail: &Tail) -> Result<Stack> {
        let mut stack = lower.stack.clone();
        let Some(fresh) = tail.since(lower.next).filter(|fresh| fresh.len() > 0) else { return Ok(stack) };
        // Another level than the one below, which has the id of the log.
        let id = tail.log.map(|byte| !byte);
        let before = lower.fresh.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Others may have read further.
        let level = match before.filter(|(next, _)| *next <= tail.next) {
            Some((_, before)) => ground.settle_on(&before, id, fresh.finish()?, &lower.levels).await?,
            None => ground.settle(id, fresh.finish()?, &lower.levels).await?,
        };
        let settled = Settled::new(Arc::new(level), &self.key)?;
        let migrated = RowSet::empty(settled.level.row_count());
        stack.add(self, ground, &Stacked { level: Arc::clone(&settled.level), migrated }).await?;
        *lower.fresh.lock().unwrap_or_else(PoisonError::into_inner) = Some((tail.next, settled));
        Ok(stack)
    }

    /// Lays levels over the data files.
    pub(crate) async fn stack(&self, ground: &Ground<'_>, levels: &[Stacked], next: u64) -> Result<Overlay> {
        let stack = self.laid(ground, levels).await?;
        self.seen(ground, stack, next).await
    }

    async fn laid(&self, ground: &Ground<'_>, levels: &[Stacked]) -> Result<Stack> {
        let mut stack = Stack::new(ground);
        for level in levels {
            stack.add(self, ground, level).await?;
        }
        Ok(stack)
    }

    /// What a snapshot sees of levels.
    async fn seen(&self, ground: &Ground<'_>, stack: Stack, next: u64) -> Result<Overlay> {
        let parameters = Parameters::of(&self.updates.options)?;
        let mut pending = PendingRows {
            memory_bytes: parameters.scan_bytes(),
            row_group_bytes: parameters.row_group_bytes(),
            ..PendingRows::default()
        };
        for Laid { level, rows, open } in &stack.levels {
            self.add_rows(ground, level, (rows, open), &mut pending).await?;
        }
        let live = stack.levels.into_iter().map(|laid| (laid.level, laid.rows)).collect();
        Ok(Overlay { next, shadow: stack.shadow, pending: Arc::new(pending), live })
    }

    /// Adds the rows of a level that count, and those of its updates that now have a row in a data file which was not there when
    /// they were completed.
    async fn add_rows(
        &self,
        ground: &Ground<'_>,
        level: &Arc<Level>,
        (rows, open): (&RowSet, &RowSet),
        pending: &mut PendingRows,
    ) -> Result<()> {
        let table = ground.base.schema();
        match &level.rows {
            LevelRows::Memory(batch) if !rows.is_empty() => {
                for part in parts(batch, rows)? {
                    pending.batches.push(as_table(&part, &table)?);
                }
            }
            LevelRows::File(file) if !rows.is_empty() => {
                let (meta, row_groups, rows) = (file.meta().clone(), file.row_groups.clone(), rows.clone());
                let (keys, run) = (level.pages(&self.key), OpenedRun::new(Arc::clone(level)));
                pending.files.push(PendingFile { meta, row_groups, rows, keys, run });
            }
            LevelRows::Memory(_) | LevelRows::File(_) | LevelRows::None => {}
        }
        if open.is_empty() || memory_rows(level).is_some() {
            return Ok(());
        }
        let (completed, from) = ground.complete(&level.read(&self.schema, open).await?).await?;
        let found: Vec<u32> = from.into_values().flatten().collect();
        if !found.is_empty() {
            let found = RowSet::from_rows(found, open.len());
            pending.batches.push(as_table(&chosen(&completed, &found)?, &table)?);
        }
        Ok(())
    }

    /// Rows of an older level that a newer one replaces.
    pub(crate) async fn replaced(&self, above: &Stacked, level: &Level) -> Result<Arc<RowSet>> {
        if let Some(known) = above.level.replaced(&level.id) {
            return Ok(known);
        }
        // All of its keys, those of migrated rows, too: what is remembered must hold for every manifest.
        let all = RowSet::full(above.level.row_count());
        let keys = above.level.keys(&self.key, &all).await?;
        Ok(above.level.set_replaced(level.id, level.rows_with(&self.key, &keys).await?))
    }
}

impl Overlay {
    /// The place of a key that is in the table already, if one of them is.
    pub(crate) async fn present(&self, base: &Snapshot, key: &Arc<KeyColumns>, keys: &Keys) -> Result<Option<u32>> {
        let place = |rows: &RecordBatch| -> Result<Option<u32>> {
            let first = key.encode(rows)?;
            Ok(first.iter().next().and_then(|row| keys.place(row.as_ref())))
        };
        let schema = key.schema();
        for (level, live) in &self.live {
            let found = level.rows_with(key, keys).await?.and(live);
            if !found.is_empty() {
                return place(&level.read(&schema, &first_of(&found)).await?);
            }
        }
        // Rows of updates that were completed again stand here only.
        for batch in &self.pending.batches {
            let found = key.encode(batch)?.iter().find_map(|row| keys.place(row.as_ref()));
            if found.is_some() {
                return Ok(found);
            }
        }
        let files: Vec<usize> = (0..base.files().len()).collect();
        for Positions { file, rows, .. } in positions(base, key, keys, &files).await? {
            let Some(data_file) = base.files().get(file) else { continue };
            let mut live = rows;
            if let Some(deleted) = &data_file.deleted {
                live = live.minus(deleted);
            }
            if let Some(Some((_, shadow))) = self.shadow.get(file) {
                live = live.minus(shadow);
            }
            if !live.is_empty() {
                let opened = RowFile::of(base, data_file).open().await?;
                return place(&opened.collect(&schema, Some(&first_of(&live))).await?);
            }
        }
        Ok(None)
    }
}

/// The rows of a batch at these positions, without a copy where they are few ranges.
fn parts(batch: &RecordBatch, rows: &RowSet) -> Result<Vec<RecordBatch>> {
    const MOST: usize = 8;
    let ranges: Vec<_> = rows.iter_ranges().take(MOST + 1).collect();
    if ranges.len() > MOST {
        return Ok(vec![chosen(batch, rows)?]);
    }
    Ok(ranges.into_iter().map(|range| batch.slice(range.start as usize, (range.end - range.start) as usize)).collect())
}

/// The first row of a set.
fn first_of(rows: &RowSet) -> RowSet {
    RowSet::from_rows(rows.iter().take(1).collect(), rows.universe())
}

/// The rows of a run that a migration folds.
fn slices_of(migration: Option<&ManifestMigration>, run: usize, rows: u32) -> RowSet {
    let mut folded = RowSet::empty(rows);
    for (of, start, end) in migration.iter().flat_map(|migration| &migration.slices) {
        if *of as usize == run {
            folded = folded.or(&RowSet::from_range(*start..*end, rows));
        }
    }
    folded
}
