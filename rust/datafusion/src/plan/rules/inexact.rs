//! Aggregates are answered from statistics that are exact, and DataFusion 55 calls some exact that are not.
//!
//! * A column of NULL alone has one value there, which `count(DISTINCT x)` must not count.
//! * A column that is filtered by `x = 4` has one value there, though no row may be left, or a row of NaN.
//! * A cast keeps the number of values, though it may make some of them equal, and the bounds, though those of texts and of numbers are
//!   others: of 9 and 10 the larger text is `9`.
//!
//! [`Inexact`] puts a [`BarrierExec`] below such an aggregate, above which they are estimates.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{ColumnStatistics, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::CastExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::PlanRef;
use super::barriers::BarrierExec;

/// The optimizer rule. It comes before the one that answers aggregates from statistics.
#[derive(Debug)]
pub(super) struct Inexact;

impl PhysicalOptimizerRule for Inexact {
    fn optimize(&self, plan: PlanRef, _: &ConfigOptions) -> Result<PlanRef> {
        plan.transform_up(read).data()
    }

    fn name(&self) -> &'static str {
        "inexact"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The aggregate over a barrier, where it would be answered from what is not exact.
fn read(node: PlanRef) -> Result<Transformed<PlanRef>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
    // Groups are not answered from statistics.
    if !aggregate.group_expr().is_empty() {
        return Ok(Transformed::no(node));
    }
    let statistics = StatisticsContext::new().compute(aggregate.input().as_ref(), &StatisticsArgs::new())?;
    let any = |is_exact: fn(&ColumnStatistics) -> bool| statistics.column_statistics.iter().any(is_exact);
    let is_distinct = aggregate.aggr_expr().iter().any(|function| function.is_distinct());
    let counts = is_distinct && any(|column| matches!(column.distinct_count, Precision::Exact(_)));
    let is_read = counts || any(has_bound) && changes_order(aggregate.input())?;
    if !is_read {
        return Ok(Transformed::no(node));
    }
    let barrier = BarrierExec::of_estimates(Arc::clone(aggregate.input()))?;
    replace_children_if_necessary(node, vec![Arc::new(barrier)]).map(Transformed::yes)
}

fn has_bound(column: &ColumnStatistics) -> bool {
    [&column.min_value, &column.max_value].into_iter().any(|bound| matches!(bound, Precision::Exact(_)))
}

/// Whether a plan has a cast to a type that orders values in another way.
fn changes_order(plan: &PlanRef) -> Result<bool> {
    plan.exists(|node| {
        let schema = node.children().first().map(|input| input.schema());
        let mut changes = false;
        node.apply_expressions(&mut |expr| {
            changes |= expr.exists(|part| Ok(is_other_order(part, schema.as_deref())))?;
            Ok(if changes { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(changes)
    })
}

/// Whether this is a cast to another order, or to any type where its own type is not known.
fn is_other_order(part: &Arc<dyn PhysicalExpr>, input: Option<&Schema>) -> bool {
    let Some(cast) = part.downcast_ref::<CastExpr>() else { return false };
    let from = input.and_then(|schema| cast.expr().data_type(schema).ok());
    from.is_none_or(|from| order_of(&from) != order_of(cast.cast_type()) || order_of(&from) == Order::Own)
}

#[derive(PartialEq)]
enum Order {
    Numbers,
    Times,
    /// Of points in time, which clocks of a zone show twice.
    Instants,
    Texts,
    Bytes,
    /// Of this type alone.
    Own,
}

fn order_of(data_type: &DataType) -> Order {
    match data_type {
        DataType::Dictionary(_, value) => order_of(value),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Order::Texts,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Order::Bytes,
        DataType::Timestamp(_, Some(_)) => Order::Instants,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None) => Order::Times,
        number if number.is_numeric() => Order::Numbers,
        _ => Order::Own,
    }
}
