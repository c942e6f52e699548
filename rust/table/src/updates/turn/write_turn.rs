//! A turn of a writer: one at a time, under a lock of the operating system, which dies with its process.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_format::{LogCommit, Manifest, ManifestUpdates};

use crate::error::{Error, Result};
use crate::files::listed_file::FileList;
use crate::snapshot::{PinnedColumns, Snapshot};
use crate::storage::disk;
use crate::store::Store;
use crate::updates::changes::change::{Transaction, WriteOptions, Written};
use crate::updates::errors::{no_key, not_local, unwritable};
use crate::updates::key::KeyColumns;
use crate::updates::locks::WriterLock;
use crate::updates::log::append::secure_last;
use crate::updates::log::log_tail::{LastCall, LogTail};
use crate::updates::parameters::Parameters;
use crate::updates::publication::finish::finish_publication;
use crate::updates::recovery::repair;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope, stored_names};
use crate::updates::view::merged_view::MergedView;
use crate::updates::view::view_cache::merged_view;

/// What a turn has to know of the data files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesNeeded {
    /// Their columns: changes go to the log, whatever the files have of their keys.
    Columns,
    /// Which files there are now.
    All,
}

/// A turn of a writer.
pub(crate) struct WriteTurn<'a> {
    pub table: &'a Arc<UpdatableTable>,
    pub store: &'a Arc<Store>,
    /// The lock is held until the turn ends, and as long as a write that the turn began is under way.
    pub(super) lock: Arc<WriterLock>,
    pub manifest: Arc<Manifest>,
    pub updates: Arc<ManifestUpdates>,
    pub parameters: Parameters,
    pub(super) key: Arc<KeyColumns>,
    /// The schema of changes.
    pub(super) schema: SchemaRef,
    /// The data files, without any buffered change. Of a turn that needs their columns it may have no file.
    pub base: Snapshot,
    /// The listing that the columns are of, where the base has no file.
    columns_of: Option<Arc<FileList>>,
    pub tail: LogTail,
    /// Commits that are not on the disk yet.
    pub(super) commits: Vec<LogCommit>,
    /// The bytes of the commits' frame, if they go to a run without the log.
    pub unlogged: u64,
    /// The sequence number of the first of these commits.
    pub(super) first: u64,
    /// The log as it is on the disk.
    pub(super) end: u64,
    /// The state before these commits, where a check needed it.
    before: Option<Arc<MergedView>>,
}

impl<'a> WriteTurn<'a> {
    /// Begins a turn that knows the newest data files.
    pub(crate) async fn begin(table: &'a Arc<UpdatableTable>) -> Result<WriteTurn<'a>> {
        Self::begin_with(table, FilesNeeded::All).await
    }

    /// Begins a turn that knows as much of the data files as it needs.
    pub(crate) async fn begin_with(table: &'a Arc<UpdatableTable>, needed: FilesNeeded) -> Result<WriteTurn<'a>> {
        let store = table.base.writable_store()?;
        if !store.is_local() {
            return Err(not_local(store));
        }
        let lock = Arc::new(WriterLock::take(store).await?);
        let mut pinned = pin(table, needed).await?;
        let base = &pinned.base;
        if finish_publication(&table.base, base).await? || repair::take_over_if_empty(&table.base, base).await? {
            pinned = pin(table, needed).await?;
        }
        let PinnedBase { mut base, columns_of } = pinned;
        let manifest = base.manifest.clone().ok_or_else(|| no_key(&table.base))?;
        let updates = manifest.updates().cloned().ok_or_else(|| no_key(&table.base))?;
        let parameters = Parameters::of(&updates.options)?;
        let state = ManifestState { number: manifest.number(), migration_done: base.migration_done() };
        let files = &table.merged_views.files;
        let updated = UpdateContext::of(&mut base, store, files, &updates, state, UpdateScope::Log).await?;
        let mut tail = updated.log_tail(&base, &files.writer).await?;
        let UpdateContext { key, schema, .. } = updated;
        let (first, end) = (tail.next, tail.end);
        take_over_log(store, &updates, &mut tail, &lock).await?;
        Ok(Self {
            table,
            store,
            lock,
            manifest,
            updates,
            parameters,
            key,
            schema,
            base,
            columns_of,
            tail,
            commits: Vec::new(),
            unlogged: 0,
            first,
            end,
            before: None,
        })
    }

    /// Whether the columns are surely those of the files that are there now: these were listed in this turn, or each of their folders is
    /// the one that was listed.
    pub(crate) async fn has_newest_columns(&self) -> Result<bool> {
        match &self.columns_of {
            Some(files) => self.table.base.cache.listing.has_same_names(files).await,
            None => Ok(true),
        }
    }

    /// Pins the newest data files where the turn has known their columns alone. Says whether these are the same: else what was accepted may
    /// not fit, and the turn has to begin anew.
    pub(super) async fn pin_files(&mut self) -> Result<bool> {
        if self.columns_of.is_none() {
            return Ok(true);
        }
        let mut base = Snapshot::pin_base(&self.table.base).await?;
        let Some(manifest) = base.manifest.clone() else { return Ok(false) };
        if manifest.updates() != Some(&self.updates) {
            return Ok(false);
        }
        let state = ManifestState { number: manifest.number(), migration_done: base.migration_done() };
        let files = &self.table.merged_views.files;
        let updated = UpdateContext::of(&mut base, self.store, files, &self.updates, state, UpdateScope::Log).await?;
        let is_same = updated.schema == self.schema
            && updated.key.names == self.key.names
            && updated.migration_done == self.base.migration_done()
            && stored_names(&base) == stored_names(&self.base);
        if is_same {
            (self.base, self.manifest, self.columns_of) = (base, manifest, None);
        }
        Ok(is_same)
    }

    /// Whether less of the cache is full than this.
    pub(crate) fn is_below(&self, share: Option<f64>) -> bool {
        share.is_some_and(|share| (self.updates.run_bytes() as f64) < share * self.parameters.cache_bytes as f64)
    }

    pub(crate) fn updated(&self) -> UpdateContext<'_> {
        UpdateContext {
            store: self.store,
            updates: &self.updates,
            manifest: self.manifest.number(),
            migration_done: self.base.migration_done(),
            key: Arc::clone(&self.key),
            schema: Arc::clone(&self.schema),
        }
    }

    /// Counts a call whose rows go straight to a run, beside the log; gives its sequence number.
    pub(crate) fn add_call(&mut self, options: &WriteOptions, rows: u64, bytes: u64) -> Result<u64> {
        let sequence = self.tail.next;
        self.tail.called(&tag(options)?, sequence);
        self.tail.rows += rows;
        self.unlogged += bytes;
        Ok(sequence)
    }

    /// What a call that was made before has written.
    pub(crate) fn already_made(&self, options: &WriteOptions) -> Option<Written> {
        let sequence = options.transaction.as_ref().and_then(|transaction| self.made(transaction))?;
        Some(Written { sequence, rows: 0 })
    }

    /// The sequence number of a call that was made before.
    fn made(&self, call: &Transaction) -> Option<u64> {
        let in_log = self.tail.transactions.get(&call.application).copied();
        let kept = || {
            let found = self.updates.transactions.iter().find(|kept| kept.application == call.application);
            found.map(|kept| LastCall { version: kept.version, sequence: kept.sequence })
        };
        in_log.or_else(kept).filter(|last| last.version >= call.version).map(|last| last.sequence)
    }

    /// The state on the disk.
    pub(super) async fn before(&mut self) -> Result<Arc<MergedView>> {
        if let Some(before) = &self.before {
            return Ok(Arc::clone(before));
        }
        if self.columns_of.is_some() {
            return Err(Error::internal("a check needs the data files, and its turn has their columns alone"));
        }
        let before = merged_view(&self.updated(), &self.base, &self.table.merged_views).await?;
        self.before = Some(Arc::clone(&before));
        Ok(before)
    }
}

/// What a turn begins with.
struct PinnedBase {
    base: Snapshot,
    /// The listing that the columns are of, where the base has no file.
    columns_of: Option<Arc<FileList>>,
}

async fn pin(table: &UpdatableTable, needed: FilesNeeded) -> Result<PinnedBase> {
    if needed == FilesNeeded::Columns
        && let Some(PinnedColumns { snapshot, files }) = Snapshot::pin_columns(&table.base).await?
    {
        return Ok(PinnedBase { base: snapshot, columns_of: Some(files) });
    }
    Ok(PinnedBase { base: Snapshot::pin_base(&table.base).await?, columns_of: None })
}

/// How the log has the name of a call.
pub(super) fn tag(options: &WriteOptions) -> Result<String> {
    Ok(options.transaction.as_ref().map(Transaction::tag).transpose()?.unwrap_or_default())
}

/// Makes sure of what the last writer left: the next frame goes behind it.
async fn take_over_log(
    store: &Store,
    updates: &ManifestUpdates,
    tail: &mut LogTail,
    lock: &Arc<WriterLock>,
) -> Result<()> {
    if tail.own == tail.end && !tail.torn {
        return Ok(());
    }
    let Some(path) = store.local_path(&updates.log.path) else { return Err(not_local(store)) };
    let (lock, last) = (Arc::clone(lock), tail.last..tail.end);
    let secured = disk::on_a_thread(move || {
        let _lock = lock;
        secure_last(&path, last)
    });
    secured.await.map_err(|error| Error::task(&error))?.map_err(|error| unwritable(store, error))?;
    (tail.own, tail.torn) = (tail.end, false);
    Ok(())
}
