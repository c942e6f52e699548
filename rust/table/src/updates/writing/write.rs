//! Writing changes: one writer at a time, under a lock of the operating system, which dies with its process.
//!
//! ```text
//! callers ─▶ queue ─▶ whoever holds the turn takes all that wait: lock, read on, check, one frame, one sync, answer all
//!                                                                   └─ buffer full: flush to a run, commit the manifest, merge runs
//! ```
//!
//! Changes are durable when the frame is synced, or when the manifest names the run that has them.
//!
//! Upserts, updates and deletes by key need the table's columns and no data file, so that they list nothing while the table's own folder is as
//! it was. Where they do not fit these columns, would lose something in their types, or go to a run, the newest data files are looked at.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_format::Operation;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::updates::changes::change::{Change, WriteOptions, Written, is_kept};
use crate::updates::migration::auto_migrate;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::state::write_queue::QueuedWrite;
use crate::updates::turn::log_commit::{Done, accept, commit};
use crate::updates::turn::merge_apart::merge_apart;
use crate::updates::turn::write_turn::{FilesNeeded, WriteTurn};

/// Writes changes; they are durable, and seen by whoever looks, when this returns.
pub(crate) async fn write(table: &Arc<UpdatableTable>, changes: Vec<Change>, options: WriteOptions) -> Result<Written> {
    let (answer, answered) = oneshot::channel();
    table.queue.push(QueuedWrite { changes, options, answer });
    // The write is a task of its own, so that a caller who goes away does not take the others' changes along.
    let table = Arc::clone(table);
    let turn = tokio::spawn(async move {
        let turn = table.queue.turn().await;
        let waiting = table.queue.take();
        if waiting.is_empty() {
            return;
        }
        let tried = write_all(&table, &waiting).await;
        // Others take their turns while runs are merged.
        drop(turn);
        match tried {
            Ok(attempt) => end(&table, waiting, attempt).await,
            Err(error) => refuse(waiting, &error),
        }
    });
    turn.await.map_err(|error| Error::task(&error))?;
    answered.await.map_err(|_| Error::internal("changes were not answered"))?
}

async fn write_all(table: &Arc<UpdatableTable>, waiting: &[QueuedWrite]) -> Result<Attempt> {
    let needed = if waiting.iter().all(is_blind) { FilesNeeded::Columns } else { FilesNeeded::All };
    match attempt(table, waiting, needed).await {
        // Others may have changed the columns, so that a change fits those that are there now.
        Ok(Attempt { done: Ok(Done::Outdated), .. }) => attempt(table, waiting, FilesNeeded::All).await,
        Err(error) if needed == FilesNeeded::Columns && is_about_columns(&error) => {
            attempt(table, waiting, FilesNeeded::All).await
        }
        tried => tried,
    }
}

/// Whether other columns may be all that is in the way.
fn is_about_columns(error: &Error) -> bool {
    use ErrorKind::{Corrupt, InvalidInput, NotFound, SchemaMismatch, Unsupported};
    // A log with the columns that others gave the table does not fit those that are known.
    matches!(error.kind(), Corrupt | InvalidInput | NotFound | SchemaMismatch | Unsupported)
}

/// Whether nothing of the data files decides whether these changes can be made, but for their columns.
fn is_blind(waiting: &QueuedWrite) -> bool {
    waiting.options.read.is_none() && waiting.changes.iter().all(|change| change.operation != Operation::Insert)
}

/// What became of changes in one turn.
struct Attempt {
    /// Whether each call can be made.
    accepted: Vec<Result<Written>>,
    /// Whether those that can be made were.
    done: Result<Done>,
    migrates_at: Option<f64>,
}

/// Makes what can be made of the changes in one turn. In a turn that knows columns alone nothing is made if one of them does not fit these.
async fn attempt(table: &Arc<UpdatableTable>, waiting: &[QueuedWrite], needed: FilesNeeded) -> Result<Attempt> {
    let mut session = WriteTurn::begin_with(table, needed).await?;
    let migrates_at = session.parameters.migration_threshold;
    if needed == FilesNeeded::Columns
        && !are_kept(waiting, &session.base.schema())
        && !session.has_newest_columns().await?
    {
        return Ok(Attempt { accepted: Vec::new(), done: Ok(Done::Outdated), migrates_at });
    }
    let mut accepted = Vec::with_capacity(waiting.len());
    for QueuedWrite { changes, options, .. } in waiting {
        let written = accept(&mut session, changes, options).await;
        if needed == FilesNeeded::Columns && written.as_ref().is_err_and(is_about_columns) {
            return Ok(Attempt { accepted, done: Ok(Done::Outdated), migrates_at });
        }
        accepted.push(written);
    }
    Ok(Attempt { accepted, done: commit(session).await, migrates_at })
}

/// Whether all changes say the same in other types of the columns, too.
fn are_kept(waiting: &[QueuedWrite], schema: &SchemaRef) -> bool {
    waiting.iter().flat_map(|waiting| &waiting.changes).all(|change| is_kept(change, schema))
}

/// Merges runs if the turn made one, and answers.
async fn end(table: &Arc<UpdatableTable>, waiting: Vec<QueuedWrite>, attempt: Attempt) {
    let Attempt { accepted, done, migrates_at } = attempt;
    if matches!(done, Ok(Done::Flushed)) {
        merge_apart(table).await;
    }
    if !matches!(done, Ok(Done::Appended)) {
        // A run was made, or there was no room for one.
        auto_migrate::begin(table, migrates_at);
    }
    for (QueuedWrite { answer, .. }, written) in waiting.into_iter().zip(accepted) {
        let said = written.and_then(|written| match &done {
            Ok(_) => Ok(written),
            Err(error) => Err(same(error)),
        });
        // Nobody may be listening any more.
        drop(answer.send(said));
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
