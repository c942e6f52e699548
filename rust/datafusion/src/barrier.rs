//! What is known of the rows of an operator's input, kept from operators that make rows of which it does not hold.
//!
//! `WHERE x = 2` leaves one value of `x`. An outer join adds rows in which `x` is NULL, and so do grouping sets without `x`.
//! DataFusion 55 takes `x` for a column of one value there, too: it leaves `x` out of a sort above, or ends groups that go on and
//! gives them more than once. An order by `x` in the input of grouping sets has the same effect.
//!
//! [`Barriers`] puts a [`BarrierExec`] below such operators where something is known that does not hold for the rows that they add.
//! Its rows are those of its input, and only the rest is known of them.
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
use datafusion::common::{JoinType, Result, Statistics, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::equivalence::EquivalenceClass;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};

type Plan = Arc<dyn ExecutionPlan>;

/// The optimizer rule. It comes before that which leaves out what need not be sorted.
#[derive(Debug)]
pub(crate) struct Barriers;

impl Barriers {
    /// The rule of DataFusion's that goes by what is known of rows.
    const BEFORE: &str = "EnsureRequirements";

    /// Puts the rule where it belongs among `rules`.
    pub(crate) fn insert(rules: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) {
        let place = rules.iter().position(|rule| rule.name() == Self::BEFORE).unwrap_or(0);
        rules.insert(place, Arc::new(Self));
    }
}

impl PhysicalOptimizerRule for Barriers {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        plan.transform_up(fenced).data()
    }

    fn name(&self) -> &'static str {
        "barriers"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The operator over barriers, where it needs some.
fn fenced(node: Plan) -> Result<Transformed<Plan>> {
    let mut is_changed = false;
    let mut inputs = Vec::new();
    for (place, input) in node.children().into_iter().enumerate() {
        let made = RowsMade::of(&node, place);
        if made.contradict(input.equivalence_properties()) {
            inputs.push(Arc::new(BarrierExec::try_new(Arc::clone(input), made)?) as Plan);
            is_changed = true;
        } else {
            inputs.push(Arc::clone(input));
        }
    }
    if !is_changed {
        return Ok(Transformed::no(node));
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Transformed::yes(node.replace_children(inputs, options)?))
}

/// Rows that an operator makes of an input beside those that the input has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RowsMade {
    None,
    /// All columns are NULL.
    AllNull,
    /// Some columns are NULL.
    SomeNull,
}

impl RowsMade {
    fn of(node: &Plan, input: usize) -> Self {
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return if aggregate.group_expr().has_grouping_set() { Self::SomeNull } else { Self::None };
        }
        let join = node.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
        let join = join.or_else(|| node.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type()));
        let join = join.or_else(|| node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::join_type));
        let join =
            join.or_else(|| node.downcast_ref::<PiecewiseMergeJoinExec>().map(PiecewiseMergeJoinExec::join_type));
        match (join, input) {
            (Some(JoinType::Left | JoinType::Full), 1) | (Some(JoinType::Right | JoinType::Full), 0) => Self::AllNull,
            _ => Self::None,
        }
    }

    /// Whether something that is known of the input does not hold for these rows.
    fn contradict(self, known: &EquivalenceProperties) -> bool {
        match self {
            Self::None => false,
            Self::AllNull => classes_of_columns(known).len() < known.eq_group().len(),
            Self::SomeNull => !known.eq_group().is_empty() || !known.oeq_class().is_empty(),
        }
    }

    /// What is known and holds for these rows, too. Joins keep the order of no input to which they add rows, and ask for one.
    fn left_of(self, known: &EquivalenceProperties) -> Result<EquivalenceProperties> {
        let mut left = EquivalenceProperties::new(Arc::clone(known.schema()));
        if self == Self::AllNull {
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
pub(crate) struct BarrierExec {
    input: Plan,
    above: RowsMade,
    properties: Arc<PlanProperties>,
}

impl BarrierExec {
    fn try_new(input: Plan, above: RowsMade) -> Result<Self> {
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

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    fn replace_children(self: Arc<Self>, inputs: Vec<Plan>, _: ReplaceChildrenOptions) -> Result<Plan> {
        let input = inputs.into_iter().next().ok_or_else(|| internal_datafusion_err!("BarrierExec has an input"))?;
        Ok(Arc::new(Self::try_new(input, self.above)?))
    }

    fn with_new_children(self: Arc<Self>, inputs: Vec<Plan>) -> Result<Plan> {
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
        inputs.first().cloned().ok_or_else(|| internal_datafusion_err!("BarrierExec has an input"))
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
