//! The versions of a table: what made each, and when.

use chrono::{DateTime, SecondsFormat};
use lakemark_format::{Manifest, ManifestUpdates};
use object_store::{ObjectMeta, ObjectStoreExt};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::files::delta::DeltaLog;
use crate::files::listing::under_way;
use crate::report::{VersionInfo, VersionOperation};
use crate::snapshot::BaseTable;
use crate::storage::retry_listing::retry_if_gone;
use crate::store::Store;
use crate::table_format::TableFormat;

/// The newest versions, newest first.
pub(crate) async fn history(table: &BaseTable, limit: usize) -> Result<Vec<VersionInfo>> {
    match table.format {
        TableFormat::Delta => of_log(table, limit).await,
        TableFormat::Parquet => of_manifests(table, limit).await,
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
                for (version, meta) in store.manifests().await?.into_iter().rev() {
                    // A manifest that is gone may be the one that was requested.
                    let Some(manifest) = store.read_manifest(version, &meta).await? else { return Ok(None) };
                    let found = DatedVersion { version, made_ms: manifest.created_ms };
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

/// One version for each manifest that is still there.
async fn of_manifests(table: &BaseTable, limit: usize) -> Result<Vec<VersionInfo>> {
    let Some(store) = table.store.as_ref() else { return Ok(Vec::new()) };
    retry_if_gone(store.text(), || listed_manifests(store, limit)).await
}

async fn listed_manifests(store: &Store, limit: usize) -> Result<Option<Vec<VersionInfo>>> {
    let mut numbered: Vec<_> = store.manifests().await?.into_iter().rev().take(limit.saturating_add(1)).collect();
    numbered.reverse();
    let (mut versions, mut before): (Vec<VersionInfo>, Option<Manifest>) = (Vec::new(), None);
    let is_cut = numbered.len() > limit;
    for (place, (number, meta)) in numbered.into_iter().enumerate() {
        // A manifest that cannot be read is no version, and nobody knows what the next one changed.
        let manifest = match store.read_manifest(number, &meta).await {
            Ok(None) => return Ok(None),
            read => read.ok().flatten(),
        };
        if let Some(manifest) = manifest.as_ref().filter(|_| !is_cut || place > 0) {
            let step = match before.as_ref().filter(|before| before.number + 1 == number) {
                Some(before) => step(before, manifest),
                None if number == 1 => step(&nothing(manifest), manifest),
                None => VersionStep::of(VersionOperation::Unknown),
            };
            let VersionStep { operation, files_added, files_removed, rows } = step;
            let time_ms = Some(manifest.created_ms);
            versions.push(VersionInfo { version: number, time_ms, operation, files_added, files_removed, rows });
        }
        before = manifest;
    }
    versions.reverse();
    Ok(Some(versions))
}

/// A manifest before the first one.
fn nothing(of: &Manifest) -> Manifest {
    Manifest {
        number: 0,
        schemas: Vec::new(),
        files: Vec::new(),
        indexes: Vec::new(),
        segments: Vec::new(),
        updates: None,
        ..of.clone()
    }
}

/// What was done between two manifests.
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

fn step(before: &Manifest, after: &Manifest) -> VersionStep {
    match (&before.updates, &after.updates) {
        (None, Some(updates)) => return VersionStep::of(VersionOperation::DeclareKey(updates.key.clone())),
        (Some(before), Some(after)) => {
            if let Some(step) = step_of_updates(before, after) {
                return step;
            }
        }
        _ => {}
    }
    let is_in = |manifest: &Manifest, id: &[u8; 16]| manifest.indexes.iter().any(|index| index.id == *id);
    if let Some(index) = after.indexes.iter().find(|index| !is_in(before, &index.id)) {
        return VersionStep::of(VersionOperation::CreateIndex(index.name.clone()));
    }
    if let Some(index) = before.indexes.iter().find(|index| !is_in(after, &index.id)) {
        return VersionStep::of(VersionOperation::DropIndex(index.name.clone()));
    }
    VersionStep::of(VersionOperation::BuildIndexes)
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
