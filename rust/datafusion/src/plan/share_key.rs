//! Which plans queries share: those whose rows follow from their tables' snapshots, and from nothing else.
//!
//! Plans of tables whose state nobody can compare have no key, nor have those with functions that give something else each time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use lakemark_table::Snapshot;

use crate::config::{LakemarkOptions, Share};
use crate::plan::provider::LakemarkTable;
use crate::share::key::{KeyParts, PlanKey, PlanSession};

/// The key of an optimized plan, if the session shares plans and this one may be shared.
pub(super) fn key_of(plan: &LogicalPlan, state: &SessionState) -> Option<Arc<PlanKey>> {
    if LakemarkOptions::of(state.config_options()).share == Share::Off {
        return None;
    }
    Some(sources_of(plan)?.key(plan, Arc::new(session_of(state))))
}

fn session_of(state: &SessionState) -> PlanSession {
    PlanSession {
        config: state.config().clone(),
        runtime: Arc::clone(state.runtime_env()),
        rules: state.physical_optimizers().to_vec(),
        execution: state.execution_props().clone(),
        statistics: state.statistics_registry().cloned(),
    }
}

/// What the rows of a plan come from, besides the plan itself.
#[derive(Default)]
pub(super) struct Sources {
    snapshots: Vec<Arc<Snapshot>>,
    functions: Vec<usize>,
    types: Vec<DataType>,
    shape: DefaultHasher,
    /// Whether parameters may have no values yet.
    may_lack_values: bool,
}

/// The states of the tables that a query reads, if its rows follow from these and from nothing else.
pub(crate) fn snapshots_of(plan: &LogicalPlan) -> Option<Vec<Arc<Snapshot>>> {
    sources_of(plan).map(|sources| sources.snapshots)
}

/// The same of a query that is prepared: parameters may have no values yet, and it may read no table.
pub(crate) fn snapshots_of_prepared(plan: &LogicalPlan) -> Option<Vec<Arc<Snapshot>>> {
    let sources = walked_into(Sources { may_lack_values: true, ..Sources::default() }, plan);
    sources.map(|sources| sources.snapshots)
}

/// Whether a plan is a copy of another one: its top is equal, and what is below is the same in memory.
pub(crate) fn is_copy(one: &LogicalPlan, other: &LogicalPlan) -> bool {
    let below = |plan: &LogicalPlan| plan.inputs().into_iter().map(std::ptr::from_ref).collect::<Vec<_>>();
    let inputs = below(one);
    // Equal plans that are the same objects are not walked.
    if inputs.is_empty() || inputs != below(other) || one != other {
        return false;
    }
    let [one, other] = [one, other].map(top_of);
    one.functions == other.functions && one.types == other.types
}

/// What the expressions of an operator are made of that DataFusion does not compare.
fn top_of(node: &LogicalPlan) -> Sources {
    let mut sources = Sources::default();
    let walked = node.apply_expressions(|expr| {
        expr.apply(|part| {
            // Whether it may be shared was settled before.
            sources.add_expr(part);
            Ok(TreeNodeRecursion::Continue)
        })
    });
    // Nothing is refused.
    walked.ok();
    sources
}

/// None if they come from something that two queries cannot compare, or from no table at all.
pub(super) fn sources_of(plan: &LogicalPlan) -> Option<Sources> {
    walked(plan).filter(|sources| !sources.snapshots.is_empty())
}

fn walked(plan: &LogicalPlan) -> Option<Sources> {
    walked_into(Sources::default(), plan)
}

fn walked_into(mut sources: Sources, plan: &LogicalPlan) -> Option<Sources> {
    let mut is_known = true;
    let ended = plan.apply_with_subqueries(|node| {
        is_known &= sources.add_node(node).is_some();
        if !is_known {
            return Ok(TreeNodeRecursion::Stop);
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                is_known &= sources.add_expr(part).is_some();
                Ok(if is_known { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    });
    (is_known && ended.is_ok()).then_some(sources)
}

impl Sources {
    /// A hash of the plan. Equal plans have equal ones, and few others have. Schemas are left out: a query alone would go through the columns
    /// of its tables once for each operator, and those who have the same operators seldom differ in these.
    pub(super) fn shape(&self) -> u64 {
        self.shape.finish()
    }

    /// The key of the plan that they are of.
    pub(super) fn key(self, plan: &LogicalPlan, session: Arc<PlanSession>) -> Arc<PlanKey> {
        let shape = self.shape();
        let Self { snapshots, functions, types, .. } = self;
        Arc::new(PlanKey::new(KeyParts { plan: plan.clone(), shape, snapshots, functions, types, session }))
    }

    /// None for nodes that change something, or whose rows nobody else may have.
    fn add_node(&mut self, node: &LogicalPlan) -> Option<()> {
        discriminant(node).hash(&mut self.shape);
        match node {
            LogicalPlan::TableScan(scan) => {
                (&scan.table_name, &scan.projection, scan.fetch).hash(&mut self.shape);
                self.snapshots.push(pinned(scan)?);
                Some(())
            }
            LogicalPlan::Sort(sort) => {
                let orders = sort.expr.iter().map(|order| (order.asc, order.nulls_first));
                (sort.fetch, orders.collect::<Vec<_>>()).hash(&mut self.shape);
                Some(())
            }
            LogicalPlan::Join(join) => {
                join.join_type.hash(&mut self.shape);
                Some(())
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_) => Some(()),
            LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Extension(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::DescribeTable(_)
            | LogicalPlan::RecursiveQuery(_) => None,
        }
    }

    /// None for expressions that give something else each time, or depend on what the plan does not say.
    fn add_expr(&mut self, expr: &Expr) -> Option<()> {
        discriminant(expr).hash(&mut self.shape);
        let (place, volatility) = match expr {
            Expr::ScalarFunction(call) => (place_of(&call.func), call.func.signature().volatility),
            Expr::HigherOrderFunction(call) => (place_of(&call.func), call.func.signature().volatility),
            Expr::AggregateFunction(call) => (place_of(&call.func), call.func.signature().volatility),
            Expr::WindowFunction(call) => match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => {
                    (place_of(function), function.signature().volatility)
                }
                WindowFunctionDefinition::WindowUDF(function) => (place_of(function), function.signature().volatility),
            },
            Expr::Placeholder(_) if self.may_lack_values => return Some(()),
            Expr::ScalarVariable(..) | Expr::Placeholder(_) => return None,
            Expr::Literal(value, _) => {
                value.hash(&mut self.shape);
                self.types.extend(Some(value.data_type()).filter(is_more_than_its_values));
                return Some(());
            }
            Expr::Column(column) => {
                column.name.hash(&mut self.shape);
                return Some(());
            }
            Expr::BinaryExpr(binary) => {
                binary.op.hash(&mut self.shape);
                return Some(());
            }
            _ => return Some(()),
        };
        place.hash(&mut self.shape);
        self.functions.push(place);
        // One that is stable within a statement may be another one in the next. DataFusion's own of these are literals by now.
        (volatility == Volatility::Immutable).then_some(())
    }
}

/// Whether literals of another type may count as equal to those of this one: DataFusion compares them without zones and sizes.
fn is_more_than_its_values(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) | DataType::FixedSizeBinary(_) => true,
        DataType::Dictionary(_, values) => is_more_than_its_values(values),
        DataType::RunEndEncoded(_, values) => is_more_than_its_values(values.data_type()),
        nested => nested.is_nested(),
    }
}

/// Where a function is in memory. Functions of one name may do different things, whatever they say of themselves.
fn place_of<T>(function: &Arc<T>) -> usize {
    Arc::as_ptr(function).addr()
}

/// The state of the table of ours that a scan reads, if every scan of the plan reads just this one.
pub(super) fn pinned(scan: &TableScan) -> Option<Arc<Snapshot>> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<LakemarkTable>()?.pinned_snapshot().cloned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::common::ScalarValue;
    use datafusion::functions::math::expr_fn::{abs, random};
    use datafusion::logical_expr::{Filter, LogicalPlanBuilder, cast, col, lit};

    use super::*;

    fn values() -> LogicalPlanBuilder {
        LogicalPlanBuilder::values(vec![vec![lit(1_i64), lit(2_i64)]]).unwrap()
    }

    fn filtered(by: Expr) -> LogicalPlan {
        values().filter(by).and_then(LogicalPlanBuilder::build).unwrap()
    }

    fn shape(plan: &LogicalPlan) -> u64 {
        walked(plan).unwrap().shape()
    }

    #[test]
    fn plans_that_differ_in_a_value_a_column_a_function_or_an_order_have_other_shapes() {
        let ordered =
            |ascending: bool| values().sort([col("column1").sort(ascending, true)]).and_then(LogicalPlanBuilder::build);
        let plans = [
            filtered(col("column1").gt(lit(3_i64))),
            filtered(col("column1").gt(lit(4_i64))),
            filtered(col("column1").lt(lit(3_i64))),
            filtered(col("column2").gt(lit(3_i64))),
            filtered(abs(col("column1")).gt(lit(3_i64))),
            ordered(true).unwrap(),
            ordered(false).unwrap(),
        ];
        let shapes: BTreeSet<u64> = plans.iter().map(shape).collect();
        assert_eq!(shapes.len(), plans.len());
        assert_eq!(shape(&filtered(col("column1").gt(lit(3_i64)))), shape(&plans[0]));
    }

    #[test]
    fn plans_that_differ_in_a_type_alone_have_one_shape_and_are_not_equal() {
        let [short, long] = [DataType::Int16, DataType::Int32].map(|data_type| {
            let column = cast(col("column1"), data_type).alias("x");
            values().project([column]).and_then(LogicalPlanBuilder::build).unwrap()
        });
        assert_eq!(shape(&short), shape(&long));
        assert_ne!(short, long);
    }

    #[test]
    fn a_copy_has_an_equal_top_over_the_same_plans() {
        let below = Arc::new(values().build().unwrap());
        let in_zone = |zone: &str| {
            let moment = Expr::Literal(ScalarValue::TimestampSecond(Some(5), Some(zone.into())), None);
            LogicalPlan::Filter(Filter::try_new(moment.is_not_null(), Arc::clone(&below)).unwrap())
        };
        let [one, other] = ["+01:00", "+02:00"].map(in_zone);
        assert!(is_copy(&one, &one.clone()));
        // They are equal for DataFusion.
        assert!(one == other && !is_copy(&one, &other));
        let anew = filtered(col("column1").gt(lit(3_i64)));
        assert!(!is_copy(&anew, &filtered(col("column1").gt(lit(3_i64)))));
    }

    #[test]
    fn plans_that_give_something_else_each_time_are_not_compared() {
        assert!(walked(&filtered(random().lt(lit(0.5)))).is_none());
    }
}
