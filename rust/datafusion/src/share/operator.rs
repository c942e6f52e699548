//! The operator whose input one execution gives to all queries that have an equal one.
//!
//! Nothing from above goes below it: neither filters nor limits, as the rows are those of all queries. It gives one partition, so that
//! a query takes part as a whole, and promises no order beyond that of the plan that it stands for.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputOrderMode,
    PlanProperties, ReplaceChildrenOptions, execute_stream,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;

use super::consumer::{Consumer, Opening, SharedStream};
use super::flight::HostPlan;
use super::key::PlanKey;
use super::registry::{JoinRequest, PlanSharing};
use super::role::{Role, SharedMetrics};

/// Makes a physical plan.
pub(crate) type MakesPlan = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn ExecutionPlan>>> + Send + Sync>;

/// The plan of the query itself.
#[derive(Clone)]
enum OwnPlan {
    Planned(Arc<dyn ExecutionPlan>),
    /// An equal plan was in flight when this one was about to be made. It is made if the query has to run it.
    Deferred,
}

impl OwnPlan {
    /// Begins it, with nobody to share it.
    async fn begin(self, makes: MakesPlan, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let plan = match self {
            Self::Planned(plan) => plan,
            Self::Deferred => makes().await?,
        };
        execute_stream(plan, context)
    }
}

/// What a shared plan is made of.
#[derive(Clone)]
pub(crate) struct SharedParts {
    pub(crate) key: Arc<PlanKey>,
    pub(crate) sharing: Arc<PlanSharing>,
    /// Whether it may take the batches of another query.
    pub(crate) attaches: bool,
    /// Whether guests take large outputs as they come, whatever the plan.
    pub(crate) streams: bool,
    /// Makes the plan anew.
    pub(crate) makes: MakesPlan,
}

/// A plan whose rows one execution gives to all queries that have an equal one.
#[derive(Clone)]
pub(crate) struct SharedExec {
    parts: SharedParts,
    own: OwnPlan,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedExec {
    /// A plan that may be the host's.
    pub(crate) fn planned(parts: SharedParts, plan: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            plan.pipeline_behavior(),
            plan.boundedness(),
        ));
        Self { parts, own: OwnPlan::Planned(plan), properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// A guest of a plan in flight, whose output looks like this.
    pub(crate) fn deferred(parts: SharedParts, properties: Arc<PlanProperties>) -> Self {
        Self { parts, own: OwnPlan::Deferred, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// The plan as a host's, if it was made.
    fn host(&self) -> Option<HostPlan> {
        let OwnPlan::Planned(plan) = &self.own else { return None };
        let streams = self.parts.streams || gives_rows_in_the_end(plan);
        Some(HostPlan { plan: Arc::clone(plan), properties: Arc::clone(&self.properties), streams })
    }

    /// The rows of a guest; none if no plan is in flight whose rows it may take.
    pub(crate) fn taken(&self, context: &Arc<TaskContext>) -> Option<SendableRecordBatchStream> {
        let runtime = Handle::try_current().ok()?;
        let SharedParts { key, sharing, attaches, .. } = &self.parts;
        let consumer = sharing.join(JoinRequest { key, runtime, context, host: None, attaches: *attaches })?;
        let metrics = SharedMetrics::new(&self.metrics);
        Some(Box::pin(self.taking(consumer, Arc::clone(context), metrics)))
    }

    /// The rows of a consumer of the plan in flight, or those of its own plan if it cannot take these any more.
    fn taking(&self, consumer: Consumer, context: Arc<TaskContext>, metrics: SharedMetrics) -> SharedStream {
        let SharedParts { sharing, makes, .. } = &self.parts;
        let (role, counted, makes) = (consumer.role(), metrics.clone(), Arc::clone(makes));
        let (own, sharing) = (self.own.clone(), Arc::clone(sharing));
        let alone = move || -> Opening {
            let own = match role {
                // Its plan runs for the others, and no plan is run twice: filters in it keep what they learned.
                Role::Host => OwnPlan::Deferred,
                _ => {
                    sharing.count_detached();
                    own
                }
            };
            async move { Ok(counting(own.begin(makes, context).await?, counted)) }.boxed()
        };
        SharedStream::shared(self.schema(), consumer, metrics, Box::new(alone))
    }

    /// Begins the plan where it cannot be shared just now. A plan that is only made now may be the host's of others.
    fn begin(&self, context: Arc<TaskContext>, metrics: SharedMetrics) -> SharedStream {
        let schema = self.schema();
        let opening: Opening = match &self.own {
            OwnPlan::Planned(_) => {
                metrics.set_role(Role::Alone);
                let (own, makes, counted) = (self.own.clone(), Arc::clone(&self.parts.makes), metrics.clone());
                async move {
                    let stream = own.begin(makes, context).await?;
                    Ok(counting(stream, counted))
                }
                .boxed()
            }
            OwnPlan::Deferred => {
                let (parts, metrics) = (self.parts.clone(), self.metrics.clone());
                async move {
                    let plan = (parts.makes)().await?;
                    Self { metrics, ..Self::planned(parts, plan) }.execute(0, context)
                }
                .boxed()
            }
        };
        SharedStream::opening(schema, opening, metrics)
    }
}

/// Whether a plan takes all rows of its tables before it gives one, as it sorts or groups them. Operators with one input hand on what it
/// gives. Joins give rows as they read one of their inputs, whatever they say of themselves.
fn gives_rows_in_the_end(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let groups = |plan: &AggregateExec| *plan.input_order_mode() == InputOrderMode::Linear;
    if plan.is::<SortExec>() || plan.is::<WindowAggExec>() || plan.downcast_ref::<AggregateExec>().is_some_and(groups) {
        return true;
    }
    match plan.children().as_slice() {
        [input] => gives_rows_in_the_end(input),
        [input, ..] => plan.is::<ScalarSubqueryExec>() && gives_rows_in_the_end(input),
        [] => false,
    }
}

/// Counts the rows of a plan that its own query alone takes.
fn counting(rows: SendableRecordBatchStream, metrics: SharedMetrics) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let counted = rows.inspect(move |batch| {
        metrics.output_rows.add(batch.as_ref().map_or(0, |batch| batch.num_rows()));
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, counted))
}

impl fmt::Debug for SharedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedExec").field("schema", &self.schema()).finish_non_exhaustive()
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedExec")
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &'static str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        match &self.own {
            OwnPlan::Planned(plan) => vec![plan],
            OwnPlan::Deferred => Vec::new(),
        }
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (&self.own, children.pop(), children.is_empty()) {
            (OwnPlan::Planned(_), Some(plan), true) => Ok(Arc::new(Self::planned(self.parts.clone(), plan))),
            (OwnPlan::Deferred, None, true) => Ok(self),
            _ => internal_err!("SharedExec has one input, or none while its plan is not made"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// Its partitions are merged anyway.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.children().into_iter().map(|_| false).collect()
    }

    fn child_stats_requests(&self, _partition: Option<usize>) -> Vec<ChildStats> {
        self.children().into_iter().map(|_| ChildStats::At(None)).collect()
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(inputs.first().cloned().unwrap_or_else(|| Arc::new(Statistics::new_unknown(&self.schema()))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("SharedExec has one partition, not {partition}");
        }
        let metrics = SharedMetrics::new(&self.metrics);
        let SharedParts { key, sharing, attaches, .. } = &self.parts;
        let joined = Handle::try_current().ok().and_then(|runtime| {
            sharing.join(JoinRequest { key, runtime, context: &context, host: self.host(), attaches: *attaches })
        });
        Ok(Box::pin(match joined {
            Some(consumer) => self.taking(consumer, context, metrics),
            None => self.begin(context, metrics),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::execution_plan::EmissionType;
    use datafusion::physical_plan::joins::CrossJoinExec;
    use datafusion::physical_plan::limit::GlobalLimitExec;

    use super::*;

    #[test]
    fn sorts_give_rows_in_the_end_and_joins_do_not() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let table: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::clone(&schema)));
        let order = LexOrdering::new([PhysicalSortExpr::new_default(col("n", &schema).unwrap())]).unwrap();
        let sort: Arc<dyn ExecutionPlan> = Arc::new(SortExec::new(order, Arc::clone(&table)));
        let first: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(Arc::clone(&sort), 0, Some(7)));
        let join: Arc<dyn ExecutionPlan> = Arc::new(CrossJoinExec::new(Arc::clone(&sort), Arc::clone(&table)));
        assert!(gives_rows_in_the_end(&sort) && gives_rows_in_the_end(&first));
        // It says so, yet gives rows as soon as it has one of the right input.
        assert_eq!(join.pipeline_behavior(), EmissionType::Final);
        let above: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(Arc::clone(&join)));
        assert!(!gives_rows_in_the_end(&join) && !gives_rows_in_the_end(&above) && !gives_rows_in_the_end(&table));
    }
}
