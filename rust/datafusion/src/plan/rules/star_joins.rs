//! Joins of facts with a dimension build their tables of the dimension, where queries share such joins.
//!
//! The engine builds of the side that it expects to have fewer rows. Above some joins it may expect hardly any row of the facts, and read the
//! dimension as the other side. So the keys of the dimension are not known when the facts are read, neither to their scan nor to the chain
//! that several queries share (see [`crate::share::stars`]).
//!
//! ```text
//! HashJoinExec: on=[(lo_partkey, p_partkey)]           HashJoinExec: on=[(p_partkey, lo_partkey)]
//!   HashJoinExec: …, 1,000 rows are expected     ─▶      part, 4,000 rows
//!   part, 4,000 rows                                     HashJoinExec: …
//! ```
//!
//! To build of the dimension costs little beside reading the facts, as it is much smaller than they are.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::UnionExec;

use super::PlanRef;
use crate::config::{LakemarkOptions, Share};
use crate::exec::build_keys::MOST_ROWS;
use crate::exec::scan::LakemarkScanExec;
use crate::share::operator::SharedExec;

/// The most rows that are expected of the tables of a dimension.
const DIMENSION_ROWS: usize = 1 << 18;
/// So many times as many rows the facts have at least.
const LARGER: usize = 8;

/// The optimizer rule. It comes behind the choice of the sides of joins, and before filters are handed down.
#[derive(Debug)]
pub(super) struct StarJoins;

impl PhysicalOptimizerRule for StarJoins {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        let LakemarkOptions { share, use_join_keys, .. } = LakemarkOptions::of(config);
        let chooses = config.optimizer.join_reordering && use_join_keys && share == Share::Stars;
        if chooses { plan.transform_up(building_dimension).data() } else { Ok(plan) }
    }

    fn name(&self) -> &'static str {
        "star_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join with its sides swapped, if the facts are on its build side.
fn building_dimension(node: PlanRef) -> Result<Transformed<PlanRef>> {
    let is_star = |join: &&HashJoinExec| {
        *join.join_type() == JoinType::Inner && join.on().len() == 1 && adds_no_rows(join.right())
    };
    let Some(join) = node.downcast_ref::<HashJoinExec>().filter(is_star) else { return Ok(Transformed::no(node)) };
    let facts = fact_rows(join.left());
    if facts == 0 || !dimension_rows(join.right()).is_some_and(|dimension| dimension.is_small_beside(facts)) {
        return Ok(Transformed::no(node));
    }
    join.swap_inputs(PartitionMode::CollectLeft).map(Transformed::yes)
}

/// How many rows tables give.
#[derive(Clone, Copy, Debug)]
struct TableRows {
    /// By an estimate, where nobody counted them.
    expected: usize,
    /// However wrong the estimate is.
    most: usize,
}

impl TableRows {
    /// Whether to build of a dimension of these rows costs little beside reading so many facts. What is expected decides, and a wrong
    /// estimate makes no table that is larger than the facts, or whose keys nobody would keep.
    fn is_small_beside(self, facts: usize) -> bool {
        let is_expected = self.expected <= DIMENSION_ROWS && self.expected.saturating_mul(LARGER) <= facts;
        is_expected && self.most <= MOST_ROWS.min(facts)
    }

    fn plus(self, other: Self) -> Self {
        let Self { expected, most } = other;
        Self { expected: self.expected.saturating_add(expected), most: self.most.saturating_add(most) }
    }
}

/// The most rows of our scan: the index, the footers and the buffer count those that may be in the answer.
fn counted(scan: &LakemarkScanExec) -> Option<usize> {
    exact(&scan.parts.statistics.num_rows).or_else(|| usize::try_from(scan.parts.most_rows?).ok())
}

/// The rows that are expected of our scan: how many there are if all that are counted are in the answer, and an estimate else.
fn expected(scan: &LakemarkScanExec) -> Option<usize> {
    scan.parts.statistics.num_rows.get_value().copied().into_iter().chain(counted(scan)).min()
}

/// The rows of the tables of a dimension; none if it is not known of one how many it has at most.
fn dimension_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<TableRows> {
    if let Some(scan) = plan.downcast_ref::<LakemarkScanExec>() {
        return Some(TableRows { expected: expected(scan)?, most: counted(scan)? });
    }
    let children = plan.children();
    if children.is_empty() {
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
        return exact(&known.num_rows).map(|rows| TableRows { expected: rows, most: rows });
    }
    children.into_iter().map(dimension_rows).reduce(|all, rows| Some(all?.plus(rows?)))?
}

/// The rows of the largest of our tables below, as far as they are known. Others share no joins.
fn fact_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.downcast_ref::<LakemarkScanExec>().and_then(expected);
    plan.children().into_iter().map(fact_rows).chain(own).max().unwrap_or(0)
}

fn exact(rows: &Precision<usize>) -> Option<usize> {
    match rows {
        Precision::Exact(rows) => Some(*rows),
        Precision::Inexact(_) | Precision::Absent => None,
    }
}

/// Whether a plan gives no more rows than its tables have together. Of a join or of a list that is taken apart there may be any number.
fn adds_no_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let below = plan.children();
    let effect = plan.cardinality_effect();
    let is_bounded = matches!(effect, CardinalityEffect::Equal | CardinalityEffect::LowerEqual)
        || plan.is::<UnionExec>()
        || plan.is::<SharedExec>();
    (below.is_empty() || is_bounded) && below.into_iter().all(adds_no_rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::CrossJoinExec;
    use datafusion::physical_plan::work_table::WorkTableExec;

    use super::*;

    #[test]
    fn a_dimension_is_small_whatever_the_estimate_is_worth() {
        let is_small = |expected: usize, most: usize, facts: usize| TableRows { expected, most }.is_small_beside(facts);
        assert!(is_small(4_000, 4_000, 32_000) && !is_small(4_000, 4_000, 31_999));
        assert!(
            is_small(DIMENSION_ROWS, MOST_ROWS, usize::MAX) && !is_small(DIMENSION_ROWS + 1, MOST_ROWS, usize::MAX)
        );
        // If the estimate is wrong, as many rows come as the facts have, and no more.
        assert!(is_small(10, 1_000, 1_000) && !is_small(10, 1_001, 1_000));
        assert!(!is_small(10, MOST_ROWS + 1, usize::MAX));
    }

    #[test]
    fn rows_that_a_leaf_counts_are_known_and_others_are_not() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let rows = |plan: &PlanRef| dimension_rows(plan).map(|TableRows { expected, most }| (expected, most));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![1, 2, 3]))]).unwrap();
        let counted: PlanRef = MemorySourceConfig::try_new_exec(&[vec![batch]], Arc::clone(&schema), None).unwrap();
        let both = UnionExec::try_new(vec![Arc::clone(&counted), Arc::clone(&counted)]).unwrap();
        assert_eq!((rows(&counted), rows(&both)), (Some((3, 3)), Some((6, 6))));
        let working: PlanRef = Arc::new(WorkTableExec::new("w".to_owned(), schema, None).unwrap());
        let either = UnionExec::try_new(vec![working, counted]).unwrap();
        assert_eq!(rows(&either), None);
        assert_eq!(fact_rows(&either), 0);
    }

    #[test]
    fn what_may_give_more_rows_than_its_tables_is_no_dimension() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let table: PlanRef = Arc::new(EmptyExec::new(schema));
        let merged: PlanRef = Arc::new(CoalescePartitionsExec::new(Arc::clone(&table)));
        let both = UnionExec::try_new(vec![Arc::clone(&merged), Arc::clone(&table)]).unwrap();
        assert!(adds_no_rows(&table) && adds_no_rows(&merged) && adds_no_rows(&both));
        let pairs: PlanRef = Arc::new(CrossJoinExec::new(Arc::clone(&table), table));
        let above: PlanRef = Arc::new(CoalescePartitionsExec::new(Arc::clone(&pairs)));
        assert!(!adds_no_rows(&pairs) && !adds_no_rows(&above));
    }
}
