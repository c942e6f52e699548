//! Writing changes: one writer at a time, under a lock of the operating system, which dies with its process.
//!
//! ```text
//! callers ─▶ queue ─▶ whoever holds the turn takes all that wait: lock, read on, check, one frame, one sync, answer all
//!                                                                   └─ buffer full: flush to a run, commit the manifest
//! ```
//!
//! Changes are durable when the frame is synced, or when the manifest names the run that has them.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use lakemark_format::log::log_frame;
use lakemark_format::{LogChange, LogCommit, Manifest, ManifestUpdates, Operation};
use lakemark_index::RowSet;
use tokio::sync::oneshot;

use super::append::{NotAppended, append, secure_last};
use super::auto_migrate;
use super::change::{Change, Transaction, WriteOptions, Written, fitted};
use super::conflict_check::{SeenState, changed_since};
use super::context::{ManifestState, UpdateContext, UpdateScope};
use super::errors::{no_key, not_local, unwritable};
use super::flush::flush;
use super::flush_policy::is_full;
use super::key::{KeyColumns, KeySet};
use super::locks::WriterLock;
use super::log_tail::{LastCall, LogTail, to_ipc};
use super::merged_view::MergedView;
use super::parameters::Parameters;
use super::publication;
use super::repair;
use super::sorted_run::select_rows;
use super::updatable::UpdatableTable;
use super::view_cache::merged_view;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::storage::disk;
use crate::store::Store;

/// Changes that wait for their turn.
#[derive(Debug)]
struct QueuedWrite {
    changes: Vec<Change>,
    options: WriteOptions,
    answer: oneshot::Sender<Result<Written>>,
}

/// Who writes next.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<Vec<QueuedWrite>>,
    turn: tokio::sync::Mutex<()>,
}

impl WriteQueue {
    /// Waits until nobody else of this process writes.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

/// Writes changes; they are durable, and seen by whoever looks, when this returns.
pub(crate) async fn write(table: &Arc<UpdatableTable>, changes: Vec<Change>, options: WriteOptions) -> Result<Written> {
    let (answer, answered) = oneshot::channel();
    let waiting = QueuedWrite { changes, options, answer };
    table.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
    // The write is a task of its own, so that a caller who goes away does not take the others' changes along.
    let table = Arc::clone(table);
    let turn = tokio::spawn(async move {
        let _turn = table.queue.turn().await;
        let waiting = std::mem::take(&mut *table.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if !waiting.is_empty() {
            write_all(&table, waiting).await;
        }
    });
    turn.await.map_err(|error| Error::task(&error))?;
    answered.await.map_err(|_| Error::internal("changes were not answered"))?
}

async fn write_all(table: &Arc<UpdatableTable>, waiting: Vec<QueuedWrite>) {
    let mut session = match WriteTurn::begin(table).await {
        Ok(session) => session,
        Err(error) => return refuse(waiting, &error),
    };
    let migrates_at = session.parameters.migration_threshold;
    let mut accepted: Vec<(oneshot::Sender<Result<Written>>, Written)> = Vec::new();
    for QueuedWrite { changes, options, answer } in waiting {
        match session.accept(&changes, &options).await {
            Ok(written) => accepted.push((answer, written)),
            // Nobody may be listening any more.
            Err(error) => drop(answer.send(Err(error))),
        }
    }
    let done = session.commit().await;
    if !matches!(done, Ok(Done::Appended)) {
        // A run was made, or there was no room for one.
        migrate_if_full(table, migrates_at);
    }
    for (answer, written) in accepted {
        let said = match &done {
            Ok(_) => Ok(written),
            Err(error) => Err(same(error)),
        };
        drop(answer.send(said));
    }
}

/// Begins a migration where the table's option says so and the cache is full enough.
pub(crate) fn migrate_if_full(table: &Arc<UpdatableTable>, threshold: Option<f64>) {
    if let Some(threshold) = threshold {
        auto_migrate::begin(table, threshold);
    }
}

fn refuse(waiting: Vec<QueuedWrite>, error: &Error) {
    for QueuedWrite { answer, .. } in waiting {
        drop(answer.send(Err(same(error))));
    }
}

/// An error for one more caller.
fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

/// A change in the types of the table that can be made.
pub(crate) struct CheckedChange {
    pub operation: Operation,
    /// The rows in the types of the table.
    pub rows: RecordBatch,
}

/// A turn of a writer.
pub(crate) struct WriteTurn<'a> {
    pub table: &'a Arc<UpdatableTable>,
    pub store: &'a Arc<Store>,
    /// The lock is held until the turn ends, and as long as a write that the turn began is under way.
    lock: Arc<WriterLock>,
    pub manifest: Arc<Manifest>,
    pub updates: ManifestUpdates,
    pub parameters: Parameters,
    key: Arc<KeyColumns>,
    /// The schema of changes.
    schema: SchemaRef,
    /// The data files, without any buffered change.
    pub base: Snapshot,
    pub tail: LogTail,
    /// Commits that are not on the disk yet.
    commits: Vec<LogCommit>,
    /// The bytes of the commits' frame, if they go to a run without the log.
    pub unlogged: u64,
    /// The sequence number of the first of these commits.
    first: u64,
    /// The log as it is on the disk.
    end: u64,
    /// The state before these commits, where a check needed it.
    before: Option<Arc<MergedView>>,
}

impl<'a> WriteTurn<'a> {
    pub(crate) async fn begin(table: &'a Arc<UpdatableTable>) -> Result<WriteTurn<'a>> {
        let store = table.base.writable_store()?;
        if !store.is_local() {
            return Err(not_local(store));
        }
        let lock = Arc::new(WriterLock::take(store).await?);
        let mut base = Snapshot::pin_base(&table.base).await?;
        if publication::finish_publication(&table.base, &base).await?
            || repair::take_over_if_empty(&table.base, &base).await?
        {
            base = Snapshot::pin_base(&table.base).await?;
        }
        let manifest = base.manifest.clone().ok_or_else(|| no_key(&table.base))?;
        let updates = manifest.updates.clone().ok_or_else(|| no_key(&table.base))?;
        let parameters = Parameters::of(&updates.options)?;
        let state = ManifestState { number: manifest.number, migration_done: base.migration_done() };
        let files = &table.overlays.files;
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
            tail,
            commits: Vec::new(),
            unlogged: 0,
            first,
            end,
            before: None,
        })
    }

    /// Whether less of the cache is full than this.
    pub(crate) fn is_below(&self, share: Option<f64>) -> bool {
        share.is_some_and(|share| (self.updates.run_bytes() as f64) < share * self.parameters.cache_bytes as f64)
    }

    pub(crate) fn updated(&self) -> UpdateContext<'_> {
        UpdateContext {
            store: self.store,
            updates: &self.updates,
            manifest: self.manifest.number,
            migration_done: self.base.migration_done(),
            key: Arc::clone(&self.key),
            schema: Arc::clone(&self.schema),
        }
    }

    /// Checks changes and takes them in.
    async fn accept(&mut self, changes: &[Change], options: &WriteOptions) -> Result<Written> {
        if let Some(written) = self.already_made(options) {
            return Ok(written);
        }
        let mut commit = LogCommit { tag: tag(options)?, ..LogCommit::default() };
        let fits = self.checked(changes, options).await?;
        let rows = fits.iter().map(|fit| fit.rows.num_rows() as u64).sum();
        let names = self.base.column_names().cloned();
        for CheckedChange { operation, rows: fit } in fits {
            commit.changes.push(LogChange { operation, rows: to_ipc(&fit, names.as_deref())? });
        }
        let sequence = self.tail.next;
        if rows == 0 {
            return Ok(Written { sequence: sequence.saturating_sub(1), rows });
        }
        self.tail.apply(sequence, &commit, &self.schema, names.as_deref())?;
        self.commits.push(commit);
        Ok(Written { sequence, rows })
    }

    /// Changes in the types of the table; an error if they cannot be made.
    pub(crate) async fn checked(&mut self, changes: &[Change], options: &WriteOptions) -> Result<Vec<CheckedChange>> {
        let schema = self.base.schema();
        let fit = |change: &Change| {
            let rows = fitted(change, &schema, &self.key)?;
            Ok(CheckedChange { operation: change.operation, rows })
        };
        let fits = changes.iter().map(fit).collect::<Result<Vec<_>>>()?;
        self.check(&fits, options).await?;
        Ok(fits)
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

    /// Whether keys that are inserted are there already, and whether somebody was faster.
    async fn check(&mut self, changes: &[CheckedChange], options: &WriteOptions) -> Result<()> {
        let key = Arc::clone(&self.key);
        // What an earlier operation of the same call did to a key decides over what is there.
        let mut own: Vec<(Operation, KeySet)> = Vec::new();
        for CheckedChange { operation, rows } in changes {
            let keys = KeySet::of(&key, key.columns(rows)?)?;
            if let Some(read_at) = options.read_at {
                self.check_since(rows, &keys, read_at).await?;
            }
            if let Some(read) = &options.read {
                let overlay = self.before().await?;
                let now = SeenState { base: &self.base, overlay: &overlay };
                if let Some(key) = changed_since(read, &now, &key, &keys).await? {
                    return Err(conflict(&key));
                }
            }
            if *operation == Operation::Insert {
                // An update brings no row that is not there.
                let decisive = own.iter().rev().filter(|(of, _)| *of != Operation::Update);
                let earlier = |bytes: &[u8]| decisive.clone().find(|(_, keys)| keys.contains(bytes)).map(|(of, _)| *of);
                self.check_absent(rows, &earlier).await?;
            }
            own.push((*operation, keys));
        }
        Ok(())
    }

    async fn check_absent(
        &mut self,
        rows: &RecordBatch,
        earlier: &(dyn Fn(&[u8]) -> Option<Operation> + Send + Sync),
    ) -> Result<()> {
        let key = Arc::clone(&self.key);
        let mut open = Vec::new();
        for (row, bytes) in key.encode(rows)?.iter().enumerate() {
            let recent = self.tail.changes.last(bytes.as_ref()).filter(|last| last.sequence >= self.first);
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
        match self.before().await?.present(&self.base, &key, &keys).await? {
            Some(row) => Err(exists(&key.display(&open, row as usize))),
            None => Ok(()),
        }
    }

    /// The state on the disk.
    async fn before(&mut self) -> Result<Arc<MergedView>> {
        if let Some(before) = &self.before {
            return Ok(Arc::clone(before));
        }
        let before = merged_view(&self.updated(), &self.base, &self.table.overlays).await?;
        self.before = Some(Arc::clone(&before));
        Ok(before)
    }

    /// The sequence number from which on every change is still in a run or in the log. Earlier ones may be in data files by now, which do
    /// not say when a row was changed.
    fn known_from(&self) -> u64 {
        let mut from = self.updates.log.first_sequence;
        for run in self.updates.runs.iter().rev() {
            if run.last_sequence + 1 != from {
                break;
            }
            from = run.first_sequence;
        }
        from
    }

    /// A key that was changed after `read_at` is a conflict.
    async fn check_since(&self, rows: &RecordBatch, keys: &KeySet, read_at: u64) -> Result<()> {
        if read_at.saturating_add(1) < self.known_from() {
            return Err(migrated_since());
        }
        let updated = self.updated();
        for (row, bytes) in updated.key.encode(rows)?.iter().enumerate() {
            if self.tail.changes.last(bytes.as_ref()).is_some_and(|last| last.sequence > read_at) {
                return Err(conflict(&updated.key.display(rows, row)));
            }
        }
        let levels = updated.active_runs(&self.base, &self.table.overlays.files).await?;
        for (run, stacked) in self.updates.runs.iter().zip(levels) {
            if run.last_sequence <= read_at {
                continue;
            }
            let found = stacked.level.rows_with(&updated.key, keys).await?;
            let changed = stacked.level.read(&updated.schema, &found).await?;
            let said = super::rows::ChangeColumns::of(&changed)?;
            if let Some(row) = (0..changed.num_rows()).find(|row| said.sequence(*row) > read_at) {
                return Err(conflict(&updated.key.display(&changed, row)));
            }
        }
        Ok(())
    }

    /// Makes what was accepted durable.
    async fn commit(mut self) -> Result<Done> {
        if self.commits.is_empty() {
            return Ok(Done::Appended);
        }
        let frame = log_frame(&self.updates.log.id, self.end, self.first, &self.commits).map_err(|error| {
            Error::unsupported("the changes are too large for one call; split them").with_source(error)
        })?;
        let buffered = self.end - lakemark_format::log::LOG_START + frame.len() as u64;
        let runs = &self.table.overlays.files.runs;
        if is_full(&self.updated(), buffered, &self.parameters, &self.base, runs).await? {
            self.unlogged = frame.len() as u64;
            flush(&mut self).await?;
            return Ok(Done::Flushed);
        }
        let Some(path) = self.store.local_path(&self.updates.log.path) else { return Err(not_local(self.store)) };
        let (end, length) = (self.end, frame.len() as u64);
        let lock = Arc::clone(&self.lock);
        let written = disk::on_a_thread(move || {
            let _lock = lock;
            append(&path, end, &frame)
        });
        match written.await.map_err(|error| Error::task(&error))? {
            Ok(()) => {}
            Err(NotAppended::NotMade(error)) => return Err(unwritable(self.store, error)),
            Err(NotAppended::Unknown(error)) => return Err(self.store.unsure(error)),
        }
        (self.tail.last, self.tail.end, self.tail.own) = (end, end + length, end + length);
        self.table.overlays.files.writer.put(self.tail);
        Ok(Done::Appended)
    }
}

/// How the log has the name of a call.
fn tag(options: &WriteOptions) -> Result<String> {
    Ok(options.transaction.as_ref().map(Transaction::tag).transpose()?.unwrap_or_default())
}

/// Where changes are durable.
enum Done {
    /// In the log, if there were any.
    Appended,
    /// In a run.
    Flushed,
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
