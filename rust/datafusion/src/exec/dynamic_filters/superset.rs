//! Filters of other operators as conditions for a probe of an index: what is not understood lets rows through.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, ColumnarValue, Expr, Operator, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self as physical, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use lakemark_format::column;

use crate::expr::fields::{FieldAccess, access_of, expression, type_of};

/// Whether the filter of a join lists its keys, and not their bounds alone.
pub(super) fn lists_keys(filter: &Arc<dyn PhysicalExpr>) -> bool {
    let is_list = |part: &Arc<dyn PhysicalExpr>| Ok(part.is::<physical::InListExpr>());
    let dynamic = filter.downcast_ref::<DynamicFilterPhysicalExpr>();
    dynamic.is_some_and(|dynamic| dynamic.current().is_ok_and(|now| now.exists(is_list).unwrap_or(false)))
}

/// A condition that is true wherever the filter is, in the terms of [`translate`](crate::translate); none if nothing is known of it.
pub(super) fn superset(filter: &Arc<dyn PhysicalExpr>, output: &Schema) -> Option<Expr> {
    if let Some(dynamic) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return superset(&dynamic.current().ok()?, output);
    }
    if let Some(binary) = filter.downcast_ref::<physical::BinaryExpr>() {
        let (left, right) = (superset(binary.left(), output), superset(binary.right(), output));
        match binary.op() {
            Operator::And => {
                return match (left, right) {
                    (Some(left), Some(right)) => Some(left.and(right)),
                    (one, other) => one.or(other),
                };
            }
            Operator::Or => return Some(either(left?, right?)),
            _ => {}
        }
    }
    // A partitioned join chooses the filter of a row by its hash: one of them holds.
    if let Some(case) = filter.downcast_ref::<physical::CaseExpr>() {
        let branches = case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr());
        let mut any = lit(false);
        for branch in branches {
            any = either(any, superset(branch, output)?);
        }
        return Some(any);
    }
    exact(filter, output)
}

/// One or the other, without what a constant decides.
fn either(one: Expr, other: Expr) -> Expr {
    if one == lit(true) || other == lit(false) {
        one
    } else if one == lit(false) || other == lit(true) {
        other
    } else {
        one.or(other)
    }
}

/// The same condition as a logical expression, as far as [`translate`](crate::translate) would understand it.
fn exact(expr: &Arc<dyn PhysicalExpr>, output: &Schema) -> Option<Expr> {
    if let Some(column) = expr.downcast_ref::<physical::Column>() {
        let field = output.fields().get(column.index()).filter(|field| !field.data_type().is_floating())?;
        return Some(expression(field.name()));
    }
    if let Some(FieldAccess { column, names }) = access_of(expr) {
        let root = output.fields().get(column.index())?.name().as_str();
        let name = column::join([root].into_iter().chain(names.iter().map(String::as_str)));
        return type_of(output, &name).filter(|data_type| !data_type.is_floating()).map(|_| expression(&name));
    }
    if let Some(value) = value(expr) {
        return Some(lit(value));
    }
    if let Some(cast) = expr.downcast_ref::<physical::CastExpr>() {
        let inner = Box::new(exact(cast.expr(), output)?);
        return Some(Expr::Cast(Cast::new(inner, cast.cast_type().clone())));
    }
    if let Some(binary) = expr.downcast_ref::<physical::BinaryExpr>() {
        let (left, right) = (exact(binary.left(), output)?, exact(binary.right(), output)?);
        return Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), *binary.op(), Box::new(right))));
    }
    if let Some(list) = expr.downcast_ref::<physical::InListExpr>() {
        let items: Option<Vec<Expr>> = list.list().iter().map(|item| exact(item, output)).collect();
        return Some(Expr::InList(InList::new(Box::new(exact(list.expr(), output)?), items?, list.negated())));
    }
    if let Some(test) = expr.downcast_ref::<physical::IsNullExpr>() {
        return Some(Expr::IsNull(Box::new(exact(test.arg(), output)?)));
    }
    if let Some(test) = expr.downcast_ref::<physical::IsNotNullExpr>() {
        return Some(Expr::IsNotNull(Box::new(exact(test.arg(), output)?)));
    }
    None
}

/// The value of an expression without columns, such as one over what a subquery gave; none if it has none yet.
fn value(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    if !collect_columns(expr).is_empty() || is_volatile(expr) {
        return None;
    }
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &one_row).ok()?;
    match expr.evaluate(&row).ok()? {
        ColumnarValue::Scalar(value) => Some(value),
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0).ok(),
    }
}

#[cfg(test)]
#[path = "superset_tests.rs"]
mod tests;
