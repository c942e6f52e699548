//! Lists of `IN` have constants that are not NULL before expressions are simplified; what else they had is compared beside them.
//!
//! DataFusion 55 merges two lists about the same expression: of `x NOT IN ('a', NULL) AND x IN ('a', 'b')` it leaves `x = 'b'`, though the first
//! condition is never true. It takes items away as if none could be NULL, also where they are columns.
//!
//! `x IN ('a', NULL)` says the same as `x IN ('a') OR x = NULL` for every row, and the parts are not merged again.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A list of more such items stays as it is: each of them makes an expression deeper.
const MOST_BESIDE: usize = 100;

/// The optimizer rule; it comes before all others.
#[derive(Debug)]
pub(crate) struct NullLists;

impl OptimizerRule for NullLists {
    fn name(&self) -> &'static str {
        "null_lists"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(without_null(expr)?.update_data(|expr| name.restore(expr)))
        })
    }
}

/// The same expression, whose lists have no item that may be NULL.
pub(crate) fn without_null(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::InList(list) => Ok(separated(list)),
        other => Ok(Transformed::no(other)),
    })
}

fn separated(list: InList) -> Transformed<Expr> {
    let beside = list.list.iter().filter(|item| !is_a_value(item)).count();
    if beside == 0 || beside > MOST_BESIDE || list.expr.is_volatile() {
        return Transformed::no(Expr::InList(list));
    }
    let InList { expr, list, negated } = list;
    let (values, beside): (Vec<Expr>, Vec<Expr>) = list.into_iter().partition(is_a_value);
    let of_values = (!values.is_empty()).then(|| Expr::InList(InList::new(expr.clone(), values, negated)));
    let compared = beside.into_iter().map(|item| match negated {
        true => expr.as_ref().clone().not_eq(item),
        false => expr.as_ref().clone().eq(item),
    });
    let all = of_values.into_iter().chain(compared);
    let all = if negated { all.reduce(Expr::and) } else { all.reduce(Expr::or) };
    all.map_or_else(|| Transformed::no(Expr::InList(InList::new(expr, Vec::new(), negated))), Transformed::yes)
}

/// Whether an item is a constant and not NULL. A cast of one gives no NULL; it fails.
fn is_a_value(item: &Expr) -> bool {
    match item {
        Expr::Literal(value, _) => !value.is_null(),
        Expr::Cast(Cast { expr, .. }) => is_a_value(expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::DataType;
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    #[test]
    fn what_may_be_null_is_compared_beside_the_list() {
        let null = || lit(ScalarValue::Int64(None));
        for (expr, expected) in [
            (col("x").in_list(vec![lit(1), lit(2)], false), None),
            (col("x").in_list(vec![lit(1), cast(lit("2"), DataType::Int32)], true), None),
            (col("x").in_list(vec![lit(1), null()], false), Some("x IN ([Int32(1)]) OR x = Int64(NULL)")),
            (col("x").in_list(vec![null(), lit(1)], true), Some("x NOT IN ([Int32(1)]) AND x != Int64(NULL)")),
            (col("x").in_list(vec![null()], true), Some("x != Int64(NULL)")),
            (col("x").in_list(vec![col("y"), null()], false), Some("x = y OR x = Int64(NULL)")),
            (col("x").in_list(vec![cast(null(), DataType::Int32)], false), Some("x = CAST(Int64(NULL) AS Int32)")),
            (
                Expr::Not(Box::new(col("x").in_list(vec![lit(1), null()], false))),
                Some("NOT x IN ([Int32(1)]) OR x = Int64(NULL)"),
            ),
        ] {
            let found = without_null(expr.clone()).unwrap();
            assert_eq!(found.transformed.then(|| found.data.to_string()).as_deref(), expected, "{expr}");
        }
    }
}
