//! The operator that answers a partial aggregate from the index, and reads what the index cannot answer.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions, apply_expression_roots,
};
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::column;
use lakemark_index::Predicate;
use lakemark_table::{AnsweredFiles, FileProbe, GroupCountRequest, IndexOnlyCost, MinMaxRequest};
use tokio::sync::OnceCell;

use super::request::AggregateRequest;
use super::states::{StateSchemas, of_bounds, of_values};
use super::unanswered::{AnsweredRows, reads_files, rest_of};
use crate::error::to_engine;
use crate::exec::index_only::bytes_of;
use crate::exec::scan_probe::{Reprobed, ScanProbe, has_rows};

/// Gives the states of a partial aggregate, from the index where it can answer and from the operator's input elsewhere.
#[derive(Debug)]
pub struct IndexAggregateExec {
    /// The partial aggregate that DataFusion planned.
    input: Arc<dyn ExecutionPlan>,
    request: Arc<AggregateRequest>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// The answer of the index; one probe serves all partitions.
    answer: Arc<OnceCell<PartialStates>>,
}

/// States from the index, and the plan for what is left to be read.
#[derive(Debug)]
struct PartialStates {
    states: Vec<RecordBatch>,
    rest: Option<Arc<dyn ExecutionPlan>>,
    /// What the states take of the session's memory.
    _memory: MemoryReservation,
}

impl IndexAggregateExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, request: AggregateRequest) -> Self {
        Self::over(input, Arc::new(request))
    }

    fn over(input: Arc<dyn ExecutionPlan>, request: Arc<AggregateRequest>) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partitions),
            input.pipeline_behavior(),
            input.boundedness(),
        ));
        Self { input, request, properties, metrics: ExecutionPlanMetricsSet::new(), answer: Arc::default() }
    }

    fn aggregator(&self, context: &TaskContext) -> IndexAggregator {
        IndexAggregator {
            input: Arc::clone(&self.input),
            request: Arc::clone(&self.request),
            metrics: self.metrics.clone(),
            pool: Arc::clone(context.memory_pool()),
            batch_rows: context.session_config().batch_size().max(1),
        }
    }
}

/// States that the index gave.
#[derive(Default)]
struct AnsweredStates {
    /// Rows of partial states.
    states: Vec<RecordBatch>,
    /// The files of which the states have the rows; none if the index gave no states.
    answered: Option<AnsweredFiles>,
}

/// Probes the index for an aggregate.
struct IndexAggregator {
    input: Arc<dyn ExecutionPlan>,
    request: Arc<AggregateRequest>,
    metrics: ExecutionPlanMetricsSet,
    pool: Arc<dyn MemoryPool>,
    /// Rows of a batch of states.
    batch_rows: usize,
}

impl IndexAggregator {
    /// The answer of the index. Where the index gives none, the whole input is left to be read.
    async fn probe_index(&self) -> Result<PartialStates> {
        let memory = MemoryConsumer::new("IndexAggregateExec").register(&self.pool);
        let Some(scan_probe) = ScanProbe::below(&self.input) else { return Ok(self.nothing(memory)) };
        let of_range = self.range_states(&scan_probe).await?;
        if of_range.answered.is_some() {
            return self.answer(&scan_probe, of_range, AnsweredRows::Files, memory);
        }
        if let Some(scan_probe) = self.search_again(&scan_probe).await? {
            let found = self.index_states(&scan_probe, &memory).await?;
            return self.answer(&scan_probe, found, AnsweredRows::Files, memory);
        }
        if !scan_probe.has_exact_rows() {
            return Ok(self.nothing(memory));
        }
        let found = self.index_states(&scan_probe, &memory).await?;
        self.answer(&scan_probe, found, AnsweredRows::ExactRows, memory)
    }

    /// An answer without states, so that all rows are left to be read.
    fn nothing(&self, memory: MemoryReservation) -> PartialStates {
        PartialStates { states: Vec::new(), rest: Some(Arc::clone(&self.input)), _memory: memory }
    }

    /// The probe after the searches that the scan skipped, if index-only values make these worth it.
    async fn search_again(&self, scan_probe: &ScanProbe) -> Result<Option<ScanProbe>> {
        let Some(options) = scan_probe.skipped_with else { return Ok(None) };
        let mut all = IndexOnlyCost::default();
        for columns in self.requested_columns() {
            let summed = self.request.summed(columns, &scan_probe.snapshot.schema());
            match scan_probe.snapshot.index_only_cost(columns, summed, &scan_probe.predicate).await {
                Some(cost) => all = all.and(cost),
                None => return Ok(None),
            }
        }
        let Reprobed { scan_probe: found, report } =
            scan_probe.for_index_only(options, all).await.map_err(to_engine)?;
        self.count("index_reads", all.index_reads + report.index_reads);
        self.count("index_bytes_read", all.index_bytes_read + report.index_bytes_read);
        Ok(found)
    }

    /// The columns whose values are requested together.
    fn requested_columns(&self) -> Vec<&[String]> {
        let columns = &self.request.columns;
        if self.request.is_separable() { columns.chunks(1).collect() } else { vec![columns.as_slice()] }
    }

    async fn index_states(&self, scan_probe: &ScanProbe, memory: &MemoryReservation) -> Result<AnsweredStates> {
        let found = self.bound_states(scan_probe).await?;
        if found.states.is_empty() { self.value_states(scan_probe, memory).await } else { Ok(found) }
    }

    /// The states of the files that were answered, and the plan for what is left.
    fn answer(
        &self,
        scan_probe: &ScanProbe,
        found: AnsweredStates,
        rows: AnsweredRows,
        memory: MemoryReservation,
    ) -> Result<PartialStates> {
        let AnsweredStates { states, answered } = found;
        let Some(answered) = answered else { return Ok(self.nothing(memory)) };
        let has_answer = |(place, probe): &(usize, &FileProbe)| has_rows(probe) && answered.contains(*place);
        self.count("files_index_only", scan_probe.files.listed().filter(has_answer).count() as u64);
        let rest = rest_of(&self.input, &answered, rows)?;
        Ok(PartialStates { states, rest, _memory: memory })
    }

    /// States from the ends of a range of the only column, which are in a few leaves however many rows lie between.
    async fn range_states(&self, scan_probe: &ScanProbe) -> Result<AnsweredStates> {
        let column = self.request.extremes_of().filter(|_| reads_files(&self.input));
        let Some(column) = column else { return Ok(AnsweredStates::default()) };
        let bounds = match scan_probe.predicate.clone().simplify() {
            Predicate::Leaf(leaf) if leaf.column == column => scan_probe.snapshot.range_extremes(&leaf).await,
            _ => None,
        };
        let Some(bounds) = bounds else { return Ok(AnsweredStates::default()) };
        self.count("index_reads", bounds.index_reads);
        self.count("index_bytes_read", bounds.index_bytes_read);
        let requests = [MinMaxRequest { column: column.to_owned(), extremes: true }];
        let states = of_bounds(&self.request, &self.input.schema(), &requests, &bounds, &scan_probe.files)?;
        Ok(AnsweredStates { states: vec![states], answered: Some(bounds.answered) })
    }

    /// States from directories, which have the bounds and the NULLs of columns.
    async fn bound_states(&self, scan_probe: &ScanProbe) -> Result<AnsweredStates> {
        let Some(requests) = self.request.bounds() else { return Ok(AnsweredStates::default()) };
        let bounds = scan_probe.snapshot.min_max(&requests, &scan_probe.files).await.map_err(to_engine)?;
        self.count("index_reads", bounds.index_reads);
        self.count("index_bytes_read", bounds.index_bytes_read);
        if bounds.columns.iter().all(Vec::is_empty) {
            return Ok(AnsweredStates::default());
        }
        let states = of_bounds(&self.request, &self.input.schema(), &requests, &bounds, &scan_probe.files)?;
        Ok(AnsweredStates { states: vec![states], answered: Some(bounds.answered) })
    }

    /// States from values and pairs of values, which answer everything else. If these need more memory than the session has, the engine
    /// groups the rows, as it can spill groups.
    async fn value_states(&self, scan_probe: &ScanProbe, memory: &MemoryReservation) -> Result<AnsweredStates> {
        let mut states: Vec<RecordBatch> = Vec::new();
        let mut answered: Option<AnsweredFiles> = None;
        let mut magnitudes = vec![0.0; self.request.measures.len()];
        let schema = self.input.schema();
        for columns in self.requested_columns() {
            let summed = self.request.summed(columns, &scan_probe.snapshot.schema());
            let few = self.request.ends_early;
            let request = GroupCountRequest {
                columns,
                predicate: &scan_probe.predicate,
                files: &scan_probe.files,
                sum_column: summed,
                only_few_values: few,
            };
            let counts = scan_probe.snapshot.group_counts(&request).await.map_err(to_engine)?;
            self.count("index_reads", counts.index_reads);
            self.count("index_bytes_read", counts.index_bytes_read);
            // Rows that are answered for some columns only have to be read for the others. A part does not say which files it is of.
            if answered.as_ref().is_some_and(|answered| *answered != counts.answered) {
                return Ok(nothing_answered(memory));
            }
            let bytes = counts.parts.iter().map(bytes_of).sum();
            if memory.try_grow(bytes).is_err() {
                return Ok(nothing_answered(memory));
            }
            for part in &counts.parts {
                self.count("values", part.rows.len() as u64);
                let schemas = StateSchemas { table: &scan_probe.schema, states: &schema };
                let states_of_part = of_values(&self.request, schemas, columns, part, &mut magnitudes)?;
                let Some(all) = states_of_part.filter(|all| memory.try_grow(all.get_array_memory_size()).is_ok())
                else {
                    return Ok(nothing_answered(memory));
                };
                let cuts = (0..all.num_rows()).step_by(self.batch_rows);
                states.extend(cuts.map(|first| all.slice(first, self.batch_rows.min(all.num_rows() - first))));
            }
            memory.shrink(bytes);
            answered = Some(counts.answered);
        }
        Ok(AnsweredStates { states, answered })
    }

    fn count(&self, name: &'static str, value: u64) {
        let counter = MetricBuilder::new(&self.metrics).global_counter(name);
        counter.add(usize::try_from(value).unwrap_or(usize::MAX));
    }
}

/// No states, which take no memory.
fn nothing_answered(memory: &MemoryReservation) -> AnsweredStates {
    memory.free();
    AnsweredStates::default()
}

impl DisplayAs for IndexAggregateExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = self.request.columns.iter().map(|name| column::display(name)).collect();
        write!(f, "IndexAggregateExec: columns=[{}]", columns.join(", "))?;
        if let Some(aggregate) = self.input.downcast_ref::<AggregateExec>() {
            let groups: Vec<&str> = aggregate.group_expr().expr().iter().map(|(_, name)| name.as_str()).collect();
            let functions: Vec<&str> = aggregate.aggr_expr().iter().map(|function| function.name()).collect();
            write!(f, ", gby=[{}], aggr=[{}]", groups.join(", "), functions.join(", "))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for IndexAggregateExec {
    fn name(&self) -> &'static str {
        "IndexAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::over(input, Arc::clone(&self.request)))),
            _ => internal_err!("IndexAggregateExec has one input"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let arguments = self.request.measures.iter().flat_map(|measure| measure.arguments());
        apply_expression_roots(self.request.groups.iter().chain(arguments), visit)
    }

    /// Any operator between this one and the partial aggregate would only be in the way.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (answer, aggregator) = (Arc::clone(&self.answer), self.aggregator(&context));
        let schema = self.input.schema();
        let states = stream::once(async move {
            let answer = answer.get_or_try_init(|| aggregator.probe_index()).await?;
            let own = if partition == 0 { answer.states.clone() } else { Vec::new() };
            let rest = match &answer.rest {
                Some(rest) => rest.execute(partition, context)?.left_stream(),
                None => stream::empty().right_stream(),
            };
            Ok::<_, DataFusionError>(stream::iter(own.into_iter().map(Ok)).chain(rest))
        });
        let states = states.try_flatten().map(move |batch| Ok(batch?.record_output(&baseline)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, states)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
