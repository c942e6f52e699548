//! Aggregates from indexes alone: an optimizer rule that puts [`IndexAggregateExec`] over partial aggregates of our scan.
//!
//! ```text
//! AggregateExec: mode=Final                     AggregateExec: mode=Final
//!   AggregateExec: mode=Partial         ─▶        IndexAggregateExec: column=k, gby=[k], aggr=[count(*)]
//!     LakemarkScanExec                              AggregateExec: mode=Partial
//!                                                     LakemarkScanExec
//! ```
//!
//! Planning reads nothing for it. When the operator runs, it probes the index for the values of the column and how many rows hold each. It
//! makes *partial states* of them. Then it runs the partial aggregate below over the rows that the index could not answer: rows of files
//! without an index, rows to be rechecked, NaN, damage. The scan may have skipped searches because reading its rows is cheaper. The
//! operator weighs these searches once more, against the cost of index-only values. DataFusion's final aggregate adds the parts, so that
//! types, names, order and everything above stay as they were.

mod exec;
mod request;
mod states;
mod sums;
mod unanswered;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

pub use exec::IndexAggregateExec;
use request::AggregateRequest;

/// The optimizer rule. [`session_context`](crate::session_context) has it; other sessions add it behind DataFusion's own
/// rules `aggregate_statistics` and `LimitedDistinctAggregation`, or at the end.
#[derive(Debug, Default)]
pub struct IndexAggregates;

impl PhysicalOptimizerRule for IndexAggregates {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            if node.is::<IndexAggregateExec>() {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            match node.downcast_ref::<AggregateExec>().and_then(AggregateRequest::of) {
                Some(request) => {
                    let answering: Arc<dyn ExecutionPlan> = Arc::new(IndexAggregateExec::new(node, request));
                    Ok(Transformed::new(answering, true, TreeNodeRecursion::Jump))
                }
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "lakemark_index_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
