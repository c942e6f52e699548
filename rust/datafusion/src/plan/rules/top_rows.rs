//! A scan below `ORDER BY x LIMIT n` gets its column and its number of rows, where nothing lies between that changes the rows.
//!
//! The index knows up to which value there are enough of them, so that the scan reads the rows up to there (see
//! [`crate::exec::dynamic_filters`]). The sort stays, since equal values and further columns of the order are left to it.

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::PlanRef;
use crate::config::LakemarkOptions;
use crate::exec::scan::LakemarkScanExec;

/// The optimizer rule. It comes when sorts are where they will stay.
#[derive(Debug)]
pub(super) struct TopRows;

impl PhysicalOptimizerRule for TopRows {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        if !LakemarkOptions::of(config).use_first_rows {
            return Ok(plan);
        }
        plan.transform_down(|node| {
            let changed = node.downcast_ref::<SortExec>().and_then(|sort| {
                let first = sort.expr().first();
                let rows = u64::try_from(sort.fetch()?).ok()?;
                let below = with_first_rows(sort.input(), &first.expr, first.options, rows).transpose()?;
                Some(below.and_then(|below| replace_children_if_necessary(Arc::clone(&node), vec![below])))
            });
            Ok(changed.transpose()?.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "top_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan whose scan knows that only its first `rows` rows are needed, in an order of a column; none if there is no such scan.
fn with_first_rows(
    plan: &PlanRef,
    key: &Arc<dyn PhysicalExpr>,
    order: SortOptions,
    rows: u64,
) -> Result<Option<PlanRef>> {
    let Some(column) = key.downcast_ref::<Column>() else { return Ok(None) };
    if let Some(scan) = plan.downcast_ref::<LakemarkScanExec>() {
        return Ok(scan.with_first_rows(column.index(), order, rows).map(|scan| Arc::new(scan) as PlanRef));
    }
    let below = match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => projection.expr().get(column.index()).map(|part| &part.expr),
        None => keeps_rows(plan).then_some(key),
    };
    let inputs = plan.children();
    let (Some(key), [input]) = (below, inputs.as_slice()) else { return Ok(None) };
    let Some(input) = with_first_rows(input, key, order, rows)? else { return Ok(None) };
    replace_children_if_necessary(Arc::clone(plan), vec![input]).map(Some)
}

/// Whether an operator hands on the rows of its input as they are.
fn keeps_rows(plan: &PlanRef) -> bool {
    plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>() && plan.fetch().is_none()
        || plan.is::<RepartitionExec>() && matches!(plan.output_partitioning(), Partitioning::RoundRobinBatch(_))
}
