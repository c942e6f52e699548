//! Running a task of a build, in the process that planned it or in another one.

use std::sync::Arc;

use super::BuildContext;
use super::build_group::build_group;
use super::group::GroupResult;
use super::manifest_slice::ManifestSlice;
use super::part::BuildPart;
use super::task::BuildTask;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::options::BuildOptions;
use crate::snapshot::BaseTable;
use crate::store::Store;

/// Writes the segments of a task. Those that are finished when it fails are left for whoever builds the same.
#[tracing::instrument(level = "debug", name = "build_task", skip_all, fields(table = table.location(), files = task.files().count()))]
pub(crate) async fn run(table: &BaseTable, task: &BuildTask, options: &BuildOptions) -> Result<BuildPart> {
    let context = BuildContext::new(table, options)?;
    context.check_cancel()?;
    check_store(&context.store, task.manifest()).await?;
    let group = task.group(table)?;
    let mut result = GroupResult::default();
    let outcome = build_group(&context, &group, &mut result).await.and_then(|()| context.check_cancel());
    let part = outcome.and_then(|()| BuildPart::new(task, &result, context.budget.spilled()));
    if part.is_ok() {
        count(&context.store.metrics, &result);
    }
    part
}

/// Counts what a task wrote.
fn count(metrics: &Metrics, result: &GroupResult) {
    metrics.indexed_files.add(result.files.len() as u64);
    metrics.indexed_rows.add(result.files.iter().map(|built| built.file.rows()).sum());
    let written = result.segments.iter().filter(|segment| !result.taken_over.contains(&segment.id));
    written.for_each(|segment| metrics.count_segment(segment.length));
}

/// Fails where the store is not the one that the plan saw: on another machine the same path may be another disk.
async fn check_store(store: &Arc<Store>, planned: &ManifestSlice) -> Result<()> {
    let newest = store.newest_number().await?;
    if newest >= planned.number {
        return Ok(());
    }
    Err(Error::not_found(format!(
        "the store {} lacks the manifest {} where a task of the build runs (the newest there is {newest}): all processes that build must see \
         the same store; put the table, or its indexes with the option `store`, on storage that all of them reach",
        store.text(),
        planned.number
    )))
}
