//! What a turn comes to: changes that were accepted go to the log in one frame, or to a run where the buffer is full.

use std::sync::Arc;

use lakemark_format::log::{LOG_START, log_frame};
use lakemark_format::{LogChange, LogCommit};

use super::checks::{CheckedChange, checked};
use super::flush::flush;
use super::flush_policy::is_full;
use super::write_turn::{WriteTurn, tag};
use crate::error::{Error, Result};
use crate::storage::disk;
use crate::updates::changes::change::{Change, WriteOptions, Written};
use crate::updates::errors::{not_local, unwritable};
use crate::updates::log::append::{NotAppended, append};
use crate::updates::log::log_tail::to_ipc;

/// Where changes are durable.
pub(crate) enum Done {
    /// In the log, if there were any.
    Appended,
    /// In a run.
    Flushed,
    /// Nowhere: the columns of the data files are not those that the changes were checked by.
    Outdated,
}

/// Checks changes and takes them in.
pub(crate) async fn accept(writing: &mut WriteTurn<'_>, changes: &[Change], options: &WriteOptions) -> Result<Written> {
    if let Some(written) = writing.already_made(options) {
        return Ok(written);
    }
    let mut commit = LogCommit { tag: tag(options)?, ..LogCommit::default() };
    let fits = checked(writing, changes, options).await?;
    let rows = fits.iter().map(|fit| fit.rows.num_rows() as u64).sum();
    let names = writing.base.column_names().cloned();
    for CheckedChange { operation, rows: fit } in fits {
        commit.changes.push(LogChange { operation, rows: to_ipc(&fit, names.as_deref())? });
    }
    let sequence = writing.tail.next;
    if rows == 0 {
        return Ok(Written { sequence: sequence.saturating_sub(1), rows });
    }
    writing.tail.apply(sequence, &commit, &writing.schema, names.as_deref())?;
    writing.commits.push(commit);
    Ok(Written { sequence, rows })
}

/// Makes what was accepted durable.
pub(crate) async fn commit(mut writing: WriteTurn<'_>) -> Result<Done> {
    if writing.commits.is_empty() {
        return Ok(Done::Appended);
    }
    let frame = log_frame(&writing.updates.log.id, writing.end, writing.first, &writing.commits)
        .map_err(|error| Error::unsupported("the changes are too large for one call; split them").with_source(error))?;
    let buffered = writing.end - LOG_START + frame.len() as u64;
    let runs = &writing.table.merged_views.files.runs;
    if is_full(&writing.updated(), buffered, &writing.parameters, &writing.base, runs).await? {
        // A run says what its keys hit in the data files.
        if !writing.pin_files().await? {
            return Ok(Done::Outdated);
        }
        writing.unlogged = frame.len() as u64;
        flush(&mut writing).await?;
        return Ok(Done::Flushed);
    }
    let Some(path) = writing.store.local_path(&writing.updates.log.path) else { return Err(not_local(writing.store)) };
    let (end, length) = (writing.end, frame.len() as u64);
    let lock = Arc::clone(&writing.lock);
    let written = disk::on_a_thread(move || {
        let _lock = lock;
        append(&path, end, &frame)
    });
    match written.await.map_err(|error| Error::task(&error))? {
        Ok(()) => {}
        Err(NotAppended::NotMade(error)) => return Err(unwritable(writing.store, error)),
        Err(NotAppended::Unknown(error)) => return Err(writing.store.unsure(error)),
    }
    (writing.tail.last, writing.tail.end, writing.tail.own) = (end, end + length, end + length);
    writing.table.merged_views.files.writer.put(writing.tail);
    Ok(Done::Appended)
}
