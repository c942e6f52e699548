//! Publishing new data files by one commit of a Delta log.
//!
//! The commit counts as a read of all keys that are merged. A commit of others since the snapshot is let pass if it replaces no file that
//! is replaced here, adds none of these keys, and leaves metadata and protocol alone. The library's own commits cannot be had that way.
//! They let all blind appends and compactions of others pass, refuse tables with mapped columns in this build, and do not sync. The commit
//! has an application transaction, so that it is not made again if its outcome was never heard of.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use deltalake_core::kernel::{Action, Add, AddCDCFile, Transaction};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::files::column_mapping::physical_fields;
use crate::files::delta::logged_path::is_outside;
use crate::files::delta::{DeltaState, partition_text};
use crate::rewrite::change_feed::{self, CHANGES};
use crate::rewrite::checkpoint;
use crate::rewrite::commit::{AddedFile, Commit, CommitDemands, CommitInfo};
use crate::rewrite::constraints::Constraints;
use crate::rewrite::folder::hive_folders;
use crate::rewrite::indexed_columns::IndexedColumns;
use crate::rewrite::log::{Admission, Log, Outcome};
use crate::rewrite::refill::name_start;
use crate::rewrite::row_ids::RowIds;
use crate::rewrite::stats::stats_of;
use crate::rewrite::target::{FILE_BYTES, FileTarget, NewPath, WrittenFile};
use crate::rewrite::{RewriteInput, RewriteOutput, rewrite_files};
use crate::snapshot::{DataFile, Snapshot};
use crate::storage::clock;
use crate::storage::failpoint::reach;
use crate::storage::ids::new_id;
use crate::storage::location::Location;

pub(crate) use crate::rewrite::log::{ApplicationTransaction, ApplicationVersion};
pub(crate) use crate::rewrite::writable::check_writable;

/// What became of a migration.
#[derive(Debug)]
pub(crate) enum MigrationOutcome {
    /// The migration was committed as this version of the table.
    Committed { version: u64, rewritten: RewriteOutput },
    /// The log had this migration, or a later one, already: nothing was done.
    Already,
}

/// Merges rows into the files of a snapshot and commits that. With an error of the kind `Conflict` others were faster. The table is then as
/// they left it, and the caller tries again from a new snapshot.
pub(crate) async fn migrate(
    location: &Location,
    snapshot: &Snapshot,
    input: &RewriteInput<'_>,
    transaction: &ApplicationTransaction,
) -> Result<MigrationOutcome> {
    migrate_then(location, snapshot, input, transaction, || {}).await
}

/// [`migrate`], with something to happen between the writing of files and the commit, where tests let others be faster.
pub(super) async fn migrate_then(
    location: &Location,
    snapshot: &Snapshot,
    input: &RewriteInput<'_>,
    transaction: &ApplicationTransaction,
    before_commit: impl FnOnce() + Send,
) -> Result<MigrationOutcome> {
    let state = DeltaState::read(location).await?;
    if state.application_version(&transaction.id).await?.is_some_and(|have| have >= transaction.version) {
        return Ok(MigrationOutcome::Already);
    }
    let log = Log { location, transaction, lock: input.lock.clone() };
    log.check_since(snapshot, &state).await?;
    check_writable(&state)?;
    Constraints::of(&state)?.check(snapshot, input).await?;
    let StoredColumns { in_files: schema, partition: partition_columns } = stored_columns(&state);
    let path = |number: usize, replaces: Option<&DataFile>, partition: &[ArrayRef]| {
        // A new file lies beside the one that it replaces, unless that is no file of the table's own.
        let own = replaces.filter(|file| !is_outside(&file.path));
        let beside = own.map(|file| file.path.rsplit_once('/').map_or(String::new(), |(at, _)| format!("{at}/")));
        let folder = beside.map_or_else(|| hive_folders(&partition_columns, partition), Ok)?;
        Ok(format!("{folder}{}-{number:05}-{}.parquet", name_start(replaces), new_id()))
    };
    let change_path = |number: usize, _: Option<&DataFile>, partition: &[ArrayRef]| {
        // The log has the partition of a change file, whatever folder it is in.
        let folder = hive_folders(&partition_columns, partition).unwrap_or_default();
        Ok(format!("{CHANGES}/{folder}cdc-{number:05}-{}.parquet", new_id()))
    };
    let changes = change_feed::is_kept(&state)
        .then(|| new_files(location, change_feed::columns(&schema), None, None, &change_path));
    let columns = state.row_tracking()?.and_then(|tracking| tracking.columns);
    let row_ids = columns.map(|columns| Arc::new(RowIds::new(columns, &state, &schema)));
    let target = new_files(location, schema, row_ids, changes.as_ref(), &path);
    let rewritten = rewrite_files(snapshot, input, &target).await?;
    reach("migration-written");
    before_commit();
    let commit = commit_of(&state, snapshot, &rewritten, &target.schema, &partition_columns, transaction).await;
    let replaced = rewritten.replaced.iter().filter_map(|file| Some(snapshot.files().get(*file)?.path.as_str()));
    let admission = Admission { replaced: replaced.collect(), keys: input.keys };
    let are_there = match target.check_there(&rewritten.files).await {
        Ok(()) => target.check_there(&rewritten.changes).await,
        error => error,
    };
    let commit = match (are_there, commit) {
        (Ok(()), Ok(commit)) => log.end_of(&state, &commit).await.map(|end| (end, commit)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    let committed = match commit {
        Ok((end, commit)) => log.commit(end, &commit, &admission).await,
        Err(error) => Outcome::Refused(error),
    };
    let outcome = conclude(&target, committed, rewritten).await?;
    if let MigrationOutcome::Committed { version, .. } = &outcome {
        checkpoint::after_commit(location, &state, *version).await;
    }
    Ok(outcome)
}

/// New files of the table.
fn new_files<'a>(
    location: &Location,
    schema: SchemaRef,
    row_ids: Option<Arc<RowIds>>,
    changes: Option<&'a FileTarget<'a>>,
    path: &'a NewPath<'a>,
) -> FileTarget<'a> {
    FileTarget {
        object_store: Arc::clone(&location.object_store),
        prefix: location.prefix.clone(),
        local: location.local.clone(),
        schema,
        file_bytes: FILE_BYTES,
        columns_are_in_files: false,
        tracks_nan: true,
        row_ids,
        changes,
        spark_schema: None,
        path,
    }
}

/// What becomes of the new files after a commit was made or not.
async fn conclude(target: &FileTarget<'_>, committed: Outcome, rewritten: RewriteOutput) -> Result<MigrationOutcome> {
    match committed {
        Outcome::Committed(version) => {
            reach("migration-committed");
            Ok(MigrationOutcome::Committed { version, rewritten })
        }
        Outcome::Already => {
            target.discard(&rewritten.files).await;
            target.discard(&rewritten.changes).await;
            Ok(MigrationOutcome::Already)
        }
        Outcome::Refused(error) => {
            target.discard(&rewritten.files).await;
            target.discard(&rewritten.changes).await;
            Err(error)
        }
        // The log may name the files.
        Outcome::Unknown(error) => Err(error),
    }
}

/// Keeps the commit of a migration whose process is gone out of the log: an object store may still do an earlier request. Says whether the
/// commit has not come, by this version of the table or now.
///
/// # Errors
/// Nobody can know, or the table has features that this release does not know how to write.
pub(crate) async fn keep_out(location: &Location, version: u64, transaction: &ApplicationTransaction) -> Result<bool> {
    let state = DeltaState::read(location).await?;
    check_writable(&state)?;
    let now = clock::utc().timestamp_millis();
    let info = CommitInfo { operation: "ABANDON MIGRATION", read_version: Some(version), now, metrics: json!({}) };
    let commit = Commit::of_nothing(info, CommitDemands::of(&state)?);
    Log { location, transaction, lock: None }.block_version(version, &commit).await
}

/// The columns of a table as they are stored.
struct StoredColumns {
    /// Columns of the files.
    in_files: SchemaRef,
    /// Partition columns.
    partition: Vec<Field>,
}

fn stored_columns(state: &DeltaState) -> StoredColumns {
    let stored = physical_fields(state.logged_schema.fields());
    let shown = || state.schema.fields().iter().zip(&stored);
    let is_partition = |name: &str| state.partition_columns.iter().any(|column| column.name() == name);
    let in_files: Vec<_> =
        shown().filter(|(field, _)| !is_partition(field.name())).map(|(_, stored)| Arc::clone(stored)).collect();
    let partition = state.partition_columns.iter().filter_map(|column| {
        let (_, stored) = shown().find(|(field, _)| field.name() == column.name())?;
        Some(stored.as_ref().clone())
    });
    StoredColumns { in_files: Arc::new(Schema::new(in_files)), partition: partition.collect() }
}

/// The commit of what was written.
async fn commit_of(
    state: &DeltaState,
    snapshot: &Snapshot,
    rewritten: &RewriteOutput,
    schema: &SchemaRef,
    partition_columns: &[Field],
    transaction: &ApplicationTransaction,
) -> Result<Commit> {
    let now = clock::utc().timestamp_millis();
    let metrics = json!({
        "numAddedFiles": rewritten.files.len().to_string(),
        "numRemovedFiles": rewritten.replaced.len().to_string(),
        "numAddedChangeFiles": rewritten.changes.len().to_string(),
    });
    let info = CommitInfo { operation: "MIGRATE", read_version: snapshot.delta_version(), now, metrics };
    let mut commit = Commit::of_nothing(info, CommitDemands::of(state)?);
    let replaced: Vec<&str> =
        rewritten.replaced.iter().filter_map(|file| Some(snapshot.files().get(*file)?.path.as_str())).collect();
    let removed = state.removals(&replaced, now).await?;
    let known = replaced.iter().zip(&removed);
    let partition_of: HashMap<&str, _> =
        known.map(|(path, removal)| (*path, removal.action.partition_values.clone())).collect();
    for removal in &removed {
        let mut line = to_json(&Action::Remove(removal.action.clone()))?;
        // Readers know a file by the text of its path, however its first writer escaped that.
        if let Some(path) = line.pointer_mut("/remove/path") {
            *path = Value::from(removal.path.as_str());
        }
        commit.removes.push(line);
    }
    let partition_values = |file: &WrittenFile| {
        let replaced = file.replaces.and_then(|file| snapshot.files().get(file));
        let known = replaced.and_then(|file| partition_of.get(file.path.as_str()).cloned().flatten());
        known.map_or_else(|| partition_texts(partition_columns, file), Ok)
    };
    let size =
        |file: &WrittenFile| i64::try_from(file.size).map_err(|_| Error::internal("a file of that size cannot be"));
    let wanted = IndexedColumns::of(state);
    for file in &rewritten.files {
        let action = to_json(&Action::Add(Add {
            path: file.path.clone(),
            partition_values: partition_values(file)?,
            size: size(file)?,
            modification_time: now,
            data_change: true,
            stats: Some(stats_of(file, schema, &wanted)),
            ..Add::default()
        }))?;
        commit.adds.push(AddedFile { action, rows: file.rows() });
    }
    for file in &rewritten.changes {
        commit.others.push(to_json(&Action::Cdc(AddCDCFile {
            path: file.path.clone(),
            partition_values: partition_values(file)?,
            size: size(file)?,
            data_change: false,
            tags: None,
        }))?);
    }
    // With a time, since tables that forget old transactions forget those without one at once.
    let through = transaction.through.as_ref().map(|through| (&through.id, through.version));
    for (id, version) in std::iter::once((&transaction.id, transaction.version)).chain(through) {
        commit.others.push(to_json(&Action::Txn(Transaction::new_with_last_update(id, version, Some(now))))?);
    }
    Ok(commit)
}

fn to_json(action: &Action) -> Result<Value> {
    serde_json::to_value(action).map_err(|error| Error::internal("an action cannot be written").with_source(error))
}

/// The values of partition columns as the protocol writes them.
fn partition_texts(columns: &[Field], file: &WrittenFile) -> Result<HashMap<String, Option<String>>> {
    let values = columns.iter().zip(&file.partition_values);
    values.map(|(column, value)| Ok((column.name().clone(), partition_text(value)?))).collect()
}
