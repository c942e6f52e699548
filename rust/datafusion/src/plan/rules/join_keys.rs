//! Scans below a join's probe side get the keys of its build side, where the join has a filter for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::PlanRef;
use super::barriers::BarrierExec;
use crate::config::{LakemarkOptions, Share};
use crate::exec::build_keys::{BuildKeys, BuildKeysExec, BuildSideKeys};
use crate::exec::scan::LakemarkScanExec;

/// The optimizer rule. It comes when filters are where they will stay.
#[derive(Debug)]
pub(super) struct JoinKeys;

impl PhysicalOptimizerRule for JoinKeys {
    fn optimize(&self, plan: PlanRef, config: &ConfigOptions) -> Result<PlanRef> {
        let LakemarkOptions { use_join_keys, share, .. } = LakemarkOptions::of(config);
        if !use_join_keys {
            return Ok(plan);
        }
        let mut wanted = HashSet::new();
        plan.apply(|node| {
            let scan = node.downcast_ref::<LakemarkScanExec>().into_iter();
            wanted.extend(scan.flat_map(|scan| scan.dynamic_filter_ids(share)));
            Ok(TreeNodeRecursion::Continue)
        })?;
        if wanted.is_empty() {
            return Ok(plan);
        }
        let (mut kept, mut limits) = (HashMap::new(), HashMap::new());
        limited(&plan, None, share, &mut limits);
        let plan = plan.transform_up(|node| keeping(node, &wanted, &limits, &mut kept)).data()?;
        let given = |node: PlanRef| {
            let keyed = node.downcast_ref::<LakemarkScanExec>().and_then(|scan| scan.with_keys(&kept, share));
            Ok(keyed
                .map_or_else(|| Transformed::no(Arc::clone(&node)), |scan| Transformed::yes(Arc::new(scan) as PlanRef)))
        };
        plan.transform_up(given).data()
    }

    fn name(&self) -> &'static str {
        "join_keys"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Finds how many joined rows are enough for the operators above, if these end as soon as they have them and nothing in between reads all.
/// `limits` gets the numbers by the identities of the joins' filters that scans have.
fn limited(node: &PlanRef, rows: Option<usize>, share: Share, limits: &mut HashMap<u64, usize>) {
    if let Some(scan) = node.downcast_ref::<LakemarkScanExec>() {
        limits.extend(scan.dynamic_filter_ids(share).filter_map(|filter| Some((filter, rows?))));
        return;
    }
    let skipped = node.downcast_ref::<GlobalLimitExec>().map_or(0, GlobalLimitExec::skip);
    let own = node.fetch().map(|fetch| fetch.saturating_add(skipped));
    let rows = rows.map(|rows| rows.saturating_add(skipped)).into_iter().chain(own).min();
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // The build side is read to its end.
        limited(join.left(), None, share, limits);
        return limited(join.right(), rows, share, limits);
    }
    let passes_on = node.is::<ProjectionExec>()
        || node.is::<FilterExec>()
        || node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<BarrierExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>();
    for child in node.children() {
        limited(child, rows.filter(|_| passes_on), share, limits);
    }
}

/// Whether it costs little to have a key twice.
fn is_of_column(key: &Arc<dyn PhysicalExpr>) -> bool {
    key.is::<Column>() || key.downcast_ref::<CastExpr>().is_some_and(|cast| cast.expr().is::<Column>())
}

/// The join with its keys kept, if a scan takes them.
fn keeping(
    node: PlanRef,
    wanted: &HashSet<u64>,
    limits: &HashMap<u64, usize>,
    kept: &mut HashMap<u64, Arc<BuildKeys>>,
) -> Result<Transformed<PlanRef>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(node)) };
    let filters = join.dynamic_expressions_produced();
    let mut filters = filters.iter().filter_map(|filter| filter.expression_id());
    let Some(filter) = filters.find(|filter| wanted.contains(filter)) else { return Ok(Transformed::no(node)) };
    let on: Vec<Arc<dyn PhysicalExpr>> = join.on().iter().map(|(build, _)| Arc::clone(build)).collect();
    // Arrays of keys say nothing of rows with NULL, which may count here.
    let has_nulls = join.null_aware || join.null_equality() != NullEquality::NullEqualsNothing;
    if has_nulls || !on.iter().all(is_of_column) {
        return Ok(Transformed::no(node));
    }
    let enough = limits.get(&filter).copied();
    let BuildSideKeys { build_side, keys } = BuildKeysExec::over(Arc::clone(join.left()), on, enough);
    kept.insert(filter, keys);
    let children = vec![Arc::new(build_side) as PlanRef, Arc::clone(join.right())];
    replace_children_if_necessary(node, children).map(Transformed::yes)
}
