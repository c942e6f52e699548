//! Which values are results of arithmetic, which have as many digits as the engine happens to calculate.

use datafusion::common::Column;
use datafusion::logical_expr::expr::{Alias, ScalarFunction};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, Operator};

/// Averages are divisions.
const AVERAGES: [&str; 2] = ["avg", "mean"];

/// Whether the value of an expression comes out of `+`, `-`, `*`, `/`, `%` or an average. Literals, columns and casts do not: there the
/// user said which digits are meant. `input` has the columns that the expression names.
pub(super) fn is_computed(expr: &Expr, input: &LogicalPlan) -> bool {
    let any = |args: &[Expr]| args.iter().any(|arg| is_computed(arg, input));
    match expr {
        Expr::Alias(Alias { expr, .. }) | Expr::Negative(expr) => is_computed(expr, input),
        Expr::BinaryExpr(binary) => matches!(
            binary.op,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
        ),
        Expr::Column(column) => is_computed_column(column, input),
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            values.into_iter().any(|value| is_computed(value, input))
        }
        Expr::ScalarFunction(ScalarFunction { args, .. }) => any(args),
        Expr::AggregateFunction(function) => AVERAGES.contains(&function.func.name()) || any(&function.params.args),
        Expr::WindowFunction(function) => AVERAGES.contains(&function.fun.name()) || any(&function.params.args),
        Expr::ScalarSubquery(subquery) => is_computed_at(0, &subquery.subquery),
        _ => false,
    }
}

fn is_computed_column(column: &Column, plan: &LogicalPlan) -> bool {
    plan.schema().maybe_index_of_column(column).is_some_and(|place| is_computed_at(place, plan))
}

/// Whether a column of a plan is computed in it.
fn is_computed_at(place: usize, plan: &LogicalPlan) -> bool {
    let of = |exprs: &[Expr], place: usize, input: &LogicalPlan| {
        exprs.get(place).is_some_and(|expr| is_computed(expr, input))
    };
    match plan {
        LogicalPlan::Projection(projection) => of(&projection.expr, place, &projection.input),
        LogicalPlan::Aggregate(aggregate) => {
            // Groups come first, maybe with the number of their set.
            let groups = plan.schema().fields().len().saturating_sub(aggregate.aggr_expr.len());
            match place.checked_sub(groups) {
                Some(place) => of(&aggregate.aggr_expr, place, &aggregate.input),
                None => of(&aggregate.group_expr, place, &aggregate.input),
            }
        }
        LogicalPlan::Window(window) => match place.checked_sub(window.input.schema().fields().len()) {
            Some(place) => of(&window.window_expr, place, &window.input),
            None => is_computed_at(place, &window.input),
        },
        LogicalPlan::Values(values) => values.values.iter().any(|row| of(row, place, plan)),
        LogicalPlan::Union(union) => union.inputs.iter().any(|input| is_computed_at(place, input)),
        LogicalPlan::SubqueryAlias(alias) => is_computed_at(place, &alias.input),
        LogicalPlan::Distinct(Distinct::On(on)) => of(&on.select_expr, place, &on.input),
        // A view.
        LogicalPlan::TableScan(scan) => match (scan.source.get_logical_plan(), plan.schema().fields().get(place)) {
            (Some(view), Some(field)) => is_computed_column(&Column::from_name(field.name().as_str()), &view),
            _ => false,
        },
        // Columns go through the others as they are.
        other => {
            let (relation, field) = match plan.schema().iter().nth(place) {
                Some((relation, field)) => (relation.cloned(), field),
                None => return false,
            };
            let column = Column::new(relation, field.name());
            other.inputs().into_iter().any(|input| is_computed_column(&column, input))
        }
    }
}
