//! Comparisons with constants lose nothing where the engine simplifies expressions: see [`crate::expr::simplify`].

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::expr::simplify::without_losses;

/// The optimizer rule; it comes before all others.
#[derive(Debug)]
pub(super) struct InLists;

impl OptimizerRule for InLists {
    fn name(&self) -> &'static str {
        "in_lists"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(without_losses(expr)?.update_data(|expr| name.restore(expr)))
        })
    }
}
