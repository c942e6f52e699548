//! `index create|build|compact|list|drop|verify`, `vacuum` and `history`: what keeps a table's indexes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt64Array};
use lakemark_table::{
    BuildOptions, BuildReport, CancelFlag, CompactReport, Finding, IndexInfo, IndexSpec, Table, VacuumOptions,
    VacuumReport, VerifyReport, VersionInfo, Waste,
};

use crate::args::{
    BuildArgs, CompactArgs, CreateArgs, DropArgs, HistoryArgs, ListArgs, TextFormat, Tuning, VacuumArgs, VerifyArgs,
};
use crate::ask::open;
use crate::failure::Failure;
use crate::output;
use crate::progress::{Bar, CtrlC};

pub(crate) async fn create(args: CreateArgs) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let table = open(&args.at).await?;
    let options = options_of(args.options)?;
    let before = names(&table.snapshot().await?.indexes());
    let spec = IndexSpec { name: args.name.clone(), columns: args.on.clone(), kind: args.using, options };
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
        _ => args.name,
    };
    let report = run_build(&table, only, &args.tuning, cancel).await?;
    let encoding = encoding_text(&table.snapshot().await?.indexes(), &created);
    output::text(&format!("created index {}\n{encoding}{}", comma(&created), build_text(&report)))
}

/// What `--with` says, each once.
pub(crate) fn options_of(given: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Failure> {
    let mut options = BTreeMap::new();
    for (key, value) in given {
        if options.insert(key.clone(), value).is_some() {
            return Err(Failure::Error(format!("--with {key} is given twice; give it once")));
        }
    }
    Ok(options)
}

pub(crate) async fn build(args: BuildArgs) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let BuildArgs { run, verify } = args;
    let table = open(&run.at).await?;
    let options = BuildOptions { verify, ..build_options(run.index, &run.tuning, cancel) };
    let report = run_with(&table, options).await?;
    match run.format {
        TextFormat::Json => output::json_value(&report),
        TextFormat::Text => output::text(&build_text(&report)),
    }
}

pub(crate) async fn run_build(
    table: &Table,
    index: Option<String>,
    tuning: &Tuning,
    cancel: CancelFlag,
) -> Result<BuildReport, Failure> {
    run_with(table, build_options(index, tuning, cancel)).await
}

async fn run_with(table: &Table, options: BuildOptions) -> Result<BuildReport, Failure> {
    table.build(options).await.map_err(|error| match Failure::from(error) {
        Failure::Interrupted(message) => Failure::Interrupted(format!(
            "{message}\nThe last committed state is untouched and answers queries as before. \
             `lakemark index build {}` builds the rest.",
            table.location()
        )),
        other => other,
    })
}

pub(crate) fn build_options(index: Option<String>, tuning: &Tuning, cancel: CancelFlag) -> BuildOptions {
    BuildOptions {
        memory_bytes: tuning.memory,
        threads: tuning.threads.map(std::num::NonZeroUsize::get),
        progress: if tuning.quiet { None } else { Some(Arc::new(Bar::new())) },
        cancel: Some(cancel),
        index,
        verify: false,
    }
}

pub(crate) async fn compact(args: CompactArgs) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = CtrlC::sets(cancel.clone())?;
    let table = open(&args.at).await?;
    let report = table.compact(build_options(args.index, &args.tuning, cancel)).await?;
    match args.format {
        TextFormat::Json => output::json_value(&report),
        TextFormat::Text => output::text(&compact_text(&report)),
    }
}

fn compact_text(report: &CompactReport) -> String {
    if report.segments_written == 0 {
        return "nothing to merge: every index has as few segments as its files_per_segment allows".to_owned();
    }
    format!(
        "merged {}: {} segments into {}, {} bytes, {:.1} s; `lakemark vacuum` removes the old ones once they are old enough",
        report.indexes.join(", "),
        report.segments_merged,
        report.segments_written,
        report.bytes_written,
        report.seconds
    )
}

pub(crate) fn build_text(report: &BuildReport) -> String {
    let mut text = if report.segments == 0 && report.repaired > 0 {
        "nothing to build: no data file is left of what lost segments covered".to_owned()
    } else if report.segments == 0 {
        let able = if report.declined.is_empty() { "" } else { " that it can" };
        format!("nothing to build: every declared index covers every data file{able}")
    } else {
        format!(
            "built {}: {} rows of {} files, {} segments, {} bytes, {:.1} s",
            report.indexes.join(", "),
            report.rows,
            report.files,
            report.segments,
            report.bytes_written,
            report.seconds
        )
    };
    if report.repaired > 0 {
        let _ = write!(
            text,
            "\n{} segments were missing or damaged: what they covered counts as not indexed, and is built again",
            report.repaired
        );
    }
    if report.adopted > 0 {
        let _ = write!(text, "\ntook over {} touched files: their bytes are those that were indexed", report.adopted);
    }
    if !report.skipped.is_empty() {
        let skipped = report.skipped.join(", ");
        // Writing into a String cannot fail.
        let _ = write!(text, "\nleft out, because they changed while they were read: {skipped}");
    }
    for Finding { path, problem } in &report.declined {
        let _ = write!(text, "\nleft out: {path}: {problem}");
    }
    for Finding { path, problem } in &report.false_statistics {
        let _ = write!(text, "\n{path}: {problem}");
    }
    text
}

pub(crate) async fn list(args: ListArgs) -> Result<(), Failure> {
    let indexes = open(&args.at).await?.snapshot().await?.checked_indexes().await?;
    output::batch(index_rows(&indexes)?, args.format)
}

pub(crate) fn index_rows(indexes: &[IndexInfo]) -> Result<RecordBatch, Failure> {
    let words = |of: fn(&IndexInfo) -> &str| Arc::new(indexes.iter().map(|i| Some(of(i))).collect::<StringArray>());
    let numbers = |of: fn(&IndexInfo) -> u64| Arc::new(UInt64Array::from_iter_values(indexes.iter().map(of)));
    let coverage = Float64Array::from_iter_values(indexes.iter().map(|i| i.coverage));
    let predicted: UInt64Array = indexes.iter().map(|i| i.predicted_bytes).collect();
    let columns: [(&str, ArrayRef); 12] = [
        ("name", words(|i| &i.name)),
        ("kind", words(|i| &i.kind)),
        ("encoding", words(|i| &i.encoding)),
        ("chosen_by", words(|i| &i.chosen_by)),
        ("column", words(|i| &i.column)),
        ("data_type", words(|i| &i.data_type)),
        ("files_covered", numbers(|i| i.files_covered)),
        ("files_total", numbers(|i| i.files_total)),
        ("coverage", Arc::new(coverage)),
        ("rows", numbers(|i| i.rows)),
        ("bytes", numbers(|i| i.bytes)),
        ("predicted_bytes", Arc::new(predicted)),
    ];
    RecordBatch::try_from_iter(columns)
        .map_err(|error| Failure::Error(format!("the list of indexes cannot be drawn: {error}")))
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
    match args.format {
        TextFormat::Json => output::json_value(&report)?,
        TextFormat::Text => output::text(&verify_text(&report))?,
    }
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

fn verify_text(report: &VerifyReport) -> String {
    let mut text = String::new();
    for index in &report.indexes {
        let (damaged, stale) = (index.damaged.len(), index.stale.len());
        let _ = writeln!(text, "{}: {} files ok, {damaged} damaged, {stale} stale", index.name, index.files_ok);
        for (what, findings) in [("damaged", &index.damaged), ("stale", &index.stale)] {
            for finding in findings {
                let _ = writeln!(text, "  {what}: {}: {}", finding.path, finding.problem);
            }
        }
    }
    for Finding { path, problem } in &report.false_statistics {
        let _ = writeln!(text, "{path}: {problem}");
    }
    if text.is_empty() {
        text.push_str("no index to verify");
    }
    text.trim_end().to_owned()
}

pub(crate) async fn vacuum(args: VacuumArgs) -> Result<(), Failure> {
    let options = VacuumOptions { older_than: args.older_than, dry_run: args.dry_run, originals: args.originals };
    let report = open(&args.at).await?.vacuum(options).await?;
    match args.format {
        TextFormat::Json => output::json_value(&report),
        TextFormat::Text => output::text(&vacuum_text(&report)),
    }
}

fn vacuum_text(report: &VacuumReport) -> String {
    let mut text = String::new();
    if report.dry_run {
        for Waste { path, bytes } in &report.removed {
            let _ = writeln!(text, "{path}  {bytes} bytes");
        }
    }
    let did = if report.dry_run { "would remove" } else { "removed" };
    let _ = write!(
        text,
        "{did} {} files, {} bytes; {} manifests and {} segments stay",
        report.removed.len(),
        report.bytes,
        report.manifests_kept,
        report.segments_kept
    );
    text
}

pub(crate) async fn history(args: HistoryArgs) -> Result<(), Failure> {
    let versions = open(&args.at).await?.history(args.limit).await?;
    output::batch(version_rows(&versions)?, args.format)
}

fn version_rows(versions: &[VersionInfo]) -> Result<RecordBatch, Failure> {
    let numbers = |of: fn(&VersionInfo) -> Option<u64>| -> ArrayRef {
        Arc::new(versions.iter().map(of).collect::<UInt64Array>())
    };
    let times: TimestampMillisecondArray = versions.iter().map(|version| version.time_ms).collect();
    let operations = StringArray::from_iter_values(versions.iter().map(|version| &version.operation));
    let columns: [(&str, ArrayRef); 6] = [
        ("version", numbers(|of| Some(of.version))),
        ("time", Arc::new(times.with_timezone_utc())),
        ("operation", Arc::new(operations)),
        ("files_added", numbers(|of| Some(of.files_added))),
        ("files_removed", numbers(|of| Some(of.files_removed))),
        ("rows", numbers(|of| of.rows)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .map_err(|error| Failure::Error(format!("the list of versions cannot be drawn: {error}")))
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
