//! Values in the place of the parameters of a statement: `$1`, `$2` and so on, or `$name`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::expr::{Cast, Placeholder};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Value, VisitorMut};
use lakemark_table::{Error, ErrorKind, Result};

use crate::error::from_engine;
use crate::sql::statement::Statement;
use crate::sql::versions::visit;

/// Calls the parameters of a statement by numbers, since the planner takes names in some places only; gives the values in that order.
///
/// # Errors
/// The statement takes no parameters, lacks one of them, or has one without a value.
pub(crate) fn numbered(statement: &mut Statement, given: ParamValues) -> Result<Vec<ScalarValue>> {
    let Statement::Engine(statement) = statement else { return Err(takes_none()) };
    let (names, values): (Vec<String>, Vec<ScalarValue>) = match given {
        ParamValues::List(values) => {
            (1..).zip(values).map(|(place, value): (usize, _)| (format!("${place}"), value.value)).unzip()
        }
        ParamValues::Map(values) => {
            let mut named: Vec<_> = values.into_iter().map(|(name, value)| (format!("${name}"), value.value)).collect();
            named.sort_by(|a, b| a.0.cmp(&b.0));
            named.into_iter().unzip()
        }
    };
    let places = names.iter().map(String::as_str).zip(1..).collect();
    let mut numbering = Numbering { places, is_met: vec![false; names.len()] };
    if let ControlFlow::Break(missing) = visit(statement, &mut numbering) {
        return Err(invalid(format!("no value is given for {missing}")));
    }
    match names.iter().zip(&numbering.is_met).find(|(_, is_met)| !**is_met) {
        Some((unused, _)) => Err(invalid(format!("a value is given for {unused}, which the statement does not have"))),
        None => Ok(values),
    }
}

struct Numbering<'a> {
    /// The number of each name.
    places: HashMap<&'a str, usize>,
    is_met: Vec<bool>,
}

impl VisitorMut for Numbering<'_> {
    /// A parameter that has no value.
    type Break = String;

    fn pre_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<String> {
        let SqlExpr::Value(value) = expr else { return ControlFlow::Continue(()) };
        let Value::Placeholder(name) = &mut value.value else { return ControlFlow::Continue(()) };
        let Some(place) = self.places.get(name.as_str()) else { return ControlFlow::Break(name.clone()) };
        if let Some(is_met) = self.is_met.get_mut(place - 1) {
            *is_met = true;
        }
        *name = format!("${place}");
        ControlFlow::Continue(())
    }
}

/// A plan with the values in the place of its parameters.
///
/// # Errors
/// The statement takes no parameters, or one stands among values of another type.
pub(crate) fn bound(plan: LogicalPlan, values: Vec<ScalarValue>) -> Result<LogicalPlan> {
    if matches!(plan, LogicalPlan::Statement(_) | LogicalPlan::Ddl(_)) {
        return Err(takes_none());
    }
    check_casts(&plan, &values)?;
    plan.replace_params_with_values(&ParamValues::from(values)).map_err(from_engine)
}

/// The planner gives a parameter in a list of VALUES the type of what else is in its column, before it has a value: what that
/// would change is an error. A literal in its place would have widened the column.
fn check_casts(plan: &LogicalPlan, values: &[ScalarValue]) -> Result<()> {
    let mut wrong = None;
    let found = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Values(rows) = node {
            for expr in rows.values.iter().flatten() {
                expr.apply(|expr| {
                    if let Expr::Cast(Cast { expr: inner, field }) = expr
                        && let Expr::Placeholder(Placeholder { id, .. }) = inner.as_ref()
                        && let Some(value) = id.trim_start_matches('$').parse().ok().and_then(|place: usize| values.get(place.checked_sub(1)?))
                        && !fits(value, field.data_type())
                    {
                        wrong = Some(format!(
                            "{value} is no {}, the type of what {id} stands among in VALUES; give all of them as parameters, or of one type",
                            field.data_type()
                        ));
                        return Ok(TreeNodeRecursion::Stop);
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found.map_err(from_engine)?;
    wrong.map_or(Ok(()), |message| Err(invalid(message)))
}

/// Whether a value stays what it is in another type.
fn fits(value: &ScalarValue, to: &datafusion::arrow::datatypes::DataType) -> bool {
    let there = value.cast_to(to);
    there.and_then(|there| there.cast_to(&value.data_type())).is_ok_and(|back| back == *value)
}

fn takes_none() -> Error {
    invalid(
        "only queries, INSERT, REPLACE, UPDATE, DELETE, MERGE, COPY and EXPLAIN take parameters; write the values into the statement"
            .to_owned(),
    )
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
