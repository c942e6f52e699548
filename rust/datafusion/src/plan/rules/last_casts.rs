//! The first rows of a sort are cast when it has found them, and stay in their order.
//!
//! ```text
//! SortExec: TopK(fetch=100), [s]              LastCastsExec: CAST(s AS Utf8)
//!   ProjectionExec: CAST(s AS Utf8)    ─▶       SortExec: TopK(fetch=100), [s]
//!     …                                           ProjectionExec: s
//! ```
//!
//! [`Views`](super::views) has to put its casts below a sort: DataFusion 55 shares rows among partitions for a projection that computes
//! something, which loses their order at the end of a statement. Below the sort the casts are made of all rows, and keep the sort above a
//! join that could end at the first ones.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr, all_columns};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};

use super::PlanRef;

/// More rows than these are not left to one partition.
pub(super) const MOST_ROWS: usize = 100_000;

/// The optimizer rule. It comes before rows are shared among partitions.
///
/// The rule only looks at the end of a statement. DataFusion 55 pushes an order that is required above through operators that it does not
/// know. It goes by the places of their columns, whatever these compute.
#[derive(Debug)]
pub(super) struct LastCasts;

impl PhysicalOptimizerRule for LastCasts {
    fn optimize(&self, plan: PlanRef, _: &ConfigOptions) -> Result<PlanRef> {
        at_end(plan)
    }

    fn name(&self) -> &'static str {
        "last_casts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Looks for the end of the statement below what only stands above it.
fn at_end(plan: PlanRef) -> Result<PlanRef> {
    let explains = |plan: &PlanRef| plan.is::<AnalyzeExec>();
    let is_required = plan.is::<OutputRequirementExec>() && plan.children().into_iter().any(explains);
    if !plan.is::<ScalarSubqueryExec>() && !explains(&plan) && !is_required {
        return cast_last(plan);
    }
    let mut inputs: Vec<PlanRef> = plan.children().into_iter().cloned().collect();
    if let Some(rows) = inputs.first_mut() {
        *rows = at_end(Arc::clone(rows))?;
    }
    replace_children_if_necessary(plan, inputs)
}

/// The same plan, whose last operator makes the casts that were below its sort.
fn cast_last(plan: PlanRef) -> Result<PlanRef> {
    let Some(views) = over_views(&plan)? else { return Ok(plan) };
    let (now, declared) = (views.schema(), plan.schema());
    let casts = now.fields().iter().zip(declared.fields()).enumerate().map(|(place, (now, declared))| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(now.name(), place));
        let is_same = now.data_type() == declared.data_type();
        let cast = || Arc::new(CastExpr::new_with_target_field(Arc::clone(&column), Arc::clone(declared), None)) as _;
        ProjectionExpr::new(if is_same { Arc::clone(&column) } else { cast() }, declared.name())
    });
    let casts = ProjectionExec::try_new_with_schema_metadata(casts.collect::<Vec<_>>(), views, declared.as_ref())?;
    Ok(Arc::new(LastCastsExec { casts: Arc::new(casts) }))
}

/// What gives the first rows of a sort, without the casts below it; none if there are none.
fn over_views(plan: &PlanRef) -> Result<Option<PlanRef>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let is_short = sort.fetch().is_some_and(|rows| rows <= MOST_ROWS);
        let by_columns = sort.expr().iter().all(|key| key.expr.is::<Column>());
        let below = sort.input().downcast_ref::<ProjectionExec>().filter(|_| is_short && by_columns);
        let Some(below) = below.map(without_casts).transpose()?.flatten() else { return Ok(None) };
        return replace_children_if_necessary(Arc::clone(plan), vec![below]).map(Some);
    }
    let hands_on = plan.is::<OutputRequirementExec>() || plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>();
    let chosen = plan.downcast_ref::<ProjectionExec>().filter(|projection| all_columns(projection.expr()));
    let children = plan.children();
    let [input] = children.as_slice() else { return Ok(None) };
    if !hands_on && chosen.is_none() {
        return Ok(None);
    }
    let Some(input) = over_views(input)? else { return Ok(None) };
    match chosen {
        Some(chosen) => with_input(chosen, chosen.expr().iter().cloned(), input).map(Some),
        None => replace_children_if_necessary(Arc::clone(plan), vec![input]).map(Some),
    }
}

/// A projection made anew: one whose input is replaced keeps the types that it had.
fn with_input(
    projection: &ProjectionExec,
    output: impl IntoIterator<Item = ProjectionExpr>,
    input: PlanRef,
) -> Result<PlanRef> {
    let output: Vec<ProjectionExpr> = output.into_iter().collect();
    let schema = projection.schema();
    Ok(Arc::new(ProjectionExec::try_new_with_schema_metadata(output, input, schema.as_ref())?))
}

/// The projection with views in the place of texts and bytes that it casts them to; none if it casts none. The order of a view is that of
/// its text.
fn without_casts(projection: &ProjectionExec) -> Result<Option<PlanRef>> {
    let schema = projection.input().schema();
    let mut has_casts = false;
    let bare = |part: &ProjectionExpr| match of_view(&part.expr, &schema) {
        Some(view) => {
            has_casts = true;
            ProjectionExpr::new(view, &part.alias)
        }
        None => part.clone(),
    };
    let bare: Vec<ProjectionExpr> = projection.expr().iter().map(bare).collect();
    if !has_casts {
        return Ok(None);
    }
    with_input(projection, bare, Arc::clone(projection.input())).map(Some)
}

/// The column of views that an expression casts to what these are views of.
fn of_view(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Arc<dyn PhysicalExpr>> {
    let cast = expr.downcast_ref::<CastExpr>()?;
    let column = cast.expr().downcast_ref::<Column>()?;
    let is_view = match schema.fields().get(column.index())?.data_type() {
        DataType::Utf8View => matches!(cast.cast_type(), DataType::Utf8 | DataType::LargeUtf8),
        DataType::BinaryView => matches!(cast.cast_type(), DataType::Binary | DataType::LargeBinary),
        _ => false,
    };
    is_view.then(|| Arc::clone(cast.expr()))
}

/// Casts columns of the rows of its input, one partition after the other as they are.
#[derive(Debug, Clone)]
struct LastCastsExec {
    /// The projection that does it.
    casts: PlanRef,
}

impl DisplayAs for LastCastsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastCastsExec: ")?;
        self.casts.fmt_as(format, f)
    }
}

impl ExecutionPlan for LastCastsExec {
    fn name(&self) -> &'static str {
        "LastCastsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.casts.properties()
    }

    fn children(&self) -> Vec<&PlanRef> {
        self.casts.children()
    }

    fn replace_children(self: Arc<Self>, inputs: Vec<PlanRef>, options: ReplaceChildrenOptions) -> Result<PlanRef> {
        let casts = Arc::clone(&self.casts).replace_children(inputs, options)?;
        Ok(Arc::new(Self { casts }))
    }

    fn with_new_children(self: Arc<Self>, inputs: Vec<PlanRef>) -> Result<PlanRef> {
        self.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.casts.apply_expressions(visit)
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.casts.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.casts.metrics()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.casts.child_stats_requests(partition)
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.casts.statistics_from_inputs(inputs, args)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
