//! From the buffer to a run on the disk, and from many runs to few.

use arrow::array::RecordBatch;
use lakemark_format::log::LOG_START;
use lakemark_format::{ManifestTransaction, ManifestUpdates, WriteCounters};

use super::merge::{discard, merge_oldest};
use super::write_turn::WriteTurn;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::failpoint::reach;
use crate::store::transaction::{CompactedRows, Edit, commit};
use crate::updates::changes::phase::with_both;
use crate::updates::log::log_file::new_log;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::position_map::PositionMapBuilder;
use crate::updates::runs::position_map_file::position_map_of;
use crate::updates::runs::resolve_keys::{KeyResolver, memory_rows};
use crate::updates::runs::run_writer::{FinishedRun, RunWriter, SequenceRange};
use crate::updates::view::context::UpdateContext;

/// Makes a run of the buffer and begins a new log. Whoever had the turn merges runs afterwards (`merge_apart`).
pub(crate) async fn flush(writing: &mut WriteTurn<'_>) -> Result<()> {
    if writing.tail.changes.len() == 0 {
        return Ok(());
    }
    let mut run = NewRun::begin(writing).await?;
    run.add(writing, writing.tail.changes.finish()?).await?;
    run.commit(writing).await
}

/// A run that is made part by part, of changes in the buffer and of changes that go straight to it.
pub(crate) struct NewRun {
    out: RunWriter,
    /// The runs that there are.
    older: Vec<ActiveRun>,
    /// The runs as they will be once the migration that is under way is done, if one is.
    afterwards: Option<Vec<ActiveRun>>,
    /// The number of the migration, if some updates come to something else once it is done.
    during: u64,
    resolved: PositionMapBuilder,
}

impl NewRun {
    pub(crate) async fn begin(writing: &WriteTurn<'_>) -> Result<Self> {
        let updated = writing.updated();
        let files = &writing.table.merged_views.files;
        let older = updated.active_runs(&writing.base, files).await?;
        let afterwards = match &writing.updates.migration {
            Some(_) if !updated.migration_done => {
                let done = UpdateContext { migration_done: true, ..writing.updated() };
                Some(done.active_runs(&writing.base, files).await?)
            }
            _ => None,
        };
        let names = writing.base.column_names().cloned();
        let out = RunWriter::new(writing.store, &updated.schema, &updated.key, names.as_deref(), &writing.parameters);
        let resolved = PositionMapBuilder::in_files(writing.base.files());
        Ok(Self { out, older, afterwards, during: 0, resolved })
    }

    /// Adds changes in the order of keys, at most one for each, all of them behind those before.
    pub(crate) async fn add(&mut self, writing: &WriteTurn<'_>, changes: RecordBatch) -> Result<()> {
        if changes.num_rows() == 0 {
            return Ok(());
        }
        let updated = writing.updated();
        let ground = KeyResolver { base: &writing.base, key: &updated.key, schema: &updated.schema };
        let run = ground.resolve_keys(writing.tail.log, changes.clone(), &self.older).await?;
        let Some(rows) = memory_rows(&run) else { return Err(Error::internal("a buffer is not in memory")) };
        let both = match &self.afterwards {
            Some(afterwards) => with_both(rows, &ground.merge_onto(changes, afterwards).await?)?,
            None => None,
        };
        if both.is_some() {
            self.during = writing.updates.migration.as_ref().map_or(0, |migration| migration.number);
        }
        let first = u32::try_from(self.out.rows()).unwrap_or(u32::MAX);
        self.out.write(both.as_ref().unwrap_or(rows))?;
        self.resolved.add(run.hits_with_rows(), run.all_replaced(), |row| first.checked_add(row));
        check_room(writing, self.out.bytes())
    }

    /// Lets the run take the place of the log, whose end is in `writing`.
    pub(crate) async fn commit(self, writing: &mut WriteTurn<'_>) -> Result<()> {
        let Self { out, resolved, during, .. } = self;
        let sequences =
            SequenceRange { first: writing.updates.log.first_sequence, last: writing.tail.next.saturating_sub(1) };
        let logged = writing.tail.end.saturating_sub(LOG_START);
        let FinishedRun { mut run, filter } = out.finish(1, sequences, logged + writing.unlogged).await?;
        run.during = during;
        let store = writing.store;
        if let Err(full) = check_room(writing, run.length) {
            // A writer that is refused tries again and again, and its runs would fill the disk.
            store.discard(&run.path).await;
            return Err(full);
        }
        reach("run-written");
        let resolved = resolved.into_run(run.rows);
        run.position_map = position_map_of(store, &resolved, &run, filter.clone()).await;
        reach("position-map-written");
        let log = match new_log(store, writing.tail.next).await {
            Ok(log) => log,
            Err(error) => {
                discard(store, &run).await;
                return Err(error);
            }
        };
        reach("log-created");
        let written = WriteCounters {
            rows: writing.tail.rows,
            log_bytes: logged,
            flushed_bytes: run.length,
            ..WriteCounters::default()
        };
        let calls = writing.tail.transactions.iter().map(|(application, last)| ManifestTransaction {
            application: application.clone(),
            version: last.version,
            sequence: last.sequence,
        });
        let (of_log, transactions) = (writing.updates.log.id, calls.collect());
        let compacted = compacted_rows(&writing.updates);
        let edit = Edit::AddRun { of_log, run: Box::new(run.clone()), log, written, transactions, compacted };
        if !commit(writing.store, &edit).await?.changed {
            discard(writing.store, &run).await;
            return Err(Error::new(
                ErrorKind::Conflict,
                "the log of updates was replaced, or a migration was given up, by somebody else; try again",
            ));
        }
        writing.table.merged_views.files.runs.put_written(run.id, resolved, filter);
        reach("run-committed");
        // Runs are merged behind the turn. Where these merges do not keep up, the turn merges before others may go on.
        let is_behind = writing.updates.runs.len() as u64 >= writing.parameters.most_runs();
        // The changes are made: the call of their writer must not fail now.
        if is_behind && let Err(error) = merge_oldest(writing).await {
            tracing::warn!(store = writing.store.text(), %error, "runs of buffered changes could not be merged");
        }
        Ok(())
    }
}

/// Some rows that the migration under way compacts.
fn compacted_rows(updates: &ManifestUpdates) -> Option<CompactedRows> {
    let range = updates.migration.as_ref()?.ranges.first()?;
    let of = updates.runs.get(range.run as usize)?;
    Some(CompactedRows { run: of.id, rows: range.rows.clone() })
}

/// Whether the cache has room for a run of so many bytes.
fn check_room(writing: &WriteTurn<'_>, bytes: u64) -> Result<()> {
    let have = writing.updates.run_bytes();
    let limit = writing.parameters.cache_bytes;
    if have + bytes <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::CacheFull,
        format!(
            "buffered updates take {have} of {limit} bytes, so that these were not made; all before them are safe: run \
             `lakemark migrate {}`, or give the table a larger cache_bytes",
            writing.table.base.location()
        ),
    ))
}
