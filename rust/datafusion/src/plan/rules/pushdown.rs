//! Filters on their way down a physical plan, with their columns mapped by place.
//!
//! DataFusion 55 looks a filter's columns up by name in the schema below. A join of two tables that both have a column `x` gives a
//! schema with two columns of that name, and a filter on the second becomes one on the first: of another table, whose scan then
//! leaves rows out that belong to the answer. A name proves nothing, and a scan cannot see where a filter came from.
//!
//! [`PositionalPushdown`] stands in the place of DataFusion's rule. Operators go on saying *whether* a filter may pass
//! (outer joins, limits and grouping sets stop some); *which* column below it is about is read from the operator itself, and
//! filters through operators that this module does not know stay above them. Our own scan takes filters from this rule alone,
//! so that in a session without it a scan is never pruned by a filter that may be another table's.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, PushedDown, PushedDownPredicate,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, build_join_schema};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;

use super::PlanRef;
use super::barriers::BarrierExec;
use crate::exec::scan::LakemarkScanExec;
use crate::expr::projection::has_lambda;

/// An expression over the output of an operator.
pub(super) type Filter = Arc<dyn PhysicalExpr>;

/// DataFusion's rules that this one replaces, before and after the plan got its final form.
const REPLACED: [PositionalPushdown; 2] = [
    PositionalPushdown { phase: FilterPushdownPhase::Pre, name: "FilterPushdown" },
    PositionalPushdown { phase: FilterPushdownPhase::Post, name: "FilterPushdown(Post)" },
];

/// The optimizer rule. [`session_context`](crate::session_context) has it; other sessions put it in the place of DataFusion's
/// rules `FilterPushdown` and `FilterPushdown(Post)`, by [`PositionalPushdown::replace`].
#[derive(Debug)]
pub struct PositionalPushdown {
    phase: FilterPushdownPhase,
    name: &'static str,
}

impl PositionalPushdown {
    /// Puts the rule in the place of DataFusion's own among `rules`.
    pub fn replace(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
        for Self { phase, name } in REPLACED {
            for rule in rules.iter_mut().filter(|rule| rule.name() == name) {
                *rule = Arc::new(Self { phase, name });
            }
        }
    }
}

impl PhysicalOptimizerRule for PositionalPushdown {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        Ok(push(&plan, &[], self.phase, config)?.node)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan that filters were handed to.
struct Pushed {
    node: PlanRef,
    /// For each filter whether the plan applies it, so that no other operator has to.
    taken: Vec<PushedDown>,
}

/// Hands filters on the output of `node` to it and to what is below it, and those of operators to what is below these. None of
/// `from_above` is volatile.
fn push(node: &PlanRef, from_above: &[Filter], phase: FilterPushdownPhase, config: &ConfigOptions) -> Result<Pushed> {
    if let Some(scan) = node.downcast_ref::<LakemarkScanExec>() {
        let filtered = scan.with_filters(from_above, phase, config)?;
        let node = filtered.map_or_else(|| Arc::clone(node), |scan| Arc::new(scan) as PlanRef);
        return Ok(Pushed { node, taken: vec![PushedDown::No; from_above.len()] });
    }
    let offered = if merges_by_name(node, phase) { &[] } else { from_above };
    let description = node.gather_filters_for_pushdown(phase, offered.to_vec(), config)?;
    let unheard = |filter: &Filter| ChildFilterPushdownResult { filter: Arc::clone(filter), child_results: Vec::new() };
    let mut above: Vec<_> = offered.iter().map(unheard).collect();
    let (mut own, mut children) = (Vec::new(), Vec::new());
    let said = description.parent_filters().into_iter().zip(description.self_filters());
    for (place, (child, (said, created))) in node.children().into_iter().zip(said).enumerate() {
        let schema = child.schema();
        let hand = |filter| if is_unsound(node) { Ok(None) } else { named(filter, &schema) };
        let mut handed = created.iter().map(hand).collect::<Result<Vec<_>>>()?;
        for (filter, said) in offered.iter().zip(&said) {
            handed.push(if may_pass(said) { mapped(filter, node, place, child)? } else { None });
        }
        let pushed = push_some(child, &handed, phase, config)?;
        let (of_created, of_above) = pushed.taken.split_at(created.len());
        own.push(of_created.iter().zip(created).map(|(taken, filter)| taken.wrap_expression(filter)).collect());
        for (result, taken) in above.iter_mut().zip(of_above) {
            result.child_results.push(*taken);
        }
        children.push(pushed.node);
    }
    let node = replace_children_if_necessary(Arc::clone(node), children)?;
    let results = ChildPushdownResult { parent_filters: above, self_filters: own };
    let answer = node.handle_child_pushdown_result(phase, results, config)?;
    let mut taken = answer.filters;
    taken.resize(from_above.len(), PushedDown::No);
    Ok(Pushed { node: answer.updated_node.unwrap_or(node), taken })
}

/// The same for filters some of which cannot be handed on.
fn push_some(
    child: &PlanRef,
    filters: &[Option<Filter>],
    phase: FilterPushdownPhase,
    config: &ConfigOptions,
) -> Result<Pushed> {
    let passes = |filter: &&Option<Filter>| filter.as_ref().is_some_and(|filter| !has_volatile(filter));
    let handed: Vec<Filter> = filters.iter().filter(passes).flatten().cloned().collect();
    let Pushed { node, taken } = push(child, &handed, phase, config)?;
    let mut taken = taken.into_iter();
    let each = filters
        .iter()
        .map(|filter| if passes(&filter) { taken.next().unwrap_or(PushedDown::No) } else { PushedDown::No });
    Ok(Pushed { node, taken: each.collect() })
}

fn may_pass(said: &PushedDownPredicate) -> bool {
    matches!(said.discriminant, PushedDown::Yes)
}

fn has_volatile(filter: &Filter) -> bool {
    filter.exists(|expr| Ok(is_volatile(expr))).unwrap_or(true)
}

/// Whether the filters that an operator creates leave out rows that it needs. Those of MIN and MAX do in DataFusion 55. They know nothing
/// of an extreme of an expression beside that of a column, nor of one that no row had so far. A round of a recursive query begins with the
/// bounds of the one before.
fn is_unsound(node: &PlanRef) -> bool {
    node.is::<AggregateExec>()
}

/// Whether an operator would merge the filters from above that nobody took with its own condition, and find their columns by name.
fn merges_by_name(node: &PlanRef, phase: FilterPushdownPhase) -> bool {
    let filter = node.downcast_ref::<FilterExec>();
    phase == FilterPushdownPhase::Pre && filter.is_some_and(|filter| filter.projection().is_some())
}

/// A filter on the output of `node` as one on the output of its child at a place; none if that filter is not known.
pub(super) fn mapped(filter: &Filter, node: &PlanRef, place: usize, child: &PlanRef) -> Result<Option<Filter>> {
    let below = rewritten(filter, |column| source(node, place, child, column))?;
    below.map_or(Ok(None), |filter| named(&filter, &child.schema()))
}

/// A filter whose columns have the names that they have in the schema: scans of DataFusion's look for these.
fn named(filter: &Filter, schema: &SchemaRef) -> Result<Option<Filter>> {
    rewritten(filter, |column| column_of(schema, column))
}

/// A filter with something else in the place of each column. None if one has nothing, or if there is a lambda, which goes by the columns
/// around it.
fn rewritten(filter: &Filter, new: impl Fn(usize) -> Option<Filter>) -> Result<Option<Filter>> {
    if has_lambda(filter)? {
        return Ok(None);
    }
    let mut is_whole = true;
    let filter = Arc::clone(filter).transform_down(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        match new(column.index()) {
            // What comes in its place has columns of its own, which are not to be mapped again.
            Some(new) => Ok(Transformed::new(new, true, TreeNodeRecursion::Jump)),
            None => {
                is_whole = false;
                Ok(Transformed::new(expr, false, TreeNodeRecursion::Stop))
            }
        }
    });
    let filter = filter.data()?;
    Ok(is_whole.then_some(filter))
}

fn column_of(schema: &Schema, place: usize) -> Option<Filter> {
    let field = schema.fields().get(place)?;
    Some(Arc::new(Column::new(field.name(), place)))
}

/// What a column of an operator's output is in the output of a child, for the operators that hand filters on.
pub(super) fn source(node: &PlanRef, place: usize, child: &PlanRef, column: usize) -> Option<Filter> {
    let schema = child.schema();
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let column = filter.projection().as_ref().map_or(Some(column), |places| places.get(column).copied());
        return column_of(&schema, column?);
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return projection.expr().get(column).map(|column| Arc::clone(&column.expr));
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().expr().get(column).map(|(expr, _)| Arc::clone(expr));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return source_of_join(join, place, &schema, column);
    }
    let keeps_columns = node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<BufferExec>()
        || node.is::<BarrierExec>()
        || node.is::<SortExec>()
        || node.is::<UnionExec>();
    if keeps_columns { column_of(&schema, column) } else { None }
}

fn source_of_join(join: &HashJoinExec, place: usize, child: &Schema, column: usize) -> Option<Filter> {
    let ColumnIndex { index, side } = origin(join, column)?;
    match (side, place) {
        (JoinSide::Left, 0) | (JoinSide::Right, 1) => column_of(child, index),
        (JoinSide::None, _) => None,
        _ => equal_key(join, side, index, child),
    }
}

/// The side and the column there that a column of a join's output is from.
pub(super) fn origin(join: &HashJoinExec, column: usize) -> Option<ColumnIndex> {
    let (_, mut columns) = build_join_schema(&join.left().schema(), &join.right().schema(), join.join_type());
    let column = join.projection.as_ref().map_or(Some(column), |places| places.get(column).copied())?;
    (column < columns.len()).then(|| columns.swap_remove(column))
}

/// The key on the other side of a semi join that equals a key on this one, in every row that the join gives.
fn equal_key(join: &HashJoinExec, side: JoinSide, column: usize, child: &Schema) -> Option<Filter> {
    if !matches!(join.join_type(), JoinType::LeftSemi | JoinType::RightSemi) {
        return None;
    }
    let other = join.on().iter().find_map(|(left, right)| {
        let (own, other) = if side == JoinSide::Left { (left, right) } else { (right, left) };
        own.downcast_ref::<Column>().filter(|own| own.index() == column).map(|_| other)
    })?;
    // Both zeros are equal keys, but conditions distinguish them.
    let of_floats = other.data_type(child).map_or(true, |data_type| data_type.is_floating());
    (!of_floats).then(|| Arc::clone(other))
}
