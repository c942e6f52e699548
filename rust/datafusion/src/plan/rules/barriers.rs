//! What is known of the rows of an operator's input is kept from operators that make rows for which it does not hold.
//!
//! `WHERE x = 2` leaves one value of `x`. An outer join adds rows in which `x` is NULL, and so do grouping sets without `x`.
//! DataFusion 55 takes `x` for a column of one value there, too: it leaves `x` out of a sort above, or ends groups that go on and
//! gives them more than once. An order by `x` in the input of grouping sets has the same effect.
//!
//! Above a join DataFusion 55 forgets which columns of the right input have one value. A sort that it makes of the right input, below the
//! join, does without such a column. Then it refuses the plan, since it cannot prove the order that is required above the join.
//!
//! [`Barriers`] puts a [`BarrierExec`] below such operators where something is known that does not hold for the rows that they add, or that
//! is forgotten. A barrier gives the rows of its input, and only the rest is known of these rows.
//!
//! ```text
//! HashJoinExec: join_type=Full              HashJoinExec: join_type=Full
//!   FilterExec: x = 2              ─▶         BarrierExec
//!   …                                           FilterExec: x = 2
//!                                             …
//! ```

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{ColumnStatistics, JoinType, Result, Statistics, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::equivalence::EquivalenceClass;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};

use super::PlanRef;

/// The optimizer rule. It comes before the rule that leaves out what need not be sorted.
#[derive(Debug)]
pub(super) struct Barriers;

impl PhysicalOptimizerRule for Barriers {
    fn optimize(&self, plan: PlanRef, _: &ConfigOptions) -> Result<PlanRef> {
        plan.transform_up(|node| fenced(node)?.transform_data(ordered)).data()
    }

    fn name(&self) -> &'static str {
        "barriers"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The operator over barriers, where it needs some.
fn fenced(node: PlanRef) -> Result<Transformed<PlanRef>> {
    over_inputs(node, |node, place, input| {
        let above = InputUse::of(node, place);
        match above.contradicts(input.equivalence_properties()) {
            true => Ok(Transformed::yes(Arc::new(BarrierExec::try_new(Arc::clone(input), above)?))),
            false => Ok(Transformed::no(Arc::clone(input))),
        }
    })
}

/// The operator, which requires an order, over joins that forget nothing which a sort below them could go by.
fn ordered(node: PlanRef) -> Result<Transformed<PlanRef>> {
    let (is_sort, required) = (node.is::<SortExec>(), node.required_input_ordering());
    over_inputs(node, |_, place, input| {
        let is_required = is_sort || required.get(place).is_some_and(Option::is_some);
        if is_required { remembered(Arc::clone(input)) } else { Ok(Transformed::no(Arc::clone(input))) }
    })
}

/// The plan, with barriers where a sort from above may be made of the right input of a join and go by columns of one value.
fn remembered(node: PlanRef) -> Result<Transformed<PlanRef>> {
    let keeps = node.maintains_input_order();
    over_inputs(node, |node, place, input| {
        if !keeps.get(place).copied().unwrap_or_default() {
            return Ok(Transformed::no(Arc::clone(input)));
        }
        let input = remembered(Arc::clone(input))?;
        let forgets = place == 1
            && matches!(join_type(node), Some(JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full));
        match forgets && InputUse::Forgets.contradicts(input.data.equivalence_properties()) {
            true => Ok(Transformed::yes(Arc::new(BarrierExec::try_new(input.data, InputUse::Forgets)?))),
            false => Ok(input),
        }
    })
}

/// The operator with its inputs changed. The function that changes an input gets the input with its place.
fn over_inputs(
    node: PlanRef,
    mut change: impl FnMut(&PlanRef, usize, &PlanRef) -> Result<Transformed<PlanRef>>,
) -> Result<Transformed<PlanRef>> {
    let (mut inputs, mut is_changed) = (Vec::new(), false);
    for (place, input) in node.children().into_iter().enumerate() {
        let input = change(&node, place, input)?;
        is_changed |= input.transformed;
        inputs.push(input.data);
    }
    if !is_changed {
        return Ok(Transformed::no(node));
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Transformed::yes(node.replace_children(inputs, options)?))
}

fn join_type(node: &PlanRef) -> Option<JoinType> {
    let join = node.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let join = join.or_else(|| node.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type()));
    let join = join.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::join_type));
    join.or_else(|| node.downcast_ref::<PiecewiseMergeJoinExec>().map(PiecewiseMergeJoinExec::join_type))
}

/// What the operator above makes of what is known of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum InputUse {
    /// It holds.
    Keeps,
    /// It holds, and which columns have one value is forgotten.
    Forgets,
    /// It does not hold for rows that are added, in which all columns are NULL.
    AddsAllNull,
    /// It does not hold for rows that are added, in which some columns are NULL.
    AddsSomeNull,
}

impl InputUse {
    fn of(node: &PlanRef, input: usize) -> Self {
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return if aggregate.group_expr().has_grouping_set() { Self::AddsSomeNull } else { Self::Keeps };
        }
        match (join_type(node), input) {
            (Some(JoinType::Left | JoinType::Full), 1) | (Some(JoinType::Right | JoinType::Full), 0) => {
                Self::AddsAllNull
            }
            _ => Self::Keeps,
        }
    }

    /// Whether something that is known of the input does not hold above, or is not known there.
    fn contradicts(self, known: &EquivalenceProperties) -> bool {
        match self {
            Self::Keeps => false,
            Self::Forgets => !known.constants().is_empty(),
            Self::AddsAllNull => classes_of_columns(known).len() < known.eq_group().len(),
            Self::AddsSomeNull => !known.eq_group().is_empty() || !known.oeq_class().is_empty(),
        }
    }

    /// What is known and holds above, too. Orders are kept: a join hands on the order of no input to which it adds rows, but may require
    /// one.
    fn left_of(self, known: &EquivalenceProperties) -> Result<EquivalenceProperties> {
        if self == Self::Keeps {
            return Ok(known.clone());
        }
        let mut left = EquivalenceProperties::new(Arc::clone(known.schema()));
        if self != Self::AddsSomeNull {
            for class in classes_of_columns(known) {
                for (one, other) in class.iter().zip(class.iter().skip(1)) {
                    left.add_equal_conditions(Arc::clone(one), Arc::clone(other))?;
                }
            }
            left.add_orderings(known.oeq_class().iter().cloned());
        }
        Ok(left)
    }
}

/// The classes of columns that are equal where all are NULL, too: those without a constant and without an expression.
fn classes_of_columns(known: &EquivalenceProperties) -> Vec<&EquivalenceClass> {
    let constants = known.constants();
    let is_column = |member: &Arc<dyn PhysicalExpr>| {
        member.is::<Column>() && !constants.iter().any(|constant| &constant.expr == member)
    };
    known.eq_group().iter().filter(|class| class.iter().all(is_column)).collect()
}

/// Gives the rows of its input, of which is known what holds for the rows that the operator above makes, too.
#[derive(Debug, Clone)]
pub(super) struct BarrierExec {
    input: PlanRef,
    above: InputUse,
    properties: Arc<PlanProperties>,
}

impl BarrierExec {
    /// A barrier above which everything stays known, but bounds and numbers of different values are estimates.
    pub(super) fn of_estimates(input: PlanRef) -> Result<Self> {
        Self::try_new(input, InputUse::Keeps)
    }

    fn try_new(input: PlanRef, above: InputUse) -> Result<Self> {
        let known = above.left_of(input.equivalence_properties())?;
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(known);
        Ok(Self { input, above, properties: Arc::new(properties) })
    }
}

impl DisplayAs for BarrierExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BarrierExec")
    }
}

impl ExecutionPlan for BarrierExec {
    fn name(&self) -> &'static str {
        "BarrierExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&PlanRef> {
        vec![&self.input]
    }

    fn replace_children(self: Arc<Self>, inputs: Vec<PlanRef>, _: ReplaceChildrenOptions) -> Result<PlanRef> {
        let input = inputs.into_iter().next().ok_or_else(|| internal_datafusion_err!("BarrierExec has an input"))?;
        Ok(Arc::new(Self::try_new(input, self.above)?))
    }

    fn with_new_children(self: Arc<Self>, inputs: Vec<PlanRef>) -> Result<PlanRef> {
        self.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let input = inputs.first().ok_or_else(|| internal_datafusion_err!("BarrierExec has an input"))?;
        let mut statistics = Statistics::clone(input);
        for column in &mut statistics.column_statistics {
            let null_count = column.null_count;
            // NULL may be counted, or be added above.
            *column = ColumnStatistics { null_count, ..std::mem::take(column).to_inexact() };
        }
        Ok(Arc::new(statistics))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        from_above: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(from_above, &self.children())
    }
}
