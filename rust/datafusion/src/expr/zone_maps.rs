//! What zone maps, the bounds of row groups and pages, may judge of a condition.
//!
//! Bounds of floats leave NaN out. A page whose largest number is 4 would be skipped for `x > 5`, and its NaN rows with it, which are
//! greater than every number (or, with a sign, less). So a condition on floats is judged by bounds only where no NaN can pass:
//!
//! * `x = 5` and `x IN (5, 6)`;
//! * `x > 1` beside `x < 9`, of which a NaN fails one;
//! * one of several such conditions (`OR`).
//!
//! Writers do not agree on the sign of a zero in bounds, and conditions distinguish both zeros: a zero is no reason to skip anything.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction as physical_conjunction, split_conjunction};
use datafusion::scalar::ScalarValue;

type PhysicalCondition = Arc<dyn PhysicalExpr>;

/// Whether a condition is about a column of floats.
pub(crate) fn touches_floats(condition: &PhysicalCondition, schema: &Schema) -> bool {
    collect_columns(condition)
        .iter()
        .any(|column| schema.fields().get(column.index()).is_none_or(|field| field.data_type().is_floating()))
}

/// The conjuncts of a predicate that zone maps may judge; none if there are none.
pub(crate) fn prunable(predicate: &PhysicalCondition, schema: &Schema) -> Option<PhysicalCondition> {
    let kept: Vec<PhysicalCondition> = judged(predicate, schema).map(Arc::clone).collect();
    (!kept.is_empty()).then(|| physical_conjunction(kept))
}

/// The conjuncts of a condition that no NaN passes, or that are about no floats.
fn judged<'c>(condition: &'c PhysicalCondition, schema: &Schema) -> impl Iterator<Item = &'c PhysicalCondition> {
    let conjuncts = split_conjunction(condition);
    let bounds: Vec<Bound> = conjuncts.iter().filter_map(|conjunct| bound_of(conjunct, is_number)).collect();
    conjuncts.into_iter().filter(move |conjunct| {
        let is_closed = |bound: Bound| bounds.contains(&bound.other());
        !touches_floats(conjunct, schema)
            || names_numbers(conjunct)
            || bound_of(conjunct, is_usual).is_some_and(is_closed)
            || is_one_of_judged(conjunct, schema)
    })
}

/// Whether a condition is one of several, each of which may be judged as a whole.
fn is_one_of_judged(condition: &PhysicalCondition, schema: &Schema) -> bool {
    let Some(either) = condition.downcast_ref::<BinaryExpr>().filter(|either| *either.op() == Operator::Or) else {
        return false;
    };
    let is_judged = |one: &PhysicalCondition| judged(one, schema).count() == split_conjunction(one).len();
    is_judged(either.left()) && is_judged(either.right())
}

/// Which end of a range a condition bounds.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Low,
    High,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }
}

/// An end of a column's range.
#[derive(Clone, Copy, PartialEq)]
struct Bound {
    /// The place of the column.
    column: usize,
    /// Which end it is.
    side: Side,
}

impl Bound {
    /// The other end of the same range.
    fn other(self) -> Self {
        Self { side: self.side.other(), ..self }
    }
}

/// The end of a range that a condition `column < number` with such a number is.
fn bound_of(condition: &PhysicalCondition, is_such: fn(&ScalarValue) -> bool) -> Option<Bound> {
    let Comparison { column, operator, number } = compared(condition)?;
    let side = match operator {
        Operator::Gt | Operator::GtEq => Side::Low,
        Operator::Lt | Operator::LtEq => Side::High,
        _ => return None,
    };
    is_such(number).then_some(Bound { column, side })
}

/// Whether a condition says that a column is one of some numbers.
fn names_numbers(condition: &PhysicalCondition) -> bool {
    if let Some(list) = condition.downcast_ref::<InListExpr>() {
        let is_usual_literal =
            |item: &PhysicalCondition| item.downcast_ref::<Literal>().is_some_and(|item| is_usual(item.value()));
        return !list.negated() && list.expr().is::<Column>() && list.list().iter().all(is_usual_literal);
    }
    compared(condition).is_some_and(|compared| compared.operator == Operator::Eq && is_usual(compared.number))
}

/// A comparison of a column with a constant.
struct Comparison<'c> {
    /// The place of the column.
    column: usize,
    /// As it is with the column on the left.
    operator: Operator,
    /// The constant.
    number: &'c ScalarValue,
}

/// The comparison of a column with a constant that a condition is.
fn compared(condition: &PhysicalCondition) -> Option<Comparison<'_>> {
    let comparison = condition.downcast_ref::<BinaryExpr>()?;
    let (left, right) = (comparison.left(), comparison.right());
    let column = |side: &PhysicalCondition| side.downcast_ref::<Column>().map(Column::index);
    if let (Some(column), Some(constant)) = (column(left), right.downcast_ref::<Literal>()) {
        return Some(Comparison { column, operator: *comparison.op(), number: constant.value() });
    }
    let (constant, column) = (left.downcast_ref::<Literal>()?, column(right)?);
    Some(Comparison { column, operator: comparison.op().swap()?, number: constant.value() })
}

/// A float of any width.
fn float(number: &ScalarValue) -> Option<f64> {
    match number {
        ScalarValue::Float16(number) => number.map(f64::from),
        ScalarValue::Float32(number) => number.map(f64::from),
        ScalarValue::Float64(number) => *number,
        _ => None,
    }
}

/// Whether this is a float that is not NaN.
fn is_number(number: &ScalarValue) -> bool {
    float(number).is_some_and(|number| !number.is_nan())
}

/// Whether it is no zero either.
fn is_usual(number: &ScalarValue) -> bool {
    float(number).is_some_and(|number| !number.is_nan() && number != 0.0)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::physical_expr::expressions::{binary, col, in_list, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("x", DataType::Float64, true),
            Field::new("y", DataType::Float64, true),
            Field::new("k", DataType::Int64, true),
        ])
    }

    fn compare(name: &str, operator: Operator, number: impl datafusion::logical_expr::Literal) -> PhysicalCondition {
        let schema = schema();
        let number = Arc::new(Literal::new(match number.lit() {
            datafusion::logical_expr::Expr::Literal(value, _) => value,
            other => panic!("{other} is no literal"),
        }));
        binary(col(name, &schema).unwrap(), operator, number, &schema).unwrap()
    }

    fn kept(conjuncts: &[PhysicalCondition]) -> Vec<String> {
        let predicate = physical_conjunction(conjuncts.to_vec());
        prunable(&predicate, &schema()).iter().flat_map(split_conjunction).map(ToString::to_string).collect()
    }

    #[test]
    fn floats_are_judged_where_no_nan_can_pass() {
        let above = compare("x", Operator::Gt, 1.0);
        assert!(kept(std::slice::from_ref(&above)).is_empty());
        assert!(kept(&[compare("x", Operator::LtEq, 1.0)]).is_empty());
        assert_eq!(kept(&[above.clone(), compare("x", Operator::Lt, 9.0)]), ["x@0 > 1", "x@0 < 9"]);
        assert!(kept(&[above.clone(), compare("y", Operator::Lt, 9.0)]).is_empty());
        assert_eq!(kept(&[compare("x", Operator::Eq, 5.0)]), ["x@0 = 5"]);
        assert_eq!(kept(&[above, compare("k", Operator::Gt, 3i64)]), ["k@2 > 3"]);
    }

    #[test]
    fn one_of_several_is_judged_if_each_is() {
        let or =
            |one: PhysicalCondition, other: PhysicalCondition| binary(one, Operator::Or, other, &schema()).unwrap();
        let (five, many) = (compare("x", Operator::Eq, 5.0), compare("x", Operator::Gt, 9.0));
        let few = physical_conjunction([many.clone(), compare("x", Operator::Lt, 20.0)]);
        assert_eq!(kept(&[or(five.clone(), compare("k", Operator::Gt, 3i64))]).len(), 1);
        assert_eq!(kept(&[or(five.clone(), few)]).len(), 1);
        assert!(kept(&[or(five, many)]).is_empty());
    }

    #[test]
    fn neither_a_zero_nor_nan_is_a_reason_to_skip() {
        assert!(kept(&[compare("x", Operator::Eq, 0.0)]).is_empty());
        assert!(kept(&[compare("x", Operator::Eq, -0.0)]).is_empty());
        assert!(kept(&[compare("x", Operator::Eq, f64::NAN)]).is_empty());
        let upper = compare("x", Operator::Lt, 9.0);
        assert_eq!(kept(&[compare("x", Operator::GtEq, 0.0), upper.clone()]), ["x@0 < 9"]);
        assert!(kept(&[compare("x", Operator::GtEq, f64::NAN), upper]).is_empty());
    }

    #[test]
    fn a_list_of_numbers_is_judged_unless_it_is_negated() {
        let schema = schema();
        let list = |items: &[f64], negated: bool| {
            let items = items.iter().map(|item| lit(*item)).collect();
            in_list(col("x", &schema).unwrap(), items, &negated, &schema).unwrap()
        };
        assert_eq!(kept(&[list(&[5.0, 6.0], false)]).len(), 1);
        assert!(kept(&[list(&[5.0, f64::NAN], false)]).is_empty());
        assert!(kept(&[list(&[5.0, 6.0], true)]).is_empty());
    }
}
