//! A limit stays above the operators that have to see all rows.
//!
//! `ORDER BY a LIMIT 1` is a sort with a limit. DataFusion 55 hands the limit to sorts, merges of sorted partitions and groups further
//! below, whatever lies in between: `count(*) OVER ()` counts one row then, groups end early, and `DISTINCT` meets the same value too
//! often.
//!
//! [`SortLimits`] takes the limit out of such a sort while DataFusion moves sorts. Where a sort or a merge is left below the limit,
//! DataFusion's rule for limits puts both together again.
//!
//! ```text
//! SortExec: TopK(fetch=1)            GlobalLimitExec: fetch=1
//!   WindowAggExec: count(*)    ─▶      OutputRequirementExec: the order of the sort
//!     …                                  SortExec
//!                                          WindowAggExec: count(*)
//!                                            …
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::{Distribution, OrderingRequirements};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::PlanRef;

/// The optimizer rule. It comes before the rule that moves sorts, after which another takes its `OutputRequirementExec` away.
#[derive(Debug)]
pub(super) struct SortLimits;

impl PhysicalOptimizerRule for SortLimits {
    fn optimize(&self, plan: PlanRef, _: &ConfigOptions) -> Result<PlanRef> {
        plan.transform_up(|node| Ok(raised(&node).map_or_else(|| Transformed::no(node), Transformed::yes))).data()
    }

    fn name(&self) -> &'static str {
        "sort_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The sort with its limit above it, if rows that the limit cuts off could be missed below.
fn raised(node: &PlanRef) -> Option<PlanRef> {
    let sort = node.downcast_ref::<SortExec>().filter(|sort| !sort.preserve_partitioning())?;
    let fetch = sort.fetch()?;
    if !needs_all_rows(sort.input()) {
        return None;
    }
    let order = sort.expr().clone();
    let required = Some(OrderingRequirements::from(order.clone()));
    let whole: PlanRef = Arc::new(sort.with_fetch(None));
    let ordered = OutputRequirementExec::new(whole, required, Distribution::SinglePartition, None);
    let mut limit = GlobalLimitExec::new(Arc::new(ordered), 0, Some(fetch));
    limit.set_required_ordering(Some(order));
    Some(Arc::new(limit))
}

/// Whether an operator through which no limit may pass keeps the order of its input, so that a sort above it may be made below it.
fn needs_all_rows(node: &PlanRef) -> bool {
    let passes = node.supports_limit_pushdown() && matches!(node.cardinality_effect(), CardinalityEffect::Equal);
    let keeps = node.maintains_input_order();
    let mut kept = node.children().into_iter().zip(keeps).filter(|(_, keeps)| *keeps);
    kept.any(|(input, _)| !passes || needs_all_rows(input))
}
