//! The scan operator: a leaf that privately holds DataFusion's Parquet scans.
//!
//! It has no child that an optimizer could see. Row positions are only valid for the scan that they were computed for, and nothing may come
//! between. Limits and dynamic filters (of joins and top-k) are handed on to the scans inside, which prune by statistics. What the index
//! knows of dynamic filters prunes those scans when they begin (see [`crate::exec::dynamic_filters`]). Then they may share pages with scans
//! of other queries, and leave out what no join above needs (see [`crate::exec::shared_scan`] and [`stars`]). Filters come by the rule of
//! [`PositionalPushdown`](crate::PositionalPushdown) and by no other way. DataFusion's own rule may hand a scan the filter of another
//! table.

mod inside;
mod keyed;
mod operator;
pub(crate) mod pages;
mod stars;
mod traced;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::compute::SortOptions;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, Statistics};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPhase;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricValue};
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use lakemark_table::{ProbeReport, TopKRequest};
use tokio::sync::OnceCell;

use crate::config::{LakemarkOptions, Share};
use crate::exec::build_keys::BuildKeys;
use crate::exec::covered_rows::{CoveredRows, ScanFilter};
use crate::exec::dynamic_filters::covering::ScanColumns;
use crate::exec::dynamic_filters::pruned_scan::PrunedScan;
use crate::exec::dynamic_filters::{DynamicProber, is_known_at_runtime};
use crate::exec::index_only::{IndexOnlyRows, most_bytes};
use crate::exec::scan_probe::ScanProbe;
use crate::exec::shared_scan::sharing_pages;
use crate::expr::projection;
use crate::expr::zone_maps::touches_floats;
use crate::read::memory_gauge::MemoryGauge;
use crate::read::reader::Footers;
use crate::share::passes::arrivals::{Arrival, Place};
use crate::share::passes::pass_metrics::PassMetrics;
use crate::share::registry::PlanSharing;

use inside::{InnerScans, hand_on};
pub(crate) use keyed::KeyedScan;

/// The most bytes of runs that a scan kept in memory at once.
const RUN_BYTES_PEAK: &str = "run_bytes_peak";

/// What the operator is made of.
#[derive(Debug, Clone)]
pub(crate) struct ScanParts {
    pub(crate) schema: SchemaRef,
    /// The same columns, as the table calls them: fields of structs by their whole names.
    pub(crate) table_schema: SchemaRef,
    /// Rows of which only the number matters.
    pub(crate) counted: u64,
    /// What is known of the rows and their columns.
    pub(crate) statistics: Statistics,
    /// The most rows that the scan gives, by what the index, the footers and the buffer count. None if that is not known, or if the table is
    /// not joined.
    pub(crate) most_rows: Option<u64>,
    /// For each column of the output whether no row of it is NULL; empty where that is not known, as for fields of structs.
    pub(crate) without_null: Vec<bool>,
    /// The scan of exact rows.
    pub(crate) exact: Option<Arc<dyn ExecutionPlan>>,
    /// The scan of all other rows, which rechecks them by a filter if there is a predicate.
    pub(crate) recheck: Option<Arc<dyn ExecutionPlan>>,
    /// Scans of buffered rows, which are in no data file yet.
    pub(crate) buffered: Vec<Arc<dyn ExecutionPlan>>,
    /// Exact rows whose values an index has, which are not among those that are read.
    pub(crate) covered: Option<CoveredRows>,
    /// What rows have to pass that an index gives while the query runs; none if that cannot be tested without reading them.
    pub(crate) filter: Option<ScanFilter>,
    /// The memory that these scans take for runs.
    pub(crate) memory: MemoryGauge,
    pub(crate) footers: Footers,
    /// Unselected stretches between selected rows that are read and left out again.
    pub(crate) unselected_stretches: u64,
    pub(crate) fetch: Option<usize>,
    /// For EXPLAIN.
    pub(crate) summary: String,
    pub(crate) report: ProbeReport,
    /// What the probe found out, for aggregates that indexes may answer.
    pub(crate) scan_probe: Option<Arc<ScanProbe>>,
    /// For filters that come while the query runs.
    pub(crate) prober: Option<DynamicProber>,
}

impl ScanParts {
    /// The scans inside.
    fn plans(&self) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
        let covered = self.covered.iter().map(|covered| &covered.plan);
        [&self.exact, &self.recheck].into_iter().flatten().chain(&self.buffered).chain(covered)
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
    /// The only rows of the output that are needed, if a sort with a limit is above.
    first_rows: Option<TopKRequest>,
    /// Whether an order was asked for, in which the scans inside read what they can.
    is_ordered: bool,
    /// The scans inside, as the filters left them when the first partition was polled for a row. All partitions take the same ones, since
    /// the partitions of a scan may share its files, and share pages with other scans as one.
    pruned: Arc<OnceCell<InnerScans>>,
    /// That it is on the way to where it shares pages, from when it is executed until it says what it reads.
    arrival: Arc<Mutex<Option<Arrival>>>,
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
        if parts.unselected_stretches > 0 {
            count(&metrics, "unselected_stretches_read", parts.unselected_stretches);
        }
        if let Some(covered) = &parts.covered {
            count(&metrics, "rows_index_only", covered.count());
        }
        if !parts.buffered.is_empty() {
            let most = MetricValue::Gauge { name: RUN_BYTES_PEAK.into(), gauge: parts.memory.peak().clone() };
            MetricBuilder::new(&metrics).build(most);
        }
        Self {
            parts,
            filtered: false,
            filters: Vec::new(),
            keys: HashMap::new(),
            first_rows: None,
            is_ordered: false,
            pruned: Arc::default(),
            arrival: Arc::default(),
            properties,
            metrics,
        }
    }

    /// The report of the probe that this scan follows.
    #[must_use]
    pub fn report(&self) -> &ProbeReport {
        &self.parts.report
    }

    /// Whether it reads data files: not if its rows are counted, if an index gives them, or if they are buffered.
    pub(crate) fn reads_data_files(&self) -> bool {
        self.parts.exact.is_some() || self.parts.recheck.is_some()
    }

    /// What the probe found out about every file, if the scan gives all of its rows.
    pub(crate) fn scan_probe(&self) -> Option<&Arc<ScanProbe>> {
        self.parts.scan_probe.as_ref().filter(|_| self.parts.fetch.is_none())
    }

    /// Whether no row of a column of the output is NULL, as the data files say.
    pub(crate) fn has_no_null(&self, column: usize) -> bool {
        self.parts.without_null.get(column).copied().unwrap_or_default()
    }

    fn planned(&self) -> InnerScans {
        let ScanParts { exact, recheck, buffered, covered, .. } = self.parts.clone();
        let covered = covered.map(|covered| covered.plan);
        InnerScans { exact, recheck, buffered, covered, index_only: IndexOnlyRows::default() }
    }

    /// The scans inside, cut down to the rows that the filters let through as they are now. If only the first rows in an order are needed,
    /// the scans are cut down to these, too.
    async fn prune(&self, context: &TaskContext) -> Result<InnerScans> {
        let mut inner = self.planned();
        let Some(prober) = &self.parts.prober else { return Ok(inner) };
        let mut pruned_scans = Vec::new();
        if !self.filters.is_empty() {
            let columns = self.columns(context);
            pruned_scans.extend(prober.prune(&self.filters, &self.keys, &columns, most_bytes(context)).await?);
        }
        if let Some(request) = &self.first_rows {
            pruned_scans.extend(prober.first_rows(request).await?);
        }
        for mut pruned in pruned_scans {
            let index_only = pruned.index_only.iter().flat_map(|part| &part.rows).sum();
            // Values with their numbers stand for rows that may be among those that another index gave already.
            if index_only > 0 && inner.covered.is_some() {
                continue;
            }
            if !inner.index_only.hold(std::mem::take(&mut pruned.index_only), context) {
                continue;
            }
            self.cut(&mut inner, &mut pruned)?;
            count(&self.metrics, "rows_index_only", index_only);
        }
        Ok(inner)
    }

    /// What an index has to know to give rows while the query runs. Rows that it gave when the scan was planned are not among those that are
    /// read, and would be given twice.
    fn columns(&self, context: &TaskContext) -> ScanColumns<'_> {
        let filter = self.parts.filter.as_ref().filter(|_| self.parts.covered.is_none());
        let batch_rows = context.session_config().batch_size();
        ScanColumns { table: &self.parts.table_schema, output: &self.parts.schema, filter, batch_rows }
    }

    /// Cuts the scans inside down to the rows that are left of them.
    fn cut(&self, inner: &mut InnerScans, pruned: &mut PrunedScan) -> Result<()> {
        let mut apply = |plan: &Arc<dyn ExecutionPlan>| pruned.apply(plan, &self.parts.footers);
        inner.exact = inner.exact.as_ref().map(&mut apply).transpose()?;
        inner.recheck = inner.recheck.as_ref().map(&mut apply).transpose()?;
        count(&self.metrics, "rows_pruned_dynamic_filter", pruned.rows);
        count(&self.metrics, "row_groups_pruned_dynamic_filter", pruned.row_groups);
        count(&self.metrics, "index_reads", pruned.report.index_reads);
        count(&self.metrics, "index_bytes_read", pruned.report.index_bytes_read);
        if let Some(covered) = &pruned.covered {
            count(&self.metrics, "rows_index_only", covered.count());
            inner.covered = Some(Arc::clone(&covered.plan));
        }
        Ok(())
    }

    /// The scans inside, as the query reads them: pruned, and sharing pages with scans of other queries if it may.
    async fn begun(&self, context: &Arc<TaskContext>) -> Result<InnerScans> {
        // Pruning takes the keys of joins.
        let joins = self.joined_columns(context)?;
        let mut arrival = self.arrival().take();
        let mut inner = self.prune(context).await?;
        if self.shares_pages(context) {
            let mut metrics = PassMetrics::new(&self.metrics);
            if let Some(joins) = &joins {
                metrics = metrics.with_stars(&self.metrics, joins.len());
            }
            let joins = joins.unwrap_or_default();
            for plan in [&mut inner.exact, &mut inner.recheck].into_iter().flatten() {
                *plan = sharing_pages(plan, &self.parts.footers, context, &metrics, &joins, &mut arrival).await?;
            }
        }
        Ok(inner)
    }

    /// It is executed: others may wait for it.
    fn set_out(&self, context: &Arc<TaskContext>) {
        let mut arrival = self.arrival();
        if arrival.is_none() && !self.pruned.initialized() {
            let sharing = PlanSharing::of(context.session_config());
            let place = Place::of(self.parts.footers.store(), context);
            *arrival = Some(sharing.scans().arrivals().set_out(place, Arc::as_ptr(context).addr()));
        }
    }

    fn arrival(&self) -> MutexGuard<'_, Option<Arrival>> {
        self.arrival.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it shares pages.
    fn shares_pages(&self, context: &TaskContext) -> bool {
        LakemarkOptions::of(context.session_config().options()).share.has_pages() && self.may_share_pages()
    }

    /// Whether it shares pages if the session does. A scan that ends early or that reads in an order does not: whoever shares takes pages
    /// as they come.
    fn may_share_pages(&self) -> bool {
        let takes_any = self.parts.fetch.is_none() && self.first_rows.is_none() && !self.is_ordered;
        takes_any && (self.parts.exact.is_some() || self.parts.recheck.is_some())
    }

    fn with_inner(
        &self,
        mut change: impl FnMut(&Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Self> {
        let mut changed = self.clone();
        (changed.pruned, changed.arrival) = (Arc::default(), Arc::default());
        changed.parts.exact = self.parts.exact.as_ref().map(&mut change).transpose()?;
        changed.parts.recheck = self.parts.recheck.as_ref().map(&mut change).transpose()?;
        changed.parts.buffered = self.parts.buffered.iter().map(&mut change).collect::<Result<_>>()?;
        if let Some(covered) = &mut changed.parts.covered {
            covered.plan = change(&covered.plan)?;
        }
        Ok(changed)
    }

    /// The filters of joins whose keys the scan takes when the query runs: to probe them in the index, or for star joins that it shares.
    pub(crate) fn dynamic_filter_ids(&self, share: Share) -> impl Iterator<Item = u64> {
        let prober = self.parts.prober.as_ref();
        // Keys that nobody takes would stay in memory.
        let shares_stars = share == Share::Stars && self.may_share_pages();
        let takes = move |filter: &&Arc<dyn PhysicalExpr>| {
            let probes = prober.is_some_and(|prober| prober.can_prune_by(filter, &self.parts.table_schema));
            probes || shares_stars && self.joined_column(filter).is_some()
        };
        self.filters.iter().filter(takes).filter_map(|filter| filter.expression_id())
    }

    /// The same scan with the keys of those joins whose filters it has; none if there are none.
    pub(crate) fn with_keys(&self, kept: &HashMap<u64, Arc<BuildKeys>>, share: Share) -> Option<Self> {
        let own = self.dynamic_filter_ids(share);
        let own = own.filter_map(|filter| Some((filter, Arc::clone(kept.get(&filter)?))));
        let keys: HashMap<u64, Arc<BuildKeys>> = own.collect();
        keys.values().for_each(|keys| keys.add_reader());
        (!keys.is_empty()).then(|| Self { keys, ..self.clone() })
    }

    /// The same scan of which only the first rows in the order of a column are needed; none if no index may know them.
    pub(crate) fn with_first_rows(&self, column: usize, order: SortOptions, rows: u64) -> Option<Self> {
        let column = self.parts.table_schema.fields().get(column)?.name().clone();
        let is_known = self.parts.prober.as_ref().is_some_and(|prober| prober.snapshot.is_indexed(&column));
        let SortOptions { descending, nulls_first } = order;
        let first_rows = Some(TopKRequest { column, descending, nulls_first, rows });
        let fresh = || Self { first_rows, pruned: Arc::default(), arrival: Arc::default(), ..self.clone() };
        (is_known && self.parts.fetch.is_none()).then(fresh)
    }

    /// The same scan with filters whose values are known when the query runs: those that operators above learn, and conditions on what a
    /// subquery gives. They prune row groups inside and are probed in the index. Their operators go on applying them, since this scan does
    /// not filter counted and exact rows. Any other filter came with the logical plan already. The columns of the filters are those of the
    /// output, by place.
    pub(crate) fn with_filters(
        &self,
        offered: &[Arc<dyn PhysicalExpr>],
        phase: FilterPushdownPhase,
        config: &ConfigOptions,
    ) -> Result<Option<Self>> {
        let takes = |filter: &&Arc<dyn PhysicalExpr>| {
            is_known_at_runtime(filter) && !touches_floats(filter, &self.parts.schema)
        };
        let filters = offered.iter().filter(takes).map(|filter| self.as_named(filter)).collect::<Result<Vec<_>>>()?;
        if filters.is_empty() || self.parts.fetch.is_some() {
            return Ok(None);
        }
        let mut changed = self.with_inner(|plan| hand_on(plan, &filters, phase, config))?;
        changed.filters.extend(filters);
        changed.filtered = true;
        Ok(Some(changed))
    }

    /// An expression over the output's columns with the names that these have in the table.
    fn as_named(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        if self.gives_columns() {
            return Ok(Arc::clone(expr));
        }
        projection::moved(expr, Some, &self.parts.table_schema)
    }

    /// Whether its columns are called as they are in the table.
    pub(crate) fn gives_columns(&self) -> bool {
        Arc::ptr_eq(&self.parts.schema, &self.parts.table_schema)
    }

    /// The same scan that gives columns and fields of its structs, under the names of this schema.
    fn giving(&self, wanted: &[ProjectionExpr], schema: SchemaRef) -> Result<Self> {
        let names = wanted.iter().zip(schema.fields());
        let names = names.map(|(wanted, field)| field.as_ref().clone().with_name(&wanted.alias));
        let table_schema = Arc::new(Schema::new(names.collect::<Vec<_>>()));
        let statistics = ProjectionExprs::new(wanted.iter().cloned());
        let statistics = statistics.project_statistics(self.parts.statistics.clone(), &table_schema)?;
        let narrower = self.with_inner(|plan| projection::giving(plan, wanted))?.parts;
        Ok(Self::new(ScanParts { schema, table_schema, statistics, without_null: Vec::new(), ..narrower }))
    }
}

fn count(metrics: &ExecutionPlanMetricsSet, name: &'static str, value: u64) {
    MetricBuilder::new(metrics).global_counter(name).add(usize::try_from(value).unwrap_or(usize::MAX));
}

fn report_metrics(report: &ProbeReport, metrics: &ExecutionPlanMetricsSet) {
    let count = |name: &'static str, value: u64| count(metrics, name, value);
    count("files_total", report.files_total);
    count("files_pruned_index", report.files_pruned);
    count("files_scanned", report.files_scanned);
    count("row_groups_total", report.row_groups_total);
    count("row_groups_pruned_index", report.row_groups_pruned);
    count("rows_exact", report.rows_exact);
    count("rows_rechecked", report.rows_rechecked);
    count("index_reads", report.index_reads);
    count("index_bytes_read", report.index_bytes_read);
    let coverage = MetricBuilder::new(metrics).ratio_metrics("coverage", 0);
    coverage.set_part(usize::try_from(report.files_total.saturating_sub(report.files_scanned)).unwrap_or(usize::MAX));
    coverage.set_total(usize::try_from(report.files_total).unwrap_or(usize::MAX));
}
