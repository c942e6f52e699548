//! `key`, `insert`, `upsert`, `update`, `delete`, `flush`, `repair` and `migrate`: changes of a table's rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use lakemark_table::{
    BuildOptions, CancelFlag, Change, MigrateOptions, Operation, RepairAction, Table, Transaction, WriteOptions,
};
use serde_json::json;

use crate::args::{ChangeArgs, FlushArgs, KeyArgs, MigrateArgs, RepairArgs, RepairChoice, TextFormat, TuningArgs};
use crate::failure::Failure;
use crate::job::Job;
use crate::log::Log;
use crate::progress::CtrlC;
use crate::queries::open;
use crate::{input, maintain, output};

pub(crate) async fn key(args: KeyArgs) -> Result<(), Failure> {
    let options = maintain::options_of(args.options)?;
    let table = open(&args.at).await?;
    let columns = args.on.join(", ");
    if declare(&table, &args.on, &options, &args.tuning).await? {
        output::text(&format!("declared the key ({columns}): {} takes updates now", args.at.table))
    } else {
        output::text(&format!("the key is ({columns}) already; nothing was done"))
    }
}

async fn declare(
    table: &Arc<Table>,
    columns: &[String],
    options: &BTreeMap<String, String>,
    tuning: &TuningArgs,
) -> Result<bool, Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let build: BuildOptions = maintain::shown_options("key", table, None, tuning, cancel);
    Ok(table.declare_key(columns, options, build).await?)
}

pub(crate) async fn change(operation: Operation, args: ChangeArgs) -> Result<(), Failure> {
    let table = open(&args.at).await?;
    // Read before a key is declared: a file that cannot be read changes nothing at all.
    let rows = input::rows(&args.file, &table.snapshot().await?.schema(), operation).await?;
    if let Some(key) = &args.key {
        declare(&table, key, &BTreeMap::new(), &TuningArgs { quiet: args.quiet, ..TuningArgs::default() }).await?;
    }
    let transaction = args.txn_app_id.zip(args.txn_version);
    let transaction = transaction.map(|(application, version)| Transaction { application, version });
    let options = WriteOptions { transaction, ..WriteOptions::default() };
    let written = table.write(vec![Change { operation, rows }], options).await;
    // The process ends with the command: what it began would end, too.
    table.wait_for_migration().await;
    let written = written?;
    let number = |number: u64| -> ArrayRef { Arc::new(UInt64Array::from(vec![number])) };
    let row = RecordBatch::try_from_iter([("rows", number(written.rows)), ("sequence", number(written.sequence))])
        .map_err(|error| Failure::Error(format!("the change was made and cannot be reported: {error}")))?;
    output::batch(row, args.format)
}

pub(crate) async fn flush(args: FlushArgs) -> Result<(), Failure> {
    let table = open(&args.at).await?;
    let keys = table.updates_info().await?.map_or(0, |info| info.buffer_keys);
    table.flush().await?;
    if keys == 0 {
        return output::text("nothing to flush: the buffer is empty");
    }
    let Some(info) = table.updates_info().await? else { return Ok(()) };
    output::text(&format!(
        "flushed the changes of {keys} keys; runs now: {}, {} bytes",
        info.runs.len(),
        info.cache_bytes
    ))
}

pub(crate) async fn repair(args: RepairArgs) -> Result<(), Failure> {
    let table = open(&args.at).await?;
    let RepairChoice(action) = args.buffered;
    match (table.repair(action).await?, action) {
        (false, _) => output::text("nothing to repair: store and table belong together"),
        (true, RepairAction::Keep) => output::text("the buffered updates are kept, and count over what the table has"),
        (true, RepairAction::Discard) => output::text("the buffered updates are discarded"),
    }
}

pub(crate) async fn migrate(args: MigrateArgs, log: Log) -> Result<(), Failure> {
    let job = Job::begin(&args.job, log).await?;
    let table = open(&args.at).await?;
    job.add(&table);
    let progress = job.progress("migrate", &table, args.quiet);
    let MigrateArgs { fraction, max_bytes, threshold, .. } = args;
    let options = MigrateOptions { fraction, max_bytes, threshold, progress };
    let migrated = table.migrate(options).await;
    job.ended("migrate", &table, &migrated).await;
    let report = migrated?;
    let published = if args.publish { Some(table.publish().await?) } else { None };
    if args.format == TextFormat::Json {
        return match published {
            Some(published) => output::json_value(&json!({ "migrated": report, "published": published })),
            None => output::json_value(&report),
        };
    }
    output::report(&report, args.format)?;
    published.map_or(Ok(()), |published| output::report(&published, args.format))
}
