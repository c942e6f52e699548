//! Scans of Parquet files that share decodes with other scans.
//!
//! ```text
//! exact or recheck     filter ─ DataSourceExec        as it was planned
//! the same, sharing    filter ─ SharedPagesExec       the same columns, from pages that others take as well, or read alone
//! ```
//!
//! A scan shares when its first partition is polled: what it reads is known then, after filters of joins pruned it. [`pieces`] says what
//! that is of each row group. Where another scan wants some of it, [`file_rows`] makes sets of its rows, without those that [`zone_maps`]
//! rule out. [`reader`] reads pieces, alone or for a pass, and [`reader_metrics`] has what it tells of passes. [`operator`] gives rows of
//! both. Of pages that several star queries want it gives the rows that their joins leave: [`star_keys`] has the keys of these. Which scans
//! share what, `share` decides.
//!
//! Invariant: a filter above gets all rows that it would get from the planned scan, but for those that it or a join would leave out.

mod file_rows;
mod operator;
mod pieces;
mod reader;
mod reader_metrics;
pub(crate) mod star_keys;
mod zone_maps;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::expr::projection::reads_columns;
use crate::read::reader::Footers;
use crate::share::passes::arrivals::Arrival;
use crate::share::passes::pass_metrics::PassMetrics;

use operator::{SharedPagesExec, SharedScanParts};
use pieces::ScanPieces;
use reader::PieceReader;
use star_keys::{JoinedColumn, star_keys};

/// The same plan over a scan that shares pages, and of these only rows that its joins leave where others join as well; the plan itself if
/// its scan cannot. Nothing is shared before the plan is polled. Until then the scan is on the way.
///
/// Scans stay as they are that end with a limit, whose partitions have rows of their own, that filter rows while they read, that give fields
/// of structs, and of which a footer cannot be read: what is wrong with a file its reader says.
pub(crate) async fn sharing_pages(
    plan: &Arc<dyn ExecutionPlan>,
    footers: &Footers,
    context: &Arc<TaskContext>,
    metrics: &PassMetrics,
    joins: &[JoinedColumn],
    arrival: &mut Option<Arrival>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let leaf = leaf_of(plan);
    let scan = leaf.downcast_ref::<DataSourceExec>();
    let Some((config, source)) = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>) else {
        return Ok(Arc::clone(plan));
    };
    let filters = source.table_parquet_options().global.pushdown_filters;
    if filters || config.limit.is_some() || !has_any_order(config, context) || !reads_columns(leaf) {
        return Ok(Arc::clone(plan));
    }
    let Some(pieces) = ScanPieces::of(config, source, footers, context).await else { return Ok(Arc::clone(plan)) };
    let ScanPieces { files, pieces, columns, footers } = pieces;
    let stars = star_keys(joins, source.table_schema().file_schema(), &columns.read);
    let reader = PieceReader::new(config, source, files, columns, footers)?;
    let parts = SharedScanParts { reader, pieces, stars, metrics: metrics.clone(), arrival: arrival.take() };
    let shared: Arc<dyn ExecutionPlan> = Arc::new(SharedPagesExec::new(Arc::clone(leaf), parts, context));
    over(plan, &shared)
}

/// Whether a partition of a scan may take whichever of its rows, in whatever order. Who asks only some of the partitions for rows says so by
/// the setting that keeps DataFusion from handing files to other partitions.
fn has_any_order(config: &FileScanConfig, context: &TaskContext) -> bool {
    let has_order = config.preserve_order || !config.output_ordering.is_empty();
    let hands_on = context.session_config().options().execution.enable_file_stream_work_stealing;
    hands_on && !has_order && config.output_partitioning.is_none()
}

/// What is below all filters and projections of a plan.
fn leaf_of(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    std::iter::successors(Some(plan), |node| node.children().into_iter().next()).last().unwrap_or(plan)
}

/// The same plan over another leaf.
fn over(plan: &Arc<dyn ExecutionPlan>, leaf: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let children = plan.children();
    let [child] = children.as_slice() else { return Ok(Arc::clone(leaf)) };
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(vec![over(child, leaf)?], options)
}
