//! Different values are counted by reading them where NULL may be among them.
//!
//! DataFusion 55 takes a column of NULL alone for one of one value, and answers `count(DISTINCT x)` with that from statistics: 1, where NULL
//! does not count.
//!
//! [`NullCounts`] puts a [`BarrierExec`] below such an aggregate, above which the number of values is an estimate.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{ColumnStatistics, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::barriers::BarrierExec;

type Plan = Arc<dyn ExecutionPlan>;

/// The optimizer rule. It comes before the one that answers aggregates from statistics.
#[derive(Debug)]
pub(super) struct NullCounts;

impl PhysicalOptimizerRule for NullCounts {
    fn optimize(&self, plan: Plan, _: &ConfigOptions) -> Result<Plan> {
        plan.transform_up(read).data()
    }

    fn name(&self) -> &'static str {
        "null_counts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The aggregate over a barrier, where it counts different values of columns that may have NULL.
fn read(node: Plan) -> Result<Transformed<Plan>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
    let is_distinct = aggregate.aggr_expr().iter().any(|function| function.is_distinct());
    if !is_distinct || !counts_null(aggregate.input())? {
        return Ok(Transformed::no(node));
    }
    let barrier = BarrierExec::of_distinct_counts(Arc::clone(aggregate.input()))?;
    replace_children_if_necessary(node, vec![Arc::new(barrier)]).map(Transformed::yes)
}

/// Whether a number of different values is said to be certain, of a column that may have NULL.
fn counts_null(input: &Plan) -> Result<bool> {
    let statistics = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new())?;
    let counts = |column: &ColumnStatistics| {
        matches!(column.distinct_count, Precision::Exact(_)) && column.null_count != Precision::Exact(0)
    };
    Ok(statistics.column_statistics.iter().any(counts))
}
