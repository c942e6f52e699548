//! The end of a build: what all tasks gave becomes one commit.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{ManifestFile, ManifestSegment};

use super::BuildContext;
use super::group::{GroupFile, is_changed, listed};
use super::part::{BuildPart, schema_in};
use super::plan::BuildPlan;
use crate::error::{Error, Result};
use crate::files::file_version::FileVersion;
use crate::files::trust::false_statistics;
use crate::options::BuildOptions;
use crate::report::BuildReport;
use crate::snapshot::BaseTable;
use crate::storage::file_time::BuildStart;
use crate::store::transaction::{self, BuiltSegments, Edit, commit};
use crate::table_format::TableFormat;
use crate::values::schema;

/// Files that are checked at a time.
const CONCURRENT_LOOKS: usize = 32;

/// Commits the parts of a plan's tasks, in the order of the tasks. After a failure the segments are gone, unless nobody knows whether they
/// were committed.
pub(crate) async fn finish(table: &BaseTable, plan: BuildPlan, parts: Vec<BuildPart>) -> Result<BuildReport> {
    let prepared = match prepare(table, &plan, &parts).await {
        Ok(prepared) => prepared,
        Err(error) => {
            abandon(table, &parts).await;
            return Err(error);
        }
    };
    let Prepared { built, dropped, report } = prepared;
    let store = table.writable_store()?;
    if !built.segments.is_empty() || !built.adopted.is_empty() || !built.lost.is_empty() {
        // The commit removes segments that it knows not to be committed.
        commit(store, &Edit::AddSegments(built)).await?;
    }
    for path in dropped {
        store.discard(&path).await;
    }
    Ok(report)
}

/// Removes the segments of parts that no commit was tried with.
pub(crate) async fn abandon(table: &BaseTable, parts: &[BuildPart]) {
    let Ok(store) = table.writable_store() else { return };
    transaction::abandon(store, parts.iter().flat_map(|part| &part.manifest.segments).collect()).await;
}

/// What is committed.
struct Prepared {
    built: BuiltSegments,
    /// Paths of segments of which no file counts any more.
    dropped: Vec<String>,
    report: BuildReport,
}

async fn prepare(table: &BaseTable, plan: &BuildPlan, parts: &[BuildPart]) -> Result<Prepared> {
    check(plan, parts)?;
    let standing = standing(table, parts).await?;
    let Joined { built, dropped } = joined(parts, &standing, &|file| tag_of(table, plan.build_start, file))?;
    let report = report(plan, parts, &built, &standing);
    let built = BuiltSegments { adopted: plan.adopted.clone(), lost: plan.lost.clone(), ..built };
    Ok(Prepared { built, dropped, report })
}

fn check(plan: &BuildPlan, parts: &[BuildPart]) -> Result<()> {
    if parts.len() != plan.tasks.len() {
        return Err(Error::invalid(format!(
            "a build is finished with one part for each of its {} tasks, not with {}",
            plan.tasks.len(),
            parts.len()
        )));
    }
    let mut ids = HashSet::new();
    for (task, part) in plan.tasks.iter().zip(parts) {
        part.check(task)?;
        if !part.manifest.segments.iter().all(|segment| ids.insert(segment.id)) {
            return Err(Error::corrupt(
                "two tasks of the build gave the same segment; nothing was committed, build again",
            ));
        }
    }
    Ok(())
}

/// The paths of data files that are still what the tasks read. The others were replaced since. Their indexes would be of no use, and would
/// take the place of those that somebody else may have made of the new ones.
async fn standing(table: &BaseTable, parts: &[BuildPart]) -> Result<HashSet<String>> {
    let context = &BuildContext::new(table, &BuildOptions::default())?;
    let mut seen = HashSet::new();
    let files = parts.iter().flat_map(|part| &part.manifest.files);
    let files = files.filter(|file| seen.insert(FileVersion::of_manifest(file)));
    let files: Vec<GroupFile> = files.map(|file| listed(table, file)).collect();
    let looks = stream::iter(files).map(|file| async move {
        let stands = !is_changed(context, &file).await?;
        if !stands {
            tracing::warn!(file = file.path, "the data file changed after it was read and is left out");
        }
        Ok::<_, Error>(stands.then_some(file.path))
    });
    looks.buffer_unordered(CONCURRENT_LOOKS).try_filter_map(|path| async { Ok(path) }).try_collect().await
}

/// One edit for all parts.
struct Joined {
    built: BuiltSegments,
    /// Paths of segments of which no file counts any more.
    dropped: Vec<String>,
}

/// What the manifest remembers as a file's tag. A log names its files by size and time alone, as they are never written again.
fn tag_of(table: &BaseTable, begun: BuildStart, file: &ManifestFile) -> Option<String> {
    match table.format {
        TableFormat::Delta => file.etag.clone(),
        TableFormat::Parquet => begun.tag(file.modified_ns, file.etag.as_deref()),
    }
}

fn joined(
    parts: &[BuildPart],
    standing: &HashSet<String>,
    tag_of: &impl Fn(&ManifestFile) -> Option<String>,
) -> Result<Joined> {
    let (mut built, mut dropped) = (BuiltSegments::default(), Vec::new());
    for part in parts {
        let mut ordinals = Vec::new();
        for file in part.manifest.files.iter().filter(|file| standing.contains(&file.path)) {
            let bytes = part.manifest.schemas.get(file.schema as usize).cloned().unwrap_or_default();
            let schema = schema_in(&mut built, bytes)?;
            ordinals.push(u32::try_from(built.files.len()).map_err(|_| Error::unsupported("too many data files"))?);
            built.files.push(ManifestFile { schema, etag: tag_of(file), ..file.clone() });
        }
        for segment in &part.manifest.segments {
            if ordinals.is_empty() {
                dropped.push(segment.path.clone());
            } else {
                built.segments.push(ManifestSegment { files: ordinals.clone(), ..segment.clone() });
            }
        }
    }
    Ok(Joined { built, dropped })
}

fn report(plan: &BuildPlan, parts: &[BuildPart], built: &BuiltSegments, standing: &HashSet<String>) -> BuildReport {
    let read: HashSet<&str> = built.files.iter().map(|file| file.path.as_str()).collect();
    let filled: HashSet<[u8; 16]> = built.segments.iter().map(|segment| segment.index_id).collect();
    let filled = plan.indexes.iter().filter(|index| filled.contains(&index.id));
    let mut skipped: Vec<String> = Vec::new();
    for (task, part) in plan.tasks.iter().zip(parts) {
        let kept: HashSet<&str> =
            part.manifest.files.iter().map(|file| file.path.as_str()).filter(|path| standing.contains(*path)).collect();
        skipped.extend(task.files().filter(|path| !kept.contains(path)).map(str::to_owned));
    }
    skipped.sort();
    skipped.dedup();
    let false_statistics = built.files.iter().filter_map(|file| {
        let bytes = built.schemas.get(file.schema as usize)?;
        let schema = schema::from_bytes(bytes).ok()?;
        false_statistics(&file.path, &schema, &file.false_statistics)
    });
    let false_statistics = false_statistics.collect();
    BuildReport {
        indexes: filled.map(|index| index.name.clone()).collect(),
        files: read.len() as u64,
        rows: built.files.iter().map(ManifestFile::rows).sum(),
        segments: built.segments.len() as u64,
        bytes_written: built.segments.iter().map(|segment| segment.length).sum(),
        spilled: parts.iter().map(|part| part.spilled).sum(),
        skipped,
        adopted: plan.adopted.len() as u64,
        repaired: plan.lost.len() as u64,
        declined: plan.declined.clone(),
        false_statistics,
        seconds: plan.stopwatch.seconds(),
    }
}
