//! The operator that chooses how a join runs once it knows how many rows one of its inputs has.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary, reset_plan_states};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    apply_expression_roots,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::collected::{Collected, CollectedExec};
use crate::exec::dynamic_filters::keyed_rows::WantedKeys;
use crate::exec::scan::{KeyedScan, LakemarkScanExec};

/// A physical plan, or a part of one.
type PlanRef = Arc<dyn ExecutionPlan>;

/// Which input of a join the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableSide {
    /// The one that is put into a hash table.
    Left,
    /// The one whose rows are looked up in it.
    Right,
}

/// A key of a join that an index of the table may know.
#[derive(Clone, Debug)]
pub(crate) struct TableKey {
    /// Its place among the keys of the join.
    pub(crate) place: usize,
    /// What it is over the columns of the table's scan.
    pub(crate) expr: Arc<dyn PhysicalExpr>,
}

/// How a join is run by an index.
#[derive(Clone, Debug)]
pub(crate) struct IndexJoinRequest {
    pub(crate) side: TableSide,
    pub(crate) keys: Vec<TableKey>,
}

/// Runs a hash join over the rows of a table that have one of few keys, and as it was planned if there are many keys.
#[derive(Debug)]
pub(crate) struct IndexJoinExec {
    /// The join that DataFusion planned.
    join: PlanRef,
    request: Arc<IndexJoinRequest>,
    metrics: ExecutionPlanMetricsSet,
    counts: JoinCounts,
    /// How the join runs, once a partition was asked for.
    begun: Mutex<Option<BegunJoin>>,
}

/// A join that runs.
#[derive(Debug)]
struct BegunJoin {
    /// One choice serves all partitions.
    chosen: ChosenPlan,
    /// Those that were asked for.
    partitions: HashSet<usize>,
}

/// What is counted in all executions.
#[derive(Clone, Debug)]
struct JoinCounts {
    /// Executions, of which a recursive query has one in each round.
    rounds: Count,
    /// Executions that ran the join as it was planned.
    rounds_scanned: Count,
    /// Different keys that were searched.
    keys: Count,
    index_reads: Count,
    /// Rows that an index gave with their values.
    rows_index_only: Count,
}

impl JoinCounts {
    fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).global_counter(name);
        Self {
            rounds: count("rounds"),
            rounds_scanned: count("rounds_scanned"),
            keys: count("keys"),
            index_reads: count("index_reads"),
            rows_index_only: count("rows_index_only"),
        }
    }
}

fn add(count: &Count, value: u64) {
    count.add(usize::try_from(value).unwrap_or(usize::MAX));
}

/// The join as it runs, once that is chosen. Whoever waits for it goes on with the choice if another one stops waiting: the rows that it
/// took cannot be taken again.
#[derive(Clone)]
struct ChosenPlan(Shared<BoxFuture<'static, std::result::Result<PlanRef, Arc<DataFusionError>>>>);

impl fmt::Debug for ChosenPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChosenPlan").finish_non_exhaustive()
    }
}

impl IndexJoinExec {
    /// Over a hash join.
    pub(crate) fn new(join: PlanRef, request: IndexJoinRequest) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        let counts = JoinCounts::new(&metrics);
        Self { join, request: Arc::new(request), metrics, counts, begun: Mutex::default() }
    }

    /// The same over a join of the same inputs, of which nothing is chosen yet. Its metrics go on.
    fn over(&self, join: PlanRef) -> Self {
        let (request, metrics) = (Arc::clone(&self.request), self.metrics.clone());
        Self { join, request, metrics, counts: self.counts.clone(), begun: Mutex::default() }
    }

    /// The join as it runs for a partition. The rows that were taken are given once, so that whoever executes a partition again has the join
    /// begin anew: a nested loop join does that with an input for which it finds too little memory.
    fn chosen(&self, partition: usize, context: &Arc<TaskContext>) -> Result<ChosenPlan> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = begun.as_mut()
            && running.partitions.insert(partition)
        {
            return Ok(running.chosen.clone());
        }
        let join = match *begun {
            None => Arc::clone(&self.join),
            Some(_) => reset_plan_states(Arc::clone(&self.join))?,
        };
        let chosen = self.choice(join, context);
        *begun = Some(BegunJoin { chosen: chosen.clone(), partitions: HashSet::from([partition]) });
        Ok(chosen)
    }

    fn choice(&self, join: PlanRef, context: &Arc<TaskContext>) -> ChosenPlan {
        let choice = Choice {
            join,
            request: Arc::clone(&self.request),
            counts: self.counts.clone(),
            context: Arc::clone(context),
        };
        ChosenPlan(choice.run().map(|chosen| chosen.map_err(Arc::new)).boxed().shared())
    }
}

/// Chooses how a join runs.
struct Choice {
    join: PlanRef,
    request: Arc<IndexJoinRequest>,
    counts: JoinCounts,
    context: Arc<TaskContext>,
}

impl Choice {
    async fn run(self) -> Result<PlanRef> {
        let Some(join) = self.join.downcast_ref::<HashJoinExec>() else {
            return internal_err!("IndexJoinExec is over a hash join, and not over {}", self.join.name());
        };
        let (few, table) = match self.request.side {
            TableSide::Left => (join.right(), join.left()),
            TableSide::Right => (join.left(), join.right()),
        };
        self.counts.rounds.add(1);
        let collected = Collected::of(few, &self.context).await?;
        let wanted = if collected.is_whole { self.wanted(join, &collected)? } else { None };
        let keyed = match wanted {
            Some(wanted) => self.keyed(table, wanted).await?,
            None => None,
        };
        let table = keyed.unwrap_or_else(|| {
            self.counts.rounds_scanned.add(1);
            Arc::clone(table)
        });
        let few: PlanRef = Arc::new(CollectedExec::from(collected));
        let inputs = match self.request.side {
            TableSide::Left => vec![table, few],
            TableSide::Right => vec![few, table],
        };
        replace_children_if_necessary(Arc::clone(&self.join), inputs)
    }

    /// The keys of rows; none if they are too long to be searched.
    fn wanted(&self, join: &HashJoinExec, rows: &Collected) -> Result<Option<Vec<WantedKeys>>> {
        let mut wanted = Vec::with_capacity(self.request.keys.len());
        for TableKey { place, expr } in &self.request.keys {
            let Some((left, right)) = join.on().get(*place) else { continue };
            let own = match self.request.side {
                TableSide::Left => right,
                TableSide::Right => left,
            };
            let Some(values) = rows.values(own)? else { return Ok(None) };
            wanted.push(WantedKeys { expr: Arc::clone(expr), values });
        }
        Ok(Some(wanted))
    }

    /// The input that is the table, cut down to the rows that have one of the keys; none if it is better read as a whole.
    async fn keyed(&self, table: &PlanRef, wanted: Vec<WantedKeys>) -> Result<Option<PlanRef>> {
        let Some(scan) = scan_below(table) else { return Ok(None) };
        let Some(found) = scan.keyed(&wanted, &self.context).await? else { return Ok(None) };
        let KeyedScan { scan, keys, index_reads, rows_index_only } = found;
        add(&self.counts.keys, keys);
        add(&self.counts.index_reads, index_reads);
        add(&self.counts.rows_index_only, rows_index_only);
        with_scan(table, &scan).map(Some)
    }
}

/// The scan that an input gives the rows of.
fn scan_below(input: &PlanRef) -> Option<&LakemarkScanExec> {
    if let Some(scan) = input.downcast_ref::<LakemarkScanExec>() {
        return Some(scan);
    }
    let mut children = input.children().into_iter();
    match (children.next(), children.next()) {
        (Some(child), None) => scan_below(child),
        _ => None,
    }
}

/// The same input over another scan of the same table.
fn with_scan(input: &PlanRef, scan: &PlanRef) -> Result<PlanRef> {
    if input.is::<LakemarkScanExec>() {
        return Ok(Arc::clone(scan));
    }
    let children = input.children().into_iter().map(|child| with_scan(child, scan)).collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(Arc::clone(input), children)
}

impl DisplayAs for IndexJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.request.side {
            TableSide::Left => "left",
            TableSide::Right => "right",
        };
        let keys: Vec<String> = self.request.keys.iter().map(|key| key.expr.to_string()).collect();
        write!(f, "IndexJoinExec: table={side}, keys=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for IndexJoinExec {
    fn name(&self) -> &'static str {
        "IndexJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.join]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(join), true) => Ok(Arc::new(self.over(join))),
            _ => internal_err!("IndexJoinExec has one input"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.request.keys.iter().map(|key| &key.expr), visit)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(Arc::clone(&self.join))))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let ChosenPlan(chosen) = self.chosen(partition, &context)?;
        let rows = stream::once(async move {
            let join = chosen.await.map_err(DataFusionError::Shared)?;
            join.execute(partition, context)
        });
        let rows = rows.try_flatten().map(move |batch| Ok(batch?.record_output(&baseline)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        inputs.first().cloned().ok_or_else(|| internal_datafusion_err!("IndexJoinExec has an input"))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
