//! Parts of plans that queries share though they differ above: aggregates, and small inputs of joins.
//!
//! ```text
//! SELECT k, n FROM … ORDER BY n      Sort ─ SharedExec ─ Aggregate ┐
//! SELECT max(n) FROM …               Aggregate ─ SharedExec ───────┴─ one execution
//! ```
//!
//! A part is shared if different queries have it that begin at about the same time. It gets nothing from above then, neither limits nor
//! filters. So parts stay as they are where an operator above would narrow them: aggregates below joins, limits and first rows of an order.
//! Of a join the small input is shared, which its build side is made of.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use tokio::runtime::Handle;

use crate::plan::late_plan::planned_later;
use crate::plan::share_key::{Sources, pinned, sources_of};
use crate::share::key::PlanKey;
use crate::share::operator::{SharedExec, SharedParts};
use crate::share::registry::PlanSharing;

/// The most rows of the tables below a small input of a join.
const SMALL_INPUT_ROWS: u64 = 1 << 18;
/// So many times as many rows the tables below the other input have at least.
const LARGER: u64 = 8;

/// The parts of a plan that it shares with others.
pub(super) struct Pivots<'a> {
    pub(super) sharing: &'a Arc<PlanSharing>,
    /// The whole plan.
    pub(super) query: &'a Arc<PlanKey>,
}

/// Where a part of a plan is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the plan itself.
    Root,
    /// Nothing above it would narrow it.
    Free,
    /// It is the small input of a join.
    SmallInput,
    /// Something above may narrow it.
    Narrowed,
}

impl Place {
    /// The place of an input of a node that is here.
    fn of_input(self, node: &LogicalPlan, is_small: bool) -> Self {
        let below_narrowed = matches!(self, Self::SmallInput | Self::Narrowed);
        match node {
            LogicalPlan::Join(_) if is_small => Self::SmallInput,
            LogicalPlan::Sort(sort) if sort.fetch.is_some() => Self::Narrowed,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Union(_)
                if !below_narrowed =>
            {
                Self::Free
            }
            _ => Self::Narrowed,
        }
    }
}

impl Pivots<'_> {
    /// The plan with its parts marked that queries share; none if there is no such part.
    pub(super) fn marked(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let mut found = SharedKeys::default();
        self.look(plan, Place::Root, &mut found);
        if found.keys.is_empty() {
            return Ok(None);
        }
        found.walked = 0;
        self.mark(plan.clone(), &mut found).map(|marked| Some(marked.data))
    }

    /// Finds the parts that another query has.
    fn look(&self, plan: &LogicalPlan, place: Place, found: &mut SharedKeys) {
        let number = found.step();
        if is_pivot(plan, place)
            && let Some(sources) = sources_of(plan)
            && let Some(key) = self.shared_key(plan, sources)
        {
            found.keys.insert(number, key);
            return;
        }
        let small = small_input(plan);
        for (input, part) in plan.inputs().into_iter().enumerate() {
            self.look(part, place.of_input(plan, small == Some(input)), found);
        }
    }

    /// The key of a part that another query takes as well: one that began a moment ago, or one that runs the part just now. A query alone
    /// makes no key of its parts.
    fn shared_key(&self, part: &LogicalPlan, sources: Sources) -> Option<Arc<PlanKey>> {
        let shape = sources.shape();
        // This one is remembered in any case.
        let is_seen = self.sharing.is_part_of_another(shape, self.query);
        if !is_seen && !self.sharing.has_flights(shape) {
            return None;
        }
        let key = sources.key(part, Arc::clone(self.query.session()));
        let is_in_flight = || {
            let runtime = Handle::try_current().ok()?;
            self.sharing.in_flight(&key, runtime.id())
        };
        (is_seen || is_in_flight().is_some()).then_some(key)
    }

    /// Marks them.
    fn mark(&self, plan: LogicalPlan, found: &mut SharedKeys) -> Result<Transformed<LogicalPlan>> {
        let number = found.step();
        if let Some(key) = found.keys.remove(&number) {
            let node = SharedNode { input: plan, key, sharing: Arc::clone(self.sharing) };
            return Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })));
        }
        plan.map_children(|input| self.mark(input, found))
    }
}

/// The keys of the parts that are shared, by their numbers in a walk: an operator comes before its inputs, and a shared part without them.
#[derive(Default)]
struct SharedKeys {
    keys: HashMap<usize, Arc<PlanKey>>,
    walked: usize,
}

impl SharedKeys {
    /// The number of the operator that the walk comes to.
    fn step(&mut self) -> usize {
        let number = self.walked;
        self.walked += 1;
        number
    }
}

/// Whether a part of a plan is of the kind that is shared where it is.
fn is_pivot(plan: &LogicalPlan, place: Place) -> bool {
    let is_kind = match place {
        Place::Free => matches!(plan, LogicalPlan::Aggregate(_)),
        Place::SmallInput => is_plain(plan),
        Place::Root | Place::Narrowed => false,
    };
    is_kind && stands_alone(plan)
}

/// Whether a small input has none but operators that promise no order. A sort in a part is left out if nothing above needs it, and a query
/// that is the same sort would take the part's rows. Other operators, such as joins, may make a large output of small tables.
fn is_plain(plan: &LogicalPlan) -> bool {
    let is_other = |node: &LogicalPlan| {
        Ok(!matches!(
            node,
            LogicalPlan::TableScan(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
        ))
    };
    plan.exists(is_other).is_ok_and(|has_others| !has_others)
}

/// Whether a part of a plan has all that it needs: no subquery, which the plan around it would run.
fn stands_alone(plan: &LogicalPlan) -> bool {
    let needs_more = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        ))
    };
    let mut alone = true;
    let walked = plan.apply(|node| {
        node.apply_expressions(|expr| {
            alone &= !expr.exists(needs_more)?;
            Ok(TreeNodeRecursion::Continue)
        })
    });
    walked.is_ok() && alone
}

/// Which of its inputs a join surely takes for its build side: the one of small tables beside much larger ones.
fn small_input(plan: &LogicalPlan) -> Option<usize> {
    let LogicalPlan::Join(join) = plan else { return None };
    let rows = [rows_below(&join.left)?, rows_below(&join.right)?];
    let is_small = |one: u64, other: u64| one <= SMALL_INPUT_ROWS && other >= one.saturating_mul(LARGER);
    let [left, right] = rows;
    if is_small(left, right) {
        Some(0)
    } else if is_small(right, left) {
        Some(1)
    } else {
        None
    }
}

/// Rows of the tables below; none if a table does not know.
fn rows_below(plan: &LogicalPlan) -> Option<u64> {
    let mut rows = Some(0_u64);
    let walked = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let own = pinned(scan).and_then(|snapshot| snapshot.rows());
            rows = rows.zip(own).map(|(rows, own)| rows.saturating_add(own));
        }
        Ok(if rows.is_some() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    rows.filter(|_| walked.is_ok())
}

/// A part of a plan whose rows one execution gives to all queries that have an equal one.
#[derive(Debug, Clone)]
struct SharedNode {
    input: LogicalPlan,
    key: Arc<PlanKey>,
    sharing: Arc<PlanSharing>,
}

impl PartialEq for SharedNode {
    fn eq(&self, other: &Self) -> bool {
        self.input == other.input
    }
}

impl Eq for SharedNode {}

impl PartialOrd for SharedNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl Hash for SharedNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for SharedNode {
    fn name(&self) -> &'static str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self { input, ..self.clone() }),
            _ => internal_err!("Shared has one input"),
        }
    }
}

/// Plans the parts that are shared.
pub(super) struct PivotPlanner;

#[async_trait]
impl ExtensionPlanner for PivotPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(shared), [input]) = (node.as_any().downcast_ref::<SharedNode>(), physical_inputs) else {
            return Ok(None);
        };
        let (key, sharing, makes) = (Arc::clone(&shared.key), Arc::clone(&shared.sharing), planned_later(&shared.key));
        // Operators above take a part as quickly as they can, so that nobody is far behind.
        let parts = SharedParts { key, sharing, attaches: true, streams: true, makes };
        Ok(Some(Arc::new(SharedExec::planned(parts, Arc::clone(input)))))
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit, table_scan};

    use super::*;

    fn built(plan: Result<LogicalPlanBuilder>) -> LogicalPlan {
        plan.and_then(LogicalPlanBuilder::build).unwrap()
    }

    #[test]
    fn small_inputs_with_an_order_are_not_shared() {
        let table = || table_scan(Some("t"), &Schema::new(vec![Field::new("n", DataType::Int64, true)]), None).unwrap();
        let plain = || table().filter(col("n").gt(lit(3_i64))).unwrap();
        assert!(is_pivot(&built(plain().project([col("n")]).and_then(|plan| plan.alias("x"))), Place::SmallInput));
        let ordered = || plain().sort([col("n").sort(true, true)]);
        for above in [
            ordered(),
            ordered().and_then(|plan| plan.project([col("n")])?.alias("x")),
            ordered().and_then(|plan| plan.limit(0, Some(3))),
        ] {
            let plan = built(above);
            assert!(!is_pivot(&plan, Place::SmallInput), "{}", plan.display_indent());
        }
    }
}
