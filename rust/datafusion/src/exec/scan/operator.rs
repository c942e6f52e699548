//! What the engine asks of the scan: its properties, its rows, its metrics and what may be pushed into it.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SortOrderPushdownResult, apply_expression_roots,
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use lakemark_format::column;
use lakemark_table::TopKRequest;
use tokio::runtime::Handle;

use super::LakemarkScanExec;
use super::inside::{in_order, nodes, opened};
use super::traced::traced;
use crate::exec::index_only::PartitionOf;
use crate::expr::projection::{FieldProjection, have_lambdas};
use crate::read::statistics::share_of;

/// Metrics that every operator has; those of the scans inside would be counted twice.
const OWN_METRICS: [&str; 7] = [
    "output_rows",
    "elapsed_compute",
    "output_bytes",
    "output_batches",
    "start_timestamp",
    "end_timestamp",
    "output_rows_skew",
];

impl DisplayAs for LakemarkScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> =
            self.parts.table_schema.fields().iter().map(|field| column::display(field.name())).collect();
        write!(f, "LakemarkScanExec: {}, projection=[{}]", self.parts.summary, columns.join(", "))?;
        if let Some(fetch) = self.parts.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        if let Some(TopKRequest { column, descending, rows, .. }) = &self.first_rows {
            let order = if *descending { " DESC" } else { "" };
            write!(f, ", first_rows={rows} by {}{order}", column::display(column))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for LakemarkScanExec {
    fn name(&self) -> &'static str {
        "LakemarkScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("LakemarkScanExec is a leaf") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        if apply_expression_roots(&self.filters, visit)? == TreeNodeRecursion::Stop {
            return Ok(TreeNodeRecursion::Stop);
        }
        for plan in self.parts.plans() {
            for node in nodes(plan) {
                if node.apply_expressions(visit)? == TreeNodeRecursion::Stop {
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fresh = self.with_inner(|plan| reset(Arc::clone(plan)))?;
        // What a join learned in one round of a recursive query says nothing about the next round.
        fresh.filters.clear();
        fresh.keys.clear();
        Ok(Arc::new(fresh))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let schema = Arc::clone(&self.parts.schema);
        let mut streams = Vec::new();
        if partition == 0 && self.parts.counted > 0 {
            let batch_rows = context.session_config().batch_size();
            streams.push(counted_rows(&schema, self.parts.counted, batch_rows).boxed());
        }
        let has_filters = !self.filters.is_empty() || self.first_rows.is_some();
        let is_planned = !has_filters || self.parts.prober.is_none();
        let shares_pages = self.shares_pages(&context);
        if is_planned && !shares_pages {
            streams.extend(opened(&self.planned(), partition, &context, &schema, &baseline)?);
        } else {
            if shares_pages {
                self.set_out(&context);
            }
            let (scan, schema) = (self.clone(), Arc::clone(&schema));
            let partitions = self.properties.output_partitioning().partition_count();
            let rows = stream::once(async move {
                let inner = scan.pruned.get_or_try_init(|| scan.begun(&context)).await?;
                let_others_begin();
                let mut streams = opened(inner, partition, &context, &schema, &baseline)?;
                let batch_rows = context.session_config().batch_size();
                let share = PartitionOf { partition, partitions };
                for rows in inner.index_only.batches(share, &schema, batch_rows)? {
                    let baseline = baseline.clone();
                    streams.push(rows.map(move |batch| Ok(batch?.record_output(&baseline))).boxed());
                }
                Ok::<_, DataFusionError>(stream::iter(streams).flatten())
            });
            streams.push(rows.try_flatten().boxed());
        }
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(streams).flatten()));
        let rows: SendableRecordBatchStream = match self.parts.fetch {
            Some(fetch) => {
                let unseen = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), partition);
                Box::pin(LimitStream::new(rows, 0, Some(fetch), unseen))
            }
            None => rows,
        };
        Ok(traced(rows, &self.parts, partition))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.metrics.clone_inner();
        let planned = self.planned();
        for plan in self.pruned.get().unwrap_or(&planned).plans() {
            for node in nodes(plan) {
                let Some(inner) = node.metrics() else { continue };
                for metric in inner.iter().filter(|metric| !OWN_METRICS.contains(&metric.value().name())) {
                    all.push(Arc::clone(metric));
                }
            }
        }
        Some(all)
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = self.parts.statistics.clone();
        if self.filtered {
            statistics = statistics.to_inexact();
        }
        let partitions = self.properties.output_partitioning().partition_count();
        if args.partition().is_some() && partitions > 1 {
            statistics = share_of(&statistics, 1.0 / partitions as f64);
        }
        let cut = statistics.with_fetch(self.parts.fetch, 0, 1)?;
        // Each partition ends by itself.
        Ok(Arc::new(if self.parts.fetch.is_some() && partitions > 1 { cut.to_inexact() } else { cut }))
    }

    /// Scans inside read files and row groups in the order of their bounds, so that a top-k soon knows what it can skip. The sort stays:
    /// exact and buffered rows come one after the other. The order is said to be taken also where no scan inside takes it. Only then does
    /// DataFusion 55 merge the partitions of a sort with a limit below a repartition. Otherwise it cuts each of them off by itself.
    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let named =
            order.iter().map(|key| Ok(PhysicalSortExpr { expr: self.as_named(&key.expr)?, options: key.options }));
        let order = &named.collect::<Result<Vec<_>>>()?;
        let mut ordered = self.with_inner(|plan| Ok(in_order(plan, order)?.unwrap_or_else(|| Arc::clone(plan))))?;
        ordered.is_ordered = true;
        Ok(SortOrderPushdownResult::Inexact { inner: Arc::new(ordered) })
    }

    /// Fields that are taken out of structs are read alone. Whatever else is computed is computed above.
    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (exprs, table_schema) = (projection.expr(), &self.parts.table_schema);
        let wanted = FieldProjection::by(exprs.iter().map(|own| &own.expr), table_schema)?;
        if !wanted.has_fields() || !self.filters.is_empty() || self.first_rows.is_some() {
            return Ok(None);
        }
        if have_lambdas(exprs.iter().map(|own| &own.expr))? {
            return Ok(None);
        }
        let each = wanted.each();
        let own: Option<Vec<usize>> = exprs.iter().map(|own| wanted.index_of(&own.expr, table_schema)).collect();
        if let Some(places) = own {
            let given: Vec<_> = places.into_iter().filter_map(|place| each.get(place).cloned()).collect();
            return Ok(Some(Arc::new(self.giving(&given, projection.schema())?)));
        }
        let shown =
            |wanted: &ProjectionExpr| ProjectionExpr::new(Arc::clone(&wanted.expr), column::display(&wanted.alias));
        let schema = ProjectionExprs::new(each.iter().map(shown)).project_schema(&self.parts.schema)?;
        let scan = Arc::new(self.giving(each, Arc::new(schema))?);
        let given = scan.schema();
        let over =
            |own: &ProjectionExpr| Ok(ProjectionExpr::new(wanted.over(&own.expr, table_schema, &given)?, &own.alias));
        let exprs = exprs.iter().map(over).collect::<Result<Vec<_>>>()?;
        let above = ProjectionExec::try_new_with_schema_metadata(exprs, scan, projection.schema().as_ref())?;
        Ok(Some(Arc::new(above)))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut limited = self.clone();
        limited.parts.fetch = fetch;
        if let Some(with_fetch) = limited.parts.exact.as_ref().and_then(|plan| plan.with_fetch(fetch)) {
            limited.parts.exact = Some(with_fetch);
        }
        Some(Arc::new(limited))
    }

    fn fetch(&self) -> Option<usize> {
        self.parts.fetch
    }
}

/// Lets the partitions begin that waited for the same scans. A thread of the runtime keeps the task that it woke last for itself until the
/// one that it runs pauses, and a scan pauses after a million rows. A task that is woken later takes that place, and any thread may run the
/// task that was there before.
fn let_others_begin() {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(std::future::ready(()));
    }
}

fn reset(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    datafusion::physical_plan::execution_plan::reset_plan_states(plan)
}

/// Batches without columns.
fn counted_rows(schema: &SchemaRef, rows: u64, batch_rows: usize) -> impl Stream<Item = Result<RecordBatch>> + use<> {
    let (schema, batch_rows) = (Arc::clone(schema), batch_rows.max(1) as u64);
    stream::iter((0..rows.div_ceil(batch_rows)).map(move |batch| {
        let rows = (rows - batch * batch_rows).min(batch_rows);
        let options = RecordBatchOptions::new().with_row_count(usize::try_from(rows).ok());
        Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), Vec::new(), &options)?)
    }))
}
