//! Writing changes: one writer at a time, under a lock of the operating system, which dies with its process.
//!
//! ```text
//! callers ─▶ queue ─▶ whoever holds the turn takes all that wait: lock, read on, check, one frame, one sync, answer all
//!                                                                   └─ buffer full: flush to a run, commit the manifest
//! ```
//!
//! Changes are durable when the frame is synced, or when the manifest names the run that has them.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::updates::changes::change::{Change, WriteOptions, Written};
use crate::updates::migration::auto_migrate;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::state::write_queue::QueuedWrite;
use crate::updates::turn::log_commit::{Done, accept, commit};
use crate::updates::turn::write_turn::WriteTurn;

/// Writes changes; they are durable, and seen by whoever looks, when this returns.
pub(crate) async fn write(table: &Arc<UpdatableTable>, changes: Vec<Change>, options: WriteOptions) -> Result<Written> {
    let (answer, answered) = oneshot::channel();
    table.queue.push(QueuedWrite { changes, options, answer });
    // The write is a task of its own, so that a caller who goes away does not take the others' changes along.
    let table = Arc::clone(table);
    let turn = tokio::spawn(async move {
        let _turn = table.queue.turn().await;
        let waiting = table.queue.take();
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
        match accept(&mut session, &changes, &options).await {
            Ok(written) => accepted.push((answer, written)),
            // Nobody may be listening any more.
            Err(error) => drop(answer.send(Err(error))),
        }
    }
    let done = commit(session).await;
    if !matches!(done, Ok(Done::Appended)) {
        // A run was made, or there was no room for one.
        auto_migrate::begin(table, migrates_at);
    }
    for (answer, written) in accepted {
        let said = match &done {
            Ok(_) => Ok(written),
            Err(error) => Err(same(error)),
        };
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
