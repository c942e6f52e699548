//! The scan operator: a leaf that privately holds DataFusion's Parquet scans.
//!
//! It is a leaf, with no child that an optimizer could see: row positions are only valid for the
//! scan that they were computed for, and nothing may be put between. Limits and dynamic filters
//! (of joins and top-k) are handed on to the scans inside, which prune by statistics; what the index knows
//! of dynamic filters narrows those scans when they begin (see [`crate::exec::dynamic`]). Filters come by the rule of
//! [`crate::pushdown`] and by no other way: DataFusion's own may hand a scan the filter of another table.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::SortOptions;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::{ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricValue, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SortOrderPushdownResult,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use lakemark_format::column;
use lakemark_table::{ProbeReport, TopKRequest};
use tokio::sync::OnceCell;

use crate::exec::build_keys::BuildKeys;
use crate::exec::dynamic::{Prober, is_known_late};
use crate::exec::facts::Facts;
use crate::exec::index_only::{IndexOnlyRows, most_bytes};
use crate::expr::projection::{self, Wanted, have_lambdas, reads_columns, reads_files};
use crate::expr::zone_maps::touches_floats;
use crate::read::damage::NamedRows;
use crate::read::held::Held;
use crate::read::reader::Footers;
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

/// The most bytes of runs that a scan held in memory at once.
const PENDING_BYTES_HELD: &str = "pending_bytes_held";

/// What the operator is made of.
#[derive(Debug, Clone)]
pub(crate) struct ScanParts {
    pub(crate) schema: SchemaRef,
    /// The same columns, as the table calls them: fields of structs by their whole names.
    pub(crate) named: SchemaRef,
    /// Rows of which only the number matters.
    pub(crate) counted: u64,
    /// What is known of the rows and their columns.
    pub(crate) statistics: Statistics,
    /// For each column of the output whether no row of it is NULL; none are told of fields.
    pub(crate) without_null: Vec<bool>,
    /// The scan of certain rows.
    pub(crate) certain: Option<Arc<dyn ExecutionPlan>>,
    /// The scan of all other rows, with a filter if there is a predicate.
    pub(crate) checked: Option<Arc<dyn ExecutionPlan>>,
    /// Scans of rows that are in no data file yet.
    pub(crate) pending: Vec<Arc<dyn ExecutionPlan>>,
    /// What these hold of runs.
    pub(crate) held: Held,
    pub(crate) footers: Footers,
    /// Gaps between chosen rows that are read and left out again.
    pub(crate) gaps_closed: u64,
    pub(crate) fetch: Option<usize>,
    /// For EXPLAIN.
    pub(crate) summary: String,
    pub(crate) report: ProbeReport,
    /// What the probe knew, where indexes may be asked more.
    pub(crate) facts: Option<Arc<Facts>>,
    /// For filters that come while the query runs.
    pub(crate) prober: Option<Prober>,
}

/// The scan of certain rows, that of all others, and those of pending rows.
#[derive(Debug, Clone, Default)]
struct Inner {
    certain: Option<Arc<dyn ExecutionPlan>>,
    checked: Option<Arc<dyn ExecutionPlan>>,
    pending: Vec<Arc<dyn ExecutionPlan>>,
    /// Rows that the index gives in place of others.
    index_only: IndexOnlyRows,
}

impl Inner {
    fn plans(&self) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
        [&self.certain, &self.checked].into_iter().flatten().chain(&self.pending)
    }
}

impl ScanParts {
    /// The scans inside.
    fn plans(&self) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
        [&self.certain, &self.checked].into_iter().flatten().chain(&self.pending)
    }
}

/// Reads the rows that an index leaves of a table.
#[derive(Debug, Clone)]
pub struct LakemarkScanExec {
    pub(crate) parts: ScanParts,
    /// Whether a filter came after planning, so that row counts are upper bounds.
    filtered: bool,
    /// These filters, over the output's columns as the table calls them.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The keys of joins, by the identity of the filters that these have.
    keys: HashMap<u64, Arc<BuildKeys>>,
    /// The only rows that are wanted of the output, if a sort with a limit is above.
    first_rows: Option<TopKRequest>,
    /// The scans inside, as the filters left them when the first partition was asked for a row; all partitions take the
    /// same ones, since the partitions of a scan may share its files.
    narrowed: Arc<OnceCell<Inner>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LakemarkScanExec {
    pub(crate) fn new(parts: ScanParts) -> Self {
        let counts = parts.plans().map(|plan| plan.properties().output_partitioning().partition_count());
        let partitions = counts.max().unwrap_or(0).max(1);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&parts.schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        report_metrics(&parts.report, &metrics);
        if parts.gaps_closed > 0 {
            count(&metrics, "gaps_closed", parts.gaps_closed);
        }
        if !parts.pending.is_empty() {
            let most = MetricValue::Gauge { name: PENDING_BYTES_HELD.into(), gauge: parts.held.most().clone() };
            MetricBuilder::new(&metrics).build(most);
        }
        Self {
            parts,
            filtered: false,
            filters: Vec::new(),
            keys: HashMap::new(),
            first_rows: None,
            narrowed: Arc::default(),
            properties,
            metrics,
        }
    }

    /// How the probe went that this scan follows.
    #[must_use]
    pub fn report(&self) -> &ProbeReport {
        &self.parts.report
    }

    /// What the probe knew of every file, if the scan gives all of its rows.
    pub(crate) fn facts(&self) -> Option<&Arc<Facts>> {
        self.parts.facts.as_ref().filter(|_| self.parts.fetch.is_none())
    }

    /// Whether no row of a column of the output is NULL, as the data files say.
    pub(crate) fn has_no_null(&self, column: usize) -> bool {
        self.parts.without_null.get(column).copied().unwrap_or_default()
    }

    fn planned(&self) -> Inner {
        let ScanParts { certain, checked, pending, .. } = self.parts.clone();
        Inner { certain, checked, pending, index_only: IndexOnlyRows::default() }
    }

    /// The scans inside, cut down to the rows that the filters let through as they are now, and to those that come first if others are not wanted.
    async fn narrow(&self, context: &TaskContext) -> Result<Inner> {
        let mut inner = self.planned();
        let Some(prober) = &self.parts.prober else { return Ok(inner) };
        let mut narrowings = Vec::new();
        if !self.filters.is_empty() {
            let most_bytes = most_bytes(context);
            narrowings.extend(prober.narrow(&self.filters, &self.keys, &self.parts.named, most_bytes).await?);
        }
        if let Some(request) = &self.first_rows {
            narrowings.extend(prober.first_rows(request).await?);
        }
        for mut narrowing in narrowings {
            let told = narrowing.told.iter().flat_map(|part| &part.rows).sum();
            if !inner.index_only.hold(std::mem::take(&mut narrowing.told), context) {
                continue;
            }
            let mut apply = |plan: &Arc<dyn ExecutionPlan>| narrowing.apply(plan, &self.parts.footers);
            inner.certain = inner.certain.as_ref().map(&mut apply).transpose()?;
            inner.checked = inner.checked.as_ref().map(&mut apply).transpose()?;
            count(&self.metrics, "dynamic_rows_pruned", narrowing.rows);
            count(&self.metrics, "dynamic_row_groups_pruned", narrowing.row_groups);
            count(&self.metrics, "index_reads", narrowing.report.index_reads);
            count(&self.metrics, "index_bytes", narrowing.report.index_bytes);
            count(&self.metrics, "rows_told", told);
        }
        Ok(inner)
    }

    fn with_inner(
        &self,
        mut change: impl FnMut(&Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Self> {
        let mut changed = self.clone();
        changed.narrowed = Arc::default();
        changed.parts.certain = self.parts.certain.as_ref().map(&mut change).transpose()?;
        changed.parts.checked = self.parts.checked.as_ref().map(&mut change).transpose()?;
        changed.parts.pending = self.parts.pending.iter().map(&mut change).collect::<Result<_>>()?;
        Ok(changed)
    }

    /// The filters that are asked of the index when the query runs.
    pub(crate) fn asked_filters(&self) -> impl Iterator<Item = u64> {
        let prober = self.parts.prober.as_ref();
        let knows = move |filter: &&Arc<dyn PhysicalExpr>| {
            prober.is_some_and(|prober| prober.knows_any(filter, &self.parts.named))
        };
        self.filters.iter().filter(knows).filter_map(|filter| filter.expression_id())
    }

    /// The same scan with the keys of those joins whose filters it has; none if there are none.
    pub(crate) fn with_keys(&self, kept: &HashMap<u64, Arc<BuildKeys>>) -> Option<Self> {
        let own = self.asked_filters().filter_map(|filter| Some((filter, Arc::clone(kept.get(&filter)?))));
        let keys: HashMap<u64, Arc<BuildKeys>> = own.collect();
        keys.values().for_each(|keys| keys.wanted_by_one());
        (!keys.is_empty()).then(|| Self { keys, ..self.clone() })
    }

    /// The same scan of which only the first rows in the order of a column are wanted; none if no index may know them.
    pub(crate) fn with_first_rows(&self, column: usize, order: SortOptions, rows: u64) -> Option<Self> {
        let column = self.parts.named.fields().get(column)?.name().clone();
        let is_known = self.parts.prober.as_ref().is_some_and(|prober| prober.snapshot.is_indexed(&column));
        let SortOptions { descending, nulls_first } = order;
        let first_rows = Some(TopKRequest { column, descending, nulls_first, rows });
        (is_known && self.parts.fetch.is_none()).then(|| Self { first_rows, narrowed: Arc::default(), ..self.clone() })
    }

    /// The same scan with filters whose values are known when the query runs: those that operators above learn, and conditions on what
    /// a subquery gives. They prune row groups inside and are asked of the index. Their operators go on applying them, since counted and
    /// certain rows are not filtered here. Any other filter came with the logical plan already. The columns of the filters are those of
    /// the output, by place.
    pub(crate) fn with_filters(
        &self,
        offered: &[Arc<dyn PhysicalExpr>],
        phase: FilterPushdownPhase,
        config: &ConfigOptions,
    ) -> Result<Option<Self>> {
        let takes =
            |filter: &&Arc<dyn PhysicalExpr>| is_known_late(filter) && !touches_floats(filter, &self.parts.schema);
        let filters = offered.iter().filter(takes).map(|filter| self.as_named(filter)).collect::<Result<Vec<_>>>()?;
        if filters.is_empty() || self.parts.fetch.is_some() {
            return Ok(None);
        }
        let mut narrowed = self.with_inner(|plan| hand_on(plan, &filters, phase, config))?;
        narrowed.filters.extend(filters);
        narrowed.filtered = true;
        Ok(Some(narrowed))
    }

    /// An expression over the output's columns with the names that these have in the table.
    fn as_named(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        if self.gives_columns() {
            return Ok(Arc::clone(expr));
        }
        projection::moved(expr, Some, &self.parts.named)
    }

    /// Whether its columns are called as they are in the table.
    pub(crate) fn gives_columns(&self) -> bool {
        Arc::ptr_eq(&self.parts.schema, &self.parts.named)
    }

    /// The same scan that gives columns and fields of its structs, under the names of this schema.
    fn giving(&self, wanted: &[ProjectionExpr], schema: SchemaRef) -> Result<Self> {
        let names = wanted.iter().zip(schema.fields());
        let names = names.map(|(wanted, field)| field.as_ref().clone().with_name(&wanted.alias));
        let named = Arc::new(Schema::new(names.collect::<Vec<_>>()));
        let statistics = ProjectionExprs::new(wanted.iter().cloned());
        let statistics = statistics.project_statistics(self.parts.statistics.clone(), &named)?;
        let narrower = self.with_inner(|plan| projection::giving(plan, wanted))?.parts;
        Ok(Self::new(ScanParts { schema, named, statistics, without_null: Vec::new(), ..narrower }))
    }
}

/// Opens a partition of the scans inside.
fn opened(
    inner: &Inner,
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

fn count(metrics: &ExecutionPlanMetricsSet, name: &'static str, value: u64) {
    MetricBuilder::new(metrics).global_counter(name).add(usize::try_from(value).unwrap_or(usize::MAX));
}

fn report_metrics(report: &ProbeReport, metrics: &ExecutionPlanMetricsSet) {
    let count = |name: &'static str, value: u64| count(metrics, name, value);
    count("files_total", report.files_total);
    count("files_pruned", report.files_pruned);
    count("files_unknown", report.files_unknown);
    count("row_groups_total", report.row_groups_total);
    count("row_groups_pruned", report.row_groups_pruned);
    count("rows_certain", report.rows_certain);
    count("rows_uncertain", report.rows_uncertain);
    count("index_reads", report.index_reads);
    count("index_bytes", report.index_bytes);
    let coverage = MetricBuilder::new(metrics).ratio_metrics("coverage", 0);
    coverage.set_part(usize::try_from(report.files_total.saturating_sub(report.files_unknown)).unwrap_or(usize::MAX));
    coverage.set_total(usize::try_from(report.files_total).unwrap_or(usize::MAX));
}

impl DisplayAs for LakemarkScanExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = self.parts.named.fields().iter().map(|field| column::display(field.name())).collect();
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
        for filter in &self.filters {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
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
        if self.filters.is_empty() && self.first_rows.is_none() || self.parts.prober.is_none() {
            streams.extend(opened(&self.planned(), partition, &context, &schema, &baseline)?);
        } else {
            let (scan, schema) = (self.clone(), Arc::clone(&schema));
            let partitions = self.properties.output_partitioning().partition_count();
            let rows = stream::once(async move {
                let inner = scan.narrowed.get_or_try_init(|| scan.narrow(&context)).await?;
                let mut streams = opened(inner, partition, &context, &schema, &baseline)?;
                let batch_rows = context.session_config().batch_size();
                for rows in inner.index_only.batches((partition, partitions), &schema, batch_rows)? {
                    let baseline = baseline.clone();
                    streams.push(rows.map(move |batch| Ok(batch?.record_output(&baseline))).boxed());
                }
                Ok::<_, DataFusionError>(stream::iter(streams).flatten())
            });
            streams.push(rows.try_flatten().boxed());
        }
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(streams).flatten()));
        Ok(match self.parts.fetch {
            Some(fetch) => {
                let unseen = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), partition);
                Box::pin(LimitStream::new(rows, 0, Some(fetch), unseen))
            }
            None => rows,
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.metrics.clone_inner();
        let planned = self.planned();
        for plan in self.narrowed.get().unwrap_or(&planned).plans() {
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

    /// Scans inside read files and row groups in the order of their bounds, so that a top-k soon knows what it can do without. The sort stays:
    /// certain and pending rows come one after the other. The order is said to be taken also where no scan inside takes it: DataFusion 55 merges
    /// the partitions of a sort with a limit below a repartition only then, and cuts each of them off by itself otherwise.
    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let named =
            order.iter().map(|key| Ok(PhysicalSortExpr { expr: self.as_named(&key.expr)?, options: key.options }));
        let order = &named.collect::<Result<Vec<_>>>()?;
        let ordered = self.with_inner(|plan| Ok(in_order(plan, order)?.unwrap_or_else(|| Arc::clone(plan))))?;
        Ok(SortOrderPushdownResult::Inexact { inner: Arc::new(ordered) })
    }

    /// Fields that are taken out of structs are read alone. Whatever else is computed is computed above.
    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (exprs, named) = (projection.expr(), &self.parts.named);
        let wanted = Wanted::by(exprs.iter().map(|own| &own.expr), named)?;
        if !wanted.has_fields() || !self.filters.is_empty() || self.first_rows.is_some() {
            return Ok(None);
        }
        if have_lambdas(exprs.iter().map(|own| &own.expr))? {
            return Ok(None);
        }
        let each = wanted.each();
        let own: Option<Vec<usize>> = exprs.iter().map(|own| wanted.place(&own.expr, named)).collect();
        if let Some(places) = own {
            let given: Vec<_> = places.into_iter().filter_map(|place| each.get(place).cloned()).collect();
            return Ok(Some(Arc::new(self.giving(&given, projection.schema())?)));
        }
        let shown =
            |wanted: &ProjectionExpr| ProjectionExpr::new(Arc::clone(&wanted.expr), column::display(&wanted.alias));
        let schema = ProjectionExprs::new(each.iter().map(shown)).project_schema(&self.parts.schema)?;
        let scan = Arc::new(self.giving(each, Arc::new(schema))?);
        let given = scan.schema();
        let over = |own: &ProjectionExpr| Ok(ProjectionExpr::new(wanted.over(&own.expr, named, &given)?, &own.alias));
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
        if let Some(with_fetch) = limited.parts.certain.as_ref().and_then(|plan| plan.with_fetch(fetch)) {
            limited.parts.certain = Some(with_fetch);
        }
        Some(Arc::new(limited))
    }

    fn fetch(&self) -> Option<usize> {
        self.parts.fetch
    }
}

/// Hands filters on to the Parquet scan that `plan` is or holds.
fn hand_on(
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
fn in_order(plan: &Arc<dyn ExecutionPlan>, order: &[PhysicalSortExpr]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
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
fn nodes(plan: &Arc<dyn ExecutionPlan>) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
    std::iter::successors(Some(plan), |node| node.children().into_iter().next())
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

/// The same batch under the table's own schema, whose metadata and nullability files need not share.
fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}
