//! The rows that an outer join adds are found by all partitions.
//!
//! Our sessions let every partition probe a larger build side than DataFusion does (see [`BUILD_SIDE_BYTES`]). That takes longer where the
//! join keeps the rows of its build side: one partition adds those without a match once all others have ended, and rows with equal keys
//! come from several partitions, so that an aggregate by these keys counts each of them several times before it knows the groups.
//!
//! ```text
//! HashJoinExec: mode=CollectLeft, join_type=Left     HashJoinExec: mode=Partitioned, join_type=Left
//!   2 MiB                                        ─▶    2 MiB
//!   500 MiB                                            500 MiB
//! ```

use std::sync::Arc;

use datafusion::common::config::{ConfigOptions, OptimizerOptions};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::{BUILD_SIDE_BYTES, PlanRef};

/// The optimizer rule. It comes behind the choice of the sides and modes of joins. Where a user has set a limit, that holds.
#[derive(Debug)]
pub(super) struct OuterJoins;

impl PhysicalOptimizerRule for OuterJoins {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        let is_ours = config.optimizer.hash_join_single_partition_threshold == BUILD_SIDE_BYTES;
        let is_parallel = config.execution.target_partitions > 1 && config.optimizer.repartition_joins;
        if is_ours && is_parallel { plan.transform_up(partitioned).data() } else { Ok(plan) }
    }

    fn name(&self) -> &'static str {
        "outer_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join with both sides cut by their keys, if it keeps the rows of a build side that DataFusion would not have gathered.
fn partitioned(node: PlanRef) -> Result<Transformed<PlanRef>> {
    let keeps_build_side = |join: &&HashJoinExec| {
        let is_gathered = *join.partition_mode() == PartitionMode::CollectLeft && !join.null_aware;
        is_gathered && matches!(join.join_type(), JoinType::Left | JoinType::Full)
    };
    let Some(join) = node.downcast_ref::<HashJoinExec>().filter(keeps_build_side) else {
        return Ok(Transformed::no(node));
    };
    let known = StatisticsContext::new().compute(join.left().as_ref(), &StatisticsArgs::new())?;
    let limit = OptimizerOptions::default().hash_join_single_partition_threshold;
    if known.total_byte_size.get_value().is_none_or(|bytes| *bytes <= limit) {
        return Ok(Transformed::no(node));
    }
    let cut = join.builder().with_partition_mode(PartitionMode::Partitioned).recompute_properties().build()?;
    Ok(Transformed::yes(Arc::new(cut)))
}
