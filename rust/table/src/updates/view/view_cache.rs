//! Merged views that are remembered. A snapshot after a change merges the changes that came since with what was merged before.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use lakemark_index::RowSet;

use super::context::{UpdateContext, stored_names};
use super::merged_view::MergedView;
use super::run_stack::RunStack;
use super::update_files::UpdateFiles;
use crate::error::Result;
use crate::files::parted_list::PartedList;
use crate::snapshot::{DataFile, LaidFiles, Snapshot};
use crate::updates::log::log_tail::LogTail;
use crate::updates::parameters::Parameters;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::resolve_keys::{KeyResolver, ResolvedBuffer};

/// The least number of keys with which a buffer is resolved as a whole again.
const FRESH_KEYS: usize = 256;

/// What a merged view was made of.
#[derive(Clone, PartialEq)]
struct ViewKey {
    manifest: u64,
    log: [u8; 16],
    end: u64,
    migration_done: bool,
    schema: SchemaRef,
    /// The fingerprint of the names that the schema's columns have in files and runs.
    names: u64,
    files: ViewedFiles,
}

/// The data files that a merged view was made for, with the rows that their deletion vectors delete. Snapshots of the same files share
/// them, so that nobody looks at each.
#[derive(Clone)]
struct ViewedFiles(PartedList<DataFile>);

impl PartialEq for ViewedFiles {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |one: &DataFile, other: &DataFile| one.is_same_version(other) && one.deleted == other.deleted;
        self.0.eq_by(&other.0, is_same)
    }
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
    /// Runs and log, as they were read last.
    pub files: UpdateFiles,
    last: Mutex<Option<KnownView>>,
    lower: Mutex<Option<Arc<BaseView>>>,
    /// The data files without the rows that the last snapshot took as deleted.
    laid: Mutex<Option<LaidFiles>>,
}

impl MergedViewCache {
    /// The files of a snapshot without the rows that a view deletes or replaces.
    pub(crate) fn laid(&self, base: &Snapshot, view: &MergedView) -> LaidFiles {
        let before = self.laid.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let laid = LaidFiles::of(base, &view.deleted, before.as_ref());
        *self.laid.lock().unwrap_or_else(PoisonError::into_inner) = Some(laid.clone());
        laid
    }
}

impl std::fmt::Debug for MergedViewCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergedViewCache").finish_non_exhaustive()
    }
}

/// The runs, and the buffer as it was. Changes that come later are merged with them.
struct BaseView {
    /// What the base was made of, but for the log's end.
    of: ViewKey,
    /// The sequence number of the first change that is not in.
    next: u64,
    /// Keys of the buffer.
    buffered: usize,
    runs: Vec<ActiveRun>,
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

/// What the buffered changes come to, for these data files.
pub(crate) async fn merged_view(
    updated: &UpdateContext<'_>,
    base: &Snapshot,
    cache: &MergedViewCache,
) -> Result<Arc<MergedView>> {
    let tail = updated.log_tail(base, &cache.files.reader).await?;
    cache.files.reader.put(tail.clone());
    let made = ViewKey {
        manifest: updated.manifest,
        log: tail.log,
        end: tail.end,
        migration_done: updated.migration_done,
        schema: Arc::clone(&updated.schema),
        names: stored_names(base),
        files: ViewedFiles(base.files().clone()),
    };
    if let Some(known) = &*cache.last.lock().unwrap_or_else(PoisonError::into_inner)
        && known.of == made
    {
        return Ok(Arc::clone(&known.view));
    }
    cache.files.runs.retain(&updated.updates.runs);
    let ground = KeyResolver { base, key: &updated.key, schema: &updated.schema };
    let below = lower(updated, &ground, cache, &made, &tail).await?;
    let stack = upper(&ground, &below, &tail).await?;
    let parameters = Parameters::of(&updated.updates.options)?;
    let view = Arc::new(MergedView::of_stack(&ground, stack, tail.next, &parameters).await?);
    let known = KnownView { of: made, view: Arc::clone(&view) };
    *cache.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    Ok(view)
}

/// The runs and most of the buffer, merged once for a manifest, the files and that part of the log.
async fn lower(
    updated: &UpdateContext<'_>,
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
    let mut runs = updated.active_runs(ground.base, &cache.files).await?;
    let mut buffered = 0;
    if tail.changes.len() > 0 {
        let run = Arc::new(ground.resolve_keys(tail.log, tail.changes.finish()?, &runs).await?);
        buffered = tail.changes.len();
        runs.push(ActiveRun { migrated: RowSet::empty(run.row_count()), run });
    }
    let stack = RunStack::of(ground, &runs).await?;
    let lower = Arc::new(BaseView { of, next: tail.next, buffered, runs, stack, fresh: Mutex::default() });
    *cache.lower.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&lower));
    cache.files.reader.split(tail);
    Ok(lower)
}

/// The changes that came since, merged with the others.
async fn upper(ground: &KeyResolver<'_>, lower: &BaseView, tail: &LogTail) -> Result<RunStack> {
    let mut stack = lower.stack.clone();
    let Some(fresh) = tail.since(lower.next).filter(|fresh| fresh.len() > 0) else { return Ok(stack) };
    // A run of its own, since the one below has the id of the log.
    let id = tail.log.map(|byte| !byte);
    let before = lower.fresh.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // Other readers may have read further.
    let run = match before.filter(|before| before.next <= tail.next) {
        Some(FreshChanges { buffer, .. }) => {
            ground.resolve_incrementally(&buffer, id, fresh.finish()?, &lower.runs).await?
        }
        None => ground.resolve_keys(id, fresh.finish()?, &lower.runs).await?,
    };
    let resolved = ResolvedBuffer::new(Arc::new(run), ground.key)?;
    let migrated = RowSet::empty(resolved.run.row_count());
    stack.add(ground, &ActiveRun { run: Arc::clone(&resolved.run), migrated }).await?;
    let resolved = FreshChanges { next: tail.next, buffer: resolved };
    *lower.fresh.lock().unwrap_or_else(PoisonError::into_inner) = Some(resolved);
    Ok(stack)
}
