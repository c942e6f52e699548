//! Changes that wait for their turn, of one process.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::error::Result;
use crate::updates::changes::change::{Change, WriteOptions, Written};

/// Changes that wait for their turn.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub changes: Vec<Change>,
    pub options: WriteOptions,
    pub answer: oneshot::Sender<Result<Written>>,
}

/// Who writes next.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<Vec<QueuedWrite>>,
    turn: tokio::sync::Mutex<()>,
}

impl WriteQueue {
    /// Lets changes wait.
    pub(crate) fn push(&self, waiting: QueuedWrite) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
    }

    /// Takes all that wait.
    pub(crate) fn take(&self) -> Vec<QueuedWrite> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until nobody else of this process writes.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}
