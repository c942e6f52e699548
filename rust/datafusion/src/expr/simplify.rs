//! Comparisons with constants that lose nothing where expressions are simplified, and where long lists are looked up.
//!
//! DataFusion 55 merges lists of `IN` about the same expression as if their items were equal only where their bits are, and as if none
//! could be NULL:
//!
//! * Of `x NOT IN ('a', NULL) AND x IN ('a', 'b')` it leaves `x = 'b'`, though the first condition is never true. Columns in lists fare
//!   alike.
//! * Of `f IN (0.0, 1.0) AND f IN (-0.0, 2.0)` it leaves nothing, though 0.0 and -0.0 are equal. It finds no -0.0 by a list of more than
//!   three items with 0.0, where `f = 0.0` finds it.
//!
//! `x IN ('a', NULL)` says the same as `x IN ('a') OR x = NULL` for every row, and the parts are not merged again. Lists have both zeros or
//! none, and other comparisons the positive one.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use crate::expr::translate::{missing_zero, positive_zero};

/// A list of more items that may be NULL stays as it is: each of them makes an expression deeper.
const MOST_BESIDE: usize = 100;

/// The expression as the optimizer leaves it in a filter: types made equal, functions rewritten, constants evaluated.
pub(crate) fn simplified(
    state: &SessionState,
    expr: Expr,
    schema: DFSchemaRef,
    now: Option<DateTime<Utc>>,
) -> Result<Expr> {
    let settings = state.config_options();
    let rewritten = state.analyzer().function_rewrites().iter().try_fold(expr, |expr, rewrite| {
        expr.transform_up(|part| rewrite.rewrite(part, &schema, settings)).map(|expr| expr.data)
    })?;
    let info = SimplifyContext::builder()
        .with_schema(Arc::clone(&schema))
        .with_config_options(Arc::clone(settings))
        .with_query_execution_start_time(now)
        .build();
    let simplifier = ExprSimplifier::new(info);
    let simplified = simplifier.simplify(without_losses(simplifier.coerce(rewritten, &schema)?)?.data)?;
    // Comparisons may have become a list.
    Ok(without_losses(simplified)?.data)
}

/// The same expression, of which nothing is lost: no item of a list may be NULL, and no zero stands without the other.
pub(crate) fn without_losses(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::InList(list) => Ok(separated(list)),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
            let (left, right) = (positive(*left), positive(*right));
            let changed = left.transformed || right.transformed;
            let compared = Expr::BinaryExpr(BinaryExpr::new(Box::new(left.data), op, Box::new(right.data)));
            Ok(Transformed::new(compared, changed, TreeNodeRecursion::Continue))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn separated(list: InList) -> Transformed<Expr> {
    let InList { expr, mut list, negated } = list;
    let zero = missing_zero(list.iter().filter_map(constant));
    let has_zero = zero.is_some();
    list.extend(zero.map(lit));
    let beside = list.iter().filter(|item| !is_a_value(item)).count();
    if beside == 0 || beside > MOST_BESIDE || expr.is_volatile() {
        let list = Expr::InList(InList::new(expr, list, negated));
        return Transformed::new(list, has_zero, TreeNodeRecursion::Continue);
    }
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

/// Whether an item is a constant and not NULL.
fn is_a_value(item: &Expr) -> bool {
    match (constant(item), item) {
        (Some(value), _) => !value.is_null(),
        // A cast that fails gives no NULL.
        (None, Expr::Cast(Cast { expr, .. })) => is_a_value(expr),
        _ => false,
    }
}

/// 0.0 in the place of -0.0.
fn positive(expr: Expr) -> Transformed<Expr> {
    match constant(&expr).as_ref().and_then(positive_zero) {
        Some(zero) => Transformed::yes(lit(zero)),
        None => Transformed::no(expr),
    }
}

/// The value of an expression without columns.
fn constant(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => return Some(value.clone()),
        Expr::Column(_) => return None,
        _ if expr.any_column_refs() => return None,
        _ => {}
    }
    let context = SimplifyContext::builder().with_schema(Arc::new(DFSchema::empty())).build();
    match ExprSimplifier::new(context).simplify(expr.clone()) {
        Ok(Expr::Literal(value, _)) => Some(value),
        // What cannot be computed fails when it is.
        _ => None,
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
            let found = without_losses(expr.clone()).unwrap();
            assert_eq!(found.transformed.then(|| found.data.to_string()).as_deref(), expected, "{expr}");
        }
    }
}
