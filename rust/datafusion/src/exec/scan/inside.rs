//! The scans inside of ours: how they are opened, and what of filters and orders is handed on to them.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::filter_pushdown::{ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase};
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::exec::index_only::IndexOnlyRows;
use crate::expr::projection::{reads_columns, reads_files};
use crate::read::damage::NamedRows;

/// The scan of exact rows, that of all others, and those of buffered rows.
#[derive(Debug, Clone, Default)]
pub(super) struct InnerScans {
    pub(super) exact: Option<Arc<dyn ExecutionPlan>>,
    pub(super) recheck: Option<Arc<dyn ExecutionPlan>>,
    pub(super) buffered: Vec<Arc<dyn ExecutionPlan>>,
    /// Exact rows whose values an index has.
    pub(super) covered: Option<Arc<dyn ExecutionPlan>>,
    /// Index-only rows, in place of rows that are not read.
    pub(super) index_only: IndexOnlyRows,
}

impl InnerScans {
    /// The scans.
    pub(super) fn plans(&self) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
        [&self.exact, &self.recheck].into_iter().flatten().chain(&self.buffered).chain(&self.covered)
    }
}

/// Opens a partition of the scans inside.
pub(super) fn opened(
    inner: &InnerScans,
    partition: usize,
    context: &Arc<TaskContext>,
    schema: &SchemaRef,
    baseline: &BaselineMetrics,
) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
    let has = |plan: &&Arc<dyn ExecutionPlan>| partition < plan.properties().output_partitioning().partition_count();
    let open = |plan: &Arc<dyn ExecutionPlan>| {
        let (schema, baseline) = (Arc::clone(schema), baseline.clone());
        let rows = NamedRows::of(plan.execute(partition, Arc::clone(context))?);
        let rows = rows.map(move |batch| Ok(conform(batch?, &schema)?.record_output(&baseline)));
        Ok(rows.boxed())
    };
    inner.plans().filter(has).map(open).collect()
}

/// Hands filters on to the Parquet scan that `plan` is or holds.
pub(super) fn hand_on(
    plan: &Arc<dyn ExecutionPlan>,
    filters: &[Arc<dyn PhysicalExpr>],
    phase: FilterPushdownPhase,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let [child] = plan.children().as_slice() {
        let below = hand_on(child, filters, phase, config)?;
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        return Arc::clone(plan).replace_children(vec![below], options);
    }
    let schema = plan.schema();
    if !reads_files(plan) {
        return Ok(Arc::clone(plan));
    }
    let parent_filters = filters
        .iter()
        .filter(|filter| has_columns(&schema, filter))
        .map(|filter| {
            let filter = reassign_expr_columns(Arc::clone(filter), &schema)?;
            Ok(ChildFilterPushdownResult { filter, child_results: Vec::new() })
        })
        .collect::<Result<Vec<_>>>()?;
    let offered = ChildPushdownResult { parent_filters, self_filters: Vec::new() };
    let answer = plan.handle_child_pushdown_result(phase, offered, config)?;
    Ok(answer.updated_node.unwrap_or_else(|| Arc::clone(plan)))
}

/// The Parquet scan that `plan` is or holds, which reads what comes first in this order first; none if it cannot.
pub(super) fn in_order(
    plan: &Arc<dyn ExecutionPlan>,
    order: &[PhysicalSortExpr],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let [child] = plan.children().as_slice() {
        let Some(below) = in_order(child, order)? else { return Ok(None) };
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        return Arc::clone(plan).replace_children(vec![below], options).map(Some);
    }
    let schema = plan.schema();
    // DataFusion 55 takes bounds of other columns for those of a scan that gives fields.
    if !reads_columns(plan) || !order.iter().all(|key| has_columns(&schema, &key.expr)) {
        return Ok(None);
    }
    let own = order.iter().map(|key| {
        let expr = reassign_expr_columns(Arc::clone(&key.expr), &schema)?;
        Ok(PhysicalSortExpr { expr, options: key.options })
    });
    let own = own.collect::<Result<Vec<_>>>()?;
    Ok(plan.try_pushdown_sort(&own)?.into_inner())
}

/// Whether a schema has the columns of an expression by name: not fields of a struct that is read whole, which an operator takes out of it.
fn has_columns(schema: &Schema, expr: &Arc<dyn PhysicalExpr>) -> bool {
    collect_columns(expr).iter().all(|column| schema.index_of(column.name()).is_ok())
}

/// A plan and all that is below it.
pub(super) fn nodes(plan: &Arc<dyn ExecutionPlan>) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
    std::iter::successors(Some(plan), |node| node.children().into_iter().next())
}

/// The same batch under the table's own schema, whose metadata and nullability files need not share.
fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}
