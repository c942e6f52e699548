//! Indexes of the newest state, after what changes do to data files: declared and built as users do it.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::state::newest::{pin_newest, pin_recent};
use super::state::updatable::UpdatableTable;
use crate::error::{ErrorKind, Result};
use crate::files::unreadable::is_about_the_file;
use crate::indexing::{build, compact, create_index};
use crate::options::{BuildOptions, IndexSpec};
use crate::report::{BuildReport, CompactReport};
use crate::snapshot::{ReadableSnapshot, Snapshot};

/// Pins what a build or a compaction is about. A data file that cannot be read does not keep the others from being indexed.
pub(crate) async fn pin_to_build(table: &UpdatableTable) -> Result<ReadableSnapshot> {
    pin_within(table, Duration::ZERO).await
}

/// The same of data files that somebody found less than `within` ago.
async fn pin_within(table: &UpdatableTable, within: Duration) -> Result<ReadableSnapshot> {
    build::check_manifest(&table.base).await?;
    match pin_recent(table, within).await {
        Ok(snapshot) => Ok(ReadableSnapshot { snapshot, unreadable: Vec::new() }),
        Err(error) if !is_about_the_file(error.kind()) => Err(error),
        Err(error) => Snapshot::pin_readable(&table.base).await?.ok_or(error),
    }
}

/// Builds whatever the declared indexes do not cover yet.
pub(crate) fn build_newest(table: &UpdatableTable, options: BuildOptions) -> BoxFuture<'_, Result<BuildReport>> {
    build_within(table, Duration::ZERO, options)
}

/// The same of the data files that somebody found last, however long ago: the caller has listed them itself.
pub(crate) fn build_listed(table: &UpdatableTable, options: BuildOptions) -> BoxFuture<'_, Result<BuildReport>> {
    build_within(table, Duration::MAX, options)
}

fn build_within(table: &UpdatableTable, within: Duration, options: BuildOptions) -> BoxFuture<'_, Result<BuildReport>> {
    async move {
        let progress = options.progress.clone();
        let built = async {
            let report = build::build(&table.base, &pin_within(table, within).await?, options.clone()).await?;
            merge_built_within(table, within, report, &options).await
        }
        .await;
        if let Some(progress) = progress {
            progress.finish();
        }
        built
    }
    .boxed()
}

/// Merges the segments of which a build leaves too many. A build is done, whether they can be merged now or not.
pub(crate) async fn merge_built(
    table: &UpdatableTable,
    report: BuildReport,
    options: &BuildOptions,
) -> Result<BuildReport> {
    merge_built_within(table, Duration::ZERO, report, options).await
}

async fn merge_built_within(
    table: &UpdatableTable,
    within: Duration,
    report: BuildReport,
    options: &BuildOptions,
) -> Result<BuildReport> {
    match merge_due(table, within, options, report.segments + report.taken_over).await {
        Ok(merged) => Ok(report.with_merged(&merged)),
        Err(error) if error.kind() == ErrorKind::Cancelled => {
            Err(error.with_note("what was built is committed, and the next build merges what is due"))
        }
        Err(error) => {
            tracing::warn!(%error, "segments are not merged now; the next build tries it again");
            Ok(report)
        }
    }
}

async fn merge_due(
    table: &UpdatableTable,
    within: Duration,
    options: &BuildOptions,
    built: u64,
) -> Result<CompactReport> {
    if !compact::is_merge_due(&table.base, options, built).await? {
        return Ok(CompactReport::default());
    }
    // What the build committed is in a newer state than the one that it began with.
    compact::merge_due(&table.base, &pin_within(table, within).await?.snapshot, options).await
}

/// Declares an index; says whether it was created now.
pub(crate) fn create_newest<'a>(
    table: &'a UpdatableTable,
    spec: &'a IndexSpec,
    if_not_exists: bool,
) -> BoxFuture<'a, Result<bool>> {
    async move {
        table.base.writable_store()?;
        create_index::create_index(&table.base, &pin_newest(table).await?, spec, if_not_exists).await
    }
    .boxed()
}
