//! `index create|build|compact|list|drop|verify`, `vacuum` and `history`: what keeps a table's indexes.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use lakemark_table::{
    BuildOptions, BuildReport, CancelFlag, IndexInfo, IndexOption, IndexSpec, Merging, Report, Table, VacuumOptions,
    column_list, index_rows, kind_or_auto, version_rows,
};

use crate::args::{
    BuildArgs, CompactArgs, CreateArgs, DropArgs, HistoryArgs, KeyValue, ListArgs, TuningArgs, VacuumArgs, VerifyArgs,
};
use crate::failure::Failure;
use crate::job::Job;
use crate::log::Log;
use crate::output;
use crate::progress::{CtrlC, shown};
use crate::queries::open;

pub(crate) async fn create(args: CreateArgs) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let table = open(&args.at).await?;
    let mut options = options_of(args.options)?;
    if !args.include.is_empty() {
        let text = column_list(args.include.iter().map(String::as_str));
        if options.insert(IndexOption::Include.name().to_owned(), text).is_some() {
            return Err(Failure::Error("--include and --with include say the same; give one of them".to_owned()));
        }
    }
    let before = names(&table.snapshot().await?.indexes());
    let kind = kind_or_auto(&args.using)?;
    let spec = IndexSpec { name: args.name.clone(), columns: args.on.clone(), kind, options };
    if !table.create_index(spec, args.if_not_exists).await? {
        return output::text("an index of that name exists; nothing was done");
    }
    let after = names(&table.snapshot().await?.indexes());
    let created: Vec<&String> = after.iter().filter(|name| !before.contains(name)).collect();
    if args.no_build {
        let hint = format!("not built: run `lakemark index build {}`", args.at.table);
        return output::text(&format!("created index {}; {hint}", comma(&created)));
    }
    // Only this index is built: filling others, which may take hours, was not asked for.
    let only = match created.as_slice() {
        [one] => Some((*one).clone()),
        // Links are walked both ways, by two indexes that are built together.
        [one, back] if **back == format!("{one}_back") => Some((*one).clone()),
        _ => args.name,
    };
    let report = run_build(&table, only, &args.tuning, cancel).await?;
    let encoding = encoding_text(&table.snapshot().await?.indexes(), &created);
    output::text(&format!("created index {}\n{encoding}{}", comma(&created), report.describe()))?;
    check_failures(&report, &table)
}

/// What `--with` says, each once.
pub(crate) fn options_of(given: Vec<KeyValue>) -> Result<BTreeMap<String, String>, Failure> {
    let mut options = BTreeMap::new();
    for KeyValue { key, value } in given {
        if options.insert(key.clone(), value).is_some() {
            return Err(Failure::Error(format!("--with {key} is given twice; give it once")));
        }
    }
    Ok(options)
}

pub(crate) async fn build(args: BuildArgs, log: Log) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let BuildArgs { run, verify, commit_every, max_failures, no_merge } = args;
    let job = Job::begin(&run.job, log).await?;
    let table = open(&run.at).await?;
    job.add(&table);
    let progress = job.progress("build", &table, run.tuning.quiet);
    let options = BuildOptions {
        verify: verify.unwrap_or_default(),
        commit_every: Some(commit_every),
        max_failures,
        progress,
        merging: merging(no_merge),
        ..build_options(run.index, &run.tuning, cancel)
    };
    let built = table.build(options).await;
    job.ended("build", &table, &built).await;
    let report = built.map_err(|error| stopped(&table, error))?;
    output::report(&report, run.format)?;
    check_failures(&report, &table)
}

/// What a build merges.
pub(crate) fn merging(no_merge: bool) -> Merging {
    if no_merge { Merging::Never } else { Merging::Due }
}

/// Fails if a build had to leave out files that it ought to have read.
pub(crate) fn check_failures(report: &BuildReport, table: &Table) -> Result<(), Failure> {
    if report.failed.is_empty() {
        return Ok(());
    }
    let (files, them) = match report.failed.len() {
        1 => ("1 file".to_owned(), "it"),
        many => (format!("{many} files"), "them"),
    };
    Err(Failure::Incomplete(format!(
        "{files} could not be indexed, and queries scan {them}. Mend or remove {them}; `lakemark index build {}` tries {them} again.",
        table.location()
    )))
}

pub(crate) async fn run_build(
    table: &Table,
    index: Option<String>,
    tuning: &TuningArgs,
    cancel: CancelFlag,
) -> Result<BuildReport, Failure> {
    let options = shown_options("build", table, index, tuning, cancel);
    table.build(options).await.map_err(|error| stopped(table, error))
}

/// The failure of a build.
fn stopped(table: &Table, error: lakemark_table::Error) -> Failure {
    match Failure::from(error) {
        Failure::Interrupted(message) => Failure::Interrupted(format!(
            "{message}\nQueries use what is committed. Run `lakemark index build {}` to go on.",
            table.location()
        )),
        other => other,
    }
}

/// The options of a build that shows how far it is, unless it is to be quiet.
pub(crate) fn shown_options(
    verb: &'static str,
    table: &Table,
    index: Option<String>,
    tuning: &TuningArgs,
    cancel: CancelFlag,
) -> BuildOptions {
    let progress = (!tuning.quiet).then(|| shown(verb, table, Log::default()));
    BuildOptions { progress, ..build_options(index, tuning, cancel) }
}

/// The options of a build that shows nothing.
pub(crate) fn build_options(index: Option<String>, tuning: &TuningArgs, cancel: CancelFlag) -> BuildOptions {
    BuildOptions {
        memory_bytes: tuning.memory,
        threads: tuning.threads.map(std::num::NonZeroUsize::get),
        progress: None,
        cancel: Some(cancel),
        index,
        ..BuildOptions::default()
    }
}

pub(crate) async fn compact(args: CompactArgs, log: Log) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let CompactArgs { run, full } = args;
    let job = Job::begin(&run.job, log).await?;
    let table = open(&run.at).await?;
    job.add(&table);
    let progress = job.progress("compact", &table, run.tuning.quiet);
    let merging = if full { Merging::All } else { Merging::Due };
    let options = BuildOptions { progress, merging, ..build_options(run.index, &run.tuning, cancel) };
    let compacted = table.compact(options).await;
    job.ended("compact", &table, &compacted).await;
    output::report(&compacted?, run.format)
}

pub(crate) async fn list(args: ListArgs) -> Result<(), Failure> {
    let indexes = open(&args.at).await?.snapshot().await?.checked_indexes().await?;
    output::batch(listed(index_rows(&indexes))?, args.format)
}

pub(crate) async fn drop_index(args: DropArgs) -> Result<(), Failure> {
    let table = open(&args.at).await?;
    if table.drop_index(&args.name, args.if_exists).await? {
        output::text(&format!("dropped index {}", args.name))
    } else {
        output::text(&format!("there is no index {}; nothing was done", args.name))
    }
}

pub(crate) async fn verify(args: VerifyArgs) -> Result<(), Failure> {
    let report = open(&args.at).await?.verify().await?;
    output::report(&report, args.format)?;
    if report.is_ok() {
        return Ok(());
    }
    let damaged: Vec<&str> =
        report.indexes.iter().filter(|index| !index.damaged.is_empty()).map(|index| index.name.as_str()).collect();
    Err(Failure::Error(format!(
        "damaged: {}. Queries scan those files instead; `lakemark index build {} --verify` builds the damaged segments again.",
        damaged.join(", "),
        args.at.table
    )))
}

pub(crate) async fn vacuum(args: VacuumArgs) -> Result<(), Failure> {
    let options = VacuumOptions { older_than: args.older_than, dry_run: args.dry_run, originals: args.originals };
    let report = open(&args.at).await?.vacuum(options).await?;
    output::report(&report, args.format)
}

pub(crate) async fn history(args: HistoryArgs) -> Result<(), Failure> {
    let versions = open(&args.at).await?.history(args.limit).await?;
    output::batch(listed(version_rows(&versions))?, args.format)
}

fn listed(rows: Result<RecordBatch, ArrowError>) -> Result<RecordBatch, Failure> {
    rows.map_err(|error| Failure::Error(format!("the list cannot be drawn: {error}")))
}

/// What `auto` chose for the indexes of these names, each in a line of its own.
fn encoding_text(indexes: &[IndexInfo], names: &[&String]) -> String {
    let created = indexes.iter().filter(|index| names.contains(&&index.name));
    let line = |index: &IndexInfo| {
        let reason = index.reason.as_ref()?;
        Some(format!("auto chose {}: {reason}\n", index.encoding))
    };
    created.filter_map(line).collect()
}

fn names(indexes: &[IndexInfo]) -> Vec<String> {
    indexes.iter().map(|index| index.name.clone()).collect()
}

fn comma(names: &[&String]) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}
