//! The versions of a table: what made each, and when.

use chrono::{DateTime, SecondsFormat};
use lakemark_format::{Manifest, ManifestEdit, ManifestUpdates};
use object_store::{ObjectMeta, ObjectStoreExt};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::DeltaLog;
use crate::files::listing::under_way;
use crate::report::{VersionInfo, VersionOperation};
use crate::snapshot::BaseTable;
use crate::storage::retry_listing::retry_if_gone;
use crate::store::Store;
use crate::store::chain::Chain;
use crate::table_format::TableFormat;

/// The newest versions, newest first.
pub(crate) async fn history(table: &BaseTable, limit: usize) -> Result<Vec<VersionInfo>> {
    match table.format {
        TableFormat::Delta => of_log(table, limit).await,
        TableFormat::Parquet => of_edits(table, limit).await,
    }
}

/// A version whose time is known.
#[derive(Clone, Copy)]
struct DatedVersion {
    version: u64,
    /// When the version was made, in milliseconds since 1970-01-01 UTC.
    made_ms: i64,
}

impl DatedVersion {
    /// Whether the version was made until a point in time, in microseconds.
    fn is_until(self, micros: i64) -> bool {
        self.made_ms.saturating_mul(1000) <= micros
    }
}

/// The newest version that was made until a point in time: versions are read from the newest on, as far as needed.
pub(crate) async fn version_at(table: &BaseTable, micros: i64) -> Result<u64> {
    let found = retry_if_gone(table.location(), || async {
        let mut oldest: Option<DatedVersion> = None;
        match (table.format, table.store.as_ref()) {
            (TableFormat::Delta, _) => {
                for (version, meta) in DeltaLog::list(&table.location).await?.commits.iter().rev() {
                    let Some(info) = of_log_file(table, *version, meta).await? else { return Ok(None) };
                    oldest = info.time_ms.map(|made_ms| DatedVersion { version: *version, made_ms });
                    if oldest.is_some_and(|found| found.is_until(micros)) {
                        break;
                    }
                }
            }
            (TableFormat::Parquet, Some(store)) => {
                let listed = store.chain().await?;
                for (version, meta) in versions(&listed).into_iter().rev() {
                    // An edit that is gone may be the one that was requested.
                    let Some(edit) = store.read_edit(version, &meta.location).await? else { return Ok(None) };
                    let found = DatedVersion { version, made_ms: edit.created_ms };
                    oldest = Some(found);
                    if found.is_until(micros) {
                        break;
                    }
                }
            }
            (TableFormat::Parquet, None) => {}
        }
        Ok(Some(oldest))
    });
    let oldest = found.await?;
    if let Some(found) = oldest.filter(|found| found.is_until(micros)) {
        return Ok(found.version);
    }
    let known = oldest.and_then(|found| Some((found.version, DateTime::from_timestamp_millis(found.made_ms)?)));
    let rest = match known {
        Some((version, made)) => {
            let made = made.to_rfc3339_opts(SecondsFormat::Millis, true);
            format!("the oldest that can be read is {version} of {made}")
        }
        None => "no version has its time written down".to_owned(),
    };
    Err(Error::expired(format!("{} has no version that is so old; {rest}", table.location())))
}

/// One version for each commit whose file is still there.
async fn of_log(table: &BaseTable, limit: usize) -> Result<Vec<VersionInfo>> {
    let versions = retry_if_gone(table.location(), || async {
        let log = DeltaLog::list(&table.location).await?;
        let mut versions = Vec::new();
        for (version, meta) in log.commits.iter().rev().take(limit) {
            let Some(info) = of_log_file(table, *version, meta).await? else { return Ok(None) };
            versions.push(info);
        }
        Ok(Some(versions))
    });
    versions.await
}

/// A commit; none if its file is gone. A commit that does not say when it was made is as old as its file, as readers of Delta take it.
async fn of_log_file(table: &BaseTable, version: u64, meta: &ObjectMeta) -> Result<Option<VersionInfo>> {
    let bytes = match table.location.object_store.get(&meta.location).await {
        Ok(file) => file.bytes().await?,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut info = of_commit(version, &String::from_utf8_lossy(&bytes));
    info.time_ms.get_or_insert_with(|| meta.last_modified.timestamp_millis());
    Ok(Some(info))
}

fn of_commit(version: u64, text: &str) -> VersionInfo {
    let operation = VersionOperation::Unknown;
    let mut info = VersionInfo { version, operation, rows: Some(0), ..VersionInfo::default() };
    for action in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let Some(commit) = action.get("commitInfo") {
            let time = commit.get("inCommitTimestamp").or_else(|| commit.get("timestamp"));
            info.time_ms = time.and_then(Value::as_i64);
            if let Some(operation) = commit.get("operation").and_then(Value::as_str) {
                info.operation = VersionOperation::Other(operation.to_owned());
            }
        }
        if let Some(add) = action.get("add") {
            info.files_added += 1;
            let statistics = add.get("stats").and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
            let rows = statistics.and_then(|statistics: Value| statistics.get("numRecords")?.as_u64());
            info.rows = info.rows.zip(rows).map(|(sum, rows)| sum + rows);
        }
        info.files_removed += u64::from(action.get("remove").is_some());
    }
    info
}

/// The edits that are still there and whose manifests can be told, by their numbers.
fn versions(listed: &Chain) -> Vec<(u64, &ObjectMeta)> {
    let told = listed.versions().into_iter();
    told.filter_map(|number| Some((number, listed.edits.get(&number)?))).collect()
}

/// One version for each edit that is still there.
async fn of_edits(table: &BaseTable, limit: usize) -> Result<Vec<VersionInfo>> {
    let Some(store) = table.store.as_ref() else { return Ok(Vec::new()) };
    retry_if_gone(store.text(), || listed_edits(store, limit)).await
}

async fn listed_edits(store: &Store, limit: usize) -> Result<Option<Vec<VersionInfo>>> {
    let listed = store.chain().await?;
    let numbered = versions(&listed);
    let shown = numbered.get(numbered.len().saturating_sub(limit)..).unwrap_or_default();
    let (mut versions, mut before): (Vec<VersionInfo>, Option<Manifest>) = (Vec::new(), None);
    for (number, meta) in shown {
        // An edit that cannot be read is no version, and nobody knows what the next one followed.
        let edit = match store.read_edit(*number, &meta.location).await {
            Ok(Some(edit)) => edit,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => continue,
        };
        if before.as_ref().is_none_or(|before| before.number() + 1 != *number) {
            match manifest_before(store, &listed, &edit).await? {
                Told::Known(manifest) => before = manifest,
                Told::Gone => return Ok(None),
            }
        }
        let VersionStep { operation, files_added, files_removed, rows } = step(before.as_ref(), &edit);
        let time_ms = Some(edit.created_ms);
        versions.push(VersionInfo { version: *number, time_ms, operation, files_added, files_removed, rows });
        before = before.and_then(|before| before.apply(&edit).ok());
    }
    versions.reverse();
    Ok(Some(versions))
}

/// What a manifest before an edit was.
enum Told {
    /// The manifest; none if it cannot be told any more.
    Known(Option<Manifest>),
    /// A vacuum took some of what was listed.
    Gone,
}

/// The manifest that an edit changed.
async fn manifest_before(store: &Store, listed: &Chain, edit: &ManifestEdit) -> Result<Told> {
    let manifest = match edit.number.checked_sub(1) {
        None => None,
        Some(0) => Some(Manifest::new(edit.store_id)),
        Some(before) if listed.starts(before).is_empty() => None,
        Some(before) => match store.manifest_of(listed, before).await {
            Ok(None) => return Ok(Told::Gone),
            Ok(manifest) => manifest,
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => None,
        },
    };
    Ok(Told::Known(manifest))
}

/// What an edit did.
struct VersionStep {
    operation: VersionOperation,
    files_added: u64,
    files_removed: u64,
    rows: Option<u64>,
}

impl VersionStep {
    fn of(operation: VersionOperation) -> Self {
        Self { operation, files_added: 0, files_removed: 0, rows: None }
    }
}

/// What an edit did. What it says of indexes tells by itself; what is buffered is compared with what was.
fn step(before: Option<&Manifest>, edit: &ManifestEdit) -> VersionStep {
    let changes = &edit.changes;
    match (&changes.updates, before.map(Manifest::updates)) {
        (Some(_), None) => return VersionStep::of(VersionOperation::Unknown),
        (Some(updates), Some(None)) => return VersionStep::of(VersionOperation::DeclareKey(updates.key.clone())),
        (Some(after), Some(Some(before))) => {
            if let Some(step) = step_of_updates(before, after) {
                return step;
            }
        }
        (None, _) => {}
    }
    let dropped = changes.indexes_removed.first().map(|id| {
        let index = before.and_then(|before| before.indexes().find(|index| index.id == *id));
        index.map_or(VersionOperation::Unknown, |index| VersionOperation::DropIndex(index.name.clone()))
    });
    let created = changes.indexes_added.first().map(|index| VersionOperation::CreateIndex(index.name.clone()));
    VersionStep::of(created.or(dropped).unwrap_or(VersionOperation::BuildIndexes))
}

fn step_of_updates(before: &ManifestUpdates, after: &ManifestUpdates) -> Option<VersionStep> {
    let added = after.data.iter().filter(|file| !before.data.contains(file)).count() as u64;
    let removed = before.data.iter().filter(|file| !after.data.contains(file)).count() as u64;
    let replaced = after.replaced.len().saturating_sub(before.replaced.len()) as u64;
    let slices = before.migration.iter().flat_map(|migration| &migration.ranges);
    let migrated: u64 = slices.map(|range| u64::from(range.rows.end - range.rows.start)).sum();
    if before.migration.is_some() && after.migration.is_none() {
        if before.runs.iter().map(|run| &run.migrated).eq(after.runs.iter().map(|run| &run.migrated)) {
            return Some(VersionStep::of(VersionOperation::AbandonMigration(before.migrations)));
        }
        let operation = VersionOperation::Migrate(before.migrations);
        let (files_added, files_removed) = (added, removed + replaced);
        return Some(VersionStep { operation, files_added, files_removed, rows: Some(migrated) });
    }
    if after.migrations > before.migrations {
        return Some(VersionStep::of(VersionOperation::BeginMigration(after.migrations)));
    }
    if after.publications.len() > before.publications.len() {
        return Some(VersionStep::of(VersionOperation::BeginPublication));
    }
    if let (Some(published), None) = (under_way(before), under_way(after)) {
        let (files_added, files_removed) = (published.files.len() as u64, published.originals.len() as u64);
        return Some(VersionStep { files_added, files_removed, ..VersionStep::of(VersionOperation::Publish) });
    }
    let run = after.runs.iter().find(|run| !before.runs.iter().any(|have| have.id == run.id))?;
    let operation = if run.passes > 1 { VersionOperation::MergeRuns } else { VersionOperation::FlushChanges };
    let is_there = |id: &[u8; 16]| after.runs.iter().any(|run| run.id == *id);
    let files_removed = before.runs.iter().filter(|run| !is_there(&run.id)).count() as u64;
    Some(VersionStep { operation, files_added: 1, files_removed, rows: Some(u64::from(run.rows)) })
}
