//! A call of more changes than are kept in memory at once: it goes straight to a run, part by part.
//!
//! ```text
//! staged, sorted ─▶ part │ part │ part ─ check, merge with the buffer's changes of these keys, resolve ─▶ run ─▶ one commit
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::row::{Row, Rows};

use super::staged_merge::{SortedChunk, SortedRows};
use crate::error::{Error, Result};
use crate::updates::changes::change::{WriteOptions, Written};
use crate::updates::changes::rows::changes;
use crate::updates::migration::auto_migrate;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::turn::checks::{CheckedChange, checked};
use crate::updates::turn::flush::NewRun;
use crate::updates::turn::merge_apart::merge_apart;
use crate::updates::turn::write_turn::WriteTurn;

/// How large a call is that goes straight to a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkSize {
    /// Bytes of changes that are in memory at a time.
    pub part_bytes: usize,
    /// Bytes of all staged changes.
    pub staged_bytes: u64,
}

/// Makes the changes that `sorted` has in one call, part by part.
pub(crate) async fn bulk_write(
    table: &Arc<UpdatableTable>,
    mut sorted: SortedRows,
    size: BulkSize,
    options: WriteOptions,
) -> Result<Written> {
    // The call is a task of its own, so that a caller who goes away leaves no half of it.
    let table = Arc::clone(table);
    let made = tokio::spawn(async move {
        let BulkWritten { done, migrates_at } = write_run(&table, &mut sorted, size, &options).await?;
        if done.is_ok() {
            merge_apart(&table).await;
        }
        auto_migrate::begin(&table, migrates_at);
        done
    });
    made.await.map_err(|error| Error::task(&error))?
}

/// What became of a call in its turn.
struct BulkWritten {
    done: Result<Written>,
    migrates_at: Option<f64>,
}

async fn write_run(
    table: &Arc<UpdatableTable>,
    sorted: &mut SortedRows,
    size: BulkSize,
    options: &WriteOptions,
) -> Result<BulkWritten> {
    let _turn = table.queue.turn().await;
    let mut writing = WriteTurn::begin(table).await?;
    if let Some(written) = writing.already_made(options) {
        return Ok(BulkWritten { done: Ok(written), migrates_at: None });
    }
    sorted.check_order(&writing.updated().key)?;
    let mut run = NewRun::begin(&writing).await?;
    let mut buffer = Buffer::of(&writing)?;
    let mut rows = 0;
    while let Some(part) = sorted.next_part(size.part_bytes)? {
        let chunk = merged(&mut writing, &part, options, buffer.until(Some(part.last.row()))).await?;
        rows += chunk.rows;
        run.add(&writing, chunk.changes).await?;
    }
    run.add(&writing, buffer.until(None)).await?;
    let sequence = writing.add_call(options, rows, size.staged_bytes)?;
    let done = run.commit(&mut writing).await.map(|()| Written { sequence, rows });
    Ok(BulkWritten { done, migrates_at: writing.parameters.migration_threshold })
}

/// A part that was merged with what the buffer has of its keys.
struct MergedChunk {
    /// How many rows the part has.
    rows: u64,
    /// What is left of the part and of the buffer.
    changes: RecordBatch,
}

/// Merges a part with what the buffer has of its keys.
async fn merged(
    writing: &mut WriteTurn<'_>,
    part: &SortedChunk,
    options: &WriteOptions,
    buffered: RecordBatch,
) -> Result<MergedChunk> {
    let fits = checked(writing, &part.changes, options).await?;
    let (sequence, schema) = (writing.tail.next, writing.updated().schema);
    let mut merger = writing.tail.changes.emptied();
    merger.add(buffered)?;
    let mut rows = 0;
    for CheckedChange { operation, rows: fit } in fits {
        rows += fit.num_rows() as u64;
        merger.add(changes(&schema, operation, sequence, &fit)?)?;
    }
    Ok(MergedChunk { rows, changes: merger.finish()? })
}

/// The changes of the buffer, in the order of keys.
struct Buffer {
    rows: RecordBatch,
    keys: Rows,
    row: usize,
}

impl Buffer {
    fn of(writing: &WriteTurn<'_>) -> Result<Self> {
        let rows = writing.tail.changes.finish()?;
        let keys = writing.updated().key.encode(&rows)?;
        Ok(Self { rows, keys, row: 0 })
    }

    /// The next changes, up to a key; all that are left without one.
    fn until(&mut self, key: Option<Row<'_>>) -> RecordBatch {
        let left = self.keys.iter().skip(self.row);
        let count = left.take_while(|found| key.is_none_or(|key| *found <= key)).count();
        let rows = self.rows.slice(self.row, count);
        self.row += count;
        rows
    }
}
