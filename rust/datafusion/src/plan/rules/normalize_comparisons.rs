//! Comparisons of a column with a constant have the column on the left before filters are pushed down.
//!
//! DataFusion 55 keeps one of several bounds of a column. Of `x >= 31 AND 31 < x` it takes the wrong one if the constant of the second
//! stands on the left, and answers with rows in which x is 31. Its own rule swaps the two only if the constant was a literal from the
//! beginning, and no cast like `DATE '2024-01-01'`.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The optimizer rule.
#[derive(Debug)]
pub(super) struct NormalizeComparisons;

impl OptimizerRule for NormalizeComparisons {
    fn name(&self) -> &str {
        "normalize_comparisons"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            // Elsewhere an expression may be the name of a column.
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
                plan.map_expressions(|expr| expr.transform_up(column_first))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn column_first(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
    let is_bound = matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
    match (left.as_ref(), right.as_ref(), op.swap().filter(|_| is_bound)) {
        (Expr::Literal(..), Expr::Column(_), Some(swapped)) => {
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(right, swapped, left))))
        }
        _ => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, op, right)))),
    }
}
