//! Joins of few rows with a table that has an index on the key are run by that index.
//!
//! A join of the engine builds a table of one input and hands the other one a filter, which our scan searches in the index. That does not
//! help where there is no such filter:
//!
//! * in the recursive term of a recursive query, which is reset in each round, and with it its filters;
//! * where the table itself is the input that the join builds of, since nobody knew that the other one has few rows.
//!
//! ```text
//! HashJoinExec: on=[(node, s)]             IndexJoinExec: table=right, keys=[s]
//!   WorkTableExec                  ─▶        HashJoinExec: on=[(node, s)]
//!   LakemarkScanExec: s, o                     WorkTableExec
//!                                              LakemarkScanExec: s, o
//! ```
//!
//! [`IndexJoinExec`] decides when it runs. The rule only rules out what cannot be right, and what is known to be of no use.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{Boundedness, replace_children_if_necessary};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::PlanRef;
use super::barriers::BarrierExec;
use super::pushdown::{Filter, mapped};
use crate::config::LakemarkOptions;
use crate::exec::index_join::{IndexJoinExec, IndexJoinRequest, MOST_ROWS, TableKey, TableSide};
use crate::exec::scan::LakemarkScanExec;

/// A table with fewer rows is read in about a millisecond, by a join that runs once.
const LEAST_ROWS: usize = 1 << 16;
/// The place of the recursive term among the inputs of a recursive query.
const RECURSIVE_TERM: usize = 1;

/// The optimizer rule. It comes when filters and keys are where they will stay.
#[derive(Debug)]
pub(super) struct IndexJoins;

impl PhysicalOptimizerRule for IndexJoins {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        let LakemarkOptions { use_index, use_join_keys, .. } = LakemarkOptions::of(config);
        if use_index && use_join_keys { by_index(plan, Runs::Once) } else { Ok(plan) }
    }

    fn name(&self) -> &'static str {
        "index_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// How often an operator is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Once,
    /// In each round of a recursive query.
    InRounds,
}

/// The plan with the operator over each join that an index may run.
fn by_index(node: PlanRef, runs: Runs) -> Result<PlanRef> {
    let is_recursive = node.is::<RecursiveQueryExec>();
    let below = |place: usize| if is_recursive && place == RECURSIVE_TERM { Runs::InRounds } else { runs };
    let children = node.children().into_iter().cloned().enumerate();
    let children = children.map(|(place, child)| by_index(child, below(place))).collect::<Result<Vec<_>>>()?;
    let node = if children.is_empty() { node } else { replace_children_if_necessary(node, children)? };
    let request = node.downcast_ref::<HashJoinExec>().map(|join| request(join, runs)).transpose()?.flatten();
    Ok(match request {
        Some(request) => Arc::new(IndexJoinExec::new(node, request)) as PlanRef,
        None => node,
    })
}

fn request(join: &HashJoinExec, runs: Runs) -> Result<Option<IndexJoinRequest>> {
    // Searches find no NULL.
    let is_plain = !join.null_aware && join.null_equality() == NullEquality::NullEqualsNothing;
    if !is_plain || *join.partition_mode() == PartitionMode::Auto {
        return Ok(None);
    }
    // Where the table is on the right, a join that runs once has a filter for its scan.
    let sides: &[TableSide] = match runs {
        Runs::Once => &[TableSide::Left],
        Runs::InRounds => &[TableSide::Right, TableSide::Left],
    };
    for side in sides.iter().copied().filter(|side| needs_matches_alone(*join.join_type(), *side)) {
        let (few, table) = match side {
            TableSide::Left => (join.right(), join.left()),
            TableSide::Right => (join.left(), join.right()),
        };
        let is_of_use = runs == Runs::InRounds || is_large(table) && !reads_filter(join)?;
        if !is_of_use || !may_be_few(few) {
            continue;
        }
        let mut keys = Vec::new();
        for (place, (left, right)) in join.on().iter().enumerate() {
            let key = if side == TableSide::Left { left } else { right };
            keys.extend(over_scan(key, table)?.map(|expr| TableKey { place, expr }));
        }
        if !keys.is_empty() {
            return Ok(Some(IndexJoinRequest { side, keys }));
        }
    }
    Ok(None)
}

/// Whether a join makes nothing of a row of the table that has no match.
fn needs_matches_alone(join_type: JoinType, table: TableSide) -> bool {
    matches!(
        (table, join_type),
        (_, JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi)
            | (TableSide::Right, JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark)
            | (TableSide::Left, JoinType::Right | JoinType::RightAnti | JoinType::RightMark)
    )
}

/// Whether an input may have few rows: it ends, and is not known to have many.
fn may_be_few(input: &PlanRef) -> bool {
    let rows = rows_of(input);
    input.boundedness() == Boundedness::Bounded && rows.get_value().is_none_or(|rows| *rows <= MOST_ROWS)
}

/// Whether reading a table takes long.
fn is_large(table: &PlanRef) -> bool {
    rows_of(table).get_value().is_some_and(|rows| *rows >= LEAST_ROWS)
}

fn rows_of(input: &PlanRef) -> Precision<usize> {
    let known = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new());
    known.map_or(Precision::Absent, |known| known.num_rows)
}

/// Whether something below reads the filter that a join makes for its right input. That is known when the table on the left was read, and
/// the rows on the right are taken before.
fn reads_filter(join: &HashJoinExec) -> Result<bool> {
    let made: Vec<u64> =
        join.dynamic_expressions_produced().iter().filter_map(|filter| filter.expression_id()).collect();
    let mut is_read = false;
    join.right().apply(|node| {
        node.apply_expressions(&mut |root| {
            root.apply(|part| {
                is_read |= part.expression_id().is_some_and(|id| made.contains(&id));
                Ok(if is_read { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if is_read { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_read)
}

/// A key of a join over the columns of the scan that the input gives the rows of; none if no index knows it, or if what is in between does
/// more than to hand on rows one by one.
fn over_scan(key: &Filter, input: &PlanRef) -> Result<Option<Filter>> {
    if let Some(scan) = input.downcast_ref::<LakemarkScanExec>() {
        return Ok(scan.may_be_keyed_by(key).then(|| Arc::clone(key)));
    }
    let hands_on = input.is::<ProjectionExec>()
        || input.is::<FilterExec>()
        || input.is::<RepartitionExec>()
        || input.is::<CoalescePartitionsExec>()
        || input.is::<CooperativeExec>()
        || input.is::<BufferExec>()
        || input.is::<BarrierExec>();
    let mut children = input.children().into_iter();
    let (Some(child), None, true) = (children.next(), children.next(), hands_on && input.fetch().is_none()) else {
        return Ok(None);
    };
    match mapped(key, input, 0, child)? {
        Some(below) => over_scan(&below, child),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::HashJoinExecBuilder;
    use datafusion::physical_plan::work_table::WorkTableExec;

    use super::*;

    #[test]
    fn a_table_on_the_side_whose_rows_are_kept_is_read_as_a_whole() {
        let of = |table: TableSide| {
            let all = [
                JoinType::Inner,
                JoinType::Left,
                JoinType::Right,
                JoinType::Full,
                JoinType::LeftSemi,
                JoinType::RightSemi,
                JoinType::LeftAnti,
                JoinType::RightAnti,
                JoinType::LeftMark,
                JoinType::RightMark,
            ];
            let narrowed = all.into_iter().filter(|join_type| needs_matches_alone(*join_type, table));
            narrowed.map(|join_type| join_type.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(TableSide::Right), "Inner Left LeftSemi RightSemi LeftAnti LeftMark");
        assert_eq!(of(TableSide::Left), "Inner Right LeftSemi RightSemi RightAnti RightMark");
    }

    #[test]
    fn joins_without_a_table_of_ours_stay_as_they_are() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let working: PlanRef = Arc::new(WorkTableExec::new("w".to_owned(), Arc::clone(&schema), None).unwrap());
        let other: PlanRef = Arc::new(EmptyExec::new(Arc::clone(&schema)));
        assert!(may_be_few(&working) && may_be_few(&other) && !is_large(&working) && !is_large(&other));
        let n: Filter = col("n", &schema).unwrap();
        assert!(over_scan(&n, &other).unwrap().is_none());
        let on = vec![(Arc::clone(&n), n)];
        let builder = HashJoinExecBuilder::new(working, other, on, JoinType::Inner);
        let join: PlanRef = Arc::new(builder.with_partition_mode(PartitionMode::CollectLeft).build().unwrap());
        for runs in [Runs::Once, Runs::InRounds] {
            assert!(by_index(Arc::clone(&join), runs).unwrap().is::<HashJoinExec>());
        }
    }
}
