//! `NOT IN` over columns without NULL is an anti join like any other.
//!
//! A NULL among the values of `NOT IN` leaves no row, so that the engine plans a join which is aware of it wherever a column may have one.
//! Such a join gathers its left side in one partition, is never turned around, and hands no filter down. Files rarely say that a
//! column must not be NULL, but their statistics say that none of its values is.
//!
//! ```text
//! HashJoinExec: mode=CollectLeft, null_aware        HashJoinExec: mode=Auto
//!   10,000,000 rows, k                        ─▶      10,000,000 rows, k
//!   100 rows, k                                       100 rows, k
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::UnionExec;

use super::PlanRef;
use super::pushdown::{origin, source};
use crate::exec::scan::LakemarkScanExec;

/// The optimizer rule. It comes before sides and modes of joins are chosen.
#[derive(Debug)]
pub(super) struct NotIn;

impl PhysicalOptimizerRule for NotIn {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        let is_parallel = config.execution.target_partitions > 1 && config.optimizer.repartition_joins;
        let mode = if is_parallel { PartitionMode::Auto } else { PartitionMode::CollectLeft };
        plan.transform_up(|node| plain(node, mode)).data()
    }

    fn name(&self) -> &'static str {
        "not_in"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join without regard to NULL, where there is none.
fn plain(node: PlanRef, mode: PartitionMode) -> Result<Transformed<PlanRef>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>().filter(|join| join.null_aware) else {
        return Ok(Transformed::no(node));
    };
    let has_null =
        join.on().iter().any(|(left, right)| may_be_null(join.left(), left) || may_be_null(join.right(), right));
    if has_null {
        return Ok(Transformed::no(node));
    }
    let plain = join.builder().with_null_aware(false).with_partition_mode(mode).recompute_properties().build()?;
    Ok(Transformed::yes(Arc::new(plain)))
}

/// Whether an expression over the output of a plan may be NULL, as far as is known.
fn may_be_null(plan: &PlanRef, expr: &Arc<dyn PhysicalExpr>) -> bool {
    // A value that has no place in the other type is an error, and not NULL.
    if let Some(cast) = expr.downcast_ref::<CastExpr>().filter(|cast| !cast.cast_options().safe) {
        return may_be_null(plan, cast.expr());
    }
    if !expr.nullable(&plan.schema()).unwrap_or(true) {
        return false;
    }
    expr.downcast_ref::<Column>().is_none_or(|column| column_may_be_null(plan, column.index()))
}

fn column_may_be_null(plan: &PlanRef, column: usize) -> bool {
    if let Some(scan) = plan.downcast_ref::<LakemarkScanExec>() {
        return !scan.has_no_null(column);
    }
    let children = plan.children();
    if children.is_empty() {
        return !has_no_null(plan, column);
    }
    let below = |place: usize, child: &PlanRef| match source(plan, place, child, column) {
        Some(expr) => may_be_null(child, &expr),
        None => true,
    };
    if plan.is::<UnionExec>() {
        return children.into_iter().enumerate().any(|(place, child)| below(place, child));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return keeps(join, column).is_none_or(|place| children.get(place).is_none_or(|child| below(place, child)));
    }
    // Sets of groups add rows in which some are NULL.
    let adds_rows = plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| !aggregate.group_expr().is_single());
    match children.as_slice() {
        [child] if !adds_rows => below(0, child),
        _ => true,
    }
}

/// The input of a join that a column is from, if the join adds no rows in which it is NULL.
fn keeps(join: &HashJoinExec, column: usize) -> Option<usize> {
    match (join.join_type(), origin(join, column)?.side) {
        (JoinType::Inner | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::Left, JoinSide::Left) => Some(0),
        (JoinType::Inner | JoinType::RightSemi | JoinType::RightAnti | JoinType::Right, JoinSide::Right) => Some(1),
        _ => None,
    }
}

/// Whether statistics of a leaf say that a column has no NULL. Rows in memory were counted. For a file the engine takes a number that the
/// footer lacks for zero.
fn has_no_null(leaf: &PlanRef, column: usize) -> bool {
    let is_in_memory = leaf.is::<EmptyExec>()
        || leaf
            .downcast_ref::<DataSourceExec>()
            .is_some_and(|scan| scan.data_source().downcast_ref::<MemorySourceConfig>().is_some());
    if !is_in_memory {
        return false;
    }
    let Ok(statistics) = StatisticsContext::new().compute(leaf.as_ref(), &StatisticsArgs::new()) else { return false };
    statistics.column_statistics.get(column).is_some_and(|column| column.null_count == Precision::Exact(0))
}
